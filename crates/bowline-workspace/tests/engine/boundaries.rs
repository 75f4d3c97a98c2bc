//! Tests of boundaries: nothing outside a session's directories is read, changed or disclosed, with either resolver.

use expect_test::expect;

use crate::check_both;

#[test]
fn what_is_outside_by_its_text_is_refused() {
    check_both(
        r#"
//- $ROOT-evil/f
secret
//- $OUT/s
secret
> read $ROOT-evil/f
> write $ROOT-evil/g "x\n"
> read /../out/s
> read /a/../../out/s
> read /a/../../out/missing
> read $OUT/s
> read $OUT/missing
> write $OUT/new "x\n"
> read @/
> read @/etc/passwd
> tree
"#,
        expect![[r#"
            ! -32602 {"reason":"outside","path":"$ROOT-evil/f"}
            ! -32602 {"reason":"outside","path":"$ROOT-evil/g"}
            ! -32602 {"reason":"outside","path":"$ROOT/../out/s"}
            ! -32602 {"reason":"outside","path":"$ROOT/a/../../out/s"}
            ! -32602 {"reason":"outside","path":"$ROOT/a/../../out/missing"}
            ! -32602 {"reason":"outside","path":"$OUT/s"}
            ! -32602 {"reason":"outside","path":"$OUT/missing"}
            ! -32602 {"reason":"outside","path":"$OUT/new"}
            ! -32602 {"reason":"outside","path":"/"}
            ! -32602 {"reason":"outside","path":"/etc/passwd"}
            $OUT/s
        "#]],
    );
}

#[test]
fn links_that_lead_outside_are_refused() {
    check_both(
        r#"
//- $OUT/s
secret
//- /l -> $OUT/s
//- /r -> ../out/s
//- /d -> $OUT
//- /n -> $OUT/new
//- /m -> ../out/new
//- /up -> ..
//- /root -> /
> read /l
> read /r
> read /d/s
> read /d/missing
> write /l "x\n"
> write /r "x\n"
> write /d/new "x\n"
> write /d/a/b/new "x\n"
> write /n "x\n"
> write /m "x\n"
> read /up/out/s
> read /root/etc/passwd
> open /l
> delete /l
> tree
"#,
        expect![[r#"
            ! -32602 {"reason":"outside","path":"$ROOT/l"}
            ! -32602 {"reason":"outside","path":"$ROOT/r"}
            ! -32602 {"reason":"outside","path":"$ROOT/d/s"}
            ! -32602 {"reason":"outside","path":"$ROOT/d/missing"}
            ! -32602 {"reason":"outside","path":"$ROOT/l"}
            ! -32602 {"reason":"outside","path":"$ROOT/r"}
            ! -32602 {"reason":"outside","path":"$ROOT/d/new"}
            ! -32602 {"reason":"outside","path":"$ROOT/d/a/b/new"}
            ! -32602 {"reason":"outside","path":"$ROOT/n"}
            ! -32602 {"reason":"outside","path":"$ROOT/m"}
            ! -32602 {"reason":"outside","path":"$ROOT/up/out/s"}
            ! -32602 {"reason":"outside","path":"$ROOT/root/etc/passwd"}
            ! -32602 {"reason":"outside","path":"$ROOT/l"}
            ! -32602 {"reason":"outside","path":"$ROOT/l"}
            $ROOT/d -> $OUT
            $ROOT/l -> $OUT/s
            $ROOT/m -> ../out/new
            $ROOT/n -> $OUT/new
            $ROOT/r -> ../out/s
            $ROOT/root -> /
            $ROOT/up -> ..
            $OUT/s
        "#]],
    );
}

#[test]
fn chains_and_loops_of_links_end() {
    check_both(
        r#"
//- $OUT/s
secret
//- /a -> b
//- /b -> c
//- /c -> $OUT
//- /loop -> loop
//- /x -> y/z
//- /y -> x
> read /a/s
> write /a/new "x\n"
> read /loop
> write /loop "x\n"
> read /x
> tree
"#,
        expect![[r#"
            ! -32602 {"reason":"outside","path":"$ROOT/a/s"}
            ! -32602 {"reason":"outside","path":"$ROOT/a/new"}
            ! -32602 "$ROOT/loop leads through too many links"
            ! -32602 "$ROOT/loop leads through too many links"
            ! -32602 "$ROOT/x leads through too many links"
            $ROOT/a -> b
            $ROOT/b -> c
            $ROOT/c -> $OUT
            $ROOT/loop -> loop
            $ROOT/x -> y/z
            $ROOT/y -> x
            $OUT/s
        "#]],
    );
}

#[test]
fn forty_links_are_followed_and_no_more() {
    check_both(
        r#"
//- /f
end
//- /l0 -> l1
//- /l1 -> l2
//- /l2 -> l3
//- /l3 -> l4
//- /l4 -> l5
//- /l5 -> l6
//- /l6 -> l7
//- /l7 -> l8
//- /l8 -> l9
//- /l9 -> l10
//- /l10 -> l11
//- /l11 -> l12
//- /l12 -> l13
//- /l13 -> l14
//- /l14 -> l15
//- /l15 -> l16
//- /l16 -> l17
//- /l17 -> l18
//- /l18 -> l19
//- /l19 -> l20
//- /l20 -> l21
//- /l21 -> l22
//- /l22 -> l23
//- /l23 -> l24
//- /l24 -> l25
//- /l25 -> l26
//- /l26 -> l27
//- /l27 -> l28
//- /l28 -> l29
//- /l29 -> l30
//- /l30 -> l31
//- /l31 -> l32
//- /l32 -> l33
//- /l33 -> l34
//- /l34 -> l35
//- /l35 -> l36
//- /l36 -> l37
//- /l37 -> l38
//- /l38 -> l39
//- /l39 -> l40
//- /l40 -> f
> read /l1
> read /l0
> write /l0 "x\n"
> write /l1 "new\n"
> cat /f
"#,
        expect![[r#"
            | end
            ! -32602 "$ROOT/l0 leads through too many links"
            ! -32602 "$ROOT/l0 leads through too many links"
            replaced
            = new\n
        "#]],
    );
}

#[test]
fn system_files_and_magic_links_are_refused() {
    check_both(
        r#"
//- /p -> /proc/self/fd/0
//- /q -> /proc/self/root/etc/passwd
//- /cwd -> /proc/self/cwd
//- /fd -> /dev/fd/0
//- /zero -> /dev/zero
> read @/proc/self/root/etc/passwd
> read @/proc/self/cwd/f
> read @/dev/fd/0
> read @/dev/zero
> read /p
> read /q
> read /cwd/Cargo.toml
> read /fd
> read /zero
> write /p "x\n"
> write /zero "x\n"
"#,
        expect![[r#"
            ! -32602 {"reason":"outside","path":"/proc/self/root/etc/passwd"}
            ! -32602 {"reason":"outside","path":"/proc/self/cwd/f"}
            ! -32602 {"reason":"outside","path":"/dev/fd/0"}
            ! -32602 {"reason":"outside","path":"/dev/zero"}
            ! -32602 {"reason":"outside","path":"$ROOT/p"}
            ! -32602 {"reason":"outside","path":"$ROOT/q"}
            ! -32602 {"reason":"outside","path":"$ROOT/cwd/Cargo.toml"}
            ! -32602 {"reason":"outside","path":"$ROOT/fd"}
            ! -32602 {"reason":"outside","path":"$ROOT/zero"}
            ! -32602 {"reason":"outside","path":"$ROOT/p"}
            ! -32602 {"reason":"outside","path":"$ROOT/zero"}
        "#]],
    );
}

#[test]
fn a_system_file_system_inside_a_root_is_refused() {
    // The mounts inside the root here are the system's own /proc and /sys.
    check_both(
        r#"
//= cwd /
//= cwd-read-only
> read @/proc/1/environ
> read @/proc/self/status
> read @/proc/self/root/proc/version
> read @/sys/kernel/mm/transparent_hugepage/enabled
"#,
        expect![[r#"
            ! -32602 "/proc/1/environ is on a system file system, which holds no files of a project"
            ! -32602 "/proc/self/status is on a system file system, which holds no files of a project"
            ! -32602 "/proc/self/root/proc/version is on a system file system, which holds no files of a project"
            ! -32602 "/sys/kernel/mm/transparent_hugepage/enabled is on a system file system, which holds no files of a project"
        "#]],
    );
}

#[test]
fn pipes_and_sockets_are_refused_without_waiting() {
    check_both(
        r#"
//- /pipe fifo
//- /socket socket
//- /to-pipe -> pipe
> read /pipe
> read /pipe 1 1
> write /pipe "x\n"
> read /socket
> write /socket "x\n"
> read /to-pipe
> write /to-pipe "x\n"
> open /pipe
> delete /pipe
> tree
"#,
        expect![[r#"
            ! -32602 "$ROOT/pipe is not a regular file"
            ! -32602 "$ROOT/pipe is not a regular file"
            ! -32602 "$ROOT/pipe is not a regular file"
            ! -32602 "$ROOT/socket is not a regular file"
            ! -32602 "$ROOT/socket is not a regular file"
            ! -32602 "$ROOT/to-pipe is not a regular file"
            ! -32602 "$ROOT/to-pipe is not a regular file"
            ! -32602 "$ROOT/pipe is not a regular file"
            ! -32602 "$ROOT/pipe is not a regular file"
            $ROOT/pipe (pipe)
            $ROOT/socket (special)
            $ROOT/to-pipe -> pipe
        "#]],
    );
}

#[test]
fn temporary_names_that_were_planted_are_not_used() {
    check_both(
        r#"
//- $OUT/s
secret
//- /f
one
//- /f.tmp -> $OUT/s
//- /.f.tmp -> $OUT/s
//- /f~ -> $OUT/s
//- /.f.swp -> $OUT/s
//- /.bowline.tmp -> $OUT/s
> read /f
> write /f "two\n"
> cat /f
> cat $OUT/s
> tree
"#,
        expect![[r#"
            | one
            replaced
            = two\n
            = secret\n
            $ROOT/.bowline.tmp -> $OUT/s
            $ROOT/.f.swp -> $OUT/s
            $ROOT/.f.tmp -> $OUT/s
            $ROOT/f
            $ROOT/f.tmp -> $OUT/s
            $ROOT/f~ -> $OUT/s
            $OUT/s
        "#]],
    );
}

#[test]
fn names_that_run_later_ask_at_any_depth_existing_or_not() {
    check_both(
        r#"
//- /.git/config
[core]
> read /.git/config
> write /.git/hooks/pre-commit "x\n"
> write /vendor/x/.git/config "x\n"
> write /.GiT/config "x\n"
> write /.VSCODE/tasks.json "x\n"
> write /.github/workflows/ci.yml "x\n"
> write /.envrc "x\n"
> write /.claude/settings.json "x\n"
> write /ordinary "x\n"
"#,
        expect![[r#"
            | [core]
            asks: writes a git hook: runs later
            created
            asks: writes into the repository's own files: they name commands that run later
            created
            asks: writes into the repository's own files: they name commands that run later
            created
            asks: writes editor settings: they name tasks and programs that run later
            created
            asks: writes a workflow: runs on the build server
            created
            asks: is an environment file: may hold secrets, and runs when the directory is entered
            created
            asks: writes an agent's settings: they grant it rights and name servers it starts
            created
            created
        "#]],
    );
}

#[test]
fn a_link_to_what_runs_later_asks_too() {
    check_both(
        r#"
//- /.git/config
[core]
//- /innocent -> .git/config
//- /dir -> .git
> write /innocent "x\n"
> write /dir/hooks/post-merge "x\n"
> read /innocent
"#,
        expect![[r#"
            asks: writes into the repository's own files: they name commands that run later
            replaced, unseen
            asks: writes a git hook: runs later
            created
            | x
        "#]],
    );
}

#[test]
fn spellings_of_protected_names_ask() {
    check_both(
        r#"
> write "/.git./config" "x\n"
> write "/.git /config" "x\n"
> write "/.git::$INDEX_ALLOCATION/config" "x\n"
> write "/f.txt:ads" "x\n"
> write "/GIT~1/config" "x\n"
> write "/NUL" "x\n"
> write "\\\\?\\C:\\x" "x\n"
> write "\\\\srv\\x" "x\n"
"#,
        expect![[r#"
            asks: writes into the repository's own files: they name commands that run later
            created
            asks: writes into the repository's own files: they name commands that run later
            created
            asks: writes into the repository's own files: they name commands that run later
            created
            created
            asks: writes into the repository's own files: they name commands that run later
            created
            created
            ! -32602 {"reason":"relative","path":"\\\\?\\C:\\x"}
            ! -32602 {"reason":"relative","path":"\\\\srv\\x"}
        "#]],
    );
}

#[test]
fn names_that_would_steer_a_terminal_are_told_escaped() {
    check_both(
        r#"
> read "/a\nb"
> read "/\u001b[31mred"
> read "/\u202egnp.exe"
> write "/line\nbreak" "one\n"
> read "/line\nbreak"
> read "/line\nbreak/x"
> write "/\u001b]0;title\u0007" "one\n"
> write "/\u001b]0;title\u0007/x" "one\n"
"#,
        expect![[r#"
            ! -32002 {"uri":"$ROOT/a\nb"}
            ! -32002 {"uri":"$ROOT/\u001b[31mred"}
            ! -32002 {"uri":"$ROOT/\u{202e}gnp.exe"}
            created
            | one
            ! -32602 "a name on the way to $ROOT/line\\nbreak/x is not a directory"
            created
            ! -32602 "a name on the way to $ROOT/\\u{1b}]0;title\\u{7}/x is not a directory"
        "#]],
    );
}

#[test]
fn texts_that_are_no_paths_are_refused() {
    check_both(
        r#"
> read "/a\u0000b"
> read ""
> read relative/path
> read ~/x
> read ~root/x
> read file:///etc/passwd
> read FILE:///etc/passwd
> read .
> write relative "x\n"
"#,
        expect![[r#"
            ! -32602 "the path \"$ROOT/a\\0b\" has a NUL character"
            ! -32602 "the path is empty, send an absolute path"
            ! -32602 {"reason":"relative","path":"relative/path"}
            ! -32602 {"reason":"relative","path":"~/x"}
            ! -32602 {"reason":"relative","path":"~root/x"}
            ! -32602 {"reason":"relative","path":"file:///etc/passwd"}
            ! -32602 {"reason":"relative","path":"FILE:///etc/passwd"}
            ! -32602 {"reason":"relative","path":"."}
            ! -32602 {"reason":"relative","path":"relative"}
        "#]],
    );
}

#[test]
fn secrets_ask_to_be_read() {
    check_both(
        r#"
//= root $LIB read-only
//- /.env
KEY=1
//- /sub/.env.local
KEY=1
//- $LIB/id_rsa
key
//- $LIB/.aws/credentials
key
//- /innocent -> .env
> read /.env
> read /sub/.env.local
> read $LIB/id_rsa
> read $LIB/.aws/credentials
> read /innocent
> write /.env "KEY=2\n"
"#,
        expect![[r#"
            asks: holds secrets
            | KEY=1
            asks: holds secrets
            | KEY=1
            asks: is a private key
            | key
            asks: holds secrets
            | key
            asks: holds secrets
            | KEY=1
            asks: holds secrets
            replaced
        "#]],
    );
}

#[test]
fn what_is_the_engines_own_is_out_of_reach() {
    check_both(
        r#"
//= journal $ROOT/own
//- /own/
//- /link -> own
//- /a.txt
one
> read /own/journal.db
> write /own/anything "x\n"
> write /link/anything "x\n"
> open /own/anything
> delete /own/journal.db
> read /own
> read /a.txt
"#,
        expect![[r#"
            ! -32602 "$ROOT/own/journal.db belongs to Bowline itself, agents cannot reach it"
            ! -32602 "$ROOT/own/anything belongs to Bowline itself, agents cannot reach it"
            ! -32602 "$ROOT/link/anything belongs to Bowline itself, agents cannot reach it"
            ! -32602 "$ROOT/own/anything belongs to Bowline itself, agents cannot reach it"
            ! -32602 "$ROOT/own/journal.db belongs to Bowline itself, agents cannot reach it"
            ! -32602 "$ROOT/own belongs to Bowline itself, agents cannot reach it"
            | one
        "#]],
    );
}

#[test]
fn a_read_only_root_is_not_written() {
    check_both(
        r#"
//= root $LIB read-only
//- $LIB/a.txt
one
//- /to-lib -> $LIB
> read $LIB/a.txt
> write $LIB/a.txt "x\n"
> write $LIB/new "x\n"
> delete $LIB/a.txt
> read /to-lib/a.txt
> write /to-lib/a.txt "x\n"
> write /to-lib/new "x\n"
> open $LIB/a.txt
> type $LIB/a.txt "x\n"
> save $LIB/a.txt
> cat $LIB/a.txt
"#,
        expect![[r#"
            | one
            ! -32602 "$LIB/a.txt is in a directory that this session may only read"
            ! -32602 "$LIB/new is in a directory that this session may only read"
            ! -32602 "$LIB/a.txt is in a directory that this session may only read"
            | one
            ! -32602 "$ROOT/to-lib/a.txt is in a directory that this session may only read"
            ! -32602 "$ROOT/to-lib/new is in a directory that this session may only read"
            $LIB/a.txt saved
            | one
            unsaved
            ! -32602 "$LIB/a.txt is in a directory that this session may only read"
            = one\n
        "#]],
    );
}

#[test]
fn a_read_only_root_inside_a_writable_one_is_not_written() {
    check_both(
        r#"
//= root $ROOT/vendor read-only
//- /vendor/a.txt
one
//- /link -> vendor/a.txt
//- /vendor/out -> ../ok.txt
> read /vendor/a.txt
> write /vendor/a.txt "x\n"
> write /vendor/deep/new "x\n"
> write /link "x\n"
> write /ok.txt "x\n"
> write /vendor/../ok.txt "y\n"
> write /vendor/out "z\n"
> tree
"#,
        expect![[r#"
            | one
            ! -32602 "$ROOT/vendor/a.txt is in a directory that this session may only read"
            ! -32602 "$ROOT/vendor/deep/new is in a directory that this session may only read"
            ! -32602 "$ROOT/link is in a directory that this session may only read"
            created
            replaced
            ! -32602 "$ROOT/vendor/out is in a directory that this session may only read"
            $ROOT/link -> vendor/a.txt
            $ROOT/ok.txt
            $ROOT/vendor/
            $ROOT/vendor/a.txt
            $ROOT/vendor/out -> ../ok.txt
        "#]],
    );
}

#[test]
fn a_writable_root_inside_a_read_only_one_is_written() {
    check_both(
        r#"
//= cwd-read-only
//= root $ROOT/src
//- /src/a.txt
one
//- /b.txt
one
//- /src/up -> ../b.txt
> write /src/a.txt "x\n"
> write /b.txt "x\n"
> write /src/up "x\n"
> read /src/up
> cat /b.txt
"#,
        expect![[r#"
            replaced, unseen
            ! -32602 "$ROOT/b.txt is in a directory that this session may only read"
            ! -32602 "$ROOT/src/up is in a directory that this session may only read"
            | one
            = one\n
        "#]],
    );
}

#[test]
fn links_from_one_root_to_another_work() {
    check_both(
        r#"
//= root $LIB
//- $LIB/a.txt
one
//- /lib -> $LIB
//- /file -> ../lib/a.txt
//- $LIB/back -> $ROOT/own.txt
//- /own.txt
own
> read /lib/a.txt
> write /lib/a.txt "two\n"
> read /file
> write /file "three\n"
> read $LIB/back
> write $LIB/back "four\n"
> write /lib/new/deep.txt "new\n"
> read /lib/back
> tree
> changes
"#,
        expect![[r#"
            | one
            replaced
            | two
            replaced
            | own
            replaced
            created
            | four
            $ROOT/file -> ../lib/a.txt
            $ROOT/lib -> $LIB
            $ROOT/own.txt
            $LIB/a.txt
            $LIB/back -> $ROOT/own.txt
            $LIB/new/
            $LIB/new/deep.txt
            1 s1 changes $LIB/a.txt
            2 s1 changes $LIB/a.txt
            3 s1 changes $ROOT/own.txt
            4 s1 creates $LIB/new/deep.txt
        "#]],
    );
}

#[test]
fn dots_in_links_are_followed_as_the_system_does() {
    check_both(
        r#"
//- /a/b/c.txt
one
//- /a/up -> ../a/b/c.txt
//- /a/round -> b/../../a/b/./c.txt
//- /a/over -> ../../ws/a/b/c.txt
//- /a/lost -> missing/../b/c.txt
//- /d -> a/b
//- /via-link -> d/../b/c.txt
> read /a/up
> read /a/round
> read /a/over
> read /a/lost
> read /via-link
> write /a/over "two\n"
> cat /a/b/c.txt
"#,
        expect![[r#"
            | one
            | one
            | one
            ! -32002 {"uri":"$ROOT/a/lost"}
            | one
            replaced
            = two\n
        "#]],
    );
}

#[test]
fn a_root_that_is_moved_or_replaced_is_noticed_and_nothing_is_written() {
    check_both(
        r#"
//- /a.txt
one
> read /a.txt
> rename $ROOT $BASE/moved
> read /a.txt
> write /a.txt "two\n"
> cat $BASE/moved/a.txt
> mkdir $ROOT
> disk /a.txt "another\n"
> read /a.txt
> write /a.txt "three\n"
> cat $BASE/moved/a.txt
> cat $ROOT/a.txt
"#,
        expect![[r#"
            | one
            ! -32603 "the project directory $ROOT was moved, deleted, replaced or unmounted: restart Bowline where it is now"
            ! -32603 "the project directory $ROOT was moved, deleted, replaced or unmounted: restart Bowline where it is now"
            = one\n
            ! -32603 "the project directory $ROOT was moved, deleted, replaced or unmounted: restart Bowline where it is now"
            ! -32603 "the project directory $ROOT was moved, deleted, replaced or unmounted: restart Bowline where it is now"
            = one\n
            = another\n
        "#]],
    );
}

#[test]
fn what_is_asked_under_two_names_is_one_file_in_the_ledger() {
    check_both(
        r#"
//- /a.txt
one
//- /link -> a.txt
> read /link
> write /a.txt "two\n"
> write /link "three\n"
> read /./x/../a.txt
> write //a.txt "four\n"
> changes
"#,
        expect![[r#"
            | one
            replaced
            replaced
            | three
            replaced
            1 s1 changes $ROOT/a.txt
            2 s1 changes $ROOT/a.txt
            3 s1 changes $ROOT/a.txt
        "#]],
    );
}
