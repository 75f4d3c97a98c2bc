//! Models: requests and streamed replies, the same for every provider.
//!
//! Providers speak one of three wire formats (`remote/anthropic.rs`, `openai.rs`, `gemini.rs`), each a set of pure
//! functions: a request becomes a JSON body, an event of the response becomes reply events. `remote/transport.rs` sends
//! the body and decodes events with deadlines and limits, and `remote/reply.rs` turns them into a reply. User-facing
//! errors, and the API key of each server, are in `endpoint.rs`. Signed thoughts go back only to the provider that
//! signed them.
//!
//! A small model (few parameters by its name, or a small context window) gets a short list of tools as text, two worked
//! examples and required arguments only. Calls and results are text for it (`tools_as_text.rs`), each result ends with
//! a hint for the next step, and [`bowline_conversation::text_tool_calls`] extracts the calls.

mod base_url;
pub mod catalogue;
mod context_window;
mod endpoint;
pub mod http_clients;
pub mod offline;
pub mod provider;
pub mod remote;
pub mod replay;
mod reply_sender;
pub mod script;
pub(crate) mod tools_as_text;

use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use bowline_conversation::conversation::{ConversationMessage, ThinkingLevel, TokenUsage, ToolSpec, ToolUse};
use futures_util::Stream;
use futures_util::future::BoxFuture;
use serde::{Deserialize, Serialize};

use self::provider::Provider;

/// A request to a model.
#[derive(Debug, Clone)]
pub struct ModelRequest {
    /// The system prompt.
    pub system_prompt: Arc<str>,
    /// The conversation. Every call in it has a result, and it ends with a message of the user or of tools.
    pub messages: Arc<[ConversationMessage]>,
    /// The tools it may call.
    pub tools: Arc<[ToolSpec]>,
    /// The thinking level.
    pub thinking: ThinkingLevel,
    /// The most tokens of the reply, if limited.
    pub max_output: Option<u32>,
}

/// An event of a reply.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ReplyEvent {
    /// More of its text.
    Text(String),
    /// More of its thoughts; a provider's signature, if any, comes with the last piece.
    Thought {
        /// The text.
        text: String,
        /// The provider's signature.
        signature: Option<String>,
    },
    /// A tool call. It is run only if the reply ends well: in a reply cut off by a token limit, the call may be
    /// incomplete.
    Call(ToolUse),
    /// The request failed and will be retried after a pause.
    Retrying {
        /// The failure.
        why: String,
        /// The pause.
        wait: Duration,
        /// The number of attempts so far.
        attempt: u32,
    },
    /// The token usage of the request. The last one counts.
    Usage(TokenUsage),
    /// The reply is complete, and nothing follows. A stream that ends without this was cut short.
    End(ReplyStop),
}

/// Why a reply ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ReplyStop {
    /// The model has finished, or awaits the results of its calls.
    Done,
    /// The token limit was reached.
    Length,
    /// The provider refused to continue.
    Refused,
}

/// Why there is no reply, or an incomplete one.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ModelError {
    /// No API key is set for the provider.
    #[error(
        "there is no key for {provider}: set {variable}, or store one with `bowline agent --login {provider}`"
    )]
    NoKey {
        /// The provider.
        provider: String,
        /// The environment variable for it.
        variable: String,
    },
    /// The keyring cannot be used.
    #[error("{0}")]
    Keys(String),
    /// The provider rejects the API key.
    #[error("{provider} does not accept the key: {why}")]
    Unauthorized {
        /// The provider.
        provider: String,
        /// The provider's message.
        why: String,
    },
    /// No such model exists.
    #[error("there is no model {name}: {why}")]
    Unknown {
        /// The requested name.
        name: String,
        /// The advice to the user.
        why: String,
    },
    /// The conversation exceeds the model's context window.
    #[error("the conversation does not fit the model's window: {0}")]
    TooLong(String),
    /// The reply stopped before its end.
    #[error("the reply was cut short: {0}")]
    CutShort(String),
    /// The provider is overloaded or rate-limited, even after several attempts.
    #[error("the provider is busy: {why}{when}", when = describe_retry_after(*.retry_after))]
    Busy {
        /// The provider's message.
        why: String,
        /// When the provider asks for the next attempt.
        retry_after: Option<Duration>,
    },
    /// A timeout expired without data.
    #[error("the model did not answer in time: {0}")]
    TimedOut(String),
    /// The provider rejects the request.
    #[error("the provider refuses the request: {0}")]
    Refused(String),
    /// The provider cannot be reached.
    #[error("the provider cannot be reached: {0}")]
    Unreachable(String),
    /// The reply cannot be parsed, or exceeds the size limit.
    #[error("the reply cannot be used: {0}")]
    Unusable(String),
}

