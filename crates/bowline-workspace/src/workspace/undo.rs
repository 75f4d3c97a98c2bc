//! Undo and redo: selecting changes, planning each file, applying all plans or none.
//!
//! [`bowline_history::undo`] decides which changes are selected and how each file is reversed. This module supplies the
//! texts from the journal and the disk. Unsaved text is saved first as the user's own change, and the files are then
//! planned again.
//!
//! Where a file has become a directory, or a directory a file, the obstacles are removed first: their files as a
//! separate group, all or none, then the directories that this leaves empty, then the remaining files are reversed. If
//! that fails, the first group is restored. If the process dies in between, the journal records what was reversed, and
//! repeating the undo completes the rest.

mod moves;

use std::collections::{BTreeSet, HashMap, HashSet};
use std::sync::{Arc, MutexGuard};

use bowline_history::changes::{Change, ChangeId, ChangeOrigin, ChangeSource, Reversal};
use bowline_history::ledger::WriteRejectedError;
use bowline_history::undo::{
    self, ChangeSelection, ConflictResolution, FileMoves, ReversalDirection, ReversalError,
    ReversalErrorReason, ReversalPlan, TailPlan, TailStep,
};
use bowline_policy::paths::Access;
use bowline_text::text;
use bowline_text::time::Timestamp;
use indexmap::IndexMap;
use rustix::fs::FileType;

use super::apply::{
    ApplyError, ChangeGroup, CurrentFile, FileBytes, NewFile, PlannedChange, ProgressCallback, TailChange,
    apply_changes, read_current,
};
use super::batch::directories::ReversedDirectories;
use super::documents::{DocumentEvent, Documents};
use super::editor::merge_with_disk;
use super::notifications::WorkspaceNotification;
use super::recover::recover_interrupted;
use super::reversal::{
    OptionalFile, ReversalOptions, ReversedContent, StoredFile, has_stored_texts, reverse_all,
    stored_file_from_bytes,
};
use super::write::encode_text;
use super::{Workspace, WorkspaceSession, WorkspaceWriter};
use crate::disk;
use crate::disk::replace::tail::{TailEdit, can_cut};
use crate::disk::writers::{self, WaitPurpose};
use crate::error::FilesError;
use crate::journal::{ChangeDraft, ChangeFilter, DraftSide, Journal};
use crate::roots::{AdmittedPath, Roots};
use moves::{FileGroup, GroupedFile, group_files};

/// How many times an undo is planned while its files keep changing.
const MAX_ATTEMPTS: usize = 8;

/// The maximum size of one undo in bytes, before and after together.
const MAX_UNDO_BYTES: usize = 512 << 20;

/// The reversal of one file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ReversedFile {
    /// The file.
    pub path: String,
    /// The change that reversed others.
    pub change: ChangeId,
    /// Whether the file changed; it may already have been in that state.
    pub is_changed: bool,
    /// How many conflicting places were resolved as requested.
    pub resolved_count: usize,
}

/// The result of an undo or redo.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct UndoOutcome {
    /// The files in which changes were reversed.
    pub files: Vec<ReversedFile>,
    /// Observed changes whose text is unknown, so that they could not be reversed with the rest.
    pub skipped: Vec<ChangeId>,
}

/// The effect of an undo or redo on one file.
#[derive(Debug)]
pub struct FileUndoPreview {
    /// The canonical path.
    pub path: String,
    /// The changes that would be reversed, newest first.
    pub changes: Vec<ChangeId>,
    /// The effect as a git patch, empty if the file is already in that state; or why it is impossible.
    pub patch: Result<String, FilesError>,
}

/// The effect of an undo or redo.
#[derive(Debug)]
pub struct UndoPreview {
    /// The files.
    pub files: Vec<FileUndoPreview>,
    /// Changes whose text is unknown, which would be left in effect.
    pub skipped: Vec<ChangeId>,
}

/// The changes to reverse.
struct SelectedChanges {
    /// The files where they are now, each with its changes, newest first.
    files: IndexMap<String, Vec<Change>>,
    /// The changes that create and remove a moved file.
    moves: Vec<(ChangeId, ChangeId)>,
    /// As in [`UndoOutcome`].
    skipped: Vec<ChangeId>,
    /// The selection, with its file under the path that the journal knows.
    selection: ChangeSelection,
}

