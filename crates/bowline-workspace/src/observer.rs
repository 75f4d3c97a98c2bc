//! The observer: detects files that changed on disk without passing through the engine.
//!
//! The first scan learns the existing files: the metadata of every file, and the bytes of small files up to a budget,
//! so that a later change can be undone. Later scans compare metadata, and read only the files for which it is
//! inconclusive ([`bowline_history::observation`]). Bytes are handed on one file at a time and never kept here.
//!
//! Ignore rules keep files from becoming known, as in git. A known file stays known when a rule begins to hide it;
//! otherwise a command could hide its changes with one line in `.gitignore`. For the same reason a new file is judged
//! by the rules of the last scan: files that they did not hide are reported, and files that they hid are learned. Rules
//! that the engine itself writes apply at once. A file that was only hidden and has not changed since the last scan is
//! learned, not recorded as created, because undoing that would delete it. The exception is a known file that moved
//! with its directory, since its stamp does not show the move. A file counts as deleted only if its path is gone, not
//! because a walk missed it.

use std::convert::Infallible;
use std::ops::ControlFlow;

use bowline_history::observation::KnownFile;

use bowline_policy::paths::path_below;

use crate::git_objects::GitObjects;
use crate::journal::GitObjectId;
use crate::roots::Roots;
use crate::walker::{
    FileSystemScope, IgnoreFileTexts, IgnoreSnapshot, MAX_ENTRIES, WalkReport, ignore_file_directory,
};

mod contents;
pub mod file_watcher;
mod known_files;
mod scan;

use known_files::{KnownFiles, KnownFilesBuilder, TrackedFile};
use scan::{Scan, UnknownFiles};

/// The limits of an observer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ObserverOptions {
    /// The maximum size of a file whose bytes the first scan hands on.
    pub max_kept_file_bytes: u64,
    /// The maximum number of bytes that the first scan hands on in total.
    pub max_kept_total_bytes: u64,
    /// The maximum number of bytes that the first scan reads in total to find out whether git has them.
    pub max_read_total_bytes: u64,
    /// The maximum size of a changed file whose bytes are handed on; of a larger one only the hash is.
    pub max_content_bytes: u64,
    /// The maximum size of a changed file that is read; a larger one is known by its metadata alone.
    pub max_hashed_bytes: u64,
    /// The maximum number of files and directories in a scan.
    pub max_entries: u64,
    /// The file systems that a scan enters.
    pub file_systems: FileSystemScope,
}

impl Default for ObserverOptions {
    fn default() -> Self {
        Self {
            max_kept_file_bytes: 1 << 20,
            max_kept_total_bytes: 64 << 20,
            max_read_total_bytes: 256 << 20,
            max_content_bytes: 8 << 20,
            max_hashed_bytes: 256 << 20,
            max_entries: MAX_ENTRIES,
            file_systems: FileSystemScope::SameAsRoot,
        }
    }
}

/// The kind of a change.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ScannedChangeKind {
    /// The file is new.
    Created,
    /// Its bytes changed, or may have changed.
    Modified,
    /// Only its mode changed.
    Mode,
    /// The file is gone.
    Deleted,
}

/// A detected change. A known hash does not imply that the bytes are stored.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ScannedChange {
    /// The file.
    pub path: String,
    /// The kind of the change.
    pub kind: ScannedChangeKind,
    /// What was known of the file before.
    pub before: Option<KnownFile>,
    /// What is known of the file now.
    pub after: Option<KnownFile>,
}

/// The events of a scan in progress.
#[derive(Debug)]
pub enum ScanEvent<'e> {
    /// How many files were scanned so far.
    Progress(u64),
    /// A directory found by the first scan, before it is read.
    Directory(&'e str),
    /// The bytes of a file found by the first scan, in case it changes.
    Content {
        /// The file.
        path: &'e str,
        /// The file's metadata and hash.
        known: &'e KnownFile,
        /// Its bytes.
        bytes: Vec<u8>,
    },
    /// The bytes of a file found by the first scan are in a git repository.
    GitContent {
        /// The file.
        path: &'e str,
        /// The file's metadata and hash.
        known: &'e KnownFile,
        /// The object with its bytes.
        object: GitObjectId,
    },
    /// A change, with the file's current bytes unless it is too large, unreadable or gone.
    Change(&'e ScannedChange, Option<Vec<u8>>),
}

/// Receives the events of a scan. Returning `Break` stops the scan; events so far count as delivered.
pub type ScanSink<'s> = dyn FnMut(ScanEvent<'_>) -> ControlFlow<()> + 's;

