//! `bowline run`: one prompt for an agent, with a plain terminal or unattended.

mod ansi;
mod front_end;
mod output;
mod prompt_source;
mod result;
mod signals;
mod summary;
mod terminal_user;
mod turn_printer;

use std::cell::RefCell;
use std::io::IsTerminal as _;
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use bowline_host::{HostError, HostSession, PromptOutcome};
use bowline_protocol::schema::v1::StopReason;
use bowline_text::display;
use bowline_text::display::quote;
use bowline_wire::{AgentExit, CallError, ShutdownGrace, WireRecorder};
use clap::{Args, ValueEnum};
use tokio::time::{Instant, timeout};

use crate::audit::describe_missing_log;
use bowline_client::common::console::{OutputStyle, TextStyle};
use bowline_client::common::workspace_location::WorkspaceLocation;
use bowline_client::environment::UserDirs;
use bowline_client::error::CliError;
use bowline_client::launch::{has_disconnected, prompt_error, with_agent_output};
use bowline_client::prompt::{self, PromptPart};
use bowline_client::reopen::ReopenMethod;
use bowline_client::{AgentLauncher, ClientArguments, LaunchedAgent, requested_preset};

use front_end::{RunFrontEnd, TurnCallOutcome};
use output::{MessagePrinter, OutputThread, RunOutput, StdoutError};
use prompt_source::PromptSource;
use result::RunResult;
use signals::{SignalRequest, Signals};
use turn_printer::TurnPrinter;

/// The time limit for an agent to end a cancelled turn.
const CANCEL_TIMEOUT: Duration = Duration::from_secs(10);
/// The same after a termination signal, a timeout or a closed output.
const SHORT_CANCEL_TIMEOUT: Duration = Duration::from_secs(3);
/// The grace period for an agent to exit after its turn was cancelled.
const SHORT_GRACE: ShutdownGrace =
    ShutdownGrace { after_close: Duration::from_millis(500), after_terminate: Duration::from_millis(500) };
/// The interval for reporting slow calls.
const TICK_INTERVAL: Duration = Duration::from_millis(500);
/// The time limit for the reader of stdout at the end.
const READER_TIMEOUT: Duration = Duration::from_secs(1);
/// How long to wait for running commands to settle after the turn.
const SETTLE_TIMEOUT: Duration = Duration::from_millis(500);

/// How one prompt is run.
#[derive(Args, Debug)]
#[command(after_long_help = HELP)]
pub(crate) struct RunArguments {
    /// The prompt; `-` or no prompt reads stdin, `@FILE` attaches a file
    ///
    /// `-` inserts stdin at that place. Without PROMPT and --file, the whole prompt is read from stdin. `@FILE` or
    /// `@"FILE"` attaches a file, but not in text read from stdin or a file.
    #[arg(value_name = "PROMPT")]
    prompt: Vec<String>,
    /// Read the prompt from a file; `-` is stdin
    #[arg(long, short, value_name = "FILE", conflicts_with = "prompt")]
    file: Option<String>,
    /// The output format
    #[arg(long, value_enum, default_value_t = OutputFormat::Text)]
    format: OutputFormat,
    /// Fail if a tool call failed, or if none succeeded
    #[arg(long)]
    strict: bool,
    #[command(flatten)]
    client: ClientArguments,
}

const HELP: &str = "\
The agent's output goes to stdout in the chosen --format. Questions, notices and errors go to \
stderr.

Your rules (`bowline policy`) and --approve decide what the agent may do. --approve replaces your \
preset unless that is read-only or deny. For everything else you are asked, if stdin and stderr are \
a terminal. Otherwise it is denied, and a message at the end names the option that would allow it. \
`bowline undo` reverts the changes.

Ctrl-C cancels the turn; a second Ctrl-C stops everything at once.

Exit status:
  0    success
  1    failure, or the agent refused; with --strict also if a tool call failed or none succeeded
  2    wrong usage
  3    timed out (--timeout)
  4    no such session
  5    an operation was denied without a user to ask
  130  interrupted
  143  terminated by SIGTERM

Environment:
  NO_COLOR                      no colours, if set and not empty
  XDG_STATE_HOME                journal, audit log and sessions (default: ~/.local/state)
  XDG_CONFIG_HOME               rules, agents and keys (default: ~/.config)
  XDG_DATA_HOME                 anchors of the audit log (default: ~/.local/share)
  ANTHROPIC_API_KEY and others  API keys for Bowline's own agent (`bowline doctor` lists them)

