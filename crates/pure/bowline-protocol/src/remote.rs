//! ACP over HTTP and WebSocket: the names that both ends use, and what of a message decides where it goes.
//!
//! Over HTTP a client posts each message and receives messages on event streams: one for the connection, and one for
//! each session. Responses to requests that open a session come on the connection's stream, because the session's
//! stream may not be open yet; everything else about a session comes on its own stream. Existing peers differ, so a
//! client takes any message from any stream.

use std::borrow::Cow;
use std::fmt;

use agent_client_protocol_schema::v1::RequestId;
use serde::de::{IgnoredAny, MapAccess, SeqAccess, Visitor};
use serde::{Deserialize, Deserializer};
use serde_json::value::RawValue;
use serde_json::{Value, json};

use crate::message_id::parse_id;

#[cfg(test)]
mod tests;

/// The path of the endpoint.
pub const ENDPOINT_PATH: &str = "/acp";
/// The header with the id of the connection.
pub const CONNECTION_HEADER: &str = "acp-connection-id";
/// The header with the id of the session.
pub const SESSION_HEADER: &str = "acp-session-id";
/// The header with the id of the last event that a client has received on a stream.
pub const LAST_EVENT_HEADER: &str = "last-event-id";

/// The request with which a client that has connected again asks for the answer to a request of its earlier connection,
/// with that request's id. The server never does that request again. Unless the agent works on it, it is answered with an
/// error, which a client that has received the answer meanwhile ignores.
pub const AWAIT_METHOD: &str = "_bowline/request/await";

/// The notification that tells how a turn ended, with `stopReason`, or `error` if it failed. A client that offers
/// `_meta.bowline.turnEnds` gets it for turns of other clients, and for earlier ones when it loads a session; the response
/// to its own prompt tells it as much.
pub const TURN_ENDED_METHOD: &str = "_bowline/turn/ended";

/// The requests that open a session. Their responses come on the connection's stream.
const OPENING_METHODS: [&str; 4] = ["session/new", "session/load", "session/resume", "session/fork"];

/// The members of a message that decide where it goes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct MessageHead<'a> {
    /// Its id, if it is a request or a response.
    pub id: Option<RequestId>,
    /// The id as it stands in the message; empty if there is none.
    pub raw_id: &'a [u8],
    /// Its method, if it is a request or a notification.
    pub method: Option<Cow<'a, str>>,
    /// The session in its params.
    pub session_id: Option<Cow<'a, str>>,
    /// Whether it has a result or an error. Responses of some peers have neither, for a result without content.
    pub has_outcome: bool,
    /// Whether it has an error.
    pub is_error: bool,
}

/// Why the head of a message cannot be read.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum MessageHeadError {
    /// It is a JSON-RPC batch.
    #[error("batches of messages are not supported")]
    Batch,
    /// It is not a JSON-RPC message.
    #[error("this is not a JSON-RPC message")]
    Malformed,
}

impl<'a> MessageHead<'a> {
    /// Reads the head of a message.
    ///
    /// # Errors
    /// Fails if it is a batch, or not a JSON-RPC message.
    pub fn parse(message: &'a [u8]) -> Result<Self, MessageHeadError> {
        if message.trim_ascii_start().first() == Some(&b'[') {
            return Err(MessageHeadError::Batch);
        }
        let malformed = MessageHeadError::Malformed;
        let members: Members<'a> = serde_json::from_slice(message).map_err(|_| malformed)?;
        let Members { id: raw_id, method, params, has_result, error } = members;
        let raw_id = raw_id.map_or(&[][..], |id| id.get().as_bytes());
        let id = match raw_id {
            [] => None,
            raw => Some(parse_id(raw).ok_or(malformed)?),
        };
        let is_named = |part: &[u8], name: &str| part.is_empty() || follows_name(message, part, name);
        let raw_method = method.map_or(&[][..], |method| method.get().as_bytes());
        let has_plain_names = is_named(raw_id, "\"id\"") && is_named(raw_method, "\"method\"");
        let method = method.map(|method| parse_text(method.get()).ok_or(malformed)).transpose()?;
        if !has_plain_names || method.is_none() && id.is_none() {
            return Err(malformed);
        }
        let session_id = params.and_then(|Params(session_id)| session_id);
        let is_error = error.is_some();
        Ok(Self { id, raw_id, method, session_id, has_outcome: has_result || is_error, is_error })
    }

    /// Returns whether it is a request.
    #[must_use]
    pub fn is_request(&self) -> bool {
        self.id.is_some() && self.method.is_some()
    }

    /// Returns whether it is a response.
    #[must_use]
    pub fn is_response(&self) -> bool {
        self.method.is_none()
    }

    /// Returns whether it is a request that opens a session.
    #[must_use]
    pub fn opens_session(&self) -> bool {
        self.method.as_deref().is_some_and(|method| OPENING_METHODS.contains(&method))
    }
}

