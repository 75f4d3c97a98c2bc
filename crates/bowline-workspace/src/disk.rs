//! Reading files: whole ones up to a cap, and windows at the cost of the window.
//!
//! Nothing is mapped into memory: a file that is cut while it is read would end the process.

use std::collections::hash_map::DefaultHasher;
use std::fs::File;
use std::hash::{Hash, Hasher};
use std::io::{self, Read, Seek};
use std::ops::Range;
use std::os::unix::fs::FileExt;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use bowline_state::ledger::Version;
use bowline_state::lines::index::LineIndex;
use bowline_state::lines::{PastEnd, Window, WindowScanner};
use bowline_state::text::{self, Format, NotText};
use indexmap::IndexMap;
use rustix::fs::Stat;

use crate::file_clock;

/// A window is cut out of the whole text where the file is at most this large: no index is worth it.
const SMALL: u64 = 1 << 20;

/// How many bytes are read at a time on the way to a window.
const CHUNK: usize = 256 << 10;

/// How many bytes of a whole file are read at a time: what a core's cache holds.
const PIECE: u64 = 512 << 10;

/// How many of the first bytes tell what kind of file it is.
const HEAD: usize = 8 << 10;

/// Line indexes are kept of at most this many files.
const MAX_INDEXES: usize = 64;

/// How often a file is read again that changes while it is read.
const ATTEMPTS: usize = 3;

/// A file's times move in steps: what was changed less than this before a look may change again without a trace.
pub(crate) const TIME_STEP: Duration = Duration::from_millis(50);

