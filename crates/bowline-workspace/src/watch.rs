//! Watches the directories below the roots, so that a scan has to look only where something happened.
//!
//! A watch never says that nothing changed when something did: whenever it may have missed an event it says that
//! everything is to be scanned. The system puts an event into the watch's queue before the call that caused it returns,
//! so whoever empties the queue has all that happened before. The queue is emptied when somebody asks, and by nobody
//! else: no thread waits for events, and that a file is opened or read is none, so reading costs nothing here. A queue
//! that has become too long in between (`fs.inotify.max_queued_events`, 16,384 by default) means everything.
//!
//! What it cannot see, no watch can: writes through a mapping of a file whose handle was closed long ago, and changes
//! that other machines make on a network file system. A scan of everything now and then finds those.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::ffi::CStr;
use std::fs;
use std::io;
use std::mem::MaybeUninit;
use std::ops::{Bound, ControlFlow};
use std::os::fd::OwnedFd;

use rustix::fs::inotify::{self, CreateFlags, ReadFlags, WatchFlags};
use rustix::io::Errno;

use crate::observer::outermost;
use crate::roots::Roots;
use crate::walker::{self, Arrival, Entry, Kind, RulesCache, Start, WalkOptions};

/// What is told of a directory: whatever may be a change in it. No link is followed there.
const CHANGES: WatchFlags = WatchFlags::ATTRIB
    .union(WatchFlags::CLOSE_WRITE)
    .union(WatchFlags::CREATE)
    .union(WatchFlags::DELETE)
    .union(WatchFlags::DELETE_SELF)
    .union(WatchFlags::MODIFY)
    .union(WatchFlags::MOVE)
    .union(WatchFlags::MOVE_SELF)
    .union(WatchFlags::DONT_FOLLOW)
    .union(WatchFlags::ONLYDIR);

/// How many bytes of events are read at a time.
const CHUNK: usize = 64 << 10;

/// So many events are read in one go. Where more have come, somebody makes them as fast as they are read.
const MAX_EVENTS: usize = 1 << 20;

/// How a watch is kept small.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct WatchOptions {
    /// With more dirty paths than this everything is dirty.
    pub max_paths: usize,
    /// A tree of more directories than this is not watched: the system has watches for so many in all, and the user's
    /// editor needs some.
    pub max_directories: usize,
}

impl Default for WatchOptions {
    fn default() -> Self {
        Self { max_paths: 10_000, max_directories: 32_768 }
    }
}

/// Why a tree cannot be watched. It can be scanned all the same.
#[derive(Debug, thiserror::Error)]
pub enum WatchError {
    /// The system has no more watches.
    #[error("the system's limit of watches is reached, raise fs.inotify.max_user_watches or go without")]
    Limit,
    /// It is too large.
    #[error("there are more than {0} directories to watch")]
    TooMany(usize),
    /// The system refuses otherwise.
    #[error("cannot watch: {0}")]
    System(io::Error),
}

/// Where something may have changed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Dirty {
    /// At and below these paths, in order.
    Paths(Vec<String>),
    /// Anywhere.
    Everything,
}

/// A watch over what is below the roots.
#[derive(Debug)]
pub struct Watch {
    queue: OwnedFd,
    // Directories that are watched, as far as known: one that was replaced may not be any more.
    watched: BTreeMap<String, Number>,
    // The same by number; where the system knows one directory by two names, the later one.
    names: HashMap<Number, String>,
    pending: Pending,
    roots: Vec<String>,
    options: WatchOptions,
    // Whether new directories can be watched; if not, nothing it says is worth anything.
    serves: bool,
}

/// What the system calls a watched directory. It gives no number twice.
type Number = i32;

/// What happened since it was last taken.
#[derive(Debug, Default)]
struct Pending {
    // At most `max_paths`.
    paths: BTreeSet<String>,
    everything: bool,
}

impl Watch {
    /// Watches all directories below the roots that are not hidden. What changes from now on is told; what was before
    /// takes a scan after this.
    ///
    /// # Errors
    /// Returns why it cannot be done.
    pub fn start(roots: &Roots, options: WatchOptions) -> Result<Self, WatchError> {
        let queue = inotify::init(CreateFlags::NONBLOCK | CreateFlags::CLOEXEC).map_err(told)?;
        let mut watch = Self {
            queue,
            watched: BTreeMap::new(),
            names: HashMap::new(),
            pending: Pending::default(),
            roots: roots.iter().map(|(root, _)| root.to_owned()).collect(),
            options,
            serves: true,
        };
        watch.cover_roots(roots)?;
        Ok(watch)
    }

    /// Says whether it still can tell anything; if not, everything is always dirty.
    #[must_use]
    pub fn serves(&self) -> bool {
        self.serves
    }

    /// Returns where something may have changed since it was last asked, and begins to watch what is new there: so
    /// whatever changes after this is told the next time, and whatever changed before is found by a scan now.
    pub fn take(&mut self, roots: &Roots) -> Dirty {
        self.read();
        let Pending { paths, everything } = std::mem::take(&mut self.pending);
        let covered = if everything { self.cover_roots(roots) } else { self.cover(roots, &paths) };
        if covered.is_err() {
            self.serves = false;
        }
        if everything || !self.serves { Dirty::Everything } else { Dirty::Paths(paths.into_iter().collect()) }
    }

