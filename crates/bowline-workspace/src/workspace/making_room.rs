//! Taking back where a file has become a directory, or a directory a file.
//!
//! What is in the way goes first: a group of its own, all or none, then the directories that are empty without it, then the
//! rest. If the rest cannot be done, the first group comes back. If the process dies in between, what was taken back is
//! recorded as that, and the same undo does the rest.

use bowline_state::changes::Change;
use bowline_state::paths::Access;
use bowline_state::undo::{self, Planned};
use indexmap::IndexMap;

use super::applying::NotApplied;
use super::reversal::ReversalOptions;
use super::undoing::{Meant, Reversed};
use super::{Session, Writer};
use crate::error::FilesError;
use crate::journal::{Filter, Journal};

impl Session {
    /// Takes away the files that lie where directories have to be, or in directories where files have to be.
    pub(super) fn make_room(
        &self,
        writer: &mut Writer,
        by_file: &IndexMap<String, Vec<Change>>,
        meant: &Meant<'_>,
    ) -> Result<Vec<Reversed>, FilesError> {
        let names: Vec<&str> = by_file.keys().map(String::as_str).collect();
        let nested = undo::nested(&names);
        let mut documents = self.workspace.documents();
        let mut plans = Vec::new();
        for path in &nested {
            let Some(changes) = by_file.get(*path) else { continue };
            // What cannot be planned yet, because of what is in its way, is planned when that is gone.
            let planned = self.plan(&writer.journal, &documents, path, changes, meant.options);
            plans.extend(planned.ok().filter(|plan| plan.planned == Planned::Delete && !plan.unsaved));
        }
        let cleared = if plans.is_empty() {
            Ok(Vec::new())
        } else {
            self.reverse(writer, &mut documents, plans, meant)
        };
        let cleared = match cleared {
            Ok(cleared) => cleared,
            Err(NotApplied::Raced) => {
                return Err(FilesError::Unsteady(nested.first().copied().unwrap_or_default().to_owned()));
            }
            Err(NotApplied::Failed(error)) => return Err(error),
        };
        drop(documents);
        self.remove_emptied(&writer.journal, &names);
        Ok(cleared)
    }

    /// Removes the directories that stand where files have to be, as far as they are empty and the journal knows of files
    /// in them: of now, or of an undo that came no further.
    fn remove_emptied(&self, journal: &Journal, names: &[&str]) {
        let is_directory = |path: &&str| {
            let admitted = self.roots.admit(path, Access::Write);
            admitted.is_ok_and(|admitted| self.roots.open_directory(&admitted).is_ok())
        };
        let blocked: Vec<&str> = names.iter().copied().filter(is_directory).collect();
        if blocked.is_empty() {
            return;
        }
        let Ok(history) = journal.changes(&Filter::default()) else { return };
        let files = history.iter().map(|entry| entry.change.path.as_str());
        for directory in undo::emptied(files, &blocked) {
            // One that is not empty stays, and what is to be in its place says so.
            self.roots.remove_empty(directory, &self.workspace.inner.calls);
        }
    }

    /// Brings back what was taken away to make room, because the rest cannot be done. Says whether all of it came back.
    pub(super) fn fill_room(&self, writer: &mut Writer, cleared: &[Reversed], meant: &Meant<'_>) -> bool {
        let mut documents = self.workspace.documents();
        let back = |journal: &Journal, file: &Reversed| {
            let change = journal.change(file.change).ok().flatten()?.change;
            self.plan(journal, &documents, &file.path, &[change], ReversalOptions::default()).ok()
        };
        let plans: Vec<_> = cleared.iter().filter_map(|file| back(&writer.journal, file)).collect();
        // What does not come back now is in the journal, and an undo of the undo brings it back.
        let is_all = plans.len() == cleared.len();
        let is_back = plans.is_empty() || self.reverse(writer, &mut documents, plans, meant).is_ok();
        is_all && is_back
    }
}

#[cfg(test)]
mod tests;
