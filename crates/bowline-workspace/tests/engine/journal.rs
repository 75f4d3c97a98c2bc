//! Tests of the journal as users see it: the changes, and undoing them without losing later ones.

use expect_test::expect;

use crate::check;

#[test]
fn changes_name_session_turn_and_call() {
    check(
        r#"
//- /a.txt
one
> turn 1
> call c1
> write /a.txt "two\n"
> call c2
> write /b.txt "new\n"
> s2 turn 1
> s2 write /a.txt "three\n"
> turn 2
> delete /b.txt
> changes
> changes turn 1
> changes call c2
> s2 changes session
> changes file /b.txt
> changes last 1
> changes change 2
"#,
        expect![[r#"
            replaced, unseen
            created
            replaced, unseen
            deleted
            1 s1 turn 1 c1 changes $ROOT/a.txt
            2 s1 turn 1 c2 creates $ROOT/b.txt
            3 s2 turn 1 changes $ROOT/a.txt
            4 s1 turn 2 deletes $ROOT/b.txt
            1 s1 turn 1 c1 changes $ROOT/a.txt
            2 s1 turn 1 c2 creates $ROOT/b.txt
            2 s1 turn 1 c2 creates $ROOT/b.txt
            3 s2 turn 1 changes $ROOT/a.txt
            2 s1 turn 1 c2 creates $ROOT/b.txt
            4 s1 turn 2 deletes $ROOT/b.txt
            4 s1 turn 2 deletes $ROOT/b.txt
            2 s1 turn 1 c2 creates $ROOT/b.txt
        "#]],
    );
}

#[test]
fn a_diff_is_a_patch() {
    check(
        r#"
//- /a.txt
one
two
three
//- /run.sh mode=0755
echo
> write /a.txt "one\n2\nthree\nfour\n"
> write /dir/new.txt "new"
> delete /run.sh
> diff
> diff file /a.txt
> undo file /a.txt
> diff
> write /b.txt "x\n"
> delete /b.txt
> diff file /b.txt
"#,
        expect![[r#"
            replaced, unseen
            created
            deleted
            | diff --git a/a.txt b/a.txt
            | --- a/a.txt
            | +++ b/a.txt
            | @@ -1,3 +1,4 @@
            |  one
            | -two
            | +2
            |  three
            | +four
            | diff --git a/dir/new.txt b/dir/new.txt
            | new file mode 100644
            | --- /dev/null
            | +++ b/dir/new.txt
            | @@ -0,0 +1 @@
            | +new
            | \ No newline at end of file
            | diff --git a/run.sh b/run.sh
            | deleted file mode 100755
            | --- a/run.sh
            | +++ /dev/null
            | @@ -1 +0,0 @@
            | -echo
            | diff --git a/a.txt b/a.txt
            | --- a/a.txt
            | +++ b/a.txt
            | @@ -1,3 +1,4 @@
            |  one
            | -two
            | +2
            |  three
            | +four
            change 4 of $ROOT/a.txt
            | diff --git a/dir/new.txt b/dir/new.txt
            | new file mode 100644
            | --- /dev/null
            | +++ b/dir/new.txt
            | @@ -0,0 +1 @@
            | +new
            | \ No newline at end of file
            | diff --git a/run.sh b/run.sh
            | deleted file mode 100755
            | --- a/run.sh
            | +++ /dev/null
            | @@ -1 +0,0 @@
            | -echo
            created
            deleted
            no difference
        "#]],
    );
}

#[test]
fn undo_by_hunk() {
    check(
        r#"
//- /a.txt
1
2
3
4
5
6
7
8
9
> write /a.txt "one\n2\n3\n4\nfive\n6\n7\n8\nnine\n"
> undo change 1 hunk 1
> cat /a.txt
> undo change 1 hunk 7
> undo change 1 hunk 0 hunk 2
> cat /a.txt
> changes
> redo change 1 hunk 1
> cat /a.txt
"#,
        expect![[r#"
            replaced, unseen
            change 2 of $ROOT/a.txt
            = one\n
            = 2\n
            = 3\n
            = 4\n
            = 5\n
            = 6\n
            = 7\n
            = 8\n
            = nine\n
            ! -32602 "cannot take back change 1 of $ROOT/a.txt: no hunk 7: the change has 3, numbered from 0"
            change 3 of $ROOT/a.txt
            = 1\n
            = 2\n
            = 3\n
            = 4\n
            = 5\n
            = 6\n
            = 7\n
            = 8\n
            = 9\n
            1 s1 changes $ROOT/a.txt
            2 s1 changes $ROOT/a.txt, takes back 1 hunks [1]
            3 s1 changes $ROOT/a.txt, takes back 1 hunks [0, 2]
            change 4 of $ROOT/a.txt
            = 1\n
            = 2\n
            = 3\n
            = 4\n
            = five\n
            = 6\n
            = 7\n
            = 8\n
            = 9\n
        "#]],
    );
}

#[test]
fn undo_by_file_call_turn_and_session() {
    check(
        r#"
//- /a.txt
a
//- /b.txt
b
> turn 1
> call c1
> write /a.txt "a1\n"
> write /b.txt "b1\n"
> call c2
> write /a.txt "a2\n"
> turn 2
> call c3
> write /c.txt "c\n"
> write /b.txt "b2\n"
> undo call c2
> cat /a.txt
> undo file /b.txt
> cat /b.txt
> undo turn 1
> cat /a.txt
> undo session
> tree
> undo session
> redo session
> cat /a.txt
> cat /b.txt
> cat /c.txt
"#,
        expect![[r#"
            replaced, unseen
            replaced, unseen
            replaced
            created
            replaced
            change 6 of $ROOT/a.txt
            = a1\n
            change 7 of $ROOT/b.txt
            = b\n
            change 8 of $ROOT/a.txt
            = a\n
            change 9 of $ROOT/c.txt
            $ROOT/a.txt
            $ROOT/b.txt
            ! -32602 "there is nothing to undo here"
            change 10 of $ROOT/c.txt
            change 11 of $ROOT/a.txt
            change 12 of $ROOT/b.txt
            = a2\n
            = b2\n
            = c\n
        "#]],
    );
}

#[test]
fn undo_of_a_creation_deletes_and_of_a_deletion_restores() {
    check(
        r#"
//- /run.sh mode=0750
echo
> write /new.txt "new\n"
> delete /run.sh
> tree
> undo
> tree
> cat /run.sh
> mode /run.sh
> redo
> tree
> undo
> mode /run.sh
"#,
        expect![[r#"
            created
            deleted
            $ROOT/new.txt
            change 3 of $ROOT/run.sh
            change 4 of $ROOT/new.txt
            $ROOT/run.sh
            = echo\n
            0750
            change 5 of $ROOT/new.txt
            change 6 of $ROOT/run.sh
            $ROOT/new.txt
            change 7 of $ROOT/run.sh
            change 8 of $ROOT/new.txt
            0750
        "#]],
    );
}

#[test]
fn undo_of_a_creation_that_was_edited_is_refused() {
    check(
        r#"
> write /new.txt "new\n"
> disk /new.txt "new\nuser\n"
> undo
> cat /new.txt
"#,
        expect![[r#"
            created
            ! -32602 "cannot take back change 1 of $ROOT/new.txt: it created the file, which was edited since; delete the file if it is not needed"
            = new\n
            = user\n
        "#]],
    );
}

#[test]
fn undo_of_a_deletion_where_there_is_another_file_is_refused() {
    check(
        r#"
//- /a.txt
one
> delete /a.txt
> disk /a.txt "user\n"
> undo
> cat /a.txt
> disk /a.txt "one\n"
> undo
> cat /a.txt
"#,
        expect![[r#"
            deleted
            ! -32602 "cannot take back change 1 of $ROOT/a.txt: it deleted the file and there is another one now, move that away first"
            = user\n
            change 2 of $ROOT/a.txt, as it was already
            = one\n
        "#]],
    );
}

#[test]
fn three_writes_a_user_edit_and_three_undos_keep_the_edit() {
    check(
        r#"
//- /a.txt
1
2
3
4
5
> write /a.txt "one\n2\n3\n4\n5\n"
> write /a.txt "one\n2\nthree\n4\n5\n"
> write /a.txt "one!\n2\nthree\n4\n5\n"
> disk /a.txt "one!\n2\nthree\n4\nuser\n"
> undo last 1
> cat /a.txt
> undo last 1
> undo last 1
> cat /a.txt
> undo last 1
> redo last 1
> redo last 1
> redo last 1
> cat /a.txt
"#,
        expect![[r#"
            replaced, unseen
            replaced
            replaced
            change 4 of $ROOT/a.txt
            = one\n
            = 2\n
            = three\n
            = 4\n
            = user\n
            change 5 of $ROOT/a.txt
            change 6 of $ROOT/a.txt
            = 1\n
            = 2\n
            = 3\n
            = 4\n
            = user\n
            ! -32602 "there is nothing to undo here"
            change 7 of $ROOT/a.txt
            change 8 of $ROOT/a.txt
            change 9 of $ROOT/a.txt
            = one!\n
            = 2\n
            = three\n
            = 4\n
            = user\n
        "#]],
    );
}

#[test]
fn undo_of_lines_that_the_user_changed_is_refused() {
    check(
        r#"
//- /a.txt
1
2
3
> write /a.txt "one\n2\n3\n"
> disk /a.txt "user\n2\n3\n"
> undo
> cat /a.txt
> changes
"#,
        expect![[r#"
            replaced, unseen
            ! -32602 {"reason":"conflict","path":"$ROOT/a.txt","why":"change 1 cannot be taken back, its lines were changed since","hunks":[{"line":1,"base":"one\n","ours":"user\n","theirs":"1\n"}]}
            = user\n
            = 2\n
            = 3\n
            1 s1 changes $ROOT/a.txt
        "#]],
    );
}

#[test]
fn one_file_that_cannot_be_taken_back_keeps_all_as_they_are() {
    check(
        r#"
//- /a.txt
a
//- /b.txt
b
> turn 1
> write /a.txt "A\n"
> write /b.txt "B\n"
> write /c.txt "C\n"
> disk /b.txt "user\n"
> undo turn 1
> cat /a.txt
> cat /b.txt
> cat /c.txt
> undo file /a.txt
> cat /a.txt
"#,
        expect![[r#"
            replaced, unseen
            replaced, unseen
            created
            ! -32602 {"reason":"conflict","path":"$ROOT/b.txt","why":"change 2 cannot be taken back, its lines were changed since","hunks":[{"line":1,"base":"B\n","ours":"user\n","theirs":"b\n"}]}
            = A\n
            = user\n
            = C\n
            change 4 of $ROOT/a.txt
            = a\n
        "#]],
    );
}

#[test]
fn undo_redo_undo_ends_where_it_began() {
    check(
        r#"
//- /a.txt
1
2
3
> write /a.txt "one\n2\n3\n"
> undo
> redo
> cat /a.txt
> undo
> cat /a.txt
> undo
> redo
> redo
> changes
"#,
        expect![[r#"
            replaced, unseen
            change 2 of $ROOT/a.txt
            change 3 of $ROOT/a.txt
            = one\n
            = 2\n
            = 3\n
            change 4 of $ROOT/a.txt
            = 1\n
            = 2\n
            = 3\n
            ! -32602 "there is nothing to undo here"
            change 5 of $ROOT/a.txt
            ! -32602 "there is nothing to redo here"
            1 s1 changes $ROOT/a.txt
            2 s1 changes $ROOT/a.txt, takes back 1 (taken back)
            3 s1 changes $ROOT/a.txt, takes back 2
            4 s1 changes $ROOT/a.txt, takes back 1 (taken back)
            5 s1 changes $ROOT/a.txt, takes back 4
        "#]],
    );
}

#[test]
fn undo_of_a_manually_reverted_change_does_nothing() {
    check(
        r#"
//- /a.txt
1
> write /a.txt "one\n"
> disk /a.txt "1\n"
> undo
> undo
> changes
"#,
        expect![[r#"
            replaced, unseen
            change 2 of $ROOT/a.txt, as it was already
            ! -32602 "there is nothing to undo here"
            1 s1 changes $ROOT/a.txt (taken back)
            2 s1 changes $ROOT/a.txt, takes back 1
        "#]],
    );
}

#[test]
fn undo_beside_unsaved_text_keeps_it() {
    check(
        r#"
//- /a.txt
1
2
3
> write /a.txt "one\n2\n3\n"
> open /a.txt
> type /a.txt "one\n2\nuser\n"
> undo
> show /a.txt
> cat /a.txt
"#,
        expect![[r#"
            replaced, unseen
            $ROOT/a.txt saved
            | one
            | 2
            | 3
            unsaved
            change 3 of $ROOT/a.txt
            $ROOT/a.txt saved
            | 1
            | 2
            | user
            = 1\n
            = 2\n
            = user\n
        "#]],
    );
}

#[test]
fn undo_of_lines_with_unsaved_changes_is_refused() {
    check(
        r#"
//- /a.txt
1
2
3
> write /a.txt "one\n2\n3\n"
> open /a.txt
> type /a.txt "user\n2\n3\n"
> undo
> show /a.txt
> cat /a.txt
"#,
        expect![[r#"
            replaced, unseen
            $ROOT/a.txt saved
            | one
            | 2
            | 3
            unsaved
            ! -32602 {"reason":"conflict","path":"$ROOT/a.txt","why":"change 1 cannot be taken back, its lines were changed since","hunks":[{"line":1,"base":"one\n","ours":"user\n","theirs":"1\n"}]}
            $ROOT/a.txt unsaved
            | user
            | 2
            | 3
            = one\n
            = 2\n
            = 3\n
        "#]],
    );
}

#[test]
fn undo_shows_in_a_clean_document() {
    check(
        r#"
//- /a.txt
1
> open /a.txt
> write /a.txt "one\n"
> show /a.txt
> undo
> show /a.txt
> write /b.txt "new\n"
> open /b.txt
> undo file /b.txt
> show /b.txt
> read /b.txt
"#,
        expect![[r#"
            $ROOT/a.txt saved
            | 1
            replaced, unseen
            $ROOT/a.txt saved
            | one
            change 2 of $ROOT/a.txt
            $ROOT/a.txt saved
            | 1
            created
            $ROOT/b.txt saved
            | new
            change 4 of $ROOT/b.txt
            $ROOT/b.txt saved
            | new
            ! -32002 {"uri":"$ROOT/b.txt"}
        "#]],
    );
}

#[test]
fn undo_of_a_write_beside_unsaved_text_keeps_that_text() {
    check(
        r#"
//- /a.txt
1
2
3
> open /a.txt
> read /a.txt
> type /a.txt "1\n2\nuser\n"
> write /a.txt "one\n2\n3\n"
> cat /a.txt
> undo session
> cat /a.txt
> show /a.txt
"#,
        expect![[r#"
            $ROOT/a.txt saved
            | 1
            | 2
            | 3
            from the editor
            | 1
            | 2
            | 3
            unsaved
            merged
            | one
            | 2
            | user
            = one\n
            = 2\n
            = user\n
            change 3 of $ROOT/a.txt
            = 1\n
            = 2\n
            = user\n
            $ROOT/a.txt saved
            | 1
            | 2
            | user
        "#]],
    );
}

#[test]
fn redo_of_an_undo_beside_unsaved_text_keeps_that_text() {
    check(
        r#"
//- /a.txt
1
2
3
> write /a.txt "one\n2\n3\n"
> open /a.txt
> type /a.txt "one\n2\nuser\n"
> undo
> redo
> cat /a.txt
> show /a.txt
"#,
        expect![[r#"
            replaced, unseen
            $ROOT/a.txt saved
            | one
            | 2
            | 3
            unsaved
            change 3 of $ROOT/a.txt
            change 4 of $ROOT/a.txt
            = one\n
            = 2\n
            = user\n
            $ROOT/a.txt saved
            | one
            | 2
            | user
        "#]],
    );
}

#[test]
fn undo_of_a_write_that_was_merged_keeps_the_other_side() {
    check(
        r#"
//- /a.txt
1
2
3
> read /a.txt
> disk /a.txt "1\n2\nuser\n"
> write /a.txt "one\n2\n3\n"
> undo
> cat /a.txt
"#,
        expect![[r#"
            | 1
            | 2
            | 3
            merged
            | one
            | 2
            | user
            change 2 of $ROOT/a.txt
            = 1\n
            = 2\n
            = user\n
        "#]],
    );
}

#[test]
fn a_session_that_was_undone_still_writes_against_what_it_knows() {
    check(
        r#"
//- /a.txt
1
2
3
> read /a.txt
> write /a.txt "one\n2\n3\n"
> undo
> write /a.txt "one\n2\nthree\n"
> cat /a.txt
> write /a.txt "ONE\n2\nthree\n"
> read /a.txt
> write /a.txt "ONE\n2\nthree\n"
> cat /a.txt
"#,
        expect![[r#"
            | 1
            | 2
            | 3
            replaced
            change 2 of $ROOT/a.txt
            merged
            | 1
            | 2
            | three
            = 1\n
            = 2\n
            = three\n
            ! -32602 {"reason":"conflict","path":"$ROOT/a.txt","why":"the text was changed since this session read it, and both changes touch the same lines: read it again","hunks":[{"line":1,"base":"one\n","ours":"1\n","theirs":"ONE\n"}]}
            | 1
            | 2
            | three
            replaced
            = ONE\n
            = 2\n
            = three\n
        "#]],
    );
}

#[test]
fn two_sessions_and_a_user_at_once() {
    check(
        r#"
//- /a.txt
1
-
2
-
3
-
4
> s1 read /a.txt
> s2 read /a.txt
> open /a.txt
> s1 turn 1
> s2 turn 1
> s1 write /a.txt "one\n-\n2\n-\n3\n-\n4\n"
> type /a.txt "one\n-\n2\n-\nuser\n-\n4\n"
> s2 write /a.txt "1\n-\ntwo\n-\n3\n-\n4\n"
> cat /a.txt
> type /a.txt "one\n-\ntwo\n-\nuser\n-\nuser\n"
> s1 undo session
> cat /a.txt
> s2 undo session
> cat /a.txt
> save /a.txt
> s1 redo session
> cat /a.txt
> changes
"#,
        expect![[r#"
            | 1
            | -
            | 2
            | -
            | 3
            | -
            | 4
            | 1
            | -
            | 2
            | -
            | 3
            | -
            | 4
            $ROOT/a.txt saved
            | 1
            | -
            | 2
            | -
            | 3
            | -
            | 4
            replaced
            unsaved
            merged
            | one
            | -
            | two
            | -
            | user
            | -
            | 4
            = one\n
            = -\n
            = two\n
            = -\n
            = user\n
            = -\n
            = 4\n
            unsaved
            change 5 of $ROOT/a.txt
            = 1\n
            = -\n
            = two\n
            = -\n
            = user\n
            = -\n
            = user\n
            change 6 of $ROOT/a.txt
            = 1\n
            = -\n
            = 2\n
            = -\n
            = user\n
            = -\n
            = user\n
            $ROOT/a.txt saved
            | 1
            | -
            | 2
            | -
            | user
            | -
            | user
            change 7 of $ROOT/a.txt
            = one\n
            = -\n
            = 2\n
            = -\n
            = user\n
            = -\n
            = user\n
            1 s1 turn 1 changes $ROOT/a.txt
            2 changes $ROOT/a.txt
            3 s2 turn 1 changes $ROOT/a.txt (taken back)
            4 changes $ROOT/a.txt
            5 s1 turn 1 changes $ROOT/a.txt, takes back 1 (taken back)
            6 s2 turn 1 changes $ROOT/a.txt, takes back 3
            7 s1 turn 1 changes $ROOT/a.txt, takes back 5
        "#]],
    );
}

#[test]
fn undo_in_other_encodings_takes_back_and_merges() {
    check(
        r#"
//- /a.txt encoding=utf-16le bom
1
2
3
> write /a.txt "one\n2\n3\n"
> undo
> read /a.txt
> redo
> disk /a.txt encoding=utf-16le bom "one\n2\nuser\n"
> undo
> read /a.txt
"#,
        expect![[r#"
            replaced, unseen
            change 2 of $ROOT/a.txt
            | 1
            | 2
            | 3
            change 3 of $ROOT/a.txt
            change 4 of $ROOT/a.txt
            | 1
            | 2
            | user
        "#]],
    );
}

#[test]
fn undo_keeps_crlf_and_mark() {
    check(
        r#"
//- /a.txt crlf bom
1
2
3
> write /a.txt "one\n2\n3\n"
> disk /a.txt crlf bom "one\n2\nuser\n"
> undo
> cat /a.txt
"#,
        expect![[r#"
            replaced, unseen
            | one\r
            | 2\r
            | 3\r
            change 2 of $ROOT/a.txt
            = \xef\xbb\xbf1\r\n
            = 2\r\n
            = user\r\n
        "#]],
    );
}

#[test]
fn undo_without_changes_is_an_error() {
    check(
        r#"
> undo
> redo
> undo change 7
> undo turn 1
> changes
> diff
"#,
        expect![[r#"
            ! -32602 "there is nothing to undo here"
            ! -32602 "there is nothing to redo here"
            ! -32602 "there is nothing to undo here"
            ! -32602 "there is nothing to undo here"
            no changes
            no difference
        "#]],
    );
}

#[test]
fn undo_reaches_other_roots_and_asks_no_leave_of_read_only_files() {
    check(
        r#"
//= root $LIB
//- $LIB/a.txt
one
> write $LIB/a.txt "two\n"
> chmod $LIB/a.txt 0444
> undo
> cat $LIB/a.txt
"#,
        expect![[r#"
            replaced, unseen
            change 2 of $LIB/a.txt
            = one\n
        "#]],
    );
}

#[test]
fn undo_where_a_link_took_the_files_place_is_refused() {
    check(
        r#"
//- $OUT/s
two
//- /a.txt
one
//- /dir/b.txt
one
> write /a.txt "two\n"
> write /dir/b.txt "two\n"
> rm /a.txt
> link /a.txt $OUT/s
> undo file /a.txt
> rename /dir /moved
> link /dir moved
> undo file /dir/b.txt
> cat $OUT/s
> tree
"#,
        expect![[r#"
            replaced, unseen
            replaced, unseen
            ! -32602 {"reason":"outside","path":"$ROOT/a.txt"}
            ! -32602 "$ROOT/dir/b.txt leads elsewhere by now, through a link: it is not the file that was changed"
            = two\n
            $ROOT/a.txt -> $OUT/s
            $ROOT/dir -> moved
            $ROOT/moved/
            $ROOT/moved/b.txt
            $OUT/s
        "#]],
    );
}

#[test]
fn the_mode_goes_back_with_the_change_unless_it_was_changed() {
    check(
        r#"
//- /a.txt mode=0644
one
> write /a.txt "two\n"
> chmod /a.txt 0755
> undo
> mode /a.txt
> cat /a.txt
"#,
        expect![[r#"
            replaced, unseen
            change 2 of $ROOT/a.txt
            0755
            = one\n
        "#]],
    );
}
