//! One message of a server: read, or as much of it as there is to be had.

use rmcp::model::{ErrorData, RequestId, ServerJsonRpcMessage};
use serde_json::Value;

use super::nesting;

/// What a line of a server is.
#[derive(Debug)]
pub(super) enum Decoded {
    /// A message.
    Message(Box<ServerJsonRpcMessage>),
    /// An answer that cannot be read, to this request.
    Broken(RequestId),
    /// Something else: servers print to the wrong place.
    Noise,
}

/// Reads a message.
pub(super) fn decode(line: &[u8]) -> Decoded {
    if let Ok(message) = serde_json::from_slice(line) {
        return Decoded::Message(Box::new(message));
    }
    let line = nesting::cut(line);
    let Ok(Value::Object(object)) = serde_json::from_slice(&line) else { return Decoded::Noise };
    // A list of tools is told apart tool by tool. Any other answer would say something else without what was cut.
    if object.get("result").is_some_and(|result| result.get("tools").is_some())
        && let Ok(message) = serde_json::from_slice(&line)
    {
        return Decoded::Message(Box::new(message));
    }
    let answers = object.contains_key("result") || object.contains_key("error");
    match object.get("id") {
        Some(Value::Number(id)) if answers => {
            id.as_i64().map_or(Decoded::Noise, |id| Decoded::Broken(RequestId::Number(id)))
        }
        Some(Value::String(id)) if answers => Decoded::Broken(RequestId::String(id.as_str().into())),
        _ => Decoded::Noise,
    }
}

/// Returns an answer in place of one that cannot be used.
pub(super) fn instead(id: RequestId, why: String) -> ServerJsonRpcMessage {
    ServerJsonRpcMessage::error(ErrorData::internal_error(why, None), Some(id))
}

#[cfg(test)]
mod tests;
