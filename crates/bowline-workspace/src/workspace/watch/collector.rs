//! What changed in one watch: its known state, compared with the disk, the journal and the open documents.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Bound;

use bowline_history::changes::ChangeId;
use bowline_history::observation::FileStamp;
use bowline_history::watch::{
    PathDifference, WatchScope, WatchedEntry, WatchedType, change_author, compare_entries, explains_state,
};
use bowline_policy::paths::path_below;
use bowline_protocol::file_extension::{ChangeAuthor, ChangeKind};
use bowline_storage::file_clock::now_ns;

use super::super::session::WorkspaceSession;
use super::super::{Workspace, WorkspaceWriter};
use super::tree::{TreeScan, hash_start_of, visit_entry};
use super::{Watch, WatchOptions};
use crate::observer::file_watcher::{DirtyPaths, FileWatcher};
use crate::observer::outermost_paths;
use crate::walker::{IgnoreRulesCache, ignore_file_directory};

/// Where to look for changes.
pub(super) struct DirtyScope {
    // The paths that the system reported; `None` if it may have left some out.
    reported: Option<BTreeSet<String>>,
    // The directories whose ignore rules changed.
    changed_rules: Vec<String>,
    // When changes were last collected.
    last_collect_ns: i64,
}

impl DirtyScope {
    pub(super) fn new(dirty: DirtyPaths, last_collect_ns: i64) -> Self {
        let reported = match dirty {
            DirtyPaths::Everything => None,
            DirtyPaths::Paths(paths) => Some(paths.into_iter().collect::<BTreeSet<String>>()),
        };
        let paths = reported.iter().flatten();
        let changed_rules = paths.filter_map(|path| ignore_file_directory(path)).map(str::to_owned).collect();
        Self { reported, changed_rules, last_collect_ns }
    }

    /// Returns the paths at and below which a watch has to look.
    fn starts(&self, scope: &WatchScope) -> Vec<&str> {
        let Some(reported) = &self.reported else { return vec![""] };
        let outermost = outermost_paths(reported.iter().map(String::as_str)).into_iter();
        let start = |path| {
            if path_below(&scope.path, path).is_some() {
                Some("")
            } else {
                scope.contains(path).then_some(path)
            }
        };
        let mut starts: Vec<&str> = outermost.filter_map(start).collect();
        if starts.contains(&"") {
            starts = vec![""];
        }
        starts
    }

    fn is_reported(&self, path: &str) -> bool {
        self.reported.as_ref().is_none_or(|reported| reported.contains(path))
    }

    /// Returns whether a new entry was there before, hidden by ignore rules.
    fn was_hidden(&self, path: &str, stamp: &FileStamp) -> bool {
        self.changed_rules.iter().any(|directory| path_below(path, directory).is_some())
            && !stamp.may_have_changed_since(self.last_collect_ns)
    }
}

/// Compares one watch with the disk and the open documents.
pub(super) struct Collector<'c> {
    pub(super) session: &'c WorkspaceSession,
    pub(super) watch: &'c mut Watch,
    pub(super) dirty: &'c DirtyScope,
    pub(super) room: usize,
    pub(super) options: &'c WatchOptions,
}

