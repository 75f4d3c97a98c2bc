//! The store in one SQLite file, `serve.db`, for one server at a time.
//!
//! Commits survive a kill of the process at any moment. After a crash of the machine the last ones can be missing, as a
//! whole and in order.

use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use bowline_storage::clock::now;
use bowline_storage::{
    Database, DatabaseFile, DatabaseKind, Durability, FileLock, LockMode, NewerFormatPolicy, StorageError,
    TransactionError,
};
use bowline_task::spawn_blocking;
use bowline_text::time::Timestamp;
use bytes::Bytes;
use rusqlite::{Connection, OptionalExtension as _, Row, params};

use super::{
    AcquiredSession, Acquisition, MAX_PAGE_SIZE, MAX_SESSION_BYTES, Mutation, ServerStore, SessionQuery,
    StoreError, StoreFuture, StoredSession,
};
use crate::event::{Event, SessionId, decode_run};
use crate::token::{Role, StoredToken};
use recent::{RecentRow, RecentRuns};

mod recent;

static SERVER_DATABASE: DatabaseKind = DatabaseKind {
    subject: "the server's sessions in",
    file: "serve.db",
    lock: "serve.lock",
    // "Bowl" in ASCII.
    application_id: 0x426f_776c,
    format: 1,
    schema: include_str!("schema.sql"),
    migrations: &[
        "CREATE TABLE recent_runs(id INTEGER PRIMARY KEY, at INTEGER NOT NULL, runs BLOB NOT NULL) STRICT",
        // Runs have times, and kinds of events that earlier versions cannot read.
        "-- The tables are the same.",
    ],
    newer_format: NewerFormatPolicy::Refuse,
    checked_table: Some("tokens"),
    verify: |_| Ok(None),
};
/// The lock that a running server holds.
const SERVER_LOCK: &str = "serve.running";
/// The pages that SQLite keeps in memory, in KiB: with too few it reads the last pages of a thousand sessions again and
/// again.
const CACHE_KIB: i64 = 16 << 10;
/// How long to wait for locks of other processes.
const LOCK_TIMEOUT: Duration = Duration::from_secs(10);

type SqlResult<T> = Result<T, TransactionError<StoreError>>;

/// The store of a server, in a directory. Clones share one database.
#[derive(Debug, Clone)]
pub struct SqliteServerStore {
    state: Arc<Mutex<SqliteState>>,
    _server_lock: Option<Arc<FileLock>>,
}

#[derive(Debug)]
struct SqliteState {
    database: Database,
    recent: RecentRuns,
}

impl SqliteServerStore {
    fn new(database: Database, server_lock: Option<FileLock>) -> Self {
        let state = SqliteState { database, recent: RecentRuns::default() };
        Self { state: Arc::new(Mutex::new(state)), _server_lock: server_lock.map(Arc::new) }
    }

    /// Opens the store for a server.
    ///
    /// # Errors
    /// Fails if another server uses it, or if it cannot be opened.
    pub fn open_for_server(directory: &Path) -> Result<Self, StoreError> {
        let database = open(directory)?;
        let set = database.connection().pragma_update(None, "cache_size", -CACHE_KIB);
        set.map_err(|error| StoreError::Unavailable(error.to_string()))?;
        let path = database.file().directory().join(SERVER_LOCK);
        let lock = FileLock::acquire(&path, LockMode::Exclusive, Duration::ZERO);
        let lock = lock.map_err(|error| StoreError::Unavailable(error.to_string()))?;
        let lock = lock.ok_or_else(|| {
            StoreError::Unavailable(format!(
                "another `bowline serve` uses the store in {}: stop it, or choose another directory with --store",
                directory.display()
            ))
        })?;
        Ok(Self::new(database, Some(lock)))
    }

    /// Opens the store to manage tokens, beside a running server or without one.
    ///
    /// # Errors
    /// Fails if it cannot be opened.
    pub fn open_for_tokens(directory: &Path) -> Result<Self, StoreError> {
        Ok(Self::new(open(directory)?, None))
    }

