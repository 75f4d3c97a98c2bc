//! Waiting: for an agent to start, a session to open, a turn to end.

use std::time::Duration;

use bowline_protocol::schema::v1::SessionId;

use super::{AgentStatus, App};

/// How long a cancelled turn may run on before the user may stop the agent.
const CANCEL_PATIENCE: Duration = Duration::from_secs(5);

impl App {
    /// Returns whether a cancelled turn has run on for so long that the user may stop the agent.
    pub(crate) fn is_agent_unresponsive(&self) -> bool {
        let cancelled = self.turn.and_then(|turn| turn.cancelled_at);
        cancelled.is_some_and(|cancelled| self.now.saturating_sub(cancelled) >= CANCEL_PATIENCE)
    }

    /// Starts waiting for an agent or a session.
    pub(super) fn begin_opening(&mut self, what: String) {
        (self.status, self.status_since) = (AgentStatus::Opening(what), self.now);
    }

    /// Returns how long the agent has been starting or the session opening.
    pub(crate) fn opening_duration(&self) -> Duration {
        self.now.saturating_sub(self.status_since)
    }

    /// Returns the session, if the agent can reopen it and a prompt was sent in it.
    pub(crate) fn resumable_session(&self) -> Option<&SessionId> {
        let snapshot = self.conversation.snapshot();
        let was_said =
            self.has_prompted || snapshot.is_some_and(|snapshot| snapshot.messages().next().is_some());
        self.session().filter(|_| self.session_features.can_reopen && was_said)
    }
}
