//! A list to choose from: sessions, models, modes.

use crossterm::event::{KeyCode, KeyEvent, KeyModifiers};
use ratatui::Frame;
use ratatui::layout::Rect;
use ratatui::style::{Modifier, Style};
use ratatui::text::{Line, Span};
use ratatui::widgets::{Block, Clear, Paragraph};

use super::parts::theme;
use super::wrap::cut;

/// One row of a list.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Row {
    /// What it is called.
    pub(crate) label: String,
    /// What there is to say of it.
    pub(crate) about: String,
    /// Whether it is what holds now.
    pub(crate) current: bool,
}

/// A list, what was typed to narrow it down, and what is chosen.
#[derive(Debug, Clone)]
pub(crate) struct Picker {
    title: String,
    rows: Vec<Row>,
    typed: String,
    // A place among the rows that fit.
    selected: usize,
}

/// What became of a key.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Picked {
    /// The list is closed.
    Closed,
    /// This row was chosen.
    Row(usize),
}

impl Picker {
    /// Returns a list with what holds now chosen.
    pub(crate) fn new(title: impl Into<String>, rows: Vec<Row>) -> Self {
        let selected = rows.iter().position(|row| row.current).unwrap_or(0);
        Self { title: title.into(), rows, typed: String::new(), selected }
    }

    /// Takes a key.
    pub(crate) fn key(&mut self, key: KeyEvent) -> Option<Picked> {
        let fitting = self.fitting();
        let last = fitting.len().saturating_sub(1);
        match key.code {
            KeyCode::Esc => return Some(Picked::Closed),
            KeyCode::Enter => return fitting.get(self.selected).map(|row| Picked::Row(*row)),
            KeyCode::Up => self.selected = self.selected.saturating_sub(1),
            KeyCode::Down => self.selected = (self.selected + 1).min(last),
            KeyCode::PageUp => self.selected = self.selected.saturating_sub(10),
            KeyCode::PageDown => self.selected = (self.selected + 10).min(last),
            KeyCode::Home => self.selected = 0,
            KeyCode::End => self.selected = last,
            KeyCode::Backspace => {
                self.typed.pop();
                self.selected = 0;
            }
            KeyCode::Char(character) if key.modifiers.difference(KeyModifiers::SHIFT).is_empty() => {
                if self.typed.len() < 200 {
                    self.typed.push(character);
                }
                self.selected = 0;
            }
            _ => {}
        }
        None
    }

    fn fitting(&self) -> Vec<usize> {
        let typed = self.typed.to_lowercase();
        let fits = |row: &Row| {
            row.label.to_lowercase().contains(&typed) || row.about.to_lowercase().contains(&typed)
        };
        self.rows.iter().enumerate().filter(|(_, row)| fits(row)).map(|(at, _)| at).collect()
    }

    /// Draws the list over what is there.
    pub(crate) fn draw(&self, frame: &mut Frame<'_>, area: Rect) {
        let fitting = self.fitting();
        let height = u16::try_from(fitting.len().max(1)).unwrap_or(u16::MAX).saturating_add(3);
        let width = area.width.saturating_sub(4).min(100).max(area.width.min(20));
        let height = height.min(area.height.saturating_sub(2)).max(area.height.min(4));
        let x = area.x + (area.width - width) / 2;
        let place = Rect { x, y: area.y + (area.height - height) / 3, width, height };
        frame.render_widget(Clear, place);
        let hints = Line::from(" Enter choose · Esc close · type to narrow down ");
        let block = Block::bordered()
            .title(Span::styled(format!(" {} ", self.title), Style::new().add_modifier(Modifier::BOLD)))
            .title_bottom(hints)
            .border_style(theme::frame());
        let inside = block.inner(place);
        frame.render_widget(block, place);
        let (inner, rows) = (usize::from(inside.width), usize::from(inside.height).saturating_sub(1));
        let mut lines =
            vec![Line::from(vec![Span::raw("❯ "), Span::raw(cut(&self.typed, inner.saturating_sub(3)))])];
        if fitting.is_empty() {
            lines.push(Line::styled("nothing fits", Style::new().add_modifier(Modifier::DIM)));
        }
        let from = self.selected.saturating_sub(rows.saturating_sub(1));
        for (at, row) in fitting.iter().enumerate().skip(from).take(rows) {
            let Some(row) = self.rows.get(*row) else { continue };
            let mark = if row.current { "● " } else { "  " };
            let label = cut(&row.label, inner.saturating_sub(2));
            let room = inner.saturating_sub(4 + Span::raw(label.as_str()).width());
            let about = format!("  {}", cut(&row.about, room));
            let blank = inner.saturating_sub(2 + Span::raw(format!("{label}{about}")).width());
            let text = format!("{mark}{label}{about}{}", " ".repeat(blank));
            lines
                .push(Line::styled(text, if at == self.selected { theme::chosen() } else { theme::frame() }));
        }
        frame.render_widget(Paragraph::new(lines), inside);
    }
}

#[cfg(test)]
mod tests;