    /// Returns the numbers of sessions and of stored events.
    ///
    /// # Errors
    /// Fails if the store cannot be read.
    pub async fn counts(&self) -> Result<(u64, u64), StoreError> {
        let sql = "SELECT (SELECT count(*) FROM sessions), (SELECT coalesce(sum(last_seq - first_seq + 1), 0) FROM events)";
        self.read_moved(
            |recent| !recent.is_empty(),
            |connection| {
                Ok(connection.query_row(sql, [], |row| Ok((from_sql(row.get(0)?), from_sql(row.get(1)?))))?)
            },
        )
        .await
    }

    async fn run_blocking<T: Send + 'static>(
        &self,
        operation: impl FnOnce(&mut SqliteState) -> Result<Result<T, StoreError>, StorageError> + Send + 'static,
    ) -> Result<T, StoreError> {
        let state = Arc::clone(&self.state);
        let run = spawn_blocking(move || {
            let mut state = state.lock().unwrap_or_else(PoisonError::into_inner);
            let _lock = state.database.file().lock(LockMode::Shared, LOCK_TIMEOUT)?;
            operation(&mut state)
        });
        match run.await {
            Ok(outcome) => outcome.map_err(unavailable)?,
            Err(_) => Err(StoreError::Unavailable("the server is stopping".to_owned())),
        }
    }

    async fn read<T: Send + 'static>(
        &self,
        body: impl FnOnce(&Connection) -> SqlResult<T> + Send + 'static,
    ) -> Result<T, StoreError> {
        self.run_blocking(move |state| state.database.read(body)).await
    }

    /// Reads after recent runs were moved to their sessions, if they matter.
    async fn read_moved<T: Send + 'static>(
        &self,
        is_affected: impl FnOnce(&RecentRuns) -> bool + Send + 'static,
        body: impl FnOnce(&Connection) -> SqlResult<T> + Send + 'static,
    ) -> Result<T, StoreError> {
        self.run_blocking(move |state| {
            if is_affected(&state.recent) {
                let moved =
                    state.write(Durability::Deferred, |transaction, recent| recent.move_all(transaction))?;
                if let Err(error) = moved {
                    return Ok(Err(error));
                }
            }
            state.database.read(body)
        })
        .await
    }

    async fn write<T: Send + 'static>(
        &self,
        durability: Durability,
        body: impl FnOnce(&Connection, &mut RecentRuns) -> SqlResult<T> + Send + 'static,
    ) -> Result<T, StoreError> {
        self.run_blocking(move |state| state.write(durability, body)).await
    }
}

impl SqliteState {
    fn write<T>(
        &mut self,
        durability: Durability,
        body: impl FnOnce(&Connection, &mut RecentRuns) -> SqlResult<T>,
    ) -> Result<Result<T, StoreError>, StorageError> {
        // If the transaction fails, or panics, nothing is known of the table any more.
        let mut recent = std::mem::take(&mut self.recent);
        let written = self.database.write(durability, |transaction| body(transaction, &mut recent));
        if matches!(written, Ok(Ok(_))) {
            self.recent = recent;
        }
        written
    }
}

fn open(directory: &Path) -> Result<Database, StoreError> {
    let file = DatabaseFile::prepare(directory, &SERVER_DATABASE).map_err(unavailable)?;
    let _lock = file.lock(LockMode::Exclusive, LOCK_TIMEOUT).map_err(unavailable)?;
    let (database, set_aside) = file.open(|_, _| Ok(())).map_err(unavailable)?;
    if let Some(set_aside) = set_aside {
        return Err(StoreError::Unavailable(format!(
            "the server's sessions could not be used: {}. They are now in {}, and a new file was made without tokens: add tokens again with `bowline serve token add`, then start the server",
            set_aside.why,
            set_aside.path.display()
        )));
    }
    Ok(database)
}

fn unavailable(error: StorageError) -> StoreError {
    StoreError::Unavailable(error.to_string())
}

