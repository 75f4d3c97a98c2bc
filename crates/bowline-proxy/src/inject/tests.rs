//! Servers that are added to sessions, between an editor and an agent in memory.

use std::fmt::Write as _;

use expect_test::{Expect, expect};
use tokio::io::{AsyncBufReadExt as _, AsyncWriteExt as _, BufReader, DuplexStream};
use tokio::net::UnixStream;

use super::*;
use crate::between::Chain;
use crate::proxy::{Ends, Proxy};

/// One end as a test has it.
struct Far(BufReader<DuplexStream>, DuplexStream);

impl Far {
    async fn say(&mut self, message: Value) {
        self.1.write_all(format!("{message}\n").as_bytes()).await.unwrap();
    }

    async fn hear(&mut self) -> Value {
        let mut line = String::new();
        self.0.read_line(&mut line).await.unwrap();
        serde_json::from_str(&line).unwrap()
    }
}

struct Stage {
    editor: Far,
    agent: Far,
    directory: tempfile::TempDir,
    link: Link,
    running: JoinHandle<crate::Ended>,
}

impl Drop for Stage {
    fn drop(&mut self) {
        self.running.abort();
    }
}

fn pair() -> (Far, Ends) {
    let (there, here) = (tokio::io::duplex(1 << 20), tokio::io::duplex(1 << 20));
    let ends = Ends { reader: Box::new(here.1), writer: Box::new(there.1) };
    (Far(BufReader::new(there.0), here.0), ends)
}

/// An editor and an agent that have said hello, with these capabilities.
async fn stage(editor_can: Value, agent_can: Value) -> Stage {
    let directory = tempfile::tempdir().unwrap();
    let (inject, service, link) = Inject::new(InjectSettings {
        transport: None,
        version: "1".to_owned(),
        secret: Box::new(|| Ok("secret".to_owned())),
        bridge: (PathBuf::from("/bin/bowline"), vec!["mcp-bridge".to_owned()]),
        sockets: directory.path().to_owned(),
    });
    let ((editor, near_editor), (agent, near_agent)) = (pair(), pair());
    let (caller, proxy) = Proxy::new(Chain(vec![Box::new(inject)]), service, crate::Settings::default());
    link.connect(caller);
    let farewell = async { String::new() };
    let running = tokio::spawn(proxy.run(near_editor, near_agent, farewell, std::future::pending()));
    let mut stage = Stage { editor, agent, directory, link, running };
    let hello = json!({ "protocolVersion": 1, "clientCapabilities": editor_can });
    stage.editor.say(json!({ "jsonrpc": "2.0", "id": 0, "method": "initialize", "params": hello })).await;
    stage.agent.hear().await;
    let answer = json!({ "protocolVersion": 1, "agentCapabilities": { "mcpCapabilities": agent_can } });
    stage.agent.say(json!({ "jsonrpc": "2.0", "id": 0, "result": answer })).await;
    stage.editor.hear().await;
    stage
}

impl Stage {
    fn cwd(&self) -> String {
        self.directory.path().canonicalize().unwrap().display().to_string()
    }

    /// Opens a session, and returns the servers that the agent is told of.
    async fn open(&mut self) -> Value {
        let params = json!({ "cwd": self.cwd(), "mcpServers": [] });
        self.editor
            .say(json!({ "jsonrpc": "2.0", "id": 1, "method": "session/new", "params": params }))
            .await;
        self.agent.hear().await["params"]["mcpServers"].take()
    }

    /// Has the agent answer that the session is open.
    async fn opened(&mut self) {
        self.agent.say(json!({ "jsonrpc": "2.0", "id": 1, "result": { "sessionId": "s" } })).await;
        assert_eq!(self.editor.hear().await["result"]["sessionId"], "s");
    }

    /// Sends a message to the server over ACP.
    async fn ask(&mut self, id: u64, method: &str, params: Value) {
        let params = json!({
            "serverId": "bowline-proxy-mcp-server-1", "requestId": format!("r{id}"), "method": method, "params": params,
        });
        self.agent
            .say(json!({ "jsonrpc": "2.0", "id": id, "method": "mcp/message", "params": params }))
            .await;
    }
}

