//! The params and results of the file extension as they are on the wire; batches are in [`super::batch`].
//!
//! Optional fields are chained on:
//!
//! ```
//! use bowline_protocol::file_extension::{ReadFileRequest, ReadParams};
//!
//! let request = ReadFileRequest::new("session", ReadParams::new("/project/logo.png").base64().offset(512));
//! ```

use std::fmt;
use std::path::PathBuf;

use agent_client_protocol_schema::v1::SessionId;
use serde::{Deserialize, Deserializer, Serialize};

use super::data::{DataEncoding, Etag, FileData};
use super::error::FileError;

/// The params of `_bowline/fs/list`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(rename_all = "camelCase")]
pub struct ListDirectoryRequest {
    /// The session.
    #[cfg_attr(test, schemars(with = "String"))]
    pub session_id: SessionId,
    /// The absolute path of the directory.
    pub path: PathBuf,
    /// The number of levels to list, 1 unless given: the directory's own entries.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub depth: Option<u64>,
    /// Lists only entries that match. A pattern without `/` matches names at any depth, one with `/` the path relative
    /// to the directory.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub glob: Option<String>,
    /// Whether to list files that the project ignores.
    #[serde(default, deserialize_with = "null_as_default", skip_serializing_if = "std::ops::Not::not")]
    pub include_ignored: bool,
    /// The `nextCursor` of the previous page.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cursor: Option<String>,
    /// The maximum number of entries, at most the client's own limit.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub limit: Option<u64>,
}

impl ListDirectoryRequest {
    /// Lists the entries of a directory.
    #[must_use]
    pub fn new(session_id: impl Into<SessionId>, path: impl Into<PathBuf>) -> Self {
        Self {
            session_id: session_id.into(),
            path: path.into(),
            depth: None,
            glob: None,
            include_ignored: false,
            cursor: None,
            limit: None,
        }
    }

    /// Lists this number of levels.
    #[must_use]
    pub fn depth(mut self, depth: u64) -> Self {
        self.depth = Some(depth);
        self
    }

    /// Lists only entries that match.
    #[must_use]
    pub fn glob(mut self, glob: impl Into<String>) -> Self {
        self.glob = Some(glob.into());
        self
    }

    /// Lists ignored files too.
    #[must_use]
    pub fn include_ignored(mut self) -> Self {
        self.include_ignored = true;
        self
    }

    /// Continues after the page with this `nextCursor`.
    #[must_use]
    pub fn cursor(mut self, cursor: impl Into<String>) -> Self {
        self.cursor = Some(cursor.into());
        self
    }

    /// Returns at most this number of entries.
    #[must_use]
    pub fn limit(mut self, limit: u64) -> Self {
        self.limit = Some(limit);
        self
    }
}

/// The result of `_bowline/fs/list`: a page of entries, in a stable order.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(rename_all = "camelCase")]
pub struct ListDirectoryResponse {
    /// The entries.
    pub entries: Vec<DirectoryEntry>,
    /// The cursor of the next page, if there is one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub next_cursor: Option<String>,
    /// Whether entries are missing here: there is a next page, or the listing reached a limit of the client.
    #[serde(default)]
    pub truncated: bool,
}

/// One entry of a listing.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(rename_all = "camelCase")]
pub struct DirectoryEntry {
    /// The path relative to the listed directory: the name, or at a greater depth the names joined by `/`.
    pub name: String,
    /// The type. Symbolic links are not followed.
    #[serde(rename = "type")]
    pub file_type: FileType,
    /// The size of a file in bytes. For a file with unsaved text, the size of that text as it would be saved.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub size: Option<u64>,
    /// The time of the last change, in milliseconds since 1970.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub modified_at_ms: Option<i64>,
}

/// The type of a file.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(rename_all = "camelCase")]
pub enum FileType {
    /// A file.
    File,
    /// A directory.
    Directory,
    /// A symbolic link.
    Symlink,
    /// A socket, a device, a pipe or something else.
    #[serde(other)]
    Other,
}

