//! The process of an agent that the host started: a child, or one under a supervisor with all that it starts.

use std::io;
use std::os::unix::process::ExitStatusExt as _;
use std::process::ExitStatus;

use bowline_state::terminal::{Exit, signal_name};
use bowline_wire::{AgentExit, AgentHandle, AgentProcess, Grace, LastWords, StreamHead};
use bowline_workspace::terminals::Companion;
use tokio::task::JoinHandle;
use tokio::time::timeout;

/// A process. Dropping it ends the agent: a child with its process group, one under a supervisor with its whole tree.
#[derive(Debug)]
pub(crate) enum Process {
    Child(Box<AgentProcess>),
    Supervised(Box<Supervised>),
}

/// An agent under a supervisor: whatever it starts, and however the host dies, nothing of it stays behind.
#[derive(Debug)]
pub(crate) struct Supervised {
    pub(crate) companion: Companion,
    pub(crate) agent: AgentHandle,
    pub(crate) serving: JoinHandle<io::Result<()>>,
    pub(crate) stderr: LastWords,
    pub(crate) stdout: StreamHead,
}

impl Process {
    pub(crate) fn pid(&self) -> Option<u32> {
        match self {
            Self::Child(process) => process.id(),
            // What the host started itself is the supervisor.
            Self::Supervised(_) => None,
        }
    }

    /// Ends the process: closes its stdin, waits, asks it to terminate, waits, kills it; and ends what it left behind.
    pub(crate) async fn shutdown(self, grace: Grace) -> AgentExit {
        match self {
            Self::Child(process) => process.shutdown(grace).await,
            Self::Supervised(process) => process.shutdown(grace).await,
        }
    }
}

impl Supervised {
    async fn shutdown(mut self: Box<Self>, grace: Grace) -> AgentExit {
        self.agent.caller().close();
        let status = timeout(grace.after_close, self.companion.ended()).await.ok().flatten();
        self.serving.abort();
        self.companion.end().await;
        self.stderr.settle().await;
        // One that had to be killed was told to end, and says nothing by how it did.
        let status = status.as_ref().map(exit_status);
        AgentExit { status, stderr: self.stderr.text(), stdout: self.stdout.text() }
    }
}

/// Returns what the system says of a process that ended so.
fn exit_status(exit: &Exit) -> ExitStatus {
    match exit {
        Exit::Code(code) => ExitStatus::from_raw((code & 0xff) << 8),
        Exit::Signal(name) => {
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
        let told = |exit| exit_status(&exit).to_string();
        assert_eq!(told(Exit::Code(0)), "exit status: 0");
        assert_eq!(told(Exit::Code(7)), "exit status: 7");
        assert_eq!(told(Exit::Signal("SIGTERM".to_owned())), "signal: 15 (SIGTERM)");
        assert_eq!(told(Exit::Signal("SIGNONE".to_owned())), "signal: 9 (SIGKILL)");
    }
}
