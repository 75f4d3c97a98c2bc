//! One request to a provider and the events of its answer, within bounds of size and time.

use std::collections::VecDeque;
use std::error::Error as _;
use std::time::{Duration, SystemTime};

use bowline_state::retry::{self, Trouble};
use bowline_state::sse::{Decoder, Event};
use reqwest::header::{CONTENT_ENCODING, CONTENT_TYPE, HeaderMap, HeaderName, LOCATION, RETRY_AFTER};
use reqwest::{RequestBuilder, Response};
use tokio::time::timeout;

use crate::model::base_url;
use crate::model::endpoint::{Endpoint, Failure};
use crate::model::net::{Timeouts, read_body};

/// The largest reply, in bytes.
const MAX_REPLY: usize = 64 << 20;
/// The largest event of a reply, in bytes.
pub(super) const MAX_EVENT: usize = 1 << 20;
/// How much of an error is read, in bytes.
const MAX_ERROR: usize = 64 << 10;

/// The events of an answer.
#[derive(Debug)]
pub(super) struct EventStream {
    response: Response,
    decoder: Decoder,
    ready: VecDeque<Event>,
    received: usize,
}

impl EventStream {
    /// Sends a request and waits until its answer begins.
    pub(super) async fn open(
        request: RequestBuilder,
        endpoint: &Endpoint,
        timeouts: Timeouts,
    ) -> Result<Self, Failure> {
        let Timeouts { headers, idle, .. } = timeouts;
        let late = |_| Failure::new(Trouble::TimedOut, format!("no answer within {headers:?}"));
        let unreachable = |error: reqwest::Error| {
            let trouble = if error.is_timeout() { Trouble::TimedOut } else { Trouble::Unreachable };
            Failure::new(trouble, error_chain(error))
        };
        let response = timeout(headers, request.send()).await.map_err(late)?.map_err(unreachable)?;
        if !response.status().is_success() {
            return Err(refusal(response, endpoint, idle).await);
        }
        check_content(response.headers(), endpoint)?;
        Ok(Self { response, decoder: Decoder::new(MAX_EVENT), ready: VecDeque::new(), received: 0 })
    }

    /// Returns the type and the data of the next event that has data; `None` is the end of the answer.
    pub(super) async fn next(&mut self, idle: Duration) -> Result<Option<(Option<String>, String)>, Failure> {
        loop {
            while let Some(Event { event, data, .. }) = self.ready.pop_front() {
                let Some(data) = data.filter(|data| !data.is_empty()) else { continue };
                let not_text = |error| Failure::new(Trouble::Unusable, format!("it is not text ({error})"));
                return Ok(Some((event, String::from_utf8(data).map_err(not_text)?)));
            }
            let late = |_| Failure::new(Trouble::TimedOut, format!("nothing came for {idle:?}"));
            let cut = |error| Failure::new(Trouble::CutShort, error_chain(error));
            let chunk = timeout(idle, self.response.chunk()).await.map_err(late)?.map_err(cut)?;
            let Some(chunk) = chunk else { return Ok(None) };
            let too_large = |what: &str, limit: usize| {
                Failure::new(Trouble::Unusable, format!("{what} has more than {limit} bytes"))
            };
            self.received = self.received.saturating_add(chunk.len());
            if self.received > MAX_REPLY {
                return Err(too_large("the reply", MAX_REPLY));
            }
            let events = self.decoder.push(&chunk);
            self.ready = events.map_err(|error| too_large("an event of the reply", error.limit))?;
        }
    }
}

/// Refuses a successful answer that is no stream of events.
fn check_content(headers: &HeaderMap, endpoint: &Endpoint) -> Result<(), Failure> {
    let (encoding, kind) = (text(headers, CONTENT_ENCODING), text(headers, CONTENT_TYPE));
    let origin = endpoint.origin();
    let why = if !matches!(encoding, "" | "identity") {
        format!("it is compressed ({encoding}), which was not asked for")
    } else if kind.starts_with("text/html") {
        format!("{origin} answers with a web page: is the base URL right?")
    } else if kind.starts_with("application/json") {
        format!("{origin} answers without streaming, which it was asked for")
    } else {
        return Ok(());
    };
    Err(Failure::new(Trouble::Unusable, why))
}

/// Returns why the provider refuses.
async fn refusal(response: Response, endpoint: &Endpoint, idle: Duration) -> Failure {
    let status = response.status();
    if status.is_redirection() {
        let to = endpoint.base.join(text(response.headers(), LOCATION)).map(|to| base_url::origin(&to));
        let to = to.unwrap_or_default();
        let why = format!(
            "it redirects to {to}, where the key is not sent: if that is right, make it the base URL"
        );
        return Failure::new(Trouble::Refused, why);
    }
    let retry_after = retry_after(response.headers());
    let body = read_body(response, MAX_ERROR, idle).await;
    let body = String::from_utf8_lossy(&body);
    let reason = retry::error_message(&body);
    let why = if reason.is_empty() { status.to_string() } else { format!("{status}: {reason}") };
    Failure { retry_after, ..Failure::new(retry::judge_status(status.as_u16(), &body), why) }
}

/// Returns how long a provider asks us to wait.
fn retry_after(headers: &HeaderMap) -> Option<Duration> {
    if let Ok(milliseconds) = text(headers, HeaderName::from_static("retry-after-ms")).trim().parse() {
        return Some(Duration::from_millis(milliseconds));
    }
    let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).map_or(0, |now| now.as_secs());
    retry::retry_after(text(headers, RETRY_AFTER), now)
}

/// Returns a header; an empty text if it is missing or is no text.
fn text(headers: &HeaderMap, name: HeaderName) -> &str {
    headers.get(name).and_then(|value| value.to_str().ok()).unwrap_or_default()
}

/// Returns an error with the errors behind it, without the URL, which may hold a secret.
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
