//! Simple format checks: whether a text is an e-mail address, a URI, a date or a time.

use agent_client_protocol_schema::v1::StringFormat;

/// Returns the expected format in words, if the text does not match it.
pub(super) fn check_format(format: StringFormat, text: &str) -> Option<&'static str> {
    let (is_valid, expected) = match format {
        StringFormat::Email => (is_email(text), "an e-mail address"),
        StringFormat::Uri => (is_uri(text), "an address with a scheme, like https://example.com"),
        StringFormat::Date => (is_date(text), "a date, like 2026-01-31"),
        StringFormat::DateTime => (is_date_time(text), "a time with its zone, like 2026-01-31T12:00:00Z"),
        // The agent checks formats that a later protocol adds.
        _ => return None,
    };
    (!is_valid).then_some(expected)
}

fn is_plain(text: &str) -> bool {
    !text.chars().any(|character| character.is_whitespace() || character.is_control())
}

fn is_email(text: &str) -> bool {
    let Some((local, domain)) = text.rsplit_once('@') else { return false };
    is_plain(text)
        && !local.is_empty()
        && !local.contains('@')
        && domain.split('.').all(|label| !label.is_empty())
}

fn is_uri(text: &str) -> bool {
    let Some((scheme, rest)) = text.split_once(':') else { return false };
    let is_in_scheme = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'+' | b'-' | b'.');
    scheme.starts_with(|first: char| first.is_ascii_alphabetic())
        && scheme.bytes().all(is_in_scheme)
        && !rest.is_empty()
        && rest.is_ascii()
        && is_plain(rest)
}

/// Parses a number with exactly this many digits.
fn parse_digits(text: &str, digits: usize) -> Option<u32> {
    let is_number = text.len() == digits && text.bytes().all(|byte| byte.is_ascii_digit());
    is_number.then(|| text.parse().ok()).flatten()
}

/// Parses two-digit numbers separated by `between`.
fn parse_pairs<const N: usize>(text: &str, between: char) -> Option<[u32; N]> {
    let numbers: Option<Vec<u32>> = text.split(between).map(|part| parse_digits(part, 2)).collect();
    numbers?.try_into().ok()
}

fn is_date(text: &str) -> bool {
    let Some((year, rest)) = text.split_once('-') else { return false };
    let (Some(year), Some([month, day])) = (parse_digits(year, 4), parse_pairs(rest, '-')) else {
        return false;
    };
    let is_leap = year % 4 == 0 && (year % 100 != 0 || year % 400 == 0);
    let days = match month {
        1 | 3 | 5 | 7 | 8 | 10 | 12 => 31,
        4 | 6 | 9 | 11 => 30,
        2 if is_leap => 29,
        2 => 28,
        _ => 0,
    };
    (1..=days).contains(&day)
}

fn is_date_time(text: &str) -> bool {
    let Some((date, time)) = text.split_once(['T', 't']) else { return false };
    let time = match time.strip_suffix(['Z', 'z']) {
        Some(time) => time,
        None => {
            let Some((time, zone)) = time.rsplit_once(['+', '-']) else { return false };
            let Some([hours, minutes]) = parse_pairs(zone, ':') else { return false };
            if hours > 23 || minutes > 59 {
                return false;
            }
            time
        }
    };
    let (clock, fraction) = time.split_once('.').unwrap_or((time, "0"));
    let is_fraction = !fraction.is_empty() && fraction.bytes().all(|byte| byte.is_ascii_digit());
    // Second 60 is a leap second.
    let is_clock = |[hour, minute, second]: [u32; 3]| hour < 24 && minute < 60 && second <= 60;
    is_date(date) && is_fraction && parse_pairs(clock, ':').is_some_and(is_clock)
}
