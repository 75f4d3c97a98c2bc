//! Streamable HTTP: the requests of the SDK's transport, with bounds and clear errors.

use std::collections::{HashMap, VecDeque};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use bowline_text::display;
use futures_util::stream::BoxStream;
use reqwest::header::{ACCEPT, CONTENT_TYPE, HeaderMap, HeaderName, HeaderValue, LOCATION};
use reqwest::{RequestBuilder, Response, StatusCode};
use rmcp::model::{ClientJsonRpcMessage, ServerJsonRpcMessage};
use rmcp::transport::StreamableHttpClientTransport;
use rmcp::transport::common::client_side_sse::ExponentialBackoff;
use rmcp::transport::streamable_http_client::{
    SseError, StreamableHttpClient, StreamableHttpClientTransportConfig, StreamableHttpError,
    StreamableHttpPostResponse,
};
use sse_stream::Sse;

use super::decode::{DecodedLine, decode};
use super::{MAX_MESSAGE, sse};

/// How much of an error response is read, in bytes.
const MAX_ERROR_BODY: usize = 64 * 1024;
/// The deadline for deleting a session.
const DELETE_TIMEOUT: Duration = Duration::from_secs(1);
/// The deadline for recovering a session, and for sending a cancellation.
const CONTROL_TIMEOUT: Duration = Duration::from_secs(5);
/// How long an opened stream delays the opening of further ones.
const WINDOW: Duration = Duration::from_secs(60);
/// The pause before the second stream within the window; each further one is twice as long.
const FIRST_PAUSE: Duration = Duration::from_millis(250);
/// The longest such pause.
const MAX_PAUSE: Duration = Duration::from_secs(30);

const SESSION_HEADER: HeaderName = HeaderName::from_static("mcp-session-id");
const LAST_EVENT_HEADER: HeaderName = HeaderName::from_static("last-event-id");
const EVENT_STREAM_TYPE: &str = "text/event-stream";
const JSON_TYPE: &str = "application/json";

/// Why a response was rejected.
#[derive(Debug, thiserror::Error)]
pub(super) enum HttpError {
    #[error("the request failed")]
    Request(#[from] reqwest::Error),
    #[error("it wants authorization (HTTP {0}): put what it needs into the server's headers")]
    Unauthorized(u16),
    #[error(
        "it leads elsewhere (HTTP {status}), to {to:?}, which is not followed: give the server's own address"
    )]
    Redirect { status: u16, to: String },
    #[error("it answers HTTP {status}: {beginning:?}")]
    Status { status: u16, beginning: String },
    #[error("what answers is no MCP server: it sends {content_type:?}, which begins with {beginning:?}")]
    NotMcp { content_type: String, beginning: String },
    #[error("its answer is larger than {MAX_MESSAGE} bytes")]
    TooLarge,
    #[error("its answer is not one of MCP: {0:?}")]
    NotJsonRpc(String),
}

impl HttpError {
    /// Returns whether a retry may succeed.
    pub(super) fn is_transient(&self) -> bool {
        match self {
            Self::Request(error) => error.is_connect() || error.is_timeout() || error.is_body(),
            Self::Status { status, .. } => *status >= 500 || *status == 429,
            Self::Unauthorized(_)
            | Self::Redirect { .. }
            | Self::NotMcp { .. }
            | Self::TooLarge
            | Self::NotJsonRpc(_) => false,
        }
    }
}

type StreamableError = StreamableHttpError<HttpError>;

/// Returns a transport to a server.
pub(super) fn transport(
    client: reqwest::Client,
    url: &reqwest::Url,
    headers: HeaderMap,
) -> StreamableHttpClientTransport<BoundedHttpClient> {
    let mut retry = ExponentialBackoff::default();
    retry.max_times = Some(5);
    retry.max_delay = Some(MAX_PAUSE);
    let mut config = StreamableHttpClientTransportConfig::with_uri(url.as_str());
    config.retry_config = Arc::new(retry);
    config.control_request_timeout = CONTROL_TIMEOUT;
    config.session_recovery_timeout = CONTROL_TIMEOUT;
    config.reinit_on_expired_session = true;
    config.allow_stateless = true;
    config.max_sse_event_size = MAX_MESSAGE;
    let http = BoundedHttpClient { client, headers, stream_openings: Arc::default() };
    StreamableHttpClientTransport::with_client(http, config)
}

