//! The store in a PostgreSQL database, which several servers share.
//!
//! Each server has a row with a lease, and a session belongs to at most one server whose lease is valid. Only the
//! database's clock counts. A server whose lease has ended never gets it back: it registers anew, and the generation of
//! each session keeps what it still sends from being stored ([`Mutation::Append`]).
//!
//! Notifications only say where to look; everything is read from tables ([`PostgresListener`]).

use std::collections::{BTreeMap, HashSet};
use std::path::PathBuf;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use bowline_postgres::{Connector, Parameter, clean, from_sql, to_sql};
use bowline_text::time::Timestamp;
use bytes::Bytes;
use deadpool_postgres::{Object, Pool, Transaction};
use tokio_postgres::Row;
use tokio_postgres::types::Type;

use super::{
    AcquiredSession, Acquisition, MAX_PAGE_SIZE, MAX_SESSION_BYTES, Mutation, ServerStore, SessionChange,
    SessionQuery, StoreError, StoreFuture, StoredSession,
};
use crate::event::{Event, SessionId, decode_run, encode_run};
use crate::token::{Role, StoredToken, random_hex};

mod listener;
mod servers;
#[cfg(test)]
mod tests;

pub use bowline_postgres::{Migration, PostgresUrl, PostgresUrlError, SCHEMA_VERSION};
pub use listener::{PostgresListener, Wake};
pub use servers::{
    ForwardOutcome, PostgresStatus, ServerId, ServerMessage, ServerMessageContent, ServerStatus,
    WaitingSession,
};

/// The connections of one server, besides the one that listens: for streams and requests, and for the log and the lease,
/// which must not wait for the others.
const READ_CONNECTIONS: usize = 6;
const WRITE_CONNECTIONS: usize = 2;
/// The longest payload of a notification, below PostgreSQL's limit of 8000 bytes.
const MAX_PAYLOAD_BYTES: usize = 7900;
/// The channel of new events; the payload has the ids of their sessions as JSON, or is empty.
const EVENTS_CHANNEL: &str = "bowline_events";
/// The channel of messages between servers; the payload is the id of the receiving server.
const INBOX_CHANNEL: &str = "bowline_inbox";
/// The database's time in milliseconds.
const NOW_MS: &str = "(extract(epoch FROM clock_timestamp()) * 1000)::bigint";

/// How a server takes part in a shared store.
#[derive(Debug, Clone)]
pub struct PostgresOptions {
    /// The server's name, for people.
    pub name: String,
    /// How long its lease is valid after a heartbeat.
    pub lease: Duration,
    /// How often it renews the lease, and looks for sessions of servers that are gone.
    pub heartbeat: Duration,
}

/// The store of one server among several.
#[derive(Debug)]
pub struct PostgresServerStore {
    pool: Pool,
    writes: Pool,
    connector: Connector,
    options: PostgresOptions,
    // `None` if it was not opened for a server.
    server: Mutex<Option<ServerId>>,
}

impl PostgresServerStore {
    /// Opens the store for a server: migrates the schema and registers the server.
    ///
    /// # Errors
    /// Fails if the database cannot be used, or if its schema is of a later version.
    pub async fn open_for_server(url: &PostgresUrl, options: PostgresOptions) -> Result<Self, StoreError> {
        let store = Self::connect(url, options)?;
        store.migrate().await?;
        store.register().await?;
        Ok(store)
    }

    /// Opens the store to manage tokens, beside running servers or without one.
    ///
    /// # Errors
    /// Fails if the database cannot be used, or if its schema is of a later version.
    pub async fn open_for_tokens(url: &PostgresUrl) -> Result<Self, StoreError> {
        let store = Self::open_without_migration(url)?;
        store.migrate().await?;
        Ok(store)
    }

