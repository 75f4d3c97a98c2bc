//! Inspection of a database before it is opened: whether it is ours, intact and of our format.

use std::io;
use std::path::Path;
use std::time::Duration;

use rusqlite::config::DbConfig;
use rusqlite::{Connection, ErrorCode, OpenFlags, TransactionBehavior};
use rustix::fs::{Access, access};
use rustix::io::Errno;

use super::database::{DatabaseKind, NewerFormatPolicy};
use super::database_file::{DatabaseFile, DatabasePresence};
use super::error::{FileError, StorageError, UnusableReason, is_damage};
use super::private_file::{make_private, remove_file};
use crate::disk_calls::DiskCalls;

/// How long to wait for another process to finish a transaction.
const BUSY_TIMEOUT: Duration = Duration::from_secs(10);
/// A database up to this size is checked completely on every open, which takes some milliseconds. A larger one is
/// checked if damage was found while it was in use: SQLite reports it, and a marker was left beside the database. A
/// killed process is no reason to check: each page of the log has a checksum, by which it is applied or ignored.
const ALWAYS_CHECKED_BYTES: u64 = 4 << 20;
/// The write-ahead log is truncated to this size once its content is in the database.
const WAL_BYTES: i64 = 16 << 20;

/// How thoroughly a database is checked when it is opened.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum CheckLevel {
    Tables,
    Pages,
    Everything,
}

impl DatabaseFile {
    /// Examines the database in a directory completely, without changing it: nothing is created, repaired or set aside,
    /// except that SQLite may leave an empty log beside an unusable one. If it is usable, `look` may read from it.
    /// Returns `None` if there is no database.
    ///
    /// It must not be open in this process: closing the examined file releases the locks of its other connections.
    ///
    /// # Errors
    /// Fails if the directory or a file in it cannot be read.
    pub fn examine<T>(
        directory: &Path,
        kind: &'static DatabaseKind,
        look: impl FnOnce(&Connection) -> rusqlite::Result<T>,
    ) -> Result<Option<Result<T, UnusableReason>>, StorageError> {
        let file = match directory.canonicalize() {
            Ok(directory) => Self { directory, kind },
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
            Err(error) => return Err(FileError::io_error("find", directory)(error).into()),
        };
        let judged = match file.presence()? {
            DatabasePresence::Absent => return Ok(None),
            DatabasePresence::Leftovers => Err(UnusableReason::Leftovers),
            DatabasePresence::Database { .. } => file.open_checked(CheckLevel::Pages)?,
        };
        let read = |connection: Connection| {
            // The last connection to close removes the files beside it, as usual.
            connection.set_db_config(DbConfig::SQLITE_DBCONFIG_NO_CKPT_ON_CLOSE, false)?;
            look(&connection)
        };
        Ok(Some(match judged {
            Ok(connection) => Ok(read(connection).map_err(|error| file.to_storage_error(error))?),
            Err(why) => Err(why),
        }))
    }

    /// Opens a damaged database to read what is readable.
    ///
    /// # Errors
    /// Fails as SQLite does.
    pub fn connect_leniently(&self) -> rusqlite::Result<Connection> {
        let connection = self.connect()?;
        // Otherwise SQLite reads nothing from a file that is shorter than its header says. Nothing is written here.
        connection.set_db_config(DbConfig::SQLITE_DBCONFIG_DEFENSIVE, false)?;
        connection.set_db_config(DbConfig::SQLITE_DBCONFIG_WRITABLE_SCHEMA, true)?;
        Ok(connection)
    }

