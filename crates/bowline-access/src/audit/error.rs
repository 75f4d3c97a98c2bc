//! Errors of the audit log.

use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use bowline_storage::FileError;

/// Why nothing was appended or read. An operation that cannot be logged must not be carried out.
#[derive(Debug, Clone, thiserror::Error)]
pub enum AuditError {
    /// The directory or one of its files cannot be used.
    #[error("cannot {action} {}, and nothing may be done that is not logged: {why}", path.display())]
    Io {
        /// The attempted action.
        action: &'static str,
        /// The file or directory.
        path: PathBuf,
        /// The system's error.
        why: Arc<io::Error>,
    },
    /// There is no space for an entry.
    #[error("no room is left for the audit log {}, and nothing may be done that is not logged: free some space", path.display())]
    Full {
        /// The file.
        path: PathBuf,
    },
    /// Something other than a plain file or directory is in its place.
    #[error("{} is a link or no plain {what}: remove it, or keep the audit log elsewhere", path.display())]
    NotPlain {
        /// Its path.
        path: PathBuf,
        /// The expected kind.
        what: &'static str,
    },
    /// The anchor was moved or removed while the log was in use.
    #[error("the anchor {} was moved or removed while the audit log was in use: open the log again", path.display())]
    AnchorMissing {
        /// Its former path.
        path: PathBuf,
    },
    /// The thread that writes the log has ended.
    #[error("nothing writes the audit log {} any more, and nothing may be done that is not logged: start again", path.display())]
    Stopped {
        /// The log's directory.
        path: PathBuf,
    },
    /// Another process held the anchor until the timeout.
    #[error("another process holds the audit log's anchor {}: wait for it or end it", path.display())]
    AnchorLocked {
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
            FileError::Io { action: doing, path, why } => Self::Io { action: doing, path, why: why.into() },
        }
    }
}

/// Maps an I/O error of an action on a path.
pub(super) fn io_error(doing: &'static str, path: &Path) -> impl FnOnce(io::Error) -> AuditError {
    move |why| FileError::io_error(doing, path)(why).into()
}
