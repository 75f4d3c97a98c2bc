//! Validated operations: what an engine carries out.
//!
//! Validation looks at no file. An operation has the limits of the client applied, its data decoded, and no options
//! that contradict each other.

use std::fmt;
use std::path::{Path, PathBuf};

use globset::{GlobBuilder, GlobSet};

use super::batch::{BatchOperation, MkdirParams, RemoveParams, TransferParams};
use super::capability::FileLimits;
use super::data::{ByteRange, DataEncoding, Etag, FileData};
use super::error::FileError;
use super::messages::{
    ListDirectoryRequest, ReadFileRequest, ReadParams, StatFileRequest, WatchFilesRequest, WriteFileRequest,
    WriteMode, WriteParams,
};
use super::overlap::PathEffect;
use crate::rpc_error::RpcError;

/// The longest path, in bytes: what Linux accepts.
pub const MAX_PATH_BYTES: usize = 4096;

/// The longest glob, in bytes.
pub const MAX_GLOB_BYTES: usize = 1024;

/// An absolute path in UTF-8 of at most [`MAX_PATH_BYTES`] bytes without a zero byte. It may contain `..`.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct AbsolutePath {
    // Invariant: as above.
    path: String,
}

impl AbsolutePath {
    /// Checks a path.
    ///
    /// # Errors
    /// Fails with the kind `badParams` if it is relative, too long, not UTF-8, or contains a zero byte.
    pub fn new(path: PathBuf) -> Result<Self, FileError> {
        let path = path.into_os_string().into_string();
        let path = path.map_err(|_| FileError::bad_params("the path is not UTF-8"))?;
        if path.len() > MAX_PATH_BYTES {
            return Err(FileError::bad_params(format!("a path has at most {MAX_PATH_BYTES} bytes")));
        }
        if path.contains('\0') {
            return Err(FileError::bad_params("the path contains a zero byte"));
        }
        if !path.starts_with('/') {
            return Err(FileError::Rpc(RpcError::RelativePath { path }));
        }
        Ok(Self { path })
    }

    /// Checks a path of a batch, where paths are compared and `..` could hide that two are the same.
    fn new_in_batch(path: PathBuf) -> Result<Self, FileError> {
        let path = Self::new(path)?;
        if path.path.split('/').any(|name| name == "..") {
            return Err(FileError::bad_params("a path in a batch cannot contain `..`"));
        }
        Ok(path)
    }

    /// Returns the text.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.path
    }

    /// Returns the path.
    #[must_use]
    pub fn as_path(&self) -> &Path {
        Path::new(&self.path)
    }
}

impl fmt::Display for AbsolutePath {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.path)
    }
}

/// A pattern that selects entries.
#[derive(Clone)]
pub struct FileGlob {
    pattern: String,
    globs: GlobSet,
}

impl FileGlob {
    /// Compiles a pattern. Without `/` it matches names at any depth, with `/` the whole relative path.
    ///
    /// # Errors
    /// Fails with the kind `badParams` if it is too long or malformed.
    pub fn new(pattern: &str) -> Result<Self, FileError> {
        if pattern.len() > MAX_GLOB_BYTES {
            return Err(FileError::bad_params(format!("a glob has at most {MAX_GLOB_BYTES} bytes")));
        }
        let anchored = match pattern.strip_prefix('/') {
            Some(anchored) => anchored.to_owned(),
            None if pattern.contains('/') => pattern.to_owned(),
            None => format!("**/{pattern}"),
        };
        let to_bad_params =
            |error: globset::Error| FileError::bad_params(format!("invalid glob: {}", error.kind()));
        let glob = GlobBuilder::new(&anchored).literal_separator(true).build().map_err(to_bad_params)?;
        // Compiled as a set of one: compiling a single glob panics if it is too complex.
        let globs = GlobSet::builder().add(glob).build().map_err(to_bad_params)?;
        Ok(Self { pattern: pattern.to_owned(), globs })
    }

    /// Returns whether an entry matches, by its path relative to the listed or watched directory.
    #[must_use]
    pub fn is_match(&self, relative: &str) -> bool {
        self.globs.is_match(relative)
    }

    /// Returns the pattern as it was given.
    #[must_use]
    pub fn pattern(&self) -> &str {
        &self.pattern
    }
}

impl PartialEq for FileGlob {
    fn eq(&self, other: &Self) -> bool {
        self.pattern == other.pattern
    }
}

impl Eq for FileGlob {}

impl fmt::Debug for FileGlob {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "FileGlob({:?})", self.pattern)
    }
}

/// A listing.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ListOperation {
    /// The directory.
    pub path: AbsolutePath,
    /// The number of levels, at least 1.
    pub depth: u64,
    /// Selects entries.
    pub glob: Option<FileGlob>,
    /// Whether to list ignored files.
    pub include_ignored: bool,
    /// The cursor that the previous page returned, unchecked.
    pub cursor: Option<String>,
    /// The maximum number of entries, at least 1.
    pub limit: u64,
}

