//! The files of a database in a private directory: making it, and putting another in its place.
//!
//! A new database is made beside its place and renamed when it is complete, so that a half is never met. One that cannot be
//! used is set aside as it is, and a new one with all that can be salvaged takes its place.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::time::Duration;

use rusqlite::Connection;

use super::database::{Database, DatabaseKind, SetAside};
use super::error::{DatabaseName, FileError, StorageError, explain};
use super::inspect;
use super::lock::{FileLock, Sharing};
use super::private::{
    OpenMode, identity, open_directory, open_private, remove_file, sync_directory, with_suffix,
};
use crate::calls::Calls;

/// How many databases can lie aside in one directory. Only the user removes them, and was told of each.
const MAX_SET_ASIDE: u32 = 10_000;
/// What SQLite keeps beside a database, in the order in which it is moved after it.
const COMPANIONS: [&str; 3] = ["-wal", "-shm", "-journal"];

/// Where a database is.
#[derive(Debug, Clone)]
pub struct DatabaseFile {
    // Invariant: canonical, so that no link on the way leads SQLite elsewhere later.
    pub(super) directory: PathBuf,
    pub(super) kind: &'static DatabaseKind,
}

/// What lies where the database should be.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Found {
    Nothing,
    Remains,
    Database { bytes: u64 },
}

impl DatabaseFile {
    /// Makes the directory if there is none, and makes it private.
    ///
    /// # Errors
    /// Fails if it cannot be used.
    pub fn prepare(directory: &Path, kind: &'static DatabaseKind) -> Result<Self, StorageError> {
        Ok(Self { directory: open_directory(directory)?, kind })
    }

    /// Returns the directory, without links.
    #[must_use]
    pub fn directory(&self) -> &Path {
        &self.directory
    }

    /// Returns the path of the database.
    #[must_use]
    pub fn path(&self) -> PathBuf {
        self.directory.join(self.kind.file)
    }

    /// Takes the lock of the database, waiting for it no longer than `wait`.
    ///
    /// # Errors
    /// Fails if another process holds it for so long, or if the directory cannot be written.
    pub fn lock(&self, sharing: Sharing, wait: Duration) -> Result<FileLock, StorageError> {
        let path = self.directory.join(self.kind.lock);
        FileLock::acquire(&path, sharing, wait)?.ok_or(StorageError::Held(path))
    }

    /// Opens the database, or a new one if there is none. The caller holds the lock alone.
    ///
    /// One that cannot be used is set aside; `salvage` copies what can be read of it into the empty one that takes its place.
    /// If that is cut short, the damaged one is still there, or the new one is complete.
    ///
    /// # Errors
    /// Fails if the directory or a file in it cannot be read and written, or if there is no room. Nothing is moved then.
    pub fn open(
        self,
        salvage: impl FnOnce(&Self, &Connection) -> rusqlite::Result<()>,
    ) -> Result<(Database, Option<SetAside>), StorageError> {
        let mut set_aside = None;
        let connection = match self.attach()? {
            Ok(connection) => connection,
            Err(why) => {
                let path = self.rebuild(salvage)?.unwrap_or_else(|| self.path());
                set_aside = Some(SetAside { path, why });
                self.attach()?.map_err(|why| StorageError::Corrupt(self.name(), why.to_string()))?
            }
        };
        Ok((Database::new(self, connection)?, set_aside))
    }

    /// Makes an empty database beside the place where it is to be. SQLite gives what it puts beside a database the
    /// permissions of the database.
    pub(super) fn create_draft(&self) -> Result<Connection, StorageError> {
        let path = self.beside(".new");
        for suffix in [""].into_iter().chain(COMPANIONS) {
            remove_file(&with_suffix(&path, suffix))?;
        }
        drop(open_private(&path, OpenMode::Overwrite, &Calls::default())?);
        let create = || {
            let connection = Connection::open_with_flags(&path, inspect::flags())?;
            // It is used when all of it is there: a half is thrown away, so there is nothing to go back to.
            connection.pragma_update_and_check(None, "journal_mode", "OFF", |_| Ok(()))?;
            connection.pragma_update(None, "synchronous", "FULL")?;
            connection.pragma_update(None, "auto_vacuum", "INCREMENTAL")?;
            connection.execute_batch("BEGIN")?;
            connection.execute_batch(self.kind.schema)?;
            connection.pragma_update(None, "application_id", self.kind.application_id)?;
            connection.pragma_update(None, "user_version", self.kind.format)?;
            connection.execute_batch("COMMIT")?;
            Ok(connection)
        };
        create().map_err(|error| self.explain(error))
    }

