//! How a run reaches whoever started it: what happens is written as the format has it, and questions go to the person at
//! the terminal, if there is one.

use std::collections::{HashMap, HashSet};
use std::sync::{Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::Instant;

use bowline_host::{BoxFuture, Event, FrontEnd, Person, Question, Reply};
use bowline_state::accumulator::{Change, Snapshot};
use bowline_state::display;
use bowline_state::ledger::Verdict;
use bowline_state::operation::Operation;
use bowline_state::policy::Rule;
use bowline_state::schema::v1::{
    AuthMethod, ContentBlock, CreateElicitationRequest, ElicitationAction, SessionUpdate, TerminalId,
    ToolCallId, ToolCallStatus,
};
use bowline_workspace::terminals::LocalTerminals;
use futures_util::FutureExt as _;
use tokio::sync::watch;

use super::Format;
use super::output::Output;
use super::paint::{Paint, safe};
use super::person;
use super::story::Story;
use crate::client::login::LoginRequired;
use crate::policy::describe_saved_rule;

/// So many refusals are kept to be told at the end.
const MAX_REFUSALS: usize = 100;
/// So many breaches of the protocol are told.
const MAX_BREACHES: usize = 20;
/// So much of what a command wrote is kept until its call ends, in bytes.
const MAX_TAIL: usize = 16 << 10;
/// So much is held back while a question waits, in bytes.
const MAX_HELD: usize = 1 << 20;
/// So much of what an agent says is kept to be told at the end, in bytes.
const MAX_ANSWER: usize = 16 << 20;
/// So many commands are followed at once.
const MAX_FOLLOWED: usize = 64;

/// What was not done because nobody was there to allow it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Refusal {
    /// What the agent called it.
    pub(super) title: String,
    /// What it would have done.
    pub(super) operations: Vec<Operation>,
}

/// How a tool call of the turn ended.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct CallOutcome {
    pub(super) id: String,
    /// What the agent called it.
    pub(super) title: String,
    /// Whether it failed, or never ended.
    pub(super) failed: bool,
}

/// Shows a run.
#[derive(Debug)]
pub(super) struct Front {
    format: Format,
    output: Output,
    errors: Paint,
    // Whether what an agent says reaches a terminal.
    is_seen: bool,
    person: Option<person::Person>,
    roots: OnceLock<Vec<String>>,
    state: Mutex<State>,
    // How many commands run.
    running: watch::Sender<usize>,
}

#[derive(Debug)]
struct State {
    story: Story,
    snapshot: Option<Snapshot>,
    // Before the turn there is only what was said long ago.
    is_live: bool,
    // Whether the session was given up: nobody waits for what comes after that.
    is_over: bool,
    has_spoken: bool,
    ends_line: bool,
    refusals: Vec<Refusal>,
    breaches: usize,
    // The tool calls of the turn, and how they ended once it has.
    called: HashSet<ToolCallId>,
    calls: Vec<CallOutcome>,
    // What the agent said, where it is told at the end. Invariant: at most `MAX_ANSWER` and one piece.
    answer: String,
    terminals: HashMap<TerminalId, LocalTerminals>,
    // How many questions wait for the person.
    asking: usize,
    // What happened while they wait, to be told after them. Invariant: at most `MAX_HELD` and what one update brought.
    held: String,
}

impl State {
    fn new(story: Story) -> Self {
        Self {
            story,
            snapshot: None,
            is_live: false,
            is_over: false,
            has_spoken: false,
            ends_line: true,
            refusals: Vec::new(),
            breaches: 0,
            called: HashSet::new(),
            calls: Vec::new(),
            answer: String::new(),
            terminals: HashMap::new(),
            asking: 0,
            held: String::new(),
        }
    }

    /// Counts a breach of the protocol, and says whether it is worth telling. What comes after the session was given up
    /// is late, and no breach to whoever sent it.
    fn is_told_of_breach(&mut self) -> bool {
        self.breaches += usize::from(!self.is_over);
        !self.is_over && self.breaches <= MAX_BREACHES
    }
}

/// Counts a question as long as it waits.
struct Asking<'a>(&'a Front);

impl<'a> Asking<'a> {
    fn begin(front: &'a Front) -> Self {
        front.break_line();
        front.state().asking += 1;
        Self(front)
    }
}

impl Drop for Asking<'_> {
    fn drop(&mut self) {
        let mut state = self.0.state();
        state.asking -= 1;
        if state.asking == 0 {
            self.0.output.out(std::mem::take(&mut state.held));
        }
    }
}

