//! Sessions in one SQLite file per user, `sessions.db`.
//!
//! Blocking threads do the work, one operation at a time. Nothing is opened or read before first use.
//!
//! Appended records survive a kill of the process at any moment; those appended with [`Durability::Synced`] also
//! survive a crash of the machine. A damaged database is set aside and its readable content recovered, which
//! [`SessionStore::take_notices`] reports. A database of a newer format is left alone.

use std::path::{Path, PathBuf};
use std::sync::{Arc, PoisonError};

use bowline_protocol::schema::v1::SessionId;
use bowline_storage::FileError;
use bowline_task::spawn_blocking;
use tokio::sync::Mutex;

use super::claim::SessionClaim;
use super::database::{DATABASE_FILE, NoticeQueue, SessionDatabase};
use super::{
    Durability, MetaChange, SessionLease, SessionMeta, SessionPage, SessionQuery, SessionRecord,
    SessionRetention, SessionStore, StoreError, StoreFuture, StoreNotice, StoredSession,
};

/// The stored sessions of a user, in a directory. Clones share one database.
#[derive(Debug, Clone)]
pub struct SqliteSessionStore {
    database: Arc<Mutex<SessionDatabase>>,
    notices: NoticeQueue,
}

impl SqliteSessionStore {
    /// Returns the store of a directory, without opening anything.
    #[must_use]
    pub fn new(directory: &Path, retention: SessionRetention) -> Self {
        let notices = NoticeQueue::default();
        let database = SessionDatabase::new(directory.to_owned(), retention, Arc::clone(&notices));
        Self { database: Arc::new(Mutex::new(database)), notices }
    }

    /// Returns whether a directory has stored sessions, without creating anything.
    ///
    /// # Errors
    /// Fails if the directory cannot be examined.
    pub fn exists(directory: &Path) -> Result<bool, FileError> {
        // A database still under its temporary name is renamed on the next use.
        let exists = |path: PathBuf| path.try_exists().map_err(FileError::io_error("look at", &path));
        Ok(exists(directory.join(DATABASE_FILE))?
            || exists(directory.join(format!("{DATABASE_FILE}.ready")))?)
    }

    fn new_lease(&self, claim: SessionClaim) -> Box<dyn SessionLease> {
        Box::new(SqliteSessionLease { store: self.clone(), claim: Arc::new(claim) })
    }

    /// Runs an operation on the database, after all earlier ones.
    async fn run_blocking<T: Send + 'static>(
        &self,
        operation: impl FnOnce(&mut SessionDatabase) -> Result<T, StoreError> + Send + 'static,
    ) -> Result<T, StoreError> {
        let mut database = Arc::clone(&self.database).lock_owned().await;
        let result = spawn_blocking(move || (operation(&mut database), database)).await;
        // Held until here, so that answers come in the order of requests.
        let (answer, _database) = result.map_err(|_| StoreError::Stopped)?;
        answer
    }
}

impl SessionStore for SqliteSessionStore {
    fn take_notices(&self) -> Vec<StoreNotice> {
        std::mem::take(&mut *self.notices.lock().unwrap_or_else(PoisonError::into_inner))
    }

    fn create(&self, meta: SessionMeta) -> StoreFuture<'_, Box<dyn SessionLease>> {
        Box::pin(async move {
            Ok(self.new_lease(self.run_blocking(move |database| database.create(meta)).await?))
        })
    }

    fn claim(&self, id: &SessionId) -> StoreFuture<'_, (Box<dyn SessionLease>, StoredSession)> {
        let id = id.clone();
        Box::pin(async move {
            let (claim, stored) = self.run_blocking(move |database| database.claim(id)).await?;
            Ok((self.new_lease(claim), stored))
        })
    }

    fn fork(
        &self,
        parent: &SessionId,
        meta: SessionMeta,
    ) -> StoreFuture<'_, (Box<dyn SessionLease>, StoredSession)> {
        let parent = parent.clone();
        Box::pin(async move {
            let (claim, stored) = self.run_blocking(move |database| database.fork(&parent, meta)).await?;
            Ok((self.new_lease(claim), stored))
        })
    }

    fn read(&self, id: &SessionId) -> StoreFuture<'_, StoredSession> {
        let id = id.clone();
        Box::pin(self.run_blocking(move |database| database.load(&id)))
    }

    fn list(&self, query: SessionQuery) -> StoreFuture<'_, SessionPage> {
        Box::pin(self.run_blocking(move |database| database.list(&query)))
    }

    fn delete(&self, id: &SessionId) -> StoreFuture<'_, ()> {
        let id = id.clone();
        Box::pin(self.run_blocking(move |database| database.delete(&id)))
    }
}

#[derive(Debug)]
struct SqliteSessionLease {
    store: SqliteSessionStore,
    claim: Arc<SessionClaim>,
}

impl SessionLease for SqliteSessionLease {
    fn append(&self, records: Vec<SessionRecord>, durability: Durability) -> StoreFuture<'_, ()> {
        let claim = Arc::clone(&self.claim);
        Box::pin(self.store.run_blocking(move |database| database.append(&claim, records, durability)))
    }

    fn update_meta(&self, change: MetaChange) -> StoreFuture<'_, SessionMeta> {
        let claim = Arc::clone(&self.claim);
        Box::pin(self.store.run_blocking(move |database| database.update_meta(&claim, change)))
    }
}
