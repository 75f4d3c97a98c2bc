//! The changes of a workspace, for its user: as a list and as patches, undone and redone, with the texts that only the
//! journal has and the titles of turns.

use std::cell::OnceCell;
use std::collections::{BTreeMap, HashSet};
use std::fs;
use std::io::ErrorKind;
use std::sync::PoisonError;

use bowline_history::changes::{Change, ChangeId, ChangeOrigin, ChangeOutcome, ChangeSource, FileState};
use bowline_history::undo::{
    self, ChangeOwner, ChangeSelection, ConflictResolution, FileMoves, ReversalDirection, TailStep,
};
use bowline_policy::paths::{Access, LexicalPath};
use bowline_text::diff::{self, FileDiff, Hunk};
use bowline_text::hash::ContentHash;
use bowline_text::text::{self, Encoding};
use indexmap::IndexMap;

use super::Workspace;
use super::apply::TailChange;
use super::kept_texts::KeptText;
use super::reversal::{
    ReversalOptions, StoredFile, has_stored_texts, load_stored_file, reverse_all, stored_file_from_bytes,
};
use super::turn_titles::{TurnTitles, record_title};
use super::undo::{UndoOutcome, UndoPreview, with_canonical_path};
use crate::disk;
use crate::disk::content_scan::hash_start;
use crate::disk::replace::tail::TailEdit;
use crate::error::FilesError;
use crate::journal::{ChangeFilter, Journal, JournalEntry};

/// How many lines of context a patch shows, as in git.
const CONTEXT_LINES: usize = 3;

/// How much of a large file is read for the context of a change of its end.
const MAX_CONTEXT_BYTES: u64 = 64 << 10;

/// Up to where the lines of a large file are counted. A change beyond is shown without context.
const MAX_COUNTED_BYTES: u64 = 1 << 30;

/// The lines before a change of a file's end.
#[derive(Debug, Default)]
struct PrecedingLines {
    bytes: Vec<u8>,
    skipped_lines: usize,
}

/// A change with its status.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ListedChange {
    /// The change.
    pub change: Change,
    /// Whether it is still in effect: not undone, or redone.
    pub is_in_effect: bool,
    /// Whether it was interrupted and the file changed since, so that its outcome is unknown.
    pub is_uncertain: bool,
}

/// The change of one file, as a git patch.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FilePatch {
    /// The canonical path.
    pub path: String,
    /// The patch.
    pub patch: String,
}

impl Workspace {
    /// Returns the selected changes, oldest first.
    ///
    /// # Errors
    /// Fails if the journal cannot be read.
    pub fn changes(&self, selection: &ChangeSelection) -> Result<Vec<ListedChange>, FilesError> {
        let writer = self.writer();
        let entries = writer.journal.changes(&ChangeFilter::default())?;
        let history: Vec<Change> = entries.iter().map(|entry| entry.change.clone()).collect();
        let selection = &with_canonical_path(selection, &history, &self.inner.roots);
        let in_effect = undo::changes_in_effect(&history);
        let moves = FileMoves::find(&history);
        let mut changes: Vec<ListedChange> = entries
            .into_iter()
            .zip(&history)
            .filter(|(_, change)| selection.matches_moved(change, &moves))
            .map(|(entry, _)| entry)
            .map(|entry| ListedChange {
                is_in_effect: in_effect.contains(&entry.change.id),
                is_uncertain: entry.outcome == Some(ChangeOutcome::Unknown),
                change: entry.change,
            })
            .collect();
        if let Some(last) = selection.limit {
            changes.drain(..changes.len().saturating_sub(last));
        }
        Ok(changes)
    }

    /// Returns a change.
    ///
    /// # Errors
    /// Fails if the journal cannot be read or has no such change.
    pub fn change(&self, id: ChangeId) -> Result<Change, FilesError> {
        let entry = self.writer().journal.change(id)?.ok_or(FilesError::NoSuchChange(id))?;
        Ok(entry.change)
    }

