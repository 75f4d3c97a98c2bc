//! Tests of the line buffer: where lines end, what is trimmed, and how long they may be.

use expect_test::{Expect, expect};
use proptest::prelude::*;

use super::*;

const BOM: &str = "\u{feff}";

/// Feeds the chunks one by one, and shows every resulting line.
fn check(max_line: usize, chunks: &[&str], expected: Expect) {
    let mut lines = LineBuffer::new(max_line);
    let mut output = String::new();
    for chunk in chunks {
        lines.push(chunk.as_bytes());
        output.extend(drain_lines(&mut lines));
    }
    output.extend(last_line(&mut lines));
    expected.assert_eq(&output);
}

fn drain_lines(lines: &mut LineBuffer) -> Vec<String> {
    std::iter::from_fn(|| lines.next_line().map(|line| show_line(lines, &line))).collect()
}

fn last_line(lines: &mut LineBuffer) -> Option<String> {
    lines.take_rest().map(|line| show_line(lines, &line))
}

fn show_line(lines: &LineBuffer, line: &FramedLine) -> String {
    match line {
        FramedLine::Whole(range) => format!("{}\n", lines.bytes()[range.clone()].escape_ascii()),
        FramedLine::TooLong { head, length } => {
            format!("too long, {length} bytes: \"{}\"\n", head.escape_ascii())
        }
    }
}

