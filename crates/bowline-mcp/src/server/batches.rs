//! Several messages in one: one revision of the protocol has them, and whoever speaks it may send them. To all others each
//! request of a batch is refused by itself, so that nobody waits for an answer.

use std::fmt;

use rmcp::ErrorData;
use rmcp::model::{ProtocolVersion, ServerJsonRpcMessage};
use serde::de::{Error, SeqAccess, Visitor};
use serde::{Deserialize, Deserializer};
use serde_json::Value;
use serde_json::value::RawValue;

use super::unreadable;

/// One has at most so many messages.
pub(crate) const MAX_BATCH: usize = 256;

/// Says whether a revision has batches.
pub(crate) fn are_in(revision: &ProtocolVersion) -> bool {
    *revision == ProtocolVersion::V_2025_03_26
}

/// Returns the messages of a batch; nothing if it is none, is empty, or has too many.
pub(crate) fn parts(text: &[u8]) -> Option<Vec<Box<RawValue>>> {
    if text.first() != Some(&b'[') {
        return None;
    }
    let Parts(parts) = serde_json::from_slice(text).ok()?;
    (!parts.is_empty()).then_some(parts)
}

/// Returns the answer to a message of a batch that is not taken, if it asks for something.
pub(crate) fn refused(part: &RawValue) -> Option<ServerJsonRpcMessage> {
    let message: Value = serde_json::from_str(part.get()).unwrap_or_default();
    let id = message.get("id").and_then(unreadable::id_of);
    let asks = message["method"].is_string() && id.is_some();
    let error = || ErrorData::invalid_request("batches are not taken: send each message by itself", None);
    asks.then(|| ServerJsonRpcMessage::error(error(), id))
}

struct Parts(Vec<Box<RawValue>>);

impl<'de> Deserialize<'de> for Parts {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Each;
        impl<'de> Visitor<'de> for Each {
            type Value = Parts;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a batch")
            }

            fn visit_seq<A: SeqAccess<'de>>(self, mut messages: A) -> Result<Parts, A::Error> {
                let mut parts = Vec::new();
                while let Some(part) = messages.next_element()? {
                    if parts.len() == MAX_BATCH {
                        return Err(A::Error::custom("too many"));
                    }
                    parts.push(part);
                }
                Ok(Parts(parts))
            }
        }
        deserializer.deserialize_seq(Each)
    }
}

#[cfg(test)]
mod tests;
