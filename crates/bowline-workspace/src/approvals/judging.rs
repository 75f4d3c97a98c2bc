//! What the rules say: the user's, and those of turns and sessions.

use std::sync::Arc;

use bowline_state::grants::Holder;
use bowline_state::operation::Operation;
use bowline_state::policy::{Policy, Rule, Ruling};

use super::{Approvals, context};
use crate::policy::PolicyError;

impl Approvals {
    /// Says what the rules come to for an operation. One that they let pass is taken for done: if it changes files that tools
    /// execute, these count as unreviewed from then on.
    ///
    /// # Errors
    /// Returns why the rules cannot be used.
    pub fn judge(&self, holder: &Holder, operation: &Operation) -> Result<Ruling, PolicyError> {
        let policy = self.policy()?;
        Ok(self.noted(&policy, operation, &context(holder)))
    }

    /// Says what the rules would come to for an operation if there were one more, and does nothing.
    ///
    /// # Errors
    /// Returns why the rules cannot be used.
    pub fn try_rule(
        &self,
        rule: Rule,
        holder: &Holder,
        operation: &Operation,
    ) -> Result<Ruling, PolicyError> {
        let mut policy = Policy::clone(&*self.policy()?);
        policy.rules.push(rule);
        Ok(policy.judge(operation, &context(holder)))
    }

    /// Returns the rules that hold now: the user's, and those of turns and sessions.
    ///
    /// # Errors
    /// Returns why the user's cannot be used.
    pub fn policy(&self) -> Result<Arc<Policy>, PolicyError> {
        let from_file = self.inner.file.as_ref().map(|file| file.stated()).transpose()?;
        let (from_file, stated) = from_file.map_or((None, None), |(policy, stated)| (Some(policy), stated));
        let mut state = self.state();
        let base = from_file.unwrap_or_else(|| match &state.whole {
            Some((base, _)) => base.clone(),
            None => Arc::new(Policy { roots: self.inner.roots.clone(), ..Policy::default() }),
        });
        if let Some((known, whole)) = &state.whole
            && Arc::ptr_eq(known, &base)
        {
            return Ok(whole.clone());
        }
        let mut whole = Policy::clone(&base);
        whole.preset = state.fallback.preset(stated);
        whole.rules.extend(state.kept.iter().cloned());
        whole.roots.extend(state.roots.iter().cloned());
        whole.unreviewed.extend(state.unreviewed.keys().cloned());
        let whole = Arc::new(whole);
        state.whole = Some((base, whole.clone()));
        Ok(whole)
    }
}
