//! The check of an agent: starts it, and reports its capabilities or how it fails.

use std::fmt::Display;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use bowline_host::HostCapabilities;
use bowline_protocol::capabilities::AgentMethod;
use bowline_protocol::capabilities::version;
use bowline_protocol::terminal::{CommandExit, TerminalOutput};
use bowline_wire::schema::v1::{
    AgentCapabilities, AuthMethod, AvailableCommand, DeleteSessionRequest, Error, ErrorCode, Implementation,
    InitializeRequest, InitializeResponse, NewSessionRequest, NewSessionResponse, RequestPermissionOutcome,
    RequestPermissionRequest, RequestPermissionResponse, SessionConfigKind, SessionConfigSelectOptions,
    SessionNotification, SessionUpdate,
};
use bowline_wire::{AgentHandle, CallError, Client, ClientContext, Direction, WireRecorder};
use bowline_workspace::terminals::TerminalError;
use tokio::sync::Notify;
use tokio::time::timeout;

use super::capabilities;
use super::process::{ProbedAgent, ProbedAgentExit};
use super::report::ReportSection;

/// The maximum number of bytes shown of the first line that an agent writes.
const MAX_FIRST_LINE: usize = 300;
/// The maximum number of stderr lines shown.
const MAX_STDERR_LINES: usize = 12;
/// The maximum number of names of a kind: modes, models, commands.
const MAX_NAMES: usize = 24;
/// How long to wait for the agent's commands after a session was opened.
const COMMANDS_TIMEOUT: Duration = Duration::from_millis(500);
/// How long an agent that has closed its stdout may take to exit.
const EXIT_GRACE: Duration = Duration::from_millis(300);

/// Starts an agent, checks it, and ends it with all its processes.
pub(super) async fn check_agent(command: &[String], cwd: &Path, time_limit: Duration) -> ReportSection {
    let mut section = ReportSection::new("The agent");
    let Some((program, args)) = command.split_first() else { return section };
    let Some(path) = find_program(&mut section, program) else { return section };
    let scratch = match tempfile::tempdir() {
        Ok(scratch) => scratch,
        Err(error) => {
            section.add_broken(
                format!("no scratch directory can be made: {error}"),
                "set TMPDIR to one that can be written",
            );
            return section;
        }
    };
    let (client, started) = (Arc::new(ProbeClient::default()), Instant::now());
    let (agent, mut process) = match ProbedAgent::start(&path, args, cwd, client.clone()).await {
        Ok(spawned) => spawned,
        Err(error) => {
            report_start_error(&mut section, &path, &error);
            return section;
        }
    };
    section.add_ok(format!("starts: {}", path.display()));
    let request = InitializeRequest::new(version::LATEST)
        .client_capabilities(HostCapabilities::default().to_client_capabilities())
        .client_info(Implementation::new("bowline", env!("CARGO_PKG_VERSION")));
    let result = timeout(time_limit, agent.initialize(request)).await;
    let response = match result {
        Ok(Ok(response)) => response,
        failed => {
            let error = failed.ok().and_then(Result::err);
            // Whether it exited by itself is known only before it is shut down.
            let has_exited = process.exits_within(EXIT_GRACE).await;
            let exit = process.shut_down().await;
            report_handshake_error(&mut section, error, (&exit, has_exited), &client, time_limit);
            return section;
        }
    };
    report_handshake(&mut section, &response, started.elapsed());
    if let Some(line) = client.first_junk() {
        section
            .add_warning(
                "it writes something else than the protocol to stdout",
                "other clients may end the connection at that: it belongs on stderr",
            )
            .add_quote(&line, 1);
    }
    check_session(&mut section, &agent, &response, scratch.path(), &client, time_limit).await;
    capabilities::describe_offer(section.add_info("Bowline would offer it:"));
    let exit = process.shut_down().await;
    report_exit(&mut section, &exit);
    section
}