/// Reads a JSON text, without copying it if it has no escapes; `None` if it is another value.
fn parse_text(raw: &str) -> Option<Cow<'_, str>> {
    let text = raw.strip_prefix('"')?.strip_suffix('"')?;
    if text.contains('\\') {
        serde_json::from_str(raw).ok().map(Cow::Owned)
    } else {
        Some(Cow::Borrowed(text))
    }
}

/// Returns whether a part of a message is the value of a member whose name is written like this. Programs that only glance at
/// a message do not know names with escapes.
fn follows_name(message: &[u8], part: &[u8], name: &str) -> bool {
    let start = (part.as_ptr() as usize).saturating_sub(message.as_ptr() as usize);
    let before = message.get(..start).unwrap_or_default().trim_ascii_end();
    before.strip_suffix(b":").is_some_and(|before| before.trim_ascii_end().ends_with(name.as_bytes()))
}

/// Readers differ in which of two members with the same name counts: such a message is refused.
#[derive(Deserialize)]
struct Members<'a> {
    #[serde(borrow)]
    id: Option<&'a RawValue>,
    #[serde(borrow)]
    method: Option<&'a RawValue>,
    #[serde(borrow)]
    params: Option<Params<'a>>,
    #[serde(rename = "result", default, deserialize_with = "is_present")]
    has_result: bool,
    error: Option<IgnoredAny>,
}

/// Skips a value. It may be `null`, too.
fn is_present<'de, D: Deserializer<'de>>(deserializer: D) -> Result<bool, D::Error> {
    IgnoredAny::deserialize(deserializer).map(|_| true)
}

/// Params of any shape, of which only the session is kept.
struct Params<'a>(Option<Cow<'a, str>>);

impl<'de: 'a, 'a> Deserialize<'de> for Params<'a> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(AnyShape { is_params: true }).map(Self)
    }
}

/// The text of a member, if it is one.
struct MaybeText<'a>(Option<Cow<'a, str>>);

impl<'de: 'a, 'a> Deserialize<'de> for MaybeText<'a> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(AnyShape { is_params: false }).map(Self)
    }
}

/// Accepts any value without keeping it, except for the text that is looked for.
struct AnyShape {
    is_params: bool,
}

impl<'de> Visitor<'de> for AnyShape {
    type Value = Option<Cow<'de, str>>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("any value")
    }

    fn visit_borrowed_str<E>(self, text: &'de str) -> Result<Self::Value, E> {
        Ok((!self.is_params).then_some(Cow::Borrowed(text)))
    }

    fn visit_str<E>(self, text: &str) -> Result<Self::Value, E> {
        Ok((!self.is_params).then(|| Cow::Owned(text.to_owned())))
    }

    fn visit_unit<E>(self) -> Result<Self::Value, E> {
        Ok(None)
    }

    fn visit_bool<E>(self, _: bool) -> Result<Self::Value, E> {
        Ok(None)
    }

    fn visit_i64<E>(self, _: i64) -> Result<Self::Value, E> {
        Ok(None)
    }

    fn visit_u64<E>(self, _: u64) -> Result<Self::Value, E> {
        Ok(None)
    }

    fn visit_f64<E>(self, _: f64) -> Result<Self::Value, E> {
        Ok(None)
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut items: A) -> Result<Self::Value, A::Error> {
        while items.next_element::<IgnoredAny>()?.is_some() {}
        Ok(None)
    }

    fn visit_map<A: MapAccess<'de>>(self, mut members: A) -> Result<Self::Value, A::Error> {
        let mut found = None;
        let mut has_session = false;
        // A plain `Cow` would be copied.
        while let Some(MaybeText(key)) = members.next_key()? {
            if self.is_params && key.as_deref() == Some("sessionId") {
                if has_session {
                    // Readers differ in which of them counts.
                    return Err(serde::de::Error::duplicate_field("sessionId"));
                }
                has_session = true;
                found = members.next_value::<MaybeText<'de>>()?.0;
            } else {
                members.next_value::<IgnoredAny>()?;
            }
        }
        Ok(found)
    }
}

/// The extensions of the transport that a Bowline server offers, in `agentCapabilities._meta.bowline.remote`: events
/// have ids, a stream continues after the last of them, requests may be sent again, and a new connection can take over
/// what belongs to an earlier one.
#[must_use]
pub fn offered_extensions() -> Value {
    json!({ "version": 1 })
}

/// Returns whether the result of `initialize` offers these extensions.
#[must_use]
pub fn offers_extensions(initialize_result: &Value) -> bool {
    initialize_result["agentCapabilities"]["_meta"]["bowline"]["remote"]["version"] == 1
}

/// Returns the earlier connection that the params of `initialize` take over, in `_meta.bowline.resumes`.
#[must_use]
pub fn resumed_connection(initialize_params: &Value) -> Option<&str> {
    initialize_params["_meta"]["bowline"]["resumes"].as_str()
}
