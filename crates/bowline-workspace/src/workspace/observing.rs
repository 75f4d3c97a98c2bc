//! Finding what changed on disk beside the engine, and recording it.

use std::collections::HashMap;
use std::ops::ControlFlow;

use bowline_state::changes::{ChangeId, ContentHash, FileState, Moment, Origin, Source};
use bowline_state::foreign_files::ForeignFiles;
use bowline_state::observation::{Known, Stamp};
use bowline_state::paths::Access;

use super::applying::NotApplied;
use super::merged_writes::MergedWrites;
use super::{Workspace, Writer};
use crate::clock::now;
use crate::error::FilesError;
use crate::file_clock::now_ns;
use crate::journal::{BaselineRow, Draft, Filter, Journal, JournalError, Manner, Side, SideContent};
use crate::observer::{Event, Observation, Observer, ObserverOptions, ScanReport, Seen};
use crate::replace::is_temp_name;
use crate::roots::Roots;
use crate::walker;
use crate::watch::{Dirty, Watch, WatchError, WatchOptions};

mod batch;

use batch::Batch;

/// So many writes of an editor are awaited on disk; of more, those that come late are found as changes.
const MAX_AWAITED: usize = 4096;

/// How often a workspace that stays open drops what its journal need not keep.
const PRUNE_EVERY_MS: u64 = 10 * 60 * 1000;

/// What was found on disk.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Observed {
    /// The changes, as the journal knows them.
    pub changes: Vec<ChangeId>,
    /// Files that got another name: from, to. They are in the journal as a deletion and a creation.
    pub renamed: Vec<(String, String)>,
    /// What the scan did and left out.
    pub report: ScanReport,
}

/// Is told how many files were looked at, and may stop the scan.
pub type Progress<'p> = dyn FnMut(u64) -> ControlFlow<()> + 'p;

/// Who looks at the disk.
#[derive(Debug, Default)]
pub(super) struct Lookout {
    // None until observing was started.
    observer: Option<Observer>,
    watch: Option<Watch>,
    // The last look missed something, or could not record what it found: everything has to be looked at.
    is_behind: bool,
    // The newest change in the journal at the last look. Later ones of other processes are not known to the observer.
    seen: Option<ChangeId>,
    // What an editor is to write: the journal has it already, the disk may have it only after a look has passed the
    // journal by. Invariant: at most `MAX_AWAITED`.
    awaited: HashMap<String, FileState>,
    // Whose changes on disk are not recorded.
    foreign: ForeignFiles,
    // What agents may write over.
    pub(super) merged: MergedWrites,
}

/// Whether the system is asked to tell what changes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Watching {
    /// It is, if it can: then a look costs what changed, not what there is.
    IfPossible,
    /// Everything is looked at each time.
    No,
}

/// What observing begins with.
#[derive(Debug)]
pub struct Started {
    /// What the scan did and left out.
    pub report: ScanReport,
    /// Why the system does not tell what changes, if it was asked to.
    pub not_watched: Option<WatchError>,
    /// Files that another program changed before the scan came to them, of [`ScanReport::changed_meanwhile`]: what they held
    /// before is not known.
    pub unrestorable: Vec<String>,
}

