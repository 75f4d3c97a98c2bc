//! Display names of sessions and turns: short ids, and the prompts of turns.

use std::collections::BTreeSet;

use bowline_workspace::workspace::{ListedChange, TurnTitles};

use super::console::escape_line;

/// The number of characters shown of a session's id, unless another id shares them.
const SHORT_ID_CHARS: usize = 8;
/// The maximum number of characters of a title within a line.
const MAX_TITLE_CHARS: usize = 60;

/// The display names of a journal's sessions and turns.
#[derive(Debug, Default)]
pub(crate) struct SessionNames {
    sessions: BTreeSet<String>,
    titles: TurnTitles,
}

impl SessionNames {
    /// Returns the names for a history.
    pub(crate) fn new(history: &[ListedChange], titles: TurnTitles) -> Self {
        let sessions = history.iter().filter_map(|changed| changed.change.origin.session.clone());
        Self { sessions: sessions.collect(), titles }
    }

    /// Returns the shortest distinguishable prefix of a session's id.
    pub(crate) fn session(&self, id: &str) -> String {
        escape_line(shorten_id(id, self.sessions.iter().map(String::as_str)))
    }

    /// Describes a turn: its number, its session, and its prompt.
    pub(crate) fn turn(&self, session: &str, turn: u64) -> String {
        let title = self.title(session, turn).map(|title| format!(": {title}")).unwrap_or_default();
        format!("turn {turn} of session {}{title}", self.session(session))
    }

    /// Returns the title of a turn, if known.
    pub(crate) fn title(&self, session: &str, turn: u64) -> Option<String> {
        let title = self.titles.get(session, turn)?;
        let shown: String = title.chars().take(MAX_TITLE_CHARS).collect();
        let more = if shown.len() < title.len() { "…" } else { "" };
        Some(escape_line(&(shown.trim_end().to_owned() + more)))
    }
}

/// Returns a unique prefix of an id, of at least eight characters. Ids that are not random digits are meaningful as a
/// whole, and stay whole.
pub(crate) fn shorten_id<'a>(id: &'a str, known: impl Iterator<Item = &'a str>) -> &'a str {
    let is_random = |text: &str| text.bytes().all(|byte| byte.is_ascii_hexdigit());
    if id.len() < 2 * SHORT_ID_CHARS || !id.get(..SHORT_ID_CHARS).is_some_and(is_random) {
        return id;
    }
    let common = |other: &str| id.bytes().zip(other.bytes()).take_while(|(one, other)| one == other).count();
    let needed = known.filter(|other| *other != id).map(|other| common(other) + 1).max().unwrap_or(0);
    // An id that is a prefix of another has no shorter name.
    id.get(..needed.max(SHORT_ID_CHARS)).unwrap_or(id)
}

#[cfg(test)]
mod tests {
    use super::shorten_id;

    #[test]
    fn ids_are_as_short_as_they_can_be_told_apart() {
        let (one, other) = ("0123456789abcdef0123456789abcdef", "0123456789ffcdef0123456789abcdef");
        let uuid = "3f2a1b2c-0000-7000-8000-000000000000";
        let known = [one, other, uuid, "mcp-1790000000-12-0", "0a1b", ""];
        let short = known.map(|id| shorten_id(id, known.into_iter()));
        assert_eq!(short, ["0123456789a", "0123456789f", "3f2a1b2c", "mcp-1790000000-12-0", "0a1b", ""]);
    }
}