    /// Opens the store as it is, for its status.
    ///
    /// # Errors
    /// Fails if the system's certificates cannot be read.
    pub fn open_without_migration(url: &PostgresUrl) -> Result<Self, StoreError> {
        Self::connect(
            url,
            PostgresOptions { name: String::new(), lease: Duration::ZERO, heartbeat: Duration::ZERO },
        )
    }

    fn connect(url: &PostgresUrl, options: PostgresOptions) -> Result<Self, StoreError> {
        let connector = Connector::new(url)?;
        let (pool, writes) = (connector.pool(READ_CONNECTIONS)?, connector.pool(WRITE_CONNECTIONS)?);
        Ok(Self { pool, writes, connector, options, server: Mutex::default() })
    }

    /// Brings the schema to this program's version.
    ///
    /// # Errors
    /// Fails if the database cannot be used, or if its schema is of a later version.
    pub async fn migrate(&self) -> Result<Migration, StoreError> {
        Ok(self.connector.migrate(&self.pool).await?)
    }

    /// Returns the id of this server; empty if the store was not opened for one.
    #[must_use]
    pub fn server_id(&self) -> ServerId {
        let server = self.server.lock().unwrap_or_else(PoisonError::into_inner);
        server.clone().unwrap_or_else(|| "".into())
    }

    async fn client(&self) -> Result<Object, StoreError> {
        Ok(self.pool.get().await.map_err(|error| self.connector.no_connection(&error))?)
    }

    fn unavailable(&self, error: &tokio_postgres::Error) -> StoreError {
        self.connector.unavailable(error).into()
    }

