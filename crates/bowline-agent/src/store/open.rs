//! Opening the database: whether what is there is ours, whole and of our format.

use std::path::Path;

use rusqlite::config::DbConfig;
use rusqlite::{Connection, ErrorCode, OpenFlags};

use super::error::{Fault, StoreError, is_damage};
use super::place::{Found, Place, make_private};
use super::{WAIT, rows};

/// "Knot" in ASCII.
const APPLICATION: i32 = 0x4b6e_6f74;
/// The format that this program reads and writes.
pub(super) const FORMAT: i32 = 1;
/// The tables of the format. SQLite keeps these texts, and they are compared when the database is opened: to change one
/// is to make a new format.
const TABLES: [&str; 3] = [
    // Numbers are below 2^31. `touched` is higher the later a session was used: unlike clocks, it never goes back. `next`
    // is the place of the next record. `sum` covers what does not change with every record.
    "CREATE TABLE sessions (
    number INTEGER PRIMARY KEY,
    id TEXT NOT NULL UNIQUE,
    cwd TEXT NOT NULL,
    touched INTEGER NOT NULL UNIQUE,
    created INTEGER NOT NULL,
    updated INTEGER NOT NULL,
    details TEXT NOT NULL,
    sum BLOB NOT NULL,
    next INTEGER NOT NULL,
    records INTEGER NOT NULL,
    bytes INTEGER NOT NULL,
    dropped INTEGER NOT NULL
) STRICT",
    "CREATE INDEX sessions_by_cwd ON sessions (cwd, touched)",
    // The number of a session in the upper half of the key, the place of the record in the lower: the records of a session
    // lie together and in order, with no index that could disagree.
    "CREATE TABLE records (
    key INTEGER PRIMARY KEY,
    kind INTEGER NOT NULL,
    codec INTEGER NOT NULL,
    size INTEGER NOT NULL,
    data BLOB NOT NULL,
    sum BLOB NOT NULL
) STRICT",
];
/// The sessions are checked whenever the database is opened. Up to this size all of it is, which takes some milliseconds;
/// of a larger one the records are when damage was met. That a process was killed is no reason: SQLite's log has checksums.
const CHECKED_BYTES: u64 = 1 << 20;
/// The log is cut back to this size once its content is in the database.
const LOG_BYTES: i64 = 8 << 20;

