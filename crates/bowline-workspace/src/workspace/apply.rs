//! Applying changes to files, all or none: the journal first, then the disk, then the journal again.
//!
//! A file is written in place if it has several hard links, belongs to another user, or is held open for writing by an
//! idle program. All other files are replaced. If the owner or attributes of a file cannot be transferred to a new one,
//! that file is written in place as well.

use std::ops::Deref;
use std::sync::Arc;

use bowline_history::changes::{ChangeId, ChangeOrigin, ChangeOutcome, ChangeSource, Reversal};
use bowline_text::hash::ContentHash;
use bowline_text::time::Timestamp;
use rustix::fs::{AtFlags, Stat};

use super::late_writes::merge_late_write;
use super::reaper::start_reaper;
use super::{RiskyWriteBehavior, Workspace, WorkspaceWriter};
use crate::disk;
use crate::disk::replace::tail::TailEdit;
use crate::disk::replace::{self, ExpectedFile, LateWrite, ReplaceError};
use crate::disk::writers::{self, WaitPurpose, WriterState};
use crate::error::FilesError;
use crate::journal::{ApplyMethod, ChangeDraft, DraftContent, DraftSide};
use crate::roots::{AdmittedPath, Roots};
use bowline_storage::clock::now;
use bowline_storage::file_clock;

pub(super) mod transaction;

use transaction::{ChangeJob, FileChangeError, FileOutcome, FileTransaction, TransactionFailure};

/// The journal is pruned after its texts have grown by this fraction (one in `PRUNE_DIVISOR`) of its limit.
const PRUNE_DIVISOR: u64 = 8;

/// A file as it currently is on disk.
#[derive(Debug)]
pub(super) struct CurrentFile {
    pub(super) stat: Stat,
    pub(super) bytes: Vec<u8>,
    pub(super) writer_state: WriterState,
}

impl CurrentFile {
    pub(super) fn mode(&self) -> u32 {
        self.stat.st_mode & 0o7777
    }

    pub(super) fn as_expected(&self) -> ExpectedFile<'_> {
        ExpectedFile { stat: &self.stat, bytes: &self.bytes }
    }
}

/// The bytes to write to a file. For most texts they are the text itself.
#[derive(Debug)]
pub(super) enum FileBytes {
    Owned(Vec<u8>),
    Text(Arc<String>),
}

impl Deref for FileBytes {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        match self {
            Self::Owned(bytes) => bytes,
            Self::Text(text) => text.as_bytes(),
        }
    }
}

/// The intended state of a file.
#[derive(Debug)]
pub(super) struct NewFile {
    pub(super) bytes: FileBytes,
    // `None` keeps the mode of the old file, or applies the user's umask.
    pub(super) mode: Option<u32>,
}

/// A change of the end of a file whose other bytes stay unread.
#[derive(Debug)]
pub(super) struct TailChange {
    /// The file before.
    pub(super) stat: Stat,
    pub(super) writer_state: WriterState,
    pub(super) edit: TailEdit,
    pub(super) bytes: Vec<u8>,
    /// What the journal has as the hashes of the file before and after, from
    /// [`ContentScan`](crate::disk::content_scan::ContentScan).
    pub(super) hashes: (ContentHash, ContentHash),
}

impl TailChange {
    fn to_draft<'a>(&self, hash: ContentHash, size: u64) -> DraftSide<'a> {
        DraftSide { content: DraftContent::HashOnly { hash, size }, mode: self.stat.st_mode & 0o7777 }
    }

    pub(super) fn sizes(&self) -> (u64, u64) {
        let (before, length) = (self.stat.st_size as u64, self.bytes.len() as u64);
        match self.edit {
            TailEdit::Append => (before, before + length),
            TailEdit::Cut => (before, before.saturating_sub(length)),
        }
    }
}

/// One file to change.
#[derive(Debug)]
pub(super) struct PlannedChange {
    pub(super) admitted: AdmittedPath,
    pub(super) current: Option<CurrentFile>,
    // `None` deletes the file.
    pub(super) new: Option<NewFile>,
    // Invariant: if this is set, `current` and `new` are not.
    pub(super) tail: Option<TailChange>,
    // The path from which it moves the file here. Another change of the group removes the file there.
    pub(super) moved_from: Option<String>,
    pub(super) reverses: Vec<Reversal>,
}

impl PlannedChange {
    /// Returns a change of a file's bytes and mode.
    pub(super) fn replace(
        admitted: AdmittedPath,
        current: Option<CurrentFile>,
        new: Option<NewFile>,
    ) -> Self {
        Self { admitted, current, new, tail: None, moved_from: None, reverses: Vec::new() }
    }

