//! Tests of recording and replaying.

use bowline_conversation::conversation::{ToolResult, ToolUse, ToolUseInput};
use expect_test::expect;
use serde_json::json;

use super::*;
use crate::model::script::ScriptedModel;
use crate::model::tests::{format_reply, request};

#[tokio::test]
async fn what_was_recorded_is_played_back() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("tape.jsonl");
    let script = r#"{"thought": "t", "text": "a", "calls": [{"name": "x", "input": {"p": 1}}], "usage": {"input": 2, "output": 1}}
{"text": "b", "error": {"timed_out": "late"}}
{"chunks": ["c", "d"]}"#;
    let model =
        RecordingModel::new(Arc::new(ScriptedModel::parse("script:s", script).unwrap()), path.clone());
    assert_eq!(model.info().name, "script:s");
    let mut first = String::new();
    for _ in 0..2 {
        first.push_str(&format_reply(model.stream_reply(request(vec![], &[]))).await);
    }
    // A reply that is dropped is written as far as it came.
    let mut reply = model.stream_reply(request(vec![], &[]));
    assert_eq!(reply.next().await, Some(Ok(ReplyEvent::Text("c".into()))));
    drop(reply);
    first.push_str("text \"c\"\n");

    #[cfg(unix)]
    {
        use std::os::unix::fs::PermissionsExt as _;
        assert_eq!(std::fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o600);
    }
    let replay = ReplayModel::open(&path).unwrap();
    let mut second = String::new();
    for _ in 0..3 {
        second.push_str(&format_reply(replay.stream_reply(request(vec![], &[]))).await);
    }
    assert_eq!(first, second);
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
    .assert_eq(&second);
    expect!["! the reply cannot be used: the recording has only 3 replies\n"]
        .assert_eq(&format_reply(replay.stream_reply(request(vec![], &[]))).await);
}

#[tokio::test]
async fn the_replies_of_a_conversation_are_a_recording() {
    let call =
        ToolUse { id: "c1".to_owned(), name: "x".to_owned(), input: ToolUseInput::Value(json!({"p": 1})) };
    let answer = ToolResult::success(&call, "done");
    let thought = MessagePart::Thought { text: "t".to_owned(), signature: Some("s".to_owned()) };
    let conversation = [
        ConversationMessage::from_text(MessageRole::User, "do it"),
        ConversationMessage { role: MessageRole::Assistant, parts: vec![thought, MessagePart::Call(call)] },
        ConversationMessage { role: MessageRole::Tool, parts: vec![MessagePart::Result(answer)] },
        ConversationMessage::from_text(MessageRole::Assistant, "done"),
        ConversationMessage::from_text(MessageRole::Assistant, "and a note"),
        ConversationMessage::from_text(MessageRole::User, "thanks"),
    ];
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("tape.jsonl");
    std::fs::write(&path, recording_from_conversation("offline", &conversation).unwrap()).unwrap();
    let replay = ReplayModel::open(&path).unwrap();
    let mut out = String::new();
    for _ in 0..2 {
        out.push_str(&format_reply(replay.stream_reply(request(vec![], &[]))).await);
    }
    expect![[r#"
        thought "t" signed "s"
        call c1 x {"p":1}
        end Done
        text "done"
        text "and a note"
        end Done
    "#]]
    .assert_eq(&out);
}
