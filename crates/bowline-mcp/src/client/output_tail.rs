//! The last lines that a server printed outside the protocol.

use std::collections::VecDeque;
use std::sync::{Mutex, MutexGuard, PoisonError};

use bowline_text::display;

/// The most lines that are kept.
const MAX_LINES: usize = 64;
/// The most bytes that are kept.
const MAX_BYTES: usize = 16 * 1024;
/// The longest displayed line, in bytes.
const MAX_SHOWN_BYTES: usize = 400;

/// The last lines of output. The reader of a server's output writes them; status queries read them.
#[derive(Debug, Default)]
pub(super) struct OutputTail(Mutex<TailLines>);

#[derive(Debug, Default)]
struct TailLines {
    // Invariant: at most MAX_LINES, with MAX_BYTES together.
    complete: VecDeque<Vec<u8>>,
    bytes: usize,
    // The text after the last line end: at most MAX_BYTES.
    rest: Vec<u8>,
}

impl OutputTail {
    /// Appends a piece of output.
    pub(super) fn push(&self, chunk: &[u8]) {
        let mut lines = self.lines();
        // Only the end of a flood can be kept.
        let tail = &chunk[chunk.len().saturating_sub(MAX_BYTES)..];
        let mut parts = tail.split(|byte| *byte == b'\n').peekable();
        while let Some(part) = parts.next() {
            let available = MAX_BYTES.saturating_sub(lines.rest.len());
            lines.rest.extend_from_slice(&part[..part.len().min(available)]);
            if parts.peek().is_some() {
                lines.end_line();
            }
        }
    }

    /// Appends a whole line.
    pub(super) fn push_line(&self, line: &str) {
        let mut lines = self.lines();
        if !lines.rest.is_empty() {
            lines.end_line();
        }
        let end = line.floor_char_boundary(MAX_BYTES);
        lines.rest.extend_from_slice(&line.as_bytes()[..end]);
        lines.end_line();
    }

    /// Returns the lines, escaped for display.
    pub(super) fn display_lines(&self) -> Vec<String> {
        let lines = self.lines();
        let rest = Some(&lines.rest).filter(|rest| !rest.is_empty());
        let escape =
            |line: &Vec<u8>| display::escape_line(String::from_utf8_lossy(line).trim_end(), MAX_SHOWN_BYTES);
        lines.complete.iter().chain(rest).map(escape).filter(|line| !line.is_empty()).collect()
    }

    fn lines(&self) -> MutexGuard<'_, TailLines> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl TailLines {
    fn end_line(&mut self) {
        let line = std::mem::take(&mut self.rest);
        self.bytes += line.len();
        self.complete.push_back(line);
        while self.complete.len() > MAX_LINES || self.bytes > MAX_BYTES {
            self.bytes -= self.complete.pop_front().map_or(0, |line| line.len());
        }
    }
}

#[cfg(test)]
mod tests;
