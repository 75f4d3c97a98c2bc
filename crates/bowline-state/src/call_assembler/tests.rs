//! Tests of calls that come in pieces.

use expect_test::{Expect, expect};

use super::*;

fn piece(index: Option<u64>, id: &str, name: &str, arguments: &str) -> CallPiece {
    CallPiece { index, id: id.into(), name: name.into(), arguments: arguments.into() }
}

fn check(pieces: impl IntoIterator<Item = CallPiece>, expected: Expect) {
    let mut calls = CallAssembler::default();
    pieces.into_iter().try_for_each(|piece| calls.add(piece)).unwrap();
    let mut taken = HashSet::from(["old".to_owned()]);
    let shown = |call: ToolUse| match call.input {
        Input::Value(input) => format!("{} {} {input}\n", call.id, call.name),
        Input::Broken { text, .. } => format!("{} {} broken {text:?}\n", call.id, call.name),
    };
    expected.assert_eq(&calls.finish(&mut taken).into_iter().map(shown).collect::<String>());
}

#[test]
fn pieces_are_told_apart_by_their_index() {
    check(
        [
            piece(Some(7), "a", "read", ""),
            piece(Some(u64::MAX), "b", "", "{\"x\""),
            piece(Some(7), "", "", "{}"),
            piece(Some(u64::MAX), "", "write", ":1}"),
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
            piece(Some(0), "a", "read", "{}"),
            piece(Some(0), "b", "read", "{"),
            piece(Some(0), "b", "read", "}"),
            piece(None, "", "whole", "{}"),
            piece(None, "", "whole", "[1]"),
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
            piece(None, "old", "read", "  "),
            piece(None, "no id!", "read", r#""{\"twice\":true}""#),
            piece(None, &"x".repeat(41), "read", "{oops"),
            piece(None, "", "write", r#"{"text":"\$1"}"#),
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
    let mut calls = CallAssembler::default();
    for number in 0..500 {
        calls.add(piece(Some(0), &format!("c{number}"), "read", "{\"n\":")).unwrap();
        calls.add(piece(Some(0), "", "", "1}")).unwrap();
    }
    let calls = calls.finish(&mut HashSet::new());
    assert_eq!(calls.len(), MAX_CALLS);
    assert!(calls.iter().all(|call| call.input == Input::Value(serde_json::json!({"n": 1}))));
    let mut calls = CallAssembler::default();
    let large = "x".repeat(MAX_ARGUMENTS / 2);
    calls.add(piece(Some(0), "a", "read", &large)).unwrap();
    calls.add(piece(Some(1), "b", "read", &large)).unwrap();
    assert_eq!(calls.add(piece(Some(0), "", "", "x")), Err(ArgumentsTooLarge));
}
