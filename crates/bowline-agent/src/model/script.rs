//! A model that gives the replies written in a file, for tests.
//!
//! The file has one JSON object per line, each a reply, given in order; empty lines and lines that begin with `//` are
//! ignored. All fields are optional, and take effect in this order:
//!
//! | field | meaning |
//! |---|---|
//! | `expect` | the last message must contain this, otherwise the reply is an error that says so |
//! | `delay_ms` | the delay before the reply |
//! | `thought` | its thoughts |
//! | `text`, or `chunks` for several pieces | its text |
//! | `chunk_ms` | the delay before each piece |
//! | `calls` | `[{"name", "input", "id"}]`; an `input` that is a string stands for unparseable input |
//! | `usage` | `{"input", "output", …}` |
//! | `error` | its error: `{"busy": {"why": "…"}}`, `{"cut_short": "…"}`, as in [`ModelError`] |
//! | `stop` | `done` (the default), `length`, `refused`, or `none`: the stream ends without an end event |
//!
//! ```json
//! {"text": "I will look.", "calls": [{"name": "read_text_file", "input": {"path": "a.txt"}}]}
//! {"expect": "hello", "text": "It says hello."}
//! ```

use std::path::Path;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use bowline_conversation::conversation::{
    ConversationMessage, MessagePart, MessageRole, TokenUsage, ToolUse, ToolUseInput,
};
use serde::Deserialize;
use serde_json::Value;

use super::reply_sender::{ReplySender, reply_from_fn};
use super::{Model, ModelError, ModelInfo, ModelRequest, ReplyEvent, ReplyStop, ReplyStream};

/// The largest script, in bytes.
pub const MAX_SCRIPT: u64 = 64 << 20;

/// Gives the replies written in a file.
#[derive(Debug)]
pub struct ScriptedModel {
    info: ModelInfo,
    replies: Vec<ScriptedReply>,
    position: ReplyPosition,
}

/// The number of the next reply. The first one follows from the conversation, so that a reloaded session continues
/// where it was. Later ones follow in order, even if earlier replies failed.
#[derive(Debug, Default)]
pub(super) struct ReplyPosition(Mutex<Option<usize>>);

impl ReplyPosition {
    /// Returns the number of the next reply, from 0.
    pub(super) fn next_index(&self, conversation: &[ConversationMessage]) -> usize {
        let mut next = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let index = next.unwrap_or_else(|| count_replies(conversation));
        *next = Some(index + 1);
        index
    }
}

/// Returns the number of replies in a conversation. A turn whose only reply failed has a note, which counts instead; a
/// note after a reply without text belongs to that reply.
fn count_replies(conversation: &[ConversationMessage]) -> usize {
    let mut previous = None;
    let is_reply = |message: &&ConversationMessage| {
        let is_continuation = previous.replace(message.role) == Some(MessageRole::Assistant);
        message.role == MessageRole::Assistant && !is_continuation
    };
    conversation.iter().filter(is_reply).count()
}

#[derive(Debug, Clone, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
struct ScriptedReply {
    expect: Option<String>,
    delay_ms: u64,
    thought: Option<String>,
    text: Option<String>,
    chunks: Vec<String>,
    chunk_ms: u64,
    calls: Vec<ScriptedCall>,
    usage: Option<ScriptedUsage>,
    error: Option<ModelError>,
    stop: ScriptedStop,
}

#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
struct ScriptedCall {
    name: String,
    #[serde(default)]
    input: Value,
    id: Option<String>,
}

#[derive(Debug, Clone, Copy, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
struct ScriptedUsage {
    input: u64,
    output: u64,
    cache_read: u64,
    cache_write: u64,
    thought: u64,
}

#[derive(Debug, Clone, Copy, Default, Deserialize)]
#[serde(rename_all = "snake_case")]
enum ScriptedStop {
    #[default]
    Done,
    Length,
    Refused,
    None,
}

impl ScriptedModel {
    /// Reads a script.
    ///
    /// # Errors
    /// Fails if the file cannot be read or parsed.
    pub fn open(path: &Path) -> Result<Self, ModelError> {
        let name = format!("script:{}", path.display());
        let text = read_reply_file(path, &name)?;
        Self::parse(&name, &text)
    }

