//! The clock of file timestamps. It cannot be set, so a test that needs time to pass on it must wait.

use std::os::unix::fs::MetadataExt as _;
use std::time::Duration;

use crate::wait::wait_until;

/// Waits until the timestamps of new files are later by more than `time` than those of files written before the call.
///
/// # Panics
/// Panics if no temporary file can be created, or if the clock stands still.
#[allow(clippy::expect_used, reason = "a test that cannot go on should say so and stop")]
pub fn wait_past(time: Duration) {
    let now = || {
        let file = tempfile::tempfile().expect("a temporary file");
        let found = file.metadata().expect("its metadata");
        Duration::new(found.ctime().unsigned_abs(), found.ctime_nsec().unsigned_abs() as u32)
    };
    let end = now() + time;
    wait_until("a later file timestamp", || now() > end);
}
