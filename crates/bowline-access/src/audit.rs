//! The audit log on disk: appended before a reply is sent, anchored elsewhere, verifiable by anyone.
//!
//! A log is a directory of files of JSON lines. Its anchor is one small file stored elsewhere, which records where the
//! log ends and where its retained part begins. The anchor is also the lock between processes. Each entry is one write
//! to the newest file and one to the anchor. Concurrent entries are written together (`shared_writer.rs`), and none is
//! acknowledged before the anchor covers it. A killed process leaves at most the lines of one write unanchored, the
//! last of them possibly torn. None of them was acknowledged.
//!
//! If a log does not match its anchor, the writer continues from the anchor and appends an entry that describes the
//! discrepancy: missing entries stay missing for verification, and a crash does not keep the user from working.
//! Unsynced entries may be lost in a power cut, which is indistinguishable from truncation.

mod discrepancy;
mod error;
mod log_file;
mod read;
mod shared_writer;
mod writer;

use std::path::{Path, PathBuf};
use std::sync::Arc;

use bowline_policy::audit::{AuditEntry, VerificationReport};

pub use error::AuditError;
pub use read::{AuditEntries, AuditFilter, read_entries, verify};
pub use shared_writer::PendingAppend;
use shared_writer::{MAX_DIRECT_WRITE, SharedWriter};
use writer::AuditWriter;

use bowline_storage::disk_calls::DiskCalls;

/// The options of a log.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct AuditOptions {
    /// The maximum size of a file; an entry that would exceed it starts a new one.
    pub max_file_bytes: u64,
    /// The maximum number of files kept; at least two.
    pub max_files: usize,
}

impl Default for AuditOptions {
    fn default() -> Self {
        Self { max_file_bytes: 16 << 20, max_files: 8 }
    }
}

/// An audit log open for appending. Several threads and processes may append to the same log.
#[derive(Debug)]
pub struct AuditLog {
    writer: Arc<SharedWriter>,
    directory: PathBuf,
    anchor: PathBuf,
    principal: Option<String>,
}

impl AuditLog {
    /// Returns the paths of a workspace's audit log and of its anchor, given the workspace's state directory and the
    /// user's anchor directory.
    #[must_use]
    pub fn locate(workspace: &Path, anchors: &Path) -> (PathBuf, PathBuf) {
        (workspace.join("audit"), anchors.join(workspace.file_name().unwrap_or_default()))
    }

    /// Opens the log in its own directory, or creates it. Directory and anchor are made private.
    ///
    /// Neither the directory, nor a file in it, nor the anchor may be a symbolic link; links in their parent paths are
    /// followed.
    ///
    /// # Errors
    /// Fails if the directory or the anchor cannot be created, read and written, or if another process holds the
    /// anchor.
    pub fn open(directory: &Path, anchor: &Path, settings: AuditOptions) -> Result<Self, AuditError> {
        Self::open_with(directory, anchor, settings, DiskCalls::default())
    }

    /// Like [`AuditLog::open`], with a check before every call that changes the disk.
    ///
    /// # Errors
    /// Fails as [`AuditLog::open`] does.
    pub fn open_with(
        directory: &Path,
        anchor: &Path,
        settings: AuditOptions,
        calls: DiskCalls,
    ) -> Result<Self, AuditError> {
        let writer = AuditWriter::open(directory, anchor, settings, calls)?;
        let (directory, anchor) = (directory.to_owned(), anchor.to_owned());
        let owner = SharedWriter::start(writer, directory.clone(), MAX_DIRECT_WRITE)
            .map_err(error::io_error("start a thread for", &directory))?;
        Ok(Self { writer: Arc::new(owner), directory, anchor, principal: None })
    }

    /// Returns the log for an agent that works for a remote user, whose name each entry has.
    #[must_use]
    pub fn with_principal(self, principal: Option<String>) -> Self {
        Self { principal, ..self }
    }

    /// Returns the paths of the log and of its anchor.
    #[must_use]
    pub fn paths(&self) -> (&Path, &Path) {
        (&self.directory, &self.anchor)
    }

    /// Verifies that the log is as it was written. See [`verify`].
    ///
    /// # Errors
    /// Fails if the log cannot be read.
    pub fn verify(&self) -> Result<VerificationReport, AuditError> {
        verify(&self.directory, &self.anchor)
    }

    /// Returns the entries of the log. See [`read_entries`].
    ///
    /// # Errors
    /// Fails if the log cannot be read.
    pub fn entries(&self, filter: AuditFilter) -> Result<AuditEntries, AuditError> {
        read_entries(&self.directory, filter)
    }

    /// Appends an entry and returns its number. Blocks until the log and its anchor have it, which takes microseconds; it
    /// survives a crash of the process then, and a power cut after [`AuditLog::sync`].
    ///
    /// # Errors
    /// Fails if the entry is not certain to be in the log. The operation it records must not be carried out then.
    pub fn append(&self, entry: &AuditEntry) -> Result<u64, AuditError> {
        match &self.principal {
            None => self.writer.append(entry),
            Some(_) => self.writer.append(&self.with_name(entry.clone())),
        }
    }

    /// Like [`AuditLog::append`], for an async caller: queues the entry, to be written with those of other callers.
    pub fn submit(&self, entry: AuditEntry) -> PendingAppend {
        self.writer.submit(self.with_name(entry))
    }

    fn with_name(&self, entry: AuditEntry) -> AuditEntry {
        AuditEntry { principal: self.principal.clone(), ..entry }
    }

    /// Waits until all appended entries are durable.
    ///
    /// # Errors
    /// Fails if the disk reports an error.
    pub fn sync(&self) -> Result<(), AuditError> {
        // Synced on shared handles, without the writer's lock, so that appends do not wait.
        let (log, anchor) = self.writer.files();
        log.sync()?;
        anchor.sync()
    }
}

/// An open file of the log, shared between threads.
type SharedLogFile = Arc<log_file::LogFile>;

#[cfg(test)]
mod tests;
