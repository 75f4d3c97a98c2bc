//! Diagnostics on their way to whoever keeps them: of each file the newest, within bounds.

use indexmap::IndexMap;

use super::{Diagnostic, MAX_FILES};

/// So many bytes wait in all; the file that was told of longest ago makes room. One alone always has it.
const MAX_WAITING_BYTES: usize = 16 << 20;

/// What was shared and is not kept yet.
#[derive(Debug, Default)]
pub struct Waiting {
    // Invariant: at most `MAX_FILES` with `bytes` in all, at most `MAX_WAITING_BYTES`; the one told of last at the end.
    files: IndexMap<String, Vec<Diagnostic>>,
    bytes: usize,
}

impl Waiting {
    /// Takes what is wrong in a file, in place of what waits of it.
    pub fn put(&mut self, path: String, diagnostics: Vec<Diagnostic>) {
        if let Some(known) = self.files.shift_remove(&path) {
            self.bytes -= bytes(&known);
        }
        self.bytes += bytes(&diagnostics);
        self.files.insert(path, diagnostics);
        while self.files.len() > MAX_FILES || (self.bytes > MAX_WAITING_BYTES && self.files.len() > 1) {
            self.take();
        }
    }

    /// Returns what has waited longest, which then waits no more.
    pub fn take(&mut self) -> Option<(String, Vec<Diagnostic>)> {
        let (path, diagnostics) = self.files.shift_remove_index(0)?;
        self.bytes -= bytes(&diagnostics);
        Some((path, diagnostics))
    }
}

fn bytes(diagnostics: &[Diagnostic]) -> usize {
    let name = |name: &Option<String>| name.as_ref().map_or(0, String::len);
    let each = diagnostics
        .iter()
        .map(|one| size_of::<Diagnostic>() + one.message.len() + name(&one.source) + name(&one.code));
    each.sum()
}

#[cfg(test)]
mod tests;
