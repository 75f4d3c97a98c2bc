//! Sessions in a PostgreSQL database, which the agents of several servers share.
//!
//! Each claim of a session begins a generation, and only its newest generation can change it: what a process still sends
//! after another one has claimed the session is refused with [`StoreError::Lost`]. `bowline serve` decides which server
//! has a session, so a claim never waits for an earlier holder.
//!
//! Each operation is one transaction in a task of its own. An append whose answer was lost with the connection is found
//! by the place of the next record, and not made twice.

use std::collections::HashSet;
use std::future::Future;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use bowline_postgres::{Connector, Parameter, PostgresUrl, clean, from_sql, to_sql};
use bowline_protocol::schema::v1::SessionId;
use bowline_storage::clock::now;
use bowline_text::time::Timestamp;
use deadpool_postgres::{Object, Pool, Transaction};
use tokio::sync::OnceCell;
use tokio_postgres::types::Type;
use tokio_postgres::{IsolationLevel, Row};

use super::codec::{self, COMPACTED, EncodedRecord, UPDATE};
use super::cursor::{format_cursor, parse_cursor};
use super::error::StoreTransactionError;
use super::metadata::{self, SessionColumns};
use super::{
    Durability, MAX_PAGE_SIZE, MAX_WAITING_BYTES, MetaChange, ROOM_DIVISOR, SessionLease, SessionMeta,
    SessionPage, SessionQuery, SessionRecord, SessionRetention, SessionStore, StoreError, StoreFuture,
    StoreNotice, StoredSession,
};

/// The connections of one agent.
const CONNECTIONS: usize = 2;
/// About how many bytes of records are sent to the database at a time.
const INSERT_BYTES: usize = 16 << 20;
/// How long a process may be silent amid a transaction, for which another one that claims the session waits.
const MAX_SILENCE: Duration = Duration::from_secs(15);
/// How long a session that no server knows is kept, in milliseconds: a day.
const UNKNOWN_SESSION_AGE_MS: i64 = 24 * 60 * 60 * 1000;

/// The stored sessions in a database. Clones share their connections.
///
/// Of the [`SessionRetention`], only the limit of one session applies: the servers' own sessions decide which are kept.
#[derive(Debug, Clone)]
pub struct PostgresSessionStore {
    inner: Arc<StoreInner>,
}

#[derive(Debug)]
struct StoreInner {
    url: PostgresUrl,
    retention: SessionRetention,
    database: OnceCell<SharedDatabase>,
    // The sessions that this process has claimed.
    held: Mutex<HashSet<SessionId>>,
}

#[derive(Debug)]
struct SharedDatabase {
    connector: Connector,
    pool: Pool,
}

impl PostgresSessionStore {
    /// Returns the store of a database, without connecting.
    #[must_use]
    pub fn new(url: PostgresUrl, retention: SessionRetention) -> Self {
        let (database, held) = (OnceCell::new(), Mutex::default());
        Self { inner: Arc::new(StoreInner { url, retention, database, held }) }
    }

    /// Runs an operation to its end, whether or not the caller waits for it.
    fn run<T: Send + 'static>(
        &self,
        operation: impl Future<Output = Result<T, StoreError>> + Send + 'static,
    ) -> StoreFuture<'static, T> {
        let task = tokio::spawn(operation);
        Box::pin(async move { task.await.map_err(|_| StoreError::Stopped)? })
    }

    /// Notes that this process holds a session, for as long as the claim exists.
    fn hold(&self, id: &SessionId) -> Result<HeldSession, StoreError> {
        let is_free = self.inner.held.lock().unwrap_or_else(PoisonError::into_inner).insert(id.clone());
        if !is_free {
            return Err(StoreError::Busy { id: id.clone(), process: Some(std::process::id()) });
        }
        Ok(HeldSession { store: Arc::clone(&self.inner), id: id.clone() })
    }

    fn new_lease(&self, held: HeldSession, generation: i64, next: i64) -> Box<dyn SessionLease> {
        let state = tokio::sync::Mutex::new(ClaimState { next, unsaved: Vec::new() });
        let claim = Arc::new(SharedClaim { held, generation, state });
        Box::new(PostgresSessionLease { store: self.clone(), claim })
    }
}

