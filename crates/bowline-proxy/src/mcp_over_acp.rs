//! MCP over ACP: the agent's `mcp/message` requests, tunnelled to a server and back.
//!
//! The messages name a server and an inner request, and have no connection of their own. The server behind them does:
//! the tunnel performs the `initialize` handshake on the agent's behalf, so that the agent need not.

use std::collections::HashMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use bowline_mcp::server::{McpWorkspaceServer, serve};
use bowline_protocol::rpc_error::RpcError;
use bowline_protocol::schema::v1::Error;
use bowline_wire::Caller;
use bowline_wire::message::body::JsonBody;
use bowline_wire::service::{
    BoxFuture, IncomingRequest, RawParams, Service, ServiceResponse, UncheckedParamsError,
};
use serde::Deserialize;
use serde_json::{Value, json};
use tokio::io::{AsyncBufReadExt as _, AsyncWriteExt as _, BufReader, DuplexStream, ReadHalf, WriteHalf};
use tokio::sync::{OnceCell, mpsc, oneshot};
use tokio::task::JoinHandle;

use crate::inject::InjectorState;

/// The method, in both directions.
const MESSAGE_METHOD: &str = "mcp/message";

/// The size of the buffer between a tunnel and its server, in bytes.
const BUFFER_SIZE: usize = 64 << 10;

/// The most messages that wait to be sent to a server.
const QUEUE_SIZE: usize = 64;

/// The protocol version of the handshake.
const PROTOCOL_VERSION: &str = "2025-06-18";

/// The params of a message from the agent.
#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
struct McpMessage {
    server_id: String,
    #[serde(default)]
    request_id: Option<String>,
    method: String,
    #[serde(default)]
    params: Option<Value>,
}

/// Answers the agent's messages to servers over ACP.
pub struct McpOverAcpService {
    injector: Arc<InjectorState>,
}

impl McpOverAcpService {
    pub(crate) fn new(shared: Arc<InjectorState>) -> Self {
        Self { injector: shared }
    }
}

impl Service for McpOverAcpService {
    fn handle_request(
        &mut self,
        request: IncomingRequest<'_>,
    ) -> Result<ServiceResponse, UncheckedParamsError> {
        let method = request.method.to_owned();
        let message = match request.params.parse_with(|params| serde_json::from_str::<McpMessage>(params))? {
            Ok(message) if method == MESSAGE_METHOD => message,
            Ok(_) => return Ok(refuse(RpcError::UnknownMethod { method: Some(method) })),
            Err(error) => return Ok(refuse(RpcError::InvalidParams { reason: error.to_string() })),
        };
        let Some(tunnel) = self.injector.find_tunnel(&message.server_id) else {
            let reason = format!("there is no server {}", message.server_id);
            return Ok(refuse(RpcError::InvalidParams { reason }));
        };
        let cancel = request.cancel;
        Ok(ServiceResponse::Deferred(Box::pin(async move {
            tokio::select! {
                answer = tunnel.call(message) => answer.and_then(|answer| {
                    JsonBody::from_value(&answer).map_err(|error| RpcError::Internal { reason: error.to_string() }.into())
                }),
                () = cancel.fired() => Err(RpcError::Cancelled.into()),
            }
        })))
    }

    fn handle_notification(
        &mut self,
        method: &str,
        params: RawParams<'_>,
    ) -> Result<Option<BoxFuture<'static, ()>>, UncheckedParamsError> {
        let Ok(message) = params.parse_with(|params| serde_json::from_str::<McpMessage>(params))? else {
            return Ok(None);
        };
        let tunnel = self.injector.find_tunnel(&message.server_id).filter(|_| method == MESSAGE_METHOD);
        Ok(tunnel.map(|tunnel| -> BoxFuture<'static, ()> {
            Box::pin(async move { tunnel.notify(message).await })
        }))
    }
}

fn refuse(failure: RpcError) -> ServiceResponse {
    ServiceResponse::Ready(Err(failure.into()))
}

