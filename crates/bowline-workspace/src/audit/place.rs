//! The directory of a log and its anchor: names, permissions, the lock.

use std::fs::{self, File};
use std::io::{self, Write as _};
use std::os::unix::fs::FileExt as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use bowline_state::audit::Anchor;

use super::error::{AuditError, io_error};
use crate::calls::{Call, Calls};
use crate::storage::{FileError, OpenMode, Sharing, create_directory, lock_within, open_private, restrict};

/// How long one waits for another process that holds the anchor.
const LOCK_WAIT: Duration = Duration::from_secs(5);
/// So many files of a log are looked at. A log in use has no more than it is told to keep.
const MAX_FILES: usize = 10_000;

/// A file that is open, with its name.
#[derive(Debug)]
pub(super) struct Opened {
    file: File,
    pub(super) path: PathBuf,
    // What every change of the file goes through.
    calls: Calls,
    // An anchor was written in part: what is there now is no anchor, even if it can be read as one.
    is_torn: AtomicBool,
}

/// An anchor with its text.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Written {
    pub(super) anchor: Anchor,
    // Invariant: what the anchor is written as.
    text: String,
}

impl From<Anchor> for Written {
    fn from(anchor: Anchor) -> Self {
        Self { anchor, text: anchor.write() }
    }
}

impl Opened {
    /// Opens a plain file that is no link; a new one is private, and one that is written is made so.
    pub(super) fn open(path: &Path, mode: OpenMode, calls: &Calls) -> Result<Self, AuditError> {
        let file = open_private(path, mode, calls)?;
        Ok(Self { file, path: path.to_owned(), calls: calls.clone(), is_torn: AtomicBool::new(false) })
    }

    /// Returns how long the file is; none if it is gone from its directory.
    pub(super) fn length(&self) -> Result<Option<u64>, AuditError> {
        let found = rustix::fs::fstat(&self.file);
        let found = found.map_err(|error| io_error("look at", &self.path)(error.into()))?;
        Ok((found.st_nlink > 0).then_some(found.st_size as u64))
    }

    pub(super) fn sync(&self) -> Result<(), AuditError> {
        let synced = self.calls.pass(Call::Sync).and_then(|()| self.file.sync_data());
        synced.map_err(io_error("sync", &self.path))
    }

    /// Writes lines at the end of the file.
    pub(super) fn append(&self, lines: &[u8]) -> Result<(), AuditError> {
        let written = self.write_all(lines, &mut 0, |rest, _| (&self.file).write(rest));
        written.map_err(io_error("append to the audit log", &self.path))
    }

    /// Cuts the file to a length.
    pub(super) fn cut(&self, length: u64) -> Result<(), AuditError> {
        let cut = self.calls.pass(Call::Truncate).and_then(|()| self.file.set_len(length));
        cut.map_err(io_error("cut", &self.path))
    }

    /// Writes all bytes with as many calls as it takes, and counts those that are written.
    fn write_all(
        &self,
        bytes: &[u8],
        done: &mut usize,
        write: impl Fn(&[u8], usize) -> io::Result<usize>,
    ) -> io::Result<()> {
        while let rest @ [_, ..] = &bytes[*done..] {
            let allowed = self.calls.pass_bytes(rest.len())?;
            match write(&rest[..allowed], *done) {
                Ok(0) => return Err(io::ErrorKind::WriteZero.into()),
                Ok(count) => *done += count,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }

    /// Reads as much as there is, up to the length of `buffer`.
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

    /// Returns the anchor in this file; none if it is empty or unreadable. One that is as it was known is not read anew.
    pub(super) fn anchor(&self, known: Option<&Written>) -> Result<Option<Anchor>, AuditError> {
        if self.is_torn.load(Ordering::Relaxed) {
            return Ok(None);
        }
        let mut buffer = [0; Anchor::BYTES + 1];
        let count = self.read_at(&mut buffer, 0)?;
        let text = &buffer[..count];
        match known {
            Some(known) if known.text.as_bytes() == text => Ok(Some(known.anchor)),
            _ => Ok(Anchor::read(text).ok()),
        }
    }

    pub(super) fn write_anchor(&self, anchor: &Written) -> Result<(), AuditError> {
        let (bytes, mut done) = (anchor.text.as_bytes(), 0);
        let written = self.write_all(bytes, &mut done, |rest, done| self.file.write_at(rest, done as u64));
        // The beginning of this anchor and the end of the last one may pass for a third one; nothing passes for none.
        let is_torn = written.is_err() && done > 0 && self.cut(0).is_err();
        self.is_torn.store(is_torn, Ordering::Relaxed);
        written.map_err(io_error("write the audit log's anchor", &self.path))
    }

    pub(super) fn lock(self: &Arc<Self>, sharing: Sharing) -> Result<Locked, AuditError> {
        match lock_within(&self.file, sharing, LOCK_WAIT).map_err(io_error("lock", &self.path))? {
            true => Ok(Locked { opened: Arc::clone(self) }),
            false => Err(AuditError::Held { path: self.path.clone() }),
        }
    }
}

/// A lock, given back when dropped.
#[derive(Debug)]
pub(super) struct Locked {
    opened: Arc<Opened>,
}

impl Drop for Locked {
    fn drop(&mut self) {
        // It cannot fail for a lock that is held, and the end of the process gives it back too.
        _ = self.opened.file.unlock();
    }
}

/// Makes a directory if there is none, and makes it private.
pub(super) fn prepare(directory: &Path, calls: &Calls) -> Result<(), AuditError> {
    make(directory, calls)?;
    if !directory.symlink_metadata().map_err(io_error("look at", directory))?.is_dir() {
        return Err(AuditError::NotPlain { path: directory.to_owned(), what: "directory" });
    }
    Ok(restrict(directory, calls)?)
}

/// Makes a directory that only its owner can enter, unless something is there.
pub(super) fn make(directory: &Path, calls: &Calls) -> Result<(), AuditError> {
    match create_directory(directory, calls) {
        Err(FileError::Io { why, .. }) if why.kind() == io::ErrorKind::AlreadyExists => Ok(()),
        made => Ok(made?),
    }
}

/// Removes a file of the log.
pub(super) fn remove(path: &Path, calls: &Calls) -> Result<(), AuditError> {
    let removed = calls.pass(Call::Remove).and_then(|()| fs::remove_file(path));
    removed.map_err(io_error("remove", path))
}

/// Returns the name of a file of the log by its number.
pub(super) fn name(number: u64) -> String {
    format!("audit-{number:08}.jsonl")
}

/// Returns the numbers of the files in a directory, in order. A directory that is not there has none.
pub(super) fn numbers(directory: &Path) -> Result<Vec<u64>, AuditError> {
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
            // Another way to write the number is another file.
            found.to_str() == Some(&name(*number))
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
