//! The transport for MCP servers that a client serves over its own ACP connection.
//!
//! These servers have no connection of their own. Each request is an `mcp/message` that names the server and an id; the
//! reply to it is the server's answer, and notifications carry the same id. Dropping a request cancels it and leaves
//! nothing behind. The schema lacks the `mcp/connect` and `mcp/disconnect` of earlier drafts. The inner protocol is MCP
//! 2026-07-28, which needs no handshake; a server that wants the older handshake gets it.

use std::borrow::Cow;
use std::collections::HashMap;
use std::convert::Infallible;
use std::future::ready;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use bowline_protocol::schema::v1::{
    CLIENT_METHOD_NAMES, McpRequestId, McpServerAcpId, MessageMcpNotification, MessageMcpRequest,
    MessageMcpResponse,
};
use bowline_text::display;
use bowline_wire::message::methods::RpcRequest;
use bowline_wire::{CallError, ClientHandle};
use rmcp::RoleClient;
use rmcp::model::{ClientJsonRpcMessage, ClientNotification, RequestId, ServerJsonRpcMessage};
use rmcp::transport::Transport;
use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;
use serde_json::{Value, json};
use tokio::sync::mpsc;
use tokio::task::AbortHandle;

use super::decode::error_answer;
use super::{MAX_MESSAGE, nesting};

/// The most messages of a server that wait to be received; further notifications are dropped.
const MAX_QUEUED_MESSAGES: usize = 256;
/// The longest error of a client that is reported, in bytes.
const MAX_ERROR: usize = 600;

/// A handle for reaching the servers of a client. Clones share the same connection.
#[derive(Debug, Clone)]
pub struct McpOverAcp {
    client: ClientHandle,
    router: McpNotificationRouter,
}

impl McpOverAcp {
    /// Returns a handle for reaching the servers of a client. Notifications from the client must be passed to `router`,
    /// the connection's only router.
    #[must_use]
    pub fn new(client: ClientHandle, router: McpNotificationRouter) -> Self {
        Self { client, router }
    }

    /// Sends a request to a server, and returns its answer or an error answer in its place.
    async fn send_request(
        &self,
        server: McpServerAcpId,
        (id, request): (RequestId, Value),
        sender: mpsc::Sender<ServerJsonRpcMessage>,
    ) -> ServerJsonRpcMessage {
        let open = self.router.register(server.clone(), sender);
        let method = request.get("method").and_then(Value::as_str).unwrap_or_default().to_owned();
        let params = request.get("params").and_then(Value::as_object).cloned();
        let lists_tools = method == "tools/list";
        let request = MessageMcpRequest::new(server, open.id.clone(), method).params(params);
        let answer = match self.client.caller().call(&McpMessageRequest(request)).await {
            Ok(answer) => answer,
            Err(error) => return error_answer(id, describe_call_error(&error)),
        };
        if answer.get().len() > MAX_MESSAGE {
            return error_answer(id, format!("the answer of the server is larger than {MAX_MESSAGE} bytes"));
        }
        // One tool that is nested too deeply must not cost the others.
        let text = answer.get().as_bytes();
        let text = if lists_tools { nesting::cut_deep_values(text) } else { Cow::Borrowed(text) };
        let outcome = match serde_json::from_slice(&text) {
            Ok(MessageMcpResponse::Result { result, .. }) => ("result", result),
            Ok(MessageMcpResponse::Error { error, .. }) => {
                ("error", serde_json::to_value(error).unwrap_or_default())
            }
            // A later protocol version may have other variants.
            Ok(_) | Err(_) => return unreadable_answer(id),
        };
        let message = json!({ "jsonrpc": "2.0", "id": id, outcome.0: outcome.1 });
        serde_json::from_value(message).unwrap_or_else(|_| unreadable_answer(id))
    }
}

fn unreadable_answer(id: RequestId) -> ServerJsonRpcMessage {
    error_answer(id, "the answer of the server cannot be read".to_owned())
}

/// Describes a failed call. The text names the client, not the server, as the source of the error.
fn describe_call_error(error: &CallError) -> String {
    match error {
        CallError::ErrorResponse(error) => {
            format!("the client does not pass it on: {}", display::escape_line(&error.message, MAX_ERROR))
        }
        CallError::Unreadable { .. } => "the answer of the client cannot be read".to_owned(),
        error => display::escape_line(&error.to_string(), MAX_ERROR),
    }
}

/// A request whose answer is kept raw, so that its size is known, and delivered after the notifications that precede
/// it.
#[derive(Serialize, Deserialize)]
#[serde(transparent)]
struct McpMessageRequest(MessageMcpRequest);

impl RpcRequest for McpMessageRequest {
    const METHOD: &'static str = CLIENT_METHOD_NAMES.mcp_message;
    const AFTER_NOTIFICATIONS: bool = true;
    type Response = Box<RawValue>;
}

