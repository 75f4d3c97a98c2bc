//! The editor's side of a workspace: it opens documents, changes, saves and closes them.

use std::sync::Arc;
use std::sync::mpsc::Receiver;

use bowline_state::changes::Origin;
use bowline_state::documents::{Document, Truth, truth};
use bowline_state::ledger::Rejected;
use bowline_state::merge::merge;
use bowline_state::paths::Access;
use bowline_state::text;
use rustix::fs::Stat;

use super::applying::{Bytes, Effect, Group, NewFile, NotApplied, Telling};
use super::documents::{DocumentEvent, Documents, FileKind};
use super::writing::encode;
use super::{Workspace, Writer};
use crate::disk;
use crate::error::FilesError;
use crate::roots::{Admitted, Roots};

/// How often saving is tried anew because somebody changed the file meanwhile.
const ATTEMPTS: usize = 8;

/// An open document as it is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct OpenDocument {
    /// The name it is known by: its file's own.
    pub path: String,
    /// What the editor shows.
    pub text: Arc<String>,
    /// Whether the file holds something else.
    pub dirty: bool,
    /// How often the text has changed.
    pub revision: u64,
}

impl Workspace {
    /// Opens the document of a file, or of one that is not there yet. A file that is open already, by whatever name,
    /// stays one document.
    ///
    /// # Errors
    /// Returns why the file cannot be a document here.
    pub fn open_document(&self, path: &str) -> Result<OpenDocument, FilesError> {
        let admitted = self.inner.roots.admit(path, Access::Read)?;
        self.refresh(&admitted)?;
        let mut documents = self.documents();
        let known_by = match documents.find(&admitted) {
            Some(known_by) => {
                documents.open_again(&known_by);
                known_by
            }
            None => {
                let loaded = self.load_document(&admitted)?;
                let kind = loaded.as_ref().map(|loaded| loaded.kind);
                let stat = loaded.as_ref().map(|loaded| loaded.stat);
                let (text, version) = loaded.map(|loaded| (loaded.text, disk::version(&loaded.stat))).unzip();
                let known_by = admitted.canonical().to_owned();
                documents.open(known_by.clone(), Document::new(text, version), stat.as_ref(), kind);
                known_by
            }
        };
        documents
            .get(&known_by)
            .map(|document| show(&known_by, document))
            .ok_or(FilesError::NotOpen(known_by))
    }

    /// Changes the text of an open document, as typing does. An editor's text is exact: its line endings are those that
    /// the file gets.
    ///
    /// The editor says which revision it made the text of. If the engine changed the document since and the editor has
    /// not heard of it, both changes are in what comes back, and an event tells the editor what to change.
    ///
    /// # Errors
    /// Returns [`FilesError::NotOpen`] if it is not open, [`FilesError::Untaken`] if both changed the same lines, or why
    /// the path is none.
    pub fn change_document(
        &self,
        path: &str,
        text: String,
        revision: u64,
    ) -> Result<OpenDocument, FilesError> {
        let admitted = self.inner.roots.admit(path, Access::Read)?;
        let mut documents = self.documents();
        let known_by = documents.find(&admitted).ok_or_else(|| FilesError::NotOpen(path.to_owned()))?;
        // The mark is the format's, as it is when the file is read, and no part of the text.
        let (is_marked, text) = match text.strip_prefix('\u{feff}') {
            Some(rest) => (true, Arc::new(rest.to_owned())),
            None => (false, Arc::new(text)),
        };
        let changed = documents.alter(&known_by, |document| {
            document.change(text.clone(), revision)?;
            Ok(show(&known_by, document))
        });
        let shown = changed
            .ok_or_else(|| FilesError::NotOpen(path.to_owned()))?
            .map_err(|why| FilesError::Untaken { path: path.to_owned(), why })?;
        if is_marked {
            documents.mark(&known_by);
        }
        documents.tell_edited(&known_by, &text);
        Ok(shown)
    }

