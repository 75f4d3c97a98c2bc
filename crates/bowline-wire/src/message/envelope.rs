//! A JSON-RPC message: its kind, and its unparsed parts.
//!
//! Params and results stay unparsed, so a message whose params are wrong, too deep or not valid UTF-8 still has an id
//! that can be answered. `split_unchecked` splits a message in the usual form by its first bytes. The caller then
//! parses the body into its typed value; if that reaches the end of the line, the split was right, and otherwise the
//! message is read again with checks. On the unchecked path an optional field with broken JSON inside counts as
//! missing.

use std::borrow::Cow;

use agent_client_protocol_schema::v1::RequestId;
use serde::Deserialize;
use serde::de::{Deserializer, IgnoredAny};
use serde_json::value::RawValue;

use crate::limits::MAX_ID;
use crate::message::peek::unescape;

/// A message of the other side, by its kind.
#[derive(Debug)]
pub(crate) enum RpcMessage<'a> {
    Request { id: RequestId, method: Cow<'a, str>, params: Option<&'a RawValue> },
    Notification { method: Cow<'a, str>, params: Option<&'a RawValue> },
    Response { id: RequestId, outcome: Result<&'a RawValue, &'a RawValue> },
}

/// Why a text is not a message.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum MalformedMessage {
    /// The bytes are not UTF-8.
    #[error("the message is not valid UTF-8")]
    NotUtf8,
    /// The text is not JSON, or a member of the envelope occurs twice.
    #[error("the message is not valid JSON")]
    NotJson,
    /// The text is JSON, but neither an object nor an array.
    #[error("a message is a JSON object")]
    NotAnObject,
    /// `jsonrpc` is missing or has another version.
    #[error("\"jsonrpc\" must be \"2.0\"")]
    WrongVersion,
    /// The id is neither a string nor a 64-bit integer, or is too long.
    #[error("an id is a string of at most {MAX_ID} bytes or an integer")]
    InvalidId,
    /// `method` is not a string.
    #[error("\"method\" must be a string")]
    InvalidMethod,
    /// Neither a request, nor a notification, nor a response.
    #[error("a message has a \"method\", or an \"id\" with either a \"result\" or an \"error\"")]
    InvalidShape,
    /// A batch without messages.
    #[error("a batch must not be empty")]
    EmptyBatch,
    /// A batch with too many messages.
    #[error("a batch of {count} messages is over the limit of {limit}")]
    BatchTooLarge {
        /// The number of messages.
        count: usize,
        /// The maximum number.
        limit: usize,
    },
    /// A message that is too long.
    #[error("a message of {length} bytes is over the limit of {limit} bytes")]
    TooLong {
        /// Its length, in bytes.
        length: u64,
        /// The maximum length.
        limit: usize,
    },
}

/// Parses one message.
pub(crate) fn parse(text: &str) -> Result<RpcMessage<'_>, MalformedMessage> {
    if !text.starts_with('{') {
        let other = serde_json::from_str::<IgnoredAny>(text);
        return Err(if other.is_ok() { MalformedMessage::NotAnObject } else { MalformedMessage::NotJson });
    }
    let parts: EnvelopeParts<'_> = serde_json::from_str(text).map_err(|_| MalformedMessage::NotJson)?;
    parts.into_message()
}

/// Splits a batch into its messages, each still as text.
pub(crate) fn parse_batch(text: &str, limit: usize) -> Result<Vec<&RawValue>, MalformedMessage> {
    // Counting takes no memory, while slots for everything that a long line can hold would take many times its
    // length.
    let elements: Vec<IgnoredAny> = serde_json::from_str(text).map_err(|_| MalformedMessage::NotJson)?;
    match elements.len() {
        0 => Err(MalformedMessage::EmptyBatch),
        count if count > limit => Err(MalformedMessage::BatchTooLarge { count, limit }),
        _ => serde_json::from_str(text).map_err(|_| MalformedMessage::NotJson),
    }
}

/// A message in the form that almost every peer writes, split without being parsed. Only parsing the whole body
/// proves that nothing follows it. Parts that a type skips on purpose (the schema treats an invalid optional field as
/// missing) are then not known to be JSON.
#[derive(Debug)]
pub(crate) struct UncheckedMessage<'a> {
    pub(crate) head: MessageHead<'a>,
    pub(crate) body: &'a str,
}

