//! The one place where the host's side starts a process, and the supervisors that wait for their next command.

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
use super::job::{Descriptors, Job, KEEP, KILL, MAX_DESCRIPTORS, Report};
use crate::workspace::WorkingDirectory;

/// So many supervisors wait for a command. A session rarely runs more at the same time.
const MAX_IDLE: usize = 2;

/// The program that owns the processes of commands: one that does nothing but return
/// [`supervisor::main`](super::supervisor::main) when it is given these arguments.
///
/// It can be the embedding program itself, which looks at its arguments first thing in `main`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Supervisor {
    /// The program: an absolute path.
    pub program: PathBuf,
    /// Its arguments.
    pub args: Vec<OsString>,
}

impl Supervisor {
    /// Returns the supervisor that a program becomes with some arguments.
    pub fn new<A: Into<OsString>>(program: impl Into<PathBuf>, args: impl IntoIterator<Item = A>) -> Self {
        Self { program: program.into(), args: args.into_iter().map(Into::into).collect() }
    }
}

/// A supervisor and its keeper. If this is dropped, they end, and what they run with them.
#[derive(Debug)]
pub(super) struct SupervisorProcess {
    keeper: Child,
    // Its end tells the keeper that the host is gone.
    _alive: StdUnixStream,
    reports: Lines<BufReader<UnixStream>>,
    is_reused: bool,
}

impl SupervisorProcess {
    /// Starts them.
    ///
    /// Their environment is empty: what a command is given must not work on its supervisor.
    pub(super) fn start(supervisor: &Supervisor) -> io::Result<Self> {
        if !supervisor.program.is_absolute() {
            return Err(io::Error::new(
                io::ErrorKind::InvalidInput,
                "its program has to be an absolute path",
            ));
        }
        let (alive, keepers) = StdUnixStream::pair()?;
        io::Write::write_all(&mut &alive, KEEP.as_bytes())?;
        let (control, theirs) = StdUnixStream::pair()?;
        let mut command = Command::new(&supervisor.program);
        command.args(&supervisor.args).env_clear().current_dir("/");
        command
            .stdin(OwnedFd::from(keepers))
            .stdout(OwnedFd::from(theirs))
            .stderr(std::process::Stdio::null());
        let keeper = command.spawn()?;
        let reports = BufReader::new(driven(control)?).lines();
        Ok(Self { keeper, _alive: alive, reports, is_reused: false })
    }

    /// Has a command run.
    pub(super) async fn run(&mut self, job: &Job, descriptors: &Descriptors) -> io::Result<()> {
        let mut line = serde_json::to_vec(job)?;
        line.push(b'\n');
        let descriptors = descriptors.as_fds();
        let control = self.control();
        let mut sent = 0;
        while sent < line.len() {
            // They go with the first bytes.
            let descriptors = if sent == 0 { &descriptors[..] } else { &[] };
            let send = || send(control, &line[sent..], descriptors);
            sent += control.async_io(Interest::WRITABLE, send).await?;
        }
        Ok(())
    }

    /// Has the command ended that runs, with everything it started.
    pub(super) fn kill(&mut self) {
        // The channel has room for so little; if it is closed, that is seen elsewhere.
        self.control().try_write(KILL.as_bytes()).map_or_else(drop, drop);
    }

    /// Returns what the supervisor says next; none when it has ended, or is no supervisor.
    pub(super) async fn report(&mut self) -> Option<Report> {
        let line = self.reports.next_line().await.ok()??;
        serde_json::from_str(&line).ok()
    }

    /// Returns the keeper's process id, as long as it is its own.
    pub(super) fn id(&self) -> Option<Pid> {
        self.keeper.id().and_then(|id| Pid::from_raw(i32::try_from(id).ok()?))
    }

    /// Returns the keeper.
    pub(super) fn keeper(&mut self) -> &mut Child {
        &mut self.keeper
    }

    /// Lets both end, and waits until they have.
    pub(super) async fn end(self) {
        let Self { mut keeper, _alive: alive, reports, is_reused: _ } = self;
        drop((alive, reports));
        keeper.wait().await.map_or_else(drop, drop);
    }

    /// Says whether it waited for this command: it may have been killed meanwhile.
    pub(super) fn is_reused(&self) -> bool {
        self.is_reused
    }

