//! The HTTP endpoint: who may use it, and how requests and streams reach the hub.

use std::convert::Infallible;
use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use axum::body::{Body, Bytes, HttpBody as _, to_bytes};
use axum::extract::ws::WebSocketUpgrade;
use axum::extract::{FromRequestParts as _, Request, State};
use axum::middleware::Next;
use axum::response::{IntoResponse, Response};
use axum::routing::{any, get, post};
use bowline_protocol::remote::{
    CONNECTION_HEADER, ENDPOINT_PATH, LAST_EVENT_HEADER, MessageHead, SESSION_HEADER,
};
use http::request::Parts;
use http::{HeaderMap, HeaderValue, Method, StatusCode, header};

use crate::event::{ConnectionId, SessionId};
use crate::hub::{ConnectError, ConnectionStream, Hub, ReceiveError, SessionStream};
use crate::token::{Principal, random_hex};

mod access;
mod cookie;
mod cors;
mod listener;
mod requests_in_progress;
mod sse;
mod stalled_stream;
mod web_socket;

pub use access::{Access, AccessOptions, check_url};
pub use cookie::{CookieKey, CookieKeyError};
pub use listener::{ListenerOptions, TlsError, load_tls, serve};

/// The largest body that is read.
const MAX_BODY_BYTES: usize = 64 << 20;
/// How long a body may take to arrive.
const BODY_TIMEOUT: Duration = Duration::from_secs(60);

/// What requests need.
#[derive(Debug, Clone)]
pub struct Endpoint {
    /// The hub.
    pub hub: Arc<Hub>,
    /// Who may use it.
    pub access: Arc<Access>,
}

/// A refusal, as HTTP status and reason.
#[derive(Debug)]
pub struct Refusal {
    /// The status.
    pub status: StatusCode,
    /// The reason, for people.
    pub reason: String,
    retry_after: bool,
}

impl Refusal {
    pub(crate) fn new(status: StatusCode, reason: impl Into<String>) -> Self {
        Self { status, reason: reason.into(), retry_after: false }
    }
}

impl From<ReceiveError> for Refusal {
    fn from(error: ReceiveError) -> Self {
        let status = match error {
            ReceiveError::UnknownConnection => StatusCode::NOT_FOUND,
            ReceiveError::Invalid(_) => StatusCode::BAD_REQUEST,
            ReceiveError::Batch => StatusCode::NOT_IMPLEMENTED,
            ReceiveError::Overloaded(_) => StatusCode::TOO_MANY_REQUESTS,
            ReceiveError::Draining | ReceiveError::Fenced => StatusCode::SERVICE_UNAVAILABLE,
        };
        let retry_after =
            matches!(error, ReceiveError::Overloaded(_) | ReceiveError::Draining | ReceiveError::Fenced);
        Self { status, reason: error.to_string(), retry_after }
    }
}

impl IntoResponse for Refusal {
    fn into_response(self) -> Response {
        let mut response = (self.status, self.reason + "\n").into_response();
        if self.status == StatusCode::UNAUTHORIZED {
            response.headers_mut().insert(header::WWW_AUTHENTICATE, HeaderValue::from_static("Bearer"));
        }
        if self.retry_after {
            response.headers_mut().insert(header::RETRY_AFTER, HeaderValue::from_static("5"));
        }
        // The rest of the body is not read, so the connection ends: its client must not send the next request on it.
        if matches!(self.status, StatusCode::PAYLOAD_TOO_LARGE | StatusCode::REQUEST_TIMEOUT) {
            response.headers_mut().insert(header::CONNECTION, HeaderValue::from_static("close"));
        }
        response
    }
}

impl Endpoint {
    /// Returns the routes.
    pub fn router(self) -> Router {
        Router::new()
            .route(ENDPOINT_PATH, any(serve_acp))
            .route("/health", get(async || "ok\n"))
            .route("/ready", get(serve_ready))
            .route("/metrics", get(serve_metrics))
            .route("/ticket", post(serve_ticket))
            .route("/login", post(serve_login))
            .fallback(async || (StatusCode::NOT_FOUND, "there is nothing here; the endpoint is /acp\n"))
            .layer(axum::middleware::from_fn_with_state(self.clone(), check_request))
            .with_state(self)
    }

    /// Returns who sends a request, after a check of where it comes from.
    ///
    /// # Errors
    /// Fails if the request may not be served.
    pub async fn authenticate(&self, parts: &Parts) -> Result<Principal, Refusal> {
        let principal = self.access.authenticate(parts, self.hub.store()).await;
        let principal = principal.inspect_err(|_| self.hub.metrics().add_refused())?;
        self.hub.check_rate(&principal)?;
        Ok(principal)
    }

    fn refuse(&self, refusal: Refusal) -> Response {
        self.hub.metrics().add_refused();
        refusal.into_response()
    }
}

