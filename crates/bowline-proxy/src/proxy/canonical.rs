//! The agent's lines where rules are to be applied to them: each goes on as the one message that was judged, or not at all.

use std::future::ready;

use bowline_state::failure::Failure;
use bowline_state::relay::{Method, Route, Seen};
use bowline_state::schema::v1::{Error, RequestId};
use bowline_wire::canonical::canonical;
use bowline_wire::peek::{self, Peek, peek};
use bytes::Bytes;
use serde_json::json;

use super::{AGENT, Core, EDITOR, Held, Kind, Long, OWN_END, refusal, side};
use crate::between::Deed;

impl Core {
    /// Returns what is judged and goes on in place of a line, if it is not the line itself. Fails with the reason if nothing
    /// does.
    pub(super) fn canonical(
        &self,
        from: usize,
        line: &[u8],
        is_whole: bool,
    ) -> Result<Option<Bytes>, &'static str> {
        if !self.settings.strict || from != AGENT {
            return Ok(None);
        }
        if !is_whole {
            return Err(TOO_LONG);
        }
        // A line without an object in it is a message to no reader.
        if memchr::memchr(b'{', line).is_none() {
            return Ok(None);
        }
        let message = canonical(line).ok_or(AMBIGUOUS)?;
        let can_be_judged = match peek(&message) {
            Peek::Request { id, method } => peek::id(id).is_some() && !Method::is_lookalike(&method),
            Peek::Notification { method } => {
                !Method::of(&method).is_some_and(Method::is_judged) && !Method::is_lookalike(&method)
            }
            Peek::Answer { id, .. } => peek::id(id).is_some(),
            // An answer to nothing asks for nothing.
            Peek::Other => true,
        };
        if can_be_judged { Ok(Some(message.into())) } else { Err(AMBIGUOUS) }
    }

    /// Answers a line that is not forwarded, and the request that it may have been the answer to.
    pub(super) fn refuse(&mut self, from: usize, length: usize, is_whole: bool, why: &'static str) {
        self.flush(from);
        let line = self.ends[from].input.take(length);
        if !is_whole {
            self.ends[from].long = Some(Long::Nowhere);
        }
        let refused = Error::from(Failure::InvalidRequest { reason: why.to_owned() });
        let id = match peek(&line) {
            Peek::Request { id, .. } => peek::id(id),
            Peek::Answer { id, .. } => match peek::id(id) {
                Some(id) => return self.refuse_answer(from, id, why),
                None => None,
            },
            Peek::Notification { .. } => None,
            // Who writes words where messages belong does not wait for an answer.
            Peek::Other if !matches!(line.trim_ascii_start().first(), Some(b'{' | b'[')) => return,
            Peek::Other => None,
        };
        let held = Held { from, kind: Kind::Request, id, renamed: None, line: Bytes::new() };
        match (held.id.is_some(), self.takes_a_long_line(from)) {
            // It would land in the middle of that.
            (true, true) => self.hold(held, Box::pin(ready(Deed::Answer(Err(refused))))),
            (true, false) => self.apply(held, Deed::Answer(Err(refused))),
            (false, true) => {}
            (false, false) => self.ends[from].output.push_line(refusal(&json!(null), &refused)),
        }
    }

    /// Tells who waits for an answer that it does not come.
    fn refuse_answer(&mut self, from: usize, id: RequestId, why: &str) {
        let error = Error::from(Failure::Internal { reason: format!("the agent's answer: {why}") });
        let line = |id: &RequestId| refusal(&json!(id), &error);
        match self.relay.see(side(from), Seen::Answer(&id, true), &[]) {
            Route::Look(fact, renamed) => {
                let mut line = line(&id);
                line.push(b'\n');
                self.look(Held { from, kind: Kind::Answer, id: Some(id), renamed, line: line.into() }, &fact);
            }
            Route::Renamed(theirs) => self.ends[EDITOR].output.push_line(line(&theirs)),
            Route::Own(own) => self.ends[OWN_END].output.push_line(refusal(&json!(own), &error)),
            Route::On => self.ends[EDITOR].output.push_line(line(&id)),
            // Nobody waits for it.
            Route::Late | Route::Cancel(_) | Route::Taken | Route::GivenUp(_) => {}
        }
    }
}

const AMBIGUOUS: &str = "rules are to be applied, and this line can be taken for different messages: write each name once and \
                         plainly, one message a line";
const TOO_LONG: &str = "rules are to be applied, and this line is too long to be looked at";
