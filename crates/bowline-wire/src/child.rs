//! An agent as a child process: started, connected, and ended with all of its descendants.

use std::fmt;
use std::io;
use std::os::fd::AsFd;
use std::process::{ExitStatus, Stdio};
use std::sync::Arc;
use std::time::Duration;

use rustix::process::{Pid, Signal, kill_process_group};
use tokio::process::{Child, Command};
use tokio::task::JoinHandle;

use crate::agent::handle::AgentHandle;
use crate::client::Client;
use crate::connect::connect_client_eagerly;
use crate::limits::ConnectionLimits;
use crate::stream::eager_reader::EagerReader;
use crate::stream::recorder::WireRecorder;
use crate::stream::stdio::widen_pipe;
use crate::stream::tail::StreamTail;

/// Why an agent did not start.
#[derive(Debug, thiserror::Error)]
pub enum SpawnError {
    /// The program could not be started.
    #[error("cannot start the agent {program}: {source}")]
    Start {
        /// The program.
        program: String,
        /// The system's error.
        source: io::Error,
    },
}

/// How long an agent may take to exit at each step.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ShutdownGrace {
    /// After its stdin is closed.
    pub after_close: Duration,
    /// After it is asked to terminate.
    pub after_terminate: Duration,
}

impl Default for ShutdownGrace {
    /// Two seconds, then one.
    fn default() -> Self {
        ShutdownGrace { after_close: Duration::from_secs(2), after_terminate: Duration::from_secs(1) }
    }
}

/// How an agent's process ended.
#[derive(Debug, Clone)]
pub struct AgentExit {
    /// Its exit status, if known.
    pub status: Option<ExitStatus>,
    /// The tail of its stderr.
    pub stderr: String,
    /// The first lines on its stdout that are not messages, where they were kept ([`HeadReader`](crate::HeadReader)).
    pub stdout: String,
}

impl fmt::Display for AgentExit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.status {
            Some(status) => write!(f, "the agent ended: {status}")?,
            None => f.write_str("the agent ended")?,
        }
        match self.stderr.trim() {
            "" => Ok(()),
            stderr => write!(f, "; its last words:\n{stderr}"),
        }
    }
}

/// The process of an agent. Dropping it kills its whole process group.
#[derive(Debug)]
pub struct AgentProcess {
    child: Child,
    process_group: ProcessGroup,
    agent: AgentHandle,
    serve_task: JoinHandle<io::Result<()>>,
    stderr: StreamTail,
}

/// Starts an agent in its own process group and connects a client to it.
///
/// The command's stdin, stdout and stderr are replaced; everything else (directory, environment) is up to the caller.
///
/// # Errors
/// Fails when the program cannot be started.
///
/// # Panics
/// Panics outside of a tokio runtime with IO and time enabled.
pub fn spawn_agent<C: Client>(
    command: Command,
    client: Arc<C>,
    limits: ConnectionLimits,
) -> Result<(AgentHandle, AgentProcess), SpawnError> {
    spawn_agent_recorded(command, client, limits, None)
}

/// Starts an agent as [`spawn_agent`] does, with a recorder that receives every message.
///
/// # Errors
/// Fails when the program cannot be started.
///
/// # Panics
/// Panics outside of a tokio runtime with IO and time enabled.
pub fn spawn_agent_recorded<C: Client>(
    mut command: Command,
    client: Arc<C>,
    limits: ConnectionLimits,
    recorder: Option<Arc<dyn WireRecorder>>,
) -> Result<(AgentHandle, AgentProcess), SpawnError> {
    command
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .process_group(0)
        .kill_on_drop(true);
    let program = command.as_std().get_program().to_string_lossy().into_owned();
    let failed = |source| SpawnError::Start { program: program.clone(), source };
    let mut child = command.spawn().map_err(failed)?;
    let group = ProcessGroup(child.id().and_then(|id| Pid::from_raw(id.cast_signed())));
    let (Some(stdin), Some(stdout), Some(stderr)) =
        (child.stdin.take(), child.stdout.take(), child.stderr.take())
    else {
        return Err(failed(io::Error::other("its pipes are missing")));
    };
    widen_pipe(&stdin);
    widen_pipe(&stdout);
    let stderr = StreamTail::spawn(stderr);
    // An eager reader on the pipe itself would bypass the recorder.
    let eager_reader = match recorder {
        None => stdout.as_fd().try_clone_to_owned().ok().map(EagerReader::new),
        Some(_) => None,
    };
    let (agent, serve_task) = connect_client_eagerly(client, stdout, stdin, limits, recorder, eager_reader);
    let serve_task = tokio::spawn(serve_task);
    let process = AgentProcess { child, process_group: group, agent: agent.clone(), serve_task, stderr };
    Ok((agent, process))
}

impl AgentProcess {
    /// Returns the id of the process, until it has ended.
    #[must_use]
    pub fn id(&self) -> Option<u32> {
        self.child.id()
    }

    /// Returns the tail of the agent's stderr so far.
    #[must_use]
    pub fn stderr(&self) -> String {
        self.stderr.text()
    }

    /// Waits until the process exits by itself, and kills the rest of its process group.
    pub async fn wait(&mut self) -> AgentExit {
        let status = self.child.wait().await.ok();
        self.process_group.kill();
        self.collect_exit(status).await
    }

    /// Ends the process: closes its stdin, waits, asks it to terminate, waits, kills it; and kills the rest of its
    /// process group.
    pub async fn shutdown(mut self, grace: ShutdownGrace) -> AgentExit {
        self.agent.caller().close();
        let mut status = tokio::time::timeout(grace.after_close, self.child.wait()).await;
        if status.is_err() {
            self.process_group.signal(Signal::TERM);
            status = tokio::time::timeout(grace.after_terminate, self.child.wait()).await;
        }
        let status = match status {
            Ok(status) => status.ok(),
            Err(_) => {
                self.process_group.signal(Signal::KILL);
                self.child.wait().await.ok()
            }
        };
        self.process_group.kill();
        self.collect_exit(status).await
    }

    async fn collect_exit(&mut self, status: Option<ExitStatus>) -> AgentExit {
        self.stderr.wait_for_end().await;
        AgentExit { status, stderr: self.stderr(), stdout: String::new() }
    }
}

impl Drop for AgentProcess {
    fn drop(&mut self) {
        self.process_group.kill();
        self.serve_task.abort();
    }
}

/// The process group of an agent.
#[derive(Debug)]
struct ProcessGroup(Option<Pid>);

impl ProcessGroup {
    /// Kills the rest of the group, once: later its number may belong to another group.
    fn kill(&mut self) {
        self.signal(Signal::KILL);
        self.0 = None;
    }

    fn signal(&self, signal: Signal) {
        if let Some(group) = self.0 {
            // It fails only for a group without members, which is the goal.
            kill_process_group(group, signal).ok();
        }
    }
}
