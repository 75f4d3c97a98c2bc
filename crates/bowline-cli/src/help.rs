//! Help texts wrapped to the terminal's width, and usage errors on one line.

mod candidates;
pub(crate) mod completions;
pub(crate) mod man;

use std::io::{self, Write as _};
use std::process::ExitCode;

use clap::error::ErrorKind;
use rustix::termios::tcgetwinsize;
use unicode_width::UnicodeWidthChar as _;

use bowline_client::common::console::{OutputStyle, ignore_broken_pipe};
use bowline_client::error::CliError;

/// With fewer columns than this, wrapping is left to the terminal.
const MIN_COLUMNS: usize = 40;
/// A line of at least this width was wrapped in the source and continues on the next line.
const MIN_WRAPPED_LINE: usize = 60;

/// Prints the help or version that the command line requests, or the usage error, and returns the exit code.
pub(crate) fn print_help_or_error(error: &clap::Error) -> ExitCode {
    let is_help =
        matches!(error.kind(), ErrorKind::DisplayHelp | ErrorKind::DisplayHelpOnMissingArgumentOrSubcommand);
    if error.use_stderr() && !is_help {
        return CliError::Usage(to_one_line(&error.render().to_string())).report();
    }
    let columns =
        if error.use_stderr() { terminal_columns(io::stderr()) } else { terminal_columns(io::stdout()) };
    let result = match columns.filter(|columns| is_help && *columns >= MIN_COLUMNS) {
        Some(columns) => {
            let text = error.render();
            let text =
                if OutputStyle::for_stdout().has_colour { text.ansi().to_string() } else { text.to_string() };
            let text = wrap_text(&text, columns);
            if error.use_stderr() {
                io::stderr().write_all(text.as_bytes())
            } else {
                io::stdout().write_all(text.as_bytes())
            }
        }
        None => error.print(),
    };
    match ignore_broken_pipe(result.and_then(|()| io::stdout().flush())) {
        Ok(()) => ExitCode::from(u8::try_from(error.exit_code()).unwrap_or(2)),
        Err(error) => error.report(),
    }
}

/// Returns a usage error, with clap's tip, on one line.
fn to_one_line(message: &str) -> String {
    let mut line = String::new();
    let paragraphs = message.strip_prefix("error: ").unwrap_or(message).split("\n\n");
    for paragraph in paragraphs.take_while(|paragraph| !paragraph.starts_with("Usage: ")) {
        for part in paragraph.lines().map(str::trim).filter(|part| !part.starts_with("For more information"))
        {
            let (separator, part) = part.strip_prefix("tip: ").map_or((" ", part), |tip| ("; ", tip));
            line.push_str(if line.is_empty() || part.is_empty() { "" } else { separator });
            line.push_str(part);
        }
    }
    line + " (see --help)"
}

/// Returns the width of the terminal that a stream writes to; `None` if it is not a terminal.
fn terminal_columns(out: impl io::IsTerminal + std::os::fd::AsFd) -> Option<usize> {
    out.is_terminal().then(|| tcgetwinsize(out).ok()).flatten().map(|size| usize::from(size.ws_col))
}

/// Wraps the lines of a text to a width, unless a single word is wider.
fn wrap_text(text: &str, columns: usize) -> String {
    let mut lines: Vec<String> = Vec::new();
    let is_flush = |line: &str| !line.is_empty() && !line.starts_with(' ');
    for line in text.lines() {
        match lines.last_mut() {
            Some(last) if is_flush(last) && is_flush(line) && display_width(last) >= MIN_WRAPPED_LINE => {
                last.push(' ');
                last.push_str(line);
            }
            _ => lines.push(line.to_owned()),
        }
    }
    lines.iter().map(|line| wrap_line(line, columns) + "\n").collect()
}

/// Wraps one line between words. Text in a second column stays in its column.
fn wrap_line(line: &str, columns: usize) -> String {
    if display_width(line) <= columns {
        return line.to_owned();
    }
    let (start, column) = hanging_indent(line, columns);
    let mut text = line[..start].to_owned();
    let mut width = display_width(&text);
    let mut blanks = 0;
    for word in line[start..].split(' ') {
        if word.is_empty() {
            blanks += 1;
            continue;
        }
        if blanks > 0 && width + blanks + display_width(word) > columns {
            text.push('\n');
            (width, blanks) = (0, column);
        }
        text.push_str(&" ".repeat(blanks));
        text.push_str(word);
        width += blanks + display_width(word);
        blanks = 1;
    }
    text
}

/// Returns where wrapping starts in a line, and the column in which it continues: that of its second column if it has
/// one, otherwise that of its first word.
fn hanging_indent(line: &str, columns: usize) -> (usize, usize) {
    let indent = line.len() - line.trim_start_matches(' ').len();
    let gap = line[indent..].find("  ").map(|at| indent + at);
    let second = gap.map(|gap| line.len() - line[gap..].trim_start_matches(' ').len());
    let column = second.map(|second| (second, display_width(&line[..second])));
    column.filter(|(_, column)| *column <= columns * 2 / 3).unwrap_or((indent, indent))
}

/// Returns how many columns a text takes, without colour sequences.
fn display_width(text: &str) -> usize {
    let mut width = 0;
    let mut characters = text.chars();
    while let Some(character) = characters.next() {
        match character {
            '\u{1b}' => _ = characters.find(char::is_ascii_alphabetic),
            character => width += character.width().unwrap_or(0),
        }
    }
    width
}

#[cfg(test)]
mod tests;