/// The tunnel to one server.
pub(crate) struct McpTunnel {
    lines: mpsc::Sender<Value>,
    pending: Arc<PendingTunnelCalls>,
    next_id: AtomicU64,
    initialize_result: OnceCell<Value>,
    server_task: Mutex<Option<JoinHandle<()>>>,
    io_tasks: [JoinHandle<()>; 2],
}

/// The calls that wait for an answer of the server.
#[derive(Default)]
struct PendingTunnelCalls {
    calls: Mutex<HashMap<u64, PendingTunnelCall>>,
}

struct PendingTunnelCall {
    // The agent's id for the request.
    agent_request_id: Option<String>,
    answer: oneshot::Sender<Value>,
}

impl PendingTunnelCalls {
    fn calls(&self) -> MutexGuard<'_, HashMap<u64, PendingTunnelCall>> {
        self.calls.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A pending request to the server. Dropping it cancels the request.
struct TunnelCallGuard<'a> {
    tunnel: &'a McpTunnel,
    id: u64,
}

impl Drop for TunnelCallGuard<'_> {
    fn drop(&mut self) {
        if self.tunnel.pending.calls().remove(&self.id).is_some() {
            let params = json!({ "requestId": self.id });
            let cancel = json!({ "jsonrpc": "2.0", "method": "notifications/cancelled", "params": params });
            // If the queue is full, the request runs to its end and its answer is discarded.
            self.tunnel.lines.try_send(cancel).unwrap_or_default();
        }
    }
}

impl McpTunnel {
    /// Starts a server that the agent knows by `id`; its notifications go to the agent.
    pub(crate) fn start(server: McpWorkspaceServer, id: String, agent: Option<Caller>) -> Self {
        let (tunnel_end, server_end) = tokio::io::duplex(BUFFER_SIZE);
        let (reader, writer) = tokio::io::split(server_end);
        let server_task = bowline_task::spawn(async move {
            serve(server, reader, writer, std::future::pending()).await.unwrap_or_default();
        });
        let (reads, writes) = tokio::io::split(tunnel_end);
        let (lines, queue) = mpsc::channel(QUEUE_SIZE);
        let waiting = Arc::new(PendingTunnelCalls::default());
        let reading = bowline_task::spawn(read_lines(reads, waiting.clone(), id, agent, lines.clone()));
        let writing = bowline_task::spawn(write_lines(writes, queue));
        Self {
            lines,
            pending: waiting,
            next_id: AtomicU64::new(0),
            initialize_result: OnceCell::new(),
            server_task: Mutex::new(Some(server_task)),
            io_tasks: [reading, writing],
        }
    }

    /// Stops the server, and returns when everything that was started for it has ended.
    pub(crate) async fn stop(&self) {
        self.io_tasks.iter().for_each(JoinHandle::abort);
        let task = self.server_task.lock().unwrap_or_else(PoisonError::into_inner).take();
        if let Some(task) = task {
            task.await.unwrap_or_default();
        }
    }

    async fn call(&self, message: McpMessage) -> Result<Value, Error> {
        let initialize_result = self.initialize_result.get_or_try_init(|| self.initialize_server()).await?;
        if message.method == "initialize" {
            return Ok(to_outcome(initialize_result.clone()));
        }
        let McpMessage { method, params, request_id, .. } = message;
        Ok(to_outcome(self.send_request(&method, params, request_id).await?))
    }

    async fn notify(&self, message: McpMessage) {
        if message.method == "notifications/initialized" {
            return;
        }
        let mut params = message.params.unwrap_or_else(|| json!({}));
        if message.method == "notifications/cancelled" {
            let request_id = params["requestId"].as_str().map(str::to_owned).or(message.request_id);
            let open = self
                .pending
                .calls()
                .iter()
                .find(|(_, call)| call.agent_request_id == request_id)
                .map(|(id, _)| *id);
            let Some(id) = open else { return };
            params["requestId"] = json!(id);
        }
        let line = json!({ "jsonrpc": "2.0", "method": message.method, "params": params });
        // A server that has ended receives nothing.
        self.lines.send(line).await.unwrap_or_default();
    }