    fn is_being_written(&self) -> bool {
        let tail = self.tail.as_ref().map(|tail| tail.writer_state);
        tail.or(self.current.as_ref().map(|current| current.writer_state)) == Some(WriterState::Busy)
    }
}

/// Files to change together, all or none.
#[derive(Clone, Copy)]
pub(super) struct ChangeGroup<'a> {
    pub(super) roots: &'a Roots,
    pub(super) origin: &'a ChangeOrigin,
    pub(super) changes: &'a [PlannedChange],
    pub(super) at: Timestamp,
    pub(super) progress: ProgressCallback<'a>,
}

impl<'a> ChangeGroup<'a> {
    /// Returns a group of one change.
    pub(super) fn single(roots: &'a Roots, origin: &'a ChangeOrigin, change: &'a PlannedChange) -> Self {
        Self { roots, origin, changes: std::slice::from_ref(change), at: now(), progress: None }
    }
}

/// Receives the number of finished files and the total.
pub(super) type ProgressCallback<'a> = Option<&'a dyn Fn(usize, usize)>;

/// The result of one change.
#[derive(Debug)]
pub(super) struct AppliedChange {
    pub(super) change: ChangeId,
    pub(super) stat: Option<Stat>,
}

/// Why none of the files was changed.
#[derive(Debug)]
pub(super) enum ApplyError {
    /// The file at this path, as it was requested, changed in the meantime: decide again.
    Raced(String),
    /// The change is impossible.
    Failed(FilesError),
}

impl From<FilesError> for ApplyError {
    fn from(error: FilesError) -> Self {
        Self::Failed(error)
    }
}

/// Reads the file at a path that is about to be replaced.
pub(super) fn read_current(
    workspace: &Workspace,
    roots: &Roots,
    admitted: &AdmittedPath,
) -> Result<Option<CurrentFile>, FilesError> {
    if !admitted.exists() {
        return Ok(None);
    }
    let opened = roots.open_file(admitted)?;
    let (file, _) = opened.map_err(|special| FilesError::from_special(admitted.requested_path(), special))?;
    let cap = workspace.inner.options.max_write_bytes;
    let writers = writers::wait_for_writers(&file, WaitPurpose::Write);
    let (bytes, stat) = disk::read_bytes(&file, cap)
        .map_err(|fault| FilesError::from_read_error(admitted.requested_path(), fault))?;
    Ok(Some(CurrentFile { stat, bytes, writer_state: writers.state }))
}

/// Refuses writes that the system allows but that may be unintended.
pub(super) fn check_risky_write(
    workspace: &Workspace,
    roots: &Roots,
    admitted: &AdmittedPath,
    stat: &Stat,
) -> Result<(), FilesError> {
    if stat.st_nlink > 1 && workspace.inner.options.hard_links == RiskyWriteBehavior::Refuse {
        let path = admitted.requested_path().to_owned();
        return Err(FilesError::HardLinks { path, links: stat.st_nlink });
    }
    check_writable(workspace, roots, admitted, stat)
}

/// Checks that the file itself is writable, regardless of its directory.
pub(super) fn check_writable(
    workspace: &Workspace,
    roots: &Roots,
    admitted: &AdmittedPath,
    stat: &Stat,
) -> Result<(), FilesError> {
    if workspace.inner.options.read_only_files == RiskyWriteBehavior::Refuse {
        // A rename needs only the directory's permission, so the file's own is checked here. The mode is checked as
        // well, because the superuser passes every access check.
        let forbidden = stat.st_mode & 0o222 == 0
            || roots.locate(admitted)?.is_some_and(|place| {
                let flags = AtFlags::EACCESS | AtFlags::SYMLINK_NOFOLLOW;
                let access = rustix::fs::Access::WRITE_OK;
                rustix::fs::accessat(place.directory(), place.file_name(), access, flags)
                    == Err(rustix::io::Errno::ACCESS)
            });
        if forbidden {
            return Err(FilesError::ReadOnlyFile(admitted.requested_path().to_owned()));
        }
    }
    Ok(())
}

/// Changes files, all or none: the journal first, then the disk, then the journal again.
pub(super) fn apply_changes(
    workspace: &Workspace,
    writer: &mut WorkspaceWriter,
    group: &ChangeGroup<'_>,
) -> Result<Vec<AppliedChange>, ApplyError> {
    let mut late = Vec::new();
    let applied = apply_collecting_late(workspace, writer, group, &mut late);
    for (index, late) in late {
        merge_late_write(workspace, writer, group.roots, &group.changes[index].admitted, late)?;
    }
    applied
}