    async fn query(&self, sql: &str, parameters: &[Parameter<'_>]) -> Result<Vec<Row>, StoreError> {
        let client = self.client().await?;
        client.query_typed(sql, parameters).await.map_err(|error| self.unavailable(&error))
    }

    async fn query_opt(&self, sql: &str, parameters: &[Parameter<'_>]) -> Result<Option<Row>, StoreError> {
        Ok(self.query(sql, parameters).await?.into_iter().next())
    }

    async fn execute(&self, sql: &str, parameters: &[Parameter<'_>]) -> Result<u64, StoreError> {
        let client = self.writes.get().await.map_err(|error| self.connector.no_connection(&error))?;
        client.execute_typed(sql, parameters).await.map_err(|error| self.unavailable(&error))
    }

    /// Reads the rows of a query, each as one value.
    fn read_rows<T>(
        &self,
        rows: Vec<Row>,
        read: impl Fn(&Row) -> Result<T, tokio_postgres::Error>,
    ) -> Result<Vec<T>, StoreError> {
        rows.iter().map(read).collect::<Result<_, _>>().map_err(|error| self.unavailable(&error))
    }

    async fn try_commit(&self, mutations: Vec<Mutation>) -> Result<Vec<SessionId>, StoreError> {
        let failed = |error: tokio_postgres::Error| self.unavailable(&error);
        let client = self.writes.get().await;
        let mut client = client.map_err(|error| self.connector.no_connection(&error))?;
        let transaction = client.transaction().await.map_err(failed)?;
        // Once this server has lost its lease, nothing may keep the next one from its sessions. Both are sent at once.
        let limit = bowline_postgres::limit_silence(&transaction, self.options.lease);
        let (limited, written) = tokio::join!(limit, self.write_mutations(&transaction, mutations));
        let lost = written.and_then(|lost| limited.map(|()| lost)).map_err(failed)?;
        transaction.commit().await.map_err(failed)?;
        Ok(lost)
    }

    /// Writes what is to be committed together, and returns the sessions that this server has lost.
    async fn write_mutations(
        &self,
        transaction: &Transaction<'_>,
        mutations: Vec<Mutation>,
    ) -> Result<Vec<SessionId>, tokio_postgres::Error> {
        let server = self.server_id();
        let mut lost = Vec::new();
        let mut changed = Vec::new();
        let mut runs = EventRuns::default();
        let mut updates = SessionUpdates::default();
        for mutation in mutations {
            // Those of many sessions are made together. Runs come first: a session that one of them shows to be lost is
            // not changed any more.
            let (ends_runs, ends_updates) = match &mutation {
                Mutation::Append { session, .. } => (runs.known.contains(session), false),
                Mutation::Update { session, generation, .. } => {
                    (false, !updates.can_take(session, *generation))
                }
                _ => (true, true),
            };
            if ends_runs || ends_updates {
                std::mem::take(&mut runs).append(transaction, &mut lost, &mut changed).await?;
            }
            if ends_updates {
                std::mem::take(&mut updates).apply(transaction, &mut lost).await?;
            }
            match mutation {
                Mutation::Append { session, .. } | Mutation::Update { session, .. }
                    if lost.contains(&session) => {}
                Mutation::Append { session, generation, events } => runs.add(session, generation, &events),
                Mutation::Update { session, generation, change } => updates.add(session, generation, change),
                other => apply(transaction, &server, other, &mut lost, &mut changed).await?,
            }
        }
        runs.append(transaction, &mut lost, &mut changed).await?;
        updates.apply(transaction, &mut lost).await?;
        if !changed.is_empty() {
            changed.sort_unstable();
            changed.dedup();
            let payload = serde_json::to_string(&changed).unwrap_or_default();
            let payload = if payload.len() > MAX_PAYLOAD_BYTES { "" } else { &payload };
            let sql = "SELECT pg_notify($1, $2)";
            let parameters: &[Parameter<'_>] = &[(&EVENTS_CHANNEL, Type::TEXT), (&payload, Type::TEXT)];
            transaction.execute_typed(sql, parameters).await?;
        }
        Ok(lost)
    }

    async fn try_acquire(&self, session: &SessionId) -> Result<Acquisition, StoreError> {
        let server = self.server_id();
        let sql = format!(
            "UPDATE sessions SET owner = $2, generation = generation + 1
             WHERE id = $1 AND (owner IS NULL OR owner = $2 OR NOT {OWNER_IS_ALIVE})
             AND EXISTS(SELECT 1 FROM servers WHERE id = $2 AND lease_until > now())
             RETURNING {SESSION_COLUMNS}, generation, last_seq"
        );
        let (id, owner) = (clean(session), &*server);
        let acquired = self.query_opt(&sql, &[(&id, Type::TEXT), (&owner, Type::TEXT)]).await?;
        if let Some(row) = acquired {
            let read = |row: &Row| {
                Ok(AcquiredSession {
                    session: session_row(row)?,
                    generation: from_sql(row.try_get(9)?),
                    last_seq: from_sql(row.try_get(10)?),
                })
            };
            let acquired = read(&row).map_err(|error| self.unavailable(&error))?;
            return Ok(Acquisition::Acquired(Box::new(acquired)));
        }
        let sql = "SELECT EXISTS(SELECT 1 FROM sessions WHERE id = $1),
                   EXISTS(SELECT 1 FROM servers WHERE id = $2 AND lease_until > now())";
        let row = self.query_opt(sql, &[(&id, Type::TEXT), (&owner, Type::TEXT)]).await?;
        let is_true = |column| row.as_ref().is_some_and(|row| row.try_get(column).unwrap_or(false));
        match (is_true(0), is_true(1)) {
            (false, _) => Ok(Acquisition::NotFound),
            (true, true) => Ok(Acquisition::OwnedElsewhere),
            (true, false) => Err(StoreError::Unavailable(
                "this server's lease in the database has ended: try again in a moment".to_owned(),
            )),
        }
    }

    async fn try_events_after(
        &self,
        session: &SessionId,
        after: u64,
        max_bytes: usize,
    ) -> Result<Vec<Event>, StoreError> {
        // The sizes are known without reading the runs.
        let sql = "SELECT first_seq, run FROM (
                     SELECT first_seq, last_seq, run, sum(size) OVER (ORDER BY last_seq) - size AS earlier FROM (
                       SELECT first_seq, last_seq, run, length(run) AS size FROM events
                       WHERE session = $1 AND last_seq > $2 ORDER BY last_seq LIMIT 1000
                     ) AS page
                   ) AS sized WHERE earlier < $3 ORDER BY last_seq";
        let (id, from, limit) = (clean(session), to_sql(after), to_sql(max_bytes.max(1) as u64));
        let rows = self.query(sql, &[(&id, Type::TEXT), (&from, Type::INT8), (&limit, Type::INT8)]).await?;
        let runs =
            self.read_rows(rows, |row| Ok((row.try_get::<_, i64>(0)?, row.try_get::<_, Vec<u8>>(1)?)))?;
        let (mut events, mut bytes) = (Vec::new(), 0);
        for (first, run) in runs {
            // The query knows only how long compressed runs are.
            if bytes >= max_bytes.max(1) {
                break;
            }
            let decoded = decode_run(from_sql(first), &Bytes::from(run))
                .map_err(|error| StoreError::Unavailable(error.to_string()))?;
            let wanted = decoded.into_iter().filter(|event| event.seq > after);
            events.extend(wanted.inspect(|event| bytes += event.size()));
        }
        Ok(events)
    }

    async fn try_sessions(&self, query: SessionQuery) -> Result<Vec<StoredSession>, StoreError> {
        let sql = format!(
            "SELECT {SESSION_COLUMNS} FROM sessions
             WHERE ($1 IS NULL OR principal = $1) AND ($2 IS NULL OR cwd = $2)
             AND (updated_at, $4) < ($3, id) AND (archived_at IS NOT NULL) = $6
             ORDER BY updated_at DESC, id LIMIT $5"
        );
        let cwd = query.cwd.as_ref().map(|cwd| cwd.to_string_lossy());
        let (at, id) = query.after.map_or((i64::MAX, String::new()), |(at, id)| (at.0, clean(&id)));
        let limit = i64::try_from(query.limit.clamp(1, MAX_PAGE_SIZE)).unwrap_or(i64::MAX);
        let parameters: &[Parameter<'_>] = &[
            (&query.principal, Type::TEXT),
            (&cwd, Type::TEXT),
            (&at, Type::INT8),
            (&id, Type::TEXT),
            (&limit, Type::INT8),
            (&query.archived, Type::BOOL),
        ];
        let rows = self.query(&sql, parameters).await?;
        self.read_rows(rows, session_row)
    }
}

impl ServerStore for PostgresServerStore {
    fn commit(&self, mutations: Vec<Mutation>) -> StoreFuture<'_, Vec<SessionId>> {
        Box::pin(self.try_commit(mutations))
    }

    fn events_after(&self, session: &SessionId, after: u64, max_bytes: usize) -> StoreFuture<'_, Vec<Event>> {
        let session = session.clone();
        Box::pin(async move { self.try_events_after(&session, after, max_bytes).await })
    }

    fn acquire(&self, session: &SessionId) -> StoreFuture<'_, Acquisition> {
        let session = session.clone();
        Box::pin(async move { self.try_acquire(&session).await })
    }

