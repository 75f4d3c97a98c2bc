//! Trimming of long content: outputs of old steps and, if necessary, those of the last one.

use std::sync::Arc;

use serde_json::Value;

use super::tokens::{self, estimate_messages, truncate_middle};
use crate::conversation::{ConversationMessage, MessagePart, ToolResult, ToolUseInput};

/// Old tool outputs and inputs with more tokens than this are trimmed to [`TRIMMED_OUTPUT_TOKENS`].
const MAX_OUTPUT_TOKENS: u64 = 400;
const TRIMMED_OUTPUT_TOKENS: u64 = 100;

/// Old texts with more tokens than this, such as attached files, are trimmed to [`TRIMMED_TEXT_TOKENS`].
const MAX_OLD_TEXT_TOKENS: u64 = 2000;
const TRIMMED_TEXT_TOKENS: u64 = 1000;

/// The minimum size to which a kept text is trimmed.
const MIN_TEXT_TOKENS: u64 = 32;

/// Returns old messages with long tool outputs trimmed, and images and thoughts removed. Idempotent.
pub(super) fn trim_old_messages(messages: &[ConversationMessage]) -> Vec<ConversationMessage> {
    let limits = TrimLimits {
        output: (MAX_OUTPUT_TOKENS, TRIMMED_OUTPUT_TOKENS),
        text: (MAX_OLD_TEXT_TOKENS, TRIMMED_TEXT_TOKENS),
        keeps_images: false,
    };
    messages.iter().map(|message| limits.trim_message(&strip_thoughts(message))).collect()
}

/// Returns the kept messages: unchanged if they have at most `tokens` tokens, otherwise trimmed as little as possible.
/// Even full trimming may not make them fit.
pub(super) fn fit_messages(messages: &[ConversationMessage], tokens: u64) -> Vec<ConversationMessage> {
    let mut kept = messages.to_vec();
    let mut cap = tokens / 2;
    while estimate_messages(&kept) > tokens && cap >= MIN_TEXT_TOKENS {
        // Tool outputs can be obtained again, the user's words cannot: they are trimmed later and less.
        let hard = cap < tokens / 8;
        let text = if hard { (cap * 8, cap * 8) } else { (u64::MAX, u64::MAX) };
        let limits = TrimLimits { output: (cap, cap), text, keeps_images: !hard };
        kept = kept.iter().map(|message| limits.trim_message(message)).collect();
        if hard && estimate_messages(&kept) > tokens {
            // A provider may expect thoughts back, but it certainly rejects a request that does not fit.
            kept = kept.iter().map(strip_thoughts).collect();
        }
        cap /= 2;
    }
    kept
}

/// The token count above which content is trimmed, and the count it is trimmed to.
struct TrimLimits {
    output: (u64, u64),
    text: (u64, u64),
    keeps_images: bool,
}

impl TrimLimits {
    fn trim_message(&self, message: &ConversationMessage) -> ConversationMessage {
        ConversationMessage {
            role: message.role,
            parts: message.parts.iter().map(|part| self.trim_part(part)).collect(),
        }
    }

    fn trim_part(&self, part: &MessagePart) -> MessagePart {
        match part {
            MessagePart::Text { text } => MessagePart::Text { text: truncate_if_long(text, self.text) },
            MessagePart::Image { .. } if !self.keeps_images => {
                MessagePart::Text { text: "[a picture was here]".to_owned() }
            }
            MessagePart::Call(call) => {
                let mut call = call.clone();
                match &mut call.input {
                    ToolUseInput::Value(value) => self.trim_input(value),
                    ToolUseInput::Broken { text, .. } => *text = truncate_if_long(text, self.output),
                }
                MessagePart::Call(call)
            }
            MessagePart::Result(result) => MessagePart::Result(self.trim_result(result)),
            // A thought is signed as a whole, so it cannot be trimmed.
            MessagePart::Thought { .. } | MessagePart::Image { .. } => part.clone(),
        }
    }

    fn trim_input(&self, value: &mut Value) {
        match value {
            Value::String(text) => *text = truncate_if_long(text, self.output),
            Value::Array(items) => items.iter_mut().for_each(|item| self.trim_input(item)),
            Value::Object(fields) => fields.values_mut().for_each(|field| self.trim_input(field)),
            Value::Null | Value::Bool(_) | Value::Number(_) => {}
        }
    }

    fn trim_result(&self, result: &ToolResult) -> ToolResult {
        let mut text = truncate_if_long(&result.text, self.output);
        let images: Vec<(String, Arc<str>)> =
            if self.keeps_images { result.images.clone() } else { Vec::new() };
        if images.len() < result.images.len() {
            text.push_str("\n[a picture was here]");
        }
        ToolResult { id: result.id.clone(), name: result.name.clone(), text, images, failed: result.failed }
    }
}

fn truncate_if_long(text: &str, (long, left): (u64, u64)) -> String {
    if tokens::estimate_text(text) > long {
        truncate_middle(text, left).into_owned()
    } else {
        text.to_owned()
    }
}

/// Removes the thoughts of a message. Providers expect them back only during the turn to which they belong.
fn strip_thoughts(message: &ConversationMessage) -> ConversationMessage {
    let is_thought = |part: &MessagePart| matches!(part, MessagePart::Thought { .. });
    if !message.parts.iter().any(is_thought) {
        return message.clone();
    }
    let mut parts: Vec<MessagePart> =
        message.parts.iter().filter(|part| !is_thought(part)).cloned().collect();
    if parts.is_empty() {
        // A message must not be empty.
        parts.push(MessagePart::Text { text: "[a thought was here]".to_owned() });
    }
    ConversationMessage { role: message.role, parts }
}
