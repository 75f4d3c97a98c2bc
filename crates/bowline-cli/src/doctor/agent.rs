//! An agent that is started to be looked at: what it says of itself, and how it fails if it does.

use std::fmt::Display;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use bowline_host::Offer;
use bowline_state::capabilities::AgentMethod;
use bowline_state::terminal::{Exit, Output};
use bowline_state::version;
use bowline_wire::schema::v1::{
    AgentCapabilities, AuthMethod, AvailableCommand, DeleteSessionRequest, Error, ErrorCode, Implementation,
    InitializeRequest, InitializeResponse, NewSessionRequest, NewSessionResponse, RequestPermissionOutcome,
    RequestPermissionRequest, RequestPermissionResponse, SessionConfigKind, SessionConfigSelectOptions,
    SessionNotification, SessionUpdate,
};
use bowline_wire::{AgentHandle, CallError, Client, ClientContext, Direction, Tap};
use bowline_workspace::terminals::TerminalError;
use tokio::sync::Notify;
use tokio::time::timeout;

use super::process::{Ended, Process};
use super::report::Section;
use super::serving;

/// As much of the first line that an agent writes is shown, in bytes.
const MAX_FIRST: usize = 300;
/// As many lines of what it says on stderr.
const MAX_STDERR: usize = 12;
/// As many names of a kind: modes, models, commands.
const MAX_NAMES: usize = 24;
/// How long what it can be told is waited for, after a session was opened.
const COMMANDS: Duration = Duration::from_millis(500);
/// How long an agent that has closed its stdout may take to be gone.
const SOON: Duration = Duration::from_millis(300);

/// Starts an agent, looks at it, and ends it with all that it started.
pub(super) async fn look(command: &[String], cwd: &Path, patience: Duration) -> Section {
    let mut section = Section::new("The agent");
    let Some((program, args)) = command.split_first() else { return section };
    let Some(path) = find(&mut section, program) else { return section };
    let scratch = match tempfile::tempdir() {
        Ok(scratch) => scratch,
        Err(error) => {
            section.broken(
                format!("no scratch directory can be made: {error}"),
                "set TMPDIR to one that can be written",
            );
            return section;
        }
    };
    let (heard, begun) = (Arc::new(Heard::default()), Instant::now());
    let (agent, mut process) = match Process::start(&path, args, cwd, heard.clone()).await {
        Ok(spawned) => spawned,
        Err(error) => {
            not_started(&mut section, &path, &error);
            return section;
        }
    };
    section.well(format!("starts: {}", path.display()));
    let greeting = InitializeRequest::new(version::LATEST)
        .client_capabilities(Offer::default().capabilities())
        .client_info(Implementation::new("bowline", env!("CARGO_PKG_VERSION")));
    let met = timeout(patience, agent.initialize(greeting)).await;
    let answer = match met {
        Ok(Ok(answer)) => answer,
        failed => {
            let why = failed.ok().and_then(Result::err);
            // Whether it ended by itself can be told only before it is ended.
            let gone = process.ends_within(SOON).await;
            let exit = process.end().await;
            not_met(&mut section, why, (&exit, gone), &heard, patience);
            return section;
        }
    };
    met_with(&mut section, &answer, begun.elapsed());
    if let Some(line) = heard.junk() {
        section
            .lacking(
                "it writes something else than the protocol to stdout",
                "other clients may end the connection at that: it belongs on stderr",
            )
            .quote(&line, 1);
    }
    session(&mut section, &agent, &answer, scratch.path(), &heard, patience).await;
    serving::offer(section.plain("Bowline would offer it:"));
    let exit = process.end().await;
    ended(&mut section, &exit);
    section
}

/// Finds the program as the system would, and tells what is wrong if there is none.
fn find(section: &mut Section, program: &str) -> Option<PathBuf> {
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
        Some(file) => section
            .broken(format!("not executable: {}", file.display()), format!("chmod +x {}", file.display())),
        None if program.contains('/') => section
            .broken(format!("not found: there is no file {program}"), "name the program by its whole path"),
        None if program.contains(char::is_whitespace) => section.broken(
            format!("not found: no directory of PATH has a program {program:?}"),
            "give its arguments as words of their own, not in quotes",
        ),
        None => section.broken(
            format!("not found: no directory of PATH has a program {program}"),
            "install it, or name it by its whole path: editors may have another PATH than this shell",
        ),
    };
    None
}

