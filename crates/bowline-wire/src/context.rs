//! What a handler has at hand beside the request itself.

use std::future::Future;

use agent_client_protocol_schema::v1::{Error, RequestId};
use bowline_state::failure::Failure;

use crate::agent_handle::AgentHandle;
use crate::client_handle::ClientHandle;
use crate::service::{CancelSignal, Incoming, Params};

/// The surroundings of a request: the way back to who sent it, and whether it is still wanted.
#[derive(Debug, Clone)]
pub struct Context<H> {
    pub(crate) peer: H,
    pub(crate) id: RequestId,
    pub(crate) cancel: CancelSignal,
}

impl<H> Context<H> {
    /// Takes a request apart: its params, and its surroundings.
    pub(crate) fn of(incoming: Incoming<'_>, peer: H) -> (Params<'_>, Self) {
        let Incoming { id, params, cancel, .. } = incoming;
        (params, Self { peer, id, cancel })
    }

    /// The id of the request on the wire.
    pub fn request_id(&self) -> &RequestId {
        &self.id
    }

    /// The signal that fires when the request is cancelled: by `$/cancel_request`, for a prompt also by
    /// `session/cancel` and `session/close`, and when the other side is gone. The request must still be answered.
    pub fn cancel(&self) -> &CancelSignal {
        &self.cancel
    }

    /// Waits until the request is cancelled.
    pub async fn cancelled(&self) {
        self.cancel.fired().await;
    }

    /// Waits until the answer to this request is on its way: what is sent then, by a task beside the handler, leaves after
    /// it. Some clients cannot take what concerns a session before the answer that names it.
    pub async fn answered(&self) {
        self.cancel.settled().await;
    }

    /// Runs a future, but no longer than the request is wanted.
    ///
    /// # Errors
    /// Returns the error -32800 if the request is cancelled first. The future is dropped then.
    pub async fn until_cancelled<T>(&self, future: impl Future<Output = T>) -> Result<T, Error> {
        tokio::select! {
            biased;
            () = self.cancel.fired() => Err(Failure::Cancelled.into()),
            value = future => Ok(value),
        }
    }
}

impl Context<ClientHandle> {
    /// The client that sent the request. It may be called from inside the handler.
    #[must_use]
    pub fn client(&self) -> &ClientHandle {
        &self.peer
    }
}

impl Context<AgentHandle> {
    /// The agent that sent the request. It may be called from inside the handler.
    #[must_use]
    pub fn agent(&self) -> &AgentHandle {
        &self.peer
    }
}
