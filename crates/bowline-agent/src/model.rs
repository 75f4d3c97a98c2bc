//! Models: what an agent asks, and what it gets, whoever answers.

mod base_url;
pub mod catalogue;
mod endpoint;
pub mod net;
pub mod offline;
pub mod provider;
pub mod remote;
pub mod replay;
pub mod script;
mod speak;
mod window;
pub(crate) mod words;

use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use bowline_state::conversation::{Message, Thinking, ToolSpec, ToolUse, Usage};
use futures_util::Stream;
use serde::{Deserialize, Serialize};

use self::provider::Provider;

/// What a model is asked.
#[derive(Debug, Clone)]
pub struct Request {
    /// What it is told first.
    pub system: Arc<str>,
    /// The conversation. Every call in it is answered, and it ends with a message of the user's or of tools.
    pub messages: Arc<[Message]>,
    /// The tools it may call.
    pub tools: Arc<[ToolSpec]>,
    /// How much it is to think.
    pub thinking: Thinking,
    /// How many tokens the reply may have, if that is to be said.
    pub max_output: Option<u32>,
    /// Whether the model is told of the tools in words, and calls and results are texts.
    pub by_words: bool,
}

/// A piece of a reply.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Event {
    /// More of its text.
    Text(String),
    /// More of its thoughts; the signature, if the provider has such, comes with the last piece.
    Thought {
        /// The text.
        text: String,
        /// The provider's signature.
        signature: Option<String>,
    },
    /// A call. It is acted upon only when the reply has ended well: one that a limit of tokens cut may be cut itself.
    Call(ToolUse),
    /// Nothing comes for a while: the request is made again.
    Retrying {
        /// What went wrong.
        why: String,
        /// How long it waits.
        wait: Duration,
        /// How many attempts were made.
        attempt: u32,
    },
    /// What the request took. The last one holds.
    Usage(Usage),
    /// The reply is complete. Nothing follows. A stream that ends without this was cut short.
    End(Stop),
}

/// Why a reply ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Stop {
    /// The model has said what it had to say, or wants its calls answered.
    Done,
    /// It may not say more: the limit of tokens.
    Length,
    /// It will not say more: the provider refuses.
    Refused,
}

/// Why there is no reply, or no whole one.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ModelError {
    /// There is no key for the provider.
    #[error(
        "there is no key for {provider}: set {variable}, or store one with `bowline agent --login {provider}`"
    )]
    NoKey {
        /// The provider.
        provider: String,
        /// The variable that would hold it.
        variable: String,
    },
    /// What holds the keys cannot be used.
    #[error("{0}")]
    Keys(String),
    /// The provider does not take the key.
    #[error("{provider} does not accept the key: {why}")]
    Unauthorized {
        /// The provider.
        provider: String,
        /// What it said.
        why: String,
    },
    /// There is no such model.
    #[error("there is no model {name}: {why}")]
    Unknown {
        /// The name that was asked for.
        name: String,
        /// What to do.
        why: String,
    },
    /// The conversation does not fit the model's window.
    #[error("the conversation does not fit the model's window: {0}")]
    TooLong(String),
    /// The reply stopped before its end.
    #[error("the reply was cut short: {0}")]
    CutShort(String),
    /// The provider is overloaded or limits the rate, also after several attempts.
    #[error("the provider is busy: {why}{when}", when = when(*.retry_after))]
    Busy {
        /// What it said.
        why: String,
        /// When it wants to be asked again.
        retry_after: Option<Duration>,
    },
    /// Nothing came for too long.
    #[error("the model did not answer in time: {0}")]
    TimedOut(String),
    /// The provider refuses the request as it is.
    #[error("the provider refuses the request: {0}")]
    Refused(String),
    /// The provider cannot be reached.
    #[error("the provider cannot be reached: {0}")]
    Unreachable(String),
    /// The reply cannot be understood, or is larger than any reply may be.
    #[error("the reply cannot be used: {0}")]
    Unusable(String),
}

/// Returns when a provider wants to be asked again, as the end of a sentence.
fn when(retry_after: Option<Duration>) -> String {
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

/// A reply as it comes. Dropping it stops the request.
pub type Reply = Pin<Box<dyn Stream<Item = Result<Event, ModelError>> + Send>>;

/// What is known of a model before it is asked.
#[derive(Debug, Clone, PartialEq)]
pub struct ModelInfo {
    /// The name that it is chosen by, `anthropic/claude-sonnet-4-5` for one.
    pub name: String,
    /// What a client shows.
    pub title: String,
    /// How many tokens a conversation may have.
    pub window: u64,
    /// Whether it can be shown pictures.
    pub images: bool,
    /// Whether how much it thinks can be chosen.
    pub thinking: bool,
    /// What a million tokens cost in US dollars, if it is known: of requests, read from a cache, put into one, of replies.
    pub price: Option<Price>,
}

/// Models with a smaller window than this are small, in tokens.
const SMALL_WINDOW: u64 = 24_000;

/// Models with fewer parameters than this are small, in thousands of millions.
const FEW_PARAMETERS: f64 = 4.0;

impl ModelInfo {
    /// Says whether it is one of those that people run on small machines: it is told less, and how tools are called in
    /// words, because it can neither keep much in mind nor call tools as providers' models do.
    #[must_use]
    pub fn is_small(&self) -> bool {
        let Some((provider, name)) = self.name.split_once('/') else { return false };
        let may_be = Provider::of(provider).is_some_and(Provider::may_write_calls_as_text);
        may_be && (self.window < SMALL_WINDOW || parameters(name).is_some_and(|count| count < FEW_PARAMETERS))
    }
}

/// Returns how many thousands of millions of parameters a model has by its name: 1.5 for `qwen2.5-coder:1.5b`.
fn parameters(name: &str) -> Option<f64> {
    let words = name.split(|c: char| !c.is_ascii_alphanumeric() && c != '.');
    words.filter_map(|word| word.strip_suffix(['b', 'B'])?.parse().ok()).next_back()
}

/// What a million tokens cost, in US dollars.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Price {
    /// Of requests.
    pub input: f64,
    /// Of requests, read from a cache.
    pub cache_read: f64,
    /// Of requests, put into a cache.
    pub cache_write: f64,
    /// Of replies.
    pub output: f64,
}

/// Whoever answers. One is made for each session.
pub trait Model: Send + Sync {
    /// Returns what is known of it.
    fn info(&self) -> &ModelInfo;

    /// Learns what only its server knows, unless it has; [`Model::info`] tells it afterwards. Who cannot be asked now can be
    /// later.
    fn learn(&self) -> Pin<Box<dyn Future<Output = ()> + Send + '_>> {
        Box::pin(std::future::ready(()))
    }

    /// Asks. Nothing happens before the reply is polled.
    fn ask(&self, request: Request) -> Reply;
}

#[cfg(test)]
mod tests;
