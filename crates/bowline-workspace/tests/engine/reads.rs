//! Tests of reads: the effect of `line` and `limit`, and the errors where there is nothing to return.

use expect_test::expect;

use crate::check;

#[test]
fn a_read_gives_the_lines_that_were_asked_for() {
    check(
        r#"
//- /src/a.txt
one
two
three
> read /src/a.txt
> read /src/a.txt 2
> read /src/a.txt 2 1
> read /src/a.txt - 1
> read /src/a.txt 3 5
"#,
        expect![[r#"
            | one
            | two
            | three
            | two
            | three
            | two
            | one
            | three
        "#]],
    );
}

#[test]
fn line_zero_is_line_one_and_no_number_is_too_large() {
    check(
        r#"
//- /a.txt
one
two
> read /a.txt 0 1
> read /a.txt 1 0
> read /a.txt 2 4294967295
> read /a.txt 3
> read /a.txt 3 0
> read /a.txt 4294967295
> read /a.txt 4294967295 4294967295
"#,
        expect![[r#"
            | one
            (empty)
            | two
            ! -32602 {"reason":"past_end","lines":2}
            ! -32602 {"reason":"past_end","lines":2}
            ! -32602 {"reason":"past_end","lines":2}
            ! -32602 {"reason":"past_end","lines":2}
        "#]],
    );
}

#[test]
fn lines_end_after_a_newline_and_nowhere_else() {
    check(
        r#"
//- /empty no-eol

//- /newline bytes=0a
//- /no-end bytes=610a62
//- /cr bytes=610d620d
//- /mixed bytes=610d0a620a630d0a
//- /separator bytes=61e280a8620a
> read /empty
> read /empty 1 1
> read /empty 2
> read /newline
> read /newline 1 1
> read /newline 2
> read /no-end 2
> read /no-end 3
> read /cr
> read /cr 2
> read /mixed 1 1
> read /mixed 2 1
> read /mixed 3 1
> read /separator 1 1
> read /separator 2
"#,
        expect![[r#"
            (empty)
            (empty)
            ! -32602 {"reason":"past_end","lines":0}
            |
            |
            ! -32602 {"reason":"past_end","lines":1}
            | b
            \ no newline
            ! -32602 {"reason":"past_end","lines":2}
            | a\rb\r
            \ no newline
            ! -32602 {"reason":"past_end","lines":1}
            | a\r
            | b
            | c\r
            | a\u{2028}b
            ! -32602 {"reason":"past_end","lines":1}
        "#]],
    );
}

#[test]
fn what_is_not_there_is_not_found() {
    check(
        r#"
//- /dir/a
a
> read /missing
> read /dir/missing/deeper
> read /dir
> read /dir/a/b
> read /
> read /dir/
"#,
        expect![[r#"
            ! -32002 {"uri":"$ROOT/missing"}
            ! -32002 {"uri":"$ROOT/dir/missing/deeper"}
            ! -32602 "$ROOT/dir is a directory: list it, or name a file in it"
            ! -32602 "a name on the way to $ROOT/dir/a/b is not a directory"
            ! -32602 "$ROOT/ is a directory: list it, or name a file in it"
            ! -32602 "$ROOT/dir/ is a directory: list it, or name a file in it"
        "#]],
    );
}

#[test]
fn a_file_that_is_too_large_says_how_to_read_it() {
    check(
        r#"
//= max-read 10
//- /a.txt
one
two
three
> read /a.txt
> read /a.txt 1 2
> read /a.txt 1 3
> read /a.txt 2
> open /a.txt
> type /a.txt "ONE\ntwo\nthree\n"
> read /a.txt
> read /a.txt 1 2
> read /a.txt 1 3
"#,
        expect![[r#"
            ! -32602 {"reason":"too_large","path":"$ROOT/a.txt","bytes":14,"limit":10}
            | one
            | two
            ! -32602 "these lines of $ROOT/a.txt have more than 10 bytes: ask for fewer"
            | two
            | three
            $ROOT/a.txt saved
            | one
            | two
            | three
            unsaved
            ! -32602 {"reason":"too_large","path":"$ROOT/a.txt","bytes":14,"limit":10}
            from the editor
            | ONE
            | two
            ! -32602 {"reason":"too_large","path":"$ROOT/a.txt","bytes":14,"limit":10}
        "#]],
    );
}

#[test]
fn a_sparse_file_of_a_terabyte_is_refused_at_once() {
    // Holes are NULs, which no text has; the requested lines are examined first.
    check(
        r#"
//- /big size=1099511627776
one
two
> read /big
> read /big 1 1
> read /big 1 10
"#,
        expect![[r#"
            ! -32602 {"reason":"too_large","path":"$ROOT/big","bytes":1099511627776,"limit":10485760}
            ! -32602 {"reason":"not_text","path":"$ROOT/big","why":"the content is binary, read it with a command that knows its kind"}
            ! -32602 {"reason":"not_text","path":"$ROOT/big","why":"the content is binary, read it with a command that knows its kind"}
        "#]],
    );
}

#[test]
fn a_line_that_is_too_long_is_refused_and_the_lines_around_it_are_read() {
    let line = "x".repeat(3 << 20);
    check(
        &format!(
            "//= max-read 1048576\n//- /a.txt\none\n{line}\nthree\n> read /a.txt 1 1\n> read /a.txt 2 1\n> read /a.txt 3 1\n> read /a.txt\n"
        ),
        expect![[r#"
            | one
            ! -32602 "these lines of $ROOT/a.txt have more than 1048576 bytes: ask for fewer"
            | three
            ! -32602 {"reason":"too_large","path":"$ROOT/a.txt","bytes":3145739,"limit":1048576}
        "#]],
    );
}

#[test]
fn paths_without_end_are_refused() {
    let deep = "/a".repeat(5000);
    let long = "a".repeat(1 << 20);
    let longest = format!("/{}", "a/".repeat(250));
    check(
        &format!("> read {deep}\n> read /{long}\n> read {longest}\n> read {long}\n"),
        expect![[r#"
        ! -32602 "the path is 10018 bytes long, at most 4096 are allowed"
        ! -32602 "the path is 1048595 bytes long, at most 4096 are allowed"
        ! -32002 {"uri":"$ROOT/a/a/a/a/a/a/a/a/a/a/a/a/a/a/a/a/a/a/a/a/a/a/a/a/a/a/a/a/a/a/a/a/a/a/a/a/a/a/a/a/a/a/a/a/a/a/a/a/a/a/a/a/a/a/a/a/a/a/a/a/a/a/a/a/a/a/a/a/a/a/a/a/a/a/a/a/a/a/a/a/a/a/a/a/a/a/a/a/a/a/a/a/a/a/a/a/a/a/a/a/a/a/a/a/a/a/a/a/a/a/a/a/a/a/a/a/a/a/a/a/a/a/a/a/a/a/a/a/a/a/a/a/a/a/a/a/a/a/a/a/a/a/a/a/a/a/a/a/a/a/a/a/a/a/a/a/a/a/a/a/a/a/a/a/a/a/a/a/a/a/a/a/a/a/a/a/a/a/a/a/a/a/a/a/a/a/a/a/a/a/a/a/a/a/a/a/a/a/a/a/a/a/a/a/a/a/a/a/a/a/a/a/a/a/a/a/a/a/a/a/a/a/a/a/a/a/a/a/a/a/a/a/a/a/a/a/a/a/a/a/a/a/a/a/a/a/a/a/a/a/"}
        ! -32602 "the path is 1048576 bytes long, at most 4096 are allowed"
    "#]],
    );
}
