//! Starting the server's agents.

use std::any::Any;
use std::ffi::{OsStr, OsString};
use std::path::{Path, PathBuf};

use bowline_protocol::terminal::CommandExit;
use bowline_serve::{AgentLauncher, AgentStreams};
use bowline_text::display::quote;
use bowline_workspace::terminals::{ProgramStreams, SupervisedProgram, SupervisorProgram};
use futures_util::future::BoxFuture;
use tokio::io::{AsyncBufReadExt as _, AsyncReadExt as _, BufReader};
use tokio::sync::oneshot;

use super::store::STORE_VARIABLE;
use crate::agent::SESSION_STORE_VARIABLE;
use bowline_client::agents::{AgentCommand, OWN_AGENT_NAME};
use bowline_client::error::CliError;
use bowline_client::launch::own_supervisor;

/// The longest line of an agent's stderr in the log, in bytes.
const MAX_LOG_LINE: u64 = 4096;

/// The agents that a server offers.
#[derive(Debug, Default)]
pub(crate) struct OfferedAgents {
    /// The command of the usual one; empty for Bowline's own.
    pub(crate) usual: Vec<OsString>,
    /// Those that a new session can ask for by name.
    pub(crate) named: Vec<AgentCommand>,
    /// Whether a new session can also ask for Bowline's own.
    pub(crate) has_own: bool,
}

impl OfferedAgents {
    /// Returns the names that a new session can choose from. Bowline's own is not among them if it is the usual one.
    pub(crate) fn names(&self) -> Vec<String> {
        let own = (self.has_own && !self.usual.is_empty()).then(|| OWN_AGENT_NAME.to_owned());
        own.into_iter().chain(self.named.iter().map(|agent| agent.name.clone())).collect()
    }
}

/// The command that starts an agent, and whether that is Bowline's own.
struct LaunchCommand {
    command: AgentCommand,
    is_own: bool,
}

/// Starts the agents' programs for each principal.
#[derive(Debug)]
pub(super) struct ProgramLauncher {
    program: OsString,
    agents: OfferedAgents,
    directory: PathBuf,
    supervisor: SupervisorProgram,
    // The address of the database for the sessions of Bowline's own agent.
    session_database: Option<OsString>,
}

impl ProgramLauncher {
    /// Returns the launcher of agents. One that is not Bowline's own gets this machine's files and terminals from
    /// `bowline proxy`, where its client has none.
    pub(super) fn new(
        agents: OfferedAgents,
        directory: &Path,
        session_database: Option<OsString>,
    ) -> Result<Self, CliError> {
        // Otherwise only the first client would find out.
        if let Some(program) = agents.usual.first().filter(|program| !is_program(program)) {
            let program = program.to_string_lossy();
            return Err(CliError::Usage(format!(
                "cannot start the agent {program}: there is no such program"
            )));
        }
        let supervisor = own_supervisor()?;
        let program = supervisor.program.clone().into_os_string();
        Ok(Self { program, agents, directory: directory.to_owned(), supervisor, session_database })
    }

    /// Returns the command of an agent for a principal, which the audit log names; `None` without such an agent.
    fn command_for(&self, principal: &str, name: Option<&str>) -> Option<LaunchCommand> {
        let words = |own: &[&str]| -> Vec<OsString> {
            let mut words = vec![self.program.clone()];
            words.extend(own.iter().chain(&["--principal", principal]).map(OsString::from));
            words
        };
        let proxied = |agent: &AgentCommand| {
            let mut words = words(&["proxy", "--host"]);
            words.push("--".into());
            LaunchCommand { command: agent.through(&words), is_own: false }
        };
        let is_own = match name {
            None => self.agents.usual.is_empty(),
            Some(name) => self.agents.has_own && name == OWN_AGENT_NAME,
        };
        if is_own {
            // Where the client has no terminals, Bowline's agent runs commands here, after a question.
            let command = AgentCommand::from_words(&words(&["agent", "--shell"]));
            return Some(LaunchCommand { command, is_own });
        }
        match name {
            None => Some(proxied(&AgentCommand::from_words(&self.agents.usual))),
            Some(name) => self.agents.named.iter().find(|agent| agent.name == name).map(proxied),
        }
    }
}

impl AgentLauncher for ProgramLauncher {
    fn launch(&self, principal: &str, agent: Option<&str>) -> BoxFuture<'_, Result<AgentStreams, String>> {
        let name = principal.to_owned();
        let found = self.command_for(principal, agent).ok_or_else(|| {
            format!("this server does not offer the agent {}", quote(agent.unwrap_or_default()))
        });
        Box::pin(async move {
            let LaunchCommand { command, is_own } = found?;
            // Another agent has no business in the store, whose address may hold a password.
            let database = self.session_database.clone().filter(|_| is_own);
            let environment = std::env::vars_os()
                .filter(|(name, _)| name != STORE_VARIABLE && name != SESSION_STORE_VARIABLE)
                .chain(database.map(|url| (SESSION_STORE_VARIABLE.into(), url)));
            let program = command.program(&self.directory, environment);
            let program = program.map_err(|error| error.to_string())?;
            let started = SupervisedProgram::start_with_piped_input(&self.supervisor, program).await;
            let (mut process, ProgramStreams { stdio, stderr }, writer) =
                started.map_err(|error| format!("cannot start the agent: {error}"))?;
            tracing::info!(principal = name, "started an agent");
            bowline_task::spawn(log_lines(name, stderr));
            // The process ends when the server drops its handle, or by itself.
            let (dropped, is_dropped) = oneshot::channel::<()>();
            let (ended, end) = oneshot::channel();
            bowline_task::spawn(async move {
                tokio::select! {
                    exit = process.wait() => drop(ended.send(describe(exit))),
                    _ = is_dropped => {}
                }
                process.stop().await;
            });
            Ok(AgentStreams {
                reader: Box::new(stdio),
                writer: Box::new(writer),
                exit: Box::pin(async move { end.await.unwrap_or_else(|_| describe(None)) }),
                process: Box::new(dropped) as Box<dyn Any + Send>,
            })
        })
    }
}

/// Returns whether the first word of a command names a program. A relative path may name one in a session's directory.
fn is_program(word: &OsStr) -> bool {
    let path = Path::new(word);
    if path.components().count() != 1 || path.is_absolute() {
        return !path.is_absolute() || path.is_file();
    }
    let directories = std::env::var_os("PATH").unwrap_or_default();
    std::env::split_paths(&directories).any(|directory| directory.join(path).is_file())
}

/// Describes how an agent ended, for its clients.
fn describe(exit: Option<CommandExit>) -> String {
    match exit {
        Some(CommandExit::Code(code)) => {
            format!("the agent ended with exit code {code}; the session can be opened again")
        }
        Some(CommandExit::Signal(name)) => {
            format!("the agent was ended by {name}; the session can be opened again")
        }
        None => "the agent ended; the session can be opened again".to_owned(),
    }
}

/// Copies an agent's stderr to the log.
async fn log_lines(principal: String, stderr: impl tokio::io::AsyncRead + Unpin) {
    let mut lines = BufReader::new(stderr);
    loop {
        let mut line = Vec::new();
        match (&mut lines).take(MAX_LOG_LINE).read_until(b'\n', &mut line).await {
            Ok(read) if read > 0 => {
                tracing::info!(principal, agent = %String::from_utf8_lossy(&line).trim_end(), "stderr");
            }
            _ => return,
        }
    }
}