    fn session(&self, id: &SessionId) -> StoreFuture<'_, Option<StoredSession>> {
        let id = clean(id);
        Box::pin(async move {
            let sql = format!("SELECT {SESSION_COLUMNS} FROM sessions WHERE id = $1");
            let rows = self.query(&sql, &[(&id, Type::TEXT)]).await?;
            Ok(self.read_rows(rows, session_row)?.pop())
        })
    }

    fn sessions(&self, query: SessionQuery) -> StoreFuture<'_, Vec<StoredSession>> {
        Box::pin(self.try_sessions(query))
    }

    fn add_token(&self, token: StoredToken) -> StoreFuture<'_, ()> {
        Box::pin(async move {
            let sql = "INSERT INTO tokens(id, name, role, secret_hash, created_at, expires_at)
                       VALUES($1, $2, $3, $4, $5, $6) ON CONFLICT DO NOTHING";
            let parameters: &[Parameter<'_>] = &[
                (&token.id, Type::TEXT),
                (&token.name, Type::TEXT),
                (&token.role.name(), Type::TEXT),
                (&&token.secret_hash[..], Type::BYTEA),
                (&token.created_at.0, Type::INT8),
                (&token.expires_at.map(|end| end.0), Type::INT8),
            ];
            if self.execute(sql, parameters).await? == 0 {
                return Err(StoreError::NameTaken(token.name));
            }
            Ok(())
        })
    }

    fn token(&self, id: &str) -> StoreFuture<'_, Option<StoredToken>> {
        let id = clean(id);
        Box::pin(async move {
            let rows = self.query(&format!("{SELECT_TOKEN} WHERE id = $1"), &[(&id, Type::TEXT)]).await?;
            Ok(self.read_rows(rows, token_row)?.pop())
        })
    }

    fn tokens(&self) -> StoreFuture<'_, Vec<StoredToken>> {
        Box::pin(async move {
            let rows = self.query(&format!("{SELECT_TOKEN} ORDER BY name"), &[]).await?;
            self.read_rows(rows, token_row)
        })
    }

    fn remove_token(&self, name: &str) -> StoreFuture<'_, bool> {
        let name = clean(name);
        Box::pin(async move {
            Ok(self.execute("DELETE FROM tokens WHERE name = $1", &[(&name, Type::TEXT)]).await? > 0)
        })
    }

    fn shared(&self) -> Option<&PostgresServerStore> {
        Some(self)
    }
}

