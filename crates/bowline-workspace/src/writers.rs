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
    /// A program keeps it open, but has not changed it for a while.
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
    let quiet = match purpose {
        Purpose::Read => QUIET_FOR_READ,
        Purpose::Write => PATIENCE,
    };
    let mut rest = Rest::new(file);
    let mut pause = FIRST_PAUSE;
    loop {
        let (quiet, at_rest) = match Lease::try_shared(file.as_fd()) {
            Ok(lease) => return Waited { state: WriterState::None, _lease: Some(lease) },
            Err(LeaseError::Contended) => (quiet, WriterState::Idle),
            Err(LeaseError::Unavailable(_)) if purpose == Purpose::Read => {
                (Duration::ZERO, WriterState::Unknown)
            }
            Err(LeaseError::Unavailable(_)) => (QUIET_WITHOUT_LEASE, WriterState::Unknown),
        };
        if rest.duration(file) >= quiet {
            return Waited { state: at_rest, _lease: None };
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
}

/// Size and times.
type Stamp = (i64, i64, i64);

impl Rest {
    fn new(file: &File) -> Self {
        let began = Instant::now();
        Self { began, seen: rustix::fs::fstat(file).ok().as_ref().map(stamp), since: began }
    }

    fn duration(&mut self, file: &File) -> Duration {
        let Ok(stat) = rustix::fs::fstat(file) else { return Duration::ZERO };
        let now = Some(stamp(&stat));
        if self.seen != now {
            (self.seen, self.since) = (now, Instant::now());
        }
        let watched = self.since.elapsed();
        // An empty file may be one that was just truncated: how old it is tells nothing.
        if stat.st_size == 0 { watched } else { watched.max(age(&stat)) }
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
