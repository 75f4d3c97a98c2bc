//! Sessions that another client serves: their operations are authorized and recorded here, and their changes on disk
//! are found.

use std::collections::VecDeque;
use std::sync::PoisonError;
use std::sync::atomic::Ordering;

pub use bowline_history::attribution::AttributedChange;
use bowline_history::changes::ChangeOrigin;
use bowline_policy::audit::{AuditAction, AuditDecision, DecisionSource};
use bowline_protocol::accumulator::ToolCallView;
use bowline_protocol::permission::{PermissionVerdict, answered_by, unanswered_reason};
pub use bowline_protocol::relay::operation::{PermissionRuling, RelayedOperation};
use bowline_protocol::rpc_error::RpcError;
use bowline_protocol::schema::v1::{
    PermissionOption, RequestPermissionResponse, SessionId, StopReason, ToolCallId,
};
use bowline_text::display;

use super::LocalSession;
use crate::error::HostError;
use crate::front_end::HostEvent;
use crate::host::Host;
use crate::operations::relay::{self, RelayedRuling};
use crate::operations::{self, AuditedOperation, initial_scan, run_blocking};
use crate::session::ActiveTurnGuard;

/// The maximum number of permission requests that another client has yet to answer; the oldest are evicted.
const MAX_PENDING_PERMISSIONS: usize = 256;

/// The permission requests that another client has yet to answer.
#[derive(Default)]
pub(super) struct PendingPermissions(VecDeque<PendingPermission>);

impl std::fmt::Debug for PendingPermissions {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_tuple("Waiting").field(&self.0.len()).finish()
    }
}

struct PendingPermission {
    operation: AuditedOperation,
    request: bowline_access::approvals::ApprovalRequest,
    options: Vec<PermissionOption>,
}

impl Host {
    /// Opens a session that another client serves. An existing session keeps its name, and its turns continue their
    /// numbering.
    ///
    /// # Errors
    /// Fails if the journal or the audit log cannot be used.
    pub async fn relayed_session(
        &self,
        id: &SessionId,
        is_old: bool,
        agent: Option<String>,
    ) -> Result<LocalSession, HostError> {
        if !is_old {
            return self.local_session(&id.0, agent).await;
        }
        let (shared, owned_id) = (self.inner.clone(), id.clone());
        let (name, last) = run_blocking(move || {
            let name = shared.reserve_existing_name(&owned_id)?;
            let last = shared.workspace.last_turn(&name)?;
            Ok::<_, HostError>((name, last))
        })
        .await??;
        let session = self.create_local_session(id.clone(), name, agent).await?;
        session.inner.session.continue_turns_from(last.unwrap_or_default());
        Ok(session)
    }
}

impl LocalSession {
    /// Runs the initial scan, so that later changes can be found. Turns do this by themselves; the first scan of a
    /// large project takes long.
    ///
    /// # Errors
    /// Fails if the journal cannot be used.
    pub async fn run_initial_scan(&self) -> Result<(), HostError> {
        initial_scan::wait_until_done(&self.inner.session.host).await
    }

    /// Begins a turn. Changes before it are attributed to no one.
    ///
    /// # Errors
    /// Fails if a turn is in progress, the session has ended, or the journal or the audit log cannot be used.
    pub async fn begin_turn(&self) -> Result<u64, HostError> {
        let session = &self.inner.session;
        operations::verify_roots(session.files.roots())?;
        let turn = session.begin_turn()?;
        *self.inner.active_turn.lock().unwrap_or_else(PoisonError::into_inner) =
            Some(ActiveTurnGuard::new(&session.host));
        initial_scan::prepare_turn(&session.host).await?;
        if session.host.active_turns.load(Ordering::Relaxed) == 1 {
            session.scan_changes(ChangeOrigin::default()).await;
        }
        let (shared, entry) = (session.host.clone(), session.audit_entry(AuditAction::TurnStart, Some(turn)));
        run_blocking(move || shared.approvals.record(&entry)).await??;
        session.show(HostEvent::TurnStarted { session: &session.id, turn });
        Ok(turn)
    }

    /// Ends the turn in progress, if any, after scanning for its remaining changes.
    ///
    /// # Errors
    /// Fails if the journal or the audit log cannot be used. The turn has ended nevertheless.
    pub async fn end_turn(
        &self,
        stop: Option<StopReason>,
        call_of: impl Fn(&str) -> Option<String> + Send + 'static,
    ) -> Result<Vec<AttributedChange>, HostError> {
        let session = &self.inner.session;
        let Some(turn) = session.holder(session.turn_status()).turn else { return Ok(Vec::new()) };
        initial_scan::finish_turn(&session.host).await;
        let found = self.scan_changes(call_of).await;
        let ended = session.end_turn(turn, stop).await;
        *self.inner.active_turn.lock().unwrap_or_else(PoisonError::into_inner) = None;
        ended.and(found)
    }

    /// Withdraws every question of the turn in progress, and kills its commands.
    pub async fn cancel_turn(&self) {
        let session = &self.inner.session;
        if let Some(turn) = session.cancel_turn() {
            session.kill_turn_commands(turn).await;
        }
    }

