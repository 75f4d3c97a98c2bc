//! Google's Gemini API.

use bowline_conversation::conversation::{
    ConversationMessage, MessagePart, MessageRole, ThinkingLevel, TokenUsage, ToolResult, ToolSpec, ToolUse,
};
use bowline_conversation::tool_call_assembler::ToolCallDelta;
use serde_json::{Value, json};

use super::content::{self, UserContent};
use super::reply::{ReplyPiece, string_at};
use crate::model::provider::Provider;
use crate::model::{ModelInfo, ModelRequest};

/// Replaces a missing call signature where the API requires one.
const NO_SIGNATURE: &str = "skip_thought_signature_validator";

/// Returns the body of a request.
pub(super) fn request_body(name: &str, info: &ModelInfo, request: &ModelRequest) -> Value {
    let config = content::json_object([
        ("thinkingConfig", info.supports_thinking.then(|| thinking_config(name, request.thinking))),
        ("maxOutputTokens", request.max_output.map(Into::into)),
    ]);
    content::json_object([
        ("generationConfig", Some(config)),
        (
            "systemInstruction",
            content::system_prompt(request).map(|system| json!({"parts": [{"text": system}]})),
        ),
        (
            "tools",
            content::tool_declarations(request, tool_declaration)
                .map(|tools| json!([{"functionDeclarations": tools}])),
        ),
        (
            "contents",
            Some(request.messages.iter().flat_map(|message| message_contents(name, info, message)).collect()),
        ),
    ])
}

fn thinking_config(name: &str, thinking: ThinkingLevel) -> Value {
    let level = match thinking {
        ThinkingLevel::Default => None,
        // Among the older models, only these can turn thinking off.
        ThinkingLevel::Off if name.contains("flash") => Some(("MINIMAL", 0)),
        ThinkingLevel::Off => Some(("MINIMAL", 1_000)),
        ThinkingLevel::Low => Some(("LOW", 1_000)),
        ThinkingLevel::Medium => Some(("MEDIUM", 8_000)),
        ThinkingLevel::High => Some(("HIGH", 24_000)),
    };
    let has_levels = name.contains("gemini-3") || name.contains("gemma-4");
    content::json_object([
        ("thinkingLevel", level.filter(|_| has_levels).map(|(level, _)| level.into())),
        ("thinkingBudget", level.filter(|_| !has_levels).map(|(_, budget)| budget.into())),
        ("includeThoughts", Some(true.into())),
    ])
}

fn tool_declaration(tool: &ToolSpec) -> Value {
    json!({"name": tool.name, "description": tool.description, "parametersJsonSchema": tool.schema})
}

/// Returns a message: none if it is empty, two if tools returned images, which results cannot contain.
fn message_contents(name: &str, info: &ModelInfo, message: &ConversationMessage) -> Vec<Value> {
    let parts = |contents: Vec<UserContent<'_>>| contents.into_iter().map(content_part).collect();
    let groups: Vec<(_, Vec<Value>)> = match message.role {
        MessageRole::User => vec![("user", parts(content::user_content(info, message)))],
        MessageRole::Assistant => vec![("model", model_parts(name, message))],
        MessageRole::Tool => vec![
            ("user", content::tool_results(message).map(function_response).collect()),
            ("user", parts(content::result_images(info, message))),
        ],
    };
    let content = |(role, parts)| Some(json!({"role": role, "parts": content::non_empty_array(parts)?}));
    groups.into_iter().filter_map(content).collect()
}

fn content_part(content: UserContent<'_>) -> Value {
    match content {
        UserContent::Text(text) => json!({"text": text}),
        UserContent::Image { mime, data } => json!({"inline_data": {"mime_type": mime, "data": data}}),
    }
}

