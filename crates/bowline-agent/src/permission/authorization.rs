//! The authorization of one operation: its start, its end, and its entries in the audit log.

use std::time::Instant;

use bowline_access::approvals::Approvals;
use bowline_policy::audit::{AuditDecision, AuditEntry, AuditSubject, DecisionSource};
use bowline_task::spawn_blocking;
use bowline_text::hash::ContentHash;

use super::{Denial, Permissions};
use bowline_storage::clock::now;

/// An authorized operation, and its pending audit entry.
pub(crate) struct Authorization {
    pub(super) permissions: Permissions,
    // `None` if the client records the operation.
    pub(super) log: Option<Box<AuthorizationLog>>,
    pub(super) is_exact: bool,
}

pub(super) struct AuthorizationLog {
    pub(super) approvals: Approvals,
    pub(super) entry: AuditEntry,
    pub(super) started: Instant,
}

/// The outcome of an operation, for the audit log.
#[derive(Debug, Default)]
pub(crate) struct OperationOutcome {
    pub(crate) bytes: Option<usize>,
    pub(crate) hash_before: Option<ContentHash>,
    pub(crate) hash_after: Option<ContentHash>,
    pub(crate) exit_status: Option<String>,
    pub(crate) failure: Option<String>,
}

impl Authorization {
    /// Returns whether a person has approved exactly this operation and no more.
    pub(crate) fn is_exact(&self) -> bool {
        self.is_exact
    }

    /// Refuses a change if the user has since switched to a mode without changes. Rules cannot allow it: such a mode
    /// does not even offer the tool.
    pub(super) async fn check_mode_allows_changes(&mut self) -> Result<(), Denial> {
        let mode = self.permissions.mode();
        if mode.can_change() {
            return Ok(());
        }
        self.set_decider(DecisionSource::Preset(mode.id().to_owned()));
        let message = format!("the user has switched to the mode {}, which does not allow it", mode.id());
        Err(self.deny(message, None).await)
    }

    /// Records that a change is about to be made. This is the last chance to stop it.
    pub(crate) async fn record_start(&mut self) -> Result<(), Denial> {
        self.check_mode_allows_changes().await?;
        let recorded = self.record(AuditDecision::Allowed, Some("begins".to_owned())).await;
        recorded.map_err(|message| Denial::Denied { model_message: message, user_message: None })
    }

    /// Records the outcome. A failure to record it does not undo the operation.
    pub(crate) async fn record_outcome(mut self, outcome: OperationOutcome) -> Result<(), String> {
        let OperationOutcome { bytes, hash_before: before, hash_after: after, exit_status: exit, failure } =
            outcome;
        if let Some(AuthorizationLog { entry, .. }) = self.log.as_deref_mut() {
            entry.bytes = bytes.map(|bytes| bytes as u64);
            (entry.before, entry.after, entry.exit) = (before, after, exit);
        }
        let decision = if failure.is_some() { AuditDecision::Failed } else { AuditDecision::Allowed };
        self.record(decision, failure).await
    }

    /// Records the outcome of an operation that is done, whether or not it can be recorded: a failure is only logged.
    pub(crate) async fn log_outcome(self, outcome: OperationOutcome) {
        let permissions = self.permissions.clone();
        if let Err(error) = self.record_outcome(outcome).await {
            permissions.log_line(&error);
        }
    }

    /// Records the outcome of an operation for one of its files; the others follow.
    pub(crate) async fn record_file(&mut self, path: &str, outcome: OperationOutcome) -> Result<(), String> {
        if let Some(AuthorizationLog { entry, .. }) = self.log.as_deref_mut() {
            entry.subject = AuditSubject::Path { requested: path.to_owned(), resolved: None };
            entry.bytes = outcome.bytes.map(|bytes| bytes as u64);
            (entry.before, entry.after) = (outcome.hash_before, outcome.hash_after);
        }
        self.record(AuditDecision::Allowed, None).await
    }

    /// Returns whether the client judges the operation.
    pub(crate) fn is_left_to_client(&self) -> bool {
        self.log.is_none()
    }

    /// Records that the client's user approved this before.
    pub(crate) fn set_approved_by_client(&mut self) {
        self.set_decider(DecisionSource::Client);
    }

    /// Records the decision's source. An answer through the client counts as the client's, which need not have asked a
    /// person.
    pub(super) fn set_decider(&mut self, source: DecisionSource) {
        if let Some(log) = &mut self.log {
            log.entry.decided_by =
                if source == DecisionSource::Person { DecisionSource::Client } else { source };
        }
    }

    /// Records a denial.
    pub(crate) async fn deny(&mut self, model_message: String, user_message: Option<String>) -> Denial {
        // The denial stands even if it cannot be recorded.
        self.record(
            AuditDecision::Denied,
            Some(user_message.clone().unwrap_or_else(|| model_message.clone())),
        )
        .await
        .ok();
        Denial::Denied { model_message: format!("permission denied: {model_message}"), user_message }
    }

    pub(super) async fn record(
        &mut self,
        decision: AuditDecision,
        reason: Option<String>,
    ) -> Result<(), String> {
        let Some(AuthorizationLog { approvals, entry, started }) = self.log.as_deref_mut() else {
            return Ok(());
        };
        (entry.at, entry.decision, entry.reason) = (now(), decision, reason);
        entry.latency_us = u64::try_from(started.elapsed().as_micros()).ok();
        let (approvals, entry) = (approvals.clone(), entry.clone());
        let recorded = spawn_blocking(move || approvals.record(&entry));
        let recorded = recorded.await.map_err(|error| error.to_string())?;
        recorded.map_err(|error| format!("the audit log cannot be written, so nothing is done: {error}"))
    }
}
