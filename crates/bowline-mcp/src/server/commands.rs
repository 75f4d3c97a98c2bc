//! Running commands: to their end or for so long, or in the background.
//!
//! A command has an owner: the call that waits for it, or the [`Book`] of those in the background. A call that is dropped,
//! because it was cancelled or its client is gone, ends its command; what is in the book ends with the session.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use bowline_state::display;
use bowline_state::failure::Failure;
use bowline_state::schema::v1::TerminalId;
use bowline_state::terminal::{Exit, invocation};
use bowline_state::tooling::input::Fields;
use bowline_state::tooling::output::{clip, since};
use bowline_state::tooling::telling::warning;
use bowline_workspace::terminals::{Asked, Shown, Terminals};
use serde_json::{Value, json};
use tokio::time::{interval, timeout};

use super::DeniedTool;
use super::Place;
use super::session::{Calling, Session};
use super::told::{Done, failure as failure_text};

/// A command may take so long, if nothing is said.
const USUAL_TIMEOUT: Duration = Duration::from_secs(120);

/// A command may be given so long at most.
const MAX_TIMEOUT: Duration = Duration::from_secs(3600);

/// So many commands of a session run at once, in the background.
const MAX_BACKGROUND: usize = 16;

/// So many bytes of output are kept by whoever runs it.
const OUTPUT_LIMIT: u64 = 256 << 10;

/// How long ending a command and its last output may take, each.
const PATIENCE: Duration = Duration::from_secs(5);

/// How often whoever waits is told how far it is.
const TELL_EVERY: Duration = Duration::from_secs(1);

/// As much of a command is told with what became of it, in bytes.
const MAX_LABEL: usize = 300;

/// As much of the last line is told while a command runs, in bytes.
const MAX_PROGRESS: usize = 200;

/// The commands that run in the background of a session.
#[derive(Default)]
pub(crate) struct Book {
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    // Invariant: at most `MAX_BACKGROUND`.
    running: Vec<Background>,
    last: u64,
    closed: bool,
}

/// A command in the background.
#[derive(Debug, Clone)]
struct Background {
    name: String,
    label: String,
    terminal: TerminalId,
    // The output that the model has seen.
    seen: String,
}

impl Book {
    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn is_full(&self) -> bool {
        self.state().running.len() >= MAX_BACKGROUND
    }

    /// Takes a command over; nothing if there is no room for it, or the session is over.
    fn add(&self, label: &str, terminal: &TerminalId) -> Option<String> {
        let mut state = self.state();
        if state.closed || state.running.len() >= MAX_BACKGROUND {
            return None;
        }
        state.last += 1;
        let name = format!("bg{}", state.last);
        state.running.push(Background {
            name: name.clone(),
            label: label.to_owned(),
            terminal: terminal.clone(),
            seen: String::new(),
        });
        Some(name)
    }

    fn find(&self, name: &str) -> Result<Background, String> {
        let state = self.state();
        state.running.iter().find(|its| its.name == name).cloned().ok_or_else(|| {
            let names: Vec<&str> = state.running.iter().map(|its| its.name.as_str()).collect();
            let there = if names.is_empty() {
                "none runs".to_owned()
            } else {
                format!("there are {}", names.join(", "))
            };
            format!("no command runs in the background as {:?}: {there}", display::line(name, 40))
        })
    }

    fn saw(&self, name: &str, text: String) {
        if let Some(its) = self.state().running.iter_mut().find(|its| its.name == name) {
            its.seen = text;
        }
    }

    fn remove(&self, name: &str) {
        self.state().running.retain(|its| its.name != name);
    }

    /// Ends every command, and takes no more.
    pub(crate) async fn release_all(&self, terminals: &impl Terminals) {
        let running = {
            let mut state = self.state();
            state.closed = true;
            std::mem::take(&mut state.running)
        };
        for background in running {
            timeout(PATIENCE, terminals.release(&background.terminal)).await.ok();
        }
    }
}

/// A terminal that a call waits for. If the call is dropped, the command is ended by a task of its own.
struct Owned<P: Place> {
    session: Arc<Session<P>>,
    terminal: TerminalId,
    is_armed: bool,
}

impl<P: Place> Drop for Owned<P> {
    fn drop(&mut self) {
        if !self.is_armed {
            return;
        }
        let (session, terminal) = (self.session.clone(), self.terminal.clone());
        if let Ok(runtime) = tokio::runtime::Handle::try_current() {
            runtime.spawn(async move {
                timeout(PATIENCE, session.place.terminals().release(&terminal)).await.ok();
            });
        }
    }
}

/// How waiting for a command ended.
enum Waited {
    Ended(Exit),
    TimedOut,
    Lost(String),
}

