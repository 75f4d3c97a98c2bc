//! One scan: every file that a walk comes by is compared with what is known, and every known one that it does not.

use std::collections::HashMap;
use std::io;
use std::ops::{Bound, ControlFlow};

use bowline_state::observation::{self, Known, Stamp, Verdict, compare, look, seems_text};
use rustix::io::Errno;

use super::contents::{self, Contents, Limits};
use super::{
    Event, MAX_CHANGED_MEANWHILE, Observation, Observer, ObserverOptions, PROGRESS_EVERY, ScanEnd, Seen,
    Sink, Tracked, What,
};
use crate::roots::Roots;
use crate::walker::{self, Entry, Kind, RulesCache, Start, WalkOptions};

/// What a file is that nobody knew.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Unknown {
    /// It was always there.
    Learn,
    /// It was created.
    Report,
}

/// A scan that is going on.
pub(super) struct Scan<'s, 'v> {
    observer: &'s mut Observer,
    roots: &'s Roots,
    now_ns: i64,
    unknown: Unknown,
    sink: &'s mut Sink<'v>,
    rules: RulesCache,
    found: Observation,
    // The files that were known before, by their metadata. None until somebody asks.
    places: Option<HashMap<Stamp, Vec<String>>>,
}

impl<'s, 'v> Scan<'s, 'v> {
    pub(super) fn new(
        observer: &'s mut Observer,
        roots: &'s Roots,
        now_ns: i64,
        unknown: Unknown,
        sink: &'s mut Sink<'v>,
    ) -> Self {
        observer.scan += 1;
        let rules = RulesCache::after(observer.rules.take());
        Self { observer, roots, now_ns, unknown, sink, rules, found: Observation::default(), places: None }
    }

    fn options(&self) -> WalkOptions {
        let ObserverOptions { max_entries, file_systems, .. } = self.observer.options;
        let max_entries = max_entries.saturating_sub(self.found.report.walk.entries);
        WalkOptions { max_entries, file_systems, ..WalkOptions::default() }
    }

    pub(super) fn over(&self) -> bool {
        self.found.report.stopped
    }

    pub(super) fn walk(&mut self) {
        let (roots, options) = (self.roots, self.options());
        let mut rules = std::mem::take(&mut self.rules);
        let report = walker::walk_all(roots, &options, &mut rules, &mut |entry| self.entry(entry));
        self.rules = rules;
        self.found.report.walk = report;
    }

    pub(super) fn walk_from(&mut self, path: &str) {
        let (roots, options) = (self.roots, self.options());
        let mut rules = std::mem::take(&mut self.rules);
        let mut visit = |entry: &Entry<'_>| self.entry(entry);
        let (_, report) = walker::walk_from(roots, path, Start::Found, &options, &mut rules, &mut visit);
        self.rules = rules;
        self.found.report.walk.add(report);
    }

    /// Looks at every known file that no walk came by: hidden by now, out of the walk's bounds, or gone.
    pub(super) fn look_for_unseen(&mut self, scope: Option<&str>) {
        for path in self.unseen(scope) {
            if self.over() {
                return;
            }
            let roots = self.roots;
            let mut there = false;
            let looked = walker::visit_one(roots, &path, &mut |entry| {
                there = entry.kind() == Kind::File;
                self.entry(entry)
            });
            match looked {
                Ok(()) if there => {}
                Ok(()) => self.deleted(path),
                Err(_) => self.found.report.unclear += 1,
            }
        }
    }

    fn unseen(&self, scope: Option<&str>) -> Vec<String> {
        let files = &self.observer.files;
        let unseen = |tracked: &Tracked| tracked.seen != self.observer.scan;
        let Some(scope) = scope else {
            let ours = |path: &str| walker::root_of(self.roots, path).is_some();
            return files
                .iter()
                .filter(|(path, file)| unseen(file) && ours(path))
                .map(|(path, _)| path.clone())
                .collect();
        };
        if walker::root_of(self.roots, scope).is_none() {
            return Vec::new();
        }
        let prefix = format!("{}/", scope.trim_end_matches('/'));
        let inside = files
            .range::<str, _>((Bound::Included(prefix.as_str()), Bound::Unbounded))
            .take_while(|(path, _)| path.starts_with(&prefix));
        let itself = files.get_key_value(scope);
        itself
            .into_iter()
            .chain(inside)
            .filter(|(_, file)| unseen(file))
            .map(|(path, _)| path.clone())
            .collect()
    }

