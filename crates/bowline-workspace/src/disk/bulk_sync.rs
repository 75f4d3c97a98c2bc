//! Making many new files durable at once, by syncing the file system that they are on.
//!
//! A thousand files take a tenth of the time that a sync of each takes. But the call also waits for whatever other
//! programs have written and the disk does not have yet, so it is made only if that is little.

use std::fs::File;
use std::io;

use bowline_storage::disk_calls::{DiskCall, DiskCalls};

/// The file systems that write all files of theirs in this call, as `statfs` numbers them: ext4, XFS, Btrfs. Others may
/// not pass it on, such as those of a server.
const FILE_SYSTEM_TYPES: [i64; 3] = [0xEF53, 0x5846_5342, 0x9123_683E];

/// The most that the disk may have to write for other programs, in KiB.
const MAX_DIRTY_KIB: u64 = 128 << 10;

/// When the new files of a group are made durable by a sync of their file system.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum BulkSyncCondition {
    /// If the group is large, the file system is known to write all of them, and little else waits to be written.
    IfCheap,
    /// Always. Tests thus make the same calls on every machine.
    Always,
}

/// The file systems of a group of files.
#[derive(Debug, Default)]
pub(crate) struct BulkSync {
    // One file of each, by its device.
    file_systems: Vec<(u64, File)>,
    has_other_types: bool,
}

impl BulkSync {
    /// Adds the file system of a file.
    pub(crate) fn add(&mut self, file: File) -> io::Result<()> {
        let device = rustix::fs::fstat(&file)?.st_dev;
        if self.file_systems.iter().all(|(known, _)| *known != device) {
            self.has_other_types |= !FILE_SYSTEM_TYPES.contains(&rustix::fs::fstatfs(&file)?.f_type);
            self.file_systems.push((device, file));
        }
        Ok(())
    }

    /// Makes the files durable, and returns whether they are. If not, each of them needs a sync of its own, which also
    /// tells which of them failed.
    pub(crate) fn run(self, condition: BulkSyncCondition, calls: &DiskCalls) -> bool {
        let sync = |file: &File| -> io::Result<()> {
            calls.check(DiskCall::SyncFileSystem)?;
            Ok(rustix::fs::syncfs(file)?)
        };
        let is_allowed = match condition {
            BulkSyncCondition::Always => true,
            BulkSyncCondition::IfCheap => {
                !self.has_other_types && read_dirty_kib().is_some_and(|dirty| dirty <= MAX_DIRTY_KIB)
            }
        };
        is_allowed && self.file_systems.iter().all(|(_, file)| sync(file).is_ok())
    }
}

/// Returns how much the system has not written to its disks yet.
fn read_dirty_kib() -> Option<u64> {
    let memory = std::fs::read_to_string("/proc/meminfo").ok()?;
    let dirty = memory.lines().find_map(|line| line.strip_prefix("Dirty:"))?;
    dirty.split_whitespace().next()?.parse().ok()
}
