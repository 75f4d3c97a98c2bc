//! Rules before the editor: what the agent asks permission for, and what it does.

use std::collections::HashMap;
use std::task::{Context, Waker};

use bowline_state::failure::Failure;
use bowline_state::relay::{Method, Read, is_lookalike_name};
use bowline_state::schema::v1::{
    CreateTerminalRequest, Error, RequestPermissionOutcome, RequestPermissionRequest,
    RequestPermissionResponse, SessionId, ToolCallId, WriteTextFileRequest,
};
use bowline_workspace::terminals::Asked;
use bytes::Bytes;
use serde::de::IgnoredAny;
use serde_json::json;
use serde_json::value::to_raw_value;

use super::{Beside, MAX_READ, MAX_SESSIONS, params, unjudged};
use crate::between::{BoxFuture, Decision, Deed, Order, Passing};
use crate::engine::{Act, Judged};

impl Beside {
    /// Judges a permission request. What rules leave open is for who stands behind, and then for the editor.
    pub(super) fn permission(&mut self, id: &SessionId, passing: &Passing<'_>) -> Option<Decision> {
        let session = self.sessions.get(id).filter(|_| self.options.rules)?;
        let request: RequestPermissionRequest = params(passing.line)?;
        let call = session.beside.watching().described(&request.tool_call);
        let its = session.beside.clone();
        let left_open = self.next_deed(passing);
        Some(Decision::Later(
            Order::Overtake,
            Box::pin(async move {
                // Without rules the editor's user is asked, which is what would be without us.
                let Some(engine) = its.engine().await else { return Deed::Pass };
                let id = call.id.clone();
                match engine.judges(call, request.options).await {
                    Ok(Judged::Ask) => {
                        let deed = left_open.await;
                        if matches!(deed, Deed::Answer(Ok(_))) {
                            engine.left_to_tool(id).await;
                        }
                        deed
                    }
                    Ok(Judged::Answered(response)) => answered(response),
                    Err(failure) => Deed::Answer(Err(failure.into())),
                }
            }),
        ))
    }

    /// Notes what the editor's user has answered.
    pub(super) fn permitted(&self, id: &SessionId, call: &ToolCallId, outcome: RequestPermissionOutcome) {
        let Some(session) = self.sessions.get(id).filter(|_| self.options.rules) else { return };
        let (its, call) = (session.beside.clone(), call.clone());
        tokio::spawn(async move {
            if let Some(engine) = its.engine().await {
                engine.permitted(call, outcome).await;
            }
        });
    }

    /// Withdraws what waits for an answer in a turn that is cancelled.
    pub(super) fn cancelled(&self, id: &SessionId) {
        let Some(session) = self.sessions.get(id) else { return };
        let its = session.beside.clone();
        let mut cancelling: BoxFuture<()> = Box::pin(async move {
            if let Some(engine) = its.engine().await {
                engine.cancels().await;
            }
        });
        // It holds before anything that the editor says next is looked at: its answers to questions of the turn are late.
        if cancelling.as_mut().poll(&mut Context::from_waker(Waker::noop())).is_pending() {
            tokio::spawn(cancelling);
        }
    }

    /// Decides what becomes of a request for files or terminals. Where rules are to be applied, none passes that they cannot
    /// be applied to.
    pub(super) fn asked(
        &mut self,
        method: Method,
        id: Option<&SessionId>,
        read: Option<&Read>,
        line: &Bytes,
    ) -> Option<Decision> {
        let is_judged = self.options.rules && method.is_judged();
        let decided = if is_judged && has_lookalikes(line) {
            return Some(refuse(unreadable()));
        } else if self.editor.serves(method) || is_judged && !self.options.host {
            id.and_then(|id| self.passes(method, id, read, line))
        } else if self.options.host {
            id.and_then(|id| self.serve(method, id, line))
        } else {
            None
        };
        decided.or_else(|| is_judged.then(|| self.refused(id)))
    }

