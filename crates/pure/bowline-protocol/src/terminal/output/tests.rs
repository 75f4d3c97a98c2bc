//! Tests of terminal output: byte streams in, the remaining text out.

use expect_test::{Expect, expect};
use proptest::prelude::*;

use super::TerminalOutput;

fn finished_output(bytes: &[u8], limit: usize) -> TerminalOutput {
    let mut output = TerminalOutput::new(limit);
    output.push(bytes);
    output.finish();
    output
}

fn text_and_truncation(output: &mut TerminalOutput) -> (String, bool) {
    (output.text().to_owned(), output.is_truncated())
}

fn check(streams: &[&[u8]], expect: Expect) {
    let shown: Vec<_> =
        streams.iter().map(|bytes| format!("{:?}", finished_output(bytes, 1000).text())).collect();
    expect.assert_eq(&shown.join("\n"));
}

#[test]
fn what_steers_a_terminal_is_no_text() {
    check(
        &[
            b"\x1b[1;31mred\x1b[0m plain\r\n\ttab",
            b"\x1b]0;title\x07a\x1b]52;c;aGk=\x1b\\b\x1b]8;;http://x\x1b\\link\x1b]8;;\x1b\\",
            b"\x1bP$qm\x1b\\a\x1bXsos\x1b\\b\x1b^pm\x1b\\c\x1b_apc\x1b\\d\x1bPbell\x07is data\x1b\\e",
            b"\x1b(Ba\x1b)0b\x1b%Gc\x1b#8d\x1b=e\x1b>f\x1bcg\x1b7h",
            b"a\x08\x00\x07\x0b\x0c\x0e\x7fb",
            "\u{9b}31ma\u{9d}0;t\u{9c}b\u{90}q\u{9c}c\u{85}d\u{9f}x\u{1b}\\e".as_bytes(),
            b"\x9b31ma\x90b\x9dc",
            b"\x1b]0;t\x9ca",
            b"\x1b[999999999bx\x1b[?1049h\x1b[ qy\x1b[38:2::1:2:3mz",
            b"\x1b[3\n1mline in a sequence",
            b"\x1b[31\x18cancelled\x1b]0;t\x1acancelled",
            b"\x1b\x1b[mtwice \x1b[\x1b[mtwice \x1b]x\x1b[mtitle cut short",
            "\u{1b}\u{e4}\u{1b}[3\u{e4}\u{1b}(\u{e4}".as_bytes(),
            b"a\x1b",
            b"a\x1b]never ends \xc3\xa4 \xff",
        ],
        expect![[r#"
            "red plain\r\n\ttab"
            "ablink"
            "abcde"
            "abcdefgh"
            "ab"
            "abcde"
            "a�b�c"
            "a"
            "xyz"
            "\nline in a sequence"
            "cancelledcancelled"
            "twice twice title cut short"
            "äää"
            "a"
            "a""#]],
    );
}

#[test]
fn bytes_that_are_no_utf8_are_replaced() {
    check(
        &[b"a\xffb", b"\xe2\x82", b"\xe2\x82x", b"\xf0\x9f\x98\x80\xf0\x9f", b"\xc0\xaf", b"\xed\xa0\x80"],
        expect![[r#"
            "a�b"
            "�"
            "�x"
            "😀�"
            "��"
            "���""#]],
    );
}

#[test]
fn a_character_in_pieces_is_waited_for() {
    let mut output = TerminalOutput::new(100);
    let mut texts = Vec::new();
    for byte in "ä€😀".bytes() {
        output.push(&[byte]);
        texts.push(output.text().to_owned());
    }
    assert_eq!(texts, ["", "ä", "ä", "ä", "ä€", "ä€", "ä€", "ä€", "ä€😀"]);
}

#[test]
fn the_tail_is_cut_between_characters() {
    for (character, lens) in [("ä", [100, 100]), ("€", [99, 99]), ("😀", [100, 100]), ("x", [100, 101])]
    {
        let text = character.repeat(300);
        for (limit, len) in [100, 101].into_iter().zip(lens) {
            let mut output = finished_output(text.as_bytes(), limit);
            let (kept, truncated) = text_and_truncation(&mut output);
            assert_eq!((kept.len(), truncated), (len, true), "{character} {limit}");
            let mut fits = finished_output(&text.as_bytes()[..len], limit);
            assert_eq!(
                text_and_truncation(&mut fits),
                (text[..len].to_owned(), false),
                "{character} {limit}"
            );
        }
    }
}

#[test]
fn nothing_kept_is_all_dropped() {
    let mut output = finished_output("aä".as_bytes(), 0);
    assert_eq!((text_and_truncation(&mut output), output.total_bytes()), ((String::new(), true), 3));
    let mut silent = finished_output(b"\x1b[m", 0);
    assert_eq!((text_and_truncation(&mut silent), silent.total_bytes()), ((String::new(), false), 3));
}

#[test]
fn colours_that_are_never_shown_are_not_read() {
    let mut output = TerminalOutput::new(10_000);
    let line = "\x1b[1;31mwarning\x1b[0m: this line is one of many\n";
    for _ in 0..100 {
        output.push(line.repeat(1000).as_bytes());
    }
    let text = "warning: this line is one of many\n".repeat(400);
    assert_eq!((output.total_text, output.text.len()), (0, 0), "none of it was read");
    assert_eq!(text_and_truncation(&mut output), (text[text.len() - 10_000..].to_owned(), true));
    assert!(output.total_text < 100_000, "only the last of it was read: {}", output.total_text);
}

#[test]
fn memory_is_bounded_by_the_limit() {
    let mut output = TerminalOutput::new(1000);
    output.push(b"\x1b]0;");
    for _ in 0..800 {
        output.push(&[b'x'; 64 * 1024]);
    }
    assert_eq!(output.text(), "");
    assert_eq!(output.text.capacity(), 0);
    output.push(b"\x07");
    // Sequences without text must not be deferred for ever.
    let sequences = b"\x1b[1;31m".repeat(4000);
    for _ in 0..100 {
        output.push(&sequences);
        assert!(output.deferred.bytes() <= 100 * 1024, "{}", output.deferred.bytes());
    }
    for _ in 0..10_000 {
        output.push(b"short line of text\n");
        output.push(&[b'y'; 900]);
    }
    output.push(&[b'z'; 64 * 1024]);
    assert_eq!(text_and_truncation(&mut output), ("z".repeat(1000), true));
    assert!(output.text.capacity() < 64 * 1024, "{}", output.text.capacity());
}

/// Pieces that are likely to interact: text of every width, sequences and parts of them, bytes that are not text.
fn any_piece() -> impl Strategy<Value = Vec<u8>> {
    let fixed: Vec<&[u8]> = vec![
        b"plain text\n",
        b"\x1b",
        b"[",
        b"]",
        b"\x1b[31m",
        b"\x1b]0;t",
        b"\x07",
        b"\x1b\\",
        b"\x1bP",
        b"\x18",
        b"\xc2\x9b",
        b"\xc2\x9d",
        b"\xc2\x9c",
        b"\x9b",
        b"\x9c",
        b"\xff",
        b"\xe2\x82",
        b"\xf0\x9f",
        b"(B",
        b"\x00",
        "ä".as_bytes(),
        "€".as_bytes(),
        "😀".as_bytes(),
        b"\xc2",
    ];
    prop_oneof![
        6 => prop::sample::select(fixed).prop_map(<[u8]>::to_vec),
        1 => prop::collection::vec(any::<u8>(), 0..40),
        1 => "[ -~]{0,80}".prop_map(String::into_bytes),
        1 => (prop::sample::select(b"\x00\x07\x18\x7fx".to_vec()), 0usize..600).prop_map(|(byte, len)| vec![byte; len]),
    ]
}

fn any_stream() -> impl Strategy<Value = Vec<u8>> {
    prop::collection::vec(any_piece(), 0..40).prop_map(|pieces| pieces.concat())
}

/// Coloured lines, of which several pieces are long enough to be deferred, and bytes that may end one.
fn any_coloured_stream() -> impl Strategy<Value = Vec<u8>> {
    let ends: Vec<&[u8]> = vec![
        b"", b"", b"", b"\x1b", b"\x1b[", b"\x1b]", b"\xc3", b"\xc3\xa4", b"\xe2\x86\x92", b"\x9b", b"\x9d",
        b"\xc2\x9d", b"\xc2\xa0", b"\x07", b"@", b"\n",
    ];
    let line = ("[ -~]{0,60}", 0u8..8, prop::sample::select(ends));
    (prop::collection::vec(line, 1..8), 0usize..2000).prop_map(|(lines, times)| {
        let line = |(text, colour, end): &(String, u8, &[u8])| {
            [format!("\x1b[1;3{colour}m{text}\x1b[0m {text}\n").as_bytes(), end].concat()
        };
        lines.iter().flat_map(line).collect::<Vec<u8>>().repeat(times)
    })
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 400, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn how_the_bytes_are_cut_makes_no_difference(
        bytes in any_stream(),
        cuts in prop::collection::vec(1usize..9, 1..20),
        limit in 0usize..200,
    ) {
        let mut cut = TerminalOutput::new(limit);
        let (mut rest, mut seen) = (bytes.as_slice(), String::new());
        for size in cuts.iter().cycle() {
            let (now, later) = rest.split_at((*size).min(rest.len()));
            cut.push(now);
            if !cut.is_truncated() {
                prop_assert!(cut.text().starts_with(&seen));
                cut.text().clone_into(&mut seen);
            }
            rest = later;
            if rest.is_empty() {
                break;
            }
        }
        cut.finish();
        let mut once = finished_output(&bytes, limit);
        prop_assert_eq!(cut.text(), once.text());
        prop_assert_eq!(cut.is_truncated(), once.is_truncated());
        prop_assert_eq!(cut.total_bytes(), bytes.len() as u64);
    }

    #[test]
    fn what_is_kept_is_the_end_of_the_whole_text(bytes in any_stream(), limit in 0usize..200) {
        let (mut kept, mut all) = (finished_output(&bytes, limit), finished_output(&bytes, usize::MAX / 4));
        prop_assert!(all.text().ends_with(kept.text()));
        prop_assert!(kept.text().len() <= limit);
        prop_assert!(kept.text().len() + 3 >= limit.min(all.text().len()));
        prop_assert_eq!(kept.is_truncated(), kept.text().len() < all.text().len());
        prop_assert!(!all.text().chars().any(|c| c.is_control() && !"\n\r\t".contains(c)));
    }

    #[test]
    fn text_without_sequences_stays_as_it_is(text in "[\\PC\n\r\t]{0,300}") {
        let mut output = finished_output(text.as_bytes(), 10_000);
        prop_assert_eq!(output.text(), text);
    }

    #[test]
    fn a_word_is_looked_at_byte_by_byte(bytes in any::<[u8; 8]>()) {
        let non_plain = super::non_plain_bytes(u64::from_le_bytes(bytes)).to_le_bytes();
        prop_assert_eq!(non_plain.map(|byte| byte == 0), bytes.map(super::is_plain));
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 50, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn what_is_dropped_unread_makes_no_difference(
        pieces in prop::collection::vec((any_stream(), any_coloured_stream(), any::<bool>()), 1..6),
        limit in 0usize..30_000,
    ) {
        let (mut large, mut small) = (TerminalOutput::new(limit), TerminalOutput::new(limit));
        for (odd, coloured, first) in pieces {
            let bytes = if first { [odd, coloured].concat() } else { [coloured, odd].concat() };
            for piece in bytes.chunks(20_000) {
                large.push(piece);
            }
            for piece in bytes.chunks(1000) {
                small.push(piece);
            }
        }
        prop_assert_eq!(large.is_truncated(), small.is_truncated());
        prop_assert_eq!(large.text(), small.text());
        prop_assert_eq!(large.state, small.state);
    }
}
