//! A WebSocket: one message per text frame. The client sees it as posts and one stream.
//!
//! `initialize` opens the socket and waits for its response; the stream of the connection is the rest of what the
//! server sends. A socket that is gone is an unknown connection, which makes the client connect again.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use bowline_protocol::remote::{CONNECTION_HEADER, MessageHead};
use bytes::Bytes;
use futures_util::stream::{self, SplitSink, SplitStream};
use futures_util::{SinkExt as _, Stream, StreamExt as _};
use reqwest::header::{AUTHORIZATION, HeaderValue, LOCATION, RETRY_AFTER};
use rustls::pki_types::ServerName;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpStream;
use tokio::time::timeout;
use tokio_rustls::TlsConnector;
use tokio_tungstenite::tungstenite::client::IntoClientRequest as _;
use tokio_tungstenite::tungstenite::error::{CapacityError, ProtocolError};
use tokio_tungstenite::tungstenite::protocol::WebSocketConfig;
use tokio_tungstenite::tungstenite::{Error as SocketError, Message};
use tokio_tungstenite::{WebSocketStream, client_async_with_config};

use crate::MAX_MESSAGE_BYTES;
use crate::client::{Delivery, Post, PostOutcome, StreamEnd};
use crate::cookies::SharedCookies;
use crate::driver::RemoteError;
use crate::endpoint::Endpoint;
use crate::refusal::Refusal;
use crate::tls;
use crate::transport::StreamEvent;

/// The deadline for connecting, with TLS and the handshake.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(20);
/// The deadline for the response to `initialize`.
const INITIALIZE_TIMEOUT: Duration = Duration::from_secs(120);
/// The deadline for closing.
const CLOSE_TIMEOUT: Duration = Duration::from_secs(2);
/// The most messages kept that came before the response to `initialize`.
const MAX_EARLY_MESSAGES: usize = 16;
/// How long the connection may be silent before the system checks that the other end still exists, how often it
/// checks, and after how many checks without an answer the connection is dropped.
const KEEP_ALIVE: Duration = Duration::from_secs(30);
const KEEP_ALIVE_INTERVAL: Duration = Duration::from_secs(10);
const KEEP_ALIVE_CHECKS: u32 = 3;

trait ByteStream: AsyncRead + AsyncWrite + Send + Unpin {}
impl<T: AsyncRead + AsyncWrite + Send + Unpin> ByteStream for T {}

type Socket = WebSocketStream<Box<dyn ByteStream>>;

/// A client of one server.
pub(crate) struct WebSocketTransport {
    endpoint: Endpoint,
    token: Option<HeaderValue>,
    tls: Option<Arc<rustls::ClientConfig>>,
    cookies: SharedCookies,
    sink: tokio::sync::Mutex<Option<SplitSink<Socket, Message>>>,
    incoming: Mutex<Option<Incoming>>,
}

/// What the server sends on an open socket.
struct Incoming {
    early: Vec<Bytes>,
    source: SplitStream<Socket>,
}

impl WebSocketTransport {
    pub(crate) fn new(endpoint: Endpoint, token: Option<HeaderValue>) -> Result<Self, RemoteError> {
        // Only HTTP/1.1 can be upgraded.
        let tls = match endpoint.is_encrypted() {
            true => Some(Arc::new(tls::client_config(&["http/1.1"])?)),
            false => None,
        };
        let (cookies, sink, incoming) = Default::default();
        Ok(Self { endpoint, token, tls, cookies, sink, incoming })
    }

    /// Sends a message; a message without a connection opens the socket first, and waits for its answer.
    pub(crate) async fn send(&self, post: Post) -> PostOutcome {
        if post.connection.is_none() {
            return self.initialize(post.body).await;
        }
        let mut sink = self.sink.lock().await;
        let Some(open) = sink.as_mut() else {
            let reason = format!("the connection to {} is closed", self.endpoint);
            return PostOutcome::Lost { reason, delivery: Delivery::Impossible };
        };
        match send_text(open, &post.body).await {
            Ok(()) => PostOutcome::Accepted,
            Err(error) => {
                *sink = None;
                PostOutcome::Lost { reason: self.unreachable(&error), delivery: Delivery::Possible }
            }
        }
    }

