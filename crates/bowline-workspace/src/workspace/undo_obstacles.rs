//! Undo where a file has become a directory, or a directory a file.
//!
//! The obstacles are removed first: their files as a separate group, all or none, then the directories that this leaves
//! empty, then the remaining files are reversed. If that fails, the first group is restored. If the process dies in
//! between, the journal records what was reversed, and repeating the undo completes the rest.

use bowline_history::changes::Change;
use bowline_history::undo::{self, ReversalPlan};
use bowline_policy::paths::Access;
use indexmap::IndexMap;

use super::apply::ApplyError;
use super::reversal::ReversalOptions;
use super::undo::{ReversalContext, ReversedFile};
use super::{WorkspaceSession, WorkspaceWriter};
use crate::error::FilesError;
use crate::journal::{ChangeFilter, Journal};

impl WorkspaceSession {
    /// Removes the files that stand where directories are needed, or in directories where files are needed.
    pub(super) fn remove_obstacles(
        &self,
        writer: &mut WorkspaceWriter,
        by_file: &IndexMap<String, Vec<Change>>,
        meant: &ReversalContext<'_>,
    ) -> Result<Vec<ReversedFile>, FilesError> {
        let names: Vec<&str> = by_file.keys().map(String::as_str).collect();
        let nested = undo::find_nested_paths(&names);
        let mut documents = self.workspace.documents();
        let mut plans = Vec::new();
        for path in &nested {
            let Some(changes) = by_file.get(*path) else { continue };
            // A file that cannot be planned because of an obstacle is planned once the obstacle is gone.
            let planned = self.plan_file(&writer.journal, &documents, path, changes, meant.options);
            plans.extend(
                planned.ok().filter(|plan| plan.planned == ReversalPlan::Delete && !plan.has_unsaved_text),
            );
        }
        let cleared = if plans.is_empty() {
            Ok(Vec::new())
        } else {
            self.apply_plans(writer, &mut documents, plans, meant)
        };
        let cleared = match cleared {
            Ok(cleared) => cleared,
            Err(ApplyError::Raced) => {
                return Err(FilesError::KeepsChanging(
                    nested.first().copied().unwrap_or_default().to_owned(),
                ));
            }
            Err(ApplyError::Failed(error)) => return Err(error),
        };
        drop(documents);
        self.remove_emptied_directories(&writer.journal, &names);
        Ok(cleared)
    }

    /// Removes the directories that stand where files are needed, if they are empty and the journal knows files in
    /// them, from this undo or an interrupted one.
    fn remove_emptied_directories(&self, journal: &Journal, names: &[&str]) {
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
        for directory in undo::find_emptied_directories(files, &blocked) {
            // A directory that is not empty stays, and the file that needs its path reports the conflict.
            self.roots.remove_empty_directory(directory, &self.workspace.inner.calls);
        }
    }

    /// Restores the removed obstacles, because the rest failed. Returns whether all were restored.
    pub(super) fn restore_obstacles(
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

#[cfg(test)]
mod tests;
