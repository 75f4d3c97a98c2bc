//! Reads of the file extension: pages of a listing, metadata, and ranges of text or bytes.
//!
//! As for every read, unsaved text comes first, and the ledger records what the session has seen of a text. The etag of a
//! file is the hash of its whole content, so that even a read of a range reads all of it. A file of more than
//! [`MAX_WHOLE_BYTES`] is hashed in pieces and not held in memory, and hashed again only after a change.

use std::fs::File;
use std::sync::Arc;

use bowline_history::ledger::TextVersion;
use bowline_policy::paths::Access;
use bowline_protocol::file_extension::data::TEXT_LOOKAHEAD;
use bowline_protocol::file_extension::operations::{ListOperation, ReadOperation};
use bowline_protocol::file_extension::{
    DataEncoding, DirectoryEntry, Etag, FileData, FileError, FileType, ListDirectoryResponse,
    ReadFileResponse, StatFileResponse,
};
use bowline_text::text::{self, TextFormat};
use rustix::fs::{AtFlags, FileType as SystemFileType, Stat};

use super::session::WorkspaceSession;
use crate::disk;
use crate::disk::content_scan::ScanFreshness;
use crate::disk::writers::{self, WaitPurpose};
use crate::error::FilesError;
use crate::list::{IgnoredFiles, ListEntry, ListOptions};
use crate::roots::{AdmitError, AdmittedPath};
use crate::walker::EntryKind;

/// The maximum number of entries that a listing looks at, over all of its pages.
const MAX_LISTED_ENTRIES: u64 = 200_000;

/// The largest file that is decoded as a whole. A larger one is text only if it is UTF-8.
pub(super) const MAX_WHOLE_BYTES: u64 = 16 << 20;

const NANOS_PER_MILLI: i64 = 1_000_000;

/// Lists a page of a directory.
pub(super) fn list_page(
    session: &WorkspaceSession,
    operation: &ListOperation,
) -> Result<ListDirectoryResponse, FileError> {
    let options = ListOptions {
        depth: usize::try_from(operation.depth).unwrap_or(usize::MAX),
        ignored: if operation.include_ignored { IgnoredFiles::Show } else { IgnoredFiles::Skip },
        max_entries: MAX_LISTED_ENTRIES,
    };
    let listing = session.list(operation.path.as_str(), &options)?;
    // The cursor is the last entry of the previous page, which may be gone by now.
    let start = operation.cursor.as_deref().map_or(0, |cursor| {
        listing.entries.partition_point(|entry| entry.path.split('/').le(cursor.split('/')))
    });
    let is_selected =
        |entry: &&ListEntry| operation.glob.as_ref().is_none_or(|glob| glob.is_match(&entry.path));
    let mut selected = listing.entries[start..].iter().filter(is_selected);
    let limit = usize::try_from(operation.limit).unwrap_or(usize::MAX);
    let entries: Vec<DirectoryEntry> = selected.by_ref().take(limit).map(to_directory_entry).collect();
    let next_cursor = selected.next().and(entries.last()).map(|last| last.name.clone());
    let truncated = next_cursor.is_some() || listing.truncated || listing.unreadable > 0;
    Ok(ListDirectoryResponse { entries, next_cursor, truncated })
}

fn to_directory_entry(entry: &ListEntry) -> DirectoryEntry {
    DirectoryEntry {
        name: entry.path.clone(),
        file_type: match entry.kind {
            EntryKind::File => FileType::File,
            EntryKind::Directory => FileType::Directory,
            EntryKind::Link => FileType::Symlink,
            EntryKind::Other => FileType::Other,
        },
        size: (entry.kind == EntryKind::File).then_some(entry.size),
        // Unsaved text without a file has no time.
        modified_at_ms: (entry.mtime_ns != 0).then(|| entry.mtime_ns.div_euclid(NANOS_PER_MILLI)),
    }
}

