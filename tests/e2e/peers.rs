//! Our client with agents on the official SDKs, and our agent with clients on them.
//!
//! Every pair runs the same turns and must give the same text.

use std::collections::BTreeMap;
use std::process::Command;

use expect_test::{Expect, expect};
use serde_json::{Value, json};
use test_support::own_server::OwnServer;
use test_support::peer_server::PeerServer;
use xtask::peers::{PythonWeb, SdkPeer, is_available};

use crate::programs::{build_program, run, transcript, workspace_root};

/// The program of one end.
struct PeerCommand {
    name: &'static str,
    command: Vec<String>,
}

fn bowline_peer(end: &str) -> PeerCommand {
    let command = match end {
        "agent" => env!("CARGO_BIN_EXE_bowline-peer-agent"),
        _ => env!("CARGO_BIN_EXE_bowline-peer-client"),
    };
    PeerCommand { name: "bowline-peer", command: vec![command.to_owned()] }
}

fn check_with_agent(peer: SdkPeer, name: &'static str) {
    let command = peer.agent_command(&workspace_root());
    if is_available(peer.name(), &command) {
        check(&PeerCommand { name, command }, &bowline_peer("client"));
    }
}

/// A peer that serves agents to remote clients, and connects to servers.
struct WebPeer {
    name: &'static str,
    agent: Vec<String>,
    client: Vec<String>,
}

impl WebPeer {
    fn sdk(peer: SdkPeer) -> Self {
        let root = workspace_root();
        Self { name: peer.name(), agent: peer.agent_command(&root), client: peer.client_command(&root) }
    }

    /// Returns the pre-release of the Python SDK.
    fn python() -> Self {
        let root = workspace_root();
        let (agent, client) = (PythonWeb::agent_command(&root), PythonWeb::client_command(&root));
        Self { name: PythonWeb::NAME, agent, client }
    }
}

/// Python's programs take long for all turns: the usual run only loads a session with them.
fn check_in_full(check: impl FnOnce()) {
    if test_support::is_full_run() {
        check();
    } else {
        println!("SKIPPED: `cargo xtask test --full` runs this");
    }
}

/// Checks our client with an agent of this name on a server, which `bowline connect` reaches.
fn check_with_server(peer: &WebPeer, name: &'static str, scheme: &str) {
    if is_available(peer.name, &peer.agent) {
        let server = PeerServer::start(&peer.agent).unwrap();
        let bowline = build_program("bowline", &["build", "--quiet", "--package", "bowline-cli"]);
        let url = format!("{scheme}://{}", server.address());
        let command = vec![bowline.display().to_string(), "connect".to_owned(), url];
        check(&PeerCommand { name, command }, &bowline_peer("client"));
    }
}

/// Checks an agent behind `bowline serve` with a client that is given the server's URL, or with our client, which
/// `bowline connect` connects.
fn check_with_own_server(client: Option<WebPeer>, scheme: &str) {
    let is_own = client.is_none();
    let command = match client {
        Some(peer) if !is_available(peer.name, &peer.client) => return,
        Some(peer) => peer.client,
        None => bowline_peer("client").command,
    };
    let home = tempfile::tempdir().unwrap();
    let bowline = build_program("bowline", &["build", "--quiet", "--package", "bowline-cli"]);
    let agent = bowline_peer("agent");
    let root = std::env::temp_dir();
    let server = OwnServer::start(&bowline, home.path(), &root, "127.0.0.1:0", &agent.command).unwrap();
    let url = format!("{scheme}://{}/acp", server.address());
    let mut words = vec!["env".to_owned(), format!("BOWLINE_TOKEN={}", server.token())];
    words.extend(command);
    let agent_words =
        if is_own { vec![bowline.display().to_string(), "connect".to_owned(), url] } else { vec![url] };
    check(&PeerCommand { name: agent.name, command: agent_words }, &PeerCommand { name: "", command: words });
}

fn check_with_client(peer: SdkPeer) {
    let command = peer.client_command(&workspace_root());
    if is_available(peer.name(), &command) {
        check(&bowline_peer("agent"), &PeerCommand { name: "", command });
    }
}

/// Runs the turns of the plan between the two, once approving and once rejecting.
fn check(agent: &PeerCommand, client: &PeerCommand) {
    let (allowed, written) = take_turns(agent, client, "allow");
    expected_when_allowed().assert_eq(&allowed);
    assert_eq!(written.as_deref(), Some(format!("one\ntwo 🐢\nwritten by {}\n", agent.name).as_str()));
    let (rejected, written) = take_turns(agent, client, "reject");
    expected_when_rejected().assert_eq(&rejected);
    assert_eq!(written, None);
}

