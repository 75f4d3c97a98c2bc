//! Recovery of interrupted writes: the journal has the intended change, and the disk shows how far it got.

use std::fmt;
use std::fs::File;

use bowline_history::changes::{Change, ChangeOutcome, FileState};
use bowline_history::recovery::{
    InterruptedTail, InterruptedWrite, Repair, TailRepair, WriteMethod, decide_recovery, decide_tail_recovery,
};
use bowline_policy::paths::Access;
use bowline_text::display::quote;
use bowline_text::hash::ContentHash;
use rustix::io::Errno;

use super::apply::transaction::{ChangeJob, FileTransaction};
use super::apply::{FileBytes, NewFile, PlannedChange, TailChange, read_current};
use super::batch::directories::recover_directories;
use super::kept_texts::keep_text;
use super::late_writes::merge_late_write;
use super::{Workspace, WorkspaceWriter};
use crate::disk;
use crate::disk::content_scan::hash_start;
use crate::disk::displaced_files::{self, DisplacedDir};
use crate::disk::replace::tail::{TailEdit, complete_tail};
use crate::disk::replace::{self, ExpectedFile, Replacement};
use crate::disk::writers::{self, WaitPurpose, WriterState};
use crate::error::FilesError;
use crate::journal::{ApplyMethod, Journal, JournalError, PendingChange};
use crate::roots::{AdmitError, AdmittedPath, FileLocation, Roots};
use bowline_storage::disk_calls::DiskCalls;

/// An interrupted write, and its outcome.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RecoveredWrite {
    /// The change.
    pub change: Change,
    /// Whether it was done, abandoned, or is unknown because the file changed since.
    pub outcome: ChangeOutcome,
}

impl fmt::Display for RecoveredWrite {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let path = quote(&self.change.path);
        match self.outcome {
            ChangeOutcome::Done => write!(f, "a write of {path} was interrupted, and is done"),
            ChangeOutcome::Abandoned => {
                write!(f, "a write of {path} was interrupted: it was not done")
            }
            ChangeOutcome::Unknown => {
                write!(f, "a write of {path} was interrupted, and the file was changed since: look at it")
            }
        }
    }
}

/// Recovers interrupted writes below some roots. Changes outside of them stay pending.
pub(super) fn recover_writes(
    workspace: &Workspace,
    writer: &mut WorkspaceWriter,
    roots: &Roots,
) -> Result<Vec<RecoveredWrite>, FilesError> {
    let _lock = writer.journal.lock()?;
    let pending = writer.journal.pending_changes()?;
    let mut recovered = Vec::new();
    writer.needs_recovery = false;
    // Changes begun together share their time and origin.
    for group in pending
        .chunk_by(|one, next| (one.change.at, &one.change.origin) == (next.change.at, &next.change.origin))
    {
        let mut outcomes: Vec<_> =
            group.iter().map(|pending| recover_change(workspace, writer, roots, pending)).collect();
        // A group is applied as a whole: if part of it is done, the rest is completed.
        if outcomes.contains(&Some(ChangeOutcome::Done)) {
            for (pending, outcome) in group.iter().zip(&mut outcomes) {
                if *outcome == Some(ChangeOutcome::Abandoned) {
                    let carried = complete_change(workspace, writer, roots, pending);
                    *outcome = carried.then_some(ChangeOutcome::Done);
                }
            }
        }
        // The group stays pending as a whole while one of its changes is undecided; otherwise that one would later
        // be judged without the others.
        let Some(outcomes) = outcomes.into_iter().collect::<Option<Vec<_>>>() else {
            writer.needs_recovery = true;
            continue;
        };
        let settled: Vec<_> =
            group.iter().zip(&outcomes).map(|(pending, outcome)| (pending.change.id, *outcome)).collect();
        writer.journal.settle(&settled)?;
        let group = group.iter().zip(outcomes);
        recovered.extend(
            group.map(|(pending, outcome)| RecoveredWrite { change: pending.change.clone(), outcome }),
        );
    }
    // The outcome of a batch's files decides that of its directories.
    if !writer.needs_recovery {
        recover_directories(workspace, writer, roots);
    }
    Ok(recovered)
}

