//! A sparse line index: where to start reading a large file for a line deep inside it.

use super::LineCounter;

/// The initial distance between checkpoints, in bytes. A repeated window costs at most this much reading before its
/// start.
const INITIAL_STRIDE: u64 = 64 * 1024;
/// The maximum number of checkpoints, which take 512 KiB. Beyond it, every second one is dropped.
const MAX_CHECKPOINTS: usize = 65_536;

/// The number of newlines before each of a series of evenly spaced checkpoints in a text.
///
/// The index is fed the text from its start, as far as it is read. It stays valid while the text only grows at its end.
#[derive(Debug, Clone)]
pub struct LineIndex {
    // Invariant: element n is the number of newlines before the byte at n strides, and that byte was fed.
    newlines_before: Vec<u64>,
    stride: u64,
    max_checkpoints: usize,
    counter: LineCounter,
    covered_bytes: u64,
}

/// A position to start reading from.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ReadStart {
    /// Its byte offset.
    pub offset: u64,
    /// The line that contains the byte there, counted from 1. The offset may be in the middle of the line.
    pub line: u64,
}

impl ReadStart {
    /// Returns the number of newlines before the position, as a scanner needs it.
    #[must_use]
    pub fn newlines_before(self) -> u64 {
        self.line.saturating_sub(1)
    }
}

impl Default for LineIndex {
    fn default() -> Self {
        Self::new()
    }
}

impl LineIndex {
    /// Returns the index of a text that has not been read yet.
    #[must_use]
    pub fn new() -> Self {
        Self::with_stride(INITIAL_STRIDE, MAX_CHECKPOINTS)
    }

    /// Both arguments are at least 1, and the second is even.
    fn with_stride(stride: u64, max_checkpoints: usize) -> Self {
        Self {
            newlines_before: Vec::new(),
            stride,
            max_checkpoints,
            counter: LineCounter::default(),
            covered_bytes: 0,
        }
    }

    /// Adds the next bytes.
    pub fn feed(&mut self, mut bytes: &[u8]) {
        while !bytes.is_empty() {
            let mut next = self.next_checkpoint();
            if next == self.covered_bytes {
                self.add_checkpoint();
                next = self.next_checkpoint();
            }
            // A distance that exceeds `usize` is longer than the bytes.
            let room = usize::try_from(next - self.covered_bytes).unwrap_or(usize::MAX);
            let (within, rest) = bytes.split_at(room.min(bytes.len()));
            self.counter.feed(within);
            self.covered_bytes += within.len() as u64;
            bytes = rest;
        }
    }

    /// Returns the number of bytes fed, which is the offset of the next ones.
    #[must_use]
    pub fn covered_bytes(&self) -> u64 {
        self.covered_bytes
    }

    /// Returns the last position from which a scanner finds the start of a line, counted from 1; 0 means 1. If the
    /// index does not reach that far, this is its last checkpoint.
    ///
    /// The position is in an earlier line, or is the start of the text. Text followed it.
    #[must_use]
    pub fn start_for_line(&self, line: u64) -> ReadStart {
        let ends = line.saturating_sub(1);
        // A checkpoint with exactly as many newlines before it might be anywhere in the line.
        let before = self.newlines_before.partition_point(|ends_before| *ends_before < ends);
        match before.checked_sub(1) {
            None => ReadStart { offset: 0, line: 1 },
            Some(nth) => ReadStart { offset: nth as u64 * self.stride, line: self.newlines_before[nth] + 1 },
        }
    }

    fn next_checkpoint(&self) -> u64 {
        self.newlines_before.len() as u64 * self.stride
    }

    /// Adds a checkpoint at the next byte to be fed.
    fn add_checkpoint(&mut self) {
        if self.newlines_before.len() >= self.max_checkpoints {
            let mut nth = 0;
            self.newlines_before.retain(|_| {
                nth += 1;
                nth % 2 == 1
            });
            self.stride *= 2;
        }
        // The remaining checkpoints end one new stride before this one.
        self.newlines_before.push(self.counter.newlines);
    }
}

#[cfg(test)]
mod tests;
