//! The agent's writes through the editor, which preserve text that the user typed and did not save.
//!
//! The editor is asked for its text (1 s), the change is journalled against it, and then the editor writes. If the
//! agent has not read the file through the editor, its text is merged with what was typed. An editor that is Bowline
//! itself merges and journals on its own, so its writes pass.

use std::time::Duration;

use bowline_protocol::rpc_error::RpcError;
use bowline_protocol::schema::v1::{
    CLIENT_METHOD_NAMES, Error, ReadTextFileRequest, ReadTextFileResponse, SessionId, WriteTextFileRequest,
};
use bowline_wire::body::JsonBody;
use bowline_wire::{CallError, Caller};
use bytes::Bytes;
use serde_json::Value;
use serde_json::value::{RawValue, to_raw_value};
use tokio::time::timeout;

use super::{EngineInterceptor, parse_params, policy_unavailable};
use crate::engine::{EditorWriteRequest, JournalledWrite, RelayedOperation};
use crate::interceptor::{Disposition, InterceptDecision, MessageOrder};

/// The editor's deadline for returning its text while the agent waits.
const READ_TIMEOUT: Duration = Duration::from_secs(1);

impl EngineInterceptor {
    /// Holds a write until the rules have judged it and the editor's text is known.
    pub(super) fn intercept_write(
        &self,
        id: &SessionId,
        request: WriteTextFileRequest,
        line: &Bytes,
    ) -> Option<InterceptDecision> {
        let session = self.sessions.get(id)?;
        let path = request.path.to_str()?.to_owned();
        let call = session.context.attribution().call_for(Some(&path));
        let has_read = session.read_paths.contains(&path) && !session.context.missing_files().contains(&path);
        let (its, rules, reads) =
            (session.context.clone(), self.options.enforce_policy, self.editor_capabilities.can_read);
        let (caller, sent) = (self.caller.caller().cloned(), parse_params::<Box<RawValue>>(line)?);
        Some(InterceptDecision::Later(
            MessageOrder::Overtake,
            Box::pin(async move {
                let engine = its.engine().await;
                let engine = match engine {
                    Some(engine) => engine,
                    None if rules => return Disposition::Answer(Err(policy_unavailable().into())),
                    None => return Disposition::Pass,
                };
                if rules {
                    let act =
                        RelayedOperation::Write { path: path.clone(), content: request.content.clone() };
                    if let Err(failure) = engine.authorize(act, call.clone()).await {
                        return Disposition::Answer(Err(failure.into()));
                    }
                }
                let Some(caller) = caller.filter(|_| reads && !its.editor_keeps_journal) else {
                    return Disposition::Pass;
                };
                let Some(had) = read_from_editor(&caller, &request, READ_TIMEOUT).await else {
                    return Disposition::Pass;
                };
                if let Some(conflict) = its.missing_files().check_conflict(&path, had.as_deref()) {
                    return Disposition::Answer(Err(conflict.into()));
                }
                let wants = request.content;
                let write = EditorWriteRequest {
                    path,
                    editor_text: had,
                    new_text: wants.clone(),
                    agent_has_read: has_read,
                    call,
                };
                // A journalled write is completed or rolled back even if the request is cancelled.
                let writing = tokio::spawn(async move {
                    let recorded = engine.journal_editor_write(write).await?;
                    write_through_editor(&caller, recorded, &wants, &sent).await
                });
                Disposition::Answer(writing.await.unwrap_or_else(|_| Err(Error::internal_error())))
            }),
        ))
    }
}

/// Asks the editor for its text of a file. Returns `None` if the editor does not answer, `Some(None)` if the file is
/// missing.
pub(super) async fn read_from_editor(
    caller: &Caller,
    request: &WriteTextFileRequest,
    limit: Duration,
) -> Option<Option<String>> {
    let asked = ReadTextFileRequest::new(request.session_id.clone(), request.path.clone());
    let answer: Result<ReadTextFileResponse, CallError> = timeout(limit, caller.call(&asked)).await.ok()?;
    match answer {
        Ok(read) => Some(Some(read.content)),
        // Any other error leaves the editor's text unknown.
        Err(CallError::ErrorResponse(error)) => {
            let is_missing = matches!(RpcError::from_error(&error), RpcError::ResourceNotFound { .. });
            is_missing.then_some(None)
        }
        Err(_) => None,
    }
}

/// Writes through the editor, and returns its answer.
pub(super) async fn write_through_editor(
    caller: &Caller,
    recorded: JournalledWrite,
    wants: &str,
    sent: &RawValue,
) -> Result<Box<RawValue>, Error> {
    let JournalledWrite { text, rollback: undone } = recorded;
    let body = if text == wants { Some(JsonBody::from_raw(sent)) } else { replace_content(sent, text) };
    let Some(body) = body else {
        undone.await;
        return Err(Error::internal_error());
    };
    match caller.call_raw(CLIENT_METHOD_NAMES.fs_write_text_file, body).await {
        Ok(answer) => to_raw_value(&answer).map_err(|_| Error::internal_error()),
        Err(error) => {
            undone.await;
            Err(match error {
                CallError::ErrorResponse(error) => error,
                other => RpcError::Internal { reason: format!("the editor did not write: {other}") }.into(),
            })
        }
    }
}

/// Returns the params with the text replaced.
fn replace_content(sent: &RawValue, text: String) -> Option<JsonBody> {
    let mut params: Value = serde_json::from_str(sent.get()).ok()?;
    *params.get_mut("content")? = Value::String(text);
    let params = to_raw_value(&params).ok()?;
    Some(JsonBody::from_raw(&params))
}
