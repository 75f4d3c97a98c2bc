//! The streamable HTTP server.
//!
//! A page in the user's browser can reach this machine's ports, even under foreign names that resolve to it. A request
//! must therefore name one of our hosts, must not come from a page, and must carry the secret; any other request is
//! refused by its head alone.

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

use super::connections::{ConnectionPermit, Connections, RequestGuard};
use super::events::{EmptyEventSupport, strip_empty_data};
use super::handler::{OpenMcpSessions, SessionHandler};
use super::http_sessions::{HttpSessions, SessionReservation, SessionUseGuard};
use super::{McpWorkspaceServer, batches, invalid_message};

/// The path of the server.
const PATH: &str = "/mcp";

/// The most open connections. A further one replaces an idle one, or waits if none is idle.
const MAX_CONNECTIONS: usize = 128;

/// The most open sessions. A further one replaces the session that has been idle for longest, or is refused if all are
/// in use.
const MAX_SESSIONS: usize = 32;

/// The longest message, in bytes.
const MAX_BODY: usize = 32 << 20;

/// The longest request head, in bytes.
const MAX_HEAD: usize = 64 << 10;

/// The deadlines for reading the head of a request, and for beginning its response.
const HEAD_TIMEOUT: Duration = Duration::from_secs(10);
const REQUEST_TIMEOUT: Duration = Duration::from_secs(60);

/// The interval between keep-alive events on a stream.
const KEEP_ALIVE_INTERVAL: Duration = Duration::from_secs(15);

/// How long a call continues after its client disconnected, so that the client can resume the stream.
const RESUME_GRACE: Duration = Duration::from_secs(10);

/// The header that names a session, and the content type of every message.
const SESSION_HEADER: &str = "mcp-session-id";
const JSON_TYPE: &[u8] = b"application/json";

/// The options of the HTTP server.
#[derive(Debug, Clone)]
pub struct HttpServerOptions {
    /// The secret that every request must carry.
    pub token: String,
    /// Host names that the server answers to in addition to those of the loopback interface.
    pub hosts: Vec<String>,
    /// A session ends after being idle for this long.
    pub idle_timeout: Duration,
}

/// A listening server. If it is dropped, it continues until the runtime ends.
#[derive(Debug)]
pub struct HttpServer {
    address: SocketAddr,
    shutdown: CancellationToken,
    task: JoinHandle<()>,
}

impl HttpServer {
    /// Serves the clients that connect to a listener.
    ///
    /// # Errors
    /// Fails if the listener has no address.
    pub fn start(
        server: McpWorkspaceServer,
        listener: TcpListener,
        settings: HttpServerOptions,
    ) -> io::Result<Self> {
        let sessions = Arc::new(OpenMcpSessions::default());
        let handler_sessions = sessions.clone();
        let handler =
            move || SessionHandler::new(server.clone(), handler_sessions.clone(), CancellationToken::new());
        Self::listen(handler, listener, settings, async move { sessions.close_all().await })
    }

    /// Serves another handler over the same transport: `handler` creates one for each session.
    ///
    /// # Errors
    /// Fails if the listener has no address.
    pub fn start_with<H: ServerHandler>(
        handler: impl Fn() -> H + Send + Sync + 'static,
        listener: TcpListener,
        settings: HttpServerOptions,
    ) -> io::Result<Self> {
        Self::listen(handler, listener, settings, std::future::ready(()))
    }

    /// Serves a handler for each session; `close` cleans up after the sessions.
    fn listen<H: ServerHandler>(
        handler: impl Fn() -> H + Send + Sync + 'static,
        listener: TcpListener,
        settings: HttpServerOptions,
        close: impl Future<Output = ()> + Send + 'static,
    ) -> io::Result<Self> {
        let address = listener.local_addr()?;
        let end = CancellationToken::new();
        let mut sessions = LocalSessionManager::default();
        sessions.session_config = SessionConfig::default();
        sessions.session_config.keep_alive = Some(settings.idle_timeout);
        let hosts = allowed_hosts(address, &settings.hosts);
        let config = StreamableHttpServerConfig::default()
            .with_allowed_hosts(hosts.clone())
            .with_allowed_origins(hosts.iter().map(|host| format!("http://{host}")))
            .enforce_origin_validation()
            .with_sse_keep_alive(Some(KEEP_ALIVE_INTERVAL))
            .with_cancellation_token(end.child_token())
            .with_max_request_body_bytes(MAX_BODY);
        let sessions = Arc::new(sessions);
        let service = Arc::new(HttpService {
            service: StreamableHttpService::new(move || Ok(handler()), sessions.clone(), config),
            sessions,
            session_table: HttpSessions::new(MAX_SESSIONS),
            token: settings.token,
            hosts,
            resume_count: Arc::default(),
        });
        let stop = end.clone();
        let task = bowline_task::spawn(async move {
            accept_connections(service, listener, &stop).await;
            close.await;
        });
        Ok(Self { address, shutdown: end, task })
    }

