//! The requests to providers, on the wire.

use bowline_conversation::conversation::ThinkingLevel;
use serde_json::{Value, json};

use super::*;

/// Returns a conversation with every kind of part.
fn full_request() -> ModelRequest {
    let call = |id: &str, name: &str, input| ToolUse { id: id.into(), name: name.into(), input };
    let good = call("c1", "read", ToolUseInput::Value(json!({"path": "a"})));
    let broken = call("c2", "no such tool!", ToolUseInput::Broken { text: "{oops".into(), why: "no".into() });
    let thought = |signature: Option<&str>| MessagePart::Thought {
        text: "Hm.".into(),
        signature: signature.map(Into::into),
    };
    let mut result = ToolResult::success(&good, "1\n2");
    result.images.push(("image/png".into(), "AAAA".into()));
    let messages = vec![
        ConversationMessage {
            role: MessageRole::User,
            parts: vec![
                MessagePart::Text { text: "Look.".into() },
                MessagePart::Image { mime: "image/png".into(), data: "BBBB".into() },
            ],
        },
        ConversationMessage {
            role: MessageRole::Assistant,
            parts: vec![
                thought(Some("anthropic:sig")),
                thought(Some("anthropic-hidden:xyz")),
                thought(Some("gemini:gig")),
                thought(None),
                MessagePart::Text { text: "I read.".into() },
                MessagePart::Call(good),
                MessagePart::Call(broken.clone()),
            ],
        },
        ConversationMessage {
            role: MessageRole::Tool,
            parts: vec![
                MessagePart::Result(result),
                MessagePart::Result(ToolResult::failure(&broken, "there is no such tool")),
            ],
        },
    ];
    ModelRequest { thinking: ThinkingLevel::Low, max_output: Some(2_000), ..request(messages, &["read"]) }
}

async fn check(provider: Provider, expected: Expect) {
    let server = MisbehavingServer::start([streaming_answer("")]).await;
    let model = remote_model(&http_clients(Timeouts::default()), provider, &server.url);
    format_reply(model.stream_reply(full_request())).await;
    let request = server.requests().remove(0);
    let header_names = [
        "authorization", "x-api-key", "x-goog-api-key", "anthropic-version", "content-type",
        "accept-encoding", "user-agent",
    ];
    let is_relevant =
        |header: &&String| header_names.iter().any(|name| header.starts_with(&format!("{name}:")));
    let mut headers: Vec<&str> = request.headers.iter().filter(is_relevant).map(String::as_str).collect();
    headers.sort_unstable();
    let mut out = format!("{}\n{}\n", request.path, headers.join("\n"));
    for (key, value) in request.body.as_object().unwrap() {
        match value {
            Value::Array(items) => {
                out.push_str(&format!("{key}:\n"));
                items.iter().for_each(|item| out.push_str(&format!("  {item}\n")));
            }
            value => out.push_str(&format!("{key}: {value}\n")),
        }
    }
    expected.assert_eq(&out);
}