/// Why a file gives no text.
#[derive(Debug, thiserror::Error)]
pub(crate) enum ReadFault {
    #[error("it has {size} bytes, more than {cap}")]
    TooLarge { size: u64, cap: u64 },
    #[error("the window has more than {cap} bytes")]
    WindowTooLarge { cap: u64 },
    #[error("it is not UTF-8 and has {size} bytes, more than {cap}")]
    OnlyWhole { size: u64, cap: u64 },
    #[error(transparent)]
    NotText(#[from] NotText),
    #[error(transparent)]
    PastEnd(#[from] PastEnd),
    #[error(transparent)]
    Io(#[from] io::Error),
}

/// The text of a file.
#[derive(Debug)]
pub(crate) struct FileText {
    pub(crate) text: Arc<String>,
    pub(crate) version: Version,
}

/// Some lines of a file.
#[derive(Debug)]
pub(crate) struct FileWindow {
    pub(crate) text: Arc<String>,
    // Which bytes of the whole they are, and how many the whole has: of the text, or of the file.
    pub(crate) range: Range<u64>,
    pub(crate) size: u64,
    pub(crate) version: Version,
}

/// Returns which state of a file a look saw.
pub(crate) fn version(stat: &Stat) -> Version {
    let mut hasher = DefaultHasher::new();
    (stat.st_dev, stat.st_ino, stat.st_size, stat.st_mtime, stat.st_mtime_nsec).hash(&mut hasher);
    (stat.st_ctime, stat.st_ctime_nsec).hash(&mut hasher);
    Version(hasher.finish())
}

/// Reads a whole file.
pub(crate) fn read_bytes(file: &File, cap: u64) -> Result<(Vec<u8>, Stat), ReadFault> {
    read_scanned(file, cap).map(|(bytes, _, stat)| (bytes, stat))
}

/// Reads a whole file, and says whether there is a NUL in it.
fn read_scanned(file: &File, cap: u64) -> Result<(Vec<u8>, bool, Stat), ReadFault> {
    let mut before = rustix::fs::fstat(file).map_err(io::Error::from)?;
    for attempt in 1.. {
        let size = before.st_size as u64;
        if size > cap {
            return Err(ReadFault::TooLarge { size, cap });
        }
        let (bytes, has_nul) = read_up_to(file, size, cap)?;
        let after = rustix::fs::fstat(file).map_err(io::Error::from)?;
        // What changes all the time is taken as one look found it.
        if version(&before) == version(&after) || attempt == ATTEMPTS {
            return Ok((bytes, has_nul, after));
        }
        before = after;
    }
    Err(ReadFault::Io(io::ErrorKind::Interrupted.into()))
}

fn read_up_to(mut file: &File, size: u64, cap: u64) -> Result<(Vec<u8>, bool), ReadFault> {
    file.rewind()?;
    // One byte more than there should be, to see the end.
    let mut bytes = Vec::with_capacity(size as usize + 1);
    let mut has_nul = false;
    loop {
        // Piece by piece, so that each is still at hand when it is looked through.
        let start = bytes.len();
        let read = if size < PIECE && start < bytes.capacity() {
            // Into all of the room at once, where the other way feels its way to a size.
            let read = || rustix::io::read(file, rustix::buffer::spare_capacity(&mut bytes));
            rustix::io::retry_on_intr(read).map_err(io::Error::from)?
        } else {
            file.take(PIECE).read_to_end(&mut bytes)?
        };
        if bytes.len() as u64 > cap {
            return Err(ReadFault::TooLarge { size: bytes.len() as u64, cap });
        }
        if read == 0 {
            return Ok((bytes, has_nul));
        }
        has_nul = has_nul || memchr::memchr(0, &bytes[start..]).is_some();
    }
}

/// Reads a whole file as text.
pub(crate) fn read_text(file: &File, cap: u64) -> Result<FileText, ReadFault> {
    let (bytes, has_nul, stat) = read_scanned(file, cap)?;
    let decoded = text::decode_scanned(bytes, has_nul)?;
    Ok(FileText { text: Arc::new(decoded.text), version: version(&stat) })
}

/// What is known of where lines are, for files that are read in windows.
#[derive(Debug, Default)]
pub(crate) struct Indexes {
    // Invariant: at most `MAX_INDEXES`, the one used last at the end.
    known: Mutex<IndexMap<Identity, Known>>,
}

/// Device and inode.
type Identity = (u64, u64);

/// An index, and the state of the file that it is of.
type Known = (Version, Arc<Mutex<Index>>);

/// Where lines are in a file, and whether its text can be read in windows.
#[derive(Debug, Default)]
struct Index {
    lines: LineIndex,
    // Whether all of it is UTF-8; looked for only where all of it may be read.
    is_utf8: Option<bool>,
}

impl Indexes {
    /// Reads a window of a file.
    pub(crate) fn read_window(
        &self,
        file: &File,
        stat: &Stat,
        window: Window,
        cap: u64,
    ) -> Result<FileWindow, ReadFault> {
        let size = stat.st_size as u64;
        if size <= SMALL {
            return cut(file, window, cap);
        }
        let mut head = vec![0; HEAD];
        let length = file.read_at(&mut head, 0)?;
        head.truncate(length);
        let mark = text::bom(&head);
        if mark.is_some_and(|format| format != UTF8_WITH_MARK) {
            return if size <= cap {
                cut(file, window, cap)
            } else {
                Err(ReadFault::OnlyWhole { size, cap })
            };
        }
        if text::looks_binary(&head) {
            return if size <= cap { cut(file, window, cap) } else { Err(NotText::Binary.into()) };
        }
        let mark = if mark.is_some() { 3 } else { 0 };
        let index = self.index(stat);
        let mut index = index.lock().unwrap_or_else(PoisonError::into_inner);
        if size <= cap {
            // A few bytes may be good UTF-8 and the file be in another encoding: then a window has to show what the
            // whole shows.
            let is_utf8 = match index.is_utf8 {
                Some(known) => known,
                None => std::str::from_utf8(&read_bytes(file, cap)?.0).is_ok(),
            };
            index.is_utf8 = Some(is_utf8);
            if !is_utf8 {
                return cut(file, window, cap);
            }
        }
        let (bytes, range) = scan(file, &mut index.lines, window, mark, cap)?;
        match text::decode_window(bytes) {
            Ok(text) => {
                let text = Arc::new(text);
                Ok(FileWindow { text, range, size: size - mark, version: version(stat) })
            }
            Err(_) if size <= cap => cut(file, window, cap),
            Err(NotText::Unfaithful) => Err(ReadFault::OnlyWhole { size, cap }),
            Err(error) => Err(error.into()),
        }
    }

    fn index(&self, stat: &Stat) -> Arc<Mutex<Index>> {
        let key = (stat.st_dev, stat.st_ino);
        let version = version(stat);
        let mut known = self.known.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some((of, index)) = known.shift_remove(&key)
            && of == version
        {
            known.insert(key, (version, index.clone()));
            return index;
        }
        let index = Arc::new(Mutex::new(Index::default()));
        if is_settled(stat) {
            known.insert(key, (version, index.clone()));
            if known.len() > MAX_INDEXES {
                known.shift_remove_index(0);
            }
        }
        index
    }
}

/// Says whether a file's times are old enough to tell it from every later state.
fn is_settled(stat: &Stat) -> bool {
    let changed = Duration::new(stat.st_ctime.max(0) as u64, stat.st_ctime_nsec as u32);
    let now = Duration::from_nanos(u64::try_from(file_clock::now_ns()).unwrap_or_default());
    now.saturating_sub(changed) > TIME_STEP
}

const UTF8_WITH_MARK: Format = Format { encoding: text::Encoding::Utf8, bom: true };

/// Cuts a window out of the whole text.
fn cut(file: &File, window: Window, cap: u64) -> Result<FileWindow, ReadFault> {
    let whole = read_text(file, cap.max(SMALL))?;
    let part = bowline_state::lines::slice(&whole.text, window)?;
    if part.len() as u64 > cap {
        return Err(ReadFault::WindowTooLarge { cap });
    }
    let start = part.as_ptr() as u64 - whole.text.as_ptr() as u64;
    Ok(FileWindow {
        range: start..start + part.len() as u64,
        size: whole.text.len() as u64,
        text: Arc::new(part.to_owned()),
        version: whole.version,
    })
}

/// Goes to the window from the last known place before it, and remembers places on the way. The first `mark` bytes are
/// not part of the text.
fn scan(
    file: &File,
    index: &mut LineIndex,
    window: Window,
    mark: u64,
    cap: u64,
) -> Result<(Vec<u8>, Range<u64>), ReadFault> {
    let start = index.start_for(window.line.unwrap_or(1).into());
    let mut scanner = WindowScanner::starting_at(window, start.line - 1);
    let mut offset = start.offset;
    let mut buffer = vec![0; CHUNK];
    let mut found = Vec::new();
    let mut found_at = None;
    while !scanner.is_done() {
        // A window that was found before is near its known place: a small look is enough to begin with.
        let wanted = if offset == start.offset && offset < index.covered() { CHUNK / 2 } else { CHUNK };
        let length = read_some(file, &mut buffer[..wanted], mark + offset)?;
        let chunk = &buffer[..length];
        if chunk.is_empty() {
            if index.covered() == offset {
                index.finish();
            }
            break;
        }
        // No text has it; without this look a file with holes would be gone through to its end.
        if memchr::memchr(0, chunk).is_some() {
            return Err(NotText::Binary.into());
        }
        let part = scanner.feed(chunk);
        if !part.is_empty() {
            found_at.get_or_insert(offset + part.start as u64);
            found.extend_from_slice(&chunk[part]);
            if found.len() as u64 > cap {
                return Err(ReadFault::WindowTooLarge { cap });
            }
        }
        let end = offset + length as u64;
        if end > index.covered() && index.covered() >= offset {
            let known = (index.covered() - offset) as usize;
            index.feed(&chunk[known..]);
        }
        offset = end;
    }
    scanner.finish()?;
    let start = found_at.unwrap_or(offset);
    let end = start + found.len() as u64;
    Ok((found, start..end))
}

fn read_some(file: &File, buffer: &mut [u8], offset: u64) -> io::Result<usize> {
    loop {
        match file.read_at(buffer, offset) {
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            read => return read,
        }
    }
}
