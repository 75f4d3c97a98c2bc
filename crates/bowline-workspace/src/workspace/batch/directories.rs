//! The directories that batches create and remove, recorded in a file beside the journal.
//!
//! The journal records files. A batch that creates or removes directories is recorded here before it changes anything.
//! If it is interrupted, its directories are completed or abandoned together with its files, whose outcome the journal
//! has. Of a batch without files, the journal has a change without content for each directory, recorded once it is done.
//! Undoing a batch restores the directories that it removed, and removes those that it created; redoing it does the
//! opposite. Directories are removed only if they are empty, so that no file depends on this record: without it, empty
//! directories stay, and restored ones have the usual mode.

use std::collections::{BTreeMap, BTreeSet};
use std::io::Read as _;
use std::path::PathBuf;

use bowline_history::changes::{Change, ChangeId, ChangeOrigin, ChangeSource};
use bowline_history::undo::ReversalDirection;
use bowline_policy::paths::{Access, path_below};
use bowline_storage::disk_calls::{DiskCall, DiskCalls};
use bowline_storage::{OpenMode, open_private, replace_file, with_suffix};
use bowline_text::time::Timestamp;
use serde::{Deserialize, Serialize};

use super::super::{Workspace, WorkspaceWriter};
use crate::error::FilesError;
use crate::journal::{ChangeDraft, ChangeFilter, Journal};
use crate::roots::Roots;

/// The file's name.
const DIRECTORIES_FILE: &str = "directories.json";
/// The maximum number of recorded batches; the oldest are dropped first.
const MAX_RECORDS: usize = 1000;
/// The maximum total length of the recorded paths, in bytes, beyond those of the newest batch.
const MAX_PATH_BYTES: usize = 1 << 20;
/// How much of the file is read: more than it can have.
const MAX_FILE_BYTES: u64 = 64 << 20;

/// A directory to create or to remove.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(in crate::workspace) struct DirectoryEntry {
    /// The canonical path.
    pub(super) path: String,
    /// Its mode. A directory that is created has at most this one, limited by the user's umask.
    pub(super) mode: u32,
}

/// What a batch does to directories.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct DirectoryChanges {
    /// The directories to create, parents first.
    pub(super) created: Vec<DirectoryEntry>,
    /// The directories to remove, contents first.
    pub(super) removed: Vec<DirectoryEntry>,
}

impl DirectoryChanges {
    pub(super) fn is_empty(&self) -> bool {
        self.created.is_empty() && self.removed.is_empty()
    }
}

/// The directories of one batch.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
struct DirectoryRecord {
    // The time of the batch, which its changes in the journal have.
    at: i64,
    // The last change in the journal before the batch, and the last one of the batch once it is done.
    after: i64,
    last: i64,
    // Parents first.
    created: Vec<DirectoryEntry>,
    // Contents first.
    removed: Vec<DirectoryEntry>,
    // The batch has no outcome yet.
    is_pending: bool,
}

impl DirectoryRecord {
    fn is_of(&self, change: &Change) -> bool {
        change.at.0 == self.at && change.id.0 > self.after && change.id.0 <= self.last
    }

    /// Returns the changes of the batch that were made; `None` if the journal cannot be read.
    fn changes(&self, journal: &Journal) -> Option<Vec<ChangeId>> {
        let filter = ChangeFilter { after: Some(ChangeId(self.after)), ..ChangeFilter::default() };
        let entries = journal.changes(&filter).ok()?;
        let own = entries.iter().filter(|entry| self.is_of(&entry.change));
        Some(own.map(|entry| entry.change.id).collect())
    }

    fn path_bytes(&self) -> usize {
        self.created.iter().chain(&self.removed).map(|directory| directory.path.len()).sum()
    }
}

