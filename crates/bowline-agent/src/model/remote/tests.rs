//! Tests of remote models, against a server that misbehaves on purpose.

mod faults;
mod fuzz;
mod requests;
mod server;
mod streams;
mod truncation;

use std::time::Duration;

use bowline_conversation::conversation::{
    ConversationMessage, MessagePart, MessageRole, TokenUsage, ToolResult, ToolUse, ToolUseInput,
};
use bowline_conversation::retry::RetryLimits;
use bowline_conversation::tool_call_assembler::{MAX_CALLS, ToolCallDelta};
use bowline_protocol::sse::SseDecoder;
use expect_test::{Expect, expect};
use serde_json::Value;

use self::server::{ConnectionStep, MisbehavingServer, status_answer, streaming_answer};
use super::reply::ReplyPiece;
use super::transport::MAX_EVENT_BYTES;
use super::*;
use crate::model::base_url;
use crate::model::catalogue::{CatalogueOptions, ModelCatalogue};
use crate::model::http_clients::Timeouts;
use crate::model::tests::{format_reply, request};

/// Formats the pieces that a wire format reads from a recorded stream, one per line.
pub(super) fn format_pieces(stream: &str, mut read: impl FnMut(&str, &Value) -> Vec<ReplyPiece>) -> String {
    let mut out = String::new();
    for event in SseDecoder::new(MAX_EVENT_BYTES).push(stream.as_bytes()).unwrap() {
        let data: Value = serde_json::from_slice(&event.data.unwrap()).unwrap();
        let kind = data["type"].as_str().map_or_else(|| event.event.unwrap_or_default(), str::to_owned);
        for piece in read(&kind, &data).into_iter().filter(|piece| !piece.is_empty()) {
            out.push_str(&format_piece(piece));
            out.push('\n');
        }
    }
    out
}

fn format_piece(piece: ReplyPiece) -> String {
    match piece {
        ReplyPiece::Text(text) => format!("text {text:?}"),
        ReplyPiece::Thought(text) => format!("thought {text:?}"),
        ReplyPiece::Signature(signature) => format!("signature {signature:?}"),
        ReplyPiece::Call(ToolCallDelta { index, id, name, arguments }) => {
            let index = index.map_or("-".to_owned(), |index| index.to_string());
            format!("call {index} {id:?} {name:?} {arguments:?}")
        }
        ReplyPiece::Usage(TokenUsage { input, output, cache_read, cache_write, thought }) => {
            format!("usage {input} ({cache_read} read, {cache_write} written) {output} ({thought} thought)")
        }
        ReplyPiece::Stop(reason) => format!("stop {reason}"),
        ReplyPiece::End { has_open_calls: false } => "end".to_owned(),
        ReplyPiece::End { has_open_calls: true } => "end with open calls".to_owned(),
    }
}

/// Returns clients with these timeouts. Building them takes time.
fn http_clients(timeouts: Timeouts) -> HttpClients {
    let retries = RetryLimits {
        attempts: 3,
        first_delay: Duration::from_millis(1),
        max_delay: Duration::from_millis(5),
        max_retry_after: Duration::from_secs(60),
    };
    HttpClients::new(timeouts, retries)
}

/// Returns a model of this server that gets its tools as text.
fn small_model(http: &HttpClients, provider: Provider, url: &str) -> RemoteModel {
    named_model(http, provider, "qwen3-1.7b", url)
}

/// Returns a model of this server.
fn remote_model(http: &HttpClients, provider: Provider, url: &str) -> RemoteModel {
    let provider_name = match provider {
        Provider::Anthropic => "claude-sonnet-4-5",
        Provider::OpenAi => "gpt-5",
        Provider::Gemini => "gemini-2.5-pro",
        Provider::Ollama => "qwen3",
        Provider::Compatible => "some-model-max",
    };
    named_model(http, provider, provider_name, url)
}

fn named_model(http: &HttpClients, provider: Provider, provider_name: &str, url: &str) -> RemoteModel {
    let info = ModelCatalogue::new(CatalogueOptions::default())
        .info(&format!("{}/{provider_name}", provider.id()))
        .unwrap();
    let key = provider.needs_key().then(|| (ApiKey::new("sk-secret").unwrap(), KeySource::Provided));
    RemoteModel::new(http.clone(), info, provider, provider_name, url, key).unwrap()
}

/// Sends one request and formats the reply.
async fn ask_once(http: &HttpClients, provider: Provider, server: &MisbehavingServer) -> String {
    let model = remote_model(http, provider, &server.url);
    let messages = vec![ConversationMessage::from_text(MessageRole::User, "Read a.")];
    let reply = format_reply(model.stream_reply(request(messages, &["read", "write"]))).await;
    reply.replace(&server.url, "$SERVER")
}

