//! The front end of a run: writes events in the chosen format, and asks the user at the terminal, if there is one.

use std::collections::{HashMap, HashSet};
use std::sync::{Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::Instant;

use bowline_history::ledger::WriteVerdict;
use bowline_host::{Approver, BoxFuture, FrontEnd, HostEvent, Question, QuestionReply};
use bowline_policy::operation::Operation;
use bowline_policy::policy::Rule;
use bowline_protocol::accumulator::{SessionChange, SessionSnapshot};
use bowline_protocol::schema::v1::{
    AuthMethod, ContentBlock, CreateElicitationRequest, ElicitationAction, SessionUpdate, TerminalId,
    ToolCallId, ToolCallStatus,
};
use bowline_text::display;
use bowline_workspace::terminals::LocalTerminals;
use futures_util::FutureExt as _;
use tokio::sync::watch;

use super::OutputFormat;
use super::ansi::escape_text;
use super::output::RunOutput;
use super::terminal_user;
use super::turn_printer::TurnPrinter;
use bowline_client::common::console::{OutputStyle, TextStyle};
use bowline_client::common::rules::describe_saved_rule;
use bowline_client::login::LoginRequired;

/// The maximum number of denials kept for the end.
const MAX_DENIALS: usize = 100;
/// The maximum number of protocol violations reported.
const MAX_VIOLATIONS: usize = 20;
/// The maximum number of bytes of a command's output kept until its call ends.
const MAX_TERMINAL_TAIL: usize = 16 << 10;
/// The maximum number of bytes held back while a question waits.
const MAX_HELD_OUTPUT: usize = 1 << 20;
/// The maximum number of bytes of the agent's answer kept for the end.
const MAX_ANSWER: usize = 16 << 20;
/// The maximum number of commands followed at once.
const MAX_FOLLOWED_TERMINALS: usize = 64;

/// A request that was denied because there was no user to allow it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct UnattendedDenial {
    /// The agent's title for it.
    pub(super) title: String,
    /// The requested operations.
    pub(super) operations: Vec<Operation>,
}

/// How a tool call of the turn ended.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct TurnCallOutcome {
    pub(super) id: String,
    /// The agent's title for it.
    pub(super) title: String,
    /// Whether it failed, or never ended.
    pub(super) failed: bool,
}

/// The front end of a run.
#[derive(Debug)]
pub(super) struct RunFrontEnd {
    format: OutputFormat,
    output: RunOutput,
    stderr_style: OutputStyle,
    // Whether the agent's messages go to a terminal.
    is_terminal: bool,
    user: Option<terminal_user::TerminalUser>,
    roots: OnceLock<Vec<String>>,
    state: Mutex<State>,
    // The number of running commands.
    running_commands: watch::Sender<usize>,
}

#[derive(Debug)]
struct State {
    printer: TurnPrinter,
    snapshot: Option<SessionSnapshot>,
    // Updates before the turn are a replay of the session's history.
    is_turn_running: bool,
    // Whether the session was abandoned: later events are ignored.
    has_ended: bool,
    has_spoken: bool,
    is_at_line_start: bool,
    denials: Vec<UnattendedDenial>,
    violation_count: usize,
    // The tool calls of the turn, and their outcomes once it has ended.
    turn_calls: HashSet<ToolCallId>,
    call_outcomes: Vec<TurnCallOutcome>,
    // The agent's answer, if it is printed at the end. Invariant: at most `MAX_ANSWER` and one piece.
    answer: String,
    terminals: HashMap<TerminalId, LocalTerminals>,
    // The number of questions that wait for the user.
    open_questions: usize,
    // Output held back while they wait, printed after them. Invariant: at most `MAX_HELD_OUTPUT` and the output of one
    // update.
    held_output: String,
}

