//! One JSON-RPC message: what kind it is, and the parts of it as they stand in the text.
//!
//! Params and results stay unparsed here. So a message whose params are wrong, too deep or not even valid in their
//! strings still has an id that can be answered.

use std::borrow::Cow;
use std::fmt;

use agent_client_protocol_schema::v1::RequestId;
use serde::Deserialize;
use serde::de::{Deserializer, IgnoredAny, MapAccess, Visitor};
use serde_json::value::RawValue;

use crate::limits::MAX_ID;

/// A message of the other side, by what it asks of us.
#[derive(Debug)]
pub(crate) enum Message<'a> {
    Request { id: RequestId, method: Cow<'a, str>, params: Option<&'a RawValue> },
    Notification { method: Cow<'a, str>, params: Option<&'a RawValue> },
    Response { id: RequestId, outcome: Result<&'a RawValue, &'a RawValue> },
}

/// Why a text is not a message.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum Malformed {
    /// The bytes are not UTF-8.
    #[error("the message is not valid UTF-8")]
    NotUtf8,
    /// The text is not JSON, or a part of the envelope comes twice.
    #[error("the message is not valid JSON")]
    NotJson,
    /// The text is JSON, but neither an object nor an array.
    #[error("a message is a JSON object")]
    NotAnObject,
    /// `jsonrpc` is missing or another version.
    #[error("\"jsonrpc\" must be \"2.0\"")]
    Version,
    /// The id is neither a string nor an integer of 64 bits, or too long.
    #[error("an id is a string of at most {MAX_ID} bytes or an integer")]
    Id,
    /// `method` is not a string.
    #[error("\"method\" must be a string")]
    Method,
    /// Neither a request, nor a notification, nor a response.
    #[error("a message has a \"method\", or an \"id\" with either a \"result\" or an \"error\"")]
    Shape,
    /// A batch without messages.
    #[error("a batch must not be empty")]
    EmptyBatch,
    /// A batch with too many messages.
    #[error("a batch of {count} messages is over the limit of {limit}")]
    LargeBatch {
        /// How many messages it has.
        count: usize,
        /// How many it may have.
        limit: usize,
    },
    /// A message that is too long.
    #[error("a message of {length} bytes is over the limit of {limit} bytes")]
    TooLong {
        /// How long it is, in bytes.
        length: u64,
        /// How long it may be.
        limit: usize,
    },
}

/// Reads one message.
pub(crate) fn parse(text: &str) -> Result<Message<'_>, Malformed> {
    if !text.starts_with('{') {
        let other = serde_json::from_str::<IgnoredAny>(text);
        return Err(if other.is_ok() { Malformed::NotAnObject } else { Malformed::NotJson });
    }
    let parts: Parts<'_> = serde_json::from_str(text).map_err(|_| Malformed::NotJson)?;
    parts.message()
}

/// Reads the messages of a batch, each still as text.
pub(crate) fn parse_batch(text: &str, limit: usize) -> Result<Vec<&RawValue>, Malformed> {
    // Counting takes no memory, while places for all that a long line can hold would take many times its length.
    let counted: Vec<IgnoredAny> = serde_json::from_str(text).map_err(|_| Malformed::NotJson)?;
    match counted.len() {
        0 => Err(Malformed::EmptyBatch),
        count if count > limit => Err(Malformed::LargeBatch { count, limit }),
        _ => serde_json::from_str(text).map_err(|_| Malformed::NotJson),
    }
}

/// A message in the form that almost every peer writes, split without being read. That nothing follows `body` is not
/// known; it is once the body could be read as a whole. What a type passes over on purpose (the schema counts a field
/// that cannot be read as missing) is then not known to be JSON.
#[derive(Debug)]
pub(crate) struct Guess<'a> {
    pub(crate) head: Head<'a>,
    pub(crate) body: &'a str,
}

