//! What a person sees of the tour: who says what, and what was checked.

use std::cell::RefCell;
use std::fmt::Display;
use std::io::IsTerminal as _;

use anyhow::anyhow;
use bowline_state::display;

use crate::ending::Ending;
use crate::records::showing;

/// As much of what somebody says is shown: lines, and bytes.
const MAX_SAID: (usize, usize) = (200, 32 << 10);

/// What a person sees of the tour.
pub(super) struct Tour {
    checks: usize,
    failed: usize,
    coloured: bool,
    // Why a line could not be shown.
    unseen: RefCell<Option<Ending>>,
}

impl Tour {
    /// Begins it on stdout, in colours if that is a terminal whose user has nothing against them.
    pub(super) fn new() -> Self {
        let wanted = std::env::var_os("NO_COLOR").is_none_or(|value| value.is_empty());
        let coloured = wanted && std::io::stdout().is_terminal();
        Self { checks: 0, failed: 0, coloured, unseen: RefCell::default() }
    }

    /// Begins a part.
    pub(super) fn title(&self, title: &str) {
        if self.checks > 0 {
            self.print("");
        }
        self.print(&self.paint(title, "1"));
    }

    /// Shows what somebody says, or what is to be seen somewhere.
    pub(super) fn say(&self, who: &str, text: &str) {
        let (lines, bytes) = MAX_SAID;
        for line in display::block(text, lines, bytes).text.lines() {
            let line = match line.trim_start().as_bytes().first() {
                Some(b'+') => self.paint(line, "32"),
                Some(b'-') => self.paint(line, "31"),
                Some(b'!') => self.paint(line, "33"),
                _ => line.to_owned(),
            };
            let who = self.paint(&format!("{who:>6} │"), "2");
            self.print(format!("  {who} {line}").trim_end());
        }
    }

    /// Checks something, and shows what there is instead if it does not hold.
    pub(super) fn check<T: Display>(&mut self, what: &str, holds: bool, seen: impl FnOnce() -> T) {
        self.checks += 1;
        if holds {
            self.print(&format!("  {} {what}", self.paint("✓", "32")));
        } else {
            self.failed += 1;
            self.print(&format!("  {} {what}", self.paint("✗", "31")));
            self.say("but", &seen().to_string());
        }
    }

    /// Says how it went, and what to do next.
    ///
    /// # Errors
    /// Returns what did not hold, or why that could not be shown.
    pub(super) fn finish(self) -> Result<(), Ending> {
        if self.failed > 0 {
            return Err(anyhow!("{} of {} checks failed", self.failed, self.checks).into());
        }
        self.print(&format!("\n{}", self.paint(&format!("All {} checks hold.", self.checks), "1;32")));
        self.print("\nTry it on a project of yours:");
        for (command, what) in NEXT {
            self.print(&format!("  {} {what}", self.paint(&format!("{command:<34}"), "1")));
        }
        self.unseen.into_inner().map_or(Ok(()), Err)
    }

    fn paint(&self, text: &str, colour: &str) -> String {
        if self.coloured { format!("\u{1b}[{colour}m{text}\u{1b}[0m") } else { text.to_owned() }
    }

    /// Prints a line. If nobody reads any more, the checks still count.
    fn print(&self, line: &str) {
        if let Err(error) = showing::print(&format!("{line}\n")) {
            self.unseen.borrow_mut().get_or_insert(error);
        }
    }
}

const NEXT: [(&str, &str); 4] = [
    ("bowline run 'read README.md'", "one prompt, in this terminal"),
    ("bowline chat", "the same in full screen"),
    ("bowline setup zed", "in your editor; also jetbrains, neovim, emacs, vscode"),
    ("bowline doctor", "what works here, and which model would be used"),
];
