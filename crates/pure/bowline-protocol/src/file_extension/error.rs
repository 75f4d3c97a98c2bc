//! The failures of file operations, and their mapping to JSON-RPC errors on top of [`RpcError`].
//!
//! Each error has the code that [`RpcError`] gives to a failure of its sort, and `data.kind` names the failure. Kind and
//! `data` identify it to a peer; the message is for people.

use agent_client_protocol_schema::v1::Error;
use bowline_text::display::quote;
use bowline_text::merge::ConflictHunk;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use super::data::Etag;
use super::messages::WatchId;
use crate::rpc_error::RpcError;

/// The kind of a failure, as `data.kind` has it.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(rename_all = "camelCase")]
pub enum FileErrorKind {
    /// The path does not exist. Code -32002.
    NotFound,
    /// The user, a rule or the file system does not allow it. Code -32030.
    PermissionDenied,
    /// The path is outside the session's directories.
    OutsideRoots,
    /// A move or copy leads from one of the session's directories into another.
    AcrossRoots,
    /// The path exists, and the operation does not replace it.
    AlreadyExists,
    /// The file is not in the state that the agent knows. `etag` is its current one; without it the file is gone.
    Conflict,
    /// The content is larger than `limit`.
    TooLarge,
    /// There are more than `limit` of something.
    TooMany,
    /// The file is not text.
    NotText,
    /// The path is a directory, or neither a file nor a directory.
    NotFile,
    /// The path is not a directory.
    NotDirectory,
    /// The directory is not empty.
    NotEmpty,
    /// The params are malformed or contradict each other.
    BadParams,
    /// The data is not base64.
    InvalidEncoding,
    /// An offset or position is past the end or inside a character.
    OutOfRange,
    /// Two operations of a batch, or the two paths of one, overlap. `other` is the earlier operation.
    Overlap,
    /// The watch does not exist.
    UnknownWatch,
    /// The session does not exist. Code -32002.
    UnknownSession,
    /// The request was cancelled. Code -32800.
    Cancelled,
    /// The client failed. Code -32603.
    Internal,
    /// A kind that this build does not know.
    #[default]
    #[serde(other)]
    Other,
}

