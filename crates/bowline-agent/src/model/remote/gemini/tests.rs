//! Tests of Gemini's wire format, on recorded events.

use bowline_conversation::conversation::{ToolUse, ToolUseInput};
use expect_test::{Expect, expect};

use super::*;
use crate::model::remote::tests::format_pieces;
use crate::model::tests::request;

fn check(stream: &str, expected: Expect) {
    expected.assert_eq(&format_pieces(stream, |_, event| read_event(event)));
}

#[test]
fn calls_come_whole_and_some_are_signed() {
    check(
        r#"
data: {"candidates": [{"content": {"parts": [{"text": "**Two files**","thought": true}],"role": "model"},"index": 0}],"usageMetadata": {"promptTokenCount": 100,"totalTokenCount": 130,"promptTokensDetails": [{"modality": "TEXT","tokenCount": 100}],"thoughtsTokenCount": 30},"modelVersion": "gemini-2.5-pro","responseId": "x"}

data: {"candidates": [{"content": {"parts": [{"functionCall": {"name": "read","args": {"path": "a"}},"thoughtSignature": "CiQB"},{"functionCall": {"id": "fc1","name": "read"}}],"role": "model"},"finishReason": "STOP","index": 0,"finishMessage": "ok"}],"usageMetadata": {"promptTokenCount": 100,"candidatesTokenCount": 20,"cachedContentTokenCount": 64,"toolUsePromptTokenCount": 5,"totalTokenCount": 150,"thoughtsTokenCount": 30}}

"#,
        expect![[r#"
            usage 100 (0 read, 0 written) 30 (30 thought)
            thought "**Two files**"
            usage 105 (64 read, 0 written) 50 (30 thought)
            signature "gemini:CiQB"
            call - "" "read" "{\"path\":\"a\"}"
            call - "fc1" "read" ""
            stop STOP
            end
        "#]],
    );
}

#[test]
fn what_is_blocked_is_refused() {
    check(
        r#"
data: {"promptFeedback": {"blockReason": "PROHIBITED_CONTENT"},"usageMetadata": {"promptTokenCount": 4},"modelVersion": "gemini-2.5-pro"}

data: {"usageMetadata": {"promptTokenCount": 4}}

data: {"candidates": [{"finishReason": "SAFETY","index": 0}]}

"#,
        expect![[r#"
            usage 4 (0 read, 0 written) 0 (0 thought)
            stop refusal
            end
            usage 4 (0 read, 0 written) 0 (0 thought)
            stop SAFETY
            end
        "#]],
    );
}

fn info() -> ModelInfo {
    let (name, title) = ("gemini/x".to_owned(), "x".to_owned());
    ModelInfo { name, title, context_window: 1, supports_images: true, supports_thinking: true, price: None }
}

#[test]
fn each_generation_is_told_in_its_own_way_how_much_to_think() {
    let mut out = String::new();
    for name in ["gemini-2.5-pro", "gemini-2.5-flash", "gemini-3-pro-preview"] {
        for thinking in [ThinkingLevel::Default, ThinkingLevel::Off, ThinkingLevel::High] {
            let request = ModelRequest {
                thinking,
                ..request(vec![ConversationMessage::from_text(MessageRole::User, "Think.")], &[])
            };
            let body = request_body(name, &info(), &request);
            out.push_str(&format!("{name} {thinking:?}: {}\n", body["generationConfig"]["thinkingConfig"]));
        }
    }
    expect![[r#"
        gemini-2.5-pro Default: {"includeThoughts":true}
        gemini-2.5-pro Off: {"thinkingBudget":1000,"includeThoughts":true}
        gemini-2.5-pro High: {"thinkingBudget":24000,"includeThoughts":true}
        gemini-2.5-flash Default: {"includeThoughts":true}
        gemini-2.5-flash Off: {"thinkingBudget":0,"includeThoughts":true}
        gemini-2.5-flash High: {"thinkingBudget":24000,"includeThoughts":true}
        gemini-3-pro-preview Default: {"includeThoughts":true}
        gemini-3-pro-preview Off: {"thinkingLevel":"MINIMAL","includeThoughts":true}
        gemini-3-pro-preview High: {"thinkingLevel":"HIGH","includeThoughts":true}
    "#]]
    .assert_eq(&out);
}

#[test]
fn signatures_go_back_where_the_api_wants_them() {
    let thought = || MessagePart::Thought { text: "Hm.".into(), signature: Some("gemini:sig".into()) };
    let text = || MessagePart::Text { text: "I read.".into() };
    let call = |id: &str| {
        MessagePart::Call(ToolUse {
            id: id.into(),
            name: "read".into(),
            input: ToolUseInput::Value(json!({})),
        })
    };
    let mut out = String::new();
    for (name, parts) in [
        ("gemini-2.5-pro", vec![thought(), text()]),
        ("gemini-2.5-pro", vec![thought(), text(), call("a"), call("b")]),
        ("gemini-2.5-pro", vec![text(), call("a")]),
        ("gemini-3-pro", vec![call("a"), call("b")]),
    ] {
        let message = ConversationMessage { role: MessageRole::Assistant, parts };
        for part in message_contents(name, &info(), &message)[0]["parts"].as_array().unwrap() {
            out.push_str(&format!("{part}\n"));
        }
        out.push('\n');
    }
    expect![[r#"
        {"text":"I read.","thoughtSignature":"sig"}

        {"text":"I read."}
        {"functionCall":{"id":"a","name":"read","args":{}},"thoughtSignature":"sig"}
        {"functionCall":{"id":"b","name":"read","args":{}}}

        {"text":"I read."}
        {"functionCall":{"id":"a","name":"read","args":{}}}

        {"functionCall":{"id":"a","name":"read","args":{}},"thoughtSignature":"skip_thought_signature_validator"}
        {"functionCall":{"id":"b","name":"read","args":{}}}

    "#]]
    .assert_eq(&out);
}
