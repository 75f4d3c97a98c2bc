//! What a look at a file's metadata says of its contents, and what a look at its contents says of a change.
//!
//! A scan compares stamps and reads only what they leave open. A stamp proves that a file is the same only if a change
//! after it was taken could not leave it as it is: the system's clock ticks in steps, so a file that was written in the
//! last step may be written again and keep its stamp. Such a file is *racy*, and is read the next time.

use sha2::{Digest, Sha256};

use crate::changes::ContentHash;

/// A file that changed less than this before it was looked at may change again and keep its stamp. Stamps are taken from
/// a clock that moves by the tick of the kernel, 10 ms at most; the rest is for clocks that are slewed. The moments that
/// stamps are compared with have to be that clock's: a machine under load lets it lag behind the ordinary one.
pub const RACY_WINDOW_NS: i64 = 50_000_000;

/// The same for a file system that keeps whole seconds, such as FAT, which keeps every second one.
pub const COARSE_WINDOW_NS: i64 = 2_000_000_000 + RACY_WINDOW_NS;

/// What a file's metadata says of it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Stamp {
    /// The file system it is on.
    pub device: u64,
    /// Its number there.
    pub inode: u64,
    /// How many bytes it has.
    pub size: u64,
    /// When its bytes changed, in nanoseconds since 1970. Anybody can set it.
    pub mtime_ns: i64,
    /// When anything of it changed, in nanoseconds since 1970. Only the system sets it.
    pub ctime_ns: i64,
    /// Its permission bits.
    pub mode: u32,
}

impl Stamp {
    /// Says whether a change after the moment `now` could leave the stamp as it is. A file's change time is the
    /// system's, so one that lies in the future is a clock gone wrong and proves nothing; a time of modification in the
    /// far future is what somebody set it to, and does not matter.
    #[must_use]
    pub fn is_racy(&self, now_ns: i64) -> bool {
        let window = self.window();
        let since_change = now_ns.saturating_sub(self.ctime_ns);
        let since_modification = now_ns.saturating_sub(self.mtime_ns);
        since_change < window || since_modification.saturating_abs() < window
    }

    /// Says whether the file may have changed, or come into being, after a moment. It did not if the system's time of its
    /// last change lies before.
    #[must_use]
    pub fn may_have_changed_since(&self, moment_ns: i64) -> bool {
        moment_ns.saturating_sub(self.ctime_ns) <= self.window()
    }

    /// Returns by how much its times may lie before the moment they stand for.
    fn window(&self) -> i64 {
        let whole_seconds = self.mtime_ns % 1_000_000_000 == 0 && self.ctime_ns % 1_000_000_000 == 0;
        if whole_seconds { COARSE_WINDOW_NS } else { RACY_WINDOW_NS }
    }

    /// Says whether two stamps differ in nothing that a write of the bytes changes, unless times are set back.
    fn seems_unwritten(&self, other: &Self) -> bool {
        let key = |stamp: &Self| (stamp.device, stamp.inode, stamp.size, stamp.mtime_ns);
        key(self) == key(other)
    }
}

/// What is known of a file since it was last looked at.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Known {
    /// Its metadata then.
    pub stamp: Stamp,
    /// Its bytes then, if they were read.
    pub hash: Option<ContentHash>,
    /// Whether it may have changed since without a trace in its metadata.
    pub racy: bool,
}

impl Known {
    /// Returns what is known of a file that was looked at at `now`, or later: a moment before the metadata was read.
    #[must_use]
    pub fn new(stamp: Stamp, hash: Option<ContentHash>, now_ns: i64) -> Self {
        Self { stamp, hash, racy: stamp.is_racy(now_ns) }
    }
}

/// What metadata alone say.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Verdict {
    /// Nothing changed; or there was nothing and is nothing.
    Same,
    /// There is a file that was not there.
    Created,
    /// The file is gone.
    Deleted,
    /// It may have changed: its bytes have to be read.
    Touched,
}

/// Compares what is known with what is there now.
#[must_use]
pub fn look(known: Option<&Known>, now: Option<&Stamp>) -> Verdict {
    match (known, now) {
        (None, None) => Verdict::Same,
        (None, Some(_)) => Verdict::Created,
        (Some(_), None) => Verdict::Deleted,
        (Some(known), Some(now)) if known.stamp == *now && !known.racy => Verdict::Same,
        (Some(_), Some(_)) => Verdict::Touched,
    }
}

/// What a file's bytes say, once they were read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Change {
    /// Neither bytes nor mode changed.
    None,
    /// Only the mode did.
    Mode,
    /// The bytes did, or nobody can say that they did not.
    Bytes,
}

/// Compares a file that was touched with what is known of it. `hash` is that of its bytes now, if they were read.
#[must_use]
pub fn compare(known: &Known, now: &Stamp, hash: Option<&ContentHash>) -> Change {
    let same_bytes = match (&known.hash, hash) {
        (Some(before), Some(after)) => before == after,
        // Bytes that were never read cannot be compared, so the metadata has to do.
        _ => known.stamp.seems_unwritten(now),
    };
    match (same_bytes, known.stamp.mode == now.mode) {
        (false, _) => Change::Bytes,
        (true, false) => Change::Mode,
        (true, true) => Change::None,
    }
}

/// The hash of bytes that come in pieces.
#[derive(Debug, Clone, Default)]
pub struct ContentHasher(Sha256);

impl ContentHasher {
    /// Takes in the next bytes.
    pub fn feed(&mut self, bytes: &[u8]) {
        self.0.update(bytes);
    }

    /// Returns the hash of all of them.
    #[must_use]
    pub fn finish(self) -> ContentHash {
        ContentHash::from(<[u8; 32]>::from(self.0.finalize()))
    }
}

/// How many of a file's first bytes say whether it is text.
pub const SNIFFED: usize = 8192;

/// Says whether bytes look like text: no NUL among the first, or a mark of UTF-16 before them.
#[must_use]
pub fn seems_text(bytes: &[u8]) -> bool {
    let first = &bytes[..bytes.len().min(SNIFFED)];
    first.starts_with(&[0xff, 0xfe]) || first.starts_with(&[0xfe, 0xff]) || memchr::memchr(0, first).is_none()
}

#[cfg(test)]
mod tests;
