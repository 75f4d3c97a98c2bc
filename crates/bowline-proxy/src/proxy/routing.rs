//! Where each line goes: what is seen of it, what the relay decides, and what whoever stands between makes of it.

use bowline_state::failure::Failure;
use bowline_state::relay::{Method, Route, Seen, Side};
use bowline_state::schema::v1::{Error, PROTOCOL_LEVEL_METHOD_NAMES, RequestId};
use bowline_wire::peek::{self, Peek, peek, with_id};
use bytes::Bytes;
use serde_json::{Value, json};

use super::{AGENT, Core, Held, Kind, Long, OWN_END, end_of, refusal, side};
use crate::between::Deed;

impl Core {
    /// Passes on the next line of an end, or the beginning of one that is too long to be looked at.
    pub(super) fn route(&mut self, from: usize, length: usize, is_whole: bool) {
        if from == OWN_END {
            return self.route_own(length, is_whole);
        }
        let line = self.ends[from].input.bytes(length);
        let canonical = match self.canonical(from, line, is_whole) {
            Ok(canonical) => canonical,
            Err(why) => return self.refuse(from, length, is_whole, why),
        };
        let line = canonical.as_deref().unwrap_or(line);
        let whole = if is_whole { line } else { &[] };
        let mut kind = Kind::Told;
        let (raw, id, route) = match peek(line) {
            Peek::Request { id: raw, method } => match peek::id(raw) {
                Some(id) => {
                    kind = Kind::Request;
                    let route = self.relay.see(side(from), Seen::Request(&id, &method), whole);
                    (raw, Some(id), route)
                }
                None => (raw, None, Route::On),
            },
            Peek::Notification { method } => {
                (&[][..], None, self.relay.see(side(from), Seen::Notification(&method), whole))
            }
            Peek::Answer { id: raw, is_error } => match peek::id(raw) {
                Some(id) => {
                    kind = Kind::Answer;
                    let route = self.relay.see(side(from), Seen::Answer(&id, is_error), whole);
                    (raw, Some(id), route)
                }
                None => (raw, None, Route::On),
            },
            Peek::Other => (&[][..], None, Route::On),
        };
        let to = end_of(side(from).other());
        let changed = match &route {
            Route::Renamed(new) => Some((to, with_id(line, raw, &text(new)))),
            Route::Cancel(new) => cancelling(line, new).map(|line| (to, line)),
            Route::Own(own) if is_whole => Some((OWN_END, with_id(line, raw, &own.to_string()))),
            Route::Own(own) => {
                let reason = "the answer is longer than is read here".to_owned();
                Some((OWN_END, refusal(&json!(own), &Error::from(Failure::Internal { reason }))))
            }
            _ => None,
        };
        if !is_whole {
            let goes = matches!(route, Route::On | Route::Renamed(_));
            self.ends[from].long = Some(if goes { Long::To(to) } else { Long::Nowhere });
        }
        match (route, changed) {
            (Route::On, _) if canonical.is_none() => self.ends[from].input.pass(length),
            (Route::On, _) => {
                let line = self.take(from, length, canonical);
                self.ends[to].output.push(line);
            }
            (Route::Look(fact, renamed), _) => {
                let line = self.take(from, length, canonical);
                self.look(Held { from, kind, id, renamed, line }, &fact);
            }
            (Route::Taken, _) => {
                let line = self.take(from, length, canonical);
                self.ends[OWN_END].output.push(line);
            }
            (Route::GivenUp(id), _) => {
                self.flush(from);
                drop(self.ends[from].input.take(length));
                self.give_up(from, &id);
            }
            (_, changed) => {
                self.flush(from);
                drop(self.ends[from].input.take(length));
                if let Some((to, line)) = changed {
                    self.ends[to].output.push(line.into());
                    if to == OWN_END {
                        self.ends[to].output.end_line();
                    }
                }
            }
        }
    }

    /// Takes the next line of an end, or what goes on in its place.
    fn take(&mut self, from: usize, length: usize, canonical: Option<Bytes>) -> Bytes {
        self.flush(from);
        let line = self.ends[from].input.take(length);
        canonical.unwrap_or(line)
    }

    /// Does with a message that was held what was decided.
    pub(super) fn release(&mut self, held: Held, deed: Deed) {
        if let (Some(id), Kind::Request, Deed::Pass | Deed::Instead(_)) = (&held.id, held.kind, &deed) {
            self.relay.goes_on(side(held.from), id);
        }
        self.apply(held, deed);
    }