/// Records that a batch is about to change directories.
pub(super) fn record_intent(
    workspace: &Workspace,
    journal: &Journal,
    changes: &DirectoryChanges,
    at: Timestamp,
) -> Result<(), FilesError> {
    let newest = journal.changes(&ChangeFilter { limit: Some(1), ..ChangeFilter::default() })?;
    let pending = DirectoryRecord {
        at: at.0,
        after: newest.last().map_or(0, |entry| entry.change.id.0),
        last: i64::MAX,
        created: changes.created.clone(),
        removed: changes.removed.clone(),
        is_pending: true,
    };
    let first = pending.created.first().or(pending.removed.first());
    let first = first.map(|directory| directory.path.clone()).unwrap_or_default();
    let mut records = read_records(workspace);
    records.push(pending);
    write_records(workspace, records).map_err(FilesError::io_error(&first))
}

/// Creates the directories of a batch. If that fails, [`settle_records`] removes them.
pub(super) fn create_directories(
    roots: &Roots,
    directories: &[DirectoryEntry],
    calls: &DiskCalls,
) -> Result<(), FilesError> {
    for directory in directories {
        let admitted = roots.admit(&directory.path, Access::Write)?;
        roots
            .create_directory(&admitted, directory.mode, calls)
            .map_err(FilesError::io_error(&directory.path))?;
    }
    Ok(())
}

/// Finishes a batch without files: removes its directories, and records a change for each directory, by which the batch
/// is undone.
pub(super) fn finish_without_files(
    (workspace, roots): (&Workspace, &Roots),
    journal: &mut Journal,
    changes: &DirectoryChanges,
    (origin, at): (&ChangeOrigin, Timestamp),
) -> Result<Vec<ChangeId>, FilesError> {
    for directory in &changes.removed {
        let removed = roots.try_remove_directory(&directory.path, &workspace.inner.calls);
        removed.map_err(FilesError::io_error(&directory.path))?;
    }
    let paths = changes.created.iter().chain(&changes.removed).map(|directory| directory.path.as_str());
    let drafts = paths.map(|path| ChangeDraft::applied((origin, ChangeSource::Written), path, None, None));
    let drafts: Vec<_> = drafts.collect();
    Ok(journal.record(&drafts, at)?)
}

/// The outcome of a batch.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum BatchResult {
    /// It was done, with this as its last change, if any: its directories are removed and recorded.
    Done { last: Option<ChangeId> },
    /// It was not done: the directories that it created are removed again.
    Abandoned,
}

/// Settles the directories of the batch in progress. Returns whether that succeeded; otherwise recovery tries again.
pub(super) fn settle_records(workspace: &Workspace, roots: &Roots, result: BatchResult) -> bool {
    settle_each(workspace, roots, |_| Some(result))
}

/// Settles the directories of interrupted batches, once the outcome of their files is known.
pub(in crate::workspace) fn recover_directories(
    workspace: &Workspace,
    writer: &mut WorkspaceWriter,
    roots: &Roots,
) {
    let journal = &writer.journal;
    let settled = settle_each(workspace, roots, |record| {
        let last = record.changes(journal)?.last().copied();
        Some(last.map_or(BatchResult::Abandoned, |last| BatchResult::Done { last: Some(last) }))
    });
    writer.needs_recovery |= !settled;
}

fn settle_each(
    workspace: &Workspace,
    roots: &Roots,
    result: impl Fn(&DirectoryRecord) -> Option<BatchResult>,
) -> bool {
    let mut records = read_records(workspace);
    if !records.iter().any(|record| record.is_pending) {
        return true;
    }
    let mut is_settled = true;
    for record in records.iter_mut().filter(|record| record.is_pending) {
        let done = match result(record) {
            Some(BatchResult::Done { last }) => {
                record.last = last.map_or(record.after, |last| last.0);
                remove_directories(workspace, roots, record.removed.iter())
            }
            Some(BatchResult::Abandoned) => {
                record.last = record.after;
                remove_directories(workspace, roots, record.created.iter().rev())
                    && restore_directories(workspace, roots, record.removed.iter().rev())
            }
            None => false,
        };
        record.is_pending = !done;
        is_settled &= done;
    }
    // Without changes nothing was done.
    records.retain(|record| record.is_pending || record.last > record.after);
    write_records(workspace, records).is_ok() && is_settled
}

