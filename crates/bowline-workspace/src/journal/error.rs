//! What can go wrong with a journal, and what opening one has to tell.

use std::path::PathBuf;

use bowline_state::changes::{ChangeId, ContentHash};

use super::{MAX_CONTENT_BYTES, MAX_TEXT_BYTES};
use crate::storage::{self, FileError, StorageError, Unusable};

/// Why the journal did not do what it was asked. What it held before is still there.
#[derive(Debug, thiserror::Error)]
pub enum JournalError {
    /// Its files cannot be used.
    #[error(transparent)]
    Storage(#[from] StorageError),
    /// A kept content is not what it was.
    #[error("the content {0} is damaged in the journal and cannot be given back")]
    Damaged(ContentHash),
    /// The content of a secret file cannot be encrypted, so it is not kept.
    #[error("the text of a secret file cannot be encrypted for the journal: try again")]
    Unsealable,
    /// A change's record makes no sense.
    #[error("the record of change {0} is damaged in the journal")]
    DamagedChange(ChangeId),
    /// There is no such change, or there is none any more.
    #[error("there is no change {0} in the journal")]
    NoSuchChange(ChangeId),
    /// The change has another outcome already.
    #[error("change {0} is settled already and cannot be settled otherwise")]
    Settled(ChangeId),
    /// A change that still has to be made was to be recorded as one that was found.
    #[error("the change of {path} is still to be made: begin it and settle it")]
    ToBeMade {
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
    /// What undo needs takes all of the room that the journal has, so that nothing older can be dropped for it.
    #[error(
        "the journal of changes may keep {} MiB and needs all of it to undo this turn and the latest turns of other \
         running sessions: write less, or go on in a new turn or session", max_bytes >> 20
    )]
    NoRoom {
        /// How many bytes of texts it may keep.
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

/// What the owner of a journal should be told when it was opened.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Notice {
    /// The journal that was there cannot be used. It was moved, untouched, and a new one was begun.
    #[error("the journal of changes cannot be used: {why}; it was moved to {} and a new one was begun", path.display())]
    SetAside {
        /// Where it is now; its write-ahead log has the same name and `-wal`.
        path: PathBuf,
        /// What is wrong with it.
        why: Unusable,
    },
    /// The journal is open, but what is older or more than it should keep could not be dropped.
    #[error("old changes could not be dropped from the journal: {why}")]
    NotPruned {
        /// What went wrong.
        why: String,
    },
}

/// An error inside a transaction.
pub(super) type Fault = storage::Fault<JournalError>;

impl From<JournalError> for Fault {
    fn from(error: JournalError) -> Self {
        Self::Known(error)
    }
}

impl From<FileError> for JournalError {
    fn from(error: FileError) -> Self {
        Self::Storage(error.into())
    }
}
