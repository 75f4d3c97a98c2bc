//! Running commands: to their end, until a timeout, or in the background.

use std::time::{Duration, Instant};

use bowline_policy::audit::AuditAction;
use bowline_policy::operation::{CommandSpec, Operation, OperationKind, OperationTarget};
use bowline_policy::paths::{Access, LexicalPath};
use bowline_policy::question::QuestionItem;
use bowline_protocol::builders;
use bowline_protocol::rpc_error::RpcError;
use bowline_protocol::schema::v1::{ToolCallUpdateFields, ToolKind};
use bowline_protocol::terminal::{self, CommandExit};
use bowline_text::display;
use bowline_tools::tools::describe::hidden_character_warning;
use bowline_tools::tools::input::ToolInputFields;
use bowline_tools::tools::output as shown;
use bowline_workspace::terminals::{CommandRequest, resolve_command_in};
use serde_json::json;
use tokio::task::spawn_blocking;
use tokio::time::{interval, timeout};

mod command_line;
pub(crate) mod registry;

use super::active_call::{ActiveCall, CallStop, ToolOutput, excerpt, without_nulls};
use super::preview;
use crate::permission::{Authorization, OperationOutcome, OperationRequest};
use crate::runtime::{Backend, CommandEnd, RuntimeError, RuntimeTerminalOutput, RuntimeTerminals};
use registry::{BackgroundCommand, BackgroundHandle, OwnedTerminal};

/// The longest timeout of a command.
const MAX_TIMEOUT: Duration = Duration::from_secs(3600);

/// The most bytes of output that the backend keeps.
const MAX_OUTPUT_BYTES: u64 = 256 << 10;

/// The timeout for killing a command, for its last output, and for releasing its terminal, each.
const STEP_TIMEOUT: Duration = Duration::from_secs(5);

/// The longest command quoted in a result, in bytes.
const MAX_LABEL_BYTES: usize = 300;

/// How often the output of a running local command is shown.
const SHOW_INTERVAL: Duration = Duration::from_secs(1);

/// Runs a tool that runs a command.
pub(crate) async fn execute(work: &ActiveCall<'_>, by: Backend) -> Result<ToolOutput, CallStop> {
    let fields = work.fields()?;
    let (command, args, env) =
        (fields.required_text("command")?, fields.texts("args")?, fields.pairs("env")?);
    let cwd = work.resolve_path(fields.optional_text("cwd")?.unwrap_or("."))?;
    let settings = work.runtime().options();
    let limit = match fields.number("timeout_seconds")? {
        None | Some(0) => settings.command_timeout,
        Some(seconds) => Duration::from_secs(seconds.into()).min(MAX_TIMEOUT),
    };
    let in_background = fields.flag("background")?;
    let (given, label) = parse_command(&fields, &cwd)?;
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
    let shown = preview::preview_command(given.clone());
    work.announce(&title, ToolKind::Execute, |call| call.raw_input(input).content(shown.clone())).await?;
    let judged = inspect_command(work, given).await;
    let operation = Operation { kind: OperationKind::Execute, target: OperationTarget::Command(judged) };
    let wish =
        OperationRequest { action: AuditAction::TerminalCreate, title, item: QuestionItem::new(operation) };
    let pass = work.toolbox.permissions.authorize(by, work.call, work.cx, wish).await;
    let mut pass = pass.map_err(|no| CallStop::from(no).with_content(shown))?;
    let name = match in_background {
        true => {
            let many = || {
                format!("{} commands run in the background already: end one first", registry::MAX_BACKGROUND)
            };
            Some(work.toolbox.commands.reserve_background_name().await.ok_or_else(many)?)
        }
        false => None,
    };
    pass.record_start().await?;
    // A client that authorizes operations asks its user first.
    let waits = pass.is_left_to_client();
    if !waits {
        work.mark_running().await;
    }
    work.runtime().record_command();
    let (program, arguments) = match by {
        Backend::Client => command_line::split_command_line(command, &args),
        // The engine parses the command line itself.
        Backend::Workspace | Backend::Local => (command.to_owned(), args),
    };
    let asked = CommandRequest {
        command: program,
        args: arguments,
        env,
        cwd: Some(cwd.as_str().to_owned()),
        output_limit: Some(MAX_OUTPUT_BYTES),
    };
    let mut running = CommandRun { call: work, backend: by, label: &label, started: Instant::now() };
    let created =
        async { work.toolbox.commands.create_terminal(&work.runtime().terminals(by).await?, asked).await };
    let owned = match created.await {
        Ok(owned) => owned,
        Err(fault) => return Err(running.report_not_started(pass, &fault).await),
    };
    if waits {
        running.started = Instant::now();
        work.mark_running().await;
    }
    if by == Backend::Client {
        // Sent before waiting, so that the user sees the output as it comes.
        let shown = vec![builders::terminal(owned.terminal.clone())];
        work.update(ToolCallUpdateFields::new().content(shown)).await;
    }
    match name {
        Some(name) => Ok(running.leave_in_background(pass, owned, name).await),
        None => running.run_to_end(pass, owned, limit).await,
    }
}

