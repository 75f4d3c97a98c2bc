//! Locks between processes, on files. The system releases those of a process however it ends.

use std::collections::HashSet;
use std::fs::{self, File, TryLockError};
use std::io;
use std::path::{Path, PathBuf};
use std::thread;
use std::time::{Duration, Instant};

use super::error::FileError;
use super::private::{OpenMode, identity, open_private};
use crate::calls::Calls;

/// Most locks are held for microseconds: so often one only lets others run before one sleeps.
const EAGER_TRIES: u32 = 200;
/// The first pause between two tries; each is twice the one before, up to the longest.
const FIRST_PAUSE: Duration = Duration::from_millis(1);
const LONGEST_PAUSE: Duration = Duration::from_millis(8);
/// A lock file that is removed while it is taken is opened so often. Each time its holder had released it.
const MAX_OPENS: usize = 100;

/// Who else may hold a lock.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Sharing {
    /// No other process.
    Alone,
    /// Those who share it too.
    Shared,
}

/// A lock file that is held until this is dropped.
#[derive(Debug)]
#[must_use = "the lock is released as soon as it is dropped"]
pub struct FileLock {
    file: File,
    path: PathBuf,
    is_temporary: bool,
}

impl FileLock {
    /// Takes the lock on a file, which is made if there is none; none if another holds it for as long as `wait`.
    ///
    /// # Errors
    /// Fails if the file cannot be made or locked.
    pub fn acquire(path: &Path, sharing: Sharing, wait: Duration) -> Result<Option<Self>, FileError> {
        let deadline = Instant::now() + wait;
        for _ in 0..MAX_OPENS {
            let file = open_private(path, OpenMode::Overwrite, &Calls::default())?;
            let left = deadline.saturating_duration_since(Instant::now());
            let is_locked = lock_within(&file, sharing, left).map_err(FileError::of("lock", path))?;
            // A lock on a file that is gone from its directory excludes no later process.
            if is_at(&file, path) {
                return Ok(is_locked.then(|| Self { file, path: path.to_owned(), is_temporary: false }));
            }
        }
        Ok(None)
    }

    /// Returns the names of the lock files in a directory that are held, among those that begin with `prefix`, and
    /// removes the others.
    ///
    /// # Errors
    /// Fails if the directory cannot be read.
    pub fn held_in(directory: &Path, prefix: &str) -> Result<HashSet<String>, FileError> {
        let mut held = HashSet::new();
        for entry in fs::read_dir(directory).map_err(FileError::of("list", directory))? {
            let entry = entry.map_err(FileError::of("list", directory))?;
            let Ok(name) = entry.file_name().into_string() else { continue };
            let path = entry.path();
            // It counts as held unless the lock proves that it is not.
            let release =
                |file: File| file.try_lock().is_ok() && is_at(&file, &path) && fs::remove_file(&path).is_ok();
            if name.starts_with(prefix) && !File::open(&path).is_ok_and(release) {
                held.insert(name);
            }
        }
        Ok(held)
    }

    /// Returns the file that is locked.
    #[must_use]
    pub fn file(&self) -> &File {
        &self.file
    }

    /// Lets the file go with the lock.
    pub fn make_temporary(&mut self) {
        self.is_temporary = true;
    }
}

impl Drop for FileLock {
    fn drop(&mut self) {
        if self.is_temporary {
            // While it is locked, so that no other process can hold it. One that stays is free and does no harm.
            drop(fs::remove_file(&self.path));
        }
    }
}

/// Locks an open file; returns false if another holds it for as long as `wait`.
pub(crate) fn lock_within(file: &File, sharing: Sharing, wait: Duration) -> io::Result<bool> {
    let deadline = Instant::now() + wait;
    let (mut tries, mut pause) = (0, FIRST_PAUSE);
    loop {
        let locked = match sharing {
            Sharing::Alone => file.try_lock(),
            Sharing::Shared => file.try_lock_shared(),
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

/// Says whether a name leads to an open file.
fn is_at(file: &File, path: &Path) -> bool {
    let (Ok(open), Ok(named)) = (file.metadata(), path.symlink_metadata()) else { return false };
    identity(&open) == identity(&named)
}
