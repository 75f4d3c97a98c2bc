//! Tests of documents: unsaved text takes precedence, and no change beside it is lost.

use expect_test::expect;

use crate::check;

#[test]
fn unsaved_text_is_what_an_agent_reads() {
    check(
        r#"
//- /a.txt
one
two
> open /a.txt
> read /a.txt
> type /a.txt "one\ntwo\nthree\n"
> read /a.txt
> read /a.txt 3 1
> cat /a.txt
> close /a.txt
> read /a.txt
"#,
        expect![[r#"
            $ROOT/a.txt saved
            | one
            | two
            from the editor
            | one
            | two
            unsaved
            from the editor
            | one
            | two
            | three
            from the editor
            | three
            = one\n
            = two\n
            | one
            | two
        "#]],
    );
}

#[test]
fn a_write_beside_unsaved_text_keeps_both_and_saves() {
    check(
        r#"
//- /a.txt
one
two
three
> open /a.txt
> read /a.txt
> type /a.txt "one\ntwo\nthree\nfour\n"
> write /a.txt "ONE\ntwo\nthree\n"
> show /a.txt
> cat /a.txt
"#,
        expect![[r#"
            $ROOT/a.txt saved
            | one
            | two
            | three
            from the editor
            | one
            | two
            | three
            unsaved
            merged
            | ONE
            | two
            | three
            | four
            $ROOT/a.txt saved
            | ONE
            | two
            | three
            | four
            = ONE\n
            = two\n
            = three\n
            = four\n
        "#]],
    );
}

#[test]
fn a_write_after_a_read_of_unsaved_text_replaces_it() {
    check(
        r#"
//- /a.txt
one
> open /a.txt
> type /a.txt "one\ntwo\n"
> read /a.txt
> write /a.txt "one\nTWO\n"
> show /a.txt
> cat /a.txt
"#,
        expect![[r#"
            $ROOT/a.txt saved
            | one
            unsaved
            from the editor
            | one
            | two
            replaced
            $ROOT/a.txt saved
            | one
            | TWO
            = one\n
            = TWO\n
        "#]],
    );
}

#[test]
fn a_clean_document_is_loaded_again_when_its_file_changed() {
    check(
        r#"
//- /a.txt
one
> open /a.txt
> disk /a.txt "ONE\n"
> read /a.txt
> show /a.txt
> disk /a.txt "three\n"
> write /a.txt "ONE\ntwo\n"
> read /a.txt
> write /a.txt "three\nfour\n"
> show /a.txt
"#,
        expect![[r#"
            $ROOT/a.txt saved
            | one
            from the editor
            | ONE
            $ROOT/a.txt saved
            | ONE
            ! -32602 {"reason":"conflict","path":"$ROOT/a.txt","why":"the text was changed since this session read it, and both changes touch the same lines: read it again","hunks":[{"line":1,"base":"ONE\n","ours":"three\n","theirs":"ONE\ntwo\n"}]}
            from the editor
            | three
            replaced
            $ROOT/a.txt saved
            | three
            | four
        "#]],
    );
}

#[test]
fn a_dirty_document_beside_a_changed_file_is_served_and_flagged() {
    check(
        r#"
//- /a.txt
one
two
three
> open /a.txt
> type /a.txt "one\ntwo\nTHREE\n"
> disk /a.txt "ONE\ntwo\nthree\n"
> read /a.txt
> show /a.txt
> save /a.txt
> cat /a.txt
> read /a.txt
"#,
        expect![[r#"
            $ROOT/a.txt saved
            | one
            | two
            | three
            unsaved
            from the editor, the file was changed too
            | one
            | two
            | THREE
            $ROOT/a.txt unsaved
            | one
            | two
            | THREE
            $ROOT/a.txt saved
            | ONE
            | two
            | THREE
            = ONE\n
            = two\n
            = THREE\n
            from the editor
            | ONE
            | two
            | THREE
        "#]],
    );
}

#[test]
fn agent_user_and_disk_change_different_lines_at_once() {
    check(
        r#"
//- /a.txt
one
-
two
-
three
> read /a.txt
> open /a.txt
> type /a.txt "one\n-\nTWO\n-\nthree\n"
> disk /a.txt "ONE\n-\ntwo\n-\nthree\n"
> write /a.txt "one\n-\ntwo\n-\nTHREE\n"
> show /a.txt
> cat /a.txt
> read /a.txt
"#,
        expect![[r#"
            | one
            | -
            | two
            | -
            | three
            $ROOT/a.txt saved
            | one
            | -
            | two
            | -
            | three
            unsaved
            merged
            | ONE
            | -
            | TWO
            | -
            | THREE
            $ROOT/a.txt saved
            | ONE
            | -
            | TWO
            | -
            | THREE
            = ONE\n
            = -\n
            = TWO\n
            = -\n
            = THREE\n
            from the editor
            | ONE
            | -
            | TWO
            | -
            | THREE
        "#]],
    );
}

#[test]
fn agent_user_and_disk_change_the_same_line_and_nothing_is_written() {
    check(
        r#"
//- /a.txt
one
two
> read /a.txt
> open /a.txt
> type /a.txt "one\nuser\n"
> disk /a.txt "disk\ntwo\n"
> write /a.txt "one\nagent\n"
> write /a.txt "agent\ntwo\n"
> disk /a.txt "one\ndisk\n"
> write /a.txt "ONE\nuser\n"
> save /a.txt
> show /a.txt
> cat /a.txt
"#,
        expect![[r#"
            | one
            | two
            $ROOT/a.txt saved
            | one
            | two
            unsaved
            ! -32602 {"reason":"conflict","path":"$ROOT/a.txt","why":"the text was changed since this session read it, and both changes touch the same lines: read it again","hunks":[{"line":2,"base":"two\n","ours":"user\n","theirs":"agent\n"}]}
            ! -32602 {"reason":"conflict","path":"$ROOT/a.txt","why":"the text was changed since this session read it, and both changes touch the same lines: read it again","hunks":[{"line":1,"base":"one\ntwo\n","ours":"one\nuser\n","theirs":"agent\ntwo\n"}]}
            ! -32602 {"reason":"conflict","path":"$ROOT/a.txt","why":"the text was changed since this session read it, and both changes touch the same lines: read it again","hunks":[{"line":1,"base":"one\ntwo\n","ours":"one\nuser\n","theirs":"ONE\nuser\n"}]}
            ! -32602 {"reason":"conflict","path":"$ROOT/a.txt","why":"the file on disk and the editor's unsaved text were both changed on the same lines: save or reload it","hunks":[{"line":2,"base":"two\n","ours":"user\n","theirs":"disk\n"}]}
            $ROOT/a.txt unsaved
            | one
            | user
            = one\n
            = disk\n
        "#]],
    );
}

#[test]
fn an_unseen_write_merges_with_unsaved_text() {
    check(
        r#"
//- /a.txt
one
two
three
> open /a.txt
> type /a.txt "one\ntwo\nUSER\n"
> write /a.txt "AGENT\ntwo\nthree\n"
> write /a.txt "completely\nelse\n"
> show /a.txt
"#,
        expect![[r#"
            $ROOT/a.txt saved
            | one
            | two
            | three
            unsaved
            merged
            | AGENT
            | two
            | USER
            ! -32602 {"reason":"conflict","path":"$ROOT/a.txt","why":"the text was changed since this session read it, and both changes touch the same lines: read it again","hunks":[{"line":1,"base":"AGENT\ntwo\nthree\n","ours":"AGENT\ntwo\nUSER\n","theirs":"completely\nelse\n"}]}
            $ROOT/a.txt saved
            | AGENT
            | two
            | USER
        "#]],
    );
}

#[test]
fn names_of_one_file_are_one_document() {
    check(
        r#"
//- /a.txt
one
//- /dir/b.txt = /a.txt
//- /link -> dir/b.txt
> open /a.txt
> type /a.txt "one\ntwo\n"
> read /dir/b.txt
> read /link
> open /link
> show /dir/b.txt
> close /link
> show /a.txt
> close /dir/b.txt
> show /a.txt
> read /a.txt
"#,
        expect![[r#"
            $ROOT/a.txt saved
            | one
            unsaved
            from the editor
            | one
            | two
            from the editor
            | one
            | two
            $ROOT/a.txt unsaved
            | one
            | two
            $ROOT/a.txt unsaved
            | one
            | two
            $ROOT/a.txt unsaved
            | one
            | two
            not open
            | one
        "#]],
    );
}

#[test]
fn saving_a_new_document_creates_its_file() {
    check(
        r#"
//- /dir/x
x
> open /new/a.txt
> read /new/a.txt
> type /new/a.txt "one\n"
> read /new/a.txt
> save /new/a.txt
> cat /new/a.txt
> changes
> undo
> show /new/a.txt
> tree
"#,
        expect![[r#"
            $ROOT/new/a.txt saved
            (empty)
            from the editor
            (empty)
            unsaved
            from the editor
            | one
            $ROOT/new/a.txt saved
            | one
            = one\n
            1 creates $ROOT/new/a.txt
            change 2 of $ROOT/new/a.txt
            $ROOT/new/a.txt saved
            | one
            $ROOT/dir/
            $ROOT/dir/x
            $ROOT/new/
        "#]],
    );
}

#[test]
fn saving_merges_with_a_changed_file_or_refuses() {
    check(
        r#"
//- /a.txt crlf
one
two
three
> open /a.txt
> type /a.txt "one\r\ntwo\r\nuser\r\n"
> disk /a.txt crlf "disk\ntwo\nthree\n"
> save /a.txt
> cat /a.txt
> type /a.txt "disk\r\nuser\r\nuser\r\n"
> disk /a.txt crlf "disk\ndisk\nuser\n"
> save /a.txt
> show /a.txt
> cat /a.txt
"#,
        expect![[r#"
            $ROOT/a.txt saved
            | one\r
            | two\r
            | three\r
            unsaved
            $ROOT/a.txt saved
            | disk\r
            | two\r
            | user\r
            = disk\r\n
            = two\r\n
            = user\r\n
            unsaved
            ! -32602 {"reason":"conflict","path":"$ROOT/a.txt","why":"the file on disk and the editor's unsaved text were both changed on the same lines: save or reload it","hunks":[{"line":2,"base":"two\r\n","ours":"","theirs":"disk\r\n"}]}
            $ROOT/a.txt unsaved
            | disk\r
            | user\r
            | user\r
            = disk\r\n
            = disk\r\n
            = user\r\n
        "#]],
    );
}

#[test]
fn a_deleted_file_is_served_only_from_unsaved_text() {
    check(
        r#"
//- /a.txt
one
//- /b.txt
one
> open /a.txt
> open /b.txt
> type /b.txt "unsaved\n"
> rm /a.txt
> rm /b.txt
> read /a.txt
> show /a.txt
> read /b.txt
> save /b.txt
> cat /b.txt
> type /a.txt "back\n"
> save /a.txt
> cat /a.txt
"#,
        expect![[r#"
            $ROOT/a.txt saved
            | one
            $ROOT/b.txt saved
            | one
            unsaved
            ! -32002 {"uri":"$ROOT/a.txt"}
            $ROOT/a.txt saved
            | one
            from the editor, the file was changed too
            | unsaved
            $ROOT/b.txt saved
            | unsaved
            = unsaved\n
            unsaved
            $ROOT/a.txt saved
            | back
            = back\n
        "#]],
    );
}

#[test]
fn typing_what_the_file_holds_is_no_change() {
    check(
        r#"
//- /a.txt
one
> open /a.txt
> type /a.txt "two\n"
> type /a.txt "one\n"
> save /a.txt
> changes
> open /a.txt
> save /b.txt
> close /b.txt
"#,
        expect![[r#"
            $ROOT/a.txt saved
            | one
            unsaved
            saved
            $ROOT/a.txt saved
            | one
            no changes
            $ROOT/a.txt saved
            | one
            ! -32602 "$ROOT/b.txt is not open: open the document first"
            ! -32602 "$ROOT/b.txt is not open: open the document first"
        "#]],
    );
}

#[test]
fn an_agent_cannot_delete_a_file_changed_since_its_read() {
    check(
        r#"
//- /a.txt
one
//- /b.txt
one
//- /c.txt
one
//- /d.txt
one
> read /a.txt
> delete /a.txt
> read /b.txt
> disk /b.txt "user\n"
> delete /b.txt
> open /c.txt
> type /c.txt "user\n"
> delete /c.txt
> delete /d.txt
> delete /d.txt
> tree
> undo file /a.txt
> cat /a.txt
"#,
        expect![[r#"
            | one
            deleted
            | one
            ! -32602 {"kind":"conflict","path":"$ROOT/b.txt","etag":"sha256:6d9010b2b7a1483b256ae7477738dba7c530bd9ba53db1d6691441e74b83608a","reason":"conflict","why":"the text was changed since this session read it: read it again","hunks":[]}
            $ROOT/c.txt saved
            | one
            unsaved
            ! -32602 {"kind":"conflict","path":"$ROOT/c.txt","etag":"sha256:6d9010b2b7a1483b256ae7477738dba7c530bd9ba53db1d6691441e74b83608a","reason":"conflict","why":"the text was changed since this session read it: read it again","hunks":[]}
            deleted
            ! -32002 {"kind":"notFound","path":"$ROOT/d.txt","uri":"$ROOT/d.txt"}
            $ROOT/b.txt
            $ROOT/c.txt
            change 3 of $ROOT/a.txt
            = one\n
        "#]],
    );
}

#[test]
fn a_document_whose_file_the_agent_deletes_is_not_saved_anywhere() {
    check(
        r#"
//- /a.txt
one
> open /a.txt
> read /a.txt
> delete /a.txt
> show /a.txt
> read /a.txt
> save /a.txt
> cat /a.txt
"#,
        expect![[r#"
            $ROOT/a.txt saved
            | one
            from the editor
            | one
            deleted
            $ROOT/a.txt saved
            | one
            ! -32002 {"uri":"$ROOT/a.txt"}
            $ROOT/a.txt saved
            | one
            = one\n
        "#]],
    );
}
