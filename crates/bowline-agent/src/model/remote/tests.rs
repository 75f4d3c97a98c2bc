//! Tests of remote models, against a server that misbehaves on purpose.

mod asked;
mod cut;
mod faults;
mod hostile;
mod server;
mod streams;

use std::time::Duration;

use bowline_state::call_assembler::{CallPiece, MAX_CALLS};
use bowline_state::conversation::{Input, Message, Part, Role, ToolResult, ToolUse, Usage};
use bowline_state::retry::Limits;
use bowline_state::sse::Decoder;
use expect_test::{Expect, expect};
use serde_json::Value;

use self::server::{Do, Server, open, status};
use super::reply::Piece;
use super::transport::MAX_EVENT;
use super::*;
use crate::model::base_url;
use crate::model::catalogue::{Models, ModelsSettings};
use crate::model::net::Timeouts;
use crate::model::tests::{request, told};

/// Returns what a wire format reads from a recorded stream, a piece a line.
pub(super) fn shown_pieces(stream: &str, mut read: impl FnMut(&str, &Value) -> Vec<Piece>) -> String {
    let mut out = String::new();
    for event in Decoder::new(MAX_EVENT).push(stream.as_bytes()).unwrap() {
        let data: Value = serde_json::from_slice(&event.data.unwrap()).unwrap();
        let kind = data["type"].as_str().map_or_else(|| event.event.unwrap_or_default(), str::to_owned);
        for piece in read(&kind, &data).into_iter().filter(|piece| !piece.is_empty()) {
            out.push_str(&shown_piece(piece));
            out.push('\n');
        }
    }
    out
}

fn shown_piece(piece: Piece) -> String {
    match piece {
        Piece::Text(text) => format!("text {text:?}"),
        Piece::Thought(text) => format!("thought {text:?}"),
        Piece::Signature(signature) => format!("signature {signature:?}"),
        Piece::Call(CallPiece { index, id, name, arguments }) => {
            let index = index.map_or("-".to_owned(), |index| index.to_string());
            format!("call {index} {id:?} {name:?} {arguments:?}")
        }
        Piece::Usage(Usage { input, output, cache_read, cache_write, thought }) => {
            format!("usage {input} ({cache_read} read, {cache_write} written) {output} ({thought} thought)")
        }
        Piece::Stop(reason) => format!("stop {reason}"),
        Piece::End { has_open_calls: false } => "end".to_owned(),
        Piece::End { has_open_calls: true } => "end with open calls".to_owned(),
    }
}

/// Returns what models share. Making it takes its time.
fn net(timeouts: Timeouts) -> Net {
    let retries = Limits {
        attempts: 3,
        first: Duration::from_millis(1),
        longest: Duration::from_millis(5),
        longest_asked: Duration::from_secs(60),
    };
    Net::new(timeouts, retries)
}

/// Returns a model of this server's.
fn model(net: &Net, provider: Provider, url: &str) -> Remote {
    let own = match provider {
        Provider::Anthropic => "claude-sonnet-4-5",
        Provider::OpenAi => "gpt-5",
        Provider::Gemini => "gemini-2.5-pro",
        Provider::Ollama => "qwen3",
        Provider::Compatible => "some-model-max",
    };
    let info = Models::new(ModelsSettings::default()).info(&format!("{}/{own}", provider.id())).unwrap();
    let key = provider.needs_key().then(|| (Key::new("sk-secret").unwrap(), Source::Given));
    Remote::new(net.clone(), info, provider, own, url, key).unwrap()
}

/// Asks once and tells the reply.
async fn asked(net: &Net, provider: Provider, server: &Server) -> String {
    let model = model(net, provider, &server.url);
    let messages = vec![Message::text(Role::User, "Read a.")];
    let told = told(model.ask(request(messages, &["read", "write"]))).await;
    told.replace(&server.url, "$SERVER")
}

async fn check(provider: Provider, answers: impl IntoIterator<Item = Vec<Do>>, expected: Expect) {
    let server = Server::start(answers).await;
    expected.assert_eq(&asked(&net(Timeouts::default()), provider, &server).await);
}

