//! Cancellation of held requests, and of our own calls to the editor, when their sender no longer waits.

use std::future::{Future as _, ready};
use std::task::Context;

use bowline_protocol::relay::{Method, ProxySide};
use bowline_protocol::rpc_error::RpcError;
use bowline_protocol::schema::v1::{Error, PROTOCOL_LEVEL_METHOD_NAMES, RequestId};
use serde_json::json;
use tokio::time::sleep;

use super::{
    AGENT, EDITOR, HeldMessage, LongLineTarget, OWN_END, ProxyCore, ProxyPhase, RoutedMessage,
    RoutedMessageKind, error_response, side_of,
};
use crate::interceptor::{BoxFuture, Disposition};

impl ProxyCore {
    /// Returns whether the agent's input has ended; it no longer reads then, either.
    pub(super) fn is_agent_gone(&self) -> bool {
        self.ends[AGENT].input.has_ended()
    }

    /// Returns whether a line of our own would land in the middle of another.
    pub(super) fn is_receiving_long_line(&self, at: usize) -> bool {
        self.ends.iter().any(|end| end.long_line == Some(LongLineTarget::Forward(at)))
    }

    /// Holds a message that others may overtake.
    pub(super) fn hold(&mut self, held: RoutedMessage, deed: BoxFuture<Disposition>) {
        if let Some(id) = held.id.as_ref().filter(|_| is_request(&held)) {
            self.relay.mark_held(side_of(held.from), id);
        }
        self.held_bytes[held.from] += held.line.len();
        self.held_messages.push(HeldMessage { message: held, disposition: deed });
    }

    /// Cancels a held request at the request of its sender: its future is dropped, and the request is answered as
    /// cancelled.
    pub(super) fn cancel_held_request(&mut self, from: usize, id: &RequestId) {
        for mut waiting in std::mem::take(&mut self.held_messages) {
            let held = &waiting.message;
            if held.from == from && held.id.as_ref() == Some(id) && is_request(held) {
                waiting.disposition = Box::pin(ready(Disposition::Answer(Err(RpcError::Cancelled.into()))));
            }
            self.held_messages.push(waiting);
        }
    }

    /// Cancels the work for an agent that is gone: permission prompts at once, its held requests after a while. Returns
    /// whether anything was cancelled.
    pub(super) fn cancel_for_gone_agent(&mut self, cx: &mut Context<'_>) -> bool {
        if !self.is_agent_gone() || self.phase == ProxyPhase::Closing {
            return false;
        }
        if !self.is_receiving_long_line(EDITOR) && self.cancel_own_calls(Some(Method::Permission)) {
            return true;
        }
        if self.held_bytes[AGENT] == 0 {
            return false;
        }
        let drain = self.options.drain_timeout;
        let deaf = self.ends[AGENT].drain_timer.get_or_insert_with(|| Box::pin(sleep(drain)));
        if deaf.as_mut().poll(cx).is_pending() {
            return false;
        }
        let before = self.held_messages.len();
        for waiting in std::mem::take(&mut self.held_messages) {
            if waiting.message.from == AGENT && is_request(&waiting.message) {
                self.held_bytes[AGENT] -= waiting.message.line.len();
            } else {
                self.held_messages.push(waiting);
            }
        }
        self.held_messages.len() < before
    }

    /// Cancels our own calls to the editor, of one method or all, and fails them for their callers.
    pub(super) fn cancel_own_calls(&mut self, method: Option<Method>) -> bool {
        let given_up = self.relay.abandon_own_calls(ProxySide::Editor, method);
        for (own, id) in &given_up {
            let method = PROTOCOL_LEVEL_METHOD_NAMES.cancel_request;
            let cancel = json!({ "jsonrpc": "2.0", "method": method, "params": { "requestId": id } });
            self.ends[EDITOR].output.push_line(cancel.to_string().into_bytes());
            self.refuse_own_call(*own);
        }
        !given_up.is_empty()
    }

    /// Answers one of our own calls as cancelled.
    pub(super) fn refuse_own_call(&mut self, own: i64) {
        let cancelled: Error = RpcError::Cancelled.into();
        self.ends[OWN_END].output.push_line(error_response(&json!(own), &cancelled));
    }
}

fn is_request(held: &RoutedMessage) -> bool {
    held.kind == RoutedMessageKind::Request
}
