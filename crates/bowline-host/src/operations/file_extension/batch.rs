//! Writes and batches of the file extension: decided by the engine, approved once with every file shown, then applied.

use std::sync::Arc;

use bowline_access::approvals::{ApprovalRequest, OperationApproval};
use bowline_history::changes::ChangeId;
use bowline_history::ledger::WriteVerdict;
use bowline_policy::audit::{AuditAction, AuditDecision, AuditSubject};
use bowline_policy::grants::ResolvedOperation;
use bowline_policy::operation::OperationKind;
use bowline_policy::paths::Access;
use bowline_policy::question::{Question, QuestionItem};
use bowline_protocol::file_extension::operations::{WriteCondition, WriteOperation, WritePlacement};
use bowline_protocol::file_extension::overlap::PathEffect;
use bowline_protocol::file_extension::{
    BatchError, BatchFilesRequest, BatchFilesResponse, BatchResult, FileData, FileError, FileOperation,
    ReadFileResponse, WriteFileRequest, WriteFileResponse,
};
use bowline_protocol::rpc_error::RpcError;
use bowline_text::hash::ContentHash;
use bowline_wire::ClientContext;
use bowline_workspace::error::FilesError;
use bowline_workspace::workspace::{
    BatchAgreement, BatchOutcome, BatchPreview, FileContent, FileEditError, FilePreview, OperationOutcome,
    WorkspaceSession, WrittenFile,
};

use super::{LIMITS, operation_context};
use crate::front_end::HostEvent;
use crate::operations::browse::record_failure;
use crate::operations::files::privilege_danger;
use crate::operations::{AuditedOperation, OperationContext, authorize_operation, run_blocking};
use crate::session::SessionInner;

/// How often a batch is shown again because it differs by now from the one approved.
const MAX_ATTEMPTS: usize = 3;

/// The largest text that the answer to a write repeats.
const MAX_REPEATED_BYTES: usize = 1 << 20;

/// Serves `_bowline/fs/write`.
pub(crate) async fn write(
    session: Arc<SessionInner>,
    agent: Option<String>,
    request: WriteFileRequest,
    cx: ClientContext,
) -> Result<WriteFileResponse, FileError> {
    let operation = request.into_operation(&LIMITS)?;
    let context = operation_context(&session, agent, &[operation.path.as_str()], &cx);
    write_data(session, context, operation).await
}

/// Writes a file, authorized and recorded.
pub(crate) async fn write_data(
    session: Arc<SessionInner>,
    context: OperationContext,
    operation: WriteOperation,
) -> Result<WriteFileResponse, FileError> {
    let path = operation.path.as_str().to_owned();
    let operations = Arc::new(vec![FileOperation::Write(operation)]);
    let done = run_batch(session, context, format!("write {path}"), operations).await;
    let CompletedBatch { outcome, is_edited, .. } = done.map_err(|failure| failure.error)?;
    let written = outcome.operations.into_iter().find_map(|operation| operation.written);
    let missing = || RpcError::Internal { reason: "the write has no outcome".to_owned() };
    Ok(to_write_response(written.ok_or_else(missing)?, is_edited))
}

/// Serves `_bowline/fs/batch`.
pub(crate) async fn batch(
    session: Arc<SessionInner>,
    agent: Option<String>,
    request: BatchFilesRequest,
    cx: ClientContext,
) -> Result<BatchFilesResponse, BatchError> {
    let operations = request.into_operations(&LIMITS)?;
    let subjects: Vec<_> = operations.iter().flat_map(find_subjects).collect();
    let paths: Vec<&str> = subjects.iter().map(|(_, path)| path.as_str()).collect();
    let context = operation_context(&session, agent, &paths, &cx);
    change_files(session, context, operations).await.map(BatchFilesResponse::new)
}

