//! The texts that git has already: the packed objects of the repositories around the roots, held open.
//!
//! The first scan does not store a text again that a pack has. Packs are read here, without running git, so nothing is
//! executed or fetched. They stay open as long as the workspace is observed: neither `git gc` nor a command that deletes
//! the repository takes a text away before the change that needs it is recorded. Objects outside of packs, in other
//! repositories' packs (alternates), or with SHA-256 ids are not found, so their texts are stored.

use std::path::{Path, PathBuf};

use ring::digest::{Context, SHA1_FOR_LEGACY_USE_ONLY};

use crate::roots::{Roots, find_git_objects};

mod delta;
mod pack;

use pack::Pack;

/// The maximum number of packs that are held open, the largest ones.
const MAX_PACKS: usize = 32;
/// How many entries of a directory of packs are looked at.
const MAX_LISTED: usize = 10_000;

/// The id of an object in a git repository: the SHA-1 of its header and its bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct GitObjectId([u8; 20]);

impl GitObjectId {
    /// Returns the id that git would give to a file's bytes.
    pub(crate) fn of_file(bytes: &[u8]) -> Self {
        let mut context = Context::new(&SHA1_FOR_LEGACY_USE_ONLY);
        context.update(format!("blob {}\0", bytes.len()).as_bytes());
        context.update(bytes);
        let mut id = [0; 20];
        id.copy_from_slice(context.finish().as_ref());
        Self(id)
    }

    /// Returns the raw id.
    #[must_use]
    pub fn as_bytes(&self) -> &[u8; 20] {
        &self.0
    }
}

impl From<[u8; 20]> for GitObjectId {
    fn from(bytes: [u8; 20]) -> Self {
        Self(bytes)
    }
}

/// The packed objects of the repositories around the roots.
#[derive(Debug, Default)]
pub(crate) struct GitObjects {
    packs: Vec<Pack>,
}

impl GitObjects {
    /// Opens the packs of the repositories around the roots. What cannot be opened is skipped.
    pub(crate) fn open(roots: &Roots) -> Self {
        let mut directories: Vec<_> =
            roots.handles().filter_map(|root| find_git_objects(root.canonical.as_str())).collect();
        directories.sort_unstable();
        directories.dedup();
        let mut indexes: Vec<_> =
            directories.iter().flat_map(|directory| list_indexes(&directory.join("pack"))).collect();
        // The largest ones, chosen before any is opened: there may be more than files can be open.
        indexes.sort_unstable_by_key(|(size, _)| std::cmp::Reverse(*size));
        let packs = indexes.iter().take(MAX_PACKS).filter_map(|(_, path)| Pack::open(path)).collect();
        Self { packs }
    }

    /// Returns the paths of the packs' indexes.
    pub(crate) fn pack_paths(&self) -> Vec<String> {
        self.packs.iter().map(|pack| pack.path().to_owned()).collect()
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.packs.is_empty()
    }

    /// Returns the object with the given bytes, if a pack has it.
    pub(crate) fn find_file(&self, bytes: &[u8]) -> Option<GitObjectId> {
        if self.packs.is_empty() {
            return None;
        }
        let id = GitObjectId::of_file(bytes);
        self.has(&id).then_some(id)
    }

    /// Returns whether a pack has an object.
    pub(crate) fn has(&self, id: &GitObjectId) -> bool {
        self.packs.iter().any(|pack| pack.find(id).is_some())
    }

    /// Returns the bytes of a file in a pack. The caller verifies them.
    pub(crate) fn read_file(&mut self, id: &GitObjectId) -> Option<Vec<u8>> {
        self.packs.iter_mut().find_map(|pack| {
            let offset = pack.find(id)?;
            pack.read_blob(offset)
        })
    }
}

/// Lists the indexes of the packs in a directory, with their sizes.
fn list_indexes(directory: &Path) -> Vec<(u64, PathBuf)> {
    let Ok(entries) = std::fs::read_dir(directory) else { return Vec::new() };
    let is_index = |path: &Path| path.extension().is_some_and(|extension| extension == "idx");
    let paths = entries.flatten().take(MAX_LISTED).map(|entry| entry.path()).filter(|path| is_index(path));
    paths.filter_map(|path| Some((path.metadata().ok()?.len(), path))).collect()
}

#[cfg(test)]
mod tests;
