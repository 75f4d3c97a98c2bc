//! Streams of bytes in, the text that is left out.

use expect_test::{Expect, expect};
use proptest::prelude::*;

use super::Output;

fn whole(bytes: &[u8], limit: usize) -> Output {
    let mut output = Output::new(limit);
    output.push(bytes);
    output.finish();
    output
}

fn check(streams: &[&[u8]], expect: Expect) {
    let shown: Vec<_> = streams.iter().map(|bytes| format!("{:?}", whole(bytes, 1000).text())).collect();
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
    let mut output = Output::new(100);
    let mut seen = Vec::new();
    for byte in "ä€😀".bytes() {
        output.push(&[byte]);
        seen.push(output.text().to_owned());
    }
    assert_eq!(seen, ["", "ä", "ä", "ä", "ä€", "ä€", "ä€", "ä€", "ä€😀"]);
}

#[test]
fn the_tail_is_cut_between_characters() {
    for (character, lens) in [("ä", [100, 100]), ("€", [99, 99]), ("😀", [100, 100]), ("x", [100, 101])]
    {
        let text = character.repeat(300);
        for (limit, len) in [100, 101].into_iter().zip(lens) {
            let output = whole(text.as_bytes(), limit);
            assert_eq!((output.text().len(), output.truncated()), (len, true), "{character} {limit}");
            let fits = whole(&text.as_bytes()[..len], limit);
            assert_eq!((fits.text(), fits.truncated()), (&text[..len], false), "{character} {limit}");
        }
    }
}

#[test]
fn nothing_kept_is_all_dropped() {
    let output = whole("aä".as_bytes(), 0);
    assert_eq!((output.text(), output.truncated(), output.bytes()), ("", true, 3));
    let silent = whole(b"\x1b[m", 0);
    assert_eq!((silent.text(), silent.truncated(), silent.bytes()), ("", false, 3));
}

#[test]
fn memory_is_bounded_by_the_limit() {
    let mut output = Output::new(1000);
    output.push(b"\x1b]0;");
    for _ in 0..800 {
        output.push(&[b'x'; 64 * 1024]);
    }
    assert_eq!((output.text(), output.text.capacity()), ("", 0));
    output.push(b"\x07");
    for _ in 0..10_000 {
        output.push(b"short line of text\n");
        output.push(&[b'y'; 900]);
    }
    output.push(&[b'z'; 64 * 1024]);
    assert_eq!((output.text(), output.truncated()), ("z".repeat(1000).as_str(), true));
    assert!(output.text.capacity() < 64 * 1024, "{}", output.text.capacity());
}

/// Pieces that are likely to meet: text of every width, sequences and parts of them, bytes that are no text.
fn piece() -> impl Strategy<Value = Vec<u8>> {
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

fn stream() -> impl Strategy<Value = Vec<u8>> {
    prop::collection::vec(piece(), 0..40).prop_map(|pieces| pieces.concat())
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 400, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn how_the_bytes_are_cut_makes_no_difference(
        bytes in stream(),
        cuts in prop::collection::vec(1usize..9, 1..20),
        limit in 0usize..200,
    ) {
        let mut cut = Output::new(limit);
        let (mut rest, mut seen) = (bytes.as_slice(), String::new());
        for size in cuts.iter().cycle() {
            let (now, later) = rest.split_at((*size).min(rest.len()));
            cut.push(now);
            if !cut.truncated() {
                prop_assert!(cut.text().starts_with(&seen));
                cut.text().clone_into(&mut seen);
            }
            rest = later;
            if rest.is_empty() {
                break;
            }
        }
        cut.finish();
        let once = whole(&bytes, limit);
        prop_assert_eq!(cut.text(), once.text());
        prop_assert_eq!(cut.truncated(), once.truncated());
        prop_assert_eq!(cut.bytes(), bytes.len() as u64);
    }

    #[test]
    fn what_is_kept_is_the_end_of_the_whole_text(bytes in stream(), limit in 0usize..200) {
        let (kept, all) = (whole(&bytes, limit), whole(&bytes, usize::MAX / 4));
        prop_assert!(all.text().ends_with(kept.text()));
        prop_assert!(kept.text().len() <= limit);
        prop_assert!(kept.text().len() + 3 >= limit.min(all.text().len()));
        prop_assert_eq!(kept.truncated(), kept.text().len() < all.text().len());
        prop_assert!(!all.text().chars().any(|c| c.is_control() && !"\n\r\t".contains(c)));
    }

    #[test]
    fn text_without_sequences_stays_as_it_is(text in "[\\PC\n\r\t]{0,300}") {
        let output = whole(text.as_bytes(), 10_000);
        prop_assert_eq!(output.text(), text);
    }

    #[test]
    fn a_word_is_looked_at_byte_by_byte(bytes in any::<[u8; 8]>()) {
        let odd = super::odd_bytes(u64::from_le_bytes(bytes)).to_le_bytes();
        prop_assert_eq!(odd.map(|byte| byte == 0), bytes.map(super::is_plain));
    }
}
