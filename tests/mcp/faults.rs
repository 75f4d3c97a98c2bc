//! Tests of clients that lie, flood, crash or disconnect: nothing is left running, and nothing is lost.

use expect_test::expect;
use rustix::process::{Pid, Signal, kill_process};
use serde_json::{Value, json};

use crate::harness::{LivenessPipe, McpTestProject, describe_answer};

fn execute_arguments(line: &str) -> Value {
    json!({ "name": "execute", "arguments": { "command": line } })
}

#[tokio::test]
async fn a_call_that_is_cancelled_ends_its_command() {
    let scene = McpTestProject::new();
    let mut life = LivenessPipe::new(&scene);
    let mut program = scene.start(&["--approve", "all"]).await;
    let id = program.request("tools/call", execute_arguments(&life.shell_line())).await;
    life.wait_until_started().await;
    let cancelled = json!({ "requestId": id, "reason": "not wanted" });
    program
        .send(&json!({ "jsonrpc": "2.0", "method": "notifications/cancelled", "params": cancelled }))
        .await;
    life.wait_until_ended().await;
    assert_eq!(
        program.call_tool("execute", json!({ "command": "echo on" })).await.lines().last(),
        Some("on")
    );
    assert_eq!(program.close().await, Some(0));
}

#[tokio::test]
async fn a_client_that_goes_away_takes_its_commands_with_it() {
    let scene = McpTestProject::new();
    let mut life = LivenessPipe::new(&scene);
    let mut program = scene.start(&["--approve", "all"]).await;
    program.request("tools/call", execute_arguments(&life.shell_line())).await;
    life.wait_until_started().await;
    assert_eq!(program.close().await, Some(0));
    life.wait_until_ended().await;
}

#[tokio::test]
async fn commands_in_the_background_end_with_the_session() {
    let scene = McpTestProject::new();
    let mut life = LivenessPipe::new(&scene);
    let mut program = scene.start(&["--approve", "all"]).await;
    program.call_tool("execute", json!({ "command": life.shell_line(), "background": true })).await;
    life.wait_until_started().await;
    assert_eq!(program.close().await, Some(0));
    life.wait_until_ended().await;
}

#[tokio::test]
async fn a_server_that_is_told_to_end_or_killed_leaves_nothing() {
    for (signal, code) in [(Signal::TERM, Some(143)), (Signal::INT, Some(130)), (Signal::KILL, None)] {
        let scene = McpTestProject::new();
        let mut life = LivenessPipe::new(&scene);
        let mut program = scene.start(&["--approve", "all"]).await;
        program.request("tools/call", execute_arguments(&life.shell_line())).await;
        life.wait_until_started().await;
        let id = i32::try_from(program.child.id().unwrap()).unwrap();
        kill_process(Pid::from_raw(id).unwrap(), signal).unwrap();
        assert_eq!(program.child.wait().await.unwrap().code(), code);
        life.wait_until_ended().await;
    }
}

