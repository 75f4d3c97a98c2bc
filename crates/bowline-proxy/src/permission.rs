//! Permission prompts to the editor's user before a write or a command, and the display of its outcome.
//!
//! Each prompt is a tool call of its own, with the diff or the command, so that the editor displays it like the agent's
//! own calls.

use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};

use bowline_policy::paths::{Access, LexicalPath, find_protection};
use bowline_protocol::file_extension::BatchOperation;
use bowline_protocol::permission::{rejection_reason, unanswered_reason};
use bowline_protocol::rpc_error::RpcError;
use bowline_protocol::schema::v1::{
    Diff, PermissionOption, PermissionOptionKind, RequestPermissionOutcome, RequestPermissionRequest,
    SessionId, ToolCall, ToolCallId, ToolCallLocation, ToolCallStatus, ToolCallUpdate, ToolCallUpdateFields,
    ToolKind,
};
use bowline_text::display;
use bowline_workspace::terminals::CommandRequest;
use serde_json::json;

use crate::editor_backend::{EditorBackend, SessionApprovals, to_failure};

const ALLOW_ONCE: &str = "allow";
const ALLOW_SESSION: &str = "allow-session";
const REJECT: &str = "reject";

/// The longest title, in bytes.
const MAX_TITLE: usize = 200;

/// An operation that needs the user's permission.
pub(crate) struct PermissionPrompt {
    // The call that is shown. It has no id yet.
    call: ToolCall,
    // Whether it needs a prompt even if the session's approvals cover it: a protected file.
    always_asks: bool,
}

impl PermissionPrompt {
    /// Returns the prompt for writing a file.
    pub(crate) fn for_write(path: &str, before: Option<String>, after: &str) -> Self {
        let diff = Diff::new(path, after).old_text(before);
        Self {
            call: ToolCall::new("", display::escape_line(&format!("Write {path}"), MAX_TITLE))
                .kind(ToolKind::Edit)
                .content(vec![diff.into()])
                .locations(vec![ToolCallLocation::new(path)])
                .raw_input(json!({ "path": path })),
            always_asks: LexicalPath::parse(path)
                .is_ok_and(|path| find_protection(&path, Access::Write).is_some()),
        }
    }

    /// Returns the prompt for several changes of files at once, with the texts that are known.
    pub(crate) fn for_batch(operations: &[BatchOperation], diffs: Vec<Diff>) -> Self {
        let (mut paths, mut is_lossy) = (Vec::new(), false);
        for operation in operations {
            match operation {
                BatchOperation::Read(read) => paths.push(read.path.as_path()),
                BatchOperation::Write(write) => paths.push(&write.path),
                BatchOperation::Mkdir(mkdir) => paths.push(&mkdir.path),
                BatchOperation::Copy(copy) => paths.extend([copy.from.as_path(), &copy.to]),
                BatchOperation::Move(transfer) => {
                    is_lossy = true;
                    paths.extend([transfer.from.as_path(), &transfer.to]);
                }
                BatchOperation::Remove(removal) => {
                    is_lossy = true;
                    paths.push(&removal.path);
                }
            }
        }
        let title = match operations {
            [BatchOperation::Write(write)] => format!("Write {}", write.path.display()),
            [BatchOperation::Move(transfer)] => {
                format!("Move {} to {}", transfer.from.display(), transfer.to.display())
            }
            [BatchOperation::Remove(removal)] => format!("Delete {}", removal.path.display()),
            operations => format!("Change {} files", operations.len()),
        };
        let is_protected = |path: &&Path| {
            LexicalPath::parse(path).is_ok_and(|path| find_protection(&path, Access::Write).is_some())
        };
        Self {
            call: ToolCall::new("", display::escape_line(&title, MAX_TITLE))
                .kind(ToolKind::Edit)
                .content(diffs.into_iter().map(Into::into).collect())
                .locations(paths.iter().map(|path| ToolCallLocation::new(*path)).collect())
                .raw_input(json!({ "paths": paths })),
            // An approval of writes does not cover files that go away.
            always_asks: is_lossy || paths.iter().any(is_protected),
        }
    }

