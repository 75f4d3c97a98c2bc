//! The state of a watched tree on disk. Its directories are watched in the same pass.

use std::collections::BTreeMap;
use std::ops::ControlFlow;

use bowline_history::watch::{WatchExtent, WatchScope, WatchedEntry, WatchedType};
use bowline_storage::file_clock::now_ns;
use bowline_text::hash::ContentHash;

use super::super::session::WorkspaceSession;
use crate::disk::content_scan::hash_start;
use crate::disk::replace::is_temp_name;
use crate::observer::file_watcher::{FileWatcher, FileWatcherError};
use crate::roots::Roots;
use crate::walker::{
    self, EntryKind, FileSystemScope, IgnoreRulesCache, StartVisibility, WalkEntry, WalkOptions,
    WalkStartOutcome,
};

/// Why a watched tree cannot be compared.
#[derive(Debug)]
pub(super) enum TreeError {
    Watcher(FileWatcherError),
    TooManyEntries,
    VersionControlStore,
    Hidden,
}

impl From<FileWatcherError> for TreeError {
    fn from(error: FileWatcherError) -> Self {
        Self::Watcher(error)
    }
}

/// The state of a watched tree on disk.
pub(super) struct TreeScan<'t> {
    pub(super) roots: &'t Roots,
    pub(super) scope: &'t WatchScope,
    // How many entries are allowed.
    pub(super) room: usize,
}

impl TreeScan<'_> {
    /// Scans everything that the scope covers, and watches its directories.
    pub(super) fn scan_all(
        &self,
        watcher: &mut FileWatcher,
        rules: &mut IgnoreRulesCache,
    ) -> Result<BTreeMap<String, WatchedEntry>, TreeError> {
        // The directory around the path tells when the path itself is removed or created again.
        if let Some(parent) = parent_directory(&self.scope.path)
            && walker::find_root(self.roots, parent).is_some()
        {
            watcher.watch_directory(parent)?;
        }
        self.scan_below(&self.scope.path, watcher, rules)
    }

    /// Scans a path in the scope and everything below it, and watches its directories. Each is watched before it is
    /// read, so that no change goes unnoticed in between.
    pub(super) fn scan_below(
        &self,
        start: &str,
        watcher: &mut FileWatcher,
        rules: &mut IgnoreRulesCache,
    ) -> Result<BTreeMap<String, WatchedEntry>, TreeError> {
        let now_ns = now_ns();
        let scope = self.scope;
        let mut entries = BTreeMap::new();
        if scope.extent == WatchExtent::File {
            entries.extend(visit_entry(self.roots, start, now_ns).map(|entry| (start.to_owned(), entry)));
            return Ok(entries);
        }
        let is_recursive = scope.extent == WatchExtent::Recursive;
        let is_walked = is_recursive || start == scope.path;
        if is_walked {
            watcher.watch_directory(start)?;
        }
        let mut failed = None;
        let mut visit = |entry: &WalkEntry<'_>| {
            if !is_walked && entry.path() != start {
                return ControlFlow::Break(());
            }
            if is_recursive
                && entry.kind() == EntryKind::Directory
                && let Err(error) = watcher.watch_directory(entry.path())
            {
                failed = Some(error.into());
                return ControlFlow::Break(());
            }
            if let Some(known) = to_watched_entry(entry, now_ns).filter(|_| scope.selects(entry.path())) {
                entries.insert(entry.path().to_owned(), known);
            }
            if entries.len() > self.room {
                failed = Some(TreeError::TooManyEntries);
                return ControlFlow::Break(());
            }
            ControlFlow::Continue(())
        };
        let options = WalkOptions {
            file_systems: FileSystemScope::All,
            max_depth: if is_recursive { walker::MAX_DEPTH } else { 1 },
            ..WalkOptions::default()
        };
        let visibility = StartVisibility::RulesApplyBelow(scope.path.len());
        let (arrival, report) = walker::walk_from(self.roots, start, visibility, &options, rules, &mut visit);
        let is_whole = start == scope.path;
        match (failed, arrival) {
            (Some(error), _) => return Err(error),
            (None, WalkStartOutcome::VersionControlStore) if is_whole => {
                return Err(TreeError::VersionControlStore);
            }
            (None, WalkStartOutcome::Hidden) if is_whole => return Err(TreeError::Hidden),
            (None, WalkStartOutcome::Directory) if scope.selects(start) => {
                entries.extend(visit_entry(self.roots, start, now_ns).map(|entry| (start.to_owned(), entry)));
            }
            (None, _) => {}
        }
        if report.truncated { Err(TreeError::TooManyEntries) } else { Ok(entries) }
    }
}

/// Returns the state of a path, whether or not ignore rules hide it.
pub(super) fn visit_entry(roots: &Roots, path: &str, now_ns: i64) -> Option<WatchedEntry> {
    let mut found = None;
    let visited = walker::visit_path(roots, path, &mut |entry| {
        found = to_watched_entry(entry, now_ns);
        ControlFlow::Continue(())
    });
    // A path that cannot be examined cannot be read either.
    visited.ok().and(found)
}

/// Returns the state of an entry, if it is of a type that is watched. The engine's temporary files are not.
fn to_watched_entry(entry: &WalkEntry<'_>, now_ns: i64) -> Option<WatchedEntry> {
    let file_type = match entry.kind() {
        EntryKind::File => WatchedType::File,
        EntryKind::Directory => WatchedType::Directory,
        EntryKind::Link | EntryKind::Other => return None,
    };
    let is_temporary = entry.path().rsplit('/').next().is_some_and(is_temp_name);
    (!is_temporary).then(|| WatchedEntry::new(file_type, entry.stamp(), now_ns))
}

/// Returns what the journal has as the hash of the first `size` bytes of a file.
pub(super) fn hash_start_of(session: &WorkspaceSession, path: &str, size: u64) -> Option<ContentHash> {
    let mut hash = None;
    let max_hashed_bytes = session.workspace.inner.options.max_write_bytes;
    let visited = walker::visit_path(&session.roots, path, &mut |entry| {
        let opened = entry.open().ok();
        hash = opened.and_then(|(file, _)| hash_start(&file, size, max_hashed_bytes).ok().flatten());
        ControlFlow::Continue(())
    });
    visited.ok().and(hash)
}

/// Returns the directory that contains a path, unless it is the root of the file system.
pub(super) fn parent_directory(path: &str) -> Option<&str> {
    path.rsplit_once('/').map(|(parent, _)| parent).filter(|parent| !parent.is_empty())
}
