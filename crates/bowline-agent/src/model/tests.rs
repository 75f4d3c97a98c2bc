//! What tests of models share: a request, and a reply as text.

use std::fmt::Write as _;

use bowline_state::conversation::Input;
use futures_util::StreamExt as _;

use super::*;

/// Returns a request with this conversation and tools of these names.
pub(super) fn request(messages: Vec<Message>, tools: &[&str]) -> Request {
    let tool = |name: &&str| ToolSpec {
        name: (*name).to_owned(),
        description: "A tool.".to_owned(),
        schema: serde_json::json!({"type": "object"}),
    };
    Request {
        system: "Be good.".into(),
        messages: messages.into(),
        tools: tools.iter().map(tool).collect(),
        thinking: Thinking::Default,
        max_output: None,
        by_words: false,
    }
}

/// Returns a reply, an event a line, to its end.
pub(super) async fn told(mut reply: Reply) -> String {
    let mut out = String::new();
    while let Some(event) = reply.next().await {
        tell(&mut out, event);
    }
    out
}

fn tell(out: &mut String, event: Result<Event, ModelError>) {
    match event {
        Ok(Event::Text(text)) => writeln!(out, "text {text:?}"),
        Ok(Event::Thought { text, signature: None }) => writeln!(out, "thought {text:?}"),
        Ok(Event::Thought { text, signature: Some(signature) }) => {
            writeln!(out, "thought {text:?} signed {signature:?}")
        }
        Ok(Event::Call(ToolUse { id, name, input: Input::Value(input) })) => {
            writeln!(out, "call {id} {name} {input}")
        }
        Ok(Event::Call(ToolUse { id, name, input: Input::Broken { text, why } })) => {
            writeln!(out, "call {id} {name} broken {text:?}: {why}")
        }
        Ok(Event::Retrying { why, attempt, .. }) => writeln!(out, "retrying after {attempt}: {why}"),
        Ok(Event::Usage(usage)) => writeln!(out, "usage {} {}", usage.input, usage.output),
        Ok(Event::End(stop)) => writeln!(out, "end {stop:?}"),
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
            window,
            images: false,
            thinking: false,
            price: None,
        };
        assert_eq!(info.is_small(), expected, "{name} {window}");
    }
}
