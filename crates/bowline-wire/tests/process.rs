//! Tests of agents as real processes that fail to start, die, flood stderr, or refuse to exit.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    reason = "a test that cannot go on should say so and stop"
)]

use std::sync::Arc;
use std::time::Duration;

use bowline_wire::schema::ProtocolVersion;
use bowline_wire::schema::v1::{
    Error, InitializeRequest, RequestPermissionRequest, RequestPermissionResponse, SessionNotification,
};
use bowline_wire::{
    AgentHandle, AgentProcess, CallError, Client, ClientContext, ConnectionLimits, ShutdownGrace, spawn_agent,
};
use expect_test::expect;
use test_support::wait::wait_until_async;
use tokio::process::Command;

struct IgnoringClient;

impl Client for IgnoringClient {
    async fn request_permission(
        &self,
        _: RequestPermissionRequest,
        _: ClientContext,
    ) -> Result<RequestPermissionResponse, Error> {
        Err(Error::method_not_found())
    }

    async fn session_update(&self, _: SessionNotification, _: AgentHandle) {}
}

fn spawn(script: &str) -> (AgentHandle, AgentProcess) {
    let mut command = Command::new("sh");
    command.args(["-c", script]);
    spawn_agent(command, Arc::new(IgnoringClient), ConnectionLimits::DEFAULT).expect("a shell")
}

async fn initialize(agent: &AgentHandle) -> Result<(), CallError> {
    agent.initialize(InitializeRequest::new(ProtocolVersion::V1)).await.map(drop)
}

/// Answers `initialize` with the id of a process that the agent has started, and continues with `rest`.
fn script_with_child(rest: &str) -> String {
    format!(
        r#"sleep 600 & read request; echo '{{"jsonrpc":"2.0","id":0,"result":{{"protocolVersion":1,"_meta":{{"child":'$!'}}}}}}'; {rest}"#
    )
}

async fn child_pid(agent: &AgentHandle) -> String {
    let answer = agent.initialize(InitializeRequest::new(ProtocolVersion::V1)).await.expect("an answer");
    answer.meta.expect("the child")["child"].to_string()
}

/// Waits until a process is gone. It may linger as a zombie until its new parent reaps it.
async fn wait_until_gone(pid: &str) {
    let is_gone = || {
        let status = std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
        status.rsplit(')').next().is_none_or(|rest| rest.trim_start().starts_with('Z') || rest.is_empty())
    };
    wait_until_async(&format!("the end of process {pid}"), is_gone).await;
}

#[test]
fn a_program_that_is_not_there_is_named() {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
    let _guard = runtime.enter();
    let error =
        spawn_agent(Command::new("/no/such/agent"), Arc::new(IgnoringClient), ConnectionLimits::DEFAULT)
            .expect_err("no program");
    expect!["cannot start the agent /no/such/agent: No such file or directory (os error 2)"]
        .assert_eq(&error.to_string());
}

#[tokio::test]
async fn an_agent_that_dies_leaves_its_last_words() {
    let (agent, mut process) = spawn("echo 'no key found' >&2; exit 3");
    assert!(matches!(initialize(&agent).await, Err(CallError::Closed)));
    expect![[r#"
        the agent ended: exit status: 3; its last words:
        no key found"#]]
    .assert_eq(&process.wait().await.to_string());
}

#[tokio::test]
async fn of_a_flood_on_stderr_the_end_is_kept() {
    let (agent, mut process) = spawn("head -c 5000000 /dev/zero | tr '\\0' x >&2; echo last >&2");
    assert!(matches!(initialize(&agent).await, Err(CallError::Closed)));
    let exit = process.wait().await;
    assert_eq!(exit.stderr.len(), 64 << 10);
    assert!(exit.stderr.ends_with("xlast\n"));
}

#[tokio::test]
async fn text_that_is_no_message_on_stdout_does_not_break_the_connection() {
    let (agent, process) = spawn(
        r#"echo 'Welcome to my agent!'; read request; echo '{"jsonrpc":"2.0","id":0,"result":{"protocolVersion":1}}'; cat > /dev/null"#,
    );
    initialize(&agent).await.expect("an answer");
    assert!(process.shutdown(ShutdownGrace::default()).await.status.expect("a status").success());
}

#[tokio::test]
async fn shutting_down_closes_stdin_and_takes_what_the_agent_left_behind() {
    let (agent, process) = spawn(&script_with_child("cat > /dev/null; exit 7"));
    let child = child_pid(&agent).await;
    expect!["the agent ended: exit status: 7"]
        .assert_eq(&process.shutdown(ShutdownGrace::default()).await.to_string());
    wait_until_gone(&child).await;
    assert!(matches!(initialize(&agent).await, Err(CallError::Closed)));
}

#[tokio::test]
async fn an_agent_that_will_not_go_is_killed_with_its_children() {
    let (agent, process) = spawn(&script_with_child("trap '' TERM; while :; do sleep 600; done"));
    let child = child_pid(&agent).await;
    let grace = ShutdownGrace { after_close: Duration::ZERO, after_terminate: Duration::from_millis(20) };
    expect!["the agent ended: signal: 9 (SIGKILL)"].assert_eq(&process.shutdown(grace).await.to_string());
    wait_until_gone(&child).await;
}

#[tokio::test]
async fn dropping_the_process_kills_all_of_it() {
    let (agent, process) = spawn(&script_with_child("while :; do sleep 600; done"));
    let child = child_pid(&agent).await;
    let pid = process.id().expect("it runs").to_string();
    drop(process);
    wait_until_gone(&pid).await;
    wait_until_gone(&child).await;
}

#[tokio::test]
async fn waiting_twice_gives_the_same_and_shutting_down_after_it_does_no_harm() {
    let (_agent, mut process) = spawn("echo gone >&2; exit 3");
    let first = process.wait().await.to_string();
    assert_eq!(process.wait().await.to_string(), first);
    assert_eq!(process.shutdown(ShutdownGrace::default()).await.to_string(), first);
}

#[tokio::test]
async fn the_last_answer_of_an_agent_counts_even_if_it_cannot_be_written_to_any_more() {
    let (agent, _process) = spawn(
        r#"read request; exec 0<&-; echo '{"jsonrpc":"2.0","id":0,"result":{"protocolVersion":1}}'; exit 0"#,
    );
    let note = agent.caller().notify_raw("_note", bowline_wire::message::body::JsonBody::empty_object());
    let (answer, _) = tokio::join!(initialize(&agent), note);
    answer.expect("the answer that was written before the end");
}
