//! The session database of one process: opened on first use, and reopened after it was damaged or replaced.

use std::path::PathBuf;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use bowline_protocol::schema::v1::SessionId;
use bowline_storage::clock::now;
use bowline_storage::{
    Database, DatabaseFile, DatabaseKind, Durability, FileLock, LockMode, NewerFormatPolicy,
    SetAsideDatabase, StorageError, UnusableReason,
};
use rusqlite::{Connection, Transaction};

use super::claim::{self, SessionClaim};
use super::error::{StoreError, StoreNotice, StoreTransactionError};
use super::salvage::{self, SalvageReport};
use super::{
    MAX_PAGE_SIZE, MAX_WAITING_BYTES, SessionMeta, SessionPage, SessionQuery, SessionRecord,
    SessionRetention, StoredSession, codec, cursor, metadata, rows,
};

/// The file name of the database.
pub(super) const DATABASE_FILE: &str = "sessions.db";
/// The database of stored sessions.
static SESSION_DATABASE: DatabaseKind = DatabaseKind {
    subject: "the sessions in",
    file: DATABASE_FILE,
    lock: "sessions.lock",
    // "Knot" in ASCII.
    application_id: 0x4b6e_6f74,
    format: 1,
    schema: include_str!("schema.sql"),
    migrations: &[],
    newer_format: NewerFormatPolicy::Refuse,
    checked_table: Some("sessions"),
    verify: rows::verify_rows,
};
/// How long to wait for locks of other processes.
const LOCK_TIMEOUT: Duration = Duration::from_secs(10);
/// The most notices kept until they are taken.
const MAX_NOTICES: usize = 64;
/// How often one operation opens the database if it keeps being replaced.
const MAX_OPEN_ATTEMPTS: usize = 4;
/// The most sessions removed when the database is opened, since the caller is waiting.
const MAX_PRUNED_SESSIONS: usize = 64;
/// How long a session without any content is kept, in milliseconds: a day.
const EMPTY_SESSION_AGE_MS: i64 = 24 * 60 * 60 * 1000;
/// The number of free pages returned to the file system at a time.
const FREED_PAGES: i64 = 4096;

/// The notices for the user, until they are taken.
pub(super) type NoticeQueue = Arc<Mutex<Vec<StoreNotice>>>;

/// The stored sessions of this process.
#[derive(Debug)]
pub(super) struct SessionDatabase {
    directory: PathBuf,
    retention: SessionRetention,
    notices: NoticeQueue,
    database: Option<Database>,
}

impl SessionDatabase {
    pub(super) fn new(directory: PathBuf, retention: SessionRetention, notices: NoticeQueue) -> Self {
        Self { directory, retention, notices, database: None }
    }

    pub(super) fn create(&mut self, meta: SessionMeta) -> Result<SessionClaim, StoreError> {
        let lock = self.lock_session(&meta.id)?;
        self.write(Durability::Deferred, |transaction| rows::insert_session(transaction, &meta))?;
        Ok(SessionClaim::new(meta.id, lock))
    }

    pub(super) fn claim(&mut self, id: SessionId) -> Result<(SessionClaim, StoredSession), StoreError> {
        let lock = self.lock_session(&id)?;
        let stored = self.load(&id)?;
        Ok((SessionClaim::new(id, lock), stored))
    }

    pub(super) fn fork(
        &mut self,
        parent: &SessionId,
        meta: SessionMeta,
    ) -> Result<(SessionClaim, StoredSession), StoreError> {
        let lock = self.lock_session(&meta.id)?;
        let stored = self.write(Durability::Deferred, |transaction| {
            rows::fork_session(transaction, parent, &meta)?;
            rows::load_session(transaction, &meta.id)
        })?;
        Ok((SessionClaim::new(meta.id, lock), stored))
    }

    pub(super) fn load(&mut self, id: &SessionId) -> Result<StoredSession, StoreError> {
        self.read(|connection| rows::load_session(connection, id))
    }

