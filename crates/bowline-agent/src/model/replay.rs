//! Replies of any model, recorded in a file and played back in order.
//!
//! The file has one JSON object per line, each a reply: `{"model": NAME, "events": […], "error": …}`.

use std::fs::OpenOptions;
use std::io::Write as _;
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use bowline_conversation::conversation::{ConversationMessage, MessagePart, MessageRole};
use futures_util::StreamExt as _;
use futures_util::future::BoxFuture;
use serde::{Deserialize, Serialize};

use super::reply_sender::reply_from_fn;
use super::script::ReplyPosition;
use super::{Model, ModelError, ModelInfo, ModelRequest, ReplyEvent, ReplyStop, ReplyStream};

/// The most events recorded of one reply; the rest is passed on, but not written to the file.
pub const MAX_EVENTS: usize = 1 << 20;

/// A recorded reply.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
struct RecordedReply {
    model: String,
    events: Vec<ReplyEvent>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    error: Option<ModelError>,
}

/// Plays recorded replies back.
#[derive(Debug)]
pub struct ReplayModel {
    info: ModelInfo,
    replies: Vec<RecordedReply>,
    position: ReplyPosition,
}

impl ReplayModel {
    /// Reads a recording.
    ///
    /// # Errors
    /// Fails if the file cannot be read or parsed.
    pub fn open(path: &Path) -> Result<Self, ModelError> {
        let name = format!("replay:{}", path.display());
        let text = super::script::read_reply_file(path, &name)?;
        let mut replies = Vec::new();
        for (number, line) in text.lines().enumerate().filter(|(_, line)| !line.trim().is_empty()) {
            let reply = serde_json::from_str(line).map_err(|error| ModelError::Unknown {
                name: name.clone(),
                why: format!("line {}: {error}", number + 1),
            })?;
            replies.push(reply);
        }
        Ok(Self {
            info: super::script::file_model_info(&name, "Replay"),
            replies,
            position: ReplyPosition::default(),
        })
    }
}

impl Model for ReplayModel {
    fn info(&self) -> &ModelInfo {
        &self.info
    }

    fn stream_reply(&self, request: ModelRequest) -> ReplyStream {
        let recorded = self.replies.get(self.position.next_index(&request.messages)).cloned();
        let count = self.replies.len();
        reply_from_fn(move |mut sender| async move {
            let Some(recorded) = recorded else {
                return Err(ModelError::Unusable(format!("the recording has only {count} replies")));
            };
            for event in recorded.events {
                sender.send(event).await;
            }
            recorded.error.map_or(Ok(()), Err)
        })
    }
}

/// Returns the replies in a conversation as a recording, which [`ReplayModel`] plays back.
///
/// # Errors
/// Fails if a reply cannot be written as JSON.
pub fn recording_from_conversation(
    model: &str,
    conversation: &[ConversationMessage],
) -> serde_json::Result<String> {
    let mut text = String::new();
    // Consecutive messages of the model are one reply, as `ReplyPosition` counts them.
    let replies = conversation.chunk_by(|previous, next| previous.role == next.role);
    for reply in replies.filter(|reply| reply.iter().any(|message| message.role == MessageRole::Assistant)) {
        let parts = reply.iter().flat_map(|message| message.parts.iter().cloned());
        let event = |part| match part {
            MessagePart::Text { text } => Some(ReplyEvent::Text(text)),
            MessagePart::Thought { text, signature } => Some(ReplyEvent::Thought { text, signature }),
            MessagePart::Call(call) => Some(ReplyEvent::Call(call)),
            // Models send neither.
            MessagePart::Image { .. } | MessagePart::Result(_) => None,
        };
        let events = parts.filter_map(event).chain([ReplyEvent::End(ReplyStop::Done)]).collect();
        let recorded = RecordedReply { model: model.to_owned(), events, error: None };
        text.push_str(&serde_json::to_string(&recorded)?);
        text.push('\n');
    }
    Ok(text)
}

/// Passes on the replies of another model, and appends each to a file at its end. A reply dropped before its end is
/// written as far as it came.
pub struct RecordingModel {
    model: Arc<dyn Model>,
    path: PathBuf,
}

impl RecordingModel {
    /// Returns a model that answers as `model` does, and appends to the file.
    #[must_use]
    pub fn new(model: Arc<dyn Model>, path: PathBuf) -> Self {
        Self { model, path }
    }
}

impl std::fmt::Debug for RecordingModel {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Recording").field("model", self.model.info()).field("path", &self.path).finish()
    }
}

impl Model for RecordingModel {
    fn info(&self) -> &ModelInfo {
        self.model.info()
    }

    fn fetch_info(&self) -> BoxFuture<'_, ()> {
        self.model.fetch_info()
    }

    fn stream_reply(&self, request: ModelRequest) -> ReplyStream {
        let model = self.model.info().name.clone();
        let recorder = ReplyRecorder {
            reply: RecordedReply { model, ..RecordedReply::default() },
            path: self.path.clone(),
        };
        let inner = self.model.stream_reply(request);
        Box::pin(inner.scan(recorder, |recorder, event| {
            recorder.record_event(&event);
            std::future::ready(Some(event))
        }))
    }
}

/// The recording of one reply, written on drop.
struct ReplyRecorder {
    reply: RecordedReply,
    path: PathBuf,
}

impl ReplyRecorder {
    fn record_event(&mut self, event: &Result<ReplyEvent, ModelError>) {
        match event {
            Ok(event) if self.reply.events.len() < MAX_EVENTS => self.reply.events.push(event.clone()),
            Ok(_) => (),
            Err(error) => self.reply.error = Some(error.clone()),
        }
    }

    fn write(&self) -> std::io::Result<()> {
        let mut line = serde_json::to_vec(&self.reply)?;
        line.push(b'\n');
        private_file_options().create(true).append(true).open(&self.path)?.write_all(&line)
    }
}

/// Returns options that create a file readable by the user alone: conversations are private.
fn private_file_options() -> OpenOptions {
    let mut options = OpenOptions::new();
    options.mode(0o600);
    options
}

impl Drop for ReplyRecorder {
    fn drop(&mut self) {
        // A recording is a convenience: failing to write it must not fail the reply.
        drop(self.write());
    }
}

#[cfg(test)]
mod tests;
