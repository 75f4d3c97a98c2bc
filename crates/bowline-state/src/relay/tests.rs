//! Sessions as they pass, and where each message goes. A line begins with who sends it.

use std::fmt::Write as _;

use expect_test::{Expect, expect};
use serde_json::Value;

use super::*;

fn id(value: &Value) -> Option<RequestId> {
    serde_json::from_value(value.clone()).ok().filter(|id| *id != RequestId::Null)
}

/// Passes lines that begin with `E` or `A` for who sends them, or `own ID` for a call of the proxy to the editor.
fn check(lines: &str, expect: Expect) {
    let (mut relay, mut told) = (Relay::default(), String::new());
    for line in lines.trim().lines() {
        let (who, text) = line.split_once(' ').unwrap();
        let from = match who {
            "E" => Side::Editor,
            "A" => Side::Agent,
            _ => {
                writeln!(told, "{}", relay.own(Side::Editor, text.parse().unwrap(), None)).unwrap();
                continue;
            }
        };
        let message: Value = serde_json::from_str(text).unwrap();
        let (its, method) = (id(&message["id"]), message["method"].as_str());
        let seen = match (&its, method) {
            (Some(its), Some(method)) => Seen::Request(its, method),
            (None, Some(method)) => Seen::Notification(method),
            (Some(its), None) => Seen::Answer(its, message.get("error").is_some()),
            (None, None) => panic!("no message"),
        };
        writeln!(told, "{:?}", relay.see(from, seen, text.as_bytes())).unwrap();
    }
    writeln!(told, "open: {:?}", relay.abandon(Side::Editor)).unwrap();
    expect.assert_eq(&told);
}