/// Recovers interrupted writes, if there are any.
pub(super) fn recover_interrupted(
    workspace: &Workspace,
    writer: &mut WorkspaceWriter,
    roots: &Roots,
) -> Result<(), FilesError> {
    if writer.needs_recovery {
        recover_writes(workspace, writer, roots)?;
    }
    Ok(())
}

fn recover_change(
    workspace: &Workspace,
    writer: &mut WorkspaceWriter,
    roots: &Roots,
    pending: &PendingChange,
) -> Option<ChangeOutcome> {
    let change = &pending.change;
    let admitted = match roots.admit(&change.path, Access::Write) {
        // A file may now stand where the change's directory was.
        Err(AdmitError::NotADirectory(_)) => return Some(outcome_without_directory(change)),
        admitted => admitted.ok()?,
    };
    // The path now leads elsewhere, through a link.
    if admitted.canonical() != change.path {
        return None;
    }
    if let ApplyMethod::Tail(bytes) = &pending.method {
        return recover_tail(workspace, roots, (&admitted, change), bytes);
    }
    let (method, temp) = match &pending.method {
        ApplyMethod::Rename { temp } if replace::is_temp_name(temp) => {
            (WriteMethod::Exchange, Some(temp.as_str()))
        }
        ApplyMethod::InPlace => (WriteMethod::InPlace, None),
        ApplyMethod::Rename { .. } | ApplyMethod::Tail(_) | ApplyMethod::AlreadyApplied => {
            return Some(ChangeOutcome::Unknown);
        }
    };
    let Some(place) = roots.locate(&admitted).ok()? else {
        return Some(outcome_without_directory(change));
    };
    let cap = workspace.inner.options.max_write_bytes;
    let temp_file = temp.map_or(Ok(None), |temp| read_contents(&place, temp, cap)).ok()?;
    let writers = temp_file.as_ref().map_or(WriterState::None, |(.., writers)| *writers);
    let displaced = DisplacedDir::new(
        &workspace.inner.journal_directory,
        roots.root_handle(&admitted),
        admitted.canonical(),
    );
    if place.is_directory() {
        // The file cannot be restored here. The content of its temporary file is in the journal, or is added to it.
        let left = temp.zip(temp_file.as_ref().map(|(_, bytes, _)| bytes));
        let is_removed = left.is_none_or(|(temp, bytes)| {
            let hash = Some(ContentHash::digest(bytes));
            let is_known =
                [change.before, change.after].iter().any(|side| side.map(|side| side.hash) == hash);
            (is_known || keep_text(workspace, writer, &change.path, (bytes, 0o644), None).is_ok())
                && replace::remove_temp(&place, temp, &workspace.inner.calls).is_ok()
        });
        return is_removed.then(|| outcome_without_directory(change));
    }
    let current = read_contents(&place, place.file_name(), cap).ok()?;
    // Without both texts the outcome cannot be determined, and nothing is touched.
    let journal = &writer.journal;
    let (before, after) = (load_side(journal, change.before)?, load_side(journal, change.after)?);
    if matches!((&before, &after), (StoredSide::Lost, _) | (_, StoredSide::Lost)) {
        return Some(ChangeOutcome::Unknown);
    }
    let bytes = |file: &Option<OpenContents>| file.as_ref().map(|(_, bytes, _)| bytes.clone());
    let (current_bytes, temp_bytes) = (bytes(&current), bytes(&temp_file));
    let remains = InterruptedWrite {
        method,
        before: before.bytes(),
        after: after.bytes(),
        current: current_bytes.as_deref(),
        temp: temp_bytes.as_deref(),
    };
    let (outcome, repair) = decide_recovery(remains);
    let calls = &workspace.inner.calls;
    let repaired = match (repair, temp) {
        (Repair::None, _) => true,
        (Repair::RemoveTemp, Some(temp)) => {
            displace_temp(&place, temp, temp_bytes.as_deref(), displaced, calls)
        }
        (Repair::ExchangeBack, Some(temp)) => replace::exchange_back(&place, temp, displaced, calls).is_ok(),
        (Repair::RenameBack, Some(temp)) => replace::rename_back(&place, temp, calls).is_ok(),
        // A program has it open for writing: its text is merged once it has finished.
        (Repair::KeepTemp, Some(temp)) if writers.has_writer() => {
            displace_temp(&place, temp, temp_bytes.as_deref(), displaced, calls)
        }
        (Repair::KeepTemp, Some(temp)) => {
            let kept = temp_bytes.as_deref().is_none_or(|bytes| {
                let now = current_bytes.as_deref();
                keep_text(workspace, writer, &change.path, (bytes, 0o644), now).is_ok()
            });
            kept && replace::remove_temp(&place, temp, calls).is_ok()
        }
        (Repair::CompleteWrite, _) => match (&current, after.bytes()) {
            (Some((file, bytes, _)), Some(after)) => rustix::fs::fstat(file).is_ok_and(|stat| {
                let new = Replacement { bytes: after, mode: change.after.map(|after| after.mode) };
                let mut late = Vec::new();
                let old = ExpectedFile { stat: &stat, bytes };
                replace::write_in_place(&place, old, new, calls, &mut late).is_ok()
                    && late
                        .into_iter()
                        .all(|late| merge_late_write(workspace, writer, roots, &admitted, late).is_ok())
            }),
            _ => false,
        },
        (_, None) => false,
    };
    repaired.then_some(outcome)
}

