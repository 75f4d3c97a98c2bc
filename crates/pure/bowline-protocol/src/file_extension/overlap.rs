//! Overlapping operations of a batch.
//!
//! Operations that overlap are refused, because the outcome would depend on details of their order:
//! - A path is changed by one operation only, and so is everything above and beneath it. Written, moved, copied to and
//!   removed paths are changed, and both paths of a move.
//! - A read, and the source of a copy, comes before operations that change the same path or one above or beneath it:
//!   it gets the content before the batch.
//! - A directory is created before operations change or create something in it, and only once.

use std::collections::BTreeMap;
use std::path::Path;

use super::error::{BatchError, FileError};

/// The effect of an operation on a path.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum PathEffect<'a> {
    /// It reads the path and everything beneath it.
    Read(&'a Path),
    /// It changes the path and everything beneath it.
    Change(&'a Path),
    /// It creates the path as a directory.
    CreateDirectory(&'a Path),
}

impl<'a> PathEffect<'a> {
    /// Returns the path.
    #[must_use]
    pub fn path(self) -> &'a Path {
        let (Self::Read(path) | Self::Change(path) | Self::CreateDirectory(path)) = self;
        path
    }
}

/// Checks the operations of a batch, one after the other.
#[derive(Debug, Default)]
pub struct OverlapChecker<'a> {
    // Invariant: no path is beneath one of another operation.
    changed: BTreeMap<&'a Path, u64>,
    created: BTreeMap<&'a Path, u64>,
    next_index: u64,
}

impl<'a> OverlapChecker<'a> {
    /// Adds the next operation by its effects, in any order. Paths are absolute and contain no `..`.
    ///
    /// # Errors
    /// Fails with [`FileError::Overlap`] and the index of this operation if it overlaps with an earlier one.
    pub fn add(&mut self, effects: &[PathEffect<'a>]) -> Result<(), BatchError> {
        let index = self.next_index;
        for effect in effects {
            if let Some((path, other)) = self.find_overlap(*effect) {
                let path = path.to_string_lossy().into_owned();
                return Err(BatchError { index: Some(index), error: FileError::Overlap { path, other } });
            }
        }
        for effect in effects {
            let (paths, path) = match *effect {
                PathEffect::Read(_) => continue,
                PathEffect::Change(path) => (&mut self.changed, path),
                PathEffect::CreateDirectory(path) => (&mut self.created, path),
            };
            paths.insert(path, index);
        }
        self.next_index += 1;
        Ok(())
    }

    /// Returns the path of the effect and the earlier operation that it overlaps with.
    fn find_overlap(&self, effect: PathEffect<'a>) -> Option<(&'a Path, u64)> {
        let (path, other) = match effect {
            PathEffect::Read(path) => (path, find_related(&self.changed, path)),
            PathEffect::Change(path) | PathEffect::CreateDirectory(path) => {
                (path, find_related(&self.changed, path).or_else(|| find_beneath(&self.created, path)))
            }
        };
        other.map(|other| (path, other))
    }
}

/// Returns an operation whose path is this one, or above or beneath it, among paths of which none is beneath another.
fn find_related(paths: &BTreeMap<&Path, u64>, path: &Path) -> Option<u64> {
    // The closest smaller path is the one above, if any is: only its own descendants could come between.
    let above = || paths.range::<&Path, _>(..path).next_back().filter(|(above, _)| path.starts_with(above));
    find_beneath(paths, path).or_else(|| above().map(|(_, index)| *index))
}

/// Returns an operation whose path is this one or beneath it.
fn find_beneath(paths: &BTreeMap<&Path, u64>, path: &Path) -> Option<u64> {
    // Paths are ordered by their names, so what is beneath a path follows it immediately.
    let (beneath, index) = paths.range::<&Path, _>(path..).next()?;
    beneath.starts_with(path).then_some(*index)
}
