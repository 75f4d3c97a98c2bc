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
