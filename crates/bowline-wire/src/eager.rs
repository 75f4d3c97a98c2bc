//! A look for the answer before going to sleep.
//!
//! To put a process to sleep and wake it again takes longer than most answers do. So after something was sent that is
//! to be answered, the input is looked at a few times, giving the processor away in between, before the connection
//! waits for it. Where that does not help, because the other side takes its time, it is left alone for a while.

use std::os::fd::OwnedFd;

use rustix::buffer::spare_capacity;

/// How often the input is looked at: some microseconds, in which this thread does nothing else.
const LOOKS: u32 = 128;

/// After so many vain attempts in a row there is a rest.
const MISSES: u32 = 4;

/// How many attempts a rest leaves out.
const REST: u32 = 64;

/// The input of a connection, beside the runtime's way to it.
#[derive(Debug)]
pub(crate) struct Eager {
    // Invariant: non-blocking, and the same open file as the connection's reader.
    input: OwnedFd,
    misses: u32,
    rest: u32,
}

impl Eager {
    /// Takes a second handle to the reader of a connection, which must not block.
    pub(crate) fn new(input: OwnedFd) -> Self {
        Eager { input, misses: 0, rest: 0 }
    }

    /// Appends what comes soon to `bytes`, and returns whether anything came. That the input has ended or is broken is
    /// left for the reader to find.
    pub(crate) fn look(&mut self, bytes: &mut Vec<u8>) -> bool {
        if self.rest > 0 {
            self.rest -= 1;
            return false;
        }
        for _ in 0..LOOKS {
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
        if self.misses == MISSES {
            self.misses = 0;
            self.rest = REST;
        }
        false
    }
}
