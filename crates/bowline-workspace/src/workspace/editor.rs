//! The editor's interface to a workspace: opening, changing, saving and closing documents, and sharing diagnostics.

use std::sync::mpsc::Receiver;
use std::sync::{Arc, MutexGuard, PoisonError};

use bowline_history::changes::ChangeOrigin;
use bowline_history::documents::{Document, DocumentTextSource, resolve_text_source};
use bowline_history::ledger::WriteRejectedError;
use bowline_policy::paths::Access;
use bowline_protocol::diagnostics::{Diagnostic, FileDiagnostics};
use bowline_text::merge::merge;
use bowline_text::text;
use rustix::fs::Stat;

use super::apply::{ApplyError, ChangeGroup, FileBytes, NewFile, PlannedChange, apply_changes, read_current};
use super::diagnostics::SharedDiagnostics;
use super::documents::{DocumentEvent, Documents, FileAttributes};
use super::recover::recover_interrupted;
use super::write::encode_text;
use super::{Workspace, WorkspaceWriter};
use crate::disk;
use crate::error::FilesError;
use crate::roots::{AdmittedPath, Roots};

/// How many times saving is attempted while the file keeps changing.
const MAX_ATTEMPTS: usize = 8;

/// The state of an open document.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct OpenDocument {
    /// The file's canonical path, which identifies the document.
    pub path: String,
    /// The text in the editor.
    pub text: Arc<String>,
    /// Whether the file's text differs.
    pub is_dirty: bool,
    /// How many times the text has changed.
    pub revision: u64,
}

impl Workspace {
    /// Opens the document of a file, which need not exist yet. A file that is already open, under any of its names,
    /// remains one document.
    ///
    /// # Errors
    /// Returns why the file cannot be opened as a document.
    pub fn open_document(&self, path: &str) -> Result<OpenDocument, FilesError> {
        let admitted = self.inner.roots.admit(path, Access::Read)?;
        self.refresh_document(&admitted)?;
        let mut documents = self.documents();
        let known_by = match documents.find(&admitted) {
            Some(known_by) => {
                documents.increment_open_count(&known_by);
                known_by
            }
            None => {
                let loaded = self.load_document(&admitted)?;
                let kind = loaded.as_ref().map(|loaded| loaded.attributes);
                let stat = loaded.as_ref().map(|loaded| loaded.stat);
                let (text, version) =
                    loaded.map(|loaded| (loaded.text, disk::file_version(&loaded.stat))).unzip();
                let known_by = admitted.canonical().to_owned();
                documents.open(known_by.clone(), Document::new(text, version), stat.as_ref(), kind);
                known_by
            }
        };
        documents
            .get(&known_by)
            .map(|document| to_open_document(&known_by, document))
            .ok_or(FilesError::NotOpen(known_by))
    }

    /// Changes the text of an open document, as typing does. An editor's text is taken exactly, including its line
    /// endings.
    ///
    /// `revision` is the revision on which the editor based its text. If the engine has changed the document since, the
    /// result contains both changes, and an event reports the necessary edits to the editor.
    ///
    /// # Errors
    /// Returns [`FilesError::NotOpen`] if the document is not open, [`FilesError::EditRejected`] if both sides changed
    /// the same lines, or why the path is not accessible.
    pub fn change_document(
        &self,
        path: &str,
        text: String,
        revision: u64,
    ) -> Result<OpenDocument, FilesError> {
        let admitted = self.inner.roots.admit(path, Access::Read)?;
        let mut documents = self.documents();
        let known_by = documents.find(&admitted).ok_or_else(|| FilesError::NotOpen(path.to_owned()))?;
        // The byte order mark belongs to the format, as when the file is read, not to the text.
        let (is_marked, text) = match text.strip_prefix('\u{feff}') {
            Some(rest) => (true, Arc::new(rest.to_owned())),
            None => (false, Arc::new(text)),
        };
        let changed = documents.update(&known_by, |document| {
            document.apply_change(text.clone(), revision)?;
            Ok(to_open_document(&known_by, document))
        });
        let shown = changed
            .ok_or_else(|| FilesError::NotOpen(path.to_owned()))?
            .map_err(|why| FilesError::EditRejected { path: path.to_owned(), why })?;
        if is_marked {
            documents.mark_bom(&known_by);
        }
        documents.notify_edited(&known_by, &text);
        Ok(shown)
    }