Examples:
  bowline run 'read src/main.rs'
  bowline run --approve edits 'Fix the typo in @README.md'
  git diff | bowline run 'Review this change:' - --read-only
  bowline run --agent 'gemini --acp' --approve edits --timeout 600 --file task.md
  bowline run --session last 'Now do the same for the tests'
  answer=$(bowline run --format quiet 'Which tests cover @src/parse.rs?')
  bowline run --strict --format result --approve edits --file task.md | jq .changes";

/// The output format.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum OutputFormat {
    /// For people: progress as it happens, then a summary of the changes
    Text,
    /// For programs: only the protocol messages as sent, one per line
    Json,
    /// Only the agent's answer
    Quiet,
    /// For programs: one JSON object at the end, with session, stop reason, answer, changes, tool calls, denials and
    /// usage
    Result,
}

/// Runs one prompt.
pub(crate) async fn run(arguments: RunArguments) -> Result<(), CliError> {
    let dirs = UserDirs::from_env()?;
    let (parts, source) = prompt_source::read_prompt(&arguments)?;
    let mut signals = Signals::new()?;
    let (output, writer) = RunOutput::start();
    let run = PromptRun::new(arguments, output.clone(), source);
    let deadline = run.deadline;
    let outcome = run.run(&dirs, &parts, &mut signals).await;
    let outcome = run.report_result(outcome);
    finish_output(outcome, deadline, &output, writer, &mut signals).await
}

/// Waits until all output is written, a signal arrives, or the time is over.
async fn finish_output(
    outcome: RunOutcome,
    deadline: Option<Instant>,
    output: &RunOutput,
    writer: OutputThread,
    signals: &mut Signals,
) -> Result<(), CliError> {
    let reader_deadline = Instant::now() + READER_TIMEOUT;
    let write_deadline = match outcome {
        RunOutcome::Completed => deadline.map(|deadline| deadline.max(reader_deadline)),
        // A stopped run does not wait for a slow reader.
        RunOutcome::Stopped(_) => Some(reader_deadline),
    };
    let is_written = tokio::select! {
        () = writer.finish() => true,
        request = signals.next() => return Err(request.ending()),
        () = sleep_until(write_deadline) => false,
    };
    match (outcome, output.stdout_error()) {
        (RunOutcome::Stopped(error), _) => Err(error),
        (RunOutcome::Completed, Some(StdoutError::WriteFailed(reason))) => Err(write_error(&reason)),
        (RunOutcome::Completed, Some(StdoutError::ReaderTooSlow)) => Err(slow_reader_error()),
        (RunOutcome::Completed, _) if !is_written => {
            Err(CliError::TimedOut("the turn has ended, and what it said was not read in time".to_owned()))
        }
        (RunOutcome::Completed, _) => Ok(()),
    }
}

fn write_error(reason: &str) -> CliError {
    CliError::Failed(anyhow::anyhow!("cannot write what the agent says: {reason}"))
}

fn slow_reader_error() -> CliError {
    CliError::Failed(anyhow::anyhow!("what the agent says is read too slowly: the turn was cancelled"))
}

/// How a run ended.
enum RunOutcome {
    /// Successfully, or because the reader closed the output.
    Completed,
    Stopped(CliError),
}

impl From<CliError> for RunOutcome {
    fn from(error: CliError) -> Self {
        Self::Stopped(error)
    }
}

/// Why a turn was cancelled.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum RunCancelReason {
    Signal(SignalRequest),
    TimedOut,
    /// The output is closed, or cannot be written.
    OutputClosed,
}

/// One run.
struct PromptRun {
    client: ClientArguments,
    front_end: Arc<RunFrontEnd>,
    output: RunOutput,
    format: OutputFormat,
    strict: bool,
    style: OutputStyle,
    deadline: Option<Instant>,
    result: RefCell<RunResult>,
}

