//! The open requests of both sides, and the output about them.

use std::collections::{HashMap, VecDeque};

use agent_client_protocol_schema::v1::{
    CancelRequestNotification, Error, PROTOCOL_LEVEL_METHOD_NAMES, RequestId,
};
use bowline_protocol::rpc_error::RpcError;
use serde_json::value::RawValue;

use crate::limits::{ConnectionLimits, MAX_REFUSALS};
use crate::message::body::JsonBody;
use crate::message::envelope::{self, MalformedMessage, MessageHead, RpcMessage, UncheckedMessage};
use crate::message::salvage::salvage;
use crate::peer::{PeerEvent, RespondError, RpcViolation, SendRequestError};
use crate::stream::outbox::Outbox;

/// The number of cancelled requests of ours that are remembered, so that a late answer is recognised.
const MAX_CANCELLED: usize = 1024;

/// The open requests of both sides.
#[derive(Debug)]
pub(crate) struct RequestTracker {
    limits: ConnectionLimits,
    /// Unanswered requests of the other side, with their batch.
    incoming: HashMap<RequestId, Option<u64>>,
    /// Unanswered requests of ours.
    outgoing: HashMap<i64, OutgoingRequestState>,
    // Invariant: the ids in `outgoing` that are `OutgoingRequestState::Cancelled`, oldest first.
    cancelled: VecDeque<i64>,
    next_id: i64,
    batches: HashMap<u64, BatchResponse>,
    // Invariant: the sum of `BatchResponse::refusal_count`, at most `MAX_REFUSALS`.
    held_refusals: usize,
    // Invariant: the sum of `BatchResponse::response_bytes`, at most `ConnectionLimits::high_water`.
    held_bytes: usize,
    open_batch: Option<u64>,
    next_batch: u64,
    pub(crate) outbox: Outbox,
    /// The end of each unwritten refusal in the output.
    refusal_ends: VecDeque<u64>,
}

/// Whether a request of ours is still awaited.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum OutgoingRequestState {
    Active,
    Cancelled,
}

/// The answers to a batch, which leave together.
#[derive(Debug, Default)]
struct BatchResponse {
    pending: usize,
    is_complete: bool,
    responses: Vec<u8>,
    /// The number of refusals among the answers.
    refusal_count: usize,
    /// The total length of the results and errors that requests were answered with.
    response_bytes: usize,
}

impl RequestTracker {
    pub(crate) fn new(limits: ConnectionLimits) -> Self {
        RequestTracker {
            limits,
            incoming: HashMap::new(),
            outgoing: HashMap::new(),
            cancelled: VecDeque::new(),
            next_id: 0,
            batches: HashMap::new(),
            held_refusals: 0,
            held_bytes: 0,
            open_batch: None,
            next_batch: 0,
            outbox: Outbox::default(),
            refusal_ends: VecDeque::new(),
        }
    }