/// Describes a symbolic link instead of its target; `None` if the path is not a link. Links on the way are followed.
pub(super) fn stat_symlink(
    session: &WorkspaceSession,
    path: &str,
) -> Result<Option<StatFileResponse>, FileError> {
    let Some((parent, name)) = path.trim_end_matches('/').rsplit_once('/') else { return Ok(None) };
    if matches!(name, "" | "." | "..") {
        return Ok(None);
    }
    // The directory above a root is outside; the root itself is not a link by now.
    let parent = if parent.is_empty() { "/" } else { parent };
    let Ok(parent) = session.admit(parent, Access::Read) else { return Ok(None) };
    let directory = session.roots().open_directory(&parent).map_err(FilesError::from)?;
    match rustix::fs::statat(&directory, name, AtFlags::SYMLINK_NOFOLLOW) {
        Ok(stat) if SystemFileType::from_raw_mode(stat.st_mode) == SystemFileType::Symlink => {
            Ok(Some(describe(FileType::Symlink, &stat)))
        }
        Ok(_) | Err(rustix::io::Errno::NOENT) => Ok(None),
        Err(why) => Err(FilesError::io_error(path)(why.into()).into()),
    }
}

/// Describes an admitted path.
pub(super) fn stat_admitted(
    session: &WorkspaceSession,
    admitted: &AdmittedPath,
) -> Result<StatFileResponse, FileError> {
    let Some(target) = admitted.target() else {
        // A document that was never saved exists for the agent as it does for the user.
        let content = read_content(session, admitted)?;
        let mut response = StatFileResponse::new(FileType::File, content.size(DataEncoding::Base64));
        (response.etag, response.dirty) = (Some(content.etag()), content.is_dirty());
        return Ok(response);
    };
    let stat = target.stat;
    let file_type = match target.file_type() {
        SystemFileType::RegularFile => FileType::File,
        SystemFileType::Directory => FileType::Directory,
        _ => FileType::Other,
    };
    let mut response = describe(file_type, &stat);
    response.mode = Some(stat.st_mode & 0o7777);
    response.read_only = stat.st_mode & 0o222 == 0;
    // The etag of a large file would cost a read of all of it.
    let is_cheap = stat.st_size as u64 <= MAX_WHOLE_BYTES || session.has_unsaved_text(admitted);
    if file_type == FileType::File && is_cheap {
        let content = read_content(session, admitted)?;
        response.size = content.size(DataEncoding::Base64);
        response.encoding = content.encoding_name();
        (response.etag, response.dirty) = (Some(content.etag()), content.is_dirty());
    }
    Ok(response)
}

fn describe(file_type: FileType, stat: &Stat) -> StatFileResponse {
    let mut response = StatFileResponse::new(file_type, stat.st_size as u64);
    let nanos = i64::try_from(stat.st_mtime_nsec).unwrap_or_default();
    response.modified_at_ms = Some(stat.st_mtime * 1000 + nanos / NANOS_PER_MILLI);
    response
}

