//! The wall clock, the time since the start of the machine, and timestamps in ISO 8601.

use std::time::{Duration, SystemTime};

use bowline_text::time::Timestamp;
use chrono::{DateTime, SecondsFormat};
use rustix::time::{ClockId, clock_gettime};

/// Returns the current time of the system clock.
#[must_use]
pub fn now() -> Timestamp {
    Timestamp(i64::try_from(since_epoch().as_millis()).unwrap_or(i64::MAX))
}

/// Returns the current time of the system clock as the time since 1970.
#[must_use]
pub fn since_epoch() -> Duration {
    SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default()
}

/// Returns the time since the start of the machine. Unlike `Instant`, it goes on while the machine is suspended.
#[must_use]
pub fn since_boot() -> Duration {
    let time = clock_gettime(ClockId::Boottime);
    let (seconds, nanoseconds) = (u64::try_from(time.tv_sec), u32::try_from(time.tv_nsec));
    Duration::new(seconds.unwrap_or(0), nanoseconds.unwrap_or(0))
}

/// Formats a timestamp as ISO 8601 in UTC with milliseconds: `2026-03-01T09:05:00.250Z`. A timestamp beyond the
/// calendar is formatted as its number.
#[must_use]
pub fn format_iso8601(moment: Timestamp) -> String {
    DateTime::from_timestamp_millis(moment.0)
        .map_or_else(|| moment.0.to_string(), |moment| moment.to_rfc3339_opts(SecondsFormat::Millis, true))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn moments_are_written_in_utc() {
        for (moment, written) in [
            (0, "1970-01-01T00:00:00.000Z"),
            (-1, "1969-12-31T23:59:59.999Z"),
            (951_782_400_000, "2000-02-29T00:00:00.000Z"),
            (1_772_355_900_250, "2026-03-01T09:05:00.250Z"),
            (i64::MAX, "9223372036854775807"),
        ] {
            assert_eq!(format_iso8601(Timestamp(moment)), written);
        }
    }
}