/// Why a file operation failed. Nothing was changed.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum FileError {
    /// The path does not exist.
    #[error("{} does not exist", quote(.path))]
    NotFound {
        /// The path.
        path: String,
    },
    /// The user, a rule or the file system does not allow it.
    #[error("permission denied: {reason}")]
    PermissionDenied {
        /// Who denied it, and why.
        reason: String,
    },
    /// The path is outside the session's directories.
    #[error("{} is outside the session's directories", quote(.path))]
    OutsideRoots {
        /// The path.
        path: String,
    },
    /// A move or copy leads from one of the session's directories into another.
    #[error("{} and {} are in different directories of the session", quote(.from), quote(.to))]
    AcrossRoots {
        /// The source.
        from: String,
        /// The destination.
        to: String,
    },
    /// The path exists, and the operation does not replace it.
    #[error("{} already exists", quote(.path))]
    AlreadyExists {
        /// The path.
        path: String,
    },
    /// The file is not in the state that the agent knows.
    #[error("{}: {reason}", quote(.path))]
    Conflict {
        /// The path.
        path: String,
        /// The cause, and the remedy.
        reason: String,
        /// The current etag; `None` if the file does not exist.
        etag: Option<Etag>,
        /// The hunks that both sides changed, if known.
        hunks: Vec<ConflictHunk>,
    },
    /// The content is too large.
    #[error("{} has {bytes} bytes, the limit is {limit}", .path.as_deref().map_or("the batch".to_owned(), quote))]
    TooLarge {
        /// The file; `None` for a batch as a whole.
        path: Option<String>,
        /// Its size.
        bytes: u64,
        /// The maximum size.
        limit: u64,
    },
    /// There are too many of something.
    #[error("too many {items}, the limit is {limit}")]
    TooMany {
        /// The items, in the plural: operations, watches, directories.
        items: String,
        /// The maximum number.
        limit: u64,
    },
    /// The file is not text.
    #[error("{} cannot be read as text: {reason}", quote(.path))]
    NotText {
        /// The path.
        path: String,
        /// The reason.
        reason: String,
    },
    /// The path is a directory, or neither a file nor a directory.
    #[error("{} is not a file", quote(.path))]
    NotFile {
        /// The path.
        path: String,
    },
    /// The path is not a directory.
    #[error("{} is not a directory", quote(.path))]
    NotDirectory {
        /// The path.
        path: String,
    },
    /// The directory is not empty.
    #[error("{} is not empty: remove it with recursive", quote(.path))]
    NotEmpty {
        /// The path.
        path: String,
    },
    /// The params are malformed or contradict each other.
    #[error("{reason}")]
    BadParams {
        /// The fault.
        reason: String,
    },
    /// The data is not base64.
    #[error("the data is not base64{}", .position.map_or(": it is incomplete".to_owned(), |at| format!(": byte {at} is wrong")))]
    InvalidEncoding {
        /// The first wrong byte of the encoded data, if a single byte is wrong.
        position: Option<u64>,
    },
    /// An offset or position is past the end.
    #[error("{position} is past the end: the content has {size} bytes")]
    OutOfRange {
        /// The offset or position.
        position: u64,
        /// The size of the content.
        size: u64,
    },
    /// An offset or position is inside a character.
    #[error("{position} is inside a character")]
    InsideCharacter {
        /// The offset or position.
        position: u64,
    },
    /// Two operations of a batch overlap.
    #[error("{} overlaps with operation {other}", quote(.path))]
    Overlap {
        /// The path of the later operation.
        path: String,
        /// The number of the earlier operation, from 0.
        other: u64,
    },
    /// A file or directory would be moved or copied onto or into itself, or onto a directory that contains it.
    #[error("{} and {} are the same, or one contains the other", quote(.from), quote(.to))]
    OntoItself {
        /// The source.
        from: String,
        /// The destination.
        to: String,
    },
    /// The watch does not exist.
    #[error("no watch {}", quote(.watch_id.as_str()))]
    UnknownWatch {
        /// The requested watch.
        watch_id: WatchId,
    },
    /// A failure that is not specific to files.
    #[error(transparent)]
    Rpc(RpcError),
}

/// Why a batch failed. Nothing was changed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct BatchError {
    /// The failed operation, from 0; `None` if the batch as a whole failed.
    pub index: Option<u64>,
    /// Why it failed.
    pub error: FileError,
}

/// The `data` of an error. An error has the fields that its kind documents, and may have more.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(rename_all = "camelCase")]
pub struct FileErrorData {
    /// The kind of the failure.
    pub kind: FileErrorKind,
    /// The failed operation of a batch, from 0.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub index: Option<u64>,
    /// The path that the failure is about.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub path: Option<String>,
    /// The second path, of a move or copy.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub to: Option<String>,
    /// The current etag of a file in conflict.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub etag: Option<Etag>,
    /// The size of content that is too large.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub bytes: Option<u64>,
    /// The exceeded limit.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub limit: Option<u64>,
    /// The items of which there are too many.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub items: Option<String>,
    /// The offset or position that is out of range, or the first wrong byte of base64.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub position: Option<u64>,
    /// The size of the content, for a position past its end.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub size: Option<u64>,
    /// The earlier operation of an overlap, from 0.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub other: Option<u64>,
    /// The unknown watch.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub watch_id: Option<WatchId>,
}

impl FileError {
    /// Returns the error for params that contradict each other or are malformed.
    pub(crate) fn bad_params(reason: impl Into<String>) -> Self {
        Self::BadParams { reason: reason.into() }
    }

