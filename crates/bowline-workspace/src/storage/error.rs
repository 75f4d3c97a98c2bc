//! What can go wrong with private files and the databases among them.

use std::io;
use std::path::{Path, PathBuf};

use rusqlite::ErrorCode;

/// A private file or directory that cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum FileError {
    /// A call failed.
    #[error("cannot {doing} {}: {why}", path.display())]
    Io {
        /// What was tried.
        doing: &'static str,
        /// With which file or directory.
        path: PathBuf,
        /// What the system said.
        why: io::Error,
    },
    /// A link, or something else than a file or directory, is in the place of one.
    #[error("cannot open {}: it is not a plain {what}", path.display())]
    NotPlain {
        /// What is there.
        path: PathBuf,
        /// What should be.
        what: &'static str,
    },
}

impl FileError {
    /// Says what was tried, with what.
    pub fn of(doing: &'static str, path: &Path) -> impl FnOnce(io::Error) -> Self {
        move |why| Self::Io { doing, path: path.to_owned(), why }
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

/// A database, as errors name it: what is in it, and its path.
#[derive(Debug, Clone, thiserror::Error)]
#[error("{subject} {}", path.display())]
pub struct DatabaseName {
    pub(super) subject: &'static str,
    pub(super) path: PathBuf,
}

/// A database that cannot be used. What it held before is still there.
#[derive(Debug, thiserror::Error)]
pub enum StorageError {
    /// The directory or one of its files cannot be used.
    #[error(transparent)]
    File(#[from] FileError),
    /// The database may be read but not written.
    #[error("{0} cannot be written: make the file and its directory writable")]
    ReadOnly(DatabaseName),
    /// There is no room.
    #[error("no room is left for {0}: free some space")]
    Full(DatabaseName),
    /// Another process has held this lock, or the database, for as long as one waits for it.
    #[error("another Bowline holds {}: wait for it or end it", .0.display())]
    Held(PathBuf),
    /// The database is damaged, in this way. Opening it again checks all of it and sets it aside.
    #[error("damage was found in {0} ({1}): open it again to set it aside")]
    Corrupt(DatabaseName, String),
    /// The database is not the file that was opened: it was set aside, removed or replaced.
    #[error("{0} was moved or removed while it was in use: open it again")]
    Moved(DatabaseName),
    /// A newer Bowline wrote the database, in this format, and it is not to be set aside.
    #[error(
        "{0} were written by a newer Bowline (format {1}, this one reads {2}): use that one, or move the file away to begin anew"
    )]
    Newer(DatabaseName, i32, i32),
    /// SQLite failed in another way.
    #[error("{0} cannot be used: {1}")]
    Failed(DatabaseName, rusqlite::Error),
}

/// Why a database has to be set aside.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Unusable {
    /// It is no database, or a damaged one.
    #[error("it is damaged ({0})")]
    Damaged(String),
    /// A log that waits for its database, or a database without a byte: this program leaves neither.
    #[error("it is empty, or only its log is there")]
    Remains,
    /// It is a database of something else.
    #[error("it was not written by Bowline, or its header is damaged (application {found:#x})")]
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

/// An error inside a transaction, where it is not known which database it is about.
#[derive(Debug)]
pub enum Fault<E> {
    /// SQLite failed.
    Sql(rusqlite::Error),
    /// What was read is not what was written.
    Damaged(String),
    /// The caller's own error.
    Known(E),
}

impl<E> From<rusqlite::Error> for Fault<E> {
    fn from(error: rusqlite::Error) -> Self {
        Self::Sql(error)
    }
}

/// Returns whether the error says that the database itself is broken, and not that the disk, the memory or a permission is
/// lacking. A value of a type that its column cannot have is damage too.
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

/// Says which database an error of SQLite is about.
pub(super) fn explain(error: rusqlite::Error, name: DatabaseName) -> StorageError {
    if is_damage(&error) {
        return StorageError::Corrupt(name, error.to_string());
    }
    match error.sqlite_error_code() {
        Some(ErrorCode::DiskFull) => StorageError::Full(name),
        Some(ErrorCode::ReadOnly | ErrorCode::PermissionDenied) => StorageError::ReadOnly(name),
        Some(ErrorCode::DatabaseBusy | ErrorCode::DatabaseLocked) => StorageError::Held(name.path),
        // There is nothing that a user could be told to do: it is passed on as SQLite said it.
        _ => StorageError::Failed(name, error),
    }
}
