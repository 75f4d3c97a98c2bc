//! Launching: opens a workspace, starts an agent for it and opens a session, and does so again when the agent has died.

mod session_config;

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use anyhow::Context as _;
use bowline_access::approvals::PolicyFallback;
use bowline_host::{Connection, FrontEnd, Host, HostError, HostOptions, HostSession, SessionOptions};
use bowline_policy::mode::AgentMode;
use bowline_protocol::schema::v1::{AuthMethod, ErrorCode, InitializeResponse};
use bowline_protocol::trace::TraceSide;
use bowline_text::display;
use bowline_text::display::quote;
use bowline_wire::{AgentExit, CallError, ShutdownGrace, WireRecorder};
use bowline_workspace::roots::RootSpec;
use bowline_workspace::terminals::supervisor::ConfinementSupport;
use bowline_workspace::terminals::{self, SupervisorProgram, TerminalError};
use bowline_workspace::workspace::Workspace;
use futures_util::FutureExt as _;

use super::ClientArguments;
use super::agents::AgentCommand;
use super::config::Config;
use super::login::LoginRequired;
use super::reopen::{self, ReopenMethod};
use super::trace::{RecorderSet, TraceRecorder};
use crate::arguments::options;
use crate::environment::UserDirs;
use crate::environment::quirk_mode;
use crate::error::CliError;
use crate::reopen::last_sessions::LastSessions;

/// The hidden command that starts the program as a supervisor, which owns the processes of a command.
pub const SUPERVISOR_COMMAND: &str = "__supervisor";

/// The time limit for an agent to start and to open a session. Some take long to load the first time.
const START_TIMEOUT: Duration = Duration::from_secs(60);

/// The maximum number of stderr lines shown when an agent failed.
const MAX_OUTPUT_LINES: usize = 15;

/// The maximum length of an agent's error that is shown, in bytes.
const MAX_ERROR_BYTES: usize = 4096;

/// The error code for a required login.
const AUTH_REQUIRED: i32 = -32000;

/// An open workspace, and the command that starts its agent.
#[derive(Debug)]
pub struct AgentLauncher {
    /// The workspace, its rules and its log.
    pub host: Host,
    /// The options that sessions are opened with.
    pub options: SessionOptions,
    /// How earlier sessions are reopened.
    pub reopen_method: ReopenMethod,
    /// The agent.
    pub agent: AgentCommand,
    arguments: ClientArguments,
    cwd: PathBuf,
    last_sessions: LastSessions,
}

/// A running agent and its open session.
#[derive(Debug)]
pub struct LaunchedAgent {
    /// The connection to the agent.
    pub connection: Connection,
    /// The session.
    pub session: HostSession,
}

impl AgentLauncher {
    /// Sets the fallback for requests that no rule matches, if the agent is Bowline's own: its modes are names for
    /// these presets.
    pub fn apply_own_mode(&self, mode: &str) {
        if let Some(mode) = AgentMode::from_id(mode).filter(|_| self.agent.is_own) {
            self.host.approvals().set_fallback(PolicyFallback::UnlessRestricted(mode.preset()));
        }
    }

