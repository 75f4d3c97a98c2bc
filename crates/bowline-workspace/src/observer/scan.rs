//! One scan: compares every file that a walk visits with its known state, and then the known files that it did not
//! visit.

use std::collections::HashMap;
use std::io;
use std::ops::ControlFlow;

use bowline_history::observation::{
    self, FileStamp, KnownFile, StampVerdict, compare_contents, compare_stamps, looks_like_text,
};
use rustix::io::Errno;

use super::contents::{self, FileContents, ReadLimits};
use super::known_files::{FileEntry, TrackedFile};
use super::{
    MAX_CHANGED_MEANWHILE, Observation, Observer, ObserverOptions, PROGRESS_EVERY, ScanEnd, ScanEvent,
    ScanSink, ScannedChange, ScannedChangeKind,
};
use crate::git_objects::GitObjects;
use crate::roots::Roots;
use crate::walker::{self, EntryKind, IgnoreRulesCache, StartVisibility, WalkEntry, WalkOptions};

/// How to treat an unknown file.
#[derive(Debug, Clone, Copy)]
pub(super) enum UnknownFiles<'g> {
    /// As pre-existing. The texts in these packs need not be stored.
    Learn(&'g GitObjects),
    /// As created.
    Report,
}

/// A scan in progress.
pub(super) struct Scan<'s, 'v> {
    observer: &'s mut Observer,
    roots: &'s Roots,
    now_ns: i64,
    unknown_files: UnknownFiles<'s>,
    sink: &'s mut ScanSink<'v>,
    rules: IgnoreRulesCache,
    observation: Observation,
    // The paths of previously known files, by metadata. Built on first use.
    paths_by_stamp: Option<HashMap<FileStamp, Vec<String>>>,
}

impl<'s, 'v> Scan<'s, 'v> {
    pub(super) fn new(
        observer: &'s mut Observer,
        roots: &'s Roots,
        now_ns: i64,
        unknown: UnknownFiles<'s>,
        sink: &'s mut ScanSink<'v>,
    ) -> Self {
        observer.scan_number += 1;
        let rules = IgnoreRulesCache::with_previous(observer.last_rules.take());
        Self {
            observer,
            roots,
            now_ns,
            unknown_files: unknown,
            sink,
            rules,
            observation: Observation::default(),
            paths_by_stamp: None,
        }
    }

    fn walk_options(&self) -> WalkOptions {
        let ObserverOptions { max_entries, file_systems, .. } = self.observer.options;
        let max_entries = max_entries.saturating_sub(self.observation.report.walk.entries);
        WalkOptions { max_entries, file_systems, ..WalkOptions::default() }
    }

    pub(super) fn is_stopped(&self) -> bool {
        self.observation.report.stopped
    }

    pub(super) fn walk(&mut self) {
        let (roots, options) = (self.roots, self.walk_options());
        let mut rules = std::mem::take(&mut self.rules);
        let report =
            walker::walk_with_cache(roots, &options, &mut rules, &mut |entry| self.visit_entry(entry));
        self.rules = rules;
        self.observation.report.walk = report;
    }

    pub(super) fn walk_from(&mut self, path: &str) {
        let (roots, options) = (self.roots, self.walk_options());
        let mut rules = std::mem::take(&mut self.rules);
        let mut visit = |entry: &WalkEntry<'_>| self.visit_entry(entry);
        let (_, report) =
            walker::walk_from(roots, path, StartVisibility::RulesApply, &options, &mut rules, &mut visit);
        self.rules = rules;
        self.observation.report.walk.add(report);
    }

    /// Checks every known file that no walk visited: hidden by now, beyond the walk's limits, or gone.
    pub(super) fn check_unvisited(&mut self, scope: Option<&str>) {
        for path in self.unvisited_files(scope) {
            if self.is_stopped() {
                return;
            }
            let roots = self.roots;
            let mut there = false;
            let looked = walker::visit_path(roots, &path, &mut |entry| {
                there = entry.kind() == EntryKind::File;
                self.visit_entry(entry)
            });
            match looked {
                Ok(()) if there => {}
                Ok(()) => self.report_deleted(path),
                Err(_) => self.observation.report.files_unreadable += 1,
            }
        }
    }

    fn unvisited_files(&self, scope: Option<&str>) -> Vec<String> {
        let files = &self.observer.files;
        let unseen = |entry: &FileEntry<'_>| entry.tracked.last_scan != self.observer.scan_number;
        let ours = |path: &str| walker::find_root(self.roots, path).is_some();
        match scope {
            None => files.iter().filter(unseen).map(|entry| entry.path()).filter(|path| ours(path)).collect(),
            Some(scope) if ours(scope) => {
                files.iter_from(scope).filter(unseen).map(|entry| entry.path()).collect()
            }
            Some(_) => Vec::new(),
        }
    }

