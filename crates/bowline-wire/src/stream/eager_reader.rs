//! Eager reading after a request was sent, before the connection goes to sleep.
//!
//! Putting a process to sleep and waking it takes longer than most answers. After sending something that will be
//! answered, the connection polls its input up to 128 times, yielding the processor in between. After four misses in a
//! row it skips the next 64 attempts, because the other side takes its time.

use std::os::fd::OwnedFd;

use rustix::buffer::spare_capacity;

/// How often the input is polled: some microseconds, in which this thread does nothing else.
const MAX_ATTEMPTS: u32 = 128;

/// The number of consecutive misses after which polling pauses.
const MAX_MISSES: u32 = 4;

/// The number of attempts that a pause skips.
const PAUSE_ATTEMPTS: u32 = 64;

/// The input of a connection, bypassing the runtime.
#[derive(Debug)]
pub(crate) struct EagerReader {
    // Invariant: non-blocking, and the same open file as the connection's reader.
    input: OwnedFd,
    misses: u32,
    pause: u32,
}

impl EagerReader {
    /// Wraps a second handle to a connection's reader, which must not block.
    pub(crate) fn new(input: OwnedFd) -> Self {
        EagerReader { input, misses: 0, pause: 0 }
    }

    /// Appends input that comes soon to `bytes`, and returns whether any came. The end of the input, or an error, is
    /// left for the reader to find.
    pub(crate) fn try_read(&mut self, bytes: &mut Vec<u8>) -> bool {
        if self.pause > 0 {
            self.pause -= 1;
            return false;
        }
        for _ in 0..MAX_ATTEMPTS {
            std::thread::yield_now();
            match rustix::io::read(&self.input, spare_capacity(bytes)) {
                Ok(0) => return false,
                Ok(_) => {
                    self.misses = 0;
                    return true;
                }
                Err(_) => {}
            }
        }
        self.misses += 1;
        if self.misses == MAX_MISSES {
            self.misses = 0;
            self.pause = PAUSE_ATTEMPTS;
        }
        false
    }
}
