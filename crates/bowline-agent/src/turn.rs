//! Running a turn: the model's reply, the tools, and cancellation at any point.
//!
//! [`bowline_conversation::turn`] decides; this module acts. Every wait also awaits the cancel signal, so that a turn ends
//! promptly wherever it is.

pub mod compaction;

use std::collections::VecDeque;
use std::future::Future;

use bowline_conversation::compaction::{
    CompactionPlan, TokenBudget, estimate_fixed_tokens, plan_compaction, plan_requested_summary,
};
use bowline_conversation::conversation::{
    ConversationMessage, MessagePart, MessageRole, TokenUsage, ToolSpec, ToolUse,
};
use bowline_conversation::transcript;
use bowline_conversation::turn::{
    EMPTY_REPLY_PROMPT, ReplyEnd, ReplyError, TurnAction, TurnEvent, TurnMachine, TurnOutcome,
};
use bowline_protocol::schema::v1::{
    CompactionStatus, CompactionUpdate, MessageId, SessionUpdate, UsageUpdate,
};
use bowline_wire::ClientHandle;
use bowline_wire::service::CancelSignal;
use futures_util::StreamExt;

use crate::model::{ModelError, ModelRequest, ReplyEvent, ReplyStop};
use crate::reporter::Reporter;
use crate::runtime::{Backend, BackendChoice};
use crate::session::{AgentSession, SessionConfig, SessionConversation};
use crate::tools::{CallContext, ToolCallOutcome};
use crate::turn::compaction::{CompactionMethod, SummaryWriter, compact};

/// The events that end a turn from outside: the user cancels, the session ends, or the client disconnects.
pub(crate) struct TurnCancellation<'a> {
    pub(crate) cancel_signal: &'a CancelSignal,
    pub(crate) close_signal: &'a CancelSignal,
    pub(crate) client: &'a ClientHandle,
}

impl TurnCancellation<'_> {
    /// Waits until the turn is cancelled.
    pub(crate) async fn cancelled(&self) {
        tokio::select! {
            () = self.cancel_signal.fired() => {}
            () = self.close_signal.fired() => {}
            () = self.client.caller().closed() => {}
        }
    }

    /// Runs a future to its end, or returns `None` if the turn is cancelled first.
    pub(crate) async fn run_until_cancelled<T>(&self, future: impl Future<Output = T>) -> Option<T> {
        tokio::select! {
            biased;
            () = self.cancelled() => None,
            output = future => Some(output),
        }
    }
}

/// Runs a turn to its end, starting with the user's prompt.
pub(crate) async fn run_turn(
    session: &AgentSession,
    conversation: &mut SessionConversation,
    reporter: &Reporter,
    cancellation: &TurnCancellation<'_>,
    parts: Vec<MessagePart>,
) -> TurnOutcome {
    conversation.push(ConversationMessage { role: MessageRole::User, parts });
    let (mut turn, actions) = TurnMachine::begin(&conversation.messages, session.options().max_requests);
    if session.config().model.info().is_small() {
        turn.allow_empty_reply_retry();
    }
    let mut runner = TurnRunner {
        session,
        conversation,
        reporter,
        cancellation,
        turn,
        reply_count: 0,
        estimated_tokens: 0,
        compaction_count: 0,
    };
    let mut actions = VecDeque::from(actions);
    while let Some(action) = actions.pop_front() {
        let next_actions = match action {
            TurnAction::Record(message) => runner.record_message(message),
            TurnAction::AskModel => runner.ask_model(None).await,
            TurnAction::AskModelAgain => runner.ask_model(Some(EMPTY_REPLY_PROMPT)).await,
            TurnAction::Compact => runner.compact().await,
            TurnAction::RunTool(call) => runner.run_call(&call).await,
            TurnAction::End(end) => return end,
        };
        actions.extend(next_actions);
    }
    // The machine always ends with an outcome; a turn without one was cut off.
    TurnOutcome::Cancelled
}

