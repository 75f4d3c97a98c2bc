//! The tool calls of a model's reply, assembled from the pieces that it streams, with caps.

use std::collections::HashSet;

use serde_json::{Map, Value};

use crate::conversation::{Input, ToolUse};
use crate::fenced::repaired;

/// The most calls of a reply; those that follow are left out. It is more than a turn runs, so that the model hears of it.
pub const MAX_CALLS: usize = 2 * crate::turn::MAX_CALLS;
/// The largest input of all calls of a reply, in bytes.
pub const MAX_ARGUMENTS: usize = 4 << 20;
/// How much of input that cannot be read is kept to be reported, in bytes.
const MAX_BROKEN: usize = 4 << 10;
/// Longer ids are refused by some provider when they come back.
const MAX_ID: usize = 40;

/// A piece of a call. What the piece does not say is empty.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct CallPiece {
    /// Which call of the reply it belongs to. Without an index it is a whole call.
    pub index: Option<u64>,
    /// The model's id of the call.
    pub id: String,
    /// The tool's name.
    pub name: String,
    /// The input as JSON, or a part of it.
    pub arguments: String,
}

/// The input of all calls together is larger than [`MAX_ARGUMENTS`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("its calls have more than {MAX_ARGUMENTS} bytes")]
pub struct ArgumentsTooLarge;

/// The calls of a reply. An index is a name like any other: servers choose it freely.
#[derive(Debug, Default)]
pub struct CallAssembler {
    // Invariant: at most `MAX_CALLS`.
    calls: Vec<PartialCall>,
    bytes: usize,
}

#[derive(Debug)]
struct PartialCall {
    piece: CallPiece,
    // Whether a later call of the same index was left out: further pieces of the index are not for this one.
    is_superseded: bool,
}

impl CallAssembler {
    /// Adds a piece.
    ///
    /// # Errors
    /// Fails if the input of all calls becomes too large.
    pub fn add(&mut self, piece: CallPiece) -> Result<(), ArgumentsTooLarge> {
        let is_full = self.calls.len() >= MAX_CALLS;
        let added = piece.arguments.len();
        let has_index = |call: &&mut PartialCall| piece.index.is_some() && call.piece.index == piece.index;
        match self.calls.iter_mut().rev().find(has_index) {
            Some(call) if continues(&call.piece, &piece) => {
                if !call.is_superseded {
                    self.bytes += added;
                    call.piece.arguments.push_str(&piece.arguments);
                    if call.piece.name.is_empty() {
                        call.piece.name = piece.name;
                    }
                }
            }
            Some(call) if is_full => call.is_superseded = true,
            None if is_full => (),
            _ => {
                self.bytes += added;
                self.calls.push(PartialCall { piece, is_superseded: false });
            }
        }
        if self.bytes > MAX_ARGUMENTS { Err(ArgumentsTooLarge) } else { Ok(()) }
    }

    /// Returns the calls. Ids that are missing, taken or strange are replaced.
    pub fn finish(self, taken: &mut HashSet<String>) -> Vec<ToolUse> {
        let call = |PartialCall { piece: CallPiece { id, name, arguments, .. }, .. }| ToolUse {
            id: fresh_id(id, taken),
            name,
            input: parse_input(&arguments),
        };
        self.calls.into_iter().map(call).collect()
    }
}

/// Says whether a piece belongs to the last call of its index: some servers give every call the same one.
fn continues(call: &CallPiece, piece: &CallPiece) -> bool {
    piece.id.is_empty() || piece.id == call.id || piece.name.is_empty()
}

/// Returns an id that no call of the conversation has: this one, if it is good.
#[must_use]
pub fn fresh_id(id: String, taken: &mut HashSet<String>) -> String {
    let plain =
        |id: &str| id.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'_' || byte == b'-');
    let good = !id.is_empty() && id.len() <= MAX_ID && plain(&id) && !taken.contains(&id);
    let mut numbers = (taken.len() + 1..).map(|number| format!("call_{number}"));
    let id = if good { id } else { numbers.find(|id| !taken.contains(id)).unwrap_or(id) };
    taken.insert(id.clone());
    id
}

/// Returns the input of a call, or why it cannot be read.
fn parse_input(arguments: &str) -> Input {
    if arguments.trim().is_empty() {
        return Input::Value(Value::Object(Map::new()));
    }
    let read = serde_json::from_str::<Value>(arguments);
    match read.or_else(|error| serde_json::from_str(&repaired(arguments)).map_err(|_| error)) {
        // Some models encode their arguments twice.
        Ok(Value::String(inner)) => match serde_json::from_str::<Value>(&inner) {
            Ok(value @ Value::Object(_)) => Input::Value(value),
            _ => Input::Value(Value::String(inner)),
        },
        Ok(value) => Input::Value(value),
        Err(error) => {
            let text = arguments[..arguments.floor_char_boundary(MAX_BROKEN)].to_owned();
            Input::Broken { text, why: error.to_string() }
        }
    }
}

#[cfg(test)]
mod tests;
