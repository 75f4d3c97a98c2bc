//! Tests of attribution: updates and scans in, boundaries and displayed diffs out.

use std::fmt::Write as _;

use expect_test::{Expect, expect};

use super::*;

/// Lines of JSON are updates from the agent. `? a b` scans and finds that these files have changed, and `~` that one is
/// gone; `= a` shows the call to which a change by one of Bowline's tools is attributed.
fn check(script: &str, expected: Expect) {
    let session = SessionId::new("s");
    let directory = SessionDirectory { editor_path: "/link".to_owned(), canonical_path: "/w".to_owned() };
    let mut tracker = AttributionTracker::new(&session, directory);
    let mut out = String::new();
    let mut last = None;
    for line in script.lines().filter(|line| !line.trim().is_empty()) {
        if let Some(file) = line.strip_prefix("= ") {
            let call = tracker.open_call_naming(&format!("/w/{file}"));
            writeln!(out, "  {file} is changed for {}", call.as_deref().unwrap_or("no call")).unwrap();
            continue;
        }
        if let Some(files) = line.strip_prefix('?') {
            let owners = tracker.take_attribution(last.as_ref());
            let mut found = Vec::new();
            for file in files.split_whitespace() {
                let (file, after) = match file.strip_prefix('~') {
                    Some(file) => (file, None),
                    None => (file, Some("new\n".to_owned())),
                };
                let path = format!("/w/{file}");
                let call = owners.call_for_path(&path).map(|id| id.0.to_string());
                writeln!(out, "  {file} is of {}", call.as_deref().unwrap_or("no call")).unwrap();
                found.push(AttributedChange {
                    change: ChangeId(1),
                    path,
                    call,
                    before: Some("old\n".to_owned()),
                    after,
                });
            }
            let mut calls: Vec<String> = found.iter().filter_map(|found| found.call.clone()).collect();
            calls.dedup();
            for call in calls {
                let changes: Vec<&AttributedChange> =
                    found.iter().filter(|found| found.call.as_ref() == Some(&call)).collect();
                match tracker.report_changes(&ToolCallId::new(call), &changes) {
                    Some(update) => writeln!(out, "  {}", show_update(&update)).unwrap(),
                    None => out.push_str("  nothing to show\n"),
                }
            }
            continue;
        }
        let update: Value = serde_json::from_str(line).unwrap();
        let id = ToolCallId::new(update["toolCallId"].as_str().unwrap());
        let session = update.get("other").map_or("s", |_| "other");
        let params = json!({ "sessionId": session, "update": update });
        let boundary = tracker.update(&id, &serde_json::from_value(params.clone()).unwrap());
        writeln!(out, "{} {boundary:?}", id.0).unwrap();
        let message = json!({ "jsonrpc": "2.0", "method": "session/update", "params": params }).to_string();
        if let Some(line) = tracker.with_shown_diffs(&id, message.as_bytes()) {
            let kept: Value = serde_json::from_slice(&line).unwrap();
            let update = serde_json::from_value(kept["params"]["update"].clone()).unwrap();
            writeln!(out, "  with {}", show_update(&update)).unwrap();
        }
        last = (boundary != CallBoundary::Within).then_some(id);
    }
    expected.assert_eq(&out);
}

fn show_update(update: &ToolCallUpdate) -> String {
    let content = update.fields.content.iter().flatten().map(|content| match content {
        ToolCallContent::Diff(diff) => {
            format!("diff {} {:?} -> {:?}", diff.path.display(), diff.old_text, diff.new_text)
        }
        _ => "text".to_owned(),
    });
    format!("{}: {}", update.tool_call_id.0, content.collect::<Vec<_>>().join(", "))
}

