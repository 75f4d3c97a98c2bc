//! A walk through what is below the roots, by handles: it follows no link, leaves no root, and honours ignore rules.
//!
//! Every directory is opened by its name in the handle of the one before it, where a link is an error; every entry is
//! looked at through the handle of its directory. So nothing that changes places during the walk can lead it outside. A
//! directory that is moved out of its root while it is being read is read to its end.
//!
//! The stores of version control systems (`.git`, `.hg`, `.svn`) are never entered, and neither is what Bowline itself
//! keeps. Links are shown as links. A root that lies in another is walked once, by itself: it was given as a root, so
//! the rules of the other do not hide it.

use std::fs::File;
use std::io;
use std::ops::ControlFlow;
use std::os::fd::OwnedFd;

use bowline_state::observation::Stamp;
use bowline_state::paths::{Access, LexicalPath, protected};
use rustix::fs::{AtFlags, FileType, Mode, OFlags, Stat};
use rustix::io::Errno;

use crate::roots::{Admitted, RootHandle, Roots};

mod remembered;
mod rules;
mod steps;

pub(crate) use remembered::{Remembered, directory_ruled};
pub(crate) use rules::{RulesCache, RulesTexts};
use steps::Walker;

/// A walk goes at most this deep below where it starts.
pub const MAX_DEPTH: usize = 256;
/// A walk shows at most this many entries, unless told otherwise.
pub const MAX_ENTRIES: u64 = 1_000_000;
/// A report names at most this many directories or files of a kind.
pub const MAX_NAMED: usize = 16;

/// What to do with what ignore rules hide.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Ignored {
    /// It is left out.
    Skip,
    /// It is shown like the rest.
    Show,
}

/// In which order entries are shown.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Order {
    /// In the order of the file system.
    Any,
    /// By name, directories before what is in them.
    ByName,
}

/// Which file systems a walk enters.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum FileSystems {
    /// That of the root.
    Same,
    /// All but those that the system makes up.
    All,
}

/// How to walk.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct WalkOptions {
    /// What to do with what ignore rules hide.
    pub ignored: Ignored,
    /// In which order entries are shown.
    pub order: Order,
    /// Which file systems are entered.
    pub file_systems: FileSystems,
    /// How many entries are shown at most.
    pub max_entries: u64,
    /// How deep the walk goes; 1 is what is in the directory itself. At most [`MAX_DEPTH`].
    pub max_depth: usize,
}

impl Default for WalkOptions {
    fn default() -> Self {
        Self {
            ignored: Ignored::Skip,
            order: Order::Any,
            file_systems: FileSystems::Same,
            max_entries: MAX_ENTRIES,
            max_depth: MAX_DEPTH,
        }
    }
}

/// What an entry is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    /// A file.
    File,
    /// A directory.
    Directory,
    /// A link; where it leads is not looked at.
    Link,
    /// A pipe, a socket, a device.
    Other,
}

impl From<FileType> for Kind {
    fn from(kind: FileType) -> Self {
        match kind {
            FileType::RegularFile => Kind::File,
            FileType::Directory => Kind::Directory,
            FileType::Symlink => Kind::Link,
            // What the system does not name is nothing to read either.
            _ => Kind::Other,
        }
    }
}

/// What a walk found. It is worth something only while it is being visited.
#[derive(Debug, Clone, Copy)]
pub struct Entry<'a> {
    path: &'a str,
    name: &'a str,
    depth: usize,
    kind: Kind,
    stamp: Stamp,
    was_hidden: bool,
    directory: &'a OwnedFd,
}

impl<'a> Entry<'a> {
    /// Returns the path, which is absolute and has no link on the way.
    #[must_use]
    pub fn path(&self) -> &'a str {
        self.path
    }

    /// Returns how deep it is below where the walk started; 1 is in the directory itself.
    #[must_use]
    pub fn depth(&self) -> usize {
        self.depth
    }

    /// Says whether rules hid it at the last look, for whoever asks that.
    pub(crate) fn was_hidden(&self) -> bool {
        self.was_hidden
    }

    /// Returns what it is.
    #[must_use]
    pub fn kind(&self) -> Kind {
        self.kind
    }

    /// Returns its metadata.
    #[must_use]
    pub fn stamp(&self) -> Stamp {
        self.stamp
    }

    /// Opens the file to be read, and looks at what was opened. Nothing is waited for.
    ///
    /// # Errors
    /// Returns what the system says, or [`io::ErrorKind::InvalidInput`] if there is no file under that name (any more).
    pub fn open(&self) -> io::Result<(File, Stamp)> {
        // To open a device can do things.
        if self.kind != Kind::File {
            return Err(io::ErrorKind::InvalidInput.into());
        }
        let file = open_at(self.directory, self.name, OFlags::RDONLY | OFlags::NONBLOCK | OFlags::NOCTTY)?;
        let stat = rustix::fs::fstat(&file)?;
        if FileType::from_raw_mode(stat.st_mode) != FileType::RegularFile {
            return Err(io::ErrorKind::InvalidInput.into());
        }
        Ok((file.into(), stamp(&stat)))
    }
}

