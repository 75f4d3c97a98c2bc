//! Who owes whom an answer, and the bytes that say so.

use std::collections::{HashMap, VecDeque};

use agent_client_protocol_schema::v1::{
    CancelRequestNotification, Error, PROTOCOL_LEVEL_METHOD_NAMES, RequestId,
};
use bowline_state::failure::Failure;
use serde_json::value::RawValue;

use crate::body::Body;
use crate::envelope::{self, Guess, Head, Malformed, Message};
use crate::limits::{Limits, MAX_REFUSALS};
use crate::outbox::Outbox;
use crate::peer::{Breach, Event, NotOwed, NotSent};
use crate::salvage::salvage;

/// How many cancelled requests of ours are remembered, so that a late answer is known for what it is.
const MAX_CANCELLED: usize = 1024;

/// The open questions of both sides.
#[derive(Debug)]
pub(crate) struct Exchange {
    limits: Limits,
    /// Requests of the other side that are not answered yet, with the batch they came in.
    incoming: HashMap<RequestId, Option<u64>>,
    /// Requests of ours that are not answered yet.
    outgoing: HashMap<i64, Wanted>,
    // Invariant: the ids in `outgoing` that are `Wanted::No`, oldest first.
    cancelled: VecDeque<i64>,
    next_id: i64,
    batches: HashMap<u64, Batch>,
    // Invariant: the sum of `Batch::refusals`, at most `MAX_REFUSALS`.
    held: usize,
    // Invariant: the sum of `Batch::bytes`, at most `Limits::high_water`.
    held_bytes: usize,
    open_batch: Option<u64>,
    next_batch: u64,
    pub(crate) outbox: Outbox,
    /// Where each refusal that is not written yet ends in the output.
    refusals: VecDeque<u64>,
}

/// Whether somebody still waits for the answer to a request of ours.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Wanted {
    Yes,
    No,
}

/// The answers to a batch, which leave together.
#[derive(Debug, Default)]
struct Batch {
    waiting: usize,
    complete: bool,
    answers: Vec<u8>,
    /// How many of the answers are refusals.
    refusals: usize,
    /// How long the results and errors in it are that requests were answered with.
    bytes: usize,
}

impl Exchange {
    pub(crate) fn new(limits: Limits) -> Self {
        Exchange {
            limits,
            incoming: HashMap::new(),
            outgoing: HashMap::new(),
            cancelled: VecDeque::new(),
            next_id: 0,
            batches: HashMap::new(),
            held: 0,
            held_bytes: 0,
            open_batch: None,
            next_batch: 0,
            outbox: Outbox::default(),
            refusals: VecDeque::new(),
        }
    }

