//! Tests of the tools of well-behaved servers.

use std::time::Duration;

use bowline_mcp::client::McpClientOptions;
use expect_test::expect;
use serde_json::json;
use test_support::wait::wait_until_async;

use super::support::{call, client_options, connect, describe_call, object, peer_spec, program_spec};

#[tokio::test]
async fn tools_of_all_servers_are_listed_under_names_of_their_own() {
    let servers =
        connect(vec![peer_spec("my files", &[]), peer_spec("my files", &[])], client_options()).await;
    let tools = servers.tools();
    let mut output: Vec<String> = tools
        .iter()
        .filter(|tool| ["echo", "no.schema"].contains(&tool.tool.as_str()))
        .map(|tool| {
            format!(
                "{} = {} of {:?}: {:?} {}",
                tool.name, tool.tool, tool.server, tool.description, tool.schema
            )
        })
        .collect();
    output.extend(servers.statuses().iter().map(|status| {
        format!("{}: {:?} {} tools, {} left out", status.name, status.state, status.tools, status.left_out)
    }));
    expect![[r#"
        mcp__my_files__echo = echo of "my files": "Does echo." {"type":"object","properties":{}}
        mcp__my_files__no_schema = no.schema of "my files": "no.schema (a tool of an MCP server)" {"type":"object","properties":{}}
        mcp__my_files-2__echo = echo of "my files": "Does echo." {"type":"object","properties":{}}
        mcp__my_files-2__no_schema = no.schema of "my files": "no.schema (a tool of an MCP server)" {"type":"object","properties":{}}
        my files: Ready 18 tools, 1 left out
        my files: Ready 18 tools, 1 left out"#]]
    .assert_eq(&output.join("\n"));
    servers.shutdown().await;
}

#[tokio::test]
async fn calls_reach_the_server_that_the_name_says() {
    let servers = connect(vec![peer_spec("a", &[]), peer_spec("b", &[])], client_options()).await;
    let mut output = Vec::new();
    output.push(describe_call(call(&servers, "mcp__a__echo", json!({ "text": "hi" })).await));
    output.push(describe_call(call(&servers, "mcp__b__no_schema", json!({})).await));
    output.push(describe_call(call(&servers, "mcp__b__refuse", json!({})).await));
    output.push(describe_call(call(&servers, "mcp__b__missing", json!({})).await));
    let pictures = call(&servers, "mcp__a__pictures", json!({})).await.unwrap();
    output.push(format!("{pictures:?}"));
    expect![[r#"
        {"text":"hi"}
        {}
        ! the MCP server "b" refuses the call: no \u{1b}[2Jsuch thing
        ! there is no MCP tool "mcp__b__missing": it may have gone with its server
        McpCallOutput { text: "[picture 1: image/png]\n[a part of unknown type \"something new\"]\n[link to file:///a.txt (a)]", images: [("image/png", "aGVsbG8=")], is_error: true, hidden_removed: 0 }"#]].assert_eq(&output.join("\n"));
    servers.shutdown().await;
    let stopped = call(&servers, "mcp__a__echo", json!({})).await;
    expect![[r#"! there is no MCP tool "mcp__a__echo": it may have gone with its server"#]]
        .assert_eq(&describe_call(stopped));
}

#[tokio::test]
async fn a_server_gets_its_variables_and_a_safe_part_of_the_environment() {
    let directory = tempfile::tempdir().unwrap();
    let inherited = [("PATH", "/usr/bin:/bin"), ("OPENAI_API_KEY", "sk-secret"), ("HOME", "/home/user")];
    let settings = McpClientOptions {
        directory: directory.path().to_owned(),
        inherited_env: inherited.map(|(name, value)| (name.to_owned(), value.to_owned())).into(),
        ..client_options()
    };
    let servers = connect(vec![peer_spec("a", &["--opt", "x y"])], settings).await;
    let output = describe_call(call(&servers, "mcp__a__where", json!({})).await);
    let path = directory.path().canonicalize().unwrap().display().to_string();
    expect![[r#"
        $DIR
        serve --opt x y
        GIT_CONFIG_COUNT=2
        GIT_CONFIG_KEY_0=safe.bareRepository
        GIT_CONFIG_KEY_1=core.fsmonitor
        GIT_CONFIG_VALUE_0=explicit
        GIT_CONFIG_VALUE_1=false
        GIT_PAGER=cat
        HOME=/home/user
        PAGER=cat
        PATH=/usr/bin:/bin
        TOKEN=abc"#]]
    .assert_eq(&output.replace(&path, "$DIR"));
    servers.shutdown().await;
}

#[tokio::test]
async fn progress_is_told_and_keeps_a_call_alive() {
    // Four pauses exceed the call timeout; one is so much shorter that a busy machine does not matter.
    let settings = McpClientOptions { call_timeout: Duration::from_secs(7), ..client_options() };
    let servers = connect(vec![peer_spec("a", &[])], settings).await;
    let mut titles = Vec::new();
    let arguments = object(json!({ "total": 4, "pause": 2000 }));
    let outcome = servers.call("mcp__a__progress", arguments, |title| titles.push(title)).await;
    titles.push(describe_call(outcome));
    expect![[r#"
        [1/4] step \u{202e}by step
        [2/4] step \u{202e}by step
        [3/4] step \u{202e}by step
        [4/4] step \u{202e}by step
        all done"#]]
    .assert_eq(&titles.join("\n"));
    servers.shutdown().await;
}

#[tokio::test]
async fn tools_that_change_are_listed_anew() {
    let servers = connect(vec![peer_spec("a", &[])], client_options()).await;
    let has_extra = || servers.tools().iter().any(|tool| tool.tool == "extra");
    assert!(!has_extra());
    call(&servers, "mcp__a__change", json!({})).await.unwrap();
    wait_until_async("the added tool", has_extra).await;
    servers.shutdown().await;
}

#[tokio::test]
async fn a_list_without_end_is_cut() {
    let servers = connect(vec![peer_spec("a", &["--many"])], client_options()).await;
    let status = &servers.statuses()[0];
    expect!["Ready 128 22"].assert_eq(&format!("{:?} {} {}", status.state, status.tools, status.left_out));
    servers.shutdown().await;
}

#[tokio::test]
async fn a_missing_program_fails_with_a_reason() {
    let missing = program_spec("missing", "/nowhere/server", Vec::new());
    let not_a_server = program_spec("cat", "cat", Vec::new());
    let mut all = McpClientOptions { start_timeout: Duration::from_secs(8), ..client_options() };
    all.inherited_env.insert("PATH".to_owned(), "/usr/bin:/bin".to_owned());
    let servers = connect(vec![missing, not_a_server, peer_spec("good", &[])], all).await;
    let output: Vec<String> =
        servers.statuses().iter().map(|status| format!("{}: {:?}", status.name, status.state)).collect();
    expect![[r#"
        missing: Failed("there is no program /nowhere/server: check its name and PATH, and put its arguments into args")
        cat: Failed("it was not ready within 8 seconds")
        good: Ready"#]].assert_eq(&output.join("\n"));
    servers.shutdown().await;
}
