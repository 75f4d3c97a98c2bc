//! One line of text that a person types.

use crossterm::event::{KeyCode, KeyEvent, KeyModifiers};
use ratatui::style::{Modifier, Style};
use ratatui::text::{Line, Span};

use crate::chat::parts::cells;

/// The longest text, in bytes. What is typed or pasted beyond it is not taken.
pub(crate) const MAX_TEXT: usize = 64 << 10;

/// A text with a cursor in it.
#[derive(Debug, Clone, Default)]
pub(crate) struct Entry {
    text: String,
    // Invariant: on a boundary of characters in `text`.
    cursor: usize,
}

impl Entry {
    /// Returns a text to begin with.
    pub(crate) fn new(text: &str) -> Self {
        let mut entry = Self::default();
        entry.paste(text);
        entry
    }

    /// Returns the text.
    pub(crate) fn text(&self) -> &str {
        &self.text
    }

    /// Edits the text, if that is what the key is for, and says whether it was.
    pub(crate) fn key(&mut self, key: KeyEvent) -> bool {
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
                let start = self.previous();
                self.text.drain(start..self.cursor);
                self.cursor = start;
            }
            KeyCode::Delete => {
                let end = self.next();
                self.text.drain(self.cursor..end);
            }
            KeyCode::Left => self.cursor = self.previous(),
            KeyCode::Right => self.cursor = self.next(),
            KeyCode::Home => self.cursor = 0,
            KeyCode::End => self.cursor = self.text.len(),
            _ => return false,
        }
        true
    }

    /// Puts in text at the cursor, line ends as blanks.
    pub(crate) fn paste(&mut self, text: &str) {
        let text = text.replace("\r\n", " ").replace(['\r', '\n'], " ");
        let room = MAX_TEXT.saturating_sub(self.text.len());
        let text = &text[..text.floor_char_boundary(room)];
        self.text.insert_str(self.cursor, text);
        self.cursor += text.len();
    }

    /// Returns the part around the cursor in `width` cells, safe to show.
    pub(crate) fn line(&self, width: u16, focused: bool) -> Line<'static> {
        let width = usize::from(width);
        if !focused {
            return Line::raw(cells::fit(&cells::visible(&self.text), width, cells::Stays::Start));
        }
        let before = cells::visible(&self.text[..self.cursor]);
        let end = self.next();
        let under = match &self.text[self.cursor..end] {
            "" => " ".to_owned(),
            under => cells::visible(under),
        };
        let under = cells::fit(&under, width, cells::Stays::Start);
        let before = cells::fit(&before, width.saturating_sub(cells::width(&under)), cells::Stays::End);
        let rest = width.saturating_sub(cells::width(&under) + cells::width(&before));
        let after = cells::fit(&cells::visible(&self.text[end..]), rest, cells::Stays::Start);
        Line::from(vec![
            Span::raw(before),
            Span::styled(under, Style::new().add_modifier(Modifier::REVERSED)),
            Span::raw(after),
        ])
    }

    fn previous(&self) -> usize {
        self.text[..self.cursor].char_indices().next_back().map_or(0, |(at, _)| at)
    }

    fn next(&self) -> usize {
        self.text[self.cursor..]
            .chars()
            .next()
            .map_or(self.cursor, |character| self.cursor + character.len_utf8())
    }
}

#[cfg(test)]
mod tests;
