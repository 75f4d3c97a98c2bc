//! The errors of a journal, and the notices from opening one.

use std::path::PathBuf;

use bowline_history::changes::ChangeId;
use bowline_text::hash::ContentHash;

use super::{MAX_CONTENT_BYTES, MAX_TEXT_BYTES};
use bowline_storage::{FileError, StorageError, TransactionError, UnusableReason};

/// Why a journal operation failed. The journal's previous content is intact.
#[derive(Debug, thiserror::Error)]
pub enum JournalError {
    /// Its files cannot be used.
    #[error(transparent)]
    Storage(#[from] StorageError),
    /// A stored content is damaged.
    #[error("the content {0} is damaged in the journal and cannot be given back")]
    Damaged(ContentHash),
    /// The content of a secret file cannot be encrypted, so it is not stored.
    #[error("the text of a secret file cannot be encrypted for the journal: try again")]
    EncryptionFailed,
    /// A change's record is invalid.
    #[error("the record of change {0} is damaged in the journal")]
    DamagedChange(ChangeId),
    /// There is no such change, or no longer.
    #[error("there is no change {0} in the journal")]
    NoSuchChange(ChangeId),
    /// The change already has a different outcome.
    #[error("change {0} is settled already and cannot be settled otherwise")]
    AlreadySettled(ChangeId),
    /// A change that is still to be applied was recorded as an observed one.
    #[error("the change of {path} is still to be made: begin it and settle it")]
    NotYetApplied {
        /// The file.
        path: String,
    },
    /// The content is larger than [`MAX_CONTENT_BYTES`].
    #[error("{path} has {bytes} bytes, the journal keeps at most {MAX_CONTENT_BYTES}")]
    TooLarge {
        /// The file.
        path: String,
        /// Its size.
        bytes: usize,
    },
    /// What undo needs takes all of the journal's room, so that nothing older can be dropped.
    #[error(
        "the journal of changes may keep {} MiB and needs all of it to undo this turn and the latest turns of other \
         running sessions: write less, or go on in a new turn or session", max_bytes >> 20
    )]
    NoRoom {
        /// The limit on stored texts, in bytes.
        max_bytes: u64,
    },
    /// A name is longer than [`MAX_TEXT_BYTES`].
    #[error("the {what} is {bytes} bytes long, the journal takes at most {MAX_TEXT_BYTES}")]
    TooLong {
        /// Which name.
        what: &'static str,
        /// Its length.
        bytes: usize,
    },
}

/// What to report to the owner of a journal after opening it.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum JournalNotice {
    /// The existing journal was unusable. It was moved, untouched, and replaced by a new one.
    #[error("the journal of changes cannot be used: {why}; it was moved to {} and a new one was begun", path.display())]
    SetAside {
        /// Its new path; its write-ahead log has the same name with `-wal`.
        path: PathBuf,
        /// What is wrong with it.
        why: UnusableReason,
    },
    /// The journal is open, but could not be pruned.
    #[error("old changes could not be dropped from the journal: {why}")]
    NotPruned {
        /// What went wrong.
        why: String,
    },
}

/// An error inside a transaction.
pub(super) type JournalTransactionError = TransactionError<JournalError>;

impl From<JournalError> for JournalTransactionError {
    fn from(error: JournalError) -> Self {
        Self::Caller(error)
    }
}

impl From<FileError> for JournalError {
    fn from(error: FileError) -> Self {
        Self::Storage(error.into())
    }
}
