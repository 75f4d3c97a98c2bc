//! The database as one thread uses it: opened when it is first needed, and again when it was damaged or replaced.

use std::fs::File;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, PoisonError};

use bowline_state::schema::v1::SessionId;
use bowline_state::transcript;
use bowline_workspace::clock::now;
use rusqlite::{Connection, Transaction, TransactionBehavior};

use super::claim::{Claim, Lock};
use super::error::{Fault, Notice, StoreError};
use super::open::{self, Opened};
use super::place::{Identity, Place, Sharing};
use super::{
    Durability, ListQuery, MAX_PAGE, MAX_WAITING_BYTES, Meta, Page, Record, Retention, Stored, codec, cursor,
    rows, salvage,
};

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

/// The stored sessions, as the one thread that works on them has them.
pub(super) struct Database {
    directory: PathBuf,
    retention: Retention,
    notices: Notices,
    open: Option<Open>,
}

struct Open {
    place: Place,
    // The file that was opened. Another one may be in its place later.
    identity: Identity,
    connection: Connection,
    synchronous: Option<Durability>,
}

impl Database {
    pub(super) fn new(directory: PathBuf, retention: Retention, notices: Notices) -> Self {
        Self { directory, retention, notices, open: None }
    }

    /// Closes the database, if it is open.
    pub(super) fn close(&mut self) {
        if let Some(open) = self.open.take() {
            // SQLite removes the log by its name if nobody else has the database: it must not be another one's by then.
            let _lock = open.place.lock(Sharing::Shared);
            drop(open);
        }
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
            self.with(|open| Ok(give_back(&open.connection)?))?;
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
    fn lock(&mut self, id: &SessionId) -> Result<Lock, StoreError> {
        Lock::take(&self.opened()?.place, id)
    }

    fn read<T>(&mut self, mut body: impl FnMut(&Connection) -> Result<T, Fault>) -> Result<T, StoreError> {
        self.with(|open| {
            let transaction = open.connection.unchecked_transaction()?;
            body(&transaction)
        })
    }

    /// Changes something, all of it or nothing.
    fn write<T>(
        &mut self,
        durability: Durability,
        mut body: impl FnMut(&Transaction<'_>) -> Result<T, Fault>,
    ) -> Result<T, StoreError> {
        self.with(|open| {
            if open.synchronous != Some(durability) {
                // SQLite does not change it within a transaction.
                let level = if durability == Durability::Now { "FULL" } else { "NORMAL" };
                open.connection.pragma_update(None, "synchronous", level)?;
                open.synchronous = Some(durability);
            }
            let transaction = open.connection.transaction_with_behavior(TransactionBehavior::Immediate)?;
            let value = body(&transaction)?;
            transaction.commit()?;
            Ok(value)
        })
    }

    /// Does something with the open database while nobody can put another in its place. Met damage is put right, and then
    /// it is done again.
    fn with<T>(&mut self, mut act: impl FnMut(&mut Open) -> Result<T, Fault>) -> Result<T, StoreError> {
        let mut repaired = false;
        for _ in 0..TRIES {
            let open = self.opened()?;
            let lock = open.place.lock(Sharing::Shared)?;
            if open.place.identity().ok() != Some(open.identity) {
                self.open = None;
                continue;
            }
            let path = open.place.database();
            match act(open) {
                Ok(value) => return Ok(value),
                Err(fault) if fault.is_damage() && !repaired => {
                    repaired = true;
                    open.place.suspect();
                    // It is opened anew by somebody who has it to himself.
                    self.open = None;
                    drop(lock);
                }
                Err(fault) => return Err(fault.explain(&path)),
            }
        }
        Err(StoreError::Held { path: self.directory.clone() })
    }

    fn opened(&mut self) -> Result<&mut Open, StoreError> {
        if self.open.is_none() {
            let place = Place::prepare(&self.directory)?;
            let alone = place.lock(Sharing::Alone)?;
            let (open, notices) = attach(place)?;
            self.open = Some(open);
            notices.into_iter().for_each(|notice| self.tell(notice));
            self.tidy(alone);
        }
        self.open.as_mut().ok_or(StoreError::Stopped)
    }

    /// Removes what is not kept any more. That this fails is no reason to keep the user from the rest.
    fn tidy(&mut self, alone: File) {
        let Some(open) = &mut self.open else { return };
        let pruned = prune(open, &self.retention);
        drop(alone);
        if let Err(fault) = pruned {
            let why = fault.explain(&open.place.database());
            self.tell(Notice::NotPruned(why.to_string()));
        }
    }

    fn tell(&self, notice: Notice) {
        let mut notices = self.notices.lock().unwrap_or_else(PoisonError::into_inner);
        if notices.len() < MAX_NOTICES {
            notices.push(notice);
        }
    }
}

impl Drop for Database {
    fn drop(&mut self) {
        self.close();
    }
}

/// Opens the database, or makes it anew of what can be read of it.
fn attach(place: Place) -> Result<(Open, Option<Notice>), StoreError> {
    let mut notice = None;
    let connection = loop {
        match open::open(&place)? {
            Opened::Ready(connection) => break connection,
            Opened::Unusable(why) if notice.is_some() => {
                return Err(StoreError::Corrupt { path: place.database(), why });
            }
            Opened::Unusable(why) => notice = Some(salvage::rebuild(&place, why)?),
        }
    };
    Lock::sweep(&place);
    let identity = place.identity()?;
    Ok((Open { place, identity, connection, synchronous: None }, notice))
}

/// Removes sessions that are too old or too many, the oldest first, and those in which nothing was said. One that
/// somebody has stays.
fn prune(open: &mut Open, retention: &Retention) -> Result<(), Fault> {
    let (count, bytes): (i64, i64) =
        open.connection.query_row("SELECT count(*), ifnull(sum(bytes), 0) FROM sessions", [], |row| {
            Ok((row.get(0)?, row.get(1)?))
        })?;
    let now = now().0;
    let aged = |age: i64| now.saturating_sub(age);
    let mut too_many = count - i64::try_from(retention.sessions).unwrap_or(i64::MAX);
    let mut too_much = bytes - i64::try_from(retention.bytes).unwrap_or(i64::MAX);
    let mut candidates = Vec::new();
    let mut oldest =
        open.connection.prepare("SELECT id, updated, records, bytes FROM sessions ORDER BY touched")?;
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
    drop(rows);
    drop(oldest);
    if candidates.is_empty() {
        return Ok(());
    }
    let locks: Vec<_> =
        candidates.iter().filter_map(|id| Some((id, Lock::take(&open.place, id).ok()?))).collect();
    let transaction = open.connection.transaction_with_behavior(TransactionBehavior::Immediate)?;
    for (id, _lock) in &locks {
        rows::delete(&transaction, id)?;
    }
    transaction.commit()?;
    Ok(give_back(&open.connection)?)
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