impl PromptRun {
    fn new(arguments: RunArguments, output: RunOutput, source: PromptSource) -> Self {
        let RunArguments { client, format, strict, .. } = arguments;
        let [stdin, stdout, stderr] = [
            std::io::stdin().is_terminal(),
            std::io::stdout().is_terminal(),
            std::io::stderr().is_terminal(),
        ];
        let (style, stderr_style) = (OutputStyle::for_stream(stdout), OutputStyle::for_stream(stderr));
        let has_user = stdin && stderr && source == PromptSource::Other;
        let user = has_user.then(|| terminal_user::TerminalUser::new(output.clone(), stderr_style));
        let cwd = client.cwd.clone().unwrap_or_default();
        let cwd = cwd.canonicalize().or_else(|_| std::env::current_dir()).unwrap_or_default();
        let printer = TurnPrinter::new(style, &cwd);
        let front_end =
            Arc::new(RunFrontEnd::new(format, output.clone(), printer, user, stderr_style, stdout));
        // A timeout that overflows the clock is no limit.
        let deadline = client.timeout.and_then(|time| Instant::now().checked_add(time));
        let result = RefCell::default();
        Self { client, front_end, output, format, strict, style, deadline, result }
    }

    async fn run(&self, dirs: &UserDirs, parts: &[PromptPart], signals: &mut Signals) -> RunOutcome {
        let seconds = self.client.timeout.unwrap_or_default().as_secs_f64();
        let timed_out = || CliError::TimedOut(format!("the turn took longer than {seconds} s and was ended"));
        let start = self.start_agent(dirs);
        let started = tokio::select! {
            started = start => started,
            request = signals.next() => return request.ending().into(),
            () = sleep_until(self.deadline) => {
                return CliError::TimedOut(format!("the agent did not start within {seconds} s")).into();
            }
        };
        let (launch, client) = match started {
            Ok(started) => started,
            Err(error) => return error.into(),
        };
        let capabilities = &client.connection.initialize_response().agent_capabilities.prompt_capabilities;
        let prompt =
            prompt::build_prompt(parts, client.session.files(), launch.host.approvals(), capabilities);
        for note in prompt.attachments.iter().chain(&prompt.warnings) {
            self.front_end.print_notice(note);
        }
        let (turn, cancel_reason) = match self.run_turn(&client.session, prompt.blocks, signals).await {
            Ok(turn) => turn,
            // On a second signal, running processes are killed at once.
            Err(error) => return error.into(),
        };
        drop(timeout(SETTLE_TIMEOUT, self.front_end.wait_until_idle()).await);
        let refusals = self.front_end.finish_turn();
        let session = client.session.clone();
        let initialized = client.connection.initialize_response().clone();
        let has_died = has_disconnected(&client.connection);
        let exit = tokio::select! {
            exit = client.shut_down(if cancel_reason.is_some() { SHORT_GRACE } else { ShutdownGrace::default() }) => exit,
            request = signals.next() => return request.ending().into(),
        };
        let turn_number = match &turn {
            Some(Ok(turn)) => Some(turn.turn),
            _ => session.files().workspace().last_turn(session.name()).ok().flatten(),
        };
        let stop_reason = turn.as_ref().and_then(|turn| turn.as_ref().ok()).map(|turn| turn.stop_reason);
        self.result.borrow_mut().set_turn(&session, turn_number, stop_reason);
        if let Some(number) = turn_number {
            self.print_summary(&launch, &session, number);
        }
        match (turn, cancel_reason) {
            // The turn completed all the same.
            (
                Some(Ok(PromptOutcome { stop_reason: StopReason::EndTurn, .. })),
                Some(RunCancelReason::OutputClosed),
            ) => RunOutcome::Completed,
            (_, Some(RunCancelReason::OutputClosed)) => match self.output.stdout_error() {
                Some(StdoutError::WriteFailed(reason)) => write_error(&reason).into(),
                Some(StdoutError::ReaderTooSlow) => slow_reader_error().into(),
                Some(StdoutError::ReaderGone) | None => CliError::Failed(anyhow::anyhow!(
                    "the turn was cancelled, because its output is no longer read"
                ))
                .into(),
            },
            (_, Some(RunCancelReason::Signal(request))) => request.ending().into(),
            (_, Some(RunCancelReason::TimedOut)) => timed_out().into(),
            // Only a cancelled turn is not awaited.
            (None, None) => RunOutcome::Completed,
            (Some(Err(HostError::SessionEnded | HostError::Call(CallError::Closed))), None) => {
                agent_died(exit.as_ref())
            }
            // A turn that can no longer begin is reported as cancelled.
            (Some(Ok(PromptOutcome { stop_reason: StopReason::Cancelled, .. })), None) if has_died => {
                agent_died(exit.as_ref())
            }
            (Some(Err(error)), None) => prompt_error(&initialized, error).into(),
            (Some(Ok(turn)), None) => {
                let preset = requested_preset(&self.client, launch.agent.is_own);
                let denials =
                    || summary::describe_denials(&launch.host, &session, turn.turn, &refusals, preset);
                self.turn_outcome(&turn, denials)
            }
        }
    }

