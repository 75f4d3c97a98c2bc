//! A recorded connection: the messages between two sides, their times, and what is missing.
//!
//! A trace is a file of JSON lines. The first is a header, every other is a message or a gap:
//!
//! ```text
//! {"trace":"bowline","version":1,"began":1772355912250}
//! {"us":1200,"from":"client","to":"agent","message":{"jsonrpc":"2.0","id":0,"method":"initialize"}}
//! {"us":1950,"from":"agent","to":"client","text":"this is no JSON"}
//! {"us":2000,"from":"agent","to":"client","bytes":"one character for each byte: ÿ"}
//! {"lost":{"messages":3,"bytes":2097152}}
//! ```
//!
//! Every recorded message is restored byte for byte: JSON is stored as it was sent, other text as a string, and bytes
//! that are not text as a string with one character per byte.

mod backlog;
mod filter;
mod reader;
mod replay;
mod sequence;
mod summary;

use std::borrow::Cow;
use std::fmt;

use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;

pub use backlog::{Backlog, BacklogItem};
pub use filter::TraceFilter;
pub use reader::{TraceReader, TraceRecord};
pub use replay::{ReplayAction, ReplayPlayer};
pub use sequence::{
    AnswerOutcome, TraceMessageKind, TraceSequence, TraceStep, TraceToolCall, UnansweredRequest,
};

/// The prefix of every trace, of this version or a later one.
pub const TRACE_PREFIX: &[u8] = br#"{"trace":"bowline","#;
/// The version that is written, and the highest that is read.
pub const TRACE_VERSION: u32 = 1;

/// A sender or recipient of messages.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum TraceSide {
    /// The editor, or another program that starts an agent and serves it.
    Client,
    /// The agent.
    Agent,
    /// The proxy between the two, which is an agent to the client and a client to the agent.
    Proxy,
}

impl TraceSide {
    /// Returns its name in the format.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Client => "client",
            Self::Agent => "agent",
            Self::Proxy => "proxy",
        }
    }
}

impl fmt::Display for TraceSide {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.as_str())
    }
}

/// One message as it was sent, without its newline.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TraceEntry {
    /// Its time, in microseconds since the trace began.
    pub elapsed_us: u64,
    /// The sender.
    pub from: TraceSide,
    /// The recipient.
    pub to: TraceSide,
    /// The whole message.
    pub bytes: Vec<u8>,
}

/// A gap in a trace.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct TraceGap {
    /// The number of missing messages.
    pub messages: u64,
    /// Their total size.
    pub bytes: u64,
}

impl TraceGap {
    /// Returns the sum of two gaps.
    #[must_use]
    pub fn merge(self, other: Self) -> Self {
        Self {
            messages: self.messages.saturating_add(other.messages),
            bytes: self.bytes.saturating_add(other.bytes),
        }
    }
}

/// Returns the header of a trace, with its newline.
#[must_use]
pub fn encode_header(began_ms: i64) -> Vec<u8> {
    let prefix = String::from_utf8_lossy(TRACE_PREFIX);
    format!("{prefix}\"version\":{TRACE_VERSION},\"began\":{began_ms}}}\n").into_bytes()
}

/// Returns the line for a gap, with its newline.
#[must_use]
pub fn encode_gap(gap: TraceGap) -> Vec<u8> {
    format!("{{\"lost\":{{\"messages\":{},\"bytes\":{}}}}}\n", gap.messages, gap.bytes).into_bytes()
}

/// Returns the line for a message, with its newline.
#[must_use]
pub fn encode_entry(entry: &TraceEntry) -> Vec<u8> {
    let TraceEntry { elapsed_us, from, to, bytes } = entry;
    let mut line = Vec::with_capacity(bytes.len() + 80);
    line.extend_from_slice(format!("{{\"us\":{elapsed_us},\"from\":\"{from}\",\"to\":\"{to}\",").as_bytes());
    match std::str::from_utf8(bytes) {
        Ok(text) if is_verbatim_json(text) => {
            line.extend_from_slice(b"\"message\":");
            line.extend_from_slice(bytes);
        }
        Ok(text) => push_string(&mut line, "text", text),
        Err(_) => {
            let text: String = bytes.iter().copied().map(char::from).collect();
            push_string(&mut line, "bytes", &text);
        }
    }
    line.extend_from_slice(b"}\n");
    line
}

/// Returns whether a text is JSON that is read back as exactly this text. Surrounding blanks would be lost.
fn is_verbatim_json(text: &str) -> bool {
    let bare = text.trim_matches(|character: char| character.is_ascii_whitespace());
    bare.len() == text.len()
        && !text.contains('\n')
        && serde_json::from_str::<&RawValue>(text).is_ok_and(|value| value.get() == text)
}

fn push_string(line: &mut Vec<u8>, name: &str, text: &str) {
    line.extend_from_slice(format!("\"{name}\":").as_bytes());
    // A string can always be written as JSON.
    line.extend_from_slice(serde_json::Value::from(text).to_string().as_bytes());
}

/// Decodes a line of a trace; returns `None` if it is malformed.
#[must_use]
pub fn decode_line(line: &[u8]) -> Option<TraceRecord> {
    #[derive(Deserialize)]
    struct RawTraceLine<'a> {
        trace: Option<Cow<'a, str>>,
        version: Option<u32>,
        began: Option<i64>,
        us: Option<u64>,
        from: Option<TraceSide>,
        to: Option<TraceSide>,
        #[serde(borrow)]
        message: Option<&'a RawValue>,
        text: Option<String>,
        bytes: Option<String>,
        lost: Option<TraceGap>,
    }
    let text = std::str::from_utf8(line).ok()?;
    let wire: RawTraceLine<'_> = serde_json::from_str(text).ok()?;
    if wire.trace.is_some_and(|trace| trace == "bowline") {
        return Some(match wire.version? {
            version if version > TRACE_VERSION => TraceRecord::NewerVersion(version),
            _ => TraceRecord::Header(wire.began),
        });
    }
    if let Some(gap) = wire.lost {
        return Some(TraceRecord::Gap(gap));
    }
    let bytes = match (wire.message, wire.text, wire.bytes) {
        (Some(message), None, None) => message.get().as_bytes().to_vec(),
        (None, Some(text), None) => text.into_bytes(),
        (None, None, Some(bytes)) => {
            bytes.chars().map(|character| u8::try_from(character).ok()).collect::<Option<Vec<u8>>>()?
        }
        // With several contents it is ambiguous which one is meant.
        _ => return None,
    };
    Some(TraceRecord::Message(TraceEntry { elapsed_us: wire.us?, from: wire.from?, to: wire.to?, bytes }))
}

#[cfg(test)]
mod tests;
