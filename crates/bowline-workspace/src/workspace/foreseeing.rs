//! What an undo or a redo would do, without doing it.

use bowline_state::changes::{Change, ChangeId};
use bowline_state::undo::{self, Direction, Planned, Selection};

use super::Workspace;
use super::applying::Current;
use super::reversal::{ReversalOptions, take_back_all};
use super::undoing::{Chosen, Kept, at_hand, hunks};
use crate::error::FilesError;
use crate::journal::Journal;

/// What taking back would make of one file.
#[derive(Debug)]
pub struct Foreseen {
    /// The file: absolute, with no link on the way.
    pub path: String,
    /// The changes that would be taken back, the newest first.
    pub changes: Vec<ChangeId>,
    /// What would be done, as a patch that git reads: empty if the file is so already. Or why it cannot be done.
    pub patch: Result<String, FilesError>,
}

/// What an undo or redo would do.
#[derive(Debug)]
pub struct Foresight {
    /// The files.
    pub files: Vec<Foreseen>,
    /// Changes whose text is not known, which would be left as they are.
    pub left: Vec<ChangeId>,
}

impl Workspace {
    /// Says what [`Workspace::undo`] or [`Workspace::redo`] would do to each file. By the time that it is done, a file may be
    /// another one.
    ///
    /// # Errors
    /// Fails if there is nothing to take back or the journal cannot be read.
    pub fn foresee(&self, direction: Direction, selection: &Selection) -> Result<Foresight, FilesError> {
        let session = self.session("");
        let writer = self.writer();
        let Chosen { files, left, selection } = session.chosen(&writer.journal, selection, direction)?;
        let options = ReversalOptions { hunks: hunks(direction, &selection), ..ReversalOptions::default() };
        let documents = self.documents();
        let mut foreseen = Vec::new();
        let names: Vec<String> = files.keys().cloned().collect();
        let names: Vec<&str> = names.iter().map(String::as_str).collect();
        let nested = undo::nested(&names);
        for (path, changes) in files {
            let planned = session.plan(&writer.journal, &documents, &path, &changes, options);
            let planned = planned.map(|plan| (plan.current, plan.planned)).or_else(|error| {
                // What is in its way would be gone by then.
                let alone = || Ok((None, plan_alone(&writer.journal, &changes, options)?));
                if nested.contains(&path.as_str()) {
                    alone().map_err(|_: FilesError| error)
                } else {
                    Err(error)
                }
            });
            let patch = planned.map(|(current, planned)| match planned {
                Planned::Unchanged => String::new(),
                Planned::Delete => self.patch(&path, current.map(kept), None),
                Planned::Write { bytes, mode } => {
                    self.patch(&path, current.map(kept), Some(at_hand(bytes, mode)))
                }
            });
            let changes = changes.iter().map(|change| change.id).collect();
            foreseen.push(Foreseen { path, changes, patch });
        }
        Ok(Foresight { files: foreseen, left })
    }
}

/// Plans what becomes of a file that is not there.
fn plan_alone(
    journal: &Journal,
    changes: &[Change],
    options: ReversalOptions<'_>,
) -> Result<Planned, FilesError> {
    let changes: Vec<&Change> = changes.iter().collect();
    let file = take_back_all(journal, None, &changes, options)?.file;
    Ok(file.map_or(Planned::Unchanged, |(bytes, mode)| Planned::Write { bytes, mode }))
}

fn kept(current: Current) -> Kept {
    let mode = current.mode();
    at_hand(current.bytes, mode)
}
