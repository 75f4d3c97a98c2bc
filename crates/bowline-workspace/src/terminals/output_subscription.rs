//! Subscriptions to the live output of a terminal.

use std::sync::Arc;

use tokio::sync::broadcast::Receiver;
use tokio::sync::broadcast::error::RecvError;

use super::TerminalSnapshot;

/// The maximum number of chunks buffered for a slow subscriber, each at most 64 KiB.
pub(super) const MAX_BUFFERED_CHUNKS: usize = 32;

/// A chunk of output.
#[derive(Debug, Clone)]
pub(super) struct OutputChunk {
    /// Its offset in the whole output.
    pub(super) offset: u64,
    pub(super) bytes: Arc<[u8]>,
}

/// An event of a subscription.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum OutputEvent {
    /// The next bytes, as the command wrote them.
    Bytes(Arc<[u8]>),
    /// The number of bytes skipped because the subscriber was too slow.
    Skipped(u64),
}

/// A subscription to the output of a terminal. A slow subscriber misses output, and is notified how much.
#[derive(Debug)]
pub struct OutputSubscription {
    /// The terminal at the start of the subscription.
    pub snapshot: TerminalSnapshot,
    pub(super) chunks: Receiver<OutputChunk>,
    // The offset in the whole output up to which events were taken.
    pub(super) offset: u64,
    pub(super) pending_chunk: Option<OutputChunk>,
}

impl OutputSubscription {
    /// Waits for the next event. Returns `None` when no more output can come.
    pub async fn next(&mut self) -> Option<OutputEvent> {
        let piece = match self.pending_chunk.take() {
            Some(piece) => piece,
            None => loop {
                match self.chunks.recv().await {
                    Ok(piece) => break piece,
                    Err(RecvError::Lagged(_)) => {}
                    Err(RecvError::Closed) => return None,
                }
            },
        };
        if piece.offset > self.offset {
            let skipped = piece.offset - self.offset;
            self.offset = piece.offset;
            self.pending_chunk = Some(piece);
            return Some(OutputEvent::Skipped(skipped));
        }
        self.offset = piece.offset + piece.bytes.len() as u64;
        Some(OutputEvent::Bytes(piece.bytes))
    }
}
