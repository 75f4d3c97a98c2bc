//! Text that is looked for in the conversation, as it is shown.

use super::{Conversation, Scroll};

/// So many lines of the same item stay in sight above one that was found.
const CONTEXT: usize = 3;

/// Where to look, from what was found last.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Direction {
    /// Above it; first from the end.
    Older,
    /// Below it.
    Newer,
}

impl Conversation {
    /// Goes to the next line that has a text in it, in small letters or capitals, and says whether there is one. What is
    /// closed is not looked into.
    pub(crate) fn find(&mut self, text: &str, direction: Direction) -> bool {
        let text = text.to_lowercase();
        let last = self.found.and_then(|(key, line)| Some((self.position(key)?, line)));
        let Some(end) = self.items.len().checked_sub(1).filter(|_| !text.is_empty()) else { return false };
        let (mut at, mut from) = match last {
            Some((at, line)) => (at, Some(line)),
            None => (end, None),
        };
        loop {
            let fits = |line: &ratatui::text::Line<'_>| {
                let shown: String = line.spans.iter().map(|span| span.content.as_ref()).collect();
                shown.to_lowercase().contains(&text)
            };
            let lines = self.lay(at);
            let line = match direction {
                Direction::Older => {
                    lines[..from.unwrap_or(lines.len()).min(lines.len())].iter().rposition(fits)
                }
                Direction::Newer => {
                    let first = from.map_or(0, |line| line + 1).min(lines.len());
                    lines[first..].iter().position(fits).map(|line| first + line)
                }
            };
            if let Some((line, (key, _))) = line.zip(self.items.get(at)) {
                self.found = Some((*key, line));
                self.scroll = Scroll::At(*key, line.saturating_sub(CONTEXT));
                return true;
            }
            from = None;
            at = match direction {
                Direction::Older if at > 0 => at - 1,
                Direction::Newer if at < end => at + 1,
                _ => return false,
            };
        }
    }

    /// Forgets what was found.
    pub(crate) fn end_search(&mut self) {
        self.found = None;
    }
}
