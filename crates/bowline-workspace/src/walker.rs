//! A walk of the files below the roots, by handles: it follows no links, leaves no root, and honours ignore rules.
//!
//! Every directory is opened by name relative to its parent's handle, where a link is an error; every entry is
//! inspected through the handle of its directory. So nothing that is moved during the walk can lead it outside. A
//! directory that is moved out of its root while it is being read is read to its end.
//!
//! The stores of version control systems (`.git`, `.hg`, `.svn`) are never entered, nor is Bowline's own state. Links
//! are shown as links. A root inside another is walked once, separately: it was given as a root, so the rules of the
//! outer one do not hide it.

use std::fs::File;
use std::io;
use std::ops::ControlFlow;
use std::os::fd::OwnedFd;

use bowline_history::observation::FileStamp;
use bowline_policy::paths::{Access, LexicalPath, find_protection, path_below};
use rustix::fs::{AtFlags, FileType, Mode, OFlags, Stat};
use rustix::io::Errno;

use crate::roots::{AdmittedPath, RootHandle, Roots};
use bowline_storage::file_clock::file_stamp;

mod ignore_rules;
mod ignore_snapshot;
mod traversal;

pub(crate) use ignore_rules::{IgnoreFileTexts, IgnoreRulesCache};
pub(crate) use ignore_snapshot::{IgnoreSnapshot, ignore_file_directory};
use traversal::Walker;

/// The maximum depth of a walk below its start.
pub const MAX_DEPTH: usize = 256;
/// The default maximum number of entries that a walk shows.
pub const MAX_ENTRIES: u64 = 1_000_000;

/// How to treat entries that ignore rules hide.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum IgnoredFiles {
    /// Skip them.
    Skip,
    /// Show them like the rest.
    Show,
}

/// The order in which entries are shown.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum WalkOrder {
    /// In file system order.
    Any,
    /// By name, directories before their contents.
    ByName,
}

/// The file systems that a walk enters.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum FileSystemScope {
    /// Only that of the root.
    SameAsRoot,
    /// All but virtual ones.
    All,
}

/// What a walk reads of each entry.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum EntryMetadata {
    /// Its type and its metadata.
    Full,
    /// Only its type, which most file systems tell with the name. Then [`WalkEntry::stamp`] is all zero.
    Type,
}

/// The options of a walk.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct WalkOptions {
    /// How to treat entries that ignore rules hide.
    pub ignored: IgnoredFiles,
    /// The order in which entries are shown.
    pub order: WalkOrder,
    /// The file systems that are entered.
    pub file_systems: FileSystemScope,
    /// What is read of each entry.
    pub metadata: EntryMetadata,
    /// The maximum number of entries shown.
    pub max_entries: u64,
    /// The maximum depth; 1 is the directory's own entries. At most [`MAX_DEPTH`].
    pub max_depth: usize,
}

impl Default for WalkOptions {
    fn default() -> Self {
        Self {
            ignored: IgnoredFiles::Skip,
            order: WalkOrder::Any,
            file_systems: FileSystemScope::SameAsRoot,
            metadata: EntryMetadata::Full,
            max_entries: MAX_ENTRIES,
            max_depth: MAX_DEPTH,
        }
    }
}

/// The type of an entry.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum EntryKind {
    /// A file.
    File,
    /// A directory.
    Directory,
    /// A link; its target is not inspected.
    Link,
    /// A pipe, a socket or a device.
    Other,
}

impl From<FileType> for EntryKind {
    fn from(kind: FileType) -> Self {
        match kind {
            FileType::RegularFile => EntryKind::File,
            FileType::Directory => EntryKind::Directory,
            FileType::Symlink => EntryKind::Link,
            // An unknown type is not readable either.
            _ => EntryKind::Other,
        }
    }
}

/// An entry found by a walk, valid only during its visit.
#[derive(Debug, Clone, Copy)]
pub struct WalkEntry<'a> {
    path: &'a str,
    name: &'a str,
    kind: EntryKind,
    stamp: FileStamp,
    was_hidden: bool,
    directory: &'a OwnedFd,
}

