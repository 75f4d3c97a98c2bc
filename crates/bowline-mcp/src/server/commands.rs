//! Running commands: in the foreground, up to a time limit, or in the background.
//!
//! Every command has an owner: the call that waits for it, or the session's [`BackgroundCommands`]. Dropping a call,
//! because it was cancelled or its client is gone, ends its command; background commands end with the session.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use bowline_protocol::rpc_error::RpcError;
use bowline_protocol::schema::v1::TerminalId;
use bowline_protocol::terminal::{CommandExit, parse_invocation};
use bowline_text::display;
use bowline_tools::tools::describe::hidden_character_warning;
use bowline_tools::tools::input::ToolInputFields;
use bowline_tools::tools::output::{clip_output, output_since};
use bowline_workspace::terminals::{CommandRequest, TerminalBackend, TerminalSnapshot};
use serde_json::{Value, json};
use tokio::time::{interval, timeout};

use super::DeniedOperation;
use super::outcome::{ToolOutcome, describe_failure as failure_text};
use super::session::{CallContext, McpSession};

/// The default time limit of a command.
const DEFAULT_TIMEOUT: Duration = Duration::from_secs(120);

/// The longest time limit of a command.
const MAX_TIMEOUT: Duration = Duration::from_secs(3600);

/// The most background commands of a session at once.
const MAX_BACKGROUND: usize = 16;

/// How many bytes of output the terminal keeps.
const OUTPUT_LIMIT: u64 = 256 << 10;

/// The deadline for ending a command, and for reading its last output.
const TERMINAL_TIMEOUT: Duration = Duration::from_secs(5);

/// The interval between progress reports.
const PROGRESS_INTERVAL: Duration = Duration::from_secs(1);

/// How much of a command line is repeated with its outcome, in bytes.
const MAX_LABEL: usize = 300;

/// How much of the last line is reported while a command runs, in bytes.
const MAX_PROGRESS: usize = 200;

/// The background commands of a session.
#[derive(Default)]
pub(crate) struct BackgroundCommands {
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    // Invariant: at most `MAX_BACKGROUND`.
    running: Vec<BackgroundCommand>,
    last_number: u64,
    is_closed: bool,
}

/// A background command.
#[derive(Debug, Clone)]
struct BackgroundCommand {
    name: String,
    label: String,
    terminal: TerminalId,
    // The output that the model has seen.
    seen_output: String,
}

impl BackgroundCommands {
    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn is_full(&self) -> bool {
        self.state().running.len() >= MAX_BACKGROUND
    }

    /// Adds a command and returns its name, or `None` if the limit is reached or the session is closed.
    fn add(&self, label: &str, terminal: &TerminalId) -> Option<String> {
        let mut state = self.state();
        if state.is_closed || state.running.len() >= MAX_BACKGROUND {
            return None;
        }
        state.last_number += 1;
        let name = format!("bg{}", state.last_number);
        state.running.push(BackgroundCommand {
            name: name.clone(),
            label: label.to_owned(),
            terminal: terminal.clone(),
            seen_output: String::new(),
        });
        Some(name)
    }

    fn find(&self, name: &str) -> Result<BackgroundCommand, String> {
        let state = self.state();
        state.running.iter().find(|command| command.name == name).cloned().ok_or_else(|| {
            let names: Vec<&str> = state.running.iter().map(|command| command.name.as_str()).collect();
            let hint = if names.is_empty() {
                "none runs".to_owned()
            } else {
                format!("there are {}", names.join(", "))
            };
            format!("no command runs in the background as {:?}: {hint}", display::escape_line(name, 40))
        })
    }

    fn record_seen_output(&self, name: &str, text: String) {
        if let Some(command) = self.state().running.iter_mut().find(|command| command.name == name) {
            command.seen_output = text;
        }
    }

    fn remove(&self, name: &str) {
        self.state().running.retain(|command| command.name != name);
    }

