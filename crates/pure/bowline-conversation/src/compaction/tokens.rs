//! Token estimates, and truncation of text to a number of tokens.
//!
//! Only the provider knows the exact count. A token is about four letters of English or code, and fewer letters in
//! other scripts.

use std::borrow::Cow;

use serde_json::Value;

use crate::conversation::{ConversationMessage, MessagePart, ToolUseInput};

/// The tokens of an image: the larger providers' count for a typical size.
const IMAGE_TOKENS: u64 = 1600;

/// The overhead of a message or a part.
const OVERHEAD_TOKENS: u64 = 4;

/// The room for the note that marks an omission.
const OMISSION_NOTE_TOKENS: u64 = 12;

/// Returns the approximate number of tokens in the messages.
#[must_use]
pub fn estimate_messages(messages: &[ConversationMessage]) -> u64 {
    messages.iter().map(estimate_message).sum()
}

/// Returns the approximate number of tokens in a text.
#[must_use]
pub fn estimate_text(text: &str) -> u64 {
    text.bytes().map(|byte| quarter_tokens(byte.is_ascii(), 1)).sum::<u64>().div_ceil(4)
}

pub(super) fn estimate_message(message: &ConversationMessage) -> u64 {
    OVERHEAD_TOKENS + message.parts.iter().map(estimate_part).sum::<u64>()
}

pub(super) fn estimate_value(value: &Value) -> u64 {
    match value {
        Value::Null | Value::Bool(_) => 1,
        Value::Number(_) => 2,
        Value::String(text) => estimate_text(text) + 1,
        Value::Array(items) => items.iter().map(self::estimate_value).sum::<u64>() + 1,
        Value::Object(fields) => {
            fields
                .iter()
                .map(|(name, field)| estimate_text(name) + self::estimate_value(field) + 1)
                .sum::<u64>()
                + 1
        }
    }
}

fn estimate_part(part: &MessagePart) -> u64 {
    let inside = match part {
        MessagePart::Text { text } => estimate_text(text),
        MessagePart::Image { .. } => IMAGE_TOKENS,
        MessagePart::Thought { text, signature } => {
            estimate_text(text) + signature.as_deref().map_or(0, estimate_text)
        }
        MessagePart::Call(call) => {
            let input = match &call.input {
                ToolUseInput::Value(input) => estimate_value(input),
                ToolUseInput::Broken { text, why } => estimate_text(text) + estimate_text(why),
            };
            estimate_text(&call.name) + estimate_text(&call.id) + input
        }
        MessagePart::Result(result) => {
            estimate_text(&result.text)
                + estimate_text(&result.id)
                + IMAGE_TOKENS * result.images.len() as u64
        }
    };
    OVERHEAD_TOKENS + inside
}

/// Returns the text with its middle removed, so that it has at most about `tokens` tokens.
pub(super) fn truncate_middle(text: &str, tokens: u64) -> Cow<'_, str> {
    if estimate_text(text) <= tokens {
        return text.into();
    }
    let room = tokens.saturating_sub(OMISSION_NOTE_TOKENS) * 4;
    let head = bytes_that_fit(text.chars(), room * 2 / 3);
    let tail = bytes_that_fit(text[head..].chars().rev(), room / 3);
    let omitted = text.len() - head - tail;
    format!("{}\n[{omitted} bytes left out]\n{}", &text[..head], &text[text.len() - tail..]).into()
}

/// Returns the byte length of the leading characters that fit into `room` quarters of a token.
fn bytes_that_fit(characters: impl Iterator<Item = char>, room: u64) -> usize {
    let mut used = 0;
    let mut bytes = 0;
    for character in characters {
        used += quarter_tokens(character.is_ascii(), character.len_utf8() as u64);
        if used > room {
            break;
        }
        bytes += character.len_utf8();
    }
    bytes
}

fn quarter_tokens(ascii: bool, bytes: u64) -> u64 {
    if ascii { bytes } else { bytes * 2 }
}
