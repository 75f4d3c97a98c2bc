//! A watcher of the directories below the roots, so that a scan covers only what changed.
//!
//! A watcher never misses a change silently: if it may have lost an event, it reports everything as dirty. The kernel
//! queues an event before the call that caused it returns, so emptying the queue yields everything that happened
//! before. The queue is emptied only on request: no thread waits for events, and opening or reading a file produces
//! none, so reads cost nothing here. A queue that overflows in between (`fs.inotify.max_queued_events`, 16,384 by
//! default) makes everything dirty.
//!
//! Some changes are invisible to any watcher: writes through a memory mapping whose file was closed long ago, and
//! changes that other machines make on a network file system. An occasional full scan finds those.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::ffi::CStr;
use std::fs;
use std::io;
use std::mem::MaybeUninit;
use std::ops::{Bound, ControlFlow};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use bowline_policy::paths::path_below;
use rustix::fs::inotify::{self, CreateFlags, ReadFlags, WatchFlags};
use rustix::io::Errno;

use crate::observer::outermost_paths;
use crate::roots::Roots;
use crate::walker::{
    self, EntryKind, EntryMetadata, IgnoreRulesCache, StartVisibility, WalkEntry, WalkOptions,
    WalkStartOutcome,
};

/// The events watched in a directory: everything that may change it. Links are not followed.
const WATCH_FLAGS: WatchFlags = WatchFlags::ATTRIB
    .union(WatchFlags::CLOSE_WRITE)
    .union(WatchFlags::CREATE)
    .union(WatchFlags::DELETE)
    .union(WatchFlags::DELETE_SELF)
    .union(WatchFlags::MODIFY)
    .union(WatchFlags::MOVE)
    .union(WatchFlags::MOVE_SELF)
    .union(WatchFlags::DONT_FOLLOW)
    .union(WatchFlags::ONLYDIR);

/// The number of bytes of events read at a time.
const CHUNK_BYTES: usize = 64 << 10;

/// The maximum number of events read in one call. Beyond it, events are produced as fast as they are read.
const MAX_EVENTS: usize = 1 << 20;

/// How many events the watcher causes itself before it empties the queue.
const EVENTS_BETWEEN_READS: usize = 1024;

/// The limits of a watcher.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct FileWatcherOptions {
    /// The maximum number of dirty paths; beyond it, everything is dirty.
    pub max_paths: usize,
    /// The maximum number of directories; a larger tree is not watched, because the system's watches are limited and
    /// the user's editor needs some.
    pub max_directories: usize,
}

impl Default for FileWatcherOptions {
    fn default() -> Self {
        Self { max_paths: 10_000, max_directories: 32_768 }
    }
}

/// Why a tree cannot be watched. It can still be scanned.
#[derive(Debug, thiserror::Error)]
pub enum FileWatcherError {
    /// The system has no more watches.
    #[error("the system's limit of watches is reached, raise fs.inotify.max_user_watches or go without")]
    Limit,
    /// The system has no more watchers.
    #[error("the system's limit of watchers is reached, raise fs.inotify.max_user_instances or go without")]
    InstanceLimit,
    /// The tree is too large.
    #[error("there are more than {0} directories to watch")]
    TooManyDirectories(usize),
    /// The system reported another error.
    #[error("cannot watch: {0}")]
    System(io::Error),
}

/// Where files may have changed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum DirtyPaths {
    /// At and below these paths, in order.
    Paths(Vec<String>),
    /// Anywhere.
    Everything,
}

/// A watcher of the directories below the roots.
#[derive(Debug)]
pub struct FileWatcher {
    queue: OwnedFd,
    // The watched directories, as far as known: one that was replaced may no longer be watched.
    watched: BTreeMap<String, WatchDescriptor>,
    // The same by descriptor; of a directory with two names, the later one.
    paths_by_descriptor: HashMap<WatchDescriptor, String>,
    pending: PendingPaths,
    roots: Vec<String>,
    options: FileWatcherOptions,
    // Whether new directories can be watched; if not, everything counts as dirty.
    is_reliable: bool,
}

/// The kernel's number of a watch, which is never reused.
type WatchDescriptor = i32;

/// The changes since they were last taken.
#[derive(Debug, Default)]
struct PendingPaths {
    // At most `max_paths`.
    paths: BTreeSet<String>,
    everything: bool,
}

impl FileWatcher {
    /// Watches all directories below the roots that are not hidden. Changes from now on are reported; earlier ones take
    /// a scan after this call.
    ///
    /// # Errors
    /// Returns an error if the directories cannot be watched.
    pub fn start(roots: &Roots, options: FileWatcherOptions) -> Result<Self, FileWatcherError> {
        let mut watch = Self::new(roots, options)?;
        watch.watch_roots(roots)?;
        Ok(watch)
    }