/// As [`apply_changes`], but collects late writes in `late` instead of merging them.
pub(super) fn apply_collecting_late(
    workspace: &Workspace,
    writer: &mut WorkspaceWriter,
    group: &ChangeGroup<'_>,
    late: &mut Vec<(usize, LateWrite)>,
) -> Result<Vec<AppliedChange>, ApplyError> {
    let effects = group.changes;
    if let Some(effect) = effects.iter().find(|effect| effect.is_being_written()) {
        return Err(FilesError::BeingWritten(effect.admitted.requested_path().to_owned()).into());
    }
    let in_place: Vec<bool> = effects.iter().map(must_write_in_place).collect();
    match apply_once(workspace, writer, group, &in_place, late) {
        // Metadata that cannot be transferred to a new file stays with the old one.
        Err(AttemptError::Metadata(which)) if can_write_in_place(&effects[which]) && !in_place[which] => {
            let in_place: Vec<bool> =
                in_place.iter().enumerate().map(|(index, chosen)| *chosen || index == which).collect();
            apply_once(workspace, writer, group, &in_place, late)
                .map_err(|stopped| stopped.into_apply_error(effects))
        }
        applied => applied.map_err(|stopped| stopped.into_apply_error(effects)),
    }
}

fn apply_once(
    workspace: &Workspace,
    writer: &mut WorkspaceWriter,
    group: &ChangeGroup<'_>,
    in_place: &[bool],
    late: &mut Vec<(usize, LateWrite)>,
) -> Result<Vec<AppliedChange>, AttemptError> {
    let ChangeGroup { roots, origin, changes: effects, at, progress: tell } = *group;
    let temps = effects.iter().map(|effect| {
        replace::temp_name()
            .map_err(FilesError::io_error(effect.admitted.requested_path()))
            .map_err(AttemptError::Failed)
    });
    let temps = temps.collect::<Result<Vec<_>, _>>()?;
    // Read once: it takes as long as creating a file.
    let new_mode = if effects.iter().any(is_creation) { default_mode() } else { 0 };
    let drafts = effects.iter().zip(&temps).zip(in_place);
    let drafts: Vec<_> = drafts
        .map(|((effect, temp), in_place)| draft_change(effect, (temp, *in_place), origin, new_mode))
        .collect();
    let changes = writer.journal.begin(&drafts, at).map_err(|error| AttemptError::Failed(error.into()))?;
    let size = |effect: &PlannedChange| match (&effect.new, &effect.tail) {
        (Some(new), _) => new.bytes.len() as u64,
        (None, Some(tail)) => tail.bytes.len() as u64,
        (None, None) => 0,
    };
    writer.bytes_since_prune += effects.iter().map(size).sum::<u64>();
    let jobs: Vec<_> = (effects.iter().zip(&temps).zip(in_place))
        .map(|((effect, temp), in_place)| ChangeJob { change: effect, temp, in_place: *in_place })
        .collect();
    let done = match FileTransaction::new(workspace, roots, &jobs, tell, late).run() {
        Ok(done) => done,
        Err(halted) => return Err(settle_failed(writer, halted, effects, &changes)),
    };
    let mut applied = Vec::new();
    let mut outcomes = Vec::new();
    for (FileOutcome { stat, is_clean }, change) in done.into_iter().zip(changes) {
        // Recovery removes leftover files, and needs the pending change to find them.
        writer.needs_recovery |= !is_clean;
        outcomes.extend(is_clean.then_some((change, ChangeOutcome::Done)));
        applied.push(AppliedChange { change, stat });
    }
    // If this fails the changes stay pending, with both texts, and their outcome can be determined from the disk.
    writer.needs_recovery |= writer.journal.settle(&outcomes).is_err();
    let room = workspace.inner.options.retention.max_bytes / PRUNE_DIVISOR;
    // If pruning fails, the next write tries again.
    if writer.bytes_since_prune > room && writer.journal.prune(at).is_ok() {
        writer.bytes_since_prune = 0;
    }
    for (effect, applied) in effects.iter().zip(&applied) {
        if let (Some(tail), Some(stat)) = (&effect.tail, &applied.stat) {
            let (path, stamp) = (effect.admitted.canonical(), file_clock::file_stamp(stat));
            let is_hashed = tail.sizes().1 <= workspace.inner.options.max_write_bytes;
            writer.observer_state.record_own_tail(path, stamp, is_hashed.then_some(tail.hashes.1));
            continue;
        }
        let bytes = effect.new.as_ref().map_or(&[][..], |new| &*new.bytes);
        let file = applied.stat.as_ref().map(|stat| (file_clock::file_stamp(stat), bytes));
        writer.observer_state.record_own_write(effect.admitted.canonical(), file);
    }
    start_reaper(workspace);
    workspace.mark_diagnostics_stale(effects.iter().map(|effect| effect.admitted.canonical()));
    Ok(applied)
}

