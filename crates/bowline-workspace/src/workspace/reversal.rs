//! Reversing changes of one file, from the texts that the journal keeps.

use bowline_history::changes::{Change, FileState, Reversal};
use bowline_history::undo::{
    self, ConflictResolution, FileContent, ReversalError, ReversalErrorReason, ReversalPlan, ReversalStep,
    TailStep,
};
use bowline_text::hash::ContentHash;

use crate::error::FilesError;
use crate::journal::Journal;

/// The bytes and mode of a file; `None` if it does not exist.
pub(super) type OptionalFile = Option<(Vec<u8>, u32)>;

/// A file on one side of a change, with its bytes if they are stored.
pub(super) type StoredFile = (FileState, Option<Vec<u8>>);

/// How to reverse the changes of a file.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct ReversalOptions<'a> {
    /// Only these hunks.
    pub(super) hunks: Option<&'a [usize]>,
    /// What to do where the same lines changed since.
    pub(super) resolution: ConflictResolution,
}

/// A file with changes reversed.
pub(super) struct ReversedContent {
    pub(super) file: OptionalFile,
    pub(super) reverses: Vec<Reversal>,
    /// How many conflicting places were resolved.
    pub(super) resolved_count: usize,
}

/// Reverses changes of one file, newest first. Holds the texts of only one change in memory at a time.
pub(super) fn reverse_all(
    journal: &Journal,
    file: OptionalFile,
    changes: &[&Change],
    options: ReversalOptions<'_>,
) -> Result<ReversedContent, FilesError> {
    let refusing = ReversalOptions { resolution: ConflictResolution::Refuse, ..options };
    let runs = changes.chunks(1);
    match reverse_runs(journal, file.clone(), runs, refusing) {
        Err(FilesError::CannotReverse(_)) if options.resolution != ConflictResolution::Refuse => {
            // Consecutive changes are reversed as one, so that each conflict is resolved once.
            let has_tail = |change: &Change| journal.tail(change.id).is_ok_and(|tail| tail.is_some());
            let follows = |newer: &&Change, older: &&Change| match (newer.before, older.after) {
                (Some(before), Some(after)) => {
                    before.hash == after.hash && !has_tail(newer) && !has_tail(older)
                }
                (before, after) => before.is_none() && after.is_none(),
            };
            reverse_runs(journal, file, changes.chunk_by(follows), options)
        }
        taken => taken,
    }
}

/// Reverses runs of changes, each of which starts from the state that the previous one left.
fn reverse_runs<'c>(
    journal: &Journal,
    mut file: OptionalFile,
    runs: impl Iterator<Item = &'c [&'c Change]>,
    options: ReversalOptions<'_>,
) -> Result<ReversedContent, FilesError> {
    let ReversalOptions { hunks, resolution } = options;
    let (mut reverses, mut resolved) = (Vec::new(), 0);
    for run in runs {
        let (Some(newest), Some(oldest)) = (run.first(), run.last()) else { continue };
        let (before, after) = match journal.tail(newest.id)? {
            Some(tail) => rebuild_stored_files(newest, &tail, file.as_ref().map(|(bytes, _)| bytes))?,
            None => (load_stored_file(journal, oldest.before)?, load_stored_file(journal, newest.after)?),
        };
        let step =
            ReversalStep { change: newest, before: to_content(&before), after: to_content(&after), hunks };
        let now = file
            .as_ref()
            .map_or(FileContent::Absent, |(bytes, mode)| FileContent::Bytes { bytes, mode: *mode });
        let (planned, places) = undo::plan_resolved_reversal(now, &[step], resolution)?;
        match run {
            [_] => reverses.push(step.reversal()),
            run => reverses.extend(run.iter().map(|change| Reversal { change: change.id, hunks: None })),
        }
        resolved += places;
        match planned {
            ReversalPlan::Unchanged => {}
            ReversalPlan::Write { bytes, mode } => file = Some((bytes, mode)),
            ReversalPlan::Delete => file = None,
        }
    }
    Ok(ReversedContent { file, reverses, resolved_count: resolved })
}

/// Returns the files before and after a change of which the journal has only the end, from the current file.
fn rebuild_stored_files(
    change: &Change,
    tail: &[u8],
    current: Option<&Vec<u8>>,
) -> Result<(Option<StoredFile>, Option<StoredFile>), FilesError> {
    let failed = |reason| ReversalError { path: change.path.clone(), change: change.id, reason };
    let current = current.ok_or_else(|| failed(ReversalErrorReason::DeletedSince))?;
    let rebuilt = TailStep { change, tail }.rebuild_contents(current);
    let (before, after) = rebuilt.ok_or_else(|| failed(ReversalErrorReason::AppendedElsewhere))?;
    Ok((change.before.map(|state| (state, Some(before))), change.after.map(|state| (state, Some(after)))))
}

fn to_content(kept: &Option<StoredFile>) -> FileContent<'_> {
    match kept {
        None => FileContent::Absent,
        Some((state, Some(bytes))) => FileContent::Bytes { bytes, mode: state.mode },
        Some((_, None)) => FileContent::Unknown,
    }
}

pub(super) fn load_stored_file(
    journal: &Journal,
    state: Option<FileState>,
) -> Result<Option<StoredFile>, FilesError> {
    let Some(state) = state else { return Ok(None) };
    Ok(Some((state, journal.content(&state.hash)?)))
}

/// Returns bytes in memory in the form of a stored file.
pub(super) fn stored_file_from_bytes(bytes: Vec<u8>, mode: u32) -> StoredFile {
    let state = FileState { hash: ContentHash::digest(&bytes), size: bytes.len() as u64, mode };
    (state, Some(bytes))
}

/// Returns whether the texts of a change are stored, so that it can be undone.
pub(super) fn has_stored_texts(journal: &Journal, change: &Change) -> Result<bool, FilesError> {
    if journal.tail(change.id)?.is_some() {
        return Ok(true);
    }
    for state in [change.before, change.after].into_iter().flatten() {
        if !journal.has_content(&state.hash)? {
            return Ok(false);
        }
    }
    Ok(true)
}