    pub(super) fn list(&mut self, query: &SessionQuery) -> Result<SessionPage, StoreError> {
        let before = query.cursor.as_deref().map_or(Ok(i64::MAX), cursor::parse_cursor)?;
        let cwd = query.cwd.as_deref().map(metadata::path_to_str).transpose()?;
        let page = query.page_size.clamp(1, MAX_PAGE_SIZE);
        self.read(|connection| rows::list_sessions(connection, cwd, before, page))
    }

    pub(super) fn delete(&mut self, id: &SessionId) -> Result<(), StoreError> {
        let _lock = self.lock_session(id)?;
        self.remove(id)
    }

    /// Removes a session that the caller has claimed.
    pub(super) fn remove(&mut self, id: &SessionId) -> Result<(), StoreError> {
        if self.write(Durability::Synced, |transaction| rows::delete_session(transaction, id))? {
            self.with_database(|database| database.read(|connection| Ok(free_pages(connection)?)))?;
        }
        Ok(())
    }

    pub(super) fn append(
        &mut self,
        claim: &SessionClaim,
        records: Vec<SessionRecord>,
        durability: Durability,
    ) -> Result<(), StoreError> {
        let mut unsaved = claim.unsaved_records.lock().unwrap_or_else(PoisonError::into_inner);
        let previous_len = unsaved.len();
        unsaved.extend(codec::encode_all(records)?);
        let (max_bytes, now) = (self.retention.max_session_bytes, now());
        let result = self.write(durability, |transaction| {
            rows::append_records(transaction, &claim.id, &unsaved, max_bytes, now)
        });
        match &result {
            Ok(()) => unsaved.clear(),
            // A retry would fail as well.
            Err(StoreError::SessionFull { .. } | StoreError::NotFound(_)) => unsaved.truncate(previous_len),
            Err(_) => {
                if unsaved.iter().map(|record| record.data.len()).sum::<usize>() > MAX_WAITING_BYTES {
                    unsaved.truncate(previous_len);
                }
            }
        }
        result
    }

    pub(super) fn update_meta(
        &mut self,
        claim: &SessionClaim,
        change: impl FnOnce(&mut SessionMeta),
    ) -> Result<SessionMeta, StoreError> {
        let row = self.read(|connection| rows::find_session(connection, &claim.id))?;
        let (number, mut meta) = (row.number, row.meta);
        change(&mut meta);
        meta.id = claim.id.clone();
        self.write(Durability::Deferred, |transaction| rows::update_session(transaction, number, &meta))?;
        Ok(meta)
    }

    /// Locks a session for changes.
    fn lock_session(&mut self, id: &SessionId) -> Result<FileLock, StoreError> {
        claim::lock_session(self.ensure_open()?.file().directory(), id)
    }

    fn read<T>(
        &mut self,
        mut body: impl FnMut(&Connection) -> Result<T, StoreTransactionError>,
    ) -> Result<T, StoreError> {
        self.with_database(|database| {
            database.read(|connection| {
                let transaction = connection.unchecked_transaction()?;
                body(&transaction)
            })
        })
    }

