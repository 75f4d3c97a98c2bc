//! Stored sessions: the updates sent to the client, and the model's conversation.
//!
//! A session is a row of metadata ([`SessionMeta`]) and a list of [`SessionRecord`]s. Only the holder of its
//! [`SessionLease`] may change it. [`SessionStore`] is the interface; [`SqliteSessionStore`] implements it with one
//! SQLite file per user, [`PostgresSessionStore`] with the database that the servers of `bowline serve` share.

use std::fmt;
use std::path::PathBuf;

use bowline_conversation::conversation::{ConversationMessage, ThinkingLevel, TokenUsage};
use bowline_policy::mode::AgentMode;
use bowline_protocol::schema::v1::{SessionId, SessionUpdate};
use bowline_text::time::Timestamp;
use futures_util::future::BoxFuture;

mod claim;
mod codec;
mod cursor;
mod database;
mod error;
mod id;
mod metadata;
mod postgres;
mod rows;
mod salvage;
mod sqlite;
#[cfg(test)]
mod tests;

pub use bowline_storage::Durability;
use codec::{DecodedRecord, EncodedRecord};
use error::StoreTransactionError;
pub use error::{StoreError, StoreNotice};
pub use id::new_session_id;
pub use postgres::PostgresSessionStore;
pub use sqlite::SqliteSessionStore;

/// The largest record, as JSON: twice the longest message on the wire. Larger records are refused.
pub const MAX_RECORD_BYTES: usize = 128 << 20;
/// Longer titles are truncated to this length.
pub const MAX_TITLE_BYTES: usize = 1024;
/// The most sessions on one page of a list.
pub const MAX_PAGE_SIZE: usize = 500;
/// How much unsaved data each session keeps in memory. Records beyond it are refused.
pub const MAX_WAITING_BYTES: usize = 64 << 20;

/// The fraction of the size limit freed when a session is too large, so that dropping is rare.
const ROOM_DIVISOR: i64 = 4;

/// How much to keep. When a process first opens the sessions, it removes those beyond these limits, a few at a time,
/// least recently used first. A session in use stays. Sessions without any content are removed after a day.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SessionRetention {
    /// The most sessions.
    pub max_sessions: usize,
    /// The longest time since a session was last used, in milliseconds.
    pub max_age_ms: i64,
    /// The most bytes of records in all sessions together, as JSON.
    pub max_bytes: u64,
    /// The most bytes of records in one session. Beyond it, the oldest updates are dropped, a quarter of the limit at a
    /// time, and counted in [`StoredSession::dropped_updates`]: a client that loads the session sees it from there on.
    /// Messages stay until they are compacted; if they alone exceed the limit, nothing can be appended.
    pub max_session_bytes: u64,
}

impl Default for SessionRetention {
    fn default() -> Self {
        Self {
            max_sessions: 1000,
            max_age_ms: 400 * 24 * 60 * 60 * 1000,
            max_bytes: 8 << 30,
            max_session_bytes: 256 << 20,
        }
    }
}

/// The metadata of a session.
#[derive(Debug, Clone, PartialEq)]
pub struct SessionMeta {
    /// Its id, chosen by the caller that creates it.
    pub id: SessionId,
    /// The directory it works in.
    pub cwd: PathBuf,
    /// Its other directories, as last given.
    pub additional_directories: Vec<PathBuf>,
    /// Its title.
    pub title: Option<String>,
    /// When it was created.
    pub created_at: Timestamp,
    /// When a record was last appended; set by the store.
    pub updated_at: Timestamp,
    /// Its permission mode.
    pub mode: AgentMode,
    /// The model it uses.
    pub model: Option<String>,
    /// The model's thinking level.
    pub thinking: ThinkingLevel,
    /// The number of the last turn; 0 before the first.
    pub turns: u64,
    /// The token usage of all its requests.
    pub usage: TokenUsage,
    /// Their cost in US dollars, if known.
    pub cost: Option<f64>,
}

impl SessionMeta {
    /// Returns the metadata of a session that begins now.
    #[must_use]
    pub fn new(id: SessionId, cwd: PathBuf) -> Self {
        let now = bowline_storage::clock::now();
        Self {
            id,
            cwd,
            additional_directories: Vec::new(),
            title: None,
            created_at: now,
            updated_at: now,
            mode: AgentMode::default(),
            model: None,
            thinking: ThinkingLevel::default(),
            turns: 0,
            usage: TokenUsage::default(),
            cost: None,
        }
    }
}

/// An event in a session.
#[derive(Debug, Clone, PartialEq)]
#[expect(clippy::large_enum_variant, reason = "nearly every record is an update")]
pub enum SessionRecord {
    /// An update sent to the client.
    Update(SessionUpdate),
    /// A message added to the conversation.
    Message(ConversationMessage),
    /// The messages that the conversation restarts with. Earlier messages are gone; the updates stay.
    Compacted(Vec<ConversationMessage>),
}

/// A session as stored.
#[derive(Debug, Clone, PartialEq)]
pub struct StoredSession {
    /// Its metadata.
    pub meta: SessionMeta,
    /// The updates sent to the client, for [`transcript::replay`](bowline_conversation::transcript::replay).
    pub updates: Vec<SessionUpdate>,
    /// The conversation, for [`repair_conversation`](bowline_conversation::transcript::repair_conversation).
    pub messages: Vec<ConversationMessage>,
    /// The number of updates dropped because the session grew too large, or unreadable by this version.
    pub dropped_updates: u64,
}

