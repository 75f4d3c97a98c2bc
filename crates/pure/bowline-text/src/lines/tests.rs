//! Tests of line windows: a table, and properties.

use std::fmt::Write as _;

use expect_test::{Expect, expect};
use proptest::prelude::*;

use super::*;

fn check(text: &str, windows: &[(Option<u32>, Option<u32>)], expected: Expect) {
    let mut out = String::new();
    for &(line, limit) in windows {
        let name = |number: Option<u32>| match number {
            None => "-".to_owned(),
            Some(u32::MAX) => "max".to_owned(),
            Some(number) => number.to_string(),
        };
        write!(out, "{},{}: ", name(line), name(limit)).unwrap();
        match slice_lines(text, LineWindow { line, limit }) {
            Ok(lines) => writeln!(out, "{lines:?}").unwrap(),
            Err(past_end) => writeln!(out, "! {past_end}").unwrap(),
        }
    }
    expected.assert_eq(&out);
}

const MAX: u32 = u32::MAX;

#[test]
fn a_window_has_exactly_the_lines_asked_for_with_their_ends() {
    check(
        "one\ntwo\r\nthree\n",
        &[
            (None, None),
            (Some(0), None),
            (Some(1), Some(1)),
            (Some(0), Some(2)),
            (Some(2), None),
            (Some(2), Some(1)),
            (Some(3), Some(1)),
            (Some(2), Some(0)),
            (Some(3), Some(MAX)),
            (None, Some(2)),
            (None, Some(3)),
            (None, Some(4)),
        ],
        expect![[r#"
            -,-: "one\ntwo\r\nthree\n"
            0,-: "one\ntwo\r\nthree\n"
            1,1: "one\n"
            0,2: "one\ntwo\r\n"
            2,-: "two\r\nthree\n"
            2,1: "two\r\n"
            3,1: "three\n"
            2,0: ""
            3,max: "three\n"
            -,2: "one\ntwo\r\n"
            -,3: "one\ntwo\r\nthree\n"
            -,4: "one\ntwo\r\nthree\n"
        "#]],
    );
}

#[test]
fn a_window_past_the_last_line_is_refused_with_the_number_of_lines() {
    check(
        "one\ntwo\n",
        &[(Some(3), None), (Some(3), Some(0)), (Some(MAX), Some(MAX))],
        expect![[r#"
            3,-: ! the window starts past the end of the text, which has 2 lines
            3,0: ! the window starts past the end of the text, which has 2 lines
            max,max: ! the window starts past the end of the text, which has 2 lines
        "#]],
    );
}

#[test]
fn the_last_line_needs_no_end() {
    check(
        "one\ntwo",
        &[(Some(2), None), (Some(2), Some(1)), (Some(2), Some(2)), (Some(3), Some(1))],
        expect![[r#"
            2,-: "two"
            2,1: "two"
            2,2: "two"
            3,1: ! the window starts past the end of the text, which has 2 lines
        "#]],
    );
}

#[test]
fn an_empty_text_can_be_read_from_its_first_line() {
    check(
        "",
        &[(None, None), (Some(0), None), (Some(1), Some(MAX)), (Some(1), Some(0)), (Some(2), None)],
        expect![[r#"
            -,-: ""
            0,-: ""
            1,max: ""
            1,0: ""
            2,-: ! the window starts past the end of the text, which has 0 lines
        "#]],
    );
}

#[test]
fn a_line_of_nothing_is_a_line() {
    check(
        "\n\n",
        &[(Some(1), Some(1)), (Some(2), None), (Some(3), None)],
        expect![[r#"
            1,1: "\n"
            2,-: "\n"
            3,-: ! the window starts past the end of the text, which has 2 lines
        "#]],
    );
}

#[test]
fn a_lone_carriage_return_and_a_line_separator_end_no_line() {
    check(
        "a\rb\u{2028}c\u{85}\nd",
        &[(Some(1), Some(1)), (Some(2), Some(1)), (Some(3), None)],
        expect![[r#"
            1,1: "a\rb\u{2028}c\u{85}\n"
            2,1: "d"
            3,-: ! the window starts past the end of the text, which has 2 lines
        "#]],
    );
}

#[test]
fn a_scanner_says_when_the_rest_need_not_be_read() {
    let mut scanner = WindowScanner::new(LineWindow { line: Some(2), limit: Some(1) });
    let mut out = String::new();
    for chunk in ["on", "e\n", "t", "wo", "\nthr", "ee"] {
        let range = scanner.feed(chunk.as_bytes());
        writeln!(out, "{chunk:?} {range:?} {:?} {}", &chunk[range.clone()], scanner.is_done()).unwrap();
    }
    expect![[r#"
        "on" 2..2 "" false
        "e\n" 2..2 "" false
        "t" 0..1 "t" false
        "wo" 0..2 "wo" false
        "\nthr" 0..1 "\n" true
        "ee" 0..0 "" true
    "#]]
    .assert_eq(&out);
}

/// Returns the lines by an independent implementation.
fn split_lines(text: &str) -> Vec<&str> {
    text.split_inclusive('\n').collect()
}

/// Feeds a text split at the given places, and returns the window or the number of lines.
fn scan_window(
    text: &str,
    window: LineWindow,
    cuts: &[prop::sample::Index],
) -> Result<Vec<u8>, PastEndError> {
    let mut cuts: Vec<usize> = cuts.iter().map(|cut| cut.index(text.len() + 1)).collect();
    cuts.extend([0, text.len()]);
    cuts.sort_unstable();
    let mut scanner = WindowScanner::new(window);
    let mut found = Vec::new();
    for cut in cuts.windows(2) {
        let chunk = &text.as_bytes()[cut[0]..cut[1]];
        found.extend_from_slice(&chunk[scanner.feed(chunk)]);
    }
    scanner.finish().map(|()| found)
}

fn any_text() -> impl Strategy<Value = String> {
    proptest::collection::vec(
        prop::sample::select(vec!["\n", "\r\n", "\r", "a", "\u{2028}", "é", "😀", "long line"]),
        0..40,
    )
    .prop_map(|parts| parts.concat())
}

fn any_window() -> impl Strategy<Value = LineWindow> {
    let number = || prop::option::of(prop_oneof![0u32..45, Just(u32::MAX)]);
    (number(), number()).prop_map(|(line, limit)| LineWindow { line, limit })
}

proptest! {
    #[test]
    fn a_slice_is_the_lines_it_names(text in any_text(), window in any_window()) {
        let lines = split_lines(&text);
        let first = window.line.unwrap_or(1).max(1) as usize;
        let limit = window.limit.map_or(usize::MAX, |limit| limit as usize);
        let expected = if first > lines.len().max(1) {
            Err(PastEndError { lines: lines.len() as u64 })
        } else {
            Ok(lines.iter().skip(first - 1).take(limit).copied().collect::<String>())
        };
        prop_assert_eq!(slice_lines(&text, window).map(str::to_owned), expected);
    }

    #[test]
    fn all_windows_together_are_the_text(text in any_text(), limit in 1u32..5) {
        let mut together = String::new();
        let mut line = 1;
        // A generated text has fewer than 100 lines.
        while line < 100 && let Ok(window) = slice_lines(&text, LineWindow { line: Some(line), limit: Some(limit) }) {
            together.push_str(window);
            line += limit;
        }
        prop_assert_eq!(together, text);
    }

    #[test]
    fn a_scanner_finds_the_same_however_the_text_is_cut(
        text in any_text(),
        window in any_window(),
        cuts in proptest::collection::vec(any::<prop::sample::Index>(), 0..10),
    ) {
        let sliced = slice_lines(&text, window).map(|window| window.as_bytes().to_vec());
        prop_assert_eq!(scan_window(&text, window, &cuts), sliced);
    }

    #[test]
    fn a_counter_counts_the_same_however_the_text_is_cut(text in any_text(), cut in any::<prop::sample::Index>()) {
        let (before, after) = text.as_bytes().split_at(cut.index(text.len() + 1));
        let mut counter = LineCounter::default();
        counter.feed(before);
        counter.feed(after);
        prop_assert_eq!(counter.lines(), split_lines(&text).len() as u64);
    }
}
