//! The steps of a walk: from a root down to where it starts, and through every directory below.

use std::collections::{BinaryHeap, HashSet};
use std::mem::MaybeUninit;
use std::ops::ControlFlow;
use std::os::fd::{AsFd, OwnedFd};

use bowline_state::paths::{MAX_COMPONENTS, MAX_PATH_BYTES};
use rustix::fs::{FileType, OFlags, RawDir, Stat};
use rustix::io::Errno;

use super::rules::{Hidden, Rules, RulesCache};
use super::{
    Arrival, Entry, FileSystems, Ignored, InReport as _, Kind, MAX_DEPTH, MAX_NAMED, Order, Start, Visitor,
    WalkOptions, WalkReport, is_store, names, open_at, stamp, stat_at,
};
use crate::roots::{RootHandle, Roots, is_system_files};

/// A walk that is going on.
pub(super) struct Walker<'w, 'v> {
    roots: &'w Roots,
    options: &'w WalkOptions,
    visit: &'w mut Visitor<'v>,
    pub(super) report: WalkReport,
    // The roots, each of which is walked by itself.
    starts: HashSet<&'w str>,
    rules: Rules<'w>,
    // What hides the directory that is being read, if it is read all the same.
    hidden: Hidden,
    device: u64,
    // The path of the directory that is being read, with no `/` at its end.
    path: String,
    buffer: Vec<MaybeUninit<u8>>,
}

/// The names in a directory, as many as there is room for: by name the first, else any.
enum Names {
    Any(Vec<String>),
    ByName(BinaryHeap<String>),
}

impl Names {
    fn new(order: Order) -> Self {
        match order {
            Order::Any => Names::Any(Vec::new()),
            Order::ByName => Names::ByName(BinaryHeap::new()),
        }
    }

    /// Adds a name. It breaks if there is one too many.
    fn push(&mut self, name: &str, room: u64) -> ControlFlow<()> {
        match self {
            Names::Any(names) if names.len() as u64 >= room => return ControlFlow::Break(()),
            Names::Any(names) => names.push(name.to_owned()),
            Names::ByName(names) => {
                names.push(name.to_owned());
                if names.len() as u64 > room {
                    names.pop();
                    return ControlFlow::Break(());
                }
            }
        }
        ControlFlow::Continue(())
    }

    fn into_vec(self) -> Vec<String> {
        match self {
            Names::Any(names) => names,
            Names::ByName(names) => names.into_sorted_vec(),
        }
    }
}

/// A directory's entries are read this many bytes at a time.
const BUFFER: usize = 32 * 1024;

const READ_DIRECTORY: OFlags = OFlags::RDONLY.union(OFlags::DIRECTORY);

impl<'w, 'v> Walker<'w, 'v> {
    pub(super) fn new(
        roots: &'w Roots,
        options: &'w WalkOptions,
        cache: &'w mut RulesCache,
        visit: &'w mut Visitor<'v>,
    ) -> Self {
        Self {
            roots,
            options,
            visit,
            report: WalkReport::default(),
            starts: roots.handles().map(|root| root.canonical.as_str()).collect(),
            rules: Rules::new(cache),
            hidden: Hidden::default(),
            device: 0,
            path: String::new(),
            buffer: vec![MaybeUninit::uninit(); BUFFER],
        }
    }

    pub(super) fn is_over(&self) -> bool {
        self.report.stopped || self.report.truncated
    }

