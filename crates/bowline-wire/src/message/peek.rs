//! A peek at a line without parsing it: the kind of message, and the position of its id and method.
//!
//! It is for programs that forward messages. Params and results are skipped, and only if the id or the method comes
//! after them. The rest of the line is not validated.

use std::borrow::Cow;

pub use bowline_protocol::message_id::{parse_id, replace_id};

use crate::message::salvage::JsonCursor;

/// The apparent kind of a line.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum PeekedMessage<'a> {
    /// A request, with its raw id.
    Request {
        /// The id, as JSON.
        id: &'a [u8],
        /// The method.
        method: Cow<'a, str>,
    },
    /// A notification.
    Notification {
        /// The method.
        method: Cow<'a, str>,
    },
    /// An answer, with its raw id.
    Response {
        /// The id, as JSON.
        id: &'a [u8],
        /// Whether it is an error.
        is_error: bool,
    },
    /// Anything else: a batch, a blank line, invalid JSON.
    Other,
}

/// Peeks at a line. Of a truncated line, the part before the cut counts.
#[must_use]
pub fn peek(line: &[u8]) -> PeekedMessage<'_> {
    let mut text = JsonCursor::new(line.strip_prefix(b"\xEF\xBB\xBF").unwrap_or(line));
    peek_object(&mut text).unwrap_or(PeekedMessage::Other)
}

fn peek_object<'a>(text: &mut JsonCursor<'a>) -> Option<PeekedMessage<'a>> {
    text.take_byte(b'{')?;
    let (mut id, mut method, mut outcome) = (None, None, None);
    while let Some(key) = text.take_string() {
        text.take_byte(b':')?;
        match key {
            b"id" => id = Some(text.take_value()?).filter(|id| *id != b"null"),
            b"method" => match text.take_value()? {
                b"null" => {}
                raw => method = Some(unescape(raw)?),
            },
            b"result" | b"error" => {
                let is_error = key == b"error";
                if let Some(id) = id
                    && method.is_none()
                {
                    // Some peers send `"result": null` beside an error; an error after it is not looked for.
                    return Some(PeekedMessage::Response { id, is_error });
                }
                outcome = Some(is_error);
                text.take_value()?;
            }
            _ => drop(text.take_value()?),
        }
        if let (Some(id), Some(method)) = (id, &method) {
            return Some(PeekedMessage::Request { id, method: method.clone() });
        }
        if let (Some(id), Some(is_error)) = (id, outcome) {
            return Some(PeekedMessage::Response { id, is_error });
        }
        if text.take_byte(b',').is_none() {
            break;
        }
    }
    text.take_byte(b'}')?;
    Some(PeekedMessage::Notification { method: method? })
}

/// Unescapes a raw string; returns `None` if it is not valid text.
pub(crate) fn unescape(raw: &[u8]) -> Option<Cow<'_, str>> {
    let inner = raw.strip_prefix(b"\"")?.strip_suffix(b"\"")?;
    if inner.contains(&b'\\') {
        return serde_json::from_slice(raw).ok().map(Cow::Owned);
    }
    str::from_utf8(inner).ok().map(Cow::Borrowed)
}

#[cfg(test)]
mod tests;
