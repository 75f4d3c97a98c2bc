//! The output of a command as a terminal would show it.
//!
//! Colours, cursor movements and erased lines are applied. Sequences that would affect anything beyond the command's
//! own text (titles, clipboards, the size of the window) are dropped.

use avt::parser::{Function, Parser};
use avt::{Color as PenColour, Pen, Terminal};
use bowline_text::display;
use ratatui::buffer::CellWidth;
use ratatui::style::{Color, Modifier, Style};
use ratatui::text::{Line, Span};
use unicode_width::UnicodeWidthChar;

/// The number of screen rows, for commands that address the screen.
pub(crate) const SCREEN_ROWS: usize = 24;

/// The number of lines kept above the screen; the oldest are dropped.
pub(crate) const MAX_SCROLLBACK: usize = 1000;

/// The maximum width. A cell takes 20 bytes, so that all lines together take less than 11 MB.
const MAX_COLUMNS: u16 = 500;

/// The maximum number of combining marks on one character, as elsewhere.
const MAX_COMBINING_MARKS: usize = 4;

/// The replacement for a character that must not reach the user's terminal.
const REPLACEMENT: char = '\u{fffd}';

/// A command's output so far.
pub(crate) struct TerminalEmulator {
    // `None` if there cannot be such a terminal, which its size rules out.
    terminal: Option<Terminal>,
    parser: Parser,
    columns: u16,
}

impl TerminalEmulator {
    /// Returns an empty terminal of a given width.
    pub(crate) fn new(columns: u16) -> Self {
        let columns = columns.clamp(1, MAX_COLUMNS);
        let terminal = Terminal::with_scrollback(usize::from(columns), SCREEN_ROWS, Some(MAX_SCROLLBACK));
        Self { terminal: terminal.ok(), parser: Parser::new(), columns }
    }

    /// Feeds the next output of the command. It may end within an escape sequence.
    pub(crate) fn feed(&mut self, text: &str) {
        let Some(terminal) = &mut self.terminal else { return };
        let parser = &mut self.parser;
        let limit = self.columns;
        // Without a tty driver in between, line feeds lack their carriage return.
        let characters = text.split_inclusive('\n').flat_map(|line| {
            let (line, end) = line.strip_suffix('\n').map_or((line, ""), |line| (line, "\r\n"));
            line.chars().chain(end.chars())
        });
        let functions = characters.filter_map(|character| parser.feed(character)).filter_map(|function| {
            match function {
                Function::Osc(_) | Function::Xtwinops(_) => None,
                // A few bytes must not cause minutes of work.
                Function::Rep(times) => Some(Function::Rep(times.min(limit))),
                function => Some(function),
            }
        });
        terminal.execute(functions);
    }

    /// Reflows the lines to another width.
    pub(crate) fn resize(&mut self, columns: u16) {
        self.columns = columns.clamp(1, MAX_COLUMNS);
        if let Some(terminal) = &mut self.terminal {
            terminal.resize(usize::from(self.columns), SCREEN_ROWS);
        }
    }

    /// Returns the scrollback and the screen, without the empty lines at the end.
    pub(crate) fn lines(&self) -> Vec<Line<'static>> {
        let Some(terminal) = &self.terminal else { return Vec::new() };
        let mut lines: Vec<Line<'static>> = terminal.screen().all_lines().map(convert_line).collect();
        let used = lines.iter().rposition(|line| !line.spans.is_empty()).map_or(0, |last| last + 1);
        lines.truncate(used);
        lines
    }
}

fn convert_line(line: &avt::Line) -> Line<'static> {
    let mut spans: Vec<Span<'static>> = Vec::new();
    let mut text = String::new();
    let mut pen = Pen::default();
    let mut marks = 0;
    let is_blank = |cell: &avt::Cell| cell.char() == ' ' && cell.pen().is_default();
    let used = line.cells().iter().rposition(|cell| !is_blank(cell)).map_or(0, |last| last + 1);
    let cells = || line.cells()[..used].iter().filter(|cell| cell.width() > 0);
    let line_text: String = cells().map(avt::Cell::char).collect();
    let all_plain = is_plain(&line_text);
    for cell in cells() {
        if *cell.pen() != pen && !text.is_empty() {
            spans.push(Span::styled(std::mem::take(&mut text), convert_style(&pen)));
        }
        if *cell.pen() != pen {
            pen = *cell.pen();
            // A combining mark needs a preceding character of the same style.
            marks = MAX_COMBINING_MARKS;
        }
        let character = cell.char();
        if all_plain || is_plain(character.encode_utf8(&mut [0; 4])) {
            text.push(character);
            marks = 0;
        } else if marks < MAX_COMBINING_MARKS && !text.is_empty() && is_combining_mark(character) {
            text.push(character);
            marks += 1;
        } else {
            text.push(REPLACEMENT);
            marks = MAX_COMBINING_MARKS;
        }
    }
    if !text.is_empty() {
        spans.push(Span::styled(text, convert_style(&pen)));
    }
    Line::from(spans)
}

/// Returns whether every character of a text is visible and looks like itself.
fn is_plain(text: &str) -> bool {
    if text.is_ascii() {
        return !text.contains(|character: char| character.is_ascii_control());
    }
    let is_visible = |character: char| character.width().is_some_and(|cells| cells > 0);
    text.chars().all(is_visible) && display::escape_line(text, usize::MAX) == text
}

/// Returns whether a character may combine with the one before it.
fn is_combining_mark(character: char) -> bool {
    let text = format!("a{character}");
    display::escape_line(&text, usize::MAX) == text && text.as_str().cell_width() == 1
}

fn convert_style(pen: &Pen) -> Style {
    let colour = |pen_colour: Option<PenColour>| match pen_colour {
        None => Color::Reset,
        Some(PenColour::Indexed(index)) => Color::Indexed(index),
        Some(PenColour::RGB(rgb)) => Color::Rgb(rgb.r, rgb.g, rgb.b),
    };
    let mut style = Style::new();
    if pen.foreground().is_some() {
        style = style.fg(colour(pen.foreground()));
    }
    if pen.background().is_some() {
        style = style.bg(colour(pen.background()));
    }
    let modifiers = [
        (pen.is_bold(), Modifier::BOLD),
        (pen.is_faint(), Modifier::DIM),
        (pen.is_italic(), Modifier::ITALIC),
        (pen.is_underline(), Modifier::UNDERLINED),
        (pen.is_strikethrough(), Modifier::CROSSED_OUT),
        (pen.is_inverse(), Modifier::REVERSED),
    ];
    modifiers
        .into_iter()
        .filter(|(is_set, _)| *is_set)
        .fold(style, |style, (_, modifier)| style.add_modifier(modifier))
}

#[cfg(test)]
mod tests;
