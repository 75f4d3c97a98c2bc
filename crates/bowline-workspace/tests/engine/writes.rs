//! Tests of writes: replaced, merged or refused depending on what the session has seen, with all metadata preserved.

use bowline_history::undo::ChangeSelection;
use bowline_workspace::roots::{RootSpec, Roots};
use bowline_workspace::workspace::{Workspace, WorkspaceOptions};
use expect_test::expect;

use crate::check;

#[test]
fn a_new_file_gets_its_directories() {
    check(
        r#"
> write /a/b/c.txt "one\n"
> tree
> write /a/b "no\n"
> write /a/b/c.txt/d "no\n"
> read /a/b/c.txt
> changes
"#,
        expect![[r#"
            created
            $ROOT/a/
            $ROOT/a/b/
            $ROOT/a/b/c.txt
            ! -32602 "$ROOT/a/b is a directory: list it, or name a file in it"
            ! -32602 "a name on the way to $ROOT/a/b/c.txt/d is not a directory"
            | one
            1 s1 creates $ROOT/a/b/c.txt
        "#]],
    );
}

#[test]
fn a_file_that_the_session_read_is_replaced() {
    check(
        r#"
//- /a.txt
one
> read /a.txt
> write /a.txt "two\n"
> write /a.txt "three\n"
> write /a.txt "three\n"
> cat /a.txt
> changes
"#,
        expect![[r#"
            | one
            replaced
            replaced
            unchanged
            = three\n
            1 s1 changes $ROOT/a.txt
            2 s1 changes $ROOT/a.txt
        "#]],
    );
}

#[test]
fn concurrent_changes_are_merged() {
    check(
        r#"
//- /a.txt
one
two
three
> read /a.txt
> disk /a.txt "one\ntwo\nuser\n"
> write /a.txt "agent\ntwo\nthree\n"
> cat /a.txt
"#,
        expect![[r#"
            | one
            | two
            | three
            merged
            | agent
            | two
            | user
            = agent\n
            = two\n
            = user\n
        "#]],
    );
}

#[test]
fn after_a_merge_the_next_write_keeps_what_the_user_wrote() {
    check(
        r#"
//- /a.txt
one
two
three
four
five
> read /a.txt
> disk /a.txt "one\ntwo\nthree\nfour\nuser\n"
> write /a.txt "agent\ntwo\nthree\nfour\nfive\n"
> write /a.txt "agent\ntwo\nagent\nfour\nfive\n"
> cat /a.txt
> read /a.txt
> write /a.txt "agent\ntwo\nagent\nfour\n"
> cat /a.txt
"#,
        expect![[r#"
            | one
            | two
            | three
            | four
            | five
            merged
            | agent
            | two
            | three
            | four
            | user
            merged
            | agent
            | two
            | agent
            | four
            | user
            = agent\n
            = two\n
            = agent\n
            = four\n
            = user\n
            | agent
            | two
            | agent
            | four
            | user
            replaced
            = agent\n
            = two\n
            = agent\n
            = four\n
        "#]],
    );
}

#[test]
fn a_conflict_tells_its_places_and_writes_nothing() {
    check(
        r#"
//- /a.txt
one
two
three
> read /a.txt
> disk /a.txt "one\nuser\nthree\n"
> write /a.txt "one\nagent\nthree\n"
> cat /a.txt
> write /a.txt "one\nagent\nthree\n"
> read /a.txt
> write /a.txt "one\nuser and agent\nthree\n"
> cat /a.txt
"#,
        expect![[r#"
            | one
            | two
            | three
            ! -32602 {"reason":"conflict","path":"$ROOT/a.txt","why":"the text was changed since this session read it, and both changes touch the same lines: read it again","hunks":[{"line":2,"base":"two\n","ours":"user\n","theirs":"agent\n"}]}
            = one\n
            = user\n
            = three\n
            ! -32602 {"reason":"conflict","path":"$ROOT/a.txt","why":"the text was changed since this session read it, and both changes touch the same lines: read it again","hunks":[{"line":2,"base":"two\n","ours":"user\n","theirs":"agent\n"}]}
            | one
            | user
            | three
            replaced
            = one\n
            = user and agent\n
            = three\n
        "#]],
    );
}

#[test]
fn an_unread_file_is_not_overwritten_silently() {
    check(
        r#"
//- /a.txt
one
> write /a.txt "two\n"
> diff
"#,
        expect![[r#"
            replaced, unseen
            | diff --git a/a.txt b/a.txt
            | --- a/a.txt
            | +++ b/a.txt
            | @@ -1 +1 @@
            | -one
            | +two
        "#]],
    );
}

#[test]
fn a_partly_read_file_may_change_only_in_that_part() {
    check(
        r#"
//- /a.txt
one
two
three
> read /a.txt 1 1
> write /a.txt "ONE\n"
> write /a.txt "ONE\ntwo\nthree\nfour\n"
> write /a.txt "all mine now\n"
> changes
"#,
        expect![[r#"
            | one
            ! -32602 {"reason":"conflict","path":"$ROOT/a.txt","why":"this session has read only a part of the text and would change or remove lines 2 to 3, which it has not read: read the rest of the text first, or change only lines that it has read","hunks":[]}
            replaced, partly seen
            replaced
            1 s1 changes $ROOT/a.txt
            2 s1 changes $ROOT/a.txt
        "#]],
    );
}

#[test]
fn windows_that_cover_everything_are_a_read() {
    check(
        r#"
//- /a.txt
one
two
three
> read /a.txt 1 1
> read /a.txt 3 1
> read /a.txt 2 1
> write /a.txt "ONE\ntwo\nthree\n"
> cat /a.txt
"#,
        expect![[r#"
            | one
            | three
            | two
            replaced
            = ONE\n
            = two\n
            = three\n
        "#]],
    );
}

#[test]
fn windows_of_a_file_that_changes_between_them_are_no_read() {
    check(
        r#"
//- /a.txt
one
two
> read /a.txt 1 1
> disk /a.txt "one\nTWO!\n"
> read /a.txt 2 1
> write /a.txt "1\n2\n"
"#,
        expect![[r#"
            | one
            | TWO!
            ! -32602 {"reason":"conflict","path":"$ROOT/a.txt","why":"this session has read only a part of the text and would change or remove line 1, which it has not read: read the rest of the text first, or change only lines that it has read","hunks":[]}
        "#]],
    );
}

#[test]
fn a_deleted_file_is_recreated_only_after_a_read() {
    check(
        r#"
//- /a.txt
one
> read /a.txt
> rm /a.txt
> write /a.txt "two\n"
> read /a.txt
> write /a.txt "two\n"
> cat /a.txt
"#,
        expect![[r#"
            | one
            ! -32602 {"reason":"conflict","path":"$ROOT/a.txt","why":"the file was deleted since this session read it: read it again, then write it","hunks":[]}
            ! -32002 {"uri":"$ROOT/a.txt"}
            created
            = two\n
        "#]],
    );
}

#[test]
fn a_file_that_appeared_is_not_replaced_as_if_it_were_new() {
    check(
        r#"
> read /a.txt
> disk /a.txt "user\n"
> write /a.txt "agent\n"
> undo
> cat /a.txt
"#,
        expect![[r#"
            ! -32002 {"uri":"$ROOT/a.txt"}
            ! -32602 {"reason":"conflict","path":"$ROOT/a.txt","why":"the text was changed since this session read it, and both changes touch the same lines: read it again","hunks":[{"line":1,"base":"","ours":"user\n","theirs":"agent\n"}]}
            ! -32602 "there is nothing to undo here"
            = user\n
        "#]],
    );
}

#[test]
fn a_read_only_file_stays() {
    check(
        r#"
//- /a.txt mode=0444
one
> read /a.txt
> write /a.txt "two\n"
> delete /a.txt
> cat /a.txt
> mode /a.txt
"#,
        expect![[r#"
            | one
            ! -32602 "$ROOT/a.txt is read-only: make it writable first"
            ! -32602 "$ROOT/a.txt is read-only: make it writable first"
            = one\n
            0444
        "#]],
    );
}

#[test]
fn a_read_only_file_can_be_allowed_and_stays_read_only() {
    check(
        r#"
//= read-only-files allow
//- /a.txt mode=0444
one
> read /a.txt
> write /a.txt "two\n"
> cat /a.txt
> mode /a.txt
"#,
        expect![[r#"
            | one
            replaced
            = two\n
            0444
        "#]],
    );
}

#[test]
fn a_hard_link_is_not_written_through() {
    check(
        r#"
//- $OUT/s
secret
//- /h = $OUT/s
> read /h
> write /h "changed\n"
> cat $OUT/s
> tree
"#,
        expect![[r#"
            | secret
            ! -32602 "$ROOT/h has 2 names (hard links): writing it would change all of them: break the links first, or use a command"
            = secret\n
            $ROOT/h
            $OUT/s
        "#]],
    );
}

#[test]
fn a_hard_link_that_is_allowed_stays_one() {
    check(
        r#"
//= hard-links allow
//- $OUT/s
secret
//- /h = $OUT/s
> read /h
> write /h "changed\n"
> cat $OUT/s
> undo
> cat $OUT/s
> tree
"#,
        expect![[r#"
            | secret
            replaced
            = changed\n
            change 2 of $ROOT/h
            = secret\n
            $ROOT/h
            $OUT/s
        "#]],
    );
}

#[test]
fn a_directory_is_not_written() {
    check(
        r#"
//- /f/a
a
> write /f "text\n"
> write / "text\n"
> delete /f
> tree
"#,
        expect![[r#"
            ! -32602 "$ROOT/f is a directory: list it, or name a file in it"
            ! -32602 "$ROOT/ is a directory: list it, or name a file in it"
            ! -32602 {"kind":"notEmpty","path":"$ROOT/f"}
            $ROOT/f/
            $ROOT/f/a
        "#]],
    );
}

#[test]
fn the_mode_stays() {
    check(
        r#"
//- /a.txt mode=0640
one
//- /run.sh mode=0755
one
> write /a.txt "two\n"
> write /run.sh "two\n"
> mode /a.txt
> mode /run.sh
"#,
        expect![[r#"
            replaced, unseen
            replaced, unseen
            0640
            0755
        "#]],
    );
}

#[test]
fn a_link_is_written_through_and_stays_a_link() {
    check(
        r#"
//- /src/a.txt
one
//- /link -> src/a.txt
//- /absolute -> $ROOT/src/a.txt
//- /dir -> src
//- /dangling -> src/new.txt
> read /link
> write /link "two\n"
> read /absolute
> write /absolute "three\n"
> write /dir/a.txt "four\n"
> write /dangling "new\n"
> tree
> cat /src/a.txt
> cat /src/new.txt
> changes
"#,
        expect![[r#"
            | one
            replaced
            | two
            replaced
            replaced
            created
            $ROOT/absolute -> $ROOT/src/a.txt
            $ROOT/dangling -> src/new.txt
            $ROOT/dir -> src
            $ROOT/link -> src/a.txt
            $ROOT/src/
            $ROOT/src/a.txt
            $ROOT/src/new.txt
            = four\n
            = new\n
            1 s1 changes $ROOT/src/a.txt
            2 s1 changes $ROOT/src/a.txt
            3 s1 changes $ROOT/src/a.txt
            4 s1 creates $ROOT/src/new.txt
        "#]],
    );
}

#[test]
fn a_workspace_below_a_link_works() {
    check(
        r#"
//= cwd $BASE/via
//- $BASE/via -> ws
//- /a.txt
one
> read $BASE/via/a.txt
> write $BASE/via/a.txt "two\n"
> write $BASE/via/b/c.txt "new\n"
> read /a.txt
> write /a.txt "three\n"
> tree
"#,
        expect![[r#"
            | one
            replaced
            created
            | two
            replaced
            $ROOT/a.txt
            $ROOT/b/
            $ROOT/b/c.txt
        "#]],
    );
}

#[test]
fn what_is_too_large_is_not_written() {
    check(
        r#"
//= max-write 10
//- /big.txt
one two three four
//- /a.txt
one
> write /a.txt "one two three four\n"
> write /big.txt "one\n"
> cat /a.txt
> cat /big.txt
"#,
        expect![[r#"
            ! -32602 "the text for $ROOT/a.txt has 19 bytes, a write takes at most 10: use a command"
            ! -32602 {"reason":"too_large","path":"$ROOT/big.txt","bytes":19,"limit":10}
            = one\n
            = one two three four\n
        "#]],
    );
}

#[test]
fn two_sessions_write_the_same_file_in_turn() {
    // The second write is merged, or refused.
    check(
        r#"
//- /a.txt
one
two
three
> s1 read /a.txt
> s2 read /a.txt
> s1 write /a.txt "first\ntwo\nthree\n"
> s2 write /a.txt "one\ntwo\nsecond\n"
> s2 write /a.txt "mine\ntwo\nsecond\n"
> cat /a.txt
> s1 write /a.txt "first\ntwo\nthree\nagain\n"
> cat /a.txt
> changes
"#,
        expect![[r#"
            | one
            | two
            | three
            | one
            | two
            | three
            replaced
            merged
            | first
            | two
            | second
            ! -32602 {"reason":"conflict","path":"$ROOT/a.txt","why":"the text was changed since this session read it, and both changes touch the same lines: read it again","hunks":[{"line":1,"base":"one\n","ours":"first\n","theirs":"mine\n"}]}
            = first\n
            = two\n
            = second\n
            ! -32602 {"reason":"conflict","path":"$ROOT/a.txt","why":"the text was changed since this session read it, and both changes touch the same lines: read it again","hunks":[{"line":3,"base":"three\n","ours":"second\n","theirs":"three\nagain\n"}]}
            = first\n
            = two\n
            = second\n
            1 s1 changes $ROOT/a.txt
            2 s2 changes $ROOT/a.txt
        "#]],
    );
}

#[test]
fn both_wrote_the_same_and_that_is_no_conflict() {
    check(
        r#"
//- /a.txt
one
two
> s1 read /a.txt
> s2 read /a.txt
> s1 write /a.txt "ONE\ntwo\n"
> s2 write /a.txt "ONE\ntwo\n"
> s2 write /a.txt "ONE\nTWO\n"
> cat /a.txt
"#,
        expect![[r#"
            | one
            | two
            | one
            | two
            replaced
            unchanged
            replaced
            = ONE\n
            = TWO\n
        "#]],
    );
}

#[test]
fn a_name_as_long_as_names_can_be_is_written() {
    check(
        r#"
> write /aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa "one\n"
> write /aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaab "one\n"
> read /aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa
"#,
        expect![[r#"
            created
            ! -32602 "cannot open $ROOT/aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaab: File name too long (os error 36)"
            | one
        "#]],
    );
}

#[test]
fn extended_attributes_stay() {
    let directory = tempfile::TempDir::new_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
    let (ws, state) = (directory.path().join("ws"), directory.path().join("state"));
    std::fs::create_dir(&ws).unwrap();
    let file = ws.join("a.txt");
    std::fs::write(&file, "one\n").unwrap();
    let value = b"kept".as_slice();
    match rustix::fs::setxattr(&file, "user.bowline.test", value, rustix::fs::XattrFlags::empty()) {
        // A file system without attributes has none to lose.
        Err(rustix::io::Errno::NOTSUP) => return,
        set => set.unwrap(),
    }
    let roots = Roots::open(&RootSpec::writable(ws.to_str().unwrap()), &[]).unwrap();
    let session =
        Workspace::open(roots, &state, WorkspaceOptions::default()).unwrap().workspace.session("s1");
    let origin = session.origin(None, None);
    let attribute = || {
        let mut value = [0; 16];
        let length = rustix::fs::getxattr(&file, "user.bowline.test", &mut value).unwrap();
        value[..length].to_vec()
    };
    session.write(file.to_str().unwrap(), "two\n", &origin).unwrap();
    assert_eq!((std::fs::read_to_string(&file).unwrap().as_str(), attribute()), ("two\n", value.to_vec()));
    session.undo(&ChangeSelection::default(), &origin).unwrap();
    assert_eq!((std::fs::read_to_string(&file).unwrap().as_str(), attribute()), ("one\n", value.to_vec()));
}
