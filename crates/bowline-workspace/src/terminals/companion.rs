//! A program that is talked to over its standard input and output, with its whole process tree.
//!
//! It has a [`supervisor`](super::supervisor) like every command of a terminal: when the [`Companion`] is dropped, or this
//! process dies, nothing that the program started stays behind.

use std::io;
use std::os::fd::AsRawFd as _;
use std::path::PathBuf;
use std::time::Duration;

use bowline_state::terminal::Exit;
use tokio::io::{AsyncBufReadExt as _, AsyncWriteExt as _, BufReader, Lines};
use tokio::net::UnixStream;
use tokio::net::unix::{OwnedReadHalf, OwnedWriteHalf, pipe};
use tokio::process::Child;
use tokio::time::timeout;

use super::job::{Job, KEEP, KILL, Report, ResourceLimits};
use super::spawn::spawn_talking;
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
    reports: Lines<BufReader<OwnedReadHalf>>,
    orders: OwnedWriteHalf,
    child: Child,
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
        // The supervisor opens it by its name, and has an end of its own then. Ours goes when the program runs.
        let (companion, streams) = Self::start_with(supervisor, program, Some(&reader)).await?;
        Ok((companion, streams, writer))
    }

    async fn start_with(
        supervisor: &Supervisor,
        program: Program,
        input: Option<&io::PipeReader>,
    ) -> Result<(Self, Streams), TerminalError> {
        let input = input.map(|input| format!("/proc/{}/fd/{}", std::process::id(), input.as_raw_fd()));
        let name = program.argv.first().cloned().unwrap_or_default();
        let unusable = |why: io::Error| TerminalError::Supervisor(why.to_string());
        if !program.directory.is_dir() {
            return Err(TerminalError::DirectoryRemoved(program.directory.display().to_string()));
        }
        let (child, control, streams) = spawn_talking(supervisor, &program.directory).map_err(unusable)?;
        let (reports, orders) = control.into_split();
        let reports = BufReader::new(reports).lines();
        let mut companion = Self { reports, orders, child, grace: program.grace };
        let job = Job {
            argv: program.argv,
            env: program.env,
            pty: None,
            talks: true,
            input,
            limits: program.resources,
            confinement: None,
            scratch: None,
            grace: program.grace,
        };
        let mut first = KEEP.as_bytes().to_vec();
        serde_json::to_writer(&mut first, &job).map_err(|why| TerminalError::Supervisor(why.to_string()))?;
        first.push(b'\n');
        let started = async {
            companion.orders.write_all(&first).await.map_err(unusable)?;
            match companion.report().await {
                Some(Report::Started(_)) => Ok(()),
                Some(Report::Failed(failed)) => Err(TerminalError::not_started(&name, failed)),
                Some(Report::Exited(_) | Report::Exceeded(_) | Report::Gone) | None => {
                    Err(TerminalError::Supervisor("it ended early".to_owned()))
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
            match self.report().await? {
                Report::Exited(ended) => return Some(ended.into()),
                Report::Failed(_) | Report::Gone => return None,
                Report::Started(_) | Report::Exceeded(_) => {}
            }
        }
    }

    /// Ends the program and everything it started, and returns when nothing of it runs. What cannot be ended is not
    /// waited for; its supervisor goes on trying.
    pub async fn end(mut self) {
        // If the channel is closed, its supervisor has ended.
        self.orders.write_all(KILL.as_bytes()).await.unwrap_or_default();
        let patience = self.grace + PATIENCE;
        let gone = async {
            while self.ended().await.is_some() {}
            self.child.wait().await.map_or_else(drop, drop);
        };
        timeout(patience, gone).await.unwrap_or_default();
    }

    /// Returns what the supervisor says next; none when it has ended, or is no supervisor.
    async fn report(&mut self) -> Option<Report> {
        let line = self.reports.next_line().await.ok()??;
        serde_json::from_str(&line).ok()
    }
}
