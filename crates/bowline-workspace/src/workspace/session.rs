//! A session's view of a workspace: reading, listing, searching, and working directories for commands. Its writes are
//! in `write.rs`, its undo is in `undo.rs`.
//!
//! The unsaved text of an open document takes the place of its file. A clean document whose file changed is reloaded. A
//! document is found by its file's canonical path, or by its inode if the file has several hard links.

use std::os::fd::OwnedFd;
use std::sync::{Arc, PoisonError};

use bowline_history::changes::ChangeOrigin;
use bowline_history::documents::{Document, DocumentTextSource, resolve_text_source};
use bowline_history::ledger::{Ledger, TextVersion};
use bowline_policy::paths::{Access, path_below};
use bowline_protocol::file_extension::operations::{ListOperation, ReadOperation};
use bowline_protocol::file_extension::{
    FileError, ListDirectoryResponse, ReadFileResponse, StatFileResponse,
};
use bowline_text::lines::{LineWindow, slice_lines};
use rustix::fs::fstat;

use super::{Workspace, file_extension};
use crate::disk::writers::{self, WaitPurpose};
use crate::disk::{self, FileText};
use crate::error::FilesError;
use crate::list::{self, ListEntry, ListOptions, Listing};
use crate::roots::{AdmitError, AdmittedPath, Roots};
use crate::search::{self, SearchQuery, SearchResult, UnsavedTexts};
use crate::walker::EntryKind;

/// The largest file that is read without a thread: copying more takes longer than handing it over.
const MAX_TRY_READ_BYTES: u64 = 128 << 10;

/// A session's view of a workspace. Its roots may differ from the workspace's own.
#[derive(Debug, Clone)]
pub struct WorkspaceSession {
    pub(super) workspace: Workspace,
    pub(super) id: Arc<str>,
    pub(super) roots: Roots,
}

/// The source of a text.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum TextSource {
    /// The disk.
    Disk,
    /// An open document.
    Document,
    /// An open document with unsaved text, whose file also changed on disk since it was loaded.
    DirtyDocumentOverChangedFile,
}

/// The result of a read.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ReadText {
    /// The text, with the file's own line endings.
    pub text: Arc<String>,
    /// The file's canonical path.
    pub path: String,
    /// Where the text came from.
    pub source: TextSource,
    /// Whether it is the whole text.
    pub is_whole: bool,
    /// How many hard links the file has: others may lie outside of the session's directories.
    pub link_count: u64,
}

/// A directory for a command to work in.
#[derive(Debug)]
pub struct WorkingDirectory {
    /// The canonical path.
    pub path: String,
    /// An open handle: the path may lead elsewhere by the time the command starts.
    pub handle: OwnedFd,
}

impl WorkspaceSession {
    /// Returns the session's id.
    #[must_use]
    pub fn id(&self) -> &str {
        &self.id
    }

    /// Returns the session's roots.
    #[must_use]
    pub fn roots(&self) -> &Roots {
        &self.roots
    }

    /// Returns the workspace.
    #[must_use]
    pub fn workspace(&self) -> &Workspace {
        &self.workspace
    }

    /// Resolves a path, so that an access can be judged before anything is done.
    ///
    /// # Errors
    /// Returns why the path is not accessible to this session.
    pub fn admit(&self, path: &str, access: Access) -> Result<AdmittedPath, FilesError> {
        Ok(self.roots.admit(path, access)?)
    }

    /// Ends the session and forgets its ledger. The journal keeps the session's changes, within its limits.
    pub fn end(&self) {
        self.workspace.inner.live_sessions.mark_ended(&self.id);
        let mut ledgers = self.workspace.inner.ledgers.lock().unwrap_or_else(PoisonError::into_inner);
        ledgers.remove(&*self.id);
    }

    /// Returns the origin for a change made in this session.
    #[must_use]
    pub fn origin(&self, turn: Option<u64>, call: Option<&str>) -> ChangeOrigin {
        ChangeOrigin {
            session: Some(self.id.to_string()),
            turn,
            call: call.map(str::to_owned),
            command: None,
        }
    }

