//! How often a server that ended is started anew, and how soon.

use std::collections::VecDeque;
use std::time::{Duration, Instant};

/// So many times within [`WINDOW`] a server is started anew.
pub(super) const MAX_RESTARTS: usize = 3;
/// How long a restart is remembered.
const WINDOW: Duration = Duration::from_secs(300);
/// How long is waited before the first of them; before each of the others it is four times as long.
const FIRST: Duration = Duration::from_millis(100);

/// The restarts of one server.
#[derive(Debug, Default)]
pub(super) struct Restarts {
    // Oldest first. Invariant: at most MAX_RESTARTS.
    made: VecDeque<Instant>,
}

impl Restarts {
    /// Decides whether a server that ended `now` is started anew, and after how long.
    pub(super) fn next(&mut self, now: Instant) -> Option<Duration> {
        while self.made.front().is_some_and(|made| now.saturating_duration_since(*made) >= WINDOW) {
            self.made.pop_front();
        }
        if self.made.len() >= MAX_RESTARTS {
            return None;
        }
        let pause = (0..self.made.len()).fold(FIRST, |pause, _| pause * 4);
        self.made.push_back(now);
        Some(pause)
    }
}

#[cfg(test)]
mod tests;