    /// Watches only the roots; the caller watches the directories below before it reads them.
    ///
    /// # Errors
    /// Returns an error if the roots cannot be watched.
    pub(crate) fn start_at_roots(
        roots: &Roots,
        options: FileWatcherOptions,
    ) -> Result<Self, FileWatcherError> {
        let mut watch = Self::new(roots, options)?;
        roots.iter().try_for_each(|(root, _)| watch.watch_directory(root))?;
        Ok(watch)
    }

    /// Makes everything dirty, so that the next [`take_dirty`](Self::take_dirty) watches all directories.
    pub(crate) fn watch_everything_again(&mut self) {
        self.pending.mark_everything();
    }

    /// Returns a watcher that watches no directory yet.
    ///
    /// # Errors
    /// Returns an error if the system has no more watchers.
    pub(crate) fn new(roots: &Roots, options: FileWatcherOptions) -> Result<Self, FileWatcherError> {
        let queue = inotify::init(CreateFlags::NONBLOCK | CreateFlags::CLOEXEC).map_err(watcher_error)?;
        Ok(Self {
            queue,
            watched: BTreeMap::new(),
            paths_by_descriptor: HashMap::new(),
            pending: PendingPaths::default(),
            roots: roots.iter().map(|(root, _)| root.to_owned()).collect(),
            options,
            is_reliable: true,
        })
    }

