//! Waits for conditions that no event announces: the state of another process, a file, a counter.
//!
//! Where there is an event, a test awaits it. Here the condition is checked again and again, at growing intervals, so
//! that the test leaves the processors to the programs it waits for. No outcome depends on the length of a pause.

use std::thread;
use std::time::{Duration, Instant};

/// The pause after the first check. Each further pause is twice as long, up to the longest.
const FIRST_PAUSE: Duration = Duration::from_millis(1);
const LONGEST_PAUSE: Duration = Duration::from_millis(50);

/// How long a condition may take to hold. Only a hang takes this long, even on a busy machine.
const WAIT_TIMEOUT: Duration = crate::TEST_TIMEOUT;

/// Waits until a condition holds. `what` names what is awaited, such as "the agent's exit".
///
/// Blocks the thread: async tests use [`wait_until_async`].
///
/// # Panics
/// Panics with `what` if the condition does not hold in time.
#[track_caller]
pub fn wait_until(what: &str, mut condition: impl FnMut() -> bool) {
    wait_for(what, || condition().then_some(()));
}

/// Waits until `find` returns a value, and returns it. `what` names the value.
///
/// Blocks the thread: async tests use [`wait_for_async`].
///
/// # Panics
/// Panics with `what` if there is no value in time.
#[track_caller]
pub fn wait_for<T>(what: &str, mut find: impl FnMut() -> Option<T>) -> T {
    let mut backoff = Backoff::start();
    loop {
        if let Some(found) = find() {
            return found;
        }
        thread::park_timeout(backoff.next_pause(what));
    }
}

/// Waits until a condition holds, while other tasks run. See [`wait_until`].
///
/// Not for tests with paused time, because each pause would advance their clock.
///
/// # Panics
/// Panics with `what` if the condition does not hold in time.
pub async fn wait_until_async(what: &str, mut condition: impl FnMut() -> bool) {
    wait_for_async(what, || condition().then_some(())).await;
}

/// Waits until `find` returns a value, while other tasks run. See [`wait_for`].
///
/// Not for tests with paused time, because each pause would advance their clock.
///
/// # Panics
/// Panics with `what` if there is no value in time.
pub async fn wait_for_async<T>(what: &str, mut find: impl FnMut() -> Option<T>) -> T {
    let mut backoff = Backoff::start();
    loop {
        if let Some(found) = find() {
            return found;
        }
        tokio::time::sleep(backoff.next_pause(what)).await;
    }
}

/// The pauses between the checks of one wait, and its time limit.
struct Backoff {
    started: Instant,
    pause: Duration,
}

impl Backoff {
    fn start() -> Self {
        Self { started: Instant::now(), pause: FIRST_PAUSE }
    }

    #[track_caller]
    fn next_pause(&mut self, what: &str) -> Duration {
        assert!(self.started.elapsed() < WAIT_TIMEOUT, "waited {WAIT_TIMEOUT:?} for {what}");
        let pause = self.pause;
        self.pause = (pause * 2).min(LONGEST_PAUSE);
        pause
    }
}

#[cfg(test)]
mod tests {
    use super::Backoff;

    #[test]
    fn pauses_double_up_to_a_limit() {
        let mut backoff = Backoff::start();
        let pauses: Vec<u128> = (0..8).map(|_| backoff.next_pause("nothing").as_millis()).collect();
        assert_eq!(pauses, [1, 2, 4, 8, 16, 32, 50, 50]);
    }
}