    /// Parses a script.
    ///
    /// # Errors
    /// Fails if a line is invalid, and names it.
    pub fn parse(name: &str, text: &str) -> Result<Self, ModelError> {
        let mut replies = Vec::new();
        for (number, line) in text.lines().enumerate() {
            if line.trim().is_empty() || line.trim_start().starts_with("//") {
                continue;
            }
            let reply = serde_json::from_str(line).map_err(|error| ModelError::Unknown {
                name: name.to_owned(),
                why: format!("line {}: {error}", number + 1),
            })?;
            replies.push(reply);
        }
        Ok(Self { info: file_model_info(name, "Script"), replies, position: ReplyPosition::default() })
    }
}

impl Model for ScriptedModel {
    fn info(&self) -> &ModelInfo {
        &self.info
    }

    fn stream_reply(&self, request: ModelRequest) -> ReplyStream {
        let index = self.position.next_index(&request.messages);
        let scripted = self.replies.get(index).cloned();
        let count = self.replies.len();
        reply_from_fn(move |sender| async move {
            match scripted {
                Some(scripted) => play_reply(scripted, index, &request, sender).await,
                None => Err(ModelError::Unusable(format!("the script has only {count} replies"))),
            }
        })
    }
}

async fn play_reply(
    scripted: ScriptedReply,
    index: usize,
    request: &ModelRequest,
    mut sender: ReplySender,
) -> Result<(), ModelError> {
    if let Some(expected) = &scripted.expect {
        let last = request.messages.last().map(message_text).unwrap_or_default();
        if !last.contains(expected) {
            let message = format!("reply {} of the script expects {expected:?} in {last:?}", index + 1);
            return Err(ModelError::Unusable(message));
        }
    }
    tokio::time::sleep(Duration::from_millis(scripted.delay_ms)).await;
    if let Some(text) = scripted.thought {
        sender.send(ReplyEvent::Thought { text, signature: None }).await;
    }
    for chunk in scripted.text.into_iter().chain(scripted.chunks) {
        tokio::time::sleep(Duration::from_millis(scripted.chunk_ms)).await;
        sender.send_text(chunk).await;
    }
    let call_count = request.messages.iter().flat_map(ConversationMessage::tool_uses).count();
    for (number, call) in scripted.calls.into_iter().enumerate() {
        let id = call.id.unwrap_or_else(|| format!("script_{}", call_count + number + 1));
        let input = match call.input {
            Value::String(text) => ToolUseInput::Broken { text, why: "it is not JSON".to_owned() },
            Value::Null => ToolUseInput::Value(Value::Object(serde_json::Map::new())),
            input => ToolUseInput::Value(input),
        };
        sender.send(ReplyEvent::Call(ToolUse { id, name: call.name, input })).await;
    }
    if let Some(ScriptedUsage { input, output, cache_read, cache_write, thought }) = scripted.usage {
        sender.send(ReplyEvent::Usage(TokenUsage { input, output, cache_read, cache_write, thought })).await;
    }
    if let Some(error) = scripted.error {
        return Err(error);
    }
    match scripted.stop {
        ScriptedStop::Done => sender.send(ReplyEvent::End(ReplyStop::Done)).await,
        ScriptedStop::Length => sender.send(ReplyEvent::End(ReplyStop::Length)).await,
        ScriptedStop::Refused => sender.send(ReplyEvent::End(ReplyStop::Refused)).await,
        ScriptedStop::None => (),
    }
    Ok(())
}

fn message_text(message: &ConversationMessage) -> String {
    let texts = message.parts.iter().filter_map(|part| match part {
        MessagePart::Text { text } => Some(text.as_str()),
        MessagePart::Result(result) => Some(result.text.as_str()),
        MessagePart::Image { .. } | MessagePart::Thought { .. } | MessagePart::Call(_) => None,
    });
    texts.collect::<Vec<_>>().join("\n")
}

/// Returns the properties of a model that plays a file.
pub(super) fn file_model_info(name: &str, title: &str) -> ModelInfo {
    let title = title.to_owned();
    ModelInfo {
        name: name.to_owned(),
        title,
        context_window: 128_000,
        supports_images: true,
        supports_thinking: true,
        price: None,
    }
}

/// Reads a file of replies.
pub(super) fn read_reply_file(path: &Path, name: &str) -> Result<String, ModelError> {
    let unknown = |why: String| ModelError::Unknown { name: name.to_owned(), why };
    let length = std::fs::metadata(path).map_err(|error| unknown(error.to_string()))?.len();
    if length > MAX_SCRIPT {
        return Err(unknown(format!("the file has more than {MAX_SCRIPT} bytes")));
    }
    std::fs::read_to_string(path).map_err(|error| unknown(error.to_string()))
}

#[cfg(test)]
mod tests;
