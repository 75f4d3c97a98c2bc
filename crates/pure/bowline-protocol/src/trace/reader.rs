//! A reader for recorded connections in any file: a trace, lines behind `> ` and `< `, or bare messages.

use std::collections::HashMap;

use serde::Deserialize;
use serde_json::value::RawValue;

use super::{TraceEntry, TraceGap, TraceSide, decode_line};

/// The maximum number of open requests tracked in a file that does not name the senders.
const MAX_OPEN_REQUESTS: usize = 10_000;

/// The content of a line.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum TraceRecord {
    /// The header: the start in milliseconds since 1970, if given.
    Header(Option<i64>),
    /// The header of a later version, whose additions are not understood.
    NewerVersion(u32),
    /// A message.
    Message(TraceEntry),
    /// Missing messages.
    Gap(TraceGap),
    /// A line that cannot be parsed, possibly truncated, with its length.
    Unreadable(usize),
}

/// Reads the lines of a file one by one. It continues after any content.
#[derive(Debug, Default)]
pub struct TraceReader {
    // Whether a line of the trace format was seen: after it, bare messages are not accepted.
    is_trace: bool,
    // For a file that does not name the senders: the requesters, by id. A client and an agent may both use an id.
    open_requests: HashMap<String, Vec<TraceSide>>,
}

impl TraceReader {
    /// Reads a line without its newline. Returns `None` for an empty one.
    pub fn read(&mut self, line: &[u8]) -> Option<TraceRecord> {
        if line.trim_ascii().is_empty() {
            return None;
        }
        if let Some(record) = decode_line(line) {
            self.is_trace = true;
            return Some(record);
        }
        if self.is_trace {
            return Some(TraceRecord::Unreadable(line.len()));
        }
        let parsed = match line.split_at_checked(2) {
            Some((b"> ", rest)) => Some((TraceSide::Client, rest)),
            Some((b"< ", rest)) => Some((TraceSide::Agent, rest)),
            _ => self.guess_sender(line).map(|from| (from, line)),
        };
        Some(match parsed {
            Some((from, message)) => {
                let to = if from == TraceSide::Client { TraceSide::Agent } else { TraceSide::Client };
                TraceRecord::Message(TraceEntry { elapsed_us: 0, from, to, bytes: message.to_vec() })
            }
            None => TraceRecord::Unreadable(line.len()),
        })
    }

    /// Guesses the sender of a message: by the side that calls the method, or by the request that it answers.
    fn guess_sender(&mut self, line: &[u8]) -> Option<TraceSide> {
        #[derive(Deserialize)]
        struct BareMessage<'a> {
            method: Option<String>,
            #[serde(borrow)]
            id: Option<&'a RawValue>,
            result: Option<serde::de::IgnoredAny>,
            error: Option<serde::de::IgnoredAny>,
        }
        let bare: BareMessage<'_> = serde_json::from_slice(line).ok()?;
        let id = bare.id.map(|id| id.get().to_owned());
        let Some(method) = bare.method else {
            // Neither a request nor an answer.
            if bare.result.is_none() && bare.error.is_none() {
                return None;
            }
            let senders = id
                .as_ref()
                .and_then(|id| self.open_requests.get_mut(id))
                .filter(|senders| !senders.is_empty());
            return Some(match senders.map(|senders| senders.remove(0)) {
                Some(TraceSide::Agent) => TraceSide::Client,
                _ => TraceSide::Agent,
            });
        };
        let from = if is_agent_method(&method) { TraceSide::Agent } else { TraceSide::Client };
        if let Some(id) = id
            && self.open_requests.len() < MAX_OPEN_REQUESTS
        {
            self.open_requests.entry(id).or_default().push(from);
        }
        Some(from)
    }
}

/// Returns whether agents call this method on their client.
fn is_agent_method(method: &str) -> bool {
    matches!(method, "session/update" | "session/request_permission")
        || ["fs/", "terminal/", "elicitation/", "mcp/"].iter().any(|start| method.starts_with(start))
}
