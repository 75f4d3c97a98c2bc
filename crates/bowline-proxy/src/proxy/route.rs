//! Routing of lines: peeking at each, and carrying out the decisions of the relay and the interceptor.

use bowline_protocol::relay::{Method, ProxySide, RelayedMessage, Route};
use bowline_protocol::rpc_error::RpcError;
use bowline_protocol::schema::v1::{Error, PROTOCOL_LEVEL_METHOD_NAMES, RequestId};
use bowline_wire::message::peek::{self, PeekedMessage, peek, replace_id};
use bytes::Bytes;
use serde_json::{Value, json};

use super::{
    AGENT, LongLineTarget, OWN_END, ProxyCore, RoutedMessage, RoutedMessageKind, end_index, error_response,
    side_of,
};
use crate::interceptor::Disposition;

impl ProxyCore {
    /// Routes the next line of an end, or the beginning of a line that is too long to be inspected.
    pub(super) fn route_line(&mut self, from: usize, length: usize, is_whole: bool) {
        if from == OWN_END {
            return self.route_own_line(length, is_whole);
        }
        let line = self.ends[from].input.chunk_bytes(length);
        let canonical = match self.canonicalize(from, line, is_whole) {
            Ok(canonical) => canonical,
            Err(reason) => return self.reject_line(from, length, is_whole, reason),
        };
        let line = canonical.as_deref().unwrap_or(line);
        let complete_line = if is_whole { line } else { &[] };
        let mut kind = RoutedMessageKind::Notification;
        let (raw, id, route) = match peek(line) {
            PeekedMessage::Request { id: raw, method } => match peek::parse_id(raw) {
                Some(id) => {
                    kind = RoutedMessageKind::Request;
                    let route =
                        self.relay.route(side_of(from), RelayedMessage::Request(&id, &method), complete_line);
                    (raw, Some(id), route)
                }
                None => (raw, None, Route::Forward),
            },
            PeekedMessage::Notification { method } => (
                &[][..],
                None,
                self.relay.route(side_of(from), RelayedMessage::Notification(&method), complete_line),
            ),
            PeekedMessage::Response { id: raw, is_error } => match peek::parse_id(raw) {
                Some(id) => {
                    kind = RoutedMessageKind::Response;
                    let route =
                        self.relay.route(side_of(from), RelayedMessage::Answer(&id, is_error), complete_line);
                    (raw, Some(id), route)
                }
                None => (raw, None, Route::Forward),
            },
            PeekedMessage::Other => (&[][..], None, Route::Forward),
        };
        let to = end_index(side_of(from).other());
        let changed = match &route {
            Route::ForwardRenamed(new) => Some((to, replace_id(line, raw, &id_to_json(new)))),
            Route::ForwardCancel(new) => replace_cancelled_id(line, new).map(|line| (to, line)),
            Route::OwnAnswer(own_id) if is_whole => {
                Some((OWN_END, replace_id(line, raw, &own_id.to_string())))
            }
            Route::OwnAnswer(own_id) => {
                let reason = "the answer is longer than is read here".to_owned();
                Some((OWN_END, error_response(&json!(own_id), &Error::from(RpcError::Internal { reason }))))
            }
            _ => None,
        };
        if !is_whole {
            let is_forwarded = matches!(route, Route::Forward | Route::ForwardRenamed(_));
            self.ends[from].long_line =
                Some(if is_forwarded { LongLineTarget::Forward(to) } else { LongLineTarget::Discard });
        }
        match (route, changed) {
            (Route::Forward, _) if canonical.is_none() => self.ends[from].input.forward(length),
            (Route::Forward, _) => {
                let line = self.take_line(from, length, canonical);
                self.ends[to].output.push(line);
            }
            (Route::Inspect(fact, renamed), _) => {
                let line = self.take_line(from, length, canonical);
                self.intercept(RoutedMessage { from, kind, id, renamed, line }, &fact);
            }
            (Route::CancelOwn, _) => {
                let line = self.take_line(from, length, canonical);
                self.ends[OWN_END].output.push(line);
            }
            (Route::CancelHeld(id), _) => {
                self.flush_forwarded(from);
                drop(self.ends[from].input.take_chunk(length));
                self.cancel_held_request(from, &id);
            }
            (_, changed) => {
                self.flush_forwarded(from);
                drop(self.ends[from].input.take_chunk(length));
                if let Some((to, line)) = changed {
                    self.ends[to].output.push(line.into());
                    if to == OWN_END {
                        self.ends[to].output.end_line();
                    }
                }
            }
        }
    }

    /// Takes the next line of an end, or its canonical form.
    fn take_line(&mut self, from: usize, length: usize, canonical: Option<Bytes>) -> Bytes {
        self.flush_forwarded(from);
        let line = self.ends[from].input.take_chunk(length);
        canonical.unwrap_or(line)
    }

    /// Carries out the disposition of a held message.
    pub(super) fn release(&mut self, message: RoutedMessage, disposition: Disposition) {
        if let (Some(id), RoutedMessageKind::Request, Disposition::Pass | Disposition::Replace(_)) =
            (&message.id, message.kind, &disposition)
        {
            self.relay.mark_forwarded(side_of(message.from), id);
        }
        self.apply_disposition(message, disposition);
    }

