//! What can go wrong with a journal, and what opening one has to tell.

use std::io;
use std::path::PathBuf;

use bowline_state::changes::{ChangeId, ContentHash};
use rusqlite::ErrorCode;

use super::{MAX_CONTENT_BYTES, MAX_TEXT_BYTES};

/// Why the journal did not do what it was asked. What it held before is still there.
#[derive(Debug, thiserror::Error)]
pub enum JournalError {
    /// The directory or one of its files cannot be used.
    #[error("cannot {doing} {}: {why}", path.display())]
    Io {
        /// What was tried.
        doing: &'static str,
        /// With which file or directory.
        path: PathBuf,
        /// What the system said.
        why: io::Error,
    },
    /// The journal may be read but not written.
    #[error("the journal {} cannot be written: make it and its directory writable", path.display())]
    ReadOnly {
        /// The database.
        path: PathBuf,
    },
    /// There is no room for it.
    #[error("no room is left for the journal {}: free some space", path.display())]
    Full {
        /// The database.
        path: PathBuf,
    },
    /// Somebody else has held the lock, or the database, for as long as one waits for it.
    #[error("another Bowline holds {}: wait for it or end it", path.display())]
    Held {
        /// The lock or the database.
        path: PathBuf,
    },
    /// The database is damaged. Opening it again looks at all of it and sets it aside.
    #[error("the journal {} is damaged ({why}): open it again to set it aside", path.display())]
    Corrupt {
        /// The database.
        path: PathBuf,
        /// What SQLite said.
        why: String,
    },
    /// The database is not the file that was opened: it was set aside, removed or put in its place.
    #[error("the journal {} was moved or removed while it was in use: open it again", path.display())]
    Moved {
        /// Where it was.
        path: PathBuf,
    },
    /// SQLite failed in a way that none of the above is.
    #[error("the journal {} failed: {why}", path.display())]
    Database {
        /// The database.
        path: PathBuf,
        /// What SQLite said.
        why: rusqlite::Error,
    },
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

/// What is wrong with a journal that has to be set aside.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Unusable {
    /// It is no database, or a damaged one.
    #[error("it is damaged ({0})")]
    Damaged(String),
    /// The write-ahead log is there, the database it belongs to is empty or gone.
    #[error("its write-ahead log is there but the database is empty or missing")]
    OrphanedLog,
    /// It is a database of something else.
    #[error("it was not written by Bowline (application id {found:#010x})")]
    Foreign {
        /// The application id it has.
        found: i32,
    },
    /// A newer Bowline wrote it.
    #[error(
        "it was written by a newer Bowline (format {found}, this one reads up to {known}), which can read it"
    )]
    Newer {
        /// Its format.
        found: i32,
        /// The newest format that this Bowline reads.
        known: i32,
    },
    /// Its tables are not those of its format.
    #[error("its tables are not those of format {format}")]
    Tables {
        /// The format it says it has.
        format: i32,
    },
}

/// An error on the way to being explained: SQLite's own does not say which journal it is about.
#[derive(Debug)]
pub(super) enum Fault {
    Sql(rusqlite::Error),
    Known(JournalError),
}

impl From<rusqlite::Error> for Fault {
    fn from(error: rusqlite::Error) -> Self {
        Self::Sql(error)
    }
}

impl From<JournalError> for Fault {
    fn from(error: JournalError) -> Self {
        Self::Known(error)
    }
}

/// Returns whether the error says that the database itself is broken, and not that the disk, the memory or a
/// permission is lacking.
pub(super) fn is_corruption(error: &rusqlite::Error) -> bool {
    matches!(error.sqlite_error_code(), Some(ErrorCode::DatabaseCorrupt | ErrorCode::NotADatabase))
}

/// Says which journal an error of SQLite is about.
pub(super) fn explain(error: rusqlite::Error, path: PathBuf) -> JournalError {
    if is_corruption(&error) {
        return JournalError::Corrupt { path, why: error.to_string() };
    }
    match error.sqlite_error_code() {
        Some(ErrorCode::DiskFull) => JournalError::Full { path },
        Some(ErrorCode::ReadOnly | ErrorCode::PermissionDenied) => JournalError::ReadOnly { path },
        Some(ErrorCode::DatabaseBusy | ErrorCode::DatabaseLocked) => JournalError::Held { path },
        // The rest has nothing that a user could be told to do: it is passed on as SQLite said it.
        _ => JournalError::Database { path, why: error },
    }
}
