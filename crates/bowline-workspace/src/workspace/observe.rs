//! Detecting changes that did not pass through the engine, and recording them.
//!
//! - A scan counts as the last one only once its changes are recorded. Its time is the moment before the watcher was
//!   queried, by the clock that stamps files. A scan of a single file never counts as the last.
//! - Files of other programs ([`bowline_history::foreign_files`]) are tracked, but their observed changes are not
//!   recorded.
//! - Secret files are never copied by the first scan or by the scan after a command.
//! - If a session writes text that a known, not yet scanned file already holds, that change is attributed to the
//!   session: some agents write to the disk and then ask the client to write the same.
//! - A text that git has in a pack is not stored by the first scan ([`crate::git_objects`]), but by the scan that finds it
//!   changed, from the packs held open since the first one.
//! - A write that an editor is about to make is expected, so that no scan before or after it records it twice.

use std::collections::HashMap;
use std::ops::ControlFlow;

use bowline_history::changes::{ChangeId, ChangeOrigin, ChangeSource, FileState};
use bowline_history::foreign_files::ForeignFiles;
use bowline_history::observation::{FileStamp, KnownFile};
use bowline_policy::paths::Access;
use bowline_text::hash::ContentHash;
use bowline_text::time::Timestamp;

use super::apply::ApplyError;
use super::merged_writes::{MergedWrites, restore_merged};
use super::{Workspace, WorkspaceWriter};
use crate::disk::replace::is_temp_name;
use crate::error::FilesError;
use crate::git_objects::GitObjects;
use crate::journal::{
    BaselineRow, ChangeDraft, ChangeFilter, DraftContent, DraftSide, Journal, JournalError,
};
use crate::observer::file_watcher::{DirtyPaths, FileWatcher, FileWatcherError, FileWatcherOptions};
use crate::observer::{Observation, Observer, ObserverOptions, ScanEvent, ScanReport, ScannedChange};
use crate::roots::Roots;
use crate::walker;
use bowline_storage::clock::now;
use bowline_storage::file_clock::now_ns;

mod batch;

use batch::Batch;

/// How many editor writes are expected on disk at a time; late writes beyond that are detected as changes.
const MAX_EXPECTED_WRITES: usize = 4096;

/// How often the journal of an open workspace is pruned.
const PRUNE_INTERVAL_MS: u64 = 10 * 60 * 1000;

/// The changes that a scan detected.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ObserveReport {
    /// The changes, as recorded in the journal.
    pub changes: Vec<ChangeId>,
    /// What the scan did and skipped.
    pub report: ScanReport,
}

/// Receives the number of files scanned so far, and may stop the scan.
pub type ScanProgress<'p> = dyn FnMut(u64) -> ControlFlow<()> + 'p;

/// The state of observation.
#[derive(Debug, Default)]
pub(super) struct ObserverState {
    // `None` until observation starts.
    observer: Option<Observer>,
    watcher: Option<FileWatcher>,
    // The texts that the baseline refers to in git, held open.
    git_objects: GitObjects,
    // The last scan was incomplete or its changes could not be recorded: the next one must cover everything.
    needs_full_scan: bool,
    // The newest change in the journal at the last scan. The observer does not know later changes by other processes.
    last_change: Option<ChangeId>,
    // Writes that an editor is about to make: the journal already has them, while the disk may get them only after a
    // scan has checked the journal. Invariant: at most `MAX_EXPECTED_WRITES`.
    expected_writes: HashMap<String, FileState>,
    // Files whose changes on disk are not recorded.
    foreign_files: ForeignFiles,
    // The size beyond which the journal may not have the hash of a file's content.
    max_hashed_bytes: u64,
    // Writes that agents may overwrite.
    pub(super) merged_writes: MergedWrites,
}

/// Whether to watch the file system for changes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum WatchMode {
    /// Watch if possible: then the cost of a scan depends on the number of changes, not of files.
    IfPossible,
    /// Scan everything each time.
    Off,
}

/// The result of starting observation.
#[derive(Debug)]
pub struct ObserveStartReport {
    /// What the scan did and skipped.
    pub report: ScanReport,
    /// Why the file system is not watched, if watching was requested.
    pub watcher_error: Option<FileWatcherError>,
    /// Files that another program changed before the scan reached them, from [`ScanReport::changed_meanwhile`]: their
    /// previous content is unknown.
    pub unrestorable: Vec<String>,
}

