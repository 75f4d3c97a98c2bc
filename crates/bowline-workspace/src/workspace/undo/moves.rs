//! Reversing changes of files that were moved: a file whose move is reversed goes back with the text that it has by then.

use std::collections::{BTreeMap, HashMap};

use bowline_history::changes::{Change, ChangeId, FileState, Reversal};
use bowline_history::undo::{FileMove, ReversalError, ReversalErrorReason};
use indexmap::IndexMap;

use super::super::reversal::{OptionalFile, ReversalOptions, load_stored_file, reverse_all};
use crate::error::FilesError;
use crate::journal::Journal;

/// Files among which moves are to be reversed, or a single file.
#[derive(Debug, Default)]
pub(super) struct FileGroup<'a> {
    /// The changes to reverse, newest first, by path.
    pub(super) files: Vec<(&'a str, &'a [Change])>,
    moves: Vec<FileMove<'a>>,
}

/// A file of a group after the reversal.
#[derive(Debug, Default)]
pub(super) struct GroupedFile<'a> {
    pub(super) file: OptionalFile,
    /// The path at which the file was before, if that is another one.
    pub(super) moved_from: Option<&'a str>,
    /// Whether the file comes from the journal, not from the disk.
    pub(super) is_restored: bool,
    pub(super) reverses: Vec<Reversal>,
    pub(super) resolved_count: usize,
}

/// Groups files by the moves that are to be reversed: the creation of a file and its removal at another path.
pub(super) fn group_files<'a>(
    by_file: &'a IndexMap<String, Vec<Change>>,
    moves: &[(ChangeId, ChangeId)],
) -> Vec<FileGroup<'a>> {
    let single = |(path, changes): (&'a String, &'a Vec<Change>)| {
        Some(FileGroup { files: vec![(path.as_str(), changes.as_slice())], moves: Vec::new() })
    };
    let mut groups: Vec<Option<FileGroup<'a>>> = by_file.iter().map(single).collect();
    if moves.is_empty() {
        return groups.into_iter().flatten().collect();
    }
    // The group of each file, and the file of each change.
    let mut group_of: Vec<usize> = (0..groups.len()).collect();
    let with_file = |(file, changes): (usize, &'a Vec<Change>)| {
        changes.iter().map(move |change| (change.id, (file, change))).collect::<Vec<_>>()
    };
    let changes: HashMap<ChangeId, (usize, &'a Change)> =
        by_file.values().enumerate().flat_map(with_file).collect();
    for (creation, removal) in moves {
        let (Some(&(to, creation)), Some(&(from, removal))) = (changes.get(creation), changes.get(removal))
        else {
            continue;
        };
        let (kept, joined) = (group_of[to], group_of[from]);
        if kept != joined {
            let other = groups[joined].take().unwrap_or_default();
            group_of.iter_mut().filter(|group| **group == joined).for_each(|group| *group = kept);
            if let Some(group) = &mut groups[kept] {
                group.files.extend(other.files);
                group.moves.extend(other.moves);
            }
        }
        if let Some(group) = &mut groups[kept] {
            group.moves.push(FileMove { creation, removal });
        }
    }
    groups.into_iter().flatten().collect()
}

impl<'a> FileGroup<'a> {
    pub(super) fn has_moves(&self) -> bool {
        !self.moves.is_empty()
    }

