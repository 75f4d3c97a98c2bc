//! Giving up what nobody waits for any more: requests that are held, and calls of our own to the editor.

use std::future::{Future as _, ready};
use std::task::Context;

use bowline_state::failure::Failure;
use bowline_state::relay::{Method, Side};
use bowline_state::schema::v1::{Error, PROTOCOL_LEVEL_METHOD_NAMES, RequestId};
use serde_json::json;
use tokio::time::sleep;

use super::{AGENT, Core, EDITOR, Held, Kind, Long, OWN_END, Phase, Waiting, refusal, side};
use crate::between::{BoxFuture, Deed};

impl Core {
    /// Says whether nothing more comes from the agent, which takes nothing any more either.
    pub(super) fn is_agent_gone(&self) -> bool {
        self.ends[AGENT].input.has_ended()
    }

    /// Says whether a line of our own would land in the middle of another.
    pub(super) fn takes_a_long_line(&self, at: usize) -> bool {
        self.ends.iter().any(|end| end.long == Some(Long::To(at)))
    }

    /// Holds a message over which others may go on.
    pub(super) fn hold(&mut self, held: Held, deed: BoxFuture<Deed>) {
        if let Some(id) = held.id.as_ref().filter(|_| is_request(&held)) {
            self.relay.held(side(held.from), id);
        }
        self.held[held.from] += held.line.len();
        self.overtaken.push(Waiting { held, deed });
    }

    /// Gives up a request that is held and that its sender has cancelled: what is done for it is dropped, and it is
    /// answered.
    pub(super) fn give_up(&mut self, from: usize, id: &RequestId) {
        for mut waiting in std::mem::take(&mut self.overtaken) {
            let held = &waiting.held;
            if held.from == from && held.id.as_ref() == Some(id) && is_request(held) {
                waiting.deed = Box::pin(ready(Deed::Answer(Err(Failure::Cancelled.into()))));
            }
            self.overtaken.push(waiting);
        }
    }

    /// Gives up what is done for an agent that is gone: at once what it would have been asked about, after a while what it
    /// asked for. Returns whether there was something.
    pub(super) fn give_up_for_nobody(&mut self, cx: &mut Context<'_>) -> bool {
        if !self.is_agent_gone() || self.phase == Phase::Closing {
            return false;
        }
        if !self.takes_a_long_line(EDITOR) && self.give_up_own(Some(Method::Permission)) {
            return true;
        }
        if self.held[AGENT] == 0 {
            return false;
        }
        let drain = self.settings.drain;
        let deaf = self.ends[AGENT].deaf.get_or_insert_with(|| Box::pin(sleep(drain)));
        if deaf.as_mut().poll(cx).is_pending() {
            return false;
        }
        let before = self.overtaken.len();
        for waiting in std::mem::take(&mut self.overtaken) {
            if waiting.held.from == AGENT && is_request(&waiting.held) {
                self.held[AGENT] -= waiting.held.line.len();
            } else {
                self.overtaken.push(waiting);
            }
        }
        self.overtaken.len() < before
    }

    /// Gives up calls of our own to the editor, of one method or all: it is told, and so is who made them.
    pub(super) fn give_up_own(&mut self, method: Option<Method>) -> bool {
        let given_up = self.relay.give_up_own(Side::Editor, method);
        for (own, id) in &given_up {
            let method = PROTOCOL_LEVEL_METHOD_NAMES.cancel_request;
            let cancel = json!({ "jsonrpc": "2.0", "method": method, "params": { "requestId": id } });
            self.ends[EDITOR].output.push_line(cancel.to_string().into_bytes());
            self.refuse_own(*own);
        }
        !given_up.is_empty()
    }

    /// Answers a call of our own, which is not made.
    pub(super) fn refuse_own(&mut self, own: i64) {
        let cancelled: Error = Failure::Cancelled.into();
        self.ends[OWN_END].output.push_line(refusal(&json!(own), &cancelled));
    }
}

fn is_request(held: &Held) -> bool {
    held.kind == Kind::Request
}
