//! Tests of text formats: tables of real samples, and round-trip properties.

use std::fmt::Write as _;

use expect_test::{Expect, expect};
use proptest::prelude::*;

use super::*;

fn describe_decoded(decoded: &Result<DecodedText, NotTextError>) -> String {
    match decoded {
        Ok(DecodedText { text, format }) => {
            format!("{}{} {text:?}", format.encoding, if format.has_bom { "+BOM" } else { "" })
        }
        Err(not_text) => format!("! {not_text:?}"),
    }
}

/// Decodes each sample, and checks that its bytes are restored.
fn check_decode(samples: &[&[u8]], expected: Expect) {
    let mut out = String::new();
    for sample in samples {
        let decoded = decode(sample.to_vec());
        assert!(decoded.is_ok() || as_plain_utf8(sample).is_none());
        writeln!(out, "{}", describe_decoded(&decoded)).unwrap();
        if let Ok(DecodedText { text, format }) = decoded {
            assert_eq!(encode(&text, format).unwrap(), *sample);
            assert_eq!(as_plain_utf8(sample), (format == TextFormat::default()).then_some(text.as_str()));
        }
    }
    expected.assert_eq(&out);
}

fn check_encode(texts: &[(&str, &str)], expected: Expect) {
    let mut out = String::new();
    for (text, name) in texts {
        let format =
            TextFormat { encoding: Encoding::from_name(name).unwrap(), has_bom: name.starts_with("UTF-16") };
        match encode(text, format) {
            Ok(bytes) => writeln!(out, "{}", bytes.escape_ascii()).unwrap(),
            Err(unencodable) => writeln!(out, "! {unencodable}").unwrap(),
        }
    }
    expected.assert_eq(&out);
}

