//! The bytes of one end: lines out of what comes in, and what waits to be written.
//!
//! Bytes are read into one buffer, and leave it as parts of the same memory: what is passed on is not copied.

use std::collections::VecDeque;
use std::future::Future as _;
use std::io::{self, IoSlice};
use std::pin::{Pin, pin};
use std::task::{Context, Poll};

use bytes::{Buf as _, Bytes, BytesMut};
use memchr::memchr;
use tokio::io::{AsyncRead, AsyncReadExt as _, AsyncWrite};

/// Room for one read of small messages, and while a large one is coming in.
const READ: [usize; 2] = [64 << 10, 1 << 20];

/// So many pieces go into one write.
const SLICES: usize = 32;

/// A reader of an end.
pub type Reader = Box<dyn AsyncRead + Unpin + Send>;

/// A writer of an end.
pub type Writer = Box<dyn AsyncWrite + Unpin + Send>;

/// What comes in at one end.
pub(crate) struct Input {
    // None once nothing more comes.
    reader: Option<Reader>,
    // Invariant: passed <= scanned <= bytes.len(). What is before `passed` goes on together; there is no newline in what is
    // between `passed` and `scanned`, once `next` has returned none.
    bytes: BytesMut,
    passed: usize,
    scanned: usize,
    // Whether the line at `passed` is the rest of a long one.
    is_long: bool,
}

/// A part of what came in; its length counts from the end of the part before it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Piece {
    /// A line with its end; without one if it is the last.
    Line(usize),
    /// The beginning of a line that is longer than is looked at.
    LongBegins(usize),
    /// More of it.
    More(usize),
    /// The last of it.
    LongEnds(usize),
}

impl Input {
    pub(crate) fn new(reader: Reader) -> Self {
        Self { reader: Some(reader), bytes: BytesMut::new(), passed: 0, scanned: 0, is_long: false }
    }

    /// Says whether nothing more comes.
    pub(crate) fn has_ended(&self) -> bool {
        self.reader.is_none()
    }

    /// Says whether all that came has gone on.
    pub(crate) fn is_empty(&self) -> bool {
        self.bytes.is_empty()
    }

    /// Reads no more.
    pub(crate) fn end(&mut self) {
        self.reader = None;
    }

    /// Reads once. Ready says that something came, or that the end did.
    pub(crate) fn poll_read(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        let Some(reader) = &mut self.reader else { return Poll::Pending };
        let [small, large] = READ;
        if self.bytes.is_empty() {
            // What was given out of it goes with who has it.
            self.bytes = BytesMut::new();
        }
        let room = if self.bytes.len() >= small { large } else { small };
        self.bytes.reserve(room);
        match pin!(reader.read_buf(&mut self.bytes)).poll(cx) {
            Poll::Pending => Poll::Pending,
            Poll::Ready(Ok(1..)) => Poll::Ready(()),
            // A reader that fails has no more to say than one that has ended.
            Poll::Ready(_) => {
                self.reader = None;
                Poll::Ready(())
            }
        }
    }

    /// Returns the next part, if there is one; of a line without an end none, unless it is longer than `look` or the last.
    pub(crate) fn next(&mut self, look: usize) -> Option<Piece> {
        if let Some(at) = memchr(b'\n', &self.bytes[self.scanned..]) {
            let length = self.scanned + at + 1 - self.passed;
            let is_long = std::mem::take(&mut self.is_long);
            return Some(if is_long { Piece::LongEnds(length) } else { Piece::Line(length) });
        }
        self.scanned = self.bytes.len();
        let length = self.bytes.len() - self.passed;
        match (self.is_long, self.has_ended()) {
            (_, _) if length == 0 => None,
            (true, true) => {
                self.is_long = false;
                Some(Piece::LongEnds(length))
            }
            (true, false) => Some(Piece::More(length)),
            (false, true) => Some(Piece::Line(length)),
            (false, false) if length > look => {
                self.is_long = true;
                Some(Piece::LongBegins(length))
            }
            (false, false) => None,
        }
    }

