//! Making the database anew of what can be read of a damaged one.

use std::collections::BTreeMap;

use bowline_state::schema::v1::SessionId;
use rusqlite::Connection;
use rusqlite::config::DbConfig;

use super::error::{Fault, Notice, StoreError};
use super::open;
use super::place::{Found, Place};
use super::rows::{self, Session};

/// No session has a higher number.
const MAX_NUMBER: i64 = (1 << 31) - 1;

/// Keeps a copy of a database that cannot be used, and puts another in its place that has every session that can be read:
/// each up to the first record that cannot. The caller has the place to itself, and nobody has the database open that
/// would not notice.
///
/// If it is cut short, the damaged database is still there, or the new one is complete.
pub(super) fn rebuild(place: &Place, why: String) -> Result<Notice, StoreError> {
    let fresh = open::create(place)?;
    let draft = place.draft();
    let mut taken = Taken::default();
    // Of a log without a database SQLite would only remove the log.
    if let Found::Database { .. } = place.look()? {
        let copied = fresh
            .execute_batch("BEGIN")
            .map_err(Fault::from)
            .and_then(|()| copy(place, &fresh, &mut taken))
            .and_then(|()| Ok(fresh.execute_batch("COMMIT")?));
        copied.map_err(|fault| fault.explain(&draft))?;
    }
    fresh.close().map_err(|(_, error)| Fault::from(error).explain(&draft))?;
    let path = place.set_aside()?;
    place.replace()?;
    place.trust()?;
    Ok(Notice::SetAside { path, why, whole: taken.whole, cut: taken.cut })
}

#[derive(Default)]
struct Taken {
    whole: usize,
    cut: Vec<SessionId>,
}

fn copy(place: &Place, fresh: &Connection, taken: &mut Taken) -> Result<(), Fault> {
    let lenient = |damaged: Connection| {
        // Otherwise SQLite reads nothing of a file that is shorter than its header says. Nothing is written here.
        damaged.set_db_config(DbConfig::SQLITE_DBCONFIG_DEFENSIVE, false)?;
        damaged.set_db_config(DbConfig::SQLITE_DBCONFIG_WRITABLE_SCHEMA, true)?;
        Ok(damaged)
    };
    let damaged = match open::connect(&place.database()).and_then(lenient) {
        Ok(damaged) => damaged,
        Err(error) if open::is_unreadable(&error) => return Ok(()),
        Err(error) => return Err(error.into()),
    };
    // A page that cannot be read stops the way through: what lies behind it is reached from the other end.
    let mut sessions = BTreeMap::new();
    for order in ["ASC", "DESC"] {
        match gather(&damaged, order, &mut sessions) {
            Err(Fault::Sql(error)) if !open::is_unreadable(&error) => return Err(error.into()),
            _ => {}
        }
    }
    let mut sessions: Vec<Session> = sessions.into_values().collect();
    sessions.sort_by_key(|session| session.touched);
    for (touched, mut session) in (1..).zip(sessions) {
        session.touched = touched;
        match rows::insert_again(fresh, &session) {
            Ok(()) => {}
            // Two rows that claim to be the same session: the first has it.
            Err(Fault::Sql(error)) if is_constraint(&error) => continue,
            Err(fault) => return Err(fault),
        }
        if records(&damaged, fresh, &session)? == session.records {
            taken.whole += 1;
        } else {
            taken.cut.push(session.meta.id);
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
            Err(fault) if fault.is_damage() => {}
            Err(fault) => return Err(fault),
        }
    }
    Ok(())
}

/// Copies the records of a session up to the first that is damaged, and returns how many.
fn records(damaged: &Connection, fresh: &Connection, session: &Session) -> Result<i64, Fault> {
    let mut count = 0;
    // An error of the new database is no reason to leave out what the old one has.
    let mut failed = None;
    let read = rows::each_record(damaged, session.number, |key, record| {
        if !record.is_whole() {
            return Ok(false);
        }
        match rows::insert_record(fresh, key, &record) {
            Ok(()) => count += 1,
            Err(fault) => failed = Some(fault),
        }
        Ok(failed.is_none())
    });
    match (failed, read) {
        (Some(fault), _) => Err(fault),
        (None, Err(Fault::Sql(error))) if !open::is_unreadable(&error) => Err(error.into()),
        (None, _) => Ok(count),
    }
}

fn is_constraint(error: &rusqlite::Error) -> bool {
    error.sqlite_error_code() == Some(rusqlite::ErrorCode::ConstraintViolation)
}
