//! What can go wrong with stored sessions, and what their owner should be told.

use std::path::PathBuf;

use bowline_state::schema::v1::SessionId;
use bowline_workspace::storage::{self, FileError, StorageError};

use super::MAX_RECORD_BYTES;

/// Why the store did not do what it was asked. What it held before is still there.
#[derive(Debug, thiserror::Error)]
pub enum StoreError {
    /// There is no such session.
    #[error("there is no session {0}")]
    NotFound(SessionId),
    /// Somebody has the session: another process, or this one.
    #[error("session {id} is in use{}: close it there first", by(*.process))]
    Busy {
        /// The session.
        id: SessionId,
        /// The process that has it, if that is known.
        process: Option<u32>,
    },
    /// There is a session of that id already.
    #[error("there is a session {0} already")]
    Exists(SessionId),
    /// The cursor is none that this store gave out.
    #[error("the cursor is not one that this program gave out: list from the beginning")]
    BadCursor,
    /// One record is larger than [`MAX_RECORD_BYTES`].
    #[error("a record of {bytes} bytes cannot be kept, {MAX_RECORD_BYTES} are the most")]
    TooLarge {
        /// Its size.
        bytes: usize,
    },
    /// The session is as large as one may be, and nothing of it can go.
    #[error("session {id} has {bytes} bytes, which is more than one may have: compact it or begin another")]
    SessionFull {
        /// The session.
        id: SessionId,
        /// What it would have.
        bytes: u64,
    },
    /// Something cannot be written as JSON: a path that is no text, say.
    #[error("this cannot be kept: {0}")]
    Unwritable(serde_json::Error),
    /// A message of the conversation is whole, but this program cannot read it.
    #[error("session {id} has a message that this Bowline cannot read ({why}): use the one that wrote it")]
    Unreadable {
        /// The session.
        id: SessionId,
        /// What is wrong.
        why: String,
    },
    /// What keeps the sessions cannot be used.
    #[error(transparent)]
    Unavailable(Box<dyn std::error::Error + Send + Sync>),
    /// The program ends, or what does the work failed.
    #[error("stored sessions are out of order in this process: start it again")]
    Stopped,
}

fn by(process: Option<u32>) -> String {
    process.map_or_else(String::new, |process| format!(" by process {process}"))
}

/// What the user should hear of.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Notice {
    /// The database was damaged. A copy of it was set aside, and what could be read of it was taken over.
    #[error(
        "the stored sessions were damaged ({why}); a copy was set aside as {}; {}", path.display(), outcome(*.whole, .cut)
    )]
    SetAside {
        /// The copy; its write-ahead log, if it had one, has the same name and `-wal`.
        path: PathBuf,
        /// What is wrong with it.
        why: String,
        /// How many sessions were taken over as they were.
        whole: usize,
        /// Those that lack their end now.
        cut: Vec<SessionId>,
    },
    /// Sessions that are older or more than are kept could not be removed.
    #[error("old sessions could not be removed: {0}")]
    NotPruned(String),
}

/// At most so many sessions are named in a notice.
const SHOWN: usize = 10;

fn outcome(whole: usize, cut: &[SessionId]) -> String {
    if whole == 0 && cut.is_empty() {
        return "no session could be read".to_owned();
    }
    let mut told = format!("sessions that are whole: {whole}");
    if !cut.is_empty() {
        let ids: Vec<&str> = cut.iter().take(SHOWN).map(|id| &*id.0).collect();
        let more = if cut.len() > SHOWN { " and more" } else { "" };
        told.push_str(&format!("; {} lack their end: {}{more}", cut.len(), ids.join(", ")));
    }
    told
}

/// An error inside a transaction.
pub(super) type Fault = storage::Fault<StoreError>;

impl From<StoreError> for Fault {
    fn from(error: StoreError) -> Self {
        Self::Known(error)
    }
}

impl From<StorageError> for StoreError {
    fn from(error: StorageError) -> Self {
        Self::Unavailable(error.into())
    }
}

impl From<FileError> for StoreError {
    fn from(error: FileError) -> Self {
        Self::Unavailable(error.into())
    }
}
