//! The identity of a file's content and whether it is text, found piece by piece.
//!
//! A scan is continued rather than repeated when bytes are added to the end of a file, so that their cost is not that of
//! the whole file. A file that is too large to be written as a whole is not hashed as a whole either: its size and its
//! end stand for its content in the journal, and its version in its etag.

use std::fs::File;
use std::io;
use std::sync::{Mutex, PoisonError};

use bowline_history::ledger::TextVersion;
use bowline_protocol::file_extension::Etag;
use bowline_text::hash::{ContentHash, ContentHasher};
use indexmap::IndexMap;
use rustix::fs::Stat;

use super::{file_version, is_settled, read_at_retrying, read_part, version_etag};

/// The number of bytes read at a time.
pub(crate) const CHUNK_BYTES: usize = 1 << 20;

/// The maximum number of files whose scans are kept.
const MAX_SCANS: usize = 64;

/// The number of bytes at the end of a file that stand for its content if it is not hashed.
const END_BYTES: usize = 4 << 10;

const UTF8_MARK: &[u8] = b"\xef\xbb\xbf";

/// What was found in the bytes so far.
#[derive(Debug, Clone)]
pub(crate) struct ContentScan {
    // `None` for more than `max_hashed_bytes`.
    whole: Option<ContentHasher>,
    // Without the byte order mark, if there is one.
    unmarked: Option<ContentHasher>,
    max_hashed_bytes: u64,
    // Invariant: the last bytes, at most `END_BYTES`.
    end: Vec<u8>,
    size: u64,
    has_mark: bool,
    is_text: bool,
    // The start of a character at the end.
    partial: Vec<u8>,
}

impl ContentScan {
    /// Scans a file, which is hashed if it has at most `max_hashed_bytes`.
    pub(crate) fn read(file: &File, max_hashed_bytes: u64) -> io::Result<Self> {
        let is_hashed = rustix::fs::fstat(file)?.st_size as u64 <= max_hashed_bytes;
        let mut scan = Self {
            whole: is_hashed.then(ContentHasher::default),
            unmarked: None,
            max_hashed_bytes,
            end: Vec::new(),
            size: 0,
            has_mark: false,
            is_text: true,
            partial: Vec::new(),
        };
        let mut buffer = vec![0; CHUNK_BYTES];
        loop {
            let count = read_at_retrying(file, &mut buffer, scan.size)?;
            if count == 0 {
                return Ok(scan);
            }
            scan.feed(&buffer[..count]);
        }
    }

    /// Adds the next bytes.
    pub(crate) fn feed(&mut self, piece: &[u8]) {
        let rest = if self.size == 0 { piece.strip_prefix(UTF8_MARK) } else { None };
        self.has_mark |= rest.is_some();
        let text = rest.unwrap_or(piece);
        self.size += piece.len() as u64;
        if self.size > self.max_hashed_bytes {
            (self.whole, self.unmarked) = (None, None);
        }
        if let Some(whole) = &mut self.whole {
            whole.update(piece);
            if self.has_mark {
                self.unmarked.get_or_insert_default().update(text);
            }
        }
        let added = &piece[piece.len().saturating_sub(END_BYTES)..];
        let surplus = (self.end.len() + added.len()).saturating_sub(END_BYTES);
        self.end.drain(..surplus);
        self.end.extend_from_slice(added);
        self.is_text =
            self.is_text && memchr::memchr(0, text).is_none() && continues_text(&mut self.partial, text);
    }

    /// Returns the number of bytes.
    pub(crate) fn size(&self) -> u64 {
        self.size
    }

    /// Returns whether the bytes are UTF-8 text, apart from a byte order mark.
    pub(crate) fn is_text(&self) -> bool {
        self.is_text && self.partial.is_empty()
    }

    /// Returns the size of the byte order mark of a text.
    pub(crate) fn mark_bytes(&self) -> u64 {
        if self.is_text() && self.has_mark { UTF8_MARK.len() as u64 } else { 0 }
    }

    /// Returns whether the bytes were hashed.
    pub(crate) fn is_hashed(&self) -> bool {
        self.whole.is_some()
    }

    /// Returns what the journal has as the hash of the content: the hash of the bytes, or of their number and the last
    /// of them if there are too many.
    pub(crate) fn hash(&self) -> ContentHash {
        match &self.whole {
            Some(whole) => whole.clone().finish(),
            None => hash_end(self.size, &self.end),
        }
    }

    /// Returns the hash of the text without its byte order mark, or of the bytes if they are not text. For a file that
    /// is not hashed it is that of the journal.
    pub(crate) fn text_hash(&self) -> ContentHash {
        match &self.unmarked {
            Some(unmarked) if self.is_text() => unmarked.clone().finish(),
            _ => self.hash(),
        }
    }

    /// Returns the etag of the file that was scanned.
    pub(crate) fn etag(&self, stat: &Stat) -> Etag {
        if self.is_hashed() { self.text_hash().into() } else { version_etag(stat) }
    }
}

