//! The caller's end of a client that runs in the test, and a scripted server at the other end.

use std::path::Path;
use std::process::Stdio;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use bowline_remote::endpoint::Endpoint;
use bowline_remote::{RemoteError, RemoteOptions, forward};
use serde_json::{Value, json};
use test_support::TEST_TIMEOUT;
use test_support::scripted_http::{EventSender, HttpExchange, ScriptedHttpServer};
use tokio::io::{AsyncBufReadExt as _, AsyncWriteExt as _, BufReader, DuplexStream, Lines};
use tokio::process::Command;
use tokio::task::JoinHandle;
use tokio::time::timeout;

use crate::servers::Balancer;

/// The token that the client sends.
pub(crate) const TOKEN: &str = "secret-token";

/// What writes messages to the client, and reads those of the server.
pub(crate) struct Caller {
    input: DuplexStream,
    lines: Lines<BufReader<DuplexStream>>,
    reports: Arc<Mutex<Vec<String>>>,
    task: JoinHandle<Result<(), RemoteError>>,
}

impl Caller {
    pub(crate) fn start(url: &str) -> Self {
        Self::start_with(url, TOKEN, RemoteOptions::RECONNECT_FOR)
    }

    /// Starts a client with another token.
    pub(crate) fn start_with_token(url: &str, token: &str) -> Self {
        Self::start_with(url, token, RemoteOptions::RECONNECT_FOR)
    }

    /// Starts a client that gives up after this time.
    pub(crate) fn start_with_limit(url: &str, reconnect_for: Duration) -> Self {
        Self::start_with(url, TOKEN, reconnect_for)
    }

    /// Starts `bowline connect`.
    pub(crate) fn start_program(bowline: &Path, url: &str, token: &str) -> Self {
        Self::start_command(Command::new(bowline), url, token)
    }

    /// Starts `bowline connect` with a certificate authority that it trusts.
    pub(crate) fn start_program_with_authority(
        bowline: &Path,
        url: &str,
        token: &str,
        authority: &Path,
    ) -> Self {
        let mut command = Command::new(bowline);
        command.env("SSL_CERT_FILE", authority);
        Self::start_command(command, url, token)
    }

    fn start_command(mut command: Command, url: &str, token: &str) -> Self {
        command.args(["connect", url]).env("BOWLINE_TOKEN", token).kill_on_drop(true);
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::null());
        let mut program = command.spawn().unwrap();
        let (input, mut client_input) = tokio::io::duplex(64 << 10);
        let (mut client_output, output) = tokio::io::duplex(64 << 10);
        let (mut stdin, mut stdout) = (program.stdin.take().unwrap(), program.stdout.take().unwrap());
        let task = tokio::spawn(async move {
            let written = async {
                tokio::io::copy(&mut client_input, &mut stdin).await.ok();
                drop(stdin);
            };
            tokio::join!(written, tokio::io::copy(&mut stdout, &mut client_output)).1?;
            program.wait().await?;
            Ok(())
        });
        Self { input, lines: BufReader::new(output).lines(), reports: Arc::default(), task }
    }

    fn start_with(url: &str, token: &str, reconnect_for: Duration) -> Self {
        let (input, client_input) = tokio::io::duplex(64 << 10);
        let (client_output, output) = tokio::io::duplex(64 << 10);
        let reports = Arc::new(Mutex::new(Vec::new()));
        let sink = Arc::clone(&reports);
        let report = move |text: &str| sink.lock().unwrap().push(text.to_owned());
        let endpoint = Endpoint::parse(url).unwrap();
        let options = RemoteOptions { endpoint, token: Some(token.to_owned()), reconnect_for };
        let running = forward(options, client_input, client_output, std::future::pending(), report);
        let lines = BufReader::new(output).lines();
        Self { input, lines, reports, task: tokio::spawn(running) }
    }

    pub(crate) async fn send(&mut self, message: Value) {
        self.send_text(&message.to_string()).await;
    }

    pub(crate) async fn send_text(&mut self, text: &str) {
        self.input.write_all(format!("{text}\n").as_bytes()).await.unwrap();
    }

    /// Returns the next message.
    pub(crate) async fn next(&mut self) -> Value {
        let line = timeout(TEST_TIMEOUT, self.lines.next_line()).await.expect("a message").unwrap();
        serde_json::from_str(&line.expect("the client ended")).unwrap()
    }

    /// Returns the text of the next message, which is an error.
    pub(crate) async fn next_error(&mut self) -> String {
        let message = self.next().await;
        format!("{} {}", message["id"], message["error"]["message"].as_str().expect("an error"))
    }

    /// Returns what the user was told.
    pub(crate) fn reports(&self) -> Vec<String> {
        self.reports.lock().unwrap().clone()
    }

    /// Ends the input, and returns how the client ended.
    pub(crate) async fn finish(mut self) -> Result<(), RemoteError> {
        self.input.shutdown().await.unwrap();
        self.wait_for_end().await
    }

    /// Goes away like a caller that was killed, and returns how the client ends.
    pub(crate) fn vanish(self) -> JoinHandle<Result<(), RemoteError>> {
        self.task
    }

    /// Waits for the end of the client.
    pub(crate) async fn wait_for_end(mut self) -> Result<(), RemoteError> {
        let line = timeout(TEST_TIMEOUT, self.lines.next_line()).await.expect("an end").unwrap();
        assert_eq!(line, None);
        timeout(TEST_TIMEOUT, self.task).await.expect("an end").unwrap()
    }
}

