//! The proxy is not seen: a session with it and without is the same, byte for byte, but for what it adds.

use bowline_state::relay::PREFIX;
use expect_test::expect;
use serde_json::{Value, json};
use xtask::peers::Peer;

use super::guests::on_an_sdk;
use super::wire::{TEXT, Wire, says};
use crate::program::{Scene, bowline};

/// What the agent heard and what it said.
#[derive(Debug, PartialEq, Eq)]
struct Record {
    heard: Vec<String>,
    said: Vec<String>,
}

/// Has a session with an agent, behind the words of a proxy or none.
fn session(agent: &[String], proxy: &[&str]) -> Record {
    let scene = Scene::new();
    let heard = scene.base().join("heard");
    std::fs::write(scene.path("a.txt"), TEXT).unwrap();
    let mut command = scene.command(proxy);
    if proxy.is_empty() {
        command = std::process::Command::new("sh");
        command.env("HOME", scene.home()).current_dir(scene.project());
    } else {
        command.arg("sh");
    }
    command.args(["-c", r#"tee "$0" | "$@""#]).arg(&heard).args(agent);
    let mut wire = Wire::start(command);
    let id = wire.open(&scene.project().display().to_string());
    let flow = json!({"do": "flow", "path": scene.path("a.txt"), "newPath": scene.path("b.txt")});
    wire.prompt(&id, &flow.to_string());
    wire.until(|message| message["id"] == 2 && message.get("method").is_none());
    // What nobody knows passes too, with what it carries.
    let strange =
        json!({"_meta": {"traceparent": "00-1-1-00"}, "text": "\u{1f980}\u{2028}", "more": [null, 1.50]});
    wire.say(&json!({"jsonrpc": "2.0", "method": "_strange/note", "params": strange}));
    wire.ask(&json!("\u{fc}"), "_strange/request", &strange);
    let prompt = json!([{"type": "text", "text": json!({"do": "wait"}).to_string()}]);
    wire.request(&json!(-3), "session/prompt", &json!({"sessionId": id, "prompt": prompt}));
    wire.until(says);
    wire.say(&json!({"jsonrpc": "2.0", "method": "session/cancel", "params": {"sessionId": id}}));
    wire.until(|message| message["id"] == -3);
    let status = wire.end();
    assert!(status.success(), "{status}: {:#?}", wire.told);
    // Before a write the proxy asks what the editor has, and then has it write under an id of its own.
    wire.told.retain(|line| !is_look(line));
    let heard = std::fs::read_to_string(heard).unwrap();
    let clean = |lines: Vec<&str>, is_one: fn(&Value) -> bool| {
        let own: Vec<String> = lines.iter().filter_map(|line| own_id(line, is_one)).collect();
        let clean = |line: &str| {
            let line = scene.clean(line).replace(&id, "$SESSION");
            own.iter().enumerate().fold(line, |line, (at, id)| line.replace(id, &format!("$ID{at}")))
        };
        lines.into_iter().map(clean).collect()
    };
    let told: Vec<String> = wire.told.iter().map(|line| write_without_id(line)).collect();
    Record {
        heard: clean(heard.lines().collect(), |message| message.get("method").is_none()),
        said: clean(told.iter().map(String::as_str).collect(), |message| message.get("method").is_some()),
    }
}

/// Whether it is a question of the proxy's own.
fn is_look(line: &str) -> bool {
    let message: Value = serde_json::from_str(line).unwrap();
    message["id"].as_str().is_some_and(|id| id.starts_with(PREFIX))
        && message["method"] == "fs/read_text_file"
}

/// Returns a line as it is, but for the id of a write.
fn write_without_id(line: &str) -> String {
    let message: Value = serde_json::from_str(line).unwrap();
    let line = line.trim_end_matches('\n');
    if message["method"] != "fs/write_text_file" {
        return line.to_owned();
    }
    line.replacen(&format!(r#""id":{}"#, message["id"]), r#""id":null"#, 1)
}

/// Returns the id of an agent's request that is another each time, of a message that has one.
fn own_id(line: &str, has_one: fn(&Value) -> bool) -> Option<String> {
    let message: Value = serde_json::from_str(line).unwrap();
    message["id"].as_str().filter(|_| has_one(&message)).map(str::to_owned)
}

/// Puts `$SOCKET` and the like in place of what is another each time in what is added.
fn plain(line: &str) -> String {
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

fn is_not_seen(peer: Peer) {
    let Some(agent) = on_an_sdk(peer) else { return };
    let alone = session(&agent, &[]);
    assert!(alone.said.len() > 15 && alone.heard.len() > 15, "{alone:#?}");
    assert_eq!(session(&agent, &["proxy", "--no-mcp", "--"]), alone);
    let with_server = session(&agent, &["proxy", "--"]);
    assert_eq!(with_server.said, alone.said);
    let lines = with_server.heard.iter().zip(&alone.heard);
    let added: Vec<String> =
        lines.filter(|(with, without)| with != without).map(|(with, _)| plain(with)).collect();
    assert_eq!(with_server.heard.len(), alone.heard.len());
    expect![[r#"{"jsonrpc":"2.0","id":1,"method":"session/new","params":{"cwd":"$PROJECT","mcpServers":[{"name":"bowline","command":"$BOWLINE","args":["mcp-bridge","$WORD"],"env":[]}]}}"#]].assert_eq(&added.join("\n"));
}

#[test]
fn the_rust_sdks_agent_sees_no_proxy() {
    is_not_seen(Peer::Rust);
}

#[test]
fn the_python_sdks_agent_sees_no_proxy() {
    is_not_seen(Peer::Python);
}

#[test]
fn the_typescript_sdks_agent_sees_no_proxy() {
    is_not_seen(Peer::TypeScript);
}