struct TurnRunner<'a> {
    session: &'a AgentSession,
    conversation: &'a mut SessionConversation,
    reporter: &'a Reporter,
    cancellation: &'a TurnCancellation<'a>,
    turn: TurnMachine,
    reply_count: u32,
    // The token estimate of the last request.
    estimated_tokens: u64,
    compaction_count: u32,
}

impl TurnRunner<'_> {
    fn record_message(&mut self, message: ConversationMessage) -> Vec<TurnAction> {
        self.conversation.push(message);
        self.session.save_in_background(self.conversation, self.reporter);
        Vec::new()
    }

    /// Sends the conversation to the model, with an extra note if there is one.
    async fn ask_model(&mut self, extra_prompt: Option<&str>) -> Vec<TurnAction> {
        // The tools of a disconnected client would only fail, again and again.
        if self.reply_count > 0
            && self.cancellation.client.caller().is_remote_closed()
            && self.is_served_by_client()
        {
            return self.turn.handle_event(TurnEvent::Cancelled);
        }
        // Read for every request, so that a switch of the model takes effect on the next one.
        let config = self.session.config();
        if let Err(error) = self.session.resources().check_model_usable(config.model.info()) {
            return self.turn.handle_event(TurnEvent::ReplyFailed(reply_fault(error)));
        }
        if self.cancellation.run_until_cancelled(config.model.fetch_info()).await.is_none() {
            return self.turn.handle_event(TurnEvent::Cancelled);
        }
        let (system, tools) = self.session.system_prompt_and_tools(&config);
        let budget = token_budget(self.conversation, &config, &system, &tools);
        if let Some(plan) = plan_compaction(&self.conversation.messages, &budget)
            && self.run_compaction(&config, plan).await.is_none()
        {
            return self.turn.handle_event(TurnEvent::Cancelled);
        }
        self.estimated_tokens = budget.estimated_request_tokens(&self.conversation.messages);
        let extra_prompt = extra_prompt.map(|text| ConversationMessage::from_text(MessageRole::User, text));
        let messages = self.conversation.messages.iter().cloned().chain(extra_prompt);
        let request = ModelRequest {
            system_prompt: system,
            // A cancelled or failed turn leaves messages that some providers reject.
            messages: transcript::repair_conversation(messages).into(),
            tools,
            thinking: config.thinking,
            max_output: None,
        };
        self.reply_count += 1;
        let message = MessageId::new(format!("turn{}-{}", self.conversation.turn, self.reply_count));
        let mut reply = config.model.stream_reply(request);
        loop {
            let Some(event) = self.cancellation.run_until_cancelled(reply.next()).await else {
                return self.turn.handle_event(TurnEvent::Cancelled);
            };
            let Some(event) = self.report_event(&message, &config, event).await else {
                return self.turn.handle_event(TurnEvent::Cancelled);
            };
            let actions = event.map(|event| self.turn.handle_event(event)).unwrap_or_default();
            if !actions.is_empty() {
                return actions;
            }
            if self.reporter.should_save() {
                self.session.save_in_background(self.conversation, self.reporter);
            }
        }
    }

    /// Returns whether the client serves any of the tools.
    fn is_served_by_client(&self) -> bool {
        let BackendChoice { read, write, terminal, .. } = self.session.toolbox().runtime().backend_choice();
        [read, write, terminal].contains(&Backend::Client)
    }

    /// Reports an event of the reply to the client and converts it for the machine; `None` if the turn is cancelled.
    async fn report_event(
        &mut self,
        message: &MessageId,
        config: &SessionConfig,
        event: Option<Result<ReplyEvent, ModelError>>,
    ) -> Option<Option<TurnEvent>> {
        let event = match event {
            Some(Ok(event)) => event,
            Some(Err(error)) => return Some(Some(TurnEvent::ReplyFailed(reply_fault(error)))),
            None => {
                let error = ModelError::CutShort("the stream ended before the reply did".to_owned());
                return Some(Some(TurnEvent::ReplyFailed(reply_fault(error))));
            }
        };
        let turn_event = match event {
            ReplyEvent::Text(text) => {
                self.cancellation
                    .run_until_cancelled(self.reporter.send_text(message, text.clone()))
                    .await?
                    .ok()?;
                TurnEvent::Text(text)
            }
            ReplyEvent::Thought { text, signature } => {
                if !text.is_empty() {
                    self.cancellation
                        .run_until_cancelled(self.reporter.send_thought(message, text.clone()))
                        .await?
                        .ok()?;
                }
                TurnEvent::Thought { text, signature }
            }
            ReplyEvent::Call(call) => TurnEvent::Call(call),
            ReplyEvent::Retrying { why, wait, attempt } => {
                let seconds = wait.as_secs_f32();
                let text = format!("{why}; attempt {} in {seconds:.0} s\n", attempt + 1);
                self.session.log_line(&text);
                self.cancellation
                    .run_until_cancelled(self.reporter.send_thought(message, text))
                    .await?
                    .ok()?;
                return Some(None);
            }
            ReplyEvent::Usage(usage) => {
                self.record_usage(config, usage).await?;
                return Some(None);
            }
            ReplyEvent::End(ReplyStop::Done) => TurnEvent::ReplyEnded(ReplyEnd::Done),
            ReplyEvent::End(ReplyStop::Length) => TurnEvent::ReplyEnded(ReplyEnd::LengthLimit),
            ReplyEvent::End(ReplyStop::Refused) => TurnEvent::ReplyEnded(ReplyEnd::Refused),
        };
        Some(Some(turn_event))
    }

    async fn record_usage(&mut self, config: &SessionConfig, usage: TokenUsage) -> Option<()> {
        let info = config.model.info();
        self.conversation.gauge.record_usage(self.estimated_tokens, &usage);
        self.conversation.record_usage(&usage, info.price.as_ref());
        let mut update = UsageUpdate::new(usage.input + usage.output, info.context_window);
        update.cost = self.conversation.wire_cost();
        self.cancellation
            .run_until_cancelled(self.reporter.send_update(SessionUpdate::UsageUpdate(update)))
            .await?
            .ok()
    }

    /// Compacts because the model reports a full context, regardless of the estimate.
    async fn compact(&mut self) -> Vec<TurnAction> {
        let config = self.session.config();
        self.conversation.gauge.record_overflow(self.estimated_tokens, config.model.info().context_window);
        let Some(plan) = plan_session_compaction(self.session, self.conversation, &config, None) else {
            // Nothing can be compacted; the model will report it again.
            return self.turn.handle_event(TurnEvent::Compacted);
        };
        let outcome = self.run_compaction(&config, plan).await;
        self.turn.handle_event(if outcome.is_some() { TurnEvent::Compacted } else { TurnEvent::Cancelled })
    }

    /// Compacts the conversation and reports it; `None` if the turn is cancelled.
    async fn run_compaction(&mut self, config: &SessionConfig, plan: CompactionPlan) -> Option<()> {
        self.compaction_count += 1;
        let id = format!("turn{}-compaction{}", self.conversation.turn, self.compaction_count);
        let show = |status| self.show_compaction(&id, status);
        self.cancellation.run_until_cancelled(show(CompactionStatus::InProgress)).await?;
        let outcome = self
            .cancellation
            .run_until_cancelled(apply_compaction(self.session, self.conversation, config, plan, None))
            .await;
        let status =
            if outcome.is_some() { CompactionStatus::Completed } else { CompactionStatus::Cancelled };
        self.cancellation.run_until_cancelled(self.show_compaction(&id, status)).await?;
        outcome.map(drop)
    }

    /// Reports a compaction, as text to clients that do not support the update.
    async fn show_compaction(&self, id: &str, status: CompactionStatus) {
        let update = SessionUpdate::CompactionUpdate(CompactionUpdate::new(id.to_owned(), status.clone()));
        let support = self.reporter.client().gate().check_update(&update);
        let result = match (support, status) {
            (Ok(()), _) => self.reporter.send_update(update).await,
            (Err(_), CompactionStatus::InProgress) => {
                let text = "The conversation is long; its older part is being summed up.\n";
                self.reporter.send_thought(&MessageId::new(id.to_owned()), text).await
            }
            (Err(_), _) => Ok(()),
        };
        if let Err(error) = result {
            self.session.log_line(&format!("the client was not told: {error}"));
        }
    }

    async fn run_call(&mut self, call: &ToolUse) -> Vec<TurnAction> {
        // A call is on disk before it runs: a session loaded after a crash must show it.
        self.session.save_in_background(self.conversation, self.reporter);
        if self.cancellation.run_until_cancelled(self.conversation.wait_until_saved()).await.is_none() {
            return self.turn.handle_event(TurnEvent::Cancelled);
        }
        let cx = CallContext { reporter: self.reporter.clone(), turn: self.conversation.turn };
        let outcome = self.cancellation.run_until_cancelled(self.session.toolbox().run_call(call, &cx)).await;
        self.turn.handle_event(match outcome {
            Some(ToolCallOutcome::Result(result)) => TurnEvent::CallFinished(result),
            None if self.reporter.is_call_running(&call.id) => TurnEvent::Interrupted,
            Some(ToolCallOutcome::Cancelled) | None => TurnEvent::Cancelled,
        })
    }
}

