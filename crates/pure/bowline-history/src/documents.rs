//! A document that is open in an editor: its text, saved or not, and the file's content when they last agreed.
//!
//! An editor names the revision on which its new text is based. Engine changes that the editor has not seen yet are
//! merged with it; events tell the editor which edits to apply.

use std::collections::VecDeque;
use std::sync::Arc;

use crate::ledger::TextVersion;
use bowline_text::merge::{MergeConflict, merge};

/// The number of replaced texts that are remembered: an editor that has not yet learned of a replacement may send a
/// change based on one of them.
pub const MAX_REPLACED_TEXTS: usize = 8;

/// An open document.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Document {
    text: Arc<String>,
    // The file's content when it was last loaded or saved; `None` if there was no file.
    saved_text: Option<Arc<String>>,
    // The version of the file at that time.
    disk_version: Option<TextVersion>,
    revision: u64,
    // The texts that `mark_synced` replaced, with their revisions, oldest first; at most `MAX_REPLACED_TEXTS`.
    replaced_texts: VecDeque<(u64, Arc<String>)>,
}

/// Why a change was rejected. The document is unchanged.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ChangeDocumentError {
    /// The change is based on a revision that is no longer remembered.
    #[error(
        "it is made of revision {based_on}, the document is at {revision}: take what it shows and make the change again"
    )]
    StaleRevision {
        /// The revision on which the change is based.
        based_on: u64,
        /// The current revision of the document.
        revision: u64,
    },
    /// The same lines have been changed since.
    #[error(
        "it touches lines that were changed since ({0}): take what the document shows and make the change again"
    )]
    Conflict(MergeConflict),
}

/// The source of a path's text.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum DocumentTextSource {
    /// The disk: no document is open.
    Disk,
    /// The document. If it is unsaved, the file has not changed since it was loaded.
    Document,
    /// The unsaved document, although the file has changed too.
    DirtyDocumentOverChangedFile,
    /// The disk. The document must be reloaded: it has no unsaved text, and the file has changed.
    Reload,
}

impl Document {
    /// Returns a document loaded from a file, or for a file that does not exist yet.
    #[must_use]
    pub fn new(saved_text: Option<Arc<String>>, disk_version: Option<TextVersion>) -> Self {
        let text = saved_text.clone().unwrap_or_default();
        Self { text, saved_text, disk_version, revision: 0, replaced_texts: VecDeque::new() }
    }

    /// Returns the text that the editor shows.
    #[must_use]
    pub fn text(&self) -> &Arc<String> {
        &self.text
    }

    /// Returns the file's content when it was last loaded or saved.
    #[must_use]
    pub fn saved_text(&self) -> Option<&Arc<String>> {
        self.saved_text.as_ref()
    }

    /// Returns how often the text has changed.
    #[must_use]
    pub fn revision(&self) -> u64 {
        self.revision
    }

    /// Returns whether the document has unsaved text. An empty document without a file has none.
    #[must_use]
    pub fn is_dirty(&self) -> bool {
        match &self.saved_text {
            Some(saved) => !Arc::ptr_eq(saved, &self.text) && saved != &self.text,
            None => !self.text.is_empty(),
        }
    }

    /// Changes the text, as typing does. `based_on` is the revision on which the new text is based; changes made to the
    /// document since are merged.
    ///
    /// # Errors
    /// Returns [`ChangeDocumentError`] if both sides changed the same lines, or if the revision is too old.
    pub fn apply_change(&mut self, text: Arc<String>, based_on: u64) -> Result<(), ChangeDocumentError> {
        if based_on == self.revision {
            self.set_text(text);
            return Ok(());
        }
        let known = self.replaced_texts.iter().find(|(revision, _)| *revision == based_on);
        let Some((_, base)) = known else {
            return Err(ChangeDocumentError::StaleRevision { based_on, revision: self.revision });
        };
        let merged = merge(base, &self.text, &text).map_err(ChangeDocumentError::Conflict)?;
        self.set_text(Arc::new(merged));
        Ok(())
    }

    fn set_text(&mut self, text: Arc<String>) {
        if self.text != text {
            self.text = text;
            self.revision += 1;
        }
    }

    /// Records that the file and the document now both hold this text.
    pub fn mark_synced(&mut self, text: Arc<String>, disk: Option<TextVersion>) {
        if self.text != text {
            self.replaced_texts.push_back((self.revision, self.text.clone()));
            if self.replaced_texts.len() > MAX_REPLACED_TEXTS {
                self.replaced_texts.pop_front();
            }
        }
        self.set_text(text.clone());
        self.saved_text = Some(text);
        self.disk_version = disk;
    }
}

/// Returns the source of a path's text, given the current version of the file on disk.
#[must_use]
pub fn resolve_text_source(document: Option<&Document>, disk: Option<TextVersion>) -> DocumentTextSource {
    let Some(document) = document else { return DocumentTextSource::Disk };
    match (document.disk_version == disk, document.is_dirty()) {
        (true, _) => DocumentTextSource::Document,
        (false, true) => DocumentTextSource::DirtyDocumentOverChangedFile,
        (false, false) => DocumentTextSource::Reload,
    }
}

#[cfg(test)]
mod tests;
