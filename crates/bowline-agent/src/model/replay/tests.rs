//! Tests of recording and playing back.

use bowline_state::conversation::{Input, ToolResult, ToolUse};
use expect_test::expect;
use serde_json::json;

use super::*;
use crate::model::script::Script;
use crate::model::tests::{request, told};

#[tokio::test]
async fn what_was_recorded_is_played_back() {
    let place = tempfile::tempdir().unwrap();
    let path = place.path().join("tape.jsonl");
    let script = r#"{"thought": "t", "text": "a", "calls": [{"name": "x", "input": {"p": 1}}], "usage": {"input": 2, "output": 1}}
{"text": "b", "error": {"timed_out": "late"}}
{"chunks": ["c", "d"]}"#;
    let model = Recording::new(Arc::new(Script::parse("script:s", script).unwrap()), path.clone());
    assert_eq!(model.info().name, "script:s");
    let mut first = String::new();
    for _ in 0..2 {
        first.push_str(&told(model.ask(request(vec![], &[]))).await);
    }
    // A reply that is dropped is written as far as it came.
    let mut cut = model.ask(request(vec![], &[]));
    assert_eq!(cut.next().await, Some(Ok(Event::Text("c".into()))));
    drop(cut);
    first.push_str("text \"c\"\n");

    #[cfg(unix)]
    {
        use std::os::unix::fs::PermissionsExt as _;
        assert_eq!(std::fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o600);
    }
    let replay = Replay::open(&path).unwrap();
    let mut again = String::new();
    for _ in 0..3 {
        again.push_str(&told(replay.ask(request(vec![], &[]))).await);
    }
    assert_eq!(first, again);
    expect![[r#"
        thought "t"
        text "a"
        call script_1 x {"p":1}
        usage 2 1
        end Done
        text "b"
        ! the model did not answer in time: late
        text "c"
    "#]]
    .assert_eq(&again);
    expect!["! the reply cannot be used: the recording has only 3 replies\n"]
        .assert_eq(&told(replay.ask(request(vec![], &[]))).await);
}

#[tokio::test]
async fn the_replies_of_a_conversation_are_a_recording() {
    let call = ToolUse { id: "c1".to_owned(), name: "x".to_owned(), input: Input::Value(json!({"p": 1})) };
    let answer = ToolResult::done(&call, "done");
    let thought = Part::Thought { text: "t".to_owned(), signature: Some("s".to_owned()) };
    let conversation = [
        Message::text(Role::User, "do it"),
        Message { role: Role::Assistant, parts: vec![thought, Part::Call(call)] },
        Message { role: Role::Tool, parts: vec![Part::Result(answer)] },
        Message::text(Role::Assistant, "done"),
        Message::text(Role::Assistant, "and a note"),
        Message::text(Role::User, "thanks"),
    ];
    let place = tempfile::tempdir().unwrap();
    let path = place.path().join("tape.jsonl");
    std::fs::write(&path, recording("offline", &conversation).unwrap()).unwrap();
    let replay = Replay::open(&path).unwrap();
    let mut again = String::new();
    for _ in 0..2 {
        again.push_str(&told(replay.ask(request(vec![], &[]))).await);
    }
    expect![[r#"
        thought "t" signed "s"
        call c1 x {"p":1}
        end Done
        text "done"
        text "and a note"
        end Done
    "#]]
    .assert_eq(&again);
}
