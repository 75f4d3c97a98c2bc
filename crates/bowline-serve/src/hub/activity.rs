//! What sessions are doing, for an overview, and when that changes.

use super::*;
use crate::store::StoredSession;

/// The most sessions of which more is remembered than the store has.
const MAX_NOTED_SESSIONS: usize = 4096;
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
    /// What the agent reported last about tokens and costs; `None` if it has not since the server started.
    pub usage: Option<Value>,
}

/// What happens at a hub, for an overview.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum HubEvent {
    /// A session was created, changed, archived or deleted.
    SessionChanged(SessionId),
    /// The server stops.
    Stopped,
}

/// What is remembered of a session beside the store.
#[derive(Debug, Default)]
pub(super) struct SessionNotes {
    usage: Option<Value>,
    has_failed: bool,
}

impl HubState {
    fn notes(&mut self, session: &SessionId) -> &mut SessionNotes {
        if self.notes.len() >= MAX_NOTED_SESSIONS && !self.notes.contains_key(session) {
            let HubState { notes, sessions, .. } = self;
            notes.retain(|id, _| sessions.contains_key(id));
        }
        self.notes.entry(session.clone()).or_default()
    }

    /// Returns what a session is doing.
    pub(super) fn activity(&self, stored: &StoredSession) -> SessionActivity {
        let open = self.sessions.get(&stored.id);
        let notes = self.notes.get(&stored.id);
        // What was pending when no server has the session any more was interrupted.
        let pending = open.map_or(&stored.pending, |open| &open.pending);
        let has_failed = notes.is_some_and(|notes| notes.has_failed);
        let state = match open {
            Some(_) if !pending.questions.is_empty() => SessionState::Waiting,
            Some(_) if !pending.requests.is_empty() => SessionState::Working,
            None if !pending.is_empty() => SessionState::Failed,
            _ if has_failed => SessionState::Failed,
            _ => SessionState::Idle,
        };
        let questions = self.agent_requests.values();
        let questions = questions.filter(|request| request.session == stored.id && request.is_question);
        let first = questions.min_by_key(|request| request.seq);
        SessionActivity {
            state,
            waiting_for: first.map(|request| describe_question(&request.method, &request.body)),
            usage: notes.and_then(|notes| notes.usage.clone()),
        }
    }

    /// Notes what an agent reports about tokens and costs, and returns whether it does.
    pub(super) fn note_usage(&mut self, session: &SessionId, line: &[u8]) -> bool {
        let Ok(mut message) = serde_json::from_slice::<Value>(line) else { return false };
        let update = message["params"]["update"].take();
        let is_usage = update["sessionUpdate"] == "usage_update" && line.len() <= MAX_USAGE_BYTES;
        if is_usage {
            self.notes(session).usage = Some(update);
        }
        is_usage
    }

    /// Notes whether the last turn of a session failed.
    pub(super) fn note_turn(&mut self, session: &SessionId, has_failed: bool) {
        self.notes(session).has_failed = has_failed;
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
