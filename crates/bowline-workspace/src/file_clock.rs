//! The clock by which the system stamps files.

use rustix::time::{ClockId, clock_gettime};

use crate::walker::nanoseconds;

/// Returns the time by the clock of file stamps, in nanoseconds since 1970: a file that changes after this call has no
/// earlier change time, unless another machine stamps it.
///
/// The ordinary clock is no measure for stamps. They are taken from a clock that moves in ticks; on a machine under load
/// a tick can be late, and the stamps then lag behind the ordinary clock by more than any tick.
pub(crate) fn now_ns() -> i64 {
    let now = clock_gettime(ClockId::RealtimeCoarse);
    nanoseconds(now.tv_sec, now.tv_nsec)
}
