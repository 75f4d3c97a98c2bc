//! Standard input and output as streams that do not block a thread.
//!
//! An editor starts an agent with pipes or with sockets. Both can be waited for directly; anything else (a terminal, a
//! file) goes through tokio's blocking threads.

use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::net::UnixStream as StdUnixStream;

use rustix::fs::FileType;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::UnixStream;
use tokio::net::unix::pipe;

use crate::eager::Eager;

/// How large the kernel's buffer of a pipe is made, where that is allowed. Large messages then need fewer switches
/// between the two processes.
const PIPE_SIZE: usize = 1 << 20;

/// Opens standard input, and a second way to it where there is one.
pub(crate) fn reader() -> (Box<dyn AsyncRead + Unpin + Send>, Option<Eager>) {
    // Opening the pipe anew gives it a file description of its own. To make the inherited one non-blocking would
    // make it so for every process that shares it.
    if let Ok(pipe) = pipe::OpenOptions::new().open_receiver("/proc/self/fd/0") {
        widen(&pipe);
        let eager = pipe.as_fd().try_clone_to_owned().ok().map(Eager::new);
        return (Box::new(pipe), eager);
    }
    match socket(std::io::stdin().as_fd()) {
        Some(socket) => {
            let eager = socket.as_fd().try_clone_to_owned().ok().map(Eager::new);
            (Box::new(socket), eager)
        }
        None => (Box::new(tokio::io::stdin()), None),
    }
}

/// Opens standard input and output, for a protocol that somebody else speaks.
#[must_use]
pub fn streams() -> (Box<dyn AsyncRead + Unpin + Send>, Box<dyn AsyncWrite + Unpin + Send>) {
    (reader().0, writer())
}

/// Opens standard output.
pub(crate) fn writer() -> Box<dyn AsyncWrite + Unpin + Send> {
    if let Ok(pipe) = pipe::OpenOptions::new().open_sender("/proc/self/fd/1") {
        widen(&pipe);
        return Box::new(pipe);
    }
    match socket(std::io::stdout().as_fd()) {
        Some(socket) => Box::new(socket),
        None => Box::new(tokio::io::stdout()),
    }
}

/// Gives a pipe a larger buffer if the system lets us. It works with any size.
pub(crate) fn widen(pipe: &impl AsFd) {
    rustix::pipe::fcntl_setpipe_size(pipe, PIPE_SIZE).ok();
}

fn socket(fd: BorrowedFd<'_>) -> Option<UnixStream> {
    let kind = FileType::from_raw_mode(rustix::fs::fstat(fd).ok()?.st_mode);
    if kind != FileType::Socket {
        return None;
    }
    let socket = StdUnixStream::from(fd.try_clone_to_owned().ok()?);
    socket.local_addr().ok()?;
    socket.set_nonblocking(true).ok()?;
    UnixStream::from_std(socket).ok()
}