impl ListDirectoryRequest {
    /// Validates the request.
    ///
    /// # Errors
    /// Fails if the request is invalid.
    pub fn into_operation(self, limits: &FileLimits) -> Result<ListOperation, FileError> {
        Ok(ListOperation {
            path: AbsolutePath::new(self.path)?,
            depth: check_at_least_one("depth", self.depth)?.unwrap_or(1),
            glob: self.glob.as_deref().map(FileGlob::new).transpose()?,
            include_ignored: self.include_ignored,
            cursor: self.cursor,
            limit: check_at_least_one("limit", self.limit)?.unwrap_or(u64::MAX).min(limits.list_entries),
        })
    }
}

/// A request for metadata.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StatOperation {
    /// The path.
    pub path: AbsolutePath,
    /// Whether to describe the target of a link.
    pub follow_symlinks: bool,
}

impl StatFileRequest {
    /// Validates the request.
    ///
    /// # Errors
    /// Fails if the request is invalid.
    pub fn into_operation(self) -> Result<StatOperation, FileError> {
        let follow_symlinks = self.follow_symlinks.unwrap_or(true);
        Ok(StatOperation { path: AbsolutePath::new(self.path)?, follow_symlinks })
    }
}

/// A read.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ReadOperation {
    /// The file.
    pub path: AbsolutePath,
    /// Whether to read text or bytes.
    pub encoding: DataEncoding,
    /// The range to read.
    pub range: ByteRange,
    /// The etag that needs no data.
    pub if_none_match: Option<Etag>,
}

impl ReadFileRequest {
    /// Validates the request.
    ///
    /// # Errors
    /// Fails if the request is invalid.
    pub fn into_operation(self, limits: &FileLimits) -> Result<ReadOperation, FileError> {
        let path = AbsolutePath::new(self.params.path.clone())?;
        self.params.into_operation(path, limits)
    }
}

impl ReadParams {
    fn into_operation(self, path: AbsolutePath, limits: &FileLimits) -> Result<ReadOperation, FileError> {
        let limit = check_at_least_one("limit", self.limit)?.unwrap_or(u64::MAX).min(limits.read_bytes);
        Ok(ReadOperation {
            path,
            encoding: self.encoding,
            range: ByteRange { offset: self.offset.unwrap_or(0), limit },
            if_none_match: self.if_none_match,
        })
    }
}

/// A write.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct WriteOperation {
    /// The file.
    pub path: AbsolutePath,
    /// The content.
    pub data: FileData,
    /// Where the content goes.
    pub placement: WritePlacement,
    /// The required state of the file.
    pub condition: WriteCondition,
    /// Whether to create missing parent directories.
    pub create_parents: bool,
}

/// Where written content goes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum WritePlacement {
    /// It replaces the content.
    Truncate,
    /// It follows the content. A missing file is created.
    Append,
    /// It goes before a byte of the content. The file exists.
    Insert {
        /// The byte.
        position: u64,
    },
}

/// The required state of a file before it is written.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum WriteCondition {
    /// Nothing is required; the client decides by what the session has read.
    Unconditional,
    /// The file does not exist.
    CreateOnly,
    /// The file has this etag.
    IfMatch(Etag),
}

impl WriteFileRequest {
    /// Validates the request and decodes its data.
    ///
    /// # Errors
    /// Fails if the request is invalid.
    pub fn into_operation(self, limits: &FileLimits) -> Result<WriteOperation, FileError> {
        let path = AbsolutePath::new(self.params.path.clone())?;
        self.params.into_operation(path, limits)
    }
}

impl WriteParams {
    fn into_operation(self, path: AbsolutePath, limits: &FileLimits) -> Result<WriteOperation, FileError> {
        let placement = match (self.mode, self.position) {
            (WriteMode::Truncate, None) => WritePlacement::Truncate,
            (WriteMode::Append, None) => WritePlacement::Append,
            (WriteMode::Insert, Some(position)) => WritePlacement::Insert { position },
            (WriteMode::Insert, None) => {
                return Err(FileError::bad_params("the mode `insert` needs a position"));
            }
            (WriteMode::Truncate | WriteMode::Append, Some(_)) => {
                return Err(FileError::bad_params("a position is for the mode `insert`"));
            }
        };
        let condition = match (self.create_only, self.if_match) {
            (false, None) => WriteCondition::Unconditional,
            (false, Some(etag)) => WriteCondition::IfMatch(etag),
            (true, None) if placement == WritePlacement::Truncate => WriteCondition::CreateOnly,
            (true, None) => return Err(FileError::bad_params("createOnly is for the mode `truncate`")),
            (true, Some(_)) => {
                return Err(FileError::bad_params("createOnly and ifMatch contradict each other"));
            }
        };
        let data = FileData::decode(self.data, self.encoding)?;
        let (bytes, limit) = (data.byte_len(), limits.write_bytes);
        if bytes > limit {
            return Err(FileError::TooLarge { path: Some(path.path), bytes, limit });
        }
        Ok(WriteOperation { path, data, placement, condition, create_parents: self.create_parents })
    }
}