/// The params of `_bowline/fs/stat`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(rename_all = "camelCase")]
pub struct StatFileRequest {
    /// The session.
    #[cfg_attr(test, schemars(with = "String"))]
    pub session_id: SessionId,
    /// The absolute path.
    pub path: PathBuf,
    /// Whether to describe the target of a symbolic link, which is the default, or the link itself.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub follow_symlinks: Option<bool>,
}

impl StatFileRequest {
    /// Describes a path, or the target of a link.
    #[must_use]
    pub fn new(session_id: impl Into<SessionId>, path: impl Into<PathBuf>) -> Self {
        Self { session_id: session_id.into(), path: path.into(), follow_symlinks: None }
    }

    /// Describes a link itself, not its target.
    #[must_use]
    pub fn without_following(mut self) -> Self {
        self.follow_symlinks = Some(false);
        self
    }
}

/// The result of `_bowline/fs/stat`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(rename_all = "camelCase")]
pub struct StatFileResponse {
    /// The type.
    #[serde(rename = "type")]
    pub file_type: FileType,
    /// The size in bytes; of unsaved text, as it would be saved.
    pub size: u64,
    /// The time of the last change on disk, in milliseconds since 1970.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub modified_at_ms: Option<i64>,
    /// The time of creation, in milliseconds since 1970.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub created_at_ms: Option<i64>,
    /// The permission bits.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub mode: Option<u32>,
    /// The media type, if it is known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub content_type: Option<String>,
    /// The encoding of a text file on disk, such as `UTF-8` or `UTF-16LE`. A file without it is not text.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub encoding: Option<String>,
    /// The etag of a file. A client may omit it where it would have to read a large file.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub etag: Option<Etag>,
    /// Whether the file has unsaved text.
    #[serde(default)]
    pub dirty: bool,
    /// Whether the session cannot write here.
    #[serde(default)]
    pub read_only: bool,
}

impl StatFileResponse {
    /// Describes something of a type and size. Everything else is added.
    #[must_use]
    pub fn new(file_type: FileType, size: u64) -> Self {
        Self {
            file_type,
            size,
            modified_at_ms: None,
            created_at_ms: None,
            mode: None,
            content_type: None,
            encoding: None,
            etag: None,
            dirty: false,
            read_only: false,
        }
    }
}

/// The params of a read, alone or in a batch.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(rename_all = "camelCase")]
pub struct ReadParams {
    /// The absolute path of the file.
    pub path: PathBuf,
    /// How the answer has the content: as text, unless given.
    #[serde(default, deserialize_with = "null_as_default")]
    pub encoding: DataEncoding,
    /// The first byte, 0 unless given. In text, a byte of its UTF-8 form and not one inside a character.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub offset: Option<u64>,
    /// The maximum number of bytes, at most the client's own limit.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub limit: Option<u64>,
    /// The etag of the known state. If it is still current, the answer has no data.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub if_none_match: Option<Etag>,
}

impl ReadParams {
    /// Reads a file as text.
    #[must_use]
    pub fn new(path: impl Into<PathBuf>) -> Self {
        Self {
            path: path.into(),
            encoding: DataEncoding::Utf8,
            offset: None,
            limit: None,
            if_none_match: None,
        }
    }

    /// Reads bytes instead of text.
    #[must_use]
    pub fn base64(mut self) -> Self {
        self.encoding = DataEncoding::Base64;
        self
    }

    /// Starts at this byte.
    #[must_use]
    pub fn offset(mut self, offset: u64) -> Self {
        self.offset = Some(offset);
        self
    }

    /// Reads at most this number of bytes.
    #[must_use]
    pub fn limit(mut self, limit: u64) -> Self {
        self.limit = Some(limit);
        self
    }

    /// Omits the data if this etag is current.
    #[must_use]
    pub fn if_none_match(mut self, etag: impl Into<Etag>) -> Self {
        self.if_none_match = Some(etag.into());
        self
    }
}