/// Makes one change. A change that was made before, because the answer of an earlier commit was lost, counts as made.
async fn apply(
    transaction: &Transaction<'_>,
    server: &str,
    mutation: Mutation,
    lost: &mut Vec<SessionId>,
    changed: &mut Vec<SessionId>,
) -> Result<(), tokio_postgres::Error> {
    match mutation {
        Mutation::Create(session) => {
            if create(transaction, server, &session).await? {
                changed.push(session.id);
            } else {
                lost.push(session.id);
            }
        }
        // Those of many sessions are made together.
        Mutation::Append { .. } | Mutation::Update { .. } => {}
        Mutation::Release { session, generation } => {
            let sql = "UPDATE sessions SET owner = NULL WHERE id = $1 AND generation = $2";
            let parameters: &[Parameter<'_>] =
                &[(&clean(&session), Type::TEXT), (&to_sql(generation), Type::INT8)];
            transaction.execute_typed(sql, parameters).await?;
        }
        Mutation::Delete(session) => {
            // Its events go with it.
            let sql = "DELETE FROM sessions WHERE id = $1";
            transaction.execute_typed(sql, &[(&clean(&session), Type::TEXT)]).await?;
            // What Bowline's own agent keeps of it, which may be open nowhere.
            let sql = "DELETE FROM agent_sessions WHERE id = $1";
            transaction.execute_typed(sql, &[(&clean(&session), Type::TEXT)]).await?;
            changed.push(session);
        }
        Mutation::Send(message) => servers::insert_message(transaction, server, &message).await?,
        Mutation::Received(ids) => {
            let sql = "DELETE FROM inbox WHERE id = ANY($1)";
            transaction.execute_typed(sql, &[(&ids, Type::INT8_ARRAY)]).await?;
        }
    }
    Ok(())
}

async fn create(
    transaction: &Transaction<'_>,
    server: &str,
    session: &StoredSession,
) -> Result<bool, tokio_postgres::Error> {
    let sql = "INSERT INTO sessions(id, principal, cwd, title, setup, pending, is_waiting, owner, generation, last_seq,
                 bytes, created_at, updated_at)
               VALUES($1, $2, $3, $4, $5, $6, $7, nullif($8, ''), 1, 0, 0, $9, $10) ON CONFLICT DO NOTHING";
    let (id, cwd) = (clean(&session.id), session.cwd.to_string_lossy());
    let parameters: &[Parameter<'_>] = &[
        (&id, Type::TEXT),
        (&session.principal, Type::TEXT),
        (&cwd, Type::TEXT),
        (&session.title.as_deref().map(clean), Type::TEXT),
        (&session.setup.to_string(), Type::TEXT),
        (&to_json(&session.pending), Type::TEXT),
        (&!session.pending.is_empty(), Type::BOOL),
        (&server, Type::TEXT),
        (&session.created_at.0, Type::INT8),
        (&session.updated_at.0, Type::INT8),
    ];
    if transaction.execute_typed(sql, parameters).await? > 0 {
        return Ok(true);
    }
    let sql = "SELECT 1 FROM sessions
               WHERE id = $1 AND principal = $2 AND created_at = $3 AND generation = 1 AND owner = $4";
    let parameters: &[Parameter<'_>] = &[
        (&id, Type::TEXT),
        (&session.principal, Type::TEXT),
        (&session.created_at.0, Type::INT8),
        (&server, Type::TEXT),
    ];
    Ok(transaction.query_typed_opt(sql, parameters).await?.is_some())
}