    /// Returns the last turn in which a session made changes: `None` if the journal has none of that session, 0 if all
    /// were made outside of turns.
    ///
    /// # Errors
    /// Fails if the journal cannot be read.
    pub fn last_turn(&self, session: &str) -> Result<Option<u64>, FilesError> {
        let filter = ChangeFilter { session: Some(session), ..ChangeFilter::default() };
        let changes = self.writer().journal.changes(&filter)?;
        Ok(changes.iter().map(|entry| entry.change.origin.turn.unwrap_or(0)).max())
    }

    /// Returns the net effect of the selected changes that are in effect, as a git patch: what undoing them would
    /// remove. Files without a net change are omitted. The patch of a file that is not UTF-8 is only for reading; git
    /// cannot apply it.
    ///
    /// # Errors
    /// Fails if the journal cannot be read.
    pub fn diff(&self, selection: &ChangeSelection) -> Result<String, FilesError> {
        Ok(self.diff_files(selection)?.into_iter().map(|file| file.patch).collect())
    }

    /// Returns [`Workspace::diff`] split by file.
    ///
    /// # Errors
    /// As [`Workspace::diff`].
    pub fn diff_files(&self, selection: &ChangeSelection) -> Result<Vec<FilePatch>, FilesError> {
        // Pruned changes have no text to show.
        let is_shown = |changed: &ListedChange| changed.is_in_effect && !changed.change.is_pruned();
        let meant = self.changes(selection)?.into_iter().filter(is_shown);
        let mut meant: HashSet<ChangeId> = meant.map(|changed| changed.change.id).collect();
        let writer = self.writer();
        let history = writer.journal.changes(&ChangeFilter::default())?;
        let mut files: IndexMap<&str, Vec<&Change>> = IndexMap::new();
        for JournalEntry { change, .. } in &history {
            let reverses = &change.reverses;
            let taken = match reverses.is_empty() {
                true => meant.contains(&change.id),
                // Undos and redos of individual hunks of the selected changes.
                false => reverses.iter().all(|reversal| meant.contains(&reversal.change)),
            };
            if !taken {
                continue;
            }
            meant.insert(change.id);
            files.entry(&change.path).or_default().push(change);
        }
        let mut patches = Vec::new();
        for (path, mut changes) in files {
            changes.reverse();
            let patch = self.diff_file(&writer.journal, path, &changes)?;
            if !patch.is_empty() {
                patches.push(FilePatch { path: path.to_owned(), patch });
            }
        }
        Ok(patches)
    }

    /// Returns one change as a git patch.
    ///
    /// # Errors
    /// Fails if there is no such change or the journal cannot be read.
    pub fn diff_change(&self, id: ChangeId) -> Result<String, FilesError> {
        let writer = self.writer();
        let entry = writer.journal.change(id)?.ok_or(FilesError::NoSuchChange(id))?;
        let (before, after) = load_sides(&writer.journal, &entry.change)?;
        match writer.journal.tail(id)? {
            Some(tail) => Ok(self.format_end_patch(&entry.change.path, before, after, &tail)),
            None => Ok(self.format_patch(&entry.change.path, before, after)),
        }
    }

    /// Returns some hunks of a change, numbered as in [`ChangeSelection`], as a git patch: what undoing them would
    /// remove from the text that the change produced.
    ///
    /// # Errors
    /// Fails if there is no such change or hunk, if a text is not stored, or if the journal cannot be read.
    pub fn diff_hunks(&self, id: ChangeId, hunks: &[usize]) -> Result<String, FilesError> {
        let writer = self.writer();
        let entry = writer.journal.change(id)?.ok_or(FilesError::NoSuchChange(id))?;
        let change = &entry.change;
        let (before, after) = load_sides(&writer.journal, change)?;
        let file = after.clone().and_then(|(state, bytes)| Some((bytes?, state.mode)));
        let options = ReversalOptions { hunks: Some(hunks), ..ReversalOptions::default() };
        let without = reverse_all(&writer.journal, file, &[change], options)?.file;
        let without = without.map(|(bytes, mode)| stored_file_from_bytes(bytes, mode));
        // Reversing all hunks may reverse the creation of the file.
        let without = if without.is_none() { before } else { without };
        Ok(self.format_patch(&change.path, without, after))
    }

