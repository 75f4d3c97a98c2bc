//! HTTP and WebSocket themselves: protocols, order, limits.

use std::time::Duration;

use bowline_serve::HubOptions;
use bowline_serve::http::{AccessOptions, ListenerOptions, serve};
use bowline_serve::token::Role;
use expect_test::expect;
use futures_util::{SinkExt as _, StreamExt as _};
use serde_json::{Value, json};
use tokio::io::{AsyncRead, AsyncReadExt as _, AsyncWrite, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream};
use tokio_tungstenite::tungstenite::Message;
use tokio_tungstenite::tungstenite::client::IntoClientRequest as _;
use tokio_tungstenite::{MaybeTlsStream, WebSocketStream};

use crate::client::{describe, http_client};
use crate::support::Server;

pub(crate) struct Socket<S = MaybeTlsStream<TcpStream>>(pub(crate) WebSocketStream<S>);

impl Socket {
    pub(crate) async fn connect(server: &Server, token: &str) -> Self {
        let mut request = format!("{}/acp", server.url.replace("http", "ws")).into_client_request().unwrap();
        request.headers_mut().insert("authorization", format!("Bearer {token}").parse().unwrap());
        let (socket, response) = tokio_tungstenite::connect_async(request).await.unwrap();
        assert!(response.headers().contains_key("acp-connection-id"));
        assert!(!response.headers().contains_key("sec-websocket-protocol"));
        assert!(!response.headers().contains_key("sec-websocket-extensions"));
        Self(socket)
    }
}

impl<S: AsyncRead + AsyncWrite + Unpin> Socket<S> {
    /// Connects over a stream that is connected already.
    pub(crate) async fn connect_over(stream: S, url: &str, token: &str) -> Self {
        let mut request = url.into_client_request().unwrap();
        request.headers_mut().insert("authorization", format!("Bearer {token}").parse().unwrap());
        Self(tokio_tungstenite::client_async(request, stream).await.unwrap().0)
    }

    pub(crate) async fn request(&mut self, id: u64, method: &str, params: Value) {
        let message = json!({ "jsonrpc": "2.0", "id": id, "method": method, "params": params });
        self.0.send(Message::text(message.to_string())).await.unwrap();
    }

    pub(crate) async fn until_response(&mut self, id: u64) -> Vec<String> {
        let mut shown = Vec::new();
        loop {
            let Message::Text(text) = self.0.next().await.unwrap().unwrap() else { continue };
            let message: Value = serde_json::from_str(&text).unwrap();
            shown.push(describe(&message));
            if message["method"].is_null() && message["id"] == id {
                return shown;
            }
        }
    }
}

