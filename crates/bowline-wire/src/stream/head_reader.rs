//! The beginning of a program's message stream, kept in case it turns out not to be messages.

use std::io;
use std::pin::Pin;
use std::sync::{Arc, Mutex, PoisonError};
use std::task::{Context, Poll, ready};

use tokio::io::{AsyncRead, ReadBuf};

/// The number of bytes kept.
const MAX_HEAD: usize = 4 << 10;

/// A stream whose first 4 KiB are kept.
#[derive(Debug)]
pub struct HeadReader<R> {
    stream: R,
    head: StreamHead,
    // The number of bytes still to be kept.
    remaining: usize,
}

/// The first bytes of a stream that were read so far.
#[derive(Debug, Clone, Default)]
pub struct StreamHead(
    // Invariant: at most `MAX_HEAD` bytes.
    Arc<Mutex<Vec<u8>>>,
);

impl<R> HeadReader<R> {
    /// Wraps a stream, and keeps its beginning.
    pub fn new(stream: R) -> (Self, StreamHead) {
        let head = StreamHead::default();
        (Self { stream, head: head.clone(), remaining: MAX_HEAD }, head)
    }
}

impl StreamHead {
    /// Returns the lines that are not messages: all except those that begin like a JSON object or a batch.
    #[must_use]
    pub fn non_message_text(&self) -> String {
        let bytes = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let text = String::from_utf8_lossy(&bytes);
        let is_message = |line: &str| ["{", "[{"].iter().any(|start| line.trim_start().starts_with(start));
        text.split_inclusive('\n').filter(|line| !is_message(line)).collect()
    }
}

impl<R: AsyncRead + Unpin> AsyncRead for HeadReader<R> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let before = buffer.filled().len();
        ready!(Pin::new(&mut self.stream).poll_read(cx, buffer))?;
        let read = &buffer.filled()[before..];
        let kept = &read[..read.len().min(self.remaining)];
        if !kept.is_empty() {
            self.head.0.lock().unwrap_or_else(PoisonError::into_inner).extend_from_slice(kept);
            self.remaining -= kept.len();
        }
        Poll::Ready(Ok(()))
    }
}

#[cfg(test)]
mod tests {
    use tokio::io::AsyncReadExt as _;

    use super::*;

    async fn read_head(text: &str) -> String {
        let (mut stream, head) = HeadReader::new(text.as_bytes());
        let mut read = String::new();
        stream.read_to_string(&mut read).await.unwrap();
        assert_eq!(read, text);
        head.non_message_text()
    }

    #[tokio::test]
    async fn what_is_no_message_is_kept_up_to_a_limit() {
        assert_eq!(read_head("[info] Hello\n {\"id\":1}\n[{}]\nUsage: x").await, "[info] Hello\nUsage: x");
        assert_eq!(read_head(&"x".repeat(1 << 20)).await.len(), MAX_HEAD);
        assert_eq!(read_head("").await, "");
    }
}