    /// Reads a file, or some of its lines, and records what the session has seen.
    ///
    /// # Errors
    /// Returns why the text is not accessible to this session.
    pub fn read(&self, path: &str, window: LineWindow) -> Result<ReadText, FilesError> {
        self.read_admitted(&self.admit(path, Access::Read)?, window)
    }

    /// Reads a path resolved by [`WorkspaceSession::admit`].
    ///
    /// # Errors
    /// As [`WorkspaceSession::read`].
    pub fn read_admitted(&self, admitted: &AdmittedPath, window: LineWindow) -> Result<ReadText, FilesError> {
        match self.document_text(admitted)? {
            Some((text, version, served)) => self.read_document(admitted, window, text, version, served),
            None => self.read_disk(admitted, window),
        }
    }

    /// Resolves a path for reading like [`WorkspaceSession::admit`], if that needs no disk access.
    #[must_use]
    pub fn try_admit(&self, path: &str) -> Option<AdmittedPath> {
        self.roots.try_admit(path)
    }

    /// Reads a whole file like [`WorkspaceSession::read_admitted`], if that does not wait: the file is small and cached,
    /// no program is writing it, and no document is open for it. `None` says nothing about the file.
    #[must_use]
    pub fn try_read_admitted(&self, admitted: &AdmittedPath) -> Option<ReadText> {
        if self.workspace.inner.documents.try_lock().ok()?.find(admitted).is_some() {
            return None;
        }
        let file = self.roots.open_file_only(admitted).ok()?.ok()?;
        let cap = self.workspace.inner.options.max_read_bytes.min(MAX_TRY_READ_BYTES);
        let FileText { text, version } = disk::try_read_text(file, cap)?;
        self.with_ledger(|ledger| ledger.record_read(admitted.canonical(), text.clone(), version));
        Some(self.build_read_text(admitted, text, TextSource::Disk, true))
    }

    /// Returns whether the directory's path still leads to it without links, that is, whether it was neither moved nor
    /// replaced.
    #[must_use]
    pub fn is_current_directory(&self, directory: &WorkingDirectory) -> bool {
        let same = |now: &WorkingDirectory| {
            let (Ok(one), Ok(other)) = (fstat(&now.handle), fstat(&directory.handle)) else { return false };
            (one.st_dev, one.st_ino) == (other.st_dev, other.st_ino) && now.path == directory.path
        };
        self.working_directory(&directory.path).is_ok_and(|now| same(&now))
    }

    /// Opens a directory for a command to work in.
    ///
    /// # Errors
    /// Returns why the directory is not accessible to this session.
    pub fn working_directory(&self, path: &str) -> Result<WorkingDirectory, FilesError> {
        let admitted = self.roots.admit(path, Access::Read)?;
        let handle = self.roots.open_directory(&admitted)?;
        Ok(WorkingDirectory { path: admitted.canonical().to_owned(), handle })
    }

    /// Lists a directory. A document with unsaved text is listed as the file that saving it would create.
    ///
    /// # Errors
    /// Returns why the directory is not accessible to this session.
    pub fn list(&self, path: &str, options: &ListOptions) -> Result<Listing, FilesError> {
        let directory = self.roots.admit(path, Access::Read)?;
        let mut listing = list::list(&self.roots, &directory, options)?;
        for (document, text) in self.workspace.unsaved_texts() {
            let way = path_below(&document, directory.canonical()).filter(|way| !way.is_empty());
            let Some(way) = way.filter(|way| way.split('/').count() <= options.depth.max(1)) else {
                continue;
            };
            let place = listing.entries.partition_point(|entry| entry.path.split('/').lt(way.split('/')));
            if let Some(entry) = listing.entries.get_mut(place).filter(|entry| entry.path == way) {
                entry.size = text.len() as u64;
                continue;
            }
            // A file that ignore rules hide, or that lies in another root, is not listed either.
            if self.roots.admit(&document, Access::Read).is_ok_and(|found| !found.exists()) {
                let entry = ListEntry {
                    path: way.to_owned(),
                    kind: EntryKind::File,
                    size: text.len() as u64,
                    mtime_ns: 0,
                };
                listing.entries.insert(place, entry);
            }
        }
        Ok(listing)
    }

