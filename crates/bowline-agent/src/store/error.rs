//! What can go wrong with stored sessions, and what their owner should be told.

use std::io;
use std::path::{Path, PathBuf};

use bowline_state::schema::v1::SessionId;
use rusqlite::ErrorCode;

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
    /// A newer Bowline wrote the sessions.
    #[error(
        "the sessions in {} were written by a newer Bowline (format {found}, this one reads {known}): use that one, or \
         move the file away to begin anew",
        path.display()
    )]
    Newer {
        /// The database.
        path: PathBuf,
        /// Its format.
        found: i32,
        /// The format that this one reads.
        known: i32,
    },
    /// There is no room.
    #[error("no room is left for the sessions in {}: free some space", path.display())]
    Full {
        /// The database, or a file beside it.
        path: PathBuf,
    },
    /// The sessions may be read but not written.
    #[error("the sessions in {} cannot be written: make the file and its directory writable", path.display())]
    ReadOnly {
        /// The database, or a file beside it.
        path: PathBuf,
    },
    /// Other processes have kept the database to themselves for as long as one waits for it.
    #[error("another Bowline keeps {} to itself: wait for it or end it", path.display())]
    Held {
        /// The lock or the database.
        path: PathBuf,
    },
    /// The database is damaged and could not be put right.
    #[error("the sessions in {} are damaged: {why}", path.display())]
    Corrupt {
        /// The database.
        path: PathBuf,
        /// What is wrong.
        why: String,
    },
    /// A file or directory cannot be used.
    #[error("cannot {doing} {}: {why}", path.display())]
    Io {
        /// What was tried.
        doing: &'static str,
        /// With what.
        path: PathBuf,
        /// What the system said.
        why: io::Error,
    },
    /// SQLite failed in a way that none of the above is.
    #[error("the sessions in {} cannot be used: {why}", path.display())]
    Database {
        /// The database.
        path: PathBuf,
        /// What SQLite said.
        why: rusqlite::Error,
    },
    /// The thread that does the work is gone.
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

/// An error inside a transaction, before it is known which file it is about.
#[derive(Debug)]
pub(super) enum Fault {
    Sql(rusqlite::Error),
    /// What was read is not what was written.
    Damaged(String),
    Known(StoreError),
}

impl Fault {
    /// Says whether the database itself is broken, and not that disk, memory or leave is lacking.
    pub(super) fn is_damage(&self) -> bool {
        match self {
            Self::Sql(error) => is_damage(error),
            Self::Damaged(_) => true,
            Self::Known(_) => false,
        }
    }

    pub(super) fn explain(self, path: &Path) -> StoreError {
        let path = path.to_owned();
        match self {
            Self::Known(error) => error,
            Self::Damaged(why) => StoreError::Corrupt { path, why },
            Self::Sql(error) if is_damage(&error) => StoreError::Corrupt { path, why: error.to_string() },
            Self::Sql(error) => match error.sqlite_error_code() {
                Some(ErrorCode::DiskFull) => StoreError::Full { path },
                Some(ErrorCode::ReadOnly | ErrorCode::PermissionDenied) => StoreError::ReadOnly { path },
                Some(ErrorCode::DatabaseBusy | ErrorCode::DatabaseLocked) => StoreError::Held { path },
                // There is nothing that a user could be told to do, but what SQLite says.
                _ => StoreError::Database { path, why: error },
            },
        }
    }
}

impl From<rusqlite::Error> for Fault {
    fn from(error: rusqlite::Error) -> Self {
        Self::Sql(error)
    }
}

impl From<StoreError> for Fault {
    fn from(error: StoreError) -> Self {
        Self::Known(error)
    }
}

/// Says whether SQLite calls the database itself broken. A value of a type that its column cannot have is damage too.
pub(super) fn is_damage(error: &rusqlite::Error) -> bool {
    use rusqlite::Error::{FromSqlConversionFailure, IntegralValueOutOfRange, InvalidColumnType, Utf8Error};
    match error {
        FromSqlConversionFailure(..)
        | IntegralValueOutOfRange(..)
        | InvalidColumnType(..)
        | Utf8Error(..) => true,
        error => {
            let code = error.sqlite_error_code();
            matches!(code, Some(ErrorCode::DatabaseCorrupt | ErrorCode::NotADatabase))
        }
    }
}

/// Says what a failed call of the system means for the store.
pub(super) fn io(doing: &'static str, path: &Path) -> impl FnOnce(io::Error) -> StoreError {
    move |why| {
        let path = path.to_owned();
        match why.kind() {
            io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded => StoreError::Full { path },
            io::ErrorKind::ReadOnlyFilesystem => StoreError::ReadOnly { path },
            _ => StoreError::Io { doing, path, why },
        }
    }
}
