//! Tests of the output tail.

use expect_test::{Expect, expect};

use super::*;

fn check(chunks: &[&[u8]], expected: Expect) {
    let tail = OutputTail::default();
    chunks.iter().for_each(|chunk| tail.push(chunk));
    expected.assert_eq(&tail.display_lines().join("\n"));
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
    let tail = OutputTail::default();
    tail.push(b"half a");
    tail.push_line("note");
    tail.push(b" line\n");
    expect![[r#"
        half a
        note
         line"#]]
    .assert_eq(&tail.display_lines().join("\n"));
}

#[test]
fn only_the_last_are_kept() {
    let tail = OutputTail::default();
    for number in 0..1000 {
        tail.push(format!("line {number}\n").as_bytes());
    }
    let displayed = tail.display_lines();
    expect!["64 line 936 line 999"].assert_eq(&format!(
        "{} {} {}",
        displayed.len(),
        displayed[0],
        displayed[63]
    ));
    tail.push(&vec![b'x'; 1 << 20]);
    tail.push(b"\nend");
    let lines = tail.lines();
    assert!(lines.bytes <= MAX_BYTES && lines.rest == b"end" && lines.complete.len() == 1);
}
