//! Writes of the added server's tools through the editor: journalled against the editor's text, and merged with what
//! was typed since the tool read the file.

use bowline_history::ledger::WriteVerdict;
use bowline_protocol::rpc_error::RpcError;
use bowline_protocol::schema::v1::WriteTextFileRequest;
use bowline_text::lines::LineWindow;
use bowline_text::merge::MergeConflict;
use bowline_text::merge::merge;
use bowline_workspace::files::TextWriteOutcome;
use tokio::sync::oneshot;

use super::{EditorBackend, ignore_unreadable, to_failure};
use crate::engine::{EditorWriteRequest, RelayedOperation};
use crate::permission::{PermissionPrompt, run_with_permission};

/// A write that a tool has decided on.
struct PendingWrite {
    path: String,
    /// The editor's text at the time of the decision.
    before: Option<String>,
    new_text: String,
    /// The agent's tool call that it belongs to.
    call: Option<String>,
}

/// Writes through the editor, if the rules or its user agree.
pub(super) async fn write_file(
    editor: &EditorBackend,
    path: &str,
    new_text: String,
) -> Result<TextWriteOutcome, RpcError> {
    let before = read_current(editor, path).await?;
    let context = editor.session.context().await?;
    let call = context.and_then(|context| context.open_call_naming(path));
    let prompt = PermissionPrompt::for_write(path, before.clone(), &new_text);
    let write = PendingWrite { path: path.to_owned(), before, new_text, call };
    if editor.session.options().enforce_policy {
        let operation = RelayedOperation::Write { path: write.path.clone(), content: write.new_text.clone() };
        editor.session.authorize(operation, write.call.clone()).await?;
        return run_to_completion(editor, write).await;
    }
    run_with_permission(editor, prompt, run_to_completion(editor, write)).await
}

/// Runs a write to completion even if the caller is dropped. In that case the request to the editor is cancelled, but
/// the outcome is still recorded.
async fn run_to_completion(
    editor: &EditorBackend,
    write: PendingWrite,
) -> Result<TextWriteOutcome, RpcError> {
    let (guard, guard_dropped) = oneshot::channel::<()>();
    let abandoned = async { guard_dropped.await.map_or_else(drop, drop) };
    let editor = editor.clone();
    let task = tokio::spawn(async move { journal_and_write(&editor, write, abandoned).await });
    let written = task.await;
    drop(guard);
    written.unwrap_or_else(|error| Err(RpcError::Internal { reason: error.to_string() }))
}

async fn journal_and_write(
    editor: &EditorBackend,
    write: PendingWrite,
    abandoned: impl Future<Output = ()>,
) -> Result<TextWriteOutcome, RpcError> {
    let PendingWrite { path, before, new_text, call } = write;
    // More may have been typed while the user was being asked.
    let current = read_current(editor, &path).await?;
    let text = match &current {
        Some(current) => {
            let merged = merge(&before.unwrap_or_default(), current, &new_text);
            merged.map_err(|conflict| conflict_failure(&path, conflict))?
        }
        None => new_text.clone(),
    };
    let engine = match editor.session.context().await? {
        Some(context) => context.journalling_engine().await,
        None => None,
    };
    let rollback = match engine {
        Some(engine) => {
            let path = path.clone();
            let write = EditorWriteRequest {
                path,
                editor_text: current,
                new_text: text.clone(),
                agent_has_read: true,
                call,
            };
            Some(engine.journal_editor_write(write).await?.rollback)
        }
        None => None,
    };
    let verdict = (text != new_text).then_some(WriteVerdict::Merged);
    let request = WriteTextFileRequest::new(editor.session_id().await?, path, text);
    let result = editor.client.caller().call_until(&request, abandoned).await;
    let written = ignore_unreadable(result).map_err(to_failure);
    if let (Err(_), Some(rollback)) = (&written, rollback) {
        rollback.await;
    }
    written.map(|()| TextWriteOutcome { verdict, ..TextWriteOutcome::default() })
}

/// Returns the editor's text of a file, or `None` if the file does not exist.
pub(super) async fn read_current(editor: &EditorBackend, path: &str) -> Result<Option<String>, RpcError> {
    match editor.read_text(path, LineWindow::default()).await {
        Ok(text) => Ok(Some(text)),
        Err(RpcError::ResourceNotFound { .. }) => Ok(None),
        Err(failure) => Err(failure),
    }
}

fn conflict_failure(path: &str, conflict: MergeConflict) -> RpcError {
    let reason =
        "the user has typed in the same lines meanwhile, and not saved: read the file again".to_owned();
    RpcError::Conflict { path: path.to_owned(), reason, hunks: conflict.hunks }
}
