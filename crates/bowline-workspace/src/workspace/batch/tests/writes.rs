//! Writes in a batch: of text and of bytes, with their conditions.

use super::*;

#[test]
fn a_text_is_replaced_merged_or_refused() {
    check(
        r#"
            disk ~/a "one\ntwo\nthree\nfour\nfive\n"
            disk ~/new "other\n"
            read ~/a
            disk ~/a "one\ntwo\nthree\nfour\nUSER\n"
            batch [{"op":"write","path":"~/a","data":"ONE\ntwo\nthree\nfour\nfive\n"},{"op":"write","path":"~/b","data":"new\n"}]
            batch [{"op":"write","path":"~/c","data":"c\n"},{"op":"write","path":"~/a","data":"ONE\ntwo\nthree\nfour\nAGENT\n"}]
            batch [{"op":"write","path":"~/b","data":"new\n"}]
            tree
            changes
            undo
        "#,
        expect![[r#"
            "one\ntwo\nthree\nfour\nfive\n"
            write: 1 changes, "ONE\ntwo\nthree\nfour\nUSER\n", merged
            write: 1 changes, "new\n"
            ! -32602 operation 1: ~/a: the text was changed since this session read it, and both changes touch the same lines: read it again {"kind":"conflict","index":1,"path":"~/a","etag":"…","reason":"conflict","why":"the text was changed since this session read it, and both changes touch the same lines: read it again","hunks":[{"line":5,"base":"five\n","ours":"USER\n","theirs":"AGENT\n"}]}
            write: 0 changes, "new\n"
            ~/a "ONE\ntwo\nthree\nfour\nUSER\n"
            ~/b "new\n"
            ~/new "other\n"
            batch 1 changes ~/a
            batch 1 creates ~/b
            undo: 2 files
        "#]],
    );
}

#[test]
fn additions_need_no_read_and_extend_what_is_known() {
    check(
        r#"
            disk ~/a "one\ntwo\n"
            batch [{"op":"write","path":"~/a","data":"three\n","mode":"append"},{"op":"write","path":"~/log","data":"first\n","mode":"append"}]
            batch [{"op":"write","path":"~/a","data":"zero\n","mode":"insert","position":0}]
            read ~/a
            disk ~/a "zero\none\ntwo\nthree\nuser\n"
            batch [{"op":"write","path":"~/a","data":"four\n","mode":"append"}]
            batch [{"op":"write","path":"~/a","data":"ZERO\none\ntwo\nthree\nfour\n"}]
            batch [{"op":"write","path":"~/log","data":"é","mode":"append"}]
            batch [{"op":"write","path":"~/log","data":"x","mode":"insert","position":7}]
            batch [{"op":"write","path":"~/log","data":"x","mode":"insert","position":99}]
            batch [{"op":"write","path":"~/missing","data":"x","mode":"insert","position":0}]
            tree
        "#,
        expect![[r#"
            write: 1 changes, "one\ntwo\nthree\n"
            write: 1 changes, "first\n"
            write: 1 changes, "zero\none\ntwo\nthree\n"
            "zero\none\ntwo\nthree\n"
            write: 1 changes, "zero\none\ntwo\nthree\nuser\nfour\n", merged
            write: 1 changes, "ZERO\none\ntwo\nthree\nuser\nfour\n", merged
            write: 1 changes, "first\né"
            ! -32602 operation 0: 7 is inside a character {"kind":"outOfRange","index":0,"position":7}
            ! -32602 operation 0: 99 is past the end: the content has 8 bytes {"kind":"outOfRange","index":0,"position":99,"size":8}
            ! -32002 operation 0: Resource not found: ~/missing {"kind":"notFound","index":0,"path":"~/missing","uri":"~/missing"}
            ~/a "ZERO\none\ntwo\nthree\nuser\nfour\n"
            ~/log "first\né"
        "#]],
    );
}

#[test]
fn unsaved_text_is_saved_first_and_told_to_the_editor() {
    check(
        r#"
            disk ~/a "one\ntwo\nthree\n"
            disk ~/b "b\n"
            read ~/a
            open ~/a
            open ~/b
            type ~/a "one\ntwo\nthree\ntyped\n"
            type ~/b "b\ntyped\n"
            batch [{"op":"write","path":"~/a","data":"ONE\ntwo\nthree\n"},{"op":"write","path":"~/b","data":"agent\n","mode":"append"}]
            events
            changes
            tree
            undo
            events
            tree
        "#,
        expect![[r#"
            "one\ntwo\nthree\n"
            write: 1 changes, "ONE\ntwo\nthree\ntyped\n", merged
            write: 1 changes, "b\ntyped\nagent\n", merged
            ~/a shows "ONE\ntwo\nthree\ntyped\n"
            ~/b shows "b\ntyped\nagent\n"
            user changes ~/a
            user changes ~/b
            batch 1 changes ~/a
            batch 1 changes ~/b
            ~/a "ONE\ntwo\nthree\ntyped\n"
            ~/b "b\ntyped\nagent\n"
            undo: 2 files
            ~/b shows "b\ntyped\n"
            ~/a shows "one\ntwo\nthree\ntyped\n"
            ~/a "one\ntwo\nthree\ntyped\n"
            ~/b "b\ntyped\n"
        "#]],
    );
}

#[test]
fn conditions_are_checked_against_the_text_the_agent_sees() {
    let etag = |text: &str| bowline_protocol::file_extension::Etag::digest(text.as_bytes()).to_string();
    let script = r#"
        disk ~/a "one\n"
        batch [{"op":"write","path":"~/a","data":"x","createOnly":true}]
        batch [{"op":"write","path":"~/a","data":"two\n","ifMatch":"ONE"}]
        disk ~/a "three\n"
        batch [{"op":"write","path":"~/a","data":"x","ifMatch":"TWO"}]
        batch [{"op":"write","path":"~/a","data":"x","mode":"append","ifMatch":"other"}]
        batch [{"op":"write","path":"~/gone","data":"x","ifMatch":"ONE"}]
        open ~/a
        type ~/a "typed\n"
        batch [{"op":"write","path":"~/a","data":"x","ifMatch":"THREE"}]
        batch [{"op":"write","path":"~/a","data":"agent\n","ifMatch":"TYPED"}]
        open ~/draft
        type ~/draft "mine\n"
        batch [{"op":"write","path":"~/draft","data":"x","createOnly":true}]
        batch [{"op":"write","path":"~/new","data":"new\n","createOnly":true}]
        rm ~/new
        batch [{"op":"write","path":"~/new","data":"again\n"}]
        batch [{"op":"write","path":"~/new","data":"again\n","createOnly":true}]
        tree
    "#;
    let script = script
        .replace("\"ONE\"", &format!("{:?}", etag("one\n")))
        .replace("\"TWO\"", &format!("{:?}", etag("two\n")))
        .replace("\"THREE\"", &format!("{:?}", etag("three\n")))
        .replace("\"TYPED\"", &format!("{:?}", etag("typed\n")));
    check(
        &script,
        expect![[r#"
        ! -32602 operation 0: ~/a already exists {"kind":"alreadyExists","index":0,"path":"~/a"}
        write: 1 changes, "two\n"
        ! -32602 operation 0: ~/a: the file has changed, read it again {"kind":"conflict","index":0,"path":"~/a","etag":"…","reason":"conflict","why":"the file has changed, read it again","hunks":[]}
        ! -32602 operation 0: ~/a: the file has changed, read it again {"kind":"conflict","index":0,"path":"~/a","etag":"…","reason":"conflict","why":"the file has changed, read it again","hunks":[]}
        ! -32602 operation 0: ~/gone: the file does not exist {"kind":"conflict","index":0,"path":"~/gone","reason":"conflict","why":"the file does not exist","hunks":[]}
        ! -32602 operation 0: ~/a: the file has changed, read it again {"kind":"conflict","index":0,"path":"~/a","etag":"…","reason":"conflict","why":"the file has changed, read it again","hunks":[]}
        write: 1 changes, "agent\n"
        ! -32602 operation 0: ~/draft already exists {"kind":"alreadyExists","index":0,"path":"~/draft"}
        write: 1 changes, "new\n"
        ! -32602 operation 0: ~/new: the file was deleted since this session read it: read it again, then write it {"kind":"conflict","index":0,"path":"~/new","reason":"conflict","why":"the file was deleted since this session read it: read it again, then write it","hunks":[]}
        write: 1 changes, "again\n"
        ~/a "agent\n"
        ~/new "again\n"
    "#]],
    );
}

#[test]
fn bytes_are_written_as_they_are() {
    check(
        r#"
            bytes ~/b 89 50 4e 47 00 00 00 00
            disk ~/t "text\n"
            batch [{"op":"write","path":"~/new","data":"iVBORwAAAAA=","encoding":"base64"}]
            batch [{"op":"write","path":"~/b","data":"AgM=","encoding":"base64","mode":"append"}]
            batch [{"op":"write","path":"~/b","data":"CQ==","encoding":"base64","mode":"insert","position":1}]
            batch [{"op":"write","path":"~/b","data":"CQ==","encoding":"base64","mode":"insert","position":99}]
            tree
            undo
            tree
            batch [{"op":"write","path":"~/b","data":"text"}]
            read ~/t
            disk ~/t "user\n"
            batch [{"op":"write","path":"~/t","data":"AA==","encoding":"base64"}]
            open ~/t
            type ~/t "typed\n"
            batch [{"op":"write","path":"~/t","data":"AA==","encoding":"base64","mode":"append"}]
            tree
        "#,
        expect![[r#"
            write: 1 changes, not text
            write: 1 changes, not text
            write: 1 changes, not text
            ! -32602 operation 0: 99 is past the end: the content has 11 bytes {"kind":"outOfRange","index":0,"position":99,"size":11}
            ~/b [89, 9, 50, 4e, 47, 0, 0, 0, 0, 2, 3]
            ~/new [89, 50, 4e, 47, 0, 0, 0, 0]
            ~/t "text\n"
            undo: 1 files
            ~/b [89, 50, 4e, 47, 0, 0, 0, 0, 2, 3]
            ~/new [89, 50, 4e, 47, 0, 0, 0, 0]
            ~/t "text\n"
            ! -32602 operation 0: ~/b cannot be read as text: the content is binary, read it with a command that knows its kind {"kind":"notText","index":0,"path":"~/b","reason":"not_text","why":"the content is binary, read it with a command that knows its kind"}
            "text\n"
            ! -32602 operation 0: ~/t: the text was changed since this session read it: read it again {"kind":"conflict","index":0,"path":"~/t","etag":"…","reason":"conflict","why":"the text was changed since this session read it: read it again","hunks":[]}
            ! -32602 operation 0: ~/t: the text was changed since this session read it: read it again {"kind":"conflict","index":0,"path":"~/t","etag":"…","reason":"conflict","why":"the text was changed since this session read it: read it again","hunks":[]}
            ~/b [89, 50, 4e, 47, 0, 0, 0, 0, 2, 3]
            ~/new [89, 50, 4e, 47, 0, 0, 0, 0]
            ~/t "user\n"
        "#]],
    );
}

#[test]
fn format_and_mode_are_kept_and_privileges_dropped() {
    check(
        r#"
            disk ~/crlf "one\r\ntwo\r\n"
            disk ~/marked "\ufeffone\n"
            disk ~/run "one\n"
            mode ~/run 4755
            disk ~/private "one\n"
            mode ~/private 600
            disk ~/fixed "one\n"
            mode ~/fixed 444
            disk ~/first "one\n"
            hardlink ~/second ~/first
            batch [{"op":"write","path":"~/crlf","data":"three\n","mode":"append"},{"op":"write","path":"~/marked","data":"two\n","mode":"append"},{"op":"write","path":"~/run","data":"two\n"},{"op":"write","path":"~/private","data":"two\n"}]
            batch [{"op":"write","path":"~/fixed","data":"two\n"}]
            batch [{"op":"write","path":"~/first","data":"two\n"}]
            tree
            undo
        "#,
        expect![[r#"
            write: 1 changes, "one\r\ntwo\r\nthree\r\n"
            write: 1 changes, "one\ntwo\n"
            write: 1 changes, "two\n", the file had setuid or setgid, which the write removed
            write: 1 changes, "two\n"
            ! -32030 operation 0: permission denied: ~/fixed is read-only: make it writable first {"kind":"permissionDenied","index":0,"why":"~/fixed is read-only: make it writable first"}
            ! -32030 operation 0: permission denied: ~/first has 2 names (hard links): writing it would change all of them: break the links first, or use a command {"kind":"permissionDenied","index":0,"why":"~/first has 2 names (hard links): writing it would change all of them: break the links first, or use a command"}
            ~/crlf "one\r\ntwo\r\nthree\r\n"
            ~/first "one\n"
            ~/fixed 444 "one\n"
            ~/marked "\u{feff}one\ntwo\n"
            ~/private 600 "two\n"
            ~/run 755 "two\n"
            ~/second "one\n"
            undo: 4 files
        "#]],
    );
}

#[test]
fn what_cannot_be_written_is_named() {
    check(
        r#"
            mkdir ~/dir
            disk ~/file "x"
            batch [{"op":"write","path":"~/dir","data":"x"}]
            batch [{"op":"write","path":"~/file/x","data":"x"}]
            batch [{"op":"write","path":"~/a/b","data":"x"}]
            batch [{"op":"write","path":"/etc/passwd","data":"x"}]
            batch [{"op":"write","path":"~/ok","data":"x"},{"op":"write","path":"~/.bowline-0123456789abcdef0123456789abcdef.tmp","data":"x"}]
            batch []
            tree
        "#,
        expect![[r#"
            ! -32602 operation 0: ~/dir is not a file {"kind":"notFile","index":0,"path":"~/dir"}
            ! -32602 operation 0: ~/file/x is not a directory {"kind":"notDirectory","index":0,"path":"~/file/x"}
            ! -32002 operation 0: Resource not found: ~/a {"kind":"notFound","index":0,"path":"~/a","uri":"~/a"}
            ! -32602 operation 0: /etc/passwd is outside the session's directories {"kind":"outsideRoots","index":0,"path":"/etc/passwd","reason":"outside"}
            ! -32030 operation 1: permission denied: ~/.bowline-0123456789abcdef0123456789abcdef.tmp is named as Bowline's temporary files are: choose another name {"kind":"permissionDenied","index":1,"why":"~/.bowline-0123456789abcdef0123456789abcdef.tmp is named as Bowline's temporary files are: choose another name"}
            ~/dir/
            ~/file "x"
        "#]],
    );
}

#[test]
fn content_has_a_size_limit() {
    let small = WorkspaceOptions { max_write_bytes: 8, ..WorkspaceOptions::default() };
    let shown = run(
        small,
        r#"
            disk ~/a "12345\n"
            disk ~/large "123456789\n"
            batch [{"op":"write","path":"~/b","data":"123456789"}]
            batch [{"op":"write","path":"~/a","data":"789","mode":"append"}]
            batch [{"op":"write","path":"~/a","data":"AAAA","encoding":"base64","mode":"append"}]
            batch [{"op":"copy","from":"~/large","to":"~/b"}]
            batch [{"op":"write","path":"~/a","data":"78","mode":"append"}]
            tree
        "#,
    );
    expect![[r#"
        ! -32602 operation 0: ~/b has 9 bytes, the limit is 8 {"kind":"tooLarge","index":0,"path":"~/b","bytes":9,"limit":8}
        ! -32602 operation 0: ~/a has 9 bytes, the limit is 8 {"kind":"tooLarge","index":0,"path":"~/a","bytes":9,"limit":8}
        ! -32602 operation 0: ~/a has 9 bytes, the limit is 8 {"kind":"tooLarge","index":0,"path":"~/a","bytes":9,"limit":8}
        ! -32602 operation 0: ~/large has 10 bytes, the limit is 8 {"kind":"tooLarge","index":0,"path":"~/large","bytes":10,"limit":8}
        write: 1 changes, "12345\n78"
        ~/a "12345\n78"
        ~/large "123456789\n"
    "#]].assert_eq(&shown);
}

#[test]
fn unsaved_text_over_a_changed_file_gets_both() {
    check(
        r#"
            disk ~/a "one\ntwo\nthree\nfour\nfive\n"
            open ~/a
            type ~/a "typed\none\ntwo\nthree\nfour\nfive\n"
            disk ~/a "one\ntwo\nthree\nfour\nDISK\n"
            batch [{"op":"write","path":"~/a","data":"agent\n","mode":"append"}]
            undo
            tree
            type ~/a "mine\n"
            disk ~/a "theirs\n"
            batch [{"op":"write","path":"~/other","data":"x"},{"op":"write","path":"~/a","data":"agent\n","mode":"append"}]
            tree
        "#,
        expect![[r#"
            write: 1 changes, "typed\none\ntwo\nthree\nfour\nDISK\nagent\n", merged
            undo: 1 files
            ~/a "typed\none\ntwo\nthree\nfour\nDISK\n"
            ! -32602 operation 1: ~/a: the file on disk and the editor's unsaved text were both changed on the same lines: save or reload it {"kind":"conflict","index":1,"path":"~/a","etag":"…","reason":"conflict","why":"the file on disk and the editor's unsaved text were both changed on the same lines: save or reload it","hunks":[{"line":1,"base":"typed\none\ntwo\nthree\nfour\nDISK\n","ours":"mine\n","theirs":"theirs\n"}]}
            ~/a "theirs\n"
        "#]],
    );
}