/// Runs the tool that runs a command.
pub(crate) async fn execute<P: Place>(
    session: &Arc<Session<P>>,
    fields: Fields<'_>,
    calling: &Calling,
) -> Result<Done, String> {
    let (command, args, env) = (fields.text("command")?, fields.texts("args")?, fields.pairs("env")?);
    let cwd = session.resolve(fields.some_text("cwd")?.unwrap_or("."))?;
    let limit = match fields.number("timeout_seconds")? {
        None | Some(0) => USUAL_TIMEOUT,
        Some(seconds) => Duration::from_secs(seconds.into()).min(MAX_TIMEOUT),
    };
    let in_background = fields.flag("background")?;
    let parsed = invocation(command, &args).map_err(|bad| bad.to_string())?;
    let label = display::line(&display::invocation(&parsed), MAX_LABEL);
    let full = || {
        format!("{MAX_BACKGROUND} commands run in the background already: end one with kill_terminal first")
    };
    if in_background && session.book.is_full() {
        return Err(full());
    }
    let asked = Asked {
        command: command.to_owned(),
        args,
        env: env.clone(),
        cwd: Some(cwd.as_str().to_owned()),
        output_limit: Some(OUTPUT_LIMIT),
    };
    let started = Instant::now();
    let created = session.place.terminals().create(asked).await;
    let terminal = created.map_err(|failure| {
        let about = match &failure {
            // There is nothing but the directory that could be missing or elsewhere.
            Failure::ResourceNotFound { .. } | Failure::OutsideRoots { .. } => {
                session.shown(cwd.as_str()).to_owned()
            }
            _ => format!("`{label}`"),
        };
        let tool = DeniedTool::Run { invocation: &parsed, cwd: cwd.as_str(), env: &env };
        format!("not started: {}", session.told(&tool, &about, &failure))
    })?;
    let mut owned = Owned { session: session.clone(), terminal, is_armed: true };
    if in_background {
        let name = session.book.add(&label, &owned.terminal).ok_or_else(full)?;
        owned.is_armed = false;
        let text = format!(
            "`{label}` runs in the background as {name}. Look at its output with terminal_output, end it with \
             kill_terminal."
        );
        let structured = json!({ "status": "running", "output": "", "running": true, "id": name });
        return Ok(Done { text, structured: Some(structured), failed: false });
    }
    let waited = match timeout(limit, wait(session, &owned.terminal, calling, limit)).await {
        Ok(Ok(exit)) => Waited::Ended(exit),
        Ok(Err(why)) => Waited::Lost(why),
        Err(_) => Waited::TimedOut,
    };
    let terminals = session.place.terminals();
    if !matches!(waited, Waited::Ended(_)) {
        timeout(PATIENCE, terminals.kill(&owned.terminal)).await.ok();
    }
    let output = timeout(PATIENCE, terminals.output(&owned.terminal)).await;
    if matches!(timeout(PATIENCE, terminals.release(&owned.terminal)).await, Ok(Ok(()))) {
        owned.is_armed = false;
    }
    let output = match output {
        Ok(Ok(output)) => Ok(output),
        Ok(Err(failure)) => Err(failure.to_string()),
        Err(_) => Err("it did not come in time".to_owned()),
    };
    Ok(told(&label, &waited, limit, started.elapsed(), output))
}

/// Waits for a command, and tells how far it is meanwhile.
async fn wait<P: Place>(
    session: &Session<P>,
    terminal: &TerminalId,
    calling: &Calling,
    limit: Duration,
) -> Result<Exit, String> {
    let terminals = session.place.terminals();
    let waiting = terminals.wait(terminal);
    tokio::pin!(waiting);
    let started = Instant::now();
    let mut ticks = interval(TELL_EVERY);
    ticks.tick().await;
    loop {
        tokio::select! {
            exit = &mut waiting => return exit.map_err(|failure| failure.to_string()),
            _ = ticks.tick(), if calling.progress.is_some() => {
                let output = terminals.output(terminal).await.map(|shown| shown.text).unwrap_or_default();
                let last = output.trim_end().rsplit('\n').next().unwrap_or_default();
                let message = display::line(last, MAX_PROGRESS);
                calling.progress(started.elapsed().as_secs_f64(), limit.as_secs_f64(), message).await;
            }
        }
    }
}

