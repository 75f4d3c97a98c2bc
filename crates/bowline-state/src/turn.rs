//! One turn of an agent: what happens, and what is to be done next.
//!
//! A turn is a machine: [`TurnEvent`]s go in, [`Action`]s come out. Whoever runs it asks the model, runs the tools and
//! keeps the conversation; the machine decides in which order, and sees to it that the conversation stays one that a
//! provider takes: every call is answered, whatever ended the turn.

use std::collections::{HashSet, VecDeque};

use crate::conversation::{Message, Part, Role, ToolResult, ToolUse};

/// As many calls of one reply are run; those beyond are answered with an error.
pub const MAX_CALLS: usize = 64;

/// As often the same call may fail in the same way, one time after the other, before the turn ends.
pub const MAX_SAME_FAILURES: u32 = 5;

/// As often in a row a reply with calls may be cut off before the turn ends: a model that always says too much would go on.
pub const MAX_CUT_REPLIES: u32 = 4;

/// What a call is answered that was not run because the turn was cancelled.
pub const CANCELLED: &str = "Cancelled by the user before it was begun.";

/// What a call is answered that was being run when the turn was cancelled: nobody knows what came of it.
pub const INTERRUPTED: &str = "The turn was cancelled while it ran: it may have been done in part, in full or not at all. \
                               Look before you repeat it.";

/// What a model is told that has said nothing at all.
pub const BLANK: &str =
    "You have said nothing. Answer the user in words, or call the tool that the task needs next.";

/// What happened.
#[derive(Debug, Clone, PartialEq)]
pub enum TurnEvent {
    /// The model said more.
    Text(String),
    /// The model thought more.
    Thought {
        /// The text.
        text: String,
        /// The provider's signature of the whole thought, with its last piece.
        signature: Option<String>,
    },
    /// The model calls a tool. It is run only if the reply ends well.
    Call(ToolUse),
    /// The reply is complete.
    ReplyEnded(ReplyEnd),
    /// There is no reply, or no whole one.
    ReplyFailed(ReplyFault),
    /// The conversation was summed up as [`Action::Compact`] wanted.
    Compacted,
    /// A call was run.
    CallDone(ToolResult),
    /// The user cancelled: by the turn, by the request, or by a question about a call.
    Cancelled,
    /// The user cancelled, or is gone, while the call was carried out.
    CutOff,
}

/// How a reply ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ReplyEnd {
    /// By itself.
    Done,
    /// At the limit of tokens.
    Length,
    /// The provider will not go on.
    Refused,
}

/// Why there is no whole reply.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ReplyFault {
    /// The conversation is too long for the model.
    TooLong(String),
    /// The user has to see to the key first.
    Unauthorized(String),
    /// Anything else.
    Failed(String),
}

/// What is to be done.
#[derive(Debug, Clone, PartialEq)]
pub enum Action {
    /// Keep a message at the end of the conversation.
    Record(Message),
    /// Ask the model, with the conversation as it is then.
    Ask,
    /// Ask it once more, and tell it [`BLANK`]: it has said nothing.
    AskAgain,
    /// Sum up the conversation, then say so.
    Compact,
    /// Run a call, then say what came of it.
    Run(ToolUse),
    /// The turn is over.
    End(End),
}

/// How a turn ends.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum End {
    /// The model has said what it had to say.
    Done,
    /// The model may not say more.
    Length,
    /// The provider refuses.
    Refused,
    /// The turn took as many requests as it may.
    TooManyRequests,
    /// The user cancelled it.
    Cancelled,
    /// It cannot go on.
    Failed(ReplyFault),
}

/// One turn.
#[derive(Debug)]
pub struct Turn {
    state: State,
    // The reply that is coming in. Invariant: empty unless the state is `Asking`.
    reply: Vec<Part>,
    // Ids of calls that the conversation has already.
    ids: HashSet<String>,
    requests_left: u32,
    compacted: bool,
    // The last failed call with its answer, and how often that came.
    failing: Option<(String, u32)>,
    // How many replies in a row were cut off.
    cut: u32,
    // Whether the conversation has words or calls of the model's in this turn.
    answered: bool,
    // How often it is asked again if it says nothing.
    again: u32,
}

#[derive(Debug)]
enum State {
    Asking,
    Compacting,
    Running { waiting: VecDeque<ToolUse>, current: ToolUse, results: Vec<ToolResult> },
    Over,
}