#[test]
fn what_does_not_matter_or_cannot_be_read_goes_on() {
    check(
        r#"
E {"id":1,"method":"_x/y","params":{"sessionId":"s"}}
A {"id":1,"result":{}}
A {"id":7,"result":"nobody asked"}
E {"id":2,"method":"session/new","params":{"cwd":7}}
E {"id":3,"method":"session/prompt"}
E {"method":"session/cancel","params":[]}
A {"method":"session/update","params":{"sessionId":"s","update":{"sessionUpdate":"agent_message_chunk","content":{}}}}
A {"method":"session/update","params":{"sessionId":"s","update":{"sessionUpdate":"agent_message_chunk","content":{"text":"\"tool_call\""}}}}
A {"method":"session/update","params":{"update":{"sessionUpdate":"tool_call"}}}
E {"method":"$/cancel_request","params":{"requestId":3}}
"#,
        expect![[r#"
            On
            On
            On
            On
            On
            On
            On
            On
            On
            On
            open: [Number(2), Number(3)]
        "#]],
    );
}

#[test]
fn a_session_is_told_by_its_messages() {
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
            Look(Opening(Opening { method: New, session: None, cwd: "/w", more: ["/x"] }), None)
            Look(Opened(Opened { session: SessionId("s"), opening: Opening { method: New, session: None, cwd: "/w", more: ["/x"] } }), None)
            Look(Opening(Opening { method: Load, session: Some(SessionId("old")), cwd: "/w", more: [] }), None)
            Look(Opened(Opened { session: SessionId("old"), opening: Opening { method: Load, session: Some(SessionId("old")), cwd: "/w", more: [] } }), None)
            Look(Opening(Opening { method: Resume, session: Some(SessionId("gone")), cwd: "/w", more: [] }), None)
            Look(NotOpened(Opening { method: Resume, session: Some(SessionId("gone")), cwd: "/w", more: [] }), None)
            Look(TurnBegins(SessionId("s")), None)
            Look(ToolCall(ToolCallSeen { session: SessionId("s"), call: ToolCallId("t"), is_new: true, status: None, kind: Some(Edit), has_diff: false }), None)
            Look(Permission(SessionId("s"), ToolCallId("t")), None)
            Look(Permitted(SessionId("s"), ToolCallId("t")), None)
            Look(ToolCall(ToolCallSeen { session: SessionId("s"), call: ToolCallId("t"), is_new: false, status: Some(Completed), kind: None, has_diff: true }), None)
            Look(Asked(Write, Some(SessionId("s")), None), None)
            On
            Look(Cancelled(SessionId("s")), None)
            Look(TurnEnded(SessionId("s")), None)
            Look(Closing(Close, SessionId("s")), None)
            Look(Closed(Close, SessionId("s")), None)
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
            Renamed(Str("bowline-proxy-3"))
            Look(Permission(SessionId("s"), ToolCallId("t")), Some(Str("bowline-proxy-5")))
            Cancel(Str("bowline-proxy-3"))
            Own(5)
            Late
            Renamed(Str("bowline-proxy-1"))
            Look(Permitted(SessionId("s"), ToolCallId("t")), Some(Str("bowline-proxy-9")))
            Late
            open: []
        "#]],
    );
}

#[test]
fn what_the_proxy_answers_or_takes_is_not_the_other_sides() {
    let mut relay = Relay::default();
    let (one, two) = (RequestId::Number(1), RequestId::Number(2));
    let line = br#"{"params":{}}"#;
    for id in [&one, &two] {
        relay.see(Side::Agent, Seen::Request(id, "mcp/message"), line);
    }
    relay.answered(Side::Agent, &one);
    relay.taken(Side::Agent, &two);
    let cancel = |id: i64| format!(r#"{{"params":{{"requestId":{id}}}}}"#);
    let mut see = |id| relay.see(Side::Agent, Seen::Notification("$/cancel_request"), cancel(id).as_bytes());
    assert_eq!((see(1), see(2)), (Route::On, Route::Taken));
    assert_eq!(relay.abandon(Side::Agent), [two]);
}

#[test]
fn a_request_that_is_held_is_given_up_when_it_is_cancelled() {
    let mut relay = Relay::default();
    let line = br#"{"params":{"sessionId":"s","path":"/w/a"}}"#;
    let (plain, ours) = (RequestId::Number(1), RequestId::Str(format!("{PREFIX}7")));
    let cancel = |relay: &mut Relay, id: &RequestId| {
        let line = serde_json::json!({ "params": { "requestId": id } }).to_string();
        relay.see(Side::Agent, Seen::Notification("$/cancel_request"), line.as_bytes())
    };
    let mut told = String::new();
    for id in [&plain, &ours] {
        relay.see(Side::Agent, Seen::Request(id, "fs/read_text_file"), line);
        relay.held(Side::Agent, id);
        writeln!(told, "held: {:?}", cancel(&mut relay, id)).unwrap();
        relay.goes_on(Side::Agent, id);
        writeln!(told, "gone on: {:?}", cancel(&mut relay, id)).unwrap();
        relay.answered(Side::Agent, id);
        relay.held(Side::Agent, id);
        writeln!(told, "answered: {:?}", cancel(&mut relay, id)).unwrap();
    }
    expect![[r#"
        held: GivenUp(Number(1))
        gone on: On
        answered: On
        held: GivenUp(Str("bowline-proxy-7"))
        gone on: Cancel(Str("bowline-proxy-3"))
        answered: On
    "#]]
    .assert_eq(&told);
}

#[test]
fn calls_of_the_proxy_are_given_up_once_and_their_answers_are_nobodys() {
    let mut relay = Relay::default();
    for (own, method) in [(1, Method::Permission), (2, Method::Write), (3, Method::Permission)] {
        relay.own(Side::Editor, own, Some(method));
    }
    relay.own(Side::Agent, 4, Some(Method::Mcp));
    let given = |number: i64| RequestId::Str(format!("{PREFIX}{number}"));
    let questions = relay.give_up_own(Side::Editor, Some(Method::Permission));
    assert_eq!(questions, [(1, given(1)), (3, given(3))]);
    assert_eq!(relay.give_up_own(Side::Editor, Some(Method::Permission)), []);
    assert_eq!(relay.see(Side::Editor, Seen::Answer(&given(3), false), b"{}"), Route::Late);
    assert!(relay.has_own(Side::Editor));
    assert_eq!(relay.give_up_own(Side::Editor, None), [(2, given(2))]);
    assert!(!relay.has_own(Side::Editor) && relay.has_own(Side::Agent));
}

#[test]
fn a_call_of_the_proxy_is_known_by_its_side_and_number() {
    let mut relay = Relay::default();
    let ids = [(Side::Editor, 1), (Side::Editor, 2), (Side::Agent, 1), (Side::Agent, 3)]
        .map(|(to, own)| (to, own, relay.own(to, own, None)));
    for (to, own, given) in &ids {
        assert_eq!(relay.own_id(*to, *own).as_ref(), Some(given));
    }
    assert_eq!(relay.own_id(Side::Editor, 3), None);
    assert_eq!(relay.own_id(Side::Agent, 2), None);
    relay.give_up_own(Side::Agent, None);
    assert!(relay.has_own(Side::Editor) && !relay.has_own(Side::Agent));
}

#[test]
fn of_two_requests_with_ids_like_the_proxys_each_keeps_its_own() {
    let mut relay = Relay::default();
    let [one, two] = [7, 8].map(|number| RequestId::Str(format!("{PREFIX}{number}")));
    let given = [&one, &two].map(|id| match relay.see(Side::Agent, Seen::Request(id, "_x"), b"{}") {
        Route::Renamed(given) => given,
        route => panic!("{route:?}"),
    });
    let cancel = |relay: &mut Relay, id: &RequestId| {
        let line = serde_json::json!({ "params": { "requestId": id } }).to_string();
        relay.see(Side::Agent, Seen::Notification("$/cancel_request"), line.as_bytes())
    };
    for (id, given) in [&one, &two].into_iter().zip(&given) {
        assert_eq!(cancel(&mut relay, id), Route::Cancel(given.clone()));
    }
    relay.answered(Side::Agent, &one);
    assert_eq!(cancel(&mut relay, &one), Route::On);
    assert_eq!(cancel(&mut relay, &two), Route::Cancel(given[1].clone()));
    let answer = Seen::Answer(&given[1], false);
    assert_eq!(relay.see(Side::Editor, answer, b"{}"), Route::Renamed(two));
}

#[test]
fn so_many_requests_are_known_and_no_more() {
    let mut relay = Relay::default();
    let long = RequestId::Str("x".repeat(MAX_ID + 1));
    assert_eq!(relay.see(Side::Editor, Seen::Request(&long, "x"), b"{}"), Route::On);
    for number in 0..=MAX_OPEN as i64 {
        relay.see(Side::Editor, Seen::Request(&RequestId::Number(number), "x"), b"{}");
    }
    assert_eq!(relay.abandon(Side::Editor).len(), MAX_OPEN);
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
            Look(Diagnostics(Shared { session_id: Some(SessionId("s")), path: "/a", diagnostics: [Diagnostic { range: Range { start: Position { line: 0, character: 0 }, end: Position { line: 0, character: 0 } }, severity: Error, message: "wrong", source: None, code: None }] }), None)
            Look(Diagnostics(Shared { session_id: None, path: "/a", diagnostics: [] }), None)
            On
            On
            On
            On
            open: [Number(1)]
        "#]],
    );
}

#[test]
fn a_name_that_a_lenient_reader_takes_for_another_is_a_lookalike() {
    let all = [
        "FS/Write_Text_File",
        "fs/writeTextFile",
        "fs/write_text_file ",
        "fs/write_text_file\0",
        "\tfs/write_text_file",
        "fs/write_text_file.",
        "/fs//write_text_file/",
        "fs.write_text_file",
        "fs%2Fwrite_text_file",
        "fs\\write_text_file",
        "fs&#47;write_text_file",
        "fs/write\u{200b}_text_file",
        "fs/\u{ff57}rite_text_file",
        "fs/writ\u{435}_text_file",
        "terminal/create\u{feff}",
        "TERMINAL/CREATE",
    ];
    for name in all {
        assert!(Method::is_lookalike(name), "{name:?} goes on");
    }
    for name in
        ["fs/write_text_file", "session/update", "terminal/output", "_zed.dev/x", "_x/fs/write_text_file", ""]
    {
        assert!(!Method::is_lookalike(name), "{name:?} is refused");
    }
}

#[test]
fn a_turn_is_asked_for_what_its_prompt_says_first() {
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
