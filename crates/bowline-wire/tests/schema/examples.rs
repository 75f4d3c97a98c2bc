//! Tests of the examples in the protocol's documents, as our builders and peers write them.

use std::path::PathBuf;

use agent_client_protocol_schema::ProtocolVersion;
use agent_client_protocol_schema::v1::{
    CLIENT_METHOD_NAMES, ClientCapabilities, ContentBlock, CreateTerminalRequest, CreateTerminalResponse,
    FileSystemCapabilities, ImageContent, InitializeRequest, InitializeResponse, KillTerminalRequest,
    PermissionOption, PermissionOptionKind, ReadTextFileRequest, ReadTextFileResponse,
    ReleaseTerminalRequest, ReleaseTerminalResponse, RequestId, RequestPermissionOutcome,
    RequestPermissionRequest, RequestPermissionResponse, SelectedPermissionOutcome, SessionNotification,
    TerminalExitStatus, TerminalOutputRequest, TerminalOutputResponse, ToolCall, ToolCallStatus,
    ToolCallUpdate, ToolCallUpdateFields, WaitForTerminalExitRequest, WaitForTerminalExitResponse,
    WriteTextFileRequest, WriteTextFileResponse,
};
use bowline_protocol::builders::{
    IntoSessionUpdate, content, diff, start_edit, start_read, start_tool_call, terminal, text,
    update_tool_call,
};
use bowline_protocol::rpc_error::RpcError;
use bowline_wire::message::methods::{
    RpcNotification, RpcRequest, SetSessionModelRequest, SetSessionModelResponse,
};
use expect_test::{Expect, expect};
use serde_json::{Value, json};

use crate::messages::WireType;
use crate::official_schema;
use crate::peer_pair::{PeerPair, RoundTrip};

/// Parses the example as a request, expects these params, and shows how they are written and how that differs.
fn check_request<R: RpcRequest + WireType>(example: &str, params: &R, expected: Expect) {
    let id = parse(example)["id"].as_i64().unwrap();
    let (got, method, received) = PeerPair::default().receive_request::<R>(example);
    assert_eq!((got, method.as_str(), &received), (RequestId::Number(id), R::METHOD, params));
    check_written(example, &PeerPair::default().carry_request_with_id(id, R::METHOD, params), expected);
}

/// As [`check_request`], for the answer to an `R`.
fn check_response<R: RpcRequest>(example: &str, result: &R::Response, expected: Expect)
where
    R::Response: RoundTrip,
{
    let id = parse(example)["id"].as_i64().unwrap();
    assert_eq!(&PeerPair::default().receive_response::<R::Response>(id, example), result);
    let mut pair = PeerPair::default();
    pair.carry_request_with_id(id, R::METHOD, &json!({}));
    check_written(example, &pair.carry_response_to(id, result), expected);
}

/// As [`check_request`], for an update of the session `sess_123`.
fn check_update(example: &str, update: impl IntoSessionUpdate, expected: Expect) {
    let params = SessionNotification::new("sess_123", update.into_session_update());
    assert_eq!(PeerPair::default().receive_notification::<SessionNotification>(example).1, params);
    check_written(
        example,
        &PeerPair::default().carry_notification(SessionNotification::METHOD, &params),
        expected,
    );
}

fn check_written(example: &str, line: &str, expected: Expect) {
    let mut output = line.to_owned();
    describe_differences("", Some(&parse(example)), Some(&parse(line)), &mut output);
    expected.assert_eq(&output);
}

/// Adds a line for each difference from the example.
fn describe_differences(at: &str, example: Option<&Value>, actual: Option<&Value>, output: &mut String) {
    match (example, actual) {
        (Some(Value::Object(example)), Some(Value::Object(actual))) => {
            let added = actual.keys().filter(|key| !example.contains_key(*key));
            for key in example.keys().chain(added) {
                describe_differences(&format!("{at}/{key}"), example.get(key), actual.get(key), output);
            }
        }
        (example, actual) if example == actual => {}
        (example, actual) => {
            let [example, actual] =
                [example, actual].map(|value| value.map_or("nothing".to_owned(), Value::to_string));
            *output += &format!("  {at}: the example has {example}, we have {actual}\n");
        }
    }
}

