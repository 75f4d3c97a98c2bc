//! An HTTP server that answers as a test dictates, including incorrectly.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use bowline_mcp::client::{McpClientOptions, McpError, McpServers, ServerSpec, TransportSpec};
use bowline_mcp::http;
use bowline_tools::mcp_tools::McpCallOutput;
use bowline_workspace::terminals::{SupervisorProgram, TerminalOptions};
use serde_json::{Value, json};
use tokio::io::{AsyncBufReadExt as _, AsyncReadExt as _, AsyncWriteExt as _, BufReader};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{mpsc, watch};
use tokio::task::JoinHandle;

/// A request.
#[derive(Debug, Clone)]
pub(crate) struct HttpTestRequest {
    pub(crate) verb: String,
    pub(crate) path: String,
    pub(crate) headers: Vec<(String, String)>,
    pub(crate) message: Value,
}

impl HttpTestRequest {
    pub(crate) fn header(&self, name: &str) -> Option<&str> {
        self.headers.iter().find(|(key, _)| key == name).map(|(_, value)| value.as_str())
    }

    pub(crate) fn method(&self) -> &str {
        self.message["method"].as_str().unwrap_or_default()
    }

    /// Returns the request on one line.
    pub(crate) fn describe(&self) -> String {
        let session = self.header("mcp-session-id").map(|id| format!(" in {id}")).unwrap_or_default();
        let method = if self.method().is_empty() { String::new() } else { format!(" {}", self.method()) };
        format!("{}{method}{session}", self.verb)
    }
}

