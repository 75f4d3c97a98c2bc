//! Tests of the line transport: lines in, messages and answers out.

use expect_test::{Expect, expect};
use rmcp::service::RoleServer;
use rmcp::transport::Transport;
use tokio::io::AsyncReadExt as _;

use super::{LineTransport, MAX_LINE};

const HELLO: &str = r#"{"jsonrpc":"2.0","id":0,"method":"initialize","params":{"protocolVersion":"2025-11-25","capabilities":{},"clientInfo":{"name":"t","version":"1"}}}"#;

/// Checks the messages that are let through, followed by the transport's own replies.
async fn check(input: String, expected: Expect) {
    let (mut reader, writer) = tokio::io::duplex(1 << 20);
    let mut lines = LineTransport::new(std::io::Cursor::new(input.into_bytes()), writer);
    let mut text = String::new();
    while let Some(message) = Transport::<RoleServer>::receive(&mut lines).await {
        text += &format!("> {}\n", serde_json::to_string(&message).unwrap());
    }
    drop(lines);
    reader.read_to_string(&mut text).await.unwrap();
    expected.assert_eq(&text);
}

#[tokio::test]
async fn nothing_passes_before_the_beginning_and_requests_are_told_so() {
    let lines = [
        r#"{"jsonrpc":"2.0","id":1,"method":"tools/list"}"#,
        r#"{"jsonrpc":"2.0","method":"notifications/initialized"}"#,
        r#"{"jsonrpc":"2.0","id":2,"method":"initialize","params":{}}"#,
        r#"{"jsonrpc":"2.0","id":3,"method":"ping"}"#,
        r#"{"jsonrpc":"2.0","id":4,"result":{}}"#,
        HELLO,
        r#"{"jsonrpc":"2.0","id":5,"method":"tools/list"}"#,
    ];
    check(format!("\u{feff}\r\n\n{}\r\n", lines.join("\r\n")), expect![[r#"
        > {"jsonrpc":"2.0","id":3,"method":"ping"}
        > {"jsonrpc":"2.0","id":0,"method":"initialize","params":{"protocolVersion":"2025-11-25","capabilities":{},"clientInfo":{"name":"t","version":"1"}}}
        > {"jsonrpc":"2.0","id":5,"method":"tools/list","params":{}}
        {"jsonrpc":"2.0","id":1,"error":{"code":-32600,"message":"send initialize first"}}
        {"jsonrpc":"2.0","id":2,"error":{"code":-32602,"message":"the parameters of initialize cannot be used: it needs protocolVersion, capabilities, and clientInfo with name and version"}}
    "#]]).await;
}

#[tokio::test]
async fn a_line_that_is_too_long_is_answered_and_the_next_is_read() {
    let long = "x".repeat(MAX_LINE);
    let first = format!(r#"{{"jsonrpc":"2.0","id":6,"method":"x","params":{{"a":"{long}"}}}}"#);
    let last = format!(r#"{{"method":"x","params":{{"a":"{long}"}},"jsonrpc":"2.0","id":"seven"}}"#);
    let next = r#"{"jsonrpc":"2.0","id":8,"method":"ping"}"#;
    check(format!("{HELLO}\n{first}\n{last}\n{next}\n{{\"cut"), expect![[r#"
        > {"jsonrpc":"2.0","id":0,"method":"initialize","params":{"protocolVersion":"2025-11-25","capabilities":{},"clientInfo":{"name":"t","version":"1"}}}
        > {"jsonrpc":"2.0","id":8,"method":"ping"}
        {"jsonrpc":"2.0","id":6,"error":{"code":-32600,"message":"the message is longer than 33554432 bytes: send less at once"}}
        {"jsonrpc":"2.0","id":"seven","error":{"code":-32600,"message":"the message is longer than 33554432 bytes: send less at once"}}
    "#]]).await;
}

#[tokio::test]
async fn a_batch_is_taken_where_the_revision_has_batches_and_else_each_request_is_refused() {
    let batch = r#"[{"jsonrpc":"2.0","id":1,"method":"ping"},{"jsonrpc":"2.0","method":"notifications/initialized"},{"id":2},{"jsonrpc":"2.0","id":3,"method":"ping"}]"#;
    let old = HELLO.replace("2025-11-25", "2025-03-26");
    check(format!("{batch}\n{old}\n{batch}\n[]\n"), expect![[r#"
        > {"jsonrpc":"2.0","id":0,"method":"initialize","params":{"protocolVersion":"2025-03-26","capabilities":{},"clientInfo":{"name":"t","version":"1"}}}
        > {"jsonrpc":"2.0","id":1,"method":"ping"}
        > {"jsonrpc":"2.0","method":"notifications/initialized"}
        > {"jsonrpc":"2.0","id":3,"method":"ping"}
        {"jsonrpc":"2.0","id":1,"error":{"code":-32600,"message":"batches are not taken: send each message by itself"}}
        {"jsonrpc":"2.0","id":3,"error":{"code":-32600,"message":"batches are not taken: send each message by itself"}}
        {"jsonrpc":"2.0","id":2,"error":{"code":-32600,"message":"`jsonrpc` has to be \"2.0\""}}
        {"jsonrpc":"2.0","error":{"code":-32600,"message":"this is no batch that can be taken: send each message by itself"}}
    "#]]).await;
    check(format!("{HELLO}\n{batch}\n"), expect![[r#"
        > {"jsonrpc":"2.0","id":0,"method":"initialize","params":{"protocolVersion":"2025-11-25","capabilities":{},"clientInfo":{"name":"t","version":"1"}}}
        {"jsonrpc":"2.0","id":1,"error":{"code":-32600,"message":"batches are not taken: send each message by itself"}}
        {"jsonrpc":"2.0","id":3,"error":{"code":-32600,"message":"batches are not taken: send each message by itself"}}
    "#]]).await;
}
