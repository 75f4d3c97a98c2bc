//! Files that tools execute and that agents changed: which of them a person has yet to approve.

use std::path::Path;

use bowline_state::failure::quote;
use bowline_state::operation::{Kind, Operation};
use bowline_state::policy::{Context, Effect, Ground, Law, Policy, Reason, Ruling};

use super::unreviewed_list::UnreviewedList;
use super::{Approvals, MAX_UNREVIEWED, Refused, Request, context};

impl Approvals {
    /// Judges an operation, and notes the files that it changes if rules let it pass.
    pub(super) fn noted(&self, policy: &Policy, operation: &Operation, context: &Context) -> Ruling {
        let ruling = policy.judge(operation, context);
        if ruling.effect != Effect::Allow || matches!(operation.kind, Kind::Read | Kind::Fetch) {
            return ruling;
        }
        let files = policy.unreviewed_writes(operation, context);
        if self.note(files) { ruling } else { Ruling { effect: Effect::Ask, because: Vec::new() } }
    }

    /// Notes files that no person has approved, and says whether that could be done.
    fn note(&self, files: Vec<String>) -> bool {
        if files.is_empty() {
            return true;
        }
        let mut state = self.state();
        let new: Vec<&String> = files.iter().filter(|file| !state.unreviewed.contains_key(*file)).collect();
        let has_room = state.unreviewed.len() + new.len() <= MAX_UNREVIEWED;
        let is_kept = || new.is_empty() || self.inner.unreviewed.add(new.iter().copied()).is_ok();
        if !has_room || !is_kept() {
            return false;
        }
        state.unreviewed_changes += 1;
        let change = state.unreviewed_changes;
        state.unreviewed.extend(files.into_iter().map(|file| (file, change)));
        state.whole = None;
        true
    }

    /// Returns the unreviewed files that a request may execute, with the number of their last change.
    pub(super) fn unreviewed(&self, request: &Request, policy: &Policy) -> Vec<(String, u64)> {
        let context = context(&request.holder);
        let operations = request.items.iter().map(|item| &item.operation);
        let files: Vec<String> =
            operations.flat_map(|operation| policy.unreviewed_runs(operation, &context)).collect();
        let state = self.state();
        let known = |file: String| state.unreviewed.get(&file).map(|change| (file, *change));
        files.into_iter().filter_map(known).collect()
    }

    /// Takes files for approved, because a person who was told of them has allowed what may execute them.
    ///
    /// # Errors
    /// Says so if one was changed while the person was asked.
    pub(super) fn review(&self, request: &Request, shown: &[(String, u64)]) -> Result<(), Refused> {
        let mut state = self.state();
        let mut gone = Vec::new();
        for (file, change) in shown {
            if state.unreviewed.get(file) == Some(change) {
                state.unreviewed.remove(file);
                state.whole = None;
                gone.push(file);
            }
        }
        if !gone.is_empty()
            && let Err(why) = self.inner.unreviewed.remove(&gone)
        {
            // What stays in the list is asked about once more by the next program.
            self.inner.person.tell(&format!("the list of unreviewed files cannot be written: {why}"));
        }
        drop(state);
        let policy = self.policy().map_err(|why| Refused::Rulebook(why.to_string()))?;
        match self.unreviewed(request, &policy).first() {
            None => Ok(()),
            Some((file, _)) => {
                let why = format!("{} was changed while you were asked: ask again", quote(file));
                Err(Refused::Failed(why))
            }
        }
    }
}

/// Returns the files that tools execute and that agents changed in a workspace without a person's approval, given the
/// directory of its audit log.
#[must_use]
pub fn unreviewed(audit: &Path) -> Vec<String> {
    UnreviewedList::beside(audit).read().into_keys().collect()
}

/// Says whether a reason is that an unreviewed file may be executed.
pub(super) fn is_unreviewed(reason: &Reason) -> bool {
    matches!(reason.ground, Ground::Law(Law::Unreviewed(_)))
}
