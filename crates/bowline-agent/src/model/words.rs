//! Calls and results as words, for models that are told of tools in words or write calls as text.

use bowline_state::conversation::{Input, Message, Part, Role};
use bowline_state::fenced::Sieve;
use bowline_state::turn::BLANK;
use serde_json::{Value, json};

use super::Request;
use super::provider::Provider;

/// What follows results: small models else go on with whatever the text brings to mind. What was found may be the answer; a
/// change may be one of several.
const FOUND: &str = "Answer the user if this is enough; else call the next tool.";
const FAILED: &str =
    "If it was refused, tell the user; else correct the call that failed, and make it again.";
const CHANGED: &str = "Call the next tool that the task needs; answer the user if it needs none.";

/// Returns a call as a model is to write it.
pub(crate) fn call(tool: &str, input: &Value) -> String {
    format!("```json\n{}\n```", json!({ "name": tool, "arguments": input }))
}

/// Returns a conversation without calls and results: they are texts in it, and who speaks twice speaks once.
pub(super) fn conversation(messages: &[Message]) -> Vec<Message> {
    let mut all: Vec<Message> = Vec::new();
    for message in messages.iter().map(spoken) {
        match all.last_mut() {
            Some(last) if last.role == message.role => last.parts.extend(message.parts),
            _ => all.push(message),
        }
    }
    all
}

/// Returns a message without calls and results. Pictures in results are left out.
fn spoken(message: &Message) -> Message {
    let mut parts: Vec<Part> = Vec::new();
    for part in &message.parts {
        let text = match part {
            Part::Call(made) => match &made.input {
                Input::Value(input) => call(&made.name, input),
                Input::Broken { text, .. } => text.clone(),
            },
            Part::Result(result) => {
                let failed = if result.failed { " failed" } else { "" };
                format!("Result of {}{failed}:\n{}", result.name, result.text)
            }
            other => {
                parts.push(other.clone());
                continue;
            }
        };
        parts.push(Part::Text { text });
    }
    if message.role == Role::Tool {
        let results = || {
            message.parts.iter().filter_map(|part| match part {
                Part::Result(result) => Some(result),
                _ => None,
            })
        };
        let next = if results().any(|result| result.failed) {
            FAILED
        } else if results().any(|result| result.name.contains("edit") || result.name.contains("write")) {
            CHANGED
        } else {
            FOUND
        };
        parts.push(Part::Text { text: next.to_owned() });
        // One text, as whatever splits texts might put something between.
        let texts = parts.iter().filter_map(|part| match part {
            Part::Text { text } => Some(text.trim_end()),
            _ => None,
        });
        let text = texts.collect::<Vec<_>>().join("\n\n");
        return Message { role: Role::User, parts: vec![Part::Text { text }] };
    }
    Message { role: message.role, parts }
}

/// Returns what holds back calls in the text of a reply, if the model may write such.
pub(super) fn sieve(provider: Provider, request: &Request) -> Option<Sieve> {
    let may_write_calls = provider.may_write_calls_as_text() && !request.tools.is_empty();
    may_write_calls.then(|| {
        let known = request.tools.iter().map(|tool| tool.name.clone()).collect();
        let sieve = Sieve::new(known).quoting(recent_texts(&request.messages));
        if request.by_words { sieve.by_words() } else { sieve }
    })
}

/// Returns what the model was told since the user spoke last.
fn recent_texts(messages: &[Message]) -> Vec<String> {
    // That it said nothing it is told by us.
    let speaks =
        |message: &Message| message.role == Role::User && *message != Message::text(Role::User, BLANK);
    let spoke = messages.iter().rposition(speaks).unwrap_or(0);
    let theirs = messages[spoke..].iter().filter(|message| message.role != Role::Assistant);
    let text = |part: &Part| match part {
        Part::Text { text } => Some(text.clone()),
        Part::Result(result) => Some(result.text.clone()),
        Part::Image { .. } | Part::Thought { .. } | Part::Call(_) => None,
    };
    theirs.flat_map(|message| &message.parts).filter_map(text).collect()
}
