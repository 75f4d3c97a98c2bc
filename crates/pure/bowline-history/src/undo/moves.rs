//! Moves of files: which changes are the two halves of one, and where the file of an earlier change is now.

use std::collections::{BTreeSet, HashMap, HashSet};

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
    // The indexes of the moves that start or end at a path, in order.
    by_path: HashMap<&'a str, Vec<usize>>,
}

impl<'a> FileMoves<'a> {
    /// Finds the moves of a history in the journal's order.
    #[must_use]
    pub fn find(history: &'a [Change]) -> Self {
        let mut found = Self::default();
        for (index, creation) in history.iter().enumerate() {
            let Some(from) = &creation.moved_from else { continue };
            // The changes of a move are recorded together.
            let mut others = history[index + 1..].iter().take_while(|other| other.at == creation.at);
            let Some(removal) = others.find(|other| other.path == *from && other.after.is_none()) else {
                continue;
            };
            for path in [&creation.path, &removal.path] {
                found.by_path.entry(path).or_default().push(found.moves.len());
            }
            found.moves.push(FileMove { creation, removal });
        }
        found
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
        self.later_moves(change).last().map_or(&change.path, |last| &last.creation.path)
    }

    /// Returns the path that the file of a change has once the moves with these creations are reversed.
    #[must_use]
    pub fn path_without(&self, change: &'a Change, reversed: &HashSet<ChangeId>) -> &'a str {
        let is_reversed = |moved: &FileMove<'_>| reversed.contains(&moved.creation.id);
        match self.later_moves(change).into_iter().find(is_reversed) {
            Some(first) => &first.removal.path,
            None => self.current_path(change),
        }
    }

    /// Returns the moves of a change's file after it, in order.
    fn later_moves(&self, change: &'a Change) -> Vec<FileMove<'a>> {
        let (mut path, mut after) = (change.path.as_str(), change.id);
        let mut later = Vec::new();
        // After a removal there is no file to follow.
        while change.after.is_some() {
            let indexes = self.by_path.get(path).into_iter().flatten();
            let next = indexes.map(|index| self.moves[*index]).find(|moved| moved.creation.id > after);
            // Otherwise another file was moved here and replaced it.
            let Some(next) = next.filter(|next| next.removal.path == path) else { break };
            (path, after) = (&next.creation.path, next.removal.id);
            later.push(next);
        }
        later
    }
}
