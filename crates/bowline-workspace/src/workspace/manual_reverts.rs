//! Changes that were reverted by hand: in effect according to the journal, but absent from the file.

use std::cell::OnceCell;
use std::collections::{BTreeMap, HashSet};
use std::fs;
use std::io::ErrorKind;

use bowline_history::changes::{Change, ChangeId, FileState};
use bowline_text::hash::ContentHash;

use super::{ListedChange, Workspace};

impl Workspace {
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
            let file = LazyFileState::new(path);
            let is_last = changes.last().is_some_and(|last| file.matches(last.after));
            if let Some(first) = changes.iter().position(|change| !is_last && file.matches(change.before)) {
                reverted.extend(changes[first..].iter().map(|change| change.id));
            }
        }
        reverted
    }
}

/// The current state of a file. Its content is read only if its size is inconclusive.
struct LazyFileState<'p> {
    path: &'p str,
    metadata: std::io::Result<fs::Metadata>,
    hash: OnceCell<Option<ContentHash>>,
}

impl<'p> LazyFileState<'p> {
    fn new(path: &'p str) -> Self {
        Self { path, metadata: fs::symlink_metadata(path), hash: OnceCell::new() }
    }

    fn matches(&self, state: Option<FileState>) -> bool {
        match (&self.metadata, state) {
            (Err(error), None) => error.kind() == ErrorKind::NotFound,
            (Ok(found), Some(state)) if found.is_file() && found.len() == state.size => {
                let read = || fs::read(self.path).ok().map(|bytes| ContentHash::digest(&bytes));
                *self.hash.get_or_init(read) == Some(state.hash)
            }
            _ => false,
        }
    }
}
