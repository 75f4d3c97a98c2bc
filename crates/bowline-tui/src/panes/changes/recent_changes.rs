//! The changes that are listed: the newest edits, with the undos that determine which of them are undone.

use std::collections::HashSet;

use bowline_history::changes::{Change, ChangeId};
use bowline_workspace::workspace::ListedChange;

use super::ChangeEntry;

/// Listed changes, oldest first.
#[derive(Debug, Clone, Default)]
pub(crate) struct RecentChanges {
    /// The newest edits, and the undos in effect that reverted some of them.
    pub(crate) entries: Vec<ChangeEntry>,
    /// The number of older edits.
    pub(crate) older_counts: OlderCounts,
}

/// The number of edits not listed in favour of newer ones.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct OlderCounts {
    /// By agents.
    pub(crate) agents: usize,
    /// By others, such as the user.
    pub(crate) others: usize,
}

/// Returns whether the user may have made a change: it belongs to no session, or it was only observed on disk without
/// an explanation.
pub(crate) fn is_possibly_users(change: &Change) -> bool {
    change.origin.session.is_none() || change.is_unattributed()
}

/// Returns the newest `limit` edits of agents and as many of others, with the undos in effect that reverted some of
/// them, and the number of older edits. Undos and redos do not count towards `limit`, because there may be any number
/// of them; others' edits do not displace agents' edits.
pub(crate) fn select_newest(
    mut changes: Vec<ListedChange>,
    limit: usize,
) -> (Vec<ListedChange>, OlderCounts) {
    let mut kept: HashSet<ChangeId> = HashSet::new();
    let mut older_counts = OlderCounts::default();
    for by_others in [false, true] {
        let is_candidate = |listed: &&ListedChange| {
            listed.change.reverses.is_empty() && is_possibly_users(&listed.change) == by_others
        };
        let surplus = changes.iter().filter(is_candidate).count().saturating_sub(limit);
        kept.extend(changes.iter().filter(is_candidate).skip(surplus).map(|edit| edit.change.id));
        *(if by_others { &mut older_counts.others } else { &mut older_counts.agents }) = surplus;
    }
    changes.retain(|listed| {
        let mut reverses = listed.change.reverses.iter();
        kept.contains(&listed.change.id)
            || listed.is_in_effect && reverses.any(|reversal| kept.contains(&reversal.change))
    });
    (changes, older_counts)
}
