//! The bounds that keep a connection's memory small whatever the other side does.

use std::time::Duration;

/// What one connection may hold, send and wait at most.
///
/// A message is taken whole and a read brings up to 1 MiB, so `high_water`, `max_backlog` and the bound on refusals may
/// each be passed by what one message or one read brings.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub struct Limits {
    /// The longest line in bytes, without its newline. A longer one is skipped and answered with an error.
    pub max_line: usize,
    /// The most messages that one JSON array may carry.
    pub max_batch: usize,
    /// The most requests of the other side that may wait for our answer. One more is answered "busy".
    pub max_incoming: usize,
    /// The most requests of ours that may wait for an answer. One more fails before it is sent.
    pub max_outgoing: usize,
    /// Queued output, in bytes, from which on local senders wait. One message may go over it.
    pub high_water: usize,
    /// Local messages waiting to be taken into the output. Senders wait when it is full.
    pub queue: usize,
    /// Bytes of notifications that wait for a slow notification handler. When full, reading stops.
    pub max_backlog: usize,
    /// How long running handlers may go on after the other side has closed, before they are told to stop, and
    /// once more until they are dropped. Also how long a connection that is closed here tries to write the rest.
    pub drain: Duration,
}

impl Limits {
    /// 64 MiB messages, 256 in a batch, 1,024 requests each way, 256 KiB of queued output, 256 queued messages,
    /// 8 MiB of notifications behind a slow handler, and one second to drain.
    pub const DEFAULT: Limits = Limits {
        max_line: 64 << 20,
        max_batch: 256,
        max_incoming: 1024,
        max_outgoing: 1024,
        high_water: 256 << 10,
        queue: 256,
        max_backlog: 8 << 20,
        drain: Duration::from_secs(1),
    };

    /// Returns these limits with another longest message.
    #[must_use]
    pub fn with_max_line(mut self, bytes: usize) -> Self {
        self.max_line = bytes;
        self
    }
}

impl Default for Limits {
    fn default() -> Self {
        Limits::DEFAULT
    }
}

/// The longest request id of the other side, in bytes, that is kept and answered.
pub const MAX_ID: usize = 1024;

/// The most refusals (answers to bad messages, "busy") that may wait to be written before reading stops.
pub const MAX_REFUSALS: usize = 4096;
