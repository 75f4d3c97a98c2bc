//! The limits that bound a connection's memory against any peer.

use std::time::Duration;

/// The limits of one connection.
///
/// A message is taken whole and a read returns up to 1 MiB, so `high_water`, `max_backlog` and the limit on refusals
/// may each be exceeded by one message or one read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub struct ConnectionLimits {
    /// The maximum length of a line in bytes, without its newline. A longer one is skipped and answered with an
    /// error.
    pub max_line: usize,
    /// The maximum number of messages in a batch.
    pub max_batch: usize,
    /// The maximum number of unanswered requests of the other side. Further ones are answered "busy".
    pub max_incoming: usize,
    /// The maximum number of our unanswered requests. Further ones fail before they are sent.
    pub max_outgoing: usize,
    /// The amount of queued output, in bytes, from which local senders wait. One message may exceed it.
    pub high_water: usize,
    /// The maximum number of local messages that wait to be added to the output. Senders wait when it is reached.
    pub queue_capacity: usize,
    /// The maximum size of notifications that wait for a slow handler, in bytes. Reading pauses when it is reached.
    pub max_backlog: usize,
    /// How long running handlers may continue after the other side has closed before they are told to stop, and again
    /// before they are dropped. Also how long a connection that is closed here tries to write the rest.
    pub drain_timeout: Duration,
}

impl ConnectionLimits {
    /// 64 MiB messages, 256 in a batch, 1,024 requests each way, 256 KiB of queued output, 256 queued messages,
    /// 8 MiB of notifications behind a slow handler, and one second to drain.
    pub const DEFAULT: ConnectionLimits = ConnectionLimits {
        max_line: 64 << 20,
        max_batch: 256,
        max_incoming: 1024,
        max_outgoing: 1024,
        high_water: 256 << 10,
        queue_capacity: 256,
        max_backlog: 8 << 20,
        drain_timeout: Duration::from_secs(1),
    };

    /// Returns these limits with another maximum line length.
    #[must_use]
    pub fn with_max_line(mut self, bytes: usize) -> Self {
        self.max_line = bytes;
        self
    }
}

impl Default for ConnectionLimits {
    fn default() -> Self {
        ConnectionLimits::DEFAULT
    }
}

/// The maximum length of the other side's request ids, in bytes.
pub const MAX_ID: usize = 1024;

/// The maximum number of refusals (answers to bad messages, "busy") that may wait to be written before reading
/// pauses.
pub const MAX_REFUSALS: usize = 4096;
