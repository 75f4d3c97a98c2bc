//! Who has a session: a lock of the system's on a file of its own, which ends with the process however that ends.

use std::path::Path;
use std::process;
use std::sync::Mutex;
use std::time::Duration;

use bowline_state::changes::ContentHash;
use bowline_state::schema::v1::SessionId;
use bowline_workspace::calls::Calls;
use bowline_workspace::storage::{FileLock, Sharing, create_directory};

use super::codec::Encoded;
use super::error::StoreError;

/// The directory of the locks.
const LOCKS: &str = "sessions.locks";
/// The lock's name is so much of the hash of the id: ids are what a client says, and no names of files.
const NAME: usize = 32;

/// A session in the hands of one who changes it.
#[derive(Debug)]
pub(super) struct Claim {
    pub(super) id: SessionId,
    /// What could not be saved yet. Only the store looks at it.
    pub(super) waiting: Mutex<Vec<Encoded>>,
    _lock: FileLock,
}

impl Claim {
    pub(super) fn new(id: SessionId, lock: FileLock) -> Self {
        Self { id, waiting: Mutex::default(), _lock: lock }
    }
}

/// Takes the right to change a session among those in a directory.
pub(super) fn lock(directory: &Path, id: &SessionId) -> Result<FileLock, StoreError> {
    let name = ContentHash::of(id.0.as_bytes()).to_string();
    let path = directory.join(LOCKS).join(&name[..NAME]);
    if let Some(mut lock) = FileLock::acquire(&path, Sharing::Alone, Duration::ZERO)? {
        lock.make_temporary();
        // Its length says who has it. Bytes would make its end a matter of milliseconds on some file systems.
        // Without it others are told less.
        drop(lock.file().set_len(process::id().into()));
        return Ok(lock);
    }
    let length = path.symlink_metadata().ok().and_then(|found| u32::try_from(found.len()).ok());
    Err(StoreError::Busy { id: id.clone(), process: length.filter(|process| *process > 0) })
}

/// Makes the directory for locks, and removes those of processes that were killed.
pub(super) fn sweep(directory: &Path) -> Result<(), StoreError> {
    let locks = directory.join(LOCKS);
    create_directory(&locks, &Calls::default())?;
    // What cannot be removed does no harm.
    drop(FileLock::held_in(&locks, ""));
    Ok(())
}
