//! Tests of requests for sessions that the agent has not confirmed as open yet.

use std::time::Duration;

use super::*;

const RULES: EngineInterceptorOptions = EngineInterceptorOptions {
    enforce_policy: true,
    serve_as_host: false,
    route_writes: false,
    quirks: QuirkMode::On,
};

fn read_request(id: u32, session: &str, path: &str) -> String {
    format!(
        r#"{{"jsonrpc":"2.0","id":{id},"method":"fs/read_text_file","params":{{"sessionId":"{session}","path":"{path}"}}}}"#
    )
}

fn permission_request(id: u32, session: &str, title: &str) -> String {
    format!(
        r#"{{"jsonrpc":"2.0","id":{id},"method":"session/request_permission","params":{{"sessionId":"{session}","toolCall":{{"toolCallId":"c{id}","title":"{title}"}},"options":[{{"optionId":"y","name":"Yes","kind":"allow_once"}},{{"optionId":"n","name":"No","kind":"reject_once"}}]}}}}"#
    )
}

const NEW_SESSION: &str = r#""session/new","params":{"cwd":"/w","mcpServers":[]}"#;
const LOAD_SESSION: &str = r#""session/load","params":{"sessionId":"old","cwd":"/w","mcpServers":[]}"#;
const OPEN_FAILED: &str = r#"{"jsonrpc":"2.0","id":5,"error":{"code":-32000,"message":"no"}}"#;

