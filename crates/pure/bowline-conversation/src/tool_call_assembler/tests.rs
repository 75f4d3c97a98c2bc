//! Tests of calls that arrive in pieces.

use expect_test::{Expect, expect};

use super::*;

fn delta(index: Option<u64>, id: &str, name: &str, arguments: &str) -> ToolCallDelta {
    ToolCallDelta { index, id: id.into(), name: name.into(), arguments: arguments.into() }
}

fn check(pieces: impl IntoIterator<Item = ToolCallDelta>, expected: Expect) {
    let mut calls = ToolCallAssembler::default();
    pieces.into_iter().try_for_each(|piece| calls.add_delta(piece)).unwrap();
    let mut taken = HashSet::from(["old".to_owned()]);
    let shown = |call: ToolUse| match call.input {
        ToolUseInput::Value(input) => format!("{} {} {input}\n", call.id, call.name),
        ToolUseInput::Broken { text, .. } => format!("{} {} broken {text:?}\n", call.id, call.name),
    };
    expected.assert_eq(&calls.finish(&mut taken).into_iter().map(shown).collect::<String>());
}

#[test]
fn pieces_are_told_apart_by_their_index() {
    check(
        [
            delta(Some(7), "a", "read", ""),
            delta(Some(u64::MAX), "b", "", "{\"x\""),
            delta(Some(7), "", "", "{}"),
            delta(Some(u64::MAX), "", "write", ":1}"),
        ],
        expect![[r#"
            a read {}
            b write {"x":1}
        "#]],
    );
}

#[test]
fn calls_of_one_index_are_told_apart_by_their_ids() {
    check(
        [
            delta(Some(0), "a", "read", "{}"),
            delta(Some(0), "b", "read", "{"),
            delta(Some(0), "b", "read", "}"),
            delta(None, "", "whole", "{}"),
            delta(None, "", "whole", "[1]"),
        ],
        expect![[r#"
            a read {}
            b read {}
            call_4 whole {}
            call_5 whole [1]
        "#]],
    );
}

#[test]
fn ids_and_inputs_that_cannot_be_used_are_replaced_or_kept_to_be_reported() {
    check(
        [
            delta(None, "old", "read", "  "),
            delta(None, "no id!", "read", r#""{\"twice\":true}""#),
            delta(None, &"x".repeat(41), "read", "{oops"),
            delta(None, "", "write", r#"{"text":"\$1"}"#),
        ],
        expect![[r#"
            call_2 read {}
            call_3 read {"twice":true}
            call_4 read broken "{oops"
            call_5 write {"text":"\\$1"}
        "#]],
    );
}

#[test]
fn calls_and_their_inputs_have_limits() {
    let mut calls = ToolCallAssembler::default();
    for number in 0..500 {
        calls.add_delta(delta(Some(0), &format!("c{number}"), "read", "{\"n\":")).unwrap();
        calls.add_delta(delta(Some(0), "", "", "1}")).unwrap();
    }
    let calls = calls.finish(&mut HashSet::new());
    assert_eq!(calls.len(), MAX_CALLS);
    assert!(calls.iter().all(|call| call.input == ToolUseInput::Value(serde_json::json!({"n": 1}))));
    let mut calls = ToolCallAssembler::default();
    let large = "x".repeat(MAX_ARGUMENTS / 2);
    calls.add_delta(delta(Some(0), "a", "read", &large)).unwrap();
    calls.add_delta(delta(Some(1), "b", "read", &large)).unwrap();
    assert_eq!(calls.add_delta(delta(Some(0), "", "", "x")), Err(ArgumentsTooLargeError));
}
