//! Models over the network, asked through `genai`.
//!
//! `genai` knows how each provider wants to be asked and how it answers. What it does not do is done here: a reply that
//! ends without its end is cut short, the first error is the last event, calls are put together with caps, and all
//! bytes go through a gate that counts and times them.

mod convert;
mod frames;
mod gate;
mod learning;
mod reading;

use std::fmt;
use std::hash::{BuildHasher as _, RandomState};
use std::pin::Pin;
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use bowline_state::retry::{self, Attempt, Decision, Limits, Trouble};
use genai::adapter::AdapterKind;
use genai::resolver::{AuthData, Endpoint};
use genai::{ModelIden, ServiceTarget};
use reqwest::Url;
use reqwest::redirect::Policy;
use tokio::sync::OnceCell;
use tokio::time::Instant;

use self::gate::{Authorization, Gate};
use self::reading::Reading;
use super::provider::Provider;
use super::speak::{Voice, reply};
use super::{Event, Model, ModelError, ModelInfo, Reply, Request};
use crate::keys::{Key, Source};

pub use self::frames::{MAX_ARGUMENTS, MAX_CALLS};
pub use self::gate::{MAX_EVENT, MAX_REPLY};

/// How long a model may keep us waiting.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Timeouts {
    /// Until there is a connection.
    pub connect: Duration,
    /// Until an answer begins.
    pub headers: Duration,
    /// Until an answer begins, and until there is something in it, of servers that people run themselves: those first
    /// read the whole conversation, slowly.
    pub local_headers: Duration,
    /// From one byte to the next.
    pub idle: Duration,
    /// From one piece of the reply to the next, with signs of life between them or not.
    pub silence: Duration,
    /// For all of it, with every attempt.
    pub overall: Duration,
}

impl Default for Timeouts {
    fn default() -> Self {
        Self {
            connect: Duration::from_secs(15),
            headers: Duration::from_secs(120),
            local_headers: Duration::from_secs(900),
            idle: Duration::from_secs(120),
            silence: Duration::from_secs(600),
            overall: Duration::from_secs(3_600),
        }
    }
}

/// What remote models share: connections, and how patient they are. Clones are the same one.
#[derive(Debug, Clone)]
pub struct Net {
    // Talk to providers: on this machine, which no proxy knows, and elsewhere. Made when the first one is needed.
    // Invariant: failures are told as what to do about them.
    here: Arc<OnceLock<Result<reqwest::Client, String>>>,
    elsewhere: Arc<OnceLock<Result<reqwest::Client, String>>>,
    // Talks to the gate, and to nothing else.
    inner: genai::Client,
    timeouts: Timeouts,
    retries: Limits,
}

impl Net {
    /// Returns what remote models share.
    ///
    /// The provider of cryptography can only be set for the whole process; ring is, if nothing else was before.
    ///
    /// # Errors
    /// Fails if there can be no HTTP client at all.
    pub fn new(timeouts: Timeouts, retries: Limits) -> Result<Self, ModelError> {
        let _set_before = rustls::crypto::ring::default_provider().install_default();
        let unusable = |error: reqwest::Error| ModelError::Unreachable(gate::chain(&error));
        // It never speaks TLS, so it needs no certificates: reading those takes its time.
        let inner = builder()
            .tls_certs_only([])
            .no_proxy()
            .http1_only()
            .pool_max_idle_per_host(0)
            .build()
            .map_err(unusable)?;
        let inner = genai::Client::builder()
            .with_reqwest(inner)
            .build()
            .map_err(|error| ModelError::Unreachable(error.to_string()))?;
        let (here, elsewhere) = Default::default();
        Ok(Self { here, elsewhere, inner, timeouts, retries })
    }