impl<'a> WalkEntry<'a> {
    /// Returns the canonical path.
    #[must_use]
    pub fn path(&self) -> &'a str {
        self.path
    }

    /// Returns whether ignore rules hid it at the last scan, if the walk tracks that.
    pub(crate) fn was_hidden(&self) -> bool {
        self.was_hidden
    }

    /// Returns the type of the entry.
    #[must_use]
    pub fn kind(&self) -> EntryKind {
        self.kind
    }

    /// Returns its metadata; all zero if the walk does not read it ([`EntryMetadata`]).
    #[must_use]
    pub fn stamp(&self) -> FileStamp {
        self.stamp
    }

    /// Opens the file for reading, without blocking, and returns its metadata.
    ///
    /// # Errors
    /// Returns the system's error, or [`io::ErrorKind::InvalidInput`] if the entry is not a regular file (any more).
    pub fn open(&self) -> io::Result<(File, FileStamp)> {
        let file = self.open_unchecked()?;
        let stamp = stamp_of_regular_file(&file)?;
        Ok((file, stamp))
    }

    /// Opens the file without blocking. Before it is read, [`stamp_of_regular_file`] has to check what was opened.
    pub(crate) fn open_unchecked(&self) -> io::Result<File> {
        // Opening a device can have side effects.
        if self.kind != EntryKind::File {
            return Err(io::ErrorKind::InvalidInput.into());
        }
        let flags = OFlags::RDONLY | OFlags::NONBLOCK | OFlags::NOCTTY;
        Ok(open_at(self.directory, self.name, flags)?.into())
    }
}

/// Returns the metadata of an open file, or [`io::ErrorKind::InvalidInput`] if it is not a regular one.
pub(crate) fn stamp_of_regular_file(file: &File) -> io::Result<FileStamp> {
    let stat = rustix::fs::fstat(file)?;
    if FileType::from_raw_mode(stat.st_mode) != FileType::RegularFile {
        return Err(io::ErrorKind::InvalidInput.into());
    }
    Ok(file_stamp(&stat))
}

/// Statistics of a walk.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct WalkReport {
    /// How many entries were shown.
    pub entries: u64,
    /// How many names are not UTF-8, which the protocol cannot express.
    pub not_utf8: u64,
    /// How many paths are too long or too deep.
    pub too_deep: u64,
    /// How many directories could not be read.
    pub unreadable: u64,
    /// Whether the walk reached its maximum number of entries.
    pub truncated: bool,
    /// Whether the visitor stopped the walk.
    pub stopped: bool,
}

impl WalkReport {
    /// Adds the report of another walk.
    pub(crate) fn add(&mut self, other: Self) {
        self.entries += other.entries;
        self.not_utf8 += other.not_utf8;
        self.too_deep += other.too_deep;
        self.unreadable += other.unreadable;
        self.truncated |= other.truncated;
        self.stopped |= other.stopped;
    }
}

/// The result of starting a walk at a path.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum WalkStartOutcome {
    /// A directory, which was walked.
    Directory,
    /// Another entry, which was the only one visited.
    Entry,
    /// Nothing exists there.
    Missing,
    /// Skipped: hidden by ignore rules, Bowline's own, or on another file system.
    Hidden,
    /// Skipped: the store of a version control system.
    VersionControlStore,
    /// Below no root.
    Outside,
}

/// Whether ignore rules apply to the path at which a walk starts.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum StartVisibility {
    /// They do not: the path was requested.
    AlwaysVisible,
    /// They do: the path was discovered.
    RulesApply,
    /// They do, below a requested path of this many bytes, where the path was discovered.
    RulesApplyBelow(usize),
}

type WalkVisitor<'v> = dyn FnMut(&WalkEntry<'_>) -> ControlFlow<()> + 'v;

/// Visits everything below the roots. The roots themselves are not visited, unless they lie in one another.
pub fn walk(roots: &Roots, options: &WalkOptions, visit: &mut WalkVisitor<'_>) -> WalkReport {
    walk_with_cache(roots, options, &mut IgnoreRulesCache::default(), visit)
}

/// As [`walk`], with a cache of compiled rules.
pub(crate) fn walk_with_cache(
    roots: &Roots,
    options: &WalkOptions,
    cache: &mut IgnoreRulesCache,
    visit: &mut WalkVisitor<'_>,
) -> WalkReport {
    let mut walker = Walker::new(roots, options, cache, visit);
    for root in roots.handles() {
        if !walker.is_over() {
            walker.start(root, "", StartVisibility::AlwaysVisible, 1);
        }
    }
    walker.report
}