/// The plan for one file of an undo or redo.
struct FilePlan {
    admitted: AdmittedPath,
    current: Option<CurrentFile>,
    planned: ReversalPlan,
    // Only the end of the file changes: there is no `current`, and nothing else is planned.
    tail: Option<TailChange>,
    // The path from which it moves a file here.
    moved_from: Option<String>,
    reverses: Vec<Reversal>,
    resolved: usize,
    document_path: Option<String>,
    // Whether an open document has text that its file lacks.
    has_unsaved_text: bool,
    // It is a directory, which changes with the others of its batch.
    is_directory: bool,
}

/// A file in which changes are to be reversed, as it is.
struct ReversibleFile {
    admitted: AdmittedPath,
    current: Option<CurrentFile>,
    document_path: Option<String>,
    has_unsaved_text: bool,
    // The file with its unsaved text.
    shown: OptionalFile,
}

impl ReversibleFile {
    fn into_plan(self, reversed: GroupedFile<'_>) -> FilePlan {
        let GroupedFile { file, moved_from, reverses, resolved_count: resolved, .. } = reversed;
        FilePlan {
            admitted: self.admitted,
            current: self.current,
            planned: plan_content(file, &self.shown),
            tail: None,
            moved_from: moved_from.map(str::to_owned),
            reverses,
            resolved,
            document_path: self.document_path,
            has_unsaved_text: self.has_unsaved_text,
            is_directory: false,
        }
    }
}

/// How changes are reversed.
#[derive(Clone, Copy)]
struct ReversalContext<'a> {
    verb: &'static str,
    options: ReversalOptions<'a>,
    origin: &'a ChangeOrigin,
    // All changes of one undo share this time, by which a redo finds them.
    at: Timestamp,
    progress: ProgressCallback<'a>,
}

impl FilePlan {
    fn bytes(&self) -> usize {
        let new = match &self.planned {
            ReversalPlan::Write { bytes, .. } => bytes.len(),
            ReversalPlan::Unchanged | ReversalPlan::Delete => {
                self.tail.as_ref().map_or(0, |tail| tail.bytes.len())
            }
        };
        new + self.current.as_ref().map_or(0, |current| current.bytes.len())
    }

    /// Returns the plan as a patch.
    fn format(self, workspace: &Workspace, path: &str) -> String {
        match self.tail {
            Some(tail) => workspace.format_tail_patch(path, &tail),
            None => format_plan(workspace, path, self.current, self.planned),
        }
    }
}

/// Returns how a file takes its new content.
fn plan_content(new: OptionalFile, shown: &OptionalFile) -> ReversalPlan {
    match new {
        new if new == *shown => ReversalPlan::Unchanged,
        Some((bytes, mode)) => ReversalPlan::Write { bytes, mode },
        None => ReversalPlan::Delete,
    }
}

fn format_plan(
    workspace: &Workspace,
    path: &str,
    current: Option<CurrentFile>,
    planned: ReversalPlan,
) -> String {
    let new = match planned {
        ReversalPlan::Unchanged => return String::new(),
        ReversalPlan::Delete => None,
        ReversalPlan::Write { bytes, mode } => Some(stored_file_from_bytes(bytes, mode)),
    };
    workspace.format_patch(path, current.map(to_stored_file), new)
}

impl WorkspaceSession {
    /// Undoes the selected changes, all or none. Later edits are kept.
    ///
    /// # Errors
    /// Returns why nothing was undone, for instance because later edits touch the same lines.
    pub fn undo(
        &self,
        selection: &ChangeSelection,
        origin: &ChangeOrigin,
    ) -> Result<UndoOutcome, FilesError> {
        self.undo_or_redo(selection, origin, ReversalDirection::Undo, ConflictResolution::Refuse, None)
    }

    /// Redoes the selected changes by reversing their undos.
    ///
    /// # Errors
    /// As [`WorkspaceSession::undo`].
    pub fn redo(
        &self,
        selection: &ChangeSelection,
        origin: &ChangeOrigin,
    ) -> Result<UndoOutcome, FilesError> {
        self.undo_or_redo(selection, origin, ReversalDirection::Redo, ConflictResolution::Refuse, None)
    }

