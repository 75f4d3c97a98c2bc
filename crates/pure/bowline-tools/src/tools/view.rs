//! The window of a file shown to a model, and the knowledge of the file that it gives.

use std::sync::Arc;

use super::describe::{count_lines, count_noun};
use bowline_history::ledger::{Ledger, TextVersion};
use bowline_text::hash::ContentHash;
use bowline_text::lines::{LineWindow, slice_lines};

/// The maximum number of lines shown at a time.
pub const MAX_LINES: u32 = 2000;

/// The maximum number of bytes shown at a time.
pub const MAX_BYTES: usize = 64 << 10;

const BOM: char = '\u{feff}';

/// The text that was read: a whole file, or the part that begins with the requested line.
#[derive(Debug, Clone, Copy)]
pub struct ViewSource<'t> {
    /// The text.
    pub text: &'t Arc<String>,
    /// Whether it is the whole file.
    pub is_whole: bool,
}

/// The window shown to the model.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct FileView<'t> {
    /// The text.
    pub text: &'t str,
    /// Its first line, counted from 1.
    pub first_line: u64,
    /// The number of lines in it.
    pub line_count: u64,
    /// The number of lines of the file, if known.
    pub total_lines: Option<u64>,
    /// The line to continue with, if there is or may be more.
    pub next_line: Option<u64>,
    /// Whether the requested line is past the end.
    pub is_past_end: bool,
    /// Whether a line is too long to show.
    pub has_cut_line: bool,
    // Its offset in the source text.
    start: usize,
}

/// Returns the window for a request of `limit` lines from `first` on.
#[must_use]
pub fn view_text(fetched: ViewSource<'_>, first: u32, limit: Option<u32>) -> FileView<'_> {
    let all = fetched.text.as_str();
    let limit = limit.unwrap_or(MAX_LINES).clamp(1, MAX_LINES);
    let total = fetched.is_whole.then(|| count_lines(all));
    let window = if fetched.is_whole {
        slice_lines(all, LineWindow { line: Some(first), limit: Some(limit) })
    } else {
        slice_lines(all, LineWindow { line: None, limit: Some(limit) })
    };
    let is_past_end = window.is_err();
    let window = window.unwrap_or_default();
    let start = if is_past_end { 0 } else { window.as_ptr() as usize - all.as_ptr() as usize };
    // The byte order mark belongs to the file; a model would repeat it or not.
    let window = if start == 0 { window.strip_prefix(BOM).unwrap_or(window) } else { window };
    let clipped = clip_lines(window);
    let line_count = count_lines(clipped);
    let has_cut_line = clipped.len() < window.len() && !clipped.ends_with('\n');
    let end = u64::from(first) + line_count;
    let has_more = match total {
        Some(total) => end <= total,
        None => clipped.len() < window.len() || line_count >= u64::from(limit),
    };
    FileView {
        text: clipped,
        start,
        first_line: first.into(),
        line_count,
        total_lines: total,
        next_line: (has_more && !is_past_end).then_some(end),
        is_past_end,
        has_cut_line,
    }
}

impl FileView<'_> {
    /// Describes its lines in words.
    #[must_use]
    pub fn describe_range(&self) -> String {
        match (self.line_count, self.total_lines) {
            (0, _) => "empty".to_owned(),
            (lines, Some(total)) if self.first_line == 1 && lines == total => {
                format!("all of it, {}", count_noun(total, "line"))
            }
            (lines, total) => {
                let of_total = total.map(|total| format!(" of {total}")).unwrap_or_default();
                format!("lines {}-{}{of_total}", self.first_line, self.first_line + lines - 1)
            }
        }
    }

    /// Records in the ledger what the model has seen of the file `key`.
    pub fn record_seen(&self, ledger: &mut Ledger, key: &str, fetched: ViewSource<'_>) {
        let all = fetched.text;
        let version = text_version(all);
        // A byte order mark that is not shown counts as seen.
        let shown = self.start..self.start + self.text.len() + if self.start == 0 { bom_len(all) } else { 0 };
        if fetched.is_whole && !self.is_past_end && shown == (0..all.len()) {
            ledger.record_read(key, all.clone(), version);
        } else if fetched.is_whole {
            ledger.record_window_read(key, version, shown.start as u64..shown.end as u64, all.len() as u64);
        } else {
            // The size of the file is unknown, so this is a part.
            ledger.record_window_read(key, version, 0..self.text.len() as u64, u64::MAX);
        }
    }
}

/// Returns as many whole lines as may be shown; if the first line is too long, its start.
fn clip_lines(text: &str) -> &str {
    if text.len() <= MAX_BYTES {
        return text;
    }
    let room = &text[..text.floor_char_boundary(MAX_BYTES)];
    match room.rfind('\n') {
        Some(end) => &room[..=end],
        None => room,
    }
}

fn bom_len(text: &str) -> usize {
    if text.starts_with(BOM) { BOM.len_utf8() } else { 0 }
}

/// Returns the version of a text.
#[must_use]
pub fn text_version(text: &str) -> TextVersion {
    let hash = *ContentHash::digest(text.as_bytes()).as_bytes();
    let [a, b, c, d, e, f, g, h, ..] = hash;
    TextVersion(u64::from_le_bytes([a, b, c, d, e, f, g, h]))
}

#[cfg(test)]
mod tests;
