//! OpenAI's chat completions, also used by Ollama and many other servers.

use bowline_conversation::conversation::{
    ConversationMessage, MessagePart, MessageRole, ThinkingLevel, TokenUsage, ToolSpec, ToolUse,
};
use bowline_conversation::tool_call_assembler::ToolCallDelta;
use serde_json::{Value, json};

use super::content::{self, UserContent};
use super::reply::{ReplyPiece, string_at};
use crate::model::provider::Provider;
use crate::model::{ModelInfo, ModelRequest};

/// The data of the event that ends a reply.
pub(super) const DONE_MARKER: &str = "[DONE]";

/// Returns the path of chat completions, below the base URL.
pub(super) fn chat_path(provider: Provider) -> &'static str {
    if provider == Provider::Ollama { "v1/chat/completions" } else { "chat/completions" }
}

/// Returns the body of a request.
pub(super) fn request_body(
    provider: Provider,
    name: &str,
    info: &ModelInfo,
    request: &ModelRequest,
) -> Value {
    let conversation = &request.messages;
    let prompt_index =
        conversation.iter().rposition(|message| message.role == MessageRole::User).unwrap_or(0);
    let system = content::system_prompt(request).map(|system| json!({"role": "system", "content": system}));
    // Some servers require the thoughts of the current turn.
    let with_thoughts = |index| provider == Provider::Compatible && index > prompt_index;
    let messages = conversation.iter().enumerate();
    let messages = messages.flat_map(|(index, message)| to_messages(info, message, with_thoughts(index)));
    let uses_completion_limit =
        ["gpt-5", "gpt-6", "o1", "o3", "o4"].iter().any(|family| name.starts_with(family));
    content::json_object([
        ("model", Some(name.into())),
        ("stream", Some(true.into())),
        ("reasoning_effort", reasoning_effort(name, content::thinking_level(info, request)).map(Into::into)),
        ("tools", content::tool_declarations(request, tool_declaration)),
        ("messages", Some(system.into_iter().chain(messages).collect())),
        ("stream_options", Some(json!({"include_usage": true}))),
        (
            if uses_completion_limit { "max_completion_tokens" } else { "max_tokens" },
            request.max_output.map(Into::into),
        ),
    ])
}

fn reasoning_effort(name: &str, thinking: ThinkingLevel) -> Option<&'static str> {
    match thinking {
        ThinkingLevel::Default => None,
        // The first models of this family cannot turn thinking off.
        ThinkingLevel::Off if name == "gpt-5" || name.starts_with("gpt-5-") => Some("minimal"),
        ThinkingLevel::Off => Some("none"),
        ThinkingLevel::Low => Some("low"),
        ThinkingLevel::Medium => Some("medium"),
        ThinkingLevel::High => Some("high"),
    }
}

fn tool_declaration(tool: &ToolSpec) -> Value {
    let ToolSpec { name, description, schema } = tool;
    let function = json!({"name": name, "description": description, "parameters": schema, "strict": false});
    json!({"type": "function", "function": function})
}

/// Returns messages: a tool message becomes one for each result, and one for their images.
fn to_messages(info: &ModelInfo, message: &ConversationMessage, with_thoughts: bool) -> Vec<Value> {
    match message.role {
        MessageRole::User => vec![user_message(&content::user_content(info, message))],
        MessageRole::Assistant => assistant_message(message, with_thoughts).into_iter().collect(),
        MessageRole::Tool => {
            let results = content::tool_results(message).map(|result| {
                json!({"role": "tool", "content": content::result_text(result), "tool_call_id": result.id})
            });
            let images = content::result_images(info, message);
            results.chain((!images.is_empty()).then(|| user_message(&images))).collect()
        }
    }
}

/// Returns a user's message: plain text if there are no images, as not every server accepts lists.
fn user_message(contents: &[UserContent<'_>]) -> Value {
    let part = |content: &UserContent<'_>| match content {
        UserContent::Text(text) => json!({"type": "text", "text": text}),
        UserContent::Image { mime, data } => {
            json!({"type": "image_url", "image_url": {"url": format!("data:{mime};base64,{data}")}})
        }
    };
    let texts = contents.iter().map(|content| match content {
        UserContent::Text(text) => Some(*text),
        UserContent::Image { .. } => None,
    });
    let content: Value = match texts.collect::<Option<Vec<_>>>() {
        Some(texts) => texts.join("\n\n").into(),
        None => contents.iter().map(part).collect(),
    };
    json!({"role": "user", "content": content})
}