    /// Ends every command, and refuses new ones.
    pub(crate) async fn release_all(&self, terminals: &dyn TerminalBackend) {
        let running = {
            let mut state = self.state();
            state.is_closed = true;
            std::mem::take(&mut state.running)
        };
        for background in running {
            timeout(TERMINAL_TIMEOUT, terminals.release(&background.terminal)).await.ok();
        }
    }
}

/// A terminal that a call waits for. If the call is dropped, a spawned task ends the command.
struct TerminalGuard {
    session: Arc<McpSession>,
    terminal: TerminalId,
    is_armed: bool,
}

impl Drop for TerminalGuard {
    fn drop(&mut self) {
        if !self.is_armed {
            return;
        }
        let (session, terminal) = (self.session.clone(), self.terminal.clone());
        if let Ok(runtime) = tokio::runtime::Handle::try_current() {
            runtime.spawn(async move {
                timeout(TERMINAL_TIMEOUT, session.backend.terminals().release(&terminal)).await.ok();
            });
        }
    }
}

/// How waiting for a command ended.
enum WaitOutcome {
    Exited(CommandExit),
    TimedOut,
    Lost(String),
}

/// Executes the tool that runs a command.
pub(crate) async fn execute_command(
    session: &Arc<McpSession>,
    fields: ToolInputFields<'_>,
    context: &CallContext,
) -> Result<ToolOutcome, String> {
    let (command, args, env) =
        (fields.required_text("command")?, fields.texts("args")?, fields.pairs("env")?);
    let cwd = session.resolve(fields.optional_text("cwd")?.unwrap_or("."))?;
    let limit = match fields.number("timeout_seconds")? {
        None | Some(0) => DEFAULT_TIMEOUT,
        Some(seconds) => Duration::from_secs(seconds.into()).min(MAX_TIMEOUT),
    };
    let in_background = fields.flag("background")?;
    let parsed = parse_invocation(command, &args).map_err(|error| error.to_string())?;
    let label = display::escape_line(&bowline_protocol::terminal::format_invocation(&parsed), MAX_LABEL);
    let too_many = || {
        format!("{MAX_BACKGROUND} commands run in the background already: end one with kill_terminal first")
    };
    if in_background && session.background.is_full() {
        return Err(too_many());
    }
    let request = CommandRequest {
        command: command.to_owned(),
        args,
        env: env.clone(),
        cwd: Some(cwd.as_str().to_owned()),
        output_limit: Some(OUTPUT_LIMIT),
    };
    let started = Instant::now();
    let created = session.backend.terminals().create(request).await;
    let terminal = created.map_err(|failure| {
        let subject = match &failure {
            // Only the directory can be missing or outside the roots.
            RpcError::ResourceNotFound { .. } | RpcError::OutsideRoots { .. } => {
                session.display_path(cwd.as_str()).to_owned()
            }
            _ => format!("`{label}`"),
        };
        let tool = DeniedOperation::Run { invocation: &parsed, cwd: cwd.as_str(), env: &env };
        format!("not started: {}", session.describe_failure(&tool, &subject, &failure))
    })?;
    let mut guard = TerminalGuard { session: session.clone(), terminal, is_armed: true };
    if in_background {
        let name = session.background.add(&label, &guard.terminal).ok_or_else(too_many)?;
        guard.is_armed = false;
        let text = format!(
            "`{label}` runs in the background as {name}. Look at its output with terminal_output, end it with \
             kill_terminal."
        );
        let structured = json!({ "status": "running", "output": "", "running": true, "id": name });
        return Ok(ToolOutcome { structured: Some(structured), ..ToolOutcome::from_text(text) });
    }
    let outcome = match timeout(limit, wait_with_progress(session, &guard.terminal, context, limit)).await {
        Ok(Ok(exit)) => WaitOutcome::Exited(exit),
        Ok(Err(reason)) => WaitOutcome::Lost(reason),
        Err(_) => WaitOutcome::TimedOut,
    };
    let terminals = session.backend.terminals();
    if !matches!(outcome, WaitOutcome::Exited(_)) {
        timeout(TERMINAL_TIMEOUT, terminals.kill(&guard.terminal)).await.ok();
    }
    let output = timeout(TERMINAL_TIMEOUT, terminals.output(&guard.terminal)).await;
    if matches!(timeout(TERMINAL_TIMEOUT, terminals.release(&guard.terminal)).await, Ok(Ok(()))) {
        guard.is_armed = false;
    }
    let output = match output {
        Ok(Ok(output)) => Ok(output),
        Ok(Err(failure)) => Err(failure.to_string()),
        Err(_) => Err("it did not come in time".to_owned()),
    };
    Ok(describe_outcome(&label, &outcome, limit, started.elapsed(), output))
}