fn session_opened(session: &str) -> String {
    format!(r#"{{"jsonrpc":"2.0","id":5,"result":{{"sessionId":"{session}"}}}}"#)
}

impl EngineHarness {
    /// Sends the editor's request for a session.
    async fn send_open_request(&mut self, method_and_params: &str) {
        let request = format!(r#"{{"jsonrpc":"2.0","id":5,"method":{method_and_params}}}"#);
        self.editor.send(&request).await;
        assert_eq!(self.agent.receive().await, request);
    }

    /// Sends a marker that is forwarded, so that all messages before it have been processed.
    async fn send_marker(&mut self) {
        self.expect_forwarded(r#"{"jsonrpc":"2.0","method":"_settled"}"#).await;
    }
}

#[tokio::test]
async fn they_are_judged_in_order_once_it_is_open() {
    for (open_request, session) in [(NEW_SESSION, "fresh"), (LOAD_SESSION, "old")] {
        let mut harness = start_harness(RULES, ALL_CAPABILITIES).await;
        harness.send_open_request(open_request).await;
        for line in [
            read_request(20, session, "/w/a"),
            read_request(21, session, "/w/.env"),
            permission_request(22, session, "denied"),
            read_request(23, session, "/w/b"),
            permission_request(24, session, "asked"),
        ] {
            harness.agent.send(&line).await;
        }
        harness.send_marker().await;
        assert!(harness.engine.0.judged.lock().unwrap().is_empty());
        // A request for an open session does not wait.
        harness.expect_forwarded(&read_request(25, "s", "/w/open")).await;
        harness.agent.send(&session_opened(session)).await;
        let mut transcript = String::new();
        for _ in 0..4 {
            transcript += &(harness.editor.receive().await + "\n");
        }
        for _ in 0..2 {
            transcript += &(harness.agent.receive().await + "\n");
        }
        transcript += &harness.engine.0.judged.lock().unwrap().join("\n");
        expect![[r#"
            {"jsonrpc":"2.0","id":5,"result":{"sessionId":"SESSION"}}
            {"jsonrpc":"2.0","id":20,"method":"fs/read_text_file","params":{"sessionId":"SESSION","path":"/w/a"}}
            {"jsonrpc":"2.0","id":23,"method":"fs/read_text_file","params":{"sessionId":"SESSION","path":"/w/b"}}
            {"jsonrpc":"2.0","id":24,"method":"session/request_permission","params":{"sessionId":"SESSION","toolCall":{"toolCallId":"c24","title":"asked"},"options":[{"optionId":"y","name":"Yes","kind":"allow_once"},{"optionId":"n","name":"No","kind":"reject_once"}]}}
            {"jsonrpc":"2.0","id":21,"error":{"code":-32030,"message":"permission denied: a rule denies it","data":{"why":"a rule denies it"}}}
            {"jsonrpc":"2.0","id":22,"result":{"outcome":{"outcome":"selected","optionId":"n"},"_meta":{"bowline":{"by":"proxy"}}}}
            Read { path: "/w/open" }
            Read { path: "/w/a" }
            Read { path: "/w/.env" }
            Read { path: "/w/b" }"#]]
        .assert_eq(&transcript.replace(session, "SESSION"));
        harness.expect_forwarded(&read_request(26, session, "/w/c")).await;
    }
}

#[tokio::test]
async fn they_are_answered_with_an_error_if_it_is_not_opened_or_is_another() {
    let mut harness = start_harness(RULES, ALL_CAPABILITIES).await;
    let mut transcript = String::new();
    for answer in [
        OPEN_FAILED.to_owned(),
        session_opened("another"),
        r#"{"jsonrpc":"2.0","id":5,"result":{}}"#.to_owned(),
    ] {
        harness.send_open_request(NEW_SESSION).await;
        harness.agent.send(&read_request(20, "fresh", "/w/a")).await;
        harness.agent.send(&permission_request(21, "fresh", "asked")).await;
        harness.expect_forwarded(&answer).await;
        transcript +=
            &format!("{answer}\n{}\n{}\n", harness.agent.receive().await, harness.agent.receive().await);
    }
    // A session that no request opens is refused at once.
    harness.agent.send(&read_request(22, "fresh", "/w/a")).await;
    transcript += &(harness.agent.receive().await + "\n");
    harness.send_open_request(LOAD_SESSION).await;
    harness.agent.send(&read_request(23, "fresh", "/w/a")).await;
    transcript += &(harness.agent.receive().await + "\n");
    // When one of two fails to open, requests that may belong to the other keep waiting.
    let second = r#"{"jsonrpc":"2.0","id":6,"method":"session/new","params":{"cwd":"/w","mcpServers":[]}}"#;
    harness.editor.send(second).await;
    assert_eq!(harness.agent.receive().await, second);
    harness.agent.send(&read_request(24, "fresh", "/w/a")).await;
    harness.agent.send(&read_request(25, "old", "/w/a")).await;
    harness.expect_forwarded(OPEN_FAILED).await;
    harness.expect_forwarded(r#"{"jsonrpc":"2.0","id":6,"result":{"sessionId":"fresh"}}"#).await;
    transcript += &format!("{}\n{}\n", harness.editor.receive().await, harness.agent.receive().await);
    expect![[r#"
        {"jsonrpc":"2.0","id":5,"error":{"code":-32000,"message":"no"}}
        {"jsonrpc":"2.0","id":20,"error":{"code":-32002,"message":"Resource not found: session fresh","data":{"sessionId":"fresh"}}}
        {"jsonrpc":"2.0","id":21,"error":{"code":-32002,"message":"Resource not found: session fresh","data":{"sessionId":"fresh"}}}
        {"jsonrpc":"2.0","id":5,"result":{"sessionId":"another"}}
        {"jsonrpc":"2.0","id":20,"error":{"code":-32002,"message":"Resource not found: session fresh","data":{"sessionId":"fresh"}}}
        {"jsonrpc":"2.0","id":21,"error":{"code":-32002,"message":"Resource not found: session fresh","data":{"sessionId":"fresh"}}}
        {"jsonrpc":"2.0","id":5,"result":{}}
        {"jsonrpc":"2.0","id":20,"error":{"code":-32002,"message":"Resource not found: session fresh","data":{"sessionId":"fresh"}}}
        {"jsonrpc":"2.0","id":21,"error":{"code":-32002,"message":"Resource not found: session fresh","data":{"sessionId":"fresh"}}}
        {"jsonrpc":"2.0","id":22,"error":{"code":-32002,"message":"Resource not found: session fresh","data":{"sessionId":"fresh"}}}
        {"jsonrpc":"2.0","id":23,"error":{"code":-32002,"message":"Resource not found: session fresh","data":{"sessionId":"fresh"}}}
        {"jsonrpc":"2.0","id":24,"method":"fs/read_text_file","params":{"sessionId":"fresh","path":"/w/a"}}
        {"jsonrpc":"2.0","id":25,"error":{"code":-32002,"message":"Resource not found: session old","data":{"sessionId":"old"}}}
    "#]].assert_eq(&transcript);
}

#[tokio::test]
async fn one_that_is_cancelled_is_never_judged_and_the_others_keep_their_order() {
    let mut harness = start_harness(RULES, ALL_CAPABILITIES).await;
    harness.send_open_request(NEW_SESSION).await;
    for id in 20..28 {
        harness.agent.send(&read_request(id, "fresh", &format!("/w/{id}"))).await;
    }
    let cancel =
        |id: u32| format!(r#"{{"jsonrpc":"2.0","method":"$/cancel_request","params":{{"requestId":{id}}}}}"#);
    harness.agent.send(&cancel(20)).await;
    let mut transcript = harness.agent.receive().await + "\n";
    // One request is cancelled as soon as the session is open.
    harness.agent.send(&format!("{}\n{}", session_opened("fresh"), cancel(22))).await;
    for _ in 0..7 {
        transcript += &(harness.editor.receive().await + "\n");
    }
    transcript += &(harness.agent.receive().await + "\n");
    transcript += &harness.engine.0.judged.lock().unwrap().join("\n");
    expect![[r#"
        {"jsonrpc":"2.0","id":20,"error":{"code":-32800,"message":"Request cancelled"}}
        {"jsonrpc":"2.0","id":5,"result":{"sessionId":"fresh"}}
        {"jsonrpc":"2.0","id":21,"method":"fs/read_text_file","params":{"sessionId":"fresh","path":"/w/21"}}
        {"jsonrpc":"2.0","id":23,"method":"fs/read_text_file","params":{"sessionId":"fresh","path":"/w/23"}}
        {"jsonrpc":"2.0","id":24,"method":"fs/read_text_file","params":{"sessionId":"fresh","path":"/w/24"}}
        {"jsonrpc":"2.0","id":25,"method":"fs/read_text_file","params":{"sessionId":"fresh","path":"/w/25"}}
        {"jsonrpc":"2.0","id":26,"method":"fs/read_text_file","params":{"sessionId":"fresh","path":"/w/26"}}
        {"jsonrpc":"2.0","id":27,"method":"fs/read_text_file","params":{"sessionId":"fresh","path":"/w/27"}}
        {"jsonrpc":"2.0","id":22,"error":{"code":-32800,"message":"Request cancelled"}}
        Read { path: "/w/21" }
        Read { path: "/w/23" }
        Read { path: "/w/24" }
        Read { path: "/w/25" }
        Read { path: "/w/26" }
        Read { path: "/w/27" }"#]]
    .assert_eq(&transcript);
}

#[tokio::test]
async fn so_many_wait_and_no_more() {
    let mut harness = start_harness(RULES, ALL_CAPABILITIES).await;
    harness.send_open_request(NEW_SESSION).await;
    for id in 0..16 {
        harness.agent.send(&read_request(id, "fresh", "/w/a")).await;
    }
    harness.agent.send(&read_request(90, "fresh", "/w/a")).await;
    let mut transcript = harness.agent.receive().await + "\n";
    // A cancelled request makes room.
    harness.agent.send(r#"{"jsonrpc":"2.0","method":"$/cancel_request","params":{"requestId":0}}"#).await;
    transcript += &(harness.agent.receive().await + "\n");
    harness.agent.send(&read_request(91, "fresh", "/w/b")).await;
    harness.expect_forwarded(&session_opened("fresh")).await;
    for id in 1..16 {
        assert_eq!(harness.editor.receive().await, read_request(id, "fresh", "/w/a"));
    }
    transcript += &(harness.editor.receive().await + "\n");
    expect![[r#"
        {"jsonrpc":"2.0","id":90,"error":{"code":-32600,"message":"rules are to be applied, and session fresh is not open yet: too many requests wait for that"}}
        {"jsonrpc":"2.0","id":0,"error":{"code":-32800,"message":"Request cancelled"}}
        {"jsonrpc":"2.0","id":91,"method":"fs/read_text_file","params":{"sessionId":"fresh","path":"/w/b"}}
    "#]]
    .assert_eq(&transcript);
}

#[test]
fn so_many_bytes_wait_and_no_more() {
    let (mut pending, session) = (PendingSessions::default(), SessionId::new("fresh"));
    let fact = RelayEvent::AgentRequest(Method::Write, Some(session.clone()), None);
    let mut defer = |size: usize| {
        let line = Bytes::from(vec![b' '; size << 20]);
        pending.defer(
            &session,
            &InterceptedMessage { from: ProxySide::Agent, fact: &fact, id: None, line: &line },
        )
    };
    let is_refused = |decision: &InterceptDecision| {
        matches!(decision, InterceptDecision::Now(Disposition::Answer(Err(_))))
    };
    let first = defer(3);
    assert!(!is_refused(&first));
    assert!(is_refused(&defer(2)));
    let second = defer(1);
    assert!(!is_refused(&second));
    drop(first);
    assert!(!is_refused(&defer(3)));
}

#[tokio::test(start_paused = true)]
async fn they_do_not_wait_for_ever_for_an_agent_that_waits_for_them() {
    let mut harness = start_harness(RULES, ALL_CAPABILITIES).await;
    harness.send_open_request(NEW_SESSION).await;
    harness.agent.send(&read_request(20, "fresh", "/w/a")).await;
    let start = tokio::time::Instant::now();
    let answer = harness.agent.receive().await;
    assert_eq!(start.elapsed().max(OPEN_TIMEOUT), start.elapsed());
    assert!(start.elapsed() < OPEN_TIMEOUT + Duration::from_secs(1), "{:?}", start.elapsed());
    expect![[r#"{"jsonrpc":"2.0","id":20,"error":{"code":-32600,"message":"rules are to be applied, and session fresh is not open yet: answer the request that opens it first"}}"#]].assert_eq(&answer);
    // The session can still be opened.
    harness.expect_forwarded(&session_opened("fresh")).await;
    harness.expect_forwarded(&read_request(21, "fresh", "/w/a")).await;
}

#[tokio::test(start_paused = true)]
async fn with_the_agent_they_are_gone() {
    let mut harness = start_harness(RULES, ALL_CAPABILITIES).await;
    harness.send_open_request(NEW_SESSION).await;
    harness.agent.send(&read_request(20, "fresh", "/w/a")).await;
    harness.send_marker().await;
    drop(harness.agent);
    expect![[r#"{"jsonrpc":"2.0","id":5,"error":{"code":-32603,"message":"gone"}}"#]]
        .assert_eq(&harness.editor.receive().await);
    assert_eq!(harness._running.await.unwrap(), crate::proxy::ProxyEndReason::AgentExited("gone".to_owned()));
    assert!(harness.engine.0.judged.lock().unwrap().is_empty());
}
