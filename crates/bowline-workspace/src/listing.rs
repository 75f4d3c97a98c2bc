//! What is in a directory, for a person or an agent to read.

use std::ops::ControlFlow;

use crate::roots::{Admitted, Roots};
use crate::walker::{self, Arrival, Kind, Order, RulesCache, Start, WalkOptions, below};

pub use crate::walker::Ignored;

/// A listing has at most this many entries, unless told otherwise.
pub const MAX_LISTED: u64 = 10_000;

/// What to list.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ListOptions {
    /// How deep; 1 is what is in the directory itself.
    pub depth: usize,
    /// What to do with what ignore rules hide.
    pub ignored: Ignored,
    /// How many entries at most.
    pub max_entries: u64,
}

impl Default for ListOptions {
    fn default() -> Self {
        Self { depth: 1, ignored: Ignored::Skip, max_entries: MAX_LISTED }
    }
}

/// One entry.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ListEntry {
    /// The way from the directory that was listed.
    pub path: String,
    /// What it is. Where a link leads is not said.
    pub kind: Kind,
    /// How many bytes it has.
    pub size: u64,
    /// When it was modified, in nanoseconds since 1970.
    pub mtime_ns: i64,
}

/// What is in a directory, by name; a directory comes before what is in it.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Listing {
    /// The entries.
    pub entries: Vec<ListEntry>,
    /// Whether there are more.
    pub truncated: bool,
    /// How many names cannot be said, because they are not UTF-8 or too long.
    pub unnamed: u64,
    /// How many directories could not be read.
    pub unreadable: u64,
}

/// Why a directory cannot be listed.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ListError {
    /// There is nothing.
    #[error("{0} does not exist")]
    NotFound(String),
    /// It is something else.
    #[error("{0} is not a directory")]
    NotADirectory(String),
    /// It is the store of a version control system.
    #[error("{0} is the store of a version control system, which is not listed")]
    Store(String),
    /// The system refuses.
    #[error("cannot read the directory {0}")]
    Unreadable(String),
    /// It is on a file system that is not entered.
    #[error("{0} is on another file system, which is not listed")]
    Elsewhere(String),
}

/// Lists an admitted directory.
///
/// # Errors
/// Returns why there is nothing to list; the error names the path as it was asked for.
pub fn list(roots: &Roots, directory: &Admitted, options: &ListOptions) -> Result<Listing, ListError> {
    let asked = || directory.asked().to_owned();
    let walk = WalkOptions {
        ignored: options.ignored,
        order: Order::ByName,
        max_entries: options.max_entries,
        max_depth: options.depth.max(1),
        // Whoever asks for one directory may see what is mounted there.
        file_systems: walker::FileSystems::All,
    };
    let (mut entries, mut rules) = (Vec::new(), RulesCache::default());
    let path = directory.canonical();
    let (arrival, report) = walker::walk_from(roots, path, Start::Asked, &walk, &mut rules, &mut |entry| {
        // An entry below the directory always has a way from there.
        if let Some(way) = below(entry.path(), path) {
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
        Arrival::Directory => {}
        Arrival::Entry => return Err(ListError::NotADirectory(asked())),
        Arrival::Missing if report.unreadable > 0 => return Err(ListError::Unreadable(asked())),
        Arrival::Missing | Arrival::Outside => return Err(ListError::NotFound(asked())),
        Arrival::Hidden => return Err(ListError::Elsewhere(asked())),
        Arrival::Store => return Err(ListError::Store(asked())),
    }
    // A root that lies in the directory is walked by itself, after the rest.
    entries.sort_unstable_by(|one, other| one.path.split('/').cmp(other.path.split('/')));
    Ok(Listing {
        entries,
        truncated: report.truncated,
        unnamed: report.not_utf8 + report.too_deep,
        unreadable: report.unreadable,
    })
}

#[cfg(test)]
mod tests;
