//! Files of ignore rules as they were at the last look, so that nobody can hide what was done by rules that came with it.

use std::collections::HashMap;
use std::sync::Arc;

/// The texts that are remembered have so many bytes in all.
const MAX_BYTES: usize = 8 << 20;

/// The texts of files of rules, by their paths.
#[derive(Debug, Clone, Default)]
pub(crate) struct Remembered {
    // Invariant: at most `MAX_BYTES` in all, which is `bytes`.
    texts: HashMap<String, Arc<[u8]>>,
    bytes: usize,
    // There were more than are remembered.
    is_partial: bool,
}

/// What a file of rules was.
pub(super) enum Was {
    /// It held this.
    Text(Arc<[u8]>),
    /// There was none.
    Nothing,
    /// Nobody knows.
    Unknown,
}

impl Remembered {
    /// Returns what a file of rules was.
    pub(super) fn was(&self, path: &str) -> Was {
        match self.texts.get(path) {
            Some(text) => Was::Text(text.clone()),
            None if self.is_partial => Was::Unknown,
            None => Was::Nothing,
        }
    }

    /// Remembers what a file of rules holds now; none if there is no such file.
    pub(crate) fn learn(&mut self, path: String, text: Option<Arc<[u8]>>) {
        if let Some(old) = self.texts.remove(&path) {
            self.bytes -= old.len();
        }
        let Some(text) = text else { return };
        if self.bytes + text.len() > MAX_BYTES {
            self.is_partial = true;
            return;
        }
        self.bytes += text.len();
        self.texts.insert(path, text);
    }
}

/// Says whether a path is that of a file of rules for the directory it is in, and returns that directory.
pub(crate) fn directory_ruled(path: &str) -> Option<&str> {
    match path.rsplit_once('/') {
        Some((directory, ".gitignore" | ".ignore")) => Some(directory),
        _ => None,
    }
}
