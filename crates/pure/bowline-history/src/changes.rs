//! File changes as recorded in the journal: the states before and after, the origin, and the source of each change.

use std::fmt;

use bowline_text::hash::ContentHash;
use bowline_text::time::Timestamp;

/// The position of a change in the journal. Later changes have higher numbers.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct ChangeId(pub i64);

impl fmt::Display for ChangeId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.0)
    }
}

/// The origin of a change; unknown parts are `None`.
#[derive(Debug, Clone, Default, PartialEq, Eq, Hash)]
pub struct ChangeOrigin {
    /// The session.
    pub session: Option<String>,
    /// The turn, counted from 1 within the session.
    pub turn: Option<u64>,
    /// The tool call.
    pub call: Option<String>,
    /// The command that ran in a terminal.
    pub command: Option<String>,
}

/// The tool call that marks a text preserved only in the journal. A real call has a session.
pub const KEPT_TEXT_CALL: &str = "kept";

impl ChangeOrigin {
    /// Returns the origin of a user's text that could not be merged into its file and is preserved only in the journal.
    #[must_use]
    pub fn kept_text() -> Self {
        Self { call: Some(KEPT_TEXT_CALL.to_owned()), ..Self::default() }
    }
}

/// How a change became known.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum ChangeSource {
    /// Bowline wrote it.
    Written,
    /// A disk scan found it.
    Observed,
    /// An agent reported it.
    Claimed,
}

/// The state of a file before or after a change.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct FileState {
    /// The hash of its content.
    pub hash: ContentHash,
    /// Its size in bytes.
    pub size: u64,
    /// Its permission bits.
    pub mode: u32,
}

/// A reference to a change that another one reverts.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Reversal {
    /// The reverted change.
    pub change: ChangeId,
    /// The reverted hunks, counted from 0; `None` means the whole change.
    pub hunks: Option<Vec<usize>>,
}

/// A change of one file, or of an empty directory.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Change {
    /// Its position in the journal.
    pub id: ChangeId,
    /// When it was recorded.
    pub at: Timestamp,
    /// Its origin.
    pub origin: ChangeOrigin,
    /// How it became known.
    pub source: ChangeSource,
    /// The canonical absolute path of the file.
    pub path: String,
    /// The file before; `None` if it did not exist.
    pub before: Option<FileState>,
    /// The file after; `None` if it was deleted.
    pub after: Option<FileState>,
    /// The path from which it moved the file here. Another change recorded with it removed the file there.
    pub moved_from: Option<String>,
    /// The changes it reverts: empty for an edit, edits for an undo, undos for a redo.
    pub reverses: Vec<Reversal>,
}

impl Change {
    /// Returns whether the texts of a written change were pruned: it is still listed but cannot be undone.
    #[must_use]
    pub fn is_pruned(&self) -> bool {
        let is_forgotten = |state: FileState| state.hash == ContentHash::UNKNOWN;
        self.source == ChangeSource::Written
            && [self.before, self.after].into_iter().flatten().any(is_forgotten)
    }

    /// Returns whether the change created or removed an empty directory, or reverts such changes: it has no content.
    #[must_use]
    pub fn is_without_content(&self) -> bool {
        self.before.is_none() && self.after.is_none()
    }

    /// Returns whether the change was found on disk and no command or tool call explains it: the user may have made it.
    #[must_use]
    pub fn is_unattributed(&self) -> bool {
        self.source == ChangeSource::Observed && self.origin.command.is_none() && self.origin.call.is_none()
    }

    /// Returns whether the change preserves a text that could not be merged into its file: `before` is that text,
    /// `after` the file's content at the time.
    #[must_use]
    pub fn is_kept_text(&self) -> bool {
        self.origin.session.is_none() && self.origin.call.as_deref() == Some(KEPT_TEXT_CALL)
    }
}

/// The outcome of a change.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum ChangeOutcome {
    /// It was applied.
    Done,
    /// It was not applied: the file is as before.
    Abandoned,
    /// Unknown: the file matches neither side of the change.
    Unknown,
}
