//! The audit log on disk: appended before an answer is sent, anchored elsewhere, verified by anyone.
//!
//! A log is a directory of files of JSON lines. Its anchor is one small file that lies elsewhere: where the log ends,
//! and where what is kept of it begins. The anchor is also the lock between processes. Each entry is one write to the
//! newest file and one to the anchor. Entries that come at the same time are written together (`owner.rs`), and none is
//! answered for before the anchor knows it. A process that is killed leaves at most the lines of one
//! write not anchored, and the last of them torn. None of them was answered for.
//!
//! A log that is found in another state than its anchor says goes on from the anchor, with an entry that tells what was
//! found: what is missing stays missing for whoever verifies, and a crash does not keep the user from working. Entries
//! that were not yet synced may be missing after a power cut, which looks as if they had been cut off.

mod error;
mod found;
mod owner;
mod place;
mod reading;
mod writer;

use std::path::{Path, PathBuf};
use std::sync::Arc;

use bowline_state::audit::{Entry, Report};

pub use error::AuditError;
use owner::Owner;
pub use owner::Pending;
pub use reading::{Entries, Filter, entries, verify};
use writer::Writer;

use crate::calls::Calls;

/// How a log is kept.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Settings {
    /// A file that would become longer is followed by a new one.
    pub max_file_bytes: u64,
    /// So many files are kept; at least two.
    pub max_files: usize,
    /// When entries are on the disk.
    pub sync: Sync,
}

impl Default for Settings {
    fn default() -> Self {
        Self { max_file_bytes: 16 << 20, max_files: 8, sync: Sync::AtTurnEnd }
    }
}

/// When entries are on the disk and outlast a power cut. They outlast a crash of the process as soon as they are
/// appended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Sync {
    /// When [`AuditLog::sync`] is called.
    AtTurnEnd,
    /// When they are appended.
    Always,
}

/// An audit log that is open for appending. Several threads and processes may append to one.
#[derive(Debug)]
pub struct AuditLog {
    owner: Owner,
    directory: PathBuf,
    anchor: PathBuf,
}

impl AuditLog {
    /// Returns where the audit log of a workspace is, and its anchor, given the workspace's directory for state and the user's
    /// directory for anchors.
    #[must_use]
    pub fn locate(workspace: &Path, anchors: &Path) -> (PathBuf, PathBuf) {
        (workspace.join("audit"), anchors.join(workspace.file_name().unwrap_or_default()))
    }

    /// Opens the log in a directory that is its own, or begins one. Directory and anchor are made private.
    ///
    /// The directory itself may not be a link, nor any file in it, nor the anchor; links on the way there are followed.
    ///
    /// # Errors
    /// Fails if the directory or the anchor cannot be made, read and written, or if another process holds the anchor.
    pub fn open(directory: &Path, anchor: &Path, settings: Settings) -> Result<Self, AuditError> {
        Self::open_with(directory, anchor, settings, Calls::default())
    }

    /// As [`AuditLog::open`], with a gate before every call that changes the disk.
    ///
    /// # Errors
    /// Fails as [`AuditLog::open`] does.
    pub fn open_with(
        directory: &Path,
        anchor: &Path,
        settings: Settings,
        calls: Calls,
    ) -> Result<Self, AuditError> {
        let writer = Writer::open(directory, anchor, settings, calls)?;
        let (directory, anchor) = (directory.to_owned(), anchor.to_owned());
        let owner = Owner::start(writer, directory.clone())
            .map_err(error::io_error("start a thread for", &directory))?;
        Ok(Self { owner, directory, anchor })
    }

    /// Returns where the log lies, and where its anchor does.
    #[must_use]
    pub fn places(&self) -> (&Path, &Path) {
        (&self.directory, &self.anchor)
    }

    /// Says whether the log is as it was written. See [`verify`].
    ///
    /// # Errors
    /// Fails if the log cannot be read.
    pub fn verify(&self) -> Result<Report, AuditError> {
        verify(&self.directory, &self.anchor)
    }

    /// Returns what the log says. See [`entries`].
    ///
    /// # Errors
    /// Fails if the log cannot be read.
    pub fn entries(&self, filter: Filter) -> Result<Entries, AuditError> {
        entries(&self.directory, filter)
    }

    /// Appends an entry and returns its number. It blocks until the log and its anchor have it: for microseconds, unless
    /// [`Sync::Always`] is set.
    ///
    /// # Errors
    /// Fails if the entry is not in the log for certain. Then what it tells of may not be done.
    pub fn append(&self, entry: &Entry) -> Result<u64, AuditError> {
        self.owner.append(entry)
    }

    /// As [`AuditLog::append`], for a task that waits: it blocks only if nothing else is being appended, and then as long.
    pub fn submit(&self, entry: Entry) -> Pending {
        self.owner.submit(entry)
    }

    /// Waits until everything that was appended is on the disk.
    ///
    /// # Errors
    /// Fails if the disk says no.
    pub fn sync(&self) -> Result<(), AuditError> {
        // The files are shared, so that nobody has to wait with appending.
        let (log, anchor) = self.owner.files();
        log.sync()?;
        anchor.sync()
    }
}

/// A file that is open, with its name.
type Shared = Arc<place::Opened>;

#[cfg(test)]
mod tests;