    /// Opens the workspace, with the documents that are open in it, and recorders that receive every message.
    pub async fn open(
        arguments: ClientArguments,
        dirs: &UserDirs,
        front_end: Arc<dyn FrontEnd>,
        mut recorders: Vec<Arc<dyn WireRecorder>>,
    ) -> Result<Self, CliError> {
        let current = std::env::current_dir().context("cannot find the current directory")?;
        let search = std::env::var_os("PATH");
        let requested = current.join(arguments.cwd.as_deref().unwrap_or(Path::new("")));
        let cwd = requested.canonicalize().map_err(|error| {
            CliError::Usage(format!("cannot use the directory {}: {error}", requested.display()))
        })?;
        let config = Config::read(&dirs.config)?;
        let arguments = config.fill_arguments(arguments);
        let agent = AgentCommand::from_arguments(&arguments, &config, search.as_ref())?;
        let servers = arguments.mcp.iter().map(|text| options::parse_mcp_server(text, search.as_ref()));
        let mcp_servers: Vec<_> = servers.collect::<Result<_, _>>()?;
        let mut settings = HostOptions::new(terminal_options()?);
        settings.capabilities = options::offered_capabilities(&arguments);
        settings.workspace.foreign_files = config.ignore_changes.clone();
        // Bowline's own agent performs operations that are not offered to it itself, and its MCP servers may write
        // files unseen.
        let offers_all =
            settings.capabilities.read && settings.capabilities.write && settings.capabilities.terminal;
        settings.writes_through_host_only = agent.is_own && offers_all && mcp_servers.is_empty();
        settings.preset = options::requested_preset(&arguments, agent.is_own);
        settings.rules = options::option_rules(&arguments)?;
        settings.additional_roots =
            arguments.add_dir.iter().map(|text| options::parse_root(text, &current)).collect();
        let mut roots = settings.additional_roots.clone();
        roots.push(RootSpec::writable(cwd.to_string_lossy()));
        settings.terminals.confinement =
            options::confinement(&arguments, &roots, ConfinementSupport::detect)?;
        if let Some(file) = &arguments.trace {
            let roots = roots.iter().filter_map(|root| Path::new(&root.path).canonicalize().ok());
            let trace = Arc::new(TraceRecorder::begin(&current.join(file), &roots.collect::<Vec<_>>())?);
            recorders.push(trace.recorder(TraceSide::Client, TraceSide::Agent));
        }
        settings.recorder =
            (!recorders.is_empty()).then(|| Arc::new(RecorderSet(recorders)) as Arc<dyn WireRecorder>);
        (settings.initialize_timeout, settings.quirk_mode) = (Some(START_TIMEOUT), quirk_mode());
        let policy = match &arguments.policy {
            None => dirs.policy_file(),
            Some(file) => {
                let file = current.join(file);
                file.canonicalize().map_err(|error| {
                    CliError::Usage(format!("cannot read the rules {}: {error}", file.display()))
                })?
            }
        };
        let host_paths = dirs.for_host(policy);
        let project = cwd.clone();
        let opening =
            bowline_task::spawn_blocking(move || Host::open(&project, &host_paths, front_end, settings));
        let names_rules = arguments.policy.is_some();
        let host = opening.await.context("the workspace cannot be opened")?.map_err(|error| match error {
            HostError::Policy(error) if names_rules => CliError::Usage(error.to_string()),
            HostError::Roots(error) => CliError::Usage(error.to_string()),
            error @ HostError::NotUtf8(_) => CliError::Usage(error.to_string()),
            HostError::InsideWorkspace(path) => CliError::Usage(format!(
                "{} lies inside the workspace, where an agent could change it: name a directory below with --cwd, or keep \
                 Bowline's own files elsewhere (XDG_STATE_HOME, XDG_DATA_HOME)",
                path.display()
            )),
            other => CliError::Failed(anyhow::anyhow!("{other}")),
        })?;
        for text in &arguments.open {
            open_document(&host, text, &current, &cwd)?;
        }
        let last_sessions =
            LastSessions::in_directory(&Workspace::journal_directory(&dirs.state, host.workspace().roots()));
        let options = SessionOptions { mcp_servers, ..SessionOptions::default() };
        Ok(Self {
            host,
            options,
            reopen_method: ReopenMethod::default(),
            agent,
            arguments,
            cwd,
            last_sessions,
        })
    }

    /// Returns the directory of the workspace.
    pub fn cwd(&self) -> &Path {
        &self.cwd
    }

    /// Starts the agent and opens the session that the arguments request: a new one, `last`, or one by its id.
    pub async fn start(&self) -> Result<LaunchedAgent, CliError> {
        let session = self.arguments.session.clone();
        self.start_with_session(session.as_deref()).await
    }

