//! Models served by a provider over HTTP.

mod anthropic;
mod content;
mod gemini;
mod openai;
mod reply;
mod transport;

use std::fmt;
use std::hash::{BuildHasher as _, RandomState};
use std::sync::Arc;

use bowline_conversation::retry::{self, FailedAttempt, RequestFailure, RetryDecision};
use futures_util::future::BoxFuture;
use reqwest::RequestBuilder;
use tokio::sync::OnceCell;
use tokio::time::Instant;

use self::reply::ReplyReader;
use self::transport::EventStream;
use super::endpoint::{Endpoint, EndpointError};
use super::http_clients::{self, HttpClients};
use super::provider::Provider;
use super::reply_sender::{ReplySender, reply_from_fn};
use super::{
    Model, ModelError, ModelInfo, ModelRequest, ReplyEvent, ReplyStream, context_window, tools_as_text,
};
use crate::model::keys::{ApiKey, KeySource};

/// A model served by a provider.
#[derive(Clone)]
pub struct RemoteModel {
    http: HttpClients,
    info: ModelInfo,
    endpoint: Endpoint,
    // The provider's name for the model.
    provider_name: String,
    client: reqwest::Client,
    // The properties fetched from the server, if it was asked.
    server_info: Arc<OnceCell<ModelInfo>>,
}

impl RemoteModel {
    /// Returns a model. `name` is the provider's name for it.
    ///
    /// # Errors
    /// Fails if the base URL is invalid, or if the HTTP client cannot be built.
    pub fn new(
        http: HttpClients,
        info: ModelInfo,
        provider: Provider,
        name: &str,
        base_url: &str,
        key: Option<(ApiKey, KeySource)>,
    ) -> Result<Self, ModelError> {
        let unknown = |why| ModelError::Unknown { name: info.name.clone(), why };
        let endpoint = Endpoint::new(provider, base_url, key).map_err(unknown)?;
        let client = http.client(&endpoint.base_url)?;
        Ok(Self { http, info, endpoint, provider_name: name.to_owned(), client, server_info: Arc::default() })
    }

    async fn send_with_retries(
        self,
        request: ModelRequest,
        mut sender: ReplySender,
    ) -> Result<(), ModelError> {
        let overall = self.http.timeouts.overall;
        let deadline = Instant::now() + overall;
        let mut number = 1;
        loop {
            let mut reader = ReplyReader::new(self.endpoint.provider, self.info(), &request, &mut sender);
            let attempt = tokio::time::timeout_at(deadline, self.send_once(&request, &mut reader)).await;
            let is_reply_shown = reader.has_output;
            let failure = match attempt {
                Ok(Ok(())) => return Ok(()),
                Ok(Err(failure)) => self.endpoint.redact(failure),
                Err(_) => return Err(ModelError::TimedOut(format!("{overall:?} have passed"))),
            };
            let EndpointError { kind, retry_after, .. } = failure;
            let attempt = FailedAttempt { number, failure: kind, retry_after, is_reply_shown };
            // A self-hosted server that timed out will be as slow again; the one retry is for a busy one.
            let is_hopeless =
                kind == RequestFailure::TimedOut && self.endpoint.is_self_hosted() && number > 1;
            match retry::decide_retry(&self.http.retry_limits, &attempt, random_fraction()) {
                RetryDecision::RetryAfter(wait) if !is_hopeless && Instant::now() + wait < deadline => {
                    sender.send(ReplyEvent::Retrying { why: failure.reason, wait, attempt: number }).await;
                    tokio::time::sleep(wait).await;
                    number += 1;
                }
                RetryDecision::RetryAfter(_) | RetryDecision::Stop => {
                    return Err(self.endpoint.to_model_error(&self.info.name, failure));
                }
            }
        }
    }

    /// Sends the request once.
    async fn send_once(
        &self,
        request: &ModelRequest,
        reader: &mut ReplyReader<'_>,
    ) -> Result<(), EndpointError> {
        let timeouts = self.http.timeouts;
        let first_timeouts =
            if self.endpoint.is_self_hosted() { timeouts.extended_for_self_hosted() } else { timeouts };
        let mut events =
            EventStream::open(self.build_request(request), &self.endpoint, first_timeouts).await?;
        reader.read(&mut events, first_timeouts, timeouts).await
    }

    /// Returns the request in the provider's wire format.
    fn build_request(&self, request: &ModelRequest) -> RequestBuilder {
        let (name, info) = (self.provider_name.as_str(), self.info());
        let request = &*tools_as_text::request_for_model(info, request);
        let (path, body) = match self.endpoint.provider {
            Provider::Anthropic => ("messages".to_owned(), anthropic::request_body(name, info, request)),
            Provider::Gemini => {
                (format!("models/{name}:streamGenerateContent"), gemini::request_body(name, info, request))
            }
            provider => {
                (openai::chat_path(provider).to_owned(), openai::request_body(provider, name, info, request))
            }
        };
        let mut url = self.endpoint.url(&path);
        if self.endpoint.provider == Provider::Gemini {
            url.query_pairs_mut().append_pair("alt", "sse");
        }
        self.endpoint.authorize(self.client.post(url)).json(&body)
    }

    /// Returns the model's properties, with the context window of its server unless the user has set one.
    async fn fetch_info_with_window(&self) -> Result<ModelInfo, context_window::WindowUnknown> {
        let (info, provider) = (self.info.clone(), self.endpoint.provider);
        let Some(path) = context_window::query_path(provider, &info) else { return Ok(info) };
        if let Some((path, body)) = context_window::load_request(provider, &self.provider_name) {
            let load_request = self.endpoint.authorize(self.client.post(self.endpoint.url(path))).json(&body);
            http_clients::fetch_json(load_request, self.http.timeouts.local_headers)
                .await
                .ok_or(context_window::WindowUnknown)?;
        }
        let request = self.endpoint.authorize(self.client.get(self.endpoint.url(path)));
        let answer = http_clients::fetch_json(request, context_window::QUERY_TIMEOUT)
            .await
            .ok_or(context_window::WindowUnknown)?;
        let window = context_window::parse_window(provider, &answer, &self.provider_name)?;
        Ok(ModelInfo { context_window: window.unwrap_or(info.context_window), ..info })
    }
}

impl fmt::Debug for RemoteModel {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Remote").field("info", &self.info).finish_non_exhaustive()
    }
}

impl Model for RemoteModel {
    fn info(&self) -> &ModelInfo {
        self.server_info.get().unwrap_or(&self.info)
    }

    fn fetch_info(&self) -> BoxFuture<'_, ()> {
        Box::pin(async move {
            // If the server could not answer, the next call asks again.
            self.server_info.get_or_try_init(|| self.fetch_info_with_window()).await.map_or_else(drop, drop);
        })
    }

    fn stream_reply(&self, request: ModelRequest) -> ReplyStream {
        let this = self.clone();
        reply_from_fn(move |sender| this.send_with_retries(request, sender))
    }
}

/// Returns a random number from 0 to 1.
fn random_fraction() -> f64 {
    let random = RandomState::new().hash_one(0_u8);
    f64::from(u32::try_from(random >> 32).unwrap_or(0)) / f64::from(u32::MAX)
}

#[cfg(test)]
mod tests;