    /// Opens the database, or returns why it must be rebuilt.
    pub(super) fn open_or_create(&self) -> Result<Result<Connection, UnusableReason>, StorageError> {
        self.finish_replacement()?;
        let is_suspect = self.sibling_path(".suspect").exists();
        let check = match self.presence()? {
            DatabasePresence::Leftovers => return Ok(Err(UnusableReason::Leftovers)),
            DatabasePresence::Absent => {
                drop(self.create_draft()?);
                self.replace()?;
                CheckLevel::Tables
            }
            DatabasePresence::Database { .. } if is_suspect => CheckLevel::Everything,
            DatabasePresence::Database { bytes } if bytes <= ALWAYS_CHECKED_BYTES => CheckLevel::Pages,
            DatabasePresence::Database { .. } => CheckLevel::Tables,
        };
        let path = self.path();
        make_private(&path, &DiskCalls::default())?;
        access(&path, Access::READ_OK | Access::WRITE_OK).map_err(|error| match error {
            Errno::ACCESS | Errno::ROFS => StorageError::ReadOnly(self.database_name()),
            other => FileError::io_error("open", &path)(other.into()).into(),
        })?;
        let mut judged = self.open_checked(check)?;
        if let Ok(connection) = &mut judged {
            configure(connection)
                .and_then(|()| self.migrate(connection))
                .map_err(|error| self.to_storage_error(error))?;
            remove_file(&self.sibling_path(".suspect"))?;
        }
        Ok(judged)
    }

    /// Opens the database, or returns why it is unusable, without changing it.
    fn open_checked(&self, check: CheckLevel) -> Result<Result<Connection, UnusableReason>, StorageError> {
        let mut inspected = self.inspect(check);
        if let Ok((_, Some(UnusableReason::Damaged(_)))) = inspected {
            // SQLite may report an unreadable page as damage. A second inspection, on a connection with an empty cache,
            // decides: if nothing can be read at all, it reports an I/O error.
            inspected = self.inspect(check);
        }
        match inspected {
            Ok((connection, None)) => Ok(Ok(connection)),
            Ok((_, Some(UnusableReason::Newer { found, known })))
                if self.kind.newer_format == NewerFormatPolicy::Refuse =>
            {
                Err(StorageError::Newer(self.database_name(), found, known))
            }
            Ok((_, Some(why))) => Ok(Err(why)),
            // A generic SQLite error, before our own tables are queried, means an unreadable schema.
            Err(error) if is_damage(&error) || error.sqlite_error_code() == Some(ErrorCode::Unknown) => {
                Ok(Err(UnusableReason::Damaged(error.to_string())))
            }
            Err(error) => Err(self.to_storage_error(error)),
        }
    }

    /// Opens the database without changing it, not even by checkpointing its log.
    fn connect(&self) -> rusqlite::Result<Connection> {
        let connection = Connection::open_with_flags(self.path(), open_flags())?;
        connection.busy_timeout(BUSY_TIMEOUT)?;
        connection.set_db_config(DbConfig::SQLITE_DBCONFIG_NO_CKPT_ON_CLOSE, true)?;
        connection.set_db_config(DbConfig::SQLITE_DBCONFIG_TRUSTED_SCHEMA, false)?;
        connection.set_db_config(DbConfig::SQLITE_DBCONFIG_DEFENSIVE, true)?;
        connection.pragma_update(None, "cell_size_check", true)?;
        Ok(connection)
    }

    /// Opens the database and returns why it is unusable, if it is.
    fn inspect(&self, check: CheckLevel) -> rusqlite::Result<(Connection, Option<UnusableReason>)> {
        let connection = self.connect()?;
        let number = |name| connection.pragma_query_value(None, name, |row| row.get::<_, i32>(0));
        let (application, format) = (number("application_id")?, number("user_version")?);
        let tables = read_schema(&connection)?;
        let known = self.kind.newest_format();
        let unusable = if application != self.kind.application_id {
            Some(UnusableReason::Foreign { found: application })
        } else if format > known {
            Some(UnusableReason::Newer { found: format, known })
        } else if format < self.kind.format || tables != self.expected_tables(format)? {
            Some(UnusableReason::SchemaMismatch { format })
        } else if connection.is_readonly("main")? {
            // The header is from a newer version or damaged: the file itself is writable.
            Some(UnusableReason::Damaged("its header forbids writing".to_owned()))
        } else {
            self.run_check(&connection, check)?.map(UnusableReason::Damaged)
        };
        Ok((connection, unusable))
    }