/// Returns what stands for the hash of a file that is not hashed. No content has this hash.
fn hash_end(size: u64, end: &[u8]) -> ContentHash {
    let mut hasher = ContentHasher::default();
    hasher.update(b"bowline: the size and the end of a large file\0");
    hasher.update(&size.to_le_bytes());
    hasher.update(end);
    hasher.finish()
}

/// Returns whether `piece` continues a text in UTF-8, and keeps an incomplete character at its end.
fn continues_text(partial: &mut Vec<u8>, piece: &[u8]) -> bool {
    let mut rest = piece;
    while !partial.is_empty() {
        let Some((next, more)) = rest.split_first() else { return true };
        partial.push(*next);
        rest = more;
        match std::str::from_utf8(partial) {
            Ok(_) => partial.clear(),
            Err(error) if error.error_len().is_none() => {}
            Err(_) => return false,
        }
    }
    match std::str::from_utf8(rest) {
        Ok(_) => true,
        Err(error) => {
            partial.extend_from_slice(&rest[error.valid_up_to()..]);
            error.error_len().is_none()
        }
    }
}

/// Returns what the journal has as the hash of the first `size` bytes of a file, as [`ContentScan::hash`] does; `None` if
/// it is shorter.
pub(crate) fn hash_start(file: &File, size: u64, max_hashed_bytes: u64) -> io::Result<Option<ContentHash>> {
    if size > max_hashed_bytes {
        let length = usize::try_from(size).map_or(END_BYTES, |size| size.min(END_BYTES));
        let end = read_part(file, size - length as u64, length)?;
        return Ok((end.len() == length).then(|| hash_end(size, &end)));
    }
    let mut hasher = ContentHasher::default();
    let mut buffer = vec![0; CHUNK_BYTES];
    let mut offset = 0;
    while offset < size {
        let length = usize::try_from(size - offset).map_or(CHUNK_BYTES, |left| left.min(CHUNK_BYTES));
        match read_at_retrying(file, &mut buffer[..length], offset)? {
            0 => return Ok(None),
            count => {
                hasher.update(&buffer[..count]);
                offset += count as u64;
            }
        }
    }
    Ok(Some(hasher.finish()))
}

/// The scans of files, as long as the files stay as they are.
#[derive(Debug)]
pub(crate) struct ContentScanCache {
    max_hashed_bytes: u64,
    // Invariant: keyed by device and inode; at most `MAX_SCANS`, the most recently used last.
    entries: Mutex<IndexMap<(u64, u64), CachedScan>>,
}

#[derive(Debug)]
struct CachedScan {
    version: TextVersion,
    // Whether a later change must alter the version.
    is_settled: bool,
    scan: ContentScan,
}

/// How certain it must be that a file is still as it was scanned.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum ScanFreshness {
    /// As certain as its times can tell.
    Exact,
    /// It may have been overwritten, keeping its size, within the same tick of the clock as the last append.
    SinceOwnAppend,
}

impl ContentScanCache {
    /// Returns an empty cache of files that are hashed if they have at most so many bytes.
    pub(crate) fn new(max_hashed_bytes: u64) -> Self {
        Self { max_hashed_bytes, entries: Mutex::default() }
    }

    /// Scans a file that keeps changing, as it is read.
    pub(crate) fn scan_once(&self, file: &File) -> io::Result<ContentScan> {
        ContentScan::read(file, self.max_hashed_bytes)
    }

    /// Returns the scan of a file, from the cache or anew, or `None` if the file changes meanwhile.
    pub(crate) fn scan(
        &self,
        file: &File,
        stat: &Stat,
        freshness: ScanFreshness,
    ) -> io::Result<Option<ContentScan>> {
        let version = file_version(stat);
        let mut entries = self.entries.lock().unwrap_or_else(PoisonError::into_inner);
        let known = entries.shift_remove(&(stat.st_dev, stat.st_ino));
        let is_usable = |known: &CachedScan| {
            known.version == version && (known.is_settled || freshness == ScanFreshness::SinceOwnAppend)
        };
        if let Some(known) = known.filter(is_usable) {
            let scan = known.scan.clone();
            entries.insert((stat.st_dev, stat.st_ino), known);
            return Ok(Some(scan));
        }
        drop(entries);
        // Before the scan: a change during it is noticed below.
        let is_settled = is_settled(stat);
        let scan = self.scan_once(file)?;
        if file_version(&rustix::fs::fstat(file)?) != version {
            return Ok(None);
        }
        self.insert(stat, CachedScan { version, is_settled, scan: scan.clone() });
        Ok(Some(scan))
    }

    /// Records the scan of a file to which bytes were just appended.
    pub(crate) fn record_append(&self, stat: &Stat, scan: ContentScan) {
        if stat.st_size as u64 == scan.size() {
            self.insert(stat, CachedScan { version: file_version(stat), is_settled: false, scan });
        }
    }

    fn insert(&self, stat: &Stat, scan: CachedScan) {
        let mut entries = self.entries.lock().unwrap_or_else(PoisonError::into_inner);
        entries.shift_remove(&(stat.st_dev, stat.st_ino));
        entries.insert((stat.st_dev, stat.st_ino), scan);
        if entries.len() > MAX_SCANS {
            entries.shift_remove_index(0);
        }
    }
}

#[cfg(test)]
mod tests;