    /// Takes a message that could be read.
    pub(crate) fn accept<'a>(&mut self, message: Message<'a>) -> Event<'a> {
        match message {
            Message::Request { id, method, params } => {
                if self.incoming.contains_key(&id) {
                    let breach = Breach::IdInUse(id);
                    self.refuse(None, Failure::InvalidRequest { reason: breach.to_string() });
                    return Event::Breach(breach);
                }
                if self.incoming.len() >= self.limits.max_incoming {
                    let breach = Breach::TooManyRequests(self.limits.max_incoming);
                    self.refuse(Some(&id), Failure::Busy { limit: self.limits.max_incoming as u64 });
                    return Event::Breach(breach);
                }
                if let Some(batch) = self.open_batch.and_then(|key| self.batches.get_mut(&key)) {
                    batch.waiting += 1;
                }
                self.incoming.insert(id.clone(), self.open_batch);
                Event::Request { id, method, params }
            }
            Message::Notification { method, params }
                if method == PROTOCOL_LEVEL_METHOD_NAMES.cancel_request =>
            {
                match params
                    .and_then(|params| serde_json::from_str::<CancelRequestNotification>(params.get()).ok())
                {
                    Some(cancel) => Event::Cancel { id: cancel.request_id },
                    None => Event::Notification { method, params },
                }
            }
            Message::Notification { method, params } => Event::Notification { method, params },
            Message::Response { id, outcome } => match self.answered(&id) {
                Some((id, Wanted::Yes)) => Event::Response { id, outcome: outcome.map_err(read_error) },
                Some((id, Wanted::No)) => Event::LateResponse { id },
                None => Event::Breach(Breach::NotAsked(id)),
            },
        }
    }

    /// Offers a message in the usual form to `take`. If `take` could read it, it was one, and counts.
    pub(crate) fn offer<T>(&mut self, text: &str, take: impl FnOnce(Guess<'_>) -> Option<T>) -> Option<T> {
        if self.open_batch.is_some() {
            return None;
        }
        let guess = envelope::guess(text)?;
        match &guess.head {
            Head::Notification { method } if method.starts_with('$') => None,
            Head::Notification { .. } => take(guess),
            Head::Request { id, .. } => {
                if self.incoming.len() >= self.limits.max_incoming || self.incoming.contains_key(id) {
                    return None;
                }
                let id = id.clone();
                let taken = take(guess)?;
                self.incoming.insert(id, None);
                Some(taken)
            }
            Head::Result { id } => {
                let id = *id;
                if self.outgoing.get(&id) != Some(&Wanted::Yes) {
                    return None;
                }
                let taken = take(guess)?;
                self.outgoing.remove(&id);
                Some(taken)
            }
        }
    }

    /// Takes a message that could not be read, and answers it if it can be known what to answer.
    pub(crate) fn broken<'a>(&mut self, bytes: &[u8], malformed: Malformed) -> Event<'a> {
        let found = salvage(bytes);
        if found.is_response {
            return match found.id.as_ref().and_then(|id| self.answered(id)) {
                Some((id, Wanted::Yes)) => {
                    let failure =
                        Failure::Internal { reason: format!("the answer cannot be read: {malformed}") };
                    Event::Response { id, outcome: Err(failure.into()) }
                }
                Some((id, Wanted::No)) => Event::LateResponse { id },
                None => Event::Breach(malformed.into()),
            };
        }
        let id = found.id.filter(|id| !self.incoming.contains_key(id));
        let failure = match malformed {
            Malformed::NotUtf8 | Malformed::NotJson => Failure::Parse { reason: malformed.to_string() },
            _ => Failure::InvalidRequest { reason: malformed.to_string() },
        };
        self.refuse(id.as_ref(), failure);
        Event::Breach(malformed.into())
    }

    fn answered(&mut self, id: &RequestId) -> Option<(i64, Wanted)> {
        let id = match id {
            RequestId::Number(number) => *number,
            // Some peers answer with the id as a string.
            RequestId::Str(text) => text.parse().ok()?,
            RequestId::Null => return None,
        };
        let wanted = self.outgoing.remove(&id)?;
        if wanted == Wanted::No {
            self.cancelled.retain(|cancelled| *cancelled != id);
        }
        Some((id, wanted))
    }

    pub(crate) fn free_id(&mut self) -> i64 {
        while self.outgoing.contains_key(&self.next_id) {
            self.next_id = self.next_id.wrapping_add(1) & i64::MAX;
        }
        let id = self.next_id;
        self.next_id = id.wrapping_add(1) & i64::MAX;
        id
    }

    pub(crate) fn request(&mut self, id: i64, method: &str, params: Body) -> Result<(), NotSent> {
        if self.outgoing.len() >= self.limits.max_outgoing.saturating_add(self.cancelled.len()) {
            return Err(NotSent::TooMany(self.limits.max_outgoing));
        }
        if self.outgoing.contains_key(&id) {
            return Err(NotSent::IdInUse(id));
        }
        self.outgoing.insert(id, Wanted::Yes);
        self.outbox.append(|out| {
            start(out, Some(&RequestId::Number(id)));
            out.extend_from_slice(b",\"method\":");
            call(out, method);
        });
        self.finish(params);
        Ok(())
    }

    pub(crate) fn notify(&mut self, method: &str, params: Body) {
        self.outbox.append(|out| {
            out.extend_from_slice(b"{\"jsonrpc\":\"2.0\",\"method\":");
            call(out, method);
        });
        self.finish(params);
    }

    fn finish(&mut self, body: Body) {
        self.outbox.push_owned(body.into_bytes());
        self.outbox.append(|out| out.extend_from_slice(b"}\n"));
    }

    pub(crate) fn cancel(&mut self, id: i64) {
        let Some(wanted @ Wanted::Yes) = self.outgoing.get_mut(&id) else { return };
        *wanted = Wanted::No;
        self.cancelled.push_back(id);
        if self.cancelled.len() > MAX_CANCELLED
            && let Some(oldest) = self.cancelled.pop_front()
        {
            self.outgoing.remove(&oldest);
        }
        let cancel = CancelRequestNotification::new(RequestId::Number(id));
        if let Ok(params) = Body::of(&cancel) {
            self.notify(PROTOCOL_LEVEL_METHOD_NAMES.cancel_request, params);
        }
    }

    pub(crate) fn respond(&mut self, id: &RequestId, answer: Result<Body, Error>) -> Result<(), NotOwed> {
        let batch = self.incoming.remove(id).ok_or_else(|| NotOwed(id.clone()))?;
        let (name, body) = match answer {
            Ok(result) => ("result", result),
            Err(error) => ("error", error_body(&error)),
        };
        let held = self.held_bytes + body.as_bytes().len();
        match batch.and_then(|key| self.batches.get_mut(&key)) {
            Some(batch) if held <= self.limits.high_water => {
                batch.waiting -= 1;
                batch.bytes += body.as_bytes().len();
                self.held_bytes = held;
                batch.add(Some(id), name, &body);
            }
            batch => {
                // Batches that wait for their requests hold so much that this answer leaves by itself.
                if let Some(batch) = batch {
                    batch.waiting -= 1;
                }
                self.outbox.append(|out| {
                    start(out, Some(id));
                    member(out, name);
                });
                self.finish(body);
            }
        }
        if let Some(key) = batch {
            self.send_batch(key);
        }
        Ok(())
    }

    /// Answers a message that no request was made of.
    fn refuse(&mut self, id: Option<&RequestId>, failure: Failure) {
        let body = error_body(&failure.into());
        match self.open_batch.and_then(|key| self.batches.get_mut(&key)) {
            Some(batch) if self.held < MAX_REFUSALS => {
                batch.add(id, "error", &body);
                batch.refusals += 1;
                self.held += 1;
            }
            // Batches that wait for their requests hold so many refusals that this one leaves by itself.
            _ => {
                self.outbox.append(|out| {
                    answer(out, id, "error", &body);
                    out.push(b'\n');
                });
                self.refusals.push_back(self.outbox.appended());
            }
        }
    }

    pub(crate) fn open_batch(&mut self) {
        self.open_batch = Some(self.next_batch);
        self.batches.insert(self.next_batch, Batch::default());
        self.next_batch += 1;
    }

    /// Notes that every message of the batch was taken.
    pub(crate) fn close_batch(&mut self) {
        if let Some(key) = self.open_batch.take() {
            if let Some(batch) = self.batches.get_mut(&key) {
                batch.complete = true;
            }
            self.send_batch(key);
        }
    }

    /// Sends the answers of a batch if it owes no more. A batch without requests gets no answer.
    fn send_batch(&mut self, key: u64) {
        let done = self.batches.get(&key).is_some_and(|batch| batch.complete && batch.waiting == 0);
        if done
            && let Some(batch) = self.batches.remove(&key)
            && !batch.answers.is_empty()
        {
            self.held_bytes -= batch.bytes;
            self.outbox.append(|out| out.push(b'['));
            self.outbox.push_owned(batch.answers);
            self.outbox.append(|out| out.extend_from_slice(b"]\n"));
            self.held -= batch.refusals;
            self.refusals.extend(std::iter::repeat_n(self.outbox.appended(), batch.refusals));
        }
    }

    pub(crate) fn owed(&self) -> usize {
        self.incoming.len()
    }

    /// Whether so many refusals wait to be written that no more should be made.
    pub(crate) fn is_flooded(&self) -> bool {
        self.refusals.len() >= MAX_REFUSALS
    }

    pub(crate) fn consume(&mut self, n: usize) {
        self.outbox.consume(n);
        let written = self.outbox.written();
        while self.refusals.front().is_some_and(|end| *end <= written) {
            self.refusals.pop_front();
        }
    }
}

