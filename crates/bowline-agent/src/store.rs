//! Stored sessions: what a client was told and what the model has.
//!
//! A session is a row of what is known of it ([`Meta`]) and a list of [`Record`]s. Only who holds its [`SessionLease`] changes
//! it. A [`SessionStore`] keeps them; [`SqliteSessionStore`] does so in one SQLite file of the user's.

use std::fmt;
use std::path::PathBuf;
use std::pin::Pin;

use bowline_state::changes::Moment;
use bowline_state::conversation::{Message, Thinking, Usage};
use bowline_state::mode::Mode;
use bowline_state::schema::v1::{SessionId, SessionUpdate};

mod claim;
mod codec;
mod cursor;
mod database;
mod error;
mod id;
mod rows;
mod salvage;
mod sqlite;
#[cfg(test)]
mod tests;

pub use bowline_workspace::storage::Durability;
pub use error::{Notice, StoreError};
pub use id::new_session_id;
pub use sqlite::SqliteSessionStore;

/// One record is at most this large as JSON: twice the longest message of the wire. A larger one is refused.
pub const MAX_RECORD_BYTES: usize = 128 << 20;
/// A title is cut at this length.
pub const MAX_TITLE_BYTES: usize = 1024;
/// A page of a list has at most so many sessions.
pub const MAX_PAGE: usize = 500;
/// What could not be saved waits in memory up to this size, of each session. What comes then is refused.
pub const MAX_WAITING_BYTES: usize = 64 << 20;

/// How much is kept. Sessions that are beyond it go, the least used first, when the sessions are first opened by a process, a
/// few at a time; one that somebody has stays. Sessions in which nothing was said go after a day.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Retention {
    /// So many sessions.
    pub sessions: usize,
    /// Sessions that were used within this time, in milliseconds.
    pub age_ms: i64,
    /// So many bytes of records in all, as JSON.
    pub bytes: u64,
    /// So many bytes of records of one session. When there is more, its oldest updates are dropped, a quarter of all at
    /// once, and counted in [`Stored::dropped`]: a client that loads the session sees it from there on. Messages stay until
    /// they are compacted; if they alone are more, nothing can be appended.
    pub session_bytes: u64,
}

impl Default for Retention {
    fn default() -> Self {
        Self { sessions: 1000, age_ms: 400 * 24 * 60 * 60 * 1000, bytes: 8 << 30, session_bytes: 256 << 20 }
    }
}

/// What is known of a session.
#[derive(Debug, Clone, PartialEq)]
pub struct Meta {
    /// Its id, made by whoever creates it.
    pub id: SessionId,
    /// The directory it works in.
    pub cwd: PathBuf,
    /// The other directories it was last given.
    pub additional: Vec<PathBuf>,
    /// Its title.
    pub title: Option<String>,
    /// When it was created.
    pub created: Moment,
    /// When something was last appended; the store sets it.
    pub updated: Moment,
    /// How much it may do.
    pub mode: Mode,
    /// The model it uses.
    pub model: Option<String>,
    /// How much that thinks.
    pub thinking: Thinking,
    /// The number of the last turn; none is 0.
    pub turns: u64,
    /// What all its requests took.
    pub usage: Usage,
    /// What they cost in US dollars, if it is known.
    pub cost: Option<f64>,
}

impl Meta {
    /// Returns what is known of a session that begins now.
    #[must_use]
    pub fn new(id: SessionId, cwd: PathBuf) -> Self {
        let now = bowline_workspace::clock::now();
        Self {
            id,
            cwd,
            additional: Vec::new(),
            title: None,
            created: now,
            updated: now,
            mode: Mode::default(),
            model: None,
            thinking: Thinking::default(),
            turns: 0,
            usage: Usage::default(),
            cost: None,
        }
    }
}

/// Something that happened in a session.
#[derive(Debug, Clone, PartialEq)]
#[expect(clippy::large_enum_variant, reason = "nearly every record is an update")]
pub enum Record {
    /// The client was told this.
    Update(SessionUpdate),
    /// The conversation went on by this.
    Message(Message),
    /// The conversation begins anew with these. The messages before are gone; the updates stay.
    Compacted(Vec<Message>),
}