/// What became of opening what is there.
pub(super) enum Opened {
    Ready(Connection),
    /// It has to be made anew of what can be read.
    Unusable(String),
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Look {
    Sessions,
    Pages,
    Everything,
}

/// Opens the database, which is made if there is none. The caller has the place to itself.
pub(super) fn open(place: &Place) -> Result<Opened, StoreError> {
    place.finish_replacing()?;
    let look = match place.look()? {
        Found::Remains => return Ok(Opened::Unusable("it is empty, or only its log is there".to_owned())),
        Found::Nothing => {
            drop(create(place)?);
            place.replace()?;
            Look::Sessions
        }
        Found::Database { .. } if place.is_suspect() => Look::Everything,
        Found::Database { bytes } if bytes <= CHECKED_BYTES => Look::Pages,
        Found::Database { .. } => Look::Sessions,
    };
    let path = place.database();
    make_private(&path)?;
    let mut found = inspect(&path, look);
    if let Ok((_, Some(_))) = found {
        // A page that could not be read may look like damage: a second connection, which remembers nothing, tells.
        found = inspect(&path, look);
    }
    match found {
        Ok((connection, None)) => {
            settle(&connection).map_err(|error| Fault::Sql(error).explain(&path))?;
            place.trust()?;
            Ok(Opened::Ready(connection))
        }
        Ok((_, Some(why))) => Ok(Opened::Unusable(why)),
        Err(fault) if fault.is_damage() => {
            let StoreError::Corrupt { why, .. } = fault.explain(&path) else {
                return Err(StoreError::Stopped);
            };
            Ok(Opened::Unusable(why))
        }
        // What SQLite calls just an error, before anything was asked of our own tables, is a schema that it cannot read.
        Err(Fault::Sql(error)) if error.sqlite_error_code() == Some(ErrorCode::Unknown) => {
            Ok(Opened::Unusable(error.to_string()))
        }
        Err(fault) => Err(fault.explain(&path)),
    }
}

/// Makes an empty database beside the place where it is to be.
pub(super) fn create(place: &Place) -> Result<Connection, StoreError> {
    place.discard_draft()?;
    let path = place.draft();
    drop(super::place::open_private(&path)?);
    let make = || {
        let connection = Connection::open_with_flags(&path, flags())?;
        // It is used when all of it is there: a half is thrown away, so there is nothing to go back to, and one sync will do.
        connection.pragma_update_and_check(None, "journal_mode", "OFF", |_| Ok(()))?;
        connection.pragma_update(None, "synchronous", "OFF")?;
        connection.pragma_update(None, "auto_vacuum", "INCREMENTAL")?;
        connection.pragma_update(None, "synchronous", "FULL")?;
        connection.execute_batch("BEGIN")?;
        TABLES.iter().try_for_each(|table| connection.execute_batch(table))?;
        connection.pragma_update(None, "application_id", APPLICATION)?;
        connection.pragma_update(None, "user_version", FORMAT)?;
        connection.execute_batch("COMMIT")?;
        Ok(connection)
    };
    make().map_err(|error| Fault::Sql(error).explain(&path))
}

/// Opens a database without a change to it, not even of what its log holds.
pub(super) fn connect(path: &Path) -> rusqlite::Result<Connection> {
    let connection = Connection::open_with_flags(path, flags())?;
    connection.busy_timeout(WAIT)?;
    for (setting, on) in [
        (DbConfig::SQLITE_DBCONFIG_NO_CKPT_ON_CLOSE, true),
        (DbConfig::SQLITE_DBCONFIG_DEFENSIVE, true),
        (DbConfig::SQLITE_DBCONFIG_TRUSTED_SCHEMA, false),
    ] {
        connection.set_db_config(setting, on)?;
    }
    connection.pragma_update(None, "cell_size_check", true)?;
    Ok(connection)
}

fn flags() -> OpenFlags {
    OpenFlags::SQLITE_OPEN_READ_WRITE
        | OpenFlags::SQLITE_OPEN_NO_MUTEX
        | OpenFlags::SQLITE_OPEN_NOFOLLOW
        | OpenFlags::SQLITE_OPEN_EXRESCODE
}

/// Opens a database and says what is wrong with it, if anything is.
fn inspect(path: &Path, look: Look) -> Result<(Connection, Option<String>), Fault> {
    let connection = connect(path)?;
    let number = |name| connection.pragma_query_value(None, name, |row| row.get::<_, i32>(0));
    let (application, format) = (number("application_id")?, number("user_version")?);
    if application == APPLICATION && format > FORMAT {
        return Err(StoreError::Newer { path: path.to_owned(), found: format, known: FORMAT }.into());
    }
    let tables = connection
        .prepare("SELECT sql FROM sqlite_schema WHERE sql IS NOT NULL ORDER BY rowid")?
        .query_map([], |row| row.get(0))?
        .collect::<rusqlite::Result<Vec<String>>>()?;
    let wrong = if application != APPLICATION {
        Some(format!(
            "it was not written by Bowline, or its header is damaged (application {application:#x})"
        ))
    } else if format != FORMAT || tables != TABLES {
        Some(format!("its tables are not those of format {format}"))
    } else if connection.is_readonly("main")? {
        Some("its header forbids writing".to_owned())
    } else {
        check(&connection, look)?
    };
    Ok((connection, wrong))
}

fn check(connection: &Connection, look: Look) -> Result<Option<String>, Fault> {
    let checks: &[&str] = match look {
        Look::Sessions => &["PRAGMA integrity_check(sessions)"],
        Look::Pages => &["PRAGMA integrity_check(sessions)", "PRAGMA quick_check(1)"],
        Look::Everything => &["PRAGMA integrity_check(1)"],
    };
    for check in checks {
        let told: String = connection.query_row(check, [], |row| row.get(0))?;
        if told != "ok" {
            return Ok(Some(told.replace('\n', " ")));
        }
    }
    if look == Look::Everything { rows::verify(connection) } else { Ok(None) }
}

/// Sets what holds for as long as the connection is open.
fn settle(connection: &Connection) -> rusqlite::Result<()> {
    connection.pragma_update_and_check(None, "journal_mode", "WAL", |_| Ok(()))?;
    connection.pragma(None, "journal_size_limit", LOG_BYTES, |_| Ok(()))?;
    // Only macOS makes a difference: there a plain fsync may leave bytes in the disk's own cache.
    for pragma in ["fullfsync", "checkpoint_fullfsync"] {
        connection.pragma_update(None, pragma, true)?;
    }
    connection.set_db_config(DbConfig::SQLITE_DBCONFIG_NO_CKPT_ON_CLOSE, false)?;
    Ok(())
}

/// Says whether an error is about reading something that is damaged, so that what is left is worth a try.
pub(super) fn is_unreadable(error: &rusqlite::Error) -> bool {
    is_damage(error) || error.sqlite_error_code() == Some(ErrorCode::Unknown)
}