/// The params of `_bowline/fs/read`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(rename_all = "camelCase")]
pub struct ReadFileRequest {
    /// The session.
    #[cfg_attr(test, schemars(with = "String"))]
    pub session_id: SessionId,
    /// What to read.
    #[serde(flatten)]
    pub params: ReadParams,
}

impl ReadFileRequest {
    /// Reads a file in a session.
    #[must_use]
    pub fn new(session_id: impl Into<SessionId>, params: ReadParams) -> Self {
        Self { session_id: session_id.into(), params }
    }
}

/// The result of `_bowline/fs/read`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(rename_all = "camelCase")]
pub struct ReadFileResponse {
    /// The content; missing if the file is not modified.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub data: Option<String>,
    /// How `data` is written.
    pub encoding: DataEncoding,
    /// The etag of the whole file.
    pub etag: Etag,
    /// The size of the whole content in bytes, counted as offsets are.
    pub size: u64,
    /// Whether content follows.
    #[serde(default)]
    pub truncated: bool,
    /// Whether the content is unsaved text.
    #[serde(default)]
    pub dirty: bool,
    /// Whether `ifNoneMatch` is current.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub not_modified: bool,
}

impl ReadFileResponse {
    /// Answers with content.
    #[must_use]
    pub fn new(data: FileData, etag: Etag, size: u64) -> Self {
        let (data, encoding) = data.into_encoded();
        Self { data: Some(data), encoding, etag, size, truncated: false, dirty: false, not_modified: false }
    }

    /// Answers that the file is as the agent knows it.
    #[must_use]
    pub fn not_modified(encoding: DataEncoding, etag: Etag, size: u64) -> Self {
        Self { data: None, encoding, etag, size, truncated: false, dirty: false, not_modified: true }
    }

    /// Sets whether content follows.
    #[must_use]
    pub fn truncated(mut self, truncated: bool) -> Self {
        self.truncated = truncated;
        self
    }

    /// Sets whether the content is unsaved text.
    #[must_use]
    pub fn dirty(mut self, dirty: bool) -> Self {
        self.dirty = dirty;
        self
    }

    /// Returns the content; `None` if the file is not modified.
    ///
    /// # Errors
    /// Fails with [`FileError::InvalidEncoding`] if the content is not base64 and should be.
    pub fn into_data(self) -> Result<Option<FileData>, FileError> {
        self.data.map(|data| FileData::decode(data, self.encoding)).transpose()
    }
}

/// Where the data of a write goes.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(rename_all = "camelCase")]
pub enum WriteMode {
    /// It replaces the content.
    #[default]
    Truncate,
    /// It follows the content.
    Append,
    /// It is inserted at `position`.
    Insert,
}

/// The params of a write, alone or in a batch.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(rename_all = "camelCase")]
pub struct WriteParams {
    /// The absolute path of the file.
    pub path: PathBuf,
    /// The content.
    pub data: String,
    /// How `data` is written: as text, unless given.
    #[serde(default, deserialize_with = "null_as_default")]
    pub encoding: DataEncoding,
    /// Where the data goes: it replaces the content, unless given.
    #[serde(default, deserialize_with = "null_as_default")]
    pub mode: WriteMode,
    /// The byte before which `insert` inserts. In text, a byte of its UTF-8 form and not one inside a character.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub position: Option<u64>,
    /// Whether the file must not exist yet.
    #[serde(default, deserialize_with = "null_as_default", skip_serializing_if = "std::ops::Not::not")]
    pub create_only: bool,
    /// Whether to create missing parent directories.
    #[serde(default, deserialize_with = "null_as_default", skip_serializing_if = "std::ops::Not::not")]
    pub create_parents: bool,
    /// The etag that the file must have.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub if_match: Option<Etag>,
}

impl WriteParams {
    /// Replaces the content of a file, or creates it.
    #[must_use]
    pub fn new(path: impl Into<PathBuf>, data: impl Into<FileData>) -> Self {
        let (data, encoding) = data.into().into_encoded();
        Self {
            path: path.into(),
            data,
            encoding,
            mode: WriteMode::Truncate,
            position: None,
            create_only: false,
            create_parents: false,
            if_match: None,
        }
    }

