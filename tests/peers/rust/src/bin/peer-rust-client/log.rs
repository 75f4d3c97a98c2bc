//! The updates of one step: the count of each kind, and the first texts.

use std::collections::BTreeMap;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use agent_client_protocol::v1::schema::{ContentBlock, SessionUpdate, StopReason};
use serde_json::{Value, json};
use tokio::sync::Notify;

/// The maximum number of chunk texts in a step's line.
const KEPT_CHUNKS: usize = 50;

/// The updates since the step began.
#[derive(Default)]
pub(crate) struct Log {
    step: Mutex<Step>,
    first_chunk: Notify,
}

#[derive(Default)]
struct Step {
    updates: u64,
    chunks: Vec<String>,
    kinds: BTreeMap<&'static str, u64>,
}

impl Log {
    /// Discards the updates of the previous step.
    pub(crate) fn clear(&self) {
        *self.step() = Step::default();
    }

    /// Counts one update.
    pub(crate) fn record(&self, update: SessionUpdate) {
        let mut step = self.step();
        step.updates += 1;
        *step.kinds.entry(kind(&update)).or_default() += 1;
        if step.chunks.len() < KEPT_CHUNKS
            && let SessionUpdate::AgentMessageChunk(chunk) = update
            && let ContentBlock::Text(text) = chunk.content
        {
            step.chunks.push(text.text);
            if step.chunks.len() == 1 {
                self.first_chunk.notify_waiters();
            }
        }
    }

    /// Waits for the step's first chunk.
    pub(crate) async fn first_chunk(&self) {
        let notified = self.first_chunk.notified();
        if self.step().chunks.is_empty() {
            notified.await;
        }
    }

    /// Returns the line of a completed step.
    pub(crate) fn line(&self, stop: StopReason, took: Duration) -> Value {
        let step = self.step();
        json!({
            "stop": stop,
            "seconds": took.as_secs_f64(),
            "updates": step.updates,
            "chunks": step.chunks,
            "kinds": step.kinds,
        })
    }

    fn step(&self) -> MutexGuard<'_, Step> {
        self.step.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn kind(update: &SessionUpdate) -> &'static str {
    match update {
        SessionUpdate::UserMessageChunk(_) => "user_message_chunk",
        SessionUpdate::AgentMessageChunk(_) => "agent_message_chunk",
        SessionUpdate::AgentThoughtChunk(_) => "agent_thought_chunk",
        SessionUpdate::ToolCall(_) => "tool_call",
        SessionUpdate::ToolCallUpdate(_) => "tool_call_update",
        SessionUpdate::Plan(_) => "plan",
        SessionUpdate::AvailableCommandsUpdate(_) => "available_commands_update",
        SessionUpdate::CurrentModeUpdate(_) => "current_mode_update",
        SessionUpdate::ConfigOptionUpdate(_) => "config_option_update",
        SessionUpdate::SessionInfoUpdate(_) => "session_info_update",
        SessionUpdate::UsageUpdate(_) => "usage_update",
        // The enum is non-exhaustive; kinds that no peer in these tests sends share one name.
        _ => "other",
    }
}
