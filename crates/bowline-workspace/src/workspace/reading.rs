//! Reading through the truth: an open document's text, else the disk's.

use std::sync::Arc;

use bowline_state::documents::{Truth, truth};
use bowline_state::ledger::Version;
use bowline_state::lines::{Window, slice};
use bowline_state::paths::{Access, Protection};

use super::Session;
use crate::disk::{self, FileText};
use crate::error::FilesError;
use crate::roots::{Admitted, Denied};
use crate::writers::{self, Purpose};

/// Where a text came from.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Served {
    /// The disk.
    Disk,
    /// An open document.
    Document,
    /// An open document with unsaved text; the file on disk was changed too, since the document was loaded.
    DocumentBesideChangedFile,
}

/// What a read gives.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ReadText {
    /// The text; its lines end as they do in the file.
    pub text: Arc<String>,
    /// The file's own name.
    pub path: String,
    /// Where the text came from.
    pub served: Served,
    /// Whether it is all there is.
    pub whole: bool,
    /// Why the path is protected from reading.
    pub protection: Option<Protection>,
    /// How many names (hard links) the file has: another one may lie outside of the session's directories.
    pub link_count: u64,
}

impl Session {
    /// Reads a file, or some lines of it, and notes what was seen.
    ///
    /// # Errors
    /// Returns why there is no such text for this session.
    pub fn read(&self, path: &str, window: Window) -> Result<ReadText, FilesError> {
        self.read_admitted(&self.admit(path, Access::Read)?, window)
    }

    /// Reads what a path was found to be, by [`Session::admit`].
    ///
    /// # Errors
    /// As [`Session::read`].
    pub fn read_admitted(&self, admitted: &Admitted, window: Window) -> Result<ReadText, FilesError> {
        match self.document_text(admitted)? {
            Some((text, version, served)) => self.read_document(admitted, window, text, version, served),
            None => self.read_disk(admitted, window),
        }
    }

    /// Returns the text of the open document, if it is the truth.
    fn document_text(
        &self,
        admitted: &Admitted,
    ) -> Result<Option<(Arc<String>, Version, Served)>, FilesError> {
        let stat = admitted.found().map(|found| &found.stat);
        let disk = stat.map(disk::version);
        let known_by = {
            let documents = self.workspace.documents();
            let Some(path) = documents.find(admitted) else { return Ok(None) };
            let document = documents.get(&path);
            let text = |served| {
                document.map(|document| {
                    (document.text().clone(), document_version(&path, document.revision()), served)
                })
            };
            match truth(document, disk) {
                Truth::Document => return Ok(text(Served::Document)),
                Truth::DocumentBesideChangedFile => return Ok(text(Served::DocumentBesideChangedFile)),
                Truth::Disk => return Ok(None),
                Truth::Reload => path,
            }
        };
        // A file that is gone is gone, also for a document that shows what it held.
        if disk.is_none() {
            return Ok(None);
        }
        self.workspace.reload(&known_by)?;
        let documents = self.workspace.documents();
        Ok(documents.get(&known_by).map(|document| {
            (document.text().clone(), document_version(&known_by, document.revision()), Served::Document)
        }))
    }

    fn read_document(
        &self,
        admitted: &Admitted,
        window: Window,
        text: Arc<String>,
        version: Version,
        served: Served,
    ) -> Result<ReadText, FilesError> {
        let path = admitted.canonical();
        let part = slice(&text, window)
            .map_err(|why| FilesError::PastEnd { path: admitted.asked().to_owned(), why })?;
        let cap = self.workspace.inner.settings.max_read;
        let whole = part.len() == text.len();
        if part.len() as u64 > cap {
            let path = admitted.asked().to_owned();
            let size = part.len() as u64;
            return Err(if whole {
                FilesError::TooLarge { path, size, cap }
            } else {
                FilesError::WindowTooLarge { path, cap }
            });
        }
        let part = if whole {
            self.with_ledger(|ledger| ledger.saw(path, text.clone(), version));
            text
        } else {
            let start = (part.as_ptr() as usize - text.as_ptr() as usize) as u64;
            let range = start..start + part.len() as u64;
            self.with_ledger(|ledger| ledger.saw_window(path, version, range, text.len() as u64));
            Arc::new(part.to_owned())
        };
        Ok(self.answer(admitted, part, served, whole))
    }

    fn read_disk(&self, admitted: &Admitted, window: Window) -> Result<ReadText, FilesError> {
        let path = admitted.canonical();
        let asked = admitted.asked();
        let opened = match self.roots.open_file(admitted) {
            Err(denied @ Denied::NotFound(_)) => {
                // Who has seen that there is nothing may create it.
                self.with_ledger(|ledger| ledger.saw_nothing(path));
                return Err(denied.into());
            }
            opened => opened?,
        };
        let (file, stat) = opened.map_err(|special| FilesError::special(asked, special))?;
        let _waited = writers::wait(&file, Purpose::Read);
        let stat = rustix::fs::fstat(&file).unwrap_or(stat);
        let cap = self.workspace.inner.settings.max_read;
        let failed = |fault| FilesError::read(asked, fault);
        if window.limit.is_none() && window.line.unwrap_or(1) <= 1 {
            let FileText { text, version } = disk::read_text(&file, cap).map_err(failed)?;
            self.with_ledger(|ledger| ledger.saw(path, text.clone(), version));
            return Ok(self.answer(admitted, text, Served::Disk, true));
        }
        let part = self.workspace.inner.indexes.read_window(&file, &stat, window, cap).map_err(failed)?;
        let whole = (part.range.start, part.range.end) == (0, part.size);
        self.with_ledger(|ledger| {
            if whole {
                ledger.saw(path, part.text.clone(), part.version);
            } else {
                ledger.saw_window(path, part.version, part.range, part.size);
            }
        });
        Ok(self.answer(admitted, part.text, Served::Disk, whole))
    }

    fn answer(&self, admitted: &Admitted, text: Arc<String>, served: Served, whole: bool) -> ReadText {
        let path = admitted.canonical().to_owned();
        let (protection, link_count) = (admitted.protection(), admitted.link_count());
        ReadText { text, path, served, whole, protection, link_count }
    }
}

/// Returns which state of a document's text a look saw.
pub(super) fn document_version(path: &str, revision: u64) -> Version {
    use std::hash::{Hash, Hasher};
    let mut hasher = std::collections::hash_map::DefaultHasher::new();
    ("document", path, revision).hash(&mut hasher);
    Version(hasher.finish())
}