#[tokio::test]
async fn what_is_no_message_does_not_end_the_session() {
    let scene = McpTestProject::new();
    let mut program = scene.start(&[]).await;
    program.send_bytes(b"this is not JSON\n{\"half\":\n[1,2]\n\n\xff\xfe\n").await;
    program.send(&json!({ "jsonrpc": "2.0", "id": "x", "method": "no/such/method" })).await;
    program.send(&json!({ "jsonrpc": "2.0", "id": 7, "result": {} })).await;
    program
        .send(
            &json!({ "jsonrpc": "2.0", "method": "notifications/cancelled", "params": { "requestId": 99 } }),
        )
        .await;
    let read = program.call_tool("read_text_file", json!({ "path": "a.txt" })).await;
    expect![[r#"
        [a.txt: all of it, 3 lines]
        one
        two
        three
    "#]]
    .assert_eq(&read);
    let refused = program.notifications.iter().any(|message| message["error"]["code"] == -32601);
    assert!(refused, "{:?}", program.notifications);
    assert_eq!(program.close().await, Some(0));
}

#[tokio::test]
async fn every_request_is_answered_however_wrong_it_is() {
    let scene = McpTestProject::new();
    let mut program = scene.start_uninitialized(&[]);
    let early = r#"{"jsonrpc":"2.0","id":"early","method":"tools/list"}"#;
    let hello = r#"{"jsonrpc":"2.0","id":"bad","method":"initialize","params":{"protocolVersion":5}}"#;
    program.send_bytes(format!("{early}\n{hello}\n").as_bytes()).await;
    let mut text = String::new();
    for _ in 0..2 {
        text += &format!("{}\n", program.next_message().await.unwrap());
    }
    program.initialize().await;
    let wrong = [
        r#"{"jsonrpc":"2.0","id":"half","method":"tools/call","params":{"name":"read_text_file","arguments":{"path":"\ud83d"}}}"#,
        r#"{"jsonrpc":"2.0","id":"name","method":"tools/call","params":{"name":5}}"#,
        r#"{"jsonrpc":"2.0","id":"arguments","method":"tools/call","params":{"name":"read_text_file","arguments":"a.txt"}}"#,
        r#"{"jsonrpc":"2.0","id":"uri","method":"resources/read","params":{}}"#,
        r#"{"jsonrpc":"2.0","id":"none","method":"no/such/method"}"#,
        r#"{"jsonrpc":"1.0","id":"version","method":"ping"}"#,
        r#"[{"jsonrpc":"2.0","id":"batch","method":"ping"}]"#,
    ];
    for line in wrong {
        program.send_bytes(format!("{line}\n").as_bytes()).await;
        text += &format!("{}\n", program.next_message().await.unwrap());
    }
    expect![[r#"
        {"jsonrpc":"2.0","id":"early","error":{"code":-32600,"message":"send initialize first"}}
        {"jsonrpc":"2.0","id":"bad","error":{"code":-32602,"message":"the parameters of initialize cannot be used: it needs protocolVersion, capabilities, and clientInfo with name and version"}}
        {"jsonrpc":"2.0","id":"half","error":{"code":-32700,"message":"the message holds text that is no Unicode (half a surrogate pair, or bytes that are no UTF-8): leave it out"}}
        {"jsonrpc":"2.0","id":"name","error":{"code":-32602,"message":"the parameters of tools/call cannot be used: it needs name, and arguments as an object"}}
        {"jsonrpc":"2.0","id":"arguments","error":{"code":-32602,"message":"the parameters of tools/call cannot be used: it needs name, and arguments as an object"}}
        {"jsonrpc":"2.0","id":"uri","error":{"code":-32602,"message":"the parameters of resources/read cannot be used: it needs uri"}}
        {"jsonrpc":"2.0","id":"none","error":{"code":-32601,"message":"there is no method no/such/method here"}}
        {"jsonrpc":"2.0","id":"version","error":{"code":-32600,"message":"`jsonrpc` has to be \"2.0\""}}
        {"jsonrpc":"2.0","id":"batch","error":{"code":-32600,"message":"batches are not taken: send each message by itself"}}
    "#]].assert_eq(&text);
    assert_eq!(program.close().await, Some(0));
}

#[tokio::test]
async fn an_id_that_is_in_use_is_refused_and_the_first_keeps_its_answer() {
    let scene = McpTestProject::new();
    let mut life = LivenessPipe::new(&scene);
    let mut program = scene.start(&["--approve", "all"]).await;
    let id = program.request("tools/call", execute_arguments(&life.shell_line())).await;
    life.wait_until_started().await;
    let again = json!({ "jsonrpc": "2.0", "id": id, "method": "tools/call", "params": execute_arguments("touch done") });
    program.send(&again).await;
    let refused = program.next_message().await.unwrap();
    expect![[r#"{"jsonrpc":"2.0","error":{"code":-32600,"message":"a request with the id 2 is not answered yet: give each its own"}}"#]]
        .assert_eq(&refused.to_string());
    let cancelled = json!({ "requestId": id });
    program
        .send(&json!({ "jsonrpc": "2.0", "method": "notifications/cancelled", "params": cancelled }))
        .await;
    life.wait_until_ended().await;
    // Then the id is free again.
    program.send(&again).await;
    assert!(describe_answer(&program.wait_for_answer(id).await).contains("exit code 0"));
    assert_eq!(program.close().await, Some(0));
}

#[tokio::test]
async fn a_batch_is_done_where_the_revision_has_batches() {
    let scene = McpTestProject::new();
    let mut program = scene.start_uninitialized(&[]);
    let hello = json!({ "protocolVersion": "2025-03-26", "capabilities": {}, "clientInfo": { "name": "test", "version": "1" } });
    let id = program.request("initialize", hello).await;
    assert_eq!(program.wait_for_answer(id).await["result"]["protocolVersion"], "2025-03-26");
    let read = json!({ "name": "read_text_file", "arguments": { "path": "a.txt" } });
    let batch = json!([
        { "jsonrpc": "2.0", "method": "notifications/initialized" },
        { "jsonrpc": "2.0", "id": "ping", "method": "ping" },
        { "jsonrpc": "2.0", "id": "read", "method": "tools/call", "params": read },
        { "jsonrpc": "2.0", "id": "none", "method": "no/such/method" },
    ]);
    program.send(&batch).await;
    let mut answers: Vec<String> = Vec::new();
    for _ in 0..3 {
        let answer = program.next_message().await.unwrap();
        answers.push(format!("{}: {:?}", answer["id"], describe_answer(&answer)));
    }
    answers.sort();
    expect![[r#"
        "none": "!! -32601 there is no method no/such/method here"
        "ping": ""
        "read": "[a.txt: all of it, 3 lines]\none\ntwo\nthree\n""#]]
    .assert_eq(&answers.join("\n"));
    assert_eq!(program.close().await, Some(0));
}

#[tokio::test]
async fn a_question_is_taken_back_with_the_call_that_asks() {
    let scene = McpTestProject::new();
    let mut program = scene.start_uninitialized(&[]);
    program.initialize_with(json!({ "elicitation": {} })).await;
    let id = program.request("tools/call", execute_arguments("touch done")).await;
    let asked = program.next_message().await.unwrap();
    assert_eq!(asked["method"], "elicitation/create");
    let cancelled = json!({ "requestId": id });
    program
        .send(&json!({ "jsonrpc": "2.0", "method": "notifications/cancelled", "params": cancelled }))
        .await;
    let told = program.next_message().await.unwrap();
    assert_eq!(
        (&told["method"], &told["params"]["requestId"]),
        (&json!("notifications/cancelled"), &asked["id"])
    );
    // A late yes grants nothing.
    let yes = json!({ "action": "accept", "content": { "decision": "allow for this session" } });
    program.send(&json!({ "jsonrpc": "2.0", "id": asked["id"], "result": yes })).await;
    let again = program.request("tools/call", execute_arguments("touch done")).await;
    let asked = program.next_message().await.unwrap();
    program.send(&json!({ "jsonrpc": "2.0", "id": asked["id"], "result": { "action": "cancel" } })).await;
    let refused = describe_answer(&program.wait_for_answer(again).await);
    assert_eq!(refused, "! not started: `touch done`: denied: the user said no");
    assert!(!std::path::Path::new(&scene.path("done")).exists());
    assert_eq!(program.close().await, Some(0));
}

#[tokio::test]
async fn who_begins_with_something_else_is_told_or_let_go() {
    let scene = McpTestProject::new();
    assert_eq!(scene.start_uninitialized(&[]).close().await, Some(0));
    let mut program = scene.start_uninitialized(&[]);
    let id = program.request("tools/call", execute_arguments("echo hi")).await;
    assert_eq!(describe_answer(&program.wait_for_answer(id).await), "!! -32600 send initialize first");
    assert_eq!(program.close().await, Some(0));
}

#[tokio::test]
async fn many_calls_at_once_are_each_answered() {
    let scene = McpTestProject::new();
    let mut program = scene.start(&[]).await;
    let mut ids = Vec::new();
    for _ in 0..500 {
        let read = json!({ "name": "read_text_file", "arguments": { "path": "a.txt" } });
        ids.push(program.request("tools/call", read).await);
    }
    let (mut read, mut busy) = (0, 0);
    for _ in &ids {
        let answer = program.next_message().await.unwrap();
        match describe_answer(&answer) {
            text if text.contains("all of it") => read += 1,
            text if text.contains("under way already") => busy += 1,
            other => panic!("{other}"),
        }
    }
    assert_eq!(read + busy, 500);
    assert!(read >= 1);
    assert_eq!(program.close().await, Some(0));
}

#[tokio::test]
async fn huge_arguments_are_taken_or_refused_and_the_session_goes_on() {
    let scene = McpTestProject::new();
    let mut program = scene.start(&["--approve", "edits"]).await;
    let large = "x".repeat(8 << 20);
    let written = program.call_tool("write_text_file", json!({ "path": "large", "content": large })).await;
    assert_eq!(written, "Created large (1 line).");
    let told = program.call_tool("search_text", json!({ "pattern": large })).await;
    assert_eq!(told, "! `pattern` has to have 1 to 16384 bytes: give the text to look for");
    let told = program.call_tool("read_text_file", json!({ "path": large })).await;
    assert!(told.starts_with("! ") && told.len() < 5000, "{}", told.len());
    // A message that exceeds the limit is rejected with an error.
    program.send(&json!({ "jsonrpc": "2.0", "id": "long", "method": "x".repeat(40 << 20) })).await;
    let answer = program.next_message().await.unwrap();
    assert_eq!(
        describe_answer(&answer),
        "!! -32600 the message is longer than 33554432 bytes: send less at once"
    );
    assert_eq!(answer["id"], "long");
    assert!(program.call_tool("read_text_file", json!({ "path": "a.txt" })).await.ends_with("three\n"));
    assert_eq!(program.close().await, Some(0));
}

#[tokio::test]
async fn links_do_not_lead_outside() {
    let scene = McpTestProject::new();
    std::fs::write(scene.base().join("secret"), "secret\n").unwrap();
    std::os::unix::fs::symlink(scene.base().join("secret"), scene.path("link")).unwrap();
    std::os::unix::fs::symlink(scene.base(), scene.path("up")).unwrap();
    let mut program = scene.start(&["--approve", "all"]).await;
    let mut text = String::new();
    for path in ["link", "up/secret", "../secret"] {
        text += &program.call_tool("read_text_file", json!({ "path": path })).await;
        text += "\n";
        text += &program.call_tool("write_text_file", json!({ "path": path, "content": "changed\n" })).await;
        text += "\n";
    }
    text += &program.call_tool("list_directory", json!({ "path": "up" })).await;
    assert_eq!(std::fs::read_to_string(scene.base().join("secret")).unwrap(), "secret\n");
    expect![[r#"
        ! link is outside the workspace: only its own directories can be used
        ! nothing was written: link is outside the workspace: only its own directories can be used
        ! up/secret is outside the workspace: only its own directories can be used
        ! nothing was written: up/secret is outside the workspace: only its own directories can be used
        ! $BASE/secret is outside the workspace: only its own directories can be used
        ! nothing was written: $BASE/secret is outside the workspace: only its own directories can be used
        ! up is outside the workspace: only its own directories can be used"#]]
    .assert_eq(&scene.normalize(&text));
}