/// Routes the notifications of one client's servers to the requests they belong to. Clones share the same state.
#[derive(Debug, Clone, Default)]
pub struct McpNotificationRouter {
    shared: Arc<RouterState>,
}

#[derive(Debug, Default)]
struct RouterState {
    last_id: AtomicU64,
    // The unanswered requests: bounded by the number of calls.
    open: Mutex<HashMap<McpRequestId, (McpServerAcpId, mpsc::Sender<ServerJsonRpcMessage>)>>,
}

impl RouterState {
    fn open(
        &self,
    ) -> MutexGuard<'_, HashMap<McpRequestId, (McpServerAcpId, mpsc::Sender<ServerJsonRpcMessage>)>> {
        self.open.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl McpNotificationRouter {
    /// Routes a notification. Returns whether it belongs to a pending request; otherwise it is dropped.
    pub fn route(&self, notification: MessageMcpNotification) -> bool {
        let open = self.shared.open();
        let Some((_, sender)) =
            open.get(&notification.request_id).filter(|(server, _)| *server == notification.server_id)
        else {
            return false;
        };
        let mut message = json!({ "jsonrpc": "2.0", "method": notification.method });
        if let Some(params) = notification.params {
            message["params"] = params.into();
        }
        // Unreadable notifications are dropped, and so are those that exceed the queue.
        if let Ok(message) = serde_json::from_value(message) {
            sender.try_send(message).unwrap_or_default();
        }
        true
    }

    /// Registers a request and returns its id. Notifications with that id reach `sender` until the guard is dropped.
    fn register(&self, server: McpServerAcpId, sender: mpsc::Sender<ServerJsonRpcMessage>) -> RouteGuard {
        let number = self.shared.last_id.fetch_add(1, Ordering::Relaxed) + 1;
        let id = McpRequestId::new(number.to_string());
        self.shared.open().insert(id.clone(), (server, sender));
        RouteGuard { id, router: self.clone() }
    }
}

/// The registration of a pending request.
struct RouteGuard {
    id: McpRequestId,
    router: McpNotificationRouter,
}

impl Drop for RouteGuard {
    fn drop(&mut self) {
        self.router.shared.open().remove(&self.id);
    }
}

/// The transport to one server of a client.
pub(super) struct AcpTransport {
    mcp_over_acp: McpOverAcp,
    server: McpServerAcpId,
    arrives: mpsc::Sender<ServerJsonRpcMessage>,
    arrived: mpsc::Receiver<ServerJsonRpcMessage>,
    // The unanswered requests, and some answered ones: bounded by the number of calls.
    pending: HashMap<RequestId, AbortHandle>,
}

impl AcpTransport {
    pub(super) fn new(mcp_over_acp: McpOverAcp, server: McpServerAcpId) -> Self {
        let (arrives, arrived) = mpsc::channel(MAX_QUEUED_MESSAGES);
        Self { mcp_over_acp, server, arrives, arrived, pending: HashMap::new() }
    }

    fn cancel_all(&mut self) {
        for (_, task) in self.pending.drain() {
            task.abort();
        }
    }
}

impl Transport<RoleClient> for AcpTransport {
    type Error = Infallible;

    fn send(
        &mut self,
        message: ClientJsonRpcMessage,
    ) -> impl Future<Output = Result<(), Infallible>> + Send + 'static {
        match &message {
            ClientJsonRpcMessage::Request(request) => {
                let id = request.id.clone();
                let request = serde_json::to_value(&message).unwrap_or_default();
                let (mcp_over_acp, server, sender) =
                    (self.mcp_over_acp.clone(), self.server.clone(), self.arrives.clone());
                self.pending.retain(|_, task| !task.is_finished());
                let task = bowline_task::spawn({
                    let id = id.clone();
                    async move {
                        let answer = mcp_over_acp.send_request(server, (id, request), sender.clone()).await;
                        // The channel is closed when the transport is gone, and then the answer is not needed.
                        drop(sender.send(answer).await);
                    }
                });
                self.pending.insert(id, task.abort_handle());
            }
            ClientJsonRpcMessage::Notification(notification) => {
                // Dropping a request cancels it. The protocol has no way to send any other notification.
                if let ClientNotification::CancelledNotification(cancelled) = &notification.notification
                    && let Some(id) = &cancelled.params.request_id
                    && let Some(task) = self.pending.remove(id)
                {
                    task.abort();
                }
            }
            // A server of this kind sends no requests.
            ClientJsonRpcMessage::Response(_) | ClientJsonRpcMessage::Error(_) => {}
        }
        ready(Ok(()))
    }

    async fn receive(&mut self) -> Option<ServerJsonRpcMessage> {
        tokio::select! {
            biased;
            message = self.arrived.recv() => message,
            () = self.mcp_over_acp.client.caller().closed() => None,
        }
    }

    async fn close(&mut self) -> Result<(), Infallible> {
        self.cancel_all();
        Ok(())
    }
}

impl Drop for AcpTransport {
    fn drop(&mut self) {
        self.cancel_all();
    }
}
