//! As much of a file as is good for a model to read at a time, and what the model knows of the file then.

use std::sync::Arc;

use super::telling::{lines_of, plural};
use crate::changes::ContentHash;
use crate::ledger::{Ledger, Version};
use crate::lines::{Window, slice};

/// A model is shown so many lines of a file at a time.
pub const MAX_LINES: u32 = 2000;

/// And so many bytes.
pub const MAX_BYTES: usize = 64 << 10;

const BOM: char = '\u{feff}';

/// What was read: a whole text, or the part of one that begins with the line that was asked for.
#[derive(Debug, Clone, Copy)]
pub struct Fetched<'t> {
    /// The text.
    pub text: &'t Arc<String>,
    /// Whether that is all there is.
    pub whole: bool,
}

/// What the model is shown.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct View<'t> {
    /// The text.
    pub text: &'t str,
    /// The line that it begins with, counted from 1.
    pub first: u64,
    /// How many lines it has.
    pub lines: u64,
    /// How many lines there are in all, if that is known.
    pub total: Option<u64>,
    /// The line to go on with, if there is more or may be.
    pub next: Option<u64>,
    /// Whether there is no such line.
    pub past_end: bool,
    /// Whether a line is longer than can be shown.
    pub cut_line: bool,
    // Where it is in what was fetched.
    start: usize,
}

/// Returns what a model is shown that asks for `limit` lines from `first` on.
#[must_use]
pub fn view(fetched: Fetched<'_>, first: u32, limit: Option<u32>) -> View<'_> {
    let all = fetched.text.as_str();
    let asked = limit.unwrap_or(MAX_LINES).clamp(1, MAX_LINES);
    let total = fetched.whole.then(|| lines_of(all));
    let window = if fetched.whole {
        slice(all, Window { line: Some(first), limit: Some(asked) })
    } else {
        slice(all, Window { line: None, limit: Some(asked) })
    };
    let past_end = window.is_err();
    let window = window.unwrap_or_default();
    let start = if past_end { 0 } else { window.as_ptr() as usize - all.as_ptr() as usize };
    // The byte order mark is the file's; a model would repeat it or not.
    let window = if start == 0 { window.strip_prefix(BOM).unwrap_or(window) } else { window };
    let clipped = clip(window);
    let lines = lines_of(clipped);
    let cut_line = clipped.len() < window.len() && !clipped.ends_with('\n');
    let end = u64::from(first) + lines;
    let has_more = match total {
        Some(total) => end <= total,
        None => clipped.len() < window.len() || lines >= u64::from(asked),
    };
    View {
        text: clipped,
        start,
        first: first.into(),
        lines,
        total,
        next: (has_more && !past_end).then_some(end),
        past_end,
        cut_line,
    }
}

impl View<'_> {
    /// Returns which lines it has, in words.
    #[must_use]
    pub fn range(&self) -> String {
        match (self.lines, self.total) {
            (0, _) => "empty".to_owned(),
            (lines, Some(total)) if self.first == 1 && lines == total => {
                format!("all of it, {}", plural(total, "line"))
            }
            (lines, total) => {
                let of = total.map(|total| format!(" of {total}")).unwrap_or_default();
                format!("lines {}-{}{of}", self.first, self.first + lines - 1)
            }
        }
    }

    /// Notes what the model has seen of the file that the ledger knows by `key`.
    pub fn note(&self, ledger: &mut Ledger, key: &str, fetched: Fetched<'_>) {
        let all = fetched.text;
        let version = version(all);
        // A byte order mark that is not shown counts as seen.
        let shown = self.start..self.start + self.text.len() + if self.start == 0 { mark(all) } else { 0 };
        if fetched.whole && !self.past_end && shown == (0..all.len()) {
            ledger.saw(key, all.clone(), version);
        } else if fetched.whole {
            ledger.saw_window(key, version, shown.start as u64..shown.end as u64, all.len() as u64);
        } else {
            // How much there is nobody knows: it is a part.
            ledger.saw_window(key, version, 0..self.text.len() as u64, u64::MAX);
        }
    }
}

/// Returns as many whole lines as may be shown; of a first line that is too long, its start.
fn clip(text: &str) -> &str {
    if text.len() <= MAX_BYTES {
        return text;
    }
    let room = &text[..text.floor_char_boundary(MAX_BYTES)];
    match room.rfind('\n') {
        Some(end) => &room[..=end],
        None => room,
    }
}

fn mark(text: &str) -> usize {
    if text.starts_with(BOM) { BOM.len_utf8() } else { 0 }
}

/// Returns which text it is.
#[must_use]
pub fn version(text: &str) -> Version {
    let hash = *ContentHash::of(text.as_bytes()).as_bytes();
    let [a, b, c, d, e, f, g, h, ..] = hash;
    Version(u64::from_le_bytes([a, b, c, d, e, f, g, h]))
}

#[cfg(test)]
mod tests;