    /// Appends the data.
    #[must_use]
    pub fn append(mut self) -> Self {
        (self.mode, self.position) = (WriteMode::Append, None);
        self
    }

    /// Inserts the data before this byte.
    #[must_use]
    pub fn insert_at(mut self, position: u64) -> Self {
        (self.mode, self.position) = (WriteMode::Insert, Some(position));
        self
    }

    /// Fails if the file exists.
    #[must_use]
    pub fn create_only(mut self) -> Self {
        self.create_only = true;
        self
    }

    /// Creates missing parent directories.
    #[must_use]
    pub fn create_parents(mut self) -> Self {
        self.create_parents = true;
        self
    }

    /// Fails unless the file has this etag.
    #[must_use]
    pub fn if_match(mut self, etag: impl Into<Etag>) -> Self {
        self.if_match = Some(etag.into());
        self
    }
}

/// The params of `_bowline/fs/write`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(rename_all = "camelCase")]
pub struct WriteFileRequest {
    /// The session.
    #[cfg_attr(test, schemars(with = "String"))]
    pub session_id: SessionId,
    /// What to write.
    #[serde(flatten)]
    pub params: WriteParams,
}

impl WriteFileRequest {
    /// Writes a file in a session.
    #[must_use]
    pub fn new(session_id: impl Into<SessionId>, params: WriteParams) -> Self {
        Self { session_id: session_id.into(), params }
    }
}

/// The result of `_bowline/fs/write`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(rename_all = "camelCase")]
pub struct WriteFileResponse {
    /// The etag of the file after the write.
    pub etag: Etag,
    /// The whole text after the write, if it is not what the params make of the known text. A client may omit a large
    /// one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub content: Option<String>,
    /// Whether the text was merged with changes that the user made meanwhile.
    #[serde(default)]
    pub merged: bool,
    /// Whether the client formatted the text.
    #[serde(default)]
    pub formatted: bool,
}

impl WriteFileResponse {
    /// Answers that the data was written as it is.
    #[must_use]
    pub fn new(etag: Etag) -> Self {
        Self { etag, content: None, merged: false, formatted: false }
    }
}

/// The name of a watch, given by the client.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(transparent)]
pub struct WatchId(String);

impl WatchId {
    /// Returns the text.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl From<String> for WatchId {
    fn from(text: String) -> Self {
        Self(text)
    }
}

impl From<&str> for WatchId {
    fn from(text: &str) -> Self {
        Self(text.to_owned())
    }
}

impl fmt::Display for WatchId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// The params of `_bowline/fs/watch`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(rename_all = "camelCase")]
pub struct WatchFilesRequest {
    /// The session.
    #[cfg_attr(test, schemars(with = "String"))]
    pub session_id: SessionId,
    /// The absolute path of a file or directory.
    pub path: PathBuf,
    /// Whether to watch everything below a directory, not just its entries.
    #[serde(default, deserialize_with = "null_as_default", skip_serializing_if = "std::ops::Not::not")]
    pub recursive: bool,
    /// Reports only paths that match, as in a listing.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub glob: Option<String>,
}

impl WatchFilesRequest {
    /// Watches a file, or the entries of a directory.
    #[must_use]
    pub fn new(session_id: impl Into<SessionId>, path: impl Into<PathBuf>) -> Self {
        Self { session_id: session_id.into(), path: path.into(), recursive: false, glob: None }
    }

    /// Watches everything below the directory.
    #[must_use]
    pub fn recursive(mut self) -> Self {
        self.recursive = true;
        self
    }

    /// Reports only paths that match.
    #[must_use]
    pub fn glob(mut self, glob: impl Into<String>) -> Self {
        self.glob = Some(glob.into());
        self
    }
}

