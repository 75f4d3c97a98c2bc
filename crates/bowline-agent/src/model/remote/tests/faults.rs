//! What servers do wrong, and what becomes of it.

use futures_util::StreamExt as _;

use super::server::begun;
use super::*;

fn frames(frames: &[&str]) -> String {
    frames.iter().map(|frame| format!("data: {frame}\n\n")).collect()
}

const TEXT: &str = r#"{"choices":[{"delta":{"content":"a"}}]}"#;
const FINISH: &str = r#"{"choices":[{"delta":{},"finish_reason":"stop"}]}"#;

fn call(index: &str, id: &str, name: &str, arguments: &str) -> String {
    format!(
        r#"{{"choices":[{{"delta":{{"tool_calls":[{{"index":{index},"id":"{id}","function":{{"name":"{name}","arguments":"{arguments}"}}}}]}}}}]}}"#
    )
}

#[tokio::test]
async fn a_reason_without_the_end_mark_is_an_end() {
    check(
        Provider::Compatible,
        [open(frames(&[TEXT, FINISH]))],
        expect![[r#"
            text "a"
            end Done
        "#]],
    )
    .await;
}

#[tokio::test]
async fn an_end_mark_without_a_reason_is_none() {
    check(
        Provider::Compatible,
        vec![open(frames(&[TEXT, "[DONE]"])); 3],
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
    let cut = vec![Do::Send(chunked.into())];
    let server = Server::start([cut.clone(), cut.clone(), open(frames(&[TEXT, FINISH, "[DONE]"]))]).await;
    let told = asked(&net(Timeouts::default()), Provider::OpenAi, &server).await;
    let told: Vec<&str> = told.lines().map(|line| line.split(": ").next().unwrap_or(line)).collect();
    assert_eq!(told, ["retrying after 1", "retrying after 2", "text \"a\"", "end Done"]);
    // And no more often than is allowed.
    let server = Server::start(vec![cut; 9]).await;
    let told = asked(&net(Timeouts::default()), Provider::OpenAi, &server).await;
    assert!(told.lines().last().unwrap().starts_with("! the reply was cut short"), "{told}");
    assert_eq!(server.heard().len(), 3);
}

#[tokio::test]
async fn busy_providers_are_asked_again() {
    check(
        Provider::OpenAi,
        [
            status("429 Too Many Requests", "retry-after-ms: 3\r\n", r#"{"error":{"message":"slow\ndown"}}"#),
            status("503 Service Unavailable", "", ""),
            open(frames(&[TEXT, FINISH, "[DONE]"])),
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
        vec![status("529 Overloaded", "", r#"{"type":"error","error":{"message":"Overloaded"}}"#); 3],
        expect![[r#"
            retrying after 1: 529 <unknown status code>: Overloaded
            retrying after 2: 529 <unknown status code>: Overloaded
            ! the provider is busy: 529 <unknown status code>: Overloaded
        "#]],
    )
    .await;
}

#[tokio::test]
async fn the_wait_that_is_asked_for_is_kept() {
    // In 30 seconds, as a date of the far future is not: that is more than we are willing to wait.
    let waits = [
        ("retry-after: 2\r\n", Some(2)),
        ("retry-after: 86400\r\n", None),
        ("retry-after: Fri, 31 Dec 2999 23:59:59 GMT\r\n", None),
    ];
    for (header, expected) in waits {
        let server = Server::start([status("429 Too Many Requests", header, "")]).await;
        let model = model(&net(Timeouts::default()), Provider::OpenAi, &server.url);
        let mut reply = model.ask(request(vec![Message::text(Role::User, "x")], &[]));
        match (reply.next().await, expected) {
            (Some(Ok(Event::Retrying { wait, attempt: 1, .. })), Some(seconds)) => {
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
async fn what_does_not_pass_is_not_asked_again() {
    for (answer, expected) in [
        (
            status("401 Unauthorized", "", r#"{"error":{"message":"bad key"}}"#),
            expect![
                "! OpenAI does not accept the key: 401 Unauthorized: bad key; replace the key in OPENAI_API_KEY, which comes before a stored one\n"
            ],
        ),
        (
            status("400 Bad Request", "", r#"{"error":{"message":"no"}}"#),
            expect!["! the provider refuses the request: 400 Bad Request: no\n"],
        ),
        (
            status(
                "400 Bad Request",
                "",
                r#"{"error":{"message":"too much","code":"context_length_exceeded"}}"#,
            ),
            expect!["! the conversation does not fit the model's window: 400 Bad Request: too much\n"],
        ),
        (
            status("404 Not Found", "", r#"{"error":"model not found"}"#),
            expect![
                "! there is no model openai/gpt-5: 404 Not Found: model not found; check the name, and whether $SERVER/ is the base URL (`--base-url` or OPENAI_BASE_URL)\n"
            ],
        ),
        (
            status("200 OK", "content-type: text/html\r\n", "<html>"),
            expect!["! the reply cannot be used: $SERVER answers with a web page: is the base URL right?\n"],
        ),
        (
            status("200 OK", "content-type: application/json\r\n", r#"{"choices":[]}"#),
            expect![
                "! the reply cannot be used: $SERVER answers without streaming, which it was asked for\n"
            ],
        ),
        (
            status("200 OK", "content-encoding: gzip\r\n", "bomb"),
            expect!["! the reply cannot be used: it is compressed (gzip), which was not asked for\n"],
        ),
    ] {
        let server = Server::start([answer]).await;
        expected.assert_eq(&asked(&net(Timeouts::default()), Provider::OpenAi, &server).await);
        assert_eq!(server.heard().len(), 1);
    }
}

#[tokio::test]
async fn an_error_inside_of_a_reply_is_its_end() {
    let overloaded = "event: error\ndata: {\"type\":\"error\",\"error\":{\"type\":\"overloaded_error\",\"message\":\"Overloaded\"}}\n\n";
    check(
        Provider::Anthropic,
        [open(overloaded), open(streams::ANTHROPIC)],
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
        [open(frames(&[TEXT, r#"{"error":{"message":"oops"}}"#, FINISH, "[DONE]"]))],
        expect![[r#"
            text "a"
            ! the provider is busy: oops
        "#]],
    )
    .await;
    check(
        Provider::Ollama,
        vec![open(frames(&[TEXT, r#"{"error":"out of memory"}"#])); 3],
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
        [open("event: error\ndata: rate limit exceeded\n\n"), open(streams::ANTHROPIC)],
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
async fn signs_of_life_and_fields_that_nobody_knows_are_skipped() {
    let stream = format!(
        "retry: 10\n\n: alive\n\ndata:\n\nid: 7\nnews: none\ndata: {{\"object\":\"progress\",\"error\":null}}\n\n{}",
        frames(&[TEXT, FINISH])
    );
    check(
        Provider::Compatible,
        [open(stream)],
        expect![[r#"
            text "a"
            end Done
        "#]],
    )
    .await;
}

#[tokio::test]
async fn a_frame_that_cannot_be_read_is_the_end() {
    let server = Server::start([open(frames(&[TEXT, "{nonsense", TEXT, FINISH, "[DONE]"]))]).await;
    let told = asked(&net(Timeouts::default()), Provider::OpenAi, &server).await;
    let told: Vec<&str> = told.lines().collect();
    assert_eq!(told[0], "text \"a\"");
    assert!(told[1].starts_with("! the reply cannot be used"), "{told:?}");
}

#[tokio::test]
async fn what_gemini_blocks_is_refused() {
    check(
        Provider::Gemini,
        [open(frames(&[r#"{"promptFeedback":{"blockReason":"SAFETY"}}"#]))],
        expect![[r#"
            end Refused
        "#]],
    )
    .await;
    check(
        Provider::Gemini,
        vec![open(frames(&[r#"{"candidates":[{"finishReason":"MALFORMED_FUNCTION_CALL"}]}"#])); 3],
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
    let pings = || vec![Do::Send(begun(": ping\n\n".repeat(3))), Do::Stall];
    let text = || vec![Do::Send(begun(frames(&[TEXT]))), Do::Stall];
    for (timeouts, answer, expected) in [
        (Timeouts { headers: short, ..patient }, vec![Do::Stall], "no answer within 150ms"),
        (Timeouts { idle: short, ..patient }, vec![Do::Send(begun("")), Do::Stall], "nothing came for 150ms"),
        (Timeouts { idle: short, ..patient }, text(), "nothing came for 150ms"),
        (Timeouts { silence: short, ..patient }, pings(), "nothing of the reply came for 150ms"),
        (Timeouts { overall: short, ..patient }, pings(), "150ms have passed"),
    ] {
        let server = Server::start(vec![answer; 3]).await;
        let told = asked(&net(timeouts), Provider::OpenAi, &server).await;
        let last = told.lines().last().unwrap();
        let expected = format!("! the model did not answer in time: {expected}");
        assert!(last == expected || last == format!("{expected} from $SERVER"), "{told}");
    }
}

#[tokio::test]
async fn servers_of_ones_own_may_take_their_time_before_the_first_word() {
    let (short, long) = (Duration::from_millis(150), Duration::from_secs(60));
    let slow =
        Timeouts { idle: short, silence: short, local_headers: long, overall: long, ..Timeouts::default() };
    let stalls = |sent: &str| vec![Do::Send(begun(sent)), Do::Stall];
    // What takes long before the first word is waited for: here until all the time is over.
    let timeouts = Timeouts { overall: 4 * short, ..slow };
    for sent in ["", ": reading\n\n"] {
        let server = Server::start([stalls(sent)]).await;
        let told = asked(&net(timeouts), Provider::Compatible, &server).await;
        assert_eq!(told, "! the model did not answer in time: 600ms have passed\n");
    }
    // And what is too long is tried once more, not as often as others are.
    let timeouts = Timeouts { local_headers: short, silence: long, ..slow };
    let server = Server::start(vec![stalls(""); 9]).await;
    let told = asked(&net(timeouts), Provider::Compatible, &server).await;
    expect![[r#"
        retrying after 1: nothing came for 150ms
        ! the model did not answer in time: nothing came for 150ms from $SERVER
    "#]]
    .assert_eq(&told);
}

#[tokio::test]
async fn strange_calls_are_passed_on_or_left_out() {
    let one = |call: String| open(frames(&[&call, FINISH, "[DONE]"]));
    for (answer, expected) in [
        (one(call("4000000000", "x", "read", "{}")), expect!["call x read {}\nend Done\n"]),
        (one(call("0", "x", "unknown tool", "")), expect!["call x unknown tool {}\nend Done\n"]),
        (
            one(call("0", "x", "read", "{oops")),
            expect![[r#"
            call x read broken "{oops": key must be a string at line 1 column 2
            end Done
        "#]],
        ),
        (
            one(call("0", "x", "read", r#"\"{\\\"path\\\":1}\""#)),
            expect![[r#"
            call x read {"path":1}
            end Done
        "#]],
        ),
        (one(call("0", "", "read", "[1]")), expect!["call call_1 read [1]\nend Done\n"]),
        (
            open(frames(&[&call("0", "x", "read", "{}"), &call("1", "x", "write", "{}"), FINISH, "[DONE]"])),
            expect!["call x read {}\ncall call_2 write {}\nend Done\n"],
        ),
        // Servers that give all calls one index.
        (
            open(frames(&[&call("0", "x", "read", "{}"), &call("0", "y", "write", "{}"), FINISH, "[DONE]"])),
            expect!["call x read {}\ncall y write {}\nend Done\n"],
        ),
        // A limit inside of a call.
        (
            open(frames(&[
                &call("0", "x", "read", "{\\\"pa"),
                r#"{"choices":[{"delta":{},"finish_reason":"length"}]}"#,
                "[DONE]",
            ])),
            expect![[r#"
                call x read broken "{\"pa": EOF while parsing a string at line 1 column 4
                end Length
            "#]],
        ),
        // A limit behind a call, which looks the same as one inside.
        (
            open(frames(&[
                &call("0", "x", "read", "{}"),
                r#"{"choices":[{"delta":{},"finish_reason":"length"}]}"#,
                "[DONE]",
            ])),
            expect!["call x read {}\nend Length\n"],
        ),
        // What a provider refuses is not called.
        (
            open(frames(&[
                &call("0", "x", "read", "{}"),
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
async fn no_more_calls_than_are_sensible() {
    let calls: Vec<String> = (0..500).map(|n| call(&n.to_string(), &format!("c{n}"), "read", "{}")).collect();
    let mut all: Vec<&str> = calls.iter().map(String::as_str).collect();
    all.extend([FINISH, "[DONE]"]);
    let server = Server::start([open(frames(&all))]).await;
    let told = asked(&net(Timeouts::default()), Provider::OpenAi, &server).await;
    assert_eq!(told.lines().filter(|line| line.starts_with("call ")).count(), MAX_CALLS);
    assert!(told.ends_with("end Done\n"));
    // Nor is one that is left out taken for a part of the one before, where all have one index.
    let pieces = |n| [call("0", &format!("c{n}"), "read", ""), call("0", "", "", "{}")];
    let calls: Vec<String> = (0..500).flat_map(pieces).collect();
    let mut all: Vec<&str> = calls.iter().map(String::as_str).collect();
    all.extend([FINISH, "[DONE]"]);
    let server = Server::start([open(frames(&all))]).await;
    let told = asked(&net(Timeouts::default()), Provider::OpenAi, &server).await;
    assert_eq!(
        told.lines().filter(|line| line.starts_with("call ") && line.ends_with(" read {}")).count(),
        MAX_CALLS
    );
}

#[tokio::test]
async fn an_unfinished_block_of_anthropics_is_cut_or_limited() {
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
        let server = Server::start([open(stream)]).await;
        let told = asked(&net(Timeouts::default()), Provider::Anthropic, &server).await;
        assert_eq!(told.lines().last(), Some(expected), "{told}");
        assert_eq!(told.lines().filter(|line| line.starts_with("call ")).count(), calls, "{told}");
    }
}

#[tokio::test]
async fn hidden_thoughts_are_kept() {
    let hidden = "event: content_block_start\ndata: {\"type\":\"content_block_start\",\"index\":0,\"content_block\":{\"type\":\"redacted_thinking\",\"data\":\"xyz\"}}\n\n";
    let server = Server::start([open(format!("{hidden}{}", streams::ANTHROPIC))]).await;
    let told = asked(&net(Timeouts::default()), Provider::Anthropic, &server).await;
    assert!(told.starts_with("thought \"\" signed \"anthropic-hidden:xyz\"\n"), "{told}");
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
        [vec![Do::Send(bytes)]],
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
async fn floods_are_not_drunk() {
    let gigabyte = 1 << 30;
    let head = |status: &str| {
        Do::Send(format!("HTTP/1.1 {status}\r\ncontent-type: text/event-stream\r\n\r\n").into())
    };
    for (answer, expected) in [
        // An event that never ends.
        (
            vec![head("200 OK"), Do::Flood("x".into(), gigabyte)],
            "! the reply cannot be used: an event of the reply has more than 1048576 bytes",
        ),
        // Lines of one event.
        (
            vec![head("200 OK"), Do::Flood("data: x\n".into(), gigabyte)],
            "! the reply cannot be used: an event of the reply has more than 1048576 bytes",
        ),
        // Signs of life.
        (
            vec![head("200 OK"), Do::Flood(format!(": {}\n\n", "x".repeat(4_000)), gigabyte)],
            "! the reply cannot be used: the reply has more than 67108864 bytes",
        ),
        // An error page.
        (
            vec![head("400 Bad Request"), Do::Flood("x".into(), gigabyte)],
            "! the provider refuses the request: 400 Bad Request: xxxx",
        ),
    ] {
        let server = Server::start([answer]).await;
        let told = asked(&net(Timeouts::default()), Provider::OpenAi, &server).await;
        assert!(told.starts_with(expected), "{told}");
        let flooded = server.state.lock().unwrap().flooded;
        assert!(flooded < gigabyte / 4, "{flooded} bytes were taken");
    }
}

#[tokio::test]
async fn arguments_have_a_limit() {
    let piece = call("0", "x", "read", &"y".repeat(64 << 10));
    let server = Server::start([open(frames(&[piece.as_str(); 70]))]).await;
    let told = asked(&net(Timeouts::default()), Provider::OpenAi, &server).await;
    assert_eq!(told, "! the reply cannot be used: its calls have more than 4194304 bytes\n");
}

#[tokio::test]
async fn a_key_is_not_taken_elsewhere() {
    let elsewhere = Server::start([open(streams::OPENAI)]).await;
    let to = format!("location: {}/v1/chat/completions\r\n", elsewhere.url);
    let server = Server::start([status("307 Temporary Redirect", &to, "")]).await;
    let told = asked(&net(Timeouts::default()), Provider::OpenAi, &server).await;
    expect![[r#"
        ! the provider refuses the request: it redirects to $ELSEWHERE, where the key is not sent: if that is right, make it the base URL
    "#]]
    .assert_eq(&told.replace(&elsewhere.url, "$ELSEWHERE"));
    assert!(elsewhere.heard().is_empty());
}

#[tokio::test]
async fn a_redirect_within_a_server_is_followed() {
    let moved = status("307 Temporary Redirect", "location: /moved/chat/completions\r\n", "");
    let server = Server::start([moved, open(streams::OPENAI)]).await;
    let told = asked(&net(Timeouts::default()), Provider::OpenAi, &server).await;
    assert!(told.ends_with("end Done\n"), "{told}");
    let heard = server.heard();
    let paths: Vec<&str> = heard.iter().map(|heard| heard.path.as_str()).collect();
    assert_eq!(paths, ["/chat/completions", "/moved/chat/completions"]);
    assert_eq!(heard[0].body, heard[1].body);
    assert!(heard[1].headers.iter().any(|header| header == "authorization: Bearer sk-secret"));
}

#[tokio::test]
async fn providers_that_are_not_there_are_told() {
    // Nobody listens, and somebody who does not speak TLS.
    let nobody = {
        let listener = tokio::net::TcpListener::bind(("127.0.0.1", 0)).await.unwrap();
        format!("http://{}", listener.local_addr().unwrap())
    };
    let plain = Server::start(vec![status("200 OK", "", ""); 9]).await;
    for url in [nobody, plain.url.replace("http:", "https:")] {
        let model = model(&net(Timeouts::default()), Provider::OpenAi, &url);
        let told = told(model.ask(request(vec![Message::text(Role::User, "x")], &[]))).await;
        let lines: Vec<&str> = told.lines().collect();
        assert_eq!(lines.len(), 3, "{told}");
        assert!(lines[2].starts_with("! the provider cannot be reached: "), "{told}");
        let advice = format!(
            "; check the network, or give another place than {url} with `--base-url` or OPENAI_BASE_URL"
        );
        assert!(lines[2].ends_with(&advice), "{told}");
        assert!(!told.contains("sk-secret"), "{told}");
    }
}

#[tokio::test]
async fn a_key_that_a_server_quotes_is_not_told() {
    let quoting = r#"{"error":{"message":"Received API key = sk-secret"}}"#;
    check(
        Provider::OpenAi,
        [
            status("503 Service Unavailable", "", quoting),
            open(frames(&[quoting])),
            status("400 Bad Request", "", quoting),
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
async fn who_is_busy_says_when() {
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
        check(Provider::OpenAi, [status("429 Too Many Requests", header, body)], expected).await;
    }
}

#[tokio::test]
async fn a_server_that_wants_a_key_and_got_none_is_told_so() {
    check(
        Provider::Compatible,
        [status("401 Unauthorized", "", "")],
        expect!["! there is no key for compatible: set COMPATIBLE_API_KEY, or store one with `bowline agent --login compatible`\n"],
    )
    .await;
}

#[tokio::test]
async fn what_is_no_text_is_not_asked_for_again() {
    let server = Server::start(vec![open(b"data: \xff\xfe\xff\n\n"); 3]).await;
    let told = asked(&net(Timeouts::default()), Provider::OpenAi, &server).await;
    assert!(told.starts_with("! the reply cannot be used: it is not text ("), "{told}");
    assert_eq!(server.heard().len(), 1);
}
