//! The server of a provider: where it is, how it is asked, and what its failures mean to a person.

use std::time::Duration;

use bowline_state::retry::Trouble;
use reqwest::{RequestBuilder, Url};

use super::provider::Provider;
use super::{ModelError, base_url};
use crate::keys::{Key, Source};

/// The version of Anthropic's API.
const ANTHROPIC_VERSION: &str = "2023-06-01";

/// The server of a provider.
#[derive(Clone)]
pub(super) struct Endpoint {
    pub(super) provider: Provider,
    pub(super) base: Url,
    key: Option<(Key, Source)>,
}

/// Why a request failed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Failure {
    pub(super) trouble: Trouble,
    pub(super) why: String,
    pub(super) retry_after: Option<Duration>,
}

impl Failure {
    pub(super) fn new(trouble: Trouble, why: impl Into<String>) -> Self {
        Self { trouble, why: why.into(), retry_after: None }
    }
}

impl Endpoint {
    /// Returns the server at a base URL. The error says what is wrong with the URL.
    pub(super) fn new(
        provider: Provider,
        base_url: &str,
        key: Option<(Key, Source)>,
    ) -> Result<Self, String> {
        let base = base_url::parse(provider, base_url).map_err(|why| {
            let (base_url, variable) = (base_url::redact(base_url), provider.url_variable());
            format!("`{base_url}` is no base URL ({why}): give another with `--base-url` or {variable}")
        })?;
        Ok(Self { provider, base, key })
    }

    /// Says whether people run the server themselves.
    pub(super) fn is_own(&self) -> bool {
        !self.provider.needs_key()
    }

    /// Returns where the server is, without what may be secret in its address.
    pub(super) fn origin(&self) -> String {
        base_url::origin(&self.base)
    }

    /// Returns the URL of a path below the base URL.
    pub(super) fn url(&self, path: &str) -> Url {
        base_url::join(&self.base, path)
    }

    /// Returns a request with the headers that the provider wants.
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

    /// Returns a failure without the key in it: servers quote what they were sent.
    pub(super) fn redact(&self, failure: Failure) -> Failure {
        match &self.key {
            Some((key, _)) => Failure { why: key.hide(&failure.why), ..failure },
            None => failure,
        }
    }

    /// Returns a failure of a model as a person is told of it, with what to do about it.
    pub(super) fn error(&self, model: &str, failure: Failure) -> ModelError {
        let Failure { trouble, why, retry_after } = failure;
        let (id, variable, url_variable) =
            (self.provider.id(), self.provider.variable(), self.provider.url_variable());
        let origin = self.origin();
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
                let base = format!("{origin}{}", self.base.path());
                let why = format!(
                    "{why}; check the name, and whether {base} is the base URL (`--base-url` or {url_variable})"
                );
                ModelError::Unknown { name: model.to_owned(), why }
            }
            Trouble::RateLimited | Trouble::Overloaded => ModelError::Busy { why, retry_after },
            Trouble::Unreachable => {
                let check = match self.provider {
                    Provider::Ollama => "check that Ollama runs there",
                    Provider::Compatible => "check that the server runs there",
                    Provider::Anthropic | Provider::OpenAi | Provider::Gemini => "check the network",
                };
                ModelError::Unreachable(format!(
                    "{why}; {check}, or give another place than {origin} with `--base-url` or {url_variable}"
                ))
            }
            Trouble::TimedOut => ModelError::TimedOut(format!("{why} from {origin}")),
            Trouble::CutShort => ModelError::CutShort(why),
            Trouble::Unreadable | Trouble::Unusable => ModelError::Unusable(why),
        }
    }
}
