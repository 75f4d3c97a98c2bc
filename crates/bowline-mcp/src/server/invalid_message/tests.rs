//! Tests of the answers to invalid messages.

use expect_test::expect;

use super::{answer_invalid, invalid_params_error, too_long_error};

fn describe_answer(bytes: &[u8]) -> String {
    let answer = answer_invalid(bytes).map(|answer| serde_json::to_string(&answer).unwrap());
    format!("{} -> {}\n", String::from_utf8_lossy(bytes), answer.unwrap_or_else(|| "nothing".to_owned()))
}

#[test]
fn what_asks_for_something_is_answered_and_nothing_else_is() {
    let text: String = [
        &b"this is not JSON"[..],
        b"{\"half\":",
        b"{\"jsonrpc\":\"2.0\",\"method\":\"notifications/x\",\"params\":5}",
        b"{\"jsonrpc\":\"2.0\",\"id\":1,\"result\":5}",
        b"[]",
        b"7",
        b"{\"id\":1,\"method\":\"ping\"}",
        b"{\"jsonrpc\":\"2.0\",\"id\":null,\"method\":\"ping\"}",
        b"{\"jsonrpc\":\"2.0\",\"id\":1.5,\"method\":\"ping\"}",
        b"{\"jsonrpc\":\"2.0\",\"id\":\"a\"}",
        b"{\"jsonrpc\":\"2.0\",\"id\":\"a\",\"method\":\"x\",\"params\":5}",
        b"{\"jsonrpc\":\"2.0\",\"id\":2,\"method\":\"x\",\"params\":{\"text\":\"\\ud83d\"}}",
        b"{\"jsonrpc\":\"2.0\",\"id\":3,\"method\":\"x\",\"params\":{\"text\":\"\xff\"}}",
    ]
    .into_iter()
    .map(describe_answer)
    .collect();
    expect![[r#"
        this is not JSON -> nothing
        {"half": -> nothing
        {"jsonrpc":"2.0","method":"notifications/x","params":5} -> nothing
        {"jsonrpc":"2.0","id":1,"result":5} -> nothing
        [] -> {"jsonrpc":"2.0","error":{"code":-32600,"message":"this is no batch that can be taken: send each message by itself"}}
        7 -> {"jsonrpc":"2.0","error":{"code":-32600,"message":"a message is a JSON object"}}
        {"id":1,"method":"ping"} -> {"jsonrpc":"2.0","id":1,"error":{"code":-32600,"message":"`jsonrpc` has to be \"2.0\""}}
        {"jsonrpc":"2.0","id":null,"method":"ping"} -> {"jsonrpc":"2.0","error":{"code":-32600,"message":"`id` has to be a string or a whole number"}}
        {"jsonrpc":"2.0","id":1.5,"method":"ping"} -> {"jsonrpc":"2.0","error":{"code":-32600,"message":"`id` has to be a string or a whole number"}}
        {"jsonrpc":"2.0","id":"a"} -> {"jsonrpc":"2.0","id":"a","error":{"code":-32600,"message":"`method` has to be a string"}}
        {"jsonrpc":"2.0","id":"a","method":"x","params":5} -> {"jsonrpc":"2.0","id":"a","error":{"code":-32600,"message":"`params` has to be an object"}}
        {"jsonrpc":"2.0","id":2,"method":"x","params":{"text":"\ud83d"}} -> {"jsonrpc":"2.0","id":2,"error":{"code":-32700,"message":"the message holds text that is no Unicode (half a surrogate pair, or bytes that are no UTF-8): leave it out"}}
        {"jsonrpc":"2.0","id":3,"method":"x","params":{"text":"�"}} -> {"jsonrpc":"2.0","id":3,"error":{"code":-32700,"message":"the message holds text that is no Unicode (half a surrogate pair, or bytes that are no UTF-8): leave it out"}}
    "#]].assert_eq(&text);
}

#[test]
fn the_id_of_a_long_message_is_found_where_clients_put_it() {
    let ids: String = [
        ("{\"jsonrpc\":\"2.0\",\"id\":7,\"method\":\"x\",\"params\":{\"a\":\"aaa", "aaa\"}}"),
        ("{\"method\":\"x\",\"params\":{\"a\":\"aaa", "aaa\"},\"jsonrpc\":\"2.0\",\"id\":\"b\"}"),
        ("{\"method\":\"x\",\"params\":{\"id\":5,\"a\":\"aaa", "aaa\",\"id\":9}}"),
        ("{\"method\":\"x\",\"params\":{\"a\":\"aaa", "\\\"id\\\":9}"),
        ("aaa", "aaa"),
    ]
    .iter()
    .map(|(head, tail)| {
        let answer = serde_json::to_value(too_long_error(head.as_bytes(), tail.as_bytes(), 3)).unwrap();
        format!("{} {}\n", answer["id"], answer["error"]["message"])
    })
    .collect();
    expect![[r#"
        7 "the message is longer than 3 bytes: send less at once"
        "b" "the message is longer than 3 bytes: send less at once"
        null "the message is longer than 3 bytes: send less at once"
        null "the message is longer than 3 bytes: send less at once"
        null "the message is longer than 3 bytes: send less at once"
    "#]]
    .assert_eq(&ids);
}

#[test]
fn a_method_that_there_is_has_wrong_parameters_and_no_other() {
    let describe = |method| {
        let error = invalid_params_error(method);
        format!("{} {}\n", error.code.0, error.message)
    };
    let text: String =
        ["initialize", "tools/call", "resources/read", "x/y", "x\n\u{1b}[31m"].map(describe).concat();
    expect![[r#"
        -32602 the parameters of initialize cannot be used: it needs protocolVersion, capabilities, and clientInfo with name and version
        -32602 the parameters of tools/call cannot be used: it needs name, and arguments as an object
        -32602 the parameters of resources/read cannot be used: it needs uri
        -32601 there is no method x/y here
        -32601 there is no method x\n\u{1b}[31m here
    "#]].assert_eq(&text);
}
