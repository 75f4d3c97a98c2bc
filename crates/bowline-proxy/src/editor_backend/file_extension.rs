//! The methods of the file extension for the added server's tools: the editor's, or else those of the session's engine.
//!
//! The engine does not see unsaved text. So where the editor has files but not these methods, the engine changes only
//! files that have the same text in the editor and on disk. Where rules apply, the engine serves in any case, because
//! the editor's methods are not judged by them.

use std::path::Path;

use bowline_protocol::capabilities::ClientMethod;
use bowline_protocol::file_extension::{
    BatchError, BatchFilesRequest, BatchOperation, BatchResult, DataEncoding, Etag, FileError,
    ReadFileRequest, ReadFileResponse, ReadParams, StatFileRequest, StatFileResponse, WriteMode,
};
use bowline_protocol::rpc_error::RpcError;
use bowline_protocol::schema::v1::Diff;
use bowline_text::text;
use bowline_text::unsaved_text::is_equivalent_text;
use bowline_wire::CallError;
use bowline_workspace::disk_snapshot::DiskSnapshot;
use tokio::time::timeout;

use super::write::read_current;
use super::{ANSWER_TIMEOUT, EditorBackend, to_failure};
use crate::permission::{PermissionPrompt, run_with_permission};

pub(super) async fn stat(editor: &EditorBackend, path: &str) -> Result<StatFileResponse, FileError> {
    let request = StatFileRequest::new(editor.session_id().await?, path);
    if serves(editor, ClientMethod::StatFile) {
        return with_timeout(editor.client.stat_file(request)).await;
    }
    let mut stat = editor.call_engine_for_files(&request, None).await.map_err(|failure| failure.error)?;
    if let Some(text) = find_unsaved_text(editor, path).await? {
        let text = text.as_bytes();
        (stat.size, stat.etag, stat.dirty) = (text.len() as u64, Some(Etag::digest(text)), true);
    }
    Ok(stat)
}

pub(super) async fn read_data(
    editor: &EditorBackend,
    params: ReadParams,
) -> Result<ReadFileResponse, FileError> {
    let path = params.path.to_string_lossy().into_owned();
    let is_text = params.encoding == DataEncoding::Utf8;
    let request = ReadFileRequest::new(editor.session_id().await?, params);
    if serves(editor, ClientMethod::ReadFile) {
        return with_timeout(editor.client.read_file(request)).await;
    }
    if is_text {
        check_saved(editor, &path).await?;
    }
    editor.call_engine_for_files(&request, None).await.map_err(|failure| failure.error)
}

pub(super) async fn batch(
    editor: &EditorBackend,
    operations: Vec<BatchOperation>,
) -> Result<Vec<BatchResult>, BatchError> {
    let session = editor.session_id().await.map_err(FileError::from)?;
    if serves(editor, ClientMethod::BatchFiles) {
        let prompt = describe_batch(editor, &operations).await.map_err(FileError::from)?;
        let request =
            operations.into_iter().fold(BatchFilesRequest::new(session), BatchFilesRequest::operation);
        // The prompt takes any failure for the operation's, so the editor's reason is kept aside.
        let mut failure = None;
        let answer = run_with_permission(editor, prompt, async {
            editor.client.batch_files(request).await.map_err(|error| {
                failure = error.batch_error();
                to_failure(error)
            })
        });
        let answer = answer.await;
        return match (answer, failure) {
            (Ok(answer), _) => Ok(answer.results),
            (Err(_), Some(failure)) => Err(failure),
            (Err(error), None) => Err(FileError::from(error).into()),
        };
    }
    for (index, operation) in (0..).zip(&operations) {
        for path in changed_paths(operation) {
            let saved = check_saved(editor, &path.to_string_lossy()).await;
            saved.map_err(|error| BatchError { index: Some(index), error: error.into() })?;
        }
    }
    let first = operations.first().and_then(|operation| changed_paths(operation).into_iter().next());
    let call_path = first.map(|path| path.to_string_lossy().into_owned());
    let request = operations.into_iter().fold(BatchFilesRequest::new(session), BatchFilesRequest::operation);
    Ok(editor.call_engine_for_files(&request, call_path.as_deref()).await?.results)
}

