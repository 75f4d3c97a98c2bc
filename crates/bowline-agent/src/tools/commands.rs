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
use bowline_task::spawn_blocking;
use bowline_text::display;
use bowline_tools::tools::describe::hidden_character_warning;
use bowline_tools::tools::input::ToolInputFields;
use bowline_tools::tools::output as shown;
use bowline_workspace::terminals::{CommandRequest, resolve_command};
use serde_json::json;
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
pub(crate) async fn execute(active_call: &ActiveCall<'_>, backend: Backend) -> Result<ToolOutput, CallStop> {
    let fields = active_call.fields()?;
    let (command, args, env) =
        (fields.required_text("command")?, fields.texts("args")?, fields.pairs("env")?);
    let cwd = active_call.resolve_path(fields.optional_text("cwd")?.unwrap_or("."))?;
    let options = active_call.runtime().options();
    let limit = match fields.number("timeout_seconds")? {
        None | Some(0) => options.command_timeout,
        Some(seconds) => Duration::from_secs(seconds.into()).min(MAX_TIMEOUT),
    };
    let in_background = fields.flag("background")?;
    let (spec, label) = parse_command(&fields, &cwd)?;
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
    let preview = preview::preview_command(spec.clone());
    active_call
        .announce(&title, ToolKind::Execute, |call| call.raw_input(input).content(preview.clone()))
        .await?;
    let inspected = inspect_command(active_call, spec).await;
    let operation = Operation { kind: OperationKind::Execute, target: OperationTarget::Command(inspected) };
    let request = OperationRequest {
        action: AuditAction::TerminalCreate,
        title,
        items: vec![QuestionItem::new(operation)],
    };
    let authorization =
        active_call.toolbox.permissions.authorize(backend, active_call.call, active_call.cx, request).await;
    let mut authorization = authorization.map_err(|denial| CallStop::from(denial).with_content(preview))?;
    let name = match in_background {
        true => {
            let too_many = || {
                format!("{} commands run in the background already: end one first", registry::MAX_BACKGROUND)
            };
            Some(active_call.toolbox.commands.reserve_background_name().await.ok_or_else(too_many)?)
        }
        false => None,
    };
    authorization.record_start().await?;
    // A client that authorizes operations asks its user first.
    let is_left_to_client = authorization.is_left_to_client();
    if !is_left_to_client {
        active_call.mark_running().await;
    }
    active_call.runtime().record_command();
    let (program, arguments) = match backend {
        Backend::Client => command_line::split_command_line(command, &args),
        // The engine parses the command line itself.
        Backend::Workspace | Backend::Local => (command.to_owned(), args),
    };
    let command_request = CommandRequest {
        command: program,
        args: arguments,
        env,
        cwd: Some(cwd.as_str().to_owned()),
        output_limit: Some(MAX_OUTPUT_BYTES),
    };
    let mut run = CommandRun { call: active_call, backend, label: &label, started: Instant::now() };
    let created = async {
        active_call
            .toolbox
            .commands
            .create_terminal(&active_call.runtime().terminals(backend).await?, command_request)
            .await
    };
    let owned = match created.await {
        Ok(owned) => owned,
        Err(error) => return Err(run.report_not_started(authorization, &error).await),
    };
    if is_left_to_client {
        run.started = Instant::now();
        active_call.mark_running().await;
    }
    if backend == Backend::Client {
        // Sent before waiting, so that the user sees the output as it comes.
        let content = vec![builders::terminal(owned.terminal.clone())];
        active_call.update(ToolCallUpdateFields::new().content(content)).await;
    }
    match name {
        Some(name) => Ok(run.leave_in_background(authorization, owned, name).await),
        None => run.run_to_end(authorization, owned, limit).await,
    }
}

/// Returns a command as given, and its label.
pub(crate) fn parse_command(
    fields: &ToolInputFields<'_>,
    cwd: &LexicalPath,
) -> Result<(CommandSpec, String), CallStop> {
    let (command, args, env) =
        (fields.required_text("command")?, fields.texts("args")?, fields.pairs("env")?);
    let invocation = terminal::parse_invocation(command, &args).map_err(|error| error.to_string())?;
    let label =
        display::escape_line(&bowline_protocol::terminal::format_invocation(&invocation), MAX_LABEL_BYTES);
    Ok((CommandSpec { invocation, cwd: cwd.as_str().to_owned(), env, named_paths: Vec::new() }, label))
}

