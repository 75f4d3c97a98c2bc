//! The events of a session: everything its clients are sent, in one numbered sequence.
//!
//! A client that was away continues after the last number it has seen. Each event says to which connections it goes.

use std::sync::Arc;

use bytes::Bytes;

#[cfg(test)]
mod tests;

/// The id of a session, as the agent chose it.
pub type SessionId = Arc<str>;
/// The id of a client's connection.
pub type ConnectionId = Arc<str>;

/// What an event is, which decides whether a client that loads the session later sees it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum EventKind {
    /// A `session/update`. Loading the session sends it again.
    Update,
    /// Another notification of the agent.
    Notification,
    /// The agent's question to the user. It is sent again until it is answered.
    Question,
    /// The agent's request to one client, such as for a file. Its body is not stored: it ends with the agent.
    ClientRequest,
    /// The withdrawal of a question, or of a request to a client.
    Withdrawal,
    /// The response to a client's request.
    Response,
}

impl EventKind {
    const ALL: [(Self, u8); 6] = [
        (Self::Update, b'u'),
        (Self::Notification, b'n'),
        (Self::Question, b'q'),
        (Self::ClientRequest, b'c'),
        (Self::Withdrawal, b'w'),
        (Self::Response, b'r'),
    ];

    fn code(self) -> u8 {
        Self::ALL.iter().find(|(kind, _)| *kind == self).map_or(b'n', |(_, code)| *code)
    }

    fn from_code(code: u8) -> Option<Self> {
        Self::ALL.iter().find(|(_, known)| *known == code).map(|(kind, _)| *kind)
    }
}

/// The connections that get an event.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Recipient {
    /// Every connection.
    All,
    /// One connection.
    Only(ConnectionId),
    /// Every connection except one.
    AllBut(ConnectionId),
}

impl Recipient {
    /// Returns whether a connection with these ids gets the event: its own id, and those of connections it took over.
    #[must_use]
    pub fn includes(&self, ids: &[ConnectionId]) -> bool {
        match self {
            Self::All => true,
            Self::Only(id) => ids.contains(id),
            Self::AllBut(id) => !ids.contains(id),
        }
    }
}

/// One event.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Event {
    /// Its number in the session, from 1, without gaps.
    pub seq: u64,
    /// What it is.
    pub kind: EventKind,
    /// Who gets it.
    pub recipient: Recipient,
    /// The message, one line of JSON without its line feed. Empty if it was not stored.
    pub body: Bytes,
}

/// A stored run of events cannot be read.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("a run of stored events is damaged")]
pub struct DecodeError;

/// Encodes consecutive events as one value: a line for each, with kind, recipient and message.
#[must_use]
pub fn encode_run(events: &[Event]) -> Vec<u8> {
    let mut run = Vec::with_capacity(events.iter().map(|event| event.body.len() + 40).sum());
    for event in events {
        run.push(event.kind.code());
        let (mark, id) = match &event.recipient {
            Recipient::All => (b'*', ""),
            Recipient::Only(id) => (b'=', &**id),
            Recipient::AllBut(id) => (b'!', &**id),
        };
        run.push(mark);
        run.extend_from_slice(id.as_bytes());
        run.push(b'\t');
        if event.kind != EventKind::ClientRequest {
            run.extend_from_slice(&event.body);
        }
        run.push(b'\n');
    }
    run
}

/// Decodes a run whose first event has the number `first`.
///
/// # Errors
/// Fails if it was not made by [`encode_run`].
pub fn decode_run(first: u64, run: &Bytes) -> Result<Vec<Event>, DecodeError> {
    let mut events = Vec::new();
    let mut start = 0;
    for end in memchr::memchr_iter(b'\n', run) {
        let line = run.slice(start..end);
        start = end + 1;
        let tab = memchr::memchr(b'\t', &line).ok_or(DecodeError)?;
        let [code, mark, id @ ..] = &line[..tab] else { return Err(DecodeError) };
        let id: ConnectionId = str::from_utf8(id).map_err(|_| DecodeError)?.into();
        events.push(Event {
            seq: first + events.len() as u64,
            kind: EventKind::from_code(*code).ok_or(DecodeError)?,
            recipient: match mark {
                b'*' => Recipient::All,
                b'=' => Recipient::Only(id),
                b'!' => Recipient::AllBut(id),
                _ => return Err(DecodeError),
            },
            body: line.slice(tab + 1..),
        });
    }
    if start == run.len() { Ok(events) } else { Err(DecodeError) }
}