/// Carries out a batch, authorized and recorded.
pub(crate) async fn change_files(
    session: Arc<SessionInner>,
    context: OperationContext,
    operations: Vec<FileOperation>,
) -> Result<Vec<BatchResult>, BatchError> {
    if operations.is_empty() {
        return Ok(Vec::new());
    }
    let operations = Arc::new(operations);
    let title = describe_operations(&operations);
    let done = run_batch(session, context, title, operations.clone()).await?;
    let mut reads = done.reads.into_iter();
    let mut results = Vec::new();
    for (operation, outcome) in operations.iter().zip(done.outcome.operations) {
        results.push(match operation {
            FileOperation::Read(_) => reads.next().map(BatchResult::Read),
            FileOperation::Write(_) => {
                outcome.written.map(|written| BatchResult::Write(to_write_response(written, done.is_edited)))
            }
            FileOperation::Move(_) => Some(BatchResult::Move {}),
            FileOperation::Copy(_) => Some(BatchResult::Copy {}),
            FileOperation::Remove(_) => Some(BatchResult::Remove {}),
            FileOperation::Mkdir(_) => Some(BatchResult::Mkdir {}),
        });
    }
    let missing = || RpcError::Internal { reason: "an operation has no outcome".to_owned() };
    let results: Option<Vec<BatchResult>> = results.into_iter().collect();
    Ok(results.ok_or_else(missing)?)
}

/// Returns the title of a question about a batch.
pub(crate) fn describe_operations(operations: &[FileOperation]) -> String {
    match operations {
        [FileOperation::Read(read)] => format!("read {}", read.path),
        [FileOperation::Write(write)] => format!("write {}", write.path),
        [FileOperation::Move(transfer)] => format!("move {} to {}", transfer.from, transfer.to),
        [FileOperation::Copy(transfer)] => format!("copy {} to {}", transfer.from, transfer.to),
        [FileOperation::Remove(removal)] => format!("delete {}", removal.path),
        [FileOperation::Mkdir(mkdir)] => format!("create the directory {}", mkdir.path),
        operations if reads_only(operations) => format!("read {} files", operations.len()),
        operations => format!("change files, {} operations at once", operations.len()),
    }
}

fn reads_only(operations: &[FileOperation]) -> bool {
    operations.iter().all(|operation| matches!(operation, FileOperation::Read(_)))
}

fn to_write_response(written: WrittenFile, is_edited: bool) -> WriteFileResponse {
    let mut response = WriteFileResponse::new(written.etag);
    response.merged = written.is_merged;
    let differs = written.is_merged || is_edited;
    let text = written.text.filter(|text| differs && text.len() <= MAX_REPEATED_BYTES);
    response.content = text.map(|text| text.as_str().to_owned());
    response
}

/// A batch that was carried out.
struct CompletedBatch {
    outcome: BatchOutcome,
    /// The answers to its reads, in order.
    reads: Vec<ReadFileResponse>,
    /// Whether the user edited the text of its only write.
    is_edited: bool,
}

/// The effect of a batch, and the question about it.
pub(crate) struct ShownBatch {
    preview: BatchPreview,
    pub(crate) items: Vec<QuestionItem>,
    pub(crate) resolved_operations: Vec<ResolvedOperation>,
}

