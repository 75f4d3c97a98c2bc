//! Changing files together, one step after the other for all of them: every new file is written beside, then all are made
//! durable, then each gets its place, then the names are made durable, a directory at a time, and then the old files go.
//!
//! So a group waits for the disk a few times, not twice for each file. Until the last step every old file is there under its
//! temporary name, and the way back is to let it have its place again. Whoever dies in between leaves each file as it was or
//! as it is to be, and the journal knows both and the temporary name.

use std::collections::HashSet;
use std::fs::File;
use std::path::Path;

use rustix::fs::Stat;

use super::{Effect, Telling};
use crate::calls::Calls;
use crate::displaced::DisplacedFiles;
use crate::replace::{self, Failed, Late, New, Old, Removed};
use crate::roots::{Denied, Place, Roots};

/// So many files are open at a time: a group may have more files than a process may have handles.
const OPEN: usize = 64;

/// One file to be changed, and how.
#[derive(Debug, Clone, Copy)]
pub(in crate::workspace) struct Job<'a> {
    pub(in crate::workspace) effect: &'a Effect,
    pub(in crate::workspace) temp: &'a str,
    pub(in crate::workspace) in_place: bool,
}

impl<'a> Job<'a> {
    fn old(&self) -> Option<Old<'a>> {
        self.effect.current.as_ref().map(super::Current::old)
    }

    fn wanted(&self) -> Option<New<'a>> {
        self.effect.new.as_ref().map(|new| New { bytes: &new.bytes, mode: new.mode })
    }
}

/// What became of a file.
#[derive(Debug)]
pub(in crate::workspace) struct Done {
    pub(in crate::workspace) stat: Option<Stat>,
    // Nothing is left lying about.
    pub(in crate::workspace) is_clean: bool,
}

/// Why a group came to a halt.
#[derive(Debug)]
pub(in crate::workspace) struct Halted {
    // Which of the files is to blame.
    pub(super) at: usize,
    pub(super) why: NotPerformed,
    // All files are as they were.
    pub(super) is_back: bool,
}

/// Why a file was not changed.
#[derive(Debug, thiserror::Error)]
pub(super) enum NotPerformed {
    #[error(transparent)]
    Denied(#[from] Denied),
    #[error(transparent)]
    Failed(#[from] Failed),
}

/// How far a file has come.
#[derive(Debug)]
enum Reached {
    Nothing,
    /// The new one lies beside.
    Beside,
    /// The new one is in its place, and the old one has the temporary name.
    Placed(Stat),
    /// The file itself was written.
    Written(Stat),
    /// It has the temporary name.
    Taken,
}

/// A group that is being changed.
pub(in crate::workspace) struct Steps<'a> {
    roots: &'a Roots,
    // The directory of the journal.
    journal: &'a Path,
    calls: &'a Calls,
    jobs: &'a [Job<'a>],
    tell: Telling<'a>,
    late: &'a mut Vec<(usize, Late)>,
    // Invariant: as long as `jobs`, as are `files` and `reached`. In a larger group than may be open nothing is kept.
    open: Vec<Option<Place>>,
    // The new files that lie beside. They are closed once they have their places: who has a file open for writing cannot
    // tell whether others have.
    files: Vec<Option<File>>,
    reached: Vec<Reached>,
    // For which file directories were made, and how many.
    made: Vec<(usize, usize)>,
}

type Stop = (usize, NotPerformed);

fn stopped<E: Into<NotPerformed>>(at: usize) -> impl FnOnce(E) -> Stop {
    move |why| (at, why.into())
}

