//! Opening a database: whether what is there is ours, whole and of our format.

use std::io;
use std::path::Path;
use std::time::Duration;

use rusqlite::config::DbConfig;
use rusqlite::{Connection, ErrorCode, OpenFlags};
use rustix::fs::{Access, access};
use rustix::io::Errno;

use super::database::{DatabaseKind, Newer};
use super::database_file::{DatabaseFile, Found};
use super::error::{FileError, StorageError, Unusable, is_damage};
use super::private::{remove_file, restrict};
use crate::calls::Calls;

/// How long one waits for another process to finish a transaction.
const BUSY_WAIT: Duration = Duration::from_secs(10);
/// A database up to this size is checked as a whole whenever it is opened, which takes some milliseconds. A larger one is
/// when damage was met while it was in use: SQLite says so, and a note was left beside the database. Being killed is no
/// reason to: what the log holds is taken over or left out by the checksum of each of its pages.
const ALWAYS_CHECKED_BYTES: u64 = 4 << 20;
/// The write-ahead log is cut back to this size once its content is in the database.
const LOG_BYTES: i64 = 16 << 20;

/// How much of a database is checked when it is opened.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Check {
    Tables,
    Pages,
    Everything,
}

impl DatabaseFile {
    /// Looks at the database in a directory, every page of it, and leaves it as it is: nothing is made, put right or set aside,
    /// but that SQLite may leave an empty log beside one that is unusable. If it can be used, `look` may read from it.
    /// Returns none if there is no database.
    ///
    /// It must not be open in this process: closing what was looked at lets go of the locks of those who have it open.
    ///
    /// # Errors
    /// Fails if the directory or a file in it cannot be read.
    pub fn examine<T>(
        directory: &Path,
        kind: &'static DatabaseKind,
        look: impl FnOnce(&Connection) -> rusqlite::Result<T>,
    ) -> Result<Option<Result<T, Unusable>>, StorageError> {
        let file = match directory.canonicalize() {
            Ok(directory) => Self { directory, kind },
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
            Err(error) => return Err(FileError::of("find", directory)(error).into()),
        };
        let judged = match file.find()? {
            Found::Nothing => return Ok(None),
            Found::Remains => Err(Unusable::Remains),
            Found::Database { .. } => file.judge(Check::Pages)?,
        };
        let read = |connection: Connection| {
            // The last one to close it leaves nothing beside it, as with any other user.
            connection.set_db_config(DbConfig::SQLITE_DBCONFIG_NO_CKPT_ON_CLOSE, false)?;
            look(&connection)
        };
        Ok(Some(match judged {
            Ok(connection) => Ok(read(connection).map_err(|error| file.explain(error))?),
            Err(why) => Err(why),
        }))
    }

    /// Opens a damaged database to read what can be read.
    ///
    /// # Errors
    /// Fails as SQLite does.
    pub fn connect_leniently(&self) -> rusqlite::Result<Connection> {
        let connection = self.connect()?;
        // Otherwise SQLite reads nothing of a file that is shorter than its header says. Nothing is written here.
        connection.set_db_config(DbConfig::SQLITE_DBCONFIG_DEFENSIVE, false)?;
        connection.set_db_config(DbConfig::SQLITE_DBCONFIG_WRITABLE_SCHEMA, true)?;
        Ok(connection)
    }

    /// Opens the database, or says why it has to be made anew.
    pub(super) fn attach(&self) -> Result<Result<Connection, Unusable>, StorageError> {
        self.finish_replacing()?;
        let is_suspect = self.beside(".suspect").exists();
        let check = match self.find()? {
            Found::Remains => return Ok(Err(Unusable::Remains)),
            Found::Nothing => {
                drop(self.create_draft()?);
                self.replace()?;
                Check::Tables
            }
            Found::Database { .. } if is_suspect => Check::Everything,
            Found::Database { bytes } if bytes <= ALWAYS_CHECKED_BYTES => Check::Pages,
            Found::Database { .. } => Check::Tables,
        };
        let path = self.path();
        restrict(&path, &Calls::default())?;
        access(&path, Access::READ_OK | Access::WRITE_OK).map_err(|error| match error {
            Errno::ACCESS | Errno::ROFS => StorageError::ReadOnly(self.name()),
            other => FileError::of("open", &path)(other.into()).into(),
        })?;
        let judged = self.judge(check)?;
        if let Ok(connection) = &judged {
            configure(connection).map_err(|error| self.explain(error))?;
            remove_file(&self.beside(".suspect"))?;
        }
        Ok(judged)
    }

