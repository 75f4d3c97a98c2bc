//! What a server stores: sessions, their events, and the tokens of those who may use it.
//!
//! [`ServerStore`] is the interface, for one server with a file or several with a database. All changes go through [`ServerStore::commit`], in order and atomically, and a
//! client is sent only what is committed: after a crash no client has seen what the store does not have.

use std::path::PathBuf;
use std::sync::Arc;

use bowline_text::time::Timestamp;
use futures_util::future::BoxFuture;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::event::{ConnectionId, Event, SessionId};
use crate::token::StoredToken;

mod postgres;
mod sqlite;
#[cfg(test)]
mod tests;

pub use postgres::{
    ForwardOutcome, Migration, PostgresListener, PostgresOptions, PostgresServerStore, PostgresStatus,
    PostgresUrl, PostgresUrlError, SCHEMA_VERSION, ServerId, ServerMessage, ServerMessageContent,
    ServerStatus, WaitingSession, Wake,
};
pub use sqlite::SqliteServerStore;

/// The most bytes of events kept of one session. Beyond that, the oldest quarter is dropped.
pub const MAX_SESSION_BYTES: u64 = 64 << 20;
/// The most sessions on one page.
const MAX_PAGE_SIZE: usize = 500;

/// Why the store failed.
#[derive(Debug, thiserror::Error)]
pub enum StoreError {
    /// It cannot be read or written. The text says what to do.
    #[error("{0}")]
    Unavailable(String),
    /// Another token has the name.
    #[error("there is a token named {0} already; remove it first, or choose another name")]
    NameTaken(String),
}

impl From<bowline_postgres::PostgresError> for StoreError {
    fn from(error: bowline_postgres::PostgresError) -> Self {
        Self::Unavailable(error.0)
    }
}

/// The answer of a store.
pub type StoreFuture<'a, T> = BoxFuture<'a, Result<T, StoreError>>;

/// A session.
#[derive(Debug, Clone, PartialEq)]
pub struct StoredSession {
    /// Its id.
    pub id: SessionId,
    /// The name of the principal that it belongs to.
    pub principal: String,
    /// Its directory.
    pub cwd: PathBuf,
    /// Its title.
    pub title: Option<String>,
    /// What the agent answered when the session was opened, with later changes: modes, models, options.
    pub setup: Value,
    /// What is not answered yet.
    pub pending: PendingWork,
    /// When it was created.
    pub created_at: Timestamp,
    /// When it last changed.
    pub updated_at: Timestamp,
    /// When it was archived.
    pub archived_at: Option<Timestamp>,
}

impl StoredSession {
    /// Returns the name of its agent; `None` for the server's usual one.
    #[must_use]
    pub fn agent(&self) -> Option<&str> {
        self.setup["_meta"]["bowline"]["agent"]["name"].as_str()
    }
}

/// What a session waits for, and how its last turn went. If the server dies, the next one answers what is open.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct PendingWork {
    /// The requests of clients, as connection and JSON-RPC id.
    pub requests: Vec<(ConnectionId, Value)>,
    /// The questions to users.
    pub questions: Vec<PendingQuestion>,
    /// The requests that were answered last, so that one that is sent again is not done again.
    #[serde(default)]
    pub answered: Vec<(ConnectionId, Value)>,
    /// How the last turn went.
    #[serde(default)]
    pub last_turn: Box<TurnReport>,
}

/// How a session's last turn went, for an overview.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct TurnReport {
    /// Why it failed, if it ended with an error or was interrupted.
    pub failure: Option<String>,
    /// What the agent reported last about tokens and costs.
    pub usage: Option<Value>,
}

/// A question to users.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct PendingQuestion {
    /// Its id, the same for all clients.
    pub id: String,
    /// The number of its event.
    pub seq: u64,
}

/// How many answered requests of a session are remembered.
const MAX_ANSWERED: usize = 32;

impl PendingWork {
    /// Notes that a request was answered.
    pub fn mark_answered(&mut self, connection: &ConnectionId, id: Value) {
        let request = (connection.clone(), id);
        self.requests.retain(|open| *open != request);
        if self.answered.len() >= MAX_ANSWERED {
            self.answered.remove(0);
        }
        self.answered.push(request);
    }

    /// Returns whether a request of one of these connections is known, answered or not.
    #[must_use]
    pub fn knows(&self, connections: &[ConnectionId], id: &Value) -> bool {
        self.waits_for(connections, id) || contains(&self.answered, connections, id)
    }

    /// Returns whether a request of one of these connections is not answered yet.
    #[must_use]
    pub fn waits_for(&self, connections: &[ConnectionId], id: &Value) -> bool {
        contains(&self.requests, connections, id)
    }

    /// Returns whether nothing waits.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.requests.is_empty() && self.questions.is_empty()
    }
}

fn contains(requests: &[(ConnectionId, Value)], connections: &[ConnectionId], id: &Value) -> bool {
    requests.iter().any(|(connection, known)| known == id && connections.contains(connection))
}

/// A change to a session's row. Absent members stay as they are.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct SessionChange {
    /// The new title.
    pub title: Option<String>,
    /// The new setup.
    pub setup: Option<Value>,
    /// The new pending work.
    pub pending: Option<PendingWork>,
    /// Whether it is archived from now on. This alone does not count as a change of the session.
    pub archived: Option<bool>,
}

