//! Running commands: to their end or for so long, or in the background.

use std::time::{Duration, Instant};

use bowline_state::audit::Action;
use bowline_state::failure::Failure;
use bowline_state::operation::{Command, Kind, Operation, Target};
use bowline_state::paths::{Access, LexicalPath};
use bowline_state::question::Item;
use bowline_state::schema::v1::{ToolCallUpdateFields, ToolKind};
use bowline_state::terminal::{self, Exit};
use bowline_state::tooling::input::Fields;
use bowline_state::tooling::output as shown;
use bowline_state::tooling::telling::warning;
use bowline_state::{builders, display};
use bowline_workspace::terminals::{Asked, looked_at_within};
use serde_json::json;
use tokio::task::spawn_blocking;
use tokio::time::{interval, timeout};

pub(crate) mod book;
mod line;

use super::before;
use super::work::{Done, Stop, Work, excerpt, without_nulls};
use crate::permission::{Became, Pass, Wish};
use crate::runtime::{Commands, Ending, Fault, Output, Server};
use book::{Background, Found, Owned};

/// A command may be given so long at most.
const MAX_TIMEOUT: Duration = Duration::from_secs(3600);

/// So many bytes of output are kept by whoever runs it.
const OUTPUT_LIMIT: u64 = 256 << 10;

/// How long ending a command, its last output and giving its terminal up may take, each.
const PATIENCE: Duration = Duration::from_secs(5);

/// As much of a command is told with what became of it, in bytes.
const MAX_LABEL: usize = 300;

/// How often the output of a command of this machine is shown while it runs.
const SHOW_EVERY: Duration = Duration::from_secs(1);

/// Runs a tool that runs a command.
pub(crate) async fn execute(work: &Work<'_>, by: Server) -> Result<Done, Stop> {
    let fields = work.fields()?;
    let (command, args, env) = (fields.text("command")?, fields.texts("args")?, fields.pairs("env")?);
    let cwd = work.resolve(fields.some_text("cwd")?.unwrap_or("."))?;
    let settings = work.runtimes().settings();
    let limit = match fields.number("timeout_seconds")? {
        None | Some(0) => settings.command_timeout,
        Some(seconds) => Duration::from_secs(seconds.into()).min(MAX_TIMEOUT),
    };
    let in_background = fields.flag("background")?;
    let (given, label) = given(&fields, &cwd)?;
    let title =
        if in_background { format!("Run in the background: {label}") } else { format!("Run {label}") };
    let variables: serde_json::Map<String, serde_json::Value> =
        env.iter().map(|(name, value)| (name.clone(), value.clone().into())).collect();
    let input = without_nulls(json!({
        "command": command,
        "args": (!args.is_empty()).then_some(&args),
        "cwd": cwd.as_str(),
        "env": (!variables.is_empty()).then_some(variables),
        "background": in_background.then_some(true),
    }));
    let shown = before::command(given.clone());
    work.start(&title, ToolKind::Execute, |call| call.raw_input(input).content(shown.clone())).await?;
    let judged = judged(work, given).await;
    let operation = Operation { kind: Kind::Execute, target: Target::Command(judged) };
    let wish = Wish { action: Action::TerminalCreate, title, item: Item::plain(operation) };
    let pass = work.tools.permissions.clear(by, work.call, work.cx, wish).await;
    let mut pass = pass.map_err(|no| Stop::from(no).showing(shown))?;
    let name = match in_background {
        true => {
            let many =
                || format!("{} commands run in the background already: end one first", book::MAX_BACKGROUND);
            Some(work.tools.book.background_name().await.ok_or_else(many)?)
        }
        false => None,
    };
    pass.begins().await?;
    // A client that decides asks its user first.
    let waits = pass.is_for_client();
    if !waits {
        work.runs().await;
    }
    work.runtimes().note_command();
    let (program, arguments) = match by {
        Server::Client => line::given(command, &args),
        // The engine takes a line apart itself.
        Server::Workspace | Server::Local => (command.to_owned(), args),
    };
    let asked = Asked {
        command: program,
        args: arguments,
        env,
        cwd: Some(cwd.as_str().to_owned()),
        output_limit: Some(OUTPUT_LIMIT),
    };
    let mut running = Running { work, by, label: &label, started: Instant::now() };
    let created = async { work.tools.book.create(&work.runtimes().commands(by).await?, asked).await };
    let owned = match created.await {
        Ok(owned) => owned,
        Err(fault) => return Err(running.not_started(pass, &fault).await),
    };
    if waits {
        running.started = Instant::now();
        work.runs().await;
    }
    if by == Server::Client {
        // Before anything is waited for, so that the user sees what comes.
        let shown = vec![builders::terminal(owned.terminal.clone())];
        work.show(ToolCallUpdateFields::new().content(shown)).await;
    }
    match name {
        Some(name) => Ok(running.leave(pass, owned, name).await),
        None => running.to_the_end(pass, owned, limit).await,
    }
}