    /// Takes in what is in the queue.
    fn read(&mut self) {
        let Self { queue, watched, names, pending, roots, options, .. } = self;
        let mut buffer = vec![MaybeUninit::uninit(); CHUNK];
        let mut events = inotify::Reader::new(&*queue, &mut buffer);
        for _ in 0..MAX_EVENTS {
            let event = match events.next() {
                Ok(event) => event,
                Err(Errno::INTR) => continue,
                Err(Errno::AGAIN) => return,
                Err(_) => break,
            };
            if event.events().contains(ReadFlags::QUEUE_OVERFLOW) {
                pending.give_up();
                continue;
            }
            // Of one that is not watched any more, what is left in the queue was found by the scan that followed.
            let Some(directory) = names.get(&event.wd()) else { continue };
            if event.events().contains(ReadFlags::IGNORED) {
                if watched.get(directory) == Some(&event.wd()) {
                    watched.remove(directory);
                }
                names.remove(&event.wd());
                continue;
            }
            if let Some(path) = path(directory, event.file_name()) {
                pending.take_in(path, roots, options.max_paths);
            }
        }
        pending.give_up();
    }

    fn cover_roots(&mut self, roots: &Roots) -> Result<(), WatchError> {
        let names: Vec<String> = roots.iter().map(|(root, _)| root.to_owned()).collect();
        let mut rules = RulesCache::default();
        names.iter().try_for_each(|root| self.cover_below(roots, root, &mut rules))
    }

    fn cover(&mut self, roots: &Roots, paths: &BTreeSet<String>) -> Result<(), WatchError> {
        let is_directory = |path: &str| fs::symlink_metadata(path).is_ok_and(|found| found.is_dir());
        // A directory that was moved is the same to the system under its new name, so the old one has to go first.
        for path in paths {
            self.uncover(path);
        }
        let mut scopes = outermost(paths.iter().map(String::as_str));
        scopes.retain(|path| is_directory(path));
        let mut rules = RulesCache::default();
        scopes.into_iter().try_for_each(|path| self.cover_below(roots, path, &mut rules))
    }

    /// Forgets a path that was watched, and what is below it.
    fn uncover(&mut self, path: &str) {
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
            let Some(number) = self.watched.remove(path) else { continue };
            self.names.remove(&number);
            // Most often the system has done so already.
            inotify::remove_watch(&self.queue, number).ok();
        }
    }

    /// Watches a directory and all that is below it and not hidden. Each is watched before it is read, so that nothing
    /// can come into it unseen in between.
    fn cover_below(&mut self, roots: &Roots, path: &str, rules: &mut RulesCache) -> Result<(), WatchError> {
        self.watch(path)?;
        let options = WalkOptions::default();
        let mut failed = None;
        let mut visit = |entry: &Entry<'_>| {
            if entry.kind() == Kind::Directory
                && let Err(why) = self.watch(entry.path())
            {
                failed = Some(why);
                return ControlFlow::Break(());
            }
            ControlFlow::Continue(())
        };
        let (arrival, report) = walker::walk_from(roots, path, Start::Found, &options, rules, &mut visit);
        match arrival {
            Arrival::Directory => {}
            Arrival::Entry | Arrival::Missing | Arrival::Hidden | Arrival::Store | Arrival::Outside => {
                self.uncover(path);
            }
        }
        match failed {
            Some(why) => Err(why),
            None if report.truncated => Err(WatchError::TooMany(self.options.max_directories)),
            None => Ok(()),
        }
    }

    fn watch(&mut self, path: &str) -> Result<(), WatchError> {
        match inotify::add_watch(&self.queue, path, CHANGES) {
            Ok(number) => {
                self.watched.insert(path.to_owned(), number);
                self.names.insert(number, path.to_owned());
            }
            Err(Errno::NOSPC) => return Err(WatchError::Limit),
            // It is gone again, or cannot be read, and so not be scanned either.
            Err(_) => {}
        }
        if self.watched.len() > self.options.max_directories {
            return Err(WatchError::TooMany(self.options.max_directories));
        }
        Ok(())
    }
}

impl Pending {
    fn take_in(&mut self, path: String, roots: &[String], max_paths: usize) {
        // The stores of version control are not looked into.
        let in_store = |below: &str| below.split('/').any(walker::is_store);
        let mut ways = roots.iter().filter_map(|root| walker::below(&path, root));
        if self.everything || ways.all(in_store) {
            return;
        }
        self.paths.insert(path);
        if self.paths.len() > max_paths {
            self.give_up();
        }
    }

    fn give_up(&mut self) {
        self.everything = true;
        self.paths.clear();
    }
}

/// Returns the path of what an event is about; none for a name that is not UTF-8, which is no path of the protocol.
fn path(directory: &str, name: Option<&CStr>) -> Option<String> {
    match name {
        None => Some(directory.to_owned()),
        Some(name) => Some(format!("{}/{}", directory.trim_end_matches('/'), name.to_str().ok()?)),
    }
}

fn told(why: Errno) -> WatchError {
    match why {
        Errno::NOSPC => WatchError::Limit,
        why => WatchError::System(why.into()),
    }
}

#[cfg(test)]
mod tests;