/// What a walk did and left out.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct WalkReport {
    /// How many entries were shown.
    pub entries: u64,
    /// How many of them were files.
    pub files: u64,
    /// How many entries ignore rules hid, each counted without what is in it.
    pub ignored: u64,
    /// How many names are not UTF-8, which no path of the protocol can be.
    pub not_utf8: u64,
    /// How many paths are too long or too deep to be named.
    pub too_deep: u64,
    /// How many directories are on file systems that were not entered.
    pub other_file_systems: u64,
    /// How many directories could not be read.
    pub unreadable: u64,
    /// The first of them.
    pub unreadable_first: Vec<String>,
    /// Files of ignore rules that were too large to be honoured, the first of them.
    pub rules_left_out: Vec<String>,
    /// Whether there were more entries than were to be shown.
    pub truncated: bool,
    /// Whether the visitor stopped the walk.
    pub stopped: bool,
}

impl WalkReport {
    /// Adds the report of another walk.
    pub(crate) fn add(&mut self, other: Self) {
        self.entries += other.entries;
        self.files += other.files;
        self.ignored += other.ignored;
        self.not_utf8 += other.not_utf8;
        self.too_deep += other.too_deep;
        self.other_file_systems += other.other_file_systems;
        self.unreadable += other.unreadable;
        self.unreadable_first.extend(other.unreadable_first);
        self.unreadable_first.truncate(MAX_NAMED);
        self.rules_left_out.extend(other.rules_left_out);
        self.rules_left_out.truncate(MAX_NAMED);
        self.truncated |= other.truncated;
        self.stopped |= other.stopped;
    }
}

/// Where a walk that starts at a path got to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Arrival {
    /// At a directory, which was walked.
    Directory,
    /// At something else, which was visited as the only entry.
    Entry,
    /// Nowhere: there is nothing.
    Missing,
    /// Nowhere: it is hidden by ignore rules, belongs to Bowline, or is on another file system.
    Hidden,
    /// Nowhere: it is the store of a version control system.
    Store,
    /// Nowhere: it is below no root.
    Outside,
}

/// Whether the way to where a walk starts may be hidden.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Start {
    /// It was asked for, so it is not.
    Asked,
    /// It was found, so rules count on the way too.
    Found,
}

type Visitor<'v> = dyn FnMut(&Entry<'_>) -> ControlFlow<()> + 'v;

/// Visits everything below the roots. The roots themselves are not visited, unless they lie in one another.
pub fn walk(roots: &Roots, options: &WalkOptions, visit: &mut Visitor<'_>) -> WalkReport {
    walk_all(roots, options, &mut RulesCache::default(), visit)
}

/// Does so, with rules that are known.
pub(crate) fn walk_all(
    roots: &Roots,
    options: &WalkOptions,
    cache: &mut RulesCache,
    visit: &mut Visitor<'_>,
) -> WalkReport {
    let mut walker = Walker::new(roots, options, cache, visit);
    for root in roots.handles() {
        if !walker.is_over() {
            walker.start(root, "", Start::Asked, 1);
        }
    }
    walker.report
}

/// Visits everything below an admitted directory, or the one file that was admitted. Ignore rules do not hide what was
/// asked for, only what is below it.
pub fn walk_below(
    roots: &Roots,
    under: &Admitted,
    options: &WalkOptions,
    visit: &mut Visitor<'_>,
) -> WalkReport {
    let mut cache = RulesCache::default();
    walk_from(roots, under.canonical(), Start::Asked, options, &mut cache, visit).1
}

