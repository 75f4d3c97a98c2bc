//! The database as one process uses it: opened when it is first needed, and again when it was damaged or replaced.

use std::path::PathBuf;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use bowline_state::schema::v1::SessionId;
use bowline_state::transcript;
use bowline_workspace::clock::now;
use bowline_workspace::storage::{
    Database, DatabaseFile, DatabaseKind, Durability, FileLock, Newer, SetAside, Sharing, StorageError,
    Unusable,
};
use rusqlite::{Connection, Transaction};

use super::claim::{self, Claim};
use super::error::{Fault, Notice, StoreError};
use super::salvage::{self, Salvaged};
use super::{
    ListQuery, MAX_PAGE, MAX_WAITING_BYTES, Meta, Page, Record, Retention, Stored, codec, cursor, rows,
};

/// The name of the database.
pub(super) const FILE: &str = "sessions.db";
/// The database of stored sessions.
static SESSIONS: DatabaseKind = DatabaseKind {
    subject: "the sessions in",
    file: FILE,
    lock: "sessions.lock",
    // "Knot" in ASCII.
    application_id: 0x4b6e_6f74,
    format: 1,
    schema: include_str!("schema.sql"),
    newer: Newer::Refuse,
    checked_table: Some("sessions"),
    verify: rows::verify,
};
/// How long one waits for other processes.
const WAIT: Duration = Duration::from_secs(10);
/// At most so many notices wait to be taken.
const MAX_NOTICES: usize = 64;
/// A database that is replaced again and again is opened so often for one thing to do.
const TRIES: usize = 4;
/// At most so many sessions are removed when the database is opened: somebody waits for it.
const PRUNED_AT_ONCE: usize = 64;
/// A session in which nothing was ever said is kept this long, in milliseconds: a day.
const EMPTY_AGE: i64 = 24 * 60 * 60 * 1000;
/// So many free pages are given back to the file system at once.
const FREED_PAGES: i64 = 4096;

/// What the user should hear of, until somebody takes it.
pub(super) type Notices = Arc<Mutex<Vec<Notice>>>;

/// The stored sessions of this process.
#[derive(Debug)]
pub(super) struct SessionDatabase {
    directory: PathBuf,
    retention: Retention,
    notices: Notices,
    open: Option<Database>,
}

impl SessionDatabase {
    pub(super) fn new(directory: PathBuf, retention: Retention, notices: Notices) -> Self {
        Self { directory, retention, notices, open: None }
    }

    pub(super) fn create(&mut self, meta: Meta) -> Result<Claim, StoreError> {
        let lock = self.lock(&meta.id)?;
        self.write(Durability::Soon, |transaction| rows::insert(transaction, &meta))?;
        Ok(Claim::new(meta.id, lock))
    }

    pub(super) fn claim(&mut self, id: SessionId) -> Result<(Claim, Stored), StoreError> {
        let lock = self.lock(&id)?;
        let stored = self.load(&id)?;
        Ok((Claim::new(id, lock), stored))
    }

    pub(super) fn fork(&mut self, from: &SessionId, meta: Meta) -> Result<(Claim, Stored), StoreError> {
        let lock = self.lock(&meta.id)?;
        let stored = self.write(Durability::Soon, |transaction| {
            rows::fork(transaction, from, &meta)?;
            rows::load(transaction, &meta.id)
        })?;
        Ok((Claim::new(meta.id, lock), stored))
    }

    pub(super) fn load(&mut self, id: &SessionId) -> Result<Stored, StoreError> {
        self.read(|connection| rows::load(connection, id))
    }

    pub(super) fn list(&mut self, query: &ListQuery) -> Result<Page, StoreError> {
        let before = query.cursor.as_deref().map_or(Ok(i64::MAX), cursor::parse)?;
        let cwd = query.cwd.as_deref().map(rows::path_text).transpose()?;
        let page = query.page.clamp(1, MAX_PAGE);
        self.read(|connection| rows::list(connection, cwd, before, page))
    }

