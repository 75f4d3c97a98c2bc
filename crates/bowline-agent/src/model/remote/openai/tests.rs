//! Tests of OpenAI's wire format, on recorded events.

use expect_test::{Expect, expect};

use super::*;
use crate::model::remote::tests::format_pieces;
use crate::model::tests::request;

fn check(stream: &str, expected: Expect) {
    expected.assert_eq(&format_pieces(stream, |_, event| read_event(event)));
}

#[test]
fn openai_sends_parallel_calls_by_index() {
    check(
        r#"
data: {"id":"chatcmpl-1","object":"chat.completion.chunk","created":1,"model":"gpt-5","service_tier":"default","system_fingerprint":null,"choices":[{"index":0,"delta":{"role":"assistant","content":null,"refusal":null},"logprobs":null,"finish_reason":null}],"usage":null,"obfuscation":"x"}

data: {"id":"chatcmpl-1","choices":[{"index":0,"delta":{"tool_calls":[{"index":0,"id":"call_1","type":"function","function":{"name":"read","arguments":""}}]},"finish_reason":null}],"usage":null}

data: {"id":"chatcmpl-1","choices":[{"index":0,"delta":{"tool_calls":[{"index":0,"function":{"arguments":"{\"path\":\"a\"}"}}]},"finish_reason":null}],"usage":null}

data: {"id":"chatcmpl-1","choices":[{"index":0,"delta":{"tool_calls":[{"index":1,"id":"call_2","type":"function","function":{"name":"read","arguments":"{}"}}]},"finish_reason":null}],"usage":null}

data: {"id":"chatcmpl-1","choices":[{"index":0,"delta":{},"finish_reason":"tool_calls"}],"usage":null}

data: {"id":"chatcmpl-1","choices":[],"usage":{"prompt_tokens":1117,"completion_tokens":46,"total_tokens":1163,"prompt_tokens_details":{"cached_tokens":1024,"audio_tokens":0},"completion_tokens_details":{"reasoning_tokens":20,"accepted_prediction_tokens":0}}}

"#,
        expect![[r#"
            call 0 "call_1" "read" ""
            call 0 "" "" "{\"path\":\"a\"}"
            call 1 "call_2" "read" "{}"
            stop tool_calls
            usage 1117 (1024 read, 0 written) 46 (20 thought)
        "#]],
    );
}

#[test]
fn other_servers_have_forms_of_their_own() {
    check(
        r#"
data: {"choices":[{"delta":{"role":"assistant","content":null,"reasoning_content":"deepseek"}}]}

data: {"choices":[{"delta":{"role":"assistant","content":"","reasoning":"ollama"}}]}

data: {"choices":[{"delta":{"reasoning":"openrouter","reasoning_content":"openrouter"}}]}

data: {"choices":[{"delta":{"content":[{"type":"thinking","thinking":[{"type":"text","text":"mistral"}]}]}}]}

data: {"choices":[{"delta":{"content":[{"type":"text","text":"mistral"}]}}]}

data: {"choices":[{"delta":{"tool_calls":[{"id":"a","function":{"name":"no_index","arguments":{"path":"object"}}},{"id":"b","function":{"name":"second"}}]}}]}

data: {"choices":[{"delta":{"content":"with the reason"},"finish_reason":"stop"}],"usage":{"prompt_tokens":1,"completion_tokens":2}}

"#,
        expect![[r#"
            thought "deepseek"
            thought "ollama"
            thought "openrouter"
            thought "mistral"
            text "mistral"
            call 0 "a" "no_index" "{\"path\":\"object\"}"
            call 1 "b" "second" ""
            usage 1 (0 read, 0 written) 2 (0 thought)
            text "with the reason"
            stop stop
        "#]],
    );
}

#[test]
fn each_family_is_told_in_its_own_way_how_much_to_think_and_say() {
    let mut out = String::new();
    for name in ["gpt-5", "gpt-5-mini", "gpt-5.2", "o3", "gpt-4.1", "qwen3"] {
        for thinking in [ThinkingLevel::Default, ThinkingLevel::Off, ThinkingLevel::High] {
            let (full_name, title) = (format!("openai/{name}"), name.to_owned());
            let info = ModelInfo {
                name: full_name,
                title,
                context_window: 1,
                supports_images: false,
                supports_thinking: true,
                price: None,
            };
            let request = ModelRequest {
                thinking,
                max_output: Some(9),
                ..request(vec![ConversationMessage::from_text(MessageRole::User, "Think.")], &[])
            };
            let body = request_body(Provider::OpenAi, name, &info, &request);
            let limits = [&body["max_completion_tokens"], &body["max_tokens"]];
            out.push_str(&format!(
                "{name} {thinking:?}: {} {} {}\n",
                body["reasoning_effort"], limits[0], limits[1]
            ));
        }
    }
    expect![[r#"
        gpt-5 Default: null 9 null
        gpt-5 Off: "minimal" 9 null
        gpt-5 High: "high" 9 null
        gpt-5-mini Default: null 9 null
        gpt-5-mini Off: "minimal" 9 null
        gpt-5-mini High: "high" 9 null
        gpt-5.2 Default: null 9 null
        gpt-5.2 Off: "none" 9 null
        gpt-5.2 High: "high" 9 null
        o3 Default: null 9 null
        o3 Off: "none" 9 null
        o3 High: "high" 9 null
        gpt-4.1 Default: null null 9
        gpt-4.1 Off: "none" null 9
        gpt-4.1 High: "high" null 9
        qwen3 Default: null null 9
        qwen3 Off: "none" null 9
        qwen3 High: "high" null 9
    "#]]
    .assert_eq(&out);
}