    /// Starts the agent and opens a session: a new one, `last`, or one by its id. Used after an agent has died, and to
    /// switch sessions.
    pub async fn start_with_session(&self, session: Option<&str>) -> Result<LaunchedAgent, CliError> {
        let program = self.agent.program(&self.cwd, std::env::vars_os())?;
        let spawned = self.host.spawn_supervised(program).await;
        let connection = spawned.map_err(start_error)?;
        match self.open_after_login(&connection, session).await {
            Ok(session) => Ok(LaunchedAgent { connection, session }),
            Err(error) => {
                let has_died = has_disconnected(&connection);
                let mut exit = connection.shutdown(ShutdownGrace::default()).await;
                if let Some(exit) = exit.as_mut().filter(|_| !has_died) {
                    // The exit status after a requested shutdown is meaningless.
                    exit.status = None;
                }
                Err(match error {
                    CliError::Failed(source) => with_agent_output(source, exit.as_ref()),
                    other => other,
                })
            }
        }
    }

    /// Opens a session. If the agent requires a login and the command line names a method, logs in first, once.
    async fn open_after_login(
        &self,
        connection: &Connection,
        session: Option<&str>,
    ) -> Result<HostSession, CliError> {
        let open = || async {
            let opened = tokio::time::timeout(START_TIMEOUT, self.open_session(connection, session)).await;
            opened.unwrap_or_else(|_| {
                let seconds = START_TIMEOUT.as_secs();
                Err(CliError::Failed(anyhow::anyhow!("the agent did not open a session within {seconds} s")))
            })
        };
        match open().await {
            Err(CliError::LoginRequired(login)) => {
                let agent = (self.agent.clone(), self.cwd.clone());
                login.log_in(connection, self.arguments.auth.as_deref(), agent).await?;
                open().await.map_err(|error| match error {
                    CliError::LoginRequired(login) => login.still_required(),
                    other => other,
                })
            }
            opened => opened,
        }
    }

    /// Prepares a login by the method that the user chose: a terminal method runs now, any other when a session is
    /// opened.
    pub async fn prepare_login(&mut self, login: &LoginRequired, method: AuthMethod) -> Result<(), CliError> {
        if let AuthMethod::Terminal(method) = &method {
            return login.run_in_terminal(method).await;
        }
        self.arguments.auth = Some(method.id().0.to_string());
        Ok(())
    }

    /// Remembers a session that receives a prompt as the agent's last one here.
    pub fn remember_session(&self, session: &HostSession) {
        // A session that cannot be remembered can still be named.
        self.last_sessions.remember(&self.agent.name, &session.id().0).ok();
    }

    async fn open_session(
        &self,
        connection: &Connection,
        session: Option<&str>,
    ) -> Result<HostSession, CliError> {
        let options = self.options.clone();
        let cwd = self.host.workspace().roots().cwd();
        let session = match session {
            None => {
                let opened = connection.new_session(options).await;
                opened.map_err(|error| {
                    self.unknown_model_error(&error).unwrap_or_else(|| session_open_error(connection, error))
                })?
            }
            Some("last") => {
                let id =
                    reopen::find_last_session(connection, cwd, &self.agent.name, &self.last_sessions).await?;
                reopen::reopen_session(connection, cwd, &id, self.reopen_method, options).await?
            }
            Some(id) => reopen::reopen_session(connection, cwd, id, self.reopen_method, options).await?,
        };
        if let Some(model) = &self.arguments.model {
            session_config::set_model(&session, model).await?;
        }
        if let Some(mode) = &self.arguments.mode {
            session_config::set_mode(&session, mode).await?;
        }
        Ok(session)
    }

    /// Returns an error for an unknown model of the command line, if Bowline's own agent reports one: it receives the
    /// name when it starts.
    fn unknown_model_error(&self, error: &HostError) -> Option<CliError> {
        let model = self.arguments.model.as_deref().filter(|_| self.agent.is_own)?;
        let HostError::Call(CallError::ErrorResponse(refusal)) = error else { return None };
        let is_unknown = refusal.message.starts_with(&format!("there is no model {model}: "));
        is_unknown.then(|| CliError::Usage(quote(&refusal.message)))
    }
}

impl LaunchedAgent {
    /// Ends the agent and all its processes.
    pub async fn shut_down(self, grace: ShutdownGrace) -> Option<AgentExit> {
        self.connection.shutdown(grace).await
    }
}

