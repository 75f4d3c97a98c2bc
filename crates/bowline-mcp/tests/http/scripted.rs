//! An HTTP server that answers as a test wants, also wrongly.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use bowline_mcp::client::{McpError, Reach, ServerSpec, Servers, Settings};
use bowline_mcp::http;
use bowline_state::mcp_tools::CallOutput;
use bowline_workspace::terminals::Supervisor;
use serde_json::{Value, json};
use tokio::io::{AsyncBufReadExt as _, AsyncReadExt as _, AsyncWriteExt as _, BufReader};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{mpsc, watch};
use tokio::task::JoinHandle;

/// A request.
#[derive(Debug, Clone)]
pub(crate) struct Request {
    pub(crate) verb: String,
    pub(crate) path: String,
    pub(crate) headers: Vec<(String, String)>,
    pub(crate) message: Value,
}

impl Request {
    pub(crate) fn header(&self, name: &str) -> Option<&str> {
        self.headers.iter().find(|(known, _)| known == name).map(|(_, value)| value.as_str())
    }

    pub(crate) fn method(&self) -> &str {
        self.message["method"].as_str().unwrap_or_default()
    }

    /// Returns the request on one line.
    pub(crate) fn shown(&self) -> String {
        let session = self.header("mcp-session-id").map(|id| format!(" in {id}")).unwrap_or_default();
        let method = if self.method().is_empty() { String::new() } else { format!(" {}", self.method()) };
        format!("{}{method}{session}", self.verb)
    }
}

