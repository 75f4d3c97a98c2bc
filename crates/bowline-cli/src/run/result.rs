//! The result of a run: the one JSON object of `--format result`.

use bowline_host::HostSession;
use bowline_protocol::schema::v1::StopReason;
use serde_json::{Value, json};

use super::RunOutcome;
use super::front_end::TurnCallOutcome;

/// What is known of a run before it ends.
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
    /// Sets the session, the turn and its stop reason.
    pub(super) fn set_turn(&mut self, session: &HostSession, turn: Option<u64>, stop: Option<StopReason>) {
        self.session = Some(session.id().0.to_string());
        (self.turn, self.stop) = (turn, stop);
        if let Some(usage) = session.snapshot().usage() {
            let cost = usage.cost.as_ref();
            let cost = cost.map(|cost| json!({"amount": cost.amount, "currency": cost.currency}));
            self.usage = json!({"used": usage.used, "size": usage.size, "cost": cost});
        }
    }

    /// Sets the changed files, and the command that undoes them.
    pub(super) fn set_changes(&mut self, changes: Vec<Value>, undo: Option<String>) {
        (self.changes, self.undo) = (changes, undo);
    }

    /// Returns the JSON object on one line.
    pub(super) fn to_json_line(
        &self,
        answer: &str,
        calls: &[TurnCallOutcome],
        outcome: &RunOutcome,
    ) -> String {
        let (status, error) = match outcome {
            RunOutcome::Completed => (0, None),
            RunOutcome::Stopped(error) => (error.exit_code(), Some(error.to_string())),
        };
        // For a denied run, the error message is the list of denials.
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