    /// Returns the effect of an undo or redo on each file, without performing it.
    pub(super) fn preview_undo(
        &self,
        direction: ReversalDirection,
        selection: &ChangeSelection,
    ) -> Result<UndoPreview, FilesError> {
        let workspace = &self.workspace;
        let writer = workspace.writer();
        let SelectedChanges { files, moves, skipped: left, selection } =
            self.select_changes(&writer.journal, selection, direction)?;
        let options =
            ReversalOptions { hunks: selected_hunks(direction, &selection), ..ReversalOptions::default() };
        let documents = workspace.documents();
        let mut foreseen = Vec::new();
        let reversed: Vec<Change> = files.values().flatten().cloned().collect();
        let directories = ReversedDirectories::find(workspace, &writer.journal, direction, &reversed);
        let paths: Vec<&str> = files.keys().map(String::as_str).chain(directories.paths()).collect();
        let mut conflicting = undo::find_nested_paths(&paths);
        conflicting.extend(directories.paths());
        for group in group_files(&files, &moves) {
            let describe = |(path, changes): &(&str, &[Change]), patch| FileUndoPreview {
                path: (*path).to_owned(),
                changes: changes.iter().map(|change| change.id).collect(),
                patch,
            };
            match self.preview_group(&writer.journal, &documents, &group, options, &conflicting) {
                Ok(patches) => {
                    let patches = patches.into_iter().map(Ok);
                    foreseen
                        .extend(group.files.iter().zip(patches).map(|(file, patch)| describe(file, patch)));
                }
                Err(error) => foreseen.extend(group.files.first().map(|file| describe(file, Err(error)))),
            }
        }
        Ok(UndoPreview { files: foreseen, skipped: left })
    }

    /// Returns the effect of a reversal on the files of a group as patches. What prevents only the reading of
    /// `conflicting` paths is removed by then.
    fn preview_group(
        &self,
        journal: &Journal,
        documents: &Documents,
        group: &FileGroup<'_>,
        options: ReversalOptions<'_>,
        conflicting: &[&str],
    ) -> Result<Vec<String>, FilesError> {
        let workspace = &self.workspace;
        let paths = group.files.iter().map(|(path, _)| *path);
        let error = match self.plan_group(journal, documents, group, options) {
            Ok(plans) => {
                return Ok(paths.zip(plans).map(|(path, plan)| plan.format(workspace, path)).collect());
            }
            Err(error) => error,
        };
        let mut files = Vec::new();
        for path in paths.clone() {
            let admitted = self.admit_changed(path);
            match admitted.and_then(|admitted| self.read_reversible(documents, admitted)) {
                Ok(file) => files.push((file.current, file.shown)),
                Err(_) if conflicting.contains(&path) => files.push((None, None)),
                Err(_) => return Err(error),
            }
        }
        let shown = files.iter().map(|(_, shown)| shown.clone()).collect();
        let Ok(reversed) = group.reverse(journal, shown, options) else { return Err(error) };
        let format = |((path, (current, shown)), reversed): ((&str, _), GroupedFile<'_>)| {
            format_plan(workspace, path, current, plan_content(reversed.file, &shown))
        };
        Ok(paths.zip(files).zip(reversed).map(format).collect())
    }

    pub(super) fn undo_or_redo(
        &self,
        selection: &ChangeSelection,
        origin: &ChangeOrigin,
        direction: ReversalDirection,
        resolution: ConflictResolution,
        tell: ProgressCallback<'_>,
    ) -> Result<UndoOutcome, FilesError> {
        let workspace = &self.workspace;
        let mut writer = workspace.writer();
        recover_interrupted(workspace, &mut writer, &self.roots)?;
        let _lock = writer.journal.lock()?;
        let SelectedChanges { files: mut by_file, moves, skipped: left, selection } =
            self.select_changes(&writer.journal, selection, direction)?;
        let options = ReversalOptions { hunks: selected_hunks(direction, &selection), resolution };
        let at = writer.next_group_time();
        let meant = ReversalContext { verb: direction.verb(), options, origin, at, progress: tell };
        let reversed: Vec<Change> = by_file.values().flatten().cloned().collect();
        let mut directories = ReversedDirectories::find(workspace, &writer.journal, direction, &reversed);
        let mut files = self.remove_obstacles(&mut writer, &by_file, &mut directories, &meant)?;
        files.iter().for_each(|cleared| _ = by_file.shift_remove(&cleared.path));
        writer.recent_directories.record(directories.paths(), origin);
        directories.restore(workspace, &self.roots);
        match self.reverse_files(&mut writer, &group_files(&by_file, &moves), &meant) {
            Ok(mut rest) => {
                // The plans found the cleared directories gone already.
                rest.iter_mut().for_each(|file| file.is_changed |= directories.has_cleared(&file.path));
                files.extend(rest);
                directories.finish(workspace, &self.roots);
                workspace.inner.notifier.notify(WorkspaceNotification::Changes);
                Ok(UndoOutcome { files, skipped: left })
            }
            Err(error) => {
                if !matches!(error, FilesError::Interrupted { .. }) {
                    directories.abandon(workspace, &self.roots);
                }
                if self.restore_obstacles(&mut writer, &files, &meant) {
                    return Err(error);
                }
                let path = files.first().map(|cleared| cleared.path.clone()).unwrap_or_default();
                Err(FilesError::PartlyUndone { path, why: error.to_string() })
            }
        }
    }

