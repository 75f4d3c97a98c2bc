//! Watches of files: what a watch covers, what differs between two states of a path, who made the difference, which
//! differences are renames, and the pages that report them.
//!
//! A watch compares states instead of relaying events, so that several changes of one path within a short time are one
//! change, and a file that came and went is none.

use std::collections::HashMap;
use std::hash::Hash;
use std::ops::Range;

use bowline_policy::paths::path_below;
use bowline_protocol::file_extension::operations::FileGlob;
use bowline_protocol::file_extension::{ChangeAuthor, ChangeKind, FileChange};
use bowline_text::hash::ContentHash;
use bowline_text::time::Timestamp;

use crate::changes::{Change, ChangeId, ChangeSource};
use crate::observation::{ContentChange, FileStamp, KnownFile, compare_contents};

/// How much a watch covers.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum WatchExtent {
    /// One file.
    File,
    /// A directory and its own entries.
    Entries,
    /// A directory and everything below it.
    Recursive,
}

/// The paths that a watch covers.
#[derive(Debug, Clone)]
pub struct WatchScope {
    /// The canonical path of the file or directory.
    pub path: String,
    /// How much it covers.
    pub extent: WatchExtent,
    /// Selects paths by their way from the directory.
    pub glob: Option<FileGlob>,
}

impl WatchScope {
    /// Returns whether a canonical path is in the scope, whatever the glob selects.
    #[must_use]
    pub fn contains(&self, path: &str) -> bool {
        match (self.extent, path_below(path, &self.path)) {
            (_, Some("")) | (WatchExtent::Recursive, Some(_)) => true,
            (WatchExtent::Entries, Some(way)) => !way.contains('/'),
            (WatchExtent::File, Some(_)) | (_, None) => false,
        }
    }

    /// Returns whether changes of a canonical path are reported. The watched path itself always is.
    #[must_use]
    pub fn selects(&self, path: &str) -> bool {
        let is_match = |way: &str| way.is_empty() || self.glob.as_ref().is_none_or(|glob| glob.is_match(way));
        self.contains(path) && path_below(path, &self.path).is_some_and(is_match)
    }
}

/// The type of a watched entry. Symbolic links and special files are not watched.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum WatchedType {
    /// A file.
    File,
    /// A directory.
    Directory,
}

/// The known state of a watched path.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct WatchedEntry {
    /// Its type.
    pub file_type: WatchedType,
    /// Its metadata.
    pub known: KnownFile,
    /// The newest change in the journal that was considered for it.
    pub last_change: Option<ChangeId>,
}

impl WatchedEntry {
    /// Returns the state of a path. `now_ns` is a time no later than the reading of its metadata.
    #[must_use]
    pub fn new(file_type: WatchedType, stamp: FileStamp, now_ns: i64) -> Self {
        Self { file_type, known: KnownFile::new(stamp, None, now_ns), last_change: None }
    }
}

/// Returns what happened to a path, if anything. Of a directory, only its mode counts: its entries have changes of their
/// own. `is_reported` says that the system reported a change of this very path, so that equal metadata proves nothing if
/// the last change was too recent.
#[must_use]
pub fn compare_entries(
    before: Option<&WatchedEntry>,
    after: Option<&WatchedEntry>,
    is_reported: bool,
) -> Option<ChangeKind> {
    let (before, after) = match (before, after) {
        (None, None) => return None,
        (None, Some(_)) => return Some(ChangeKind::Created),
        (Some(_), None) => return Some(ChangeKind::Removed),
        (Some(before), Some(after)) => (before, after),
    };
    if before.file_type != after.file_type {
        return Some(ChangeKind::Other);
    }
    let is_file = after.file_type == WatchedType::File;
    match compare_contents(&before.known, &after.known.stamp, None) {
        ContentChange::Bytes if is_file => Some(ChangeKind::Modified),
        ContentChange::None if is_file && is_reported && before.known.is_racy => Some(ChangeKind::Modified),
        ContentChange::Mode => Some(ChangeKind::Other),
        ContentChange::Bytes if before.known.stamp.mode != after.known.stamp.mode => Some(ChangeKind::Other),
        ContentChange::Bytes | ContentChange::None => None,
    }
}

/// Returns whether a recorded change led to the current state of its file: a hash, or `None` if the file is gone.
#[must_use]
pub fn explains_state(change: &Change, current: Option<&ContentHash>) -> bool {
    change.after.as_ref().map(|state| &state.hash) == current
}

/// Returns the author of a recorded change, as a session sees it; `None` if the record does not know either.
#[must_use]
pub fn change_author(change: &Change, session: &str) -> Option<ChangeAuthor> {
    if change.is_unattributed() {
        return None;
    }
    Some(match &change.origin.session {
        None => ChangeAuthor::User,
        Some(other) if other != session => ChangeAuthor::Session,
        Some(_) if change.source == ChangeSource::Observed && change.origin.command.is_some() => {
            ChangeAuthor::Command
        }
        Some(_) => ChangeAuthor::Agent,
    })
}

