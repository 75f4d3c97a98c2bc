//! Texts of the user that could not be merged into their files and exist only in the journal.

use std::fmt;
use std::sync::{Mutex, PoisonError};

use bowline_history::changes::{Change, ChangeId, ChangeOrigin, ChangeSource};
use bowline_history::undo::{ChangeOwner, ChangeSelection};
use bowline_text::display::quote;

use super::notifications::WorkspaceNotification;
use super::undo::load_stored_file;
use super::{Workspace, WorkspaceWriter};
use crate::clock::now;
use crate::error::FilesError;
use crate::journal::{ApplyMethod, ChangeDraft, DraftContent, DraftSide};

/// How many texts wait to be reported; `bowline changes` lists all.
const MAX_UNREPORTED_TEXTS: usize = 256;

/// A text that exists only in the journal.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct KeptText {
    /// The change under which it is recorded.
    pub change: ChangeId,
    /// The file to which it was written.
    pub path: String,
}

impl fmt::Display for KeptText {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { change, path } = self;
        write!(
            f,
            "text saved to {} while it was being replaced could not be merged into it and is only in the journal: \
             `bowline restore {change}` puts it into the file, with --print it is shown",
            quote(path)
        )
    }
}

/// The texts that were not reported yet, oldest first. Invariant: at most [`MAX_UNREPORTED_TEXTS`].
pub(super) type UnreportedTexts = Mutex<Vec<KeptText>>;

impl Workspace {
    /// Reports the texts that were kept in the journal since the last call, each once.
    /// [`WorkspaceNotification::TextsKept`] announces them. `tell` must not use the workspace.
    pub fn report_kept_texts(&self, tell: impl FnMut(&KeptText)) {
        let mut waiting = self.inner.unreported_texts.lock().unwrap_or_else(PoisonError::into_inner);
        waiting.iter().for_each(tell);
        waiting.clear();
    }

    /// Returns the texts that exist only in the journal and were not restored, oldest first.
    ///
    /// # Errors
    /// Fails if the journal cannot be read.
    pub fn kept_texts(&self) -> Result<Vec<Change>, FilesError> {
        let selection = ChangeSelection {
            owner: ChangeOwner::Anyone,
            source: Some(ChangeSource::Observed),
            ..ChangeSelection::default()
        };
        let changes = self.changes(&selection)?.into_iter();
        let is_kept = |changed: &super::ListedChange| changed.is_in_effect && changed.change.is_kept_text();
        Ok(changes.filter(is_kept).map(|changed| changed.change).collect())
    }

    /// Returns the bytes of a text that exists only in the journal; `None` if the change is not a kept text.
    ///
    /// # Errors
    /// Fails if there is no such change or the journal cannot be read.
    pub fn kept_text(&self, id: ChangeId) -> Result<Option<Vec<u8>>, FilesError> {
        let writer = self.writer();
        let change = writer.journal.change(id)?.ok_or(FilesError::NoSuchChange(id))?.change;
        if !change.is_kept_text() {
            return Ok(None);
        }
        Ok(load_stored_file(&writer.journal, change.before)?.and_then(|(_, bytes)| bytes))
    }

    /// Keeps a text in the journal, as the file's previous content, and reports it.
    pub(super) fn keep_text(
        &self,
        writer: &mut WorkspaceWriter,
        path: &str,
        (text, mode): (&[u8], u32),
        current: Option<&[u8]>,
    ) -> Result<(), FilesError> {
        let side = |bytes| DraftSide { content: DraftContent::Bytes(bytes), mode };
        let draft = ChangeDraft {
            origin: &ChangeOrigin::kept_text(),
            source: ChangeSource::Observed,
            path,
            before: Some(side(text)),
            after: current.map(side),
            reverses: &[],
            method: ApplyMethod::AlreadyApplied,
        };
        for change in writer.journal.record(&[draft], now())? {
            let text = KeptText { change, path: path.to_owned() };
            let mut waiting = self.inner.unreported_texts.lock().unwrap_or_else(PoisonError::into_inner);
            for list in [&mut *waiting, &mut writer.kept_texts] {
                if list.len() < MAX_UNREPORTED_TEXTS {
                    list.push(text.clone());
                }
            }
        }
        self.inner.notifier.notify(WorkspaceNotification::TextsKept);
        Ok(())
    }
}
