//! Serving clients over streamable HTTP.
//!
//! A page in the user's browser can reach this machine's ports, by names that lead here too. So a request has to name a
//! host that is ours, must not come from a page, and has to carry the secret; what does not is not looked at further.

use std::convert::Infallible;
use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use http::header::{AUTHORIZATION, CONTENT_LENGTH, CONTENT_TYPE, HOST, ORIGIN, WWW_AUTHENTICATE};
use http::{HeaderMap, HeaderValue, Method, Request, Response, StatusCode};
use http_body_util::combinators::BoxBody;
use http_body_util::{BodyExt, Full, LengthLimitError, Limited};
use hyper::body::{Bytes, Incoming};
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::{TokioIo, TokioTimer};
use rmcp::model::ServerJsonRpcMessage;
use rmcp::transport::streamable_http_server::session::SessionManager as _;
use rmcp::transport::streamable_http_server::session::local::{LocalSessionManager, SessionConfig};
use rmcp::transport::streamable_http_server::{StreamableHttpServerConfig, StreamableHttpService};
use rmcp::{ErrorData, ServerHandler};
use serde::Serialize;
use serde_json::Value;
use tokio::net::{TcpListener, TcpStream};
use tokio::task::{JoinHandle, JoinSet};
use tokio::time::{sleep, timeout};
use tokio_util::sync::{CancellationToken, DropGuard};

use super::connections::{Admission, Connections, RequestGuard};
use super::events::{WithoutData, without_empty_data};
use super::handler::{Handler, Live};
use super::visits::{Opening, Stay, Visits};
use super::{Place, Server, batches, unreadable};

/// Where the server is.
const PATH: &str = "/mcp";

/// So many connections are open at once. Another takes the place of an idle one, or waits if none is idle.
const MAX_CONNECTIONS: usize = 128;

/// So many sessions are open at once. For another the one ends that nobody has used for longest; it is refused if all are in
/// use.
const MAX_SESSIONS: usize = 32;

/// One message has at most so many bytes.
const MAX_BODY: usize = 32 << 20;

/// The head of a request has at most so many bytes.
const MAX_HEAD: usize = 64 << 10;

/// How long the head of a request may take, and the whole until its answer begins.
const HEAD_TIME: Duration = Duration::from_secs(10);
const REQUEST_TIME: Duration = Duration::from_secs(60);

/// How often whoever waits for an answer is shown that there is somebody.
const KEEP_ALIVE: Duration = Duration::from_secs(15);

/// How long a call goes on whose answer nobody listens for, so that a client can come back for it.
const COME_BACK: Duration = Duration::from_secs(10);

/// The header that names a session, and the kind of every message.
const SESSION: &str = "mcp-session-id";
const JSON: &[u8] = b"application/json";

/// How clients are served.
#[derive(Debug, Clone)]
pub struct HttpSettings {
    /// The secret that every request has to carry.
    pub token: String,
    /// Names by which the server may be called beside those of this machine's loopback.
    pub hosts: Vec<String>,
    /// A session that nothing is heard of for so long ends.
    pub idle: Duration,
}

/// A server that listens. If it is dropped, it goes on until the runtime ends.
#[derive(Debug)]
pub struct HttpServer {
    address: SocketAddr,
    end: CancellationToken,
    serving: JoinHandle<()>,
}

impl HttpServer {
    /// Serves whoever connects to a listener.
    ///
    /// # Errors
    /// Fails if the listener has no address.
    pub fn start<P: Place>(
        server: Server<P>,
        listener: TcpListener,
        settings: HttpSettings,
    ) -> io::Result<Self> {
        let live = Arc::new(Live::default());
        let its = live.clone();
        let handler = move || Handler::new(server.clone(), its.clone(), CancellationToken::new());
        Self::listen(handler, listener, settings, async move { live.close_all().await })
    }

    /// Serves another handler over the same transport: `handler` makes one for each session.
    ///
    /// # Errors
    /// Fails if the listener has no address.
    pub fn start_with<H: ServerHandler>(
        handler: impl Fn() -> H + Send + Sync + 'static,
        listener: TcpListener,
        settings: HttpSettings,
    ) -> io::Result<Self> {
        Self::listen(handler, listener, settings, std::future::ready(()))
    }

