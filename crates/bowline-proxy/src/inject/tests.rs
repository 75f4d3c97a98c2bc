//! Tests of injected servers, between an in-memory editor and agent.

use std::fmt::Write as _;

use expect_test::{Expect, expect};
use tokio::io::{AsyncBufReadExt as _, AsyncWriteExt as _, BufReader, DuplexStream};
use tokio::net::UnixStream;

use super::*;
use crate::interceptor::InterceptorChain;
use crate::proxy::{PeerStreams, Proxy};

/// The test's side of one end.
struct TestJsonPeer(BufReader<DuplexStream>, DuplexStream);

impl TestJsonPeer {
    async fn send(&mut self, message: Value) {
        self.1.write_all(format!("{message}\n").as_bytes()).await.unwrap();
    }

    async fn receive(&mut self) -> Value {
        let mut line = String::new();
        self.0.read_line(&mut line).await.unwrap();
        serde_json::from_str(&line).unwrap()
    }
}

struct InjectHarness {
    editor: TestJsonPeer,
    agent: TestJsonPeer,
    directory: tempfile::TempDir,
    handle: InjectorHandle,
    running: JoinHandle<crate::ProxyEndReason>,
}

impl Drop for InjectHarness {
    fn drop(&mut self) {
        self.running.abort();
    }
}

fn peer_pair() -> (TestJsonPeer, PeerStreams) {
    let (there, here) = (tokio::io::duplex(1 << 20), tokio::io::duplex(1 << 20));
    let ends = PeerStreams { reader: Box::new(here.1), writer: Box::new(there.1) };
    (TestJsonPeer(BufReader::new(there.0), here.0), ends)
}

/// Returns a harness with an initialised editor and agent of these capabilities.
async fn start_harness(editor_can: Value, agent_can: Value) -> InjectHarness {
    let directory = tempfile::tempdir().unwrap();
    let (inject, service, link) = ServerInjector::new(InjectorOptions {
        transport: None,
        version: "1".to_owned(),
        generate_secret: Box::new(|| Ok("secret".to_owned())),
        bridge_command: (PathBuf::from("/bin/bowline"), vec!["mcp-bridge".to_owned()]),
        socket_dir: {
            let sockets = directory.path().to_owned();
            Box::new(move || Ok(sockets.clone()))
        },
        engine_sessions: EngineSessions::default(),
        rules: PolicyStatus::Off,
    });
    let ((editor, near_editor), (agent, near_agent)) = (peer_pair(), peer_pair());
    let (caller, proxy) =
        Proxy::new(InterceptorChain(vec![Box::new(inject)]), service, crate::ProxyOptions::default());
    link.connect(caller);
    let farewell = async { String::new() };
    let running = tokio::spawn(proxy.run(near_editor, near_agent, farewell, std::future::pending()));
    let mut stage = InjectHarness { editor, agent, directory, handle: link, running };
    let hello = json!({ "protocolVersion": 1, "clientCapabilities": editor_can });
    stage.editor.send(json!({ "jsonrpc": "2.0", "id": 0, "method": "initialize", "params": hello })).await;
    stage.agent.receive().await;
    let answer = json!({ "protocolVersion": 1, "agentCapabilities": { "mcpCapabilities": agent_can } });
    stage.agent.send(json!({ "jsonrpc": "2.0", "id": 0, "result": answer })).await;
    stage.editor.receive().await;
    stage
}

impl InjectHarness {
    fn cwd(&self) -> String {
        self.directory.path().canonicalize().unwrap().display().to_string()
    }

    /// Requests a session, and returns the servers in the request that the agent receives.
    async fn request_session(&mut self) -> Value {
        let params = json!({ "cwd": self.cwd(), "mcpServers": [] });
        self.editor
            .send(json!({ "jsonrpc": "2.0", "id": 1, "method": "session/new", "params": params }))
            .await;
        self.agent.receive().await["params"]["mcpServers"].take()
    }