impl Turn {
    /// Begins a turn on a conversation that ends with what the user said. The first action is to ask.
    #[must_use]
    pub fn begin(conversation: &[Message], max_requests: u32) -> (Self, Vec<Action>) {
        let ids = conversation.iter().flat_map(Message::calls).map(|call| call.id.clone()).collect();
        let mut turn = Self {
            state: State::Asking,
            reply: Vec::new(),
            ids,
            requests_left: max_requests,
            compacted: false,
            failing: None,
            cut: 0,
            answered: false,
            again: 0,
        };
        let actions = turn.ask();
        (turn, actions)
    }

    /// Is for a model that may say nothing though it has something to say: it is asked once more.
    pub fn ask_again_once(&mut self) {
        self.again = 1;
    }

    /// Says whether the turn is over: nothing that happens matters any more.
    #[must_use]
    pub fn is_over(&self) -> bool {
        matches!(self.state, State::Over)
    }

    /// Takes in what happened, and returns what is to be done. What does not fit the moment is passed over.
    #[must_use]
    pub fn step(&mut self, event: TurnEvent) -> Vec<Action> {
        match event {
            TurnEvent::Cancelled => self.cancel(CANCELLED),
            TurnEvent::CutOff => self.cancel(INTERRUPTED),
            TurnEvent::Compacted if matches!(self.state, State::Compacting) => {
                self.state = State::Asking;
                vec![Action::Ask]
            }
            TurnEvent::CallDone(result) => self.call_done(result),
            event if matches!(self.state, State::Asking) => self.reply(event),
            _ => Vec::new(),
        }
    }

    fn reply(&mut self, event: TurnEvent) -> Vec<Action> {
        match event {
            TurnEvent::Text(text) => self.said(text),
            TurnEvent::Thought { text, signature } => self.thought(&text, signature),
            TurnEvent::Call(call) => {
                let call = self.with_own_id(call);
                self.reply.push(Part::Call(call));
            }
            TurnEvent::ReplyEnded(end) => return self.reply_ended(end),
            TurnEvent::ReplyFailed(ReplyFault::TooLong(why)) if !self.compacted => {
                // What came of it does not count: the request is made again.
                drop(why);
                self.reply.clear();
                self.compacted = true;
                self.state = State::Compacting;
                return vec![Action::Compact];
            }
            TurnEvent::ReplyFailed(fault) => {
                let mut actions = self.record_words();
                actions.extend(self.end(End::Failed(fault)));
                return actions;
            }
            TurnEvent::Compacted | TurnEvent::CallDone(_) | TurnEvent::Cancelled | TurnEvent::CutOff => {}
        }
        Vec::new()
    }

    fn said(&mut self, text: String) {
        match self.reply.last_mut() {
            Some(Part::Text { text: said }) => said.push_str(&text),
            _ => self.reply.push(Part::Text { text }),
        }
    }

    fn thought(&mut self, more: &str, signed: Option<String>) {
        match self.reply.last_mut() {
            // What is signed is whole: what follows is another thought.
            Some(Part::Thought { text, signature }) if signature.is_none() => {
                text.push_str(more);
                *signature = signed;
            }
            _ => self.reply.push(Part::Thought { text: more.to_owned(), signature: signed }),
        }
    }

    /// Providers match answers to calls by id, and some servers give every call the same.
    fn with_own_id(&mut self, mut call: ToolUse) -> ToolUse {
        let given = call.id.clone();
        let mut number = 2;
        while call.id.is_empty() || !self.ids.insert(call.id.clone()) {
            call.id = format!("{given}~{number}");
            number += 1;
        }
        call
    }

    fn reply_ended(&mut self, end: ReplyEnd) -> Vec<Action> {
        let parts = std::mem::take(&mut self.reply);
        let message = Message { role: Role::Assistant, parts };
        let mut calls: VecDeque<ToolUse> = message.calls().cloned().collect();
        let mut actions = Vec::new();
        let mut is_blank = true;
        if !message.parts.is_empty() {
            let is_answer = |part: &Part| match part {
                Part::Text { text } => !text.trim().is_empty(),
                part => matches!(part, Part::Call(_)),
            };
            is_blank = !message.parts.iter().any(is_answer);
            self.answered |= !is_blank;
            actions.push(Action::Record(message));
        }
        let mut results: Vec<ToolResult> = Vec::new();
        self.cut = if end == ReplyEnd::Length { self.cut + 1 } else { 0 };
        match end {
            ReplyEnd::Done => {
                let beyond = calls.split_off(calls.len().min(MAX_CALLS));
                let too_many =
                    format!("Not run: a reply may have {MAX_CALLS} calls, send the rest in the next.");
                results.extend(beyond.iter().map(|call| ToolResult::failed(call, &too_many)));
            }
            // What is behind the cut may have belonged to the last call.
            ReplyEnd::Length | ReplyEnd::Refused => {
                let cut =
                    "Not run: the reply was cut off before its end. Send the call again, in smaller parts.";
                results.extend(calls.drain(..).map(|call| ToolResult::failed(&call, cut)));
            }
        }
        match (calls.pop_front(), end) {
            (Some(first), _) => {
                actions.push(Action::Run(first.clone()));
                self.state = State::Running { waiting: calls, current: first, results };
            }
            (None, ReplyEnd::Length) if !results.is_empty() && self.cut < MAX_CUT_REPLIES => {
                actions.push(answered(results));
                actions.extend(self.ask());
            }
            (None, ReplyEnd::Done) if is_blank && self.again > 0 && self.requests_left > 0 => {
                self.again -= 1;
                self.requests_left -= 1;
                actions.push(Action::AskAgain);
            }
            (None, end) => {
                if !results.is_empty() {
                    actions.push(answered(results));
                }
                actions.extend(self.end(match end {
                    ReplyEnd::Done => End::Done,
                    ReplyEnd::Length => End::Length,
                    ReplyEnd::Refused => End::Refused,
                }));
            }
        }
        actions
    }

