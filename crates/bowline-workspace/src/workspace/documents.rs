//! The documents that an editor has open in a workspace.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::mpsc::SyncSender;

use bowline_history::documents::Document;
use bowline_text::diff::{self, TextEdit};
use bowline_text::text::TextFormat;
use rustix::fs::Stat;

use super::notifications::{Notifier, WorkspaceNotification};
use crate::disk;
use crate::roots::AdmittedPath;

/// How many events are queued for a slow listener; a listener that falls further behind is dropped. Each event holds a
/// text.
const MAX_EVENTS: usize = 64;

/// A change of an open document by the engine, reported to the editor that shows it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum DocumentEvent {
    /// The text was changed outside of the editor, and saved.
    Edited {
        /// The document.
        path: String,
        /// The revision that the edits lead to.
        revision: u64,
        /// The edits to the previous text, in order and disjoint, so that cursor and undo history survive.
        edits: Vec<TextEdit>,
        /// The text after.
        text: Arc<String>,
    },
    /// The file was deleted. The document keeps its text.
    FileDeleted {
        /// The document.
        path: String,
    },
}

/// The attributes of a file besides its text, with which it can be recreated.
#[derive(Debug, Clone, Copy)]
pub(super) struct FileAttributes {
    pub(super) format: TextFormat,
    pub(super) mode: u32,
}

/// One open document.
#[derive(Debug)]
pub(super) struct DocumentEntry {
    pub(super) document: Document,
    // Device and inode of the file when it was last checked.
    identity: Option<(u64, u64)>,
    // The attributes of the file, if it existed.
    attributes: Option<FileAttributes>,
    // A text for this document had a byte order mark: its file gets one, if the file is new.
    has_bom: bool,
    // How many times it was opened without being closed.
    open_count: usize,
}

/// The open documents of a workspace.
#[derive(Debug)]
pub(super) struct Documents {
    // Invariant: keyed by canonical path; no two entries for one file.
    entries: HashMap<String, DocumentEntry>,
    listeners: Vec<SyncSender<DocumentEvent>>,
    notifier: Notifier,
}

impl Documents {
    pub(super) fn new(bell: Notifier) -> Self {
        Self { entries: HashMap::new(), listeners: Vec::new(), notifier: bell }
    }

    /// Returns the path under which a file's document is registered, if it is open under this path or another hard
    /// link.
    pub(super) fn find(&self, admitted: &AdmittedPath) -> Option<String> {
        self.find_by_stat(admitted.canonical(), admitted.target().map(|found| &found.stat))
    }

    pub(super) fn find_by_stat(&self, path: &str, stat: Option<&Stat>) -> Option<String> {
        if self.entries.contains_key(path) {
            return Some(path.to_owned());
        }
        // Only a file with several hard links can be open under another path.
        let identity = stat.filter(|stat| stat.st_nlink > 1).map(|stat| (stat.st_dev, stat.st_ino))?;
        let same = self.entries.iter().find(|(_, entry)| entry.identity == Some(identity));
        // Inode numbers are reused, so the document's own path must still lead to this inode.
        let is_still = |path: &String| {
            rustix::fs::lstat(path.as_str()).is_ok_and(|now| (now.st_dev, now.st_ino) == identity)
        };
        same.map(|(path, _)| path.clone()).filter(is_still)
    }

    pub(super) fn get(&self, path: &str) -> Option<&Document> {
        self.entries.get(path).map(|entry| &entry.document)
    }

    /// Changes a document, and notifies subscribers if its text or its dirty state changed.
    pub(super) fn update<T>(&mut self, path: &str, act: impl FnOnce(&mut Document) -> T) -> Option<T> {
        let document = &mut self.entries.get_mut(path)?.document;
        let (revision, was_dirty) = (document.revision(), document.is_dirty());
        let done = act(document);
        if document.revision() != revision {
            self.notifier.notify(WorkspaceNotification::Document(path.to_owned()));
        }
        if document.is_dirty() != was_dirty {
            self.notifier.notify(WorkspaceNotification::Documents);
        }
        Some(done)
    }

