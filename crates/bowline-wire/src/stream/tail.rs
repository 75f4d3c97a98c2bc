//! The tail of a program's stream that is not read otherwise.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use tokio::io::{AsyncRead, AsyncReadExt};
use tokio::task::JoinHandle;

/// The maximum length of the tail, in bytes.
const MAX_TAIL: usize = 64 << 10;

/// How long to wait for the end of a stream after its program has ended. Another process may hold it open; the output
/// so far is enough.
const END_TIMEOUT: Duration = Duration::from_millis(100);

/// The tail of a program's stream. Dropping it stops reading.
#[derive(Debug)]
pub struct StreamTail {
    tail: Arc<Mutex<TailBuffer>>,
    read_task: JoinHandle<()>,
}

impl StreamTail {
    /// Reads a stream to its end, so that its writer never blocks, and keeps the last 64 KiB.
    ///
    /// # Panics
    /// Panics outside of a tokio runtime.
    pub fn spawn(stream: impl AsyncRead + Unpin + Send + 'static) -> Self {
        let tail = Arc::default();
        let reading = bowline_task::spawn(read_tail(stream, Arc::clone(&tail)));
        Self { tail, read_task: reading }
    }

    /// Returns the tail so far.
    #[must_use]
    pub fn text(&self) -> String {
        self.tail.lock().unwrap_or_else(PoisonError::into_inner).text()
    }

    /// Waits briefly for the stream to end, after its program has.
    pub async fn wait_for_end(&mut self) {
        if !self.read_task.is_finished() {
            drop(tokio::time::timeout(END_TIMEOUT, &mut self.read_task).await);
        }
    }
}

impl Drop for StreamTail {
    fn drop(&mut self) {
        self.read_task.abort();
    }
}

/// The last bytes of a stream.
#[derive(Debug, Default)]
struct TailBuffer {
    // Invariant: at most `MAX_TAIL` bytes.
    bytes: VecDeque<u8>,
}

impl TailBuffer {
    fn push(&mut self, bytes: &[u8]) {
        let bytes = &bytes[bytes.len().saturating_sub(MAX_TAIL)..];
        let excess = (self.bytes.len() + bytes.len()).saturating_sub(MAX_TAIL);
        self.bytes.drain(..excess);
        self.bytes.extend(bytes);
    }

    fn text(&self) -> String {
        let bytes: Vec<u8> = self.bytes.iter().copied().collect();
        String::from_utf8_lossy(&bytes).into_owned()
    }
}

async fn read_tail(mut stream: impl AsyncRead + Unpin, tail: Arc<Mutex<TailBuffer>>) {
    let mut bytes = vec![0; 8192];
    while let Ok(n @ 1..) = stream.read(&mut bytes).await {
        tail.lock().unwrap_or_else(PoisonError::into_inner).push(&bytes[..n]);
    }
}
