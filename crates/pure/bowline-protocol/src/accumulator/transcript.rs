//! The messages of a session, assembled from their chunks.

use agent_client_protocol_schema::v1::{ContentChunk, MessageId};

use super::SessionChange;
use super::bounded_list::{BoundedList, ItemKey, ListItem};
use super::content::StreamedContent;

/// The author of a message.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum MessageKind {
    /// The user.
    User,
    /// The agent, to the user.
    Agent,
    /// The agent, thinking.
    Thought,
}

/// One message of a session.
#[derive(Debug, Clone)]
pub struct SessionMessage {
    /// Its author.
    pub kind: MessageKind,
    /// Its id, if the agent gave one. A message and a thought may share an id: agents use one id for everything that
    /// stems from one model response.
    pub id: Option<MessageId>,
    /// Its content.
    pub body: StreamedContent,
    pub(super) order: u64,
}

impl SessionMessage {
    /// Returns the text of the message.
    #[must_use]
    pub fn text(&self) -> String {
        self.body.text()
    }
}

/// The size of a message beyond its body.
const MESSAGE_OVERHEAD_BYTES: u64 = 128;

impl ListItem for SessionMessage {
    fn key(&self) -> Option<ItemKey> {
        self.id.as_ref().map(|id| ItemKey { tag: self.kind as u8, id: id.0.clone() })
    }

    fn bytes(&self) -> u64 {
        MESSAGE_OVERHEAD_BYTES + self.id.as_ref().map_or(0, |id| id.0.len() as u64) + self.body.bytes()
    }

    fn shrink(&mut self) {
        self.body.shrink();
    }
}

/// Identifies a message of a session, with or without an id.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct MessageRef(pub(super) u64);

/// The messages, and the one that a chunk without an id continues.
#[derive(Debug, Clone)]
pub(super) struct Transcript {
    pub(super) messages: BoundedList<SessionMessage>,
    // The last message written, until another item interrupts it.
    open_message: Option<(MessageKind, u64)>,
}

impl Transcript {
    pub(super) fn new(messages: BoundedList<SessionMessage>) -> Self {
        Self { messages, open_message: None }
    }

    /// Ends the open message: the next chunk without an id starts a new one.
    pub(super) fn close_message(&mut self) {
        self.open_message = None;
    }

    /// Appends a chunk to its message, or starts one. An empty id counts as none: the user must not lose text because
    /// of a blank label.
    pub(super) fn push_chunk(
        &mut self,
        kind: MessageKind,
        chunk: &ContentChunk,
        order: u64,
    ) -> SessionChange {
        let id = chunk.message_id.as_ref().filter(|id| !id.0.is_empty());
        let position = match id {
            Some(id) => self.messages.find(kind as u8, &id.0),
            None => self.open_message.filter(|(open, _)| *open == kind).map(|(_, position)| position),
        };
        if let Some(position) = position.filter(|position| self.messages.get(*position).is_some()) {
            self.messages.update(position, |message| message.body.push(&chunk.content));
            self.open_message = Some((kind, position));
            return SessionChange::MessageContinued(MessageRef(position));
        }
        let message = SessionMessage {
            kind,
            id: id.cloned(),
            body: StreamedContent::from_iter([&chunk.content]),
            order,
        };
        let position = self.messages.push(message);
        self.open_message = Some((kind, position));
        SessionChange::MessageStarted(MessageRef(position))
    }
}
