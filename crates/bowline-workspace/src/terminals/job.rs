//! What a host and the supervisor of a terminal tell each other: one JSON text per line, and with a job the descriptors that
//! the command gets.

use std::io::{self, IoSliceMut};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd as _, BorrowedFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::path::PathBuf;
use std::time::Duration;

use bowline_state::operation::Invocation;
use bowline_state::terminal::{Exit, signal_name};
use rustix::io::retry_on_intr;
use rustix::net::{RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, recvmsg};
use serde::{Deserialize, Serialize};

/// The longest line between the two, in bytes: what a command and its environment may be at most, as JSON.
pub(super) const MAX_LINE: usize = 16 * 1024 * 1024;

/// What a host says to a keeper.
pub(super) const KEEP: &str = "keep\n";

/// What asks a supervisor to end the command and everything it started. The end of the channel asks for the same.
pub(super) const KILL: &str = "kill\n";

/// How much a command and everything it starts may take.
///
/// What is none is not limited here. Limits that a process has of itself hold for every process of the command alone.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct ResourceLimits {
    /// How many processes there may be at the same time. More than these end the command.
    pub processes: Option<u64>,
    /// How many bytes of memory all processes may have in use together. More than these end the command.
    pub memory: Option<u64>,
    /// How many bytes of private memory a process may have: asking for more fails.
    pub memory_each: Option<u64>,
    /// How many files a process may have open.
    pub open_files: Option<u64>,
    /// How many processes the user may have in all, whoever started them.
    pub user_processes: Option<u64>,
}

impl Default for ResourceLimits {
    fn default() -> Self {
        let (memory, memory_each, user_processes) = (None, None, None);
        Self { processes: Some(4096), memory, memory_each, open_files: Some(65_536), user_processes }
    }
}

/// What a command may reach, where the kernel has to keep it in (Linux).
///
/// It may read and run whatever its user can. It may create, write, rename and remove only below `writable`, in a
/// directory for temporary files of its own, and on `/dev/null` and its terminal. Modes, owners and times of other
/// files of its user are not protected by this.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Confinement {
    /// The directories and files that it may change.
    pub writable: Vec<PathBuf>,
    /// Whether it may use the network. If not, it can open no sockets at all but pairs of them.
    pub network: bool,
}

/// The size of a pseudo-terminal, in characters.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Size {
    /// How many columns.
    pub columns: u16,
    /// How many rows.
    pub rows: u16,
}

impl Default for Size {
    fn default() -> Self {
        Self { columns: 80, rows: 24 }
    }
}

/// What a supervisor is to run.
#[derive(Debug, Serialize, Deserialize)]
pub(super) struct Job {
    /// The program and its arguments.
    pub(super) argv: Vec<String>,
    /// The whole environment.
    pub(super) env: Vec<(String, String)>,
    pub(super) pty: Option<Size>,
    /// What its standard input is.
    pub(super) input: Input,
    pub(super) limits: ResourceLimits,
    pub(super) confinement: Option<Confinement>,
    /// A directory for temporary files that is made for the command, and removed after it.
    pub(super) scratch: Option<PathBuf>,
    pub(super) grace: Duration,
}

impl Job {
    /// Says whether the supervisor may run another command afterwards: a pseudo-terminal takes its session, and a confined
    /// command shares nothing with another.
    pub(super) fn leaves_supervisor(&self) -> bool {
        self.pty.is_none() && self.confinement.is_none()
    }
}

/// What a command reads.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum Input {
    /// Nothing.
    Null,
    /// Its standard output, which is a socket.
    Output,
    /// A pipe of its own. Some programs take a socket that is both for closed as soon as something comes in.
    Pipe,
}

/// The descriptors of a command.
#[derive(Debug)]
pub(super) struct Descriptors {
    /// Where it runs.
    pub(super) directory: OwnedFd,
    pub(super) output: OwnedFd,
    pub(super) errors: OwnedFd,
    /// None unless [`Input::Pipe`] is set.
    pub(super) input: Option<OwnedFd>,
}

/// How many there are at most.
pub(super) const MAX_DESCRIPTORS: usize = 4;

impl Descriptors {
    /// Returns them in the order in which they are sent.
    pub(super) fn as_fds(&self) -> Vec<BorrowedFd<'_>> {
        let fixed = [&self.directory, &self.output, &self.errors];
        fixed.into_iter().chain(&self.input).map(|descriptor| descriptor.as_fd()).collect()
    }

    fn received(descriptors: Vec<OwnedFd>) -> Option<Self> {
        let mut descriptors = descriptors.into_iter();
        let (directory, output, errors) = (descriptors.next()?, descriptors.next()?, descriptors.next()?);
        Some(Self { directory, output, errors, input: descriptors.next() })
    }
}