    /// Says whether the keeper runs. Whether the supervisor does shows only when it accepts a job.
    fn is_kept(&mut self) -> bool {
        matches!(self.keeper.try_wait(), Ok(None))
    }

    fn control(&mut self) -> &UnixStream {
        self.reports.get_ref().get_ref()
    }
}

fn send(control: &UnixStream, bytes: &[u8], descriptors: &[BorrowedFd<'_>]) -> io::Result<usize> {
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(MAX_DESCRIPTORS))];
    let mut ancillary = SendAncillaryBuffer::new(&mut space);
    if !descriptors.is_empty() && !ancillary.push(SendAncillaryMessage::ScmRights(descriptors)) {
        return Err(io::Error::other("there are too many descriptors"));
    }
    Ok(sendmsg(control, &[IoSlice::new(bytes)], &mut ancillary, SendFlags::NOSIGNAL)?)
}

/// The supervisors of a session that have nothing to do.
#[derive(Debug)]
pub(super) struct SupervisorPool {
    supervisor: Supervisor,
    // How long one waits for the next command.
    patience: Duration,
    // Oldest first. None when the session has ended.
    idle: Mutex<Option<Vec<IdleSupervisor>>>,
}

#[derive(Debug)]
struct IdleSupervisor {
    process: SupervisorProcess,
    since: Instant,
}

impl SupervisorPool {
    pub(super) fn new(supervisor: Supervisor, patience: Duration) -> Self {
        Self { supervisor, patience, idle: Mutex::new(Some(Vec::new())) }
    }

    /// Returns a supervisor that waits for a command, or starts one.
    pub(super) fn take(&self) -> io::Result<SupervisorProcess> {
        while let Some(mut process) = self.pop() {
            if process.is_kept() {
                process.is_reused = true;
                return Ok(process);
            }
        }
        self.start()
    }

    /// Starts a supervisor that has run nothing yet.
    pub(super) fn start(&self) -> io::Result<SupervisorProcess> {
        SupervisorProcess::start(&self.supervisor)
    }

    /// Takes back a supervisor that has nothing to do, or returns it if there are enough. It ends if it waits too long.
    pub(super) fn give_back(self: &Arc<Self>, process: SupervisorProcess) -> Option<SupervisorProcess> {
        match &mut *self.idle() {
            Some(idle) if idle.len() < MAX_IDLE => {
                idle.push(IdleSupervisor { process, since: Instant::now() });
            }
            _ => return Some(process),
        }
        let (pool, patience) = (Arc::downgrade(self), self.patience);
        tokio::spawn(async move {
            sleep(patience).await;
            let expired = pool.upgrade().map(|pool| pool.take_expired()).unwrap_or_default();
            for process in expired {
                process.end().await;
            }
        });
        None
    }

    /// Takes none back any more, and returns those that were waiting.
    pub(super) fn close(&self) -> Vec<SupervisorProcess> {
        let idle = self.idle().take().unwrap_or_default();
        idle.into_iter().map(|idle| idle.process).collect()
    }

    fn take_expired(&self) -> Vec<SupervisorProcess> {
        let mut guard = self.idle();
        let Some(idle) = &mut *guard else { return Vec::new() };
        let is_expired = |idle: &mut IdleSupervisor| idle.since.elapsed() >= self.patience;
        idle.extract_if(.., is_expired).map(|idle| idle.process).collect()
    }

    fn pop(&self) -> Option<SupervisorProcess> {
        self.idle().as_mut()?.pop().map(|idle| idle.process)
    }

    fn idle(&self) -> MutexGuard<'_, Option<Vec<IdleSupervisor>>> {
        self.idle.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Returns a socket that the runtime drives.
pub(super) fn driven(socket: StdUnixStream) -> io::Result<UnixStream> {
    socket.set_nonblocking(true)?;
    UnixStream::from_std(socket)
}

/// Says whether the directory is still one: a command should not run where nothing can be found any more.
pub(super) fn check_directory(directory: &WorkingDirectory) -> Result<(), TerminalError> {
    match fstat(&directory.handle) {
        Ok(stat) if stat.st_nlink > 0 => Ok(()),
        _ => Err(TerminalError::DirectoryRemoved(directory.path.clone())),
    }
}