/// Finds the program as the system would, and reports why if it is not found.
fn find_program(section: &mut ReportSection, program: &str) -> Option<PathBuf> {
    let candidates: Vec<PathBuf> = if program.contains('/') {
        vec![PathBuf::from(program)]
    } else {
        let search = std::env::var_os("PATH").unwrap_or_default();
        std::env::split_paths(&search).map(|directory| directory.join(program)).collect()
    };
    let is_file = |path: &&PathBuf| path.metadata().is_ok_and(|metadata| metadata.is_file());
    let can_run =
        |path: &&PathBuf| path.metadata().is_ok_and(|metadata| metadata.permissions().mode() & 0o111 != 0);
    let files: Vec<&PathBuf> = candidates.iter().filter(is_file).collect();
    if let Some(path) = files.iter().find(|path| can_run(path)) {
        return Some((**path).clone());
    }
    match files.first() {
        Some(file) => section.add_broken(
            format!("not executable: {}", file.display()),
            format!("chmod +x {}", file.display()),
        ),
        None if program.contains('/') => section.add_broken(
            format!("not found: there is no file {program}"),
            "name the program by its whole path",
        ),
        None if program.contains(char::is_whitespace) => section.add_broken(
            format!("not found: no directory of PATH has a program {program:?}"),
            "give its arguments as words of their own, not in quotes",
        ),
        None => section.add_broken(
            format!("not found: no directory of PATH has a program {program}"),
            "install it, or name it by its whole path: editors may have another PATH than this shell",
        ),
    };
    None
}

fn report_start_error(section: &mut ReportSection, path: &Path, error: &TerminalError) {
    let shown = path.display();
    let (reason, advice) = match error {
        // The file exists, so it is its interpreter that is missing.
        TerminalError::ProgramNotFound(_) => match read_interpreter(path) {
            Some(interpreter) => (
                format!("there is no {interpreter}"),
                format!("install {interpreter}, which its first line names"),
            ),
            None => (
                "something that it needs is not there".to_owned(),
                "it needs a program or a library that is not there: `file` and `ldd` tell which".to_owned(),
            ),
        },
        TerminalError::NotExecutable(_) => {
            ("it may not be run".to_owned(), "look at its mode, and at that of its directory".to_owned())
        }
        TerminalError::System { why: reason, .. } => (
            reason.clone(),
            "it is not made for this machine, or its first line is missing: `file` tells".to_owned(),
        ),
        // An error of the supervisor, not of the agent.
        other => (other.to_string(), "no agent and no command can be started here".to_owned()),
    };
    section.add_broken(format!("cannot be started: {shown}: {reason}"), advice);
}

fn read_interpreter(path: &Path) -> Option<String> {
    let mut start = [0; 256];
    let length = std::io::Read::read(&mut std::fs::File::open(path).ok()?, &mut start).ok()?;
    let line = start.get(..length)?.strip_prefix(b"#!")?.split(|byte| *byte == b'\n').next()?;
    Some(String::from_utf8_lossy(line).split_whitespace().next()?.to_owned())
}

/// Reports why a started agent failed to initialise, and whether it exited by itself.
fn report_handshake_error(
    section: &mut ReportSection,
    error: Option<CallError>,
    (exit, has_exited): (&ProbedAgentExit, bool),
    client: &ProbeClient,
    time_limit: Duration,
) {
    let exit_description = if has_exited {
        format!("exits at once{}", describe_exit(exit))
    } else {
        "closes its stdout at once".to_owned()
    };
    let hint = "is an argument such as --acp missing?";
    let finding = match (error, client.first_line()) {
        (_, Some(first)) if client.is_echo() => section
            .add_broken("only says again what it is told, as a terminal or `cat` does:", hint)
            .add_quote(&first, 1),
        (Some(CallError::UnsupportedVersion(unsupported)), _) => section.add_broken(
            format!("wrong protocol version: {unsupported}"),
            "update the agent, or Bowline: they have no version in common",
        ),
        (Some(CallError::ErrorResponse(error)), _) => section.add_broken(
            format!("refuses initialize: {}", describe_rpc_error(&error)),
            format!("it speaks JSON-RPC, but may not be an ACP agent: {hint}"),
        ),
        (Some(CallError::Closed), None) => section
            .add_broken(exit_description, format!("run it in a terminal to see why; {hint} Or a login?")),
        (None, None) => section.add_broken(
            format!("never answers: nothing on stdout for {} s", time_limit.as_secs()),
            format!("{hint} If it only starts slowly, try --timeout 60"),
        ),
        (error, Some(first)) => {
            let detail = match error {
                Some(CallError::Closed) => format!(", and {exit_description}"),
                Some(CallError::Unreadable { reason, .. }) => format!(" ({reason})"),
                _ => String::new(),
            };
            section
                .add_broken(format!("speaks something else than ACP{detail}; its first line:"), hint)
                .add_quote(&first, 1)
        }
        (Some(error), None) => section.add_broken(error.to_string(), hint),
    };
    if !exit.stderr.trim().is_empty() {
        finding.add_detail("on stderr:").add_quote(&stderr_text(exit), MAX_STDERR_LINES);
    }
}

