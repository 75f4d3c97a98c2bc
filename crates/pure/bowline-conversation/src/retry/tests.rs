//! Tests of retries.

use std::fmt::Write as _;

use expect_test::{Expect, expect};
use proptest::prelude::*;

use super::*;

fn attempt(number: u32, failure: RequestFailure) -> FailedAttempt {
    FailedAttempt { number, failure, retry_after: None, is_reply_shown: false }
}

fn check(attempts: &[(&str, FailedAttempt)], expected: Expect) {
    let mut out = String::new();
    for (case, attempt) in attempts {
        let decided = decide_retry(&RetryLimits::default(), attempt, 1.0);
        writeln!(out, "{case}: {decided:?}").unwrap();
    }
    expected.assert_eq(&out);
}

#[test]
fn waits_grow_up_to_a_limit_and_attempts_are_counted() {
    let rows: Vec<_> =
        (1..=5).map(|number| ("overloaded", attempt(number, RequestFailure::Overloaded))).collect();
    check(
        &rows,
        expect![[r#"
            overloaded: RetryAfter(1s)
            overloaded: RetryAfter(2s)
            overloaded: RetryAfter(4s)
            overloaded: RetryAfter(8s)
            overloaded: Stop
        "#]],
    );
}

#[test]
fn a_wait_that_was_asked_for_is_kept_or_told() {
    let after = |seconds| FailedAttempt {
        retry_after: Some(Duration::from_secs(seconds)),
        ..attempt(1, RequestFailure::RateLimited)
    };
    check(
        &[("2 s", after(2)), ("120 s", after(120)), ("a day", after(86_400)), ("0 s", after(0))],
        expect![[r#"
            2 s: RetryAfter(2.2s)
            120 s: RetryAfter(132s)
            a day: Stop
            0 s: RetryAfter(1s)
        "#]],
    );
}

#[test]
fn what_cannot_pass_or_was_shown_is_not_asked_again() {
    check(
        &[
            ("unauthorized", attempt(1, RequestFailure::Unauthorized)),
            ("too long", attempt(1, RequestFailure::TooLong)),
            ("refused", attempt(1, RequestFailure::Refused)),
            ("missing", attempt(1, RequestFailure::NotFound)),
            ("cut, nothing shown", attempt(1, RequestFailure::Truncated)),
            ("cut, shown", FailedAttempt { is_reply_shown: true, ..attempt(1, RequestFailure::Truncated) }),
        ],
        expect![[r#"
            unauthorized: Stop
            too long: Stop
            refused: Stop
            missing: Stop
            cut, nothing shown: RetryAfter(1s)
            cut, shown: Stop
        "#]],
    );
}

#[test]
fn statuses_and_bodies_are_judged() {
    let mut out = String::new();
    for (status, body) in [
        (400, r#"{"error":{"message":"bad"}}"#),
        (400, r#"{"error":{"code":"context_length_exceeded"}}"#),
        (400, r#"{"error":{"message":"prompt is too long: 210000 tokens > 200000 maximum"}}"#),
        (400, "the request exceeds the available context size, try increasing it"),
        (401, ""),
        (403, ""),
        (404, ""),
        (413, ""),
        (422, ""),
        (429, ""),
        (429, r#"{"error":{"code":"insufficient_quota"}}"#),
        (302, ""),
        (500, ""),
        (500, "Exceed_context_size_error"),
        (502, ""),
        (529, ""),
    ] {
        writeln!(out, "{status} {body} -> {:?}", classify_status(status, body)).unwrap();
    }
    for body in [
        r#"{"type":"overloaded_error","message":"Overloaded"}"#,
        r#"{"type":"rate_limit_error"}"#,
        r#"{"type":"invalid_request_error","message":"max_tokens"}"#,
        r#"{"message":"something else"}"#,
        r#"{"type":"authentication_error"}"#,
    ] {
        writeln!(out, "event {body} -> {:?}", classify_error_event(body)).unwrap();
    }
    expect![[r#"
        400 {"error":{"message":"bad"}} -> Refused
        400 {"error":{"code":"context_length_exceeded"}} -> TooLong
        400 {"error":{"message":"prompt is too long: 210000 tokens > 200000 maximum"}} -> TooLong
        400 the request exceeds the available context size, try increasing it -> TooLong
        401  -> Unauthorized
        403  -> Unauthorized
        404  -> NotFound
        413  -> TooLong
        422  -> Refused
        429  -> RateLimited
        429 {"error":{"code":"insufficient_quota"}} -> Refused
        302  -> Refused
        500  -> Overloaded
        500 Exceed_context_size_error -> TooLong
        502  -> Overloaded
        529  -> Overloaded
        event {"type":"overloaded_error","message":"Overloaded"} -> Overloaded
        event {"type":"rate_limit_error"} -> RateLimited
        event {"type":"invalid_request_error","message":"max_tokens"} -> Refused
        event {"message":"something else"} -> Overloaded
        event {"type":"authentication_error"} -> Unauthorized
    "#]]
    .assert_eq(&out);
}

#[test]
fn headers_are_seconds_or_dates() {
    let mut out = String::new();
    // Wed, 21 Oct 2015 07:28:00 GMT.
    let now = 1_445_412_480;
    for value in [
        "7",
        " 2.5 ",
        "-1",
        "nan",
        "Wed, 21 Oct 2015 07:28:00 GMT",
        "Wed, 21 Oct 2015 07:28:30 GMT",
        "Wed, 21 Oct 2015 07:27:00 GMT",
        "Mon, 29 Feb 2016 00:00:00 GMT",
        "Wed, 21 Okt 2015 07:28:00 GMT",
        "Wed, 21 Oct 2015 07:28 GMT",
        "",
        "soon",
    ] {
        writeln!(out, "{value}: {:?}", parse_retry_after(value, now)).unwrap();
    }
    expect![[r#"
        7: Some(7s)
         2.5 : Some(2.5s)
        -1: None
        nan: None
        Wed, 21 Oct 2015 07:28:00 GMT: Some(0ns)
        Wed, 21 Oct 2015 07:28:30 GMT: Some(30s)
        Wed, 21 Oct 2015 07:27:00 GMT: Some(0ns)
        Mon, 29 Feb 2016 00:00:00 GMT: Some(11291520s)
        Wed, 21 Okt 2015 07:28:00 GMT: None
        Wed, 21 Oct 2015 07:28 GMT: None
        : None
        soon: None
    "#]]
    .assert_eq(&out);
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(256))]

    #[test]
    fn any_header_is_read_or_not_and_no_wait_exceeds_its_limit(
        value in ".{0,40}", now in any::<u64>(), number in any::<u32>(), chance in any::<f64>(), seconds in any::<u64>(),
    ) {
        let _read = parse_retry_after(&value, now);
        let limits = RetryLimits::default();
        let decision = decide_retry(&limits, &attempt(number, RequestFailure::TimedOut), chance);
        if let RetryDecision::RetryAfter(wait) = decision {
            prop_assert!(wait <= limits.max_delay);
        }
        let limited = FailedAttempt { retry_after: Some(Duration::from_secs(seconds)), ..attempt(number, RequestFailure::RateLimited) };
        if let RetryDecision::RetryAfter(wait) = decide_retry(&limits, &limited, chance) {
            prop_assert!(wait <= limits.max_retry_after.mul_f64(1.1));
        }
    }
}

#[test]
fn the_message_of_an_error_is_found_in_its_body() {
    let mut out = String::new();
    let long = "a".repeat(700);
    for body in [
        r#"{"error":{"message":"slow\ndown","type":"rate_limit_error"}}"#,
        r#"{"type":"error","error":{"type":"overloaded_error","message":"Overloaded"}}"#,
        r#"[{"error":{"code":400,"message":"from Gemini"}}]"#,
        r#"{"error":"from Ollama"}"#,
        r#"{"detail":"from vLLM"}"#,
        r#"{"odd":true}"#,
        "plain  text\n",
        "<html>a page</html>",
        "",
    ] {
        writeln!(out, "{:?}", error_message(body)).unwrap();
    }
    writeln!(out, "{}", error_message(&long).len()).unwrap();
    expect![[r#"
        "slow down"
        "Overloaded"
        "from Gemini"
        "from Ollama"
        "from vLLM"
        "{\"odd\":true}"
        "plain text"
        ""
        ""
        603
    "#]]
    .assert_eq(&out);
}