    /// Refuses what cannot be judged.
    pub(super) fn refused(&self, id: Option<&SessionId>) -> Decision {
        let failure = match id.filter(|id| !self.sessions.contains_key(id)) {
            Some(_) if self.sessions.len() >= MAX_SESSIONS => {
                let why = format!(
                    "rules are to be applied, and the proxy has them for {MAX_SESSIONS} sessions only: close some"
                );
                Failure::Denied { why }
            }
            Some(id) => Failure::SessionNotFound { session_id: id.clone() },
            None => unreadable(),
        };
        refuse(failure)
    }

    /// Decides what becomes of a request that the editor will answer; none if that cannot be said.
    fn passes(
        &mut self,
        method: Method,
        id: &SessionId,
        read: Option<&Read>,
        line: &Bytes,
    ) -> Option<Decision> {
        let act = match method {
            Method::Read => {
                let Read { path, is_whole } = read?;
                let session = self.sessions.get_mut(id)?;
                if *is_whole && session.read.len() < MAX_READ && !session.read.contains(path) {
                    session.read.insert(path.clone());
                }
                // An editor that is Bowline itself does the same, and remembers what there was.
                if let Some(quirk) = self.missing_file.filter(|_| !self.editor.records) {
                    return self.read_by_quirk(quirk, id, read?, line);
                }
                if !self.options.rules {
                    return None;
                }
                Act::Read { path: path.clone() }
            }
            Method::Write => return self.write(id, params::<WriteTextFileRequest>(line)?, line),
            Method::CreateTerminal => Act::Run(command(params(line)?)),
            _ => return None,
        };
        let session = self.sessions.get(id).filter(|_| self.options.rules)?;
        let call = match &act {
            Act::Read { path } | Act::Write { path, .. } => session.beside.watching().call_for(Some(path)),
            Act::Run(_) => session.beside.watching().call_for(None),
        };
        let its = session.beside.clone();
        Some(Decision::Later(
            Order::Overtake,
            Box::pin(async move {
                let Some(engine) = its.engine().await else {
                    return Deed::Answer(Err(unjudged().into()));
                };
                match engine.lets(act, call).await {
                    Ok(()) => Deed::Pass,
                    Err(failure) => Deed::Answer(Err(failure.into())),
                }
            }),
        ))
    }
}

/// Returns the answer of the proxy itself to a permission request, which says so to whoever reads the wire.
pub(crate) fn answered(mut response: RequestPermissionResponse) -> Deed {
    let said = response.meta.get_or_insert_default().entry("bowline").or_insert_with(|| json!({}));
    if let Some(said) = said.as_object_mut() {
        said.insert("by".to_owned(), json!("proxy"));
    }
    Deed::Answer(to_raw_value(&response).map_err(|_| Error::internal_error()))
}

pub(super) fn refuse(failure: Failure) -> Decision {
    Decision::Now(Deed::Answer(Err(failure.into())))
}

fn unreadable() -> Failure {
    let reason = "rules are to be applied to this request, and it cannot be read".to_owned();
    Failure::InvalidParams { reason }
}

/// Says whether params have a name that some readers take for one that is judged.
fn has_lookalikes(line: &[u8]) -> bool {
    const NAMES: [&str; 7] = ["sessionId", "path", "content", "command", "args", "env", "cwd"];
    let named = params::<HashMap<String, IgnoredAny>>(line);
    named.is_some_and(|named| named.keys().any(|name| is_lookalike_name(name, &NAMES)))
}

fn command(request: CreateTerminalRequest) -> Asked {
    Asked {
        command: request.command,
        args: request.args,
        env: request.env.into_iter().map(|variable| (variable.name, variable.value)).collect(),
        cwd: request.cwd.map(|cwd| cwd.to_string_lossy().into_owned()),
        output_limit: request.output_byte_limit,
    }
}