impl State {
    fn new(printer: TurnPrinter) -> Self {
        Self {
            printer,
            snapshot: None,
            is_turn_running: false,
            has_ended: false,
            has_spoken: false,
            is_at_line_start: true,
            denials: Vec::new(),
            violation_count: 0,
            turn_calls: HashSet::new(),
            call_outcomes: Vec::new(),
            answer: String::new(),
            terminals: HashMap::new(),
            open_questions: 0,
            held_output: String::new(),
        }
    }

    /// Counts a protocol violation, and returns whether to report it. A message after the session was abandoned is
    /// late, not a violation.
    fn record_violation(&mut self) -> bool {
        self.violation_count += usize::from(!self.has_ended);
        !self.has_ended && self.violation_count <= MAX_VIOLATIONS
    }
}

/// Counts a question while it waits.
struct QuestionGuard<'a>(&'a RunFrontEnd);

impl<'a> QuestionGuard<'a> {
    fn begin(front_end: &'a RunFrontEnd) -> Self {
        front_end.break_line();
        front_end.state().open_questions += 1;
        Self(front_end)
    }
}

impl Drop for QuestionGuard<'_> {
    fn drop(&mut self) {
        let mut state = self.0.state();
        state.open_questions -= 1;
        if state.open_questions == 0 {
            self.0.output.write_stdout(std::mem::take(&mut state.held_output));
        }
    }
}

impl RunFrontEnd {
    pub(super) fn new(
        format: OutputFormat,
        output: RunOutput,
        printer: TurnPrinter,
        user: Option<terminal_user::TerminalUser>,
        stderr_style: OutputStyle,
        is_terminal: bool,
    ) -> Self {
        let (running_commands, _) = watch::channel(0);
        Self {
            format,
            output,
            stderr_style,
            is_terminal,
            user,
            roots: OnceLock::new(),
            state: Mutex::new(State::new(printer)),
            running_commands,
        }
    }

    /// Sets the directories of the workspace.
    pub(super) fn set_roots(&self, roots: Vec<String>) {
        self.roots.get_or_init(|| roots);
    }

    /// Prints a notice of Bowline's own.
    pub(super) fn print_notice(&self, text: &str) {
        let text = display::escape_line(text, 4000);
        self.break_line();
        if let Some(user) = &self.user {
            user.break_question_line();
        }
        self.output
            .write_stderr(format!("{} {text}\n", self.stderr_style.paint(TextStyle::Warning, "bowline:")));
    }

    /// Reports slow calls.
    pub(super) fn print_slow_calls(&self) {
        let mut state = self.state();
        // While a question waits, the user is what takes long.
        if let (OutputFormat::Text, 0, Some(snapshot)) =
            (self.format, state.open_questions, state.snapshot.clone())
        {
            self.output.write_stdout(state.printer.render_slow_calls(&snapshot, Instant::now()));
        }
    }

    /// Ends the turn's output, and returns the denials.
    pub(super) fn finish_turn(&self) -> Vec<UnattendedDenial> {
        let mut state = self.state();
        let State { snapshot, turn_calls, call_outcomes, .. } = &mut *state;
        let finished_calls = snapshot
            .iter()
            .flat_map(SessionSnapshot::tool_calls)
            .filter(|call| turn_calls.contains(&call.id));
        call_outcomes.extend(finished_calls.map(|call| TurnCallOutcome {
            id: call.id.0.to_string(),
            title: call.title.to_string(),
            failed: call.status != ToolCallStatus::Completed,
        }));
        match (self.format, state.snapshot.take()) {
            (OutputFormat::Text, Some(snapshot)) => {
                self.output.write_stdout(state.printer.finish(&snapshot, Instant::now()));
            }
            (OutputFormat::Quiet, _) if !state.is_at_line_start => self.output.write_stdout("\n"),
            _ => {}
        }
        (state.is_turn_running, state.has_ended, state.is_at_line_start) = (false, true, true);
        state.terminals.clear();
        std::mem::take(&mut state.denials)
    }

