//! JSON-RPC batches. Only one revision of the protocol has them, and its clients may send them. For other clients each
//! request of a batch is refused individually, so that none stays unanswered.

use std::fmt;

use rmcp::ErrorData;
use rmcp::model::{ProtocolVersion, ServerJsonRpcMessage};
use serde::de::{Error, SeqAccess, Visitor};
use serde::{Deserialize, Deserializer};
use serde_json::Value;
use serde_json::value::RawValue;

use super::invalid_message;

/// The most messages in a batch.
pub(crate) const MAX_BATCH: usize = 256;

/// Returns whether a revision supports batches.
pub(crate) fn is_supported_by(revision: &ProtocolVersion) -> bool {
    *revision == ProtocolVersion::V_2025_03_26
}

/// Returns the messages of a batch, or `None` if the text is not a batch, or the batch is empty or too long.
pub(crate) fn split_batch(text: &[u8]) -> Option<Vec<Box<RawValue>>> {
    if text.first() != Some(&b'[') {
        return None;
    }
    let BatchParts(parts) = serde_json::from_slice(text).ok()?;
    (!parts.is_empty()).then_some(parts)
}

/// Returns the refusal of a message in an unsupported batch, if the message is a request.
pub(crate) fn refuse_part(part: &RawValue) -> Option<ServerJsonRpcMessage> {
    let message: Value = serde_json::from_str(part.get()).unwrap_or_default();
    let id = message.get("id").and_then(invalid_message::parse_id);
    let is_request = message["method"].is_string() && id.is_some();
    let error = || ErrorData::invalid_request("batches are not taken: send each message by itself", None);
    is_request.then(|| ServerJsonRpcMessage::error(error(), id))
}

struct BatchParts(Vec<Box<RawValue>>);

impl<'de> Deserialize<'de> for BatchParts {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct BatchVisitor;
        impl<'de> Visitor<'de> for BatchVisitor {
            type Value = BatchParts;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a batch")
            }

            fn visit_seq<A: SeqAccess<'de>>(self, mut messages: A) -> Result<BatchParts, A::Error> {
                let mut parts = Vec::new();
                while let Some(part) = messages.next_element()? {
                    if parts.len() == MAX_BATCH {
                        return Err(A::Error::custom("too many"));
                    }
                    parts.push(part);
                }
                Ok(BatchParts(parts))
            }
        }
        deserializer.deserialize_seq(BatchVisitor)
    }
}

#[cfg(test)]
mod tests;