/// What a guessed message is.
#[derive(Debug)]
pub(crate) enum Head<'a> {
    Request { id: RequestId, method: &'a str },
    Notification { method: &'a str },
    Result { id: i64 },
}

/// Splits a message in the usual form. Reading a message whole costs a pass over it; this costs next to nothing.
pub(crate) fn guess(text: &str) -> Option<Guess<'_>> {
    let rest = text.strip_prefix(r#"{"jsonrpc":"2.0","#)?.strip_suffix('}')?;
    if let Some(rest) = rest.strip_prefix(r#""method":""#) {
        let (method, body) = split_method(rest)?;
        return Some(Guess { head: Head::Notification { method }, body });
    }
    let rest = rest.strip_prefix(r#""id":"#)?;
    let (id, rest) = split_id(rest)?;
    if let Some(rest) = rest.strip_prefix(r#","method":""#) {
        let (method, body) = split_method(rest)?;
        return Some(Guess { head: Head::Request { id, method }, body });
    }
    let RequestId::Number(id) = id else { return None };
    Some(Guess { head: Head::Result { id }, body: rest.strip_prefix(r#","result":"#)? })
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

/// Splits behind a string that has nothing to unescape.
fn split_plain_string(rest: &str) -> Option<(&str, &str)> {
    let end = rest.bytes().position(|byte| byte == b'"' || byte == b'\\' || byte < b' ')?;
    let (string, rest) = rest.split_at(end);
    Some((string, rest.strip_prefix('"')?))
}

/// The top level of a message. Members with other names are passed over.
#[derive(Default)]
struct Parts<'a> {
    version: Option<Text<'a>>,
    id: Option<Id>,
    method: Option<Text<'a>>,
    params: Option<&'a RawValue>,
    result: Option<&'a RawValue>,
    error: Option<&'a RawValue>,
}

impl<'a> Parts<'a> {
    fn message(self) -> Result<Message<'a>, Malformed> {
        let version = matches!(&self.version, Some(Text::Str(version)) if version == "2.0");
        let id = match self.id {
            None => None,
            Some(Id::Good(id)) => Some(id),
            Some(Id::Bad) => return Err(Malformed::Id),
        };
        match (self.method, id, self.result, self.error) {
            (Some(_), ..) if !version => Err(Malformed::Version),
            (Some(Text::Other), ..) => Err(Malformed::Method),
            (Some(Text::Str(_)), Some(RequestId::Null), None, None) => Err(Malformed::Id),
            (Some(Text::Str(method)), Some(id), None, None) => {
                Ok(Message::Request { id, method, params: self.params })
            }
            (Some(Text::Str(method)), None, None, None) => {
                Ok(Message::Notification { method, params: self.params })
            }
            (None, Some(id), Some(result), None) => Ok(Message::Response { id, outcome: Ok(result) }),
            (None, Some(id), None, Some(error)) => Ok(Message::Response { id, outcome: Err(error) }),
            // In JavaScript an undefined result is left out.
            (None, Some(id), None, None) if version => {
                Ok(Message::Response { id, outcome: Ok(RawValue::NULL) })
            }
            // Some peers send `"result": null` beside the error that they mean.
            (None, Some(id), Some(result), Some(error)) if result.get() == "null" => {
                Ok(Message::Response { id, outcome: Err(error) })
            }
            (None, None, None, None) if !version => Err(Malformed::Version),
            _ => Err(Malformed::Shape),
        }
    }
}

impl<'de: 'a, 'a> Deserialize<'de> for Parts<'a> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct PartsVisitor;

        impl<'de> Visitor<'de> for PartsVisitor {
            type Value = Parts<'de>;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a message")
            }

            fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Parts<'de>, A::Error> {
                let mut parts = Parts::default();
                while let Some(key) = map.next_key::<Key>()? {
                    let twice = match key {
                        Key::Version => parts.version.replace(map.next_value()?).is_some(),
                        Key::Id => parts.id.replace(map.next_value()?).is_some(),
                        Key::Method => parts.method.replace(map.next_value()?).is_some(),
                        Key::Params => parts.params.replace(map.next_value()?).is_some(),
                        Key::Result => parts.result.replace(map.next_value()?).is_some(),
                        Key::Error => parts.error.replace(map.next_value()?).is_some(),
                        Key::Other => {
                            map.next_value::<IgnoredAny>()?;
                            false
                        }
                    };
                    if twice {
                        return Err(serde::de::Error::custom("a member comes twice"));
                    }
                }
                Ok(parts)
            }
        }

        deserializer.deserialize_map(PartsVisitor)
    }
}

#[derive(Deserialize)]
#[serde(field_identifier)]
enum Key {
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
enum Text<'a> {
    Str(Cow<'a, str>),
    Other,
}

/// A member that should be an id.
enum Id {
    Good(RequestId),
    Bad,
}

/// Reads any JSON value, keeping strings and integers only.
enum Scalar<'a> {
    Null,
    Integer(i64),
    Str(Cow<'a, str>),
    Other,
}

impl<'de: 'a, 'a> Deserialize<'de> for Text<'a> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        Ok(match Scalar::deserialize(deserializer)? {
            Scalar::Str(text) => Text::Str(text),
            Scalar::Null | Scalar::Integer(_) | Scalar::Other => Text::Other,
        })
    }
}

impl<'de> Deserialize<'de> for Id {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        Ok(match Scalar::deserialize(deserializer)? {
            Scalar::Null => Id::Good(RequestId::Null),
            Scalar::Integer(number) => Id::Good(RequestId::Number(number)),
            Scalar::Str(text) if text.len() <= MAX_ID => Id::Good(RequestId::Str(text.into_owned())),
            Scalar::Str(_) | Scalar::Other => Id::Bad,
        })
    }
}

impl<'de: 'a, 'a> Deserialize<'de> for Scalar<'a> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct ScalarVisitor;

        impl<'de> Visitor<'de> for ScalarVisitor {
            type Value = Scalar<'de>;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a value")
            }

            fn visit_unit<E>(self) -> Result<Self::Value, E> {
                Ok(Scalar::Null)
            }

            fn visit_bool<E>(self, _: bool) -> Result<Self::Value, E> {
                Ok(Scalar::Other)
            }

            fn visit_i64<E>(self, number: i64) -> Result<Self::Value, E> {
                Ok(Scalar::Integer(number))
            }

            fn visit_u64<E>(self, number: u64) -> Result<Self::Value, E> {
                Ok(i64::try_from(number).map_or(Scalar::Other, Scalar::Integer))
            }

            fn visit_f64<E>(self, _: f64) -> Result<Self::Value, E> {
                Ok(Scalar::Other)
            }

            fn visit_borrowed_str<E>(self, text: &'de str) -> Result<Self::Value, E> {
                Ok(Scalar::Str(Cow::Borrowed(text)))
            }

            fn visit_str<E>(self, text: &str) -> Result<Self::Value, E> {
                Ok(Scalar::Str(Cow::Owned(text.to_owned())))
            }

            fn visit_seq<A: serde::de::SeqAccess<'de>>(self, mut seq: A) -> Result<Self::Value, A::Error> {
                while seq.next_element::<IgnoredAny>()?.is_some() {}
                Ok(Scalar::Other)
            }

            fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Self::Value, A::Error> {
                while map.next_entry::<IgnoredAny, IgnoredAny>()?.is_some() {}
                Ok(Scalar::Other)
            }
        }

        deserializer.deserialize_any(ScalarVisitor)
    }
}

#[cfg(test)]
mod tests;
