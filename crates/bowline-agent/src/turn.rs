//! Running a turn: the model's reply, the tools, and cancelling at any point.
//!
//! [`bowline_state::turn`] decides; here it is done. Whatever is waited for is waited for beside the signal that cancels, so
//! that a turn ends within moments wherever it is.

use std::collections::VecDeque;
use std::future::Future;

use bowline_state::compaction::{Budget, Plan, due, fixed, wanted};
use bowline_state::conversation::{Message, Part, Role, ToolSpec, ToolUse, Usage};
use bowline_state::schema::v1::{CompactionStatus, CompactionUpdate, MessageId, SessionUpdate, UsageUpdate};
use bowline_state::transcript;
use bowline_state::turn::{Action, BLANK, End, ReplyEnd, ReplyFault, Turn, TurnEvent};
use bowline_wire::ClientHandle;
use bowline_wire::service::CancelSignal;
use futures_util::StreamExt;

use crate::compaction::{How, Writer, compact};
use crate::model::{Event, ModelError, Request, Stop};
use crate::reporter::Reporter;
use crate::runtime::{Choice as Served, Server};
use crate::session::{Choice, Session, Talk};
use crate::tools::{Calling, Ran};

/// What ends a turn from outside: the user, the end of the session, or that the client is gone.
pub(crate) struct Halt<'a> {
    pub(crate) signal: &'a CancelSignal,
    pub(crate) closed: &'a CancelSignal,
    pub(crate) client: &'a ClientHandle,
}

impl Halt<'_> {
    /// Waits until the turn is to end.
    pub(crate) async fn comes(&self) {
        tokio::select! {
            () = self.signal.fired() => {}
            () = self.closed.fired() => {}
            () = self.client.caller().closed() => {}
        }
    }

    /// Does something unless the turn is to end before it is done.
    pub(crate) async fn or<T>(&self, work: impl Future<Output = T>) -> Option<T> {
        tokio::select! {
            biased;
            () = self.comes() => None,
            done = work => Some(done),
        }
    }
}

/// Runs a turn to its end on what the user said.
pub(crate) async fn run(
    session: &Session,
    talk: &mut Talk,
    reporter: &Reporter,
    halt: &Halt<'_>,
    said: Vec<Part>,
) -> End {
    talk.push(Message { role: Role::User, parts: said });
    let (mut turn, actions) = Turn::begin(&talk.messages, session.settings().max_requests);
    if session.choice().model.info().is_small() {
        turn.ask_again_once();
    }
    let mut running = Running { session, talk, reporter, halt, turn, replies: 0, asked: 0, compactions: 0 };
    let mut actions = VecDeque::from(actions);
    while let Some(action) = actions.pop_front() {
        let more = match action {
            Action::Record(message) => running.record(message),
            Action::Ask => running.ask(None).await,
            Action::AskAgain => running.ask(Some(BLANK)).await,
            Action::Compact => running.compact().await,
            Action::Run(call) => running.call(&call).await,
            Action::End(end) => return end,
        };
        actions.extend(more);
    }
    // Every way through the machine ends with an end; a turn that has none was cut off.
    End::Cancelled
}

struct Running<'a> {
    session: &'a Session,
    talk: &'a mut Talk,
    reporter: &'a Reporter,
    halt: &'a Halt<'a>,
    turn: Turn,
    replies: u32,
    // What was estimated for the last request.
    asked: u64,
    compactions: u32,
}