/// Runs of events, one for each session. Appending them with one statement is many times as fast as one by one.
#[derive(Default)]
struct EventRuns {
    sessions: Vec<SessionId>,
    known: HashSet<SessionId>,
    ids: Vec<String>,
    generations: Vec<i64>,
    first_seqs: Vec<i64>,
    last_seqs: Vec<i64>,
    runs: Vec<Vec<u8>>,
}

impl EventRuns {
    fn add(&mut self, session: SessionId, generation: u64, events: &[Event]) {
        let (Some(first), Some(last)) = (events.first(), events.last()) else { return };
        self.known.insert(session.clone());
        self.ids.push(clean(&session));
        self.sessions.push(session);
        self.generations.push(to_sql(generation));
        self.first_seqs.push(to_sql(first.seq));
        self.last_seqs.push(to_sql(last.seq));
        self.runs.push(encode_run(events));
    }

    /// Appends all runs, except those of sessions that are no longer this server's.
    async fn append(
        self,
        transaction: &Transaction<'_>,
        lost: &mut Vec<SessionId>,
        changed: &mut Vec<SessionId>,
    ) -> Result<(), tokio_postgres::Error> {
        if self.sessions.is_empty() {
            return Ok(());
        }
        let sql = format!(
            "WITH added AS (
               SELECT * FROM unnest($1, $2, $3, $4, $5) AS added(session, generation, first_seq, last_seq, run)
             ), changed AS (
               UPDATE sessions SET last_seq = added.last_seq, bytes = bytes + length(run), updated_at = {NOW_MS}
               FROM added WHERE id = session AND sessions.generation = added.generation
               AND sessions.last_seq = first_seq - 1 RETURNING id, bytes
             ), inserted AS (
               INSERT INTO events(session, first_seq, last_seq, generation, run)
               SELECT session, first_seq, last_seq, generation, run FROM added JOIN changed ON id = session
             )
             SELECT id, bytes FROM changed"
        );
        let keys: [Parameter<'_>; 4] = [
            (&self.ids, Type::TEXT_ARRAY),
            (&self.generations, Type::INT8_ARRAY),
            (&self.first_seqs, Type::INT8_ARRAY),
            (&self.last_seqs, Type::INT8_ARRAY),
        ];
        let [ids, generations, first_seqs, last_seqs] = keys.clone();
        let parameters = [ids, generations, first_seqs, last_seqs, (&self.runs, Type::BYTEA_ARRAY)];
        let mut appended = HashSet::new();
        for row in transaction.query_typed(&sql, &parameters).await? {
            let id: String = row.try_get(0)?;
            if from_sql(row.try_get(1)?) > MAX_SESSION_BYTES {
                drop_oldest(transaction, &id).await?;
            }
            appended.insert(id);
        }
        if appended.len() < self.sessions.len() {
            // Those that an earlier commit appended, whose answer was lost.
            let sql = "SELECT added.session FROM unnest($1, $2, $3, $4) AS added(session, generation, first_seq, last_seq)
                       JOIN events USING (session, generation, first_seq, last_seq)
                       JOIN sessions ON id = added.session AND sessions.generation = added.generation";
            for row in transaction.query_typed(sql, &keys).await? {
                appended.insert(row.try_get(0)?);
            }
        }
        for (session, id) in self.sessions.into_iter().zip(self.ids) {
            if appended.contains(&id) {
                changed.push(session);
            } else {
                lost.push(session);
            }
        }
        Ok(())
    }
}

