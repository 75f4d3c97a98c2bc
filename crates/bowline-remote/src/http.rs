//! HTTP: each message is posted, and event streams carry what the server sends.

use std::error::Error as _;
use std::time::Duration;

use bowline_protocol::remote::{CONNECTION_HEADER, LAST_EVENT_HEADER, SESSION_HEADER};
use bowline_protocol::sse::{SseDecoder, SseEvent};
use bytes::{Bytes, BytesMut};
use futures_util::{Stream, StreamExt as _, stream};
use reqwest::header::{
    ACCEPT, AUTHORIZATION, CONTENT_TYPE, HeaderMap, HeaderName, HeaderValue, LOCATION, RETRY_AFTER,
};
use reqwest::redirect::Policy;
use reqwest::{Client, RequestBuilder, Response};
use tokio::time::timeout;

use crate::MAX_MESSAGE_BYTES;
use crate::client::{Delivery, Post, PostOutcome, StreamEnd, StreamKey};
use crate::cookies::SharedCookies;
use crate::driver::RemoteError;
use crate::endpoint::Endpoint;
use crate::refusal::Refusal;
use crate::tls;
use crate::transport::StreamEvent;

/// The deadline for connecting.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(10);
/// The deadline for the answer to a post.
const POST_TIMEOUT: Duration = Duration::from_secs(60);
/// The deadline for the answer to `initialize`: the server may have to start the agent first.
const INITIALIZE_TIMEOUT: Duration = Duration::from_secs(120);
/// The deadline for ending the connection.
const DELETE_TIMEOUT: Duration = Duration::from_secs(2);
/// Some servers send the head of a stream only with its first event, so a stream without an answer is assumed to be open
/// after this time.
const OPEN_GRACE: Duration = Duration::from_secs(2);
/// How long a connection may be silent before the system checks that the other end still exists, how often it checks,
/// and how long sent data may stay unacknowledged.
const KEEP_ALIVE: Duration = Duration::from_secs(30);
const KEEP_ALIVE_INTERVAL: Duration = Duration::from_secs(10);
/// The most bytes read of a refusal.
const MAX_REFUSAL_BYTES: usize = 4096;

/// A client of one server.
#[derive(Debug)]
pub(crate) struct HttpTransport {
    client: Client,
    endpoint: Endpoint,
    token: Option<HeaderValue>,
    cookies: SharedCookies,
}

impl HttpTransport {
    pub(crate) fn new(endpoint: Endpoint, token: Option<HeaderValue>) -> Result<Self, RemoteError> {
        let mut builder = Client::builder()
            .user_agent(concat!("bowline/", env!("CARGO_PKG_VERSION")))
            .connect_timeout(CONNECT_TIMEOUT)
            // The token belongs to the URL that the user named.
            .redirect(Policy::none())
            .tcp_nodelay(true)
            .tcp_keepalive(KEEP_ALIVE)
            .tcp_keepalive_interval(KEEP_ALIVE_INTERVAL)
            .tcp_user_timeout(KEEP_ALIVE)
            .http2_keep_alive_interval(KEEP_ALIVE)
            .http2_keep_alive_timeout(KEEP_ALIVE_INTERVAL);
        builder = match endpoint.is_encrypted() {
            true => builder.tls_backend_preconfigured(tls::client_config(&["h2", "http/1.1"])?),
            false => builder.tls_backend_preconfigured(tls::unused_config()?),
        };
        if endpoint.is_loopback() {
            builder = builder.no_proxy();
        }
        let client = builder.build().map_err(|error| RemoteError::Client(error.to_string()))?;
        Ok(Self { client, endpoint, token, cookies: SharedCookies::default() })
    }

    pub(crate) async fn post(&self, post: Post) -> PostOutcome {
        let Post { connection, session, body } = post;
        let limit = if connection.is_none() { INITIALIZE_TIMEOUT } else { POST_TIMEOUT };
        let request = self
            .client
            .post(self.endpoint.url().clone())
            .header(CONTENT_TYPE, "application/json")
            .header(ACCEPT, "application/json, text/event-stream")
            .body(body);
        let request = match self.with_headers(request, connection.as_deref(), session.as_deref()) {
            Ok(request) => request,
            Err(reason) => return PostOutcome::Unusable(reason),
        };
        let response = match timeout(limit, request.send()).await {
            Ok(Ok(response)) => response,
            Ok(Err(error)) => {
                let delivery = if error.is_connect() { Delivery::Impossible } else { Delivery::Possible };
                let text = error_chain(error);
                return match tls::describe_certificate_error(&self.endpoint.to_string(), &text) {
                    Some(reason) => PostOutcome::Unusable(reason),
                    None => PostOutcome::Lost { reason: self.unreachable(&text), delivery },
                };
            }
            Err(_) => return self.timed_out(limit),
        };
        self.cookies.store(response.headers());
        match timeout(limit, self.read_answer(response)).await {
            Ok(outcome) => outcome,
            Err(_) => self.timed_out(limit),
        }
    }