    /// Saves an open document. If the file was changed beside it, both changes are saved.
    ///
    /// # Errors
    /// Returns why nothing was saved: also if both changes touch the same lines.
    pub fn save_document(&self, path: &str) -> Result<OpenDocument, FilesError> {
        let mut writer = self.writer();
        self.recover_interrupted(&mut writer, &self.inner.roots)?;
        let _lock = writer.journal.lock()?;
        for _ in 0..ATTEMPTS {
            let mut documents = self.documents();
            match self.save_open(&mut writer, &mut documents, &self.inner.roots, path) {
                Ok(saved) => return Ok(saved),
                Err(NotApplied::Raced) => {}
                Err(NotApplied::Failed(error)) => return Err(error),
            }
        }
        Err(FilesError::Unsteady(path.to_owned()))
    }

    /// Saves an open document: it is the user's change, whoever has it saved.
    pub(super) fn save_open(
        &self,
        writer: &mut Writer,
        documents: &mut Documents,
        roots: &Roots,
        path: &str,
    ) -> Result<OpenDocument, NotApplied> {
        let not_open = || FilesError::NotOpen(path.to_owned());
        let admitted = roots.admit(path, Access::Write).map_err(FilesError::from)?;
        let known_by = documents.find(&admitted).ok_or_else(not_open)?;
        let document = documents.get(&known_by).ok_or_else(not_open)?;
        let current = self.load(roots, &admitted)?;
        // A file that is gone is made again as it was.
        let kind = documents.kind(&known_by);
        let mut format = kind.map_or_else(|| documents.new_format(&known_by), |kind| kind.format);
        let mode = kind.map(|kind| kind.mode).filter(|_| current.is_none());
        let mut saved = document.text().clone();
        if let Some(current) = &current {
            let disk = text::decode(current.bytes.clone())
                .map_err(|why| FilesError::NotText { path: path.to_owned(), why })?;
            format = disk.format;
            saved = Arc::new(beside(document, &disk.text).map_err(|why| FilesError::Rejected {
                path: path.to_owned(),
                why: Rejected::DiskDiffers(why),
            })?);
        }
        let bytes = encode(&saved, format, path)?;
        let mut stat = current.as_ref().map(|current| current.stat);
        if current.as_ref().is_none_or(|current| current.bytes != bytes) {
            let new = Some(NewFile { bytes: Bytes::Own(bytes), mode });
            let effect = Effect { admitted, current, new, reverses: Vec::new() };
            let group = Group {
                roots,
                origin: &Origin::default(),
                effects: &[effect],
                at: crate::clock::now(),
                tell: Telling(None),
            };
            let applied = self.apply(writer, &group)?;
            stat = applied.first().and_then(|applied| applied.stat);
        }
        documents.settle(&known_by, &saved, stat.as_ref());
        Ok(documents.get(&known_by).map(|document| show(&known_by, document)).ok_or_else(not_open)?)
    }

    /// Closes a document. Unsaved text goes with it, as it does in an editor that was told so.
    ///
    /// # Errors
    /// Returns [`FilesError::NotOpen`] if it is not open, or why the path is none.
    pub fn close_document(&self, path: &str) -> Result<(), FilesError> {
        let admitted = self.inner.roots.admit(path, Access::Read)?;
        let mut documents = self.documents();
        let known_by = documents.find(&admitted).ok_or_else(|| FilesError::NotOpen(path.to_owned()))?;
        documents.close(&known_by);
        Ok(())
    }

    /// Returns a document, if it is open.
    ///
    /// # Errors
    /// Returns why the path is none.
    pub fn document(&self, path: &str) -> Result<Option<OpenDocument>, FilesError> {
        let admitted = self.inner.roots.admit(path, Access::Read)?;
        self.refresh(&admitted)?;
        let documents = self.documents();
        let known_by = documents.find(&admitted);
        Ok(known_by.and_then(|known_by| documents.get(&known_by).map(|document| show(&known_by, document))))
    }

