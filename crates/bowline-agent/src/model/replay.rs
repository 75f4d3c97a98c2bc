//! Replies of any model, recorded in a file and played back in order.
//!
//! The file has one JSON object a line, each a reply: `{"model": NAME, "events": […], "error": …}`.

use std::fs::OpenOptions;
use std::io::Write as _;
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::{Path, PathBuf};
use std::pin::Pin;
use std::sync::Arc;

use bowline_state::conversation::{Message, Part, Role};
use futures_util::StreamExt as _;
use serde::{Deserialize, Serialize};

use super::script::Position;
use super::speak::reply;
use super::{Event, Model, ModelError, ModelInfo, Reply, Request, Stop};

/// No more events of one reply are recorded; the rest is passed on and left out of the file.
pub const MAX_EVENTS: usize = 1 << 20;

/// A reply as it was.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
struct Recorded {
    model: String,
    events: Vec<Event>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    error: Option<ModelError>,
}

/// Plays recorded replies back.
#[derive(Debug)]
pub struct Replay {
    info: ModelInfo,
    replies: Vec<Recorded>,
    position: Position,
}

impl Replay {
    /// Reads a recording.
    ///
    /// # Errors
    /// Says what is wrong with the file.
    pub fn open(path: &Path) -> Result<Self, ModelError> {
        let name = format!("replay:{}", path.display());
        let text = super::script::read(path, &name)?;
        let mut replies = Vec::new();
        for (number, line) in text.lines().enumerate().filter(|(_, line)| !line.trim().is_empty()) {
            let recorded = serde_json::from_str(line).map_err(|error| ModelError::Unknown {
                name: name.clone(),
                why: format!("line {}: {error}", number + 1),
            })?;
            replies.push(recorded);
        }
        Ok(Self { info: super::script::info(&name, "Replay"), replies, position: Position::default() })
    }
}

impl Model for Replay {
    fn info(&self) -> &ModelInfo {
        &self.info
    }

    fn ask(&self, request: Request) -> Reply {
        let recorded = self.replies.get(self.position.next(&request.messages)).cloned();
        let count = self.replies.len();
        reply(move |mut voice| async move {
            let Some(recorded) = recorded else {
                return Err(ModelError::Unusable(format!("the recording has only {count} replies")));
            };
            for event in recorded.events {
                voice.say(event).await;
            }
            recorded.error.map_or(Ok(()), Err)
        })
    }
}

/// Returns the replies in a conversation as a recording, which [`Replay`] plays back.
///
/// # Errors
/// Fails if a reply cannot be written as JSON.
pub fn recording(model: &str, conversation: &[Message]) -> serde_json::Result<String> {
    let mut text = String::new();
    // What follows a reply without an answer between them belongs to it: `Position` counts it so.
    let replies = conversation.chunk_by(|one, next| one.role == next.role);
    for reply in replies.filter(|reply| reply.iter().any(|message| message.role == Role::Assistant)) {
        let parts = reply.iter().flat_map(|message| message.parts.iter().cloned());
        let event = |part| match part {
            Part::Text { text } => Some(Event::Text(text)),
            Part::Thought { text, signature } => Some(Event::Thought { text, signature }),
            Part::Call(call) => Some(Event::Call(call)),
            // Models say neither.
            Part::Image { .. } | Part::Result(_) => None,
        };
        let events = parts.filter_map(event).chain([Event::End(Stop::Done)]).collect();
        let recorded = Recorded { model: model.to_owned(), events, error: None };
        text.push_str(&serde_json::to_string(&recorded)?);
        text.push('\n');
    }
    Ok(text)
}

/// Passes on what another model answers, and writes it to a file, a reply at its end. A reply that is dropped before
/// its end is written as far as it came.
pub struct Recording {
    model: Arc<dyn Model>,
    path: PathBuf,
}

impl Recording {
    /// Returns a model that answers as `model` does. The file is added to.
    #[must_use]
    pub fn new(model: Arc<dyn Model>, path: PathBuf) -> Self {
        Self { model, path }
    }
}

impl std::fmt::Debug for Recording {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Recording").field("model", self.model.info()).field("path", &self.path).finish()
    }
}

impl Model for Recording {
    fn info(&self) -> &ModelInfo {
        self.model.info()
    }

    fn learn(&self) -> Pin<Box<dyn Future<Output = ()> + Send + '_>> {
        self.model.learn()
    }

    fn ask(&self, request: Request) -> Reply {
        let model = self.model.info().name.clone();
        let tape = Tape { recorded: Recorded { model, ..Recorded::default() }, path: self.path.clone() };
        let inner = self.model.ask(request);
        Box::pin(inner.scan(tape, |tape, event| {
            tape.keep(&event);
            std::future::ready(Some(event))
        }))
    }
}

/// What is recorded of one reply. It is written when it is dropped.
struct Tape {
    recorded: Recorded,
    path: PathBuf,
}

impl Tape {
    fn keep(&mut self, event: &Result<Event, ModelError>) {
        match event {
            Ok(event) if self.recorded.events.len() < MAX_EVENTS => self.recorded.events.push(event.clone()),
            Ok(_) => (),
            Err(error) => self.recorded.error = Some(error.clone()),
        }
    }

    fn write(&self) -> std::io::Result<()> {
        let mut line = serde_json::to_vec(&self.recorded)?;
        line.push(b'\n');
        private().create(true).append(true).open(&self.path)?.write_all(&line)
    }
}

/// Returns how a file is opened that nobody else can read, if it is made: models speak of private things.
fn private() -> OpenOptions {
    let mut options = OpenOptions::new();
    options.mode(0o600);
    options
}

impl Drop for Tape {
    fn drop(&mut self) {
        // A recording is a convenience: that it cannot be written must not fail the reply.
        drop(self.write());
    }
}

#[cfg(test)]
mod tests;
