//! Tests of the output tail.

use expect_test::{Expect, expect};

use super::*;

fn check(pieces: &[&[u8]], expected: Expect) {
    let ring = OutputTail::default();
    pieces.iter().for_each(|piece| ring.push(piece));
    expected.assert_eq(&ring.display_lines().join("\n"));
}

#[test]
fn lines_are_put_together_and_made_safe() {
    check(
        &[b"one\ntw", b"o\r\n\n", b"\x1b[31mred\xff"],
        expect![[r#"
        one
        two
        \u{1b}[31mred�"#]],
    );
}

#[test]
fn a_note_is_a_line_of_its_own() {
    let ring = OutputTail::default();
    ring.push(b"half a");
    ring.push_line("note");
    ring.push(b" line\n");
    expect![[r#"
        half a
        note
         line"#]]
    .assert_eq(&ring.display_lines().join("\n"));
}

#[test]
fn only_the_last_are_kept() {
    let ring = OutputTail::default();
    for number in 0..1000 {
        ring.push(format!("line {number}\n").as_bytes());
    }
    let shown = ring.display_lines();
    expect!["64 line 936 line 999"].assert_eq(&format!("{} {} {}", shown.len(), shown[0], shown[63]));
    ring.push(&vec![b'x'; 1 << 20]);
    ring.push(b"\nend");
    let lines = ring.lines();
    assert!(lines.bytes <= MAX_BYTES && lines.rest == b"end" && lines.complete.len() == 1);
}
