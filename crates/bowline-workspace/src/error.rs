//! Why the engine did not do what it was asked, and what a peer is told of it.

use std::io;

use bowline_state::changes::ChangeId;
use bowline_state::documents::Untaken;
use bowline_state::failure::{Failure, quote};
use bowline_state::ledger::Rejected;
use bowline_state::lines::PastEnd;
use bowline_state::text::{NotText, Unencodable};
use bowline_state::undo::{CannotReverse, Why};

use crate::disk::ReadFault;
use crate::journal::JournalError;
use crate::listing::ListError;
use crate::roots::{Denied, Special};
use crate::search::SearchError;

/// Why an operation on files failed. Nothing was changed, unless it was [`Interrupted`](FilesError::Interrupted), or
/// [`HalfTakenBack`](FilesError::HalfTakenBack).
#[derive(Debug, thiserror::Error)]
pub enum FilesError {
    /// The path is not for this session.
    #[error(transparent)]
    Denied(#[from] Denied),
    /// The file is larger than a read gives at once.
    #[error("{} has {size} bytes, a read gives at most {cap}: read a window with line and limit", quote(.path))]
    TooLarge {
        /// The file.
        path: String,
        /// Its size.
        size: u64,
        /// How much a read gives.
        cap: u64,
    },
    /// The lines asked for are larger than a read gives at once.
    #[error("these lines of {} have more than {cap} bytes: ask for fewer", quote(.path))]
    WindowTooLarge {
        /// The file.
        path: String,
        /// How much a read gives.
        cap: u64,
    },
    /// The file is larger than a read gives at once, and in an encoding that cannot be read in windows.
    #[error("{} has {size} bytes and is not UTF-8: of such a file a read gives at most {cap}, use a command", quote(.path))]
    OnlyWhole {
        /// The file.
        path: String,
        /// Its size.
        size: u64,
        /// How much a read gives.
        cap: u64,
    },
    /// What is to be written is too large.
    #[error("the text for {} has {size} bytes, a write takes at most {cap}: use a command", quote(.path))]
    ContentTooLarge {
        /// The file.
        path: String,
        /// The size of the text.
        size: u64,
        /// How much a write takes.
        cap: u64,
    },
    /// It is not text that can be given back byte for byte.
    #[error("{} cannot be read as text: {why}", quote(.path))]
    NotText {
        /// The file.
        path: String,
        /// Why not.
        why: NotText,
    },
    /// The window starts behind the last line.
    #[error("{why}")]
    PastEnd {
        /// The file.
        path: String,
        /// How many lines there are.
        why: PastEnd,
    },
    /// It is a directory.
    #[error("{} is a directory: list it, or name a file in it", quote(.0))]
    IsADirectory(String),
    /// It is a pipe, a socket or a device.
    #[error("{} is not a regular file", quote(.0))]
    NotAFile(String),
    /// The ledger does not allow the write.
    #[error("{}: {why}", quote(.path))]
    Rejected {
        /// The file.
        path: String,
        /// Why not.
        why: Rejected,
    },
    /// The text has a character that the file's encoding has no place for.
    #[error("{} stays as it is: {why}", quote(.path))]
    Unencodable {
        /// The file.
        path: String,
        /// Which character.
        why: Unencodable,
    },
    /// The file may not be written.
    #[error("{} is read-only: make it writable first", quote(.0))]
    ReadOnlyFile(String),
    /// The file has other names, perhaps outside the workspace.
    #[error("{} has {links} names (hard links): writing it would change all of them; the setting for hard links can allow it", quote(.path))]
    HardLinks {
        /// The file.
        path: String,
        /// How many names.
        links: u64,
    },
    /// What the write would do by now is not what somebody agreed to.
    #[error("{} changed after the write was approved: nothing was written, ask again", quote(.0))]
    NotAsAgreed(String),
    /// Another program is writing the file, and did not finish within a second.
    #[error("another program is writing {}: nothing was done, try again when it has finished", quote(.0))]
    BeingWritten(String),
    /// The file changes all the time.
    #[error("{} keeps changing, try again", quote(.0))]
    Unsteady(String),
    /// The system refuses.
    #[error("{}: {why}", quote(.path))]
    System {
        /// The file.
        path: String,
        /// What the system says.
        why: io::Error,
    },
    /// A write failed, and so did the way back. The journal has the text before and after; what is left of the write is
    /// put right by the next one, or when the workspace is opened again.
    #[error("{} was being written when that failed ({why}): it is put right with the next write", quote(.path))]
    Interrupted {
        /// The file.
        path: String,
        /// What failed.
        why: String,
    },
    /// A file was taken away to make room for others that then could not be brought back, and it could not come back itself.
    #[error("{} was taken back, but not what is to be in its place ({why}): undo again, or redo", quote(.path))]
    HalfTakenBack {
        /// The file, or the first of them.
        path: String,
        /// What failed.
        why: String,
    },
    /// There is no open document of that file.
    #[error("{} is not open: open the document first", quote(.0))]
    NotOpen(String),
    /// An editor's change does not go together with what the document shows by now.
    #[error("the change of {} is not taken: {why}", quote(.path))]
    Untaken {
        /// The file.
        path: String,
        /// Why not.
        why: Untaken,
    },
    /// A change cannot be taken back, so none was.
    #[error(transparent)]
    CannotReverse(#[from] CannotReverse),
    /// The name leads to another file by now.
    #[error("{} leads elsewhere by now, through a link: it is not the file that was changed", quote(.0))]
    LeadsElsewhere(String),
    /// Too much would be taken back at once.
    #[error(
        "{what} of {files} files is more than {cap} bytes at once: {what} fewer, by turn, tool call or file"
    )]
    TooMuchAtOnce {
        /// What was to be done.
        what: &'static str,
        /// How many files.
        files: usize,
        /// How many bytes it may be.
        cap: usize,
    },
    /// There is nothing to take back.
    #[error("there is nothing to {0} here")]
    NothingTo(&'static str),
    /// All that there is to take back was merely found on disk, and was to be left alone.
    #[error(
        "there is nothing to undo but {files} that nothing of the agent explains and that may be your own work: \
         take back each by itself, or all with `bowline undo --found`", files = count_files(*.0)
    )]
    OnlyFound(usize),
    /// There is no such change.
    #[error("there is no change {0}")]
    NoSuchChange(ChangeId),
    /// The directory cannot be listed.
    #[error(transparent)]
    List(#[from] ListError),
    /// The query cannot be searched for.
    #[error(transparent)]
    Search(#[from] SearchError),
    /// The journal cannot be used, so nothing is written.
    #[error(transparent)]
    Journal(#[from] JournalError),
}

fn count_files(files: usize) -> String {
    if files == 1 { "1 file".to_owned() } else { format!("{files} files") }
}

impl FilesError {
    pub(crate) fn special(path: &str, special: Special) -> Self {
        match special {
            Special::Directory => Self::IsADirectory(path.to_owned()),
            Special::Other => Self::NotAFile(path.to_owned()),
        }
    }

    pub(crate) fn read(path: &str, fault: ReadFault) -> Self {
        let path = path.to_owned();
        match fault {
            ReadFault::TooLarge { size, cap } => Self::TooLarge { path, size, cap },
            ReadFault::WindowTooLarge { cap } => Self::WindowTooLarge { path, cap },
            ReadFault::OnlyWhole { size, cap } => Self::OnlyWhole { path, size, cap },
            ReadFault::NotText(why) => Self::NotText { path, why },
            ReadFault::PastEnd(why) => Self::PastEnd { path, why },
            ReadFault::Io(why) => Self::System { path, why },
        }
    }

    /// Returns what kind of thing the system says, if it is the system that refuses.
    fn kind(&self) -> Option<io::ErrorKind> {
        match self {
            Self::System { why, .. } | Self::Denied(Denied::System { why, .. }) => Some(why.kind()),
            _ => None,
        }
    }

    pub(crate) fn system(path: &str) -> impl Fn(io::Error) -> Self {
        move |why| Self::System { path: path.to_owned(), why }
    }
}

impl From<FilesError> for Failure {
    fn from(error: FilesError) -> Self {
        match error {
            FilesError::Denied(Denied::Refused(refusal)) => refusal.into(),
            FilesError::Denied(Denied::NotFound(path))
            | FilesError::List(ListError::NotFound(path))
            | FilesError::Search(SearchError::NotFound(path)) => Self::ResourceNotFound { uri: Some(path) },
            FilesError::PastEnd { why, .. } => why.into(),
            FilesError::TooLarge { path, size, cap } => Self::TooLarge { path, bytes: size, limit: cap },
            FilesError::NotText { path, why } => Self::NotText { path, why: why.to_string() },
            FilesError::Rejected { path, why } => {
                let text = why.to_string();
                let hunks = match why {
                    Rejected::Conflict(conflict) | Rejected::DiskDiffers(conflict) => conflict.hunks,
                    Rejected::Stale | Rejected::Deleted | Rejected::PartlySeen(_) | Rejected::NotSeen => {
                        Vec::new()
                    }
                };
                Self::Conflict { path, why: text, hunks }
            }
            FilesError::CannotReverse(CannotReverse { path, why: Why::Conflict(conflict), change }) => {
                let why = format!("change {change} cannot be taken back, its lines were changed since");
                Self::Conflict { path, why, hunks: conflict.hunks }
            }
            // A name that no file system takes is the caller's.
            error if error.kind() == Some(io::ErrorKind::InvalidFilename) => {
                Self::InvalidParams { reason: error.to_string() }
            }
            FilesError::Journal(error @ JournalError::NoRoom { .. }) => {
                Self::InvalidParams { reason: format!("nothing was written: {error}") }
            }
            // Where the journal is concerns its owner, not an agent.
            FilesError::Journal(_) => Self::Internal {
                reason: "the journal of changes cannot be used, so nothing was done".to_owned(),
            },
            error @ (FilesError::System { .. }
            | FilesError::Unsteady(_)
            | FilesError::BeingWritten(_)
            | FilesError::Interrupted { .. }
            | FilesError::HalfTakenBack { .. }
            | FilesError::Denied(
                Denied::System { .. } | Denied::Unsteady(_) | Denied::RootMoved(_),
            )) => Self::Internal { reason: error.to_string() },
            error => Self::InvalidParams { reason: error.to_string() },
        }
    }
}
