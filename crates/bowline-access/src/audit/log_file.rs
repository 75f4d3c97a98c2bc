//! The files of a log and its anchor: names, permissions, the lock.

use std::fs::{self, File};
use std::io::{self, Write as _};
use std::os::unix::fs::FileExt as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use bowline_policy::audit::AuditAnchor;

use super::error::{AuditError, io_error};
use bowline_storage::disk_calls::{DiskCall, DiskCalls};
use bowline_storage::{
    FileError, LockMode, OpenMode, create_directory, lock_with_timeout, make_private, open_private,
};

/// The timeout for another process that holds the anchor.
const LOCK_TIMEOUT: Duration = Duration::from_secs(5);
/// The maximum number of log files in a directory. A log in use has no more than its options allow.
const MAX_FILES: usize = 10_000;

/// An open file with its path.
#[derive(Debug)]
pub(super) struct LogFile {
    file: File,
    pub(super) path: PathBuf,
    // The check before every change of the file.
    calls: DiskCalls,
    // An anchor was written in part: the content is invalid, even if it decodes.
    is_torn: AtomicBool,
}

/// An anchor with its encoding.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct EncodedAnchor {
    pub(super) anchor: AuditAnchor,
    // Invariant: the encoding of `anchor`.
    text: String,
}

impl From<AuditAnchor> for EncodedAnchor {
    fn from(anchor: AuditAnchor) -> Self {
        Self { anchor, text: anchor.encode() }
    }
}

impl LogFile {
    /// Opens a plain file, not a link. A file opened for writing is made private.
    pub(super) fn open(path: &Path, mode: OpenMode, calls: &DiskCalls) -> Result<Self, AuditError> {
        let file = open_private(path, mode, calls)?;
        Ok(Self { file, path: path.to_owned(), calls: calls.clone(), is_torn: AtomicBool::new(false) })
    }

    /// Returns the length of the file, or `None` if it was removed from its directory.
    pub(super) fn length(&self) -> Result<Option<u64>, AuditError> {
        let found = rustix::fs::fstat(&self.file);
        let found = found.map_err(|error| io_error("look at", &self.path)(error.into()))?;
        Ok((found.st_nlink > 0).then_some(found.st_size as u64))
    }

    pub(super) fn sync(&self) -> Result<(), AuditError> {
        let synced = self.calls.check(DiskCall::Sync).and_then(|()| self.file.sync_data());
        synced.map_err(io_error("sync", &self.path))
    }

    /// Appends lines to the file.
    pub(super) fn append(&self, lines: &[u8]) -> Result<(), AuditError> {
        let written = self.write_all(lines, &mut 0, |rest, _| (&self.file).write(rest));
        written.map_err(io_error("append to the audit log", &self.path))
    }

    /// Truncates the file.
    pub(super) fn truncate(&self, length: u64) -> Result<(), AuditError> {
        let cut = self.calls.check(DiskCall::Truncate).and_then(|()| self.file.set_len(length));
        cut.map_err(io_error("cut", &self.path))
    }

