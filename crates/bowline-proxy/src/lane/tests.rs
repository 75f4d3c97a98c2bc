//! Lines out of pieces.

use std::fmt::Write as _;
use std::task::{Context, Waker};

use expect_test::expect;

use super::*;

/// Reads from a text that is there at once and ends.
fn pieces(text: &'static [u8], look: usize) -> String {
    let mut input = Input::new(Box::new(text));
    let mut cx = Context::from_waker(Waker::noop());
    let mut told = String::new();
    loop {
        while let Some(piece) = input.next(look) {
            let (Piece::Line(length)
            | Piece::LongBegins(length)
            | Piece::More(length)
            | Piece::LongEnds(length)) = piece;
            writeln!(told, "{piece:?} {:?}", String::from_utf8_lossy(input.bytes(length))).unwrap();
            input.pass(length);
        }
        if let Some(passed) = input.passed() {
            writeln!(told, "passed {}", passed.len()).unwrap();
        }
        if input.has_ended() {
            return told;
        }
        assert!(input.poll_read(&mut cx).is_ready());
    }
}

#[test]
fn lines_come_whole_unless_they_are_too_long() {
    let told = [pieces(b"", 9), pieces(b"a\n\nb\r\nrest", 9), pieces(b"0123456789abc", 9)].join("--\n");
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
    .assert_eq(&told);
}
