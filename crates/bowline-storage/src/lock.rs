//! Locks between processes, on files. The system releases the locks of a process however it ends.

use std::collections::HashSet;
use std::fs::{self, File, TryLockError};
use std::io;
use std::path::{Path, PathBuf};
use std::thread;
use std::time::{Duration, Instant};

use super::error::FileError;
use super::private_file::{OpenMode, file_identity, open_private};
use crate::disk_calls::DiskCalls;

/// How many times to yield before sleeping: most locks are held for microseconds.
const EAGER_TRIES: u32 = 200;
/// The first pause between two attempts; each is twice the previous one, up to the longest.
const FIRST_PAUSE: Duration = Duration::from_millis(1);
const LONGEST_PAUSE: Duration = Duration::from_millis(8);
/// How many times to reopen a lock file that is removed while it is being locked. Each time its holder has released it.
const MAX_OPENS: usize = 100;

/// Whether a lock can be shared.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum LockMode {
    /// Excludes all other holders.
    Exclusive,
    /// Allows other shared holders.
    Shared,
}

/// A lock file that is locked until this is dropped.
#[derive(Debug)]
#[must_use = "the lock is released as soon as it is dropped"]
pub struct FileLock {
    file: File,
    path: PathBuf,
    is_temporary: bool,
}

impl FileLock {
    /// Locks a file, which is created if necessary; returns `None` if the lock is contended for as long as `wait`.
    ///
    /// # Errors
    /// Fails if the file cannot be created or locked.
    pub fn acquire(path: &Path, sharing: LockMode, wait: Duration) -> Result<Option<Self>, FileError> {
        let deadline = Instant::now() + wait;
        for _ in 0..MAX_OPENS {
            let file = open_private(path, OpenMode::Overwrite, &DiskCalls::default())?;
            let left = deadline.saturating_duration_since(Instant::now());
            let is_locked =
                lock_with_timeout(&file, sharing, left).map_err(FileError::io_error("lock", path))?;
            // A lock on a file that was removed from its directory does not exclude later processes.
            if is_file_at(&file, path) {
                return Ok(is_locked.then(|| Self { file, path: path.to_owned(), is_temporary: false }));
            }
        }
        Ok(None)
    }

    /// Returns the names of the lock files in a directory that begin with `prefix` and are held, and removes the
    /// others.
    ///
    /// # Errors
    /// Fails if the directory cannot be read.
    pub fn list_held(directory: &Path, prefix: &str) -> Result<HashSet<String>, FileError> {
        let mut held = HashSet::new();
        for entry in fs::read_dir(directory).map_err(FileError::io_error("list", directory))? {
            let entry = entry.map_err(FileError::io_error("list", directory))?;
            let Ok(name) = entry.file_name().into_string() else { continue };
            let path = entry.path();
            // A file counts as held unless locking it proves otherwise.
            let release = |file: File| {
                file.try_lock().is_ok() && is_file_at(&file, &path) && fs::remove_file(&path).is_ok()
            };
            if name.starts_with(prefix) && !File::open(&path).is_ok_and(release) {
                held.insert(name);
            }
        }
        Ok(held)
    }

    /// Returns the locked file.
    #[must_use]
    pub fn file(&self) -> &File {
        &self.file
    }

    /// Removes the file when the lock is released.
    pub fn make_temporary(&mut self) {
        self.is_temporary = true;
    }
}

impl Drop for FileLock {
    fn drop(&mut self) {
        if self.is_temporary {
            // Removed while locked, so that no other process can hold it. A file that stays is unlocked and harmless.
            drop(fs::remove_file(&self.path));
        }
    }
}

/// Locks an open file; returns false if the lock is contended for as long as `wait`.
pub fn lock_with_timeout(file: &File, sharing: LockMode, wait: Duration) -> io::Result<bool> {
    let deadline = Instant::now() + wait;
    let (mut tries, mut pause) = (0, FIRST_PAUSE);
    loop {
        let locked = match sharing {
            LockMode::Exclusive => file.try_lock(),
            LockMode::Shared => file.try_lock_shared(),
        };
        match locked {
            Ok(()) => return Ok(true),
            Err(TryLockError::Error(error)) if error.kind() != io::ErrorKind::Interrupted => {
                return Err(error);
            }
            Err(_) => tries += 1,
        }
        let left = deadline.saturating_duration_since(Instant::now());
        if left.is_zero() {
            return Ok(false);
        }
        if tries < EAGER_TRIES {
            thread::yield_now();
            continue;
        }
        thread::sleep(pause.min(left));
        pause = (pause * 2).min(LONGEST_PAUSE);
    }
}

/// Returns whether a path leads to an open file.
fn is_file_at(file: &File, path: &Path) -> bool {
    let (Ok(open), Ok(named)) = (file.metadata(), path.symlink_metadata()) else { return false };
    file_identity(&open) == file_identity(&named)
}