impl StoreInner {
    /// Connects and migrates, once.
    async fn database(&self) -> Result<&SharedDatabase, StoreError> {
        self.database
            .get_or_try_init(|| async {
                let connector = Connector::new(&self.url)?;
                let pool = connector.pool(CONNECTIONS)?;
                connector.migrate(&pool).await?;
                let database = SharedDatabase { connector, pool };
                database.remove_unknown_sessions().await?;
                Ok(database)
            })
            .await
    }
}

/// A session that this process holds.
#[derive(Debug)]
struct HeldSession {
    store: Arc<StoreInner>,
    id: SessionId,
}

impl Drop for HeldSession {
    fn drop(&mut self) {
        self.store.held.lock().unwrap_or_else(PoisonError::into_inner).remove(&self.id);
    }
}

/// A claim on a session.
#[derive(Debug)]
struct SharedClaim {
    held: HeldSession,
    generation: i64,
    state: tokio::sync::Mutex<ClaimState>,
}

#[derive(Debug)]
struct ClaimState {
    // The place of the next record, as far as the database is known to have them.
    next: i64,
    unsaved: Vec<EncodedRecord>,
}

impl SessionStore for PostgresSessionStore {
    fn take_notices(&self) -> Vec<StoreNotice> {
        Vec::new()
    }

    fn create(&self, meta: SessionMeta) -> StoreFuture<'_, Box<dyn SessionLease>> {
        let store = self.clone();
        self.run(async move {
            let held = store.hold(&meta.id)?;
            store
                .inner
                .database()
                .await?
                .write(async |transaction| insert_session(transaction, &meta).await)
                .await?;
            Ok(store.new_lease(held, 1, 0))
        })
    }

    fn claim(&self, id: &SessionId) -> StoreFuture<'_, (Box<dyn SessionLease>, StoredSession)> {
        let (store, id) = (self.clone(), id.clone());
        self.run(async move {
            let held = store.hold(&id)?;
            let claim = async |transaction: &Transaction<'_>| {
                let sql = "UPDATE agent_sessions SET generation = generation + 1 WHERE id = $1";
                transaction.execute_typed(sql, &[(&clean(&id.0), Type::TEXT)]).await?;
                load_session(transaction, &id).await
            };
            let (row, stored) = store.inner.database().await?.write(claim).await?;
            Ok((store.new_lease(held, row.generation, row.next), stored))
        })
    }

    fn fork(
        &self,
        parent: &SessionId,
        meta: SessionMeta,
    ) -> StoreFuture<'_, (Box<dyn SessionLease>, StoredSession)> {
        let (store, parent) = (self.clone(), parent.clone());
        self.run(async move {
            let held = store.hold(&meta.id)?;
            let fork = async |transaction: &Transaction<'_>| {
                fork_session(transaction, &parent, &meta).await?;
                load_session(transaction, &meta.id).await
            };
            let (row, stored) = store.inner.database().await?.write(fork).await?;
            Ok((store.new_lease(held, row.generation, row.next), stored))
        })
    }

    fn read(&self, id: &SessionId) -> StoreFuture<'_, StoredSession> {
        let (store, id) = (self.clone(), id.clone());
        self.run(async move {
            let read = async |transaction: &Transaction<'_>| load_session(transaction, &id).await;
            Ok(store.inner.database().await?.read(read).await?.1)
        })
    }

    fn list(&self, query: SessionQuery) -> StoreFuture<'_, SessionPage> {
        let store = self.clone();
        self.run(async move {
            let before = query.cursor.as_deref().map_or(Ok(i64::MAX), parse_cursor)?;
            let cwd = query.cwd.as_deref().map(metadata::path_to_str).transpose()?.map(clean);
            let size = query.page_size.clamp(1, MAX_PAGE_SIZE);
            let list = async |transaction: &Transaction<'_>| {
                list_sessions(transaction, cwd.as_deref(), before, size).await
            };
            store.inner.database().await?.read(list).await
        })
    }

    fn delete(&self, id: &SessionId) -> StoreFuture<'_, ()> {
        let (store, id) = (self.clone(), id.clone());
        self.run(async move {
            let _held = store.hold(&id)?;
            let delete = async |transaction: &Transaction<'_>| {
                // Its records go with it.
                let sql = "DELETE FROM agent_sessions WHERE id = $1";
                transaction.execute_typed(sql, &[(&clean(&id.0), Type::TEXT)]).await?;
                Ok(())
            };
            store.inner.database().await?.write(delete).await
        })
    }
}

