//! Texts of the user's that could not be brought into their files, so that only the journal has them.

use std::fmt;
use std::sync::{Mutex, PoisonError};

use bowline_state::changes::{Change, ChangeId, Origin, Source};
use bowline_state::failure::quote;
use bowline_state::undo::{Selection, Who};

use super::sharing::SharedNews;
use super::undoing::kept;
use super::{Workspace, Writer};
use crate::clock::now;
use crate::error::FilesError;
use crate::journal::{Draft, Manner, Side, SideContent};

/// So many texts wait to be told of; `bowline changes` lists all.
const MAX_WAITING: usize = 256;

/// A text that only the journal has.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct KeptText {
    /// The change that it is recorded as.
    pub change: ChangeId,
    /// The file that it was written to.
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

/// The texts that nobody was told of yet, oldest first. Invariant: at most [`MAX_WAITING`].
pub(super) type WaitingTexts = Mutex<Vec<KeptText>>;

impl Workspace {
    /// Tells of the texts that were kept in the journal since the last time, each once. [`SharedNews::TextsKept`] says
    /// that there are some. `tell` must not use the workspace.
    pub fn tell_kept_texts(&self, tell: impl FnMut(&KeptText)) {
        let mut waiting = self.inner.kept.lock().unwrap_or_else(PoisonError::into_inner);
        waiting.iter().for_each(tell);
        waiting.clear();
    }

    /// Returns the texts that only the journal has and that were not restored, oldest first.
    ///
    /// # Errors
    /// Fails if the journal cannot be read.
    pub fn kept_texts(&self) -> Result<Vec<Change>, FilesError> {
        let selection =
            Selection { who: Who::Anyone, source: Some(Source::Observed), ..Selection::default() };
        let changes = self.changes(&selection)?.into_iter();
        let is_kept = |changed: &super::Changed| changed.in_effect && changed.change.is_kept_text();
        Ok(changes.filter(is_kept).map(|changed| changed.change).collect())
    }

    /// Returns the bytes of a text that only the journal has; none if the change is not one of a kept text.
    ///
    /// # Errors
    /// Fails if there is no such change or the journal cannot be read.
    pub fn kept_text(&self, id: ChangeId) -> Result<Option<Vec<u8>>, FilesError> {
        let writer = self.writer();
        let change = writer.journal.change(id)?.ok_or(FilesError::NoSuchChange(id))?.change;
        if !change.is_kept_text() {
            return Ok(None);
        }
        Ok(kept(&writer.journal, change.before)?.and_then(|(_, bytes)| bytes))
    }

    /// Keeps a text in the journal, as what a file held before what it holds now, and tells of it.
    pub(super) fn keep_text(
        &self,
        writer: &mut Writer,
        path: &str,
        (text, mode): (&[u8], u32),
        current: Option<&[u8]>,
    ) -> Result<(), FilesError> {
        let side = |bytes| Side { content: SideContent::Bytes(bytes), mode };
        let draft = Draft {
            origin: &Origin::kept_text(),
            source: Source::Observed,
            path,
            before: Some(side(text)),
            after: current.map(side),
            reverses: &[],
            manner: Manner::Found,
        };
        for change in writer.journal.record(&[draft], now())? {
            let text = KeptText { change, path: path.to_owned() };
            let mut waiting = self.inner.kept.lock().unwrap_or_else(PoisonError::into_inner);
            for list in [&mut *waiting, &mut writer.kept] {
                if list.len() < MAX_WAITING {
                    list.push(text.clone());
                }
            }
        }
        self.inner.bell.tell(SharedNews::TextsKept);
        Ok(())
    }
}
