//! The operations of an agent, all in the same steps: authorize, record, carry out, record the outcome, answer.

use std::ops::ControlFlow;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Instant;

use bowline_access::approvals::{ApprovalError, ApprovalRequest, OperationApproval};
use bowline_access::audit::{AuditError, PendingAppend};
use bowline_history::changes::{ChangeId, ChangeOrigin};
use bowline_policy::audit::{AuditAction, AuditDecision, AuditEntry, AuditSubject};
use bowline_policy::grants::GrantHolder;
use bowline_protocol::quirks::Quirk;
use bowline_protocol::rpc_error::RpcError;
use bowline_protocol::schema::v1::{Error, PermissionOptionId};
use bowline_storage::clock::now;
use bowline_task::spawn_blocking;
use bowline_wire::service::CancelSignal;
use bowline_workspace::error::FilesError;
use bowline_workspace::roots::Roots;

use crate::error::HostError;
use crate::front_end::HostEvent;
use crate::host::HostInner;
use crate::session::{SessionInner, TurnStatus};

pub(crate) mod browse;
pub(crate) mod elicitation;
pub(crate) mod file_extension;
pub(crate) mod files;
pub(crate) mod initial_scan;
pub(crate) mod permission;
pub(crate) mod relay;
pub(crate) mod terminals;

/// Runs a blocking function on a blocking thread.
pub(crate) async fn run_blocking<T: Send + 'static>(
    f: impl FnOnce() -> T + Send + 'static,
) -> Result<T, HostError> {
    spawn_blocking(f).await.map_err(|error| HostError::Internal(error.to_string()))
}

/// Checks that the session's directories are still where they were opened: an agent with its own disk access would
/// otherwise work elsewhere. A check takes a microsecond per directory, so it runs inline.
pub(crate) fn verify_roots(roots: &Roots) -> Result<(), HostError> {
    Ok(roots.verify().map_err(FilesError::from)?)
}

impl From<HostError> for RpcError {
    fn from(error: HostError) -> Self {
        match error {
            HostError::Workspace(error) => error.into(),
            error => Self::Internal { reason: error.to_string() },
        }
    }
}

/// The requester of an operation, and its cancellation.
#[derive(Debug, Clone)]
pub(crate) struct OperationContext {
    /// The agent's own name.
    pub(crate) agent: Option<String>,
    /// The tool call, if it is known.
    pub(crate) call: Option<String>,
    /// Fires when the operation is cancelled.
    pub(crate) cancel: CancelSignal,
    /// The quirk that reports a missing file as empty, if it applies.
    pub(crate) missing_file_quirk: Option<&'static Quirk>,
}

/// An operation of a session in progress, and its audit entry.
pub(crate) struct AuditedOperation {
    pub(crate) session: Arc<SessionInner>,
    // The turn status at its start, which determines its turn.
    turn_at_start: TurnStatus,
    entry: AuditEntry,
    started: Instant,
    // Whether the operation differs by now from the one approved.
    has_changed: bool,
    // The agent's own option that the user chose to deny the operation.
    pub(crate) chosen_option: Option<PermissionOptionId>,
    // The quirk that reports a missing file as empty, if it applies.
    missing_file_quirk: Option<&'static Quirk>,
}

impl AuditedOperation {
    pub(crate) fn new(session: Arc<SessionInner>, action: AuditAction, call: Option<String>) -> Self {
        let turn_at_start = session.turn_status();
        let holder = session.holder(turn_at_start);
        let mut entry = AuditEntry::new(now(), action);
        (entry.session, entry.turn, entry.call) = (Some(holder.session), holder.turn, call);
        Self {
            session,
            turn_at_start,
            entry,
            started: Instant::now(),
            has_changed: false,
            chosen_option: None,
            missing_file_quirk: None,
        }
    }

    /// Returns the session and turn that the operation belongs to.
    pub(crate) fn holder(&self) -> GrantHolder {
        self.session.holder(self.turn_at_start)
    }

