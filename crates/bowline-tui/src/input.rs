//! The prompt input.

pub(crate) mod editor;

use crossterm::event::{KeyCode, KeyEvent, KeyModifiers};
use ratatui::style::{Modifier, Style};
use ratatui::text::Span;
use ratatui_textarea::{CursorMove, DataCursor, TextArea, WrapMode};

use crate::view::wrap::{LineBreak, wrap_spans};

/// The maximum length of the input, in bytes: every key lays all of it out again.
pub(crate) const MAX_INPUT: usize = 64 << 10;

/// The maximum number of remembered prompts; the oldest are dropped.
const MAX_HISTORY: usize = 200;

/// The prompt being written, and the history of sent prompts.
#[derive(Debug)]
pub(crate) struct PromptInput {
    text_area: TextArea<'static>,
    history: Vec<String>,
    // The history entry that is shown, and the text that was being written before.
    history_position: Option<(usize, String)>,
}

/// The result of a key.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum InputOutcome {
    /// The text or the cursor changed.
    Edited,
    /// The text is to be sent; the input is now empty.
    Submitted(String),
    /// The key has no meaning here.
    Ignored,
    /// The input is full.
    Full,
}

impl Default for PromptInput {
    fn default() -> Self {
        Self { text_area: new_text_area(""), history: Vec::new(), history_position: None }
    }
}

fn new_text_area(text: &str) -> TextArea<'static> {
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

impl PromptInput {
    /// Handles a key.
    pub(crate) fn handle_key(&mut self, key: KeyEvent) -> InputOutcome {
        let plain = key.modifiers.is_empty();
        let control = key.modifiers == KeyModifiers::CONTROL;
        match key.code {
            KeyCode::Enter if plain => self.submit(),
            // Terminals that do not report Shift+Enter at least send Ctrl-J.
            KeyCode::Enter => self.insert("\n"),
            KeyCode::Char('j') if control => self.insert("\n"),
            KeyCode::Up if plain && self.cursor().0 == 0 => self.recall_history(true),
            KeyCode::Down if plain && self.cursor().0 + 1 == self.text_area.lines().len() => {
                self.recall_history(false)
            }
            KeyCode::Char('u') if control => {
                self.text_area.delete_line_by_head();
                InputOutcome::Edited
            }
            KeyCode::Char(character) if !character.is_control() => {
                let is_text = key.modifiers.difference(KeyModifiers::SHIFT).is_empty();
                if is_text && self.byte_len() >= MAX_INPUT {
                    return InputOutcome::Full;
                }
                self.text_area.input(key);
                InputOutcome::Edited
            }
            KeyCode::Left
            | KeyCode::Right
            | KeyCode::Up
            | KeyCode::Down
            | KeyCode::Backspace
            | KeyCode::Delete => {
                self.text_area.input(key);
                InputOutcome::Edited
            }
            _ => InputOutcome::Ignored,
        }
    }

    /// Inserts text at the cursor, as pasted.
    pub(crate) fn insert(&mut self, text: &str) -> InputOutcome {
        let text = text.replace("\r\n", "\n").replace('\r', "\n");
        let text: String = text
            .chars()
            .filter(|character| !character.is_control() || matches!(character, '\n' | '\t'))
            .collect();
        if self.byte_len() + text.len() > MAX_INPUT {
            return InputOutcome::Full;
        }
        self.text_area.insert_str(text);
        InputOutcome::Edited
    }

    fn submit(&mut self) -> InputOutcome {
        let text = self.text();
        if text.trim().is_empty() {
            return InputOutcome::Ignored;
        }
        self.add_to_history(&text);
        self.set_text("");
        InputOutcome::Submitted(text)
    }

    fn add_to_history(&mut self, text: &str) {
        self.history_position = None;
        if self.history.last().is_none_or(|last| last != text) {
            self.history.push(text.to_owned());
        }
        if self.history.len() > MAX_HISTORY {
            self.history.remove(0);
        }
    }

    fn recall_history(&mut self, back: bool) -> InputOutcome {
        let next = match &self.history_position {
            None if back => self.history.len().checked_sub(1),
            None => return InputOutcome::Ignored,
            Some((index, _)) if back => index.checked_sub(1),
            Some((index, _)) => Some(index + 1),
        };
        let Some(next) = next else { return InputOutcome::Ignored };
        let draft = match self.history_position.take() {
            Some((_, draft)) => draft,
            None => self.text(),
        };
        match self.history.get(next).cloned() {
            Some(text) => {
                self.text_area = new_text_area(&text);
                self.history_position = Some((next, draft));
            }
            None => self.text_area = new_text_area(&draft),
        }
        InputOutcome::Edited
    }

    /// Replaces the text.
    pub(crate) fn set_text(&mut self, text: &str) {
        self.text_area = new_text_area(text);
        self.history_position = None;
    }

    /// Returns the text.
    pub(crate) fn text(&self) -> String {
        self.text_area.lines().join("\n")
    }

    /// Returns whether the text is empty.
    pub(crate) fn is_empty(&self) -> bool {
        self.text_area.is_empty()
    }

    fn byte_len(&self) -> usize {
        self.text_area.lines().iter().map(|line| line.len() + 1).sum()
    }

    /// Returns the position of the cursor: the line, and the character within it.
    pub(crate) fn cursor(&self) -> (usize, usize) {
        let DataCursor(row, column) = self.text_area.cursor();
        (row, column)
    }

    /// Returns the text of the cursor's line before the cursor.
    pub(crate) fn text_before_cursor(&self) -> String {
        let (row, column) = self.cursor();
        self.text_area.lines().get(row).map(|line| line.chars().take(column).collect()).unwrap_or_default()
    }

    /// Replaces a number of characters before the cursor.
    pub(crate) fn replace_before_cursor(&mut self, characters: usize, text: &str) {
        for _ in 0..characters {
            self.text_area.delete_char();
        }
        self.text_area.insert_str(text);
    }

    /// Moves to the start of the line, or to its end.
    pub(crate) fn move_to_line_edge(&mut self, end: bool) {
        self.text_area.move_cursor(if end { CursorMove::End } else { CursorMove::Head });
    }

    /// Returns how many rows the text takes at a width, at most `max_rows`.
    pub(crate) fn row_count(&self, width: usize, max_rows: usize) -> usize {
        let mut rows = 0;
        for line in self.text_area.lines() {
            let start: String = line.chars().take(width.saturating_mul(max_rows) + 1).collect();
            // The cursor may be behind the last character.
            rows += wrap_spans(&[Span::raw(start + "_")], width, LineBreak::Words, &[], &[]).len();
            if rows >= max_rows {
                return max_rows;
            }
        }
        rows.max(1)
    }

    /// Returns the text area for drawing.
    pub(crate) fn text_area(&self) -> &TextArea<'static> {
        &self.text_area
    }

    /// Shows the cursor, or hides it.
    pub(crate) fn set_focused(&mut self, focused: bool) {
        let style = if focused { Style::new().add_modifier(Modifier::REVERSED) } else { Style::new() };
        self.text_area.set_cursor_style(style);
    }
}

#[cfg(test)]
mod tests;
