//! File reads: whole files up to a cap, and line windows at the cost of the window.
//!
//! A window into a large file is found by counting line ends from the nearest known offset; one offset per 64 KiB is
//! remembered, at most 65,536 for a file.
//!
//! Files are not memory-mapped: truncating a mapped file during a read would kill the process.

pub(crate) mod bulk_sync;
pub(crate) mod content_scan;
pub(crate) mod displaced_files;
pub(crate) mod replace;
pub(crate) mod writers;

use std::collections::hash_map::DefaultHasher;
use std::fs::File;
use std::hash::{Hash, Hasher};
use std::io::{self, Read, Seek};
use std::ops::Range;
use std::os::fd::AsFd as _;
use std::os::unix::fs::FileExt;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use bowline_history::ledger::TextVersion;
use bowline_protocol::file_extension::Etag;
use bowline_text::lines::index::LineIndex;
use bowline_text::lines::{LineWindow, PastEndError, WindowScanner};
use bowline_text::text::{self, NotTextError, TextFormat};
use file_lease::{Lease, LeaseError};
use indexmap::IndexMap;
use rustix::fs::Stat;
use rustix::io::ReadWriteFlags;

use bowline_storage::file_clock;

/// The largest file without a line index: a window is cut out of its whole text.
const MAX_UNINDEXED_BYTES: u64 = 1 << 20;

/// The number of bytes read at a time while scanning for a window.
const CHUNK_BYTES: usize = 256 << 10;

/// The number of bytes of a whole file read at a time: about a core's cache.
const PIECE_BYTES: u64 = 512 << 10;

/// The number of leading bytes that determine the kind of a file.
const HEAD_BYTES: usize = 8 << 10;

/// The maximum number of files with a cached line index.
const MAX_INDEXES: usize = 64;

/// The maximum number of reads of a file that changes while it is read.
const MAX_READ_ATTEMPTS: usize = 3;

/// The granularity of file timestamps: a file changed less than this before a look may change again with the same
/// timestamp.
pub(crate) const TIMESTAMP_GRANULARITY: Duration = Duration::from_millis(50);

