//! The bytes of a file at one moment, or an indication that it was changing.

use std::fs::File;
use std::io::{self, Read as _};

use bowline_history::observation::{FileStamp, KnownFile};
use bowline_text::hash::{ContentHash, ContentHasher};

use crate::walker::WalkEntry;
use bowline_storage::file_clock::file_stamp;

/// The limits on reading a file.
#[derive(Debug, Clone, Copy)]
pub(super) struct ReadLimits {
    /// The maximum size up to which its bytes are kept.
    pub(super) max_kept: u64,
    /// The maximum size up to which it is read at all.
    pub(super) max_hashed: u64,
}

/// The result of reading a file.
pub(super) struct FileContents {
    /// The file's metadata when it was read.
    pub(super) stamp: FileStamp,
    /// The hash of its bytes, if it was read.
    pub(super) hash: Option<ContentHash>,
    /// Its bytes, if it is small enough.
    pub(super) bytes: Option<Vec<u8>>,
    /// Whether it stayed unchanged while it was read.
    pub(super) is_stable: bool,
}

/// How many times to read a file that changes while it is read.
const MAX_READ_ATTEMPTS: usize = 3;

/// How many bytes of a large file are read at a time.
const CHUNK_BYTES: usize = 64 * 1024;

impl FileContents {
    pub(super) fn to_known(&self, now_ns: i64) -> KnownFile {
        let known = KnownFile::new(self.stamp, self.hash, now_ns);
        KnownFile { is_racy: known.is_racy || !self.is_stable, ..known }
    }
}

/// Reads a file.
///
/// # Errors
/// Returns the system's error.
pub(super) fn read_contents(entry: &WalkEntry<'_>, limits: ReadLimits) -> io::Result<FileContents> {
    let mut contents = read_once(entry, limits)?;
    for _ in 1..MAX_READ_ATTEMPTS {
        if contents.is_stable {
            break;
        }
        contents = read_once(entry, limits)?;
    }
    Ok(contents)
}

fn read_once(entry: &WalkEntry<'_>, limits: ReadLimits) -> io::Result<FileContents> {
    let (file, before) = entry.open()?;
    if before.size > limits.max_hashed {
        return Ok(FileContents { stamp: before, hash: None, bytes: None, is_stable: true });
    }
    let (length, hash, bytes) = read_bytes(&file, before.size, limits)?;
    let steady = length == before.size && file_stamp(&rustix::fs::fstat(&file)?) == before;
    Ok(FileContents { stamp: before, hash, bytes, is_stable: steady })
}

type HashedBytes = (u64, Option<ContentHash>, Option<Vec<u8>>);

fn read_bytes(file: &File, size: u64, limits: ReadLimits) -> io::Result<HashedBytes> {
    if size <= limits.max_kept {
        // One byte more than expected, to detect growth.
        let mut bytes = Vec::with_capacity(usize::try_from(size + 1).unwrap_or(CHUNK_BYTES));
        let length = file.take(size + 1).read_to_end(&mut bytes)? as u64;
        let hash = ContentHash::digest(&bytes);
        return Ok((length, Some(hash), Some(bytes)));
    }
    let mut hasher = ContentHasher::default();
    let mut chunk = vec![0; CHUNK_BYTES];
    let mut rest = file.take(size + 1);
    let mut length = 0;
    loop {
        match rest.read(&mut chunk) {
            Ok(0) => return Ok((length, Some(hasher.finish()), None)),
            Ok(read) => {
                hasher.update(&chunk[..read]);
                length += read as u64;
            }
            Err(why) if why.kind() == io::ErrorKind::Interrupted => {}
            Err(why) => return Err(why),
        }
    }
}