/// The kind of an unchecked message.
#[derive(Debug)]
pub(crate) enum MessageHead<'a> {
    Request { id: RequestId, method: &'a str },
    Notification { method: &'a str },
    Result { id: i64 },
}

/// Splits a message in the usual form. Parsing a whole message costs a pass over it; this costs next to nothing.
pub(crate) fn split_unchecked(text: &str) -> Option<UncheckedMessage<'_>> {
    let rest = text.strip_prefix(r#"{"jsonrpc":"2.0","#)?.strip_suffix('}')?;
    if let Some(rest) = rest.strip_prefix(r#""method":""#) {
        let (method, body) = split_method(rest)?;
        return Some(UncheckedMessage { head: MessageHead::Notification { method }, body });
    }
    let rest = rest.strip_prefix(r#""id":"#)?;
    let (id, rest) = split_id(rest)?;
    if let Some(rest) = rest.strip_prefix(r#","method":""#) {
        let (method, body) = split_method(rest)?;
        return Some(UncheckedMessage { head: MessageHead::Request { id, method }, body });
    }
    let RequestId::Number(id) = id else { return None };
    Some(UncheckedMessage { head: MessageHead::Result { id }, body: rest.strip_prefix(r#","result":"#)? })
}

fn split_method(rest: &str) -> Option<(&str, &str)> {
    let (method, rest) = split_plain_string(rest)?;
    Some((method, rest.strip_prefix(r#","params":"#)?))
}

fn split_id(rest: &str) -> Option<(RequestId, &str)> {
    if let Some(rest) = rest.strip_prefix('"') {
        let (id, rest) = split_plain_string(rest)?;
        return (id.len() <= MAX_ID).then(|| (RequestId::Str(id.to_owned()), rest));
    }
    let end = rest.bytes().position(|byte| !byte.is_ascii_digit())?;
    let (digits, rest) = rest.split_at(end);
    if digits.len() > 1 && digits.starts_with('0') {
        return None;
    }
    Some((RequestId::Number(digits.parse().ok()?), rest))
}

/// Splits after a string without escapes.
fn split_plain_string(rest: &str) -> Option<(&str, &str)> {
    let end = rest.bytes().position(|byte| byte == b'"' || byte == b'\\' || byte < b' ')?;
    let (string, rest) = rest.split_at(end);
    Some((string, rest.strip_prefix('"')?))
}

/// The top level of a message. A member that is `null` is present.
#[derive(Deserialize)]
struct EnvelopeParts<'a> {
    #[serde(borrow, default, deserialize_with = "deserialize_present")]
    jsonrpc: Option<&'a RawValue>,
    #[serde(borrow, default, deserialize_with = "deserialize_present")]
    id: Option<&'a RawValue>,
    #[serde(borrow, default, deserialize_with = "deserialize_present")]
    method: Option<&'a RawValue>,
    #[serde(borrow, default, deserialize_with = "deserialize_present")]
    params: Option<&'a RawValue>,
    #[serde(borrow, default, deserialize_with = "deserialize_present")]
    result: Option<&'a RawValue>,
    #[serde(borrow, default, deserialize_with = "deserialize_present")]
    error: Option<&'a RawValue>,
}

fn deserialize_present<'de: 'a, 'a, D: Deserializer<'de>>(
    deserializer: D,
) -> Result<Option<&'a RawValue>, D::Error> {
    Deserialize::deserialize(deserializer).map(Some)
}

impl<'a> EnvelopeParts<'a> {
    fn into_message(self) -> Result<RpcMessage<'a>, MalformedMessage> {
        let version = self.jsonrpc.map(parse_string).transpose()?.flatten().is_some_and(|text| text == "2.0");
        let method = self.method.map(parse_string).transpose()?;
        let id = self.id.map(parse_id).transpose()?;
        match (method, id, self.result, self.error) {
            (Some(_), ..) if !version => Err(MalformedMessage::WrongVersion),
            (Some(None), ..) => Err(MalformedMessage::InvalidMethod),
            (Some(Some(_)), Some(RequestId::Null), None, None) => Err(MalformedMessage::InvalidId),
            (Some(Some(method)), Some(id), None, None) => {
                Ok(RpcMessage::Request { id, method, params: self.params })
            }
            (Some(Some(method)), None, None, None) => {
                Ok(RpcMessage::Notification { method, params: self.params })
            }
            (None, Some(id), Some(result), None) => Ok(RpcMessage::Response { id, outcome: Ok(result) }),
            (None, Some(id), None, Some(error)) => Ok(RpcMessage::Response { id, outcome: Err(error) }),
            // JavaScript omits an undefined result.
            (None, Some(id), None, None) if version => {
                Ok(RpcMessage::Response { id, outcome: Ok(RawValue::NULL) })
            }
            // Some peers send `"result": null` beside an error.
            (None, Some(id), Some(result), Some(error)) if result.get() == "null" => {
                Ok(RpcMessage::Response { id, outcome: Err(error) })
            }
            (None, None, None, None) if !version => Err(MalformedMessage::WrongVersion),
            _ => Err(MalformedMessage::InvalidShape),
        }
    }
}

/// Parses a member that should be a string; returns `None` for any other value.
fn parse_string(raw: &RawValue) -> Result<Option<Cow<'_, str>>, MalformedMessage> {
    let value = match raw.get().as_bytes() {
        text @ [b'"', ..] => unescape(text).map(Some),
        [b'[' | b'{', ..] => Some(None),
        // A number may be out of range.
        text => serde_json::from_slice::<serde_json::Value>(text).ok().map(|_| None),
    };
    value.ok_or(MalformedMessage::NotJson)
}

fn parse_id(raw: &RawValue) -> Result<RequestId, MalformedMessage> {
    match parse_string(raw)? {
        Some(text) if text.len() <= MAX_ID => Ok(RequestId::Str(text.into_owned())),
        None if raw.get() == "null" => Ok(RequestId::Null),
        Some(_) => Err(MalformedMessage::InvalidId),
        None => serde_json::from_str(raw.get()).map(RequestId::Number).or(Err(MalformedMessage::InvalidId)),
    }
}

#[cfg(test)]
mod tests;