/// Returns an agent's stderr, without control sequences.
fn stderr_text(exit: &ProbedAgentExit) -> String {
    let mut output = TerminalOutput::new(exit.stderr.len());
    output.push(exit.stderr.as_bytes());
    output.finish();
    output.text().to_owned()
}

fn describe_exit(exit: &ProbedAgentExit) -> String {
    match &exit.exit {
        Some(CommandExit::Code(code)) => format!(" with code {code}"),
        Some(CommandExit::Signal(name)) => format!(" by {name}"),
        None => String::new(),
    }
}

fn describe_rpc_error(error: &Error) -> String {
    let data = error.data.as_ref().map(|data| format!(" {data}")).unwrap_or_default();
    format!("{} ({}){data}", error.message, i32::from(error.code))
}

/// Reports the agent's answer to `initialize`.
fn report_handshake(section: &mut ReportSection, response: &InitializeResponse, elapsed: Duration) {
    let name = match &response.agent_info {
        Some(info) => format!("{} {}", info.title.as_ref().unwrap_or(&info.name), info.version),
        None => "it does not say who it is".to_owned(),
    };
    let version = response.protocol_version;
    section.add_ok(format!("{name}; protocol version {version}; initialize took {} ms", elapsed.as_millis()));
    let finding = section.add_info("what it can:");
    for line in describe_capabilities(&response.agent_capabilities) {
        finding.add_detail(line);
    }
    match response.auth_methods.as_slice() {
        [] => section.add_info("log in: it offers no way, so it needs none or has its own"),
        methods => {
            let finding = section.add_info("log in:");
            for method in methods {
                finding.add_detail(describe_auth_method(method));
            }
            finding
        }
    };
}

fn describe_auth_method(method: &AuthMethod) -> String {
    let suffix = match method {
        AuthMethod::Terminal(_) => ", in a terminal",
        _ => "",
    };
    let description = method.description().map(|text| format!(": {text}")).unwrap_or_default();
    format!("{} ({}{suffix}){description}", method.name(), method.id().0)
}

/// Describes an agent's capabilities.
fn describe_capabilities(capabilities: &AgentCapabilities) -> Vec<String> {
    let list = |label: &str, entries: &[(bool, &str)]| {
        let (supported, unsupported): (Vec<_>, Vec<_>) =
            entries.iter().partition(|(is_supported, _)| *is_supported);
        let names = |entries: Vec<(bool, &str)>| {
            entries.into_iter().map(|(_, name)| name).collect::<Vec<_>>().join(", ")
        };
        match (supported.is_empty(), unsupported.is_empty()) {
            (false, true) => format!("{label}: {}", names(supported)),
            (true, _) => format!("{label}: none of {}", names(unsupported)),
            (false, false) => format!("{label}: {}; not: {}", names(supported), names(unsupported)),
        }
    };
    let prompt = &capabilities.prompt_capabilities;
    let session = &capabilities.session_capabilities;
    vec![
        list(
            "sessions",
            &[
                (capabilities.load_session, "load"),
                (session.resume.is_some(), "resume"),
                (session.list.is_some(), "list"),
                (session.fork.is_some(), "fork"),
                (session.close.is_some(), "close"),
                (session.delete.is_some(), "delete"),
                (session.additional_directories.is_some(), "additional directories"),
            ],
        ),
        list(
            "prompts beside text and links",
            &[(prompt.embedded_context, "embedded files"), (prompt.image, "images"), (prompt.audio, "audio")],
        ),
        list(
            "MCP servers beside stdio",
            &[(capabilities.mcp_capabilities.http, "http"), (capabilities.mcp_capabilities.sse, "sse")],
        ),
    ]
}

