//! Opening a workspace, starting an agent for it, and opening a session: once, and again when the agent has died.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use anyhow::Context as _;
use bowline_host::{Connection, FrontEnd, Host, HostError, Session, SessionOptions, Settings};
use bowline_state::display;
use bowline_state::failure::quote;
use bowline_state::mode::Mode;
use bowline_state::schema::v1::{AuthMethod, ErrorCode, InitializeResponse};
use bowline_state::trace::Side;
use bowline_wire::{AgentExit, CallError, Grace, Tap};
use bowline_workspace::approvals::Fallback;
use bowline_workspace::roots::RootSpec;
use bowline_workspace::terminals::supervisor::Confinable;
use bowline_workspace::terminals::{self, Supervisor, TerminalError};
use bowline_workspace::workspace::Workspace;
use futures_util::FutureExt as _;

use super::agents::AgentCommand;
use super::config::Config;
use super::last::LastSessions;
use super::login::LoginRequired;
use super::reopen::{self, Reopen};
use super::trace::{Taps, Trace};
use super::{ClientArguments, options, setting};
use crate::SUPERVISOR;
use crate::ending::Ending;
use crate::places::Places;
use crate::quirks::quirk_mode;

/// How long an agent may take to start, and to open a session. Some load for long the first time.
const START: Duration = Duration::from_secs(60);

/// So many lines of what an agent wrote to stderr are shown when it failed.
const LAST_LINES: usize = 15;

/// So much of an agent's error is shown, in bytes: what is longer is no sentence.
const MAX_TOLD: usize = 4096;

/// The code of an error that says that one has to log in.
const AUTH_REQUIRED: i32 = -32000;

/// A workspace that is open, and how to start the agent that it is served to.
#[derive(Debug)]
pub(crate) struct Launch {
    /// The workspace, its rules and its log.
    pub(crate) host: Host,
    /// What sessions are opened with.
    pub(crate) options: SessionOptions,
    /// How sessions of before are opened.
    pub(crate) reopen: Reopen,
    /// The agent.
    pub(crate) agent: AgentCommand,
    arguments: ClientArguments,
    cwd: PathBuf,
    last: LastSessions,
}

/// An agent that runs, and the session that is open with it.
#[derive(Debug)]
pub(crate) struct Client {
    /// The connection to the agent.
    pub(crate) connection: Connection,
    /// The session.
    pub(crate) session: Session,
}

impl Launch {
    /// Sets what holds where no rule matches, if the agent is Bowline's own: its modes are words for exactly that.
    pub(crate) fn set_level(&self, mode: &str) {
        if let Some(mode) = Mode::of(mode).filter(|_| self.agent.is_own) {
            self.host.approvals().set_fallback(Fallback::Unless(mode.preset()));
        }
    }

    /// Opens the workspace, with the documents that are open in it.
    #[allow(dead_code, reason = "not every command listens to the messages")]
    pub(crate) async fn open(
        arguments: ClientArguments,
        places: &Places,
        front_end: Arc<dyn FrontEnd>,
    ) -> Result<Self, Ending> {
        Self::open_with(arguments, places, front_end, Vec::new()).await
    }