/// Whether a move or copy replaces a file at its destination.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum DestinationPolicy {
    /// The destination must not exist.
    MustNotExist,
    /// A file is replaced.
    Overwrite,
}

/// A move or copy. The paths are different, and neither is beneath the other.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TransferOperation {
    /// The source.
    pub from: AbsolutePath,
    /// The destination.
    pub to: AbsolutePath,
    /// Whether to replace a file there.
    pub destination: DestinationPolicy,
}

impl TransferParams {
    fn into_operation(self) -> Result<TransferOperation, FileError> {
        let from = AbsolutePath::new_in_batch(self.from)?;
        let to = AbsolutePath::new_in_batch(self.to)?;
        if from.as_path().starts_with(to.as_path()) || to.as_path().starts_with(from.as_path()) {
            return Err(FileError::OntoItself { from: from.path, to: to.path });
        }
        let destination =
            if self.overwrite { DestinationPolicy::Overwrite } else { DestinationPolicy::MustNotExist };
        Ok(TransferOperation { from, to, destination })
    }
}

/// A removal.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RemoveOperation {
    /// The file or directory.
    pub path: AbsolutePath,
    /// Whether to remove a directory that is not empty.
    pub recursive: bool,
}

/// The creation of a directory.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct MkdirOperation {
    /// The directory.
    pub path: AbsolutePath,
    /// Whether to create parents, and to accept a directory that exists.
    pub parents: bool,
}

/// A watch.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct WatchOperation {
    /// The file or directory.
    pub path: AbsolutePath,
    /// Whether to watch everything below a directory.
    pub recursive: bool,
    /// Selects paths, relative to the watched one.
    pub glob: Option<FileGlob>,
}

impl WatchFilesRequest {
    /// Validates the request.
    ///
    /// # Errors
    /// Fails if the request is invalid.
    pub fn into_operation(self) -> Result<WatchOperation, FileError> {
        Ok(WatchOperation {
            path: AbsolutePath::new(self.path)?,
            recursive: self.recursive,
            glob: self.glob.as_deref().map(FileGlob::new).transpose()?,
        })
    }
}

/// One operation of a batch. Its paths contain no `..`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum FileOperation {
    /// Reads a file.
    Read(ReadOperation),
    /// Writes a file.
    Write(WriteOperation),
    /// Moves a file or directory.
    Move(TransferOperation),
    /// Copies a file or directory.
    Copy(TransferOperation),
    /// Removes a file or directory.
    Remove(RemoveOperation),
    /// Creates a directory.
    Mkdir(MkdirOperation),
}

impl FileOperation {
    /// Returns the effects of the operation on its paths.
    #[must_use]
    pub fn effects(&self) -> Vec<PathEffect<'_>> {
        match self {
            Self::Read(read) => vec![PathEffect::Read(read.path.as_path())],
            Self::Write(write) => vec![PathEffect::Change(write.path.as_path())],
            Self::Move(transfer) => {
                vec![PathEffect::Change(transfer.from.as_path()), PathEffect::Change(transfer.to.as_path())]
            }
            Self::Copy(copy) => {
                vec![PathEffect::Read(copy.from.as_path()), PathEffect::Change(copy.to.as_path())]
            }
            Self::Remove(removal) => vec![PathEffect::Change(removal.path.as_path())],
            Self::Mkdir(mkdir) => vec![PathEffect::CreateDirectory(mkdir.path.as_path())],
        }
    }

    /// Returns the number of bytes that the operation carries.
    #[must_use]
    pub fn data_bytes(&self) -> u64 {
        match self {
            Self::Write(write) => write.data.byte_len(),
            Self::Read(_) | Self::Move(_) | Self::Copy(_) | Self::Remove(_) | Self::Mkdir(_) => 0,
        }
    }
}

impl BatchOperation {
    /// Validates the operation by itself.
    pub(super) fn into_operation(self, limits: &FileLimits) -> Result<FileOperation, FileError> {
        Ok(match self {
            Self::Read(params) => {
                let path = AbsolutePath::new_in_batch(params.path.clone())?;
                FileOperation::Read(params.into_operation(path, limits)?)
            }
            Self::Write(params) => {
                let path = AbsolutePath::new_in_batch(params.path.clone())?;
                FileOperation::Write(params.into_operation(path, limits)?)
            }
            Self::Move(params) => FileOperation::Move(params.into_operation()?),
            Self::Copy(params) => FileOperation::Copy(params.into_operation()?),
            Self::Remove(RemoveParams { path, recursive }) => {
                FileOperation::Remove(RemoveOperation { path: AbsolutePath::new_in_batch(path)?, recursive })
            }
            Self::Mkdir(MkdirParams { path, parents }) => {
                FileOperation::Mkdir(MkdirOperation { path: AbsolutePath::new_in_batch(path)?, parents })
            }
        })
    }
}

fn check_at_least_one(name: &str, number: Option<u64>) -> Result<Option<u64>, FileError> {
    if number == Some(0) {
        return Err(FileError::bad_params(format!("{name} is at least 1")));
    }
    Ok(number)
}