    fn run_check(&self, connection: &Connection, check: CheckLevel) -> rusqlite::Result<Option<String>> {
        let table = self.kind.checked_table.map(|table| format!("integrity_check({table})"));
        let whole = match check {
            CheckLevel::Tables => None,
            CheckLevel::Pages => Some("quick_check(1)".to_owned()),
            CheckLevel::Everything => Some("integrity_check(1)".to_owned()),
        };
        for check in table.into_iter().chain(whole) {
            let told: String = connection.query_row(&format!("PRAGMA {check}"), [], |row| row.get(0))?;
            if told != "ok" {
                let told = told.replace('\n', " ");
                return match failed_call_code(&told) {
                    Some(code) => {
                        Err(rusqlite::Error::SqliteFailure(rusqlite::ffi::Error::new(code), Some(told)))
                    }
                    None => Ok(Some(told)),
                };
            }
        }
        if check == CheckLevel::Everything { (self.kind.verify)(connection) } else { Ok(None) }
    }

    fn expected_tables(&self, format: i32) -> rusqlite::Result<Vec<(String, Option<String>)>> {
        let model = Connection::open_in_memory()?;
        self.kind.create_tables(&model, format)?;
        read_schema(&model)
    }

    /// Gives a database in an older format the newest, all at once.
    fn migrate(&self, connection: &mut Connection) -> rusqlite::Result<()> {
        let newest = self.kind.newest_format();
        let format = connection.pragma_query_value(None, "user_version", |row| row.get(0))?;
        if format == newest {
            return Ok(());
        }
        let transaction = connection.transaction_with_behavior(TransactionBehavior::Immediate)?;
        self.kind.run_migrations(&transaction, format, newest)?;
        transaction.pragma_update(None, "user_version", newest)?;
        transaction.commit()
    }
}

/// Applies the settings that last as long as the connection.
fn configure(connection: &Connection) -> rusqlite::Result<()> {
    connection.pragma_update_and_check(None, "journal_mode", "WAL", |_| Ok(()))?;
    connection.pragma(None, "journal_size_limit", WAL_BYTES, |_| Ok(()))?;
    // Only macOS makes a difference: there a plain fsync may leave the bytes in the disk's cache.
    connection.pragma_update(None, "fullfsync", true)?;
    connection.pragma_update(None, "checkpoint_fullfsync", true)?;
    connection.set_db_config(DbConfig::SQLITE_DBCONFIG_NO_CKPT_ON_CLOSE, false)?;
    Ok(())
}

pub(super) fn open_flags() -> OpenFlags {
    OpenFlags::SQLITE_OPEN_READ_WRITE
        | OpenFlags::SQLITE_OPEN_NO_MUTEX
        | OpenFlags::SQLITE_OPEN_NOFOLLOW
        | OpenFlags::SQLITE_OPEN_EXRESCODE
}

/// Returns the SQL text of every table and index.
fn read_schema(connection: &Connection) -> rusqlite::Result<Vec<(String, Option<String>)>> {
    let mut statement = connection.prepare("SELECT name, sql FROM sqlite_schema ORDER BY name")?;
    statement.query_map([], |row| Ok((row.get(0)?, row.get(1)?)))?.collect()
}

/// Returns the error code in a check's message, if the message reports a failed call rather than damage.
fn failed_call_code(told: &str) -> Option<i32> {
    use rusqlite::ffi::{SQLITE_CANTOPEN, SQLITE_FULL, SQLITE_IOERR, SQLITE_NOMEM};
    let (_, code) = told.split_once("error code")?;
    let digits = code.trim_start_matches(['=', ' ']).split(|c: char| !c.is_ascii_digit()).next()?;
    let code: i32 = digits.parse().ok()?;
    // The low byte is the primary error code; the rest refines it.
    [SQLITE_IOERR, SQLITE_NOMEM, SQLITE_FULL, SQLITE_CANTOPEN].contains(&(code & 0xff)).then_some(code)
}
