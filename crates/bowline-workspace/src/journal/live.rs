//! Which sessions are running: each holds a lock file in the journal's directory until it ends or its process does.
//!
//! Several processes share a journal, and none may drop what the undo of another's running session needs. The system
//! releases the locks of a process however it ends, so a session that was killed does not stay for ever.

use std::collections::{HashMap, HashSet};
use std::fs::{self, File};
use std::io;
use std::sync::{Mutex, MutexGuard, PoisonError};

use bowline_state::changes::ContentHash;
use rustix::fs::{FlockOperation, flock};
use rustix::io::Errno;

use super::error::JournalError;
use super::place::{Place, create_private, identity, identity_of, io_error};

/// What the names of the lock files begin with; the hash of the session's id follows.
const PREFIX: &str = "session-";

/// The running sessions of one journal. This process holds the locks of its own.
#[derive(Debug)]
pub(crate) struct LiveSessions {
    place: Place,
    // One open file a session, until it ends.
    held: Mutex<HashMap<String, File>>,
}

impl LiveSessions {
    pub(super) fn new(place: Place) -> Self {
        Self { place, held: Mutex::default() }
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
        let path = self.place.file(&file_name(session));
        let file = loop {
            let file = create_private(&path)?;
            match flock(&file, FlockOperation::LockShared) {
                // A file that was removed meanwhile marks nothing: try again.
                Ok(()) if identity_of(&file).ok() == identity(&path).ok() => break file,
                Ok(()) | Err(Errno::INTR) => {}
                Err(error) => return Err(io_error("lock", &path)(error.into())),
            }
        };
        held.insert(session.to_owned(), file);
        Ok(())
    }

    /// Marks a session as ended in this process. Another one may go on with it.
    pub(crate) fn release(&self, session: &str) {
        self.held().remove(session);
    }

    /// Returns the names of the lock files of all running sessions, of whatever process, and removes those of ended ones.
    ///
    /// # Errors
    /// Fails if the directory cannot be read.
    pub(super) fn find(&self) -> Result<Running, JournalError> {
        let directory = self.place.directory();
        let failed = |error: io::Error| io_error("list", directory)(error);
        let mut names = HashSet::new();
        for entry in fs::read_dir(directory).map_err(failed)? {
            let entry = entry.map_err(|error| io_error("list", directory)(error))?;
            let Some(name) =
                entry.file_name().to_str().filter(|name| name.starts_with(PREFIX)).map(str::to_owned)
            else {
                continue;
            };
            let path = entry.path();
            // A session counts as running unless the lock proves that it is not.
            let is_ended = File::open(&path).is_ok_and(|file| {
                flock(&file, FlockOperation::NonBlockingLockExclusive).is_ok()
                    && fs::remove_file(&path).is_ok()
            });
            if !is_ended {
                names.insert(name);
            }
        }
        Ok(Running(names))
    }

    fn held(&self) -> MutexGuard<'_, HashMap<String, File>> {
        self.held.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The sessions that were running at one moment.
#[derive(Debug, Default)]
pub(super) struct Running(HashSet<String>);

impl Running {
    pub(super) fn contains(&self, session: &str) -> bool {
        !self.0.is_empty() && self.0.contains(&file_name(session))
    }
}

fn file_name(session: &str) -> String {
    format!("{PREFIX}{}", ContentHash::of(session.as_bytes()))
}
