//! Anthropic's Messages API.

use std::collections::BTreeSet;

use bowline_state::call_assembler::CallPiece;
use bowline_state::conversation::{Message, Part, Role, Thinking, ToolResult, ToolSpec, Usage};
use serde_json::{Value, json};

use super::content::{self, Content};
use super::reply::{Piece, text_at};
use crate::model::provider::Provider;
use crate::model::{ModelInfo, Request};

/// What the signature of a hidden thought begins with: the rest is all there is of the thought.
const HIDDEN: &str = "anthropic-hidden:";

/// Returns the body of a request.
pub(super) fn body(name: &str, info: &ModelInfo, request: &Request) -> Value {
    let cached = || json!({"type": "ephemeral"});
    let system = |system| json!([{"type": "text", "text": system, "cache_control": cached()}]);
    let messages = content::messages(request);
    let mut messages: Vec<_> = messages.iter().filter_map(|one| message(info, request, one)).collect();
    if let Some(block) = messages.last_mut().and_then(|last| last["content"].as_array_mut()?.last_mut()) {
        // The conversation so far is cached, as the next request begins with it; so are the tools and the system prompt.
        block["cache_control"] = cached();
    }
    let max_tokens = request.max_output.unwrap_or_else(|| max_tokens(name));
    let (thinking, output_config) = thinking(name, info, request, max_tokens);
    content::object([
        ("model", Some(name.into())),
        ("stream", Some(true.into())),
        ("system", content::system(request).map(system)),
        ("tools", content::tools(request, tool)),
        ("messages", Some(messages.into())),
        ("thinking", thinking),
        ("output_config", output_config),
        ("max_tokens", Some(max_tokens.into())),
    ])
}

fn tool(tool: &ToolSpec) -> Value {
    json!({"name": tool.name, "input_schema": tool.schema, "description": tool.description})
}

fn message(info: &ModelInfo, request: &Request, message: &Message) -> Option<Value> {
    let (role, blocks): (_, Vec<Value>) = match message.role {
        Role::User => ("user", content::user_content(info, message).into_iter().map(block).collect()),
        Role::Assistant => ("assistant", assistant_blocks(request, message)),
        Role::Tool => ("user", content::results(message).map(|result| tool_result(info, result)).collect()),
    };
    Some(json!({"role": role, "content": content::list(blocks)?}))
}

fn block(content: Content<'_>) -> Value {
    match content {
        Content::Text(text) => json!({"type": "text", "text": text}),
        Content::Image { mime, data } => {
            json!({"type": "image", "source": {"type": "base64", "media_type": mime, "data": data}})
        }
    }
}

/// Returns the blocks of a model's message: thoughts come first.
fn assistant_blocks(request: &Request, message: &Message) -> Vec<Value> {
    let (mut thoughts, mut blocks) = (Vec::new(), Vec::new());
    for part in &message.parts {
        match part {
            Part::Text { text } if text.trim().is_empty() => (),
            Part::Text { text } => blocks.push(block(Content::Text(text))),
            Part::Thought { text, signature: Some(signature) } if request.thinking != Thinking::Off => {
                if let Some(signature) = content::untag(Provider::Anthropic, signature) {
                    thoughts.push(json!({"type": "thinking", "thinking": text, "signature": signature}));
                } else if let Some(data) = signature.strip_prefix(HIDDEN) {
                    thoughts.push(json!({"type": "redacted_thinking", "data": data}));
                }
            }
            Part::Call(call) => {
                let (name, input) = (content::tool_name(&call.name), content::arguments(&call.input));
                blocks.push(json!({"type": "tool_use", "id": call.id, "name": name, "input": input}));
            }
            // Thoughts that Anthropic did not sign; the model has none of the others.
            Part::Thought { .. } | Part::Image { .. } | Part::Result(_) => (),
        }
    }
    thoughts.extend(blocks);
    thoughts
}

fn tool_result(info: &ModelInfo, result: &ToolResult) -> Value {
    let images = result.images.iter().filter(|_| info.images);
    let images = images.map(|(mime, data)| Content::Image { mime, data });
    let text = Content::Text(content::result_text(result));
    let content: Vec<_> = std::iter::once(text).chain(images).map(block).collect();
    json!({"type": "tool_result", "tool_use_id": result.id, "is_error": result.failed, "content": content})
}

/// Returns how much a model is to think, as `thinking` and `output_config`.
fn thinking(name: &str, info: &ModelInfo, request: &Request, limit: u32) -> (Option<Value>, Option<Value>) {
    let (effort, budget) = match content::thinking(info, request) {
        Thinking::Default => return (None, None),
        Thinking::Off => ("", 0),
        Thinking::Low => ("low", 1_024),
        Thinking::Medium => ("medium", 8_000),
        Thinking::High => ("high", 24_000),
    };
    let always_thinks = name.contains("fable") || name.contains("mythos");
    let is_since = |since: (u32, u32)| version(name).is_some_and(|version| version >= since);
    // A reply that may not be longer than the thoughts before it is refused.
    if budget == 0 || limit <= budget || !is_thought_through(request) {
        // The newest think unless they are told not to.
        ((is_since((5, 0)) && !always_thinks).then(|| json!({"type": "disabled"})), None)
    } else if is_since((4, 6)) || always_thinks {
        (Some(json!({"type": "adaptive", "display": "summarized"})), Some(json!({"effort": effort})))
    } else {
        (Some(json!({"type": "enabled", "budget_tokens": budget})), None)
    }
}