#[derive(Debug)]
struct PostgresSessionLease {
    store: PostgresSessionStore,
    claim: Arc<SharedClaim>,
}

impl SessionLease for PostgresSessionLease {
    /// Every commit is as durable as the database makes it.
    fn append(&self, records: Vec<SessionRecord>, _durability: Durability) -> StoreFuture<'_, ()> {
        let (inner, claim) = (Arc::clone(&self.store.inner), Arc::clone(&self.claim));
        self.store.run(async move {
            let mut state = claim.state.lock().await;
            let ClaimState { next, unsaved } = &mut *state;
            let previous = unsaved.len();
            unsaved.extend(codec::encode_all(records)?);
            let max_bytes = to_sql(inner.retention.max_session_bytes);
            let append = async |transaction: &Transaction<'_>| {
                append_records(transaction, &claim, *next, unsaved, previous, max_bytes).await
            };
            let appended = match inner.database().await {
                Ok(database) => database.write(append).await,
                Err(error) => Err(error),
            };
            match appended {
                Ok(place) => {
                    (*next, *unsaved) = (place, Vec::new());
                    Ok(())
                }
                Err(error) => {
                    // A retry would fail as well.
                    let is_final = matches!(
                        error,
                        StoreError::SessionFull { .. } | StoreError::NotFound(_) | StoreError::Lost(_)
                    );
                    let waiting: usize = unsaved.iter().map(|record| record.data.len()).sum();
                    if is_final || waiting > MAX_WAITING_BYTES {
                        unsaved.truncate(previous);
                    }
                    Err(error)
                }
            }
        })
    }

    fn update_meta(&self, change: MetaChange) -> StoreFuture<'_, SessionMeta> {
        let (inner, claim) = (Arc::clone(&self.store.inner), Arc::clone(&self.claim));
        self.store.run(async move {
            // After appends that came before.
            let _state = claim.state.lock().await;
            let database = inner.database().await?;
            let mut client = database.client().await?;
            let update = async {
                let transaction = client.transaction().await?;
                let limit = bowline_postgres::limit_silence(&transaction, MAX_SILENCE);
                let (limited, locked) = tokio::join!(limit, lock_session(&transaction, &claim));
                let mut meta = locked?.meta;
                limited?;
                change(&mut meta);
                meta.id = claim.held.id.clone();
                let SessionColumns { cwd, details } = SessionColumns::from_meta(&meta)?;
                let sql = "UPDATE agent_sessions SET cwd = $2, details = $3, updated_at = $4 WHERE id = $1";
                let parameters: &[Parameter<'_>] = &[
                    (&clean(&meta.id.0), Type::TEXT),
                    (&clean(&cwd), Type::TEXT),
                    (&details, Type::TEXT),
                    (&meta.updated_at.0, Type::INT8),
                ];
                transaction.execute_typed(sql, parameters).await?;
                transaction.commit().await?;
                Ok(meta)
            };
            update.await.map_err(|error| database.describe(error))
        })
    }
}

/// Why a transaction failed: the database, or the operation.
enum OperationError {
    Database(tokio_postgres::Error),
    Store(StoreError),
}

impl From<tokio_postgres::Error> for OperationError {
    fn from(error: tokio_postgres::Error) -> Self {
        Self::Database(error)
    }
}

impl From<StoreError> for OperationError {
    fn from(error: StoreError) -> Self {
        Self::Store(error)
    }
}

impl SharedDatabase {
    async fn client(&self) -> Result<Object, StoreError> {
        Ok(self.pool.get().await.map_err(|error| self.connector.no_connection(&error))?)
    }

    fn describe(&self, error: OperationError) -> StoreError {
        match error {
            OperationError::Database(error) => self.connector.unavailable(&error).into(),
            OperationError::Store(error) => error,
        }
    }