/// Explains why a session was not opened.
pub(super) fn session_open_error(connection: &Connection, error: HostError) -> CliError {
    match error {
        HostError::Call(CallError::ErrorResponse(refusal)) if is_login_required(&refusal) => {
            let methods = &connection.initialize_response().auth_methods;
            CliError::LoginRequired(LoginRequired::new(describe_refusal(&refusal), methods))
        }
        HostError::Call(CallError::ErrorResponse(refusal)) => CliError::Failed(anyhow::anyhow!(
            "the agent did not open a session: {}",
            describe_refusal(&refusal)
        )),
        other => CliError::Failed(anyhow::anyhow!("the agent did not open a session: {other}")),
    }
}

/// Explains why a turn failed.
pub fn prompt_error(initialized: &InitializeResponse, error: HostError) -> CliError {
    match error {
        HostError::Call(CallError::ErrorResponse(refusal)) if is_login_required(&refusal) => {
            CliError::Failed(anyhow::anyhow!(
                "{}",
                describe_login(&initialized.auth_methods, &describe_refusal(&refusal))
            ))
        }
        HostError::Call(CallError::ErrorResponse(refusal)) => {
            CliError::Failed(anyhow::anyhow!("the agent failed: {}", describe_refusal(&refusal)))
        }
        other => CliError::Failed(anyhow::anyhow!("the turn failed: {other}")),
    }
}

/// Returns whether an agent requires a login. Many use this code for other errors, too, most often a provider's limits.
fn is_login_required(refusal: &bowline_protocol::schema::v1::Error) -> bool {
    const LIMITS: [&str; 7] =
        ["rate limit", "rate_limit", "ratelimit", "quota", "too many requests", "429", "overloaded"];
    let text = describe_refusal(refusal).to_lowercase();
    i32::from(refusal.code) == AUTH_REQUIRED && !LIMITS.iter().any(|limit| text.contains(limit))
}

/// Returns the full text of an agent's error.
fn describe_refusal(refusal: &bowline_protocol::schema::v1::Error) -> String {
    let detail = match &refusal.data {
        None | Some(serde_json::Value::Null) => String::new(),
        Some(serde_json::Value::String(text)) => {
            format!(" ({})", display::escape_line(text, MAX_ERROR_BYTES))
        }
        Some(data) => format!(" ({})", display::escape_line(&data.to_string(), MAX_ERROR_BYTES)),
    };
    format!("{}{detail}", display::escape_line(&refusal.message, MAX_ERROR_BYTES))
}

/// Describes how to log in.
fn describe_login(methods: &[AuthMethod], message: &str) -> String {
    let method = |method: &AuthMethod| {
        let (name, description) = match method {
            AuthMethod::Terminal(method) => (&method.name, &method.description),
            AuthMethod::Agent(method) => (&method.name, &method.description),
            // A method of a later protocol version has at least an id.
            other => return quote(&other.id().0),
        };
        match description {
            Some(description) => format!("{} ({})", quote(name), quote(description)),
            None => quote(name),
        }
    };
    let offered: Vec<String> = methods.iter().map(method).collect();
    match offered.as_slice() {
        [] => format!(
            "the agent wants you to log in first, and does not say how ({message}): start its own program for that"
        ),
        _ => format!(
            "the agent wants you to log in first ({message}): start its own program for that, or set its key. It offers: {}",
            offered.join("; ")
        ),
    }
}