impl Batch {
    fn add(&mut self, id: Option<&RequestId>, name: &str, body: &Body) {
        if !self.answers.is_empty() {
            self.answers.push(b',');
        }
        answer(&mut self.answers, id, name, body);
    }
}

/// Writes a whole answer without the newline.
fn answer(out: &mut Vec<u8>, id: Option<&RequestId>, name: &str, body: &Body) {
    start(out, id);
    member(out, name);
    out.extend_from_slice(body.as_bytes());
    out.push(b'}');
}

fn start(out: &mut Vec<u8>, id: Option<&RequestId>) {
    out.extend_from_slice(b"{\"jsonrpc\":\"2.0\",\"id\":");
    match id {
        Some(RequestId::Number(number)) => json(out, number),
        Some(RequestId::Str(text)) => json(out, text),
        Some(RequestId::Null) | None => out.extend_from_slice(b"null"),
    }
}

fn call(out: &mut Vec<u8>, method: &str) {
    json(out, method);
    member(out, "params");
}

fn member(out: &mut Vec<u8>, name: &str) {
    out.extend_from_slice(b",\"");
    out.extend_from_slice(name.as_bytes());
    out.extend_from_slice(b"\":");
}

/// Writes a number or a string, which cannot fail.
fn json<T: serde::Serialize + ?Sized>(out: &mut Vec<u8>, scalar: &T) {
    if serde_json::to_writer(&mut *out, scalar).is_err() {
        out.extend_from_slice(b"null");
    }
}

fn error_body(error: &Error) -> Body {
    Body::of(error).unwrap_or_else(|_| Body::empty_object())
}

/// Reads the error of an answer. One that is no error object is still an error.
fn read_error(raw: &RawValue) -> Error {
    serde_json::from_str(raw.get())
        .unwrap_or_else(|_| Failure::Internal { reason: "the peer's error cannot be read".to_owned() }.into())
}
