//! What an operation that may be done goes through: its beginning, its end, and what the log says of both.

use std::time::Instant;

use bowline_state::audit::{By, Decision, Entry};
use bowline_state::changes::ContentHash;
use bowline_workspace::approvals::Approvals;
use tokio::task::spawn_blocking;

use super::{No, Permissions};
use bowline_workspace::clock::now;

/// An operation that may be done, and what the log will say of it.
pub(crate) struct Pass {
    pub(super) permissions: Permissions,
    // None if the client records it.
    pub(super) log: Option<Box<PassLog>>,
    pub(super) is_bound: bool,
}

pub(super) struct PassLog {
    pub(super) approvals: Approvals,
    pub(super) entry: Entry,
    pub(super) started: Instant,
}

/// What became of an operation, for the log.
#[derive(Debug, Default)]
pub(crate) struct Became {
    pub(crate) bytes: Option<usize>,
    pub(crate) before: Option<ContentHash>,
    pub(crate) after: Option<ContentHash>,
    pub(crate) exit: Option<String>,
    pub(crate) failed: Option<String>,
}

impl Pass {
    /// Says whether a person has seen exactly this and agreed to no more.
    pub(crate) fn is_bound(&self) -> bool {
        self.is_bound
    }

    /// Refuses what began in another mode than the one that allows no change. Like what is not even offered, it is not for
    /// rules to allow.
    pub(super) async fn may_change(&mut self) -> Result<(), No> {
        let mode = self.permissions.mode();
        if mode.may_change() {
            return Ok(());
        }
        self.set_by(By::Preset(mode.id().to_owned()));
        let told = format!("the user has switched to the mode {}, which does not allow it", mode.id());
        Err(self.denied(told, None).await)
    }

    /// Records that a change is about to be made. This is the last moment to stop it.
    pub(crate) async fn begins(&mut self) -> Result<(), No> {
        self.may_change().await?;
        let recorded = self.record(Decision::Allowed, Some("begins".to_owned())).await;
        recorded.map_err(|told| No::Denied { told, why: None })
    }

    /// Records what became of it. What was done is done, also if that cannot be recorded.
    pub(crate) async fn became(mut self, became: Became) -> Result<(), String> {
        let Became { bytes, before, after, exit, failed } = became;
        if let Some(PassLog { entry, .. }) = self.log.as_deref_mut() {
            entry.bytes = bytes.map(|bytes| bytes as u64);
            (entry.before, entry.after, entry.exit) = (before, after, exit);
        }
        let decision = if failed.is_some() { Decision::Failed } else { Decision::Allowed };
        self.record(decision, failed).await
    }

    /// Says whether the client judges it when it is asked for it.
    pub(crate) fn is_for_client(&self) -> bool {
        self.log.is_none()
    }

    /// Notes that the client's user has agreed to this before.
    pub(crate) fn by_client(&mut self) {
        self.set_by(By::Client);
    }

    /// Notes who decided. An answer that came through the client is the client's: whether a person gave it, it does not say.
    pub(super) fn set_by(&mut self, by: By) {
        if let Some(log) = &mut self.log {
            log.entry.by = if by == By::Person { By::Client } else { by };
        }
    }

    /// Records that it may not be done.
    pub(crate) async fn denied(&mut self, told: String, why: Option<String>) -> No {
        // That it is denied holds, also if it cannot be recorded.
        self.record(Decision::Denied, Some(why.clone().unwrap_or_else(|| told.clone()))).await.ok();
        No::Denied { told: format!("permission denied: {told}"), why }
    }

    pub(super) async fn record(&mut self, decision: Decision, reason: Option<String>) -> Result<(), String> {
        let Some(PassLog { approvals, entry, started }) = self.log.as_deref_mut() else { return Ok(()) };
        (entry.at, entry.decision, entry.reason) = (now(), decision, reason);
        entry.latency_us = u64::try_from(started.elapsed().as_micros()).ok();
        let (approvals, entry) = (approvals.clone(), entry.clone());
        let recorded = spawn_blocking(move || approvals.record(&entry));
        let recorded = recorded.await.map_err(|ended| ended.to_string())?;
        recorded.map_err(|error| format!("the audit log cannot be written, so nothing is done: {error}"))
    }
}
