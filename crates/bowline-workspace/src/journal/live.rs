//! Which sessions are running: each holds a lock file in the journal's directory until it ends or its process does.
//!
//! Several processes share a journal, and none may drop what the undo of another's running session needs. The system
//! releases the locks of a process however it ends, so a session that was killed does not stay for ever.

use std::collections::{HashMap, HashSet};
use std::path::{Path, PathBuf};
use std::sync::{Mutex, MutexGuard, PoisonError};

use bowline_state::changes::ContentHash;

use super::LOCK_WAIT;
use super::error::JournalError;
use crate::storage::{FileLock, Sharing, StorageError};

/// What the names of the lock files begin with; the hash of the session's id follows.
const PREFIX: &str = "session-";

/// The running sessions of one journal. This process holds the locks of its own.
#[derive(Debug)]
pub(crate) struct LiveSessions {
    directory: PathBuf,
    // One lock a session, until it ends.
    held: Mutex<HashMap<String, FileLock>>,
}

impl LiveSessions {
    pub(super) fn new(directory: &Path) -> Self {
        Self { directory: directory.to_owned(), held: Mutex::default() }
    }

    /// Marks a session as running in this process.
    ///
    /// # Errors
    /// Fails if its lock file cannot be made or locked.
    pub(crate) fn claim(&self, session: &str) -> Result<(), JournalError> {
        let mut held = self.held();
        if held.contains_key(session) {
            return Ok(());
        }
        let path = self.directory.join(file_name(session));
        let lock = FileLock::acquire(&path, Sharing::Shared, LOCK_WAIT)?.ok_or(StorageError::Held(path))?;
        held.insert(session.to_owned(), lock);
        Ok(())
    }

    /// Marks a session as ended in this process. Another one may go on with it.
    pub(crate) fn release(&self, session: &str) {
        self.held().remove(session);
    }

    /// Returns all running sessions, of whatever process.
    ///
    /// # Errors
    /// Fails if the directory cannot be read.
    pub(super) fn find(&self) -> Result<Running, JournalError> {
        Running::find(&self.directory)
    }

    fn held(&self) -> MutexGuard<'_, HashMap<String, FileLock>> {
        self.held.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The sessions that were running at one moment, by the names of their lock files.
#[derive(Debug, Default)]
pub(super) struct Running(HashSet<String>);

impl Running {
    /// Finds the running sessions of the journal in a directory, and removes the lock files of ended ones.
    pub(super) fn find(directory: &Path) -> Result<Self, JournalError> {
        Ok(Self(FileLock::held_in(directory, PREFIX)?))
    }

    pub(super) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    pub(super) fn contains(&self, session: &str) -> bool {
        !self.0.is_empty() && self.0.contains(&file_name(session))
    }
}

fn file_name(session: &str) -> String {
    format!("{PREFIX}{}", ContentHash::of(session.as_bytes()))
}
