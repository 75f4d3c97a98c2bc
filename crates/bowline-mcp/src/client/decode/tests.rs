//! Tests of decoding messages.

use expect_test::expect;

use super::*;

#[test]
fn messages_broken_answers_and_noise_are_told_apart() {
    let lines = [
        r#"{"jsonrpc":"2.0","id":1,"result":{}}"#,
        r#"{"jsonrpc":"2.0","id":"a","method":"ping"}"#,
        r#"{"jsonrpc":"2.0","method":"notifications/something/new","params":{}}"#,
        r#"{"jsonrpc":"2.0","id":1,"error":"text"}"#,
        r#"{"jsonrpc":"2.0","id":"b","error":7}"#,
        r#"{"id":1,"result":{}}"#,
        r#"{"jsonrpc":"2.0","id":1.5,"error":7}"#,
        r#"{"level":"info"}"#,
        "listening on port 8080",
        "[]",
        "",
    ];
    let output: Vec<String> = lines
        .iter()
        .map(|line| match decode(line.as_bytes()) {
            DecodedLine::Message(message) => format!("message {}", serde_json::to_string(&message).unwrap()),
            DecodedLine::UnreadableAnswer(id) => format!("broken answer to {id}"),
            DecodedLine::Noise => format!("noise {line}"),
        })
        .collect();
    expect![[r#"
        message {"jsonrpc":"2.0","id":1,"result":{}}
        message {"jsonrpc":"2.0","id":"a","method":"ping"}
        message {"jsonrpc":"2.0","method":"notifications/something/new","params":{}}
        broken answer to 1
        broken answer to b
        broken answer to 1
        noise {"jsonrpc":"2.0","id":1.5,"error":7}
        noise {"level":"info"}
        noise listening on port 8080
        noise []
        noise "#]]
    .assert_eq(&output.join("\n"));
}
