//! A single-line text editor.

use crossterm::event::{KeyCode, KeyEvent, KeyModifiers};
use ratatui::style::{Modifier, Style};
use ratatui::text::{Line, Span};

use crate::view::widgets::cells;

/// The maximum length of the text, in bytes. Further input is ignored.
pub(crate) const MAX_TEXT: usize = 64 << 10;

/// A text with a cursor in it.
#[derive(Debug, Clone, Default)]
pub(crate) struct LineEditor {
    text: String,
    // Invariant: on a character boundary of `text`.
    cursor: usize,
}

impl LineEditor {
    /// Returns an editor with an initial text.
    pub(crate) fn new(text: &str) -> Self {
        let mut editor = Self::default();
        editor.paste(text);
        editor
    }

    /// Returns the text.
    pub(crate) fn text(&self) -> &str {
        &self.text
    }

    /// Edits the text if the key is for editing, and returns whether it was.
    pub(crate) fn handle_key(&mut self, key: KeyEvent) -> bool {
        let control = key.modifiers.contains(KeyModifiers::CONTROL);
        let is_plain =
            !key.modifiers.intersects(KeyModifiers::CONTROL | KeyModifiers::ALT | KeyModifiers::SUPER);
        match key.code {
            KeyCode::Char('u') if control => {
                self.text.drain(..self.cursor);
                self.cursor = 0;
            }
            KeyCode::Char('w') if control => {
                let kept = self.text[..self.cursor].trim_end();
                let start = kept.rfind(' ').map_or(0, |space| space + 1);
                self.text.drain(start..self.cursor);
                self.cursor = start;
            }
            KeyCode::Char('a') if control => self.cursor = 0,
            KeyCode::Char('e') if control => self.cursor = self.text.len(),
            KeyCode::Char(character) if is_plain => self.paste(character.encode_utf8(&mut [0; 4])),
            KeyCode::Backspace => {
                let start = self.previous_boundary();
                self.text.drain(start..self.cursor);
                self.cursor = start;
            }
            KeyCode::Delete => {
                let end = self.next_boundary();
                self.text.drain(self.cursor..end);
            }
            KeyCode::Left => self.cursor = self.previous_boundary(),
            KeyCode::Right => self.cursor = self.next_boundary(),
            KeyCode::Home => self.cursor = 0,
            KeyCode::End => self.cursor = self.text.len(),
            _ => return false,
        }
        true
    }

    /// Inserts text at the cursor, with line ends as spaces.
    pub(crate) fn paste(&mut self, text: &str) {
        let text = text.replace("\r\n", " ").replace(['\r', '\n'], " ");
        let room = MAX_TEXT.saturating_sub(self.text.len());
        let text = &text[..text.floor_char_boundary(room)];
        self.text.insert_str(self.cursor, text);
        self.cursor += text.len();
    }

    /// Renders the part around the cursor in `width` cells, escaped.
    pub(crate) fn render(&self, width: u16, focused: bool) -> Line<'static> {
        let width = usize::from(width);
        if !focused {
            return Line::raw(cells::truncate(
                &cells::escape_line(&self.text),
                width,
                cells::Truncation::KeepStart,
            ));
        }
        let before = cells::escape_line(&self.text[..self.cursor]);
        let end = self.next_boundary();
        let at_cursor = match &self.text[self.cursor..end] {
            "" => " ".to_owned(),
            at_cursor => cells::escape_line(at_cursor),
        };
        let at_cursor = cells::truncate(&at_cursor, width, cells::Truncation::KeepStart);
        let before = cells::truncate(
            &before,
            width.saturating_sub(cells::text_width(&at_cursor)),
            cells::Truncation::KeepEnd,
        );
        let rest = width.saturating_sub(cells::text_width(&at_cursor) + cells::text_width(&before));
        let after =
            cells::truncate(&cells::escape_line(&self.text[end..]), rest, cells::Truncation::KeepStart);
        Line::from(vec![
            Span::raw(before),
            Span::styled(at_cursor, Style::new().add_modifier(Modifier::REVERSED)),
            Span::raw(after),
        ])
    }

    fn previous_boundary(&self) -> usize {
        self.text[..self.cursor].char_indices().next_back().map_or(0, |(index, _)| index)
    }

    fn next_boundary(&self) -> usize {
        self.text[self.cursor..]
            .chars()
            .next()
            .map_or(self.cursor, |character| self.cursor + character.len_utf8())
    }
}

#[cfg(test)]
mod tests;
