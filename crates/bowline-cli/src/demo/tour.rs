//! The output of the tour: messages and checks.

use std::cell::RefCell;
use std::fmt::Display;

use anyhow::anyhow;
use bowline_text::display;

use bowline_client::common::console::{self, OutputStyle, TextStyle};
use bowline_client::error::CliError;

/// The maximum size of a message that is shown, in lines and bytes.
const MAX_MESSAGE: (usize, usize) = (200, 32 << 10);

/// The output of the tour.
pub(super) struct Tour {
    checks: usize,
    failed: usize,
    style: OutputStyle,
    // Why a line could not be printed.
    print_error: RefCell<Option<CliError>>,
}

impl Tour {
    /// Starts the output on stdout, coloured if it is a terminal and the user has not disabled colours.
    pub(super) fn new() -> Self {
        Self { checks: 0, failed: 0, style: OutputStyle::for_stdout(), print_error: RefCell::default() }
    }

    /// Prints the heading of a section.
    pub(super) fn print_heading(&self, title: &str) {
        if self.checks > 0 {
            self.print("");
        }
        self.print(&self.style.paint(TextStyle::Heading, title));
    }

    /// Prints a participant's message, or the content of something.
    pub(super) fn print_message(&self, speaker: &str, text: &str) {
        let (lines, bytes) = MAX_MESSAGE;
        for line in display::escape_block(text, lines, bytes).text.lines() {
            let line = match line.trim_start().as_bytes().first() {
                Some(b'+') => self.style.paint(TextStyle::Good, line),
                Some(b'-') => self.style.paint(TextStyle::Bad, line),
                Some(b'!') => self.style.paint(TextStyle::Warning, line),
                _ => line.to_owned(),
            };
            let speaker = self.style.paint(TextStyle::Faint, &format!("{speaker:>6} │"));
            self.print(format!("  {speaker} {line}").trim_end());
        }
    }

    /// Prints a check, and the actual value if it does not hold.
    pub(super) fn check<T: Display>(&mut self, description: &str, passed: bool, actual: impl FnOnce() -> T) {
        self.checks += 1;
        if passed {
            self.print(&format!("  {} {description}", self.style.paint(TextStyle::Good, "✓")));
        } else {
            self.failed += 1;
            self.print(&format!("  {} {description}", self.style.paint(TextStyle::Bad, "✗")));
            self.print_message("but", &actual().to_string());
        }
    }

    /// Prints the result and the next steps.
    ///
    /// # Errors
    /// Returns the checks that failed, or why the output failed.
    pub(super) fn finish(self) -> Result<(), CliError> {
        if self.failed > 0 {
            return Err(anyhow!("{} of {} checks failed", self.failed, self.checks).into());
        }
        self.print(&format!(
            "\n{}",
            self.style.paint(TextStyle::Good, &format!("All {} checks hold.", self.checks))
        ));
        self.print("\nTry it on a project of yours:");
        for (command, description) in NEXT_STEPS {
            self.print(&format!(
                "  {} {description}",
                self.style.paint(TextStyle::Heading, &format!("{command:<34}"))
            ));
        }
        self.print_error.into_inner().map_or(Ok(()), Err)
    }

    /// Prints a line. If stdout is closed, the checks still count.
    fn print(&self, line: &str) {
        if let Err(error) = console::print(&format!("{line}\n")) {
            self.print_error.borrow_mut().get_or_insert(error);
        }
    }
}

const NEXT_STEPS: [(&str, &str); 4] = [
    ("bowline run 'read README.md'", "one prompt, in this terminal"),
    ("bowline chat", "the same in full screen"),
    ("bowline setup zed", "in your editor; also jetbrains, neovim, emacs, vscode"),
    ("bowline doctor", "what works here, and which model would be used"),
];