/// Settles a group that failed at one of its changes.
fn settle_failed(
    writer: &mut WorkspaceWriter,
    TransactionFailure { index: at, why, is_rolled_back: is_back }: TransactionFailure,
    effects: &[PlannedChange],
    changes: &[ChangeId],
) -> AttemptError {
    let path = effects[at].admitted.requested_path();
    if !is_back || matches!(why, FileChangeError::Replace(ReplaceError::Interrupted(_))) {
        // Some of them may be changed. The whole group stays pending, so that it is recovered as one.
        writer.needs_recovery = true;
        let why = why.to_string();
        return AttemptError::Failed(FilesError::Interrupted { path: path.to_owned(), why });
    }
    let outcomes: Vec<_> = changes.iter().map(|change| (*change, ChangeOutcome::Abandoned)).collect();
    writer.needs_recovery |= writer.journal.settle(&outcomes).is_err();
    match why {
        FileChangeError::Admit(denied) => AttemptError::Failed(denied.into()),
        FileChangeError::Replace(ReplaceError::Raced) => AttemptError::Raced(path.to_owned()),
        FileChangeError::Replace(ReplaceError::Metadata(_)) => AttemptError::Metadata(at),
        FileChangeError::Replace(ReplaceError::System(why) | ReplaceError::Interrupted(why)) => {
            AttemptError::Failed(FilesError::io_error(path)(why))
        }
    }
}

/// Why an attempt to apply a group failed. All files are unchanged.
enum AttemptError {
    // The file at this path changed.
    Raced(String),
    // The file's owner or attributes cannot be transferred to a new file.
    Metadata(usize),
    Failed(FilesError),
}

impl AttemptError {
    fn into_apply_error(self, effects: &[PlannedChange]) -> ApplyError {
        match self {
            Self::Raced(path) => ApplyError::Raced(path),
            Self::Metadata(at) => {
                let why = std::io::Error::other("the file's owner or attributes cannot be kept");
                ApplyError::Failed(FilesError::io_error(effects[at].admitted.requested_path())(why))
            }
            Self::Failed(error) => ApplyError::Failed(error),
        }
    }
}

fn can_write_in_place(effect: &PlannedChange) -> bool {
    effect.current.is_some() && effect.new.is_some()
}

/// Returns whether the file must keep its inode: it has several hard links, belongs to another user, or is held open
/// for writing.
fn must_write_in_place(effect: &PlannedChange) -> bool {
    let (Some(current), true) = (&effect.current, can_write_in_place(effect)) else { return false };
    let user = rustix::process::geteuid();
    let foreign = !user.is_root() && current.stat.st_uid != user.as_raw();
    current.stat.st_nlink > 1 || foreign || current.writer_state == WriterState::Idle
}

fn is_creation(effect: &PlannedChange) -> bool {
    effect.current.is_none() && effect.new.as_ref().is_some_and(|new| new.mode.is_none())
}

/// Returns a change for the journal. A file that is created without a mode of its own gets `new_mode`.
fn draft_change<'a>(
    effect: &'a PlannedChange,
    (temp, in_place): (&str, bool),
    origin: &'a ChangeOrigin,
    new_mode: u32,
) -> ChangeDraft<'a> {
    let before = effect.current.as_ref().map(|current| DraftSide::bytes(&current.bytes, current.mode()));
    let after = effect.new.as_ref().map(|new| {
        let mode = new.mode.or(effect.current.as_ref().map(CurrentFile::mode)).unwrap_or(new_mode);
        DraftSide::bytes(&new.bytes, mode)
    });
    if let Some(tail) = &effect.tail {
        let (sizes, hashes) = (tail.sizes(), tail.hashes);
        return ChangeDraft {
            origin,
            source: ChangeSource::Written,
            path: effect.admitted.canonical(),
            before: Some(tail.to_draft(hashes.0, sizes.0)),
            after: Some(tail.to_draft(hashes.1, sizes.1)),
            moved_from: None,
            reverses: &effect.reverses,
            method: ApplyMethod::Tail(tail.bytes.clone()),
        };
    }
    let manner = if in_place { ApplyMethod::InPlace } else { ApplyMethod::Rename { temp: temp.to_owned() } };
    ChangeDraft {
        origin,
        source: ChangeSource::Written,
        path: effect.admitted.canonical(),
        before,
        after,
        moved_from: effect.moved_from.as_deref(),
        reverses: &effect.reverses,
        method: manner,
    }
}

/// Returns the mode that a new file gets, as far as it can be determined without changing the process's umask.
pub(super) fn default_mode() -> u32 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let mask = status.lines().find_map(|line| line.strip_prefix("Umask:"));
    let mask = mask.and_then(|mask| u32::from_str_radix(mask.trim(), 8).ok()).unwrap_or(0o022);
    0o666 & !mask
}