    /// Does the same, with somebody who hears every message.
    pub(crate) async fn open_with(
        arguments: ClientArguments,
        places: &Places,
        front_end: Arc<dyn FrontEnd>,
        mut taps: Vec<Arc<dyn Tap>>,
    ) -> Result<Self, Ending> {
        let current = std::env::current_dir().context("cannot find the current directory")?;
        let search = std::env::var_os("PATH");
        let wanted = current.join(arguments.cwd.as_deref().unwrap_or(Path::new("")));
        let cwd = wanted.canonicalize().map_err(|error| {
            Ending::Usage(format!("cannot use the directory {}: {error}", wanted.display()))
        })?;
        let config = Config::read(&places.config)?;
        let arguments = config.complete(arguments);
        let agent = AgentCommand::of(&arguments, &config, search.as_ref())?;
        let servers = arguments.mcp.iter().map(|text| options::mcp_server(text, search.as_ref()));
        let mcp_servers: Vec<_> = servers.collect::<Result<_, _>>()?;
        let mut settings = Settings::new(terminals()?);
        settings.offer = options::offer(&arguments);
        settings.workspace.foreign_files = config.ignore_changes.clone();
        // Its own agent does by itself what is not offered to it, and what its MCP servers do nobody knows.
        let offers_all = settings.offer.read && settings.offer.write && settings.offer.terminal;
        settings.writes_here_only = agent.is_own && offers_all && mcp_servers.is_empty();
        settings.preset = options::level(&arguments, agent.is_own);
        settings.rules = options::rules(&arguments)?;
        settings.more_roots =
            arguments.add_dir.iter().map(|text| options::directory(text, &current)).collect();
        let mut roots = settings.more_roots.clone();
        roots.push(RootSpec::writable(cwd.to_string_lossy()));
        settings.terminals.confinement =
            options::confinement(&arguments, &roots, Confinable::of_this_system)?;
        if let Some(file) = &arguments.trace {
            let roots = roots.iter().filter_map(|root| Path::new(&root.path).canonicalize().ok());
            let trace = Arc::new(Trace::begin(&current.join(file), &roots.collect::<Vec<_>>())?);
            taps.push(trace.between(Side::Client, Side::Agent));
        }
        settings.tap = (!taps.is_empty()).then(|| Arc::new(Taps(taps)) as Arc<dyn Tap>);
        (settings.greeting, settings.quirks) = (Some(START), quirk_mode());
        let policy = match &arguments.policy {
            None => places.policy(),
            Some(file) => {
                let file = current.join(file);
                file.canonicalize().map_err(|error| {
                    Ending::Usage(format!("cannot read the rules {}: {error}", file.display()))
                })?
            }
        };
        let kept = places.for_host(policy);
        let project = cwd.clone();
        let opening = tokio::task::spawn_blocking(move || Host::open(&project, &kept, front_end, settings));
        let names_rules = arguments.policy.is_some();
        let host = opening.await.context("the workspace cannot be opened")?.map_err(|error| match error {
            HostError::Policy(error) if names_rules => Ending::Usage(error.to_string()),
            HostError::Roots(error) => Ending::Usage(error.to_string()),
            error @ HostError::NotUtf8(_) => Ending::Usage(error.to_string()),
            HostError::InsideWorkspace(own) => Ending::Usage(format!(
                "{} lies inside the workspace, where an agent could change it: name a directory below with --cwd, or keep \
                 Bowline's own files elsewhere (XDG_STATE_HOME, XDG_DATA_HOME)",
                own.display()
            )),
            other => Ending::Failed(anyhow::anyhow!("{other}")),
        })?;
        for text in &arguments.open {
            open_document(&host, text, &current, &cwd)?;
        }
        let last = LastSessions::in_directory(&Workspace::journal_directory(
            &places.state,
            host.workspace().roots(),
        ));
        let options = SessionOptions { mcp_servers, ..SessionOptions::default() };
        Ok(Self { host, options, reopen: Reopen::default(), agent, arguments, cwd, last })
    }

    /// Returns the directory of the workspace.
    pub(crate) fn cwd(&self) -> &Path {
        &self.cwd
    }

    /// Starts the agent and opens the session that the arguments ask for: a new one, `last`, or one by its id.
    pub(crate) async fn start(&self) -> Result<Client, Ending> {
        let session = self.arguments.session.clone();
        self.start_with(session.as_deref()).await
    }

    /// Starts the agent and opens a session: a new one, `last`, or one by its id. For an agent that has died, and for
    /// going from one session to another.
    pub(crate) async fn start_with(&self, session: Option<&str>) -> Result<Client, Ending> {
        let program = self.agent.program(&self.cwd, std::env::vars_os())?;
        let spawned = self.host.spawn_supervised(program).await;
        let connection = spawned.map_err(not_started)?;
        match self.open_after_login(&connection, session).await {
            Ok(session) => Ok(Client { connection, session }),
            Err(ending) => {
                let has_died = has_ended(&connection);
                let mut exit = connection.shutdown(Grace::default()).await;
                if let Some(exit) = exit.as_mut().filter(|_| !has_died) {
                    // How it ended when it was told to says nothing.
                    exit.status = None;
                }
                Err(match ending {
                    Ending::Failed(why) => with_last_words(why, exit.as_ref()),
                    other => other,
                })
            }
        }
    }

    /// Opens a session. If the agent wants a login first, and the command line says how, that is done, once.
    async fn open_after_login(
        &self,
        connection: &Connection,
        session: Option<&str>,
    ) -> Result<Session, Ending> {
        let open = || async {
            let opened = tokio::time::timeout(START, self.open_session(connection, session)).await;
            opened.unwrap_or_else(|_| {
                let seconds = START.as_secs();
                Err(Ending::Failed(anyhow::anyhow!("the agent did not open a session within {seconds} s")))
            })
        };
        match open().await {
            Err(Ending::LoginRequired(wanted)) => {
                let agent = (self.agent.clone(), self.cwd.clone());
                wanted.log_in(connection, self.arguments.auth.as_deref(), agent).await?;
                open().await.map_err(|ending| match ending {
                    Ending::LoginRequired(wanted) => wanted.again(),
                    other => other,
                })
            }
            opened => opened,
        }
    }

