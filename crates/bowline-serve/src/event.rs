//! The events of a session: everything its clients are sent, and what they send, in one numbered sequence.
//!
//! A client that was away continues after the last number it has seen. Each event says to which connections it goes; what
//! clients sent is only a record.

use std::sync::Arc;

use bowline_text::time::Timestamp;
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
    /// The end of a turn, for clients that want to know how each ended. Loading the session sends it again.
    TurnEnd,
    /// Another notification of the agent.
    Notification,
    /// The agent's question to the user. It is sent again until it is answered.
    Question,
    /// An agent's request to one client, which earlier versions stored without its body. It ended with its agent.
    ClientRequest,
    /// The withdrawal of a question, or of a request to a client.
    Withdrawal,
    /// The response to a client's request.
    Response,
    /// A client's request or notification. It is a record that no client is sent.
    ClientMessage,
    /// A client's answer to a question. It is a record that no client is sent.
    Answer,
}

impl EventKind {
    const ALL: [(Self, u8); 9] = [
        (Self::Update, b'u'),
        (Self::TurnEnd, b'e'),
        (Self::Notification, b'n'),
        (Self::Question, b'q'),
        (Self::ClientRequest, b'c'),
        (Self::Withdrawal, b'w'),
        (Self::Response, b'r'),
        (Self::ClientMessage, b'm'),
        (Self::Answer, b'a'),
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
    /// The agent: this connection sent it.
    Agent(ConnectionId),
}

impl Recipient {
    /// Returns whether a connection with these ids gets the event in a session's history: also what it sent itself, and so
    /// was not sent.
    #[must_use]
    pub fn includes_in_history(&self, ids: &[ConnectionId]) -> bool {
        matches!(self, Self::AllBut(_)) || self.includes(ids)
    }

    /// Returns whether a connection with these ids gets the event: its own id, and those of connections it took over.
    #[must_use]
    pub fn includes(&self, ids: &[ConnectionId]) -> bool {
        match self {
            Self::All => true,
            Self::Only(id) => ids.contains(id),
            Self::AllBut(id) => !ids.contains(id),
            Self::Agent(_) => false,
        }
    }
}

/// One event.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Event {
    /// Its number in the session, from 1, without gaps.
    pub seq: u64,
    /// When it was appended, about: events that are stored together share a time. `None` for those of versions that
    /// stored no times.
    pub at: Option<Timestamp>,
    /// What it is.
    pub kind: EventKind,
    /// Who gets it.
    pub recipient: Recipient,
    /// The message, one line of JSON without its line feed. Empty if it was not stored.
    pub body: Bytes,
}

/// What an event takes beside its body, about.
const EVENT_BYTES: usize = 128;

impl Event {
    /// Returns how much memory it takes, about.
    #[must_use]
    pub fn size(&self) -> usize {
        self.body.len() + EVENT_BYTES
    }
}

/// A stored run of events cannot be read.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("a run of stored events is damaged")]
pub struct DecodeError;

/// The first byte of a compressed run, which is no kind's. The size of its lines follows in four bytes, little-endian.
const COMPRESSED: u8 = 1;
const COMPRESSED_HEAD: usize = 5;
/// Runs with fewer bytes are stored as they are.
const MIN_COMPRESSED_BYTES: usize = 1 << 10;
/// The most bytes of a run's lines. A server stores less at once, even if one message of the largest size is among it.
const MAX_RUN_BYTES: usize = 256 << 20;

/// The first byte of a line with a time in milliseconds, which is no kind's; without one, the time is not known.
const TIME_MARK: u8 = b'@';

/// The most bytes of small runs that are joined.
const MAX_JOINED_BYTES: usize = 64 << 10;

/// Encodes consecutive events as one value: a line for each, with kind, recipient and message, and one for the time of
/// those that follow it. A long run is compressed: the chunks of a message differ in little but their text, and what a
/// store does costs more than the compression.
#[must_use]
pub fn encode_run(events: &[Event]) -> Vec<u8> {
    compress_run(encode_lines(events))
}