/// Changes of sessions' rows, one for each session, which are made with one statement.
#[derive(Default)]
struct SessionUpdates(BTreeMap<SessionId, (Option<u64>, SessionChange)>);

impl SessionUpdates {
    /// Returns whether a change can be made together with these: it is the only one of its session, or made in the same
    /// generation as the earlier one.
    fn can_take(&self, session: &SessionId, generation: Option<u64>) -> bool {
        self.0.get(session).is_none_or(|(earlier, _)| *earlier == generation)
    }

    fn add(&mut self, session: SessionId, generation: Option<u64>, change: SessionChange) {
        let (_, earlier) = self.0.entry(session).or_insert_with(|| (generation, SessionChange::default()));
        let SessionChange { title, setup, pending, archived } = change;
        earlier.title = title.or(earlier.title.take());
        earlier.setup = setup.or(earlier.setup.take());
        earlier.pending = pending.or(earlier.pending.take());
        earlier.archived = archived.or(earlier.archived);
    }

    /// Makes all changes, except those of sessions that are no longer this server's.
    async fn apply(
        mut self,
        transaction: &Transaction<'_>,
        lost: &mut Vec<SessionId>,
    ) -> Result<(), tokio_postgres::Error> {
        self.0.retain(|session, _| !lost.contains(session));
        if self.0.is_empty() {
            return Ok(());
        }
        let sql = format!(
            "UPDATE sessions SET title = coalesce(new.title, sessions.title), setup = coalesce(new.setup, sessions.setup),
             pending = coalesce(new.pending, sessions.pending),
             is_waiting = coalesce(new.is_waiting, sessions.is_waiting),
             updated_at = CASE WHEN new.changes_session THEN {NOW_MS} ELSE updated_at END,
             archived_at = CASE WHEN new.archived IS NULL THEN archived_at
                                WHEN new.archived THEN coalesce(archived_at, {NOW_MS}) END
             FROM unnest($1, $2, $3, $4, $5, $6, $7, $8)
               AS new(session, generation, title, setup, pending, is_waiting, changes_session, archived)
             WHERE id = session AND (new.generation IS NULL OR sessions.generation = new.generation)
             RETURNING id"
        );
        let ids: Vec<String> = self.0.keys().map(|session| clean(session)).collect();
        let generations: Vec<Option<i64>> =
            self.0.values().map(|(generation, _)| generation.map(to_sql)).collect();
        let changes = || self.0.values().map(|(_, change)| change);
        let titles: Vec<Option<String>> =
            changes().map(|change| change.title.as_deref().map(clean)).collect();
        let setups: Vec<Option<String>> =
            changes().map(|change| change.setup.as_ref().map(ToString::to_string)).collect();
        let pending: Vec<Option<String>> =
            changes().map(|change| change.pending.as_ref().map(to_json)).collect();
        let waiting: Vec<Option<bool>> =
            changes().map(|change| change.pending.as_ref().map(|pending| !pending.is_empty())).collect();
        let changing: Vec<bool> = changes().map(SessionChange::changes_session).collect();
        let archived: Vec<Option<bool>> = changes().map(|change| change.archived).collect();
        let parameters: &[Parameter<'_>] = &[
            (&ids, Type::TEXT_ARRAY),
            (&generations, Type::INT8_ARRAY),
            (&titles, Type::TEXT_ARRAY),
            (&setups, Type::TEXT_ARRAY),
            (&pending, Type::TEXT_ARRAY),
            (&waiting, Type::BOOL_ARRAY),
            (&changing, Type::BOOL_ARRAY),
            (&archived, Type::BOOL_ARRAY),
        ];
        let mut updated = HashSet::new();
        for row in transaction.query_typed(&sql, parameters).await? {
            updated.insert(row.try_get::<_, String>(0)?);
        }
        let is_lost = |generation: Option<u64>, id: &String| generation.is_some() && !updated.contains(id);
        for ((session, (generation, _)), id) in self.0.into_iter().zip(&ids) {
            if is_lost(generation, id) {
                lost.push(session);
            }
        }
        Ok(())
    }
}

