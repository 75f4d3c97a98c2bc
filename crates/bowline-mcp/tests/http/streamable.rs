//! Tests of streamable HTTP.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use bowline_mcp::client::{McpClientOptions, McpServers, ServerSpec};
use expect_test::{Expect, expect};
use serde_json::json;

use super::scripted_server::{
    HttpTestRequest, ScriptedReply, ScriptedServer, call_echo, client_options, connect, describe_call,
    describe_server_and_call,
};

/// Connects to a server, calls its tool, and compares both outcomes.
async fn check(
    reply_override: impl Fn(&HttpTestRequest) -> Option<ScriptedReply> + Send + Sync + 'static,
    expected: Expect,
) {
    let server = ScriptedServer::start_mcp(reply_override).await;
    let servers = connect(server.http_transport(), client_options()).await;
    let outcome = describe_server_and_call(&servers).await;
    let start = Instant::now();
    servers.shutdown().await;
    assert!(start.elapsed() < Duration::from_secs(4), "{:?}", start.elapsed());
    expected.assert_eq(
        &format!("{outcome}\n\n{}", server.describe_requests()).replace(&server.origin, "$ORIGIN"),
    );
}

#[tokio::test]
async fn a_session_is_opened_used_and_closed() {
    check(
        |_| None,
        expect![[r#"
            Ready
            {"a":1}

            POST initialize
            POST notifications/initialized in s0
            POST tools/list in s0
            POST tools/call in s0
            DELETE in s0"#]],
    )
    .await;
}

#[tokio::test]
async fn every_request_has_the_users_headers_and_no_other_host_gets_them() {
    let other = ScriptedServer::start_mcp(|_| None).await;
    let to = format!("{}/mcp", other.origin);
    let server = ScriptedServer::start_mcp(move |request| {
        let headers = match request.path.as_str() {
            "/mcp" => vec![("location", "/moved".to_owned())],
            _ if request.method() == "tools/call" => vec![("location", to.clone())],
            _ => return None,
        };
        Some(ScriptedReply::Whole { status: 307, headers, body: String::new() })
    })
    .await;
    let servers = connect(server.http_transport(), client_options()).await;
    let outcome = describe_server_and_call(&servers).await.replace(&other.origin, "$OTHER");
    expect![[r#"
        Ready
        ! the call of the MCP server "web" failed, and may have been carried out all the same: it leads elsewhere (HTTP 307), to "$OTHER/mcp", which is not followed: give the server's own address"#]].assert_eq(&outcome);
    assert!(server.requests().iter().all(|request| request.header("authorization") == Some("Bearer abc")));
    assert_eq!(other.describe_requests(), "");
    servers.shutdown().await;
}

#[tokio::test]
async fn a_page_of_html_is_no_server() {
    let html = |_: &HttpTestRequest| {
        Some(ScriptedReply::text(200, "text/html; charset=utf-8", "<!doctype html><title>Log in</title>"))
    };
    check(html, expect![[r#"
        Failed("what answers is no MCP server: it sends \"text/html; charset=utf-8\", which begins with \"<!doctype html><title>Log in</title>\"")
        ! there is no MCP tool "mcp__web__echo": it may have gone with its server

        POST initialize"#]]).await;
}

#[tokio::test]
async fn a_page_of_html_in_the_midst_fails_the_call() {
    let html = |request: &HttpTestRequest| {
        (request.method() == "tools/call")
            .then(|| ScriptedReply::text(502, "text/html", "<h1>Bad gateway\u{1b}[2J</h1>"))
    };
    check(
        html,
        expect![[r#"
            Ready
            ! the call of the MCP server "web" failed, and may have been carried out all the same: it answers HTTP 502: "<h1>Bad gateway\\u{1b}[2J</h1>"

            POST initialize
            POST notifications/initialized in s0
            POST tools/list in s0
            POST tools/call in s0
            DELETE in s0"#]],
    )
    .await;
}

#[tokio::test]
async fn a_server_that_wants_authorization_says_so() {
    check(
        |_| Some(ScriptedReply::text(401, "text/plain", "who are you")),
        expect![[r#"
        Failed("it wants authorization (HTTP 401): put what it needs into the server's headers")
        ! there is no MCP tool "mcp__web__echo": it may have gone with its server

        POST initialize"#]],
    )
    .await;
}

#[tokio::test]
async fn a_protocol_error_is_reported_with_any_http_status() {
    let refuse = |request: &HttpTestRequest| {
        let error = json!({ "jsonrpc": "2.0", "id": "server-error", "error": { "code": -32000, "message": "not today" } });
        (request.method() == "tools/call")
            .then(|| ScriptedReply::text(400, "application/json", &error.to_string()))
    };
    check(
        refuse,
        expect![[r#"
            Ready
            ! the MCP server "web" refuses the call: not today

            POST initialize
            POST notifications/initialized in s0
            POST tools/list in s0
            POST tools/call in s0
            DELETE in s0"#]],
    )
    .await;
}

#[tokio::test]
async fn a_session_that_expired_is_opened_anew_once() {
    // The first session expires after its tools were listed.
    let forget = |request: &HttpTestRequest| {
        let first = request.header("mcp-session-id") == Some("s0");
        (first && request.method() == "tools/call")
            .then(|| ScriptedReply::text(404, "text/plain", "no such session"))
    };
    check(
        forget,
        expect![[r#"
            Ready
            {"a":1}

            POST initialize
            POST notifications/initialized in s0
            POST tools/list in s0
            POST tools/call in s0
            POST initialize
            POST notifications/initialized in s1
            POST tools/call in s1
            DELETE in s1"#]],
    )
    .await;
}

#[tokio::test]
async fn sessions_that_always_expire_fail_the_call() {
    let forget = |request: &HttpTestRequest| {
        (request.method() == "tools/call").then(|| ScriptedReply::text(404, "text/plain", "no such session"))
    };
    check(
        forget,
        expect![[r#"
            Ready
            ! the call of the MCP server "web" failed, and may have been carried out all the same: Session expired (HTTP 404)

            POST initialize
            POST notifications/initialized in s0
            POST tools/list in s0
            POST tools/call in s0
            POST initialize
            POST notifications/initialized in s1
            POST tools/call in s1
            DELETE in s1"#]],
    )
    .await;
}

#[tokio::test]
async fn a_delete_that_hangs_does_not_hold_up_the_end() {
    check(
        |request| (request.verb == "DELETE").then_some(ScriptedReply::Hang),
        expect![[r#"
            Ready
            {"a":1}

            POST initialize
            POST notifications/initialized in s0
            POST tools/list in s0
            POST tools/call in s0
            DELETE in s0"#]],
    )
    .await;
}

#[tokio::test]
async fn an_answer_that_is_cut_off_fails_the_call() {
    check(|request| (request.method() == "tools/call").then_some(ScriptedReply::Close), expect![[r#"
        Ready
        ! the call of the MCP server "web" failed, and may have been carried out all the same: the request failed: error sending request: client error (SendRequest): connection closed before message completed

        POST initialize
        POST notifications/initialized in s0
        POST tools/list in s0
        POST tools/call in s0
        DELETE in s0"#]]).await;
}

#[tokio::test]
async fn a_stream_that_ends_before_the_answer_fails_the_call() {
    let cut = |request: &HttpTestRequest| {
        let events = "event: message\ndata: {\"jsonrpc\":\"2.0\",\"method\":\"notifications/message\",\"params\":{\"level\":\"info\",\"data\":\"working\"}}\n\n";
        (request.method() == "tools/call")
            .then(|| ScriptedReply::Events { headers: Vec::new(), events: events.to_owned() })
    };
    check(
        cut,
        expect![[r#"
            Ready
            ! the MCP server "web" ended during the call, what it did is not known: it closed the connection

            POST initialize
            POST notifications/initialized in s0
            POST tools/list in s0
            POST tools/call in s0
            DELETE in s0"#]],
    )
    .await;
}

#[tokio::test]
async fn an_answer_can_come_as_a_stream() {
    let stream = |request: &HttpTestRequest| {
        let answer = json!({ "jsonrpc": "2.0", "id": request.message["id"], "result": {
            "content": [{ "type": "text", "text": "streamed" }],
        } });
        let events = format!(": hello\r\nnot json\r\ndata: nonsense\r\n\r\nid: 1\r\ndata: {answer}\r\n\r\n");
        (request.method() == "tools/call").then_some(ScriptedReply::Events { headers: Vec::new(), events })
    };
    check(
        stream,
        expect![[r#"
            Ready
            streamed

            POST initialize
            POST notifications/initialized in s0
            POST tools/list in s0
            POST tools/call in s0
            DELETE in s0"#]],
    )
    .await;
}

#[tokio::test]
async fn an_answer_without_end_fails_the_call() {
    check(
        |request| (request.method() == "tools/call").then_some(ScriptedReply::Flood("application/json")),
        expect![[r#"
            Ready
            ! the call of the MCP server "web" failed, and may have been carried out all the same: its answer is larger than 16777216 bytes

            POST initialize
            POST notifications/initialized in s0
            POST tools/list in s0
            POST tools/call in s0
            DELETE in s0"#]],
    )
    .await;
}

#[tokio::test]
async fn an_event_without_end_fails_the_call() {
    check(
        |request| (request.method() == "tools/call").then_some(ScriptedReply::Flood("text/event-stream")),
        expect![[r#"
            Ready
            ! the MCP server "web" ended during the call, what it did is not known: it closed the connection

            POST initialize
            POST notifications/initialized in s0
            POST tools/list in s0
            POST tools/call in s0
            DELETE in s0"#]],
    )
    .await;
}

#[tokio::test]
async fn a_call_that_hangs_ends_at_its_timeout() {
    let server = ScriptedServer::start_mcp(|request| {
        (request.method() == "tools/call").then_some(ScriptedReply::Hang)
    })
    .await;
    let settings = McpClientOptions { call_timeout: Duration::from_millis(1500), ..client_options() };
    let servers = connect(server.http_transport(), settings).await;
    expect![[r#"! the MCP server "web" did not answer within 1.5s, so the call was cancelled"#]]
        .assert_eq(&describe_call(call_echo(&servers).await));
    server.wait_for_request(|request| request.method() == "notifications/cancelled").await;
    servers.shutdown().await;
}

#[tokio::test]
async fn a_server_that_is_killed_fails_the_call_and_can_come_back() {
    let server = ScriptedServer::start_mcp(|request| {
        (request.method() == "tools/call").then_some(ScriptedReply::Hang)
    })
    .await;
    let servers = connect(server.http_transport(), client_options()).await;
    let killed = async {
        server.wait_for_request(|request| request.method() == "tools/call").await;
        drop(server);
    };
    let (outcome, ()) = tokio::join!(call_echo(&servers), killed);
    let gone = call_echo(&servers).await;
    expect![[r#"
        ! the call of the MCP server "web" failed, and may have been carried out all the same: the request failed: error sending request: client error (SendRequest): connection closed before message completed
        ! the call of the MCP server "web" failed, and may have been carried out all the same: the request failed: error sending request: client error (Connect): tcp connect error: Connection refused (os error 111)"#]].assert_eq(&format!("{}\n{}", describe_call(outcome), describe_call(gone)));
    servers.shutdown().await;
}

#[tokio::test]
async fn a_refused_connection_is_retried_a_few_times() {
    let server = ScriptedServer::start_mcp(|_| None).await;
    let (transport, origin) = (server.http_transport(), server.origin.clone());
    drop(server);
    let servers = connect(transport, client_options()).await;
    expect![[r#"Failed("the request failed: error sending request: client error (Connect): tcp connect error: Connection refused (os error 111)")"#]].assert_eq(&format!("{:?}", servers.statuses()[0].state).replace(&origin, "$ORIGIN"));
    servers.shutdown().await;
}

#[tokio::test]
async fn a_stream_that_ends_at_once_is_not_opened_in_a_loop() {
    let opened = Arc::new(AtomicUsize::new(0));
    let count = Arc::clone(&opened);
    let server = ScriptedServer::start_mcp(move |request| {
        (request.verb == "GET").then(|| {
            count.fetch_add(1, Ordering::Relaxed);
            ScriptedReply::Events { headers: Vec::new(), events: "retry: 0\nid: 1\ndata:\n\n".to_owned() }
        })
    })
    .await;
    let settings = McpClientOptions { call_timeout: Duration::from_millis(1500), ..client_options() };
    let servers = connect(server.http_transport(), settings).await;
    server.wait_for_request(|request| request.verb == "GET").await;
    // Waits as long as a hanging call takes, which is a while.
    let hanging = ScriptedServer::start_mcp(|request| {
        (request.method() == "tools/call").then_some(ScriptedReply::Hang)
    })
    .await;
    let other = McpClientOptions {
        call_timeout: Duration::from_millis(1500),
        ..super::scripted_server::client_options()
    };
    call_echo(&connect(hanging.http_transport(), other).await).await.unwrap_err();
    let opened = opened.load(Ordering::Relaxed);
    assert!((1..=20).contains(&opened), "{opened} streams were opened");
    expect![[r#"{"a":1}"#]].assert_eq(&describe_call(call_echo(&servers).await));
    servers.shutdown().await;
}

#[tokio::test]
async fn a_server_that_hangs_holds_up_no_other() {
    let hanging = ScriptedServer::new(|_| ScriptedReply::Hang).await;
    let good = ScriptedServer::start_mcp(|_| None).await;
    let spec = |name: &str, server: &ScriptedServer| ServerSpec {
        name: name.to_owned(),
        transport: server.http_transport(),
    };
    let settings = McpClientOptions { start_timeout: Duration::from_secs(5), ..client_options() };
    let servers = McpServers::connect(vec![spec("hangs", &hanging), spec("web", &good)], settings);
    servers.wait_until_ready(Duration::from_secs(20)).await;
    let states: Vec<String> = servers.statuses().iter().map(|status| format!("{:?}", status.state)).collect();
    expect![[r#"
        Failed("it was not ready within 5 seconds")
        Ready"#]]
    .assert_eq(&states.join("\n"));
    servers.shutdown().await;
}

#[tokio::test]
async fn a_server_of_the_latest_protocol_needs_no_handshake() {
    let modern = |request: &HttpTestRequest| match request.method() {
        "initialize" => Some(ScriptedReply::json(&json!({
            "jsonrpc": "2.0", "id": request.message["id"], "error": { "code": -32601, "message": "no such method" },
        }))),
        "server/discover" => Some(ScriptedReply::result(
            request,
            json!({
                "resultType": "complete",
                "supportedVersions": ["2026-07-28"],
                "capabilities": { "tools": {} },
                "ttlMs": 0,
                "cacheScope": "private",
            }),
        )),
        _ => None,
    };
    check(
        modern,
        expect![[r#"
        Ready
        {"a":1}

        POST initialize
        POST server/discover
        POST tools/list
        POST tools/call"#]],
    )
    .await;
}

#[test]
fn clients_leave_the_process_its_own_cryptography() {
    bowline_mcp::http::build_client(
        &bowline_mcp::http::HttpClientOptions::default(),
        bowline_mcp::http::HttpScheme::Https,
    )
    .unwrap();
    assert!(rustls::crypto::CryptoProvider::get_default().is_none());
}
