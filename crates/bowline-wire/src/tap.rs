//! Hearing every message of a connection as it was sent, both ways.

use std::io::{self, IoSlice};
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

/// Which way a message went.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Direction {
    /// From this side to the other.
    Sent,
    /// From the other side to this one.
    Received,
}

/// Whoever hears the messages of a connection.
pub trait Tap: Send + Sync {
    /// Hears a line without its newline, as soon as it is whole. What comes from the other side may be anything. It is
    /// called by whoever serves the connection, and should not take long.
    fn line(&self, direction: Direction, line: &[u8]);
}

/// One half of a stream that is listened to.
pub struct Tapped<S> {
    stream: S,
    tap: Arc<dyn Tap>,
    direction: Direction,
    // The start of a line. Invariant: at most `max_line` bytes and what one call brought.
    line: Vec<u8>,
    max_line: usize,
}

impl<S> Tapped<S> {
    /// Listens to a stream. A line that is longer than `max_line` is heard in pieces.
    pub fn new(stream: S, tap: Arc<dyn Tap>, direction: Direction, max_line: usize) -> Self {
        Self { stream, tap, direction, line: Vec::new(), max_line }
    }

    fn hear(&mut self, mut bytes: &[u8]) {
        while let Some(at) = memchr::memchr(b'\n', bytes) {
            let (end, rest) = (&bytes[..at], &bytes[at + 1..]);
            if self.line.is_empty() {
                self.tap.line(self.direction, end);
            } else {
                self.line.extend_from_slice(end);
                self.tap.line(self.direction, &self.line);
                self.line = Vec::new();
            }
            bytes = rest;
        }
        self.line.extend_from_slice(bytes);
        if self.line.len() > self.max_line {
            self.tap.line(self.direction, &self.line);
            self.line = Vec::new();
        }
    }
}

impl<S> Drop for Tapped<S> {
    fn drop(&mut self) {
        if !self.line.is_empty() {
            self.tap.line(self.direction, &self.line);
        }
    }
}

impl<R: AsyncRead + Unpin> AsyncRead for Tapped<R> {
    fn poll_read(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let this = self.get_mut();
        let before = buffer.filled().len();
        ready!(Pin::new(&mut this.stream).poll_read(cx, buffer))?;
        this.hear(&buffer.filled()[before..]);
        Poll::Ready(Ok(()))
    }
}

impl<W: AsyncWrite + Unpin> AsyncWrite for Tapped<W> {
    fn poll_write(self: Pin<&mut Self>, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        let this = self.get_mut();
        let written = ready!(Pin::new(&mut this.stream).poll_write(cx, bytes))?;
        this.hear(bytes.get(..written).unwrap_or(bytes));
        Poll::Ready(Ok(written))
    }

    fn poll_write_vectored(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        slices: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let this = self.get_mut();
        let written = ready!(Pin::new(&mut this.stream).poll_write_vectored(cx, slices))?;
        let mut left = written;
        for slice in slices {
            let part = left.min(slice.len());
            this.hear(&slice[..part]);
            left -= part;
        }
        Poll::Ready(Ok(written))
    }

    fn is_write_vectored(&self) -> bool {
        self.stream.is_write_vectored()
    }

    fn poll_flush(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.get_mut().stream).poll_flush(cx)
    }

    fn poll_shutdown(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.get_mut().stream).poll_shutdown(cx)
    }
}

#[cfg(test)]
mod tests;