    fn visit_entry(&mut self, entry: &WalkEntry<'_>) -> ControlFlow<()> {
        if entry.kind() != EntryKind::File {
            return match (entry.kind(), self.unknown_files) {
                (EntryKind::Directory, UnknownFiles::Learn(_)) => {
                    self.emit(ScanEvent::Directory(entry.path()))
                }
                _ => ControlFlow::Continue(()),
            };
        }
        self.observation.report.files_seen += 1;
        if self.observation.report.files_seen.is_multiple_of(PROGRESS_EVERY) {
            let files = self.observation.report.files_seen;
            self.emit(ScanEvent::Progress(files))?;
        }
        let scan = self.observer.scan_number;
        let Some(tracked) = self.observer.files.get_mut(entry.path()) else {
            return match self.unknown_files {
                // A file that was hidden before may have existed already, and undoing its creation would delete it.
                UnknownFiles::Report if !entry.was_hidden() => self.report_created(entry),
                UnknownFiles::Learn(_) | UnknownFiles::Report => self.learn_file(entry),
            };
        };
        if compare_stamps(Some(&tracked.known), Some(&entry.stamp())) == StampVerdict::Unchanged {
            tracked.last_scan = scan;
            return ControlFlow::Continue(());
        }
        let before = tracked.known;
        self.check_touched(entry, before)
    }

    /// Learns a file as pre-existing.
    fn learn_file(&mut self, entry: &WalkEntry<'_>) -> ControlFlow<()> {
        let git = match self.unknown_files {
            UnknownFiles::Learn(git) => Some(git),
            UnknownFiles::Report => None,
        };
        let ObserverOptions {
            max_kept_file_bytes: keep_file,
            max_kept_total_bytes: keep_total,
            max_read_total_bytes: read_total,
            ..
        } = self.observer.options;
        let size = entry.stamp().size;
        let room = keep_total.saturating_sub(self.observer.kept_bytes);
        // A text that git has takes no room, but only reading it tells. What fits is read in any case.
        let limit = match git {
            Some(git) if !git.is_empty() => {
                keep_file.min(room.max(read_total.saturating_sub(self.observer.read_bytes)))
            }
            _ => keep_file.min(room),
        };
        if size > limit {
            self.report_changed_meanwhile(entry.path(), &entry.stamp());
            self.remember_file(entry.path(), KnownFile::new(entry.stamp(), None, self.now_ns));
            return ControlFlow::Continue(());
        }
        let Some(contents) = self.read_entry(entry, ReadLimits { max_kept: limit, max_hashed: limit }) else {
            return ControlFlow::Continue(());
        };
        let (path, known) = (entry.path(), contents.to_known(self.now_ns));
        // Not the entry's stamp: the file may have changed since it was visited.
        self.report_changed_meanwhile(path, &contents.stamp);
        let Some(bytes) = contents.bytes else {
            self.remember_file(path, known);
            return ControlFlow::Continue(());
        };
        let size = bytes.len() as u64;
        self.observer.read_bytes += size;
        let object = git.and_then(|git| git.find_file(&bytes));
        // Content that is not text may use only half of the budget.
        let is_kept = object.is_none()
            && size <= room
            && (looks_like_text(&bytes) || self.observer.kept_bytes + size <= keep_total / 2);
        // The sink of a first scan stores the entries that it is given.
        if git.is_some() && (is_kept || object.is_some()) {
            self.track_file(path, known);
        } else {
            self.remember_file(path, known);
        }
        match object {
            Some(object) => self.emit(ScanEvent::GitContent { path, known: &known, object }),
            None if is_kept => {
                self.observer.kept_bytes += size;
                self.emit(ScanEvent::Content { path, known: &known, bytes })
            }
            None => ControlFlow::Continue(()),
        }
    }

    /// Reports a file that a first scan learned, if it changed after the scan began.
    fn report_changed_meanwhile(&mut self, path: &str, stamp: &FileStamp) {
        let reported = &mut self.observation.report.changed_meanwhile;
        if matches!(self.unknown_files, UnknownFiles::Learn(_))
            && stamp.may_have_changed_since(self.now_ns)
            && reported.len() < MAX_CHANGED_MEANWHILE
        {
            reported.push(path.to_owned());
        }
    }

    fn report_created(&mut self, entry: &WalkEntry<'_>) -> ControlFlow<()> {
        // Ignore rules or a limit may have hidden it: a file that has not changed since the last scan was not created
        // since. Reporting it as created would let an undo delete it.
        let looked = self.observer.last_scan_ns.unwrap_or(i64::MAX);
        if !entry.stamp().may_have_changed_since(looked) && !self.was_moved(entry) {
            return self.learn_file(entry);
        }
        let Some(contents) = self.read_entry(entry, self.read_limits()) else {
            return ControlFlow::Continue(());
        };
        let after = contents.to_known(self.now_ns);
        self.report_change(entry.path(), ScannedChangeKind::Created, None, after, contents.bytes)
    }