    /// Sends the agent's answer that the session is open.
    async fn answer_session(&mut self) {
        self.agent.send(json!({ "jsonrpc": "2.0", "id": 1, "result": { "sessionId": "s" } })).await;
        assert_eq!(self.editor.receive().await["result"]["sessionId"], "s");
    }

    /// Sends a message to the server over ACP.
    async fn send_mcp_message(&mut self, id: u64, method: &str, params: Value) {
        let params = json!({
            "serverId": "bowline-proxy-mcp-server-1", "requestId": format!("r{id}"), "method": method, "params": params,
        });
        self.agent
            .send(json!({ "jsonrpc": "2.0", "id": id, "method": "mcp/message", "params": params }))
            .await;
    }
}

fn all_capabilities() -> Value {
    json!({ "fs": { "readTextFile": true, "writeTextFile": true }, "terminal": true })
}

async fn check(editor: Value, agent: Value, expect: Expect) {
    let mut stage = start_harness(editor, agent).await;
    let told = stage.request_session().await.to_string().replace(&stage.cwd(), "$DIR");
    let port = told.split("127.0.0.1:").nth(1).and_then(|rest| rest.split('/').next()).map(str::to_owned);
    expect.assert_eq(&port.map_or(told.clone(), |port| told.replace(&port, "PORT")));
}

