//! A transaction over several files, executed step by step for the whole group: write every new file under a temporary
//! name, make them durable, exchange each with its target, sync each directory once, and then displace the old files.
//!
//! A group thus waits for the disk a few times rather than twice per file. Until the last step every old file still
//! exists under its temporary name, and a rollback moves it back. A crash in between leaves each file in its old or its
//! new state, and the journal knows both states and the temporary name.

use std::collections::HashSet;
use std::fs::File;
use std::path::Path;

use rustix::fs::Stat;

use super::{PlannedChange, ProgressCallback, Workspace};
use crate::disk::bulk_sync::{BulkSync, BulkSyncCondition};
use crate::disk::displaced_files::DisplacedDir;
use crate::disk::replace::tail::write_tail;
use crate::disk::replace::{self, ExpectedFile, LateWrite, ReplaceError, Replacement, TempRemoval};
use crate::roots::{AdmitError, FileLocation, Roots};
use bowline_storage::disk_calls::DiskCalls;

/// How many files are open at a time, and how many directories: a group may have more than a process may have handles.
const MAX_OPEN_FILES: usize = 64;

/// One file to change, and how.
#[derive(Debug, Clone, Copy)]
pub(in crate::workspace) struct ChangeJob<'a> {
    pub(in crate::workspace) change: &'a PlannedChange,
    pub(in crate::workspace) temp: &'a str,
    pub(in crate::workspace) in_place: bool,
}

impl<'a> ChangeJob<'a> {
    fn expected(&self) -> Option<ExpectedFile<'a>> {
        self.change.current.as_ref().map(super::CurrentFile::as_expected)
    }

    fn replacement(&self) -> Option<Replacement<'a>> {
        self.change.new.as_ref().map(|new| Replacement { bytes: &new.bytes, mode: new.mode })
    }
}

/// The result for one file.
#[derive(Debug)]
pub(in crate::workspace) struct FileOutcome {
    pub(in crate::workspace) stat: Option<Stat>,
    // No temporary file is left behind.
    pub(in crate::workspace) is_clean: bool,
}

/// Why a group failed.
#[derive(Debug)]
pub(in crate::workspace) struct TransactionFailure {
    // The file that caused the failure.
    pub(super) index: usize,
    pub(super) why: FileChangeError,
    // All files are as they were.
    pub(super) is_rolled_back: bool,
}

/// Why a file was not changed.
#[derive(Debug, thiserror::Error)]
pub(super) enum FileChangeError {
    #[error(transparent)]
    Admit(#[from] AdmitError),
    #[error(transparent)]
    Replace(#[from] ReplaceError),
}

/// How far the change of a file has progressed.
#[derive(Debug)]
enum FileProgress {
    Untouched,
    /// The new file exists under the temporary name.
    Prepared,
    /// The new file is in place, and the old one has the temporary name.
    Installed(Stat),
    /// The file was written in place.
    WrittenInPlace(Stat),
    /// The end of the file was written in place.
    TailWritten(Stat),
    /// The old file, which is being deleted, has the temporary name.
    MovedAside,
}

/// A group of changes in progress.
pub(in crate::workspace) struct FileTransaction<'a> {
    roots: &'a Roots,
    journal_directory: &'a Path,
    calls: &'a DiskCalls,
    bulk_sync: BulkSyncCondition,
    jobs: &'a [ChangeJob<'a>],
    report_progress: ProgressCallback<'a>,
    late_writes: &'a mut Vec<(usize, LateWrite)>,
    // Invariant: as long as `jobs`, as are `new_files` and `progress`. Holds at most `MAX_OPEN_FILES` directories,
    // besides those created for its files.
    locations: Vec<Option<FileLocation>>,
    // The new files under their temporary names; none if the group is synced as a whole. They are closed once
    // installed: a process that has a file open for writing cannot detect other writers.
    new_files: Vec<Option<File>>,
    progress: Vec<FileProgress>,
    // The files for which directories were created, and how many.
    created_directories: Vec<(usize, usize)>,
}

type FailureAt = (usize, FileChangeError);

fn failed_at<E: Into<FileChangeError>>(at: usize) -> impl FnOnce(E) -> FailureAt {
    move |why| (at, why.into())
}

