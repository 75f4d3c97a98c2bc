//! The end of this server's lease in a shared store, by a clock that also runs while the machine is suspended.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use bowline_storage::clock::since_boot;

/// Until when this server may work on its sessions. Without a shared store, it always may.
#[derive(Debug)]
pub(super) struct Lease {
    // Milliseconds since the start of the machine.
    until: AtomicU64,
}

impl Default for Lease {
    fn default() -> Self {
        Self { until: AtomicU64::new(u64::MAX) }
    }
}

impl Lease {
    /// Sets the end of the lease: `length` after `from`, a time since the start of the machine.
    pub(super) fn renew(&self, from: Duration, length: Duration) {
        self.until.store(milliseconds(from + length), Ordering::Relaxed);
    }

    /// Ends the lease.
    pub(super) fn end(&self) {
        self.until.store(0, Ordering::Relaxed);
    }

    /// Returns how long the lease is still valid.
    pub(super) fn remaining(&self) -> Duration {
        let until = self.until.load(Ordering::Relaxed);
        Duration::from_millis(until.saturating_sub(milliseconds(since_boot())))
    }

    /// Returns whether the lease is valid.
    pub(super) fn is_valid(&self) -> bool {
        !self.remaining().is_zero()
    }
}

fn milliseconds(time: Duration) -> u64 {
    u64::try_from(time.as_millis()).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_lease_is_valid_until_its_end() {
        let lease = Lease::default();
        assert!(lease.is_valid());
        lease.renew(since_boot(), Duration::from_secs(60));
        assert!(lease.is_valid() && lease.remaining() <= Duration::from_secs(60));
        lease.renew(Duration::ZERO, Duration::from_millis(1));
        assert!(!lease.is_valid());
        lease.renew(since_boot(), Duration::from_secs(60));
        lease.end();
        assert!(!lease.is_valid());
    }
}
