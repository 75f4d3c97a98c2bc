//! MCP servers that the client serves over its own connection, including a workspace, through the whole program.

use bowline_tools::mcp_tools::workspace::{
    APPEND_TOOL, DELETE_TOOL, EDIT_TOOL, LIST_TOOL, MOVE_TOOL, READ_TOOL, SEARCH_TOOL, STAT_TOOL,
    WRITE_FILES_TOOL, WRITE_TOOL,
};
use bowline_tools::tools::schema::{
    append_schema, delete_schema, edit_schema, list_schema, move_schema, read_schema, search_schema,
    stat_schema, write_files_schema, write_schema,
};
use expect_test::expect;
use serde_json::{Value, json};

use crate::program::{AgentFixture, AgentProgram, PermissionReply};

/// Wraps a server's result in an answer.
fn mcp_result(id: &Value, result: Value) -> Value {
    json!({"jsonrpc": "2.0", "id": id, "result": {"result": result}})
}

fn text_result(id: &Value, text: &str) -> Value {
    mcp_result(id, json!({"content": [{"type": "text", "text": text}]}))
}

/// The first answer of a server with the newest protocol.
fn discovery_result() -> Value {
    json!({"resultType": "complete", "supportedVersions": ["2026-07-28"], "capabilities": {"tools": {}},
        "ttlMs": 0, "cacheScope": "private",
        "_meta": {"io.modelcontextprotocol/serverInfo": {"name": "own", "version": "1"}}})
}

fn tool_list(names: &[&str]) -> Value {
    let tool = |name: &&str| json!({"name": name, "inputSchema": {"type": "object"}});
    json!({"tools": names.iter().map(tool).collect::<Vec<_>>()})
}

/// A server whose tools answer normally, in odd ways, or not at all.
fn odd_server(id: &Value, params: &Value) -> Vec<Value> {
    let tell = |request: &Value, method: &str, inner: Value| {
        let told =
            json!({"serverId": params["serverId"], "requestId": request, "method": method, "params": inner});
        json!({"jsonrpc": "2.0", "method": "mcp/message", "params": told})
    };
    match params["method"].as_str().unwrap() {
        "server/discover" => return vec![mcp_result(id, discovery_result())],
        "tools/list" => {
            let names =
                ["echo", "tell", "stray", "flood", "inner", "outer", "wrong", "huge", "twice", "never"];
            return vec![mcp_result(id, tool_list(&names))];
        }
        "tools/call" => {}
        other => panic!("unexpected method {other}"),
    }
    let (asked, request) = (&params["params"], &params["requestId"]);
    let echo = || text_result(id, &asked["arguments"].to_string());
    match asked["name"].as_str().unwrap() {
        "echo" => vec![echo()],
        "tell" => {
            let progress = json!({"progressToken": asked["_meta"]["progressToken"], "progress": 1, "total": 2,
                "message": "half of it"});
            vec![tell(request, "notifications/progress", progress)]
        }
        "stray" => vec![
            tell(&json!("unknown"), "notifications/progress", json!({})),
            tell(request, "notifications/unheard", json!({"a": 1})),
            tell(&Value::Null, "x", Value::Null),
            echo(),
        ],
        "flood" => {
            let progress = |at| json!({"progressToken": asked["_meta"]["progressToken"], "progress": at});
            let flood = (0..4_000).map(|at| tell(request, "notifications/progress", progress(at)));
            flood.chain([echo()]).collect()
        }
        "huge" => vec![text_result(id, &"x".repeat(17 << 20))],
        "inner" => {
            let error = json!({"code": -32602, "message": "no such city"});
            vec![json!({"jsonrpc": "2.0", "id": id, "result": {"error": error}})]
        }
        "outer" => {
            vec![
                json!({"jsonrpc": "2.0", "id": id, "error": {"code": -32002, "message": "the server is gone"}}),
            ]
        }
        "wrong" => vec![json!({"jsonrpc": "2.0", "id": id, "result": {"content": []}})],
        "twice" => vec![echo(), text_result(id, "again")],
        _ => Vec::new(),
    }
}

fn own_servers() -> Value {
    json!([{"type": "acp", "name": "own", "serverId": "m1"}])
}