fn start_error(error: HostError) -> CliError {
    match error {
        HostError::HandshakeFailed { why: CallError::Closed, exit } => {
            let message = "the agent ended before it answered: does it speak ACP?";
            with_agent_output(anyhow::anyhow!(message), Some(&exit))
        }
        HostError::HandshakeFailed { why: cause, exit } => {
            let is_foreign =
                matches!(&cause, CallError::ErrorResponse(error) if error.code == ErrorCode::MethodNotFound);
            let hint = if is_foreign { ": does it speak ACP?" } else { "" };
            let cause = match &cause {
                CallError::ErrorResponse(refusal) if !is_foreign => {
                    anyhow::anyhow!("{}", describe_refusal(refusal))
                }
                other => anyhow::anyhow!("{}{hint}", quote(&other.to_string())),
            };
            let exit = AgentExit { status: None, ..*exit };
            with_agent_output(cause.context("the agent did not start"), Some(&exit))
        }
        HostError::InitializeTimeout { seconds, exit } => {
            let message = format!("the agent did not answer within {seconds} s: does it speak ACP?");
            with_agent_output(anyhow::anyhow!(message), exit.as_deref())
        }
        HostError::Supervise(error) => spawn_error(error),
        // Each of these errors includes its cause.
        other => CliError::Failed(anyhow::anyhow!("{other}")),
    }
}

/// Explains why an agent was not started.
pub fn spawn_error(error: TerminalError) -> CliError {
    match error {
        TerminalError::ProgramNotFound(program) if Path::new(&program).exists() => CliError::Usage(format!(
            "cannot start the agent {}: there is no program that its first line names",
            quote(&program)
        )),
        TerminalError::ProgramNotFound(program) => {
            CliError::Usage(format!("cannot start the agent {}: there is no such program", quote(&program)))
        }
        TerminalError::NotExecutable(program) => CliError::Usage(format!(
            "cannot start the agent {}: it is no program, or may not be run",
            quote(&program)
        )),
        TerminalError::System { program, why } => {
            CliError::Failed(anyhow::anyhow!("cannot start the agent {}: {}", quote(&program), quote(&why)))
        }
        other => CliError::Failed(anyhow::anyhow!("cannot start the agent: {other}")),
    }
}

/// Returns whether an agent has closed its connection.
pub fn has_disconnected(connection: &Connection) -> bool {
    connection.agent().caller().closed().now_or_never().is_some()
}

/// Adds how an agent ended, and its last output, escaped.
pub fn with_agent_output(error: anyhow::Error, exit: Option<&AgentExit>) -> CliError {
    let Some(exit) = exit else { return CliError::Failed(error) };
    let mut text = format!("{error:#}");
    if let Some(status) = exit.status.filter(|status| !status.success()) {
        text += &format!("; it ended with {status}");
    }
    let mut quote = |heading: &str, output: &str| {
        let lines: Vec<&str> = output.trim_end().lines().collect();
        let last = &lines[lines.len().saturating_sub(MAX_OUTPUT_LINES)..];
        if !last.is_empty() {
            text += heading;
            for line in last {
                text += &format!("\n  {}", display::escape_line(line, 500));
            }
        }
    };
    quote("; its last words:", &exit.stderr);
    quote("; it wrote to stdout, where only messages belong:", &exit.stdout);
    CliError::Failed(anyhow::anyhow!(text))
}

/// Returns how this program starts itself as a supervisor.
pub fn own_supervisor() -> anyhow::Result<SupervisorProgram> {
    let program = std::env::current_exe().context("cannot find the bowline program")?;
    Ok(SupervisorProgram { program, args: vec![SUPERVISOR_COMMAND.into()] })
}

/// Returns the options of commands that run in this program's environment.
pub fn terminal_options() -> anyhow::Result<terminals::TerminalOptions> {
    let mut settings = terminals::TerminalOptions::with_environment(own_supervisor()?, std::env::vars_os());
    settings.temp_directory = std::env::temp_dir();
    Ok(settings)
}

/// Opens the document of an option `--open`, with its unsaved text if given.
pub fn open_document(host: &Host, text: &str, current: &Path, cwd: &Path) -> Result<(), CliError> {
    let (file, contents) = options::parse_open_document(text, current, cwd)
        .map_err(|error| CliError::Usage(format!("{error:#}")))?;
    let path = file.to_string_lossy();
    let open_error = |error| CliError::Usage(format!("cannot open {}: {error}", quote(&path)));
    let document = host.workspace().open_document(&path).map_err(open_error)?;
    if let Some(contents) = contents {
        host.workspace().change_document(&path, contents, document.revision).map_err(open_error)?;
    }
    Ok(())
}