    /// Returns the kind that `data.kind` has.
    #[must_use]
    pub fn kind(&self) -> FileErrorKind {
        match self {
            Self::NotFound { .. } => FileErrorKind::NotFound,
            Self::PermissionDenied { .. } => FileErrorKind::PermissionDenied,
            Self::OutsideRoots { .. } => FileErrorKind::OutsideRoots,
            Self::AcrossRoots { .. } => FileErrorKind::AcrossRoots,
            Self::AlreadyExists { .. } => FileErrorKind::AlreadyExists,
            Self::Conflict { .. } => FileErrorKind::Conflict,
            Self::TooLarge { .. } => FileErrorKind::TooLarge,
            Self::TooMany { .. } => FileErrorKind::TooMany,
            Self::NotText { .. } => FileErrorKind::NotText,
            Self::NotFile { .. } => FileErrorKind::NotFile,
            Self::NotDirectory { .. } => FileErrorKind::NotDirectory,
            Self::NotEmpty { .. } => FileErrorKind::NotEmpty,
            Self::BadParams { .. } => FileErrorKind::BadParams,
            Self::InvalidEncoding { .. } => FileErrorKind::InvalidEncoding,
            Self::OutOfRange { .. } | Self::InsideCharacter { .. } => FileErrorKind::OutOfRange,
            Self::Overlap { .. } | Self::OntoItself { .. } => FileErrorKind::Overlap,
            Self::UnknownWatch { .. } => FileErrorKind::UnknownWatch,
            Self::Rpc(failure) => match failure {
                RpcError::ResourceNotFound { .. } => FileErrorKind::NotFound,
                RpcError::SessionNotFound { .. } => FileErrorKind::UnknownSession,
                RpcError::Cancelled => FileErrorKind::Cancelled,
                RpcError::InvalidParams { .. } | RpcError::RelativePath { .. } => FileErrorKind::BadParams,
                RpcError::PastEnd { .. } => FileErrorKind::OutOfRange,
                RpcError::Other { .. } => FileErrorKind::Other,
                _ => FileErrorKind::Internal,
            },
        }
    }

    /// Reads the failure from a peer's error. An error without a known kind is read as [`RpcError`] reads it.
    #[must_use]
    pub fn from_error(error: &Error) -> Self {
        BatchError::from_error(error).error
    }

    /// Returns the failure as one of the protocol's, which has its code and message.
    #[must_use]
    pub fn to_rpc_error(&self) -> RpcError {
        match self {
            Self::NotFound { path } => RpcError::ResourceNotFound { uri: Some(path.clone()) },
            Self::PermissionDenied { reason } => RpcError::Denied { reason: reason.clone() },
            Self::OutsideRoots { path } => RpcError::OutsideRoots { path: path.clone() },
            Self::NotText { path, reason } => {
                RpcError::NotText { path: path.clone(), reason: reason.clone() }
            }
            Self::Conflict { path, reason, hunks, .. } => {
                RpcError::Conflict { path: path.clone(), reason: reason.clone(), hunks: hunks.clone() }
            }
            Self::Rpc(failure) => failure.clone(),
            Self::AcrossRoots { .. }
            | Self::AlreadyExists { .. }
            | Self::TooLarge { .. }
            | Self::TooMany { .. }
            | Self::NotFile { .. }
            | Self::NotDirectory { .. }
            | Self::NotEmpty { .. }
            | Self::BadParams { .. }
            | Self::InvalidEncoding { .. }
            | Self::OutOfRange { .. }
            | Self::InsideCharacter { .. }
            | Self::Overlap { .. }
            | Self::OntoItself { .. }
            | Self::UnknownWatch { .. } => RpcError::InvalidParams { reason: self.to_string() },
        }
    }