    /// Serves a handler for each session; `close` ends what the sessions leave behind.
    fn listen<H: ServerHandler>(
        handler: impl Fn() -> H + Send + Sync + 'static,
        listener: TcpListener,
        settings: HttpSettings,
        close: impl Future<Output = ()> + Send + 'static,
    ) -> io::Result<Self> {
        let address = listener.local_addr()?;
        let end = CancellationToken::new();
        let mut sessions = LocalSessionManager::default();
        sessions.session_config = SessionConfig::default();
        sessions.session_config.keep_alive = Some(settings.idle);
        let hosts = allowed_hosts(address, &settings.hosts);
        let config = StreamableHttpServerConfig::default()
            .with_allowed_hosts(hosts.clone())
            .with_allowed_origins(hosts.iter().map(|host| format!("http://{host}")))
            .enforce_origin_validation()
            .with_sse_keep_alive(Some(KEEP_ALIVE))
            .with_cancellation_token(end.child_token())
            .with_max_request_body_bytes(MAX_BODY);
        let sessions = Arc::new(sessions);
        let front = Arc::new(Front {
            service: StreamableHttpService::new(move || Ok(handler()), sessions.clone(), config),
            sessions,
            visits: Visits::new(MAX_SESSIONS),
            token: settings.token,
            hosts,
            resumed: Arc::default(),
        });
        let stop = end.clone();
        let serving = tokio::spawn(async move {
            accept(front, listener, &stop).await;
            close.await;
        });
        Ok(Self { address, end, serving })
    }

    /// Returns where it listens.
    #[must_use]
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Returns what a client connects to.
    #[must_use]
    pub fn url(&self) -> String {
        format!("http://{}{PATH}", self.address)
    }

    /// Ends it, and returns when nothing that was started for a client runs.
    pub async fn stop(self) {
        self.end.cancel();
        // A task that ended early has nothing left to end.
        self.serving.await.unwrap_or_default();
    }
}

async fn accept<H: ServerHandler>(front: Arc<Front<H>>, listener: TcpListener, stop: &CancellationToken) {
    let connections = Connections::new(MAX_CONNECTIONS);
    let mut tasks = JoinSet::new();
    loop {
        let accepted = tokio::select! {
            () = stop.cancelled() => break,
            Some(_) = tasks.join_next(), if !tasks.is_empty() => continue,
            accepted = async {
                connections.wait_for_room().await;
                listener.accept().await
            } => accepted,
        };
        match accepted {
            Ok((stream, _)) => {
                if let Some(admission) = connections.admit() {
                    tasks.spawn(converse(front.clone(), stream, Arc::new(admission)));
                }
            }
            // No more descriptors, for one: an idle connection gives one back.
            Err(_) => {
                connections.close_one();
                sleep(Duration::from_millis(100)).await;
            }
        }
    }
    // With them the streams of all answers end.
    tasks.shutdown().await;
}

async fn converse<H: ServerHandler>(front: Arc<Front<H>>, stream: TcpStream, admission: Arc<Admission>) {
    let its = admission.clone();
    let answer = service_fn(move |request| {
        let (front, admission) = (front.clone(), its.clone());
        async move { Ok::<_, Infallible>(front.answer(request, &admission).await) }
    });
    let connection = http1::Builder::new()
        .timer(TokioTimer::new())
        .header_read_timeout(HEAD_TIME)
        .max_buf_size(MAX_HEAD)
        .serve_connection(TokioIo::new(stream), answer);
    tokio::select! {
        () = admission.wait_until_closed() => {}
        // A connection that breaks off concerns its client alone.
        _ = connection => {}
    }
}

type Answer = Response<BoxBody<Bytes, Infallible>>;

/// What stands before the protocol.
struct Front<H: ServerHandler> {
    service: StreamableHttpService<H, LocalSessionManager>,
    sessions: Arc<LocalSessionManager>,
    visits: Arc<Visits>,
    token: String,
    hosts: Vec<String>,
    resumed: Arc<AtomicU64>,
}

/// Whether somebody listens for the answer of a request.
#[derive(Debug, Clone)]
pub(crate) struct Lifeline {
    gone: CancellationToken,
    // How often somebody came back for an answer.
    resumed: Arc<AtomicU64>,
}

impl Lifeline {
    /// Waits until nobody has listened for a while. Where somebody came back meanwhile, for whatever answer, it is never.
    pub(crate) async fn cut(&self) {
        self.gone.cancelled().await;
        let before = self.resumed.load(Ordering::Relaxed);
        sleep(COME_BACK).await;
        if self.resumed.load(Ordering::Relaxed) != before {
            std::future::pending::<()>().await;
        }
    }
}

