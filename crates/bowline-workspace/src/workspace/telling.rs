//! What changed here, as a list and as patches.

use std::collections::HashSet;

use bowline_state::changes::{Change, ChangeId, FileState, Sorted, sorted};
use bowline_state::diff::{self, FileDiff, Hunk};
use bowline_state::paths::LexicalPath;
use bowline_state::text::{self, Encoding};
use bowline_state::undo::{self, Selection};
use indexmap::IndexMap;

use super::Workspace;
use super::reversal::{ReversalOptions, take_back_all};
use super::undoing::{Kept, at_hand, by_own_name, is_kept, kept};
use crate::error::FilesError;
use crate::journal::{Entry, Filter, Journal, Outcome};

/// How many lines a patch shows around a change, as git does.
const CONTEXT: usize = 3;

/// A change, as it is shown.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Changed {
    /// The change.
    pub change: Change,
    /// Whether it is still in effect: not undone, or redone.
    pub in_effect: bool,
    /// Whether it was interrupted, and the file changed since, so that nobody can tell whether it was done.
    pub uncertain: bool,
}

/// What became of one file, as a patch that git reads.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FilePatch {
    /// The file: absolute, with no link on the way.
    pub path: String,
    /// The patch.
    pub patch: String,
}

impl Workspace {
    /// Returns the changes that are meant, oldest first.
    ///
    /// # Errors
    /// Fails if the journal cannot be read.
    pub fn changes(&self, selection: &Selection) -> Result<Vec<Changed>, FilesError> {
        let writer = self.writer();
        let entries = writer.journal.changes(&Filter::default())?;
        let history: Vec<Change> = entries.iter().map(|entry| entry.change.clone()).collect();
        let selection = &by_own_name(selection, &history, &self.inner.roots);
        let in_effect = undo::in_effect(&history);
        let mut changes: Vec<Changed> = entries
            .into_iter()
            .filter(|entry| selection.matches(&entry.change))
            .map(|entry| Changed {
                in_effect: in_effect.contains(&entry.change.id),
                uncertain: entry.outcome == Some(Outcome::Unknown),
                change: entry.change,
            })
            .collect();
        if let Some(last) = selection.last {
            changes.drain(..changes.len().saturating_sub(last));
        }
        Ok(changes)
    }

    /// Returns the files that a session changed in one of its turns, as far as that is in effect, by how it was learnt.
    ///
    /// # Errors
    /// Fails if the journal cannot be read.
    pub fn turn_files(&self, session: &str, turn: u64) -> Result<Sorted, FilesError> {
        let changes = self.changes(&Selection::turn(session, turn))?;
        let edits = changes.iter().filter(|changed| changed.in_effect && changed.change.reverses.is_empty());
        Ok(sorted(edits.map(|changed| &changed.change)))
    }

    /// Returns a change.
    ///
    /// # Errors
    /// Fails if the journal cannot be read, or knows no such change.
    pub fn change(&self, id: ChangeId) -> Result<Change, FilesError> {
        let entry = self.writer().journal.change(id)?.ok_or(FilesError::NoSuchChange(id))?;
        Ok(entry.change)
    }

    /// Returns the last turn of a session that the journal knows changes of; none if it knows none of that session, 0 if
    /// all were made outside of turns.
    ///
    /// # Errors
    /// Fails if the journal cannot be read.
    pub fn last_turn(&self, session: &str) -> Result<Option<u64>, FilesError> {
        let filter = Filter { session: Some(session), ..Filter::default() };
        let changes = self.writer().journal.changes(&filter)?;
        Ok(changes.iter().map(|entry| entry.change.origin.turn.unwrap_or(0)).max())
    }

    /// Returns what the changes that are meant, and in effect, made of each file, as a patch that git reads: what undoing
    /// them would take out of it. A file that they left as it was is not in it. Of a file that is not in UTF-8 the patch is
    /// for people to read; git cannot apply it.
    ///
    /// # Errors
    /// Fails if the journal cannot be read.
    pub fn diff(&self, selection: &Selection) -> Result<String, FilesError> {
        Ok(self.diff_files(selection)?.into_iter().map(|file| file.patch).collect())
    }