    /// Returns the prompt for running a command.
    pub(crate) fn for_command(command: &CommandRequest) -> Self {
        let words: Vec<&str> =
            std::iter::once(&command.command).chain(&command.args).map(String::as_str).collect();
        let raw_input = json!({ "command": command.command, "args": command.args, "cwd": command.cwd, "env": command.env });
        let title = display::escape_line(&format!("Run {}", words.join(" ")), MAX_TITLE);
        Self {
            call: ToolCall::new("", title).kind(ToolKind::Execute).raw_input(raw_input),
            always_asks: false,
        }
    }

    fn is_preapproved(&self, allowed: &SessionApprovals) -> bool {
        !self.always_asks && self.approval_flag(allowed).load(Ordering::Relaxed)
    }

    fn approval_flag<'a>(&self, allowed: &'a SessionApprovals) -> &'a AtomicBool {
        if self.call.kind == ToolKind::Execute { &allowed.allow_commands } else { &allowed.allow_writes }
    }
}

/// Asks the user, runs the operation if the answer is yes, and displays its outcome.
pub(crate) async fn run_with_permission<T>(
    editor: &EditorBackend,
    mut prompt: PermissionPrompt,
    operation: impl Future<Output = Result<T, RpcError>>,
) -> Result<T, RpcError> {
    let (session, cancellations) = (editor.session_id().await?, editor.approvals.cancellations());
    let number = editor.approvals.prompt_count.fetch_add(1, Ordering::Relaxed) + 1;
    let id = ToolCallId::new(format!("{}-call-{number}", editor.call_id_prefix));
    prompt.call.tool_call_id = id.clone();
    editor.client.update(session.clone(), prompt.call.clone()).await.map_err(to_failure)?;
    // The guard closes the call however this function ends.
    let mut open = OpenToolCall {
        editor: editor.clone(),
        session: session.clone(),
        id: id.clone(),
        status: Some(ToolCallStatus::Failed),
    };
    let result = async {
        if !prompt.is_preapproved(&editor.approvals) {
            request_permission(editor, &session, &prompt, cancellations).await?;
        }
        operation.await
    }
    .await;
    let status = if result.is_ok() { ToolCallStatus::Completed } else { ToolCallStatus::Failed };
    open.status = None;
    send_status(editor, &session, &id, status).await;
    result
}

async fn request_permission(
    editor: &EditorBackend,
    session: &SessionId,
    prompt: &PermissionPrompt,
    cancellations: u64,
) -> Result<(), RpcError> {
    let mut update = ToolCallUpdate::from(prompt.call.clone());
    // The call was shown with its status.
    update.fields.status = None;
    let options = vec![
        PermissionOption::new(ALLOW_ONCE, "Allow once", PermissionOptionKind::AllowOnce),
        PermissionOption::new(ALLOW_SESSION, "Allow for this session", PermissionOptionKind::AllowAlways),
        PermissionOption::new(REJECT, "Reject", PermissionOptionKind::RejectOnce),
    ];
    let request = RequestPermissionRequest::new(session.clone(), update, options);
    let answer = tokio::select! {
        biased;
        // A yes to a cancelled turn is too late, and the editor can withdraw the question.
        () = editor.approvals.wait_for_cancellation(cancellations) => return Err(RpcError::Cancelled),
        answer = editor.client.request_permission(request) => answer.map_err(to_failure)?,
    };
    if let Some(reason) = unanswered_reason(&answer) {
        return Err(RpcError::Denied { reason });
    }
    let reason = rejection_reason(&answer);
    match answer.outcome {
        RequestPermissionOutcome::Selected(selected) => match &*selected.option_id.0 {
            ALLOW_ONCE => Ok(()),
            ALLOW_SESSION => {
                prompt.approval_flag(&editor.approvals).store(true, Ordering::Relaxed);
                Ok(())
            }
            // Anything other than a yes is a no.
            _ => {
                let reason = reason.map_or_else(String::new, |reason| format!(": {reason}"));
                Err(RpcError::Denied { reason: format!("the user said no{reason}") })
            }
        },
        RequestPermissionOutcome::Cancelled => Err(RpcError::Cancelled),
        // An outcome of a later protocol version does not count as a yes.
        _ => Err(RpcError::Denied { reason: "the editor gave no answer that is known here".to_owned() }),
    }
}

