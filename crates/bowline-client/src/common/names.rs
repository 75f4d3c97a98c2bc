//! Display names of sessions and turns: short ids, and the prompts of turns.

use std::collections::BTreeSet;

use bowline_workspace::workspace::{ListedChange, TurnTitles};

use super::console::escape_line;
use crate::error::CliError;

/// The number of characters shown of a session's id, unless another id shares them.
const SHORT_ID_CHARS: usize = 8;
/// The maximum number of characters of a title within a line.
const MAX_TITLE_CHARS: usize = 60;

/// The maximum number of candidates named when a choice is ambiguous.
pub const MAX_CANDIDATES: usize = 8;

/// The display names of a journal's sessions and turns.
#[derive(Debug, Default)]
pub struct SessionNames {
    sessions: BTreeSet<String>,
    titles: TurnTitles,
}

impl SessionNames {
    /// Returns the names for a history.
    pub fn new(history: &[ListedChange], titles: TurnTitles) -> Self {
        let sessions = history.iter().filter_map(|changed| changed.change.origin.session.clone());
        Self { sessions: sessions.collect(), titles }
    }

    /// Returns the shortest distinguishable prefix of a session's id.
    pub fn session(&self, id: &str) -> String {
        escape_line(shorten_id(id, self.sessions.iter().map(String::as_str)))
    }

    /// Describes a turn: its number, its session, and its prompt.
    pub fn turn(&self, session: &str, turn: u64) -> String {
        let title = self.title(session, turn).map(|title| format!(": {title}")).unwrap_or_default();
        format!("turn {turn} of session {}{title}", self.session(session))
    }

    /// Returns the title of a turn, if known.
    pub fn title(&self, session: &str, turn: u64) -> Option<String> {
        let title = self.titles.get(session, turn)?;
        let shown: String = title.chars().take(MAX_TITLE_CHARS).collect();
        let more = if shown.len() < title.len() { "…" } else { "" };
        Some(escape_line(&(shown.trim_end().to_owned() + more)))
    }
}

/// Returns the id that matches exactly, or the only one with this prefix.
pub fn find_unique_id<'k>(ids: &[&'k str], prefix: &str, kind: &str) -> Result<Option<&'k str>, CliError> {
    if prefix.is_empty() {
        // Usually an unset variable in a script.
        return Err(CliError::Usage(format!("the {kind} id is empty: write one, or leave the option out")));
    }
    if let Some(exact) = ids.iter().find(|id| **id == prefix) {
        return Ok(Some(exact));
    }
    let has_prefix = |id: &&str| id.starts_with(prefix);
    let matches: Vec<&str> = ids.iter().copied().filter(has_prefix).collect();
    match matches.as_slice() {
        [] => Ok(None),
        [only] => Ok(Some(only)),
        several => {
            let shown: Vec<String> = several.iter().take(MAX_CANDIDATES).map(|id| escape_line(id)).collect();
            let more = several.len() - shown.len();
            let more = if more > 0 { format!(" and {more} more") } else { String::new() };
            Err(CliError::Usage(format!(
                "{} {kind} ids begin with {}: {}{more}; write more of it",
                several.len(),
                escape_line(prefix),
                shown.join(", ")
            )))
        }
    }
}

/// Returns a unique prefix of an id, of at least eight characters. Ids that are not random digits are meaningful as a
/// whole, and stay whole.
pub fn shorten_id<'a>(id: &'a str, known: impl Iterator<Item = &'a str>) -> &'a str {
    let is_random = |text: &str| text.bytes().all(|byte| byte.is_ascii_hexdigit());
    if id.len() < 2 * SHORT_ID_CHARS || !id.get(..SHORT_ID_CHARS).is_some_and(is_random) {
        return id;
    }
    let common_prefix_len = |other: &str| id.bytes().zip(other.bytes()).take_while(|(a, b)| a == b).count();
    let needed =
        known.filter(|other| *other != id).map(|other| common_prefix_len(other) + 1).max().unwrap_or(0);
    // An id that is a prefix of another has no shorter name.
    id.get(..needed.max(SHORT_ID_CHARS)).unwrap_or(id)
}

#[cfg(test)]
mod tests {
    use super::shorten_id;

    #[test]
    fn ids_are_as_short_as_they_can_be_told_apart() {
        let (first, second) = ("0123456789abcdef0123456789abcdef", "0123456789ffcdef0123456789abcdef");
        let uuid = "3f2a1b2c-0000-7000-8000-000000000000";
        let ids = [first, second, uuid, "mcp-1790000000-12-0", "0a1b", ""];
        let short = ids.map(|id| shorten_id(id, ids.into_iter()));
        assert_eq!(short, ["0123456789a", "0123456789f", "3f2a1b2c", "mcp-1790000000-12-0", "0a1b", ""]);
    }
}
