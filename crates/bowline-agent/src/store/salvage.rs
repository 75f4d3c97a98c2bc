//! Rebuilding the database from the readable content of a damaged one.

use std::collections::BTreeMap;

use bowline_protocol::schema::v1::SessionId;
use bowline_storage::{DatabaseFile, is_damage};
use rusqlite::{Connection, ErrorCode};

use super::error::StoreTransactionError;
use super::rows::{self, SessionRow};

/// The highest possible session number.
const MAX_NUMBER: i64 = (1 << 31) - 1;

/// The outcome of a salvage: the number of complete sessions, and those that lost their end.
#[derive(Debug, Default)]
pub(super) struct SalvageReport {
    pub(super) intact: usize,
    pub(super) truncated: Vec<SessionId>,
}

/// Copies every readable session, each up to its first unreadable record.
pub(super) fn copy_readable(
    file: &DatabaseFile,
    fresh: &Connection,
    report: &mut SalvageReport,
) -> rusqlite::Result<()> {
    let damaged = match file.connect_leniently() {
        Ok(damaged) => damaged,
        Err(error) if is_unreadable(&error) => return Ok(()),
        Err(error) => return Err(error),
    };
    // An unreadable page ends a scan: the sessions behind it are reached from the other end.
    let mut sessions = BTreeMap::new();
    for order in ["ASC", "DESC"] {
        match collect_sessions(&damaged, order, &mut sessions) {
            Err(StoreTransactionError::Sql(error)) if !is_unreadable(&error) => return Err(error),
            _ => {}
        }
    }
    let mut sessions: Vec<SessionRow> = sessions.into_values().collect();
    sessions.sort_by_key(|session| session.touched);
    for (touched, mut session) in (1..).zip(sessions) {
        session.touched = touched;
        match rows::reinsert_session(fresh, &session) {
            Ok(()) => {}
            Err(StoreTransactionError::Sql(error)) if !is_constraint(&error) => return Err(error),
            // Two rows claim the same id, and the first wins; or the metadata cannot be stored.
            Err(_) => continue,
        }
        if copy_records(&damaged, fresh, &session)? == session.records {
            report.intact += 1;
        } else {
            report.truncated.push(session.meta.id);
        }
    }
    Ok(())
}

/// Reads sessions up to the first unreadable one.
fn collect_sessions(
    damaged: &Connection,
    order: &str,
    sessions: &mut BTreeMap<i64, SessionRow>,
) -> Result<(), StoreTransactionError> {
    let mut statement = rows::select_sessions(damaged, order)?;
    let mut rows = statement.query([])?;
    while let Some(row) = rows.next()? {
        match rows::read_session(row) {
            Ok(session) if (1..=MAX_NUMBER).contains(&session.number) => {
                sessions.entry(session.number).or_insert(session);
            }
            // The owner of these records is unknown.
            Ok(_) => {}
            Err(StoreTransactionError::Sql(error)) if !is_damage(&error) => return Err(error.into()),
            Err(_) => {}
        }
    }
    Ok(())
}

/// Copies the records of a session up to the first damaged one, and returns their number.
fn copy_records(damaged: &Connection, fresh: &Connection, session: &SessionRow) -> rusqlite::Result<i64> {
    let mut count = 0;
    // An error of the new database must not count as damage of the old one.
    let mut insert_error = None;
    let result = rows::for_each_record(damaged, session.number, |key, record| {
        if !record.is_intact() {
            return Ok(false);
        }
        match rows::insert_record(fresh, key, &record) {
            Ok(()) => count += 1,
            Err(error) => insert_error = Some(error),
        }
        Ok(insert_error.is_none())
    });
    match (insert_error, result) {
        (Some(error), _) => Err(error),
        (None, Err(StoreTransactionError::Sql(error))) if !is_unreadable(&error) => Err(error),
        (None, _) => Ok(count),
    }
}

/// Returns whether an error means damaged data, so that the rest is still worth reading.
fn is_unreadable(error: &rusqlite::Error) -> bool {
    is_damage(error) || error.sqlite_error_code() == Some(ErrorCode::Unknown)
}

fn is_constraint(error: &rusqlite::Error) -> bool {
    error.sqlite_error_code() == Some(ErrorCode::ConstraintViolation)
}