impl Collector<'_> {
    /// Returns what changed, and whether changes were left out.
    pub(super) fn find_differences(
        &mut self,
        watcher: &mut FileWatcher,
        rules: &mut IgnoreRulesCache,
    ) -> (Vec<PathDifference>, bool) {
        let mut overflow = self.dirty.reported.is_none();
        let mut differences = Vec::new();
        for start in self.dirty.starts(&self.watch.target.scope) {
            let scope = &self.watch.target.scope;
            let tree = TreeScan { roots: &self.session.roots, scope, room: self.room };
            let found = match start {
                "" => tree.scan_all(watcher, rules),
                start => tree.scan_below(start, watcher, rules),
            };
            let Ok(found) = found else {
                // What is known stays as it is; the agent has to look itself.
                (self.watch.is_incomplete, overflow) = (true, true);
                continue;
            };
            let start = if start.is_empty() { scope.path.clone() } else { start.to_owned() };
            for path in self.candidates(&start, &found) {
                if differences.len() < self.options.max_pending_changes {
                    differences.extend(self.examine(&path, found.get(&path)));
                } else {
                    overflow = true;
                    self.learn(&path, found.get(&path).copied());
                }
            }
        }
        let unsaved = self.find_unsaved_differences(&mut differences);
        differences.extend(unsaved);
        (differences, overflow)
    }

    /// Returns the paths that may have changed, by the metadata of a scan.
    fn candidates(&self, start: &str, found: &BTreeMap<String, WatchedEntry>) -> Vec<String> {
        let known = &self.watch.entries;
        let below = known
            .range::<str, _>((Bound::Included(start), Bound::Unbounded))
            .take_while(|(path, _)| path.starts_with(start))
            .filter(|(path, _)| path_below(path, start).is_some());
        let gone = below.map(|(path, _)| path).filter(|path| !found.contains_key(*path));
        let differs = |(path, after): &(&String, &WatchedEntry)| {
            compare_entries(known.get(*path), Some(after), self.dirty.is_reported(path)).is_some()
        };
        let changed = found.iter().filter(differs).map(|(path, _)| path);
        gone.chain(changed).cloned().collect()
    }

    /// Examines a path together with the journal, remembers its state, and returns the difference.
    fn examine(&mut self, path: &str, found: Option<&WatchedEntry>) -> Option<PathDifference> {
        let (session, before) = (self.session, self.watch.entries.get(path).copied());
        // While the lock is held, no write of this process is between the journal and the disk.
        let writer = session.workspace.writer();
        let mut after = visit_entry(&session.roots, path, now_ns());
        if let (Some(_), None, Some(_)) = (before, found, after) {
            // It exists, but ignore rules hide it by now.
            self.watch.entries.remove(path);
            return None;
        }
        if before.is_none() && after.is_some_and(|after| self.dirty.was_hidden(path, &after.known.stamp)) {
            self.learn(path, after);
            return None;
        }
        let kind = compare_entries(before.as_ref(), after.as_ref(), self.dirty.is_reported(path));
        let mut difference = kind.zip(after.or(before)).map(|(kind, entry)| PathDifference {
            path: path.to_owned(),
            kind,
            file_type: entry.file_type,
            stamp: Some(entry.known.stamp),
            author: None,
            record: None,
        });
        let last_change = self.attribute(&writer, path, before, after, difference.as_mut());
        drop(writer);
        if let Some(after) = &mut after {
            after.last_change = last_change;
        }
        self.learn(path, after);
        difference
    }

    /// Sets the author of a difference from the journal. Returns the newest change that has been considered.
    fn attribute(
        &self,
        writer: &WorkspaceWriter,
        path: &str,
        before: Option<WatchedEntry>,
        after: Option<WatchedEntry>,
        difference: Option<&mut PathDifference>,
    ) -> Option<ChangeId> {
        let last_change = before.and_then(|before| before.last_change).max(self.watch.since);
        let difference = difference?;
        let session = self.session.id();
        if difference.file_type == WatchedType::Directory {
            let origin = writer.recent_directories.find(path, self.watch.last_directory);
            difference.author = origin.map(|origin| match origin {
                None => ChangeAuthor::User,
                Some(other) if other != session => ChangeAuthor::Session,
                Some(_) => ChangeAuthor::Agent,
            });
            return last_change;
        }
        let newest = writer.journal.newest_change(path).ok().flatten();
        let Some(newest) = newest.filter(|newest| Some(newest.change.id) > last_change) else {
            return last_change;
        };
        let change = &newest.change;
        let is_explained = match (after, change.after) {
            (None, _) => explains_state(change, None),
            (Some(after), Some(state)) if after.known.stamp.size == state.size => {
                hash_start_of(self.session, path, state.size)
                    .is_some_and(|hash| explains_state(change, Some(&hash)))
            }
            (Some(_), _) => false,
        };
        if is_explained {
            difference.author = change_author(change, session);
            let content = if after.is_some() { change.after } else { change.before };
            difference.record = content.map(|content| (change.at, content.hash));
        }
        // A write of another process may not have reached the disk yet.
        if is_explained || newest.outcome.is_some() { Some(change.id) } else { last_change }
    }

    fn learn(&mut self, path: &str, entry: Option<WatchedEntry>) {
        match entry {
            Some(entry) => self.watch.entries.insert(path.to_owned(), entry),
            None => self.watch.entries.remove(path),
        };
    }

    /// Returns the documents whose unsaved text changed, appeared or went away. Where the file changed as well, its
    /// difference is that of the path; `differences` are adapted to what the agent has seen of unsaved text.
    fn find_unsaved_differences(&mut self, differences: &mut [PathDifference]) -> Vec<PathDifference> {
        let now = unsaved_revisions(&self.session.workspace, &self.watch.target.scope);
        let before = std::mem::replace(&mut self.watch.unsaved, now.clone());
        if before.is_empty() && now.is_empty() {
            return Vec::new();
        }
        for seen in &mut *differences {
            let was_there = seen.kind == ChangeKind::Created && before.contains_key(&seen.path);
            let is_there = seen.kind == ChangeKind::Removed && now.contains_key(&seen.path);
            if was_there || is_there {
                seen.kind = ChangeKind::Modified;
            }
        }
        let paths: BTreeSet<&String> = before.keys().chain(now.keys()).collect();
        let mut unsaved = Vec::new();
        for path in paths {
            let (was, is) = (before.get(path), now.get(path));
            if was == is || differences.iter().any(|seen| seen.path == *path) {
                continue;
            }
            let is_known = self.watch.entries.contains_key(path);
            // A file that ignore rules hide is hidden with its unsaved text.
            if !is_known && visit_entry(&self.session.roots, path, 0).is_some() {
                continue;
            }
            let kind = match (was, is) {
                (None, Some(_)) if !is_known => ChangeKind::Created,
                (Some(_), None) if !is_known => ChangeKind::Removed,
                _ => ChangeKind::Modified,
            };
            unsaved.push(PathDifference {
                path: path.clone(),
                kind,
                file_type: WatchedType::File,
                stamp: None,
                author: Some(ChangeAuthor::User),
                record: None,
            });
        }
        unsaved
    }
}

/// Returns the revisions of the unsaved texts that a watch covers.
pub(super) fn unsaved_revisions(workspace: &Workspace, scope: &WatchScope) -> BTreeMap<String, u64> {
    let documents = workspace.open_documents().into_iter();
    let unsaved = documents.filter(|document| document.is_dirty && scope.selects(&document.path));
    unsaved.map(|document| (document.path, document.revision)).collect()
}
