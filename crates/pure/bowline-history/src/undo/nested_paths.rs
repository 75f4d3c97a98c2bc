//! Paths that cannot all be files, because one would have to be a directory for another.

use std::collections::BTreeSet;

/// Returns the paths that lie below another one or contain another one, in order.
#[must_use]
pub fn find_nested_paths<'p>(paths: &[&'p str]) -> Vec<&'p str> {
    let all: BTreeSet<&str> = paths.iter().copied().collect();
    let mut nested = BTreeSet::new();
    for path in all.iter().copied() {
        for above in ancestors(path).filter(|above| all.contains(above)) {
            nested.extend([path, above]);
        }
    }
    nested.into_iter().collect()
}

/// Returns the ancestor directories of files that occupy a place where a path is to be a file, deepest first.
#[must_use]
pub fn find_emptied_directories<'p>(
    files: impl IntoIterator<Item = &'p str>,
    paths: &[&str],
) -> Vec<&'p str> {
    let targets: BTreeSet<&str> = paths.iter().copied().collect();
    let is_in_place = |directory: &str| {
        targets.contains(directory) || ancestors(directory).any(|above| targets.contains(above))
    };
    let directories: BTreeSet<&str> =
        files.into_iter().flat_map(ancestors).filter(|path| is_in_place(path)).collect();
    // A directory is a prefix of its content, and so comes before it.
    directories.into_iter().rev().collect()
}

/// Returns the ancestor directories of a path, nearest first.
fn ancestors(path: &str) -> impl Iterator<Item = &str> {
    std::iter::successors(parent(path), |path| parent(path))
}

fn parent(path: &str) -> Option<&str> {
    path.rsplit_once('/').map(|(parent, _)| parent).filter(|parent| !parent.is_empty())
}

#[cfg(test)]
mod tests;
