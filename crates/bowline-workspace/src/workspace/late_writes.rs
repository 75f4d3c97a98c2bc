//! Merging text that another program wrote to a file just as it was being replaced.

use bowline_history::changes::{ChangeOrigin, ChangeSource};
use bowline_policy::paths::Access;
use bowline_text::hash::ContentHash;
use bowline_text::merge::merge;
use bowline_text::text;

use super::apply::{
    ApplyError, ChangeGroup, CurrentFile, FileBytes, NewFile, PlannedChange, apply_collecting_late,
    read_current,
};
use super::kept_texts::keep_text;
use super::{Workspace, WorkspaceWriter};
use crate::disk::replace::LateWrite;
use crate::error::FilesError;
use crate::journal::{ChangeDraft, DraftSide};
use crate::roots::{AdmittedPath, Roots};
use bowline_storage::clock::now;

/// How many times a merge is attempted while the file keeps changing.
const MAX_ATTEMPTS: usize = 8;

/// Merges a late text into its file, as the user's change. If it cannot be merged, the journal keeps it as the
/// file's previous content.
pub(super) fn merge_late_write(
    workspace: &Workspace,
    writer: &mut WorkspaceWriter,
    roots: &Roots,
    admitted: &AdmittedPath,
    late: LateWrite,
) -> Result<(), ApplyError> {
    let mut waiting = vec![late];
    let mut attempts = 0;
    while let Some(late) = waiting.pop() {
        // An agent's own copy of a text that it had the engine write is not a change by the user.
        if writer
            .observer_state
            .merged_writes
            .is_sent_text(admitted.canonical(), ContentHash::digest(&late.bytes))
        {
            continue;
        }
        if late.is_restored {
            let mode = admitted.target().map_or(0o644, |found| found.stat.st_mode & 0o7777);
            let sides = [&late.base, &late.bytes].map(|bytes| Some(DraftSide::bytes(bytes, mode)));
            let source = (&ChangeOrigin::default(), ChangeSource::Observed);
            let draft = ChangeDraft::applied(source, admitted.canonical(), sides[0], sides[1]);
            writer.journal.record(&[draft], now()).map_err(FilesError::from)?;
            continue;
        }
        attempts += 1;
        let admitted = roots.admit(admitted.canonical(), Access::Write).map_err(FilesError::from)?;
        let current = read_current(workspace, roots, &admitted)?;
        let Some(new) = current.as_ref().and_then(|current| merge_texts(current, &late)) else {
            keep_late_write(workspace, writer, &admitted, current.as_ref(), &late)?;
            continue;
        };
        if current.as_ref().is_some_and(|current| current.bytes == new) {
            continue;
        }
        if attempts > MAX_ATTEMPTS {
            keep_late_write(workspace, writer, &admitted, current.as_ref(), &late)?;
            continue;
        }
        let new = Some(NewFile { bytes: FileBytes::Owned(new), mode: None });
        let change = PlannedChange::replace(admitted, current, new);
        let (origin, mut again) = (ChangeOrigin::default(), Vec::new());
        let group = ChangeGroup::single(roots, &origin, &change);
        let applied = apply_collecting_late(workspace, writer, &group, &mut again);
        waiting.extend(again.into_iter().map(|(_, late)| late));
        match applied {
            Ok(_) => {}
            Err(ApplyError::Raced(_)) => waiting.push(late),
            Err(failed) => return Err(failed),
        }
    }
    Ok(())
}

/// Keeps a late text in the journal, as the file's previous content.
fn keep_late_write(
    workspace: &Workspace,
    writer: &mut WorkspaceWriter,
    admitted: &AdmittedPath,
    current: Option<&CurrentFile>,
    late: &LateWrite,
) -> Result<(), FilesError> {
    let mode = current.map_or(0o644, CurrentFile::mode);
    let now = current.map(|current| current.bytes.as_slice());
    keep_text(workspace, writer, admitted.canonical(), (&late.bytes, mode), now)
}

/// Returns the file with the late text merged in, if they merge without conflict.
fn merge_texts(current: &CurrentFile, late: &LateWrite) -> Option<Vec<u8>> {
    let now = text::decode(current.bytes.clone()).ok()?;
    let read = |bytes: &[u8]| text::decode_as(bytes.to_owned(), now.format).ok();
    let merged = merge(&read(&late.base)?, &now.text, &read(&late.bytes)?).ok()?;
    text::encode(&merged, now.format).ok()
}
