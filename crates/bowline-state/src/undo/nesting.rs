//! Paths that cannot all be files: one would have to be a directory for another.

use std::collections::BTreeSet;

/// Returns the paths that lie below another one, or have another one below them, in order.
#[must_use]
pub fn nested<'p>(paths: &[&'p str]) -> Vec<&'p str> {
    let all: BTreeSet<&str> = paths.iter().copied().collect();
    let mut nested = BTreeSet::new();
    for path in all.iter().copied() {
        for above in above(path).filter(|above| all.contains(above)) {
            nested.extend([path, above]);
        }
    }
    nested.into_iter().collect()
}

/// Returns the directories that files were in, as far as they are where a path is to be a file: the deepest first.
#[must_use]
pub fn emptied<'p>(files: impl IntoIterator<Item = &'p str>, paths: &[&str]) -> Vec<&'p str> {
    let wanted: BTreeSet<&str> = paths.iter().copied().collect();
    let is_in_place =
        |directory: &str| wanted.contains(directory) || above(directory).any(|above| wanted.contains(above));
    let directories: BTreeSet<&str> =
        files.into_iter().flat_map(above).filter(|path| is_in_place(path)).collect();
    // A directory is a prefix of those in it, and so comes before them.
    directories.into_iter().rev().collect()
}

/// Returns the directories that a path is in, the nearest first.
fn above(path: &str) -> impl Iterator<Item = &str> {
    std::iter::successors(parent(path), |path| parent(path))
}

fn parent(path: &str) -> Option<&str> {
    path.rsplit_once('/').map(|(parent, _)| parent).filter(|parent| !parent.is_empty())
}

#[cfg(test)]
mod tests;