/// Shows a batch to the user, unless rules decide, and carries it out as shown. If it differs by then, it is shown again.
async fn run_batch(
    session: Arc<SessionInner>,
    context: OperationContext,
    title: String,
    operations: Arc<Vec<FileOperation>>,
) -> Result<CompletedBatch, BatchError> {
    let OperationContext { agent, call, cancel, .. } = context;
    let action = if reads_only(&operations) { AuditAction::Read } else { AuditAction::Write };
    let mut audited = AuditedOperation::new(session.clone(), action, call);
    let mut changed_path = String::new();
    for _ in 0..MAX_ATTEMPTS {
        let (files, owned) = (session.files.clone(), operations.clone());
        let shown = run_blocking(move || show_batch(&files, &owned)).await.map_err(RpcError::from)?;
        let shown = match shown {
            Ok(shown) => shown,
            Err(failure) => {
                let recorded = run_blocking(move || record_batch_failure(&mut audited, &operations, failure));
                return Err(recorded.await.map_err(RpcError::from)?);
            }
        };
        let ShownBatch { preview, items, resolved_operations } = shown;
        let drops_privileges = preview.files.iter().any(|file| file.drops_privileges);
        let question = Question {
            call: audited.entry_mut().call.clone(),
            agent: agent.clone(),
            dangers: privilege_danger(drops_privileges).into_iter().collect(),
            ..Question::new(audited.holder(), title.clone(), items)
        };
        let request = ApprovalRequest { question, resolved_operations };
        let approval = authorize_operation(&mut audited, &request, &cancel).await;
        let owned = operations.clone();
        let (returned, result) = run_blocking(move || {
            let result = match approval {
                Ok(approval) => apply_batch(&mut audited, &owned, &preview, &approval),
                Err(failure) => {
                    Err(record_batch_failure(&mut audited, &owned, FileError::from(failure).into()))
                }
            };
            (audited, result)
        })
        .await
        .map_err(RpcError::from)?;
        audited = returned;
        match result {
            Err(BatchError { error: FileError::Conflict { path, .. }, .. }) if audited.take_changed() => {
                changed_path = path;
            }
            result => return result,
        }
    }
    let failure = FileError::from(FilesError::KeepsChanging(changed_path));
    let recorded = run_blocking(move || record_batch_failure(&mut audited, &operations, failure.into()));
    Err(recorded.await.map_err(RpcError::from)?)
}

/// Records that a batch was not carried out, with an entry for each of its paths.
fn record_batch_failure(
    audited: &mut AuditedOperation,
    operations: &[FileOperation],
    failure: BatchError,
) -> BatchError {
    let mut subjects = operations.iter().flat_map(find_subjects);
    if let Some(first) = subjects.next() {
        set_subject(audited, first);
    }
    let error = record_failure(audited, failure.error);
    let decision = audited.entry_mut().decision.clone();
    let rest = subjects.try_for_each(|subject| {
        set_subject(audited, subject);
        audited.record(decision.clone())
    });
    BatchError { error: rest.err().map_or(error, FileError::from), ..failure }
}

/// Records the operations of a batch, with an entry for each path. Reads have their own.
fn record_operations(audited: &mut AuditedOperation, operations: &[FileOperation]) -> Result<(), RpcError> {
    for operation in operations.iter().filter(|operation| !matches!(operation, FileOperation::Read(_))) {
        audited.entry_mut().bytes = Some(operation.data_bytes());
        for subject in find_subjects(operation) {
            set_subject(audited, subject);
            audited.record(AuditDecision::Allowed)?;
        }
    }
    Ok(())
}

/// Returns the paths that an operation reads and changes.
fn find_subjects(operation: &FileOperation) -> Vec<(AuditAction, String)> {
    let find_subject = |effect: PathEffect<'_>| {
        let action = match effect {
            PathEffect::Read(_) => AuditAction::Read,
            PathEffect::Change(_) | PathEffect::CreateDirectory(_) => AuditAction::Write,
        };
        (action, effect.path().to_string_lossy().into_owned())
    };
    operation.effects().into_iter().map(find_subject).collect()
}

fn set_subject(audited: &mut AuditedOperation, (action, path): (AuditAction, String)) {
    let entry = audited.entry_mut();
    entry.action = action;
    entry.subject = AuditSubject::Path { requested: path, resolved: None };
}

