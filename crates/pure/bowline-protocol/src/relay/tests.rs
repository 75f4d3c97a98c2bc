//! Tests of the relay: sessions in, the destination of each message out. A line begins with its sender.

use std::fmt::Write as _;

use expect_test::{Expect, expect};
use serde_json::Value;

use super::*;

fn id(value: &Value) -> Option<RequestId> {
    serde_json::from_value(value.clone()).ok().filter(|id| *id != RequestId::Null)
}

/// Routes lines that begin with their sender, `E` or `A`, or with `own ID` for a call of the proxy to the editor.
fn check(lines: &str, expect: Expect) {
    let (mut relay, mut out) = (Relay::default(), String::new());
    for line in lines.trim().lines() {
        let (side, text) = line.split_once(' ').unwrap();
        let from = match side {
            "E" => ProxySide::Editor,
            "A" => ProxySide::Agent,
            _ => {
                writeln!(out, "{}", relay.register_own_call(ProxySide::Editor, text.parse().unwrap(), None))
                    .unwrap();
                continue;
            }
        };
        let message: Value = serde_json::from_str(text).unwrap();
        let (request_id, method) = (id(&message["id"]), message["method"].as_str());
        let relayed = match (&request_id, method) {
            (Some(request_id), Some(method)) => RelayedMessage::Request(request_id, method),
            (None, Some(method)) => RelayedMessage::Notification(method),
            (Some(request_id), None) => RelayedMessage::Answer(request_id, message.get("error").is_some()),
            (None, None) => panic!("no message"),
        };
        writeln!(out, "{:?}", relay.route(from, relayed, text.as_bytes())).unwrap();
    }
    writeln!(out, "open: {:?}", relay.take_open_requests(ProxySide::Editor)).unwrap();
    expect.assert_eq(&out);
}

