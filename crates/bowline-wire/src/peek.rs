//! A look at a line without reading it: what kind of message it is, and where its id and its method stand.
//!
//! For whoever passes messages on. Params and results are stepped over, and only where the id or the method stands behind
//! them. Nothing is said of whether the rest of the line makes sense.

use std::borrow::Cow;

use agent_client_protocol_schema::v1::RequestId;

use crate::salvage::Cursor;

/// What a line seems to be.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Peek<'a> {
    /// A request, with its id as it stands in the line.
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
    /// An answer, with its id as it stands in the line.
    Answer {
        /// The id, as JSON.
        id: &'a [u8],
        /// Whether it is an error.
        is_error: bool,
    },
    /// Something else: a batch, a blank line, what is no JSON.
    Other,
}

/// Looks at a line. Of one that is cut off, what stands before the cut counts.
#[must_use]
pub fn peek(line: &[u8]) -> Peek<'_> {
    let mut text = Cursor::new(line.strip_prefix(b"\xEF\xBB\xBF").unwrap_or(line));
    look(&mut text).unwrap_or(Peek::Other)
}

/// Reads an id as it stands in a line; none if it is neither a string nor an integer of 64 bits.
#[must_use]
pub fn id(raw: &[u8]) -> Option<RequestId> {
    if let [first, rest @ ..] = raw
        && first.is_ascii_digit()
        && rest.len() < 18
        && rest.iter().all(u8::is_ascii_digit)
        && (*first != b'0' || rest.is_empty())
    {
        let number = raw.iter().fold(0, |number, digit| number * 10 + i64::from(digit - b'0'));
        return Some(RequestId::Number(number));
    }
    match serde_json::from_slice(raw).ok()? {
        RequestId::Null => None,
        id => Some(id),
    }
}

/// Returns the line with another id in place of the one that [`peek`] found in it.
#[must_use]
pub fn with_id(line: &[u8], found: &[u8], id: &str) -> Vec<u8> {
    let start = (found.as_ptr() as usize).saturating_sub(line.as_ptr() as usize).min(line.len());
    let end = (start + found.len()).min(line.len());
    [&line[..start], id.as_bytes(), &line[end..]].concat()
}

fn look<'a>(text: &mut Cursor<'a>) -> Option<Peek<'a>> {
    text.take(b'{')?;
    let (mut id, mut method, mut outcome) = (None, None, None);
    while let Some(key) = text.string() {
        text.take(b':')?;
        match key {
            b"id" => id = Some(text.value()?).filter(|id| *id != b"null"),
            b"method" => match text.value()? {
                b"null" => {}
                raw => method = Some(unescaped(raw)?),
            },
            b"result" | b"error" => {
                let is_error = key == b"error";
                if let Some(id) = id
                    && method.is_none()
                {
                    // Some peers send `"result": null` beside the error that they mean: what is behind it is not looked for.
                    return Some(Peek::Answer { id, is_error });
                }
                outcome = Some(is_error);
                text.value()?;
            }
            _ => drop(text.value()?),
        }
        if let (Some(id), Some(method)) = (id, &method) {
            return Some(Peek::Request { id, method: method.clone() });
        }
        if let (Some(id), Some(is_error)) = (id, outcome) {
            return Some(Peek::Answer { id, is_error });
        }
        if text.take(b',').is_none() {
            break;
        }
    }
    text.take(b'}')?;
    Some(Peek::Notification { method: method? })
}

/// Returns a string as text, from how it stands in a line; none if it is no text.
pub(crate) fn unescaped(raw: &[u8]) -> Option<Cow<'_, str>> {
    let inner = raw.strip_prefix(b"\"")?.strip_suffix(b"\"")?;
    if inner.contains(&b'\\') {
        return serde_json::from_slice(raw).ok().map(Cow::Owned);
    }
    str::from_utf8(inner).ok().map(Cow::Borrowed)
}

#[cfg(test)]
mod tests;
