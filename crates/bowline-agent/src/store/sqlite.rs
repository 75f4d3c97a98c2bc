//! Sessions in one SQLite file of the user's, `sessions.db`.
//!
//! Threads for blocking calls do the work, one thing at a time. Nothing happens before the first use, not even a look at the
//! disk.
//!
//! What was appended is there when the process is killed at any moment, and also when the machine stops if it was
//! appended to be durable [`Now`](Durability::Now). A damaged database is set aside, and what can be read of it goes on:
//! [`SessionStore::take_notices`] tells. One of a newer format is left alone.

use std::path::{Path, PathBuf};
use std::sync::{Arc, PoisonError};

use bowline_state::schema::v1::SessionId;
use bowline_workspace::storage::FileError;
use tokio::sync::Mutex;
use tokio::task::spawn_blocking;

use super::claim::Claim;
use super::database::{FILE, Notices, SessionDatabase};
use super::{
    Durability, ListQuery, Meta, MetaChange, Notice, Page, Record, Retention, SessionLease, SessionStore,
    StoreError, StoreFuture, Stored,
};

/// The stored sessions of a user, in a directory. Clones are the same one.
#[derive(Debug, Clone)]
pub struct SqliteSessionStore {
    database: Arc<Mutex<SessionDatabase>>,
    notices: Notices,
}

impl SqliteSessionStore {
    /// Returns the sessions that are kept in a directory. Nothing is opened yet.
    #[must_use]
    pub fn new(directory: &Path, retention: Retention) -> Self {
        let notices = Notices::default();
        let database = SessionDatabase::new(directory.to_owned(), retention, Arc::clone(&notices));
        Self { database: Arc::new(Mutex::new(database)), notices }
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

    fn lease(&self, claim: Claim) -> Box<dyn SessionLease> {
        Box::new(SqliteSessionLease { store: self.clone(), claim: Arc::new(claim) })
    }

    /// Does something with the database, after all that others asked for before.
    async fn run<T: Send + 'static>(
        &self,
        act: impl FnOnce(&mut SessionDatabase) -> Result<T, StoreError> + Send + 'static,
    ) -> Result<T, StoreError> {
        let mut database = Arc::clone(&self.database).lock_owned().await;
        let done = spawn_blocking(move || (act(&mut database), database)).await;
        // The next one begins when this one is answered, so that answers come in the order of requests.
        let (answer, _database) = done.map_err(|_| StoreError::Stopped)?;
        answer
    }
}

impl SessionStore for SqliteSessionStore {
    fn take_notices(&self) -> Vec<Notice> {
        std::mem::take(&mut *self.notices.lock().unwrap_or_else(PoisonError::into_inner))
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