    /// Goes from a root down to where the walk is to start, and walks. What is there is `depth` deep.
    pub(super) fn start(&mut self, root: RootHandle<'_>, rest: &str, start: Start, depth: usize) -> Arrival {
        self.device = root.device;
        root.canonical.as_str().trim_end_matches('/').clone_into(&mut self.path);
        let honours = self.options.ignored == Ignored::Skip;
        self.rules.leave(0);
        self.hidden = Hidden::default();
        if honours {
            self.rules.enter_parents(root, &mut self.report);
        }
        let mut directory = match open_at(root.directory, ".", READ_DIRECTORY) {
            Ok(directory) => directory,
            Err(why) => return self.lost(why),
        };
        let mut ahead = names(rest).peekable();
        while let Some(name) = ahead.next() {
            if is_store(name) {
                return Arrival::Store;
            }
            if honours {
                self.rules.enter(&directory, &self.path, &mut self.report);
            }
            let stat = match stat_at(&directory, name) {
                Ok(stat) => stat,
                Err(why) => return self.lost(why),
            };
            let kind = Kind::from(FileType::from_raw_mode(stat.st_mode));
            let parent = self.path.len();
            self.path.push('/');
            self.path.push_str(name);
            let hidden = match start {
                Start::Asked => Hidden::default(),
                Start::Found => self.rules.hide(&self.path, kind == Kind::Directory).within(self.hidden),
            };
            if hidden.is_left_out() || self.roots.keeps_out(&self.path) {
                return Arrival::Hidden;
            }
            if kind != Kind::Directory {
                if ahead.peek().is_some() {
                    return Arrival::Missing;
                }
                self.path.truncate(parent);
                self.visit_stopping(&directory, name, &stat, (depth, hidden)).in_report();
                return Arrival::Entry;
            }
            self.hidden = hidden;
            directory = match open_at(&directory, name, READ_DIRECTORY) {
                Ok(directory) => directory,
                Err(why) => return self.lost(why),
            };
            if !self.may_enter(&directory) {
                return Arrival::Hidden;
            }
        }
        self.directory(&directory, depth).in_report();
        Arrival::Directory
    }

    fn lost(&mut self, why: Errno) -> Arrival {
        if !matches!(why, Errno::NOENT | Errno::NOTDIR | Errno::LOOP) {
            self.unreadable();
        }
        Arrival::Missing
    }

    fn unreadable(&mut self) {
        self.report.unreadable += 1;
        if self.report.unreadable_first.len() < MAX_NAMED {
            self.report.unreadable_first.push(self.path.clone());
        }
    }

    /// Says whether a directory that was just opened is on a file system to be walked.
    fn may_enter(&mut self, directory: &OwnedFd) -> bool {
        let Ok(stat) = rustix::fs::fstat(directory) else {
            self.unreadable();
            return false;
        };
        let enters = stat.st_dev == self.device
            || (self.options.file_systems == FileSystems::All && !is_system_files(directory.as_fd()));
        self.report.other_file_systems += u64::from(!enters);
        enters
    }

    /// Visits what is in a directory. It breaks if the walk is over.
    fn directory(&mut self, directory: &OwnedFd, depth: usize) -> ControlFlow<()> {
        let levels = self.rules.depth();
        if self.options.ignored == Ignored::Skip {
            self.rules.enter(directory, &self.path, &mut self.report);
        }
        let Ok(entries) = self.read(directory) else {
            self.unreadable();
            self.rules.leave(levels);
            return ControlFlow::Continue(());
        };
        let mut flow = ControlFlow::Continue(());
        for name in &entries {
            flow = self.entry(directory, name, depth);
            if flow.is_break() {
                break;
            }
        }
        self.rules.leave(levels);
        flow
    }

