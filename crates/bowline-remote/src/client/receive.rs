//! Messages of the server: which of them reach the caller, and under which id.

use std::hash::{BuildHasher as _, BuildHasherDefault, DefaultHasher};
use std::time::Duration;

use agent_client_protocol_schema::v1::RequestId;
use bowline_protocol::remote::MessageHead;
use bytes::Bytes;
use serde_json::{Value, json};

use super::{
    Action, Client, MAX_OPEN_REQUESTS, Outgoing, OutgoingKind, OwnRequest, ServerRequest, StreamKey,
    StreamState,
};
use crate::message::{self, INTERNAL_ERROR};

impl Client {
    /// Takes a message of the server.
    pub(super) fn receive(&mut self, now: Duration, key: &StreamKey, data: &Bytes) {
        let head = match MessageHead::parse(data) {
            Ok(head) => head,
            Err(error) => {
                return self.report(format!("a message of {} was dropped: {error}", self.options.url));
            }
        };
        let session = head.session_id.as_deref().map(str::to_owned).or_else(|| match key {
            StreamKey::Session(session) => Some(session.clone()),
            StreamKey::Connection => None,
        });
        let Some(line) = message::to_line(data) else { return };
        match (head.id, head.method) {
            (Some(id), None) => self.receive_response(now, &id, line),
            (Some(id), Some(_)) => self.receive_request(id, session, line),
            (None, Some(method)) if method == "$/cancel_request" && self.generation > 0 => {
                let mut message: Value = serde_json::from_slice(data).unwrap_or_default();
                if let Some(id) = message::cancelled_request(&message) {
                    let mut open = self.server_requests.iter();
                    let known_id = open.find(|(_, request)| request.original_id == id);
                    let known_id = known_id.map(|(known_id, _)| known_id.clone());
                    message["params"]["requestId"] = json!(known_id.unwrap_or_else(|| self.caller_id(&id)));
                }
                self.deliver(message::to_bytes(&message));
            }
            (None, _) if session.is_some_and(|session| self.is_loading(&session)) => {}
            (None, _) => self.deliver(line),
        }
    }

    /// Returns whether the client loads a session that the caller already knows.
    fn is_loading(&self, session: &str) -> bool {
        self.own_requests.values().any(|own| matches!(own, OwnRequest::Load(loading) if loading == session))
    }

    /// Returns the id that the caller sees for a request of the server.
    fn caller_id(&self, id: &RequestId) -> RequestId {
        match self.generation {
            0 => id.clone(),
            generation => RequestId::Str(format!("bowline-{generation}-{}", json!(id))),
        }
    }

    fn receive_request(&mut self, id: RequestId, session: Option<String>, line: Bytes) {
        let caller_id = self.caller_id(&id);
        // After a stream was reopened, a server with the extensions sends unanswered requests again.
        let is_open = self.server_requests.values().any(|request| request.original_id == id);
        if is_open || self.answered.contains(&id) {
            return;
        }
        let digest = BuildHasherDefault::<DefaultHasher>::default().hash_one(&line);
        let is_same = |request: &ServerRequest| request.original_id == id && request.digest == digest;
        let carried = self.carried_requests.iter().find(|(_, request)| is_same(request));
        if let Some(known_id) = carried.map(|(known_id, _)| known_id.clone()) {
            // The caller has it already, and its answer goes to the new connection.
            let request = self.carried_requests.remove(&known_id);
            self.server_requests.extend(request.map(|request| (known_id, request)));
            return;
        }
        if self.server_requests.len() >= MAX_OPEN_REQUESTS {
            let body = message::error_response(&id, INTERNAL_ERROR, "the client has too many open requests");
            return self.enqueue(Outgoing::new(body, session, OutgoingKind::Response(id), self.generation));
        }
        let line = if caller_id == id { Some(line) } else { message::with_id(&line, &caller_id) };
        if let Some(line) = line {
            self.server_requests.insert(caller_id, ServerRequest { original_id: id, session, digest });
            self.deliver(line);
        }
    }

    fn receive_response(&mut self, now: Duration, id: &RequestId, line: Bytes) {
        // The response to `initialize` comes as the answer to its post.
        if matches!(self.own_requests.get(id), Some(OwnRequest::Initialize)) {
            return;
        }
        if let Some(own) = self.own_requests.remove(id) {
            let response: Value = serde_json::from_slice(&line).unwrap_or_default();
            if let OwnRequest::Resume(session) | OwnRequest::Load(session) = &own {
                match response.get("error") {
                    Some(error) => {
                        self.lose_session(session, error["message"].as_str().unwrap_or("it is unknown"));
                    }
                    None => self.open_unknown_stream(StreamKey::Session(session.clone())),
                }
            }
            return self.finish_recovery();
        }
        // An answer that came before, or that a lost connection already failed.
        let Some(request) = self.open_requests.remove(id) else { return };
        let result = || -> Option<Value> {
            let mut response: Value = serde_json::from_slice(&line).ok()?;
            response.get_mut("result").map(Value::take)
        };
        let mut session = request.session;
        match request.method.as_str() {
            "session/new" | "session/fork" => {
                let opened = result().and_then(|result| Some(result["sessionId"].as_str()?.to_owned()));
                if let Some(opened) = opened {
                    self.sessions.insert(opened.clone(), request.params.unwrap_or_default());
                    if self.options.has_session_streams
                        && !self.streams.contains_key(&StreamKey::Session(opened.clone()))
                    {
                        self.open_stream(StreamKey::Session(opened));
                    }
                }
            }
            "session/load" | "session/resume" => {
                if let (Some(session), Some(_)) = (&session, result()) {
                    self.sessions.insert(session.clone(), request.params.unwrap_or_default());
                }
            }
            "session/close" | "session/delete" => {
                if let Some(closed) = session.take_if(|_| result().is_some()) {
                    self.sessions.remove(&closed);
                    let key = StreamKey::Session(closed);
                    if self.streams.remove(&key).is_some() {
                        self.actions.push_back(Action::CloseStream(key));
                    }
                }
            }
            // No other method opens or closes a session.
            _ => {}
        }
        if let Some(session) = session {
            self.open_unknown_stream(StreamKey::Session(session));
        }
        self.deliver(line);
        self.proceed(now);
    }

    /// Opens a stream that the server did not know before.
    fn open_unknown_stream(&mut self, key: StreamKey) {
        if self.streams.get(&key).is_some_and(|stream| stream.state == StreamState::Unknown) {
            self.open_stream(key);
        }
    }
}