    pub(super) fn delete(&mut self, id: &SessionId) -> Result<(), StoreError> {
        let _lock = self.lock(id)?;
        self.remove(id)
    }

    /// Removes a session. The caller has it.
    pub(super) fn remove(&mut self, id: &SessionId) -> Result<(), StoreError> {
        if self.write(Durability::Now, |transaction| rows::delete(transaction, id))? {
            self.with(|open| open.read(|connection| Ok(give_back(connection)?)))?;
        }
        Ok(())
    }

    pub(super) fn append(
        &mut self,
        claim: &Claim,
        records: Vec<Record>,
        durability: Durability,
    ) -> Result<(), StoreError> {
        let mut waiting = claim.waiting.lock().unwrap_or_else(PoisonError::into_inner);
        let before = waiting.len();
        let encoded = condense(records).iter().map(codec::encode).collect::<Result<Vec<_>, _>>()?;
        waiting.extend(encoded);
        let (most, now) = (self.retention.session_bytes, now());
        let saved =
            self.write(durability, |transaction| rows::append(transaction, &claim.id, &waiting, most, now));
        match &saved {
            Ok(()) => waiting.clear(),
            // It will not be saved later either.
            Err(StoreError::SessionFull { .. } | StoreError::NotFound(_)) => waiting.truncate(before),
            Err(_) => {
                if waiting.iter().map(|record| record.data.len()).sum::<usize>() > MAX_WAITING_BYTES {
                    waiting.truncate(before);
                }
            }
        }
        saved
    }

    pub(super) fn change(
        &mut self,
        claim: &Claim,
        change: impl FnOnce(&mut Meta),
    ) -> Result<Meta, StoreError> {
        let found = self.read(|connection| rows::find(connection, &claim.id))?;
        let (number, mut meta) = (found.number, found.meta);
        change(&mut meta);
        meta.id = claim.id.clone();
        self.write(Durability::Soon, |transaction| rows::update(transaction, number, &meta))?;
        Ok(meta)
    }

    /// Takes the right to change a session.
    fn lock(&mut self, id: &SessionId) -> Result<FileLock, StoreError> {
        claim::lock(self.opened()?.file().directory(), id)
    }

    fn read<T>(&mut self, mut body: impl FnMut(&Connection) -> Result<T, Fault>) -> Result<T, StoreError> {
        self.with(|open| {
            open.read(|connection| {
                let transaction = connection.unchecked_transaction()?;
                body(&transaction)
            })
        })
    }