impl StoredSession {
    fn without_records(meta: SessionMeta, dropped_updates: u64) -> Self {
        Self { meta, updates: Vec::new(), messages: Vec::new(), dropped_updates }
    }

    /// Adds the next record.
    fn push_record(&mut self, record: EncodedRecord) -> Result<(), StoreTransactionError> {
        let unreadable = |why| StoreError::Unreadable { id: self.meta.id.clone(), why };
        match record.decode()?.map_err(unreadable)? {
            DecodedRecord::Update(update) => self.updates.push(*update),
            DecodedRecord::Unknown => self.dropped_updates += 1,
            DecodedRecord::Message(message) => self.messages.push(message),
            DecodedRecord::Compacted(messages) => self.messages = messages,
        }
        Ok(())
    }
}

/// Which sessions to list.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct SessionQuery {
    /// Only sessions of exactly this directory.
    pub cwd: Option<PathBuf>,
    /// Only sessions after this cursor, taken from an earlier page.
    pub cursor: Option<String>,
    /// The page size, at most [`MAX_PAGE_SIZE`]; 0 means 1.
    pub page_size: usize,
}

/// A page of sessions, most recently used first. A session used between two pages moves to the front and is on no later
/// page.
#[derive(Debug, Clone, PartialEq)]
pub struct SessionPage {
    /// The sessions.
    pub sessions: Vec<SessionMeta>,
    /// Where the list continues, if it does.
    pub next_cursor: Option<String>,
}

/// The answer of a store.
pub type StoreFuture<'a, T> = BoxFuture<'a, Result<T, StoreError>>;

/// A change to a session's metadata.
pub type MetaChange = Box<dyn FnOnce(&mut SessionMeta) + Send>;

/// The stored sessions of a user.
///
/// Operations are not cancelled when the caller stops waiting.
pub trait SessionStore: fmt::Debug + Send + Sync {
    /// Returns the notices for the user since the last call. Call it after each operation.
    fn take_notices(&self) -> Vec<StoreNotice>;

    /// Creates a session and claims it.
    ///
    /// # Errors
    /// Fails if the id is taken, or if the session cannot be saved.
    fn create(&self, meta: SessionMeta) -> StoreFuture<'_, Box<dyn SessionLease>>;

    /// Claims a stored session and returns its content. In a store that several machines share, the claim takes the
    /// session from a process that held it, whose changes then fail with [`StoreError::Lost`]: whether that process is
    /// alive cannot be known, and the servers have decided who continues.
    ///
    /// # Errors
    /// Fails if no session has the id, if another process of this machine or this one holds it, or if it cannot be read.
    fn claim(&self, id: &SessionId) -> StoreFuture<'_, (Box<dyn SessionLease>, StoredSession)>;

    /// Creates a session with the present content of another, held or not, and claims it.
    ///
    /// # Errors
    /// Fails if the original does not exist, if the new id is taken, or if the session cannot be saved.
    fn fork(
        &self,
        parent: &SessionId,
        meta: SessionMeta,
    ) -> StoreFuture<'_, (Box<dyn SessionLease>, StoredSession)>;

    /// Returns the content of a session, held or not.
    ///
    /// # Errors
    /// Fails if no session has the id, or if it cannot be read.
    fn read(&self, id: &SessionId) -> StoreFuture<'_, StoredSession>;

    /// Lists sessions, most recently used first.
    ///
    /// # Errors
    /// Fails if the cursor is not from this store, or if the sessions cannot be read.
    fn list(&self, query: SessionQuery) -> StoreFuture<'_, SessionPage>;

    /// Removes a session. A missing one is not an error.
    ///
    /// # Errors
    /// Fails if a process of this machine holds it, this one included, or if it cannot be removed.
    fn delete(&self, id: &SessionId) -> StoreFuture<'_, ()>;
}

/// The exclusive right to change a session. It is released once it is dropped and pending operations are done, and in
/// any case when the process ends.
pub trait SessionLease: fmt::Debug + Send + Sync + 'static {
    /// Appends to the session, atomically.
    ///
    /// Records that could not be saved wait in memory, up to [`MAX_WAITING_BYTES`], and are written before the next
    /// append; appending nothing is enough once the disk has room again. They are lost if the process ends first.
    ///
    /// # Errors
    /// Fails if the records cannot be saved. Records too large to store at all are not kept waiting.
    fn append(&self, records: Vec<SessionRecord>, durability: Durability) -> StoreFuture<'_, ()>;

    /// Changes the session's metadata, and returns it. The id cannot change.
    ///
    /// # Errors
    /// Fails if it cannot be saved; the metadata is then unchanged.
    fn update_meta(&self, change: MetaChange) -> StoreFuture<'_, SessionMeta>;

    /// Writes everything to disk, then releases the session.
    ///
    /// # Errors
    /// Fails if unsaved records still cannot be saved. The session is released all the same, without them.
    fn close(self: Box<Self>) -> StoreFuture<'static, ()> {
        Box::pin(async move { self.append(Vec::new(), Durability::Synced).await })
    }
}
