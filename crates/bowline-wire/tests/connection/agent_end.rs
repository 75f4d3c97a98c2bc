//! Tests of an agent against a client that sends arbitrary lines.

use bowline_wire::ConnectionLimits;
use expect_test::{Expect, expect};
use tokio::io::AsyncWriteExt;

use crate::probe_agent::{LineClient, ProbeAgent};

const INITIALIZE: &str = r#"{"jsonrpc":"2.0","id":0,"method":"initialize","params":{"protocolVersion":1,"clientCapabilities":{"fs":{"readTextFile":true}}}}"#;

/// Sends the lines that start with `>` and, for each line `<`, prints a line of the agent.
async fn check(script: &str, expected: Expect) {
    check_with(ConnectionLimits::DEFAULT, script, expected).await;
}

async fn check_with(limits: ConnectionLimits, script: &str, expected: Expect) {
    let mut wire = LineClient::connect(ProbeAgent, limits, 1 << 16);
    let mut output = String::new();
    for line in script.lines().map(str::trim).filter(|line| !line.is_empty()) {
        match line.strip_prefix("> ") {
            Some("initialize") => {
                wire.send(INITIALIZE.as_bytes()).await;
                wire.receive().await;
            }
            Some(text) => wire.send(text.as_bytes()).await,
            None if line == "<" => output += &format!("{}\n", wire.receive().await),
            None if line == "eof" => {
                wire.writer.shutdown().await.expect("the agent is there");
                while let Ok(Some(line)) = wire.lines.next_line().await {
                    output += &format!("{line}\n");
                }
                wire.serve_task.await.expect("no panic").expect("no error");
                output += "(closed)\n";
                break;
            }
            None => panic!("{line}"),
        }
    }
    expected.assert_eq(&output);
}

fn prompt(id: u32, text: &str) -> String {
    format!(
        r#"> {{"jsonrpc":"2.0","id":{id},"method":"session/prompt","params":{{"sessionId":"s","prompt":[{{"type":"text","text":"{text}"}}]}}}}"#
    )
}