    /// Returns the bytes of the next part.
    pub(crate) fn bytes(&self, length: usize) -> &[u8] {
        &self.bytes[self.passed..self.passed + length]
    }

    /// Has the next part go on with those before it.
    pub(crate) fn pass(&mut self, length: usize) {
        self.passed += length;
        self.scanned = self.passed.max(self.scanned);
    }

    /// Returns all that goes on, if there is any.
    pub(crate) fn passed(&mut self) -> Option<Bytes> {
        (self.passed > 0).then(|| {
            self.scanned -= self.passed;
            self.bytes.split_to(std::mem::take(&mut self.passed)).freeze()
        })
    }

    /// Takes the next part out, once what goes on before it was taken.
    pub(crate) fn take(&mut self, length: usize) -> Bytes {
        self.scanned = self.scanned.saturating_sub(length);
        self.bytes.split_to(length).freeze()
    }
}

/// What waits to be written at one end.
pub(crate) struct Output {
    // None once it is closed or broken: what is pushed then goes nowhere.
    writer: Option<Writer>,
    pieces: VecDeque<Bytes>,
    size: usize,
    // Whether the last byte that was pushed ended a line.
    is_at_start: bool,
    unflushed: bool,
    closing: bool,
}

impl Output {
    pub(crate) fn new(writer: Writer) -> Self {
        Self {
            writer: Some(writer),
            pieces: VecDeque::new(),
            size: 0,
            is_at_start: true,
            unflushed: false,
            closing: false,
        }
    }

    /// Returns how many bytes wait.
    pub(crate) fn size(&self) -> usize {
        self.size
    }

    /// Says whether nothing can be written any more.
    pub(crate) fn is_closed(&self) -> bool {
        self.writer.is_none()
    }

    /// Appends bytes: whole lines, or the parts of one.
    pub(crate) fn push(&mut self, bytes: Bytes) {
        if let (Some(last), Some(_)) = (bytes.last(), &self.writer) {
            self.is_at_start = *last == b'\n';
            self.size += bytes.len();
            self.pieces.push_back(bytes);
        }
    }

    /// Appends a line of our own; one that somebody began and will not end is ended.
    pub(crate) fn push_line(&mut self, mut line: Vec<u8>) {
        if line.last() != Some(&b'\n') {
            line.push(b'\n');
        }
        if !self.is_at_start {
            line.insert(0, b'\n');
        }
        self.push(line.into());
    }

    /// Ends the line, if it has no end.
    pub(crate) fn end_line(&mut self) {
        if !self.is_at_start {
            self.push(Bytes::from_static(b"\n"));
        }
    }

    /// Closes it, once everything is written.
    pub(crate) fn close(&mut self) {
        self.closing = true;
    }

    /// Writes as much as can be. Returns whether something was.
    pub(crate) fn write(&mut self, cx: &mut Context<'_>) -> bool {
        let mut has_moved = false;
        while !self.pieces.is_empty() {
            match self.write_once(cx) {
                Poll::Pending => break,
                Poll::Ready(Ok(written)) if written > 0 => {
                    has_moved = true;
                    self.unflushed = true;
                    self.consume(written);
                }
                // Who cannot be written to is gone.
                Poll::Ready(_) => {
                    self.abandon();
                    return true;
                }
            }
        }
        let Some(writer) = &mut self.writer else { return has_moved };
        if self.unflushed && Pin::new(&mut *writer).poll_flush(cx).is_ready() {
            self.unflushed = false;
        }
        if self.closing && self.pieces.is_empty() && !self.unflushed {
            // An end that was shut down says the rest by being dropped.
            drop(Pin::new(writer).poll_shutdown(cx));
            self.writer = None;
            has_moved = true;
        }
        has_moved
    }

    /// Gives up what waits.
    pub(crate) fn abandon(&mut self) {
        self.writer = None;
        self.pieces.clear();
        self.size = 0;
    }

    fn write_once(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<usize>> {
        let Some(writer) = &mut self.writer else { return Poll::Ready(Ok(0)) };
        let mut slices = [IoSlice::new(&[]); SLICES];
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