/// Reads an admitted file or a range of it, and records what the session has seen.
pub(super) fn read_range(
    session: &WorkspaceSession,
    admitted: &AdmittedPath,
    operation: &ReadOperation,
) -> Result<ReadFileResponse, FileError> {
    let content = read_content(session, admitted)?;
    let (etag, size) = (content.etag(), content.size(operation.encoding));
    if operation.if_none_match.as_ref() == Some(&etag) {
        let response = ReadFileResponse::not_modified(operation.encoding, etag, size);
        return Ok(response.dirty(content.is_dirty()));
    }
    let path = admitted.requested_path();
    let (data, is_truncated) = match (operation.encoding, &content) {
        (DataEncoding::Utf8, FileContent::Whole { text: Some(known), .. }) => {
            let window = operation.range.slice_text(&known.text)?;
            record_text(session, admitted, known, operation.range.offset, window.data.len());
            (FileData::Text(window.data.to_owned()), window.is_truncated)
        }
        (DataEncoding::Base64, FileContent::Whole { text, bytes, .. }) => {
            let window = operation.range.slice_bytes(bytes)?;
            if let Some(known) = text.as_ref().filter(|_| window.data.len() == bytes.len()) {
                record_text(session, admitted, known, 0, known.text.len());
            }
            (FileData::Bytes(window.data.to_owned()), window.is_truncated)
        }
        (DataEncoding::Utf8, FileContent::Large(large)) if large.is_text => {
            let start = large.mark_bytes + operation.range.clamp_to(size)?.start;
            let rest = large.read(start, operation.range.limit + TEXT_LOOKAHEAD, path)?;
            let window = operation.range.cut_text(&rest, size, path)?;
            let range = operation.range.offset..operation.range.offset + window.data.len() as u64;
            let version = large.version;
            session
                .with_ledger(|ledger| ledger.record_window_read(admitted.canonical(), version, range, size));
            (FileData::Text(window.data.to_owned()), window.is_truncated)
        }
        (DataEncoding::Base64, FileContent::Large(large)) => {
            let range = operation.range.clamp_to(size)?;
            let bytes = large.read(range.start, range.end - range.start, path)?;
            (FileData::Bytes(bytes), range.end < size)
        }
        (DataEncoding::Utf8, FileContent::Whole { text: None, .. } | FileContent::Large(_)) => {
            let reason = "read it as base64".to_owned();
            return Err(FileError::NotText { path: path.to_owned(), reason });
        }
    };
    Ok(ReadFileResponse::new(data, etag, size).truncated(is_truncated).dirty(content.is_dirty()))
}

fn record_text(
    session: &WorkspaceSession,
    admitted: &AdmittedPath,
    known: &KnownText,
    offset: u64,
    length: usize,
) {
    let (path, version) = (admitted.canonical(), known.version);
    session.with_ledger(|ledger| {
        if length == known.text.len() {
            ledger.record_read(path, known.text.clone(), version);
        } else {
            let size = known.text.len() as u64;
            ledger.record_window_read(path, version, offset..offset + length as u64, size);
        }
    });
}

/// The content of a file as the session sees it.
enum FileContent {
    /// In memory.
    Whole {
        /// The text, if it is text.
        text: Option<KnownText>,
        /// The bytes on disk, or those that saving the unsaved text would write.
        bytes: Vec<u8>,
        is_dirty: bool,
    },
    /// On disk.
    Large(LargeFile),
}

struct KnownText {
    text: Arc<String>,
    format: TextFormat,
    version: TextVersion,
}

/// A file that is too large to be held in memory.
struct LargeFile {
    file: File,
    size: u64,
    etag: Etag,
    // Whether it is UTF-8, without counting its byte order mark.
    is_text: bool,
    mark_bytes: u64,
    version: TextVersion,
}

impl FileContent {
    fn etag(&self) -> Etag {
        match self {
            Self::Whole { text: Some(known), .. } => Etag::digest(known.text.as_bytes()),
            Self::Whole { text: None, bytes, .. } => Etag::digest(bytes),
            Self::Large(large) => large.etag.clone(),
        }
    }

    fn size(&self, encoding: DataEncoding) -> u64 {
        match (self, encoding) {
            (Self::Whole { text: Some(known), .. }, DataEncoding::Utf8) => known.text.len() as u64,
            (Self::Whole { bytes, .. }, _) => bytes.len() as u64,
            (Self::Large(large), DataEncoding::Utf8) => large.size - large.mark_bytes,
            (Self::Large(large), DataEncoding::Base64) => large.size,
        }
    }

    fn encoding_name(&self) -> Option<String> {
        let encoding = match self {
            Self::Whole { text, .. } => text.as_ref().map(|known| known.format.encoding),
            Self::Large(large) => large.is_text.then_some(text::Encoding::Utf8),
        };
        encoding.map(|encoding| encoding.name().to_owned())
    }

