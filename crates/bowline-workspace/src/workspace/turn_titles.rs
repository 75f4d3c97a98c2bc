//! The titles of turns, in a file beside the journal: one JSON line per turn, newest last.
//!
//! Titles are for people who read a list of changes. A missing title, because the file was truncated or could not be
//! written, is not an error.

use std::collections::HashMap;
use std::io::{Read as _, Write as _};
use std::path::Path;

use bowline_text::display;
use serde::{Deserialize, Serialize};

use bowline_storage::disk_calls::DiskCalls;
use bowline_storage::{OpenMode, open_private, replace_file};

/// The file's name.
const TITLES_FILE: &str = "turns.jsonl";
/// The size, in bytes, beyond which the older half of the file is dropped.
const MAX_FILE_BYTES: u64 = 512 << 10;
/// The maximum length of a title, in bytes; a longer one ends in an ellipsis.
const MAX_TITLE_BYTES: usize = 200;

/// The titles of turns, by session and number.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct TurnTitles {
    by_turn: HashMap<(String, u64), String>,
}

impl TurnTitles {
    /// Reads the titles that are recorded beside a journal.
    #[must_use]
    pub fn read(journal_directory: &Path) -> Self {
        let text = read_titles(&journal_directory.join(TITLES_FILE)).unwrap_or_default();
        // Skips a line that a crash truncated.
        let lines = text.lines().filter_map(|line| serde_json::from_str::<TitleLine<'_>>(line).ok());
        let by_turn =
            lines.map(|line| ((line.session.into_owned(), line.turn), line.title.into_owned())).collect();
        Self { by_turn }
    }

    /// Returns the title of a turn, if it is known.
    #[must_use]
    pub fn get(&self, session: &str, turn: u64) -> Option<&str> {
        self.by_turn.get(&(session.to_owned(), turn)).map(String::as_str)
    }
}

#[derive(Serialize, Deserialize)]
struct TitleLine<'a> {
    session: std::borrow::Cow<'a, str>,
    turn: u64,
    title: std::borrow::Cow<'a, str>,
}

/// Records the first line of a prompt as the title of its turn, beside a journal.
pub(super) fn record_title(journal_directory: &Path, session: &str, turn: u64, prompt: &str) {
    let Some(first) = prompt.lines().map(str::trim).find(|line| !line.is_empty()) else { return };
    let title = match first.len() {
        0..=MAX_TITLE_BYTES => first.to_owned(),
        _ => format!("{}…", &first[..first.floor_char_boundary(MAX_TITLE_BYTES)]),
    };
    let title = display::escape_line(&title, usize::MAX);
    let line = TitleLine { session: session.into(), turn, title: title.into() };
    // A turn without a title is listed by its number.
    append_line(&journal_directory.join(TITLES_FILE), &line).ok();
}

fn append_line(file: &Path, line: &TitleLine<'_>) -> std::io::Result<()> {
    let text = format!("{}\n", serde_json::to_string(line)?);
    let mut opened = open_private(file, OpenMode::Append, &DiskCalls::default())?;
    // One write, so that lines from several processes do not interleave.
    opened.write_all(text.as_bytes())?;
    if opened.metadata()?.len() > MAX_FILE_BYTES { drop_older_half(file) } else { Ok(()) }
}

fn drop_older_half(file: &Path) -> std::io::Result<()> {
    let text = read_titles(file)?;
    let half = text.floor_char_boundary(text.len() / 2);
    let kept = text[half..].split_once('\n').map_or("", |(_, rest)| rest);
    Ok(replace_file(file, &file.with_extension("new"), kept.as_bytes())?)
}

fn read_titles(file: &Path) -> std::io::Result<String> {
    let mut bytes = Vec::new();
    std::fs::File::open(file)?.take(4 * MAX_FILE_BYTES).read_to_end(&mut bytes)?;
    Ok(String::from_utf8_lossy(&bytes).into_owned())
}

#[cfg(test)]
mod tests;
