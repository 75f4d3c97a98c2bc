//! Moments as people and protocols write them.

use bowline_state::changes::Moment;

const DAY: i64 = 24 * 60 * 60 * 1000;

/// Returns a moment as ISO 8601 has it, in UTC and to the millisecond: `2026-03-01T09:05:00.250Z`.
#[must_use]
pub fn iso8601(moment: Moment) -> String {
    let (days, rest) = (moment.0.div_euclid(DAY), moment.0.rem_euclid(DAY));
    let (year, month, day) = civil(days);
    let (hours, minutes) = (rest / 3_600_000, rest / 60_000 % 60);
    let (seconds, millis) = (rest / 1000 % 60, rest % 1000);
    format!("{year:04}-{month:02}-{day:02}T{hours:02}:{minutes:02}:{seconds:02}.{millis:03}Z")
}

/// Returns year, month and day of a day counted from the first of 1970.
fn civil(days: i64) -> (i64, i64, i64) {
    // Years are counted from March here, so that the day that is there only sometimes is the last of its year; the Gregorian
    // calendar repeats every 400 years of 146,097 days.
    let days = days + 719_468;
    let (era, day_of_era) = (days.div_euclid(146_097), days.rem_euclid(146_097));
    let year_of_era = (day_of_era - day_of_era / 1460 + day_of_era / 36_524 - day_of_era / 146_096) / 365;
    let day_of_year = day_of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    let march_month = (5 * day_of_year + 2) / 153;
    let day = day_of_year - (153 * march_month + 2) / 5 + 1;
    let month = if march_month < 10 { march_month + 3 } else { march_month - 9 };
    (era * 400 + year_of_era + i64::from(month <= 2), month, day)
}
