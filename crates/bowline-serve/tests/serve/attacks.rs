//! Clients that mean harm: requests that can be read in two ways, floods, and connections that are held open.

use std::fmt::Write as _;
use std::time::Duration;

use bowline_serve::HubOptions;
use bowline_serve::http::{AccessOptions, ListenerOptions, serve};
use bowline_serve::token::{Role, StoredToken};
use bowline_storage::clock::now;
use bowline_text::time::Timestamp;
use expect_test::expect;
use futures_util::{SinkExt as _, StreamExt as _};
use serde_json::{Value, json};
use test_support::TEST_TIMEOUT;
use tokio::io::{AsyncRead, AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream};
use tokio::time::timeout;
use tokio_tungstenite::tungstenite::client::IntoClientRequest as _;
use tokio_tungstenite::tungstenite::protocol::frame::coding::{CloseCode, Data, OpCode};
use tokio_tungstenite::tungstenite::protocol::frame::{Frame, FrameHeader};
use tokio_tungstenite::tungstenite::{Error, Message};

use crate::client::http_client;
use crate::support::Server;
use crate::transport::Socket;

const INITIALIZE: &str = r#"{"jsonrpc":"2.0","id":0,"method":"initialize","params":{"protocolVersion":1}}"#;

/// Sends bytes, and returns all that comes back until the server closes the connection.
async fn exchange(address: &str, request: &str) -> String {
    let mut stream = TcpStream::connect(address).await.unwrap();
    stream.write_all(request.as_bytes()).await.unwrap();
    let mut answer = Vec::new();
    // A connection that was reset is closed as well.
    timeout(TEST_TIMEOUT, stream.read_to_end(&mut answer)).await.expect("the server closes").ok();
    String::from_utf8_lossy(&answer).into_owned()
}

