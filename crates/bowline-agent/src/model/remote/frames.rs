//! What the frames of a reply say that `genai` does not pass on, or not as it came.
//!
//! Calls come in pieces that are told apart by an index; `genai` hides it, or makes room for as many calls as the index
//! says. Here an index is a name like any other, and the number of calls is capped.

use std::collections::{HashSet, VecDeque};

use bowline_state::conversation::{Input, ToolUse, Usage};
use serde_json::Value;

use crate::model::provider::Provider;

/// No reply has more calls; those that follow are left out. It is more than a turn runs, so that the model hears of it.
pub const MAX_CALLS: usize = 2 * bowline_state::turn::MAX_CALLS;
/// What all calls of a reply are called with is not longer, in bytes.
pub const MAX_ARGUMENTS: usize = 4 << 20;
/// Of input that cannot be read, so much is kept to be told, in bytes.
const MAX_BROKEN: usize = 4 << 10;
/// Ids that are longer are refused by some provider when they come back.
const MAX_ID: usize = 40;

/// What was seen in the frames of a reply.
#[derive(Debug)]
pub(super) struct Frames {
    provider: Provider,
    seen: bool,
    calls: Vec<Open>,
    arguments: usize,
    // The signature of the thought that is open, in pieces.
    signature: String,
    /// Signatures of thoughts that are complete, and whether the thought itself is hidden.
    pub(super) signed: VecDeque<Signed>,
    /// Why the reply ended, if it said so.
    pub(super) finish: Option<String>,
    /// What the request took, if it said so.
    pub(super) usage: Option<Usage>,
    /// That the provider blocked the request.
    pub(super) blocked: Option<String>,
    /// An error in the middle of the reply.
    pub(super) error: Option<String>,
    /// Whether the calls are longer than they may be.
    pub(super) overflown: bool,
}

/// A thought's signature.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Signed {
    /// Of the thought that was told before.
    Told(String),
    /// Of a thought that is hidden: all there is of it.
    Hidden(String),
}

/// A call that comes in pieces.
#[derive(Debug)]
struct Open {
    key: u64,
    id: String,
    name: String,
    arguments: String,
    closed: bool,
    // Whether a later call of the same key was left out: what comes for the key is not for this one.
    followed: bool,
}

impl Frames {
    /// Returns that nothing was seen.
    pub(super) fn new(provider: Provider) -> Self {
        Self {
            provider,
            seen: false,
            calls: Vec::new(),
            arguments: 0,
            signature: String::new(),
            signed: VecDeque::new(),
            finish: None,
            usage: None,
            blocked: None,
            error: None,
            overflown: false,
        }
    }

    /// Looks at a frame.
    pub(super) fn take(&mut self, data: &str) {
        self.seen = true;
        // What is no JSON is an end mark or a fault, which `genai` tells.
        let Ok(value) = serde_json::from_str::<Value>(data) else { return };
        match self.provider {
            Provider::OpenAi | Provider::Compatible => self.openai(&value),
            Provider::Anthropic => self.anthropic(&value),
            Provider::Gemini => {
                self.blocked = text(&value, "/promptFeedback/blockReason").or(self.blocked.take());
            }
            Provider::Ollama => self.error = text(&value, "/error").or(self.error.take()),
        }
    }

    /// Says whether there was no frame yet.
    pub(super) fn unseen(&self) -> bool {
        !self.seen
    }

    /// Adds a call that came whole.
    pub(super) fn whole(&mut self, id: String, name: String, arguments: &Value) {
        let arguments = match arguments {
            Value::Null => String::new(),
            Value::String(text) => text.clone(),
            value => value.to_string(),
        };
        let key = self.calls.len() as u64;
        self.start(key, id, name);
        self.more(key, &arguments);
        self.close(key);
    }

    /// Says whether a call is not complete.
    pub(super) fn has_open(&self) -> bool {
        self.provider == Provider::Anthropic && self.calls.iter().any(|call| !call.closed)
    }

    /// Returns the calls. Ids that are missing, taken or strange are replaced.
    pub(super) fn calls(&mut self, taken: &mut HashSet<String>) -> Vec<ToolUse> {
        let open = std::mem::take(&mut self.calls);
        let call = |open: Open| ToolUse {
            id: fresh_id(open.id, taken),
            name: open.name,
            input: input(&open.arguments),
        };
        open.into_iter().map(call).collect()
    }

