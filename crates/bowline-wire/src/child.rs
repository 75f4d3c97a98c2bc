//! An agent as a child process: started, talked to, and ended with everything it started.

use std::fmt;
use std::io;
use std::os::fd::AsFd;
use std::process::{ExitStatus, Stdio};
use std::sync::Arc;
use std::time::Duration;

use rustix::process::{Pid, Signal, kill_process_group};
use tokio::process::{Child, Command};
use tokio::task::JoinHandle;

use crate::agent_handle::AgentHandle;
use crate::client::Client;
use crate::connect::{attach_client, connect_client_tapped};
use crate::driver::Driver;
use crate::eager::Eager;
use crate::last_words::LastWords;
use crate::limits::Limits;
use crate::stdio::widen;
use crate::tap::Tap;

/// Why an agent did not start.
#[derive(Debug, thiserror::Error)]
pub enum SpawnError {
    /// The program could not be started.
    #[error("cannot start the agent {program}: {source}")]
    Start {
        /// The program.
        program: String,
        /// What the system says.
        source: io::Error,
    },
}

/// How long an agent may take to end at each step.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Grace {
    /// After its stdin was closed.
    pub after_close: Duration,
    /// After it was asked to terminate.
    pub after_terminate: Duration,
}

impl Default for Grace {
    /// Two seconds, then one.
    fn default() -> Self {
        Grace { after_close: Duration::from_secs(2), after_terminate: Duration::from_secs(1) }
    }
}

/// How an agent's process ended.
#[derive(Debug, Clone)]
pub struct AgentExit {
    /// Its exit status, if it could be learnt.
    pub status: Option<ExitStatus>,
    /// The last of what it wrote to stderr.
    pub stderr: String,
    /// What it wrote to stdout first and is no message, where that was kept ([`HeadReader`](crate::HeadReader)).
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

/// The process of an agent. Dropping it kills the process and every other one in its group.
#[derive(Debug)]
pub struct AgentProcess {
    child: Child,
    group: Group,
    agent: AgentHandle,
    serving: JoinHandle<io::Result<()>>,
    stderr: LastWords,
}

/// Starts an agent in a process group of its own and connects a client to it.
///
/// The command's stdin, stdout and stderr are taken over; everything else (directory, environment) is the caller's.
///
/// # Errors
/// Fails when the program cannot be started.
///
/// # Panics
/// Panics outside of a tokio runtime with IO and time enabled.
pub fn spawn_agent<C: Client>(
    command: Command,
    client: Arc<C>,
    limits: Limits,
) -> Result<(AgentHandle, AgentProcess), SpawnError> {
    spawn_agent_tapped(command, client, limits, None)
}

/// Starts an agent as [`spawn_agent`] does, with somebody who hears every message.
///
/// # Errors
/// Fails when the program cannot be started.
///
/// # Panics
/// Panics outside of a tokio runtime with IO and time enabled.
pub fn spawn_agent_tapped<C: Client>(
    mut command: Command,
    client: Arc<C>,
    limits: Limits,
    tap: Option<Arc<dyn Tap>>,
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
    let group = Group(child.id().and_then(|id| Pid::from_raw(id.cast_signed())));
    let (Some(stdin), Some(stdout), Some(stderr)) =
        (child.stdin.take(), child.stdout.take(), child.stderr.take())
    else {
        return Err(failed(io::Error::other("its pipes are missing")));
    };
    widen(&stdin);
    widen(&stdout);
    let stderr = LastWords::of(stderr);
    let (agent, serving) = match tap {
        None => {
            let eager = stdout.as_fd().try_clone_to_owned().ok().map(Eager::new);
            let (caller, driver) = Driver::new(stdout, stdin, limits);
            let (agent, serving) = attach_client(client, (caller, driver.eager(eager)));
            (agent, tokio::spawn(serving))
        }
        // Who looks at the pipe itself would take messages that nobody hears.
        Some(tap) => {
            let (agent, serving) = connect_client_tapped(client, stdout, stdin, limits, tap);
            (agent, tokio::spawn(serving))
        }
    };
    let process = AgentProcess { child, group, agent: agent.clone(), serving, stderr };
    Ok((agent, process))
}

impl AgentProcess {
    /// The id of the process, until it has ended.
    #[must_use]
    pub fn id(&self) -> Option<u32> {
        self.child.id()
    }

    /// The last of what the agent wrote to stderr so far.
    #[must_use]
    pub fn stderr(&self) -> String {
        self.stderr.text()
    }

    /// Waits until the process ends by itself, and kills what it left behind in its process group.
    pub async fn wait(&mut self) -> AgentExit {
        let status = self.child.wait().await.ok();
        self.group.end();
        self.exit(status).await
    }

    /// Ends the process: closes its stdin, waits, asks it to terminate, waits, kills it; and kills what it left behind
    /// in its process group.
    pub async fn shutdown(mut self, grace: Grace) -> AgentExit {
        self.agent.caller().close();
        let mut status = tokio::time::timeout(grace.after_close, self.child.wait()).await;
        if status.is_err() {
            self.group.signal(Signal::TERM);
            status = tokio::time::timeout(grace.after_terminate, self.child.wait()).await;
        }
        let status = match status {
            Ok(status) => status.ok(),
            Err(_) => {
                self.group.signal(Signal::KILL);
                self.child.wait().await.ok()
            }
        };
        self.group.end();
        self.exit(status).await
    }

    async fn exit(&mut self, status: Option<ExitStatus>) -> AgentExit {
        self.stderr.settle().await;
        AgentExit { status, stderr: self.stderr(), stdout: String::new() }
    }
}

impl Drop for AgentProcess {
    fn drop(&mut self) {
        self.group.end();
        self.serving.abort();
    }
}

/// The process group of an agent.
#[derive(Debug)]
struct Group(Option<Pid>);

impl Group {
    /// Kills all that is left of the group, once: later its number may be another's.
    fn end(&mut self) {
        self.signal(Signal::KILL);
        self.0 = None;
    }

    fn signal(&self, signal: Signal) {
        if let Some(group) = self.0 {
            // A group without members is what we want.
            kill_process_group(group, signal).ok();
        }
    }
}
