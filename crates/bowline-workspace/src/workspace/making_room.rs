//! Taking back where a file has become a directory, or a directory a file.
//!
//! What is in the way goes first: a group of its own, all or none, then the directories that it leaves empty, then the rest.
//! If the rest cannot be done, the first group comes back. If the process dies in between, what was taken back is recorded
//! as that, and the same undo does the rest.

use bowline_state::changes::Change;
use bowline_state::paths::Access;
use bowline_state::undo::{self, Planned};
use indexmap::IndexMap;
use rustix::fs::AtFlags;

use super::applying::NotApplied;
use super::undoing::{Meant, Reversed};
use super::{Session, Writer};
use crate::error::FilesError;
use crate::journal::Journal;

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
            let planned = self.plan(&writer.journal, &documents, path, changes, meant.hunks);
            plans.extend(planned.ok().filter(|plan| plan.planned == Planned::Delete && !plan.unsaved));
        }
        if plans.is_empty() {
            return Ok(Vec::new());
        }
        let cleared = match self.reverse(writer, &mut documents, plans, meant) {
            Ok(cleared) => cleared,
            Err(NotApplied::Raced) => {
                return Err(FilesError::Unsteady(nested.first().copied().unwrap_or_default().to_owned()));
            }
            Err(NotApplied::Failed(error)) => return Err(error),
        };
        drop(documents);
        for directory in undo::emptied(cleared.iter().map(|file| file.path.as_str()), &names) {
            // One that is not empty stays, and what is to be in its place says so.
            self.remove_empty(directory);
        }
        Ok(cleared)
    }

    fn remove_empty(&self, path: &str) {
        let Ok(admitted) = self.roots.admit(path, Access::Write) else { return };
        if admitted.canonical() == path
            && let Ok(Some(place)) = self.roots.place(&admitted)
        {
            rustix::fs::unlinkat(place.directory(), place.leaf(), AtFlags::REMOVEDIR).ok();
        }
    }

    /// Brings back what was taken away to make room, because the rest cannot be done.
    pub(super) fn fill_room(&self, writer: &mut Writer, cleared: &[Reversed], meant: &Meant<'_>) {
        let mut documents = self.workspace.documents();
        let back = |journal: &Journal, file: &Reversed| {
            let change = journal.change(file.change).ok().flatten()?.change;
            self.plan(journal, &documents, &file.path, &[change], None).ok()
        };
        let plans: Vec<_> = cleared.iter().filter_map(|file| back(&writer.journal, file)).collect();
        // What does not come back now is in the journal, and an undo of the undo brings it back.
        if !plans.is_empty() {
            self.reverse(writer, &mut documents, plans, meant).ok();
        }
    }
}

#[cfg(test)]
mod tests;
