//! JSON-RPC messages, changed as little as possible: their other members keep their exact text.

use std::collections::BTreeMap;

use agent_client_protocol_schema::v1::RequestId;
use bytes::Bytes;
use serde_json::value::RawValue;
use serde_json::{Value, json};

/// The code of an internal error.
pub(crate) const INTERNAL_ERROR: i32 = -32603;
/// The code of a message that is not JSON.
pub(crate) const PARSE_ERROR: i32 = -32700;
/// The code of a message that is not allowed.
pub(crate) const INVALID_REQUEST: i32 = -32600;

/// Returns a request.
pub(crate) fn request(id: &RequestId, method: &str, params: &Value) -> Bytes {
    to_bytes(&json!({ "jsonrpc": "2.0", "id": id, "method": method, "params": params }))
}

/// Returns an error response.
pub(crate) fn error_response(id: &RequestId, code: i32, message: &str) -> Bytes {
    to_bytes(&json!({ "jsonrpc": "2.0", "id": id, "error": { "code": code, "message": message } }))
}

/// Returns a message on a single line, as streams of lines need it. `None` if it is not JSON.
pub(crate) fn to_line(message: &Bytes) -> Option<Bytes> {
    let message = message.slice_ref(message.trim_ascii());
    match message.iter().any(|byte| matches!(byte, b'\n' | b'\r')) {
        false => Some(message),
        true => Some(to_bytes(&serde_json::from_slice::<Value>(&message).ok()?)),
    }
}

/// Returns a message with another id. `None` if it is not an object.
pub(crate) fn with_id(message: &[u8], id: &RequestId) -> Option<Bytes> {
    let mut members: BTreeMap<String, Box<RawValue>> = serde_json::from_slice(message).ok()?;
    members.insert("id".to_owned(), serde_json::value::to_raw_value(id).ok()?);
    Some(Bytes::from(serde_json::to_vec(&members).ok()?))
}

/// Returns the id of the request that a `$/cancel_request` notification cancels.
pub(crate) fn cancelled_request(message: &Value) -> Option<RequestId> {
    serde_json::from_value(message["params"]["requestId"].clone()).ok()
}

/// Serializes a value.
pub(crate) fn to_bytes(message: &Value) -> Bytes {
    Bytes::from(message.to_string())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_new_id_leaves_the_rest_as_it_was() {
        let message =
            br#"{"jsonrpc":"2.0","id":1,"method":"m","params":{"big":12345678901234567890123,"a":"\u00e9"}}"#;
        let changed = with_id(message, &RequestId::Str("x".into())).unwrap();
        assert_eq!(
            changed,
            r#"{"id":"x","jsonrpc":"2.0","method":"m","params":{"big":12345678901234567890123,"a":"\u00e9"}}"#
        );
        assert_eq!(with_id(b"[]", &RequestId::Number(1)), None);
    }

    #[test]
    fn a_message_of_several_lines_becomes_one() {
        let line = |text: &'static str| to_line(&Bytes::from_static(text.as_bytes()));
        assert_eq!(line(" {\"a\":1.0}\n").unwrap(), "{\"a\":1.0}");
        assert_eq!(line("{\n  \"a\": 1\r\n}").unwrap(), "{\"a\":1}");
        assert_eq!(line("{\n,"), None);
    }
}
