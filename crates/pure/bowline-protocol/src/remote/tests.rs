//! Tests of the heads of messages and of the extensions.

use expect_test::expect;

use super::*;

#[test]
fn heads_of_messages() {
    let messages = [
        r#"{"jsonrpc":"2.0","id":1,"method":"session/prompt","params":{"prompt":[],"sessionId":"s"}}"#,
        r#"{"jsonrpc":"2.0","id":"a","method":"session/new","params":{"cwd":"/"}}"#,
        r#"{"jsonrpc":"2.0","method":"session/cancel","params":{"sessionId":"s\u0031"}}"#,
        r#"{"jsonrpc":"2.0","id":2,"result":{"sessionId":"not params"}}"#,
        r#"{"jsonrpc":"2.0","id":3,"method":"x","params":[1]}"#,
        r#"{"jsonrpc":"2.0","id":3,"method":"x","params":{"sessionId":7}}"#,
        r#"{"jsonrpc":"2.0","id":3,"method":"x","params":{"sessionId":"a","session\u0049d":"b"}}"#,
        r#"{"jsonrpc":"2.0","id":null,"error":{"code":-32700,"message":""}}"#,
        r#"{"jsonrpc":"2.0","\u0069d":1,"method":"x"}"#,
        r#"{"jsonrpc":"2.0", "id" : 1 , "m\u0065thod":"x"}"#,
        r#"{"jsonrpc":"2.0", "id" : 1 , "method" : "x\u0079" }"#,
        r#"{"jsonrpc":"2.0","id":1}"#,
        r#"{"jsonrpc":"2.0","id":1,"result":null}"#,
        r#" [{"jsonrpc":"2.0","id":1,"method":"x"}]"#,
        "{",
        "",
    ];
    let heads: String = messages
        .iter()
        .map(|message| match MessageHead::parse(message.as_bytes()) {
            Err(error) => format!("{error}\n"),
            Ok(head) => {
                let kind = match (head.is_request(), head.is_response()) {
                    (true, _) if head.opens_session() => "opening request",
                    (true, _) => "request",
                    (_, true) => "response",
                    _ => "notification",
                };
                format!("{kind} {:?} {:?} {:?}\n", head.id, head.method, head.session_id)
            }
        })
        .collect();
    expect![[r#"
        request Some(Number(1)) Some("session/prompt") Some("s")
        opening request Some(Str("a")) Some("session/new") None
        notification None Some("session/cancel") Some("s1")
        response Some(Number(2)) None None
        request Some(Number(3)) Some("x") None
        request Some(Number(3)) Some("x") None
        this is not a JSON-RPC message
        this is not a JSON-RPC message
        this is not a JSON-RPC message
        this is not a JSON-RPC message
        request Some(Number(1)) Some("xy") None
        response Some(Number(1)) None None
        response Some(Number(1)) None None
        batches of messages are not supported
        this is not a JSON-RPC message
        this is not a JSON-RPC message
    "#]]
    .assert_eq(&heads);
}

#[test]
fn an_id_is_read_as_its_type_reads_it() {
    let ids = [
        "1", "-3", "0", "-0", "9223372036854775807", "-9223372036854775808", "9223372036854775808", "1.0",
        "1e3", "null", "true", "{}", "[]", r#""""#, r#""1""#, r#""a\n\u00e9""#,
    ];
    for id in ids {
        let message = format!(r#"{{"jsonrpc":"2.0","id":{id},"method":"x"}}"#);
        let expected = serde_json::from_str(id).map_err(|_| MessageHeadError::Malformed);
        let expected = expected.map(|id| (id != RequestId::Null).then_some(id));
        let read = MessageHead::parse(message.as_bytes()).map(|head| head.id);
        assert_eq!(read, expected, "{id}");
    }
}

#[test]
fn extensions_are_recognised() {
    let result =
        json!({ "agentCapabilities": { "_meta": { "bowline": { "remote": offered_extensions() } } } });
    assert!(offers_extensions(&result));
    assert!(!offers_extensions(&json!({ "agentCapabilities": {} })));
    assert_eq!(resumed_connection(&json!({ "_meta": { "bowline": { "resumes": "c" } } })), Some("c"));
    assert_eq!(resumed_connection(&json!({ "_meta": { "bowline": { "resumes": 1 } } })), None);
}