fn not_started(section: &mut Section, path: &Path, error: &TerminalError) {
    let shown = path.display();
    let (why, advice) = match error {
        // The file is there, so it is what its first line names that is not.
        TerminalError::NoProgram(_) => match interpreter(path) {
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
        // Of what starts it, not of itself.
        other => (other.to_string(), "no agent and no command can be started here".to_owned()),
    };
    section.broken(format!("cannot be started: {shown}: {why}"), advice);
}

fn interpreter(path: &Path) -> Option<String> {
    let mut start = [0; 256];
    let length = std::io::Read::read(&mut std::fs::File::open(path).ok()?, &mut start).ok()?;
    let line = start.get(..length)?.strip_prefix(b"#!")?.split(|byte| *byte == b'\n').next()?;
    Some(String::from_utf8_lossy(line).split_whitespace().next()?.to_owned())
}

/// Says why an agent that was started did not come to terms; it ended by itself, or not.
fn not_met(
    section: &mut Section,
    why: Option<CallError>,
    (exit, gone): (&Ended, bool),
    heard: &Heard,
    patience: Duration,
) {
    let ending =
        if gone { format!("exits at once{}", status(exit)) } else { "closes its stdout at once".to_owned() };
    let missing = "is an argument such as --acp missing?";
    let finding = match (why, heard.first()) {
        (_, Some(first)) if heard.is_echo() => section
            .broken("only says again what it is told, as a terminal or `cat` does:", missing)
            .quote(&first, 1),
        (Some(CallError::Version(unsupported)), _) => section.broken(
            format!("wrong protocol version: {unsupported}"),
            "update the agent, or Bowline: they have no version in common",
        ),
        (Some(CallError::Refused(error)), _) => section.broken(
            format!("refuses initialize: {}", told(&error)),
            format!("it speaks JSON-RPC, but may not be an ACP agent: {missing}"),
        ),
        (Some(CallError::Closed), None) => {
            section.broken(ending, format!("run it in a terminal to see why; {missing} Or a login?"))
        }
        (None, None) => section.broken(
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
                .broken(format!("speaks something else than ACP{more}; its first line:"), missing)
                .quote(&first, 1)
        }
        (Some(error), None) => section.broken(error.to_string(), missing),
    };
    if !exit.stderr.trim().is_empty() {
        finding.detail("on stderr:").quote(&said(exit), MAX_STDERR);
    }
}

/// Returns what an agent said on stderr, without what steers a terminal.
fn said(exit: &Ended) -> String {
    let mut said = Output::new(exit.stderr.len());
    said.push(exit.stderr.as_bytes());
    said.finish();
    said.text().to_owned()
}

fn status(exit: &Ended) -> String {
    match &exit.exit {
        Some(Exit::Code(code)) => format!(" with code {code}"),
        Some(Exit::Signal(name)) => format!(" by {name}"),
        None => String::new(),
    }
}

fn told(error: &Error) -> String {
    let data = error.data.as_ref().map(|data| format!(" {data}")).unwrap_or_default();
    format!("{} ({}){data}", error.message, i32::from(error.code))
}

/// Says what an agent said of itself.
fn met_with(section: &mut Section, answer: &InitializeResponse, took: Duration) {
    let name = match &answer.agent_info {
        Some(info) => format!("{} {}", info.title.as_ref().unwrap_or(&info.name), info.version),
        None => "it does not say who it is".to_owned(),
    };
    let version = answer.protocol_version;
    section.well(format!("{name}; protocol version {version}; initialize took {} ms", took.as_millis()));
    let finding = section.plain("what it can:");
    for line in capabilities(&answer.agent_capabilities) {
        finding.detail(line);
    }
    match answer.auth_methods.as_slice() {
        [] => section.plain("log in: it offers no way, so it needs none or has its own"),
        methods => {
            let finding = section.plain("log in:");
            for method in methods {
                finding.detail(auth(method));
            }
            finding
        }
    };
}

fn auth(method: &AuthMethod) -> String {
    let how = match method {
        AuthMethod::Terminal(_) => ", in a terminal",
        _ => "",
    };
    let description = method.description().map(|text| format!(": {text}")).unwrap_or_default();
    format!("{} ({}{how}){description}", method.name(), method.id().0)
}

/// Returns what an agent can, in words.
fn capabilities(able: &AgentCapabilities) -> Vec<String> {
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

/// Opens a session in a scratch directory, and tells what it offers.
async fn session(
    section: &mut Section,
    agent: &AgentHandle,
    answer: &InitializeResponse,
    scratch: &Path,
    heard: &Heard,
    patience: Duration,
) {
    let cwd = scratch.canonicalize().unwrap_or_else(|_| scratch.to_owned());
    let begun = Instant::now();
    let opened = match timeout(patience, agent.new_session(NewSessionRequest::new(cwd))).await {
        Ok(Ok(opened)) => opened,
        Ok(Err(CallError::Refused(error))) if error.code == ErrorCode::AuthRequired => {
            let advice = match answer.auth_methods.as_slice() {
                [] => "it offers no way to log in: see its own documentation".to_owned(),
                [only] => format!("log in with --auth {} of `bowline run` or `bowline chat`", only.id().0),
                _ => {
                    "log in with --auth of `bowline run` or `bowline chat`: it takes a name in brackets above"
                        .to_owned()
                }
            };
            section.broken(format!("session/new: it wants a login first: {}", told(&error)), advice);
            return;
        }
        Ok(Err(CallError::Refused(error))) => {
            section.broken(format!("session/new: {}", told(&error)), "see its own documentation, or its log");
            return;
        }
        Ok(Err(CallError::Closed)) => {
            section.broken("session/new: the agent ended", "what it says on stderr is below");
            return;
        }
        Ok(Err(error)) => {
            section.broken(format!("session/new: {error}"), "the agent does not keep to the protocol");
            return;
        }
        Err(_) => {
            section.broken(
                format!("session/new: no answer for {} s", patience.as_secs()),
                "it may wait for the network or a login; if it is only slow, try --timeout 60",
            );
            return;
        }
    };
    section.well(format!("session/new works; it took {} ms", begun.elapsed().as_millis()));
    offered(section, &opened);
    // They come whenever the agent likes; most send them at once.
    timeout(COMMANDS, heard.told.notified()).await.ok();
    let commands = heard.state().commands.clone();
    if !commands.is_empty() {
        section.well(format!(
            "commands: {}",
            names(commands.iter().map(|command| format!("/{}", command.name)))
        ));
    }
    if agent.check(AgentMethod::DeleteSession).is_ok() {
        // Nobody wants to find it among their own. If it stays, it is empty.
        timeout(patience, agent.delete_session(DeleteSessionRequest::new(opened.session_id))).await.ok();
    }
}

/// Tells the modes and options of a session.
fn offered(section: &mut Section, opened: &NewSessionResponse) {
    if let Some(modes) = &opened.modes {
        let all = names(modes.available_modes.iter().map(|mode| mode.id.0.to_string()));
        section.well(format!("modes: {all} (now {})", modes.current_mode_id.0));
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
                    // A later protocol may know more ways.
                    _ => Vec::new(),
                };
                format!("{} (now {})", names(all), select.current_value.0)
            }
            SessionConfigKind::Boolean(boolean) => {
                format!("on or off (now {})", if boolean.current_value { "on" } else { "off" })
            }
            // A later protocol may know more kinds.
            _ => "of a kind that is not known here".to_owned(),
        };
        section.well(format!("option {}: {values}", option.id.0));
    }
}

