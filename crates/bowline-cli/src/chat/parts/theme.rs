//! How things look: the sixteen colours that every terminal's own palette fits to its background, and no meaning that is
//! told by colour alone.

use ratatui::buffer::Buffer;
use ratatui::style::{Color, Modifier, Style};

/// What was added.
pub(crate) fn added() -> Style {
    Style::new().fg(Color::Green)
}

/// What was removed.
pub(crate) fn removed() -> Style {
    Style::new().fg(Color::Red)
}

/// The part of a line that is different.
pub(crate) fn different(line: Style) -> Style {
    line.add_modifier(Modifier::REVERSED)
}

/// What is not the text itself: numbers, heads of hunks, hints.
pub(crate) fn aside() -> Style {
    Style::new().add_modifier(Modifier::DIM)
}

/// A warning, or a fault.
pub(crate) fn danger() -> Style {
    Style::new().fg(Color::Red).add_modifier(Modifier::BOLD)
}

/// What stands between the conversation and a question.
pub(crate) fn question() -> Style {
    Style::new().fg(Color::Yellow)
}

/// A title.
pub(crate) fn title() -> Style {
    Style::new().add_modifier(Modifier::BOLD)
}

/// A key that can be pressed.
pub(crate) fn key() -> Style {
    Style::new().fg(Color::Cyan).add_modifier(Modifier::BOLD)
}

/// What is chosen in a list.
pub(crate) fn chosen() -> Style {
    Style::new().add_modifier(Modifier::REVERSED)
}

/// The frame of a window over the conversation, and the words in it: as the terminal has its text, which can be read on
/// any background, and no colour of the palette can on all.
pub(crate) fn frame() -> Style {
    Style::new()
}

/// Takes all colour from what was drawn, for people who want none. What is bold, dim or reversed stays so.
pub(crate) fn without_colour(buffer: &mut Buffer) {
    for cell in &mut buffer.content {
        (cell.fg, cell.bg) = (Color::Reset, Color::Reset);
    }
}
