//! Ignore files as of the last scan, so that a change cannot be hidden by rules added together with it.

use std::collections::HashMap;
use std::sync::Arc;

/// The maximum total size of the remembered texts, in bytes.
const MAX_TEXT_BYTES: usize = 8 << 20;

/// The texts of ignore files, by path.
#[derive(Debug, Clone, Default)]
pub(crate) struct IgnoreSnapshot {
    // Invariant: at most `MAX_TEXT_BYTES` in total, counted in `bytes`.
    texts: HashMap<String, Arc<[u8]>>,
    bytes: usize,
    // Some texts did not fit.
    is_partial: bool,
}

/// The previous state of an ignore file.
pub(super) enum PreviousText {
    /// It had this text.
    Text(Arc<[u8]>),
    /// It did not exist.
    Nothing,
    /// Its text was not remembered.
    Unknown,
}

impl IgnoreSnapshot {
    /// Returns the previous state of an ignore file.
    pub(super) fn previous_text(&self, path: &str) -> PreviousText {
        match self.texts.get(path) {
            Some(text) => PreviousText::Text(text.clone()),
            None if self.is_partial => PreviousText::Unknown,
            None => PreviousText::Nothing,
        }
    }

    /// Remembers the current text of an ignore file; `None` if it does not exist.
    pub(crate) fn record_text(&mut self, path: String, text: Option<Arc<[u8]>>) {
        if let Some(old) = self.texts.remove(&path) {
            self.bytes -= old.len();
        }
        let Some(text) = text else { return };
        if self.bytes + text.len() > MAX_TEXT_BYTES {
            self.is_partial = true;
            return;
        }
        self.bytes += text.len();
        self.texts.insert(path, text);
    }
}

/// Returns the directory that an ignore file governs, if the path is that of one.
pub(crate) fn ignore_file_directory(path: &str) -> Option<&str> {
    match path.rsplit_once('/') {
        Some((directory, ".gitignore" | ".ignore")) => Some(directory),
        _ => None,
    }
}
