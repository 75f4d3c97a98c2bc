//! Unreviewed files: files that tools execute, changed by agents and not yet approved by the user.
//!
//! A file becomes unreviewed when an agent writes it because a preset or a broad rule allows that. It counts as
//! reviewed again, until the next write, once the user approves a command that may execute it or a rule names it.

use std::path::Path;

use bowline_policy::operation::{Operation, OperationKind};
use bowline_policy::policy::{
    BuiltInRule, Effect, Policy, PolicyContext, PolicyDecision, PolicyReason, ReasonBasis,
};
use bowline_text::display::quote;

use super::unreviewed_list::UnreviewedList;
use super::{ApprovalError, ApprovalRequest, Approvals, MAX_UNREVIEWED_FILES, policy_context};

impl Approvals {
    /// Evaluates an operation and, if it is allowed, tracks the files that it changes.
    pub(super) fn judge_and_track(
        &self,
        policy: &Policy,
        operation: &Operation,
        context: &PolicyContext,
    ) -> PolicyDecision {
        let ruling = policy.evaluate(operation, context);
        if ruling.effect != Effect::Allow
            || matches!(operation.kind, OperationKind::Read | OperationKind::Fetch)
        {
            return ruling;
        }
        let files = policy.unreviewed_writes(operation, context);
        if self.track_unreviewed(files) {
            ruling
        } else {
            PolicyDecision { effect: Effect::Ask, reasons: Vec::new() }
        }
    }

    /// Adds files to the unreviewed ones. Returns `false` if there is no room or the list cannot be written.
    fn track_unreviewed(&self, files: Vec<String>) -> bool {
        if files.is_empty() {
            return true;
        }
        let mut state = self.state();
        let new: Vec<&String> = files.iter().filter(|file| !state.unreviewed.contains_key(*file)).collect();
        let has_room = state.unreviewed.len() + new.len() <= MAX_UNREVIEWED_FILES;
        let is_kept = || new.is_empty() || self.inner.unreviewed.add(new.iter().copied()).is_ok();
        if !has_room || !is_kept() {
            return false;
        }
        state.unreviewed_changes += 1;
        let change = state.unreviewed_changes;
        state.unreviewed.extend(files.into_iter().map(|file| (file, change)));
        state.combined_policy = None;
        true
    }

    /// Returns the unreviewed files that a request may execute, with the number of their last change.
    pub(super) fn unreviewed_files(&self, request: &ApprovalRequest, policy: &Policy) -> Vec<(String, u64)> {
        let context = policy_context(&request.question.holder);
        let operations = request.question.items.iter().map(|item| &item.operation);
        let files: Vec<String> =
            operations.flat_map(|operation| policy.unreviewed_executions(operation, &context)).collect();
        let state = self.state();
        let known = |file: String| state.unreviewed.get(&file).map(|change| (file, *change));
        files.into_iter().filter_map(known).collect()
    }

    /// Marks files as reviewed, because the user was shown them and allowed an operation that may execute them.
    ///
    /// # Errors
    /// Fails if one of them was changed while the question was open.
    pub(super) fn mark_reviewed(
        &self,
        request: &ApprovalRequest,
        shown: &[(String, u64)],
    ) -> Result<(), ApprovalError> {
        let mut state = self.state();
        let mut gone = Vec::new();
        for (file, change) in shown {
            if state.unreviewed.get(file) == Some(change) {
                state.unreviewed.remove(file);
                state.combined_policy = None;
                gone.push(file);
            }
        }
        if !gone.is_empty()
            && let Err(why) = self.inner.unreviewed.remove(&gone)
        {
            // A file that remains in the list is asked about once more after the next start.
            self.inner.approver.notify(&format!("the list of unreviewed files cannot be written: {why}"));
        }
        drop(state);
        let policy = self.policy().map_err(|why| ApprovalError::PolicyUnusable(why.to_string()))?;
        match self.unreviewed_files(request, &policy).first() {
            None => Ok(()),
            Some((file, _)) => {
                let why = format!("{} was changed while you were asked: ask again", quote(file));
                Err(ApprovalError::Failed(why))
            }
        }
    }
}

/// Returns the unreviewed files of a workspace, given the directory of its audit log.
#[must_use]
pub fn list_unreviewed(audit: &Path) -> Vec<String> {
    UnreviewedList::next_to_audit_log(audit).read().into_keys().collect()
}

/// Returns whether the reason is that an unreviewed file may be executed.
pub(super) fn is_unreviewed_reason(reason: &PolicyReason) -> bool {
    matches!(reason.basis, ReasonBasis::BuiltIn(BuiltInRule::ExecutesUnreviewedFile(_)))
}
