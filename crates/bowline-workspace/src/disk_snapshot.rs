//! Snapshots of files on disk, independent of the session that serves them: a snapshot records nothing and opens no
//! document.

use std::time::{Duration, SystemTime};

use bowline_policy::paths::Access;
use rustix::fs::Stat;

use crate::disk;
use crate::roots::{AdmitError, Roots};

/// The state of a path on disk.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum DiskSnapshot {
    /// A file.
    File {
        /// Its content.
        bytes: Vec<u8>,
        /// The time of the last change of any kind: unlike the modification time, no program can set it.
        changed_at: SystemTime,
    },
    /// There is no file.
    Missing,
    /// The state cannot be determined: the path is outside the roots, not a regular file, or larger than the cap.
    Unknown,
}

/// Returns the state of a path, if it has at most `cap` bytes.
#[must_use]
pub fn take_disk_snapshot(roots: &Roots, path: &str, cap: u64) -> DiskSnapshot {
    let admitted = match roots.admit(path, Access::Read) {
        Ok(admitted) if admitted.exists() => admitted,
        Ok(_) | Err(AdmitError::NotFound(_)) => return DiskSnapshot::Missing,
        Err(_) => return DiskSnapshot::Unknown,
    };
    let Ok(Ok((file, _))) = roots.open_file(&admitted) else { return DiskSnapshot::Unknown };
    match disk::read_bytes(&file, cap) {
        Ok((bytes, stat)) => DiskSnapshot::File { bytes, changed_at: change_time(&stat) },
        Err(_) => DiskSnapshot::Unknown,
    }
}

fn change_time(stat: &Stat) -> SystemTime {
    let seconds = u64::try_from(stat.st_ctime).unwrap_or_default();
    let nanoseconds = u32::try_from(stat.st_ctime_nsec).unwrap_or_default();
    SystemTime::UNIX_EPOCH + Duration::new(seconds, nanoseconds.min(999_999_999))
}

#[cfg(test)]
mod tests;
