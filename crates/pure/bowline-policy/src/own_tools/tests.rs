//! Tests with recorded permission requests of agents for MCP tools, and with lookalikes.

use std::fmt::Write as _;

use agent_client_protocol_schema::v1::RequestId;
use expect_test::{Expect, expect};
use serde_json::{Value, json};

use super::*;
use bowline_protocol::relay::{ProxySide, Relay, RelayEvent, RelayedMessage, Route};

fn tools() -> OwnTools {
    let tool = |name, prompt_behavior, arguments: &[&str]| {
        let arguments = arguments.iter().map(|name| (*name).to_owned()).collect();
        OwnTool { name, prompt_behavior, arguments }
    };
    let tools = vec![
        tool("read_text_file", PromptBehavior::Never, &["path", "line", "limit"]),
        tool("edit_text_file", PromptBehavior::BeforeWrite, &["path", "old_text", "new_text"]),
        tool("execute", PromptBehavior::BeforeRun, &["command", "args"]),
    ];
    OwnTools::new("bowline".to_owned(), tools)
}

/// Returns the event that the relay passes to the caller for a line.
fn event(line: &str) -> RelayEvent {
    let message: Value = serde_json::from_str(line).unwrap();
    let (id, method) = (RequestId::Number(1), message["method"].as_str().unwrap());
    let relayed = match message.get("id") {
        Some(_) => RelayedMessage::Request(&id, method),
        None => RelayedMessage::Notification(method),
    };
    match Relay::default().route(ProxySide::Agent, relayed, line.as_bytes()) {
        Route::Inspect(fact, _) => *fact,
        route => panic!("{route:?}"),
    }
}

/// Feeds an agent's messages, and shows the answer to each request: without rules, and where they leave it open.
fn check(lines: &[Value], expect: Expect) {
    let (mut tools, mut out) = (tools(), String::new());
    for line in lines {
        let line = line.to_string();
        match event(&line) {
            RelayEvent::ToolCall(message) => tools.record_tool_call(&message, line.as_bytes()),
            RelayEvent::PermissionRequested(..) => {
                let answers = [PolicyStatus::Off, PolicyStatus::Undecided].map(|rules| {
                    let answer = tools.answer_permission_request(line.as_bytes(), rules);
                    answer.map_or("passes".to_owned(), |approval| {
                        format!("{} {}", approval.tool, approval.option)
                    })
                });
                writeln!(out, "{}", answers.join(", ")).unwrap();
            }
            other => panic!("{other:?}"),
        }
    }
    expect.assert_eq(&out);
}

fn update(update: Value) -> Value {
    json!({"jsonrpc": "2.0", "method": "session/update", "params": {"sessionId": "s", "update": update}})
}

fn announce(mut call: Value) -> Value {
    call["sessionUpdate"] = json!("tool_call");
    update(call)
}

fn options() -> Value {
    json!([
        {"optionId": "yes", "name": "Yes", "kind": "allow_once"},
        {"optionId": "always", "name": "Always", "kind": "allow_always"},
        {"optionId": "no", "name": "No", "kind": "reject_once"},
    ])
}

fn permission_request(call: Value) -> Value {
    permission_request_with(call, Value::Null, options())
}

fn permission_request_with(call: Value, meta: Value, options: Value) -> Value {
    let mut params = json!({"sessionId": "s", "toolCall": call, "options": options});
    if !meta.is_null() {
        params["_meta"] = meta;
    }
    json!({"jsonrpc": "2.0", "id": 1, "method": "session/request_permission", "params": params})
}

/// A request of claude-agent-acp 0.99.0.
fn claude(tool: &str, server: &str, source: &str) -> Value {
    json!({
        "toolCallId": "toolu_2", "name": tool, "status": "pending", "title": tool, "kind": "other", "content": [],
        "rawInput": {"path": "a.txt", "old_text": "a", "new_text": "b"},
        "_meta": {"claudeCode": {"toolName": tool, "mcpServer": {"name": server, "source": source}}},
    })
}

fn with_path(tool: &str, path: Value) -> Value {
    let mut call = claude(tool, "bowline", "dynamic");
    call["rawInput"] = json!({"path": path});
    call
}

