//! Retries of failed model requests: whether and when.
//!
//! This module has no clock and no network: the failure, the number of attempts and a random number are inputs.

use std::time::{Duration, UNIX_EPOCH};

use serde_json::Value;

/// The maximum length of a reported error message, in bytes.
const MAX_MESSAGE_BYTES: usize = 600;

/// The failure of a request or its reply.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RequestFailure {
    /// The provider rejects the API key. Retrying does not help.
    Unauthorized,
    /// The conversation does not fit. Retrying does not help; a shorter one may.
    TooLong,
    /// The provider refuses the request. Retrying does not help.
    Refused,
    /// The model or the address does not exist.
    NotFound,
    /// Too many requests.
    RateLimited,
    /// The provider has a failure of its own.
    Overloaded,
    /// The provider cannot be reached.
    Unreachable,
    /// The deadline passed without data.
    TimedOut,
    /// The reply stopped before its end.
    Truncated,
    /// The reply cannot be parsed.
    Unreadable,
    /// The reply is unusable however often it is repeated: too large, or of another type altogether.
    Unusable,
}

impl RequestFailure {
    /// Returns whether the same request may succeed another time.
    #[must_use]
    pub fn is_transient(self) -> bool {
        match self {
            Self::Unauthorized | Self::TooLong | Self::Refused | Self::NotFound | Self::Unusable => false,
            Self::RateLimited
            | Self::Overloaded
            | Self::Unreachable
            | Self::TimedOut
            | Self::Truncated
            | Self::Unreadable => true,
        }
    }
}

/// The limits on retries of a request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RetryLimits {
    /// The total number of attempts.
    pub attempts: u32,
    /// The first delay; each further one is twice as long.
    pub first_delay: Duration,
    /// The maximum delay of our own choosing.
    pub max_delay: Duration,
    /// The maximum delay that a provider may impose. If it asks for more, the failure is reported instead.
    pub max_retry_after: Duration,
}

impl Default for RetryLimits {
    fn default() -> Self {
        Self {
            attempts: 5,
            first_delay: Duration::from_secs(1),
            max_delay: Duration::from_secs(30),
            max_retry_after: Duration::from_secs(120),
        }
    }
}

/// An attempt that failed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct FailedAttempt {
    /// Its number, from 1.
    pub number: u32,
    /// The failure.
    pub failure: RequestFailure,
    /// The delay that the provider asks for.
    pub retry_after: Option<Duration>,
    /// Whether part of the reply was already shown: it cannot be taken back, so the request is not repeated.
    pub is_reply_shown: bool,
}

/// The decision after a failed attempt.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RetryDecision {
    /// Retry after this delay.
    RetryAfter(Duration),
    /// Give up.
    Stop,
}

/// Decides whether to retry a request. `chance` is a random number from 0 to 1, so that agents that were refused
/// together do not retry together.
#[must_use]
pub fn decide_retry(limits: &RetryLimits, attempt: &FailedAttempt, chance: f64) -> RetryDecision {
    if attempt.is_reply_shown || !attempt.failure.is_transient() || attempt.number >= limits.attempts {
        return RetryDecision::Stop;
    }
    let chance = if chance.is_finite() { chance.clamp(0.0, 1.0) } else { 0.0 };
    match attempt.retry_after.filter(|retry_after| !retry_after.is_zero()) {
        Some(retry_after) if retry_after > limits.max_retry_after => RetryDecision::Stop,
        // Never earlier than the provider asked for.
        Some(retry_after) => {
            RetryDecision::RetryAfter(retry_after.saturating_add(retry_after.mul_f64(chance / 10.0)))
        }
        None => {
            let doublings = attempt.number.saturating_sub(1).min(20);
            let wait = limits.first_delay.saturating_mul(1 << doublings).min(limits.max_delay);
            RetryDecision::RetryAfter(wait.mul_f64(0.5 + chance / 2.0))
        }
    }
}