/// A session as it is kept.
#[derive(Debug, Clone, PartialEq)]
pub struct Stored {
    /// What is known of it.
    pub meta: Meta,
    /// What the client was told, to be given to [`transcript::replay`](bowline_state::transcript::replay).
    pub updates: Vec<SessionUpdate>,
    /// The conversation, to be given to [`transcript::mend`](bowline_state::transcript::mend).
    pub messages: Vec<Message>,
    /// How many updates are not there any more because the session became too large, or cannot be read by this version.
    pub dropped: u64,
}

/// Which sessions to list.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ListQuery {
    /// Those of exactly this directory.
    pub cwd: Option<PathBuf>,
    /// Those that come after a page that was listed before.
    pub cursor: Option<String>,
    /// At most so many, and at most [`MAX_PAGE`]; 0 is taken for 1.
    pub page: usize,
}

/// Some sessions, the last used first. One that is used between two pages moves to the front and is on no later page.
#[derive(Debug, Clone, PartialEq)]
pub struct Page {
    /// The sessions.
    pub sessions: Vec<Meta>,
    /// Where the list goes on, if it does.
    pub next: Option<String>,
}

/// What a store answers.
pub type StoreFuture<'a, T> = Pin<Box<dyn Future<Output = Result<T, StoreError>> + Send + 'a>>;

/// A change of what is known of a session.
pub type MetaChange = Box<dyn FnOnce(&mut Meta) + Send>;

/// The stored sessions of a user.
///
/// A caller that stops waiting does not stop what was begun.
pub trait SessionStore: fmt::Debug + Send + Sync {
    /// Returns what the user should hear of since this was last asked. Ask after anything was done.
    fn take_notices(&self) -> Vec<Notice>;

    /// Begins a session and holds it.
    ///
    /// # Errors
    /// Fails if there is one of that id, or if it cannot be kept.
    fn create(&self, meta: Meta) -> StoreFuture<'_, Box<dyn SessionLease>>;

    /// Takes a session that is kept, and returns what is kept of it.
    ///
    /// # Errors
    /// Fails if there is none of that id, if another process holds it, or if it cannot be read.
    fn claim(&self, id: &SessionId) -> StoreFuture<'_, (Box<dyn SessionLease>, Stored)>;

    /// Begins a session with what another one has so far, held or not, and holds it.
    ///
    /// # Errors
    /// Fails if there is no session to begin from, if there is one of the new id, or if it cannot be kept.
    fn fork(&self, from: &SessionId, meta: Meta) -> StoreFuture<'_, (Box<dyn SessionLease>, Stored)>;

    /// Returns what is kept of a session, held or not.
    ///
    /// # Errors
    /// Fails if there is none of that id, or if it cannot be read.
    fn read(&self, id: &SessionId) -> StoreFuture<'_, Stored>;

    /// Lists sessions, the last used first.
    ///
    /// # Errors
    /// Fails if the cursor is none that was given out, or if the sessions cannot be read.
    fn list(&self, query: ListQuery) -> StoreFuture<'_, Page>;

    /// Removes a session. It does not matter if there is none.
    ///
    /// # Errors
    /// Fails if a process holds it, this one included, or if it cannot be removed.
    fn delete(&self, id: &SessionId) -> StoreFuture<'_, ()>;
}

/// The exclusive right to change a session. It is given back when this is dropped and what was begun is done,
/// and when the process ends, however it does.
pub trait SessionLease: fmt::Debug + Send + Sync {
    /// Adds to the session. All of it is there when this returns, or nothing.
    ///
    /// What could not be saved waits in memory, up to [`MAX_WAITING_BYTES`], and goes in before what is appended next:
    /// appending nothing is enough once there is room again. A process that ends before has lost it.
    ///
    /// # Errors
    /// Fails if it cannot be saved, and says why. What is too large to be kept at all does not wait.
    fn append(&self, records: Vec<Record>, durability: Durability) -> StoreFuture<'_, ()>;

    /// Changes what is known of the session, and returns it. Its id stays.
    ///
    /// # Errors
    /// Fails if it cannot be saved; it is as before then.
    fn set_meta(&self, change: MetaChange) -> StoreFuture<'_, Meta>;

    /// Gives the session back when everything is on the disk.
    ///
    /// # Errors
    /// Fails if what waited cannot be saved. The session is given back all the same, without it.
    fn close(self: Box<Self>) -> StoreFuture<'static, ()>;
}