/// Compacts a conversation if possible, with the user's focus if given. Returns what was done.
pub(crate) async fn compact_conversation(
    session: &AgentSession,
    conversation: &mut SessionConversation,
    config: &SessionConfig,
    focus: Option<&str>,
) -> Option<CompactionMethod> {
    let plan = plan_session_compaction(session, conversation, config, focus)?;
    Some(apply_compaction(session, conversation, config, plan, focus).await)
}

fn plan_session_compaction(
    session: &AgentSession,
    conversation: &SessionConversation,
    config: &SessionConfig,
    focus: Option<&str>,
) -> Option<CompactionPlan> {
    let (system, tools) = session.system_prompt_and_tools(config);
    let budget = token_budget(conversation, config, &system, &tools);
    let plan = if focus.is_none() { plan_compaction(&conversation.messages, &budget) } else { None };
    plan.or_else(|| plan_requested_summary(&conversation.messages, &budget).map(CompactionPlan::Summarise))
}

async fn apply_compaction(
    session: &AgentSession,
    conversation: &mut SessionConversation,
    config: &SessionConfig,
    plan: CompactionPlan,
    focus: Option<&str>,
) -> CompactionMethod {
    let files = session.toolbox().list_known_files();
    let writer = SummaryWriter::for_model(config.model.info());
    let outcome = compact(config.model.as_ref(), writer, plan, &files, focus).await;
    if let Some(usage) = &outcome.usage {
        conversation.record_usage(usage, config.model.info().price.as_ref());
    }
    conversation.replace(outcome.messages);
    session.log_line(&format!("the conversation was made shorter: {:?}", outcome.method));
    outcome.method
}

fn token_budget(
    conversation: &SessionConversation,
    config: &SessionConfig,
    system: &str,
    tools: &[ToolSpec],
) -> TokenBudget {
    let info = config.model.info();
    // The tools of a small model are described in `system`.
    let tools = if info.is_small() { &[] } else { tools };
    TokenBudget {
        window: info.context_window,
        fixed_tokens: estimate_fixed_tokens(system, tools),
        calibration: conversation.gauge,
    }
}

fn reply_fault(error: ModelError) -> ReplyError {
    match error {
        ModelError::TooLong(reason) => ReplyError::TooLong(reason),
        ModelError::NoKey { .. } | ModelError::Keys(_) | ModelError::Unauthorized { .. } => {
            ReplyError::Unauthorized(error.to_string())
        }
        other => ReplyError::Failed(other.to_string()),
    }
}
