//! Whether a failed request to a model is made again, and when.
//!
//! Nothing here knows a clock or a network: what went wrong, how often, and a number for chance come in as values.

use std::time::Duration;

use serde_json::Value;

/// How much of an error's message is reported, in bytes.
const MAX_MESSAGE: usize = 600;

/// What is wrong with a request or its reply.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Trouble {
    /// The provider does not take the key. Asking again changes nothing.
    Unauthorized,
    /// The conversation does not fit. Asking again changes nothing; a shorter one may do.
    TooLong,
    /// The provider refuses the request as it is. Asking again changes nothing.
    Refused,
    /// There is no such model, or nothing at this address.
    Missing,
    /// Too many requests.
    RateLimited,
    /// The provider has trouble of its own.
    Overloaded,
    /// The provider cannot be reached.
    Unreachable,
    /// Nothing came for too long.
    TimedOut,
    /// The reply stopped before its end.
    CutShort,
    /// What came cannot be read.
    Unreadable,
    /// What came is nothing that we take, however often it comes: too much of it, or something else altogether.
    Unusable,
}

impl Trouble {
    /// Says whether the same request may go well another time.
    #[must_use]
    pub fn may_pass(self) -> bool {
        match self {
            Self::Unauthorized | Self::TooLong | Self::Refused | Self::Missing | Self::Unusable => false,
            Self::RateLimited
            | Self::Overloaded
            | Self::Unreachable
            | Self::TimedOut
            | Self::CutShort
            | Self::Unreadable => true,
        }
    }
}

/// How often and how long a request is tried.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Limits {
    /// How often a request is made in all.
    pub attempts: u32,
    /// How long the first wait is; each next one is twice as long.
    pub first: Duration,
    /// How long no wait of our own making exceeds.
    pub longest: Duration,
    /// How long a provider may make us wait. If it asks for more, the person is told instead.
    pub longest_asked: Duration,
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            attempts: 5,
            first: Duration::from_secs(1),
            longest: Duration::from_secs(30),
            longest_asked: Duration::from_secs(120),
        }
    }
}

/// An attempt that failed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Attempt {
    /// Which one it was, from 1.
    pub number: u32,
    /// What went wrong.
    pub trouble: Trouble,
    /// When the provider wants to be asked again.
    pub retry_after: Option<Duration>,
    /// Whether something of the reply was shown already: it cannot be taken back, so it is not asked again.
    pub shown: bool,
}

/// What to do about it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Decision {
    /// Ask again after this time.
    Again(Duration),
    /// Give up.
    Stop,
}

/// Decides whether a request is made again. `chance` is a number from 0 to 1: many agents that were refused together
/// do not come back together.
#[must_use]
pub fn decide(limits: &Limits, attempt: &Attempt, chance: f64) -> Decision {
    if attempt.shown || !attempt.trouble.may_pass() || attempt.number >= limits.attempts {
        return Decision::Stop;
    }
    let chance = if chance.is_finite() { chance.clamp(0.0, 1.0) } else { 0.0 };
    match attempt.retry_after.filter(|asked| !asked.is_zero()) {
        Some(asked) if asked > limits.longest_asked => Decision::Stop,
        // Never before the time that was asked for.
        Some(asked) => Decision::Again(asked.saturating_add(asked.mul_f64(chance / 10.0))),
        None => {
            let doublings = attempt.number.saturating_sub(1).min(20);
            let wait = limits.first.saturating_mul(1 << doublings).min(limits.longest);
            Decision::Again(wait.mul_f64(0.5 + chance / 2.0))
        }
    }
}

/// Judges an answer by its status and the beginning of its body.
#[must_use]
pub fn judge_status(status: u16, body: &str) -> Trouble {
    match status {
        401 | 403 => Trouble::Unauthorized,
        404 => Trouble::Missing,
        413 => Trouble::TooLong,
        // Out of credit looks like a limit of the rate and never passes by waiting.
        429 if body.contains("insufficient_quota") => Trouble::Refused,
        429 => Trouble::RateLimited,
        408 | 425 => Trouble::Overloaded,
        501 | 505 => Trouble::Refused,
        // Local servers answer 500 to a conversation that is too long for them.
        500.. if says_too_long(body) => Trouble::TooLong,
        500.. => Trouble::Overloaded,
        _ if says_too_long(body) => Trouble::TooLong,
        _ => Trouble::Refused,
    }
}

