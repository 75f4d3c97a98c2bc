//! Text search in the conversation, as it is displayed.

use super::{Conversation, ScrollPosition};

/// The number of lines of the same item kept visible above a match.
const CONTEXT_LINES: usize = 3;

/// The direction of a search from the last match.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum SearchDirection {
    /// Upwards; the first search starts at the end.
    Older,
    /// Downwards.
    Newer,
}

impl Conversation {
    /// Scrolls to the next line that contains a text, ignoring case, and returns whether there is one. Closed items are
    /// not searched.
    pub(crate) fn find_text(&mut self, text: &str, direction: SearchDirection) -> bool {
        let text = text.to_lowercase();
        let last = self.search_hit.and_then(|(key, line)| Some((self.index_of(key)?, line)));
        let Some(end) = self.items.len().checked_sub(1).filter(|_| !text.is_empty()) else { return false };
        let (mut index, mut from) = match last {
            Some((index, line)) => (index, Some(line)),
            None => (end, None),
        };
        loop {
            let is_match = |line: &ratatui::text::Line<'_>| {
                let content: String = line.spans.iter().map(|span| span.content.as_ref()).collect();
                content.to_lowercase().contains(&text)
            };
            let lines = self.layout_item(index);
            let line = match direction {
                SearchDirection::Older => {
                    lines[..from.unwrap_or(lines.len()).min(lines.len())].iter().rposition(is_match)
                }
                SearchDirection::Newer => {
                    let first = from.map_or(0, |line| line + 1).min(lines.len());
                    lines[first..].iter().position(is_match).map(|line| first + line)
                }
            };
            if let Some((line, (key, _))) = line.zip(self.items.get(index)) {
                self.search_hit = Some((*key, line));
                self.scroll = ScrollPosition::At(*key, line.saturating_sub(CONTEXT_LINES));
                return true;
            }
            from = None;
            index = match direction {
                SearchDirection::Older if index > 0 => index - 1,
                SearchDirection::Newer if index < end => index + 1,
                _ => return false,
            };
        }
    }

    /// Clears the match.
    pub(crate) fn end_search(&mut self) {
        self.search_hit = None;
    }
}
