//! Moves of files: which changes are the two halves of one, and where the file of an earlier change is now.

use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};

use crate::changes::{Change, ChangeId};

/// A move: the file was created at its new path and removed from its old one.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct FileMove<'a> {
    /// The creation. It replaced a file if that existed.
    pub creation: &'a Change,
    /// The removal.
    pub removal: &'a Change,
}

/// The moves in a history, those that undid and redid others included.
#[derive(Debug, Default)]
pub struct FileMoves<'a> {
    moves: Vec<FileMove<'a>>,
    // The first changes of the groups that were made together.
    groups: Vec<ChangeId>,
    // What happened to the agent's moves, in order.
    events: Vec<MoveEvent<'a>>,
    // The events that move a file from a path or to it, and those of a move.
    by_path: HashMap<&'a str, Vec<usize>>,
    by_edit: HashMap<ChangeId, Vec<usize>>,
    // The edits that were undone and redone, with the last group that redid them, and the path there.
    redone: HashMap<ChangeId, (usize, &'a str)>,
}

/// A move of the agent that is made, undone or redone.
#[derive(Debug, Clone, Copy)]
struct MoveEvent<'a> {
    // The creation that made the move at first.
    edit: ChangeId,
    is_undo: bool,
    from: &'a str,
    to: &'a str,
    // The creation of the file at its new path now, or another change that stands for it.
    creation: ChangeId,
    // The number of the group.
    group: usize,
}

impl<'a> FileMoves<'a> {
    /// Finds the moves of a history in the journal's order.
    #[must_use]
    pub fn find(history: &'a [Change]) -> Self {
        let mut found = Self::default();
        // The edits that a change undoes or redoes.
        let mut edits: HashMap<ChangeId, Vec<ChangeId>> = HashMap::new();
        for changes in history.chunk_by(|first, second| first.at == second.at) {
            let known = found.moves.len();
            found.groups.extend(changes.first().map(|first| first.id));
            let removals = changes.iter().filter(|change| change.after.is_none());
            let removals: HashMap<&str, &Change> =
                removals.map(|change| (change.path.as_str(), change)).collect();
            for creation in changes {
                let removal = creation.moved_from.as_deref().and_then(|from| removals.get(from).copied());
                let removal = removal.filter(|removal| removal.id > creation.id);
                found.moves.extend(removal.map(|removal| FileMove { creation, removal }));
            }
            let moves = found.moves[known..].to_vec();
            for FileMove { creation, removal } in &moves {
                if creation.reverses.is_empty() {
                    let (edit, group) = (creation.id, found.groups.len());
                    let (from, to) = (&removal.path, &creation.path);
                    found.push_event(MoveEvent { edit, is_undo: false, from, to, creation: edit, group });
                }
            }
            found.find_reversals(changes, &moves, &mut edits);
        }
        found
    }

