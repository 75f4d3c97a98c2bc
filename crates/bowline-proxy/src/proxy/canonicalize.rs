//! The agent's lines when rules apply to them: each is forwarded as the one message that was judged, or rejected.

use std::future::ready;

use bowline_protocol::relay::{Method, RelayedMessage, Route};
use bowline_protocol::rpc_error::RpcError;
use bowline_protocol::schema::v1::{Error, RequestId};
use bowline_wire::message::canonical::canonicalize;
use bowline_wire::message::peek::{self, PeekedMessage, peek};
use bytes::Bytes;
use serde_json::json;

use super::{
    AGENT, EDITOR, LongLineTarget, OWN_END, ProxyCore, RoutedMessage, RoutedMessageKind, error_response,
    side_of,
};
use crate::interceptor::Disposition;

impl ProxyCore {
    /// Returns the canonical message to judge and forward in place of a line, or `None` if the line itself is used.
    /// Fails with the reason if the line is rejected.
    pub(super) fn canonicalize(
        &self,
        from: usize,
        line: &[u8],
        is_whole: bool,
    ) -> Result<Option<Bytes>, &'static str> {
        if !self.options.canonicalize || from != AGENT {
            return Ok(None);
        }
        if !is_whole {
            return Err(TOO_LONG);
        }
        // No reader takes a line without an object for a message.
        if memchr::memchr(b'{', line).is_none() {
            return Ok(None);
        }
        let message = canonicalize(line).ok_or(AMBIGUOUS)?;
        let can_be_judged = match peek(&message) {
            PeekedMessage::Request { id, method } => {
                peek::parse_id(id).is_some() && !Method::is_lookalike(&method)
            }
            PeekedMessage::Notification { method } => {
                !Method::from_name(&method).is_some_and(Method::needs_policy)
                    && !Method::is_lookalike(&method)
            }
            PeekedMessage::Response { id, .. } => peek::parse_id(id).is_some(),
            // A message without a method or a request id, such as an error with a null id, requests nothing.
            PeekedMessage::Other => true,
        };
        if can_be_judged { Ok(Some(message.into())) } else { Err(AMBIGUOUS) }
    }

    /// Answers a rejected line, or fails the request that it may have been the answer to.
    pub(super) fn reject_line(&mut self, from: usize, length: usize, is_whole: bool, reason: &'static str) {
        self.flush_forwarded(from);
        let line = self.ends[from].input.take_chunk(length);
        if !is_whole {
            self.ends[from].long_line = Some(LongLineTarget::Discard);
        }
        let error = Error::from(RpcError::InvalidRequest { reason: reason.to_owned() });
        let id = match peek(&line) {
            PeekedMessage::Request { id, .. } => peek::parse_id(id),
            PeekedMessage::Response { id, .. } => match peek::parse_id(id) {
                Some(id) => return self.reject_response(from, id, reason),
                None => None,
            },
            PeekedMessage::Notification { .. } => None,
            // A line of plain text, such as log output, expects no answer.
            PeekedMessage::Other if !matches!(line.trim_ascii_start().first(), Some(b'{' | b'[')) => return,
            PeekedMessage::Other => None,
        };
        let message =
            RoutedMessage { from, kind: RoutedMessageKind::Request, id, renamed: None, line: Bytes::new() };
        match (message.id.is_some(), self.is_receiving_long_line(from)) {
            // The answer would land in the middle of a long line.
            (true, true) => self.hold(message, Box::pin(ready(Disposition::Answer(Err(error))))),
            (true, false) => self.apply_disposition(message, Disposition::Answer(Err(error))),
            (false, true) => {}
            (false, false) => self.ends[from].output.push_line(error_response(&json!(null), &error)),
        }
    }

    /// Fails the request whose answer was rejected.
    fn reject_response(&mut self, from: usize, id: RequestId, reason: &str) {
        let error = Error::from(RpcError::Internal { reason: format!("the agent's answer: {reason}") });
        let line = |id: &RequestId| error_response(&json!(id), &error);
        match self.relay.route(side_of(from), RelayedMessage::Answer(&id, true), &[]) {
            Route::Inspect(fact, renamed) => {
                let mut line = line(&id);
                line.push(b'\n');
                self.intercept(
                    RoutedMessage {
                        from,
                        kind: RoutedMessageKind::Response,
                        id: Some(id),
                        renamed,
                        line: line.into(),
                    },
                    &fact,
                );
            }
            Route::ForwardRenamed(renamed_id) => self.ends[EDITOR].output.push_line(line(&renamed_id)),
            Route::OwnAnswer(own_id) => {
                self.ends[OWN_END].output.push_line(error_response(&json!(own_id), &error))
            }
            Route::Forward => self.ends[EDITOR].output.push_line(line(&id)),
            // No request waits for it.
            Route::Discard | Route::ForwardCancel(_) | Route::CancelOwn | Route::CancelHeld(_) => {}
        }
    }
}

const AMBIGUOUS: &str = "rules are to be applied, and this line can be taken for different messages: write each name once and \
                         plainly, one message a line";
const TOO_LONG: &str = "rules are to be applied, and this line is too long to be looked at";
