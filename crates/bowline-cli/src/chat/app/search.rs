//! Looking for a text in the conversation.

use crossterm::event::{KeyCode, KeyEvent, KeyModifiers};

use super::App;
use crate::chat::conversation::Direction;
use crate::chat::parts::entry::Entry;

impl App {
    /// Begins to look for something, or goes on to what is above the last that was found.
    pub(super) fn begin_search(&mut self) {
        match self.search {
            None => self.search = Some(Entry::default()),
            Some(_) => self.find(Direction::Older),
        }
    }

    /// Takes a key while something is looked for.
    pub(super) fn search_key(&mut self, key: KeyEvent) {
        let control = key.modifiers == KeyModifiers::CONTROL;
        match key.code {
            KeyCode::Esc => {
                self.search = None;
                self.conversation.end_search();
            }
            KeyCode::Enter | KeyCode::Up => self.find(Direction::Older),
            KeyCode::Down => self.find(Direction::Newer),
            KeyCode::Char('f') if control => self.begin_search(),
            KeyCode::PageUp => self.conversation.scroll_page(-1),
            KeyCode::PageDown => self.conversation.scroll_page(1),
            _ => {
                if let Some(search) = &mut self.search {
                    search.key(key);
                }
            }
        }
    }

    fn find(&mut self, direction: Direction) {
        let text = self.search.as_ref().map(|search| search.text().to_owned()).unwrap_or_default();
        if !text.is_empty() && !self.conversation.find(&text, direction) {
            self.flash("nothing more was found");
        }
    }
}