/// Classifies an answer by its status and the beginning of its body.
#[must_use]
pub fn classify_status(status: u16, body: &str) -> RequestFailure {
    match status {
        401 | 403 => RequestFailure::Unauthorized,
        404 => RequestFailure::NotFound,
        413 => RequestFailure::TooLong,
        // Exhausted credit looks like a rate limit, but waiting never helps.
        429 if body.contains("insufficient_quota") => RequestFailure::Refused,
        429 => RequestFailure::RateLimited,
        408 | 425 => RequestFailure::Overloaded,
        501 | 505 => RequestFailure::Refused,
        // Local servers answer 500 to a conversation that is too long for them.
        500.. if is_context_overflow(body) => RequestFailure::TooLong,
        500.. => RequestFailure::Overloaded,
        _ if is_context_overflow(body) => RequestFailure::TooLong,
        _ => RequestFailure::Refused,
    }
}

/// Classifies an error event inside a reply.
#[must_use]
pub fn classify_error_event(body: &str) -> RequestFailure {
    let lower = body.to_ascii_lowercase();
    let mentions = |words: &[&str]| words.iter().any(|word| lower.contains(word));
    if is_context_overflow(body) {
        RequestFailure::TooLong
    } else if mentions(&["insufficient_quota"]) {
        RequestFailure::Refused
    } else if mentions(&["rate_limit", "rate limit", "resource_exhausted", "\"code\":429"]) {
        RequestFailure::RateLimited
    } else if mentions(&["authentication_error", "permission_error", "invalid_api_key", "unauthenticated"]) {
        RequestFailure::Unauthorized
    } else if mentions(&["not_found_error", "model_not_found"]) {
        RequestFailure::NotFound
    } else if mentions(&["invalid_request", "invalid_argument", "failed_precondition"]) {
        RequestFailure::Refused
    } else {
        // An overload, a server error or an unknown error may pass.
        RequestFailure::Overloaded
    }
}

/// Returns the message in an error body, in about a line: from its JSON, else the text itself.
#[must_use]
pub fn error_message(body: &str) -> String {
    let value: Value = serde_json::from_str(body).unwrap_or_default();
    let pointers = ["/error/message", "/message", "/error", "/0/error/message", "/detail"];
    let message = pointers.iter().find_map(|pointer| value.pointer(pointer)?.as_str());
    let message = message.unwrap_or(body).trim();
    // An HTML page is for browsers.
    let message = if message.starts_with('<') { "" } else { message };
    let end = message.floor_char_boundary(MAX_MESSAGE_BYTES);
    let cut = if end < message.len() { "…" } else { "" };
    format!("{}{cut}", message[..end].split_whitespace().collect::<Vec<_>>().join(" "))
}

/// Parses a `retry-after` header: seconds, or a date, which is compared with `now` in seconds since 1970. A past date
/// means no delay; anything else is `None`.
#[must_use]
pub fn parse_retry_after(value: &str, now: u64) -> Option<Duration> {
    let value = value.trim();
    if let Ok(seconds) = value.parse::<f64>() {
        return Duration::try_from_secs_f64(seconds).ok();
    }
    let date = httpdate::parse_http_date(value).ok()?.duration_since(UNIX_EPOCH).ok()?;
    Some(date.saturating_sub(Duration::from_secs(now)))
}

fn is_context_overflow(body: &str) -> bool {
    const PHRASES: [&str; 13] = [
        "context_length_exceeded",
        "maximum context length",
        "context length exceeded",
        "prompt is too long",
        "input is too long",
        "exceeds the available context size",
        "exceed_context_size",
        "exceeds the maximum number of tokens",
        "exceeds the context window",
        "exceed context",
        "request_too_large",
        "too many tokens",
        "reduce the length of the messages",
    ];
    let lower = body.to_ascii_lowercase();
    PHRASES.iter().any(|phrase| lower.contains(phrase))
}

#[cfg(test)]
mod tests;