    /// Writes all bytes in as many calls as it takes, and counts the bytes written in `done`.
    fn write_all(
        &self,
        bytes: &[u8],
        done: &mut usize,
        write: impl Fn(&[u8], usize) -> io::Result<usize>,
    ) -> io::Result<()> {
        while let rest @ [_, ..] = &bytes[*done..] {
            let allowed = self.calls.check_write(rest.len())?;
            match write(&rest[..allowed], *done) {
                Ok(0) => return Err(io::ErrorKind::WriteZero.into()),
                Ok(count) => *done += count,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }

    /// Fills `buffer` as far as the file reaches.
    pub(super) fn read_at(&self, buffer: &mut [u8], offset: u64) -> Result<usize, AuditError> {
        let mut filled = 0;
        while filled < buffer.len() {
            match self.file.read_at(&mut buffer[filled..], offset + filled as u64) {
                Ok(0) => break,
                Ok(count) => filled += count,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(io_error("read", &self.path)(error)),
            }
        }
        Ok(filled)
    }

    /// Returns the anchor in this file, or `None` if it is empty or unreadable. An unchanged `known` anchor is not
    /// decoded again.
    pub(super) fn read_anchor(
        &self,
        known: Option<&EncodedAnchor>,
    ) -> Result<Option<AuditAnchor>, AuditError> {
        if self.is_torn.load(Ordering::Relaxed) {
            return Ok(None);
        }
        let mut buffer = [0; AuditAnchor::ENCODED_LEN + 1];
        let count = self.read_at(&mut buffer, 0)?;
        let text = &buffer[..count];
        match known {
            Some(known) if known.text.as_bytes() == text => Ok(Some(known.anchor)),
            _ => Ok(AuditAnchor::decode(text).ok()),
        }
    }

    pub(super) fn write_anchor(&self, anchor: &EncodedAnchor) -> Result<(), AuditError> {
        let (bytes, mut done) = (anchor.text.as_bytes(), 0);
        let written = self.write_all(bytes, &mut done, |rest, done| self.file.write_at(rest, done as u64));
        // The start of this anchor followed by the end of the previous one may decode as a third; an empty file never
        // does.
        let is_torn = written.is_err() && done > 0 && self.truncate(0).is_err();
        self.is_torn.store(is_torn, Ordering::Relaxed);
        written.map_err(io_error("write the audit log's anchor", &self.path))
    }

    pub(super) fn lock(self: &Arc<Self>, sharing: LockMode) -> Result<AnchorLock, AuditError> {
        let lock = self.lock_within(sharing, LOCK_TIMEOUT)?;
        lock.ok_or_else(|| AuditError::AnchorLocked { path: self.path.clone() })
    }

    /// Locks the file, or returns `None` if another process holds it.
    pub(super) fn try_lock(self: &Arc<Self>, sharing: LockMode) -> Result<Option<AnchorLock>, AuditError> {
        self.lock_within(sharing, Duration::ZERO)
    }

    fn lock_within(
        self: &Arc<Self>,
        sharing: LockMode,
        timeout: Duration,
    ) -> Result<Option<AnchorLock>, AuditError> {
        let is_locked = lock_with_timeout(&self.file, sharing, timeout);
        let is_locked = is_locked.map_err(io_error("lock", &self.path))?;
        Ok(is_locked.then(|| AnchorLock { file: Arc::clone(self) }))
    }
}

/// A lock on the anchor, released on drop.
#[derive(Debug)]
pub(super) struct AnchorLock {
    file: Arc<LogFile>,
}

impl Drop for AnchorLock {
    fn drop(&mut self) {
        // Unlocking a held lock cannot fail, and the end of the process releases it too.
        _ = self.file.file.unlock();
    }
}

/// Creates a directory if it is missing, and makes it private.
pub(super) fn prepare_directory(directory: &Path, calls: &DiskCalls) -> Result<(), AuditError> {
    ensure_directory(directory, calls)?;
    if !directory.symlink_metadata().map_err(io_error("look at", directory))?.is_dir() {
        return Err(AuditError::NotPlain { path: directory.to_owned(), what: "directory" });
    }
    Ok(make_private(directory, calls)?)
}

/// Creates a directory that only its owner can enter, unless the path exists.
pub(super) fn ensure_directory(directory: &Path, calls: &DiskCalls) -> Result<(), AuditError> {
    match create_directory(directory, calls) {
        Err(FileError::Io { why, .. }) if why.kind() == io::ErrorKind::AlreadyExists => Ok(()),
        made => Ok(made?),
    }
}

/// Removes a log file.
pub(super) fn remove_log_file(path: &Path, calls: &DiskCalls) -> Result<(), AuditError> {
    let removed = calls.check(DiskCall::Remove).and_then(|()| fs::remove_file(path));
    removed.map_err(io_error("remove", path))
}

/// Returns the name of the log file with a number.
pub(super) fn file_name(number: u64) -> String {
    format!("audit-{number:08}.jsonl")
}

/// Returns the numbers of the log files in a directory, in order; none if the directory is missing.
pub(super) fn list_file_numbers(directory: &Path) -> Result<Vec<u64>, AuditError> {
    let listing = match fs::read_dir(directory) {
        Ok(listing) => listing,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
        Err(error) => return Err(io_error("list", directory)(error)),
    };
    let mut numbers = Vec::new();
    for entry in listing {
        let found = entry.map_err(io_error("list", directory))?.file_name();
        let digits = found.to_str().and_then(|name| name.strip_prefix("audit-")?.strip_suffix(".jsonl"));
        let number = digits.and_then(|digits| digits.parse().ok()).filter(|number| {
            // A different spelling of the number is a different file.
            found.to_str() == Some(&file_name(*number))
        });
        numbers.extend(number);
        if numbers.len() > MAX_FILES {
            let why = format!("it has more than {MAX_FILES} files of a log, move some away");
            return Err(io_error("list", directory)(io::Error::other(why)));
        }
    }
    numbers.sort_unstable();
    Ok(numbers)
}