/// Drops the oldest events until a quarter of the limit is free.
async fn drop_oldest(transaction: &Transaction<'_>, session: &str) -> Result<(), tokio_postgres::Error> {
    let sql = "WITH sized AS (
                 SELECT last_seq, sum(length(run)) OVER (ORDER BY last_seq DESC) AS newer FROM events WHERE session = $1
               ), dropped AS (
                 DELETE FROM events WHERE session = $1 AND last_seq <= (SELECT max(last_seq) FROM sized WHERE newer > $2)
                 RETURNING length(run) AS size
               )
               UPDATE sessions SET bytes = bytes - (SELECT coalesce(sum(size), 0) FROM dropped) WHERE id = $1";
    let keep = to_sql(MAX_SESSION_BYTES / 4 * 3);
    transaction.execute_typed(sql, &[(&session, Type::TEXT), (&keep, Type::INT8)]).await?;
    Ok(())
}

const SESSION_COLUMNS: &str =
    "id, principal, cwd, title, setup, pending, created_at, updated_at, archived_at";
const SELECT_TOKEN: &str = "SELECT id, name, role, secret_hash, created_at, expires_at FROM tokens";
/// Whether the server that has a session holds a valid lease.
const OWNER_IS_ALIVE: &str =
    "EXISTS(SELECT 1 FROM servers WHERE servers.id = sessions.owner AND lease_until > now())";

fn session_row(row: &Row) -> Result<StoredSession, tokio_postgres::Error> {
    let json = |column: usize| row.try_get::<_, String>(column);
    Ok(StoredSession {
        id: row.try_get::<_, String>(0)?.into(),
        principal: row.try_get(1)?,
        cwd: PathBuf::from(row.try_get::<_, String>(2)?),
        title: row.try_get(3)?,
        setup: serde_json::from_str(&json(4)?).unwrap_or_default(),
        pending: serde_json::from_str(&json(5)?).unwrap_or_default(),
        created_at: Timestamp(row.try_get(6)?),
        updated_at: Timestamp(row.try_get(7)?),
        archived_at: row.try_get::<_, Option<i64>>(8)?.map(Timestamp),
    })
}

fn token_row(row: &Row) -> Result<StoredToken, tokio_postgres::Error> {
    let role: String = row.try_get(2)?;
    Ok(StoredToken {
        id: row.try_get(0)?,
        name: row.try_get(1)?,
        // An unknown role of a later version may do the least.
        role: Role::from_name(&role).unwrap_or(Role::Observer),
        // A damaged hash matches no secret.
        secret_hash: row.try_get::<_, Vec<u8>>(3)?.try_into().unwrap_or_default(),
        created_at: Timestamp(row.try_get(4)?),
        expires_at: row.try_get::<_, Option<i64>>(5)?.map(Timestamp),
    })
}

fn to_json(value: &impl serde::Serialize) -> String {
    // Values with text keys do not fail.
    serde_json::to_string(value).unwrap_or_else(|_| "{}".to_owned())
}
