//! A sparse line index: where to start reading a large file for a line deep inside it.

use super::LineCounter;

/// How far apart the places are at first, in bytes. A window that is asked for again costs at most this much reading
/// before it starts.
const STRIDE: u64 = 64 * 1024;
/// An index has at most this many places, 512 KiB of them. With more text, every second one is dropped.
const MAX_PLACES: usize = 65_536;

/// How many line ends come before places that are evenly spread over a text.
///
/// It is fed with the text from its start on, as far as anybody read it. What it knows stays true while the text only
/// grows at its end.
#[derive(Debug, Clone)]
pub struct LineIndex {
    // Invariant: the nth is the number of line ends before the byte at n strides, and that byte was fed.
    ends_before: Vec<u64>,
    stride: u64,
    max_places: usize,
    seen: LineCounter,
    covered: u64,
    finished: bool,
}

/// A place to start reading from.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Start {
    /// Where it is, in bytes.
    pub offset: u64,
    /// The line that the byte there is in, counted from 1. It may be in the middle of it.
    pub line: u64,
}

impl Start {
    /// Returns how many line ends come before the place, as a scanner wants to know.
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
    /// Returns the index of a text of which nothing is known.
    #[must_use]
    pub fn new() -> Self {
        Self::with(STRIDE, MAX_PLACES)
    }

    /// Both numbers are at least 1, and the second is even.
    fn with(stride: u64, max_places: usize) -> Self {
        Self {
            ends_before: Vec::new(),
            stride,
            max_places,
            seen: LineCounter::default(),
            covered: 0,
            finished: false,
        }
    }

    /// Takes in the bytes that come next.
    pub fn feed(&mut self, mut bytes: &[u8]) {
        while !bytes.is_empty() {
            let mut next = self.next_place();
            if next == self.covered {
                self.add_place();
                next = self.next_place();
            }
            // A stride that does not fit is longer than the bytes.
            let room = usize::try_from(next - self.covered).unwrap_or(usize::MAX);
            let (within, rest) = bytes.split_at(room.min(bytes.len()));
            self.seen.feed(within);
            self.covered += within.len() as u64;
            self.finished = false;
            bytes = rest;
        }
    }

    /// Ends the text. If bytes are fed after all, because it has grown, it has no end again.
    pub fn finish(&mut self) {
        self.finished = true;
    }

    /// Returns how many bytes were fed, and so where the next ones have to come from.
    #[must_use]
    pub fn covered(&self) -> u64 {
        self.covered
    }

    /// Returns the last place from which a scanner finds the start of the line, which is counted from 1; 0 means 1. If
    /// the index does not reach that far, it is the last place there is.
    ///
    /// The place is in a line before that one, or it is the start of the text. There was text after it.
    #[must_use]
    pub fn start_for(&self, line: u64) -> Start {
        let ends = line.saturating_sub(1);
        // With as many ends before it, the place might be anywhere in the line.
        let before = self.ends_before.partition_point(|ends_before| *ends_before < ends);
        match before.checked_sub(1) {
            None => Start { offset: 0, line: 1 },
            Some(nth) => Start { offset: nth as u64 * self.stride, line: self.ends_before[nth] + 1 },
        }
    }

    /// Returns how many lines the text has, if it has ended.
    #[must_use]
    pub fn lines(&self) -> Option<u64> {
        self.finished.then(|| self.seen.lines())
    }

    fn next_place(&self) -> u64 {
        self.ends_before.len() as u64 * self.stride
    }

    /// Adds the place that the next byte fed is at.
    fn add_place(&mut self) {
        if self.ends_before.len() >= self.max_places {
            let mut nth = 0;
            self.ends_before.retain(|_| {
                nth += 1;
                nth % 2 == 1
            });
            self.stride *= 2;
        }
        // The places that are left end one new stride before this one.
        self.ends_before.push(self.seen.ends);
    }
}

#[cfg(test)]
mod tests;
