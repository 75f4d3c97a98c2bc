//! Tests of version negotiation, as data.

use super::*;
use expect_test::{Expect, expect};
use proptest::prelude::*;
use std::fmt::Write;

fn check(versions: &[u16], expected: Expect) {
    let mut text = String::new();
    for &version in versions {
        let version = ProtocolVersion::from(version);
        let accepted = match check_version(version) {
            Ok(()) => "accepted".to_owned(),
            Err(error) => format!("! {error}"),
        };
        writeln!(text, "asked {version}: answers {}\nanswered {version}: {accepted}", negotiate(version))
            .unwrap();
    }
    expected.assert_eq(&text);
}

#[test]
fn a_version_that_is_not_spoken_is_answered_with_the_latest_one_and_never_echoed() {
    check(
        &[0, 1, 2, 99, 65535],
        expect![[r#"
            asked 0: answers 1
            answered 0: ! the agent answered protocol version 0, which is not spoken here (latest: 1)
            asked 1: answers 1
            answered 1: accepted
            asked 2: answers 1
            answered 2: ! the agent answered protocol version 2, which is not spoken here (latest: 1)
            asked 99: answers 1
            answered 99: ! the agent answered protocol version 99, which is not spoken here (latest: 1)
            asked 65535: answers 1
            answered 65535: ! the agent answered protocol version 65535, which is not spoken here (latest: 1)
        "#]],
    );
}

proptest! {
    #[test]
    fn what_is_negotiated_is_always_accepted(requested: u16) {
        prop_assert_eq!(check_version(negotiate(requested.into())), Ok(()));
    }
}