#[test]
fn a_line_ends_at_its_newline() {
    check(
        100,
        &["{\"a\":1}\n{\"b\"", ":2}\n", "{\"c\":", "3}", "\n"],
        expect![[r#"
            {\"a\":1}
            {\"b\":2}
            {\"c\":3}
        "#]],
    );
}

#[test]
fn blank_lines_and_white_space_around_a_line_are_left_out() {
    check(
        100,
        &["\n\r\n  \n\t{} \r\n\n", "\r", "\n[ 1 ]\r\n"],
        expect![[r#"
            {}
            [ 1 ]
        "#]],
    );
}

#[test]
fn a_byte_order_mark_is_left_out_in_front_of_the_first_line_only() {
    check(
        100,
        &[BOM, "first\n", BOM, "second\n"],
        expect![[r#"
            first
            \xef\xbb\xbfsecond
        "#]],
    );
    check(
        8,
        &["0123456789\n", BOM, "second\n"],
        expect![[r#"
            too long, 10 bytes: "01234567"
            too long, 9 bytes: "\xef\xbb\xbfsecon"
        "#]],
    );
}

#[test]
fn the_last_line_needs_no_newline() {
    check(
        8,
        &["one\ntwo"],
        expect![[r#"
            one
            two
        "#]],
    );
    check(
        8,
        &["one\n", " \r"],
        expect![[r#"
        one
    "#]],
    );
    check(
        8,
        &["0123", "456789"],
        expect![[r#"
            too long, 10 bytes: "01234567"
        "#]],
    );
}

#[test]
fn a_line_may_be_as_long_as_the_limit_and_no_longer() {
    for chunks in [&["01234567\nnext\n"][..], &["0123", "4567", "\n", "next\n"]] {
        check(
            8,
            chunks,
            expect![[r#"
                01234567
                next
            "#]],
        );
    }
    for chunks in [&["012345678\nnext\n"][..], &["0123", "4567", "8", "\nnext", "\n"]] {
        check(
            8,
            chunks,
            expect![[r#"
                too long, 9 bytes: "01234567"
                next
            "#]],
        );
    }
}

#[test]
fn the_space_around_a_line_counts_towards_its_limit() {
    for chunks in [&["01234567\r\n         \nnext\n"][..], &["01234567\r", "\n", "         ", "\nnext\n"]] {
        check(
            8,
            chunks,
            expect![[r#"
                too long, 9 bytes: "01234567"
                too long, 9 bytes: "        "
                next
            "#]],
        );
    }
}

#[test]
fn an_endless_line_costs_no_more_than_its_limit() {
    let limit = 300 << 10;
    let mut lines = LineBuffer::new(limit);
    let mut max_capacity = 0;
    for _ in 0..100 {
        lines.read_buffer().extend_from_slice(&[b'x'; 64 << 10]);
        assert_eq!(lines.next_line(), None);
        assert!(lines.bytes().len() <= limit);
        max_capacity = max_capacity.max(lines.bytes.capacity());
    }
    assert!(max_capacity <= 2 * (limit + LARGE_READ), "{max_capacity}");
    lines.read_buffer().extend_from_slice(b"x\nnext\n");
    assert!(
        lines.bytes.capacity() <= MAX_KEPT_CAPACITY,
        "what it took is given back: {}",
        lines.bytes.capacity()
    );
    let Some(FramedLine::TooLong { head, length }) = lines.next_line() else {
        panic!("the long line comes first")
    };
    assert_eq!((head, length), (vec![b'x'; MAX_HEAD], 100 * (64 << 10) + 1));
    assert_eq!(drain_lines(&mut lines), ["next\n"]);
}

#[test]
fn the_room_for_a_large_message_is_given_back_after_many_small_ones() {
    let mut lines = LineBuffer::new(64 << 20);
    lines.read_buffer().extend_from_slice(&[b'x'; 1 << 20]);
    lines.read_buffer().push(b'\n');
    while lines.next_line().is_some() {}
    let mut small_lines = 0;
    while lines.read_buffer().capacity() > MAX_KEPT_CAPACITY && small_lines < 1000 {
        lines.push(b"{}\n");
        while lines.next_line().is_some() {}
        small_lines += 1;
    }
    assert_eq!(small_lines, SMALL_LINES_BEFORE_SHRINK + 1);
}

#[test]
fn a_large_message_among_small_ones_keeps_its_room() {
    let mut lines = LineBuffer::new(64 << 20);
    for _ in 0..4 {
        lines.read_buffer().extend_from_slice(&[b'x'; 1 << 20]);
        lines.read_buffer().extend_from_slice(&b"\n{}\n".repeat(60));
        while lines.next_line().is_some() {}
        assert!(lines.read_buffer().capacity() > MAX_KEPT_CAPACITY);
    }
}

#[test]
fn a_line_stays_where_it_is_while_more_bytes_come() {
    let mut lines = LineBuffer::new(64 << 20);
    lines.read_buffer().extend_from_slice(&[b'x'; 1 << 20]);
    lines.read_buffer().extend_from_slice(&b"\n{}".repeat(100));
    lines.read_buffer().push(b'\n');
    let last = std::iter::from_fn(|| lines.next_line()).nth(100);
    lines.read_buffer().extend_from_slice(b"more");
    lines.push(b"and more\n");
    assert_eq!(last.map(|line| show_line(&lines, &line)).as_deref(), Some("{}\n"));
    assert_eq!(drain_lines(&mut lines), ["moreand more\n"]);
}

/// The lines of the whole stream, by the rules and without a buffer.
fn split_lines(max_line: usize, bytes: &[u8]) -> Vec<String> {
    let trim = |nth: usize, line: &[u8]| {
        let line = if nth == 0 { line.strip_prefix(BOM.as_bytes()).unwrap_or(line) } else { line };
        line.trim_ascii().escape_ascii().to_string()
    };
    let show = |(nth, line): (usize, &[u8])| match line.len() {
        length if length > max_line => {
            Some(format!("too long, {length} bytes: \"{}\"\n", line[..max_line].escape_ascii()))
        }
        _ => Some(trim(nth, line)).filter(|line| !line.is_empty()).map(|line| line + "\n"),
    };
    bytes.split(|byte| *byte == b'\n').enumerate().filter_map(show).collect()
}

fn stream() -> impl Strategy<Value = Vec<u8>> {
    let parts: Vec<&[u8]> =
        vec![b"\n", b"\n", b"\r\n", b"a", b"{}", b" ", b"0123456", BOM.as_bytes(), b"\xff"];
    prop::collection::vec(prop::sample::select(parts), 0..30).prop_map(|parts| parts.concat())
}

/// Where the stream is split, and whether the lines are taken there.
fn cuts() -> impl Strategy<Value = Vec<(prop::sample::Index, bool)>> {
    prop::collection::vec(any::<(prop::sample::Index, bool)>(), 0..12)
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(200))]

    #[test]
    fn however_a_stream_is_cut_its_lines_are_the_same(bytes in stream(), cuts in cuts(), max_line in 1usize..12) {
        let mut cuts: Vec<_> = cuts.iter().map(|(at, drains)| (at.index(bytes.len() + 1), *drains)).collect();
        cuts.sort_unstable();
        let mut lines = LineBuffer::new(max_line);
        let mut output = Vec::new();
        let mut from = 0;
        for (at, drains) in cuts {
            lines.push(&bytes[from..at]);
            from = at;
            if drains {
                output.extend(drain_lines(&mut lines));
            }
        }
        lines.push(&bytes[from..]);
        output.extend(drain_lines(&mut lines));
        output.extend(last_line(&mut lines));
        prop_assert_eq!(output, split_lines(max_line, &bytes));
    }
}