/// Returns a command as it was given, and what it is called.
pub(crate) fn given(fields: &Fields<'_>, cwd: &LexicalPath) -> Result<(Command, String), Stop> {
    let (command, args, env) = (fields.text("command")?, fields.texts("args")?, fields.pairs("env")?);
    let invocation = terminal::invocation(command, &args).map_err(|bad| bad.to_string())?;
    let label = display::line(&display::invocation(&invocation), MAX_LABEL);
    Ok((Command { invocation, cwd: cwd.as_str().to_owned(), env, reaches: Vec::new() }, label))
}

/// Returns a command as rules judge it.
pub(crate) async fn judged(work: &Work<'_>, given: Command) -> Command {
    let Ok(roots) = work.runtimes().roots().await.cloned() else { return given };
    let its = given.clone();
    let looked = spawn_blocking(move || {
        let own = roots.admit(&its.cwd, Access::Read).map(|found| found.canonical().to_owned());
        looked_at_within(&roots, its.invocation, own.unwrap_or(its.cwd), its.env)
    });
    // What nobody looked at is asked about.
    looked.await.unwrap_or(given)
}

/// A command that was allowed.
struct Running<'a, 'w> {
    work: &'a Work<'w>,
    by: Server,
    label: &'a str,
    started: Instant,
}

/// How waiting for a command ended.
enum Waited {
    Ended(Ending),
    TimedOut,
    Lost(Fault),
}

impl Running<'_, '_> {
    async fn not_started(&self, pass: Pass, fault: &Fault) -> Stop {
        let label = self.label;
        let text = match fault {
            fault if fault.is_open() => format!("it is not known whether `{label}` runs: {fault}"),
            // What is not there, or outside, may be the program or its directory.
            Fault::Said(Failure::OutsideRoots { .. }) => format!("`{label}` was not started: {fault}"),
            fault if fault.is_missing() => format!("`{label}` was not started: {fault}"),
            fault => fault.told(self.by, &format!("`{label}`")),
        };
        self.recorded(pass, None, Some(text.clone())).await;
        text.into()
    }

    async fn recorded(&self, pass: Pass, exit: Option<String>, failed: Option<String>) {
        if let Err(why) = pass.became(Became { exit, failed, ..Became::default() }).await {
            self.work.runtimes().settings().log.line(why);
        }
    }

    /// Leaves a command running.
    async fn leave(&self, pass: Pass, owned: Owned, name: String) -> Done {
        let text = format!(
            "`{}` runs in the background as {name}, {}. Look at its output with execute_output, end it with \
             execute_kill.",
            self.label,
            self.by.through()
        );
        let output = json!({ "servedBy": self.by.word(), "id": name, "terminalId": owned.terminal });
        let (line, turn) = (self.label.to_owned(), self.work.cx.turn);
        owned.leave(Background { name, line, seen: String::new(), turn });
        self.recorded(pass, None, None).await;
        Done { text, output: Some(output), ..Done::default() }
    }