    /// Returns what talks to a server. A machine without certificates can still talk to those that need none.
    fn client(&self, base: &Url) -> Result<reqwest::Client, ModelError> {
        let local = here(base);
        let outward = || {
            let agent = concat!("bowline/", env!("CARGO_PKG_VERSION"));
            let client = builder().connect_timeout(self.timeouts.connect).user_agent(agent);
            if local { client.no_proxy() } else { client }
        };
        let plain = || {
            let made = outward().tls_certs_only([]).build();
            made.map_err(|error| ModelError::Unreachable(gate::chain(&error)))
        };
        if local && base.scheme() == "http" {
            return plain();
        }
        let kept = if local { &self.here } else { &self.elsewhere };
        let made = kept.get_or_init(|| {
            outward().build().map_err(|error| {
                format!("{}; install ca-certificates or set SSL_CERT_FILE", gate::chain(&error))
            })
        });
        match made {
            Ok(client) => Ok(client.clone()),
            Err(_) if base.scheme() == "http" => plain(),
            Err(why) => Err(ModelError::Unreachable(why.clone())),
        }
    }
}

/// Returns how every client begins: a redirect would take the key to another host, and compressed bodies are counted
/// before they grow.
fn builder() -> reqwest::ClientBuilder {
    reqwest::Client::builder().redirect(Policy::none()).no_gzip()
}

/// A model that a provider serves.
#[derive(Clone)]
pub struct Remote {
    net: Net,
    info: ModelInfo,
    provider: Provider,
    // The name as the provider has it.
    name: String,
    base: Url,
    client: reqwest::Client,
    key: Option<(Key, Source)>,
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
        let base = base(provider, base_url).map_err(|why| ModelError::Unknown {
            name: info.name.clone(),
            why: format!(
                "`{}` is no base URL ({why}): give another with `--base-url` or {}",
                without_secrets(base_url),
                provider.url_variable()
            ),
        })?;
        let client = net.client(&base)?;
        Ok(Self { net, info, provider, name: name.to_owned(), base, client, key, learned: Arc::default() })
    }

    async fn speak(self, request: Request, mut voice: Voice) -> Result<(), ModelError> {
        let timeouts = self.net.timeouts;
        let deadline = Instant::now() + timeouts.overall;
        let mut number = 1;
        loop {
            let mut shown = false;
            let attempt = self.attempt(&request, &mut voice, &mut shown);
            let failure = match tokio::time::timeout_at(deadline, attempt).await {
                Ok(Ok(())) => return Ok(()),
                Ok(Err(failure)) => self.without_key(failure),
                Err(_) => return Err(ModelError::TimedOut(format!("{:?} have passed", timeouts.overall))),
            };
            let Failure { trouble, retry_after, .. } = failure;
            let attempt = Attempt { number, trouble, retry_after, shown };
            // A machine of one's own that was too slow is as slow the next time; once more is for one that was busy.
            let hopeless = trouble == Trouble::TimedOut && self.is_own() && number > 1;
            match retry::decide(&self.net.retries, &attempt, chance()) {
                Decision::Again(wait) if !hopeless && Instant::now() + wait < deadline => {
                    voice.say(Event::Retrying { why: failure.why, wait, attempt: number }).await;
                    tokio::time::sleep(wait).await;
                    number += 1;
                }
                Decision::Again(_) | Decision::Stop => return Err(self.told(failure)),
            }
        }
    }

    /// Makes the request once.
    async fn attempt(&self, request: &Request, voice: &mut Voice, shown: &mut bool) -> Result<(), Failure> {
        let timeouts = self.net.timeouts;
        let local = self.is_own();
        let gate = Gate {
            client: self.client.clone(),
            base: self.base.clone(),
            authorization: match (&self.key, self.provider) {
                (None, _) => Authorization::Nothing,
                (Some((key, _)), Provider::Ollama) => Authorization::Bearer(key.clone()),
                (Some(_), _) => Authorization::AsAsked,
            },
            window: (self.provider == Provider::Ollama).then_some(self.info().window),
            headers: if local { timeouts.local_headers } else { timeouts.headers },
            first: if local { timeouts.local_headers.max(timeouts.idle) } else { timeouts.idle },
            idle: timeouts.idle,
            lines: self.provider == Provider::Ollama,
        };
        let (url, mut passing) = gate.open().await?;
        let first = if local { timeouts.local_headers.max(timeouts.silence) } else { timeouts.silence };
        let mut reading = Reading::new(self.provider, request, first, timeouts.silence);
        let chat = convert::chat(self.provider, self.info(), request);
        let options = convert::options(self.provider, &self.name, self.info(), request)
            .with_raw_frame_sink_arc(reading.sink());
        let key = self.key.as_ref().map_or("none", |(key, _)| key.reveal());
        let target = ServiceTarget {
            endpoint: Endpoint::from_owned(url),
            auth: AuthData::from_single(key),
            model: ModelIden::new(adapter(self.provider), self.name.as_str()),
        };
        let asked = self.net.inner.exec_chat_stream(target, chat, Some(&options)).await;
        let stream = asked.map_err(|error| Failure::new(Trouble::Refused, error.to_string()))?.stream;
        reading.read(stream, &mut passing, voice, shown).await
    }

    /// Servers quote what they were sent.
    fn without_key(&self, failure: Failure) -> Failure {
        match &self.key {
            Some((key, _)) => Failure { why: key.hide(&failure.why), ..failure },
            None => failure,
        }
    }

    /// Says whether people run this server themselves.
    fn is_own(&self) -> bool {
        !self.provider.needs_key()
    }

    fn told(&self, failure: Failure) -> ModelError {
        let Failure { trouble, why, retry_after } = failure;
        let (id, variable) = (self.provider.id(), self.provider.variable());
        let url_variable = self.provider.url_variable();
        let place = gate::place(&self.base);
        match trouble {
            Trouble::Unauthorized => {
                let advice = match &self.key {
                    None => {
                        let (provider, variable) = (id.to_owned(), variable.to_owned());
                        return ModelError::NoKey { provider, variable };
                    }
                    Some((_, Source::Given)) => {
                        format!("replace the key in {variable}, which comes before a stored one")
                    }
                    Some((_, Source::Stored)) => {
                        format!("replace the stored key with `bowline agent --login {id}`")
                    }
                };
                let provider = self.provider.title().to_owned();
                ModelError::Unauthorized { provider, why: format!("{why}; {advice}") }
            }
            Trouble::TooLong => ModelError::TooLong(why),
            Trouble::Refused => ModelError::Refused(why),
            Trouble::Missing => {
                let base = format!("{place}{}", self.base.path());
                let why = format!(
                    "{why}; check the name, and whether {base} is the base URL (`--base-url` or {url_variable})"
                );
                ModelError::Unknown { name: self.info.name.clone(), why }
            }
            Trouble::RateLimited | Trouble::Overloaded => ModelError::Busy { why, retry_after },
            Trouble::Unreachable => {
                let check = match self.provider {
                    Provider::Ollama => "check that Ollama runs there",
                    Provider::Compatible => "check that the server runs there",
                    Provider::Anthropic | Provider::OpenAi | Provider::Gemini => "check the network",
                };
                ModelError::Unreachable(format!(
                    "{why}; {check}, or give another place than {place} with `--base-url` or {url_variable}"
                ))
            }
            Trouble::TimedOut => ModelError::TimedOut(format!("{why} from {place}")),
            Trouble::CutShort => ModelError::CutShort(why),
            Trouble::Unreadable | Trouble::Unusable => ModelError::Unusable(why),
        }
    }
}