    /// Carries out the disposition of a message.
    pub(super) fn apply_disposition(&mut self, message: RoutedMessage, disposition: Disposition) {
        let RoutedMessage { from, kind, id, renamed, line } = message;
        let to = end_index(side_of(from).other());
        match disposition {
            Disposition::HandleLocally if from == AGENT => {
                if let Some(id) = &id {
                    self.relay.mark_taken(side_of(from), id);
                }
                self.ends[OWN_END].output.push(line);
            }
            Disposition::Pass | Disposition::HandleLocally => match &renamed {
                None => self.ends[to].output.push(line),
                Some(new) => self.ends[to].output.push(with_id(&line, new).into()),
            },
            Disposition::Replace(lines) => {
                for line in lines {
                    let line = match &renamed {
                        Some(new)
                            if matches!(
                                peek(&line),
                                PeekedMessage::Request { .. } | PeekedMessage::Response { .. }
                            ) =>
                        {
                            with_id(&line, new)
                        }
                        _ => line,
                    };
                    self.ends[to].output.push_line(line);
                }
            }
            Disposition::AnswerAndSignal(answer, signal) => {
                let message = RoutedMessage { from, kind, id, renamed, line };
                self.apply_disposition(message, Disposition::Answer(answer));
                // The receiver may be gone.
                signal.send(()).ok();
            }
            Disposition::Answer(answer) => {
                let Some(id) = id.filter(|_| kind == RoutedMessageKind::Request) else { return };
                self.relay.mark_answered(side_of(from), &id);
                if from == AGENT {
                    self.flush_updates(AGENT);
                }
                let line = match answer {
                    Ok(result) => {
                        format!(r#"{{"jsonrpc":"2.0","id":{},"result":{}}}"#, id_to_json(&id), result.get())
                            .into_bytes()
                    }
                    Err(error) => error_response(&json!(id), &error),
                };
                self.ends[from].output.push_line(line);
            }
        }
    }

    /// Routes the proxy's own messages: `mcp/` methods and answers to the agent, all others to the editor.
    fn route_own_line(&mut self, length: usize, is_whole: bool) {
        let line = self.ends[OWN_END].input.chunk_bytes(length);
        let target_of =
            |method: &str| if method.starts_with("mcp/") { ProxySide::Agent } else { ProxySide::Editor };
        let (to, line) = match peek(line) {
            PeekedMessage::Request { id: raw, method } => {
                let Some(RequestId::Number(own_id)) = peek::parse_id(raw) else {
                    return self.skip_own_line(length, is_whole);
                };
                let (to, known_method) = (target_of(&method), Method::from_name(&method));
                if known_method == Some(Method::Permission) && self.is_agent_gone() {
                    // The user is asked no questions on behalf of an agent that is gone.
                    self.skip_own_line(length, is_whole);
                    return self.refuse_own_call(own_id);
                }
                (
                    to,
                    replace_id(
                        line,
                        raw,
                        &id_to_json(&self.relay.register_own_call(to, own_id, known_method)),
                    ),
                )
            }
            PeekedMessage::Notification { method }
                if method == PROTOCOL_LEVEL_METHOD_NAMES.cancel_request =>
            {
                let own_id = serde_json::from_slice(line)
                    .ok()
                    .and_then(|line: Value| line["params"]["requestId"].as_i64());
                let call = own_id.and_then(|own_id| {
                    let mut sides = [ProxySide::Editor, ProxySide::Agent].into_iter();
                    sides.find_map(|to| Some((to, self.relay.own_call_id(to, own_id)?)))
                });
                let cancelled = call.and_then(|(to, call)| Some((to, replace_cancelled_id(line, &call)?)));
                let Some(cancelled) = cancelled else { return self.skip_own_line(length, is_whole) };
                cancelled
            }
            PeekedMessage::Notification { method } => (target_of(&method), line.to_vec()),
            PeekedMessage::Response { id: raw, .. } => {
                if let Some(id) = peek::parse_id(raw) {
                    self.relay.mark_answered(ProxySide::Agent, &id);
                }
                (ProxySide::Agent, line.to_vec())
            }
            PeekedMessage::Other => return self.skip_own_line(length, is_whole),
        };
        let to = end_index(to);
        drop(self.ends[OWN_END].input.take_chunk(length));
        if is_whole {
            self.ends[to].output.push_line(line);
        } else {
            self.ends[OWN_END].long_line = Some(LongLineTarget::Forward(to));
            self.ends[to].output.push(line.into());
        }
    }

    fn skip_own_line(&mut self, length: usize, is_whole: bool) {
        drop(self.ends[OWN_END].input.take_chunk(length));
        if !is_whole {
            self.ends[OWN_END].long_line = Some(LongLineTarget::Discard);
        }
    }
}

/// Returns an id as JSON.
fn id_to_json(id: &RequestId) -> String {
    json!(id).to_string()
}

/// Returns a request or an answer with its id replaced.
fn with_id(line: &[u8], id: &RequestId) -> Vec<u8> {
    match peek(line) {
        PeekedMessage::Request { id: raw, .. } | PeekedMessage::Response { id: raw, .. } => {
            replace_id(line, raw, &id_to_json(id))
        }
        PeekedMessage::Notification { .. } | PeekedMessage::Other => line.to_vec(),
    }
}

/// Returns a cancellation with the id of the cancelled request replaced.
fn replace_cancelled_id(line: &[u8], id: &RequestId) -> Option<Vec<u8>> {
    let mut message: Value = serde_json::from_slice(line).ok()?;
    *message.get_mut("params")?.get_mut("requestId")? = json!(id);
    let mut line = message.to_string().into_bytes();
    line.push(b'\n');
    Some(line)
}
