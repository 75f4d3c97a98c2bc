//! Lines that are not messages, unexpected messages, and too many of them.

use std::fmt::Write as _;

use expect_test::{Expect, expect};
use serde_json::{Value, json};

use super::peak_memory_kib;
use crate::conformance::open_session;
use crate::program::{AgentFixture, AgentProgram, is_answer};

/// Sends raw bytes, then a request with a known answer; returns the messages before that answer, one per line. A served
/// case is awaited first, as answers come in any order.
async fn send_and_collect(program: &mut AgentProgram, (bytes, is_served): (&[u8], bool)) -> String {
    program.send_bytes(bytes).await;
    let mut heard = String::new();
    if is_served {
        let message = program.next_message().await.expect("the connection survives");
        writeln!(heard, "{}", format_message(&message)).unwrap();
    }
    let barrier = program.request("session/list", json!({"cwd": "/nowhere"})).await;
    loop {
        let message = program.next_message().await.expect("the connection survives");
        if is_answer(&message, barrier) {
            assert_eq!(message["result"]["sessions"], json!([]), "{message}");
            return heard;
        }
        writeln!(heard, "{}", format_message(&message)).unwrap();
    }
}

fn format_message(message: &Value) -> String {
    if let Some(batch) = message.as_array() {
        return format!("[{}]", batch.iter().map(format_message).collect::<Vec<_>>().join(", "));
    }
    let id = &message["id"];
    match &message["error"] {
        Value::Null => format!("{id}: {}", message["result"]),
        error => format!("{id}: {} {}", error["code"], error["message"]),
    }
}

/// The cases with a request that takes time.
const SERVED_CASES: [&str; 2] = ["CR LF", "a batch"];

async fn check(cases: &[(&str, &[u8])], expected: Expect) {
    let scene = AgentFixture::new();
    let mut program = scene.start_agent(&[]);
    program.initialize(json!({})).await;
    let mut told = String::new();
    for (name, bytes) in cases {
        writeln!(told, "{name}").unwrap();
        let is_served = SERVED_CASES.contains(name);
        for line in send_and_collect(&mut program, (bytes, is_served)).await.lines() {
            writeln!(told, "  {line}").unwrap();
        }
    }
    assert_eq!(program.close().await, Some(0));
    expected.assert_eq(&told);
}