    /// Prepares to log in by a method that a person chose: one for a terminal is run now, another when a session is opened.
    pub(crate) async fn log_in(&mut self, wanted: &LoginRequired, method: AuthMethod) -> Result<(), Ending> {
        if let AuthMethod::Terminal(method) = &method {
            return wanted.run_in_terminal(method).await;
        }
        self.arguments.auth = Some(method.id().0.to_string());
        Ok(())
    }

    /// Remembers a session in which something is said as the agent's last one here.
    pub(crate) fn remember(&self, session: &Session) {
        // Who cannot be remembered can still be named.
        self.last.remember(&self.agent.name, &session.id().0).ok();
    }

    async fn open_session(&self, connection: &Connection, session: Option<&str>) -> Result<Session, Ending> {
        let options = self.options.clone();
        let cwd = self.host.workspace().roots().cwd();
        let session = match session {
            None => {
                let opened = connection.new_session(options).await;
                opened.map_err(|error| {
                    self.wrong_model(&error).unwrap_or_else(|| failed_to_open(connection, error))
                })?
            }
            Some("last") => {
                let id = reopen::last(connection, cwd, &self.agent.name, &self.last).await?;
                reopen::open(connection, cwd, &id, self.reopen, options).await?
            }
            Some(id) => reopen::open(connection, cwd, id, self.reopen, options).await?,
        };
        if let Some(model) = &self.arguments.model {
            setting::model(&session, model).await?;
        }
        if let Some(mode) = &self.arguments.mode {
            setting::mode(&session, mode).await?;
        }
        Ok(session)
    }

    /// Returns that the command line names no model, if Bowline's own agent says so: it is told the name when it starts.
    fn wrong_model(&self, error: &HostError) -> Option<Ending> {
        let model = self.arguments.model.as_deref().filter(|_| self.agent.is_own)?;
        let HostError::Call(CallError::Refused(refusal)) = error else { return None };
        let is_it = refusal.message.starts_with(&format!("there is no model {model}: "));
        is_it.then(|| Ending::Usage(quote(&refusal.message)))
    }
}

impl Client {
    /// Ends the agent and all it runs.
    pub(crate) async fn end(self, grace: Grace) -> Option<AgentExit> {
        self.connection.shutdown(grace).await
    }
}

/// Says why a session was not opened.
pub(super) fn failed_to_open(connection: &Connection, error: HostError) -> Ending {
    match error {
        HostError::Call(CallError::Refused(refusal)) if wants_login(&refusal) => {
            let methods = &connection.initialized().auth_methods;
            Ending::LoginRequired(LoginRequired::new(told(&refusal), methods))
        }
        HostError::Call(CallError::Refused(refusal)) => {
            Ending::Failed(anyhow::anyhow!("the agent did not open a session: {}", told(&refusal)))
        }
        other => Ending::Failed(anyhow::anyhow!("the agent did not open a session: {other}")),
    }
}

/// Says why a turn failed.
pub(crate) fn failed_to_prompt(initialized: &InitializeResponse, error: HostError) -> Ending {
    match error {
        HostError::Call(CallError::Refused(refusal)) if wants_login(&refusal) => {
            Ending::Failed(anyhow::anyhow!("{}", log_in(&initialized.auth_methods, &told(&refusal))))
        }
        HostError::Call(CallError::Refused(refusal)) => {
            Ending::Failed(anyhow::anyhow!("the agent failed: {}", told(&refusal)))
        }
        other => Ending::Failed(anyhow::anyhow!("the turn failed: {other}")),
    }
}

/// Says whether an agent wants the user to log in. Many use the code for that for anything, a provider's limits above all.
fn wants_login(refusal: &bowline_state::schema::v1::Error) -> bool {
    const LIMITS: [&str; 7] =
        ["rate limit", "rate_limit", "ratelimit", "quota", "too many requests", "429", "overloaded"];
    let text = told(refusal).to_lowercase();
    i32::from(refusal.code) == AUTH_REQUIRED && !LIMITS.iter().any(|limit| text.contains(limit))
}

/// Returns what an agent's error says, all of it.
fn told(refusal: &bowline_state::schema::v1::Error) -> String {
    let detail = match &refusal.data {
        None | Some(serde_json::Value::Null) => String::new(),
        Some(serde_json::Value::String(text)) => format!(" ({})", display::line(text, MAX_TOLD)),
        Some(data) => format!(" ({})", display::line(&data.to_string(), MAX_TOLD)),
    };
    format!("{}{detail}", display::line(&refusal.message, MAX_TOLD))
}