/// The HTTP client behind the SDK's transport.
#[derive(Debug, Clone)]
pub(super) struct BoundedHttpClient {
    client: reqwest::Client,
    // Headers configured by the user.
    headers: HeaderMap,
    // When streams were opened recently. Bounded, because the pauses limit how many fit in a window.
    stream_openings: Arc<Mutex<VecDeque<Instant>>>,
}

impl BoundedHttpClient {
    fn prepare(
        &self,
        request: RequestBuilder,
        session: Option<&str>,
        headers: HashMap<HeaderName, HeaderValue>,
    ) -> RequestBuilder {
        let mut all = self.headers.clone();
        all.extend(headers);
        let request = request.headers(all).header(ACCEPT, format!("{EVENT_STREAM_TYPE}, {JSON_TYPE}"));
        match session {
            Some(session) => request.header(SESSION_HEADER, session),
            None => request,
        }
    }

    /// Returns the pause before a stream is opened: a server that closes streams at once must not cause a busy loop.
    fn next_pause(&self) -> Duration {
        let mut openings = self.stream_openings.lock().unwrap_or_else(PoisonError::into_inner);
        let now = Instant::now();
        while openings.front().is_some_and(|opening| now.duration_since(*opening) > WINDOW) {
            openings.pop_front();
        }
        let before = openings.len();
        openings.push_back(now);
        match before {
            0 => Duration::ZERO,
            _ => FIRST_PAUSE.saturating_mul(1 << before.min(16)).min(MAX_PAUSE),
        }
    }
}

impl StreamableHttpClient for BoundedHttpClient {
    type Error = HttpError;

    async fn post_message(
        &self,
        uri: Arc<str>,
        message: ClientJsonRpcMessage,
        session: Option<Arc<str>>,
        _: Option<String>,
        headers: HashMap<HeaderName, HeaderValue>,
    ) -> Result<StreamableHttpPostResponse, StreamableError> {
        let request = self.prepare(self.client.post(&*uri), session.as_deref(), headers);
        let response = request.json(&message).send().await.map_err(request_error)?;
        let status = response.status();
        if status == StatusCode::NOT_FOUND && session.is_some() {
            return Err(StreamableHttpError::SessionExpired);
        }
        let request_id = match &message {
            ClientJsonRpcMessage::Request(request) => Some(request.id.clone()),
            _ => None,
        };
        if status.is_success() && (request_id.is_none() || status == StatusCode::ACCEPTED) {
            return Ok(StreamableHttpPostResponse::Accepted);
        }
        let new_session =
            response.headers().get(SESSION_HEADER).and_then(|id| id.to_str().ok()).map(str::to_owned);
        let content_type = content_type(&response);
        if status.is_success() && content_type.starts_with(EVENT_STREAM_TYPE) {
            return Ok(StreamableHttpPostResponse::Sse(sse::events(response), new_session));
        }
        if status.is_success() && content_type.starts_with(JSON_TYPE) {
            let body = read_body(response, MAX_MESSAGE).await.map_err(StreamableHttpError::Client)?;
            let message = match decode(&body) {
                DecodedLine::Message(message) => *message,
                DecodedLine::UnreadableAnswer(_) | DecodedLine::Noise => {
                    return Err(StreamableHttpError::Client(HttpError::NotJsonRpc(excerpt(&body))));
                }
            };
            return Ok(StreamableHttpPostResponse::Json(message, new_session));
        }
        let error = read_refusal(response).await;
        // A protocol error may come with any status; the request it answers is known.
        if let (HttpError::Status { .. }, Some(id), Some(mut error)) = (&error.0, request_id, error.1) {
            error.id = Some(id);
            return Ok(StreamableHttpPostResponse::Json(ServerJsonRpcMessage::Error(error), new_session));
        }
        Err(StreamableHttpError::Client(error.0))
    }

