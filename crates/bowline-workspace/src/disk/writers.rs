//! Other programs that have a file open for writing: detecting and awaiting them.
//!
//! A program that saves a file truncates it and then writes it, so a read in between sees a part of the text. Replacing
//! the file in between is worse: the program continues to write to an unlinked file. Reads and writes therefore wait
//! briefly until no program has the file open for writing. A lease detects this (see [`file_lease`]), and keeps others
//! from opening the file while it is held.
//!
//! The wait lasts at most a second. If a program is still writing then, it is left alone, and the write fails. A
//! program that keeps the file open but has been idle for that second keeps its file, which is then written in place.
//! Where the system grants no lease, a write waits until the file has been unchanged for 50 ms, and its outcome says
//! that it was not guarded.

use std::fs::File;
use std::os::fd::AsFd;
use std::time::{Duration, Instant};

use bowline_storage::clock::since_epoch;
use file_lease::{Lease, LeaseError};
use rustix::fs::Stat;

/// How long to wait for a program that has a file open for writing.
pub(crate) const MAX_WAIT: Duration = Duration::from_secs(1);

/// A file unchanged for this long is read although a program keeps it open for writing.
const QUIET_TIME_FOR_READ: Duration = Duration::from_millis(200);

/// Where leases are unavailable, a file that changed more recently than this may still be being written.
const QUIET_TIME_WITHOUT_LEASE: Duration = Duration::from_millis(50);

/// The first pause between two checks; each is twice as long as the one before, up to [`LONGEST_PAUSE`].
const FIRST_PAUSE: Duration = Duration::from_micros(100);
const LONGEST_PAUSE: Duration = Duration::from_millis(20);

/// The purpose of a wait.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum WaitPurpose {
    /// To read the file: a file that a program keeps appending to is read as it is.
    Read,
    /// To write the file, which requires that no program is changing it.
    Write,
}

/// Whether a program has a file open for writing.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum WriterState {
    /// No program has it open, and none can open it for writing as long as the lease is held.
    None,
    /// A program keeps it open without changing it.
    Idle,
    /// A program is writing to it.
    Busy,
    /// The system grants no lease.
    Unknown,
}

impl WriterState {
    /// Returns whether a program is known to have the file open for writing.
    pub(crate) fn has_writer(self) -> bool {
        matches!(self, Self::Idle | Self::Busy)
    }
}

/// The state at the end of a wait, and the lease that preserves it.
#[derive(Debug)]
#[must_use = "the lease is released when this is dropped"]
pub(crate) struct WriterWait<'a> {
    pub(crate) state: WriterState,
    _lease: Option<Lease<'a>>,
}

/// Waits until no program has a file open for writing, at most for [`MAX_WAIT`].
pub(crate) fn wait_for_writers(file: &File, purpose: WaitPurpose) -> WriterWait<'_> {
    let mut rest = None;
    let mut pause = FIRST_PAUSE;
    loop {
        let state = match Lease::try_shared(file.as_fd()) {
            Ok(lease) => return WriterWait { state: WriterState::None, _lease: Some(lease) },
            Err(LeaseError::Contended) => WriterState::Idle,
            Err(LeaseError::Unavailable(_)) => WriterState::Unknown,
        };
        let rest = rest.get_or_insert_with(|| QuietTracker::new(file));
        rest.update(file);
        let is_at_rest = match (state, purpose) {
            (WriterState::Unknown, WaitPurpose::Read) => true,
            (WriterState::Unknown, WaitPurpose::Write) => rest.quiet_time() >= QUIET_TIME_WITHOUT_LEASE,
            (_, WaitPurpose::Read) => rest.quiet_time() >= QUIET_TIME_FOR_READ,
            // The file's age does not matter: a program that has just opened it is about to change it.
            (_, WaitPurpose::Write) => rest.observed_quiet_time() >= MAX_WAIT,
        };
        if is_at_rest {
            return WriterWait { state, _lease: None };
        }
        if rest.started.elapsed() >= MAX_WAIT {
            return WriterWait { state: WriterState::Busy, _lease: None };
        }
        std::thread::sleep(pause);
        pause = (pause * 2).min(LONGEST_PAUSE);
    }
}

/// Tracks how long a file has been unchanged.
struct QuietTracker {
    started: Instant,
    // The metadata at the last check, and since when they are unchanged.
    last_seen: Option<SizeAndTimes>,
    unchanged_since: Instant,
    // The age of the text at the last check, where it is meaningful.
    age: Duration,
}

/// Size and times.
type SizeAndTimes = (i64, i64, i64);

impl QuietTracker {
    fn new(file: &File) -> Self {
        let began = Instant::now();
        let seen = rustix::fs::fstat(file).ok().as_ref().map(size_and_times);
        Self { started: began, last_seen: seen, unchanged_since: began, age: Duration::ZERO }
    }

    /// Checks whether the file has changed since the last check.
    fn update(&mut self, file: &File) {
        let stat = rustix::fs::fstat(file).ok();
        let now = stat.as_ref().map(size_and_times);
        if self.last_seen != now || now.is_none() {
            (self.last_seen, self.unchanged_since) = (now, Instant::now());
        }
        // An empty file may have just been truncated, so its age means nothing.
        self.age = stat.filter(|stat| stat.st_size != 0).as_ref().map(age).unwrap_or_default();
    }

    /// Returns how long the file was observed to be unchanged.
    fn observed_quiet_time(&self) -> Duration {
        self.unchanged_since.elapsed()
    }

    /// Returns how long the file has been unchanged, including its age by the modification time.
    fn quiet_time(&self) -> Duration {
        self.observed_quiet_time().max(self.age)
    }
}

fn size_and_times(stat: &Stat) -> SizeAndTimes {
    (stat.st_size, stat.st_mtime, stat.st_mtime_nsec.cast_signed())
}

/// Returns how long ago the text of a file changed, by the system clock.
fn age(stat: &Stat) -> Duration {
    let changed = Duration::new(stat.st_mtime.max(0).cast_unsigned(), stat.st_mtime_nsec as u32);
    since_epoch().saturating_sub(changed)
}

#[cfg(test)]
mod tests {
    use std::time::SystemTime;

    use super::*;

    /// A program that saves a file opens it first, and may be suspended right there.
    #[test]
    fn a_program_that_has_just_opened_an_old_file_is_waited_for() {
        let saver = tempfile::NamedTempFile::new().expect("a file");
        saver.as_file().set_len(3).expect("set");
        let long_ago = std::fs::FileTimes::new().set_modified(SystemTime::UNIX_EPOCH);
        saver.as_file().set_times(long_ago).expect("set");
        let file = File::open(saver.path()).expect("opened");
        let began = Instant::now();
        assert_eq!(wait_for_writers(&file, WaitPurpose::Write).state, WriterState::Idle);
        assert!(began.elapsed() >= MAX_WAIT, "it was taken for idle after {:?}", began.elapsed());
    }
}