async fn check(provider: Provider, answers: impl IntoIterator<Item = Vec<ConnectionStep>>, expected: Expect) {
    let server = MisbehavingServer::start(answers).await;
    expected.assert_eq(&ask_once(&http_clients(Timeouts::default()), provider, &server).await);
}

#[tokio::test]
async fn openai_streams_text_and_a_call() {
    for provider in [Provider::OpenAi, Provider::Compatible] {
        check(
            provider,
            [streaming_answer(streams::OPENAI)],
            expect![[r#"
                text "Grüße"
                text " 👋"
                call call_a read {"path":"é"}
                usage 9 4
                end Done
            "#]],
        )
        .await;
    }
}

#[tokio::test]
async fn anthropic_streams_thoughts_text_and_a_call() {
    check(
        Provider::Anthropic,
        [streaming_answer(streams::ANTHROPIC)],
        expect![[r#"
            thought "Hm."
            thought "" signed "anthropic:signed"
            text "Grüße"
            call toolu_a read {"path":"a"}
            usage 14 4
            end Done
        "#]],
    )
    .await;
}

#[tokio::test]
async fn gemini_streams_thoughts_text_and_calls() {
    check(
        Provider::Gemini,
        [streaming_answer(streams::GEMINI)],
        expect![[r#"
            thought "Hm."
            text "Grüße"
            thought "" signed "gemini:sig"
            call call_1 read {"path":"a"}
            call call_2 write {}
            usage 9 4
            end Done
        "#]],
    )
    .await;
}

#[tokio::test]
async fn ollama_streams_thoughts_text_and_a_call() {
    check(
        Provider::Ollama,
        [streaming_answer(streams::OLLAMA)],
        expect![[r#"
            thought "Hm."
            text "Grüße"
            call call_x1 read {"path":"a"}
            usage 9 4
            end Done
        "#]],
    )
    .await;
}

#[tokio::test]
async fn calls_that_were_written_as_text_are_calls() {
    let chunks = [
        "I look.\\n",
        "```json\\n{\\\"name\\\":",
        " \\\"read\\\", \\\"arguments\\\": {\\\"path\\\": \\\"a\\\"}}\\n```",
        "\\nResult: 7.",
    ];
    let mut stream = String::new();
    for chunk in chunks {
        stream.push_str(&format!("data: {{\"choices\":[{{\"delta\":{{\"content\":\"{chunk}\"}}}}]}}\n\n"));
    }
    stream.push_str("data: {\"choices\":[{\"delta\":{},\"finish_reason\":\"stop\"}]}\n\ndata: [DONE]\n\n");
    check(
        Provider::Compatible,
        [streaming_answer(&stream)],
        expect![[r#"
            text "I look.\n"
            call call_1 read {"path":"a"}
            end Done
        "#]],
    )
    .await;
    // A model that supports native calls means it as text.
    check(
        Provider::OpenAi,
        [streaming_answer(&stream)],
        expect![[r#"
            text "I look.\n"
            text "```json\n{\"name\":"
            text " \"read\", \"arguments\": {\"path\": \"a\"}}\n```"
            text "\nResult: 7."
            end Done
        "#]],
    )
    .await;
}

/// Joins consecutive texts: how a stream is split into pieces is arbitrary.
fn join_texts(reply: &str) -> String {
    let mut lines: Vec<String> = Vec::new();
    for line in reply.lines() {
        match (lines.last_mut(), line.strip_prefix("text \"")) {
            (Some(last), Some(rest)) if last.starts_with("text \"") => {
                last.pop();
                last.push_str(rest);
            }
            _ => lines.push(line.to_owned()),
        }
    }
    lines.iter().map(|line| format!("{line}\n")).collect()
}

#[tokio::test]
async fn a_call_that_is_quoted_is_text() {
    let call = r#"{"name": "read", "arguments": {"path": "a"}}"#;
    let answer_with = |text: &str| {
        let frame = serde_json::json!({"choices": [{"delta": {"content": text}, "finish_reason": "stop"}]});
        streaming_answer(format!("data: {frame}\n\ndata: [DONE]\n\n"))
    };
    let example = format!("It says:\n{call}\nThat is an example.");
    let echo = format!("It says:\n{call}");
    let server =
        MisbehavingServer::start([answer_with(&example), answer_with(&echo), answer_with(&echo)]).await;
    let model = remote_model(&http_clients(Timeouts::default()), Provider::Compatible, &server.url);
    let mut out = String::new();
    for prompt in ["Look.".to_owned(), format!("What is `{call}`?"), "Look.".to_owned()] {
        out.push_str(
            &format_reply(model.stream_reply(request(
                vec![ConversationMessage::from_text(MessageRole::User, prompt)],
                &["read"],
            )))
            .await,
        );
    }
    expect![[r#"
        text "It says:\n{\"name\": \"read\", \"arguments\": {\"path\": \"a\"}}\nThat is an example."
        end Done
        text "It says:\n{\"name\": \"read\", \"arguments\": {\"path\": \"a\"}}"
        end Done
        text "It says:\n"
        call call_1 read {"path":"a"}
        end Done
    "#]]
    .assert_eq(&join_texts(&out));
}

#[tokio::test]
async fn a_dropped_reply_closes_the_connection() {
    let frame = "data: {\"choices\":[{\"delta\":{\"content\":\"a\"}}]}\n\n";
    let server = MisbehavingServer::start([vec![
        ConnectionStep::Send(server::streaming_bytes(frame)),
        ConnectionStep::Stall,
    ]])
    .await;
    let model = remote_model(&http_clients(Timeouts::default()), Provider::OpenAi, &server.url);
    let mut reply =
        model.stream_reply(request(vec![ConversationMessage::from_text(MessageRole::User, "x")], &[]));
    let first = futures_util::StreamExt::next(&mut reply).await;
    assert_eq!(first, Some(Ok(ReplyEvent::Text("a".into()))));
    drop(reply);
    server.disconnected.notified().await;
}

#[tokio::test]
async fn base_urls_are_taken_as_people_write_them() {
    let mut out = String::new();
    for (provider, url) in [
        (Provider::Compatible, "http://localhost:8080"),
        (Provider::Compatible, "http://localhost:8080/v1"),
        (Provider::Compatible, "https://a.example/openai/?version=2"),
        (Provider::Compatible, "http://localhost:8080/v1/chat/completions"),
        (Provider::Anthropic, "https://gateway.example"),
        (Provider::Anthropic, "https://gateway.example/anthropic/"),
        (Provider::Anthropic, "https://gateway.example/v1"),
        (Provider::Anthropic, "https://gateway.example/v1/messages"),
        (Provider::OpenAi, "https://gateway.example/v1"),
        (Provider::Gemini, "https://gateway.example"),
        (Provider::Gemini, "https://gateway.example/v1beta/"),
        (Provider::Ollama, "127.0.0.1:11434"),
        (Provider::Ollama, "http://host"),
        (Provider::Ollama, "https://host/"),
        (Provider::Ollama, "host"),
        (Provider::Ollama, "host:80/v1"),
        (Provider::Ollama, "0.0.0.0"),
        (Provider::Ollama, "http://0.0.0.0:8080"),
        (Provider::Ollama, ":8080"),
        (Provider::Ollama, "::1"),
        (Provider::Ollama, "[::]:8080"),
        (Provider::Ollama, ""),
        (Provider::OpenAi, "file:///etc"),
        (Provider::OpenAi, "http://"),
        (Provider::OpenAi, ""),
    ] {
        let base = base_url::parse(provider, url).map(String::from);
        out.push_str(&format!("{url} -> {base:?}\n"));
    }
    expect![[r#"
        http://localhost:8080 -> Ok("http://localhost:8080/v1/")
        http://localhost:8080/v1 -> Ok("http://localhost:8080/v1/")
        https://a.example/openai/?version=2 -> Ok("https://a.example/openai/?version=2")
        http://localhost:8080/v1/chat/completions -> Ok("http://localhost:8080/v1/")
        https://gateway.example -> Ok("https://gateway.example/v1/")
        https://gateway.example/anthropic/ -> Ok("https://gateway.example/anthropic/v1/")
        https://gateway.example/v1 -> Ok("https://gateway.example/v1/")
        https://gateway.example/v1/messages -> Ok("https://gateway.example/v1/")
        https://gateway.example/v1 -> Ok("https://gateway.example/v1/")
        https://gateway.example -> Ok("https://gateway.example/v1beta/")
        https://gateway.example/v1beta/ -> Ok("https://gateway.example/v1beta/")
        127.0.0.1:11434 -> Ok("http://127.0.0.1:11434/")
        http://host -> Ok("http://host/")
        https://host/ -> Ok("https://host/")
        host -> Ok("http://host:11434/")
        host:80/v1 -> Ok("http://host/")
        0.0.0.0 -> Ok("http://127.0.0.1:11434/")
        http://0.0.0.0:8080 -> Ok("http://127.0.0.1:8080/")
        :8080 -> Ok("http://127.0.0.1:8080/")
        ::1 -> Ok("http://[::1]:11434/")
        [::]:8080 -> Ok("http://[::1]:8080/")
         -> Ok("http://127.0.0.1:11434/")
        file:///etc -> Err("it is not on the web")
        http:// -> Err("empty host")
         -> Err("empty host")
    "#]]
    .assert_eq(&out);
}

#[test]
fn a_wrong_base_url_is_told_without_what_is_secret_in_it() {
    let info = ModelCatalogue::new(CatalogueOptions::default()).info("openai/x").unwrap();
    let url = "ftp://me:secret@host/v1?key=secret";
    let http = http_clients(Timeouts::default());
    let error = RemoteModel::new(http, info, Provider::OpenAi, "x", url, None).unwrap_err();
    expect!["there is no model openai/x: `ftp://…@host/v1` is no base URL (it is not on the web): give another with `--base-url` or OPENAI_BASE_URL"]
        .assert_eq(&error.to_string());
}

/// Without certificates, which takes another process to test.
#[tokio::test]
async fn a_machine_without_certificates_can_talk_to_servers_that_need_none() {
    const MARK: &str = "BOWLINE_TEST_WITHOUT_CERTIFICATES";
    if std::env::var_os(MARK).is_none() {
        let name = "model::remote::tests::a_machine_without_certificates_can_talk_to_servers_that_need_none";
        let mut child = std::process::Command::new(std::env::current_exe().unwrap());
        child.args(["--exact", name]).env(MARK, "1");
        child.env("SSL_CERT_FILE", "/dev/null").env("SSL_CERT_DIR", "/nowhere");
        let output = child.output().unwrap();
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stdout));
        return;
    }
    let server = MisbehavingServer::start([streaming_answer(streams::OPENAI)]).await;
    let http = http_clients(Timeouts::default());
    assert!(ask_once(&http, Provider::Compatible, &server).await.ends_with("end Done\n"));
    let info = ModelCatalogue::new(CatalogueOptions::default()).info("openai/x").unwrap();
    let model_at = |url| RemoteModel::new(http.clone(), info.clone(), Provider::OpenAi, "x", url, None);
    assert!(model_at("http://a.example/v1").is_ok());
    let error = model_at("https://a.example/v1").unwrap_err().to_string();
    assert!(error.ends_with("; install ca-certificates or set SSL_CERT_FILE"), "{error}");
}

#[test]
fn chance_is_a_number_from_0_to_1() {
    let fractions: Vec<f64> = (0..100).map(|_| random_fraction()).collect();
    assert!(fractions.iter().all(|fraction| (0.0..=1.0).contains(fraction)));
    assert!(fractions.iter().any(|fraction| *fraction != fractions[0]));
}

#[tokio::test]
async fn a_model_that_goes_on_as_if_it_had_seen_results_is_not_listened_to() {
    let call = r#"```json\n{\"name\": \"read\", \"arguments\": {\"path\": \"a\"}}\n```\n"#;
    let event = format!("data: {{\"choices\":[{{\"delta\":{{\"content\":\"{call}\"}}}}]}}\n\n");
    let mut answer = streaming_answer(event.repeat(2));
    answer.push(ConnectionStep::Stall);
    let server = MisbehavingServer::start([answer]).await;
    let model = small_model(&http_clients(Timeouts::default()), Provider::Compatible, &server.url);
    let messages = vec![ConversationMessage::from_text(MessageRole::User, "Read a.")];
    expect![[r#"
        call call_1 read {"path":"a"}
        end Done
    "#]]
    .assert_eq(&format_reply(model.stream_reply(request(messages, &["read"]))).await);
    // The server notices the disconnect.
    server.disconnected.notified().await;
}

#[tokio::test]
async fn a_call_that_a_file_holds_is_a_quote_also_when_the_model_was_asked_again() {
    let call = r#"{\"name\": \"read\", \"arguments\": {\"path\": \"a\"}}"#;
    let event = format!(r#"{{"choices":[{{"delta":{{"content":"{call}"}},"finish_reason":"stop"}}]}}"#);
    let server =
        MisbehavingServer::start([streaming_answer(format!("data: {event}\n\ndata: [DONE]\n\n"))]).await;
    let model = small_model(&http_clients(Timeouts::default()), Provider::Compatible, &server.url);
    let input = ToolUseInput::Value(serde_json::json!({ "path": "b" }));
    let tool_use = ToolUse { id: "c1".to_owned(), name: "read".to_owned(), input };
    let result = ToolResult::success(&tool_use, call.replace('\\', ""));
    let messages = vec![
        ConversationMessage::from_text(MessageRole::User, "Read b."),
        ConversationMessage { role: MessageRole::Assistant, parts: vec![MessagePart::Call(tool_use)] },
        ConversationMessage { role: MessageRole::Tool, parts: vec![MessagePart::Result(result)] },
        ConversationMessage::from_text(MessageRole::User, bowline_conversation::turn::EMPTY_REPLY_PROMPT),
    ];
    expect![[r#"
        text "{\"name\": \"read\", \"arguments\": {\"path\": \"a\"}}"
        end Done
    "#]]
    .assert_eq(&format_reply(model.stream_reply(request(messages, &["read"]))).await);
}
