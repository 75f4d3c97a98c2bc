//! One request to a provider and the events of its answer, within limits of size and time.

use std::collections::VecDeque;
use std::error::Error as _;
use std::time::Duration;

use bowline_conversation::retry::{self, RequestFailure};
use bowline_protocol::sse::{SseDecoder, SseEvent};
use bowline_storage::clock::since_epoch;
use reqwest::header::{CONTENT_ENCODING, CONTENT_TYPE, HeaderMap, HeaderName, LOCATION, RETRY_AFTER};
use reqwest::{RequestBuilder, Response};
use tokio::time::timeout;

use crate::model::base_url;
use crate::model::endpoint::{Endpoint, EndpointError};
use crate::model::http_clients::{Timeouts, read_body};

/// The largest reply, in bytes.
const MAX_REPLY_BYTES: usize = 64 << 20;
/// The largest event of a reply, in bytes.
pub(super) const MAX_EVENT_BYTES: usize = 1 << 20;
/// The most bytes read of an error.
const MAX_ERROR_BYTES: usize = 64 << 10;

/// The events of an answer.
#[derive(Debug)]
pub(super) struct EventStream {
    response: Response,
    decoder: SseDecoder,
    pending_events: VecDeque<SseEvent>,
    received_bytes: usize,
}

impl EventStream {
    /// Sends a request and waits until its answer begins.
    pub(super) async fn open(
        request: RequestBuilder,
        endpoint: &Endpoint,
        timeouts: Timeouts,
    ) -> Result<Self, EndpointError> {
        let Timeouts { headers, idle, .. } = timeouts;
        let timed_out =
            |_| EndpointError::new(RequestFailure::TimedOut, format!("no answer within {headers:?}"));
        let unreachable = |error: reqwest::Error| {
            let kind =
                if error.is_timeout() { RequestFailure::TimedOut } else { RequestFailure::Unreachable };
            EndpointError::new(kind, error_chain(error))
        };
        let response = timeout(headers, request.send()).await.map_err(timed_out)?.map_err(unreachable)?;
        if !response.status().is_success() {
            return Err(read_refusal(response, endpoint, idle).await);
        }
        check_content_type(response.headers(), endpoint)?;
        Ok(Self {
            response,
            decoder: SseDecoder::new(MAX_EVENT_BYTES),
            pending_events: VecDeque::new(),
            received_bytes: 0,
        })
    }

    /// Returns the type and the data of the next event that has data; `None` at the end of the answer.
    pub(super) async fn next(
        &mut self,
        idle: Duration,
    ) -> Result<Option<(Option<String>, String)>, EndpointError> {
        loop {
            while let Some(SseEvent { event, data, .. }) = self.pending_events.pop_front() {
                let Some(data) = data.filter(|data| !data.is_empty()) else { continue };
                let not_text =
                    |error| EndpointError::new(RequestFailure::Unusable, format!("it is not text ({error})"));
                return Ok(Some((event, String::from_utf8(data).map_err(not_text)?)));
            }
            let timed_out =
                |_| EndpointError::new(RequestFailure::TimedOut, format!("nothing came for {idle:?}"));
            let truncated = |error| EndpointError::new(RequestFailure::Truncated, error_chain(error));
            let chunk = timeout(idle, self.response.chunk()).await.map_err(timed_out)?.map_err(truncated)?;
            let Some(chunk) = chunk else { return Ok(None) };
            let too_large = |subject: &str, limit: usize| {
                EndpointError::new(RequestFailure::Unusable, format!("{subject} has more than {limit} bytes"))
            };
            self.received_bytes = self.received_bytes.saturating_add(chunk.len());
            if self.received_bytes > MAX_REPLY_BYTES {
                return Err(too_large("the reply", MAX_REPLY_BYTES));
            }
            let events = self.decoder.push(&chunk);
            self.pending_events = events.map_err(|error| too_large("an event of the reply", error.limit))?;
        }
    }
}

/// Rejects a successful answer that is not an event stream.
fn check_content_type(headers: &HeaderMap, endpoint: &Endpoint) -> Result<(), EndpointError> {
    let (encoding, kind) = (header_text(headers, CONTENT_ENCODING), header_text(headers, CONTENT_TYPE));
    let origin = endpoint.origin();
    let reason = if !matches!(encoding, "" | "identity") {
        format!("it is compressed ({encoding}), which was not asked for")
    } else if kind.starts_with("text/html") {
        format!("{origin} answers with a web page: is the base URL right?")
    } else if kind.starts_with("application/json") {
        format!("{origin} answers without streaming, which it was asked for")
    } else {
        return Ok(());
    };
    Err(EndpointError::new(RequestFailure::Unusable, reason))
}

/// Returns the provider's error.
async fn read_refusal(response: Response, endpoint: &Endpoint, idle: Duration) -> EndpointError {
    let status = response.status();
    if status.is_redirection() {
        let target = endpoint
            .base_url
            .join(header_text(response.headers(), LOCATION))
            .map(|target| base_url::origin(&target));
        let target = target.unwrap_or_default();
        let message = format!(
            "it redirects to {target}, where the key is not sent: if that is right, make it the base URL"
        );
        return EndpointError::new(RequestFailure::Refused, message);
    }
    let retry_after = retry_after(response.headers());
    let body = read_body(response, MAX_ERROR_BYTES, idle).await;
    let body = String::from_utf8_lossy(&body);
    let reason = retry::error_message(&body);
    let message = if reason.is_empty() { status.to_string() } else { format!("{status}: {reason}") };
    EndpointError {
        retry_after,
        ..EndpointError::new(retry::classify_status(status.as_u16(), &body), message)
    }
}

/// Returns how long the provider asks to wait.
fn retry_after(headers: &HeaderMap) -> Option<Duration> {
    if let Ok(milliseconds) = header_text(headers, HeaderName::from_static("retry-after-ms")).trim().parse() {
        return Some(Duration::from_millis(milliseconds));
    }
    retry::parse_retry_after(header_text(headers, RETRY_AFTER), since_epoch().as_secs())
}

/// Returns a header; an empty string if it is missing or not text.
fn header_text(headers: &HeaderMap, name: HeaderName) -> &str {
    headers.get(name).and_then(|value| value.to_str().ok()).unwrap_or_default()
}

/// Returns an error with its sources, without the URL, which may contain a secret.
fn error_chain(error: reqwest::Error) -> String {
    let error = error.without_url();
    let mut chain = error.to_string();
    for source in std::iter::successors(error.source(), |error| (*error).source()) {
        let next = source.to_string();
        if !chain.contains(&next) {
            chain.push_str(&format!(": {next}"));
        }
    }
    chain
}