    /// Returns the outcomes of the turn's tool calls, and the agent's answer if it is printed at the end.
    pub(super) fn take_outcome(&self) -> (Vec<TurnCallOutcome>, String) {
        let mut state = self.state();
        (std::mem::take(&mut state.call_outcomes), std::mem::take(&mut state.answer))
    }

    /// Asks the user how to log in to the agent; returns `None` without a user, or if the user declines.
    pub(super) async fn ask_login_method(&self, login: &LoginRequired) -> Option<AuthMethod> {
        let user = self.user.as_ref().filter(|_| login.has_methods())?;
        let _guard = QuestionGuard::begin(self);
        match login.named_method() {
            Some(method) => Some(method),
            None => user.ask_login_method(login).await,
        }
    }

    /// Waits until no command is running.
    pub(super) async fn wait_until_idle(&self) {
        self.running_commands.subscribe().wait_for(|running| *running == 0).await.ok();
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Ends a line that the agent has begun, if the next output appears on the same screen.
    fn break_line(&self) {
        let mut state = self.state();
        if state.open_questions > 0 {
            return;
        }
        let snapshot = state.snapshot.clone();
        match (self.format, snapshot) {
            (OutputFormat::Text, Some(_)) => {
                let end = state.printer.break_line();
                self.output.write_stdout(end);
            }
            (OutputFormat::Quiet, _) if !state.is_at_line_start && self.is_terminal => {
                self.output.write_stdout("\n");
                state.is_at_line_start = true;
            }
            _ => {}
        }
    }

    fn print_message_chunk(&self, state: &mut State, update: &SessionUpdate, change: &SessionChange) {
        let SessionUpdate::AgentMessageChunk(chunk) = update else { return };
        let ContentBlock::Text(text) = &chunk.content else { return };
        if text.text.is_empty() {
            return;
        }
        if matches!(change, SessionChange::MessageStarted(_)) && state.has_spoken {
            self.write_or_hold(state, if state.is_at_line_start { "\n" } else { "\n\n" }.to_owned());
        }
        state.has_spoken = true;
        state.is_at_line_start = text.text.ends_with('\n');
        let message = if self.is_terminal && self.format != OutputFormat::Result {
            escape_text(&text.text)
        } else {
            text.text.clone()
        };
        self.write_or_hold(state, message);
    }

    /// Writes to stdout; while a question is open, or in the result format, keeps the text for later.
    fn write_or_hold(&self, state: &mut State, text: String) {
        if self.format == OutputFormat::Result {
            if state.answer.len() < MAX_ANSWER {
                state.answer += &text;
            }
        } else if state.open_questions > 0 && state.held_output.len() < MAX_HELD_OUTPUT {
            state.held_output += &text;
        } else {
            self.output.write_stdout(text);
        }
    }
}

impl Approver for RunFrontEnd {
    fn ask<'a>(&'a self, question: &'a Question) -> BoxFuture<'a, QuestionReply> {
        let roots = self.roots.get().map_or(&[][..], Vec::as_slice);
        Box::pin(async move {
            let reply = match &self.user {
                None => QuestionReply::NoUser,
                Some(user) => {
                    let _guard = QuestionGuard::begin(self);
                    user.ask(question, roots).await
                }
            };
            let mut state = self.state();
            if reply == QuestionReply::NoUser && state.denials.len() < MAX_DENIALS {
                let operations = question.items.iter().map(|item| item.operation.clone()).collect();
                state.denials.push(UnattendedDenial { title: question.title.clone(), operations });
            }
            reply
        })
    }

    fn notify(&self, text: &str) {
        self.print_notice(text);
    }