#[tokio::test]
async fn requests_that_can_be_read_in_two_ways() {
    let place = tempfile::tempdir().unwrap();
    let server = Server::start(place.path()).await;
    let token = server.token("me", Role::User).await;
    let address = server.url.strip_prefix("http://").unwrap();
    let get = |path: &str| format!("GET {path} HTTP/1.1\r\nhost: {address}\r\nconnection: close\r\n\r\n");
    let post = |headers: &str, body: &str| {
        let bearer = format!("authorization: Bearer {token}\r\ncontent-type: application/json\r\n");
        format!("POST /acp HTTP/1.1\r\nhost: {address}\r\nconnection: close\r\n{bearer}{headers}\r\n{body}")
    };
    let hidden = "GET /metrics HTTP/1.1\r\nhost: 127.0.0.1\r\n\r\n";
    let length = format!("content-length: {}\r\n", INITIALIZE.len());
    let chunk = format!("{:x}\r\n{INITIALIZE}\r\n0\r\n\r\n", INITIALIZE.len());
    let cases = [
        ("an ordinary request", post(&length, INITIALIZE)),
        ("a body in chunks", post("transfer-encoding: chunked\r\n", &chunk)),
        ("a path above", get("/acp/../metrics")),
        ("an encoded path above", get("/acp/%2e%2e/metrics")),
        ("a path above the root", get("/../../etc/passwd")),
        ("two slashes", get("//metrics")),
        ("an encoded slash", get("/%2fmetrics")),
        ("a backslash", get("/acp\\..\\metrics")),
        ("a zero byte", get("/acp%00")),
        ("an encoded letter", get("/%61cp")),
        ("a slash at the end", get("/acp/")),
        ("another letter case", get("/ACP")),
        ("a URL of this server", get(&format!("http://{address}/health"))),
        ("a URL of another server", get("http://evil.example/metrics")),
        ("two lengths", post(&format!("{length}content-length: 1\r\n"), INITIALIZE)),
        ("a list of lengths", post("content-length: 5, 5\r\n", INITIALIZE)),
        ("a length with a sign", post("content-length: +5\r\n", INITIALIZE)),
        ("a length and chunks", post(&format!("{length}transfer-encoding: chunked\r\n"), "0\r\n\r\n")),
        ("another coding", post("transfer-encoding: xchunked\r\n", hidden)),
        ("two codings", post("transfer-encoding: chunked, identity\r\n", hidden)),
        ("a space before the colon", post("content-length : 5\r\n", INITIALIZE)),
        ("a folded header", post("x: 1\r\n content-length: 5\r\n", INITIALIZE)),
        ("a chunk of negative size", post("transfer-encoding: chunked\r\n", "-1\r\n\r\n")),
        ("a chunk beyond all others", post("transfer-encoding: chunked\r\n", "fffffffffffffffff\r\n\r\n")),
        ("an announced body that is too large", post("content-length: 99999999999\r\n", "{")),
        ("headers that are too large", post(&format!("x: {}\r\n", "y".repeat(1 << 20)), "")),
        ("too many headers", post(&"x: y\r\n".repeat(1000), "")),
        ("no host", "GET /metrics HTTP/1.1\r\nconnection: close\r\n\r\n".to_owned()),
        ("HTTP/1.0", "GET /health HTTP/1.0\r\n\r\n".to_owned()),
        ("not HTTP", "\u{16}\u{3}\u{1}\0\0\r\n\r\n".to_owned()),
    ];
    let mut table = String::new();
    for (name, request) in cases {
        let answer = exchange(address, &request).await;
        let answers = answer.matches("HTTP/1.").count();
        let first = answer.split_whitespace().nth(1).unwrap_or("closed");
        writeln!(table, "{name}: {first}{}", if answers > 1 { " and more" } else { "" }).unwrap();
    }
    expect![[r#"
        an ordinary request: 200
        a body in chunks: 200
        a path above: 404
        an encoded path above: 404
        a path above the root: 404
        two slashes: 404
        an encoded slash: 404
        a backslash: 404
        a zero byte: 404
        an encoded letter: 404
        a slash at the end: 404
        another letter case: 404
        a URL of this server: 200
        a URL of another server: 403
        two lengths: 400
        a list of lengths: 400
        a length with a sign: 400
        a length and chunks: 400
        another coding: 400
        two codings: 400
        a space before the colon: 400
        a folded header: 400
        a chunk of negative size: 413
        a chunk beyond all others: 413
        an announced body that is too large: 413
        headers that are too large: 431
        too many headers: 431
        no host: 403
        HTTP/1.0: 200
        not HTTP: 400
    "#]]
    .assert_eq(&table);
}

/// Opens a WebSocket with headers, or returns the status of the refusal.
async fn upgrade(server: &Server, headers: &[(&'static str, &str)]) -> Result<(), u16> {
    let mut request = format!("{}/acp", server.url.replace("http", "ws")).into_client_request().unwrap();
    for (name, value) in headers {
        request.headers_mut().insert(*name, value.parse().unwrap());
    }
    match tokio_tungstenite::connect_async(request).await {
        Ok(_) => Ok(()),
        Err(Error::Http(response)) => Err(response.status().as_u16()),
        Err(error) => panic!("{error}"),
    }
}

#[tokio::test]
async fn a_web_socket_needs_what_other_requests_need() {
    let place = tempfile::tempdir().unwrap();
    let server = Server::start(place.path()).await;
    let token = server.token("me", Role::User).await;
    let bearer = format!("Bearer {token}");
    let http = http_client(reqwest::Client::builder());
    let body = json!({ "token": token }).to_string();
    let login = http.post(format!("{}/login", server.url)).body(body).send().await.unwrap();
    let cookie = login.headers()["set-cookie"].to_str().unwrap().split(';').next().unwrap().to_owned();
    assert_eq!(upgrade(&server, &[]).await, Err(401));
    assert_eq!(upgrade(&server, &[("authorization", "Bearer bow_00_00")]).await, Err(401));
    assert_eq!(upgrade(&server, &[("cookie", "bowline=x")]).await, Err(401));
    // A page of another site has the cookie if it is on the same site: then its origin tells.
    for origin in ["https://evil.example", "null", "http://127.0.0.1"] {
        assert_eq!(upgrade(&server, &[("cookie", &cookie), ("origin", origin)]).await, Err(403), "{origin}");
    }
    assert_eq!(upgrade(&server, &[("authorization", &bearer), ("host", "evil.example")]).await, Err(403));
    let own = server.url.clone();
    upgrade(&server, &[("cookie", &cookie), ("origin", &own)]).await.unwrap();
    // Rust's client refuses a server that chooses either.
    let address = server.url.strip_prefix("http://").unwrap();
    let offers = format!(
        "GET /acp HTTP/1.1\r\nhost: {address}\r\nauthorization: {bearer}\r\nconnection: upgrade\r\nupgrade: websocket\r\n\
         sec-websocket-version: 13\r\nsec-websocket-key: AAAAAAAAAAAAAAAAAAAAAA==\r\n\
         sec-websocket-protocol: acp, v1\r\nsec-websocket-extensions: permessage-deflate\r\n\r\n"
    );
    let mut stream = TcpStream::connect(address).await.unwrap();
    stream.write_all(offers.as_bytes()).await.unwrap();
    let answer = read_until(&mut stream, "\r\n\r\n").await;
    assert!(answer.starts_with("HTTP/1.1 101"), "{answer}");
    assert!(
        !answer.contains("sec-websocket-protocol") && !answer.contains("sec-websocket-extensions"),
        "{answer}"
    );
}

/// Returns a part of a message.
fn part(opcode: OpCode, is_last: bool, payload: &[u8]) -> Message {
    let header =
        FrameHeader { is_final: is_last, opcode, mask: Some([1, 2, 3, 4]), ..FrameHeader::default() };
    Message::Frame(Frame::from_payload(header, payload.to_vec().into()))
}

#[tokio::test]
async fn frames_of_every_kind() {
    let place = tempfile::tempdir().unwrap();
    let server = Server::start(place.path()).await;
    let token = server.token("me", Role::User).await;
    let mut socket = Socket::connect(&server, &token).await;
    let (text, more) = (OpCode::Data(Data::Text), OpCode::Data(Data::Continue));
    // A message in parts, with a ping between them, and frames that mean nothing.
    socket.0.send(Message::binary(vec![0; 1 << 16])).await.unwrap();
    socket.0.send(part(text, false, &INITIALIZE.as_bytes()[..10])).await.unwrap();
    socket.0.send(Message::Ping("here?".into())).await.unwrap();
    socket.0.send(part(more, false, b"")).await.unwrap();
    socket.0.send(part(more, true, &INITIALIZE.as_bytes()[10..])).await.unwrap();
    for _ in 0..1000 {
        socket.0.send(Message::Pong("unasked".into())).await.unwrap();
    }
    assert_eq!(socket.0.next().await.unwrap().unwrap(), Message::Pong("here?".into()));
    socket.until_response(0).await;
    // What breaks the protocol ends the socket, and nothing else.
    let invalid: [(&str, Vec<Message>); 4] = [
        ("text that is not UTF-8", vec![part(text, true, b"{\"\xff\"}")]),
        ("a part without a beginning", vec![part(more, true, b"{}")]),
        ("a second beginning", vec![part(text, false, b"{"), part(text, true, b"}")]),
        ("a reserved kind", vec![part(OpCode::Data(Data::Reserved(5)), true, b"{}")]),
    ];
    for (name, frames) in invalid {
        let mut socket = Socket::connect(&server, &token).await;
        for frame in frames {
            socket.0.send(frame).await.unwrap();
        }
        let end = timeout(TEST_TIMEOUT, socket.0.next()).await.unwrap();
        let is_closed = match &end {
            None | Some(Err(_)) => true,
            Some(Ok(Message::Close(frame))) => {
                frame.as_ref().is_none_or(|frame| frame.code != CloseCode::Normal)
            }
            Some(Ok(_)) => false,
        };
        assert!(is_closed, "{name}: {end:?}");
    }
    socket.request(1, "session/list", json!({})).await;
    socket.until_response(1).await;
}

#[tokio::test]
async fn sockets_without_initialize_count_for_their_principal() {
    let place = tempfile::tempdir().unwrap();
    let options = HubOptions { max_connections: 2, ..HubOptions::default() };
    let access = AccessOptions { is_loopback: true, ..AccessOptions::default() };
    let server = Server::start_with(place.path(), options, access).await;
    let (me, other) = (server.token("me", Role::User).await, server.token("other", Role::User).await);
    let bearer = format!("Bearer {me}");
    let mut first = Socket::connect(&server, &me).await;
    let second = Socket::connect(&server, &me).await;
    assert_eq!(upgrade(&server, &[("authorization", &bearer)]).await, Err(429));
    Socket::connect(&server, &other).await;
    // A socket that is closed, and one that is initialized, give their places back.
    drop(second);
    first.request(0, "initialize", json!({ "protocolVersion": 1 })).await;
    first.until_response(0).await;
    let mut refused = 0;
    while let Err(status) = upgrade(&server, &[("authorization", &bearer)]).await {
        // The server may not have seen the end yet.
        assert_eq!(status, 429);
        refused += 1;
        assert!(refused < 100_000);
        tokio::task::yield_now().await;
    }
}

#[tokio::test]
async fn messages_of_a_principal_have_a_rate() {
    let place = tempfile::tempdir().unwrap();
    let options = HubOptions { max_rate: 2, ..HubOptions::default() };
    let access = AccessOptions { is_loopback: true, ..AccessOptions::default() };
    let server = Server::start_with(place.path(), options, access).await;
    let token = server.token("me", Role::User).await;
    let client = server.client(&token).await;
    let list = |id: u64| json!({ "jsonrpc": "2.0", "id": id, "method": "session/list" });
    let answer = json!({ "jsonrpc": "2.0", "id": "unasked", "result": {} });
    let mut accepted = 0;
    let refused = loop {
        let message = if accepted % 2 == 0 { list(accepted) } else { answer.clone() };
        let response = client.post(&message).await;
        if response.status() != 202 {
            break response;
        }
        accepted += 1;
        assert!(accepted < 100_000, "no limit");
    };
    // Ten seconds' messages are accepted at once, and what the test itself takes adds to them.
    assert!(accepted >= 19, "{accepted}");
    assert_eq!(refused.status(), 429);
    assert!(refused.headers().contains_key("retry-after"));
    assert_eq!(refused.text().await.unwrap(), "me sends more than 2 messages a second\n");
    // Others are not affected.
    server.client(&server.token("other", Role::User).await).await;
}

#[tokio::test]
async fn an_expired_token_takes_its_cookies_and_tickets_along() {
    let place = tempfile::tempdir().unwrap();
    let server = Server::start(place.path()).await;
    let (stored, token) = StoredToken::generate("me", Role::User, now(), None).unwrap();
    server.hub.store().add_token(stored.clone()).await.unwrap();
    let http = http_client(reqwest::Client::builder());
    let login = |body: String| http.post(format!("{}/login", server.url)).body(body).send();
    let ticket = || async {
        let request = http.post(format!("{}/ticket", server.url)).bearer_auth(&token);
        request.send().await.unwrap().text().await.unwrap()
    };
    let (cookie, late) = (login(ticket().await).await.unwrap(), ticket().await);
    let cookie = cookie.headers()["set-cookie"].to_str().unwrap().split(';').next().unwrap().to_owned();
    // A cookie gets no ticket, and so never outlives its time.
    let renewed = http.post(format!("{}/ticket", server.url)).header("cookie", &cookie).send().await.unwrap();
    assert_eq!(renewed.status(), 401);
    server.hub.store().remove_token("me").await.unwrap();
    let expired = StoredToken { expires_at: Some(Timestamp(now().0 - 1)), ..stored };
    server.hub.store().add_token(expired).await.unwrap();
    let metrics = http.get(format!("{}/metrics", server.url)).header("cookie", &cookie).send().await.unwrap();
    assert_eq!(metrics.status(), 401);
    assert_eq!(login(late).await.unwrap().status(), 401);
}

/// Starts a listener in this test's own time, with a token, and room for some connections.
async fn listen(place: &std::path::Path, max_connections: usize) -> (String, String) {
    let access = AccessOptions { is_loopback: true, ..AccessOptions::default() };
    let (hub, _, router) = Server::build(place, HubOptions::default(), access);
    let (stored, token) = StoredToken::generate("me", Role::User, now(), None).unwrap();
    hub.store().add_token(stored).await.unwrap();
    tokio::spawn(std::sync::Arc::clone(&hub).run());
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap().to_string();
    let listening = ListenerOptions { tls: None, max_connections };
    tokio::spawn(serve(listener, router, listening, std::future::pending()));
    (address, token)
}

/// Reads until a text has come, and returns the end of what was read.
async fn read_until(stream: &mut (impl AsyncRead + Unpin), text: &str) -> String {
    const BLOCK: usize = 64 << 10;
    let (mut read, mut block) = (Vec::new(), vec![0; BLOCK]);
    loop {
        let count = stream.read(&mut block).await.unwrap();
        read.drain(..read.len().saturating_sub(BLOCK));
        read.extend_from_slice(&block[..count]);
        let shown = String::from_utf8_lossy(&read);
        if shown.contains(text) {
            return shown.into_owned();
        }
        assert_ne!(count, 0, "{shown}");
    }
}

#[tokio::test(start_paused = true)]
async fn connections_without_requests_do_not_keep_their_places() {
    let place = tempfile::tempdir().unwrap();
    let (address, _) = listen(place.path(), 3).await;
    let health = format!("GET /health HTTP/1.1\r\nhost: {address}\r\n\r\n");
    // One has sent nothing, one half a request, and one waits after its first.
    let _silent = TcpStream::connect(&address).await.unwrap();
    let mut half = TcpStream::connect(&address).await.unwrap();
    half.write_all(&health.as_bytes()[..20]).await.unwrap();
    let mut idle = TcpStream::connect(&address).await.unwrap();
    idle.write_all(health.as_bytes()).await.unwrap();
    read_until(&mut idle, "ok\n").await;
    let mut next = TcpStream::connect(&address).await.unwrap();
    next.write_all(health.as_bytes()).await.unwrap();
    read_until(&mut next, "ok\n").await;
    let mut rest = Vec::new();
    idle.read_to_end(&mut rest).await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn http_2_without_requests_is_ended() {
    let place = tempfile::tempdir().unwrap();
    let (address, _) = listen(place.path(), 1).await;
    // Its client answers every ping.
    let idle = http_client(reqwest::Client::builder().http2_prior_knowledge().pool_idle_timeout(None));
    let health = format!("http://{address}/health");
    assert_eq!(idle.get(&health).send().await.unwrap().text().await.unwrap(), "ok\n");
    let next = http_client(reqwest::Client::builder().http1_only());
    assert_eq!(next.get(&health).send().await.unwrap().status(), 200);
    drop(next);
    assert_eq!(idle.get(&health).send().await.unwrap().status(), 200, "it connects anew");
}

#[tokio::test(start_paused = true)]
async fn a_body_that_does_not_arrive_is_not_waited_for() {
    let place = tempfile::tempdir().unwrap();
    let (address, token) = listen(place.path(), 1).await;
    let head = format!(
        "POST /acp HTTP/1.1\r\nhost: {address}\r\nauthorization: Bearer {token}\r\n\
         content-type: application/json\r\ncontent-length: 100\r\n\r\n{{"
    );
    let mut stream = TcpStream::connect(&address).await.unwrap();
    stream.write_all(head.as_bytes()).await.unwrap();
    read_until(&mut stream, "HTTP/1.1 408").await;
}

/// The size of a body in chunks is not known from its head.
#[tokio::test]
async fn a_body_in_chunks_has_the_same_limit() {
    let place = tempfile::tempdir().unwrap();
    let server = Server::start(place.path()).await;
    let token = server.token("me", Role::User).await;
    let address = server.url.strip_prefix("http://").unwrap();
    let mut stream = TcpStream::connect(address).await.unwrap();
    let head = format!(
        "POST /acp HTTP/1.1\r\nhost: {address}\r\nauthorization: Bearer {token}\r\n\
         content-type: application/json\r\ntransfer-encoding: chunked\r\n\r\n"
    );
    stream.write_all(head.as_bytes()).await.unwrap();
    let chunk = format!("100000\r\n{}\r\n", " ".repeat(1 << 20));
    let (mut reader, mut writer) = stream.into_split();
    let flood = async {
        // It ends when the server no longer reads.
        while writer.write_all(chunk.as_bytes()).await.is_ok() {}
        std::future::pending::<()>().await;
    };
    let answer = tokio::select! {
        answer = timeout(TEST_TIMEOUT, read_until(&mut reader, "\r\n\r\n")) => answer.unwrap(),
        () = flood => unreachable!(),
    };
    assert!(answer.starts_with("HTTP/1.1 413"), "{answer}");
    // Its client must not send another request on this connection.
    assert!(answer.contains("connection: close"), "{answer}");
}

#[tokio::test]
async fn a_message_that_is_too_large_ends_its_web_socket() {
    let place = tempfile::tempdir().unwrap();
    let server = Server::start(place.path()).await;
    let token = server.token("me", Role::User).await;
    let mut socket = Socket::connect(&server, &token).await;
    socket.request(0, "initialize", json!({ "protocolVersion": 1 })).await;
    socket.until_response(0).await;
    let (text, more) = (OpCode::Data(Data::Text), OpCode::Data(Data::Continue));
    // In parts, of which each is small.
    let block = vec![b' '; 1 << 20];
    let mut sent = socket.0.send(part(text, false, &block)).await;
    for _ in 0..=64 {
        if sent.is_ok() {
            sent = socket.0.send(part(more, false, &block)).await;
        }
    }
    let end = timeout(TEST_TIMEOUT, socket.0.next()).await.unwrap();
    assert!(!matches!(end, Some(Ok(Message::Text(_)))), "{end:?}");
    // Others go on.
    let mut other = Socket::connect(&server, &token).await;
    other.request(0, "initialize", json!({ "protocolVersion": 1 })).await;
    other.until_response(0).await;
}

/// Posts a message over a stream of its own, and returns the head of the answer.
async fn post(address: &str, token: &str, connection: &str, message: &str) -> String {
    let length = message.len();
    let mut stream = TcpStream::connect(address).await.unwrap();
    let head = format!(
        "POST /acp HTTP/1.1\r\nhost: {address}\r\nauthorization: Bearer {token}\r\nconnection: close\r\n\
         content-type: application/json\r\ncontent-length: {length}\r\n{connection}\r\n{message}"
    );
    stream.write_all(head.as_bytes()).await.unwrap();
    read_until(&mut stream, "\r\n\r\n").await
}

/// Connects over raw streams, and returns the header with the id of the connection.
async fn initialize(address: &str, token: &str) -> String {
    let answer = post(address, token, "", INITIALIZE).await;
    let line = answer.lines().find(|line| line.starts_with("acp-connection-id: "));
    format!("{}\r\n", line.unwrap())
}

fn open_stream(address: &str, token: &str, connection: &str) -> String {
    format!(
        "GET /acp HTTP/1.1\r\nhost: {address}\r\nauthorization: Bearer {token}\r\n\
         accept: text/event-stream\r\n{connection}\r\n"
    )
}

/// Clients of other SDKs take the end of this stream for the end of everything.
#[tokio::test(start_paused = true)]
async fn the_stream_of_a_connection_stays_open_without_messages() {
    let place = tempfile::tempdir().unwrap();
    let (address, token) = listen(place.path(), 10).await;
    let connection = initialize(&address, &token).await;
    let start = tokio::time::Instant::now();
    let mut stream = TcpStream::connect(&address).await.unwrap();
    stream.write_all(open_stream(&address, &token, &connection).as_bytes()).await.unwrap();
    for count in 1..=60 {
        read_until(&mut stream, ": keep-alive\n\n").await;
        assert_eq!(start.elapsed().as_secs() / 15, count);
    }
}

#[tokio::test(start_paused = true)]
async fn a_web_socket_keeps_its_place() {
    let place = tempfile::tempdir().unwrap();
    let (address, token) = listen(place.path(), 1).await;
    let stream = TcpStream::connect(&address).await.unwrap();
    let mut socket = Socket::connect_over(stream, &format!("ws://{address}/acp"), &token).await;
    socket.request(0, "initialize", json!({ "protocolVersion": 1 })).await;
    socket.until_response(0).await;
    let mut next = TcpStream::connect(&address).await.unwrap();
    next.write_all(format!("GET /health HTTP/1.1\r\nhost: {address}\r\n\r\n").as_bytes()).await.unwrap();
    let mut answer = [0; 1];
    let early = timeout(Duration::from_secs(15), next.read_exact(&mut answer)).await;
    assert!(early.is_err(), "there is no place for it");
    drop(socket);
    read_until(&mut next, "ok\n").await;
}

#[tokio::test(start_paused = true)]
async fn a_reader_that_stops_loses_its_stream_and_its_session_goes_on() {
    const LARGE: usize = 30 << 20;
    let place = tempfile::tempdir().unwrap();
    let (address, token) = listen(place.path(), 2).await;
    let connection = initialize(&address, &token).await;
    let request = |id: u64, method: &str, params: Value| {
        json!({ "jsonrpc": "2.0", "id": id, "method": method, "params": params }).to_string()
    };
    let prompt = |id: u64, text: &str| {
        let prompt = json!([{ "type": "text", "text": text }]);
        request(id, "session/prompt", json!({ "sessionId": "s1", "prompt": prompt }))
    };
    let new = request(1, "session/new", json!({ "cwd": place.path(), "mcpServers": [] }));
    post(&address, &token, &connection, &new).await;
    let mut own = TcpStream::connect(&address).await.unwrap();
    own.write_all(open_stream(&address, &token, &connection).as_bytes()).await.unwrap();
    read_until(&mut own, "\"s1\"").await;
    drop(own);
    let of_session = format!("{connection}acp-session-id: s1\r\n");
    let mut stopped = TcpStream::connect(&address).await.unwrap();
    stopped.write_all(open_stream(&address, &token, &of_session).as_bytes()).await.unwrap();
    read_until(&mut stopped, "available_commands_update").await;
    post(&address, &token, &connection, &prompt(2, &format!("blob {LARGE}"))).await;
    post(&address, &token, &connection, &prompt(3, "count 1")).await;
    // The next stream reads it all, in the other place.
    let mut next = TcpStream::connect(&address).await.unwrap();
    let after = format!("{of_session}last-event-id: 2\r\n");
    next.write_all(open_stream(&address, &token, &after).as_bytes()).await.unwrap();
    read_until(&mut next, "\"id\":3").await;
    // There is a place for a third once the first is cut off.
    let mut third = TcpStream::connect(&address).await.unwrap();
    third.write_all(format!("GET /health HTTP/1.1\r\nhost: {address}\r\n\r\n").as_bytes()).await.unwrap();
    let start = tokio::time::Instant::now();
    read_until(&mut third, "ok\n").await;
    assert!(start.elapsed() < Duration::from_secs(90), "{:?}", start.elapsed());
    let mut rest = Vec::new();
    stopped.read_to_end(&mut rest).await.ok();
    assert!(rest.len() < LARGE);
}