/// A difference between two states of a path.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PathDifference {
    /// The canonical path.
    pub path: String,
    /// What happened.
    pub kind: ChangeKind,
    /// The type of what is there, or was.
    pub file_type: WatchedType,
    /// The metadata of what is there, or was.
    pub stamp: Option<FileStamp>,
    /// The author, if known.
    pub author: Option<ChangeAuthor>,
    /// The time of the recorded change that explains it, and the content that was created or removed.
    pub record: Option<(Timestamp, ContentHash)>,
}

/// Turns the differences of one watch into changes: pairs those that are renames, attributes those without an author,
/// and sorts by path. `fallback` is the author if nothing else is known.
#[must_use]
pub fn to_changes(mut differences: Vec<PathDifference>, fallback: ChangeAuthor) -> Vec<FileChange> {
    attribute_directories(&mut differences);
    differences.sort_by(|one, other| one.path.split('/').cmp(other.path.split('/')));
    let by_inode = |seen: &PathDifference| {
        let stamp = seen.stamp?;
        // A new file may get the inode of a removed one. A directory changes with its entries, so that only its inode
        // says anything; what is below it is reported in any case.
        let content = (seen.file_type == WatchedType::File).then_some((stamp.size, stamp.mtime_ns));
        Some((content, stamp.device, stamp.inode))
    };
    let mut pairs = pair_renames(&differences, by_inode);
    // A move by the engine makes a new file with the same content.
    pairs.extend(pair_renames(&differences, |seen| seen.record));
    let mut sources: HashMap<usize, usize> = HashMap::new();
    let mut is_source = vec![false; differences.len()];
    for (from, to) in pairs {
        if !is_source[from] && !sources.contains_key(&to) {
            sources.insert(to, from);
            is_source[from] = true;
        }
    }
    let change = |(index, seen): (usize, &PathDifference)| {
        let source = sources.get(&index).map(|from| &differences[*from]);
        let author = seen.author.or(source.and_then(|source| source.author)).unwrap_or(fallback);
        match source {
            Some(source) => FileChange::renamed(&source.path, &seen.path, author),
            None => FileChange::new(&seen.path, seen.kind, author),
        }
    };
    let shown = differences.iter().enumerate().filter(|(index, _)| !is_source[*index]);
    shown.map(change).collect()
}

/// Gives a directory without an author the author of everything that changed below it, if that is one.
fn attribute_directories(differences: &mut [PathDifference]) {
    let is_open = |seen: &PathDifference| seen.file_type == WatchedType::Directory && seen.author.is_none();
    let open = differences.iter().filter(|seen| is_open(seen));
    let mut authors: HashMap<String, Vec<Option<ChangeAuthor>>> =
        open.map(|seen| (seen.path.clone(), Vec::new())).collect();
    if authors.is_empty() {
        return;
    }
    for seen in differences.iter().filter(|seen| !is_open(seen)) {
        for (end, _) in seen.path.match_indices('/') {
            if let Some(authors) = authors.get_mut(&seen.path[..end])
                && !authors.contains(&seen.author)
            {
                authors.push(seen.author);
            }
        }
    }
    for seen in differences.iter_mut().filter(|seen| is_open(seen)) {
        if let Some([author]) = authors.get(&seen.path).map(Vec::as_slice) {
            seen.author = *author;
        }
    }
}

/// Returns pairs of a removal and a creation with the same key, each in one pair at most.
fn pair_renames<K: Eq + Hash>(
    differences: &[PathDifference],
    key: impl Fn(&PathDifference) -> Option<K>,
) -> Vec<(usize, usize)> {
    let of_kind = |kind: ChangeKind| {
        let all = differences.iter().enumerate().filter(move |(_, seen)| seen.kind == kind);
        all.filter_map(|(index, seen)| Some((key(seen)?, index)))
    };
    let mut removed: HashMap<K, usize> = of_kind(ChangeKind::Removed).collect();
    of_kind(ChangeKind::Created).filter_map(|(key, to)| Some((removed.remove(&key)?, to))).collect()
}

/// Returns the ranges of changes that notifications carry, at most `max` each. There is one even without changes, if
/// changes were left out.
#[must_use]
pub fn page_ranges(changes: usize, max: usize, has_overflowed: bool) -> Vec<Range<usize>> {
    let max = max.max(1);
    let count = changes.div_ceil(max).max(usize::from(has_overflowed));
    (0..count).map(|page| page * max..changes.min((page + 1) * max)).collect()
}

#[cfg(test)]
mod tests;