impl Workspace {
    /// Begins to observe: learns what is there, and keeps small files so that a later change can be undone. What changed
    /// since the workspace was last observed is nobody's here: it is learnt, not recorded.
    ///
    /// A large tree takes long. Reads and writes go on meanwhile; a look finds nothing until this has returned.
    ///
    /// # Errors
    /// Fails if the journal cannot be used. A scan that is stopped is no error; the report says so.
    pub fn start_observing(
        &self,
        options: ObserverOptions,
        watching: Watching,
        progress: &mut Progress<'_>,
    ) -> Result<Started, FilesError> {
        let roots = &self.inner.roots;
        let (watch, not_watched) = match watching {
            Watching::No => (None, None),
            // What happens while the first scan runs is found by the next look.
            Watching::IfPossible => match Watch::start(roots, WatchOptions::default()) {
                Ok(watch) => (Some(watch), None),
                Err(why) => (None, Some(why)),
            },
        };
        // What the engine writes while the scan runs, the next look finds in the journal after this.
        let (stored, seen) = {
            let writer = self.writer();
            (writer.journal.baseline()?, newest(&writer.journal)?)
        };
        let mut observer = Observer::restore(options, stored.into_iter().map(known));
        let mut batch = Batch::default();
        let mut failed = None;
        // Both locks are taken for each batch alone: neither the engine nor other processes should have to wait.
        let keep = |learnt: &[_]| keep(&mut self.writer().journal, learnt);
        let observation = observer.first_scan(roots, now_ns(), &mut |event| {
            let (path, known, bytes) = match event {
                Event::Progress(files) => return progress(files),
                Event::Content { path, known, bytes } => (path, Some(*known), Some(bytes)),
                Event::Change(seen, bytes) => (seen.path.as_str(), seen.after, bytes),
            };
            let secret = walker::root_of(roots, path).is_none_or(|(_, way)| walker::is_secret(way));
            let (Some(known), Some(bytes), false) = (known, bytes, secret) else {
                return ControlFlow::Continue(());
            };
            let size = bytes.len();
            let learnt = (row(path, &known), bytes);
            flow(batch.add(learnt, size, keep), &mut failed)
        });
        failed.map_or_else(|| batch.flush(keep), Err)?;
        let mut writer = self.writer();
        let Writer { journal, lookout, .. } = &mut *writer;
        let _lock = journal.lock()?;
        store(journal, &observation)?;
        let mut unrestorable = Vec::new();
        for path in observation.report.changed_meanwhile.clone() {
            let filter = Filter { path: Some(&path), after: seen, limit: Some(1), ..Filter::default() };
            if journal.changes(&filter)?.is_empty() {
                unrestorable.push(path);
            }
        }
        let (awaited, merged) = (std::mem::take(&mut lookout.awaited), std::mem::take(&mut lookout.merged));
        // What a scan that was stopped did not come to is still to be learnt.
        let is_behind = observation.report.stopped;
        let foreign = self.inner.settings.foreign_files.clone();
        *lookout = Lookout { observer: Some(observer), watch, is_behind, seen, awaited, foreign, merged };
        Ok(Started { report: observation.report, not_watched, unrestorable })
    }

    /// Finds what changed on disk without passing through the engine since the last look, and records it as observed.
    /// If observing was not started, nothing is found.
    ///
    /// # Errors
    /// Fails if the journal cannot be used.
    pub fn observe(&self, origin: &Origin, progress: &mut Progress<'_>) -> Result<Observed, FilesError> {
        self.observe_each(&|_| origin.clone(), progress)
    }

    /// As [`Workspace::observe`], with whose doing a change is by its file.
    ///
    /// # Errors
    /// Fails if the journal cannot be used.
    pub fn observe_each(
        &self,
        origin: &dyn Fn(&str) -> Origin,
        progress: &mut Progress<'_>,
    ) -> Result<Observed, FilesError> {
        let roots = &self.inner.roots;
        let mut guard = self.writer();
        let writer = &mut *guard;
        let _lock = writer.journal.lock()?;
        let Writer { journal, lookout, pruned, .. } = writer;
        let (observed, changed) = match lookout.look(journal, roots, &mut now_ns, origin, progress) {
            Ok(found) => found,
            Err(error) => {
                lookout.is_behind = true;
                return Err(error);
            }
        };
        let at = now();
        // The clock may have been set back.
        if at.0.saturating_sub(pruned.0).unsigned_abs() > PRUNE_EVERY_MS {
            journal.prune(at)?;
            *pruned = at;
        }
        self.outdate(changed.iter().map(String::as_str));
        for path in &changed {
            match self.restore_merged(writer, roots, path, &origin(path)) {
                // Who changes the file again meanwhile is found by the next look.
                Ok(()) | Err(NotApplied::Raced) => {}
                Err(NotApplied::Failed(error)) => return Err(error),
            }
            // An editor should see it, if it has nothing unsaved there. What is no text by now cannot be shown.
            if let Ok(admitted) = roots.admit(path, Access::Read)
                && let Err(error) = self.refresh(&admitted)
                && !matches!(error, FilesError::NotText { .. } | FilesError::TooLarge { .. })
            {
                return Err(error);
            }
        }
        Ok(observed)
    }
}