    /// Saves an open document. If the file changed independently, both changes are saved.
    ///
    /// # Errors
    /// Returns why nothing was saved, including when both changes touch the same lines.
    pub fn save_document(&self, path: &str) -> Result<OpenDocument, FilesError> {
        let mut writer = self.writer();
        recover_interrupted(self, &mut writer, &self.inner.roots)?;
        let _lock = writer.journal.lock()?;
        for _ in 0..MAX_ATTEMPTS {
            let mut documents = self.documents();
            match self.save_locked_document(&mut writer, &mut documents, &self.inner.roots, path) {
                Ok(saved) => return Ok(saved),
                Err(ApplyError::Raced(_)) => {}
                Err(ApplyError::Failed(error)) => return Err(error),
            }
        }
        Err(FilesError::KeepsChanging(path.to_owned()))
    }

    /// Saves an open document as the user's change, regardless of who triggered the save.
    pub(super) fn save_locked_document(
        &self,
        writer: &mut WorkspaceWriter,
        documents: &mut Documents,
        roots: &Roots,
        path: &str,
    ) -> Result<OpenDocument, ApplyError> {
        let not_open = || FilesError::NotOpen(path.to_owned());
        let admitted = roots.admit(path, Access::Write).map_err(FilesError::from)?;
        let known_by = documents.find(&admitted).ok_or_else(not_open)?;
        let document = documents.get(&known_by).ok_or_else(not_open)?;
        let current = read_current(self, roots, &admitted)?;
        // A deleted file is recreated as it was.
        let kind = documents.file_attributes(&known_by);
        let mut format = kind.map_or_else(|| documents.new_format(&known_by), |kind| kind.format);
        let mode = kind.map(|kind| kind.mode).filter(|_| current.is_none());
        let mut saved = document.text().clone();
        if let Some(current) = &current {
            let disk = text::decode(current.bytes.clone())
                .map_err(|why| FilesError::NotText { path: path.to_owned(), why })?;
            format = disk.format;
            saved =
                Arc::new(merge_with_disk(document, &disk.text).map_err(|why| FilesError::WriteRejected {
                    path: path.to_owned(),
                    why: WriteRejectedError::DiskConflict(why),
                })?);
        }
        let bytes = encode_text(&saved, format, path)?;
        let mut stat = current.as_ref().map(|current| current.stat);
        if current.as_ref().is_none_or(|current| current.bytes != bytes) {
            let new = Some(NewFile { bytes: FileBytes::Owned(bytes), mode });
            let change = PlannedChange::replace(admitted, current, new);
            let origin = ChangeOrigin::default();
            let group = ChangeGroup::single(roots, &origin, &change);
            let applied = apply_changes(self, writer, &group)?;
            stat = applied.first().and_then(|applied| applied.stat);
        }
        documents.show_saved_text(&known_by, &saved, stat.as_ref());
        Ok(documents
            .get(&known_by)
            .map(|document| to_open_document(&known_by, document))
            .ok_or_else(not_open)?)
    }

    /// Closes a document. Unsaved text is discarded.
    ///
    /// # Errors
    /// Returns [`FilesError::NotOpen`] if the document is not open, or why the path is not accessible.
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
    /// Returns why the path is not accessible.
    pub fn document(&self, path: &str) -> Result<Option<OpenDocument>, FilesError> {
        let admitted = self.inner.roots.admit(path, Access::Read)?;
        self.refresh_document(&admitted)?;
        let documents = self.documents();
        let known_by = documents.find(&admitted);
        Ok(known_by.and_then(|known_by| {
            documents.get(&known_by).map(|document| to_open_document(&known_by, document))
        }))
    }

    /// Subscribes to the changes that the engine makes to open documents from now on. A listener that falls 64 events
    /// behind is dropped; it should query [`open_documents`](Workspace::open_documents) again.
    #[must_use]
    pub fn document_events(&self) -> Receiver<DocumentEvent> {
        self.documents().subscribe()
    }

    /// Returns the open documents.
    #[must_use]
    pub fn open_documents(&self) -> Vec<OpenDocument> {
        let documents = self.documents();
        let names = documents.paths();
        names
            .iter()
            .filter_map(|name| documents.get(name).map(|document| to_open_document(name, document)))
            .collect()
    }

    /// Returns the unsaved texts, by the paths of their files.
    #[must_use]
    pub fn unsaved_texts(&self) -> Vec<(String, Arc<String>)> {
        self.documents().unsaved_texts().map(|(path, text)| (path.clone(), text.clone())).collect()
    }

