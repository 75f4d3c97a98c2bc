//! The time of day, and moments as protocols write them.

use std::time::SystemTime;

use bowline_state::changes::Moment;
use chrono::{DateTime, SecondsFormat};

/// Returns the time by the system's clock.
#[must_use]
pub fn now() -> Moment {
    let since = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
    Moment(i64::try_from(since.as_millis()).unwrap_or(i64::MAX))
}

/// Returns a moment as ISO 8601 has it, in UTC and to the millisecond: `2026-03-01T09:05:00.250Z`. One that no calendar
/// has is the number that it is.
#[must_use]
pub fn iso8601(moment: Moment) -> String {
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
            assert_eq!(iso8601(Moment(moment)), written);
        }
    }
}
