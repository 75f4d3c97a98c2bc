//! What a run came to, as the one JSON object of `--format result`.

use bowline_host::Session;
use bowline_state::schema::v1::StopReason;
use serde_json::{Value, json};

use super::Ended;
use super::front::CallOutcome;

/// What is known of a run before it has ended.
#[derive(Debug, Default)]
pub(super) struct RunResult {
    session: Option<String>,
    turn: Option<u64>,
    stop: Option<StopReason>,
    changes: Vec<Value>,
    undo: Option<String>,
    usage: Value,
}

impl RunResult {
    /// Learns in which session the prompt was, and which turn of it that is.
    pub(super) fn set_turn(&mut self, session: &Session, turn: Option<u64>, stop: Option<StopReason>) {
        self.session = Some(session.id().0.to_string());
        (self.turn, self.stop) = (turn, stop);
        if let Some(usage) = session.snapshot().usage() {
            let cost = usage.cost.as_ref();
            let cost = cost.map(|cost| json!({"amount": cost.amount, "currency": cost.currency}));
            self.usage = json!({"used": usage.used, "size": usage.size, "cost": cost});
        }
    }

    /// Learns which files were changed, and how that is taken back.
    pub(super) fn set_changes(&mut self, changes: Vec<Value>, undo: Option<String>) {
        (self.changes, self.undo) = (changes, undo);
    }

    /// Returns the object, on a line.
    pub(super) fn line(&self, answer: &str, calls: &[CallOutcome], ended: &Ended) -> String {
        let (status, error) = match ended {
            Ended::Done => (0, None),
            Ended::Because(ending) => (ending.code(), Some(ending.to_string())),
        };
        // What was denied is the whole of that ending.
        let denials: Vec<&str> = match (status, &error) {
            (5, Some(text)) => {
                let lines = text.strip_prefix("denied:").unwrap_or(text).lines().map(str::trim);
                lines.filter(|line| !line.is_empty()).collect()
            }
            _ => Vec::new(),
        };
        let tools: Vec<Value> = calls
            .iter()
            .map(|call| json!({"call": call.id, "title": call.title, "failed": call.failed}))
            .collect();
        let object = json!({
            "session": self.session,
            "turn": self.turn,
            "stop_reason": self.stop,
            "answer": answer,
            "changes": self.changes,
            "undo": self.undo,
            "tool_calls": tools,
            "denials": denials,
            "usage": self.usage,
            "exit_status": status,
            "error": error,
        });
        format!("{object}\n")
    }
}