    fn is_dirty(&self) -> bool {
        matches!(self, Self::Whole { is_dirty: true, .. })
    }
}

/// Reads the content of a file. A missing file is recorded as seen.
fn read_content(session: &WorkspaceSession, admitted: &AdmittedPath) -> Result<FileContent, FileError> {
    let document = session.document_text(admitted)?;
    let unsaved = document.filter(|_| session.has_unsaved_text(admitted));
    let path = admitted.requested_path();
    let opened = match session.roots().open_file(admitted) {
        Err(AdmitError::NotFound(_)) => None,
        opened => Some(
            opened.map_err(FilesError::from)?.map_err(|special| FilesError::from_special(path, special))?,
        ),
    };
    let disk = match opened {
        None => None,
        Some((file, _)) => {
            drop(writers::wait_for_writers(&file, WaitPurpose::Read));
            let stat = rustix::fs::fstat(&file).map_err(|why| FilesError::io_error(path)(why.into()))?;
            let is_large = stat.st_size as u64 > MAX_WHOLE_BYTES;
            if is_large && unsaved.is_none() {
                return Ok(FileContent::Large(LargeFile::examine(session, file, &stat, path)?));
            }
            let failed = |fault| FilesError::from_read_error(path, fault);
            (!is_large).then(|| disk::read_bytes(&file, MAX_WHOLE_BYTES).map_err(failed)).transpose()?
        }
    };
    let decoded = disk.as_ref().map(|(bytes, _)| decode(bytes));
    if let Some((text, version, _)) = unsaved {
        let format = decoded.flatten().map_or_else(TextFormat::default, |(_, format)| format);
        let bytes = text::encode(&text, format)
            .map_err(|why| FilesError::Unencodable { path: path.to_owned(), why })?;
        return Ok(FileContent::Whole {
            text: Some(KnownText { text, format, version }),
            bytes,
            is_dirty: true,
        });
    }
    let Some((bytes, stat)) = disk else {
        // A session that has seen that the file is absent may create it.
        session.with_ledger(|ledger| ledger.record_absent(admitted.canonical()));
        return Err(FileError::NotFound { path: path.to_owned() });
    };
    let version = disk::file_version(&stat);
    let text = decoded.flatten().map(|(text, format)| KnownText { text: Arc::new(text), format, version });
    Ok(FileContent::Whole { text, bytes, is_dirty: false })
}

fn decode(bytes: &[u8]) -> Option<(String, TextFormat)> {
    if let Some(text) = text::as_plain_utf8(bytes) {
        return Some((text.to_owned(), TextFormat::default()));
    }
    text::decode(bytes.to_owned()).ok().map(|decoded| (decoded.text, decoded.format))
}

impl LargeFile {
    /// Finds out the etag of a file and whether it is text.
    fn examine(session: &WorkspaceSession, file: File, stat: &Stat, path: &str) -> Result<Self, FileError> {
        let scans = &session.workspace.inner.content_scans;
        let failed = FilesError::io_error(path);
        let scan = scans.scan(&file, stat, ScanFreshness::Exact).map_err(&failed)?;
        // A file that keeps changing is described as it was read.
        let scan = scan.map_or_else(|| scans.scan_once(&file).map_err(&failed), Ok)?;
        Ok(Self {
            file,
            size: scan.size(),
            etag: scan.etag(stat),
            is_text: scan.is_text(),
            mark_bytes: scan.mark_bytes(),
            version: disk::file_version(stat),
        })
    }

    /// Reads bytes; fewer at the end of the file.
    fn read(&self, start: u64, length: u64, path: &str) -> Result<Vec<u8>, FileError> {
        let length = usize::try_from(length).unwrap_or(usize::MAX);
        Ok(disk::read_part(&self.file, start, length).map_err(FilesError::io_error(path))?)
    }
}

#[cfg(test)]
mod tests;
