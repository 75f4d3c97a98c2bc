//! Shared helpers of model tests: a request, and a reply as text.

use std::fmt::Write as _;

use bowline_conversation::conversation::ToolUseInput;
use futures_util::StreamExt as _;

use super::*;

/// Returns a request with this conversation and tools of these names.
pub(super) fn request(messages: Vec<ConversationMessage>, tools: &[&str]) -> ModelRequest {
    let tool = |name: &&str| ToolSpec {
        name: (*name).to_owned(),
        description: "A tool.".to_owned(),
        schema: serde_json::json!({"type": "object"}),
    };
    ModelRequest {
        system_prompt: "Be good.".into(),
        messages: messages.into(),
        tools: tools.iter().map(tool).collect(),
        thinking: ThinkingLevel::Default,
        max_output: None,
    }
}

/// Formats a whole reply, one event per line.
pub(super) async fn format_reply(mut reply: ReplyStream) -> String {
    let mut out = String::new();
    while let Some(event) = reply.next().await {
        format_event(&mut out, event);
    }
    out
}

fn format_event(out: &mut String, event: Result<ReplyEvent, ModelError>) {
    match event {
        Ok(ReplyEvent::Text(text)) => writeln!(out, "text {text:?}"),
        Ok(ReplyEvent::Thought { text, signature: None }) => writeln!(out, "thought {text:?}"),
        Ok(ReplyEvent::Thought { text, signature: Some(signature) }) => {
            writeln!(out, "thought {text:?} signed {signature:?}")
        }
        Ok(ReplyEvent::Call(ToolUse { id, name, input: ToolUseInput::Value(input) })) => {
            writeln!(out, "call {id} {name} {input}")
        }
        Ok(ReplyEvent::Call(ToolUse { id, name, input: ToolUseInput::Broken { text, why } })) => {
            writeln!(out, "call {id} {name} broken {text:?}: {why}")
        }
        Ok(ReplyEvent::Retrying { why, attempt, .. }) => writeln!(out, "retrying after {attempt}: {why}"),
        Ok(ReplyEvent::Usage(usage)) => writeln!(out, "usage {} {}", usage.input, usage.output),
        Ok(ReplyEvent::End(stop)) => writeln!(out, "end {stop:?}"),
        Err(error) => writeln!(out, "! {error}"),
    }
    .unwrap();
}

#[test]
fn small_models_are_known_by_their_windows_and_their_names() {
    let rows = [
        ("compatible/qwen2.5-coder-1.5b-instruct", 128_000, true),
        ("ollama/qwen3:0.6b", 32_768, true),
        ("ollama/llama3.2:3B", 32_768, true),
        ("ollama/qwen3:8b", 32_768, false),
        ("compatible/Qwen3-30B-A3B", 128_000, false),
        ("compatible/mistral", 128_000, false),
        ("compatible/mistral", 8_192, true),
        ("openai/mini-1b", 8_192, false),
        ("offline", 1_000, false),
        ("script:a/1b", 1_000, false),
    ];
    for (name, window, expected) in rows {
        let info = ModelInfo {
            name: name.to_owned(),
            title: String::new(),
            context_window: window,
            supports_images: false,
            supports_thinking: false,
            price: None,
        };
        assert_eq!(info.is_small(), expected, "{name} {window}");
    }
}