/// Visits everything below a canonical path, the roots that lie below it among it.
pub(crate) fn walk_from(
    roots: &Roots,
    path: &str,
    start: Start,
    options: &WalkOptions,
    cache: &mut RulesCache,
    visit: &mut Visitor<'_>,
) -> (Arrival, WalkReport) {
    let mut walker = Walker::new(roots, options, cache, visit);
    let Some((root, rest)) = root_of(roots, path) else { return (Arrival::Outside, walker.report) };
    let arrival = walker.start(root, rest, start, 1);
    if arrival == Arrival::Directory {
        for nested in roots.handles() {
            let Some(way) = below(nested.canonical.as_str(), path) else { continue };
            let depth = names(way).count();
            if depth > 0 && depth < options.max_depth && !walker.is_over() {
                walker.start(nested, "", Start::Asked, depth + 1);
            }
        }
    }
    (arrival, walker.report)
}

/// Looks at one path, whether or not rules hide it. What is there is visited; nothing is if there is nothing.
///
/// # Errors
/// Returns what the system says, if it says anything else than that there is nothing.
pub(crate) fn visit_one(roots: &Roots, path: &str, visit: &mut Visitor<'_>) -> io::Result<()> {
    let Some((root, rest)) = root_of(roots, path) else { return Ok(()) };
    let (parents, name) = rest.rsplit_once('/').unwrap_or(("", rest));
    let gone = |why: &Errno| matches!(*why, Errno::NOENT | Errno::NOTDIR | Errno::LOOP);
    let step = |from: &OwnedFd, name: &str| open_at(from, name, OFlags::PATH | OFlags::DIRECTORY);
    let mut directory = step(root.directory, ".")?;
    for parent in names(parents) {
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
            let (stamp, directory) = (stamp(&stat), &directory);
            let entry = Entry { path, name, depth: 1, kind, stamp, was_hidden: false, directory };
            visit(&entry).in_report();
        }
    }
    Ok(())
}

/// Says whether the way from a root leads to a file that holds secrets. Names above the root do not count: the user chose
/// it.
pub(crate) fn is_secret(way: &str) -> bool {
    LexicalPath::parse(format!("/{way}")).is_ok_and(|way| protected(&way, Access::Read).is_some())
}

/// Returns the innermost root that a canonical path is in, and the way from there.
pub(crate) fn root_of<'r, 'p>(roots: &'r Roots, path: &'p str) -> Option<(RootHandle<'r>, &'p str)> {
    roots
        .handles()
        .filter_map(|root| Some((root, below(path, root.canonical.as_str())?)))
        .min_by_key(|(_, rest)| rest.len())
}

/// Returns what is left of a normal path below another.
pub(crate) fn below<'p>(path: &'p str, directory: &str) -> Option<&'p str> {
    let rest = path.strip_prefix(directory.trim_end_matches('/'))?;
    if rest.is_empty() { Some("") } else { rest.strip_prefix('/') }
}

fn names(path: &str) -> impl Iterator<Item = &str> {
    path.split('/').filter(|name| !name.is_empty())
}

/// Says whether a name is the store of a version control system.
pub(crate) fn is_store(name: &str) -> bool {
    matches!(name, ".git" | ".hg" | ".svn")
}

/// Whether a walk was stopped is in its report, so at its end there is nothing more to do about it.
trait InReport {
    fn in_report(self);
}

impl InReport for ControlFlow<()> {
    fn in_report(self) {}
}

fn open_at(directory: &OwnedFd, name: &str, flags: OFlags) -> Result<OwnedFd, Errno> {
    let flags = flags | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    rustix::io::retry_on_intr(|| rustix::fs::openat(directory, name, flags, Mode::empty()))
}

fn stat_at(directory: &OwnedFd, name: &str) -> Result<Stat, Errno> {
    rustix::fs::statat(directory, name, AtFlags::SYMLINK_NOFOLLOW)
}

/// Returns what metadata say of a file.
#[must_use]
pub fn stamp(stat: &Stat) -> Stamp {
    Stamp {
        device: stat.st_dev,
        inode: stat.st_ino,
        size: u64::try_from(stat.st_size).unwrap_or_default(),
        mtime_ns: nanoseconds(stat.st_mtime, stat.st_mtime_nsec),
        ctime_ns: nanoseconds(stat.st_ctime, stat.st_ctime_nsec),
        mode: stat.st_mode & 0o7777,
    }
}

pub(crate) fn nanoseconds(seconds: i64, rest: impl TryInto<i64>) -> i64 {
    seconds.saturating_mul(1_000_000_000).saturating_add(rest.try_into().unwrap_or_default())
}

#[cfg(test)]
pub(crate) mod fixture;
#[cfg(test)]
mod tests;
