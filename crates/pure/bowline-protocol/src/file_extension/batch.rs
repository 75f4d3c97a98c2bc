//! Batches: several operations of which all happen or none.
//!
//! Every operation sees the files as they are before the batch. [`super::overlap`] has the rules by which the order of
//! the operations cannot matter.

use std::path::PathBuf;

use agent_client_protocol_schema::v1::SessionId;
use serde::{Deserialize, Deserializer, Serialize};
use serde_json::value::RawValue;

use super::capability::FileLimits;
use super::error::{BatchError, FileError};
use super::messages::{ReadFileResponse, ReadParams, WriteFileResponse, WriteParams, null_as_default};
use super::operations::FileOperation;
use super::overlap::OverlapChecker;
use crate::rpc_error::describe_json_error;

/// The params of `_bowline/fs/batch`.
// An operation that cannot be parsed does not fail the parsing of the request: the answer names its index.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(rename_all = "camelCase")]
pub struct BatchFilesRequest {
    /// The session.
    #[cfg_attr(test, schemars(with = "String"))]
    pub session_id: SessionId,
    /// The operations.
    pub operations: Vec<BatchOperation>,
    // Invariant: the operations are those before it.
    #[serde(skip)]
    malformed: Option<MalformedOperation>,
}

/// The first operation of a batch that could not be parsed.
#[derive(Debug, Clone, PartialEq, Eq)]
struct MalformedOperation {
    index: u64,
    reason: String,
}

impl BatchFilesRequest {
    /// Creates a batch without operations.
    #[must_use]
    pub fn new(session_id: impl Into<SessionId>) -> Self {
        Self { session_id: session_id.into(), operations: Vec::new(), malformed: None }
    }

    /// Adds an operation.
    #[must_use]
    pub fn operation(mut self, operation: impl Into<BatchOperation>) -> Self {
        self.operations.push(operation.into());
        self
    }

    /// Validates every operation, and that no two overlap. Paths are compared as they are written; compare them again
    /// with an [`OverlapChecker`] once links are resolved.
    ///
    /// # Errors
    /// Returns the first operation that is invalid, or the limit that the batch exceeds.
    pub fn into_operations(self, limits: &FileLimits) -> Result<Vec<FileOperation>, BatchError> {
        if self.operations.len() as u64 > limits.batch_operations {
            let items = "operations".to_owned();
            return Err(FileError::TooMany { items, limit: limits.batch_operations }.into());
        }
        let mut operations = Vec::with_capacity(self.operations.len());
        let mut bytes = 0u64;
        for (index, operation) in (0..).zip(self.operations) {
            let failed = |error| BatchError { index: Some(index), error };
            let operation = operation.into_operation(limits).map_err(failed)?;
            bytes = bytes.saturating_add(operation.data_bytes());
            operations.push(operation);
        }
        if let Some(MalformedOperation { index, reason }) = self.malformed {
            return Err(BatchError { index: Some(index), error: FileError::BadParams { reason } });
        }
        if bytes > limits.batch_bytes {
            return Err(FileError::TooLarge { path: None, bytes, limit: limits.batch_bytes }.into());
        }
        let mut checker = OverlapChecker::default();
        for operation in &operations {
            checker.add(&operation.effects())?;
        }
        Ok(operations)
    }
}

impl<'de> Deserialize<'de> for BatchFilesRequest {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        #[derive(Deserialize)]
        #[serde(rename_all = "camelCase")]
        struct BatchOutline {
            session_id: SessionId,
            operations: Vec<Box<RawValue>>,
        }

        let BatchOutline { session_id, operations } = BatchOutline::deserialize(deserializer)?;
        let mut batch = Self::new(session_id);
        for (index, operation) in (0..).zip(operations) {
            match serde_json::from_str(operation.get()) {
                Ok(operation) => batch.operations.push(operation),
                Err(error) => {
                    let reason = format!("the operation is wrong: {}", describe_json_error(&error));
                    batch.malformed = Some(MalformedOperation { index, reason });
                    break;
                }
            }
        }
        Ok(batch)
    }
}