    async fn read_answer(&self, response: Response) -> PostOutcome {
        if !response.status().is_success() {
            return PostOutcome::Refused(read_refusal(response).await);
        }
        let header = |name: HeaderName| response.headers().get(name).and_then(|value| value.to_str().ok());
        let connection = header(HeaderName::from_static(CONNECTION_HEADER)).map(str::to_owned);
        let content_type = header(CONTENT_TYPE).unwrap_or_default().to_owned();
        let body = match read_body(response, MAX_MESSAGE_BYTES).await {
            Ok(BoundedBody::Whole(body)) => body,
            Ok(BoundedBody::Truncated(_)) => {
                return PostOutcome::Unusable(format!(
                    "{} sent a response of more than {MAX_MESSAGE_BYTES} bytes",
                    self.endpoint
                ));
            }
            Err(error) => {
                let reason = self.unreachable(&error_chain(error));
                return PostOutcome::Lost { reason, delivery: Delivery::Possible };
            }
        };
        if body.trim_ascii().is_empty() {
            PostOutcome::Accepted
        } else if is_media_type(&content_type, "application/json") {
            PostOutcome::Answered { connection, body }
        } else {
            PostOutcome::Unusable(self.wrong_content(&content_type, "application/json"))
        }
    }

    /// Opens an event stream.
    pub(crate) fn open_stream(
        &self,
        key: &StreamKey,
        connection: &str,
        last_event_id: Option<&str>,
    ) -> impl Stream<Item = StreamEvent> + Send + '_ {
        let session = match key {
            StreamKey::Connection => None,
            StreamKey::Session(session) => Some(session.as_str()),
        };
        let request = self.client.get(self.endpoint.url().clone()).header(ACCEPT, "text/event-stream");
        let request = self.with_headers(request, Some(connection), session);
        // An id that is no header's value cannot be sent back; the stream then starts where the server likes.
        let last_event_id = last_event_id.and_then(|id| HeaderValue::from_str(id).ok());
        let request = request.map(|request| match last_event_id {
            Some(id) => request.header(LAST_EVENT_HEADER, id),
            None => request,
        });
        let opening: futures_util::future::BoxFuture<'_, _> = Box::pin(async move {
            match request {
                Ok(request) => self.open_events(request).await,
                Err(reason) => Err(StreamEnd::Unusable(reason)),
            }
        });
        // After the first pending event, the stream is read on.
        stream::unfold(StreamStep::Opening { opening, is_announced: false }, move |step| self.next_step(step))
            .flat_map(stream::iter)
    }

    async fn open_events(&self, request: RequestBuilder) -> Result<Response, StreamEnd> {
        let response = request.send().await.map_err(|error| {
            let text = error_chain(error);
            match tls::describe_certificate_error(&self.endpoint.to_string(), &text) {
                Some(reason) => StreamEnd::Unusable(reason),
                None => StreamEnd::Dropped(self.unreachable(&text)),
            }
        })?;
        self.cookies.store(response.headers());
        if !response.status().is_success() {
            return Err(StreamEnd::Refused(read_refusal(response).await));
        }
        let content_type = response.headers().get(CONTENT_TYPE).and_then(|value| value.to_str().ok());
        let content_type = content_type.unwrap_or_default();
        if !is_media_type(content_type, "text/event-stream") {
            return Err(StreamEnd::Unusable(self.wrong_content(content_type, "text/event-stream")));
        }
        Ok(response)
    }

    async fn next_step<'a>(&'a self, step: StreamStep<'a>) -> Option<(Vec<StreamEvent>, StreamStep<'a>)> {
        let end = |end| Some((vec![StreamEvent::End(end)], StreamStep::Ended));
        match step {
            StreamStep::Opening { mut opening, is_announced } => {
                let opened = match is_announced {
                    true => opening.await,
                    false => match timeout(OPEN_GRACE, &mut opening).await {
                        Ok(opened) => opened,
                        Err(_) => {
                            let step = StreamStep::Opening { opening, is_announced: true };
                            return Some((vec![StreamEvent::AssumedOpen], step));
                        }
                    },
                };
                match opened {
                    Ok(response) => {
                        let step = StreamStep::Reading {
                            response: Box::new(response),
                            decoder: SseDecoder::new(MAX_MESSAGE_BYTES),
                        };
                        Some((vec![StreamEvent::Open], step))
                    }
                    Err(reason) => end(reason),
                }
            }
            StreamStep::Reading { mut response, mut decoder } => match response.chunk().await {
                Ok(Some(chunk)) => match decoder.push(&chunk) {
                    Ok(events) => {
                        let event = |SseEvent { id, data, .. }| StreamEvent::Event {
                            id,
                            data: data.map(Bytes::from),
                        };
                        let events = events.into_iter().map(event).collect();
                        Some((events, StreamStep::Reading { response, decoder }))
                    }
                    Err(error) => end(StreamEnd::Unusable(format!("{}: {error}", self.endpoint))),
                },
                Ok(None) => end(StreamEnd::Dropped(format!("{} ended it", self.endpoint))),
                Err(error) => end(StreamEnd::Dropped(self.unreachable(&error_chain(error)))),
            },
            StreamStep::Ended => None,
        }
    }

    /// Ends a connection. If that fails, the server ends it when it likes.
    pub(crate) async fn delete(&self, connection: &str) {
        let request = self.client.delete(self.endpoint.url().clone());
        if let Ok(request) = self.with_headers(request, Some(connection), None) {
            timeout(DELETE_TIMEOUT, request.send()).await.ok();
        }
    }

    fn with_headers(
        &self,
        request: RequestBuilder,
        connection: Option<&str>,
        session: Option<&str>,
    ) -> Result<RequestBuilder, String> {
        let mut headers = HeaderMap::new();
        for (name, value) in [(CONNECTION_HEADER, connection), (SESSION_HEADER, session)] {
            let Some(value) = value else { continue };
            let value = HeaderValue::from_str(value)
                .map_err(|_| format!("the id {value:?} cannot be sent in the header {name}"))?;
            headers.insert(HeaderName::from_static(name), value);
        }
        if let Some(token) = &self.token {
            headers.insert(AUTHORIZATION, token.clone());
        }
        self.cookies.add_to(&mut headers);
        Ok(request.headers(headers))
    }

    fn unreachable(&self, text: &str) -> String {
        format!("cannot reach {}: {text}", self.endpoint)
    }

    fn timed_out(&self, limit: Duration) -> PostOutcome {
        let reason = format!("{} did not answer within {} s", self.endpoint, limit.as_secs());
        PostOutcome::Lost { reason, delivery: Delivery::Possible }
    }

    fn wrong_content(&self, found: &str, expected: &str) -> String {
        let found = match found {
            "" => "without a content type".to_owned(),
            found if is_media_type(found, "text/html") => "with a web page".to_owned(),
            found => format!("with {}", bowline_text::display::escape_line(found, 100)),
        };
        format!("{} answers {found} instead of {expected}: is it the URL of an ACP server?", self.endpoint)
    }
}

