//! Models that a provider serves over HTTP.

mod anthropic;
mod content;
mod gemini;
mod openai;
mod reply;
mod transport;

use std::fmt;
use std::hash::{BuildHasher as _, RandomState};
use std::pin::Pin;
use std::sync::Arc;

use bowline_state::retry::{self, Attempt, Decision, Trouble};
use reqwest::RequestBuilder;
use tokio::sync::OnceCell;
use tokio::time::Instant;

use self::reply::ReplyReader;
use self::transport::EventStream;
use super::endpoint::{Endpoint, Failure};
use super::net::{self, Net};
use super::provider::Provider;
use super::speak::{Voice, reply};
use super::{Event, Model, ModelError, ModelInfo, Reply, Request, window};
use crate::keys::{Key, Source};

/// A model that a provider serves.
#[derive(Clone)]
pub struct Remote {
    net: Net,
    info: ModelInfo,
    endpoint: Endpoint,
    // The name as the provider has it.
    name: String,
    client: reqwest::Client,
    // What the server said of it, if it was asked.
    learned: Arc<OnceCell<ModelInfo>>,
}

impl Remote {
    /// Returns a model. `name` is the provider's own.
    ///
    /// # Errors
    /// Fails if the base URL is none, or is one that this machine cannot talk to.
    pub fn new(
        net: Net,
        info: ModelInfo,
        provider: Provider,
        name: &str,
        base_url: &str,
        key: Option<(Key, Source)>,
    ) -> Result<Self, ModelError> {
        let unusable = |why| ModelError::Unknown { name: info.name.clone(), why };
        let endpoint = Endpoint::new(provider, base_url, key).map_err(unusable)?;
        let client = net.client(&endpoint.base)?;
        Ok(Self { net, info, endpoint, name: name.to_owned(), client, learned: Arc::default() })
    }

    async fn speak(self, request: Request, mut voice: Voice) -> Result<(), ModelError> {
        let overall = self.net.timeouts.overall;
        let deadline = Instant::now() + overall;
        let mut number = 1;
        loop {
            let mut reader = ReplyReader::new(self.endpoint.provider, &request, &mut voice);
            let attempt = tokio::time::timeout_at(deadline, self.attempt(&request, &mut reader)).await;
            let shown = reader.has_shown;
            let failure = match attempt {
                Ok(Ok(())) => return Ok(()),
                Ok(Err(failure)) => self.endpoint.redact(failure),
                Err(_) => return Err(ModelError::TimedOut(format!("{overall:?} have passed"))),
            };
            let Failure { trouble, retry_after, .. } = failure;
            let attempt = Attempt { number, trouble, retry_after, shown };
            // A server of one's own that was too slow is as slow the next time; once more is for one that was busy.
            let is_hopeless = trouble == Trouble::TimedOut && self.endpoint.is_own() && number > 1;
            match retry::decide(&self.net.retries, &attempt, chance()) {
                Decision::Again(wait) if !is_hopeless && Instant::now() + wait < deadline => {
                    voice.say(Event::Retrying { why: failure.why, wait, attempt: number }).await;
                    tokio::time::sleep(wait).await;
                    number += 1;
                }
                Decision::Again(_) | Decision::Stop => {
                    return Err(self.endpoint.error(&self.info.name, failure));
                }
            }
        }
    }

    /// Makes the request once.
    async fn attempt(&self, request: &Request, reader: &mut ReplyReader<'_>) -> Result<(), Failure> {
        let usual = self.net.timeouts;
        let first = if self.endpoint.is_own() { usual.extended() } else { usual };
        let mut events = EventStream::open(self.post(request), &self.endpoint, first).await?;
        reader.read(&mut events, first, usual).await
    }

    /// Returns the request in the provider's wire format.
    fn post(&self, request: &Request) -> RequestBuilder {
        let (name, info) = (self.name.as_str(), self.info());
        let (path, body) = match self.endpoint.provider {
            Provider::Anthropic => ("messages".to_owned(), anthropic::body(name, info, request)),
            Provider::Gemini => {
                (format!("models/{name}:streamGenerateContent"), gemini::body(name, info, request))
            }
            provider => (openai::path(provider).to_owned(), openai::body(provider, name, info, request)),
        };
        let mut url = self.endpoint.url(&path);
        if self.endpoint.provider == Provider::Gemini {
            url.query_pairs_mut().append_pair("alt", "sse");
        }
        self.endpoint.authorize(self.client.post(url)).json(&body)
    }

    /// Returns what is known of the model, with the window that its server has for it, if the user has set no other.
    async fn ask_window(&self) -> Result<ModelInfo, window::WindowUnknown> {
        let (info, provider) = (self.info.clone(), self.endpoint.provider);
        let Some(path) = window::path(provider, &info) else { return Ok(info) };
        if let Some((path, body)) = window::load(provider, &self.name) {
            let load = self.endpoint.authorize(self.client.post(self.endpoint.url(path))).json(&body);
            net::fetch_json(load, self.net.timeouts.local_headers).await.ok_or(window::WindowUnknown)?;
        }
        let request = self.endpoint.authorize(self.client.get(self.endpoint.url(path)));
        let answer = net::fetch_json(request, window::PATIENCE).await.ok_or(window::WindowUnknown)?;
        let window = window::find(provider, &answer, &self.name)?;
        Ok(ModelInfo { window: window.unwrap_or(info.window), ..info })
    }
}

impl fmt::Debug for Remote {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Remote").field("info", &self.info).finish_non_exhaustive()
    }
}

impl Model for Remote {
    fn info(&self) -> &ModelInfo {
        self.learned.get().unwrap_or(&self.info)
    }

    fn learn(&self) -> Pin<Box<dyn Future<Output = ()> + Send + '_>> {
        Box::pin(async move {
            // A server that could not say it is asked again.
            self.learned.get_or_try_init(|| self.ask_window()).await.map_or_else(drop, drop);
        })
    }

    fn ask(&self, request: Request) -> Reply {
        let this = self.clone();
        reply(move |voice| this.speak(request, voice))
    }
}

/// Returns a number from 0 to 1 that nobody can foretell.
fn chance() -> f64 {
    let random = RandomState::new().hash_one(0_u8);
    f64::from(u32::try_from(random >> 32).unwrap_or(0)) / f64::from(u32::MAX)
}

#[cfg(test)]
mod tests;
