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
> extension stat {"path":"$ROOT/src"}
> extension stat {"path":"$ROOT/missing"}
> extension read {"path":"$ROOT/src/a.txt","offset":4,"limit":5}
> extension read {"path":"$ROOT/src/a.txt","encoding":"base64","offset":8}
> extension read {"path":"$ROOT/src/a.txt","offset":99}
> extension read {"path":"$ROOT/src"}
> extension read {"path":"$OUT/secret"}
"#,
        expect![[""]],
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
        expect![[""]],
    );
}
