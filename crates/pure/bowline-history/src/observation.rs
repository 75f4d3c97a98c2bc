//! Change detection: what a file's metadata proves about its content, and what its content proves about a change.
//!
//! A scan compares stamps and reads only the files whose stamps are inconclusive. A stamp proves that a file is
//! unchanged only if a later change must alter it. The system clock advances in ticks, so a file written within the
//! last tick may be written again and keep its stamp. Such a file is *racy*, and is read on the next scan.

use bowline_text::hash::ContentHash;

/// The age below which a file may change again without a new stamp. Stamps come from a clock that advances by kernel
/// ticks of at most 10 ms; the rest is a margin for slewed clocks. Times compared with stamps must come from that same
/// clock: under load it lags behind the ordinary one.
pub const RACY_WINDOW_NS: i64 = 50_000_000;

/// The same for file systems with second granularity, such as FAT, whose granularity is two seconds.
pub const COARSE_WINDOW_NS: i64 = 2_000_000_000 + RACY_WINDOW_NS;

/// The metadata of a file.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct FileStamp {
    /// Its file system.
    pub device: u64,
    /// Its inode number.
    pub inode: u64,
    /// Its size in bytes.
    pub size: u64,
    /// The time of the last content change, in nanoseconds since 1970. Any program can set it.
    pub mtime_ns: i64,
    /// The time of the last change of any kind, in nanoseconds since 1970. Only the system sets it.
    pub ctime_ns: i64,
    /// Its permission bits.
    pub mode: u32,
}

impl FileStamp {
    /// Returns whether a change after `now_ns` could leave the stamp unchanged. The change time is set by the system,
    /// so a future one means a wrong clock and proves nothing; a modification time in the far future was set by a
    /// program and does not matter.
    #[must_use]
    pub fn is_racy(&self, now_ns: i64) -> bool {
        let window = self.timestamp_granularity_ns();
        let since_change = now_ns.saturating_sub(self.ctime_ns);
        let since_modification = now_ns.saturating_sub(self.mtime_ns);
        since_change < window || since_modification.saturating_abs() < window
    }

    /// Returns whether the file may have changed or been created after a given time. The system's change time rules it
    /// out if it is earlier.
    #[must_use]
    pub fn may_have_changed_since(&self, moment_ns: i64) -> bool {
        moment_ns.saturating_sub(self.ctime_ns) <= self.timestamp_granularity_ns()
    }

    /// Returns how far its times may lie before the actual event.
    fn timestamp_granularity_ns(&self) -> i64 {
        let whole_seconds = self.mtime_ns % 1_000_000_000 == 0 && self.ctime_ns % 1_000_000_000 == 0;
        if whole_seconds { COARSE_WINDOW_NS } else { RACY_WINDOW_NS }
    }

    /// Returns whether two stamps agree in everything that a write changes, unless times are set back.
    fn has_same_content_metadata(&self, other: &Self) -> bool {
        let key = |stamp: &Self| (stamp.device, stamp.inode, stamp.size, stamp.mtime_ns);
        key(self) == key(other)
    }
}

/// The known state of a file at the last scan.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct KnownFile {
    /// Its metadata.
    pub stamp: FileStamp,
    /// The hash of its content, if it was read.
    pub hash: Option<ContentHash>,
    /// Whether it may have changed since without a trace in its metadata.
    pub is_racy: bool,
}

impl KnownFile {
    /// Returns the known state of a file. `now_ns` is a time no later than the reading of its metadata.
    #[must_use]
    pub fn new(stamp: FileStamp, hash: Option<ContentHash>, now_ns: i64) -> Self {
        Self { stamp, hash, is_racy: stamp.is_racy(now_ns) }
    }
}

/// The verdict from metadata alone.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum StampVerdict {
    /// The file is unchanged, or is still absent.
    Unchanged,
    /// The file is new.
    Created,
    /// The file is gone.
    Deleted,
    /// The file may have changed: its content must be read.
    MaybeChanged,
}

/// Compares the known state with the current metadata.
#[must_use]
pub fn compare_stamps(known: Option<&KnownFile>, now: Option<&FileStamp>) -> StampVerdict {
    match (known, now) {
        (None, None) => StampVerdict::Unchanged,
        (None, Some(_)) => StampVerdict::Created,
        (Some(_), None) => StampVerdict::Deleted,
        (Some(known), Some(now)) if known.stamp == *now && !known.is_racy => StampVerdict::Unchanged,
        (Some(_), Some(_)) => StampVerdict::MaybeChanged,
    }
}

/// The verdict from a file's content.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ContentChange {
    /// Neither content nor mode changed.
    None,
    /// Only the mode changed.
    Mode,
    /// The content changed, or may have.
    Bytes,
}

/// Compares a touched file with its known state. `hash` is that of its current content, if it was read.
#[must_use]
pub fn compare_contents(known: &KnownFile, now: &FileStamp, hash: Option<&ContentHash>) -> ContentChange {
    let same_bytes = match (&known.hash, hash) {
        (Some(before), Some(after)) => before == after,
        // Unread content cannot be compared, so the metadata has to suffice.
        _ => known.stamp.has_same_content_metadata(now),
    };
    match (same_bytes, known.stamp.mode == now.mode) {
        (false, _) => ContentChange::Bytes,
        (true, false) => ContentChange::Mode,
        (true, true) => ContentChange::None,
    }
}

/// The number of leading bytes that determine whether a file is text.
pub const SNIFF_BYTES: usize = 8192;

/// Returns whether bytes look like text: they start with a UTF-16 byte order mark, or contain no early NUL.
#[must_use]
pub fn looks_like_text(bytes: &[u8]) -> bool {
    let first = &bytes[..bytes.len().min(SNIFF_BYTES)];
    first.starts_with(&[0xff, 0xfe]) || first.starts_with(&[0xfe, 0xff]) || memchr::memchr(0, first).is_none()
}

#[cfg(test)]
mod tests;