    /// Does with a message what was decided.
    pub(super) fn apply(&mut self, held: Held, deed: Deed) {
        let Held { from, kind, id, renamed, line } = held;
        let to = end_of(side(from).other());
        match deed {
            Deed::Take if from == AGENT => {
                if let Some(id) = &id {
                    self.relay.taken(side(from), id);
                }
                self.ends[OWN_END].output.push(line);
            }
            Deed::Pass | Deed::Take => match &renamed {
                None => self.ends[to].output.push(line),
                Some(new) => self.ends[to].output.push(under(&line, new).into()),
            },
            Deed::Instead(lines) => {
                for line in lines {
                    let line = match &renamed {
                        Some(new) if matches!(peek(&line), Peek::Request { .. } | Peek::Answer { .. }) => {
                            under(&line, new)
                        }
                        _ => line,
                    };
                    self.ends[to].output.push_line(line);
                }
            }
            Deed::Answer(answer) => {
                let Some(id) = id.filter(|_| kind == Kind::Request) else { return };
                self.relay.answered(side(from), &id);
                let line = match answer {
                    Ok(result) => {
                        format!(r#"{{"jsonrpc":"2.0","id":{},"result":{}}}"#, text(&id), result.get())
                            .into_bytes()
                    }
                    Err(error) => refusal(&json!(id), &error),
                };
                self.ends[from].output.push_line(line);
            }
        }
    }

    /// Passes on what the proxy itself says: `mcp/` methods and answers to the agent, all else to the editor.
    fn route_own(&mut self, length: usize, is_whole: bool) {
        let line = self.ends[OWN_END].input.bytes(length);
        let to_of = |method: &str| if method.starts_with("mcp/") { Side::Agent } else { Side::Editor };
        let (to, line) = match peek(line) {
            Peek::Request { id: raw, method } => {
                let Some(RequestId::Number(own)) = peek::id(raw) else {
                    return self.skip_own(length, is_whole);
                };
                let (to, its) = (to_of(&method), Method::of(&method));
                if its == Some(Method::Permission) && self.is_agent_gone() {
                    // For an agent that is gone nobody is asked anything.
                    self.skip_own(length, is_whole);
                    return self.refuse_own(own);
                }
                (to, with_id(line, raw, &text(&self.relay.own(to, own, its))))
            }
            Peek::Notification { method } if method == PROTOCOL_LEVEL_METHOD_NAMES.cancel_request => {
                let own = serde_json::from_slice(line)
                    .ok()
                    .and_then(|line: Value| line["params"]["requestId"].as_i64());
                let given = own.and_then(|own| {
                    let mut sides = [Side::Editor, Side::Agent].into_iter();
                    sides.find_map(|to| Some((to, self.relay.own_id(to, own)?)))
                });
                let cancelled = given.and_then(|(to, given)| Some((to, cancelling(line, &given)?)));
                let Some(cancelled) = cancelled else { return self.skip_own(length, is_whole) };
                cancelled
            }
            Peek::Notification { method } => (to_of(&method), line.to_vec()),
            Peek::Answer { id: raw, .. } => {
                if let Some(id) = peek::id(raw) {
                    self.relay.answered(Side::Agent, &id);
                }
                (Side::Agent, line.to_vec())
            }
            Peek::Other => return self.skip_own(length, is_whole),
        };
        let to = end_of(to);
        drop(self.ends[OWN_END].input.take(length));
        if is_whole {
            self.ends[to].output.push_line(line);
        } else {
            self.ends[OWN_END].long = Some(Long::To(to));
            self.ends[to].output.push(line.into());
        }
    }

    fn skip_own(&mut self, length: usize, is_whole: bool) {
        drop(self.ends[OWN_END].input.take(length));
        if !is_whole {
            self.ends[OWN_END].long = Some(Long::Nowhere);
        }
    }
}

/// Returns an id as it stands in a line.
fn text(id: &RequestId) -> String {
    json!(id).to_string()
}

/// Returns a request or an answer under another id.
fn under(line: &[u8], id: &RequestId) -> Vec<u8> {
    match peek(line) {
        Peek::Request { id: raw, .. } | Peek::Answer { id: raw, .. } => with_id(line, raw, &text(id)),
        Peek::Notification { .. } | Peek::Other => line.to_vec(),
    }
}

/// Returns a cancellation of another request.
fn cancelling(line: &[u8], id: &RequestId) -> Option<Vec<u8>> {
    let mut message: Value = serde_json::from_slice(line).ok()?;
    *message.get_mut("params")?.get_mut("requestId")? = json!(id);
    let mut line = message.to_string().into_bytes();
    line.push(b'\n');
    Some(line)
}