    /// Searches the files of the session's roots, or those below one directory, including unsaved texts.
    ///
    /// # Errors
    /// Returns what is wrong with the query, or why the directory is not accessible to this session.
    pub fn search(&self, query: &SearchQuery, below: Option<&str>) -> Result<SearchResult, FilesError> {
        self.roots.verify()?;
        let under = below.map(|path| self.roots.admit(path, Access::Read)).transpose()?;
        let unsaved: UnsavedTexts = self.workspace.unsaved_texts().into_iter().collect();
        Ok(search::search(&self.roots, query, under.as_ref(), &unsaved)?)
    }

    /// Lists a page of a directory.
    ///
    /// # Errors
    /// Returns why the directory is not accessible to this session.
    pub fn list_page(&self, operation: &ListOperation) -> Result<ListDirectoryResponse, FileError> {
        file_extension::list_page(self, operation)
    }

    /// Describes a path resolved by [`WorkspaceSession::admit`].
    ///
    /// # Errors
    /// Returns an error if nothing exists there, or if its content cannot be read.
    pub fn stat_admitted(&self, admitted: &AdmittedPath) -> Result<StatFileResponse, FileError> {
        file_extension::stat_admitted(self, admitted)
    }

    /// Describes a symbolic link instead of its target; `None` if the path is not a link. Links on the way are followed.
    ///
    /// # Errors
    /// Returns why the directory of the link cannot be read.
    pub fn stat_symlink(&self, path: &str) -> Result<Option<StatFileResponse>, FileError> {
        file_extension::stat_symlink(self, path)
    }

    /// Reads a range of the text or of the bytes of an admitted file, and records what the session has seen.
    ///
    /// # Errors
    /// Returns why the file cannot be read, or that the range starts past its end.
    pub fn read_range(
        &self,
        admitted: &AdmittedPath,
        operation: &ReadOperation,
    ) -> Result<ReadFileResponse, FileError> {
        file_extension::read_range(self, admitted, operation)
    }

    /// Returns whether an open document has text that its file lacks.
    pub(super) fn has_unsaved_text(&self, admitted: &AdmittedPath) -> bool {
        let documents = self.workspace.documents();
        let document = documents.find(admitted).and_then(|path| documents.get(&path));
        document.is_some_and(Document::is_dirty)
    }

    /// Returns the text of the open document, if it takes precedence over the file.
    pub(super) fn document_text(
        &self,
        admitted: &AdmittedPath,
    ) -> Result<Option<(Arc<String>, TextVersion, TextSource)>, FilesError> {
        let stat = admitted.target().map(|found| &found.stat);
        let disk = stat.map(disk::file_version);
        let known_by = {
            let documents = self.workspace.documents();
            let Some(path) = documents.find(admitted) else { return Ok(None) };
            let document = documents.get(&path);
            let text = |served| {
                document.map(|document| {
                    (document.text().clone(), document_version(&path, document.revision()), served)
                })
            };
            match resolve_text_source(document, disk) {
                DocumentTextSource::Document => return Ok(text(TextSource::Document)),
                DocumentTextSource::DirtyDocumentOverChangedFile => {
                    return Ok(text(TextSource::DirtyDocumentOverChangedFile));
                }
                DocumentTextSource::Disk => return Ok(None),
                DocumentTextSource::Reload => path,
            }
        };
        // A deleted file is not readable, even if a document still shows its text.
        if disk.is_none() {
            return Ok(None);
        }
        self.workspace.reload_document(&known_by)?;
        let documents = self.workspace.documents();
        Ok(documents.get(&known_by).map(|document| {
            (document.text().clone(), document_version(&known_by, document.revision()), TextSource::Document)
        }))
    }

