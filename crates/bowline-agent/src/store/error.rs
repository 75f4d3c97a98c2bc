//! Errors of the session store, and its notices for the user.

use std::path::PathBuf;

use bowline_postgres::PostgresError;
use bowline_protocol::schema::v1::SessionId;
use bowline_storage::{FileError, StorageError, TransactionError};

use super::MAX_RECORD_BYTES;

/// Why a store operation failed. The stored data is unchanged.
#[derive(Debug, thiserror::Error)]
pub enum StoreError {
    /// No session has this id.
    #[error("there is no session {0}")]
    NotFound(SessionId),
    /// Another process, or this one, has claimed the session.
    #[error("session {id} is in use{}: close it there first", describe_holder(*.process))]
    Busy {
        /// The session.
        id: SessionId,
        /// The process that holds it, if known.
        process: Option<u32>,
    },
    /// Another process has claimed the session since, in a store that several machines share.
    #[error("session {0} was opened elsewhere: nothing more is stored here")]
    Lost(SessionId),
    /// The id is taken.
    #[error("there is a session {0} already")]
    Exists(SessionId),
    /// The cursor is not from this store.
    #[error("the cursor is not one that this program gave out: list from the beginning")]
    BadCursor,
    /// One record is larger than [`MAX_RECORD_BYTES`].
    #[error("a record of {bytes} bytes cannot be kept, {MAX_RECORD_BYTES} are the most")]
    TooLarge {
        /// Its size.
        bytes: usize,
    },
    /// The session has reached its size limit, and nothing in it can be dropped.
    #[error("session {id} has {bytes} bytes, which is more than one may have: compact it or begin another")]
    SessionFull {
        /// The session.
        id: SessionId,
        /// The size it would have.
        bytes: u64,
    },
    /// A value cannot be written as JSON: a path that is not valid text, for example.
    #[error("this cannot be kept: {0}")]
    Unwritable(serde_json::Error),
    /// A message of the conversation is intact, but this version cannot parse it.
    #[error("session {id} has a message that this Bowline cannot read ({why}): use the one that wrote it")]
    Unreadable {
        /// The session.
        id: SessionId,
        /// The reason.
        why: String,
    },
    /// The database cannot be used.
    #[error(transparent)]
    Unavailable(Box<dyn std::error::Error + Send + Sync>),
    /// The program is ending, or the worker thread failed.
    #[error("stored sessions are out of order in this process: start it again")]
    Stopped,
}

fn describe_holder(process: Option<u32>) -> String {
    process.map_or_else(String::new, |process| format!(" by process {process}"))
}

/// A notice for the user.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum StoreNotice {
    /// The database was damaged. A copy was set aside, and its readable content was recovered.
    #[error(
        "the stored sessions were damaged ({why}); a copy was set aside as {}; {}", path.display(), describe_salvage(*.whole, .cut)
    )]
    SetAside {
        /// The copy; its write-ahead log, if any, has the same name with `-wal` appended.
        path: PathBuf,
        /// The damage found.
        why: String,
        /// The number of sessions recovered completely.
        whole: usize,
        /// The sessions that lost their end.
        cut: Vec<SessionId>,
    },
    /// Sessions beyond the retention limits could not be removed.
    #[error("old sessions could not be removed: {0}")]
    NotPruned(String),
}

/// The most sessions named in a notice.
const MAX_NAMED_SESSIONS: usize = 10;

fn describe_salvage(intact: usize, truncated: &[SessionId]) -> String {
    if intact == 0 && truncated.is_empty() {
        return "no session could be read".to_owned();
    }
    let mut text = format!("sessions that are whole: {intact}");
    if !truncated.is_empty() {
        let ids: Vec<&str> = truncated.iter().take(MAX_NAMED_SESSIONS).map(|id| &*id.0).collect();
        let more = if truncated.len() > MAX_NAMED_SESSIONS { " and more" } else { "" };
        text.push_str(&format!("; {} lack their end: {}{more}", truncated.len(), ids.join(", ")));
    }
    text
}

/// An error inside a transaction.
pub(super) type StoreTransactionError = TransactionError<StoreError>;

impl From<StoreError> for StoreTransactionError {
    fn from(error: StoreError) -> Self {
        Self::Caller(error)
    }
}

impl From<StorageError> for StoreError {
    fn from(error: StorageError) -> Self {
        Self::Unavailable(error.into())
    }
}

impl From<PostgresError> for StoreError {
    fn from(error: PostgresError) -> Self {
        Self::Unavailable(error.into())
    }
}

impl From<FileError> for StoreError {
    fn from(error: FileError) -> Self {
        Self::Unavailable(error.into())
    }
}