/// Returns a command as the policy judges it.
pub(crate) async fn inspect_command(active_call: &ActiveCall<'_>, spec: CommandSpec) -> CommandSpec {
    let Ok(roots) = active_call.runtime().roots().await.cloned() else { return spec };
    let copy = spec.clone();
    let inspection = spawn_blocking(move || {
        let cwd = roots.admit(&copy.cwd, Access::Read).map(|admitted| admitted.canonical().to_owned());
        resolve_command(&roots, copy.invocation, cwd.unwrap_or(copy.cwd), copy.env)
    });
    // A command that could not be inspected is left as it is, and the user is asked.
    inspection.await.unwrap_or(spec)
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
    async fn report_not_started(&self, authorization: Authorization, error: &RuntimeError) -> CallStop {
        let label = self.label;
        let text = match error {
            error if error.is_outcome_unknown() => format!("it is not known whether `{label}` runs: {error}"),
            // The missing or outside path may be the program or its directory.
            RuntimeError::Failed(RpcError::OutsideRoots { .. }) => {
                format!("`{label}` was not started: {error}")
            }
            error if error.is_file_missing() => format!("`{label}` was not started: {error}"),
            error => error.describe_for_model(self.backend, &format!("`{label}`")),
        };
        let failure = Some(text.clone());
        authorization.log_outcome(OperationOutcome { failure, ..OperationOutcome::default() }).await;
        text.into()
    }

    /// Leaves a command running.
    async fn leave_in_background(
        &self,
        authorization: Authorization,
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
        authorization.log_outcome(OperationOutcome::default()).await;
        ToolOutput { text, raw_output: Some(output), ..ToolOutput::default() }
    }

    /// Waits for a command, up to its timeout.
    async fn run_to_end(
        &self,
        authorization: Authorization,
        owned: OwnedTerminal,
        limit: Duration,
    ) -> Result<ToolOutput, CallStop> {
        let outcome = match timeout(limit, self.wait_for_end(&owned)).await {
            Ok(Ok(end)) => WaitOutcome::Ended(end),
            Ok(Err(error)) => WaitOutcome::Lost(error),
            Err(_) => WaitOutcome::TimedOut,
        };
        self.call.runtime().record_command();
        let (terminals, terminal) = (owned.terminals.clone(), owned.terminal.clone());
        if !matches!(outcome, WaitOutcome::Ended(_)) {
            // If killing fails now, releasing the terminal ends the command.
            timeout(STEP_TIMEOUT, terminals.kill(&terminal)).await.ok();
        }
        let output = timeout(STEP_TIMEOUT, terminals.output(&terminal)).await;
        let output =
            output.unwrap_or(Err(RuntimeError::TimedOut { method: "terminal/output", after: STEP_TIMEOUT }));
        let released = timeout(STEP_TIMEOUT, owned.release()).await;
        if !matches!(released, Ok(Ok(()))) {
            self.call.runtime().options().log.write_line(format!("the terminal {terminal} was not given up"));
        }
        Ok(self.report_end(authorization, &outcome, limit, output).await)
    }

    /// Waits for a command. Shows the output of a local one meanwhile: a client shows its own.
    async fn wait_for_end(&self, owned: &OwnedTerminal) -> Result<CommandEnd, RuntimeError> {
        let (terminals, terminal) = (&owned.terminals, &owned.terminal);
        let wait = terminals.wait(terminal);
        tokio::pin!(wait);
        if let RuntimeTerminals::Client(_) = terminals {
            return wait.await;
        }
        let mut ticks = interval(SHOW_INTERVAL);
        ticks.tick().await;
        loop {
            tokio::select! {
                result = &mut wait => return result,
                _ = ticks.tick() => {
                    if let Ok(output) = terminals.output(terminal).await {
                        let content = excerpt(&shown::clip_output(&output.text));
                        self.call.update(ToolCallUpdateFields::new().content(content)).await;
                    }
                }
            }
        }
    }

    async fn report_end(
        &self,
        authorization: Authorization,
        outcome: &WaitOutcome,
        limit: Duration,
        output: Result<RuntimeTerminalOutput, RuntimeError>,
    ) -> ToolOutput {
        let seconds = self.started.elapsed().as_secs_f32();
        let (description, failed) = match outcome {
            WaitOutcome::Ended(end) => describe_end(end),
            WaitOutcome::TimedOut => (
                format!(
                    "was ended because it took longer than {} s; this is its output so far",
                    limit.as_secs_f32()
                ),
                true,
            ),
            WaitOutcome::Lost(error) => (format!("cannot be waited for: {error}; it was ended"), true),
        };
        let exit = match outcome {
            WaitOutcome::Ended(CommandEnd::Known(exit)) => Some(exit.to_string()),
            _ => None,
        };
        let failure = (!matches!(outcome, WaitOutcome::Ended(_))).then(|| description.clone());
        let exit_status = exit.clone();
        authorization
            .log_outcome(OperationOutcome { exit_status, failure, ..OperationOutcome::default() })
            .await;
        let (output_text, missing) = match &output {
            Ok(output) => (
                shown::clip_output(&output.text),
                if output.truncated { "; some of its output is missing" } else { "" },
            ),
            Err(error) => (format!("[its output cannot be shown: {error}]"), ""),
        };
        let warning = hidden_character_warning(&output_text);
        let header = format!(
            "[`{}` {description}, {}, {seconds:.1} s{missing}{warning}]",
            self.label,
            self.backend.via_phrase()
        );
        let truncated = output.as_ref().is_ok_and(|output| output.truncated);
        let raw_output = json!({
            "servedBy": self.backend.as_str(),
            "exit": exit,
            "timedOut": matches!(outcome, WaitOutcome::TimedOut),
            "truncated": truncated,
            "output": output_text,
        });
        ToolOutput {
            text: format!("{header}\n{output_text}"),
            failed,
            // A client's terminal keeps showing its output.
            content: (self.backend == Backend::Local).then(|| excerpt(&format!("{header}\n{output_text}"))),
            raw_output: Some(raw_output),
            ..ToolOutput::default()
        }
    }
}

