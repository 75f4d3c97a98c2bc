//! Directories: created, removed, and kept in step with files.

use super::*;

#[test]
fn directories_are_created_for_files_and_by_name() {
    check(
        r#"
            disk ~/file "x"
            preview [{"op":"mkdir","path":"~/docs"},{"op":"write","path":"~/docs/a","data":"a\n"},{"op":"write","path":"~/x/y/b","data":"b\n","createParents":true},{"op":"write","path":"~/x/y/c","data":"c\n","createParents":true}]
            batch [{"op":"mkdir","path":"~/docs"},{"op":"write","path":"~/docs/a","data":"a\n"},{"op":"write","path":"~/x/y/b","data":"b\n","createParents":true},{"op":"write","path":"~/x/y/c","data":"c\n","createParents":true}]
            tree
            undo
            tree
            redo
            tree
            undo
            tree
            batch [{"op":"mkdir","path":"~/one/two","parents":true},{"op":"mkdir","path":"~/one/three"}]
            batch [{"op":"mkdir","path":"~/one","parents":true}]
            batch [{"op":"mkdir","path":"~/one"}]
            batch [{"op":"mkdir","path":"~/file","parents":true}]
            batch [{"op":"mkdir","path":"~/none/two"}]
            batch [{"op":"mkdir","path":"~/file/two","parents":true}]
            tree
            batch [{"op":"move","from":"~/one/","to":"~/./moved/"},{"op":"mkdir","path":"~//last/"}]
            tree
        "#,
        expect![[r#"
            1 ~/docs/a: none -> "a\n"
            2 ~/x/y/b: none -> "b\n"
            3 ~/x/y/c: none -> "c\n"
            creates ~/docs
            creates ~/x
            creates ~/x/y
            mkdir: 0 changes
            write: 1 changes, "a\n"
            write: 1 changes, "b\n"
            write: 1 changes, "c\n"
            ~/docs/
            ~/docs/a "a\n"
            ~/file "x"
            ~/x/
            ~/x/y/
            ~/x/y/b "b\n"
            ~/x/y/c "c\n"
            undo: 3 files
            ~/file "x"
            redo: 3 files
            ~/docs/
            ~/docs/a "a\n"
            ~/file "x"
            ~/x/
            ~/x/y/
            ~/x/y/b "b\n"
            ~/x/y/c "c\n"
            undo: 3 files
            ~/file "x"
            mkdir: 0 changes
            mkdir: 0 changes
            directories: 3 changes
            mkdir: 0 changes
            ! -32602 operation 0: ~/one already exists {"kind":"alreadyExists","index":0,"path":"~/one"}
            ! -32602 operation 0: ~/file already exists {"kind":"alreadyExists","index":0,"path":"~/file"}
            ! -32002 operation 0: Resource not found: ~/none {"kind":"notFound","index":0,"path":"~/none","uri":"~/none"}
            ! -32602 operation 0: ~/file/two is not a directory {"kind":"notDirectory","index":0,"path":"~/file/two"}
            ~/file "x"
            ~/one/
            ~/one/three/
            ~/one/two/
            move: 0 changes
            mkdir: 0 changes
            directories: 7 changes
            ~/file "x"
            ~/last/
            ~/moved/
            ~/moved/three/
            ~/moved/two/
        "#]],
    );
}

#[test]
fn a_batch_that_fails_creates_no_directory() {
    check(
        r#"
            disk ~/a "one\n"
            read ~/a
            disk ~/a "user\n"
            batch [{"op":"mkdir","path":"~/docs"},{"op":"write","path":"~/docs/x","data":"x"},{"op":"write","path":"~/a","data":"agent\n"}]
            tree
        "#,
        expect![[r#"
            "one\n"
            ! -32602 operation 2: ~/a: the text was changed since this session read it, and both changes touch the same lines: read it again {"kind":"conflict","index":2,"path":"~/a","etag":"…","reason":"conflict","why":"the text was changed since this session read it, and both changes touch the same lines: read it again","hunks":[{"line":1,"base":"one\n","ours":"user\n","theirs":"agent\n"}]}
            ~/a "user\n"
        "#]],
    );
}

#[test]
fn undo_leaves_directories_that_the_user_uses() {
    check(
        r#"
            mkdir ~/mine
            batch [{"op":"mkdir","path":"~/docs"},{"op":"write","path":"~/docs/a","data":"a\n"},{"op":"write","path":"~/mine/b","data":"b\n"}]
            disk ~/docs/user "user\n"
            undo
            tree
        "#,
        expect![[r#"
            mkdir: 0 changes
            write: 1 changes, "a\n"
            write: 1 changes, "b\n"
            undo: 2 files
            ~/docs/
            ~/docs/user "user\n"
            ~/mine/
        "#]],
    );
}

#[test]
fn a_batch_of_directories_is_undone() {
    check(
        r#"
            mkdir ~/old/deep
            mode ~/old/deep 700
            batch [{"op":"mkdir","path":"~/a/b","parents":true},{"op":"mkdir","path":"~/c"},{"op":"remove","path":"~/old","recursive":true}]
            tree
            changes
            undo
            tree
            redo
            tree
            undo
            tree
            undo
            changes
        "#,
        expect![[r#"
            mkdir: 0 changes
            mkdir: 0 changes
            remove: 0 changes
            directories: 5 changes
            ~/a/
            ~/a/b/
            ~/c/
            batch 1 creates or removes ~/a
            batch 1 creates or removes ~/a/b
            batch 1 creates or removes ~/c
            batch 1 creates or removes ~/old/deep
            batch 1 creates or removes ~/old
            undo: 5 files
            ~/old/
            ~/old/deep/ 700
            redo: 5 files
            ~/a/
            ~/a/b/
            ~/c/
            undo: 5 files
            ~/old/
            ~/old/deep/ 700
            ! there is nothing to undo here
            batch 1 creates or removes ~/a, not in effect
            batch 1 creates or removes ~/a/b, not in effect
            batch 1 creates or removes ~/c, not in effect
            batch 1 creates or removes ~/old/deep, not in effect
            batch 1 creates or removes ~/old, not in effect
            user creates or removes ~/old, not in effect
            user creates or removes ~/old/deep, not in effect
            user creates or removes ~/c, not in effect
            user creates or removes ~/a/b, not in effect
            user creates or removes ~/a, not in effect
            user creates or removes ~/a
            user creates or removes ~/a/b
            user creates or removes ~/c
            user creates or removes ~/old/deep
            user creates or removes ~/old
            user creates or removes ~/old
            user creates or removes ~/old/deep
            user creates or removes ~/c
            user creates or removes ~/a/b
            user creates or removes ~/a
        "#]],
    );
}

#[test]
fn a_directory_in_use_stays_when_it_is_undone() {
    check(
        r#"
            batch [{"op":"mkdir","path":"~/used"},{"op":"mkdir","path":"~/empty"},{"op":"mkdir","path":"~/gone"}]
            batch [{"op":"write","path":"~/used/a","data":"a\n"}]
            undo turn 1
            tree
            redo turn 1
            undo all
            tree
            redo all
            tree
            undo change 2
            tree
            batch [{"op":"remove","path":"~/gone"}]
            disk ~/gone "user\n"
            undo
            tree
            rm ~/gone
            undo
            tree
        "#,
        expect![[r#"
            mkdir: 0 changes
            mkdir: 0 changes
            mkdir: 0 changes
            directories: 3 changes
            write: 1 changes, "a\n"
            undo: 3 files
            ~/used/
            ~/used/a "a\n"
            redo: 3 files
            undo: 4 files
            redo: 4 files
            ~/empty/
            ~/gone/
            ~/used/
            ~/used/a "a\n"
            undo: 1 files
            ~/gone/
            ~/used/
            ~/used/a "a\n"
            remove: 0 changes
            directories: 1 changes
            undo: 1 files
            ~/gone "user\n"
            ~/used/
            ~/used/a "a\n"
            ! there is nothing to undo here
            ~/used/
            ~/used/a "a\n"
        "#]],
    );
}

#[test]
fn another_process_undoes_a_batch_with_its_directories() {
    let mut project = BatchProject::new(WorkspaceOptions::default());
    project.run_step("disk ~/old/a \"a\\n\"").unwrap();
    let operations = r#"batch [{"op":"mkdir","path":"~/new"},{"op":"move","from":"~/old","to":"~/new/old"}]"#;
    project.run_step(operations).unwrap();
    let root = RootSpec::writable(project.base.join("project").to_str().unwrap());
    let roots = Roots::open(&root, &[]).unwrap();
    let state = project.base.join("state");
    let other = Workspace::open(roots, &state, WorkspaceOptions::default()).unwrap().workspace;
    other.undo(&ChangeSelection::turn("s", 1)).unwrap();
    expect![[r#"
        ~/old/
        ~/old/a "a\n"
    "#]]
    .assert_eq(&project.shorten(&project.describe_tree()));
}
