//! The model's replies in the format of each API.

use serde_json::{Value, json};

use super::{MODEL, ModelReply};

const EVENT_STREAM: &str = "text/event-stream";
const JSON: &str = "application/json";

/// Returns a response of the Gemini API and its content type, as events or as one object.
pub(super) fn gemini_reply(reply: &ModelReply, events: bool) -> (&'static str, String) {
    let part = match reply {
        ModelReply::Text(text) => json!({"text": text}),
        ModelReply::Call { name, args } => json!({"functionCall": {"name": name, "args": args}}),
    };
    let chunk = json!({
        "candidates": [{"index": 0, "finishReason": "STOP", "content": {"role": "model", "parts": [part]}}],
        "usageMetadata": {"promptTokenCount": 1, "candidatesTokenCount": 1, "totalTokenCount": 2},
    });
    if events { (EVENT_STREAM, format!("data: {chunk}\r\n\r\n")) } else { (JSON, chunk.to_string()) }
}

/// Returns a response of Anthropic's Messages API and its content type, as events or as one object. The number makes
/// ids unique.
pub(super) fn anthropic_reply(reply: &ModelReply, number: usize, events: bool) -> (&'static str, String) {
    let (block_start, delta, block, stop) = match reply {
        ModelReply::Text(text) => (
            json!({"type": "text", "text": ""}),
            json!({"type": "text_delta", "text": text}),
            json!({"type": "text", "text": text}),
            "end_turn",
        ),
        ModelReply::Call { name, args } => {
            let call = |input: &Value| json!({"type": "tool_use", "id": format!("toolu_{number}"), "name": name, "input": input});
            let delta = json!({"type": "input_json_delta", "partial_json": args.to_string()});
            (call(&json!({})), delta, call(args), "tool_use")
        }
    };
    let mut message = json!({
        "id": format!("msg_{number}"), "type": "message", "role": "assistant", "model": MODEL, "content": [],
        "stop_reason": null, "stop_sequence": null, "usage": {"input_tokens": 1, "output_tokens": 1},
    });
    if !events {
        message["content"] = json!([block]);
        message["stop_reason"] = json!(stop);
        return (JSON, message.to_string());
    }
    let end = json!({"stop_reason": stop, "stop_sequence": null});
    let events = [
        json!({"type": "message_start", "message": message}),
        json!({"type": "content_block_start", "index": 0, "content_block": block_start}),
        json!({"type": "content_block_delta", "index": 0, "delta": delta}),
        json!({"type": "content_block_stop", "index": 0}),
        json!({"type": "message_delta", "delta": end, "usage": {"output_tokens": 1}}),
        json!({"type": "message_stop"}),
    ];
    (EVENT_STREAM, named_events(&events))
}

/// Returns a response of OpenAI's Chat Completions API and its content type, as events or as one object. The number
/// makes ids unique.
pub(super) fn chat_reply(reply: &ModelReply, number: usize, events: bool) -> (&'static str, String) {
    let (delta, stop) = match reply {
        ModelReply::Text(text) => (json!({"role": "assistant", "content": text}), "stop"),
        ModelReply::Call { name, args } => {
            let function = json!({"name": name, "arguments": args.to_string()});
            let call =
                json!({"index": 0, "id": format!("call_{number}"), "type": "function", "function": function});
            (json!({"role": "assistant", "tool_calls": [call]}), "tool_calls")
        }
    };
    if !events {
        let choice = json!({"index": 0, "message": delta, "finish_reason": stop});
        return (JSON, json!({"object": "chat.completion", "choices": [choice]}).to_string());
    }
    let chunk = json!({"choices": [{"index": 0, "delta": delta}]});
    let end = json!({"choices": [{"index": 0, "delta": {}, "finish_reason": stop}]});
    (EVENT_STREAM, format!("data: {chunk}\n\ndata: {end}\n\ndata: [DONE]\n\n"))
}

/// Returns a response of OpenAI's Responses API and its content type. The number makes ids unique.
pub(super) fn responses_reply(reply: &ModelReply, number: usize) -> (&'static str, String) {
    let item = match reply {
        ModelReply::Text(text) => json!({
            "type": "message", "id": format!("msg_{number}"), "role": "assistant", "status": "completed",
            "content": [{"type": "output_text", "text": text, "annotations": []}],
        }),
        ModelReply::Call { name, args } => {
            let (namespace, name) = match name.split_once('.') {
                Some((namespace, name)) => (Some(namespace), name),
                None => (None, name.as_str()),
            };
            let mut call = json!({
                "type": "function_call", "id": format!("fc_{number}"), "call_id": format!("call_{number}"),
                "name": name, "arguments": args.to_string(), "status": "completed",
            });
            if let Some(namespace) = namespace {
                call["namespace"] = json!(namespace);
            }
            call
        }
    };
    let id = format!("resp_{number}");
    let usage = json!({
        "input_tokens": 1, "input_tokens_details": {"cached_tokens": 0},
        "output_tokens": 1, "output_tokens_details": {"reasoning_tokens": 0}, "total_tokens": 2,
    });
    let response =
        json!({"id": id, "object": "response", "status": "completed", "output": [item], "usage": usage});
    let events = [
        json!({"type": "response.created", "response": {"id": id}}),
        json!({"type": "response.output_item.done", "output_index": 0, "item": item}),
        json!({"type": "response.completed", "response": response}),
    ];
    (EVENT_STREAM, named_events(&events))
}

/// Formats events as an event stream, each with its type.
fn named_events(events: &[Value]) -> String {
    let named =
        |event: &Value| format!("event: {}\ndata: {event}\n\n", event["type"].as_str().unwrap_or_default());
    events.iter().map(named).collect()
}
