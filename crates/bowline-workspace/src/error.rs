//! Errors of file operations, and their forms for peers: JSON-RPC errors, and the kinds of the file extension.

use std::io;

use bowline_history::changes::ChangeId;
use bowline_history::documents::ChangeDocumentError;
use bowline_history::ledger::WriteRejectedError;
use bowline_history::undo::{ReversalError, ReversalErrorReason};
use bowline_policy::paths::AdmissionError;
use bowline_protocol::file_extension::FileError;
use bowline_protocol::rpc_error::RpcError;
use bowline_text::display::quote;
use bowline_text::lines::PastEndError;
use bowline_text::text::{NotTextError, UnencodableError};

use crate::disk::ReadError;
use crate::journal::JournalError;
use crate::list::ListError;
use crate::roots::{AdmitError, SpecialFile};
use crate::search::SearchError;

/// Why an operation on files failed. Nothing was changed, except for [`Interrupted`](FilesError::Interrupted) and
/// [`PartlyUndone`](FilesError::PartlyUndone).
#[derive(Debug, thiserror::Error)]
pub enum FilesError {
    /// The session's roots do not admit the path.
    #[error(transparent)]
    NotAdmitted(#[from] AdmitError),
    /// The file exceeds the read cap.
    #[error("{} has {size} bytes, a read gives at most {cap}: read a window with line and limit", quote(.path))]
    TooLarge {
        /// The file.
        path: String,
        /// Its size.
        size: u64,
        /// The read cap.
        cap: u64,
    },
    /// The requested lines exceed the read cap.
    #[error("these lines of {} have more than {cap} bytes: ask for fewer", quote(.path))]
    WindowTooLarge {
        /// The file.
        path: String,
        /// The read cap.
        cap: u64,
    },
    /// The file exceeds the read cap, and its encoding cannot be read in windows.
    #[error("{} has {size} bytes and is not UTF-8: of such a file a read gives at most {cap}, use a command", quote(.path))]
    WindowUnsupported {
        /// The file.
        path: String,
        /// Its size.
        size: u64,
        /// The read cap.
        cap: u64,
    },
    /// The text to write is too large.
    #[error("the text for {} has {size} bytes, a write takes at most {cap}: use a command", quote(.path))]
    ContentTooLarge {
        /// The file.
        path: String,
        /// The size of the text.
        size: u64,
        /// The write cap.
        cap: u64,
    },
    /// The file is not text that survives a round trip byte for byte.
    #[error("{} cannot be read as text: {why}", quote(.path))]
    NotText {
        /// The file.
        path: String,
        /// The reason.
        why: NotTextError,
    },
    /// The window starts beyond the last line.
    #[error("{why}")]
    PastEnd {
        /// The file.
        path: String,
        /// The number of lines.
        why: PastEndError,
    },
    /// It is a directory.
    #[error("{} is a directory: list it, or name a file in it", quote(.0))]
    IsADirectory(String),
    /// It is a pipe, a socket or a device.
    #[error("{} is not a regular file", quote(.0))]
    NotRegularFile(String),
    /// The ledger does not allow the write.
    #[error("{}: {why}", quote(.path))]
    WriteRejected {
        /// The file.
        path: String,
        /// The reason.
        why: WriteRejectedError,
    },
    /// The text has a character that the file's encoding cannot represent.
    #[error("{} stays as it is: {why}", quote(.path))]
    Unencodable {
        /// The file.
        path: String,
        /// The character.
        why: UnencodableError,
    },
    /// The file is read-only.
    #[error("{} is read-only: make it writable first", quote(.0))]
    ReadOnlyFile(String),
    /// The file has other hard links, perhaps outside the workspace.
    #[error("{} has {links} names (hard links): writing it would change all of them: break the links first, or use a command", quote(.path))]
    HardLinks {
        /// The file.
        path: String,
        /// The number of links.
        links: u64,
    },
    /// The write would no longer do what was approved.
    #[error("{} changed after the write was approved: nothing was written, ask again", quote(.0))]
    ChangedSinceApproval(String),
    /// Another program is writing the file, and did not finish within a second.
    #[error("another program is writing {}: nothing was done, try again when it has finished", quote(.0))]
    BeingWritten(String),
    /// The file keeps changing.
    #[error("{} keeps changing, try again", quote(.0))]
    KeepsChanging(String),
    /// The system reported an error.
    #[error("{}: {why}", quote(.path))]
    System {
        /// The file.
        path: String,
        /// The system's error.
        why: io::Error,
    },
    /// A write failed, and so did its rollback. The journal has the text before and after; the next write, or reopening
    /// the workspace, repairs the file.
    #[error("{} was being written when that failed ({why}): it is put right with the next write", quote(.path))]
    Interrupted {
        /// The file.
        path: String,
        /// The failure.
        why: String,
    },
    /// An undo removed a file, failed to restore others, and could not restore the removed file either.
    #[error("{} was taken back, but not what is to be in its place ({why}): undo again, or redo", quote(.path))]
    PartlyUndone {
        /// The first affected file.
        path: String,
        /// The failure.
        why: String,
    },
    /// The file is not an open document.
    #[error("{} is not open: open the document first", quote(.0))]
    NotOpen(String),
    /// An editor's change does not apply to the current text of the document.
    #[error("the change of {} is not taken: {why}", quote(.path))]
    EditRejected {
        /// The file.
        path: String,
        /// The reason.
        why: ChangeDocumentError,
    },
    /// A change cannot be reversed, so none was.
    #[error(transparent)]
    CannotReverse(#[from] ReversalError),
    /// The path now leads to another file.
    #[error("{} leads elsewhere by now, through a link: it is not the file that was changed", quote(.0))]
    PathRedirected(String),
    /// The undo is too large for one step.
    #[error(
        "{what} of {files} files is more than {cap} bytes at once: {what} fewer, by turn, tool call or file"
    )]
    UndoTooLarge {
        /// The operation.
        what: &'static str,
        /// The number of files.
        files: usize,
        /// The cap in bytes.
        cap: usize,
    },
    /// There is nothing to undo.
    #[error("there is nothing to {0} here")]
    NothingToUndo(&'static str),
    /// The only changes to undo were merely observed on disk, and these were to be left alone.
    #[error(
        "there is nothing to undo but {files} that nothing of the agent explains and that may be your own work: \
         take back each by itself, or all with `bowline undo --found`", files = count_files(*.0)
    )]
    OnlyObservedChanges(usize),
    /// The change does not exist.
    #[error("there is no change {0}")]
    NoSuchChange(ChangeId),
    /// The directory cannot be listed.
    #[error(transparent)]
    List(#[from] ListError),
    /// The search query is invalid.
    #[error(transparent)]
    Search(#[from] SearchError),
    /// The journal is unusable, so nothing is written.
    #[error(transparent)]
    Journal(#[from] JournalError),
}

fn count_files(files: usize) -> String {
    if files == 1 { "1 file".to_owned() } else { format!("{files} files") }
}

impl FilesError {
    pub(crate) fn from_special(path: &str, special: SpecialFile) -> Self {
        match special {
            SpecialFile::Directory => Self::IsADirectory(path.to_owned()),
            SpecialFile::Other => Self::NotRegularFile(path.to_owned()),
        }
    }

    pub(crate) fn from_read_error(path: &str, fault: ReadError) -> Self {
        let path = path.to_owned();
        match fault {
            ReadError::TooLarge { size, cap } => Self::TooLarge { path, size, cap },
            ReadError::WindowTooLarge { cap } => Self::WindowTooLarge { path, cap },
            ReadError::WindowUnsupported { size, cap } => Self::WindowUnsupported { path, size, cap },
            ReadError::NotText(why) => Self::NotText { path, why },
            ReadError::PastEnd(why) => Self::PastEnd { path, why },
            ReadError::Io(why) => Self::System { path, why },
        }
    }

    /// Returns the kind of the system's error, if there is one.
    fn io_error_kind(&self) -> Option<io::ErrorKind> {
        match self {
            Self::System { why, .. } | Self::NotAdmitted(AdmitError::System { why, .. }) => Some(why.kind()),
            _ => None,
        }
    }

    pub(crate) fn io_error(path: &str) -> impl Fn(io::Error) -> Self {
        move |why| Self::System { path: path.to_owned(), why }
    }
}

impl From<FilesError> for FileError {
    fn from(error: FilesError) -> Self {
        let reason = error.to_string();
        match error {
            FilesError::NotAdmitted(AdmitError::NotADirectory(path))
            | FilesError::List(ListError::NotADirectory(path)) => Self::NotDirectory { path },
            FilesError::IsADirectory(path) | FilesError::NotRegularFile(path) => Self::NotFile { path },
            FilesError::ContentTooLarge { path, size, cap } => {
                Self::TooLarge { path: Some(path), bytes: size, limit: cap }
            }
            FilesError::ChangedSinceApproval(path) => {
                let reason = "the result is no longer what was approved, ask again".to_owned();
                Self::Conflict { path, reason, etag: None, hunks: Vec::new() }
            }
            FilesError::NotAdmitted(
                AdmitError::Refused(AdmissionError::ReadOnlyRoot(_))
                | AdmitError::BowlineOwned(_)
                | AdmitError::TemporaryName(_)
                | AdmitError::SystemFileSystem(_),
            )
            | FilesError::ReadOnlyFile(_)
            | FilesError::HardLinks { .. } => Self::PermissionDenied { reason },
            error if error.io_error_kind() == Some(io::ErrorKind::PermissionDenied) => {
                Self::PermissionDenied { reason }
            }
            error => RpcError::from(error).into(),
        }
    }
}

impl From<FilesError> for RpcError {
    fn from(error: FilesError) -> Self {
        match error {
            FilesError::NotAdmitted(AdmitError::Refused(refusal)) => refusal.into(),
            FilesError::NotAdmitted(AdmitError::NotFound(path))
            | FilesError::List(ListError::NotFound(path))
            | FilesError::Search(SearchError::NotFound(path)) => Self::ResourceNotFound { uri: Some(path) },
            FilesError::PastEnd { why, .. } => why.into(),
            FilesError::TooLarge { path, size, cap } => Self::TooLarge { path, bytes: size, limit: cap },
            FilesError::NotText { path, why } => Self::NotText { path, reason: why.to_string() },
            FilesError::WriteRejected { path, why } => {
                let text = why.to_string();
                let hunks = match why {
                    WriteRejectedError::Conflict(conflict) | WriteRejectedError::DiskConflict(conflict) => {
                        conflict.hunks
                    }
                    WriteRejectedError::Stale
                    | WriteRejectedError::Deleted
                    | WriteRejectedError::UnreadLines(_) => Vec::new(),
                };
                Self::Conflict { path, reason: text, hunks }
            }
            FilesError::CannotReverse(ReversalError {
                path,
                reason: ReversalErrorReason::Conflict(conflict),
                change,
            }) => {
                let why = format!("change {change} cannot be taken back, its lines were changed since");
                Self::Conflict { path, reason: why, hunks: conflict.hunks }
            }
            // A name that no file system accepts is the caller's mistake.
            error if error.io_error_kind() == Some(io::ErrorKind::InvalidFilename) => {
                Self::InvalidParams { reason: error.to_string() }
            }
            FilesError::Journal(error @ JournalError::NoRoom { .. }) => {
                Self::InvalidParams { reason: format!("nothing was written: {error}") }
            }
            // The location of the journal concerns its owner, not an agent.
            FilesError::Journal(_) => Self::Internal {
                reason: "the journal of changes cannot be used, so nothing was done".to_owned(),
            },
            error @ (FilesError::System { .. }
            | FilesError::KeepsChanging(_)
            | FilesError::BeingWritten(_)
            | FilesError::Interrupted { .. }
            | FilesError::PartlyUndone { .. }
            | FilesError::NotAdmitted(
                AdmitError::System { .. } | AdmitError::KeepsChanging(_) | AdmitError::RootMoved(_),
            )) => Self::Internal { reason: error.to_string() },
            error => Self::InvalidParams { reason: error.to_string() },
        }
    }
}
