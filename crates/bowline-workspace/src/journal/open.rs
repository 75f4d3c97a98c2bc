//! Opening the database of a journal: making a new one, and telling whether the one that is there can be used.

use std::path::Path;

use rusqlite::config::DbConfig;
use rusqlite::{Connection, ErrorCode, OpenFlags, TransactionBehavior};

use super::LOCK_WAIT;
use super::error::{self, JournalError, Unusable, is_corruption};
use super::place::{Found, Place};

/// "Bowl" in ASCII.
const APPLICATION_ID: i32 = 0x426f_776c;
/// The format that this Bowline reads and writes.
const FORMAT: i32 = 2;
const SCHEMA: &str = include_str!("schema.sql");
/// A database up to this size is looked at as a whole whenever it is opened, which takes some milliseconds. A larger
/// one is when damage was met while it was in use: SQLite says so, and a note was left beside the database. Being
/// killed is no reason to: what the log holds is taken over or left out by the checksum of each of its pages.
const ALWAYS_CHECKED_BYTES: u64 = 4 << 20;
/// The write-ahead log is cut back to this size once its content is in the database.
const LOG_BYTES: i64 = 16 << 20;

/// The outcome of opening what is there.
pub(super) enum Attached {
    Ready(Connection),
    Unusable(Unusable),
}

/// How much of a database is looked at when it is opened.
#[derive(Debug, Clone, Copy)]
enum Check {
    Tables,
    Pages,
    Everything,
}

/// How a journal is found, if it is only looked at.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Condition {
    /// There is none.
    Missing,
    /// It can be used.
    Usable {
        /// How large the database is.
        bytes: u64,
        /// How many changes it tells of.
        changes: u64,
    },
    /// It cannot. Whoever opens it sets it aside and begins a new one.
    Unusable(Unusable),
}

/// Looks at the journal in a directory, every page of it, and leaves it as it is: nothing is made, put right or set aside,
/// but that SQLite may leave an empty log beside one that is unusable.
///
/// It must not be open in this process: closing what was looked at lets go of the locks of those who have it open.
///
/// # Errors
/// Fails if the directory or a file in it cannot be read.
pub fn examine(directory: &Path) -> Result<Condition, JournalError> {
    let Some(place) = Place::existing(directory)? else { return Ok(Condition::Missing) };
    let bytes = match place.look()? {
        Found::Nothing => return Ok(Condition::Missing),
        Found::OrphanedLog => return Ok(Condition::Unusable(Unusable::OrphanedLog)),
        Found::Database { bytes } => bytes,
    };
    let looked = connect(&place).and_then(|mut connection| {
        let unusable = inspect(&mut connection, Check::Pages)?;
        if unusable.is_some() {
            return Ok((unusable, 0));
        }
        // The last one to close it leaves nothing beside it, as with any other user.
        connection.set_db_config(DbConfig::SQLITE_DBCONFIG_NO_CKPT_ON_CLOSE, false)?;
        let changes: i64 = connection.query_row("SELECT count(*) FROM changes", [], |row| row.get(0))?;
        Ok((None, changes))
    });
    match looked {
        Ok((None, changes)) => Ok(Condition::Usable { bytes, changes: changes.unsigned_abs() }),
        Ok((Some(why), _)) => Ok(Condition::Unusable(why)),
        Err(error) if is_corruption(&error) => Ok(Condition::Unusable(Unusable::Damaged(error.to_string()))),
        Err(error) => Err(error::explain(error, place.database())),
    }
}

/// Opens the database, or a new one if there is none. The caller holds the lock.
pub(super) fn attach(place: &Place) -> Result<Attached, JournalError> {
    let check = match place.look()? {
        Found::OrphanedLog => return Ok(Attached::Unusable(Unusable::OrphanedLog)),
        Found::Nothing => {
            place.create()?;
            Check::Tables
        }
        Found::Database { .. } if place.is_suspect() => Check::Everything,
        Found::Database { bytes } if bytes <= ALWAYS_CHECKED_BYTES => Check::Pages,
        Found::Database { .. } => Check::Tables,
    };
    place.claim()?;
    let mut connection = connect(place).map_err(|error| place.explain(error))?;
    let mut inspected = inspect(&mut connection, check);
    if let Ok(Some(Unusable::Damaged(_))) = inspected {
        // A page that could not be read may be told as damage. Whether it is, a second look tells, by a connection that
        // remembers nothing: if nothing can be read at all, that one says so.
        connection = connect(place).map_err(|error| place.explain(error))?;
        inspected = inspect(&mut connection, check);
    }
    let unusable = match inspected {
        Ok(unusable) => unusable,
        Err(error) if is_corruption(&error) => Some(Unusable::Damaged(error.to_string())),
        // What SQLite calls just an error, before anything was asked of our own tables, is a schema it cannot read.
        Err(error) if error.sqlite_error_code() == Some(ErrorCode::Unknown) => {
            Some(Unusable::Damaged(error.to_string()))
        }
        Err(error) => return Err(place.explain(error)),
    };
    if let Some(why) = unusable {
        return Ok(Attached::Unusable(why));
    }
    settings(&connection).map_err(|error| place.explain(error))?;
    place.clear_suspicion()?;
    Ok(Attached::Ready(connection))
}

