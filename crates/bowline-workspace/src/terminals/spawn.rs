//! The spawning of supervisors, which are the only processes the host starts, and the pool of idle ones.
//!
//! A session keeps at most two idle supervisors, for 30 seconds by default. Confined commands and concurrent
//! ones get a new one.

use std::ffi::OsString;
use std::io::{self, IoSlice};
use std::mem::MaybeUninit;
use std::os::fd::{BorrowedFd, OwnedFd};
use std::os::unix::net::UnixStream as StdUnixStream;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use rustix::fs::fstat;
use rustix::net::{SendAncillaryBuffer, SendAncillaryMessage, SendFlags, sendmsg};
use rustix::process::Pid;
use tokio::io::{AsyncBufReadExt as _, BufReader, Interest, Lines};
use tokio::net::UnixStream;
use tokio::process::{Child, Command};
use tokio::time::{Instant, sleep};

use super::error::TerminalError;
use super::protocol::{
    CommandDescriptors, CommandJob, KEEP_MESSAGE, KILL_MESSAGE, MAX_DESCRIPTORS, SupervisorReport,
};
use crate::workspace::WorkingDirectory;

/// The maximum number of idle supervisors. A session rarely runs more commands at the same time.
const MAX_IDLE_SUPERVISORS: usize = 2;

/// The program that owns the processes of commands: given these arguments, it only calls
/// [`supervisor::main`](super::supervisor::main) and returns its exit code.
///
/// It can be the embedding program itself, if that checks its arguments first thing in `main`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SupervisorProgram {
    /// The absolute path of the program.
    pub program: PathBuf,
    /// Its arguments.
    pub args: Vec<OsString>,
}

impl SupervisorProgram {
    /// Returns a supervisor program with its arguments.
    pub fn new<A: Into<OsString>>(program: impl Into<PathBuf>, args: impl IntoIterator<Item = A>) -> Self {
        Self { program: program.into(), args: args.into_iter().map(Into::into).collect() }
    }
}

/// A supervisor and its keeper. Dropping this ends both, and their command.
#[derive(Debug)]
pub(super) struct SupervisorProcess {
    keeper: Child,
    // Closing it notifies the keeper that the host is gone.
    _alive: StdUnixStream,
    reports: Lines<BufReader<UnixStream>>,
    is_reused: bool,
}

impl SupervisorProcess {
    /// Starts the keeper and its supervisor.
    ///
    /// Their environment is empty: a command's variables must not affect its supervisor.
    pub(super) fn start(supervisor: &SupervisorProgram) -> io::Result<Self> {
        if !supervisor.program.is_absolute() {
            return Err(io::Error::new(
                io::ErrorKind::InvalidInput,
                "its program has to be an absolute path",
            ));
        }
        let (alive, keepers) = StdUnixStream::pair()?;
        io::Write::write_all(&mut &alive, KEEP_MESSAGE.as_bytes())?;
        let (control, theirs) = StdUnixStream::pair()?;
        let mut command = Command::new(&supervisor.program);
        command.args(&supervisor.args).env_clear().current_dir("/");
        command
            .stdin(OwnedFd::from(keepers))
            .stdout(OwnedFd::from(theirs))
            .stderr(std::process::Stdio::null());
        let keeper = command.spawn()?;
        let reports = BufReader::new(to_tokio_stream(control)?).lines();
        Ok(Self { keeper, _alive: alive, reports, is_reused: false })
    }

    /// Sends a command to run.
    pub(super) async fn send_job(
        &mut self,
        job: &CommandJob,
        descriptors: &CommandDescriptors,
    ) -> io::Result<()> {
        let mut line = serde_json::to_vec(job)?;
        line.push(b'\n');
        let descriptors = descriptors.as_fds();
        let control = self.control();
        let mut sent = 0;
        while sent < line.len() {
            // The descriptors accompany the first bytes.
            let descriptors = if sent == 0 { &descriptors[..] } else { &[] };
            let send = || send_with_descriptors(control, &line[sent..], descriptors);
            sent += control.async_io(Interest::WRITABLE, send).await?;
        }
        Ok(())
    }

    /// Kills the running command and everything it started.
    pub(super) fn kill(&mut self) {
        // The channel has room for so short a message; a closed channel is detected elsewhere.
        self.control().try_write(KILL_MESSAGE.as_bytes()).map_or_else(drop, drop);
    }

    /// Returns the supervisor's next report, or `None` if it has exited or does not speak the protocol.
    pub(super) async fn next_report(&mut self) -> Option<SupervisorReport> {
        let line = self.reports.next_line().await.ok()??;
        serde_json::from_str(&line).ok()
    }

    /// Returns the keeper's process id, until the keeper has been reaped.
    pub(super) fn keeper_id(&self) -> Option<Pid> {
        self.keeper.id().and_then(|id| Pid::from_raw(i32::try_from(id).ok()?))
    }