    /// Changes something, all of it or nothing.
    fn write<T>(
        &mut self,
        durability: Durability,
        mut body: impl FnMut(&Transaction<'_>) -> Result<T, Fault>,
    ) -> Result<T, StoreError> {
        self.with(|open| open.write(durability, &mut body))
    }

    /// Does something with the open database while nobody can put another in its place. Met damage is put right, and then
    /// it is done again.
    fn with<T>(
        &mut self,
        mut act: impl FnMut(&mut Database) -> Result<Result<T, StoreError>, StorageError>,
    ) -> Result<T, StoreError> {
        let mut repaired = false;
        for _ in 0..TRIES {
            let open = self.opened()?;
            let _lock = open.file().lock(Sharing::Shared, WAIT)?;
            match act(open) {
                Err(StorageError::Moved(_)) => {}
                Err(StorageError::Corrupt(..)) if !repaired => repaired = true,
                done => return done?,
            }
            // It is opened anew under the exclusive lock.
            self.open = None;
        }
        Err(StorageError::Held(self.directory.clone()).into())
    }

    fn opened(&mut self) -> Result<&mut Database, StoreError> {
        if self.open.is_none() {
            let file = DatabaseFile::prepare(&self.directory, &SESSIONS)?;
            let alone = file.lock(Sharing::Alone, WAIT)?;
            claim::sweep(file.directory())?;
            let mut salvaged = Salvaged::default();
            let (mut open, set_aside) = file.open(|file, fresh| salvage::copy(file, fresh, &mut salvaged))?;
            if let Some(SetAside { path, why }) = set_aside {
                let why = match why {
                    Unusable::Damaged(why) => why,
                    other => other.to_string(),
                };
                self.tell(Notice::SetAside { path, why, whole: salvaged.whole, cut: salvaged.cut });
            }
            // That this fails is no reason to keep the user from the rest.
            if let Err(error) = prune(&mut open, &self.retention) {
                self.tell(Notice::NotPruned(error.to_string()));
            }
            drop(alone);
            self.open = Some(open);
        }
        self.open.as_mut().ok_or(StoreError::Stopped)
    }

    fn tell(&self, notice: Notice) {
        let mut notices = self.notices.lock().unwrap_or_else(PoisonError::into_inner);
        if notices.len() < MAX_NOTICES {
            notices.push(notice);
        }
    }
}

impl Drop for SessionDatabase {
    fn drop(&mut self) {
        if let Some(open) = self.open.take() {
            // SQLite removes the log by its name if no other process has the database open: it must not be another one's by then.
            let _lock = open.file().lock(Sharing::Shared, WAIT);
            drop(open);
        }
    }
}

/// Removes sessions that are too old or too many, the oldest first, and those in which nothing was said. One that
/// somebody has stays.
fn prune(open: &mut Database, retention: &Retention) -> Result<(), StoreError> {
    let candidates = open.read(|connection| candidates(connection, retention))??;
    if candidates.is_empty() {
        return Ok(());
    }
    let directory = open.file().directory();
    let locks: Vec<_> =
        candidates.iter().filter_map(|id| Some((id, claim::lock(directory, id).ok()?))).collect();
    open.write(Durability::Soon, |transaction| {
        locks.iter().try_for_each(|(id, _)| rows::delete(transaction, id).map(drop))
    })??;
    open.read(|connection| Ok(give_back(connection)?))?
}

/// Returns the sessions that are not kept any more.
fn candidates(connection: &Connection, retention: &Retention) -> Result<Vec<SessionId>, Fault> {
    let (count, bytes): (i64, i64) =
        connection.query_row("SELECT count(*), ifnull(sum(bytes), 0) FROM sessions", [], |row| {
            Ok((row.get(0)?, row.get(1)?))
        })?;
    let now = now().0;
    let aged = |age: i64| now.saturating_sub(age);
    let mut too_many = count - i64::try_from(retention.sessions).unwrap_or(i64::MAX);
    let mut too_much = bytes - i64::try_from(retention.bytes).unwrap_or(i64::MAX);
    let mut candidates = Vec::new();
    let mut oldest =
        connection.prepare("SELECT id, updated, records, bytes FROM sessions ORDER BY touched")?;
    let mut rows = oldest.query([])?;
    while let Some(row) = rows.next()?
        && candidates.len() < PRUNED_AT_ONCE
    {
        let (updated, records, bytes): (i64, i64, i64) = (row.get(1)?, row.get(2)?, row.get(3)?);
        let empty = records == 0 && updated < aged(EMPTY_AGE);
        if too_many > 0 || too_much > 0 || updated < aged(retention.age_ms) || empty {
            candidates.push(SessionId::from(row.get::<_, String>(0)?));
            too_many -= 1;
            too_much -= bytes;
        }
    }
    Ok(candidates)
}

/// Gives the space of what was removed back to the file system.
fn give_back(connection: &Connection) -> rusqlite::Result<()> {
    connection.pragma(None, "incremental_vacuum", FREED_PAGES, |_| Ok(()))
}

/// Makes less of the updates among some records. Updates and messages are two lists: how they lie between each other means
/// nothing.
fn condense(records: Vec<Record>) -> Vec<Record> {
    let mut updates = Vec::new();
    let mut condensed = Vec::new();
    for record in records {
        match record {
            Record::Update(update) => updates.push(update),
            other => condensed.push(other),
        }
    }
    condensed.extend(transcript::condense(updates).into_iter().map(Record::Update));
    condensed
}
