//! Tests of server-sent events.

use super::*;

#[test]
fn a_message_that_is_nested_too_deep_is_read_as_far_as_it_can_be_used() {
    let deep = "[".repeat(5000) + &"]".repeat(5000);
    for (result, read) in [
        (format!(r#"{{"tools":[{{"name":"a","inputSchema":{{"x":{deep}}}}}]}}"#), r#""name":"a""#),
        (format!(r#"{{"content":{deep}}}"#), "cannot be read"),
    ] {
        let message = make_readable(format!(r#"{{"jsonrpc":"2.0","id":1,"result":{result}}}"#));
        serde_json::from_str::<rmcp::model::ServerJsonRpcMessage>(&message).unwrap();
        assert!(message.contains(read), "{message}");
    }
}
