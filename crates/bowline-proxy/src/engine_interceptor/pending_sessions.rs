//! Requests for sessions that are still opening. An agent may use a session before it has confirmed that it is open:
//! where rules apply, such requests wait for the confirmation and are judged then.

use bowline_protocol::relay::{Method, ProxySide, RelayEvent, SessionOpening};
use bowline_protocol::rpc_error::RpcError;
use bowline_protocol::schema::v1::{RequestId, SessionId};
use bytes::Bytes;
use tokio::sync::oneshot;
use tokio::time::timeout;

use super::policy::refuse_with;
use super::{EngineInterceptor, OPEN_TIMEOUT};
use crate::interceptor::{
    Disposition, InterceptDecision, InterceptedMessage, Interceptor as _, MessageOrder,
};

/// The most sessions that are tracked as opening; requests for further ones are refused.
const MAX_PENDING_SESSIONS: usize = 256;

/// The most deferred requests. A quarter of all messages that may be held, so that the awaited answer can still arrive.
const MAX_DEFERRED_REQUESTS: usize = 16;

/// The most bytes of deferred requests, for the same reason.
const MAX_DEFERRED_BYTES: usize = 4 << 20;

/// The sessions that are opening, and the requests that wait for them.
#[derive(Default)]
pub(super) struct PendingSessions {
    // Invariant: at most `MAX_PENDING_SESSIONS`.
    opening: Vec<SessionOpening>,
    // Oldest first. Invariant: at most `MAX_DEFERRED_REQUESTS`, and `MAX_DEFERRED_BYTES` of lines.
    deferred: Vec<DeferredRequest>,
}

struct DeferredRequest {
    session: SessionId,
    fact: RelayEvent,
    id: Option<RequestId>,
    line: Bytes,
    // Closed once the request is cancelled or has waited too long.
    decision: oneshot::Sender<(InterceptDecision, oneshot::Receiver<()>)>,
    // Closed once the decision is carried out or the request is cancelled.
    done: oneshot::Receiver<()>,
}

impl PendingSessions {
    /// Records that the editor requests a session.
    pub(super) fn add(&mut self, opening: &SessionOpening) {
        if self.opening.len() < MAX_PENDING_SESSIONS {
            self.opening.push(opening.clone());
        }
    }

    /// Records that the agent has answered.
    pub(super) fn remove(&mut self, opening: &SessionOpening) {
        if let Some(at) = self.opening.iter().position(|known| known == opening) {
            self.opening.remove(at);
        }
    }

    /// Returns whether an id may belong to a session that is opening. The id of a new session is known only from the
    /// agent's answer.
    fn may_be_pending(&self, session: &SessionId) -> bool {
        self.opening.iter().any(|opening| match opening.method {
            Method::Load | Method::Resume => opening.session.as_ref() == Some(session),
            _ => true,
        })
    }

    /// Defers a request until its session is open.
    pub(super) fn defer(
        &mut self,
        session: &SessionId,
        passing: &InterceptedMessage<'_>,
    ) -> InterceptDecision {
        self.deferred.retain(|request| !request.decision.is_closed());
        let bytes: usize = self.deferred.iter().map(|request| request.line.len()).sum();
        if self.deferred.len() >= MAX_DEFERRED_REQUESTS || bytes + passing.line.len() > MAX_DEFERRED_BYTES {
            return refuse_with(not_open_failure(session, "too many requests wait for that"));
        }
        let ((decision, decided), (doing, done)) = (oneshot::channel(), oneshot::channel());
        let (fact, id, line) = (passing.fact.clone(), passing.id.cloned(), passing.line.clone());
        self.deferred.push(DeferredRequest { session: session.clone(), fact, id, line, decision, done });
        let late = not_open_failure(session, "answer the request that opens it first");
        InterceptDecision::Later(
            MessageOrder::Overtake,
            Box::pin(async move {
                let _doing = doing;
                let Ok(Ok((decision, turn))) = timeout(OPEN_TIMEOUT, decided).await else {
                    return Disposition::Answer(Err(late.into()));
                };
                turn.await.unwrap_or_default();
                match decision {
                    InterceptDecision::Now(deed) => deed,
                    InterceptDecision::Later(_, deed) => deed.await,
                }
            }),
        )
    }
}

impl EngineInterceptor {
    /// Defers a request that rules apply to if its session is still opening.
    pub(super) fn defer_if_pending(&mut self, passing: &InterceptedMessage<'_>) -> Option<InterceptDecision> {
        let session = match passing.fact {
            RelayEvent::PermissionRequested(session, _) => session,
            RelayEvent::AgentRequest(method, Some(session), _) if method.needs_policy() => session,
            _ => return None,
        };
        let waits =
            self.options.enforce_policy && passing.from == ProxySide::Agent && self.is_opening(session);
        waits.then(|| self.pending_sessions.defer(session, passing))
    }

    /// Judges the deferred requests whose session is now open, and refuses those whose session failed to open: one at a
    /// time, in order of arrival.
    pub(super) fn judge_deferred(&mut self) {
        let mut turns = Vec::new();
        for request in std::mem::take(&mut self.pending_sessions.deferred) {
            if self.is_opening(&request.session) {
                self.pending_sessions.deferred.push(request);
                continue;
            }
            let DeferredRequest { session, fact, id, line, decision, done } = request;
            if decision.is_closed() {
                continue;
            }
            let decided = if self.sessions.contains_key(&session) {
                self.intercept(InterceptedMessage {
                    from: ProxySide::Agent,
                    fact: &fact,
                    id: id.as_ref(),
                    line: &line,
                })
            } else {
                self.refuse_unjudged(Some(&session))
            };
            let (begin, turn) = oneshot::channel();
            // If the receiver is gone, the request has been answered.
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
        !self.sessions.contains_key(session) && self.pending_sessions.may_be_pending(session)
    }
}

/// Returns the error for a request whose session is not open yet.
fn not_open_failure(session: &SessionId, why: &str) -> RpcError {
    RpcError::InvalidRequest {
        reason: format!("rules are to be applied, and session {session} is not open yet: {why}"),
    }
}