/// Says whether each call since the user spoke was thought about with Anthropic, which refuses to think in the middle of a
/// turn that began without.
fn is_thought_through(request: &Request) -> bool {
    let asked = request.messages.iter().rposition(|message| message.role == Role::User).unwrap_or(0);
    let is_signed = |part: &Part| {
        matches!(part, Part::Thought { signature: Some(signature), .. }
            if content::untag(Provider::Anthropic, signature).is_some() || signature.starts_with(HIDDEN))
    };
    let mut messages = request.messages.iter().skip(asked);
    messages.all(|message| message.calls().next().is_none() || message.parts.iter().any(is_signed))
}

/// Returns the longest reply of a model, in tokens: the API wants to be told one.
fn max_tokens(name: &str) -> u32 {
    match version(name) {
        Some(version) if version < (4, 0) => 4_096,
        Some(version) if version < (4, 5) => 32_000,
        _ => 64_000,
    }
}

/// Returns the version in a model's name: 4 and 5 for `claude-sonnet-4-5-20250929`.
fn version(name: &str) -> Option<(u32, u32)> {
    let words = name.split(|c: char| !c.is_ascii_alphanumeric());
    // A longer number is a date.
    let mut numbers = words.filter(|word| word.len() <= 2).filter_map(|word| word.parse().ok());
    Some((numbers.next()?, numbers.next().unwrap_or(0)))
}

/// Reads the events of one reply.
#[derive(Debug, Default)]
pub(super) struct EventReader {
    // Of the thought that is open.
    signature: String,
    // The indices of calls that are open.
    open: BTreeSet<u64>,
    // Its input leaves out what came from the cache or went there.
    usage: Usage,
}

impl EventReader {
    /// Returns what an event says. Types of events and blocks that are not known say nothing.
    pub(super) fn read(&mut self, kind: &str, event: &Value) -> Vec<Piece> {
        let index = event.get("index").and_then(Value::as_u64).unwrap_or(u64::MAX);
        let at = |place: &str| text_at(event, place);
        let piece = match (kind, at("/content_block/type").as_str(), at("/delta/type").as_str()) {
            ("message_start", ..) => self.count(event.pointer("/message/usage")),
            ("message_delta", ..) => {
                let reason = event.pointer("/delta/stop_reason").and_then(Value::as_str);
                let stop = reason.map(|reason| Piece::Stop(reason.to_owned()));
                return self.count(event.get("usage")).into_iter().chain(stop).collect();
            }
            ("content_block_start", "tool_use", _) => {
                self.open.insert(index);
                let (id, name) = (at("/content_block/id"), at("/content_block/name"));
                Some(Piece::Call(CallPiece { index: Some(index), id, name, arguments: String::new() }))
            }
            ("content_block_start", "thinking", _) => {
                self.signature = at("/content_block/signature");
                Some(Piece::Thought(at("/content_block/thinking")))
            }
            ("content_block_start", "redacted_thinking", _) => {
                Some(Piece::Signature(format!("{HIDDEN}{}", at("/content_block/data"))))
            }
            ("content_block_start", "text", _) => Some(Piece::Text(at("/content_block/text"))),
            ("content_block_delta", _, "text_delta") => Some(Piece::Text(at("/delta/text"))),
            ("content_block_delta", _, "thinking_delta") => Some(Piece::Thought(at("/delta/thinking"))),
            ("content_block_delta", _, "signature_delta") => {
                self.signature.push_str(&at("/delta/signature"));
                None
            }
            ("content_block_delta", _, "input_json_delta") if self.open.contains(&index) => {
                let arguments = at("/delta/partial_json");
                Some(Piece::Call(CallPiece { index: Some(index), arguments, ..CallPiece::default() }))
            }
            ("content_block_stop", ..) => {
                self.open.remove(&index);
                let signature = std::mem::take(&mut self.signature);
                let signature = Some(signature).filter(|signature| !signature.is_empty());
                signature.map(|signature| Piece::Signature(content::tag(Provider::Anthropic, &signature)))
            }
            ("message_stop", ..) => Some(Piece::End { has_open_calls: !self.open.is_empty() }),
            _ => None,
        };
        piece.into_iter().collect()
    }

    /// Returns the usage so far: the end of a reply completes, or repeats, what its beginning said.
    fn count(&mut self, usage: Option<&Value>) -> Option<Piece> {
        let said = usage?;
        let Usage { input, output, cache_read, cache_write, thought } = &mut self.usage;
        let set =
            |count: &mut u64, place| *count = said.pointer(place).and_then(Value::as_u64).unwrap_or(*count);
        set(input, "/input_tokens");
        set(output, "/output_tokens");
        set(cache_read, "/cache_read_input_tokens");
        set(cache_write, "/cache_creation_input_tokens");
        set(thought, "/output_tokens_details/thinking_tokens");
        let input = input.saturating_add(*cache_read).saturating_add(*cache_write);
        Some(Piece::Usage(Usage { input, ..self.usage }))
    }
}

#[cfg(test)]
mod tests;