    /// Returns the texts before and after a change: `None` where the file did not exist, is not text, or was not
    /// stored. Of a change that only appended to a large file, these are its end.
    ///
    /// # Errors
    /// Fails if there is no such change or the journal cannot be read.
    pub fn change_texts(&self, id: ChangeId) -> Result<(Option<String>, Option<String>), FilesError> {
        let writer = self.writer();
        let entry = writer.journal.change(id)?.ok_or(FilesError::NoSuchChange(id))?;
        let (before, after) = load_sides(&writer.journal, &entry.change)?;
        let text = |side: Option<StoredFile>| {
            let bytes = side.and_then(|(_, bytes)| bytes)?;
            text::decode(bytes).ok().map(|decoded| decoded.text)
        };
        Ok((text(before), text(after)))
    }

    /// Returns whether the texts of a change are stored, so that it can be undone.
    ///
    /// # Errors
    /// Fails if the journal cannot be read.
    pub fn has_change_texts(&self, change: &Change) -> Result<bool, FilesError> {
        has_stored_texts(&self.writer().journal, change)
    }

    /// Returns the hunks of a change in the order in which [`ChangeSelection`] numbers them. A patch joins hunks that
    /// are close to each other.
    ///
    /// # Errors
    /// As [`Workspace::change_texts`].
    pub fn change_hunks(&self, id: ChangeId) -> Result<Vec<Hunk>, FilesError> {
        let (before, after) = self.change_texts(id)?;
        Ok(diff::compute_hunks(&before.unwrap_or_default(), &after.unwrap_or_default()))
    }

    /// Returns the agents' edits that are in effect although their files are, byte for byte, as they were before.
    #[must_use]
    pub fn find_manual_reverts(&self, history: &[ListedChange]) -> HashSet<ChangeId> {
        let mut by_file: BTreeMap<&str, Vec<&Change>> = BTreeMap::new();
        for changed in history {
            let change = &changed.change;
            if changed.is_in_effect && change.reverses.is_empty() && change.origin.session.is_some() {
                by_file.entry(&change.path).or_default().push(change);
            }
        }
        let mut reverted = HashSet::new();
        for (path, changes) in by_file {
            let file = LazyFileState::new(path, self.inner.options.max_write_bytes);
            let is_last = changes.last().is_some_and(|last| file.matches(last.after));
            if let Some(first) = changes.iter().position(|change| !is_last && file.matches(change.before)) {
                reverted.extend(changes[first..].iter().map(|change| change.id));
            }
        }
        reverted
    }

    /// Undoes changes for the user, as [`WorkspaceSession::undo`](super::WorkspaceSession::undo) does, below the
    /// workspace's own roots.
    ///
    /// # Errors
    /// As [`WorkspaceSession::undo`](super::WorkspaceSession::undo).
    pub fn undo(&self, selection: &ChangeSelection) -> Result<UndoOutcome, FilesError> {
        self.session("").undo(selection, &ChangeOrigin::default())
    }

    /// Undoes or redoes changes for the user, resolves conflicts, and reports progress as finished files and total.
    ///
    /// # Errors
    /// As [`WorkspaceSession::undo`](super::WorkspaceSession::undo).
    pub fn undo_or_redo(
        &self,
        direction: ReversalDirection,
        selection: &ChangeSelection,
        resolution: ConflictResolution,
        tell: &dyn Fn(usize, usize),
    ) -> Result<UndoOutcome, FilesError> {
        self.session("").undo_or_redo(selection, &ChangeOrigin::default(), direction, resolution, Some(tell))
    }