    /// Runs a write transaction.
    fn write<T>(
        &mut self,
        durability: Durability,
        mut body: impl FnMut(&Transaction<'_>) -> Result<T, StoreTransactionError>,
    ) -> Result<T, StoreError> {
        self.with_database(|database| database.write(durability, &mut body))
    }

    /// Runs an operation on the open database, under a lock that keeps other processes from replacing the file. Repairs
    /// damage it meets, then runs the operation again.
    fn with_database<T>(
        &mut self,
        mut operation: impl FnMut(&mut Database) -> Result<Result<T, StoreError>, StorageError>,
    ) -> Result<T, StoreError> {
        let mut repaired = false;
        for _ in 0..MAX_OPEN_ATTEMPTS {
            let database = self.ensure_open()?;
            let _lock = database.file().lock(LockMode::Shared, LOCK_TIMEOUT)?;
            match operation(database) {
                Err(StorageError::Moved(_)) => {}
                Err(StorageError::Corrupt(..)) if !repaired => repaired = true,
                result => return result?,
            }
            // The next attempt reopens it under the exclusive lock.
            self.database = None;
        }
        Err(StorageError::Locked(self.directory.clone()).into())
    }

    fn ensure_open(&mut self) -> Result<&mut Database, StoreError> {
        if self.database.is_none() {
            let file = DatabaseFile::prepare(&self.directory, &SESSION_DATABASE)?;
            let lock = file.lock(LockMode::Exclusive, LOCK_TIMEOUT)?;
            claim::sweep_stale_locks(file.directory())?;
            let mut report = SalvageReport::default();
            let (mut database, set_aside) =
                file.open(|file, fresh| salvage::copy_readable(file, fresh, &mut report))?;
            if let Some(SetAsideDatabase { path, why }) = set_aside {
                let why = match why {
                    UnusableReason::Damaged(why) => why,
                    other => other.to_string(),
                };
                self.push_notice(StoreNotice::SetAside {
                    path,
                    why,
                    whole: report.intact,
                    cut: report.truncated,
                });
            }
            // The sessions are usable without pruning.
            if let Err(error) = prune(&mut database, &self.retention) {
                self.push_notice(StoreNotice::NotPruned(error.to_string()));
            }
            drop(lock);
            self.database = Some(database);
        }
        self.database.as_mut().ok_or(StoreError::Stopped)
    }

    fn push_notice(&self, notice: StoreNotice) {
        let mut notices = self.notices.lock().unwrap_or_else(PoisonError::into_inner);
        if notices.len() < MAX_NOTICES {
            notices.push(notice);
        }
    }
}

impl Drop for SessionDatabase {
    fn drop(&mut self) {
        if let Some(database) = self.database.take() {
            // If no other process has the database open, SQLite removes the log by name: the lock ensures that it is
            // still our log.
            let _lock = database.file().lock(LockMode::Shared, LOCK_TIMEOUT);
            drop(database);
        }
    }
}

/// Removes sessions beyond the retention limits, oldest first, and those without any content. Sessions in use stay.
fn prune(database: &mut Database, retention: &SessionRetention) -> Result<(), StoreError> {
    let candidates = database.read(|connection| prune_candidates(connection, retention))??;
    if candidates.is_empty() {
        return Ok(());
    }
    let directory = database.file().directory();
    let locks: Vec<_> =
        candidates.iter().filter_map(|id| Some((id, claim::lock_session(directory, id).ok()?))).collect();
    database.write(Durability::Deferred, |transaction| {
        locks.iter().try_for_each(|(id, _)| rows::delete_session(transaction, id).map(drop))
    })??;
    database.read(|connection| Ok(free_pages(connection)?))?
}

/// Returns the sessions beyond the retention limits.
fn prune_candidates(
    connection: &Connection,
    retention: &SessionRetention,
) -> Result<Vec<SessionId>, StoreTransactionError> {
    let (count, bytes): (i64, i64) =
        connection.query_row("SELECT count(*), ifnull(sum(bytes), 0) FROM sessions", [], |row| {
            Ok((row.get(0)?, row.get(1)?))
        })?;
    let now = now().0;
    let cutoff = |age: i64| now.saturating_sub(age);
    let mut excess_sessions = count - i64::try_from(retention.max_sessions).unwrap_or(i64::MAX);
    let mut excess_bytes = bytes - i64::try_from(retention.max_bytes).unwrap_or(i64::MAX);
    let mut candidates = Vec::new();
    let mut oldest =
        connection.prepare("SELECT id, updated, records, bytes FROM sessions ORDER BY touched")?;
    let mut rows = oldest.query([])?;
    while let Some(row) = rows.next()?
        && candidates.len() < MAX_PRUNED_SESSIONS
    {
        let (updated, records, bytes): (i64, i64, i64) = (row.get(1)?, row.get(2)?, row.get(3)?);
        let empty = records == 0 && updated < cutoff(EMPTY_SESSION_AGE_MS);
        if excess_sessions > 0 || excess_bytes > 0 || updated < cutoff(retention.max_age_ms) || empty {
            candidates.push(SessionId::from(row.get::<_, String>(0)?));
            excess_sessions -= 1;
            excess_bytes -= bytes;
        }
    }
    Ok(candidates)
}

/// Returns the space of removed sessions to the file system.
fn free_pages(connection: &Connection) -> rusqlite::Result<()> {
    connection.pragma(None, "incremental_vacuum", FREED_PAGES, |_| Ok(()))
}