/// Returns a command as given, and its label.
pub(crate) fn parse_command(
    fields: &ToolInputFields<'_>,
    cwd: &LexicalPath,
) -> Result<(CommandSpec, String), CallStop> {
    let (command, args, env) =
        (fields.required_text("command")?, fields.texts("args")?, fields.pairs("env")?);
    let invocation = terminal::parse_invocation(command, &args).map_err(|bad| bad.to_string())?;
    let label =
        display::escape_line(&bowline_protocol::terminal::format_invocation(&invocation), MAX_LABEL_BYTES);
    Ok((CommandSpec { invocation, cwd: cwd.as_str().to_owned(), env, named_paths: Vec::new() }, label))
}

/// Returns a command as the policy judges it.
pub(crate) async fn inspect_command(work: &ActiveCall<'_>, given: CommandSpec) -> CommandSpec {
    let Ok(roots) = work.runtime().roots().await.cloned() else { return given };
    let its = given.clone();
    let looked = spawn_blocking(move || {
        let own = roots.admit(&its.cwd, Access::Read).map(|found| found.canonical().to_owned());
        resolve_command_in(&roots, its.invocation, own.unwrap_or(its.cwd), its.env)
    });
    // A command that could not be inspected is left as it is, and the user is asked.
    looked.await.unwrap_or(given)
}

/// An authorized command.
struct CommandRun<'a, 'w> {
    call: &'a ActiveCall<'w>,
    backend: Backend,
    label: &'a str,
    started: Instant,
}

/// How waiting for a command ended.
enum WaitOutcome {
    Ended(CommandEnd),
    TimedOut,
    Lost(RuntimeError),
}

impl CommandRun<'_, '_> {
    async fn report_not_started(&self, pass: Authorization, fault: &RuntimeError) -> CallStop {
        let label = self.label;
        let text = match fault {
            fault if fault.is_outcome_unknown() => format!("it is not known whether `{label}` runs: {fault}"),
            // The missing or outside path may be the program or its directory.
            RuntimeError::Failed(RpcError::OutsideRoots { .. }) => {
                format!("`{label}` was not started: {fault}")
            }
            fault if fault.is_file_missing() => format!("`{label}` was not started: {fault}"),
            fault => fault.describe_for_model(self.backend, &format!("`{label}`")),
        };
        self.record_outcome(pass, None, Some(text.clone())).await;
        text.into()
    }

    async fn record_outcome(&self, pass: Authorization, exit: Option<String>, failed: Option<String>) {
        if let Err(why) = pass
            .record_outcome(OperationOutcome {
                exit_status: exit,
                failure: failed,
                ..OperationOutcome::default()
            })
            .await
        {
            self.call.runtime().options().log.write_line(why);
        }
    }

    /// Leaves a command running.
    async fn leave_in_background(
        &self,
        pass: Authorization,
        owned: OwnedTerminal,
        name: String,
    ) -> ToolOutput {
        let text = format!(
            "`{}` runs in the background as {name}, {}. Look at its output with execute_output, end it with \
             execute_kill.",
            self.label,
            self.backend.via_phrase()
        );
        let output = json!({ "servedBy": self.backend.as_str(), "id": name, "terminalId": owned.terminal });
        let (line, turn) = (self.label.to_owned(), self.call.cx.turn);
        owned.detach(BackgroundCommand { name, label: line, seen_output: String::new(), turn });
        self.record_outcome(pass, None, None).await;
        ToolOutput { text, raw_output: Some(output), ..ToolOutput::default() }
    }

