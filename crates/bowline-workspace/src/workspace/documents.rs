//! The documents that an editor has open in a workspace.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::mpsc::SyncSender;

use bowline_state::diff::{self, Edit};
use bowline_state::documents::Document;
use bowline_state::text::Format;
use rustix::fs::Stat;

use super::sharing::{Bell, SharedNews};
use crate::disk;
use crate::roots::Admitted;

/// How many events wait for a listener that does not take them; one that falls behind loses its place. Each holds a text.
const MAX_EVENTS: usize = 64;

/// What the engine did to an open document, for the editor that shows it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum DocumentEvent {
    /// The text was changed by somebody else than the editor, and saved.
    Edited {
        /// The document.
        path: String,
        /// The revision that the edits lead to.
        revision: u64,
        /// What changed, in the text before; in order and apart, so that cursor and undo survive.
        edits: Vec<Edit>,
        /// The text after.
        text: Arc<String>,
    },
    /// The file was deleted. The document goes on showing what it showed.
    FileGone {
        /// The document.
        path: String,
    },
}

/// What a file is like besides its text, so that it can be made again.
#[derive(Debug, Clone, Copy)]
pub(super) struct FileKind {
    pub(super) format: Format,
    pub(super) mode: u32,
}

/// One open document.
#[derive(Debug)]
pub(super) struct Entry {
    pub(super) document: Document,
    // Which file it was, when it was last looked at.
    identity: Option<(u64, u64)>,
    // What its file was like when there was one.
    kind: Option<FileKind>,
    // A text that came for it had a byte order mark: its file gets one, if there was none.
    is_marked: bool,
    // How many times it was opened and not closed.
    opened: usize,
}

/// The open documents of a workspace.
#[derive(Debug)]
pub(super) struct Documents {
    // Invariant: keyed by canonical path; no two entries of one file.
    open: HashMap<String, Entry>,
    listeners: Vec<SyncSender<DocumentEvent>>,
    bell: Bell,
}

impl Documents {
    pub(super) fn new(bell: Bell) -> Self {
        Self { open: HashMap::new(), listeners: Vec::new(), bell }
    }

    /// Returns the path that a file's document is known by, if it is open: under this name, or another of its names.
    pub(super) fn find(&self, admitted: &Admitted) -> Option<String> {
        self.find_by(admitted.canonical(), admitted.found().map(|found| &found.stat))
    }

    pub(super) fn find_by(&self, path: &str, stat: Option<&Stat>) -> Option<String> {
        if self.open.contains_key(path) {
            return Some(path.to_owned());
        }
        // Only a file with several names can be open under another one.
        let identity = stat.filter(|stat| stat.st_nlink > 1).map(|stat| (stat.st_dev, stat.st_ino))?;
        let same = self.open.iter().find(|(_, entry)| entry.identity == Some(identity));
        // The number of a file that is gone is given to others: the document's own name has to lead there still.
        let is_still = |path: &String| {
            rustix::fs::lstat(path.as_str()).is_ok_and(|now| (now.st_dev, now.st_ino) == identity)
        };
        same.map(|(path, _)| path.clone()).filter(is_still)
    }

    pub(super) fn get(&self, path: &str) -> Option<&Document> {
        self.open.get(path).map(|entry| &entry.document)
    }

    /// Changes a document, and tells whoever reads it what is another by that.
    pub(super) fn alter<T>(&mut self, path: &str, act: impl FnOnce(&mut Document) -> T) -> Option<T> {
        let document = &mut self.open.get_mut(path)?.document;
        let (revision, was_dirty) = (document.revision(), document.is_dirty());
        let done = act(document);
        if document.revision() != revision {
            self.bell.tell(SharedNews::Document(path.to_owned()));
        }
        if document.is_dirty() != was_dirty {
            self.bell.tell(SharedNews::Documents);
        }
        Some(done)
    }

    pub(super) fn open(
        &mut self,
        path: String,
        document: Document,
        stat: Option<&Stat>,
        kind: Option<FileKind>,
    ) {
        let identity = stat.map(|stat| (stat.st_dev, stat.st_ino));
        self.open.insert(path, Entry { document, identity, kind, is_marked: false, opened: 1 });
        self.bell.tell(SharedNews::Documents);
    }

    /// Notes that an open document was opened once more.
    pub(super) fn open_again(&mut self, path: &str) {
        if let Some(entry) = self.open.get_mut(path) {
            entry.opened += 1;
        }
    }

    /// Closes a document once. Returns it if that was the last time.
    pub(super) fn close(&mut self, path: &str) -> Option<Document> {
        let entry = self.open.get_mut(path)?;
        entry.opened = entry.opened.saturating_sub(1);
        if entry.opened > 0 {
            return None;
        }
        self.bell.tell(SharedNews::Documents);
        self.open.remove(path).map(|entry| entry.document)
    }

    /// Notes which file a document's path is now.
    pub(super) fn identify(&mut self, path: &str, stat: Option<&Stat>) {
        if let Some(entry) = self.open.get_mut(path) {
            entry.identity = stat.map(|stat| (stat.st_dev, stat.st_ino));
        }
    }

    /// Returns what a document's file was like when it was loaded.
    pub(super) fn kind(&self, path: &str) -> Option<FileKind> {
        self.open.get(path)?.kind
    }

    /// Notes that a text for a document had a byte order mark.
    pub(super) fn mark(&mut self, path: &str) {
        if let Some(entry) = self.open.get_mut(path) {
            entry.is_marked = true;
        }
    }

    /// Returns the format of a document's file if there was none.
    pub(super) fn new_format(&self, path: &str) -> Format {
        let bom = self.open.get(path).is_some_and(|entry| entry.is_marked);
        Format { bom, ..Format::default() }
    }

    /// Returns the names of the documents.
    pub(super) fn names(&self) -> Vec<String> {
        self.open.keys().cloned().collect()
    }

    /// Returns the documents with unsaved text.
    pub(super) fn unsaved(&self) -> impl Iterator<Item = (&String, &Arc<String>)> {
        let dirty = self.open.iter().filter(|(_, entry)| entry.document.is_dirty());
        dirty.map(|(path, entry)| (path, entry.document.text()))
    }

    /// Lets an open document show what its file holds now, with as few edits as it takes.
    pub(super) fn settle(&mut self, path: &str, text: &Arc<String>, stat: Option<&Stat>) {
        let settled = self.alter(path, |document| {
            let before = document.text().clone();
            document.settle(text.clone(), stat.map(disk::version));
            before
        });
        let Some(before) = settled else { return };
        self.identify(path, stat);
        self.tell_edited(path, &before);
    }

    pub(super) fn listen(&mut self) -> std::sync::mpsc::Receiver<DocumentEvent> {
        let (sender, receiver) = std::sync::mpsc::sync_channel(MAX_EVENTS);
        self.listeners.push(sender);
        receiver
    }

    /// Tells what an editor that shows some text has to change to show the document's.
    pub(super) fn tell_edited(&mut self, path: &str, shown: &Arc<String>) {
        let Some(document) = self.get(path) else { return };
        let (text, revision) = (document.text().clone(), document.revision());
        if text != *shown {
            let edits = diff::edits(shown, &text);
            self.tell(&DocumentEvent::Edited { path: path.to_owned(), revision, edits, text });
        }
    }

    pub(super) fn tell(&mut self, event: &DocumentEvent) {
        self.listeners.retain(|listener| listener.try_send(event.clone()).is_ok());
    }
}
