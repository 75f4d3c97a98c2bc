//! The files of a database in a private directory: creating it, and replacing it.
//!
//! A new database is created under a temporary name and renamed when it is complete, so that an incomplete one is never
//! opened. An unusable one is set aside unchanged and replaced by a new one with everything that can be salvaged.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::time::Duration;

use rusqlite::Connection;

use super::database::{Database, DatabaseKind, SetAsideDatabase};
use super::error::{DatabaseName, FileError, StorageError, to_storage_error};
use super::inspect;
use super::lock::{FileLock, LockMode};
use super::private_file::{
    OpenMode, file_identity, open_private, open_private_directory, remove_file, sync_directory, with_suffix,
};
use crate::disk_calls::DiskCalls;

/// How many databases can be set aside in one directory. Each was reported to the user, and only the user removes them.
const MAX_SET_ASIDE: u32 = 10_000;
/// The suffixes of SQLite's files beside a database, in the order in which they are moved after it.
const SQLITE_SUFFIXES: [&str; 3] = ["-wal", "-shm", "-journal"];

/// The location of a database.
#[derive(Debug, Clone)]
pub struct DatabaseFile {
    // Invariant: canonical, so that no link on the path leads SQLite elsewhere later.
    pub(super) directory: PathBuf,
    pub(super) kind: &'static DatabaseKind,
}

/// What exists at the database's path.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum DatabasePresence {
    Absent,
    Leftovers,
    Database { bytes: u64 },
}

impl DatabaseFile {
    /// Creates the directory if necessary, and makes it private.
    ///
    /// # Errors
    /// Fails if it cannot be used.
    pub fn prepare(directory: &Path, kind: &'static DatabaseKind) -> Result<Self, StorageError> {
        Ok(Self { directory: open_private_directory(directory)?, kind })
    }

    /// Returns the canonical directory.
    #[must_use]
    pub fn directory(&self) -> &Path {
        &self.directory
    }

    /// Returns the path of the database.
    #[must_use]
    pub fn path(&self) -> PathBuf {
        self.directory.join(self.kind.file)
    }

    /// Takes the database's lock, with a timeout.
    ///
    /// # Errors
    /// Fails if the lock is contended until the timeout, or if the directory cannot be written.
    pub fn lock(&self, sharing: LockMode, wait: Duration) -> Result<FileLock, StorageError> {
        let path = self.directory.join(self.kind.lock);
        FileLock::acquire(&path, sharing, wait)?.ok_or(StorageError::Locked(path))
    }

    /// Opens the database, or creates it. The caller holds the lock exclusively.
    ///
    /// An unusable one is set aside; `salvage` copies what can be read of it into the empty database that replaces it.
    /// If that is interrupted, the damaged one is still in place, or the new one is complete.
    ///
    /// # Errors
    /// Fails if the directory or a file in it cannot be read and written, or if the disk is full. Nothing is moved
    /// then.
    pub fn open(
        self,
        salvage: impl FnOnce(&Self, &Connection) -> rusqlite::Result<()>,
    ) -> Result<(Database, Option<SetAsideDatabase>), StorageError> {
        let mut set_aside = None;
        let connection = match self.open_or_create()? {
            Ok(connection) => connection,
            Err(why) => {
                let path = self.rebuild(salvage)?.unwrap_or_else(|| self.path());
                set_aside = Some(SetAsideDatabase { path, why });
                self.open_or_create()?
                    .map_err(|why| StorageError::Corrupt(self.database_name(), why.to_string()))?
            }
        };
        Ok((Database::new(self, connection)?, set_aside))
    }

    /// Creates an empty database under a temporary name. SQLite gives the files beside a database the permissions of
    /// the database.
    pub(super) fn create_draft(&self) -> Result<Connection, StorageError> {
        let path = self.sibling_path(".new");
        for suffix in [""].into_iter().chain(SQLITE_SUFFIXES) {
            remove_file(&with_suffix(&path, suffix))?;
        }
        drop(open_private(&path, OpenMode::Overwrite, &DiskCalls::default())?);
        let create = || {
            let connection = Connection::open_with_flags(&path, inspect::open_flags())?;
            // The draft is used only when complete and discarded otherwise, so no rollback is needed.
            connection.pragma_update_and_check(None, "journal_mode", "OFF", |_| Ok(()))?;
            connection.pragma_update(None, "synchronous", "FULL")?;
            connection.pragma_update(None, "auto_vacuum", "INCREMENTAL")?;
            connection.execute_batch("BEGIN")?;
            self.kind.create_tables(&connection, self.kind.newest_format())?;
            connection.pragma_update(None, "application_id", self.kind.application_id)?;
            connection.pragma_update(None, "user_version", self.kind.newest_format())?;
            connection.execute_batch("COMMIT")?;
            Ok(connection)
        };
        create().map_err(|error| self.to_storage_error(error))
    }