impl fmt::Debug for Remote {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Remote")
            .field("info", &self.info)
            .field("provider", &self.provider)
            .finish_non_exhaustive()
    }
}

impl Model for Remote {
    fn info(&self) -> &ModelInfo {
        self.learned.get().unwrap_or(&self.info)
    }

    fn learn(&self) -> Pin<Box<dyn Future<Output = ()> + Send + '_>> {
        Box::pin(async move {
            // Who could not be asked is asked again.
            self.learned.get_or_try_init(|| self.ask_window()).await.map_or_else(drop, drop);
        })
    }

    fn ask(&self, request: Request) -> Reply {
        let this = self.clone();
        reply(move |voice| this.speak(request, voice))
    }
}

/// Why an attempt failed.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Failure {
    trouble: Trouble,
    why: String,
    retry_after: Option<Duration>,
}

impl Failure {
    fn new(trouble: Trouble, why: impl Into<String>) -> Self {
        Self { trouble, why: why.into(), retry_after: None }
    }
}

fn adapter(provider: Provider) -> AdapterKind {
    match provider {
        Provider::Anthropic => AdapterKind::Anthropic,
        Provider::OpenAi | Provider::Compatible => AdapterKind::OpenAI,
        Provider::Gemini => AdapterKind::Gemini,
        Provider::Ollama => AdapterKind::Ollama,
    }
}