    pub(super) fn open(
        &mut self,
        path: String,
        document: Document,
        stat: Option<&Stat>,
        kind: Option<FileAttributes>,
    ) {
        let identity = stat.map(|stat| (stat.st_dev, stat.st_ino));
        self.entries.insert(
            path,
            DocumentEntry { document, identity, attributes: kind, has_bom: false, open_count: 1 },
        );
        self.notifier.notify(WorkspaceNotification::Documents);
    }

    /// Counts another opening of an open document.
    pub(super) fn increment_open_count(&mut self, path: &str) {
        if let Some(entry) = self.entries.get_mut(path) {
            entry.open_count += 1;
        }
    }

    /// Closes a document once. Returns it if it is now fully closed.
    pub(super) fn close(&mut self, path: &str) -> Option<Document> {
        let entry = self.entries.get_mut(path)?;
        entry.open_count = entry.open_count.saturating_sub(1);
        if entry.open_count > 0 {
            return None;
        }
        self.notifier.notify(WorkspaceNotification::Documents);
        self.entries.remove(path).map(|entry| entry.document)
    }

    /// Records which file is now at a document's path.
    pub(super) fn set_identity(&mut self, path: &str, stat: Option<&Stat>) {
        if let Some(entry) = self.entries.get_mut(path) {
            entry.identity = stat.map(|stat| (stat.st_dev, stat.st_ino));
        }
    }

    /// Returns the attributes that a document's file had when it was loaded.
    pub(super) fn file_attributes(&self, path: &str) -> Option<FileAttributes> {
        self.entries.get(path)?.attributes
    }

    /// Records that a text for a document had a byte order mark.
    pub(super) fn mark_bom(&mut self, path: &str) {
        if let Some(entry) = self.entries.get_mut(path) {
            entry.has_bom = true;
        }
    }

    /// Returns the format for a document that has no file yet.
    pub(super) fn new_format(&self, path: &str) -> TextFormat {
        let bom = self.entries.get(path).is_some_and(|entry| entry.has_bom);
        TextFormat { has_bom: bom, ..TextFormat::default() }
    }

    /// Returns the paths of the documents.
    pub(super) fn paths(&self) -> Vec<String> {
        self.entries.keys().cloned().collect()
    }

    /// Returns the documents with unsaved text.
    pub(super) fn unsaved_texts(&self) -> impl Iterator<Item = (&String, &Arc<String>)> {
        let dirty = self.entries.iter().filter(|(_, entry)| entry.document.is_dirty());
        dirty.map(|(path, entry)| (path, entry.document.text()))
    }

    /// Updates an open document to the current text of its file, with a minimal set of edits.
    pub(super) fn show_saved_text(&mut self, path: &str, text: &Arc<String>, stat: Option<&Stat>) {
        let settled = self.update(path, |document| {
            let before = document.text().clone();
            document.mark_synced(text.clone(), stat.map(disk::file_version));
            before
        });
        let Some(before) = settled else { return };
        self.set_identity(path, stat);
        self.notify_edited(path, &before);
    }

    pub(super) fn subscribe(&mut self) -> std::sync::mpsc::Receiver<DocumentEvent> {
        let (sender, receiver) = std::sync::mpsc::sync_channel(MAX_EVENTS);
        self.listeners.push(sender);
        receiver
    }

    /// Reports the edits that turn the text an editor shows into the document's.
    pub(super) fn notify_edited(&mut self, path: &str, shown: &Arc<String>) {
        let Some(document) = self.get(path) else { return };
        let (text, revision) = (document.text().clone(), document.revision());
        if text != *shown {
            let edits = diff::compute_edits(shown, &text);
            self.notify(&DocumentEvent::Edited { path: path.to_owned(), revision, edits, text });
        }
    }

    pub(super) fn notify(&mut self, event: &DocumentEvent) {
        self.listeners.retain(|listener| listener.try_send(event.clone()).is_ok());
    }
}
