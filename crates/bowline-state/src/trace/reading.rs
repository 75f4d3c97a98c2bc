//! Reading a recorded wire from any file that has one: a trace, lines behind `> ` and `< `, or bare messages.

use std::collections::HashMap;

use serde::Deserialize;
use serde_json::value::RawValue;

use super::{Entry, Gap, Line, Side, VERSION, decode};

/// The most requests whose answers are waited for in a file that does not say who spoke.
const MAX_OPEN: usize = 10_000;

/// What a line of a file is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Reading {
    /// How it begins: when, in milliseconds since 1970, if it says so.
    Head(Option<i64>),
    /// It was written by a later version: what it adds is not understood.
    Later(u32),
    /// A message.
    Message(Entry),
    /// Messages that are missing.
    Lost(Gap),
    /// Not to be understood, perhaps cut off. So many bytes.
    Unreadable(usize),
}

/// Reads the lines of a file one after the other. Whatever stands in it, it goes on.
#[derive(Debug, Default)]
pub struct Reader {
    // Whether a line of the format was seen: after it, a bare message is none.
    is_trace: bool,
    // In a file that does not say who spoke: who asked, by the id. A client and an agent may both use an id.
    asked: HashMap<String, Vec<Side>>,
}

impl Reader {
    /// Reads a line without its newline. Returns `None` for an empty one.
    pub fn read(&mut self, line: &[u8]) -> Option<Reading> {
        if line.trim_ascii().is_empty() {
            return None;
        }
        match decode(line) {
            Some(read) => {
                self.is_trace = true;
                return Some(match read {
                    Line::Head { version, .. } if version > VERSION => Reading::Later(version),
                    Line::Head { began, .. } => Reading::Head(began),
                    Line::Message(entry) => Reading::Message(entry),
                    Line::Lost(gap) => Reading::Lost(gap),
                });
            }
            None if self.is_trace => return Some(Reading::Unreadable(line.len())),
            None => {}
        }
        let told = match line.split_at_checked(2) {
            Some((b"> ", rest)) => Some((Side::Client, rest)),
            Some((b"< ", rest)) => Some((Side::Agent, rest)),
            _ => self.guess(line).map(|from| (from, line)),
        };
        Some(match told {
            Some((from, message)) => {
                let to = if from == Side::Client { Side::Agent } else { Side::Client };
                Reading::Message(Entry { us: 0, from, to, bytes: message.to_vec() })
            }
            None => Reading::Unreadable(line.len()),
        })
    }

    /// Returns who sends such a message, as far as it can be told: who has the method, or whom the answer is for.
    fn guess(&mut self, line: &[u8]) -> Option<Side> {
        #[derive(Deserialize)]
        struct Bare<'a> {
            method: Option<String>,
            #[serde(borrow)]
            id: Option<&'a RawValue>,
            result: Option<serde::de::IgnoredAny>,
            error: Option<serde::de::IgnoredAny>,
        }
        let bare: Bare<'_> = serde_json::from_slice(line).ok()?;
        let id = bare.id.map(|id| id.get().to_owned());
        let Some(method) = bare.method else {
            // Neither a question nor an answer.
            if bare.result.is_none() && bare.error.is_none() {
                return None;
            }
            let asked = id.as_ref().and_then(|id| self.asked.get_mut(id)).filter(|asked| !asked.is_empty());
            return Some(match asked.map(|asked| asked.remove(0)) {
                Some(Side::Agent) => Side::Client,
                _ => Side::Agent,
            });
        };
        let from = if is_of_agent(&method) { Side::Agent } else { Side::Client };
        if let Some(id) = id
            && self.asked.len() < MAX_OPEN
        {
            self.asked.entry(id).or_default().push(from);
        }
        Some(from)
    }
}

/// Says whether an agent sends the method to its client.
fn is_of_agent(method: &str) -> bool {
    matches!(method, "session/update" | "session/request_permission")
        || ["fs/", "terminal/", "elicitation/", "mcp/"].iter().any(|start| method.starts_with(start))
}