    /// Redoes changes for the user, as [`WorkspaceSession::redo`](super::WorkspaceSession::redo) does, below the
    /// workspace's own roots.
    ///
    /// # Errors
    /// As [`WorkspaceSession::redo`](super::WorkspaceSession::redo).
    pub fn redo(&self, selection: &ChangeSelection) -> Result<UndoOutcome, FilesError> {
        self.session("").redo(selection, &ChangeOrigin::default())
    }

    /// Returns the effect that [`Workspace::undo`] or [`Workspace::redo`] would have on each file. Files may change
    /// before it is executed.
    ///
    /// # Errors
    /// Fails if there is nothing to undo or the journal cannot be read.
    pub fn preview_undo(
        &self,
        direction: ReversalDirection,
        selection: &ChangeSelection,
    ) -> Result<UndoPreview, FilesError> {
        self.session("").preview_undo(direction, selection)
    }

    /// Reports the texts that were kept in the journal since the last call, each once.
    /// [`WorkspaceNotification::TextsKept`](super::WorkspaceNotification::TextsKept) announces them. `tell` must not
    /// use the workspace.
    pub fn report_kept_texts(&self, tell: impl FnMut(&KeptText)) {
        let mut waiting = self.inner.unreported_texts.lock().unwrap_or_else(PoisonError::into_inner);
        waiting.iter().for_each(tell);
        waiting.clear();
    }

    /// Returns the texts that exist only in the journal and were not restored, oldest first.
    ///
    /// # Errors
    /// Fails if the journal cannot be read.
    pub fn kept_texts(&self) -> Result<Vec<Change>, FilesError> {
        let selection = ChangeSelection {
            owner: ChangeOwner::Anyone,
            source: Some(ChangeSource::Observed),
            ..ChangeSelection::default()
        };
        let changes = self.changes(&selection)?.into_iter();
        let is_kept = |changed: &ListedChange| changed.is_in_effect && changed.change.is_kept_text();
        Ok(changes.filter(is_kept).map(|changed| changed.change).collect())
    }

    /// Returns the bytes of a text that exists only in the journal; `None` if the change is not a kept text.
    ///
    /// # Errors
    /// Fails if there is no such change or the journal cannot be read.
    pub fn kept_text(&self, id: ChangeId) -> Result<Option<Vec<u8>>, FilesError> {
        let writer = self.writer();
        let change = writer.journal.change(id)?.ok_or(FilesError::NoSuchChange(id))?.change;
        if !change.is_kept_text() {
            return Ok(None);
        }
        Ok(load_stored_file(&writer.journal, change.before)?.and_then(|(_, bytes)| bytes))
    }

    /// Records the first line of a prompt as the title of its turn.
    pub fn record_turn_title(&self, session: &str, turn: u64, prompt: &str) {
        record_title(&self.inner.journal_directory, session, turn, prompt);
    }

    /// Returns the recorded titles of turns.
    #[must_use]
    pub fn turn_titles(&self) -> TurnTitles {
        TurnTitles::read(&self.inner.journal_directory)
    }

    /// Returns the net effect of some changes of one file, given newest first. Changes by others in between are
    /// excluded where they can be separated.
    fn diff_file(&self, journal: &Journal, path: &str, changes: &[&Change]) -> Result<String, FilesError> {
        let (Some(last), Some(first)) = (changes.first(), changes.last()) else { return Ok(String::new()) };
        if let Some((without, with)) = sum_stored_tails(journal, changes)? {
            let added = with.1.clone().unwrap_or_default();
            return Ok(self.format_end_patch(path, Some(without), Some(with), &added));
        }
        let with = load_sides(journal, last)?.1;
        let known = match &with {
            None => Some(None),
            Some((state, bytes)) => bytes.clone().map(|bytes| Some((bytes, state.mode))),
        };
        let without =
            known.and_then(|file| reverse_all(journal, file, changes, ReversalOptions::default()).ok());
        let without = match without {
            Some(taken) => taken.file.map(|(bytes, mode)| stored_file_from_bytes(bytes, mode)),
            None => load_stored_file(journal, first.before)?,
        };
        Ok(self.format_patch(path, without, with))
    }