#[test]
fn changes_are_attributed_to_the_ended_call_and_shown_after_its_content() {
    check(
        r#"
{"sessionUpdate":"tool_call","toolCallId":"r","title":"Read","kind":"read"}
? before
{"sessionUpdate":"tool_call","toolCallId":"a","title":"Edit","kind":"edit"}
? soon
{"sessionUpdate":"tool_call_update","toolCallId":"a","status":"in_progress"}
{"sessionUpdate":"tool_call_update","toolCallId":"a","content":[{"type":"content","content":{"type":"text","text":"x"}}]}
{"sessionUpdate":"tool_call_update","toolCallId":"a","status":"completed"}
? f ~g
{"sessionUpdate":"tool_call_update","toolCallId":"a","content":[]}
{"sessionUpdate":"tool_call_update","toolCallId":"a","title":"Edited"}
? h
"#,
        expect![[r#"
            r Start
              before is of no call
            a Start
              soon is of a
              a: diff /link/soon Some("old\n") -> "new\n"
            a Start
            a Within
              with a: text, diff /link/soon Some("old\n") -> "new\n"
            a End
              f is of a
              g is of a
              a: text, diff /link/soon Some("old\n") -> "new\n", diff /link/f Some("old\n") -> "new\n", diff /link/g Some("old\n") -> ""
            a Within
              with a: diff /link/soon Some("old\n") -> "new\n", diff /link/f Some("old\n") -> "new\n", diff /link/g Some("old\n") -> ""
            a Within
              h is of no call
        "#]],
    );
}

#[test]
fn of_several_calls_the_one_that_names_the_file_has_changed_it() {
    check(
        r#"
{"sessionUpdate":"tool_call","toolCallId":"by-location","title":"","locations":[{"path":"/w/a"}]}
{"sessionUpdate":"tool_call","toolCallId":"by-diff","title":"","content":[{"type":"diff","path":"/link/b","newText":"x"}]}
{"sessionUpdate":"tool_call","toolCallId":"by-input","title":"","rawInput":{"command":"echo x >./src/c.rs; cat a-b"}}
{"sessionUpdate":"tool_call","toolCallId":"ended","title":"","status":"completed"}
? a b src/c.rs c.rs b.c
"#,
        expect![[r#"
            by-location Start
            by-diff Start
            by-input Start
            ended End
              a is of by-location
              b is of by-diff
              src/c.rs is of by-input
              c.rs is of ended
              b.c is of ended
              by-location: diff /link/a Some("old\n") -> "new\n"
              by-diff: diff /link/b None -> "x", diff /link/b Some("old\n") -> "new\n"
              by-input: diff /link/src/c.rs Some("old\n") -> "new\n"
              ended: diff /link/c.rs Some("old\n") -> "new\n", diff /link/b.c Some("old\n") -> "new\n"
        "#]],
    );
}

#[test]
fn a_diff_that_the_agent_shows_is_not_shown_twice() {
    check(
        r#"
{"sessionUpdate":"tool_call","toolCallId":"a","title":"","status":"completed","content":[{"type":"diff","path":"/link/f","oldText":"ol","newText":"ne"},{"type":"diff","path":"/w/g","oldText":"old\n","newText":"new\n"}]}
? g
"#,
        expect![[r#"
            a End
              g is of a
              nothing to show
        "#]],
    );
}

#[test]
fn content_that_an_agent_gives_later_does_not_replace_what_was_shown() {
    check(
        r#"
{"sessionUpdate":"tool_call","toolCallId":"w","title":"Write","kind":"edit","status":"pending"}
{"sessionUpdate":"tool_call_update","toolCallId":"w","status":"in_progress"}
? f g
{"sessionUpdate":"tool_call_update","toolCallId":"w","status":"completed","content":[{"type":"content","content":{"type":"text","text":"Wrote"}}]}
{"sessionUpdate":"tool_call_update","toolCallId":"w","content":null,"title":"f"}
{"sessionUpdate":"tool_call_update","toolCallId":"w","content":[ ]}
{"sessionUpdate":"tool_call_update","toolCallId":"w","content":[{"type":"diff","path":"/w/f","oldText":"old\n","newText":"new\n"}]}
{"sessionUpdate":"tool_call_update","toolCallId":"w","content":[{"type":"diff","path":"/w/f","oldText":"old","newText":"new"},{"type":"diff","path":"/link/g","newText":"new\n"}]}
"#,
        expect![[r#"
            w Start
            w Start
              f is of w
              g is of w
              w: diff /link/f Some("old\n") -> "new\n", diff /link/g Some("old\n") -> "new\n"
            w End
              with w: text, diff /link/f Some("old\n") -> "new\n", diff /link/g Some("old\n") -> "new\n"
            w Within
            w Within
              with w: diff /link/f Some("old\n") -> "new\n", diff /link/g Some("old\n") -> "new\n"
            w Within
              with w: diff /w/f Some("old\n") -> "new\n", diff /link/g Some("old\n") -> "new\n"
            w Within
        "#]],
    );
}

#[test]
fn all_other_bytes_of_the_message_stay() {
    let mut tracker = AttributionTracker::new(&SessionId::new("s"), SessionDirectory::default());
    let id = ToolCallId::new("a");
    let call = json!({ "sessionId": "s", "update": { "sessionUpdate": "tool_call", "toolCallId": "a", "title": "" } });
    tracker.update(&id, &serde_json::from_value(call).unwrap());
    let found = AttributedChange {
        change: ChangeId(1),
        path: "/f".to_owned(),
        call: Some("a".to_owned()),
        before: None,
        after: Some("new\n".to_owned()),
    };
    assert!(tracker.report_changes(&id, &[&found]).is_some());
    let kept = |line: &str| {
        tracker.with_shown_diffs(&id, line.as_bytes()).map(|line| String::from_utf8(line).unwrap())
    };
    let unknown =
        r#"{"params" : {"update":{"content":[ {"type":"_chart","at":1.50} ], "n":1e400, "_meta":null}}}"#;
    expect![[r#"{"params" : {"update":{"content":[ {"type":"_chart","at":1.50} ,{"type":"diff","path":"/f","newText":"new\n","_meta":{"bowline":{"observed":true}}}], "n":1e400, "_meta":null}}}"#]].assert_eq(&kept(unknown).unwrap());
    for line in
        ["{}", r#"{"params":{"update":{"content":"text"}}}"#, r#"{"params":{"update":{"title":"a"}}}"#]
    {
        assert_eq!(kept(line), None, "{line}");
    }
}

#[test]
fn invalid_updates_change_nothing() {
    check(
        r#"
{"sessionUpdate":"tool_call_update","toolCallId":"a","status":"completed","other":1}
{"sessionUpdate":"tool_call","toolCallId":"a","title":"","status":"completed"}
{"sessionUpdate":"tool_call_update","toolCallId":"a","status":"completed"}
? f
"#,
        expect![[r#"
            a Within
            a End
            a Within
              f is of a
              a: diff /link/f Some("old\n") -> "new\n"
        "#]],
    );
}

#[test]
fn large_texts_and_many_files_are_not_shown() {
    let mut tracker = AttributionTracker::new(&SessionId::new("s"), SessionDirectory::default());
    let id = ToolCallId::new("a");
    let call = json!({ "sessionId": "s", "update": { "sessionUpdate": "tool_call", "toolCallId": "a", "title": "" } });
    tracker.update(&id, &serde_json::from_value(call).unwrap());
    let found = |number: usize, size: usize| AttributedChange {
        change: ChangeId(1),
        path: format!("/{number}"),
        call: None,
        before: None,
        after: Some("x".repeat(size)),
    };
    let large = found(0, MAX_TEXT_BYTES + 1);
    assert_eq!(tracker.report_changes(&id, &[&large]), None);
    let many: Vec<AttributedChange> =
        (0..9).map(|number| found(number, MAX_TEXT_BYTES)).chain((9..300).map(|n| found(n, 1))).collect();
    let update = tracker.report_changes(&id, &many.iter().collect::<Vec<_>>()).unwrap();
    let bytes: usize = update
        .fields
        .content
        .iter()
        .flatten()
        .map(|content| match content {
            ToolCallContent::Diff(diff) => {
                diff.new_text.len() + diff.old_text.as_ref().map_or(0, String::len)
            }
            _ => 0,
        })
        .sum();
    assert!(bytes <= MAX_SHOWN_BYTES && update.fields.content.unwrap().len() <= MAX_FILES, "{bytes}");
}

#[test]
fn an_own_tool_works_for_the_newest_open_call_that_names_the_file() {
    check(
        r#"
= a
{"sessionUpdate":"tool_call","toolCallId":"one","title":"mcp","kind":"other"}
= a
{"sessionUpdate":"tool_call","toolCallId":"two","title":"mcp","kind":"other","rawInput":{"arguments":{"path":"a"}}}
= a
= b
{"sessionUpdate":"tool_call","toolCallId":"three","title":"Edit","kind":"edit","locations":[{"path":"/link/a"}]}
= a
{"sessionUpdate":"tool_call_update","toolCallId":"three","status":"completed"}
= a
{"sessionUpdate":"tool_call_update","toolCallId":"two","status":"failed"}
= a
"#,
        expect![[r#"
              a is changed for no call
            one Start
              a is changed for one
            two Start
              a is changed for two
              b is changed for no call
            three Start
              a is changed for three
            three End
              a is changed for two
            two End
              a is changed for one
        "#]],
    );
}

#[test]
fn a_session_is_at_rest_when_no_call_is_open() {
    let mut tracker = AttributionTracker::new(&SessionId::new("s"), SessionDirectory::default());
    let mut counts = vec![tracker.idle_call_count()];
    for (call, update) in [
        ("a", r#"{"sessionUpdate":"tool_call","toolCallId":"a","title":"","status":"in_progress"}"#),
        ("b", r#"{"sessionUpdate":"tool_call","toolCallId":"b","title":"","status":"completed"}"#),
        ("a", r#"{"sessionUpdate":"tool_call_update","toolCallId":"a","status":"failed"}"#),
    ] {
        let update = serde_json::from_str(update).unwrap();
        tracker.update(&ToolCallId::new(call), &SessionNotification::new(SessionId::new("s"), update));
        counts.push(tracker.idle_call_count());
    }
    assert_eq!(counts, [Some(0), None, None, Some(2)]);
}
