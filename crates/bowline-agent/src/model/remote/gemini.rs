//! Google's Gemini API.

use bowline_state::call_assembler::CallPiece;
use bowline_state::conversation::{Message, Part, Role, Thinking, ToolResult, ToolSpec, ToolUse, Usage};
use serde_json::{Value, json};

use super::content::{self, Content};
use super::reply::{Piece, text_at};
use crate::model::provider::Provider;
use crate::model::{ModelInfo, Request};

/// Stands for the signature of a call that has none, where the API wants one.
const NO_SIGNATURE: &str = "skip_thought_signature_validator";

/// Returns the body of a request.
pub(super) fn body(name: &str, info: &ModelInfo, request: &Request) -> Value {
    let config = content::object([
        ("thinkingConfig", info.thinking.then(|| thinking_config(name, request.thinking))),
        ("maxOutputTokens", request.max_output.map(Into::into)),
    ]);
    let messages = content::messages(request);
    content::object([
        ("generationConfig", Some(config)),
        ("systemInstruction", content::system(request).map(|system| json!({"parts": [{"text": system}]}))),
        ("tools", content::tools(request, tool).map(|tools| json!([{"functionDeclarations": tools}]))),
        ("contents", Some(messages.iter().flat_map(|message| contents(name, info, message)).collect())),
    ])
}

fn thinking_config(name: &str, thinking: Thinking) -> Value {
    let level = match thinking {
        Thinking::Default => None,
        // Of the older models only these can go without.
        Thinking::Off if name.contains("flash") => Some(("MINIMAL", 0)),
        Thinking::Off => Some(("MINIMAL", 1_000)),
        Thinking::Low => Some(("LOW", 1_000)),
        Thinking::Medium => Some(("MEDIUM", 8_000)),
        Thinking::High => Some(("HIGH", 24_000)),
    };
    let has_levels = name.contains("gemini-3") || name.contains("gemma-4");
    content::object([
        ("thinkingLevel", level.filter(|_| has_levels).map(|(level, _)| level.into())),
        ("thinkingBudget", level.filter(|_| !has_levels).map(|(_, budget)| budget.into())),
        ("includeThoughts", Some(true.into())),
    ])
}

fn tool(tool: &ToolSpec) -> Value {
    json!({"name": tool.name, "description": tool.description, "parametersJsonSchema": tool.schema})
}

/// Returns a message: none if it says nothing, two if tools gave pictures, which results cannot hold.
fn contents(name: &str, info: &ModelInfo, message: &Message) -> Vec<Value> {
    let parts = |contents: Vec<Content<'_>>| contents.into_iter().map(part).collect();
    let all: Vec<(_, Vec<Value>)> = match message.role {
        Role::User => vec![("user", parts(content::user_content(info, message)))],
        Role::Assistant => vec![("model", model_parts(name, message))],
        Role::Tool => vec![
            ("user", content::results(message).map(function_response).collect()),
            ("user", parts(content::result_images(info, message))),
        ],
    };
    let content = |(role, parts)| Some(json!({"role": role, "parts": content::list(parts)?}));
    all.into_iter().filter_map(content).collect()
}

fn part(content: Content<'_>) -> Value {
    match content {
        Content::Text(text) => json!({"text": text}),
        Content::Image { mime, data } => json!({"inline_data": {"mime_type": mime, "data": data}}),
    }
}

/// Returns the parts of a model's message. A signature goes back on the first call, or else on the text that follows it.
fn model_parts(name: &str, message: &Message) -> Vec<Value> {
    let (mut parts, mut signature) = (Vec::new(), None);
    let mut needed = Some(NO_SIGNATURE).filter(|_| name.contains("gemini-3"));
    for part in &message.parts {
        match part {
            Part::Text { text } if text.trim().is_empty() => (),
            Part::Text { text } => {
                let signature = if message.calls().next().is_none() { signature.take() } else { None };
                parts.push(signed(json!({"text": text}), signature));
            }
            Part::Thought { signature: Some(tagged), .. } => {
                signature = content::untag(Provider::Gemini, tagged).or(signature);
            }
            Part::Call(call) => {
                parts.push(signed(function_call(call), signature.take().or(needed)));
                needed = None;
            }
            // Thoughts without a signature; the model has none of the others.
            Part::Thought { .. } | Part::Image { .. } | Part::Result(_) => (),
        }
    }
    parts
}

fn signed(mut part: Value, signature: Option<&str>) -> Value {
    if let Some(signature) = signature {
        part["thoughtSignature"] = signature.into();
    }
    part
}

fn function_call(call: &ToolUse) -> Value {
    let (name, args) = (content::tool_name(&call.name), content::arguments(&call.input));
    json!({"functionCall": {"id": call.id, "name": name, "args": args}})
}

fn function_response(result: &ToolResult) -> Value {
    let (name, key) = (content::tool_name(&result.name), if result.failed { "error" } else { "output" });
    let response = json!({key: content::result_text(result)});
    json!({"functionResponse": {"id": result.id, "name": name, "response": response}})
}

/// Returns what an event says. Fields that are not known say nothing.
pub(super) fn read(event: &Value) -> Vec<Piece> {
    let mut pieces: Vec<_> = event.get("usageMetadata").map(usage).into_iter().collect();
    // There is no other end than a reason.
    let end = |reason: &str| [Piece::Stop(reason.to_owned()), Piece::End { has_open_calls: false }];
    let Some(candidate) = event.pointer("/candidates/0") else {
        let blocked = event.pointer("/promptFeedback/blockReason");
        pieces.extend(blocked.into_iter().flat_map(|_| end("refusal")));
        return pieces;
    };
    for part in candidate.pointer("/content/parts").and_then(Value::as_array).into_iter().flatten() {
        let signature = part.get("thoughtSignature").and_then(Value::as_str);
        pieces.extend(signature.map(|own| Piece::Signature(content::tag(Provider::Gemini, own))));
        let is_thought = part.get("thought").and_then(Value::as_bool) == Some(true);
        pieces.push(match part.get("functionCall") {
            Some(call) => {
                let (id, name) = (text_at(call, "/id"), text_at(call, "/name"));
                let arguments = call.get("args").map(Value::to_string).unwrap_or_default();
                Piece::Call(CallPiece { index: None, id, name, arguments })
            }
            None if is_thought => Piece::Thought(text_at(part, "/text")),
            None => Piece::Text(text_at(part, "/text")),
        });
    }
    let reason = candidate.get("finishReason").and_then(Value::as_str);
    pieces.extend(reason.into_iter().flat_map(end));
    pieces
}

fn usage(usage: &Value) -> Piece {
    let count = |name: &str| usage.get(name).and_then(Value::as_u64).unwrap_or(0);
    let thought = count("thoughtsTokenCount");
    Piece::Usage(Usage {
        input: count("promptTokenCount").saturating_add(count("toolUsePromptTokenCount")),
        output: count("candidatesTokenCount").saturating_add(thought),
        cache_read: count("cachedContentTokenCount"),
        cache_write: 0,
        thought,
    })
}

#[cfg(test)]
mod tests;
