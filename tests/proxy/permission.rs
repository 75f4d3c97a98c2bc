//! Tests of the questions to the editor's user: one per edit, and none once the agent no longer waits.

use expect_test::expect;
use rustix::process::{Pid, Signal, kill_process};
use serde_json::{Value, json};

use crate::fixture::{CliFixture, write_script};
use crate::peers::editor_client::{EditorClient, is_permission_request};

/// An agent that executes the shell script `$HOME/turn` when prompted, and reaches the injected server over its own
/// connection.
const AGENT: &str = r#"#!/bin/sh
while read -r line; do
  case "$line" in
    *'"method":"initialize"'*) echo '{"jsonrpc":"2.0","id":0,"result":{"protocolVersion":1,"agentCapabilities":{"mcpCapabilities":{"acp":true}}}}' ;;
    *'"method":"session/new"'*) echo '{"jsonrpc":"2.0","id":1,"result":{"sessionId":"s"}}' ;;
    *'"method":"session/prompt"'*) . "$HOME/turn" ;;
  esac
done
"#;

const PROMPT_RESPONSE_LINE: &str = r#"echo '{"jsonrpc":"2.0","id":2,"result":{"stopReason":"end_turn"}}'"#;

/// Reads a line, and records it.
const RECORD_LINE: &str = r#"read -r heard; printf '%s\n' "$heard" >> "$HOME/heard""#;

fn echo_line(message: &Value) -> String {
    format!("printf '%s\\n' '{message}'")
}

fn request_line(id: u32, method: &str, params: &Value) -> String {
    echo_line(&json!({"jsonrpc": "2.0", "id": id, "method": method, "params": params}))
}

/// A message to the injected server.
fn mcp_message_line(id: u32, method: &str, params: &Value) -> String {
    let message = json!({
        "serverId": "bowline-proxy-mcp-server-1", "requestId": format!("r{id}"), "method": method, "params": params,
    });
    request_line(id, "mcp/message", &message)
}

/// An edit by a tool of that server.
fn edit_call_line(scene: &CliFixture) -> String {
    let arguments = json!({"path": scene.file_path("a.txt"), "old_text": "two", "new_text": "2"});
    mcp_message_line(6, "tools/call", &json!({"name": "edit_text_file", "arguments": arguments}))
}

/// The permission request that claude-agent-acp sends before such a call; `source` is the origin of the server.
fn claude_permission_line(id: u32, source: &str) -> String {
    let tool = "mcp__bowline__edit_text_file";
    let call = json!({
        "toolCallId": "toolu_2", "title": tool, "kind": "other", "rawInput": {"path": "a.txt"},
        "_meta": {"claudeCode": {"toolName": tool, "mcpServer": {"name": "bowline", "source": source}}},
    });
    let options = json!([
        {"optionId": "y", "name": "Yes", "kind": "allow_once"},
        {"optionId": "n", "name": "No", "kind": "reject_once"},
    ]);
    request_line(
        id,
        "session/request_permission",
        &json!({"sessionId": "s", "toolCall": call, "options": options}),
    )
}

/// Starts a session whose agent is prompted and executes these lines of shell.
fn start_prompted_session(scene: &CliFixture, options: &[&str], turn: &[&str]) -> EditorClient {
    scene.write_file("a.txt", "one\ntwo\n");
    let agent = write_script(&scene.base(), "agent", AGENT);
    std::fs::create_dir_all(scene.home()).unwrap();
    std::fs::write(scene.home().join("turn"), turn.join("\n")).unwrap();
    let mut wire = EditorClient::start(scene.command(&[&["proxy"], options, &["--", &agent]].concat()));
    let session = wire.open_session(&scene.project().display().to_string());
    wire.send_prompt(&session, "go");
    wire
}

fn is_prompt_response(message: &Value) -> bool {
    message["id"] == 2 && message.get("method").is_none()
}

fn agent_input(scene: &CliFixture) -> String {
    std::fs::read_to_string(scene.home().join("heard")).unwrap()
}

/// Returns the titles of the permission requests that the editor received.
fn permission_titles(scene: &CliFixture, wire: &EditorClient) -> String {
    let messages = wire.output.iter().map(|line| serde_json::from_str::<Value>(line).unwrap());
    let titles = messages
        .filter(is_permission_request)
        .map(|asked| format!("{}\n", asked["params"]["toolCall"]["title"]));
    scene.normalize(&titles.collect::<String>())
}