/// Compresses a run, or other bytes that do not begin with [`COMPRESSED`], unless they are short or compressed already.
pub(crate) fn compress_run(lines: Vec<u8>) -> Vec<u8> {
    if is_compressed(&lines) || !(MIN_COMPRESSED_BYTES..=MAX_RUN_BYTES).contains(&lines.len()) {
        return lines;
    }
    let mut run = vec![0; COMPRESSED_HEAD + lz4_flex::block::get_maximum_output_size(lines.len())];
    let size = u32::try_from(lines.len()).unwrap_or(u32::MAX);
    run[0] = COMPRESSED;
    run[1..COMPRESSED_HEAD].copy_from_slice(&size.to_le_bytes());
    match lz4_flex::block::compress_into(&lines, &mut run[COMPRESSED_HEAD..]) {
        Ok(compressed) if COMPRESSED_HEAD + compressed < lines.len() => {
            run.truncate(COMPRESSED_HEAD + compressed);
            run
        }
        _ => lines,
    }
}

/// Returns what [`compress_run`] was given.
pub(crate) fn decompress_run(run: &Bytes) -> Result<Bytes, DecodeError> {
    if !is_compressed(run) {
        return Ok(run.clone());
    }
    let (head, compressed) = run.split_at_checked(COMPRESSED_HEAD).ok_or(DecodeError)?;
    let size = head[1..].try_into().map(u32::from_le_bytes).map_err(|_| DecodeError)? as usize;
    if size > MAX_RUN_BYTES {
        return Err(DecodeError);
    }
    Ok(lz4_flex::block::decompress(compressed, size).map_err(|_| DecodeError)?.into())
}

/// Appends the run that follows to a run. Returns whether it did: not if one of them is compressed, or if both together
/// are large.
pub(crate) fn append_run(run: &mut Vec<u8>, next: &[u8]) -> bool {
    let is_small = run.len() + next.len() <= MAX_JOINED_BYTES;
    let can_append = is_small && !is_compressed(run) && !is_compressed(next);
    if can_append {
        run.extend_from_slice(next);
    }
    can_append
}

fn is_compressed(run: &[u8]) -> bool {
    run.first() == Some(&COMPRESSED)
}

/// Encodes consecutive events as one value that is not compressed.
pub(crate) fn encode_lines(events: &[Event]) -> Vec<u8> {
    let mut run = Vec::with_capacity(events.iter().map(|event| event.body.len() + 40).sum::<usize>() + 20);
    let mut at = None;
    for event in events {
        if event.at != at {
            at = event.at;
            run.push(TIME_MARK);
            run.extend(at.into_iter().flat_map(|at| at.0.to_string().into_bytes()));
            run.push(b'\n');
        }
        run.push(event.kind.code());
        let (mark, id) = match &event.recipient {
            Recipient::All => (b'*', ""),
            Recipient::Only(id) => (b'=', &**id),
            Recipient::AllBut(id) => (b'!', &**id),
            Recipient::Agent(id) => (b'<', &**id),
        };
        run.push(mark);
        run.extend_from_slice(id.as_bytes());
        run.push(b'\t');
        run.extend_from_slice(&event.body);
        run.push(b'\n');
    }
    run
}

/// Decodes a run whose first event has the number `first`.
///
/// # Errors
/// Fails if it was not made by [`encode_run`].
pub fn decode_run(first: u64, run: &Bytes) -> Result<Vec<Event>, DecodeError> {
    decode_lines(first, &decompress_run(run)?)
}

fn decode_lines(first: u64, run: &Bytes) -> Result<Vec<Event>, DecodeError> {
    let mut events = Vec::new();
    let mut start = 0;
    let mut at = None;
    for end in memchr::memchr_iter(b'\n', run) {
        let line = run.slice(start..end);
        start = end + 1;
        if let [TIME_MARK, time @ ..] = &*line {
            at = decode_time(time)?;
            continue;
        }
        let tab = memchr::memchr(b'\t', &line).ok_or(DecodeError)?;
        let [code, mark, id @ ..] = &line[..tab] else { return Err(DecodeError) };
        let id: ConnectionId = str::from_utf8(id).map_err(|_| DecodeError)?.into();
        events.push(Event {
            seq: first + events.len() as u64,
            at,
            kind: EventKind::from_code(*code).ok_or(DecodeError)?,
            recipient: match mark {
                b'*' => Recipient::All,
                b'=' => Recipient::Only(id),
                b'!' => Recipient::AllBut(id),
                b'<' => Recipient::Agent(id),
                _ => return Err(DecodeError),
            },
            body: line.slice(tab + 1..),
        });
    }
    if start == run.len() { Ok(events) } else { Err(DecodeError) }
}

fn decode_time(text: &[u8]) -> Result<Option<Timestamp>, DecodeError> {
    if text.is_empty() {
        return Ok(None);
    }
    let number = str::from_utf8(text).ok().and_then(|text| text.parse().ok());
    number.map(|number| Some(Timestamp(number))).ok_or(DecodeError)
}