    /// Replaces the database by one with what `salvage` can read of it, and returns where the old one is now.
    fn rebuild(
        &self,
        salvage: impl FnOnce(&Self, &Connection) -> rusqlite::Result<()>,
    ) -> Result<Option<PathBuf>, StorageError> {
        let fresh = self.create_draft()?;
        let fill = || {
            // Of a log without a database SQLite would only remove the log.
            if let Ok(Found::Database { .. }) = self.find() {
                fresh.execute_batch("BEGIN")?;
                salvage(self, &fresh)?;
                fresh.execute_batch("COMMIT")?;
            }
            fresh.close().map_err(|(_, error)| error)
        };
        fill().map_err(|error| self.explain(error))?;
        self.replace()
    }

    /// Puts the draft, which is durable, in the place of the database. From the first step on it is decided: the process that opens
    /// the database next does the rest. Returns where the old one is now, if there was one.
    pub(super) fn replace(&self) -> Result<Option<PathBuf>, StorageError> {
        rename(&self.beside(".new"), &self.beside(".ready"))?;
        self.sync()?;
        self.finish_replacing()
    }

    pub(super) fn finish_replacing(&self) -> Result<Option<PathBuf>, StorageError> {
        let ready = self.beside(".ready");
        if !ready.exists() {
            return Ok(None);
        }
        let aside = self.set_aside()?;
        rename(&ready, &self.path())?;
        self.sync()?;
        Ok(aside)
    }

    /// Moves the database and what lies beside it out of the way and returns where it is now. SQLite would take an old log
    /// for the new database's.
    fn set_aside(&self) -> Result<Option<PathBuf>, StorageError> {
        let from = self.path();
        let to = match self.find()? {
            Found::Nothing => None,
            Found::Remains | Found::Database { .. } => Some(self.free_name()?),
        };
        for suffix in [""].into_iter().chain(COMPANIONS) {
            let from = with_suffix(&from, suffix);
            match &to {
                Some(to) => rename(&from, &with_suffix(to, suffix))?,
                None => remove_file(&from)?,
            }
        }
        remove_file(&self.beside(".suspect"))?;
        self.sync()?;
        Ok(to)
    }

    fn free_name(&self) -> Result<PathBuf, FileError> {
        let taken = |path: &Path| path.symlink_metadata().is_ok();
        (1..=MAX_SET_ASIDE)
            .map(|number| self.beside(&format!(".set-aside-{number}")))
            .find(|name| !taken(name) && !COMPANIONS.iter().any(|suffix| taken(&with_suffix(name, suffix))))
            .ok_or_else(|| {
                let why = format!("there are {MAX_SET_ASIDE} already, remove some");
                FileError::of("set aside", &self.path())(io::Error::other(why))
            })
    }

    /// Returns what lies where the database should be. Nothing is opened: closing a database that another connection
    /// of this process has open would let go of its locks.
    pub(super) fn find(&self) -> Result<Found, FileError> {
        let size = |path: &Path| match path.symlink_metadata() {
            Ok(found) if found.is_file() => Ok(Some(found.len())),
            Ok(_) => Err(FileError::NotPlain { path: path.to_owned(), what: "file" }),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
            Err(error) => Err(FileError::of("look at", path)(error)),
        };
        Ok(match (size(&self.path())?, size(&self.beside("-wal"))?) {
            (None, None | Some(0)) => Found::Nothing,
            (None | Some(0), _) => Found::Remains,
            (Some(bytes), _) => Found::Database { bytes },
        })
    }

    pub(super) fn identity(&self) -> Result<(u64, u64), StorageError> {
        match self.path().symlink_metadata() {
            Ok(found) => Ok(identity(&found)),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Err(StorageError::Moved(self.name())),
            Err(error) => Err(FileError::of("look at", &self.path())(error).into()),
        }
    }

    /// Returns the name of a file beside the database.
    pub(super) fn beside(&self, suffix: &str) -> PathBuf {
        with_suffix(&self.path(), suffix)
    }

    fn sync(&self) -> Result<(), FileError> {
        sync_directory(&self.directory, &Calls::default())
    }

    pub(super) fn name(&self) -> DatabaseName {
        DatabaseName { subject: self.kind.subject, path: self.path() }
    }

    pub(super) fn explain(&self, error: rusqlite::Error) -> StorageError {
        explain(error, self.name())
    }
}

/// Renames a file, if it is there.
fn rename(from: &Path, to: &Path) -> Result<(), FileError> {
    match fs::rename(from, to) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => Err(FileError::of("rename", from)(error)),
        _ => Ok(()),
    }
}
