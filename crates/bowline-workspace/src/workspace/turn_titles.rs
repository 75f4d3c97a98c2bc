//! What each turn was asked to do, in a file beside the journal: one JSON line a turn, the newest last.
//!
//! Titles are for people who read a list of changes. That one is missing, because the file was cut or could not be written,
//! is no failure.

use std::collections::HashMap;
use std::io::{Read as _, Write as _};
use std::path::Path;

use bowline_state::display;
use serde::{Deserialize, Serialize};

use super::Workspace;
use crate::calls::Calls;
use crate::storage::{OpenMode, open_private, replace_file};

/// The file's name.
const FILE: &str = "turns.jsonl";
/// When it is longer than this, in bytes, the older half of it goes.
const MAX_BYTES: u64 = 512 << 10;
/// So much of a prompt is its title, in bytes; what is longer ends in an ellipsis.
const MAX_TITLE: usize = 200;

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
struct Line<'a> {
    session: std::borrow::Cow<'a, str>,
    turn: u64,
    title: std::borrow::Cow<'a, str>,
}

impl Workspace {
    /// Keeps the first line of a prompt as the title of its turn.
    pub fn record_turn_title(&self, session: &str, turn: u64, prompt: &str) {
        let Some(first) = prompt.lines().map(str::trim).find(|line| !line.is_empty()) else { return };
        let title = match first.len() {
            0..=MAX_TITLE => first.to_owned(),
            _ => format!("{}…", &first[..first.floor_char_boundary(MAX_TITLE)]),
        };
        let title = display::line(&title, usize::MAX);
        let line = Line { session: session.into(), turn, title: title.into() };
        // A turn without a title is known by its number.
        append(&self.inner.journal.join(FILE), &line).ok();
    }

    /// Returns the titles of the turns that are known.
    #[must_use]
    pub fn turn_titles(&self) -> TurnTitles {
        let text = read(&self.inner.journal.join(FILE)).unwrap_or_default();
        // A line that a crash cut short is left out.
        let lines = text.lines().filter_map(|line| serde_json::from_str::<Line<'_>>(line).ok());
        let by_turn =
            lines.map(|line| ((line.session.into_owned(), line.turn), line.title.into_owned())).collect();
        TurnTitles { by_turn }
    }
}

fn append(file: &Path, line: &Line<'_>) -> std::io::Result<()> {
    let text = format!("{}\n", serde_json::to_string(line)?);
    let mut opened = open_private(file, OpenMode::Append, &Calls::default())?;
    // One write, so that lines of several processes do not mix.
    opened.write_all(text.as_bytes())?;
    if opened.metadata()?.len() > MAX_BYTES { cut(file) } else { Ok(()) }
}

/// Drops the older half of the file.
fn cut(file: &Path) -> std::io::Result<()> {
    let text = read(file)?;
    let half = text.floor_char_boundary(text.len() / 2);
    let kept = text[half..].split_once('\n').map_or("", |(_, rest)| rest);
    Ok(replace_file(file, &file.with_extension("new"), kept.as_bytes())?)
}

fn read(file: &Path) -> std::io::Result<String> {
    let mut bytes = Vec::new();
    std::fs::File::open(file)?.take(4 * MAX_BYTES).read_to_end(&mut bytes)?;
    Ok(String::from_utf8_lossy(&bytes).into_owned())
}

#[cfg(test)]
mod tests;
