//! The clock of file timestamps. It cannot be set, so a test that needs time to pass on it must wait.

use std::os::unix::fs::MetadataExt as _;
use std::thread;
use std::time::Duration;

/// Waits until the timestamps of new files are later by more than `time` than those of files written before the call.
///
/// # Panics
/// Panics if no temporary file can be created.
#[allow(clippy::expect_used, reason = "a test that cannot go on should say so and stop")]
pub fn wait_past(time: Duration) {
    let now = || {
        let file = tempfile::tempfile().expect("a temporary file");
        let found = file.metadata().expect("its metadata");
        Duration::new(found.ctime().unsigned_abs(), found.ctime_nsec().unsigned_abs() as u32)
    };
    let end = now() + time;
    while now() <= end {
        thread::yield_now();
    }
}
