//! The input and output of one end: splitting input into lines, and queueing output.
//!
//! Bytes are read into one buffer and leave it as slices of the same memory: forwarded bytes are not copied.

use std::collections::VecDeque;
use std::future::Future as _;
use std::io::{self, IoSlice};
use std::pin::{Pin, pin};
use std::task::{Context, Poll};

use bytes::{Buf as _, Bytes, BytesMut};
use memchr::memchr;
use tokio::io::{AsyncRead, AsyncReadExt as _, AsyncWrite};

/// The buffer space for one read, for small messages and while a large one is arriving.
const READ_SIZES: [usize; 2] = [64 << 10, 1 << 20];

/// The most slices in one vectored write.
const MAX_WRITE_SLICES: usize = 32;

/// The reader of an end.
pub type BoxReader = Box<dyn AsyncRead + Unpin + Send>;

/// The writer of an end.
pub type BoxWriter = Box<dyn AsyncWrite + Unpin + Send>;

/// The input of one end.
pub(crate) struct LineInput {
    // `None` once the input has ended.
    reader: Option<BoxReader>,
    // Invariant: forwarded <= scanned <= bytes.len(). The bytes before `forwarded` are forwarded together. Once
    // `next_chunk` has returned `None`, there is no newline between `forwarded` and `scanned`.
    bytes: BytesMut,
    forwarded: usize,
    scanned: usize,
    // Whether the line at `forwarded` is the rest of a long one.
    in_long_line: bool,
}

/// A part of the input, given as its length from the end of the previous part.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum LineChunk {
    /// A line with its line end; the last one may lack it.
    Line(usize),
    /// The beginning of a line that is too long to be inspected.
    LongBegins(usize),
    /// A further part of the long line.
    More(usize),
    /// The last part of the long line.
    LongEnds(usize),
}

impl LineInput {
    pub(crate) fn new(reader: BoxReader) -> Self {
        Self { reader: Some(reader), bytes: BytesMut::new(), forwarded: 0, scanned: 0, in_long_line: false }
    }

    /// Returns whether the input has ended.
    pub(crate) fn has_ended(&self) -> bool {
        self.reader.is_none()
    }

    /// Returns whether all input has been taken.
    pub(crate) fn is_empty(&self) -> bool {
        self.bytes.is_empty()
    }

    /// Stops reading.
    pub(crate) fn stop(&mut self) {
        self.reader = None;
    }

    /// Reads once. Ready means that bytes arrived or the input ended.
    pub(crate) fn poll_read(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        let Some(reader) = &mut self.reader else { return Poll::Pending };
        let [small, large] = READ_SIZES;
        if self.bytes.is_empty() {
            // The slices taken from the old buffer keep its memory alive.
            self.bytes = BytesMut::new();
        }
        let additional = if self.bytes.len() >= small { large } else { small };
        self.bytes.reserve(additional);
        match pin!(reader.read_buf(&mut self.bytes)).poll(cx) {
            Poll::Pending => Poll::Pending,
            Poll::Ready(Ok(1..)) => Poll::Ready(()),
            // A read error counts as the end.
            Poll::Ready(_) => {
                self.reader = None;
                Poll::Ready(())
            }
        }
    }

    /// Returns the next part, if any. An incomplete line is returned only if it is longer than `max_line` or the last one.
    pub(crate) fn next_chunk(&mut self, max_line: usize) -> Option<LineChunk> {
        if let Some(at) = memchr(b'\n', &self.bytes[self.scanned..]) {
            let length = self.scanned + at + 1 - self.forwarded;
            let is_long = std::mem::take(&mut self.in_long_line);
            return Some(if is_long { LineChunk::LongEnds(length) } else { LineChunk::Line(length) });
        }
        self.scanned = self.bytes.len();
        let length = self.bytes.len() - self.forwarded;
        match (self.in_long_line, self.has_ended()) {
            (_, _) if length == 0 => None,
            (true, true) => {
                self.in_long_line = false;
                Some(LineChunk::LongEnds(length))
            }
            (true, false) => Some(LineChunk::More(length)),
            (false, true) => Some(LineChunk::Line(length)),
            (false, false) if length > max_line => {
                self.in_long_line = true;
                Some(LineChunk::LongBegins(length))
            }
            (false, false) => None,
        }
    }

    /// Returns the bytes of the next part.
    pub(crate) fn chunk_bytes(&self, length: usize) -> &[u8] {
        &self.bytes[self.forwarded..self.forwarded + length]
    }

    /// Marks the next part to be forwarded together with those before it.
    pub(crate) fn forward(&mut self, length: usize) {
        self.forwarded += length;
        self.scanned = self.forwarded.max(self.scanned);
    }