    async fn initialize_server(&self) -> Result<Value, Error> {
        let client = json!({ "name": "agent", "version": "0" });
        let params = json!({ "protocolVersion": PROTOCOL_VERSION, "capabilities": {}, "clientInfo": client });
        let result = self.send_request("initialize", Some(params), None).await?;
        let notification = json!({ "jsonrpc": "2.0", "method": "notifications/initialized" });
        self.lines.send(notification).await.map_err(|_| server_ended())?;
        Ok(result)
    }

    /// Sends a request to the server, and returns its whole response.
    async fn send_request(
        &self,
        method: &str,
        params: Option<Value>,
        name: Option<String>,
    ) -> Result<Value, Error> {
        let id = self.next_id.fetch_add(1, Ordering::Relaxed);
        let (answer, answered) = oneshot::channel();
        self.pending.calls().insert(id, PendingTunnelCall { agent_request_id: name, answer });
        let ticket = TunnelCallGuard { tunnel: self, id };
        let mut line = json!({ "jsonrpc": "2.0", "id": id, "method": method });
        if let Some(params) = params.filter(|params| !params.is_null()) {
            line["params"] = params;
        }
        self.lines.send(line).await.map_err(|_| server_ended())?;
        let answer = answered.await.map_err(|_| server_ended());
        drop(ticket);
        answer
    }
}

impl Drop for McpTunnel {
    fn drop(&mut self) {
        // The server sees its input end, and stops by itself.
        self.io_tasks.iter().for_each(JoinHandle::abort);
    }
}

fn server_ended() -> Error {
    RpcError::Internal { reason: "the MCP server has ended".to_owned() }.into()
}

/// Returns the outcome of a response, in the form the tunnel carries.
fn to_outcome(mut answer: Value) -> Value {
    match answer.get_mut("error") {
        Some(error) => json!({ "error": error.take() }),
        None => json!({ "result": answer.get_mut("result").map(Value::take) }),
    }
}

async fn write_lines(mut writes: WriteHalf<DuplexStream>, mut queue: mpsc::Receiver<Value>) {
    while let Some(line) = queue.recv().await {
        if writes.write_all(format!("{line}\n").as_bytes()).await.is_err() {
            return;
        }
    }
}

/// Reads the server's output: delivers responses to their callers, and forwards notifications to the agent.
async fn read_lines(
    reader: ReadHalf<DuplexStream>,
    waiting: Arc<PendingTunnelCalls>,
    server: String,
    agent: Option<Caller>,
    replies: mpsc::Sender<Value>,
) {
    // The server is our own, and bounds its lines.
    let mut lines = BufReader::new(reader).lines();
    while let Ok(Some(line)) = lines.next_line().await {
        let Ok(mut message) = serde_json::from_str::<Value>(&line) else { continue };
        let id = message["id"].as_u64();
        match (message["method"].as_str().map(str::to_owned), id) {
            (None, Some(id)) => {
                if let Some(expected) = waiting.calls().remove(&id) {
                    // The caller may be gone.
                    expected.answer.send(message).unwrap_or_default();
                }
            }
            (Some(_), Some(id)) => {
                let error =
                    json!({ "code": -32601, "message": "requests of servers are not carried over ACP" });
                replies.send(json!({ "jsonrpc": "2.0", "id": id, "error": error })).await.unwrap_or_default();
            }
            (Some(method), None) => {
                // The server does not say which request of the agent it belongs to, so the newest is assumed.
                let newest = waiting
                    .calls()
                    .iter()
                    .max_by_key(|(id, _)| **id)
                    .and_then(|(_, call)| call.agent_request_id.clone());
                let (Some(agent), Some(name)) = (&agent, newest) else { continue };
                let params = message["params"].take();
                let notification =
                    json!({ "serverId": server, "requestId": name, "method": method, "params": params });
                if let Ok(body) = JsonBody::from_value(&notification) {
                    agent.notify_raw(MESSAGE_METHOD, body).await.unwrap_or_default();
                }
            }
            (None, None) => {}
        }
    }
    waiting.calls().clear();
}
