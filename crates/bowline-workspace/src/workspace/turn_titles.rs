//! The titles of turns, in a file beside the journal: one JSON line per turn, newest last.
//!
//! Titles are for people who read a list of changes. A missing title, because the file was truncated or could not be
//! written, is not an error.

use std::collections::HashMap;
use std::io::{Read as _, Write as _};
use std::path::Path;

use bowline_text::display;
use serde::{Deserialize, Serialize};

use super::Workspace;
use crate::disk_calls::DiskCalls;
use crate::storage::{OpenMode, open_private, replace_file};

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

impl Workspace {
    /// Records the first line of a prompt as the title of its turn.
    pub fn record_turn_title(&self, session: &str, turn: u64, prompt: &str) {
        let Some(first) = prompt.lines().map(str::trim).find(|line| !line.is_empty()) else { return };
        let title = match first.len() {
            0..=MAX_TITLE_BYTES => first.to_owned(),
            _ => format!("{}…", &first[..first.floor_char_boundary(MAX_TITLE_BYTES)]),
        };
        let title = display::escape_line(&title, usize::MAX);
        let line = TitleLine { session: session.into(), turn, title: title.into() };
        // A turn without a title is listed by its number.
        append_line(&self.inner.journal_directory.join(TITLES_FILE), &line).ok();
    }

    /// Returns the recorded titles of turns.
    #[must_use]
    pub fn turn_titles(&self) -> TurnTitles {
        let text = read_titles(&self.inner.journal_directory.join(TITLES_FILE)).unwrap_or_default();
        // Skips a line that a crash truncated.
        let lines = text.lines().filter_map(|line| serde_json::from_str::<TitleLine<'_>>(line).ok());
        let by_turn =
            lines.map(|line| ((line.session.into_owned(), line.turn), line.title.into_owned())).collect();
        TurnTitles { by_turn }
    }
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
