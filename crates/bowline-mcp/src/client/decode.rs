//! Decoding of one message from a server, salvaging what it can of a malformed one.

use rmcp::model::{ErrorData, RequestId, ServerJsonRpcMessage};
use serde_json::Value;

use super::nesting;

/// A decoded line of a server.
#[derive(Debug)]
pub(super) enum DecodedLine {
    /// A message.
    Message(Box<ServerJsonRpcMessage>),
    /// An unreadable answer to this request.
    UnreadableAnswer(RequestId),
    /// Anything else: some servers print to the wrong stream.
    Noise,
}

/// Decodes one line.
pub(super) fn decode(line: &[u8]) -> DecodedLine {
    if let Ok(message) = serde_json::from_slice(line) {
        return DecodedLine::Message(Box::new(message));
    }
    let line = nesting::cut_deep_values(line);
    let Ok(Value::Object(object)) = serde_json::from_slice(&line) else { return DecodedLine::Noise };
    // A list of tools is evaluated tool by tool. Any other answer would change its meaning without the parts that were
    // cut.
    if object.get("result").is_some_and(|result| result.get("tools").is_some())
        && let Ok(message) = serde_json::from_slice(&line)
    {
        return DecodedLine::Message(Box::new(message));
    }
    let answers = object.contains_key("result") || object.contains_key("error");
    match object.get("id") {
        Some(Value::Number(id)) if answers => {
            id.as_i64().map_or(DecodedLine::Noise, |id| DecodedLine::UnreadableAnswer(RequestId::Number(id)))
        }
        Some(Value::String(id)) if answers => {
            DecodedLine::UnreadableAnswer(RequestId::String(id.as_str().into()))
        }
        _ => DecodedLine::Noise,
    }
}

/// Returns an error answer in place of an unusable one.
pub(super) fn error_answer(id: RequestId, reason: String) -> ServerJsonRpcMessage {
    ServerJsonRpcMessage::error(ErrorData::internal_error(reason, None), Some(id))
}

#[cfg(test)]
mod tests;
