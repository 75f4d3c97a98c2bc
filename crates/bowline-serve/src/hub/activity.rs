//! What sessions are doing, for an overview, and when that changes.

use super::*;
use crate::store::StoredSession;

/// Why a turn failed whose server is gone.
pub(super) const INTERRUPTED: &str =
    "the server stopped during this request; what the agent did until then is in the session";
/// The longest reason of a failure that is remembered, in characters.
const MAX_FAILURE_CHARS: usize = 1000;
/// The longest stop reason that is remembered, in characters.
const MAX_STOP_REASON_CHARS: usize = 100;
/// The longest report of usage that is remembered, in bytes.
const MAX_USAGE_BYTES: usize = 4096;
/// The most events that wait for a subscriber; one that is slower learns that it missed some.
pub(super) const MAX_WAITING_EVENTS: usize = 256;

/// What a session is doing.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SessionState {
    /// Nothing.
    Idle,
    /// Its agent works.
    Working,
    /// Its agent waits for the user.
    Waiting,
    /// Its last turn ended with an error, or was interrupted.
    Failed,
}

impl SessionState {
    /// Returns its name.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Idle => "idle",
            Self::Working => "working",
            Self::Waiting => "waiting",
            Self::Failed => "failed",
        }
    }
}

/// What a session is doing, with details.
#[derive(Debug, Clone, PartialEq)]
pub struct SessionActivity {
    /// What it is doing.
    pub state: SessionState,
    /// The first open question, in the agent's words.
    pub waiting_for: Option<String>,
    /// What the agent reported last about tokens and costs.
    pub usage: Option<Value>,
    /// Why the last turn failed, if it did.
    pub failure: Option<String>,
}

/// What happens at a hub, for an overview.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum HubEvent {
    /// A session was created, changed, archived or deleted.
    SessionChanged(SessionId),
    /// The server stops.
    Stopped,
}

impl HubState {
    /// Returns what a session is doing.
    pub(super) fn activity(&self, stored: &StoredSession) -> SessionActivity {
        let open = self.sessions.get(&stored.id);
        // What was pending when no server has the session any more was interrupted.
        let pending = open.map_or(&stored.pending, |open| &open.pending);
        let state = match open {
            Some(_) if !pending.questions.is_empty() => SessionState::Waiting,
            Some(_) if !pending.requests.is_empty() => SessionState::Working,
            None if !pending.is_empty() => SessionState::Failed,
            _ if pending.last_turn.failure.is_some() => SessionState::Failed,
            _ => SessionState::Idle,
        };
        let questions = self.agent_requests.values();
        let questions = questions.filter(|request| request.session == stored.id && request.is_question);
        let first = questions.min_by_key(|request| request.seq);
        SessionActivity {
            state,
            waiting_for: first.map(|request| describe_question(&request.method, &request.body)),
            usage: pending.last_turn.usage.clone(),
            failure: (state == SessionState::Failed)
                .then(|| pending.last_turn.failure.clone().unwrap_or_else(|| INTERRUPTED.to_owned())),
        }
    }
}

/// Notes how a turn of a session ended: with a stop reason, or why it failed. It is stored with the response, which tells
/// the client of the turn; the others are told here.
pub(super) fn note_turn(
    hub: &Hub,
    state: &mut HubState,
    session: &SessionId,
    connection: &ConnectionId,
    outcome: Result<Option<&str>, &str>,
) {
    append_turn_end(hub, session, Recipient::AllBut(connection.clone()), outcome);
    if let Some(open) = state.sessions.get_mut(session) {
        open.pending.last_turn.failure = outcome.err().map(|why| shorten(why, MAX_FAILURE_CHARS));
    }
}

/// Appends the end of a turn to a session's events.
pub(super) fn append_turn_end(
    hub: &Hub,
    session: &SessionId,
    recipient: Recipient,
    outcome: Result<Option<&str>, &str>,
) {
    let params = match outcome {
        Ok(reason) => {
            let reason = reason.map(|reason| shorten(reason, MAX_STOP_REASON_CHARS));
            json!({ "sessionId": session, "stopReason": reason })
        }
        Err(why) => json!({ "sessionId": session, "error": shorten(why, MAX_FAILURE_CHARS) }),
    };
    let ended = message::notification(remote::TURN_ENDED_METHOD, &params);
    hub.log.append(session, EventKind::TurnEnd, recipient, ended);
}

fn shorten(text: &str, limit: usize) -> String {
    text.chars().take(limit).collect()
}

/// Notes what an agent reports about tokens and costs. It is stored when the turn ends: agents report it often.
pub(super) fn note_usage(hub: &Hub, state: &mut HubState, session: &SessionId, line: &[u8]) {
    let Ok(mut message) = serde_json::from_slice::<Value>(line) else { return };
    let update = message["params"]["update"].take();
    if update["sessionUpdate"] != "usage_update" || line.len() > MAX_USAGE_BYTES {
        return;
    }
    let Some(open) = state.sessions.get_mut(session) else { return };
    open.pending.last_turn.usage = Some(update);
    if open.pending.requests.is_empty() {
        hub.save_pending(session, open);
    } else {
        hub.announce_change(session);
    }
}

/// Returns what an agent asks.
fn describe_question(method: &str, body: &[u8]) -> String {
    let message: Value = serde_json::from_slice(body).unwrap_or_default();
    let params = &message["params"];
    let text = match method {
        "session/request_permission" => &params["toolCall"]["title"],
        _ => &params["message"],
    };
    text.as_str().unwrap_or("a question").to_owned()
}
