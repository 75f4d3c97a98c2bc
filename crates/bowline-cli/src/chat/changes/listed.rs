//! Which of all changes are listed: the newest edits, with what tells which of them are taken back.

use std::collections::HashSet;

use bowline_state::changes::ChangeId;
use bowline_workspace::workspace::Changed;

use super::Entry;

/// Changes that are listed, oldest first.
#[derive(Debug, Clone, Default)]
pub(crate) struct Listed {
    /// The newest edits, and the undos in effect that took back some of them.
    pub(crate) entries: Vec<Entry>,
    /// How many edits are older than these.
    pub(crate) older: usize,
}

/// Returns the newest `most` edits of all changes with the undos that took back some of them and are in effect, and how
/// many older edits there are. Undos and redos leave no room to edits: there may be any number of them.
pub(crate) fn newest(mut changed: Vec<Changed>, most: usize) -> (Vec<Changed>, usize) {
    let is_edit = |changed: &Changed| changed.change.reverses.is_empty();
    let older = changed.iter().filter(|changed| is_edit(changed)).count().saturating_sub(most);
    let edits = changed.iter().filter(|changed| is_edit(changed)).skip(older);
    let kept: HashSet<ChangeId> = edits.map(|edit| edit.change.id).collect();
    changed.retain(|changed| {
        let mut reverses = changed.change.reverses.iter();
        kept.contains(&changed.change.id)
            || changed.in_effect && reverses.any(|reversal| kept.contains(&reversal.change))
    });
    (changed, older)
}
