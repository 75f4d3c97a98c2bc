//! What the editor's user is asked: once for an edit, and not for what nobody waits for any more.

use expect_test::expect;
use rustix::process::{Pid, Signal, kill_process};
use serde_json::{Value, json};

use crate::peers::wire::{Wire, asks};
use crate::program::{Scene, script};

/// An agent that does what a file says when it is prompted, and reaches the server that it is given over its own connection.
const AGENT: &str = r#"#!/bin/sh
while read -r line; do
  case "$line" in
    *'"method":"initialize"'*) echo '{"jsonrpc":"2.0","id":0,"result":{"protocolVersion":1,"agentCapabilities":{"mcpCapabilities":{"acp":true}}}}' ;;
    *'"method":"session/new"'*) echo '{"jsonrpc":"2.0","id":1,"result":{"sessionId":"s"}}' ;;
    *'"method":"session/prompt"'*) . "$HOME/turn" ;;
  esac
done
"#;

const DONE: &str = r#"echo '{"jsonrpc":"2.0","id":2,"result":{"stopReason":"end_turn"}}'"#;

/// Hears a line, and keeps it.
const HEAR: &str = r#"read -r heard; printf '%s\n' "$heard" >> "$HOME/heard""#;

fn say(message: &Value) -> String {
    format!("printf '%s\\n' '{message}'")
}

fn request(id: u32, method: &str, params: &Value) -> String {
    say(&json!({"jsonrpc": "2.0", "id": id, "method": method, "params": params}))
}

/// A message to the server that the agent was given.
fn mcp(id: u32, method: &str, params: &Value) -> String {
    let message = json!({
        "serverId": "bowline-proxy-mcp-server-1", "requestId": format!("r{id}"), "method": method, "params": params,
    });
    request(id, "mcp/message", &message)
}

/// An edit by a tool of that server.
fn edit(scene: &Scene) -> String {
    let arguments = json!({"path": scene.path("a.txt"), "old_text": "two", "new_text": "2"});
    mcp(6, "tools/call", &json!({"name": "edit_text_file", "arguments": arguments}))
}

/// What claude-agent-acp asks before it calls such a tool; `source` says where the server is from.
fn asks_first(id: u32, source: &str) -> String {
    let tool = "mcp__bowline__edit_text_file";
    let call = json!({
        "toolCallId": "toolu_2", "title": tool, "kind": "other", "rawInput": {"path": "a.txt"},
        "_meta": {"claudeCode": {"toolName": tool, "mcpServer": {"name": "bowline", "source": source}}},
    });
    let options = json!([
        {"optionId": "y", "name": "Yes", "kind": "allow_once"},
        {"optionId": "n", "name": "No", "kind": "reject_once"},
    ]);
    request(
        id,
        "session/request_permission",
        &json!({"sessionId": "s", "toolCall": call, "options": options}),
    )
}

/// A session in which the agent is prompted, and does these lines of shell.
fn prompted(scene: &Scene, options: &[&str], turn: &[&str]) -> Wire {
    scene.put("a.txt", "one\ntwo\n");
    let agent = script(&scene.base(), "agent", AGENT);
    std::fs::create_dir_all(scene.home()).unwrap();
    std::fs::write(scene.home().join("turn"), turn.join("\n")).unwrap();
    let mut wire = Wire::start(scene.command(&[&["proxy"], options, &["--", &agent]].concat()));
    let session = wire.open(&scene.project().display().to_string());
    wire.prompt(&session, "go");
    wire
}

fn is_the_end(message: &Value) -> bool {
    message["id"] == 2 && message.get("method").is_none()
}

fn heard(scene: &Scene) -> String {
    std::fs::read_to_string(scene.home().join("heard")).unwrap()
}

/// Returns the titles of what the editor was asked about.
fn questions(scene: &Scene, wire: &Wire) -> String {
    let messages = wire.told.iter().map(|line| serde_json::from_str::<Value>(line).unwrap());
    let titles = messages.filter(asks).map(|asked| format!("{}\n", asked["params"]["toolCall"]["title"]));
    scene.clean(&titles.collect::<String>())
}

#[test]
fn an_edit_by_a_tool_that_was_added_is_one_question_and_a_look_alike_is_the_editors() {
    // Who asks: the tool itself, or the rules in its place.
    for (options, asks) in [(&[][..], "Write"), (&["--policy", "ask"], "write")] {
        let scene = Scene::new();
        let trace = scene.base().join("trace").display().to_string();
        let options = [&["--trace", &trace], options].concat();
        let turn = [
            // Before it has met the server, and for one of the project's settings.
            &asks_first(8, "dynamic"),
            HEAR,
            &mcp(5, "tools/list", &json!({})),
            "read -r tools",
            &asks_first(9, "project"),
            HEAR,
            &asks_first(10, "dynamic"),
            HEAR,
            &edit(&scene),
            "read -r edited",
            DONE,
        ];
        let mut wire = prompted(&scene, &options, &turn);
        wire.until(is_the_end);
        wire.end();
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
        .assert_eq(&(questions(&scene, &wire).replace(&format!("\"{asks} "), "\"ASKS ") + &heard(&scene)));
        assert_eq!(scene.get("a.txt"), "one\n2\n");
        // With rules the log says why nobody was asked.
        let audit = scene.run(&["audit"]);
        assert_eq!(audit.contains("the tool asks by itself"), options.contains(&"--policy"), "{audit}");
    }
}

