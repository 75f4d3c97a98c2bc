//! The commands that an agent started, and their live output.

use bowline_protocol::schema::v1::TerminalId;

use crate::terminal::emulator::TerminalEmulator;

/// The maximum number of terminals kept; the oldest are dropped.
const MAX_TERMINALS: usize = 32;

/// The indentation of their output, in columns.
const OUTPUT_INDENT: usize = 4;

/// The commands of a session.
#[derive(Debug)]
pub(crate) struct TerminalViews {
    views: Vec<(TerminalId, TerminalView)>,
    columns: u16,
}

impl Default for TerminalViews {
    fn default() -> Self {
        Self { views: Vec::new(), columns: 80 }
    }
}

impl TerminalViews {
    /// Adds a started command.
    pub(crate) fn add(&mut self, id: TerminalId) {
        if self.views.len() >= MAX_TERMINALS {
            self.views.remove(0);
        }
        self.views.push((id, TerminalView::new(self.columns)));
    }

    /// Feeds output of a command.
    pub(crate) fn feed(&mut self, id: &TerminalId, bytes: &[u8]) {
        if let Some((_, view)) = self.views.iter_mut().find(|(known, _)| known == id) {
            view.feed(bytes);
        }
    }

    /// Records how a command ended.
    pub(crate) fn set_exit(&mut self, id: &TerminalId, exit: String) {
        if let Some((_, view)) = self.views.iter_mut().find(|(known, _)| known == id) {
            view.exit = Some(exit);
            view.version += 1;
        }
    }

    /// Returns a command, unless it was evicted.
    pub(crate) fn get(&self, id: &TerminalId) -> Option<&TerminalView> {
        self.views.iter().find(|(known, _)| known == id).map(|(_, view)| view)
    }

    /// Reflows their output to the width of the screen.
    pub(crate) fn resize(&mut self, width: usize) {
        let columns = u16::try_from(width.saturating_sub(OUTPUT_INDENT)).unwrap_or(u16::MAX);
        if columns != self.columns {
            self.columns = columns;
            self.views.iter_mut().for_each(|(_, view)| view.output.resize(columns));
        }
    }
}

/// A started command and its output.
pub(crate) struct TerminalView {
    /// Its output.
    pub(crate) output: TerminalEmulator,
    /// How it ended.
    pub(crate) exit: Option<String>,
    version: u64,
    // The start of an incomplete UTF-8 character.
    partial: Vec<u8>,
}

impl TerminalView {
    /// Returns a number that changes with the content.
    pub(crate) fn version(&self) -> u64 {
        self.version
    }

    fn new(columns: u16) -> Self {
        Self { output: TerminalEmulator::new(columns), exit: None, version: 0, partial: Vec::new() }
    }

    fn feed(&mut self, bytes: &[u8]) {
        self.partial.extend_from_slice(bytes);
        let bytes = std::mem::take(&mut self.partial);
        for chunk in bytes.utf8_chunks() {
            self.output.feed(chunk.valid());
            let invalid = chunk.invalid();
            // At the very end it may be the start of a character.
            if bytes.ends_with(invalid) && invalid.len() < 4 && is_partial_char(invalid) {
                self.partial = invalid.to_vec();
            } else if !invalid.is_empty() {
                self.output.feed("\u{fffd}");
            }
        }
        self.version += 1;
    }
}

impl std::fmt::Debug for TerminalView {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Screen")
            .field("exit", &self.exit)
            .field("version", &self.version)
            .finish_non_exhaustive()
    }
}

/// Returns whether bytes are the start of an incomplete character.
fn is_partial_char(bytes: &[u8]) -> bool {
    std::str::from_utf8(bytes).is_err_and(|error| error.error_len().is_none())
}