/// Waits for a command, and reports its progress meanwhile.
async fn wait_with_progress(
    session: &McpSession,
    terminal: &TerminalId,
    context: &CallContext,
    limit: Duration,
) -> Result<CommandExit, String> {
    let terminals = session.backend.terminals();
    let mut waiting = terminals.wait(terminal);
    let started = Instant::now();
    let mut ticks = interval(PROGRESS_INTERVAL);
    ticks.tick().await;
    loop {
        tokio::select! {
            exit = &mut waiting => return exit.map_err(|failure| failure.to_string()),
            _ = ticks.tick(), if context.progress.is_some() => {
                let output = terminals.output(terminal).await.map(|snapshot| snapshot.text).unwrap_or_default();
                let last = output.trim_end().rsplit('\n').next().unwrap_or_default();
                let message = display::escape_line(last, MAX_PROGRESS);
                context.report_progress(started.elapsed().as_secs_f64(), limit.as_secs_f64(), message).await;
            }
        }
    }
}

fn describe_outcome(
    label: &str,
    outcome: &WaitOutcome,
    limit: Duration,
    elapsed: Duration,
    output: Result<TerminalSnapshot, String>,
) -> ToolOutcome {
    let (status, failed) = match outcome {
        WaitOutcome::Exited(exit) => (describe_exit(exit), false),
        WaitOutcome::TimedOut => {
            let seconds = limit.as_secs();
            (format!("was ended because it took longer than {seconds} s; this is its output so far"), true)
        }
        WaitOutcome::Lost(reason) => (format!("cannot be waited for: {reason}; it was ended"), true),
    };
    let truncated = output.as_ref().is_ok_and(|output| output.truncated);
    let missing = if truncated { "; some of its output is missing" } else { "" };
    let output_text = match output {
        Ok(output) => clip_output(&output.text),
        Err(reason) => format!("[its output cannot be shown: {reason}]"),
    };
    let (seconds, hidden) = (elapsed.as_secs_f32(), hidden_character_warning(&output_text));
    let text = format!("[`{label}` {status}, {seconds:.1} s{missing}{hidden}]\n{output_text}");
    let (code, signal) = match outcome {
        WaitOutcome::Exited(exit) => split_exit(exit),
        _ => (None, None),
    };
    let structured = json!({
        "status": status,
        "output": output_text,
        "exitCode": code,
        "signal": signal,
        "running": false,
        "timedOut": matches!(outcome, WaitOutcome::TimedOut),
        "truncated": truncated,
    });
    let structured = remove_nulls(structured);
    ToolOutcome { structured: Some(structured), is_error: failed, ..ToolOutcome::from_text(text) }
}

/// Removes unknown fields: not every client can read a field of two types.
fn remove_nulls(mut fields: Value) -> Value {
    if let Some(fields) = fields.as_object_mut() {
        fields.retain(|_, value| !value.is_null());
    }
    fields
}

fn describe_exit(exit: &CommandExit) -> String {
    match exit {
        CommandExit::Code(0) => "ended with exit code 0".to_owned(),
        CommandExit::Code(code) => format!("failed with exit code {code}"),
        CommandExit::Signal(signal) => format!("was ended by the signal {signal}"),
    }
}