/// Describes when to retry, as the end of a sentence.
fn describe_retry_after(retry_after: Option<Duration>) -> String {
    let Some(wait) = retry_after.filter(|wait| !wait.is_zero()) else { return String::new() };
    let seconds = wait.as_secs() + u64::from(wait.subsec_nanos() > 0);
    let (count, unit) = match seconds {
        0..120 => (seconds, "second"),
        120..7_200 => (seconds.div_ceil(60), "minute"),
        7_200..172_800 => (seconds.div_ceil(3_600), "hour"),
        _ => (seconds.div_ceil(86_400), "day"),
    };
    format!("; try again in {count} {unit}{}", if count == 1 { "" } else { "s" })
}

/// A streamed reply. Dropping it cancels the request.
pub type ReplyStream = Pin<Box<dyn Stream<Item = Result<ReplyEvent, ModelError>> + Send>>;

/// The known properties of a model.
#[derive(Debug, Clone, PartialEq)]
pub struct ModelInfo {
    /// Its name in the catalogue, for example `anthropic/claude-sonnet-4-5`.
    pub name: String,
    /// Its title in clients.
    pub title: String,
    /// The context window, in tokens.
    pub context_window: u64,
    /// Whether it accepts images.
    pub supports_images: bool,
    /// Whether its thinking level can be chosen.
    pub supports_thinking: bool,
    /// The price, if known.
    pub price: Option<Price>,
}

/// Models with a smaller context window count as small, in tokens.
const SMALL_WINDOW: u64 = 24_000;

/// Models with fewer parameters count as small, in billions.
const FEW_PARAMETERS: f64 = 4.0;

impl ModelInfo {
    /// Returns whether it is a small model, made for small machines. It gets a shorter prompt, with tools described as
    /// text, because it retains little context and calls tools unreliably.
    #[must_use]
    pub fn is_small(&self) -> bool {
        let Some((provider, name)) = self.name.split_once('/') else { return false };
        let may_write_calls = Provider::from_id(provider).is_some_and(Provider::may_write_calls_as_text);
        may_write_calls
            && (self.context_window < SMALL_WINDOW
                || parameter_count(name).is_some_and(|count| count < FEW_PARAMETERS))
    }
}

/// Returns the number of parameters in a model's name, in billions: 1.5 for `qwen2.5-coder:1.5b`.
fn parameter_count(name: &str) -> Option<f64> {
    let words = name.split(|c: char| !c.is_ascii_alphanumeric() && c != '.');
    words.filter_map(|word| word.strip_suffix(['b', 'B'])?.parse().ok()).next_back()
}

/// The price of a million tokens, in US dollars.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Price {
    /// Input tokens.
    pub input: f64,
    /// Input tokens read from the cache.
    pub cache_read: f64,
    /// Input tokens written to the cache.
    pub cache_write: f64,
    /// Output tokens.
    pub output: f64,
}

/// A model. Each session opens its own.
pub trait Model: Send + Sync {
    /// Returns its known properties.
    fn info(&self) -> &ModelInfo;

    /// Fetches properties that only its server knows, unless it has; [`Model::info`] returns them afterwards. If the
    /// server cannot answer now, the next call tries again.
    fn fetch_info(&self) -> BoxFuture<'_, ()> {
        Box::pin(std::future::ready(()))
    }

    /// Sends a request. Nothing happens before the reply is polled.
    fn stream_reply(&self, request: ModelRequest) -> ReplyStream;
}

pub mod keys;
#[cfg(test)]
mod tests;
