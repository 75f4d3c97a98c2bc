//! Changes that were taken back by hand: in effect by the journal, and not in the file.

use std::cell::OnceCell;
use std::collections::{BTreeMap, HashSet};
use std::fs;
use std::io::ErrorKind;

use bowline_state::changes::{Change, ChangeId, ContentHash, FileState};

use super::{Changed, Workspace};

impl Workspace {
    /// Returns the edits of agents that are in effect although their files are, byte for byte, what they were before them.
    #[must_use]
    pub fn reverted_by_hand(&self, history: &[Changed]) -> HashSet<ChangeId> {
        let mut by_file: BTreeMap<&str, Vec<&Change>> = BTreeMap::new();
        for changed in history {
            let change = &changed.change;
            if changed.in_effect && change.reverses.is_empty() && change.origin.session.is_some() {
                by_file.entry(&change.path).or_default().push(change);
            }
        }
        let mut reverted = HashSet::new();
        for (path, changes) in by_file {
            let file = FileNow::new(path);
            let is_last = changes.last().is_some_and(|last| file.is(last.after));
            if let Some(first) = changes.iter().position(|change| !is_last && file.is(change.before)) {
                reverted.extend(changes[first..].iter().map(|change| change.id));
            }
        }
        reverted
    }
}

/// A file as it is now. It is read only if its size leaves the answer open.
struct FileNow<'p> {
    path: &'p str,
    found: std::io::Result<fs::Metadata>,
    hash: OnceCell<Option<ContentHash>>,
}

impl<'p> FileNow<'p> {
    fn new(path: &'p str) -> Self {
        Self { path, found: fs::symlink_metadata(path), hash: OnceCell::new() }
    }

    fn is(&self, state: Option<FileState>) -> bool {
        match (&self.found, state) {
            (Err(error), None) => error.kind() == ErrorKind::NotFound,
            (Ok(found), Some(state)) if found.is_file() && found.len() == state.size => {
                let read = || fs::read(self.path).ok().map(|bytes| ContentHash::of(&bytes));
                *self.hash.get_or_init(read) == Some(state.hash)
            }
            _ => false,
        }
    }
}
