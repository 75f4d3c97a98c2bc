//! The clock of file timestamps.

use rustix::time::{ClockId, clock_gettime};

use crate::walker::to_nanoseconds;

/// Returns the time of the clock that stamps files, in nanoseconds since 1970: a file that changes after this call has
/// no earlier change time, unless another machine stamps it.
///
/// The ordinary clock cannot be compared with file timestamps. Those come from a clock that advances in ticks; on a
/// machine under load a tick can be late, and timestamps then lag behind the ordinary clock by more than one tick.
pub(crate) fn now_ns() -> i64 {
    let now = clock_gettime(ClockId::RealtimeCoarse);
    to_nanoseconds(now.tv_sec, now.tv_nsec)
}