    /// Returns the queue of events: it is readable when there are some.
    pub(crate) fn queue(&self) -> BorrowedFd<'_> {
        self.queue.as_fd()
    }

    /// Returns where files may have changed since the last call. The caller watches new directories there: until then,
    /// changes in directories at and below these paths go unnoticed.
    pub(crate) fn take_events(&mut self) -> DirtyPaths {
        self.read_events();
        let PendingPaths { paths, everything } = std::mem::take(&mut self.pending);
        if everything {
            return DirtyPaths::Everything;
        }
        // A moved directory keeps its watch under the new name, so the old name has to be removed first.
        for path in &paths {
            self.unwatch(path);
        }
        DirtyPaths::Paths(paths.into_iter().collect())
    }

    /// Stops watching directories that do not satisfy a condition. Changes of others may then be reported by the next
    /// [`take_events`](Self::take_events) although the queue is empty.
    pub(crate) fn retain_directories(&mut self, is_needed: impl Fn(&str) -> bool) {
        let unneeded: Vec<String> = self.watched.keys().filter(|path| !is_needed(path)).cloned().collect();
        for paths in unneeded.chunks(EVENTS_BETWEEN_READS) {
            paths.iter().for_each(|path| self.unwatch_directory(path));
            // The end of each watch is an event, too: many of them would overflow the queue.
            self.read_events();
        }
    }

    /// Returns where files may have changed since the last call, and watches new directories there. A scan after this
    /// call finds every change before it; the next call reports every change after it.
    pub fn take_dirty(&mut self, roots: &Roots) -> DirtyPaths {
        self.read_events();
        let PendingPaths { paths, everything } = std::mem::take(&mut self.pending);
        let covered = if everything { self.watch_roots(roots) } else { self.watch_paths(roots, &paths) };
        if covered.is_err() {
            self.is_reliable = false;
        }
        if everything || !self.is_reliable {
            DirtyPaths::Everything
        } else {
            DirtyPaths::Paths(paths.into_iter().collect())
        }
    }

    /// Reads the events in the queue.
    fn read_events(&mut self) {
        let Self { queue, watched, paths_by_descriptor: names, pending, roots, options, .. } = self;
        let mut buffer = vec![MaybeUninit::uninit(); CHUNK_BYTES];
        let mut events = inotify::Reader::new(&*queue, &mut buffer);
        for _ in 0..MAX_EVENTS {
            let event = match events.next() {
                Ok(event) => event,
                Err(Errno::INTR) => continue,
                Err(Errno::AGAIN) => return,
                Err(_) => break,
            };
            if event.events().contains(ReadFlags::QUEUE_OVERFLOW) {
                pending.mark_everything();
                continue;
            }
            // Events of a directory that is no longer watched are covered by the scan that followed.
            let Some(directory) = names.get(&event.wd()) else { continue };
            if event.events().contains(ReadFlags::IGNORED) {
                if watched.get(directory) == Some(&event.wd()) {
                    watched.remove(directory);
                }
                names.remove(&event.wd());
                continue;
            }
            if let Some(path) = event_path(directory, event.file_name()) {
                pending.add_path(path, roots, options.max_paths);
            }
        }
        pending.mark_everything();
    }

    fn watch_roots(&mut self, roots: &Roots) -> Result<(), FileWatcherError> {
        let names: Vec<String> = roots.iter().map(|(root, _)| root.to_owned()).collect();
        let mut rules = IgnoreRulesCache::default();
        names.iter().try_for_each(|root| self.watch_tree(roots, root, &mut rules))
    }

    fn watch_paths(&mut self, roots: &Roots, paths: &BTreeSet<String>) -> Result<(), FileWatcherError> {
        let is_directory = |path: &str| fs::symlink_metadata(path).is_ok_and(|found| found.is_dir());
        // A moved directory keeps its watch under the new name, so the old name has to be removed first.
        for path in paths {
            self.unwatch(path);
        }
        let mut scopes = outermost_paths(paths.iter().map(String::as_str));
        scopes.retain(|path| is_directory(path));
        let mut rules = IgnoreRulesCache::default();
        scopes.into_iter().try_for_each(|path| self.watch_tree(roots, path, &mut rules))
    }

    /// Stops watching a path and the directories below it.
    fn unwatch(&mut self, path: &str) {
        if !self.watched.contains_key(path) {
            return;
        }
        let prefix = format!("{}/", path.trim_end_matches('/'));
        let inside: Vec<String> = self
            .watched
            .range::<str, _>((Bound::Included(prefix.as_str()), Bound::Unbounded))
            .map(|(path, _)| path)
            .take_while(|path| path.starts_with(&prefix))
            .cloned()
            .collect();
        for path in std::iter::once(path).chain(inside.iter().map(String::as_str)) {
            self.unwatch_directory(path);
        }
    }

    fn unwatch_directory(&mut self, path: &str) {
        let Some(number) = self.watched.remove(path) else { return };
        self.paths_by_descriptor.remove(&number);
        // The system has usually removed the watch already.
        inotify::remove_watch(&self.queue, number).ok();
    }

    /// Watches a directory and all directories below it that are not hidden. Each is watched before it is read, so that
    /// no entry appears unseen in between.
    fn watch_tree(
        &mut self,
        roots: &Roots,
        path: &str,
        rules: &mut IgnoreRulesCache,
    ) -> Result<(), FileWatcherError> {
        self.watch_directory(path)?;
        let options = WalkOptions { metadata: EntryMetadata::Type, ..WalkOptions::default() };
        let mut failed = None;
        let mut visit = |entry: &WalkEntry<'_>| {
            if entry.kind() == EntryKind::Directory
                && let Err(why) = self.watch_directory(entry.path())
            {
                failed = Some(why);
                return ControlFlow::Break(());
            }
            ControlFlow::Continue(())
        };
        let (arrival, report) =
            walker::walk_from(roots, path, StartVisibility::RulesApply, &options, rules, &mut visit);
        match arrival {
            WalkStartOutcome::Directory => {}
            WalkStartOutcome::Entry
            | WalkStartOutcome::Missing
            | WalkStartOutcome::Hidden
            | WalkStartOutcome::VersionControlStore
            | WalkStartOutcome::Outside => {
                self.unwatch(path);
            }
        }
        match failed {
            Some(why) => Err(why),
            None if report.truncated => {
                Err(FileWatcherError::TooManyDirectories(self.options.max_directories))
            }
            None => Ok(()),
        }
    }

    /// Watches a directory, but not those below it. A directory that is gone or unreadable is skipped.
    ///
    /// # Errors
    /// Returns an error if there are too many directories, or the system has no more watches.
    pub(crate) fn watch_directory(&mut self, path: &str) -> Result<(), FileWatcherError> {
        match inotify::add_watch(&self.queue, path, WATCH_FLAGS) {
            Ok(number) => {
                self.watched.insert(path.to_owned(), number);
                self.paths_by_descriptor.insert(number, path.to_owned());
            }
            Err(why @ Errno::NOSPC) => return Err(watcher_error(why)),
            // The directory is gone or unreadable, so it is not scanned either.
            Err(_) => return Ok(()),
        }
        if self.watched.len() > self.options.max_directories {
            self.unwatch_directory(path);
            return Err(FileWatcherError::TooManyDirectories(self.options.max_directories));
        }
        Ok(())
    }
}

impl PendingPaths {
    fn add_path(&mut self, path: String, roots: &[String], max_paths: usize) {
        // Version control stores are not scanned.
        let in_store = |below: &str| below.split('/').any(walker::is_version_control_store);
        let mut ways = roots.iter().filter_map(|root| path_below(&path, root));
        if self.everything || ways.all(in_store) {
            return;
        }
        self.paths.insert(path);
        if self.paths.len() > max_paths {
            self.mark_everything();
        }
    }

    fn mark_everything(&mut self) {
        self.everything = true;
        self.paths.clear();
    }
}

/// Returns the path of an event, or `None` for a name that is not UTF-8, which the protocol cannot express.
fn event_path(directory: &str, name: Option<&CStr>) -> Option<String> {
    match name {
        None => Some(directory.to_owned()),
        Some(name) => Some(format!("{}/{}", directory.trim_end_matches('/'), name.to_str().ok()?)),
    }
}

fn watcher_error(why: Errno) -> FileWatcherError {
    match why {
        Errno::NOSPC => FileWatcherError::Limit,
        Errno::MFILE => FileWatcherError::InstanceLimit,
        why => FileWatcherError::System(why.into()),
    }
}

#[cfg(test)]
mod tests;
