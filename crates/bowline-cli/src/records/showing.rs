//! How results are told: as text that cannot steer a terminal, in colour where that is wanted, to a pipe that may close.

use std::io::{self, ErrorKind, IsTerminal as _, Write};

use bowline_state::display;

use crate::ending::Ending;

/// The longest text on a line, in bytes.
const LINE: usize = 4096;

/// How text may look where it goes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Look {
    /// Whether a terminal shows it.
    pub(crate) terminal: bool,
    /// Whether it may be in colour.
    pub(crate) colour: bool,
}

/// What a piece of text is, to be told from others by its colour.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Ink {
    /// The head of what follows.
    Head,
    /// Something that is not in the foreground.
    Faint,
    /// What was added, or is allowed.
    Good,
    /// What was removed, or is denied.
    Bad,
    /// What is to be looked at.
    Mark,
}

impl Look {
    /// Neither a terminal nor colours.
    pub(crate) const PLAIN: Self = Self { terminal: false, colour: false };

    /// Returns how text on stdout may look.
    pub(crate) fn of_stdout() -> Self {
        let terminal = io::stdout().is_terminal();
        let dumb = std::env::var_os("TERM").is_some_and(|term| term == "dumb");
        let plain = std::env::var_os("NO_COLOR").is_some_and(|value| !value.is_empty());
        Self { terminal, colour: terminal && !dumb && !plain }
    }

    /// Returns a text in a colour, or as it is.
    pub(crate) fn paint(self, ink: Ink, text: &str) -> String {
        if !self.colour || text.is_empty() {
            return text.to_owned();
        }
        let code = match ink {
            Ink::Head => "1",
            Ink::Faint => "2",
            Ink::Good => "32",
            Ink::Bad => "31",
            Ink::Mark => "36",
        };
        format!("\u{1b}[{code}m{text}\u{1b}[0m")
    }
}

/// Returns text of others on one line, unable to steer a terminal.
pub(crate) fn safe(text: &str) -> String {
    display::line(text, LINE)
}

/// Returns text of others on as many lines as it has, unable to steer a terminal.
pub(crate) fn safe_lines(text: &str) -> String {
    display::block(text, usize::MAX, usize::MAX).text
}

/// Returns a count with the word for what is counted.
pub(crate) fn count(number: usize, one: &str, many: &str) -> String {
    format!("{number} {}", if number == 1 { one } else { many })
}

/// Says something beside the results, on stderr.
pub(crate) fn note(text: &str) {
    write_stderr(&format!("bowline: {}\n", safe_lines(text).trim_end()));
}

/// Writes to stderr as it is. That nobody reads it, or that it cannot be written, stops nothing.
pub(crate) fn write_stderr(text: &str) {
    io::stderr().write_all(text.as_bytes()).ok();
}

/// Says that a program is waited for, to a person who has started in a terminal what programs start.
pub(crate) fn waits(whom: &str) {
    if io::stdin().is_terminal() && io::stderr().is_terminal() {
        note(&format!("waits for {whom}; Ctrl-D ends it, --help tells more"));
    }
}

/// Writes results to stdout. That nobody reads them to the end is no failure.
///
/// # Errors
/// Returns why they cannot be written.
pub(crate) fn print(text: &str) -> Result<(), Ending> {
    written(io::stdout().lock().write_all(text.as_bytes()).and_then(|()| io::stdout().flush()))
}

/// Says whether something was written to stdout that may close.
///
/// # Errors
/// Returns why it was not, unless nobody reads it.
pub(crate) fn written(result: io::Result<()>) -> Result<(), Ending> {
    match result {
        Err(error) if error.kind() != ErrorKind::BrokenPipe => {
            Err(anyhow::Error::from(error).context("cannot write the results").into())
        }
        _ => Ok(()),
    }
}
