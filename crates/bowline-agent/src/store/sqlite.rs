//! Sessions in one SQLite file of the user's, `sessions.db`.
//!
//! A thread of its own does the work. Nothing happens before the first use, not even a look at the disk.
//!
//! What was appended is there when the process is killed at any moment, and also when the machine stops if it was
//! appended to be durable [`Now`](Durability::Now). A damaged database is set aside, and what can be read of it goes on:
//! [`SessionStore::take_notices`] tells. One of a newer format is left alone.

use std::fmt;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread;

use bowline_state::schema::v1::SessionId;
use bowline_workspace::storage::FileError;
use tokio::sync::{mpsc, oneshot};

use super::claim::Claim;
use super::database::{FILE, Notices, SessionDatabase};
use super::{
    Durability, ListQuery, Meta, MetaChange, Notice, Page, Record, Retention, SessionLease, SessionStore,
    StoreError, StoreFuture, Stored,
};

/// At most so many things to do wait for the thread that does them. Who has more, waits.
const QUEUE: usize = 64;

/// The stored sessions of a user, in a directory. Clones are the same one.
#[derive(Clone)]
pub struct SqliteSessionStore {
    inner: Arc<Inner>,
}

struct Inner {
    directory: PathBuf,
    retention: Retention,
    notices: Notices,
    // None until something is to be done.
    worker: Mutex<Option<mpsc::Sender<Job>>>,
}

type Job = Box<dyn FnOnce(&mut SessionDatabase) + Send>;

impl fmt::Debug for SqliteSessionStore {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SqliteSessionStore").field("directory", &self.inner.directory).finish_non_exhaustive()
    }
}

impl SqliteSessionStore {
    /// Returns the sessions that are kept in a directory. Nothing is opened yet.
    #[must_use]
    pub fn new(directory: &Path, retention: Retention) -> Self {
        let (notices, worker) = (Notices::default(), Mutex::new(None));
        Self { inner: Arc::new(Inner { directory: directory.to_owned(), retention, notices, worker }) }
    }

    /// Says whether sessions were ever kept in a directory, without making anything.
    ///
    /// # Errors
    /// Fails if that cannot be told.
    pub fn exists(directory: &Path) -> Result<bool, FileError> {
        // One that was only just made is put in its place when the sessions are used.
        let exists = |path: PathBuf| path.try_exists().map_err(FileError::of("look at", &path));
        Ok(exists(directory.join(FILE))? || exists(directory.join(format!("{FILE}.ready")))?)
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

    fn lease(&self, claim: Claim) -> Box<dyn SessionLease> {
        Box::new(SqliteSessionLease { store: self.clone(), claim: Arc::new(claim) })
    }

    /// Does something on the thread that works on the sessions.
    async fn run<T: Send + 'static>(
        &self,
        act: impl FnOnce(&mut SessionDatabase) -> Result<T, StoreError> + Send + 'static,
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
        let mut database = SessionDatabase::new(directory.clone(), *retention, Arc::clone(notices));
        let work = move || {
            while let Some(job) = jobs.blocking_recv() {
                job(&mut database);
            }
        };
        let started = thread::Builder::new().name("bowline-sessions".to_owned()).spawn(work);
        started.map_err(FileError::of("start a thread for", directory))?;
        Ok(worker.insert(sender).clone())
    }
}

impl SessionStore for SqliteSessionStore {
    fn take_notices(&self) -> Vec<Notice> {
        std::mem::take(&mut *self.inner.notices.lock().unwrap_or_else(PoisonError::into_inner))
    }

    fn create(&self, meta: Meta) -> StoreFuture<'_, Box<dyn SessionLease>> {
        Box::pin(async move { Ok(self.lease(self.run(move |database| database.create(meta)).await?)) })
    }

    fn claim(&self, id: &SessionId) -> StoreFuture<'_, (Box<dyn SessionLease>, Stored)> {
        let id = id.clone();
        Box::pin(async move {
            let (claim, stored) = self.run(move |database| database.claim(id)).await?;
            Ok((self.lease(claim), stored))
        })
    }

    fn fork(&self, from: &SessionId, meta: Meta) -> StoreFuture<'_, (Box<dyn SessionLease>, Stored)> {
        let from = from.clone();
        Box::pin(async move {
            let (claim, stored) = self.run(move |database| database.fork(&from, meta)).await?;
            Ok((self.lease(claim), stored))
        })
    }

    fn read(&self, id: &SessionId) -> StoreFuture<'_, Stored> {
        let id = id.clone();
        Box::pin(self.run(move |database| database.load(&id)))
    }

    fn list(&self, query: ListQuery) -> StoreFuture<'_, Page> {
        Box::pin(self.run(move |database| database.list(&query)))
    }

    fn delete(&self, id: &SessionId) -> StoreFuture<'_, ()> {
        let id = id.clone();
        Box::pin(self.run(move |database| database.delete(&id)))
    }
}

#[derive(Debug)]
struct SqliteSessionLease {
    store: SqliteSessionStore,
    claim: Arc<Claim>,
}

impl SessionLease for SqliteSessionLease {
    fn append(&self, records: Vec<Record>, durability: Durability) -> StoreFuture<'_, ()> {
        let claim = Arc::clone(&self.claim);
        Box::pin(self.store.run(move |database| database.append(&claim, records, durability)))
    }

    fn set_meta(&self, change: MetaChange) -> StoreFuture<'_, Meta> {
        let claim = Arc::clone(&self.claim);
        Box::pin(self.store.run(move |database| database.change(&claim, change)))
    }

    fn close(self: Box<Self>) -> StoreFuture<'static, ()> {
        Box::pin(async move { self.append(Vec::new(), Durability::Now).await })
    }
}