    /// Returns whether a file moved here with its directory from a path where it was known, which leaves no trace in
    /// its own metadata.
    fn was_moved(&mut self, entry: &WalkEntry<'_>) -> bool {
        let (files, changes) = (&self.observer.files, &self.observation.changes);
        let places = self.paths_by_stamp.get_or_insert_with(|| {
            let gone = changes.iter().filter_map(|seen| Some((seen.before?.stamp, seen.path.clone())));
            let known = files.iter().map(|entry| (entry.tracked.known.stamp, entry.path()));
            let mut places: HashMap<FileStamp, Vec<String>> = HashMap::new();
            gone.chain(known).for_each(|(stamp, path)| places.entry(stamp).or_default().push(path));
            places
        });
        let Some(names) = places.get(&entry.stamp()) else { return false };
        let is_gone = |name: &String| {
            let mut is_there = false;
            let looked = walker::visit_path(self.roots, name, &mut |other| {
                is_there = other.stamp() == entry.stamp();
                ControlFlow::Continue(())
            });
            looked.is_ok() && !is_there
        };
        names.iter().any(is_gone)
    }

    fn check_touched(&mut self, entry: &WalkEntry<'_>, before: KnownFile) -> ControlFlow<()> {
        let Some(contents) = self.read_entry(entry, self.read_limits()) else {
            return ControlFlow::Continue(());
        };
        let after = contents.to_known(self.now_ns);
        let what = match compare_contents(&before, &after.stamp, after.hash.as_ref()) {
            observation::ContentChange::None => {
                self.remember_file(entry.path(), after);
                return ControlFlow::Continue(());
            }
            observation::ContentChange::Mode => ScannedChangeKind::Mode,
            observation::ContentChange::Bytes => ScannedChangeKind::Modified,
        };
        self.report_change(entry.path(), what, Some(before), after, contents.bytes)
    }

    fn read_limits(&self) -> ReadLimits {
        ReadLimits {
            max_kept: self.observer.options.max_content_bytes,
            max_hashed: self.observer.options.max_hashed_bytes,
        }
    }

    /// Reads a file. If it is gone by now, the check for deleted files reports it.
    fn read_entry(&mut self, entry: &WalkEntry<'_>, limits: ReadLimits) -> Option<FileContents> {
        self.observation.report.files_read += 1;
        match contents::read_contents(entry, limits) {
            Ok(contents) => Some(contents),
            Err(why) if is_missing_error(&why) => None,
            Err(_) => {
                // Its metadata is still available.
                self.observation.report.files_unreadable += 1;
                Some(FileContents { stamp: entry.stamp(), hash: None, bytes: None, is_stable: true })
            }
        }
    }

    fn remember_file(&mut self, path: &str, known: KnownFile) {
        self.track_file(path, known);
        self.observation.upsert.push((path.to_owned(), known));
    }

    fn track_file(&mut self, path: &str, known: KnownFile) {
        let seen = self.observer.scan_number;
        self.observer.files.insert(path, TrackedFile { known, last_scan: seen });
    }

    fn report_change(
        &mut self,
        path: &str,
        what: ScannedChangeKind,
        before: Option<KnownFile>,
        after: KnownFile,
        bytes: Option<Vec<u8>>,
    ) -> ControlFlow<()> {
        self.remember_file(path, after);
        self.emit_change(
            ScannedChange { path: path.to_owned(), kind: what, before, after: Some(after) },
            bytes,
        )
    }

    fn report_deleted(&mut self, path: String) {
        let before = self.observer.files.remove(&path).map(|tracked| tracked.known);
        if walker::ignore_file_directory(&path).is_some() {
            self.rules.record_deletion(&path);
        }
        self.observation.remove.push(path.clone());
        let stops = self
            .emit_change(ScannedChange { path, kind: ScannedChangeKind::Deleted, before, after: None }, None);
        self.observation.report.stopped |= stops.is_break();
    }

    fn emit_change(&mut self, seen: ScannedChange, bytes: Option<Vec<u8>>) -> ControlFlow<()> {
        let flow = self.emit(ScanEvent::Change(&seen, bytes));
        self.observation.changes.push(seen);
        flow
    }

    fn emit(&mut self, event: ScanEvent<'_>) -> ControlFlow<()> {
        let flow = (self.sink)(event);
        self.observation.report.stopped |= flow.is_break();
        flow
    }

    pub(super) fn finish(mut self) -> Observation {
        let report = &self.observation.report;
        let is_whole = !report.stopped && !report.walk.truncated;
        let (was, rules) = self.rules.into_parts();
        self.observer.last_rules = was;
        self.observation.end = is_whole.then_some(ScanEnd { started_ns: self.now_ns, rules });
        self.observation
    }
}

fn is_missing_error(why: &io::Error) -> bool {
    // A link or a pipe at the file's path is not the file.
    why.kind() == io::ErrorKind::InvalidInput
        || matches!(Errno::from_io_error(why), Some(Errno::NOENT | Errno::NOTDIR | Errno::LOOP))
}
