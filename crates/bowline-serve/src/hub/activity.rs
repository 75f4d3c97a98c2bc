//! What sessions are doing, for an overview, and when that changes.

use super::*;
use crate::store::StoredSession;
use tokio::sync::broadcast;

/// The most sessions of which more is remembered than the store has.
const MAX_NOTED_SESSIONS: usize = 4096;
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

    /// Notes whether the last turn of a session failed.
    pub(super) fn note_turn(&mut self, session: &SessionId, has_failed: bool) {
        self.notes(session).has_failed = has_failed;
    }
}

impl Hub {
    /// Returns what a session is doing.
    #[must_use]
    pub fn activity(&self, stored: &StoredSession) -> SessionActivity {
        let state = self.lock();
        let open = state.sessions.get(&stored.id);
        let notes = state.notes.get(&stored.id);
        // What was pending when no server has the session any more was interrupted.
        let pending = open.map_or(&stored.pending, |open| &open.pending);
        let has_failed = notes.is_some_and(|notes| notes.has_failed);
        let session_state = match open {
            Some(_) if !pending.questions.is_empty() => SessionState::Waiting,
            Some(_) if !pending.requests.is_empty() => SessionState::Working,
            None if !pending.is_empty() => SessionState::Failed,
            _ if has_failed => SessionState::Failed,
            _ => SessionState::Idle,
        };
        let questions = state.agent_requests.values();
        let questions = questions.filter(|request| request.session == stored.id && request.is_question);
        let first = questions.min_by_key(|request| request.seq);
        SessionActivity {
            state: session_state,
            waiting_for: first.map(|request| describe_question(&request.method, &request.body)),
            usage: notes.and_then(|notes| notes.usage.clone()),
        }
    }

    /// Returns what an agent of a principal says of itself, if one runs.
    #[must_use]
    pub fn agent_info(&self, principal: &str) -> Option<Value> {
        let state = self.lock();
        let worker = state.workers.values().find(|worker| worker.key.principal == principal)?;
        Some(worker.description["agentInfo"].clone()).filter(Value::is_object)
    }

    /// Returns what happens from now on.
    #[must_use]
    pub fn subscribe(&self) -> broadcast::Receiver<HubEvent> {
        self.events.subscribe()
    }

    /// Archives a session, or brings it back.
    pub async fn archive(&self, session: &SessionId, is_archived: bool) {
        let change = SessionChange { archived: Some(is_archived), ..SessionChange::default() };
        self.log.mutate(Mutation::Update { session: session.clone(), generation: None, change });
        self.announce_change(session);
        self.log.flush().await;
    }

    /// Tells subscribers that a session changed, once the store has the change.
    pub fn announce_change(&self, session: &SessionId) {
        if self.events.receiver_count() > 0 {
            let (events, event) = (self.events.clone(), HubEvent::SessionChanged(session.clone()));
            // The last subscriber may be gone by then.
            self.log.after_commit(move || drop(events.send(event)));
        }
    }

    /// Notes what an agent reports about tokens and costs.
    pub(super) fn note_usage(&self, state: &mut HubState, session: &SessionId, line: &[u8]) {
        let Ok(mut message) = serde_json::from_slice::<Value>(line) else { return };
        let update = message["params"]["update"].take();
        if update["sessionUpdate"] == "usage_update" {
            state.notes(session).usage = Some(update);
            self.announce_change(session);
        }
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
