//! The timestamps of files, and the clock that they come from.

use bowline_history::observation::FileStamp;
use rustix::fs::Stat;
use rustix::time::{ClockId, clock_gettime};

/// Returns the time of the clock that stamps files, in nanoseconds since 1970: a file that changes after this call has
/// no earlier change time, unless another machine stamps it.
///
/// The ordinary clock cannot be compared with file timestamps. Those come from a clock that advances in ticks; on a
/// machine under load a tick can be late, and timestamps then lag behind the ordinary clock by more than one tick.
pub fn now_ns() -> i64 {
    let now = clock_gettime(ClockId::RealtimeCoarse);
    to_nanoseconds(now.tv_sec, now.tv_nsec)
}

/// Returns the stamp of a file from its metadata.
#[must_use]
pub fn file_stamp(stat: &Stat) -> FileStamp {
    FileStamp {
        device: stat.st_dev,
        inode: stat.st_ino,
        size: u64::try_from(stat.st_size).unwrap_or_default(),
        mtime_ns: to_nanoseconds(stat.st_mtime, stat.st_mtime_nsec),
        ctime_ns: to_nanoseconds(stat.st_ctime, stat.st_ctime_nsec),
        mode: stat.st_mode & 0o7777,
    }
}

fn to_nanoseconds(seconds: i64, rest: impl TryInto<i64>) -> i64 {
    seconds.saturating_mul(1_000_000_000).saturating_add(rest.try_into().unwrap_or_default())
}
