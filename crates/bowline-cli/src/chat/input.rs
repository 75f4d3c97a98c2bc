//! What the person types.

use crossterm::event::{KeyCode, KeyEvent, KeyModifiers};
use ratatui::style::{Modifier, Style};
use ratatui::text::Span;
use ratatui_textarea::{CursorMove, DataCursor, TextArea, WrapMode};

use super::wrap::{Break, wrap};

/// As much may be typed or pasted, in bytes: with every key all of it is laid out again.
pub(crate) const MAX_INPUT: usize = 64 << 10;

/// So many prompts are remembered; the oldest go.
const MAX_HISTORY: usize = 200;

/// The text that is being written, and what was sent before it.
#[derive(Debug)]
pub(crate) struct Input {
    area: TextArea<'static>,
    history: Vec<String>,
    // Which of the history is shown, and what was being written before it was.
    browsing: Option<(usize, String)>,
}

/// What became of a key.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Typed {
    /// The text or the cursor changed.
    Edited,
    /// The text is to be sent; the input is empty now.
    Sent(String),
    /// The key means nothing here.
    Ignored,
    /// There is no room for more.
    Full,
}

impl Default for Input {
    fn default() -> Self {
        Self { area: area(""), history: Vec::new(), browsing: None }
    }
}

fn area(text: &str) -> TextArea<'static> {
    let mut area = TextArea::new(text.split('\n').map(str::to_owned).collect());
    area.set_wrap_mode(WrapMode::WordOrGlyph);
    area.set_cursor_line_style(Style::new());
    area.set_placeholder_text("Say something; / for commands, @ for files, F1 for help");
    area.set_placeholder_style(Style::new().add_modifier(Modifier::DIM));
    area.set_max_histories(100);
    area.move_cursor(CursorMove::Bottom);
    area.move_cursor(CursorMove::End);
    area
}

impl Input {
    /// Takes a key.
    pub(crate) fn key(&mut self, key: KeyEvent) -> Typed {
        let plain = key.modifiers.is_empty();
        let control = key.modifiers == KeyModifiers::CONTROL;
        match key.code {
            KeyCode::Enter if plain => self.send(),
            // Terminals that do not tell Shift+Enter send Ctrl-J at least.
            KeyCode::Enter => self.insert("\n"),
            KeyCode::Char('j') if control => self.insert("\n"),
            KeyCode::Up if plain && self.cursor().0 == 0 => self.recall(true),
            KeyCode::Down if plain && self.cursor().0 + 1 == self.area.lines().len() => self.recall(false),
            KeyCode::Char('u') if control => {
                self.area.delete_line_by_head();
                Typed::Edited
            }
            KeyCode::Char(character) if !character.is_control() => {
                let is_text = key.modifiers.difference(KeyModifiers::SHIFT).is_empty();
                if is_text && self.bytes() >= MAX_INPUT {
                    return Typed::Full;
                }
                self.area.input(key);
                Typed::Edited
            }
            KeyCode::Left
            | KeyCode::Right
            | KeyCode::Up
            | KeyCode::Down
            | KeyCode::Backspace
            | KeyCode::Delete => {
                self.area.input(key);
                Typed::Edited
            }
            _ => Typed::Ignored,
        }
    }

    /// Puts text where the cursor is, as it was pasted.
    pub(crate) fn insert(&mut self, text: &str) -> Typed {
        let text = text.replace("\r\n", "\n").replace('\r', "\n");
        let text: String = text
            .chars()
            .filter(|character| !character.is_control() || matches!(character, '\n' | '\t'))
            .collect();
        if self.bytes() + text.len() > MAX_INPUT {
            return Typed::Full;
        }
        self.area.insert_str(text);
        Typed::Edited
    }

    fn send(&mut self) -> Typed {
        let text = self.text();
        if text.trim().is_empty() {
            return Typed::Ignored;
        }
        self.remember(&text);
        self.set("");
        Typed::Sent(text)
    }

    fn remember(&mut self, text: &str) {
        self.browsing = None;
        if self.history.last().is_none_or(|last| last != text) {
            self.history.push(text.to_owned());
        }
        if self.history.len() > MAX_HISTORY {
            self.history.remove(0);
        }
    }

    fn recall(&mut self, back: bool) -> Typed {
        let next = match &self.browsing {
            None if back => self.history.len().checked_sub(1),
            None => return Typed::Ignored,
            Some((at, _)) if back => at.checked_sub(1),
            Some((at, _)) => Some(at + 1),
        };
        let Some(next) = next else { return Typed::Ignored };
        let draft = match self.browsing.take() {
            Some((_, draft)) => draft,
            None => self.text(),
        };
        match self.history.get(next).cloned() {
            Some(text) => {
                self.area = area(&text);
                self.browsing = Some((next, draft));
            }
            None => self.area = area(&draft),
        }
        Typed::Edited
    }

    /// Replaces the text.
    pub(crate) fn set(&mut self, text: &str) {
        self.area = area(text);
        self.browsing = None;
    }

    /// Returns the text.
    pub(crate) fn text(&self) -> String {
        self.area.lines().join("\n")
    }

    /// Says whether there is none.
    pub(crate) fn is_empty(&self) -> bool {
        self.area.is_empty()
    }

    fn bytes(&self) -> usize {
        self.area.lines().iter().map(|line| line.len() + 1).sum()
    }

    /// Returns where the cursor is: the line, and the character in it.
    pub(crate) fn cursor(&self) -> (usize, usize) {
        let DataCursor(row, column) = self.area.cursor();
        (row, column)
    }

    /// Returns the text of the cursor's line before it.
    pub(crate) fn before_cursor(&self) -> String {
        let (row, column) = self.cursor();
        self.area.lines().get(row).map(|line| line.chars().take(column).collect()).unwrap_or_default()
    }

    /// Replaces so many characters before the cursor.
    pub(crate) fn complete(&mut self, characters: usize, text: &str) {
        for _ in 0..characters {
            self.area.delete_char();
        }
        self.area.insert_str(text);
    }

    /// Goes to the start of the line, or to its end.
    pub(crate) fn go_to_edge(&mut self, end: bool) {
        self.area.move_cursor(if end { CursorMove::End } else { CursorMove::Head });
    }

    /// Returns how many rows the text takes at a width, at most `most`.
    pub(crate) fn rows(&self, width: usize, most: usize) -> usize {
        let mut rows = 0;
        for line in self.area.lines() {
            let start: String = line.chars().take(width.saturating_mul(most) + 1).collect();
            // The cursor may stand behind the last character.
            rows += wrap(&[Span::raw(start + "_")], width, Break::Words, &[], &[]).len();
            if rows >= most {
                return most;
            }
        }
        rows.max(1)
    }

    /// Returns the text area, to draw it.
    pub(crate) fn area(&self) -> &TextArea<'static> {
        &self.area
    }

    /// Shows the cursor, or hides it.
    pub(crate) fn focus(&mut self, focused: bool) {
        let style = if focused { Style::new().add_modifier(Modifier::REVERSED) } else { Style::new() };
        self.area.set_cursor_style(style);
    }
}

#[cfg(test)]
mod tests;
