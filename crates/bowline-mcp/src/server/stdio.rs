//! Serving one client over a pair of pipes.

use std::collections::HashSet;
use std::future::Future;
use std::io;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use rmcp::model::{ClientNotification, JsonRpcMessage, RequestId};
use rmcp::service::{
    RoleServer, RxJsonRpcMessage, ServerInitializeError, TxJsonRpcMessage, serve_server_with_ct,
};
use rmcp::transport::Transport;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::sync::Notify;
use tokio::time::timeout;
use tokio_util::sync::CancellationToken;

use super::handler::{Handler, Live};
use super::lines::Lines;
use super::{Place, Server, unreadable};

/// So many requests wait for their answer to be written; beyond that nothing more is read.
const MAX_OPEN: usize = 256;

/// How long the end of a connection may take before what is left of it is dropped.
const PATIENCE: Duration = Duration::from_secs(8);

/// Serves a client until it is gone or `stop` is done, and returns when nothing that was started for it runs.
///
/// # Errors
/// Says what is wrong with how the client begins.
pub async fn serve<P, R, W>(
    server: Server<P>,
    reader: R,
    writer: W,
    stop: impl Future<Output = ()>,
) -> Result<(), io::Error>
where
    P: Place,
    R: AsyncRead + Send + Unpin + 'static,
    W: AsyncWrite + Send + Unpin + 'static,
{
    let (live, end) = (Arc::new(Live::default()), CancellationToken::new());
    let input_ended = CancellationToken::new();
    let handler = Handler::new(server, live.clone(), input_ended.clone());
    let transport = Bounded { inner: Lines::new(reader, writer), open: Arc::default(), input_ended };
    let serving = async {
        match serve_server_with_ct(handler, transport, end.clone()).await {
            Ok(running) => running.waiting().await.map(drop).map_err(io::Error::other),
            // A client that leaves before it says anything wants nothing.
            Err(ServerInitializeError::ConnectionClosed(_) | ServerInitializeError::Cancelled) => Ok(()),
            Err(error) => Err(io::Error::new(io::ErrorKind::InvalidData, error.to_string())),
        }
    };
    tokio::pin!(serving);
    let served = tokio::select! {
        served = &mut serving => served,
        () = stop => {
            end.cancel();
            // A client that does not read cannot hold up the end.
            timeout(PATIENCE, serving).await.unwrap_or(Ok(()))
        }
    };
    live.close_all().await;
    served
}

/// Which requests were read and not answered.
#[derive(Default)]
struct Open {
    // Invariant: at most `MAX_OPEN`.
    ids: Mutex<HashSet<RequestId>>,
    room: Notify,
}

impl Open {
    fn ids(&self) -> MutexGuard<'_, HashSet<RequestId>> {
        self.ids.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn close(&self, id: &RequestId) {
        self.ids().remove(id);
        self.room.notify_one();
    }
}

/// A transport that reads no more than it can answer, and says when nothing more comes.
struct Bounded<R, W: AsyncWrite> {
    inner: Lines<R, W>,
    open: Arc<Open>,
    input_ended: CancellationToken,
}

impl<R, W> Transport<RoleServer> for Bounded<R, W>
where
    R: AsyncRead + Send + Unpin + 'static,
    W: AsyncWrite + Send + Unpin + 'static,
{
    type Error = io::Error;

    fn send(
        &mut self,
        item: TxJsonRpcMessage<RoleServer>,
    ) -> impl Future<Output = Result<(), Self::Error>> + Send + 'static {
        let answered = match &item {
            JsonRpcMessage::Response(response) => Some(response.id.clone()),
            JsonRpcMessage::Error(error) => error.id.clone(),
            JsonRpcMessage::Request(_) | JsonRpcMessage::Notification(_) => None,
        };
        let (sending, open) = (self.inner.send(item), self.open.clone());
        async move {
            let sent = sending.await;
            if let Some(id) = answered {
                open.close(&id);
            }
            sent
        }
    }

    async fn receive(&mut self) -> Option<RxJsonRpcMessage<RoleServer>> {
        loop {
            while self.open.ids().len() >= MAX_OPEN {
                self.open.room.notified().await;
            }
            let message = self.inner.receive().await;
            match &message {
                Some(JsonRpcMessage::Request(request)) => {
                    if !self.open.ids().insert(request.id.clone()) {
                        self.inner.owes(unreadable::in_use(&request.id));
                        continue;
                    }
                }
                Some(JsonRpcMessage::Notification(notification)) => {
                    // What is cancelled is not answered.
                    if let ClientNotification::CancelledNotification(cancelled) = &notification.notification
                        && let Some(id) = &cancelled.params.request_id
                    {
                        self.open.close(id);
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