#[test]
fn an_edit_by_a_tool_that_was_added_is_one_question_and_a_look_alike_is_the_editors() {
    // The question comes from the tool itself, or from the rules in its place.
    for (options, asks) in [(&[][..], "Write"), (&["--policy", "ask"], "write")] {
        let scene = CliFixture::new();
        let trace = scene.base().join("trace").display().to_string();
        let options = [&["--trace", &trace], options].concat();
        let turn = [
            // One before the agent has connected to the server, and one for a server of the project's settings.
            &claude_permission_line(8, "dynamic"),
            RECORD_LINE,
            &mcp_message_line(5, "tools/list", &json!({})),
            "read -r tools",
            &claude_permission_line(9, "project"),
            RECORD_LINE,
            &claude_permission_line(10, "dynamic"),
            RECORD_LINE,
            &edit_call_line(&scene),
            "read -r edited",
            PROMPT_RESPONSE_LINE,
        ];
        let mut wire = start_prompted_session(&scene, &options, &turn);
        wire.receive_until(is_prompt_response);
        wire.close();
        let shown = scene.run(&["trace", "show", &trace, "--method", "session/request_permission"]);
        let by_proxy: Vec<&str> =
            shown.lines().filter(|line| line.contains("answered by the proxy")).collect();
        assert!(matches!(by_proxy.as_slice(), [line] if line.contains("Yes")), "{shown}");
        expect![[r#"
            "mcp__bowline__edit_text_file"
            "mcp__bowline__edit_text_file"
            "ASKS $PROJECT/a.txt"
            {"jsonrpc":"2.0","id":8,"result":{"outcome":{"outcome":"selected","optionId":"y"}}}
            {"jsonrpc":"2.0","id":9,"result":{"outcome":{"outcome":"selected","optionId":"y"}}}
            {"jsonrpc":"2.0","id":10,"result":{"outcome":{"outcome":"selected","optionId":"y"},"_meta":{"bowline":{"reason":"edit_text_file, a tool of the proxy, asks by itself","by":"proxy"}}}}
        "#]]
        .assert_eq(&(permission_titles(&scene, &wire).replace(&format!("\"{asks} "), "\"ASKS ") + &agent_input(&scene)));
        assert_eq!(scene.read_file("a.txt"), "one\n2\n");
        // With rules, the audit log says why the user was not asked.
        let audit = scene.run(&["audit"]);
        assert_eq!(audit.contains("the tool asks by itself"), options.contains(&"--policy"), "{audit}");
    }
}

#[test]
fn rules_that_deny_an_edit_deny_it_before_its_tool_can_ask() {
    let scene = CliFixture::new();
    let hello = mcp_message_line(5, "tools/list", &json!({}));
    let turn =
        [&hello, "read -r tools", &claude_permission_line(10, "dynamic"), RECORD_LINE, PROMPT_RESPONSE_LINE];
    let mut wire = start_prompted_session(&scene, &["--policy", "deny"], &turn);
    wire.receive_until(is_prompt_response);
    wire.close();
    expect![[r#"
        {"jsonrpc":"2.0","id":10,"result":{"outcome":{"outcome":"selected","optionId":"n"},"_meta":{"bowline":{"reason":"it may not be done here","by":"proxy"}}}}
    "#]]
    .assert_eq(&(permission_titles(&scene, &wire) + &agent_input(&scene)));
}

#[test]
fn an_agent_that_dies_while_its_tool_asks_leaves_no_question_and_no_edit() {
    let scene = CliFixture::new();
    let turn = [r#"echo $$ > "$HOME/pid""#, &edit_call_line(&scene), "read -r never"];
    let mut wire = start_prompted_session(&scene, &[], &turn);
    let question = wire.receive_until(is_permission_request);
    let before = wire.output.len();
    let pid = std::fs::read_to_string(scene.home().join("pid")).unwrap().trim().parse().unwrap();
    kill_process(Pid::from_raw(pid).unwrap(), Signal::KILL).unwrap();
    let status = wire.wait_for_exit();
    // The final status of the tool's call is shown only if there is time for it.
    let told = wire.output[before..].iter().filter(|line| !line.contains("session/update"));
    let told: String = told.map(|line| line.replace(question["id"].as_str().unwrap(), "$QUESTION")).collect();
    expect![[r#"
        {"jsonrpc":"2.0","method":"$/cancel_request","params":{"requestId":"$QUESTION"}}
        {"jsonrpc":"2.0","id":2,"error":{"code":-32603,"message":"the agent was ended by SIGKILL"}}
        exit status: 1
    "#]]
    .assert_eq(&format!("{told}{status}\n"));
    assert_eq!(scene.read_file("a.txt"), "one\ntwo\n");
}

fn write_request_line(scene: &CliFixture) -> String {
    let params = json!({"sessionId": "s", "path": scene.file_path("a.txt"), "content": "written"});
    request_line(10, "fs/write_text_file", &params)
}

fn is_cancel_request(message: &Value) -> bool {
    message["method"] == "$/cancel_request"
}

/// Withdraws the question of a write by a message of the editor, answers it too late, and returns the agent's input.
fn withdraw_question(scene: &CliFixture, mut wire: EditorClient, by: &Value) -> String {
    let question = wire.receive_until(is_permission_request);
    wire.send(by);
    let cancel = wire.receive_until(is_cancel_request);
    assert_eq!(cancel["params"]["requestId"], question["id"]);
    wire.answer(&question);
    wire.receive_until(is_prompt_response);
    wire.close();
    assert!(!wire.output.iter().any(|line| line.contains("fs/write_text_file")), "{:#?}", wire.output);
    assert_eq!(scene.read_file("a.txt"), "one\ntwo\n");
    agent_input(scene)
}

#[test]
fn a_write_that_the_agent_cancels_while_rules_ask_is_not_done() {
    let scene = CliFixture::new();
    let cancel = json!({"jsonrpc": "2.0", "method": "$/cancel_request", "params": {"requestId": 10}});
    let turn =
        [&write_request_line(&scene), "read -r now", &echo_line(&cancel), RECORD_LINE, PROMPT_RESPONSE_LINE];
    let wire = start_prompted_session(&scene, &["--no-mcp", "--policy", "ask"], &turn);
    let heard = withdraw_question(&scene, wire, &json!({"jsonrpc": "2.0", "method": "_now"}));
    expect![[r#"
        {"jsonrpc":"2.0","id":10,"error":{"code":-32800,"message":"Request cancelled"}}
    "#]]
    .assert_eq(&heard);
}

#[test]
fn a_write_that_rules_ask_about_is_not_done_when_the_editor_cancels_the_turn() {
    let scene = CliFixture::new();
    let turn = [&write_request_line(&scene), RECORD_LINE, RECORD_LINE, PROMPT_RESPONSE_LINE];
    let wire = start_prompted_session(&scene, &["--no-mcp", "--policy", "ask"], &turn);
    let cancel = json!({"jsonrpc": "2.0", "method": "session/cancel", "params": {"sessionId": "s"}});
    let heard = withdraw_question(&scene, wire, &cancel);
    expect![[r#"
        {"jsonrpc":"2.0","method":"session/cancel","params":{"sessionId":"s"}}
        {"jsonrpc":"2.0","id":10,"error":{"code":-32800,"message":"Request cancelled"}}
    "#]]
    .assert_eq(&heard);
}

#[test]
fn an_agent_that_dies_while_rules_ask_leaves_no_question() {
    let scene = CliFixture::new();
    let turn = [&write_request_line(&scene), "read -r now", "kill -9 $$"];
    let mut wire = start_prompted_session(&scene, &["--no-mcp", "--policy", "ask"], &turn);
    let question = wire.receive_until(is_permission_request);
    let before = wire.output.len();
    wire.send(&json!({"jsonrpc": "2.0", "method": "_now"}));
    wire.wait_for_exit();
    let told: String =
        wire.output[before..].iter().filter(|line| !line.contains("session/update")).cloned().collect();
    let told = told.replace(question["id"].as_str().unwrap(), "$QUESTION");
    expect![[r#"
        {"jsonrpc":"2.0","method":"$/cancel_request","params":{"requestId":"$QUESTION"}}
        {"jsonrpc":"2.0","id":2,"error":{"code":-32603,"message":"the agent was ended by SIGKILL"}}
    "#]]
    .assert_eq(&told);
    assert_eq!(scene.read_file("a.txt"), "one\ntwo\n");
}