/// Returns the answer to an agent's last request where there are no rules.
fn answer(lines: &[Value]) -> String {
    let (mut tools, mut result) = (tools(), String::new());
    for line in lines.iter().map(Value::to_string) {
        match event(&line) {
            RelayEvent::ToolCall(message) => tools.record_tool_call(&message, line.as_bytes()),
            RelayEvent::PermissionRequested(..) => {
                let answer = tools.answer_permission_request(line.as_bytes(), PolicyStatus::Off);
                result = answer
                    .map_or("passes".to_owned(), |approval| format!("{} {}", approval.tool, approval.option));
            }
            other => panic!("{other:?}"),
        }
    }
    result
}

#[test]
fn each_version_in_the_table_has_a_recording_that_is_recognised() {
    let (registered, input) =
        ("mcp__bowline__edit_text_file", json!({"path": "a.txt", "old_text": "a", "new_text": "b"}));
    let marked = json!({"server": "bowline", "tool": "edit_text_file", "arguments": input});
    let execute = "mcp_bowline_execute__mcp_bowline_execute_1794931303165_0";
    let rows = [
        (
            "claude-agent-acp",
            "0.99.0",
            vec![permission_request(claude(registered, "bowline", "dynamic"))],
            "edit_text_file yes",
        ),
        (
            "qwen",
            "0.24.4",
            vec![qwen(registered, "edit_text_file", input.clone())],
            "edit_text_file proceed_once",
        ),
        (
            "codex-acp",
            "2.6.0",
            vec![codex("1", marked, true), codex_permission_request("1")],
            "edit_text_file yes",
        ),
        (
            "gemini",
            "0.61.0",
            vec![gemini("edit_text_file (bowline MCP Server)", "other", &input.to_string())],
            "edit_text_file proceed_once",
        ),
        (
            "gemini",
            "0.61.0",
            vec![gemini_command(execute, "make", r#"{"command":"make"}"#)],
            "execute proceed_once",
        ),
        ("kimi-code", "2.1.0", vec![kimi("1:a", registered)], "edit_text_file approve_once"),
        (
            "vibe",
            "3.0.2",
            vec![vibe("1", "mcp_bowline.edit_text_file", input.clone()), vibe_permission_request("1")],
            "edit_text_file allow_once",
        ),
        (
            "fast-agent",
            "0.10.46",
            fast("1", "bowline/edit_text_file", "edit", input.clone()).to_vec(),
            "edit_text_file yes",
        ),
    ];
    for (agent, version, lines, expected) in &rows {
        assert_eq!(answer(lines), *expected, "{agent} {version}");
    }
    let mut recorded: Vec<(&str, &str)> =
        rows.iter().map(|(agent, version, ..)| (*agent, *version)).collect();
    recorded.dedup();
    let known: Vec<(&str, &str)> = REQUEST_SHAPES
        .iter()
        .flat_map(|shape| shape.versions.iter().map(|version| (shape.agent, *version)))
        .collect();
    assert_eq!(recorded, known);
}

#[test]
fn a_request_of_claude_is_ours_by_its_server_and_where_that_is_from() {
    let mut without_server = claude("mcp__bowline__edit_text_file", "bowline", "dynamic");
    without_server["_meta"]["claudeCode"].as_object_mut().unwrap().remove("mcpServer");
    check(
        &[
            permission_request(claude("mcp__bowline__edit_text_file", "bowline", "dynamic")),
            permission_request(claude("mcp__bowline__read_text_file", "bowline", "dynamic")),
            permission_request(claude("mcp__bowline__execute", "bowline", "dynamic")),
            // A server from the project's settings, another server, an unknown tool, no server at all.
            permission_request(claude("mcp__bowline__edit_text_file", "bowline", "project")),
            permission_request(claude("mcp__bowline__edit_text_file", "other", "dynamic")),
            permission_request(claude("mcp__other__edit_text_file", "bowline", "dynamic")),
            permission_request(claude("mcp__bowline__publish", "bowline", "dynamic")),
            permission_request(claude("Bash", "bowline", "dynamic")),
            permission_request(without_server),
            permission_request(with_path("mcp__bowline__read_text_file", json!(".env"))),
            permission_request(with_path("mcp__bowline__read_text_file", json!("/w/.ssh/id_ed25519"))),
            permission_request(with_path("mcp__bowline__read_text_file", json!(7))),
            // A tool that asks itself shows the file.
            permission_request(with_path("mcp__bowline__edit_text_file", json!(".env"))),
        ],
        expect![[r#"
            edit_text_file yes, edit_text_file yes
            read_text_file yes, passes
            execute yes, execute yes
            passes, passes
            passes, passes
            passes, passes
            passes, passes
            passes, passes
            passes, passes
            passes, passes
            passes, passes
            passes, passes
            edit_text_file yes, edit_text_file yes
        "#]],
    );
}

/// An announcement of codex-acp 2.6.0.
fn codex(id: &str, input: Value, is_mcp: bool) -> Value {
    let mut call = json!({
        "toolCallId": id, "kind": "execute", "title": "mcp.bowline.edit_text_file", "status": "in_progress",
        "rawInput": input,
    });
    if is_mcp {
        call["_meta"] = json!({"is_mcp_tool_call": true});
    }
    announce(call)
}

/// A request of codex-acp 2.6.0.
fn codex_permission_request(id: &str) -> Value {
    let call = json!({"toolCallId": id, "kind": "execute", "status": "pending"});
    permission_request_with(call, json!({"is_mcp_tool_approval": true}), options())
}

#[test]
fn a_request_of_codex_is_ours_by_the_call_that_it_announced() {
    let input =
        |server: &str, tool: &str| json!({"server": server, "tool": tool, "arguments": {"path": "a.txt"}});
    check(
        &[
            codex_permission_request("not announced"),
            codex("edit", input("bowline", "edit_text_file"), true),
            codex_permission_request("edit"),
            update(
                json!({"sessionUpdate": "tool_call_update", "toolCallId": "edit", "status": "in_progress"}),
            ),
            codex_permission_request("edit"),
            // The request itself has no mark, so it is for something else.
            permission_request(json!({"toolCallId": "edit", "kind": "execute", "status": "pending"})),
            codex("read", input("bowline", "read_text_file"), true),
            codex_permission_request("read"),
            codex("other", input("other", "edit_text_file"), true),
            codex_permission_request("other"),
            codex("missing", input("bowline", "publish"), true),
            codex_permission_request("missing"),
            codex(
                "secret",
                json!({"server": "bowline", "tool": "read_text_file", "arguments": {"path": ".env"}}),
                true,
            ),
            codex_permission_request("secret"),
            // A command whose words look like a tool.
            codex("shell", json!({"command": ["bowline", "edit_text_file"], "cwd": "/"}), false),
            codex_permission_request("shell"),
            codex("unmarked", input("bowline", "edit_text_file"), false),
            codex_permission_request("unmarked"),
            // It becomes another call.
            update(json!({
                "sessionUpdate": "tool_call_update", "toolCallId": "edit", "rawInput": input("other", "edit_text_file"),
            })),
            codex_permission_request("edit"),
            update(json!({"sessionUpdate": "tool_call_update", "toolCallId": "read", "status": "completed"})),
            codex_permission_request("read"),
        ],
        expect![[r#"
            passes, passes
            edit_text_file yes, edit_text_file yes
            edit_text_file yes, edit_text_file yes
            passes, passes
            read_text_file yes, passes
            passes, passes
            passes, passes
            passes, passes
            passes, passes
            passes, passes
            passes, passes
            passes, passes
        "#]],
    );
}

/// The announcement of fast-agent 0.10.46 while its model writes the call, and its request.
fn fast(id: &str, title: &str, kind: &str, input: Value) -> [Value; 2] {
    let call = json!({"toolCallId": id, "title": title, "kind": kind, "status": "pending"});
    let mut request = call.clone();
    request["rawInput"] = input;
    [announce(call), permission_request(request)]
}

#[test]
fn a_request_of_fast_agent_is_ours_by_a_title_that_no_command_can_have() {
    let input = || json!({"path": "a.txt", "old_text": "a", "new_text": "b"});
    let streaming = json!({
        "sessionUpdate": "tool_call_update", "toolCallId": "1", "title": "bowline/edit_text_file (streaming: 3)",
    });
    let [announced, request] = fast("1", "bowline/edit_text_file", "edit", input());
    let becomes_other =
        json!({"sessionUpdate": "tool_call_update", "toolCallId": "1", "title": "other/edit_text_file"});
    let lines = [
        vec![request.clone(), announced, update(streaming), request.clone(), update(becomes_other), request],
        fast("2", "bowline/read_text_file", "read", json!({"path": "a.txt"})).to_vec(),
        // A program of the project: by its title alone, with the kind of a command, or with the input of one.
        vec![permission_request(
            json!({"toolCallId": "pending", "title": "bowline/edit_text_file", "kind": "edit", "rawInput": input()}),
        )],
        fast("3", "bowline/edit_text_file", "execute", input()).to_vec(),
        fast("4", "bowline/edit_text_file", "edit", json!({"command": "bowline/edit_text_file"})).to_vec(),
        fast("5", "bowline/edit_text_file", "edit", json!({})).to_vec(),
        fast("6", "bowline/edit_text_file", "edit", Value::Null).to_vec(),
        fast("7", "bowline/execute", "execute", json!({"command": "rm"})).to_vec(),
        fast("8", "bowline/execute", "other", json!({"command": "rm"})).to_vec(),
        // Lookalike titles.
        fast("9", "bowline/edit_text_file ", "edit", input()).to_vec(),
        fast("10", "./bowline/edit_text_file", "edit", input()).to_vec(),
        fast("11", "run bowline/edit_text_file", "edit", input()).to_vec(),
        fast("12", "bowline-2/edit_text_file", "edit", input()).to_vec(),
        fast("13", "bowline/publish", "edit", input()).to_vec(),
        fast("14", "edit_text_file", "edit", input()).to_vec(),
    ];
    check(
        &lines.concat(),
        expect![[r#"
            passes, passes
            edit_text_file yes, edit_text_file yes
            passes, passes
            read_text_file yes, passes
            passes, passes
            passes, passes
            passes, passes
            passes, passes
            passes, passes
            passes, passes
            passes, passes
            passes, passes
            passes, passes
            passes, passes
            passes, passes
            passes, passes
            passes, passes
        "#]],
    );
}

#[test]
fn a_call_that_may_be_a_command_at_any_point_is_asked_about() {
    let input = || json!({"path": "a.txt", "old_text": "a", "new_text": "b"});
    let call = |id: &str, kind: Option<&str>| {
        let mut call = json!({"toolCallId": id, "title": "bowline/edit_text_file", "rawInput": input()});
        if let Some(kind) = kind {
            call["kind"] = json!(kind);
        }
        call
    };
    let change_kind = |id: &str, kind: &str| {
        update(json!({"sessionUpdate": "tool_call_update", "toolCallId": id, "kind": kind}))
    };
    let mut unannounced = call("5", Some("edit"));
    unannounced["sessionUpdate"] = json!("tool_call_update");
    let lines = [
        vec![announce(call("1", Some("edit"))), permission_request(call("1", Some("edit")))],
        // Announced as a command, requested as a command, requested as another kind.
        vec![announce(call("2", Some("execute"))), permission_request(call("2", Some("edit")))],
        vec![announce(call("3", Some("edit"))), permission_request(call("3", Some("execute")))],
        vec![permission_request(call("3", None))],
        // It becomes a command.
        vec![
            announce(call("4", Some("edit"))),
            change_kind("4", "execute"),
            permission_request(call("4", Some("edit"))),
        ],
        // An update announces nothing.
        vec![update(unannounced), permission_request(call("5", Some("edit")))],
    ];
    check(
        &lines.concat(),
        expect![[r#"
            edit_text_file yes, edit_text_file yes
            passes, passes
            passes, passes
            passes, passes
            passes, passes
            passes, passes
        "#]],
    );
}

#[test]
fn a_request_of_codex_without_its_mark_is_the_editors() {
    let input = json!({"server": "bowline", "tool": "edit_text_file", "arguments": {"path": "a.txt"}});
    let call = json!({"toolCallId": "edit", "kind": "execute", "status": "pending"});
    check(
        &[
            codex("edit", input, true),
            permission_request_with(call.clone(), json!({"is_mcp_tool_approval": true}), options()),
            permission_request_with(call.clone(), json!({"is_mcp_tool_approval": false}), options()),
            permission_request_with(call, json!({"another": true}), options()),
        ],
        expect![[r#"
            edit_text_file yes, edit_text_file yes
            passes, passes
            passes, passes
        "#]],
    );
}

#[test]
fn only_one_option_that_allows_it_once_is_taken() {
    let call = || claude("mcp__bowline__edit_text_file", "bowline", "dynamic");
    let option = |id: &str, kind: &str| json!({"optionId": id, "name": id, "kind": kind});
    check(
        &[
            permission_request_with(
                call(),
                Value::Null,
                json!([option("always", "allow_always"), option("no", "reject_once")]),
            ),
            permission_request_with(
                call(),
                Value::Null,
                json!([option("a", "allow_once"), option("b", "allow_once")]),
            ),
            permission_request_with(call(), Value::Null, json!([])),
            permission_request_with(
                call(),
                Value::Null,
                json!([option("no", "reject_once"), option("b", "allow_once")]),
            ),
        ],
        expect![[r#"
            passes, passes
            passes, passes
            passes, passes
            edit_text_file b, edit_text_file b
        "#]],
    );
}

#[test]
fn gemini_and_others_that_say_it_in_a_way_of_their_own_pass() {
    let gemini = json!({
        "toolCallId": "mcp_bowline_read_text_file__mcp_bowline_read_text_file_1794811523891_0", "status": "pending",
        "title": "read_text_file (bowline MCP Server)", "locations": [], "kind": "other",
        "content": [{"type": "content", "content": {"type": "text", "text": "{\"path\":\"a.txt\"}"}}],
    });
    let mut twice =
        permission_request(claude("mcp__bowline__edit_text_file", "other", "dynamic")).to_string();
    twice = twice.replacen(
        r#""mcpServer":"#,
        r#""mcpServer":{"name":"bowline","source":"dynamic"},"mcpServer":"#,
        1,
    );
    assert_eq!(tools().answer_permission_request(twice.as_bytes(), PolicyStatus::Off), None);
    check(
        &[permission_request(gemini)],
        expect![[r#"
        passes, passes
    "#]],
    );
}

#[test]
fn so_many_calls_are_known_and_no_more() {
    let mut tools = tools();
    for number in 0..=MAX_CALLS {
        let id = number.to_string();
        let [announced, _] = fast(&id, "bowline/edit_text_file", "edit", Value::Null);
        let line = announced.to_string();
        let RelayEvent::ToolCall(message) = event(&line) else { panic!("{line}") };
        tools.record_tool_call(&message, line.as_bytes());
    }
    assert_eq!(tools.calls.len(), MAX_CALLS);
    let is_answered = |id: &str| {
        let [_, request] = fast(id, "bowline/edit_text_file", "edit", json!({"path": "a"}));
        tools.answer_permission_request(request.to_string().as_bytes(), PolicyStatus::Off).is_some()
    };
    assert_eq!(
        (is_answered("0"), is_answered("1"), is_answered(&MAX_CALLS.to_string())),
        (false, true, true)
    );
}

/// A request of gemini 0.61.0 for an MCP tool.
fn gemini(title: &str, kind: &str, text: &str) -> Value {
    let call = json!({
        "toolCallId": "mcp_bowline_edit_text_file-1763374000000-1", "status": "pending", "title": title, "kind": kind,
        "content": [{"type": "content", "content": {"type": "text", "text": text}}], "locations": [],
    });
    let options = json!([
        {"optionId": "proceed_always_server", "name": "Allow all server tools for this session", "kind": "allow_always"},
        {"optionId": "proceed_always_tool", "name": "Allow tool for this session", "kind": "allow_always"},
        {"optionId": "proceed_once", "name": "Allow", "kind": "allow_once"},
        {"optionId": "cancel", "name": "Reject", "kind": "reject_once"},
    ]);
    permission_request_with(call, Value::Null, options)
}

#[test]
fn a_request_of_gemini_is_ours_by_its_title_if_no_command_can_be_in_it() {
    let edit = "edit_text_file (bowline MCP Server)";
    let input = r#"{"path":"a.txt","old_text":"a","new_text":"b"}"#;
    let omitted = |names: &str| format!("[Payload omitted due to length with parameters: {names}]");
    let mut of_a_command = gemini(edit, "other", input);
    of_a_command["params"]["options"] = options();
    let mut with_diff = gemini(edit, "other", input);
    with_diff["params"]["toolCall"]["content"]
        .as_array_mut()
        .unwrap()
        .push(json!({"type": "diff", "path": "/w/a"}));
    let mut odd_content = gemini(edit, "other", input);
    odd_content["params"]["toolCall"]["content"] = json!({"text": input});
    check(
        &[
            gemini(edit, "other", input),
            gemini(edit, "other", &omitted("path, old_text, new_text")),
            gemini("read_text_file (bowline MCP Server)", "other", r#"{"path":"a.txt"}"#),
            // Secrets, and an omitted input.
            gemini("read_text_file (bowline MCP Server)", "other", r#"{"path":".env"}"#),
            gemini("read_text_file (bowline MCP Server)", "other", &omitted("path")),
            // A tool of another server with a command, which then becomes the title.
            gemini(edit, "other", r#"{"command":"edit_text_file (bowline MCP Server)"}"#),
            gemini(edit, "other", r#"{"command":"edit_text_file (bowline MCP Server)","path":"a.txt"}"#),
            gemini(edit, "other", &omitted("path, command, old_text")),
            gemini(edit, "other", &omitted("path, old_text, new_text, path, path, ...")),
            gemini(edit, "other", &omitted("")),
            gemini(edit, "other", "{}"),
            gemini("execute (bowline MCP Server)", "other", r#"{"command":"execute (bowline MCP Server)"}"#),
            // Other tools.
            gemini("edit_text_file (other MCP Server)", "other", input),
            gemini("publish (bowline MCP Server)", "other", input),
            gemini("run edit_text_file (bowline MCP Server)", "other", input),
            gemini(edit, "execute", input),
            of_a_command,
            with_diff,
            odd_content,
        ],
        expect![[r#"
            edit_text_file proceed_once, edit_text_file proceed_once
            edit_text_file proceed_once, edit_text_file proceed_once
            read_text_file proceed_once, passes
            passes, passes
            passes, passes
            passes, passes
            passes, passes
            passes, passes
            passes, passes
            passes, passes
            passes, passes
            passes, passes
            passes, passes
            passes, passes
            passes, passes
            passes, passes
            passes, passes
            passes, passes
            passes, passes
        "#]],
    );
}

/// A request of gemini 0.61.0 for an MCP tool with a command, which then becomes the title.
fn gemini_command(id: &str, command: &str, text: &str) -> Value {
    let mut request = gemini(command, "other", text);
    request["params"]["toolCall"]["toolCallId"] = json!(id);
    request
}

#[test]
fn a_command_of_gemini_is_ours_by_the_registered_name_in_its_id() {
    let id = "mcp_bowline_execute__mcp_bowline_execute_1794931303165_0";
    let input = r#"{"command":"make"}"#;
    let omitted = "[Payload omitted due to length with parameters: command, args]";
    let mut of_a_shell = gemini_command(id, "make", input);
    of_a_shell["params"]["options"] = options();
    let mut as_command = gemini_command(id, "make", input);
    as_command["params"]["toolCall"]["kind"] = json!("execute");
    check(
        &[
            gemini_command(id, "make", input),
            gemini_command(id, "make", omitted),
            // An id chosen by a model's server.
            gemini_command("mcp_bowline_execute__0f3a", "make", input),
            // Tools of other servers.
            gemini_command("mcp_other_execute__0f3a", "make", input),
            gemini_command("mcp_bowline_execute___x__0f3a", "make", input),
            gemini_command("mcp_bowline_execute__x__0f3a", "make", input),
            gemini_command("other__mcp_bowline_execute__0f3a", "make", input),
            gemini_command("mcp_bowline_execute__", "make", input),
            gemini_command("mcp_bowline_execute", "make", input),
            gemini_command("run_shell_command__0f3a", "make", input),
            // Ids count for no other tool: their titles say more.
            gemini_command("mcp_bowline_edit_text_file__0f3a", "make", r#"{"path":"a.txt"}"#),
            // An argument that the tool does not have.
            gemini_command(id, "make", r#"{"command":"make","script":"x"}"#),
            gemini_command(id, "make", "{}"),
            of_a_shell,
            as_command,
        ],
        expect![[r#"
            execute proceed_once, execute proceed_once
            execute proceed_once, execute proceed_once
            execute proceed_once, execute proceed_once
            passes, passes
            passes, passes
            passes, passes
            passes, passes
            passes, passes
            passes, passes
            passes, passes
            passes, passes
            passes, passes
            passes, passes
            passes, passes
            passes, passes
        "#]],
    );
}

/// A request of qwen 0.24.4 for a tool; `named` is the name in its options.
fn qwen(tool: &str, named: &str, input: Value) -> Value {
    let call = json!({
        "toolCallId": "call_1", "status": "pending", "title": input.to_string(), "content": [], "locations": [],
        "kind": "other", "rawInput": input, "_meta": {"toolName": tool},
    });
    let options = json!([
        {"optionId": "proceed_always_project", "name": format!("Always Allow in project: {named}"), "kind": "allow_always"},
        {"optionId": "proceed_always_user", "name": format!("Always Allow for user: {named}"), "kind": "allow_always"},
        {"optionId": "proceed_once", "name": "Allow", "kind": "allow_once"},
        {"optionId": "cancel", "name": "Reject", "kind": "reject_once"},
    ]);
    permission_request_with(call, Value::Null, options)
}

#[test]
fn a_request_of_qwen_is_ours_by_the_registered_name_and_the_options_of_mcp_tools() {
    let input = || json!({"path": "a.txt", "old_text": "a", "new_text": "b"});
    let edit = "mcp__bowline__edit_text_file";
    let mut without_label = qwen(edit, "edit_text_file", input());
    without_label["params"]["options"][0]["name"] = json!("Always Allow in project");
    let mut twice = qwen(edit, "edit_text_file", input());
    let switching =
        json!({"optionId": "proceed_once_and_switch_to_default", "name": "Yes", "kind": "allow_once"});
    twice["params"]["options"].as_array_mut().unwrap().push(switching);
    check(
        &[
            qwen(edit, "edit_text_file", input()),
            qwen("mcp__bowline__read_text_file", "read_text_file", json!({"path": "a.txt"})),
            qwen("mcp__bowline__execute", "execute", json!({"command": "make"})),
            qwen("mcp__bowline__read_text_file", "read_text_file", json!({"path": ".env"})),
            qwen("mcp__other__edit_text_file", "edit_text_file", input()),
            qwen("mcp__bowline__publish", "publish", input()),
            qwen("edit_text_file", "edit_text_file", input()),
            // A tool of the project under our name, and a command.
            qwen(edit, "sh", input()),
            without_label,
            qwen("run_shell_command", "edit_text_file", json!({"command": edit})),
            // It is unclear which of the two means only this once.
            twice,
        ],
        expect![[r#"
            edit_text_file proceed_once, edit_text_file proceed_once
            read_text_file proceed_once, passes
            execute proceed_once, execute proceed_once
            passes, passes
            passes, passes
            passes, passes
            passes, passes
            passes, passes
            passes, passes
            passes, passes
            passes, passes
        "#]],
    );
}

/// A request of kimi-code 2.1.0.
fn kimi(id: &str, title: &str) -> Value {
    let text = format!("Requesting approval to Approve {title}");
    let content = json!([{"type": "content", "content": {"type": "text", "text": text}}]);
    let options = json!([
        {"optionId": "approve_once", "name": "Approve once", "kind": "allow_once"},
        {"optionId": "approve_always", "name": "Approve for this session", "kind": "allow_always"},
        {"optionId": "reject", "name": "Reject", "kind": "reject_once"},
    ]);
    permission_request_with(
        json!({"toolCallId": id, "title": title, "content": content}),
        Value::Null,
        options,
    )
}

#[test]
fn a_request_of_kimi_is_ours_by_its_title_and_a_read_by_the_call_that_it_announced() {
    let started = |id: &str, title: &str| {
        announce(
            json!({"toolCallId": id, "title": title, "kind": "other", "status": "pending", "content": []}),
        )
    };
    let in_progress = |id: &str, path: Value| {
        update(json!({
            "sessionUpdate": "tool_call_update", "toolCallId": id, "title": "Read", "kind": "read",
            "status": "in_progress", "rawInput": {"path": path},
        }))
    };
    let (read, edit) = ("mcp__bowline__read_text_file", "mcp__bowline__edit_text_file");
    let mut with_other_options = kimi("1:d", edit);
    with_other_options["params"]["options"] = options();
    let mut as_command = kimi("1:d", edit);
    as_command["params"]["toolCall"]["kind"] = json!("execute");
    let mut with_input = kimi("1:d", edit);
    with_input["params"]["toolCall"]["rawInput"] = json!({"command": edit});
    check(
        &[
            kimi("1:a", edit),
            kimi("1:a", "mcp__bowline__execute"),
            // The file it reads is unknown, known, a secret.
            kimi("1:b", read),
            started("1:b", read),
            kimi("1:b", read),
            in_progress("1:b", json!("a.txt")),
            kimi("1:b", read),
            in_progress("1:b", json!(".env")),
            kimi("1:b", read),
            announce(json!({"toolCallId": "1:c", "title": "Read a file", "rawInput": {"path": "a.txt"}})),
            kimi("1:c", read),
            // Other tools.
            kimi("1:d", "Bash"),
            kimi("1:d", "mcp__other__edit_text_file"),
            kimi("1:d", "mcp__bowline__publish"),
            with_other_options,
            as_command,
            with_input,
        ],
        expect![[r#"
            edit_text_file approve_once, edit_text_file approve_once
            execute approve_once, execute approve_once
            passes, passes
            passes, passes
            read_text_file approve_once, passes
            passes, passes
            read_text_file approve_once, passes
            passes, passes
            passes, passes
            passes, passes
            passes, passes
            passes, passes
            passes, passes
        "#]],
    );
}

/// An announcement of vibe 3.0.2.
fn vibe(id: &str, tool: &str, input: Value) -> Value {
    announce(json!({
        "toolCallId": id, "title": tool, "kind": "other", "status": "in_progress", "rawInput": input,
        "_meta": {"tool_name": tool, "effect_kind": "tool"},
    }))
}

/// A request of vibe 3.0.2.
fn vibe_permission_request(id: &str) -> Value {
    let options = json!([
        {"optionId": "allow_once", "name": "Allow once", "kind": "allow_once"},
        {"optionId": "allow_always", "name": "Allow for remainder of this session", "kind": "allow_always"},
        {"optionId": "allow_always_permanent", "name": "Always allow", "kind": "allow_always"},
        {"optionId": "reject_once", "name": "Deny", "kind": "reject_once"},
    ]);
    permission_request_with(json!({"toolCallId": id}), Value::Null, options)
}

#[test]
fn a_request_of_vibe_is_ours_by_the_registered_name_of_the_call_that_it_announced() {
    let (read, edit) = ("mcp_bowline.read_text_file", "mcp_bowline.edit_text_file");
    let path = |path: &str| json!({"path": path});
    let becomes = |id: &str, changed: Value| {
        let mut changed = changed;
        changed["sessionUpdate"] = json!("tool_call_update");
        changed["toolCallId"] = json!(id);
        update(changed)
    };
    // A command of vibe's own, whatever its text.
    let mut shell = vibe("shell", "bash", json!({"command": edit}));
    shell["params"]["update"]["title"] = json!(edit);
    shell["params"]["update"]["_meta"]["effect_kind"] = json!("shell");
    let mut of_other_kind = vibe("kind", edit, path("a.txt"));
    of_other_kind["params"]["update"]["_meta"]["effect_kind"] = json!("shell");
    let mut by_title = vibe("title", edit, path("a.txt"));
    by_title["params"]["update"].as_object_mut().unwrap().remove("_meta");
    let mut with_input = vibe_permission_request("edit");
    with_input["params"]["toolCall"]["rawInput"] = json!({"command": edit});
    let mut of_a_path = vibe_permission_request("edit");
    of_a_path["params"]["options"][1]["optionId"] = json!("allow_session_exact");
    check(
        &[
            vibe_permission_request("not announced"),
            vibe("edit", edit, path("a.txt")),
            vibe_permission_request("edit"),
            with_input,
            of_a_path,
            becomes("edit", json!({"status": "in_progress"})),
            vibe_permission_request("edit"),
            vibe("run", "mcp_bowline.execute", json!({"command": "make"})),
            vibe_permission_request("run"),
            vibe("read", read, path("a.txt")),
            vibe_permission_request("read"),
            becomes("read", json!({"rawInput": path(".env")})),
            vibe_permission_request("read"),
            vibe("secret", read, path(".env")),
            vibe_permission_request("secret"),
            vibe("unknown", read, Value::Null),
            vibe_permission_request("unknown"),
            // Other servers, one of them under a name that vibe had to change, and an unknown tool.
            vibe("other", "mcp_other.edit_text_file", path("a.txt")),
            vibe_permission_request("other"),
            vibe("renamed", "mcp_bowline_1a2b3c4d.edit_text_file", path("a.txt")),
            vibe_permission_request("renamed"),
            vibe("missing", "mcp_bowline.publish", path("a.txt")),
            vibe_permission_request("missing"),
            shell,
            vibe_permission_request("shell"),
            of_other_kind,
            vibe_permission_request("kind"),
            by_title,
            vibe_permission_request("title"),
            becomes("edit", json!({"_meta": {"tool_name": "bash", "effect_kind": "shell"}})),
            vibe_permission_request("edit"),
            becomes("run", json!({"status": "completed"})),
            vibe_permission_request("run"),
        ],
        expect![[r#"
            passes, passes
            edit_text_file allow_once, edit_text_file allow_once
            passes, passes
            passes, passes
            edit_text_file allow_once, edit_text_file allow_once
            execute allow_once, execute allow_once
            read_text_file allow_once, passes
            passes, passes
            passes, passes
            passes, passes
            passes, passes
            passes, passes
            passes, passes
            passes, passes
            passes, passes
            passes, passes
            passes, passes
            passes, passes
        "#]],
    );
}
