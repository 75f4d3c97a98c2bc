//! Writes that an editor behind a proxy performs itself, recorded so that they can be undone.
//!
//! The change is recorded in the journal before the editor is asked to write, as for any write. Its old side is the
//! editor's text, saved or not, so that undoing it restores what the user typed. If the disk held something else, a
//! change from that to the user's text is recorded first. If the editor refuses, the record is withdrawn. If it writes
//! something else, the next scan detects that. A scan that runs before the editor has finished still expects its write.

use bowline_history::changes::{ChangeId, ChangeOrigin, ChangeSource, FileState, Reversal};
use bowline_policy::paths::Access;
use bowline_text::hash::ContentHash;
use bowline_text::text::{self, TextFormat};

use super::WorkspaceSession;
use super::apply::CurrentFile;
use super::undo::record_unchanged_reversal;
use super::write::encode_text;
use crate::clock::now;
use crate::error::FilesError;
use crate::journal::{ApplyMethod, ChangeDraft, DraftContent, DraftSide};

/// A write by an editor, as recorded in the journal.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct EditorWrite {
    /// The file's canonical path.
    pub path: String,
    /// The change itself; `None` if the file already has the text.
    pub change: Option<ChangeId>,
    // The change from the text on disk to the user's unsaved text.
    saved_change: Option<ChangeId>,
}

impl WorkspaceSession {
    /// Records that an editor is about to write a file: its previous and its new text. Call it before asking the
    /// editor. `had` is `None` if the file exists neither in the editor nor on disk.
    ///
    /// # Errors
    /// Returns why nothing was recorded. Then do not ask the editor to write.
    pub fn record_editor_write(
        &self,
        path: &str,
        had: Option<&str>,
        written: &str,
        origin: &ChangeOrigin,
    ) -> Result<EditorWrite, FilesError> {
        let workspace = &self.workspace;
        let cap = workspace.inner.options.max_write_bytes;
        let size = written.len().max(had.map_or(0, str::len)) as u64;
        if size > cap {
            return Err(FilesError::ContentTooLarge { path: path.to_owned(), size, cap });
        }
        let mut writer = workspace.writer();
        workspace.recover_interrupted(&mut writer, &self.roots)?;
        let _lock = writer.journal.lock()?;
        let admitted = self.roots.admit(path, Access::Write)?;
        let current = workspace.read_current(&self.roots, &admitted)?;
        let format = match &current {
            None => TextFormat::default(),
            Some(current) => {
                let decoded = text::decode(current.bytes.clone());
                decoded.map_err(|why| FilesError::NotText { path: path.to_owned(), why })?.format
            }
        };
        let mode = current.as_ref().map_or_else(super::apply::default_mode, CurrentFile::mode);
        let bytes = |text: &str| {
            let text = text.strip_prefix('\u{feff}').unwrap_or(text);
            encode_text(text, format, path)
        };
        let (had, written) = (had.map(bytes).transpose()?, bytes(written)?);
        let disk = current.as_ref().map(|current| current.bytes.as_slice());
        let nobody = ChangeOrigin::default();
        let mut drafts = Vec::new();
        let mut draft = |origin, before: Option<&'_ [u8]>, after: Option<&'_ [u8]>| {
            let differs = before != after;
            drafts.extend(differs.then(|| (origin, before.map(<[u8]>::to_vec), after.map(<[u8]>::to_vec))));
            differs
        };
        let is_saved = draft(&nobody, disk, had.as_deref());
        let is_changed = draft(origin, had.as_deref(), Some(&written));
        fn side(bytes: &Option<Vec<u8>>, mode: u32) -> Option<DraftSide<'_>> {
            bytes.as_ref().map(|bytes| DraftSide { content: DraftContent::Bytes(bytes), mode })
        }
        let drafts: Vec<ChangeDraft<'_>> = drafts
            .iter()
            .map(|(origin, before, after)| ChangeDraft {
                origin,
                source: ChangeSource::Written,
                path: admitted.canonical(),
                before: side(before, mode),
                after: side(after, mode),
                reverses: &[],
                method: ApplyMethod::AlreadyApplied,
            })
            .collect();
        let recorded = writer.journal.record(&drafts, now())?;
        let mut recorded = recorded.into_iter();
        let saved = if is_saved { recorded.next() } else { None };
        let change = if is_changed { recorded.next() } else { None };
        let path = admitted.canonical().to_owned();
        if disk != Some(written.as_slice()) {
            let (hash, size) = (ContentHash::digest(&written), written.len() as u64);
            writer.observer_state.expect_editor_write(&path, FileState { hash, size, mode });
        }
        workspace.mark_diagnostics_stale([path.as_str()]);
        Ok(EditorWrite { path, change, saved_change: saved })
    }

    /// Records that an editor did not perform a write.
    ///
    /// # Errors
    /// Fails if the journal cannot be used. The next scan then records what is on disk.
    pub fn cancel_editor_write(&self, write: &EditorWrite, origin: &ChangeOrigin) -> Result<(), FilesError> {
        let changes = [write.change, write.saved_change];
        let reverses: Vec<Reversal> =
            changes.into_iter().flatten().map(|change| Reversal { change, hunks: None }).collect();
        if reverses.is_empty() {
            return Ok(());
        }
        let mut writer = self.workspace.writer();
        writer.observer_state.clear_expected_write(&write.path);
        let _lock = writer.journal.lock()?;
        let admitted = self.roots.admit(&write.path, Access::Write)?;
        let current = self.workspace.read_current(&self.roots, &admitted)?;
        record_unchanged_reversal(&mut writer, &admitted, current.as_ref(), &reverses, origin, now())
            .map(drop)
    }
}

#[cfg(test)]
mod tests;
