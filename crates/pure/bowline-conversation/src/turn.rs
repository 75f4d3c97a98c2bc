//! One turn of an agent, as a state machine: [`TurnEvent`]s go in, [`TurnAction`]s come out.
//!
//! The caller asks the model, runs the tools and keeps the conversation. The machine decides the order, and keeps the
//! conversation acceptable to providers: every call is answered, however the turn ends.

use std::collections::{HashSet, VecDeque};

use crate::conversation::{ConversationMessage, MessagePart, MessageRole, ToolResult, ToolUse};

/// The maximum number of calls run for one reply; further ones are answered with an error.
pub const MAX_CALLS: usize = 64;

/// The number of consecutive identical failures of a call after which the turn ends.
pub const MAX_SAME_FAILURES: u32 = 5;

/// The number of consecutive truncated replies with calls after which the turn ends: a model that always writes too
/// much would never stop.
pub const MAX_CUT_REPLIES: u32 = 4;

/// The result of a call that was not run because the turn was cancelled.
pub const CANCELLED_RESULT: &str = "Cancelled by the user before it was begun.";

/// The result of a call that was running when the turn was cancelled: its outcome is unknown.
pub const INTERRUPTED_RESULT: &str = "The turn was cancelled while it ran: it may have been done in part, in full or not at all. \
                               Look before you repeat it.";

/// The prompt to a model that replied with nothing.
pub const EMPTY_REPLY_PROMPT: &str =
    "You have said nothing. Answer the user in words, or call the tool that the task needs next.";

/// An event of a turn.
#[derive(Debug, Clone, PartialEq)]
pub enum TurnEvent {
    /// More text from the model.
    Text(String),
    /// More of a thought from the model.
    Thought {
        /// The text.
        text: String,
        /// The provider's signature of the whole thought, with its last piece.
        signature: Option<String>,
    },
    /// The model calls a tool. The call is run only if the reply ends normally.
    Call(ToolUse),
    /// The reply is complete.
    ReplyEnded(ReplyEnd),
    /// There is no reply, or only a part of one.
    ReplyFailed(ReplyError),
    /// The conversation was summarised as [`TurnAction::Compact`] requested.
    Compacted,
    /// A call has finished.
    CallFinished(ToolResult),
    /// The user cancelled: the turn, the request, or a question about a call.
    Cancelled,
    /// The user cancelled, or is gone, while the call was running.
    Interrupted,
}

/// The end of a reply.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ReplyEnd {
    /// The model finished it.
    Done,
    /// The token limit was reached.
    LengthLimit,
    /// The provider refuses to continue.
    Refused,
}

/// Why there is no complete reply.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ReplyError {
    /// The conversation is too long for the model.
    TooLong(String),
    /// The user has to fix the API key first.
    Unauthorized(String),
    /// Any other failure.
    Failed(String),
}

/// An action for the caller.
#[derive(Debug, Clone, PartialEq)]
pub enum TurnAction {
    /// Append a message to the conversation.
    Record(ConversationMessage),
    /// Ask the model, with the conversation as it is then.
    AskModel,
    /// Ask it once more, adding [`EMPTY_REPLY_PROMPT`]: its reply was empty.
    AskModelAgain,
    /// Summarise the conversation, then report [`TurnEvent::Compacted`].
    Compact,
    /// Run a call, then report its result.
    RunTool(ToolUse),
    /// The turn is over.
    End(TurnOutcome),
}

/// The outcome of a turn.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum TurnOutcome {
    /// The model has finished.
    Done,
    /// The model reached its token limit.
    LengthLimit,
    /// The provider refuses.
    Refused,
    /// The turn used up its requests.
    TooManyRequests,
    /// The user cancelled it.
    Cancelled,
    /// It failed.
    Failed(ReplyError),
}

