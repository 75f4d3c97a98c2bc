//! Texts of the user that could not be merged into their files and exist only in the journal.

use std::fmt;
use std::sync::{Mutex, PoisonError};

use bowline_history::changes::{ChangeId, ChangeOrigin, ChangeSource};
use bowline_text::display::quote;

use super::notifications::WorkspaceNotification;
use super::{Workspace, WorkspaceWriter};
use crate::error::FilesError;
use crate::journal::{ChangeDraft, DraftSide};
use bowline_storage::clock::now;

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

/// Keeps a text in the journal, as the file's previous content, and reports it.
pub(super) fn keep_text(
    workspace: &Workspace,
    writer: &mut WorkspaceWriter,
    path: &str,
    (text, mode): (&[u8], u32),
    current: Option<&[u8]>,
) -> Result<(), FilesError> {
    let side = |bytes| DraftSide::bytes(bytes, mode);
    let origin = ChangeOrigin::kept_text();
    let source = (&origin, ChangeSource::Observed);
    let draft = ChangeDraft::applied(source, path, Some(side(text)), current.map(side));
    for change in writer.journal.record(&[draft], now())? {
        let text = KeptText { change, path: path.to_owned() };
        let mut waiting = workspace.inner.unreported_texts.lock().unwrap_or_else(PoisonError::into_inner);
        for list in [&mut *waiting, &mut writer.kept_texts] {
            if list.len() < MAX_UNREPORTED_TEXTS {
                list.push(text.clone());
            }
        }
    }
    workspace.inner.notifier.notify(WorkspaceNotification::TextsKept);
    Ok(())
}
