//! Requests for sessions that are still opening. An agent may use a session before it has answered that it is open: where
//! rules are to be applied, such requests wait for that answer, and are judged then.

use bowline_state::failure::Failure;
use bowline_state::relay::{Fact, Method, Opening, Side};
use bowline_state::schema::v1::{RequestId, SessionId};
use bytes::Bytes;
use tokio::sync::oneshot;
use tokio::time::timeout;

use super::ruling::refuse;
use super::{Beside, OPENING};
use crate::between::{Between as _, Decision, Deed, Order, Passing};

/// So many sessions are known to be opening; what is asked for further ones is refused.
const MAX_OPENING: usize = 256;

/// So many requests wait at once. A quarter of what may be held at all, so that the answer they wait for can still be heard.
const MAX_WAITING: usize = 16;

/// So many bytes of them, for the same reason.
const MAX_WAITING_BYTES: usize = 4 << 20;

/// The sessions that are opening, and the requests that wait for them.
#[derive(Default)]
pub(super) struct UnopenedSessions {
    // Invariant: at most `MAX_OPENING`.
    opening: Vec<Opening>,
    // Oldest first. Invariant: at most `MAX_WAITING`, and `MAX_WAITING_BYTES` of lines.
    waiting: Vec<WaitingRequest>,
}

struct WaitingRequest {
    session: SessionId,
    fact: Fact,
    id: Option<RequestId>,
    line: Bytes,
    // Closed once the request was cancelled, or has waited too long.
    decision: oneshot::Sender<(Decision, oneshot::Receiver<()>)>,
    // Closed once what was decided is done, or the request was cancelled.
    done: oneshot::Receiver<()>,
}

impl UnopenedSessions {
    /// Notes that the editor asks for a session.
    pub(super) fn add(&mut self, opening: &Opening) {
        if self.opening.len() < MAX_OPENING {
            self.opening.push(opening.clone());
        }
    }

    /// Notes that the agent has answered.
    pub(super) fn remove(&mut self, opening: &Opening) {
        if let Some(at) = self.opening.iter().position(|known| known == opening) {
            self.opening.remove(at);
        }
    }

    /// Says whether an id may turn out to be that of a session that is opening. Only the agent's answer tells which id a new
    /// one has.
    fn may_be(&self, session: &SessionId) -> bool {
        self.opening.iter().any(|opening| match opening.method {
            Method::Load | Method::Resume => opening.session.as_ref() == Some(session),
            _ => true,
        })
    }

    /// Has a request wait.
    pub(super) fn hold(&mut self, session: &SessionId, passing: &Passing<'_>) -> Decision {
        self.waiting.retain(|request| !request.decision.is_closed());
        let bytes: usize = self.waiting.iter().map(|request| request.line.len()).sum();
        if self.waiting.len() >= MAX_WAITING || bytes + passing.line.len() > MAX_WAITING_BYTES {
            return refuse(unopened(session, "too many requests wait for that"));
        }
        let ((decision, decided), (doing, done)) = (oneshot::channel(), oneshot::channel());
        let (fact, id, line) = (passing.fact.clone(), passing.id.cloned(), passing.line.clone());
        self.waiting.push(WaitingRequest { session: session.clone(), fact, id, line, decision, done });
        let late = unopened(session, "answer the request that opens it first");
        Decision::Later(
            Order::Overtake,
            Box::pin(async move {
                let _doing = doing;
                let Ok(Ok((decision, turn))) = timeout(OPENING, decided).await else {
                    return Deed::Answer(Err(late.into()));
                };
                turn.await.unwrap_or_default();
                match decision {
                    Decision::Now(deed) => deed,
                    Decision::Later(_, deed) => deed.await,
                }
            }),
        )
    }
}

impl Beside {
    /// Has a request wait that rules are to be applied to, if its session is still opening.
    pub(super) fn hold_unopened(&mut self, passing: &Passing<'_>) -> Option<Decision> {
        let session = match passing.fact {
            Fact::Permission(session, _) => session,
            Fact::Asked(method, Some(session), _) if method.is_judged() => session,
            _ => return None,
        };
        let waits = self.options.rules && passing.from == Side::Agent && self.is_opening(session);
        waits.then(|| self.unopened.hold(session, passing))
    }

    /// Judges the requests whose session is open now, and refuses those whose session will not be: one after the other, in
    /// the order in which they came.
    pub(super) fn judge_waiting(&mut self) {
        let mut turns = Vec::new();
        for request in std::mem::take(&mut self.unopened.waiting) {
            if self.is_opening(&request.session) {
                self.unopened.waiting.push(request);
                continue;
            }
            let WaitingRequest { session, fact, id, line, decision, done } = request;
            if decision.is_closed() {
                continue;
            }
            let decided = if self.sessions.contains_key(&session) {
                self.look(Passing { from: Side::Agent, fact: &fact, id: id.as_ref(), line: &line })
            } else {
                self.refused(Some(&session))
            };
            let (begin, turn) = oneshot::channel();
            // If the receiver is gone, the request was answered.
            decision.send((decided, turn)).unwrap_or_default();
            turns.push((begin, done));
        }
        if turns.is_empty() {
            return;
        }
        tokio::spawn(async move {
            for (begin, done) in turns {
                begin.send(()).unwrap_or_default();
                done.await.unwrap_or_default();
            }
        });
    }

    fn is_opening(&self, session: &SessionId) -> bool {
        !self.sessions.contains_key(session) && self.unopened.may_be(session)
    }
}

/// Returns why a request for a session that is not open yet is refused.
fn unopened(session: &SessionId, why: &str) -> Failure {
    Failure::InvalidRequest {
        reason: format!("rules are to be applied, and session {session} is not open yet: {why}"),
    }
}