/// As [`Workspace::start_observing`].
pub(super) fn start_observing(
    workspace: &Workspace,
    options: ObserverOptions,
    watching: WatchMode,
    progress: &mut ScanProgress<'_>,
) -> Result<ObserveStartReport, FilesError> {
    let roots = &workspace.inner.roots;
    // The first scan also finds the directories to watch. The next scan finds what happens during the first one.
    let mut watch = match watching {
        WatchMode::Off => None,
        WatchMode::IfPossible => Some(FileWatcher::start_at_roots(roots, FileWatcherOptions::default())),
    };
    // The next scan searches the journal after this change for what the engine writes during the first one.
    let git = GitObjects::open(roots);
    let (mut observer, seen) = {
        let mut writer = workspace.writer();
        (restore_observer(&mut writer.journal, options, &git)?, writer.journal.last_change()?)
    };
    let mut batch = Batch::default();
    let mut failed = None;
    // Both locks are held only per batch, so that neither the engine nor other processes are blocked.
    let packs = git.pack_paths();
    let keep = |learnt: &[_]| store_learned(&mut workspace.writer().journal, &packs, learnt);
    let observation = observer.first_scan(roots, &git, now_ns(), &mut |event| {
        let (path, known, bytes, git_object) = match event {
            ScanEvent::Progress(files) => return progress(files),
            ScanEvent::Directory(path) => {
                if let Some(Ok(watcher)) = &mut watch
                    && let Err(why) = watcher.watch_directory(path)
                {
                    watch = Some(Err(why));
                }
                return ControlFlow::Continue(());
            }
            ScanEvent::Content { path, known, bytes } => (path, *known, Some(bytes), None),
            ScanEvent::GitContent { path, known, object } => (path, *known, None, Some(object)),
            ScanEvent::Change(seen, bytes) => match seen.after {
                Some(known) => (seen.path.as_str(), known, bytes, None),
                None => return ControlFlow::Continue(()),
            },
        };
        // Secret files are known, but never copied.
        let secret = walker::find_root(roots, path).is_none_or(|(_, way)| walker::is_secret(way));
        let (bytes, git_object) = if secret { (None, None) } else { (bytes, git_object) };
        let size = bytes.as_ref().map_or(0, Vec::len);
        let learnt = (BaselineRow { path: path.to_owned(), known, git_object }, bytes);
        to_control_flow(batch.add(learnt, size, keep), &mut failed)
    });
    failed.map_or_else(|| batch.flush(keep), Err)?;
    let mut writer = workspace.writer();
    let WorkspaceWriter { journal, observer_state: lookout, .. } = &mut *writer;
    let _lock = journal.lock()?;
    store_baseline(journal, &observation)?;
    let mut unrestorable = Vec::new();
    for path in observation.report.changed_meanwhile.clone() {
        let filter =
            ChangeFilter { path: Some(&path), after: seen, limit: Some(1), ..ChangeFilter::default() };
        if journal.changes(&filter)?.is_empty() {
            unrestorable.push(path);
        }
    }
    let (awaited, merged) =
        (std::mem::take(&mut lookout.expected_writes), std::mem::take(&mut lookout.merged_writes));
    // A stopped scan has not learned the remaining files, nor watched the remaining directories.
    let is_behind = observation.report.stopped;
    let (mut watch, not_watched) = match watch {
        Some(Ok(watch)) => (Some(watch), None),
        Some(Err(why)) => (None, Some(why)),
        None => (None, None),
    };
    if is_behind || observation.report.walk.truncated {
        watch.iter_mut().for_each(FileWatcher::watch_everything_again);
    }
    let foreign = workspace.inner.options.foreign_files.clone();
    *lookout = ObserverState {
        observer: Some(observer),
        watcher: watch,
        git_objects: git,
        needs_full_scan: is_behind,
        last_change: seen,
        expected_writes: awaited,
        foreign_files: foreign,
        max_hashed_bytes: workspace.inner.options.max_write_bytes,
        merged_writes: merged,
    };
    Ok(ObserveStartReport { report: observation.report, watcher_error: not_watched, unrestorable })
}