/// The directories of batches whose changes are reversed.
#[derive(Debug, Default)]
pub(in crate::workspace) struct ReversedDirectories {
    // The directories to restore, parents first.
    restored: Vec<DirectoryEntry>,
    // The directories to remove once they are empty, contents first.
    removed: Vec<DirectoryEntry>,
    // The directories that were removed before, contents first.
    cleared: Vec<DirectoryEntry>,
}

impl ReversedDirectories {
    /// Finds the directories for a reversal of changes. If only a part of a batch is reversed, only the directories of
    /// its files, or those that it names, are restored.
    pub(in crate::workspace) fn find(
        workspace: &Workspace,
        journal: &Journal,
        direction: ReversalDirection,
        changes: &[Change],
    ) -> Self {
        let mut records = read_records(workspace);
        if records.is_empty() {
            return Self::default();
        }
        if direction == ReversalDirection::Undo {
            records.reverse();
        }
        let edits: Vec<Change> = match direction {
            ReversalDirection::Undo => changes.to_vec(),
            ReversalDirection::Redo => {
                let undone = changes.iter().flat_map(|undo| &undo.reverses);
                undone.filter_map(|edit| Some(journal.change(edit.change).ok()??.change)).collect()
            }
        };
        // By path: the directory, and whether it is restored in the end. A directory sorts before its content.
        let mut all: BTreeMap<String, (DirectoryEntry, bool)> = BTreeMap::new();
        for record in records {
            let reversed = edits.iter().filter(|edit| record.is_of(edit)).count();
            if reversed == 0 {
                continue;
            }
            let is_whole = record.changes(journal).is_some_and(|all| all.len() == reversed);
            let is_needed = |directory: &DirectoryEntry| {
                is_whole || changes.iter().any(|change| path_below(&change.path, &directory.path).is_some())
            };
            let has_files = edits.iter().any(|edit| record.is_of(edit) && !edit.is_without_content());
            let (restored, removed) = match direction {
                ReversalDirection::Undo => (record.removed, record.created),
                ReversalDirection::Redo => (record.created, record.removed),
            };
            let restored = restored.into_iter().filter(is_needed).map(|directory| (directory, true));
            let removed = removed.into_iter().filter(|directory| has_files || is_needed(directory));
            let reversed = removed.map(|directory| (directory, false)).chain(restored);
            all.extend(reversed.map(|reversed| (reversed.0.path.clone(), reversed)));
        }
        let (restored, mut removed): (Vec<_>, Vec<_>) =
            all.into_values().partition(|(_, is_restored)| *is_restored);
        removed.reverse();
        let directories =
            |list: Vec<(DirectoryEntry, bool)>| list.into_iter().map(|(directory, _)| directory).collect();
        Self { restored: directories(restored), removed: directories(removed), cleared: Vec::new() }
    }

    /// Returns the paths of the directories.
    pub(in crate::workspace) fn paths(&self) -> impl Iterator<Item = &str> {
        self.restored.iter().chain(&self.removed).map(|directory| &*directory.path)
    }

    /// Returns the paths of the directories to restore.
    pub(in crate::workspace) fn restored_paths(&self) -> impl Iterator<Item = &str> {
        self.restored.iter().map(|directory| &*directory.path)
    }

    /// Removes the directories that stand where `files` are needed, and `other` ones, as far as they are empty. The
    /// reversal restores those of the batches if it fails.
    pub(in crate::workspace) fn clear(
        &mut self,
        workspace: &Workspace,
        roots: &Roots,
        files: &[&str],
        other: impl IntoIterator<Item = impl Into<String>>,
    ) {
        let is_in_place = |path: &str| files.iter().any(|file| path_below(path, file).is_some());
        let own = self.removed.iter().map(|directory| &directory.path).filter(|path| is_in_place(path));
        let all: BTreeSet<String> = own.cloned().chain(other.into_iter().map(Into::into)).collect();
        // A directory is a prefix of its content, and so comes before it. One that is not empty stays, and the file that
        // needs its path reports the conflict.
        let remove = |path: &String| roots.remove_empty_directory(path, &workspace.inner.calls);
        let removed: BTreeSet<String> = all.into_iter().rev().filter(remove).collect();
        self.cleared.extend(self.removed.extract_if(.., |directory| removed.contains(&directory.path)));
    }