    async fn start_agent(&self, dirs: &UserDirs) -> Result<(AgentLauncher, LaunchedAgent), CliError> {
        let recorders: Vec<Arc<dyn WireRecorder>> = match self.format {
            OutputFormat::Json => vec![Arc::new(MessagePrinter(self.output.clone()))],
            OutputFormat::Text | OutputFormat::Quiet | OutputFormat::Result => Vec::new(),
        };
        // An unusable directory is reported when it is opened.
        if let Some(message) = WorkspaceLocation::of_directory(self.client.cwd.as_deref())
            .ok()
            .and_then(|location| describe_missing_log(&location))
        {
            self.front_end.print_notice(&message);
        }
        let mut launch =
            AgentLauncher::open(self.client.clone(), dirs, self.front_end.clone(), recorders).await?;
        launch.reopen_method = ReopenMethod::Resume;
        let roots = launch.host.workspace().roots().iter().map(|(root, _)| root.to_owned());
        self.front_end.set_roots(roots.collect());
        let client = match launch.start().await {
            Err(CliError::LoginRequired(login)) => {
                let Some(method) = self.front_end.ask_login_method(&login).await else {
                    return Err(CliError::LoginRequired(login));
                };
                launch.prepare_login(&login, method).await?;
                launch.start().await?
            }
            started => started?,
        };
        launch.remember_session(&client.session);
        Ok((launch, client))
    }

    /// Runs the turn. Returns its result, if it was awaited, and why it was cancelled.
    async fn run_turn(
        &self,
        session: &HostSession,
        blocks: Vec<bowline_protocol::schema::v1::ContentBlock>,
        signals: &mut Signals,
    ) -> Result<(Option<Result<PromptOutcome, HostError>>, Option<RunCancelReason>), CliError> {
        let mut turn = pin!(session.prompt(blocks));
        let mut tick = tokio::time::interval(TICK_INTERVAL);
        let mut cancel_reason: Option<RunCancelReason> = None;
        let mut cancel_deadline: Option<Instant> = None;
        loop {
            let reason = tokio::select! {
                biased;
                outcome = &mut turn => return Ok((Some(outcome), cancel_reason)),
                request = signals.next() => match (request, cancel_reason) {
                    (SignalRequest::Interrupt, Some(RunCancelReason::Signal(_))) => return Err(CliError::Interrupted),
                    (SignalRequest::Interrupt, _) => {
                        self.front_end.print_notice("cancelling the turn; Ctrl-C again ends everything at once");
                        cancel_deadline = Some(Instant::now() + CANCEL_TIMEOUT);
                        RunCancelReason::Signal(request)
                    }
                    (SignalRequest::Terminate(_), _) => {
                        cancel_deadline = Some(Instant::now() + SHORT_CANCEL_TIMEOUT);
                        RunCancelReason::Signal(request)
                    }
                },
                () = sleep_until(self.deadline), if cancel_reason.is_none() => {
                    cancel_deadline = Some(Instant::now() + SHORT_CANCEL_TIMEOUT);
                    RunCancelReason::TimedOut
                }
                () = self.output.stdout_closed(), if cancel_reason.is_none() => {
                    cancel_deadline = Some(Instant::now() + SHORT_CANCEL_TIMEOUT);
                    RunCancelReason::OutputClosed
                }
                () = sleep_until(cancel_deadline) => return Ok((None, cancel_reason)),
                _ = tick.tick() => {
                    self.front_end.print_slow_calls();
                    self.output.check_reader();
                    continue;
                }
            };
            // The last signal determines the exit code.
            cancel_reason = Some(reason);
            session.cancel();
        }
    }