fn names(all: impl IntoIterator<Item = impl Display>) -> String {
    let all: Vec<String> = all.into_iter().map(|name| name.to_string()).collect();
    let more = all.len().saturating_sub(MAX_NAMES);
    let shown = all.iter().take(MAX_NAMES).map(String::as_str).collect::<Vec<_>>().join(", ");
    if more > 0 { format!("{shown} and {more} more") } else { shown }
}

fn ended(section: &mut Section, exit: &Ended) {
    let code = match exit.exit {
        Some(Exit::Code(code)) => Some(code),
        Some(Exit::Signal(_)) | None => None,
    };
    let wrong = section.is_broken();
    let finding = match code {
        Some(0) => section.well("ends when its stdin is closed"),
        Some(code) => section.lacking(
            format!("ends with code {code} when its stdin is closed"),
            "nothing to do: it is gone all the same",
        ),
        None => section.lacking(
            "does not end when its stdin is closed: it had to be killed",
            "other clients may leave it running",
        ),
    };
    if !exit.stderr.trim().is_empty() && (wrong || code != Some(0)) {
        finding.detail("on stderr:").quote(&said(exit), MAX_STDERR);
    }
}

/// What was heard from an agent.
#[derive(Default)]
pub(super) struct Heard {
    state: Mutex<State>,
    // Somebody waits for what the agent can be told.
    told: Notify,
}

#[derive(Default)]
struct State {
    // The first line that it was sent, as far as it is shown.
    sent: Option<String>,
    // The first line that it wrote.
    first: Option<String>,
    // The first that is no message at all.
    junk: Option<String>,
    commands: Vec<AvailableCommand>,
}

impl Heard {
    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn first(&self) -> Option<String> {
        self.state().first.clone()
    }

    /// Says whether the agent says what it is told.
    fn is_echo(&self) -> bool {
        let state = self.state();
        state.first.is_some() && state.first == state.sent
    }

    fn junk(&self) -> Option<String> {
        self.state().junk.clone()
    }
}

impl Tap for Heard {
    fn line(&self, direction: Direction, line: &[u8]) {
        if line.iter().all(u8::is_ascii_whitespace) {
            return;
        }
        let shown = || String::from_utf8_lossy(&line[..line.len().min(MAX_FIRST)]).into_owned();
        let mut state = self.state();
        if direction == Direction::Sent {
            state.sent.get_or_insert_with(shown);
            return;
        }
        state.first.get_or_insert_with(shown);
        if state.junk.is_none()
            && !line.trim_ascii_start().starts_with(b"{")
            && !line.trim_ascii_start().starts_with(b"[")
        {
            state.junk = Some(shown());
        }
    }
}

impl Client for Heard {
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
            self.told.notify_one();
        }
    }
}