impl Lookout {
    /// Looks at what changed, and records it. Returns the files, too.
    fn look(
        &mut self,
        journal: &mut Journal,
        roots: &Roots,
        clock: &mut dyn FnMut() -> i64,
        origin: &dyn Fn(&str) -> Origin,
        progress: &mut Progress<'_>,
    ) -> Result<(Observed, Vec<String>), FilesError> {
        // Before the watch is asked: what happens right after that it tells the next time only, and a file of before this
        // moment would then be taken for one that was there already.
        let began_ns = clock();
        let mut dirty = match &mut self.watch {
            Some(watch) => watch.take(roots),
            None => Dirty::Everything,
        };
        if let Some(observer) = self.observer.as_mut().filter(|_| self.is_behind) {
            // What the journal knows of the files is what was recorded.
            *observer = Observer::restore_after(observer, journal.baseline()?.into_iter().map(known));
            dirty = Dirty::Everything;
        }
        let merged = std::mem::take(&mut self.merged);
        // What an agent has the client write and writes itself, too, is its own.
        let source = |seen: &Seen| {
            let is_repeated = seen
                .after
                .as_ref()
                .is_some_and(|after| merged.overwritten(&seen.path, &origin(&seen.path), after).is_some());
            if is_repeated { Source::Written } else { Source::Observed }
        };
        let found = self.find(journal, roots, (dirty, began_ns), (origin, &source), progress);
        self.merged = merged;
        let (observed, observation) = found?;
        self.seen = newest(journal)?;
        // The watch tells nothing twice: what a scan that was stopped did not come to is looked for everywhere.
        self.is_behind = observation.report.stopped;
        if let Some(observer) = &mut self.observer {
            observer.conclude(observation.end);
        }
        Ok((observed, paths(observation.changes)))
    }

    /// Records what a file that is known holds and was not looked at yet, if it is what somebody is about to write there: an
    /// agent that writes to the disk and then says so has written it. Returns that change.
    pub(super) fn adopt(
        &mut self,
        journal: &mut Journal,
        roots: &Roots,
        (path, bytes): (&str, &[u8]),
        origin: &Origin,
    ) -> Result<Option<ChangeId>, FilesError> {
        // A file that is not known may have been there all along: to undo its creation would be to delete it. With a file of
        // rules all would be looked at that it rules, which is not the writer's.
        let is_known = self.observer.as_ref().is_some_and(|observer| observer.known(path).is_some());
        if !is_known || self.is_behind || walker::directory_ruled(path).is_some() {
            return Ok(None);
        }
        let hash = ContentHash::of(bytes);
        let is_it = |seen: &Seen| seen.after.as_ref().is_some_and(|known| known.hash == Some(hash));
        let source = |seen: &Seen| if is_it(seen) { Source::Written } else { Source::Observed };
        let scope = (Dirty::Paths(vec![path.to_owned()]), now_ns());
        let whose = |_: &str| origin.clone();
        let found = self.find(journal, roots, scope, (&whose, &source), &mut |_| ControlFlow::Continue(()));
        match found {
            // This is not concluded: what else was created since the last look is still to be found.
            Ok((observed, _)) => Ok(observed.changes.first().copied()),
            Err(error) => {
                self.is_behind = true;
                Err(error)
            }
        }
    }