/// One turn.
#[derive(Debug)]
pub struct TurnMachine {
    state: State,
    // The incoming reply. Invariant: empty unless the state is `AwaitingReply`.
    reply: Vec<MessagePart>,
    // The ids of the calls in the conversation.
    ids: HashSet<String>,
    requests_left: u32,
    has_compacted: bool,
    // The last failed call with its result, and the number of consecutive occurrences.
    repeated_failure: Option<(String, u32)>,
    // The number of consecutive truncated replies.
    cut_replies: u32,
    // Whether this turn has text or calls of the model in the conversation.
    has_answer: bool,
    // The number of retries left for an empty reply.
    empty_reply_retries: u32,
}

#[derive(Debug)]
enum State {
    AwaitingReply,
    AwaitingCompaction,
    RunningTools { waiting: VecDeque<ToolUse>, current: ToolUse, results: Vec<ToolResult> },
    Ended,
}

impl TurnMachine {
    /// Begins a turn on a conversation that ends with the user's message. The first action is to ask the model.
    #[must_use]
    pub fn begin(conversation: &[ConversationMessage], max_requests: u32) -> (Self, Vec<TurnAction>) {
        let ids = conversation
            .iter()
            .flat_map(ConversationMessage::tool_uses)
            .map(|call| call.id.clone())
            .collect();
        let mut turn = Self {
            state: State::AwaitingReply,
            reply: Vec::new(),
            ids,
            requests_left: max_requests,
            has_compacted: false,
            repeated_failure: None,
            cut_replies: 0,
            has_answer: false,
            empty_reply_retries: 0,
        };
        let actions = turn.ask_model();
        (turn, actions)
    }

    /// Allows one retry for a model that sometimes gives an empty reply.
    pub fn allow_empty_reply_retry(&mut self) {
        self.empty_reply_retries = 1;
    }

    /// Returns whether the turn is over, so that further events are ignored.
    #[must_use]
    pub fn is_over(&self) -> bool {
        matches!(self.state, State::Ended)
    }

    /// Handles an event and returns the actions. An event that does not fit the state is ignored.
    #[must_use]
    pub fn handle_event(&mut self, event: TurnEvent) -> Vec<TurnAction> {
        match event {
            TurnEvent::Cancelled => self.cancel(CANCELLED_RESULT),
            TurnEvent::Interrupted => self.cancel(INTERRUPTED_RESULT),
            TurnEvent::Compacted if matches!(self.state, State::AwaitingCompaction) => {
                self.state = State::AwaitingReply;
                vec![TurnAction::AskModel]
            }
            TurnEvent::CallFinished(result) => self.finish_call(result),
            event if matches!(self.state, State::AwaitingReply) => self.handle_reply_event(event),
            _ => Vec::new(),
        }
    }

    fn handle_reply_event(&mut self, event: TurnEvent) -> Vec<TurnAction> {
        match event {
            TurnEvent::Text(text) => self.append_text(text),
            TurnEvent::Thought { text, signature } => self.append_thought(&text, signature),
            TurnEvent::Call(call) => {
                let call = self.with_unique_id(call);
                self.reply.push(MessagePart::Call(call));
            }
            TurnEvent::ReplyEnded(end) => return self.finish_reply(end),
            TurnEvent::ReplyFailed(ReplyError::TooLong(message)) if !self.has_compacted => {
                // The partial reply is discarded, because the request is made again.
                drop(message);
                self.reply.clear();
                self.has_compacted = true;
                self.state = State::AwaitingCompaction;
                return vec![TurnAction::Compact];
            }
            TurnEvent::ReplyFailed(error) => {
                let mut actions = self.record_partial_reply();
                actions.extend(self.end(TurnOutcome::Failed(error)));
                return actions;
            }
            TurnEvent::Compacted
            | TurnEvent::CallFinished(_)
            | TurnEvent::Cancelled
            | TurnEvent::Interrupted => {}
        }
        Vec::new()
    }

