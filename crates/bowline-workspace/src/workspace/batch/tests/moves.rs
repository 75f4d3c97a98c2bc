//! The history of moved files: undo finds the changes made before and after a move.

use super::*;

/// A file that is edited, moved and edited again, in three batches.
const EDIT_MOVE_EDIT: &str = r#"
    disk ~/a "1\n2\n3\n4\n5\n"
    mode ~/a 750
    batch [{"op":"write","path":"~/a","data":"one\n2\n3\n4\n5\n"}]
    batch [{"op":"move","from":"~/a","to":"~/b"}]
    batch [{"op":"write","path":"~/b","data":"one\n2\n3\n4\nfive\n"}]
"#;

fn check_moved(script: &str, expected: Expect) {
    let answers = run(WorkspaceOptions::default(), &format!("{EDIT_MOVE_EDIT}{script}"));
    let own = answers.lines().skip(3).map(|line| format!("{line}\n")).collect::<String>();
    expected.assert_eq(&own);
}

#[test]
fn undoing_everything_moves_the_file_back() {
    check_moved(
        "
            undo all
            tree
            redo all
            tree
            undo all
            tree
        ",
        expect![[r#"
            undo: 2 files
            ~/a 750 "1\n2\n3\n4\n5\n"
            redo: 2 files
            ~/b 750 "one\n2\n3\n4\nfive\n"
            undo: 2 files
            ~/a 750 "1\n2\n3\n4\n5\n"
        "#]],
    );
}

#[test]
fn the_new_path_selects_the_changes_before_the_move() {
    check_moved(
        "
            undo ~/b
            tree
            changes
            redo ~/b
            tree
        ",
        expect![[r#"
            undo: 2 files
            ~/a 750 "1\n2\n3\n4\n5\n"
            batch 1 changes ~/a, not in effect
            batch 2 creates ~/b, not in effect
            batch 2 deletes ~/a, not in effect
            batch 3 changes ~/b, not in effect
            user creates ~/a
            user deletes ~/b
            redo: 2 files
            ~/b 750 "one\n2\n3\n4\nfive\n"
        "#]],
    );
}

#[test]
fn an_edit_before_the_move_is_undone_where_the_file_is_now() {
    check_moved(
        "
            undo turn 1
            tree
            redo turn 1
            tree
        ",
        expect![[r#"
            undo: 1 files
            ~/b 750 "1\n2\n3\n4\nfive\n"
            redo: 1 files
            ~/b 750 "one\n2\n3\n4\nfive\n"
        "#]],
    );
}

#[test]
fn an_undone_move_keeps_later_edits() {
    check_moved(
        r#"
            open ~/b
            type ~/b "one\n2\n3 user\n4\nfive\n"
            undo turn 2
            tree
            undo turn 3
            tree
            redo turn 2
            undo turn 1
            tree
        "#,
        expect![[r#"
            undo: 2 files
            ~/a 750 "one\n2\n3 user\n4\nfive\n"
            undo: 1 files
            ~/a 750 "one\n2\n3 user\n4\n5\n"
            redo: 2 files
            undo: 1 files
            ~/b 750 "1\n2\n3 user\n4\n5\n"
        "#]],
    );
}

#[test]
fn both_changes_of_a_move_are_undone_together() {
    check_moved(
        "
            undo change 2
            tree
            redo change 3
            tree
            undo change 3
            tree
        ",
        expect![[r#"
            undo: 2 files
            ~/a 750 "one\n2\n3\n4\nfive\n"
            redo: 2 files
            ~/b 750 "one\n2\n3\n4\nfive\n"
            undo: 2 files
            ~/a 750 "one\n2\n3\n4\nfive\n"
        "#]],
    );
}

#[test]
fn turns_are_undone_and_redone_one_after_the_other() {
    check_moved(
        "
            undo turn 3
            undo turn 2
            undo turn 1
            tree
            redo turn 1
            redo turn 2
            redo turn 3
            tree
        ",
        expect![[r#"
            undo: 1 files
            undo: 2 files
            undo: 1 files
            ~/a 750 "1\n2\n3\n4\n5\n"
            redo: 1 files
            redo: 2 files
            redo: 1 files
            ~/b 750 "one\n2\n3\n4\nfive\n"
        "#]],
    );
}

#[test]
fn a_file_that_was_moved_twice_goes_back_all_the_way() {
    check_moved(
        r#"
            batch [{"op":"move","from":"~/b","to":"~/c"}]
            undo turn 2
            tree
            undo ~/c
            tree
            redo ~/c
            tree
            changes
            undo ~/c
            tree
        "#,
        expect![[r#"
            move: 2 changes
            ! cannot take back change 2 of ~/b: it moved the file, which was moved to ~/c since; take that back first
            ~/c 750 "one\n2\n3\n4\nfive\n"
            undo: 2 files
            ~/a 750 "1\n2\n3\n4\n5\n"
            redo: 2 files
            ~/c 750 "one\n2\n3\n4\nfive\n"
            batch 1 changes ~/a
            batch 2 creates ~/b
            batch 2 deletes ~/a
            batch 3 changes ~/b
            batch 4 creates ~/c
            batch 4 deletes ~/b
            user creates ~/a, not in effect
            user deletes ~/c, not in effect
            user creates ~/c
            user deletes ~/a
            undo: 2 files
            ~/a 750 "1\n2\n3\n4\n5\n"
        "#]],
    );
}

#[test]
fn a_replaced_file_is_restored() {
    check(
        r#"
            disk ~/a "a\n"
            disk ~/b "b\n"
            batch [{"op":"write","path":"~/b","data":"b2\n"}]
            batch [{"op":"move","from":"~/a","to":"~/b","overwrite":true}]
            batch [{"op":"write","path":"~/b","data":"a2\n"}]
            undo turn 2
            tree
            redo turn 2
            tree
            undo all
            tree
            redo all
            tree
        "#,
        expect![[r#"
            write: 1 changes, "b2\n"
            move: 2 changes
            write: 1 changes, "a2\n"
            undo: 2 files
            ~/a "a2\n"
            ~/b "b2\n"
            redo: 2 files
            ~/b "a2\n"
            undo: 2 files
            ~/a "a\n"
            ~/b "b\n"
            redo: 2 files
            ~/b "a2\n"
        "#]],
    );
}

#[test]
fn a_move_whose_file_is_gone_is_undone_from_the_journal() {
    check_moved(
        "
            rm ~/b
            undo turn 2
            tree
        ",
        expect![[r#"
            undo: 2 files
            ~/a 750 "one\n2\n3\n4\n5\n"
        "#]],
    );
}

#[test]
fn a_move_is_not_undone_onto_another_file() {
    check_moved(
        r#"
            disk ~/a "new\n"
            undo turn 2
            undo ~/b
            tree
        "#,
        expect![[r#"
            ! cannot take back change 3 of ~/a: it deleted the file and there is another one now, move that away first
            ! cannot take back change 3 of ~/a: it deleted the file and there is another one now, move that away first
            ~/a "new\n"
            ~/b 750 "one\n2\n3\n4\nfive\n"
        "#]],
    );
}

#[test]
fn files_of_a_moved_directory_keep_their_history() {
    check(
        r#"
            disk ~/src/one "1\n"
            disk ~/src/deep/two "2\n"
            batch [{"op":"write","path":"~/src/one","data":"1!\n"}]
            batch [{"op":"move","from":"~/src","to":"~/dst"}]
            undo ~/dst/one
            tree
            redo ~/dst/one
            undo ~/dst
            tree
        "#,
        expect![[r#"
            write: 1 changes, "1!\n"
            move: 4 changes
            undo: 2 files
            ~/dst/
            ~/dst/deep/
            ~/dst/deep/two "2\n"
            ~/src/
            ~/src/one "1\n"
            redo: 2 files
            undo: 4 files
            ~/src/
            ~/src/deep/
            ~/src/deep/two "2\n"
            ~/src/one "1\n"
        "#]],
    );
}