fn told(
    label: &str,
    waited: &Waited,
    limit: Duration,
    took: Duration,
    output: Result<Shown, String>,
) -> Done {
    let (how, failed) = match waited {
        Waited::Ended(exit) => (how(exit), false),
        Waited::TimedOut => {
            let seconds = limit.as_secs();
            (format!("was ended because it took longer than {seconds} s; this is its output so far"), true)
        }
        Waited::Lost(why) => (format!("cannot be waited for: {why}; it was ended"), true),
    };
    let truncated = output.as_ref().is_ok_and(|output| output.truncated);
    let missing = if truncated { "; some of its output is missing" } else { "" };
    let shown = match output {
        Ok(output) => clip(&output.text),
        Err(why) => format!("[its output cannot be shown: {why}]"),
    };
    let (seconds, hidden) = (took.as_secs_f32(), warning(&shown));
    let text = format!("[`{label}` {how}, {seconds:.1} s{missing}{hidden}]\n{shown}");
    let (code, signal) = match waited {
        Waited::Ended(exit) => parts(exit),
        _ => (None, None),
    };
    let structured = json!({
        "status": how,
        "output": shown,
        "exitCode": code,
        "signal": signal,
        "running": false,
        "timedOut": matches!(waited, Waited::TimedOut),
        "truncated": truncated,
    });
    let structured = known(structured);
    Done { text, structured: Some(structured), failed }
}

/// Leaves out what is not known: a field of two types is one that not every client can read.
fn known(mut fields: Value) -> Value {
    if let Some(fields) = fields.as_object_mut() {
        fields.retain(|_, value| !value.is_null());
    }
    fields
}

fn how(exit: &Exit) -> String {
    match exit {
        Exit::Code(0) => "ended with exit code 0".to_owned(),
        Exit::Code(code) => format!("failed with exit code {code}"),
        Exit::Signal(signal) => format!("was ended by the signal {signal}"),
    }
}

fn parts(exit: &Exit) -> (Option<i64>, Option<String>) {
    match exit {
        Exit::Code(code) => (Some(i64::from(*code)), None),
        Exit::Signal(signal) => (None, Some(signal.to_string())),
    }
}

/// Runs the tool that looks at a command in the background.
pub(crate) async fn output<P: Place>(session: &Session<P>, fields: Fields<'_>) -> Result<Done, String> {
    let background = session.book.find(fields.text("id")?)?;
    let wait = Duration::from_secs(fields.number("wait_seconds")?.unwrap_or(0).into()).min(MAX_TIMEOUT);
    let terminals = session.place.terminals();
    if !wait.is_zero() {
        // What it says by then is the answer, whether it has ended or not.
        timeout(wait, terminals.wait(&background.terminal)).await.ok();
    }
    let shown = terminals.output(&background.terminal).await;
    let shown = shown.map_err(|failure| failure_text(None, None, &background.name, &failure))?;
    let done = seen(&background, &shown, shown.exit.as_ref().map_or_else(|| "is running".to_owned(), how));
    if shown.exit.is_some() {
        // All of it has been told. What it left running ends with its terminal.
        session.book.remove(&background.name);
        timeout(PATIENCE, terminals.release(&background.terminal)).await.ok();
    } else {
        session.book.saw(&background.name, shown.text);
    }
    Ok(done)
}

/// Runs the tool that ends a command in the background.
pub(crate) async fn kill<P: Place>(session: &Session<P>, fields: Fields<'_>) -> Result<Done, String> {
    let background = session.book.find(fields.text("id")?)?;
    let terminals = session.place.terminals();
    let killed = timeout(PATIENCE, terminals.kill(&background.terminal)).await;
    let output = timeout(PATIENCE, terminals.output(&background.terminal)).await;
    let released = timeout(PATIENCE, terminals.release(&background.terminal)).await;
    if !matches!(killed, Ok(Ok(()))) && !matches!(released, Ok(Ok(()))) {
        return Err(format!("{} could not be ended: try again", background.name));
    }
    session.book.remove(&background.name);
    let shown = match output {
        Ok(Ok(shown)) => shown,
        _ => Shown { text: background.seen.clone(), truncated: true, exit: None },
    };
    Ok(seen(&background, &shown, "was ended".to_owned()))
}

/// Returns what is new of a command in the background.
fn seen(background: &Background, shown: &Shown, how: String) -> Done {
    let news = since(&background.seen, &shown.text);
    let has_gap =
        (news.gap && !background.seen.is_empty()) || (background.seen.is_empty() && shown.truncated);
    let gap = if has_gap { ", some output is missing" } else { "" };
    let output = clip(news.text);
    let Background { name, label, .. } = background;
    let text = format!("[{name} (`{label}`) {how}{gap}{}; new output:]\n{output}", warning(&output));
    let (code, signal) = shown.exit.as_ref().map(parts).unwrap_or_default();
    let running = shown.exit.is_none() && how == "is running";
    let structured = json!({
        "status": how,
        "output": output,
        "exitCode": code,
        "signal": signal,
        "running": running,
        "truncated": has_gap,
        "id": name,
    });
    let structured = known(structured);
    Done { text, structured: Some(structured), failed: false }
}