#[tokio::test]
async fn openai_streams_text_and_a_call() {
    for provider in [Provider::OpenAi, Provider::Compatible] {
        check(
            provider,
            [open(streams::OPENAI)],
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
        [open(streams::ANTHROPIC)],
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
        [open(streams::GEMINI)],
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
        [open(streams::OLLAMA)],
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
    let pieces = [
        "I look.\\n",
        "```json\\n{\\\"name\\\":",
        " \\\"read\\\", \\\"arguments\\\": {\\\"path\\\": \\\"a\\\"}}\\n```",
        "\\nResult: 7.",
    ];
    let mut stream = String::new();
    for piece in pieces {
        stream.push_str(&format!("data: {{\"choices\":[{{\"delta\":{{\"content\":\"{piece}\"}}}}]}}\n\n"));
    }
    stream.push_str("data: {\"choices\":[{\"delta\":{},\"finish_reason\":\"stop\"}]}\n\ndata: [DONE]\n\n");
    check(
        Provider::Compatible,
        [open(&stream)],
        expect![[r#"
            text "I look.\n"
            call call_1 read {"path":"a"}
            end Done
        "#]],
    )
    .await;
    // A model that knows better means it as text.
    check(
        Provider::OpenAi,
        [open(&stream)],
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

/// Returns what was told with texts that follow each other as one: how a stream is cut into pieces is chance.
fn joined(told: &str) -> String {
    let mut lines: Vec<String> = Vec::new();
    for line in told.lines() {
        match (lines.last_mut(), line.strip_prefix("text \"")) {
            (Some(last), Some(more)) if last.starts_with("text \"") => {
                last.pop();
                last.push_str(more);
            }
            _ => lines.push(line.to_owned()),
        }
    }
    lines.iter().map(|line| format!("{line}\n")).collect()
}

#[tokio::test]
async fn a_call_that_is_quoted_is_text() {
    let call = r#"{"name": "read", "arguments": {"path": "a"}}"#;
    let says = |text: &str| {
        let frame = serde_json::json!({"choices": [{"delta": {"content": text}, "finish_reason": "stop"}]});
        open(format!("data: {frame}\n\ndata: [DONE]\n\n"))
    };
    let example = format!("It says:\n{call}\nThat is an example.");
    let echo = format!("It says:\n{call}");
    let server = Server::start([says(&example), says(&echo), says(&echo)]).await;
    let model = model(&net(Timeouts::default()), Provider::Compatible, &server.url);
    let mut out = String::new();
    for asked in ["Look.".to_owned(), format!("What is `{call}`?"), "Look.".to_owned()] {
        out.push_str(&told(model.ask(request(vec![Message::text(Role::User, asked)], &["read"]))).await);
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
    .assert_eq(&joined(&out));
}

#[tokio::test]
async fn a_dropped_reply_closes_the_connection() {
    let frame = "data: {\"choices\":[{\"delta\":{\"content\":\"a\"}}]}\n\n";
    let server = Server::start([vec![Do::Send(server::begun(frame)), Do::Stall]]).await;
    let model = model(&net(Timeouts::default()), Provider::OpenAi, &server.url);
    let mut reply = model.ask(request(vec![Message::text(Role::User, "x")], &[]));
    let first = futures_util::StreamExt::next(&mut reply).await;
    assert_eq!(first, Some(Ok(Event::Text("a".into()))));
    drop(reply);
    server.left.notified().await;
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
    let info = Models::new(ModelsSettings::default()).info("openai/x").unwrap();
    let url = "ftp://me:secret@host/v1?key=secret";
    let net = net(Timeouts::default());
    let error = Remote::new(net, info, Provider::OpenAi, "x", url, None).unwrap_err();
    expect!["there is no model openai/x: `ftp://…@host/v1` is no base URL (it is not on the web): give another with `--base-url` or OPENAI_BASE_URL"]
        .assert_eq(&error.to_string());
}

/// Where there are no certificates, which only another process can try.
#[tokio::test]
async fn a_machine_without_certificates_can_talk_to_servers_that_need_none() {
    const MARK: &str = "BOWLINE_TEST_WITHOUT_CERTIFICATES";
    if std::env::var_os(MARK).is_none() {
        let name = "model::remote::tests::a_machine_without_certificates_can_talk_to_servers_that_need_none";
        let mut again = std::process::Command::new(std::env::current_exe().unwrap());
        again.args(["--exact", name]).env(MARK, "1");
        again.env("SSL_CERT_FILE", "/dev/null").env("SSL_CERT_DIR", "/nowhere");
        let output = again.output().unwrap();
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stdout));
        return;
    }
    let server = Server::start([open(streams::OPENAI)]).await;
    let net = net(Timeouts::default());
    assert!(asked(&net, Provider::Compatible, &server).await.ends_with("end Done\n"));
    let info = Models::new(ModelsSettings::default()).info("openai/x").unwrap();
    let far = |url| Remote::new(net.clone(), info.clone(), Provider::OpenAi, "x", url, None);
    assert!(far("http://a.example/v1").is_ok());
    let error = far("https://a.example/v1").unwrap_err().to_string();
    assert!(error.ends_with("; install ca-certificates or set SSL_CERT_FILE"), "{error}");
}

#[test]
fn chance_is_a_number_from_0_to_1() {
    let some: Vec<f64> = (0..100).map(|_| chance()).collect();
    assert!(some.iter().all(|chance| (0.0..=1.0).contains(chance)));
    assert!(some.iter().any(|chance| *chance != some[0]));
}

#[tokio::test]
async fn a_model_that_goes_on_as_if_it_had_seen_results_is_not_listened_to() {
    let call = r#"```json\n{\"name\": \"read\", \"arguments\": {\"path\": \"a\"}}\n```\n"#;
    let piece = format!("data: {{\"choices\":[{{\"delta\":{{\"content\":\"{call}\"}}}}]}}\n\n");
    let mut answer = open(piece.repeat(2));
    answer.push(Do::Stall);
    let server = Server::start([answer]).await;
    let model = model(&net(Timeouts::default()), Provider::Compatible, &server.url);
    let messages = vec![Message::text(Role::User, "Read a.")];
    let asked = Request { by_words: true, ..request(messages, &["read"]) };
    expect![[r#"
        call call_1 read {"path":"a"}
        end Done
    "#]]
    .assert_eq(&told(model.ask(asked)).await);
    // It hears that nobody does.
    server.left.notified().await;
}

#[tokio::test]
async fn a_call_that_a_file_holds_is_a_quote_also_when_the_model_was_asked_again() {
    let call = r#"{\"name\": \"read\", \"arguments\": {\"path\": \"a\"}}"#;
    let said = format!(r#"{{"choices":[{{"delta":{{"content":"{call}"}},"finish_reason":"stop"}}]}}"#);
    let server = Server::start([open(format!("data: {said}\n\ndata: [DONE]\n\n"))]).await;
    let model = model(&net(Timeouts::default()), Provider::Compatible, &server.url);
    let input = Input::Value(serde_json::json!({ "path": "b" }));
    let made = ToolUse { id: "c1".to_owned(), name: "read".to_owned(), input };
    let found = ToolResult::done(&made, call.replace('\\', ""));
    let messages = vec![
        Message::text(Role::User, "Read b."),
        Message { role: Role::Assistant, parts: vec![Part::Call(made)] },
        Message { role: Role::Tool, parts: vec![Part::Result(found)] },
        Message::text(Role::User, bowline_state::turn::BLANK),
    ];
    let asked = Request { by_words: true, ..request(messages, &["read"]) };
    expect![[r#"
        text "{\"name\": \"read\", \"arguments\": {\"path\": \"a\"}}"
        end Done
    "#]]
    .assert_eq(&told(model.ask(asked)).await);
}