fn connect(place: &Place) -> rusqlite::Result<Connection> {
    let flags = OpenFlags::SQLITE_OPEN_READ_WRITE
        | OpenFlags::SQLITE_OPEN_NO_MUTEX
        | OpenFlags::SQLITE_OPEN_NOFOLLOW
        | OpenFlags::SQLITE_OPEN_EXRESCODE;
    let connection = Connection::open_with_flags(place.database(), flags)?;
    connection.busy_timeout(LOCK_WAIT)?;
    // Until it is known to be ours and whole, nothing may be written to it, not even what its log holds.
    connection.set_db_config(DbConfig::SQLITE_DBCONFIG_NO_CKPT_ON_CLOSE, true)?;
    connection.set_db_config(DbConfig::SQLITE_DBCONFIG_TRUSTED_SCHEMA, false)?;
    connection.set_db_config(DbConfig::SQLITE_DBCONFIG_DEFENSIVE, true)?;
    Ok(connection)
}

/// Returns what makes the database unusable, if anything does, and gives an empty one its tables.
fn inspect(connection: &mut Connection, check: Check) -> rusqlite::Result<Option<Unusable>> {
    connection.pragma_update(None, "cell_size_check", true)?;
    let application = pragma(connection, "application_id")?;
    let format = pragma(connection, "user_version")?;
    let tables = tables(connection)?;
    // A header from the future, or a damaged one: the file itself was found to be writable.
    if connection.is_readonly("main")? {
        return Ok(Some(Unusable::Damaged("its header forbids writing".to_owned())));
    }
    if application == 0 && format == 0 && tables.is_empty() {
        create(connection)?;
        return Ok(None);
    }
    if application != APPLICATION_ID {
        return Ok(Some(Unusable::Foreign { found: application }));
    }
    if format > FORMAT {
        return Ok(Some(Unusable::Newer { found: format, known: FORMAT }));
    }
    if format != FORMAT || tables != expected_tables()? {
        return Ok(Some(Unusable::Tables { format }));
    }
    let verdict = match check {
        Check::Tables => return Ok(None),
        Check::Pages => "PRAGMA quick_check(1)",
        Check::Everything => "PRAGMA integrity_check(1)",
    };
    let told: String = connection.query_row(verdict, [], |row| row.get(0))?;
    if told == "ok" {
        return Ok(None);
    }
    let told = told.replace('\n', " ");
    match failed_call(&told) {
        Some(code) => Err(rusqlite::Error::SqliteFailure(rusqlite::ffi::Error::new(code), Some(told))),
        None => Ok(Some(Unusable::Damaged(told))),
    }
}

/// Returns the code in a check's words if they tell of a call that failed, and not of the database.
fn failed_call(told: &str) -> Option<i32> {
    use rusqlite::ffi::{SQLITE_CANTOPEN, SQLITE_FULL, SQLITE_IOERR, SQLITE_NOMEM};
    let (_, code) = told.split_once("error code")?;
    let digits = code.trim_start_matches(['=', ' ']).split(|c: char| !c.is_ascii_digit()).next()?;
    let code: i32 = digits.parse().ok()?;
    // The lower byte is the kind, the rest says more of it.
    [SQLITE_IOERR, SQLITE_NOMEM, SQLITE_FULL, SQLITE_CANTOPEN].contains(&(code & 0xff)).then_some(code)
}

fn create(connection: &mut Connection) -> rusqlite::Result<()> {
    // Both are fixed by the first page that is written.
    connection.pragma_update(None, "auto_vacuum", "INCREMENTAL")?;
    log_ahead(connection)?;
    connection.pragma_update(None, "synchronous", "FULL")?;
    let transaction = connection.transaction_with_behavior(TransactionBehavior::Immediate)?;
    transaction.execute_batch(SCHEMA)?;
    transaction.pragma_update(None, "application_id", APPLICATION_ID)?;
    transaction.pragma_update(None, "user_version", FORMAT)?;
    transaction.commit()
}

fn settings(connection: &Connection) -> rusqlite::Result<()> {
    log_ahead(connection)?;
    connection.pragma(None, "journal_size_limit", LOG_BYTES, |_| Ok(()))?;
    // Only macOS knows the difference: there a plain fsync may leave the bytes in the disk's own cache.
    connection.pragma_update(None, "fullfsync", true)?;
    connection.pragma_update(None, "checkpoint_fullfsync", true)?;
    connection.set_db_config(DbConfig::SQLITE_DBCONFIG_NO_CKPT_ON_CLOSE, false)?;
    Ok(())
}

fn log_ahead(connection: &Connection) -> rusqlite::Result<()> {
    connection.pragma_update_and_check(None, "journal_mode", "WAL", |_| Ok(()))
}

fn pragma(connection: &Connection, name: &str) -> rusqlite::Result<i32> {
    connection.pragma_query_value(None, name, |row| row.get(0))
}

/// Returns the text of every table and index.
fn tables(connection: &Connection) -> rusqlite::Result<Vec<(String, Option<String>)>> {
    let mut statement = connection.prepare("SELECT name, sql FROM sqlite_schema ORDER BY name")?;
    statement.query_map([], |row| Ok((row.get(0)?, row.get(1)?)))?.collect()
}

fn expected_tables() -> rusqlite::Result<Vec<(String, Option<String>)>> {
    let model = Connection::open_in_memory()?;
    model.execute_batch(SCHEMA)?;
    tables(&model)
}
