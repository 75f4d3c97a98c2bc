//! The files of a session as an agent's tools see them, served by this machine or by a client across a connection.

use std::future::ready;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use bowline_history::changes::{ChangeId, ChangeOrigin};
use bowline_history::ledger::WriteVerdict;
use bowline_policy::paths::Access;
use bowline_protocol::file_extension::{
    BatchError, BatchFilesRequest, BatchOperation, BatchResult, FileError, FileLimits, FileOperation,
    FileType, ReadFileRequest, ReadFileResponse, ReadParams, StatFileResponse, WriteFileResponse,
};
use bowline_protocol::rpc_error::RpcError;
use bowline_storage::clock::format_iso8601;
use bowline_task::spawn_blocking;
use bowline_text::lines::LineWindow;
use bowline_text::time::Timestamp;
use tokio::sync::Semaphore;

use crate::BoxFuture;
use crate::error::FilesError;
use crate::list::{ListOptions, Listing};
use crate::search::{SearchQuery, SearchResult};
use crate::workspace::{TextSource, WorkspaceSession, WriteOutcome};

/// The maximum number of concurrent reads, listings and searches of one [`LocalFiles`]; others wait.
pub const MAX_CONCURRENT_READS: usize = 16;

/// The maximum number of concurrent writes. They run one after the other anyway, and should not delay reads.
pub const MAX_CONCURRENT_WRITES: usize = 4;

/// The turn and tool call that an operation is attributed to, as far as known.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Requester {
    /// The turn, counted from 1.
    pub turn: Option<u64>,
    /// The tool call.
    pub call: Option<String>,
}

/// A text, and its source.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TextReadOutcome {
    /// The requested lines, with their line ends.
    pub text: Arc<String>,
    /// The source of the text.
    pub source: TextSource,
    /// Whether this is the whole text, if the backend knows.
    pub is_whole: Option<bool>,
}

/// The outcome of a write.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct TextWriteOutcome {
    /// The current text of the file, if the backend knows.
    pub text: Option<Arc<String>>,
    /// How the text came about; `None` if the file already held it, or if the backend does not know.
    pub verdict: Option<WriteVerdict>,
    /// The change in the journal, by which the write can be undone, if there is a journal here.
    pub change: Option<ChangeId>,
    /// Additional notes for the writer, one per line.
    pub notes: Vec<String>,
}

impl From<WriteOutcome> for TextWriteOutcome {
    fn from(written: WriteOutcome) -> Self {
        let notes = written.notes();
        Self { text: Some(written.text), verdict: written.verdict, change: written.change, notes }
    }
}

/// Describes a file or directory for a model, in one sentence.
#[must_use]
pub fn describe_stat(path: &str, stat: &StatFileResponse) -> String {
    let mut parts = vec![match stat.file_type {
        FileType::File => format!("a file of {} bytes", stat.size),
        FileType::Directory => "a directory".to_owned(),
        FileType::Symlink => "a symbolic link".to_owned(),
        FileType::Other => "neither a file nor a directory".to_owned(),
    }];
    match &stat.encoding {
        Some(encoding) => parts.push(format!("text in {encoding}")),
        // Without an etag it was not read, so this is not known.
        None if stat.file_type == FileType::File && stat.etag.is_some() && !stat.dirty => {
            parts.push("not text".to_owned());
        }
        None => {}
    }
    parts.extend(stat.mode.map(|mode| format!("mode {mode:o}")));
    parts.extend(stat.modified_at_ms.map(|time| format!("changed {}", format_iso8601(Timestamp(time)))));
    if stat.dirty {
        parts.push("with unsaved text, which counts".to_owned());
    }
    if stat.read_only {
        parts.push("read-only".to_owned());
    }
    format!("{path} is {}.", parts.join(", "))
}

/// Describes for a model why a file operation failed, with advice. `display` shortens a path.
#[must_use]
pub fn describe_file_error(error: &FileError, display: impl Fn(&str) -> String) -> String {
    match error {
        FileError::NotFound { path } => {
            format!("{} does not exist: list the directory to see what is there", display(path))
        }
        FileError::AlreadyExists { path } => {
            format!("{} exists already: replace it with `overwrite`, or choose another path", display(path))
        }
        FileError::NotEmpty { path } => {
            format!("{} is not empty: set `recursive` to delete all that is in it", display(path))
        }
        FileError::NotText { path, .. } => format!("{} is not text: use a command", display(path)),
        FileError::NotFile { path } => format!("{} is not a file", display(path)),
        FileError::OutsideRoots { path } => {
            format!("{} is outside the directories of this session", display(path))
        }
        FileError::Conflict { path, reason, .. } => format!("{}: {reason}", display(path)),
        FileError::TooLarge { path: Some(path), bytes, limit } => {
            format!("{} has {bytes} bytes, and the limit is {limit}: use a command", display(path))
        }
        FileError::Overlap { path, other } => {
            format!("{} and file {} cannot both be written", display(path), other + 1)
        }
        FileError::OntoItself { from, to } => {
            format!("{} and {} are the same, or one contains the other", display(from), display(to))
        }
        other => other.to_string(),
    }
}