/// Checks what holds for all paths, and adds the headers for pages of other origins.
async fn check_request(State(endpoint): State<Endpoint>, request: Request, next: Next) -> Response {
    match check_url(request.uri()) {
        Ok(()) => cors::allow_origins(&endpoint, request, next).await,
        Err(refusal) => endpoint.refuse(refusal),
    }
}

async fn serve_ready(State(endpoint): State<Endpoint>) -> Response {
    if endpoint.hub.is_ready() {
        "ready\n".into_response()
    } else {
        (StatusCode::SERVICE_UNAVAILABLE, "not ready\n").into_response()
    }
}

async fn serve_metrics(State(endpoint): State<Endpoint>, request: Request) -> Response {
    let (parts, _) = request.into_parts();
    if let Err(refusal) = endpoint.access.authenticate(&parts, endpoint.hub.store()).await {
        return endpoint.refuse(refusal);
    }
    let text = endpoint.hub.metrics().render(endpoint.hub.gauges());
    ([(header::CONTENT_TYPE, "text/plain; version=0.0.4")], text).into_response()
}

/// Makes a ticket for a browser of the same principal.
async fn serve_ticket(State(endpoint): State<Endpoint>, request: Request) -> Response {
    let (parts, _) = request.into_parts();
    if !parts.headers.contains_key(header::AUTHORIZATION) {
        // A cookie must not renew itself.
        return endpoint.refuse(Refusal::new(StatusCode::UNAUTHORIZED, "a ticket needs a token"));
    }
    match endpoint.access.authenticate(&parts, endpoint.hub.store()).await {
        Ok(principal) => match endpoint.access.issue_ticket(principal) {
            Ok(ticket) => axum::Json(serde_json::json!({ "ticket": ticket })).into_response(),
            Err(refusal) => endpoint.refuse(refusal),
        },
        Err(refusal) => endpoint.refuse(refusal),
    }
}

/// Exchanges a ticket or a token for a cookie.
async fn serve_login(State(endpoint): State<Endpoint>, request: Request) -> Response {
    let (parts, body) = request.into_parts();
    let login = async {
        endpoint.access.check_source(&parts)?;
        let body = read_body(body, 4096).await?;
        let body: serde_json::Value = serde_json::from_slice(&body).unwrap_or_default();
        let store = endpoint.hub.store();
        let principal = match body["token"].as_str() {
            Some(token) => endpoint.access.verify_token(token, store).await?,
            None => {
                let ticket = body["ticket"].as_str().unwrap_or_default();
                endpoint.access.exchange_ticket(ticket, store).await?
            }
        };
        Ok(endpoint.access.issue_cookie(&principal, &parts))
    };
    let cookie: Result<String, Refusal> = login.await;
    match cookie {
        Ok(cookie) => (StatusCode::NO_CONTENT, [(header::SET_COOKIE, cookie)]).into_response(),
        Err(refusal) => endpoint.refuse(refusal),
    }
}

async fn serve_acp(State(endpoint): State<Endpoint>, request: Request) -> Response {
    endpoint.hub.metrics().add_request();
    let (mut parts, body) = request.into_parts();
    let principal = match endpoint.access.authenticate(&parts, endpoint.hub.store()).await {
        Ok(principal) => principal,
        Err(refusal) => return endpoint.refuse(refusal),
    };
    let served = match parts.method {
        Method::POST => post_message(&endpoint, principal, &parts.headers, body).await,
        Method::GET if parts.headers.contains_key(header::UPGRADE) => {
            match WebSocketUpgrade::from_request_parts(&mut parts, &()).await {
                Ok(upgrade) => web_socket::upgrade(&endpoint, principal, &parts, upgrade),
                Err(rejection) => Ok(rejection.into_response()),
            }
        }
        Method::GET => open_stream(&endpoint, &principal, &parts.headers).await,
        Method::DELETE => connection_of(&endpoint, &principal, &parts.headers).map(|connection| {
            endpoint.hub.disconnect(&connection);
            StatusCode::ACCEPTED.into_response()
        }),
        _ => {
            let allowed = [(header::ALLOW, "GET, POST, DELETE")];
            Ok((StatusCode::METHOD_NOT_ALLOWED, allowed, "use GET, POST or DELETE\n").into_response())
        }
    };
    served.unwrap_or_else(|refusal| endpoint.refuse(refusal))
}

