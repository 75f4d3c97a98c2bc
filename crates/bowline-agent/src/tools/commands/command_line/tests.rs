//! Tests of which commands need a shell.

use expect_test::expect;

use super::split_command_line;

#[test]
fn a_shell_reads_only_what_needs_one() {
    let mut out = String::new();
    for line in [
        "ls", "ls -l 'a b' \"c\"", "  git   log  ", "a && b", "a; b", "a | b", "a &", "a > out", "a < in",
        "echo $HOME", "echo `date`", "echo *.rs", "cd src", "export A=1", "A=1 b", "A=1", "ls ~",
        "echo \"$A\"", "(a)", "if a; then b; fi", "echo 'unfinished", "a\nb", "[ -f x ]",
    ] {
        let (program, args) = split_command_line(line, &[]);
        out += &format!("{line:?}: {program:?} {args:?}\n");
    }
    let (program, args) = split_command_line("a b", &["$c".to_owned()]);
    out += &format!("with arguments: {program:?} {args:?}\n");
    expect![[r#"
        "ls": "ls" []
        "ls -l 'a b' \"c\"": "ls" ["-l", "a b", "c"]
        "  git   log  ": "git" ["log"]
        "a && b": "/bin/sh" ["-c", "a && b"]
        "a; b": "/bin/sh" ["-c", "a; b"]
        "a | b": "/bin/sh" ["-c", "a | b"]
        "a &": "/bin/sh" ["-c", "a &"]
        "a > out": "/bin/sh" ["-c", "a > out"]
        "a < in": "/bin/sh" ["-c", "a < in"]
        "echo $HOME": "/bin/sh" ["-c", "echo $HOME"]
        "echo `date`": "/bin/sh" ["-c", "echo `date`"]
        "echo *.rs": "/bin/sh" ["-c", "echo *.rs"]
        "cd src": "/bin/sh" ["-c", "cd src"]
        "export A=1": "/bin/sh" ["-c", "export A=1"]
        "A=1 b": "/bin/sh" ["-c", "A=1 b"]
        "A=1": "/bin/sh" ["-c", "A=1"]
        "ls ~": "/bin/sh" ["-c", "ls ~"]
        "echo \"$A\"": "/bin/sh" ["-c", "echo \"$A\""]
        "(a)": "/bin/sh" ["-c", "(a)"]
        "if a; then b; fi": "/bin/sh" ["-c", "if a; then b; fi"]
        "echo 'unfinished": "/bin/sh" ["-c", "echo 'unfinished"]
        "a\nb": "/bin/sh" ["-c", "a\nb"]
        "[ -f x ]": "/bin/sh" ["-c", "[ -f x ]"]
        with arguments: "a b" ["$c"]
    "#]]
    .assert_eq(&out);
}
