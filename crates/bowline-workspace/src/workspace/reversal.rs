//! Taking back changes of one file, from the texts that the journal keeps.

use bowline_state::changes::{Change, Reversal};
use bowline_state::undo::{self, Content, Planned, Resolution, Step};

use super::undoing::{Kept, kept};
use crate::error::FilesError;
use crate::journal::Journal;

/// A file: its bytes and its mode; none if there is none.
pub(super) type File = Option<(Vec<u8>, u32)>;

/// How changes of a file are taken back.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct ReversalOptions<'a> {
    /// Only these hunks.
    pub(super) hunks: Option<&'a [usize]>,
    /// What is done where the same lines were changed since.
    pub(super) resolution: Resolution,
}

/// A file from which changes were taken back.
pub(super) struct TakenFile {
    pub(super) file: File,
    pub(super) reverses: Vec<Reversal>,
    /// How many places were changed since, and were resolved.
    pub(super) resolved: usize,
}

/// Takes back changes of one file, the newest first. Only the texts of one of them are in memory at a time.
pub(super) fn take_back_all(
    journal: &Journal,
    file: File,
    changes: &[&Change],
    options: ReversalOptions<'_>,
) -> Result<TakenFile, FilesError> {
    let refusing = ReversalOptions { resolution: Resolution::Refuse, ..options };
    let runs = changes.chunks(1);
    match take_back_runs(journal, file.clone(), runs, refusing) {
        Err(FilesError::CannotReverse(_)) if options.resolution != Resolution::Refuse => {
            // Changes that follow each other are taken back as one, so that each place is resolved once.
            let follows = |newer: &&Change, older: &&Change| match (newer.before, older.after) {
                (Some(before), Some(after)) => before.hash == after.hash,
                (before, after) => before.is_none() && after.is_none(),
            };
            take_back_runs(journal, file, changes.chunk_by(follows), options)
        }
        taken => taken,
    }
}

/// Takes back runs of changes, each of which goes on where the one before it ended.
fn take_back_runs<'c>(
    journal: &Journal,
    mut file: File,
    runs: impl Iterator<Item = &'c [&'c Change]>,
    options: ReversalOptions<'_>,
) -> Result<TakenFile, FilesError> {
    let ReversalOptions { hunks, resolution } = options;
    let (mut reverses, mut resolved) = (Vec::new(), 0);
    for run in runs {
        let (Some(newest), Some(oldest)) = (run.first(), run.last()) else { continue };
        let (before, after) = (kept(journal, oldest.before)?, kept(journal, newest.after)?);
        let step = Step { change: newest, before: content(&before), after: content(&after), hunks };
        let now =
            file.as_ref().map_or(Content::Absent, |(bytes, mode)| Content::Bytes { bytes, mode: *mode });
        let (planned, places) = undo::reverse_resolving(now, &[step], resolution)?;
        match run {
            [_] => reverses.push(step.reversal()),
            run => reverses.extend(run.iter().map(|change| Reversal { change: change.id, hunks: None })),
        }
        resolved += places;
        match planned {
            Planned::Unchanged => {}
            Planned::Write { bytes, mode } => file = Some((bytes, mode)),
            Planned::Delete => file = None,
        }
    }
    Ok(TakenFile { file, reverses, resolved })
}

fn content(kept: &Option<Kept>) -> Content<'_> {
    match kept {
        None => Content::Absent,
        Some((state, Some(bytes))) => Content::Bytes { bytes, mode: state.mode },
        Some((_, None)) => Content::Unknown,
    }
}
