//! MCP over ACP: the agent's `mcp/message` requests, carried to a server and back.
//!
//! The messages name a server and an inner request, and have no connection of their own. The server behind them has one:
//! whoever carries them says hello to it in the agent's place, so that an agent need not.

use std::collections::HashMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use bowline_mcp::server::{Server, serve};
use bowline_state::failure::Failure;
use bowline_state::schema::v1::Error;
use bowline_wire::Caller;
use bowline_wire::body::Body;
use bowline_wire::service::{Answer, BoxFuture, Incoming, Params, Service, Unproven};
use serde::Deserialize;
use serde_json::{Value, json};
use tokio::io::{AsyncBufReadExt as _, AsyncWriteExt as _, BufReader, DuplexStream, ReadHalf, WriteHalf};
use tokio::sync::{OnceCell, mpsc, oneshot};
use tokio::task::JoinHandle;

use crate::editor::Editor;
use crate::inject::Shared;

/// The method of both directions.
const MESSAGE: &str = "mcp/message";

/// The room between a carrier and its server, in bytes.
const ROOM: usize = 64 << 10;

/// So many messages wait to be carried.
const QUEUE: usize = 64;

/// The protocol that hello is said in.
const PROTOCOL: &str = "2025-06-18";

/// What the agent sends.
#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
struct Message {
    server_id: String,
    #[serde(default)]
    request_id: Option<String>,
    method: String,
    #[serde(default)]
    params: Option<Value>,
}

/// Answers what the agent sends to servers over ACP.
pub struct OverAcp {
    shared: Arc<Shared>,
}

impl OverAcp {
    pub(crate) fn new(shared: Arc<Shared>) -> Self {
        Self { shared }
    }
}

impl Service for OverAcp {
    fn request(&mut self, request: Incoming<'_>) -> Result<Answer, Unproven> {
        let method = request.method.to_owned();
        let message = match request.params.read::<Message>()? {
            Ok(message) if method == MESSAGE => message,
            Ok(_) => return Ok(refused(Failure::UnknownMethod { method: Some(method) })),
            Err(error) => return Ok(refused(Failure::InvalidParams { reason: error.to_string() })),
        };
        let Some(carrier) = self.shared.carrier(&message.server_id) else {
            let reason = format!("there is no server {}", message.server_id);
            return Ok(refused(Failure::InvalidParams { reason }));
        };
        let cancel = request.cancel;
        Ok(Answer::Later(Box::pin(async move {
            tokio::select! {
                answer = carrier.call(message) => answer.and_then(|answer| {
                    Body::of(&answer).map_err(|error| Failure::Internal { reason: error.to_string() }.into())
                }),
                () = cancel.fired() => Err(Failure::Cancelled.into()),
            }
        })))
    }

    fn notification(&mut self, method: &str, params: Params<'_>) -> Result<Option<BoxFuture<()>>, Unproven> {
        let Ok(message) = params.read::<Message>()? else { return Ok(None) };
        let carrier = self.shared.carrier(&message.server_id).filter(|_| method == MESSAGE);
        Ok(carrier.map(|carrier| -> BoxFuture<()> { Box::pin(async move { carrier.notify(message).await }) }))
    }
}

fn refused(failure: Failure) -> Answer {
    Answer::Now(Err(failure.into()))
}

/// Carries messages to one server.
pub(crate) struct Carrier {
    lines: mpsc::Sender<Value>,
    waiting: Arc<Waiting>,
    next: AtomicU64,
    hello: OnceCell<Value>,
    serving: Mutex<Option<JoinHandle<()>>>,
    carrying: [JoinHandle<()>; 2],
}

/// Who waits for which answer of the server.
#[derive(Default)]
struct Waiting {
    open: Mutex<HashMap<u64, Expected>>,
}

struct Expected {
    // How the agent calls the request.
    name: Option<String>,
    answer: oneshot::Sender<Value>,
}

impl Waiting {
    fn open(&self) -> MutexGuard<'_, HashMap<u64, Expected>> {
        self.open.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A request to the server, as long as somebody waits for it.
struct Ticket<'a> {
    carrier: &'a Carrier,
    id: u64,
}

impl Drop for Ticket<'_> {
    fn drop(&mut self) {
        if self.carrier.waiting.open().remove(&self.id).is_some() {
            let params = json!({ "requestId": self.id });
            let cancel = json!({ "jsonrpc": "2.0", "method": "notifications/cancelled", "params": params });
            // If so much waits, it is done for nobody.
            self.carrier.lines.try_send(cancel).unwrap_or_default();
        }
    }
}

impl Carrier {
    /// Starts a server that the agent knows by `id`; what it says of its own goes to the agent.
    pub(crate) fn start(server: Server<Editor>, id: String, agent: Option<Caller>) -> Self {
        let (near, far) = tokio::io::duplex(ROOM);
        let (reader, writer) = tokio::io::split(far);
        let serving = tokio::spawn(async move {
            serve(server, reader, writer, std::future::pending()).await.unwrap_or_default();
        });
        let (reads, writes) = tokio::io::split(near);
        let (lines, queue) = mpsc::channel(QUEUE);
        let waiting = Arc::new(Waiting::default());
        let reading = tokio::spawn(read(reads, waiting.clone(), id, agent, lines.clone()));
        let writing = tokio::spawn(write(writes, queue));
        Self {
            lines,
            waiting,
            next: AtomicU64::new(0),
            hello: OnceCell::new(),
            serving: Mutex::new(Some(serving)),
            carrying: [reading, writing],
        }
    }