    async fn delete_session(
        &self,
        uri: Arc<str>,
        session: Arc<str>,
        _: Option<String>,
        headers: HashMap<HeaderName, HeaderValue>,
    ) -> Result<(), StreamableError> {
        let request =
            self.prepare(self.client.delete(&*uri), Some(&session), headers).timeout(DELETE_TIMEOUT);
        // The response does not matter, because the session is not used again.
        request.send().await.map_err(request_error).map(drop)
    }

    async fn get_stream(
        &self,
        uri: Arc<str>,
        session: Option<Arc<str>>,
        last_event: Option<String>,
        _: Option<String>,
        headers: HashMap<HeaderName, HeaderValue>,
    ) -> Result<BoxStream<'static, Result<Sse, SseError>>, StreamableError> {
        tokio::time::sleep(self.next_pause()).await;
        let mut request = self.prepare(self.client.get(&*uri), session.as_deref(), headers);
        if let Some(last_event) = last_event {
            request = request.header(LAST_EVENT_HEADER, last_event);
        }
        let response = request.send().await.map_err(request_error)?;
        if response.status().is_success() && content_type(&response).starts_with(EVENT_STREAM_TYPE) {
            return Ok(sse::events(response));
        }
        match response.status() {
            // This stream is optional for servers.
            StatusCode::METHOD_NOT_ALLOWED | StatusCode::NOT_FOUND | StatusCode::NOT_IMPLEMENTED => {
                Err(StreamableHttpError::ServerDoesNotSupportSse)
            }
            _ => Err(StreamableHttpError::Client(read_refusal(response).await.0)),
        }
    }
}

fn request_error(error: reqwest::Error) -> StreamableError {
    // The address may contain a secret, and the caller already names the server.
    StreamableHttpError::Client(HttpError::Request(error.without_url()))
}

pub(super) fn content_type(response: &Response) -> String {
    let header = response.headers().get(CONTENT_TYPE).and_then(|value| value.to_str().ok());
    display::escape_line(&header.unwrap_or_default().to_ascii_lowercase(), 80)
}

/// Returns why an unexpected response is rejected, and the JSON-RPC error in it, if any.
pub(super) async fn read_refusal(response: Response) -> (HttpError, Option<rmcp::model::JsonRpcError>) {
    let (status, content_type) = (response.status(), content_type(&response));
    if matches!(status, StatusCode::UNAUTHORIZED | StatusCode::FORBIDDEN) {
        return (HttpError::Unauthorized(status.as_u16()), None);
    }
    if status.is_redirection() {
        let to = response.headers().get(LOCATION).and_then(|to| to.to_str().ok()).unwrap_or_default();
        return (HttpError::Redirect { status: status.as_u16(), to: display::escape_line(to, 200) }, None);
    }
    let body = read_start(response, MAX_ERROR_BODY).await;
    let beginning = excerpt(&body);
    let error = if status.is_success() {
        HttpError::NotMcp { content_type, beginning }
    } else {
        HttpError::Status { status: status.as_u16(), beginning }
    };
    let rpc_error = match serde_json::from_slice(&body) {
        Ok(ServerJsonRpcMessage::Error(error)) => Some(error),
        _ => None,
    };
    (error, rpc_error)
}

/// Reads a response body of at most `limit` bytes.
async fn read_body(mut response: Response, limit: usize) -> Result<Vec<u8>, HttpError> {
    let mut body = Vec::new();
    while let Some(bytes) = response.chunk().await.map_err(reqwest::Error::without_url)? {
        if body.len() + bytes.len() > limit {
            return Err(HttpError::TooLarge);
        }
        body.extend_from_slice(&bytes);
    }
    Ok(body)
}

/// Reads the start of a response body, as far as it arrives before a read error or the deadline.
async fn read_start(mut response: Response, limit: usize) -> Vec<u8> {
    let mut body = Vec::new();
    let read = async {
        while let Ok(Some(bytes)) = response.chunk().await {
            body.extend_from_slice(&bytes[..bytes.len().min(limit - body.len())]);
            if body.len() == limit {
                break;
            }
        }
    };
    tokio::time::timeout(DELETE_TIMEOUT, read).await.unwrap_or_default();
    body
}

fn excerpt(body: &[u8]) -> String {
    display::escape_line(String::from_utf8_lossy(&body[..body.len().min(400)]).trim(), 120)
}
