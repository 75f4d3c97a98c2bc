//! Putting right what a crash interrupted: the journal knows the intent, the disk shows how far it came.

use std::fmt;
use std::fs::File;

use bowline_state::changes::{Change, ContentHash, FileState};
use bowline_state::failure::quote;
use bowline_state::paths::Access;
use bowline_state::recovery::{self, Remains, Repair, WriteMethod, judge};

use super::applying::steps::{Job, Steps};
use super::applying::{Bytes, Effect, NewFile, Telling};
use super::{Workspace, Writer};
use crate::calls::Calls;
use crate::disk;
use crate::displaced::{self, DisplacedFiles};
use crate::error::FilesError;
use crate::journal::{Journal, JournalError, Manner, Outcome, Pending};
use crate::replace::{self, New, Old};
use crate::roots::{Denied, Place, Roots};
use crate::writers::{self, Purpose, WriterState};

/// An interrupted write, and what became of it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Recovered {
    /// The change.
    pub change: Change,
    /// Whether it was done, or not, or nobody can tell because the file was changed since.
    pub outcome: recovery::Outcome,
}

impl fmt::Display for Recovered {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let path = quote(&self.change.path);
        match self.outcome {
            recovery::Outcome::Done => write!(f, "a write of {path} was interrupted, and is done"),
            recovery::Outcome::Abandoned => write!(f, "a write of {path} was interrupted: it was not done"),
            recovery::Outcome::Unknown => {
                write!(f, "a write of {path} was interrupted, and the file was changed since: look at it")
            }
        }
    }
}

impl Workspace {
    /// Puts right what was interrupted below some roots. What cannot be reached there stays for later.
    pub(super) fn recover(&self, writer: &mut Writer, roots: &Roots) -> Result<Vec<Recovered>, FilesError> {
        let _lock = writer.journal.lock()?;
        let pending = writer.journal.pending()?;
        let mut recovered = Vec::new();
        writer.interrupted = false;
        // What was begun together is at one moment by one origin.
        for group in pending.chunk_by(|one, next| {
            (one.change.at, &one.change.origin) == (next.change.at, &next.change.origin)
        }) {
            let mut outcomes: Vec<_> =
                group.iter().map(|pending| self.recover_one(writer, roots, pending)).collect();
            // A group is done whole or not at all; where some of it is done, the rest is, too.
            if outcomes.contains(&Some(recovery::Outcome::Done)) {
                for (pending, outcome) in group.iter().zip(&mut outcomes) {
                    if *outcome == Some(recovery::Outcome::Abandoned) {
                        let carried = self.carry_forward(writer, roots, pending);
                        *outcome = carried.then_some(recovery::Outcome::Done);
                    }
                }
            }
            // As long as one of them is open, all are: or the last would be judged without the others one day.
            let Some(outcomes) = outcomes.into_iter().collect::<Option<Vec<_>>>() else {
                writer.interrupted = true;
                continue;
            };
            let settled: Vec<_> = group
                .iter()
                .zip(&outcomes)
                .map(|(pending, outcome)| (pending.change.id, told(*outcome)))
                .collect();
            writer.journal.settle(&settled)?;
            let group = group.iter().zip(outcomes);
            recovered.extend(
                group.map(|(pending, outcome)| Recovered { change: pending.change.clone(), outcome }),
            );
        }
        Ok(recovered)
    }

    /// Does so if there is something to put right.
    pub(super) fn recover_interrupted(&self, writer: &mut Writer, roots: &Roots) -> Result<(), FilesError> {
        if writer.interrupted {
            self.recover(writer, roots)?;
        }
        Ok(())
    }