    fn append_text(&mut self, text: String) {
        match self.reply.last_mut() {
            Some(MessagePart::Text { text: existing }) => existing.push_str(&text),
            _ => self.reply.push(MessagePart::Text { text }),
        }
    }

    fn append_thought(&mut self, more: &str, signed: Option<String>) {
        match self.reply.last_mut() {
            // A signed thought is complete: further text begins another one.
            Some(MessagePart::Thought { text, signature }) if signature.is_none() => {
                text.push_str(more);
                *signature = signed;
            }
            _ => self.reply.push(MessagePart::Thought { text: more.to_owned(), signature: signed }),
        }
    }

    /// Makes the call's id unique: providers match answers to calls by id, and some servers give every call the same
    /// one.
    fn with_unique_id(&mut self, mut call: ToolUse) -> ToolUse {
        let original = call.id.clone();
        let mut number = 2;
        while call.id.is_empty() || !self.ids.insert(call.id.clone()) {
            call.id = format!("{original}~{number}");
            number += 1;
        }
        call
    }

    fn finish_reply(&mut self, end: ReplyEnd) -> Vec<TurnAction> {
        let parts = std::mem::take(&mut self.reply);
        let message = ConversationMessage { role: MessageRole::Assistant, parts };
        let mut calls: VecDeque<ToolUse> = message.tool_uses().cloned().collect();
        let mut actions = Vec::new();
        let mut is_blank = true;
        if !message.parts.is_empty() {
            let is_answer = |part: &MessagePart| match part {
                MessagePart::Text { text } => !text.trim().is_empty(),
                part => matches!(part, MessagePart::Call(_)),
            };
            is_blank = !message.parts.iter().any(is_answer);
            self.has_answer |= !is_blank;
            actions.push(TurnAction::Record(message));
        }
        let mut results: Vec<ToolResult> = Vec::new();
        self.cut_replies = if end == ReplyEnd::LengthLimit { self.cut_replies + 1 } else { 0 };
        match end {
            ReplyEnd::Done => {
                let beyond = calls.split_off(calls.len().min(MAX_CALLS));
                let too_many =
                    format!("Not run: a reply may have {MAX_CALLS} calls, send the rest in the next.");
                results.extend(beyond.iter().map(|call| ToolResult::failure(call, &too_many)));
            }
            // The missing part may have belonged to the last call.
            ReplyEnd::LengthLimit | ReplyEnd::Refused => {
                let cut =
                    "Not run: the reply was cut off before its end. Send the call again, in smaller parts.";
                results.extend(calls.drain(..).map(|call| ToolResult::failure(&call, cut)));
            }
        }
        match (calls.pop_front(), end) {
            (Some(first), _) => {
                actions.push(TurnAction::RunTool(first.clone()));
                self.state = State::RunningTools { waiting: calls, current: first, results };
            }
            (None, ReplyEnd::LengthLimit) if !results.is_empty() && self.cut_replies < MAX_CUT_REPLIES => {
                actions.push(record_results(results));
                actions.extend(self.ask_model());
            }
            (None, ReplyEnd::Done) if is_blank && self.empty_reply_retries > 0 && self.requests_left > 0 => {
                self.empty_reply_retries -= 1;
                self.requests_left -= 1;
                actions.push(TurnAction::AskModelAgain);
            }
            (None, end) => {
                if !results.is_empty() {
                    actions.push(record_results(results));
                }
                actions.extend(self.end(match end {
                    ReplyEnd::Done => TurnOutcome::Done,
                    ReplyEnd::LengthLimit => TurnOutcome::LengthLimit,
                    ReplyEnd::Refused => TurnOutcome::Refused,
                }));
            }
        }
        actions
    }

