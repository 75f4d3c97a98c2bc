//! A window on lines that are more than there is room for.

use std::ops::Range;

use crossterm::event::KeyCode;
use ratatui::Frame;
use ratatui::layout::Rect;
use ratatui::text::Line;

/// Which of some lines are in sight.
#[derive(Debug, Default)]
pub(crate) struct View {
    top: usize,
    // As it was drawn last.
    height: usize,
    len: usize,
}

impl View {
    /// Scrolls, if that is what the key is for, and says whether it was.
    pub(crate) fn key(&mut self, code: KeyCode) -> bool {
        let page = self.height.saturating_sub(1).max(1);
        self.top = match code {
            KeyCode::Up | KeyCode::Char('k') => self.top.saturating_sub(1),
            KeyCode::Down | KeyCode::Char('j') => self.top + 1,
            KeyCode::PageUp => self.top.saturating_sub(page),
            KeyCode::PageDown | KeyCode::Char(' ') => self.top + page,
            KeyCode::Home => 0,
            KeyCode::End => usize::MAX,
            _ => return false,
        };
        self.top = self.top.min(self.last_top());
        true
    }

    /// Scrolls by some lines: up if they are negative.
    pub(crate) fn scroll(&mut self, lines: isize) {
        self.top = self.top.saturating_add_signed(lines).min(self.last_top());
    }

    /// Starts at the first line again.
    pub(crate) fn reset(&mut self) {
        self.top = 0;
    }

    /// Scrolls as little as is needed to have some lines in sight, with a few before them; of more than there is room for,
    /// the first.
    pub(crate) fn reveal(&mut self, lines: Range<usize>) {
        let before = 2.min(self.height / 3);
        self.top = self.top.max(lines.end.saturating_sub(self.height));
        self.top = self.top.min(lines.start.saturating_sub(before)).min(self.last_top());
    }

    /// Draws the lines that are in sight.
    pub(crate) fn draw(&mut self, frame: &mut Frame<'_>, area: Rect, lines: &[Line<'_>]) {
        self.fit(area.height, lines.len());
        let rows = lines.iter().skip(self.top).take(self.height);
        let buffer = frame.buffer_mut();
        for (y, line) in (area.y..).zip(rows) {
            buffer.set_line(area.x, y, line, area.width);
        }
    }

    /// Takes in how much room there is, and for how much.
    pub(crate) fn fit(&mut self, height: u16, len: usize) {
        (self.height, self.len) = (usize::from(height), len);
        self.top = self.top.min(self.last_top());
    }

    /// Returns the first line in sight.
    pub(crate) fn top(&self) -> usize {
        self.top
    }

    /// Returns the line after the last one in sight.
    pub(crate) fn end(&self) -> usize {
        (self.top + self.height).min(self.len)
    }

    /// Says what part of the lines is in sight, if it is not all.
    pub(crate) fn position(&self) -> Option<String> {
        let last = self.end();
        (self.len > self.height).then(|| format!("{}–{last} of {}", self.top + 1, self.len))
    }

    fn last_top(&self) -> usize {
        self.len.saturating_sub(self.height)
    }
}

#[cfg(test)]
mod tests;
