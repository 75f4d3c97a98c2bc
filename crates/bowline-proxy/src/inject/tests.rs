//! Tests of injected servers, between an in-memory editor and agent.

use std::fmt::Write as _;

use expect_test::{Expect, expect};
use tokio::io::{AsyncBufReadExt as _, AsyncWriteExt as _, BufReader, DuplexStream};
use tokio::net::UnixStream;

use super::*;
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
    let (to_peer, from_peer) = (tokio::io::duplex(1 << 20), tokio::io::duplex(1 << 20));
    let streams = PeerStreams { reader: Box::new(from_peer.1), writer: Box::new(to_peer.1) };
    (TestJsonPeer(BufReader::new(to_peer.0), from_peer.0), streams)
}

/// Returns a harness with an initialised editor and agent of these capabilities.
async fn start_harness(editor_capabilities: Value, agent_capabilities: Value) -> InjectHarness {
    let directory = tempfile::tempdir().unwrap();
    let caller_slot = CallerSlot::default();
    let options = InjectorOptions {
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
    };
    let (inject, service, link) = ServerInjector::new(options, caller_slot.clone());
    let ((editor, editor_streams), (agent, agent_streams)) = (peer_pair(), peer_pair());
    let (caller, proxy) = Proxy::new(inject, service, crate::ProxyOptions::default());
    caller_slot.set(caller);
    let agent_exit = async { String::new() };
    let running = tokio::spawn(proxy.run(editor_streams, agent_streams, agent_exit, std::future::pending()));
    let mut harness = InjectHarness { editor, agent, directory, handle: link, running };
    let params = json!({ "protocolVersion": 1, "clientCapabilities": editor_capabilities });
    harness.editor.send(json!({ "jsonrpc": "2.0", "id": 0, "method": "initialize", "params": params })).await;
    harness.agent.receive().await;
    let answer =
        json!({ "protocolVersion": 1, "agentCapabilities": { "mcpCapabilities": agent_capabilities } });
    harness.agent.send(json!({ "jsonrpc": "2.0", "id": 0, "result": answer })).await;
    harness.editor.receive().await;
    harness
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
    let mut harness = start_harness(editor, agent).await;
    let request = harness.request_session().await.to_string().replace(&harness.cwd(), "$DIR");
    let port = request.split("127.0.0.1:").nth(1).and_then(|rest| rest.split('/').next()).map(str::to_owned);
    expect.assert_eq(&port.map_or(request.clone(), |port| request.replace(&port, "PORT")));
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
    let mut transcript = String::new();
    for editor in [
        all_capabilities(),
        json!({ "fs": { "readTextFile": true, "writeTextFile": true } }),
        json!({ "fs": { "readTextFile": true }, "terminal": true }),
        json!({ "fs": { "readTextFile": true } }),
        json!({ "terminal": true }),
    ] {
        let mut harness = start_harness(editor, json!({ "acp": true })).await;
        harness.request_session().await;
        // The agent uses its servers before it has opened the session, and without a handshake.
        harness.send_mcp_message(5, "tools/list", Value::Null).await;
        let answer = harness.agent.receive().await;
        let tools = answer["result"]["result"]["tools"].as_array().unwrap();
        let names: Vec<&str> = tools.iter().map(|tool| tool["name"].as_str().unwrap()).collect();
        writeln!(transcript, "{}", names.join(" ")).unwrap();
    }
    expect![[r#"
        read_text_file write_text_file edit_text_file write_files append_file delete_file move_file list_directory stat_file search_text execute terminal_output kill_terminal
        read_text_file write_text_file edit_text_file write_files append_file delete_file move_file list_directory stat_file search_text
        read_text_file list_directory stat_file search_text execute terminal_output kill_terminal
        read_text_file list_directory stat_file search_text
        execute terminal_output kill_terminal
    "#]]
    .assert_eq(&transcript);
}

#[tokio::test]
async fn over_acp_the_agent_reads_and_writes_what_the_editor_has() {
    let mut harness = start_harness(all_capabilities(), json!({ "acp": true })).await;
    harness.request_session().await;
    let path = format!("{}/a.txt", harness.cwd());
    // A tool called before the session is known waits for it.
    harness
        .send_mcp_message(5, "tools/call", json!({ "name": "read_text_file", "arguments": { "path": path } }))
        .await;
    harness.answer_session().await;
    let mut transcript = String::new();
    let mut has_edited = false;
    loop {
        tokio::select! {
            request = harness.editor.receive() => {
                let (method, params) = (request["method"].as_str().unwrap().to_owned(), &request["params"]);
                writeln!(transcript, "{method} {params}").unwrap();
                let result = match method.as_str() {
                    "fs/read_text_file" => json!({ "content": "not saved\n" }),
                    "session/request_permission" => json!({ "outcome": { "outcome": "selected", "optionId": "allow" } }),
                    "fs/write_text_file" => json!({}),
                    _ => continue,
                };
                harness.editor.send(json!({ "jsonrpc": "2.0", "id": request["id"], "result": result })).await;
            }
            answer = harness.agent.receive() => {
                let result = &answer["result"]["result"];
                writeln!(transcript, "= {} {}", result["isError"], result["structuredContent"]).unwrap();
                if std::mem::replace(&mut has_edited, true) {
                    break;
                }
                let edit = json!({ "path": "a.txt", "old_text": "not saved", "new_text": "written" });
                harness.send_mcp_message(6, "tools/call", json!({ "name": "edit_text_file", "arguments": edit })).await;
            }
        }
    }
    // The last update may arrive before or after the answer.
    let transcript = transcript.replace(&harness.cwd(), "$DIR");
    assert!(transcript.contains(r#"fs/read_text_file {"sessionId":"s","path":"$DIR/a.txt""#), "{transcript}");
    assert!(
        transcript.contains(
            r#""content":[{"type":"diff","path":"$DIR/a.txt","oldText":"not saved\n","newText":"written\n"}]"#
        ),
        "{transcript}"
    );
    let order: Vec<&str> = transcript.lines().filter_map(|line| line.split(' ').next()).collect();
    let (asked, written) = (
        order.iter().position(|method| *method == "session/request_permission").unwrap(),
        order.iter().position(|method| *method == "fs/write_text_file").unwrap(),
    );
    assert!(asked < written, "{transcript}");
    assert!(
        transcript
            .contains(r#"fs/write_text_file {"sessionId":"s","path":"$DIR/a.txt","content":"written\n"}"#),
        "{transcript}"
    );
}

#[tokio::test]
async fn a_server_ends_with_its_session() {
    let mut harness = start_harness(all_capabilities(), json!({})).await;
    harness.request_session().await;
    let socket = harness.directory.path().join("1.sock");
    assert!(UnixStream::connect(&socket).await.is_ok());
    harness.agent.send(json!({ "jsonrpc": "2.0", "id": 1, "error": { "code": 1, "message": "no" } })).await;
    harness.editor.receive().await;
    assert!(UnixStream::connect(&socket).await.is_err());
    harness.request_session().await;
    harness.answer_session().await;
    let socket = harness.directory.path().join("2.sock");
    assert!(UnixStream::connect(&socket).await.is_ok());
    let close = json!({ "sessionId": "s" });
    harness
        .editor
        .send(json!({ "jsonrpc": "2.0", "id": 2, "method": "session/close", "params": close }))
        .await;
    harness.agent.receive().await;
    harness.agent.send(json!({ "jsonrpc": "2.0", "id": 2, "result": {} })).await;
    harness.editor.receive().await;
    assert!(UnixStream::connect(&socket).await.is_err());
    harness.handle.close().await;
}

#[tokio::test]
async fn a_session_that_is_loaded_again_has_one_server_and_keeps_it_if_that_fails() {
    let mut harness = start_harness(all_capabilities(), json!({})).await;
    harness.request_session().await;
    harness.answer_session().await;
    let (cwd, mut transcript) = (harness.cwd(), String::new());
    let is_listening = |harness: &InjectHarness, number: u32| {
        let socket = harness.directory.path().join(format!("{number}.sock"));
        async move { UnixStream::connect(&socket).await.is_ok() }
    };
    for (method, answer) in [
        ("session/load", json!({ "result": {} })),
        ("session/resume", json!({ "error": { "code": 1, "message": "no" } })),
        ("session/resume", json!({ "result": {} })),
    ] {
        let params = json!({ "sessionId": "s", "cwd": cwd, "mcpServers": [] });
        harness.editor.send(json!({ "jsonrpc": "2.0", "id": 7, "method": method, "params": params })).await;
        let servers = harness.agent.receive().await["params"]["mcpServers"].as_array().unwrap().len();
        let mut answer = answer;
        answer["jsonrpc"] = json!("2.0");
        answer["id"] = json!(7);
        harness.agent.send(answer.clone()).await;
        harness.editor.receive().await;
        let mut live = Vec::new();
        for number in 1..=4 {
            if is_listening(&harness, number).await {
                live.push(number);
            }
        }
        writeln!(transcript, "{method} with {servers}, {}: {live:?}", answer["error"]["message"]).unwrap();
    }
    expect![[r#"
        session/load with 1, null: [2]
        session/resume with 1, "no": [2]
        session/resume with 1, null: [4]
    "#]]
    .assert_eq(&transcript);
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
    let mut harness = start_harness(all_capabilities(), json!({ "acp": true })).await;
    harness.request_session().await;
    harness.answer_session().await;
    // The name may refer to a server of its own.
    harness.agent.send(claude_permission_request(20, "dynamic")).await;
    assert_eq!(harness.editor.receive().await, claude_permission_request(20, "dynamic"));
    harness.send_mcp_message(5, "tools/list", Value::Null).await;
    harness.agent.receive().await;
    harness.agent.send(claude_permission_request(21, "dynamic")).await;
    expect![[r#"{"jsonrpc":"2.0","id":21,"result":{"outcome":{"outcome":"selected","optionId":"y"},"_meta":{"bowline":{"reason":"edit_text_file, a tool of the proxy, asks by itself","by":"proxy"}}}}"#]]
        .assert_eq(&harness.agent.receive().await.to_string());
    for other in [claude_permission_request(22, "project"), {
        let mut other = claude_permission_request(23, "dynamic");
        other["params"]["sessionId"] = json!("another");
        other
    }] {
        harness.agent.send(other.clone()).await;
        assert_eq!(harness.editor.receive().await, other);
    }
}

#[tokio::test]
async fn a_turn_that_is_cancelled_takes_back_the_question_of_a_tool_and_a_late_yes_writes_nothing() {
    let mut harness = start_harness(all_capabilities(), json!({ "acp": true })).await;
    harness.request_session().await;
    harness.answer_session().await;
    let edit = json!({ "path": "a.txt", "old_text": "old", "new_text": "written" });
    harness.send_mcp_message(5, "tools/call", json!({ "name": "edit_text_file", "arguments": edit })).await;
    let mut methods = Vec::new();
    let question = loop {
        let request = tokio::select! {
            request = harness.editor.receive() => request,
            answer = harness.agent.receive() => panic!("nothing was asked: {answer}"),
        };
        methods.push(request["method"].clone());
        match request["method"].as_str().unwrap() {
            "session/request_permission" => break request["id"].clone(),
            "fs/read_text_file" => {
                let result = json!({ "content": "old" });
                harness.editor.send(json!({ "jsonrpc": "2.0", "id": request["id"], "result": result })).await;
            }
            _ => {}
        }
    };
    let cancel = json!({ "jsonrpc": "2.0", "method": "session/cancel", "params": { "sessionId": "s" } });
    harness.editor.send(cancel.clone()).await;
    let approval = json!({ "outcome": { "outcome": "selected", "optionId": "allow" } });
    harness.editor.send(json!({ "jsonrpc": "2.0", "id": question, "result": approval })).await;
    assert_eq!(harness.agent.receive().await, cancel);
    let answer = harness.agent.receive().await;
    methods.push(answer["result"]["result"]["isError"].clone());
    harness.agent.send(json!({ "jsonrpc": "2.0", "method": "after" })).await;
    loop {
        let received = harness.editor.receive().await;
        if received["method"] == "after" {
            break;
        }
        methods.push(received["method"].clone());
    }
    assert!(methods.contains(&json!(true)), "{methods:?}");
    assert!(!methods.contains(&json!("fs/write_text_file")), "{methods:?}");
}

/// gemini abandons its call with the turn, and does not tell the server.
#[tokio::test]
async fn a_turn_that_is_cancelled_ends_the_command_of_a_tool_but_none_in_the_background() {
    for background in [false, true] {
        let mut harness = start_harness(all_capabilities(), json!({ "acp": true })).await;
        harness.request_session().await;
        harness.answer_session().await;
        let run = json!({ "command": "sleep 600", "background": background });
        harness.send_mcp_message(5, "tools/call", json!({ "name": "execute", "arguments": run })).await;
        let mut methods = Vec::new();
        let mut has_started = false;
        while !has_started {
            let request = tokio::select! {
                request = harness.editor.receive() => request,
                answer = harness.agent.receive() => {
                    assert!(background, "the command has not begun: {answer}");
                    break;
                }
            };
            let result = match request["method"].as_str().unwrap() {
                "session/request_permission" => {
                    json!({ "outcome": { "outcome": "selected", "optionId": "allow" } })
                }
                "terminal/create" => json!({ "terminalId": "t" }),
                method => {
                    has_started = method == "terminal/wait_for_exit";
                    continue;
                }
            };
            harness.editor.send(json!({ "jsonrpc": "2.0", "id": request["id"], "result": result })).await;
        }
        let cancel = json!({ "jsonrpc": "2.0", "method": "session/cancel", "params": { "sessionId": "s" } });
        harness.editor.send(cancel.clone()).await;
        assert_eq!(harness.agent.receive().await, cancel);
        if background {
            harness.agent.send(json!({ "jsonrpc": "2.0", "method": "after" })).await;
        }
        loop {
            let received = tokio::select! {
                received = harness.editor.receive() => received,
                _ = harness.agent.receive() => break,
            };
            if received["method"] == "after" {
                break;
            }
            methods.push(received["method"].as_str().unwrap_or_default().to_owned());
            if received.get("id").is_some() {
                let result = json!({ "output": "", "truncated": false });
                harness
                    .editor
                    .send(json!({ "jsonrpc": "2.0", "id": received["id"], "result": result }))
                    .await;
            }
        }
        let ended =
            ["terminal/kill", "terminal/release"].map(|end| methods.iter().any(|method| method == end));
        assert_eq!(ended, [!background; 2], "{methods:?}");
    }
}

#[test]
fn the_tools_that_are_offered_are_known_by_what_they_do_and_take() {
    let mut transcript = String::new();
    for tool in OfferedTools::Everything.tools() {
        writeln!(transcript, "{} {:?} {}", tool.name, tool.prompt_behavior, tool.arguments.join(" "))
            .unwrap();
    }
    expect![[r#"
        read_text_file Never path line limit
        write_text_file BeforeWrite path content
        edit_text_file BeforeWrite path edits old_text new_text replace_all
        write_files BeforeWrite files path content
        append_file BeforeWrite path content
        delete_file BeforeWrite path recursive
        move_file BeforeWrite from to overwrite
        list_directory Never path depth
        stat_file Never path
        search_text Never pattern path regex case_sensitive glob
        execute BeforeRun command args cwd env timeout_seconds background
        terminal_output Never id wait_seconds
        kill_terminal Never id
    "#]]
    .assert_eq(&transcript);
    assert_eq!(OfferedTools::Commands.tools().len(), 3);
}
