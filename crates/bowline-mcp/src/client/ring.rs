//! The last lines of what a server says beside the protocol.

use std::collections::VecDeque;
use std::sync::{Mutex, MutexGuard, PoisonError};

use bowline_state::display;

/// So many lines are kept.
const MAX_LINES: usize = 64;
/// So many bytes are kept.
const MAX_BYTES: usize = 16 * 1024;
/// The longest line that is shown, in bytes.
const MAX_SHOWN: usize = 400;

/// The last lines. Whoever reads a server's output writes them, whoever asks for its status reads them.
#[derive(Debug, Default)]
pub(super) struct Ring(Mutex<Lines>);

#[derive(Debug, Default)]
struct Lines {
    // Invariant: at most MAX_LINES, with MAX_BYTES together.
    whole: VecDeque<Vec<u8>>,
    bytes: usize,
    // What came after the last line end: at most MAX_BYTES.
    rest: Vec<u8>,
}

impl Ring {
    /// Takes a piece of output.
    pub(super) fn push(&self, piece: &[u8]) {
        let mut lines = self.lines();
        // Of a flood only the end can stay.
        let kept = &piece[piece.len().saturating_sub(MAX_BYTES)..];
        let mut parts = kept.split(|byte| *byte == b'\n').peekable();
        while let Some(part) = parts.next() {
            let room = MAX_BYTES.saturating_sub(lines.rest.len());
            lines.rest.extend_from_slice(&part[..part.len().min(room)]);
            if parts.peek().is_some() {
                lines.end_line();
            }
        }
    }

    /// Takes a whole line.
    pub(super) fn note(&self, line: &str) {
        let mut lines = self.lines();
        if !lines.rest.is_empty() {
            lines.end_line();
        }
        let end = line.floor_char_boundary(MAX_BYTES);
        lines.rest.extend_from_slice(&line.as_bytes()[..end]);
        lines.end_line();
    }

    /// Returns the lines, fit to be shown.
    pub(super) fn shown(&self) -> Vec<String> {
        let lines = self.lines();
        let rest = Some(&lines.rest).filter(|rest| !rest.is_empty());
        let shown = |line: &Vec<u8>| display::line(String::from_utf8_lossy(line).trim_end(), MAX_SHOWN);
        lines.whole.iter().chain(rest).map(shown).filter(|line| !line.is_empty()).collect()
    }

    fn lines(&self) -> MutexGuard<'_, Lines> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Lines {
    fn end_line(&mut self) {
        let line = std::mem::take(&mut self.rest);
        self.bytes += line.len();
        self.whole.push_back(line);
        while self.whole.len() > MAX_LINES || self.bytes > MAX_BYTES {
            self.bytes -= self.whole.pop_front().map_or(0, |line| line.len());
        }
    }
}

#[cfg(test)]
mod tests;
