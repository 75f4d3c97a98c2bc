//! Tests of the tracker, as data.

use super::*;
use crate::builders::IntoSessionUpdate;
use expect_test::{Expect, expect};
use proptest::prelude::*;
use serde_json::{Value, json};
use std::fmt::Write;

/// Runs a script on a tracker. Each line is a step, an external id and the step's input; each step shows the wire
/// text to send, or the error.
fn check(script: &str, expected: Expect) {
    check_with(ToolCallTracker::new(), script, expected);
}

fn check_with(mut tracker: ToolCallTracker, script: &str, expected: Expect) {
    let mut shown = String::new();
    for line in script.lines().filter(|line| !line.is_empty()) {
        let mut words = line.splitn(3, ' ');
        let (step, id, rest) =
            (words.next().unwrap(), words.next().unwrap_or(""), words.next().unwrap_or(""));
        match run_step(&mut tracker, step, id, rest) {
            Ok(text) => writeln!(shown, "{text}").unwrap(),
            Err(error) => writeln!(shown, "! {error}").unwrap(),
        }
    }
    expected.assert_eq(&shown);
}

fn run_step(tracker: &mut ToolCallTracker, step: &str, id: &str, rest: &str) -> Result<String, TrackerError> {
    let optional =
        |update: Option<ToolCallUpdate>| update.map_or("(nothing)".to_owned(), |update| wire(&update));
    Ok(match step {
        // The id in the built call differs from the given one, which must not matter.
        "start" => wire(&tracker.start(id, |_| {
            let mut call: Value = serde_json::from_str(rest).unwrap();
            call["toolCallId"] = json!("another");
            serde_json::from_value(call).unwrap()
        })?),
        "progress" => optional(tracker.progress(id, serde_json::from_str(rest).unwrap())?),
        "text" => optional(tracker.append_stream_text(id, rest)?),
        "complete" => wire(&tracker.complete(id)?),
        "fail" => wire(&tracker.fail(id)?),
        "fail_open" => tracker.fail_open().iter().map(wire).collect::<Vec<_>>().join("\n"),
        "forget" => format!("forgot {}", wire(&tracker.forget(id)?)),
        "view" => format!("view {}", wire(tracker.tool_call(id)?)),
        "model" => format!("model {}", wire(&tracker.full_update(id)?)),
        "calls" => tracker
            .calls()
            .map(|(id, call)| format!("{id}={}", call.tool_call_id))
            .collect::<Vec<_>>()
            .join(" "),
        other => panic!("no step {other}"),
    })
}

fn wire<T: Clone + IntoSessionUpdate>(message: &T) -> String {
    serde_json::to_string(&message.clone().into_session_update()).unwrap()
}

