//! A line buffer: splits a byte stream into lines of bounded length.

use std::ops::Range;

use memchr::memchr;

/// The maximum length kept of an overlong line, so that the id in it can still be answered.
const MAX_HEAD: usize = 4096;

/// The buffer space for one read of small messages.
const SMALL_READ: usize = 64 << 10;

/// The buffer space for one read while a large message is arriving.
const LARGE_READ: usize = 1 << 20;

/// A buffer above this size is released once the messages have been small for a while.
const MAX_KEPT_CAPACITY: usize = 256 << 10;

/// The number of consecutive small messages after which a large buffer is released.
const SMALL_LINES_BEFORE_SHRINK: u32 = 64;

/// Splits a stream of bytes into lines.
#[derive(Debug, Default)]
pub(crate) struct LineBuffer {
    // Invariant: consumed <= scanned <= bytes.len(). Bytes before `consumed` belong to lines already returned, and
    // there is no newline in `consumed..scanned`. Only `next_line` and `take_rest` move bytes or these offsets.
    bytes: Vec<u8>,
    consumed: usize,
    scanned: usize,
    max_line: usize,
    skipped_line: Option<SkippedLine>,
    is_started: bool,
    small_line_count: u32,
}

/// An overlong line whose end has not arrived.
#[derive(Debug)]
struct SkippedLine {
    head: Vec<u8>,
    length: u64,
}

/// One line of the stream.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum FramedLine {
    /// A line within the limit; its bytes are at this range of [`LineBuffer::bytes`] until the next line is
    /// requested.
    Whole(Range<usize>),
    /// An overlong line, including surrounding white space: its first bytes, and its length.
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

    /// Returns the buffer for a reader to append to, with room for a large enough read.
    pub(crate) fn read_buffer(&mut self) -> &mut Vec<u8> {
        let partial = self.bytes.len() - self.consumed;
        let additional = if partial >= SMALL_READ { LARGE_READ } else { SMALL_READ };
        if self.bytes.is_empty()
            && self.small_line_count > SMALL_LINES_BEFORE_SHRINK
            && self.bytes.capacity() > MAX_KEPT_CAPACITY
        {
            self.bytes = Vec::new();
        }
        self.bytes.reserve(additional);
        &mut self.bytes
    }

    /// Returns the bytes that the ranges of [`FramedLine::Whole`] point into.
    pub(crate) fn bytes(&self) -> &[u8] {
        &self.bytes
    }

    /// Returns the next complete line, or `None` if more bytes are needed. Blank lines are skipped.
    pub(crate) fn next_line(&mut self) -> Option<FramedLine> {
        loop {
            let Some(at) = memchr(b'\n', &self.bytes[self.scanned..]) else {
                self.scanned = self.bytes.len();
                self.skip_if_too_long();
                self.compact();
                return None;
            };
            let range = self.consumed..self.scanned + at;
            self.consumed = range.end + 1;
            self.scanned = self.consumed;
            if let Some(line) = self.frame_line(range) {
                return Some(line);
            }
        }
    }

    /// Returns the text after the last newline, once the stream has ended.
    pub(crate) fn take_rest(&mut self) -> Option<FramedLine> {
        let range = self.consumed..self.bytes.len();
        self.consumed = range.end;
        self.scanned = range.end;
        self.frame_line(range)
    }

    fn frame_line(&mut self, range: Range<usize>) -> Option<FramedLine> {
        let is_first = !std::mem::replace(&mut self.is_started, true);
        if let Some(skipped) = self.skipped_line.take() {
            return Some(FramedLine::TooLong {
                length: skipped.length + range.len() as u64,
                head: skipped.head,
            });
        }
        if range.len() > self.max_line {
            return Some(FramedLine::TooLong {
                head: self.line_head(range.start),
                length: range.len() as u64,
            });
        }
        let range = self.trim_range(range, is_first);
        if range.is_empty() {
            return None;
        }
        self.small_line_count =
            if range.len() < MAX_KEPT_CAPACITY { self.small_line_count.saturating_add(1) } else { 0 };
        Some(FramedLine::Whole(range))
    }

    /// Excludes white space around a line and a byte order mark before the first one.
    fn trim_range(&self, range: Range<usize>, is_first: bool) -> Range<usize> {
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

    /// Returns the part of an overlong line to keep, which does not depend on how much of it has arrived.
    fn line_head(&self, start: usize) -> Vec<u8> {
        self.bytes[start..].iter().take(MAX_HEAD.min(self.max_line)).copied().collect()
    }

    fn skip_if_too_long(&mut self) {
        let partial = self.bytes.len() - self.consumed;
        if self.skipped_line.is_none() && partial > self.max_line {
            self.skipped_line = Some(SkippedLine { head: self.line_head(self.consumed), length: 0 });
        }
        if let Some(skipped) = &mut self.skipped_line {
            skipped.length += partial as u64;
            self.bytes.clear();
            self.consumed = 0;
            self.scanned = 0;
            // An overlong line counts as small, so that its space is released soon.
            self.small_line_count = SMALL_LINES_BEFORE_SHRINK + 1;
        }
    }

    fn compact(&mut self) {
        if self.consumed > 0 {
            self.bytes.drain(..self.consumed);
            self.scanned -= self.consumed;
            self.consumed = 0;
        }
    }
}

#[cfg(test)]
mod tests;