impl<'a> FileTransaction<'a> {
    /// Prepares to change files. Writes by other programs in the meantime are collected in `late`.
    pub(in crate::workspace) fn new(
        workspace: &'a Workspace,
        roots: &'a Roots,
        jobs: &'a [ChangeJob<'a>],
        tell: ProgressCallback<'a>,
        late: &'a mut Vec<(usize, LateWrite)>,
    ) -> Self {
        let open = jobs.iter().map(|_| None).collect();
        let files = jobs.iter().map(|_| None).collect();
        let reached = jobs.iter().map(|_| FileProgress::Untouched).collect();
        Self {
            roots,
            journal_directory: &workspace.inner.journal_directory,
            calls: &workspace.inner.calls,
            bulk_sync: workspace.inner.options.bulk_sync,
            jobs,
            report_progress: tell,
            late_writes: late,
            locations: open,
            new_files: files,
            progress: reached,
            created_directories: Vec::new(),
        }
    }

    /// Changes all files, or none.
    pub(in crate::workspace) fn run(mut self) -> Result<Vec<FileOutcome>, TransactionFailure> {
        let changed =
            self.prepare_files().and_then(|()| self.install_files()).and_then(|()| self.sync_directories());
        match changed {
            Ok(()) => self.displace_old_files(),
            Err((at, why)) => {
                let is_back = (0..self.jobs.len()).rev().all(|at| self.roll_back_file(at));
                self.remove_created_directories();
                Err(TransactionFailure { index: at, why, is_rolled_back: is_back })
            }
        }
    }

    fn prepare_files(&mut self) -> Result<(), FailureAt> {
        let (count, calls) = (self.jobs.len(), self.calls);
        let mut open_directories = 0;
        let is_bulk = count > MAX_OPEN_FILES || self.bulk_sync == BulkSyncCondition::Always;
        let mut bulk_sync = BulkSync::default();
        for first in (0..count).step_by(MAX_OPEN_FILES) {
            let mut written = Vec::new();
            for at in first..count.min(first + MAX_OPEN_FILES) {
                let job = self.jobs[at];
                let Some(new) = job.replacement() else { continue };
                let shared = self.locate_beside_previous(at);
                let is_shared = shared.is_some();
                let place = match shared {
                    Some(place) => place,
                    None => {
                        self.roots.locate_or_create(&job.change.admitted, calls).map_err(failed_at(at))?
                    }
                };
                if place.created_count() > 0 {
                    self.created_directories.push((at, place.created_count()));
                }
                if !job.in_place {
                    let file = replace::write_replacement(&place, job.expected(), new, job.temp, calls);
                    let file = file.map_err(failed_at(at))?;
                    self.progress[at] = FileProgress::Prepared;
                    written.push((at, file));
                }
                if is_shared || open_directories < MAX_OPEN_FILES {
                    open_directories += usize::from(!is_shared);
                    self.locations[at] = Some(place);
                }
            }
            if is_bulk {
                for (at, file) in written {
                    bulk_sync.add(file).map_err(ReplaceError::System).map_err(failed_at(at))?;
                }
                continue;
            }
            if let [_, _, ..] = &written[..] {
                written.iter().for_each(|(_, file)| replace::begin_sync(file));
            }
            for (at, file) in written {
                replace::sync(&file, calls).map_err(ReplaceError::System).map_err(failed_at(at))?;
                self.new_files[at] = Some(file);
            }
        }
        if is_bulk && !bulk_sync.run(self.bulk_sync, calls) {
            self.sync_each_file()?;
        }
        Ok(())
    }

    /// Makes the new files durable, one by one.
    fn sync_each_file(&self) -> Result<(), FailureAt> {
        let prepared = |at: &usize| matches!(self.progress[*at], FileProgress::Prepared);
        for at in (0..self.jobs.len()).filter(prepared) {
            let sync = |place: &FileLocation| replace::sync(&place.open(self.jobs[at].temp)?, self.calls);
            self.with_location(at, sync)
                .and_then(|synced| Ok(synced.map_err(ReplaceError::System)?))
                .map_err(failed_at(at))?;
        }
        Ok(())
    }

    /// Returns the location of a file, if it is in the directory of the file before it.
    fn locate_beside_previous(&self, at: usize) -> Option<FileLocation> {
        let previous = at.checked_sub(1)?;
        let place = self.locations[previous].as_ref()?;
        let neighbour = (&self.jobs[previous].change.admitted, place);
        self.roots.locate_beside(&self.jobs[at].change.admitted, neighbour)
    }

    fn install_files(&mut self) -> Result<(), FailureAt> {
        for at in 0..self.jobs.len() {
            let mut found = Vec::new();
            let file = self.new_files[at].take();
            let put = self.install_file(at, file, &mut found);
            self.late_writes.extend(found.into_iter().map(|late| (at, late)));
            // A failed step has undone its own work or leaves it to recovery.
            self.progress[at] = FileProgress::Untouched;
            self.progress[at] = put.map_err(failed_at(at))?;
            if let Some(place) = &self.locations[at]
                && !self.shares_directory_with_next(at)
            {
                self.check_location(at, place).map_err(failed_at(at))?;
            }
            if let Some(tell) = self.report_progress {
                tell(at + 1, self.jobs.len());
            }
        }
        Ok(())
    }

    /// Checks that a file is at its path. Its directory may have been moved since it was opened, even out of its root.
    fn check_location(&self, at: usize, place: &FileLocation) -> Result<(), FileChangeError> {
        let admitted = &self.jobs[at].change.admitted;
        if self.roots.is_current_location(admitted, place) {
            return Ok(());
        }
        Err(AdmitError::KeepsChanging(admitted.requested_path().to_owned()).into())
    }

    fn shares_directory_with_next(&self, at: usize) -> bool {
        let next = self.locations.get(at + 1).and_then(Option::as_ref);
        self.locations[at].as_ref().zip(next).is_some_and(|(here, next)| here.shares_directory(next))
    }

    fn install_file(
        &self,
        at: usize,
        file: Option<File>,
        late: &mut Vec<LateWrite>,
    ) -> Result<FileProgress, FileChangeError> {
        let (job, calls) = (self.jobs[at], self.calls);
        let anew;
        let place = match &self.locations[at] {
            Some(place) => place,
            None => {
                anew = self.locate(at)?;
                &anew
            }
        };
        let reached = match (job.replacement(), job.expected()) {
            (Some(new), Some(old)) if job.in_place => {
                FileProgress::WrittenInPlace(replace::write_in_place(place, old, new, calls, late)?)
            }
            (Some(new), old) => {
                let file = match file {
                    Some(file) => file,
                    None => place.open(job.temp).map_err(|why| ReplaceError::Interrupted(why.into()))?,
                };
                FileProgress::Installed(replace::install(
                    place,
                    old,
                    (&file, new.bytes),
                    job.temp,
                    calls,
                    late,
                )?)
            }
            (None, Some(old)) => {
                replace::move_aside(place, old, job.temp, calls)?;
                FileProgress::MovedAside
            }
            (None, None) => match &job.change.tail {
                Some(tail) => {
                    let edit = (tail.edit, tail.bytes.as_slice());
                    FileProgress::TailWritten(write_tail(place, &tail.stat, edit, calls)?)
                }
                None => FileProgress::Untouched,
            },
        };
        // A directory that stays open is checked after the last of its files. This one could not be found again.
        if self.locations[at].is_none()
            && let Err(moved) = self.check_location(at, place)
        {
            self.revert_file(at, place, &reached, late)?;
            return Err(moved);
        }
        Ok(reached)
    }

    /// Restores a file to its previous state, given its directory.
    fn revert_file(
        &self,
        at: usize,
        place: &FileLocation,
        reached: &FileProgress,
        late: &mut Vec<LateWrite>,
    ) -> Result<(), ReplaceError> {
        let (job, calls) = (self.jobs[at], self.calls);
        let now = |stat| job.replacement().map(|new| ExpectedFile { stat, bytes: new.bytes });
        match (reached, job.expected()) {
            (FileProgress::Untouched, _) => Ok(()),
            (FileProgress::Prepared, _) => {
                replace::remove_temp(place, job.temp, calls).map_err(ReplaceError::Interrupted)
            }
            (FileProgress::MovedAside, _) => {
                replace::rename_back(place, job.temp, calls).map_err(ReplaceError::Interrupted)
            }
            (FileProgress::TailWritten(stat), _) => job.change.tail.as_ref().map_or(Ok(()), |tail| {
                let back = (tail.edit.inverse(), tail.bytes.as_slice());
                write_tail(place, stat, back, calls).map(drop)
            }),
            (FileProgress::WrittenInPlace(stat), Some(was)) => now(stat).map_or(Ok(()), |now| {
                let was = Replacement { bytes: was.bytes, mode: Some(was.stat.st_mode & 0o7777) };
                replace::write_in_place(place, now, was, calls, late).map(|_| ())
            }),
            (FileProgress::WrittenInPlace(stat) | FileProgress::Installed(stat), was) => now(stat)
                .map_or(Ok(()), |now| {
                    replace::restore_old(place, now, was, job.temp, self.displaced_dir(at), calls, late)
                }),
        }
    }

    /// Returns the directory for the old file.
    fn displaced_dir(&self, at: usize) -> DisplacedDir<'_> {
        let admitted = &self.jobs[at].change.admitted;
        DisplacedDir::new(self.journal_directory, self.roots.root_handle(admitted), admitted.canonical())
    }

    fn sync_directories(&mut self) -> Result<(), FailureAt> {
        let mut synced = HashSet::new();
        let mut previous: Option<&FileLocation> = None;
        for at in self.renamed_files() {
            let here = self.locations[at].as_ref();
            if here.zip(previous).is_some_and(|(here, previous)| here.shares_directory(previous)) {
                continue;
            }
            previous = here;
            let sync = |place: &FileLocation| {
                let stat = rustix::fs::fstat(place.directory()).map_err(std::io::Error::from)?;
                if synced.insert((stat.st_dev, stat.st_ino)) {
                    replace::sync_directory(place, self.calls)?;
                }
                Ok(())
            };
            self.with_location(at, sync)
                .and_then(|synced| Ok(synced.map_err(ReplaceError::System)?))
                .map_err(failed_at(at))?;
        }
        for at in self.renamed_files() {
            let (FileProgress::MovedAside, Some(old)) = (&self.progress[at], self.jobs[at].expected()) else {
                continue;
            };
            let same =
                self.with_location(at, |place| replace::is_unchanged_aside(place, old, self.jobs[at].temp));
            let same =
                same.and_then(|same| Ok(same.map_err(ReplaceError::System)?)).map_err(failed_at(at))?;
            if !same {
                return Err((at, ReplaceError::Raced.into()));
            }
        }
        Ok(())
    }

    /// Moves the old files out of the way. From here on there is no rollback.
    fn displace_old_files(self) -> Result<Vec<FileOutcome>, TransactionFailure> {
        let mut done = Vec::new();
        for (at, job) in self.jobs.iter().enumerate() {
            let mut found = Vec::new();
            let removed = match (&self.progress[at], job.expected()) {
                (FileProgress::Installed(_) | FileProgress::MovedAside, Some(old)) => {
                    self.with_location(at, |place| {
                        let displaced = self.displaced_dir(at);
                        replace::displace(place, old, job.temp, displaced, self.calls, &mut found)
                    })
                }
                _ => Ok(Ok(TempRemoval::Done)),
            };
            self.late_writes.extend(found.into_iter().map(|late| (at, late)));
            let removed = match removed {
                Ok(Ok(removed)) => removed,
                Ok(Err(why)) => {
                    return Err(TransactionFailure {
                        index: at,
                        why: ReplaceError::Interrupted(why).into(),
                        is_rolled_back: false,
                    });
                }
                Err(why) => return Err(TransactionFailure { index: at, why, is_rolled_back: false }),
            };
            let stat = match self.progress[at] {
                FileProgress::Installed(stat)
                | FileProgress::WrittenInPlace(stat)
                | FileProgress::TailWritten(stat) => Some(stat),
                FileProgress::Untouched | FileProgress::Prepared | FileProgress::MovedAside => None,
            };
            done.push(FileOutcome { stat, is_clean: matches!(removed, TempRemoval::Done) });
        }
        Ok(done)
    }

    /// Restores a file to its previous state, regardless of its progress. Returns whether that succeeded.
    fn roll_back_file(&mut self, at: usize) -> bool {
        let mut found = Vec::new();
        let back =
            self.with_location(at, |place| self.revert_file(at, place, &self.progress[at], &mut found));
        self.late_writes.extend(found.into_iter().map(|late| (at, late)));
        matches!(back, Ok(Ok(()))) || matches!(self.progress[at], FileProgress::Untouched)
    }

    /// Removes the directories that were created, as far as they are empty.
    fn remove_created_directories(&mut self) {
        for (at, count) in std::mem::take(&mut self.created_directories).into_iter().rev() {
            let path = self.jobs[at].change.admitted.canonical();
            let parents = path.rmatch_indices('/').map(|(end, _)| &path[..end]);
            for directory in parents.take(count) {
                if !self.roots.remove_empty_directory(directory, self.calls) {
                    break;
                }
            }
        }
    }

    /// Returns the files that were renamed.
    fn renamed_files(&self) -> Vec<usize> {
        let is_moved =
            |at: &usize| matches!(self.progress[*at], FileProgress::Installed(_) | FileProgress::MovedAside);
        (0..self.jobs.len()).filter(is_moved).collect()
    }

    fn with_location<T>(
        &self,
        at: usize,
        act: impl FnOnce(&FileLocation) -> T,
    ) -> Result<T, FileChangeError> {
        match &self.locations[at] {
            Some(place) => Ok(act(place)),
            None => self.locate(at).map(|place| act(&place)),
        }
    }

    fn locate(&self, at: usize) -> Result<FileLocation, FileChangeError> {
        let place = self.roots.locate(&self.jobs[at].change.admitted)?;
        // The directory is gone, and the file with it.
        Ok(place.ok_or(ReplaceError::Raced)?)
    }
}