#[tokio::test]
async fn a_version_that_we_do_not_speak_is_answered_with_one_that_we_do() {
    for version in ["0", "1", "2", "99", "65535", "70000", "1e3"] {
        let script = format!(
            r#"
            > {{"jsonrpc":"2.0","id":0,"method":"initialize","params":{{"protocolVersion":{version}}}}}
            <
            "#
        );
        let mut wire = LineClient::connect(ProbeAgent, ConnectionLimits::DEFAULT, 1 << 16);
        wire.send(script.lines().nth(1).and_then(|line| line.trim().strip_prefix("> ")).unwrap().as_bytes())
            .await;
        let answer = wire.receive().await;
        assert!(
            answer.starts_with(r#"{"jsonrpc":"2.0","id":0,"result":{"protocolVersion":1,"#),
            "{version}: {answer}"
        );
    }
}

#[tokio::test]
async fn initialize_comes_first_and_once() {
    check(
        r#"
        > {"jsonrpc":"2.0","id":1,"method":"session/new","params":{"cwd":"/","mcpServers":[]}}
        <
        > {"jsonrpc":"2.0","id":2,"method":"_echo","params":{}}
        <
        > {"jsonrpc":"2.0","id":3,"method":"initialize","params":{"protocolVersion":"one"}}
        <
        > initialize
        > {"jsonrpc":"2.0","id":4,"method":"initialize","params":{"protocolVersion":1}}
        <
        > {"jsonrpc":"2.0","id":"five","method":"session/new","params":{"cwd":"/","mcpServers":[]}}
        <
        "#,
        expect![[r#"
            {"jsonrpc":"2.0","id":1,"error":{"code":-32600,"message":"initialize must come first"}}
            {"jsonrpc":"2.0","id":2,"error":{"code":-32600,"message":"initialize must come first"}}
            {"jsonrpc":"2.0","id":3,"error":{"code":-32602,"message":"the params of initialize are wrong: expected u16 at column 24"}}
            {"jsonrpc":"2.0","id":4,"error":{"code":-32600,"message":"initialize comes once"}}
            {"jsonrpc":"2.0","id":"five","result":{"sessionId":"s"}}
        "#]],
    )
    .await;
}

#[tokio::test]
async fn what_is_not_served_answers_unknown_method_and_unknown_notifications_are_ignored() {
    check(
        r#"
        > initialize
        > {"jsonrpc":"2.0","id":1,"method":"session/load","params":{"sessionId":"s","cwd":"/","mcpServers":[]}}
        <
        > {"jsonrpc":"2.0","id":2,"method":"session/unknown"}
        <
        > {"jsonrpc":"2.0","id":3,"method":"_unknown","params":[1]}
        <
        > {"jsonrpc":"2.0","method":"session/unknown"}
        > {"jsonrpc":"2.0","method":"_note","params":{}}
        > {"jsonrpc":"2.0","method":"$/unknown"}
        > {"jsonrpc":"2.0","id":4,"method":"_echo","params":{"any":[null,1.50]}}
        <
        "#,
        expect![[r#"
            {"jsonrpc":"2.0","id":1,"error":{"code":-32601,"message":"Method not found: session/load","data":{"method":"session/load"}}}
            {"jsonrpc":"2.0","id":2,"error":{"code":-32601,"message":"Method not found: session/unknown","data":{"method":"session/unknown"}}}
            {"jsonrpc":"2.0","id":3,"error":{"code":-32601,"message":"Method not found"}}
            {"jsonrpc":"2.0","id":4,"result":{"any":[null,1.50]}}
        "#]],
    )
    .await;
}

#[tokio::test]
async fn wrong_params_are_answered_by_id_without_quoting_them() {
    check(
        r#"
        > initialize
        > {"jsonrpc":"2.0","id":1,"method":"session/prompt","params":{"sessionId":["token-1234"],"prompt":[]}}
        <
        > {"jsonrpc":"2.0","id":2,"method":"session/prompt","params":{"prompt":[]}}
        <
        > {"jsonrpc":"2.0","id":3,"method":"session/prompt","params":"token-1234"}
        <
        > {"jsonrpc":"2.0","id":4,"method":"session/prompt","params":{"sessionId":"s","prompt":[{"type":"text","text":"\ud800"}]}}
        <
        > {"jsonrpc":"2.0","id":5,"method":"session/set_mode","params":null}
        <
        "#,
        expect![[r#"
            {"jsonrpc":"2.0","id":1,"error":{"code":-32602,"message":"the params of session/prompt are wrong: expected a string at column 13"}}
            {"jsonrpc":"2.0","id":2,"error":{"code":-32602,"message":"the params of session/prompt are wrong: missing field `sessionId` before column 13"}}
            {"jsonrpc":"2.0","id":3,"error":{"code":-32602,"message":"the params of session/prompt are wrong: expected struct PromptRequest at column 12"}}
            {"jsonrpc":"2.0","id":4,"error":{"code":-32602,"message":"the params of session/prompt are wrong: not as the schema has it at column 57"}}
            {"jsonrpc":"2.0","id":5,"error":{"code":-32602,"message":"the params of session/set_mode are wrong: missing field `sessionId` before column 2"}}
        "#]],
    )
    .await;
}

#[tokio::test]
async fn bad_lines_get_one_error_each_and_the_connection_lives_on() {
    check(
        r#"
        > initialize
        > {"jsonrpc":"2.0","id":1,"method":
        <
        > nonsense
        <
        > [1]
        <
        > {"jsonrpc":"2.0","id":77,"result":{}}
        > {"jsonrpc":"2.0","id":2,"method":"_echo","params":{}}
        <
        "#,
        expect![[r#"
            {"jsonrpc":"2.0","id":1,"error":{"code":-32700,"message":"the message is not valid JSON"}}
            {"jsonrpc":"2.0","id":null,"error":{"code":-32700,"message":"the message is not valid JSON"}}
            [{"jsonrpc":"2.0","id":null,"error":{"code":-32600,"message":"a message is a JSON object"}}]
            {"jsonrpc":"2.0","id":2,"result":{}}
        "#]],
    )
    .await;
}

#[tokio::test]
async fn a_handler_that_panics_answers_with_an_error_that_tells_nothing() {
    check(
        &format!("> initialize\n{}\n<\n{}\n<\n<", prompt(1, "panic"), prompt(2, "say still here")),
        expect![[r#"
            {"jsonrpc":"2.0","id":1,"error":{"code":-32603,"message":"the handler of this request failed unexpectedly"}}
            {"jsonrpc":"2.0","method":"session/update","params":{"sessionId":"s","update":{"sessionUpdate":"agent_message_chunk","content":{"type":"text","text":"still here"}}}}
            {"jsonrpc":"2.0","id":2,"result":{"stopReason":"end_turn"}}
        "#]],
    )
    .await;
}

#[tokio::test]
async fn a_turn_is_cancelled_by_session_cancel_by_its_request_id_and_by_session_close() {
    check(
        &format!(
            r#"
            > initialize
            {}
            <
            > {{"jsonrpc":"2.0","method":"session/cancel","params":{{"sessionId":"s"}}}}
            <
            <
            {}
            <
            > {{"jsonrpc":"2.0","method":"$/cancel_request","params":{{"requestId":2}}}}
            <
            {}
            <
            > {{"jsonrpc":"2.0","id":4,"method":"session/close","params":{{"sessionId":"s"}}}}
            <
            <
            > {{"jsonrpc":"2.0","method":"session/cancel","params":{{"sessionId":"s"}}}}
            <
            {}
            <
            <
            "#,
            prompt(1, "wait"),
            prompt(2, "wait"),
            prompt(3, "wait"),
            prompt(5, "say a cancel of nothing changes nothing"),
        ),
        expect![[r#"
            {"jsonrpc":"2.0","method":"session/update","params":{"sessionId":"s","update":{"sessionUpdate":"agent_message_chunk","content":{"type":"text","text":"waiting"}}}}
            {"jsonrpc":"2.0","method":"session/update","params":{"sessionId":"s","update":{"sessionUpdate":"agent_message_chunk","content":{"type":"text","text":"cancel seen"}}}}
            {"jsonrpc":"2.0","id":1,"result":{"stopReason":"cancelled"}}
            {"jsonrpc":"2.0","method":"session/update","params":{"sessionId":"s","update":{"sessionUpdate":"agent_message_chunk","content":{"type":"text","text":"waiting"}}}}
            {"jsonrpc":"2.0","id":2,"result":{"stopReason":"cancelled"}}
            {"jsonrpc":"2.0","method":"session/update","params":{"sessionId":"s","update":{"sessionUpdate":"agent_message_chunk","content":{"type":"text","text":"waiting"}}}}
            {"jsonrpc":"2.0","id":4,"result":{}}
            {"jsonrpc":"2.0","id":3,"result":{"stopReason":"cancelled"}}
            {"jsonrpc":"2.0","method":"session/update","params":{"sessionId":"s","update":{"sessionUpdate":"agent_message_chunk","content":{"type":"text","text":"cancel seen"}}}}
            {"jsonrpc":"2.0","method":"session/update","params":{"sessionId":"s","update":{"sessionUpdate":"agent_message_chunk","content":{"type":"text","text":"a cancel of nothing changes nothing"}}}}
            {"jsonrpc":"2.0","id":5,"result":{"stopReason":"end_turn"}}
        "#]],
    )
    .await;
}

#[tokio::test]
async fn what_waits_for_the_answer_leaves_after_it() {
    check(
        &format!("> initialize\n{}\n<\n<\n{}\n<\n<", prompt(1, "after one"), prompt(2, "later two")),
        expect![[r#"
            {"jsonrpc":"2.0","id":1,"result":{"stopReason":"end_turn"}}
            {"jsonrpc":"2.0","method":"session/update","params":{"sessionId":"s","update":{"sessionUpdate":"agent_message_chunk","content":{"type":"text","text":"one"}}}}
            {"jsonrpc":"2.0","id":2,"result":{"stopReason":"end_turn"}}
            {"jsonrpc":"2.0","method":"session/update","params":{"sessionId":"s","update":{"sessionUpdate":"agent_message_chunk","content":{"type":"text","text":"two"}}}}
        "#]],
    )
    .await;
}

#[tokio::test(start_paused = true)]
async fn a_client_that_goes_away_ends_the_turn_and_the_connection() {
    check(&format!("> initialize\n{}\n<\neof", prompt(1, "wait")), expect![[r#"
        {"jsonrpc":"2.0","method":"session/update","params":{"sessionId":"s","update":{"sessionUpdate":"agent_message_chunk","content":{"type":"text","text":"waiting"}}}}
        {"jsonrpc":"2.0","id":1,"result":{"stopReason":"cancelled"}}
        (closed)
    "#]]).await;
    // A client that has closed its end may still read: earlier requests are answered, updates included.
    check(&format!("> initialize\n{}\neof", prompt(1, "stream 2")), expect![[r#"
        {"jsonrpc":"2.0","method":"session/update","params":{"sessionId":"s","update":{"sessionUpdate":"agent_message_chunk","content":{"type":"text","text":"0"}}}}
        {"jsonrpc":"2.0","method":"session/update","params":{"sessionId":"s","update":{"sessionUpdate":"agent_message_chunk","content":{"type":"text","text":"1"}}}}
        {"jsonrpc":"2.0","id":1,"result":{"stopReason":"end_turn"}}
        (closed)
    "#]]).await;
    check(
        &format!("> initialize\n{}\n<\neof", prompt(1, "read /a")),
        expect![[r#"
        {"jsonrpc":"2.0","id":0,"method":"fs/read_text_file","params":{"sessionId":"s","path":"/a"}}
        {"jsonrpc":"2.0","id":1,"error":{"code":-32603,"message":"the connection is closed"}}
        (closed)
    "#]],
    )
    .await;
}

#[tokio::test]
async fn a_method_that_the_client_did_not_advertise_is_never_called() {
    check(
        &format!(
            r#"
            > {{"jsonrpc":"2.0","id":0,"method":"initialize","params":{{"protocolVersion":1}}}}
            <
            {}
            <
            "#,
            prompt(1, "read /a")
        ),
        expect![[r#"
            {"jsonrpc":"2.0","id":0,"result":{"protocolVersion":1,"agentCapabilities":{"loadSession":false,"promptCapabilities":{"image":false,"audio":false,"embeddedContext":false},"mcpCapabilities":{"http":false,"sse":false,"acp":false},"sessionCapabilities":{},"auth":{}},"authMethods":[]}}
            {"jsonrpc":"2.0","id":1,"error":{"code":-32601,"message":"fs/read_text_file needs clientCapabilities.fs.readTextFile, which was not advertised","data":{"method":"fs/read_text_file","capability":"clientCapabilities.fs.readTextFile"}}}
        "#]],
    )
    .await;
}

#[tokio::test]
async fn more_requests_than_may_wait_are_answered_busy() {
    let mut limits = ConnectionLimits::DEFAULT;
    limits.max_incoming = 1;
    check_with(
        limits,
        &format!(
            r#"
            > initialize
            {}
            <
            > {{"jsonrpc":"2.0","id":2,"method":"_echo","params":{{}}}}
            <
            > {{"jsonrpc":"2.0","method":"$/cancel_request","params":{{"requestId":1}}}}
            <
            > {{"jsonrpc":"2.0","id":2,"method":"_echo","params":{{}}}}
            <
            "#,
            prompt(1, "wait")
        ),
        expect![[r#"
            {"jsonrpc":"2.0","method":"session/update","params":{"sessionId":"s","update":{"sessionUpdate":"agent_message_chunk","content":{"type":"text","text":"waiting"}}}}
            {"jsonrpc":"2.0","id":2,"error":{"code":-32029,"message":"too many requests at once, the limit is 1","data":{"limit":1}}}
            {"jsonrpc":"2.0","id":1,"result":{"stopReason":"cancelled"}}
            {"jsonrpc":"2.0","id":2,"result":{}}
        "#]],
    )
    .await;
}