    fn entry(&mut self, entry: &Entry<'_>) -> ControlFlow<()> {
        if entry.kind() != Kind::File {
            return ControlFlow::Continue(());
        }
        self.found.report.files += 1;
        if self.found.report.files.is_multiple_of(PROGRESS_EVERY) {
            let files = self.found.report.files;
            self.hand_on(Event::Progress(files))?;
        }
        let scan = self.observer.scan;
        let Some(tracked) = self.observer.files.get_mut(entry.path()) else {
            return match self.unknown {
                // What was hidden before may have been there: to undo that it was created would be to delete it.
                Unknown::Report if !entry.was_hidden() => self.created(entry),
                Unknown::Learn | Unknown::Report => self.learn(entry),
            };
        };
        if look(Some(&tracked.known), Some(&entry.stamp())) == Verdict::Same {
            tracked.seen = scan;
            return ControlFlow::Continue(());
        }
        let before = tracked.known;
        self.touched(entry, before)
    }

    /// Takes a file for what was always there.
    fn learn(&mut self, entry: &Entry<'_>) -> ControlFlow<()> {
        let report = &mut self.found.report;
        if self.unknown == Unknown::Learn
            && entry.stamp().may_have_changed_since(self.now_ns)
            && report.changed_meanwhile.len() < MAX_CHANGED_MEANWHILE
        {
            report.changed_meanwhile.push(entry.path().to_owned());
        }
        let ObserverOptions { keep_file, keep_total, .. } = self.observer.options;
        let size = entry.stamp().size;
        let room = keep_total.saturating_sub(self.observer.kept);
        if size > keep_file.min(room) {
            self.know(entry.path(), Known::new(entry.stamp(), None, self.now_ns));
            return ControlFlow::Continue(());
        }
        let limit = keep_file.min(room);
        let Some(contents) = self.read(entry, Limits { bytes: limit, hashed: limit }) else {
            return ControlFlow::Continue(());
        };
        let known = contents.known(self.now_ns);
        self.know(entry.path(), known);
        match contents.bytes {
            // What is no text leaves half of the room to what is.
            Some(bytes) if seems_text(&bytes) || self.observer.kept + size <= keep_total / 2 => {
                self.observer.kept += bytes.len() as u64;
                self.hand_on(Event::Content { path: entry.path(), known: &known, bytes })
            }
            _ => ControlFlow::Continue(()),
        }
    }

    fn created(&mut self, entry: &Entry<'_>) -> ControlFlow<()> {
        // Rules may have hidden it, or a bound: a file that has not changed since the last look was not created since. To
        // take it for new would be to delete it one day, by undoing that.
        let looked = self.observer.looked.unwrap_or(i64::MAX);
        if !entry.stamp().may_have_changed_since(looked) && !self.was_moved(entry) {
            return self.learn(entry);
        }
        let Some(contents) = self.read(entry, self.limits()) else { return ControlFlow::Continue(()) };
        let after = contents.known(self.now_ns);
        self.change(entry.path(), What::Created, None, after, contents.bytes)
    }

    /// Says whether a file came here with its directory, from a place where it was known: that leaves no trace in its
    /// own metadata.
    fn was_moved(&mut self, entry: &Entry<'_>) -> bool {
        let (files, changes) = (&self.observer.files, &self.found.changes);
        let places = self.places.get_or_insert_with(|| {
            let gone = changes.iter().filter_map(|seen| Some((seen.before?.stamp, seen.path.clone())));
            let known = files.iter().map(|(path, tracked)| (tracked.known.stamp, path.clone()));
            let mut places: HashMap<Stamp, Vec<String>> = HashMap::new();
            gone.chain(known).for_each(|(stamp, path)| places.entry(stamp).or_default().push(path));
            places
        });
        let Some(names) = places.get(&entry.stamp()) else { return false };
        let is_gone = |name: &String| {
            let mut is_there = false;
            let looked = walker::visit_one(self.roots, name, &mut |other| {
                is_there = other.stamp() == entry.stamp();
                ControlFlow::Continue(())
            });
            looked.is_ok() && !is_there
        };
        names.iter().any(is_gone)
    }

