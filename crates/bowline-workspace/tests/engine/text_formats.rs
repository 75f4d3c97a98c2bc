//! Tests of text formats: encoding, byte order mark, line endings and the last newline stay the file's own.

use expect_test::expect;

use crate::check;

#[test]
fn crlf_and_mark_stay_though_the_agent_sends_neither() {
    check(
        r#"
//- /a.txt crlf bom
one
two
> read /a.txt
> write /a.txt "ONE\ntwo\nthree\n"
> cat /a.txt
> write /a.txt "\ufeffone\r\ntwo\r\n"
> cat /a.txt
> read /a.txt
"#,
        expect![[r#"
            | one\r
            | two\r
            replaced
            | ONE\r
            | two\r
            | three\r
            = \xef\xbb\xbfONE\r\n
            = two\r\n
            = three\r\n
            replaced
            | one\r
            | two\r
            = \xef\xbb\xbfone\r\n
            = two\r\n
            | one\r
            | two\r
        "#]],
    );
}

#[test]
fn other_encodings_come_back_byte_for_byte() {
    check(
        r#"
//- /utf16le.txt encoding=utf-16le bom
grüße
//- /utf16be.txt encoding=utf-16be bom crlf
grüße
//- /sjis.txt encoding=shift_jis
日本語のテキストです。これは文字コードの判定に十分な長さの文章です。
二行目もあります。カタカナとひらがなと漢字が混ざっています。
//- /latin1.txt encoding=windows-1252
Die Bären über den Flüssen mögen süße Äpfel, schöne Grüße aus München
Überall hört man, dass die Tür größer wäre
> read /utf16le.txt
> write /utf16le.txt "grüße\n"
> read /utf16be.txt
> write /utf16be.txt "grüße\n☃\n"
> cat /utf16be.txt
> read /sjis.txt
> write /sjis.txt "日本語のテキストです。これは文字コードの判定に十分な長さの文章です。\n二行目もあります。カタカナとひらがなと漢字が混ざっています。\n"
> read /latin1.txt
> write /latin1.txt "Die Bären über den Flüssen mögen süße Äpfel, schöne Grüße aus München\nÜberall hört man, dass die Tür größer wäre\n"
> changes
"#,
        expect![[r#"
            | grüße
            unchanged
            | grüße\r
            replaced
            | grüße\r
            | ☃\r
            = \xfe\xff\x00g\x00r\x00\xfc\x00\xdf\x00e\x00\r\x00\n
            = &\x03\x00\r\x00\n
            | 日本語のテキストです。これは文字コードの判定に十分な長さの文章です。
            | 二行目もあります。カタカナとひらがなと漢字が混ざっています。
            unchanged
            | Die Bären über den Flüssen mögen süße Äpfel, schöne Grüße aus München
            | Überall hört man, dass die Tür größer wäre
            unchanged
            1 s1 changes $ROOT/utf16be.txt
        "#]],
    );
}

#[test]
fn what_the_encoding_has_no_place_for_is_refused_and_the_file_untouched() {
    check(
        r#"
//- /latin1.txt encoding=windows-1252
Die Bären über den Flüssen mögen süße Äpfel, schöne Grüße aus München
Überall hört man, dass die Tür größer wäre
> read /latin1.txt
> write /latin1.txt "Die Bären\n☃ schmilzt\n"
> read /latin1.txt 2 1
> changes
"#,
        expect![[r#"
            | Die Bären über den Flüssen mögen süße Äpfel, schöne Grüße aus München
            | Überall hört man, dass die Tür größer wäre
            ! -32602 "$ROOT/latin1.txt stays as it is: '☃' on line 2 cannot be written in windows-1252, leave it out or write it another way"
            | Überall hört man, dass die Tür größer wäre
            no changes
        "#]],
    );
}

#[test]
fn what_is_no_text_is_refused_to_be_read_and_written() {
    check(
        r#"
//- /binary bytes=7f454c4602010100
//- /broken bytes=c3a4c3a4c3a4c3a4c328610a
//- /half bytes=fffe61
> read /binary
> read /binary 1 1
> write /binary "text\n"
> read /broken
> write /broken "text\n"
> read /half
> write /half "text\n"
> open /binary
> cat /binary
> cat /broken
> cat /half
"#,
        expect![[r#"
            ! -32602 {"reason":"not_text","path":"$ROOT/binary","why":"the content is binary, read it with a command that knows its kind"}
            ! -32602 {"reason":"not_text","path":"$ROOT/binary","why":"the content is binary, read it with a command that knows its kind"}
            ! -32602 {"reason":"not_text","path":"$ROOT/binary","why":"the content is binary, read it with a command that knows its kind"}
            ! -32602 {"reason":"not_text","path":"$ROOT/broken","why":"the content is in no encoding that would give its bytes back exactly, convert it to UTF-8 first"}
            ! -32602 {"reason":"not_text","path":"$ROOT/broken","why":"the content is in no encoding that would give its bytes back exactly, convert it to UTF-8 first"}
            ! -32602 {"reason":"not_text","path":"$ROOT/half","why":"the content is in no encoding that would give its bytes back exactly, convert it to UTF-8 first"}
            ! -32602 {"reason":"not_text","path":"$ROOT/half","why":"the content is in no encoding that would give its bytes back exactly, convert it to UTF-8 first"}
            ! -32602 {"reason":"not_text","path":"$ROOT/binary","why":"the content is binary, read it with a command that knows its kind"}
            = \x7fELF\x02\x01\x01\x00
            = \xc3\xa4\xc3\xa4\xc3\xa4\xc3\xa4\xc3(a\n
            = \xff\xfea
        "#]],
    );
}

#[test]
fn a_nul_is_never_written() {
    check(
        r#"
//- /a.txt
one
> read /a.txt
> write /a.txt "one\u0000two\n"
> write /new.txt "\u0000"
> cat /a.txt
> tree
"#,
        expect![[r#"
            | one
            ! -32602 "$ROOT/a.txt stays as it is: '\\0' on line 1 cannot be written in UTF-8, leave it out or write it another way"
            ! -32602 "$ROOT/new.txt stays as it is: '\\0' on line 1 cannot be written in UTF-8, leave it out or write it another way"
            = one\n
            $ROOT/a.txt
        "#]],
    );
}

#[test]
fn mixed_endings_stay_line_by_line() {
    check(
        r#"
//- /a.txt bytes=6f6e650d0a74776f0a74687265650d0a
> read /a.txt
> write /a.txt "one\nTWO\nthree\nfour\n"
> cat /a.txt
"#,
        expect![[r#"
            | one\r
            | two
            | three\r
            replaced
            | one\r
            | TWO
            | three\r
            | four\r
            = one\r\n
            = TWO\n
            = three\r\n
            = four\r\n
        "#]],
    );
}

#[test]
fn the_last_newline_is_up_to_the_writer() {
    check(
        r#"
//- /a.txt no-eol
one
two
> read /a.txt
> write /a.txt "one\nTWO"
> cat /a.txt
> write /a.txt "one\nTWO\n"
> cat /a.txt
> write /a.txt ""
> cat /a.txt
> read /a.txt
"#,
        expect![[r#"
            | one
            | two
            \ no newline
            replaced
            = one\n
            = TWO
            replaced
            = one\n
            = TWO\n
            replaced
            (empty)
        "#]],
    );
}

#[test]
fn a_new_file_is_as_it_was_sent() {
    check(
        r#"
> write /crlf.txt "one\r\ntwo\r\n"
> cat /crlf.txt
> write /bom.txt "\ufeffone\n"
> cat /bom.txt
> read /bom.txt
> write /bom.txt "two\n"
> cat /bom.txt
> write /empty.txt ""
> tree
"#,
        expect![[r#"
            created
            = one\r\n
            = two\r\n
            created
            | one
            = \xef\xbb\xbfone\n
            | one
            replaced
            = \xef\xbb\xbftwo\n
            created
            $ROOT/bom.txt
            $ROOT/crlf.txt
            $ROOT/empty.txt
        "#]],
    );
}

#[test]
fn a_merge_keeps_the_endings_of_the_file() {
    check(
        r#"
//- /a.txt crlf
one
two
three
> read /a.txt
> disk /a.txt crlf "one\ntwo\nTHREE\n"
> write /a.txt "ONE\ntwo\nthree\n"
> cat /a.txt
"#,
        expect![[r#"
            | one\r
            | two\r
            | three\r
            merged
            | ONE\r
            | two\r
            | THREE\r
            = ONE\r\n
            = two\r\n
            = THREE\r\n
        "#]],
    );
}

#[test]
fn a_file_that_changed_its_endings_is_still_merged_or_refused() {
    check(
        r#"
//- /a.txt crlf
one
two
three
> read /a.txt
> disk /a.txt "one\ntwo\nthree\n"
> write /a.txt "ONE\ntwo\nthree\n"
> cat /a.txt
"#,
        expect![[r#"
            | one\r
            | two\r
            | three\r
            ! -32602 {"reason":"conflict","path":"$ROOT/a.txt","why":"the text was changed since this session read it, and both changes touch the same lines: read it again","hunks":[{"line":1,"base":"one\r\ntwo\r\nthree\r\n","ours":"one\ntwo\nthree\n","theirs":"ONE\r\ntwo\r\nthree\r\n"}]}
            = one\n
            = two\n
            = three\n
        "#]],
    );
}

#[test]
fn a_file_that_changed_its_encoding_keeps_the_new_one() {
    check(
        r#"
//- /a.txt
one
two
three
> read /a.txt
> disk /a.txt encoding=utf-16le bom "one\ntwo\nthree\n"
> write /a.txt "one\ntwo\n3\n"
> cat /a.txt
"#,
        expect![[r#"
            | one
            | two
            | three
            replaced
            = \xff\xfeo\x00n\x00e\x00\n
            = \x00t\x00w\x00o\x00\n
            = \x003\x00\n
            = \x00
        "#]],
    );
}
