//! Watches the directories below the roots, so that a scan has to look only where something happened.
//!
//! A watch never says that nothing changed when something did: whenever it may have missed an event it says that
//! everything is to be scanned. Events come in the order in which things happened, a little later; [`Watch::settle`]
//! waits until all that happened before it have come, by way of a file of its own in a directory of its own.
//!
//! What it cannot see, no watch can: writes through a mapping of a file whose handle was closed long ago, and changes
//! that other machines make on a network file system. A scan of everything now and then finds those.

use std::collections::BTreeSet;
use std::fs;
use std::io;
use std::ops::{Bound, ControlFlow};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use notify::event::{AccessKind, AccessMode};
use notify::{Config, EventKind, RecommendedWatcher, RecursiveMode, Watcher};

use crate::observer::outermost;
use crate::roots::Roots;
use crate::walker::{self, Arrival, Entry, Kind, RulesCache, Start, WalkOptions};

/// How a watch is kept small.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct WatchOptions {
    /// A directory of Bowline's own, in which a watch keeps one to itself.
    pub private: PathBuf,
    /// With more dirty paths than this everything is dirty.
    pub max_paths: usize,
    /// A tree of more directories than this is not watched: the system has watches for so many in all, and the user's
    /// editor needs some.
    pub max_directories: usize,
}

impl WatchOptions {
    /// Returns options with a directory of Bowline's own.
    #[must_use]
    pub fn new(private: impl Into<PathBuf>) -> Self {
        Self { private: private.into(), max_paths: 10_000, max_directories: 32_768 }
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
    /// The directory for the watch itself cannot be made.
    #[error("cannot keep a directory in {path}: {why}")]
    Private {
        /// Where.
        path: PathBuf,
        /// What the system says.
        why: io::Error,
    },
    /// The system refuses otherwise.
    #[error("cannot watch: {0}")]
    System(notify::Error),
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
    watcher: RecommendedWatcher,
    shared: Arc<Shared>,
    // Directories that are watched, as far as known: one that was replaced may not be any more.
    watched: BTreeSet<String>,
    max_directories: usize,
    private: PathBuf,
    round: u64,
    // Whether new directories can be watched; if not, nothing it says is worth anything.
    serves: bool,
}

#[derive(Debug)]
struct Shared {
    pending: Mutex<Pending>,
    settled: Condvar,
    private: PathBuf,
    roots: Vec<String>,
    max_paths: usize,
}

/// What happened since it was last taken.
#[derive(Debug, Default)]
struct Pending {
    // At most `max_paths`.
    paths: BTreeSet<String>,
    everything: bool,
    // The last round whose file was seen.
    round: u64,
}

impl Watch {
    /// Watches all directories below the roots that are not hidden. What changes from now on is told; what was before
    /// takes a scan after this.
    ///
    /// # Errors
    /// Returns why it cannot be done.
    pub fn start(roots: &Roots, options: &WatchOptions) -> Result<Self, WatchError> {
        let failed = |why| WatchError::Private { path: options.private.clone(), why };
        let private = private_directory(&options.private).map_err(failed)?;
        let shared = Arc::new(Shared {
            pending: Mutex::default(),
            settled: Condvar::new(),
            private: private.clone(),
            roots: roots.iter().map(|(root, _)| root.to_owned()).collect(),
            max_paths: options.max_paths,
        });
        let handler = Arc::clone(&shared);
        let config = Config::default().with_follow_symlinks(false);
        let watcher = RecommendedWatcher::new(move |event| handler.take_in(event), config);
        let watcher = match watcher {
            Ok(watcher) => watcher,
            Err(why) => {
                remove_private(&private);
                return Err(told(why));
            }
        };
        let mut watch = Self {
            watcher,
            shared,
            watched: BTreeSet::new(),
            max_directories: options.max_directories,
            private,
            round: 0,
            serves: true,
        };
        let private = watch.private.clone();
        watch.watcher.watch(&private, RecursiveMode::NonRecursive).map_err(told)?;
        watch.cover_roots(roots)?;
        Ok(watch)
    }

    /// Says whether it still can tell anything; if not, everything is always dirty.
    #[must_use]
    pub fn serves(&self) -> bool {
        self.serves
    }

    /// Waits until all that happened before has come in. If that takes longer than the deadline, everything is dirty.
    pub fn settle(&mut self, deadline: Duration) {
        self.round += 1;
        let round = self.round;
        let file = self.private.join(round.to_string());
        let told = fs::File::create_new(&file).and_then(|_| fs::remove_file(&file));
        let pending = self.shared.lock();
        // Also if everything is dirty already: what is still to come belongs to this, not to the next time.
        let waiting = |pending: &mut Pending| told.is_ok() && pending.round < round;
        let waited = self.shared.settled.wait_timeout_while(pending, deadline, waiting);
        let (mut pending, _) = waited.unwrap_or_else(PoisonError::into_inner);
        if pending.round < round {
            pending.give_up();
        }
    }

