//! Moves, copies and removals.

use super::*;
use crate::workspace::batch::tree::{MAX_DIRECTORIES, MAX_FILES};

#[test]
fn files_keep_their_bytes_and_their_mode() {
    check(
        r#"
            disk ~/a "text\n"
            mode ~/a 750
            bytes ~/b 89 50 4e 47 00 00 00 00
            disk ~/run "x\n"
            mode ~/run 4755
            preview [{"op":"move","from":"~/a","to":"~/a2"},{"op":"copy","from":"~/b","to":"~/b2"},{"op":"copy","from":"~/run","to":"~/run2"}]
            batch [{"op":"move","from":"~/a","to":"~/a2"},{"op":"copy","from":"~/b","to":"~/b2"},{"op":"copy","from":"~/run","to":"~/run2"}]
            tree
            changes
            undo
            tree
            redo
            tree
        "#,
        expect![[r#"
            0 ~/a2: none -> "text\n", moved from ~/a
            0 ~/a: "text\n" -> none
            1 ~/b2: none -> 8 bytes, copied from ~/b
            2 ~/run2: none -> "x\n", copied from ~/run, drops privileges
            move: 2 changes
            copy: 1 changes
            copy: 1 changes
            ~/a2 750 "text\n"
            ~/b [89, 50, 4e, 47, 0, 0, 0, 0]
            ~/b2 [89, 50, 4e, 47, 0, 0, 0, 0]
            ~/run 4755 "x\n"
            ~/run2 755 "x\n"
            batch 1 creates ~/a2
            batch 1 deletes ~/a
            batch 1 creates ~/b2
            batch 1 creates ~/run2
            undo: 4 files
            ~/a 750 "text\n"
            ~/b [89, 50, 4e, 47, 0, 0, 0, 0]
            ~/run 4755 "x\n"
            redo: 4 files
            ~/a2 750 "text\n"
            ~/b [89, 50, 4e, 47, 0, 0, 0, 0]
            ~/b2 [89, 50, 4e, 47, 0, 0, 0, 0]
            ~/run 4755 "x\n"
            ~/run2 755 "x\n"
        "#]],
    );
}

#[test]
fn directories_are_moved_copied_and_removed_whole() {
    check(
        r#"
            disk ~/src/one "1\n"
            disk ~/src/deep/two "2\n"
            mkdir ~/src/empty
            mode ~/src/deep 700
            disk ~/old/x "x\n"
            disk ~/old/sub/y "y\n"
            preview [{"op":"move","from":"~/src","to":"~/dst"},{"op":"copy","from":"~/old","to":"~/new"}]
            batch [{"op":"move","from":"~/src","to":"~/dst"},{"op":"copy","from":"~/old","to":"~/new"}]
            tree
            undo
            tree
            redo
            tree
            batch [{"op":"remove","path":"~/old"}]
            batch [{"op":"remove","path":"~/old","recursive":true},{"op":"remove","path":"~/new/x"}]
            tree
            undo
            tree
            batch [{"op":"remove","path":"~/dst/empty"}]
        "#,
        expect![[r#"
            0 ~/dst/deep/two: none -> "2\n", moved from ~/src/deep/two
            0 ~/src/deep/two: "2\n" -> none
            0 ~/dst/one: none -> "1\n", moved from ~/src/one
            0 ~/src/one: "1\n" -> none
            1 ~/new/sub/y: none -> "y\n", copied from ~/old/sub/y
            1 ~/new/x: none -> "x\n", copied from ~/old/x
            creates ~/dst
            creates ~/dst/deep
            creates ~/dst/empty
            creates ~/new
            creates ~/new/sub
            removes ~/src/empty
            removes ~/src/deep
            removes ~/src
            move: 4 changes
            copy: 2 changes
            ~/dst/
            ~/dst/deep/ 700
            ~/dst/deep/two "2\n"
            ~/dst/empty/
            ~/dst/one "1\n"
            ~/new/
            ~/new/sub/
            ~/new/sub/y "y\n"
            ~/new/x "x\n"
            ~/old/
            ~/old/sub/
            ~/old/sub/y "y\n"
            ~/old/x "x\n"
            undo: 6 files
            ~/old/
            ~/old/sub/
            ~/old/sub/y "y\n"
            ~/old/x "x\n"
            ~/src/
            ~/src/deep/ 700
            ~/src/deep/two "2\n"
            ~/src/empty/
            ~/src/one "1\n"
            redo: 6 files
            ~/dst/
            ~/dst/deep/ 700
            ~/dst/deep/two "2\n"
            ~/dst/empty/
            ~/dst/one "1\n"
            ~/new/
            ~/new/sub/
            ~/new/sub/y "y\n"
            ~/new/x "x\n"
            ~/old/
            ~/old/sub/
            ~/old/sub/y "y\n"
            ~/old/x "x\n"
            ! -32602 operation 0: ~/old is not empty: remove it with recursive {"kind":"notEmpty","index":0,"path":"~/old"}
            remove: 2 changes
            remove: 1 changes
            ~/dst/
            ~/dst/deep/ 700
            ~/dst/deep/two "2\n"
            ~/dst/empty/
            ~/dst/one "1\n"
            ~/new/
            ~/new/sub/
            ~/new/sub/y "y\n"
            undo: 3 files
            ~/dst/
            ~/dst/deep/ 700
            ~/dst/deep/two "2\n"
            ~/dst/empty/
            ~/dst/one "1\n"
            ~/new/
            ~/new/sub/
            ~/new/sub/y "y\n"
            ~/new/x "x\n"
            ~/old/
            ~/old/sub/
            ~/old/sub/y "y\n"
            ~/old/x "x\n"
            remove: 0 changes
            directories: 1 changes
        "#]],
    );
}

#[test]
fn what_others_changed_is_neither_moved_nor_removed() {
    check(
        r#"
            disk ~/a "one\n"
            disk ~/d/b "b\n"
            read ~/a
            disk ~/a "user\n"
            batch [{"op":"move","from":"~/a","to":"~/c"}]
            batch [{"op":"remove","path":"~/a"}]
            batch [{"op":"copy","from":"~/a","to":"~/c"}]
            open ~/d/b
            type ~/d/b "typed\n"
            batch [{"op":"move","from":"~/d","to":"~/e"}]
            batch [{"op":"copy","from":"~/d","to":"~/e"}]
            batch [{"op":"remove","path":"~/d","recursive":true}]
            batch [{"op":"copy","from":"~/c","to":"~/d/b","overwrite":true}]
            tree
        "#,
        expect![[r#"
            "one\n"
            ! -32602 operation 0: ~/a: the text was changed since this session read it: read it again {"kind":"conflict","index":0,"path":"~/a","etag":"…","reason":"conflict","why":"the text was changed since this session read it: read it again","hunks":[]}
            ! -32602 operation 0: ~/a: the text was changed since this session read it: read it again {"kind":"conflict","index":0,"path":"~/a","etag":"…","reason":"conflict","why":"the text was changed since this session read it: read it again","hunks":[]}
            copy: 1 changes
            ! -32602 operation 0: ~/d/b: the text was changed since this session read it: read it again {"kind":"conflict","index":0,"path":"~/d/b","etag":"…","reason":"conflict","why":"the text was changed since this session read it: read it again","hunks":[]}
            ! -32602 operation 0: ~/d/b: the text was changed since this session read it: read it again {"kind":"conflict","index":0,"path":"~/d/b","etag":"…","reason":"conflict","why":"the text was changed since this session read it: read it again","hunks":[]}
            ! -32602 operation 0: ~/d/b: the text was changed since this session read it: read it again {"kind":"conflict","index":0,"path":"~/d/b","etag":"…","reason":"conflict","why":"the text was changed since this session read it: read it again","hunks":[]}
            ! -32602 operation 0: ~/d/b: the text was changed since this session read it: read it again {"kind":"conflict","index":0,"path":"~/d/b","etag":"…","reason":"conflict","why":"the text was changed since this session read it: read it again","hunks":[]}
            ~/a "user\n"
            ~/c "user\n"
            ~/d/
            ~/d/b "b\n"
        "#]],
    );
}

#[test]
fn destinations_are_replaced_only_on_request() {
    check(
        r#"
            disk ~/a "a\n"
            disk ~/b "b\n"
            mkdir ~/dir
            batch [{"op":"move","from":"~/a","to":"~/b"}]
            batch [{"op":"copy","from":"~/a","to":"~/dir","overwrite":true}]
            batch [{"op":"move","from":"~/dir","to":"~/b","overwrite":true}]
            batch [{"op":"move","from":"~/a","to":"~/none/b"}]
            batch [{"op":"move","from":"~/missing","to":"~/c"}]
            batch [{"op":"copy","from":"~/a","to":"~lib/a"}]
            batch [{"op":"move","from":"~/dir","to":"~/dir/in"}]
            open ~/a
            open ~/b
            batch [{"op":"move","from":"~/a","to":"~/b","overwrite":true}]
            events
            tree
            undo
            events
            tree
        "#,
        expect![[r#"
            ! -32602 operation 0: ~/b already exists {"kind":"alreadyExists","index":0,"path":"~/b"}
            ! -32602 operation 0: ~/dir already exists {"kind":"alreadyExists","index":0,"path":"~/dir"}
            ! -32602 operation 0: ~/b already exists {"kind":"alreadyExists","index":0,"path":"~/b"}
            ! -32002 operation 0: Resource not found: ~/none {"kind":"notFound","index":0,"path":"~/none","uri":"~/none"}
            ! -32002 operation 0: Resource not found: ~/missing {"kind":"notFound","index":0,"path":"~/missing","uri":"~/missing"}
            ! -32602 operation 0: ~/a and ~lib/a are in different directories of the session {"kind":"acrossRoots","index":0,"path":"~/a","to":"~lib/a"}
            ! -32602 operation 0: ~/dir and ~/dir/in are the same, or one contains the other {"kind":"overlap","index":0,"path":"~/dir","to":"~/dir/in"}
            move: 2 changes
            ~/b shows "a\n"
            ~/a is deleted
            ~/b "a\n"
            ~/dir/
            undo: 2 files
            ~/b shows "b\n"
            ~/a "a\n"
            ~/b "b\n"
            ~/dir/
        "#]],
    );
}

#[test]
fn links_and_special_files_are_refused() {
    check(
        r#"
            disk ~/a "a\n"
            disk ~/d/x "x\n"
            link ~/link ~/a
            link ~/d/link ~/a
            link ~/way ~/d
            batch [{"op":"remove","path":"~/link"}]
            batch [{"op":"move","from":"~/link","to":"~/c"}]
            batch [{"op":"copy","from":"~/a","to":"~/link","overwrite":true}]
            batch [{"op":"remove","path":"~/d","recursive":true}]
            batch [{"op":"move","from":"~/d","to":"~/e"}]
            batch [{"op":"remove","path":"~/d/x"},{"op":"write","path":"~/way/x","data":"y\n"}]
            batch [{"op":"move","from":"~/d/x","to":"~/way/x"}]
            batch [{"op":"remove","path":"~","recursive":true}]
            batch [{"op":"move","from":"~/way/x","to":"~/way/y"}]
            tree
        "#,
        expect![[r#"
            ! -32602 operation 0: ~/link is not a file {"kind":"notFile","index":0,"path":"~/link"}
            ! -32602 operation 0: ~/link is not a file {"kind":"notFile","index":0,"path":"~/link"}
            ! -32602 operation 0: ~/a and ~/link are the same, or one contains the other {"kind":"overlap","index":0,"path":"~/a","to":"~/link"}
            ! -32602 operation 0: ~/d/link is not a file {"kind":"notFile","index":0,"path":"~/d/link"}
            ! -32602 operation 0: ~/d/link is not a file {"kind":"notFile","index":0,"path":"~/d/link"}
            ! -32602 operation 1: ~/way/x overlaps with operation 0 {"kind":"overlap","index":1,"path":"~/way/x","other":0}
            ! -32602 operation 0: ~/d/x and ~/way/x are the same, or one contains the other {"kind":"overlap","index":0,"path":"~/d/x","to":"~/way/x"}
            ! -32030 operation 0: permission denied: ~ is or contains a directory of the session {"kind":"permissionDenied","index":0,"why":"~ is or contains a directory of the session"}
            move: 2 changes
            ~/a "a\n"
            ~/d/
            ~/d/link is a link
            ~/d/y "x\n"
            ~/link is a link
            ~/way is a link
        "#]],
    );
}

#[test]
fn the_number_of_files_is_limited() {
    assert_eq!((MAX_FILES, MAX_DIRECTORIES), (1000, 1000));
    check(
        r#"
            mkdir ~/some
            mkdir ~/more
            many ~/some 900
            many ~/more 200
            batch [{"op":"copy","from":"~/some","to":"~/c1"},{"op":"copy","from":"~/more","to":"~/c2"}]
            batch [{"op":"remove","path":"~/more"}]
            batch [{"op":"move","from":"~/more","to":"~lib/more"}]
        "#,
        expect![[r#"
            ! -32602 operation 1: too many files, the limit is 1000 {"kind":"tooMany","index":1,"limit":1000,"items":"files"}
            ! -32602 operation 0: ~/more is not empty: remove it with recursive {"kind":"notEmpty","index":0,"path":"~/more"}
            ! -32602 operation 0: ~/more and ~lib/more are in different directories of the session {"kind":"acrossRoots","index":0,"path":"~/more","to":"~lib/more"}
        "#]],
    );
}

#[test]
fn a_large_group_is_moved_at_once() {
    let mut project = BatchProject::new(WorkspaceOptions::default());
    for step in ["mkdir ~/some", "many ~/some 150", r#"batch [{"op":"move","from":"~/some","to":"~/moved"}]"#]
    {
        project.run_step(step).unwrap();
    }
    let count = |name: &str| fs::read_dir(project.expand(name)).map_or(0, Iterator::count);
    assert_eq!((count("~/some"), count("~/moved")), (0, 150));
    assert_eq!(project.reverse("undo"), "undo: 300 files\n");
    assert_eq!((count("~/some"), count("~/moved")), (150, 0));
}
