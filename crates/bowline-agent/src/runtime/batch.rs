//! Metadata of files, and batches of changes: by the client's file extension, or by this machine's engine.

use std::sync::Arc;

use bowline_policy::paths::Access;
use bowline_policy::question::QuestionItem;
use bowline_protocol::capabilities::ClientMethod;
use bowline_protocol::file_extension::{
    BatchError, BatchFilesRequest, BatchOperation, BatchResult, Etag, FileData, FileError, FileLimits,
    FileOperation, ReadFileRequest, ReadFileResponse, ReadParams, StatFileRequest, StatFileResponse,
    WriteFileResponse,
};
use bowline_protocol::rpc_error::RpcError;
use bowline_task::spawn_blocking;
use bowline_wire::CallError;
use bowline_workspace::error::FilesError;
use bowline_workspace::files::Requester;
use bowline_workspace::workspace::{
    BatchAgreement, BatchEditError, BatchPreview, FileEditError, OperationOutcome, WorkspaceSession,
};
use tokio::time::timeout;

use super::client::ClientFiles;
use super::{Backend, RuntimeError, SessionRuntime};

/// Why a batch was not carried out.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum BatchFailure {
    /// A file is no longer as it was read or approved: the batch has to be decided anew.
    Changed(FileError),
    /// The backend refused it. Nothing was changed.
    Refused(FileError),
    /// The backend failed.
    Runtime(RuntimeError),
}

impl BatchFailure {
    /// Converts the error of a batch: a write whose condition no longer holds is decided anew.
    fn from_batch_error(failure: BatchError, operations: &[BatchOperation]) -> Self {
        let index = failure.index.and_then(|index| usize::try_from(index).ok());
        let operation = index.and_then(|index| operations.get(index));
        match (&failure.error, operation) {
            (
                FileError::Conflict { .. } | FileError::AlreadyExists { .. },
                Some(BatchOperation::Write(_)),
            ) => Self::Changed(failure.error),
            _ => Self::Refused(failure.error),
        }
    }
}

impl From<RuntimeError> for BatchFailure {
    fn from(error: RuntimeError) -> Self {
        Self::Runtime(error)
    }
}

/// The text of a file after a write.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum WrittenText {
    /// What was sent.
    AsSent,
    /// This text.
    Text(Arc<String>),
    /// Another text than was sent, which the backend does not repeat.
    Unknown,
}

/// The outcome of an operation of a batch.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct BatchWrite {
    /// The text of the file, if the operation is a write.
    pub text: WrittenText,
    /// Notes for the writer, one per line.
    pub notes: Vec<String>,
}

/// The content of a file as the client sees it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ClientContent {
    /// This text, and its etag.
    Text(Arc<String>, Etag),
    /// Bytes that are not text.
    Binary,
    /// It is not a file.
    NotFile,
    /// It does not exist.
    Missing,
}

impl ClientFiles {
    /// Describes a path.
    ///
    /// # Errors
    /// Fails if the client does not describe it.
    pub async fn stat(&self, path: &str) -> Result<StatFileResponse, RuntimeError> {
        let request = StatFileRequest::new(self.session.clone(), path);
        super::client::with_timeout(
            ClientMethod::StatFile,
            self.timeouts.answer,
            self.client.stat_file(request),
        )
        .await
    }

    /// Reads a whole file by the file extension.
    ///
    /// # Errors
    /// Fails if the client returns no content, or only a part.
    pub async fn read_content(&self, path: &str) -> Result<ClientContent, BatchFailure> {
        let read = match self.read_data(ReadParams::new(path)).await {
            Err(BatchFailure::Refused(FileError::NotFound { .. })) => return Ok(ClientContent::Missing),
            Err(BatchFailure::Refused(FileError::NotText { .. })) => return Ok(ClientContent::Binary),
            Err(BatchFailure::Refused(FileError::NotFile { .. })) => return Ok(ClientContent::NotFile),
            read => read?,
        };
        if read.truncated {
            let (bytes, limit) = (read.size, FileLimits::DEFAULT.read_bytes);
            let path = Some(path.to_owned());
            return Err(BatchFailure::Refused(FileError::TooLarge { path, bytes, limit }));
        }
        let etag = read.etag.clone();
        match read.into_data() {
            Ok(Some(FileData::Text(text))) => Ok(ClientContent::Text(Arc::new(text), etag)),
            Ok(_) => Err(invalid_answer("it is not text".to_owned())),
            Err(error) => Err(invalid_answer(error.to_string())),
        }
    }

