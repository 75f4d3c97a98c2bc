//! The stdio server: one client over a pair of pipes.

use std::collections::HashSet;
use std::future::Future;
use std::io;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use bowline_access::approvals::BoxFuture;
use rmcp::model::{ClientNotification, JsonRpcMessage, RequestId};
use rmcp::service::{
    RoleServer, RxJsonRpcMessage, ServerInitializeError, TxJsonRpcMessage, serve_server_with_ct,
};
use rmcp::transport::Transport;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::sync::Notify;
use tokio::time::timeout;
use tokio_util::sync::CancellationToken;

use super::handler::{OpenMcpSessions, SessionHandler};
use super::line_transport::LineTransport;
use super::{McpWorkspaceServer, invalid_message};

/// The most unanswered requests; at the limit, reading stops.
const MAX_OPEN_REQUESTS: usize = 256;

/// The deadline for an orderly end of the connection, after which the rest is dropped.
const SHUTDOWN_TIMEOUT: Duration = Duration::from_secs(8);

/// Serves a client until it disconnects or `stop` completes, and returns when everything that was started for it has
/// ended.
///
/// # Errors
/// Returns what is wrong with the client's first messages.
pub fn serve(
    server: McpWorkspaceServer,
    reader: impl AsyncRead + Send + Unpin + 'static,
    writer: impl AsyncWrite + Send + Unpin + 'static,
    stop: impl Future<Output = ()> + Send + 'static,
) -> BoxFuture<'static, io::Result<()>> {
    serve_transport(server, LineTransport::new(reader, writer), Box::pin(stop))
}

/// Serves a client. The future is boxed so that it is compiled in this crate, and not in each one that awaits it.
fn serve_transport(
    server: McpWorkspaceServer,
    transport: LineTransport,
    stop: BoxFuture<'static, ()>,
) -> BoxFuture<'static, io::Result<()>> {
    let (sessions, end) = (Arc::new(OpenMcpSessions::default()), CancellationToken::new());
    let input_ended = CancellationToken::new();
    let handler = SessionHandler::new(server, sessions.clone(), input_ended.clone());
    let transport = BoundedTransport { inner: transport, open_requests: Arc::default(), input_ended };
    Box::pin(async move {
        let serving = async {
            match serve_server_with_ct(handler, transport, end.clone()).await {
                Ok(running) => running.waiting().await.map(drop).map_err(io::Error::other),
                // A client may disconnect before it sends anything.
                Err(ServerInitializeError::ConnectionClosed(_) | ServerInitializeError::Cancelled) => Ok(()),
                Err(error) => Err(io::Error::new(io::ErrorKind::InvalidData, error.to_string())),
            }
        };
        tokio::pin!(serving);
        let result = tokio::select! {
            result = &mut serving => result,
            () = stop => {
                end.cancel();
                // A client that does not read must not delay the end.
                timeout(SHUTDOWN_TIMEOUT, serving).await.unwrap_or(Ok(()))
            }
        };
        sessions.close_all().await;
        result
    })
}

/// The requests that were read and not yet answered.
#[derive(Default)]
struct OpenRequests {
    // Invariant: at most `MAX_OPEN_REQUESTS`.
    ids: Mutex<HashSet<RequestId>>,
    room: Notify,
}

impl OpenRequests {
    fn ids(&self) -> MutexGuard<'_, HashSet<RequestId>> {
        self.ids.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn close(&self, id: &RequestId) {
        self.ids().remove(id);
        self.room.notify_one();
    }
}

/// A transport that reads no more than it can answer, and signals the end of its input.
struct BoundedTransport {
    inner: LineTransport,
    open_requests: Arc<OpenRequests>,
    input_ended: CancellationToken,
}

impl Transport<RoleServer> for BoundedTransport {
    type Error = io::Error;

    fn send(
        &mut self,
        item: TxJsonRpcMessage<RoleServer>,
    ) -> impl Future<Output = Result<(), Self::Error>> + Send + 'static {
        let answered_id = match &item {
            JsonRpcMessage::Response(response) => Some(response.id.clone()),
            JsonRpcMessage::Error(error) => error.id.clone(),
            JsonRpcMessage::Request(_) | JsonRpcMessage::Notification(_) => None,
        };
        let (sending, open) = (self.inner.send(item), self.open_requests.clone());
        async move {
            let result = sending.await;
            if let Some(id) = answered_id {
                open.close(&id);
            }
            result
        }
    }

    async fn receive(&mut self) -> Option<RxJsonRpcMessage<RoleServer>> {
        loop {
            while self.open_requests.ids().len() >= MAX_OPEN_REQUESTS {
                self.open_requests.room.notified().await;
            }
            let message = self.inner.receive().await;
            match &message {
                Some(JsonRpcMessage::Request(request)) => {
                    if !self.open_requests.ids().insert(request.id.clone()) {
                        self.inner.queue_reply(invalid_message::duplicate_id_error(&request.id));
                        continue;
                    }
                }
                Some(JsonRpcMessage::Notification(notification)) => {
                    // Cancelled requests are not answered.
                    if let ClientNotification::CancelledNotification(cancelled) = &notification.notification
                        && let Some(id) = &cancelled.params.request_id
                    {
                        self.open_requests.close(id);
                    }
                }
                Some(_) => {}
                None => self.input_ended.cancel(),
            }
            return message;
        }
    }

    async fn close(&mut self) -> Result<(), Self::Error> {
        self.inner.close().await
    }
}