/// Says how to log in.
fn log_in(methods: &[AuthMethod], said: &str) -> String {
    let method = |method: &AuthMethod| {
        let (name, description) = match method {
            AuthMethod::Terminal(method) => (&method.name, &method.description),
            AuthMethod::Agent(method) => (&method.name, &method.description),
            // A way of a later protocol has an id at least.
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
            "the agent wants you to log in first, and does not say how ({said}): start its own program for that"
        ),
        _ => format!(
            "the agent wants you to log in first ({said}): start its own program for that, or set its key. It offers: {}",
            offered.join("; ")
        ),
    }
}

fn not_started(error: HostError) -> Ending {
    match error {
        HostError::NotMet { why: CallError::Closed, exit } => {
            let why = "the agent ended before it answered: is it one that speaks ACP?";
            with_last_words(anyhow::anyhow!(why), Some(&exit))
        }
        HostError::NotMet { why, exit } => {
            let is_foreign =
                matches!(&why, CallError::Refused(error) if error.code == ErrorCode::MethodNotFound);
            let hint = if is_foreign { ": is it one that speaks ACP?" } else { "" };
            let why = match &why {
                CallError::Refused(refusal) if !is_foreign => anyhow::anyhow!("{}", told(refusal)),
                other => anyhow::anyhow!("{}{hint}", quote(&other.to_string())),
            };
            let exit = AgentExit { status: None, ..*exit };
            with_last_words(why.context("the agent did not start"), Some(&exit))
        }
        HostError::Silent { seconds, exit } => {
            let why = format!("the agent did not answer within {seconds} s: is it one that speaks ACP?");
            with_last_words(anyhow::anyhow!(why), exit.as_deref())
        }
        HostError::Supervise(error) => cannot_start(error),
        // Each of these has its cause in its own words.
        other => Ending::Failed(anyhow::anyhow!("{other}")),
    }
}

/// Says why an agent was not started.
pub(crate) fn cannot_start(error: TerminalError) -> Ending {
    match error {
        TerminalError::NoProgram(program) if Path::new(&program).exists() => Ending::Usage(format!(
            "cannot start the agent {}: there is no program that its first line names",
            quote(&program)
        )),
        TerminalError::NoProgram(program) => {
            Ending::Usage(format!("cannot start the agent {}: there is no such program", quote(&program)))
        }
        TerminalError::NotExecutable(program) => Ending::Usage(format!(
            "cannot start the agent {}: it is no program, or may not be run",
            quote(&program)
        )),
        TerminalError::System { program, why } => {
            Ending::Failed(anyhow::anyhow!("cannot start the agent {}: {}", quote(&program), quote(&why)))
        }
        other => Ending::Failed(anyhow::anyhow!("cannot start the agent: {other}")),
    }
}

/// Says whether an agent has closed its connection.
pub(crate) fn has_ended(connection: &Connection) -> bool {
    connection.agent().caller().closed().now_or_never().is_some()
}

/// Adds how an agent ended, and what it wrote last, safe to show.
pub(crate) fn with_last_words(why: anyhow::Error, exit: Option<&AgentExit>) -> Ending {
    let Some(exit) = exit else { return Ending::Failed(why) };
    let mut text = format!("{why:#}");
    if let Some(status) = exit.status.filter(|status| !status.success()) {
        text += &format!("; it ended with {status}");
    }
    let mut quote = |what: &str, written: &str| {
        let lines: Vec<&str> = written.trim_end().lines().collect();
        let last = &lines[lines.len().saturating_sub(LAST_LINES)..];
        if !last.is_empty() {
            text += what;
            for line in last {
                text += &format!("\n  {}", display::line(line, 500));
            }
        }
    };
    quote("; its last words:", &exit.stderr);
    quote("; it wrote to stdout, where only messages belong:", &exit.stdout);
    Ending::Failed(anyhow::anyhow!(text))
}

fn terminals() -> anyhow::Result<terminals::Settings> {
    let program = std::env::current_exe().context("cannot find the bowline program")?;
    let supervisor = Supervisor { program, args: vec![SUPERVISOR.into()] };
    let mut settings = terminals::Settings::inheriting(supervisor, std::env::vars_os());
    settings.temporary = std::env::temp_dir();
    Ok(settings)
}

fn open_document(host: &Host, text: &str, current: &Path, cwd: &Path) -> Result<(), Ending> {
    let (file, shown) =
        options::opened(text, current, cwd).map_err(|error| Ending::Usage(format!("{error:#}")))?;
    let path = file.to_string_lossy();
    let cannot = |error| Ending::Usage(format!("cannot open {}: {error}", quote(&path)));
    let document = host.workspace().open_document(&path).map_err(cannot)?;
    if let Some(shown) = shown {
        host.workspace().change_document(&path, shown, document.revision).map_err(cannot)?;
    }
    Ok(())
}