    fn openai(&mut self, frame: &Value) {
        if let Some(usage) = frame.get("usage").filter(|usage| usage.is_object()) {
            let count = |place: &str| usage.pointer(place).and_then(Value::as_u64).unwrap_or(0);
            self.usage = Some(Usage {
                input: count("/prompt_tokens"),
                output: count("/completion_tokens"),
                cache_read: count("/prompt_tokens_details/cached_tokens"),
                cache_write: 0,
                thought: count("/completion_tokens_details/reasoning_tokens"),
            });
        }
        let Some(choice) = frame.pointer("/choices/0") else { return };
        let pieces = choice.pointer("/delta/tool_calls").and_then(Value::as_array);
        for (position, piece) in pieces.into_iter().flatten().enumerate() {
            // Some servers leave the index out.
            let key = piece.get("index").and_then(Value::as_u64).unwrap_or(position as u64);
            let id = text(piece, "/id").unwrap_or_default();
            let name = text(piece, "/function/name").unwrap_or_default();
            let last = self.calls.iter_mut().rev().find(|call| call.key == key);
            match last {
                // And some give every call the same one.
                Some(call) if id.is_empty() || call.id == id || name.is_empty() => {
                    if call.name.is_empty() {
                        call.name = name;
                    }
                }
                _ => self.start(key, id, name),
            }
            match piece.pointer("/function/arguments") {
                Some(Value::String(arguments)) => self.more(key, arguments),
                Some(arguments @ Value::Object(_)) => self.more(key, &arguments.to_string()),
                _ => (),
            }
        }
        self.finish = text(choice, "/finish_reason").or(self.finish.take());
    }

    fn anthropic(&mut self, frame: &Value) {
        let key = frame.get("index").and_then(Value::as_u64).unwrap_or(u64::MAX);
        let kind = |place: &str| frame.pointer(place).and_then(Value::as_str).unwrap_or("");
        match (kind("/type"), kind("/content_block/type"), kind("/delta/type")) {
            ("content_block_start", "tool_use", _) => {
                let id = text(frame, "/content_block/id").unwrap_or_default();
                let name = text(frame, "/content_block/name").unwrap_or_default();
                self.start(key, id, name);
            }
            ("content_block_start", "thinking", _) => {
                self.signature = text(frame, "/content_block/signature").unwrap_or_default();
            }
            ("content_block_start", "redacted_thinking", _) => {
                let data = text(frame, "/content_block/data");
                self.signed.extend(data.map(Signed::Hidden));
            }
            ("content_block_delta", _, "input_json_delta") => {
                if let Some(piece) = frame.pointer("/delta/partial_json").and_then(Value::as_str) {
                    self.more(key, piece);
                }
            }
            ("content_block_delta", _, "signature_delta") => {
                self.signature.push_str(kind("/delta/signature"));
            }
            ("content_block_stop", ..) => {
                self.close(key);
                if !self.signature.is_empty() {
                    self.signed.push_back(Signed::Told(std::mem::take(&mut self.signature)));
                }
            }
            // Pings, texts and what is still to be invented: `genai` tells of them, or nobody has to.
            _ => (),
        }
    }

    fn start(&mut self, key: u64, id: String, name: String) {
        if self.calls.len() < MAX_CALLS {
            let arguments = String::new();
            self.calls.push(Open { key, id, name, arguments, closed: false, followed: false });
        } else {
            self.calls.iter_mut().filter(|call| call.key == key).for_each(|call| call.followed = true);
        }
    }

    fn more(&mut self, key: u64, piece: &str) {
        if let Some(call) = self.calls.iter_mut().rev().find(|call| call.key == key)
            && !call.followed
        {
            self.arguments += piece.len();
            self.overflown |= self.arguments > MAX_ARGUMENTS;
            if !self.overflown {
                call.arguments.push_str(piece);
            }
        }
    }

    fn close(&mut self, key: u64) {
        if let Some(call) = self.calls.iter_mut().rev().find(|call| call.key == key) {
            call.closed = true;
        }
    }
}

fn text(value: &Value, place: &str) -> Option<String> {
    value.pointer(place).and_then(Value::as_str).map(str::to_owned)
}

/// Returns an id that no call of the conversation has: this one, if it is good.
pub(super) fn fresh_id(id: String, taken: &mut HashSet<String>) -> String {
    let plain =
        |id: &str| id.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'_' || byte == b'-');
    let good = !id.is_empty() && id.len() <= MAX_ID && plain(&id) && !taken.contains(&id);
    let mut numbers = (taken.len() + 1..).map(|number| format!("call_{number}"));
    let id = if good { id } else { numbers.find(|id| !taken.contains(id)).unwrap_or(id) };
    taken.insert(id.clone());
    id
}

/// Returns what a call is called with, or why that cannot be read.
fn input(arguments: &str) -> Input {
    if arguments.trim().is_empty() {
        return Input::Value(Value::Object(serde_json::Map::new()));
    }
    match serde_json::from_str::<Value>(arguments) {
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