/// As [`Workspace::observe_with_origins`].
pub(super) fn scan_workspace(
    workspace: &Workspace,
    origin: &dyn Fn(&str) -> ChangeOrigin,
    progress: &mut ScanProgress<'_>,
) -> Result<ObserveReport, FilesError> {
    let roots = &workspace.inner.roots;
    let mut guard = workspace.writer();
    let writer = &mut *guard;
    let _lock = writer.journal.lock()?;
    let WorkspaceWriter { journal, observer_state: lookout, pruned_at: pruned, .. } = writer;
    let (observed, changed) = match lookout.scan_changes(journal, roots, &mut now_ns, origin, progress) {
        Ok(found) => found,
        Err(error) => {
            lookout.needs_full_scan = true;
            return Err(error);
        }
    };
    let at = now();
    // The clock may have been set back.
    if at.0.saturating_sub(pruned.0).unsigned_abs() > PRUNE_INTERVAL_MS {
        journal.prune(at)?;
        *pruned = at;
    }
    workspace.mark_diagnostics_stale(changed.iter().map(String::as_str));
    for path in &changed {
        match restore_merged(workspace, writer, roots, path, &origin(path)) {
            // If the file changes again in the meantime, the next scan finds that.
            Ok(()) | Err(ApplyError::Raced(_)) => {}
            Err(ApplyError::Failed(error)) => return Err(error),
        }
        // An editor should show the new text, unless it has unsaved changes. Content that is no longer text cannot
        // be shown.
        if let Ok(admitted) = roots.admit(path, Access::Read)
            && let Err(error) = workspace.refresh_document(&admitted)
            && !matches!(error, FilesError::NotText { .. } | FilesError::TooLarge { .. })
        {
            return Err(error);
        }
    }
    Ok(observed)
}

impl ObserverState {
    /// Scans what changed, and records it. Also returns the changed paths.
    fn scan_changes(
        &mut self,
        journal: &mut Journal,
        roots: &Roots,
        clock: &mut dyn FnMut() -> i64,
        origin: &dyn Fn(&str) -> ChangeOrigin,
        progress: &mut ScanProgress<'_>,
    ) -> Result<(ObserveReport, Vec<String>), FilesError> {
        // Taken before the watcher is queried: it reports later changes only next time, and a file created before this
        // moment would then be treated as having existed already.
        let began_ns = clock();
        let mut dirty = match &mut self.watcher {
            Some(watch) => watch.take_dirty(roots),
            None => DirtyPaths::Everything,
        };
        if let Some(observer) = self.observer.as_mut().filter(|_| self.needs_full_scan) {
            // The journal's baseline contains exactly what was recorded.
            let mut stored = Vec::new();
            journal.visit_baseline(|row| stored.push((row.path, row.known)))?;
            *observer = Observer::restore_after(observer, stored);
            dirty = DirtyPaths::Everything;
        }
        let merged = std::mem::take(&mut self.merged_writes);
        // If an agent both has the client write a text and writes it itself, the change is attributed to the agent.
        let source = |seen: &ScannedChange| {
            let is_repeated = seen.after.as_ref().is_some_and(|after| {
                merged.overwritten_text(&seen.path, &origin(&seen.path), after).is_some()
            });
            if is_repeated { ChangeSource::Written } else { ChangeSource::Observed }
        };
        let found = self.scan_and_record(journal, roots, (dirty, began_ns), (origin, &source), progress);
        self.merged_writes = merged;
        let (observed, observation) = found?;
        self.last_change = journal.last_change()?;
        // The watcher reports nothing twice: what a stopped scan did not reach requires a full scan.
        self.needs_full_scan = observation.report.stopped;
        if let Some(observer) = &mut self.observer {
            observer.conclude_scan(observation.end);
        }
        Ok((observed, changed_paths(observation.changes)))
    }

