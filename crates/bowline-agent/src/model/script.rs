//! A model that says what a file has written down, for tests.
//!
//! The file has one JSON object a line, each a reply, given in order; empty lines and lines that begin with `//` do not
//! count. All fields are optional, and what they ask for happens in this order:
//!
//! | field | meaning |
//! |---|---|
//! | `expect` | the last message must contain this, or the reply is an error that says so |
//! | `delay_ms` | so long nothing comes |
//! | `thought` | what it thinks |
//! | `text`, or `chunks` for several pieces | what it says |
//! | `chunk_ms` | so long it waits before each piece |
//! | `calls` | `[{"name", "input", "id"}]`; an `input` that is a string is one that could not be read |
//! | `usage` | `{"input", "output", …}` |
//! | `error` | how it fails: `{"busy": {"why": "…"}}`, `{"cut_short": "…"}`, as [`ModelError`] has it |
//! | `stop` | `done` (if nothing is said), `length`, `refused`, or `none`: the reply ends without an end |
//!
//! ```json
//! {"text": "I will look.", "calls": [{"name": "read_text_file", "input": {"path": "a.txt"}}]}
//! {"expect": "hello", "text": "It says hello."}
//! ```

use std::path::Path;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use bowline_state::conversation::{Input, Message, Part, Role, ToolUse, Usage};
use serde::Deserialize;
use serde_json::Value;

use super::speak::{Voice, reply};
use super::{Event, Model, ModelError, ModelInfo, Reply, Request, Stop};

/// No script is longer, in bytes.
pub const MAX_SCRIPT: u64 = 64 << 20;

/// Says what a file has written down.
#[derive(Debug)]
pub struct Script {
    info: ModelInfo,
    replies: Vec<Scripted>,
    position: Position,
}

/// Which reply is the next: a session that is loaded again goes on where it was, so the first follows from the
/// conversation. The others follow the first, whatever became of the ones before.
#[derive(Debug, Default)]
pub(super) struct Position(Mutex<Option<usize>>);

impl Position {
    /// Returns the number of the next reply, from 0.
    pub(super) fn next(&self, conversation: &[Message]) -> usize {
        let mut next = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let at = next.unwrap_or_else(|| replies(conversation));
        *next = Some(at + 1);
        at
    }
}

/// Returns how many replies a conversation has. A turn whose only reply failed has a note instead, which counts as that;
/// one behind a reply without words belongs to it.
fn replies(conversation: &[Message]) -> usize {
    let mut before = None;
    let is_reply = |message: &&Message| {
        let follows = before.replace(message.role) == Some(Role::Assistant);
        message.role == Role::Assistant && !follows
    };
    conversation.iter().filter(is_reply).count()
}

#[derive(Debug, Clone, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
struct Scripted {
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

impl Script {
    /// Reads a script.
    ///
    /// # Errors
    /// Says what is wrong with the file.
    pub fn open(path: &Path) -> Result<Self, ModelError> {
        let name = format!("script:{}", path.display());
        let text = read(path, &name)?;
        Self::parse(&name, &text)
    }

    /// Returns the script that a text holds.
    ///
    /// # Errors
    /// Says which line is wrong.
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
        Ok(Self { info: info(name, "Script"), replies, position: Position::default() })
    }
}

impl Model for Script {
    fn info(&self) -> &ModelInfo {
        &self.info
    }

    fn ask(&self, request: Request) -> Reply {
        let at = self.position.next(&request.messages);
        let scripted = self.replies.get(at).cloned();
        let count = self.replies.len();
        reply(move |voice| async move {
            match scripted {
                Some(scripted) => speak(scripted, at, &request, voice).await,
                None => Err(ModelError::Unusable(format!("the script has only {count} replies"))),
            }
        })
    }
}

async fn speak(scripted: Scripted, at: usize, request: &Request, mut voice: Voice) -> Result<(), ModelError> {
    if let Some(expected) = &scripted.expect {
        let last = request.messages.last().map(all_text).unwrap_or_default();
        if !last.contains(expected) {
            let why = format!("reply {} of the script expects {expected:?} in {last:?}", at + 1);
            return Err(ModelError::Unusable(why));
        }
    }
    tokio::time::sleep(Duration::from_millis(scripted.delay_ms)).await;
    if let Some(text) = scripted.thought {
        voice.say(Event::Thought { text, signature: None }).await;
    }
    for chunk in scripted.text.into_iter().chain(scripted.chunks) {
        tokio::time::sleep(Duration::from_millis(scripted.chunk_ms)).await;
        voice.text(chunk).await;
    }
    let made = request.messages.iter().flat_map(Message::calls).count();
    for (number, call) in scripted.calls.into_iter().enumerate() {
        let id = call.id.unwrap_or_else(|| format!("script_{}", made + number + 1));
        let input = match call.input {
            Value::String(text) => Input::Broken { text, why: "it is not JSON".to_owned() },
            Value::Null => Input::Value(Value::Object(serde_json::Map::new())),
            input => Input::Value(input),
        };
        voice.say(Event::Call(ToolUse { id, name: call.name, input })).await;
    }
    if let Some(ScriptedUsage { input, output, cache_read, cache_write, thought }) = scripted.usage {
        voice.say(Event::Usage(Usage { input, output, cache_read, cache_write, thought })).await;
    }
    if let Some(error) = scripted.error {
        return Err(error);
    }
    match scripted.stop {
        ScriptedStop::Done => voice.say(Event::End(Stop::Done)).await,
        ScriptedStop::Length => voice.say(Event::End(Stop::Length)).await,
        ScriptedStop::Refused => voice.say(Event::End(Stop::Refused)).await,
        ScriptedStop::None => (),
    }
    Ok(())
}

fn all_text(message: &Message) -> String {
    let texts = message.parts.iter().filter_map(|part| match part {
        Part::Text { text } => Some(text.as_str()),
        Part::Result(result) => Some(result.text.as_str()),
        Part::Image { .. } | Part::Thought { .. } | Part::Call(_) => None,
    });
    texts.collect::<Vec<_>>().join("\n")
}

/// Returns what is known of a model that a file plays.
pub(super) fn info(name: &str, title: &str) -> ModelInfo {
    let title = title.to_owned();
    ModelInfo { name: name.to_owned(), title, window: 128_000, images: true, thinking: true, price: None }
}

/// Reads a file of replies.
pub(super) fn read(path: &Path, name: &str) -> Result<String, ModelError> {
    let unknown = |why: String| ModelError::Unknown { name: name.to_owned(), why };
    let length = std::fs::metadata(path).map_err(|error| unknown(error.to_string()))?.len();
    if length > MAX_SCRIPT {
        return Err(unknown(format!("the file has more than {MAX_SCRIPT} bytes")));
    }
    std::fs::read_to_string(path).map_err(|error| unknown(error.to_string()))
}

#[cfg(test)]
mod tests;
