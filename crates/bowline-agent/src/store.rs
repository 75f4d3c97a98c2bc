//! Stored sessions: what a client was told and what the model has, in one SQLite file of the user's.
//!
//! A session is a row of what is known of it ([`Meta`]) and a list of [`Record`]s. Whoever changes one has it alone
//! ([`Held`]); that ends with the process, however it ends. A thread of its own does the work. Nothing happens before the
//! first use, not even a look at the disk.
//!
//! What was appended is there when the process is killed at any moment, and also when the machine stops if it was
//! appended to be durable [`Now`](Durability::Now). A damaged database is copied aside, and what can be read of it goes on:
//! [`Store::take_notices`] tells. One of a newer format is left alone.

use std::fmt;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread;
use std::time::Duration;

use bowline_state::changes::Moment;
use bowline_state::conversation::{Message, Thinking, Usage};
use bowline_state::mode::Mode;
use bowline_state::schema::v1::{SessionId, SessionUpdate};
use tokio::sync::{mpsc, oneshot};

mod claim;
mod codec;
mod cursor;
mod database;
mod error;
mod id;
mod open;
mod place;
mod rows;
mod salvage;
#[cfg(test)]
mod tests;

pub use error::{Notice, StoreError};
pub use id::new_session_id;

use claim::Claim;
use database::{Database, Notices};

/// One record is at most this large as JSON: twice the longest message of the wire. A larger one is refused.
pub const MAX_RECORD_BYTES: usize = 128 << 20;
/// A title is cut at this length.
pub const MAX_TITLE_BYTES: usize = 1024;
/// A page of a list has at most so many sessions.
pub const MAX_PAGE: usize = 500;
/// What could not be saved waits in memory up to this size, of each session. What comes then is refused.
pub const MAX_WAITING_BYTES: usize = 64 << 20;
/// At most so many things to do wait for the thread that does them. Who has more, waits.
const QUEUE: usize = 64;
/// How long one waits for other processes.
const WAIT: Duration = Duration::from_secs(10);

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

/// When something is safe.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Durability {
    /// When the process is killed. If the machine stops, the last of it may be missing.
    Soon,
    /// Also when the machine stops, and all that came before is too.
    Now,
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

/// The stored sessions of a user. Clones are the same one.
#[derive(Clone)]
pub struct Store {
    inner: Arc<Inner>,
}

struct Inner {
    directory: PathBuf,
    retention: Retention,
    notices: Notices,
    // None until something is to be done.
    worker: Mutex<Option<mpsc::Sender<Job>>>,
}

type Job = Box<dyn FnOnce(&mut Database) + Send>;

impl fmt::Debug for Store {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Store").field("directory", &self.inner.directory).finish_non_exhaustive()
    }
}

impl Store {
    /// Returns the sessions that are kept in a directory, as `sessions.db`. Nothing is opened yet.
    #[must_use]
    pub fn new(directory: &Path, retention: Retention) -> Self {
        let (notices, worker) = (Notices::default(), Mutex::new(None));
        Self { inner: Arc::new(Inner { directory: directory.to_owned(), retention, notices, worker }) }
    }