    fn finish_call(&mut self, result: ToolResult) -> Vec<TurnAction> {
        let State::RunningTools { waiting, current, results } = &mut self.state else { return Vec::new() };
        if result.id != current.id {
            return Vec::new();
        }
        let hopeless = count_repeated_failure(&mut self.repeated_failure, current, &result);
        results.push(result);
        if hopeless {
            let unrun = waiting.drain(..);
            results.extend(unrun.map(|call| ToolResult::failure(&call, "Not run: the turn was ended.")));
            let mut actions = vec![record_results(std::mem::take(results))];
            let reason =
                format!("the model made the same call {MAX_SAME_FAILURES} times, and it failed each time");
            actions.extend(self.end(TurnOutcome::Failed(ReplyError::Failed(reason))));
            return actions;
        }
        if let Some(next) = waiting.pop_front() {
            *current = next.clone();
            return vec![TurnAction::RunTool(next)];
        }
        let mut actions = vec![record_results(std::mem::take(results))];
        self.state = State::AwaitingReply;
        actions.extend(self.ask_model());
        actions
    }

    fn ask_model(&mut self) -> Vec<TurnAction> {
        match self.requests_left.checked_sub(1) {
            Some(left) => {
                self.requests_left = left;
                vec![TurnAction::AskModel]
            }
            None => self.end(TurnOutcome::TooManyRequests),
        }
    }

    /// Ends the turn; `result_text` is the result of the running call.
    fn cancel(&mut self, result_text: &str) -> Vec<TurnAction> {
        let mut actions = self.record_partial_reply();
        if let State::RunningTools { waiting, current, results } = &mut self.state {
            results.push(ToolResult::failure(current, result_text));
            results.extend(waiting.iter().map(|call| ToolResult::failure(call, CANCELLED_RESULT)));
            actions.push(record_results(std::mem::take(results)));
        }
        actions.extend(self.end(TurnOutcome::Cancelled));
        actions
    }

    /// Keeps the text of an incomplete reply. Its calls are dropped, and so are its thoughts, because providers
    /// reject a thought without its signature.
    fn record_partial_reply(&mut self) -> Vec<TurnAction> {
        let mut parts = std::mem::take(&mut self.reply);
        parts.retain(|part| matches!(part, MessagePart::Text { text } if !text.trim().is_empty()));
        if parts.is_empty() {
            return Vec::new();
        }
        self.has_answer = true;
        vec![TurnAction::Record(ConversationMessage { role: MessageRole::Assistant, parts })]
    }

    fn end(&mut self, end: TurnOutcome) -> Vec<TurnAction> {
        if self.is_over() {
            return Vec::new();
        }
        self.state = State::Ended;
        if self.has_answer {
            return vec![TurnAction::End(end)];
        }
        // Otherwise the user's next message would follow this one and be merged with it.
        let note = match &end {
            TurnOutcome::Cancelled => "(The user cancelled this turn before there was an answer.)",
            TurnOutcome::Failed(_) => "(This turn failed before there was an answer.)",
            TurnOutcome::Done
            | TurnOutcome::LengthLimit
            | TurnOutcome::Refused
            | TurnOutcome::TooManyRequests => "(There was no answer.)",
        };
        vec![
            TurnAction::Record(ConversationMessage::from_text(MessageRole::Assistant, note)),
            TurnAction::End(end),
        ]
    }
}

fn record_results(results: Vec<ToolResult>) -> TurnAction {
    TurnAction::Record(ConversationMessage {
        role: MessageRole::Tool,
        parts: results.into_iter().map(MessagePart::Result).collect(),
    })
}

/// Counts consecutive identical failures of a call, and returns whether the limit is reached.
fn count_repeated_failure(failing: &mut Option<(String, u32)>, call: &ToolUse, result: &ToolResult) -> bool {
    if !result.failed {
        *failing = None;
        return false;
    }
    let key = format!("{} {:?} {}", call.name, call.input, result.text);
    let times = match failing {
        Some((known, times)) if *known == key => *times + 1,
        _ => 1,
    };
    *failing = Some((key, times));
    times >= MAX_SAME_FAILURES
}

#[cfg(test)]
mod tests;