impl Front {
    pub(super) fn new(
        format: Format,
        output: Output,
        story: Story,
        person: Option<person::Person>,
        errors: Paint,
        is_seen: bool,
    ) -> Self {
        let (running, _) = watch::channel(0);
        Self {
            format,
            output,
            errors,
            is_seen,
            person,
            roots: OnceLock::new(),
            state: Mutex::new(State::new(story)),
            running,
        }
    }

    /// Learns the directories of the workspace.
    pub(super) fn knows(&self, roots: Vec<String>) {
        self.roots.get_or_init(|| roots);
    }

    /// Tells something that is no part of what the agent does.
    pub(super) fn notice(&self, text: &str) {
        let text = display::line(text, 4000);
        self.break_line();
        if let Some(person) = &self.person {
            person.interrupted();
        }
        self.output.err(format!("{} {text}\n", self.errors.yellow("bowline:")));
    }

    /// Tells of what takes long.
    pub(super) fn tick(&self) {
        let mut state = self.state();
        // While a question waits, what takes long is the answer.
        if let (Format::Text, 0, Some(snapshot)) = (self.format, state.asking, state.snapshot.clone()) {
            self.output.out(state.story.tick(&snapshot, Instant::now()));
        }
    }

    /// Ends what was begun, and returns what was refused.
    pub(super) fn end(&self) -> Vec<Refusal> {
        let mut state = self.state();
        let State { snapshot, called, calls, .. } = &mut *state;
        let ended = snapshot.iter().flat_map(Snapshot::tool_calls).filter(|call| called.contains(&call.id));
        calls.extend(ended.map(|call| CallOutcome {
            id: call.id.0.to_string(),
            title: call.title.to_string(),
            failed: call.status != ToolCallStatus::Completed,
        }));
        match (self.format, state.snapshot.take()) {
            (Format::Text, Some(snapshot)) => {
                self.output.out(state.story.end(&snapshot, Instant::now()));
            }
            (Format::Quiet, _) if !state.ends_line => self.output.out("\n"),
            _ => {}
        }
        (state.is_live, state.is_over, state.ends_line) = (false, true, true);
        state.terminals.clear();
        std::mem::take(&mut state.refusals)
    }

    /// Returns how the tool calls of the turn ended, and what the agent said, where that is told at the end.
    pub(super) fn outcome(&self) -> (Vec<CallOutcome>, String) {
        let mut state = self.state();
        (std::mem::take(&mut state.calls), std::mem::take(&mut state.answer))
    }

    /// Asks a person how to log in to the agent; none without a person, or if they decline.
    pub(super) async fn log_in(&self, wanted: &LoginRequired) -> Option<AuthMethod> {
        let person = self.person.as_ref().filter(|_| wanted.has_methods())?;
        let _asking = Asking::begin(self);
        match wanted.named() {
            Some(method) => Some(method),
            None => person.log_in(wanted).await,
        }
    }

    /// Waits until no command runs.
    pub(super) async fn idle(&self) {
        self.running.subscribe().wait_for(|running| *running == 0).await.ok();
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Ends a line that the agent has begun, where the next thing is on the same screen.
    fn break_line(&self) {
        let mut state = self.state();
        if state.asking > 0 {
            return;
        }
        let snapshot = state.snapshot.clone();
        match (self.format, snapshot) {
            (Format::Text, Some(_)) => {
                let end = state.story.pause();
                self.output.out(end);
            }
            (Format::Quiet, _) if !state.ends_line && self.is_seen => {
                self.output.out("\n");
                state.ends_line = true;
            }
            _ => {}
        }
    }

    fn speak(&self, state: &mut State, update: &SessionUpdate, change: &Change) {
        let SessionUpdate::AgentMessageChunk(chunk) = update else { return };
        let ContentBlock::Text(text) = &chunk.content else { return };
        if text.text.is_empty() {
            return;
        }
        if matches!(change, Change::MessageStarted(_)) && state.has_spoken {
            self.out(state, if state.ends_line { "\n" } else { "\n\n" }.to_owned());
        }
        state.has_spoken = true;
        state.ends_line = text.text.ends_with('\n');
        let said =
            if self.is_seen && self.format != Format::Result { safe(&text.text) } else { text.text.clone() };
        self.out(state, said);
    }

    /// Writes to stdout, but not into the line of a question, or keeps it for the end.
    fn out(&self, state: &mut State, text: String) {
        if self.format == Format::Result {
            if state.answer.len() < MAX_ANSWER {
                state.answer += &text;
            }
        } else if state.asking > 0 && state.held.len() < MAX_HELD {
            state.held += &text;
        } else {
            self.output.out(text);
        }
    }
}

impl Person for Front {
    fn ask<'a>(&'a self, question: &'a Question) -> BoxFuture<'a, Reply> {
        let roots = self.roots.get().map_or(&[][..], Vec::as_slice);
        Box::pin(async move {
            let reply = match &self.person {
                None => Reply::Nobody,
                Some(person) => {
                    let _asking = Asking::begin(self);
                    person.ask(question, roots).await
                }
            };
            let mut state = self.state();
            if reply == Reply::Nobody && state.refusals.len() < MAX_REFUSALS {
                let operations = question.items.iter().map(|item| item.operation.clone()).collect();
                state.refusals.push(Refusal { title: question.title.clone(), operations });
            }
            reply
        })
    }