    /// Reads by the method for it, which the client judges and records as a read, or else by a batch of one.
    async fn read_data(&self, params: ReadParams) -> Result<ReadFileResponse, BatchFailure> {
        let method = ClientMethod::ReadFile;
        if self.client.gate().check(method).is_err() {
            return match self.batch(vec![params.into()]).await?.into_iter().next() {
                Some(BatchResult::Read(read)) => Ok(read),
                _ => Err(invalid_answer("it has no content".to_owned())),
            };
        }
        let request = ReadFileRequest::new(self.session.clone(), params);
        let (method, after) = (method.wire_name(), self.timeouts.answer);
        match timeout(after, self.client.read_file(request)).await {
            Ok(Ok(read)) => Ok(read),
            Ok(Err(error)) => Err(match error.file_error() {
                Some(error) => BatchFailure::Refused(error),
                None => RuntimeError::from_call_error(method, error).into(),
            }),
            Err(_) => Err(RuntimeError::TimedOut { method, after }.into()),
        }
    }

    /// Carries out a batch. The results are in the order of the operations.
    ///
    /// # Errors
    /// Fails if nothing was changed, or if the outcome is unknown.
    pub async fn batch(&self, operations: Vec<BatchOperation>) -> Result<Vec<BatchResult>, BatchFailure> {
        let (method, after) = (ClientMethod::BatchFiles.wire_name(), self.timeouts.review);
        let mut request = BatchFilesRequest::new(self.session.clone());
        request.operations.clone_from(&operations);
        let answer = match timeout(after, self.client.batch_files(request)).await {
            Ok(Ok(answer)) => answer,
            Ok(Err(error @ CallError::ErrorResponse(_))) => {
                let failure = error.batch_error();
                return Err(match failure {
                    Some(failure) => BatchFailure::from_batch_error(failure, &operations),
                    None => RuntimeError::from_call_error(method, error).into(),
                });
            }
            Ok(Err(error)) => return Err(RuntimeError::from_call_error(method, error).into()),
            Err(_) => return Err(RuntimeError::TimedOut { method, after }.into()),
        };
        if answer.results.len() != operations.len() {
            return Err(invalid_answer(format!(
                "it has {} results for {} operations",
                answer.results.len(),
                operations.len()
            )));
        }
        Ok(answer.results)
    }
}

fn invalid_answer(why: String) -> BatchFailure {
    RuntimeError::InvalidAnswer { method: ClientMethod::BatchFiles.wire_name(), why }.into()
}

fn to_client_write(written: WriteFileResponse) -> BatchWrite {
    let text = match written.content {
        Some(text) => WrittenText::Text(Arc::new(text)),
        None if written.merged || written.formatted => WrittenText::Unknown,
        None => WrittenText::AsSent,
    };
    BatchWrite { text, notes: Vec::new() }
}

fn to_local_write(outcome: OperationOutcome) -> BatchWrite {
    match outcome.written {
        Some(written) => BatchWrite {
            text: written.text.map_or(WrittenText::Unknown, WrittenText::Text),
            notes: written.notes,
        },
        None => BatchWrite { text: WrittenText::AsSent, notes: Vec::new() },
    }
}

/// The effect of a batch on this machine, and the question about it.
#[derive(Debug)]
pub struct LocalPreview {
    operations: Vec<FileOperation>,
    /// The effect.
    pub preview: BatchPreview,
    /// The operations that the policy judges and a person is shown.
    pub items: Vec<QuestionItem>,
}