#[tokio::test]
async fn a_web_socket_carries_everything_in_order() {
    let place = tempfile::tempdir().unwrap();
    let server = Server::start(place.path()).await;
    let token = server.token("me", Role::User).await;
    let mut socket = Socket::connect(&server, &token).await;
    socket.0.send(Message::binary(vec![1, 2, 3])).await.unwrap();
    socket.request(0, "initialize", json!({ "protocolVersion": 1 })).await;
    socket.until_response(0).await;
    socket.request(1, "session/new", json!({ "cwd": place.path(), "mcpServers": [] })).await;
    let created = socket.until_response(1).await;
    assert_eq!(created.len(), 1, "{created:?}");
    let prompt = |text: &str| json!({ "sessionId": "s1", "prompt": [{ "type": "text", "text": text }] });
    socket.request(2, "session/prompt", prompt("count 2")).await;
    expect![[r#"
        [
            "available_commands_update",
            "1",
            "2",
            "result {\"stopReason\":\"end_turn\"}",
        ]
    "#]]
    .assert_debug_eq(&socket.until_response(2).await);
    // A socket that is cut leaves the turn running; another one loads the session and sees it go on.
    socket.request(3, "session/prompt", prompt("wait")).await;
    socket.until_text("waiting").await;
    drop(socket);
    let mut second = Socket::connect(&server, &token).await;
    second.request(0, "initialize", json!({ "protocolVersion": 1 })).await;
    second.until_response(0).await;
    second
        .request(1, "session/load", json!({ "sessionId": "s1", "cwd": place.path(), "mcpServers": [] }))
        .await;
    second.request(2, "session/prompt", prompt("count 1")).await;
    expect![[r#"
        [
            "available_commands_update",
            "user: count 2",
            "1",
            "2",
            "user: wait",
            "waiting",
            "result {\"modes\":{\"currentModeId\":\"ask\",\"availableModes\":[]}}",
            "1",
            "result {\"stopReason\":\"end_turn\"}",
        ]
    "#]]
    .assert_debug_eq(&second.until_response(2).await);
}

impl Socket {
    /// Returns why the server closed the socket.
    pub(crate) async fn close_reason(&mut self) -> String {
        loop {
            if let Message::Close(frame) = self.0.next().await.unwrap().unwrap() {
                return frame.unwrap().reason.to_string();
            }
        }
    }

    async fn until_text(&mut self, text: &str) {
        loop {
            if let Message::Text(message) = self.0.next().await.unwrap().unwrap()
                && describe(&serde_json::from_str(&message).unwrap()) == text
            {
                return;
            }
        }
    }
}

#[tokio::test]
async fn a_web_socket_that_is_not_read_delays_nobody_else() {
    const COUNT: u64 = 20;
    let place = tempfile::tempdir().unwrap();
    let server = Server::start(place.path()).await;
    let token = server.token("me", Role::User).await;
    let mut stopped = Socket::connect(&server, &token).await;
    stopped.request(0, "initialize", json!({ "protocolVersion": 1 })).await;
    stopped.until_response(0).await;
    stopped.request(1, "session/new", json!({ "cwd": place.path(), "mcpServers": [] })).await;
    stopped.until_response(1).await;
    // More than the system and the server's memory take, none of which is read.
    for id in 2..2 + COUNT {
        let prompt = json!([{ "type": "text", "text": "blob 900000" }]);
        stopped.request(id, "session/prompt", json!({ "sessionId": "s1", "prompt": prompt })).await;
    }
    let other = server.client(&token).await;
    let mut stream = other.stream(Some("s1"), Some(0)).await;
    let mut blobs = 0;
    while blobs < COUNT {
        blobs += u64::from(describe(&stream.next().await.1).len() == 900_000);
    }
    other.prompt(2, "s1", "count 1").await;
    let shown = stream.until_response(2).await;
    assert!(shown.last().unwrap().ends_with(r#"result {"stopReason":"end_turn"}"#), "{shown:?}");
}

#[tokio::test]
async fn a_web_socket_must_begin_with_initialize() {
    let place = tempfile::tempdir().unwrap();
    let server = Server::start(place.path()).await;
    let token = server.token("me", Role::User).await;
    let mut socket = Socket::connect(&server, &token).await;
    socket.request(0, "session/list", json!({})).await;
    assert_eq!(
        socket.close_reason().await,
        "the first message of a connection must be the request `initialize`"
    );
}

#[tokio::test]
async fn http_2_is_served_without_negotiation() {
    let place = tempfile::tempdir().unwrap();
    let server = Server::start(place.path()).await;
    let token = server.token("me", Role::User).await;
    let mut client = server.client(&token).await;
    client.http = http_client(reqwest::Client::builder().http2_prior_knowledge());
    let mut own = client.stream(None, None).await;
    let (session, mut stream) = client.new_session(&mut own, place.path()).await;
    client.prompt(2, &session, "count 1").await;
    assert_eq!(stream.until_response(2).await.len(), 2);
}

#[tokio::test]
async fn a_stream_that_is_opened_again_replaces_the_old_one() {
    let place = tempfile::tempdir().unwrap();
    let server = Server::start(place.path()).await;
    let token = server.token("me", Role::User).await;
    let client = server.client(&token).await;
    let mut own = client.stream(None, None).await;
    let (session, mut first) = client.new_session(&mut own, place.path()).await;
    let mut second = client.stream(Some(&session), Some(1)).await;
    assert!(first.try_next().await.is_none(), "the older one ends");
    let mut own_again = client.stream(None, None).await;
    assert!(own.try_next().await.is_none());
    client.prompt(2, &session, "count 1").await;
    assert_eq!(second.until_response(2).await.len(), 2);
    client.request(3, "session/list", json!({})).await;
    own_again.until_response(3).await;
}

#[tokio::test]
async fn limits_of_connections_and_sessions() {
    let place = tempfile::tempdir().unwrap();
    let options = HubOptions { max_connections: 1, max_sessions: 1, ..HubOptions::default() };
    let access = AccessOptions { is_loopback: true, ..AccessOptions::default() };
    let server = Server::start_with(place.path(), options, access).await;
    let token = server.token("me", Role::User).await;
    let mut client = server.client(&token).await;
    let mut own = client.stream(None, None).await;
    client.new_session(&mut own, place.path()).await;
    client.request(2, "session/new", json!({ "cwd": place.path(), "mcpServers": [] })).await;
    assert_eq!(own.until_response(2).await, ["3 error me has 1 open sessions already: close some"]);
    client.connection = String::new();
    let initialize = json!({ "jsonrpc": "2.0", "id": 0, "method": "initialize", "params": {} });
    let response = client.post(&initialize).await;
    assert_eq!(
        (response.status().as_u16(), &response.headers()["retry-after"]),
        (429, &"5".parse().unwrap())
    );
}

#[tokio::test]
async fn a_client_may_write_before_it_reads() {
    const LARGE: usize = 15 << 20;
    let place = tempfile::tempdir().unwrap();
    let server = Server::start(place.path()).await;
    let token = server.token("me", Role::User).await;
    let mut socket = Socket::connect(&server, &token).await;
    socket.request(0, "initialize", json!({ "protocolVersion": 1 })).await;
    socket.until_response(0).await;
    socket.request(1, "session/new", json!({ "cwd": place.path(), "mcpServers": [] })).await;
    socket.until_response(1).await;
    let mut other = Socket::connect(&server, &token).await;
    other.request(0, "initialize", json!({ "protocolVersion": 1 })).await;
    other.until_response(0).await;
    other
        .request(1, "session/resume", json!({ "sessionId": "s1", "cwd": place.path(), "mcpServers": [] }))
        .await;
    other.until_response(1).await;
    // Neither message fits into the buffers of the connection.
    let prompt = json!([{ "type": "text", "text": format!("blob {LARGE}") }]);
    socket.request(2, "session/prompt", json!({ "sessionId": "s1", "prompt": prompt })).await;
    other.until_text(&"x".repeat(LARGE)).await;
    let answer = json!({ "jsonrpc": "2.0", "id": "unknown", "result": "x".repeat(LARGE) });
    socket.0.send(Message::text(answer.to_string())).await.unwrap();
    assert_eq!(socket.until_response(2).await.last().unwrap(), r#"result {"stopReason":"end_turn"}"#);
}

#[tokio::test]
async fn a_web_socket_gets_the_last_errors_and_a_reason() {
    let place = tempfile::tempdir().unwrap();
    let server = Server::start(place.path()).await;
    let token = server.token("me", Role::User).await;
    let mut socket = Socket::connect(&server, &token).await;
    socket.request(0, "initialize", json!({ "protocolVersion": 1 })).await;
    socket.until_response(0).await;
    socket.request(1, "session/new", json!({ "cwd": place.path(), "mcpServers": [] })).await;
    socket.until_response(1).await;
    let prompt = json!([{ "type": "text", "text": "wait" }]);
    socket.request(2, "session/prompt", json!({ "sessionId": "s1", "prompt": prompt })).await;
    socket.until_text("waiting").await;
    server.hub.drain(Duration::ZERO).await;
    assert_eq!(socket.until_response(2).await, ["error the server stopped"]);
    assert_eq!(socket.close_reason().await, "the connection ended");
}

#[tokio::test(start_paused = true)]
async fn slow_headers_are_not_waited_for() {
    for start in
        ["", "POST /acp HTTP/1.1\r\nhost: local", "PRI * HTTP/2.0\r\n", "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"]
    {
        let place = tempfile::tempdir().unwrap();
        let (_hub, _, router) = Server::build(place.path(), HubOptions::default(), AccessOptions::default());
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let listening = ListenerOptions { tls: None, max_connections: 10 };
        tokio::spawn(serve(listener, router, listening, std::future::pending()));
        let mut slow = TcpStream::connect(address).await.unwrap();
        slow.write_all(start.as_bytes()).await.unwrap();
        let mut answer = Vec::new();
        let waited = tokio::time::timeout(Duration::from_secs(60), slow.read_to_end(&mut answer)).await;
        assert!(waited.is_ok(), "the connection is still open");
    }
}
