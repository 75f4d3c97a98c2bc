//! Parsing and formatting of times, in the local time zone.

use bowline_access::policy::parse_timestamp;
use bowline_text::time::Timestamp;
use chrono::{DateTime, Local, NaiveDate, NaiveDateTime, TimeZone};

use crate::error::CliError;

const SECOND: i64 = 1000;
const MINUTE: i64 = 60 * SECOND;
const HOUR: i64 = 60 * MINUTE;
const DAY: i64 = 24 * HOUR;

/// Formats a time to the second, in local time: `2026-03-01 09:05:12`.
pub fn format_time(time: Timestamp) -> String {
    format_time_in(time, &Local)
}

fn format_time_in<Z: TimeZone<Offset: std::fmt::Display>>(time: Timestamp, zone: &Z) -> String {
    let local = DateTime::from_timestamp_millis(time.0).map(|utc| utc.with_timezone(zone));
    // A time outside the calendar is shown as a number.
    local.map_or_else(|| time.0.to_string(), |local| local.format("%Y-%m-%d %H:%M:%S").to_string())
}

/// Formats how long ago a time was.
pub fn format_age(time: Timestamp, now: Timestamp) -> String {
    let elapsed = now.0.saturating_sub(time.0);
    let (count, unit) = match elapsed {
        ..0 => return "in the future".to_owned(),
        0..MINUTE => return "just now".to_owned(),
        MINUTE..HOUR => (elapsed / MINUTE, "minute"),
        HOUR..DAY => (elapsed / HOUR, "hour"),
        _ => (elapsed / DAY, "day"),
    };
    format!("{count} {unit}{} ago", if count == 1 { "" } else { "s" })
}

/// Formats the age of a timestamp that a peer sent; an invalid timestamp is returned unchanged.
pub fn format_age_of(text: &str, now: Timestamp) -> String {
    parse_timestamp(text).map_or_else(|| text.to_owned(), |time| format_age(time, now))
}

/// Formats a duration.
pub fn format_duration(microseconds: u64) -> String {
    let milliseconds = microseconds as f64 / 1000.0;
    match microseconds {
        0..1_000 => format!("{microseconds} µs"),
        1_000..10_000 => format!("{milliseconds:.1} ms"),
        10_000..1_000_000 => format!("{milliseconds:.0} ms"),
        _ => format!("{:.1} s", milliseconds / 1000.0),
    }
}

/// Parses a time: a date, a date with a time, or a span that `sign` counts from now (-1 for the past, 1 for the
/// future), such as `30m`, `2h`, `7d` or `3w`. Without a time zone, local time is assumed.
///
/// # Errors
/// Describes the accepted formats.
pub fn parse_time(text: &str, now: Timestamp, sign: i64) -> Result<Timestamp, CliError> {
    parse_time_in(text, now, sign, &Local)
}

fn parse_time_in(text: &str, now: Timestamp, sign: i64, zone: &impl TimeZone) -> Result<Timestamp, CliError> {
    let relative = || {
        let digits = text.trim_end_matches(|unit: char| unit.is_ascii_alphabetic());
        let unit = match &text[digits.len()..] {
            "s" => SECOND,
            "m" => MINUTE,
            "h" => HOUR,
            "d" => DAY,
            "w" => 7 * DAY,
            _ => return None,
        };
        let span = digits.parse::<u32>().ok().map(i64::from)?.checked_mul(unit)?;
        now.0.checked_add(sign.checked_mul(span)?).map(Timestamp)
    };
    let local = || {
        let formats = ["%Y-%m-%dT%H:%M:%S", "%Y-%m-%d %H:%M:%S", "%Y-%m-%dT%H:%M"];
        let with_time = formats.iter().find_map(|format| NaiveDateTime::parse_from_str(text, format).ok());
        let midnight = || NaiveDate::parse_from_str(text, "%Y-%m-%d").ok()?.and_hms_opt(0, 0, 0);
        // If a local time occurs twice, the first occurrence is used.
        let time = zone.from_local_datetime(&with_time.or_else(midnight)?).earliest()?;
        Some(Timestamp(time.timestamp_millis()))
    };
    relative().or_else(local).or_else(|| parse_timestamp(text)).ok_or_else(|| {
        CliError::Usage(format!(
            "{text:?} is no time: write a date such as 2027-01-31 or 2027-01-31T12:00:00Z, or a span such as 30m, 2h, 7d"
        ))
    })
}

#[cfg(test)]
mod tests {
    use expect_test::expect;

    use super::*;

    #[test]
    fn moments_are_written_and_read_as_people_do() {
        let now = Timestamp(1_772_355_912_250);
        let zone = chrono::FixedOffset::east_opt(2 * 3600).unwrap();
        let mut output = String::new();
        for text in [
            "2h", "7d", "2026-03-01", "2026-03-01T09:00:00", "2026-03-01T09:00:00Z",
            "2026-03-01T09:00:00+01:00",
        ] {
            output +=
                &format!("{text}: {}\n", format_time_in(parse_time_in(text, now, -1, &zone).unwrap(), &zone));
        }
        for text in ["", "h", "-1h", "1y", "yesterday", "2026-13-01", "99999999999999d", "é"] {
            assert!(matches!(parse_time(text, now, -1), Err(CliError::Usage(_))), "{text}");
        }
        for passed in [-1, 0, 59, 60, 3_599, 7_200, 86_400, 864_000] {
            output += &format!("{passed}: {}\n", format_age(Timestamp(now.0 - passed * 1000), now));
        }
        for text in ["2026-03-01T09:00:12.123Z", "2026-02-28T10:05:12+01:00", "2026-02-01", "long ago", ""] {
            output += &format!("{text}: {}\n", format_age_of(text, now));
        }
        for microseconds in [0, 999, 1_500, 10_400, 999_999, 1_000_000, 61_000_000] {
            output += &format!("{}\n", format_duration(microseconds));
        }
        expect![[r#"
            2h: 2026-03-01 09:05:12
            7d: 2026-02-22 11:05:12
            2026-03-01: 2026-03-01 00:00:00
            2026-03-01T09:00:00: 2026-03-01 09:00:00
            2026-03-01T09:00:00Z: 2026-03-01 11:00:00
            2026-03-01T09:00:00+01:00: 2026-03-01 10:00:00
            -1: in the future
            0: just now
            59: just now
            60: 1 minute ago
            3599: 59 minutes ago
            7200: 2 hours ago
            86400: 1 day ago
            864000: 10 days ago
            2026-03-01T09:00:12.123Z: 5 minutes ago
            2026-02-28T10:05:12+01:00: 1 day ago
            2026-02-01: 28 days ago
            long ago: long ago
            : 
            0 µs
            999 µs
            1.5 ms
            10 ms
            1000 ms
            1.0 s
            61.0 s
        "#]]
        .assert_eq(&output);
    }
}