    /// Opens the database, or says why it cannot be used, and leaves it as it is.
    fn judge(&self, check: Check) -> Result<Result<Connection, Unusable>, StorageError> {
        let mut inspected = self.inspect(check);
        if let Ok((_, Some(Unusable::Damaged(_)))) = inspected {
            // A page that could not be read may be told as damage. Whether it is, a second look tells, by a connection that
            // remembers nothing: if nothing can be read at all, that one says so.
            inspected = self.inspect(check);
        }
        match inspected {
            Ok((connection, None)) => Ok(Ok(connection)),
            Ok((_, Some(Unusable::Newer { found, known }))) if self.kind.newer == Newer::Refuse => {
                Err(StorageError::Newer(self.name(), found, known))
            }
            Ok((_, Some(why))) => Ok(Err(why)),
            // What SQLite calls just an error, before anything was asked of our own tables, is a schema it cannot read.
            Err(error) if is_damage(&error) || error.sqlite_error_code() == Some(ErrorCode::Unknown) => {
                Ok(Err(Unusable::Damaged(error.to_string())))
            }
            Err(error) => Err(self.explain(error)),
        }
    }

    /// Opens the database without a change to it, not even of what its log holds.
    fn connect(&self) -> rusqlite::Result<Connection> {
        let connection = Connection::open_with_flags(self.path(), flags())?;
        connection.busy_timeout(BUSY_WAIT)?;
        connection.set_db_config(DbConfig::SQLITE_DBCONFIG_NO_CKPT_ON_CLOSE, true)?;
        connection.set_db_config(DbConfig::SQLITE_DBCONFIG_TRUSTED_SCHEMA, false)?;
        connection.set_db_config(DbConfig::SQLITE_DBCONFIG_DEFENSIVE, true)?;
        connection.pragma_update(None, "cell_size_check", true)?;
        Ok(connection)
    }

    /// Opens the database and says what makes it unusable, if anything does.
    fn inspect(&self, check: Check) -> rusqlite::Result<(Connection, Option<Unusable>)> {
        let connection = self.connect()?;
        let number = |name| connection.pragma_query_value(None, name, |row| row.get::<_, i32>(0));
        let (application, format) = (number("application_id")?, number("user_version")?);
        let tables = tables(&connection)?;
        let known = self.kind.format;
        let unusable = if application != self.kind.application_id {
            Some(Unusable::Foreign { found: application })
        } else if format > known {
            Some(Unusable::Newer { found: format, known })
        } else if format != known || tables != self.expected_tables()? {
            Some(Unusable::Tables { format })
        } else if connection.is_readonly("main")? {
            // A header from the future, or a damaged one: the file itself can be written.
            Some(Unusable::Damaged("its header forbids writing".to_owned()))
        } else {
            self.check(&connection, check)?.map(Unusable::Damaged)
        };
        Ok((connection, unusable))
    }

    fn check(&self, connection: &Connection, check: Check) -> rusqlite::Result<Option<String>> {
        let table = self.kind.checked_table.map(|table| format!("integrity_check({table})"));
        let whole = match check {
            Check::Tables => None,
            Check::Pages => Some("quick_check(1)".to_owned()),
            Check::Everything => Some("integrity_check(1)".to_owned()),
        };
        for check in table.into_iter().chain(whole) {
            let told: String = connection.query_row(&format!("PRAGMA {check}"), [], |row| row.get(0))?;
            if told != "ok" {
                let told = told.replace('\n', " ");
                return match failed_call(&told) {
                    Some(code) => {
                        Err(rusqlite::Error::SqliteFailure(rusqlite::ffi::Error::new(code), Some(told)))
                    }
                    None => Ok(Some(told)),
                };
            }
        }
        if check == Check::Everything { (self.kind.verify)(connection) } else { Ok(None) }
    }

    fn expected_tables(&self) -> rusqlite::Result<Vec<(String, Option<String>)>> {
        let model = Connection::open_in_memory()?;
        model.execute_batch(self.kind.schema)?;
        tables(&model)
    }
}

/// Sets what holds for as long as the connection is open.
fn configure(connection: &Connection) -> rusqlite::Result<()> {
    connection.pragma_update_and_check(None, "journal_mode", "WAL", |_| Ok(()))?;
    connection.pragma(None, "journal_size_limit", LOG_BYTES, |_| Ok(()))?;
    // Only macOS knows the difference: there a plain fsync may leave the bytes in the disk's own cache.
    connection.pragma_update(None, "fullfsync", true)?;
    connection.pragma_update(None, "checkpoint_fullfsync", true)?;
    connection.set_db_config(DbConfig::SQLITE_DBCONFIG_NO_CKPT_ON_CLOSE, false)?;
    Ok(())
}

pub(super) fn flags() -> OpenFlags {
    OpenFlags::SQLITE_OPEN_READ_WRITE
        | OpenFlags::SQLITE_OPEN_NO_MUTEX
        | OpenFlags::SQLITE_OPEN_NOFOLLOW
        | OpenFlags::SQLITE_OPEN_EXRESCODE
}

/// Returns the text of every table and index.
fn tables(connection: &Connection) -> rusqlite::Result<Vec<(String, Option<String>)>> {
    let mut statement = connection.prepare("SELECT name, sql FROM sqlite_schema ORDER BY name")?;
    statement.query_map([], |row| Ok((row.get(0)?, row.get(1)?)))?.collect()
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
