//! Tests of Anthropic's wire format, on recorded events.

use bowline_conversation::conversation::{ToolUse, ToolUseInput};
use expect_test::{Expect, expect};

use super::*;
use crate::model::remote::tests::format_pieces;
use crate::model::tests::request;

fn check(stream: &str, expected: Expect) {
    let mut reader = EventReader::default();
    expected.assert_eq(&format_pieces(stream, |kind, event| reader.read(kind, event)));
}

#[test]
fn thoughts_texts_and_parallel_calls() {
    check(
        r#"
event: message_start
data: {"type":"message_start","message":{"id":"msg_01","type":"message","role":"assistant","model":"claude-sonnet-4-5-20250929","content":[],"stop_reason":null,"usage":{"input_tokens":12,"cache_creation_input_tokens":100,"cache_read_input_tokens":2000,"cache_creation":{"ephemeral_5m_input_tokens":100},"output_tokens":3,"service_tier":"standard"}}}

event: content_block_start
data: {"type":"content_block_start","index":0,"content_block":{"type":"thinking","thinking":"","signature":""}}

event: ping
data: {"type": "ping"}

event: content_block_delta
data: {"type":"content_block_delta","index":0,"delta":{"type":"thinking_delta","thinking":"Two files."}}

event: content_block_delta
data: {"type":"content_block_delta","index":0,"delta":{"type":"signature_delta","signature":"EqQB"}}

event: content_block_stop
data: {"type":"content_block_stop","index":0}

event: content_block_start
data: {"type":"content_block_start","index":1,"content_block":{"type":"text","text":""}}

event: content_block_delta
data: {"type":"content_block_delta","index":1,"delta":{"type":"text_delta","text":"I read both."}}

event: content_block_stop
data: {"type":"content_block_stop","index":1}

event: content_block_start
data: {"type":"content_block_start","index":2,"content_block":{"type":"tool_use","id":"toolu_01","name":"read","input":{}}}

event: content_block_delta
data: {"type":"content_block_delta","index":2,"delta":{"type":"input_json_delta","partial_json":"{\"path\""}}

event: content_block_start
data: {"type":"content_block_start","index":3,"content_block":{"type":"tool_use","id":"toolu_02","name":"read","input":{}}}

event: content_block_delta
data: {"type":"content_block_delta","index":2,"delta":{"type":"input_json_delta","partial_json":": \"a\"}"}}

event: content_block_delta
data: {"type":"content_block_delta","index":3,"delta":{"type":"input_json_delta","partial_json":"{\"path\": \"b\"}"}}

event: content_block_stop
data: {"type":"content_block_stop","index":2}

event: content_block_stop
data: {"type":"content_block_stop","index":3}

event: message_delta
data: {"type":"message_delta","delta":{"stop_reason":"tool_use","stop_sequence":null},"usage":{"input_tokens":12,"cache_creation_input_tokens":100,"cache_read_input_tokens":2000,"output_tokens":91,"output_tokens_details":{"thinking_tokens":7}}}

event: message_stop
data: {"type":"message_stop"}

"#,
        expect![[r#"
            usage 2112 (2000 read, 100 written) 3 (0 thought)
            thought "Two files."
            signature "anthropic:EqQB"
            text "I read both."
            call 2 "toolu_01" "read" ""
            call 2 "" "" "{\"path\""
            call 3 "toolu_02" "read" ""
            call 2 "" "" ": \"a\"}"
            call 3 "" "" "{\"path\": \"b\"}"
            usage 2112 (2000 read, 100 written) 91 (7 thought)
            stop tool_use
            end
        "#]],
    );
}

#[test]
fn events_that_are_not_known_say_nothing() {
    check(
        r#"
event: content_block_start
data: {"type":"content_block_start","index":0,"content_block":{"type":"server_tool_use","id":"srvtoolu_01","name":"web_search","input":{}}}

event: content_block_delta
data: {"type":"content_block_delta","index":0,"delta":{"type":"input_json_delta","partial_json":"{}"}}

event: content_block_delta
data: {"type":"content_block_delta","index":0,"delta":{"type":"citations_delta","citation":{}}}

event: content_block_stop
data: {"type":"content_block_stop","index":0}

event: news
data: {"type":"news","index":"many","delta":7}

event: message_stop
data: {}

"#,
        expect![[r#"
            end
        "#]],
    );
}

#[test]
fn a_call_without_its_end_is_open() {
    check(
        r#"
data: {"type":"content_block_start","index":0,"content_block":{"type":"tool_use","id":"toolu_01","name":"read","input":{}}}

data: {"type":"message_delta","delta":{"stop_reason":"max_tokens"},"usage":{"output_tokens":64000}}

data: {"type":"message_stop"}

"#,
        expect![[r#"
            call 0 "toolu_01" "read" ""
            usage 0 (0 read, 0 written) 64000 (0 thought)
            stop max_tokens
            end with open calls
        "#]],
    );
}

fn info(thinking: bool) -> ModelInfo {
    let (name, title) = ("anthropic/x".to_owned(), "x".to_owned());
    ModelInfo {
        name,
        title,
        context_window: 200_000,
        supports_images: true,
        supports_thinking: thinking,
        price: None,
    }
}

#[test]
fn each_generation_is_told_in_its_own_way_how_much_to_think() {
    let mut out = String::new();
    for name in [
        "claude-3-5-haiku-20241022", "claude-opus-4-1-20250805", "claude-sonnet-4-5",
        "anthropic/claude-opus-4.6", "claude-mythos-preview", "claude-sonnet-5", "a-gateway-alias",
    ] {
        for thinking in [ThinkingLevel::Default, ThinkingLevel::Off, ThinkingLevel::Medium] {
            let request = ModelRequest {
                thinking,
                ..request(vec![ConversationMessage::from_text(MessageRole::User, "Think.")], &[])
            };
            let body = request_body(name, &info(true), &request);
            let values = [&body["thinking"], &body["output_config"], &body["max_tokens"]];
            out.push_str(&format!("{name} {thinking:?}: {} {} {}\n", values[0], values[1], values[2]));
        }
    }
    expect![[r#"
        claude-3-5-haiku-20241022 Default: null null 4096
        claude-3-5-haiku-20241022 Off: null null 4096
        claude-3-5-haiku-20241022 Medium: null null 4096
        claude-opus-4-1-20250805 Default: null null 32000
        claude-opus-4-1-20250805 Off: null null 32000
        claude-opus-4-1-20250805 Medium: {"type":"enabled","budget_tokens":8000} null 32000
        claude-sonnet-4-5 Default: null null 64000
        claude-sonnet-4-5 Off: null null 64000
        claude-sonnet-4-5 Medium: {"type":"enabled","budget_tokens":8000} null 64000
        anthropic/claude-opus-4.6 Default: null null 64000
        anthropic/claude-opus-4.6 Off: null null 64000
        anthropic/claude-opus-4.6 Medium: {"type":"adaptive","display":"summarized"} {"effort":"medium"} 64000
        claude-mythos-preview Default: null null 64000
        claude-mythos-preview Off: null null 64000
        claude-mythos-preview Medium: {"type":"adaptive","display":"summarized"} {"effort":"medium"} 64000
        claude-sonnet-5 Default: null null 64000
        claude-sonnet-5 Off: {"type":"disabled"} null 64000
        claude-sonnet-5 Medium: {"type":"adaptive","display":"summarized"} {"effort":"medium"} 64000
        a-gateway-alias Default: null null 64000
        a-gateway-alias Off: null null 64000
        a-gateway-alias Medium: {"type":"enabled","budget_tokens":8000} null 64000
    "#]]
    .assert_eq(&out);
}

#[test]
fn a_model_does_not_begin_to_think_in_the_middle_of_a_turn_or_beyond_its_limit() {
    let call = ToolUse { id: "c".into(), name: "read".into(), input: ToolUseInput::Value(json!({})) };
    let conversation = |signature: Option<&str>| {
        let thought = MessagePart::Thought { text: "Hm.".into(), signature: signature.map(Into::into) };
        let parts = vec![thought, MessagePart::Call(call.clone())];
        let result = MessagePart::Result(ToolResult::success(&call, "1"));
        vec![
            ConversationMessage::from_text(MessageRole::User, "Look."),
            ConversationMessage { role: MessageRole::Assistant, parts },
            ConversationMessage { role: MessageRole::Tool, parts: vec![result] },
        ]
    };
    for (messages, max_output, expected) in [
        (conversation(Some("anthropic:sig")), None, true),
        (conversation(Some("anthropic-hidden:data")), None, true),
        (conversation(Some("gemini:sig")), None, false),
        (conversation(None), None, false),
        (conversation(Some("anthropic:sig")), Some(1_024), false),
        (conversation(Some("anthropic:sig")), Some(1_025), true),
    ] {
        let request =
            ModelRequest { thinking: ThinkingLevel::Low, max_output, ..request(messages, &["read"]) };
        let body = request_body("claude-sonnet-4-5", &info(true), &request);
        assert_eq!(body.get("thinking").is_some(), expected, "{body}");
    }
    // A model without thinking gets no thinking level.
    let request =
        ModelRequest { thinking: ThinkingLevel::Low, ..request(conversation(Some("anthropic:sig")), &[]) };
    assert_eq!(request_body("claude-sonnet-4-5", &info(false), &request).get("thinking"), None);
}