/// One operation of a batch.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(tag = "op", rename_all = "camelCase", expecting = "an operation")]
pub enum BatchOperation {
    /// Reads a file.
    Read(ReadParams),
    /// Writes a file.
    Write(WriteParams),
    /// Moves a file or directory.
    Move(TransferParams),
    /// Copies a file or directory.
    Copy(TransferParams),
    /// Removes a file or directory.
    Remove(RemoveParams),
    /// Creates a directory.
    Mkdir(MkdirParams),
}

impl From<ReadParams> for BatchOperation {
    fn from(params: ReadParams) -> Self {
        Self::Read(params)
    }
}

impl From<WriteParams> for BatchOperation {
    fn from(params: WriteParams) -> Self {
        Self::Write(params)
    }
}

impl From<RemoveParams> for BatchOperation {
    fn from(params: RemoveParams) -> Self {
        Self::Remove(params)
    }
}

impl From<MkdirParams> for BatchOperation {
    fn from(params: MkdirParams) -> Self {
        Self::Mkdir(params)
    }
}

/// The params of a move or copy.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(rename_all = "camelCase")]
pub struct TransferParams {
    /// The absolute path of the file or directory. A symbolic link is refused.
    pub from: PathBuf,
    /// The absolute path of the destination. Its parent directory exists, or an earlier operation creates it.
    pub to: PathBuf,
    /// Whether to replace a file at the destination.
    #[serde(default, deserialize_with = "null_as_default", skip_serializing_if = "std::ops::Not::not")]
    pub overwrite: bool,
}

impl TransferParams {
    /// Moves or copies to a path that does not exist.
    #[must_use]
    pub fn new(from: impl Into<PathBuf>, to: impl Into<PathBuf>) -> Self {
        Self { from: from.into(), to: to.into(), overwrite: false }
    }

    /// Replaces a file at the destination.
    #[must_use]
    pub fn overwrite(mut self) -> Self {
        self.overwrite = true;
        self
    }
}

/// The params of a removal.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(rename_all = "camelCase")]
pub struct RemoveParams {
    /// The absolute path of the file or directory. A symbolic link is refused.
    pub path: PathBuf,
    /// Whether to remove everything in a directory.
    #[serde(default, deserialize_with = "null_as_default", skip_serializing_if = "std::ops::Not::not")]
    pub recursive: bool,
}

impl RemoveParams {
    /// Removes a file or an empty directory.
    #[must_use]
    pub fn new(path: impl Into<PathBuf>) -> Self {
        Self { path: path.into(), recursive: false }
    }

    /// Removes a directory with everything in it.
    #[must_use]
    pub fn recursive(mut self) -> Self {
        self.recursive = true;
        self
    }
}

/// The params of the creation of a directory.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(rename_all = "camelCase")]
pub struct MkdirParams {
    /// The absolute path of the directory.
    pub path: PathBuf,
    /// Whether to create missing parent directories, and to accept a directory that exists.
    #[serde(default, deserialize_with = "null_as_default", skip_serializing_if = "std::ops::Not::not")]
    pub parents: bool,
}

impl MkdirParams {
    /// Creates a directory in an existing one.
    #[must_use]
    pub fn new(path: impl Into<PathBuf>) -> Self {
        Self { path: path.into(), parents: false }
    }

    /// Creates missing parent directories, and accepts a directory that exists.
    #[must_use]
    pub fn parents(mut self) -> Self {
        self.parents = true;
        self
    }
}

/// The result of `_bowline/fs/batch`.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(rename_all = "camelCase")]
pub struct BatchFilesResponse {
    /// The result of each operation, in their order.
    pub results: Vec<BatchResult>,
}

impl BatchFilesResponse {
    /// Answers with results.
    #[must_use]
    pub fn new(results: Vec<BatchResult>) -> Self {
        Self { results }
    }
}

/// The result of one operation of a batch.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(tag = "op", rename_all = "camelCase")]
pub enum BatchResult {
    /// The content of a file before the batch.
    Read(ReadFileResponse),
    /// The state of a file after the batch.
    Write(WriteFileResponse),
    /// The file or directory is at its new path.
    Move {},
    /// The copy exists.
    Copy {},
    /// The file or directory is gone.
    Remove {},
    /// The directory exists.
    Mkdir {},
}