/// The result of `_bowline/fs/watch`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(rename_all = "camelCase")]
pub struct WatchFilesResponse {
    /// The watch, which names its notifications.
    pub watch_id: WatchId,
}

impl WatchFilesResponse {
    /// Answers with a watch.
    #[must_use]
    pub fn new(watch_id: impl Into<WatchId>) -> Self {
        Self { watch_id: watch_id.into() }
    }
}

/// The params of `_bowline/fs/unwatch`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(rename_all = "camelCase")]
pub struct UnwatchFilesRequest {
    /// The session.
    #[cfg_attr(test, schemars(with = "String"))]
    pub session_id: SessionId,
    /// The watch to end.
    pub watch_id: WatchId,
}

impl UnwatchFilesRequest {
    /// Ends a watch.
    #[must_use]
    pub fn new(session_id: impl Into<SessionId>, watch_id: impl Into<WatchId>) -> Self {
        Self { session_id: session_id.into(), watch_id: watch_id.into() }
    }
}

/// The result of `_bowline/fs/unwatch`. No notification of the watch follows it.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct UnwatchFilesResponse {}

/// The params of `_bowline/fs/changed`, which a client sends to the agent.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(rename_all = "camelCase")]
pub struct FilesChangedNotification {
    /// The session.
    #[cfg_attr(test, schemars(with = "String"))]
    pub session_id: SessionId,
    /// The watch.
    pub watch_id: WatchId,
    /// The changes. Several changes of one path may be one.
    pub changes: Vec<FileChange>,
    /// Whether changes were left out: the agent has to look again at everything it watches here.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub overflow: bool,
}

impl FilesChangedNotification {
    /// Reports changes.
    #[must_use]
    pub fn new(
        session_id: impl Into<SessionId>,
        watch_id: impl Into<WatchId>,
        changes: Vec<FileChange>,
    ) -> Self {
        Self { session_id: session_id.into(), watch_id: watch_id.into(), changes, overflow: false }
    }

    /// Sets whether changes were left out.
    #[must_use]
    pub fn overflow(mut self, overflow: bool) -> Self {
        self.overflow = overflow;
        self
    }
}

/// One change.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(rename_all = "camelCase")]
pub struct FileChange {
    /// The absolute path; of a renamed file, the new one.
    pub path: PathBuf,
    /// The kind of the change.
    pub kind: ChangeKind,
    /// The author of the change.
    #[serde(default)]
    pub by: ChangeAuthor,
    /// The old path of a renamed file, if the session may read it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub from: Option<PathBuf>,
}

impl FileChange {
    /// Describes a change.
    #[must_use]
    pub fn new(path: impl Into<PathBuf>, kind: ChangeKind, by: ChangeAuthor) -> Self {
        Self { path: path.into(), kind, by, from: None }
    }

    /// Describes a rename.
    #[must_use]
    pub fn renamed(from: impl Into<PathBuf>, to: impl Into<PathBuf>, by: ChangeAuthor) -> Self {
        Self { from: Some(from.into()), ..Self::new(to, ChangeKind::Renamed, by) }
    }
}

/// The kind of a change.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(rename_all = "camelCase")]
pub enum ChangeKind {
    /// It is new.
    Created,
    /// Its content or its unsaved text changed.
    Modified,
    /// It is gone.
    Removed,
    /// It has another path.
    Renamed,
    /// Another change.
    #[serde(other)]
    Other,
}

/// The author of a change.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(rename_all = "camelCase")]
pub enum ChangeAuthor {
    /// The user, in the editor or another program.
    User,
    /// The agent of this session.
    Agent,
    /// Another session.
    Session,
    /// A command that the session runs.
    Command,
    /// Another author, or an unknown one.
    #[default]
    #[serde(other)]
    Other,
}

/// Reads `null` as the default, as if the field were missing.
pub(super) fn null_as_default<'de, D, T>(deserializer: D) -> Result<T, D::Error>
where
    D: Deserializer<'de>,
    T: Deserialize<'de> + Default,
{
    Option::deserialize(deserializer).map(Option::unwrap_or_default)
}