fn take_turns(agent: &PeerCommand, client: &PeerCommand, approve: &str) -> (String, Option<String>) {
    let project = tempfile::tempdir().unwrap();
    let (path, new_path) = (project.path().join("a.txt"), project.path().join("b.txt"));
    std::fs::write(&path, "one\ntwo 🐢\n").unwrap();
    let plan = json!([
        {"prompt": {"do": "flow", "path": path, "newPath": new_path}},
        {"prompt": {"do": "read", "path": "/bench/200", "count": 200, "inflight": 8}},
        {"prompt": {"do": "read", "path": "/bench/3000000", "count": 2, "inflight": 2}},
        {"prompt": {"do": "stream", "count": 2000, "size": 20}},
        {"prompt": {"do": "wait"}, "cancelOnFirstChunk": true},
        {"prompt": {"not": "a task \u{2028} \"quoted\""}},
    ]);
    let mut command = Command::new(&client.command[0]);
    command.args(&client.command[1..]).args(["--approve", approve, "--plan", &plan.to_string(), "--"]);
    let output = run(command.args(&agent.command).current_dir(project.path()));
    assert!(output.status.success(), "{command:?}\n{}", transcript(&output));
    let lines = String::from_utf8(output.stdout).unwrap();
    let seen = lines.lines().map(|line| normalize_line(line, agent.name)).collect();
    (seen, std::fs::read_to_string(new_path).ok())
}

/// Removes what differs between runs and peers, and writes one fact per line.
fn normalize_line(line: &str, agent: &str) -> String {
    let step: Value = serde_json::from_str(line).unwrap_or_else(|error| panic!("{line}: {error}"));
    if let Some(name) = step.get("agent") {
        assert_eq!(name, agent);
        return format!("version {}\n", step["protocolVersion"]);
    }
    let mut text = format!("{} after {} updates\n", step["stop"].as_str().unwrap(), step["updates"]);
    // Sorted, because JSON does not order the members of an object.
    let kinds: BTreeMap<String, u64> = serde_json::from_value(step["kinds"].clone()).unwrap();
    for (kind, count) in kinds {
        text += &format!("  {kind}: {count}\n");
    }
    let mut chunks: Vec<&str> = step["chunks"].as_array().unwrap().iter().filter_map(Value::as_str).collect();
    chunks.dedup();
    for chunk in chunks {
        match serde_json::from_str::<BTreeMap<String, Value>>(chunk) {
            Ok(json) => text += &format!("  > {}\n", json!(json)),
            Err(_) => text += &format!("  > {chunk}\n"),
        }
    }
    text
}

