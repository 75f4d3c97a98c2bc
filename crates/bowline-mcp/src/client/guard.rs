//! A bound on what a server can make a connection hold, around any transport.
//!
//! The SDK answers every request of a server with a task of its own, and those wait until the server reads. One that
//! asks and asks and never reads would fill memory; here its connection ends.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use rmcp::RoleClient;
use rmcp::model::{ClientJsonRpcMessage, ServerJsonRpcMessage};
use rmcp::transport::Transport;
use tokio::sync::watch;

/// So many messages may wait to be sent.
const MAX_UNSENT: usize = 1024;

/// How a connection is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Line {
    /// Messages come and go.
    Open,
    /// The server sends nothing more.
    Closed,
    /// The server was cut off because it does not read.
    Flooded,
}

/// A transport with a bound, that tells when it ends.
pub(super) struct Guard<T> {
    inner: T,
    unsent: Arc<AtomicUsize>,
    line: watch::Sender<Line>,
    // Whoever owns the server closes the line when its process has ended, whoever else holds its output open.
    cut: watch::Receiver<bool>,
}

impl<T> Guard<T> {
    pub(super) fn new(inner: T, line: watch::Sender<Line>, cut: watch::Receiver<bool>) -> Self {
        Self { inner, unsent: Arc::default(), line, cut }
    }

    fn end(&self, how: Line) {
        self.line.send_if_modified(|line| {
            let open = *line == Line::Open;
            if open {
                *line = how;
            }
            open
        });
    }
}

impl<T: Transport<RoleClient>> Transport<RoleClient> for Guard<T> {
    type Error = T::Error;

    fn send(
        &mut self,
        message: ClientJsonRpcMessage,
    ) -> impl Future<Output = Result<(), T::Error>> + Send + 'static {
        let sent = self.inner.send(message);
        let place = Place::take(&self.unsent);
        async move {
            let sent = sent.await;
            drop(place);
            sent
        }
    }

    async fn receive(&mut self) -> Option<ServerJsonRpcMessage> {
        // Each message has its turn, so that what it starts is done before thousands of others are read.
        tokio::task::consume_budget().await;
        if self.unsent.load(Ordering::Relaxed) > MAX_UNSENT {
            self.end(Line::Flooded);
            return None;
        }
        let message = tokio::select! {
            biased;
            _ = self.cut.wait_for(|cut| *cut) => None,
            message = self.inner.receive() => message,
        };
        if message.is_none() {
            self.end(Line::Closed);
        }
        message
    }

    async fn close(&mut self) -> Result<(), T::Error> {
        self.end(Line::Closed);
        self.inner.close().await
    }
}

impl<T> Drop for Guard<T> {
    fn drop(&mut self) {
        self.end(Line::Closed);
    }
}

/// The place of a message among those that wait.
struct Place(Arc<AtomicUsize>);

impl Place {
    fn take(unsent: &Arc<AtomicUsize>) -> Self {
        unsent.fetch_add(1, Ordering::Relaxed);
        Self(Arc::clone(unsent))
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }
}
