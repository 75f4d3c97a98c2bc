//! Tests of the plain commands.

use std::fmt::Write as _;

use expect_test::{Expect, expect};
use proptest::prelude::*;

use super::*;

fn check(prompt: &str, expected: Expect) {
    let mut out = String::new();
    match parse(prompt) {
        Ok(steps) => {
            for step in steps {
                writeln!(out, "{step:?}").unwrap();
            }
        }
        Err(unclear) => writeln!(out, "! {unclear}").unwrap(),
    }
    expected.assert_eq(&out);
}

#[test]
fn every_command_is_understood() {
    check(
        r#"
read src/main.rs
read src/main.rs lines 10-20
write notes.txt: hello
replace "a" with "b" in src/main.rs
run cargo test
list
list src
find fn main
plan: look; change; test
think about it
say hello
wait 2
stream 10
call read_text_file {"path": "a"}
"#,
        expect![[r#"
            Read { path: "src/main.rs", lines: None }
            Read { path: "src/main.rs", lines: Some((10, 11)) }
            Write { path: "notes.txt", text: "hello" }
            Replace { path: "src/main.rs", old: "a", new: "b", all: false }
            Run("cargo test")
            List(None)
            List(Some("src"))
            Find("fn main")
            Plan(["look", "change", "test"])
            Think("about it")
            Say("hello")
            Wait(2s)
            Stream(10)
            Call { tool: "read_text_file", input: Object {"path": String("a")} }
        "#]],
    );
}

#[test]
fn people_type_as_they_like() {
    check(
        r#"
Please read `src/main.rs`.
- READ "my file.txt" Lines 3 to 5.
2) read a lines 7
read the lines
read ..
write "a: b.txt": text
write C:\a.txt: text
write a.txt:text
List .
find for "a \"b\""
run `ls -la .`
Plan first;; second ;
Wait 500ms
wait 1.5 seconds.
replace 'it''s' with "x" in y
"#,
        expect![[r#"
            ! line 16 is not complete: `replace "OLD" with "NEW" in PATH`
        "#]],
    );
    check(
        r#"
Please read `src/main.rs`.
- READ "my file.txt" Lines 3 to 5.
2) read a lines 7
read a lines 1-99999999999
read the lines
read ..
write "a: b.txt": text
write C:\a.txt: text
write a.txt:text
List .
find for "a \"b\""
run `ls -la .`
Plan first;; second ;
Wait 500ms
wait 1.5 seconds.
replace “a” with '' in `b c.rs`
replace all "a" with "b" in c
"#,
        expect![[r#"
            Read { path: "src/main.rs", lines: None }
            Read { path: "my file.txt", lines: Some((3, 3)) }
            Read { path: "a", lines: Some((7, 1)) }
            Read { path: "a", lines: Some((1, 4294967295)) }
            Read { path: "the lines", lines: None }
            Read { path: "..", lines: None }
            Write { path: "a: b.txt", text: "text" }
            Write { path: "C:\\a.txt", text: "text" }
            Write { path: "a.txt", text: "text" }
            List(Some("."))
            Find("a \"b\"")
            Run("ls -la .")
            Plan(["first", "second"])
            Wait(500ms)
            Wait(1.5s)
            Replace { path: "b c.rs", old: "a", new: "", all: false }
            Replace { path: "c", old: "a", new: "b", all: true }
        "#]],
    );
}

#[test]
fn a_mention_is_a_path() {
    check(
        "read @src/a.rs lines 2-3\nwrite @b.txt: x\nreplace \"a\" with \"b\" in @c.txt\nlist @src\nread `@d`\nread @",
        expect![[r#"
            Read { path: "src/a.rs", lines: Some((2, 2)) }
            Write { path: "b.txt", text: "x" }
            Replace { path: "c.txt", old: "a", new: "b", all: false }
            List(Some("src"))
            Read { path: "@d", lines: None }
            Read { path: "@", lines: None }
        "#]],
    );
}

#[test]
fn a_mention_alone_is_read() {
    check(
        "@src/a.rs\n@\"my file.txt\"\n- @b.txt lines 2-3",
        expect![[r#"
            Read { path: "src/a.rs", lines: None }
            Read { path: "my file.txt", lines: None }
            Read { path: "b.txt", lines: Some((2, 2)) }
        "#]],
    );
    for prose in ["@a.rs is wrong", "explain @a.rs", "@", "@\"a\" b"] {
        assert_eq!(parse(prose), Err(OfflineCommandError::UnknownCommand { line: 1 }), "{prose}");
    }
}

#[test]
fn texts_of_several_lines() {
    check(
        r#"
write a.txt: one\ntwo\\n\x
write b.txt:
```rust
fn main() {
    say("```");
}
```
write c.txt: ~~~~
read this
~~~
~~~~
write d.txt:
say "a\nb"
run
```sh
echo a
echo b
```
call t
```json
{"a":
 1}
```
"#,
        expect![[r#"
            Write { path: "a.txt", text: "one\ntwo\\n\\x" }
            Write { path: "b.txt", text: "fn main() {\n    say(\"```\");\n}\n" }
            Write { path: "c.txt", text: "read this\n~~~\n" }
            Write { path: "d.txt", text: "" }
            Say("a\nb")
            Run("echo a\necho b")
            Call { tool: "t", input: Object {"a": Number(1)} }
        "#]],
    );
}

#[test]
fn what_is_not_understood_runs_nothing() {
    for (prompt, expected) in [
        ("", expect!["! there is no command\n"]),
        ("read a\n\nfix the bug", expect!["! line 3 is no command that I know\n"]),
        ("hello", expect!["! line 1 is no command that I know\n"]),
        ("read", expect!["! line 1 is not complete: `read PATH` or `read PATH lines 10-20`\n"]),
        ("read a lines 5-3", expect!["! line 1 cannot be done: line 3 is not behind line 5\n"]),
        ("write a", expect!["! line 1 is not complete: `write PATH: TEXT`\n"]),
        ("write a:\n```\nx", expect!["! line 1 is not complete: the fenced block has no end\n"]),
        (
            "replace a with b in c",
            expect![[r#"
            ! line 1 is not complete: `replace "OLD" with "NEW" in PATH`
        "#]],
        ),
        ("run", expect!["! line 1 is not complete: `run COMMAND`\n"]),
        ("wait -1", expect!["! line 1 is not complete: `wait SECONDS`, up to 3600\n"]),
        ("wait 1e99", expect!["! line 1 is not complete: `wait SECONDS`, up to 3600\n"]),
        ("wait 99999", expect!["! line 1 cannot be done: I wait 3600 seconds at most\n"]),
        ("stream -1", expect!["! line 1 is not complete: `stream N`, up to 100000\n"]),
        ("stream 100001", expect!["! line 1 is not complete: `stream N`, up to 100000\n"]),
        (
            "call t [1]",
            expect![[r#"
                ! line 1 cannot be done: the input is no JSON object
            "#]],
        ),
        (&"say x\n".repeat(257), expect!["! there are more than 256 commands\n"]),
    ] {
        check(prompt, expected);
    }
}

#[test]
fn the_help_names_every_command_and_they_work() {
    let commands =
        ["read", "write", "replace", "run", "list", "find", "plan", "think", "say", "wait", "stream", "call"];
    for command in commands {
        assert!(HELP_TEXT.contains(&format!("`{command}")), "{command} is not in the help");
    }
}

#[test]
fn a_long_line_of_blanks_is_read_in_no_time() {
    let long = "a ".repeat(200_000);
    assert!(parse(&format!("read {long}")).is_ok());
    assert!(parse(&format!("write {long}: {long}")).is_ok());
    assert!(parse(&format!("write {}x", "a:".repeat(200_000))).is_ok());
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(512))]

    #[test]
    fn no_prompt_is_too_strange(prompt in "((read|write|replace|run|list|find|plan|think|say|wait|stream|call|Please|-|1\\.)?[ \\t]?([a-z\"'`“”\\\\:.{}~;0-9é-]| |\n|```\n|lines |with |in ){0,12}\n?){0,4}") {
        let _steps = parse(&prompt);
    }

    #[test]
    fn any_text_can_be_written(text in "[^\r]{0,60}") {
        let escaped = text.replace('\\', "\\\\").replace('\n', "\\n").replace('"', "\\\"");
        // Some implementations treat these blank characters as line ends, others do not.
        prop_assume!(!text.contains(['\u{b}', '\u{c}', '\u{85}', '\u{2028}', '\u{2029}']));
        let steps = parse(&format!("write \"a b\": \"{escaped}\"")).unwrap();
        prop_assert_eq!(steps, [OfflineCommand::Write { path: "a b".into(), text }]);
    }
}