    fn touched(&mut self, entry: &Entry<'_>, before: Known) -> ControlFlow<()> {
        let Some(contents) = self.read(entry, self.limits()) else { return ControlFlow::Continue(()) };
        let after = contents.known(self.now_ns);
        let what = match compare(&before, &after.stamp, after.hash.as_ref()) {
            observation::Change::None => {
                self.know(entry.path(), after);
                return ControlFlow::Continue(());
            }
            observation::Change::Mode => What::Mode,
            observation::Change::Bytes => What::Modified,
        };
        self.change(entry.path(), what, Some(before), after, contents.bytes)
    }

    fn limits(&self) -> Limits {
        Limits { bytes: self.observer.options.max_bytes, hashed: self.observer.options.max_hashed }
    }

    /// Reads a file. One that is gone by now is left to the look for what is gone.
    fn read(&mut self, entry: &Entry<'_>, limits: Limits) -> Option<Contents> {
        self.found.report.read += 1;
        match contents::read(entry, limits) {
            Ok(contents) => Some(contents),
            Err(why) if gone(&why) => None,
            Err(_) => {
                // Its metadata can be seen all the same.
                self.found.report.unclear += 1;
                Some(Contents { stamp: entry.stamp(), hash: None, bytes: None, steady: true })
            }
        }
    }

    fn know(&mut self, path: &str, known: Known) {
        let seen = self.observer.scan;
        self.observer.files.insert(path.to_owned(), Tracked { known, seen });
        self.found.upsert.push((path.to_owned(), known));
    }

    fn change(
        &mut self,
        path: &str,
        what: What,
        before: Option<Known>,
        after: Known,
        bytes: Option<Vec<u8>>,
    ) -> ControlFlow<()> {
        self.know(path, after);
        self.report(Seen { path: path.to_owned(), what, before, after: Some(after) }, bytes)
    }

    fn deleted(&mut self, path: String) {
        let before = self.observer.files.remove(&path).map(|tracked| tracked.known);
        if walker::directory_ruled(&path).is_some() {
            self.rules.is_gone(&path);
        }
        self.found.remove.push(path.clone());
        let stops = self.report(Seen { path, what: What::Deleted, before, after: None }, None);
        self.found.report.stopped |= stops.is_break();
    }

    fn report(&mut self, seen: Seen, bytes: Option<Vec<u8>>) -> ControlFlow<()> {
        let flow = self.hand_on(Event::Change(&seen, bytes));
        self.found.changes.push(seen);
        flow
    }

    fn hand_on(&mut self, event: Event<'_>) -> ControlFlow<()> {
        let flow = (self.sink)(event);
        self.found.report.stopped |= flow.is_break();
        flow
    }

    pub(super) fn finish(mut self) -> Observation {
        let report = &self.found.report;
        let is_whole = !report.stopped && !report.walk.truncated;
        let (was, rules) = self.rules.into_parts();
        self.observer.rules = was;
        self.found.end = is_whole.then_some(ScanEnd { began_ns: self.now_ns, rules });
        self.found.renamed = renamed(&self.found.changes);
        self.found
    }
}

fn gone(why: &io::Error) -> bool {
    // A link or a pipe in the place of the file is not the file.
    why.kind() == io::ErrorKind::InvalidInput
        || matches!(Errno::from_io_error(why), Some(Errno::NOENT | Errno::NOTDIR | Errno::LOOP))
}

/// Returns the deletions and creations that are one file: the same inode, and nothing that speaks against it.
fn renamed(changes: &[Seen]) -> Vec<(String, String)> {
    let place = |known: &Known| (known.stamp.device, known.stamp.inode);
    let mut gone: HashMap<_, &Seen> = HashMap::new();
    for seen in changes {
        if let (What::Deleted, Some(before)) = (seen.what, &seen.before) {
            gone.insert(place(before), seen);
        }
    }
    let same = |before: &Known, after: &Known| match (before.hash, after.hash) {
        (Some(before), Some(after)) => before == after,
        _ => (before.stamp.size, before.stamp.mtime_ns) == (after.stamp.size, after.stamp.mtime_ns),
    };
    let mut pairs = Vec::new();
    for seen in changes {
        if let (What::Created, Some(after)) = (seen.what, &seen.after)
            && let Some(from) = gone.get(&place(after))
            && from.before.as_ref().is_some_and(|before| same(before, after))
        {
            gone.remove(&place(after)).into_iter().for_each(|from| {
                pairs.push((from.path.clone(), seen.path.clone()));
            });
        }
    }
    pairs
}
