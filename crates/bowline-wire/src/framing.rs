//! Lines out of a stream of bytes, with a bound on their length.

use std::ops::Range;

use memchr::memchr;

/// How much of a line that is too long is kept at most, so that the id in it can still be answered.
const HEAD: usize = 4096;

/// Room for one read of small messages.
const READ_SMALL: usize = 64 << 10;

/// Room for one read while a large message is coming in.
const READ_LARGE: usize = 1 << 20;

/// A buffer above this size is given back once the messages have been small for a while.
const KEEP: usize = 256 << 10;

/// After so many small messages in a row a large buffer is given back.
const SMALL_IN_A_ROW: u32 = 64;

/// Splits a stream of bytes into lines.
#[derive(Debug, Default)]
pub(crate) struct LineBuffer {
    // Invariant: taken <= scanned <= bytes.len(). Bytes before `taken` belong to lines that were handed out, and
    // there is no newline in `taken..scanned`. Only `next_line` and `rest` move bytes or the marks.
    bytes: Vec<u8>,
    taken: usize,
    scanned: usize,
    max_line: usize,
    skipping: Option<Skipped>,
    started: bool,
    small_in_a_row: u32,
}

/// A line that is longer than allowed, while its end has not come.
#[derive(Debug)]
struct Skipped {
    head: Vec<u8>,
    length: u64,
}

/// One line of the stream.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Line {
    /// A line within the limit; its bytes are at this range of [`LineBuffer::bytes`] until the next line is asked for.
    Whole(Range<usize>),
    /// A line that was too long, white space around it included: its first bytes, and how long it was.
    TooLong { head: Vec<u8>, length: u64 },
}

impl LineBuffer {
    pub(crate) fn new(max_line: usize) -> Self {
        LineBuffer { max_line, ..LineBuffer::default() }
    }

    /// Appends bytes of the stream.
    pub(crate) fn push(&mut self, bytes: &[u8]) {
        self.bytes.extend_from_slice(bytes);
    }

    /// Returns the buffer for a reader to append to, with room for a good read.
    pub(crate) fn room(&mut self) -> &mut Vec<u8> {
        let partial = self.bytes.len() - self.taken;
        let room = if partial >= READ_SMALL { READ_LARGE } else { READ_SMALL };
        if self.bytes.is_empty() && self.small_in_a_row > SMALL_IN_A_ROW && self.bytes.capacity() > KEEP {
            self.bytes = Vec::new();
        }
        self.bytes.reserve(room);
        &mut self.bytes
    }

    /// The bytes that the ranges of [`Line::Whole`] point into.
    pub(crate) fn bytes(&self) -> &[u8] {
        &self.bytes
    }

    /// Returns the next complete line, or nothing if more bytes are needed. Blank lines are passed over.
    pub(crate) fn next_line(&mut self) -> Option<Line> {
        loop {
            let Some(at) = memchr(b'\n', &self.bytes[self.scanned..]) else {
                self.scanned = self.bytes.len();
                self.skip_if_too_long();
                self.compact();
                return None;
            };
            let range = self.taken..self.scanned + at;
            self.taken = range.end + 1;
            self.scanned = self.taken;
            if let Some(line) = self.line(range) {
                return Some(line);
            }
        }
    }

    /// Returns what came after the last newline, once the stream has ended.
    pub(crate) fn rest(&mut self) -> Option<Line> {
        let range = self.taken..self.bytes.len();
        self.taken = range.end;
        self.scanned = range.end;
        self.line(range)
    }

    fn line(&mut self, range: Range<usize>) -> Option<Line> {
        let is_first = !std::mem::replace(&mut self.started, true);
        if let Some(skipped) = self.skipping.take() {
            return Some(Line::TooLong { length: skipped.length + range.len() as u64, head: skipped.head });
        }
        if range.len() > self.max_line {
            return Some(Line::TooLong { head: self.head(range.start), length: range.len() as u64 });
        }
        let range = self.trimmed(range, is_first);
        if range.is_empty() {
            return None;
        }
        self.small_in_a_row = if range.len() < KEEP { self.small_in_a_row.saturating_add(1) } else { 0 };
        Some(Line::Whole(range))
    }

    /// Leaves out white space around a line and a byte-order mark in front of the first one.
    fn trimmed(&self, range: Range<usize>, is_first: bool) -> Range<usize> {
        let Range { mut start, mut end } = range;
        if is_first && self.bytes[start..end].starts_with(b"\xEF\xBB\xBF") {
            start += 3;
        }
        while start < end && self.bytes[start].is_ascii_whitespace() {
            start += 1;
        }
        while start < end && self.bytes[end - 1].is_ascii_whitespace() {
            end -= 1;
        }
        start..end
    }

    /// Returns what is kept of a line that is longer than the limit: the same, however much of it has come.
    fn head(&self, start: usize) -> Vec<u8> {
        self.bytes[start..].iter().take(HEAD.min(self.max_line)).copied().collect()
    }

    fn skip_if_too_long(&mut self) {
        let partial = self.bytes.len() - self.taken;
        if self.skipping.is_none() && partial > self.max_line {
            self.skipping = Some(Skipped { head: self.head(self.taken), length: 0 });
        }
        if let Some(skipped) = &mut self.skipping {
            skipped.length += partial as u64;
            self.bytes.clear();
            self.taken = 0;
            self.scanned = 0;
            // A line over the limit counts as small, so that the room it took is given back soon.
            self.small_in_a_row = SMALL_IN_A_ROW + 1;
        }
    }

    fn compact(&mut self) {
        if self.taken > 0 {
            self.bytes.drain(..self.taken);
            self.scanned -= self.taken;
            self.taken = 0;
        }
    }
}

#[cfg(test)]
mod tests;