    /// Waits for a command, up to its timeout.
    async fn run_to_end(
        &self,
        pass: Authorization,
        owned: OwnedTerminal,
        limit: Duration,
    ) -> Result<ToolOutput, CallStop> {
        let waited = match timeout(limit, self.wait_for_end(&owned)).await {
            Ok(Ok(ending)) => WaitOutcome::Ended(ending),
            Ok(Err(fault)) => WaitOutcome::Lost(fault),
            Err(_) => WaitOutcome::TimedOut,
        };
        self.call.runtime().record_command();
        let (commands, terminal) = (owned.terminals.clone(), owned.terminal.clone());
        if !matches!(waited, WaitOutcome::Ended(_)) {
            // If killing fails now, releasing the terminal ends the command.
            timeout(STEP_TIMEOUT, commands.kill(&terminal)).await.ok();
        }
        let output = timeout(STEP_TIMEOUT, commands.output(&terminal)).await;
        let output =
            output.unwrap_or(Err(RuntimeError::TimedOut { method: "terminal/output", after: STEP_TIMEOUT }));
        let released = timeout(STEP_TIMEOUT, owned.release()).await;
        if !matches!(released, Ok(Ok(()))) {
            self.call.runtime().options().log.write_line(format!("the terminal {terminal} was not given up"));
        }
        Ok(self.report_end(pass, &waited, limit, output).await)
    }

    /// Waits for a command. Shows the output of a local one meanwhile: a client shows its own.
    async fn wait_for_end(&self, owned: &OwnedTerminal) -> Result<CommandEnd, RuntimeError> {
        let (commands, terminal) = (&owned.terminals, &owned.terminal);
        let waiting = commands.wait(terminal);
        tokio::pin!(waiting);
        if let RuntimeTerminals::Client(_) = commands {
            return waiting.await;
        }
        let mut ticks = interval(SHOW_INTERVAL);
        ticks.tick().await;
        loop {
            tokio::select! {
                ending = &mut waiting => return ending,
                _ = ticks.tick() => {
                    if let Ok(output) = commands.output(terminal).await {
                        let shown = excerpt(&shown::clip_output(&output.text));
                        self.call.update(ToolCallUpdateFields::new().content(shown)).await;
                    }
                }
            }
        }
    }

    async fn report_end(
        &self,
        pass: Authorization,
        waited: &WaitOutcome,
        limit: Duration,
        output: Result<RuntimeTerminalOutput, RuntimeError>,
    ) -> ToolOutput {
        let took = self.started.elapsed().as_secs_f32();
        let (how, failed) = match waited {
            WaitOutcome::Ended(ending) => describe_end(ending),
            WaitOutcome::TimedOut => (
                format!(
                    "was ended because it took longer than {} s; this is its output so far",
                    limit.as_secs_f32()
                ),
                true,
            ),
            WaitOutcome::Lost(fault) => (format!("cannot be waited for: {fault}; it was ended"), true),
        };
        let exit = match waited {
            WaitOutcome::Ended(CommandEnd::Known(exit)) => Some(exit.to_string()),
            _ => None,
        };
        let why = (!matches!(waited, WaitOutcome::Ended(_))).then(|| how.clone());
        self.record_outcome(pass, exit.clone(), why).await;
        let (shown, missing) = match &output {
            Ok(output) => (
                shown::clip_output(&output.text),
                if output.truncated { "; some of its output is missing" } else { "" },
            ),
            Err(fault) => (format!("[its output cannot be shown: {fault}]"), ""),
        };
        let hidden = hidden_character_warning(&shown);
        let head =
            format!("[`{}` {how}, {}, {took:.1} s{missing}{hidden}]", self.label, self.backend.via_phrase());
        let truncated = output.as_ref().is_ok_and(|output| output.truncated);
        let raw = json!({
            "servedBy": self.backend.as_str(),
            "exit": exit,
            "timedOut": matches!(waited, WaitOutcome::TimedOut),
            "truncated": truncated,
            "output": shown,
        });
        ToolOutput {
            text: format!("{head}\n{shown}"),
            failed,
            // A client's terminal keeps showing its output.
            content: (self.backend == Backend::Local).then(|| excerpt(&format!("{head}\n{shown}"))),
            raw_output: Some(raw),
            ..ToolOutput::default()
        }
    }
}

