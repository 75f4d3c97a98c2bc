//! The commands that an agent started, and what they show while they run.

use bowline_state::schema::v1::TerminalId;

use super::output::Output;

/// So many are kept; the oldest go.
const MAX_TERMINALS: usize = 32;

/// So much narrower than the screen their output is shown.
const INDENT: usize = 4;

/// The commands of a session.
#[derive(Debug)]
pub(crate) struct Terminals {
    all: Vec<(TerminalId, Screen)>,
    columns: u16,
}

impl Default for Terminals {
    fn default() -> Self {
        Self { all: Vec::new(), columns: 80 }
    }
}

impl Terminals {
    /// Notes that a command was started.
    pub(crate) fn started(&mut self, id: TerminalId) {
        if self.all.len() >= MAX_TERMINALS {
            self.all.remove(0);
        }
        self.all.push((id, Screen::new(self.columns)));
    }

    /// Takes in output of a command.
    pub(crate) fn output(&mut self, id: &TerminalId, bytes: &[u8]) {
        if let Some((_, screen)) = self.all.iter_mut().find(|(known, _)| known == id) {
            screen.feed(bytes);
        }
    }

    /// Notes how a command ended.
    pub(crate) fn ended(&mut self, id: &TerminalId, exit: String) {
        if let Some((_, screen)) = self.all.iter_mut().find(|(known, _)| known == id) {
            screen.exit = Some(exit);
            screen.version += 1;
        }
    }

    /// Returns a command, unless it had to make room for later ones.
    pub(crate) fn get(&self, id: &TerminalId) -> Option<&Screen> {
        self.all.iter().find(|(known, _)| known == id).map(|(_, screen)| screen)
    }

    /// Fits their output to the width of the screen.
    pub(crate) fn fit(&mut self, width: usize) {
        let columns = u16::try_from(width.saturating_sub(INDENT)).unwrap_or(u16::MAX);
        if columns != self.columns {
            self.columns = columns;
            self.all.iter_mut().for_each(|(_, screen)| screen.output.resize(columns));
        }
    }
}

/// A command that was started, and what it shows.
pub(crate) struct Screen {
    /// Its output.
    pub(crate) output: Output,
    /// How it ended.
    pub(crate) exit: Option<String>,
    version: u64,
    // The start of a character whose rest has not come.
    partial: Vec<u8>,
}

impl Screen {
    /// Returns a number that changes with what is shown.
    pub(crate) fn version(&self) -> u64 {
        self.version
    }

    fn new(columns: u16) -> Self {
        Self { output: Output::new(columns), exit: None, version: 0, partial: Vec::new() }
    }

    fn feed(&mut self, bytes: &[u8]) {
        self.partial.extend_from_slice(bytes);
        let bytes = std::mem::take(&mut self.partial);
        for chunk in bytes.utf8_chunks() {
            self.output.feed(chunk.valid());
            let invalid = chunk.invalid();
            // At the very end it may be the start of a character.
            if bytes.ends_with(invalid) && invalid.len() < 4 && is_start(invalid) {
                self.partial = invalid.to_vec();
            } else if !invalid.is_empty() {
                self.output.feed("\u{fffd}");
            }
        }
        self.version += 1;
    }
}

impl std::fmt::Debug for Screen {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Screen")
            .field("exit", &self.exit)
            .field("version", &self.version)
            .finish_non_exhaustive()
    }
}

/// Says whether bytes are the start of a character and not all of it.
fn is_start(bytes: &[u8]) -> bool {
    std::str::from_utf8(bytes).is_err_and(|error| error.error_len().is_none())
}