impl ServerStore for SqliteServerStore {
    fn commit(&self, mutations: Vec<Mutation>) -> StoreFuture<'_, Vec<SessionId>> {
        Box::pin(self.write(Durability::Deferred, move |transaction, recent| {
            recent.complete(transaction)?;
            let mut lost = Vec::new();
            let mut row = RecentRow::default();
            for mutation in mutations {
                match mutation {
                    Mutation::Append { session, generation, events } => {
                        if !lost.contains(&session)
                            && !recent.add(transaction, &mut row, &session, generation, &events)?
                        {
                            lost.push(session);
                        }
                    }
                    Mutation::Delete(id) => {
                        recent.insert(transaction, std::mem::take(&mut row))?;
                        if recent.may_have(&id) {
                            recent.move_all(transaction)?;
                        }
                        delete_session(transaction, &id)?;
                    }
                    mutation => apply(transaction, mutation, &mut lost)?,
                }
            }
            recent.insert(transaction, row)?;
            Ok(lost)
        }))
    }

    fn events_after(&self, session: &SessionId, after: u64, max_bytes: usize) -> StoreFuture<'_, Vec<Event>> {
        let (session, of) = (session.clone(), session.clone());
        let has_recent = move |recent: &RecentRuns| recent.may_have(&of);
        Box::pin(
            self.read_moved(has_recent, move |connection| {
                read_events(connection, &session, after, max_bytes)
            }),
        )
    }

    fn acquire(&self, session: &SessionId) -> StoreFuture<'_, Acquisition> {
        let session = session.clone();
        Box::pin(self.write(Durability::Deferred, move |transaction, recent| {
            if recent.may_have(&session) {
                recent.move_all(transaction)?;
            }
            let acquired = transaction
                .query_row(
                    "UPDATE sessions SET generation = generation + 1 WHERE id = ?1 RETURNING generation, last_seq",
                    [&*session],
                    |row| Ok((from_sql(row.get(0)?), from_sql(row.get(1)?))),
                )
                .optional()?;
            let Some((generation, last_seq)) = acquired else { return Ok(Acquisition::NotFound) };
            let found = find_session(transaction, &session)?;
            Ok(found.map_or(Acquisition::NotFound, |session| {
                Acquisition::Acquired(Box::new(AcquiredSession { session, generation, last_seq }))
            }))
        }))
    }

    fn session(&self, id: &SessionId) -> StoreFuture<'_, Option<StoredSession>> {
        let id = id.clone();
        Box::pin(self.read(move |connection| find_session(connection, &id)))
    }

    fn sessions(&self, query: SessionQuery) -> StoreFuture<'_, Vec<StoredSession>> {
        // They change when a session was last used.
        let has_recent = |recent: &RecentRuns| !recent.is_empty();
        Box::pin(self.read_moved(has_recent, move |connection| {
            let mut statement = connection.prepare_cached(&format!(
                "{SELECT_SESSION} WHERE (?1 IS NULL OR principal = ?1) AND (?2 IS NULL OR cwd = ?2)
                 AND (updated_at, ?4) < (?3, id) AND (archived_at IS NOT NULL) = ?6
                 ORDER BY updated_at DESC, id LIMIT ?5"
            ))?;
            let cwd = query.cwd.as_ref().map(|cwd| cwd.to_string_lossy());
            let (at, id) = query.after.map_or((i64::MAX, String::new()), |(at, id)| (at.0, id.to_string()));
            let limit = i64::try_from(query.limit.clamp(1, MAX_PAGE_SIZE)).unwrap_or(i64::MAX);
            let rows = statement
                .query_map(params![query.principal, cwd, at, id, limit, query.archived], session_row)?;
            Ok(rows.collect::<Result<_, _>>()?)
        }))
    }

    fn add_token(&self, token: StoredToken) -> StoreFuture<'_, ()> {
        Box::pin(self.write(Durability::Synced, move |transaction, _| {
            let added = transaction.execute(
                "INSERT OR IGNORE INTO tokens(id, name, role, secret_hash, created_at, expires_at) VALUES(?1, ?2, ?3, ?4, ?5, ?6)",
                params![
                    token.id,
                    token.name,
                    token.role.name(),
                    token.secret_hash,
                    token.created_at.0,
                    token.expires_at.map(|end| end.0)
                ],
            )?;
            if added == 0 {
                return Err(TransactionError::Caller(StoreError::NameTaken(token.name)));
            }
            Ok(())
        }))
    }

    fn token(&self, id: &str) -> StoreFuture<'_, Option<StoredToken>> {
        let id = id.to_owned();
        Box::pin(self.read(move |connection| {
            let sql = format!("{SELECT_TOKEN} WHERE id = ?1");
            Ok(connection.prepare_cached(&sql)?.query_row([id], token_row).optional()?)
        }))
    }

    fn tokens(&self) -> StoreFuture<'_, Vec<StoredToken>> {
        Box::pin(self.read(|connection| {
            let mut statement = connection.prepare_cached(&format!("{SELECT_TOKEN} ORDER BY name"))?;
            Ok(statement.query_map([], token_row)?.collect::<Result<_, _>>()?)
        }))
    }

    fn remove_token(&self, name: &str) -> StoreFuture<'_, bool> {
        let name = name.to_owned();
        Box::pin(self.write(Durability::Synced, move |transaction, _| {
            Ok(transaction.execute("DELETE FROM tokens WHERE name = ?1", [name])? > 0)
        }))
    }
}

