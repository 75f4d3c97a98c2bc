//! What is waited for: an agent that starts, a session that opens, a turn that ends.

use std::time::Duration;

use bowline_state::schema::v1::SessionId;

use super::{App, Stage};

/// An agent that has not ended a turn so long after it was cancelled may be ended itself.
const PATIENCE: Duration = Duration::from_secs(5);

impl App {
    /// Says whether the agent was told to end its turn and has not done so for so long that it may be ended itself.
    pub(crate) fn is_stubborn(&self) -> bool {
        let cancelled = self.turn.and_then(|turn| turn.cancelled);
        cancelled.is_some_and(|cancelled| self.now.saturating_sub(cancelled) >= PATIENCE)
    }

    /// Begins to wait for an agent or a session.
    pub(super) fn begin(&mut self, what: String) {
        (self.stage, self.staged) = (Stage::Opening(what), self.now);
    }

    /// Returns for how long an agent has been started or a session opened.
    pub(crate) fn opening_for(&self) -> Duration {
        self.now.saturating_sub(self.staged)
    }

    /// Returns the session, if the agent can open it again and something was said in it.
    pub(crate) fn worth_going_on(&self) -> Option<&SessionId> {
        let snapshot = self.conversation.snapshot();
        let was_said = self.said || snapshot.is_some_and(|snapshot| snapshot.messages().next().is_some());
        self.session().filter(|_| self.can.reopen && was_said)
    }
}
