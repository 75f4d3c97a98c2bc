//! How many messages principals may send: each has a number of them at hand, which grows with time.

use std::collections::HashMap;
use std::time::Instant;

/// How many seconds' messages may come at once.
const BURST_SECONDS: f64 = 10.0;

/// What each principal has sent lately.
#[derive(Debug, Default)]
pub(super) struct MessageRates(HashMap<String, Allowance>);

/// The messages that a principal may send at once.
#[derive(Debug)]
struct Allowance {
    messages: f64,
    at: Instant,
}

impl MessageRates {
    /// Counts a message, and returns whether it is allowed, at this rate per second.
    pub(super) fn take(&mut self, principal: &str, rate: u32, now: Instant) -> bool {
        let limit = f64::from(rate) * BURST_SECONDS;
        if !self.0.contains_key(principal) {
            self.0.insert(principal.to_owned(), Allowance { messages: limit, at: now });
        }
        let Some(allowance) = self.0.get_mut(principal) else { return false };
        let seconds = now.saturating_duration_since(allowance.at).as_secs_f64();
        allowance.messages = (allowance.messages + seconds * f64::from(rate)).min(limit);
        allowance.at = now;
        if allowance.messages < 1.0 {
            return false;
        }
        allowance.messages -= 1.0;
        true
    }

    /// Forgets principals that have sent nothing for so long that it makes no difference.
    pub(super) fn forget_idle(&mut self, now: Instant) {
        self.0
            .retain(|_, allowance| now.saturating_duration_since(allowance.at).as_secs_f64() < BURST_SECONDS);
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[test]
    fn a_burst_is_allowed_and_then_the_rate() {
        let (mut rates, start) = (MessageRates::default(), Instant::now());
        let mut count = |principal: &str, after: Duration, tries: usize| {
            (0..tries).filter(|_| rates.take(principal, 5, start + after)).count()
        };
        assert_eq!(count("a", Duration::ZERO, 100), 50);
        assert_eq!(count("b", Duration::ZERO, 1), 1, "others are not affected");
        assert_eq!(count("a", Duration::from_secs(2), 100), 10);
        assert_eq!(count("a", Duration::from_secs(1000), 100), 50, "no more is saved");
    }

    #[test]
    fn who_has_everything_at_hand_again_is_forgotten() {
        let (mut rates, start) = (MessageRates::default(), Instant::now());
        rates.take("a", 5, start);
        rates.forget_idle(start + Duration::from_secs(9));
        assert_eq!(rates.0.len(), 1);
        rates.forget_idle(start + Duration::from_secs(10));
        assert_eq!(rates.0.len(), 0);
    }
}
