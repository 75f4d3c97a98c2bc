//! One end of a JSON-RPC connection without any IO: bytes in, events out; messages in, bytes out.
//!
//! [`Peer`] tracks the requests that each side has yet to answer. It answers what it can by itself (malformed
//! messages, duplicate ids, too many requests) and reports the rest as [`PeerEvent`]s. On any input the peer
//! continues, its memory stays within its [`ConnectionLimits`], and no request is answered twice.

use std::borrow::Cow;
use std::collections::VecDeque;
use std::io::IoSlice;
use std::ops::Range;

use agent_client_protocol_schema::v1::{Error, RequestId};
use serde_json::value::RawValue;

use crate::limits::ConnectionLimits;
use crate::message::body::JsonBody;
use crate::message::envelope::{self, MalformedMessage, UncheckedMessage};
use crate::peer::request_tracker::RequestTracker;
use crate::stream::line_buffer::{FramedLine, LineBuffer};

/// An event from the other side.
#[derive(Debug)]
pub enum PeerEvent<'a> {
    /// A request. [`Peer::respond`] must be called with this id, once.
    Request {
        /// The id to answer with.
        id: RequestId,
        /// The method.
        method: Cow<'a, str>,
        /// The params as they came.
        params: Option<&'a RawValue>,
    },
    /// A notification.
    Notification {
        /// The method.
        method: Cow<'a, str>,
        /// The params as they came.
        params: Option<&'a RawValue>,
    },
    /// An answer to a request of ours.
    Response {
        /// The id of the request.
        id: i64,
        /// The result as it came, or the error.
        outcome: Result<&'a RawValue, Error>,
    },
    /// An answer to a request of ours that was cancelled.
    LateResponse {
        /// The id of the request.
        id: i64,
    },
    /// A cancellation. If the request is not answered yet, it must still be.
    Cancel {
        /// The id of the request.
        id: RequestId,
    },
    /// A protocol violation. The state is unchanged; any possible answer has been sent.
    Violation(RpcViolation),
}

/// A message that the protocol forbids.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum RpcViolation {
    /// The message cannot be parsed.
    #[error(transparent)]
    Malformed(#[from] MalformedMessage),
    /// A request has the id of another unanswered one.
    #[error("the request id {0} is in use already")]
    IdInUse(RequestId),
    /// An answer to no open request: the id is unknown, or was already answered.
    #[error("an answer came for the id {0}, which no request waits for")]
    UnsolicitedResponse(RequestId),
    /// Too many requests are unanswered.
    #[error("more than {0} requests wait for an answer")]
    TooManyRequests(usize),
}

/// The request was already answered, or never came.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("no answer is owed to the request id {0}")]
pub struct RespondError(pub RequestId);

/// A request that was not sent.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum SendRequestError {
    /// Too many requests of ours are unanswered.
    #[error("{0} requests wait for an answer already")]
    TooManyRequests(usize),
    /// The id is in use.
    #[error("a request with the id {0} waits for an answer already")]
    IdInUse(i64),
}

/// One end of a connection.
#[derive(Debug)]
pub struct Peer {
    lines: LineBuffer,
    /// The rest of a batch, as ranges of its line.
    batch_rest: VecDeque<Range<usize>>,
    requests: RequestTracker,
    max_batch: usize,
    max_line: usize,
    is_input_ended: bool,
}

/// A message that was handled unchecked, or its event.
pub(crate) enum NextMessage<'a, T> {
    Handled(T),
    Event(PeerEvent<'a>),
}

/// An uninhabited type.
enum Never {}

/// The next item in the input, before it is borrowed for an event.
enum InputItem {
    Message(Range<usize>),
    TooLong { head: Vec<u8>, length: u64 },
    BadBatch(Range<usize>, MalformedMessage),
}

impl Peer {
    /// Creates a peer that has received nothing yet.
    #[must_use]
    pub fn new(limits: ConnectionLimits) -> Self {
        Peer {
            lines: LineBuffer::new(limits.max_line),
            batch_rest: VecDeque::new(),
            requests: RequestTracker::new(limits),
            max_batch: limits.max_batch,
            max_line: limits.max_line,
            is_input_ended: false,
        }
    }

    /// Adds bytes from the other side. [`Peer::next_event`] returns their events; it should have returned `None`
    /// before this is called again, or the bytes pile up.
    pub fn receive(&mut self, bytes: &[u8]) {
        self.lines.push(bytes);
    }

    /// Returns the buffer to which a reader may append the other side's bytes, instead of [`Peer::receive`].
    pub(crate) fn read_buffer(&mut self) -> &mut Vec<u8> {
        self.lines.read_buffer()
    }

    /// Records the end of the input. A last message without a newline counts.
    pub fn end_input(&mut self) {
        self.is_input_ended = true;
    }

