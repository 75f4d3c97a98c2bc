//! The restart policy of a server that ended: how often, and how soon.

use std::collections::VecDeque;
use std::time::{Duration, Instant};

/// The most restarts of a server within [`WINDOW`].
pub(super) const MAX_RESTARTS: usize = 3;
/// How long a restart is remembered.
const WINDOW: Duration = Duration::from_secs(300);
/// The delay before the first restart; each further one is four times as long.
const FIRST_DELAY: Duration = Duration::from_millis(100);

/// The recent restarts of one server.
#[derive(Debug, Default)]
pub(super) struct Restarts {
    // Oldest first. Invariant: at most MAX_RESTARTS.
    times: VecDeque<Instant>,
}

impl Restarts {
    /// Returns the delay before restarting a server that ended `now`, or `None` if it is not restarted.
    pub(super) fn next_delay(&mut self, now: Instant) -> Option<Duration> {
        while self.times.front().is_some_and(|time| now.saturating_duration_since(*time) >= WINDOW) {
            self.times.pop_front();
        }
        if self.times.len() >= MAX_RESTARTS {
            return None;
        }
        let pause = (0..self.times.len()).fold(FIRST_DELAY, |pause, _| pause * 4);
        self.times.push_back(now);
        Some(pause)
    }
}

#[cfg(test)]
mod tests;