    /// Waits for a command, and for no longer than it may take.
    async fn to_the_end(&self, pass: Pass, owned: Owned, limit: Duration) -> Result<Done, Stop> {
        let waited = match timeout(limit, self.wait(&owned)).await {
            Ok(Ok(ending)) => Waited::Ended(ending),
            Ok(Err(fault)) => Waited::Lost(fault),
            Err(_) => Waited::TimedOut,
        };
        self.work.runtimes().note_command();
        let (commands, terminal) = (owned.commands.clone(), owned.terminal.clone());
        if !matches!(waited, Waited::Ended(_)) {
            // If it cannot be ended now, giving the terminal up ends it.
            timeout(PATIENCE, commands.kill(&terminal)).await.ok();
        }
        let output = timeout(PATIENCE, commands.output(&terminal)).await;
        let output = output.unwrap_or(Err(Fault::TimedOut { method: "terminal/output", after: PATIENCE }));
        let released = timeout(PATIENCE, owned.release()).await;
        if !matches!(released, Ok(Ok(()))) {
            self.work.runtimes().settings().log.line(format!("the terminal {terminal} was not given up"));
        }
        Ok(self.told(pass, &waited, limit, output).await)
    }

    /// Waits for a command. What one of this machine puts out is shown meanwhile: a client shows its own.
    async fn wait(&self, owned: &Owned) -> Result<Ending, Fault> {
        let (commands, terminal) = (&owned.commands, &owned.terminal);
        let waiting = commands.wait(terminal);
        tokio::pin!(waiting);
        if let Commands::Client(_) = commands {
            return waiting.await;
        }
        let mut ticks = interval(SHOW_EVERY);
        ticks.tick().await;
        loop {
            tokio::select! {
                ending = &mut waiting => return ending,
                _ = ticks.tick() => {
                    if let Ok(output) = commands.output(terminal).await {
                        let shown = excerpt(&shown::clip(&output.text));
                        self.work.show(ToolCallUpdateFields::new().content(shown)).await;
                    }
                }
            }
        }
    }

    async fn told(
        &self,
        pass: Pass,
        waited: &Waited,
        limit: Duration,
        output: Result<Output, Fault>,
    ) -> Done {
        let took = self.started.elapsed().as_secs_f32();
        let (how, failed) = match waited {
            Waited::Ended(ending) => how(ending),
            Waited::TimedOut => (
                format!(
                    "was ended because it took longer than {} s; this is its output so far",
                    limit.as_secs_f32()
                ),
                true,
            ),
            Waited::Lost(fault) => (format!("cannot be waited for: {fault}; it was ended"), true),
        };
        let exit = match waited {
            Waited::Ended(Ending::Known(exit)) => Some(exit.to_string()),
            _ => None,
        };
        let why = (!matches!(waited, Waited::Ended(_))).then(|| how.clone());
        self.recorded(pass, exit.clone(), why).await;
        let (shown, missing) = match &output {
            Ok(output) => (
                shown::clip(&output.text),
                if output.truncated { "; some of its output is missing" } else { "" },
            ),
            Err(fault) => (format!("[its output cannot be shown: {fault}]"), ""),
        };
        let hidden = warning(&shown);
        let head = format!("[`{}` {how}, {}, {took:.1} s{missing}{hidden}]", self.label, self.by.through());
        let truncated = output.as_ref().is_ok_and(|output| output.truncated);
        let raw = json!({
            "servedBy": self.by.word(),
            "exit": exit,
            "timedOut": matches!(waited, Waited::TimedOut),
            "truncated": truncated,
            "output": shown,
        });
        Done {
            text: format!("{head}\n{shown}"),
            failed,
            // A client's terminal goes on showing what it has.
            content: (self.by == Server::Local).then(|| excerpt(&format!("{head}\n{shown}"))),
            output: Some(raw),
            ..Done::default()
        }
    }
}

