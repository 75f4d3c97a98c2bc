//! The protocol between a host and the supervisor of a terminal: one JSON value per line, and with a job the
//! descriptors of the command.

use std::io::{self, IoSliceMut};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd as _, BorrowedFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::path::PathBuf;
use std::time::Duration;

use bowline_protocol::terminal::Invocation;
use bowline_protocol::terminal::{CommandExit, signal_name};
use rustix::io::retry_on_intr;
use rustix::net::{RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, recvmsg};
use serde::{Deserialize, Serialize};

/// The maximum length of a line, in bytes: the largest command with its environment, as JSON.
pub(super) const MAX_LINE_BYTES: usize = 16 * 1024 * 1024;

/// The host's message that makes a supervisor a keeper.
pub(super) const KEEP_MESSAGE: &str = "keep\n";

/// The message that asks a supervisor to kill the command and everything it started. Closing the channel has the same
/// effect.
pub(super) const KILL_MESSAGE: &str = "kill\n";

/// The resource limits of a command and everything it starts.
///
/// `None` means unlimited. Kernel limits apply to each process of the command separately.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct ResourceLimits {
    /// The maximum number of concurrent processes. Exceeding it ends the command.
    pub processes: Option<u64>,
    /// The maximum number of open files of a process.
    pub open_files: Option<u64>,
}

impl Default for ResourceLimits {
    fn default() -> Self {
        Self { processes: Some(4096), open_files: Some(65_536) }
    }
}

/// The confinement of a command, enforced by the kernel (Linux).
///
/// The command may read and execute everything its user can. It may create, write, rename and remove files only below
/// `writable`, in its own scratch directory, and on `/dev/null`. It cannot open any sockets except socket pairs. Modes, owners and times of the user's other files are
/// not protected.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Confinement {
    /// The directories and files that it may change.
    pub writable: Vec<PathBuf>,
}

/// A command for a supervisor to run.
#[derive(Debug, Serialize, Deserialize)]
pub(super) struct CommandJob {
    /// The program and its arguments.
    pub(super) argv: Vec<String>,
    /// The whole environment.
    pub(super) env: Vec<(String, String)>,
    /// The standard input.
    pub(super) input: CommandInput,
    pub(super) limits: ResourceLimits,
    pub(super) confinement: Option<Confinement>,
    /// A scratch directory created for the command, and removed after it.
    pub(super) scratch: Option<PathBuf>,
    pub(super) grace: Duration,
}

impl CommandJob {
    /// Returns whether the supervisor may run another command afterwards: a confined command shares nothing with another.
    pub(super) fn can_reuse_supervisor(&self) -> bool {
        self.confinement.is_none()
    }
}

/// The standard input of a command.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum CommandInput {
    /// `/dev/null`.
    Null,
    /// The same socket as its standard output.
    Output,
    /// A pipe of its own. Some programs treat a socket shared by input and output as closed as soon as input arrives.
    Pipe,
}

/// The descriptors of a command.
#[derive(Debug)]
pub(super) struct CommandDescriptors {
    /// The working directory.
    pub(super) directory: OwnedFd,
    pub(super) output: OwnedFd,
    pub(super) stderr: OwnedFd,
    /// `None` unless [`CommandInput::Pipe`] is set.
    pub(super) input: Option<OwnedFd>,
}

/// The maximum number of descriptors.
pub(super) const MAX_DESCRIPTORS: usize = 4;

impl CommandDescriptors {
    /// Returns the descriptors in the order in which they are sent.
    pub(super) fn as_fds(&self) -> Vec<BorrowedFd<'_>> {
        let fixed = [&self.directory, &self.output, &self.stderr];
        fixed.into_iter().chain(&self.input).map(|descriptor| descriptor.as_fd()).collect()
    }

    fn from_received(descriptors: Vec<OwnedFd>) -> Option<Self> {
        let mut descriptors = descriptors.into_iter();
        let (directory, output, errors) = (descriptors.next()?, descriptors.next()?, descriptors.next()?);
        Some(Self { directory, output, stderr: errors, input: descriptors.next() })
    }
}

/// A request to a supervisor.
pub(super) enum SupervisorRequest {
    /// Start another supervisor, and clean up if that one is killed.
    Keep,
    /// Run a command.
    Run(Box<(CommandJob, CommandDescriptors)>),
    /// Kill the command and everything it started.
    Kill,
}

/// The supervisor's end of the request channel.
pub(super) struct RequestReader {
    channel: UnixStream,
    buffer: Vec<u8>,
    // The number of bytes at the beginning of the buffer that have no line end.
    searched: usize,
    descriptors: Vec<OwnedFd>,
}

impl RequestReader {
    pub(super) fn new(channel: UnixStream) -> Self {
        Self { channel, buffer: Vec::new(), searched: 0, descriptors: Vec::new() }
    }

    /// Returns the socket, which has to be waited for before [`receive`](Self::receive) if that must not block.
    pub(super) fn channel(&self) -> &UnixStream {
        &self.channel
    }

    /// Waits for the next request. Returns `None` when the host is gone.
    pub(super) fn next(&mut self) -> io::Result<Option<SupervisorRequest>> {
        loop {
            if let Some(request) = self.take_request()? {
                return Ok(Some(request));
            }
            if !self.receive()? {
                return Ok(None);
            }
        }
    }

