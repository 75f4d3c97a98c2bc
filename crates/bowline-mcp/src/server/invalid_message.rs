//! The answers to unreadable messages: every request is answered, even if it is malformed.

use rmcp::ErrorData;
use rmcp::model::{RequestId, ServerJsonRpcMessage};
use serde_json::{Map, Value};

/// How many bytes at the beginning and at the end of an overlong message are searched for its id.
pub(crate) const ID_SEARCH_BYTES: usize = 512;

/// Returns the answer to an invalid message. Text that is not JSON gets none, because it may not have been a request,
/// and neither do notifications and answers.
pub(crate) fn answer_invalid(bytes: &[u8]) -> Option<ServerJsonRpcMessage> {
    let text = String::from_utf8_lossy(bytes);
    match serde_json::from_str(&replace_lone_surrogates(&text)).ok()? {
        Value::Object(fields) => {
            let id = fields.get("id")?;
            if !fields.contains_key("method")
                && (fields.contains_key("result") || fields.contains_key("error"))
            {
                return None;
            }
            let is_json =
                std::str::from_utf8(bytes).is_ok_and(|text| serde_json::from_str::<Value>(text).is_ok());
            let error = if is_json {
                ErrorData::invalid_request(describe_invalid(&fields), None)
            } else {
                let text = "the message holds text that is no Unicode (half a surrogate pair, or bytes that are no UTF-8): \
                            leave it out";
                ErrorData::parse_error(text, None)
            };
            Some(ServerJsonRpcMessage::error(error, parse_id(id)))
        }
        Value::Array(_) => {
            let error = ErrorData::invalid_request(
                "this is no batch that can be taken: send each message by itself",
                None,
            );
            Some(ServerJsonRpcMessage::error(error, None))
        }
        _ => Some(ServerJsonRpcMessage::error(
            ErrorData::invalid_request("a message is a JSON object", None),
            None,
        )),
    }
}

/// Returns the answer to a request that came before `initialize`.
pub(crate) fn not_initialized_error(method: &str, id: Option<RequestId>) -> ServerJsonRpcMessage {
    let error = if method == "initialize" {
        invalid_params_error(method)
    } else {
        ErrorData::invalid_request("send initialize first", None)
    };
    ServerJsonRpcMessage::error(error, id)
}

/// Returns the answer to a request that reuses the id of a pending one. It carries no id, so that the pending request
/// keeps its single answer.
pub(crate) fn duplicate_id_error(id: &RequestId) -> ServerJsonRpcMessage {
    let id = bowline_text::display::escape_line(&id.to_string(), 100);
    let text = format!("a request with the id {id} is not answered yet: give each its own");
    ServerJsonRpcMessage::error(ErrorData::invalid_request(text, None), None)
}

/// Returns the answer to an overlong message, of which only both ends are known.
pub(crate) fn too_long_error(head: &[u8], tail: &[u8], limit: usize) -> ServerJsonRpcMessage {
    let text = format!("the message is longer than {limit} bytes: send less at once");
    ServerJsonRpcMessage::error(ErrorData::invalid_request(text, None), find_id(head, tail))
}

/// Describes what parameters a known method needs, or says that the method is unknown.
pub(crate) fn invalid_params_error(method: &str) -> ErrorData {
    let required = match method {
        "initialize" => "protocolVersion, capabilities, and clientInfo with name and version",
        "tools/call" => "name, and arguments as an object",
        "resources/read" | "resources/subscribe" | "resources/unsubscribe" => "uri",
        "tools/list" | "resources/list" | "resources/templates/list" | "prompts/list" => "nothing, or cursor",
        "ping" => "nothing",
        _ => {
            let method = bowline_text::display::escape_line(method, 100);
            let text = format!("there is no method {method} here");
            return ErrorData::new(rmcp::model::ErrorCode::METHOD_NOT_FOUND, text, None);
        }
    };
    ErrorData::invalid_params(format!("the parameters of {method} cannot be used: it needs {required}"), None)
}

fn describe_invalid(fields: &Map<String, Value>) -> String {
    let version = fields.get("jsonrpc").and_then(Value::as_str);
    if version != Some("2.0") {
        "`jsonrpc` has to be \"2.0\""
    } else if fields.get("id").is_none_or(|id| parse_id(id).is_none()) {
        "`id` has to be a string or a whole number"
    } else if !fields.get("method").is_some_and(Value::is_string) {
        "`method` has to be a string"
    } else {
        "`params` has to be an object"
    }
    .to_owned()
}

/// Returns a valid request id.
pub(crate) fn parse_id(id: &Value) -> Option<RequestId> {
    match id {
        Value::String(text) => Some(RequestId::String(text.as_str().into())),
        Value::Number(number) => number.as_i64().map(RequestId::Number),
        _ => None,
    }
}

/// Replaces every escaped surrogate by the replacement character.
fn replace_lone_surrogates(text: &str) -> String {
    let mut repaired = String::with_capacity(text.len());
    let mut rest = text;
    while let Some(at) = rest.find('\\') {
        let (before, escape) = rest.split_at(at);
        repaired.push_str(before);
        let is_surrogate = escape.get(..6).is_some_and(|escape| {
            let hex = escape.strip_prefix("\\u").and_then(|hex| u16::from_str_radix(hex, 16).ok());
            hex.is_some_and(|unit| (0xd800..0xe000).contains(&unit))
        });
        let length = if is_surrogate { 6 } else { 1 + escape[1..].chars().next().map_or(0, char::len_utf8) };
        repaired.push_str(if is_surrogate { "\\ufffd" } else { &escape[..length] });
        rest = &escape[length..];
    }
    repaired + rest
}

/// Finds the id where clients put it: before the parameters, or as the last field.
fn find_id(head: &[u8], tail: &[u8]) -> Option<RequestId> {
    let key = "\"id\":";
    let tail = String::from_utf8_lossy(tail);
    let last = tail.rfind(key).and_then(|at| tail[at + key.len()..].trim_end().strip_suffix('}'));
    let last = last.and_then(|value| serde_json::from_str(value).ok()).and_then(|value| parse_id(&value));
    last.or_else(|| {
        let head = String::from_utf8_lossy(head);
        let first = head.split("\"params\"").next()?;
        let value = first.get(first.find(key)? + key.len()..)?;
        let value = serde_json::Deserializer::from_str(value).into_iter().next()?.ok()?;
        parse_id(&value)
    })
}

#[cfg(test)]
mod tests;