    /// Returns the parts of [`Workspace::diff`], one for each file.
    ///
    /// # Errors
    /// As [`Workspace::diff`].
    pub fn diff_files(&self, selection: &Selection) -> Result<Vec<FilePatch>, FilesError> {
        // What was pruned has no text to show.
        let is_shown = |changed: &Changed| changed.in_effect && !changed.change.is_pruned();
        let meant = self.changes(selection)?.into_iter().filter(is_shown);
        let mut meant: HashSet<ChangeId> = meant.map(|changed| changed.change.id).collect();
        let writer = self.writer();
        let history = writer.journal.changes(&Filter::default())?;
        let mut files: IndexMap<&str, Vec<&Change>> = IndexMap::new();
        for Entry { change, .. } in &history {
            let reverses = &change.reverses;
            let taken = match reverses.is_empty() {
                true => meant.contains(&change.id),
                // Hunks of them that were taken back, and redone.
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

    /// Returns what some changes of one file, the newest first, made of it. What others changed in between is left out
    /// where it can be told apart.
    fn diff_file(&self, journal: &Journal, path: &str, changes: &[&Change]) -> Result<String, FilesError> {
        let (Some(last), Some(first)) = (changes.first(), changes.last()) else { return Ok(String::new()) };
        let with = kept(journal, last.after)?;
        let known = match &with {
            None => Some(None),
            Some((state, bytes)) => bytes.clone().map(|bytes| Some((bytes, state.mode))),
        };
        let without =
            known.and_then(|file| take_back_all(journal, file, changes, ReversalOptions::default()).ok());
        let without = match without {
            Some(taken) => taken.file.map(|(bytes, mode)| at_hand(bytes, mode)),
            None => kept(journal, first.before)?,
        };
        Ok(self.patch(path, without, with))
    }

    /// Returns one change as a patch that git reads.
    ///
    /// # Errors
    /// Fails if there is no such change or the journal cannot be read.
    pub fn diff_change(&self, id: ChangeId) -> Result<String, FilesError> {
        let writer = self.writer();
        let entry = writer.journal.change(id)?.ok_or(FilesError::NoSuchChange(id))?;
        let Change { path, before, after, .. } = &entry.change;
        Ok(self.patch(path, kept(&writer.journal, *before)?, kept(&writer.journal, *after)?))
    }

    /// Returns some hunks of a change, named as [`Selection`] does, as a patch that git reads: what undoing them would take
    /// out of the text that the change left.
    ///
    /// # Errors
    /// Fails if there is no such change or no such hunk, if a text is not kept, or if the journal cannot be read.
    pub fn diff_hunks(&self, id: ChangeId, hunks: &[usize]) -> Result<String, FilesError> {
        let writer = self.writer();
        let entry = writer.journal.change(id)?.ok_or(FilesError::NoSuchChange(id))?;
        let change = &entry.change;
        let (before, after) = (kept(&writer.journal, change.before)?, kept(&writer.journal, change.after)?);
        let file = after.clone().and_then(|(state, bytes)| Some((bytes?, state.mode)));
        let options = ReversalOptions { hunks: Some(hunks), ..ReversalOptions::default() };
        let without = take_back_all(&writer.journal, file, &[change], options)?.file;
        let without = without.map(|(bytes, mode)| at_hand(bytes, mode));
        // All hunks of it are the whole of it, and then the file may not have been there.
        let without = if without.is_none() { before } else { without };
        Ok(self.patch(&change.path, without, after))
    }

    /// Returns the texts of a change, before and after: none where there was no file, or where it is no text or not kept.
    ///
    /// # Errors
    /// Fails if there is no such change or the journal cannot be read.
    pub fn texts(&self, id: ChangeId) -> Result<(Option<String>, Option<String>), FilesError> {
        let writer = self.writer();
        let entry = writer.journal.change(id)?.ok_or(FilesError::NoSuchChange(id))?;
        let text = |state| -> Result<Option<String>, FilesError> {
            let bytes = kept(&writer.journal, state)?.and_then(|(_, bytes)| bytes);
            Ok(bytes.and_then(|bytes| text::decode(bytes).ok()).map(|decoded| decoded.text))
        };
        Ok((text(entry.change.before)?, text(entry.change.after)?))
    }

    /// Says whether the texts of a change are kept, to take it back with.
    ///
    /// # Errors
    /// Fails if the journal cannot be read.
    pub fn keeps(&self, change: &Change) -> Result<bool, FilesError> {
        is_kept(&self.writer().journal, change)
    }

    /// Returns the hunks of a change in the order in which [`Selection`] counts them. A patch shows several as one where
    /// they are close to each other.
    ///
    /// # Errors
    /// As [`Workspace::texts`].
    pub fn hunks(&self, id: ChangeId) -> Result<Vec<Hunk>, FilesError> {
        let (before, after) = self.texts(id)?;
        Ok(diff::hunks(&before.unwrap_or_default(), &after.unwrap_or_default()))
    }

    pub(super) fn patch(&self, path: &str, before: Option<Kept>, after: Option<Kept>) -> String {
        let text = |side: &Option<Kept>| {
            let bytes = side.as_ref().and_then(|(_, bytes)| bytes.clone())?;
            let decoded = text::decode(bytes).ok()?;
            // To git the mark is part of the first line.
            let mark = decoded.format.bom && decoded.format.encoding == Encoding::Utf8;
            Some(if mark { format!("\u{feff}{}", decoded.text) } else { decoded.text })
        };
        let (old, new) = (text(&before), text(&after));
        fn side<'a>(state: Option<FileState>, text: &'a Option<String>) -> Option<diff::Side<'a>> {
            state.map(|state| {
                let body = text.as_deref().map_or(diff::Body::Opaque(state.hash), diff::Body::Text);
                diff::Side { body, mode: state.mode }
            })
        }
        let state = |side: &Option<Kept>| side.as_ref().map(|(state, _)| *state);
        let below = |path: &LexicalPath| {
            let cwd = LexicalPath::parse(self.inner.roots.cwd()).ok()?;
            path.below(&cwd).map(str::to_owned)
        };
        // A file in another root is named from `/`, where git can apply the patch.
        let shown = LexicalPath::parse(path).ok().as_ref().and_then(below);
        let shown = shown.as_deref().unwrap_or(path).trim_start_matches('/');
        let file =
            FileDiff { path: shown, before: side(state(&before), &old), after: side(state(&after), &new) };
        diff::unified(&file, CONTEXT)
    }
}