/// What is answered.
pub(crate) enum Reply {
    /// A head and a body of known length.
    Whole { status: u16, headers: Vec<(&'static str, String)>, body: String },
    /// Events, and the end of the stream.
    Events { headers: Vec<(&'static str, String)>, events: String },
    /// Events as they come; the stream ends when their sender is dropped.
    Stream(mpsc::Receiver<String>),
    /// Bytes without end.
    Flood(&'static str),
    /// Nothing, for ever.
    Hang,
    /// Nothing: the connection is closed.
    Close,
}

impl Reply {
    pub(crate) fn json(body: &Value) -> Self {
        Self::text(200, "application/json", &body.to_string())
    }

    pub(crate) fn text(status: u16, content_type: &str, body: &str) -> Self {
        let headers = vec![("content-type", content_type.to_owned())];
        Self::Whole { status, headers, body: body.to_owned() }
    }

    pub(crate) fn result(request: &Request, result: Value) -> Self {
        Self::json(&json!({ "jsonrpc": "2.0", "id": request.message["id"], "result": result }))
    }

    fn with(self, name: &'static str, value: &str) -> Self {
        match self {
            Self::Whole { status, mut headers, body } => {
                headers.push((name, value.to_owned()));
                Self::Whole { status, headers, body }
            }
            other => other,
        }
    }
}

/// A server. Dropping it closes every connection.
pub(crate) struct Scripted {
    pub(crate) origin: String,
    requests: Arc<Mutex<Vec<Request>>>,
    seen: watch::Receiver<usize>,
    serving: JoinHandle<()>,
}

impl Scripted {
    /// Serves what `answer` says.
    pub(crate) async fn new(answer: impl Fn(&Request) -> Reply + Send + Sync + 'static) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let origin = format!("http://{}", listener.local_addr().unwrap());
        let requests = Arc::new(Mutex::new(Vec::new()));
        let (count, seen) = watch::channel(0);
        let (answer, kept, count) = (Arc::new(answer), Arc::clone(&requests), Arc::new(count));
        let serving = tokio::spawn(async move {
            let mut connections = tokio::task::JoinSet::new();
            while let Ok((stream, _)) = listener.accept().await {
                let (answer, kept, count) = (Arc::clone(&answer), Arc::clone(&kept), Arc::clone(&count));
                connections.spawn(async move {
                    let mut stream = BufReader::new(stream);
                    while let Some(request) = read(&mut stream).await {
                        kept.lock().unwrap().push(request.clone());
                        count.send_modify(|count| *count += 1);
                        if !write(stream.get_mut(), answer(&request)).await {
                            break;
                        }
                    }
                });
            }
        });
        Self { origin, requests, seen, serving }
    }

    /// Serves MCP; what `otherwise` answers, it answers in its place.
    pub(crate) async fn mcp(otherwise: impl Fn(&Request) -> Option<Reply> + Send + Sync + 'static) -> Self {
        let sessions = AtomicUsize::new(0);
        Self::new(move |request| {
            let reply = otherwise(request).unwrap_or_else(|| well_behaved(request));
            if request.method() != "initialize" {
                return reply;
            }
            reply.with("mcp-session-id", &format!("s{}", sessions.fetch_add(1, Ordering::Relaxed)))
        })
        .await
    }

    pub(crate) fn reach(&self) -> Reach {
        Reach::Http { url: format!("{}/mcp", self.origin).parse().unwrap(), headers: secret() }
    }

    pub(crate) fn sse(&self) -> Reach {
        Reach::Sse { url: format!("{}/sse", self.origin).parse().unwrap(), headers: secret() }
    }

    pub(crate) fn requests(&self) -> Vec<Request> {
        self.requests.lock().unwrap().clone()
    }

    /// Returns all requests but those for streams, which are made beside the others.
    pub(crate) fn log(&self) -> String {
        self.requests()
            .iter()
            .filter(|request| request.verb != "GET")
            .map(Request::shown)
            .collect::<Vec<_>>()
            .join("\n")
    }

    /// Waits until there is a request like this.
    pub(crate) async fn until(&self, wanted: impl Fn(&Request) -> bool) {
        let mut seen = self.seen.clone();
        while !self.requests().iter().any(&wanted) {
            seen.changed().await.unwrap();
        }
    }
}

impl Drop for Scripted {
    fn drop(&mut self) {
        self.serving.abort();
    }
}

fn secret() -> reqwest::header::HeaderMap {
    [(reqwest::header::AUTHORIZATION, "Bearer abc".parse().unwrap())].into_iter().collect()
}

/// Answers as a server should.
pub(crate) fn well_behaved(request: &Request) -> Reply {
    match (request.verb.as_str(), request.method()) {
        ("POST", "initialize") => Reply::result(
            request,
            json!({
                "protocolVersion": request.message["params"]["protocolVersion"],
                "capabilities": { "tools": {} },
                "serverInfo": { "name": "scripted", "version": "1" },
            }),
        ),
        ("POST", "tools/list") => Reply::result(
            request,
            json!({
                "tools": [{ "name": "echo", "inputSchema": { "type": "object" } }],
            }),
        ),
        ("POST", "tools/call") => Reply::result(
            request,
            json!({
                "content": [{ "type": "text", "text": request.message["params"]["arguments"].to_string() }],
            }),
        ),
        ("POST", _) => Reply::text(202, "text/plain", ""),
        ("DELETE", _) => Reply::text(200, "text/plain", ""),
        _ => Reply::text(405, "text/plain", ""),
    }
}

pub(crate) fn settings() -> Settings {
    let supervisor = Supervisor::new("/nowhere", ["supervise"]);
    let http = http::Settings { system_proxy: false, ..http::Settings::default() };
    Settings { http, call_timeout: Duration::from_secs(5), ..Settings::new(supervisor, "/") }
}

pub(crate) async fn connect(reach: Reach, settings: Settings) -> Servers {
    let servers = Servers::connect(vec![ServerSpec { name: "web".to_owned(), reach }], settings);
    servers.ready(Duration::from_secs(20)).await;
    servers
}

/// Returns how the server is, and what becomes of a call.
pub(crate) async fn tried(servers: &Servers) -> String {
    format!("{:?}\n{}", servers.status()[0].state, said(echo(servers).await))
}

pub(crate) async fn echo(servers: &Servers) -> Result<CallOutput, McpError> {
    let arguments = json!({ "a": 1 }).as_object().cloned().unwrap_or_default();
    servers.call("mcp__web__echo", arguments, drop).await
}

pub(crate) fn said(outcome: Result<CallOutput, McpError>) -> String {
    match outcome {
        Ok(output) => output.text,
        Err(error) => format!("! {error}"),
    }
}

async fn read(stream: &mut BufReader<TcpStream>) -> Option<Request> {
    let mut line = String::new();
    stream.read_line(&mut line).await.ok().filter(|read| *read > 0)?;
    let mut words = line.split_whitespace().map(str::to_owned);
    let (verb, path) = (words.next()?, words.next()?);
    let mut headers = Vec::new();
    loop {
        let mut line = String::new();
        stream.read_line(&mut line).await.ok()?;
        let Some((name, value)) = line.trim_end().split_once(": ") else { break };
        headers.push((name.to_ascii_lowercase(), value.to_owned()));
    }
    let length = headers.iter().find(|(name, _)| name == "content-length").map(|(_, length)| length.parse());
    let mut body = vec![0; length.transpose().ok()?.unwrap_or_default()];
    stream.read_exact(&mut body).await.ok()?;
    Some(Request { verb, path, headers, message: serde_json::from_slice(&body).unwrap_or_default() })
}

/// Writes an answer. Returns whether the connection can be used again.
async fn write(stream: &mut TcpStream, reply: Reply) -> bool {
    let head = |status: u16, headers: &[(&'static str, String)]| {
        let headers: String = headers.iter().map(|(name, value)| format!("{name}: {value}\r\n")).collect();
        format!("HTTP/1.1 {status} Scripted\r\n{headers}")
    };
    let events = || vec![("content-type", "text/event-stream".to_owned())];
    match reply {
        Reply::Whole { status, headers, body } => {
            let text = format!("{}content-length: {}\r\n\r\n{body}", head(status, &headers), body.len());
            stream.write_all(text.as_bytes()).await.is_ok()
        }
        Reply::Events { mut headers, events: text } => {
            headers.extend(events());
            let text = format!("{}connection: close\r\n\r\n{text}", head(200, &headers));
            stream.write_all(text.as_bytes()).await.map_or_else(drop, drop);
            false
        }
        Reply::Stream(mut pieces) => {
            let head = format!("{}connection: close\r\n\r\n", head(200, &events()));
            stream.write_all(head.as_bytes()).await.map_or_else(drop, drop);
            while let Some(piece) = pieces.recv().await {
                if stream.write_all(piece.as_bytes()).await.is_err() {
                    break;
                }
            }
            false
        }
        Reply::Flood(content_type) => {
            let head = head(200, &[("content-type", content_type.to_owned())]);
            stream.write_all(format!("{head}\r\ndata: ").as_bytes()).await.map_or_else(drop, drop);
            let piece = vec![b'x'; 1 << 20];
            while stream.write_all(&piece).await.is_ok() {}
            false
        }
        Reply::Hang => std::future::pending().await,
        Reply::Close => false,
    }
}