impl<H: ServerHandler> Front<H> {
    async fn answer(&self, mut request: Request<Incoming>, admission: &Arc<Admission>) -> Answer {
        if let Some(refusal) = refusal(request.headers(), request.uri().path(), &self.hosts, &self.token) {
            return refusal.answer();
        }
        let under_way = admission.begin_request();
        if request.headers().contains_key("last-event-id") {
            self.resumed.fetch_add(1, Ordering::Relaxed);
        }
        let gone = CancellationToken::new();
        let guard = gone.clone().drop_guard();
        request.extensions_mut().insert(Lifeline { gone, resumed: self.resumed.clone() });
        let stay = session_of(request.headers()).map(|id| self.visits.enter(&id));
        match timeout(REQUEST_TIME, self.handle(request)).await {
            Ok(response) => response.map(|body| held(body, (guard, stay, under_way))),
            Err(_) => Refusal::TooSlow.answer(),
        }
    }

    /// Gives a request to the protocol. What it cannot read, or what comes before a session, is answered here: a client
    /// should learn what is wrong with its message, and not with its headers.
    async fn handle(&self, request: Request<Incoming>) -> Answer {
        let (parts, body) = request.into_parts();
        let body = match Limited::new(body, MAX_BODY).collect().await {
            Ok(body) => body.to_bytes(),
            Err(error) if error.is::<LengthLimitError>() => return Refusal::TooLarge.answer(),
            // The connection broke off.
            Err(_) => return Refusal::TooSlow.answer(),
        };
        let session = session_of(&parts.headers);
        let first: Option<Value> = (parts.method == Method::POST && session.is_none())
            .then(|| serde_json::from_slice(&body).unwrap_or_default());
        let hello = first.as_ref().filter(|message| message["method"] == "initialize");
        let opening = match hello {
            Some(_) => match self.room().await {
                Some(opening) => Some(opening),
                None => return Refusal::TooMany.answer(),
            },
            None => None,
        };
        let wanted = hello.and_then(|hello| hello["params"]["protocolVersion"].as_str());
        let mut events = wanted.map(WithoutData::of).unwrap_or_default();
        if let Some(id) = session {
            events = self.visits.events(&id);
            if !self.sessions.has_session(&id.as_str().into()).await.unwrap_or_default() {
                self.visits.ended(&id);
                return Refusal::Session.answer();
            }
            if parts.method == Method::DELETE {
                self.visits.ended(&id);
            }
        }
        let is_json = parts.headers.get(CONTENT_TYPE).is_some_and(|kind| kind.as_bytes().starts_with(JSON));
        let is_delete = parts.method == Method::DELETE;
        let mut response = self.service.handle(Request::from_parts(parts, Full::new(body.clone()))).await;
        if is_delete && response.status() == StatusCode::ACCEPTED {
            // It is done by now, and some clients warn of any other success.
            *response.status_mut() = StatusCode::NO_CONTENT;
        }
        if let (Some(opening), Some(id)) = (opening, session_of(response.headers())) {
            opening.opened(&id, events);
        }
        match (response.status(), first) {
            (StatusCode::UNSUPPORTED_MEDIA_TYPE, _) if is_json => unread(&body),
            (StatusCode::BAD_REQUEST | StatusCode::UNPROCESSABLE_ENTITY, Some(message)) => {
                let method = message["method"].as_str().unwrap_or_default();
                said(Some(unreadable::too_early(method, unreadable::id_of(&message["id"]))))
            }
            _ if events == WithoutData::Allowed => response,
            _ => response.map(|body| body.map_frame(|frame| frame.map_data(without_empty_data)).boxed()),
        }
    }

    /// Makes room for a session, if there is any to be made.
    async fn room(&self) -> Option<Opening> {
        let (opening, ends) = self.visits.open()?;
        if let Some(ends) = ends {
            // One that cannot be ended, or has by itself, is nobody's any more.
            self.sessions.close_session(&ends.into()).await.ok();
        }
        Some(opening)
    }
}

/// Returns which session headers name.
fn session_of(headers: &HeaderMap) -> Option<String> {
    headers.get(SESSION).and_then(|value| value.to_str().ok()).map(str::to_owned)
}

/// Answers what cannot be read: each request of a batch by itself, in one array.
fn unread(body: &[u8]) -> Answer {
    let parts = batches::parts(body.trim_ascii()).unwrap_or_default();
    let answers: Vec<ServerJsonRpcMessage> = parts.iter().filter_map(|part| batches::refused(part)).collect();
    if answers.is_empty() { said(unreadable::answer(body)) } else { bad_request(&answers) }
}

/// Returns an answer of the protocol to what is none of its messages; what is no JSON at all is told so.
fn said(answer: Option<ServerJsonRpcMessage>) -> Answer {
    bad_request(&answer.unwrap_or_else(|| {
        ServerJsonRpcMessage::error(
            ErrorData::parse_error("the message is no JSON that can be used", None),
            None,
        )
    }))
}

