//! Approvals decided elsewhere: evaluated here before the user is asked, and recorded as grants afterwards.

use bowline_policy::grants::{GrantHolder, ResolvedOperation};

use super::{ApprovalError, ApprovalRequest, Approvals, OperationApproval, decide_by_ruling};

impl Approvals {
    /// Returns the decision of the rules alone, or `None` if they require the user to be asked, which is left to the
    /// caller.
    pub async fn decide_by_rules(
        &self,
        request: &ApprovalRequest,
    ) -> Option<Result<OperationApproval, ApprovalError>> {
        match self.evaluate_off_thread(request).await {
            Ok((ruling, _)) => decide_by_ruling(&ruling),
            Err(refused) => Some(Err(refused)),
        }
    }

    /// Adds one-time grants for operations that a user approved elsewhere.
    pub fn grant(&self, holder: &GrantHolder, call: Option<&str>, deeds: Vec<ResolvedOperation>) {
        self.state().grants.add(holder, call, deeds);
    }
}