    /// Looks at what may have changed, and records what did. Returns what was found, too; it is not concluded.
    fn find(
        &mut self,
        journal: &mut Journal,
        roots: &Roots,
        (dirty, began_ns): (Dirty, i64),
        whose: Whose<'_>,
        progress: &mut Progress<'_>,
    ) -> Result<(Observed, Observation), FilesError> {
        let Some(observer) = &mut self.observer else { return Ok(Default::default()) };
        let mut batch = Batch::default();
        let mut changes = Vec::new();
        let mut failed = None;
        let (at, until) = (now(), Until { seen: self.seen, awaited: &self.awaited });
        let foreign = &self.foreign;
        let is_foreign =
            |path: &str| walker::root_of(roots, path).is_some_and(|(_, way)| foreign.matches(way));
        let mut sink = |event: Event<'_>| {
            let (seen, bytes) = match event {
                Event::Progress(files) => return progress(files),
                Event::Content { .. } => return ControlFlow::Continue(()),
                Event::Change(seen, bytes) => (seen, bytes),
            };
            // What is known to be written through the engine is recorded, whatever the file is called.
            if is_ours(seen) || whose.1(seen) == Source::Observed && is_foreign(&seen.path) {
                return ControlFlow::Continue(());
            }
            // Of secrets no copy is made that nobody asked for.
            let secret = walker::root_of(roots, &seen.path).is_none_or(|(_, way)| walker::is_secret(way));
            let bytes = bytes.filter(|_| !secret);
            let size = bytes.as_ref().map_or(0, Vec::len);
            let found = Found { seen: seen.clone(), bytes };
            let record = |found: &[Found]| record(journal, found, whose, at, until, &mut changes);
            flow(batch.add(found, size, record), &mut failed)
        };
        let observation = match dirty {
            Dirty::Everything => observer.scan(roots, began_ns, &mut sink),
            Dirty::Paths(paths) => observer.scan_paths(roots, &paths, began_ns, &mut sink),
        };
        let recorded = failed.map_or_else(
            || batch.flush(|found: &[Found]| record(journal, found, whose, at, until, &mut changes)),
            Err,
        );
        recorded.and_then(|()| store(journal, &observation))?;
        let mut renamed = observation.renamed.clone();
        renamed.retain(|(from, to)| !is_foreign(from) && !is_foreign(to));
        let report = observation.report.clone();
        observation.changes.iter().for_each(|seen| self.is_there(&seen.path));
        Ok((Observed { changes, renamed, report }, observation))
    }

    /// Takes note of what an editor is about to write, so that it is not found as a change, however late it comes.
    pub(super) fn awaits(&mut self, path: &str, file: FileState) {
        let has_room = self.awaited.len() < MAX_AWAITED || self.awaited.contains_key(path);
        if has_room {
            self.awaited.insert(path.to_owned(), file);
        }
    }

    /// Takes note that a write of an editor is there, or will not come.
    pub(super) fn is_there(&mut self, path: &str) {
        self.awaited.remove(path);
    }

    /// Takes note of what the engine wrote itself, so that it is not found as a change.
    pub(super) fn expect(&mut self, path: &str, file: Option<(Stamp, &[u8])>) {
        self.is_there(path);
        let Some(observer) = &mut self.observer else { return };
        observer.expect_rules(path, file.map(|(_, bytes)| bytes));
        match file {
            Some((stamp, bytes)) => {
                // Another program may have written it since the stamp was taken, in the same tick.
                observer.expect(path, Known { stamp, hash: Some(ContentHash::of(bytes)), racy: true });
            }
            None => observer.forget(path),
        }
    }
}

/// A change that was found, and the file's bytes now.
struct Found {
    seen: Seen,
    bytes: Option<Vec<u8>>,
}

fn flow(stored: Result<(), FilesError>, failed: &mut Option<FilesError>) -> ControlFlow<()> {
    match stored {
        Ok(()) => ControlFlow::Continue(()),
        Err(error) => {
            *failed = Some(error);
            ControlFlow::Break(())
        }
    }
}

/// Keeps contents together with what is known of their files, which is what holds them.
fn keep(journal: &mut Journal, learnt: &[(BaselineRow, Vec<u8>)]) -> Result<(), FilesError> {
    let _lock = journal.lock()?;
    let contents: Vec<&[u8]> = learnt.iter().map(|(_, bytes)| bytes.as_slice()).collect();
    journal.keep(&contents)?;
    let rows: Vec<BaselineRow> = learnt.iter().map(|(row, _)| row.clone()).collect();
    journal.update_baseline(&rows, &[])?;
    Ok(())
}

fn newest(journal: &Journal) -> Result<Option<ChangeId>, FilesError> {
    let last = journal.changes(&Filter { limit: Some(1), ..Filter::default() })?;
    Ok(last.last().map(|entry| entry.change.id))
}

fn paths(changes: Vec<Seen>) -> Vec<String> {
    changes.into_iter().map(|seen| seen.path).collect()
}

/// Says whether it is a temporary file of a write of ours, or of another Bowline.
fn is_ours(seen: &Seen) -> bool {
    seen.path.rsplit('/').next().is_some_and(is_temp_name)
}

