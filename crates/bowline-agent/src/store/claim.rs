//! Who has a session: a lock of the system's on a file of its own, which ends with the process however that ends.

use std::fs::{self, File, TryLockError};
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};
use std::process;
use std::sync::Mutex;

use bowline_state::changes::ContentHash;
use bowline_state::schema::v1::SessionId;

use super::codec::Encoded;
use super::error::{StoreError, io};
use super::place::{Place, open_private};

/// The lock's name is so much of the hash of the id: ids are what a client says, and no names of files.
const NAME: usize = 32;
/// A lock that goes away while it is taken is tried so often. Each time somebody else gave the session back.
const TRIES: usize = 100;

/// A session in the hands of one who changes it.
#[derive(Debug)]
pub(super) struct Claim {
    pub(super) id: SessionId,
    /// What could not be saved yet. Only the thread of the store looks at it.
    pub(super) waiting: Mutex<Vec<Encoded>>,
    _lock: Lock,
}

impl Claim {
    pub(super) fn new(id: SessionId, lock: Lock) -> Self {
        Self { id, waiting: Mutex::default(), _lock: lock }
    }
}

/// The right to change a session. Nobody else has it until it is dropped.
#[derive(Debug)]
pub(super) struct Lock {
    _file: File,
    path: PathBuf,
}

impl Lock {
    pub(super) fn take(place: &Place, id: &SessionId) -> Result<Self, StoreError> {
        let name = ContentHash::of(id.0.as_bytes()).to_string();
        let path = place.locks().join(&name[..NAME]);
        let mut process = None;
        for _ in 0..TRIES {
            let file = open_private(&path)?;
            match file.try_lock() {
                Ok(()) if is_at(&file, &path) => {
                    // Its length says who has it. Bytes would make its end a matter of milliseconds on some file systems.
                    // Without it others are told less.
                    drop(file.set_len(process::id().into()));
                    return Ok(Self { _file: file, path });
                }
                // It was removed between the two calls: a lock on it keeps nobody out.
                Ok(()) => {}
                Err(TryLockError::WouldBlock) => {
                    process = file.metadata().ok().and_then(|found| u32::try_from(found.len()).ok());
                    if is_at(&file, &path) {
                        break;
                    }
                }
                Err(TryLockError::Error(error)) => return Err(io("lock", &path)(error)),
            }
        }
        let process = process.filter(|process| *process > 0);
        Err(StoreError::Busy { id: id.clone(), process })
    }

    /// Removes the locks of processes that were killed.
    pub(super) fn sweep(place: &Place) {
        let locks = fs::read_dir(place.locks()).into_iter().flatten().flatten();
        for path in locks.map(|entry| entry.path()) {
            // Opened without being made: it may be gone by now. What cannot be removed does no harm.
            let Ok(file) = File::options().read(true).write(true).open(&path) else { continue };
            if file.try_lock().is_ok() && is_at(&file, &path) {
                drop(fs::remove_file(&path));
            }
        }
    }
}

impl Drop for Lock {
    fn drop(&mut self) {
        // While it is locked, so that nobody else can have it. One that stays is free and does no harm.
        drop(fs::remove_file(&self.path));
    }
}

/// Says whether a name leads to an open file.
fn is_at(file: &File, path: &Path) -> bool {
    let (Ok(open), Ok(named)) = (file.metadata(), path.symlink_metadata()) else { return false };
    (open.dev(), open.ino()) == (named.dev(), named.ino())
}
