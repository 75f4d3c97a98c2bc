//! A client that does as little as possible, over stdio, event streams or a WebSocket. Messages that it writes to a pipe
//! or a socket leave together, before it waits.

use std::collections::VecDeque;
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};
use bowline_protocol::remote::{CONNECTION_HEADER, LAST_EVENT_HEADER, SESSION_HEADER};
use bowline_protocol::sse::{SseDecoder, SseEvent};
use bowline_wire::message::peek::{PeekedMessage, peek};
use bytes::Bytes;
use futures_util::future::BoxFuture;
use futures_util::stream::FuturesUnordered;
use futures_util::{FutureExt as _, SinkExt as _, StreamExt as _};
use serde_json::{Value, json};
use tokio::io::{AsyncBufReadExt as _, AsyncWriteExt as _, BufReader, BufWriter};
use tokio::net::TcpStream;
use tokio::process::{Child, ChildStdin, ChildStdout, Command};
use tokio_tungstenite::tungstenite::Message;
use tokio_tungstenite::tungstenite::client::IntoClientRequest as _;
use tokio_tungstenite::{MaybeTlsStream, WebSocketStream};

/// The largest event.
const MAX_EVENT_BYTES: usize = 64 << 20;
/// The size of a file that an agent reads.
const READ_BYTES: usize = 200;

/// Where an agent is reached.
#[derive(Debug, Clone)]
pub(super) enum Endpoint {
    /// A program, with its state in a directory.
    Stdio { command: Vec<String>, home: PathBuf },
    /// A server with event streams.
    Sse { url: String, token: String },
    /// A server with a WebSocket.
    WebSocket { url: String, token: String },
}

impl Endpoint {
    /// Returns the endpoint of a server.
    pub(super) fn new(scheme: &str, address: &str, token: Option<&str>) -> Self {
        let url = format!("{scheme}://{address}/acp");
        let token = token.unwrap_or_default().to_owned();
        if scheme == "ws" { Self::WebSocket { url, token } } else { Self::Sse { url, token } }
    }
}

/// A client with one session, or several on a WebSocket.
pub(super) struct BenchClient {
    link: Link,
    last_id: u64,
    session: String,
    content: String,
}

enum Link {
    Stdio(Box<StdioLink>),
    Sse(Box<SseLink>),
    WebSocket(Box<WebSocketLink>),
}

struct StdioLink {
    _process: Child,
    input: BufWriter<ChildStdin>,
    lines: BufReader<ChildStdout>,
}

struct WebSocketLink {
    socket: WebSocketStream<MaybeTlsStream<TcpStream>>,
    has_unsent: bool,
}

struct SseLink {
    http: reqwest::Client,
    url: String,
    token: String,
    connection: String,
    own: Option<EventStream>,
    session: Option<(String, EventStream)>,
    waiting: VecDeque<SseEvent>,
    posts: FuturesUnordered<BoxFuture<'static, Result<()>>>,
}

struct EventStream {
    response: reqwest::Response,
    decoder: SseDecoder,
}

impl BenchClient {
    /// Connects, initializes, and opens a session in a directory.
    pub(super) async fn connect(endpoint: &Endpoint, cwd: &Path) -> Result<Self> {
        let link = Link::open(endpoint).await?;
        let content = "x".repeat(READ_BYTES);
        let mut client = Self { link, last_id: 0, session: String::new(), content };
        let capabilities = json!({ "fs": { "readTextFile": true, "writeTextFile": true }, "terminal": true });
        client
            .call("initialize", json!({ "protocolVersion": 1, "clientCapabilities": capabilities }))
            .await?;
        client.session = client.open_session(cwd).await?;
        Ok(client)
    }

    /// Opens another session, and returns its id.
    pub(super) async fn open_session(&mut self, cwd: &Path) -> Result<String> {
        let result = self.call("session/new", json!({ "cwd": cwd, "mcpServers": [] })).await?;
        let session = result["sessionId"].as_str().context("the session has no id")?.to_owned();
        self.link.open_stream(&session, None).await?;
        Ok(session)
    }

    /// Returns the session that was opened first.
    pub(super) fn session(&self) -> &str {
        &self.session
    }