#[test]
fn rules_that_deny_an_edit_deny_it_before_its_tool_can_ask() {
    let scene = Scene::new();
    let hello = mcp(5, "tools/list", &json!({}));
    let turn = [&hello, "read -r tools", &asks_first(10, "dynamic"), HEAR, DONE];
    let mut wire = prompted(&scene, &["--policy", "deny"], &turn);
    wire.until(is_the_end);
    wire.end();
    expect![[r#"
        {"jsonrpc":"2.0","id":10,"result":{"outcome":{"outcome":"selected","optionId":"n"},"_meta":{"bowline":{"reason":"it may not be done here","by":"proxy"}}}}
    "#]]
    .assert_eq(&(questions(&scene, &wire) + &heard(&scene)));
}

#[test]
fn an_agent_that_dies_while_its_tool_asks_leaves_no_question_and_no_edit() {
    let scene = Scene::new();
    let turn = [r#"echo $$ > "$HOME/pid""#, &edit(&scene), "read -r never"];
    let mut wire = prompted(&scene, &[], &turn);
    let question = wire.until(asks);
    let before = wire.told.len();
    let pid = std::fs::read_to_string(scene.home().join("pid")).unwrap().trim().parse().unwrap();
    kill_process(Pid::from_raw(pid).unwrap(), Signal::KILL).unwrap();
    let status = wire.hear_out();
    // What became of the tool's call is shown if there is time for it.
    let told = wire.told[before..].iter().filter(|line| !line.contains("session/update"));
    let told: String = told.map(|line| line.replace(question["id"].as_str().unwrap(), "$QUESTION")).collect();
    expect![[r#"
        {"jsonrpc":"2.0","method":"$/cancel_request","params":{"requestId":"$QUESTION"}}
        {"jsonrpc":"2.0","id":2,"error":{"code":-32603,"message":"the agent was ended by SIGKILL"}}
        exit status: 1
    "#]]
    .assert_eq(&format!("{told}{status}\n"));
    assert_eq!(scene.get("a.txt"), "one\ntwo\n");
}

fn write(scene: &Scene) -> String {
    let params = json!({"sessionId": "s", "path": scene.path("a.txt"), "content": "written"});
    request(10, "fs/write_text_file", &params)
}

fn cancels(message: &Value) -> bool {
    message["method"] == "$/cancel_request"
}

/// Has the question of a write taken back by what the editor says, answers it too late, and returns what the agent heard.
fn taken_back(scene: &Scene, mut wire: Wire, by: &Value) -> String {
    let question = wire.until(asks);
    wire.say(by);
    let cancel = wire.until(cancels);
    assert_eq!(cancel["params"]["requestId"], question["id"]);
    wire.answer(&question);
    wire.until(is_the_end);
    wire.end();
    assert!(!wire.told.iter().any(|line| line.contains("fs/write_text_file")), "{:#?}", wire.told);
    assert_eq!(scene.get("a.txt"), "one\ntwo\n");
    heard(scene)
}

#[test]
fn a_write_that_the_agent_cancels_while_rules_ask_is_not_done() {
    let scene = Scene::new();
    let cancel = json!({"jsonrpc": "2.0", "method": "$/cancel_request", "params": {"requestId": 10}});
    let turn = [&write(&scene), "read -r now", &say(&cancel), HEAR, DONE];
    let wire = prompted(&scene, &["--no-mcp", "--policy", "ask"], &turn);
    let heard = taken_back(&scene, wire, &json!({"jsonrpc": "2.0", "method": "_now"}));
    expect![[r#"
        {"jsonrpc":"2.0","id":10,"error":{"code":-32800,"message":"Request cancelled"}}
    "#]]
    .assert_eq(&heard);
}

#[test]
fn a_write_that_rules_ask_about_is_not_done_when_the_editor_cancels_the_turn() {
    let scene = Scene::new();
    let turn = [&write(&scene), HEAR, HEAR, DONE];
    let wire = prompted(&scene, &["--no-mcp", "--policy", "ask"], &turn);
    let cancel = json!({"jsonrpc": "2.0", "method": "session/cancel", "params": {"sessionId": "s"}});
    let heard = taken_back(&scene, wire, &cancel);
    expect![[r#"
        {"jsonrpc":"2.0","method":"session/cancel","params":{"sessionId":"s"}}
        {"jsonrpc":"2.0","id":10,"error":{"code":-32800,"message":"Request cancelled"}}
    "#]]
    .assert_eq(&heard);
}

#[test]
fn an_agent_that_dies_while_rules_ask_leaves_no_question() {
    let scene = Scene::new();
    let turn = [&write(&scene), "read -r now", "kill -9 $$"];
    let mut wire = prompted(&scene, &["--no-mcp", "--policy", "ask"], &turn);
    let question = wire.until(asks);
    let before = wire.told.len();
    wire.say(&json!({"jsonrpc": "2.0", "method": "_now"}));
    wire.hear_out();
    let told: String =
        wire.told[before..].iter().filter(|line| !line.contains("session/update")).cloned().collect();
    let told = told.replace(question["id"].as_str().unwrap(), "$QUESTION");
    expect![[r#"
        {"jsonrpc":"2.0","method":"$/cancel_request","params":{"requestId":"$QUESTION"}}
        {"jsonrpc":"2.0","id":2,"error":{"code":-32603,"message":"the agent was ended by SIGKILL"}}
    "#]]
    .assert_eq(&told);
    assert_eq!(scene.get("a.txt"), "one\ntwo\n");
}