    /// Returns whether a directory was removed because a file needed its place.
    pub(in crate::workspace) fn has_cleared(&self, path: &str) -> bool {
        self.cleared.iter().any(|directory| directory.path == path)
    }

    /// Restores directories, before their files. What cannot be restored is created with the files that need it.
    pub(in crate::workspace) fn restore(&mut self, workspace: &Workspace, roots: &Roots) {
        self.restored.retain(|directory| {
            let admitted = roots.admit(&directory.path, Access::Write).ok();
            let missing = admitted.filter(|admitted| !admitted.exists());
            missing.is_some_and(|missing| {
                roots.create_directory(&missing, directory.mode, &workspace.inner.calls).is_ok()
            })
        });
    }

    /// Removes the directories that the reversal leaves empty. One that cannot be removed stays.
    pub(in crate::workspace) fn finish(&self, workspace: &Workspace, roots: &Roots) {
        remove_directories(workspace, roots, self.removed.iter());
    }

    /// Removes the restored directories and restores those that were removed, because the reversal failed.
    pub(in crate::workspace) fn abandon(&self, workspace: &Workspace, roots: &Roots) {
        remove_directories(workspace, roots, self.restored.iter().rev());
        restore_directories(workspace, roots, self.cleared.iter().rev());
    }
}

/// Removes directories, as far as they are empty. Returns whether no removal failed.
fn remove_directories<'d>(
    workspace: &Workspace,
    roots: &Roots,
    directories: impl Iterator<Item = &'d DirectoryEntry>,
) -> bool {
    let mut is_done = true;
    for directory in directories {
        is_done &= roots.try_remove_directory(&directory.path, &workspace.inner.calls).is_ok();
    }
    is_done
}

/// Creates directories that are missing. Returns whether all exist.
fn restore_directories<'d>(
    workspace: &Workspace,
    roots: &Roots,
    mut directories: impl Iterator<Item = &'d DirectoryEntry>,
) -> bool {
    directories.all(|directory| {
        let Ok(admitted) = roots.admit(&directory.path, Access::Write) else { return true };
        admitted.exists() || roots.create_directory(&admitted, directory.mode, &workspace.inner.calls).is_ok()
    })
}

fn records_file(workspace: &Workspace) -> PathBuf {
    workspace.inner.journal_directory.join(DIRECTORIES_FILE)
}

fn read_records(workspace: &Workspace) -> Vec<DirectoryRecord> {
    let read = || {
        let mut text = String::new();
        let file = open_private(&records_file(workspace), OpenMode::Read, &DiskCalls::default()).ok()?;
        file.take(MAX_FILE_BYTES).read_to_string(&mut text).ok()?;
        serde_json::from_str(&text).ok()
    };
    // A missing or damaged record costs no more than empty directories.
    read().unwrap_or_default()
}

fn write_records(workspace: &Workspace, mut records: Vec<DirectoryRecord>) -> std::io::Result<()> {
    let mut bytes: usize = records.iter().map(DirectoryRecord::path_bytes).sum();
    while records.len() > 1 && (records.len() > MAX_RECORDS || bytes > MAX_PATH_BYTES) {
        bytes -= records.remove(0).path_bytes();
    }
    let file = records_file(workspace);
    // The record is replaced by a rename.
    workspace.inner.calls.check(DiskCall::Rename)?;
    let written = replace_file(&file, &with_suffix(&file, ".new"), &serde_json::to_vec(&records)?);
    written.map_err(|_| std::io::Error::other("the record of directories cannot be written"))
}