    /// Scans for changes on disk since the last scan, and attributes them to this session: to the turn in progress, and
    /// to the tool call that `call_of` returns for a file.
    ///
    /// # Errors
    /// Fails if the journal or the audit log cannot be used.
    pub async fn scan_changes(
        &self,
        call_of: impl Fn(&str) -> Option<String> + Send + 'static,
    ) -> Result<Vec<AttributedChange>, HostError> {
        let session = &self.inner.session;
        let (files, turn) = (session.files.clone(), session.holder(session.turn_status()).turn);
        let call_of = Box::new(move |path: &str| files.origin(turn, call_of(path).as_deref()));
        let changes = operations::scan_changes_with(&session.host, call_of).await?;
        let workspace = session.host.workspace.clone();
        run_blocking(move || {
            let found = changes.into_iter().map(|id| {
                let change = workspace.change(id)?;
                let (before, after) = workspace.change_texts(id)?;
                Ok(AttributedChange {
                    change: id,
                    path: change.path,
                    call: change.origin.call,
                    before,
                    after,
                })
            });
            found.collect()
        })
        .await?
    }

    /// Returns the decision of the rules on a permission request, given all that is known of its tool call.
    ///
    /// # Errors
    /// Fails if the request cannot be evaluated or recorded.
    pub async fn evaluate_permission(
        &self,
        call: ToolCallView,
        options: Vec<PermissionOption>,
    ) -> Result<PermissionRuling, RpcError> {
        let owned_options = options.clone();
        let ruling = self
            .run_operation(None, |session, context| {
                relay::evaluate_permission(session, context, call, owned_options)
            })
            .await?;
        Ok(match ruling {
            RelayedRuling::Decided(response) => PermissionRuling::Decided(response),
            RelayedRuling::AskUser(prepared) => {
                let (operation, request) = *prepared;
                let mut pending =
                    self.inner.pending_permissions.lock().unwrap_or_else(PoisonError::into_inner);
                pending.0.retain(|entry| entry.request.question.call != request.question.call);
                if pending.0.len() >= MAX_PENDING_PERMISSIONS {
                    pending.0.pop_front();
                }
                pending.0.push_back(PendingPermission { operation, request, options });
                PermissionRuling::AskUser
            }
        })
    }

    /// Records the answer to a permission request that the other client showed to its user. An approved operation is
    /// granted once, as it was shown.
    ///
    /// # Errors
    /// Fails if the answer cannot be recorded.
    pub async fn record_permission_outcome(
        &self,
        call: &ToolCallId,
        response: &RequestPermissionResponse,
    ) -> Result<(), RpcError> {
        let Some(PendingPermission { mut operation, request, options }) = self.take_pending_permission(call)
        else {
            return Ok(());
        };
        let (unanswered, answered_by) = (unanswered_reason(response), answered_by(response));
        let verdict = PermissionVerdict::from_outcome(&options, &response.outcome);
        let is_approved = unanswered.is_none() && verdict.is_ok_and(|verdict| verdict.is_approved());
        let approvals = self.inner.session.host.approvals.clone();
        run_blocking(move || {
            operation.entry_mut().decided_by = match (&unanswered, answered_by) {
                (Some(_), _) => DecisionSource::NotDecided,
                (None, Some(name)) => DecisionSource::Principal(name),
                // Only the editor knows whether a user answered.
                (None, None) => DecisionSource::Client,
            };
            operation.entry_mut().reason = unanswered;
            operation.record(if is_approved { AuditDecision::Allowed } else { AuditDecision::Denied })?;
            if is_approved && operation.check_active().is_ok() {
                approvals.grant(
                    &request.question.holder,
                    request.question.call.as_deref(),
                    request.resolved_operations,
                );
            }
            Ok(())
        })
        .await?
    }

    /// Records that a permission request was allowed without asking the user, because the tool itself asks. This grants
    /// nothing.
    ///
    /// # Errors
    /// Fails if that cannot be recorded.
    pub async fn record_delegated_permission(&self, call: &ToolCallId) -> Result<(), RpcError> {
        let Some(PendingPermission { operation: mut operating, request, .. }) =
            self.take_pending_permission(call)
        else {
            return Ok(());
        };
        let title = display::escape_line(&request.question.title, 200);
        let text = format!("allowed {title}, without asking: the tool asks by itself");
        self.inner.session.show(HostEvent::Notice { text: &text });
        run_blocking(move || {
            operating.entry_mut().decided_by = DecisionSource::NotDecided;
            operating.entry_mut().reason = Some("the tool asks by itself".to_owned());
            operating.record(AuditDecision::Allowed)
        })
        .await?
    }

    fn take_pending_permission(&self, call: &ToolCallId) -> Option<PendingPermission> {
        let mut pending = self.inner.pending_permissions.lock().unwrap_or_else(PoisonError::into_inner);
        let at = pending.0.iter().position(|entry| entry.request.question.call.as_deref() == Some(&*call.0));
        at.and_then(|at| pending.0.remove(at))
    }

    /// Authorizes an operation that the other client will carry out. Asks the user where the rules require it.
    ///
    /// # Errors
    /// Returns the reason for the denial.
    pub async fn authorize(&self, operation: RelayedOperation, call: Option<&str>) -> Result<(), RpcError> {
        self.run_operation(call, |session, context| relay::authorize_relayed(session, context, operation))
            .await
    }

    /// Returns the turn in progress, if any.
    #[must_use]
    pub fn current_turn(&self) -> Option<u64> {
        let session = &self.inner.session;
        session.holder(session.turn_status()).turn
    }
}
