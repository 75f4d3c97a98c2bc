//! MCP servers that a client serves over its own ACP connection.
//!
//! They have no connection of their own. Each request is an `mcp/message` of the agent, and its answer is the answer to
//! that; what a server tells meanwhile comes as notifications that name the request. So nothing has to be closed: what
//! nobody waits for any more is cancelled, and then nothing is left.

use std::borrow::Cow;
use std::collections::HashMap;
use std::convert::Infallible;
use std::future::ready;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use bowline_state::display;
use bowline_state::schema::v1::{
    CLIENT_METHOD_NAMES, McpRequestId, McpServerAcpId, MessageMcpNotification, MessageMcpRequest,
    MessageMcpResponse,
};
use bowline_wire::methods::Request;
use bowline_wire::{CallError, ClientHandle};
use rmcp::RoleClient;
use rmcp::model::{ClientJsonRpcMessage, ClientNotification, RequestId, ServerJsonRpcMessage};
use rmcp::transport::Transport;
use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;
use serde_json::{Value, json};
use tokio::sync::mpsc;
use tokio::task::AbortHandle;

use super::decode::instead;
use super::{MAX_MESSAGE, nesting};

/// So much that a server tells waits to be taken in; more is left out.
const MAX_TOLD: usize = 256;
/// The longest error of a client that is told, in bytes.
const MAX_ERROR: usize = 600;

/// How servers of a client are reached. Clones are the same one.
#[derive(Debug, Clone)]
pub struct OverAcp {
    client: ClientHandle,
    told: Told,
}

impl OverAcp {
    /// Returns how servers of a client are reached. What it tells of them has to be given to `told`, of which there is one
    /// for a connection.
    #[must_use]
    pub fn new(client: ClientHandle, told: Told) -> Self {
        Self { client, told }
    }

    /// Asks a server, and returns its answer, or one in its place.
    async fn ask(
        &self,
        server: McpServerAcpId,
        (id, asked): (RequestId, Value),
        arrives: mpsc::Sender<ServerJsonRpcMessage>,
    ) -> ServerJsonRpcMessage {
        let open = self.told.open(server.clone(), arrives);
        let method = asked.get("method").and_then(Value::as_str).unwrap_or_default().to_owned();
        let params = asked.get("params").and_then(Value::as_object).cloned();
        let lists_tools = method == "tools/list";
        let request = MessageMcpRequest::new(server, open.id.clone(), method).params(params);
        let answer = match self.client.caller().call(&Message(request)).await {
            Ok(answer) => answer,
            Err(why) => return instead(id, said(&why)),
        };
        if answer.get().len() > MAX_MESSAGE {
            return instead(id, format!("the answer of the server is larger than {MAX_MESSAGE} bytes"));
        }
        // One tool that is nested too deep must not cost the others.
        let text = answer.get().as_bytes();
        let text = if lists_tools { nesting::cut(text) } else { Cow::Borrowed(text) };
        let outcome = match serde_json::from_slice(&text) {
            Ok(MessageMcpResponse::Result { result, .. }) => ("result", result),
            Ok(MessageMcpResponse::Error { error, .. }) => {
                ("error", serde_json::to_value(error).unwrap_or_default())
            }
            // A later protocol may know more.
            Ok(_) | Err(_) => return unreadable(id),
        };
        let message = json!({ "jsonrpc": "2.0", "id": id, outcome.0: outcome.1 });
        serde_json::from_value(message).unwrap_or_else(|_| unreadable(id))
    }
}

fn unreadable(id: RequestId) -> ServerJsonRpcMessage {
    instead(id, "the answer of the server cannot be read".to_owned())
}

/// Returns why there is no answer, with who says so: it is the client, not the server.
fn said(why: &CallError) -> String {
    match why {
        CallError::Refused(error) => {
            format!("the client does not pass it on: {}", display::line(&error.message, MAX_ERROR))
        }
        CallError::Unreadable { .. } => "the answer of the client cannot be read".to_owned(),
        why => display::line(&why.to_string(), MAX_ERROR),
    }
}

/// A request of which the answer is taken as it comes, so that its size is known; after what the server told before it.
#[derive(Serialize, Deserialize)]
#[serde(transparent)]
struct Message(MessageMcpRequest);

impl Request for Message {
    const METHOD: &'static str = CLIENT_METHOD_NAMES.mcp_message;
    const AFTER_NOTIFICATIONS: bool = true;
    type Response = Box<RawValue>;
}

/// What servers of one client tell while they answer, and who it is for. Clones are the same one.
#[derive(Debug, Clone, Default)]
pub struct Told {
    shared: Arc<Shared>,
}

