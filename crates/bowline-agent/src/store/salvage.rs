//! Making the database anew of what can be read of a damaged one.

use std::collections::BTreeMap;

use bowline_state::schema::v1::SessionId;
use bowline_workspace::storage::{DatabaseFile, is_damage};
use rusqlite::{Connection, ErrorCode};

use super::error::Fault;
use super::rows::{self, Session};

/// No session has a higher number.
const MAX_NUMBER: i64 = (1 << 31) - 1;

/// What was salvaged: how many sessions are whole, and which lack their end.
#[derive(Debug, Default)]
pub(super) struct Salvaged {
    pub(super) whole: usize,
    pub(super) cut: Vec<SessionId>,
}

/// Copies every session that can be read: each up to the first record that cannot.
pub(super) fn copy(file: &DatabaseFile, fresh: &Connection, salvaged: &mut Salvaged) -> rusqlite::Result<()> {
    let damaged = match file.connect_leniently() {
        Ok(damaged) => damaged,
        Err(error) if is_unreadable(&error) => return Ok(()),
        Err(error) => return Err(error),
    };
    // A page that cannot be read stops the way through: what lies behind it is reached from the other end.
    let mut sessions = BTreeMap::new();
    for order in ["ASC", "DESC"] {
        match gather(&damaged, order, &mut sessions) {
            Err(Fault::Sql(error)) if !is_unreadable(&error) => return Err(error),
            _ => {}
        }
    }
    let mut sessions: Vec<Session> = sessions.into_values().collect();
    sessions.sort_by_key(|session| session.touched);
    for (touched, mut session) in (1..).zip(sessions) {
        session.touched = touched;
        match rows::insert_again(fresh, &session) {
            Ok(()) => {}
            Err(Fault::Sql(error)) if !is_constraint(&error) => return Err(error),
            // Two rows that claim to be the same session: the first has it. Or what is known of it cannot be kept.
            Err(_) => continue,
        }
        if records(&damaged, fresh, &session)? == session.records {
            salvaged.whole += 1;
        } else {
            salvaged.cut.push(session.meta.id);
        }
    }
    Ok(())
}

/// Reads sessions until one cannot be read.
fn gather(damaged: &Connection, order: &str, sessions: &mut BTreeMap<i64, Session>) -> Result<(), Fault> {
    let mut all = rows::sessions(damaged, order)?;
    let mut rows = all.query([])?;
    while let Some(row) = rows.next()? {
        match rows::session(row) {
            Ok(session) if (1..=MAX_NUMBER).contains(&session.number) => {
                sessions.entry(session.number).or_insert(session);
            }
            // It cannot be told whose records these are.
            Ok(_) => {}
            Err(Fault::Sql(error)) if !is_damage(&error) => return Err(error.into()),
            Err(_) => {}
        }
    }
    Ok(())
}

/// Copies the records of a session up to the first that is damaged, and returns how many.
fn records(damaged: &Connection, fresh: &Connection, session: &Session) -> rusqlite::Result<i64> {
    let mut count = 0;
    // An error of the new database is no reason to leave out what the old one has.
    let mut failed = None;
    let read = rows::each_record(damaged, session.number, |key, record| {
        if !record.is_whole() {
            return Ok(false);
        }
        match rows::insert_record(fresh, key, &record) {
            Ok(()) => count += 1,
            Err(error) => failed = Some(error),
        }
        Ok(failed.is_none())
    });
    match (failed, read) {
        (Some(error), _) => Err(error),
        (None, Err(Fault::Sql(error))) if !is_unreadable(&error) => Err(error),
        (None, _) => Ok(count),
    }
}

/// Says whether an error is about reading something that is damaged, so that what is left is worth a try.
fn is_unreadable(error: &rusqlite::Error) -> bool {
    is_damage(error) || error.sqlite_error_code() == Some(ErrorCode::Unknown)
}

fn is_constraint(error: &rusqlite::Error) -> bool {
    error.sqlite_error_code() == Some(ErrorCode::ConstraintViolation)
}
