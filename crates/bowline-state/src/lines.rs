//! Windows of lines: what `line` and `limit` of a read mean.
//!
//! A line ends after `\n`, so `\r\n` ends one too; a lone `\r` and U+2028 do not. The last line needs no end: `"a"` and
//! `"a\n"` have one line, `""` has none. A window may start at any line there is, and at line 1 of an empty text,
//! because an empty file can be read.

use std::ops::Range;

pub mod index;

/// Which lines are wanted.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Window {
    /// The first line, counted from 1. 0 means 1, and so does nothing.
    pub line: Option<u32>,
    /// How many lines, at most. Nothing means all.
    pub limit: Option<u32>,
}

/// The window starts after the last line.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("the window starts past the end of the text, which has this many lines: {lines}")]
pub struct PastEnd {
    /// How many lines the text has.
    pub lines: u64,
}

/// Returns the lines in the window, each with its end.
///
/// # Errors
/// Returns [`PastEnd`] if the text has no line to start at, also where no line is asked for.
pub fn slice(text: &str, window: Window) -> Result<&str, PastEnd> {
    let mut scanner = WindowScanner::new(window);
    let range = scanner.feed(text.as_bytes());
    scanner.finish()?;
    Ok(&text[range])
}

/// Counts the lines of a text that comes in pieces.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct LineCounter {
    ends: u64,
    // Whether there is text after the last line end.
    open: bool,
}

impl LineCounter {
    /// Takes in the next bytes.
    pub fn feed(&mut self, bytes: &[u8]) {
        self.pass(bytes, count_ends(bytes));
    }

    /// Takes in bytes of which somebody has counted the line ends.
    fn pass(&mut self, bytes: &[u8], ends: u64) {
        self.ends += ends;
        if let Some(last) = bytes.last() {
            self.open = *last != b'\n';
        }
    }

    /// Returns the number of lines so far.
    #[must_use]
    pub fn lines(&self) -> u64 {
        self.ends + u64::from(self.open)
    }
}

/// Finds a window in a text that comes in pieces, without holding it.
///
/// The text may be in UTF-8 or any encoding in which the byte `\n` is nothing else.
#[derive(Debug, Clone)]
pub struct WindowScanner {
    seen: LineCounter,
    // Line ends to pass before the window starts.
    skip: u64,
    // Lines of the window that are not complete yet; none means there is no limit.
    left: Option<u64>,
    reached: bool,
}

impl WindowScanner {
    /// Returns a scanner at the start of a text.
    #[must_use]
    pub fn new(window: Window) -> Self {
        Self::starting_at(window, 0)
    }

    /// Returns a scanner that is fed from a place after that many line ends on, such as [`index::LineIndex::start_for`] finds.
    ///
    /// The place is in a line before the window's first, or at the very start of that one; it has text after it, unless
    /// it is the start of the text.
    #[must_use]
    pub fn starting_at(window: Window, newlines_before: u64) -> Self {
        let ends_before_window = u64::from(window.line.unwrap_or(1)).saturating_sub(1);
        Self {
            seen: LineCounter { ends: newlines_before, open: false },
            skip: ends_before_window.saturating_sub(newlines_before),
            left: window.limit.map(u64::from),
            // Only the first line is there before there is text in it.
            reached: ends_before_window == 0,
        }
    }

    /// Takes in the next bytes and returns which of them belong to the window. The window is what these ranges give,
    /// one after the other.
    pub fn feed(&mut self, bytes: &[u8]) -> Range<usize> {
        if self.is_done() {
            return 0..0;
        }
        let start = self.start_in(bytes);
        let wanted = &bytes[start..];
        if wanted.is_empty() {
            return start..start;
        }
        self.reached = true;
        let end = match self.left {
            None => wanted.len(),
            Some(left) => end_of_lines(wanted, left).unwrap_or(wanted.len()),
        };
        let within = &wanted[..end];
        self.left = self.left.map(|left| left - count_ends(within));
        self.seen.feed(within);
        start..start + end
    }

    /// Says whether the window is complete, so that the rest of the text need not be read.
    #[must_use]
    pub fn is_done(&self) -> bool {
        self.reached && self.left == Some(0)
    }

    /// Ends the text.
    ///
    /// # Errors
    /// Returns [`PastEnd`] if the text ended before the window started.
    pub fn finish(&self) -> Result<(), PastEnd> {
        if self.reached { Ok(()) } else { Err(PastEnd { lines: self.seen.lines() }) }
    }

    /// Passes line ends until the window starts, and returns where in `bytes` that is: at their end if not in them.
    fn start_in(&mut self, bytes: &[u8]) -> usize {
        if self.skip == 0 {
            return 0;
        }
        // To count is several times faster than to find, and most of a large text is only passed.
        let ends = count_ends(bytes);
        if ends < self.skip {
            self.skip -= ends;
            self.seen.pass(bytes, ends);
            return bytes.len();
        }
        let start = end_of_lines(bytes, self.skip).unwrap_or(bytes.len());
        self.seen.pass(&bytes[..start], self.skip);
        self.skip = 0;
        start
    }
}

/// Returns where the given number of lines ends, if so many end in `bytes`.
fn end_of_lines(bytes: &[u8], lines: u64) -> Option<usize> {
    let Some(before_last) = lines.checked_sub(1) else { return Some(0) };
    // More lines than there can be bytes are never found.
    let nth = usize::try_from(before_last).ok()?;
    memchr::memchr_iter(b'\n', bytes).nth(nth).map(|at| at + 1)
}

fn count_ends(bytes: &[u8]) -> u64 {
    memchr::memchr_iter(b'\n', bytes).count() as u64
}

#[cfg(test)]
mod tests;
