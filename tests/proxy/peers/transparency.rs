//! Tests that the proxy is transparent: a session with it and without is the same, byte for byte, except for its
//! additions.

use bowline_protocol::relay::PROXY_ID_PREFIX;
use expect_test::expect;
use serde_json::{Value, json};
use xtask::peers::SdkPeer;

use super::agents::sdk_agent_command;
use super::editor_client::{EDITOR_TEXT, EditorClient, is_agent_message};
use crate::fixture::{CliFixture, bowline};

/// The agent's input and output.
#[derive(Debug, PartialEq, Eq)]
struct SessionRecording {
    agent_input: Vec<String>,
    agent_output: Vec<String>,
}

/// Records a session with an agent, behind a proxy or directly.
fn record_session(agent: &[String], proxy: &[&str]) -> SessionRecording {
    let scene = CliFixture::new();
    let heard = scene.base().join("heard");
    std::fs::write(scene.file_path("a.txt"), EDITOR_TEXT).unwrap();
    let mut command = scene.command(proxy);
    if proxy.is_empty() {
        command = std::process::Command::new("sh");
        command.env("HOME", scene.home()).current_dir(scene.project());
    } else {
        command.arg("sh");
    }
    command.args(["-c", r#"tee "$0" | "$@""#]).arg(&heard).args(agent);
    let mut wire = EditorClient::start(command);
    let id = wire.open_session(&scene.project().display().to_string());
    let flow = json!({"do": "flow", "path": scene.file_path("a.txt"), "newPath": scene.file_path("b.txt")});
    wire.send_prompt(&id, &flow.to_string());
    wire.receive_until(|message| message["id"] == 2 && message.get("method").is_none());
    // Unknown messages pass too, with all their content.
    let strange =
        json!({"_meta": {"traceparent": "00-1-1-00"}, "text": "\u{1f980}\u{2028}", "more": [null, 1.50]});
    wire.send(&json!({"jsonrpc": "2.0", "method": "_strange/note", "params": strange}));
    wire.call(&json!("\u{fc}"), "_strange/request", &strange);
    let prompt = json!([{"type": "text", "text": json!({"do": "wait"}).to_string()}]);
    wire.send_request(&json!(-3), "session/prompt", &json!({"sessionId": id, "prompt": prompt}));
    wire.receive_until(is_agent_message);
    wire.send(&json!({"jsonrpc": "2.0", "method": "session/cancel", "params": {"sessionId": id}}));
    wire.receive_until(|message| message["id"] == -3);
    let status = wire.close();
    assert!(status.success(), "{status}: {:#?}", wire.output);
    // Before a write the proxy asks for the editor's text, and then has it write under an id of its own.
    wire.output.retain(|line| !is_own_read(line));
    let heard = std::fs::read_to_string(heard).unwrap();
    let clean = |lines: Vec<&str>, is_one: fn(&Value) -> bool| {
        let own: Vec<String> = lines.iter().filter_map(|line| changing_id(line, is_one)).collect();
        let clean = |line: &str| {
            let line = scene.normalize(line).replace(&id, "$SESSION");
            own.iter().enumerate().fold(line, |line, (at, id)| line.replace(id, &format!("$ID{at}")))
        };
        lines.into_iter().map(clean).collect()
    };
    let told: Vec<String> = wire.output.iter().map(|line| write_without_id(line)).collect();
    SessionRecording {
        agent_input: clean(heard.lines().collect(), |message| message.get("method").is_none()),
        agent_output: clean(told.iter().map(String::as_str).collect(), |message| {
            message.get("method").is_some()
        }),
    }
}

/// Returns whether a line is the proxy's own read.
fn is_own_read(line: &str) -> bool {
    let message: Value = serde_json::from_str(line).unwrap();
    message["id"].as_str().is_some_and(|id| id.starts_with(PROXY_ID_PREFIX))
        && message["method"] == "fs/read_text_file"
}

/// Returns a line unchanged, except for the id of a write.
fn write_without_id(line: &str) -> String {
    let message: Value = serde_json::from_str(line).unwrap();
    let line = line.trim_end_matches('\n');
    if message["method"] != "fs/write_text_file" {
        return line.to_owned();
    }
    line.replacen(&format!(r#""id":{}"#, message["id"]), r#""id":null"#, 1)
}

/// Returns the string id of a matching message, which differs from run to run.
fn changing_id(line: &str, has_one: fn(&Value) -> bool) -> Option<String> {
    let message: Value = serde_json::from_str(line).unwrap();
    message["id"].as_str().filter(|_| has_one(&message)).map(str::to_owned)
}

/// Replaces the variable parts of the injected entry by placeholders.
fn normalize_injected(line: &str) -> String {
    let mut message: Value = serde_json::from_str(line).unwrap();
    let args = message["params"]["mcpServers"][0]["args"].as_array_mut().unwrap();
    for arg in args.iter_mut().skip(1).filter(|arg| !arg.as_str().unwrap().starts_with("--")) {
        *arg = json!("$WORD");
    }
    for variable in message["params"]["mcpServers"][0]["env"].as_array_mut().unwrap() {
        variable["value"] = json!("$VALUE");
    }
    message.to_string().replace(&bowline().display().to_string(), "$BOWLINE")
}

fn check_peer(peer: SdkPeer) {
    let Some(agent) = sdk_agent_command(peer) else { return };
    let alone = record_session(&agent, &[]);
    assert!(alone.agent_output.len() > 15 && alone.agent_input.len() > 15, "{alone:#?}");
    assert_eq!(record_session(&agent, &["proxy", "--no-mcp", "--"]), alone);
    let with_server = record_session(&agent, &["proxy", "--"]);
    assert_eq!(with_server.agent_output, alone.agent_output);
    let lines = with_server.agent_input.iter().zip(&alone.agent_input);
    let added: Vec<String> =
        lines.filter(|(with, without)| with != without).map(|(with, _)| normalize_injected(with)).collect();
    assert_eq!(with_server.agent_input.len(), alone.agent_input.len());
    expect![[r#"{"jsonrpc":"2.0","id":1,"method":"session/new","params":{"cwd":"$PROJECT","mcpServers":[{"name":"bowline","command":"$BOWLINE","args":["mcp-bridge","$WORD"],"env":[]}]}}"#]].assert_eq(&added.join("\n"));
}

#[test]
fn the_rust_sdks_agent_sees_no_proxy() {
    check_peer(SdkPeer::Rust);
}

#[test]
fn the_python_sdks_agent_sees_no_proxy() {
    check_peer(SdkPeer::Python);
}

#[test]
fn the_typescript_sdks_agent_sees_no_proxy() {
    check_peer(SdkPeer::TypeScript);
}
