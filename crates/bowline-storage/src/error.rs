//! The errors of private files and databases.

use std::io;
use std::path::{Path, PathBuf};

use rusqlite::ErrorCode;

/// A private file or directory that cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum FileError {
    /// A call failed.
    #[error("cannot {action} {}: {why}", path.display())]
    Io {
        /// What was attempted.
        action: &'static str,
        /// The file or directory.
        path: PathBuf,
        /// The system's error.
        why: io::Error,
    },
    /// A path leads to a link, or to something else than the expected file or directory.
    #[error("cannot open {}: it is not a plain {what}", path.display())]
    NotPlain {
        /// The path.
        path: PathBuf,
        /// What it should be.
        what: &'static str,
    },
}

impl FileError {
    /// Returns an adapter that adds the attempted action and its path to an I/O error.
    pub fn io_error(doing: &'static str, path: &Path) -> impl FnOnce(io::Error) -> Self {
        move |why| Self::Io { action: doing, path: path.to_owned(), why }
    }
}

impl From<FileError> for io::Error {
    fn from(error: FileError) -> Self {
        match error {
            FileError::Io { why, .. } => why,
            FileError::NotPlain { .. } => Self::other(error.to_string()),
        }
    }
}

/// The name of a database in errors: its content and its path.
#[derive(Debug, Clone, thiserror::Error)]
#[error("{subject} {}", path.display())]
pub struct DatabaseName {
    pub(super) subject: &'static str,
    pub(super) path: PathBuf,
}

/// Why a database cannot be used. Its previous content is intact.
#[derive(Debug, thiserror::Error)]
pub enum StorageError {
    /// The directory or one of its files cannot be used.
    #[error(transparent)]
    File(#[from] FileError),
    /// The database can be read but not written.
    #[error("{0} cannot be written: make the file and its directory writable")]
    ReadOnly(DatabaseName),
    /// The disk is full.
    #[error("no room is left for {0}: free some space")]
    Full(DatabaseName),
    /// Another process held this lock, or the database, until the timeout.
    #[error("another Bowline holds {}: wait for it or end it", .0.display())]
    Locked(PathBuf),
    /// The database is damaged. Opening it again checks it completely and sets it aside.
    #[error("damage was found in {0} ({1}): open it again to set it aside")]
    Corrupt(DatabaseName, String),
    /// The database is no longer the file that was opened: it was set aside, removed or replaced.
    #[error("{0} was moved or removed while it was in use: open it again")]
    Moved(DatabaseName),
    /// A newer Bowline wrote the database, in this format, and it must not be set aside.
    #[error(
        "{0} were written by a newer Bowline (format {1}, this one reads {2}): use that one, or move the file away to begin anew"
    )]
    Newer(DatabaseName, i32, i32),
    /// SQLite failed in another way.
    #[error("{0} cannot be used: {1}")]
    Sqlite(DatabaseName, rusqlite::Error),
}

/// Why a database must be set aside.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum UnusableReason {
    /// It is not a database, or a damaged one.
    #[error("it is damaged ({0})")]
    Damaged(String),
    /// A log without its database, or an empty database: this program leaves neither.
    #[error("it is empty, or only its log is there")]
    Leftovers,
    /// It is a database of another application.
    #[error("it was not written by Bowline, or its header is damaged (application {found:#x})")]
    Foreign {
        /// Its application id.
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
    SchemaMismatch {
        /// The format that it declares.
        format: i32,
    },
}

/// An error inside a transaction, before it is known which database it concerns.
#[derive(Debug)]
pub enum TransactionError<E> {
    /// SQLite failed.
    Sql(rusqlite::Error),
    /// What was read is invalid.
    Damaged(String),
    /// The caller's own error.
    Caller(E),
}

impl<E> From<rusqlite::Error> for TransactionError<E> {
    fn from(error: rusqlite::Error) -> Self {
        Self::Sql(error)
    }
}

/// Returns whether the error means that the database itself is damaged, rather than a lack of disk space, memory or
/// permission. A value of a type that its column cannot have is damage, too.
#[must_use]
pub fn is_damage(error: &rusqlite::Error) -> bool {
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

/// Adds the database's name to a SQLite error.
pub(super) fn to_storage_error(error: rusqlite::Error, name: DatabaseName) -> StorageError {
    if is_damage(&error) {
        return StorageError::Corrupt(name, error.to_string());
    }
    match error.sqlite_error_code() {
        Some(ErrorCode::DiskFull) => StorageError::Full(name),
        Some(ErrorCode::ReadOnly | ErrorCode::PermissionDenied) => StorageError::ReadOnly(name),
        Some(ErrorCode::DatabaseBusy | ErrorCode::DatabaseLocked) => StorageError::Locked(name.path),
        // There is no advice to give, so SQLite's error is passed on.
        _ => StorageError::Sqlite(name, error),
    }
}