    /// Returns the address it listens on.
    #[must_use]
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Returns the URL that clients connect to.
    #[must_use]
    pub fn url(&self) -> String {
        format!("http://{}{PATH}", self.address)
    }

    /// Stops the server, and returns when everything that was started for clients has ended.
    pub async fn stop(self) {
        self.shutdown.cancel();
        // A task that panicked has nothing left to end.
        self.task.await.unwrap_or_default();
    }
}

async fn accept_connections<H: ServerHandler>(
    service: Arc<HttpService<H>>,
    listener: TcpListener,
    stop: &CancellationToken,
) {
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
                    tasks.spawn(serve_connection(service.clone(), stream, Arc::new(admission)));
                }
            }
            // The process may be out of descriptors, for example: closing an idle connection frees one.
            Err(_) => {
                connections.close_idle_connection();
                sleep(Duration::from_millis(100)).await;
            }
        }
    }
    // This ends all response streams.
    tasks.shutdown().await;
}

async fn serve_connection<H: ServerHandler>(
    service: Arc<HttpService<H>>,
    stream: TcpStream,
    admission: Arc<ConnectionPermit>,
) {
    let request_admission = admission.clone();
    let answer = service_fn(move |request| {
        let (service, admission) = (service.clone(), request_admission.clone());
        async move { Ok::<_, Infallible>(service.respond(request, &admission).await) }
    });
    let connection = http1::Builder::new()
        .timer(TokioTimer::new())
        .header_read_timeout(HEAD_TIMEOUT)
        .max_buf_size(MAX_HEAD)
        .serve_connection(TokioIo::new(stream), answer);
    tokio::select! {
        () = admission.wait_until_closed() => {}
        // A broken connection concerns its client alone.
        _ = connection => {}
    }
}

type HttpResponse = Response<BoxBody<Bytes, Infallible>>;

/// The checks and session limits in front of the SDK's service.
struct HttpService<H: ServerHandler> {
    service: StreamableHttpService<H, LocalSessionManager>,
    sessions: Arc<LocalSessionManager>,
    session_table: Arc<HttpSessions>,
    token: String,
    hosts: Vec<String>,
    resume_count: Arc<AtomicU64>,
}

/// Whether the client of a request is still connected.
#[derive(Debug, Clone)]
pub(crate) struct ClientPresence {
    disconnected: CancellationToken,
    // How often a client has resumed a stream.
    resume_count: Arc<AtomicU64>,
}

impl ClientPresence {
    /// Waits until the client has been disconnected for a while. Never returns if any stream was resumed meanwhile.
    pub(crate) async fn wait_until_gone(&self) {
        self.disconnected.cancelled().await;
        let before = self.resume_count.load(Ordering::Relaxed);
        sleep(RESUME_GRACE).await;
        if self.resume_count.load(Ordering::Relaxed) != before {
            std::future::pending::<()>().await;
        }
    }
}

impl<H: ServerHandler> HttpService<H> {
    async fn respond(
        &self,
        mut request: Request<Incoming>,
        admission: &Arc<ConnectionPermit>,
    ) -> HttpResponse {
        if let Some(refusal) = check_head(request.headers(), request.uri().path(), &self.hosts, &self.token) {
            return refusal.into_response();
        }
        let request_guard = admission.begin_request();
        if request.headers().contains_key("last-event-id") {
            self.resume_count.fetch_add(1, Ordering::Relaxed);
        }
        let disconnected = CancellationToken::new();
        let guard = disconnected.clone().drop_guard();
        request
            .extensions_mut()
            .insert(ClientPresence { disconnected, resume_count: self.resume_count.clone() });
        let session_use = session_header(request.headers()).map(|id| self.session_table.begin_use(&id));
        match timeout(REQUEST_TIMEOUT, self.handle(request)).await {
            Ok(response) => response.map(|body| attach_guards(body, (guard, session_use, request_guard))),
            Err(_) => HttpRefusal::TooSlow.into_response(),
        }
    }

