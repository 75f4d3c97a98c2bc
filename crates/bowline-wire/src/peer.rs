//! One end of a JSON-RPC connection without any IO: bytes in, events out; messages in, bytes out.
//!
//! [`Peer`] knows which requests each side still owes an answer to. It answers what it can by itself (malformed
//! messages, ids used twice, too many requests) and reports the rest as [`Event`]s. Whatever the other side sends,
//! the peer goes on, its memory stays within its [`Limits`], and no request is answered twice.

use std::borrow::Cow;
use std::collections::VecDeque;
use std::io::IoSlice;
use std::ops::Range;

use agent_client_protocol_schema::v1::{Error, RequestId};
use serde_json::value::RawValue;

use crate::body::Body;
use crate::envelope::{self, Guess, Malformed};
use crate::exchange::Exchange;
use crate::framing::{Line, LineBuffer};
use crate::limits::Limits;

/// What the other side did.
#[derive(Debug)]
pub enum Event<'a> {
    /// It asks for something. [`Peer::respond`] must be called with this id, once.
    Request {
        /// The id to answer with.
        id: RequestId,
        /// What is asked for.
        method: Cow<'a, str>,
        /// The params as they came.
        params: Option<&'a RawValue>,
    },
    /// It tells something.
    Notification {
        /// What is told.
        method: Cow<'a, str>,
        /// The params as they came.
        params: Option<&'a RawValue>,
    },
    /// It answers a request of ours.
    Response {
        /// The id that the request was sent with.
        id: i64,
        /// The result as it came, or the error.
        outcome: Result<&'a RawValue, Error>,
    },
    /// It answers a request of ours that was cancelled.
    LateResponse {
        /// The id that the request was sent with.
        id: i64,
    },
    /// It no longer wants the answer to this request. If the request is not answered yet, it must still be.
    Cancel {
        /// The id of the request.
        id: RequestId,
    },
    /// It sent something that the protocol forbids. Nothing has changed; what could be answered has been.
    Breach(Breach),
}

/// A message that the protocol forbids.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Breach {
    /// The message cannot be read.
    #[error(transparent)]
    Malformed(#[from] Malformed),
    /// A request came with the id of another one that is not answered yet.
    #[error("the request id {0} is in use already")]
    IdInUse(RequestId),
    /// An answer came to no question: the id is unknown, or was answered before.
    #[error("an answer came for the id {0}, which no request waits for")]
    NotAsked(RequestId),
    /// More requests came than may wait for an answer at a time.
    #[error("more than {0} requests wait for an answer")]
    TooManyRequests(usize),
}

/// The answer was given before, or the request never came.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("no answer is owed to the request id {0}")]
pub struct NotOwed(pub RequestId);

/// A request that was not sent.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum NotSent {
    /// As many requests wait for an answer as may.
    #[error("{0} requests wait for an answer already")]
    TooMany(usize),
    /// The id is in use.
    #[error("a request with the id {0} waits for an answer already")]
    IdInUse(i64),
}

/// One end of a connection.
#[derive(Debug)]
pub struct Peer {
    lines: LineBuffer,
    /// The rest of a batch, as ranges of the line it came in.
    batch_rest: VecDeque<Range<usize>>,
    exchange: Exchange,
    max_batch: usize,
    max_line: usize,
    ended: bool,
}

/// A message that was taken as it was offered, or what it means.
pub(crate) enum Next<'a, T> {
    Taken(T),
    Event(Event<'a>),
}

/// Nothing.
enum Never {}

/// The next thing in the input, before it is borrowed for an event.
enum Step {
    Message(Range<usize>),
    TooLong { head: Vec<u8>, length: u64 },
    BadBatch(Range<usize>, Malformed),
}

impl Peer {
    /// Makes a peer that has seen nothing yet.
    #[must_use]
    pub fn new(limits: Limits) -> Self {
        Peer {
            lines: LineBuffer::new(limits.max_line),
            batch_rest: VecDeque::new(),
            exchange: Exchange::new(limits),
            max_batch: limits.max_batch,
            max_line: limits.max_line,
            ended: false,
        }
    }

    /// Takes bytes that the other side sent. [`Peer::next_event`] tells what they mean; it should have returned
    /// nothing before this is called again, or the bytes pile up.
    pub fn receive(&mut self, bytes: &[u8]) {
        self.lines.push(bytes);
    }

    /// Returns the buffer that a reader may append the other side's bytes to, instead of [`Peer::receive`].
    pub(crate) fn room(&mut self) -> &mut Vec<u8> {
        self.lines.room()
    }

    /// Notes that the other side will send no more. A last message without a newline counts.
    pub fn end(&mut self) {
        self.ended = true;
    }

