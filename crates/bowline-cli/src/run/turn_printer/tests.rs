//! Tests of the turn printer: wire updates in, visible text out.

use bowline_protocol::accumulator::SessionAccumulator;
use expect_test::{Expect, expect};

use super::*;

/// Prints updates, one per line; `wait MILLISECONDS` advances the time and reports slow calls.
fn check(updates: &str, expected: Expect) {
    expected.assert_eq(&print_updates(updates, OutputStyle::PLAIN));
}

fn print_updates(updates: &str, style: OutputStyle) -> String {
    let mut session = SessionAccumulator::new();
    let mut printer = TurnPrinter::new(style, Path::new("/work"));
    let mut now = Instant::now();
    let mut printed = String::new();
    for line in updates.lines().filter(|line| !line.is_empty()) {
        if let Some(millis) = line.strip_prefix("wait ") {
            now += Duration::from_millis(millis.parse().unwrap());
            printed += &printer.render_slow_calls(&session.snapshot(), now);
            continue;
        }
        let update: SessionUpdate = serde_json::from_str(line).unwrap();
        let notification = SessionNotification::new("s", update);
        let change = session.apply(&notification).unwrap();
        let output = |id: &str| (id == "t").then(|| "out\nput\n".to_owned());
        printed += &printer.render_update(&notification, &change, &session.snapshot(), now, output);
    }
    session.cancel_open_tool_calls();
    printed + &printer.finish(&session.snapshot(), now)
}