/// Returns whether the editor serves a method for the tools.
fn serves(editor: &EditorBackend, method: ClientMethod) -> bool {
    !editor.session.options().enforce_policy && editor.client.check(method).is_ok()
}

async fn with_timeout<T>(call: impl Future<Output = Result<T, CallError>>) -> Result<T, FileError> {
    match timeout(ANSWER_TIMEOUT, call).await {
        Ok(answer) => answer.map_err(|error| error.file_error().unwrap_or_else(|| to_failure(error).into())),
        Err(_) => Err(RpcError::Internal { reason: "the editor does not answer".to_owned() }.into()),
    }
}

/// Returns the paths that an operation changes or copies from.
fn changed_paths(operation: &BatchOperation) -> Vec<&Path> {
    match operation {
        BatchOperation::Read(_) | BatchOperation::Mkdir(_) => Vec::new(),
        BatchOperation::Write(write) => vec![&write.path],
        BatchOperation::Move(transfer) | BatchOperation::Copy(transfer) => {
            vec![&transfer.from, &transfer.to]
        }
        BatchOperation::Remove(removal) => vec![&removal.path],
    }
}

/// Refuses a path that has unsaved text in the editor, as does a file beneath it that was read through the editor.
async fn check_saved(editor: &EditorBackend, path: &str) -> Result<(), RpcError> {
    let is_below =
        |file: &&String| file.strip_prefix(path).is_some_and(|rest| rest.is_empty() || rest.starts_with('/'));
    let below: Vec<String> = editor.read_files().iter().filter(is_below).cloned().collect();
    for path in std::iter::once(path).chain(below.iter().map(String::as_str).filter(|file| *file != path)) {
        if find_unsaved_text(editor, path).await?.is_some() {
            return Err(RpcError::InvalidRequest {
                reason: format!(
                    "{path} has unsaved text in the editor: write it with write_text_file or edit_text_file, \
                     or ask the user to save it"
                ),
            });
        }
    }
    Ok(())
}

/// Returns the editor's text of a file, if the disk has another.
async fn find_unsaved_text(editor: &EditorBackend, path: &str) -> Result<Option<String>, RpcError> {
    if !editor.editor_tools.can_read {
        return Ok(None);
    }
    let text = match read_current(editor, path).await {
        Ok(Some(text)) => text,
        Err(RpcError::Cancelled) => return Err(RpcError::Cancelled),
        // A directory, or a file that is not text.
        Ok(None) | Err(_) => return Ok(None),
    };
    let is_saved = match editor.take_disk_snapshot(path).await {
        DiskSnapshot::File { bytes, .. } => {
            // The editor's rendering of bytes that are not text says nothing.
            text::decode(bytes).map_or(true, |decoded| is_equivalent_text(&decoded.text, &text))
        }
        DiskSnapshot::Missing => text.is_empty(),
        // The engine cannot change it either.
        DiskSnapshot::Unknown => true,
    };
    Ok((!is_saved).then_some(text))
}

/// Returns the question about a batch that the editor carries out.
async fn describe_batch(
    editor: &EditorBackend,
    operations: &[BatchOperation],
) -> Result<PermissionPrompt, RpcError> {
    let mut diffs = Vec::new();
    for operation in operations {
        let BatchOperation::Write(write) = operation else { continue };
        if write.encoding == DataEncoding::Utf8 && write.mode == WriteMode::Truncate {
            let path = write.path.to_string_lossy();
            let before = if editor.editor_tools.can_read { read_current(editor, &path).await? } else { None };
            diffs.push(Diff::new(&write.path, write.data.clone()).old_text(before));
        }
    }
    Ok(PermissionPrompt::for_batch(operations, diffs))
}
