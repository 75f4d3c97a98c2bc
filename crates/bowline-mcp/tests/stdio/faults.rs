//! Tests of servers that crash, hang and flood.

use std::time::{Duration, Instant};

use bowline_mcp::client::{McpClientOptions, McpServers, ServerState};
use expect_test::expect;
use serde_json::json;
use test_support::wait::wait_for_async;

use super::support::{call, client_options, connect, describe_call, object, peer_spec, wait_for_state};

#[tokio::test]
async fn a_server_that_ends_before_it_is_ready_is_tried_a_few_times() {
    let servers =
        connect(vec![peer_spec("bad", &["--exit-early"]), peer_spec("good", &[])], client_options()).await;
    let status = &servers.statuses()[0];
    // The server's last output and our note about its end may come in either order.
    let mut lines = status.stderr.clone();
    lines.sort();
    lines.dedup();
    expect![[r#"
        Failed("it ended with code 7 before it was ready")
        (it ended with code 7 before it was ready)
        cannot find my configuration"#]]
    .assert_eq(&format!("{:?}\n{}", status.state, lines.join("\n")));
    expect!["{}"].assert_eq(&describe_call(call(&servers, "mcp__good__echo", json!({})).await));
    servers.shutdown().await;
}

#[tokio::test]
async fn a_crash_ends_the_call_within_a_second_and_the_server_comes_back() {
    let servers = connect(vec![peer_spec("bad", &[]), peer_spec("good", &[])], client_options()).await;
    let hanging = servers.call("mcp__good__hang", object(json!({})), drop);
    tokio::pin!(hanging);
    let start = Instant::now();
    let crashed = tokio::select! {
        crashed = call(&servers, "mcp__bad__crash", json!({})) => crashed,
        _ = &mut hanging => panic!("another server's call ended"),
    };
    assert!(start.elapsed() < Duration::from_secs(1), "{:?}", start.elapsed());
    expect![[r#"! the MCP server "bad" ended during the call, what it did is not known: it ended with code 3; it is being started anew"#]].assert_eq(&describe_call(crashed));
    // The tools stay available, and a call waits for the server to restart.
    expect![[r#"{"back":true}"#]]
        .assert_eq(&describe_call(call(&servers, "mcp__bad__echo", json!({ "back": true })).await));
    servers.shutdown().await;
}

#[tokio::test]
async fn a_server_that_crashes_again_and_again_is_given_up() {
    let servers = connect(vec![peer_spec("bad", &[])], client_options()).await;
    for _ in 0..4 {
        call(&servers, "mcp__bad__crash", json!({})).await.unwrap_err();
    }
    let state = wait_for_state(&servers, "bad", |state| matches!(state, ServerState::Failed(_))).await;
    let after = describe_call(call(&servers, "mcp__bad__crash", json!({})).await);
    expect![[r#"
        Failed("it ended with code 3")
        ! there is no MCP tool "mcp__bad__crash": it may have gone with its server"#]]
    .assert_eq(&format!("{state:?}\n{after}"));
    // Until a restart is requested.
    assert_eq!(servers.restart(Some("other"), Duration::from_secs(20)).await, 0);
    assert_eq!(servers.restart(Some("bad"), Duration::from_secs(20)).await, 1);
    expect![[r#"{"back":true}"#]]
        .assert_eq(&describe_call(call(&servers, "mcp__bad__echo", json!({ "back": true })).await));
    servers.shutdown().await;
}

#[tokio::test]
async fn a_healthy_server_can_be_restarted() {
    let servers = connect(vec![peer_spec("a", &[]), peer_spec("b", &[])], client_options()).await;
    assert_eq!(servers.restart(None, Duration::from_secs(20)).await, 2);
    for name in ["mcp__a__echo", "mcp__b__echo"] {
        expect!["{}"].assert_eq(&describe_call(call(&servers, name, json!({})).await));
    }
    servers.shutdown().await;
}

#[tokio::test]
async fn a_server_that_hangs_at_start_delays_no_other() {
    let settings = McpClientOptions { start_timeout: Duration::from_secs(8), ..client_options() };
    let start = Instant::now();
    let servers = connect(vec![peer_spec("bad", &["--hang"]), peer_spec("good", &[])], settings).await;
    assert!(start.elapsed() < Duration::from_secs(10), "{:?}", start.elapsed());
    let output: Vec<String> =
        servers.statuses().iter().map(|status| format!("{}: {:?}", status.name, status.state)).collect();
    expect![[r#"
        bad: Failed("it was not ready within 8 seconds")
        good: Ready"#]]
    .assert_eq(&output.join("\n"));
    servers.shutdown().await;
}

#[tokio::test]
async fn a_call_that_hangs_is_cancelled_and_the_server_can_still_be_used() {
    let settings = McpClientOptions { call_timeout: Duration::from_millis(1200), ..client_options() };
    let servers = connect(vec![peer_spec("a", &[])], settings).await;
    let hung = describe_call(call(&servers, "mcp__a__hang", json!({})).await);
    expect![[r#"! the MCP server "a" did not answer within 1.2s, so the call was cancelled"#]]
        .assert_eq(&hung);
    wait_for_cancellation(&servers).await;
    servers.shutdown().await;
}

#[tokio::test]
async fn progress_without_end_does_not_keep_a_call_for_ever() {
    let limit = Duration::from_millis(1300);
    let servers =
        connect(vec![peer_spec("a", &[])], McpClientOptions { call_limit: limit, ..client_options() }).await;
    let arguments = json!({ "total": 1000, "pause": 10 });
    expect![[r#"! the MCP server "a" did not answer within 1.3s, so the call was cancelled"#]]
        .assert_eq(&describe_call(call(&servers, "mcp__a__progress", arguments).await));
    servers.shutdown().await;
}

/// Waits until the server has received the cancellation of a call.
async fn wait_for_cancellation(servers: &McpServers) {
    while !describe_call(call(servers, "mcp__a__seen", json!({})).await).contains("notifications/cancelled") {
    }
}

#[tokio::test]
async fn a_call_that_is_dropped_is_cancelled() {
    let servers = connect(vec![peer_spec("a", &[])], client_options()).await;
    {
        let hanging = servers.call("mcp__a__hang", object(json!({})), drop);
        let seen = call(&servers, "mcp__a__seen", json!({}));
        // The second call is answered after the first one was read.
        tokio::select! {
            biased;
            _ = hanging => panic!("it hangs"),
            seen = seen => drop(seen),
        }
    }
    wait_for_cancellation(&servers).await;
    servers.shutdown().await;
}

#[tokio::test]
async fn garbage_on_stdout_is_noted_and_survived() {
    let servers = connect(vec![peer_spec("a", &["--garbage"])], client_options()).await;
    let mut output = vec![describe_call(call(&servers, "mcp__a__noise", json!({})).await)];
    output.push(describe_call(call(&servers, "mcp__a__broken", json!({})).await));
    output.push(describe_call(call(&servers, "mcp__a__echo", json!({})).await));
    output.extend(servers.statuses()[0].stderr.clone());
    expect![[r#"
        heard
        ! the MCP server "a" refuses the call: the answer of the server cannot be read
        {}
        (stdout) Welcome to the server!
        (stdout) {"level":"info","msg":"ready"}
        (stdout) \u{1b}[31m42
        (stdout) [1,2
        (stdout) debug: calling the tool
        (stdout) {"not":"a message"}
        (stdout) "just a string"
        (stdout) null
        (stdout) \u{0}\u{1}"#]]
    .assert_eq(&output.join("\n"));
    servers.shutdown().await;
}

#[tokio::test]
async fn an_answer_without_end_fails_the_call_alone() {
    let servers = connect(vec![peer_spec("a", &[])], client_options()).await;
    let mut output = vec![describe_call(call(&servers, "mcp__a__long", json!({})).await)];
    output.push(describe_call(call(&servers, "mcp__a__echo", json!({})).await));
    expect![[r#"
        ! the MCP server "a" refuses the call: the server sent a line of more than 16777216 bytes
        {}"#]]
    .assert_eq(&output.join("\n"));
    servers.shutdown().await;
}

#[tokio::test]
async fn a_hundred_megabytes_on_stderr_are_read_and_forgotten() {
    let servers = connect(vec![peer_spec("a", &[])], client_options()).await;
    let outcome = describe_call(call(&servers, "mcp__a__stderr", json!({ "megabytes": 100 })).await);
    let find = || {
        let stderr = servers.statuses()[0].stderr.clone();
        stderr.last().is_some_and(|last| last == "last words").then_some(stderr)
    };
    let stderr = wait_for_async("the server's last words", find).await;
    let bytes: usize = stderr.iter().map(|line| line.len() + 1).sum();
    expect!["said 64 6311"].assert_eq(&format!("{outcome} {} {bytes}", stderr.len()));
    servers.shutdown().await;
}

#[tokio::test]
async fn a_server_that_asks_and_never_reads_is_cut_off() {
    let servers = connect(vec![peer_spec("a", &[])], client_options()).await;
    expect![[r#"! the MCP server "a" ended during the call, what it did is not known: it asks without reading what it is answered, so it was cut off; it is being started anew"#]].assert_eq(&describe_call(call(&servers, "mcp__a__pings", json!({})).await));
    servers.shutdown().await;
}

#[tokio::test]
async fn a_tool_that_is_nested_without_end_costs_itself_alone() {
    let servers = connect(vec![peer_spec("a", &["--deep"])], client_options()).await;
    let status = &servers.statuses()[0];
    let mut output =
        vec![format!("{:?} {} {} {:?}", status.state, status.tools, status.left_out, status.too_deep)];
    output.extend(servers.tools().into_iter().map(|tool| tool.name));
    output.push(describe_call(call(&servers, "mcp__a__echo", json!({ "a": 1 })).await));
    expect![[r#"
        Ready 1 1 ["deep"]
        mcp__a__echo
        {"a":1}"#]]
    .assert_eq(&output.join("\n"));
    servers.shutdown().await;
}

#[tokio::test]
async fn an_answer_that_is_nested_without_end_fails_its_call_alone() {
    let servers = connect(vec![peer_spec("a", &[])], client_options()).await;
    let mut output = vec![describe_call(call(&servers, "mcp__a__nested", json!({})).await)];
    output.push(describe_call(call(&servers, "mcp__a__echo", json!({})).await));
    expect![[r#"
        ! the MCP server "a" refuses the call: the answer of the server cannot be read
        {}"#]]
    .assert_eq(&output.join("\n"));
    servers.shutdown().await;
}

/// Every way to flood a client.
const FLOODS: [&str; 8] = ["logs", "list_changed", "progress", "large", "answers", "noise", "line", "stderr"];

/// Returns the resident memory of the test, in bytes.
fn resident_memory() -> u64 {
    let pages = std::fs::read_to_string("/proc/self/statm").unwrap();
    pages.split(' ').nth(1).unwrap().parse::<u64>().unwrap() * 4096
}

#[tokio::test]
async fn a_flood_delays_no_call_beyond_its_limit_and_fills_no_memory() {
    let limit = Duration::from_millis(700);
    let settings = McpClientOptions { call_limit: limit, ..client_options() };
    let before = resident_memory();
    for kind in FLOODS {
        let servers = connect(vec![peer_spec("a", &[]), peer_spec("b", &[])], settings.clone()).await;
        let flooded = describe_call(call(&servers, "mcp__a__flood", json!({ "kind": kind })).await);
        assert_eq!(
            flooded, r#"! the MCP server "a" did not answer within 700ms, so the call was cancelled"#,
            "{kind}"
        );
        // While it keeps flooding, another server can still be called; on a busy machine perhaps not within the limit.
        while describe_call(call(&servers, "mcp__b__echo", json!({})).await) != "{}" {}
        servers.shutdown().await;
        let grown = resident_memory().saturating_sub(before) >> 20;
        assert!(grown < 256, "{grown} MiB of {kind}");
    }
}

#[tokio::test]
async fn a_flood_from_the_start_delays_nothing_beyond_the_start_timeout() {
    for kind in FLOODS {
        let settings = McpClientOptions { start_timeout: Duration::from_secs(8), ..client_options() };
        let servers = connect(vec![peer_spec("a", &["--flood", kind]), peer_spec("b", &[])], settings).await;
        // A server whose flood drowns its own answers has failed by now, and nothing waits for it.
        let state = wait_for_state(&servers, "a", |state| {
            matches!(state, ServerState::Ready | ServerState::Failed(_))
        })
        .await;
        assert_eq!(describe_call(call(&servers, "mcp__b__echo", json!({})).await), "{}", "{kind}: {state:?}");
        servers.shutdown().await;
    }
}