fn expected_when_allowed() -> Expect {
    expect![[r#"
        version 1
        end_turn after 11 updates
          agent_message_chunk: 7
          plan: 1
          tool_call: 1
          tool_call_update: 2
          > read:"one\ntwo 🐢\n"
          > window:"two 🐢\n"
          > permission:allow
          > wrote
          > missing:-32002
          > terminal:0:"hello\n"
          > killed
        end_turn after 1 updates
          agent_message_chunk: 1
          > {"bytes":40000,"reads":200}
        end_turn after 1 updates
          agent_message_chunk: 1
          > {"bytes":6000000,"reads":2}
        end_turn after 2000 updates
          agent_message_chunk: 2000
          > xxxxxxxxxxxxxxxxxxxx
        cancelled after 1 updates
          agent_message_chunk: 1
          > waiting
        end_turn after 1 updates
          agent_message_chunk: 1
          > {"not":"a task   \"quoted\""}
    "#]]
}

fn expected_when_rejected() -> Expect {
    expect![[r#"
        version 1
        end_turn after 9 updates
          agent_message_chunk: 6
          plan: 1
          tool_call: 1
          tool_call_update: 1
          > read:"one\ntwo 🐢\n"
          > window:"two 🐢\n"
          > permission:reject
          > missing:-32002
          > terminal:0:"hello\n"
          > killed
        end_turn after 1 updates
          agent_message_chunk: 1
          > {"bytes":40000,"reads":200}
        end_turn after 1 updates
          agent_message_chunk: 1
          > {"bytes":6000000,"reads":2}
        end_turn after 2000 updates
          agent_message_chunk: 2000
          > xxxxxxxxxxxxxxxxxxxx
        cancelled after 1 updates
          agent_message_chunk: 1
          > waiting
        end_turn after 1 updates
          agent_message_chunk: 1
          > {"not":"a task   \"quoted\""}
    "#]]
}

#[test]
fn our_client_with_our_agent() {
    check(&bowline_peer("agent"), &bowline_peer("client"));
}

#[test]
fn our_client_with_an_agent_on_the_official_rust_sdk() {
    check_with_agent(SdkPeer::Rust, "peer-rust");
}

#[test]
fn our_client_with_an_agent_on_the_python_sdk() {
    check_with_agent(SdkPeer::Python, "peer-python");
}

#[test]
fn our_client_with_an_agent_on_the_typescript_sdk() {
    check_with_agent(SdkPeer::TypeScript, "peer-typescript");
}

#[test]
fn an_agent_on_a_server_of_the_rust_sdk_is_reached_over_http() {
    check_with_server(&WebPeer::sdk(SdkPeer::Rust), "peer-rust", "http");
}

#[test]
fn an_agent_on_a_server_of_the_rust_sdk_is_reached_over_a_websocket() {
    check_with_server(&WebPeer::sdk(SdkPeer::Rust), "peer-rust", "ws");
}

#[test]
fn an_agent_on_a_server_of_the_typescript_sdk_is_reached_over_http() {
    check_with_server(&WebPeer::sdk(SdkPeer::TypeScript), "peer-typescript", "http");
}

#[test]
fn an_agent_on_a_server_of_the_typescript_sdk_is_reached_over_a_websocket() {
    check_with_server(&WebPeer::sdk(SdkPeer::TypeScript), "peer-typescript", "ws");
}

#[test]
fn an_agent_on_a_server_of_the_python_sdk_is_reached_over_http() {
    check_in_full(|| check_with_server(&WebPeer::python(), "peer-python", "http"));
}

#[test]
fn an_agent_on_a_server_of_the_python_sdk_is_reached_over_a_websocket() {
    check_in_full(|| check_with_server(&WebPeer::python(), "peer-python", "ws"));
}

#[test]
fn our_agent_with_a_client_on_the_official_rust_sdk() {
    check_with_client(SdkPeer::Rust);
}

#[test]
fn our_agent_with_a_client_on_the_python_sdk() {
    check_with_client(SdkPeer::Python);
}

#[test]
fn our_agent_with_a_client_on_the_typescript_sdk() {
    check_with_client(SdkPeer::TypeScript);
}

#[test]
fn our_server_with_our_client_over_http() {
    check_with_own_server(None, "http");
}

#[test]
fn our_server_with_our_client_over_a_websocket() {
    check_with_own_server(None, "ws");
}

#[test]
fn our_server_with_a_client_on_the_rust_sdk_over_http() {
    check_with_own_server(Some(WebPeer::sdk(SdkPeer::Rust)), "http");
}

#[test]
fn our_server_with_a_client_on_the_rust_sdk_over_a_websocket() {
    check_with_own_server(Some(WebPeer::sdk(SdkPeer::Rust)), "ws");
}

#[test]
fn our_server_with_a_client_on_the_typescript_sdk_over_http() {
    check_with_own_server(Some(WebPeer::sdk(SdkPeer::TypeScript)), "http");
}

#[test]
fn our_server_with_a_client_on_the_typescript_sdk_over_a_websocket() {
    check_with_own_server(Some(WebPeer::sdk(SdkPeer::TypeScript)), "ws");
}

#[test]
fn our_server_with_a_client_on_the_python_sdk_over_http() {
    check_in_full(|| check_with_own_server(Some(WebPeer::python()), "http"));
}

#[test]
fn our_server_with_a_client_on_the_python_sdk_over_a_websocket() {
    check_in_full(|| check_with_own_server(Some(WebPeer::python()), "ws"));
}

/// Python's client opens the stream of a session only once the session is loaded: until then it must get everything on
/// the connection's stream.
#[test]
fn a_client_on_the_python_sdk_loads_a_session_over_http() {
    let peer = WebPeer::python();
    if !is_available(peer.name, &peer.client) {
        return;
    }
    let home = tempfile::tempdir().unwrap();
    let bowline = build_program("bowline", &["build", "--quiet", "--package", "bowline-cli"]);
    let root = std::env::temp_dir();
    let agent = bowline_peer("agent").command;
    let server = OwnServer::start(&bowline, home.path(), &root, "127.0.0.1:0", &agent).unwrap();
    let plan = json!([{"prompt": {"say": "one"}}, {"load": 2}, {"prompt": {"say": "two"}}, {"load": 4}]);
    let mut client = Command::new(&peer.client[0]);
    client.args(&peer.client[1..]).args(["--approve", "allow", "--plan", &plan.to_string(), "--"]);
    client.arg(format!("http://{}/acp", server.address())).current_dir(&root);
    let output = run(client.env("BOWLINE_TOKEN", server.token()));
    assert!(output.status.success(), "{}", transcript(&output));
    let lines = String::from_utf8(output.stdout).unwrap();
    let loaded = lines.lines().filter(|line| line.contains(r#""stop":"loaded""#));
    let loaded: String = loaded.map(|line| normalize_line(line, "bowline-peer")).collect();
    expect![[r#"
        loaded after 2 updates
          agent_message_chunk: 1
          user_message_chunk: 1
          > {"say":"one"}
        loaded after 4 updates
          agent_message_chunk: 2
          user_message_chunk: 2
          > {"say":"one"}
          > {"say":"two"}
    "#]]
    .assert_eq(&loaded);
}
