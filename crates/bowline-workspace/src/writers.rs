//! Other programs that have a file open for writing: how they are noticed and waited for.
//!
//! A program that saves a file truncates it and then writes it, so a look in between sees a part of the text. Replacing
//! the file in between is worse: the program goes on writing to a file that has no name. So reads and writes wait a
//! moment until no program has the file open for writing. A lease tells (see [`file_lease`]), and keeps others from
//! opening the file while it is held.

use std::fs::File;
use std::os::fd::AsFd;
use std::time::{Duration, Instant, SystemTime};

use file_lease::{Lease, LeaseError};
use rustix::fs::Stat;

/// How long a program that has a file open for writing is waited for.
pub(crate) const PATIENCE: Duration = Duration::from_secs(1);

/// A file that did not change for so long is read, although a program keeps it open for writing.
const QUIET_FOR_READ: Duration = Duration::from_millis(200);

/// Where leases are unavailable, a file that changed more recently than this may still be being written.
const QUIET_WITHOUT_LEASE: Duration = Duration::from_millis(50);

/// The first pause between two looks; each is twice as long as the one before, up to [`LONGEST_PAUSE`].
const FIRST_PAUSE: Duration = Duration::from_micros(100);
const LONGEST_PAUSE: Duration = Duration::from_millis(20);

/// What a file is waited for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Purpose {
    /// To be read: a text that another program keeps adding to is read as it is.
    Read,
    /// To be written: that needs a file at rest.
    Write,
}

/// Whether a program has a file open for writing.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum WriterState {
    /// None has, and none can open it for writing as long as the lease is held.
    None,
    /// A program keeps it open, but does not change it.
    Idle,
    /// A program is writing to it.
    Busy,
    /// The system cannot tell.
    Unknown,
}

impl WriterState {
    /// Says whether a program is known to have it open for writing.
    pub(crate) fn has_writer(self) -> bool {
        matches!(self, Self::Idle | Self::Busy)
    }
}

/// The state that a wait ended with, and the lease that keeps it so.
#[derive(Debug)]
#[must_use = "the lease is released when this is dropped"]
pub(crate) struct Waited<'a> {
    pub(crate) state: WriterState,
    _lease: Option<Lease<'a>>,
}

/// Waits until no program has a file open for writing, but no longer than [`PATIENCE`].
pub(crate) fn wait(file: &File, purpose: Purpose) -> Waited<'_> {
    let mut rest = Rest::new(file);
    let mut pause = FIRST_PAUSE;
    loop {
        let state = match Lease::try_shared(file.as_fd()) {
            Ok(lease) => return Waited { state: WriterState::None, _lease: Some(lease) },
            Err(LeaseError::Contended) => WriterState::Idle,
            Err(LeaseError::Unavailable(_)) => WriterState::Unknown,
        };
        rest.look(file);
        let is_at_rest = match (state, purpose) {
            (WriterState::Unknown, Purpose::Read) => true,
            (WriterState::Unknown, Purpose::Write) => rest.since_change() >= QUIET_WITHOUT_LEASE,
            (_, Purpose::Read) => rest.since_change() >= QUIET_FOR_READ,
            // However old the text is: a program that has just opened the file is about to change it.
            (_, Purpose::Write) => rest.watched() >= PATIENCE,
        };
        if is_at_rest {
            return Waited { state, _lease: None };
        }
        if rest.began.elapsed() >= PATIENCE {
            return Waited { state: WriterState::Busy, _lease: None };
        }
        std::thread::sleep(pause);
        pause = (pause * 2).min(LONGEST_PAUSE);
    }
}

/// For how long a file has not changed.
struct Rest {
    began: Instant,
    // What it was like at the last look, and since when.
    seen: Option<Stamp>,
    since: Instant,
    // How old its text was at the last look, if that tells anything.
    age: Duration,
}

/// Size and times.
type Stamp = (i64, i64, i64);

impl Rest {
    fn new(file: &File) -> Self {
        let began = Instant::now();
        let seen = rustix::fs::fstat(file).ok().as_ref().map(stamp);
        Self { began, seen, since: began, age: Duration::ZERO }
    }

    /// Looks whether the file has changed since the last look.
    fn look(&mut self, file: &File) {
        let stat = rustix::fs::fstat(file).ok();
        let now = stat.as_ref().map(stamp);
        if self.seen != now || now.is_none() {
            (self.seen, self.since) = (now, Instant::now());
        }
        // An empty file may be one that was just truncated: how old it is tells nothing.
        self.age = stat.filter(|stat| stat.st_size != 0).as_ref().map(age).unwrap_or_default();
    }

    /// Returns for how long it was seen not to change.
    fn watched(&self) -> Duration {
        self.since.elapsed()
    }

    /// Returns for how long it has not changed, as far as its time of change tells.
    fn since_change(&self) -> Duration {
        self.watched().max(self.age)
    }
}

fn stamp(stat: &Stat) -> Stamp {
    (stat.st_size, stat.st_mtime, stat.st_mtime_nsec.cast_signed())
}

/// Returns how long ago the text of a file changed, by the system's clock.
fn age(stat: &Stat) -> Duration {
    let changed = Duration::new(stat.st_mtime.max(0).cast_unsigned(), stat.st_mtime_nsec as u32);
    let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
    now.saturating_sub(changed)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A program that saves a file opens it first, and may be kept from going on right there.
    #[test]
    fn a_program_that_has_just_opened_an_old_file_is_waited_for() {
        let saver = tempfile::NamedTempFile::new().expect("a file");
        saver.as_file().set_len(3).expect("set");
        let long_ago = std::fs::FileTimes::new().set_modified(SystemTime::UNIX_EPOCH);
        saver.as_file().set_times(long_ago).expect("set");
        let file = File::open(saver.path()).expect("opened");
        let began = Instant::now();
        assert_eq!(wait(&file, Purpose::Write).state, WriterState::Idle);
        assert!(began.elapsed() >= PATIENCE, "it was taken for idle after {:?}", began.elapsed());
    }
}