#[test]
fn what_is_said_is_streamed_and_what_is_thought_stands_apart() {
    check(
        r#"
{"sessionUpdate":"agent_thought_chunk","content":{"type":"text","text":"Hm.\nLet me "}}
{"sessionUpdate":"agent_thought_chunk","content":{"type":"text","text":"see."}}
{"sessionUpdate":"agent_message_chunk","content":{"type":"text","text":"It is "}}
{"sessionUpdate":"agent_message_chunk","content":{"type":"text","text":"\u001b[31mred\u202e.\n"}}
{"sessionUpdate":"agent_message_chunk","messageId":"2","content":{"type":"text","text":"Another."}}
"#,
        expect![[r#"
            ┊ Hm.
            ┊ Let me see.

            It is \u{1b}[31mred\u{202e}.

            Another.
        "#]],
    );
}

#[test]
fn calls_are_told_when_they_end_with_what_they_did() {
    check(
        r#"
{"sessionUpdate":"agent_message_chunk","content":{"type":"text","text":"I look."}}
{"sessionUpdate":"tool_call","toolCallId":"1","title":"Read /work/src/a.rs","kind":"read"}
wait 20
{"sessionUpdate":"tool_call_update","toolCallId":"1","status":"completed","content":[{"type":"content","content":{"type":"text","text":"not shown"}}]}
{"sessionUpdate":"tool_call","toolCallId":"2","title":"Edit a.rs","kind":"edit","content":[{"type":"diff","path":"/work/a.rs","oldText":"a\nb\n","newText":"a\nc\n"}]}
{"sessionUpdate":"tool_call_update","toolCallId":"2","status":"completed"}
{"sessionUpdate":"tool_call","toolCallId":"3","title":"cargo test","kind":"execute","status":"in_progress","content":[{"type":"terminal","terminalId":"t"}]}
wait 900
wait 200
wait 61000
{"sessionUpdate":"tool_call_update","toolCallId":"3","status":"failed"}
{"sessionUpdate":"agent_message_chunk","content":{"type":"text","text":"Done."}}
"#,
        expect![[r#"
            I look.

            ✓ read: Read src/a.rs (20 ms)
            ✓ edit: Edit a.rs (0 ms)
                @@ -1,2 +1,2 @@
                 a
                -b
                +c
            … run: cargo test
            ✗ run: cargo test (1 min 2 s)
                out
                put

            Done.
        "#]],
    );
}

#[test]
fn what_did_not_end_is_told_at_the_end() {
    check(
        r#"
{"sessionUpdate":"tool_call","toolCallId":"1","title":"sleep","kind":"execute"}
wait 400
{"sessionUpdate":"agent_message_chunk","content":{"type":"text","text":"Wait"}}
"#,
        expect![[r#"
            Wait

            - run: sleep (cancelled, 400 ms)
        "#]],
    );
}

#[test]
fn of_a_plan_only_what_is_new_is_told_again() {
    check(
        r#"
{"sessionUpdate":"plan","entries":[{"content":"one","priority":"high","status":"in_progress"},{"content":"two","priority":"low","status":"pending"}]}
{"sessionUpdate":"plan","entries":[{"content":"one","priority":"high","status":"completed"},{"content":"two","priority":"low","status":"pending"}]}
{"sessionUpdate":"plan","entries":[{"content":"one","priority":"high","status":"completed"},{"content":"other","priority":"low","status":"pending"}]}
{"sessionUpdate":"plan","entries":[]}
"#,
        expect![[r#"
            Plan
              ▸ one
              ☐ two
              ☑ one
            Plan
              ☑ one
              ☐ other
        "#]],
    );
}

#[test]
fn output_is_cut_to_its_end() {
    let long: String = (1..=40).map(|line| format!("line {line}\\n")).collect();
    let update = format!(
        r#"{{"sessionUpdate":"tool_call","toolCallId":"1","title":"x","kind":"execute","status":"completed","content":[{{"type":"content","content":{{"type":"text","text":"{long}"}}}}]}}"#
    );
    check(
        &update,
        expect![[r#"
        ✓ run: x (0 ms)
            … 28 lines before
            line 29
            line 30
            line 31
            line 32
            line 33
            line 34
            line 35
            line 36
            line 37
            line 38
            line 39
            line 40
    "#]],
    );
}

#[test]
fn colours_are_for_terminals() {
    let output = print_updates(
        r#"{"sessionUpdate":"tool_call","toolCallId":"1","title":"Edit","kind":"edit","status":"completed","content":[{"type":"diff","path":"/work/a","newText":"x\n"}]}"#,
        OutputStyle { is_terminal: true, has_colour: true },
    );
    expect![[r#"
        ESC[32m✓ESC[0m edit: ESC[1mEditESC[0m ESC[2m(0 ms)ESC[0m
            ESC[36m@@ -0,0 +1 @@ESC[0m
            ESC[32m+xESC[0m
    "#]]
    .assert_eq(&output.replace('\x1b', "ESC"));
}

#[test]
fn a_call_is_told_once_and_what_comes_late_below_it() {
    check(
        r#"
{"sessionUpdate":"tool_call","toolCallId":"1","title":"Edit a.rs","kind":"edit","status":"completed"}
{"sessionUpdate":"tool_call_update","toolCallId":"1","status":"completed"}
{"sessionUpdate":"tool_call_update","toolCallId":"1","content":[{"type":"diff","path":"/work/a.rs","oldText":"a\n","newText":"b\n"}]}
{"sessionUpdate":"tool_call_update","toolCallId":"1","content":[{"type":"diff","path":"/work/a.rs","oldText":"a\n","newText":"b\n"}]}
{"sessionUpdate":"agent_message_chunk","content":{"type":"text","text":"Done."}}
{"sessionUpdate":"tool_call_update","toolCallId":"1","content":[{"type":"diff","path":"/work/a.rs","oldText":"a\n","newText":"b\n"},{"type":"diff","path":"/work/b.rs","oldText":"a\n","newText":"b\n"}]}
"#,
        expect![[r#"
            ✓ edit: Edit a.rs (0 ms)
                @@ -1 +1 @@
                -a
                +b

            Done.

              edit: Edit a.rs, later:
                @@ -1 +1 @@
                -a
                +b
        "#]],
    );
}