/// Determines the outcome of an interrupted change of a file's end, and completes what was appended in part.
fn recover_tail(
    workspace: &Workspace,
    roots: &Roots,
    (admitted, change): (&AdmittedPath, &Change),
    tail: &[u8],
) -> Option<ChangeOutcome> {
    let unknown = Some(ChangeOutcome::Unknown);
    let (Some(before), Some(after)) = (change.before, change.after) else { return unknown };
    let Some(place) = roots.locate(admitted).ok()? else { return unknown };
    if place.is_directory() {
        return unknown;
    }
    // The part of the file that the change leaves alone.
    let kept = if before.size < after.size { before } else { after };
    let rest = match place.open(place.file_name()) {
        Ok(file) => {
            let _waited = writers::wait_for_writers(&file, WaitPurpose::Write);
            match hash_start(&file, kept.size, workspace.inner.options.max_write_bytes).ok()? {
                Some(hash) if hash == kept.hash => {
                    Some(disk::read_part(&file, kept.size, tail.len() + 1).ok()?)
                }
                Some(_) | None => None,
            }
        }
        Err(Errno::NOENT | Errno::LOOP | Errno::NXIO) => None,
        Err(_) => return None,
    };
    let is_append = before.size < after.size;
    let remains = InterruptedTail { is_append, tail, rest: rest.as_deref() };
    let (outcome, repair) = decide_tail_recovery(remains);
    let is_repaired = match (repair, rest) {
        (TailRepair::Complete, Some(rest)) => {
            let missing = &tail[rest.len()..];
            complete_tail(&place, (kept.size, &rest), missing, &workspace.inner.calls).is_ok()
        }
        _ => true,
    };
    is_repaired.then_some(outcome)
}

/// Plans the change of a file's end again, if the file is as before.
fn plan_tail(workspace: &Workspace, roots: &Roots, change: &Change, bytes: &[u8]) -> Option<PlannedChange> {
    let (before, after) = (change.before?, change.after?);
    let admitted = roots.admit(&change.path, Access::Write).ok()?;
    let (file, stat) = roots.open_file(&admitted).ok()?.ok()?;
    let writer_state = writers::wait_for_writers(&file, WaitPurpose::Write).state;
    let found = hash_start(&file, before.size, workspace.inner.options.max_write_bytes).ok()?;
    if found != Some(before.hash) || stat.st_size as u64 != before.size {
        return None;
    }
    let edit = if before.size < after.size { TailEdit::Append } else { TailEdit::Cut };
    let hashes = (before.hash, after.hash);
    let tail = TailChange { stat, writer_state, edit, bytes: bytes.to_owned(), hashes };
    Some(PlannedChange { tail: Some(tail), ..PlannedChange::replace(admitted, None, None) })
}

