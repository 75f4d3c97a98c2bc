//! Tests of splitting input into lines.

use std::fmt::Write as _;
use std::task::{Context, Waker};

use expect_test::expect;

use super::*;

/// Describes the chunks of a text that is available at once.
fn describe_chunks(text: &'static [u8], max_line: usize) -> String {
    let mut input = LineInput::new(Box::new(text));
    let mut cx = Context::from_waker(Waker::noop());
    let mut output = String::new();
    loop {
        while let Some(chunk) = input.next_chunk(max_line) {
            let (LineChunk::Line(length)
            | LineChunk::LongBegins(length)
            | LineChunk::More(length)
            | LineChunk::LongEnds(length)) = chunk;
            writeln!(output, "{chunk:?} {:?}", String::from_utf8_lossy(input.chunk_bytes(length))).unwrap();
            input.forward(length);
        }
        if let Some(passed) = input.take_forwarded() {
            writeln!(output, "passed {}", passed.len()).unwrap();
        }
        if input.has_ended() {
            return output;
        }
        assert!(input.poll_read(&mut cx).is_ready());
    }
}

#[test]
fn lines_come_whole_unless_they_are_too_long() {
    let output = [
        describe_chunks(b"", 9),
        describe_chunks(b"a\n\nb\r\nrest", 9),
        describe_chunks(b"0123456789abc", 9),
    ]
    .join("--\n");
    expect![[r#"
        --
        Line(2) "a\n"
        Line(1) "\n"
        Line(3) "b\r\n"
        passed 6
        Line(4) "rest"
        passed 4
        --
        LongBegins(13) "0123456789abc"
        passed 13
    "#]]
    .assert_eq(&output);
}