/// Displays the status of a call. If the editor is gone, the update is discarded.
async fn send_status(editor: &EditorBackend, session: &SessionId, id: &ToolCallId, status: ToolCallStatus) {
    let update = ToolCallUpdate::new(id.clone(), ToolCallUpdateFields::new().status(status));
    editor.client.update(session.clone(), update).await.unwrap_or_default();
}

/// A tool call that is displayed as open. If it is dropped, it is displayed as failed.
struct OpenToolCall {
    editor: EditorBackend,
    session: SessionId,
    id: ToolCallId,
    status: Option<ToolCallStatus>,
}

impl Drop for OpenToolCall {
    fn drop(&mut self) {
        let Some(status) = self.status else { return };
        let (editor, session, id) = (self.editor.clone(), self.session.clone(), self.id.clone());
        if let Ok(runtime) = tokio::runtime::Handle::try_current() {
            runtime.spawn(async move { send_status(&editor, &session, &id, status).await });
        }
    }
}

#[cfg(test)]
mod tests {
    use bowline_protocol::file_extension::{RemoveParams, TransferParams, WriteParams};

    use super::*;

    #[test]
    fn a_batch_that_removes_files_or_writes_protected_ones_always_asks() {
        let write = |path: &str| BatchOperation::from(WriteParams::new(path, "a".to_owned()));
        let cases = [
            (vec![write("/w/a.txt"), write("/w/b.txt")], "Change 2 files", false),
            (vec![write("/w/a.txt")], "Write /w/a.txt", false),
            (vec![write("/w/a.txt"), write("/w/.git/config")], "Change 2 files", true),
            (vec![RemoveParams::new("/w/a.txt").into()], "Delete /w/a.txt", true),
            (
                vec![BatchOperation::Move(TransferParams::new("/w/a.txt", "/w/b.txt"))],
                "Move /w/a.txt to /w/b.txt",
                true,
            ),
        ];
        for (operations, title, asks) in cases {
            let prompt = PermissionPrompt::for_batch(&operations, Vec::new());
            let allowed = SessionApprovals::default();
            prompt.approval_flag(&allowed).store(true, Ordering::Relaxed);
            assert_eq!((prompt.call.title.as_str(), !prompt.is_preapproved(&allowed)), (title, asks));
        }
    }

    #[test]
    fn what_is_allowed_for_a_session_is_of_one_kind_and_no_protected_file() {
        let command = CommandRequest { command: "make".to_owned(), ..CommandRequest::default() };
        let (write, run) =
            (PermissionPrompt::for_write("/w/a.txt", None, "a"), PermissionPrompt::for_command(&command));
        let protected = PermissionPrompt::for_write("/w/.git/hooks/pre-commit", None, "a");
        let allowed = SessionApprovals::default();
        let remembered = |allowed: &SessionApprovals| {
            [&write, &protected, &run].map(|prompt| prompt.is_preapproved(allowed))
        };
        assert_eq!(remembered(&allowed), [false, false, false]);
        write.approval_flag(&allowed).store(true, Ordering::Relaxed);
        assert_eq!(remembered(&allowed), [true, false, false]);
        let allowed = SessionApprovals::default();
        run.approval_flag(&allowed).store(true, Ordering::Relaxed);
        assert_eq!(remembered(&allowed), [false, false, true]);
    }
}
