//! A recorded wire: what was said between two sides, when, and what is missing.
//!
//! A trace is a file of JSON lines. The first says what it is, every other is a message or a gap:
//!
//! ```text
//! {"trace":"bowline","version":1,"began":1772355912250}
//! {"us":1200,"from":"client","to":"agent","message":{"jsonrpc":"2.0","id":0,"method":"initialize"}}
//! {"us":1950,"from":"agent","to":"client","text":"this is no JSON"}
//! {"us":2000,"from":"agent","to":"client","bytes":"one character for each byte: ÿ"}
//! {"lost":{"messages":3,"bytes":2097152}}
//! ```
//!
//! Whatever went over the wire comes back byte for byte: JSON stands as it was sent, other text as a string, and what is
//! not text as a string in which each character is one byte.

mod backlog;
mod filter;
mod gist;
mod reading;
mod replay;
mod sequence;

use std::borrow::Cow;
use std::fmt;

use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;

pub use backlog::{Backlog, Item};
pub use filter::Filter;
pub use reading::{Reader, Reading};
pub use replay::{Action, Player};
pub use sequence::{Call, Kind, Open, Outcome, Sequence, Step};

/// How every trace begins, of this version or a later one.
pub const MARK: &[u8] = br#"{"trace":"bowline","#;
/// The version that is written, and the highest that is read.
pub const VERSION: u32 = 1;

/// Who says or hears a message.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Side {
    /// The editor, or whoever else starts an agent and serves it.
    Client,
    /// The agent.
    Agent,
    /// What stands between the two, as an agent to the client and a client to the agent.
    Proxy,
}

impl Side {
    /// Returns its word.
    #[must_use]
    pub fn word(self) -> &'static str {
        match self {
            Self::Client => "client",
            Self::Agent => "agent",
            Self::Proxy => "proxy",
        }
    }
}

impl fmt::Display for Side {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.word())
    }
}

/// One message as it was sent, without its newline.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Entry {
    /// When, in microseconds since the trace began.
    pub us: u64,
    /// Who sent it.
    pub from: Side,
    /// Who it was for.
    pub to: Side,
    /// All of it.
    pub bytes: Vec<u8>,
}

/// What is missing in one place.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct Gap {
    /// How many messages.
    pub messages: u64,
    /// How many bytes they had.
    pub bytes: u64,
}

impl Gap {
    /// Returns both as one.
    #[must_use]
    pub fn and(self, other: Self) -> Self {
        Self {
            messages: self.messages.saturating_add(other.messages),
            bytes: self.bytes.saturating_add(other.bytes),
        }
    }
}

/// A line of a trace.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Line {
    /// The first.
    Head {
        /// Which version the trace is of.
        version: u32,
        /// When it began, in milliseconds since 1970.
        began: Option<i64>,
    },
    /// A message.
    Message(Entry),
    /// Messages that the disk did not take.
    Lost(Gap),
}

/// Returns the first line of a trace that begins at a moment, with its newline.
#[must_use]
pub fn head(began_ms: i64) -> Vec<u8> {
    let mark = String::from_utf8_lossy(MARK);
    format!("{mark}\"version\":{VERSION},\"began\":{began_ms}}}\n").into_bytes()
}

/// Returns the line for messages that are missing, with its newline.
#[must_use]
pub fn lost(gap: Gap) -> Vec<u8> {
    format!("{{\"lost\":{{\"messages\":{},\"bytes\":{}}}}}\n", gap.messages, gap.bytes).into_bytes()
}

/// Returns the line for a message, with its newline.
#[must_use]
pub fn encode(entry: &Entry) -> Vec<u8> {
    let Entry { us, from, to, bytes } = entry;
    let mut line = Vec::with_capacity(bytes.len() + 80);
    line.extend_from_slice(format!("{{\"us\":{us},\"from\":\"{from}\",\"to\":\"{to}\",").as_bytes());
    match std::str::from_utf8(bytes) {
        Ok(text) if stands_as_it_is(text) => {
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

/// Says whether a text is JSON that is read back as exactly this text. Blanks around it would be lost.
fn stands_as_it_is(text: &str) -> bool {
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

/// Reads a line of a trace, or returns `None` if it is none.
#[must_use]
pub fn decode(line: &[u8]) -> Option<Line> {
    #[derive(Deserialize)]
    struct Wire<'a> {
        trace: Option<Cow<'a, str>>,
        version: Option<u32>,
        began: Option<i64>,
        us: Option<u64>,
        from: Option<Side>,
        to: Option<Side>,
        #[serde(borrow)]
        message: Option<&'a RawValue>,
        text: Option<String>,
        bytes: Option<String>,
        lost: Option<Gap>,
    }
    let text = std::str::from_utf8(line).ok()?;
    let wire: Wire<'_> = serde_json::from_str(text).ok()?;
    if wire.trace.is_some_and(|trace| trace == "bowline") {
        return Some(Line::Head { version: wire.version?, began: wire.began });
    }
    if let Some(gap) = wire.lost {
        return Some(Line::Lost(gap));
    }
    let bytes = match (wire.message, wire.text, wire.bytes) {
        (Some(message), None, None) => message.get().as_bytes().to_vec(),
        (None, Some(text), None) => text.into_bytes(),
        (None, None, Some(bytes)) => {
            bytes.chars().map(|character| u8::try_from(character).ok()).collect::<Option<Vec<u8>>>()?
        }
        // Which of several is meant cannot be told.
        _ => return None,
    };
    Some(Line::Message(Entry { us: wire.us?, from: wire.from?, to: wire.to?, bytes }))
}

#[cfg(test)]
mod tests;