    fn read_document(
        &self,
        admitted: &AdmittedPath,
        window: LineWindow,
        text: Arc<String>,
        version: TextVersion,
        served: TextSource,
    ) -> Result<ReadText, FilesError> {
        let path = admitted.canonical();
        let part = slice_lines(&text, window)
            .map_err(|why| FilesError::PastEnd { path: admitted.requested_path().to_owned(), why })?;
        let cap = self.workspace.inner.options.max_read_bytes;
        let whole = part.len() == text.len();
        if part.len() as u64 > cap {
            let path = admitted.requested_path().to_owned();
            let size = part.len() as u64;
            return Err(if whole {
                FilesError::TooLarge { path, size, cap }
            } else {
                FilesError::WindowTooLarge { path, cap }
            });
        }
        let part = if whole {
            self.with_ledger(|ledger| ledger.record_read(path, text.clone(), version));
            text
        } else {
            let start = (part.as_ptr() as usize - text.as_ptr() as usize) as u64;
            let range = start..start + part.len() as u64;
            self.with_ledger(|ledger| ledger.record_window_read(path, version, range, text.len() as u64));
            Arc::new(part.to_owned())
        };
        Ok(self.build_read_text(admitted, part, served, whole))
    }

    fn read_disk(&self, admitted: &AdmittedPath, window: LineWindow) -> Result<ReadText, FilesError> {
        let path = admitted.canonical();
        let asked = admitted.requested_path();
        let opened = match self.roots.open_file(admitted) {
            Err(denied @ AdmitError::NotFound(_)) => {
                // A session that has seen that the file is absent may create it.
                self.with_ledger(|ledger| ledger.record_absent(path));
                return Err(denied.into());
            }
            opened => opened?,
        };
        let (file, stat) = opened.map_err(|special| FilesError::from_special(asked, special))?;
        let _waited = writers::wait_for_writers(&file, WaitPurpose::Read);
        let stat = fstat(&file).unwrap_or(stat);
        let cap = self.workspace.inner.options.max_read_bytes;
        let failed = |fault| FilesError::from_read_error(asked, fault);
        if window.limit.is_none() && window.line.unwrap_or(1) <= 1 {
            let FileText { text, version } = disk::read_text(&file, cap).map_err(failed)?;
            self.with_ledger(|ledger| ledger.record_read(path, text.clone(), version));
            return Ok(self.build_read_text(admitted, text, TextSource::Disk, true));
        }
        let part =
            self.workspace.inner.line_indexes.read_window(&file, &stat, window, cap).map_err(failed)?;
        let whole = (part.range.start, part.range.end) == (0, part.size);
        self.with_ledger(|ledger| {
            if whole {
                ledger.record_read(path, part.text.clone(), part.version);
            } else {
                ledger.record_window_read(path, part.version, part.range, part.size);
            }
        });
        Ok(self.build_read_text(admitted, part.text, TextSource::Disk, whole))
    }

    fn build_read_text(
        &self,
        admitted: &AdmittedPath,
        text: Arc<String>,
        served: TextSource,
        whole: bool,
    ) -> ReadText {
        let path = admitted.canonical().to_owned();
        let link_count = admitted.link_count();
        ReadText { text, path, source: served, is_whole: whole, link_count }
    }

    pub(super) fn with_ledger<T>(&self, act: impl FnOnce(&mut Ledger) -> T) -> T {
        self.workspace.with_ledger(&self.id, act)
    }
}

/// Identifies a state of a document's text.
pub(super) fn document_version(path: &str, revision: u64) -> TextVersion {
    use std::hash::{Hash, Hasher};
    let mut hasher = std::collections::hash_map::DefaultHasher::new();
    ("document", path, revision).hash(&mut hasher);
    TextVersion(hasher.finish())
}

#[cfg(test)]
mod tests;