#[test]
fn a_call_goes_from_start_to_end_and_each_update_carries_what_changed() {
    check(
        r#"
start a {"title":"Read it","kind":"read","locations":[{"path":"/x"}],"rawInput":{"path":"/x"}}
progress a {"status":"in_progress","title":"Read it","kind":"read"}
progress a {"status":"in_progress"}
progress a {}
progress a {"title":"Read","name":"read_file","kind":"search","content":[],"locations":[{"path":"/y"}],"rawInput":1,"rawOutput":2}
progress a {"title":"Read","name":"read_file","kind":"search","locations":[{"path":"/y"}],"rawInput":1,"rawOutput":2}
progress a {"content":[{"type":"content","content":{"type":"text","text":"hi"}}],"rawOutput":{"bytes":2}}
progress a {"content":[{"type":"content","content":{"type":"text","text":"hi"}}],"status":"completed"}
view a
forget a
calls
"#,
        expect![[r#"
            {"sessionUpdate":"tool_call","toolCallId":"call_1","title":"Read it","kind":"read","locations":[{"path":"/x"}],"rawInput":{"path":"/x"}}
            {"sessionUpdate":"tool_call_update","toolCallId":"call_1","status":"in_progress"}
            (nothing)
            (nothing)
            {"sessionUpdate":"tool_call_update","toolCallId":"call_1","kind":"search","title":"Read","name":"read_file","locations":[{"path":"/y"}],"rawInput":1,"rawOutput":2}
            (nothing)
            {"sessionUpdate":"tool_call_update","toolCallId":"call_1","content":[{"type":"content","content":{"type":"text","text":"hi"}}],"rawOutput":{"bytes":2}}
            {"sessionUpdate":"tool_call_update","toolCallId":"call_1","status":"completed"}
            view {"sessionUpdate":"tool_call","toolCallId":"call_1","title":"Read","name":"read_file","kind":"search","status":"completed","content":[{"type":"content","content":{"type":"text","text":"hi"}}],"locations":[{"path":"/y"}],"rawInput":1,"rawOutput":{"bytes":2}}
            forgot {"sessionUpdate":"tool_call","toolCallId":"call_1","title":"Read","name":"read_file","kind":"search","status":"completed","content":[{"type":"content","content":{"type":"text","text":"hi"}}],"locations":[{"path":"/y"}],"rawInput":1,"rawOutput":{"bytes":2}}

        "#]],
    );
}

#[test]
fn several_calls_are_under_way_at_once() {
    check(
        r#"
start a {"title":"A"}
start b {"title":"B"}
start c {"title":"C"}
text b of b
text a of a
text b , more of b
complete b
calls
forget a
start a {"title":"A again"}
calls
"#,
        expect![[r#"
            {"sessionUpdate":"tool_call","toolCallId":"call_1","title":"A"}
            {"sessionUpdate":"tool_call","toolCallId":"call_2","title":"B"}
            {"sessionUpdate":"tool_call","toolCallId":"call_3","title":"C"}
            {"sessionUpdate":"tool_call_update","toolCallId":"call_2","content":[{"type":"content","content":{"type":"text","text":"of b"}}]}
            {"sessionUpdate":"tool_call_update","toolCallId":"call_1","content":[{"type":"content","content":{"type":"text","text":"of a"}}]}
            {"sessionUpdate":"tool_call_update","toolCallId":"call_2","content":[{"type":"content","content":{"type":"text","text":"of b, more of b"}}]}
            {"sessionUpdate":"tool_call_update","toolCallId":"call_2","status":"completed"}
            a=call_1 b=call_2 c=call_3
            forgot {"sessionUpdate":"tool_call","toolCallId":"call_1","title":"A","content":[{"type":"content","content":{"type":"text","text":"of a"}}]}
            {"sessionUpdate":"tool_call","toolCallId":"call_4","title":"A again"}
            b=call_2 c=call_3 a=call_4
        "#]],
    );
}

#[test]
fn streamed_text_follows_the_content_that_was_there_and_is_replaced_with_it() {
    check(
        r#"
start a {"title":"A","content":[{"type":"content","content":{"type":"text","text":"first"}}]}
text a
text a one
text a  two
view a
progress a {"title":"B"}
text a  three
progress a {"content":[{"type":"terminal","terminalId":"t"}]}
text a anew
progress a {"content":[{"type":"terminal","terminalId":"t"},{"type":"content","content":{"type":"text","text":"anew"}}]}
text a  and on
"#,
        expect![[r#"
            {"sessionUpdate":"tool_call","toolCallId":"call_1","title":"A","content":[{"type":"content","content":{"type":"text","text":"first"}}]}
            (nothing)
            {"sessionUpdate":"tool_call_update","toolCallId":"call_1","content":[{"type":"content","content":{"type":"text","text":"first"}},{"type":"content","content":{"type":"text","text":"one"}}]}
            {"sessionUpdate":"tool_call_update","toolCallId":"call_1","content":[{"type":"content","content":{"type":"text","text":"first"}},{"type":"content","content":{"type":"text","text":"one two"}}]}
            view {"sessionUpdate":"tool_call","toolCallId":"call_1","title":"A","content":[{"type":"content","content":{"type":"text","text":"first"}},{"type":"content","content":{"type":"text","text":"one two"}}]}
            {"sessionUpdate":"tool_call_update","toolCallId":"call_1","title":"B"}
            {"sessionUpdate":"tool_call_update","toolCallId":"call_1","content":[{"type":"content","content":{"type":"text","text":"first"}},{"type":"content","content":{"type":"text","text":"one two three"}}]}
            {"sessionUpdate":"tool_call_update","toolCallId":"call_1","content":[{"type":"terminal","terminalId":"t"}]}
            {"sessionUpdate":"tool_call_update","toolCallId":"call_1","content":[{"type":"terminal","terminalId":"t"},{"type":"content","content":{"type":"text","text":"anew"}}]}
            (nothing)
            {"sessionUpdate":"tool_call_update","toolCallId":"call_1","content":[{"type":"terminal","terminalId":"t"},{"type":"content","content":{"type":"text","text":"anew and on"}}]}
        "#]],
    );
}

#[test]
fn a_use_that_makes_no_sense_is_an_error_and_changes_nothing() {
    check(
        r#"
progress a {"title":"A"}
text a hi
complete a
fail a
forget a
view a
model a
start a {"title":"A"}
start a {"title":"another A"}
view a
complete a
complete a
fail a
progress a {"status":"in_progress"}
progress a {}
text a hi
text a
model a
view a
start b {"title":"B","status":"failed"}
progress b {"status":"completed"}
calls
"#,
        expect![[r#"
            ! no tool call is tracked as a
            ! no tool call is tracked as a
            ! no tool call is tracked as a
            ! no tool call is tracked as a
            ! no tool call is tracked as a
            ! no tool call is tracked as a
            ! no tool call is tracked as a
            {"sessionUpdate":"tool_call","toolCallId":"call_1","title":"A"}
            ! a tool call is already tracked as a
            view {"sessionUpdate":"tool_call","toolCallId":"call_1","title":"A"}
            {"sessionUpdate":"tool_call_update","toolCallId":"call_1","status":"completed"}
            ! the tool call tracked as a is already Completed
            ! the tool call tracked as a is already Completed
            ! the tool call tracked as a is already Completed
            ! the tool call tracked as a is already Completed
            ! the tool call tracked as a is already Completed
            ! the tool call tracked as a is already Completed
            ! the tool call tracked as a is already Completed
            view {"sessionUpdate":"tool_call","toolCallId":"call_1","title":"A","status":"completed"}
            {"sessionUpdate":"tool_call","toolCallId":"call_2","title":"B","status":"failed"}
            ! the tool call tracked as b is already Failed
            a=call_1 b=call_2
        "#]],
    );
}

#[test]
fn a_cancelled_turn_fails_what_is_open_and_leaves_what_is_finished() {
    check(
        r#"
start a {"title":"A"}
start b {"title":"B","status":"in_progress"}
start c {"title":"C"}
start d {"title":"D"}
complete c
fail d
fail_open
fail_open
view a
"#,
        expect![[r#"
            {"sessionUpdate":"tool_call","toolCallId":"call_1","title":"A"}
            {"sessionUpdate":"tool_call","toolCallId":"call_2","title":"B","status":"in_progress"}
            {"sessionUpdate":"tool_call","toolCallId":"call_3","title":"C"}
            {"sessionUpdate":"tool_call","toolCallId":"call_4","title":"D"}
            {"sessionUpdate":"tool_call_update","toolCallId":"call_3","status":"completed"}
            {"sessionUpdate":"tool_call_update","toolCallId":"call_4","status":"failed"}
            {"sessionUpdate":"tool_call_update","toolCallId":"call_1","status":"failed"}
            {"sessionUpdate":"tool_call_update","toolCallId":"call_2","status":"failed"}

            view {"sessionUpdate":"tool_call","toolCallId":"call_1","title":"A","status":"failed"}
        "#]],
    );
}

#[test]
fn a_permission_request_describes_everything_known() {
    check(
        r#"
start a {"title":"A"}
model a
progress a {"kind":"edit","name":"write","rawInput":{"path":"/x"},"rawOutput":0,"status":"in_progress","locations":[{"path":"/x","line":3}]}
text a hi
model a
"#,
        expect![[r#"
            {"sessionUpdate":"tool_call","toolCallId":"call_1","title":"A"}
            model {"sessionUpdate":"tool_call_update","toolCallId":"call_1","kind":"other","status":"pending","title":"A"}
            {"sessionUpdate":"tool_call_update","toolCallId":"call_1","kind":"edit","status":"in_progress","name":"write","locations":[{"path":"/x","line":3}],"rawInput":{"path":"/x"},"rawOutput":0}
            {"sessionUpdate":"tool_call_update","toolCallId":"call_1","content":[{"type":"content","content":{"type":"text","text":"hi"}}]}
            model {"sessionUpdate":"tool_call_update","toolCallId":"call_1","kind":"edit","status":"in_progress","title":"A","name":"write","content":[{"type":"content","content":{"type":"text","text":"hi"}}],"locations":[{"path":"/x","line":3}],"rawInput":{"path":"/x"},"rawOutput":0}
        "#]],
    );
}

#[test]
fn calls_are_named_by_the_prefix_or_the_factory() {
    check_with(
        ToolCallTracker::with_prefix("run2"),
        r#"
start a {"title":"A"}
start b {"title":"B"}
"#,
        expect![[r#"
            {"sessionUpdate":"tool_call","toolCallId":"run2_1","title":"A"}
            {"sessionUpdate":"tool_call","toolCallId":"run2_2","title":"B"}
        "#]],
    );
    let mut ids = ["x", "y", "x", "y", "z"].into_iter();
    check_with(
        ToolCallTracker::with_ids(move || ids.next().unwrap().to_owned()),
        r#"
start a {"title":"A"}
start a {"title":"A"}
start b {"title":"B"}
start c {"title":"C"}
forget b
start c {"title":"C"}
start c {"title":"C"}
calls
"#,
        expect![[r#"
            {"sessionUpdate":"tool_call","toolCallId":"x","title":"A"}
            ! a tool call is already tracked as a
            {"sessionUpdate":"tool_call","toolCallId":"y","title":"B"}
            ! the tool call id x was given out before
            forgot {"sessionUpdate":"tool_call","toolCallId":"y","title":"B"}
            ! the tool call id y was given out before
            {"sessionUpdate":"tool_call","toolCallId":"z","title":"C"}
            a=x c=z
        "#]],
    );
}

#[test]
fn a_repeated_id_is_noticed_as_long_as_promised_and_always_for_a_tracked_call() {
    let mut made = 0;
    let starts = 2 * MIN_REMEMBERED_IDS;
    let mut tracker = ToolCallTracker::with_ids(move || {
        made += 1;
        match made {
            // One call stays, then two generations of calls come and go, then ids are repeated.
            n if n <= starts + 1 => n.to_string(),
            n if n == starts + 2 => "1".to_owned(),
            n if n == starts + 3 => (MIN_REMEMBERED_IDS + 2).to_string(),
            n if n == starts + 4 => "2".to_owned(),
            n => format!("n{n}"),
        }
    });
    let mut shown = String::new();
    tracker.start("kept", |id| builders::start_tool_call(id, "stays")).unwrap();
    for _ in 0..starts {
        tracker.start("brief", |id| builders::start_tool_call(id, "goes")).unwrap();
        tracker.forget("brief").unwrap();
    }
    for _ in 0..3 {
        match tracker.start("late", |id| builders::start_tool_call(id, "late")) {
            Ok(call) => writeln!(shown, "{}", call.tool_call_id).unwrap(),
            Err(error) => writeln!(shown, "! {error}").unwrap(),
        }
    }
    writeln!(shown, "{:?}", tracker.ids).unwrap();
    expect![[r#"
        ! the tool call id 1 was given out before
        ! the tool call id 16386 was given out before
        2
        made by a factory
    "#]]
    .assert_eq(&shown);
}

#[test]
fn a_full_tracker_takes_no_more_until_one_is_forgotten() {
    let mut tracker = ToolCallTracker::default();
    let start = |tracker: &mut ToolCallTracker, n: usize| {
        tracker
            .start(n.to_string(), |id| builders::start_tool_call(id, "fill"))
            .map(|call| call.tool_call_id.to_string())
    };
    for n in 1..MAX_TRACKED_CALLS {
        start(&mut tracker, n).unwrap();
    }
    assert_eq!(start(&mut tracker, 0), Ok("call_1024".to_owned()));
    assert_eq!(start(&mut tracker, 2000), Err(TrackerError::Full));
    tracker.forget("7").unwrap();
    assert_eq!(start(&mut tracker, 2000), Ok("call_1025".to_owned()));
}

fn stream_chunks(chunks: &[&str]) -> String {
    let mut tracker = ToolCallTracker::new();
    tracker.start("a", |id| builders::start_tool_call(id, "A")).unwrap();
    for chunk in chunks {
        tracker.append_stream_text("a", chunk).unwrap();
    }
    match tracker.tool_call("a").unwrap().content.first() {
        Some(ToolCallContent::Content(Content { content: ContentBlock::Text(text), .. })) => {
            text.text.clone()
        }
        _ => String::new(),
    }
}

#[test]
fn streamed_text_that_fits_is_whole_and_one_byte_more_drops_the_front() {
    let full = "x".repeat(MAX_STREAM_TEXT);
    let tail = "x".repeat(MAX_STREAM_TEXT - OMITTED_MARKER.len() - 1);
    assert!(stream_chunks(&[&full]) == full);
    assert!(stream_chunks(&[&full, "y"]) == format!("{OMITTED_MARKER}{tail}y"));
    assert!(stream_chunks(&[&format!("{full}y")]) == format!("{OMITTED_MARKER}{tail}y"));
    assert!(stream_chunks(&["old", &full, "y", "z"]) == format!("{OMITTED_MARKER}{}yz", &tail[1..]));
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn streamed_text_is_the_tail_of_all_text_cut_between_characters(
        chunks in proptest::collection::vec(("[a-z]{1,3}|[äöü]{1,2}|[€𝕏]", 1..30_000usize), 1..8),
    ) {
        let chunks: Vec<String> = chunks.iter().map(|(text, times)| text.repeat(*times)).collect();
        let all = chunks.concat();
        let shown = stream_chunks(&chunks.iter().map(String::as_str).collect::<Vec<_>>());
        prop_assert!(shown.len() <= MAX_STREAM_TEXT);
        match shown.strip_prefix(OMITTED_MARKER) {
            // At most one character's bytes are left unused on each side of the cut.
            Some(tail) => {
                prop_assert!(all.ends_with(tail));
                prop_assert!(all.len() > MAX_STREAM_TEXT && shown.len() > MAX_STREAM_TEXT - 4);
            }
            None => prop_assert!(shown == all),
        }
    }

    #[test]
    fn a_client_that_folds_the_updates_sees_what_the_tracker_sees(
        steps in proptest::collection::vec((0..6u8, 0..3u8), 0..40),
    ) {
        let mut tracker = ToolCallTracker::new();
        let mut client = tracker.start("a", |id| builders::start_tool_call(id, "A")).unwrap();
        for (step, n) in steps {
            let fields = ToolCallUpdateFields::new();
            let update = match step {
                0 => tracker.append_stream_text("a", &"text".repeat(n.into())),
                1 => tracker.progress("a", fields.title(format!("title {n}"))),
                2 => tracker.progress("a", fields.content(vec![builders::text(n.to_string()); n.into()])),
                3 => tracker.progress("a", fields.raw_output(json!(n)).status(ToolCallStatus::InProgress)),
                4 => tracker.progress("a", fields.name(n.to_string()).raw_input(json!(n))),
                _ => tracker.append_stream_text("a", &"long ".repeat(10_000)),
            };
            if let Some(update) = update.unwrap() {
                client.update(update.fields);
            }
            prop_assert!(&client == tracker.tool_call("a").unwrap());
        }
    }
}
