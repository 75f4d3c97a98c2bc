//! Search in the conversation.

use crossterm::event::{KeyCode, KeyEvent, KeyModifiers};

use super::App;
use crate::chat::conversation::SearchDirection;
use crate::chat::widgets::line_editor::LineEditor;

impl App {
    /// Opens the search, or moves to the next match above the last one.
    pub(super) fn begin_search(&mut self) {
        match self.search_input {
            None => self.search_input = Some(LineEditor::default()),
            Some(_) => self.find_next(SearchDirection::Older),
        }
    }

    /// Handles a key while the search is open.
    pub(super) fn handle_search_key(&mut self, key: KeyEvent) {
        let control = key.modifiers == KeyModifiers::CONTROL;
        match key.code {
            KeyCode::Esc => {
                self.search_input = None;
                self.conversation.end_search();
            }
            KeyCode::Enter | KeyCode::Up => self.find_next(SearchDirection::Older),
            KeyCode::Down => self.find_next(SearchDirection::Newer),
            KeyCode::Char('f') if control => self.begin_search(),
            KeyCode::PageUp => self.conversation.scroll_page(-1),
            KeyCode::PageDown => self.conversation.scroll_page(1),
            _ => {
                if let Some(search) = &mut self.search_input {
                    search.handle_key(key);
                }
            }
        }
    }

    fn find_next(&mut self, direction: SearchDirection) {
        let text = self.search_input.as_ref().map(|search| search.text().to_owned()).unwrap_or_default();
        if !text.is_empty() && !self.conversation.find_text(&text, direction) {
            self.show_flash("nothing more was found");
        }
    }
}
