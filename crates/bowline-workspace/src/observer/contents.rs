//! The bytes of a file as they were at one moment, or a word that they were not steady.

use std::fs::File;
use std::io::{self, Read as _};

use bowline_state::changes::ContentHash;
use bowline_state::observation::{ContentHasher, Known, Stamp};

use crate::walker::{Entry, stamp};

/// How much is read of a file.
#[derive(Debug, Clone, Copy)]
pub(super) struct Limits {
    /// Up to this size its bytes are kept.
    pub(super) bytes: u64,
    /// Up to this size it is read at all.
    pub(super) hashed: u64,
}

/// What was read.
pub(super) struct Contents {
    /// The file's metadata when it was read.
    pub(super) stamp: Stamp,
    /// The hash of its bytes, if it was read.
    pub(super) hash: Option<ContentHash>,
    /// Its bytes, if they are few enough.
    pub(super) bytes: Option<Vec<u8>>,
    /// Whether it stayed as it was while it was read.
    pub(super) steady: bool,
}

/// How often a file is read anew that changes while it is read.
const ATTEMPTS: usize = 3;

/// A large file is read this many bytes at a time.
const CHUNK: usize = 64 * 1024;

impl Contents {
    pub(super) fn known(&self, now_ns: i64) -> Known {
        let known = Known::new(self.stamp, self.hash, now_ns);
        Known { racy: known.racy || !self.steady, ..known }
    }
}

/// Reads a file.
///
/// # Errors
/// Returns what the system says.
pub(super) fn read(entry: &Entry<'_>, limits: Limits) -> io::Result<Contents> {
    let mut contents = read_once(entry, limits)?;
    for _ in 1..ATTEMPTS {
        if contents.steady {
            break;
        }
        contents = read_once(entry, limits)?;
    }
    Ok(contents)
}

fn read_once(entry: &Entry<'_>, limits: Limits) -> io::Result<Contents> {
    let (file, before) = entry.open()?;
    if before.size > limits.hashed {
        return Ok(Contents { stamp: before, hash: None, bytes: None, steady: true });
    }
    let (length, hash, bytes) = read_bytes(&file, before.size, limits)?;
    let steady = length == before.size && stamp(&rustix::fs::fstat(&file)?) == before;
    Ok(Contents { stamp: before, hash, bytes, steady })
}

type Bytes = (u64, Option<ContentHash>, Option<Vec<u8>>);

fn read_bytes(file: &File, size: u64, limits: Limits) -> io::Result<Bytes> {
    if size <= limits.bytes {
        // One more than there should be, to see whether it grew.
        let mut bytes = Vec::with_capacity(usize::try_from(size + 1).unwrap_or(CHUNK));
        let length = file.take(size + 1).read_to_end(&mut bytes)? as u64;
        let hash = ContentHash::of(&bytes);
        return Ok((length, Some(hash), Some(bytes)));
    }
    let mut hasher = ContentHasher::default();
    let mut chunk = vec![0; CHUNK];
    let mut rest = file.take(size + 1);
    let mut length = 0;
    loop {
        match rest.read(&mut chunk) {
            Ok(0) => return Ok((length, Some(hasher.finish()), None)),
            Ok(read) => {
                hasher.feed(&chunk[..read]);
                length += read as u64;
            }
            Err(why) if why.kind() == io::ErrorKind::Interrupted => {}
            Err(why) => return Err(why),
        }
    }
}