/// A backend for the files of one session.
pub trait FileBackend: Send + Sync {
    /// Reads a file, or some lines of it.
    ///
    /// # Errors
    /// Returns an error if the text cannot be read.
    fn read<'a>(
        &'a self,
        path: &'a str,
        window: LineWindow,
    ) -> BoxFuture<'a, Result<TextReadOutcome, RpcError>>;

    /// Writes a file.
    ///
    /// # Errors
    /// Returns an error if nothing was written.
    fn write<'a>(
        &'a self,
        path: &'a str,
        content: String,
        asker: &'a Requester,
    ) -> BoxFuture<'a, Result<TextWriteOutcome, RpcError>>;

    /// Lists a directory.
    ///
    /// # Errors
    /// Returns an error if the directory cannot be listed.
    fn list<'a>(&'a self, path: &'a str, options: ListOptions) -> BoxFuture<'a, Result<Listing, RpcError>>;

    /// Searches all files of the session, or those below one directory.
    ///
    /// # Errors
    /// Returns an error if the query is invalid or the directory does not exist.
    fn search(
        &self,
        query: SearchQuery,
        below: Option<String>,
    ) -> BoxFuture<'_, Result<SearchResult, RpcError>>;

    /// Returns whether it serves the methods below, which are those of the file extension.
    fn serves_file_extension(&self) -> bool {
        false
    }

    /// Describes a path.
    ///
    /// # Errors
    /// Returns an error if the path does not exist.
    fn stat<'a>(&'a self, path: &'a str) -> BoxFuture<'a, Result<StatFileResponse, FileError>> {
        Box::pin(ready(Err(no_file_extension(path))))
    }

    /// Reads a file as text or bytes.
    ///
    /// # Errors
    /// Returns an error if the file cannot be read.
    fn read_data(&self, params: ReadParams) -> BoxFuture<'_, Result<ReadFileResponse, FileError>> {
        Box::pin(ready(Err(no_file_extension(&params.path.to_string_lossy()))))
    }

    /// Carries out a batch. The results are in the order of the operations.
    ///
    /// # Errors
    /// Returns an error if nothing was changed.
    fn batch<'a>(
        &'a self,
        _: Vec<BatchOperation>,
        _: &'a Requester,
    ) -> BoxFuture<'a, Result<Vec<BatchResult>, BatchError>> {
        Box::pin(ready(Err(no_file_extension("the files").into())))
    }
}

fn no_file_extension(subject: &str) -> FileError {
    let reason = format!("{subject}: the editor does not offer this: read and write the files one by one");
    RpcError::InvalidRequest { reason }.into()
}

/// The files of this machine, served by the engine.
///
/// Disk operations run on blocking threads. An operation that was started runs to completion even if its future is
/// dropped: a write is never cut in half.
#[derive(Debug, Clone)]
pub struct LocalFiles {
    session: WorkspaceSession,
    read_permits: Arc<Semaphore>,
    write_permits: Arc<Semaphore>,
}

impl LocalFiles {
    /// Returns the files of a session.
    #[must_use]
    pub fn new(session: WorkspaceSession) -> Self {
        let looks = Arc::new(Semaphore::new(MAX_CONCURRENT_READS));
        Self { session, read_permits: looks, write_permits: Arc::new(Semaphore::new(MAX_CONCURRENT_WRITES)) }
    }

    /// Returns the session.
    #[must_use]
    pub fn session(&self) -> &WorkspaceSession {
        &self.session
    }