    /// Returns the next request that has been received, if any.
    pub(super) fn take_request(&mut self) -> io::Result<Option<SupervisorRequest>> {
        let Some(end) = memchr::memchr(b'\n', &self.buffer[self.searched..]) else {
            self.searched = self.buffer.len();
            if self.searched > MAX_LINE_BYTES {
                return Err(io::Error::other("the order is too long"));
            }
            return Ok(None);
        };
        let rest = self.buffer.split_off(self.searched + end + 1);
        self.searched = 0;
        let line = std::mem::replace(&mut self.buffer, rest);
        if line == KEEP_MESSAGE.as_bytes() {
            return Ok(Some(SupervisorRequest::Keep));
        }
        if line == KILL_MESSAGE.as_bytes() {
            return Ok(Some(SupervisorRequest::Kill));
        }
        let job = serde_json::from_slice(&line)?;
        // Another request may have arrived in the same read as a job and its descriptors.
        let descriptors = std::mem::take(&mut self.descriptors);
        let missing = || io::Error::other("the job came without its descriptors");
        let descriptors = CommandDescriptors::from_received(descriptors).ok_or_else(missing)?;
        Ok(Some(SupervisorRequest::Run(Box::new((job, descriptors)))))
    }

    /// Receives more bytes. Returns `false` at the end.
    pub(super) fn receive(&mut self) -> io::Result<bool> {
        let mut bytes = [0; 16 * 1024];
        let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(MAX_DESCRIPTORS))];
        let mut ancillary = RecvAncillaryBuffer::new(&mut space);
        let received = retry_on_intr(|| {
            let mut slices = [IoSliceMut::new(&mut bytes)];
            recvmsg(&self.channel, &mut slices, &mut ancillary, RecvFlags::CMSG_CLOEXEC)
        })?;
        for message in ancillary.drain() {
            if let RecvAncillaryMessage::ScmRights(descriptors) = message {
                self.descriptors.extend(descriptors);
            }
        }
        self.buffer.extend_from_slice(&bytes[..received.bytes]);
        Ok(received.bytes > 0)
    }
}

/// A report from a supervisor.
#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum SupervisorReport {
    /// The supervisor has accepted the job. Before this report, no part of the command can have run.
    Accepted,
    /// The command runs, under the supervisor with this process id.
    Started(i32),
    /// The command failed to start.
    Failed(StartError),
    /// The command itself exited; processes that it started may still run.
    Exited(ProcessExit),
    /// The command exceeded a limit and is being killed.
    Exceeded(String),
    /// No process of the command is left.
    Gone,
}

/// Why a command was not started.
#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum StartError {
    /// The program, or its interpreter, does not exist.
    NotFound,
    /// The program is not executable.
    Denied,
    /// The command cannot be confined.
    Unconfinable(String),
    /// The system reported an error.
    System(String),
}

/// The exit of a process.
#[derive(Debug, Clone, Copy, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum ProcessExit {
    Code(i32),
    Signal(i32),
}

impl From<ProcessExit> for CommandExit {
    fn from(ended: ProcessExit) -> Self {
        match ended {
            ProcessExit::Code(code) => Self::Code(code),
            ProcessExit::Signal(number) => Self::Signal(signal_name(number)),
        }
    }
}

/// Returns the program and its arguments.
pub(super) fn command_argv(invocation: &Invocation, shell: &str) -> Vec<String> {
    match invocation {
        Invocation::Argv(argv) => argv.clone(),
        Invocation::Shell(line) => vec![shell.to_owned(), "-c".to_owned(), line.clone()],
    }
}

#[cfg(test)]
mod tests {
    use std::io::{IoSlice, Write as _};

    use rustix::net::{SendAncillaryBuffer, SendAncillaryMessage, SendFlags, sendmsg};

    use super::*;

    #[test]
    fn an_order_before_a_job_leaves_it_its_descriptors() {
        let (mut host, channel) = UnixStream::pair().unwrap();
        let job = CommandJob {
            argv: vec!["true".to_owned()],
            env: Vec::new(),
            input: CommandInput::Null,
            limits: ResourceLimits::default(),
            confinement: None,
            scratch: None,
            grace: Duration::ZERO,
        };
        let mut line = serde_json::to_vec(&job).unwrap();
        line.push(b'\n');
        // Both messages are queued when the supervisor reads.
        host.write_all(KILL_MESSAGE.as_bytes()).unwrap();
        let (one, other) = UnixStream::pair().unwrap();
        let fds = [one.as_fd(), other.as_fd(), one.as_fd()];
        let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(MAX_DESCRIPTORS))];
        let mut ancillary = SendAncillaryBuffer::new(&mut space);
        assert!(ancillary.push(SendAncillaryMessage::ScmRights(&fds)));
        sendmsg(&host, &[IoSlice::new(&line)], &mut ancillary, SendFlags::empty()).unwrap();
        let mut orders = RequestReader::new(channel);
        assert!(matches!(orders.next().unwrap(), Some(SupervisorRequest::Kill)));
        let Some(SupervisorRequest::Run(run)) = orders.next().unwrap() else { panic!("it is a job") };
        assert_eq!(run.0.argv, ["true"]);
        drop(host);
        assert!(orders.next().unwrap().is_none());
    }
}