    /// Records the content of a known, not yet scanned file, if it equals what is about to be written there: the agent
    /// wrote it to the disk before asking for the write. Returns that change.
    pub(super) fn adopt_write(
        &mut self,
        journal: &mut Journal,
        roots: &Roots,
        (path, bytes): (&str, &[u8]),
        origin: &ChangeOrigin,
    ) -> Result<Option<ChangeId>, FilesError> {
        // An unknown file may have existed all along, and undoing its creation would delete it. An ignore file would
        // widen the scan to everything that it governs, which cannot be attributed to the writer.
        let is_known = self.observer.as_ref().is_some_and(|observer| observer.known(path).is_some());
        if !is_known || self.needs_full_scan || walker::ignore_file_directory(path).is_some() {
            return Ok(None);
        }
        let hash = ContentHash::digest(bytes);
        let is_it = |seen: &ScannedChange| seen.after.as_ref().is_some_and(|known| known.hash == Some(hash));
        let source =
            |seen: &ScannedChange| if is_it(seen) { ChangeSource::Written } else { ChangeSource::Observed };
        let scope = (DirtyPaths::Paths(vec![path.to_owned()]), now_ns());
        let whose = |_: &str| origin.clone();
        let found = self
            .scan_and_record(journal, roots, scope, (&whose, &source), &mut |_| ControlFlow::Continue(()));
        match found {
            // The scan is not concluded: other files created since the last scan are still to be found.
            Ok((observed, _)) => Ok(observed.changes.first().copied()),
            Err(error) => {
                self.needs_full_scan = true;
                Err(error)
            }
        }
    }

    /// Scans what may have changed, and records what did. Also returns the observation, which is not concluded.
    fn scan_and_record(
        &mut self,
        journal: &mut Journal,
        roots: &Roots,
        (dirty, began_ns): (DirtyPaths, i64),
        whose: Attribution<'_>,
        progress: &mut ScanProgress<'_>,
    ) -> Result<(ObserveReport, Observation), FilesError> {
        let Some(observer) = &mut self.observer else { return Ok(Default::default()) };
        let mut batch = Batch::default();
        let mut changes = Vec::new();
        let mut failed = None;
        let until = KnownWrites {
            last_change: self.last_change,
            max_hashed_bytes: self.max_hashed_bytes,
            expected_writes: &self.expected_writes,
        };
        let at = now();
        let (foreign, git) = (&self.foreign_files, &mut self.git_objects);
        let is_foreign =
            |path: &str| walker::find_root(roots, path).is_some_and(|(_, way)| foreign.matches(way));
        let mut sink = |event: ScanEvent<'_>| {
            let (seen, bytes) = match event {
                ScanEvent::Progress(files) => return progress(files),
                ScanEvent::Directory(_) | ScanEvent::Content { .. } | ScanEvent::GitContent { .. } => {
                    return ControlFlow::Continue(());
                }
                ScanEvent::Change(seen, bytes) => (seen, bytes),
            };
            // A change known to be written through the engine is recorded, even in a foreign file.
            if is_own_temp_file(seen) || whose.1(seen) == ChangeSource::Observed && is_foreign(&seen.path) {
                return ControlFlow::Continue(());
            }
            // Secret files are never copied without a request.
            let secret = walker::find_root(roots, &seen.path).is_none_or(|(_, way)| walker::is_secret(way));
            let bytes = bytes.filter(|_| !secret);
            // The text before may have to be read from git.
            let before =
                seen.before.map_or(0, |known| usize::try_from(known.stamp.size).unwrap_or(usize::MAX));
            let size = bytes.as_ref().map_or(0, Vec::len).saturating_add(before);
            let found = ScannedContent { change: seen.clone(), bytes };
            let record = |found: &[ScannedContent]| {
                record_changes(journal, git, found, whose, (at, until), &mut changes)
            };
            to_control_flow(batch.add(found, size, record), &mut failed)
        };
        let observation = match dirty {
            DirtyPaths::Everything => observer.scan(roots, began_ns, &mut sink),
            DirtyPaths::Paths(paths) => observer.scan_paths(roots, &paths, began_ns, &mut sink),
        };
        let recorded = failed.map_or_else(
            || {
                batch.flush(|found: &[ScannedContent]| {
                    record_changes(journal, git, found, whose, (at, until), &mut changes)
                })
            },
            Err,
        );
        recorded.and_then(|()| store_baseline(journal, &observation))?;
        let report = observation.report.clone();
        observation.changes.iter().for_each(|seen| self.clear_expected_write(&seen.path));
        Ok((ObserveReport { changes, report }, observation))
    }

    /// Expects a write that an editor is about to make, so that no scan records it as a change, however late it
    /// arrives.
    pub(super) fn expect_editor_write(&mut self, path: &str, file: FileState) {
        let has_room =
            self.expected_writes.len() < MAX_EXPECTED_WRITES || self.expected_writes.contains_key(path);
        if has_room {
            self.expected_writes.insert(path.to_owned(), file);
        }
    }

    /// Stops expecting an editor's write: it has arrived, or will not.
    pub(super) fn clear_expected_write(&mut self, path: &str) {
        self.expected_writes.remove(path);
    }

    /// Records the engine's own write to the end of a file, so that no scan reports it as a change.
    pub(super) fn record_own_tail(&mut self, path: &str, stamp: FileStamp, hash: Option<ContentHash>) {
        self.clear_expected_write(path);
        if let Some(observer) = &mut self.observer {
            observer.record_own_write(path, KnownFile { stamp, hash, is_racy: true });
        }
    }

    /// Records the engine's own write, so that no scan reports it as a change.
    pub(super) fn record_own_write(&mut self, path: &str, file: Option<(FileStamp, &[u8])>) {
        self.clear_expected_write(path);
        let Some(observer) = &mut self.observer else { return };
        observer.record_own_ignore_file(path, file.map(|(_, bytes)| bytes));
        match file {
            Some((stamp, bytes)) => {
                // Another program may have written the file since it was stamped, within the same clock tick.
                observer.record_own_write(
                    path,
                    KnownFile { stamp, hash: Some(ContentHash::digest(bytes)), is_racy: true },
                );
            }
            None => observer.record_own_deletion(path),
        }
    }
}

