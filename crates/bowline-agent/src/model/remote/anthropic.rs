//! Anthropic's Messages API.

use std::collections::BTreeSet;

use bowline_conversation::conversation::{
    ConversationMessage, MessagePart, MessageRole, ThinkingLevel, TokenUsage, ToolResult, ToolSpec,
};
use bowline_conversation::tool_call_assembler::ToolCallDelta;
use serde_json::{Value, json};

use super::content::{self, UserContent};
use super::reply::{ReplyPiece, string_at};
use crate::model::provider::Provider;
use crate::model::{ModelInfo, ModelRequest};

/// The prefix of a hidden thought's signature: the rest is its whole content.
const HIDDEN_THOUGHT_PREFIX: &str = "anthropic-hidden:";

/// Returns the body of a request.
pub(super) fn request_body(name: &str, info: &ModelInfo, request: &ModelRequest) -> Value {
    let cache_control = || json!({"type": "ephemeral"});
    let system = |system| json!([{"type": "text", "text": system, "cache_control": cache_control()}]);
    let mut messages: Vec<_> =
        request.messages.iter().filter_map(|message| message_json(info, request, message)).collect();
    if let Some(block) = messages.last_mut().and_then(|last| last["content"].as_array_mut()?.last_mut()) {
        // Caches the conversation so far, as the next request begins with it; also the tools and the system prompt.
        block["cache_control"] = cache_control();
    }
    let max_tokens = request.max_output.unwrap_or_else(|| max_tokens(name));
    let (thinking, output_config) = thinking(name, info, request, max_tokens);
    content::json_object([
        ("model", Some(name.into())),
        ("stream", Some(true.into())),
        ("system", content::system_prompt(request).map(system)),
        ("tools", content::tool_declarations(request, tool_declaration)),
        ("messages", Some(messages.into())),
        ("thinking", thinking),
        ("output_config", output_config),
        ("max_tokens", Some(max_tokens.into())),
    ])
}

fn tool_declaration(tool: &ToolSpec) -> Value {
    json!({"name": tool.name, "input_schema": tool.schema, "description": tool.description})
}

fn message_json(info: &ModelInfo, request: &ModelRequest, message: &ConversationMessage) -> Option<Value> {
    let (role, blocks): (_, Vec<Value>) = match message.role {
        MessageRole::User => ("user", content::user_content(info, message).into_iter().map(block).collect()),
        MessageRole::Assistant => ("assistant", assistant_blocks(request, message)),
        MessageRole::Tool => {
            ("user", content::tool_results(message).map(|result| tool_result(info, result)).collect())
        }
    };
    Some(json!({"role": role, "content": content::non_empty_array(blocks)?}))
}

fn block(content: UserContent<'_>) -> Value {
    match content {
        UserContent::Text(text) => json!({"type": "text", "text": text}),
        UserContent::Image { mime, data } => {
            json!({"type": "image", "source": {"type": "base64", "media_type": mime, "data": data}})
        }
    }
}

/// Returns the blocks of a model's message, thoughts first.
fn assistant_blocks(request: &ModelRequest, message: &ConversationMessage) -> Vec<Value> {
    let (mut thoughts, mut blocks) = (Vec::new(), Vec::new());
    for part in &message.parts {
        match part {
            MessagePart::Text { text } if text.trim().is_empty() => (),
            MessagePart::Text { text } => blocks.push(block(UserContent::Text(text))),
            MessagePart::Thought { text, signature: Some(signature) }
                if request.thinking != ThinkingLevel::Off =>
            {
                if let Some(signature) = content::untag_signature(Provider::Anthropic, signature) {
                    thoughts.push(json!({"type": "thinking", "thinking": text, "signature": signature}));
                } else if let Some(data) = signature.strip_prefix(HIDDEN_THOUGHT_PREFIX) {
                    thoughts.push(json!({"type": "redacted_thinking", "data": data}));
                }
            }
            MessagePart::Call(call) => {
                let (name, input) =
                    (content::sanitize_tool_name(&call.name), content::call_arguments(&call.input));
                blocks.push(json!({"type": "tool_use", "id": call.id, "name": name, "input": input}));
            }
            // Thoughts not signed by Anthropic are dropped; models send none of the others.
            MessagePart::Thought { .. } | MessagePart::Image { .. } | MessagePart::Result(_) => (),
        }
    }
    thoughts.extend(blocks);
    thoughts
}