/// Opens a session in a scratch directory, and reports what it offers.
async fn check_session(
    section: &mut ReportSection,
    agent: &AgentHandle,
    response: &InitializeResponse,
    scratch: &Path,
    client: &ProbeClient,
    time_limit: Duration,
) {
    let cwd = scratch.canonicalize().unwrap_or_else(|_| scratch.to_owned());
    let started = Instant::now();
    let opened = match timeout(time_limit, agent.new_session(NewSessionRequest::new(cwd))).await {
        Ok(Ok(opened)) => opened,
        Ok(Err(CallError::ErrorResponse(error))) if error.code == ErrorCode::AuthRequired => {
            let advice = match response.auth_methods.as_slice() {
                [] => "it offers no way to log in: see its own documentation".to_owned(),
                [only] => format!("log in with --auth {} of `bowline run` or `bowline chat`", only.id().0),
                _ => {
                    "log in with --auth of `bowline run` or `bowline chat`: it takes a name in brackets above"
                        .to_owned()
                }
            };
            section.add_broken(
                format!("session/new: it wants a login first: {}", describe_rpc_error(&error)),
                advice,
            );
            return;
        }
        Ok(Err(CallError::ErrorResponse(error))) => {
            section.add_broken(
                format!("session/new: {}", describe_rpc_error(&error)),
                "see its own documentation, or its log",
            );
            return;
        }
        Ok(Err(CallError::Closed)) => {
            section.add_broken("session/new: the agent ended", "what it says on stderr is below");
            return;
        }
        Ok(Err(error)) => {
            section.add_broken(format!("session/new: {error}"), "the agent does not keep to the protocol");
            return;
        }
        Err(_) => {
            section.add_broken(
                format!("session/new: no answer for {} s", time_limit.as_secs()),
                "it may wait for the network or a login; if it is only slow, try --timeout 60",
            );
            return;
        }
    };
    section.add_ok(format!("session/new works; it took {} ms", started.elapsed().as_millis()));
    report_session_options(section, &opened);
    // Agents may send their commands at any time; most do so at once.
    timeout(COMMANDS_TIMEOUT, client.commands_received.notified()).await.ok();
    let commands = client.state().commands.clone();
    if !commands.is_empty() {
        section.add_ok(format!(
            "commands: {}",
            join_names(commands.iter().map(|command| format!("/{}", command.name)))
        ));
    }
    if agent.check(AgentMethod::DeleteSession).is_ok() {
        // The probe's session should not appear among the user's. If it remains, it is empty.
        timeout(time_limit, agent.delete_session(DeleteSessionRequest::new(opened.session_id))).await.ok();
    }
}

/// Reports the modes and options of a session.
fn report_session_options(section: &mut ReportSection, opened: &NewSessionResponse) {
    if let Some(modes) = &opened.modes {
        let names = join_names(modes.available_modes.iter().map(|mode| mode.id.0.to_string()));
        section.add_ok(format!("modes: {names} (now {})", modes.current_mode_id.0));
    }
    for option in opened.config_options.iter().flatten() {
        let values = match &option.kind {
            SessionConfigKind::Select(select) => {
                let names: Vec<String> = match &select.options {
                    SessionConfigSelectOptions::Ungrouped(choices) => {
                        choices.iter().map(|choice| choice.value.0.to_string()).collect()
                    }
                    SessionConfigSelectOptions::Grouped(groups) => {
                        let choices = groups.iter().flat_map(|group| &group.options);
                        choices.map(|choice| choice.value.0.to_string()).collect()
                    }
                    // A later protocol version may have more shapes.
                    _ => Vec::new(),
                };
                format!("{} (now {})", join_names(names), select.current_value.0)
            }
            SessionConfigKind::Boolean(boolean) => {
                format!("on or off (now {})", if boolean.current_value { "on" } else { "off" })
            }
            // A later protocol version may have more kinds.
            _ => "of a kind that is not known here".to_owned(),
        };
        section.add_ok(format!("option {}: {values}", option.id.0));
    }
}

