//! The process of an agent that the host started: a child, or a supervised process tree.

use std::io;
use std::os::unix::process::ExitStatusExt as _;
use std::process::ExitStatus;

use bowline_protocol::terminal::{CommandExit, signal_name};
use bowline_wire::{AgentExit, AgentHandle, AgentProcess, ShutdownGrace, StreamHead, StreamTail};
use bowline_workspace::terminals::SupervisedProgram;
use tokio::task::JoinHandle;
use tokio::time::timeout;

/// A process. Dropping it ends the agent: a child with its process group, a supervised one with its whole tree.
#[derive(Debug)]
pub(crate) enum SpawnedAgent {
    Child(Box<AgentProcess>),
    Supervised(Box<SupervisedAgent>),
}

/// An agent under a supervisor: however the host dies, no process of the agent is left behind.
#[derive(Debug)]
pub(crate) struct SupervisedAgent {
    pub(crate) companion: SupervisedProgram,
    pub(crate) agent: AgentHandle,
    pub(crate) serve_task: JoinHandle<io::Result<()>>,
    pub(crate) stderr: StreamTail,
    pub(crate) stdout: StreamHead,
}

impl SpawnedAgent {
    pub(crate) fn pid(&self) -> Option<u32> {
        match self {
            Self::Child(process) => process.id(),
            // The host's child is the supervisor, not the agent.
            Self::Supervised(_) => None,
        }
    }

    /// Ends the process: closes its stdin, waits, asks it to terminate, waits, kills it; then kills the processes it
    /// left behind.
    pub(crate) async fn shutdown(self, grace: ShutdownGrace) -> AgentExit {
        match self {
            Self::Child(process) => process.shutdown(grace).await,
            Self::Supervised(process) => process.shutdown(grace).await,
        }
    }
}

impl SupervisedAgent {
    async fn shutdown(mut self: Box<Self>, grace: ShutdownGrace) -> AgentExit {
        self.agent.caller().close();
        let status = timeout(grace.after_close, self.companion.wait()).await.ok().flatten();
        self.serve_task.abort();
        self.companion.stop().await;
        self.stderr.wait_for_end().await;
        // The status of an agent that had to be killed carries no information, and is left out.
        let status = status.as_ref().map(to_exit_status);
        AgentExit { status, stderr: self.stderr.text(), stdout: self.stdout.non_message_text() }
    }
}

/// Converts an exit to the system's exit status.
fn to_exit_status(exit: &CommandExit) -> ExitStatus {
    match exit {
        CommandExit::Code(code) => ExitStatus::from_raw((code & 0xff) << 8),
        CommandExit::Signal(name) => {
            let number = (1..=64).find(|number| signal_name(*number) == *name);
            ExitStatus::from_raw(number.unwrap_or(9))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_end_is_told_as_the_system_tells_it() {
        let describe = |exit| to_exit_status(&exit).to_string();
        assert_eq!(describe(CommandExit::Code(0)), "exit status: 0");
        assert_eq!(describe(CommandExit::Code(7)), "exit status: 7");
        assert_eq!(describe(CommandExit::Signal("SIGTERM".to_owned())), "signal: 15 (SIGTERM)");
        assert_eq!(describe(CommandExit::Signal("SIGNONE".to_owned())), "signal: 9 (SIGKILL)");
    }
}
