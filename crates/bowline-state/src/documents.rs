//! A file that an editor has open: its text, saved or not, and what the disk held when they last agreed.

use std::collections::VecDeque;
use std::sync::Arc;

use crate::ledger::Version;
use crate::merge::{Conflict, merge};

/// As many texts are remembered that somebody else than the editor replaced: an editor that has not heard of it yet sends
/// what it made of one of them.
pub const MAX_REPLACED: usize = 8;

/// An open document.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Document {
    text: Arc<String>,
    // What the file held when it was last loaded or saved; none if there was no file.
    saved: Option<Arc<String>>,
    // Which state of the file that was.
    disk: Option<Version>,
    revision: u64,
    // Texts that `settle` replaced, with their revisions, the oldest first; at most `MAX_REPLACED`.
    replaced: VecDeque<(u64, Arc<String>)>,
}

/// Why a change is not taken. The document is as it was.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Untaken {
    /// The editor does not know what the document shows by now, and nobody knows any more what it does know.
    #[error(
        "it is made of revision {based_on}, the document is at {revision}: take what it shows and make the change again"
    )]
    TooOld {
        /// What the change was made of.
        based_on: u64,
        /// What the document shows.
        revision: u64,
    },
    /// Somebody else changed the same lines.
    #[error(
        "it touches lines that were changed since ({0}): take what the document shows and make the change again"
    )]
    Conflict(Conflict),
}

/// Where the text of a path comes from.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Truth {
    /// The disk: no document is open.
    Disk,
    /// The document. If it is not saved, the file is as it was when it was loaded.
    Document,
    /// The document, which is not saved; the file was changed, too.
    DocumentBesideChangedFile,
    /// The disk, and the document is to be loaded anew: it had no unsaved text, and the file was changed.
    Reload,
}

impl Document {
    /// Returns a document that was loaded from a file, or stands for one that is not there yet.
    #[must_use]
    pub fn new(saved: Option<Arc<String>>, disk: Option<Version>) -> Self {
        let text = saved.clone().unwrap_or_default();
        Self { text, saved, disk, revision: 0, replaced: VecDeque::new() }
    }

    /// Returns what the editor shows.
    #[must_use]
    pub fn text(&self) -> &Arc<String> {
        &self.text
    }

    /// Returns what the file held when it was last loaded or saved.
    #[must_use]
    pub fn saved(&self) -> Option<&Arc<String>> {
        self.saved.as_ref()
    }

    /// Returns how often the text has changed.
    #[must_use]
    pub fn revision(&self) -> u64 {
        self.revision
    }

    /// Says whether there is text that the file does not have. An empty document of no file has none.
    #[must_use]
    pub fn is_dirty(&self) -> bool {
        match &self.saved {
            Some(saved) => !Arc::ptr_eq(saved, &self.text) && saved != &self.text,
            None => !self.text.is_empty(),
        }
    }

    /// Changes the text, as typing does. The new text was made of the one at some revision; if somebody else changed the
    /// document since, both changes are in it.
    ///
    /// # Errors
    /// Returns [`Untaken`] if both changed the same lines, or the revision is too old.
    pub fn change(&mut self, text: Arc<String>, based_on: u64) -> Result<(), Untaken> {
        if based_on == self.revision {
            self.show(text);
            return Ok(());
        }
        let known = self.replaced.iter().find(|(revision, _)| *revision == based_on);
        let Some((_, base)) = known else {
            return Err(Untaken::TooOld { based_on, revision: self.revision });
        };
        let merged = merge(base, &self.text, &text).map_err(Untaken::Conflict)?;
        self.show(Arc::new(merged.text));
        Ok(())
    }

    fn show(&mut self, text: Arc<String>) {
        if self.text != text {
            self.text = text;
            self.revision += 1;
        }
    }

    /// Notes that the file now holds this text, and the document too.
    pub fn settle(&mut self, text: Arc<String>, disk: Option<Version>) {
        if self.text != text {
            self.replaced.push_back((self.revision, self.text.clone()));
            if self.replaced.len() > MAX_REPLACED {
                self.replaced.pop_front();
            }
        }
        self.show(text.clone());
        self.saved = Some(text);
        self.disk = disk;
    }
}

/// Says where the text of a path comes from, given the file as it is on disk now.
#[must_use]
pub fn truth(document: Option<&Document>, disk: Option<Version>) -> Truth {
    let Some(document) = document else { return Truth::Disk };
    match (document.disk == disk, document.is_dirty()) {
        (true, _) => Truth::Document,
        (false, true) => Truth::DocumentBesideChangedFile,
        (false, false) => Truth::Reload,
    }
}

#[cfg(test)]
mod tests;
