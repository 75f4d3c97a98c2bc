//! A program driven over its standard input and output, with its whole process tree.
//!
//! It has a [`supervisor`](super::supervisor) like every command of a terminal: when the [`SupervisedProgram`] is
//! dropped, or this process dies, no process of the program is left behind.

use std::fs::File;
use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream as StdUnixStream;
use std::path::PathBuf;
use std::time::Duration;

use bowline_protocol::terminal::CommandExit;
use tokio::net::UnixStream;
use tokio::net::unix::pipe;
use tokio::time::timeout;

use super::protocol::{CommandDescriptors, CommandInput, CommandJob, ResourceLimits, SupervisorReport};
use super::spawn::{SupervisorProcess, to_tokio_stream};
use super::{KILL_TIMEOUT, START_TIMEOUT, SupervisorProgram, TerminalError};

/// The program to run.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ProgramSpec {
    /// The program and its arguments.
    pub argv: Vec<String>,
    /// Its whole environment.
    pub env: Vec<(String, String)>,
    /// The working directory.
    pub directory: PathBuf,
    /// Its resource limits.
    pub resource_limits: ResourceLimits,
    /// How long it may take to exit after SIGTERM.
    pub grace_period: Duration,
}

/// The streams of a program.
#[derive(Debug)]
pub struct ProgramStreams {
    /// Its standard output, and its standard input unless that is a separate pipe. Programs expect sockets here,
    /// because other hosts use them too.
    pub stdio: UnixStream,
    /// Its standard error.
    pub stderr: pipe::Receiver,
}

/// A running program. Dropping it ends the program and everything it started.
#[derive(Debug)]
pub struct SupervisedProgram {
    supervisor: SupervisorProcess,
    grace: Duration,
}

impl SupervisedProgram {
    /// Starts a program, and returns as soon as it runs.
    ///
    /// # Errors
    /// Returns an error if it does not start.
    pub async fn start(
        supervisor: &SupervisorProgram,
        program: ProgramSpec,
    ) -> Result<(Self, ProgramStreams), TerminalError> {
        Self::start_with_input(supervisor, program, None).await
    }

    /// Starts a program whose standard input is a pipe, and returns that pipe: some programs treat a socket shared by
    /// input and output as closed as soon as input arrives.
    ///
    /// # Errors
    /// Returns an error if it does not start.
    pub async fn start_with_piped_input(
        supervisor: &SupervisorProgram,
        program: ProgramSpec,
    ) -> Result<(Self, ProgramStreams, pipe::Sender), TerminalError> {
        let unusable = |why: io::Error| TerminalError::Supervisor(why.to_string());
        let (reader, writer) = io::pipe().map_err(unusable)?;
        let writer = pipe::Sender::from_owned_fd(writer.into()).map_err(unusable)?;
        let (companion, streams) = Self::start_with_input(supervisor, program, Some(reader.into())).await?;
        Ok((companion, streams, writer))
    }

    async fn start_with_input(
        supervisor: &SupervisorProgram,
        program: ProgramSpec,
        input: Option<OwnedFd>,
    ) -> Result<(Self, ProgramStreams), TerminalError> {
        let name = program.argv.first().cloned().unwrap_or_default();
        let unusable = |why: io::Error| TerminalError::Supervisor(why.to_string());
        let directory = File::open(&program.directory).ok().filter(|_| program.directory.is_dir());
        let removed = || TerminalError::DirectoryRemoved(program.directory.display().to_string());
        let directory = directory.ok_or_else(removed)?;
        let (talk, output) = StdUnixStream::pair().map_err(unusable)?;
        let (reader, errors) = io::pipe().map_err(unusable)?;
        let reader = pipe::Receiver::from_owned_fd(reader.into()).map_err(unusable)?;
        let streams = ProgramStreams { stdio: to_tokio_stream(talk).map_err(unusable)?, stderr: reader };
        let job = CommandJob {
            argv: program.argv,
            env: program.env,
            input: if input.is_some() { CommandInput::Pipe } else { CommandInput::Output },
            limits: program.resource_limits,
            confinement: None,
            scratch: None,
            grace: program.grace_period,
        };
        let descriptors = CommandDescriptors {
            directory: directory.into(),
            output: output.into(),
            stderr: errors.into(),
            input,
        };
        let supervisor = SupervisorProcess::start(supervisor).map_err(unusable)?;
        let mut companion = Self { supervisor, grace: program.grace_period };
        let started = async {
            // A supervisor that does not accept the job closes the channel.
            companion.supervisor.send_job(&job, &descriptors).await.unwrap_or_default();
            // Only the program holds them open from now on.
            drop(descriptors);
            loop {
                match companion.supervisor.next_report().await {
                    Some(SupervisorReport::Accepted) => {}
                    Some(SupervisorReport::Started(_)) => return Ok(()),
                    Some(SupervisorReport::Failed(failed)) => {
                        return Err(TerminalError::from_start_error(&name, failed));
                    }
                    Some(
                        SupervisorReport::Exited(_) | SupervisorReport::Exceeded(_) | SupervisorReport::Gone,
                    )
                    | None => {
                        return Err(TerminalError::Supervisor("it ended early".to_owned()));
                    }
                }
            }
        };
        let late = || TerminalError::Supervisor("it did not answer".to_owned());
        timeout(START_TIMEOUT, started).await.map_err(|_| late())??;
        Ok((companion, streams))
    }

    /// Waits until the program itself exits, and returns its exit. Processes that it started may still run.
    ///
    /// A second call waits for everything it started, and returns `None`.
    pub async fn wait(&mut self) -> Option<CommandExit> {
        loop {
            match self.supervisor.next_report().await? {
                SupervisorReport::Exited(ended) => return Some(ended.into()),
                SupervisorReport::Failed(_) | SupervisorReport::Gone => return None,
                SupervisorReport::Accepted | SupervisorReport::Started(_) | SupervisorReport::Exceeded(_) => {
                }
            }
        }
    }

    /// Ends the program and everything it started, and returns when none of its processes is left. Processes that
    /// cannot be killed are left to the supervisor, which keeps trying.
    pub async fn stop(mut self) {
        self.supervisor.kill();
        let patience = self.grace + KILL_TIMEOUT;
        let gone = async {
            while self.wait().await.is_some() {}
            self.supervisor.shut_down().await;
        };
        timeout(patience, gone).await.unwrap_or_default();
    }
}