fn how(ending: &Ending) -> (String, bool) {
    match ending {
        Ending::Known(Exit::Code(0)) => ("ended with exit code 0".to_owned(), false),
        Ending::Known(Exit::Code(code)) => (format!("failed with exit code {code}"), true),
        Ending::Known(Exit::Signal(signal)) => (format!("was ended by the signal {signal}"), true),
        Ending::Unknown => ("ended, and the editor does not say how".to_owned(), false),
    }
}

/// Runs the tool that looks at a command in the background.
pub(crate) async fn output(work: &Work<'_>) -> Result<Done, Stop> {
    let fields = work.fields()?;
    let found = found(work, fields.text("id")?)?;
    let wait = Duration::from_secs(fields.number("wait_seconds")?.unwrap_or(0).into()).min(MAX_TIMEOUT);
    let Found { key, commands, terminal, background } = found;
    let title = format!("Output of {}: {}", background.name, background.line);
    work.start(&title, ToolKind::Execute, |call| call.raw_input(json!({ "id": background.name }))).await?;
    work.runs().await;
    if !wait.is_zero() {
        // What it says by then is the answer, whether it has ended or not.
        timeout(wait, commands.wait(&terminal)).await.ok();
    }
    work.runtimes().note_command();
    let by = commands.by();
    let output = commands.output(&terminal).await.map_err(|fault| fault.told(by, &background.name))?;
    let news = shown::since(&background.seen, &output.text);
    let gap = match (news.gap && !background.seen.is_empty(), output.truncated) {
        (true, _) => ", some output in between is missing",
        (false, true) => ", some output is missing",
        (false, false) => "",
    };
    let (how, failed) = match &output.ending {
        Some(ending) => how(ending),
        None => ("is running".to_owned(), false),
    };
    let shown = shown::clip(news.text);
    let hidden = warning(&shown);
    let text =
        format!("[{} (`{}`) {how}{gap}{hidden}; new output:]\n{shown}", background.name, background.line);
    let has_ended = output.ending.is_some();
    work.tools.book.saw(key, output.text.clone());
    if has_ended {
        // All of it has been told.
        timeout(PATIENCE, work.tools.book.release(key)).await.ok();
    }
    let raw = json!({ "id": background.name, "ended": has_ended, "output": shown });
    Ok(Done { content: Some(excerpt(&text)), text, failed, output: Some(raw), ..Done::default() })
}

/// Runs the tool that ends a command in the background.
pub(crate) async fn kill(work: &Work<'_>) -> Result<Done, Stop> {
    let found = found(work, work.fields()?.text("id")?)?;
    let Found { key, commands, terminal, background } = found;
    let title = format!("End {}: {}", background.name, background.line);
    work.start(&title, ToolKind::Execute, |call| call.raw_input(json!({ "id": background.name }))).await?;
    work.runs().await;
    work.runtimes().note_command();
    let by = commands.by();
    let killed = timeout(PATIENCE, commands.kill(&terminal)).await;
    let output = timeout(PATIENCE, commands.output(&terminal)).await;
    let released = timeout(PATIENCE, work.tools.book.release(key)).await;
    if !matches!(killed, Ok(Ok(()))) && !matches!(released, Ok(Ok(()))) {
        return Err(format!("{} could not be ended {}", background.name, by.through()).into());
    }
    let news = match &output {
        Ok(Ok(output)) => shown::clip(shown::since(&background.seen, &output.text).text),
        _ => String::new(),
    };
    let text = format!("[{} (`{}`) was ended; its last output:]\n{news}", background.name, background.line);
    Ok(Done { content: Some(excerpt(&text)), text, ..Done::default() })
}

fn found(work: &Work<'_>, name: &str) -> Result<Found, Stop> {
    work.tools.book.find(name).ok_or_else(|| {
        let names = work.tools.book.names();
        let there =
            if names.is_empty() { "none runs".to_owned() } else { format!("there are {}", names.join(", ")) };
        Stop::from(format!("no command runs in the background as {name:?}: {there}"))
    })
}