/// What a supervisor is told.
pub(super) enum Order {
    /// To start another one, and to clean up should that be killed.
    Keep,
    /// To run a command.
    Run(Box<(Job, Descriptors)>),
    /// To end the command and everything it started.
    Kill,
}

/// The supervisor's end of the channel on which it is told something.
pub(super) struct Orders {
    channel: UnixStream,
    buffer: Vec<u8>,
    descriptors: Vec<OwnedFd>,
}

impl Orders {
    pub(super) fn new(channel: UnixStream) -> Self {
        Self { channel, buffer: Vec::new(), descriptors: Vec::new() }
    }

    /// Waits for the next order. There is none when the host is gone.
    pub(super) fn next(&mut self) -> io::Result<Option<Order>> {
        let mut searched = 0;
        let end = loop {
            if let Some(end) = memchr::memchr(b'\n', &self.buffer[searched..]) {
                break searched + end + 1;
            }
            searched = self.buffer.len();
            if searched > MAX_LINE {
                return Err(io::Error::other("the order is too long"));
            }
            if !self.receive()? {
                return Ok(None);
            }
        };
        let rest = self.buffer.split_off(end);
        let line = std::mem::replace(&mut self.buffer, rest);
        if line == KEEP.as_bytes() {
            return Ok(Some(Order::Keep));
        }
        if line == KILL.as_bytes() {
            return Ok(Some(Order::Kill));
        }
        let job = serde_json::from_slice(&line)?;
        // Another order may have come in one piece with a job and its descriptors.
        let descriptors = std::mem::take(&mut self.descriptors);
        let missing = || io::Error::other("the job came without its descriptors");
        let descriptors = Descriptors::received(descriptors).ok_or_else(missing)?;
        Ok(Some(Order::Run(Box::new((job, descriptors)))))
    }

    /// Takes in what comes next. Returns whether anything did.
    fn receive(&mut self) -> io::Result<bool> {
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

/// What a supervisor says.
#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum Report {
    /// It has the job. Without this nothing of the command can have run.
    Accepted,
    /// The command runs, under the supervisor with this process id.
    Started(i32),
    /// It does not.
    Failed(Failed),
    /// The command itself ended; others that it started may run.
    Exited(Ended),
    /// The command took too much, so it is being ended.
    Exceeded(String),
    /// Nothing of it runs any more.
    Gone,
}

/// Why a command was not started.
#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum Failed {
    /// There is no such program, or what it is to be run by.
    NotFound,
    /// It may not be executed.
    Denied,
    /// It cannot be confined.
    Unconfinable(String),
    /// The system refuses.
    System(String),
}

/// How a process ended.
#[derive(Debug, Clone, Copy, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum Ended {
    Code(i32),
    Signal(i32),
}

impl From<Ended> for Exit {
    fn from(ended: Ended) -> Self {
        match ended {
            Ended::Code(code) => Self::Code(code),
            Ended::Signal(number) => Self::Signal(signal_name(number)),
        }
    }
}

/// Returns the program and its arguments.
pub(super) fn argv(invocation: &Invocation, shell: &str) -> Vec<String> {
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
        let job = Job {
            argv: vec!["true".to_owned()],
            env: Vec::new(),
            pty: None,
            input: Input::Null,
            limits: ResourceLimits::default(),
            confinement: None,
            scratch: None,
            grace: Duration::ZERO,
        };
        let mut line = serde_json::to_vec(&job).unwrap();
        line.push(b'\n');
        // Both wait when the supervisor looks.
        host.write_all(KILL.as_bytes()).unwrap();
        let (one, other) = UnixStream::pair().unwrap();
        let fds = [one.as_fd(), other.as_fd(), one.as_fd()];
        let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(MAX_DESCRIPTORS))];
        let mut ancillary = SendAncillaryBuffer::new(&mut space);
        assert!(ancillary.push(SendAncillaryMessage::ScmRights(&fds)));
        sendmsg(&host, &[IoSlice::new(&line)], &mut ancillary, SendFlags::empty()).unwrap();
        let mut orders = Orders::new(channel);
        assert!(matches!(orders.next().unwrap(), Some(Order::Kill)));
        let Some(Order::Run(run)) = orders.next().unwrap() else { panic!("it is a job") };
        assert_eq!(run.0.argv, ["true"]);
        drop(host);
        assert!(orders.next().unwrap().is_none());
    }
}
