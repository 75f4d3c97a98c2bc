//! The audit log on disk: appended before an answer is sent, anchored elsewhere, verified by anyone.
//!
//! A log is a directory of files of JSON lines. Its anchor is one small file that lies elsewhere: where the log ends,
//! and where what is kept of it begins. The anchor is also the lock between processes. Each entry is one write to the
//! newest file and one to the anchor; entries that wait for each other are so together. A process that is killed leaves at
//! most the lines of one write not anchored, and the last of them torn. None of them was answered for.
//!
//! The exception are reads that were allowed and nobody had to be waited for ([`AuditLog::append_at_hand`]). They are in the
//! log before they are answered, but the anchor learns of them with the next other entry, of whatever process, with every
//! 64th of them, with [`AuditLog::sync`], and when the log is closed. So a log may end in up to 63 reads that its anchor
//! does not know, and verifies. These, and no others, can be cut off, changed or added to until then, and nobody sees it
//! but the process that wrote them, when it writes the next. A turn ends with an entry, so nothing of it stays open longer.
//!
//! While one process reads and nobody else appends, it keeps the lock from one read to the next, until the anchor learns of
//! them or nothing was appended for a millisecond or two. What others do to the log in between, without asking for the lock,
//! is found with the next entry after that.
//!
//! A log that is found in another state than its anchor says goes on from the anchor, with an entry that tells what was
//! found: what is missing stays missing for whoever verifies, and a crash does not keep the user from working. Entries
//! that were not yet synced may be missing after a power cut, which looks as if they had been cut off.

mod appending;
mod error;
mod found;
mod known;
mod minding;
mod place;
mod reading;
mod waiting;

use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use bowline_state::audit::{Entry, Report};

use appending::Writer;
pub use error::AuditError;
use minding::Minder;
pub use reading::{Entries, Filter, entries, verify};
use waiting::Waiting;

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
    writer: Arc<Mutex<Writer>>,
    waiting: Waiting,
    minder: Minder,
    directory: PathBuf,
    anchor: PathBuf,
}

impl AuditLog {
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
        let writer = Arc::new(Mutex::new(Writer::open(directory, anchor, settings, calls)?));
        let (directory, anchor) = (directory.to_owned(), anchor.to_owned());
        Ok(Self { writer, waiting: Waiting::default(), minder: Minder::default(), directory, anchor })
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
        // One who reads the log is another for the lock.
        self.writer().let_go();
        verify(&self.directory, &self.anchor)
    }

    /// Returns what the log says. See [`entries`].
    ///
    /// # Errors
    /// Fails if the log cannot be read.
    pub fn entries(&self, filter: Filter) -> Result<Entries, AuditError> {
        entries(&self.directory, filter)
    }

    /// Appends an entry and returns its number. It blocks, for microseconds unless [`Sync::Always`] is set.
    ///
    /// # Errors
    /// Fails if the entry is not in the log for certain. Then what it tells of may not be done.
    pub fn append(&self, entry: &Entry) -> Result<u64, AuditError> {
        if let Ok(mut writer) = self.writer.try_lock() {
            return writer.append(entry);
        }
        // Who comes next to the writer appends for all that wait by then.
        let place = self.waiting.add(entry);
        let mut writer = self.writer();
        self.waiting.serve(&place, |entries| writer.append_all(entries))
    }

    /// Appends an entry if nobody has to be waited for; none if somebody has. The anchor may learn of a read later.
    pub fn append_at_hand(&self, entry: &Entry) -> Option<Result<u64, AuditError>> {
        let mut writer = self.writer.try_lock().ok()?;
        let appended = writer.append_at_hand(entry);
        if writer.is_to_be_minded() && !self.minder.mind(&self.writer) {
            writer.let_go();
        }
        appended
    }

    /// Waits until everything that was appended is on the disk.
    ///
    /// # Errors
    /// Fails if the disk says no.
    pub fn sync(&self) -> Result<(), AuditError> {
        // The files are shared, so that nobody has to wait with appending.
        let (log, anchor) = {
            let mut writer = self.writer();
            writer.catch_up()?;
            writer.files()
        };
        for file in [log, anchor] {
            file.sync()?;
        }
        Ok(())
    }

    fn writer(&self) -> MutexGuard<'_, Writer> {
        hold(&self.writer)
    }
}

impl Drop for AuditLog {
    fn drop(&mut self) {
        self.writer().close();
    }
}

fn hold(writer: &Mutex<Writer>) -> MutexGuard<'_, Writer> {
    // A writer that did not come to an end with an entry looks at the disk before the next, so there is nothing that a
    // panic could have left half done.
    writer.lock().unwrap_or_else(PoisonError::into_inner)
}

/// A file that is open, with its name.
type Shared = Arc<place::Opened>;

#[cfg(test)]
mod tests;