impl Running<'_> {
    fn record(&mut self, message: Message) -> Vec<Action> {
        self.talk.push(message);
        self.session.save_soon(self.talk, self.reporter);
        Vec::new()
    }

    /// Asks the model; it is told something beside the conversation, if there is something.
    async fn ask(&mut self, beside: Option<&str>) -> Vec<Action> {
        // The tools of a client that is gone would only fail, again and again.
        if self.replies > 0 && self.halt.client.caller().is_deaf() && self.is_served() {
            return self.turn.step(TurnEvent::Cancelled);
        }
        // Chosen anew for every request: a switch takes effect on the next one.
        let choice = self.session.choice();
        if let Err(error) = self.session.shared().may_use(choice.model.info()) {
            return self.turn.step(TurnEvent::ReplyFailed(fault(error)));
        }
        if self.halt.or(choice.model.learn()).await.is_none() {
            return self.turn.step(TurnEvent::Cancelled);
        }
        let (system, tools) = self.session.briefing(&choice);
        let budget = budget(self.talk, &choice, &system, &tools);
        if let Some(plan) = due(&self.talk.messages, &budget)
            && self.make_shorter(&choice, plan).await.is_none()
        {
            return self.turn.step(TurnEvent::Cancelled);
        }
        self.asked = budget.estimated(&self.talk.messages);
        let beside = beside.map(|text| Message::text(Role::User, text));
        let said = self.talk.messages.iter().cloned().chain(beside);
        let request = Request {
            system,
            // A turn that was cancelled or failed leaves what some providers do not take.
            messages: transcript::mend(said).into(),
            tools,
            thinking: choice.thinking,
            max_output: None,
            by_words: choice.model.info().is_small(),
        };
        self.replies += 1;
        let message = MessageId::new(format!("turn{}-{}", self.talk.turn, self.replies));
        let mut reply = choice.model.ask(request);
        loop {
            let Some(event) = self.halt.or(reply.next()).await else {
                return self.turn.step(TurnEvent::Cancelled);
            };
            let Some(event) = self.tell(&message, &choice, event).await else {
                return self.turn.step(TurnEvent::Cancelled);
            };
            let actions = event.map(|event| self.turn.step(event)).unwrap_or_default();
            if !actions.is_empty() {
                return actions;
            }
            if self.reporter.should_save() {
                self.session.save_soon(self.talk, self.reporter);
            }
        }
    }

    /// Says whether the client serves any of the tools.
    fn is_served(&self) -> bool {
        let Served { read, write, terminal } = self.session.toolbox().runtimes().choice();
        [read, write, terminal].contains(&Server::Client)
    }

    /// Shows the client a piece of the reply, and returns it as the machine takes it; nothing at all if the turn is to end.
    async fn tell(
        &mut self,
        message: &MessageId,
        choice: &Choice,
        event: Option<Result<Event, ModelError>>,
    ) -> Option<Option<TurnEvent>> {
        let event = match event {
            Some(Ok(event)) => event,
            Some(Err(error)) => return Some(Some(TurnEvent::ReplyFailed(fault(error)))),
            None => {
                let cut = ModelError::CutShort("the stream ended before the reply did".to_owned());
                return Some(Some(TurnEvent::ReplyFailed(fault(cut))));
            }
        };
        let told = match event {
            Event::Text(text) => {
                self.halt.or(self.reporter.text(message, text.clone())).await?.ok()?;
                TurnEvent::Text(text)
            }
            Event::Thought { text, signature } => {
                if !text.is_empty() {
                    self.halt.or(self.reporter.thought(message, text.clone())).await?.ok()?;
                }
                TurnEvent::Thought { text, signature }
            }
            Event::Call(call) => TurnEvent::Call(call),
            Event::Retrying { why, wait, attempt } => {
                let seconds = wait.as_secs_f32();
                let text = format!("{why}; attempt {} in {seconds:.0} s\n", attempt + 1);
                self.session.log(&text);
                self.halt.or(self.reporter.thought(message, text)).await?.ok()?;
                return Some(None);
            }
            Event::Usage(usage) => {
                self.used(choice, usage).await?;
                return Some(None);
            }
            Event::End(Stop::Done) => TurnEvent::ReplyEnded(ReplyEnd::Done),
            Event::End(Stop::Length) => TurnEvent::ReplyEnded(ReplyEnd::Length),
            Event::End(Stop::Refused) => TurnEvent::ReplyEnded(ReplyEnd::Refused),
        };
        Some(Some(told))
    }

    async fn used(&mut self, choice: &Choice, usage: Usage) -> Option<()> {
        let info = choice.model.info();
        self.talk.gauge.learn(self.asked, &usage);
        self.talk.used(&usage, info.price.as_ref());
        let mut update = UsageUpdate::new(usage.input + usage.output, info.window);
        update.cost = self.talk.cost_told();
        self.halt.or(self.reporter.update(SessionUpdate::UsageUpdate(update))).await?.ok()
    }

    /// Makes room because the model says that there is none, whatever was estimated.
    async fn compact(&mut self) -> Vec<Action> {
        let choice = self.session.choice();
        self.talk.gauge.too_long(self.asked, choice.model.info().window);
        let Some(plan) = plan(self.session, self.talk, &choice, None) else {
            // Nothing can be gained; the model will say so again.
            return self.turn.step(TurnEvent::Compacted);
        };
        let made = self.make_shorter(&choice, plan).await;
        self.turn.step(if made.is_some() { TurnEvent::Compacted } else { TurnEvent::Cancelled })
    }

    /// Makes the conversation shorter, and shows that; nothing if the turn is to end.
    async fn make_shorter(&mut self, choice: &Choice, plan: Plan) -> Option<()> {
        self.compactions += 1;
        let id = format!("turn{}-compaction{}", self.talk.turn, self.compactions);
        let show = |status| self.show_compaction(&id, status);
        self.halt.or(show(CompactionStatus::InProgress)).await?;
        let made = self.halt.or(carry_out(self.session, self.talk, choice, plan, None)).await;
        let status = if made.is_some() { CompactionStatus::Completed } else { CompactionStatus::Cancelled };
        self.halt.or(self.show_compaction(&id, status)).await?;
        made.map(drop)
    }

    /// Clients that know nothing of it are told in words.
    async fn show_compaction(&self, id: &str, status: CompactionStatus) {
        let update = SessionUpdate::CompactionUpdate(CompactionUpdate::new(id.to_owned(), status.clone()));
        let told = self.reporter.client().gate().check_update(&update);
        let sent = match (told, status) {
            (Ok(()), _) => self.reporter.update(update).await,
            (Err(_), CompactionStatus::InProgress) => {
                let words = "The conversation is long; its older part is being summed up.\n";
                self.reporter.thought(&MessageId::new(id.to_owned()), words).await
            }
            (Err(_), _) => Ok(()),
        };
        if let Err(error) = sent {
            self.session.log(&format!("the client was not told: {error}"));
        }
    }

    async fn call(&mut self, call: &ToolUse) -> Vec<Action> {
        // That it is called is on disk before it is: who loads the session after a crash has to know.
        self.session.save_soon(self.talk, self.reporter);
        if self.halt.or(self.talk.saved()).await.is_none() {
            return self.turn.step(TurnEvent::Cancelled);
        }
        let calling = Calling { reporter: self.reporter.clone(), turn: self.talk.turn };
        let ran = self.halt.or(self.session.toolbox().run(call, &calling)).await;
        self.turn.step(match ran {
            Some(Ran::Result(result)) => TurnEvent::CallDone(result),
            None if self.reporter.is_running(&call.id) => TurnEvent::CutOff,
            Some(Ran::Cancelled) | None => TurnEvent::Cancelled,
        })
    }
}