fn tool_result(info: &ModelInfo, result: &ToolResult) -> Value {
    let images = result.images.iter().filter(|_| info.supports_images);
    let images = images.map(|(mime, data)| UserContent::Image { mime, data });
    let text = UserContent::Text(content::result_text(result));
    let content: Vec<_> = std::iter::once(text).chain(images).map(block).collect();
    json!({"type": "tool_result", "tool_use_id": result.id, "is_error": result.failed, "content": content})
}

/// Returns the thinking level, as `thinking` and `output_config`.
fn thinking(
    name: &str,
    info: &ModelInfo,
    request: &ModelRequest,
    limit: u32,
) -> (Option<Value>, Option<Value>) {
    let (effort, budget) = match content::thinking_level(info, request) {
        ThinkingLevel::Default => return (None, None),
        ThinkingLevel::Off => ("", 0),
        ThinkingLevel::Low => ("low", 1_024),
        ThinkingLevel::Medium => ("medium", 8_000),
        ThinkingLevel::High => ("high", 24_000),
    };
    let always_thinks = name.contains("fable") || name.contains("mythos");
    let is_at_least = |minimum: (u32, u32)| model_version(name).is_some_and(|version| version >= minimum);
    // The API rejects a token limit that does not exceed the thinking budget.
    if budget == 0 || limit <= budget || !has_signed_thoughts(request) {
        // The newest models think by default.
        ((is_at_least((5, 0)) && !always_thinks).then(|| json!({"type": "disabled"})), None)
    } else if is_at_least((4, 6)) || always_thinks {
        (Some(json!({"type": "adaptive", "display": "summarized"})), Some(json!({"effort": effort})))
    } else {
        (Some(json!({"type": "enabled", "budget_tokens": budget})), None)
    }
}

/// Returns whether each call since the user's last message has a thought signed by Anthropic. The API rejects thinking
/// in the middle of a turn that began without it.
fn has_signed_thoughts(request: &ModelRequest) -> bool {
    let prompt_index =
        request.messages.iter().rposition(|message| message.role == MessageRole::User).unwrap_or(0);
    let is_signed = |part: &MessagePart| {
        matches!(part, MessagePart::Thought { signature: Some(signature), .. }
            if content::untag_signature(Provider::Anthropic, signature).is_some() || signature.starts_with(HIDDEN_THOUGHT_PREFIX))
    };
    let mut messages = request.messages.iter().skip(prompt_index);
    messages.all(|message| message.tool_uses().next().is_none() || message.parts.iter().any(is_signed))
}

/// Returns the longest reply of a model, in tokens: the API requires a limit.
fn max_tokens(name: &str) -> u32 {
    match model_version(name) {
        Some(version) if version < (4, 0) => 4_096,
        Some(version) if version < (4, 5) => 32_000,
        _ => 64_000,
    }
}

/// Returns the version in a model's name: 4 and 5 for `claude-sonnet-4-5-20250929`.
fn model_version(name: &str) -> Option<(u32, u32)> {
    let words = name.split(|c: char| !c.is_ascii_alphanumeric());
    // Longer numbers are dates.
    let mut numbers = words.filter(|word| word.len() <= 2).filter_map(|word| word.parse().ok());
    Some((numbers.next()?, numbers.next().unwrap_or(0)))
}

/// Reads the events of one reply.
#[derive(Debug, Default)]
pub(super) struct EventReader {
    // The signature of the open thought.
    signature: String,
    // The indices of open calls.
    open_calls: BTreeSet<u64>,
    // Its input excludes tokens read from or written to the cache.
    usage: TokenUsage,
}

