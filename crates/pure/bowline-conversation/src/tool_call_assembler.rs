//! The tool calls of a model's reply, assembled from streamed pieces, with caps.

use std::collections::HashSet;

use serde_json::{Map, Value};

use crate::conversation::{ToolUse, ToolUseInput};
use crate::json_repair::repair_json;

/// The maximum number of calls in a reply; further ones are dropped. It exceeds what a turn runs, so that the model
/// learns of it.
pub const MAX_CALLS: usize = 2 * crate::turn::MAX_CALLS;
/// The maximum size of the input of all calls in a reply, in bytes.
pub const MAX_ARGUMENTS: usize = 4 << 20;
/// The maximum length of invalid input that is kept for a report, in bytes.
const MAX_INVALID_INPUT_BYTES: usize = 4 << 10;
/// The maximum length of an id: some providers refuse longer ones when they are sent back.
const MAX_ID_BYTES: usize = 40;

/// A piece of a call. Missing parts are empty.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ToolCallDelta {
    /// The index of its call in the reply. A piece without an index is a whole call.
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
pub struct ArgumentsTooLargeError;

/// The calls of a reply. An index is just a key: servers choose it freely.
#[derive(Debug, Default)]
pub struct ToolCallAssembler {
    // Invariant: at most `MAX_CALLS`.
    calls: Vec<PartialToolCall>,
    bytes: usize,
}

#[derive(Debug)]
struct PartialToolCall {
    delta: ToolCallDelta,
    // Whether a later call with the same index was dropped, so that further pieces with the index are not for this
    // one.
    is_superseded: bool,
}

impl ToolCallAssembler {
    /// Adds a piece.
    ///
    /// # Errors
    /// Fails if the input of all calls becomes too large.
    pub fn add_delta(&mut self, piece: ToolCallDelta) -> Result<(), ArgumentsTooLargeError> {
        let is_full = self.calls.len() >= MAX_CALLS;
        let added = piece.arguments.len();
        let has_index =
            |call: &&mut PartialToolCall| piece.index.is_some() && call.delta.index == piece.index;
        match self.calls.iter_mut().rev().find(has_index) {
            Some(call) if continues_call(&call.delta, &piece) => {
                if !call.is_superseded {
                    self.bytes += added;
                    call.delta.arguments.push_str(&piece.arguments);
                    if call.delta.name.is_empty() {
                        call.delta.name = piece.name;
                    }
                }
            }
            Some(call) if is_full => call.is_superseded = true,
            None if is_full => (),
            _ => {
                self.bytes += added;
                self.calls.push(PartialToolCall { delta: piece, is_superseded: false });
            }
        }
        if self.bytes > MAX_ARGUMENTS { Err(ArgumentsTooLargeError) } else { Ok(()) }
    }

    /// Returns the calls. Ids that are missing, already taken or malformed are replaced.
    pub fn finish(self, taken: &mut HashSet<String>) -> Vec<ToolUse> {
        let call = |PartialToolCall { delta: ToolCallDelta { id, name, arguments, .. }, .. }| ToolUse {
            id: unique_call_id(id, taken),
            name,
            input: parse_input(&arguments),
        };
        self.calls.into_iter().map(call).collect()
    }
}

/// Returns whether a piece continues the last call with its index: some servers give every call the same one.
fn continues_call(call: &ToolCallDelta, piece: &ToolCallDelta) -> bool {
    piece.id.is_empty() || piece.id == call.id || piece.name.is_empty()
}

/// Returns an id that is unique in the conversation: this one, if it is valid.
#[must_use]
pub fn unique_call_id(id: String, taken: &mut HashSet<String>) -> String {
    let plain =
        |id: &str| id.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'_' || byte == b'-');
    let good = !id.is_empty() && id.len() <= MAX_ID_BYTES && plain(&id) && !taken.contains(&id);
    let mut numbers = (taken.len() + 1..).map(|number| format!("call_{number}"));
    let id = if good { id } else { numbers.find(|id| !taken.contains(id)).unwrap_or(id) };
    taken.insert(id.clone());
    id
}

/// Returns the input of a call, or why it is invalid.
fn parse_input(arguments: &str) -> ToolUseInput {
    if arguments.trim().is_empty() {
        return ToolUseInput::Value(Value::Object(Map::new()));
    }
    let read = serde_json::from_str::<Value>(arguments);
    match read.or_else(|error| serde_json::from_str(&repair_json(arguments)).map_err(|_| error)) {
        // Some models encode their arguments twice.
        Ok(Value::String(inner)) => match serde_json::from_str::<Value>(&inner) {
            Ok(value @ Value::Object(_)) => ToolUseInput::Value(value),
            _ => ToolUseInput::Value(Value::String(inner)),
        },
        Ok(value) => ToolUseInput::Value(value),
        Err(error) => {
            let text = arguments[..arguments.floor_char_boundary(MAX_INVALID_INPUT_BYTES)].to_owned();
            ToolUseInput::Broken { text, why: error.to_string() }
        }
    }
}

#[cfg(test)]
mod tests;
