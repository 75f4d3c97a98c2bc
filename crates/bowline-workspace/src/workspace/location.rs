//! Where a workspace's state is kept, and which directory each journal is of: a small file beside it names the root, so that the workspaces above and below a
//! directory can be found.

use std::io::Read as _;
use std::path::{Path, PathBuf};

use bowline_state::changes::ContentHash;

use super::Workspace;

/// The directory below the user's directory for state that has one for each workspace.
const WORKSPACES: &str = "workspaces";
/// The name of the file that names the root.
const FILE: &str = "root";
/// A name is at most this long, in bytes.
const MAX_BYTES: u64 = 16 << 10;

impl Workspace {
    /// Returns the roots of all workspaces that were opened with a journal below the user's directory for state, sorted.
    #[must_use]
    pub fn known_roots(state: &Path) -> Vec<String> {
        // A directory that cannot be listed is as good as empty: this is for hints.
        let Ok(entries) = std::fs::read_dir(state.join(WORKSPACES)) else { return Vec::new() };
        let mut roots: Vec<String> =
            entries.filter_map(|entry| read(&entry.ok()?.path().join(FILE))).collect();
        roots.sort();
        roots
    }
}

/// Returns the directory of a workspace: a name for people who look, and the hash of what tells it from others.
pub(super) fn named(state: &Path, name: &str, identity: &str) -> PathBuf {
    let hash = ContentHash::of(identity.as_bytes()).to_string();
    state.join(WORKSPACES).join(format!("{name}-{}", &hash[..16]))
}

/// Notes the root of a journal, unless that was done before.
pub(super) fn remember(journal: &Path, root: &str) {
    let file = journal.join(FILE);
    if !file.exists() {
        // Without it, the workspace is found from its own directory only.
        std::fs::write(file, root).ok();
    }
}

fn read(file: &Path) -> Option<String> {
    let mut root = String::new();
    std::fs::File::open(file).ok()?.take(MAX_BYTES).read_to_string(&mut root).ok()?;
    root.starts_with('/').then_some(root)
}
