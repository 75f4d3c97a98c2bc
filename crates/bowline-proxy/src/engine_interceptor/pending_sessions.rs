//! Requests for sessions that are still opening. An agent may use a session before it has confirmed that it is open:
//! where rules apply, such requests wait for the confirmation and are judged then.

use bowline_protocol::relay::{Method, RelayEvent, SessionOpening};
use bowline_protocol::rpc_error::RpcError;
use bowline_protocol::schema::v1::{RequestId, SessionId};
use bytes::Bytes;
use tokio::sync::oneshot;
use tokio::time::timeout;

use super::OPEN_TIMEOUT;
use super::policy::refuse_with;
use crate::interceptor::{Disposition, InterceptDecision, InterceptedMessage, MessageOrder};

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
    pub(super) deferred: Vec<DeferredRequest>,
}

/// A request that waits until its session is open.
pub(super) struct DeferredRequest {
    pub(super) session: SessionId,
    pub(super) fact: RelayEvent,
    pub(super) id: Option<RequestId>,
    pub(super) line: Bytes,
    // Closed once the request is cancelled or has waited too long.
    pub(super) decision: oneshot::Sender<(InterceptDecision, oneshot::Receiver<()>)>,
    // Closed once the decision is carried out or the request is cancelled.
    pub(super) done: oneshot::Receiver<()>,
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
        if let Some(at) = self.opening.iter().position(|other| other == opening) {
            self.opening.remove(at);
        }
    }

    /// Returns whether an id may belong to a session that is opening. The id of a new session is known only from the
    /// agent's answer.
    pub(super) fn may_be_pending(&self, session: &SessionId) -> bool {
        self.opening.iter().any(|opening| match opening.method {
            Method::Load | Method::Resume => opening.session.as_ref() == Some(session),
            _ => true,
        })
    }

    /// Defers a request until its session is open.
    pub(super) fn defer(
        &mut self,
        session: &SessionId,
        message: &InterceptedMessage<'_>,
    ) -> InterceptDecision {
        self.deferred.retain(|request| !request.decision.is_closed());
        let bytes: usize = self.deferred.iter().map(|request| request.line.len()).sum();
        if self.deferred.len() >= MAX_DEFERRED_REQUESTS || bytes + message.line.len() > MAX_DEFERRED_BYTES {
            return refuse_with(not_open_failure(session, "too many requests wait for that"));
        }
        let ((decision, decided), (done_guard, done)) = (oneshot::channel(), oneshot::channel());
        let (fact, id, line) = (message.fact.clone(), message.id.cloned(), message.line.clone());
        self.deferred.push(DeferredRequest { session: session.clone(), fact, id, line, decision, done });
        let timeout_error = not_open_failure(session, "answer the request that opens it first");
        InterceptDecision::Later(
            MessageOrder::Overtake,
            Box::pin(async move {
                let _done_guard = done_guard;
                let Ok(Ok((decision, turn))) = timeout(OPEN_TIMEOUT, decided).await else {
                    return Disposition::Answer(Err(timeout_error.into()));
                };
                turn.await.unwrap_or_default();
                match decision {
                    InterceptDecision::Now(disposition) => disposition,
                    InterceptDecision::Later(_, disposition) => disposition.await,
                }
            }),
        )
    }
}

/// Returns the error for a request whose session is not open yet.
fn not_open_failure(session: &SessionId, reason: &str) -> RpcError {
    RpcError::InvalidRequest {
        reason: format!("rules are to be applied, and session {session} is not open yet: {reason}"),
    }
}