fn parse(text: &str) -> Value {
    serde_json::from_str(text).unwrap()
}

/// The documents show the client's capabilities in the answer to `initialize`; they belong in the request.
#[test]
fn capabilities_are_read_where_they_belong() {
    let example = r#"{
  "jsonrpc": "2.0",
  "id": 0,
  "result": {
    "protocolVersion": 1,
    "clientCapabilities": {
      "fs": {
        "readTextFile": true,
        "writeTextFile": true
      }
    }
  }
}"#;
    check_response::<InitializeRequest>(
        example,
        &InitializeResponse::new(ProtocolVersion::V1),
        expect![[r#"
            {"jsonrpc":"2.0","id":0,"result":{"protocolVersion":1,"agentCapabilities":{"loadSession":false,"promptCapabilities":{"image":false,"audio":false,"embeddedContext":false},"mcpCapabilities":{"http":false,"sse":false,"acp":false},"sessionCapabilities":{},"auth":{}},"authMethods":[]}}
              /result/clientCapabilities: the example has {"fs":{"readTextFile":true,"writeTextFile":true}}, we have nothing
              /result/agentCapabilities: the example has nothing, we have {"loadSession":false,"promptCapabilities":{"image":false,"audio":false,"embeddedContext":false},"mcpCapabilities":{"http":false,"sse":false,"acp":false},"sessionCapabilities":{},"auth":{}}
              /result/authMethods: the example has nothing, we have []
        "#]],
    );

    let moved =
        json!({ "jsonrpc": "2.0", "id": 0, "method": "initialize", "params": parse(example)["result"] });
    let fs = FileSystemCapabilities::new().read_text_file(true).write_text_file(true);
    check_request(
        &moved.to_string(),
        &InitializeRequest::new(ProtocolVersion::V1).client_capabilities(ClientCapabilities::new().fs(fs)),
        expect![[r#"
            {"jsonrpc":"2.0","id":0,"method":"initialize","params":{"protocolVersion":1,"clientCapabilities":{"fs":{"readTextFile":true,"writeTextFile":true},"terminal":false,"auth":{"terminal":false}}}}
              /params/clientCapabilities/terminal: the example has nothing, we have false
              /params/clientCapabilities/auth: the example has nothing, we have {"terminal":false}
        "#]],
    );
}

#[test]
fn a_file_is_read() {
    check_request(
        r#"{
  "jsonrpc": "2.0",
  "id": 3,
  "method": "fs/read_text_file",
  "params": {
    "sessionId": "sess_abc123def456",
    "path": "/home/user/project/src/main.py",
    "line": 10,
    "limit": 50
  }
}"#,
        &ReadTextFileRequest::new("sess_abc123def456", "/home/user/project/src/main.py").line(10).limit(50),
        expect![[r#"
            {"jsonrpc":"2.0","id":3,"method":"fs/read_text_file","params":{"sessionId":"sess_abc123def456","path":"/home/user/project/src/main.py","line":10,"limit":50}}
        "#]],
    );
    check_response::<ReadTextFileRequest>(
        r#"{
  "jsonrpc": "2.0",
  "id": 3,
  "result": {
    "content": "def hello_world():\n    print('Hello, world!')\n"
  }
}"#,
        &ReadTextFileResponse::new("def hello_world():\n    print('Hello, world!')\n"),
        expect![[r#"
            {"jsonrpc":"2.0","id":3,"result":{"content":"def hello_world():\n    print('Hello, world!')\n"}}
        "#]],
    );
}

#[test]
fn a_file_is_written() {
    check_request(
        r#"{
  "jsonrpc": "2.0",
  "id": 4,
  "method": "fs/write_text_file",
  "params": {
    "sessionId": "sess_abc123def456",
    "path": "/home/user/project/config.json",
    "content": "{\n  \"debug\": true,\n  \"version\": \"1.0.0\"\n}"
  }
}"#,
        &WriteTextFileRequest::new(
            "sess_abc123def456",
            "/home/user/project/config.json",
            "{\n  \"debug\": true,\n  \"version\": \"1.0.0\"\n}",
        ),
        expect![[r#"
            {"jsonrpc":"2.0","id":4,"method":"fs/write_text_file","params":{"sessionId":"sess_abc123def456","path":"/home/user/project/config.json","content":"{\n  \"debug\": true,\n  \"version\": \"1.0.0\"\n}"}}
        "#]],
    );
    check_response::<WriteTextFileRequest>(
        r#"{
  "jsonrpc": "2.0",
  "id": 4,
  "result": {}
}"#,
        &WriteTextFileResponse::new(),
        expect![[r#"
            {"jsonrpc":"2.0","id":4,"result":{}}
        "#]],
    );
    check_response::<WriteTextFileRequest>(
        r#"{"jsonrpc": "2.0", "id": 4, "result": null}"#,
        &WriteTextFileResponse::new(),
        expect![[r#"
            {"jsonrpc":"2.0","id":4,"result":{}}
              /result: the example has null, we have {}
        "#]],
    );
}

/// The method in these examples is the name of a test fixture; on the wire it is `session/update`.
#[test]
fn a_tool_call_is_reported() {
    check_update(
        r#"{
  "jsonrpc": "2.0",
  "method": "acp/notification/session_update",
  "params": {
    "sessionId": "sess_123",
    "update": {
      "sessionUpdate": "tool_call",
      "toolCallId": "read_001",
      "title": "Reading file",
      "kind": "read",
      "status": "pending",
      "locations": [{"path": "/src/main.py"}],
      "rawInput": {"path": "/src/main.py"}
    }
  }
}"#,
        start_read("read_001", "Reading file", "/src/main.py"),
        expect![[r#"
            {"jsonrpc":"2.0","method":"session/update","params":{"sessionId":"sess_123","update":{"sessionUpdate":"tool_call","toolCallId":"read_001","title":"Reading file","kind":"read","locations":[{"path":"/src/main.py"}],"rawInput":{"path":"/src/main.py"}}}}
              /method: the example has "acp/notification/session_update", we have "session/update"
              /params/update/status: the example has "pending", we have nothing
        "#]],
    );
    check_update(
        r#"{
  "jsonrpc": "2.0",
  "method": "acp/notification/session_update",
  "params": {
    "sessionId": "sess_123",
    "update": {
      "sessionUpdate": "tool_call_update",
      "toolCallId": "read_001",
      "status": "in_progress",
      "content": [
        {
          "type": "content",
          "content": {
            "type": "text",
            "text": "File contents: ..."
          }
        }
      ]
    }
  }
}"#,
        update_tool_call(
            "read_001",
            ToolCallUpdateFields::new()
                .status(ToolCallStatus::InProgress)
                .content(vec![text("File contents: ...")]),
        ),
        expect![[r#"
            {"jsonrpc":"2.0","method":"session/update","params":{"sessionId":"sess_123","update":{"sessionUpdate":"tool_call_update","toolCallId":"read_001","status":"in_progress","content":[{"type":"content","content":{"type":"text","text":"File contents: ..."}}]}}}
              /method: the example has "acp/notification/session_update", we have "session/update"
        "#]],
    );
    check_update(
        r#"{
  "jsonrpc": "2.0",
  "method": "acp/notification/session_update",
  "params": {
    "sessionId": "sess_123",
    "update": {
      "sessionUpdate": "tool_call_update",
      "toolCallId": "read_001",
      "status": "completed",
      "rawOutput": {"lines": 42, "bytes": 1024}
    }
  }
}"#,
        update_tool_call(
            "read_001",
            ToolCallUpdateFields::new()
                .status(ToolCallStatus::Completed)
                .raw_output(json!({ "lines": 42, "bytes": 1024 })),
        ),
        expect![[r#"
            {"jsonrpc":"2.0","method":"session/update","params":{"sessionId":"sess_123","update":{"sessionUpdate":"tool_call_update","toolCallId":"read_001","status":"completed","rawOutput":{"lines":42,"bytes":1024}}}}
              /method: the example has "acp/notification/session_update", we have "session/update"
        "#]],
    );
}

fn permission_options() -> Vec<PermissionOption> {
    vec![
        PermissionOption::new("allow", "Allow", PermissionOptionKind::AllowOnce),
        PermissionOption::new("reject", "Reject", PermissionOptionKind::RejectOnce),
    ]
}

/// Returns the call as a permission request describes it. The schema's own conversion would add an empty list of
/// content, which in an update removes earlier content.
fn permission_call(call: ToolCall) -> ToolCallUpdate {
    let fields = ToolCallUpdateFields::new().title(call.title).kind(call.kind).status(call.status);
    update_tool_call(call.tool_call_id, fields.locations(call.locations).raw_input(call.raw_input))
}

/// In a permission request the call is an update, which spells out that it is pending.
#[test]
fn permission_is_asked_for_a_call_that_was_announced() {
    let call = start_edit("write_1", "Writing to config.json", "/project/config.json", "{}");
    check_update(
        r#"{
  "jsonrpc": "2.0",
  "method": "session/update",
  "params": {
    "sessionId": "sess_123",
    "update": {
      "sessionUpdate": "tool_call",
      "toolCallId": "write_1",
      "title": "Writing to config.json",
      "kind": "edit",
      "status": "pending",
      "locations": [{"path": "/project/config.json"}],
      "rawInput": {"path": "/project/config.json", "content": "{}"}
    }
  }
}"#,
        call.clone(),
        expect![[r#"
            {"jsonrpc":"2.0","method":"session/update","params":{"sessionId":"sess_123","update":{"sessionUpdate":"tool_call","toolCallId":"write_1","title":"Writing to config.json","kind":"edit","locations":[{"path":"/project/config.json"}],"rawInput":{"path":"/project/config.json","content":"{}"}}}}
              /params/update/status: the example has "pending", we have nothing
        "#]],
    );
    check_request(
        r#"{
  "jsonrpc": "2.0",
  "id": 5,
  "method": "session/request_permission",
  "params": {
    "sessionId": "sess_123",
    "toolCall": {
      "toolCallId": "write_1",
      "title": "Writing to config.json",
      "kind": "edit",
      "status": "pending",
      "locations": [{"path": "/project/config.json"}],
      "rawInput": {"path": "/project/config.json", "content": "{}"}
    },
    "options": [
      {"kind": "allow_once", "name": "Allow", "optionId": "allow"},
      {"kind": "reject_once", "name": "Reject", "optionId": "reject"}
    ]
  }
}"#,
        &RequestPermissionRequest::new("sess_123", permission_call(call), permission_options()),
        expect![[r#"
            {"jsonrpc":"2.0","id":5,"method":"session/request_permission","params":{"sessionId":"sess_123","toolCall":{"toolCallId":"write_1","kind":"edit","status":"pending","title":"Writing to config.json","locations":[{"path":"/project/config.json"}],"rawInput":{"path":"/project/config.json","content":"{}"}},"options":[{"optionId":"allow","name":"Allow","kind":"allow_once"},{"optionId":"reject","name":"Reject","kind":"reject_once"}]}}
        "#]],
    );
    check_request(
        r#"{
  "jsonrpc": "2.0",
  "id": 6,
  "method": "session/request_permission",
  "params": {
    "sessionId": "sess_123",
    "toolCall": {
      "toolCallId": "call_1",
      "title": "Modifying configuration",
      "kind": "edit",
      "status": "pending",
      "locations": [{"path": "/project/config.json"}],
      "rawInput": {"path": "/project/config.json"}
    },
    "options": [
      {"kind": "allow_once", "name": "Allow", "optionId": "allow"},
      {"kind": "reject_once", "name": "Reject", "optionId": "reject"}
    ]
  }
}"#,
        &RequestPermissionRequest::new("sess_123", permission_call(edit_call()), permission_options()),
        expect![[r#"
            {"jsonrpc":"2.0","id":6,"method":"session/request_permission","params":{"sessionId":"sess_123","toolCall":{"toolCallId":"call_1","kind":"edit","status":"pending","title":"Modifying configuration","locations":[{"path":"/project/config.json"}],"rawInput":{"path":"/project/config.json"}},"options":[{"optionId":"allow","name":"Allow","kind":"allow_once"},{"optionId":"reject","name":"Reject","kind":"reject_once"}]}}
        "#]],
    );
    for (example, outcome, expected) in [
        (
            r#"{"jsonrpc": "2.0", "id": 6, "result": {"outcome": {"outcome": "selected", "optionId": "allow"}}}"#,
            RequestPermissionOutcome::Selected(SelectedPermissionOutcome::new("allow")),
            expect![[r#"
                {"jsonrpc":"2.0","id":6,"result":{"outcome":{"outcome":"selected","optionId":"allow"}}}
            "#]],
        ),
        (
            r#"{"jsonrpc": "2.0", "id": 6, "result": {"outcome": {"outcome": "cancelled"}}}"#,
            RequestPermissionOutcome::Cancelled,
            expect![[r#"
                {"jsonrpc":"2.0","id":6,"result":{"outcome":{"outcome":"cancelled"}}}
            "#]],
        ),
    ] {
        check_response::<RequestPermissionRequest>(
            example,
            &RequestPermissionResponse::new(outcome),
            expected,
        );
    }
}

/// The announced call of the lifecycle example: an edit without the new content.
fn edit_call() -> ToolCall {
    start_edit("call_1", "Modifying configuration", "/project/config.json", "")
        .raw_input(json!({ "path": "/project/config.json" }))
}

/// Shows each line of a conversation, validated against the schema.
fn check_transcript(lines: &[String], expected: Expect) {
    for line in lines {
        let value = parse(line);
        let shape = match (value.get("method"), value.get("id")) {
            (Some(_), Some(_)) => "JsonRpcRequest",
            (Some(_), None) => "JsonRpcNotification",
            (None, _) => "JsonRpcResponse",
        };
        official_schema::validate(shape, &value);
    }
    expected.assert_eq(&lines.concat());
}

fn update_line(update: impl IntoSessionUpdate) -> String {
    let params = SessionNotification::new("sess_123", update.into_session_update());
    PeerPair::default().carry_notification(CLIENT_METHOD_NAMES.session_update, &params)
}

#[test]
fn a_tool_call_lives_through_its_phases() {
    let progress = ToolCallUpdateFields::new();
    check_transcript(
        &[
            update_line(edit_call()),
            update_line(update_tool_call(
                "call_1",
                progress
                    .clone()
                    .status(ToolCallStatus::InProgress)
                    .content(vec![text("Reading configuration file...")]),
            )),
            update_line(update_tool_call(
                "call_1",
                progress.status(ToolCallStatus::Completed).raw_output(json!({ "success": true })).content(
                    vec![diff("/project/config.json", Some("{\"debug\": false}"), "{\"debug\": true}")],
                ),
            )),
        ],
        expect![[r#"
            {"jsonrpc":"2.0","method":"session/update","params":{"sessionId":"sess_123","update":{"sessionUpdate":"tool_call","toolCallId":"call_1","title":"Modifying configuration","kind":"edit","locations":[{"path":"/project/config.json"}],"rawInput":{"path":"/project/config.json"}}}}
            {"jsonrpc":"2.0","method":"session/update","params":{"sessionId":"sess_123","update":{"sessionUpdate":"tool_call_update","toolCallId":"call_1","status":"in_progress","content":[{"type":"content","content":{"type":"text","text":"Reading configuration file..."}}]}}}
            {"jsonrpc":"2.0","method":"session/update","params":{"sessionId":"sess_123","update":{"sessionUpdate":"tool_call_update","toolCallId":"call_1","status":"completed","content":[{"type":"diff","path":"/project/config.json","oldText":"{\"debug\": false}","newText":"{\"debug\": true}"}],"rawOutput":{"success":true}}}}
        "#]],
    );
}

#[test]
fn every_builder_has_one_form_on_the_wire() {
    check_transcript(
        &[
            update_line(start_tool_call("t1", "Think it over")),
            update_line(start_read("t2", "Read it", "/src/main.py")),
            update_line(start_edit("t3", "Edit it", "/src/main.py", "print()\n")),
            update_line(update_tool_call("t3", ToolCallUpdateFields::new())),
            update_line(update_tool_call(
                "t3",
                ToolCallUpdateFields::new().content(vec![
                    text("done"),
                    content(ContentBlock::Image(ImageContent::new("aGk=", "image/png"))),
                    diff("/src/main.py", None, "print()\n"),
                    diff("/src/main.py", Some(""), "print()\n"),
                    terminal("term_xyz"),
                ]),
            )),
        ],
        expect![[r#"
            {"jsonrpc":"2.0","method":"session/update","params":{"sessionId":"sess_123","update":{"sessionUpdate":"tool_call","toolCallId":"t1","title":"Think it over"}}}
            {"jsonrpc":"2.0","method":"session/update","params":{"sessionId":"sess_123","update":{"sessionUpdate":"tool_call","toolCallId":"t2","title":"Read it","kind":"read","locations":[{"path":"/src/main.py"}],"rawInput":{"path":"/src/main.py"}}}}
            {"jsonrpc":"2.0","method":"session/update","params":{"sessionId":"sess_123","update":{"sessionUpdate":"tool_call","toolCallId":"t3","title":"Edit it","kind":"edit","locations":[{"path":"/src/main.py"}],"rawInput":{"path":"/src/main.py","content":"print()\n"}}}}
            {"jsonrpc":"2.0","method":"session/update","params":{"sessionId":"sess_123","update":{"sessionUpdate":"tool_call_update","toolCallId":"t3"}}}
            {"jsonrpc":"2.0","method":"session/update","params":{"sessionId":"sess_123","update":{"sessionUpdate":"tool_call_update","toolCallId":"t3","content":[{"type":"content","content":{"type":"text","text":"done"}},{"type":"content","content":{"type":"image","data":"aGk=","mimeType":"image/png"}},{"type":"diff","path":"/src/main.py","newText":"print()\n"},{"type":"diff","path":"/src/main.py","oldText":"","newText":"print()\n"},{"type":"terminal","terminalId":"term_xyz"}]}}}
        "#]],
    );
}

#[test]
fn a_command_runs_in_a_terminal() {
    let (session, id) = ("sess_123", "term_xyz");
    let pair = &mut PeerPair::default();
    check_transcript(
        &[
            pair.carry_request(
                CreateTerminalRequest::METHOD,
                &CreateTerminalRequest::new(session, "npm")
                    .args(vec!["test".to_owned()])
                    .cwd(PathBuf::from("/user/project")),
            ),
            pair.carry_response_to(0, &CreateTerminalResponse::new(id)),
            update_line(update_tool_call("t1", ToolCallUpdateFields::new().content(vec![terminal(id)]))),
            pair.carry_request(
                WaitForTerminalExitRequest::METHOD,
                &WaitForTerminalExitRequest::new(session, id),
            ),
            pair.carry_response_to(
                1,
                &WaitForTerminalExitResponse::new(TerminalExitStatus::new().exit_code(0)),
            ),
            pair.carry_request(TerminalOutputRequest::METHOD, &TerminalOutputRequest::new(session, id)),
            pair.carry_response_to(2, &TerminalOutputResponse::new("...", false)),
            pair.carry_request(KillTerminalRequest::METHOD, &KillTerminalRequest::new(session, id)),
            pair.cancel(3),
            pair.carry_request(ReleaseTerminalRequest::METHOD, &ReleaseTerminalRequest::new(session, id)),
            pair.carry_response_to(4, &ReleaseTerminalResponse::new()),
        ],
        expect![[r#"
            {"jsonrpc":"2.0","id":0,"method":"terminal/create","params":{"sessionId":"sess_123","command":"npm","args":["test"],"cwd":"/user/project"}}
            {"jsonrpc":"2.0","id":0,"result":{"terminalId":"term_xyz"}}
            {"jsonrpc":"2.0","method":"session/update","params":{"sessionId":"sess_123","update":{"sessionUpdate":"tool_call_update","toolCallId":"t1","content":[{"type":"terminal","terminalId":"term_xyz"}]}}}
            {"jsonrpc":"2.0","id":1,"method":"terminal/wait_for_exit","params":{"sessionId":"sess_123","terminalId":"term_xyz"}}
            {"jsonrpc":"2.0","id":1,"result":{"exitCode":0}}
            {"jsonrpc":"2.0","id":2,"method":"terminal/output","params":{"sessionId":"sess_123","terminalId":"term_xyz"}}
            {"jsonrpc":"2.0","id":2,"result":{"output":"...","truncated":false}}
            {"jsonrpc":"2.0","id":3,"method":"terminal/kill","params":{"sessionId":"sess_123","terminalId":"term_xyz"}}
            {"jsonrpc":"2.0","method":"$/cancel_request","params":{"requestId":3}}
            {"jsonrpc":"2.0","id":4,"method":"terminal/release","params":{"sessionId":"sess_123","terminalId":"term_xyz"}}
            {"jsonrpc":"2.0","id":4,"result":{}}
        "#]],
    );
}

/// The schema has dropped this method; the documents, and peers in use, still have it.
#[test]
fn a_model_is_switched_the_older_way() {
    let pair = &mut PeerPair::default();
    let request = SetSessionModelRequest { session_id: "sess_123".into(), model_id: "big".to_owned() };
    check_transcript(
        &[
            pair.carry_request(SetSessionModelRequest::METHOD, &request),
            pair.carry_response_to(0, &SetSessionModelResponse {}),
        ],
        expect![[r#"
            {"jsonrpc":"2.0","id":0,"method":"session/set_model","params":{"sessionId":"sess_123","modelId":"big"}}
            {"jsonrpc":"2.0","id":0,"result":{}}
        "#]],
    );
}

#[test]
fn a_failure_is_an_error_with_a_code_and_its_data() {
    let failures = [
        RpcError::ResourceNotFound { uri: Some("/home/user/project/src/main.py".to_owned()) },
        RpcError::SessionNotFound { session_id: "sess_123".into() },
        RpcError::OutsideRoots { path: "/etc/passwd".to_owned() },
        RpcError::RelativePath { path: "src/main.py".to_owned() },
        RpcError::PastEnd { lines: 7 },
        RpcError::NotAdvertised {
            method: "fs/read_text_file".to_owned(),
            capability: "clientCapabilities.fs.readTextFile".to_owned(),
        },
        RpcError::UnknownMethod { method: Some("fs/delete".to_owned()) },
        RpcError::Internal { reason: "cannot write /home/user/project/config.json".to_owned() },
        RpcError::AuthRequired { reason: None },
        RpcError::Cancelled,
        RpcError::Busy { limit: 1024 },
    ];
    let lines = failures.map(|failure| {
        let line = PeerPair::default().carry_error(ReadTextFileRequest::METHOD, &failure.clone().into());
        official_schema::validate("Error", &parse(&line)["error"]);
        let read = serde_json::from_value(parse(&line)["error"].clone()).unwrap();
        assert_eq!(RpcError::from_error(&read), failure);
        line
    });
    check_transcript(
        &lines,
        expect![[r#"
        {"jsonrpc":"2.0","id":0,"error":{"code":-32002,"message":"Resource not found: /home/user/project/src/main.py","data":{"uri":"/home/user/project/src/main.py"}}}
        {"jsonrpc":"2.0","id":0,"error":{"code":-32002,"message":"Resource not found: session sess_123","data":{"sessionId":"sess_123"}}}
        {"jsonrpc":"2.0","id":0,"error":{"code":-32602,"message":"/etc/passwd is outside the session's directories","data":{"reason":"outside","path":"/etc/passwd"}}}
        {"jsonrpc":"2.0","id":0,"error":{"code":-32602,"message":"src/main.py is a relative path, send an absolute path","data":{"reason":"relative","path":"src/main.py"}}}
        {"jsonrpc":"2.0","id":0,"error":{"code":-32602,"message":"the read starts past the end: the file has 7 lines","data":{"reason":"past_end","lines":7}}}
        {"jsonrpc":"2.0","id":0,"error":{"code":-32601,"message":"fs/read_text_file needs clientCapabilities.fs.readTextFile, which was not advertised","data":{"method":"fs/read_text_file","capability":"clientCapabilities.fs.readTextFile"}}}
        {"jsonrpc":"2.0","id":0,"error":{"code":-32601,"message":"Method not found: fs/delete","data":{"method":"fs/delete"}}}
        {"jsonrpc":"2.0","id":0,"error":{"code":-32603,"message":"cannot write /home/user/project/config.json"}}
        {"jsonrpc":"2.0","id":0,"error":{"code":-32000,"message":"Authentication required"}}
        {"jsonrpc":"2.0","id":0,"error":{"code":-32800,"message":"Request cancelled"}}
        {"jsonrpc":"2.0","id":0,"error":{"code":-32029,"message":"too many requests at once, the limit is 1024","data":{"limit":1024}}}
    "#]],
    );
}