enum StreamStep<'a> {
    Opening { opening: futures_util::future::BoxFuture<'a, Result<Response, StreamEnd>>, is_announced: bool },
    Reading { response: Box<Response>, decoder: SseDecoder },
    Ended,
}

fn is_media_type(header: &str, expected: &str) -> bool {
    header.split(';').next().unwrap_or_default().trim().eq_ignore_ascii_case(expected)
}

/// A body of limited size.
enum BoundedBody {
    Whole(Bytes),
    Truncated(Bytes),
}

async fn read_body(mut response: Response, limit: usize) -> Result<BoundedBody, reqwest::Error> {
    let mut body = BytesMut::new();
    while let Some(chunk) = response.chunk().await? {
        if body.len() + chunk.len() > limit {
            return Ok(BoundedBody::Truncated(body.freeze()));
        }
        body.extend_from_slice(&chunk);
    }
    Ok(BoundedBody::Whole(body.freeze()))
}

async fn read_refusal(response: Response) -> Refusal {
    let status = response.status().as_u16();
    let header = |name| response.headers().get(name).and_then(|value: &HeaderValue| value.to_str().ok());
    let retry_after = header(RETRY_AFTER).and_then(|seconds| seconds.trim().parse().ok());
    let location = header(LOCATION).map(str::to_owned);
    // Without its text, the status still says what happened.
    let body = match timeout(DELETE_TIMEOUT, read_body(response, MAX_REFUSAL_BYTES)).await {
        Ok(Ok(BoundedBody::Whole(body) | BoundedBody::Truncated(body))) => body,
        Ok(Err(_)) | Err(_) => Bytes::new(),
    };
    Refusal { status, retry_after, location, detail: String::from_utf8_lossy(&body).into_owned() }
}

/// Returns an error with its causes.
fn error_chain(error: reqwest::Error) -> String {
    let error = error.without_url();
    let mut causes = Vec::new();
    let mut cause = error.source();
    while let Some(error) = cause {
        causes.push(error.to_string());
        cause = error.source();
    }
    // The innermost cause says what happened; the others say where.
    causes.pop().unwrap_or_else(|| error.to_string())
}
