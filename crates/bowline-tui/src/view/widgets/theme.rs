//! Styles: the sixteen colours that every terminal's palette fits to its background. No meaning depends on colour
//! alone.

use ratatui::buffer::Buffer;
use ratatui::style::{Color, Modifier, Style};

/// Added text.
pub(crate) fn added() -> Style {
    Style::new().fg(Color::Green)
}

/// Removed text.
pub(crate) fn removed() -> Style {
    Style::new().fg(Color::Red)
}

/// The changed part of a line.
pub(crate) fn changed_part(style: Style) -> Style {
    style.add_modifier(Modifier::REVERSED)
}

/// Secondary text: line numbers, hunk headers, hints.
pub(crate) fn secondary() -> Style {
    Style::new().add_modifier(Modifier::DIM)
}

/// A warning or an error.
pub(crate) fn danger() -> Style {
    Style::new().fg(Color::Red).add_modifier(Modifier::BOLD)
}

/// The rule between the conversation and a question.
pub(crate) fn approval_rule() -> Style {
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

/// The selected row of a list.
pub(crate) fn selected() -> Style {
    Style::new().add_modifier(Modifier::REVERSED)
}

/// The frame and the text of a window over the conversation: the terminal's default colours, which are readable on any
/// background, unlike any colour of the palette.
pub(crate) fn window() -> Style {
    Style::new()
}

/// Removes all colours from what was drawn, for users who want none. Bold, dim and reversed text stays.
pub(crate) fn strip_colour(buffer: &mut Buffer) {
    for cell in &mut buffer.content {
        (cell.fg, cell.bg) = (Color::Reset, Color::Reset);
    }
}