    fn recover_one(
        &self,
        writer: &mut Writer,
        roots: &Roots,
        pending: &Pending,
    ) -> Option<recovery::Outcome> {
        let change = &pending.change;
        let admitted = match roots.admit(&change.path, Access::Write) {
            // What made room for a file may be all that is left of its directory.
            Err(Denied::NotADirectory(_)) => return Some(without_directory(change)),
            admitted => admitted.ok()?,
        };
        // The name leads elsewhere by now, through a link.
        if admitted.canonical() != change.path {
            return None;
        }
        let (method, temp) = match &pending.manner {
            Manner::Rename { temp } if replace::is_temp_name(temp) => {
                (WriteMethod::Exchange, Some(temp.as_str()))
            }
            Manner::InPlace => (WriteMethod::InPlace, None),
            Manner::Rename { .. } | Manner::Found => {
                return Some(recovery::Outcome::Unknown);
            }
        };
        let Some(place) = roots.place(&admitted).ok()? else { return Some(without_directory(change)) };
        let cap = self.inner.settings.max_write;
        let temp_file = temp.map_or(Ok(None), |temp| contents(&place, temp, cap)).ok()?;
        let writers = temp_file.as_ref().map_or(WriterState::None, |(.., writers)| *writers);
        let displaced =
            DisplacedFiles::new(&self.inner.journal, roots.root_of(&admitted), admitted.canonical());
        if place.is_directory() {
            // The file is not coming back here. What still bears its temporary name is in the journal, or is put there.
            let left = temp.zip(temp_file.as_ref().map(|(_, bytes, _)| bytes));
            let is_removed = left.is_none_or(|(temp, bytes)| {
                let hash = Some(ContentHash::of(bytes));
                let is_known =
                    [change.before, change.after].iter().any(|side| side.map(|side| side.hash) == hash);
                (is_known || self.keep_text(writer, &change.path, (bytes, 0o644), None).is_ok())
                    && replace::remove(&place, temp, &self.inner.calls).is_ok()
            });
            return is_removed.then(|| without_directory(change));
        }
        let current = contents(&place, place.leaf(), cap).ok()?;
        // Without both texts nothing can be told, and nothing is touched.
        let journal = &writer.journal;
        let (before, after) = (kept(journal, change.before)?, kept(journal, change.after)?);
        if matches!((&before, &after), (Kept::Lost, _) | (_, Kept::Lost)) {
            return Some(recovery::Outcome::Unknown);
        }
        let bytes = |file: &Option<Contents>| file.as_ref().map(|(_, bytes, _)| bytes.clone());
        let (current_bytes, temp_bytes) = (bytes(&current), bytes(&temp_file));
        let remains = Remains {
            method,
            before: before.bytes(),
            after: after.bytes(),
            current: current_bytes.as_deref(),
            temp: temp_bytes.as_deref(),
        };
        let (outcome, repair) = judge(remains);
        let calls = &self.inner.calls;
        let repaired = match (repair, temp) {
            (Repair::Nothing, _) => true,
            (Repair::RemoveTemp, Some(temp)) => {
                displace(&place, temp, temp_bytes.as_deref(), displaced, calls)
            }
            (Repair::ExchangeBack, Some(temp)) => {
                replace::exchange_back(&place, temp, displaced, calls).is_ok()
            }
            (Repair::RenameBack, Some(temp)) => replace::rename_back(&place, temp, calls).is_ok(),
            // A program has it open for writing: what it has written when it is done is merged.
            (Repair::KeepTemp, Some(temp)) if writers.has_writer() => {
                displace(&place, temp, temp_bytes.as_deref(), displaced, calls)
            }
            (Repair::KeepTemp, Some(temp)) => {
                let kept = temp_bytes.as_deref().is_none_or(|bytes| {
                    let now = current_bytes.as_deref();
                    self.keep_text(writer, &change.path, (bytes, 0o644), now).is_ok()
                });
                kept && replace::remove(&place, temp, calls).is_ok()
            }
            (Repair::Finish, _) => match (&current, after.bytes()) {
                (Some((file, bytes, _)), Some(after)) => rustix::fs::fstat(file).is_ok_and(|stat| {
                    let new = New { bytes: after, mode: change.after.map(|after| after.mode) };
                    let mut late = Vec::new();
                    let old = Old { stat: &stat, bytes };
                    replace::in_place(&place, old, new, calls, &mut late).is_ok()
                        && late.into_iter().all(|late| self.bring_in(writer, roots, &admitted, late).is_ok())
                }),
                _ => false,
            },
            (_, None) => false,
        };
        repaired.then_some(outcome)
    }