/// Describes a path, through the client if it can.
///
/// # Errors
/// Fails if the path does not exist.
pub(crate) async fn stat_file(
    runtime: &SessionRuntime,
    path: &str,
) -> Result<StatFileResponse, RuntimeError> {
    if runtime.backend_choice().stat == Backend::Client {
        return runtime.client_files().stat(path).await;
    }
    let path = path.to_owned();
    let stat = run_in_engine(runtime, move |session| {
        let admitted = session.admit(&path, Access::Read).map_err(FileError::from)?;
        session.stat_admitted(&admitted)
    });
    stat.await?.map_err(|error| RuntimeError::Failed(error.to_rpc_error()))
}

/// Returns the effect of a batch on this machine's files.
///
/// # Errors
/// Fails if the batch would be refused.
pub(crate) async fn preview_local_batch(
    runtime: &SessionRuntime,
    operations: &[BatchOperation],
) -> Result<LocalPreview, BatchFailure> {
    let mut request = BatchFilesRequest::new(runtime.session().clone());
    request.operations = operations.to_vec();
    let validated = request.into_operations(&FileLimits::DEFAULT);
    let validated = validated.map_err(|error| BatchFailure::from_batch_error(error, operations))?;
    let shown = run_in_engine(runtime, move |session| {
        let preview = session.preview_batch(&validated)?;
        let items = preview.question_items(session)?;
        Ok::<_, BatchEditError>(LocalPreview { operations: validated, preview, items })
    });
    shown.await?.map_err(|error| from_edit_error(error, operations))
}

/// Carries out a batch on this machine, exactly as shown.
///
/// # Errors
/// Fails if nothing was changed.
pub(crate) async fn apply_local_batch(
    runtime: &SessionRuntime,
    operations: &[BatchOperation],
    shown: LocalPreview,
    requester: &Requester,
) -> Result<Vec<BatchWrite>, BatchFailure> {
    let requester = requester.clone();
    let applied = run_in_engine(runtime, move |session| {
        let origin = session.origin(requester.turn, requester.call.as_deref());
        let agreement = BatchAgreement::Preview(&shown.preview);
        session.apply_batch(&shown.operations, &origin, Some(agreement))
    });
    let outcome = applied.await?.map_err(|error| from_edit_error(error, operations))?;
    Ok(outcome.operations.into_iter().map(to_local_write).collect())
}

/// Carries out a batch through the client.
///
/// # Errors
/// Fails if nothing was changed, or if the outcome is unknown.
pub(crate) async fn apply_client_batch(
    runtime: &SessionRuntime,
    operations: Vec<BatchOperation>,
) -> Result<Vec<BatchWrite>, BatchFailure> {
    for operation in &operations {
        let path = match operation {
            BatchOperation::Write(write) => &write.path,
            BatchOperation::Move(transfer) => {
                forget_client_text(runtime, &transfer.from.to_string_lossy());
                &transfer.to
            }
            BatchOperation::Remove(removal) => {
                forget_client_text(runtime, &removal.path.to_string_lossy());
                continue;
            }
            BatchOperation::Read(_) | BatchOperation::Copy(_) | BatchOperation::Mkdir(_) => continue,
        };
        runtime.record_client_write(&path.to_string_lossy());
    }
    let results = runtime.client_files().batch(operations).await?;
    let to_write = |result| match result {
        BatchResult::Write(written) => to_client_write(written),
        _ => BatchWrite { text: WrittenText::AsSent, notes: Vec::new() },
    };
    Ok(results.into_iter().map(to_write).collect())
}

fn forget_client_text(runtime: &SessionRuntime, path: &str) {
    runtime.client_texts().remove(path);
}

/// Runs an operation of the engine on a thread that may block.
async fn run_in_engine<T: Send + 'static>(
    runtime: &SessionRuntime,
    operation: impl FnOnce(&WorkspaceSession) -> T + Send + 'static,
) -> Result<T, RuntimeError> {
    let session = runtime.local().await?.files.session().clone();
    let done = spawn_blocking(move || operation(&session)).await;
    done.map_err(|error| RuntimeError::Failed(RpcError::Internal { reason: error.to_string() }))
}

fn from_edit_error(error: BatchEditError, operations: &[BatchOperation]) -> BatchFailure {
    if matches!(*error.error, FileEditError::Files(FilesError::ChangedSinceApproval(_))) {
        return BatchFailure::Changed((*error.error).into());
    }
    BatchFailure::from_batch_error(error.into(), operations)
}