    /// Finds the edits that a group undoes or redoes, and the moves among them: those that are undone from the last to
    /// the first.
    fn find_reversals(
        &mut self,
        changes: &'a [Change],
        moves: &[FileMove<'_>],
        edits: &mut HashMap<ChangeId, Vec<ChangeId>>,
    ) {
        let group = self.groups.len();
        let ids = moves.iter().map(|moved| [moved.creation.id, moved.removal.id]);
        let creations: HashMap<ChangeId, ChangeId> =
            ids.flat_map(|[creation, removal]| [(creation, creation), (removal, creation)]).collect();
        let mut reversed: BTreeMap<ChangeId, ChangeId> = BTreeMap::new();
        for change in changes {
            let mut own = Vec::new();
            for reversal in change.reverses.iter().filter(|reversal| reversal.hunks.is_none()) {
                match edits.get(&reversal.change) {
                    Some(redone) => {
                        self.redone.extend(redone.iter().map(|edit| (*edit, (group, change.path.as_str()))));
                        own.extend_from_slice(redone);
                    }
                    None => own.push(reversal.change),
                }
            }
            if own.is_empty() {
                continue;
            }
            let creation = creations.get(&change.id).copied().unwrap_or(change.id);
            reversed.extend(own.iter().map(|edit| (*edit, creation)));
            edits.insert(change.id, own);
        }
        let reversed = reversed.into_iter().filter_map(|(edit, creation)| {
            let MoveEvent { is_undo, from, to, .. } = self.events[*self.by_edit.get(&edit)?.last()?];
            Some(MoveEvent { edit, is_undo: !is_undo, from: to, to: from, creation, group })
        });
        let (undone, redone): (Vec<_>, Vec<_>) = reversed.partition(|event| event.is_undo);
        undone.into_iter().rev().chain(redone).for_each(|event| self.push_event(event));
    }

    fn push_event(&mut self, event: MoveEvent<'a>) {
        let index = self.events.len();
        self.by_edit.entry(event.edit).or_default().push(index);
        for path in [event.from, event.to] {
            self.by_path.entry(path).or_default().push(index);
        }
        self.events.push(event);
    }

    /// Returns the moves of which both changes are among these.
    pub fn among(&self, chosen: &[ChangeId]) -> impl Iterator<Item = FileMove<'a>> {
        let chosen: HashSet<ChangeId> = chosen.iter().copied().collect();
        let is_among = move |moved: &FileMove<'a>| {
            [moved.creation.id, moved.removal.id].iter().all(|id| chosen.contains(id))
        };
        self.moves.iter().copied().filter(is_among)
    }

    /// Adds the other change of each move of which one is among these. Both are made and reversed together.
    pub(super) fn complete(&self, chosen: &mut Vec<ChangeId>, can_choose: impl Fn(ChangeId) -> bool) {
        let mut all: BTreeSet<ChangeId> = chosen.iter().copied().collect();
        for moved in &self.moves {
            let ids = [moved.creation.id, moved.removal.id];
            if ids.iter().any(|id| all.contains(id)) && ids.iter().all(|id| can_choose(*id)) {
                all.extend(ids);
            }
        }
        if all.len() > chosen.len() {
            *chosen = all.into_iter().rev().collect();
        }
    }

    /// Returns the path that the file of a change has now: later moves are followed.
    #[must_use]
    pub fn current_path(&self, change: &'a Change) -> &'a str {
        self.later_moves(change).last().map_or(&change.path, |last| last.to)
    }

    /// Returns the path that the file of a change has once the moves with these creations are reversed.
    #[must_use]
    pub fn path_without(&self, change: &'a Change, reversed: &HashSet<ChangeId>) -> &'a str {
        let is_reversed = |moved: &MoveEvent<'_>| {
            // Changes are reversed in the opposite order in which they were made at first.
            let is_redone = !moved.is_undo && moved.edit > change.id && reversed.contains(&moved.edit);
            is_redone || reversed.contains(&moved.creation)
        };
        match self.later_moves(change).into_iter().find(is_reversed) {
            Some(first) => first.from,
            None => self.current_path(change),
        }
    }

    /// Returns the events that moved a change's file after it, in order.
    fn later_moves(&self, change: &'a Change) -> Vec<MoveEvent<'a>> {
        let (mut path, mut next) = self.last_place(change);
        let mut later = Vec::new();
        // After a removal there is no file to follow.
        while change.after.is_some() {
            let of_path = self.by_path.get(path).map_or(&[][..], Vec::as_slice);
            let Some(index) = first_from(of_path, next) else { break };
            let event = self.events[index];
            next = index + 1;
            if event.from == path {
                path = event.to;
                later.push(event);
            } else if !event.is_undo {
                // Another file replaced it, until that is undone.
                let of_edit = self.by_edit.get(&event.edit).map_or(&[][..], Vec::as_slice);
                let Some(undone) = first_from(of_edit, next) else { break };
                next = undone + 1;
            }
        }
        later
    }

    /// Returns the path at which a change was made or redone for the last time, and the index of the first event after
    /// that.
    fn last_place(&self, change: &'a Change) -> (&'a str, usize) {
        let own = || self.groups.partition_point(|first| *first <= change.id);
        let redone = self.redone.get(&change.id);
        let group = redone.map_or_else(own, |(group, _)| *group);
        let end = self.events.partition_point(|event| event.group <= group);
        let Some((_, path)) = redone else { return (&change.path, end) };
        let start = self.events.partition_point(|event| event.group < group);
        if start == end {
            return (path, end);
        }
        // The group redid its edits in their order.
        let earlier =
            self.events[start..end].iter().take_while(|event| event.is_undo || event.edit <= change.id);
        (&change.path, start + earlier.count())
    }
}

/// Returns the first of some numbers in order that is not less than another one.
fn first_from(numbers: &[usize], start: usize) -> Option<usize> {
    numbers.get(numbers.partition_point(|number| *number < start)).copied()
}