    /// Reverses changes of files, all or none.
    fn reverse_files(
        &self,
        writer: &mut WorkspaceWriter,
        groups: &[FileGroup<'_>],
        meant: &ReversalContext<'_>,
    ) -> Result<Vec<ReversedFile>, FilesError> {
        let workspace = &self.workspace;
        let mut raced_path = String::new();
        for _ in 0..MAX_ATTEMPTS {
            let mut documents = workspace.documents();
            let mut plans = Vec::new();
            let mut bytes = 0;
            for group in groups {
                let mut planned = self.plan_group(&writer.journal, &documents, group, meant.options)?;
                // As in a batch, the removal of a moved file follows its creation.
                planned.sort_by_key(|plan| plan.moved_from.is_none());
                bytes += planned.iter().map(FilePlan::bytes).sum::<usize>();
                if bytes > MAX_UNDO_BYTES {
                    let files = groups.iter().map(|group| group.files.len()).sum();
                    let what = meant.verb;
                    return Err(FilesError::UndoTooLarge { what, files, cap: MAX_UNDO_BYTES });
                }
                plans.extend(planned);
            }
            // All files can be reversed. Unsaved text is the user's change, and is saved first, so that it is kept.
            let unsaved =
                plans.iter().filter(|plan| plan.has_unsaved_text).map(|plan| plan.admitted.canonical());
            let unsaved: Vec<String> = unsaved.map(str::to_owned).collect();
            let done = if unsaved.is_empty() {
                self.apply_plans(writer, &mut documents, plans, meant)
            } else {
                let save = |path: &String| {
                    workspace.save_locked_document(writer, &mut documents, &self.roots, path).map(|_| ())
                };
                // The files are then planned again.
                unsaved
                    .iter()
                    .try_for_each(save)
                    .and(Err(ApplyError::Raced(unsaved.first().cloned().unwrap_or_default())))
            };
            match done {
                Ok(files) => return Ok(files),
                Err(ApplyError::Raced(path)) => raced_path = path,
                Err(ApplyError::Failed(error)) => return Err(error),
            }
        }
        Err(FilesError::KeepsChanging(raced_path))
    }

    /// Returns the changes to reverse, by file, newest first.
    fn select_changes(
        &self,
        journal: &Journal,
        selection: &ChangeSelection,
        direction: ReversalDirection,
    ) -> Result<SelectedChanges, FilesError> {
        let entries = journal.changes(&ChangeFilter::default())?;
        let history: Vec<Change> = entries.into_iter().map(|entry| entry.change).collect();
        let selection = with_canonical_path(selection, &history, &self.roots);
        let chosen = match direction {
            ReversalDirection::Undo => undo::changes_to_undo(&history, &selection),
            ReversalDirection::Redo => undo::changes_to_redo(&history, &selection),
        };
        if chosen.is_empty() {
            let all = ChangeSelection { only_explained: false, ..selection };
            let found = if direction == ReversalDirection::Undo {
                undo::changes_to_undo(&history, &all)
            } else {
                Vec::new()
            };
            let of_found = history.iter().filter(|change| found.contains(&change.id));
            let files: HashSet<&str> = of_found.map(|change| change.path.as_str()).collect();
            let only_found = (!files.is_empty()).then_some(FilesError::OnlyObservedChanges(files.len()));
            return Err(only_found.unwrap_or(FilesError::NothingToUndo(direction.verb())));
        }
        let all = FileMoves::find(&history);
        let is_whole = selected_hunks(direction, &selection).is_none();
        let moves: Vec<_> = all.among(&chosen).filter(|_| is_whole).collect();
        let reversed: HashSet<ChangeId> = moves.iter().map(|moved| moved.creation.id).collect();
        let is_chosen: HashSet<ChangeId> = chosen.iter().copied().collect();
        let locate = |change| (change, all.path_without(change, &reversed).to_owned());
        let located = history.iter().filter(|change| is_chosen.contains(&change.id)).map(locate);
        let mut by_id: HashMap<ChangeId, (Change, String)> =
            located.map(|(change, path)| (change.id, (change.clone(), path))).collect();
        let moves = moves.iter().map(|moved| (moved.creation.id, moved.removal.id)).collect();
        let mut files: IndexMap<String, Vec<Change>> = IndexMap::new();
        let mut left = Vec::new();
        for (change, path) in chosen.iter().filter_map(|id| by_id.remove(id)) {
            // A selection of several changes skips those whose texts are lost; a single change reports why it cannot be
            // reversed.
            let is_lost = chosen.len() > 1
                && change.source == ChangeSource::Observed
                && !has_stored_texts(journal, &change)?;
            if is_lost {
                left.push(change);
            } else {
                files.entry(path).or_default().push(change);
            }
        }
        if let (true, Some(change)) = (files.is_empty(), left.first()) {
            let path = change.path.clone();
            return Err(ReversalError {
                path,
                change: change.id,
                reason: ReversalErrorReason::ContentUnavailable,
            }
            .into());
        }
        let left = left.into_iter().map(|change| change.id).collect();
        Ok(SelectedChanges { files, moves, skipped: left, selection })
    }

    /// Plans the reversal of one file.
    fn plan_file(
        &self,
        journal: &Journal,
        documents: &Documents,
        path: &str,
        changes: &[Change],
        options: ReversalOptions<'_>,
    ) -> Result<FilePlan, FilesError> {
        let mut admitted = self.admit_changed(path)?;
        let is_directory = admitted.target().is_some_and(|found| found.file_type() == FileType::Directory);
        let is_gone = changes.first().is_some_and(|newest| newest.after.is_none());
        if is_directory && is_gone && options.hunks.is_none() {
            let all: Vec<&Change> = changes.iter().collect();
            let ReversedContent { file, reverses, resolved_count } =
                reverse_all(journal, None, &all, options)?;
            if file.is_none() {
                // The directory is removed or was restored with the others of its batch.
                admitted.close_handle();
                let absent = ReversibleFile {
                    admitted,
                    current: None,
                    document_path: None,
                    has_unsaved_text: false,
                    shown: None,
                };
                let reversed = GroupedFile { file, reverses, resolved_count, ..GroupedFile::default() };
                let is_directory = changes.iter().all(Change::is_without_content);
                return Ok(FilePlan { is_directory, ..absent.into_plan(reversed) });
            }
        }
        if let Some((tail, reverses)) = self.plan_tail(journal, documents, &admitted, changes, options)? {
            admitted.close_handle();
            return Ok(FilePlan {
                admitted,
                current: None,
                planned: ReversalPlan::Unchanged,
                tail: Some(tail),
                moved_from: None,
                reverses,
                resolved: 0,
                document_path: None,
                has_unsaved_text: false,
                is_directory: false,
            });
        }
        let file = self.read_reversible(documents, admitted)?;
        let changes: Vec<&Change> = changes.iter().collect();
        let ReversedContent { file: reversed, reverses, resolved_count } =
            reverse_all(journal, file.shown.clone(), &changes, options)?;
        Ok(file.into_plan(GroupedFile { file: reversed, reverses, resolved_count, ..GroupedFile::default() }))
    }

    /// Plans the reversal of a group's files, in its order.
    fn plan_group(
        &self,
        journal: &Journal,
        documents: &Documents,
        group: &FileGroup<'_>,
        options: ReversalOptions<'_>,
    ) -> Result<Vec<FilePlan>, FilesError> {
        if let ([(path, changes)], false) = (group.files.as_slice(), group.has_moves()) {
            return Ok(vec![self.plan_file(journal, documents, path, changes, options)?]);
        }
        let mut files = Vec::new();
        for (path, _) in &group.files {
            files.push(self.read_reversible(documents, self.admit_changed(path)?)?);
        }
        let shown = files.iter().map(|file| file.shown.clone()).collect();
        let reversed = group.reverse(journal, shown, options)?;
        Ok(files.into_iter().zip(reversed).map(|(file, reversed)| file.into_plan(reversed)).collect())
    }

    fn admit_changed(&self, path: &str) -> Result<AdmittedPath, FilesError> {
        let admitted = self.roots.admit(path, Access::Write)?;
        // The path now leads elsewhere, through a link: it is not the file that was changed.
        if admitted.canonical() != path {
            return Err(FilesError::PathRedirected(path.to_owned()));
        }
        Ok(admitted)
    }

    /// Reads a file in which changes are to be reversed. There is no check for risky writes: the user requested this,
    /// and the change to undo may be what made the file read-only.
    fn read_reversible(
        &self,
        documents: &Documents,
        mut admitted: AdmittedPath,
    ) -> Result<ReversibleFile, FilesError> {
        let current = read_current(&self.workspace, &self.roots, &admitted)?;
        let document_path = documents.find(&admitted);
        let unsaved =
            unsaved_bytes(documents, document_path.as_deref(), current.as_ref(), admitted.canonical())?;
        let has_unsaved_text = unsaved.is_some();
        let mode = current.as_ref().map_or(0o644, CurrentFile::mode);
        let shown = unsaved.or_else(|| current.as_ref().map(|current| current.bytes.clone()));
        let shown = shown.map(|bytes| (bytes, mode));
        admitted.close_handle();
        Ok(ReversibleFile { admitted, current, document_path, has_unsaved_text, shown })
    }

    /// Plans the reversal of changes of a file's end without reading the rest, if the file still ends as they left it.
    fn plan_tail(
        &self,
        journal: &Journal,
        documents: &Documents,
        admitted: &AdmittedPath,
        changes: &[Change],
        options: ReversalOptions<'_>,
    ) -> Result<Option<(TailChange, Vec<Reversal>)>, FilesError> {
        let (Some(newest), Some(oldest)) = (changes.first(), changes.last()) else { return Ok(None) };
        if options.hunks.is_some() || !admitted.exists() || documents.find(admitted).is_some() {
            return Ok(None);
        }
        let mut tails = Vec::new();
        let mut length = 0;
        for change in changes {
            let Some(tail) = journal.tail(change.id)? else { return Ok(None) };
            length += tail.len();
            if length > MAX_UNDO_BYTES {
                return Ok(None);
            }
            tails.push(tail);
        }
        let steps: Vec<_> =
            changes.iter().zip(&tails).map(|(change, tail)| TailStep { change, tail }).collect();
        let Ok((file, _)) = self.roots.open_file(admitted)? else { return Ok(None) };
        let writer_state = writers::wait_for_writers(&file, WaitPurpose::Write).state;
        let failed = FilesError::io_error(admitted.requested_path());
        let stat = rustix::fs::fstat(&file).map_err(|why| failed(why.into()))?;
        let size = stat.st_size as u64;
        let start = size.saturating_sub(length as u64);
        let end = disk::read_part(&file, start, length).map_err(&failed)?;
        // Otherwise this process has the file open itself.
        drop(file);
        let is_writable = size <= self.workspace.inner.options.max_write_bytes;
        let plan = undo::plan_tail_reversal(size, &end, &steps);
        // A file that can be read as a whole may tell more about where its text was appended.
        let plan = match plan {
            None if !is_writable => undo::plan_moved_tail_reversal(size, &end, &steps),
            plan => plan,
        };
        let (edit, bytes) = match plan {
            Some(TailPlan::Cut(_)) if !self.can_cut(admitted)? => {
                // A small file is written anew, which a program that reads it does not prevent.
                return match is_writable {
                    true => Ok(None),
                    false => Err(FilesError::BeingWritten(admitted.requested_path().to_owned())),
                };
            }
            Some(TailPlan::Cut(bytes)) => (TailEdit::Cut, bytes),
            Some(TailPlan::Append(bytes)) => (TailEdit::Append, bytes),
            None => return Ok(None),
        };
        let (Some(before), Some(after)) = (newest.after, oldest.before) else { return Ok(None) };
        let hashes = (before.hash, after.hash);
        let reverses = changes.iter().map(|change| Reversal { change: change.id, hunks: None }).collect();
        Ok(Some((TailChange { stat, writer_state, edit, bytes, hashes }, reverses)))
    }

    fn can_cut(&self, admitted: &AdmittedPath) -> Result<bool, FilesError> {
        let Some(place) = self.roots.locate(admitted)? else { return Ok(false) };
        can_cut(&place).map_err(FilesError::io_error(admitted.requested_path()))
    }

    fn apply_plans(
        &self,
        writer: &mut WorkspaceWriter,
        documents: &mut MutexGuard<'_, Documents>,
        plans: Vec<FilePlan>,
        meant: &ReversalContext<'_>,
    ) -> Result<Vec<ReversedFile>, ApplyError> {
        let ReversalContext { origin, at, progress: tell, .. } = *meant;
        let mut effects = Vec::new();
        let mut shown = Vec::new();
        let mut unchanged = Vec::new();
        for plan in plans {
            let new = match plan.planned {
                ReversalPlan::Unchanged if plan.tail.is_some() => None,
                ReversalPlan::Unchanged if plan.reverses.is_empty() => continue,
                ReversalPlan::Unchanged => {
                    unchanged.push((plan.admitted, plan.current, plan.reverses, plan.is_directory));
                    continue;
                }
                ReversalPlan::Write { bytes, mode } => {
                    Some(NewFile { bytes: FileBytes::Owned(bytes), mode: Some(mode) })
                }
                ReversalPlan::Delete => None,
            };
            shown.push((plan.document_path, plan.resolved));
            effects.push(PlannedChange {
                admitted: plan.admitted,
                current: plan.current,
                new,
                tail: plan.tail,
                moved_from: plan.moved_from,
                reverses: plan.reverses,
            });
        }
        let group = ChangeGroup { roots: &self.roots, origin, changes: &effects, at, progress: tell };
        let applied = apply_changes(&self.workspace, writer, &group)?;
        let mut reversed = Vec::new();
        for ((effect, (known_by, resolved)), applied) in effects.iter().zip(shown).zip(applied) {
            let path = effect.admitted.canonical().to_owned();
            if let Some(known_by) = known_by {
                update_document(documents, &known_by, effect.new.as_ref(), applied.stat.as_ref());
            }
            reversed.push(ReversedFile {
                path,
                change: applied.change,
                is_changed: true,
                resolved_count: resolved,
            });
        }
        for (admitted, current, reverses, is_directory) in unchanged {
            let change =
                record_unchanged_reversal(writer, &admitted, current.as_ref(), &reverses, origin, at)?;
            let path = admitted.canonical().to_owned();
            reversed.push(ReversedFile { path, change, is_changed: is_directory, resolved_count: 0 });
        }
        Ok(reversed)
    }

    /// Removes the files that stand where directories are needed, or in directories where files are needed.
    fn remove_obstacles(
        &self,
        writer: &mut WorkspaceWriter,
        by_file: &IndexMap<String, Vec<Change>>,
        directories: &mut ReversedDirectories,
        meant: &ReversalContext<'_>,
    ) -> Result<Vec<ReversedFile>, FilesError> {
        let all: BTreeSet<&str> = directories.paths().collect();
        let is_directory = |path: &str, changes: &[Change]| {
            all.contains(path) && changes.iter().all(Change::is_without_content)
        };
        // Files can be in a directory that is removed.
        let files = by_file.iter().filter(|(path, changes)| !is_directory(path, changes));
        let names: Vec<&str> = files.map(|(path, _)| path.as_str()).collect();
        let paths: Vec<&str> = names.iter().copied().chain(directories.restored_paths()).collect();
        let mut conflicting: BTreeSet<&str> = undo::find_nested_paths(&paths).into_iter().collect();
        conflicting.extend(directories.restored_paths());
        let mut documents = self.workspace.documents();
        let mut plans = Vec::new();
        for path in conflicting {
            let Some(changes) = by_file.get(path) else { continue };
            // A file that cannot be planned because of an obstacle is planned once the obstacle is gone.
            let planned = self.plan_file(&writer.journal, &documents, path, changes, meant.options);
            plans.extend(planned.ok().filter(|plan| match plan.planned {
                ReversalPlan::Delete => !plan.has_unsaved_text,
                // A directory may take the place of a file that is absent and stays so.
                ReversalPlan::Unchanged => {
                    plan.current.is_none() && plan.tail.is_none() && !is_directory(path, changes)
                }
                ReversalPlan::Write { .. } => false,
            }));
        }
        let cleared = if plans.is_empty() {
            Ok(Vec::new())
        } else {
            self.apply_plans(writer, &mut documents, plans, meant)
        };
        let cleared = match cleared {
            Ok(cleared) => cleared,
            Err(ApplyError::Raced(path)) => return Err(FilesError::KeepsChanging(path)),
            Err(ApplyError::Failed(error)) => return Err(error),
        };
        drop(documents);
        self.remove_emptied_directories(&writer.journal, &names, directories);
        Ok(cleared)
    }

    /// Removes the directories that stand where files are needed, if they are empty, and batches created them or the
    /// journal knows files in them, from this undo or an interrupted one.
    fn remove_emptied_directories(
        &self,
        journal: &Journal,
        names: &[&str],
        directories: &mut ReversedDirectories,
    ) {
        let is_directory = |path: &&str| {
            let admitted = self.roots.admit(path, Access::Write);
            admitted.is_ok_and(|admitted| self.roots.open_directory(&admitted).is_ok())
        };
        let blocked: Vec<&str> = names.iter().copied().filter(is_directory).collect();
        if blocked.is_empty() {
            return;
        }
        let Ok(history) = journal.changes(&ChangeFilter::default()) else { return };
        let files = history.iter().map(|entry| entry.change.path.as_str());
        let emptied = undo::find_emptied_directories(files, &blocked);
        directories.clear(&self.workspace, &self.roots, &blocked, emptied);
    }

    /// Restores the removed obstacles, because the rest failed. Returns whether all were restored.
    fn restore_obstacles(
        &self,
        writer: &mut WorkspaceWriter,
        cleared: &[ReversedFile],
        meant: &ReversalContext<'_>,
    ) -> bool {
        let mut documents = self.workspace.documents();
        let back = |journal: &Journal, file: &ReversedFile| {
            let change = journal.change(file.change).ok().flatten()?.change;
            self.plan_file(journal, &documents, &file.path, &[change], ReversalOptions::default()).ok()
        };
        let plans: Vec<_> = cleared.iter().filter_map(|file| back(&writer.journal, file)).collect();
        // What cannot be restored now is in the journal, and undoing the undo restores it.
        let is_all = plans.len() == cleared.len();
        let is_back = plans.is_empty() || self.apply_plans(writer, &mut documents, plans, meant).is_ok();
        is_all && is_back
    }
}

/// Returns the selected hunks. An undo of hunks is redone as a whole.
fn selected_hunks(direction: ReversalDirection, selection: &ChangeSelection) -> Option<&[usize]> {
    let hunks = selection.change.as_ref().and_then(|one| one.hunks.as_deref());
    hunks.filter(|_| direction == ReversalDirection::Undo)
}

/// Returns the selection with its file under the path that the journal knows, if it can be found.
pub(super) fn with_canonical_path(
    selection: &ChangeSelection,
    history: &[Change],
    roots: &Roots,
) -> ChangeSelection {
    let own = |path: &String| {
        // The path may have become a link since.
        if history.iter().any(|change| change.path == *path) {
            return path.clone();
        }
        let admitted = roots.admit(path, Access::Read);
        admitted.map_or_else(|_| path.clone(), |admitted| admitted.canonical().to_owned())
    };
    ChangeSelection { path: selection.path.as_ref().map(own), ..selection.clone() }
}

/// Returns the bytes that saving an open document's unsaved text would write.
fn unsaved_bytes(
    documents: &Documents,
    known_by: Option<&str>,
    current: Option<&CurrentFile>,
    path: &str,
) -> Result<Option<Vec<u8>>, FilesError> {
    let document =
        known_by.and_then(|known_by| documents.get(known_by)).filter(|document| document.is_dirty());
    let Some(document) = document else { return Ok(None) };
    let Some(current) = current else {
        return encode_text(document.text(), text::TextFormat::default(), path).map(Some);
    };
    let disk = text::decode(current.bytes.clone())
        .map_err(|why| FilesError::NotText { path: path.to_owned(), why })?;
    let text = merge_with_disk(document, &disk.text).map_err(|why| FilesError::WriteRejected {
        path: path.to_owned(),
        why: WriteRejectedError::DiskConflict(why),
    })?;
    encode_text(&text, disk.format, path).map(Some)
}

pub(super) fn update_document(
    documents: &mut Documents,
    known_by: &str,
    new: Option<&NewFile>,
    stat: Option<&rustix::fs::Stat>,
) {
    if new.is_none() {
        documents.notify(&DocumentEvent::FileDeleted { path: known_by.to_owned() });
    }
    // A document whose file is gone, or is no longer text, keeps its text.
    if let Some(decoded) = new.and_then(|new| text::decode(new.bytes.to_vec()).ok()) {
        documents.show_saved_text(known_by, &Arc::new(decoded.text), stat);
    }
}

fn to_stored_file(current: CurrentFile) -> StoredFile {
    let mode = current.mode();
    stored_file_from_bytes(current.bytes, mode)
}

/// Records the reversal of a change that was already reverted by hand.
pub(super) fn record_unchanged_reversal(
    writer: &mut WorkspaceWriter,
    admitted: &AdmittedPath,
    current: Option<&CurrentFile>,
    reverses: &[Reversal],
    origin: &ChangeOrigin,
    at: Timestamp,
) -> Result<ChangeId, FilesError> {
    let side = current.map(|current| DraftSide::bytes(&current.bytes, current.mode()));
    let draft = ChangeDraft::applied((origin, ChangeSource::Written), admitted.canonical(), side, side);
    let draft = ChangeDraft { reverses, ..draft };
    let recorded = writer.journal.record(&[draft], at)?;
    recorded.first().copied().ok_or(FilesError::NothingToUndo("undo"))
}

#[cfg(test)]
mod tests;
