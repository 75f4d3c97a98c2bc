//! The kind of database that a journal is, and looking at one without opening it.

use std::path::Path;

use super::error::JournalError;
use super::live::Running;
use crate::storage::{DatabaseFile, DatabaseKind, Newer, Unusable};

/// The database of a journal.
pub(super) static JOURNAL: DatabaseKind = DatabaseKind {
    subject: "the journal",
    file: super::FILE_NAME,
    lock: "lock",
    // "Bowl" in ASCII.
    application_id: 0x426f_776c,
    format: 2,
    schema: include_str!("schema.sql"),
    // Work goes on without the history.
    newer: Newer::SetAside,
    checked_table: None,
    verify: |_| Ok(None),
};

/// How a journal is found, if it is only looked at.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Condition {
    /// There is none.
    Missing,
    /// It can be used.
    Usable {
        /// How many changes it tells of.
        changes: u64,
    },
    /// It cannot. Whoever opens it sets it aside and begins a new one.
    Unusable(Unusable),
}

/// Looks at the journal in a directory, every page of it, and leaves it as it is. It must not be open in this process.
///
/// # Errors
/// Fails if the directory or a file in it cannot be read.
pub fn examine(directory: &Path) -> Result<Condition, JournalError> {
    let found = DatabaseFile::examine(directory, &JOURNAL, |connection| {
        connection.query_row("SELECT count(*) FROM changes", [], |row| row.get::<_, i64>(0))
    })?;
    Ok(match found {
        None => Condition::Missing,
        Some(Ok(changes)) => Condition::Usable { changes: changes.unsigned_abs() },
        Some(Err(why)) => Condition::Unusable(why),
    })
}

/// Says whether a session is running, in whatever process, that the journal in a directory is of.
///
/// # Errors
/// Fails if the directory cannot be read.
pub fn is_in_use(directory: &Path) -> Result<bool, JournalError> {
    Ok(directory.is_dir() && !Running::find(directory)?.is_empty())
}
