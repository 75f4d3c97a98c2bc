//! A list to choose from: sessions, models, modes.

use crossterm::event::{KeyCode, KeyEvent, KeyModifiers};
use ratatui::Frame;
use ratatui::layout::Rect;
use ratatui::style::{Modifier, Style};
use ratatui::text::{Line, Span};
use ratatui::widgets::{Block, Clear, Paragraph};

use crate::view::widgets::theme;
use crate::view::wrap::truncate_end;

/// One row of a list.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct PickerRow {
    /// Its label.
    pub(crate) label: String,
    /// Its description.
    pub(crate) description: String,
    /// Whether it is the current value.
    pub(crate) is_current: bool,
}

/// A list, its filter text, and the selected row.
#[derive(Debug, Clone)]
pub(crate) struct Picker {
    title: String,
    rows: Vec<PickerRow>,
    filter: String,
    // An index among the matching rows.
    selected: usize,
}

/// The result of a key.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum PickerOutcome {
    /// The list was closed.
    Closed,
    /// This row was chosen.
    Chosen(usize),
}

impl Picker {
    /// Returns a picker with the current value selected.
    pub(crate) fn new(title: impl Into<String>, rows: Vec<PickerRow>) -> Self {
        let selected = rows.iter().position(|row| row.is_current).unwrap_or(0);
        Self { title: title.into(), rows, filter: String::new(), selected }
    }

    /// Handles a key.
    pub(crate) fn handle_key(&mut self, key: KeyEvent) -> Option<PickerOutcome> {
        let matches = self.matching_rows();
        let last = matches.len().saturating_sub(1);
        match key.code {
            KeyCode::Esc => return Some(PickerOutcome::Closed),
            KeyCode::Enter => return matches.get(self.selected).map(|row| PickerOutcome::Chosen(*row)),
            KeyCode::Up => self.selected = self.selected.saturating_sub(1),
            KeyCode::Down => self.selected = (self.selected + 1).min(last),
            KeyCode::PageUp => self.selected = self.selected.saturating_sub(10),
            KeyCode::PageDown => self.selected = (self.selected + 10).min(last),
            KeyCode::Home => self.selected = 0,
            KeyCode::End => self.selected = last,
            KeyCode::Backspace => {
                self.filter.pop();
                self.selected = 0;
            }
            KeyCode::Char(character) if key.modifiers.difference(KeyModifiers::SHIFT).is_empty() => {
                if self.filter.len() < 200 {
                    self.filter.push(character);
                }
                self.selected = 0;
            }
            _ => {}
        }
        None
    }

    fn matching_rows(&self) -> Vec<usize> {
        let filter = self.filter.to_lowercase();
        let is_match = |row: &PickerRow| {
            row.label.to_lowercase().contains(&filter) || row.description.to_lowercase().contains(&filter)
        };
        self.rows.iter().enumerate().filter(|(_, row)| is_match(row)).map(|(index, _)| index).collect()
    }

    /// Draws the list over the area.
    pub(crate) fn draw(&self, frame: &mut Frame<'_>, area: Rect) {
        let matches = self.matching_rows();
        let height = u16::try_from(matches.len().max(1)).unwrap_or(u16::MAX).saturating_add(3);
        let width = area.width.saturating_sub(4).min(100).max(area.width.min(20));
        let height = height.min(area.height.saturating_sub(2)).max(area.height.min(4));
        let x = area.x + (area.width - width) / 2;
        let window = Rect { x, y: area.y + (area.height - height) / 3, width, height };
        frame.render_widget(Clear, window);
        let hints = Line::from(" Enter choose · Esc close · type to narrow down ");
        let block = Block::bordered()
            .title(Span::styled(format!(" {} ", self.title), Style::new().add_modifier(Modifier::BOLD)))
            .title_bottom(hints)
            .border_style(theme::window());
        let content = block.inner(window);
        frame.render_widget(block, window);
        let (columns, rows) = (usize::from(content.width), usize::from(content.height).saturating_sub(1));
        let mut lines = vec![Line::from(vec![
            Span::raw("❯ "),
            Span::raw(truncate_end(&self.filter, columns.saturating_sub(3))),
        ])];
        if matches.is_empty() {
            lines.push(Line::styled("nothing fits", theme::secondary()));
        }
        let first = self.selected.saturating_sub(rows.saturating_sub(1));
        for (index, row) in matches.iter().enumerate().skip(first).take(rows) {
            let Some(row) = self.rows.get(*row) else { continue };
            let mark = if row.is_current { "● " } else { "  " };
            let label = truncate_end(&row.label, columns.saturating_sub(2));
            let room = columns.saturating_sub(4 + Span::raw(label.as_str()).width());
            let description = format!("  {}", truncate_end(&row.description, room));
            let padding = columns.saturating_sub(2 + Span::raw(format!("{label}{description}")).width());
            let text = format!("{mark}{label}{description}{}", " ".repeat(padding));
            lines.push(Line::styled(
                text,
                if index == self.selected { theme::selected() } else { theme::window() },
            ));
        }
        frame.render_widget(Paragraph::new(lines), content);
    }
}

#[cfg(test)]
mod tests;
