//! A JSON-RPC message: its kind, and its unparsed parts.
//!
//! Params and results stay unparsed, so a message whose params are wrong, too deep or not valid UTF-8 still has an id
//! that can be answered. `split_unchecked` splits a message in the usual form by its first bytes. The caller then
//! parses the body into its typed value; if that reaches the end of the line, the split was right, and otherwise the
//! message is read again with checks. On the unchecked path an optional field with broken JSON inside counts as
//! missing.

use std::borrow::Cow;
use std::fmt;

use agent_client_protocol_schema::v1::RequestId;
use serde::Deserialize;
use serde::de::{Deserializer, IgnoredAny, MapAccess, Visitor};
use serde_json::value::RawValue;

use crate::limits::MAX_ID;

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

/// The top level of a message. Members with other names are skipped.
#[derive(Default)]
struct EnvelopeParts<'a> {
    version: Option<StringMember<'a>>,
    id: Option<IdMember>,
    method: Option<StringMember<'a>>,
    params: Option<&'a RawValue>,
    result: Option<&'a RawValue>,
    error: Option<&'a RawValue>,
}

impl<'a> EnvelopeParts<'a> {
    fn into_message(self) -> Result<RpcMessage<'a>, MalformedMessage> {
        let version = matches!(&self.version, Some(StringMember::Str(version)) if version == "2.0");
        let id = match self.id {
            None => None,
            Some(IdMember::Valid(id)) => Some(id),
            Some(IdMember::Invalid) => return Err(MalformedMessage::InvalidId),
        };
        match (self.method, id, self.result, self.error) {
            (Some(_), ..) if !version => Err(MalformedMessage::WrongVersion),
            (Some(StringMember::Other), ..) => Err(MalformedMessage::InvalidMethod),
            (Some(StringMember::Str(_)), Some(RequestId::Null), None, None) => {
                Err(MalformedMessage::InvalidId)
            }
            (Some(StringMember::Str(method)), Some(id), None, None) => {
                Ok(RpcMessage::Request { id, method, params: self.params })
            }
            (Some(StringMember::Str(method)), None, None, None) => {
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

impl<'de: 'a, 'a> Deserialize<'de> for EnvelopeParts<'a> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct EnvelopeVisitor;

        impl<'de> Visitor<'de> for EnvelopeVisitor {
            type Value = EnvelopeParts<'de>;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a message")
            }

            fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<EnvelopeParts<'de>, A::Error> {
                let mut parts = EnvelopeParts::default();
                while let Some(key) = map.next_key::<EnvelopeKey>()? {
                    let is_duplicate = match key {
                        EnvelopeKey::Version => parts.version.replace(map.next_value()?).is_some(),
                        EnvelopeKey::Id => parts.id.replace(map.next_value()?).is_some(),
                        EnvelopeKey::Method => parts.method.replace(map.next_value()?).is_some(),
                        EnvelopeKey::Params => parts.params.replace(map.next_value()?).is_some(),
                        EnvelopeKey::Result => parts.result.replace(map.next_value()?).is_some(),
                        EnvelopeKey::Error => parts.error.replace(map.next_value()?).is_some(),
                        EnvelopeKey::Other => {
                            map.next_value::<IgnoredAny>()?;
                            false
                        }
                    };
                    if is_duplicate {
                        return Err(serde::de::Error::custom("a member comes twice"));
                    }
                }
                Ok(parts)
            }
        }

        deserializer.deserialize_map(EnvelopeVisitor)
    }
}

#[derive(Deserialize)]
#[serde(field_identifier)]
enum EnvelopeKey {
    #[serde(rename = "jsonrpc")]
    Version,
    #[serde(rename = "id")]
    Id,
    #[serde(rename = "method")]
    Method,
    #[serde(rename = "params")]
    Params,
    #[serde(rename = "result")]
    Result,
    #[serde(rename = "error")]
    Error,
    #[serde(other)]
    Other,
}

/// A member that should be a string.
enum StringMember<'a> {
    Str(Cow<'a, str>),
    Other,
}

/// A member that should be an id.
enum IdMember {
    Valid(RequestId),
    Invalid,
}

/// Parses any JSON value, keeping only strings and integers.
enum ScalarMember<'a> {
    Null,
    Integer(i64),
    Str(Cow<'a, str>),
    Other,
}

impl<'de: 'a, 'a> Deserialize<'de> for StringMember<'a> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        Ok(match ScalarMember::deserialize(deserializer)? {
            ScalarMember::Str(text) => StringMember::Str(text),
            ScalarMember::Null | ScalarMember::Integer(_) | ScalarMember::Other => StringMember::Other,
        })
    }
}

impl<'de> Deserialize<'de> for IdMember {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        Ok(match ScalarMember::deserialize(deserializer)? {
            ScalarMember::Null => IdMember::Valid(RequestId::Null),
            ScalarMember::Integer(number) => IdMember::Valid(RequestId::Number(number)),
            ScalarMember::Str(text) if text.len() <= MAX_ID => {
                IdMember::Valid(RequestId::Str(text.into_owned()))
            }
            ScalarMember::Str(_) | ScalarMember::Other => IdMember::Invalid,
        })
    }
}

impl<'de: 'a, 'a> Deserialize<'de> for ScalarMember<'a> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct ScalarVisitor;

        impl<'de> Visitor<'de> for ScalarVisitor {
            type Value = ScalarMember<'de>;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a value")
            }

            fn visit_unit<E>(self) -> Result<Self::Value, E> {
                Ok(ScalarMember::Null)
            }

            fn visit_bool<E>(self, _: bool) -> Result<Self::Value, E> {
                Ok(ScalarMember::Other)
            }

            fn visit_i64<E>(self, number: i64) -> Result<Self::Value, E> {
                Ok(ScalarMember::Integer(number))
            }

            fn visit_u64<E>(self, number: u64) -> Result<Self::Value, E> {
                Ok(i64::try_from(number).map_or(ScalarMember::Other, ScalarMember::Integer))
            }

            fn visit_f64<E>(self, _: f64) -> Result<Self::Value, E> {
                Ok(ScalarMember::Other)
            }

            fn visit_borrowed_str<E>(self, text: &'de str) -> Result<Self::Value, E> {
                Ok(ScalarMember::Str(Cow::Borrowed(text)))
            }

            fn visit_str<E>(self, text: &str) -> Result<Self::Value, E> {
                Ok(ScalarMember::Str(Cow::Owned(text.to_owned())))
            }

            fn visit_seq<A: serde::de::SeqAccess<'de>>(self, mut seq: A) -> Result<Self::Value, A::Error> {
                while seq.next_element::<IgnoredAny>()?.is_some() {}
                Ok(ScalarMember::Other)
            }

            fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Self::Value, A::Error> {
                while map.next_entry::<IgnoredAny, IgnoredAny>()?.is_some() {}
                Ok(ScalarMember::Other)
            }
        }

        deserializer.deserialize_any(ScalarVisitor)
    }
}

#[cfg(test)]
mod tests;