/// A detected change, and the file's current bytes.
struct ScannedContent {
    change: ScannedChange,
    bytes: Option<Vec<u8>>,
}

fn to_control_flow(stored: Result<(), FilesError>, failed: &mut Option<FilesError>) -> ControlFlow<()> {
    match stored {
        Ok(()) => ControlFlow::Continue(()),
        Err(error) => {
            *failed = Some(error);
            ControlFlow::Break(())
        }
    }
}

/// Returns an observer with the journal's baseline. Files whose text was left to git, which has it no longer, are
/// forgotten: then the first scan learns them again while they still hold it.
fn restore_observer(
    journal: &mut Journal,
    options: ObserverOptions,
    git: &GitObjects,
) -> Result<Observer, FilesError> {
    let packs = git.pack_paths();
    // If all packs are still there, so are their objects.
    let is_complete = journal.git_packs()?.iter().all(|path| packs.contains(path));
    let mut lost = Vec::new();
    let observer = Observer::restore_with(options, |restore| {
        journal.visit_baseline(|row| {
            if is_complete || row.git_object.is_none_or(|object| git.has(&object)) {
                restore(&row.path, row.known);
            } else {
                lost.push(row.path);
            }
        })
    })?;
    if !is_complete {
        let _lock = journal.lock()?;
        journal.replace_git_packs(&packs, &lost)?;
    }
    Ok(observer)
}

/// Stores contents together with the baseline rows that keep them referenced.
fn store_learned(
    journal: &mut Journal,
    packs: &[String],
    learnt: &[(BaselineRow, Option<Vec<u8>>)],
) -> Result<(), FilesError> {
    let _lock = journal.lock()?;
    let contents: Vec<&[u8]> = learnt.iter().filter_map(|(_, bytes)| bytes.as_deref()).collect();
    if !contents.is_empty() {
        journal.store_contents(&contents)?;
    }
    if learnt.iter().any(|(row, _)| row.git_object.is_some()) {
        journal.add_git_packs(packs)?;
    }
    let rows: Vec<BaselineRow> = learnt.iter().map(|(row, _)| row.clone()).collect();
    journal.update_baseline(&rows, &[])?;
    Ok(())
}

fn changed_paths(changes: Vec<ScannedChange>) -> Vec<String> {
    changes.into_iter().map(|seen| seen.path).collect()
}

/// Returns whether the file is a temporary file of this or another Bowline process.
fn is_own_temp_file(seen: &ScannedChange) -> bool {
    seen.path.rsplit('/').next().is_some_and(is_temp_name)
}

/// How changes are attributed: their origin by path, and their source.
type Attribution<'a> = (&'a dyn Fn(&str) -> ChangeOrigin, &'a dyn Fn(&ScannedChange) -> ChangeSource);

/// What the journal knew at the last scan, and the writes that it recorded before they reached the disk.
#[derive(Clone, Copy)]
struct KnownWrites<'a> {
    last_change: Option<ChangeId>,
    max_hashed_bytes: u64,
    expected_writes: &'a HashMap<String, FileState>,
}