    fn notify_rule_saved(&self, rule: &Rule) {
        describe_saved_rule(rule).lines().for_each(|line| self.print_notice(line));
    }
}

impl FrontEnd for RunFrontEnd {
    fn show(&self, event: HostEvent<'_>) {
        match event {
            HostEvent::TurnStarted { .. } => self.state().is_turn_running = true,
            HostEvent::Update { notification, change, snapshot } => {
                let mut state = self.state();
                if !state.is_turn_running {
                    return;
                }
                match &notification.update {
                    SessionUpdate::ToolCall(call) => _ = state.turn_calls.insert(call.tool_call_id.clone()),
                    SessionUpdate::ToolCallUpdate(call) => {
                        _ = state.turn_calls.insert(call.tool_call_id.clone())
                    }
                    _ => {}
                }
                match self.format {
                    OutputFormat::Json => {}
                    OutputFormat::Quiet | OutputFormat::Result => {
                        self.print_message_chunk(&mut state, &notification.update, change)
                    }
                    OutputFormat::Text => {
                        let State { printer, terminals, .. } = &mut *state;
                        let terminal_tail = |id: &str| {
                            let id = TerminalId::new(id);
                            let last = terminals.get(&id)?.last_snapshot(&id).now_or_never()??;
                            let from = last
                                .text
                                .ceil_char_boundary(last.text.len().saturating_sub(MAX_TERMINAL_TAIL));
                            Some(last.text[from..].to_owned())
                        };
                        let text = printer.render_update(
                            notification,
                            change,
                            &snapshot,
                            Instant::now(),
                            terminal_tail,
                        );
                        self.write_or_hold(&mut state, text);
                    }
                }
                state.snapshot = Some(snapshot);
            }
            HostEvent::Violation { description, .. }
                if self.format == OutputFormat::Text && self.state().record_violation() =>
            {
                self.print_notice(&format!("the agent breaks the protocol: {description}"));
            }
            HostEvent::FileWritten { path, verdict: Some(WriteVerdict::Merged), .. }
                if self.format == OutputFormat::Text =>
            {
                self.print_notice(&format!("{path} had changed meanwhile: both changes are in it"));
            }
            HostEvent::TerminalStarted { terminal, terminals, .. } => {
                self.running_commands.send_modify(|running| *running += 1);
                let mut state = self.state();
                if state.terminals.len() < MAX_FOLLOWED_TERMINALS {
                    state.terminals.insert(terminal.clone(), terminals.clone());
                }
            }
            HostEvent::TerminalEnded { .. } => {
                self.running_commands.send_modify(|running| *running = running.saturating_sub(1));
            }
            HostEvent::Notice { text } => self.print_notice(text),
            // The run itself reports beginnings and ends; unknown events are ignored.
            _ => {}
        }
    }

    fn show_progress(&self, activity: &str, done: Option<u64>) {
        let state = self.state();
        // The line must overwrite neither a question nor a message that the agent has begun on the same screen.
        let is_line_open = self.is_terminal && (state.printer.is_line_open() || !state.is_at_line_start);
        let done = done.filter(|_| state.open_questions == 0 && !is_line_open);
        self.output.show_progress(done.map(|done| format!("{activity}: {done}")));
    }

    fn elicit<'a>(
        &'a self,
        agent: Option<&'a str>,
        request: &'a CreateElicitationRequest,
    ) -> BoxFuture<'a, ElicitationAction> {
        Box::pin(async move {
            let agent = agent.unwrap_or("The agent");
            match &self.user {
                Some(user) => {
                    let _guard = QuestionGuard::begin(self);
                    user.elicit(agent, request).await
                }
                None => {
                    let message = display::escape_line(&request.message, 300);
                    self.print_notice(&format!("{agent} asks, but the user cannot be asked: {message}"));
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
        let mut state = State::new(TurnPrinter::new(OutputStyle::PLAIN, std::path::Path::new("/work")));
        let reported = (0..MAX_VIOLATIONS + 2).filter(|_| state.record_violation()).count();
        assert_eq!(reported, MAX_VIOLATIONS);
        let mut state = State::new(TurnPrinter::new(OutputStyle::PLAIN, std::path::Path::new("/work")));
        assert!(state.record_violation(), "also before the turn");
        state.has_ended = true;
        assert!(!state.record_violation());
    }
}
