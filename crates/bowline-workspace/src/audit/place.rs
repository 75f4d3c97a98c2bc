//! The directory of a log and its anchor: names, permissions, the lock.

use std::fs::{self, DirBuilder, File, OpenOptions, Permissions};
use std::io::{self, Write as _};
use std::os::unix::fs::{
    DirBuilderExt as _, FileExt as _, MetadataExt as _, OpenOptionsExt as _, PermissionsExt as _,
};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use bowline_state::audit::Anchor;
use rustix::fs::{FlockOperation, OFlags, flock};

use super::error::{AuditError, io_error};
use crate::calls::{Call, Calls};

/// How long one waits for another process that holds the anchor.
const LOCK_WAIT: Duration = Duration::from_secs(5);
/// An entry takes microseconds, so at first one only lets others go first.
const EAGER_TRIES: u32 = 200;
const PAUSE: Duration = Duration::from_millis(1);
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

/// How a file is opened.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Mode {
    Read,
    Append,
    Overwrite,
}

impl Opened {
    /// Opens a plain file that is no link; a new one is private, and one that is written is made so.
    pub(super) fn open(path: &Path, mode: Mode, calls: &Calls) -> Result<Self, AuditError> {
        if mode != Mode::Read {
            calls.pass(Call::OpenInPlace).map_err(io_error("open", path))?;
        }
        let mut options = OpenOptions::new();
        options.read(true).mode(0o600);
        match mode {
            Mode::Read => {}
            Mode::Append => _ = options.append(true).create(true),
            Mode::Overwrite => _ = options.write(true).create(true).truncate(false),
        }
        // A pipe in the place of a file would keep one waiting.
        options.custom_flags((OFlags::NOFOLLOW | OFlags::NONBLOCK).bits().cast_signed());
        let not_plain = || AuditError::NotPlain { path: path.to_owned(), what: "file" };
        let file = options.open(path).map_err(|error| match error.raw_os_error() {
            Some(code) if code == rustix::io::Errno::LOOP.raw_os_error() => not_plain(),
            _ => io_error("open", path)(error),
        })?;
        let found = file.metadata().map_err(io_error("look at", path))?;
        if !found.is_file() {
            return Err(not_plain());
        }
        if mode != Mode::Read && found.mode() & 0o777 != 0o600 {
            let private = Permissions::from_mode(0o600);
            let made = calls.pass(Call::SetMode).and_then(|()| file.set_permissions(private));
            made.map_err(io_error("make private", path))?;
        }
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

    pub(super) fn lock(self: &Arc<Self>, operation: Sharing) -> Result<Locked, AuditError> {
        let operation = match operation {
            Sharing::Alone => FlockOperation::NonBlockingLockExclusive,
            Sharing::WithReaders => FlockOperation::NonBlockingLockShared,
        };
        let mut tries = 0;
        let mut deadline = None;
        loop {
            match flock(&self.file, operation) {
                Ok(()) => return Ok(Locked { opened: Arc::clone(self) }),
                Err(rustix::io::Errno::WOULDBLOCK | rustix::io::Errno::INTR) => {}
                Err(error) => return Err(io_error("lock", &self.path)(error.into())),
            }
            tries += 1;
            if tries < EAGER_TRIES {
                thread::yield_now();
                continue;
            }
            let now = Instant::now();
            if now > *deadline.get_or_insert(now + LOCK_WAIT) {
                return Err(AuditError::Held { path: self.path.clone() });
            }
            thread::sleep(PAUSE);
        }
    }
}

/// Who else may hold a lock.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Sharing {
    Alone,
    WithReaders,
}

/// A lock, given back when dropped.
#[derive(Debug)]
pub(super) struct Locked {
    opened: Arc<Opened>,
}

impl Drop for Locked {
    fn drop(&mut self) {
        // It cannot fail for a lock that is held, and the end of the process gives it back too.
        _ = flock(&self.opened.file, FlockOperation::Unlock);
    }
}

/// Makes a directory if there is none, and makes it private.
pub(super) fn prepare(directory: &Path, calls: &Calls) -> Result<(), AuditError> {
    make(directory, calls)?;
    let found = directory.symlink_metadata().map_err(io_error("look at", directory))?;
    if !found.is_dir() {
        return Err(AuditError::NotPlain { path: directory.to_owned(), what: "directory" });
    }
    if found.mode() & 0o777 != 0o700 {
        let private = Permissions::from_mode(0o700);
        let made = calls.pass(Call::SetMode).and_then(|()| fs::set_permissions(directory, private));
        made.map_err(io_error("make private", directory))?;
    }
    Ok(())
}

/// Makes a directory that only its owner can enter, unless there is one.
pub(super) fn make(directory: &Path, calls: &Calls) -> Result<(), AuditError> {
    let mut builder = DirBuilder::new();
    builder.recursive(true).mode(0o700);
    match calls.pass(Call::CreateDirectory).and_then(|()| builder.create(directory)) {
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists => Ok(()),
        made => made.map_err(io_error("make the directory", directory)),
    }
}

pub(super) fn sync_directory(directory: &Path, calls: &Calls) -> Result<(), AuditError> {
    let opened = calls.pass(Call::SyncDirectory).and_then(|()| File::open(directory));
    opened.and_then(|directory| directory.sync_all()).map_err(io_error("sync", directory))
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
