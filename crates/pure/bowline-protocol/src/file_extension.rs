//! The file extension `_bowline/fs/…`: listing, metadata, bytes, batches and watches, beyond ACP's text files.
//!
//! A client advertises the extension ([`FileCapabilities`]) and serves its requests; an agent sends them. [`messages`]
//! and [`batch`] have the params and results as they are on the wire. `into_operation` validates params without
//! looking at a file, and returns an operation ([`operations`]) in which contradicting options do not exist. Failures
//! are [`FileError`]s, whose kind peers read in `data.kind`.
//!
//! `docs/extensions.md` is the reference. Its schema, `docs/extensions.schema.json`, is generated from these types by a
//! test.

pub mod batch;
pub mod capability;
pub mod data;
pub mod error;
pub mod messages;
pub mod operations;
pub mod overlap;

pub use batch::{
    BatchFilesRequest, BatchFilesResponse, BatchOperation, BatchResult, MkdirParams, RemoveParams,
    TransferParams,
};
pub use capability::{FileCapabilities, FileLimits};
pub use data::{ByteRange, DataEncoding, Etag, FileData, FileWindow};
pub use error::{BatchError, FileError, FileErrorKind};
pub use messages::{
    ChangeAuthor, ChangeKind, DirectoryEntry, FileChange, FileType, FilesChangedNotification,
    ListDirectoryRequest, ListDirectoryResponse, ReadFileRequest, ReadFileResponse, ReadParams,
    StatFileRequest, StatFileResponse, UnwatchFilesRequest, UnwatchFilesResponse, WatchFilesRequest,
    WatchFilesResponse, WatchId, WriteFileRequest, WriteFileResponse, WriteMode, WriteParams,
};
pub use operations::{
    AbsolutePath, DestinationPolicy, FileGlob, FileOperation, ListOperation, MkdirOperation, ReadOperation,
    RemoveOperation, StatOperation, TransferOperation, WatchOperation, WriteCondition, WriteOperation,
    WritePlacement,
};

/// The version of the extension that this build speaks. A client with another version is treated as one without.
pub const FILE_EXTENSION_VERSION: u64 = 1;

/// Lists a directory.
pub const LIST_METHOD: &str = "_bowline/fs/list";
/// Returns the metadata of a path.
pub const STAT_METHOD: &str = "_bowline/fs/stat";
/// Reads a file, or a range of its bytes.
pub const READ_METHOD: &str = "_bowline/fs/read";
/// Writes a file, or a part of it.
pub const WRITE_METHOD: &str = "_bowline/fs/write";
/// Runs several operations, all or none.
pub const BATCH_METHOD: &str = "_bowline/fs/batch";
/// Starts to report changes.
pub const WATCH_METHOD: &str = "_bowline/fs/watch";
/// Stops reporting changes.
pub const UNWATCH_METHOD: &str = "_bowline/fs/unwatch";
/// The notification of changes.
pub const CHANGED_METHOD: &str = "_bowline/fs/changed";

#[cfg(test)]
mod tests;