/// Whose doing a change is, by its file, and how it is known.
type Whose<'a> = (&'a dyn Fn(&str) -> Origin, &'a dyn Fn(&Seen) -> Source);

/// What the journal had at the last look, and what it had already and the disk had not.
#[derive(Clone, Copy)]
struct Until<'a> {
    seen: Option<ChangeId>,
    awaited: &'a HashMap<String, FileState>,
}

fn record(
    journal: &mut Journal,
    found: &[Found],
    (origin, source): Whose<'_>,
    at: Moment,
    until: Until<'_>,
    changes: &mut Vec<ChangeId>,
) -> Result<(), FilesError> {
    let mut drafts = Vec::new();
    let origins: Vec<Origin> = found.iter().map(|found| origin(&found.seen.path)).collect();
    for (Found { seen, bytes }, origin) in found.iter().zip(&origins) {
        // Another Bowline may have written the file since the last look: then this began with what that one left.
        let filter =
            Filter { path: Some(&seen.path), after: until.seen, limit: Some(1), ..Filter::default() };
        let others = journal.changes(&filter)?.pop().map(|entry| entry.change.after);
        let others = others.or_else(|| until.awaited.get(&seen.path).map(|file| Some(*file)));
        if others.is_some_and(|after| is_explained(after, seen)) {
            continue;
        }
        let before = match others {
            Some(after) => after.map(|FileState { hash, size, mode }| Side {
                content: SideContent::Known { hash, size },
                mode,
            }),
            None => seen.before.as_ref().map(|known| side(known, None)),
        };
        drafts.push(Draft {
            origin,
            source: source(seen),
            path: &seen.path,
            before,
            after: seen.after.as_ref().map(|known| side(known, bytes.as_deref())),
            reverses: &[],
            manner: Manner::Found,
        });
    }
    let recorded = match journal.record(&drafts, at) {
        // What is on the disk cannot be refused: that it changed is recorded, and undo leaves it alone.
        Err(JournalError::NoRoom { .. }) => {
            for side in drafts.iter_mut().filter_map(|draft| draft.after.as_mut()) {
                if let SideContent::Bytes(bytes) = side.content {
                    let (hash, size) = (ContentHash::of(bytes), bytes.len() as u64);
                    side.content = SideContent::Known { hash, size };
                }
            }
            journal.record(&drafts, at)?
        }
        recorded => recorded?,
    };
    changes.extend(recorded);
    Ok(())
}

/// Says whether a change of the journal left a file as it is.
fn is_explained(after: Option<FileState>, seen: &Seen) -> bool {
    match (after, &seen.after) {
        (None, None) => true,
        (Some(known), Some(now)) => Some(known.hash) == now.hash && known.mode == now.stamp.mode,
        _ => false,
    }
}

fn side<'a>(known: &Known, bytes: Option<&'a [u8]>) -> Side<'a> {
    let hash = known.hash.unwrap_or(ContentHash::UNKNOWN);
    let content = bytes.map_or(SideContent::Known { hash, size: known.stamp.size }, SideContent::Bytes);
    Side { content, mode: known.stamp.mode }
}

fn store(journal: &mut Journal, observation: &Observation) -> Result<(), FilesError> {
    let rows: Vec<BaselineRow> = observation.upsert.iter().map(|(path, known)| row(path, known)).collect();
    journal.update_baseline(&rows, &observation.remove)?;
    Ok(())
}

fn row(path: &str, known: &Known) -> BaselineRow {
    let Stamp { device, inode, size, mtime_ns, ctime_ns, mode } = known.stamp;
    BaselineRow {
        path: path.to_owned(),
        size,
        mtime_ns,
        ctime_ns,
        inode,
        device,
        mode,
        hash: known.hash,
        racy: known.racy,
    }
}

fn known(row: BaselineRow) -> (String, Known) {
    let BaselineRow { path, size, mtime_ns, ctime_ns, inode, device, mode, hash, racy } = row;
    (path, Known { stamp: Stamp { device, inode, size, mtime_ns, ctime_ns, mode }, hash, racy })
}

#[cfg(test)]
mod tests;