fn bad_request(answer: &impl Serialize) -> Answer {
    let body = serde_json::to_vec(answer).unwrap_or_default();
    let mut response = Response::new(Full::new(Bytes::from(body)).boxed());
    *response.status_mut() = StatusCode::BAD_REQUEST;
    response.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
    response
}

/// Returns a body that lets go of what is held for it when it is dropped.
fn held(
    body: BoxBody<Bytes, Infallible>,
    holds: (DropGuard, Option<Stay>, RequestGuard),
) -> BoxBody<Bytes, Infallible> {
    body.map_frame(move |frame| {
        let _held = &holds;
        frame
    })
    .boxed()
}

/// Why a request is not looked at.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Refusal {
    Host,
    Page,
    Token,
    Path,
    Session,
    TooLarge,
    TooMany,
    TooSlow,
}

impl Refusal {
    fn answer(self) -> Answer {
        let (status, text) = match self {
            Self::Host => (StatusCode::FORBIDDEN, "this server is not called by that name: use 127.0.0.1"),
            Self::Page => (StatusCode::FORBIDDEN, "pages of a browser are not served"),
            Self::Token => (
                StatusCode::UNAUTHORIZED,
                "send `Authorization: Bearer TOKEN` with the token that the server printed when it started",
            ),
            Self::Path => (StatusCode::NOT_FOUND, "the server is at /mcp"),
            Self::Session => {
                (StatusCode::NOT_FOUND, "there is no such session: send initialize for a new one")
            }
            Self::TooLarge => (StatusCode::PAYLOAD_TOO_LARGE, "the message is too long"),
            Self::TooMany => (StatusCode::SERVICE_UNAVAILABLE, "too many sessions are in use: end one first"),
            Self::TooSlow => (StatusCode::REQUEST_TIMEOUT, "the request took too long"),
        };
        let mut response = Response::new(Full::new(Bytes::from_static(text.as_bytes())).boxed());
        *response.status_mut() = status;
        response.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static("text/plain; charset=utf-8"));
        if self == Self::Token {
            response.headers_mut().insert(WWW_AUTHENTICATE, HeaderValue::from_static("Bearer"));
        }
        response
    }
}

/// Returns why a request is refused by its head, if it is.
fn refusal(headers: &HeaderMap, path: &str, hosts: &[String], token: &str) -> Option<Refusal> {
    let text = |name| headers.get(name).and_then(|value: &HeaderValue| value.to_str().ok());
    let is_ours = text(HOST).is_some_and(|host| hosts.iter().any(|ours| ours.eq_ignore_ascii_case(host)));
    // Nobody but us answers there, so it is no page of somebody else's.
    let is_own_origin = |origin: &str| {
        origin
            .strip_prefix("http://")
            .is_some_and(|host| hosts.iter().any(|ours| ours.eq_ignore_ascii_case(host)))
    };
    let bearer = text(AUTHORIZATION).and_then(|value| {
        let (scheme, secret) = value.split_once(' ')?;
        scheme.eq_ignore_ascii_case("bearer").then_some(secret.trim())
    });
    if !is_ours {
        Some(Refusal::Host)
    } else if headers.contains_key(ORIGIN) && !text(ORIGIN).is_some_and(is_own_origin) {
        Some(Refusal::Page)
    } else if !bearer.is_some_and(|secret| is_same(secret.as_bytes(), token.as_bytes())) {
        Some(Refusal::Token)
    } else if path != PATH {
        Some(Refusal::Path)
    } else if text(CONTENT_LENGTH)
        .is_some_and(|length| length.parse().is_ok_and(|length: u64| length > MAX_BODY as u64))
    {
        Some(Refusal::TooLarge)
    } else {
        None
    }
}

/// Compares in a time that does not tell where the difference is.
fn is_same(one: &[u8], other: &[u8]) -> bool {
    one.len() == other.len() && one.iter().zip(other).fold(0, |all, (one, other)| all | (one ^ other)) == 0
}

/// Returns by which names the server may be called: with its port, as clients that were given its address do.
fn allowed_hosts(address: SocketAddr, more: &[String]) -> Vec<String> {
    let port = address.port();
    let loopback = ["127.0.0.1", "localhost", "[::1]"].map(str::to_owned);
    let own = address.to_string();
    let named = loopback.into_iter().chain(more.iter().cloned()).map(|host| format!("{host}:{port}"));
    named.chain([own]).collect()
}

#[cfg(test)]
mod tests;