/// Visits everything below an admitted directory, or the admitted file. Ignore rules hide only what is below the
/// requested path, not the path itself.
pub fn walk_below(
    roots: &Roots,
    under: &AdmittedPath,
    options: &WalkOptions,
    visit: &mut WalkVisitor<'_>,
) -> WalkReport {
    let mut cache = IgnoreRulesCache::default();
    walk_from(roots, under.canonical(), StartVisibility::AlwaysVisible, options, &mut cache, visit).1
}

/// Visits everything below a canonical path, including roots that lie below it.
pub(crate) fn walk_from(
    roots: &Roots,
    path: &str,
    start: StartVisibility,
    options: &WalkOptions,
    cache: &mut IgnoreRulesCache,
    visit: &mut WalkVisitor<'_>,
) -> (WalkStartOutcome, WalkReport) {
    let mut walker = Walker::new(roots, options, cache, visit);
    let Some((root, rest)) = find_root(roots, path) else {
        return (WalkStartOutcome::Outside, walker.report);
    };
    let arrival = walker.start(root, rest, start, 1);
    if arrival == WalkStartOutcome::Directory {
        for nested in roots.handles() {
            let Some(way) = path_below(nested.canonical.as_str(), path) else { continue };
            let depth = path_names(way).count();
            if depth > 0 && depth < options.max_depth && !walker.is_over() {
                walker.start(nested, "", StartVisibility::AlwaysVisible, depth + 1);
            }
        }
    }
    (arrival, walker.report)
}

/// Visits one path, whether or not rules hide it, if it exists.
///
/// # Errors
/// Returns the system's error, unless it is that the path does not exist.
pub(crate) fn visit_path(roots: &Roots, path: &str, visit: &mut WalkVisitor<'_>) -> io::Result<()> {
    let Some((root, rest)) = find_root(roots, path) else { return Ok(()) };
    let (parents, name) = rest.rsplit_once('/').unwrap_or(("", rest));
    let gone = |why: &Errno| matches!(*why, Errno::NOENT | Errno::NOTDIR | Errno::LOOP);
    let step = |from: &OwnedFd, name: &str| open_at(from, name, OFlags::PATH | OFlags::DIRECTORY);
    let mut directory = step(root.directory, ".")?;
    for parent in path_names(parents) {
        directory = match step(&directory, parent) {
            Err(why) if gone(&why) => return Ok(()),
            opened => opened?,
        };
    }
    match stat_at(&directory, name) {
        Err(why) if gone(&why) => {}
        Err(why) => return Err(why.into()),
        Ok(stat) => {
            let kind = FileType::from_raw_mode(stat.st_mode).into();
            let (stamp, directory) = (file_stamp(&stat), &directory);
            let entry = WalkEntry { path, name, kind, stamp, was_hidden: false, directory };
            _ = visit(&entry);
        }
    }
    Ok(())
}

/// Returns whether a path relative to a root is that of a secret file. Components above the root do not count: the user
/// chose it.
pub(crate) fn is_secret(way: &str) -> bool {
    LexicalPath::parse(format!("/{way}")).is_ok_and(|way| find_protection(&way, Access::Read).is_some())
}

/// Returns the innermost root that contains a canonical path, and the path relative to it.
pub(crate) fn find_root<'r, 'p>(roots: &'r Roots, path: &'p str) -> Option<(RootHandle<'r>, &'p str)> {
    roots
        .handles()
        .filter_map(|root| Some((root, path_below(path, root.canonical.as_str())?)))
        .min_by_key(|(_, rest)| rest.len())
}

fn path_names(path: &str) -> impl Iterator<Item = &str> {
    path.split('/').filter(|name| !name.is_empty())
}

/// Returns whether a name is that of a version control store.
pub(crate) fn is_version_control_store(name: &str) -> bool {
    matches!(name, ".git" | ".hg" | ".svn")
}

fn open_at(directory: &OwnedFd, name: &str, flags: OFlags) -> Result<OwnedFd, Errno> {
    let flags = flags | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    rustix::io::retry_on_intr(|| rustix::fs::openat(directory, name, flags, Mode::empty()))
}

fn stat_at(directory: &OwnedFd, name: &str) -> Result<Stat, Errno> {
    rustix::fs::statat(directory, name, AtFlags::SYMLINK_NOFOLLOW)
}

#[cfg(test)]
pub(crate) mod fixture;
#[cfg(test)]
mod tests;