fn everything() -> Value {
    json!({ "fs": { "readTextFile": true, "writeTextFile": true }, "terminal": true })
}

async fn check(editor: Value, agent: Value, expect: Expect) {
    let mut stage = stage(editor, agent).await;
    let told = stage.open().await.to_string().replace(&stage.cwd(), "$DIR");
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
    check(everything(), json!({}), stdio).await;
    let http = expect![[
        r#"[{"type":"http","name":"bowline","url":"http://127.0.0.1:PORT/mcp","headers":[{"name":"Authorization","value":"Bearer secret"}]}]"#
    ]];
    check(everything(), json!({ "http": true }), http).await;
    let acp = expect![[r#"[{"type":"acp","name":"bowline","serverId":"bowline-proxy-mcp-server-1"}]"#]];
    check(everything(), json!({ "http": true, "acp": true }), acp).await;
}

#[tokio::test]
async fn only_what_the_editor_serves_is_offered() {
    let mut told = String::new();
    for editor in [
        everything(),
        json!({ "fs": { "readTextFile": true, "writeTextFile": true } }),
        json!({ "fs": { "readTextFile": true }, "terminal": true }),
        json!({ "fs": { "readTextFile": true } }),
        json!({ "terminal": true }),
    ] {
        let mut stage = stage(editor, json!({ "acp": true })).await;
        stage.open().await;
        // The agent looks at its servers before it has opened the session, and says no hello.
        stage.ask(5, "tools/list", Value::Null).await;
        let answer = stage.agent.hear().await;
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
    let mut stage = stage(everything(), json!({ "acp": true })).await;
    stage.open().await;
    let path = format!("{}/a.txt", stage.cwd());
    // Called before the session is known, a tool waits for it.
    stage.ask(5, "tools/call", json!({ "name": "read_text_file", "arguments": { "path": path } })).await;
    stage.opened().await;
    let mut told = String::new();
    let mut edited = false;
    loop {
        tokio::select! {
            asked = stage.editor.hear() => {
                let (method, params) = (asked["method"].as_str().unwrap().to_owned(), &asked["params"]);
                writeln!(told, "{method} {params}").unwrap();
                let result = match method.as_str() {
                    "fs/read_text_file" => json!({ "content": "not saved\n" }),
                    "session/request_permission" => json!({ "outcome": { "outcome": "selected", "optionId": "allow" } }),
                    "fs/write_text_file" => json!({}),
                    _ => continue,
                };
                stage.editor.say(json!({ "jsonrpc": "2.0", "id": asked["id"], "result": result })).await;
            }
            answer = stage.agent.hear() => {
                let result = &answer["result"]["result"];
                writeln!(told, "= {} {}", result["isError"], result["structuredContent"]).unwrap();
                if std::mem::replace(&mut edited, true) {
                    break;
                }
                let edit = json!({ "path": "a.txt", "old_text": "not saved", "new_text": "written" });
                stage.ask(6, "tools/call", json!({ "name": "edit_text_file", "arguments": edit })).await;
            }
        }
    }
    // The last of it is told after the answer, or before it.
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
    let mut stage = stage(everything(), json!({})).await;
    stage.open().await;
    let socket = stage.directory.path().join("1.sock");
    assert!(UnixStream::connect(&socket).await.is_ok());
    stage.agent.say(json!({ "jsonrpc": "2.0", "id": 1, "error": { "code": 1, "message": "no" } })).await;
    stage.editor.hear().await;
    assert!(UnixStream::connect(&socket).await.is_err());
    stage.open().await;
    stage.opened().await;
    let socket = stage.directory.path().join("2.sock");
    assert!(UnixStream::connect(&socket).await.is_ok());
    let close = json!({ "sessionId": "s" });
    stage.editor.say(json!({ "jsonrpc": "2.0", "id": 2, "method": "session/close", "params": close })).await;
    stage.agent.hear().await;
    stage.agent.say(json!({ "jsonrpc": "2.0", "id": 2, "result": {} })).await;
    stage.editor.hear().await;
    assert!(UnixStream::connect(&socket).await.is_err());
    stage.link.close().await;
}