    /// Makes a change that was not made, although others of its group were.
    fn carry_forward(&self, writer: &mut Writer, roots: &Roots, pending: &Pending) -> bool {
        let change = &pending.change;
        let (temp, in_place) = match &pending.manner {
            Manner::Rename { temp } => (temp.as_str(), false),
            Manner::InPlace => ("", true),
            Manner::Found => return false,
        };
        let effect = || -> Option<Effect> {
            let admitted = roots.admit(&change.path, Access::Write).ok()?;
            let current = self.load(roots, &admitted).ok()?;
            let before = kept(&writer.journal, change.before)?;
            let after = kept(&writer.journal, change.after)?;
            let new = match after {
                Kept::Bytes(bytes) => {
                    Some(NewFile { bytes: Bytes::Own(bytes), mode: change.after.map(|after| after.mode) })
                }
                Kept::Nothing => None,
                Kept::Lost => return None,
            };
            // Somebody else may have been here meanwhile.
            let is_before = current.as_ref().map(|current| current.bytes.as_slice()) == before.bytes();
            if !is_before || matches!(before, Kept::Lost) {
                return None;
            }
            Some(Effect { admitted, current, new, reverses: Vec::new() })
        };
        let Some(effect) = effect() else { return false };
        let mut late = Vec::new();
        let jobs = [Job { effect: &effect, temp, in_place }];
        let place = (roots, self.inner.journal.as_path());
        let done = Steps::new(place, &self.inner.calls, &jobs, Telling(None), &mut late).run();
        let done = done.is_ok_and(|done| done.iter().all(|done| done.is_clean));
        let brought =
            late.into_iter().all(|(_, late)| self.bring_in(writer, roots, &effect.admitted, late).is_ok());
        done && brought
    }
}

/// Says what became of a change of a file that cannot be there: its directory is gone, or one has its name.
fn without_directory(change: &Change) -> recovery::Outcome {
    match (&change.before, &change.after) {
        (_, None) => recovery::Outcome::Done,
        (None, Some(_)) => recovery::Outcome::Abandoned,
        (Some(_), Some(_)) => recovery::Outcome::Unknown,
    }
}

fn told(outcome: recovery::Outcome) -> Outcome {
    match outcome {
        recovery::Outcome::Done => Outcome::Done,
        recovery::Outcome::Abandoned => Outcome::Abandoned,
        recovery::Outcome::Unknown => Outcome::Unknown,
    }
}

/// One side of a change.
enum Kept {
    Nothing,
    Bytes(Vec<u8>),
    // There was a file, and its bytes are lost.
    Lost,
}

impl Kept {
    fn bytes(&self) -> Option<&[u8]> {
        match self {
            Self::Bytes(bytes) => Some(bytes),
            Self::Nothing | Self::Lost => None,
        }
    }
}

/// Returns a file as it was on one side of a change; nothing if that cannot be told now.
fn kept(journal: &Journal, state: Option<FileState>) -> Option<Kept> {
    let Some(state) = state else { return Some(Kept::Nothing) };
    match journal.blob(&state.hash) {
        Ok(Some(bytes)) => Some(Kept::Bytes(bytes)),
        Ok(None) | Err(JournalError::Damaged(_)) => Some(Kept::Lost),
        Err(_) => None,
    }
}

/// A file, its bytes, and whether a program is writing it.
type Contents = (File, Vec<u8>, WriterState);

/// Reads a file in a directory, if it is there, once no program is writing it.
fn contents(place: &Place, name: &str, cap: u64) -> Result<Option<Contents>, FilesError> {
    let file = match place.open(name) {
        Ok(file) => file,
        Err(rustix::io::Errno::NOENT) => return Ok(None),
        Err(why) => return Err(FilesError::system(name)(why.into())),
    };
    let (bytes, writers) = {
        let waited = writers::wait(&file, Purpose::Write);
        let (bytes, _) = disk::read_bytes(&file, cap).map_err(|fault| FilesError::read(name, fault))?;
        (bytes, waited.state)
    };
    Ok(Some((file, bytes, writers)))
}

/// Moves a file that lost its place out of the method. If a program may be writing to it, what it writes is merged later.
fn displace(place: &Place, temp: &str, bytes: Option<&[u8]>, to: DisplacedFiles<'_>, calls: &Calls) -> bool {
    if let (Ok(file), Some(bytes)) = (place.open(temp), bytes) {
        let waited = writers::wait(&file, Purpose::Write);
        if !waited.state.has_writer() && replace::holds(&file, bytes).is_ok_and(|holds| holds) {
            displaced::mark_untouched(&file);
        }
    }
    to.take_in(place, temp, calls).is_ok()
}