    /// Returns the origin of its changes for the journal.
    pub(crate) fn origin(&self) -> ChangeOrigin {
        self.session.files.origin(self.holder().turn, self.entry.call.as_deref())
    }

    /// Checks, right before acting, that the operation is still active: an approval does not outlive its turn.
    pub(crate) fn check_active(&self) -> Result<(), RpcError> {
        if self.session.is_active(self.turn_at_start) { Ok(()) } else { Err(RpcError::Cancelled) }
    }

    /// Sets the subject of the audit entry.
    pub(crate) fn with_subject(mut self, subject: AuditSubject) -> Self {
        self.entry.subject = subject;
        self
    }

    /// Sets the quirk that reports a missing file as empty.
    pub(crate) fn with_quirk(mut self, missing_file: Option<&'static Quirk>) -> Self {
        self.missing_file_quirk = missing_file;
        self
    }

    /// Returns the audit entry, for details that only the operation knows.
    pub(crate) fn entry_mut(&mut self) -> &mut AuditEntry {
        &mut self.entry
    }

    /// Sets whether the operation differs by now from the one approved.
    pub(crate) fn set_changed(&mut self, changed: bool) {
        self.has_changed = changed;
    }

    /// Returns and resets that flag.
    pub(crate) fn take_changed(&mut self) -> bool {
        std::mem::take(&mut self.has_changed)
    }

    /// Records the outcome. Blocks on the disk.
    pub(crate) fn record(&mut self, decision: AuditDecision) -> Result<(), RpcError> {
        self.set_decision(decision);
        let recorded = self.session.host.approvals.record(&self.entry);
        recorded.map_err(|error| report_unrecorded(&self.session, &error))
    }

    /// Submits the outcome to the log. The answer may be sent only once it is recorded.
    pub(crate) fn submit(mut self, decision: AuditDecision) -> PendingAuditEntry {
        self.set_decision(decision);
        let pending = self.session.host.approvals.submit(self.entry);
        PendingAuditEntry { pending, session: self.session }
    }

    fn set_decision(&mut self, decision: AuditDecision) {
        self.entry.at = now();
        self.entry.decision = decision;
        let elapsed = self.started.elapsed().as_micros();
        self.entry.latency_us = Some(u64::try_from(elapsed).unwrap_or(u64::MAX));
    }

    /// Records a failure, and returns the error for the answer. Blocks on the disk.
    pub(crate) fn record_failure(&mut self, failure: RpcError) -> RpcError {
        let decision = match &failure {
            RpcError::Denied { .. } | RpcError::OutsideRoots { .. } | RpcError::Busy { .. } => {
                AuditDecision::Denied
            }
            RpcError::Cancelled => AuditDecision::Cancelled,
            _ => AuditDecision::Failed,
        };
        let answered_by =
            self.missing_file_quirk.filter(|_| matches!(failure, RpcError::ResourceNotFound { .. }));
        self.entry.reason = Some(match answered_by {
            Some(quirk) => quirk.log_line(&failure.to_string()),
            None => failure.to_string(),
        });
        // If the failure cannot be recorded, that error is returned instead.
        self.record(decision).err().unwrap_or(failure)
    }
}

/// The outcome of an operation, on its way to the log.
pub(crate) struct PendingAuditEntry {
    pending: PendingAppend,
    session: Arc<SessionInner>,
}

impl PendingAuditEntry {
    /// Waits until the log has the outcome.
    pub(crate) async fn wait(self) -> Result<(), RpcError> {
        match self.pending.wait().await {
            Ok(_) => Ok(()),
            Err(error) => Err(report_unrecorded(&self.session, &error)),
        }
    }
}

fn report_unrecorded(session: &SessionInner, error: &AuditError) -> RpcError {
    session.show(HostEvent::Notice { text: &error.to_string() });
    ApprovalError::Unrecorded.into()
}

