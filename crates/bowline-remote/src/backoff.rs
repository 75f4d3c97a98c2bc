//! How long to wait before the next attempt to reach a server.

use std::time::Duration;

/// The delay before the first new attempt.
const FIRST_DELAY: Duration = Duration::from_millis(100);
/// The longest delay.
const MAX_DELAY: Duration = Duration::from_secs(5);

/// Delays that double from attempt to attempt. Each is shortened by up to a half at random, so that the clients of a
/// server that restarts do not all return at once.
#[derive(Debug)]
pub(crate) struct Backoff {
    // The state of a linear congruential generator.
    random: u64,
}

impl Backoff {
    pub(crate) fn new(seed: u64) -> Self {
        Self { random: seed }
    }

    /// Returns the delay before another attempt, after this many failures in a row.
    pub(crate) fn delay(&mut self, failures: u32) -> Duration {
        let doublings = failures.saturating_sub(1).min(16);
        let longest = FIRST_DELAY.saturating_mul(1 << doublings).min(MAX_DELAY);
        self.random =
            self.random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        let per_mille = u32::try_from((self.random >> 33) % 500).unwrap_or_default();
        longest - longest * per_mille / 1000
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn delays_double_up_to_five_seconds(seed: u64, failures in 1..1000u32) {
            let delay = Backoff::new(seed).delay(failures);
            let longest = Duration::from_millis(100 << (failures - 1).min(10)).min(Duration::from_secs(5));
            prop_assert!(longest / 2 <= delay && delay <= longest, "{delay:?} of {longest:?}");
        }
    }

    #[test]
    fn clients_wait_differently() {
        let delays: std::collections::BTreeSet<Duration> =
            (0..100).map(|seed| Backoff::new(seed).delay(9)).collect();
        assert!(delays.len() > 50, "{}", delays.len());
    }
}