/// Makes a conversation shorter if that can be done, with a focus if the user gave one. Says what was done.
pub(crate) async fn make_room(
    session: &Session,
    talk: &mut Talk,
    choice: &Choice,
    focus: Option<&str>,
) -> Option<How> {
    let plan = plan(session, talk, choice, focus)?;
    Some(carry_out(session, talk, choice, plan, focus).await)
}

fn plan(session: &Session, talk: &Talk, choice: &Choice, focus: Option<&str>) -> Option<Plan> {
    let (system, tools) = session.briefing(choice);
    let budget = budget(talk, choice, &system, &tools);
    let due = if focus.is_none() { due(&talk.messages, &budget) } else { None };
    due.or_else(|| wanted(&talk.messages, &budget).map(Plan::SumUp))
}

async fn carry_out(
    session: &Session,
    talk: &mut Talk,
    choice: &Choice,
    plan: Plan,
    focus: Option<&str>,
) -> How {
    let files = session.toolbox().known_files();
    let writer = Writer::of(choice.model.info());
    let compacted = compact(choice.model.as_ref(), writer, plan, &files, focus).await;
    if let Some(usage) = &compacted.usage {
        talk.used(usage, choice.model.info().price.as_ref());
    }
    talk.replace(compacted.messages);
    session.log(&format!("the conversation was made shorter: {:?}", compacted.how));
    compacted.how
}

fn budget(talk: &Talk, choice: &Choice, system: &str, tools: &[ToolSpec]) -> Budget {
    let info = choice.model.info();
    // A small model is told of tools in `system`.
    let tools = if info.is_small() { &[] } else { tools };
    Budget { window: info.window, fixed: fixed(system, tools), gauge: talk.gauge }
}

fn fault(error: ModelError) -> ReplyFault {
    match error {
        ModelError::TooLong(why) => ReplyFault::TooLong(why),
        ModelError::NoKey { .. } | ModelError::Keys(_) | ModelError::Unauthorized { .. } => {
            ReplyFault::Unauthorized(error.to_string())
        }
        other => ReplyFault::Failed(other.to_string()),
    }
}
