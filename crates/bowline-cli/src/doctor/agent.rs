//! The check of an agent: starts it, and reports its capabilities or how it fails.

use std::fmt::Display;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use bowline_host::HostCapabilities;
use bowline_protocol::capabilities::AgentMethod;
use bowline_protocol::terminal::{CommandExit, TerminalOutput};
use bowline_protocol::version;
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
pub(super) async fn check_agent(command: &[String], cwd: &Path, patience: Duration) -> ReportSection {
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
    let (heard, begun) = (Arc::new(ProbeClient::default()), Instant::now());
    let (agent, mut process) = match ProbedAgent::start(&path, args, cwd, heard.clone()).await {
        Ok(spawned) => spawned,
        Err(error) => {
            report_start_error(&mut section, &path, &error);
            return section;
        }
    };
    section.add_ok(format!("starts: {}", path.display()));
    let greeting = InitializeRequest::new(version::LATEST)
        .client_capabilities(HostCapabilities::default().to_client_capabilities())
        .client_info(Implementation::new("bowline", env!("CARGO_PKG_VERSION")));
    let met = timeout(patience, agent.initialize(greeting)).await;
    let answer = match met {
        Ok(Ok(answer)) => answer,
        failed => {
            let why = failed.ok().and_then(Result::err);
            // Whether it exited by itself is known only before it is shut down.
            let gone = process.exits_within(EXIT_GRACE).await;
            let exit = process.shut_down().await;
            report_handshake_error(&mut section, why, (&exit, gone), &heard, patience);
            return section;
        }
    };
    report_handshake(&mut section, &answer, begun.elapsed());
    if let Some(line) = heard.first_junk() {
        section
            .add_warning(
                "it writes something else than the protocol to stdout",
                "other clients may end the connection at that: it belongs on stderr",
            )
            .add_quote(&line, 1);
    }
    check_session(&mut section, &agent, &answer, scratch.path(), &heard, patience).await;
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
    if let Some(found) = files.iter().find(|path| can_run(path)) {
        return Some((**found).clone());
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
    let (why, advice) = match error {
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
        TerminalError::System { why, .. } => (
            why.clone(),
            "it is not made for this machine, or its first line is missing: `file` tells".to_owned(),
        ),
        // An error of the supervisor, not of the agent.
        other => (other.to_string(), "no agent and no command can be started here".to_owned()),
    };
    section.add_broken(format!("cannot be started: {shown}: {why}"), advice);
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
    why: Option<CallError>,
    (exit, gone): (&ProbedAgentExit, bool),
    heard: &ProbeClient,
    patience: Duration,
) {
    let ending = if gone {
        format!("exits at once{}", describe_exit(exit))
    } else {
        "closes its stdout at once".to_owned()
    };
    let missing = "is an argument such as --acp missing?";
    let finding = match (why, heard.first_line()) {
        (_, Some(first)) if heard.is_echo() => section
            .add_broken("only says again what it is told, as a terminal or `cat` does:", missing)
            .add_quote(&first, 1),
        (Some(CallError::UnsupportedVersion(unsupported)), _) => section.add_broken(
            format!("wrong protocol version: {unsupported}"),
            "update the agent, or Bowline: they have no version in common",
        ),
        (Some(CallError::ErrorResponse(error)), _) => section.add_broken(
            format!("refuses initialize: {}", describe_rpc_error(&error)),
            format!("it speaks JSON-RPC, but may not be an ACP agent: {missing}"),
        ),
        (Some(CallError::Closed), None) => {
            section.add_broken(ending, format!("run it in a terminal to see why; {missing} Or a login?"))
        }
        (None, None) => section.add_broken(
            format!("never answers: nothing on stdout for {} s", patience.as_secs()),
            format!("{missing} If it only starts slowly, try --timeout 60"),
        ),
        (why, Some(first)) => {
            let more = match why {
                Some(CallError::Closed) => format!(", and {ending}"),
                Some(CallError::Unreadable { reason, .. }) => format!(" ({reason})"),
                _ => String::new(),
            };
            section
                .add_broken(format!("speaks something else than ACP{more}; its first line:"), missing)
                .add_quote(&first, 1)
        }
        (Some(error), None) => section.add_broken(error.to_string(), missing),
    };
    if !exit.stderr.trim().is_empty() {
        finding.add_detail("on stderr:").add_quote(&stderr_text(exit), MAX_STDERR_LINES);
    }
}

/// Returns an agent's stderr, without control sequences.
fn stderr_text(exit: &ProbedAgentExit) -> String {
    let mut said = TerminalOutput::new(exit.stderr.len());
    said.push(exit.stderr.as_bytes());
    said.finish();
    said.text().to_owned()
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
fn report_handshake(section: &mut ReportSection, answer: &InitializeResponse, took: Duration) {
    let name = match &answer.agent_info {
        Some(info) => format!("{} {}", info.title.as_ref().unwrap_or(&info.name), info.version),
        None => "it does not say who it is".to_owned(),
    };
    let version = answer.protocol_version;
    section.add_ok(format!("{name}; protocol version {version}; initialize took {} ms", took.as_millis()));
    let finding = section.add_info("what it can:");
    for line in describe_capabilities(&answer.agent_capabilities) {
        finding.add_detail(line);
    }
    match answer.auth_methods.as_slice() {
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
    let how = match method {
        AuthMethod::Terminal(_) => ", in a terminal",
        _ => "",
    };
    let description = method.description().map(|text| format!(": {text}")).unwrap_or_default();
    format!("{} ({}{how}){description}", method.name(), method.id().0)
}

/// Describes an agent's capabilities.
fn describe_capabilities(able: &AgentCapabilities) -> Vec<String> {
    let list = |what: &str, all: &[(bool, &str)]| {
        let (can, cannot): (Vec<_>, Vec<_>) = all.iter().partition(|(able, _)| *able);
        let names =
            |all: Vec<(bool, &str)>| all.into_iter().map(|(_, name)| name).collect::<Vec<_>>().join(", ");
        match (can.is_empty(), cannot.is_empty()) {
            (false, true) => format!("{what}: {}", names(can)),
            (true, _) => format!("{what}: none of {}", names(cannot)),
            (false, false) => format!("{what}: {}; not: {}", names(can), names(cannot)),
        }
    };
    let prompt = &able.prompt_capabilities;
    let session = &able.session_capabilities;
    vec![
        list(
            "sessions",
            &[
                (able.load_session, "load"),
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
            &[(able.mcp_capabilities.http, "http"), (able.mcp_capabilities.sse, "sse")],
        ),
    ]
}

/// Opens a session in a scratch directory, and reports what it offers.
async fn check_session(
    section: &mut ReportSection,
    agent: &AgentHandle,
    answer: &InitializeResponse,
    scratch: &Path,
    heard: &ProbeClient,
    patience: Duration,
) {
    let cwd = scratch.canonicalize().unwrap_or_else(|_| scratch.to_owned());
    let begun = Instant::now();
    let opened = match timeout(patience, agent.new_session(NewSessionRequest::new(cwd))).await {
        Ok(Ok(opened)) => opened,
        Ok(Err(CallError::ErrorResponse(error))) if error.code == ErrorCode::AuthRequired => {
            let advice = match answer.auth_methods.as_slice() {
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
                format!("session/new: no answer for {} s", patience.as_secs()),
                "it may wait for the network or a login; if it is only slow, try --timeout 60",
            );
            return;
        }
    };
    section.add_ok(format!("session/new works; it took {} ms", begun.elapsed().as_millis()));
    report_session_options(section, &opened);
    // Agents may send their commands at any time; most do so at once.
    timeout(COMMANDS_TIMEOUT, heard.commands_received.notified()).await.ok();
    let commands = heard.state().commands.clone();
    if !commands.is_empty() {
        section.add_ok(format!(
            "commands: {}",
            join_names(commands.iter().map(|command| format!("/{}", command.name)))
        ));
    }
    if agent.check(AgentMethod::DeleteSession).is_ok() {
        // The probe's session should not appear among the user's. If it remains, it is empty.
        timeout(patience, agent.delete_session(DeleteSessionRequest::new(opened.session_id))).await.ok();
    }
}

/// Reports the modes and options of a session.
fn report_session_options(section: &mut ReportSection, opened: &NewSessionResponse) {
    if let Some(modes) = &opened.modes {
        let all = join_names(modes.available_modes.iter().map(|mode| mode.id.0.to_string()));
        section.add_ok(format!("modes: {all} (now {})", modes.current_mode_id.0));
    }
    for option in opened.config_options.iter().flatten() {
        let values = match &option.kind {
            SessionConfigKind::Select(select) => {
                let all: Vec<String> = match &select.options {
                    SessionConfigSelectOptions::Ungrouped(all) => {
                        all.iter().map(|one| one.value.0.to_string()).collect()
                    }
                    SessionConfigSelectOptions::Grouped(groups) => {
                        let all = groups.iter().flat_map(|group| &group.options);
                        all.map(|one| one.value.0.to_string()).collect()
                    }
                    // A later protocol version may have more shapes.
                    _ => Vec::new(),
                };
                format!("{} (now {})", join_names(all), select.current_value.0)
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

fn join_names(all: impl IntoIterator<Item = impl Display>) -> String {
    let all: Vec<String> = all.into_iter().map(|name| name.to_string()).collect();
    let more = all.len().saturating_sub(MAX_NAMES);
    let shown = all.iter().take(MAX_NAMES).map(String::as_str).collect::<Vec<_>>().join(", ");
    if more > 0 { format!("{shown} and {more} more") } else { shown }
}

fn report_exit(section: &mut ReportSection, exit: &ProbedAgentExit) {
    let code = match exit.exit {
        Some(CommandExit::Code(code)) => Some(code),
        Some(CommandExit::Signal(_)) | None => None,
    };
    let wrong = section.is_broken();
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
    if !exit.stderr.trim().is_empty() && (wrong || code != Some(0)) {
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
        let shown = || String::from_utf8_lossy(&line[..line.len().min(MAX_FIRST_LINE)]).into_owned();
        let mut state = self.state();
        if direction == Direction::Sent {
            state.first_sent.get_or_insert_with(shown);
            return;
        }
        state.first_received.get_or_insert_with(shown);
        if state.first_junk.is_none()
            && !line.trim_ascii_start().starts_with(b"{")
            && !line.trim_ascii_start().starts_with(b"[")
        {
            state.first_junk = Some(shown());
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
