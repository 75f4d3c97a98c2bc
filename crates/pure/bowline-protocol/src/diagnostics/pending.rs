//! Diagnostics that wait to be stored: the newest of each file, within bounds.

use indexmap::IndexMap;

use super::{Diagnostic, MAX_FILES};

/// The maximum total size of pending diagnostics; the least recently updated file is evicted. A single file is never
/// evicted.
const MAX_PENDING_BYTES: usize = 16 << 20;

/// Diagnostics that were shared and are not stored yet.
#[derive(Debug, Default)]
pub struct PendingDiagnostics {
    // Invariant: at most `MAX_FILES` with `bytes` in all, at most `MAX_PENDING_BYTES`; the most recently updated file
    // last.
    files: IndexMap<String, Vec<Diagnostic>>,
    bytes: usize,
}

impl PendingDiagnostics {
    /// Adds the diagnostics of a file, replacing pending ones.
    pub fn insert(&mut self, path: String, diagnostics: Vec<Diagnostic>) {
        if let Some(known) = self.files.shift_remove(&path) {
            self.bytes -= diagnostics_bytes(&known);
        }
        self.bytes += diagnostics_bytes(&diagnostics);
        self.files.insert(path, diagnostics);
        while self.files.len() > MAX_FILES || (self.bytes > MAX_PENDING_BYTES && self.files.len() > 1) {
            self.take_oldest();
        }
    }

    /// Removes and returns the oldest pending diagnostics.
    pub fn take_oldest(&mut self) -> Option<(String, Vec<Diagnostic>)> {
        let (path, diagnostics) = self.files.shift_remove_index(0)?;
        self.bytes -= diagnostics_bytes(&diagnostics);
        Some((path, diagnostics))
    }
}

fn diagnostics_bytes(diagnostics: &[Diagnostic]) -> usize {
    let name = |name: &Option<String>| name.as_ref().map_or(0, String::len);
    let each = diagnostics.iter().map(|diagnostic| {
        size_of::<Diagnostic>() + diagnostic.message.len() + name(&diagnostic.source) + name(&diagnostic.code)
    });
    each.sum()
}

#[cfg(test)]
mod tests;