#[tokio::test]
async fn a_session_gets_a_server_in_the_best_way_the_agent_can_take() {
    check(json!({}), json!({ "http": true }), expect!["[]"]).await;
    check(json!({ "fs": { "writeTextFile": true } }), json!({}), expect!["[]"]).await;
    let stdio = expect![[
        r#"[{"name":"bowline","command":"/bin/bowline","args":["mcp-bridge","$DIR/1.sock"],"env":[]}]"#
    ]];
    check(all_capabilities(), json!({}), stdio).await;
    let http = expect![[
        r#"[{"type":"http","name":"bowline","url":"http://127.0.0.1:PORT/mcp","headers":[{"name":"Authorization","value":"Bearer secret"}]}]"#
    ]];
    check(all_capabilities(), json!({ "http": true }), http).await;
    let acp = expect![[r#"[{"type":"acp","name":"bowline","serverId":"bowline-proxy-mcp-server-1"}]"#]];
    check(all_capabilities(), json!({ "http": true, "acp": true }), acp).await;
}

#[tokio::test]
async fn only_what_the_editor_serves_is_offered() {
    let mut told = String::new();
    for editor in [
        all_capabilities(),
        json!({ "fs": { "readTextFile": true, "writeTextFile": true } }),
        json!({ "fs": { "readTextFile": true }, "terminal": true }),
        json!({ "fs": { "readTextFile": true } }),
        json!({ "terminal": true }),
    ] {
        let mut stage = start_harness(editor, json!({ "acp": true })).await;
        stage.request_session().await;
        // The agent uses its servers before it has opened the session, and without a handshake.
        stage.send_mcp_message(5, "tools/list", Value::Null).await;
        let answer = stage.agent.receive().await;
        let tools = answer["result"]["result"]["tools"].as_array().unwrap();
        let names: Vec<&str> = tools.iter().map(|tool| tool["name"].as_str().unwrap()).collect();
        writeln!(told, "{}", names.join(" ")).unwrap();
    }
    expect![[r#"
        read_text_file write_text_file edit_text_file list_directory search_text execute terminal_output kill_terminal
        read_text_file write_text_file edit_text_file list_directory search_text
        read_text_file list_directory search_text execute terminal_output kill_terminal
        read_text_file list_directory search_text
        execute terminal_output kill_terminal
    "#]]
    .assert_eq(&told);
}

#[tokio::test]
async fn over_acp_the_agent_reads_and_writes_what_the_editor_has() {
    let mut stage = start_harness(all_capabilities(), json!({ "acp": true })).await;
    stage.request_session().await;
    let path = format!("{}/a.txt", stage.cwd());
    // A tool called before the session is known waits for it.
    stage
        .send_mcp_message(5, "tools/call", json!({ "name": "read_text_file", "arguments": { "path": path } }))
        .await;
    stage.answer_session().await;
    let mut told = String::new();
    let mut edited = false;
    loop {
        tokio::select! {
            asked = stage.editor.receive() => {
                let (method, params) = (asked["method"].as_str().unwrap().to_owned(), &asked["params"]);
                writeln!(told, "{method} {params}").unwrap();
                let result = match method.as_str() {
                    "fs/read_text_file" => json!({ "content": "not saved\n" }),
                    "session/request_permission" => json!({ "outcome": { "outcome": "selected", "optionId": "allow" } }),
                    "fs/write_text_file" => json!({}),
                    _ => continue,
                };
                stage.editor.send(json!({ "jsonrpc": "2.0", "id": asked["id"], "result": result })).await;
            }
            answer = stage.agent.receive() => {
                let result = &answer["result"]["result"];
                writeln!(told, "= {} {}", result["isError"], result["structuredContent"]).unwrap();
                if std::mem::replace(&mut edited, true) {
                    break;
                }
                let edit = json!({ "path": "a.txt", "old_text": "not saved", "new_text": "written" });
                stage.send_mcp_message(6, "tools/call", json!({ "name": "edit_text_file", "arguments": edit })).await;
            }
        }
    }
    // The last update may arrive before or after the answer.
    let told = told.replace(&stage.cwd(), "$DIR");
    assert!(told.contains(r#"fs/read_text_file {"sessionId":"s","path":"$DIR/a.txt""#), "{told}");
    assert!(
        told.contains(
            r#""content":[{"type":"diff","path":"$DIR/a.txt","oldText":"not saved\n","newText":"written\n"}]"#
        ),
        "{told}"
    );
    let order: Vec<&str> = told.lines().filter_map(|line| line.split(' ').next()).collect();
    let (asked, written) = (
        order.iter().position(|method| *method == "session/request_permission").unwrap(),
        order.iter().position(|method| *method == "fs/write_text_file").unwrap(),
    );
    assert!(asked < written, "{told}");
    assert!(
        told.contains(r#"fs/write_text_file {"sessionId":"s","path":"$DIR/a.txt","content":"written\n"}"#),
        "{told}"
    );
}

#[tokio::test]
async fn a_server_ends_with_its_session() {
    let mut stage = start_harness(all_capabilities(), json!({})).await;
    stage.request_session().await;
    let socket = stage.directory.path().join("1.sock");
    assert!(UnixStream::connect(&socket).await.is_ok());
    stage.agent.send(json!({ "jsonrpc": "2.0", "id": 1, "error": { "code": 1, "message": "no" } })).await;
    stage.editor.receive().await;
    assert!(UnixStream::connect(&socket).await.is_err());
    stage.request_session().await;
    stage.answer_session().await;
    let socket = stage.directory.path().join("2.sock");
    assert!(UnixStream::connect(&socket).await.is_ok());
    let close = json!({ "sessionId": "s" });
    stage.editor.send(json!({ "jsonrpc": "2.0", "id": 2, "method": "session/close", "params": close })).await;
    stage.agent.receive().await;
    stage.agent.send(json!({ "jsonrpc": "2.0", "id": 2, "result": {} })).await;
    stage.editor.receive().await;
    assert!(UnixStream::connect(&socket).await.is_err());
    stage.handle.close().await;
}

#[tokio::test]
async fn a_session_that_is_loaded_again_has_one_server_and_keeps_it_if_that_fails() {
    let mut stage = start_harness(all_capabilities(), json!({})).await;
    stage.request_session().await;
    stage.answer_session().await;
    let (cwd, mut told) = (stage.cwd(), String::new());
    let is_there = |stage: &InjectHarness, number: u32| {
        let socket = stage.directory.path().join(format!("{number}.sock"));
        async move { UnixStream::connect(&socket).await.is_ok() }
    };
    for (method, answer) in [
        ("session/load", json!({ "result": {} })),
        ("session/resume", json!({ "error": { "code": 1, "message": "no" } })),
        ("session/resume", json!({ "result": {} })),
    ] {
        let params = json!({ "sessionId": "s", "cwd": cwd, "mcpServers": [] });
        stage.editor.send(json!({ "jsonrpc": "2.0", "id": 7, "method": method, "params": params })).await;
        let servers = stage.agent.receive().await["params"]["mcpServers"].as_array().unwrap().len();
        let mut answer = answer;
        answer["jsonrpc"] = json!("2.0");
        answer["id"] = json!(7);
        stage.agent.send(answer.clone()).await;
        stage.editor.receive().await;
        let mut live = Vec::new();
        for number in 1..=4 {
            if is_there(&stage, number).await {
                live.push(number);
            }
        }
        writeln!(told, "{method} with {servers}, {}: {live:?}", answer["error"]["message"]).unwrap();
    }
    expect![[r#"
        session/load with 1, null: [2]
        session/resume with 1, "no": [2]
        session/resume with 1, null: [4]
    "#]]
    .assert_eq(&told);
}

/// The permission request that claude-agent-acp sends before it calls a tool of a server.
fn claude_permission_request(id: u64, source: &str) -> Value {
    let tool = "mcp__bowline__edit_text_file";
    let call = json!({
        "toolCallId": "toolu_2", "title": tool, "kind": "other", "rawInput": { "path": "a.txt" },
        "_meta": { "claudeCode": { "toolName": tool, "mcpServer": { "name": "bowline", "source": source } } },
    });
    let options = json!([
        { "optionId": "y", "name": "Yes", "kind": "allow_once" },
        { "optionId": "n", "name": "No", "kind": "reject_once" },
    ]);
    let params = json!({ "sessionId": "s", "toolCall": call, "options": options });
    json!({ "jsonrpc": "2.0", "id": id, "method": "session/request_permission", "params": params })
}

#[tokio::test]
async fn what_an_agent_asks_before_a_tool_of_ours_is_answered_once_it_has_met_the_server() {
    let mut stage = start_harness(all_capabilities(), json!({ "acp": true })).await;
    stage.request_session().await;
    stage.answer_session().await;
    // The name may refer to a server of its own.
    stage.agent.send(claude_permission_request(20, "dynamic")).await;
    assert_eq!(stage.editor.receive().await, claude_permission_request(20, "dynamic"));
    stage.send_mcp_message(5, "tools/list", Value::Null).await;
    stage.agent.receive().await;
    stage.agent.send(claude_permission_request(21, "dynamic")).await;
    expect![[r#"{"jsonrpc":"2.0","id":21,"result":{"outcome":{"outcome":"selected","optionId":"y"},"_meta":{"bowline":{"reason":"edit_text_file, a tool of the proxy, asks by itself","by":"proxy"}}}}"#]]
        .assert_eq(&stage.agent.receive().await.to_string());
    for other in [claude_permission_request(22, "project"), {
        let mut other = claude_permission_request(23, "dynamic");
        other["params"]["sessionId"] = json!("another");
        other
    }] {
        stage.agent.send(other.clone()).await;
        assert_eq!(stage.editor.receive().await, other);
    }
}

#[tokio::test]
async fn a_turn_that_is_cancelled_takes_back_the_question_of_a_tool_and_a_late_yes_writes_nothing() {
    let mut stage = start_harness(all_capabilities(), json!({ "acp": true })).await;
    stage.request_session().await;
    stage.answer_session().await;
    let edit = json!({ "path": "a.txt", "old_text": "old", "new_text": "written" });
    stage.send_mcp_message(5, "tools/call", json!({ "name": "edit_text_file", "arguments": edit })).await;
    let mut told = Vec::new();
    let question = loop {
        let asked = tokio::select! {
            asked = stage.editor.receive() => asked,
            answer = stage.agent.receive() => panic!("nothing was asked: {answer}"),
        };
        told.push(asked["method"].clone());
        match asked["method"].as_str().unwrap() {
            "session/request_permission" => break asked["id"].clone(),
            "fs/read_text_file" => {
                let result = json!({ "content": "old" });
                stage.editor.send(json!({ "jsonrpc": "2.0", "id": asked["id"], "result": result })).await;
            }
            _ => {}
        }
    };
    let cancel = json!({ "jsonrpc": "2.0", "method": "session/cancel", "params": { "sessionId": "s" } });
    stage.editor.send(cancel.clone()).await;
    let yes = json!({ "outcome": { "outcome": "selected", "optionId": "allow" } });
    stage.editor.send(json!({ "jsonrpc": "2.0", "id": question, "result": yes })).await;
    assert_eq!(stage.agent.receive().await, cancel);
    let answer = stage.agent.receive().await;
    told.push(answer["result"]["result"]["isError"].clone());
    stage.agent.send(json!({ "jsonrpc": "2.0", "method": "after" })).await;
    loop {
        let heard = stage.editor.receive().await;
        if heard["method"] == "after" {
            break;
        }
        told.push(heard["method"].clone());
    }
    assert!(told.contains(&json!(true)), "{told:?}");
    assert!(!told.contains(&json!("fs/write_text_file")), "{told:?}");
}

/// gemini abandons its call with the turn, and does not tell the server.
#[tokio::test]
async fn a_turn_that_is_cancelled_ends_the_command_of_a_tool_but_none_in_the_background() {
    for background in [false, true] {
        let mut stage = start_harness(all_capabilities(), json!({ "acp": true })).await;
        stage.request_session().await;
        stage.answer_session().await;
        let run = json!({ "command": "sleep 600", "background": background });
        stage.send_mcp_message(5, "tools/call", json!({ "name": "execute", "arguments": run })).await;
        let mut told = Vec::new();
        let mut has_begun = false;
        while !has_begun {
            let asked = tokio::select! {
                asked = stage.editor.receive() => asked,
                answer = stage.agent.receive() => {
                    assert!(background, "the command has not begun: {answer}");
                    break;
                }
            };
            let result = match asked["method"].as_str().unwrap() {
                "session/request_permission" => {
                    json!({ "outcome": { "outcome": "selected", "optionId": "allow" } })
                }
                "terminal/create" => json!({ "terminalId": "t" }),
                method => {
                    has_begun = method == "terminal/wait_for_exit";
                    continue;
                }
            };
            stage.editor.send(json!({ "jsonrpc": "2.0", "id": asked["id"], "result": result })).await;
        }
        let cancel = json!({ "jsonrpc": "2.0", "method": "session/cancel", "params": { "sessionId": "s" } });
        stage.editor.send(cancel.clone()).await;
        assert_eq!(stage.agent.receive().await, cancel);
        if background {
            stage.agent.send(json!({ "jsonrpc": "2.0", "method": "after" })).await;
        }
        loop {
            let heard = tokio::select! {
                heard = stage.editor.receive() => heard,
                _ = stage.agent.receive() => break,
            };
            if heard["method"] == "after" {
                break;
            }
            told.push(heard["method"].as_str().unwrap_or_default().to_owned());
            if heard.get("id").is_some() {
                let result = json!({ "output": "", "truncated": false });
                stage.editor.send(json!({ "jsonrpc": "2.0", "id": heard["id"], "result": result })).await;
            }
        }
        let ends = ["terminal/kill", "terminal/release"].map(|end| told.iter().any(|told| told == end));
        assert_eq!(ends, [!background; 2], "{told:?}");
    }
}

#[test]
fn the_tools_that_are_offered_are_known_by_what_they_do_and_take() {
    let mut told = String::new();
    for tool in OfferedTools::Everything.tools() {
        writeln!(told, "{} {:?} {}", tool.name, tool.prompt_behavior, tool.arguments.join(" ")).unwrap();
    }
    expect![[r#"
        read_text_file Never path line limit
        write_text_file BeforeWrite path content
        edit_text_file BeforeWrite path edits old_text new_text replace_all
        list_directory Never path depth
        search_text Never pattern path regex case_sensitive glob
        execute BeforeRun command args cwd env timeout_seconds background
        terminal_output Never id wait_seconds
        kill_terminal Never id
    "#]]
    .assert_eq(&told);
    assert_eq!(OfferedTools::Commands.tools().len(), 3);
}
