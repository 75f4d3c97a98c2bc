//! An open SQLite database that several processes share: reads, and atomic writes.

use std::path::PathBuf;

use rusqlite::{Connection, Transaction, TransactionBehavior};

use super::database_file::DatabaseFile;
use super::error::{StorageError, TransactionError, UnusableReason};
use super::private_file::{OpenMode, open_private};
use crate::disk_calls::DiskCalls;

/// The description of one kind of database.
#[derive(Debug)]
pub struct DatabaseKind {
    /// Its name in errors, before its path: `the journal`.
    pub subject: &'static str,
    /// The name of the file.
    pub file: &'static str,
    /// The name of its lock file.
    pub lock: &'static str,
    /// The application id in the header.
    pub application_id: i32,
    /// The oldest format that this program reads.
    pub format: i32,
    /// The tables of that format. SQLite stores these texts, and they are compared when a database is opened: changing
    /// one makes a new format.
    pub schema: &'static str,
    /// The statements that turn each format into the next. A database in an older format gets the newest when it is
    /// opened.
    pub migrations: &'static [&'static str],
    /// How to handle a newer format.
    pub newer_format: NewerFormatPolicy,
    /// A table that is checked on every open, regardless of the database's size.
    pub checked_table: Option<&'static str>,
    /// Returns what is wrong with the rows beyond what SQLite can detect. Called after damage was found.
    pub verify: fn(&Connection) -> rusqlite::Result<Option<String>>,
}

impl DatabaseKind {
    /// Returns the format that this program writes.
    #[must_use]
    pub fn newest_format(&self) -> i32 {
        (self.format..).nth(self.migrations.len()).unwrap_or(self.format)
    }

    /// Creates the tables of a format.
    pub(super) fn create_tables(&self, connection: &Connection, format: i32) -> rusqlite::Result<()> {
        connection.execute_batch(self.schema)?;
        self.run_migrations(connection, self.format, format)
    }

    /// Turns the tables of a format into those of a newer one.
    pub(super) fn run_migrations(&self, connection: &Connection, from: i32, to: i32) -> rusqlite::Result<()> {
        let formats = (self.format..to).zip(self.migrations);
        formats.filter(|(format, _)| *format >= from).try_for_each(|(_, sql)| connection.execute_batch(sql))
    }
}

/// How to handle a database that a newer Bowline wrote.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum NewerFormatPolicy {
    /// Set it aside, and create a new one.
    SetAside,
    /// Leave it alone.
    Refuse,
}

/// The durability of a transaction.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Durability {
    /// Survives the process being killed. If the machine crashes, it may be lost as a whole, with all later ones.
    Deferred,
    /// Survives a machine crash as well, together with all earlier transactions.
    Synced,
}

/// An unusable database that was set aside.
#[derive(Debug)]
pub struct SetAsideDatabase {
    /// Its new path; SQLite's files beside it have the same name with a suffix.
    pub path: PathBuf,
    /// What is wrong with it.
    pub why: UnusableReason,
}

/// An open database.
#[derive(Debug)]
pub struct Database {
    file: DatabaseFile,
    // The file that was opened: another one may take its path later.
    identity: (u64, u64),
    connection: Connection,
    durability: Option<Durability>,
}

impl Database {
    pub(super) fn new(file: DatabaseFile, connection: Connection) -> Result<Self, StorageError> {
        Ok(Self { identity: file.identity()?, file, connection, durability: None })
    }

    /// Returns its location.
    #[must_use]
    pub fn file(&self) -> &DatabaseFile {
        &self.file
    }

    /// Returns the connection, for statements outside of a transaction.
    #[must_use]
    pub fn connection(&self) -> &Connection {
        &self.connection
    }

    /// Reads from the database; the inner error is the caller's own.
    ///
    /// # Errors
    /// Fails if the database cannot be read, or was replaced.
    pub fn read<T, E>(
        &self,
        body: impl FnOnce(&Connection) -> Result<T, TransactionError<E>>,
    ) -> Result<Result<T, E>, StorageError> {
        self.check_identity()?;
        self.to_storage_error(body(&self.connection))
    }

    /// Runs a transaction; the inner error is the caller's own, and rolls it back.
    ///
    /// # Errors
    /// Fails if the database cannot be written, or was replaced. Nothing is changed then.
    pub fn write<T, E>(
        &mut self,
        durability: Durability,
        body: impl FnOnce(&Transaction<'_>) -> Result<T, TransactionError<E>>,
    ) -> Result<Result<T, E>, StorageError> {
        self.check_identity()?;
        let written = self.transact(durability, body);
        self.to_storage_error(written)
    }

    fn transact<T, E>(
        &mut self,
        durability: Durability,
        body: impl FnOnce(&Transaction<'_>) -> Result<T, TransactionError<E>>,
    ) -> Result<T, TransactionError<E>> {
        if self.durability != Some(durability) {
            // The level cannot be changed within a transaction.
            let level = if durability == Durability::Synced { "FULL" } else { "NORMAL" };
            self.connection.pragma_update(None, "synchronous", level)?;
            self.durability = Some(durability);
        }
        let transaction = self.connection.transaction_with_behavior(TransactionBehavior::Immediate)?;
        let value = body(&transaction)?;
        transaction.commit()?;
        Ok(value)
    }

    /// Checks that the database is still the file that was opened. SQLite would keep writing to one that was moved or
    /// removed, and the data would be lost.
    fn check_identity(&self) -> Result<(), StorageError> {
        if self.file.identity()? == self.identity {
            return Ok(());
        }
        Err(StorageError::Moved(self.file.database_name()))
    }

    /// Converts an error, and leaves a marker for the next process that opens a damaged database.
    fn to_storage_error<T, E>(
        &self,
        outcome: Result<T, TransactionError<E>>,
    ) -> Result<Result<T, E>, StorageError> {
        let error = match outcome {
            Ok(value) => return Ok(Ok(value)),
            Err(TransactionError::Caller(error)) => return Ok(Err(error)),
            Err(TransactionError::Damaged(why)) => StorageError::Corrupt(self.file.database_name(), why),
            Err(TransactionError::Sql(error)) => self.file.to_storage_error(error),
        };
        if let StorageError::Corrupt(..) = error {
            // Without the marker a large database is not checked completely when it is opened. That loses nothing, and
            // the damage itself is what must be reported to the caller.
            drop(open_private(
                &self.file.sibling_path(".suspect"),
                OpenMode::Overwrite,
                &DiskCalls::default(),
            ));
        }
        Err(error)
    }
}
