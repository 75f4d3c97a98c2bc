//! The file extension: the engine's answers, and the same over a wire.

use expect_test::expect;

use super::check;

#[test]
fn directories_and_files_are_described() {
    check(
        r#"
//- /src/a.txt
one
two
//- /src/deep/b.txt mode=0640
bee
//- /.gitignore
*.log
//- /x.log
ignored
> open /src/a.txt
> type /src/a.txt "one\ntwo\nunsaved\n"
> extension list {"path":"$ROOT","depth":2}
> extension list {"path":"$ROOT/src","glob":"*.txt","depth":9,"limit":1}
> extension list {"path":"$ROOT/src/a.txt"}
> extension stat {"path":"$ROOT/src/a.txt"}
> extension stat {"path":"$ROOT/src/deep/b.txt"}
> extension stat {"path":"$ROOT/missing"}
> extension read {"path":"$ROOT/src/a.txt","offset":4,"limit":5}
> extension read {"path":"$ROOT/src/a.txt","encoding":"base64","offset":8}
> extension read {"path":"$ROOT/src/a.txt","offset":99}
> extension read {"path":"$ROOT/src"}
> extension read {"path":"$OUT/secret"}
"#,
        expect![[r#"
            $ROOT/src/a.txt saved
            | one
            | two
            unsaved
            {"name":".gitignore","type":"file","size":6}
            {"name":"src","type":"directory"}
            {"name":"src/a.txt","type":"file","size":16}
            {"name":"src/deep","type":"directory"}
            {"entries":[],"truncated":false}
            {"name":"a.txt","type":"file","size":16}
            {"entries":[],"nextCursor":"a.txt","truncated":true}
            ! -32602 {"kind":"notDirectory","path":"$ROOT/src/a.txt"}
            {"type":"file","size":16,"mode":420,"encoding":"UTF-8","etag":"sha256:40a806bc12f4c2d9718fd10eba9f8184f4dfd43e3760dc4bd61e0a264e1e6f05","dirty":true,"readOnly":false}
            {"type":"file","size":4,"mode":416,"encoding":"UTF-8","etag":"sha256:c150e5a8a604acebd8d15bd7bf8ea96b2874bdcc91dee6319977d353251283b0","dirty":false,"readOnly":false}
            ! -32002 {"kind":"notFound","path":"$ROOT/missing","uri":"$ROOT/missing"}
            {"data":"two\nu","encoding":"utf-8","etag":"sha256:40a806bc12f4c2d9718fd10eba9f8184f4dfd43e3760dc4bd61e0a264e1e6f05","size":16,"truncated":true,"dirty":true}
            {"data":"dW5zYXZlZAo=","encoding":"base64","etag":"sha256:40a806bc12f4c2d9718fd10eba9f8184f4dfd43e3760dc4bd61e0a264e1e6f05","size":16,"truncated":false,"dirty":true}
            ! -32602 {"kind":"outOfRange","position":99,"size":16}
            ! -32602 {"kind":"notFile","path":"$ROOT/src"}
            ! -32602 {"kind":"outsideRoots","path":"$OUT/secret","reason":"outside"}
        "#]],
    );
}

#[test]
fn a_watch_reports_who_changed_what() {
    check(
        r#"
//- /src/a.txt
one
//- /other.txt
not watched
> extension watch {"path":"$ROOT/src","recursive":true,"glob":"*.txt"}
> turn 1
> call t1
> write /src/a.txt "two\n"
> changed /src/a.txt
> disk /src/b.txt "by the user\n"
> changed /src/b.txt
> disk /other.txt "by the user\n"
> disk /src/c.log "by the user\n"
> s2 extension batch {"operations":[{"op":"write","path":"$ROOT/src/deep/d.txt","data":"d\n","createParents":true}]}
> changed /src/deep/d.txt
> open /src/a.txt
> type /src/a.txt "unsaved\n"
> changed /src/a.txt
> extension batch {"operations":[{"op":"move","from":"$ROOT/src/b.txt","to":"$ROOT/src/moved.txt"}]}
> changed /src/moved.txt
> rm /src/moved.txt
> changed /src/moved.txt
> extension unwatch {"watchId":"w1"}
> extension unwatch {"watchId":"w1"}
> extension watch {"path":"$ROOT/missing"}
"#,
        expect![[r#"
            {"watchId":"w1"}
            replaced, unseen
            {"path":"$ROOT/src/a.txt","kind":"modified","by":"agent"}
            {"path":"$ROOT/src/b.txt","kind":"created","by":"user"}
            {"op":"write","etag":"sha256:8d74beec1be996322ad76813bafb92d40839895d6dd7ee808b17ca201eac98be","merged":false,"formatted":false}
            {"results":[]}
            {"path":"$ROOT/src/deep/d.txt","kind":"created","by":"session"}
            $ROOT/src/a.txt saved
            | two
            unsaved
            {"path":"$ROOT/src/a.txt","kind":"modified","by":"user"}
            {"op":"move"}
            {"results":[]}
            {"path":"$ROOT/src/moved.txt","kind":"renamed","by":"agent","from":"$ROOT/src/b.txt"}
            {"path":"$ROOT/src/moved.txt","kind":"removed","by":"user"}
            {}
            ! -32602 {"kind":"unknownWatch","watchId":"w1"}
            ! -32002 {"kind":"notFound","path":"$ROOT/missing","uri":"$ROOT/missing"}
        "#]],
    );
}

#[test]
fn several_files_change_at_once() {
    check(
        r#"
//- /a.txt
one
//- /b.txt mode=0755
bee
//- /old/c.txt
sea
> turn 1
> call t1
> extension batch {"operations":[{"op":"write","path":"$ROOT/a.txt","data":"two\n","mode":"append"},{"op":"move","from":"$ROOT/b.txt","to":"$ROOT/new.txt"},{"op":"copy","from":"$ROOT/new2","to":"$ROOT/x"}]}
> extension batch {"operations":[{"op":"write","path":"$ROOT/a.txt","data":"two\n","mode":"append"},{"op":"mkdir","path":"$ROOT/new"},{"op":"move","from":"$ROOT/b.txt","to":"$ROOT/new/b.txt"},{"op":"write","path":"$ROOT/bytes","data":"AAEC","encoding":"base64"},{"op":"remove","path":"$ROOT/old","recursive":true}]}
> tree
> extension batch {"operations":[{"op":"write","path":"$ROOT/a.txt","data":"x","ifMatch":"sha256:0"}]}
> extension batch {"operations":[{"op":"write","path":"$ROOT/a.txt","data":"x"},{"op":"remove","path":"$ROOT/a.txt"}]}
> undo turn 1
> tree
"#,
        expect![[r#"
            ! -32002 {"kind":"notFound","index":2,"path":"$ROOT/new2","uri":"$ROOT/new2"}
            {"op":"write","etag":"sha256:c3f9c8c283a2b1f2f1896f27a01cbe3cddc0c9d93f752e4639035a0f5b36f6e8","merged":false,"formatted":false}
            {"op":"mkdir"}
            {"op":"move"}
            {"op":"write","etag":"sha256:ae4b3280e56e2faf83f414a6e3dabe9d5fbe18976544c05fed121accb85b53fc","merged":false,"formatted":false}
            {"op":"remove"}
            {"results":[]}
            $ROOT/a.txt
            $ROOT/bytes
            $ROOT/new/
            $ROOT/new/b.txt
            ! -32602 {"kind":"conflict","index":0,"path":"$ROOT/a.txt","etag":"sha256:c3f9c8c283a2b1f2f1896f27a01cbe3cddc0c9d93f752e4639035a0f5b36f6e8","reason":"conflict","why":"the file has changed, read it again","hunks":[]}
            ! -32602 {"kind":"overlap","index":1,"path":"$ROOT/a.txt","other":0}
            change 6 of $ROOT/old/c.txt
            change 7 of $ROOT/bytes
            change 8 of $ROOT/b.txt
            change 9 of $ROOT/new/b.txt
            change 10 of $ROOT/a.txt
            $ROOT/a.txt
            $ROOT/b.txt
            $ROOT/old/
            $ROOT/old/c.txt
        "#]],
    );
}

#[test]
fn files_and_directories_take_each_others_places_and_return() {
    check(
        r#"
//- /file mode=0755
text
//- /dir/a.txt
one
//- /other
x
> extension batch {"operations":[{"op":"mkdir","path":"$ROOT/empty/below","parents":true}]}
> turn 1
> call t1
> extension batch {"operations":[{"op":"remove","path":"$ROOT/file"},{"op":"remove","path":"$ROOT/dir","recursive":true}]}
> extension batch {"operations":[{"op":"remove","path":"$ROOT/empty","recursive":true}]}
> extension batch {"operations":[{"op":"mkdir","path":"$ROOT/file"},{"op":"mkdir","path":"$ROOT/file/below"}]}
> extension batch {"operations":[{"op":"write","path":"$ROOT/dir","data":"a file\n"},{"op":"mkdir","path":"$ROOT/file/second"},{"op":"write","path":"$ROOT/file/third/f","data":"x","createParents":true}]}
> extension batch {"operations":[{"op":"write","path":"$ROOT/empty","data":"a file\n"}]}
> tree
> undo turn 1
> tree
> extension stat {"path":"$ROOT/empty/below"}
> extension read {"path":"$ROOT/file","encoding":"utf-8"}
> extension read {"path":"$ROOT/dir/a.txt","encoding":"utf-8"}
> redo turn 1
> tree
> extension read {"path":"$ROOT/dir/a.txt","encoding":"utf-8"}
> undo turn 1
> tree
"#,
        expect![[r#"
            {"op":"mkdir"}
            {"results":[]}
            {"op":"remove"}
            {"op":"remove"}
            {"results":[]}
            {"op":"remove"}
            {"results":[]}
            {"op":"mkdir"}
            {"op":"mkdir"}
            {"results":[]}
            {"op":"write","etag":"sha256:da69f286f03c0d2131b3f95afe7c8d31b4f65cbf5ca49a12c41d8bf02d366a34","merged":false,"formatted":false}
            {"op":"mkdir"}
            {"op":"write","etag":"sha256:2d711642b726b04401627ca9fbac32f5c8530fb1903cc4db02258717921a4881","merged":false,"formatted":false}
            {"results":[]}
            {"op":"write","etag":"sha256:da69f286f03c0d2131b3f95afe7c8d31b4f65cbf5ca49a12c41d8bf02d366a34","merged":false,"formatted":false}
            {"results":[]}
            $ROOT/dir
            $ROOT/empty
            $ROOT/file/
            $ROOT/file/below/
            $ROOT/file/second/
            $ROOT/file/third/
            $ROOT/file/third/f
            $ROOT/other
            change 12 of $ROOT/dir
            change 13 of $ROOT/empty
            change 14 of $ROOT/file/third/f
            change 15 of $ROOT/file
            change 16 of $ROOT/dir/a.txt
            change 17 of $ROOT/file/below
            change 18 of $ROOT/empty/below
            $ROOT/dir/
            $ROOT/dir/a.txt
            $ROOT/empty/
            $ROOT/empty/below/
            $ROOT/file
            $ROOT/other
            {"type":"directory","size":4096,"mode":493,"dirty":false,"readOnly":false}
            {"data":"text\n","encoding":"utf-8","etag":"sha256:b9e68e1bea3e5b19ca6b2f98b73a54b73daafaa250484902e09982e07a12e733","size":5,"truncated":false,"dirty":false}
            {"data":"one\n","encoding":"utf-8","etag":"sha256:2c8b08da5ce60398e1f19af0e5dccc744df274b826abe585eaba68c525434806","size":4,"truncated":false,"dirty":false}
            change 19 of $ROOT/dir/a.txt
            change 20 of $ROOT/file
            change 21 of $ROOT/file/third/f
            change 22 of $ROOT/empty
            change 23 of $ROOT/dir
            change 24 of $ROOT/empty/below
            change 25 of $ROOT/file/below
            $ROOT/dir
            $ROOT/empty
            $ROOT/file/
            $ROOT/file/below/
            $ROOT/file/second/
            $ROOT/file/third/
            $ROOT/file/third/f
            $ROOT/other
            ! -32602 {"kind":"notDirectory","path":"$ROOT/dir/a.txt"}
            change 26 of $ROOT/dir
            change 27 of $ROOT/empty
            change 28 of $ROOT/file/third/f
            change 29 of $ROOT/file
            change 30 of $ROOT/dir/a.txt
            change 31 of $ROOT/file/below
            change 32 of $ROOT/empty/below
            $ROOT/dir/
            $ROOT/dir/a.txt
            $ROOT/empty/
            $ROOT/empty/below/
            $ROOT/file
            $ROOT/other
        "#]],
    );
}

#[test]
fn an_undo_that_is_refused_leaves_directories_where_files_were() {
    check(
        r#"
//- /file
text
//- /a.txt
one
> turn 1
> call t1
> extension batch {"operations":[{"op":"remove","path":"$ROOT/file"},{"op":"write","path":"$ROOT/a.txt","data":"two\n"}]}
> extension batch {"operations":[{"op":"mkdir","path":"$ROOT/file"}]}
> disk /a.txt "three\n"
> undo turn 1
> tree
> disk /a.txt "two\n"
> disk /file/mine "text\n"
> undo turn 1
> tree
> rm /file/mine
> undo turn 1
> tree
> cat /a.txt
"#,
        expect![[r#"
            {"op":"remove"}
            {"op":"write","etag":"sha256:27dd8ed44a83ff94d557f9fd0412ed5a8cbca69ea04922d88c01184a07300a5a","merged":false,"formatted":false}
            {"results":[]}
            {"op":"mkdir"}
            {"results":[]}
            ! -32602 {"reason":"conflict","path":"$ROOT/a.txt","why":"change 2 cannot be taken back, its lines were changed since","hunks":[{"line":1,"base":"two\n","ours":"three\n","theirs":"one\n"}]}
            $ROOT/a.txt
            $ROOT/file/
            ! -32602 "$ROOT/file is a directory: list it, or name a file in it"
            $ROOT/a.txt
            $ROOT/file/
            $ROOT/file/mine
            change 4 of $ROOT/file
            change 5 of $ROOT/a.txt
            $ROOT/a.txt
            $ROOT/file
            = one\n
        "#]],
    );
}