    /// Returns the planned change of a file's end as a patch.
    pub(super) fn format_tail_patch(&self, path: &str, tail: &TailChange) -> String {
        let mode = tail.stat.st_mode & 0o7777;
        let (before, after) = tail.sizes();
        let side = |size, bytes: Vec<u8>| {
            Some((FileState { hash: ContentHash::digest(&bytes), size, mode }, Some(bytes)))
        };
        let (old, new) = match tail.edit {
            TailEdit::Append => (Vec::new(), tail.bytes.clone()),
            TailEdit::Cut => (tail.bytes.clone(), Vec::new()),
        };
        self.format_end_patch(path, side(before, old), side(after, new), &tail.bytes)
    }

    /// Returns a change of a file's end as a patch, with the lines before it as context, if the file still has them.
    fn format_end_patch(
        &self,
        path: &str,
        before: Option<StoredFile>,
        after: Option<StoredFile>,
        tail: &[u8],
    ) -> String {
        let sizes = [&before, &after].map(|side| side.as_ref().map(|(state, _)| state.size));
        let offset = sizes.into_iter().flatten().min().unwrap_or_default();
        let PrecedingLines { bytes: context, skipped_lines } =
            self.find_preceding_lines(path, offset, tail).unwrap_or_default();
        let extend = |side: Option<StoredFile>| {
            side.map(|(state, bytes)| (state, bytes.map(|bytes| [&*context, &*bytes].concat())))
        };
        self.format_patch_from(path, extend(before), extend(after), skipped_lines)
    }

    /// Finds the last lines before an offset, at which a file has these bytes or ends.
    fn find_preceding_lines(&self, path: &str, offset: u64, tail: &[u8]) -> Option<PrecedingLines> {
        let roots = &self.inner.roots;
        let admitted = roots.admit(path, Access::Read).ok()?;
        let (file, _) = roots.open_file(&admitted).ok()?.ok()?;
        let end = disk::read_part(&file, offset, tail.len()).ok()?;
        if offset > MAX_COUNTED_BYTES || !(end.is_empty() || end == tail) {
            return None;
        }
        let start = offset.saturating_sub(MAX_CONTEXT_BYTES);
        let window = disk::read_part(&file, start, (offset - start) as usize).ok()?;
        if start + window.len() as u64 != offset {
            return None;
        }
        // The last byte ends the last line, or is part of an unfinished one.
        let starts = window.iter().enumerate().rev().skip(1).filter(|(_, byte)| **byte == b'\n');
        let from = match starts.map(|(at, _)| at + 1).nth(CONTEXT_LINES - 1) {
            Some(at) => at,
            None if start == 0 => 0,
            None => return None,
        };
        let skipped_lines = disk::count_lines(&file, start + from as u64).ok()?;
        Some(PrecedingLines { bytes: window[from..].to_vec(), skipped_lines })
    }

    pub(super) fn format_patch(
        &self,
        path: &str,
        before: Option<StoredFile>,
        after: Option<StoredFile>,
    ) -> String {
        self.format_patch_from(path, before, after, 0)
    }

