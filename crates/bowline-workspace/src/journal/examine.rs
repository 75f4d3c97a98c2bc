//! The database kind of a journal, and examining a journal without opening it.

use std::path::Path;

use super::error::JournalError;
use super::live_sessions::RunningSessions;
use super::{ChangeFilter, rows};
use bowline_history::changes::Change;
use bowline_storage::{DatabaseFile, DatabaseKind, NewerFormatPolicy, UnusableReason};

/// The database of a journal.
pub(super) static JOURNAL_DATABASE: DatabaseKind = DatabaseKind {
    subject: "the journal",
    file: super::FILE_NAME,
    lock: "lock",
    // "Bowl" in ASCII.
    application_id: 0x426f_776c,
    format: 2,
    schema: include_str!("schema.sql"),
    migrations: &[include_str!("tails.sql"), include_str!("git_objects.sql"), include_str!("moves.sql")],
    // Work continues without the history.
    newer_format: NewerFormatPolicy::SetAside,
    checked_table: None,
    verify: |_| Ok(None),
};

/// The condition of a journal that was examined.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum JournalCondition {
    /// There is no journal.
    Missing,
    /// It can be used.
    Usable {
        /// How many changes it records.
        changes: u64,
    },
    /// It is unusable. Opening it sets it aside and creates a new one.
    Unusable(UnusableReason),
}

/// Examines the journal in a directory completely, without changing it. It must not be open in this process.
///
/// # Errors
/// Fails if the directory or a file in it cannot be read.
pub fn examine(directory: &Path) -> Result<JournalCondition, JournalError> {
    let found = DatabaseFile::examine(directory, &JOURNAL_DATABASE, |connection| {
        connection.query_row("SELECT count(*) FROM changes", [], |row| row.get::<_, i64>(0))
    })?;
    Ok(match found {
        None => JournalCondition::Missing,
        Some(Ok(changes)) => JournalCondition::Usable { changes: changes.unsigned_abs() },
        Some(Err(why)) => JournalCondition::Unusable(why),
    })
}

/// Returns the newest changes of the journal in a directory, oldest first, without opening or changing it. It must not
/// be open in this process. A missing or unusable journal has none.
///
/// # Errors
/// Fails if the journal cannot be read.
pub fn recent_changes(directory: &Path, limit: usize) -> Result<Vec<Change>, JournalError> {
    let filter = ChangeFilter { limit: Some(limit), ..ChangeFilter::default() };
    let found = DatabaseFile::examine(directory, &JOURNAL_DATABASE, |connection| {
        Ok(rows::list_changes(connection, &filter))
    })?;
    match found {
        Some(Ok(Ok(entries))) => Ok(entries.into_iter().map(|entry| entry.change).collect()),
        // A damaged row makes the journal unusable.
        Some(Ok(Err(_)) | Err(_)) | None => Ok(Vec::new()),
    }
}

/// Returns whether a session of the journal in a directory is running, in any process.
///
/// # Errors
/// Fails if the directory cannot be read.
pub fn is_in_use(directory: &Path) -> Result<bool, JournalError> {
    Ok(directory.is_dir() && !RunningSessions::find(directory)?.is_empty())
}
