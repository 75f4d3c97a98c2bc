//! Serving what the editor cannot, under the engine.

use bowline_state::failure::Failure;
use bowline_state::quirks::{PeerRole, Quirk, Workaround};
use bowline_state::relay::{Method, Side};
use bowline_state::schema::v1::{
    CLIENT_METHOD_NAMES, ClientCapabilities, Error, InitializeRequest, InitializeResponse, SessionId,
};
use bowline_wire::peek::{Peek, peek};
use bytes::Bytes;
use serde_json::value::RawValue;
use serde_json::{Value, json};

use super::missing_file::{empty_text, is_missing};
use super::{Beside, Editor, MAX_SERVED, params, result};
use crate::between::{Decision, Deed, Order, Passing};

impl Beside {
    /// Notes what the editor serves. With a host here, the agent is told that all of it is served.
    pub(super) fn initialize(
        &mut self,
        capabilities: &ClientCapabilities,
        passing: &Passing<'_>,
    ) -> Decision {
        let Passing { from, fact, id, line } = *passing;
        if from != Side::Editor {
            return self.next.look(Passing { from, fact, id, line });
        }
        let hello: Option<InitializeRequest> = params(line);
        let name = hello.and_then(|hello| hello.client_info).map(|info| info.name);
        self.editor = Editor::of(capabilities, name.as_deref());
        let Editor { read, write, terminal, .. } = self.editor;
        let told = if self.options.host && !(read && write && terminal) { offering(line) } else { None };
        let Some(told) = told else { return self.next.look(Passing { from, fact, id, line }) };
        let told = Bytes::from(told);
        match self.next.look(Passing { from, fact, id, line: &told }) {
            Decision::Now(Deed::Pass) => Decision::Now(Deed::Instead(vec![told.to_vec()])),
            decided => decided,
        }
    }

    /// Notes who the agent is.
    pub(super) fn met(&mut self, line: &[u8]) {
        let agent = result::<InitializeResponse>(line).and_then(|answer| answer.agent_info);
        let (mode, workaround) = (self.options.quirks, Workaround::EmptyTextForMissingFile);
        self.missing_file = Quirk::find(mode, PeerRole::Agent, agent.as_ref(), workaround);
    }

    /// Answers what the editor cannot.
    pub(super) fn serve(&self, method: Method, id: &SessionId, line: &Bytes) -> Option<Decision> {
        let Peek::Request { method: name, .. } = peek(line) else { return None };
        let (name, params) = (name.into_owned(), params::<Box<RawValue>>(line)?);
        let Some(session) = self.sessions.get(id) else {
            let unknown = Failure::SessionNotFound { session_id: id.clone() };
            return Some(Decision::Now(Deed::Answer(Err(unknown.into()))));
        };
        let call = match method {
            Method::CreateTerminal => session.beside.watching().call_for(None),
            Method::Read | Method::Write => {
                let path = serde_json::from_str::<Value>(params.get()).ok()?;
                session.beside.watching().call_for(path["path"].as_str())
            }
            _ => None,
        };
        let (its, notes) = (session.beside.clone(), self.engine.clone());
        let quirk = self.missing_file.filter(|_| method == Method::Read);
        let place = self.served.clone().try_acquire_owned().ok();
        let is_quick = method == Method::Terminal && name != CLIENT_METHOD_NAMES.terminal_wait_for_exit;
        if place.is_none() && !is_quick {
            let busy = Failure::Busy { limit: MAX_SERVED as u64 };
            return Some(Decision::Now(Deed::Answer(Err(busy.into()))));
        }
        Some(Decision::Later(
            Order::Overtake,
            Box::pin(async move {
                let _place = place;
                match its.engine().await {
                    Some(engine) => match (engine.serves(name, params, call).await, quirk) {
                        // The engine remembers that there was no file.
                        (Err(error), Some(quirk)) if is_missing(&error) => {
                            notes.notes(&quirk.log_line(&error.message));
                            Deed::Answer(empty_text())
                        }
                        (answer, _) => Deed::Answer(answer),
                    },
                    None => Deed::Answer(Err(Error::from(unserved()))),
                }
            }),
        ))
    }
}

/// Returns why something cannot be served.
pub(crate) fn unserved() -> Failure {
    Failure::Internal { reason: "the workspace cannot be served: the proxy's stderr says why".to_owned() }
}

/// Returns what the editor says first, with files and terminals among what it serves.
fn offering(line: &[u8]) -> Option<Vec<u8>> {
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
