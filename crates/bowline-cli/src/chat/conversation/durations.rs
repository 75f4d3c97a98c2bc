//! How long tool calls were at work, as far as it was seen.

use std::collections::HashMap;
use std::time::Duration;

use bowline_state::accumulator::Snapshot;
use bowline_state::schema::v1::{ToolCallId, ToolCallStatus};

/// The times of a session's tool calls.
#[derive(Debug, Default)]
pub(super) struct Timings(HashMap<ToolCallId, Timing>);

/// When a call was first and last seen at work.
#[derive(Debug, Clone, Copy)]
struct Timing {
    from: Duration,
    to: Option<Duration>,
    // That it waits for a person is not its own time.
    waits: bool,
}

impl Timings {
    /// Takes in how the calls stand now, and whether a turn goes on.
    pub(super) fn update(&mut self, snapshot: &Snapshot, now: Duration, running: bool) {
        for call in snapshot.tool_calls() {
            let is_over = call.is_finished() || call.cancelled;
            let waits = call.status == ToolCallStatus::Pending && !is_over;
            match self.0.get_mut(&call.id) {
                Some(timing) => {
                    if timing.waits && !waits {
                        (timing.from, timing.waits) = (now, false);
                    }
                    timing.to = timing.to.or(is_over.then_some(now));
                }
                // What has ended when it is first seen outside of a turn is of before: nobody knows how long it took.
                None if call.is_finished() && !running => {}
                None => {
                    let timing = Timing { from: now, to: is_over.then_some(now), waits };
                    self.0.insert(call.id.clone(), timing);
                }
            }
        }
    }

    /// Stops all of them: a call that its agent never ended does not go on for ever.
    pub(super) fn stop(&mut self, now: Duration) {
        self.0.values_mut().for_each(|timing| timing.to = timing.to.or(Some(now)));
    }

    /// Returns how long a call was at work, in tenths of a second: nothing finer is shown. None if it waits for a person, or
    /// nobody knows.
    pub(super) fn took(&self, id: &ToolCallId, now: Duration) -> Option<Duration> {
        let timing = self.0.get(id).filter(|timing| !timing.waits)?;
        let time = timing.to.unwrap_or(now).saturating_sub(timing.from);
        Some(Duration::from_millis(u64::try_from(time.as_millis() / 100 * 100).unwrap_or(u64::MAX)))
    }
}