    /// Passes a request to the SDK's service. Unreadable messages and messages outside a session are answered here, so
    /// that the client learns what is wrong with its message rather than with its headers.
    async fn handle(&self, request: Request<Incoming>) -> HttpResponse {
        let (parts, body) = request.into_parts();
        let body = match Limited::new(body, MAX_BODY).collect().await {
            Ok(body) => body.to_bytes(),
            Err(error) if error.is::<LengthLimitError>() => return HttpRefusal::TooLarge.into_response(),
            // The connection broke.
            Err(_) => return HttpRefusal::TooSlow.into_response(),
        };
        let session = session_header(&parts.headers);
        let first: Option<Value> = (parts.method == Method::POST && session.is_none())
            .then(|| serde_json::from_slice(&body).unwrap_or_default());
        let initialize = first.as_ref().filter(|message| message["method"] == "initialize");
        let reservation = match initialize {
            Some(_) => match self.reserve_session().await {
                Some(reservation) => Some(reservation),
                None => return HttpRefusal::TooManySessions.into_response(),
            },
            None => None,
        };
        let revision = initialize.and_then(|initialize| initialize["params"]["protocolVersion"].as_str());
        let mut events = revision.map(EmptyEventSupport::from_revision).unwrap_or_default();
        if let Some(id) = session {
            events = self.session_table.empty_event_support(&id);
            if !self.sessions.has_session(&id.as_str().into()).await.unwrap_or_default() {
                self.session_table.remove(&id);
                return HttpRefusal::UnknownSession.into_response();
            }
            if parts.method == Method::DELETE {
                self.session_table.remove(&id);
            }
        }
        let is_json =
            parts.headers.get(CONTENT_TYPE).is_some_and(|kind| kind.as_bytes().starts_with(JSON_TYPE));
        let is_delete = parts.method == Method::DELETE;
        let mut response = self.service.handle(Request::from_parts(parts, Full::new(body.clone()))).await;
        if is_delete && response.status() == StatusCode::ACCEPTED {
            // The session has ended by now, and some clients warn about any other success status.
            *response.status_mut() = StatusCode::NO_CONTENT;
        }
        if let (Some(reservation), Some(id)) = (reservation, session_header(response.headers())) {
            reservation.commit(&id, events);
        }
        match (response.status(), first) {
            (StatusCode::UNSUPPORTED_MEDIA_TYPE, _) if is_json => answer_unreadable(&body),
            (StatusCode::BAD_REQUEST | StatusCode::UNPROCESSABLE_ENTITY, Some(message)) => {
                let method = message["method"].as_str().unwrap_or_default();
                protocol_error_response(Some(invalid_message::not_initialized_error(
                    method,
                    invalid_message::parse_id(&message["id"]),
                )))
            }
            _ if events == EmptyEventSupport::Supported => response,
            _ => response.map(|body| body.map_frame(|frame| frame.map_data(strip_empty_data)).boxed()),
        }
    }

    /// Reserves room for a session, if possible.
    async fn reserve_session(&self) -> Option<SessionReservation> {
        let (reservation, evicted) = self.session_table.reserve()?;
        if let Some(evicted) = evicted {
            // A session that cannot be closed, or has already ended, needs no further handling.
            self.sessions.close_session(&evicted.into()).await.ok();
        }
        Some(reservation)
    }
}

/// Returns the session id in the headers.
fn session_header(headers: &HeaderMap) -> Option<String> {
    headers.get(SESSION_HEADER).and_then(|value| value.to_str().ok()).map(str::to_owned)
}

/// Answers an unreadable message: each request of a batch individually, in one array.
fn answer_unreadable(body: &[u8]) -> HttpResponse {
    let parts = batches::split_batch(body.trim_ascii()).unwrap_or_default();
    let answers: Vec<ServerJsonRpcMessage> =
        parts.iter().filter_map(|part| batches::refuse_part(part)).collect();
    if answers.is_empty() {
        protocol_error_response(invalid_message::answer_invalid(body))
    } else {
        bad_request(&answers)
    }
}

/// Returns the response for an invalid message; without an answer, the message was not JSON and gets a parse error.
fn protocol_error_response(answer: Option<ServerJsonRpcMessage>) -> HttpResponse {
    bad_request(&answer.unwrap_or_else(|| {
        ServerJsonRpcMessage::error(
            ErrorData::parse_error("the message is no JSON that can be used", None),
            None,
        )
    }))
}

fn bad_request(answer: &impl Serialize) -> HttpResponse {
    let body = serde_json::to_vec(answer).unwrap_or_default();
    let mut response = Response::new(Full::new(Bytes::from(body)).boxed());
    *response.status_mut() = StatusCode::BAD_REQUEST;
    response.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
    response
}

