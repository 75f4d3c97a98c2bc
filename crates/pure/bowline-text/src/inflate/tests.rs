//! Tests of inflating, with streams that zlib made.

use std::fmt::Write as _;

use expect_test::expect;
use proptest::prelude::*;

use super::*;

/// Numbered lines.
fn lines() -> Vec<u8> {
    (0..24)
        .fold(String::new(), |mut text, i| {
            writeln!(text, "line {i}: value_{};", i * 7919 % 1000).unwrap();
            text
        })
        .into_bytes()
}

/// Letters whose frequencies grow like Fibonacci numbers, so that the rare ones have long codes.
fn skewed_letters() -> Vec<u8> {
    let mut counts = (1, 1);
    let mut out = Vec::new();
    for letter in b'a'..b'a' + 14 {
        out.extend(std::iter::repeat_n(letter, counts.0));
        counts = (counts.1, counts.0 + counts.1);
    }
    out
}

const STORED: &str = "7801010c00f3ff73746f7265642062797465731fcf04d9";
const FIXED: &str = "78014bcbac484d5148432293f353528b016793089f";
const EMPTY: &str = "78da030000000001";
const LINES: &str = "\
        78da45d1310e02410c43d19e53ec11c6c9cc640287415b6c81b4a283f303526cda5ff9c9e7e3796cedbabdf7f375dcdbed72\
        fe02181259c99896af4ace14232a75a619b3d2601a392a4d25f44ac1d4dd2b2d261f5629992cc0a91a8fd47ced47e37e0860\
        dc0f01b2130009d6a40022c422013244a301424c2302528c4e05c4e8930c13c317192686a56ef8334087c901ff3a3e5b1b8b\
        0d";
const SKEWED: &str = "\
        780105c1418203310cc3b0b76edb99c496c8ff1f17f8fb7cbfbfdfef799ee779dff77ddff73de79c73ce39e79c73efbdf7de\
        7befbdf7de7befbd776666666666666666666666666666666666777777777777777777777777777777777777777777777777\
        777777932449922449922449922449922449922449922449922449922449922449922449d2b66ddbb66ddbb66ddbb66ddbb6\
        6ddbb66ddbb66ddbb66ddbb66ddbb66ddbb66ddbb66ddbb66ddbb66ddbb66ddbb66ddbb66ddbb66d0b000000000000000000\
        00000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000080aa\
        aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa\
        aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaffb1eda18f";

fn bytes(hex: &str) -> Vec<u8> {
    let digits: Vec<char> = hex.chars().collect();
    digits.chunks(2).map(|pair| u8::from_str_radix(&pair.iter().collect::<String>(), 16).unwrap()).collect()
}

fn streams() -> [(&'static str, Vec<u8>); 5] {
    [
        (STORED, b"stored bytes".to_vec()),
        (FIXED, b"fixed fixed fixed codes".to_vec()),
        (EMPTY, Vec::new()),
        (LINES, lines()),
        (SKEWED, skewed_letters()),
    ]
}

#[test]
fn every_kind_of_block_is_inflated_and_what_follows_is_ignored() {
    for (stream, content) in streams() {
        let mut stream = bytes(stream);
        assert_eq!(inflate(&stream, content.len()).as_ref(), Ok(&content));
        stream.extend(b"the next object");
        assert_eq!(inflate(&stream, content.len()).as_ref(), Ok(&content));
    }
}

#[test]
fn a_wrong_size_and_a_cut_off_stream_are_errors() {
    for (stream, content) in streams() {
        let stream = bytes(stream);
        assert_eq!(inflate(&stream, content.len() + 1), Err(InflateError));
        if let Some(less) = content.len().checked_sub(1) {
            assert_eq!(inflate(&stream, less), Err(InflateError));
        }
        // The last four bytes are the checksum, which is not read.
        for length in 0..stream.len() - 4 {
            assert_eq!(inflate(&stream[..length], content.len()), Err(InflateError), "{length}");
        }
    }
}

#[test]
fn invalid_streams_are_errors() {
    let cases = [
        ("another method", "799c0300"),
        ("a wrong header", "789d0300"),
        ("a preset dictionary", "78bb0300"),
        ("a reserved block type", "789c0700"),
        ("a stored length that does not match its complement", "789c01010000ff61"),
        ("a distance before the start", "789c03020000"),
        ("a repeated length without a previous one", "789c0500000000800000000000"),
    ];
    let mut out = String::new();
    for (what, stream) in cases {
        writeln!(out, "{what}: {:?}", inflate(&bytes(stream), 3)).unwrap();
    }
    expect![[r#"
        another method: Err(InflateError)
        a wrong header: Err(InflateError)
        a preset dictionary: Err(InflateError)
        a reserved block type: Err(InflateError)
        a stored length that does not match its complement: Err(InflateError)
        a distance before the start: Err(InflateError)
        a repeated length without a previous one: Err(InflateError)
    "#]]
    .assert_eq(&out);
}

proptest! {
    /// A damaged stream is an error or another content of the expected size.
    #[test]
    fn a_damaged_stream_never_panics(which in 0_usize..5, at in 0_usize..1000, byte: u8) {
        let (stream, content) = &streams()[which];
        let mut stream = bytes(stream);
        let at = at % stream.len();
        stream[at] = byte;
        if let Ok(out) = inflate(&stream, content.len()) {
            prop_assert_eq!(out.len(), content.len());
        }
    }

    /// Any bytes are an error or a content of the expected size.
    #[test]
    fn any_bytes_never_panic(rest: Vec<u8>, size in 0_usize..2000) {
        let mut stream = vec![0x78, 0x9c];
        stream.extend(rest);
        if let Ok(out) = inflate(&stream, size) {
            prop_assert_eq!(out.len(), size);
        }
    }
}