    /// Returns what the other side did next, or nothing until more bytes come.
    pub fn next_event(&mut self) -> Option<Event<'_>> {
        match self.next(|_| None::<Never>)? {
            Next::Event(event) => Some(event),
            Next::Taken(never) => match never {},
        }
    }

    /// Takes the next message. One in the usual form is first offered to `take`, which reads its body and so finds out
    /// whether it is one; if not, the message is read with care.
    pub(crate) fn next<T>(&mut self, take: impl FnOnce(Guess<'_>) -> Option<T>) -> Option<Next<'_, T>> {
        let step = self.step()?;
        let Peer { lines, exchange, max_line, .. } = self;
        Some(Next::Event(match step {
            Step::Message(range) => {
                let bytes = &lines.bytes()[range];
                match str::from_utf8(bytes) {
                    Err(_) => exchange.broken(bytes, Malformed::NotUtf8),
                    Ok(text) => {
                        if let Some(taken) = exchange.offer(text, take) {
                            return Some(Next::Taken(taken));
                        }
                        match envelope::parse(text) {
                            Ok(message) => exchange.accept(message),
                            Err(malformed) => exchange.broken(bytes, malformed),
                        }
                    }
                }
            }
            Step::TooLong { head, length } => {
                exchange.broken(&head, Malformed::TooLong { length, limit: *max_line })
            }
            Step::BadBatch(range, malformed) => exchange.broken(&lines.bytes()[range], malformed),
        }))
    }

    fn step(&mut self) -> Option<Step> {
        loop {
            if let Some(range) = self.batch_rest.pop_front() {
                return Some(Step::Message(range));
            }
            self.exchange.close_batch();
            let line = match self.lines.next_line() {
                Some(line) => line,
                None if self.ended => self.lines.rest()?,
                None => return None,
            };
            match line {
                Line::TooLong { head, length } => return Some(Step::TooLong { head, length }),
                Line::Whole(range) if self.lines.bytes()[range.start] == b'[' => {
                    match self.batch(range.clone()) {
                        Ok(messages) => {
                            self.batch_rest = messages;
                            self.exchange.open_batch();
                        }
                        Err(malformed) => return Some(Step::BadBatch(range, malformed)),
                    }
                }
                Line::Whole(range) => return Some(Step::Message(range)),
            }
        }
    }

    /// Returns where the messages of a batch are.
    fn batch(&self, range: Range<usize>) -> Result<VecDeque<Range<usize>>, Malformed> {
        let text = str::from_utf8(&self.lines.bytes()[range.clone()]).map_err(|_| Malformed::NotUtf8)?;
        let messages = envelope::parse_batch(text, self.max_batch)?;
        let ranges = messages.into_iter().map(|message| {
            let start = range.start + (message.get().as_ptr().addr() - text.as_ptr().addr());
            start..start + message.get().len()
        });
        Ok(ranges.collect())
    }

    /// Sends a request and returns the id that its answer will carry.
    ///
    /// # Errors
    /// Fails when too many requests wait for an answer.
    pub fn request(&mut self, method: &str, params: Body) -> Result<i64, NotSent> {
        let id = self.exchange.free_id();
        self.exchange.request(id, method, params)?;
        Ok(id)
    }

    /// Sends a request with an id that the caller chose.
    ///
    /// # Errors
    /// Fails when too many requests wait for an answer, or one with this id does.
    pub fn request_as(&mut self, id: i64, method: &str, params: Body) -> Result<(), NotSent> {
        self.exchange.request(id, method, params)
    }

    /// Sends a notification.
    pub fn notify(&mut self, method: &str, params: Body) {
        self.exchange.notify(method, params);
    }

    /// Answers a request of the other side.
    ///
    /// # Errors
    /// Fails, and sends nothing, when no answer is owed to this id.
    pub fn respond(&mut self, id: &RequestId, answer: Result<Body, Error>) -> Result<(), NotOwed> {
        self.exchange.respond(id, answer)
    }

    /// Tells the other side that the answer to a request of ours is no longer wanted. Does nothing if it came.
    pub fn cancel(&mut self, id: i64) {
        self.exchange.cancel(id);
    }

    /// The number of requests of the other side that are not answered yet.
    #[must_use]
    pub fn owed(&self) -> usize {
        self.exchange.owed()
    }

    /// Whether so many refusals wait to be written that no more input should be taken until some have left.
    #[must_use]
    pub fn is_flooded(&self) -> bool {
        self.exchange.is_flooded()
    }

    /// How many bytes of output wait to be written.
    #[must_use]
    pub fn output_len(&self) -> usize {
        self.exchange.outbox.len()
    }

    /// Removes and returns the output that waits to be written.
    pub fn take_output(&mut self) -> Vec<u8> {
        let output = self.exchange.outbox.take();
        self.exchange.consume(0);
        output
    }

    pub(crate) fn output<'a>(&'a self, slices: &mut [IoSlice<'a>]) -> usize {
        self.exchange.outbox.slices(slices)
    }

    pub(crate) fn consume_output(&mut self, n: usize) {
        self.exchange.consume(n);
    }
}

#[cfg(test)]
mod tests;