/// Returns the effect of a batch, with an item for every file that it reads or changes.
pub(crate) fn show_batch(
    files: &WorkspaceSession,
    operations: &[FileOperation],
) -> Result<ShownBatch, BatchError> {
    let preview = files.preview_batch(operations)?;
    let (mut items, mut resolved_operations) = (Vec::new(), Vec::new());
    for (index, operation) in (0..).zip(operations) {
        let FileOperation::Read(read) = operation else { continue };
        let admitted = files.admit(read.path.as_str(), Access::Read);
        let admitted = admitted.map_err(|error| BatchError { index: Some(index), error: error.into() })?;
        items.push(QuestionItem::new(admitted.operation(OperationKind::Read)));
        let (path, file) = (admitted.canonical().to_owned(), admitted.file_id());
        resolved_operations.push(ResolvedOperation::Read { path, file });
    }
    items.extend(preview.question_items(files).map_err(FileError::from)?);
    resolved_operations.extend(preview.files.iter().map(resolve));
    Ok(ShownBatch { preview, items, resolved_operations })
}

fn resolve(file: &FilePreview) -> ResolvedOperation {
    let (path, id) = (file.path.clone(), file.file);
    match &file.after {
        None => ResolvedOperation::Delete { path, file: id },
        Some(after) => ResolvedOperation::Write {
            path,
            file: id,
            before: file.before.as_ref().map(content_hash),
            content: content_hash(after),
            after: content_hash(after),
        },
    }
}

fn content_hash(content: &FileContent) -> ContentHash {
    match content {
        FileContent::Text(text) => ContentHash::digest(text.as_bytes()),
        FileContent::Binary { hash, .. } | FileContent::Large { hash, .. } => *hash,
    }
}

/// Carries out an approved batch. The permission is recorded before, and the outcome of each file after.
fn apply_batch(
    audited: &mut AuditedOperation,
    operations: &[FileOperation],
    preview: &BatchPreview,
    approval: &OperationApproval,
) -> Result<CompletedBatch, BatchError> {
    let session = audited.session.clone();
    let failed = |audited: &mut AuditedOperation, failure| record_batch_failure(audited, operations, failure);
    audited.check_active().map_err(|failure| failed(audited, FileError::from(failure).into()))?;
    // Reads see the files before the batch.
    let reads = read_files(&session.files, operations);
    let reads = reads.map_err(|failure| failed(audited, failure))?;
    record_reads(audited, operations, &reads)?;
    let edited = match approval {
        OperationApproval::Person { text: Some(text), .. } => {
            Some(with_edited_text(operations, preview, text))
        }
        _ => None,
    };
    let paths = preview.paths();
    if reads_only(operations) {
        let operations = operations.iter().map(|_| OperationOutcome::default()).collect();
        let outcome = BatchOutcome { operations, ..BatchOutcome::default() };
        return Ok(CompletedBatch { outcome, reads, is_edited: false });
    }
    let agreement = if edited.is_none() && approval.is_bound_to_operation() {
        BatchAgreement::Preview(preview)
    } else {
        BatchAgreement::Paths(&paths)
    };
    audited.entry_mut().reason = Some("begins".to_owned());
    record_operations(audited, operations)?;
    let entry = audited.entry_mut();
    (entry.action, entry.reason, entry.bytes) = (AuditAction::Write, None, None);
    let origin = audited.origin();
    let is_edited = edited.is_some();
    let applied =
        session.files.apply_batch(edited.as_deref().unwrap_or(operations), &origin, Some(agreement));
    session.host.report_kept_texts();
    let outcome = match applied {
        Ok(outcome) => outcome,
        Err(error) => {
            let is_changed =
                matches!(&*error.error, FileEditError::Files(FilesError::ChangedSinceApproval(_)));
            audited.set_changed(is_changed);
            return Err(failed(audited, error.into()));
        }
    };
    let is_merged = |written: &Option<WrittenFile>| written.as_ref().is_some_and(|written| written.is_merged);
    let changes: Vec<(ChangeId, bool)> = outcome
        .operations
        .iter()
        .flat_map(|done| done.changes.iter().map(|change| (*change, is_merged(&done.written))))
        .collect();
    if changes.is_empty() {
        record_operations(audited, operations)?;
    }
    for (id, is_merged) in changes {
        record_change(audited, id, is_merged)?;
    }
    Ok(CompletedBatch { outcome, reads, is_edited })
}

