//! Test helpers: panes drawn on a screen in memory.

use crossterm::event::{KeyCode, KeyEvent, KeyModifiers};
use proptest::prelude::*;
use ratatui::backend::TestBackend;
use ratatui::buffer::{Buffer, CellWidth};
use ratatui::layout::Rect;
use ratatui::style::Style;
use ratatui::text::Line;
use ratatui::{Frame, Terminal};

/// Returns the buffer of a screen of a given size.
pub(crate) fn draw_to_buffer(width: u16, height: u16, mut draw: impl FnMut(&mut Frame<'_>, Rect)) -> Buffer {
    let mut terminal = Terminal::new(TestBackend::new(width, height)).unwrap();
    terminal.draw(|frame| draw(frame, frame.area())).unwrap();
    terminal.backend().buffer().clone()
}

/// Returns the visible text, row by row, without trailing spaces.
pub(crate) fn draw_to_text(width: u16, height: u16, draw: impl FnMut(&mut Frame<'_>, Rect)) -> String {
    let buffer = draw_to_buffer(width, height, draw);
    let row = |y| {
        let mut row = String::new();
        let mut x = 0;
        while x < width {
            let symbol = buffer[(x, y)].symbol();
            row.push_str(symbol);
            x += symbol.cell_width().max(1);
        }
        row.trim_end().to_owned() + "\n"
    };
    (0..height).map(row).collect()
}

/// Returns the parts of rows that have a style.
pub(crate) fn rows_in_style(buffer: &Buffer, style: Style) -> Vec<String> {
    let Rect { width, height, .. } = buffer.area;
    let row = |y| {
        let cells = (0..width).map(|x| &buffer[(x, y)]);
        cells
            .filter(|cell| Some(cell.fg) == style.fg && cell.modifier == style.add_modifier)
            .map(|cell| cell.symbol())
            .collect::<String>()
            .trim()
            .to_owned()
    };
    (0..height).map(row).filter(|row| !row.is_empty()).collect()
}

/// Returns a line's text.
pub(crate) fn line_text(line: &Line<'_>) -> String {
    line.spans.iter().map(|span| span.content.as_ref()).collect()
}

/// Returns a plain key press.
pub(crate) fn key_event(code: KeyCode) -> KeyEvent {
    let modifiers = match code {
        KeyCode::Char(letter) if letter.is_uppercase() => KeyModifiers::SHIFT,
        _ => KeyModifiers::NONE,
    };
    KeyEvent::new(code, modifiers)
}

/// Returns a key pressed with Control.
pub(crate) fn ctrl_key(letter: char) -> KeyEvent {
    KeyEvent::new(KeyCode::Char(letter), KeyModifiers::CONTROL)
}

/// Any size that a terminal may have.
pub(crate) fn any_size() -> impl Strategy<Value = (u16, u16)> {
    prop_oneof![3 => (20..90_u16, 5..30_u16), 1 => (20..301_u16, 5..101_u16), 1 => (1..20_u16, 1..5_u16)]
}

/// Any key that a user may press.
pub(crate) fn any_key() -> impl Strategy<Value = KeyEvent> {
    let code = prop_oneof![
        4 => proptest::char::range(' ', '~').prop_map(KeyCode::Char),
        4 => proptest::sample::select(vec![
            KeyCode::Up, KeyCode::Down, KeyCode::Left, KeyCode::Right, KeyCode::PageUp, KeyCode::PageDown,
            KeyCode::Home, KeyCode::End, KeyCode::Tab, KeyCode::BackTab, KeyCode::Enter, KeyCode::Esc,
            KeyCode::Backspace, KeyCode::Delete, KeyCode::F(5),
        ]),
        1 => any::<char>().prop_map(KeyCode::Char),
    ];
    let modifiers = prop_oneof![
        6 => Just(KeyModifiers::NONE),
        1 => Just(KeyModifiers::SHIFT),
        1 => Just(KeyModifiers::CONTROL),
        1 => Just(KeyModifiers::ALT),
    ];
    (code, modifiers).prop_map(|(code, modifiers)| KeyEvent::new(code, modifiers))
}

/// Ordinary text and hostile text.
pub(crate) fn any_text() -> impl Strategy<Value = String> {
    let piece = prop_oneof![
        6 => "[a-c ]{0,6}",
        3 => Just("\n".to_owned()),
        1 => Just("\r\n".to_owned()),
        1 => Just("\t".to_owned()),
        1 => Just("\u{1b}[2J\u{1b}]52;c;aGk=\u{7}".to_owned()),
        1 => Just("漢字🦀e\u{301}\u{301}\u{301}\u{301}\u{301}\u{301}".to_owned()),
        1 => Just("\u{202e}\u{200b}\u{feff}\u{0e31}".to_owned()),
        1 => Just("long ".repeat(40)),
        1 => any::<char>().prop_map(String::from),
    ];
    proptest::collection::vec(piece, 0..24).prop_map(|pieces| pieces.concat())
}