/// Returns a base URL as `genai` wants it: with a scheme, with the version in its path, and with a slash at its end.
/// What people have set for a provider's own tools means here what it means there.
fn base(provider: Provider, text: &str) -> Result<Url, String> {
    let text = if provider == Provider::Ollama { ollama(text.trim()) } else { text.trim().to_owned() };
    let text = if text.contains("://") { text } else { format!("http://{text}") };
    let mut url = Url::parse(&text).map_err(|error| error.to_string())?;
    if !matches!(url.scheme(), "http" | "https") || !url.has_host() {
        return Err("it is not on the web".to_owned());
    }
    url.set_fragment(None);
    let path = url.path().trim_end_matches('/');
    // Some copy the address of the request itself.
    let ends = ["/chat/completions", "/messages", "/api/chat"];
    let path = ends.iter().find_map(|end| path.strip_suffix(end)).unwrap_or(path);
    let has_version = path.rsplit('/').next().is_some_and(|last| last.starts_with("v1"));
    let path = match provider {
        Provider::Anthropic if !has_version => format!("{path}/v1/"),
        Provider::Gemini if !has_version => format!("{path}/v1beta/"),
        Provider::Compatible if path.is_empty() => "/v1/".to_owned(),
        // Its own protocol is beside the one that has a version.
        Provider::Ollama => format!("{}/", path.strip_suffix("/v1").unwrap_or(path)),
        Provider::Anthropic | Provider::OpenAi | Provider::Gemini | Provider::Compatible => {
            format!("{path}/")
        }
    };
    url.set_path(&path);
    Ok(url)
}

/// Returns an address as Ollama reads its own variable: without a scheme the port is its own, and a server that listens
/// everywhere is asked on this machine.
fn ollama(text: &str) -> String {
    let (scheme, rest) = text.split_once("://").map_or((None, text), |(scheme, rest)| (Some(scheme), rest));
    let (place, path) = rest.split_at(rest.find('/').unwrap_or(rest.len()));
    let bare = place.parse::<std::net::Ipv6Addr>().is_ok();
    let (host, port) = match place.rsplit_once(':') {
        Some((host, port)) if !bare && !port.ends_with(']') => (host, format!(":{port}")),
        _ if scheme.is_none() => (place, ":11434".to_owned()),
        _ => (place, String::new()),
    };
    let host = match host {
        "" | "0.0.0.0" => "127.0.0.1".to_owned(),
        "::" | "[::]" => "[::1]".to_owned(),
        host if bare => format!("[{host}]"),
        host => host.to_owned(),
    };
    format!("{}://{host}{port}{path}", scheme.unwrap_or("http"))
}

/// Returns an address without what may be secret in it.
fn without_secrets(text: &str) -> String {
    let text = text.split(['?', '#']).next().unwrap_or_default();
    match text.rsplit_once('@') {
        Some((before, place)) => {
            let scheme = before.split_once("://").map(|(scheme, _)| format!("{scheme}://"));
            format!("{}…@{place}", scheme.unwrap_or_default())
        }
        None => text.to_owned(),
    }
}

/// Says whether a server is on this machine.
fn here(url: &Url) -> bool {
    match url.host_str().unwrap_or_default() {
        "localhost" | "[::1]" => true,
        host => host.parse::<std::net::Ipv4Addr>().is_ok_and(|address| address.is_loopback()),
    }
}

/// Returns a number from 0 to 1 that nobody can foretell.
fn chance() -> f64 {
    let random = RandomState::new().hash_one(0_u8);
    f64::from(u32::try_from(random >> 32).unwrap_or(0)) / f64::from(u32::MAX)
}

/// Shares a value between the reading and the sink that `genai` gives frames to.
type Shared<T> = Arc<std::sync::Mutex<T>>;

#[cfg(test)]
mod tests;