fn describe_end(ending: &CommandEnd) -> (String, bool) {
    match ending {
        CommandEnd::Known(CommandExit::Code(0)) => ("ended with exit code 0".to_owned(), false),
        CommandEnd::Known(CommandExit::Code(code)) => (format!("failed with exit code {code}"), true),
        CommandEnd::Known(CommandExit::Signal(signal)) => (format!("was ended by the signal {signal}"), true),
        CommandEnd::Unknown => ("ended, and the editor does not say how".to_owned(), false),
    }
}

/// Runs the tool that reads the output of a background command.
pub(crate) async fn read_output(work: &ActiveCall<'_>) -> Result<ToolOutput, CallStop> {
    let fields = work.fields()?;
    let found = find_background(work, fields.required_text("id")?)?;
    let wait = Duration::from_secs(fields.number("wait_seconds")?.unwrap_or(0).into()).min(MAX_TIMEOUT);
    let BackgroundHandle { key, terminals: commands, terminal, background } = found;
    let title = format!("Output of {}: {}", background.name, background.label);
    work.announce(&title, ToolKind::Execute, |call| call.raw_input(json!({ "id": background.name }))).await?;
    work.mark_running().await;
    if !wait.is_zero() {
        // The output is returned whether the command has ended or not.
        timeout(wait, commands.wait(&terminal)).await.ok();
    }
    work.runtime().record_command();
    let by = commands.backend();
    let output =
        commands.output(&terminal).await.map_err(|fault| fault.describe_for_model(by, &background.name))?;
    let news = shown::output_since(&background.seen_output, &output.text);
    let gap = match (news.has_gap && !background.seen_output.is_empty(), output.truncated) {
        (true, _) => ", some output in between is missing",
        (false, true) => ", some output is missing",
        (false, false) => "",
    };
    let (how, failed) = match &output.end {
        Some(ending) => describe_end(ending),
        None => ("is running".to_owned(), false),
    };
    let shown = shown::clip_output(news.text);
    let hidden = hidden_character_warning(&shown);
    let text =
        format!("[{} (`{}`) {how}{gap}{hidden}; new output:]\n{shown}", background.name, background.label);
    let has_ended = output.end.is_some();
    work.toolbox.commands.record_seen_output(key, output.text.clone());
    if has_ended {
        // The model has been given the complete output.
        timeout(STEP_TIMEOUT, work.toolbox.commands.release(key)).await.ok();
    }
    let raw = json!({ "id": background.name, "ended": has_ended, "output": shown });
    Ok(ToolOutput {
        content: Some(excerpt(&text)),
        text,
        failed,
        raw_output: Some(raw),
        ..ToolOutput::default()
    })
}

/// Runs the tool that kills a background command.
pub(crate) async fn kill_command(work: &ActiveCall<'_>) -> Result<ToolOutput, CallStop> {
    let found = find_background(work, work.fields()?.required_text("id")?)?;
    let BackgroundHandle { key, terminals: commands, terminal, background } = found;
    let title = format!("End {}: {}", background.name, background.label);
    work.announce(&title, ToolKind::Execute, |call| call.raw_input(json!({ "id": background.name }))).await?;
    work.mark_running().await;
    work.runtime().record_command();
    let by = commands.backend();
    let killed = timeout(STEP_TIMEOUT, commands.kill(&terminal)).await;
    let output = timeout(STEP_TIMEOUT, commands.output(&terminal)).await;
    let released = timeout(STEP_TIMEOUT, work.toolbox.commands.release(key)).await;
    if !matches!(killed, Ok(Ok(()))) && !matches!(released, Ok(Ok(()))) {
        return Err(format!("{} could not be ended {}", background.name, by.via_phrase()).into());
    }
    let news = match &output {
        Ok(Ok(output)) => shown::clip_output(shown::output_since(&background.seen_output, &output.text).text),
        _ => String::new(),
    };
    let text = format!("[{} (`{}`) was ended; its last output:]\n{news}", background.name, background.label);
    Ok(ToolOutput { content: Some(excerpt(&text)), text, ..ToolOutput::default() })
}

fn find_background(work: &ActiveCall<'_>, name: &str) -> Result<BackgroundHandle, CallStop> {
    work.toolbox.commands.find_background(name).ok_or_else(|| {
        let names = work.toolbox.commands.background_names();
        let there =
            if names.is_empty() { "none runs".to_owned() } else { format!("there are {}", names.join(", ")) };
        CallStop::from(format!("no command runs in the background as {name:?}: {there}"))
    })
}
