//! Finds files that changed on disk without passing through the engine.
//!
//! The first scan learns what is there: the metadata of every file, and the bytes of small files up to a budget, so
//! that a later change can be undone. A later scan looks at metadata only, and reads what they leave open
//! ([`bowline_state::observation`]). Bytes are handed on one file at a time and never kept here.
//!
//! Ignore rules keep files from becoming known, as in git: one that is known stays so when a rule begins to hide it, or
//! a command could hide its changes by one line in `.gitignore`. For the same reason a new file is judged by the rules as
//! they were at the last look: what they did not hide is found, and what they hid is learnt. A file is gone only if a look at its very path says so,
//! not because a walk did not come by.

use std::collections::BTreeMap;
use std::ops::ControlFlow;

use bowline_state::observation::Known;

use crate::roots::Roots;
use crate::walker::{FileSystems, MAX_ENTRIES, Remembered, RulesTexts, WalkReport, below, directory_ruled};

mod contents;
mod scan;

use scan::{Scan, Unknown};

/// How much an observer reads and hands on.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ObserverOptions {
    /// The first scan hands on files up to this many bytes.
    pub keep_file: u64,
    /// The first scan hands on this many bytes in all.
    pub keep_total: u64,
    /// The bytes of a file that changed are handed on up to this many; of a larger one only its hash.
    pub max_bytes: u64,
    /// A file that changed is read up to this many bytes; a larger one is known by its metadata alone.
    pub max_hashed: u64,
    /// How many files and directories a scan looks at.
    pub max_entries: u64,
    /// Which file systems a scan enters.
    pub file_systems: FileSystems,
}

impl Default for ObserverOptions {
    fn default() -> Self {
        Self {
            keep_file: 1 << 20,
            keep_total: 64 << 20,
            max_bytes: 8 << 20,
            max_hashed: 256 << 20,
            max_entries: MAX_ENTRIES,
            file_systems: FileSystems::Same,
        }
    }
}

/// What happened to a file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum What {
    /// It was not there.
    Created,
    /// Its bytes changed; or nobody can say that they did not.
    Modified,
    /// Only its mode changed.
    Mode,
    /// It is gone.
    Deleted,
}

/// A change that was found. That a hash is known does not mean that anybody kept the bytes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Seen {
    /// The file.
    pub path: String,
    /// What happened.
    pub what: What,
    /// What was known of it before.
    pub before: Option<Known>,
    /// What is known of it now.
    pub after: Option<Known>,
}

/// What a scan hands on as it goes.
#[derive(Debug)]
pub enum Event<'e> {
    /// So many files were looked at.
    Progress(u64),
    /// The bytes of a file that the first scan found, in case it changes.
    Content {
        /// The file.
        path: &'e str,
        /// What is known of it, its hash among it.
        known: &'e Known,
        /// Its bytes.
        bytes: Vec<u8>,
    },
    /// A change, and the file's bytes now unless it is too large, unreadable or gone.
    Change(&'e Seen, Option<Vec<u8>>),
}

/// Receives what a scan hands on. It stops the scan by breaking; what was handed on counts as delivered.
pub type Sink<'s> = dyn FnMut(Event<'_>) -> ControlFlow<()> + 's;

/// After how many files a scan says how far it is.
pub const PROGRESS_EVERY: u64 = 1024;

/// So many files that changed while a scan went on are named.
pub const MAX_CHANGED_MEANWHILE: usize = 100;

/// What a scan did.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ScanReport {
    /// What the walk did and left out.
    pub walk: WalkReport,
    /// How many files were looked at.
    pub files: u64,
    /// How many of them had to be read.
    pub read: u64,
    /// How many could not be looked at or read, and are taken to be as they were.
    pub unclear: u64,
    /// Files that a first scan learnt and that changed after it began; at most [`MAX_CHANGED_MEANWHILE`].
    pub changed_meanwhile: Vec<String>,
    /// Whether the scan was stopped before its end. What it found is right; it did not look for what is gone.
    pub stopped: bool,
}

/// What a scan found.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Observation {
    /// The changes, in the order in which they were handed on.
    pub changes: Vec<Seen>,
    /// Pairs of a deletion and a creation that are one file which got another name: from, to.
    pub renamed: Vec<(String, String)>,
    /// What is known newly or anew, to be stored.
    pub upsert: Vec<(String, Known)>,
    /// What is not known any more, to be removed from the store.
    pub remove: Vec<String>,
    /// What the scan did.
    pub report: ScanReport,
    /// Set if the scan went to its end: what [`Observer::conclude`] takes once the changes are recorded.
    pub end: Option<ScanEnd>,
}

/// The end of a scan that saw everything it was to see.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ScanEnd {
    began_ns: i64,
    // The files of ignore rules that the scan came by.
    rules: RulesTexts,
}

/// What is known of the files below the roots.
#[derive(Debug, Default)]
pub struct Observer {
    options: ObserverOptions,
    // At most `max_entries` come from scans; the rest the engine wrote itself.
    files: BTreeMap<String, Tracked>,
    // The number of the scan that is going on, or was the last.
    scan: u64,
    // How many bytes the first scan handed on.
    kept: u64,
    // When the last look began that was concluded. What has not changed since then was there already, seen or not.
    looked: Option<i64>,
    // The rules as they were then. None until a look was concluded.
    rules: Option<Remembered>,
}

#[derive(Debug)]
struct Tracked {
    known: Known,
    // The scan that saw it last.
    seen: u64,
}

