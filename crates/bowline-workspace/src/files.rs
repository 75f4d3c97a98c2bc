//! Files as an agent's tools see them, whoever serves them: this machine, or a client at the other end of a wire.

use std::future::Future;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use bowline_state::changes::ChangeId;
use bowline_state::failure::Failure;
use bowline_state::ledger::Verdict;
use bowline_state::lines::Window;
use tokio::sync::Semaphore;
use tokio::task::spawn_blocking;

use crate::error::FilesError;
use crate::listing::{ListOptions, Listing};
use crate::search::{SearchQuery, SearchResult};
use crate::workspace::{Served, Session, Written};

/// As many reads, listings and searches of one [`LocalFiles`] work on the disk at the same time; others wait.
pub const MAX_AT_ONCE: usize = 16;

/// As many writes. They go one after the other anyway, and should not keep reads waiting.
pub const MAX_WRITES_AT_ONCE: usize = 4;

/// Who asks: known as far as the caller knows it.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Asker {
    /// The turn, counted from 1.
    pub turn: Option<u64>,
    /// The tool call.
    pub call: Option<String>,
}

/// A text, and who served it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TextRead {
    /// The lines that were asked for, with their ends.
    pub text: Arc<String>,
    /// Where they came from.
    pub served: Served,
    /// Whether it is all there is, if whoever serves it can say.
    pub whole: Option<bool>,
}

/// What a write came to.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct TextWritten {
    /// What the file holds now, if whoever serves it can say.
    pub text: Option<Arc<String>>,
    /// How that came about; none if the file held it already, or if nobody can say.
    pub verdict: Option<Verdict>,
    /// The change in the journal, by which it can be undone, if there is one here.
    pub change: Option<ChangeId>,
    /// What the writer should be told besides, each on a line.
    pub notes: Vec<String>,
}

impl From<Written> for TextWritten {
    fn from(written: Written) -> Self {
        let notes = written.notes();
        Self { text: Some(written.text), verdict: written.verdict, change: written.change, notes }
    }
}

/// Files of one session.
///
/// Tools are generic over who serves them; where that is decided at run time, an enum of those there are implements it.
pub trait Files: Send + Sync {
    /// Reads a file, or some lines of it.
    ///
    /// # Errors
    /// Says why there is no such text.
    fn read(&self, path: &str, window: Window) -> impl Future<Output = Result<TextRead, Failure>> + Send;

    /// Writes a file.
    ///
    /// # Errors
    /// Says why nothing was written.
    fn write(
        &self,
        path: &str,
        content: String,
        asker: &Asker,
    ) -> impl Future<Output = Result<TextWritten, Failure>> + Send;

    /// Lists a directory.
    ///
    /// # Errors
    /// Says why there is no such directory.
    fn list(&self, path: &str, options: ListOptions)
    -> impl Future<Output = Result<Listing, Failure>> + Send;

    /// Searches all files of the session, or those below one directory.
    ///
    /// # Errors
    /// Says what is wrong with the query, or why there is no such directory.
    fn search(
        &self,
        query: SearchQuery,
        below: Option<String>,
    ) -> impl Future<Output = Result<SearchResult, Failure>> + Send;
}

/// Files of this machine, under the engine.
///
/// The disk is worked on by threads that may block. What was begun is done to the end, also if nobody waits for it any
/// more: a write is never cut in half.
#[derive(Debug, Clone)]
pub struct LocalFiles {
    session: Session,
    looks: Arc<Semaphore>,
    writes: Arc<Semaphore>,
}

impl LocalFiles {
    /// Returns the files of a session.
    #[must_use]
    pub fn new(session: Session) -> Self {
        let looks = Arc::new(Semaphore::new(MAX_AT_ONCE));
        Self { session, looks, writes: Arc::new(Semaphore::new(MAX_WRITES_AT_ONCE)) }
    }

    /// Returns the session.
    #[must_use]
    pub fn session(&self) -> &Session {
        &self.session
    }

    async fn run<T: Send + 'static>(
        &self,
        permits: &Arc<Semaphore>,
        act: impl FnOnce(&Session) -> Result<T, FilesError> + Send + 'static,
    ) -> Result<T, Failure> {
        let internal = |reason: String| Failure::Internal { reason };
        let permit = permits.clone().acquire_owned().await.map_err(|closed| internal(closed.to_string()))?;
        let session = self.session.clone();
        let done = spawn_blocking(move || {
            let done = act(&session);
            drop(permit);
            done
        });
        done.await
            .map_err(|ended| internal(format!("a file operation ended early: {ended}")))?
            .map_err(Into::into)
    }
}

struct StopOnDrop(Arc<AtomicBool>);

impl Drop for StopOnDrop {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

impl Files for LocalFiles {
    async fn read(&self, path: &str, window: Window) -> Result<TextRead, Failure> {
        let path = path.to_owned();
        let read = self.run(&self.looks, move |session| session.read(&path, window)).await?;
        Ok(TextRead { text: read.text, served: read.served, whole: Some(read.whole) })
    }

    async fn write(&self, path: &str, content: String, asker: &Asker) -> Result<TextWritten, Failure> {
        let path = path.to_owned();
        let origin = self.session.origin(asker.turn, asker.call.as_deref());
        let written = self.run(&self.writes, move |session| session.write(&path, &content, &origin)).await?;
        Ok(written.into())
    }

    async fn list(&self, path: &str, options: ListOptions) -> Result<Listing, Failure> {
        let path = path.to_owned();
        self.run(&self.looks, move |session| session.list(&path, &options)).await
    }

    async fn search(&self, query: SearchQuery, below: Option<String>) -> Result<SearchResult, Failure> {
        let stop = query.stop.clone().unwrap_or_default();
        // A search changes nothing: if nobody waits for it any more, it ends.
        let _end = StopOnDrop(stop.clone());
        let query = SearchQuery { stop: Some(stop), ..query };
        self.run(&self.looks, move |session| session.search(&query, below.as_deref())).await
    }
}