    /// Handles a parsed message.
    pub(crate) fn handle_message<'a>(&mut self, message: RpcMessage<'a>) -> PeerEvent<'a> {
        match message {
            RpcMessage::Request { id, method, params } => {
                if self.incoming.contains_key(&id) {
                    let violation = RpcViolation::IdInUse(id);
                    self.refuse(None, RpcError::InvalidRequest { reason: violation.to_string() });
                    return PeerEvent::Violation(violation);
                }
                if self.incoming.len() >= self.limits.max_incoming {
                    let violation = RpcViolation::TooManyRequests(self.limits.max_incoming);
                    self.refuse(Some(&id), RpcError::Busy { limit: self.limits.max_incoming as u64 });
                    return PeerEvent::Violation(violation);
                }
                if let Some(batch) = self.open_batch.and_then(|key| self.batches.get_mut(&key)) {
                    batch.pending += 1;
                }
                self.incoming.insert(id.clone(), self.open_batch);
                PeerEvent::Request { id, method, params }
            }
            RpcMessage::Notification { method, params }
                if method == PROTOCOL_LEVEL_METHOD_NAMES.cancel_request =>
            {
                match params
                    .and_then(|params| serde_json::from_str::<CancelRequestNotification>(params.get()).ok())
                {
                    Some(cancel) => PeerEvent::Cancel { id: cancel.request_id },
                    None => PeerEvent::Notification { method, params },
                }
            }
            RpcMessage::Notification { method, params } => PeerEvent::Notification { method, params },
            RpcMessage::Response { id, outcome } => match self.complete_outgoing(&id) {
                Some((id, OutgoingRequestState::Active)) => {
                    PeerEvent::Response { id, outcome: outcome.map_err(parse_error) }
                }
                Some((id, OutgoingRequestState::Cancelled)) => PeerEvent::LateResponse { id },
                None => PeerEvent::Violation(RpcViolation::UnsolicitedResponse(id)),
            },
        }
    }

    /// Offers a message in the usual form to `handle`. If `handle` can parse it, the form was right and the message is
    /// handled.
    pub(crate) fn offer_unchecked<T>(
        &mut self,
        text: &str,
        handle: impl FnOnce(UncheckedMessage<'_>) -> Option<T>,
    ) -> Option<T> {
        if self.open_batch.is_some() {
            return None;
        }
        let message = envelope::split_unchecked(text)?;
        match &message.head {
            MessageHead::Notification { method } if method.starts_with('$') => None,
            MessageHead::Notification { .. } => handle(message),
            MessageHead::Request { id, .. } => {
                if self.incoming.len() >= self.limits.max_incoming || self.incoming.contains_key(id) {
                    return None;
                }
                let id = id.clone();
                let handled = handle(message)?;
                self.incoming.insert(id, None);
                Some(handled)
            }
            MessageHead::Result { id } => {
                let id = *id;
                if self.outgoing.get(&id) != Some(&OutgoingRequestState::Active) {
                    return None;
                }
                let handled = handle(message)?;
                self.outgoing.remove(&id);
                Some(handled)
            }
        }
    }

    /// Handles a message that could not be parsed, and answers it if its id is found.
    pub(crate) fn handle_malformed<'a>(
        &mut self,
        bytes: &[u8],
        malformed: MalformedMessage,
    ) -> PeerEvent<'a> {
        let found = salvage(bytes);
        if found.is_response {
            return match found.id.as_ref().and_then(|id| self.complete_outgoing(id)) {
                Some((id, OutgoingRequestState::Active)) => {
                    let failure =
                        RpcError::Internal { reason: format!("the answer cannot be read: {malformed}") };
                    PeerEvent::Response { id, outcome: Err(failure.into()) }
                }
                Some((id, OutgoingRequestState::Cancelled)) => PeerEvent::LateResponse { id },
                None => PeerEvent::Violation(malformed.into()),
            };
        }
        let id = found.id.filter(|id| !self.incoming.contains_key(id));
        let failure = match malformed {
            MalformedMessage::NotUtf8 | MalformedMessage::NotJson => {
                RpcError::Parse { reason: malformed.to_string() }
            }
            _ => RpcError::InvalidRequest { reason: malformed.to_string() },
        };
        self.refuse(id.as_ref(), failure);
        PeerEvent::Violation(malformed.into())
    }

    fn complete_outgoing(&mut self, id: &RequestId) -> Option<(i64, OutgoingRequestState)> {
        let id = match id {
            RequestId::Number(number) => *number,
            // Some peers answer with the id as a string.
            RequestId::Str(text) => text.parse().ok()?,
            RequestId::Null => return None,
        };
        let state = self.outgoing.remove(&id)?;
        if state == OutgoingRequestState::Cancelled {
            self.cancelled.retain(|cancelled| *cancelled != id);
        }
        Some((id, state))
    }

    pub(crate) fn next_free_id(&mut self) -> i64 {
        while self.outgoing.contains_key(&self.next_id) {
            self.next_id = self.next_id.wrapping_add(1) & i64::MAX;
        }
        let id = self.next_id;
        self.next_id = id.wrapping_add(1) & i64::MAX;
        id
    }

    pub(crate) fn request(
        &mut self,
        id: i64,
        method: &str,
        params: JsonBody,
    ) -> Result<(), SendRequestError> {
        if self.outgoing.len() >= self.limits.max_outgoing.saturating_add(self.cancelled.len()) {
            return Err(SendRequestError::TooManyRequests(self.limits.max_outgoing));
        }
        if self.outgoing.contains_key(&id) {
            return Err(SendRequestError::IdInUse(id));
        }
        self.outgoing.insert(id, OutgoingRequestState::Active);
        self.outbox.append(|out| {
            write_start(out, Some(&RequestId::Number(id)));
            out.extend_from_slice(b",\"method\":");
            write_method(out, method);
        });
        self.finish_message(params);
        Ok(())
    }

    pub(crate) fn notify(&mut self, method: &str, params: JsonBody) {
        self.outbox.append(|out| {
            out.extend_from_slice(b"{\"jsonrpc\":\"2.0\",\"method\":");
            write_method(out, method);
        });
        self.finish_message(params);
    }

    fn finish_message(&mut self, body: JsonBody) {
        self.outbox.push_owned(body.into_bytes());
        self.outbox.append(|out| out.extend_from_slice(b"}\n"));
    }

    pub(crate) fn cancel(&mut self, id: i64) {
        let Some(state @ OutgoingRequestState::Active) = self.outgoing.get_mut(&id) else { return };
        *state = OutgoingRequestState::Cancelled;
        self.cancelled.push_back(id);
        if self.cancelled.len() > MAX_CANCELLED
            && let Some(oldest) = self.cancelled.pop_front()
        {
            self.outgoing.remove(&oldest);
        }
        let cancel = CancelRequestNotification::new(RequestId::Number(id));
        if let Ok(params) = JsonBody::from_value(&cancel) {
            self.notify(PROTOCOL_LEVEL_METHOD_NAMES.cancel_request, params);
        }
    }

    pub(crate) fn respond(
        &mut self,
        id: &RequestId,
        answer: Result<JsonBody, Error>,
    ) -> Result<(), RespondError> {
        let batch = self.incoming.remove(id).ok_or_else(|| RespondError(id.clone()))?;
        let (name, body) = match answer {
            Ok(result) => ("result", result),
            Err(error) => ("error", error_body(&error)),
        };
        let held_bytes = self.held_bytes + body.as_bytes().len();
        match batch.and_then(|key| self.batches.get_mut(&key)) {
            Some(batch) if held_bytes <= self.limits.high_water => {
                batch.pending -= 1;
                batch.response_bytes += body.as_bytes().len();
                self.held_bytes = held_bytes;
                batch.push_response(Some(id), name, &body);
            }
            batch => {
                // Pending batches already hold too many bytes, so this answer leaves by itself.
                if let Some(batch) = batch {
                    batch.pending -= 1;
                }
                self.outbox.append(|out| {
                    write_start(out, Some(id));
                    write_member_name(out, name);
                });
                self.finish_message(body);
            }
        }
        if let Some(key) = batch {
            self.send_batch_if_complete(key);
        }
        Ok(())
    }

    /// Answers a message that did not become a request.
    fn refuse(&mut self, id: Option<&RequestId>, failure: RpcError) {
        let body = error_body(&failure.into());
        match self.open_batch.and_then(|key| self.batches.get_mut(&key)) {
            Some(batch) if self.held_refusals < MAX_REFUSALS => {
                batch.push_response(id, "error", &body);
                batch.refusal_count += 1;
                self.held_refusals += 1;
            }
            // Pending batches already hold too many refusals, so this one leaves by itself.
            _ => {
                self.outbox.append(|out| {
                    write_response(out, id, "error", &body);
                    out.push(b'\n');
                });
                self.refusal_ends.push_back(self.outbox.total_appended());
            }
        }
    }

    pub(crate) fn open_batch(&mut self) {
        self.open_batch = Some(self.next_batch);
        self.batches.insert(self.next_batch, BatchResponse::default());
        self.next_batch += 1;
    }

    /// Records that every message of the batch was handled.
    pub(crate) fn close_batch(&mut self) {
        if let Some(key) = self.open_batch.take() {
            if let Some(batch) = self.batches.get_mut(&key) {
                batch.is_complete = true;
            }
            self.send_batch_if_complete(key);
        }
    }

    /// Sends the answers of a batch if it is complete. A batch without requests gets no answer.
    fn send_batch_if_complete(&mut self, key: u64) {
        let is_complete = self.batches.get(&key).is_some_and(|batch| batch.is_complete && batch.pending == 0);
        if is_complete
            && let Some(batch) = self.batches.remove(&key)
            && !batch.responses.is_empty()
        {
            self.held_bytes -= batch.response_bytes;
            self.outbox.append(|out| out.push(b'['));
            self.outbox.push_owned(batch.responses);
            self.outbox.append(|out| out.extend_from_slice(b"]\n"));
            self.held_refusals -= batch.refusal_count;
            self.refusal_ends.extend(std::iter::repeat_n(self.outbox.total_appended(), batch.refusal_count));
        }
    }

    pub(crate) fn unanswered_count(&self) -> usize {
        self.incoming.len()
    }

    /// Returns whether too many refusals wait to be written.
    pub(crate) fn is_flooded(&self) -> bool {
        self.refusal_ends.len() >= MAX_REFUSALS
    }

    pub(crate) fn consume_output(&mut self, n: usize) {
        self.outbox.consume(n);
        let written = self.outbox.total_written();
        while self.refusal_ends.front().is_some_and(|end| *end <= written) {
            self.refusal_ends.pop_front();
        }
    }
}