/// Records the reads of a batch, each by itself.
fn record_reads(
    audited: &mut AuditedOperation,
    operations: &[FileOperation],
    reads: &[ReadFileResponse],
) -> Result<(), RpcError> {
    let paths = operations.iter().filter_map(|operation| match operation {
        FileOperation::Read(read) => Some(read.path.as_str()),
        _ => None,
    });
    let (call, decided_by) = (audited.entry_mut().call.clone(), audited.entry_mut().decided_by.clone());
    for (path, read) in paths.zip(reads) {
        let subject = AuditSubject::Path { requested: path.to_owned(), resolved: None };
        let session = audited.session.clone();
        let mut read_operation =
            AuditedOperation::new(session, AuditAction::Read, call.clone()).with_subject(subject);
        read_operation.entry_mut().decided_by = decided_by.clone();
        read_operation.entry_mut().bytes = Some(read.data.as_ref().map_or(0, |data| data.len() as u64));
        read_operation.record(AuditDecision::Allowed)?;
    }
    Ok(())
}

/// Records one change of a batch, and shows it.
fn record_change(audited: &mut AuditedOperation, id: ChangeId, is_merged: bool) -> Result<(), RpcError> {
    let session = audited.session.clone();
    if let Ok(change) = session.host.workspace.change(id) {
        let entry = audited.entry_mut();
        entry.subject = AuditSubject::Path { requested: change.path.clone(), resolved: None };
        (entry.before, entry.after) =
            (change.before.map(|state| state.hash), change.after.map(|state| state.hash));
        if change.after.is_some() {
            let verdict = match change.before {
                None => WriteVerdict::Created,
                Some(_) if is_merged => WriteVerdict::Merged,
                Some(_) => WriteVerdict::Replaced,
            };
            let (path, verdict) = (&change.path, Some(verdict));
            session.show(HostEvent::FileWritten { session: &session.id, path, change: Some(id), verdict });
        }
    }
    audited.record(AuditDecision::Allowed)
}

/// Reads what a batch reads, within the limit for a batch.
fn read_files(
    files: &WorkspaceSession,
    operations: &[FileOperation],
) -> Result<Vec<ReadFileResponse>, BatchError> {
    let mut responses = Vec::new();
    let mut bytes = 0;
    for (index, operation) in (0..).zip(operations) {
        let FileOperation::Read(read) = operation else { continue };
        let admitted = files.admit(read.path.as_str(), Access::Read).map_err(FileError::from);
        let response = admitted.and_then(|admitted| files.read_range(&admitted, read));
        let response = response.map_err(|error| BatchError { index: Some(index), error })?;
        bytes += response.data.as_ref().map_or(0, |data| data.len() as u64);
        if bytes > LIMITS.batch_bytes {
            return Err(FileError::TooLarge { path: None, bytes, limit: LIMITS.batch_bytes }.into());
        }
        responses.push(response);
    }
    Ok(responses)
}

/// Returns a batch whose only write has the text that the user made of it. It replaces exactly what the user saw, or is
/// appended if that is all the user saw.
fn with_edited_text(
    operations: &[FileOperation],
    preview: &BatchPreview,
    text: &Arc<String>,
) -> Vec<FileOperation> {
    let before = preview.files.first().and_then(|file| file.before.as_ref());
    let (placement, condition) = match before {
        None => (WritePlacement::Truncate, WriteCondition::CreateOnly),
        Some(FileContent::Large { .. }) => (WritePlacement::Append, WriteCondition::Unconditional),
        Some(before) => (WritePlacement::Truncate, WriteCondition::IfMatch(before.etag())),
    };
    let edit = |operation: &FileOperation| match operation {
        FileOperation::Write(write) => FileOperation::Write(WriteOperation {
            data: FileData::Text(text.as_str().to_owned()),
            placement,
            condition: condition.clone(),
            ..write.clone()
        }),
        other => other.clone(),
    };
    operations.iter().map(edit).collect()
}
