//! Standard input and output as streams that do not block a thread.
//!
//! An editor starts an agent with pipes or with sockets. Both can be waited for directly; anything else (a terminal, a
//! file) goes through tokio's blocking threads. A pipe is reopened through `/proc/self/fd`, so that making it
//! non-blocking does not change the file description that other processes share.

use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::net::UnixStream as StdUnixStream;

use rustix::fs::FileType;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::UnixStream;
use tokio::net::unix::pipe;

use crate::stream::eager_reader::EagerReader;

/// The size to which the kernel's buffer of a pipe is raised, where allowed. Large messages then need fewer switches
/// between the two processes.
const PIPE_CAPACITY: usize = 1 << 20;

/// Opens standard input, with an eager reader where possible.
pub(crate) fn open_stdin() -> (Box<dyn AsyncRead + Unpin + Send>, Option<EagerReader>) {
    // Reopening the pipe gives it a separate file description. Making the inherited one non-blocking would affect
    // every process that shares it.
    if let Ok(pipe) = pipe::OpenOptions::new().open_receiver("/proc/self/fd/0") {
        widen_pipe(&pipe);
        let eager_reader = pipe.as_fd().try_clone_to_owned().ok().map(EagerReader::new);
        return (Box::new(pipe), eager_reader);
    }
    match open_socket(std::io::stdin().as_fd()) {
        Some(socket) => {
            let eager_reader = socket.as_fd().try_clone_to_owned().ok().map(EagerReader::new);
            (Box::new(socket), eager_reader)
        }
        None => (Box::new(tokio::io::stdin()), None),
    }
}

/// Opens standard input and output, for a protocol implemented elsewhere.
#[must_use]
pub fn standard_streams() -> (Box<dyn AsyncRead + Unpin + Send>, Box<dyn AsyncWrite + Unpin + Send>) {
    (open_stdin().0, open_stdout())
}

/// Opens standard output.
pub(crate) fn open_stdout() -> Box<dyn AsyncWrite + Unpin + Send> {
    if let Ok(pipe) = pipe::OpenOptions::new().open_sender("/proc/self/fd/1") {
        widen_pipe(&pipe);
        return Box::new(pipe);
    }
    match open_socket(std::io::stdout().as_fd()) {
        Some(socket) => Box::new(socket),
        None => Box::new(tokio::io::stdout()),
    }
}

/// Enlarges a pipe's buffer if the system allows it. Any size works.
pub(crate) fn widen_pipe(pipe: &impl AsFd) {
    rustix::pipe::fcntl_setpipe_size(pipe, PIPE_CAPACITY).ok();
}

fn open_socket(fd: BorrowedFd<'_>) -> Option<UnixStream> {
    let kind = FileType::from_raw_mode(rustix::fs::fstat(fd).ok()?.st_mode);
    if kind != FileType::Socket {
        return None;
    }
    let socket = StdUnixStream::from(fd.try_clone_to_owned().ok()?);
    socket.local_addr().ok()?;
    socket.set_nonblocking(true).ok()?;
    UnixStream::from_std(socket).ok()
}