#[test]
fn utf8_and_utf16_are_told_by_their_mark_and_without_it() {
    check_decode(
        &[
            b"",
            b"plain\n",
            "é€😀\r\n".as_bytes(),
            b"\xef\xbb\xbf",
            b"\xef\xbb\xbfmarked\r\n",
            b"\xef\xbb\xbf\xef\xbb\xbftwice",
            b"\xff\xfe",
            b"\xfe\xff",
            b"\xff\xfea\0\r\0\n\0",
            b"\xfe\xff\0a\0\r\0\n",
            b"\xff\xfe\xff\xfea\0",
            b"\xff\xfe\x3d\xd8\x00\xde",
            b"h\0i\0\n\0",
            b"\0h\0i\0\n",
            b"h\0\xe9\0\x1f\x04\n\0",
        ],
        expect![[r#"
            UTF-8 ""
            UTF-8 "plain\n"
            UTF-8 "é€😀\r\n"
            UTF-8+BOM ""
            UTF-8+BOM "marked\r\n"
            UTF-8+BOM "\u{feff}twice"
            UTF-16LE+BOM ""
            UTF-16BE+BOM ""
            UTF-16LE+BOM "a\r\n"
            UTF-16BE+BOM "a\r\n"
            UTF-16LE+BOM "\u{feff}a"
            UTF-16LE+BOM "😀"
            UTF-16LE "hi\n"
            UTF-16BE "hi\n"
            UTF-16LE "héП\n"
        "#]],
    );
}

#[test]
fn bytes_that_are_no_text_are_refused() {
    check_decode(
        &[
            b"\x7fELF\x02\x01\x01\0\0\0",
            b"abc\0",
            b"one\0two\0",
            b"a.c\0b.c\0",
            b"\0\0",
            b"a\0b",
            b"a\0b\n",
            b"\0ab\n",
            b"a\0b\nc\n",
            b"a\0\0b",
            b"a\0\x01\0",
            b"h\0i\0\x00\xd8",
            b"\xef\xbb\xbfa\0",
            b"\xef\xbb\xbf\xe9",
            b"\xff\xfea",
            b"\xff\xfe\x3d\xd8a\0",
            b"\xff\xfe\0\0a\0\0\0",
            b"\0\0\xfe\xff\0\0\0a",
            "déjà vu \u{fffd}\n".as_bytes().iter().chain(b"\xff").copied().collect::<Vec<u8>>().as_slice(),
            b"caf\xe9\x01",
            b"caf\xe9\x81",
            // A character that Shift-JIS has twice: the other one would be written.
            b"\x82\xb1\x82\xea\x82\xcd\x87\x9b\x82\xc5\x82\xb7\n",
        ],
        expect![[r#"
            ! Binary
            ! Binary
            ! Binary
            ! Binary
            ! Binary
            ! Binary
            ! Binary
            ! Binary
            ! Binary
            ! Binary
            ! Binary
            ! Binary
            ! Binary
            ! NotReversible
            ! NotReversible
            ! NotReversible
            ! Binary
            ! Binary
            ! NotReversible
            ! NotReversible
            ! NotReversible
            ! NotReversible
        "#]],
    );
}

#[test]
fn a_legacy_text_is_read_in_its_encoding() {
    check_decode(
        &[
            b"\x8c\xe1\x94y\x82\xcd\x94L\x82\xc5\x82\xa0\x82\xe9\x81B\x96\xbc\x91O\x82\xcd\x82\xdc\x82\xbe\x96\xb3\x82\xa2\x81B\r\n\x82\xc7\x82\xb1\x82\xc5\x90\xb6\x82\xea\x82\xbd\x82\xa9\x93\xda\x82\xc6\x8c\xa9\x93\x96\x82\xaa\x82\xc2\x82\xa9\x82\xca\x81B\r\n",
            b"\x95\\\x8e\xa6\x83G\x83\x89\x81[: \x97\\\x96\xf1\x8c\xea\x83\\\x81[\x83X\x82\xcc\x94\\\x97\xcd\x82\xaa\x8f\\\x95\xaa\x82\xc5\x82\xcd\x82\xa0\x82\xe8\x82\xdc\x82\xb9\x82\xf1\n",
            b"\xb8\xe3\xc7\xda\xa4\xcf\xc7\xad\xa4\xc7\xa4\xa2\xa4\xeb\xa1\xa3\xcc\xbe\xc1\xb0\xa4\xcf\xa4\xde\xa4\xc0\xcc\xb5\xa4\xa4\xa1\xa3\n\xa4\xc9\xa4\xb3\xa4\xc7\xc0\xb8\xa4\xec\xa4\xbf\xa4\xab\xc6\xdc\xa4\xc8\xb8\xab\xc5\xf6\xa4\xac\xa4\xc4\xa4\xab\xa4\xcc\xa1\xa3\n",
            b"\xb5\xc0\xbf\xc9\xb5\xc0\xa3\xac\xb7\xc7\xb3\xa3\xb5\xc0\xa1\xa3\xc3\xfb\xbf\xc9\xc3\xfb\xa3\xac\xb7\xc7\xb3\xa3\xc3\xfb\xa1\xa3\r\n\xce\xde\xc3\xfb\xcc\xec\xb5\xd8\xd6\xae\xca\xbc\xa1\xa3\r\n",
            b"\xb5\xc0\xbf\xc9\xb5\xc0\xa3\xac\xb7\xc7\xb3\xa3\xb5\xc0\xa1\xa3\xc3\xfb\xbf\xc9\xc3\xfb\xa3\xac\xb7\xc7\xb3\xa3\xc3\xfb\xa1\xa3\x954\xb25\xd2\xb0\xbc\xd2\n",
            b"\xb9D\xa5i\xb9D\xa1A\xabD\xb1`\xb9D\xa1C\xa6W\xa5i\xa6W\xa1A\xabD\xb1`\xa6W\xa1C\n\xb5L\xa6W\xa4\xd1\xa6a\xa4\xa7\xa9l\xa1C\n",
            b"\xb3\xaa\xb6\xf9\xb8\xbb\xbd\xce\xb9\xcc \xb5\xe4\xb1\xce\xbf\xa1 \xb4\xde\xbe\xc6\n\xb8\xf0\xb5\xe7 \xb1\xb9\xb9\xce\xc0\xba \xc0\xce\xb0\xa3\xc0\xb8\xb7\xce\xbc\xad\xc0\xc7 \xc1\xb8\xbe\xf6\xb0\xfa \xb0\xa1\xc4\xa1\xb8\xa6 \xb0\xa1\xc1\xf6\xb8\xe7\n",
            b"caf\xe9 \x96 na\xefve \x93quoted\x94 \x805\r\nGr\xfc\xdfe aus K\xf6ln\r\n",
            b"int ann\xe9e; /* l'\xe9t\xe9 */\n",
            b"\xd1\xfa\xe5\xf8\xfc \xe6\xe5 \xe5\xf9\xb8 \xfd\xf2\xe8\xf5 \xec\xff\xe3\xea\xe8\xf5 \xf4\xf0\xe0\xed\xf6\xf3\xe7\xf1\xea\xe8\xf5 \xe1\xf3\xeb\xee\xea.\n",
            b"\xf3\xdf\xc5\xdb\xd8 \xd6\xc5 \xc5\xdd\xa3 \xdc\xd4\xc9\xc8 \xcd\xd1\xc7\xcb\xc9\xc8 \xc6\xd2\xc1\xce\xc3\xd5\xda\xd3\xcb\xc9\xc8 \xc2\xd5\xcc\xcf\xcb.\n",
            b"\xce\xe5\xf3\xea\xe5\xf0\xdc\xe6\xf9 \xf4\xe7\xed \xf8\xf5\xf7\xef\xf6\xe8\xfc\xf1\xe1 \xe2\xe4\xe5\xeb\xf5\xe3\xec\xdf\xe1.\n",
            b"P\xf8\xedli\xb9 \xbelu\xbbou\xe8k\xfd k\xf9\xf2 \xfap\xecl \xef\xe1belsk\xe9 \xf3dy.\n",
            b"\xe0\xbb\xe7\xb9\xc1\xb9\xd8\xc9\xc2\xec\xca\xd8\xb4\xbb\xc3\xd0\xe0\xca\xc3\xd4\xb0\xe0\xc5\xd4\xc8\xa4\xd8\xb3\xa4\xe8\xd2 \xa1\xc7\xe8\xd2\xba\xc3\xc3\xb4\xd2\xbd\xd9\xa7\xca\xd1\xb5\xc7\xec\xe0\xb4\xc3\xd1\xa8\xa9\xd2\xb9\n",
        ],
        expect![[r#"
            Shift_JIS "吾輩は猫である。名前はまだ無い。\r\nどこで生れたか頓と見当がつかぬ。\r\n"
            Shift_JIS "表示エラー: 予約語ソースの能力が十分ではありません\n"
            EUC-JP "吾輩は猫である。名前はまだ無い。\nどこで生れたか頓と見当がつかぬ。\n"
            GBK "道可道，非常道。名可名，非常名。\r\n无名天地之始。\r\n"
            gb18030 "道可道，非常道。名可名，非常名。𠮷野家\n"
            Big5 "道可道，非常道。名可名，非常名。\n無名天地之始。\n"
            EUC-KR "나랏말싸미 듕귁에 달아\n모든 국민은 인간으로서의 존엄과 가치를 가지며\n"
            windows-1252 "café – naïve “quoted” €5\r\nGrüße aus Köln\r\n"
            windows-1252 "int année; /* l'été */\n"
            windows-1251 "Съешь же ещё этих мягких французских булок.\n"
            KOI8-U "Съешь же ещё этих мягких французских булок.\n"
            windows-1253 "Ξεσκεπάζω την ψυχοφθόρα βδελυγμία.\n"
            ISO-8859-2 "Příliš žluťoučký kůň úpěl ďábelské ódy.\n"
            windows-874 "เป\u{e47}นมน\u{e38}ษย\u{e4c}ส\u{e38}ดประเสร\u{e34}ฐเล\u{e34}ศค\u{e38}ณค\u{e48}า กว\u{e48}าบรรดาฝ\u{e39}งส\u{e31}ตว\u{e4c}เดร\u{e31}จฉาน\n"
        "#]],
    );
}

#[test]
fn a_file_of_one_word_or_with_its_first_accent_late_is_read() {
    let late = [vec![b'a'; 3 << 20], b"\n caf\xe9\n".to_vec()].concat();
    let decoded = decode(late.clone()).unwrap();
    assert!(decoded.text.ends_with("\n café\n"));
    assert_eq!(encode(&decoded.text, decoded.format), Ok(late));
    check_decode(
        &[b"caf\xe9\n", b"\xfc", b"\x1b[1mcaf\xe9\x1b[0m\x1a"],
        expect![[r#"
        windows-1252 "café\n"
        windows-1252 "ü"
        windows-1252 "\u{1b}[1mcafé\u{1b}[0m\u{1a}"
    "#]],
    );
}

#[test]
fn a_large_legacy_text_is_tried_to_its_end() {
    // The examined bytes end inside a character.
    let line =
        b"\x83f\x81[\x83^\x83x\x81[\x83X\x82\xc9\x90\xda\x91\xb1\x82\xc5\x82\xab\x82\xdc\x82\xb9\x82\xf1\n";
    let large = line.repeat(10_000);
    let decoded = decode(large.clone()).unwrap();
    assert_eq!(decoded.format.encoding.name(), "Shift_JIS");
    assert!(decoded.text == "データベースに接続できません\n".repeat(10_000));
    assert!(encode(&decoded.text, decoded.format) == Ok(large.clone()));
    assert_eq!(decode([large, b"\xfd\xfe\xff".to_vec()].concat()), Err(NotTextError::NotReversible));
}

/// An agent writes back what it read, changed, with `\n` and without a mark.
#[test]
fn a_write_keeps_the_encoding_the_mark_and_the_endings() {
    let files: [&[u8]; 5] = [
        b"\xef\xbb\xbfone\r\ntwo\r\nthree",
        b"\xff\xfeo\0n\0e\0\r\0\n\0t\0w\0o\0\n\0",
        b"\0o\0n\0e\0\r\0\n\0t\0w\0o",
        b"one\r\n\x93\xfa\x96{\x8c\xea\x82\xc5\x82\xb7\ntwo\r\n",
        b"one\ncaf\xe9\r\ntwo\n",
    ];
    let mut out = String::new();
    for file in files {
        let DecodedText { text, format } = decode(file.to_vec()).unwrap();
        let write = |new: &str| encode(&fit_line_endings(new, &text), format).unwrap();
        assert_eq!(write(&text), file);
        let seen = text.replace("\r\n", "\n");
        assert_eq!(write(&seen), file);
        assert_eq!(write(&format!("\u{feff}{seen}")), file);
        let changed = seen.replace("one\n", "one\nmore\n").replace("two", "2");
        writeln!(out, "{}", write(&changed).escape_ascii()).unwrap();
    }
    expect![[r#"
        \xef\xbb\xbfone\r\nmore\r\n2\r\nthree
        \xff\xfeo\x00n\x00e\x00\r\x00\n\x00m\x00o\x00r\x00e\x00\r\x00\n\x002\x00\r\x00\n\x00
        \x00o\x00n\x00e\x00\r\x00\n\x00m\x00o\x00r\x00e\x00\r\x00\n\x002
        one\r\nmore\r\n\x93\xfa\x96{\x8c\xea\x82\xc5\x82\xb7\n2\r\n
        one\nmore\ncaf\xe9\r\n2\n
    "#]]
    .assert_eq(&out);
}

#[test]
fn a_character_without_a_place_in_the_encoding_is_named() {
    check_encode(
        &[
            ("a\r\né", "UTF-8"),
            ("aé😀", "UTF-16LE"),
            ("aé😀", "UTF-16BE"),
            ("café\n", "windows-1252"),
            ("one\ntwo € три\n", "windows-1252"),
            ("日本", "Shift_JIS"),
            ("日本\n5¥", "Shift_JIS"),
            ("a−b", "EUC-JP"),
            ("𠮷", "GBK"),
            ("𠮷", "gb18030"),
            ("a\n\0", "UTF-8"),
            ("a\n\0", "UTF-16BE"),
            ("\0é", "koi8-r"),
            ("é\0", "koi8-r"),
        ],
        expect![[r#"
            a\r\n\xc3\xa9
            \xff\xfea\x00\xe9\x00=\xd8\x00\xde
            \xfe\xff\x00a\x00\xe9\xd8=\xde\x00
            caf\xe9\n
            ! 'т' on line 2 cannot be written in windows-1252, leave it out or write it another way
            \x93\xfa\x96{
            ! '¥' on line 2 cannot be written in Shift_JIS, leave it out or write it another way
            ! '−' on line 1 cannot be written in EUC-JP, leave it out or write it another way
            ! '𠮷' on line 1 cannot be written in GBK, leave it out or write it another way
            \x954\xb25
            ! '\0' on line 2 cannot be written in UTF-8, leave it out or write it another way
            ! '\0' on line 2 cannot be written in UTF-16BE, leave it out or write it another way
            ! '\0' on line 1 cannot be written in KOI8-R, leave it out or write it another way
            ! 'é' on line 1 cannot be written in KOI8-R, leave it out or write it another way
        "#]],
    );
}

#[test]
fn an_encoding_is_known_by_its_name() {
    let mut out = String::new();
    for name in [
        "UTF-8", "utf8", "UTF-16LE", "UTF-16BE", "latin1", "Shift_JIS", "GB18030", "ISO-2022-JP",
        "replacement", "x",
    ] {
        let found = Encoding::from_name(name);
        writeln!(out, "{name}: {found:?} {}", found.map_or("-", Encoding::name)).unwrap();
    }
    expect![[r#"
        UTF-8: Some(Utf8) UTF-8
        utf8: Some(Utf8) UTF-8
        UTF-16LE: Some(Utf16Le) UTF-16LE
        UTF-16BE: Some(Utf16Be) UTF-16BE
        latin1: Some(Legacy(windows-1252)) windows-1252
        Shift_JIS: Some(Legacy(Shift_JIS)) Shift_JIS
        GB18030: Some(Legacy(gb18030)) gb18030
        ISO-2022-JP: None -
        replacement: None -
        x: None -
    "#]]
    .assert_eq(&out);
}

#[test]
fn the_head_of_a_huge_file_says_how_it_is_read() {
    let mut out = String::new();
    let heads: [&[u8]; 14] = [
        b"", b"plain", b"\xef\xbb\xbfplain", b"cut \xe2\x82", b"caf\xe9 ", b"NUL \0 ", b"\xef\xbb\xbf\0",
        b"\xff\xfea\0", b"\xfe\xff\0a", b"a\0b\0", b"a\0b\0c", b"a\0b\0\x3d\xd8", b"a\0b\0\x3d\xd8\x00",
        b"\0",
    ];
    for head in heads {
        let bom = detect_bom(head).map_or("-", |format| format.encoding.name());
        writeln!(out, "{}: {bom} binary {}", head.escape_ascii(), looks_binary(head)).unwrap();
    }
    expect![[r#"
        : - binary false
        plain: - binary false
        \xef\xbb\xbfplain: UTF-8 binary false
        cut \xe2\x82: - binary false
        caf\xe9 : - binary false
        NUL \x00 : - binary true
        \xef\xbb\xbf\x00: UTF-8 binary true
        \xff\xfea\x00: UTF-16LE binary false
        \xfe\xff\x00a: UTF-16BE binary false
        a\x00b\x00: - binary false
        a\x00b\x00c: - binary false
        a\x00b\x00=\xd8: - binary false
        a\x00b\x00=\xd8\x00: - binary false
        \x00: - binary true
    "#]]
    .assert_eq(&out);
}

#[test]
fn a_window_is_utf8_without_a_nul() {
    assert_eq!(decode_window("é\n".into()), Ok("é\n".to_owned()));
    assert_eq!(decode_window(b"a\0\xff".to_vec()), Err(NotTextError::Binary));
    assert_eq!(decode_window(b"\xe9\n".to_vec()), Err(NotTextError::NotReversible));
}

#[test]
fn plain_utf8_is_not_copied() {
    let bytes = b"plain\n".to_vec();
    let before = bytes.as_ptr();
    assert_eq!(decode(bytes).unwrap().text.as_ptr(), before);
}

#[test]
fn what_is_wrong_is_said_in_words() {
    expect![[r#"
        the content is binary, read it with a command that knows its kind
        the content is in no encoding that would give its bytes back exactly, convert it to UTF-8 first"#]]
    .assert_eq(&format!("{}\n{}", NotTextError::Binary, NotTextError::NotReversible));
}

/// Every encoding that text can be written in.
fn encodings() -> Vec<Encoding> {
    // The Encoding Standard's names.
    let names = "UTF-8 UTF-16LE UTF-16BE IBM866 ISO-8859-2 ISO-8859-3 ISO-8859-4 ISO-8859-5 ISO-8859-6 ISO-8859-7 \
        ISO-8859-8 ISO-8859-8-I ISO-8859-10 ISO-8859-13 ISO-8859-14 ISO-8859-15 ISO-8859-16 KOI8-R KOI8-U macintosh \
        windows-874 windows-1250 windows-1251 windows-1252 windows-1253 windows-1254 windows-1255 windows-1256 \
        windows-1257 windows-1258 x-mac-cyrillic GBK gb18030 Big5 EUC-JP Shift_JIS EUC-KR";
    names.split_whitespace().map(|name| Encoding::from_name(name).expect(name)).collect()
}

fn format() -> impl Strategy<Value = TextFormat> {
    (prop::sample::select(encodings()), any::<bool>())
        .prop_map(|(encoding, has_bom)| TextFormat { encoding, has_bom })
}

/// Texts of the characters in which encodings differ, and of all others, with every mix of endings.
fn text() -> impl Strategy<Value = String> {
    let piece = prop_oneof![
        4 => "[ -~]{1,8}",
        3 => prop::sample::select(vec!["\n", "\r\n", "\r", "\r\r\n", "\u{feff}", "¥", "‾", "−", "\t", "\u{85}"])
            .prop_map(str::to_owned),
        3 => "[é-ÿа-яα-ωぁ-んァ-ヶ一-龥가-힣ｱ-ﾝ]{1,4}",
        1 => any::<char>().prop_map(String::from),
    ];
    proptest::collection::vec(piece, 0..24).prop_map(|pieces| pieces.concat())
}

/// Arbitrary bytes, biased towards text.
fn bytes() -> impl Strategy<Value = Vec<u8>> {
    let encoded =
        (text(), format()).prop_filter_map("no such bytes", |(text, format)| encode(&text, format).ok());
    let piece = prop_oneof![
        Just(b"\xef\xbb\xbf".to_vec()),
        Just(b"\xff\xfe".to_vec()),
        Just(b"\xfe\xff".to_vec()),
        "[ -~\r\n]{1,6}".prop_map(String::into_bytes),
        proptest::collection::vec(0x80u8.., 1..6),
        proptest::collection::vec(any::<u8>(), 1..6),
        "[a-z\n]{1,6}".prop_map(|text| utf16::encode(&text, Encoding::Utf16Le, b"")),
    ];
    let pieces = proptest::collection::vec(piece, 0..8).prop_map(|pieces| pieces.concat());
    prop_oneof![encoded, pieces, proptest::collection::vec(any::<u8>(), 0..40)]
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(1024))]

    #[test]
    fn what_is_read_goes_back_to_the_same_bytes(bytes in bytes()) {
        if let Ok(DecodedText { text, format }) = decode(bytes.clone()) {
            prop_assert_eq!(encode(&text, format), Ok(bytes.clone()));
            prop_assert_eq!(decode_as(bytes.clone(), format), Ok(text.clone()));
            prop_assert!(!text.contains('\0'));
            prop_assert!(!looks_binary(&bytes));
        }
    }

    #[test]
    fn ascii_with_a_nul_in_it_is_binary(text in "[ -~\n]{2,40}", at in any::<prop::sample::Index>()) {
        let mut bytes = text.into_bytes();
        bytes.insert(at.index(bytes.len() + 1), 0);
        prop_assert_eq!(decode(bytes), Err(NotTextError::Binary));
    }

    #[test]
    fn utf16_without_a_mark_is_read_where_it_is_sure(
        words in proptest::collection::vec("[a-zA-Z0-9 .,;éäßñ]{1,12}|[а-яА-Я]{1,6}|नमस्ते|[क-ह]{2,5}", 1..6),
        encoding in prop_oneof![Just(Encoding::Utf16Le), Just(Encoding::Utf16Be)],
    ) {
        // Lines of Latin text next to each other script's word, as in a file of translations.
        let text: String = words.iter().map(|word| format!("key = {word}\n")).collect();
        let bytes = utf16::encode(&text, encoding, b"");
        prop_assert_eq!(decode(bytes), Ok(DecodedText { text, format: TextFormat { encoding, has_bom: false } }));
    }

    #[test]
    fn what_is_written_is_read_back_in_that_format(text in text(), format in format()) {
        match encode(&text, format) {
            Ok(bytes) => prop_assert_eq!(decode_as(bytes, format), Ok(text)),
            Err(UnencodableError { character, line, encoding }) => {
                prop_assert_eq!(encoding, format.encoding);
                // It is the first: the text before it can be encoded, and no further.
                let (at, _) = text
                    .char_indices()
                    .find(|(at, found)| *found == character && 1 + text[..*at].matches('\n').count() as u64 == line)
                    .expect("the character is on that line");
                prop_assert!(encode(&text[..at], format).is_ok());
                prop_assert!(encode(&text[at..at + character.len_utf8()], format).is_err());
            }
        }
    }

    #[test]
    fn unicode_encodings_keep_every_text(text in text(), bom in any::<bool>()) {
        for encoding in [Encoding::Utf8, Encoding::Utf16Le, Encoding::Utf16Be] {
            let format = TextFormat { encoding, has_bom: bom };
            let text = text.replace('\0', "");
            let bytes = encode(&text, format).unwrap();
            if bom {
                prop_assert_eq!(decode(bytes), Ok(DecodedText { text, format }));
            } else {
                prop_assert_eq!(decode_as(bytes, format), Ok(text));
            }
        }
    }

    #[test]
    fn the_head_of_a_text_does_not_look_binary(text in text(), cut in any::<prop::sample::Index>()) {
        let text = text.replace('\0', "");
        let head = &text.as_bytes()[..cut.index(text.len() + 1)];
        prop_assert!(!looks_binary(head));
    }

    #[test]
    fn a_name_leads_back_to_its_encoding(format in format()) {
        prop_assert_eq!(Encoding::from_name(format.encoding.name()), Some(format.encoding));
    }
}