#[derive(Debug, Default)]
struct Shared {
    last: AtomicU64,
    // The requests without an answer: no more than there are calls.
    open: Mutex<HashMap<McpRequestId, (McpServerAcpId, mpsc::Sender<ServerJsonRpcMessage>)>>,
}

impl Shared {
    fn open(
        &self,
    ) -> MutexGuard<'_, HashMap<McpRequestId, (McpServerAcpId, mpsc::Sender<ServerJsonRpcMessage>)>> {
        self.open.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Told {
    /// Takes in what a server tells. Returns whether it is of a request that waits for its answer; if not, it is nobody's.
    pub fn take(&self, told: MessageMcpNotification) -> bool {
        let open = self.shared.open();
        let Some((_, arrives)) = open.get(&told.request_id).filter(|(server, _)| *server == told.server_id)
        else {
            return false;
        };
        let mut message = json!({ "jsonrpc": "2.0", "method": told.method });
        if let Some(params) = told.params {
            message["params"] = params.into();
        }
        // What cannot be read is left out, and so is what nobody has taken in for long.
        if let Ok(message) = serde_json::from_value(message) {
            arrives.try_send(message).unwrap_or_default();
        }
        true
    }

    /// Returns an id for a request, by which what is told of it is known until the id is dropped.
    fn open(&self, server: McpServerAcpId, arrives: mpsc::Sender<ServerJsonRpcMessage>) -> Open {
        let number = self.shared.last.fetch_add(1, Ordering::Relaxed) + 1;
        let id = McpRequestId::new(number.to_string());
        self.shared.open().insert(id.clone(), (server, arrives));
        Open { id, told: self.clone() }
    }
}

/// A request that waits for its answer.
struct Open {
    id: McpRequestId,
    told: Told,
}

impl Drop for Open {
    fn drop(&mut self) {
        self.told.shared.open().remove(&self.id);
    }
}

/// The messages to and from a server of a client.
pub(super) struct Channel {
    over: OverAcp,
    server: McpServerAcpId,
    arrives: mpsc::Sender<ServerJsonRpcMessage>,
    arrived: mpsc::Receiver<ServerJsonRpcMessage>,
    // The requests without an answer, and some that have one: no more than there are calls.
    asked: HashMap<RequestId, AbortHandle>,
}

impl Channel {
    pub(super) fn new(over: OverAcp, server: McpServerAcpId) -> Self {
        let (arrives, arrived) = mpsc::channel(MAX_TOLD);
        Self { over, server, arrives, arrived, asked: HashMap::new() }
    }

    fn give_up(&mut self) {
        for (_, asked) in self.asked.drain() {
            asked.abort();
        }
    }
}

impl Transport<RoleClient> for Channel {
    type Error = Infallible;

    fn send(
        &mut self,
        message: ClientJsonRpcMessage,
    ) -> impl Future<Output = Result<(), Infallible>> + Send + 'static {
        match &message {
            ClientJsonRpcMessage::Request(request) => {
                let id = request.id.clone();
                let asked = serde_json::to_value(&message).unwrap_or_default();
                let (over, server, arrives) = (self.over.clone(), self.server.clone(), self.arrives.clone());
                self.asked.retain(|_, asked| !asked.is_finished());
                let asking = tokio::spawn({
                    let id = id.clone();
                    async move {
                        let answer = over.ask(server, (id, asked), arrives.clone()).await;
                        // Nobody waits for it any more when the channel is gone.
                        drop(arrives.send(answer).await);
                    }
                });
                self.asked.insert(id, asking.abort_handle());
            }
            ClientJsonRpcMessage::Notification(notification) => {
                // To drop a request is to cancel it. Nothing else can be told: the protocol has no way for it.
                if let ClientNotification::CancelledNotification(cancelled) = &notification.notification
                    && let Some(id) = &cancelled.params.request_id
                    && let Some(asked) = self.asked.remove(id)
                {
                    asked.abort();
                }
            }
            // A server of this kind asks nothing.
            ClientJsonRpcMessage::Response(_) | ClientJsonRpcMessage::Error(_) => {}
        }
        ready(Ok(()))
    }

    async fn receive(&mut self) -> Option<ServerJsonRpcMessage> {
        tokio::select! {
            biased;
            message = self.arrived.recv() => message,
            () = self.over.client.caller().closed() => None,
        }
    }

    async fn close(&mut self) -> Result<(), Infallible> {
        self.give_up();
        Ok(())
    }
}

impl Drop for Channel {
    fn drop(&mut self) {
        self.give_up();
    }
}