/// Returns a body that holds guards until it is dropped.
fn attach_guards(
    body: BoxBody<Bytes, Infallible>,
    guards: (DropGuard, Option<SessionUseGuard>, RequestGuard),
) -> BoxBody<Bytes, Infallible> {
    body.map_frame(move |frame| {
        let _guards = &guards;
        frame
    })
    .boxed()
}

/// Why a request is refused before the SDK handles it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum HttpRefusal {
    UnknownHost,
    BrowserPage,
    WrongToken,
    UnknownPath,
    UnknownSession,
    TooLarge,
    TooManySessions,
    TooSlow,
}

impl HttpRefusal {
    fn into_response(self) -> HttpResponse {
        let (status, text) = match self {
            Self::UnknownHost => {
                (StatusCode::FORBIDDEN, "this server is not called by that name: use 127.0.0.1")
            }
            Self::BrowserPage => (StatusCode::FORBIDDEN, "pages of a browser are not served"),
            Self::WrongToken => (
                StatusCode::UNAUTHORIZED,
                "send `Authorization: Bearer TOKEN` with the token that the server printed when it started",
            ),
            Self::UnknownPath => (StatusCode::NOT_FOUND, "the server is at /mcp"),
            Self::UnknownSession => {
                (StatusCode::NOT_FOUND, "there is no such session: send initialize for a new one")
            }
            Self::TooLarge => (StatusCode::PAYLOAD_TOO_LARGE, "the message is too long"),
            Self::TooManySessions => {
                (StatusCode::SERVICE_UNAVAILABLE, "too many sessions are in use: end one first")
            }
            Self::TooSlow => (StatusCode::REQUEST_TIMEOUT, "the request took too long"),
        };
        let mut response = Response::new(Full::new(Bytes::from_static(text.as_bytes())).boxed());
        *response.status_mut() = status;
        response.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static("text/plain; charset=utf-8"));
        if self == Self::WrongToken {
            response.headers_mut().insert(WWW_AUTHENTICATE, HeaderValue::from_static("Bearer"));
        }
        response
    }
}

/// Returns why a request is refused by its head, if it is.
fn check_head(headers: &HeaderMap, path: &str, hosts: &[String], token: &str) -> Option<HttpRefusal> {
    let text = |name| headers.get(name).and_then(|value: &HeaderValue| value.to_str().ok());
    let is_ours =
        text(HOST).is_some_and(|host| hosts.iter().any(|allowed| allowed.eq_ignore_ascii_case(host)));
    // Only this server answers at that origin, so it is not a foreign page.
    let is_own_origin = |origin: &str| {
        origin
            .strip_prefix("http://")
            .is_some_and(|host| hosts.iter().any(|allowed| allowed.eq_ignore_ascii_case(host)))
    };
    let bearer = text(AUTHORIZATION).and_then(|value| {
        let (scheme, secret) = value.split_once(' ')?;
        scheme.eq_ignore_ascii_case("bearer").then_some(secret.trim())
    });
    if !is_ours {
        Some(HttpRefusal::UnknownHost)
    } else if headers.contains_key(ORIGIN) && !text(ORIGIN).is_some_and(is_own_origin) {
        Some(HttpRefusal::BrowserPage)
    } else if !bearer.is_some_and(|secret| constant_time_eq(secret.as_bytes(), token.as_bytes())) {
        Some(HttpRefusal::WrongToken)
    } else if path != PATH {
        Some(HttpRefusal::UnknownPath)
    } else if text(CONTENT_LENGTH)
        .is_some_and(|length| length.parse().is_ok_and(|length: u64| length > MAX_BODY as u64))
    {
        Some(HttpRefusal::TooLarge)
    } else {
        None
    }
}

/// Compares in constant time, so that the duration does not reveal where the difference is.
fn constant_time_eq(a: &[u8], b: &[u8]) -> bool {
    a.len() == b.len() && a.iter().zip(b).fold(0, |all, (a, b)| all | (a ^ b)) == 0
}

/// Returns the accepted host names, with the port, as clients that were given the address send them.
fn allowed_hosts(address: SocketAddr, extra: &[String]) -> Vec<String> {
    let port = address.port();
    let loopback = ["127.0.0.1", "localhost", "[::1]"].map(str::to_owned);
    let own_address = address.to_string();
    let named = loopback.into_iter().chain(extra.iter().cloned()).map(|host| format!("{host}:{port}"));
    named.chain([own_address]).collect()
}

#[cfg(test)]
mod tests;