    /// Returns what the user should hear of since this was last asked. Ask after anything was done.
    #[must_use]
    pub fn take_notices(&self) -> Vec<Notice> {
        std::mem::take(&mut *self.inner.notices.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// Begins a session and has it.
    ///
    /// # Errors
    /// Fails if there is one of that id, or if it cannot be kept.
    pub async fn create(&self, meta: Meta) -> Result<Held, StoreError> {
        let claim = self.run(move |database| database.create(meta)).await?;
        Ok(Held { store: self.clone(), claim: Arc::new(claim) })
    }

    /// Takes a session that is kept, and returns what is kept of it.
    ///
    /// # Errors
    /// Fails if there is none of that id, if somebody else has it, or if it cannot be read.
    pub async fn claim(&self, id: &SessionId) -> Result<(Held, Stored), StoreError> {
        let id = id.clone();
        let (claim, stored) = self.run(move |database| database.claim(id)).await?;
        Ok((Held { store: self.clone(), claim: Arc::new(claim) }, stored))
    }

    /// Begins a session with what another one has so far, whoever has that one, and has it.
    ///
    /// # Errors
    /// Fails if there is no session to begin from, if there is one of the new id, or if it cannot be kept.
    pub async fn fork(&self, from: &SessionId, meta: Meta) -> Result<(Held, Stored), StoreError> {
        let from = from.clone();
        let (claim, stored) = self.run(move |database| database.fork(&from, meta)).await?;
        Ok((Held { store: self.clone(), claim: Arc::new(claim) }, stored))
    }

    /// Returns what is kept of a session, whoever has it.
    ///
    /// # Errors
    /// Fails if there is none of that id, or if it cannot be read.
    pub async fn read(&self, id: &SessionId) -> Result<Stored, StoreError> {
        let id = id.clone();
        self.run(move |database| database.load(&id)).await
    }

    /// Lists sessions, the last used first.
    ///
    /// # Errors
    /// Fails if the cursor is none that was given out, or if the sessions cannot be read.
    pub async fn list(&self, query: ListQuery) -> Result<Page, StoreError> {
        self.run(move |database| database.list(&query)).await
    }

    /// Removes a session. It does not matter if there is none.
    ///
    /// # Errors
    /// Fails if somebody has it, this process included, or if it cannot be removed.
    pub async fn delete(&self, id: &SessionId) -> Result<(), StoreError> {
        let id = id.clone();
        self.run(move |database| database.delete(&id)).await
    }

    /// Closes the database when what was begun is done: its log goes into it. The next use opens it again.
    ///
    /// # Errors
    /// Fails if the thread that works on the sessions is gone.
    pub async fn rest(&self) -> Result<(), StoreError> {
        self.run(|database| {
            database.close();
            Ok(())
        })
        .await
    }

    /// Does something on the thread that works on the sessions. A caller that stops waiting does not stop what was begun.
    async fn run<T: Send + 'static>(
        &self,
        act: impl FnOnce(&mut Database) -> Result<T, StoreError> + Send + 'static,
    ) -> Result<T, StoreError> {
        let (answer, answered) = oneshot::channel();
        let job: Job = Box::new(move |database| {
            // Nobody waits any more: it was done all the same.
            drop(answer.send(act(database)));
        });
        let worker = self.worker()?;
        worker.send(job).await.map_err(|_| StoreError::Stopped)?;
        answered.await.map_err(|_| StoreError::Stopped)?
    }

    fn worker(&self) -> Result<mpsc::Sender<Job>, StoreError> {
        let mut worker = self.inner.worker.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(worker) = &*worker {
            return Ok(worker.clone());
        }
        let (sender, mut jobs) = mpsc::channel::<Job>(QUEUE);
        let Inner { directory, retention, notices, .. } = &*self.inner;
        let mut database = Database::new(directory.clone(), *retention, Arc::clone(notices));
        let work = move || {
            while let Some(job) = jobs.blocking_recv() {
                job(&mut database);
            }
        };
        let started = thread::Builder::new().name("bowline-sessions".to_owned()).spawn(work);
        started.map_err(error::io("start a thread for", directory))?;
        Ok(worker.insert(sender).clone())
    }
}

/// A session that nobody else can change. It is given back when this is dropped and what was begun is done.
#[derive(Debug)]
pub struct Held {
    store: Store,
    claim: Arc<Claim>,
}

impl Held {
    /// Returns the session's id.
    #[must_use]
    pub fn id(&self) -> &SessionId {
        &self.claim.id
    }

    /// Adds to the session. All of it is there when this returns, or nothing.
    ///
    /// What could not be saved waits in memory, up to [`MAX_WAITING_BYTES`], and goes in before what is appended next:
    /// appending nothing is enough once there is room again. A process that ends before has lost it.
    ///
    /// # Errors
    /// Fails if it cannot be saved, and says why. What is too large to be kept at all does not wait.
    pub async fn append(&self, records: Vec<Record>, durability: Durability) -> Result<(), StoreError> {
        let claim = Arc::clone(&self.claim);
        self.store.run(move |database| database.append(&claim, records, durability)).await
    }

    /// Changes what is known of the session, and returns it. Its id stays.
    ///
    /// # Errors
    /// Fails if it cannot be saved; it is as before then.
    pub async fn set_meta(
        &self,
        change: impl FnOnce(&mut Meta) + Send + 'static,
    ) -> Result<Meta, StoreError> {
        let claim = Arc::clone(&self.claim);
        self.store.run(move |database| database.change(&claim, change)).await
    }

    /// Gives the session back when everything is on the disk.
    ///
    /// # Errors
    /// Fails if what waited cannot be saved. The session is given back all the same, without it.
    pub async fn close(self) -> Result<(), StoreError> {
        self.append(Vec::new(), Durability::Now).await
    }

    /// Removes the session.
    ///
    /// # Errors
    /// Fails if it cannot be removed.
    pub async fn delete(self) -> Result<(), StoreError> {
        let claim = Arc::clone(&self.claim);
        self.store.run(move |database| database.remove(&claim.id)).await
    }
}
