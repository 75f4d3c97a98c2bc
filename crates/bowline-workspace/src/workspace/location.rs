//! The location of a workspace's state. A small file beside each journal names the root that it belongs to, so that the
//! workspaces above and below a directory can be found.

use std::io::Read as _;
use std::path::{Path, PathBuf};

use bowline_text::hash::ContentHash;

/// The directory below the user's state directory that contains one directory per workspace.
const WORKSPACES_DIRECTORY: &str = "workspaces";
/// The file that contains the root's path.
const ROOT_FILE: &str = "root";
/// The maximum length of that path, in bytes.
const MAX_ROOT_BYTES: u64 = 16 << 10;

/// Returns the roots of all workspaces that were opened with a journal below the user's state directory, sorted.
pub(super) fn known_roots(state: &Path) -> Vec<String> {
    // A directory that cannot be listed is treated as empty: the result only serves hints.
    let Ok(entries) = std::fs::read_dir(state.join(WORKSPACES_DIRECTORY)) else { return Vec::new() };
    let mut roots: Vec<String> =
        entries.filter_map(|entry| read_root(&entry.ok()?.path().join(ROOT_FILE))).collect();
    roots.sort();
    roots
}

/// Returns the directory of a workspace: a readable name, and the hash of its identity.
pub(super) fn workspace_directory(state: &Path, name: &str, identity: &str) -> PathBuf {
    let hash = ContentHash::digest(identity.as_bytes()).to_string();
    state.join(WORKSPACES_DIRECTORY).join(format!("{name}-{}", &hash[..16]))
}

/// Records the root of a journal, unless it is already recorded.
pub(super) fn record_root(journal: &Path, root: &str) {
    let file = journal.join(ROOT_FILE);
    if !file.exists() {
        // Without this file, the workspace can be found only from its own root.
        std::fs::write(file, root).ok();
    }
}

fn read_root(file: &Path) -> Option<String> {
    let mut root = String::new();
    std::fs::File::open(file).ok()?.take(MAX_ROOT_BYTES).read_to_string(&mut root).ok()?;
    root.starts_with('/').then_some(root)
}
