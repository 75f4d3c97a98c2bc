//! Calls and results as text, for models that get tools as text or write calls as text.

use bowline_conversation::conversation::{ConversationMessage, MessagePart, MessageRole, ToolUseInput};
use bowline_conversation::text_tool_calls::ToolCallExtractor;
use bowline_conversation::turn::EMPTY_REPLY_PROMPT;
use serde_json::{Value, json};

use super::ModelRequest;
use super::provider::Provider;

/// Hints after results: without one, small models continue with unrelated text. The result of a read may be the answer;
/// a change may be one of several.
const AFTER_READ_HINT: &str = "Answer the user if this is enough; else call the next tool.";
const AFTER_FAILURE_HINT: &str =
    "If it was refused, tell the user; else correct the call that failed, and make it again.";
const AFTER_CHANGE_HINT: &str = "Call the next tool that the task needs; answer the user if it needs none.";

/// Returns a call in the form that a model is to write it.
pub(crate) fn format_call(tool: &str, input: &Value) -> String {
    format!("```json\n{}\n```", json!({ "name": tool, "arguments": input }))
}

/// Returns a conversation with calls and results as text, and consecutive messages of a role merged.
pub(super) fn conversation_as_text(messages: &[ConversationMessage]) -> Vec<ConversationMessage> {
    let mut all: Vec<ConversationMessage> = Vec::new();
    for message in messages.iter().map(message_as_text) {
        match all.last_mut() {
            Some(last) if last.role == message.role => last.parts.extend(message.parts),
            _ => all.push(message),
        }
    }
    all
}

/// Returns a message with calls and results as text. Images in results are left out.
fn message_as_text(message: &ConversationMessage) -> ConversationMessage {
    let mut parts: Vec<MessagePart> = Vec::new();
    for part in &message.parts {
        let text = match part {
            MessagePart::Call(made) => match &made.input {
                ToolUseInput::Value(input) => format_call(&made.name, input),
                ToolUseInput::Broken { text, .. } => text.clone(),
            },
            MessagePart::Result(result) => {
                let failed = if result.failed { " failed" } else { "" };
                format!("Result of {}{failed}:\n{}", result.name, result.text)
            }
            other => {
                parts.push(other.clone());
                continue;
            }
        };
        parts.push(MessagePart::Text { text });
    }
    if message.role == MessageRole::Tool {
        let results = || {
            message.parts.iter().filter_map(|part| match part {
                MessagePart::Result(result) => Some(result),
                _ => None,
            })
        };
        let next = if results().any(|result| result.failed) {
            AFTER_FAILURE_HINT
        } else if results().any(|result| result.name.contains("edit") || result.name.contains("write")) {
            AFTER_CHANGE_HINT
        } else {
            AFTER_READ_HINT
        };
        parts.push(MessagePart::Text { text: next.to_owned() });
        // Merged into one text, as templates may insert something between texts.
        let texts = parts.iter().filter_map(|part| match part {
            MessagePart::Text { text } => Some(text.trim_end()),
            _ => None,
        });
        let text = texts.collect::<Vec<_>>().join("\n\n");
        return ConversationMessage { role: MessageRole::User, parts: vec![MessagePart::Text { text }] };
    }
    ConversationMessage { role: message.role, parts }
}

/// Returns an extractor of calls in a reply's text, if the model may write them.
pub(super) fn new_call_extractor(provider: Provider, request: &ModelRequest) -> Option<ToolCallExtractor> {
    let may_write_calls = provider.may_write_calls_as_text() && !request.tools.is_empty();
    may_write_calls.then(|| {
        let known = request.tools.iter().map(|tool| tool.name.clone()).collect();
        let sieve = ToolCallExtractor::new(known).with_prompt_texts(recent_texts(&request.messages));
        if request.tools_as_text { sieve.with_text_instructions() } else { sieve }
    })
}

/// Returns the texts that the model was given since the user's last message.
fn recent_texts(messages: &[ConversationMessage]) -> Vec<String> {
    // The prompt after an empty reply is Bowline's own, not the user's.
    let speaks = |message: &ConversationMessage| {
        message.role == MessageRole::User
            && *message != ConversationMessage::from_text(MessageRole::User, EMPTY_REPLY_PROMPT)
    };
    let spoke = messages.iter().rposition(speaks).unwrap_or(0);
    let theirs = messages[spoke..].iter().filter(|message| message.role != MessageRole::Assistant);
    let text = |part: &MessagePart| match part {
        MessagePart::Text { text } => Some(text.clone()),
        MessagePart::Result(result) => Some(result.text.clone()),
        MessagePart::Image { .. } | MessagePart::Thought { .. } | MessagePart::Call(_) => None,
    };
    theirs.flat_map(|message| &message.parts).filter_map(text).collect()
}