    /// Gives an agent a task, and returns how many updates came before the answer.
    pub(super) async fn run_turn(&mut self, task: &Value) -> Result<usize> {
        let session = self.session.clone();
        let id = self.prompt(&session, task).await?;
        let mut updates = 0;
        loop {
            let message = self.link.next().await?;
            match peek(&message) {
                PeekedMessage::Notification { .. } => updates += 1,
                PeekedMessage::Request { id, .. } => {
                    let answer = format!(
                        r#"{{"jsonrpc":"2.0","id":{},"result":{{"content":"{}"}}}}"#,
                        String::from_utf8_lossy(id),
                        self.content
                    );
                    self.link.send(answer, Some(&self.session)).await?;
                }
                PeekedMessage::Response { id: answered, is_error } => {
                    ensure!(!is_error, "the agent failed: {}", String::from_utf8_lossy(&message));
                    if answered == id.to_string().as_bytes() {
                        return Ok(updates);
                    }
                }
                PeekedMessage::Other => bail!("not a message: {}", String::from_utf8_lossy(&message)),
            }
        }
    }

    /// Sends a prompt with a task, and returns its id.
    pub(super) async fn prompt(&mut self, session: &str, task: &Value) -> Result<u64> {
        let prompt = json!([{ "type": "text", "text": task.to_string() }]);
        self.request("session/prompt", json!({ "sessionId": session, "prompt": prompt })).await
    }

    /// Waits for the next message.
    pub(super) async fn next(&mut self) -> Result<Bytes> {
        self.link.next().await
    }

    /// Opens the session's stream again as if everything after the first event was missed, and returns how long the
    /// first of these took to come.
    pub(super) async fn reconnect(&mut self) -> Result<Duration> {
        let started = Instant::now();
        self.link.open_stream(&self.session.clone(), Some("1")).await?;
        self.link.next().await?;
        Ok(started.elapsed())
    }

    async fn request(&mut self, method: &str, params: Value) -> Result<u64> {
        self.last_id += 1;
        let session = params["sessionId"].as_str().map(str::to_owned);
        let message = json!({ "jsonrpc": "2.0", "id": self.last_id, "method": method, "params": params });
        self.link.send(message.to_string(), session.as_deref()).await?;
        Ok(self.last_id)
    }

    async fn call(&mut self, method: &str, params: Value) -> Result<Value> {
        let id = self.request(method, params).await?;
        loop {
            let message: Value = serde_json::from_slice(&self.link.next().await?)?;
            if message["method"].is_null() && message["id"] == id {
                ensure!(message["error"].is_null(), "{method} failed: {}", message["error"]);
                return Ok(message["result"].clone());
            }
        }
    }
}

impl Link {
    async fn open(endpoint: &Endpoint) -> Result<Self> {
        match endpoint {
            Endpoint::Stdio { command, home } => {
                let (program, arguments) = command.split_first().context("the agent has no command")?;
                let mut process = Command::new(program)
                    .args(arguments)
                    .env("HOME", home)
                    .env("XDG_STATE_HOME", home.join("state"))
                    .stdin(Stdio::piped())
                    .stdout(Stdio::piped())
                    .kill_on_drop(true)
                    .spawn()
                    .with_context(|| format!("cannot start {program}"))?;
                let input = process.stdin.take().context("the agent has no input")?;
                let output = process.stdout.take().context("the agent has no output")?;
                let lines = BufReader::with_capacity(64 << 10, output);
                let input = BufWriter::with_capacity(64 << 10, input);
                Ok(Self::Stdio(Box::new(StdioLink { _process: process, input, lines })))
            }
            Endpoint::Sse { url, token } => Ok(Self::Sse(Box::new(SseLink {
                http: reqwest::Client::builder().no_proxy().build()?,
                url: url.clone(),
                token: token.clone(),
                connection: String::new(),
                own: None,
                session: None,
                waiting: VecDeque::new(),
                posts: FuturesUnordered::new(),
            }))),
            Endpoint::WebSocket { url, token } => {
                let mut request = url.as_str().into_client_request()?;
                request.headers_mut().insert("authorization", format!("Bearer {token}").parse()?);
                // Small messages do not wait for the acknowledgement of earlier ones.
                let (socket, _) = tokio_tungstenite::connect_async_with_config(request, None, true).await?;
                Ok(Self::WebSocket(Box::new(WebSocketLink { socket, has_unsent: false })))
            }
        }
    }

    /// Opens the stream of a session, where sessions have streams of their own.
    async fn open_stream(&mut self, session: &str, last_event: Option<&str>) -> Result<()> {
        if let Self::Sse(link) = self {
            link.waiting.clear();
            link.session = None;
            link.session = Some((session.to_owned(), link.open(Some(session), last_event).await?));
        }
        Ok(())
    }