/// Authorizes an operation, unless its request or its turn is cancelled or its session ends meanwhile.
pub(crate) async fn authorize_operation(
    audited: &mut AuditedOperation,
    request: &ApprovalRequest,
    cancel: &CancelSignal,
) -> Result<OperationApproval, RpcError> {
    let session = audited.session.clone();
    let approval = tokio::select! {
        biased;
        () = cancel.fired() => return Err(RpcError::Cancelled),
        () = session.wait_until_inactive(audited.turn_at_start) => return Err(RpcError::Cancelled),
        approval = session.host.approvals.authorize(request) => approval,
    };
    match approval {
        Ok(approval) => {
            audited.entry_mut().decided_by = approval.decision_source();
            if let OperationApproval::Grant { call: Some(call) } = &approval {
                audited.entry_mut().call = Some(call.clone());
            }
            Ok(approval)
        }
        Err(error) => {
            audited.entry_mut().decided_by = error.decision_source();
            if let ApprovalError::Person { option, .. } = &error {
                audited.chosen_option.clone_from(option);
            }
            if let ApprovalError::PolicyUnusable(reason) = &error {
                session.show(HostEvent::Notice { text: reason });
            }
            Err(error.into())
        }
    }
}

impl HostInner {
    /// Returns whether changes found on disk now can only be the user's.
    pub(crate) fn attributes_changes_to_user(&self) -> bool {
        self.options.writes_through_host_only && self.unscanned_commands.load(Ordering::Relaxed) == 0
    }
}

/// Scans for earlier changes before a command starts, if they belong to no one, so that they are not attributed to the
/// command.
pub(crate) async fn scan_before_command(shared: &Arc<HostInner>) {
    initial_scan::wait_or_proceed(shared, "the command").await;
    let is_idle = shared.active_turns.load(Ordering::Relaxed) == 0
        && shared.unscanned_commands.load(Ordering::Relaxed) == 0;
    if (is_idle || shared.attributes_changes_to_user())
        && let Err(error) = scan_changes(shared, ChangeOrigin::default()).await
    {
        shared.front_end.show(HostEvent::Notice { text: &error.to_string() });
    }
}

/// Scans for changes on disk that did not pass through the host since the last scan, and attributes them to `origin`.
pub(crate) async fn scan_changes(
    shared: &Arc<HostInner>,
    origin: ChangeOrigin,
) -> Result<Vec<ChangeId>, HostError> {
    scan_changes_with(shared, Box::new(move |_| origin.clone())).await
}

/// What the user is told of a scan that takes long.
const SCAN_ACTIVITY: &str = "looking for changes on disk";

/// Returns the origin of a change to a file.
pub(crate) type OriginLookup = Box<dyn Fn(&str) -> ChangeOrigin + Send>;

/// Like [`scan_changes`], with an origin for each file.
pub(crate) async fn scan_changes_with(
    shared: &Arc<HostInner>,
    origin_of: OriginLookup,
) -> Result<Vec<ChangeId>, HostError> {
    if !initial_scan::is_done(shared) {
        return Ok(Vec::new());
    }
    let host = shared.clone();
    let observed = run_blocking(move || {
        let mut progress = |files| {
            host.front_end.show_progress(SCAN_ACTIVITY, Some(files));
            ControlFlow::Continue(())
        };
        let observed = host.workspace.observe_with_origins(&origin_of, &mut progress);
        host.front_end.show_progress(SCAN_ACTIVITY, None);
        let observed = observed?;
        for id in &observed.changes {
            let change = host.workspace.change(*id)?;
            let mut entry = AuditEntry::new(now(), AuditAction::Observed);
            let origin = change.origin;
            (entry.session, entry.turn, entry.call) = (origin.session, origin.turn, origin.call);
            entry.subject = AuditSubject::Path { requested: change.path, resolved: None };
            (entry.before, entry.after) =
                (change.before.map(|state| state.hash), change.after.map(|state| state.hash));
            host.approvals.record(&entry)?;
        }
        Ok::<_, HostError>(observed.changes)
    });
    observed.await?
}

/// Converts a failure to the JSON-RPC error for the agent.
pub(crate) fn to_rpc_result<T>(outcome: Result<T, RpcError>) -> Result<T, Error> {
    outcome.map_err(Error::from)
}