    fn format_patch_from(
        &self,
        path: &str,
        before: Option<StoredFile>,
        after: Option<StoredFile>,
        skipped_lines: usize,
    ) -> String {
        let text = |side: &Option<StoredFile>| {
            let bytes = side.as_ref().and_then(|(_, bytes)| bytes.clone())?;
            let decoded = text::decode(bytes).ok()?;
            // To git the byte order mark is part of the first line.
            let mark = decoded.format.has_bom && decoded.format.encoding == Encoding::Utf8;
            Some(if mark { format!("\u{feff}{}", decoded.text) } else { decoded.text })
        };
        let (old, new) = (text(&before), text(&after));
        fn side<'a>(state: Option<FileState>, text: &'a Option<String>) -> Option<diff::DiffSide<'a>> {
            state.map(|state| {
                let body =
                    text.as_deref().map_or(diff::DiffContent::Opaque(state.hash), diff::DiffContent::Text);
                diff::DiffSide { content: body, mode: state.mode }
            })
        }
        let state = |side: &Option<StoredFile>| side.as_ref().map(|(state, _)| *state);
        let below = |path: &LexicalPath| {
            let cwd = LexicalPath::parse(self.inner.roots.cwd()).ok()?;
            path.strip_root(&cwd).map(str::to_owned)
        };
        // The path of a file in another root is relative to `/`, where git can apply the patch.
        let shown = LexicalPath::parse(path).ok().as_ref().and_then(below);
        let shown = shown.as_deref().unwrap_or(path).trim_start_matches('/');
        let file =
            FileDiff { path: shown, before: side(state(&before), &old), after: side(state(&after), &new) };
        diff::format_unified_diff_from(&file, CONTEXT_LINES, skipped_lines)
    }
}

/// Returns the files before and after a change. Where only the end of a file is stored, that end stands for the file.
fn load_sides(
    journal: &Journal,
    change: &Change,
) -> Result<(Option<StoredFile>, Option<StoredFile>), FilesError> {
    match journal.tail(change.id)? {
        Some(tail) => {
            let is_append = change.before.map(|state| state.size) < change.after.map(|state| state.size);
            let (before, after) = if is_append { (Vec::new(), tail) } else { (tail, Vec::new()) };
            let side = |state: Option<FileState>, bytes| state.map(|state| (state, Some(bytes)));
            Ok((side(change.before, before), side(change.after, after)))
        }
        None => Ok((load_stored_file(journal, change.before)?, load_stored_file(journal, change.after)?)),
    }
}

/// Returns the net effect of changes of one file, newest first, if each changed only its end.
fn sum_stored_tails(
    journal: &Journal,
    changes: &[&Change],
) -> Result<Option<(StoredFile, StoredFile)>, FilesError> {
    let mut tails = Vec::new();
    for change in changes.iter().rev() {
        let Some(tail) = journal.tail(change.id)? else { return Ok(None) };
        tails.push((change, tail));
    }
    let steps: Vec<_> = tails.iter().map(|(change, tail)| TailStep { change, tail }).collect();
    let (before, after) =
        (changes.last().and_then(|oldest| oldest.before), changes.first().and_then(|newest| newest.after));
    let added = undo::sum_tails(&steps);
    Ok(before
        .zip(after)
        .zip(added)
        .map(|((before, after), added)| ((before, Some(Vec::new())), (after, Some(added)))))
}

/// The current state of a file, to find changes that were reverted by hand. Its content is read only if its size is
/// inconclusive.
struct LazyFileState<'p> {
    path: &'p str,
    metadata: std::io::Result<fs::Metadata>,
    max_hashed_bytes: u64,
    hash: OnceCell<Option<ContentHash>>,
}

impl<'p> LazyFileState<'p> {
    fn new(path: &'p str, max_hashed_bytes: u64) -> Self {
        Self { path, metadata: fs::symlink_metadata(path), max_hashed_bytes, hash: OnceCell::new() }
    }

    fn matches(&self, state: Option<FileState>) -> bool {
        match (&self.metadata, state) {
            (Err(error), None) => error.kind() == ErrorKind::NotFound,
            (Ok(found), Some(state)) if found.is_file() && found.len() == state.size => {
                let read = || {
                    let file = fs::File::open(self.path).ok()?;
                    hash_start(&file, state.size, self.max_hashed_bytes).ok().flatten()
                };
                *self.hash.get_or_init(read) == Some(state.hash)
            }
            _ => false,
        }
    }
}
