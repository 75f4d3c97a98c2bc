//! A scrolling window over lines.

use std::ops::Range;

use crossterm::event::KeyCode;
use ratatui::Frame;
use ratatui::layout::Rect;
use ratatui::text::Line;

/// The visible part of some lines.
#[derive(Debug, Default)]
pub(crate) struct Viewport {
    top: usize,
    // As of the last frame.
    height: usize,
    len: usize,
}

impl Viewport {
    /// Scrolls if the key is for scrolling, and returns whether it was.
    pub(crate) fn handle_key(&mut self, code: KeyCode) -> bool {
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

    /// Scrolls by some lines; negative is up.
    pub(crate) fn scroll(&mut self, lines: isize) {
        self.top = self.top.saturating_add_signed(lines).min(self.last_top());
    }

    /// Scrolls back to the first line.
    pub(crate) fn reset(&mut self) {
        self.top = 0;
    }

    /// Scrolls as little as possible to make some lines visible, with a few before them; if they do not all fit, the
    /// first ones.
    pub(crate) fn reveal(&mut self, lines: Range<usize>) {
        let before = 2.min(self.height / 3);
        self.top = self.top.max(lines.end.saturating_sub(self.height));
        self.top = self.top.min(lines.start.saturating_sub(before)).min(self.last_top());
    }

    /// Draws the visible lines.
    pub(crate) fn draw(&mut self, frame: &mut Frame<'_>, area: Rect, lines: &[Line<'_>]) {
        self.set_size(area.height, lines.len());
        let rows = lines.iter().skip(self.top).take(self.height);
        let buffer = frame.buffer_mut();
        for (y, line) in (area.y..).zip(rows) {
            buffer.set_line(area.x, y, line, area.width);
        }
    }

    /// Sets the height of the window and the number of lines.
    pub(crate) fn set_size(&mut self, height: u16, len: usize) {
        (self.height, self.len) = (usize::from(height), len);
        self.top = self.top.min(self.last_top());
    }

    /// Returns the first visible line.
    pub(crate) fn top(&self) -> usize {
        self.top
    }

    /// Returns the line after the last visible one.
    pub(crate) fn end(&self) -> usize {
        (self.top + self.height).min(self.len)
    }

    /// Describes which part of the lines is visible, if not all.
    pub(crate) fn describe_position(&self) -> Option<String> {
        let last = self.end();
        (self.len > self.height).then(|| format!("{}–{last} of {}", self.top + 1, self.len))
    }

    fn last_top(&self) -> usize {
        self.len.saturating_sub(self.height)
    }
}

#[cfg(test)]
mod tests;
