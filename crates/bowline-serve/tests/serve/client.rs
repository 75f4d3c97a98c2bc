//! A small client over HTTP, and its event streams. The tests with servers in processes of their own use it, too.

use std::collections::VecDeque;
use std::path::Path;

use bowline_protocol::remote::{CONNECTION_HEADER, LAST_EVENT_HEADER, SESSION_HEADER};
use bowline_protocol::sse::{SseDecoder, SseEvent};
use serde_json::{Value, json};
use test_support::TEST_TIMEOUT;
use tokio::time::timeout;

/// Builds an HTTP client. Even without TLS it needs to know which implementation it would use.
pub(crate) fn http_client(builder: reqwest::ClientBuilder) -> reqwest::Client {
    // It fails if another test did it before.
    rustls::crypto::ring::default_provider().install_default().ok();
    builder.build().unwrap()
}

#[derive(Clone)]
pub(crate) struct Client {
    pub(crate) http: reqwest::Client,
    pub(crate) url: String,
    pub(crate) token: String,
    pub(crate) connection: String,
}

impl Client {
    /// Connects to a server, with its own way of HTTP.
    pub(crate) async fn connect(
        http: reqwest::Client,
        url: &str,
        token: &str,
        capabilities: Value,
        meta: Value,
    ) -> Self {
        let (url, token) = (format!("{url}/acp"), token.to_owned());
        let mut client = Self { http, url, token, connection: String::new() };
        let mut params = json!({ "protocolVersion": 1, "clientCapabilities": capabilities });
        if !meta.is_null() {
            params["_meta"] = meta;
        }
        let message = json!({ "jsonrpc": "2.0", "id": 0, "method": "initialize", "params": params });
        let response = client.post(&message).await;
        assert_eq!(response.status(), 200);
        client.connection = response.headers()[CONNECTION_HEADER].to_str().unwrap().to_owned();
        client
    }

    pub(crate) async fn post(&self, message: &Value) -> reqwest::Response {
        let mut request = self
            .http
            .post(&self.url)
            .bearer_auth(&self.token)
            .header("content-type", "application/json")
            .body(message.to_string());
        if !self.connection.is_empty() {
            request = request.header(CONNECTION_HEADER, &self.connection);
        }
        request.send().await.unwrap()
    }

    pub(crate) async fn send(&self, message: Value) {
        let response = self.post(&message).await;
        let status = response.status();
        assert_eq!(status, 202, "{}", response.text().await.unwrap());
    }

    pub(crate) async fn request(&self, id: u64, method: &str, params: Value) {
        self.send(json!({ "jsonrpc": "2.0", "id": id, "method": method, "params": params })).await;
    }

    pub(crate) async fn prompt(&self, id: u64, session: &str, text: &str) {
        let prompt = json!([{ "type": "text", "text": text }]);
        self.request(id, "session/prompt", json!({ "sessionId": session, "prompt": prompt })).await;
    }

    pub(crate) async fn stream(&self, session: Option<&str>, last: Option<u64>) -> Stream {
        let mut request = self
            .http
            .get(&self.url)
            .bearer_auth(&self.token)
            .header("accept", "text/event-stream")
            .header(CONNECTION_HEADER, &self.connection);
        if let Some(session) = session {
            request = request.header(SESSION_HEADER, session);
        }
        if let Some(last) = last {
            request = request.header(LAST_EVENT_HEADER, last.to_string());
        }
        let response = request.send().await.unwrap();
        assert_eq!(response.status(), 200);
        let version = response.version();
        Stream { version, response, decoder: SseDecoder::new(1 << 20), waiting: VecDeque::new() }
    }

    /// Opens a session in a directory, and returns its id with its stream.
    pub(crate) async fn new_session(&self, own: &mut Stream, cwd: &Path) -> (String, Stream) {
        self.request(1, "session/new", json!({ "cwd": cwd, "mcpServers": [] })).await;
        let response = own.next().await.1;
        let session =
            response["result"]["sessionId"].as_str().unwrap_or_else(|| panic!("{response}")).to_owned();
        let mut stream = self.stream(Some(&session), None).await;
        let (id, update) = stream.next().await;
        assert_eq!(
            (id, &update["params"]["update"]["sessionUpdate"]),
            (Some(1), &json!("available_commands_update"))
        );
        (session, stream)
    }
}

/// An event stream.
pub(crate) struct Stream {
    pub(crate) version: reqwest::Version,
    response: reqwest::Response,
    decoder: SseDecoder,
    waiting: VecDeque<SseEvent>,
}

impl Stream {
    pub(crate) async fn next(&mut self) -> (Option<u64>, Value) {
        self.try_next().await.expect("the stream ended")
    }

    /// Returns the next message; `None` at the end.
    pub(crate) async fn try_next(&mut self) -> Option<(Option<u64>, Value)> {
        loop {
            while let Some(event) = self.waiting.pop_front() {
                let Some(data) = event.data else { continue };
                let id = event.id.map(|id| id.parse().unwrap());
                return Some((id, serde_json::from_slice(&data).unwrap()));
            }
            let chunk = timeout(TEST_TIMEOUT, self.response.chunk()).await.expect("a message");
            let bytes = chunk.ok()??;
            self.waiting = self.decoder.push(&bytes).unwrap();
        }
    }

    /// Returns what is shown until the response with an id: chunks as their text, other messages in short.
    pub(crate) async fn until_response(&mut self, id: u64) -> Vec<String> {
        let mut shown = Vec::new();
        loop {
            let (number, message) = self.next().await;
            let is_last = message["method"].is_null() && message["id"] == id;
            let number = number.map_or_else(|| "-".to_owned(), |number| number.to_string());
            shown.push(format!("{number} {}", describe(&message)));
            if is_last {
                return shown;
            }
        }
    }
}

pub(crate) fn describe(message: &Value) -> String {
    let update = &message["params"]["update"];
    match (message["method"].as_str(), update["sessionUpdate"].as_str()) {
        (Some("session/update"), Some("agent_message_chunk")) => {
            update["content"]["text"].as_str().unwrap().to_owned()
        }
        (Some("session/update"), Some("user_message_chunk")) => {
            format!("user: {}", update["content"]["text"].as_str().unwrap())
        }
        (Some("session/update"), Some(kind)) => kind.to_owned(),
        (Some(method), _) => method.to_owned(),
        (None, _) if message["error"].is_null() => format!("result {}", message["result"]),
        (None, _) => format!("error {}", message["error"]["message"].as_str().unwrap()),
    }
}