/// Judges an error that came inside a reply.
#[must_use]
pub fn judge_event(body: &str) -> Trouble {
    let lower = body.to_ascii_lowercase();
    let says = |words: &[&str]| words.iter().any(|word| lower.contains(word));
    if says_too_long(body) {
        Trouble::TooLong
    } else if says(&["insufficient_quota"]) {
        Trouble::Refused
    } else if says(&["rate_limit", "rate limit", "resource_exhausted", "\"code\":429"]) {
        Trouble::RateLimited
    } else if says(&["authentication_error", "permission_error", "invalid_api_key", "unauthenticated"]) {
        Trouble::Unauthorized
    } else if says(&["not_found_error", "model_not_found"]) {
        Trouble::Missing
    } else if says(&["invalid_request", "invalid_argument", "failed_precondition"]) {
        Trouble::Refused
    } else {
        // Overloaded, a server error, or something that nobody has told us of: it may pass.
        Trouble::Overloaded
    }
}

/// Returns the message in the body of an error, in about a line: that of its JSON, else the text itself.
#[must_use]
pub fn error_message(body: &str) -> String {
    let value: Value = serde_json::from_str(body).unwrap_or_default();
    let places = ["/error/message", "/message", "/error", "/0/error/message", "/detail"];
    let message = places.iter().find_map(|place| value.pointer(place)?.as_str());
    let message = message.unwrap_or(body).trim();
    // A page is for browsers.
    let message = if message.starts_with('<') { "" } else { message };
    let end = message.floor_char_boundary(MAX_MESSAGE);
    let cut = if end < message.len() { "…" } else { "" };
    format!("{}{cut}", message[..end].split_whitespace().collect::<Vec<_>>().join(" "))
}

/// Returns how long to wait by a `retry-after` header: seconds, or a date, which is held against `now` in seconds since
/// 1970. A date that has passed means now; what is neither is nothing.
#[must_use]
pub fn retry_after(value: &str, now: u64) -> Option<Duration> {
    let value = value.trim();
    if let Ok(seconds) = value.parse::<f64>() {
        return Duration::try_from_secs_f64(seconds).ok();
    }
    Some(Duration::from_secs(http_date(value)?.saturating_sub(now)))
}

fn says_too_long(body: &str) -> bool {
    const SAYS: [&str; 13] = [
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
    SAYS.iter().any(|says| lower.contains(says))
}

/// Returns the seconds since 1970 of a date like `Wed, 21 Oct 2015 07:28:00 GMT`.
fn http_date(value: &str) -> Option<u64> {
    const MONTHS: [&str; 12] =
        ["Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec"];
    let (_, date) = value.split_once(", ")?;
    let mut words = date.split_ascii_whitespace();
    let day: u64 = words.next()?.parse().ok().filter(|day| (1..=31).contains(day))?;
    let month = words.next()?;
    let month = MONTHS.iter().position(|name| name.eq_ignore_ascii_case(month))? as u64 + 1;
    let year: u64 = words.next()?.parse().ok().filter(|year| (1970..=9999).contains(year))?;
    let mut clock =
        words.next()?.splitn(3, ':').map(|part| part.parse::<u64>().ok().filter(|part| *part < 61));
    let (hours, minutes, seconds) = (clock.next()??, clock.next()??, clock.next()??);
    if words.next() != Some("GMT") {
        return None;
    }
    // Days since 1 March of year 0, so that the day a leap year adds is the last of its year.
    let (year, month) = if month > 2 { (year, month - 3) } else { (year - 1, month + 9) };
    let days = year * 365 + year / 4 - year / 100 + year / 400 + (month * 153 + 2) / 5 + day - 1;
    let days = days.checked_sub(719_468)?;
    Some(days * 86_400 + hours * 3_600 + minutes * 60 + seconds)
}

#[cfg(test)]
mod tests;
