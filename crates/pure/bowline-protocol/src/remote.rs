//! ACP over HTTP and WebSocket: the names that both ends use, and what of a message decides where it goes.
//!
//! Over HTTP a client posts each message and receives messages on event streams: one for the connection, and one for
//! each session. Responses to requests that open a session come on the connection's stream, because the session's
//! stream may not be open yet; everything else about a session comes on its own stream. Existing peers differ, so a
//! client takes any message from any stream.

use std::borrow::Cow;

use agent_client_protocol_schema::v1::RequestId;
use serde::Deserialize;
use serde_json::{Value, json};

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

/// The requests that open a session. Their responses come on the connection's stream.
const OPENING_METHODS: [&str; 4] = ["session/new", "session/load", "session/resume", "session/fork"];

/// The members of a message that decide where it goes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct MessageHead<'a> {
    /// Its id, if it is a request or a response.
    pub id: Option<RequestId>,
    /// Its method, if it is a request or a notification.
    pub method: Option<Cow<'a, str>>,
    /// The session in its params.
    pub session_id: Option<Cow<'a, str>>,
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
        #[derive(Deserialize)]
        struct Members<'a> {
            id: Option<RequestId>,
            #[serde(borrow)]
            method: Option<Cow<'a, str>>,
            #[serde(borrow)]
            params: Option<Params<'a>>,
        }
        #[derive(Deserialize)]
        #[serde(untagged)]
        enum Params<'a> {
            Object {
                #[serde(borrow, rename = "sessionId")]
                session_id: Option<Cow<'a, str>>,
            },
            Other(serde::de::IgnoredAny),
        }
        if message.trim_ascii_start().first() == Some(&b'[') {
            return Err(MessageHeadError::Batch);
        }
        let Members { id, method, params } =
            serde_json::from_slice(message).map_err(|_| MessageHeadError::Malformed)?;
        let id = id.filter(|id| *id != RequestId::Null);
        if id.is_none() && method.is_none() {
            return Err(MessageHeadError::Malformed);
        }
        let session_id = match params {
            Some(Params::Object { session_id }) => session_id,
            Some(Params::Other(_)) | None => None,
        };
        Ok(Self { id, method, session_id })
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
