//! A connection that the server no longer knows: what is taken over, what fails, and how sessions go on.

use std::time::Duration;

use agent_client_protocol_schema::v1::RequestId;
use bowline_protocol::json_object::object_entry;
use bowline_protocol::remote;
use bowline_text::display::escape_line;
use serde_json::{Value, json};

use super::{
    Action, Client, MAX_OPEN_REQUESTS, MAX_SHOWN_BYTES, Outgoing, OutgoingKind, OwnRequest, SessionSupport,
    Stream, StreamKey, StreamState,
};
use crate::message;

impl Client {
    /// Makes a new connection, because the server does not know this one.
    pub(super) fn lose_connection(&mut self, now: Duration) {
        let Some(old) = self.connection.take() else { return };
        self.report(format!(
            "{} no longer knows the connection, perhaps because it was restarted",
            self.options.url
        ));
        for (key, stream) in &mut self.streams {
            if matches!(stream.state, StreamState::Opening | StreamState::Open) {
                self.actions.push_back(Action::CloseStream(key.clone()));
            }
            (stream.state, stream.failures, stream.failing_since) = (StreamState::Closed, 0, None);
        }
        self.own_requests.clear();
        self.own_queue.clear();
        if self.has_extensions {
            self.begin_generation();
            // A new connection's own stream starts from its beginning.
            self.streams.insert(StreamKey::Connection, Stream::new(StreamState::Closed));
            self.fail_open_requests("the server was restarted before it answered: try again", |request| {
                request.is_sent && (request.session.is_none() || request.params.is_some())
            });
        } else {
            self.forget_connection();
        }
        let mut params = self.initialize.clone().unwrap_or_else(|| json!({}));
        if self.has_extensions
            && let Some(params) = params.as_object_mut()
            && let Some(meta) = object_entry(params, "_meta")
            && let Some(bowline) = object_entry(meta, "bowline")
        {
            bowline.insert("resumes".to_owned(), json!(old));
        }
        let id = self.queue_own_request("initialize", &params, None, OwnRequest::Initialize);
        if let Some(request) = self.own_queue.back_mut() {
            request.kind = OutgoingKind::Initialize(id);
        }
        self.recovery_deadline = Some(now.saturating_add(self.options.reconnect_for));
        (self.post_failures, self.post_failing_since, self.next_post_at) = (0, None, None);
    }

    /// Asks for the answers to what was sent on the connection that was taken over: the server may have lost it.
    pub(super) fn await_sent_requests(&mut self) {
        let sent =
            self.open_requests.iter_mut().filter(|(_, request)| request.is_sent && request.session.is_some());
        let mut sent: Vec<(RequestId, Option<String>)> = sent
            .map(|(id, request)| {
                request.is_sent = false;
                (id.clone(), request.session.clone())
            })
            .collect();
        sent.sort();
        for (id, session) in sent {
            let params = json!({ "sessionId": session });
            let body = message::request(&id, remote::AWAIT_METHOD, &params);
            self.enqueue(Outgoing::new(body, session, OutgoingKind::Request(id), self.generation));
        }
    }

    /// Drops what only the old connection knew.
    pub(super) fn forget_connection(&mut self) {
        self.streams.clear();
        self.begin_generation();
        self.carried_requests.clear();
        let text = format!(
            "the connection to {} was lost and its state with it: the agent may or may not have done this; check, and \
             try again",
            self.options.url
        );
        self.fail_open_requests(&text, |request| request.is_sent);
    }

    /// Separates the requests of a new connection from those of the old one, whose ids may be used again.
    fn begin_generation(&mut self) {
        self.generation += 1;
        if self.carried_requests.len() >= MAX_OPEN_REQUESTS {
            self.carried_requests.clear();
        }
        self.carried_requests.extend(self.server_requests.drain());
        self.answered.clear();
        self.retain_queued(|message| !matches!(message.kind, OutgoingKind::Response(_)));
    }

    /// Resumes the open sessions, or loads them without showing what they repeat.
    pub(super) fn restore_sessions(&mut self, now: Duration) {
        let SessionSupport { can_resume, can_load } = self.session_support;
        for (session, mut params) in self.sessions.clone() {
            params["sessionId"] = json!(session);
            if can_resume {
                let own = OwnRequest::Resume(session.clone());
                self.queue_own_request("session/resume", &params, Some(session), own);
            } else if can_load {
                let own = OwnRequest::Load(session.clone());
                self.queue_own_request("session/load", &params, Some(session), own);
            } else {
                self.lose_session(&session, "the agent can neither resume nor load sessions");
            }
        }
        self.recovery_deadline = Some(now.saturating_add(self.options.reconnect_for));
        self.finish_recovery();
    }

    fn queue_own_request(
        &mut self,
        method: &str,
        params: &Value,
        session: Option<String>,
        own: OwnRequest,
    ) -> RequestId {
        self.own_request_count += 1;
        let id = RequestId::Str(format!("bowline-connect-{}", self.own_request_count));
        let body = message::request(&id, method, params);
        self.own_requests.insert(id.clone(), own);
        self.own_queue.push_back(Outgoing::new(
            body,
            session,
            OutgoingKind::Request(id.clone()),
            self.generation,
        ));
        id
    }

    pub(super) fn lose_session(&mut self, session: &str, reason: &str) {
        self.sessions.remove(session);
        let session = escape_line(session, MAX_SHOWN_BYTES);
        self.report(format!(
            "session {session} could not be continued: {}",
            escape_line(reason, MAX_SHOWN_BYTES)
        ));
        self.finish_recovery();
    }

    pub(super) fn finish_recovery(&mut self) {
        if self.own_requests.is_empty() {
            self.recovery_deadline = None;
        }
    }
}