impl BatchResponse {
    fn push_response(&mut self, id: Option<&RequestId>, name: &str, body: &JsonBody) {
        if !self.responses.is_empty() {
            self.responses.push(b',');
        }
        write_response(&mut self.responses, id, name, body);
    }
}

/// Writes a whole answer without the newline.
fn write_response(out: &mut Vec<u8>, id: Option<&RequestId>, name: &str, body: &JsonBody) {
    write_start(out, id);
    write_member_name(out, name);
    out.extend_from_slice(body.as_bytes());
    out.push(b'}');
}

fn write_start(out: &mut Vec<u8>, id: Option<&RequestId>) {
    out.extend_from_slice(b"{\"jsonrpc\":\"2.0\",\"id\":");
    match id {
        Some(RequestId::Number(number)) => write_scalar(out, number),
        Some(RequestId::Str(text)) => write_scalar(out, text),
        Some(RequestId::Null) | None => out.extend_from_slice(b"null"),
    }
}

fn write_method(out: &mut Vec<u8>, method: &str) {
    write_scalar(out, method);
    write_member_name(out, "params");
}

fn write_member_name(out: &mut Vec<u8>, name: &str) {
    out.extend_from_slice(b",\"");
    out.extend_from_slice(name.as_bytes());
    out.extend_from_slice(b"\":");
}

/// Writes a number or a string, which cannot fail.
fn write_scalar<T: serde::Serialize + ?Sized>(out: &mut Vec<u8>, scalar: &T) {
    if serde_json::to_writer(&mut *out, scalar).is_err() {
        out.extend_from_slice(b"null");
    }
}

fn error_body(error: &Error) -> JsonBody {
    JsonBody::from_value(error).unwrap_or_else(|_| JsonBody::empty_object())
}

/// Parses the error of an answer. A value that is not an error object is still an error.
fn parse_error(raw: &RawValue) -> Error {
    serde_json::from_str(raw.get()).unwrap_or_else(|_| {
        RpcError::Internal { reason: "the peer's error cannot be read".to_owned() }.into()
    })
}