impl<'a> Steps<'a> {
    /// Prepares to change files. What somebody writes into one of them meanwhile goes to `late`.
    pub(in crate::workspace) fn new(
        (roots, journal): (&'a Roots, &'a Path),
        calls: &'a Calls,
        jobs: &'a [Job<'a>],
        tell: Telling<'a>,
        late: &'a mut Vec<(usize, Late)>,
    ) -> Self {
        let open = jobs.iter().map(|_| None).collect();
        let files = jobs.iter().map(|_| None).collect();
        let reached = jobs.iter().map(|_| Reached::Nothing).collect();
        Self { roots, journal, calls, jobs, tell, late, open, files, reached, made: Vec::new() }
    }

    /// Changes all of them, or none.
    pub(in crate::workspace) fn run(mut self) -> Result<Vec<Done>, Halted> {
        let changed = self.write_beside().and_then(|()| self.put()).and_then(|()| self.make_durable());
        match changed {
            Ok(()) => self.clean_up(),
            Err((at, why)) => {
                let is_back = (0..self.jobs.len()).rev().all(|at| self.take_back(at));
                self.remove_made();
                Err(Halted { at, why, is_back })
            }
        }
    }

    fn write_beside(&mut self) -> Result<(), Stop> {
        let (count, calls) = (self.jobs.len(), self.calls);
        for first in (0..count).step_by(OPEN) {
            let mut written = Vec::new();
            for at in first..count.min(first + OPEN) {
                let job = self.jobs[at];
                let Some(new) = job.wanted() else { continue };
                let place = self.roots.create_place(&job.effect.admitted, calls).map_err(stopped(at))?;
                if place.created() > 0 {
                    self.made.push((at, place.created()));
                }
                if !job.in_place {
                    let file = replace::write_beside(&place, job.old(), new, job.temp, calls);
                    let file = file.map_err(stopped(at))?;
                    self.reached[at] = Reached::Beside;
                    written.push((at, place, file));
                }
            }
            if let [_, _, ..] = &written[..] {
                written.iter().for_each(|(_, _, file)| replace::begin_sync(file));
            }
            for (at, place, file) in written {
                replace::sync(&file, calls).map_err(Failed::Undone).map_err(stopped(at))?;
                if count <= OPEN {
                    (self.open[at], self.files[at]) = (Some(place), Some(file));
                }
            }
        }
        Ok(())
    }

    fn put(&mut self) -> Result<(), Stop> {
        for at in 0..self.jobs.len() {
            let mut found = Vec::new();
            let file = self.files[at].take();
            let put = self.put_one(at, file, &mut found);
            self.late.extend(found.into_iter().map(|late| (at, late)));
            // Who fails has put things right, or they are for the journal to put right.
            self.reached[at] = Reached::Nothing;
            self.reached[at] = put.map_err(stopped(at))?;
            if let Some(tell) = self.tell.0 {
                tell(at + 1, self.jobs.len());
            }
        }
        Ok(())
    }

    fn put_one(&self, at: usize, file: Option<File>, late: &mut Vec<Late>) -> Result<Reached, NotPerformed> {
        let (job, calls) = (self.jobs[at], self.calls);
        let anew;
        let place = match &self.open[at] {
            Some(place) => place,
            None => {
                anew = self.place(at)?;
                &anew
            }
        };
        let reached = match (job.wanted(), job.old()) {
            (Some(new), Some(old)) if job.in_place => {
                Reached::Written(replace::in_place(place, old, new, calls, late)?)
            }
            (Some(new), old) => {
                let file = match file {
                    Some(file) => file,
                    None => place.open(job.temp).map_err(|why| Failed::Interrupted(why.into()))?,
                };
                Reached::Placed(replace::put(place, old, (&file, new.bytes), job.temp, calls, late)?)
            }
            (None, Some(old)) => {
                replace::take_away(place, old, job.temp, calls)?;
                Reached::Taken
            }
            (None, None) => Reached::Nothing,
        };
        // The directory may have been moved since it was opened, even out of its root: then the file is not where it was
        // to be.
        if self.roots.leads_to(&job.effect.admitted, place) {
            return Ok(reached);
        }
        self.revert(at, place, &reached, late)?;
        Err(Denied::Unsteady(job.effect.admitted.asked().to_owned()).into())
    }

    /// Puts a file back as it was, given the directory that it is in.
    fn revert(
        &self,
        at: usize,
        place: &Place,
        reached: &Reached,
        late: &mut Vec<Late>,
    ) -> Result<(), Failed> {
        let (job, calls) = (self.jobs[at], self.calls);
        let now = |stat| job.wanted().map(|new| Old { stat, bytes: new.bytes });
        match (reached, job.old()) {
            (Reached::Nothing, _) => Ok(()),
            (Reached::Beside, _) => replace::remove(place, job.temp, calls).map_err(Failed::Interrupted),
            (Reached::Taken, _) => replace::rename_back(place, job.temp, calls).map_err(Failed::Interrupted),
            (Reached::Written(stat), Some(was)) => now(stat).map_or(Ok(()), |now| {
                let was = New { bytes: was.bytes, mode: Some(was.stat.st_mode & 0o7777) };
                replace::in_place(place, now, was, calls, late).map(|_| ())
            }),
            (Reached::Written(stat) | Reached::Placed(stat), was) => now(stat).map_or(Ok(()), |now| {
                replace::put_back(place, now, was, job.temp, self.displaced(at), calls, late)
            }),
        }
    }

    /// Returns where the old file goes.
    fn displaced(&self, at: usize) -> DisplacedFiles<'_> {
        let admitted = &self.jobs[at].effect.admitted;
        DisplacedFiles::new(self.journal, self.roots.root_of(admitted), admitted.canonical())
    }

    fn make_durable(&mut self) -> Result<(), Stop> {
        let mut synced = HashSet::new();
        for at in self.moved() {
            let sync = |place: &Place| {
                let stat = rustix::fs::fstat(place.directory()).map_err(std::io::Error::from)?;
                if synced.insert((stat.st_dev, stat.st_ino)) {
                    replace::sync_directory(place, self.calls)?;
                }
                Ok(())
            };
            self.at_place(at, sync)
                .and_then(|synced| Ok(synced.map_err(Failed::Undone)?))
                .map_err(stopped(at))?;
        }
        for at in self.moved() {
            let (Reached::Taken, Some(old)) = (&self.reached[at], self.jobs[at].old()) else { continue };
            let same = self.at_place(at, |place| replace::is_as_taken(place, old, self.jobs[at].temp));
            let same = same.and_then(|same| Ok(same.map_err(Failed::Undone)?)).map_err(stopped(at))?;
            if !same {
                return Err((at, Failed::Raced.into()));
            }
        }
        Ok(())
    }

    /// Lets the old files go. From here on there is no way back.
    fn clean_up(self) -> Result<Vec<Done>, Halted> {
        let mut done = Vec::new();
        for (at, job) in self.jobs.iter().enumerate() {
            let mut found = Vec::new();
            let old = job.old();
            let removed = self.at_place(at, |place| match (&self.reached[at], old) {
                (Reached::Placed(_) | Reached::Taken, Some(old)) => {
                    replace::displace(place, old, job.temp, self.displaced(at), self.calls, &mut found)
                }
                _ => Ok(Removed::Yes),
            });
            self.late.extend(found.into_iter().map(|late| (at, late)));
            let removed = match removed {
                Ok(Ok(removed)) => removed,
                Ok(Err(why)) => {
                    return Err(Halted { at, why: Failed::Interrupted(why).into(), is_back: false });
                }
                Err(why) => return Err(Halted { at, why, is_back: false }),
            };
            let stat = match self.reached[at] {
                Reached::Placed(stat) | Reached::Written(stat) => Some(stat),
                Reached::Nothing | Reached::Beside | Reached::Taken => None,
            };
            done.push(Done { stat, is_clean: matches!(removed, Removed::Yes) });
        }
        Ok(done)
    }

    /// Puts a file back as it was, however far it has come. Says whether it could be.
    fn take_back(&mut self, at: usize) -> bool {
        let mut found = Vec::new();
        let back = self.at_place(at, |place| self.revert(at, place, &self.reached[at], &mut found));
        self.late.extend(found.into_iter().map(|late| (at, late)));
        matches!(back, Ok(Ok(()))) || matches!(self.reached[at], Reached::Nothing)
    }

    /// Removes the directories that were made, as far as they are empty.
    fn remove_made(&mut self) {
        for (at, count) in std::mem::take(&mut self.made).into_iter().rev() {
            let path = self.jobs[at].effect.admitted.canonical();
            let parents = path.rmatch_indices('/').map(|(end, _)| &path[..end]);
            for directory in parents.take(count) {
                if !self.roots.remove_empty(directory, self.calls) {
                    break;
                }
            }
        }
    }

    /// Returns the files that have got or lost a name.
    fn moved(&self) -> Vec<usize> {
        let is_moved = |at: &usize| matches!(self.reached[*at], Reached::Placed(_) | Reached::Taken);
        (0..self.jobs.len()).filter(is_moved).collect()
    }

    fn at_place<T>(&self, at: usize, act: impl FnOnce(&Place) -> T) -> Result<T, NotPerformed> {
        match &self.open[at] {
            Some(place) => Ok(act(place)),
            None => self.place(at).map(|place| act(&place)),
        }
    }

    fn place(&self, at: usize) -> Result<Place, NotPerformed> {
        let place = self.roots.place(&self.jobs[at].effect.admitted)?;
        // The directory is gone, and the file with it.
        Ok(place.ok_or(Failed::Raced)?)
    }
}
