//! The beginning of what a program writes to the stream of its messages, for when it turns out to be no messages.

use std::io;
use std::pin::Pin;
use std::sync::{Arc, Mutex, PoisonError};
use std::task::{Context, Poll, ready};

use tokio::io::{AsyncRead, ReadBuf};

/// As much is kept, in bytes.
const HEAD: usize = 4 << 10;

/// A stream whose first 4 KiB are kept.
#[derive(Debug)]
pub struct HeadReader<R> {
    stream: R,
    head: StreamHead,
    // How much more is kept.
    room: usize,
}

/// The first bytes of a stream, as far as they were read.
#[derive(Debug, Clone, Default)]
pub struct StreamHead(
    // Invariant: at most HEAD bytes.
    Arc<Mutex<Vec<u8>>>,
);

impl<R> HeadReader<R> {
    /// Reads from a stream, and keeps its beginning.
    pub fn of(stream: R) -> (Self, StreamHead) {
        let head = StreamHead::default();
        (Self { stream, head: head.clone(), room: HEAD }, head)
    }
}

impl StreamHead {
    /// Returns the lines that are no messages: all but those that begin as a JSON object or a batch does.
    #[must_use]
    pub fn text(&self) -> String {
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
        let kept = &read[..read.len().min(self.room)];
        if !kept.is_empty() {
            self.head.0.lock().unwrap_or_else(PoisonError::into_inner).extend_from_slice(kept);
            self.room -= kept.len();
        }
        Poll::Ready(Ok(()))
    }
}

#[cfg(test)]
mod tests {
    use tokio::io::AsyncReadExt as _;

    use super::*;

    async fn kept(text: &str) -> String {
        let (mut stream, head) = HeadReader::of(text.as_bytes());
        let mut read = String::new();
        stream.read_to_string(&mut read).await.unwrap();
        assert_eq!(read, text);
        head.text()
    }

    #[tokio::test]
    async fn what_is_no_message_is_kept_up_to_a_limit() {
        assert_eq!(kept("[info] Hello\n {\"id\":1}\n[{}]\nUsage: x").await, "[info] Hello\nUsage: x");
        assert_eq!(kept(&"x".repeat(1 << 20)).await.len(), HEAD);
        assert_eq!(kept("").await, "");
    }
}
