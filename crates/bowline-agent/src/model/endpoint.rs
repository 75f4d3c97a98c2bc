//! The server of a provider: its URL, its headers, and its errors for the user.

use std::time::Duration;

use bowline_conversation::retry::RequestFailure;
use reqwest::{RequestBuilder, Url};

use super::provider::Provider;
use super::{ModelError, base_url};
use crate::model::keys::{ApiKey, KeySource};

/// The version of Anthropic's API.
const ANTHROPIC_VERSION: &str = "2023-06-01";

/// The server of a provider.
#[derive(Clone)]
pub(super) struct Endpoint {
    pub(super) provider: Provider,
    pub(super) base_url: Url,
    key: Option<(ApiKey, KeySource)>,
}

/// Why a request failed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct EndpointError {
    pub(super) kind: RequestFailure,
    pub(super) reason: String,
    pub(super) retry_after: Option<Duration>,
}

impl EndpointError {
    pub(super) fn new(kind: RequestFailure, reason: impl Into<String>) -> Self {
        Self { kind, reason: reason.into(), retry_after: None }
    }
}

impl Endpoint {
    /// Returns the server at a base URL. Fails if the URL is invalid.
    pub(super) fn new(
        provider: Provider,
        base_url: &str,
        key: Option<(ApiKey, KeySource)>,
    ) -> Result<Self, String> {
        let base = base_url::parse(provider, base_url).map_err(|reason| {
            let (base_url, variable) = (base_url::redact(base_url), provider.url_variable());
            format!("`{base_url}` is no base URL ({reason}): give another with `--base-url` or {variable}")
        })?;
        Ok(Self { provider, base_url: base, key })
    }

    /// Returns whether the server is self-hosted.
    pub(super) fn is_self_hosted(&self) -> bool {
        !self.provider.needs_key()
    }

    /// Returns the server's origin, without secrets in the URL.
    pub(super) fn origin(&self) -> String {
        base_url::origin(&self.base_url)
    }

    /// Returns the URL of a path below the base URL.
    pub(super) fn url(&self, path: &str) -> Url {
        base_url::join(&self.base_url, path)
    }

    /// Adds the provider's headers to a request.
    pub(super) fn authorize(&self, request: RequestBuilder) -> RequestBuilder {
        let request = match self.provider {
            Provider::Anthropic => request.header("anthropic-version", ANTHROPIC_VERSION),
            Provider::OpenAi | Provider::Gemini | Provider::Ollama | Provider::Compatible => request,
        };
        let Some((key, _)) = &self.key else { return request };
        match self.provider {
            Provider::Anthropic => request.header("x-api-key", key.reveal()),
            Provider::Gemini => request.header("x-goog-api-key", key.reveal()),
            Provider::OpenAi | Provider::Ollama | Provider::Compatible => request.bearer_auth(key.reveal()),
        }
    }

    /// Removes the API key from a failure: servers quote what they were sent.
    pub(super) fn redact(&self, failure: EndpointError) -> EndpointError {
        match &self.key {
            Some((key, _)) => EndpointError { reason: key.redact(&failure.reason), ..failure },
            None => failure,
        }
    }

    /// Converts a failure into an error for the user, with advice.
    pub(super) fn to_model_error(&self, model: &str, failure: EndpointError) -> ModelError {
        let EndpointError { kind, reason, retry_after } = failure;
        let (id, variable, url_variable) =
            (self.provider.id(), self.provider.key_variable(), self.provider.url_variable());
        let origin = self.origin();
        match kind {
            RequestFailure::Unauthorized => {
                let advice = match &self.key {
                    None => {
                        let (provider, variable) = (id.to_owned(), variable.to_owned());
                        return ModelError::NoKey { provider, variable };
                    }
                    Some((_, KeySource::Provided)) => {
                        format!("replace the key in {variable}, which comes before a stored one")
                    }
                    Some((_, KeySource::Stored)) => {
                        format!("replace the stored key with `bowline agent --login {id}`")
                    }
                };
                let provider = self.provider.title().to_owned();
                ModelError::Unauthorized { provider, why: format!("{reason}; {advice}") }
            }
            RequestFailure::TooLong => ModelError::TooLong(reason),
            RequestFailure::Refused => ModelError::Refused(reason),
            RequestFailure::NotFound => {
                let base = format!("{origin}{}", self.base_url.path());
                let reason = format!(
                    "{reason}; check the name, and whether {base} is the base URL (`--base-url` or {url_variable})"
                );
                ModelError::Unknown { name: model.to_owned(), why: reason }
            }
            RequestFailure::RateLimited | RequestFailure::Overloaded => {
                ModelError::Busy { why: reason, retry_after }
            }
            RequestFailure::Unreachable => {
                let check = match self.provider {
                    Provider::Ollama => "check that Ollama runs there",
                    Provider::Compatible => "check that the server runs there",
                    Provider::Anthropic | Provider::OpenAi | Provider::Gemini => "check the network",
                };
                ModelError::Unreachable(format!(
                    "{reason}; {check}, or give another place than {origin} with `--base-url` or {url_variable}"
                ))
            }
            RequestFailure::TimedOut => ModelError::TimedOut(format!("{reason} from {origin}")),
            RequestFailure::Truncated => ModelError::CutShort(reason),
            RequestFailure::Unreadable | RequestFailure::Unusable => ModelError::Unusable(reason),
        }
    }
}
