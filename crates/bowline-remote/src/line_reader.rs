//! Lines of the caller, bounded in length.

use bytes::Bytes;
use tokio::io::{AsyncBufReadExt as _, AsyncRead, BufReader};

/// A line, or why there is none.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Line {
    /// A line without its end.
    Whole(Bytes),
    /// A line was longer than the limit; it was skipped.
    TooLong,
    /// The input has ended.
    End,
}

/// Reads lines of at most `limit` bytes.
#[derive(Debug)]
pub(crate) struct LineReader<R> {
    reader: BufReader<R>,
    limit: usize,
    // Invariant: at most `limit` bytes.
    line: Vec<u8>,
    is_too_long: bool,
}

impl<R: AsyncRead + Unpin> LineReader<R> {
    pub(crate) fn new(reader: R, limit: usize) -> Self {
        Self {
            reader: BufReader::with_capacity(64 << 10, reader),
            limit,
            line: Vec::new(),
            is_too_long: false,
        }
    }

    /// Returns the next line. Nothing is lost if this is dropped before it returns.
    pub(crate) async fn next(&mut self) -> std::io::Result<Line> {
        loop {
            let bytes = self.reader.fill_buf().await?;
            let end = bytes.iter().position(|byte| *byte == b'\n');
            let part = &bytes[..end.unwrap_or(bytes.len())];
            if self.is_too_long || self.line.len() + part.len() > self.limit {
                (self.line, self.is_too_long) = (Vec::new(), true);
            } else {
                self.line.extend_from_slice(part);
            }
            let (has_ended, length) = (bytes.is_empty(), part.len() + usize::from(end.is_some()));
            self.reader.consume(length);
            if has_ended && self.line.is_empty() && !self.is_too_long {
                return Ok(Line::End);
            }
            if has_ended || end.is_some() {
                let line = std::mem::take(&mut self.line);
                return Ok(match std::mem::take(&mut self.is_too_long) {
                    true => Line::TooLong,
                    false => Line::Whole(Bytes::from(line)),
                });
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn long_lines_are_skipped_and_the_rest_is_read() {
        let mut lines = LineReader::new(&b"ab\n\nabcd\nabcde\nxy"[..], 4);
        let mut read = Vec::new();
        loop {
            let line = lines.next().await.unwrap();
            if line == Line::End {
                break;
            }
            read.push(line);
        }
        let whole = |text: &'static str| Line::Whole(Bytes::from_static(text.as_bytes()));
        assert_eq!(read, [whole("ab"), whole(""), whole("abcd"), Line::TooLong, whole("xy")]);
    }
}
