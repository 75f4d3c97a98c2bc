//! The phases of the wire benchmark, which a client runs as steps of its plan.

use std::time::Duration;

use serde_json::{Value, json};

/// A phase.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum BenchPhase {
    /// Reads of 200 bytes, in sequence.
    Seq,
    /// Reads of 200 bytes, 64 concurrently.
    Inflight64,
    /// Reads of 1 MiB, in sequence.
    Read1m,
    /// Reads of 16 MiB, in sequence.
    Read16m,
    /// Streamed chunks of 200 bytes.
    Stream,
}

impl BenchPhase {
    /// Every phase, in the order in which they run.
    pub const ALL: [Self; 5] = [Self::Seq, Self::Inflight64, Self::Read1m, Self::Read16m, Self::Stream];

    /// Returns the name in the table and in the summary.
    pub fn name(self) -> &'static str {
        match self {
            Self::Seq => "seq",
            Self::Inflight64 => "inflight64",
            Self::Read1m => "read_1m",
            Self::Read16m => "read_16m",
            Self::Stream => "stream",
        }
    }

    /// Returns the unit of a rate.
    pub fn unit(self) -> &'static str {
        match self {
            Self::Seq | Self::Inflight64 => "reads/s",
            Self::Read1m | Self::Read16m => "MB/s",
            Self::Stream => "chunks/s",
        }
    }

    /// Returns the rate in the phase's unit when `count` took `seconds`.
    pub fn rate(self, count: usize, seconds: f64) -> f64 {
        let each = match self {
            Self::Read1m | Self::Read16m => self.bytes() as f64 / 1e6,
            Self::Seq | Self::Inflight64 | Self::Stream => 1.0,
        };
        count as f64 * each / seconds
    }

    /// Returns the prompt that asks for `count`.
    pub fn prompt(self, count: usize) -> Value {
        let read = |inflight: usize| json!({"do": "read", "path": format!("/bench/{}", self.bytes()), "count": count, "inflight": inflight});
        match self {
            Self::Seq | Self::Read1m | Self::Read16m => read(1),
            Self::Inflight64 => read(64),
            Self::Stream => json!({"do": "stream", "count": count, "size": self.bytes()}),
        }
    }

    /// Returns the text of the chunk that ends the phase, or `None` if the phase has none.
    pub fn outcome(self, count: usize) -> Option<Value> {
        match self {
            Self::Seq | Self::Inflight64 | Self::Read1m | Self::Read16m => {
                Some(json!({"reads": count, "bytes": count * self.bytes()}))
            }
            Self::Stream => None,
        }
    }

    /// Returns the number of `agent_message_chunk` updates in the phase.
    pub fn chunks(self, count: usize) -> usize {
        match self {
            Self::Stream => count,
            Self::Seq | Self::Inflight64 | Self::Read1m | Self::Read16m => 1,
        }
    }

    /// Returns the number of messages that depends on the count: two for a read, the request and the response.
    pub fn messages(self, count: usize) -> usize {
        match self {
            Self::Stream => count,
            Self::Seq | Self::Inflight64 | Self::Read1m | Self::Read16m => 2 * count,
        }
    }

    /// Returns the count to calibrate with: some ten milliseconds on a slow peer.
    pub fn first_count(self) -> usize {
        match self {
            Self::Seq => 200,
            Self::Inflight64 | Self::Stream => 1000,
            Self::Read1m => 3,
            Self::Read16m => 1,
        }
    }

    /// Returns the count that takes about `time`, given that `count` took `seconds`.
    pub fn count_for(self, time: Duration, count: usize, seconds: f64) -> usize {
        let counted = count as f64 / seconds * time.as_secs_f64();
        (counted.min(5e6) as usize).max(1)
    }

    fn bytes(self) -> usize {
        match self {
            Self::Seq | Self::Inflight64 | Self::Stream => 200,
            Self::Read1m => 1 << 20,
            Self::Read16m => 16 << 20,
        }
    }
}