    fn tell(&self, text: &str) {
        self.notice(text);
    }

    fn rule_saved(&self, rule: &Rule) {
        describe_saved_rule(rule).lines().for_each(|line| self.notice(line));
    }
}

impl FrontEnd for Front {
    fn show(&self, event: Event<'_>) {
        match event {
            Event::TurnStarted { .. } => self.state().is_live = true,
            Event::Update { notification, change, snapshot } => {
                let mut state = self.state();
                if !state.is_live {
                    return;
                }
                match &notification.update {
                    SessionUpdate::ToolCall(call) => _ = state.called.insert(call.tool_call_id.clone()),
                    SessionUpdate::ToolCallUpdate(call) => _ = state.called.insert(call.tool_call_id.clone()),
                    _ => {}
                }
                match self.format {
                    Format::Json => {}
                    Format::Quiet | Format::Result => self.speak(&mut state, &notification.update, change),
                    Format::Text => {
                        let State { story, terminals, .. } = &mut *state;
                        let shown = |id: &str| {
                            let id = TerminalId::new(id);
                            let shown = terminals.get(&id)?.display(&id).now_or_never()??;
                            let from =
                                shown.text.ceil_char_boundary(shown.text.len().saturating_sub(MAX_TAIL));
                            Some(shown.text[from..].to_owned())
                        };
                        let told = story.update(notification, change, &snapshot, Instant::now(), shown);
                        self.out(&mut state, told);
                    }
                }
                state.snapshot = Some(snapshot);
            }
            Event::Breach { what, .. } if self.format == Format::Text && self.state().is_told_of_breach() => {
                self.notice(&format!("the agent breaks the protocol: {what}"));
            }
            Event::Written { path, verdict: Some(Verdict::Merged), .. } if self.format == Format::Text => {
                self.notice(&format!("{path} had changed meanwhile: both changes are in it"));
            }
            Event::TerminalStarted { terminal, terminals, .. } => {
                self.running.send_modify(|running| *running += 1);
                let mut state = self.state();
                if state.terminals.len() < MAX_FOLLOWED {
                    state.terminals.insert(terminal.clone(), terminals.clone());
                }
            }
            Event::TerminalEnded { .. } => {
                self.running.send_modify(|running| *running = running.saturating_sub(1));
            }
            Event::Notice { text } => self.notice(text),
            // Beginnings and ends are told by the run itself, and what is not known here by nobody.
            _ => {}
        }
    }

    fn elicit<'a>(
        &'a self,
        agent: Option<&'a str>,
        request: &'a CreateElicitationRequest,
    ) -> BoxFuture<'a, ElicitationAction> {
        Box::pin(async move {
            let agent = agent.unwrap_or("The agent");
            match &self.person {
                Some(person) => {
                    let _asking = Asking::begin(self);
                    person.elicit(agent, request).await
                }
                None => {
                    let message = display::line(&request.message, 300);
                    self.notice(&format!("{agent} asks, and nobody is there to answer: {message}"));
                    ElicitationAction::Decline
                }
            }
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_comes_after_a_session_was_given_up_is_no_breach() {
        let mut state = State::new(Story::new(Paint::Plain, std::path::Path::new("/work")));
        let told = (0..MAX_BREACHES + 2).filter(|_| state.is_told_of_breach()).count();
        assert_eq!(told, MAX_BREACHES);
        let mut state = State::new(Story::new(Paint::Plain, std::path::Path::new("/work")));
        assert!(state.is_told_of_breach(), "also before the turn");
        state.is_over = true;
        assert!(!state.is_told_of_breach());
    }
}
