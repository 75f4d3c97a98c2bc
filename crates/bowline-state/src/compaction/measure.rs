//! How many tokens something takes, about, and cutting text to so many.
//!
//! Nobody but the provider knows. A token is about four letters of English or of code; of other scripts it is fewer.

use std::borrow::Cow;

use serde_json::Value;

use crate::conversation::{Input, Message, Part};

/// What a picture takes: what the larger providers count for one of a usual size.
const IMAGE: u64 = 1600;

/// What goes around a message or a part.
const AROUND: u64 = 4;

/// Room for the words that stand where something was cut out.
const NOTE: u64 = 12;

/// Returns how many tokens the messages take, about.
#[must_use]
pub fn estimate(messages: &[Message]) -> u64 {
    messages.iter().map(message).sum()
}

/// Returns how many tokens a text takes, about.
#[must_use]
pub fn estimate_text(text: &str) -> u64 {
    text.bytes().map(|byte| quarters(byte.is_ascii(), 1)).sum::<u64>().div_ceil(4)
}

pub(super) fn message(message: &Message) -> u64 {
    AROUND + message.parts.iter().map(part).sum::<u64>()
}

pub(super) fn value(value: &Value) -> u64 {
    match value {
        Value::Null | Value::Bool(_) => 1,
        Value::Number(_) => 2,
        Value::String(text) => estimate_text(text) + 1,
        Value::Array(items) => items.iter().map(self::value).sum::<u64>() + 1,
        Value::Object(fields) => {
            fields.iter().map(|(name, field)| estimate_text(name) + self::value(field) + 1).sum::<u64>() + 1
        }
    }
}

fn part(part: &Part) -> u64 {
    let inside = match part {
        Part::Text { text } => estimate_text(text),
        Part::Image { .. } => IMAGE,
        Part::Thought { text, signature } => {
            estimate_text(text) + signature.as_deref().map_or(0, estimate_text)
        }
        Part::Call(call) => {
            let input = match &call.input {
                Input::Value(input) => value(input),
                Input::Broken { text, why } => estimate_text(text) + estimate_text(why),
            };
            estimate_text(&call.name) + estimate_text(&call.id) + input
        }
        Part::Result(result) => {
            estimate_text(&result.text) + estimate_text(&result.id) + IMAGE * result.images.len() as u64
        }
    };
    AROUND + inside
}

/// Returns the text with so much cut out of its middle that it takes at most about that many tokens.
pub(super) fn shortened(text: &str, tokens: u64) -> Cow<'_, str> {
    if estimate_text(text) <= tokens {
        return text.into();
    }
    let room = tokens.saturating_sub(NOTE) * 4;
    let head = fitting(text.chars(), room * 2 / 3);
    let tail = fitting(text[head..].chars().rev(), room / 3);
    let left_out = text.len() - head - tail;
    format!("{}\n[{left_out} bytes left out]\n{}", &text[..head], &text[text.len() - tail..]).into()
}

/// Returns how many bytes the first characters have that fit into so many quarters of a token.
fn fitting(characters: impl Iterator<Item = char>, room: u64) -> usize {
    let mut taken = 0;
    let mut bytes = 0;
    for character in characters {
        taken += quarters(character.is_ascii(), character.len_utf8() as u64);
        if taken > room {
            break;
        }
        bytes += character.len_utf8();
    }
    bytes
}

fn quarters(ascii: bool, bytes: u64) -> u64 {
    if ascii { bytes } else { bytes * 2 }
}