    /// Reverses the changes of a group, given its files as they are. Returns the files in the same order.
    pub(super) fn reverse(
        &self,
        journal: &Journal,
        files: Vec<OptionalFile>,
        options: ReversalOptions<'_>,
    ) -> Result<Vec<GroupedFile<'a>>, FilesError> {
        let was_absent: Vec<bool> = files.iter().map(Option::is_none).collect();
        let mut states: IndexMap<&str, GroupedFile<'a>> = IndexMap::new();
        for ((path, _), file) in self.files.iter().zip(files) {
            states.insert(path, GroupedFile { file, ..GroupedFile::default() });
        }
        let by_removal: HashMap<ChangeId, FileMove<'a>> =
            self.moves.iter().map(|moved| (moved.removal.id, *moved)).collect();
        let by_creation: HashMap<ChangeId, FileMove<'a>> =
            self.moves.iter().map(|moved| (moved.creation.id, *moved)).collect();
        let is_move =
            |change: &Change| by_removal.contains_key(&change.id) || by_creation.contains_key(&change.id);
        let with_path = |(path, changes): &(&'a str, &'a [Change])| {
            changes.iter().map(|change| (change.id, (*path, change))).collect::<Vec<_>>()
        };
        let steps: BTreeMap<ChangeId, (&'a str, &'a Change)> =
            self.files.iter().flat_map(with_path).collect();
        let steps: Vec<_> = steps.into_values().rev().collect();
        for run in steps.chunk_by(|newer, older| newer.0 == older.0 && !is_move(newer.1) && !is_move(older.1))
        {
            let Some(&(path, change)) = run.first() else { continue };
            if let Some(moved) = by_creation.get(&change.id) {
                // Its removal is newer, and has been reversed.
                let reversal = Reversal { change: moved.creation.id, hunks: None };
                if let Some(state) = states.get_mut(path) {
                    state.reverses.push(reversal);
                }
            } else if let Some(moved) = by_removal.get(&change.id) {
                self.reverse_move(journal, &mut states, moved, options)?;
            } else if let Some(state) = states.get_mut(path) {
                let changes: Vec<&Change> = run.iter().map(|(_, change)| *change).collect();
                state.is_restored |= state.file.is_none();
                let reversed = reverse_all(journal, state.file.take(), &changes, options)?;
                state.file = reversed.file;
                if state.file.is_none() {
                    state.moved_from = None;
                }
                state.reverses.extend(reversed.reverses);
                state.resolved_count += reversed.resolved_count;
            }
        }
        let mut files: Vec<_> = states.into_values().collect();
        // The file passed through the other paths. What is reversed there is redone with it.
        let is_passed =
            |(file, was_absent): &(&mut GroupedFile<'_>, &bool)| **was_absent && file.file.is_none();
        if files.iter().any(|file| file.moved_from.is_some()) {
            let passed = files.iter_mut().zip(&was_absent).filter(is_passed);
            let passed: Vec<_> = passed.flat_map(|(file, _)| std::mem::take(&mut file.reverses)).collect();
            files.iter_mut().filter(|file| file.moved_from.is_some()).take(1).for_each(|moved| {
                moved.reverses.extend(passed.iter().cloned());
            });
        }
        Ok(files)
    }

    /// Moves a file back, and restores the one that it replaced.
    fn reverse_move(
        &self,
        journal: &Journal,
        states: &mut IndexMap<&str, GroupedFile<'a>>,
        moved: &FileMove<'a>,
        options: ReversalOptions<'_>,
    ) -> Result<(), FilesError> {
        let FileMove { creation, removal } = *moved;
        let failed =
            |change: &Change, reason| ReversalError { path: change.path.clone(), change: change.id, reason };
        let is_creation = |change: &Change| change.id == creation.id;
        let current = self.files.iter().find(|(_, changes)| changes.iter().any(is_creation));
        if let Some((path, _)) = current.filter(|(path, _)| *path != creation.path) {
            return Err(failed(creation, ReversalErrorReason::MovedSince((*path).to_owned())).into());
        }
        let load = |state: Option<FileState>| -> Result<OptionalFile, FilesError> {
            let Some((state, bytes)) = load_stored_file(journal, state)? else { return Ok(None) };
            match bytes {
                Some(bytes) => Ok(Some((bytes, state.mode))),
                None if creation.is_pruned() => Err(failed(creation, ReversalErrorReason::Pruned).into()),
                None => Err(failed(creation, ReversalErrorReason::ContentUnavailable).into()),
            }
        };
        let replaced = load(creation.before)?;
        let Some(target) = states.get_mut(creation.path.as_str()) else { return Ok(()) };
        let is_restored = std::mem::replace(&mut target.is_restored, true) || target.file.is_none();
        let file = std::mem::replace(&mut target.file, replaced);
        let moved_from = target.moved_from.take().unwrap_or(&creation.path);
        let file = match file {
            // The move and what else the changes of it did, as one change of the file.
            Some(file) => {
                let change = Change { before: removal.before, ..creation.clone() };
                reverse_all(journal, Some(file), &[&change], options)?.file
            }
            // It was removed since, and is restored.
            None => load(removal.before)?,
        };
        let Some(source) = states.get_mut(removal.path.as_str()) else { return Ok(()) };
        if source.file.is_some() {
            return Err(failed(removal, ReversalErrorReason::PathOccupied).into());
        }
        source.file = file;
        source.moved_from = Some(moved_from).filter(|from| !is_restored && *from != removal.path);
        source.is_restored = is_restored;
        source.reverses.push(Reversal { change: removal.id, hunks: None });
        Ok(())
    }
}
