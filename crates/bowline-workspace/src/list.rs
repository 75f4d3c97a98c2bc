//! Directory listings for users and agents.

use std::ops::ControlFlow;

use bowline_policy::paths::path_below;

use crate::roots::{AdmittedPath, Roots};
use crate::walker::{
    self, EntryKind, EntryMetadata, IgnoreRulesCache, StartVisibility, WalkOptions, WalkOrder,
    WalkStartOutcome,
};

pub use crate::walker::IgnoredFiles;

/// The default maximum number of entries.
pub const MAX_LIST_ENTRIES: u64 = 10_000;

/// The options of a listing.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ListOptions {
    /// The depth; 1 lists only the directory itself.
    pub depth: usize,
    /// How to treat ignored files.
    pub ignored: IgnoredFiles,
    /// The maximum number of entries.
    pub max_entries: u64,
}

impl Default for ListOptions {
    fn default() -> Self {
        Self { depth: 1, ignored: IgnoredFiles::Skip, max_entries: MAX_LIST_ENTRIES }
    }
}

/// One entry.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ListEntry {
    /// The path relative to the listed directory.
    pub path: String,
    /// The kind. Targets of links are not resolved.
    pub kind: EntryKind,
    /// The size in bytes.
    pub size: u64,
    /// The modification time, in nanoseconds since 1970.
    pub mtime_ns: i64,
}

/// The entries of a directory, sorted by name; a directory precedes its content.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Listing {
    /// The entries.
    pub entries: Vec<ListEntry>,
    /// Whether there are more entries.
    pub truncated: bool,
    /// The number of directories that could not be read.
    pub unreadable: u64,
}

/// Why a directory cannot be listed.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ListError {
    /// The path does not exist.
    #[error("{0} does not exist")]
    NotFound(String),
    /// The path is not a directory.
    #[error("{0} is not a directory")]
    NotADirectory(String),
    /// The path is the store of a version control system.
    #[error("{0} is the store of a version control system, which is not listed")]
    VersionControlStore(String),
    /// The system denies access.
    #[error("cannot read the directory {0}")]
    Unreadable(String),
    /// The path is on a file system that is not entered.
    #[error("{0} is on another file system, which is not listed")]
    OtherFileSystem(String),
}

/// Lists an admitted directory.
///
/// # Errors
/// Returns an error if there is nothing to list; it names the path as requested.
pub fn list(roots: &Roots, directory: &AdmittedPath, options: &ListOptions) -> Result<Listing, ListError> {
    let asked = || directory.requested_path().to_owned();
    let walk = WalkOptions {
        ignored: options.ignored,
        order: WalkOrder::ByName,
        max_entries: options.max_entries,
        max_depth: options.depth.max(1),
        // A listing of one directory may show what is mounted there.
        metadata: EntryMetadata::Full,
        file_systems: walker::FileSystemScope::All,
    };
    let (mut entries, mut rules) = (Vec::new(), IgnoreRulesCache::default());
    let path = directory.canonical();
    let (arrival, report) =
        walker::walk_from(roots, path, StartVisibility::AlwaysVisible, &walk, &mut rules, &mut |entry| {
            // An entry below the directory always has a relative path.
            if let Some(way) = path_below(entry.path(), path) {
                let stamp = entry.stamp();
                entries.push(ListEntry {
                    path: way.to_owned(),
                    kind: entry.kind(),
                    size: stamp.size,
                    mtime_ns: stamp.mtime_ns,
                });
            }
            ControlFlow::Continue(())
        });
    match arrival {
        WalkStartOutcome::Directory => {}
        WalkStartOutcome::Entry => return Err(ListError::NotADirectory(asked())),
        WalkStartOutcome::Missing if report.unreadable > 0 => return Err(ListError::Unreadable(asked())),
        WalkStartOutcome::Missing | WalkStartOutcome::Outside => return Err(ListError::NotFound(asked())),
        WalkStartOutcome::Hidden => return Err(ListError::OtherFileSystem(asked())),
        WalkStartOutcome::VersionControlStore => return Err(ListError::VersionControlStore(asked())),
    }
    // A root inside the directory is walked separately, after the rest.
    entries.sort_unstable_by(|one, other| one.path.split('/').cmp(other.path.split('/')));
    Ok(Listing { entries, truncated: report.truncated, unreadable: report.unreadable })
}

#[cfg(test)]
mod tests;
