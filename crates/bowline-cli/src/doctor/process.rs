//! The process of a probed agent: under a supervisor, as `run` and `chat` start agents, so that the probe matches them
//! and leaves no process behind.

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use bowline_protocol::terminal::CommandExit;
use bowline_wire::{AgentHandle, ConnectionLimits, StreamTail, WireRecorder, connect_client_recorded};
use bowline_workspace::terminals::{SupervisedProgram, SupervisorProgram, TerminalError};
use tokio::task::JoinHandle;
use tokio::time::timeout;

use super::agent::ProbeClient;
use bowline_client::agents;
use bowline_client::launch::SUPERVISOR_COMMAND;

/// The grace period for an agent to exit after its stdin is closed.
const EXIT_TIMEOUT: Duration = Duration::from_secs(2);

/// A running agent. Dropping it ends all its processes.
pub(super) struct ProbedAgent {
    companion: SupervisedProgram,
    agent: AgentHandle,
    connection_task: JoinHandle<std::io::Result<()>>,
    stderr_tail: StreamTail,
    exit: Option<CommandExit>,
}

/// How an agent ended.
pub(super) struct ProbedAgentExit {
    /// Its exit status; `None` if it had to be killed.
    pub(super) exit: Option<CommandExit>,
    /// The end of its stderr.
    pub(super) stderr: String,
}

impl ProbedAgent {
    /// Starts an agent in a directory.
    ///
    /// # Errors
    /// Returns why it does not run.
    pub(super) async fn start(
        path: &Path,
        args: &[String],
        directory: &Path,
        client: Arc<ProbeClient>,
    ) -> Result<(AgentHandle, Self), TerminalError> {
        let program =
            std::env::current_exe().map_err(|error| TerminalError::Supervisor(error.to_string()))?;
        let supervisor = SupervisorProgram { program, args: vec![SUPERVISOR_COMMAND.into()] };
        let argv = std::iter::once(path.to_string_lossy().into_owned()).chain(args.iter().cloned());
        let program = agents::agent_program(argv.collect(), directory, std::env::vars_os());
        let (companion, streams, writer) =
            SupervisedProgram::start_with_piped_input(&supervisor, program).await?;
        let (limits, recorder) = (ConnectionLimits::DEFAULT, Some(client.clone() as Arc<dyn WireRecorder>));
        let (agent, serving) = connect_client_recorded(client, streams.stdio, writer, limits, recorder);
        let serving = tokio::spawn(serving);
        let stderr_tail = StreamTail::spawn(streams.stderr);
        Ok((agent.clone(), Self { companion, agent, connection_task: serving, stderr_tail, exit: None }))
    }

    /// Waits for it to exit by itself, and returns whether it did in time.
    pub(super) async fn exits_within(&mut self, time: Duration) -> bool {
        if self.exit.is_none() {
            self.exit = timeout(time, self.companion.wait()).await.ok().flatten();
        }
        self.exit.is_some()
    }

    /// Closes its stdin, waits, and ends it with all its processes.
    pub(super) async fn shut_down(mut self) -> ProbedAgentExit {
        self.agent.caller().close();
        self.exits_within(EXIT_TIMEOUT).await;
        self.connection_task.abort();
        self.companion.stop().await;
        self.stderr_tail.wait_for_end().await;
        ProbedAgentExit { exit: self.exit, stderr: self.stderr_tail.text() }
    }
}