    /// Takes all bytes that are marked to be forwarded, if any.
    pub(crate) fn take_forwarded(&mut self) -> Option<Bytes> {
        (self.forwarded > 0).then(|| {
            self.scanned -= self.forwarded;
            self.bytes.split_to(std::mem::take(&mut self.forwarded)).freeze()
        })
    }

    /// Takes the next part. The forwarded bytes before it must have been taken.
    pub(crate) fn take_chunk(&mut self, length: usize) -> Bytes {
        self.scanned = self.scanned.saturating_sub(length);
        self.bytes.split_to(length).freeze()
    }
}

/// The output queue of one end.
pub(crate) struct OutputQueue {
    // `None` once it is closed or broken: later pushes are discarded.
    writer: Option<BoxWriter>,
    pieces: VecDeque<Bytes>,
    size: usize,
    // Whether the last pushed byte ended a line.
    is_at_line_start: bool,
    needs_flush: bool,
    is_closing: bool,
}

impl OutputQueue {
    pub(crate) fn new(writer: BoxWriter) -> Self {
        Self {
            writer: Some(writer),
            pieces: VecDeque::new(),
            size: 0,
            is_at_line_start: true,
            needs_flush: false,
            is_closing: false,
        }
    }

    /// Returns the number of queued bytes.
    pub(crate) fn size(&self) -> usize {
        self.size
    }

    /// Returns whether the output is closed.
    pub(crate) fn is_closed(&self) -> bool {
        self.writer.is_none()
    }

    /// Appends bytes: whole lines, or the parts of one.
    pub(crate) fn push(&mut self, bytes: Bytes) {
        if let (Some(last), Some(_)) = (bytes.last(), &self.writer) {
            self.is_at_line_start = *last == b'\n';
            self.size += bytes.len();
            self.pieces.push_back(bytes);
        }
    }

    /// Appends a line of our own, and first ends a line that was left incomplete.
    pub(crate) fn push_line(&mut self, mut line: Vec<u8>) {
        if line.last() != Some(&b'\n') {
            line.push(b'\n');
        }
        if !self.is_at_line_start {
            line.insert(0, b'\n');
        }
        self.push(line.into());
    }

    /// Ends the line, if it is incomplete.
    pub(crate) fn end_line(&mut self) {
        if !self.is_at_line_start {
            self.push(Bytes::from_static(b"\n"));
        }
    }

    /// Closes the output once everything is written.
    pub(crate) fn close(&mut self) {
        self.is_closing = true;
    }

    /// Writes as much as possible without blocking. Returns whether there was progress.
    pub(crate) fn write_available(&mut self, cx: &mut Context<'_>) -> bool {
        let mut has_moved = false;
        while !self.pieces.is_empty() {
            match self.poll_write_once(cx) {
                Poll::Pending => break,
                Poll::Ready(Ok(written)) if written > 0 => {
                    has_moved = true;
                    self.needs_flush = true;
                    self.consume(written);
                }
                // A write error means that the peer is gone.
                Poll::Ready(_) => {
                    self.abandon();
                    return true;
                }
            }
        }
        let Some(writer) = &mut self.writer else { return has_moved };
        if self.needs_flush && Pin::new(&mut *writer).poll_flush(cx).is_ready() {
            self.needs_flush = false;
        }
        if self.is_closing && self.pieces.is_empty() && !self.needs_flush {
            // The shutdown need not complete: dropping the writer closes it.
            drop(Pin::new(writer).poll_shutdown(cx));
            self.writer = None;
            has_moved = true;
        }
        has_moved
    }

    /// Closes the output, and discards the queue.
    pub(crate) fn abandon(&mut self) {
        self.writer = None;
        self.pieces.clear();
        self.size = 0;
    }

    fn poll_write_once(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<usize>> {
        let Some(writer) = &mut self.writer else { return Poll::Ready(Ok(0)) };
        let mut slices = [IoSlice::new(&[]); MAX_WRITE_SLICES];
        let mut filled = 0;
        for (slice, piece) in slices.iter_mut().zip(&self.pieces) {
            *slice = IoSlice::new(piece);
            filled += 1;
        }
        match &slices[..filled] {
            [piece] => Pin::new(writer).poll_write(cx, piece),
            pieces => Pin::new(writer).poll_write_vectored(cx, pieces),
        }
    }

    fn consume(&mut self, mut written: usize) {
        self.size -= written.min(self.size);
        while let Some(first) = self.pieces.front_mut() {
            if written < first.len() {
                first.advance(written);
                return;
            }
            written -= first.len();
            self.pieces.pop_front();
        }
    }
}

#[cfg(test)]
mod tests;
