//! OpenAI's chat completions, which Ollama and many other servers speak too.

use bowline_state::call_assembler::CallPiece;
use bowline_state::conversation::{Message, Part, Role, Thinking, ToolSpec, ToolUse, Usage};
use serde_json::{Value, json};

use super::content::{self, Content};
use super::reply::{Piece, text_at};
use crate::model::provider::Provider;
use crate::model::{ModelInfo, Request};

/// The data of the event that ends a reply.
pub(super) const DONE: &str = "[DONE]";

/// Returns where chat completions are, below the base URL.
pub(super) fn path(provider: Provider) -> &'static str {
    if provider == Provider::Ollama { "v1/chat/completions" } else { "chat/completions" }
}

/// Returns the body of a request.
pub(super) fn body(provider: Provider, name: &str, info: &ModelInfo, request: &Request) -> Value {
    let conversation = content::messages(request);
    let asked = conversation.iter().rposition(|message| message.role == Role::User).unwrap_or(0);
    let system = content::system(request).map(|system| json!({"role": "system", "content": system}));
    // Some servers want the thoughts of the current turn back.
    let with_thoughts = |at| provider == Provider::Compatible && at > asked;
    let messages = conversation.iter().enumerate();
    let messages = messages.flat_map(|(at, message)| to_messages(info, message, with_thoughts(at)));
    let renamed = ["gpt-5", "gpt-6", "o1", "o3", "o4"].iter().any(|family| name.starts_with(family));
    content::object([
        ("model", Some(name.into())),
        ("stream", Some(true.into())),
        ("reasoning_effort", effort(name, content::thinking(info, request)).map(Into::into)),
        ("tools", content::tools(request, tool)),
        ("messages", Some(system.into_iter().chain(messages).collect())),
        ("stream_options", Some(json!({"include_usage": true}))),
        (if renamed { "max_completion_tokens" } else { "max_tokens" }, request.max_output.map(Into::into)),
    ])
}

fn effort(name: &str, thinking: Thinking) -> Option<&'static str> {
    match thinking {
        Thinking::Default => None,
        // The first models of this family cannot go without.
        Thinking::Off if name == "gpt-5" || name.starts_with("gpt-5-") => Some("minimal"),
        Thinking::Off => Some("none"),
        Thinking::Low => Some("low"),
        Thinking::Medium => Some("medium"),
        Thinking::High => Some("high"),
    }
}

fn tool(tool: &ToolSpec) -> Value {
    let ToolSpec { name, description, schema } = tool;
    let function = json!({"name": name, "description": description, "parameters": schema, "strict": false});
    json!({"type": "function", "function": function})
}

/// Returns a message: a message of tools is one for each result, and one for their pictures.
fn to_messages(info: &ModelInfo, message: &Message, with_thoughts: bool) -> Vec<Value> {
    match message.role {
        Role::User => vec![user_message(&content::user_content(info, message))],
        Role::Assistant => assistant_message(message, with_thoughts).into_iter().collect(),
        Role::Tool => {
            let results = content::results(message).map(|result| {
                json!({"role": "tool", "content": content::result_text(result), "tool_call_id": result.id})
            });
            let images = content::result_images(info, message);
            results.chain((!images.is_empty()).then(|| user_message(&images))).collect()
        }
    }
}

/// Returns a user's message: a plain text where there are no pictures, as not every server takes lists.
fn user_message(contents: &[Content<'_>]) -> Value {
    let part = |content: &Content<'_>| match content {
        Content::Text(text) => json!({"type": "text", "text": text}),
        Content::Image { mime, data } => {
            json!({"type": "image_url", "image_url": {"url": format!("data:{mime};base64,{data}")}})
        }
    };
    let texts = contents.iter().map(|content| match content {
        Content::Text(text) => Some(*text),
        Content::Image { .. } => None,
    });
    let content: Value = match texts.collect::<Option<Vec<_>>>() {
        Some(texts) => texts.join("\n\n").into(),
        None => contents.iter().map(part).collect(),
    };
    json!({"role": "user", "content": content})
}

fn assistant_message(message: &Message, with_thoughts: bool) -> Option<Value> {
    let (mut texts, mut calls, mut thoughts) = (Vec::new(), Vec::new(), Vec::new());
    for part in &message.parts {
        match part {
            Part::Text { text } if !text.trim().is_empty() => texts.push(text.as_str()),
            Part::Thought { text, signature: None } if with_thoughts && !text.is_empty() => {
                thoughts.push(text.as_str());
            }
            Part::Call(call) => calls.push(tool_call(call)),
            // Thoughts of others; the model has no pictures and no results.
            Part::Text { .. } | Part::Thought { .. } | Part::Image { .. } | Part::Result(_) => (),
        }
    }
    let says_something = !(texts.is_empty() && calls.is_empty() && thoughts.is_empty());
    says_something.then(|| {
        content::object([
            ("role", Some("assistant".into())),
            ("content", Some(texts.join("\n\n").into())),
            ("tool_calls", content::list(calls)),
            ("reasoning_content", (!thoughts.is_empty()).then(|| thoughts.join("\n").into())),
        ])
    })
}

fn tool_call(call: &ToolUse) -> Value {
    let (name, arguments) = (content::tool_name(&call.name), content::arguments(&call.input).to_string());
    json!({"type": "function", "id": call.id, "function": {"name": name, "arguments": arguments}})
}

/// Returns what an event says. Fields that are not known say nothing.
pub(super) fn read(event: &Value) -> Vec<Piece> {
    let usage = event.get("usage").filter(|usage| usage.is_object()).map(usage);
    let mut pieces: Vec<_> = usage.into_iter().collect();
    let Some(choice) = event.pointer("/choices/0") else { return pieces };
    let thoughts = ["/delta/reasoning_content", "/delta/reasoning"].map(|place| text_at(choice, place));
    pieces.extend(thoughts.into_iter().find(|thought| !thought.is_empty()).map(Piece::Thought));
    pieces.push(Piece::Text(text_at(choice, "/delta/content")));
    // Mistral's models that think send lists of typed chunks.
    for chunk in choice.pointer("/delta/content").and_then(Value::as_array).into_iter().flatten() {
        let (thought, text) = (text_at(chunk, "/thinking/0/text"), text_at(chunk, "/text"));
        pieces.extend([Piece::Thought(thought), Piece::Text(text)]);
    }
    let calls = choice.pointer("/delta/tool_calls").and_then(Value::as_array);
    for (position, call) in calls.into_iter().flatten().enumerate() {
        // Some servers leave the index out.
        let index = Some(call.get("index").and_then(Value::as_u64).unwrap_or(position as u64));
        let arguments = match call.pointer("/function/arguments") {
            Some(arguments @ Value::Object(_)) => arguments.to_string(),
            _ => text_at(call, "/function/arguments"),
        };
        let (id, name) = (text_at(call, "/id"), text_at(call, "/function/name"));
        pieces.push(Piece::Call(CallPiece { index, id, name, arguments }));
    }
    let reason = choice.get("finish_reason").and_then(Value::as_str);
    pieces.extend(reason.map(|reason| Piece::Stop(reason.to_owned())));
    pieces
}

fn usage(usage: &Value) -> Piece {
    let count = |place: &str| usage.pointer(place).and_then(Value::as_u64).unwrap_or(0);
    Piece::Usage(Usage {
        input: count("/prompt_tokens"),
        output: count("/completion_tokens"),
        cache_read: count("/prompt_tokens_details/cached_tokens"),
        cache_write: 0,
        thought: count("/completion_tokens_details/reasoning_tokens"),
    })
}

#[cfg(test)]
mod tests;
