//! The changes of a workspace, as a list and as patches.

use std::collections::HashSet;

use bowline_history::changes::{Change, ChangeId, FileState, PathsBySource, group_paths_by_source};
use bowline_history::undo::{self, ChangeSelection};
use bowline_policy::paths::LexicalPath;
use bowline_text::diff::{self, FileDiff, Hunk};
use bowline_text::text::{self, Encoding};
use indexmap::IndexMap;

use super::Workspace;
use super::reversal::{ReversalOptions, reverse_all};
use super::undo::{
    StoredFile, has_stored_texts, load_stored_file, stored_file_from_bytes, with_canonical_path,
};
use crate::error::FilesError;
use crate::journal::{ChangeFilter, ChangeOutcome, Journal, JournalEntry};

/// How many lines of context a patch shows, as in git.
const CONTEXT_LINES: usize = 3;

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
        let mut changes: Vec<ListedChange> = entries
            .into_iter()
            .filter(|entry| selection.matches(&entry.change))
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

    /// Returns the files that a session changed in one of its turns, as far as the changes are in effect, grouped by
    /// how they became known.
    ///
    /// # Errors
    /// Fails if the journal cannot be read.
    pub fn turn_files(&self, session: &str, turn: u64) -> Result<PathsBySource, FilesError> {
        let changes = self.changes(&ChangeSelection::turn(session, turn))?;
        let edits =
            changes.iter().filter(|changed| changed.is_in_effect && changed.change.reverses.is_empty());
        Ok(group_paths_by_source(edits.map(|changed| &changed.change)))
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

    /// Returns the net effect of some changes of one file, given newest first. Changes by others in between are
    /// excluded where they can be separated.
    fn diff_file(&self, journal: &Journal, path: &str, changes: &[&Change]) -> Result<String, FilesError> {
        let (Some(last), Some(first)) = (changes.first(), changes.last()) else { return Ok(String::new()) };
        let with = load_stored_file(journal, last.after)?;
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

    /// Returns one change as a git patch.
    ///
    /// # Errors
    /// Fails if there is no such change or the journal cannot be read.
    pub fn diff_change(&self, id: ChangeId) -> Result<String, FilesError> {
        let writer = self.writer();
        let entry = writer.journal.change(id)?.ok_or(FilesError::NoSuchChange(id))?;
        let Change { path, before, after, .. } = &entry.change;
        Ok(self.format_patch(
            path,
            load_stored_file(&writer.journal, *before)?,
            load_stored_file(&writer.journal, *after)?,
        ))
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
        let (before, after) = (
            load_stored_file(&writer.journal, change.before)?,
            load_stored_file(&writer.journal, change.after)?,
        );
        let file = after.clone().and_then(|(state, bytes)| Some((bytes?, state.mode)));
        let options = ReversalOptions { hunks: Some(hunks), ..ReversalOptions::default() };
        let without = reverse_all(&writer.journal, file, &[change], options)?.file;
        let without = without.map(|(bytes, mode)| stored_file_from_bytes(bytes, mode));
        // Reversing all hunks may reverse the creation of the file.
        let without = if without.is_none() { before } else { without };
        Ok(self.format_patch(&change.path, without, after))
    }

    /// Returns the texts before and after a change: `None` where the file did not exist, is not text, or was not
    /// stored.
    ///
    /// # Errors
    /// Fails if there is no such change or the journal cannot be read.
    pub fn change_texts(&self, id: ChangeId) -> Result<(Option<String>, Option<String>), FilesError> {
        let writer = self.writer();
        let entry = writer.journal.change(id)?.ok_or(FilesError::NoSuchChange(id))?;
        let text = |state| -> Result<Option<String>, FilesError> {
            let bytes = load_stored_file(&writer.journal, state)?.and_then(|(_, bytes)| bytes);
            Ok(bytes.and_then(|bytes| text::decode(bytes).ok()).map(|decoded| decoded.text))
        };
        Ok((text(entry.change.before)?, text(entry.change.after)?))
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

    pub(super) fn format_patch(
        &self,
        path: &str,
        before: Option<StoredFile>,
        after: Option<StoredFile>,
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
        diff::format_unified_diff(&file, CONTEXT_LINES)
    }
}
