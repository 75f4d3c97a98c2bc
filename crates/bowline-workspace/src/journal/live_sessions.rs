//! The running sessions: each holds a lock file in the journal's directory until it, or its process, ends.
//!
//! Several processes share a journal, and none may drop what undo needs for a running session of another. The system
//! releases the locks of a process however it ends, so a killed session does not count as running for ever.

use std::collections::{HashMap, HashSet};
use std::path::{Path, PathBuf};
use std::sync::{Mutex, MutexGuard, PoisonError};

use bowline_text::hash::ContentHash;

use super::LOCK_TIMEOUT;
use super::error::JournalError;
use bowline_storage::{FileLock, LockMode, StorageError};

/// The prefix of lock file names; the hash of the session's id follows.
const LOCK_FILE_PREFIX: &str = "session-";

/// The running sessions of one journal. This process holds the locks of its own sessions.
#[derive(Debug)]
pub(crate) struct LiveSessions {
    directory: PathBuf,
    // One lock per session, until it ends.
    locks: Mutex<HashMap<String, FileLock>>,
}

impl LiveSessions {
    pub(super) fn new(directory: &Path) -> Self {
        Self { directory: directory.to_owned(), locks: Mutex::default() }
    }

    /// Marks a session as running in this process.
    ///
    /// # Errors
    /// Fails if its lock file cannot be created or locked.
    pub(crate) fn mark_running(&self, session: &str) -> Result<(), JournalError> {
        let mut held = self.lock_map();
        if held.contains_key(session) {
            return Ok(());
        }
        let path = self.directory.join(lock_file_name(session));
        let lock =
            FileLock::acquire(&path, LockMode::Shared, LOCK_TIMEOUT)?.ok_or(StorageError::Locked(path))?;
        held.insert(session.to_owned(), lock);
        Ok(())
    }

    /// Marks a session as ended in this process. Another process may continue it.
    pub(crate) fn mark_ended(&self, session: &str) {
        self.lock_map().remove(session);
    }

    /// Returns all running sessions, in any process.
    ///
    /// # Errors
    /// Fails if the directory cannot be read.
    pub(super) fn find_running(&self) -> Result<RunningSessions, JournalError> {
        RunningSessions::find(&self.directory)
    }

    fn lock_map(&self) -> MutexGuard<'_, HashMap<String, FileLock>> {
        self.locks.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The sessions that were running at one moment, by the names of their lock files.
#[derive(Debug, Default)]
pub(super) struct RunningSessions(HashSet<String>);

impl RunningSessions {
    /// Finds the running sessions of the journal in a directory, and removes the lock files of ended ones.
    pub(super) fn find(directory: &Path) -> Result<Self, JournalError> {
        Ok(Self(FileLock::list_held(directory, LOCK_FILE_PREFIX)?))
    }

    pub(super) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    pub(super) fn contains(&self, session: &str) -> bool {
        !self.0.is_empty() && self.0.contains(&lock_file_name(session))
    }
}

fn lock_file_name(session: &str) -> String {
    format!("{LOCK_FILE_PREFIX}{}", ContentHash::digest(session.as_bytes()))
}