    /// Returns the keeper.
    pub(super) fn keeper(&mut self) -> &mut Child {
        &mut self.keeper
    }

    /// Shuts both down, and waits for their exit.
    pub(super) async fn shut_down(self) {
        let Self { mut keeper, _alive: alive, reports, is_reused: _ } = self;
        drop((alive, reports));
        keeper.wait().await.map_or_else(drop, drop);
    }

    /// Returns whether the supervisor was idle before this command: it may have been killed meanwhile.
    pub(super) fn is_reused(&self) -> bool {
        self.is_reused
    }

    /// Returns whether the keeper runs. Only an accepted job shows that the supervisor does.
    fn is_keeper_running(&mut self) -> bool {
        matches!(self.keeper.try_wait(), Ok(None))
    }

    fn control(&mut self) -> &UnixStream {
        self.reports.get_ref().get_ref()
    }
}

fn send_with_descriptors(
    control: &UnixStream,
    bytes: &[u8],
    descriptors: &[BorrowedFd<'_>],
) -> io::Result<usize> {
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(MAX_DESCRIPTORS))];
    let mut ancillary = SendAncillaryBuffer::new(&mut space);
    if !descriptors.is_empty() && !ancillary.push(SendAncillaryMessage::ScmRights(descriptors)) {
        return Err(io::Error::other("there are too many descriptors"));
    }
    Ok(sendmsg(control, &[IoSlice::new(bytes)], &mut ancillary, SendFlags::NOSIGNAL)?)
}

/// The idle supervisors of a session.
#[derive(Debug)]
pub(super) struct SupervisorPool {
    supervisor: SupervisorProgram,
    // How long an idle supervisor waits for the next command.
    idle_timeout: Duration,
    // Oldest first. `None` once the session has ended.
    idle: Mutex<Option<Vec<IdleSupervisor>>>,
}

#[derive(Debug)]
struct IdleSupervisor {
    process: SupervisorProcess,
    since: Instant,
}

impl SupervisorPool {
    pub(super) fn new(supervisor: SupervisorProgram, patience: Duration) -> Self {
        Self { supervisor, idle_timeout: patience, idle: Mutex::new(Some(Vec::new())) }
    }

    /// Returns an idle supervisor, or starts one.
    pub(super) fn take_or_start(&self) -> io::Result<SupervisorProcess> {
        while let Some(mut process) = self.pop() {
            if process.is_keeper_running() {
                process.is_reused = true;
                return Ok(process);
            }
        }
        self.start()
    }

    /// Starts a fresh supervisor.
    pub(super) fn start(&self) -> io::Result<SupervisorProcess> {
        SupervisorProcess::start(&self.supervisor)
    }

    /// Takes back an idle supervisor, or returns it if there are enough. It ends after the idle timeout.
    pub(super) fn return_idle(self: &Arc<Self>, process: SupervisorProcess) -> Option<SupervisorProcess> {
        match &mut *self.idle() {
            Some(idle) if idle.len() < MAX_IDLE_SUPERVISORS => {
                idle.push(IdleSupervisor { process, since: Instant::now() });
            }
            _ => return Some(process),
        }
        let (pool, patience) = (Arc::downgrade(self), self.idle_timeout);
        bowline_task::spawn(async move {
            sleep(patience).await;
            let expired = pool.upgrade().map(|pool| pool.take_expired()).unwrap_or_default();
            for process in expired {
                process.shut_down().await;
            }
        });
        None
    }

    /// Closes the pool, and returns the idle supervisors.
    pub(super) fn close(&self) -> Vec<SupervisorProcess> {
        let idle = self.idle().take().unwrap_or_default();
        idle.into_iter().map(|idle| idle.process).collect()
    }

    fn take_expired(&self) -> Vec<SupervisorProcess> {
        let mut guard = self.idle();
        let Some(idle) = &mut *guard else { return Vec::new() };
        let is_expired = |idle: &mut IdleSupervisor| idle.since.elapsed() >= self.idle_timeout;
        idle.extract_if(.., is_expired).map(|idle| idle.process).collect()
    }

    fn pop(&self) -> Option<SupervisorProcess> {
        self.idle().as_mut()?.pop().map(|idle| idle.process)
    }

    fn idle(&self) -> MutexGuard<'_, Option<Vec<IdleSupervisor>>> {
        self.idle.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Returns a socket driven by the tokio runtime.
pub(super) fn to_tokio_stream(socket: StdUnixStream) -> io::Result<UnixStream> {
    socket.set_nonblocking(true)?;
    UnixStream::from_std(socket)
}

/// Checks that the directory still exists: a command should not run in a removed one.
pub(super) fn check_directory(directory: &WorkingDirectory) -> Result<(), TerminalError> {
    match fstat(&directory.handle) {
        Ok(stat) if stat.st_nlink > 0 => Ok(()),
        _ => Err(TerminalError::DirectoryRemoved(directory.path.clone())),
    }
}
