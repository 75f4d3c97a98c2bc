//! A wrapper around a transport that bounds what a server can make a connection hold.
//!
//! The SDK spawns a task for the answer to each request of a server, and these tasks wait until the server reads. A
//! server that sends requests and never reads would exhaust memory; here its connection is closed.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use rmcp::RoleClient;
use rmcp::model::{ClientJsonRpcMessage, ServerJsonRpcMessage};
use rmcp::transport::Transport;
use tokio::sync::watch;

use super::transport::{ServerTransport, TransportError};

/// The most messages that may wait to be sent.
const MAX_UNSENT: usize = 1024;

/// The state of a connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum ConnectionState {
    /// The connection is open.
    Open,
    /// The server has closed the connection.
    Closed,
    /// The server was cut off because it does not read.
    Flooded,
}

/// A bounded transport that reports when it ends.
pub(super) struct GuardedTransport {
    inner: ServerTransport,
    unsent: Arc<AtomicUsize>,
    state: watch::Sender<ConnectionState>,
    // The server's owner cuts the connection when the process has ended, even if other processes hold its output open.
    cutoff: watch::Receiver<bool>,
}

impl GuardedTransport {
    pub(super) fn new(
        inner: ServerTransport,
        state: watch::Sender<ConnectionState>,
        cutoff: watch::Receiver<bool>,
    ) -> Self {
        Self { inner, unsent: Arc::default(), state, cutoff }
    }

    fn close_as(&self, end_state: ConnectionState) {
        self.state.send_if_modified(|state| {
            let open = *state == ConnectionState::Open;
            if open {
                *state = end_state;
            }
            open
        });
    }
}

impl Transport<RoleClient> for GuardedTransport {
    type Error = TransportError;

    fn send(
        &mut self,
        message: ClientJsonRpcMessage,
    ) -> impl Future<Output = Result<(), TransportError>> + Send + 'static {
        let sent = self.inner.send(message);
        let slot = UnsentSlot::acquire(&self.unsent);
        async move {
            let sent = sent.await;
            drop(slot);
            sent
        }
    }

    async fn receive(&mut self) -> Option<ServerJsonRpcMessage> {
        // Yields after each message, so that the work it starts is done before thousands of others are read.
        tokio::task::consume_budget().await;
        if self.unsent.load(Ordering::Relaxed) > MAX_UNSENT {
            self.close_as(ConnectionState::Flooded);
            return None;
        }
        let message = tokio::select! {
            biased;
            _ = self.cutoff.wait_for(|cut| *cut) => None,
            message = self.inner.receive() => message,
        };
        if message.is_none() {
            self.close_as(ConnectionState::Closed);
        }
        message
    }

    async fn close(&mut self) -> Result<(), TransportError> {
        self.close_as(ConnectionState::Closed);
        self.inner.close().await
    }
}

impl Drop for GuardedTransport {
    fn drop(&mut self) {
        self.close_as(ConnectionState::Closed);
    }
}

/// One unsent message, counted until it is dropped.
struct UnsentSlot(Arc<AtomicUsize>);

impl UnsentSlot {
    fn acquire(unsent: &Arc<AtomicUsize>) -> Self {
        unsent.fetch_add(1, Ordering::Relaxed);
        Self(Arc::clone(unsent))
    }
}

impl Drop for UnsentSlot {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }
}