    /// Replaces the database with what `salvage` can read of it, and returns the new path of the old one.
    fn rebuild(
        &self,
        salvage: impl FnOnce(&Self, &Connection) -> rusqlite::Result<()>,
    ) -> Result<Option<PathBuf>, StorageError> {
        let fresh = self.create_draft()?;
        let fill = || {
            // For a log without a database, SQLite would only delete the log.
            if let Ok(DatabasePresence::Database { .. }) = self.presence() {
                fresh.execute_batch("BEGIN")?;
                salvage(self, &fresh)?;
                fresh.execute_batch("COMMIT")?;
            }
            fresh.close().map_err(|(_, error)| error)
        };
        fill().map_err(|error| self.to_storage_error(error))?;
        self.replace()
    }

    /// Replaces the database with the draft, which is durable. After the first rename the outcome is fixed: the process
    /// that next opens the database completes it. Returns the new path of the old database, if there was one.
    pub(super) fn replace(&self) -> Result<Option<PathBuf>, StorageError> {
        rename_if_exists(&self.sibling_path(".new"), &self.sibling_path(".ready"))?;
        self.sync()?;
        self.finish_replacement()
    }

    pub(super) fn finish_replacement(&self) -> Result<Option<PathBuf>, StorageError> {
        let ready = self.sibling_path(".ready");
        if !ready.exists() {
            return Ok(None);
        }
        let aside = self.set_aside()?;
        rename_if_exists(&ready, &self.path())?;
        self.sync()?;
        Ok(aside)
    }

    /// Moves the database and the files beside it out of the way, and returns its new path. SQLite would apply an old
    /// log to the new database.
    fn set_aside(&self) -> Result<Option<PathBuf>, StorageError> {
        let from = self.path();
        let to = match self.presence()? {
            DatabasePresence::Absent => None,
            DatabasePresence::Leftovers | DatabasePresence::Database { .. } => {
                Some(self.free_set_aside_path()?)
            }
        };
        for suffix in [""].into_iter().chain(SQLITE_SUFFIXES) {
            let from = with_suffix(&from, suffix);
            match &to {
                Some(to) => rename_if_exists(&from, &with_suffix(to, suffix))?,
                None => remove_file(&from)?,
            }
        }
        remove_file(&self.sibling_path(".suspect"))?;
        self.sync()?;
        Ok(to)
    }

    fn free_set_aside_path(&self) -> Result<PathBuf, FileError> {
        let taken = |path: &Path| path.symlink_metadata().is_ok();
        (1..=MAX_SET_ASIDE)
            .map(|number| self.sibling_path(&format!(".set-aside-{number}")))
            .find(|name| {
                !taken(name) && !SQLITE_SUFFIXES.iter().any(|suffix| taken(&with_suffix(name, suffix)))
            })
            .ok_or_else(|| {
                let why = format!("there are {MAX_SET_ASIDE} already, remove some");
                FileError::io_error("set aside", &self.path())(io::Error::other(why))
            })
    }

    /// Returns what exists at the database's path. Opens nothing: closing a database file that another connection of
    /// this process has open would release its locks.
    pub(super) fn presence(&self) -> Result<DatabasePresence, FileError> {
        let size = |path: &Path| match path.symlink_metadata() {
            Ok(found) if found.is_file() => Ok(Some(found.len())),
            Ok(_) => Err(FileError::NotPlain { path: path.to_owned(), what: "file" }),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
            Err(error) => Err(FileError::io_error("look at", path)(error)),
        };
        Ok(match (size(&self.path())?, size(&self.sibling_path("-wal"))?) {
            (None, None | Some(0)) => DatabasePresence::Absent,
            (None | Some(0), _) => DatabasePresence::Leftovers,
            (Some(bytes), _) => DatabasePresence::Database { bytes },
        })
    }

    pub(super) fn identity(&self) -> Result<(u64, u64), StorageError> {
        match self.path().symlink_metadata() {
            Ok(found) => Ok(file_identity(&found)),
            Err(error) if error.kind() == io::ErrorKind::NotFound => {
                Err(StorageError::Moved(self.database_name()))
            }
            Err(error) => Err(FileError::io_error("look at", &self.path())(error).into()),
        }
    }

    /// Returns the path of a file beside the database.
    pub(super) fn sibling_path(&self, suffix: &str) -> PathBuf {
        with_suffix(&self.path(), suffix)
    }

    fn sync(&self) -> Result<(), FileError> {
        sync_directory(&self.directory, &DiskCalls::default())
    }

    pub(super) fn database_name(&self) -> DatabaseName {
        DatabaseName { subject: self.kind.subject, path: self.path() }
    }

    pub(super) fn to_storage_error(&self, error: rusqlite::Error) -> StorageError {
        to_storage_error(error, self.database_name())
    }
}

/// Renames a file, if it exists.
fn rename_if_exists(from: &Path, to: &Path) -> Result<(), FileError> {
    match fs::rename(from, to) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => {
            Err(FileError::io_error("rename", from)(error))
        }
        _ => Ok(()),
    }
}