async fn open_session(program: &mut AgentProgram, scene: &AgentFixture) -> String {
    let opened =
        program.call("session/new", json!({"cwd": scene.project(), "mcpServers": own_servers()})).await;
    opened["sessionId"].as_str().unwrap().to_owned()
}

async fn start_with_server(
    scene: &AgentFixture,
    serves: fn(&Value, &Value) -> Vec<Value>,
) -> (AgentProgram, String) {
    let mut program = scene.start_agent(&["--mode", "full"]);
    program.mcp_responder = Some(Box::new(serves));
    let agent = program.initialize(json!({})).await;
    assert_eq!(agent["agentCapabilities"]["mcpCapabilities"]["acp"], true);
    let session = open_session(&mut program, scene).await;
    (program, session)
}

/// Runs a turn and returns its text.
async fn run_turn(program: &mut AgentProgram, session: &str, prompt: &str) -> String {
    let before = program.agent_text().len();
    assert_eq!(program.run_turn(session, prompt).await, "end_turn");
    program.agent_text()[before..].to_owned()
}

#[tokio::test]
async fn client_servers_may_answer_wrongly_or_not_at_all() {
    let scene = AgentFixture::new();
    let (mut program, session) = start_with_server(&scene, odd_server).await;
    let mut told = String::new();
    for tool in ["echo", "stray", "flood", "inner", "outer", "wrong", "huge", "twice", "echo"] {
        let said = run_turn(&mut program, &session, &format!("call mcp__own__{tool} {{\"a\": 1}}")).await;
        // The text around an answer is the same for all servers.
        let told_by =
            said.lines().find(|line| line.contains("{\"a\":1}") || line.contains("MCP server \"own\" "));
        let plain = told_by.unwrap_or(&said);
        told += &format!("{tool}: {}\n", if plain.contains("stands between") { "{\"a\":1}" } else { plain });
    }
    expect![[r#"
        echo: {"a":1}
        stray: {"a":1}
        flood: {"a":1}
        inner: the MCP server "own" refuses the call: no such city
        outer: the MCP server "own" refuses the call: the client does not pass it on: the server is gone
        wrong: the MCP server "own" refuses the call: the answer of the server cannot be read
        huge: the MCP server "own" refuses the call: the answer of the server is larger than 16777216 bytes
        twice: {"a":1}
        echo: {"a":1}
    "#]]
    .assert_eq(&told);
    assert_eq!(program.close().await, Some(0));
}

#[tokio::test]
async fn progress_of_a_client_server_belongs_to_its_call() {
    let scene = AgentFixture::new();
    let (mut program, session) = start_with_server(&scene, odd_server).await;
    let turn = program.prompt(&session, "call mcp__own__tell {}").await;
    let is_call = |it: &Value| it["method"] == "mcp/message" && it["params"]["params"]["name"] == "tell";
    let call = program.wait_for(is_call).await["id"].clone();
    program.wait_for(|it| it["params"]["update"].to_string().contains("half of it")).await;
    program.send(&text_result(&call, "all of it")).await;
    assert_eq!(program.wait_for_answer(turn).await["result"]["stopReason"], "end_turn");
    assert!(program.agent_text().contains("all of it"), "{}", program.agent_text());
}

#[tokio::test]
async fn an_abandoned_call_is_cancelled_however_the_turn_ends() {
    for way in ["session/cancel", "session/close", "end"] {
        let scene = AgentFixture::new();
        let (mut program, session) = start_with_server(&scene, odd_server).await;
        let turn = program.prompt(&session, "call mcp__own__never {}").await;
        let is_call = |it: &Value| it["method"] == "mcp/message" && it["params"]["params"]["name"] == "never";
        let call = program.wait_for(is_call).await["id"].clone();
        let is_cancel = |it: &Value| it["method"] == "$/cancel_request" && it["params"]["requestId"] == call;
        match way {
            "session/cancel" => {
                program.notify(way, json!({"sessionId": session})).await;
                assert_eq!(program.wait_for_answer(turn).await["result"]["stopReason"], "cancelled");
                // Too late to have an effect.
                program.send(&text_result(&call, "late")).await;
                let said = run_turn(&mut program, &session, "call mcp__own__echo {\"b\": 2}").await;
                assert!(said.contains("{\"b\":2}") && !said.contains("late"), "{said}");
            }
            "session/close" => drop(program.call(way, json!({"sessionId": session})).await),
            _ => {}
        }
        assert_eq!(program.close().await, Some(0), "{way}");
        assert!(way == "end" || program.messages.iter().any(is_cancel), "{way}");
    }
}

#[tokio::test]
async fn client_servers_work_in_loaded_resumed_and_forked_sessions() {
    let scene = AgentFixture::new();
    let (mut program, session) = start_with_server(&scene, odd_server).await;
    run_turn(&mut program, &session, "say hello").await;
    for method in ["session/load", "session/resume", "session/fork"] {
        let again = json!({"sessionId": session, "cwd": scene.project(), "mcpServers": own_servers()});
        let opened = program.call(method, again).await;
        let opened = opened["sessionId"].as_str().unwrap_or(&session).to_owned();
        let said = run_turn(&mut program, &opened, "call mcp__own__echo {\"a\": 1}").await;
        assert!(said.contains("{\"a\":1}"), "{method}: {said}");
    }
}

/// A server that supports only the older handshake.
fn older_server(id: &Value, params: &Value) -> Vec<Value> {
    match params["method"].as_str().unwrap() {
        "initialize" => vec![mcp_result(
            id,
            json!({"protocolVersion": "2025-06-18", "capabilities": {"tools": {}},
                "serverInfo": {"name": "older", "version": "1"}}),
        )],
        "tools/list" => vec![mcp_result(id, tool_list(&["echo"]))],
        "tools/call" => vec![text_result(id, "from an older one")],
        _ => {
            let error = json!({"code": -32601, "message": "no such method"});
            vec![json!({"jsonrpc": "2.0", "id": id, "result": {"error": error}})]
        }
    }
}

#[tokio::test]
async fn a_server_that_wants_the_older_handshake_has_it() {
    let scene = AgentFixture::new();
    let (mut program, session) = start_with_server(&scene, older_server).await;
    let said = run_turn(&mut program, &session, "call mcp__own__echo {}").await;
    assert!(said.contains("from an older one"), "{said}");
}

#[tokio::test]
async fn a_server_that_the_client_does_not_serve_is_reported() {
    let scene = AgentFixture::new();
    let mut program = scene.start_agent(&[]);
    program.initialize(json!({})).await;
    let session = open_session(&mut program, &scene).await;
    run_turn(&mut program, &session, "say hello").await;
    expect![[r#"
        - **own**: it refuses the handshake: the client does not pass it on: Method not found; 0 tools
          - `(it refuses the handshake: the client does not pass it on: Method not found)`
    "#]]
    .assert_eq(&run_turn(&mut program, &session, "/mcp").await);
    // The protocol has no requests from a server.
    let asked = json!({"serverId": "m1", "requestId": "1", "method": "ping"});
    assert_eq!(program.call_error("mcp/message", asked).await["code"], -32601);
}

/// A workspace with one file that exists nowhere else; it refuses writes and finds no matches.
fn workspace_server(id: &Value, params: &Value) -> Vec<Value> {
    let asked = &params["params"];
    let path = asked["arguments"]["path"].as_str().unwrap_or_default();
    let failed =
        |why: &str| mcp_result(id, json!({"content": [{"type": "text", "text": why}], "isError": true}));
    vec![match (params["method"].as_str().unwrap(), asked["name"].as_str().unwrap_or_default()) {
        ("server/discover", _) => mcp_result(id, discovery_result()),
        ("tools/list", _) => {
            let tools = [
                (READ_TOOL, read_schema()),
                (WRITE_TOOL, write_schema()),
                (EDIT_TOOL, edit_schema()),
                (LIST_TOOL, list_schema()),
                (SEARCH_TOOL, search_schema()),
            ];
            let tool = |(name, schema): (&str, Value)| json!({"name": name, "inputSchema": schema});
            let mut tools: Vec<Value> = tools.into_iter().map(tool).collect();
            tools.push(json!({"name": "weather", "inputSchema": {"type": "object"}}));
            mcp_result(id, json!({ "tools": tools }))
        }
        (_, READ_TOOL) if path.ends_with("/a.txt") => {
            text_result(id, "[a.txt: all of it, 1 line]\nunsaved\n")
        }
        (_, READ_TOOL) if path.ends_with("/lost.txt") => {
            json!({"jsonrpc": "2.0", "id": id, "error": {"code": -32002, "message": "the server is gone"}})
        }
        (_, READ_TOOL) => failed(&format!("{path} does not exist")),
        (_, WRITE_TOOL | EDIT_TOOL) => failed("the user said no"),
        (_, name) => text_result(id, &format!("{name} done")),
    }]
}

#[tokio::test]
async fn a_client_workspace_fills_in_for_the_editor() {
    let scene = AgentFixture::new();
    scene.write_file("a.txt", "saved\n");
    scene.write_file("lost.txt", "on disk\n");
    let log = scene.home().join("log");
    let mut program = scene.start_agent(&["--mode", "full", "--log", log.to_str().unwrap()]);
    program.mcp_responder = Some(Box::new(workspace_server));
    program.initialize(json!({})).await;
    let session = open_session(&mut program, &scene).await;
    let mut told = String::new();
    for prompt in
        ["read a.txt", "read lost.txt", "read none.txt", "write b.txt: x", "list", "find x", "/tools", "/mcp"]
    {
        let said = run_turn(&mut program, &session, prompt).await;
        let short = |line: &str| match line.split_once("`: ") {
            Some((name, _)) if line.starts_with("- `") && !line.contains("MCP server") => format!("{name}`"),
            _ => line.to_owned(),
        };
        let lines: Vec<String> = said.trim_end().lines().map(short).collect();
        told += &format!("> {prompt}\n{}\n", lines.join("\n"));
    }
    expect![[r#"
        > read a.txt
        `a.txt`:

        ```txt
        [through the client's workspace server, the MCP server "own"]
        [a.txt: all of it, 1 line]
        unsaved
        ```
        > read lost.txt
        Reading `lost.txt` did not work:

        ```
        [through the client's workspace server, the MCP server "own"]
        the MCP server "own" refuses the call: the client does not pass it on: the server is gone
        ```
        > read none.txt
        Reading `none.txt` did not work:

        ```
        [through the client's workspace server, the MCP server "own"]
        $PROJECT/none.txt does not exist
        ```
        > write b.txt: x
        Writing `b.txt` did not work:

        ```
        [through the client's workspace server, the MCP server "own"]
        the user said no
        ```
        > list
        `.`:

        ```
        [through the client's workspace server, the MCP server "own"]
        list_directory done
        ```
        > find x
        `x`:

        ```
        [through the client's workspace server, the MCP server "own"]
        search_text done
        ```
        > /tools
        Tools in mode full:

        - `read_text_file`
        - `write_text_file`
        - `edit_text_file`
        - `write_files`
        - `append_file`
        - `delete_file`
        - `move_file`
        - `list_directory`
        - `stat_file`
        - `search_text`
        - `update_plan`
        - `mcp__own__weather`: weather (a tool of an MCP server)

        Not offered:

        - commands: the agent was started without `--shell`, as `--no-terminal` has it
        - 5 tools of a workspace: the tools above call those of the MCP server "own"
        > /mcp
        - **own**: it is ready; 6 tools; it serves the session, by tools of the session's own
    "#]]
    .assert_eq(&scene.normalize(&told));
    assert!(!scene.project().join("b.txt").exists(), "nothing is written behind the client's back");
    let log = std::fs::read_to_string(log).unwrap();
    assert!(log.contains("reading files: the client's workspace server, over MCP"), "{log}");
    assert!(log.contains("commands: none"), "{log}");
    let linked = json!({"sessionId": session, "prompt": [{"type": "text", "text": "sum up"},
        {"type": "resource_link", "name": "a.txt", "uri": format!("file://{}", scene.path("a.txt"))}]});
    let before = program.count_calls("mcp/message");
    program.call("session/prompt", linked).await;
    assert_eq!(program.count_calls("mcp/message"), before + 1, "what is linked is read there, too");
}

/// The same workspace with the tools that change several files, which answer with their arguments.
fn batch_workspace_server(id: &Value, params: &Value) -> Vec<Value> {
    let batch_tools = [
        (STAT_TOOL, stat_schema()),
        (WRITE_FILES_TOOL, write_files_schema()),
        (APPEND_TOOL, append_schema()),
        (DELETE_TOOL, delete_schema()),
        (MOVE_TOOL, move_schema()),
    ];
    let (asked, mut answers) = (&params["params"], workspace_server(id, params));
    let name = asked["name"].as_str().unwrap_or_default();
    if params["method"] == "tools/list" {
        let tools = answers[0]["result"]["result"]["tools"].as_array_mut().unwrap();
        let batch_tools =
            batch_tools.iter().map(|(name, schema)| json!({"name": name, "inputSchema": schema}));
        tools.extend(batch_tools);
    } else if batch_tools.iter().any(|(known, _)| *known == name) {
        answers = vec![text_result(id, &format!("{name} {}", asked["arguments"]))];
    }
    answers
}

#[tokio::test]
async fn several_files_change_at_the_workspace_or_not_at_all() {
    let mut told = String::new();
    for server in [workspace_server, batch_workspace_server] {
        let scene = AgentFixture::new();
        scene.write_file("a.txt", "saved\n");
        let mut program = scene.start_agent(&["--mode", "ask"]);
        program.mcp_responder = Some(Box::new(server));
        program.initialize(json!({})).await;
        let session = open_session(&mut program, &scene).await;
        run_turn(&mut program, &session, "read a.txt").await;
        for call in [
            r#"write_files {"files": [{"path": "b.txt", "content": "b"}, {"path": "c.txt", "content": "c"}]}"#,
            r#"append_file {"path": "a.txt", "content": "more"}"#,
            r#"move_file {"from": "a.txt", "to": "d.txt"}"#,
            r#"delete_file {"path": "a.txt"}"#,
            r#"stat_file {"path": "a.txt"}"#,
        ] {
            let before = program.count_calls("session/request_permission");
            let said = run_turn(&mut program, &session, &format!("call {call}")).await;
            let asked = program.count_calls("session/request_permission") - before;
            let line = said.lines().rfind(|line| !line.starts_with("```") && !line.is_empty()).unwrap();
            told += &format!("asked {asked}: {}\n", scene.normalize(line));
        }
        assert_eq!(scene.read_file("a.txt"), "saved\n", "nothing is changed behind the client's back");
    }
    expect![[r#"
        asked 0: the client's workspace server does not offer this: read, write or edit the files one by one
        asked 0: the client's workspace server does not offer this: read, write or edit the files one by one
        asked 0: the client's workspace server does not offer this: read, write or edit the files one by one
        asked 0: the client's workspace server does not offer this: read, write or edit the files one by one
        asked 0: the client's workspace server does not offer this: read, write or edit the files one by one
        asked 1: write_files {"files":[{"path":"$PROJECT/b.txt","content":"b"},{"path":"$PROJECT/c.txt","content":"c"}]}
        asked 1: append_file {"path":"$PROJECT/a.txt","content":"more"}
        asked 1: move_file {"from":"$PROJECT/a.txt","to":"$PROJECT/d.txt"}
        asked 1: delete_file {"path":"$PROJECT/a.txt"}
        asked 0: stat_file {"path":"$PROJECT/a.txt"}
    "#]].assert_eq(&told);
}

#[tokio::test]
async fn workspace_writes_need_permission() {
    let scene = AgentFixture::new();
    let mut program = scene.start_agent(&["--mode", "ask"]);
    program.mcp_responder = Some(Box::new(workspace_server));
    program.initialize(json!({})).await;
    let session = open_session(&mut program, &scene).await;
    program.permission_reply = PermissionReply::Kind("reject_once");
    let told = run_turn(&mut program, &session, "write b.txt: x").await;
    assert!(told.contains("said no"), "{told}");
    assert_eq!(program.count_calls("session/request_permission"), 1);
    let writes = |program: &AgentProgram| {
        let asked = program.messages.iter().filter(|it| it["method"] == "mcp/message");
        asked.filter(|it| it["params"]["params"]["name"] == WRITE_TOOL).count()
    };
    assert_eq!(writes(&program), 0);
    program.permission_reply = PermissionReply::Kind("allow_once");
    run_turn(&mut program, &session, "write b.txt: x").await;
    assert_eq!((program.count_calls("session/request_permission"), writes(&program)), (2, 1));
    let read_only = json!({"sessionId": session, "modeId": "read-only"});
    program.call("session/set_mode", read_only).await;
    let told = run_turn(&mut program, &session, "write b.txt: x").await;
    assert_eq!((program.count_calls("session/request_permission"), writes(&program)), (2, 1), "{told}");
}

#[tokio::test]
async fn permission_requests_show_the_change() {
    let scene = AgentFixture::new();
    scene.write_file("a.txt", "saved\n");
    let mut program = scene.start_agent(&["--mode", "ask"]);
    program.mcp_responder = Some(Box::new(workspace_server));
    program.initialize(json!({})).await;
    let session = open_session(&mut program, &scene).await;
    program.permission_reply = PermissionReply::Kind("reject_once");
    let mut told = String::new();
    for prompt in ["write new.txt: x", "write a.txt: x", r#"replace "unsaved" with "typed" in a.txt"#] {
        run_turn(&mut program, &session, prompt).await;
        let asked = program.messages.iter().rfind(|it| it["method"] == "session/request_permission").unwrap();
        told += &format!("> {prompt}\n");
        for content in asked["params"]["toolCall"]["content"].as_array().unwrap() {
            told += &format!("{content}\n");
        }
    }
    // A text read for the preview would count as seen by the model.
    let reads = program.messages.iter().filter(|it| it["params"]["params"]["name"] == READ_TOOL).count();
    assert_eq!(reads, 0);
    expect![[r#"
        > write new.txt: x
        {"type":"diff","path":"$PROJECT/new.txt","newText":"x"}
        > write a.txt: x
        {"type":"content","content":{"type":"text","text":"Replaces all of a.txt:"}}
        {"type":"content","content":{"type":"text","text":"```\nx\n```"}}
        > replace "unsaved" with "typed" in a.txt
        {"type":"diff","path":"$PROJECT/a.txt","oldText":"unsaved","newText":"typed"}
    "#]]
    .assert_eq(&scene.normalize(&told));
}

#[tokio::test]
async fn the_editor_keeps_serving_its_own_capabilities() {
    let scene = AgentFixture::new();
    scene.write_file("a.txt", "saved\n");
    let mut program = scene.start_agent(&["--mode", "full"]);
    program.mcp_responder = Some(Box::new(workspace_server));
    program.initialize(json!({"fs": {"readTextFile": true, "writeTextFile": false}})).await;
    let session = open_session(&mut program, &scene).await;
    let said_of = run_turn(&mut program, &session, "read a.txt").await;
    assert!(said_of.contains("read through the editor") && said_of.contains("saved"), "{said_of}");
    // The editor's text differs from the workspace's, so the model has not seen what would be replaced.
    let told = run_turn(&mut program, &session, "write a.txt: x").await;
    assert!(told.contains("a.txt is not as it was read through the editor"), "{told}");
    program.unsaved_files.insert(scene.path("a.txt"), "unsaved\n".to_owned());
    let told = run_turn(&mut program, &session, "read a.txt\nwrite a.txt: x").await;
    assert!(told.contains("workspace server") && told.contains("the user said no"), "{told}");
    assert_eq!(scene.read_file("a.txt"), "saved\n");
}

#[tokio::test]
async fn a_directory_that_is_not_there_is_refused_unless_the_client_has_it() {
    let scene = AgentFixture::new();
    scene.write_file("file", "");
    let mut program = scene.start_agent(&[]);
    program.initialize(json!({})).await;
    let mut told = String::new();
    for name in ["none", "file"] {
        let open = json!({"cwd": scene.project().join(name), "mcpServers": []});
        let error = program.call_error("session/new", open).await;
        told += &format!("{} {}\n", error["code"], error["message"].as_str().unwrap());
    }
    expect![[r#"
        -32602 cwd $PROJECT/none is no directory of this machine: open the session in one that exists
        -32602 cwd $PROJECT/file is no directory of this machine: open the session in one that exists
    "#]]
    .assert_eq(&scene.normalize(&told));
    let mut program = scene.start_agent(&[]);
    program.initialize(json!({"fs": {"readTextFile": true, "writeTextFile": true}})).await;
    program.new_session(&scene.project().join("none")).await;
}