    /// Runs a transaction that changes something.
    async fn write<T>(
        &self,
        body: impl AsyncFnOnce(&Transaction<'_>) -> Result<T, OperationError>,
    ) -> Result<T, StoreError> {
        let mut client = self.client().await?;
        let run = async {
            let transaction = client.transaction().await?;
            // Both are sent at once.
            let limit = bowline_postgres::limit_silence(&transaction, MAX_SILENCE);
            let (limited, output) = tokio::join!(limit, body(&transaction));
            let output = output?;
            limited?;
            transaction.commit().await?;
            Ok(output)
        };
        run.await.map_err(|error| self.describe(error))
    }

    /// Runs a transaction that sees one state of the database.
    async fn read<T>(
        &self,
        body: impl AsyncFnOnce(&Transaction<'_>) -> Result<T, OperationError>,
    ) -> Result<T, StoreError> {
        let mut client = self.client().await?;
        let run = async {
            let transaction = client.build_transaction();
            let transaction =
                transaction.isolation_level(IsolationLevel::RepeatableRead).read_only(true).start().await?;
            let output = body(&transaction).await?;
            transaction.commit().await?;
            Ok(output)
        };
        run.await.map_err(|error| self.describe(error))
    }

    /// Removes sessions that no server knows: those whose client had left before they were registered.
    async fn remove_unknown_sessions(&self) -> Result<(), StoreError> {
        let client = self.client().await?;
        let sql = "DELETE FROM agent_sessions WHERE updated_at < $1
                   AND NOT EXISTS(SELECT 1 FROM sessions WHERE sessions.id = agent_sessions.id)";
        let before = now().0.saturating_sub(UNKNOWN_SESSION_AGE_MS);
        let removed = client.execute_typed(sql, &[(&before, Type::INT8)]).await;
        removed.map_err(|error| self.connector.unavailable(&error))?;
        Ok(())
    }
}

/// A session as its row describes it.
struct SessionRow {
    meta: SessionMeta,
    generation: i64,
    touched: i64,
    next: i64,
    bytes: i64,
    dropped: i64,
}

const SESSION_COLUMNS: &str =
    "id, cwd, generation, touched, created_at, updated_at, details, next, bytes, dropped";

fn read_session(row: &Row) -> Result<SessionRow, tokio_postgres::Error> {
    let columns = SessionColumns { cwd: row.try_get(1)?, details: row.try_get(6)? };
    let id = SessionId::from(row.try_get::<_, String>(0)?);
    Ok(SessionRow {
        meta: columns.into_meta(id, Timestamp(row.try_get(4)?), Timestamp(row.try_get(5)?)),
        generation: row.try_get(2)?,
        touched: row.try_get(3)?,
        next: row.try_get(7)?,
        bytes: row.try_get(8)?,
        dropped: row.try_get(9)?,
    })
}

/// Finds a session, and locks its row as `lock` says.
async fn find_session(
    transaction: &Transaction<'_>,
    id: &SessionId,
    lock: &str,
) -> Result<SessionRow, OperationError> {
    let sql = format!("SELECT {SESSION_COLUMNS} FROM agent_sessions WHERE id = $1 {lock}");
    match transaction.query_typed_opt(&sql, &[(&clean(&id.0), Type::TEXT)]).await? {
        Some(row) => Ok(read_session(&row)?),
        None => Err(StoreError::NotFound(id.clone()).into()),
    }
}

/// Locks a claimed session's row. Fails if another process has claimed the session since.
async fn lock_session(
    transaction: &Transaction<'_>,
    claim: &SharedClaim,
) -> Result<SessionRow, OperationError> {
    let session = find_session(transaction, &claim.held.id, "FOR UPDATE").await?;
    if session.generation != claim.generation {
        return Err(StoreError::Lost(claim.held.id.clone()).into());
    }
    Ok(session)
}

/// Inserts a session without records.
async fn insert_session(transaction: &Transaction<'_>, meta: &SessionMeta) -> Result<(), OperationError> {
    let SessionColumns { cwd, details } = SessionColumns::from_meta(meta)?;
    let sql = "INSERT INTO agent_sessions(id, cwd, generation, created_at, updated_at, details, next, bytes, dropped)
               VALUES($1, $2, 1, $3, $4, $5, 0, 0, 0) ON CONFLICT (id) DO NOTHING";
    let parameters: &[Parameter<'_>] = &[
        (&clean(&meta.id.0), Type::TEXT),
        (&clean(&cwd), Type::TEXT),
        (&meta.created_at.0, Type::INT8),
        (&meta.updated_at.0, Type::INT8),
        (&details, Type::TEXT),
    ];
    if transaction.execute_typed(sql, parameters).await? == 0 {
        return Err(StoreError::Exists(meta.id.clone()).into());
    }
    Ok(())
}

/// Inserts a session that begins with the records of another.
async fn fork_session(
    transaction: &Transaction<'_>,
    parent: &SessionId,
    meta: &SessionMeta,
) -> Result<(), OperationError> {
    // Nothing is appended to it meanwhile.
    let old = find_session(transaction, parent, "FOR UPDATE").await?;
    insert_session(transaction, meta).await?;
    let sql = "INSERT INTO agent_records(session, place, kind, codec, size, data, checksum)
               SELECT $2, place, kind, codec, size, data, checksum FROM agent_records WHERE session = $1";
    let (from, to) = (clean(&parent.0), clean(&meta.id.0));
    transaction.execute_typed(sql, &[(&from, Type::TEXT), (&to, Type::TEXT)]).await?;
    let sql = "UPDATE agent_sessions SET next = $2, bytes = $3, dropped = $4 WHERE id = $1";
    let parameters: &[Parameter<'_>] =
        &[(&to, Type::TEXT), (&old.next, Type::INT8), (&old.bytes, Type::INT8), (&old.dropped, Type::INT8)];
    transaction.execute_typed(sql, parameters).await?;
    Ok(())
}

/// Reads a session with all its records.
async fn load_session(
    transaction: &Transaction<'_>,
    id: &SessionId,
) -> Result<(SessionRow, StoredSession), OperationError> {
    let row = find_session(transaction, id, "").await?;
    let sql = "SELECT kind, codec, size, data, checksum FROM agent_records WHERE session = $1 ORDER BY place";
    let mut stored = StoredSession::without_records(row.meta.clone(), from_sql(row.dropped));
    for record in transaction.query_typed(sql, &[(&clean(&id.0), Type::TEXT)]).await? {
        stored.push_record(read_record(&record)?).map_err(|error| match error {
            StoreTransactionError::Caller(error) => error,
            StoreTransactionError::Damaged(why) => StoreError::Unreadable { id: id.clone(), why },
            StoreTransactionError::Sql(error) => StoreError::Unavailable(error.into()),
        })?;
    }
    Ok((row, stored))
}

fn read_record(row: &Row) -> Result<EncodedRecord, tokio_postgres::Error> {
    Ok(EncodedRecord {
        kind: row.try_get(0)?,
        codec: row.try_get(1)?,
        size: row.try_get(2)?,
        data: row.try_get(3)?,
        // A checksum of another length matches nothing.
        checksum: row.try_get::<_, Vec<u8>>(4)?.try_into().unwrap_or_default(),
    })
}

/// Appends records to a session, and drops old ones to stay within the size limit. `next` is the place after the last
/// record that the caller knows to be stored, and the first `retried` records were sent before, perhaps with success.
/// Returns the place after the last record.
async fn append_records(
    transaction: &Transaction<'_>,
    claim: &SharedClaim,
    next: i64,
    records: &[EncodedRecord],
    retried: usize,
    max_bytes: i64,
) -> Result<i64, OperationError> {
    let mut session = lock_session(transaction, claim).await?;
    let id = clean(&claim.held.id.0);
    let stored = usize::try_from(session.next - next).unwrap_or(0).min(retried);
    let records = records.get(stored..).unwrap_or_default();
    let mut compacted_at = None;
    let mut rest = records;
    while !rest.is_empty() {
        let mut bytes = 0;
        let fits = |record: &&EncodedRecord| {
            let is_first = bytes == 0;
            bytes += record.data.len() + 1;
            is_first || bytes <= INSERT_BYTES
        };
        let (page, more) = rest.split_at(rest.iter().take_while(fits).count());
        insert_records(transaction, &id, session.next, page).await?;
        for record in page {
            compacted_at = if record.kind == COMPACTED { Some(session.next) } else { compacted_at };
            session.next += 1;
            session.bytes += record.size;
        }
        rest = more;
    }
    if let Some(place) = compacted_at {
        // The conversation restarts with these: earlier messages are obsolete.
        let sql = "WITH dropped AS (
                     DELETE FROM agent_records WHERE session = $1 AND place < $2 AND kind <> $3 RETURNING size
                   ) SELECT coalesce(sum(size), 0)::bigint FROM dropped";
        let parameters: &[Parameter<'_>] = &[(&id, Type::TEXT), (&place, Type::INT8), (&UPDATE, Type::INT8)];
        session.bytes -= transaction.query_typed_one(sql, parameters).await?.try_get::<_, i64>(0)?;
    }
    if session.bytes > max_bytes {
        // The oldest updates, until enough bytes are free.
        let excess = session.bytes - (max_bytes - max_bytes / ROOM_DIVISOR);
        let sql = "WITH sized AS (
                     SELECT place, sum(size) OVER (ORDER BY place) - size AS earlier FROM agent_records
                     WHERE session = $1 AND kind = $2
                   ), dropped AS (
                     DELETE FROM agent_records WHERE session = $1
                     AND place IN (SELECT place FROM sized WHERE earlier < $3) RETURNING size
                   ) SELECT count(*), coalesce(sum(size), 0)::bigint FROM dropped";
        let parameters: &[Parameter<'_>] = &[(&id, Type::TEXT), (&UPDATE, Type::INT8), (&excess, Type::INT8)];
        let row = transaction.query_typed_one(sql, parameters).await?;
        session.dropped += row.try_get::<_, i64>(0)?;
        session.bytes -= row.try_get::<_, i64>(1)?;
    }
    if session.bytes > max_bytes {
        let bytes = session.bytes.unsigned_abs();
        return Err(StoreError::SessionFull { id: claim.held.id.clone(), bytes }.into());
    }
    let sql = "UPDATE agent_sessions SET next = $2, bytes = $3, dropped = $4, updated_at = greatest($5, updated_at + 1),
                 touched = CASE WHEN $6 THEN nextval('agent_session_uses') ELSE touched END
               WHERE id = $1";
    let parameters: &[Parameter<'_>] = &[
        (&id, Type::TEXT),
        (&session.next, Type::INT8),
        (&session.bytes, Type::INT8),
        (&session.dropped, Type::INT8),
        (&now().0, Type::INT8),
        (&!records.is_empty(), Type::BOOL),
    ];
    transaction.execute_typed(sql, parameters).await?;
    Ok(session.next)
}

async fn insert_records(
    transaction: &Transaction<'_>,
    id: &str,
    first: i64,
    records: &[EncodedRecord],
) -> Result<(), OperationError> {
    let column = |value: fn(&EncodedRecord) -> i64| records.iter().map(value).collect::<Vec<i64>>();
    let data: Vec<&[u8]> = records.iter().map(|record| &*record.data).collect();
    let checksums: Vec<&[u8]> = records.iter().map(|record| &record.checksum[..]).collect();
    let sql = "INSERT INTO agent_records(session, place, kind, codec, size, data, checksum)
               SELECT $1, $2 + number - 1, kind, codec, size, data, checksum
               FROM unnest($3, $4, $5, $6, $7) WITH ORDINALITY
                 AS added(kind, codec, size, data, checksum, number)";
    let parameters: &[Parameter<'_>] = &[
        (&id, Type::TEXT),
        (&first, Type::INT8),
        (&column(|record| record.kind), Type::INT8_ARRAY),
        (&column(|record| record.codec), Type::INT8_ARRAY),
        (&column(|record| record.size), Type::INT8_ARRAY),
        (&data, Type::BYTEA_ARRAY),
        (&checksums, Type::BYTEA_ARRAY),
    ];
    transaction.execute_typed(sql, parameters).await?;
    Ok(())
}

/// Lists sessions used before the cursor, most recent first.
async fn list_sessions(
    transaction: &Transaction<'_>,
    cwd: Option<&str>,
    before: i64,
    page_size: usize,
) -> Result<SessionPage, OperationError> {
    let sql = format!(
        "SELECT {SESSION_COLUMNS} FROM agent_sessions WHERE ($1 IS NULL OR cwd = $1) AND touched < $2
         ORDER BY touched DESC LIMIT $3"
    );
    let limit = i64::try_from(page_size).unwrap_or(i64::MAX).saturating_add(1);
    let parameters: &[Parameter<'_>] = &[(&cwd, Type::TEXT), (&before, Type::INT8), (&limit, Type::INT8)];
    let mut rows = Vec::new();
    for row in transaction.query_typed(&sql, parameters).await? {
        rows.push(read_session(&row)?);
    }
    let has_more = rows.len() > page_size;
    rows.truncate(page_size);
    let next_cursor = rows.last().filter(|_| has_more).map(|last| format_cursor(last.touched));
    Ok(SessionPage { sessions: rows.into_iter().map(|row| row.meta).collect(), next_cursor })
}
