//! A SQLite database that several processes share, open: reading, and changing all of something or nothing.

use std::path::PathBuf;

use rusqlite::{Connection, Transaction, TransactionBehavior};

use super::database_file::DatabaseFile;
use super::error::{Fault, StorageError, Unusable};
use super::private::{OpenMode, open_private};
use crate::calls::Calls;

/// What tells one kind of database from others.
#[derive(Debug)]
pub struct DatabaseKind {
    /// How errors name it, before its path: `the journal`.
    pub subject: &'static str,
    /// The name of the file.
    pub file: &'static str,
    /// The name of its lock file.
    pub lock: &'static str,
    /// The application id in the header.
    pub application_id: i32,
    /// The format that this program reads and writes.
    pub format: i32,
    /// The tables of the format. SQLite keeps these texts, and they are compared when a database is opened: to change one is
    /// to make a new format.
    pub schema: &'static str,
    /// What is done with a newer format.
    pub newer: Newer,
    /// A table that is checked whenever the database is opened, however large that is.
    pub checked_table: Option<&'static str>,
    /// Says what is wrong with the rows that SQLite cannot tell. It is asked when damage was met.
    pub verify: fn(&Connection) -> rusqlite::Result<Option<String>>,
}

/// What is done with a database that a newer Bowline wrote.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Newer {
    /// It is set aside, and a new one is begun.
    SetAside,
    /// It is left alone.
    Refuse,
}

/// When a transaction is safe.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Durability {
    /// When the process is killed. If the machine stops, it may be undone as a whole, with all after it.
    Soon,
    /// Also when the machine stops, and all that came before is too.
    Now,
}

/// A database that could not be used.
#[derive(Debug)]
pub struct SetAside {
    /// Where it is now; what SQLite kept beside it has the same name with an ending.
    pub path: PathBuf,
    /// What is wrong with it.
    pub why: Unusable,
}

/// A database that is open.
#[derive(Debug)]
pub struct Database {
    file: DatabaseFile,
    // The file that was opened: another one may be in its place later.
    identity: (u64, u64),
    connection: Connection,
    durability: Option<Durability>,
}

impl Database {
    pub(super) fn new(file: DatabaseFile, connection: Connection) -> Result<Self, StorageError> {
        Ok(Self { identity: file.identity()?, file, connection, durability: None })
    }

    /// Returns where it is.
    #[must_use]
    pub fn file(&self) -> &DatabaseFile {
        &self.file
    }

    /// Returns the connection, for what is no transaction of its own.
    #[must_use]
    pub fn connection(&self) -> &Connection {
        &self.connection
    }

    /// Reads something; the inner error is the caller's own.
    ///
    /// # Errors
    /// Fails if the database cannot be read, or is another one by now.
    pub fn read<T, E>(
        &self,
        body: impl FnOnce(&Connection) -> Result<T, Fault<E>>,
    ) -> Result<Result<T, E>, StorageError> {
        self.check_identity()?;
        self.explain(body(&self.connection))
    }

    /// Changes something, all of it or nothing; the inner error is the caller's own, and nothing is changed then.
    ///
    /// # Errors
    /// Fails if the database cannot be written, or is another one by now. Nothing is changed then.
    pub fn write<T, E>(
        &mut self,
        durability: Durability,
        body: impl FnOnce(&Transaction<'_>) -> Result<T, Fault<E>>,
    ) -> Result<Result<T, E>, StorageError> {
        self.check_identity()?;
        let written = self.transact(durability, body);
        self.explain(written)
    }

    fn transact<T, E>(
        &mut self,
        durability: Durability,
        body: impl FnOnce(&Transaction<'_>) -> Result<T, Fault<E>>,
    ) -> Result<T, Fault<E>> {
        if self.durability != Some(durability) {
            // It cannot be changed within a transaction.
            let level = if durability == Durability::Now { "FULL" } else { "NORMAL" };
            self.connection.pragma_update(None, "synchronous", level)?;
            self.durability = Some(durability);
        }
        let transaction = self.connection.transaction_with_behavior(TransactionBehavior::Immediate)?;
        let value = body(&transaction)?;
        transaction.commit()?;
        Ok(value)
    }

    /// Makes sure that the database is still the file that was opened. SQLite would go on writing to one that was moved
    /// or removed, and the data would never be seen again.
    fn check_identity(&self) -> Result<(), StorageError> {
        if self.file.identity()? == self.identity {
            return Ok(());
        }
        Err(StorageError::Moved(self.file.name()))
    }

    /// Says what an error means, and leaves a note for the next process that opens a damaged database.
    fn explain<T, E>(&self, outcome: Result<T, Fault<E>>) -> Result<Result<T, E>, StorageError> {
        let error = match outcome {
            Ok(value) => return Ok(Ok(value)),
            Err(Fault::Known(error)) => return Ok(Err(error)),
            Err(Fault::Damaged(why)) => StorageError::Corrupt(self.file.name(), why),
            Err(Fault::Sql(error)) => self.file.explain(error),
        };
        if let StorageError::Corrupt(..) = error {
            // Without the note a large database is not checked as a whole when it is opened. Nothing is lost by that, and
            // the damage itself is what the caller has to hear of.
            drop(open_private(&self.file.beside(".suspect"), OpenMode::Overwrite, &Calls::default()));
        }
        Err(error)
    }
}
