//! The last of what a program writes to a stream that nobody else reads.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use tokio::io::{AsyncRead, AsyncReadExt};
use tokio::task::JoinHandle;

/// How much of a stream is kept.
const TAIL: usize = 64 << 10;

/// How long a stream that has not ended is waited for. A process that outlives the program may hold it open; what came by
/// then is enough.
const SETTLE: Duration = Duration::from_millis(100);

/// The last of what a program writes to a stream. Dropping it stops reading.
#[derive(Debug)]
pub struct LastWords {
    tail: Arc<Mutex<Tail>>,
    reading: JoinHandle<()>,
}

impl LastWords {
    /// Reads a stream to its end, so that who writes to it never has to wait, and keeps the last 64 KiB.
    ///
    /// # Panics
    /// Panics outside of a tokio runtime.
    pub fn of(stream: impl AsyncRead + Unpin + Send + 'static) -> Self {
        let tail = Arc::default();
        let reading = tokio::spawn(keep_tail(stream, Arc::clone(&tail)));
        Self { tail, reading }
    }

    /// Returns what was kept so far.
    #[must_use]
    pub fn text(&self) -> String {
        self.tail.lock().unwrap_or_else(PoisonError::into_inner).text()
    }

    /// Waits a moment for the stream to end, once its program has.
    pub async fn settle(&mut self) {
        if !self.reading.is_finished() {
            drop(tokio::time::timeout(SETTLE, &mut self.reading).await);
        }
    }
}

impl Drop for LastWords {
    fn drop(&mut self) {
        self.reading.abort();
    }
}

/// The last bytes of a stream.
#[derive(Debug, Default)]
struct Tail {
    // Invariant: at most TAIL bytes.
    bytes: VecDeque<u8>,
}

impl Tail {
    fn push(&mut self, bytes: &[u8]) {
        let bytes = &bytes[bytes.len().saturating_sub(TAIL)..];
        let over = (self.bytes.len() + bytes.len()).saturating_sub(TAIL);
        self.bytes.drain(..over);
        self.bytes.extend(bytes);
    }

    fn text(&self) -> String {
        let bytes: Vec<u8> = self.bytes.iter().copied().collect();
        String::from_utf8_lossy(&bytes).into_owned()
    }
}

async fn keep_tail(mut stream: impl AsyncRead + Unpin, tail: Arc<Mutex<Tail>>) {
    let mut bytes = vec![0; 8192];
    while let Ok(n @ 1..) = stream.read(&mut bytes).await {
        tail.lock().unwrap_or_else(PoisonError::into_inner).push(&bytes[..n]);
    }
}