fn split_exit(exit: &CommandExit) -> (Option<i64>, Option<String>) {
    match exit {
        CommandExit::Code(code) => (Some(i64::from(*code)), None),
        CommandExit::Signal(signal) => (None, Some(signal.to_string())),
    }
}

/// Executes the tool that reads the output of a background command.
pub(crate) async fn read_background_output(
    session: &McpSession,
    fields: ToolInputFields<'_>,
) -> Result<ToolOutcome, String> {
    let background = session.background.find(fields.required_text("id")?)?;
    let wait = Duration::from_secs(fields.number("wait_seconds")?.unwrap_or(0).into()).min(MAX_TIMEOUT);
    let terminals = session.backend.terminals();
    if !wait.is_zero() {
        // The output up to then is the answer, whether or not the command has ended.
        timeout(wait, terminals.wait(&background.terminal)).await.ok();
    }
    let snapshot = terminals.output(&background.terminal).await;
    let snapshot = snapshot.map_err(|failure| failure_text(None, None, &background.name, &failure))?;
    let outcome = describe_new_output(
        &background,
        &snapshot,
        snapshot.exit.as_ref().map_or_else(|| "is running".to_owned(), describe_exit),
    );
    if snapshot.exit.is_some() {
        // All output has been reported. Processes that the command left running end with its terminal.
        session.background.remove(&background.name);
        timeout(TERMINAL_TIMEOUT, terminals.release(&background.terminal)).await.ok();
    } else {
        session.background.record_seen_output(&background.name, snapshot.text);
    }
    Ok(outcome)
}

/// Executes the tool that ends a background command.
pub(crate) async fn kill_background_command(
    session: &McpSession,
    fields: ToolInputFields<'_>,
) -> Result<ToolOutcome, String> {
    let background = session.background.find(fields.required_text("id")?)?;
    let terminals = session.backend.terminals();
    let killed = timeout(TERMINAL_TIMEOUT, terminals.kill(&background.terminal)).await;
    let output = timeout(TERMINAL_TIMEOUT, terminals.output(&background.terminal)).await;
    let released = timeout(TERMINAL_TIMEOUT, terminals.release(&background.terminal)).await;
    if !matches!(killed, Ok(Ok(()))) && !matches!(released, Ok(Ok(()))) {
        return Err(format!("{} could not be ended: try again", background.name));
    }
    session.background.remove(&background.name);
    let snapshot = match output {
        Ok(Ok(snapshot)) => snapshot,
        _ => TerminalSnapshot { text: background.seen_output.clone(), truncated: true, exit: None },
    };
    Ok(describe_new_output(&background, &snapshot, "was ended".to_owned()))
}

/// Returns the new output of a background command.
fn describe_new_output(
    background: &BackgroundCommand,
    snapshot: &TerminalSnapshot,
    status: String,
) -> ToolOutcome {
    let new_output = output_since(&background.seen_output, &snapshot.text);
    let has_gap = (new_output.has_gap && !background.seen_output.is_empty())
        || (background.seen_output.is_empty() && snapshot.truncated);
    let gap = if has_gap { ", some output is missing" } else { "" };
    let output = clip_output(new_output.text);
    let BackgroundCommand { name, label, .. } = background;
    let text = format!(
        "[{name} (`{label}`) {status}{gap}{}; new output:]\n{output}",
        hidden_character_warning(&output)
    );
    let (code, signal) = snapshot.exit.as_ref().map(split_exit).unwrap_or_default();
    let running = snapshot.exit.is_none() && status == "is running";
    let structured = json!({
        "status": status,
        "output": output,
        "exitCode": code,
        "signal": signal,
        "running": running,
        "truncated": has_gap,
        "id": name,
    });
    let structured = remove_nulls(structured);
    ToolOutcome { structured: Some(structured), ..ToolOutcome::from_text(text) }
}
