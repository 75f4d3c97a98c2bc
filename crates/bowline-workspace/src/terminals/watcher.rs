//! Live output for whoever watches a terminal.

use std::sync::Arc;

use tokio::sync::broadcast::Receiver;
use tokio::sync::broadcast::error::RecvError;

use super::Shown;

/// As many pieces of output wait for a slow watcher, each of which has at most 64 KiB.
pub(super) const MAX_WAITING: usize = 32;

/// A piece of output.
#[derive(Debug, Clone)]
pub(super) struct Piece {
    /// How many bytes came before it.
    pub(super) at: u64,
    pub(super) bytes: Arc<[u8]>,
}

/// What comes to a watcher.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Live {
    /// The next bytes, as the command wrote them.
    Bytes(Arc<[u8]>),
    /// So many bytes came faster than they were taken, and are left out.
    Skipped(u64),
}

/// Watches a terminal. A slow one misses output, and is told how much.
#[derive(Debug)]
pub struct Watcher {
    /// What the terminal showed when the watch began.
    pub shown: Shown,
    pub(super) pieces: Receiver<Piece>,
    // How many bytes there were up to what was taken last.
    pub(super) at: u64,
    pub(super) next: Option<Piece>,
}

impl Watcher {
    /// Waits for what comes next. None when nothing more can come.
    pub async fn next(&mut self) -> Option<Live> {
        let piece = match self.next.take() {
            Some(piece) => piece,
            None => loop {
                match self.pieces.recv().await {
                    Ok(piece) => break piece,
                    Err(RecvError::Lagged(_)) => {}
                    Err(RecvError::Closed) => return None,
                }
            },
        };
        if piece.at > self.at {
            let skipped = piece.at - self.at;
            self.at = piece.at;
            self.next = Some(piece);
            return Some(Live::Skipped(skipped));
        }
        self.at = piece.at + piece.bytes.len() as u64;
        Some(Live::Bytes(piece.bytes))
    }
}