    async fn run_blocking<T: Send + 'static>(
        &self,
        permits: &Arc<Semaphore>,
        act: impl FnOnce(&WorkspaceSession) -> Result<T, FilesError> + Send + 'static,
    ) -> Result<T, RpcError> {
        let internal = |reason: String| RpcError::Internal { reason };
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

impl FileBackend for LocalFiles {
    fn read<'a>(
        &'a self,
        path: &'a str,
        window: LineWindow,
    ) -> BoxFuture<'a, Result<TextReadOutcome, RpcError>> {
        Box::pin(async move {
            let path = path.to_owned();
            let read =
                self.run_blocking(&self.read_permits, move |session| session.read(&path, window)).await?;
            Ok(TextReadOutcome { text: read.text, source: read.source, is_whole: Some(read.is_whole) })
        })
    }

    fn write<'a>(
        &'a self,
        path: &'a str,
        content: String,
        asker: &'a Requester,
    ) -> BoxFuture<'a, Result<TextWriteOutcome, RpcError>> {
        Box::pin(async move {
            let path = path.to_owned();
            let origin = self.session.origin(asker.turn, asker.call.as_deref());
            let written = self
                .run_blocking(&self.write_permits, move |session| session.write(&path, &content, &origin))
                .await?;
            Ok(written.into())
        })
    }

    fn list<'a>(&'a self, path: &'a str, options: ListOptions) -> BoxFuture<'a, Result<Listing, RpcError>> {
        Box::pin(async move {
            let path = path.to_owned();
            self.run_blocking(&self.read_permits, move |session| session.list(&path, &options)).await
        })
    }

    fn search(
        &self,
        query: SearchQuery,
        below: Option<String>,
    ) -> BoxFuture<'_, Result<SearchResult, RpcError>> {
        Box::pin(async move {
            let stop = query.stop.clone().unwrap_or_default();
            // A search changes nothing, so dropping its future stops it.
            let _end = StopOnDrop(stop.clone());
            let query = SearchQuery { stop: Some(stop), ..query };
            self.run_blocking(&self.read_permits, move |session| session.search(&query, below.as_deref()))
                .await
        })
    }

    fn serves_file_extension(&self) -> bool {
        true
    }

    fn stat<'a>(&'a self, path: &'a str) -> BoxFuture<'a, Result<StatFileResponse, FileError>> {
        Box::pin(async move {
            let path = path.to_owned();
            let stat = move |session: &WorkspaceSession| {
                let admitted = session.admit(&path, Access::Read)?;
                Ok(session.stat_admitted(&admitted))
            };
            self.run_blocking(&self.read_permits, stat).await?
        })
    }

    fn read_data(&self, params: ReadParams) -> BoxFuture<'_, Result<ReadFileResponse, FileError>> {
        Box::pin(async move {
            let request = ReadFileRequest::new(self.session.id().to_owned(), params);
            let operation = request.into_operation(&FileLimits::DEFAULT)?;
            let read = move |session: &WorkspaceSession| {
                let admitted = session.admit(operation.path.as_str(), Access::Read)?;
                Ok(session.read_range(&admitted, &operation))
            };
            self.run_blocking(&self.read_permits, read).await?
        })
    }

    fn batch<'a>(
        &'a self,
        operations: Vec<BatchOperation>,
        requester: &'a Requester,
    ) -> BoxFuture<'a, Result<Vec<BatchResult>, BatchError>> {
        Box::pin(async move {
            let mut request = BatchFilesRequest::new(self.session.id().to_owned());
            request.operations = operations;
            let operations = request.into_operations(&FileLimits::DEFAULT)?;
            let origin = self.session.origin(requester.turn, requester.call.as_deref());
            let apply = move |session: &WorkspaceSession| Ok(apply_operations(session, &operations, &origin));
            self.run_blocking(&self.write_permits, apply).await?
        })
    }
}

/// Carries out a batch without a question.
fn apply_operations(
    session: &WorkspaceSession,
    operations: &[FileOperation],
    origin: &ChangeOrigin,
) -> Result<Vec<BatchResult>, BatchError> {
    let mut reads = Vec::new();
    for (index, operation) in (0..).zip(operations) {
        let FileOperation::Read(read) = operation else { continue };
        let admitted = session.admit(read.path.as_str(), Access::Read).map_err(FileError::from);
        let response = admitted.and_then(|admitted| session.read_range(&admitted, read));
        reads.push(response.map_err(|error| BatchError { index: Some(index), error })?);
    }
    let outcome = session.apply_batch(operations, origin, None)?;
    let mut reads = reads.into_iter();
    let results = operations.iter().zip(outcome.operations).map(|(operation, outcome)| {
        Some(match operation {
            FileOperation::Read(_) => BatchResult::Read(reads.next()?),
            FileOperation::Write(_) => {
                let written = outcome.written?;
                let mut response = WriteFileResponse::new(written.etag);
                response.merged = written.is_merged;
                let text = written.text.filter(|_| written.is_merged);
                response.content = text.map(|text| text.as_str().to_owned());
                BatchResult::Write(response)
            }
            FileOperation::Move(_) => BatchResult::Move {},
            FileOperation::Copy(_) => BatchResult::Copy {},
            FileOperation::Remove(_) => BatchResult::Remove {},
            FileOperation::Mkdir(_) => BatchResult::Mkdir {},
        })
    });
    let missing = || RpcError::Internal { reason: "an operation has no outcome".to_owned() };
    Ok(results.collect::<Option<Vec<_>>>().ok_or_else(missing)?)
}