    /// Returns where something may have changed since it was last asked, and begins to watch what is new there: so
    /// whatever changes after this is told the next time, and whatever changed before is found by a scan now.
    pub fn take(&mut self, roots: &Roots) -> Dirty {
        let Pending { paths, everything, .. } = self.shared.lock().take();
        let covered = if everything { self.cover_roots(roots) } else { self.cover(roots, &paths) };
        if covered.is_err() {
            self.serves = false;
        }
        if everything || !self.serves { Dirty::Everything } else { Dirty::Paths(paths.into_iter().collect()) }
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
        if !self.watched.remove(path) {
            return;
        }
        let prefix = format!("{}/", path.trim_end_matches('/'));
        let inside: Vec<String> = self
            .watched
            .range::<str, _>((Bound::Included(prefix.as_str()), Bound::Unbounded))
            .take_while(|path| path.starts_with(&prefix))
            .cloned()
            .collect();
        for path in std::iter::once(path).chain(inside.iter().map(String::as_str)) {
            self.watched.remove(path);
            // Most often the system has done so already.
            if self.watcher.unwatch(Path::new(path)).is_err() {
                continue;
            }
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
            None if report.truncated => Err(WatchError::TooMany(self.max_directories)),
            None => Ok(()),
        }
    }

    fn watch(&mut self, path: &str) -> Result<(), WatchError> {
        match self.watcher.watch(Path::new(path), RecursiveMode::NonRecursive) {
            Ok(()) => {
                self.watched.insert(path.to_owned());
            }
            Err(why) => match told(why) {
                limit @ WatchError::Limit => return Err(limit),
                // It is gone again, or cannot be read, and so not be scanned either.
                WatchError::TooMany(_) | WatchError::Private { .. } | WatchError::System(_) => {}
            },
        }
        if self.watched.len() > self.max_directories {
            return Err(WatchError::TooMany(self.max_directories));
        }
        Ok(())
    }
}

impl Drop for Watch {
    fn drop(&mut self) {
        remove_private(&self.private);
    }
}

impl Shared {
    fn lock(&self) -> MutexGuard<'_, Pending> {
        self.pending.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn take_in(&self, event: notify::Result<notify::Event>) {
        let mut pending = self.lock();
        match event {
            Ok(event) if event.need_rescan() => pending.give_up(),
            Ok(event) if changes(event.kind) => {
                event.paths.iter().for_each(|path| self.take_in_path(&mut pending, path));
            }
            Ok(_) => {}
            Err(_) => pending.give_up(),
        }
        self.settled.notify_all();
    }

    fn take_in_path(&self, pending: &mut Pending, path: &Path) {
        if let Ok(below) = path.strip_prefix(&self.private) {
            let round = below.to_str().and_then(|round| round.parse().ok());
            pending.round = pending.round.max(round.unwrap_or_default());
            return;
        }
        // A name that is not UTF-8 is no path of the protocol; the stores of version control are not looked into.
        let Some(path) = path.to_str() else { return };
        let in_store = |below: &str| below.split('/').any(walker::is_store);
        let mut ways = self.roots.iter().filter_map(|root| walker::below(path, root));
        if pending.everything || ways.all(in_store) {
            return;
        }
        if !pending.paths.contains(path) {
            pending.paths.insert(path.to_owned());
        }
        if pending.paths.len() > self.max_paths {
            pending.give_up();
        }
    }
}

impl Pending {
    fn give_up(&mut self) {
        self.everything = true;
        self.paths.clear();
    }

    fn take(&mut self) -> Self {
        let round = self.round;
        std::mem::replace(self, Self { round, ..Self::default() })
    }
}

/// Says whether an event may be a change. That something was opened or read is none.
fn changes(kind: EventKind) -> bool {
    match kind {
        EventKind::Access(access) => access == AccessKind::Close(AccessMode::Write),
        EventKind::Any
        | EventKind::Create(_)
        | EventKind::Modify(_)
        | EventKind::Remove(_)
        | EventKind::Other => true,
    }
}

fn told(why: notify::Error) -> WatchError {
    match why.kind {
        notify::ErrorKind::MaxFilesWatch => WatchError::Limit,
        _ => WatchError::System(why),
    }
}

/// Makes a directory that no other watch uses.
fn private_directory(parent: &Path) -> io::Result<PathBuf> {
    let parent = fs::canonicalize(parent)?;
    let mut number = 0u32;
    loop {
        let path = parent.join(format!("watch-{}-{number}", std::process::id()));
        match fs::create_dir(&path) {
            Ok(()) => return Ok(path),
            Err(why) if why.kind() == io::ErrorKind::AlreadyExists => number += 1,
            Err(why) => return Err(why),
        }
    }
}

/// One that stays behind is empty and harms nobody.
fn remove_private(path: &Path) {
    fs::remove_dir_all(path).unwrap_or_default();
}

#[cfg(test)]
mod tests;