fn describe_end(end: &CommandEnd) -> (String, bool) {
    match end {
        CommandEnd::Known(CommandExit::Code(0)) => ("ended with exit code 0".to_owned(), false),
        CommandEnd::Known(CommandExit::Code(code)) => (format!("failed with exit code {code}"), true),
        CommandEnd::Known(CommandExit::Signal(signal)) => (format!("was ended by the signal {signal}"), true),
        CommandEnd::Unknown => ("ended, and the editor does not say how".to_owned(), false),
    }
}

/// Runs the tool that reads the output of a background command.
pub(crate) async fn read_output(active_call: &ActiveCall<'_>) -> Result<ToolOutput, CallStop> {
    let fields = active_call.fields()?;
    let handle = find_background(active_call, fields.required_text("id")?)?;
    let wait = Duration::from_secs(fields.number("wait_seconds")?.unwrap_or(0).into()).min(MAX_TIMEOUT);
    let BackgroundHandle { key, terminals, terminal, background } = handle;
    let title = format!("Output of {}: {}", background.name, background.label);
    active_call
        .announce(&title, ToolKind::Execute, |call| call.raw_input(json!({ "id": background.name })))
        .await?;
    active_call.mark_running().await;
    if !wait.is_zero() {
        // The output is returned whether the command has ended or not.
        timeout(wait, terminals.wait(&terminal)).await.ok();
    }
    active_call.runtime().record_command();
    let backend = terminals.backend();
    let output = terminals
        .output(&terminal)
        .await
        .map_err(|error| error.describe_for_model(backend, &background.name))?;
    let new_output = shown::output_since(&background.seen_output, &output.text);
    let gap = match (new_output.has_gap && !background.seen_output.is_empty(), output.truncated) {
        (true, _) => ", some output in between is missing",
        (false, true) => ", some output is missing",
        (false, false) => "",
    };
    let (description, failed) = match &output.end {
        Some(end) => describe_end(end),
        None => ("is running".to_owned(), false),
    };
    let clipped = shown::clip_output(new_output.text);
    let warning = hidden_character_warning(&clipped);
    let text = format!(
        "[{} (`{}`) {description}{gap}{warning}; new output:]\n{clipped}",
        background.name, background.label
    );
    let has_ended = output.end.is_some();
    active_call.toolbox.commands.record_seen_output(key, output.text.clone());
    if has_ended {
        // The model has been given the complete output.
        timeout(STEP_TIMEOUT, active_call.toolbox.commands.release(key)).await.ok();
    }
    let raw_output = json!({ "id": background.name, "ended": has_ended, "output": clipped });
    Ok(ToolOutput {
        content: Some(excerpt(&text)),
        text,
        failed,
        raw_output: Some(raw_output),
        ..ToolOutput::default()
    })
}

/// Runs the tool that kills a background command.
pub(crate) async fn kill_command(active_call: &ActiveCall<'_>) -> Result<ToolOutput, CallStop> {
    let handle = find_background(active_call, active_call.fields()?.required_text("id")?)?;
    let BackgroundHandle { key, terminals, terminal, background } = handle;
    let title = format!("End {}: {}", background.name, background.label);
    active_call
        .announce(&title, ToolKind::Execute, |call| call.raw_input(json!({ "id": background.name })))
        .await?;
    active_call.mark_running().await;
    active_call.runtime().record_command();
    let backend = terminals.backend();
    let killed = timeout(STEP_TIMEOUT, terminals.kill(&terminal)).await;
    let output = timeout(STEP_TIMEOUT, terminals.output(&terminal)).await;
    let released = timeout(STEP_TIMEOUT, active_call.toolbox.commands.release(key)).await;
    if !matches!(killed, Ok(Ok(()))) && !matches!(released, Ok(Ok(()))) {
        return Err(format!("{} could not be ended {}", background.name, backend.via_phrase()).into());
    }
    let new_output = match &output {
        Ok(Ok(output)) => shown::clip_output(shown::output_since(&background.seen_output, &output.text).text),
        _ => String::new(),
    };
    let text =
        format!("[{} (`{}`) was ended; its last output:]\n{new_output}", background.name, background.label);
    Ok(ToolOutput { content: Some(excerpt(&text)), text, ..ToolOutput::default() })
}

fn find_background(active_call: &ActiveCall<'_>, name: &str) -> Result<BackgroundHandle, CallStop> {
    active_call.toolbox.commands.find_background(name).ok_or_else(|| {
        let names = active_call.toolbox.commands.background_names();
        let available =
            if names.is_empty() { "none runs".to_owned() } else { format!("there are {}", names.join(", ")) };
        CallStop::from(format!("no command runs in the background as {name:?}: {available}"))
    })
}
