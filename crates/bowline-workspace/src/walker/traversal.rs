//! The traversal of a walk: from a root down to its start, and through every directory below.

use std::collections::{BinaryHeap, HashSet};
use std::mem::MaybeUninit;
use std::ops::ControlFlow;
use std::os::fd::{AsFd, OwnedFd};

use bowline_history::observation::FileStamp;
use bowline_policy::paths::{MAX_COMPONENTS, MAX_PATH_BYTES};
use rustix::fs::{FileType, OFlags, RawDir, Stat};
use rustix::io::Errno;

use super::ignore_rules::{HiddenState, IgnoreRules, IgnoreRulesCache};
use super::{
    EntryKind, EntryMetadata, FileSystemScope, IgnoredFiles, MAX_DEPTH, StartVisibility, WalkEntry,
    WalkOptions, WalkOrder, WalkReport, WalkStartOutcome, WalkVisitor, is_version_control_store, open_at,
    path_names, stat_at,
};
use crate::roots::{RootHandle, Roots, is_system_file_system};
use bowline_storage::file_clock::file_stamp;

/// A walk in progress.
pub(super) struct Walker<'w, 'v> {
    roots: &'w Roots,
    options: &'w WalkOptions,
    visit: &'w mut WalkVisitor<'v>,
    pub(super) report: WalkReport,
    // The roots, each of which is walked separately.
    root_paths: HashSet<&'w str>,
    rules: IgnoreRules<'w>,
    // Which rules hide the current directory, if it is read nevertheless.
    hidden: HiddenState,
    device: u64,
    // The path of the current directory, without a trailing `/`.
    path: String,
    buffer: Vec<MaybeUninit<u8>>,
}

/// A name in a directory, and its type if the file system tells it with the name.
type EntryName = (String, Option<EntryKind>);

/// The names in a directory, up to a limit: the first ones by name, or any.
enum EntryNames {
    Any(Vec<EntryName>),
    ByName(BinaryHeap<EntryName>),
}

impl EntryNames {
    fn new(order: WalkOrder) -> Self {
        match order {
            WalkOrder::Any => EntryNames::Any(Vec::new()),
            WalkOrder::ByName => EntryNames::ByName(BinaryHeap::new()),
        }
    }

    /// Adds a name. Breaks if there is no room for it.
    fn push(&mut self, name: EntryName, room: u64) -> ControlFlow<()> {
        match self {
            EntryNames::Any(names) if names.len() as u64 >= room => return ControlFlow::Break(()),
            EntryNames::Any(names) => names.push(name),
            EntryNames::ByName(names) => {
                names.push(name);
                if names.len() as u64 > room {
                    names.pop();
                    return ControlFlow::Break(());
                }
            }
        }
        ControlFlow::Continue(())
    }

    fn into_vec(self) -> Vec<EntryName> {
        match self {
            EntryNames::Any(names) => names,
            EntryNames::ByName(names) => names.into_sorted_vec(),
        }
    }
}

/// How many bytes of directory entries are read at a time.
const BUFFER_BYTES: usize = 32 * 1024;

const READ_DIRECTORY: OFlags = OFlags::RDONLY.union(OFlags::DIRECTORY);

impl<'w, 'v> Walker<'w, 'v> {
    pub(super) fn new(
        roots: &'w Roots,
        options: &'w WalkOptions,
        cache: &'w mut IgnoreRulesCache,
        visit: &'w mut WalkVisitor<'v>,
    ) -> Self {
        Self {
            roots,
            options,
            visit,
            report: WalkReport::default(),
            root_paths: roots.handles().map(|root| root.canonical.as_str()).collect(),
            rules: IgnoreRules::new(cache),
            hidden: HiddenState::default(),
            device: 0,
            path: String::new(),
            buffer: vec![MaybeUninit::uninit(); BUFFER_BYTES],
        }
    }

    pub(super) fn is_over(&self) -> bool {
        self.report.stopped || self.report.truncated
    }

