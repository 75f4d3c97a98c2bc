//! The raw id of a message: reading it, and putting another in its place.

use agent_client_protocol_schema::v1::RequestId;

/// Parses a raw id; returns `None` if it is neither a string nor a 64-bit integer.
#[must_use]
pub fn parse_id(raw: &[u8]) -> Option<RequestId> {
    if let [first, rest @ ..] = raw
        && first.is_ascii_digit()
        && rest.len() < 18
        && rest.iter().all(u8::is_ascii_digit)
        && (*first != b'0' || rest.is_empty())
    {
        let number = raw.iter().fold(0, |number, digit| number * 10 + i64::from(digit - b'0'));
        return Some(RequestId::Number(number));
    }
    if raw.starts_with(b"\"") {
        // The type itself tries to read a number first, and composes an error about that.
        return serde_json::from_slice(raw).map(RequestId::Str).ok();
    }
    match serde_json::from_slice(raw).ok()? {
        RequestId::Null => None,
        id => Some(id),
    }
}

/// Returns the message with another id in place of a part of it, its raw id.
#[must_use]
pub fn replace_id(message: &[u8], raw: &[u8], id: &str) -> Vec<u8> {
    let start = (raw.as_ptr() as usize).saturating_sub(message.as_ptr() as usize).min(message.len());
    let end = (start + raw.len()).min(message.len());
    [&message[..start], id.as_bytes(), &message[end..]].concat()
}