#[tokio::test]
async fn openai() {
    check(Provider::OpenAi, expect![[r#"
        /chat/completions
        authorization: Bearer sk-secret
        content-type: application/json
        user-agent: bowline/0.1.0
        model: "gpt-5"
        stream: true
        reasoning_effort: "low"
        tools:
          {"type":"function","function":{"name":"read","description":"A tool.","parameters":{"type":"object"},"strict":false}}
        messages:
          {"role":"system","content":"Be good."}
          {"role":"user","content":[{"type":"text","text":"Look."},{"type":"image_url","image_url":{"url":"data:image/png;base64,BBBB"}}]}
          {"role":"assistant","content":"I read.","tool_calls":[{"type":"function","id":"c1","function":{"name":"read","arguments":"{\"path\":\"a\"}"}},{"type":"function","id":"c2","function":{"name":"no_such_tool_","arguments":"{\"unreadable\":\"{oops\"}"}}]}
          {"role":"tool","content":"1\n2","tool_call_id":"c1"}
          {"role":"tool","content":"there is no such tool","tool_call_id":"c2"}
          {"role":"user","content":[{"type":"text","text":"Pictures from the tools above:"},{"type":"image_url","image_url":{"url":"data:image/png;base64,AAAA"}}]}
        stream_options: {"include_usage":true}
        max_completion_tokens: 2000
    "#]]).await;
}

#[tokio::test]
async fn compatible() {
    check(Provider::Compatible, expect![[r#"
        /v1/chat/completions
        content-type: application/json
        user-agent: bowline/0.1.0
        model: "some-model-max"
        stream: true
        tools:
          {"type":"function","function":{"name":"read","description":"A tool.","parameters":{"type":"object"},"strict":false}}
        messages:
          {"role":"system","content":"Be good."}
          {"role":"user","content":"Look.\n\n(a picture, which this model cannot see)"}
          {"role":"assistant","content":"I read.","tool_calls":[{"type":"function","id":"c1","function":{"name":"read","arguments":"{\"path\":\"a\"}"}},{"type":"function","id":"c2","function":{"name":"no_such_tool_","arguments":"{\"unreadable\":\"{oops\"}"}}],"reasoning_content":"Hm."}
          {"role":"tool","content":"1\n2","tool_call_id":"c1"}
          {"role":"tool","content":"there is no such tool","tool_call_id":"c2"}
          {"role":"user","content":"Pictures from the tools above:\n\n(a picture, which this model cannot see)"}
        stream_options: {"include_usage":true}
        max_tokens: 2000
    "#]]).await;
}

#[tokio::test]
async fn anthropic() {
    check(Provider::Anthropic, expect![[r#"
        /v1/messages
        anthropic-version: 2023-06-01
        content-type: application/json
        user-agent: bowline/0.1.0
        x-api-key: sk-secret
        model: "claude-sonnet-4-5"
        stream: true
        system:
          {"type":"text","text":"Be good.","cache_control":{"type":"ephemeral"}}
        tools:
          {"name":"read","input_schema":{"type":"object"},"description":"A tool."}
        messages:
          {"role":"user","content":[{"type":"text","text":"Look."},{"type":"image","source":{"type":"base64","media_type":"image/png","data":"BBBB"}}]}
          {"role":"assistant","content":[{"type":"thinking","thinking":"Hm.","signature":"sig"},{"type":"redacted_thinking","data":"xyz"},{"type":"text","text":"I read."},{"type":"tool_use","id":"c1","name":"read","input":{"path":"a"}},{"type":"tool_use","id":"c2","name":"no_such_tool_","input":{"unreadable":"{oops"}}]}
          {"role":"user","content":[{"type":"tool_result","tool_use_id":"c1","is_error":false,"content":[{"type":"text","text":"1\n2"},{"type":"image","source":{"type":"base64","media_type":"image/png","data":"AAAA"}}]},{"type":"tool_result","tool_use_id":"c2","is_error":true,"content":[{"type":"text","text":"there is no such tool"}],"cache_control":{"type":"ephemeral"}}]}
        thinking: {"type":"enabled","budget_tokens":1024}
        max_tokens: 2000
    "#]]).await;
}

#[tokio::test]
async fn gemini() {
    check(Provider::Gemini, expect![[r#"
        /v1beta/models/gemini-2.5-pro:streamGenerateContent?alt=sse
        content-type: application/json
        user-agent: bowline/0.1.0
        x-goog-api-key: sk-secret
        generationConfig: {"thinkingConfig":{"thinkingBudget":1000,"includeThoughts":true},"maxOutputTokens":2000}
        systemInstruction: {"parts":[{"text":"Be good."}]}
        tools:
          {"functionDeclarations":[{"name":"read","description":"A tool.","parametersJsonSchema":{"type":"object"}}]}
        contents:
          {"role":"user","parts":[{"text":"Look."},{"inline_data":{"mime_type":"image/png","data":"BBBB"}}]}
          {"role":"model","parts":[{"text":"I read."},{"functionCall":{"id":"c1","name":"read","args":{"path":"a"}},"thoughtSignature":"gig"},{"functionCall":{"id":"c2","name":"no_such_tool_","args":{"unreadable":"{oops"}}}]}
          {"role":"user","parts":[{"functionResponse":{"id":"c1","name":"read","response":{"output":"1\n2"}}},{"functionResponse":{"id":"c2","name":"no_such_tool_","response":{"error":"there is no such tool"}}}]}
          {"role":"user","parts":[{"text":"Pictures from the tools above:"},{"inline_data":{"mime_type":"image/png","data":"AAAA"}}]}
    "#]]).await;
}

#[tokio::test]
async fn ollama() {
    check(Provider::Ollama, expect![[r#"
        /v1/chat/completions
        content-type: application/json
        user-agent: bowline/0.1.0
        model: "qwen3"
        stream: true
        tools:
          {"type":"function","function":{"name":"read","description":"A tool.","parameters":{"type":"object"},"strict":false}}
        messages:
          {"role":"system","content":"Be good."}
          {"role":"user","content":"Look.\n\n(a picture, which this model cannot see)"}
          {"role":"assistant","content":"I read.","tool_calls":[{"type":"function","id":"c1","function":{"name":"read","arguments":"{\"path\":\"a\"}"}},{"type":"function","id":"c2","function":{"name":"no_such_tool_","arguments":"{\"unreadable\":\"{oops\"}"}}]}
          {"role":"tool","content":"1\n2","tool_call_id":"c1"}
          {"role":"tool","content":"there is no such tool","tool_call_id":"c2"}
          {"role":"user","content":"Pictures from the tools above:\n\n(a picture, which this model cannot see)"}
        stream_options: {"include_usage":true}
        max_tokens: 2000
    "#]]).await;
}

#[tokio::test]
async fn small_models_are_told_of_calls_and_results_in_words() {
    let mut bodies = Vec::new();
    for provider in [Provider::Compatible, Provider::Ollama] {
        let server = MisbehavingServer::start([streaming_answer("")]).await;
        let model = small_model(&http_clients(Timeouts::default()), provider, &server.url);
        format_reply(model.stream_reply(full_request())).await;
        let body = &server.requests()[0].body;
        assert_eq!(body["tools"], Value::Null);
        let messages = body["messages"].as_array().unwrap().iter();
        bodies.push(
            messages
                .map(|message| format!("{}: {}\n", message["role"], message["content"]))
                .collect::<String>(),
        );
    }
    assert_eq!(bodies[0], bodies[1]);
    expect![[r#"
        "system": "Be good."
        "user": "Look.\n\n(a picture, which this model cannot see)"
        "assistant": "I read.\n\n```json\n{\"name\":\"read\",\"arguments\":{\"path\":\"a\"}}\n```\n\n{oops"
        "user": "Result of read:\n1\n2\n\nResult of no such tool! failed:\nthere is no such tool\n\nIf it was refused, tell the user; else correct the call that failed, and make it again."
    "#]].assert_eq(&bodies[0]);
}

#[tokio::test]
async fn a_server_is_asked_once_for_the_window_of_a_model_that_nothing_is_known_of() {
    let body = json!({ "data": [{ "id": "some-model-max", "max_model_len": 8192 }] }).to_string();
    let headers = format!(
        "HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: {}\r\n\r\n",
        body.len()
    );
    let answer = || vec![ConnectionStep::Send(format!("{headers}{body}").into_bytes())];
    let server = MisbehavingServer::start([answer(), answer()]).await;
    let model = remote_model(&http_clients(Timeouts::default()), Provider::Compatible, &server.url);
    assert!(!model.info().is_small());
    for _ in 0..2 {
        model.fetch_info().await;
        assert_eq!(model.info().context_window, 8192);
        assert!(model.info().is_small());
    }
    assert_eq!(
        server.requests().iter().map(|request| request.path.as_str()).collect::<Vec<_>>(),
        ["/v1/models"]
    );
}

#[tokio::test]
async fn a_server_that_says_nothing_of_windows_is_taken_as_it_was() {
    let html = b"HTTP/1.1 200 OK\r\nContent-Length: 6\r\n\r\n<html>".to_vec();
    for answer in [
        vec![ConnectionStep::Reset],
        vec![ConnectionStep::Send(html)],
        status_answer("404 Not Found", "", "no"),
        vec![],
    ] {
        let server = MisbehavingServer::start([answer]).await;
        let model = remote_model(&http_clients(Timeouts::default()), Provider::Compatible, &server.url);
        let before = model.info().clone();
        model.fetch_info().await;
        assert_eq!(*model.info(), before);
    }
    // The windows of other providers' models are known.
    let server = MisbehavingServer::start([]).await;
    for provider in [Provider::Anthropic, Provider::OpenAi, Provider::Gemini] {
        remote_model(&http_clients(Timeouts::default()), provider, &server.url).fetch_info().await;
    }
    assert!(server.requests().is_empty());
}

#[tokio::test]
async fn ollama_loads_a_model_and_is_asked_for_its_window() {
    let load =
        || status_answer("200 OK", "", r#"{"model":"qwen3","response":"","done":true,"done_reason":"load"}"#);
    let models = |models: Value| status_answer("200 OK", "", &json!({ "models": models }).to_string());
    let loaded = models(json!([{ "name": "qwen3:latest", "context_length": 4096 }]));
    let busy = status_answer("503 Service Unavailable", "", "");
    let server = MisbehavingServer::start([busy, load(), models(json!([])), load(), loaded]).await;
    let model = remote_model(&http_clients(Timeouts::default()), Provider::Ollama, &server.url);
    for expected in [32_768, 32_768, 4096, 4096] {
        model.fetch_info().await;
        assert_eq!(model.info().context_window, expected);
    }
    let requests = server.requests();
    let paths: Vec<&str> = requests.iter().map(|request| request.path.as_str()).collect();
    assert_eq!(paths, ["/api/generate", "/api/generate", "/api/ps", "/api/generate", "/api/ps"]);
    assert_eq!(requests[0].body, json!({ "model": "qwen3" }));
}