    /// Descends from a root to the start of the walk, and walks. The start has the given `depth`.
    pub(super) fn start(
        &mut self,
        root: RootHandle<'_>,
        rest: &str,
        start: StartVisibility,
        depth: usize,
    ) -> WalkStartOutcome {
        self.device = root.device;
        root.canonical.as_str().trim_end_matches('/').clone_into(&mut self.path);
        let honours = self.options.ignored == IgnoredFiles::Skip;
        self.rules.truncate(0);
        self.hidden = HiddenState::default();
        if honours {
            self.rules.enter_parents(root);
        }
        let mut directory = match open_at(root.directory, ".", READ_DIRECTORY) {
            Ok(directory) => directory,
            Err(why) => return self.start_failed(why),
        };
        let mut ahead = path_names(rest).peekable();
        while let Some(name) = ahead.next() {
            if is_version_control_store(name) {
                return WalkStartOutcome::VersionControlStore;
            }
            if honours {
                self.rules.enter(&directory, &self.path);
            }
            let stat = match stat_at(&directory, name) {
                Ok(stat) => stat,
                Err(why) => return self.start_failed(why),
            };
            let kind = EntryKind::from(FileType::from_raw_mode(stat.st_mode));
            let parent = self.path.len();
            self.path.push('/');
            self.path.push_str(name);
            let hidden = match start {
                StartVisibility::AlwaysVisible => HiddenState::default(),
                StartVisibility::RulesApplyBelow(length) if self.path.len() <= length => {
                    HiddenState::default()
                }
                StartVisibility::RulesApply | StartVisibility::RulesApplyBelow(_) => {
                    self.rules.hidden_state(&self.path, kind == EntryKind::Directory).within(self.hidden)
                }
            };
            if hidden.is_left_out() || self.roots.is_reserved(&self.path) {
                return WalkStartOutcome::Hidden;
            }
            if kind != EntryKind::Directory {
                if ahead.peek().is_some() {
                    return WalkStartOutcome::Missing;
                }
                self.path.truncate(parent);
                _ = self.visit_entry(&directory, name, kind_and_stamp(&stat), hidden);
                return WalkStartOutcome::Entry;
            }
            self.hidden = hidden;
            directory = match open_at(&directory, name, READ_DIRECTORY) {
                Ok(directory) => directory,
                Err(why) => return self.start_failed(why),
            };
            if !self.can_enter(&directory) {
                return WalkStartOutcome::Hidden;
            }
        }
        _ = self.walk_directory(&directory, depth);
        WalkStartOutcome::Directory
    }

    fn start_failed(&mut self, why: Errno) -> WalkStartOutcome {
        if !matches!(why, Errno::NOENT | Errno::NOTDIR | Errno::LOOP) {
            self.report.unreadable += 1;
        }
        WalkStartOutcome::Missing
    }

    /// Returns whether an opened directory is on a file system to be walked.
    fn can_enter(&mut self, directory: &OwnedFd) -> bool {
        let Ok(stat) = rustix::fs::fstat(directory) else {
            self.report.unreadable += 1;
            return false;
        };
        stat.st_dev == self.device
            || (self.options.file_systems == FileSystemScope::All
                && !is_system_file_system(directory.as_fd()))
    }

    /// Visits the entries of a directory. Breaks when the walk is over.
    fn walk_directory(&mut self, directory: &OwnedFd, depth: usize) -> ControlFlow<()> {
        let levels = self.rules.depth();
        if self.options.ignored == IgnoredFiles::Skip {
            self.rules.enter(directory, &self.path);
        }
        let Ok(entries) = self.read_names(directory) else {
            self.report.unreadable += 1;
            self.rules.truncate(levels);
            return ControlFlow::Continue(());
        };
        let mut flow = ControlFlow::Continue(());
        for (name, kind) in &entries {
            flow = self.walk_entry(directory, name, *kind, depth);
            if flow.is_break() {
                break;
            }
        }
        self.rules.truncate(levels);
        flow
    }