/// Why a file cannot be read as text.
#[derive(Debug, thiserror::Error)]
pub(crate) enum ReadError {
    #[error("it has {size} bytes, more than {cap}")]
    TooLarge { size: u64, cap: u64 },
    #[error("the window has more than {cap} bytes")]
    WindowTooLarge { cap: u64 },
    #[error("it is not UTF-8 and has {size} bytes, more than {cap}")]
    WindowUnsupported { size: u64, cap: u64 },
    #[error(transparent)]
    NotText(#[from] NotTextError),
    #[error(transparent)]
    PastEnd(#[from] PastEndError),
    #[error(transparent)]
    Io(#[from] io::Error),
}

/// The text of a file.
#[derive(Debug)]
pub(crate) struct FileText {
    pub(crate) text: Arc<String>,
    pub(crate) version: TextVersion,
}

/// Some lines of a file.
#[derive(Debug)]
pub(crate) struct FileWindow {
    pub(crate) text: Arc<String>,
    // The bytes of the window, and the size of the whole: of the text, or of the file.
    pub(crate) range: Range<u64>,
    pub(crate) size: u64,
    pub(crate) version: TextVersion,
}

/// Returns the version of a file from its metadata.
pub(crate) fn file_version(stat: &Stat) -> TextVersion {
    let mut hasher = DefaultHasher::new();
    (stat.st_dev, stat.st_ino, stat.st_size, stat.st_mtime, stat.st_mtime_nsec).hash(&mut hasher);
    (stat.st_ctime, stat.st_ctime_nsec).hash(&mut hasher);
    TextVersion(hasher.finish())
}

/// Reads a whole file.
pub(crate) fn read_bytes(file: &File, cap: u64) -> Result<(Vec<u8>, Stat), ReadError> {
    read_and_scan(file, cap).map(|(bytes, _, stat)| (bytes, stat))
}

/// Reads a whole file, and returns whether it contains a NUL.
fn read_and_scan(file: &File, cap: u64) -> Result<(Vec<u8>, bool, Stat), ReadError> {
    let mut before = rustix::fs::fstat(file).map_err(io::Error::from)?;
    for attempt in 1.. {
        let size = before.st_size as u64;
        if size > cap {
            return Err(ReadError::TooLarge { size, cap });
        }
        let (bytes, has_nul) = read_up_to(file, size, cap)?;
        let after = rustix::fs::fstat(file).map_err(io::Error::from)?;
        // A file that keeps changing is returned as the last attempt read it.
        if file_version(&before) == file_version(&after) || attempt == MAX_READ_ATTEMPTS {
            return Ok((bytes, has_nul, after));
        }
        before = after;
    }
    Err(ReadError::Io(io::ErrorKind::Interrupted.into()))
}

fn read_up_to(mut file: &File, size: u64, cap: u64) -> Result<(Vec<u8>, bool), ReadError> {
    file.rewind()?;
    // One byte more than expected, to detect the end.
    let mut bytes = Vec::with_capacity(size as usize + 1);
    let mut has_nul = false;
    loop {
        // Scanned piece by piece, while each is still in the cache.
        let start = bytes.len();
        let read = if size < PIECE_BYTES && start < bytes.capacity() {
            // Reads into all spare capacity at once, where `read_to_end` probes for a size.
            let read = || rustix::io::read(file, rustix::buffer::spare_capacity(&mut bytes));
            rustix::io::retry_on_intr(read).map_err(io::Error::from)?
        } else {
            file.take(PIECE_BYTES).read_to_end(&mut bytes)?
        };
        if bytes.len() as u64 > cap {
            return Err(ReadError::TooLarge { size: bytes.len() as u64, cap });
        }
        if read == 0 {
            return Ok((bytes, has_nul));
        }
        has_nul = has_nul || memchr::memchr(0, &bytes[start..]).is_some();
    }
}

/// Reads a whole file as text.
pub(crate) fn read_text(file: &File, cap: u64) -> Result<FileText, ReadError> {
    let (bytes, has_nul, stat) = read_and_scan(file, cap)?;
    let decoded = text::decode_scanned(bytes, has_nul)?;
    Ok(FileText { text: Arc::new(decoded.text), version: file_version(&stat) })
}

/// Reads a whole file as text if that does not wait: its bytes are cached, and no program is writing it.
pub(crate) fn try_read_text(file: File, cap: u64) -> Option<FileText> {
    let (bytes, stat) = try_read_bytes(&file, cap)?;
    drop(file);
    let has_nul = memchr::memchr(0, &bytes).is_some();
    let decoded = text::decode_scanned(bytes, has_nul).ok()?;
    Some(FileText { text: Arc::new(decoded.text), version: file_version(&stat) })
}

/// Reads a whole file like [`try_read_text`]. The file may be under a lease then, and has to be closed.
fn try_read_bytes(file: &File, cap: u64) -> Option<(Vec<u8>, Stat)> {
    let lease = match Lease::try_shared(file.as_fd()) {
        Err(LeaseError::Contended) => return None,
        lease => lease.ok(),
    };
    let stat = rustix::fs::fstat(file).ok()?;
    let size = usize::try_from(stat.st_size).ok().filter(|size| *size as u64 <= cap)?;
    // One byte more than expected, to detect the end.
    let mut bytes = vec![0; size + 1];
    let mut buffers = [io::IoSliceMut::new(&mut bytes)];
    let read = rustix::io::preadv2(file, &mut buffers, 0, ReadWriteFlags::NOWAIT).ok()?;
    // A file under a lease does not change.
    let is_unchanged = || rustix::fs::fstat(file).is_ok_and(|now| file_version(&now) == file_version(&stat));
    if read != size || !(lease.is_some() || is_unchanged()) {
        return None;
    }
    if let Some(lease) = lease {
        lease.release_on_close();
    }
    bytes.truncate(size);
    Some((bytes, stat))
}

/// The line indexes of files that are read in windows.
#[derive(Debug, Default)]
pub(crate) struct LineIndexCache {
    // Invariant: at most `MAX_INDEXES`, the most recently used last.
    entries: Mutex<IndexMap<DeviceAndInode, CachedIndex>>,
}

/// Device and inode.
type DeviceAndInode = (u64, u64);

/// An index, and the version of the file that it describes.
type CachedIndex = (TextVersion, Arc<Mutex<FileIndex>>);

/// The offsets of lines in a file, and whether its text can be read in windows.
#[derive(Debug, Default)]
struct FileIndex {
    lines: LineIndex,
    // Whether the whole file is UTF-8; determined only for files within the read cap.
    is_utf8: Option<bool>,
}

impl LineIndexCache {
    /// Reads a window of a file.
    pub(crate) fn read_window(
        &self,
        file: &File,
        stat: &Stat,
        window: LineWindow,
        cap: u64,
    ) -> Result<FileWindow, ReadError> {
        let size = stat.st_size as u64;
        if size <= MAX_UNINDEXED_BYTES {
            return read_whole_and_slice(file, window, cap);
        }
        let mut head = vec![0; HEAD_BYTES];
        let length = file.read_at(&mut head, 0)?;
        head.truncate(length);
        let mark = text::detect_bom(&head);
        if mark.is_some_and(|format| format != UTF8_WITH_BOM) {
            return if size <= cap {
                read_whole_and_slice(file, window, cap)
            } else {
                Err(ReadError::WindowUnsupported { size, cap })
            };
        }
        if text::looks_binary(&head) {
            return if size <= cap {
                read_whole_and_slice(file, window, cap)
            } else {
                Err(NotTextError::Binary.into())
            };
        }
        let mark = if mark.is_some() { 3 } else { 0 };
        let index = self.index_for(stat);
        let mut index = index.lock().unwrap_or_else(PoisonError::into_inner);
        if size <= cap {
            // A window may be valid UTF-8 although the file is in another encoding: the window has to match the text of
            // the whole.
            let is_utf8 = match index.is_utf8 {
                Some(known) => known,
                None => std::str::from_utf8(&read_bytes(file, cap)?.0).is_ok(),
            };
            index.is_utf8 = Some(is_utf8);
            if !is_utf8 {
                return read_whole_and_slice(file, window, cap);
            }
        }
        let (bytes, range) = scan_to_window(file, &mut index.lines, window, mark, cap)?;
        match text::decode_window(bytes) {
            Ok(text) => {
                let text = Arc::new(text);
                Ok(FileWindow { text, range, size: size - mark, version: file_version(stat) })
            }
            Err(_) if size <= cap => read_whole_and_slice(file, window, cap),
            Err(NotTextError::NotReversible) => Err(ReadError::WindowUnsupported { size, cap }),
            Err(error) => Err(error.into()),
        }
    }

    fn index_for(&self, stat: &Stat) -> Arc<Mutex<FileIndex>> {
        let key = (stat.st_dev, stat.st_ino);
        let version = file_version(stat);
        let mut known = self.entries.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some((of, index)) = known.shift_remove(&key)
            && of == version
        {
            known.insert(key, (version, index.clone()));
            return index;
        }
        let index = Arc::new(Mutex::new(FileIndex::default()));
        if is_settled(stat) {
            known.insert(key, (version, index.clone()));
            if known.len() > MAX_INDEXES {
                known.shift_remove_index(0);
            }
        }
        index
    }
}

/// Returns whether a file's timestamps are old enough to distinguish it from every later version.
fn is_settled(stat: &Stat) -> bool {
    let changed = Duration::new(stat.st_ctime.max(0) as u64, stat.st_ctime_nsec as u32);
    let now = Duration::from_nanos(u64::try_from(file_clock::now_ns()).unwrap_or_default());
    now.saturating_sub(changed) > TIMESTAMP_GRANULARITY
}

/// Returns an etag made from a file's metadata. While the file may still change without a trace in that, each etag is
/// different, so that none is taken for current.
fn version_etag(stat: &Stat) -> Etag {
    static UNSETTLED: AtomicU64 = AtomicU64::new(0);
    let (device, inode, size) = (stat.st_dev, stat.st_ino, stat.st_size);
    let times = [(stat.st_mtime, stat.st_mtime_nsec), (stat.st_ctime, stat.st_ctime_nsec)];
    let [modified, changed] = times.map(|(seconds, nanoseconds)| format!("{seconds:x}.{nanoseconds:x}"));
    let version = format!("version:{device:x}-{inode:x}-{size:x}-{modified}-{changed}");
    match is_settled(stat) {
        true => version.into(),
        false => format!("{version}-{}", UNSETTLED.fetch_add(1, Ordering::Relaxed)).into(),
    }
}

const UTF8_WITH_BOM: TextFormat = TextFormat { encoding: text::Encoding::Utf8, has_bom: true };

/// Cuts a window out of the whole text.
fn read_whole_and_slice(file: &File, window: LineWindow, cap: u64) -> Result<FileWindow, ReadError> {
    let whole = read_text(file, cap.max(MAX_UNINDEXED_BYTES))?;
    let part = bowline_text::lines::slice_lines(&whole.text, window)?;
    if part.len() as u64 > cap {
        return Err(ReadError::WindowTooLarge { cap });
    }
    let start = part.as_ptr() as u64 - whole.text.as_ptr() as u64;
    Ok(FileWindow {
        range: start..start + part.len() as u64,
        size: whole.text.len() as u64,
        text: Arc::new(part.to_owned()),
        version: whole.version,
    })
}

/// Scans to the window from the nearest known offset before it, and records offsets on the way. The first `mark` bytes
/// are not part of the text.
fn scan_to_window(
    file: &File,
    index: &mut LineIndex,
    window: LineWindow,
    mark: u64,
    cap: u64,
) -> Result<(Vec<u8>, Range<u64>), ReadError> {
    let start = index.start_for_line(window.line.unwrap_or(1).into());
    let mut scanner = WindowScanner::starting_at(window, start.line - 1);
    let mut offset = start.offset;
    let mut buffer = vec![0; CHUNK_BYTES];
    let mut found = Vec::new();
    let mut found_at = None;
    while !scanner.is_done() {
        // A window that was found before is near a known offset: a small read is enough to begin with.
        let wanted = if offset == start.offset && offset < index.covered_bytes() {
            CHUNK_BYTES / 2
        } else {
            CHUNK_BYTES
        };
        let length = read_at_retrying(file, &mut buffer[..wanted], mark + offset)?;
        let chunk = &buffer[..length];
        if chunk.is_empty() {
            break;
        }
        // Text has no NUL; without this check, a sparse file would be scanned to its end.
        if memchr::memchr(0, chunk).is_some() {
            return Err(NotTextError::Binary.into());
        }
        let part = scanner.feed(chunk);
        if !part.is_empty() {
            found_at.get_or_insert(offset + part.start as u64);
            found.extend_from_slice(&chunk[part]);
            if found.len() as u64 > cap {
                return Err(ReadError::WindowTooLarge { cap });
            }
        }
        let end = offset + length as u64;
        if end > index.covered_bytes() && index.covered_bytes() >= offset {
            let known = (index.covered_bytes() - offset) as usize;
            index.feed(&chunk[known..]);
        }
        offset = end;
    }
    scanner.finish()?;
    let start = found_at.unwrap_or(offset);
    let end = start + found.len() as u64;
    Ok((found, start..end))
}

/// Reads at a position, again if a signal interrupts it.
pub(crate) fn read_at_retrying(file: &File, buffer: &mut [u8], offset: u64) -> io::Result<usize> {
    loop {
        match file.read_at(buffer, offset) {
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            read => return read,
        }
    }
}

/// Reads bytes at an offset; fewer at the end of the file.
pub(crate) fn read_part(file: &File, offset: u64, length: usize) -> io::Result<Vec<u8>> {
    let mut bytes = vec![0; length];
    let mut filled = 0;
    while filled < length {
        match read_at_retrying(file, &mut bytes[filled..], offset + filled as u64)? {
            0 => break,
            count => filled += count,
        }
    }
    bytes.truncate(filled);
    Ok(bytes)
}

/// Counts the lines that end before an offset.
pub(crate) fn count_lines(file: &File, end: u64) -> io::Result<usize> {
    let mut buffer = vec![0; CHUNK_BYTES];
    let (mut offset, mut count) = (0, 0);
    while offset < end {
        let wanted = usize::try_from(end - offset).unwrap_or(CHUNK_BYTES).min(CHUNK_BYTES);
        let read = read_at_retrying(file, &mut buffer[..wanted], offset)?;
        if read == 0 {
            break;
        }
        count += memchr::memchr_iter(b'\n', &buffer[..read]).count();
        offset += read as u64;
    }
    Ok(count)
}