fn record_changes(
    journal: &mut Journal,
    git: &mut GitObjects,
    found: &[ScannedContent],
    (origin, source): Attribution<'_>,
    (at, until): (Timestamp, KnownWrites<'_>),
    changes: &mut Vec<ChangeId>,
) -> Result<(), FilesError> {
    let mut drafts = Vec::new();
    let origins: Vec<ChangeOrigin> = found.iter().map(|found| origin(&found.change.path)).collect();
    let unstored = found
        .iter()
        .map(|found| read_unstored_text(journal, git, &found.change))
        .collect::<Result<Vec<_>, _>>()?;
    for ((ScannedContent { change: seen, bytes }, origin), unstored) in
        found.iter().zip(&origins).zip(&unstored)
    {
        // Another Bowline process may have written the file since the last scan: then the change starts from what that
        // left.
        let filter = ChangeFilter {
            path: Some(&seen.path),
            after: until.last_change,
            limit: Some(1),
            ..ChangeFilter::default()
        };
        let others = journal.changes(&filter)?.pop().map(|entry| entry.change.after);
        let others = others.or_else(|| until.expected_writes.get(&seen.path).map(|file| Some(*file)));
        if others.is_some_and(|after| is_explained(after, seen, until.max_hashed_bytes)) {
            continue;
        }
        let before = match others {
            Some(after) => after.map(|FileState { hash, size, mode }| DraftSide {
                content: DraftContent::HashOnly { hash, size },
                mode,
            }),
            None => seen.before.as_ref().map(|known| draft_side(known, unstored.as_deref())),
        };
        let after = seen.after.as_ref().map(|known| draft_side(known, bytes.as_deref()));
        drafts.push(ChangeDraft::applied((origin, source(seen)), &seen.path, before, after));
    }
    let recorded = match journal.record(&drafts, at) {
        // A change that is already on the disk cannot be refused: it is recorded without its text, and undo leaves it
        // alone.
        Err(JournalError::NoRoom { .. }) => {
            for side in drafts.iter_mut().filter_map(|draft| draft.after.as_mut()) {
                if let DraftContent::Bytes(bytes) = side.content {
                    let (hash, size) = (ContentHash::digest(bytes), bytes.len() as u64);
                    side.content = DraftContent::HashOnly { hash, size };
                }
            }
            journal.record(&drafts, at)?
        }
        recorded => recorded?,
    };
    changes.extend(recorded);
    Ok(())
}

/// Returns the text of a file before a change, if git has it and the journal does not.
fn read_unstored_text(
    journal: &Journal,
    git: &mut GitObjects,
    seen: &ScannedChange,
) -> Result<Option<Vec<u8>>, FilesError> {
    let Some(hash) = seen.before.and_then(|known| known.hash) else { return Ok(None) };
    let Some(object) = journal.git_object(&seen.path, &hash)? else { return Ok(None) };
    if journal.has_content(&hash)? {
        return Ok(None);
    }
    Ok(git.read_file(&object).filter(|bytes| ContentHash::digest(bytes) == hash))
}

/// Returns whether a change in the journal left the file in its current state.
fn is_explained(after: Option<FileState>, seen: &ScannedChange, max_hashed_bytes: u64) -> bool {
    match (after, &seen.after) {
        (None, None) => true,
        (Some(known), Some(now)) => {
            let is_same_content = match known.size > max_hashed_bytes {
                true => known.size == now.stamp.size,
                false => Some(known.hash) == now.hash,
            };
            is_same_content && known.mode == now.stamp.mode
        }
        _ => false,
    }
}

fn draft_side<'a>(known: &KnownFile, bytes: Option<&'a [u8]>) -> DraftSide<'a> {
    let hash = known.hash.unwrap_or(ContentHash::UNKNOWN);
    let content = bytes.map_or(DraftContent::HashOnly { hash, size: known.stamp.size }, DraftContent::Bytes);
    DraftSide { content, mode: known.stamp.mode }
}

fn store_baseline(journal: &mut Journal, observation: &Observation) -> Result<(), FilesError> {
    let rows = observation.upsert.iter();
    let rows: Vec<_> = rows
        .map(|(path, known)| BaselineRow { path: path.clone(), known: *known, git_object: None })
        .collect();
    journal.update_baseline(&rows, &observation.remove)?;
    Ok(())
}

#[cfg(test)]
mod tests;