    /// Prints the changes and the usage.
    fn print_summary(&self, launch: &AgentLauncher, session: &HostSession, turn: u64) {
        if !matches!(self.format, OutputFormat::Text | OutputFormat::Result) {
            return;
        }
        let current_dir = std::env::current_dir().and_then(|current_dir| current_dir.canonicalize());
        let other_cwd =
            (current_dir.ok().as_deref() != Some(launch.cwd())).then(|| launch.cwd().display().to_string());
        let workspace = launch.host.workspace();
        if self.format == OutputFormat::Result {
            match summary::changes_as_json(workspace, session.name(), turn, other_cwd.as_deref()) {
                Ok((changes, undo)) => self.result.borrow_mut().set_changes(changes, undo),
                Err(error) => self.front_end.print_notice(&error.to_string()),
            }
            return;
        }
        match summary::describe_changes(workspace, session.name(), turn, other_cwd.as_deref(), self.style) {
            Ok(text) if text.is_empty() => {}
            Ok(text) => self.output.write_stdout(format!("\n{text}")),
            Err(error) => self.front_end.print_notice(&error.to_string()),
        }
        if let Some(usage) = session.snapshot().usage() {
            let cost = usage.cost.as_ref().map(|cost| {
                let amount = format!("{:.4}", cost.amount);
                // An agent may send any number.
                let amount = if amount.len() > 20 { format!("{:e}", cost.amount) } else { amount };
                format!(", cost {amount} {}", quote(&cost.currency))
            });
            let text =
                format!("Context: {} of {} tokens{}", usage.used, usage.size, cost.unwrap_or_default());
            self.output.write_stdout(format!("{}\n", self.style.paint(TextStyle::Faint, &text)));
        }
    }

    /// Applies `--strict`, and prints the result object if that is the format.
    fn report_result(&self, outcome: RunOutcome) -> RunOutcome {
        let (calls, answer) = self.front_end.take_outcome();
        let outcome = match outcome {
            RunOutcome::Completed if self.strict => check_strict(&calls),
            outcome => outcome,
        };
        if self.format == OutputFormat::Result {
            self.output.write_stdout(self.result.borrow().to_json_line(&answer, &calls, &outcome));
        }
        outcome
    }

    /// Returns the outcome of a turn that the agent ended itself.
    fn turn_outcome(&self, turn: &PromptOutcome, denials: impl FnOnce() -> Option<String>) -> RunOutcome {
        match turn.stop_reason {
            StopReason::Refusal => {
                return CliError::Failed(anyhow::anyhow!(
                    "the agent refused: nothing of this turn is remembered"
                ))
                .into();
            }
            StopReason::Cancelled => {
                return CliError::Failed(anyhow::anyhow!("the agent cancelled the turn by itself")).into();
            }
            StopReason::MaxTokens => {
                self.front_end.print_notice("the model reached its limit of tokens: the answer may be cut");
            }
            StopReason::MaxTurnRequests => {
                self.front_end
                    .print_notice("the agent reached its limit of steps: go on with --session last");
            }
            // A reason of a later protocol version still means that the turn has ended.
            _ => {}
        }
        match denials() {
            Some(text) => CliError::Denied(text).into(),
            None => RunOutcome::Completed,
        }
    }
}

/// Fails a run in which a tool call failed, or none was made.
fn check_strict(calls: &[TurnCallOutcome]) -> RunOutcome {
    let failed: Vec<String> =
        calls.iter().filter(|call| call.failed).map(|call| display::escape_line(&call.title, 200)).collect();
    if !failed.is_empty() {
        return CliError::Failed(anyhow::anyhow!("--strict: failed: {}", failed.join(", "))).into();
    }
    if calls.is_empty() {
        return CliError::Failed(anyhow::anyhow!("--strict: the agent did nothing")).into();
    }
    RunOutcome::Completed
}

/// Returns the outcome of an agent that exited during its turn.
fn agent_died(exit: Option<&AgentExit>) -> RunOutcome {
    with_agent_output(anyhow::anyhow!("the agent ended in the middle of its turn"), exit).into()
}

/// Waits until a deadline; for ever without one.
async fn sleep_until(deadline: Option<Instant>) {
    match deadline {
        Some(deadline) => tokio::time::sleep_until(deadline).await,
        None => std::future::pending().await,
    }
}
