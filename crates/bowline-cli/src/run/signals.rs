//! The signals that end a run.

use anyhow::{Context as _, Result};
use tokio::signal::unix::{Signal, SignalKind, signal};

use bowline_client::error::CliError;

/// A listener for the signals that end a run, active once created.
#[derive(Debug)]
pub(super) struct Signals {
    interrupt: Signal,
    terminate: Signal,
    hang_up: Signal,
}

/// What a signal requests.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum SignalRequest {
    /// Ctrl-C: cancels the turn, and ends everything the second time.
    Interrupt,
    /// Ends the program with the signal of this number.
    Terminate(u8),
}

impl SignalRequest {
    /// Returns the corresponding error.
    pub(super) fn ending(self) -> CliError {
        match self {
            Self::Interrupt => CliError::Interrupted,
            Self::Terminate(signal) => CliError::Terminated(signal),
        }
    }
}

/// Signal numbers, which are the same on all systems.
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

    /// Waits for the next signal.
    pub(super) async fn next(&mut self) -> SignalRequest {
        tokio::select! {
            _ = self.interrupt.recv() => SignalRequest::Interrupt,
            _ = self.terminate.recv() => SignalRequest::Terminate(TERMINATE),
            _ = self.hang_up.recv() => SignalRequest::Terminate(HANG_UP),
        }
    }
}
