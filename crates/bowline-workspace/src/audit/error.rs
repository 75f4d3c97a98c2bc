//! What can go wrong with an audit log.

use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use crate::storage::FileError;

/// Why nothing was appended or read. What was to be logged may not be done.
#[derive(Debug, Clone, thiserror::Error)]
pub enum AuditError {
    /// The directory or one of its files cannot be used.
    #[error("cannot {doing} {}, and nothing may be done that is not logged: {why}", path.display())]
    Io {
        /// What was tried.
        doing: &'static str,
        /// With which file or directory.
        path: PathBuf,
        /// What the system said.
        why: Arc<io::Error>,
    },
    /// There is no room for an entry.
    #[error("no room is left for the audit log {}, and nothing may be done that is not logged: free some space", path.display())]
    Full {
        /// The file.
        path: PathBuf,
    },
    /// Something else than a plain file or directory is in the place of one.
    #[error("{} is a link or no plain {what}: remove it, or keep the audit log elsewhere", path.display())]
    NotPlain {
        /// What is there.
        path: PathBuf,
        /// What should be.
        what: &'static str,
    },
    /// The anchor was moved or removed while the log was in use.
    #[error("the anchor {} was moved or removed while the audit log was in use: open the log again", path.display())]
    AnchorGone {
        /// Where it was.
        path: PathBuf,
    },
    /// The thread that writes the log has ended.
    #[error("nothing writes the audit log {} any more, and nothing may be done that is not logged: start again", path.display())]
    Stopped {
        /// Its directory.
        path: PathBuf,
    },
    /// Another process has held the anchor for as long as one waits for it.
    #[error("another process holds the audit log's anchor {}: wait for it or end it", path.display())]
    Held {
        /// The anchor.
        path: PathBuf,
    },
}

impl From<FileError> for AuditError {
    fn from(error: FileError) -> Self {
        use io::ErrorKind::{FileTooLarge, QuotaExceeded, StorageFull};
        match error {
            FileError::NotPlain { path, what } => Self::NotPlain { path, what },
            FileError::Io { path, why, .. }
                if matches!(why.kind(), StorageFull | QuotaExceeded | FileTooLarge) =>
            {
                Self::Full { path }
            }
            FileError::Io { doing, path, why } => Self::Io { doing, path, why: why.into() },
        }
    }
}

/// Says what was tried, with what.
pub(super) fn io_error(doing: &'static str, path: &Path) -> impl FnOnce(io::Error) -> AuditError {
    move |why| FileError::of(doing, path)(why).into()
}