/// How many files lie between two progress events.
pub const PROGRESS_EVERY: u64 = 1024;

/// How many files that changed during a scan are reported.
pub const MAX_CHANGED_MEANWHILE: usize = 100;

/// Statistics of a scan.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ScanReport {
    /// Statistics of the walk.
    pub walk: WalkReport,
    /// How many files were scanned.
    pub files_seen: u64,
    /// How many of them had to be read.
    pub files_read: u64,
    /// How many could not be inspected or read, and are assumed to be unchanged.
    pub files_unreadable: u64,
    /// Files that a first scan learned and that changed after it began; at most [`MAX_CHANGED_MEANWHILE`].
    pub changed_meanwhile: Vec<String>,
    /// Whether the scan was stopped early. Its findings are valid, but it did not look for deleted files.
    pub stopped: bool,
}

/// The result of a scan.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Observation {
    /// The changes, in the order in which they were handed on.
    pub changes: Vec<ScannedChange>,
    /// New or updated entries, to be stored.
    pub upsert: Vec<(String, KnownFile)>,
    /// Entries that are no longer known, to be removed from the store.
    pub remove: Vec<String>,
    /// Statistics of the scan.
    pub report: ScanReport,
    /// Set if the scan was complete: the argument for [`Observer::conclude_scan`] once the changes are recorded.
    pub end: Option<ScanEnd>,
}

/// The end of a complete scan.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ScanEnd {
    started_ns: i64,
    // The ignore files that the scan encountered.
    rules: IgnoreFileTexts,
}

/// The known state of the files below the roots.
#[derive(Debug, Default)]
pub struct Observer {
    options: ObserverOptions,
    // At most `max_entries` come from scans; the engine itself wrote the rest.
    files: KnownFiles,
    // The number of the current scan, or of the last one.
    scan_number: u64,
    // How many bytes the first scan handed on, and how many it read.
    kept_bytes: u64,
    read_bytes: u64,
    // When the last concluded scan began. A file that has not changed since existed then, whether or not it was seen.
    last_scan_ns: Option<i64>,
    // The ignore rules at that time. `None` until a scan is concluded.
    last_rules: Option<IgnoreSnapshot>,
}

impl Observer {
    /// Returns an observer that knows nothing yet.
    #[must_use]
    pub fn new(options: ObserverOptions) -> Self {
        Self { options, ..Self::default() }
    }

    /// Returns an observer with the stored entries.
    #[must_use]
    pub fn restore(options: ObserverOptions, rows: impl IntoIterator<Item = (String, KnownFile)>) -> Self {
        let Ok(observer) = Self::restore_with::<Infallible>(options, |restore| {
            rows.into_iter().for_each(|(path, known)| restore(&path, known));
            Ok(())
        });
        observer
    }

    /// Returns an observer with the entries that `read` passes on. In the order of their paths they take the least
    /// memory.
    ///
    /// # Errors
    /// Returns the error of `read`.
    pub fn restore_with<E>(
        options: ObserverOptions,
        read: impl FnOnce(&mut dyn FnMut(&str, KnownFile)) -> Result<(), E>,
    ) -> Result<Self, E> {
        let mut files = KnownFilesBuilder::default();
        read(&mut |path, known| files.push(path, TrackedFile { known, last_scan: 0 }))?;
        Ok(Self { files: files.finish(), ..Self::new(options) })
    }

    /// Returns an observer that replaces another, with the stored entries: scans continue where the other's ended.
    #[must_use]
    pub fn restore_after(other: &Self, rows: impl IntoIterator<Item = (String, KnownFile)>) -> Self {
        Self {
            last_scan_ns: other.last_scan_ns,
            last_rules: other.last_rules.clone(),
            ..Self::restore(other.options, rows)
        }
    }

    /// Returns what is known of a file.
    #[must_use]
    pub fn known(&self, path: &str) -> Option<&KnownFile> {
        self.files.get(path).map(|tracked| &tracked.known)
    }

    /// Returns all entries.
    pub fn rows(&self) -> impl Iterator<Item = (String, &KnownFile)> {
        self.files.iter().map(|entry| (entry.path(), &entry.tracked.known))
    }

