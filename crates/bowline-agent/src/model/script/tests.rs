//! Tests of scripts.

use bowline_conversation::conversation::MessageRole;
use expect_test::{Expect, expect};
use futures_util::StreamExt as _;

use super::*;
use crate::model::tests::{format_reply, request};

async fn check(script: &str, prompts: &[&str], expected: Expect) {
    let script = ScriptedModel::parse("script:test", script).unwrap();
    let mut out = String::new();
    for prompt in prompts {
        out.push_str(
            &format_reply(script.stream_reply(request(
                vec![ConversationMessage::from_text(MessageRole::User, *prompt)],
                &[],
            )))
            .await,
        );
        out.push_str("--\n");
    }
    expected.assert_eq(&out);
}

#[tokio::test(start_paused = true)]
async fn replies_come_in_order() {
    check(
        r#"
// A comment.
{"thought": "hm", "text": "a", "delay_ms": 5000, "usage": {"input": 3}}
{"chunks": ["b", "c"], "chunk_ms": 10, "calls": [{"name": "x", "input": {"a": 1}}, {"name": "y", "input": "{", "id": "7"}, {"name": "z"}]}
{"text": "d", "stop": "length"}
{"text": "e", "stop": "none"}
{"text": "f", "error": {"busy": {"why": "tired", "retry_after": null}}}
{"error": {"cut_short": "gone"}}
"#,
        &["1", "2", "3", "4", "5", "6", "7"],
        expect![[r#"
            thought "hm"
            text "a"
            usage 3 0
            end Done
            --
            text "b"
            text "c"
            call script_1 x {"a":1}
            call 7 y broken "{": it is not JSON
            call script_3 z {}
            end Done
            --
            text "d"
            end Length
            --
            text "e"
            --
            text "f"
            ! the provider is busy: tired
            --
            ! the reply was cut short: gone
            --
            ! the reply cannot be used: the script has only 6 replies
            --
        "#]],
    )
    .await;
}

#[tokio::test]
async fn what_is_expected_must_have_been_said() {
    check(
        r#"{"expect": "hello", "text": "hi"}
{"expect": "hello", "text": "hi"}"#,
        &["well, hello", "good bye"],
        expect![[r#"
            text "hi"
            end Done
            --
            ! the reply cannot be used: reply 2 of the script expects "hello" in "good bye"
            --
        "#]],
    )
    .await;
}

#[test]
fn a_wrong_script_is_told() {
    let parse_error = |text| ScriptedModel::parse("script:a", text).unwrap_err().to_string();
    expect!["there is no model script:a: line 2: unknown field `txt`, expected one of `expect`, `delay_ms`, `thought`, `text`, `chunks`, `chunk_ms`, `calls`, `usage`, `error`, `stop` at line 1 column 6"]
        .assert_eq(&parse_error("{}\n{\"txt\": 1}"));
    let missing = ScriptedModel::open(Path::new("/nowhere/at/all")).unwrap_err().to_string();
    expect!["there is no model script:/nowhere/at/all: No such file or directory (os error 2)"]
        .assert_eq(&missing);
}

#[tokio::test(start_paused = true)]
async fn nothing_happens_before_it_is_asked() {
    let script = ScriptedModel::parse("script:test", r#"{"text": "a", "delay_ms": 60000}"#).unwrap();
    let mut reply = script.stream_reply(request(vec![], &[]));
    let start = tokio::time::Instant::now();
    assert_eq!(reply.next().await, Some(Ok(ReplyEvent::Text("a".into()))));
    assert_eq!(start.elapsed(), Duration::from_secs(60));
}

#[tokio::test]
async fn a_script_goes_on_where_the_conversation_is() {
    let message = |role, text: &str| ConversationMessage::from_text(role, text);
    let mut conversation = vec![
        message(MessageRole::User, "1"),
        message(MessageRole::Assistant, "a"),
        message(MessageRole::User, "2"),
    ];
    // A failed turn has consumed a reply; a note after a thought has not consumed another.
    conversation.push(message(MessageRole::Assistant, "(This turn failed before there was an answer.)"));
    conversation.push(message(MessageRole::User, "3"));
    let thought = vec![MessagePart::Thought { text: "hm".into(), signature: None }];
    conversation.push(ConversationMessage { role: MessageRole::Assistant, parts: thought });
    conversation.push(message(MessageRole::Assistant, "(There was no answer.)"));
    conversation.push(message(MessageRole::User, "4"));
    let texts = r#"{"text": "a"}
{"text": "b"}
{"text": "c"}
{"text": "d"}
{"text": "e"}"#;
    let script = ScriptedModel::parse("script:test", texts).unwrap();
    let mut out = String::new();
    for _ in 0..2 {
        // The first reply failed in transit, and left nothing.
        out.push_str(&format_reply(script.stream_reply(request(conversation.clone(), &[]))).await);
    }
    expect![[r#"
        text "d"
        end Done
        text "e"
        end Done
    "#]]
    .assert_eq(&out);
}
