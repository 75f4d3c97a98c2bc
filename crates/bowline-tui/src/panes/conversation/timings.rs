//! How long tool calls have been running, as far as observed.

use std::collections::HashMap;
use std::time::Duration;

use bowline_protocol::accumulator::SessionSnapshot;
use bowline_protocol::schema::v1::{ToolCallId, ToolCallStatus};

/// The times of a session's tool calls.
#[derive(Debug, Default)]
pub(super) struct ToolCallTimings(HashMap<ToolCallId, ToolCallTiming>);

/// When a call was first and last seen running.
#[derive(Debug, Clone, Copy)]
struct ToolCallTiming {
    started_at: Duration,
    ended_at: Option<Duration>,
    // The time that a call waits for the user does not count.
    is_pending: bool,
}

impl ToolCallTimings {
    /// Updates the times from the calls' current states, and whether a turn is running.
    pub(super) fn update(&mut self, snapshot: &SessionSnapshot, now: Duration, is_turn_running: bool) {
        for call in snapshot.tool_calls() {
            let is_done = call.is_finished() || call.cancelled;
            let is_pending = call.status == ToolCallStatus::Pending && !is_done;
            match self.0.get_mut(&call.id) {
                Some(timing) => {
                    if timing.is_pending && !is_pending {
                        (timing.started_at, timing.is_pending) = (now, false);
                    }
                    timing.ended_at = timing.ended_at.or(is_done.then_some(now));
                }
                // A call that is already finished when first seen outside a turn was replayed: its duration is unknown.
                None if call.is_finished() && !is_turn_running => {}
                None => {
                    let timing =
                        ToolCallTiming { started_at: now, ended_at: is_done.then_some(now), is_pending };
                    self.0.insert(call.id.clone(), timing);
                }
            }
        }
    }

    /// Stops all timings: a call that its agent never finished stops counting.
    pub(super) fn stop(&mut self, now: Duration) {
        self.0.values_mut().for_each(|timing| timing.ended_at = timing.ended_at.or(Some(now)));
    }

    /// Returns how long a call has been running, in tenths of a second, the precision shown. `None` if it waits for the
    /// user or its duration is unknown.
    pub(super) fn elapsed(&self, id: &ToolCallId, now: Duration) -> Option<Duration> {
        let timing = self.0.get(id).filter(|timing| !timing.is_pending)?;
        let time = timing.ended_at.unwrap_or(now).saturating_sub(timing.started_at);
        Some(Duration::from_millis(u64::try_from(time.as_millis() / 100 * 100).unwrap_or(u64::MAX)))
    }
}
