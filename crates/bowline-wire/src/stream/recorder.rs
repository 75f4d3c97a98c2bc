//! Recording of every message of a connection, in both directions.

use std::io::{self, IoSlice};
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

/// The direction of a message.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Direction {
    /// From this side to the other.
    Sent,
    /// From the other side to this one.
    Received,
}

/// A recorder of the messages of a connection.
pub trait WireRecorder: Send + Sync {
    /// Records a line without its newline, as soon as it is complete. Lines from the other side may hold anything. It
    /// is called on the connection's task, and should be quick.
    fn record_line(&self, direction: Direction, line: &[u8]);
}

/// One half of a stream, with a recorder if its messages are recorded.
pub struct RecordedStream<S> {
    stream: S,
    recorder: Option<Arc<dyn WireRecorder>>,
    direction: Direction,
    // The start of a line. Invariant: at most `max_line` bytes plus those of one call.
    line: Vec<u8>,
    max_line: usize,
}

impl<S> RecordedStream<S> {
    /// Wraps a stream. A line longer than `max_line` is recorded in pieces.
    pub fn new(
        stream: S,
        recorder: Option<Arc<dyn WireRecorder>>,
        direction: Direction,
        max_line: usize,
    ) -> Self {
        Self { stream, recorder, direction, line: Vec::new(), max_line }
    }

    fn record_bytes(&mut self, mut bytes: &[u8]) {
        let Some(recorder) = &self.recorder else { return };
        while let Some(at) = memchr::memchr(b'\n', bytes) {
            let (end, rest) = (&bytes[..at], &bytes[at + 1..]);
            if self.line.is_empty() {
                recorder.record_line(self.direction, end);
            } else {
                self.line.extend_from_slice(end);
                recorder.record_line(self.direction, &self.line);
                self.line = Vec::new();
            }
            bytes = rest;
        }
        self.line.extend_from_slice(bytes);
        if self.line.len() > self.max_line {
            recorder.record_line(self.direction, &self.line);
            self.line = Vec::new();
        }
    }
}

impl<S> Drop for RecordedStream<S> {
    fn drop(&mut self) {
        if let Some(recorder) = &self.recorder
            && !self.line.is_empty()
        {
            recorder.record_line(self.direction, &self.line);
        }
    }
}

impl<R: AsyncRead + Unpin> AsyncRead for RecordedStream<R> {
    fn poll_read(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let this = self.get_mut();
        let before = buffer.filled().len();
        ready!(Pin::new(&mut this.stream).poll_read(cx, buffer))?;
        this.record_bytes(&buffer.filled()[before..]);
        Poll::Ready(Ok(()))
    }
}

impl<W: AsyncWrite + Unpin> AsyncWrite for RecordedStream<W> {
    fn poll_write(self: Pin<&mut Self>, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        let this = self.get_mut();
        let written = ready!(Pin::new(&mut this.stream).poll_write(cx, bytes))?;
        this.record_bytes(bytes.get(..written).unwrap_or(bytes));
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
            this.record_bytes(&slice[..part]);
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
