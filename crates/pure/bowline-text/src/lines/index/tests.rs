//! Tests of the sparse line index: its checkpoints, and that a scan from one finds the same as a full scan.

use std::fmt::Write as _;

use expect_test::{Expect, expect};
use proptest::prelude::*;

use crate::lines::{LineWindow, PastEndError, WindowScanner, slice_lines};

use super::*;

fn check(text: &str, stride: u64, max_places: usize, expected: Expect) {
    let mut index = LineIndex::with_stride(stride, max_places);
    index.feed(text.as_bytes());
    let mut out = String::new();
    for line in 0..7 {
        let start = index.start_for_line(line);
        writeln!(out, "{line}: {} in line {}", start.offset, start.line).unwrap();
    }
    expected.assert_eq(&out);
}

#[test]
fn a_line_is_looked_for_from_the_last_place_before_it() {
    check(
        "a\nbb\nccc\ndddd\n",
        4,
        8,
        expect![[r#"
        0: 0 in line 1
        1: 0 in line 1
        2: 0 in line 1
        3: 4 in line 2
        4: 8 in line 3
        5: 12 in line 4
        6: 12 in line 4
    "#]],
    );
}

#[test]
fn a_place_within_a_line_is_no_start_for_it() {
    check(
        "aaaaaaaa\nb\n",
        2,
        16,
        expect![[r#"
        0: 0 in line 1
        1: 0 in line 1
        2: 8 in line 1
        3: 10 in line 2
        4: 10 in line 2
        5: 10 in line 2
        6: 10 in line 2
    "#]],
    );
}

#[test]
fn a_place_at_the_end_of_the_text_is_none() {
    check(
        "aaaa\naaa",
        4,
        8,
        expect![[r#"
        0: 0 in line 1
        1: 0 in line 1
        2: 4 in line 1
        3: 4 in line 1
        4: 4 in line 1
        5: 4 in line 1
        6: 4 in line 1
    "#]],
    );
    check(
        "",
        4,
        8,
        expect![[r#"
        0: 0 in line 1
        1: 0 in line 1
        2: 0 in line 1
        3: 0 in line 1
        4: 0 in line 1
        5: 0 in line 1
        6: 0 in line 1
    "#]],
    );
}

#[test]
fn with_too_many_places_every_second_one_goes() {
    check(
        "a\nb\nc\nd\ne\n",
        2,
        4,
        expect![[r#"
        0: 0 in line 1
        1: 0 in line 1
        2: 0 in line 1
        3: 0 in line 1
        4: 4 in line 3
        5: 4 in line 3
        6: 8 in line 5
    "#]],
    );
    let mut index = LineIndex::with_stride(1, 4);
    index.feed(&[b'\n'; 1000]);
    assert_eq!((index.stride, index.newlines_before.as_slice()), (256, &[0, 256, 512, 768][..]));
}

#[test]
fn an_index_of_a_large_text_stays_small() {
    let mut index = LineIndex::new();
    let chunk = b"0123456789abcde\n".repeat(4096);
    for _ in 0..1024 {
        index.feed(&chunk);
    }
    assert_eq!(index.covered_bytes(), 64 << 20);
    assert_eq!(index.newlines_before.len(), 1024);
    // 16 bytes per line, 4096 lines per stride.
    assert_eq!(
        index.start_for_line(4096 * 1000 + 2),
        ReadStart { offset: 1000 << 16, line: 4096 * 1000 + 1 }
    );
    assert_eq!(index.start_for_line(4096 * 1000 + 1), ReadStart { offset: 999 << 16, line: 4096 * 999 + 1 });
}

/// Splits the bytes into pieces of these lengths, cyclically.
fn split_into_pieces<'a>(mut bytes: &'a [u8], lengths: &[usize]) -> Vec<&'a [u8]> {
    let mut pieces = Vec::new();
    for length in lengths.iter().cycle() {
        if bytes.is_empty() {
            break;
        }
        let (piece, rest) = bytes.split_at(bytes.len().min(*length));
        pieces.push(piece);
        bytes = rest;
    }
    pieces
}

/// Finds the window by a scan from the index's position for it.
fn scan_window(
    index: &LineIndex,
    text: &str,
    window: LineWindow,
    lengths: &[usize],
) -> Result<Vec<u8>, PastEndError> {
    let start = index.start_for_line(window.line.unwrap_or(1).into());
    let mut scanner = WindowScanner::starting_at(window, start.newlines_before());
    let mut found = Vec::new();
    for piece in split_into_pieces(&text.as_bytes()[start.offset as usize..], lengths) {
        found.extend_from_slice(&piece[scanner.feed(piece)]);
    }
    scanner.finish().map(|()| found)
}

fn any_text() -> impl Strategy<Value = String> {
    let part = prop::sample::select(vec!["\n", "\n", "\r\n", "a", "é", "long line", "a line\n"]);
    proptest::collection::vec(part, 0..60).prop_map(|parts| parts.concat())
}

fn any_window() -> impl Strategy<Value = LineWindow> {
    let number = || prop::option::of(prop_oneof![9 => 0u32..70, 1 => Just(u32::MAX)]);
    (number(), number()).prop_map(|(line, limit)| LineWindow { line, limit })
}

fn piece_lengths() -> impl Strategy<Value = Vec<usize>> {
    proptest::collection::vec(1usize..20, 1..6)
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(2048))]

    #[test]
    fn a_scan_from_a_place_finds_what_a_whole_scan_finds(
        text in any_text(),
        stride in 1u64..12,
        half_of_places in 1usize..20,
        windows in proptest::collection::vec(any_window(), 1..6),
        (fed, scanned) in (piece_lengths(), piece_lengths()),
        covered in any::<prop::sample::Index>(),
    ) {
        let mut index = LineIndex::with_stride(stride, 2 * half_of_places);
        // With any part of the text indexed, and then with all of it.
        let cut = covered.index(text.len() + 1);
        for part in [&text.as_bytes()[..cut], &text.as_bytes()[cut..]] {
            split_into_pieces(part, &fed).into_iter().for_each(|piece| index.feed(piece));
            for window in &windows {
                let sliced = slice_lines(&text, *window).map(|lines| lines.as_bytes().to_vec());
                prop_assert_eq!(scan_window(&index, &text, *window, &scanned), sliced);
            }
        }
        prop_assert_eq!(index.covered_bytes(), text.len() as u64);
        prop_assert!(index.newlines_before.len() <= 2 * half_of_places);
    }

    #[test]
    fn a_place_is_at_most_a_stride_before_its_line(text in any_text(), stride in 1u64..12) {
        let mut index = LineIndex::with_stride(stride, 1000);
        index.feed(text.as_bytes());
        let mut line_start = 0;
        for (nth, line) in text.split_inclusive('\n').enumerate() {
            let start = index.start_for_line(nth as u64 + 1);
            let before = &text.as_bytes()[..start.offset as usize];
            prop_assert_eq!(start.newlines_before(), before.iter().filter(|byte| **byte == b'\n').count() as u64);
            prop_assert!(start.offset <= line_start && line_start - start.offset <= stride);
            line_start += line.len() as u64;
        }
    }

    #[test]
    fn a_scanner_may_start_where_the_window_does(
        text in any_text(),
        line in any::<prop::sample::Index>(),
        limit in prop::option::of(0u32..9),
        lengths in piece_lengths(),
    ) {
        let lines: Vec<&str> = text.split_inclusive('\n').collect();
        let first = line.index(lines.len().max(1));
        let window = LineWindow { line: Some(first as u32 + 1), limit };
        let mut scanner = WindowScanner::starting_at(window, first as u64);
        let rest: String = lines[first..].concat();
        let mut found = Vec::new();
        for piece in split_into_pieces(rest.as_bytes(), &lengths) {
            found.extend_from_slice(&piece[scanner.feed(piece)]);
        }
        let sliced = slice_lines(&text, window).map(|lines| lines.as_bytes().to_vec());
        prop_assert_eq!(scanner.finish().map(|()| found), sliced);
    }
}