    async fn send(&mut self, message: String, session: Option<&str>) -> Result<()> {
        match self {
            Self::Stdio(link) => Ok(link.input.write_all((message + "\n").as_bytes()).await?),
            Self::Sse(link) if link.connection.is_empty() => link.initialize(message).await,
            Self::Sse(link) => {
                link.post(message, session);
                Ok(())
            }
            Self::WebSocket(link) => {
                link.has_unsent = true;
                Ok(link.socket.feed(Message::text(message)).await?)
            }
        }
    }

    async fn next(&mut self) -> Result<Bytes> {
        match self {
            Self::Stdio(link) => {
                let mut line = Vec::new();
                if !link.lines.buffer().contains(&b'\n') {
                    link.input.flush().await?;
                }
                link.lines.read_until(b'\n', &mut line).await?;
                ensure!(!line.is_empty(), "the agent has ended");
                Ok(line.into())
            }
            Self::Sse(link) => link.next().await,
            Self::WebSocket(link) => loop {
                let message = match link.socket.next().now_or_never() {
                    Some(message) => message,
                    None => {
                        if std::mem::take(&mut link.has_unsent) {
                            link.socket.flush().await?;
                        }
                        link.socket.next().await
                    }
                };
                match message.context("the server closed the socket")?? {
                    Message::Text(text) => return Ok(text.into()),
                    Message::Close(frame) => bail!("the server closed the socket: {frame:?}"),
                    // Only texts are messages.
                    _ => {}
                }
            },
        }
    }
}

impl SseLink {
    async fn initialize(&mut self, message: String) -> Result<()> {
        let response = self.request(message, None).send().await?;
        let connection = response.headers().get(CONNECTION_HEADER).context("the connection has no id")?;
        self.connection = connection.to_str()?.to_owned();
        let data = response.bytes().await?.to_vec();
        self.waiting.push_back(SseEvent { data: Some(data), ..SseEvent::default() });
        self.own = Some(self.open(None, None).await?);
        Ok(())
    }

    fn request(&self, message: String, session: Option<&str>) -> reqwest::RequestBuilder {
        let request = self.http.post(&self.url).bearer_auth(&self.token);
        let request = request
            .header("content-type", "application/json")
            .header("accept", "application/json, text/event-stream");
        let request = if self.connection.is_empty() {
            request
        } else {
            request.header(CONNECTION_HEADER, &self.connection)
        };
        let request = session.into_iter().fold(request, |request, id| request.header(SESSION_HEADER, id));
        request.body(message)
    }

    fn post(&mut self, message: String, session: Option<&str>) {
        let request = self.request(message, session).send();
        self.posts.push(Box::pin(async move {
            let response = request.await?;
            ensure!(response.status().is_success(), "the server refused: {}", response.text().await?);
            Ok(())
        }));
    }

    async fn open(&self, session: Option<&str>, last_event: Option<&str>) -> Result<EventStream> {
        let request = self.http.get(&self.url).bearer_auth(&self.token).header("accept", "text/event-stream");
        let request = request.header(CONNECTION_HEADER, &self.connection);
        let request = session.into_iter().fold(request, |request, id| request.header(SESSION_HEADER, id));
        let request =
            last_event.into_iter().fold(request, |request, id| request.header(LAST_EVENT_HEADER, id));
        let response = request.send().await?;
        ensure!(response.status().is_success(), "the server refused: {}", response.text().await?);
        Ok(EventStream { response, decoder: SseDecoder::new(MAX_EVENT_BYTES) })
    }

    async fn next(&mut self) -> Result<Bytes> {
        loop {
            if let Some(event) = self.waiting.pop_front() {
                match event.data {
                    Some(data) => return Ok(data.into()),
                    None => continue,
                }
            }
            let Self { own, session, posts, .. } = self;
            let own = async {
                match own {
                    Some(own) => own.next().await,
                    None => std::future::pending().await,
                }
            };
            let session = async {
                match session {
                    Some((_, session)) => session.next().await,
                    None => std::future::pending().await,
                }
            };
            tokio::select! {
                events = own => self.waiting = events?,
                events = session => self.waiting = events?,
                Some(posted) = posts.next() => posted?,
            }
        }
    }
}

impl EventStream {
    async fn next(&mut self) -> Result<VecDeque<SseEvent>> {
        let bytes = self.response.chunk().await?.context("the server ended a stream")?;
        Ok(self.decoder.push(&bytes)?)
    }
}