/// Applies a pending change, because others of its group were applied.
fn complete_change(
    workspace: &Workspace,
    writer: &mut WorkspaceWriter,
    roots: &Roots,
    pending: &PendingChange,
) -> bool {
    let change = &pending.change;
    let (temp, in_place) = match &pending.method {
        ApplyMethod::Rename { temp } => (temp.as_str(), false),
        ApplyMethod::InPlace | ApplyMethod::Tail(_) => ("", true),
        ApplyMethod::AlreadyApplied => return false,
    };
    let effect = || -> Option<PlannedChange> {
        if let ApplyMethod::Tail(bytes) = &pending.method {
            return plan_tail(workspace, roots, change, bytes);
        }
        let admitted = roots.admit(&change.path, Access::Write).ok()?;
        let current = read_current(workspace, roots, &admitted).ok()?;
        let before = load_side(&writer.journal, change.before)?;
        let after = load_side(&writer.journal, change.after)?;
        let new = match after {
            StoredSide::Bytes(bytes) => {
                Some(NewFile { bytes: FileBytes::Owned(bytes), mode: change.after.map(|after| after.mode) })
            }
            StoredSide::Absent => None,
            StoredSide::Lost => return None,
        };
        // The file may have changed in the meantime.
        let is_before = current.as_ref().map(|current| current.bytes.as_slice()) == before.bytes();
        if !is_before || matches!(before, StoredSide::Lost) {
            return None;
        }
        Some(PlannedChange::replace(admitted, current, new))
    };
    let Some(effect) = effect() else { return false };
    let mut late = Vec::new();
    let jobs = [ChangeJob { change: &effect, temp, in_place }];
    let done = FileTransaction::new(workspace, roots, &jobs, None, &mut late).run();
    let done = done.is_ok_and(|done| done.iter().all(|done| done.is_clean));
    let brought = late
        .into_iter()
        .all(|(_, late)| merge_late_write(workspace, writer, roots, &effect.admitted, late).is_ok());
    done && brought
}

/// Returns the outcome of a change whose file cannot exist: its directory is gone, or a directory has its name.
fn outcome_without_directory(change: &Change) -> ChangeOutcome {
    match (&change.before, &change.after) {
        (_, None) => ChangeOutcome::Done,
        (None, Some(_)) => ChangeOutcome::Abandoned,
        (Some(_), Some(_)) => ChangeOutcome::Unknown,
    }
}

/// One side of a change.
enum StoredSide {
    Absent,
    Bytes(Vec<u8>),
    // The file existed, but its bytes are lost.
    Lost,
}

impl StoredSide {
    fn bytes(&self) -> Option<&[u8]> {
        match self {
            Self::Bytes(bytes) => Some(bytes),
            Self::Absent | Self::Lost => None,
        }
    }
}

/// Returns one side of a change; `None` if it cannot be determined now.
fn load_side(journal: &Journal, state: Option<FileState>) -> Option<StoredSide> {
    let Some(state) = state else { return Some(StoredSide::Absent) };
    match journal.content(&state.hash) {
        Ok(Some(bytes)) => Some(StoredSide::Bytes(bytes)),
        Ok(None) | Err(JournalError::Damaged(_)) => Some(StoredSide::Lost),
        Err(_) => None,
    }
}

/// A file, its bytes, and whether a program is writing it.
type OpenContents = (File, Vec<u8>, WriterState);

/// Reads a file in a directory, if it exists, after waiting for programs that are writing it.
fn read_contents(place: &FileLocation, name: &str, cap: u64) -> Result<Option<OpenContents>, FilesError> {
    let file = match place.open(name) {
        Ok(file) => file,
        Err(rustix::io::Errno::NOENT) => return Ok(None),
        Err(why) => return Err(FilesError::io_error(name)(why.into())),
    };
    let (bytes, writers) = {
        let waited = writers::wait_for_writers(&file, WaitPurpose::Write);
        let (bytes, _) =
            disk::read_bytes(&file, cap).map_err(|fault| FilesError::from_read_error(name, fault))?;
        (bytes, waited.state)
    };
    Ok(Some((file, bytes, writers)))
}

/// Moves a replaced file out of the way. If a program may be writing to it, its text is merged later.
fn displace_temp(
    place: &FileLocation,
    temp: &str,
    bytes: Option<&[u8]>,
    to: DisplacedDir<'_>,
    calls: &DiskCalls,
) -> bool {
    if let (Ok(file), Some(bytes)) = (place.open(temp), bytes) {
        let waited = writers::wait_for_writers(&file, WaitPurpose::Write);
        if !waited.state.has_writer() && replace::has_content(&file, bytes).is_ok_and(|holds| holds) {
            displaced_files::mark_untouched(&file);
        }
    }
    to.move_in(place, temp, calls).is_ok()
}