fn assistant_message(message: &ConversationMessage, with_thoughts: bool) -> Option<Value> {
    let (mut texts, mut calls, mut thoughts) = (Vec::new(), Vec::new(), Vec::new());
    for part in &message.parts {
        match part {
            MessagePart::Text { text } if !text.trim().is_empty() => texts.push(text.as_str()),
            MessagePart::Thought { text, signature: None } if with_thoughts && !text.is_empty() => {
                thoughts.push(text.as_str());
            }
            MessagePart::Call(call) => calls.push(tool_call(call)),
            // Thoughts of other turns are dropped; models send no images or results.
            MessagePart::Text { .. }
            | MessagePart::Thought { .. }
            | MessagePart::Image { .. }
            | MessagePart::Result(_) => (),
        }
    }
    let has_content = !(texts.is_empty() && calls.is_empty() && thoughts.is_empty());
    has_content.then(|| {
        content::json_object([
            ("role", Some("assistant".into())),
            ("content", Some(texts.join("\n\n").into())),
            ("tool_calls", content::non_empty_array(calls)),
            ("reasoning_content", (!thoughts.is_empty()).then(|| thoughts.join("\n").into())),
        ])
    })
}

fn tool_call(call: &ToolUse) -> Value {
    let (name, arguments) =
        (content::sanitize_tool_name(&call.name), content::call_arguments(&call.input).to_string());
    json!({"type": "function", "id": call.id, "function": {"name": name, "arguments": arguments}})
}

/// Parses an event. Unknown fields are ignored.
pub(super) fn read_event(event: &Value) -> Vec<ReplyPiece> {
    let usage = event.get("usage").filter(|usage| usage.is_object()).map(parse_usage);
    let mut pieces: Vec<_> = usage.into_iter().collect();
    let Some(choice) = event.pointer("/choices/0") else { return pieces };
    let thoughts = ["/delta/reasoning_content", "/delta/reasoning"].map(|pointer| string_at(choice, pointer));
    pieces.extend(thoughts.into_iter().find(|thought| !thought.is_empty()).map(ReplyPiece::Thought));
    pieces.push(ReplyPiece::Text(string_at(choice, "/delta/content")));
    // Mistral's thinking models send lists of typed chunks.
    for chunk in choice.pointer("/delta/content").and_then(Value::as_array).into_iter().flatten() {
        let (thought, text) = (string_at(chunk, "/thinking/0/text"), string_at(chunk, "/text"));
        pieces.extend([ReplyPiece::Thought(thought), ReplyPiece::Text(text)]);
    }
    let calls = choice.pointer("/delta/tool_calls").and_then(Value::as_array);
    for (position, call) in calls.into_iter().flatten().enumerate() {
        // Some servers omit the index.
        let index = Some(call.get("index").and_then(Value::as_u64).unwrap_or(position as u64));
        let arguments = match call.pointer("/function/arguments") {
            Some(arguments @ Value::Object(_)) => arguments.to_string(),
            _ => string_at(call, "/function/arguments"),
        };
        let (id, name) = (string_at(call, "/id"), string_at(call, "/function/name"));
        pieces.push(ReplyPiece::Call(ToolCallDelta { index, id, name, arguments }));
    }
    let reason = choice.get("finish_reason").and_then(Value::as_str);
    pieces.extend(reason.map(|reason| ReplyPiece::Stop(reason.to_owned())));
    pieces
}

fn parse_usage(usage: &Value) -> ReplyPiece {
    let count = |pointer: &str| usage.pointer(pointer).and_then(Value::as_u64).unwrap_or(0);
    ReplyPiece::Usage(TokenUsage {
        input: count("/prompt_tokens"),
        output: count("/completion_tokens"),
        cache_read: count("/prompt_tokens_details/cached_tokens"),
        cache_write: 0,
        thought: count("/completion_tokens_details/reasoning_tokens"),
    })
}

#[cfg(test)]
mod tests;