impl EventReader {
    /// Parses an event. Unknown types of events and blocks are ignored.
    pub(super) fn read(&mut self, kind: &str, event: &Value) -> Vec<ReplyPiece> {
        let index = event.get("index").and_then(Value::as_u64).unwrap_or(u64::MAX);
        let text_at = |pointer: &str| string_at(event, pointer);
        let piece = match (kind, text_at("/content_block/type").as_str(), text_at("/delta/type").as_str()) {
            ("message_start", ..) => self.update_usage(event.pointer("/message/usage")),
            ("message_delta", ..) => {
                let reason = event.pointer("/delta/stop_reason").and_then(Value::as_str);
                let stop = reason.map(|reason| ReplyPiece::Stop(reason.to_owned()));
                return self.update_usage(event.get("usage")).into_iter().chain(stop).collect();
            }
            ("content_block_start", "tool_use", _) => {
                self.open_calls.insert(index);
                let (id, name) = (text_at("/content_block/id"), text_at("/content_block/name"));
                Some(ReplyPiece::Call(ToolCallDelta {
                    index: Some(index),
                    id,
                    name,
                    arguments: String::new(),
                }))
            }
            ("content_block_start", "thinking", _) => {
                self.signature = text_at("/content_block/signature");
                Some(ReplyPiece::Thought(text_at("/content_block/thinking")))
            }
            ("content_block_start", "redacted_thinking", _) => Some(ReplyPiece::Signature(format!(
                "{HIDDEN_THOUGHT_PREFIX}{}",
                text_at("/content_block/data")
            ))),
            ("content_block_start", "text", _) => Some(ReplyPiece::Text(text_at("/content_block/text"))),
            ("content_block_delta", _, "text_delta") => Some(ReplyPiece::Text(text_at("/delta/text"))),
            ("content_block_delta", _, "thinking_delta") => {
                Some(ReplyPiece::Thought(text_at("/delta/thinking")))
            }
            ("content_block_delta", _, "signature_delta") => {
                self.signature.push_str(&text_at("/delta/signature"));
                None
            }
            ("content_block_delta", _, "input_json_delta") if self.open_calls.contains(&index) => {
                let arguments = text_at("/delta/partial_json");
                Some(ReplyPiece::Call(ToolCallDelta {
                    index: Some(index),
                    arguments,
                    ..ToolCallDelta::default()
                }))
            }
            ("content_block_stop", ..) => {
                self.open_calls.remove(&index);
                let signature = std::mem::take(&mut self.signature);
                let signature = Some(signature).filter(|signature| !signature.is_empty());
                signature.map(|signature| {
                    ReplyPiece::Signature(content::tag_signature(Provider::Anthropic, &signature))
                })
            }
            ("message_stop", ..) => Some(ReplyPiece::End { has_open_calls: !self.open_calls.is_empty() }),
            _ => None,
        };
        piece.into_iter().collect()
    }

    /// Returns the usage so far: the end of a reply completes or repeats the values of its beginning.
    fn update_usage(&mut self, usage: Option<&Value>) -> Option<ReplyPiece> {
        let usage = usage?;
        let TokenUsage { input, output, cache_read, cache_write, thought } = &mut self.usage;
        let set = |count: &mut u64, pointer| {
            *count = usage.pointer(pointer).and_then(Value::as_u64).unwrap_or(*count)
        };
        set(input, "/input_tokens");
        set(output, "/output_tokens");
        set(cache_read, "/cache_read_input_tokens");
        set(cache_write, "/cache_creation_input_tokens");
        set(thought, "/output_tokens_details/thinking_tokens");
        let input = input.saturating_add(*cache_read).saturating_add(*cache_write);
        Some(ReplyPiece::Usage(TokenUsage { input, ..self.usage }))
    }
}

#[cfg(test)]
mod tests;
