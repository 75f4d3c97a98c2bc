//! The one place where the host's side starts a process.

use std::ffi::OsString;
use std::io;
use std::os::fd::{AsRawFd as _, OwnedFd};
use std::os::unix::net::UnixStream as StdUnixStream;
use std::path::{Path, PathBuf};

use rustix::fs::fstat;
use tokio::net::UnixStream;
use tokio::net::unix::pipe;
use tokio::process::{Child, Command};

use super::companion::Streams;
use super::error::TerminalError;
use crate::workspace::WorkingDirectory;

/// The program that is started for every command, to own its processes: one that does nothing but return
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

/// A supervisor that was started.
#[derive(Debug)]
pub(super) struct Spawned {
    pub(super) child: Child,
    pub(super) control: UnixStream,
    pub(super) output: pipe::Receiver,
}

/// Starts a supervisor in a directory, which is the very one that was opened, whatever its name leads to by now.
pub(super) fn spawn(supervisor: &Supervisor, directory: &WorkingDirectory) -> io::Result<Spawned> {
    let (reader, writer) = io::pipe()?;
    let directory = format!("/proc/self/fd/{}", directory.handle.as_raw_fd());
    let (child, control) = launch(supervisor, directory.as_ref(), writer.try_clone()?.into(), writer.into())?;
    Ok(Spawned { child, control, output: pipe::Receiver::from_owned_fd(OwnedFd::from(reader))? })
}

/// Starts a supervisor of a program that is talked to.
pub(super) fn spawn_talking(
    supervisor: &Supervisor,
    directory: &Path,
) -> io::Result<(Child, UnixStream, Streams)> {
    let (talk, other) = StdUnixStream::pair()?;
    let (reader, writer) = io::pipe()?;
    let (child, control) = launch(supervisor, directory, other.into(), writer.into())?;
    let errors = pipe::Receiver::from_owned_fd(OwnedFd::from(reader))?;
    Ok((child, control, Streams { talk: driven(talk)?, errors }))
}

/// Starts a supervisor.
///
/// Its environment is empty: what a command is given must not work on its supervisor.
fn launch(
    supervisor: &Supervisor,
    directory: &Path,
    output: OwnedFd,
    errors: OwnedFd,
) -> io::Result<(Child, UnixStream)> {
    if !supervisor.program.is_absolute() {
        return Err(io::Error::new(io::ErrorKind::InvalidInput, "its program has to be an absolute path"));
    }
    let (ours, theirs) = StdUnixStream::pair()?;
    let mut command = Command::new(&supervisor.program);
    command.args(&supervisor.args).env_clear().current_dir(directory);
    command.stdin(OwnedFd::from(theirs)).stdout(output).stderr(errors);
    Ok((command.spawn()?, driven(ours)?))
}

/// Returns a socket that the runtime drives.
fn driven(socket: StdUnixStream) -> io::Result<UnixStream> {
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