    async fn initialize(&self, body: Bytes) -> PostOutcome {
        let connecting = timeout(CONNECT_TIMEOUT, self.connect()).await;
        let no_answer = |limit: Duration| PostOutcome::Lost {
            reason: format!("{} did not answer within {} s", self.endpoint, limit.as_secs()),
            delivery: Delivery::Possible,
        };
        let (socket, connection) = match connecting {
            Ok(Ok(connected)) => connected,
            Ok(Err(outcome)) => return outcome,
            Err(_) => return no_answer(CONNECT_TIMEOUT),
        };
        let (mut sink, mut source) = socket.split();
        let answering = async {
            if let Err(error) = send_text(&mut sink, &body).await {
                return Err(self.unreachable(&error));
            }
            let id = MessageHead::parse(&body).ok().and_then(|head| head.id);
            let mut early = Vec::new();
            loop {
                match next_text(&mut source).await {
                    Ok(Some(message)) => {
                        let head = MessageHead::parse(&message);
                        if head.is_ok_and(|head| head.is_response() && head.id == id) {
                            return Ok((message, early));
                        }
                        if early.len() == MAX_EARLY_MESSAGES {
                            return Err(format!("{} does not answer `initialize`", self.endpoint));
                        }
                        early.push(message);
                    }
                    Ok(None) => return Err(format!("{} closed the connection", self.endpoint)),
                    Err(error) => return Err(self.unreachable(&error)),
                }
            }
        };
        match timeout(INITIALIZE_TIMEOUT, answering).await {
            Ok(Ok((body, early))) => {
                *self.sink.lock().await = Some(sink);
                *self.lock_incoming() = Some(Incoming { early, source });
                PostOutcome::Answered { connection: Some(connection), body }
            }
            Ok(Err(reason)) => PostOutcome::Lost { reason, delivery: Delivery::Possible },
            Err(_) => no_answer(INITIALIZE_TIMEOUT),
        }
    }

    async fn connect(&self) -> Result<(Socket, String), PostOutcome> {
        let url = self.endpoint.url();
        let lost = |reason: String| PostOutcome::Lost { reason, delivery: Delivery::Impossible };
        let host =
            url.host_str().unwrap_or_default().trim_start_matches('[').trim_end_matches(']').to_owned();
        let port = url.port_or_known_default().unwrap_or(80);
        let tcp = TcpStream::connect((host.as_str(), port))
            .await
            .map_err(|error| lost(format!("cannot reach {}: {error}", self.endpoint)))?;
        keep_alive(&tcp);
        let stream: Box<dyn ByteStream> = match &self.tls {
            None => Box::new(tcp),
            Some(config) => {
                let name = ServerName::try_from(host)
                    .map_err(|error| PostOutcome::Unusable(format!("{}: {error}", self.endpoint)))?;
                let connector = TlsConnector::from(Arc::clone(config));
                Box::new(connector.connect(name, tcp).await.map_err(|error| {
                    match tls::describe_certificate_error(&self.endpoint.to_string(), &error.to_string()) {
                        Some(reason) => PostOutcome::Unusable(reason),
                        None => lost(format!("cannot reach {}: {error}", self.endpoint)),
                    }
                })?)
            }
        };
        let mut request = url
            .as_str()
            .into_client_request()
            .map_err(|error| PostOutcome::Unusable(format!("{}: {error}", self.endpoint)))?;
        if let Some(token) = &self.token {
            request.headers_mut().insert(AUTHORIZATION, token.clone());
        }
        self.cookies.add_to(request.headers_mut());
        let limits = WebSocketConfig::default()
            .max_message_size(Some(MAX_MESSAGE_BYTES))
            .max_frame_size(Some(MAX_MESSAGE_BYTES));
        let answer = client_async_with_config(request, stream, Some(limits)).await;
        match &answer {
            Ok((_, response)) => self.cookies.store(response.headers()),
            Err(SocketError::Http(response)) => self.cookies.store(response.headers()),
            Err(_) => {}
        }
        match answer {
            Ok((socket, response)) => {
                let id = response.headers().get(CONNECTION_HEADER).and_then(|id| id.to_str().ok());
                Ok((socket, id.unwrap_or("websocket").to_owned()))
            }
            Err(SocketError::Http(response)) if response.status().is_success() => {
                Err(PostOutcome::Unusable(format!(
                    "{} answers without opening a WebSocket: check the URL, or try http:// or https://",
                    self.endpoint
                )))
            }
            Err(SocketError::Http(response)) => {
                let header =
                    |name| response.headers().get(name).and_then(|value: &HeaderValue| value.to_str().ok());
                let body = response.body().as_deref().unwrap_or_default();
                Err(PostOutcome::Refused(Refusal {
                    status: response.status().as_u16(),
                    retry_after: header(RETRY_AFTER).and_then(|seconds| seconds.trim().parse().ok()),
                    location: header(LOCATION).map(str::to_owned),
                    detail: String::from_utf8_lossy(body).into_owned(),
                }))
            }
            Err(error @ (SocketError::Io(_) | SocketError::ConnectionClosed)) => {
                Err(lost(self.unreachable(&error)))
            }
            Err(SocketError::Protocol(ProtocolError::HandshakeIncomplete)) => {
                Err(lost(format!("{} closed the connection", self.endpoint)))
            }
            Err(error) => Err(PostOutcome::Unusable(format!(
                "{} does not answer as a WebSocket server: {error}",
                self.endpoint
            ))),
        }
    }