#[tokio::test]
async fn an_invalid_message_gets_one_error_and_the_next_is_served() {
    let list = br#"{"jsonrpc":"2.0","id":"x","method":"session/list","params":{"cwd":"/nowhere"}}"#;
    let with = |before: &[u8], after: &[u8]| [before, list, after].concat();
    check(
        &[
            ("malformed", b"{\"jsonrpc\":\"2.0\",\"id\":1,\n"),
            ("text", b"Hello!\n"),
            ("a number", b"42\n"),
            ("an object that is none", b"{}\n"),
            ("invalid UTF-8", b"{\"jsonrpc\":\"2.0\",\"id\":\"\xff\xfe\",\"method\":\"session/list\"}\n"),
            ("byte order mark", &with(b"\xef\xbb\xbf", b"\n")),
            ("CR LF", &with(b"", b"\r\n")),
            ("blank lines", b"\n\r\n   \n\n"),
            ("zeros", b"\0\0\0\n"),
            ("a batch", &with(b"[", b"]\n")),
            ("a batch of rubbish", b"[1, {}, \"x\"]\n"),
            ("an empty batch", b"[]\n"),
            ("an unexpected answer", b"{\"jsonrpc\":\"2.0\",\"id\":77,\"result\":{}}\n"),
            (
                "another version",
                b"{\"jsonrpc\":\"1.0\",\"id\":1,\"method\":\"session/list\",\"params\":{}}\n",
            ),
        ],
        expect![[r#"
            malformed
              1: -32700 "the message is not valid JSON"
            text
              null: -32700 "the message is not valid JSON"
            a number
              null: -32600 "a message is a JSON object"
            an object that is none
              null: -32600 "\"jsonrpc\" must be \"2.0\""
            invalid UTF-8
              null: -32700 "the message is not valid UTF-8"
            byte order mark
              null: -32700 "the message is not valid JSON"
            CR LF
              "x": {"sessions":[]}
            blank lines
            zeros
              null: -32700 "the message is not valid JSON"
            a batch
              ["x": {"sessions":[]}]
            a batch of rubbish
              [null: -32600 "a message is a JSON object", null: -32600 "\"jsonrpc\" must be \"2.0\"", null: -32600 "a message is a JSON object"]
            an empty batch
              null: -32600 "a batch must not be empty"
            an unexpected answer
            another version
              1: -32600 "\"jsonrpc\" must be \"2.0\""
        "#]],
    )
    .await;
}

#[tokio::test]
async fn hostile_json_is_an_error_and_no_crash() {
    let list = |cursor: &str| {
        format!(
            "{{\"jsonrpc\":\"2.0\",\"id\":\"x\",\"method\":\"session/list\",\"params\":{{\"cursor\":{cursor}}}}}\n"
        )
    };
    let deep = list(&format!("{}{}", "[".repeat(100_000), "]".repeat(100_000)));
    let objects = list(&format!("{}1{}", "{\"a\":".repeat(100_000), "}".repeat(100_000)));
    let keys: String = (0..1_000_000).map(|key| format!("\"k{key}\":0,")).collect();
    let keys = format!(
        "{{\"jsonrpc\":\"2.0\",\"id\":\"x\",\"method\":\"session/list\",\"params\":{{{keys}\"cwd\":\"/nowhere\"}}}}\n"
    );
    let twice = "{\"jsonrpc\":\"2.0\",\"id\":\"x\",\"method\":\"session/list\",\"params\":{\"cwd\":\"/a\",\"cwd\":\"/b\"}}\n";
    check(
        &[
            ("arrays 100,000 deep", deep.as_bytes()),
            ("objects 100,000 deep", objects.as_bytes()),
            ("arrays that never end", format!("{}\n", "[".repeat(100_000)).as_bytes()),
            ("a million keys", keys.as_bytes()),
            ("a key twice", twice.as_bytes()),
            ("1e400", list("1e400").as_bytes()),
            ("half a character", list("\"\\ud800\"").as_bytes()),
            (
                "a long id",
                format!("{{\"jsonrpc\":\"2.0\",\"id\":\"{}\",\"method\":\"x\"}}\n", "i".repeat(5000))
                    .as_bytes(),
            ),
        ],
        expect![[r#"
            arrays 100,000 deep
              "x": -32602 "the params of session/list are wrong: expected a string at column 10"
            objects 100,000 deep
              "x": -32602 "the params of session/list are wrong: expected a string at column 10"
            arrays that never end
              null: -32700 "the message is not valid JSON"
            a million keys
              "x": {"sessions":[]}
            a key twice
              "x": -32602 "the params of session/list are wrong: not as the schema has it at column 17"
            1e400
              "x": -32602 "the params of session/list are wrong: not as the schema has it at column 15"
            half a character
              "x": -32602 "the params of session/list are wrong: not as the schema has it at column 18"
            a long id
              null: -32600 "an id is a string of at most 1024 bytes or an integer"
        "#]],
    )
    .await;
}

/// A line beyond the message limit is not buffered.
#[tokio::test]
async fn a_line_of_100_megabytes_is_refused_without_being_kept() {
    let scene = AgentFixture::new();
    let mut program = scene.start_agent(&[]);
    program.initialize(json!({})).await;
    let before = peak_memory_kib(&program);
    let megabyte = vec![b'x'; 1 << 20];
    for _ in 0..100 {
        program.send_bytes(&megabyte).await;
    }
    let told = send_and_collect(&mut program, (b"\n", false)).await;
    expect![[r#"
        null: -32600 "a message of 104857600 bytes is over the limit of 67108864 bytes"
    "#]]
    .assert_eq(&told);
    let grown = peak_memory_kib(&program) - before;
    assert!(grown < 160 << 10, "{grown} KiB");
    assert_eq!(program.close().await, Some(0));
}

#[tokio::test]
async fn requests_out_of_order_and_out_of_shape_are_told_what_is_wrong() {
    let scene = AgentFixture::new();
    let mut program = scene.start_agent(&[]);
    let mut told = String::new();
    let cwd = scene.project();
    let steps = [
        ("before initialize", "session/new", json!({"cwd": cwd, "mcpServers": []})),
        ("an unknown method before", "no/such", json!({})),
        ("initialize with nothing", "initialize", json!({})),
        ("initialize with rubbish", "initialize", json!({"protocolVersion": "one"})),
        ("initialize", "initialize", json!({"protocolVersion": 1, "unknown": {"field": 1}})),
        ("initialize twice", "initialize", json!({"protocolVersion": 1})),
        ("an unknown method", "no/such", json!({})),
        ("an extension", "_no/such", json!({})),
        ("unknown fields", "session/list", json!({"cwd": "/nowhere", "what": [1]})),
        ("wrong types", "session/new", json!({"cwd": 1, "mcpServers": {}})),
        ("missing fields", "session/prompt", json!({})),
        ("params that are a list", "session/list", json!([1])),
        ("an unknown session", "session/prompt", json!({"sessionId": "x", "prompt": []})),
        (
            "an unknown session to load",
            "session/load",
            json!({"sessionId": "x", "cwd": cwd, "mcpServers": []}),
        ),
        ("an unknown session to close", "session/close", json!({"sessionId": "x"})),
    ];
    for (name, method, params) in steps {
        let id = program.request(method, params).await;
        let answer = program.wait_for_answer(id).await;
        let said = match &answer["error"] {
            Value::Null => "answered".to_owned(),
            error => format!("{} {} {}", error["code"], error["message"], error["data"]),
        };
        writeln!(told, "{name}: {}", scene.normalize(&said)).unwrap();
    }
    // Notifications have no answers, not even invalid ones.
    program.notify("session/cancel", json!({"sessionId": "x"})).await;
    program.notify("session/cancel", json!({"wrong": 1})).await;
    program.notify("no/such", json!({})).await;
    assert_eq!(send_and_collect(&mut program, (b"", false)).await, "");
    expect![[r#"
        before initialize: -32600 "initialize must come first" null
        an unknown method before: -32600 "initialize must come first" null
        initialize with nothing: -32602 "the params of initialize are wrong: missing field `protocolVersion` before column 2" null
        initialize with rubbish: -32602 "the params of initialize are wrong: expected u16 at column 24" null
        initialize: answered
        initialize twice: -32600 "initialize comes once" null
        an unknown method: -32601 "Method not found: no/such" {"method":"no/such"}
        an extension: -32601 "Method not found: _no/such" {"method":"_no/such"}
        unknown fields: answered
        wrong types: -32602 "the params of session/new are wrong: expected path string at column 8" null
        missing fields: -32602 "the params of session/prompt are wrong: missing field `sessionId` before column 2" null
        params that are a list: -32602 "the params of session/list are wrong: expected path string at column 2" null
        an unknown session: -32002 "Resource not found: session x" {"sessionId":"x"}
        an unknown session to load: -32002 "Resource not found: session x" {"sessionId":"x"}
        an unknown session to close: -32002 "Resource not found: session x" {"sessionId":"x"}
    "#]].assert_eq(&told);
}

/// Prompts of one session queue in order, up to a limit.
#[tokio::test]
async fn prompts_of_one_session_are_answered_one_after_the_other() {
    let scene = AgentFixture::new();
    let (mut program, session) = open_session(&scene, &[], json!({})).await;
    let begins = |it: &Value| it["params"]["update"]["sessionUpdate"] == "agent_message_chunk";
    let running = program.prompt(&session, "say running\nwait 3600").await;
    program.wait_for(begins).await;
    let mut waiting = Vec::new();
    for number in 1..=8 {
        waiting.push(program.prompt(&session, &format!("say turn {number}")).await);
    }
    let beyond = program.prompt(&session, "say beyond").await;
    let refused = program.wait_for_answer(beyond).await;
    assert!(refused["error"]["code"].is_i64(), "{refused}");
    assert!(
        program.messages.iter().all(|it| waiting.iter().all(|id| !is_answer(it, *id))),
        "none is answered yet"
    );
    // Only this request is cancelled, so the queued ones continue.
    program.notify("$/cancel_request", json!({"requestId": running})).await;
    assert_eq!(program.wait_for_answer(running).await["result"]["stopReason"], "cancelled");
    for id in &waiting {
        assert_eq!(program.wait_for_answer(*id).await["result"]["stopReason"], "end_turn");
    }
    let order: Vec<i64> = program
        .messages
        .iter()
        .filter_map(|it| it["id"].as_i64())
        .filter(|id| waiting.contains(id))
        .collect();
    assert_eq!(order, waiting);
    assert_eq!(
        program.agent_text(),
        "running\nturn 1turn 2turn 3turn 4turn 5turn 6turn 7turn 8".replace('\n', "")
    );
}

/// A cancel applies to all prompts of the session, including queued ones.
#[tokio::test]
async fn a_cancel_ends_the_prompts_that_wait_too() {
    let scene = AgentFixture::new();
    let (mut program, session) = open_session(&scene, &[], json!({})).await;
    let running = program.prompt(&session, "say running\nwait 3600").await;
    program.wait_for(|it| it["params"]["update"]["sessionUpdate"] == "agent_message_chunk").await;
    let waiting = program.prompt(&session, "say waiting").await;
    program.notify("session/cancel", json!({"sessionId": session})).await;
    for id in [running, waiting] {
        assert_eq!(program.wait_for_answer(id).await["result"]["stopReason"], "cancelled");
    }
    assert_eq!(program.run_turn(&session, "say after").await, "end_turn");
    assert_eq!(program.agent_text(), "runningafter");
}