#[test]
fn irrelevant_and_unreadable_messages_are_forwarded() {
    check(
        r#"
E {"id":1,"method":"_x/y","params":{"sessionId":"s"}}
A {"id":1,"result":{}}
A {"id":7,"result":"not requested"}
E {"id":2,"method":"session/new","params":{"cwd":7}}
E {"id":3,"method":"session/prompt"}
E {"method":"session/cancel","params":[]}
A {"method":"session/update","params":{"sessionId":"s","update":{"sessionUpdate":"agent_message_chunk","content":{}}}}
A {"method":"session/update","params":{"sessionId":"s","update":{"sessionUpdate":"agent_message_chunk","content":{"text":"\"tool_call\""}}}}
A {"method":"session/update","params":{"update":{"sessionUpdate":"tool_call"}}}
E {"method":"$/cancel_request","params":{"requestId":3}}
"#,
        expect![[r#"
            Forward
            Forward
            Forward
            Forward
            Forward
            Forward
            Forward
            Forward
            Forward
            Forward
            open: [Number(2), Number(3)]
        "#]],
    );
}

#[test]
fn session_messages_become_events() {
    check(
        r#"
E {"id":1,"method":"session/new","params":{"cwd":"/w","additionalDirectories":["/x"],"mcpServers":[]}}
A {"id":1,"result":{"sessionId":"s"}}
E {"id":2,"method":"session/load","params":{"cwd":"/w","sessionId":"old","mcpServers":[]}}
A {"id":2,"result":null}
E {"id":3,"method":"session/resume","params":{"cwd":"/w","sessionId":"gone"}}
A {"id":3,"error":{"code":-32603,"message":"no"}}
E {"id":"p","method":"session/prompt","params":{"sessionId":"s","prompt":[]}}
A {"method":"session/update","params":{"sessionId":"s","update":{"sessionUpdate":"tool_call","toolCallId":"t","title":"x","kind":"edit"}}}
A {"id":1,"method":"session/request_permission","params":{"sessionId":"s","toolCall":{"toolCallId":"t"},"options":[]}}
E {"id":1,"result":{"outcome":{"outcome":"cancelled"}}}
A {"method":"session/update","params":{"sessionId":"s","update":{"sessionUpdate":"tool_call_update","toolCallId":"t","status":"completed","content":[{"type":"diff"}]}}}
A {"id":2,"method":"fs/write_text_file","params":{"sessionId":"s","path":"/w/a","content":"x"}}
E {"id":2,"result":{}}
E {"method":"session/cancel","params":{"sessionId":"s"}}
A {"id":"p","result":{"stopReason":"cancelled"}}
E {"id":9,"method":"session/close","params":{"sessionId":"s"}}
A {"id":9,"result":{}}
"#,
        expect![[r#"
            Inspect(SessionOpening(SessionOpening { method: New, session: None, cwd: "/w", additional_directories: ["/x"] }), None)
            Inspect(SessionOpened(RelayedSession { session: SessionId("s"), opening: SessionOpening { method: New, session: None, cwd: "/w", additional_directories: ["/x"] } }), None)
            Inspect(SessionOpening(SessionOpening { method: Load, session: Some(SessionId("old")), cwd: "/w", additional_directories: [] }), None)
            Inspect(SessionOpened(RelayedSession { session: SessionId("old"), opening: SessionOpening { method: Load, session: Some(SessionId("old")), cwd: "/w", additional_directories: [] } }), None)
            Inspect(SessionOpening(SessionOpening { method: Resume, session: Some(SessionId("gone")), cwd: "/w", additional_directories: [] }), None)
            Inspect(SessionNotOpened(SessionOpening { method: Resume, session: Some(SessionId("gone")), cwd: "/w", additional_directories: [] }), None)
            Inspect(TurnStarted(SessionId("s")), None)
            Inspect(ToolCall(ToolCallMessage { session: SessionId("s"), call: ToolCallId("t"), is_new: true, status: None }), None)
            Inspect(PermissionRequested(SessionId("s"), ToolCallId("t")), None)
            Inspect(PermissionAnswered(SessionId("s"), ToolCallId("t")), None)
            Inspect(ToolCall(ToolCallMessage { session: SessionId("s"), call: ToolCallId("t"), is_new: false, status: Some(Completed) }), None)
            Inspect(AgentRequest(Write, Some(SessionId("s")), None), None)
            Forward
            Inspect(TurnCancelled(SessionId("s")), None)
            Inspect(TurnEnded(SessionId("s")), None)
            Inspect(SessionClosing(Close, SessionId("s")), None)
            Inspect(SessionClosed(Close, SessionId("s")), None)
            open: []
        "#]],
    );
}

#[test]
fn ids_of_a_peer_never_meet_those_of_the_proxy() {
    check(
        r#"
own 5
A {"id":"bowline-proxy-1","method":"_x","params":{}}
A {"id":"bowline-proxy-9","method":"session/request_permission","params":{"sessionId":"s","toolCall":{"toolCallId":"t"}}}
A {"method":"$/cancel_request","params":{"requestId":"bowline-proxy-1"}}
E {"id":"bowline-proxy-1","result":{}}
E {"id":"bowline-proxy-1","result":{}}
E {"id":"bowline-proxy-3","result":{}}
E {"id":"bowline-proxy-5","error":{}}
E {"id":"bowline-proxy-77","result":{}}
"#,
        expect![[r#"
            bowline-proxy-1
            ForwardRenamed(Str("bowline-proxy-3"))
            Inspect(PermissionRequested(SessionId("s"), ToolCallId("t")), Some(Str("bowline-proxy-5")))
            ForwardCancel(Str("bowline-proxy-3"))
            OwnAnswer(5)
            Discard
            ForwardRenamed(Str("bowline-proxy-1"))
            Inspect(PermissionAnswered(SessionId("s"), ToolCallId("t")), Some(Str("bowline-proxy-9")))
            Discard
            open: []
        "#]],
    );
}

#[test]
fn cancels_of_requests_taken_by_the_proxy_are_not_forwarded() {
    let mut relay = Relay::default();
    let (first, second) = (RequestId::Number(1), RequestId::Number(2));
    let line = br#"{"params":{}}"#;
    for id in [&first, &second] {
        relay.route(ProxySide::Agent, RelayedMessage::Request(id, "mcp/message"), line);
    }
    relay.mark_answered(ProxySide::Agent, &first);
    relay.mark_taken(ProxySide::Agent, &second);
    let cancel = |id: i64| format!(r#"{{"params":{{"requestId":{id}}}}}"#);
    let mut see = |id| {
        relay.route(ProxySide::Agent, RelayedMessage::Notification("$/cancel_request"), cancel(id).as_bytes())
    };
    assert_eq!((see(1), see(2)), (Route::Forward, Route::CancelOwn));
    assert_eq!(relay.take_open_requests(ProxySide::Agent), [second]);
}

#[test]
fn a_request_that_is_held_is_given_up_when_it_is_cancelled() {
    let mut relay = Relay::default();
    let line = br#"{"params":{"sessionId":"s","path":"/w/a"}}"#;
    let (plain, ours) = (RequestId::Number(1), RequestId::Str(format!("{PROXY_ID_PREFIX}7")));
    let cancel = |relay: &mut Relay, id: &RequestId| {
        let line = serde_json::json!({ "params": { "requestId": id } }).to_string();
        relay.route(ProxySide::Agent, RelayedMessage::Notification("$/cancel_request"), line.as_bytes())
    };
    let mut out = String::new();
    for id in [&plain, &ours] {
        relay.route(ProxySide::Agent, RelayedMessage::Request(id, "fs/read_text_file"), line);
        relay.mark_held(ProxySide::Agent, id);
        writeln!(out, "held: {:?}", cancel(&mut relay, id)).unwrap();
        relay.mark_forwarded(ProxySide::Agent, id);
        writeln!(out, "gone on: {:?}", cancel(&mut relay, id)).unwrap();
        relay.mark_answered(ProxySide::Agent, id);
        relay.mark_held(ProxySide::Agent, id);
        writeln!(out, "answered: {:?}", cancel(&mut relay, id)).unwrap();
    }
    expect![[r#"
        held: CancelHeld(Number(1))
        gone on: Forward
        answered: Forward
        held: CancelHeld(Str("bowline-proxy-7"))
        gone on: ForwardCancel(Str("bowline-proxy-3"))
        answered: Forward
    "#]]
    .assert_eq(&out);
}

#[test]
fn own_calls_are_abandoned_once_and_their_answers_discarded() {
    let mut relay = Relay::default();
    for (number, method) in [(1, Method::Permission), (2, Method::Write), (3, Method::Permission)] {
        relay.register_own_call(ProxySide::Editor, number, Some(method));
    }
    relay.register_own_call(ProxySide::Agent, 4, Some(Method::Mcp));
    let proxy_id = |number: i64| RequestId::Str(format!("{PROXY_ID_PREFIX}{number}"));
    let questions = relay.abandon_own_calls(ProxySide::Editor, Some(Method::Permission));
    assert_eq!(questions, [(1, proxy_id(1)), (3, proxy_id(3))]);
    assert_eq!(relay.abandon_own_calls(ProxySide::Editor, Some(Method::Permission)), []);
    assert_eq!(
        relay.route(ProxySide::Editor, RelayedMessage::Answer(&proxy_id(3), false), b"{}"),
        Route::Discard
    );
    assert!(relay.has_own_calls(ProxySide::Editor));
    assert_eq!(relay.abandon_own_calls(ProxySide::Editor, None), [(2, proxy_id(2))]);
    assert!(!relay.has_own_calls(ProxySide::Editor) && relay.has_own_calls(ProxySide::Agent));
}

#[test]
fn a_call_of_the_proxy_is_known_by_its_side_and_number() {
    let mut relay = Relay::default();
    let ids = [(ProxySide::Editor, 1), (ProxySide::Editor, 2), (ProxySide::Agent, 1), (ProxySide::Agent, 3)]
        .map(|(to, number)| (to, number, relay.register_own_call(to, number, None)));
    for (to, number, id) in &ids {
        assert_eq!(relay.own_call_id(*to, *number).as_ref(), Some(id));
    }
    assert_eq!(relay.own_call_id(ProxySide::Editor, 3), None);
    assert_eq!(relay.own_call_id(ProxySide::Agent, 2), None);
    relay.abandon_own_calls(ProxySide::Agent, None);
    assert!(relay.has_own_calls(ProxySide::Editor) && !relay.has_own_calls(ProxySide::Agent));
}

#[test]
fn of_two_requests_with_ids_like_the_proxys_each_keeps_its_own() {
    let mut relay = Relay::default();
    let [first, second] = [7, 8].map(|number| RequestId::Str(format!("{PROXY_ID_PREFIX}{number}")));
    let renamed = [&first, &second].map(|id| {
        match relay.route(ProxySide::Agent, RelayedMessage::Request(id, "_x"), b"{}") {
            Route::ForwardRenamed(renamed) => renamed,
            route => panic!("{route:?}"),
        }
    });
    let cancel = |relay: &mut Relay, id: &RequestId| {
        let line = serde_json::json!({ "params": { "requestId": id } }).to_string();
        relay.route(ProxySide::Agent, RelayedMessage::Notification("$/cancel_request"), line.as_bytes())
    };
    for (id, renamed) in [&first, &second].into_iter().zip(&renamed) {
        assert_eq!(cancel(&mut relay, id), Route::ForwardCancel(renamed.clone()));
    }
    relay.mark_answered(ProxySide::Agent, &first);
    assert_eq!(cancel(&mut relay, &first), Route::Forward);
    assert_eq!(cancel(&mut relay, &second), Route::ForwardCancel(renamed[1].clone()));
    let answer = RelayedMessage::Answer(&renamed[1], false);
    assert_eq!(relay.route(ProxySide::Editor, answer, b"{}"), Route::ForwardRenamed(second));
}

#[test]
fn the_number_of_tracked_requests_is_limited() {
    let mut relay = Relay::default();
    let long = RequestId::Str("x".repeat(MAX_ID_BYTES + 1));
    assert_eq!(relay.route(ProxySide::Editor, RelayedMessage::Request(&long, "x"), b"{}"), Route::Forward);
    for number in 0..=MAX_OPEN_REQUESTS as i64 {
        relay.route(ProxySide::Editor, RelayedMessage::Request(&RequestId::Number(number), "x"), b"{}");
    }
    assert_eq!(relay.take_open_requests(ProxySide::Editor).len(), MAX_OPEN_REQUESTS);
}

#[test]
fn diagnostics_are_seen_if_they_can_be_read_and_are_no_request() {
    check(
        r#"
E {"method":"_bowline/diagnostics","params":{"sessionId":"s","path":"/a","diagnostics":[{"message":"wrong"}]}}
E {"method":"_bowline/diagnostics","params":{"path":"/a","diagnostics":[]}}
E {"method":"_bowline/diagnostics","params":{"path":"/a"}}
E {"method":"_bowline/diagnostics"}
E {"id":1,"method":"_bowline/diagnostics","params":{"path":"/a","diagnostics":[]}}
E {"method":"_bowline/other","params":{"path":"/a","diagnostics":[]}}
"#,
        expect![[r#"
            Inspect(DiagnosticsShared(DiagnosticsNotification { session_id: Some(SessionId("s")), path: "/a", diagnostics: [Diagnostic { range: TextRange { start: TextPosition { line: 0, character: 0 }, end: TextPosition { line: 0, character: 0 } }, severity: Error, message: "wrong", source: None, code: None }] }), None)
            Inspect(DiagnosticsShared(DiagnosticsNotification { session_id: None, path: "/a", diagnostics: [] }), None)
            Forward
            Forward
            Forward
            Forward
            open: [Number(1)]
        "#]],
    );
}

#[test]
fn a_name_that_a_lenient_reader_takes_for_another_is_a_lookalike() {
    let all = [
        "FS/Write_Text_File", "fs/writeTextFile", "fs/write_text_file ", "fs/write_text_file\0",
        "\tfs/write_text_file", "fs/write_text_file.", "/fs//write_text_file/", "fs.write_text_file",
        "fs%2Fwrite_text_file", "fs\\write_text_file", "fs&#47;write_text_file",
        "fs/write\u{200b}_text_file", "fs/\u{ff57}rite_text_file", "fs/writ\u{435}_text_file",
        "terminal/create\u{feff}", "TERMINAL/CREATE", "_Bowline/FS/read", "_bowline/fs/batch\0",
    ];
    for name in all {
        assert!(Method::is_lookalike(name), "{name:?} goes on");
    }
    for name in [
        "fs/write_text_file", "session/update", "terminal/output", "_zed.dev/x", "_x/fs/write_text_file",
        "_bowline/fs/read", "",
    ] {
        assert!(!Method::is_lookalike(name), "{name:?} is refused");
    }
}

#[test]
fn prompt_text_is_the_first_text_block() {
    let text = |prompt: &str| {
        let params = format!(r#"{{"sessionId":"s","prompt":{prompt}}}"#);
        prompt_text(
            format!(r#"{{"jsonrpc":"2.0","id":1,"method":"session/prompt","params":{params}}}"#).as_bytes(),
        )
    };
    let link = r#"{"type":"resource_link","name":"a","uri":"file:///a"}"#;
    assert_eq!(text(&format!(r#"[{link},{{"type":"text","text":"Fix it"}}]"#)).as_deref(), Some("Fix it"));
    assert_eq!((text("[]"), text(&format!("[{link}]")), text("7")), (None, None, None));
}
