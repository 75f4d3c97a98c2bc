//! Writes that an editor does itself, recorded so that they can be taken back: for a proxy in front of it.
//!
//! The journal comes first, as for any write: the change is recorded before the editor is asked. It begins with what the
//! editor had, saved or not, so that to undo it brings back what the user typed. What the disk held instead is recorded
//! before that, as replaced by the user's text. If the editor then says no, the record is taken back, too.

use bowline_state::changes::{ChangeId, ContentHash, FileState, Origin, Reversal, Source};
use bowline_state::paths::Access;
use bowline_state::text::{self, Format};

use super::Session;
use super::applying::Current;
use super::undoing::note_unchanged;
use super::writing::encode;
use crate::clock::now;
use crate::error::FilesError;
use crate::journal::{Draft, Manner, Side, SideContent};

/// A write by an editor, as the journal has it. One that changes nothing has no changes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct EditorWrite {
    /// The file's own name.
    pub path: String,
    /// The change itself; none if the file has the text already.
    pub change: Option<ChangeId>,
    // The user's text in the place of what the disk held.
    saved: Option<ChangeId>,
}

impl Session {
    /// Records that an editor is about to write a file: what it had, and what it will have written. To be called before it
    /// is asked to. `had` is none if there is nothing of that name, in the editor or on disk.
    ///
    /// # Errors
    /// Returns why nothing was recorded. Then the editor should not be asked.
    pub fn editor_writes(
        &self,
        path: &str,
        had: Option<&str>,
        written: &str,
        origin: &Origin,
    ) -> Result<EditorWrite, FilesError> {
        let workspace = &self.workspace;
        let cap = workspace.inner.settings.max_write;
        let size = written.len().max(had.map_or(0, str::len)) as u64;
        if size > cap {
            return Err(FilesError::ContentTooLarge { path: path.to_owned(), size, cap });
        }
        let mut writer = workspace.writer();
        workspace.recover_interrupted(&mut writer, &self.roots)?;
        let _lock = writer.journal.lock()?;
        let admitted = self.roots.admit(path, Access::Write)?;
        let current = workspace.load(&self.roots, &admitted)?;
        let format = match &current {
            None => Format::default(),
            Some(current) => {
                let decoded = text::decode(current.bytes.clone());
                decoded.map_err(|why| FilesError::NotText { path: path.to_owned(), why })?.format
            }
        };
        let mode = current.as_ref().map_or_else(super::applying::default_mode, Current::mode);
        let bytes = |text: &str| {
            let text = text.strip_prefix('\u{feff}').unwrap_or(text);
            encode(text, format, path)
        };
        let (had, written) = (had.map(bytes).transpose()?, bytes(written)?);
        let disk = current.as_ref().map(|current| current.bytes.as_slice());
        let nobody = Origin::default();
        let mut drafts = Vec::new();
        let mut draft = |origin, before: Option<&'_ [u8]>, after: Option<&'_ [u8]>| {
            let differs = before != after;
            drafts.extend(differs.then(|| (origin, before.map(<[u8]>::to_vec), after.map(<[u8]>::to_vec))));
            differs
        };
        let is_saved = draft(&nobody, disk, had.as_deref());
        let is_changed = draft(origin, had.as_deref(), Some(&written));
        fn side(bytes: &Option<Vec<u8>>, mode: u32) -> Option<Side<'_>> {
            bytes.as_ref().map(|bytes| Side { content: SideContent::Bytes(bytes), mode })
        }
        let drafts: Vec<Draft<'_>> = drafts
            .iter()
            .map(|(origin, before, after)| Draft {
                origin,
                source: Source::Written,
                path: admitted.canonical(),
                before: side(before, mode),
                after: side(after, mode),
                reverses: &[],
                manner: Manner::Found,
            })
            .collect();
        let recorded = writer.journal.record(&drafts, now())?;
        let mut recorded = recorded.into_iter();
        let saved = if is_saved { recorded.next() } else { None };
        let change = if is_changed { recorded.next() } else { None };
        let path = admitted.canonical().to_owned();
        if disk != Some(written.as_slice()) {
            let (hash, size) = (ContentHash::of(&written), written.len() as u64);
            writer.lookout.awaits(&path, FileState { hash, size, mode });
        }
        workspace.outdate([path.as_str()]);
        Ok(EditorWrite { path, change, saved })
    }

    /// Records that an editor did not write after all.
    ///
    /// # Errors
    /// Fails if the journal cannot be used. What is found on disk then is recorded with the next look at it.
    pub fn editor_did_not_write(&self, write: &EditorWrite, origin: &Origin) -> Result<(), FilesError> {
        let changes = [write.change, write.saved];
        let reverses: Vec<Reversal> =
            changes.into_iter().flatten().map(|change| Reversal { change, hunks: None }).collect();
        if reverses.is_empty() {
            return Ok(());
        }
        let mut writer = self.workspace.writer();
        writer.lookout.is_there(&write.path);
        let _lock = writer.journal.lock()?;
        let admitted = self.roots.admit(&write.path, Access::Write)?;
        let current = self.workspace.load(&self.roots, &admitted)?;
        note_unchanged(&mut writer, &admitted, current.as_ref(), &reverses, origin, now()).map(drop)
    }
}

#[cfg(test)]
mod tests;