    /// Records the engine's own write, so that no scan reports it as a change.
    pub fn record_own_write(&mut self, path: &str, known: KnownFile) {
        self.files.insert(path, TrackedFile { known, last_scan: self.scan_number });
    }

    /// Records the engine's own deletion, so that no scan reports it as a change.
    pub fn record_own_deletion(&mut self, path: &str) {
        self.files.remove(path);
    }

    /// Records the engine's own write to an ignore file, whose rules then apply to everything done afterwards. Other
    /// files are not affected.
    pub fn record_own_ignore_file(&mut self, path: &str, text: Option<&[u8]>) {
        if let (Some(_), Some(rules)) = (ignore_file_directory(path), &mut self.last_rules) {
            rules.record_text(path.to_owned(), text.map(Into::into));
        }
    }

    /// Learns the existing files. Unknown files are not changes; known ones are compared, so that a stopped first scan
    /// can be repeated. `now_ns` is a time before the scan, in nanoseconds since 1970. The scan is concluded. The files
    /// handed on with [`ScanEvent::Content`] and [`ScanEvent::GitContent`] are not among the entries to be stored.
    pub(crate) fn first_scan(
        &mut self,
        roots: &Roots,
        git: &GitObjects,
        now_ns: i64,
        sink: &mut ScanSink<'_>,
    ) -> Observation {
        self.last_rules = None;
        let mut found = self.scan_all(roots, now_ns, UnknownFiles::Learn(git), sink);
        self.conclude_scan(found.end.take());
        found
    }

    /// Makes a scan the last one: from now on, a file that has not changed since the scan began counts as pre-existing.
    ///
    /// A scan that is not concluded leaves the last one as it was, so that the next scan still finds every file created
    /// since. Conclude a scan only if it covered everything that may have changed since the last one, and its changes
    /// were recorded.
    pub fn conclude_scan(&mut self, end: Option<ScanEnd>) {
        let Some(ScanEnd { started_ns: began_ns, rules }) = end else { return };
        self.last_scan_ns = Some(began_ns);
        let remembered = self.last_rules.get_or_insert_default();
        rules.into_iter().for_each(|(path, text)| remembered.record_text(path, text));
    }

    /// Finds what changed below the roots. `now_ns` is a time before the scan, in nanoseconds since 1970; if only some
    /// paths are scanned, a time before these were queried.
    pub fn scan(&mut self, roots: &Roots, now_ns: i64, sink: &mut ScanSink<'_>) -> Observation {
        self.scan_all(roots, now_ns, UnknownFiles::Report, sink)
    }

    /// Finds what changed at and below some canonical paths: files, directories, or deleted ones. Paths that are
    /// outside of the roots or hidden are skipped. For an ignore file, everything that it governs is scanned.
    pub fn scan_paths(
        &mut self,
        roots: &Roots,
        paths: &[String],
        now_ns: i64,
        sink: &mut ScanSink<'_>,
    ) -> Observation {
        let mut scan = Scan::new(self, roots, now_ns, UnknownFiles::Report, sink);
        for path in outermost_paths(paths.iter().map(String::as_str)) {
            if scan.is_stopped() {
                break;
            }
            scan.walk_from(path);
            scan.check_unvisited(Some(path));
        }
        scan.finish()
    }

    fn scan_all(
        &mut self,
        roots: &Roots,
        now_ns: i64,
        unknown: UnknownFiles<'_>,
        sink: &mut ScanSink<'_>,
    ) -> Observation {
        let mut scan = Scan::new(self, roots, now_ns, unknown, sink);
        scan.walk();
        scan.check_unvisited(None);
        scan.finish()
    }
}

/// Returns the paths to scan, without those below others.
pub(crate) fn outermost_paths<'p>(paths: impl Iterator<Item = &'p str>) -> Vec<&'p str> {
    let mut scopes: Vec<&str> = paths.map(scan_scope).collect();
    // A path sorts before everything below it, with nothing else in between.
    scopes.sort_unstable_by(|one, other| one.split('/').cmp(other.split('/')));
    let mut last: Option<&str> = None;
    scopes.retain(|path| {
        let covered = last.is_some_and(|last| path_below(path, last).is_some());
        if !covered {
            last = Some(path);
        }
        !covered
    });
    scopes
}

/// Returns the scope of a path: its directory, if it is an ignore file.
fn scan_scope(path: &str) -> &str {
    ignore_file_directory(path).filter(|directory| !directory.is_empty()).unwrap_or(path)
}

#[cfg(test)]
mod tests;
