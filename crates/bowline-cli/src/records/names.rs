//! How sessions and turns are named to people: short ids, and what a turn was asked to do.

use std::collections::BTreeSet;

use bowline_workspace::workspace::{Changed, TurnTitles};

use super::showing::safe;

/// So many characters of a session's id are shown, unless another one begins with them.
const SHORT: usize = 8;
/// So many characters of a title are shown on a line with other things.
const TITLE: usize = 60;

/// The names of what a journal knows.
#[derive(Debug, Default)]
pub(crate) struct Names {
    sessions: BTreeSet<String>,
    titles: TurnTitles,
}

impl Names {
    /// Returns the names of all that is in a history.
    pub(crate) fn new(history: &[Changed], titles: TurnTitles) -> Self {
        let sessions = history.iter().filter_map(|changed| changed.change.origin.session.clone());
        Self { sessions: sessions.collect(), titles }
    }

    /// Returns a session's id, as short as it can be told from others.
    pub(crate) fn session(&self, id: &str) -> String {
        safe(shortened(id, self.sessions.iter().map(String::as_str)))
    }

    /// Returns a turn: its number, its session, and what it was asked to do.
    pub(crate) fn turn(&self, session: &str, turn: u64) -> String {
        let title = self.title(session, turn).map(|title| format!(": {title}")).unwrap_or_default();
        format!("turn {turn} of session {}{title}", self.session(session))
    }

    /// Returns what a turn was asked to do, if that is known.
    pub(crate) fn title(&self, session: &str, turn: u64) -> Option<String> {
        let title = self.titles.get(session, turn)?;
        let shown: String = title.chars().take(TITLE).collect();
        let more = if shown.len() < title.len() { "…" } else { "" };
        Some(safe(&(shown.trim_end().to_owned() + more)))
    }
}

/// Returns the beginning of an id that no other one has, of eight characters at least. Ids that are not random digits say
/// something as a whole, and stay whole.
pub(crate) fn shortened<'a>(id: &'a str, known: impl Iterator<Item = &'a str>) -> &'a str {
    let is_random = |text: &str| text.bytes().all(|byte| byte.is_ascii_hexdigit());
    if id.len() < 2 * SHORT || !id.get(..SHORT).is_some_and(is_random) {
        return id;
    }
    let common = |other: &str| id.bytes().zip(other.bytes()).take_while(|(one, other)| one == other).count();
    let needed = known.filter(|other| *other != id).map(|other| common(other) + 1).max().unwrap_or(0);
    // One that is the beginning of another has no shorter name.
    id.get(..needed.max(SHORT)).unwrap_or(id)
}

#[cfg(test)]
mod tests {
    use super::shortened;

    #[test]
    fn ids_are_as_short_as_they_can_be_told_apart() {
        let (one, other) = ("0123456789abcdef0123456789abcdef", "0123456789ffcdef0123456789abcdef");
        let uuid = "3f2a1b2c-0000-7000-8000-000000000000";
        let known = [one, other, uuid, "mcp-1790000000-12-0", "0a1b", ""];
        let short = known.map(|id| shortened(id, known.into_iter()));
        assert_eq!(short, ["0123456789a", "0123456789f", "3f2a1b2c", "mcp-1790000000-12-0", "0a1b", ""]);
    }
}
