//! Serving the methods that the editor lacks, with the engine (`--host`).
//!
//! `initialize` then advertises files and terminals to the agent, and the engine's session answers the requests that
//! the editor cannot.

use bowline_protocol::quirks::{PeerRole, Quirk, Workaround};
use bowline_protocol::relay::{Method, ProxySide};
use bowline_protocol::rpc_error::RpcError;
use bowline_protocol::schema::v1::{
    CLIENT_METHOD_NAMES, ClientCapabilities, Error, InitializeRequest, InitializeResponse, SessionId,
};
use bowline_wire::peek::{PeekedMessage, peek};
use bytes::Bytes;
use serde_json::value::RawValue;
use serde_json::{Value, json};

use super::missing_file::{empty_read_response, is_missing_file_error};
use super::{EditorCapabilities, EngineInterceptor, MAX_SERVED_REQUESTS, parse_params, parse_result};
use crate::interceptor::{Disposition, InterceptDecision, InterceptedMessage, MessageOrder};

impl EngineInterceptor {
    /// Records the editor's capabilities. If a host serves here, the agent sees all of them as available.
    pub(super) fn handle_initialize(
        &mut self,
        capabilities: &ClientCapabilities,
        passing: &InterceptedMessage<'_>,
    ) -> InterceptDecision {
        let InterceptedMessage { from, fact, id, line } = *passing;
        if from != ProxySide::Editor {
            return self.next.intercept(InterceptedMessage { from, fact, id, line });
        }
        let hello: Option<InitializeRequest> = parse_params(line);
        let name = hello.and_then(|hello| hello.client_info).map(|info| info.name);
        self.editor_capabilities = EditorCapabilities::new(capabilities, name.as_deref());
        let EditorCapabilities { can_read: read, can_write: write, has_terminals: terminal, .. } =
            self.editor_capabilities;
        let told = if self.options.serve_as_host && !(read && write && terminal) {
            advertise_all(line)
        } else {
            None
        };
        let Some(told) = told else {
            return self.next.intercept(InterceptedMessage { from, fact, id, line });
        };
        let told = Bytes::from(told);
        match self.next.intercept(InterceptedMessage { from, fact, id, line: &told }) {
            InterceptDecision::Now(Disposition::Pass) => {
                InterceptDecision::Now(Disposition::Replace(vec![told.to_vec()]))
            }
            decided => decided,
        }
    }

    /// Records the agent's identity.
    pub(super) fn record_agent_info(&mut self, line: &[u8]) {
        let agent = parse_result::<InitializeResponse>(line).and_then(|answer| answer.agent_info);
        let (mode, workaround) = (self.options.quirks, Workaround::EmptyTextForMissingFile);
        self.missing_file_quirk = Quirk::find(mode, PeerRole::Agent, agent.as_ref(), workaround);
    }

    /// Serves a request that the editor cannot.
    pub(super) fn serve_request(
        &self,
        method: Method,
        id: &SessionId,
        line: &Bytes,
    ) -> Option<InterceptDecision> {
        let PeekedMessage::Request { method: name, .. } = peek(line) else { return None };
        let (name, params) = (name.into_owned(), parse_params::<Box<RawValue>>(line)?);
        let Some(session) = self.sessions.get(id) else {
            let unknown = RpcError::SessionNotFound { session_id: id.clone() };
            return Some(InterceptDecision::Now(Disposition::Answer(Err(unknown.into()))));
        };
        let call = match method {
            Method::CreateTerminal => session.context.attribution().call_for(None),
            Method::Read | Method::Write => {
                let path = serde_json::from_str::<Value>(params.get()).ok()?;
                session.context.attribution().call_for(path["path"].as_str())
            }
            _ => None,
        };
        let (its, notes) = (session.context.clone(), self.engine.clone());
        let quirk = self.missing_file_quirk.filter(|_| method == Method::Read);
        let place = self.serve_permits.clone().try_acquire_owned().ok();
        let is_quick = method == Method::Terminal && name != CLIENT_METHOD_NAMES.terminal_wait_for_exit;
        if place.is_none() && !is_quick {
            let busy = RpcError::Busy { limit: MAX_SERVED_REQUESTS as u64 };
            return Some(InterceptDecision::Now(Disposition::Answer(Err(busy.into()))));
        }
        Some(InterceptDecision::Later(
            MessageOrder::Overtake,
            Box::pin(async move {
                let _place = place;
                match its.engine().await {
                    Some(engine) => match (engine.serve(name, params, call).await, quirk) {
                        // The engine keeps track of the missing file.
                        (Err(error), Some(quirk)) if is_missing_file_error(&error) => {
                            notes.log(&quirk.log_line(&error.message));
                            Disposition::Answer(empty_read_response())
                        }
                        (answer, _) => Disposition::Answer(answer),
                    },
                    None => Disposition::Answer(Err(Error::from(workspace_unavailable()))),
                }
            }),
        ))
    }
}

/// Returns the error for a request that cannot be served.
pub(crate) fn workspace_unavailable() -> RpcError {
    RpcError::Internal { reason: "the workspace cannot be served: the proxy's stderr says why".to_owned() }
}

/// Returns the editor's `initialize` request with the capabilities for files and terminals added.
fn advertise_all(line: &[u8]) -> Option<Vec<u8>> {
    let mut message: Value = serde_json::from_slice(line).ok()?;
    let params = message.get_mut("params")?.as_object_mut()?;
    let capabilities = params.entry("clientCapabilities").or_insert_with(|| json!({}));
    if !capabilities.is_object() {
        *capabilities = json!({});
    }
    let capabilities = capabilities.as_object_mut()?;
    let fs = capabilities.entry("fs").or_insert_with(|| json!({}));
    if !fs.is_object() {
        *fs = json!({});
    }
    let fs = fs.as_object_mut()?;
    fs.insert("readTextFile".to_owned(), json!(true));
    fs.insert("writeTextFile".to_owned(), json!(true));
    capabilities.insert("terminal".to_owned(), json!(true));
    Some(message.to_string().into_bytes())
}