impl SessionChange {
    /// Returns whether it changes what a session is, rather than where it is listed.
    #[must_use]
    pub fn changes_session(&self) -> bool {
        self.title.is_some() || self.setup.is_some() || self.pending.is_some()
    }
}

/// A change to the store.
#[derive(Debug, Clone, PartialEq)]
pub enum Mutation {
    /// Creates a session, owned by this server in generation 1.
    Create(Box<StoredSession>),
    /// Appends consecutive events to a session of this server.
    Append {
        /// The session.
        session: SessionId,
        /// The generation in which this server acquired it.
        generation: u64,
        /// The events.
        events: Arc<[Event]>,
    },
    /// Changes a session's row.
    Update {
        /// The session.
        session: SessionId,
        /// The generation in which this server acquired it; `None` for a change that any server may make.
        generation: Option<u64>,
        /// The change.
        change: SessionChange,
    },
    /// Gives up a session, so that another server can acquire it.
    Release {
        /// The session.
        session: SessionId,
        /// The generation in which this server acquired it.
        generation: u64,
    },
    /// Removes a session with its events. A missing one is not an error.
    Delete(SessionId),
    /// Sends a message to another server that shares the store.
    Send(Box<ServerMessage>),
    /// Removes messages from other servers that were handled, by their ids.
    Received(Vec<i64>),
}

impl Mutation {
    /// Returns the session that it changes.
    #[must_use]
    pub fn session(&self) -> Option<&SessionId> {
        match self {
            Self::Create(session) => Some(&session.id),
            Self::Append { session, .. }
            | Self::Update { session, .. }
            | Self::Release { session, .. }
            | Self::Delete(session) => Some(session),
            Self::Send(_) | Self::Received(_) => None,
        }
    }
}

/// A session that a server has acquired.
#[derive(Debug, Clone, PartialEq)]
pub struct AcquiredSession {
    /// Its row.
    pub session: StoredSession,
    /// The generation, higher than every earlier one.
    pub generation: u64,
    /// The number of its last event.
    pub last_seq: u64,
}

/// What came of acquiring a session.
#[derive(Debug, Clone, PartialEq)]
pub enum Acquisition {
    /// This server has it now.
    Acquired(Box<AcquiredSession>),
    /// There is no such session.
    NotFound,
    /// Another server that is alive has it.
    OwnedElsewhere,
}

/// Which sessions to list.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct SessionQuery {
    /// Only those of this principal.
    pub principal: Option<String>,
    /// Only those of exactly this directory.
    pub cwd: Option<PathBuf>,
    /// Only archived sessions; otherwise only those that are not archived.
    pub archived: bool,
    /// Only those after this one: the last of an earlier page.
    pub after: Option<(Timestamp, SessionId)>,
    /// The most sessions to return.
    pub limit: usize,
}

/// The store of a server.
pub trait ServerStore: std::fmt::Debug + Send + Sync {
    /// Makes changes, all or none, and returns the sessions that another server has acquired since; their changes
    /// are left out.
    ///
    /// # Errors
    /// Fails if the store cannot be written.
    fn commit(&self, mutations: Vec<Mutation>) -> StoreFuture<'_, Vec<SessionId>>;

    /// Returns events after a number, in order: at least one if there is any, and then about `max_bytes`.
    ///
    /// # Errors
    /// Fails if the store cannot be read.
    fn events_after(&self, session: &SessionId, after: u64, max_bytes: usize) -> StoreFuture<'_, Vec<Event>>;

    /// Acquires a session for this server, unless another one that is alive has it.
    ///
    /// # Errors
    /// Fails if the store cannot be written.
    fn acquire(&self, session: &SessionId) -> StoreFuture<'_, Acquisition>;

    /// Returns a session.
    ///
    /// # Errors
    /// Fails if the store cannot be read.
    fn session(&self, id: &SessionId) -> StoreFuture<'_, Option<StoredSession>>;

    /// Lists sessions, last changed first.
    ///
    /// # Errors
    /// Fails if the store cannot be read.
    fn sessions(&self, query: SessionQuery) -> StoreFuture<'_, Vec<StoredSession>>;

    /// Adds a token.
    ///
    /// # Errors
    /// Fails if its name is taken, or if the store cannot be written.
    fn add_token(&self, token: StoredToken) -> StoreFuture<'_, ()>;

    /// Returns the token with an id.
    ///
    /// # Errors
    /// Fails if the store cannot be read.
    fn token(&self, id: &str) -> StoreFuture<'_, Option<StoredToken>>;

    /// Returns all tokens, by name.
    ///
    /// # Errors
    /// Fails if the store cannot be read.
    fn tokens(&self) -> StoreFuture<'_, Vec<StoredToken>>;

    /// Removes the token with a name, and returns whether there was one.
    ///
    /// # Errors
    /// Fails if the store cannot be written.
    fn remove_token(&self, name: &str) -> StoreFuture<'_, bool>;

    /// Returns the store if other servers can share it.
    fn shared(&self) -> Option<&PostgresServerStore> {
        None
    }
}
