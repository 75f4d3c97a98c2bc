//! The process of an agent that is looked at: under a supervisor, as `run` and `chat` start agents, so that what works
//! here works there, and nothing of it stays behind.

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use bowline_state::terminal::Exit;
use bowline_wire::{AgentHandle, LastWords, Limits, connect_client_tapped};
use bowline_workspace::terminals::{Companion, Supervisor, TerminalError};
use tokio::task::JoinHandle;
use tokio::time::timeout;

use super::agent::Heard;
use crate::SUPERVISOR;
use crate::client::agents;

/// How long an agent may take to end when its stdin is closed, before it is ended.
const AFTER_CLOSE: Duration = Duration::from_secs(2);

/// An agent that runs. Dropping it ends all of it.
pub(super) struct Process {
    companion: Companion,
    agent: AgentHandle,
    serving: JoinHandle<std::io::Result<()>>,
    stderr: LastWords,
    exit: Option<Exit>,
}

/// How an agent ended.
pub(super) struct Ended {
    /// What the system says of it; none if it had to be killed.
    pub(super) exit: Option<Exit>,
    /// The last of what it wrote to stderr.
    pub(super) stderr: String,
}

impl Process {
    /// Starts an agent in a directory.
    ///
    /// # Errors
    /// Returns why it does not run.
    pub(super) async fn start(
        path: &Path,
        args: &[String],
        directory: &Path,
        heard: Arc<Heard>,
    ) -> Result<(AgentHandle, Self), TerminalError> {
        let program = std::env::current_exe().map_err(|why| TerminalError::Supervisor(why.to_string()))?;
        let supervisor = Supervisor { program, args: vec![SUPERVISOR.into()] };
        let argv = std::iter::once(path.to_string_lossy().into_owned()).chain(args.iter().cloned());
        let program = agents::program(argv.collect(), directory, std::env::vars_os());
        let (companion, streams, writer) = Companion::start_piped(&supervisor, program).await?;
        let (agent, serving) =
            connect_client_tapped(heard.clone(), streams.talk, writer, Limits::DEFAULT, heard);
        let serving = tokio::spawn(serving);
        let stderr = LastWords::of(streams.errors);
        Ok((agent.clone(), Self { companion, agent, serving, stderr, exit: None }))
    }

    /// Waits so long for it to end by itself, and says whether it did.
    pub(super) async fn ends_within(&mut self, time: Duration) -> bool {
        if self.exit.is_none() {
            self.exit = timeout(time, self.companion.ended()).await.ok().flatten();
        }
        self.exit.is_some()
    }

    /// Closes its stdin, waits, and ends it with all that it started.
    pub(super) async fn end(mut self) -> Ended {
        self.agent.caller().close();
        self.ends_within(AFTER_CLOSE).await;
        self.serving.abort();
        self.companion.end().await;
        self.stderr.settle().await;
        Ended { exit: self.exit, stderr: self.stderr.text() }
    }
}