    fn call_done(&mut self, result: ToolResult) -> Vec<Action> {
        let State::Running { waiting, current, results } = &mut self.state else { return Vec::new() };
        if result.id != current.id {
            return Vec::new();
        }
        let hopeless = again_and_again(&mut self.failing, current, &result);
        results.push(result);
        if hopeless {
            let unrun = waiting.drain(..);
            results.extend(unrun.map(|call| ToolResult::failed(&call, "Not run: the turn was ended.")));
            let mut actions = vec![answered(std::mem::take(results))];
            let why =
                format!("the model made the same call {MAX_SAME_FAILURES} times, and it failed each time");
            actions.extend(self.end(End::Failed(ReplyFault::Failed(why))));
            return actions;
        }
        if let Some(next) = waiting.pop_front() {
            *current = next.clone();
            return vec![Action::Run(next)];
        }
        let mut actions = vec![answered(std::mem::take(results))];
        self.state = State::Asking;
        actions.extend(self.ask());
        actions
    }

    fn ask(&mut self) -> Vec<Action> {
        match self.requests_left.checked_sub(1) {
            Some(left) => {
                self.requests_left = left;
                vec![Action::Ask]
            }
            None => self.end(End::TooManyRequests),
        }
    }

    /// Ends the turn; `told` is what the call that runs is answered.
    fn cancel(&mut self, told: &str) -> Vec<Action> {
        let mut actions = self.record_words();
        if let State::Running { waiting, current, results } = &mut self.state {
            results.push(ToolResult::failed(current, told));
            results.extend(waiting.iter().map(|call| ToolResult::failed(call, CANCELLED)));
            actions.push(answered(std::mem::take(results)));
        }
        actions.extend(self.end(End::Cancelled));
        actions
    }

    /// Keeps what the model has said in a reply that did not come to its end. Its calls count for nothing, and a thought
    /// without its signature is none that a provider takes.
    fn record_words(&mut self) -> Vec<Action> {
        let mut parts = std::mem::take(&mut self.reply);
        parts.retain(|part| matches!(part, Part::Text { text } if !text.trim().is_empty()));
        if parts.is_empty() {
            return Vec::new();
        }
        self.answered = true;
        vec![Action::Record(Message { role: Role::Assistant, parts })]
    }

    fn end(&mut self, end: End) -> Vec<Action> {
        if self.is_over() {
            return Vec::new();
        }
        self.state = State::Over;
        if self.answered {
            return vec![Action::End(end)];
        }
        // Else the user's next words would follow these, and be taken for one message with them.
        let note = match &end {
            End::Cancelled => "(The user cancelled this turn before there was an answer.)",
            End::Failed(_) => "(This turn failed before there was an answer.)",
            End::Done | End::Length | End::Refused | End::TooManyRequests => "(There was no answer.)",
        };
        vec![Action::Record(Message::text(Role::Assistant, note)), Action::End(end)]
    }
}

fn answered(results: Vec<ToolResult>) -> Action {
    Action::Record(Message { role: Role::Tool, parts: results.into_iter().map(Part::Result).collect() })
}

/// Counts how often the same call failed in the same way, one time after the other, and says whether that is enough.
fn again_and_again(failing: &mut Option<(String, u32)>, call: &ToolUse, result: &ToolResult) -> bool {
    if !result.failed {
        *failing = None;
        return false;
    }
    let what = format!("{} {:?} {}", call.name, call.input, result.text);
    let times = match failing {
        Some((known, times)) if *known == what => *times + 1,
        _ => 1,
    };
    *failing = Some((what, times));
    times >= MAX_SAME_FAILURES
}

#[cfg(test)]
mod tests;
