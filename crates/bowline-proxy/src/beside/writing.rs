//! Writes of the agent through the editor: what the user has typed and not saved is known before, and not lost.

use std::time::Duration;

use bowline_state::failure::Failure;
use bowline_state::schema::v1::{
    CLIENT_METHOD_NAMES, Error, ReadTextFileRequest, ReadTextFileResponse, SessionId, WriteTextFileRequest,
};
use bowline_wire::body::Body;
use bowline_wire::{CallError, Caller};
use bytes::Bytes;
use serde_json::Value;
use serde_json::value::{RawValue, to_raw_value};
use tokio::time::timeout;

use super::{Beside, params, unjudged};
use crate::between::{Decision, Deed, Order};
use crate::engine::{Act, EditorWrites, Recorded};

/// How long the editor may take to say what it has, while the agent waits.
const HAS: Duration = Duration::from_secs(1);

impl Beside {
    /// Holds a write until rules have judged it and what the editor has is known.
    pub(super) fn write(
        &self,
        id: &SessionId,
        request: WriteTextFileRequest,
        line: &Bytes,
    ) -> Option<Decision> {
        let session = self.sessions.get(id)?;
        let path = request.path.to_str()?.to_owned();
        let call = session.beside.watching().call_for(Some(&path));
        let has_read = session.read.contains(&path) && !session.beside.missing().contains(&path);
        let (its, rules, reads) = (session.beside.clone(), self.options.rules, self.editor.read);
        let (caller, sent) = (self.line.caller().cloned(), params::<Box<RawValue>>(line)?);
        Some(Decision::Later(
            Order::Overtake,
            Box::pin(async move {
                let engine = its.engine().await;
                let engine = match engine {
                    Some(engine) => engine,
                    None if rules => return Deed::Answer(Err(unjudged().into())),
                    None => return Deed::Pass,
                };
                if rules {
                    let act = Act::Write { path: path.clone(), content: request.content.clone() };
                    if let Err(failure) = engine.lets(act, call.clone()).await {
                        return Deed::Answer(Err(failure.into()));
                    }
                }
                let Some(caller) = caller.filter(|_| reads && !its.records) else { return Deed::Pass };
                let Some(had) = has(&caller, &request, HAS).await else { return Deed::Pass };
                if let Some(conflict) = its.missing().conflict(&path, had.as_deref()) {
                    return Deed::Answer(Err(conflict.into()));
                }
                let wants = request.content;
                let write = EditorWrites { path, had, wants: wants.clone(), has_read, call };
                // What is recorded is done to its end, or recorded as not done, whoever waits for it.
                let writing = tokio::spawn(async move {
                    let recorded = engine.editor_writes(write).await?;
                    written(&caller, recorded, &wants, &sent).await
                });
                Deed::Answer(writing.await.unwrap_or_else(|_| Err(Error::internal_error())))
            }),
        ))
    }
}

/// Asks the editor what it has of a file: none if it does not say.
pub(super) async fn has(
    caller: &Caller,
    request: &WriteTextFileRequest,
    limit: Duration,
) -> Option<Option<String>> {
    let asked = ReadTextFileRequest::new(request.session_id.clone(), request.path.clone());
    let answer: Result<ReadTextFileResponse, CallError> = timeout(limit, caller.call(&asked)).await.ok()?;
    match answer {
        Ok(read) => Some(Some(read.content)),
        // Of what it does not want to say nothing can be known.
        Err(CallError::Refused(error)) => {
            let is_missing = matches!(Failure::from_error(&error), Failure::ResourceNotFound { .. });
            is_missing.then_some(None)
        }
        Err(_) => None,
    }
}

/// Has the editor write, and returns its answer.
pub(super) async fn written(
    caller: &Caller,
    recorded: Recorded,
    wants: &str,
    sent: &RawValue,
) -> Result<Box<RawValue>, Error> {
    let Recorded { text, undone } = recorded;
    let body = if text == wants { Some(Body::raw(sent)) } else { with(sent, text) };
    let Some(body) = body else {
        undone.await;
        return Err(Error::internal_error());
    };
    match caller.call_raw(CLIENT_METHOD_NAMES.fs_write_text_file, body).await {
        Ok(answer) => to_raw_value(&answer).map_err(|_| Error::internal_error()),
        Err(error) => {
            undone.await;
            Err(match error {
                CallError::Refused(error) => error,
                other => Failure::Internal { reason: format!("the editor did not write: {other}") }.into(),
            })
        }
    }
}

/// Returns the params with another text.
fn with(sent: &RawValue, text: String) -> Option<Body> {
    let mut params: Value = serde_json::from_str(sent.get()).ok()?;
    *params.get_mut("content")? = Value::String(text);
    let params = to_raw_value(&params).ok()?;
    Some(Body::raw(&params))
}
