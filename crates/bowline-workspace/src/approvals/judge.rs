//! Evaluation of operations against the current policy: the user's rules, and those of turns and sessions.

use std::sync::Arc;

use bowline_policy::grants::GrantHolder;
use bowline_policy::operation::Operation;
use bowline_policy::policy::{Policy, PolicyDecision, Rule};

use super::{Approvals, policy_context};
use crate::policy::PolicyError;

impl Approvals {
    /// Returns the policy's decision on an operation. An allowed operation is assumed to be carried out: executed files
    /// that it changes count as unreviewed from then on.
    ///
    /// # Errors
    /// Returns an error if the policy cannot be used.
    pub fn judge(&self, holder: &GrantHolder, operation: &Operation) -> Result<PolicyDecision, PolicyError> {
        let policy = self.policy()?;
        Ok(self.judge_and_track(&policy, operation, &policy_context(holder)))
    }

    /// Returns the policy's decision on an operation given one more rule, without side effects.
    ///
    /// # Errors
    /// Returns an error if the policy cannot be used.
    pub fn judge_with_rule(
        &self,
        rule: Rule,
        holder: &GrantHolder,
        operation: &Operation,
    ) -> Result<PolicyDecision, PolicyError> {
        let mut policy = Policy::clone(&*self.policy()?);
        policy.rules.push(rule);
        Ok(policy.evaluate(operation, &policy_context(holder)))
    }

    /// Returns the current policy: the user's rules, and those of turns and sessions.
    ///
    /// # Errors
    /// Returns an error if the user's policy file cannot be used.
    pub fn policy(&self) -> Result<Arc<Policy>, PolicyError> {
        let from_file = self.inner.file.as_ref().map(|file| file.policy_and_preset()).transpose()?;
        let (from_file, stated) = from_file.map_or((None, None), |(policy, stated)| (Some(policy), stated));
        let mut state = self.state();
        let base = from_file.unwrap_or_else(|| match &state.combined_policy {
            Some((base, _)) => base.clone(),
            None => Arc::new(Policy { roots: self.inner.roots.clone(), ..Policy::default() }),
        });
        if let Some((known, whole)) = &state.combined_policy
            && Arc::ptr_eq(known, &base)
        {
            return Ok(whole.clone());
        }
        let mut whole = Policy::clone(&base);
        whole.preset = state.fallback.preset(stated);
        whole.rules.extend(state.transient_rules.iter().cloned());
        whole.roots.extend(state.roots.iter().cloned());
        whole.unreviewed_files.extend(state.unreviewed.keys().cloned());
        let whole = Arc::new(whole);
        state.combined_policy = Some((base, whole.clone()));
        Ok(whole)
    }
}
