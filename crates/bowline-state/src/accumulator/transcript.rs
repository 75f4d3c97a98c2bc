//! What was said in a session: messages, put together from their chunks.

use agent_client_protocol_schema::v1::{ContentChunk, MessageId};

use super::Change;
use super::body::Body;
use super::shelf::{Item, Key, Shelf};

/// Who a message is from.
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
pub struct Message {
    /// Who it is from.
    pub kind: MessageKind,
    /// Its id, if the agent gave one. A message and a thought may have the same: agents give one id to all that
    /// comes of one answer of the model.
    pub id: Option<MessageId>,
    /// What it says.
    pub body: Body,
    pub(super) order: u64,
}

impl Message {
    /// Returns the text of the message.
    #[must_use]
    pub fn text(&self) -> String {
        self.body.text()
    }
}

/// What a message counts beside its body.
const MESSAGE_BYTES: u64 = 128;

impl Item for Message {
    fn key(&self) -> Option<Key> {
        self.id.as_ref().map(|id| Key { tag: self.kind as u8, id: id.0.clone() })
    }

    fn bytes(&self) -> u64 {
        MESSAGE_BYTES + self.id.as_ref().map_or(0, |id| id.0.len() as u64) + self.body.bytes()
    }

    fn shrink(&mut self) {
        self.body.shrink();
    }
}

/// Names a message of a session, whether it has an id or not.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct MessageRef(pub(super) u64);

/// The messages, and which of them a chunk without an id continues.
#[derive(Debug, Clone)]
pub(super) struct Transcript {
    pub(super) messages: Shelf<Message>,
    // The message that was written last, until something else comes between.
    open: Option<(MessageKind, u64)>,
}

impl Transcript {
    pub(super) fn new(messages: Shelf<Message>) -> Self {
        Self { messages, open: None }
    }

    /// Ends the open message: the next chunk without an id starts a new one.
    pub(super) fn close(&mut self) {
        self.open = None;
    }

    /// Adds a chunk to its message, or starts one. An empty id is taken for none: a blank label is no reason to lose
    /// what the user should read.
    pub(super) fn push(&mut self, kind: MessageKind, chunk: &ContentChunk, order: u64) -> Change {
        let id = chunk.message_id.as_ref().filter(|id| !id.0.is_empty());
        let position = match id {
            Some(id) => self.messages.find(kind as u8, &id.0),
            None => self.open.filter(|(open, _)| *open == kind).map(|(_, position)| position),
        };
        if let Some(position) = position.filter(|position| self.messages.get(*position).is_some()) {
            self.messages.update(position, |message| message.body.push(&chunk.content));
            self.open = Some((kind, position));
            return Change::MessageContinued(MessageRef(position));
        }
        let message = Message { kind, id: id.cloned(), body: Body::from_iter([&chunk.content]), order };
        let position = self.messages.push(message);
        self.open = Some((kind, position));
        Change::MessageStarted(MessageRef(position))
    }
}