/// Makes one change. A change that was made before, because the answer of an earlier commit was lost, counts as made.
fn apply(transaction: &Connection, mutation: Mutation, lost: &mut Vec<SessionId>) -> SqlResult<()> {
    match mutation {
        Mutation::Create(session) => {
            let created = transaction.execute(
                "INSERT OR IGNORE INTO sessions(id, principal, cwd, title, setup, pending, generation, last_seq, bytes, created_at, updated_at)
                 VALUES(?1, ?2, ?3, ?4, ?5, ?6, 1, 0, 0, ?7, ?8)",
                params![
                    &*session.id,
                    session.principal,
                    session.cwd.to_string_lossy(),
                    session.title,
                    session.setup.to_string(),
                    to_json(&session.pending)?,
                    session.created_at.0,
                    session.updated_at.0
                ],
            )?;
            let is_same = || {
                transaction
                    .prepare_cached(
                        "SELECT 1 FROM sessions WHERE id = ?1 AND principal = ?2 AND created_at = ?3 AND generation = 1",
                    )?
                    .exists(params![&*session.id, session.principal, session.created_at.0])
            };
            if created == 0 && !is_same()? {
                lost.push(session.id);
            }
        }
        Mutation::Update { session, generation, change } => {
            if lost.contains(&session) {
                return Ok(());
            }
            let changed_at = change.changes_session().then(|| now().0);
            let setup = change.setup.map(|setup| setup.to_string());
            let pending = change.pending.as_ref().map(to_json).transpose()?;
            let updated = transaction
                .prepare_cached(
                    "UPDATE sessions SET title = ifnull(?1, title), setup = ifnull(?2, setup), pending = ifnull(?3, pending),
                     updated_at = ifnull(?4, updated_at),
                     archived_at = CASE WHEN ?5 IS NULL THEN archived_at WHEN ?5 THEN ifnull(archived_at, ?6) END
                     WHERE id = ?7 AND (?8 IS NULL OR generation = ?8)",
                )?
                .execute(params![
                    change.title,
                    setup,
                    pending,
                    changed_at,
                    change.archived,
                    now().0,
                    &*session,
                    generation.map(to_sql)
                ])?;
            if updated == 0 && generation.is_some() {
                lost.push(session);
            }
        }
        // Made by the caller; and there is only one server.
        Mutation::Append { .. }
        | Mutation::Delete(_)
        | Mutation::Release { .. }
        | Mutation::Send(_)
        | Mutation::Received(_) => {}
    }
    Ok(())
}

