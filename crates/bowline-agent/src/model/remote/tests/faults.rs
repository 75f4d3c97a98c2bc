//! Faults of servers, and their effects.

use futures_util::StreamExt as _;

use super::server::streaming_bytes;
use super::*;

fn join_frames(frames: &[&str]) -> String {
    frames.iter().map(|frame| format!("data: {frame}\n\n")).collect()
}

const TEXT_EVENT: &str = r#"{"choices":[{"delta":{"content":"a"}}]}"#;
const FINISH_EVENT: &str = r#"{"choices":[{"delta":{},"finish_reason":"stop"}]}"#;

fn call_event(index: &str, id: &str, name: &str, arguments: &str) -> String {
    format!(
        r#"{{"choices":[{{"delta":{{"tool_calls":[{{"index":{index},"id":"{id}","function":{{"name":"{name}","arguments":"{arguments}"}}}}]}}}}]}}"#
    )
}

#[tokio::test]
async fn a_finish_reason_without_done_ends_the_reply() {
    check(
        Provider::Compatible,
        [streaming_answer(join_frames(&[TEXT_EVENT, FINISH_EVENT]))],
        expect![[r#"
            text "a"
            end Done
        "#]],
    )
    .await;
}

#[tokio::test]
async fn done_without_a_finish_reason_is_a_cut_reply() {
    check(
        Provider::Compatible,
        vec![streaming_answer(join_frames(&[TEXT_EVENT, "[DONE]"])); 3],
        expect![[r#"
            text "a"
            ! the reply was cut short: the stream ended before the reply did
        "#]],
    )
    .await;
}

#[tokio::test]
async fn a_cut_before_anything_was_shown_is_asked_again() {
    let chunked = "HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ntransfer-encoding: chunked\r\n\r\nff\r\ndata: {";
    let cut = vec![ConnectionStep::Send(chunked.into())];
    let server = MisbehavingServer::start([
        cut.clone(),
        cut.clone(),
        streaming_answer(join_frames(&[TEXT_EVENT, FINISH_EVENT, "[DONE]"])),
    ])
    .await;
    let reply = ask_once(&http_clients(Timeouts::default()), Provider::OpenAi, &server).await;
    let reply: Vec<&str> = reply.lines().map(|line| line.split(": ").next().unwrap_or(line)).collect();
    assert_eq!(reply, ["retrying after 1", "retrying after 2", "text \"a\"", "end Done"]);
    // Retries stop at the limit.
    let server = MisbehavingServer::start(vec![cut; 9]).await;
    let reply = ask_once(&http_clients(Timeouts::default()), Provider::OpenAi, &server).await;
    assert!(reply.lines().last().unwrap().starts_with("! the reply was cut short"), "{reply}");
    assert_eq!(server.requests().len(), 3);
}

#[tokio::test]
async fn busy_providers_are_asked_again() {
    check(
        Provider::OpenAi,
        [
            status_answer(
                "429 Too Many Requests",
                "retry-after-ms: 3\r\n",
                r#"{"error":{"message":"slow\ndown"}}"#,
            ),
            status_answer("503 Service Unavailable", "", ""),
            streaming_answer(join_frames(&[TEXT_EVENT, FINISH_EVENT, "[DONE]"])),
        ],
        expect![[r#"
            retrying after 1: 429 Too Many Requests: slow down
            retrying after 2: 503 Service Unavailable
            text "a"
            end Done
        "#]],
    )
    .await;
    check(
        Provider::Anthropic,
        vec![status_answer("529 Overloaded", "", r#"{"type":"error","error":{"message":"Overloaded"}}"#); 3],
        expect![[r#"
            retrying after 1: 529 <unknown status code>: Overloaded
            retrying after 2: 529 <unknown status code>: Overloaded
            ! the provider is busy: 529 <unknown status code>: Overloaded
        "#]],
    )
    .await;
}

#[tokio::test]
async fn retry_after_is_respected() {
    // A day, or a date in the far future, exceeds the longest acceptable wait.
    let waits = [
        ("retry-after: 2\r\n", Some(2)),
        ("retry-after: 86400\r\n", None),
        ("retry-after: Tue, 31 Dec 2999 23:59:59 GMT\r\n", None),
    ];
    for (header, expected) in waits {
        let server = MisbehavingServer::start([status_answer("429 Too Many Requests", header, "")]).await;
        let model = remote_model(&http_clients(Timeouts::default()), Provider::OpenAi, &server.url);
        let mut reply =
            model.stream_reply(request(vec![ConversationMessage::from_text(MessageRole::User, "x")], &[]));
        match (reply.next().await, expected) {
            (Some(Ok(ReplyEvent::Retrying { wait, attempt: 1, .. })), Some(seconds)) => {
                assert!(
                    wait.as_secs_f64() >= f64::from(seconds) && wait.as_secs_f64() < f64::from(seconds) * 1.2
                );
            }
            (Some(Err(ModelError::Busy { retry_after: Some(wait), .. })), None) => {
                assert!(wait >= Duration::from_secs(86_400));
            }
            (event, _) => panic!("{header}: {event:?}"),
        }
    }
}

#[tokio::test]
async fn permanent_errors_are_not_retried() {
    for (answer, expected) in [
        (
            status_answer("401 Unauthorized", "", r#"{"error":{"message":"bad key"}}"#),
            expect![
                "! OpenAI does not accept the key: 401 Unauthorized: bad key; replace the key in OPENAI_API_KEY, which comes before a stored one\n"
            ],
        ),
        (
            status_answer("400 Bad Request", "", r#"{"error":{"message":"no"}}"#),
            expect!["! the provider refuses the request: 400 Bad Request: no\n"],
        ),
        (
            status_answer(
                "400 Bad Request",
                "",
                r#"{"error":{"message":"too much","code":"context_length_exceeded"}}"#,
            ),
            expect!["! the conversation does not fit the model's window: 400 Bad Request: too much\n"],
        ),
        (
            status_answer("404 Not Found", "", r#"{"error":"model not found"}"#),
            expect![
                "! there is no model openai/gpt-5: 404 Not Found: model not found; check the name, and whether $SERVER/ is the base URL (`--base-url` or OPENAI_BASE_URL)\n"
            ],
        ),
        (
            status_answer("200 OK", "content-type: text/html\r\n", "<html>"),
            expect!["! the reply cannot be used: $SERVER answers with a web page: is the base URL right?\n"],
        ),
        (
            status_answer("200 OK", "content-type: application/json\r\n", r#"{"choices":[]}"#),
            expect![
                "! the reply cannot be used: $SERVER answers without streaming, which it was asked for\n"
            ],
        ),
        (
            status_answer("200 OK", "content-encoding: gzip\r\n", "bomb"),
            expect!["! the reply cannot be used: it is compressed (gzip), which was not asked for\n"],
        ),
    ] {
        let server = MisbehavingServer::start([answer]).await;
        expected.assert_eq(&ask_once(&http_clients(Timeouts::default()), Provider::OpenAi, &server).await);
        assert_eq!(server.requests().len(), 1);
    }
}

#[tokio::test]
async fn an_error_inside_of_a_reply_is_its_end() {
    let overloaded = "event: error\ndata: {\"type\":\"error\",\"error\":{\"type\":\"overloaded_error\",\"message\":\"Overloaded\"}}\n\n";
    check(
        Provider::Anthropic,
        [streaming_answer(overloaded), streaming_answer(streams::ANTHROPIC)],
        expect![[r#"
            retrying after 1: Overloaded
            thought "Hm."
            thought "" signed "anthropic:signed"
            text "Grüße"
            call toolu_a read {"path":"a"}
            usage 14 4
            end Done
        "#]],
    )
    .await;
    check(
        Provider::OpenAi,
        [streaming_answer(join_frames(&[
            TEXT_EVENT,
            r#"{"error":{"message":"oops"}}"#,
            FINISH_EVENT,
            "[DONE]",
        ]))],
        expect![[r#"
            text "a"
            ! the provider is busy: oops
        "#]],
    )
    .await;
    check(
        Provider::Ollama,
        vec![streaming_answer(join_frames(&[TEXT_EVENT, r#"{"error":"out of memory"}"#])); 3],
        expect![[r#"
            text "a"
            ! the provider is busy: out of memory
        "#]],
    )
    .await;
}

#[tokio::test]
async fn an_error_need_not_be_json() {
    check(
        Provider::Anthropic,
        [
            streaming_answer("event: error\ndata: rate limit exceeded\n\n"),
            streaming_answer(streams::ANTHROPIC),
        ],
        expect![[r#"
            retrying after 1: rate limit exceeded
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
async fn keep_alives_and_unknown_fields_are_skipped() {
    let stream = format!(
        "retry: 10\n\n: alive\n\ndata:\n\nid: 7\nnews: none\ndata: {{\"object\":\"progress\",\"error\":null}}\n\n{}",
        join_frames(&[TEXT_EVENT, FINISH_EVENT])
    );
    check(
        Provider::Compatible,
        [streaming_answer(stream)],
        expect![[r#"
            text "a"
            end Done
        "#]],
    )
    .await;
}

#[tokio::test]
async fn a_frame_that_cannot_be_read_is_the_end() {
    let server = MisbehavingServer::start([streaming_answer(join_frames(&[
        TEXT_EVENT, "{nonsense", TEXT_EVENT, FINISH_EVENT, "[DONE]",
    ]))])
    .await;
    let reply = ask_once(&http_clients(Timeouts::default()), Provider::OpenAi, &server).await;
    let reply: Vec<&str> = reply.lines().collect();
    assert_eq!(reply[0], "text \"a\"");
    assert!(reply[1].starts_with("! the reply cannot be used"), "{reply:?}");
}

#[tokio::test]
async fn what_gemini_blocks_is_refused() {
    check(
        Provider::Gemini,
        [streaming_answer(join_frames(&[r#"{"promptFeedback":{"blockReason":"SAFETY"}}"#]))],
        expect![[r#"
            end Refused
        "#]],
    )
    .await;
    check(
        Provider::Gemini,
        vec![
            streaming_answer(join_frames(&[
                r#"{"candidates":[{"finishReason":"MALFORMED_FUNCTION_CALL"}]}"#
            ]));
            3
        ],
        expect![[r#"
            retrying after 1: the provider ended it with MALFORMED_FUNCTION_CALL
            retrying after 2: the provider ended it with MALFORMED_FUNCTION_CALL
            ! the reply cannot be used: the provider ended it with MALFORMED_FUNCTION_CALL
        "#]],
    )
    .await;
}

#[tokio::test]
async fn stalls_end_in_time() {
    let short = Duration::from_millis(150);
    let long = Duration::from_secs(60);
    let patient = Timeouts { headers: long, idle: long, silence: long, overall: long, ..Timeouts::default() };
    let pings = || vec![ConnectionStep::Send(streaming_bytes(": ping\n\n".repeat(3))), ConnectionStep::Stall];
    let text =
        || vec![ConnectionStep::Send(streaming_bytes(join_frames(&[TEXT_EVENT]))), ConnectionStep::Stall];
    for (timeouts, answer, expected) in [
        (Timeouts { headers: short, ..patient }, vec![ConnectionStep::Stall], "no answer within 150ms"),
        (
            Timeouts { idle: short, ..patient },
            vec![ConnectionStep::Send(streaming_bytes("")), ConnectionStep::Stall],
            "nothing came for 150ms",
        ),
        (Timeouts { idle: short, ..patient }, text(), "nothing came for 150ms"),
        (Timeouts { silence: short, ..patient }, pings(), "nothing of the reply came for 150ms"),
        (Timeouts { overall: short, ..patient }, pings(), "150ms have passed"),
    ] {
        let server = MisbehavingServer::start(vec![answer; 3]).await;
        let reply = ask_once(&http_clients(timeouts), Provider::OpenAi, &server).await;
        let last = reply.lines().last().unwrap();
        let expected = format!("! the model did not answer in time: {expected}");
        assert!(last == expected || last == format!("{expected} from $SERVER"), "{reply}");
    }
}

#[tokio::test]
async fn local_servers_may_be_slow_to_the_first_token() {
    let (short, long) = (Duration::from_millis(150), Duration::from_secs(60));
    let slow =
        Timeouts { idle: short, silence: short, local_headers: long, overall: long, ..Timeouts::default() };
    let stalls = |sent: &str| vec![ConnectionStep::Send(streaming_bytes(sent)), ConnectionStep::Stall];
    // A slow first token is awaited, here until the overall timeout.
    let timeouts = Timeouts { overall: 4 * short, ..slow };
    for sent in ["", ": reading\n\n"] {
        let server = MisbehavingServer::start([stalls(sent)]).await;
        let reply = ask_once(&http_clients(timeouts), Provider::Compatible, &server).await;
        assert_eq!(reply, "! the model did not answer in time: 600ms have passed\n");
    }
    // A timeout is retried only once, unlike other failures.
    let timeouts = Timeouts { local_headers: short, silence: long, ..slow };
    let server = MisbehavingServer::start(vec![stalls(""); 9]).await;
    let reply = ask_once(&http_clients(timeouts), Provider::Compatible, &server).await;
    expect![[r#"
        retrying after 1: nothing came for 150ms
        ! the model did not answer in time: nothing came for 150ms from $SERVER
    "#]]
    .assert_eq(&reply);
}

#[tokio::test]
async fn strange_calls_are_passed_on_or_left_out() {
    let single_call = |call: String| streaming_answer(join_frames(&[&call, FINISH_EVENT, "[DONE]"]));
    for (answer, expected) in [
        (single_call(call_event("4000000000", "x", "read", "{}")), expect!["call x read {}\nend Done\n"]),
        (
            single_call(call_event("0", "x", "unknown tool", "")),
            expect!["call x unknown tool {}\nend Done\n"],
        ),
        (
            single_call(call_event("0", "x", "read", "{oops")),
            expect![[r#"
            call x read broken "{oops": key must be a string at line 1 column 2
            end Done
        "#]],
        ),
        (
            single_call(call_event("0", "x", "read", r#"\"{\\\"path\\\":1}\""#)),
            expect![[r#"
            call x read {"path":1}
            end Done
        "#]],
        ),
        (single_call(call_event("0", "", "read", "[1]")), expect!["call call_1 read [1]\nend Done\n"]),
        (
            streaming_answer(join_frames(&[
                &call_event("0", "x", "read", "{}"),
                &call_event("1", "x", "write", "{}"),
                FINISH_EVENT,
                "[DONE]",
            ])),
            expect!["call x read {}\ncall call_2 write {}\nend Done\n"],
        ),
        // Servers that use one index for all calls.
        (
            streaming_answer(join_frames(&[
                &call_event("0", "x", "read", "{}"),
                &call_event("0", "y", "write", "{}"),
                FINISH_EVENT,
                "[DONE]",
            ])),
            expect!["call x read {}\ncall y write {}\nend Done\n"],
        ),
        // A token limit inside a call.
        (
            streaming_answer(join_frames(&[
                &call_event("0", "x", "read", "{\\\"pa"),
                r#"{"choices":[{"delta":{},"finish_reason":"length"}]}"#,
                "[DONE]",
            ])),
            expect![[r#"
                call x read broken "{\"pa": EOF while parsing a string at line 1 column 4
                end Length
            "#]],
        ),
        // A token limit after a call, which looks the same as one inside.
        (
            streaming_answer(join_frames(&[
                &call_event("0", "x", "read", "{}"),
                r#"{"choices":[{"delta":{},"finish_reason":"length"}]}"#,
                "[DONE]",
            ])),
            expect!["call x read {}\nend Length\n"],
        ),
        // Calls in a refused reply are not run.
        (
            streaming_answer(join_frames(&[
                &call_event("0", "x", "read", "{}"),
                r#"{"choices":[{"delta":{},"finish_reason":"content_filter"}]}"#,
                "[DONE]",
            ])),
            expect!["end Refused\n"],
        ),
    ] {
        check(Provider::OpenAi, [answer], expected).await;
    }
}

#[tokio::test]
async fn the_number_of_calls_is_limited() {
    let calls: Vec<String> =
        (0..500).map(|n| call_event(&n.to_string(), &format!("c{n}"), "read", "{}")).collect();
    let mut frames: Vec<&str> = calls.iter().map(String::as_str).collect();
    frames.extend([FINISH_EVENT, "[DONE]"]);
    let server = MisbehavingServer::start([streaming_answer(join_frames(&frames))]).await;
    let reply = ask_once(&http_clients(Timeouts::default()), Provider::OpenAi, &server).await;
    assert_eq!(reply.lines().filter(|line| line.starts_with("call ")).count(), MAX_CALLS);
    assert!(reply.ends_with("end Done\n"));
    // Where all calls share one index, an omitted call is not merged into the previous one.
    let deltas = |n| [call_event("0", &format!("c{n}"), "read", ""), call_event("0", "", "", "{}")];
    let calls: Vec<String> = (0..500).flat_map(deltas).collect();
    let mut frames: Vec<&str> = calls.iter().map(String::as_str).collect();
    frames.extend([FINISH_EVENT, "[DONE]"]);
    let server = MisbehavingServer::start([streaming_answer(join_frames(&frames))]).await;
    let reply = ask_once(&http_clients(Timeouts::default()), Provider::OpenAi, &server).await;
    assert_eq!(
        reply.lines().filter(|line| line.starts_with("call ") && line.ends_with(" read {}")).count(),
        MAX_CALLS
    );
}

#[tokio::test]
async fn an_unfinished_anthropic_block_depends_on_the_stop_reason() {
    let start = streams::ANTHROPIC
        .find("event: content_block_start\ndata: {\"type\":\"content_block_start\",\"index\":2")
        .unwrap();
    let block = "event: content_block_start\ndata: {\"type\":\"content_block_start\",\"index\":2,\"content_block\":{\"type\":\"tool_use\",\"id\":\"t\",\"name\":\"read\"}}\n\n";
    for (reason, calls, expected) in [
        ("max_tokens", 1, "end Length"),
        ("tool_use", 0, "! the reply was cut short: a call in it is not complete"),
    ] {
        let stream = format!(
            "{}{block}event: message_delta\ndata: {{\"type\":\"message_delta\",\"delta\":{{\"stop_reason\":\"{reason}\"}}}}\n\nevent: message_stop\ndata: {{}}\n\n",
            &streams::ANTHROPIC[..start]
        );
        let server = MisbehavingServer::start([streaming_answer(stream)]).await;
        let reply = ask_once(&http_clients(Timeouts::default()), Provider::Anthropic, &server).await;
        assert_eq!(reply.lines().last(), Some(expected), "{reply}");
        assert_eq!(reply.lines().filter(|line| line.starts_with("call ")).count(), calls, "{reply}");
    }
}

#[tokio::test]
async fn hidden_thoughts_are_kept() {
    let hidden = "event: content_block_start\ndata: {\"type\":\"content_block_start\",\"index\":0,\"content_block\":{\"type\":\"redacted_thinking\",\"data\":\"xyz\"}}\n\n";
    let server =
        MisbehavingServer::start([streaming_answer(format!("{hidden}{}", streams::ANTHROPIC))]).await;
    let reply = ask_once(&http_clients(Timeouts::default()), Provider::Anthropic, &server).await;
    assert!(reply.starts_with("thought \"\" signed \"anthropic-hidden:xyz\"\n"), "{reply}");
}

#[tokio::test]
async fn text_may_be_split_anywhere() {
    let mut bytes =
        b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ntransfer-encoding: chunked\r\n\r\n".to_vec();
    for byte in streams::OPENAI.bytes() {
        bytes.extend_from_slice(b"1\r\n");
        bytes.extend_from_slice(&[byte, b'\r', b'\n']);
    }
    bytes.extend_from_slice(b"0\r\n\r\n");
    check(
        Provider::OpenAi,
        [vec![ConnectionStep::Send(bytes)]],
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

#[tokio::test]
async fn oversized_replies_are_refused() {
    let gigabyte = 1 << 30;
    let headers = |status: &str| {
        ConnectionStep::Send(format!("HTTP/1.1 {status}\r\ncontent-type: text/event-stream\r\n\r\n").into())
    };
    for (answer, expected) in [
        // An event without end.
        (
            vec![headers("200 OK"), ConnectionStep::Flood("x".into(), gigabyte)],
            "! the reply cannot be used: an event of the reply has more than 1048576 bytes",
        ),
        // Too many lines in one event.
        (
            vec![headers("200 OK"), ConnectionStep::Flood("data: x\n".into(), gigabyte)],
            "! the reply cannot be used: an event of the reply has more than 1048576 bytes",
        ),
        // Keep-alives only.
        (
            vec![headers("200 OK"), ConnectionStep::Flood(format!(": {}\n\n", "x".repeat(4_000)), gigabyte)],
            "! the reply cannot be used: the reply has more than 67108864 bytes",
        ),
        // An error page.
        (
            vec![headers("400 Bad Request"), ConnectionStep::Flood("x".into(), gigabyte)],
            "! the provider refuses the request: 400 Bad Request: xxxx",
        ),
    ] {
        let server = MisbehavingServer::start([answer]).await;
        let reply = ask_once(&http_clients(Timeouts::default()), Provider::OpenAi, &server).await;
        assert!(reply.starts_with(expected), "{reply}");
        let flooded_bytes = server.state.lock().unwrap().flooded_bytes;
        assert!(flooded_bytes < gigabyte / 4, "{flooded_bytes} bytes were taken");
    }
}

#[tokio::test]
async fn arguments_have_a_limit() {
    let event = call_event("0", "x", "read", &"y".repeat(64 << 10));
    let server = MisbehavingServer::start([streaming_answer(join_frames(&[event.as_str(); 70]))]).await;
    let reply = ask_once(&http_clients(Timeouts::default()), Provider::OpenAi, &server).await;
    assert_eq!(reply, "! the reply cannot be used: its calls have more than 4194304 bytes\n");
}

#[tokio::test]
async fn a_key_is_not_taken_elsewhere() {
    let other_server = MisbehavingServer::start([streaming_answer(streams::OPENAI)]).await;
    let location = format!("location: {}/v1/chat/completions\r\n", other_server.url);
    let server = MisbehavingServer::start([status_answer("307 Temporary Redirect", &location, "")]).await;
    let reply = ask_once(&http_clients(Timeouts::default()), Provider::OpenAi, &server).await;
    expect![[r#"
        ! the provider refuses the request: it redirects to $ELSEWHERE, where the key is not sent: if that is right, make it the base URL
    "#]]
    .assert_eq(&reply.replace(&other_server.url, "$ELSEWHERE"));
    assert!(other_server.requests().is_empty());
}

#[tokio::test]
async fn a_redirect_within_a_server_is_followed() {
    let redirect = status_answer("307 Temporary Redirect", "location: /moved/chat/completions\r\n", "");
    let server = MisbehavingServer::start([redirect, streaming_answer(streams::OPENAI)]).await;
    let reply = ask_once(&http_clients(Timeouts::default()), Provider::OpenAi, &server).await;
    assert!(reply.ends_with("end Done\n"), "{reply}");
    let requests = server.requests();
    let paths: Vec<&str> = requests.iter().map(|request| request.path.as_str()).collect();
    assert_eq!(paths, ["/chat/completions", "/moved/chat/completions"]);
    assert_eq!(requests[0].body, requests[1].body);
    assert!(requests[1].headers.iter().any(|header| header == "authorization: Bearer sk-secret"));
}

#[tokio::test]
async fn unreachable_providers_are_reported() {
    // A closed port, and a server that does not speak TLS.
    let closed_url = {
        let listener = tokio::net::TcpListener::bind(("127.0.0.1", 0)).await.unwrap();
        format!("http://{}", listener.local_addr().unwrap())
    };
    let plain_server = MisbehavingServer::start(vec![status_answer("200 OK", "", ""); 9]).await;
    for url in [closed_url, plain_server.url.replace("http:", "https:")] {
        let model = remote_model(&http_clients(Timeouts::default()), Provider::OpenAi, &url);
        let reply = format_reply(
            model.stream_reply(request(vec![ConversationMessage::from_text(MessageRole::User, "x")], &[])),
        )
        .await;
        let lines: Vec<&str> = reply.lines().collect();
        assert_eq!(lines.len(), 3, "{reply}");
        assert!(lines[2].starts_with("! the provider cannot be reached: "), "{reply}");
        let advice = format!(
            "; check the network, or give another place than {url} with `--base-url` or OPENAI_BASE_URL"
        );
        assert!(lines[2].ends_with(&advice), "{reply}");
        assert!(!reply.contains("sk-secret"), "{reply}");
    }
}

#[tokio::test]
async fn a_key_in_an_error_message_is_redacted() {
    let error_body = r#"{"error":{"message":"Received API key = sk-secret"}}"#;
    check(
        Provider::OpenAi,
        [
            status_answer("503 Service Unavailable", "", error_body),
            streaming_answer(join_frames(&[error_body])),
            status_answer("400 Bad Request", "", error_body),
        ],
        expect![[r#"
            retrying after 1: 503 Service Unavailable: Received API key = …
            retrying after 2: Received API key = …
            ! the provider refuses the request: 400 Bad Request: Received API key = …
        "#]],
    )
    .await;
}

#[tokio::test]
async fn a_busy_error_says_when_to_retry() {
    for (header, body, expected) in [
        (
            "retry-after: 600\r\n",
            "slow down",
            expect!["! the provider is busy: 429 Too Many Requests: slow down; try again in 10 minutes\n"],
        ),
        (
            "retry-after: 86400\r\n",
            "<html>Bad</html>",
            expect!["! the provider is busy: 429 Too Many Requests; try again in 24 hours\n"],
        ),
    ] {
        check(Provider::OpenAi, [status_answer("429 Too Many Requests", header, body)], expected).await;
    }
}

#[tokio::test]
async fn a_missing_key_is_reported_with_advice() {
    check(
        Provider::Compatible,
        [status_answer("401 Unauthorized", "", "")],
        expect!["! there is no key for compatible: set COMPATIBLE_API_KEY, or store one with `bowline agent --login compatible`\n"],
    )
    .await;
}

#[tokio::test]
async fn a_reply_that_is_not_text_is_not_retried() {
    let server = MisbehavingServer::start(vec![streaming_answer(b"data: \xff\xfe\xff\n\n"); 3]).await;
    let reply = ask_once(&http_clients(Timeouts::default()), Provider::OpenAi, &server).await;
    assert!(reply.starts_with("! the reply cannot be used: it is not text ("), "{reply}");
    assert_eq!(server.requests().len(), 1);
}