    /// Tells of every change that the engine makes to an open document from now on. A listener that falls 64 events
    /// behind is dropped; it asks for
    /// [`open_documents`](Workspace::open_documents) anew.
    #[must_use]
    pub fn document_events(&self) -> Receiver<DocumentEvent> {
        self.documents().listen()
    }

    /// Returns the open documents.
    #[must_use]
    pub fn open_documents(&self) -> Vec<OpenDocument> {
        let documents = self.documents();
        let names = documents.names();
        names.iter().filter_map(|name| documents.get(name).map(|document| show(name, document))).collect()
    }

    /// Returns the unsaved texts, by the names of their files.
    #[must_use]
    pub fn unsaved(&self) -> Vec<(String, Arc<String>)> {
        self.documents().unsaved().map(|(path, text)| (path.clone(), text.clone())).collect()
    }

    /// Loads the document of a path anew, if it is open, has no unsaved text, and its file was changed.
    pub(super) fn refresh(&self, admitted: &Admitted) -> Result<(), FilesError> {
        let disk = admitted.found().map(|found| disk::version(&found.stat));
        let known_by = {
            let documents = self.documents();
            let Some(known_by) = documents.find(admitted) else { return Ok(()) };
            if disk.is_none() || truth(documents.get(&known_by), disk) != Truth::Reload {
                return Ok(());
            }
            known_by
        };
        self.reload(&known_by)
    }

    /// Loads a clean document anew whose file was changed.
    pub(super) fn reload(&self, known_by: &str) -> Result<(), FilesError> {
        for _ in 0..ATTEMPTS {
            // Who is behind is not to lead: the file is looked at now, not as it was when it was asked for.
            let admitted = self.inner.roots.admit(known_by, Access::Read)?;
            let Some(loaded) = self.load_document(&admitted)? else { return Ok(()) };
            let mut documents = self.documents();
            // Somebody may have typed meanwhile. A write to an open document is over once its lock is free.
            let Some(document) = documents.get(known_by).filter(|document| !document.is_dirty()) else {
                return Ok(());
            };
            let version = disk::version(&loaded.stat);
            if truth(Some(document), Some(version)) == Truth::Document {
                return Ok(());
            }
            let now = rustix::fs::lstat(known_by).map(|stat| disk::version(&stat));
            if now == Ok(version) {
                documents.settle(known_by, &loaded.text, Some(&loaded.stat));
                return Ok(());
            }
        }
        Ok(())
    }

    fn load_document(&self, admitted: &Admitted) -> Result<Option<Loaded>, FilesError> {
        let Some(current) = self.load(&self.inner.roots, admitted)? else { return Ok(None) };
        let (stat, mode) = (current.stat, current.mode());
        let decoded = text::decode(current.bytes)
            .map_err(|why| FilesError::NotText { path: admitted.asked().to_owned(), why })?;
        let kind = FileKind { format: decoded.format, mode };
        Ok(Some(Loaded { text: Arc::new(decoded.text), stat, kind }))
    }
}

/// A file as a document shows it.
struct Loaded {
    text: Arc<String>,
    stat: Stat,
    kind: FileKind,
}

/// Returns what a document's file should hold, if the file holds something else by now than what was loaded.
pub(super) fn beside(document: &Document, disk: &str) -> Result<String, bowline_state::merge::Conflict> {
    let loaded = document.saved().map_or("", |text| text.as_str());
    if disk == loaded || disk == document.text().as_str() {
        return Ok(document.text().to_string());
    }
    merge(loaded, document.text(), disk).map(|merged| merged.text)
}

fn show(path: &str, document: &Document) -> OpenDocument {
    OpenDocument {
        path: path.to_owned(),
        text: document.text().clone(),
        dirty: document.is_dirty(),
        revision: document.revision(),
    }
}

#[cfg(test)]
mod tests;