/// A reply of the server.
pub(crate) enum ScriptedReply {
    /// A head and a body of known length.
    Whole { status: u16, headers: Vec<(&'static str, String)>, body: String },
    /// Events, followed by the end of the stream.
    Events { headers: Vec<(&'static str, String)>, events: String },
    /// Events as they are sent; the stream ends when their sender is dropped.
    Stream(mpsc::Receiver<String>),
    /// An endless sequence of bytes.
    Flood(&'static str),
    /// No reply; the connection stays open.
    Hang,
    /// No reply; the connection is closed.
    Close,
}

impl ScriptedReply {
    pub(crate) fn json(body: &Value) -> Self {
        Self::text(200, "application/json", &body.to_string())
    }

    pub(crate) fn text(status: u16, content_type: &str, body: &str) -> Self {
        let headers = vec![("content-type", content_type.to_owned())];
        Self::Whole { status, headers, body: body.to_owned() }
    }

    pub(crate) fn result(request: &HttpTestRequest, result: Value) -> Self {
        Self::json(&json!({ "jsonrpc": "2.0", "id": request.message["id"], "result": result }))
    }

    fn with_header(self, name: &'static str, value: &str) -> Self {
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
pub(crate) struct ScriptedServer {
    pub(crate) origin: String,
    requests: Arc<Mutex<Vec<HttpTestRequest>>>,
    request_count: watch::Receiver<usize>,
    task: JoinHandle<()>,
}

impl ScriptedServer {
    /// Starts a server that replies with the results of `answer`.
    pub(crate) async fn new(
        answer: impl Fn(&HttpTestRequest) -> ScriptedReply + Send + Sync + 'static,
    ) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let origin = format!("http://{}", listener.local_addr().unwrap());
        let requests = Arc::new(Mutex::new(Vec::new()));
        let (count, request_count) = watch::channel(0);
        let (answer, recorded, count) = (Arc::new(answer), Arc::clone(&requests), Arc::new(count));
        let task = tokio::spawn(async move {
            let mut connections = tokio::task::JoinSet::new();
            while let Ok((stream, _)) = listener.accept().await {
                let (answer, recorded, count) =
                    (Arc::clone(&answer), Arc::clone(&recorded), Arc::clone(&count));
                connections.spawn(async move {
                    let mut stream = BufReader::new(stream);
                    while let Some(request) = read_request(&mut stream).await {
                        recorded.lock().unwrap().push(request.clone());
                        count.send_modify(|count| *count += 1);
                        if !write_reply(stream.get_mut(), answer(&request)).await {
                            break;
                        }
                    }
                });
            }
        });
        Self { origin, requests, request_count, task }
    }

    /// Starts an MCP server; a reply of `reply_override` replaces the correct one.
    pub(crate) async fn start_mcp(
        reply_override: impl Fn(&HttpTestRequest) -> Option<ScriptedReply> + Send + Sync + 'static,
    ) -> Self {
        let sessions = AtomicUsize::new(0);
        Self::new(move |request| {
            let reply = reply_override(request).unwrap_or_else(|| answer_correctly(request));
            if request.method() != "initialize" {
                return reply;
            }
            reply.with_header("mcp-session-id", &format!("s{}", sessions.fetch_add(1, Ordering::Relaxed)))
        })
        .await
    }

    pub(crate) fn http_transport(&self) -> TransportSpec {
        TransportSpec::Http {
            url: format!("{}/mcp", self.origin).parse().unwrap(),
            headers: secret_headers(),
        }
    }

    pub(crate) fn sse_transport(&self) -> TransportSpec {
        TransportSpec::Sse { url: format!("{}/sse", self.origin).parse().unwrap(), headers: secret_headers() }
    }

    pub(crate) fn requests(&self) -> Vec<HttpTestRequest> {
        self.requests.lock().unwrap().clone()
    }

    /// Returns all requests except those for streams, which are made concurrently.
    pub(crate) fn describe_requests(&self) -> String {
        self.requests()
            .iter()
            .filter(|request| request.verb != "GET")
            .map(HttpTestRequest::describe)
            .collect::<Vec<_>>()
            .join("\n")
    }

    /// Waits for a request that matches.
    pub(crate) async fn wait_for_request(&self, predicate: impl Fn(&HttpTestRequest) -> bool) {
        let mut request_count = self.request_count.clone();
        while !self.requests().iter().any(&predicate) {
            request_count.changed().await.unwrap();
        }
    }
}

impl Drop for ScriptedServer {
    fn drop(&mut self) {
        self.task.abort();
    }
}

fn secret_headers() -> reqwest::header::HeaderMap {
    [(reqwest::header::AUTHORIZATION, "Bearer abc".parse().unwrap())].into_iter().collect()
}

/// Replies as a correct server.
pub(crate) fn answer_correctly(request: &HttpTestRequest) -> ScriptedReply {
    match (request.verb.as_str(), request.method()) {
        ("POST", "initialize") => ScriptedReply::result(
            request,
            json!({
                "protocolVersion": request.message["params"]["protocolVersion"],
                "capabilities": { "tools": {} },
                "serverInfo": { "name": "scripted", "version": "1" },
            }),
        ),
        ("POST", "tools/list") => ScriptedReply::result(
            request,
            json!({
                "tools": [{ "name": "echo", "inputSchema": { "type": "object" } }],
            }),
        ),
        ("POST", "tools/call") => ScriptedReply::result(
            request,
            json!({
                "content": [{ "type": "text", "text": request.message["params"]["arguments"].to_string() }],
            }),
        ),
        ("POST", _) => ScriptedReply::text(202, "text/plain", ""),
        ("DELETE", _) => ScriptedReply::text(200, "text/plain", ""),
        _ => ScriptedReply::text(405, "text/plain", ""),
    }
}

pub(crate) fn client_options() -> McpClientOptions {
    let supervisor = SupervisorProgram::new("/nowhere", ["supervise"]);
    let http = http::HttpClientOptions { system_proxy: false, ..http::HttpClientOptions::default() };
    McpClientOptions {
        http,
        call_timeout: Duration::from_secs(5),
        ..McpClientOptions::from_terminal_options(&TerminalOptions::new(supervisor), "/")
    }
}

pub(crate) async fn connect(transport: TransportSpec, settings: McpClientOptions) -> McpServers {
    let servers = McpServers::connect(vec![ServerSpec { name: "web".to_owned(), transport }], settings);
    servers.wait_until_ready(Duration::from_secs(20)).await;
    servers
}

/// Describes the server's state and the outcome of a call.
pub(crate) async fn describe_server_and_call(servers: &McpServers) -> String {
    format!("{:?}\n{}", servers.statuses()[0].state, describe_call(call_echo(servers).await))
}

pub(crate) async fn call_echo(servers: &McpServers) -> Result<McpCallOutput, McpError> {
    let arguments = json!({ "a": 1 }).as_object().cloned().unwrap_or_default();
    servers.call("mcp__web__echo", arguments, drop).await
}

pub(crate) fn describe_call(outcome: Result<McpCallOutput, McpError>) -> String {
    match outcome {
        Ok(output) => output.text,
        Err(error) => format!("! {error}"),
    }
}

async fn read_request(stream: &mut BufReader<TcpStream>) -> Option<HttpTestRequest> {
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
    Some(HttpTestRequest { verb, path, headers, message: serde_json::from_slice(&body).unwrap_or_default() })
}

/// Writes a reply. Returns whether the connection can be reused.
async fn write_reply(stream: &mut TcpStream, reply: ScriptedReply) -> bool {
    let head = |status: u16, headers: &[(&'static str, String)]| {
        let headers: String = headers.iter().map(|(name, value)| format!("{name}: {value}\r\n")).collect();
        format!("HTTP/1.1 {status} Scripted\r\n{headers}")
    };
    let events = || vec![("content-type", "text/event-stream".to_owned())];
    match reply {
        ScriptedReply::Whole { status, headers, body } => {
            let text = format!("{}content-length: {}\r\n\r\n{body}", head(status, &headers), body.len());
            stream.write_all(text.as_bytes()).await.is_ok()
        }
        ScriptedReply::Events { mut headers, events: text } => {
            headers.extend(events());
            let text = format!("{}connection: close\r\n\r\n{text}", head(200, &headers));
            stream.write_all(text.as_bytes()).await.map_or_else(drop, drop);
            false
        }
        ScriptedReply::Stream(mut chunks) => {
            let head = format!("{}connection: close\r\n\r\n", head(200, &events()));
            stream.write_all(head.as_bytes()).await.map_or_else(drop, drop);
            while let Some(chunk) = chunks.recv().await {
                if stream.write_all(chunk.as_bytes()).await.is_err() {
                    break;
                }
            }
            false
        }
        ScriptedReply::Flood(content_type) => {
            let head = head(200, &[("content-type", content_type.to_owned())]);
            stream.write_all(format!("{head}\r\ndata: ").as_bytes()).await.map_or_else(drop, drop);
            let chunk = vec![b'x'; 1 << 20];
            while stream.write_all(&chunk).await.is_ok() {}
            false
        }
        ScriptedReply::Hang => std::future::pending().await,
        ScriptedReply::Close => false,
    }
}
