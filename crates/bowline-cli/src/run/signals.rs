//! The signals that end a run.

use anyhow::{Context as _, Result};
use tokio::signal::unix::{Signal, SignalKind, signal};

use crate::ending::Ending;

/// The signals that end a run, from when this was made.
#[derive(Debug)]
pub(super) struct Signals {
    interrupt: Signal,
    terminate: Signal,
    hang_up: Signal,
}

/// What a signal asks for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Asked {
    /// Ctrl-C: the turn should end, and a second time everything.
    Interrupt,
    /// The program should end, by the signal of this number.
    End(u8),
}

impl Asked {
    /// Returns how the program ends.
    pub(super) fn ending(self) -> Ending {
        match self {
            Self::Interrupt => Ending::Interrupted,
            Self::End(signal) => Ending::Terminated(signal),
        }
    }
}

/// The numbers of the signals, which are the same on all systems.
const HANG_UP: u8 = 1;
const TERMINATE: u8 = 15;

impl Signals {
    pub(super) fn new() -> Result<Self> {
        let listen = |kind| signal(kind).context("cannot listen to signals");
        Ok(Self {
            interrupt: listen(SignalKind::interrupt())?,
            terminate: listen(SignalKind::terminate())?,
            hang_up: listen(SignalKind::hangup())?,
        })
    }

    /// Waits for the next one.
    pub(super) async fn next(&mut self) -> Asked {
        tokio::select! {
            _ = self.interrupt.recv() => Asked::Interrupt,
            _ = self.terminate.recv() => Asked::End(TERMINATE),
            _ = self.hang_up.recv() => Asked::End(HANG_UP),
        }
    }
}