    /// Returns what the server sends. A socket can be read once; later, the connection is unknown.
    pub(crate) fn receive(&self) -> impl Stream<Item = StreamEvent> + Send + '_ {
        let unknown = || StreamEvent::End(StreamEnd::Refused(Refusal { status: 404, ..Refusal::default() }));
        let Some(Incoming { early, source }) = self.lock_incoming().take() else {
            return stream::iter([unknown()]).boxed();
        };
        let event = |data| StreamEvent::Event { id: None, data: Some(data) };
        let early = stream::iter(early.into_iter().map(event));
        let later = stream::unfold(Some(source), move |source| async move {
            let mut source = source?;
            let end = match next_text(&mut source).await {
                Ok(Some(message)) => return Some((event(message), Some(source))),
                Ok(None) => StreamEnd::Dropped(format!("{} closed the connection", self.endpoint)),
                Err(error @ SocketError::Capacity(CapacityError::MessageTooLong { .. })) => {
                    StreamEnd::Unusable(format!("{}: {error}", self.endpoint))
                }
                Err(error) => StreamEnd::Dropped(self.unreachable(&error)),
            };
            *self.sink.lock().await = None;
            Some((StreamEvent::End(end), None))
        });
        stream::iter([StreamEvent::Open]).chain(early).chain(later).boxed()
    }

    pub(crate) async fn close(&self) {
        if let Some(mut sink) = self.sink.lock().await.take() {
            // The server learns of the end in any case, because the socket is dropped.
            timeout(CLOSE_TIMEOUT, sink.close()).await.ok();
        }
    }

    fn lock_incoming(&self) -> std::sync::MutexGuard<'_, Option<Incoming>> {
        self.incoming.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn unreachable(&self, error: &SocketError) -> String {
        format!("the connection to {} failed: {error}", self.endpoint)
    }
}

async fn send_text(sink: &mut SplitSink<Socket, Message>, body: &Bytes) -> Result<(), SocketError> {
    // The message was parsed as JSON, so it is UTF-8.
    let text = body.clone().try_into().map_err(|_| SocketError::Utf8("a message is not UTF-8".to_owned()))?;
    sink.send(Message::Text(text)).await
}

/// Returns the next message; `None` at the end. Binary frames are not part of the protocol.
async fn next_text(source: &mut SplitStream<Socket>) -> Result<Option<Bytes>, SocketError> {
    loop {
        match source.next().await {
            Some(Ok(Message::Text(text))) => return Ok(Some(text.into())),
            Some(Ok(Message::Close(_))) | None => return Ok(None),
            Some(Ok(Message::Binary(_) | Message::Ping(_) | Message::Pong(_) | Message::Frame(_))) => {}
            Some(Err(error)) => return Err(error),
        }
    }
}

/// Lets the system notice a server that is gone. Without it, only the next message would.
fn keep_alive(tcp: &TcpStream) {
    use rustix::net::sockopt;
    tcp.set_nodelay(true).ok();
    sockopt::set_socket_keepalive(tcp, true).ok();
    sockopt::set_tcp_keepidle(tcp, KEEP_ALIVE).ok();
    sockopt::set_tcp_keepintvl(tcp, KEEP_ALIVE_INTERVAL).ok();
    sockopt::set_tcp_keepcnt(tcp, KEEP_ALIVE_CHECKS).ok();
}

#[cfg(test)]
mod tests {
    use super::*;
    use tokio::net::TcpListener;
    use tokio_tungstenite::accept_hdr_async;
    use tokio_tungstenite::tungstenite::handshake::server::{Request, Response};

    /// Accepts a client, sets a cookie and answers its first message. Returns the cookies that it sent.
    async fn serve_client(listener: &TcpListener, number: u32) -> String {
        let (stream, _) = listener.accept().await.unwrap();
        let mut sent = String::new();
        #[expect(clippy::result_large_err, reason = "the library's signature")]
        let shake = |request: &Request, mut response: Response| {
            let cookies = request.headers().get("cookie").map_or("", |value| value.to_str().unwrap());
            cookies.clone_into(&mut sent);
            let cookie = HeaderValue::try_from(format!("route={number}; Path=/")).unwrap();
            response.headers_mut().insert("set-cookie", cookie);
            Ok(response)
        };
        let mut socket = accept_hdr_async(stream, shake).await.unwrap();
        socket.next().await.unwrap().unwrap();
        socket.send(Message::text(r#"{"id":0,"result":{}}"#)).await.unwrap();
        sent
    }

    #[tokio::test]
    async fn a_websocket_keeps_the_cookies_of_the_server() {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let url = format!("ws://{}/acp", listener.local_addr().unwrap());
        let transport = WebSocketTransport::new(Endpoint::parse(&url).unwrap(), None).unwrap();
        let mut sent = Vec::new();
        for number in 0..3 {
            let body = Bytes::from_static(br#"{"id":0,"method":"initialize"}"#);
            let post = Post { connection: None, session: None, body };
            let (cookies, outcome) = tokio::join!(serve_client(&listener, number), transport.send(post));
            assert!(matches!(outcome, PostOutcome::Answered { .. }), "{outcome:?}");
            sent.push(cookies);
        }
        assert_eq!(sent, ["", "route=0", "route=1"]);
    }
}
