//! Which of all changes are listed: the newest edits, with what tells which of them are taken back.

use std::collections::HashSet;

use bowline_state::changes::{Change, ChangeId};
use bowline_workspace::workspace::Changed;

use super::Entry;

/// Changes that are listed, oldest first.
#[derive(Debug, Clone, Default)]
pub(crate) struct Listed {
    /// The newest edits, and the undos in effect that took back some of them.
    pub(crate) entries: Vec<Entry>,
    /// How many edits are older than these.
    pub(crate) older: Older,
}

/// How many edits are not listed because newer ones are.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct Older {
    /// Of agents.
    pub(crate) agents: usize,
    /// Of others: the user, for one.
    pub(crate) others: usize,
}

/// Says whether the user may have made a change: it belongs to no session, or it was merely found on disk and nothing
/// explains it.
pub(crate) fn may_be_users(change: &Change) -> bool {
    change.origin.session.is_none() || change.is_unexplained()
}

/// Returns the newest `most` edits of agents and as many of others, with the undos that took back some of them and are in
/// effect, and how many older edits there are. Undos and redos leave no room to edits: there may be any number of them.
/// Nor do edits of others to those of agents.
pub(crate) fn newest(mut changed: Vec<Changed>, most: usize) -> (Vec<Changed>, Older) {
    let mut kept: HashSet<ChangeId> = HashSet::new();
    let mut older = Older::default();
    for of_others in [false, true] {
        let is_wanted = |changed: &&Changed| {
            changed.change.reverses.is_empty() && may_be_users(&changed.change) == of_others
        };
        let surplus = changed.iter().filter(is_wanted).count().saturating_sub(most);
        kept.extend(changed.iter().filter(is_wanted).skip(surplus).map(|edit| edit.change.id));
        *(if of_others { &mut older.others } else { &mut older.agents }) = surplus;
    }
    changed.retain(|changed| {
        let mut reverses = changed.change.reverses.iter();
        kept.contains(&changed.change.id)
            || changed.in_effect && reverses.any(|reversal| kept.contains(&reversal.change))
    });
    (changed, older)
}
