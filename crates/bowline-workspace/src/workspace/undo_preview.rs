//! Previews of undo and redo.

use bowline_history::changes::{Change, ChangeId};
use bowline_history::undo::{self, ChangeSelection, ReversalDirection, ReversalPlan};

use super::Workspace;
use super::apply::CurrentFile;
use super::reversal::{ReversalOptions, reverse_all};
use super::undo::{SelectedChanges, StoredFile, selected_hunks, stored_file_from_bytes};
use crate::error::FilesError;
use crate::journal::Journal;

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

impl Workspace {
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
        let session = self.session("");
        let writer = self.writer();
        let SelectedChanges { files, skipped: left, selection } =
            session.select_changes(&writer.journal, selection, direction)?;
        let options =
            ReversalOptions { hunks: selected_hunks(direction, &selection), ..ReversalOptions::default() };
        let documents = self.documents();
        let mut foreseen = Vec::new();
        let names: Vec<String> = files.keys().cloned().collect();
        let names: Vec<&str> = names.iter().map(String::as_str).collect();
        let nested = undo::find_nested_paths(&names);
        for (path, changes) in files {
            let planned = session.plan_file(&writer.journal, &documents, &path, &changes, options);
            let planned = planned.map(|plan| (plan.current, plan.planned)).or_else(|error| {
                // The undo would have removed the obstacle by then.
                let alone = || Ok((None, plan_missing_file(&writer.journal, &changes, options)?));
                if nested.contains(&path.as_str()) {
                    alone().map_err(|_: FilesError| error)
                } else {
                    Err(error)
                }
            });
            let patch = planned.map(|(current, planned)| match planned {
                ReversalPlan::Unchanged => String::new(),
                ReversalPlan::Delete => self.format_patch(&path, current.map(to_stored_file), None),
                ReversalPlan::Write { bytes, mode } => self.format_patch(
                    &path,
                    current.map(to_stored_file),
                    Some(stored_file_from_bytes(bytes, mode)),
                ),
            });
            let changes = changes.iter().map(|change| change.id).collect();
            foreseen.push(FileUndoPreview { path, changes, patch });
        }
        Ok(UndoPreview { files: foreseen, skipped: left })
    }
}

/// Plans the reversal for a file that does not exist.
fn plan_missing_file(
    journal: &Journal,
    changes: &[Change],
    options: ReversalOptions<'_>,
) -> Result<ReversalPlan, FilesError> {
    let changes: Vec<&Change> = changes.iter().collect();
    let file = reverse_all(journal, None, &changes, options)?.file;
    Ok(file.map_or(ReversalPlan::Unchanged, |(bytes, mode)| ReversalPlan::Write { bytes, mode }))
}

fn to_stored_file(current: CurrentFile) -> StoredFile {
    let mode = current.mode();
    stored_file_from_bytes(current.bytes, mode)
}