/// The result of `initialize` of a server with Bowline's extensions.
pub(crate) fn bowline_result() -> Value {
    json!({"agentCapabilities": {"_meta": {"bowline": {"remote": {"version": 1}}}}})
}

/// The result of `initialize` of another server, whose agent can load sessions.
pub(crate) fn other_result() -> Value {
    json!({"agentCapabilities": {"loadSession": true}})
}

/// A connection with an open session `s`, up to the caller.
pub(crate) struct OpenSession {
    pub(crate) server: ScriptedHttpServer,
    pub(crate) caller: Caller,
    pub(crate) connection: EventSender,
    pub(crate) session: EventSender,
}

/// Answers an `initialize` request, and returns it.
pub(crate) async fn answer_initialize(
    server: &mut ScriptedHttpServer,
    connection: &str,
    result: &Value,
) -> Value {
    let exchange = server.next_post().await.unwrap();
    let request = exchange.json().unwrap();
    assert_eq!(request["method"], "initialize");
    assert_eq!(exchange.header("acp-connection-id"), "");
    let response = json!({"jsonrpc": "2.0", "id": request["id"], "result": result}).to_string();
    let headers = [("content-type", "application/json"), ("acp-connection-id", connection)];
    exchange.respond(200, &headers, &response).await.unwrap();
    request
}

/// Accepts the next post, and returns its message.
pub(crate) async fn accept_post(server: &mut ScriptedHttpServer) -> Value {
    let exchange = server.next_post().await.unwrap();
    let message = exchange.json().unwrap();
    exchange.accept().await.unwrap();
    message
}

/// Opens the next stream, and checks its headers: connection, session and last event.
pub(crate) async fn open_stream(server: &mut ScriptedHttpServer, headers: [&str; 3]) -> EventSender {
    let exchange = server.next_get().await.unwrap();
    assert_eq!(stream_headers(&exchange), headers);
    exchange.send_events().await.unwrap()
}

/// Returns the headers that say which stream is meant: connection, session and last event.
pub(crate) fn stream_headers(exchange: &HttpExchange) -> [&str; 3] {
    ["acp-connection-id", "acp-session-id", "last-event-id"].map(|name| exchange.header(name))
}

impl OpenSession {
    /// Opens a session on a server whose agent answers `initialize` with this result.
    pub(crate) async fn open(result: &Value) -> Self {
        let server = ScriptedHttpServer::start().await.unwrap();
        let caller = Caller::start(&format!("http://{}", server.address()));
        Self::open_with(server, caller, result).await
    }

    /// Opens a session on a server behind a load balancer, so that another server can take its place.
    pub(crate) async fn open_balanced(result: &Value) -> (Self, Balancer) {
        let server = ScriptedHttpServer::start().await.unwrap();
        let network = Balancer::start(&server.address().to_string()).await;
        let caller = Caller::start(&format!("http://{}", network.address()));
        (Self::open_with(server, caller, result).await, network)
    }

    pub(crate) async fn open_with(
        mut server: ScriptedHttpServer,
        mut caller: Caller,
        result: &Value,
    ) -> Self {
        caller.send(json!({"id": 0, "method": "initialize", "params": {"protocolVersion": 1}})).await;
        answer_initialize(&mut server, "c1", result).await;
        assert_eq!(caller.next().await["result"], *result);
        let mut connection = open_stream(&mut server, ["c1", "", ""]).await;
        caller.send(json!({"id": 1, "method": "session/new", "params": {"cwd": "/p"}})).await;
        assert_eq!(accept_post(&mut server).await["method"], "session/new");
        connection.send(None, &json!({"id": 1, "result": {"sessionId": "s"}})).await.unwrap();
        let session = open_stream(&mut server, ["c1", "s", ""]).await;
        assert_eq!(caller.next().await["result"]["sessionId"], "s");
        Self { server, caller, connection, session }
    }

    /// Sends a prompt that the server takes.
    pub(crate) async fn prompt(&mut self, id: u64) {
        self.caller.send(prompt(id)).await;
        assert_eq!(accept_post(&mut self.server).await, prompt(id));
    }
}

pub(crate) fn prompt(id: u64) -> Value {
    json!({"id": id, "method": "session/prompt", "params": {"sessionId": "s"}})
}

pub(crate) fn update(number: u64) -> Value {
    json!({"method": "session/update", "params": {"sessionId": "s", "update": number}})
}