    /// Reads the names in a directory that are to be shown.
    fn read_names(&mut self, directory: &OwnedFd) -> Result<Vec<EntryName>, Errno> {
        let mut buffer = std::mem::take(&mut self.buffer);
        let mut raw = RawDir::new(directory, &mut buffer);
        let mut shown = EntryNames::new(self.options.order);
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
            if matches!(name, "." | "..") || is_version_control_store(name) {
                continue;
            }
            self.path.push('/');
            self.path.push_str(name);
            // A file system need not report the type of an entry.
            let is_directory = || match entry.file_type() {
                FileType::Unknown => stat_at(directory, name)
                    .is_ok_and(|stat| FileType::from_raw_mode(stat.st_mode) == FileType::Directory),
                kind => kind == FileType::Directory,
            };
            let hidden = self.rules.has_rules()
                && self.rules.hidden_state(&self.path, is_directory()).within(self.hidden).is_left_out();
            let kind = Some(entry.file_type()).filter(|kind| *kind != FileType::Unknown).map(EntryKind::from);
            let own = self.roots.is_reserved(&self.path);
            let long = self.path.len() > MAX_PATH_BYTES;
            self.path.truncate(length);
            if long && !hidden {
                self.report.too_deep += 1;
            } else if !hidden && !own && shown.push((name.to_owned(), kind), room).is_break() {
                self.report.truncated = true;
                if self.options.order == WalkOrder::Any {
                    break;
                }
            }
        }
        self.buffer = buffer;
        let shown = shown.into_vec();
        // Names read before an error are shown; reading a directory that was removed ends this way.
        if shown.is_empty() { read.map(|()| shown) } else { Ok(shown) }
    }

    fn walk_entry(
        &mut self,
        directory: &OwnedFd,
        name: &str,
        kind: Option<EntryKind>,
        depth: usize,
    ) -> ControlFlow<()> {
        if self.report.entries >= self.options.max_entries {
            self.report.truncated = true;
            return ControlFlow::Break(());
        }
        let (kind, stamp) = match kind.filter(|_| self.options.metadata == EntryMetadata::Type) {
            Some(kind) => (kind, NO_STAMP),
            None => match stat_at(directory, name) {
                Ok(stat) => kind_and_stamp(&stat),
                // The entry is gone by now.
                Err(_) => return ControlFlow::Continue(()),
            },
        };
        let is_directory = kind == EntryKind::Directory;
        let length = self.path.len();
        let around = self.hidden;
        // If no rules differ, a shown entry is hidden by none.
        let mut hidden = around;
        if self.rules.differ_from_previous() {
            self.path.push('/');
            self.path.push_str(name);
            hidden = self.rules.hidden_state(&self.path, is_directory).within(around);
            self.path.truncate(length);
        }
        self.visit_entry(directory, name, (kind, stamp), hidden)?;
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
        if depth >= self.options.max_depth || self.root_paths.contains(self.path.as_str()) {
            return ControlFlow::Continue(());
        }
        // Entries below it would exceed the limits on depth or components.
        if depth >= MAX_DEPTH || path_names(&self.path).count() >= MAX_COMPONENTS {
            self.report.too_deep += 1;
            return ControlFlow::Continue(());
        }
        match open_at(directory, name, READ_DIRECTORY) {
            Ok(child) if self.can_enter(&child) => self.walk_directory(&child, depth + 1),
            Ok(_) | Err(Errno::NOENT | Errno::NOTDIR | Errno::LOOP) => ControlFlow::Continue(()),
            Err(_) => {
                self.report.unreadable += 1;
                ControlFlow::Continue(())
            }
        }
    }

    fn visit_entry(
        &mut self,
        directory: &OwnedFd,
        name: &str,
        (kind, stamp): (EntryKind, FileStamp),
        hidden: HiddenState,
    ) -> ControlFlow<()> {
        let length = self.path.len();
        self.path.push('/');
        self.path.push_str(name);
        self.report.entries += 1;
        let was_hidden = hidden.by_previous;
        let entry = WalkEntry { path: &self.path, name, kind, stamp, was_hidden, directory };
        let flow = (self.visit)(&entry);
        self.path.truncate(length);
        self.report.stopped |= flow.is_break();
        flow
    }
}

/// The metadata of an entry of which only the type is read.
const NO_STAMP: FileStamp = FileStamp { device: 0, inode: 0, size: 0, mtime_ns: 0, ctime_ns: 0, mode: 0 };

fn kind_and_stamp(stat: &Stat) -> (EntryKind, FileStamp) {
    (FileType::from_raw_mode(stat.st_mode).into(), file_stamp(stat))
}
