//! A program that is talked to over its standard input and output, with its whole process tree.
//!
//! It has a [`supervisor`](super::supervisor) like every command of a terminal: when the [`Companion`] is dropped, or this
//! process dies, nothing that the program started stays behind.

use std::fs::File;
use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream as StdUnixStream;
use std::path::PathBuf;
use std::time::Duration;

use bowline_state::terminal::Exit;
use tokio::net::UnixStream;
use tokio::net::unix::pipe;
use tokio::time::timeout;

use super::job::{Descriptors, Input, Job, Report, ResourceLimits};
use super::spawn::{SupervisorProcess, driven};
use super::{PATIENCE, START, Supervisor, TerminalError};

/// What to run.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Program {
    /// The program and its arguments.
    pub argv: Vec<String>,
    /// Its whole environment.
    pub env: Vec<(String, String)>,
    /// Where it runs.
    pub directory: PathBuf,
    /// How much it may take.
    pub resources: ResourceLimits,
    /// How long it may take to end after it was asked to.
    pub grace: Duration,
}

/// How a program is talked to.
#[derive(Debug)]
pub struct Streams {
    /// Its standard output, and its standard input unless that is a pipe of its own. Programs are used to sockets in this
    /// place: others start them so, too.
    pub talk: UnixStream,
    /// Its standard error.
    pub errors: pipe::Receiver,
}

/// A program that runs. Dropping it ends the program and everything it started.
#[derive(Debug)]
pub struct Companion {
    supervisor: SupervisorProcess,
    grace: Duration,
}

impl Companion {
    /// Starts a program, and returns as soon as it runs.
    ///
    /// # Errors
    /// Returns why it does not run.
    pub async fn start(supervisor: &Supervisor, program: Program) -> Result<(Self, Streams), TerminalError> {
        Self::start_with(supervisor, program, None).await
    }

    /// Starts a program whose standard input is a pipe, and returns that: some take a socket that is both input and output for closed as soon
    /// as something comes in.
    ///
    /// # Errors
    /// Returns why it does not run.
    pub async fn start_piped(
        supervisor: &Supervisor,
        program: Program,
    ) -> Result<(Self, Streams, pipe::Sender), TerminalError> {
        let unusable = |why: io::Error| TerminalError::Supervisor(why.to_string());
        let (reader, writer) = io::pipe().map_err(unusable)?;
        let writer = pipe::Sender::from_owned_fd(writer.into()).map_err(unusable)?;
        let (companion, streams) = Self::start_with(supervisor, program, Some(reader.into())).await?;
        Ok((companion, streams, writer))
    }

    async fn start_with(
        supervisor: &Supervisor,
        program: Program,
        input: Option<OwnedFd>,
    ) -> Result<(Self, Streams), TerminalError> {
        let name = program.argv.first().cloned().unwrap_or_default();
        let unusable = |why: io::Error| TerminalError::Supervisor(why.to_string());
        let directory = File::open(&program.directory).ok().filter(|_| program.directory.is_dir());
        let removed = || TerminalError::DirectoryRemoved(program.directory.display().to_string());
        let directory = directory.ok_or_else(removed)?;
        let (talk, output) = StdUnixStream::pair().map_err(unusable)?;
        let (reader, errors) = io::pipe().map_err(unusable)?;
        let reader = pipe::Receiver::from_owned_fd(reader.into()).map_err(unusable)?;
        let streams = Streams { talk: driven(talk).map_err(unusable)?, errors: reader };
        let job = Job {
            argv: program.argv,
            env: program.env,
            pty: None,
            input: if input.is_some() { Input::Pipe } else { Input::Output },
            limits: program.resources,
            confinement: None,
            scratch: None,
            grace: program.grace,
        };
        let descriptors =
            Descriptors { directory: directory.into(), output: output.into(), errors: errors.into(), input };
        let supervisor = SupervisorProcess::start(supervisor).map_err(unusable)?;
        let mut companion = Self { supervisor, grace: program.grace };
        let started = async {
            // A supervisor that does not take the job closes the channel.
            companion.supervisor.run(&job, &descriptors).await.unwrap_or_default();
            // Only the program holds them open.
            drop(descriptors);
            loop {
                match companion.supervisor.report().await {
                    Some(Report::Accepted) => {}
                    Some(Report::Started(_)) => return Ok(()),
                    Some(Report::Failed(failed)) => return Err(TerminalError::not_started(&name, failed)),
                    Some(Report::Exited(_) | Report::Exceeded(_) | Report::Gone) | None => {
                        return Err(TerminalError::Supervisor("it ended early".to_owned()));
                    }
                }
            }
        };
        let late = || TerminalError::Supervisor("it did not answer".to_owned());
        timeout(START, started).await.map_err(|_| late())??;
        Ok((companion, streams))
    }

    /// Waits until the program itself ends, and says how it did. What it started may still run.
    ///
    /// Waiting again after that waits for everything that it started, and returns none.
    pub async fn ended(&mut self) -> Option<Exit> {
        loop {
            match self.supervisor.report().await? {
                Report::Exited(ended) => return Some(ended.into()),
                Report::Failed(_) | Report::Gone => return None,
                Report::Accepted | Report::Started(_) | Report::Exceeded(_) => {}
            }
        }
    }

    /// Ends the program and everything it started, and returns when nothing of it runs. What cannot be ended is not
    /// waited for; its supervisor goes on trying.
    pub async fn end(mut self) {
        self.supervisor.kill();
        let patience = self.grace + PATIENCE;
        let gone = async {
            while self.ended().await.is_some() {}
            self.supervisor.end().await;
        };
        timeout(patience, gone).await.unwrap_or_default();
    }
}
