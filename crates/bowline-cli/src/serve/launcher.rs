//! Starting the server's agents.

use std::any::Any;
use std::ffi::{OsStr, OsString};
use std::path::{Path, PathBuf};

use anyhow::Context as _;
use bowline_protocol::terminal::CommandExit;
use bowline_serve::{AgentLauncher, AgentStreams};
use bowline_workspace::terminals::{ProgramStreams, SupervisedProgram, SupervisorProgram};
use futures_util::future::BoxFuture;
use tokio::io::{AsyncBufReadExt as _, AsyncReadExt as _, BufReader};
use tokio::sync::oneshot;

use super::store::STORE_VARIABLE;
use crate::agent::SESSION_STORE_VARIABLE;
use bowline_client::agents::AgentCommand;
use bowline_client::error::CliError;
use bowline_client::launch::SUPERVISOR_COMMAND;

/// The longest line of an agent's stderr in the log, in bytes.
const MAX_LOG_LINE: u64 = 4096;

/// Starts the agent's program for each principal.
#[derive(Debug)]
pub(super) struct ProgramLauncher {
    program: OsString,
    // The other agent's command; empty for Bowline's own.
    agent: Vec<OsString>,
    directory: PathBuf,
    supervisor: SupervisorProgram,
    // The address of the database for the sessions of Bowline's own agent.
    session_database: Option<OsString>,
}

impl ProgramLauncher {
    /// Returns the launcher of a command, or without one that of Bowline's own agent. Another agent gets this machine's
    /// files and terminals from `bowline proxy`, where its client has none.
    pub(super) fn new(
        agent: &[OsString],
        directory: &Path,
        session_database: Option<OsString>,
    ) -> Result<Self, CliError> {
        // Otherwise only the first client would find out.
        if let Some(program) = agent.first().filter(|program| !is_program(program)) {
            let program = program.to_string_lossy();
            return Err(CliError::Usage(format!(
                "cannot start the agent {program}: there is no such program"
            )));
        }
        let own = std::env::current_exe().context("cannot find the bowline program")?;
        let supervisor = SupervisorProgram { program: own.clone(), args: vec![SUPERVISOR_COMMAND.into()] };
        let (program, agent) = (own.into_os_string(), agent.to_vec());
        let session_database = session_database.filter(|_| agent.is_empty());
        Ok(Self { program, agent, directory: directory.to_owned(), supervisor, session_database })
    }

    /// Returns the command for a principal, which the audit log names.
    fn command_for(&self, principal: &str) -> AgentCommand {
        // Where the client has no terminals, Bowline's agent runs commands here, after a question.
        let own: &[&str] = if self.agent.is_empty() { &["agent", "--shell"] } else { &["proxy", "--host"] };
        let mut words = vec![self.program.clone()];
        words.extend(own.iter().chain(&["--principal", principal]).map(OsString::from));
        if !self.agent.is_empty() {
            words.push("--".into());
            words.extend(self.agent.iter().cloned());
        }
        AgentCommand::from_words(&words)
    }
}

impl AgentLauncher for ProgramLauncher {
    fn launch(&self, principal: &str) -> BoxFuture<'_, Result<AgentStreams, String>> {
        let name = principal.to_owned();
        Box::pin(async move {
            // Another agent has no business in the store, whose address may hold a password.
            let environment = std::env::vars_os()
                .filter(|(name, _)| name != STORE_VARIABLE && name != SESSION_STORE_VARIABLE)
                .chain(self.session_database.clone().map(|url| (SESSION_STORE_VARIABLE.into(), url)));
            let program = self.command_for(&name).program(&self.directory, environment);
            let program = program.map_err(|error| error.to_string())?;
            let started = SupervisedProgram::start_with_piped_input(&self.supervisor, program).await;
            let (mut process, ProgramStreams { stdio, stderr }, writer) =
                started.map_err(|error| format!("cannot start the agent: {error}"))?;
            tracing::info!(principal = name, "started an agent");
            tokio::spawn(log_lines(name, stderr));
            // The process ends when the server drops its handle, or by itself.
            let (dropped, is_dropped) = oneshot::channel::<()>();
            let (ended, end) = oneshot::channel();
            tokio::spawn(async move {
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
