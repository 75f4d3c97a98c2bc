//! Tests of the recorder.

use std::sync::{Arc, Mutex};

use expect_test::{Expect, expect};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};

use super::{Direction, RecordedStream, WireRecorder};

#[derive(Default)]
struct LineLog(Mutex<String>);

impl WireRecorder for LineLog {
    fn record_line(&self, direction: Direction, line: &[u8]) {
        let line = format!("{direction:?} {}\n", String::from_utf8_lossy(line));
        self.0.lock().unwrap().push_str(&line);
    }
}

/// Reads and writes the pieces through a recorder with lines of at most 16 bytes.
async fn check(pieces: &[&[u8]], expect: Expect) {
    let log = Arc::new(LineLog::default());
    {
        let mut reader =
            RecordedStream::new(PieceReader(pieces.to_vec()), Some(log.clone()), Direction::Received, 16);
        let mut all = Vec::new();
        reader.read_to_end(&mut all).await.unwrap();
        assert_eq!(all, pieces.concat(), "what is listened to is not changed");
    }
    {
        let mut writer = RecordedStream::new(Vec::new(), Some(log.clone()), Direction::Sent, 16);
        for piece in pieces {
            writer.write_all(piece).await.unwrap();
        }
        writer.flush().await.unwrap();
        assert_eq!(writer.stream, pieces.concat(), "what is listened to is not changed");
    }
    expect.assert_eq(&log.0.lock().unwrap());
}

/// Returns one piece for each read.
struct PieceReader<'a>(Vec<&'a [u8]>);

impl tokio::io::AsyncRead for PieceReader<'_> {
    fn poll_read(
        mut self: std::pin::Pin<&mut Self>,
        _: &mut std::task::Context<'_>,
        buffer: &mut tokio::io::ReadBuf<'_>,
    ) -> std::task::Poll<std::io::Result<()>> {
        if !self.0.is_empty() {
            let piece = self.0.remove(0);
            buffer.put_slice(piece);
        }
        std::task::Poll::Ready(Ok(()))
    }
}

#[tokio::test]
async fn lines_are_heard_whole_however_they_come() {
    check(
        &[b"{\"a\":1}\n{\"b\"", b":2}\n\n{", b"\"c\":3}\n"],
        expect![[r#"
            Received {"a":1}
            Received {"b":2}
            Received 
            Received {"c":3}
            Sent {"a":1}
            Sent {"b":2}
            Sent 
            Sent {"c":3}
        "#]],
    )
    .await;
}

#[tokio::test]
async fn what_has_no_end_is_heard_in_the_end_and_what_is_too_long_in_pieces() {
    check(
        &[b"0123456789", b"0123456789", b"0123\ntail"],
        expect![[r#"
            Received 01234567890123456789
            Received 0123
            Received tail
            Sent 01234567890123456789
            Sent 0123
            Sent tail
        "#]],
    )
    .await;
}