    /// Returns the fields of `data` besides those of the protocol's own error.
    fn to_data(&self) -> FileErrorData {
        let empty = FileErrorData { kind: self.kind(), ..FileErrorData::default() };
        let path = |path: &String| Some(path.clone());
        match self {
            Self::NotFound { path: at }
            | Self::OutsideRoots { path: at }
            | Self::AlreadyExists { path: at }
            | Self::NotText { path: at, .. }
            | Self::NotFile { path: at }
            | Self::NotDirectory { path: at }
            | Self::NotEmpty { path: at } => FileErrorData { path: path(at), ..empty },
            Self::AcrossRoots { from, to } | Self::OntoItself { from, to } => {
                FileErrorData { path: path(from), to: path(to), ..empty }
            }
            Self::Conflict { path: at, etag, .. } => {
                FileErrorData { path: path(at), etag: etag.clone(), ..empty }
            }
            Self::TooLarge { path, bytes, limit } => {
                FileErrorData { path: path.clone(), bytes: Some(*bytes), limit: Some(*limit), ..empty }
            }
            Self::TooMany { items, limit } => {
                FileErrorData { items: Some(items.clone()), limit: Some(*limit), ..empty }
            }
            Self::InvalidEncoding { position } => FileErrorData { position: *position, ..empty },
            Self::OutOfRange { position, size } => {
                FileErrorData { position: Some(*position), size: Some(*size), ..empty }
            }
            Self::InsideCharacter { position } => FileErrorData { position: Some(*position), ..empty },
            Self::Overlap { path: at, other } => {
                FileErrorData { path: path(at), other: Some(*other), ..empty }
            }
            Self::UnknownWatch { watch_id } => FileErrorData { watch_id: Some(watch_id.clone()), ..empty },
            Self::PermissionDenied { .. } | Self::BadParams { .. } | Self::Rpc(_) => empty,
        }
    }
}

impl FileErrorData {
    /// Returns the failure that the data describes; `None` if it has a kind without the fields of that kind, or a kind
    /// that only the code and message of the error describe.
    fn into_failure(self, rpc: &RpcError, message: &str) -> Option<FileError> {
        Some(match self.kind {
            FileErrorKind::NotFound => FileError::NotFound { path: self.path? },
            FileErrorKind::OutsideRoots => FileError::OutsideRoots { path: self.path? },
            FileErrorKind::AlreadyExists => FileError::AlreadyExists { path: self.path? },
            FileErrorKind::NotFile => FileError::NotFile { path: self.path? },
            FileErrorKind::NotDirectory => FileError::NotDirectory { path: self.path? },
            FileErrorKind::NotEmpty => FileError::NotEmpty { path: self.path? },
            FileErrorKind::AcrossRoots => FileError::AcrossRoots { from: self.path?, to: self.to? },
            FileErrorKind::Conflict => match rpc {
                RpcError::Conflict { path, reason, hunks } => FileError::Conflict {
                    path: path.clone(),
                    reason: reason.clone(),
                    etag: self.etag,
                    hunks: hunks.clone(),
                },
                _ => FileError::Conflict {
                    path: self.path?,
                    reason: message.to_owned(),
                    etag: self.etag,
                    hunks: Vec::new(),
                },
            },
            FileErrorKind::TooLarge => {
                FileError::TooLarge { path: self.path, bytes: self.bytes?, limit: self.limit? }
            }
            FileErrorKind::TooMany => FileError::TooMany { items: self.items?, limit: self.limit? },
            FileErrorKind::NotText => match rpc {
                RpcError::NotText { path, reason } => {
                    FileError::NotText { path: path.clone(), reason: reason.clone() }
                }
                _ => FileError::NotText { path: self.path?, reason: message.to_owned() },
            },
            FileErrorKind::PermissionDenied => match rpc {
                RpcError::Denied { reason } => FileError::PermissionDenied { reason: reason.clone() },
                _ => FileError::PermissionDenied { reason: message.to_owned() },
            },
            FileErrorKind::InvalidEncoding => FileError::InvalidEncoding { position: self.position },
            FileErrorKind::OutOfRange => match self.size {
                Some(size) => FileError::OutOfRange { position: self.position?, size },
                None => FileError::InsideCharacter { position: self.position? },
            },
            FileErrorKind::Overlap => match self.other {
                Some(other) => FileError::Overlap { path: self.path?, other },
                None => FileError::OntoItself { from: self.path?, to: self.to? },
            },
            FileErrorKind::UnknownWatch => FileError::UnknownWatch { watch_id: self.watch_id? },
            FileErrorKind::BadParams if !matches!(rpc, RpcError::RelativePath { .. }) => {
                FileError::bad_params(message)
            }
            FileErrorKind::BadParams
            | FileErrorKind::UnknownSession
            | FileErrorKind::Cancelled
            | FileErrorKind::Internal
            | FileErrorKind::Other => return None,
        })
    }
}