    /// Ends it, and returns when nothing that was started for it runs.
    pub(crate) async fn end(&self) {
        self.carrying.iter().for_each(JoinHandle::abort);
        let serving = self.serving.lock().unwrap_or_else(PoisonError::into_inner).take();
        if let Some(serving) = serving {
            serving.await.unwrap_or_default();
        }
    }

    async fn call(&self, message: Message) -> Result<Value, Error> {
        let hello = self.hello.get_or_try_init(|| self.say_hello()).await?;
        if message.method == "initialize" {
            return Ok(outcome(hello.clone()));
        }
        let Message { method, params, request_id, .. } = message;
        Ok(outcome(self.ask(&method, params, request_id).await?))
    }

    async fn notify(&self, message: Message) {
        if message.method == "notifications/initialized" {
            return;
        }
        let mut params = message.params.unwrap_or_else(|| json!({}));
        if message.method == "notifications/cancelled" {
            let named = params["requestId"].as_str().map(str::to_owned).or(message.request_id);
            let open = self.waiting.open().iter().find(|(_, its)| its.name == named).map(|(id, _)| *id);
            let Some(id) = open else { return };
            params["requestId"] = json!(id);
        }
        let line = json!({ "jsonrpc": "2.0", "method": message.method, "params": params });
        // A server that has ended hears nothing.
        self.lines.send(line).await.unwrap_or_default();
    }

    async fn say_hello(&self) -> Result<Value, Error> {
        let client = json!({ "name": "agent", "version": "0" });
        let params = json!({ "protocolVersion": PROTOCOL, "capabilities": {}, "clientInfo": client });
        let hello = self.ask("initialize", Some(params), None).await?;
        let said = json!({ "jsonrpc": "2.0", "method": "notifications/initialized" });
        self.lines.send(said).await.map_err(|_| gone())?;
        Ok(hello)
    }

    /// Asks the server, and returns its whole answer.
    async fn ask(&self, method: &str, params: Option<Value>, name: Option<String>) -> Result<Value, Error> {
        let id = self.next.fetch_add(1, Ordering::Relaxed);
        let (answer, answered) = oneshot::channel();
        self.waiting.open().insert(id, Expected { name, answer });
        let ticket = Ticket { carrier: self, id };
        let mut line = json!({ "jsonrpc": "2.0", "id": id, "method": method });
        if let Some(params) = params.filter(|params| !params.is_null()) {
            line["params"] = params;
        }
        self.lines.send(line).await.map_err(|_| gone())?;
        let answer = answered.await.map_err(|_| gone());
        drop(ticket);
        answer
    }
}

impl Drop for Carrier {
    fn drop(&mut self) {
        // The server hears that nobody is there, and ends by itself.
        self.carrying.iter().for_each(JoinHandle::abort);
    }
}

fn gone() -> Error {
    Failure::Internal { reason: "the MCP server has ended".to_owned() }.into()
}

/// Returns the outcome in an answer, as it is carried.
fn outcome(mut answer: Value) -> Value {
    match answer.get_mut("error") {
        Some(error) => json!({ "error": error.take() }),
        None => json!({ "result": answer.get_mut("result").map(Value::take) }),
    }
}

async fn write(mut writes: WriteHalf<DuplexStream>, mut queue: mpsc::Receiver<Value>) {
    while let Some(line) = queue.recv().await {
        if writes.write_all(format!("{line}\n").as_bytes()).await.is_err() {
            return;
        }
    }
}

/// Takes what the server says: answers to whoever waits, and what it tells to the agent.
async fn read(
    reads: ReadHalf<DuplexStream>,
    waiting: Arc<Waiting>,
    server: String,
    agent: Option<Caller>,
    back: mpsc::Sender<Value>,
) {
    // The server is ours, and bounds what it says.
    let mut lines = BufReader::new(reads).lines();
    while let Ok(Some(line)) = lines.next_line().await {
        let Ok(mut message) = serde_json::from_str::<Value>(&line) else { continue };
        let id = message["id"].as_u64();
        match (message["method"].as_str().map(str::to_owned), id) {
            (None, Some(id)) => {
                if let Some(expected) = waiting.open().remove(&id) {
                    // Who waited may be gone.
                    expected.answer.send(message).unwrap_or_default();
                }
            }
            (Some(_), Some(id)) => {
                let error =
                    json!({ "code": -32601, "message": "requests of servers are not carried over ACP" });
                back.send(json!({ "jsonrpc": "2.0", "id": id, "error": error })).await.unwrap_or_default();
            }
            (Some(method), None) => {
                // It belongs to a request of the agent's, and to the newest where the server does not say to which.
                let newest =
                    waiting.open().iter().max_by_key(|(id, _)| **id).and_then(|(_, its)| its.name.clone());
                let (Some(agent), Some(name)) = (&agent, newest) else { continue };
                let params = message["params"].take();
                let told =
                    json!({ "serverId": server, "requestId": name, "method": method, "params": params });
                if let Ok(body) = Body::of(&told) {
                    agent.notify_raw(MESSAGE, body).await.unwrap_or_default();
                }
            }
            (None, None) => {}
        }
    }
    waiting.open().clear();
}
