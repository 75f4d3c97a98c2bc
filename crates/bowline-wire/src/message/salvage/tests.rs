//! Tests of salvaging the id from truncated or binary data. Complete texts that are not messages are tested with the
//! envelope.

use expect_test::{Expect, expect};
use proptest::prelude::*;

use super::*;

/// Salvages every line, in which `\xff` stands for a byte that is never part of UTF-8.
fn check(texts: &str, expected: Expect) {
    let show = |text: &str| format!("{text}\n    {:?}\n", salvage(&bytes(text)));
    let texts = texts.lines().map(str::trim).filter(|text| !text.is_empty());
    expected.assert_eq(&texts.map(show).collect::<String>());
}

fn bytes(text: &str) -> Vec<u8> {
    text.split(r"\xff").map(str::as_bytes).collect::<Vec<_>>().join(&0xff)
}

#[test]
fn bytes_that_are_no_text_do_not_hide_the_id() {
    check(
        r#"
        {"jsonrpc":"2.0","id":1,"method":"m","params":"\xff"}
        {"jsonrpc":"2.0","params":{"text":"\xff\"\\"},"id":"x","method":"m"}
        {"jsonrpc":"2.0","\xff":1,"id":1,"result":{}}
        {"jsonrpc":"2.0","id":1,"result":\xff}
        {"jsonrpc":"2.0","id":"\xff","method":"m"}
        {"jsonrpc":"2.0",\xff"id":1,"method":"m"}
        \xff{"jsonrpc":"2.0","id":1,"method":"m"}
        "#,
        expect![[r#"
            {"jsonrpc":"2.0","id":1,"method":"m","params":"\xff"}
                SalvagedMessage { id: Some(Number(1)), is_response: false }
            {"jsonrpc":"2.0","params":{"text":"\xff\"\\"},"id":"x","method":"m"}
                SalvagedMessage { id: Some(Str("x")), is_response: false }
            {"jsonrpc":"2.0","\xff":1,"id":1,"result":{}}
                SalvagedMessage { id: Some(Number(1)), is_response: true }
            {"jsonrpc":"2.0","id":1,"result":\xff}
                SalvagedMessage { id: Some(Number(1)), is_response: true }
            {"jsonrpc":"2.0","id":"\xff","method":"m"}
                SalvagedMessage { id: None, is_response: false }
            {"jsonrpc":"2.0",\xff"id":1,"method":"m"}
                SalvagedMessage { id: None, is_response: false }
            \xff{"jsonrpc":"2.0","id":1,"method":"m"}
                SalvagedMessage { id: None, is_response: false }
        "#]],
    );
}

#[test]
fn a_message_that_is_cut_off_names_only_a_whole_id() {
    check(
        r#"
        {"jsonrpc":"2.0","id":123,"method":"m","params":{"text":"aaaa
        {"jsonrpc":"2.0","id":123,
        {"jsonrpc":"2.0","id":123}
        {"jsonrpc":"2.0","id":12
        {"jsonrpc":"2.0","id":"12
        {"jsonrpc":"2.0","id":"12\
        {"jsonrpc":"2.0","id":
        {"jsonrpc":"2.0","id
        {
        [{"jsonrpc":"2.0","id":123
        "#,
        expect![[r#"
            {"jsonrpc":"2.0","id":123,"method":"m","params":{"text":"aaaa
                SalvagedMessage { id: Some(Number(123)), is_response: false }
            {"jsonrpc":"2.0","id":123,
                SalvagedMessage { id: Some(Number(123)), is_response: false }
            {"jsonrpc":"2.0","id":123}
                SalvagedMessage { id: Some(Number(123)), is_response: false }
            {"jsonrpc":"2.0","id":12
                SalvagedMessage { id: None, is_response: false }
            {"jsonrpc":"2.0","id":"12
                SalvagedMessage { id: None, is_response: false }
            {"jsonrpc":"2.0","id":"12\
                SalvagedMessage { id: None, is_response: false }
            {"jsonrpc":"2.0","id":
                SalvagedMessage { id: None, is_response: false }
            {"jsonrpc":"2.0","id
                SalvagedMessage { id: None, is_response: false }
            {
                SalvagedMessage { id: None, is_response: false }
            [{"jsonrpc":"2.0","id":123
                SalvagedMessage { id: None, is_response: false }
        "#]],
    );
}

#[test]
fn an_id_counts_at_the_top_level_only() {
    check(
        r#"
        {"params":{"id":1,"list":[{"id":2}]},"method":"m","id":3,oops
        {"params":[{"id":1}
        {"params":"\"id\":1","x":oops!
        {"id":{"id":1},"method":"m",
        "#,
        expect![[r#"
            {"params":{"id":1,"list":[{"id":2}]},"method":"m","id":3,oops
                SalvagedMessage { id: Some(Number(3)), is_response: false }
            {"params":[{"id":1}
                SalvagedMessage { id: None, is_response: false }
            {"params":"\"id\":1","x":oops!
                SalvagedMessage { id: None, is_response: false }
            {"id":{"id":1},"method":"m",
                SalvagedMessage { id: None, is_response: false }
        "#]],
    );
}

#[test]
fn any_depth_is_counted_through() {
    let text =
        format!(r#"{{"params":{},"id":1,"method":"m",oops"#, "[".repeat(100_000) + &"]".repeat(100_000));
    assert_eq!(
        salvage(text.as_bytes()),
        SalvagedMessage { id: Some(RequestId::Number(1)), is_response: false }
    );
}

proptest! {
    #[test]
    fn no_cut_of_a_message_names_another_id(id in any::<i64>(), cut in any::<prop::sample::Index>()) {
        let text = format!(r#"{{"jsonrpc":"2.0","params":[{{"id":0}},"id"],"id":{id},"method":"m"}}"#);
        let found = salvage(&text.as_bytes()[..cut.index(text.len() + 1)]);
        prop_assert!(found.id.is_none_or(|found| found == RequestId::Number(id)));
        prop_assert!(!found.is_response);
    }

    #[test]
    fn no_bytes_make_it_fail(bytes in prop::collection::vec(prop_oneof![
        prop::sample::select(br#"{}[]",:\19-"#.to_vec()),
        any::<u8>(),
    ], 0..60)) {
        salvage(&bytes);
        salvage(&[br#"{"id":"#, &bytes[..]].concat());
    }
}