    /// Replaces the diagnostics of a file with those that an editor reports. They are stored under the file's canonical
    /// path, which is returned.
    ///
    /// # Errors
    /// Returns why the path is not in this workspace.
    pub fn share_diagnostics(&self, path: &str, diagnostics: Vec<Diagnostic>) -> Result<String, FilesError> {
        let admitted = self.inner.roots.admit(path, Access::Read)?;
        let own = admitted.canonical().to_owned();
        self.lock_diagnostics().replace_file(&own, diagnostics, &self.inner.notifier);
        Ok(own)
    }

    /// Returns all diagnostics, by file.
    #[must_use]
    pub fn diagnostics(&self) -> Vec<(String, FileDiagnostics)> {
        let shared = self.lock_diagnostics();
        shared.iter().map(|(path, of_file)| (path.clone(), of_file.clone())).collect()
    }

    /// Reloads the document at a path, if it is open, has no unsaved text, and its file changed.
    pub(super) fn refresh_document(&self, admitted: &AdmittedPath) -> Result<(), FilesError> {
        let disk = admitted.target().map(|found| disk::file_version(&found.stat));
        let known_by = {
            let documents = self.documents();
            let Some(known_by) = documents.find(admitted) else { return Ok(()) };
            if disk.is_none()
                || resolve_text_source(documents.get(&known_by), disk) != DocumentTextSource::Reload
            {
                return Ok(());
            }
            known_by
        };
        self.reload_document(&known_by)
    }

    /// Reloads a clean document whose file changed.
    pub(super) fn reload_document(&self, known_by: &str) -> Result<(), FilesError> {
        for _ in 0..MAX_ATTEMPTS {
            // The file is checked as it is now, not as it was when requested: stale content must not win.
            let admitted = self.inner.roots.admit(known_by, Access::Read)?;
            let Some(loaded) = self.load_document(&admitted)? else { return Ok(()) };
            let mut documents = self.documents();
            // The user may have typed in the meantime. A write to an open document is complete once the lock is free.
            let Some(document) = documents.get(known_by).filter(|document| !document.is_dirty()) else {
                return Ok(());
            };
            let version = disk::file_version(&loaded.stat);
            if resolve_text_source(Some(document), Some(version)) == DocumentTextSource::Document {
                return Ok(());
            }
            let now = rustix::fs::lstat(known_by).map(|stat| disk::file_version(&stat));
            if now == Ok(version) {
                documents.show_saved_text(known_by, &loaded.text, Some(&loaded.stat));
                return Ok(());
            }
        }
        Ok(())
    }

    fn load_document(&self, admitted: &AdmittedPath) -> Result<Option<LoadedDocument>, FilesError> {
        let Some(current) = read_current(self, &self.inner.roots, admitted)? else { return Ok(None) };
        let (stat, mode) = (current.stat, current.mode());
        let decoded = text::decode(current.bytes)
            .map_err(|why| FilesError::NotText { path: admitted.requested_path().to_owned(), why })?;
        let kind = FileAttributes { format: decoded.format, mode };
        Ok(Some(LoadedDocument { text: Arc::new(decoded.text), stat, attributes: kind }))
    }

    /// Marks the diagnostics of changed files as outdated.
    pub(super) fn mark_diagnostics_stale<'p>(&self, paths: impl IntoIterator<Item = &'p str>) {
        self.lock_diagnostics().mark_stale(paths, &self.inner.notifier);
    }

    fn lock_diagnostics(&self) -> MutexGuard<'_, SharedDiagnostics> {
        self.inner.diagnostics.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A file loaded as a document.
struct LoadedDocument {
    text: Arc<String>,
    stat: Stat,
    attributes: FileAttributes,
}

/// Returns the text to save for a document, merged with the file if the file differs from what was loaded.
pub(super) fn merge_with_disk(
    document: &Document,
    disk: &str,
) -> Result<String, bowline_text::merge::MergeConflict> {
    let loaded = document.saved_text().map_or("", |text| text.as_str());
    if disk == loaded || disk == document.text().as_str() {
        return Ok(document.text().to_string());
    }
    merge(loaded, document.text(), disk)
}

fn to_open_document(path: &str, document: &Document) -> OpenDocument {
    OpenDocument {
        path: path.to_owned(),
        text: document.text().clone(),
        is_dirty: document.is_dirty(),
        revision: document.revision(),
    }
}

#[cfg(test)]
mod tests;