    /// Reads the names in a directory that are to be shown.
    fn read(&mut self, directory: &OwnedFd) -> Result<Vec<String>, Errno> {
        let mut buffer = std::mem::take(&mut self.buffer);
        let mut raw = RawDir::new(directory, &mut buffer);
        let mut shown = Names::new(self.options.order);
        let length = self.path.len();
        let room = self.options.max_entries.saturating_sub(self.report.entries);
        let mut read = Ok(());
        while let Some(entry) = raw.next() {
            let entry = match entry {
                Ok(entry) => entry,
                Err(Errno::INTR) => continue,
                Err(why) => {
                    read = Err(why);
                    break;
                }
            };
            let Ok(name) = entry.file_name().to_str() else {
                self.report.not_utf8 += 1;
                continue;
            };
            if matches!(name, "." | "..") || is_store(name) {
                continue;
            }
            self.path.push('/');
            self.path.push_str(name);
            // A file system need not say what an entry is.
            let is_directory = || match entry.file_type() {
                FileType::Unknown => stat_at(directory, name)
                    .is_ok_and(|stat| FileType::from_raw_mode(stat.st_mode) == FileType::Directory),
                kind => kind == FileType::Directory,
            };
            let hidden = self.rules.any()
                && self.rules.hide(&self.path, is_directory()).within(self.hidden).is_left_out();
            let own = self.roots.keeps_out(&self.path);
            let long = self.path.len() > MAX_PATH_BYTES;
            self.path.truncate(length);
            if hidden {
                self.report.ignored += 1;
            } else if long {
                self.report.too_deep += 1;
            } else if !own && shown.push(name, room).is_break() {
                self.report.truncated = true;
                if self.options.order == Order::Any {
                    break;
                }
            }
        }
        self.buffer = buffer;
        let shown = shown.into_vec();
        // What was read before an error is shown; a directory that was removed meanwhile ends so.
        if shown.is_empty() { read.map(|()| shown) } else { Ok(shown) }
    }

    fn entry(&mut self, directory: &OwnedFd, name: &str, depth: usize) -> ControlFlow<()> {
        if self.report.entries >= self.options.max_entries {
            self.report.truncated = true;
            return ControlFlow::Break(());
        }
        // What is gone by now is no entry.
        let Ok(stat) = stat_at(directory, name) else { return ControlFlow::Continue(()) };
        let is_directory = FileType::from_raw_mode(stat.st_mode) == FileType::Directory;
        let length = self.path.len();
        let around = self.hidden;
        // Where nothing differs, what is shown is hidden by nothing.
        let mut hidden = around;
        if self.rules.differ() {
            self.path.push('/');
            self.path.push_str(name);
            hidden = self.rules.hide(&self.path, is_directory).within(around);
            self.path.truncate(length);
        }
        self.visit_stopping(directory, name, &stat, (depth, hidden))?;
        if !is_directory {
            return ControlFlow::Continue(());
        }
        self.path.push('/');
        self.path.push_str(name);
        self.hidden = hidden;
        let flow = self.descend(directory, name, depth);
        self.hidden = around;
        self.path.truncate(length);
        flow
    }

    fn descend(&mut self, directory: &OwnedFd, name: &str, depth: usize) -> ControlFlow<()> {
        if depth >= self.options.max_depth || self.starts.contains(self.path.as_str()) {
            return ControlFlow::Continue(());
        }
        // Below it is room for one name at least, and no path has more.
        if depth >= MAX_DEPTH || names(&self.path).count() >= MAX_COMPONENTS {
            self.report.too_deep += 1;
            return ControlFlow::Continue(());
        }
        match open_at(directory, name, READ_DIRECTORY) {
            Ok(child) if self.may_enter(&child) => self.directory(&child, depth + 1),
            Ok(_) | Err(Errno::NOENT | Errno::NOTDIR | Errno::LOOP) => ControlFlow::Continue(()),
            Err(_) => {
                self.unreadable();
                ControlFlow::Continue(())
            }
        }
    }

    fn visit_stopping(
        &mut self,
        directory: &OwnedFd,
        name: &str,
        stat: &Stat,
        (depth, hidden): (usize, Hidden),
    ) -> ControlFlow<()> {
        let length = self.path.len();
        self.path.push('/');
        self.path.push_str(name);
        let kind = FileType::from_raw_mode(stat.st_mode).into();
        self.report.entries += 1;
        self.report.files += u64::from(kind == Kind::File);
        let (stamp, was_hidden) = (stamp(stat), hidden.before);
        let entry = Entry { path: &self.path, name, depth, kind, stamp, was_hidden, directory };
        let flow = (self.visit)(&entry);
        self.path.truncate(length);
        self.report.stopped |= flow.is_break();
        flow
    }
}
