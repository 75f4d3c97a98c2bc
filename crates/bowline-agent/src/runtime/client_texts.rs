//! The client's texts that a session has read, so that a search finds unsaved text.

use std::collections::VecDeque;
use std::sync::Arc;

/// The most texts kept; the oldest are evicted first.
const MAX_FILES: usize = 256;

/// The most bytes of all texts together.
const MAX_BYTES: usize = 32 << 20;

/// Texts by path.
#[derive(Debug, Default)]
pub(super) struct ClientTexts {
    // Invariant: newest first, each path once; at most `MAX_FILES` with at most `MAX_BYTES`, which `bytes` counts.
    texts: VecDeque<(String, Arc<String>)>,
    bytes: usize,
}

impl ClientTexts {
    pub(super) fn insert(&mut self, path: &str, text: Arc<String>) {
        self.remove(path);
        if text.len() > MAX_BYTES {
            return;
        }
        self.bytes += text.len();
        self.texts.push_front((path.to_owned(), text));
        while self.texts.len() > MAX_FILES || self.bytes > MAX_BYTES {
            let Some((_, oldest)) = self.texts.pop_back() else { return };
            self.bytes -= oldest.len();
        }
    }

    pub(super) fn remove(&mut self, path: &str) {
        let index = self.texts.iter().position(|(known, _)| known == path);
        if let Some((_, text)) = index.and_then(|index| self.texts.remove(index)) {
            self.bytes -= text.len();
        }
    }

    /// Returns all texts, newest first.
    pub(super) fn all(&self) -> Vec<(String, Arc<String>)> {
        self.texts.iter().cloned().collect()
    }
}
