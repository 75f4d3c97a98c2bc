//! Tests of content: base64, etags, and ranges of bytes.

use expect_test::{Expect, expect};
use proptest::prelude::*;
use std::fmt::Write;

use crate::file_extension::data::{TEXT_LOOKAHEAD, check_position, check_text_position};
use crate::file_extension::{ByteRange, DataEncoding, Etag, FileData, FileError, FileWindow};

const TEXT: &str = "aé€😀z";

/// Shows what each range, an offset and a limit, is of [`TEXT`].
fn check(ranges: &[(u64, u64)], expected: Expect) {
    let mut shown = String::new();
    for &(offset, limit) in ranges {
        write!(shown, "{offset}+{limit}: ").unwrap();
        match (ByteRange { offset, limit }).slice_text(TEXT) {
            Ok(FileWindow { data, is_truncated }) => {
                writeln!(shown, "{data:?}{}", if is_truncated { " truncated" } else { "" }).unwrap();
            }
            Err(error) => writeln!(shown, "! {error}").unwrap(),
        }
    }
    expected.assert_eq(&shown);
}

#[test]
fn a_range_of_text_ends_between_characters_and_has_one_at_least() {
    check(
        &[(0, 1), (0, 2), (0, 3), (0, 5), (0, 6), (1, 1), (3, 1), (6, 3), (6, 4), (0, 11), (0, u64::MAX)],
        expect![[r#"
            0+1: "a" truncated
            0+2: "a" truncated
            0+3: "aé" truncated
            0+5: "aé" truncated
            0+6: "aé€" truncated
            1+1: "é" truncated
            3+1: "€" truncated
            6+3: "😀" truncated
            6+4: "😀" truncated
            0+11: "aé€😀z"
            0+18446744073709551615: "aé€😀z"
        "#]],
    );
}

#[test]
fn a_range_of_text_starts_between_characters_and_not_past_the_end() {
    check(
        &[(2, 5), (4, 5), (5, 5), (9, 5), (10, 5), (11, 5), (12, 5), (u64::MAX, u64::MAX)],
        expect![[r#"
            2+5: ! 2 is inside a character
            4+5: ! 4 is inside a character
            5+5: ! 5 is inside a character
            9+5: ! 9 is inside a character
            10+5: "z"
            11+5: ""
            12+5: ! 12 is past the end: the content has 11 bytes
            18446744073709551615+18446744073709551615: ! 18446744073709551615 is past the end: the content has 11 bytes
        "#]],
    );
}

#[test]
fn what_is_no_text_is_not_cut_as_text() {
    let cut = |bytes: &[u8], offset, limit| {
        let range = ByteRange { offset, limit };
        format!("{:?}\n", range.cut_text(bytes, offset + bytes.len() as u64, "/a"))
    };
    let shown = [
        cut(b"ab\xff", 0, 2),
        cut(b"ab\xff", 0, 3),
        cut(b"\x80\x80\x80\x80\x80\x80", 0, 1),
        cut(b"\x80a", 5, 1),
        cut(b"\xf0\x9f\x98", 0, 9),
        cut(b"", 0, 1),
    ];
    expect![[r#"
        Ok(FileWindow { data: "ab", is_truncated: true })
        Err(NotText { path: "/a", reason: "it is not UTF-8" })
        Err(NotText { path: "/a", reason: "it is not UTF-8" })
        Err(InsideCharacter { position: 5 })
        Err(NotText { path: "/a", reason: "it is not UTF-8" })
        Ok(FileWindow { data: "", is_truncated: false })
    "#]]
    .assert_eq(&shown.concat());
}

#[test]
fn an_insertion_is_within_the_content_and_between_characters() {
    let mut shown = String::new();
    for position in [0, 1, 2, 3, 11, 12, u64::MAX] {
        let (text, bytes) =
            (check_text_position(position, TEXT), check_position(position, TEXT.len() as u64));
        writeln!(shown, "{position}: {text:?} {bytes:?}").unwrap();
    }
    expect![[r#"
        0: Ok(0) Ok(0)
        1: Ok(1) Ok(1)
        2: Err(InsideCharacter { position: 2 }) Ok(2)
        3: Ok(3) Ok(3)
        11: Ok(11) Ok(11)
        12: Err(OutOfRange { position: 12, size: 11 }) Err(OutOfRange { position: 12, size: 11 })
        18446744073709551615: Err(OutOfRange { position: 18446744073709551615, size: 11 }) Err(OutOfRange { position: 18446744073709551615, size: 11 })
    "#]].assert_eq(&shown);
}

#[test]
fn an_etag_has_the_hash_of_the_content() {
    let etag = Etag::digest(b"text");
    expect!["sha256:982d9e3eb996f559e633f4d194def3761d909f5a3b647d1a851fead67c32c9d1"]
        .assert_eq(&format!("{etag}"));
    assert_eq!(etag.content_hash().map(Etag::from), Some(etag));
    for foreign in ["", "7", "md5:00", "sha256:00", "W/\"1\""] {
        assert_eq!(Etag::from(foreign).content_hash(), None);
    }
}

/// Texts in which characters of every length are common.
fn any_text() -> impl Strategy<Value = String> {
    proptest::collection::vec(prop_oneof![Just('a'), Just('é'), Just('€'), Just('😀'), any::<char>()], 0..20)
        .prop_map(String::from_iter)
}

proptest! {
    #[test]
    fn bytes_come_back_from_base64(bytes in any::<Vec<u8>>()) {
        let (data, encoding) = FileData::from(bytes.clone()).into_encoded();
        prop_assert_eq!(encoding, DataEncoding::Base64);
        prop_assert_eq!(data.len(), bytes.len().div_ceil(3) * 4);
        prop_assert_eq!(FileData::decode(data, encoding), Ok(FileData::Bytes(bytes)));
    }

    #[test]
    fn only_one_text_stands_for_some_bytes(data in "[A-Za-z0-9+/=_ -]{0,12}") {
        match FileData::decode(data.clone(), DataEncoding::Base64) {
            Ok(decoded) => prop_assert_eq!(decoded.into_encoded().0, data),
            Err(error) => prop_assert!(matches!(error, FileError::InvalidEncoding { .. }), "{error:?}"),
        }
    }

    #[test]
    fn windows_one_after_the_other_are_the_whole_text(text in any_text(), limit in 1..9u64) {
        let (mut offset, mut read) = (0, String::new());
        loop {
            let range = ByteRange { offset, limit };
            let window = range.slice_text(&text).unwrap();
            prop_assert!(window.data.len() as u64 <= limit.max(4));
            prop_assert!(!window.data.is_empty() || text.is_empty());
            read += window.data;
            offset += window.data.len() as u64;
            if !window.is_truncated {
                break;
            }
        }
        prop_assert_eq!(read, text);
    }

    #[test]
    fn a_window_is_the_same_read_from_the_middle_of_a_file(text in any_text(), offset in 0..40u64, limit in 1..9u64) {
        let range = ByteRange { offset, limit };
        let Ok(clamped) = range.clamp_to(text.len() as u64) else {
            prop_assert_eq!(range.slice_text(&text), Err(FileError::OutOfRange { position: offset, size: text.len() as u64 }));
            return Ok(());
        };
        let start = usize::try_from(clamped.start).unwrap();
        let end = text.len().min(usize::try_from(clamped.end + TEXT_LOOKAHEAD).unwrap());
        let cut = range.cut_text(&text.as_bytes()[start..end], text.len() as u64, "/a");
        prop_assert_eq!(cut, range.slice_text(&text));
    }

    #[test]
    fn windows_of_bytes_are_exact(bytes in proptest::collection::vec(any::<u8>(), 0..20), offset in 0..30u64, limit in 1..30u64) {
        let range = ByteRange { offset, limit };
        let size = bytes.len() as u64;
        match range.slice_bytes(&bytes) {
            Ok(window) => {
                prop_assert_eq!(window.data.len() as u64, limit.min(size - offset));
                prop_assert_eq!(window.is_truncated, offset + limit < size);
                prop_assert_eq!(window.data, &bytes[usize::try_from(offset).unwrap()..][..window.data.len()]);
            }
            Err(error) => {
                prop_assert!(offset > size);
                prop_assert_eq!(error, FileError::OutOfRange { position: offset, size });
            }
        }
    }
}
