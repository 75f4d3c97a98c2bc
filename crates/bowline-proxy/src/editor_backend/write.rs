//! Writes of the added server's tools through the editor: journalled against the editor's text, and merged with what
//! was typed since the tool read the file.

use bowline_history::ledger::WriteVerdict;
use bowline_protocol::rpc_error::RpcError;
use bowline_protocol::schema::v1::WriteTextFileRequest;
use bowline_text::lines::LineWindow;
use bowline_text::merge::MergeConflict;
use bowline_text::unsaved_text;
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
    wants: String,
) -> Result<TextWriteOutcome, RpcError> {
    let before = read_current(editor, path).await?;
    let beside = editor.session.context().await?;
    let call = beside.and_then(|beside| beside.open_call_naming(path));
    let wish = PermissionPrompt::for_write(path, before.clone(), &wants);
    let write = PendingWrite { path: path.to_owned(), before, new_text: wants, call };
    if editor.session.options().enforce_policy {
        let act = RelayedOperation::Write { path: write.path.clone(), content: write.new_text.clone() };
        editor.session.authorize(act, write.call.clone()).await?;
        return run_to_completion(editor, write).await;
    }
    run_with_permission(editor, wish, run_to_completion(editor, write)).await
}

/// Runs a write to completion even if the caller is dropped. In that case the request to the editor is cancelled, but
/// the outcome is still recorded.
async fn run_to_completion(
    editor: &EditorBackend,
    write: PendingWrite,
) -> Result<TextWriteOutcome, RpcError> {
    let (waits, gone) = oneshot::channel::<()>();
    let given_up = async { gone.await.map_or_else(drop, drop) };
    let editor = editor.clone();
    let writing = tokio::spawn(async move { journal_and_write(&editor, write, given_up).await });
    let written = writing.await;
    drop(waits);
    written.unwrap_or_else(|ended| Err(RpcError::Internal { reason: ended.to_string() }))
}

async fn journal_and_write(
    editor: &EditorBackend,
    write: PendingWrite,
    given_up: impl Future<Output = ()>,
) -> Result<TextWriteOutcome, RpcError> {
    let PendingWrite { path, before, new_text: wants, call } = write;
    // More may have been typed while the user was being asked.
    let had = read_current(editor, &path).await?;
    let text = match &had {
        Some(had) => {
            let merged = unsaved_text::merge_unsaved(&before.unwrap_or_default(), had, &wants);
            merged.map_err(|conflict| conflict_failure(&path, conflict))?.into_text(wants.clone())
        }
        None => wants.clone(),
    };
    let engine = match editor.session.context().await? {
        Some(beside) => beside.journalling_engine().await,
        None => None,
    };
    let undone = match engine {
        Some(engine) => {
            let path = path.clone();
            let write = EditorWriteRequest {
                path,
                editor_text: had,
                new_text: text.clone(),
                agent_has_read: true,
                call,
            };
            Some(engine.journal_editor_write(write).await?.rollback)
        }
        None => None,
    };
    let verdict = (text != wants).then_some(WriteVerdict::Merged);
    let request = WriteTextFileRequest::new(editor.session_id().await?, path, text);
    let answered = editor.client.caller().call_until(&request, given_up).await;
    let written = ignore_unreadable(answered).map_err(to_failure);
    if let (Err(_), Some(undone)) = (&written, undone) {
        undone.await;
    }
    written.map(|()| TextWriteOutcome { verdict, ..TextWriteOutcome::default() })
}

/// Returns the editor's text of a file, or `None` if the file does not exist.
async fn read_current(editor: &EditorBackend, path: &str) -> Result<Option<String>, RpcError> {
    match editor.read_text(path, LineWindow::default()).await {
        Ok(text) => Ok(Some(text)),
        Err(RpcError::ResourceNotFound { .. }) => Ok(None),
        Err(failure) => Err(failure),
    }
}

fn conflict_failure(path: &str, conflict: MergeConflict) -> RpcError {
    let why = "the user has typed in the same lines meanwhile, and not saved: read the file again".to_owned();
    RpcError::Conflict { path: path.to_owned(), reason: why, hunks: conflict.hunks }
}