/// Returns the events of a session after a number: at least one if there is any, and then about `max_bytes`.
fn read_events(
    connection: &Connection,
    session: &SessionId,
    after: u64,
    max_bytes: usize,
) -> SqlResult<Vec<Event>> {
    let mut runs = connection.prepare_cached(
        "SELECT first_seq, run FROM events WHERE session = ?1 AND last_seq > ?2 ORDER BY last_seq",
    )?;
    let mut rows = runs.query(params![&**session, to_sql(after)])?;
    let (mut events, mut bytes) = (Vec::new(), 0);
    while bytes < max_bytes.max(1)
        && let Some(row) = rows.next()?
    {
        let run = Bytes::from(row.get::<_, Vec<u8>>(1)?);
        let decoded = decode_run(from_sql(row.get(0)?), &run)
            .map_err(|error| TransactionError::Damaged(error.to_string()))?;
        let wanted = decoded.into_iter().filter(|event| event.seq > after);
        events.extend(wanted.inspect(|event| bytes += event.size()));
    }
    Ok(events)
}

fn delete_session(transaction: &Connection, id: &SessionId) -> SqlResult<()> {
    transaction.execute("DELETE FROM events WHERE session = ?1", [&**id])?;
    transaction.execute("DELETE FROM sessions WHERE id = ?1", [&**id])?;
    Ok(())
}

/// Drops the oldest events until a quarter of the limit is free.
fn drop_oldest(transaction: &Connection, session: &SessionId, bytes: i64) -> SqlResult<()> {
    let keep = to_sql(MAX_SESSION_BYTES / 4 * 3);
    let mut left = bytes;
    let mut cut = 0;
    let mut runs = transaction
        .prepare_cached("SELECT last_seq, length(run) FROM events WHERE session = ?1 ORDER BY last_seq")?;
    let mut rows = runs.query([&**session])?;
    while left > keep
        && let Some(row) = rows.next()?
    {
        cut = row.get::<_, i64>(0)?;
        left -= row.get::<_, i64>(1)?;
    }
    transaction
        .execute("DELETE FROM events WHERE session = ?1 AND last_seq <= ?2", params![&**session, cut])?;
    transaction.execute("UPDATE sessions SET bytes = ?1 WHERE id = ?2", params![left, &**session])?;
    Ok(())
}

const SELECT_SESSION: &str =
    "SELECT id, principal, cwd, title, setup, pending, created_at, updated_at, archived_at FROM sessions";
const SELECT_TOKEN: &str = "SELECT id, name, role, secret_hash, created_at, expires_at FROM tokens";

fn find_session(connection: &Connection, id: &SessionId) -> SqlResult<Option<StoredSession>> {
    let sql = format!("{SELECT_SESSION} WHERE id = ?1");
    Ok(connection.prepare_cached(&sql)?.query_row([&**id], session_row).optional()?)
}

fn session_row(row: &Row<'_>) -> rusqlite::Result<StoredSession> {
    let json = |column: usize| row.get::<_, String>(column);
    Ok(StoredSession {
        id: row.get::<_, String>(0)?.into(),
        principal: row.get(1)?,
        cwd: PathBuf::from(row.get::<_, String>(2)?),
        title: row.get(3)?,
        setup: serde_json::from_str(&json(4)?).unwrap_or_default(),
        pending: serde_json::from_str(&json(5)?).unwrap_or_default(),
        created_at: Timestamp(row.get(6)?),
        updated_at: Timestamp(row.get(7)?),
        archived_at: row.get::<_, Option<i64>>(8)?.map(Timestamp),
    })
}

fn token_row(row: &Row<'_>) -> rusqlite::Result<StoredToken> {
    let role: String = row.get(2)?;
    Ok(StoredToken {
        id: row.get(0)?,
        name: row.get(1)?,
        // An unknown role of a later version may do the least.
        role: Role::from_name(&role).unwrap_or(Role::Observer),
        secret_hash: row.get(3)?,
        created_at: Timestamp(row.get(4)?),
        expires_at: row.get::<_, Option<i64>>(5)?.map(Timestamp),
    })
}

fn to_json(value: &impl serde::Serialize) -> SqlResult<String> {
    serde_json::to_string(value).map_err(|error| TransactionError::Damaged(error.to_string()))
}

fn to_sql(number: u64) -> i64 {
    i64::try_from(number).unwrap_or(i64::MAX)
}

fn from_sql(number: i64) -> u64 {
    u64::try_from(number).unwrap_or(0)
}
