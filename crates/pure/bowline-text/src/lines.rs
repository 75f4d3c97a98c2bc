//! Line windows: the meaning of `line` and `limit` in a read.
//!
//! A line ends after `\n`, so `\r\n` ends one too; a lone `\r` and U+2028 do not. The last line needs no terminator:
//! `"a"` and `"a\n"` have one line, `""` has none. A window may start at any existing line, and at line 1 of an empty
//! text, because an empty file can be read.

use std::ops::Range;

pub mod index;

/// The requested lines.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct LineWindow {
    /// The first line, counted from 1. Both 0 and `None` mean 1.
    pub line: Option<u32>,
    /// The maximum number of lines; `None` means all.
    pub limit: Option<u32>,
}

/// The window starts after the last line.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("the window starts past the end of the text, which has {lines} lines")]
pub struct PastEndError {
    /// The number of lines in the text.
    pub lines: u64,
}

/// Returns the lines in the window, each with its terminator.
///
/// # Errors
/// Returns [`PastEndError`] if the start line does not exist, even if the limit is 0.
pub fn slice_lines(text: &str, window: LineWindow) -> Result<&str, PastEndError> {
    let mut scanner = WindowScanner::new(window);
    let range = scanner.feed(text.as_bytes());
    scanner.finish()?;
    Ok(&text[range])
}

/// Counts the lines of a text that arrives in pieces.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct LineCounter {
    newlines: u64,
    // Whether text follows the last newline.
    has_open_line: bool,
}

impl LineCounter {
    /// Adds the next bytes.
    pub fn feed(&mut self, bytes: &[u8]) {
        self.add_counted(bytes, count_newlines(bytes));
    }

    /// Adds bytes whose newlines are already counted.
    fn add_counted(&mut self, bytes: &[u8], ends: u64) {
        self.newlines += ends;
        if let Some(last) = bytes.last() {
            self.has_open_line = *last != b'\n';
        }
    }

    /// Returns the number of lines so far.
    #[must_use]
    pub fn lines(&self) -> u64 {
        self.newlines + u64::from(self.has_open_line)
    }
}

/// Finds a window in a text that arrives in pieces, without buffering it.
///
/// The text may be in UTF-8 or any encoding in which the byte `\n` has no other meaning.
#[derive(Debug, Clone)]
pub struct WindowScanner {
    counter: LineCounter,
    // The newlines to skip before the window starts.
    newlines_to_skip: u64,
    // The unfinished lines of the window; `None` means no limit.
    lines_left: Option<u64>,
    has_started: bool,
}

impl WindowScanner {
    /// Returns a scanner at the start of a text.
    #[must_use]
    pub fn new(window: LineWindow) -> Self {
        Self::starting_at(window, 0)
    }

    /// Returns a scanner that starts after that many newlines, such as at the offset that
    /// [`index::LineIndex::start_for_line`] finds.
    ///
    /// The offset is in a line before the window's first, or at the very start of that line; text follows it, unless it
    /// is the start of the text.
    #[must_use]
    pub fn starting_at(window: LineWindow, newlines_before: u64) -> Self {
        let ends_before_window = u64::from(window.line.unwrap_or(1)).saturating_sub(1);
        Self {
            counter: LineCounter { newlines: newlines_before, has_open_line: false },
            newlines_to_skip: ends_before_window.saturating_sub(newlines_before),
            lines_left: window.limit.map(u64::from),
            // Only line 1 exists before any of its text arrives.
            has_started: ends_before_window == 0,
        }
    }

    /// Scans the next bytes and returns which of them belong to the window. The window is the concatenation of these
    /// ranges.
    pub fn feed(&mut self, bytes: &[u8]) -> Range<usize> {
        if self.is_done() {
            return 0..0;
        }
        let start = self.skip_to_window(bytes);
        let rest = &bytes[start..];
        if rest.is_empty() {
            return start..start;
        }
        self.has_started = true;
        let end = match self.lines_left {
            None => rest.len(),
            Some(left) => find_end_of_lines(rest, left).unwrap_or(rest.len()),
        };
        let within = &rest[..end];
        self.lines_left = self.lines_left.map(|left| left - count_newlines(within));
        self.counter.feed(within);
        start..start + end
    }

    /// Returns whether the window is complete, so that the rest of the text need not be read.
    #[must_use]
    pub fn is_done(&self) -> bool {
        self.has_started && self.lines_left == Some(0)
    }

    /// Checks, at the end of the text, that the window started.
    ///
    /// # Errors
    /// Returns [`PastEndError`] if the text ended before the window started.
    pub fn finish(&self) -> Result<(), PastEndError> {
        if self.has_started { Ok(()) } else { Err(PastEndError { lines: self.counter.lines() }) }
    }

    /// Skips newlines until the window starts, and returns its offset in `bytes`, or their length if it does not start
    /// there.
    fn skip_to_window(&mut self, bytes: &[u8]) -> usize {
        if self.newlines_to_skip == 0 {
            return 0;
        }
        // Counting is several times faster than finding, and most of a large text is only skipped.
        let ends = count_newlines(bytes);
        if ends < self.newlines_to_skip {
            self.newlines_to_skip -= ends;
            self.counter.add_counted(bytes, ends);
            return bytes.len();
        }
        let start = find_end_of_lines(bytes, self.newlines_to_skip).unwrap_or(bytes.len());
        self.counter.add_counted(&bytes[..start], self.newlines_to_skip);
        self.newlines_to_skip = 0;
        start
    }
}

/// Returns where the given number of lines ends, if that many end in `bytes`.
fn find_end_of_lines(bytes: &[u8], lines: u64) -> Option<usize> {
    let Some(before_last) = lines.checked_sub(1) else { return Some(0) };
    // A slice never has more lines than `usize` can count.
    let nth = usize::try_from(before_last).ok()?;
    memchr::memchr_iter(b'\n', bytes).nth(nth).map(|at| at + 1)
}

fn count_newlines(bytes: &[u8]) -> u64 {
    memchr::memchr_iter(b'\n', bytes).count() as u64
}

#[cfg(test)]
mod tests;
