//! Commands on the agent's machine, for a client without terminals: ended, timed out, in the background, cancelled.

use std::path::Path;

use expect_test::expect;
use serde_json::{Value, json};
use test_support::wait::wait_until_async;

use crate::program::{AgentFixture, AgentProgram};

async fn open_session(scene: &AgentFixture) -> (AgentProgram, String) {
    let mut program = scene.start_agent(&["--mode", "full", "--shell"]);
    program.initialize(json!({})).await;
    let session = program.new_session(&scene.project()).await;
    (program, session)
}

/// Calls a tool through the offline model, and returns the status and raw output of the call.
async fn call_tool(program: &mut AgentProgram, session: &str, tool: &str, input: Value) -> String {
    let before = program.messages.len();
    program.run_turn(session, &format!("call {tool} {input}")).await;
    let update = |message: &Value| message["params"]["update"].clone();
    let updates: Vec<Value> = program.messages[before..].iter().map(update).collect();
    let last = updates.iter().rfind(|update| update.get("rawOutput").is_some()).unwrap();
    format!("{} {}\n", last["status"].as_str().unwrap(), last["rawOutput"])
}

#[tokio::test]
async fn commands_end_as_they_end() {
    let scene = AgentFixture::new();
    scene.write_file("sub/a", "");
    let (mut program, session) = open_session(&scene).await;
    let mut told = String::new();
    for input in [
        json!({"command": "echo one && ls sub | wc -l"}),
        json!({"command": "pwd", "cwd": "sub"}),
        json!({"command": "printf", "args": ["%s\n", "$A"], "env": {"A": "1"}}),
        json!({"command": "echo no >&2; exit 3"}),
        json!({"command": "kill -9 $$"}),
        json!({"command": "no-such-program"}),
        json!({"command": "echo begun; sleep 1000", "timeout_seconds": 1}),
        json!({"command": "pwd", "cwd": "/"}),
    ] {
        told += &call_tool(&mut program, &session, "execute", input).await;
    }
    expect![[r#"
        completed {"servedBy":"local","exit":"0","timedOut":false,"truncated":false,"output":"one\n1\n"}
        completed {"servedBy":"local","exit":"0","timedOut":false,"truncated":false,"output":"$PROJECT/sub\n"}
        completed {"servedBy":"local","exit":"0","timedOut":false,"truncated":false,"output":"$A\n"}
        failed {"servedBy":"local","exit":"3","timedOut":false,"truncated":false,"output":"no\n"}
        failed {"servedBy":"local","exit":"SIGKILL","timedOut":false,"truncated":false,"output":""}
        failed "`no-such-program`: the agent's own machine says: there is no program no-such-program: check its name and PATH, and put its arguments into args"
        failed {"servedBy":"local","exit":null,"timedOut":true,"truncated":false,"output":"begun\n"}
        failed "`pwd` was not started: / is outside the session's directories"
    "#]].assert_eq(&scene.normalize(&told));
}

#[tokio::test]
async fn a_command_in_the_background_goes_on_between_turns_and_ends_with_the_session() {
    let scene = AgentFixture::new();
    let (mut program, session) = open_session(&scene).await;
    let line = "echo $$ > pid; echo one; read answer < pipe; echo two; sleep 1000";
    make_pipe(&scene.path("pipe"));
    let begun =
        call_tool(&mut program, &session, "execute", json!({"command": line, "background": true})).await;
    assert!(begun.starts_with("completed {\"servedBy\":\"local\",\"id\":\"bg1\""), "{begun}");
    // By the time the command opens its pipe, its first output is there.
    std::fs::write(scene.path("pipe"), "go\n").unwrap();
    let mut output = String::new();
    while !output.contains("two") {
        output += &call_tool(&mut program, &session, "execute_output", json!({"id": "bg1"})).await;
    }
    assert_eq!(output.matches("one").count(), 1, "{output}");
    let pid = scene.read_file("pid");
    assert!(is_process_alive(&pid));
    let unknown = call_tool(&mut program, &session, "execute_output", json!({"id": "bg7"})).await;
    assert!(unknown.contains("there are bg1"), "{unknown}");
    program.call("session/close", json!({"sessionId": session})).await;
    wait_until_gone(&pid).await;
}

#[tokio::test]
async fn a_cancelled_turn_ends_its_command() {
    let scene = AgentFixture::new();
    let (mut program, session) = open_session(&scene).await;
    make_pipe(&scene.path("pipe"));
    let turn = program.prompt(&session, "run echo $$ > pid; cat pipe; sleep 1000").await;
    program.wait_for(|message| message["params"]["update"]["status"] == "in_progress").await;
    // Writing to the pipe blocks until the command reads it.
    std::fs::write(scene.path("pipe"), "go\n").unwrap();
    program.notify("session/cancel", json!({"sessionId": session})).await;
    let answer = program.wait_for_answer(turn).await;
    assert_eq!(answer["result"]["stopReason"], "cancelled");
    wait_until_gone(&scene.read_file("pid")).await;
    let statuses: Vec<Value> =
        program.updates("tool_call_update").iter().map(|update| update["status"].clone()).collect();
    assert_eq!(statuses.last(), Some(&json!("failed")));
    assert_eq!(program.run_turn(&session, "run echo again").await, "end_turn");
    assert!(program.agent_text().contains("again"), "{}", program.agent_text());
}

fn is_process_alive(pid: &str) -> bool {
    Path::new("/proc").join(pid.trim()).join("cwd").read_link().is_ok()
}

/// Waits until a process is gone.
async fn wait_until_gone(pid: &str) {
    wait_until_async(&format!("the end of process {}", pid.trim()), || !is_process_alive(pid)).await;
}

fn make_pipe(path: &str) {
    assert!(std::process::Command::new("mkfifo").arg(path).status().unwrap().success());
}