    /// Returns the next event, or `None` until more bytes arrive.
    pub fn next_event(&mut self) -> Option<PeerEvent<'_>> {
        match self.next_message(|_| None::<Never>)? {
            NextMessage::Event(event) => Some(event),
            NextMessage::Handled(never) => match never {},
        }
    }

    /// Takes the next message. One in the usual form is first offered to `handle`, which parses its body and so
    /// verifies the form; if that fails, the message is parsed with checks.
    pub(crate) fn next_message<T>(
        &mut self,
        handle: impl FnOnce(UncheckedMessage<'_>) -> Option<T>,
    ) -> Option<NextMessage<'_, T>> {
        let step = self.next_input()?;
        let Peer { lines, requests, max_line, .. } = self;
        Some(NextMessage::Event(match step {
            InputItem::Message(range) => {
                let bytes = &lines.bytes()[range];
                match str::from_utf8(bytes) {
                    Err(_) => requests.handle_malformed(bytes, MalformedMessage::NotUtf8),
                    Ok(text) => {
                        if let Some(handled) = requests.offer_unchecked(text, handle) {
                            return Some(NextMessage::Handled(handled));
                        }
                        match envelope::parse(text) {
                            Ok(message) => requests.handle_message(message),
                            Err(malformed) => requests.handle_malformed(bytes, malformed),
                        }
                    }
                }
            }
            InputItem::TooLong { head, length } => {
                requests.handle_malformed(&head, MalformedMessage::TooLong { length, limit: *max_line })
            }
            InputItem::BadBatch(range, malformed) => {
                requests.handle_malformed(&lines.bytes()[range], malformed)
            }
        }))
    }

    fn next_input(&mut self) -> Option<InputItem> {
        loop {
            if let Some(range) = self.batch_rest.pop_front() {
                return Some(InputItem::Message(range));
            }
            self.requests.close_batch();
            let line = match self.lines.next_line() {
                Some(line) => line,
                None if self.is_input_ended => self.lines.take_rest()?,
                None => return None,
            };
            match line {
                FramedLine::TooLong { head, length } => return Some(InputItem::TooLong { head, length }),
                FramedLine::Whole(range) if self.lines.bytes()[range.start] == b'[' => {
                    match self.split_batch(range.clone()) {
                        Ok(messages) => {
                            self.batch_rest = messages;
                            self.requests.open_batch();
                        }
                        Err(malformed) => return Some(InputItem::BadBatch(range, malformed)),
                    }
                }
                FramedLine::Whole(range) => return Some(InputItem::Message(range)),
            }
        }
    }

    /// Returns the ranges of the messages of a batch.
    fn split_batch(&self, range: Range<usize>) -> Result<VecDeque<Range<usize>>, MalformedMessage> {
        let text =
            str::from_utf8(&self.lines.bytes()[range.clone()]).map_err(|_| MalformedMessage::NotUtf8)?;
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
    /// Fails if too many requests are unanswered.
    pub fn request(&mut self, method: &str, params: JsonBody) -> Result<i64, SendRequestError> {
        let id = self.requests.next_free_id();
        self.requests.request(id, method, params)?;
        Ok(id)
    }

    /// Sends a request with an id that the caller chose.
    ///
    /// # Errors
    /// Fails if too many requests are unanswered, or one with this id is.
    pub fn request_with_id(
        &mut self,
        id: i64,
        method: &str,
        params: JsonBody,
    ) -> Result<(), SendRequestError> {
        self.requests.request(id, method, params)
    }

    /// Sends a notification.
    pub fn notify(&mut self, method: &str, params: JsonBody) {
        self.requests.notify(method, params);
    }

    /// Answers a request of the other side.
    ///
    /// # Errors
    /// Fails, and sends nothing, if no request with this id is open.
    pub fn respond(&mut self, id: &RequestId, answer: Result<JsonBody, Error>) -> Result<(), RespondError> {
        self.requests.respond(id, answer)
    }

    /// Cancels a request of ours. Does nothing if it was already answered.
    pub fn cancel(&mut self, id: i64) {
        self.requests.cancel(id);
    }

    /// Returns the number of unanswered requests of the other side.
    #[must_use]
    pub fn unanswered_count(&self) -> usize {
        self.requests.unanswered_count()
    }

    /// Returns whether too many refusals wait to be written, so that no more input should be read until some have
    /// left.
    #[must_use]
    pub fn is_flooded(&self) -> bool {
        self.requests.is_flooded()
    }

    /// Returns the number of bytes of output that wait to be written.
    #[must_use]
    pub fn output_len(&self) -> usize {
        self.requests.outbox.len()
    }

    /// Removes and returns the output that waits to be written.
    pub fn take_output(&mut self) -> Vec<u8> {
        let output = self.requests.outbox.take();
        self.requests.consume_output(0);
        output
    }

    pub(crate) fn output_slices<'a>(&'a self, slices: &mut [IoSlice<'a>]) -> usize {
        self.requests.outbox.fill_slices(slices)
    }

    pub(crate) fn consume_output(&mut self, n: usize) {
        self.requests.consume_output(n);
    }
}

pub(crate) mod request_tracker;
#[cfg(test)]
mod tests;
