//! The claim on a session: a system lock on a file of its own, released when the process ends for any reason.

use std::path::Path;
use std::process;
use std::sync::Mutex;
use std::time::Duration;

use bowline_protocol::schema::v1::SessionId;
use bowline_storage::disk_calls::DiskCalls;
use bowline_storage::{FileLock, LockMode, create_directory};
use bowline_text::hash::ContentHash;

use super::codec::EncodedRecord;
use super::error::StoreError;

/// The directory of the locks.
const LOCKS_DIR: &str = "sessions.locks";
/// The length of a lock's name, a prefix of the id's hash: clients choose ids, which need not be valid file names.
const LOCK_NAME_LENGTH: usize = 32;

/// A session claimed by its one writer.
#[derive(Debug)]
pub(super) struct SessionClaim {
    pub(super) id: SessionId,
    /// Records that could not be saved yet. Only the store accesses them.
    pub(super) unsaved_records: Mutex<Vec<EncodedRecord>>,
    _lock: FileLock,
}

impl SessionClaim {
    pub(super) fn new(id: SessionId, lock: FileLock) -> Self {
        Self { id, unsaved_records: Mutex::default(), _lock: lock }
    }
}

/// Locks a session of a directory for changes.
pub(super) fn lock_session(directory: &Path, id: &SessionId) -> Result<FileLock, StoreError> {
    let name = ContentHash::digest(id.0.as_bytes()).to_string();
    let path = directory.join(LOCKS_DIR).join(&name[..LOCK_NAME_LENGTH]);
    if let Some(mut lock) = FileLock::acquire(&path, LockMode::Exclusive, Duration::ZERO)? {
        lock.make_temporary();
        // The file's length is the holder's process id. Writing bytes instead would make releasing take milliseconds on
        // some file systems. If it fails, other processes only lack the id.
        drop(lock.file().set_len(process::id().into()));
        return Ok(lock);
    }
    let length = path.symlink_metadata().ok().and_then(|metadata| u32::try_from(metadata.len()).ok());
    Err(StoreError::Busy { id: id.clone(), process: length.filter(|process| *process > 0) })
}

/// Creates the lock directory, and removes the locks of killed processes.
pub(super) fn sweep_stale_locks(directory: &Path) -> Result<(), StoreError> {
    let locks = directory.join(LOCKS_DIR);
    create_directory(&locks, &DiskCalls::default())?;
    // A lock that cannot be removed does no harm.
    drop(FileLock::list_held(&locks, ""));
    Ok(())
}
