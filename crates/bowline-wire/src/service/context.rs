//! The context of a handler's request.

use agent_client_protocol_schema::v1::RequestId;

use crate::agent::handle::AgentHandle;
use crate::client::handle::ClientHandle;
use crate::service::{CancelSignal, IncomingRequest, RawParams};

/// The context of a request: a handle to its sender, and its cancel signal.
#[derive(Debug, Clone)]
pub struct RequestContext<H> {
    pub(crate) peer: H,
    pub(crate) id: RequestId,
    pub(crate) cancel_signal: CancelSignal,
}

impl<H> RequestContext<H> {
    /// Splits a request into its params and its context.
    pub(crate) fn from_request(incoming: IncomingRequest<'_>, peer: H) -> (RawParams<'_>, Self) {
        let IncomingRequest { id, params, cancel, .. } = incoming;
        (params, Self { peer, id, cancel_signal: cancel })
    }

    /// Returns the id of the request on the wire.
    pub fn request_id(&self) -> &RequestId {
        &self.id
    }

    /// Returns the signal that fires when the request is cancelled: by `$/cancel_request`, for a prompt also by
    /// `session/cancel` and `session/close`, and when the other side is gone. The request must still be answered.
    pub fn cancel_signal(&self) -> &CancelSignal {
        &self.cancel_signal
    }

    /// Waits until the request is cancelled.
    pub async fn cancelled(&self) {
        self.cancel_signal.fired().await;
    }

    /// Waits until the answer to this request is queued: messages that another task sends after that are sent after
    /// the answer. Some clients reject messages about a session before the answer that names it.
    pub async fn answered(&self) {
        self.cancel_signal.answered().await;
    }
}

impl RequestContext<ClientHandle> {
    /// Returns the client that sent the request. It may be called from inside the handler.
    #[must_use]
    pub fn client(&self) -> &ClientHandle {
        &self.peer
    }
}

impl RequestContext<AgentHandle> {
    /// Returns the agent that sent the request. It may be called from inside the handler.
    #[must_use]
    pub fn agent(&self) -> &AgentHandle {
        &self.peer
    }
}