fn join_names(names: impl IntoIterator<Item = impl Display>) -> String {
    let names: Vec<String> = names.into_iter().map(|name| name.to_string()).collect();
    let more = names.len().saturating_sub(MAX_NAMES);
    let text = names.iter().take(MAX_NAMES).map(String::as_str).collect::<Vec<_>>().join(", ");
    if more > 0 { format!("{text} and {more} more") } else { text }
}

fn report_exit(section: &mut ReportSection, exit: &ProbedAgentExit) {
    let code = match exit.exit {
        Some(CommandExit::Code(code)) => Some(code),
        Some(CommandExit::Signal(_)) | None => None,
    };
    let is_broken = section.is_broken();
    let finding = match code {
        Some(0) => section.add_ok("ends when its stdin is closed"),
        Some(code) => section.add_warning(
            format!("ends with code {code} when its stdin is closed"),
            "nothing to do: it is gone all the same",
        ),
        None => section.add_warning(
            "does not end when its stdin is closed: it had to be killed",
            "other clients may leave it running",
        ),
    };
    if !exit.stderr.trim().is_empty() && (is_broken || code != Some(0)) {
        finding.add_detail("on stderr:").add_quote(&stderr_text(exit), MAX_STDERR_LINES);
    }
}

/// What was received from an agent.
#[derive(Default)]
pub(super) struct ProbeClient {
    state: Mutex<State>,
    // Notified when the agent's commands arrive.
    commands_received: Notify,
}

#[derive(Default)]
struct State {
    // The first line that it was sent, truncated for display.
    first_sent: Option<String>,
    // The first line that it wrote.
    first_received: Option<String>,
    // The first line that is not a message.
    first_junk: Option<String>,
    commands: Vec<AvailableCommand>,
}

impl ProbeClient {
    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn first_line(&self) -> Option<String> {
        self.state().first_received.clone()
    }

    /// Returns whether the agent echoes its input.
    fn is_echo(&self) -> bool {
        let state = self.state();
        state.first_received.is_some() && state.first_received == state.first_sent
    }

    fn first_junk(&self) -> Option<String> {
        self.state().first_junk.clone()
    }
}

impl WireRecorder for ProbeClient {
    fn record_line(&self, direction: Direction, line: &[u8]) {
        if line.iter().all(u8::is_ascii_whitespace) {
            return;
        }
        let truncated = || String::from_utf8_lossy(&line[..line.len().min(MAX_FIRST_LINE)]).into_owned();
        let mut state = self.state();
        if direction == Direction::Sent {
            state.first_sent.get_or_insert_with(truncated);
            return;
        }
        state.first_received.get_or_insert_with(truncated);
        if state.first_junk.is_none()
            && !line.trim_ascii_start().starts_with(b"{")
            && !line.trim_ascii_start().starts_with(b"[")
        {
            state.first_junk = Some(truncated());
        }
    }
}

impl Client for ProbeClient {
    async fn request_permission(
        &self,
        _: RequestPermissionRequest,
        _: ClientContext,
    ) -> Result<RequestPermissionResponse, Error> {
        Ok(RequestPermissionResponse::new(RequestPermissionOutcome::Cancelled))
    }

    async fn session_update(&self, notification: SessionNotification, _: AgentHandle) {
        if let SessionUpdate::AvailableCommandsUpdate(update) = notification.update {
            self.state().commands = update.available_commands;
            self.commands_received.notify_one();
        }
    }
}