/// Returns the parts of a model's message. A signature goes back on the first call, or else on the text that follows
/// it.
fn model_parts(name: &str, message: &ConversationMessage) -> Vec<Value> {
    let (mut parts, mut signature) = (Vec::new(), None);
    let mut fallback = Some(NO_SIGNATURE).filter(|_| name.contains("gemini-3"));
    for part in &message.parts {
        match part {
            MessagePart::Text { text } if text.trim().is_empty() => (),
            MessagePart::Text { text } => {
                let signature = if message.tool_uses().next().is_none() { signature.take() } else { None };
                parts.push(with_signature(json!({"text": text}), signature));
            }
            MessagePart::Thought { signature: Some(tagged), .. } => {
                signature = content::untag_signature(Provider::Gemini, tagged).or(signature);
            }
            MessagePart::Call(call) => {
                parts.push(with_signature(function_call(call), signature.take().or(fallback)));
                fallback = None;
            }
            // Thoughts without a signature are dropped; models send none of the others.
            MessagePart::Thought { .. } | MessagePart::Image { .. } | MessagePart::Result(_) => (),
        }
    }
    parts
}

fn with_signature(mut part: Value, signature: Option<&str>) -> Value {
    if let Some(signature) = signature {
        part["thoughtSignature"] = signature.into();
    }
    part
}

fn function_call(call: &ToolUse) -> Value {
    let (name, args) = (content::sanitize_tool_name(&call.name), content::call_arguments(&call.input));
    json!({"functionCall": {"id": call.id, "name": name, "args": args}})
}

fn function_response(result: &ToolResult) -> Value {
    let (name, key) =
        (content::sanitize_tool_name(&result.name), if result.failed { "error" } else { "output" });
    let response = json!({key: content::result_text(result)});
    json!({"functionResponse": {"id": result.id, "name": name, "response": response}})
}

/// Parses an event. Unknown fields are ignored.
pub(super) fn read_event(event: &Value) -> Vec<ReplyPiece> {
    let mut pieces: Vec<_> = event.get("usageMetadata").map(parse_usage).into_iter().collect();
    // The finish reason is the only end marker.
    let end = |reason: &str| [ReplyPiece::Stop(reason.to_owned()), ReplyPiece::End { has_open_calls: false }];
    let Some(candidate) = event.pointer("/candidates/0") else {
        let blocked = event.pointer("/promptFeedback/blockReason");
        pieces.extend(blocked.into_iter().flat_map(|_| end("refusal")));
        return pieces;
    };
    for part in candidate.pointer("/content/parts").and_then(Value::as_array).into_iter().flatten() {
        let signature = part.get("thoughtSignature").and_then(Value::as_str);
        pieces.extend(
            signature
                .map(|signature| ReplyPiece::Signature(content::tag_signature(Provider::Gemini, signature))),
        );
        let is_thought = part.get("thought").and_then(Value::as_bool) == Some(true);
        pieces.push(match part.get("functionCall") {
            Some(call) => {
                let (id, name) = (string_at(call, "/id"), string_at(call, "/name"));
                let arguments = call.get("args").map(Value::to_string).unwrap_or_default();
                ReplyPiece::Call(ToolCallDelta { index: None, id, name, arguments })
            }
            None if is_thought => ReplyPiece::Thought(string_at(part, "/text")),
            None => ReplyPiece::Text(string_at(part, "/text")),
        });
    }
    let reason = candidate.get("finishReason").and_then(Value::as_str);
    pieces.extend(reason.into_iter().flat_map(end));
    pieces
}

fn parse_usage(usage: &Value) -> ReplyPiece {
    let count = |name: &str| usage.get(name).and_then(Value::as_u64).unwrap_or(0);
    let thought = count("thoughtsTokenCount");
    ReplyPiece::Usage(TokenUsage {
        input: count("promptTokenCount").saturating_add(count("toolUsePromptTokenCount")),
        output: count("candidatesTokenCount").saturating_add(thought),
        cache_read: count("cachedContentTokenCount"),
        cache_write: 0,
        thought,
    })
}

#[cfg(test)]
mod tests;
