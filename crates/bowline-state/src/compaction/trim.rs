//! Cutting what is long: outputs of old steps, and in need those of the last one.

use std::sync::Arc;

use serde_json::Value;

use super::measure::{self, estimate, shortened};
use crate::conversation::{Input, Message, Part, ToolResult};

/// Old outputs and inputs of tools that have more tokens than this are cut to [`OUTPUT_LEFT`].
const LONG_OUTPUT: u64 = 400;
const OUTPUT_LEFT: u64 = 100;

/// Old texts that have more tokens than this, files that were attached for one, are cut to [`TEXT_LEFT`].
const LONG_TEXT: u64 = 2000;
const TEXT_LEFT: u64 = 1000;

/// What is kept is never cut to less than so many tokens a text.
const LEAST: u64 = 32;

/// Returns old messages without what made them long: outputs of tools, pictures, thoughts. Doing so again changes
/// nothing.
pub(super) fn trimmed(messages: &[Message]) -> Vec<Message> {
    let limits = Limits { output: (LONG_OUTPUT, OUTPUT_LEFT), text: (LONG_TEXT, TEXT_LEFT), pictures: false };
    messages.iter().map(|message| limits.cut(&without_thoughts(message))).collect()
}

/// Returns messages that are to be kept: as they are if they have at most that many tokens, and else cut as little as
/// makes them fit. It may be that nothing does.
pub(super) fn squeezed(messages: &[Message], tokens: u64) -> Vec<Message> {
    let mut kept = messages.to_vec();
    let mut cap = tokens / 2;
    while estimate(&kept) > tokens && cap >= LEAST {
        // Outputs can be had again; what the user said cannot, so it is cut later and less.
        let hard = cap < tokens / 8;
        let text = if hard { (cap * 8, cap * 8) } else { (u64::MAX, u64::MAX) };
        let limits = Limits { output: (cap, cap), text, pictures: !hard };
        kept = kept.iter().map(|message| limits.cut(message)).collect();
        if hard && estimate(&kept) > tokens {
            // A provider may want them back, but what does not fit it takes even less.
            kept = kept.iter().map(without_thoughts).collect();
        }
        cap /= 2;
    }
    kept
}

/// From how many tokens on something is cut, and to how many.
struct Limits {
    output: (u64, u64),
    text: (u64, u64),
    // Whether pictures stay.
    pictures: bool,
}

impl Limits {
    fn cut(&self, message: &Message) -> Message {
        Message { role: message.role, parts: message.parts.iter().map(|part| self.part(part)).collect() }
    }

    fn part(&self, part: &Part) -> Part {
        match part {
            Part::Text { text } => Part::Text { text: short(text, self.text) },
            Part::Image { .. } if !self.pictures => Part::Text { text: "[a picture was here]".to_owned() },
            Part::Call(call) => {
                let mut call = call.clone();
                match &mut call.input {
                    Input::Value(value) => self.input(value),
                    Input::Broken { text, .. } => *text = short(text, self.output),
                }
                Part::Call(call)
            }
            Part::Result(result) => Part::Result(self.result(result)),
            // A thought is signed as a whole.
            Part::Thought { .. } | Part::Image { .. } => part.clone(),
        }
    }

    fn input(&self, value: &mut Value) {
        match value {
            Value::String(text) => *text = short(text, self.output),
            Value::Array(items) => items.iter_mut().for_each(|item| self.input(item)),
            Value::Object(fields) => fields.values_mut().for_each(|field| self.input(field)),
            Value::Null | Value::Bool(_) | Value::Number(_) => {}
        }
    }

    fn result(&self, result: &ToolResult) -> ToolResult {
        let mut text = short(&result.text, self.output);
        let images: Vec<(String, Arc<str>)> = if self.pictures { result.images.clone() } else { Vec::new() };
        if images.len() < result.images.len() {
            text.push_str("\n[a picture was here]");
        }
        ToolResult { id: result.id.clone(), name: result.name.clone(), text, images, failed: result.failed }
    }
}

fn short(text: &str, (long, left): (u64, u64)) -> String {
    if measure::estimate_text(text) > long { shortened(text, left).into_owned() } else { text.to_owned() }
}

/// Providers want thoughts back only while the turn goes on that they belong to.
fn without_thoughts(message: &Message) -> Message {
    let is_thought = |part: &Part| matches!(part, Part::Thought { .. });
    if !message.parts.iter().any(is_thought) {
        return message.clone();
    }
    let mut parts: Vec<Part> = message.parts.iter().filter(|part| !is_thought(part)).cloned().collect();
    if parts.is_empty() {
        // A message has to have something in it.
        parts.push(Part::Text { text: "[a thought was here]".to_owned() });
    }
    Message { role: message.role, parts }
}
