//! Commands on the agent's own machine, for a client that has no terminals: ended, too slow, in the background, cancelled.

use std::path::Path;
use std::time::Duration;

use expect_test::expect;
use serde_json::{Value, json};

use crate::program::{Program, Scene};

async fn opened(scene: &Scene) -> (Program, String) {
    let mut program = scene.start(&["--mode", "full", "--shell"]);
    program.initialize(json!({})).await;
    let session = program.new_session(&scene.project()).await;
    (program, session)
}

/// Calls a tool as the offline model does, and returns how the call ended and what its raw output is.
async fn call(program: &mut Program, session: &str, tool: &str, input: Value) -> String {
    let before = program.seen.len();
    program.turn(session, &format!("call {tool} {input}")).await;
    let update = |message: &Value| message["params"]["update"].clone();
    let updates: Vec<Value> = program.seen[before..].iter().map(update).collect();
    let last = updates.iter().rfind(|update| update.get("rawOutput").is_some()).unwrap();
    format!("{} {}\n", last["status"].as_str().unwrap(), last["rawOutput"])
}

#[tokio::test]
async fn commands_end_as_they_end() {
    let scene = Scene::new();
    scene.put("sub/a", "");
    let (mut program, session) = opened(&scene).await;
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
        told += &call(&mut program, &session, "execute", input).await;
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
    "#]].assert_eq(&scene.clean(&told));
}

#[tokio::test]
async fn a_command_in_the_background_goes_on_between_turns_and_ends_with_the_session() {
    let scene = Scene::new();
    let (mut program, session) = opened(&scene).await;
    let line = "echo $$ > pid; echo one; read answer < pipe; echo two; sleep 1000";
    make_pipe(&scene.path("pipe"));
    let begun = call(&mut program, &session, "execute", json!({"command": line, "background": true})).await;
    assert!(begun.starts_with("completed {\"servedBy\":\"local\",\"id\":\"bg1\""), "{begun}");
    // What it writes first is there when it waits for its pipe.
    std::fs::write(scene.path("pipe"), "go\n").unwrap();
    let mut output = String::new();
    while !output.contains("two") {
        output += &call(&mut program, &session, "execute_output", json!({"id": "bg1"})).await;
    }
    assert_eq!(output.matches("one").count(), 1, "{output}");
    let pid = scene.get("pid");
    assert!(is_alive(&pid));
    let unknown = call(&mut program, &session, "execute_output", json!({"id": "bg7"})).await;
    assert!(unknown.contains("there are bg1"), "{unknown}");
    program.call("session/close", json!({"sessionId": session})).await;
    gone(&pid).await;
}

#[tokio::test]
async fn a_cancelled_turn_ends_its_command() {
    let scene = Scene::new();
    let (mut program, session) = opened(&scene).await;
    make_pipe(&scene.path("pipe"));
    let turn = program.prompt(&session, "run echo $$ > pid; cat pipe; sleep 1000").await;
    program.until(|message| message["params"]["update"]["status"] == "in_progress").await;
    // Whoever writes to the pipe waits until the command reads it.
    std::fs::write(scene.path("pipe"), "go\n").unwrap();
    program.notify("session/cancel", json!({"sessionId": session})).await;
    let answer = program.answer(turn).await;
    assert_eq!(answer["result"]["stopReason"], "cancelled");
    gone(&scene.get("pid")).await;
    let statuses: Vec<Value> =
        program.updates("tool_call_update").iter().map(|update| update["status"].clone()).collect();
    assert_eq!(statuses.last(), Some(&json!("failed")));
    assert_eq!(program.turn(&session, "run echo again").await, "end_turn");
    assert!(program.said().contains("again"), "{}", program.said());
}

fn is_alive(pid: &str) -> bool {
    Path::new("/proc").join(pid.trim()).join("cwd").read_link().is_ok()
}

/// Waits until a process is gone.
async fn gone(pid: &str) {
    let mut ticks = tokio::time::interval(Duration::from_millis(10));
    let waiting = async {
        while is_alive(pid) {
            ticks.tick().await;
        }
    };
    tokio::time::timeout(test_support::PATIENCE, waiting).await.expect("the command is ended");
}

fn make_pipe(path: &str) {
    assert!(std::process::Command::new("mkfifo").arg(path).status().unwrap().success());
}
