//! A look at a file as it is on disk, beside whoever serves it: nothing is noted, and nothing is opened for it.

use std::time::{Duration, SystemTime};

use bowline_state::paths::Access;
use rustix::fs::Stat;

use crate::disk;
use crate::roots::{Denied, Roots};

/// What is on disk.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Glance {
    /// A file with these bytes.
    File {
        /// All of them.
        bytes: Vec<u8>,
        /// When it was last changed, in any way: unlike the time of its text, no program can set this one.
        changed: SystemTime,
    },
    /// Nothing.
    Missing,
    /// Something that cannot be looked at: it is outside the roots, no regular file, or larger than was asked for.
    Unknown,
}

/// Looks at what a path leads to, if it has at most `cap` bytes.
#[must_use]
pub fn glance(roots: &Roots, path: &str, cap: u64) -> Glance {
    let admitted = match roots.admit(path, Access::Read) {
        Ok(admitted) if admitted.exists() => admitted,
        Ok(_) | Err(Denied::NotFound(_)) => return Glance::Missing,
        Err(_) => return Glance::Unknown,
    };
    let Ok(Ok((file, _))) = roots.open_file(&admitted) else { return Glance::Unknown };
    match disk::read_bytes(&file, cap) {
        Ok((bytes, stat)) => Glance::File { bytes, changed: changed(&stat) },
        Err(_) => Glance::Unknown,
    }
}

fn changed(stat: &Stat) -> SystemTime {
    let seconds = u64::try_from(stat.st_ctime).unwrap_or_default();
    let nanoseconds = u32::try_from(stat.st_ctime_nsec).unwrap_or_default();
    SystemTime::UNIX_EPOCH + Duration::new(seconds, nanoseconds.min(999_999_999))
}

#[cfg(test)]
mod tests;