impl BatchError {
    /// Reads the failure of a batch from a peer's error.
    #[must_use]
    pub fn from_error(error: &Error) -> Self {
        let data = error.data.as_ref().and_then(|data| FileErrorData::deserialize(data).ok());
        let Some(data) = data else { return RpcError::from_error(error).into() };
        let index = data.index;
        // What the data names is no part of a failure that is just a text.
        let bare = Error::new(error.code.into(), strip_index(&error.message, index));
        let rest = error.data.as_ref().map(without_own_fields).filter(|rest| *rest != json!({}));
        let rpc = RpcError::from_error(&bare.clone().data(rest));
        let failure = data.into_failure(&rpc, &bare.message).unwrap_or_else(|| rpc.into());
        Self { index, error: failure }
    }
}

impl From<FileError> for BatchError {
    fn from(error: FileError) -> Self {
        Self { index: None, error }
    }
}

impl From<RpcError> for BatchError {
    fn from(failure: RpcError) -> Self {
        FileError::from(failure).into()
    }
}

impl std::error::Error for BatchError {}

impl std::fmt::Display for BatchError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self.index {
            Some(index) => write!(f, "{}{}", index_prefix(index), self.error),
            None => write!(f, "{}", self.error),
        }
    }
}

impl From<RpcError> for FileError {
    fn from(failure: RpcError) -> Self {
        match failure {
            RpcError::ResourceNotFound { uri: Some(path) } => Self::NotFound { path },
            RpcError::Denied { reason } => Self::PermissionDenied { reason },
            RpcError::OutsideRoots { path } => Self::OutsideRoots { path },
            RpcError::TooLarge { path, bytes, limit } => Self::TooLarge { path: Some(path), bytes, limit },
            RpcError::NotText { path, reason } => Self::NotText { path, reason },
            RpcError::Conflict { path, reason, hunks } => Self::Conflict { path, reason, etag: None, hunks },
            RpcError::InvalidParams { reason } => Self::BadParams { reason },
            other => Self::Rpc(other),
        }
    }
}

impl From<FileError> for Error {
    fn from(failure: FileError) -> Self {
        BatchError::from(failure).into()
    }
}

impl From<BatchError> for Error {
    fn from(failure: BatchError) -> Self {
        let BatchError { index, error: failure } = failure;
        let mut data = FileErrorData { index, ..failure.to_data() };
        let mut error = Error::from(failure.to_rpc_error());
        if let Some(index) = index {
            // A message may have its maximum length already.
            let message = format!("{}{}", index_prefix(index), error.message);
            error.message = crate::rpc_error::escape_message(&message);
        }
        for text in [&mut data.path, &mut data.to, &mut data.items] {
            *text = text.take().map(crate::rpc_error::truncate_data_text);
        }
        let mut entries = match json!(data) {
            Value::Object(entries) => entries,
            _ => serde_json::Map::new(),
        };
        match error.data.take() {
            Some(Value::Object(own)) => own.into_iter().for_each(|(name, value)| {
                entries.entry(name).or_insert(value);
            }),
            Some(own) => drop(entries.insert("details".to_owned(), own)),
            None => {}
        }
        error.data(Value::Object(entries))
    }
}

fn index_prefix(index: u64) -> String {
    format!("operation {index}: ")
}

/// Returns a message without the operation that it names.
fn strip_index(message: &str, index: Option<u64>) -> String {
    let rest = index.and_then(|index| message.strip_prefix(&index_prefix(index)));
    rest.unwrap_or(message).to_owned()
}

/// Returns `data` without the fields that a failure of [`RpcError`] does not have.
fn without_own_fields(data: &Value) -> Value {
    let mut data = data.clone();
    if let Value::Object(entries) = &mut data {
        entries.retain(|name, _| !matches!(name.as_str(), "kind" | "index" | "etag"));
    }
    data
}
