//! Calls and results as text, for models that get tools as text or write calls as text: the only place that knows how.

use std::borrow::Cow;
use std::collections::HashSet;
use std::sync::Arc;

use bowline_conversation::conversation::{
    ConversationMessage, MessagePart, MessageRole, ToolUse, ToolUseInput,
};
use bowline_conversation::text_tool_calls::{TextToolCall, ToolCallExtractor};
use bowline_conversation::tool_call_assembler::unique_call_id;
use bowline_conversation::turn::EMPTY_REPLY_PROMPT;
use serde_json::{Value, json};

use super::provider::Provider;
use super::{ModelInfo, ModelRequest};

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

/// Returns the request as the model gets it: for a small one, without declared tools, and with calls and results as
/// text.
pub(super) fn request_for_model<'a>(info: &ModelInfo, request: &'a ModelRequest) -> Cow<'a, ModelRequest> {
    if !info.is_small() {
        return Cow::Borrowed(request);
    }
    let messages = conversation_as_text(&request.messages).into();
    Cow::Owned(ModelRequest { messages, tools: Arc::default(), ..request.clone() })
}

/// Returns a conversation with calls and results as text, and consecutive messages of a role merged.
fn conversation_as_text(messages: &[ConversationMessage]) -> Vec<ConversationMessage> {
    let mut merged: Vec<ConversationMessage> = Vec::new();
    for message in messages.iter().map(message_as_text) {
        match merged.last_mut() {
            Some(last) if last.role == message.role => last.parts.extend(message.parts),
            _ => merged.push(message),
        }
    }
    merged
}

/// Returns a message with calls and results as text. Images in results are left out.
fn message_as_text(message: &ConversationMessage) -> ConversationMessage {
    let mut parts: Vec<MessagePart> = Vec::new();
    for part in &message.parts {
        let text = match part {
            MessagePart::Call(call) => match &call.input {
                ToolUseInput::Value(input) => format_call(&call.name, input),
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
        let hint = if results().any(|result| result.failed) {
            AFTER_FAILURE_HINT
        } else if results().any(|result| result.name.contains("edit") || result.name.contains("write")) {
            AFTER_CHANGE_HINT
        } else {
            AFTER_READ_HINT
        };
        parts.push(MessagePart::Text { text: hint.to_owned() });
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

/// The calls that a model writes into the text of one reply. For a model that does not, all text passes.
#[derive(Debug)]
pub(super) struct TextToolCalls {
    extractor: Option<ToolCallExtractor>,
    // Whether the model has text instructions for calls. Its reply is over after the first calls.
    is_instructed: bool,
}

impl TextToolCalls {
    /// Prepares for the reply to a request.
    pub(super) fn new(provider: Provider, info: &ModelInfo, request: &ModelRequest) -> Self {
        let is_instructed = info.is_small();
        let may_write_calls = provider.may_write_calls_as_text() && !request.tools.is_empty();
        let extractor = may_write_calls.then(|| {
            let names = request.tools.iter().map(|tool| tool.name.clone()).collect();
            let extractor = ToolCallExtractor::new(names).with_prompt_texts(recent_texts(&request.messages));
            if is_instructed { extractor.with_text_instructions() } else { extractor }
        });
        Self { extractor, is_instructed }
    }

    /// Takes the next text of the reply, and returns the text that can be shown.
    pub(super) fn push(&mut self, text: String) -> String {
        match &mut self.extractor {
            Some(extractor) => extractor.push(&text),
            None => text,
        }
    }

    /// Returns whether the rest of the reply is of no use. A model that invents the results of its calls may continue
    /// for minutes.
    pub(super) fn is_finished(&self) -> bool {
        self.is_instructed && self.extractor.as_ref().is_some_and(ToolCallExtractor::is_finished)
    }

    /// Ends the reply: returns the rest of its text, and its calls. Calls in the text count only if there are no
    /// `real_calls`.
    pub(super) fn finish(
        &mut self,
        real_calls: Vec<ToolUse>,
        used_call_ids: &mut HashSet<String>,
    ) -> (String, Vec<ToolUse>) {
        let Some(extractor) = self.extractor.take() else { return (String::new(), real_calls) };
        let outcome = extractor.finish();
        if !real_calls.is_empty() {
            return (outcome.text + &outcome.withheld, real_calls);
        }
        let calls = outcome.calls.into_iter().map(|TextToolCall { name, input }| {
            let id = unique_call_id(String::new(), used_call_ids);
            ToolUse { id, name, input: ToolUseInput::Value(input) }
        });
        (outcome.text, calls.collect())
    }
}

/// Returns the texts that the model was given since the user's last message.
fn recent_texts(messages: &[ConversationMessage]) -> Vec<String> {
    // The prompt after an empty reply is Bowline's own, not the user's.
    let is_user_prompt = |message: &ConversationMessage| {
        message.role == MessageRole::User
            && *message != ConversationMessage::from_text(MessageRole::User, EMPTY_REPLY_PROMPT)
    };
    let start = messages.iter().rposition(is_user_prompt).unwrap_or(0);
    let recent = messages[start..].iter().filter(|message| message.role != MessageRole::Assistant);
    let text = |part: &MessagePart| match part {
        MessagePart::Text { text } => Some(text.clone()),
        MessagePart::Result(result) => Some(result.text.clone()),
        MessagePart::Image { .. } | MessagePart::Thought { .. } | MessagePart::Call(_) => None,
    };
    recent.flat_map(|message| &message.parts).filter_map(text).collect()
}