async fn post_message(
    endpoint: &Endpoint,
    principal: Principal,
    headers: &HeaderMap,
    body: Body,
) -> Result<Response, Refusal> {
    let content_type = text_of(headers, header::CONTENT_TYPE.as_str()).unwrap_or_default();
    let media_type = content_type.split(';').next().unwrap_or_default().trim();
    if !media_type.eq_ignore_ascii_case("application/json") {
        return Err(Refusal::new(
            StatusCode::UNSUPPORTED_MEDIA_TYPE,
            "send JSON: Content-Type: application/json",
        ));
    }
    let connection = if headers.contains_key(CONNECTION_HEADER) {
        // Before the body is read: an unknown connection need not send it.
        Some(connection_of(endpoint, &principal, headers)?)
    } else {
        None
    };
    let body = read_body(body, MAX_BODY_BYTES).await?;
    if let Some(connection) = connection {
        let session = text_of(headers, SESSION_HEADER);
        endpoint.hub.receive(&connection, session, body)?;
        return Ok(StatusCode::ACCEPTED.into_response());
    }
    let head = MessageHead::parse(&body).map_err(|error| match error {
        bowline_protocol::remote::MessageHeadError::Batch => ReceiveError::Batch,
        bowline_protocol::remote::MessageHeadError::Malformed => ReceiveError::Invalid(error.to_string()),
    })?;
    if head.method.as_deref() != Some("initialize") {
        let why = "only `initialize` can be sent without the header Acp-Connection-Id";
        return Err(Refusal::new(StatusCode::BAD_REQUEST, why));
    }
    let connection = new_connection_id()?;
    let (response, id) = match endpoint.hub.connect(&principal, &body, false, connection.clone()).await {
        Ok(response) => (response, Some(connection)),
        Err(ConnectError::Refused(response)) => (response, None),
        Err(ConnectError::Receive(error)) => return Err(error.into()),
    };
    let mut response = ([(header::CONTENT_TYPE, "application/json")], response).into_response();
    if let Some(id) = id.and_then(|id| HeaderValue::from_str(&id).ok()) {
        response.headers_mut().insert(CONNECTION_HEADER, id);
    }
    Ok(response)
}

async fn open_stream(
    endpoint: &Endpoint,
    principal: &Principal,
    headers: &HeaderMap,
) -> Result<Response, Refusal> {
    let accept = text_of(headers, header::ACCEPT.as_str()).unwrap_or_default();
    if !["text/event-stream", "text/*", "*/*"].iter().any(|accepted| accept.contains(accepted)) {
        return Err(Refusal::new(StatusCode::NOT_ACCEPTABLE, "a stream needs Accept: text/event-stream"));
    }
    let connection = connection_of(endpoint, principal, headers)?;
    let last_event = match text_of(headers, LAST_EVENT_HEADER) {
        None => None,
        Some(id) => Some(id.parse().map_err(|_| {
            Refusal::new(StatusCode::BAD_REQUEST, "Last-Event-ID is not an id of this server")
        })?),
    };
    let body = match text_of(headers, SESSION_HEADER) {
        None => sse::connection_body(ConnectionStream::open(&endpoint.hub, &connection, last_event)?),
        Some(session) => {
            let session: SessionId = session.into();
            sse::session_body(SessionStream::open(&endpoint.hub, &connection, &session, last_event).await?)
        }
    };
    let headers = [
        (header::CONTENT_TYPE, "text/event-stream"),
        (header::CACHE_CONTROL, "no-store"),
        // Proxies must not wait for more before they pass events on.
        (header::HeaderName::from_static("x-accel-buffering"), "no"),
    ];
    Ok((headers, body).into_response())
}

/// Returns the connection that a request names, if it belongs to the principal. Others are as unknown as absent ones.
fn connection_of(
    endpoint: &Endpoint,
    principal: &Principal,
    headers: &HeaderMap,
) -> Result<ConnectionId, Refusal> {
    let Some(id) = text_of(headers, CONNECTION_HEADER) else {
        return Err(Refusal::new(StatusCode::BAD_REQUEST, "the header Acp-Connection-Id is missing"));
    };
    match endpoint.hub.principal_of(id) {
        Some(owner) if owner.name == principal.name => Ok(id.into()),
        _ => Err(ReceiveError::UnknownConnection.into()),
    }
}

async fn read_body(body: Body, limit: usize) -> Result<Bytes, Refusal> {
    let too_slow = Refusal::new(StatusCode::REQUEST_TIMEOUT, "the body took too long to arrive");
    let too_large =
        || Refusal::new(StatusCode::PAYLOAD_TOO_LARGE, format!("a body has at most {limit} bytes"));
    // What is announced as too large need not arrive.
    if usize::try_from(body.size_hint().lower()).map_or(true, |announced| announced > limit) {
        return Err(too_large());
    }
    let read = tokio::time::timeout(BODY_TIMEOUT, to_bytes(body, limit)).await.map_err(|_| too_slow)?;
    read.map_err(|_| too_large())
}

fn new_connection_id() -> Result<ConnectionId, Refusal> {
    let id = random_hex::<16>();
    id.map(Into::into).map_err(|error| Refusal::new(StatusCode::INTERNAL_SERVER_ERROR, error.to_string()))
}

fn text_of<'a>(headers: &'a HeaderMap, name: &str) -> Option<&'a str> {
    headers.get(name)?.to_str().ok()
}

/// The stream of a body.
type BodyItem = Result<Bytes, Infallible>;
