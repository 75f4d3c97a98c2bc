//! Tests of the claims extracted from real agents' tool calls.

use std::fmt::Write as _;

use agent_client_protocol_schema::v1::ToolCallUpdate;
use expect_test::{Expect, expect};

use super::*;

fn check(calls: &str, expected: Expect) {
    let mut out = String::new();
    for line in calls.lines().filter(|line| !line.trim().is_empty()) {
        let update: ToolCallUpdate = serde_json::from_str(line).unwrap();
        let view = ToolCallView::from_update(None, &update);
        writeln!(out, "{}", update.tool_call_id.0).unwrap();
        for claim in extract_claims(&view) {
            writeln!(out, "  {claim:?}").unwrap();
        }
    }
    expected.assert_eq(&out);
}

#[test]
fn diffs_are_writes() {
    check(
        r#"
{"toolCallId":"whole","kind":"edit","title":"Edit","content":[{"type":"diff","path":"/w/a","oldText":"a\n","newText":"b\n"},{"type":"diff","path":"/w/new","newText":"x"}]}
{"toolCallId":"also runs","kind":"execute","title":"Patch","content":[{"type":"diff","path":"/w/a","newText":"b"}]}
{"toolCallId":"by input","kind":"edit","title":"Write","rawInput":{"file_path":"/w/a","content":"b"}}
{"toolCallId":"whose text","kind":"edit","title":"Write","locations":[{"path":"/w/a"},{"path":"/w/b"}],"rawInput":{"content":"b"}}
"#,
        expect![[r#"
            whole
              Write { path: "/w/a", text: Some(TextReplacement { old: Some("a\n"), new: "b\n" }) }
              Write { path: "/w/new", text: Some(TextReplacement { old: None, new: "x" }) }
            also runs
              Write { path: "/w/a", text: Some(TextReplacement { old: None, new: "b" }) }
              Described { kind: Execute, title: "Patch" }
            by input
              Write { path: "/w/a", text: Some(TextReplacement { old: None, new: "b" }) }
            whose text
              Write { path: "/w/a", text: None }
              Write { path: "/w/b", text: None }
        "#]],
    );
}

#[test]
fn commands_are_found_under_the_names_that_agents_give_them() {
    check(
        r#"
{"toolCallId":"line","kind":"execute","title":"Run","rawInput":{"command":"cargo test","cwd":"/w"}}
{"toolCallId":"argv","kind":"execute","title":"Run","rawInput":{"command":["bash","-lc","ls"],"workdir":"/w/sub"}}
{"toolCallId":"program","kind":"execute","title":"Run","rawInput":{"cmd":"ls","args":["-l"]}}
{"toolCallId":"nothing","kind":"execute","title":"Run something"}
{"toolCallId":"not text","kind":"execute","title":"Run","rawInput":{"command":["ls",7]}}
{"toolCallId":"empty","kind":"execute","title":"Run","rawInput":{"command":""}}
{"toolCallId":"other","title":"db.query","rawInput":{"command":"ls"}}
"#,
        expect![[r#"
            line
              Run { invocation: Shell("cargo test"), cwd: Some("/w") }
            argv
              Run { invocation: Argv(["bash", "-lc", "ls"]), cwd: Some("/w/sub") }
            program
              Run { invocation: Argv(["ls", "-l"]), cwd: None }
            nothing
              Described { kind: Execute, title: "Run something" }
            not text
              Described { kind: Execute, title: "Run" }
            empty
              Described { kind: Execute, title: "Run" }
            other
              Described { kind: Execute, title: "db.query" }
              Run { invocation: Shell("ls"), cwd: None }
        "#]],
    );
}

#[test]
fn other_kinds_claim_what_they_name() {
    check(
        r#"
{"toolCallId":"read","kind":"read","title":"Read","locations":[{"path":"/w/a"}]}
{"toolCallId":"search","kind":"search","title":"Find","rawInput":{"path":"/w"}}
{"toolCallId":"edit blind","kind":"edit","title":"Edit","locations":[{"path":"/w/a"}],"rawInput":{"file_path":"/w/a"}}
{"toolCallId":"delete","kind":"delete","title":"Delete","locations":[{"path":"/w/a"},{"path":"/w/b"}]}
{"toolCallId":"move","kind":"move","title":"Move","locations":[{"path":"/w/a"}]}
{"toolCallId":"fetch","kind":"fetch","title":"Fetch","rawInput":{"url":"https://example.org/x"}}
{"toolCallId":"think","kind":"think","title":"Think"}
{"toolCallId":"mode","kind":"switch_mode","title":"Leave plan mode"}
{"toolCallId":"bare"}
"#,
        expect![[r#"
            read
              Read { path: "/w/a" }
            search
              Read { path: "/w" }
            edit blind
              Write { path: "/w/a", text: None }
            delete
              Delete { path: "/w/a" }
              Delete { path: "/w/b" }
            move
              Delete { path: "/w/a" }
              Write { path: "/w/a", text: None }
            fetch
              Fetch { url: "https://example.org/x" }
            think
              Described { kind: Read, title: "Think" }
            mode
              Described { kind: Execute, title: "Leave plan mode" }
            bare
              Described { kind: Execute, title: "a tool call" }
        "#]],
    );
}

#[test]
fn a_call_that_names_nothing_still_claims_something() {
    check(
        r#"
{"toolCallId":"read","kind":"read","title":"Read"}
{"toolCallId":"edit","kind":"edit","title":"Edit","rawInput":{"path":"","content":"b"}}
{"toolCallId":"delete","kind":"delete","title":"Delete"}
{"toolCallId":"move","kind":"move","title":"Move"}
{"toolCallId":"fetch","kind":"fetch","title":"Fetch","rawInput":{"url":""}}
{"toolCallId":"empty argv","kind":"execute","title":"Run","rawInput":{"command":[]}}
{"toolCallId":"no arguments","kind":"execute","title":"Run","rawInput":{"command":"rm -r x","args":[]}}
"#,
        expect![[r#"
            read
              Described { kind: Read, title: "Read" }
            edit
              Described { kind: Write, title: "Edit" }
            delete
              Described { kind: Delete, title: "Delete" }
            move
              Described { kind: Write, title: "Move" }
            fetch
              Described { kind: Fetch, title: "Fetch" }
            empty argv
              Described { kind: Execute, title: "Run" }
            no arguments
              Run { invocation: Shell("rm -r x"), cwd: None }
        "#]],
    );
}

#[test]
fn more_than_can_be_shown_is_asked_about() {
    let locations: Vec<String> = (0..2000).map(|n| format!(r#"{{"path":"/w/{n}"}}"#)).collect();
    let update = format!(
        r#"{{"toolCallId":"many","kind":"delete","title":"Clean up","locations":[{}]}}"#,
        locations.join(",")
    );
    let update: ToolCallUpdate = serde_json::from_str(&update).unwrap();
    let claims = extract_claims(&ToolCallView::from_update(None, &update));
    assert_eq!(claims.len(), MAX_CLAIMS);
    assert_eq!(
        claims.last(),
        Some(&ToolCallClaim::Described { kind: OperationKind::Delete, title: "Clean up".to_owned() })
    );
}

#[test]
fn a_part_is_known_by_standing_in_the_file_once() {
    let text =
        |old: Option<&str>, new: &str| TextReplacement { old: old.map(str::to_owned), new: new.to_owned() };
    let cases = [
        ("a new file", text(None, "b"), None, Some("b")),
        ("the whole file", text(Some("a"), "b"), Some("a"), Some("b")),
        ("over a file that was not shown", text(None, "b"), Some("a"), Some("b")),
        ("nothing in particular is replaced", text(Some(""), "b"), Some("a"), Some("b")),
        ("a part", text(Some("a"), "b"), Some("x a y"), Some("x b y")),
        ("a part that stands there twice", text(Some("a"), "b"), Some("a a"), None),
        ("twice, and overlapping", text(Some("aa"), "b"), Some("aaaa"), None),
        ("a part that does not stand there", text(Some("a"), "b"), Some("x"), None),
        ("a part of what is not there", text(Some("a"), "b"), None, Some("b")),
    ];
    for (case, text, current, expected) in cases {
        assert_eq!(text.apply_to(current).as_deref(), expected, "{case}");
    }
}