impl Observer {
    /// Returns an observer that knows nothing yet.
    #[must_use]
    pub fn new(options: ObserverOptions) -> Self {
        Self { options, ..Self::default() }
    }

    /// Returns an observer that knows what was stored.
    #[must_use]
    pub fn restore(options: ObserverOptions, rows: impl IntoIterator<Item = (String, Known)>) -> Self {
        let tracked = |(path, known)| (path, Tracked { known, seen: 0 });
        Self { files: rows.into_iter().map(tracked).collect(), ..Self::new(options) }
    }

    /// Returns an observer that takes the place of another, with what was stored: looks go on where the other's ended.
    #[must_use]
    pub fn restore_after(other: &Self, rows: impl IntoIterator<Item = (String, Known)>) -> Self {
        Self { looked: other.looked, rules: other.rules.clone(), ..Self::restore(other.options, rows) }
    }

    /// Returns what is known of a file.
    #[must_use]
    pub fn known(&self, path: &str) -> Option<&Known> {
        self.files.get(path).map(|tracked| &tracked.known)
    }

    /// Returns all that is known, by path.
    pub fn rows(&self) -> impl Iterator<Item = (&str, &Known)> {
        self.files.iter().map(|(path, tracked)| (path.as_str(), &tracked.known))
    }

    /// Takes note of what the engine wrote itself, so that it is not found as a change.
    pub fn expect(&mut self, path: impl Into<String>, known: Known) {
        self.files.insert(path.into(), Tracked { known, seen: self.scan });
    }

    /// Takes note that the engine removed a file, so that its end is not found as a change.
    pub fn forget(&mut self, path: &str) {
        self.files.remove(path);
    }

    /// Takes note of what the engine itself made of a file of ignore rules: it was there before whatever is done next. Of
    /// other files nothing is noted.
    pub fn expect_rules(&mut self, path: &str, text: Option<&[u8]>) {
        if let (Some(_), Some(rules)) = (directory_ruled(path), &mut self.rules) {
            rules.learn(path.to_owned(), text.map(Into::into));
        }
    }

    /// Learns what is there. Files that are not known are no changes; those that are known are compared, so a first
    /// scan that was stopped can be begun again. `now_ns` is a moment before the scan, in nanoseconds since 1970. The
    /// scan is concluded.
    pub fn first_scan(&mut self, roots: &Roots, now_ns: i64, sink: &mut Sink<'_>) -> Observation {
        self.rules = None;
        let mut found = self.whole(roots, now_ns, Unknown::Learn, sink);
        self.conclude(found.end.take());
        found
    }

    /// Makes a scan the last look: from now on, a file that has not changed since the scan began was there before.
    ///
    /// A scan that is not concluded leaves the last look as it was, so that the next scan still finds every file that
    /// was created since. Conclude a scan only if it covered everything that may have changed since the last look, and
    /// its changes were recorded.
    pub fn conclude(&mut self, end: Option<ScanEnd>) {
        let Some(ScanEnd { began_ns, rules }) = end else { return };
        self.looked = Some(began_ns);
        let remembered = self.rules.get_or_insert_default();
        rules.into_iter().for_each(|(path, text)| remembered.learn(path, text));
    }

    /// Finds what changed below the roots. `now_ns` is a moment before the scan, in nanoseconds since 1970; where only
    /// paths are scanned, a moment before those were asked for.
    pub fn scan(&mut self, roots: &Roots, now_ns: i64, sink: &mut Sink<'_>) -> Observation {
        self.whole(roots, now_ns, Unknown::Report, sink)
    }

    /// Finds what changed at and below some paths without links: files, directories, or nothing any more. What is
    /// outside of the roots or hidden is passed over. Where a file of ignore rules is among them, all that it rules is
    /// looked at.
    pub fn scan_paths(
        &mut self,
        roots: &Roots,
        paths: &[String],
        now_ns: i64,
        sink: &mut Sink<'_>,
    ) -> Observation {
        let mut scan = Scan::new(self, roots, now_ns, Unknown::Report, sink);
        for path in outermost(paths.iter().map(String::as_str)) {
            if scan.over() {
                break;
            }
            scan.walk_from(path);
            scan.look_for_unseen(Some(path));
        }
        scan.finish()
    }

    fn whole(&mut self, roots: &Roots, now_ns: i64, unknown: Unknown, sink: &mut Sink<'_>) -> Observation {
        let mut scan = Scan::new(self, roots, now_ns, unknown, sink);
        scan.walk();
        scan.look_for_unseen(None);
        scan.finish()
    }
}

/// Returns the paths that are to be looked at, without those that lie below others.
pub(crate) fn outermost<'p>(paths: impl Iterator<Item = &'p str>) -> Vec<&'p str> {
    let mut scopes: Vec<&str> = paths.map(ruled).collect();
    // A path comes before what is below it, and nothing but what is below it comes in between.
    scopes.sort_unstable_by(|one, other| one.split('/').cmp(other.split('/')));
    let mut last: Option<&str> = None;
    scopes.retain(|path| {
        let covered = last.is_some_and(|last| below(path, last).is_some());
        if !covered {
            last = Some(path);
        }
        !covered
    });
    scopes
}

/// Returns what a path stands for: the directory, if it is a file of rules for one.
fn ruled(path: &str) -> &str {
    directory_ruled(path).filter(|directory| !directory.is_empty()).unwrap_or(path)
}

#[cfg(test)]
mod tests;
