//! Output of results: escaped for terminals, coloured if wanted, to a pipe that may close.

use std::io::{self, ErrorKind, IsTerminal as _, Write};

use anstyle::{AnsiColor, Effects, Style};
use bowline_text::display;

use crate::error::CliError;

/// The maximum length of a line, in bytes.
const MAX_LINE: usize = 4096;

/// The capabilities of an output stream.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct OutputStyle {
    /// Whether it is a terminal.
    pub is_terminal: bool,
    /// Whether colours are used.
    pub has_colour: bool,
}

/// The role of a piece of text, which determines its colour.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum TextStyle {
    /// A heading.
    Heading,
    /// Secondary text.
    Faint,
    /// Something added or allowed.
    Good,
    /// Something removed or denied.
    Bad,
    /// Something that needs attention.
    Highlight,
    /// A problem that stops nothing.
    Warning,
}

impl From<TextStyle> for Style {
    fn from(style: TextStyle) -> Self {
        match style {
            TextStyle::Heading => Effects::BOLD.into(),
            TextStyle::Faint => Effects::DIMMED.into(),
            TextStyle::Good => AnsiColor::Green.on_default(),
            TextStyle::Bad => AnsiColor::Red.on_default(),
            TextStyle::Highlight => AnsiColor::Cyan.on_default(),
            TextStyle::Warning => AnsiColor::Yellow.on_default(),
        }
    }
}

impl OutputStyle {
    /// Neither a terminal nor colours.
    pub const PLAIN: Self = Self { is_terminal: false, has_colour: false };

    /// Returns the style of stdout.
    pub fn for_stdout() -> Self {
        Self::for_stream(io::stdout().is_terminal())
    }

    /// Returns the style of a stream. Only a terminal gets colours, unless it has none or the user wants none.
    pub fn for_stream(is_terminal: bool) -> Self {
        let is_dumb = std::env::var_os("TERM").is_some_and(|term| term == "dumb");
        let no_color = std::env::var_os("NO_COLOR").is_some_and(|value| !value.is_empty());
        Self { is_terminal, has_colour: is_terminal && !is_dumb && !no_color }
    }

    /// Returns a text in its colour, or unchanged.
    pub fn paint(self, style: TextStyle, text: &str) -> String {
        if !self.has_colour || text.is_empty() {
            return text.to_owned();
        }
        let style = Style::from(style);
        format!("{style}{text}{style:#}")
    }
}

/// Escapes untrusted text for a terminal, on one line.
pub fn escape_line(text: &str) -> String {
    display::escape_line(text, MAX_LINE)
}

/// Escapes untrusted text for a terminal, keeping its lines.
pub fn escape_lines(text: &str) -> String {
    display::escape_block(text, usize::MAX, usize::MAX).text
}

/// Returns a number with its noun in the singular or plural.
pub fn pluralize(number: usize, singular: &str, plural: &str) -> String {
    format!("{number} {}", if number == 1 { singular } else { plural })
}

/// Prints a note on stderr.
pub fn print_note(text: &str) {
    write_stderr(&format!("bowline: {}\n", escape_lines(text).trim_end()));
}

/// Writes to stderr verbatim. Errors are ignored.
pub fn write_stderr(text: &str) {
    io::stderr().write_all(text.as_bytes()).ok();
}

/// Prints that the program waits for a peer, if a user has started it in a terminal although it is meant to be started
/// by programs.
pub fn note_waiting_for(peer: &str) {
    if io::stdin().is_terminal() && io::stderr().is_terminal() {
        print_note(&format!("waiting for {peer}; Ctrl-D ends it (see --help)"));
    }
}

/// Writes results to stdout. A closed pipe is not an error.
///
/// # Errors
/// Returns why they cannot be written.
pub fn print(text: &str) -> Result<(), CliError> {
    ignore_broken_pipe(io::stdout().lock().write_all(text.as_bytes()).and_then(|()| io::stdout().flush()))
}

/// Treats a closed pipe as success.
///
/// # Errors
/// Returns any other error.
pub fn ignore_broken_pipe(result: io::Result<()>) -> Result<(), CliError> {
    match result {
        Err(error) if error.kind() != ErrorKind::BrokenPipe => {
            Err(anyhow::Error::from(error).context("cannot write the results").into())
        }
        _ => Ok(()),
    }
}
