//! The help of a command, in lines that fit the terminal it is read in, and what is wrong with a command line, in one.

use std::io::{self, Write as _};
use std::process::ExitCode;

use clap::error::ErrorKind;
use rustix::termios::tcgetwinsize;
use unicode_width::UnicodeWidthChar as _;

use crate::ending::Ending;
use crate::records::showing::{Look, written};

/// In fewer columns lines are left to the terminal.
const NARROWEST: usize = 40;
/// A line of so many columns was broken by whoever wrote it, and goes on in the next.
const BROKEN: usize = 60;

/// Prints what the command line asks for in place of a command, or what is wrong with it, and returns how to end.
pub(crate) fn tell(error: &clap::Error) -> ExitCode {
    let is_help =
        matches!(error.kind(), ErrorKind::DisplayHelp | ErrorKind::DisplayHelpOnMissingArgumentOrSubcommand);
    if error.use_stderr() && !is_help {
        return Ending::Usage(one_line(&error.render().to_string())).exit();
    }
    let columns = if error.use_stderr() { columns(io::stderr()) } else { columns(io::stdout()) };
    let shown = match columns.filter(|columns| is_help && *columns >= NARROWEST) {
        Some(columns) => {
            let text = error.render();
            let text = if Look::of_stdout().colour { text.ansi().to_string() } else { text.to_string() };
            let text = fitted(&text, columns);
            if error.use_stderr() {
                io::stderr().write_all(text.as_bytes())
            } else {
                io::stdout().write_all(text.as_bytes())
            }
        }
        None => error.print(),
    };
    match written(shown.and_then(|()| io::stdout().flush())) {
        Ok(()) => ExitCode::from(u8::try_from(error.exit_code()).unwrap_or(2)),
        Err(ending) => ending.exit(),
    }
}

/// Returns what is wrong with a command line, and what was probably meant, in one line.
fn one_line(told: &str) -> String {
    let mut line = String::new();
    let paragraphs = told.strip_prefix("error: ").unwrap_or(told).split("\n\n");
    for paragraph in paragraphs.take_while(|paragraph| !paragraph.starts_with("Usage: ")) {
        for part in paragraph.lines().map(str::trim).filter(|part| !part.starts_with("For more information"))
        {
            let (between, part) = part.strip_prefix("tip: ").map_or((" ", part), |tip| ("; ", tip));
            line.push_str(if line.is_empty() || part.is_empty() { "" } else { between });
            line.push_str(part);
        }
    }
    line + "; --help tells more"
}

/// Returns how wide the terminal is that something goes to; none if it goes elsewhere.
fn columns(out: impl io::IsTerminal + std::os::fd::AsFd) -> Option<usize> {
    out.is_terminal().then(|| tcgetwinsize(out).ok()).flatten().map(|size| usize::from(size.ws_col))
}

/// Returns a text whose lines have at most so many columns, unless a word has more.
fn fitted(text: &str, columns: usize) -> String {
    let mut lines: Vec<String> = Vec::new();
    let is_flush = |line: &str| !line.is_empty() && !line.starts_with(' ');
    for line in text.lines() {
        match lines.last_mut() {
            Some(last) if is_flush(last) && is_flush(line) && width(last) >= BROKEN => {
                last.push(' ');
                last.push_str(line);
            }
            _ => lines.push(line.to_owned()),
        }
    }
    lines.iter().map(|line| folded(line, columns) + "\n").collect()
}

/// Breaks one line between words. What stands in a column beside something stays in it.
fn folded(line: &str, columns: usize) -> String {
    if width(line) <= columns {
        return line.to_owned();
    }
    let (start, column) = hanging(line, columns);
    let mut text = line[..start].to_owned();
    let mut at = width(&text);
    let mut blanks = 0;
    for word in line[start..].split(' ') {
        if word.is_empty() {
            blanks += 1;
            continue;
        }
        if blanks > 0 && at + blanks + width(word) > columns {
            text.push('\n');
            (at, blanks) = (0, column);
        }
        text.push_str(&" ".repeat(blanks));
        text.push_str(word);
        at += blanks + width(word);
        blanks = 1;
    }
    text
}

/// Returns from where on a line is broken, and the column in which it goes on: that of its second column if it has one,
/// else that of its first word.
fn hanging(line: &str, columns: usize) -> (usize, usize) {
    let words = line.len() - line.trim_start_matches(' ').len();
    let gap = line[words..].find("  ").map(|at| words + at);
    let second = gap.map(|gap| line.len() - line[gap..].trim_start_matches(' ').len());
    let column = second.map(|second| (second, width(&line[..second])));
    column.filter(|(_, column)| *column <= columns * 2 / 3).unwrap_or((words, words))
}

/// Returns how many columns a text takes, without what steers colours.
fn width(text: &str) -> usize {
    let mut wide = 0;
    let mut characters = text.chars();
    while let Some(character) = characters.next() {
        match character {
            '\u{1b}' => _ = characters.find(char::is_ascii_alphabetic),
            character => wide += character.width().unwrap_or(0),
        }
    }
    wide
}

#[cfg(test)]
mod tests;
