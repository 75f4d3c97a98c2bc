//! Cancellation between an approval and the approved operation.

use std::process::Command;
use std::sync::mpsc;

use bowline_policy::policy::Preset;
use bowline_policy::question::QuestionReply;
use bowline_wire::schema::v1::StopReason;
use bowline_workspace::terminals::SupervisorProgram;
use expect_test::expect;
use serde_json::{Value, json};
use tokio::sync::oneshot;
use tokio::task::{spawn_blocking, yield_now};

use super::SUPERVISOR;
use super::host_fixture::HostFixture;

/// Yields until every other task has made all the progress it can.
async fn yield_to_others() {
    for _ in 0..100 {
        yield_now().await;
    }
}

/// Approves a request, and cancels its turn after the approval and before the operation. Returns the recorded
/// responses.
async fn approve_then_cancel(stage: &HostFixture, method: &'static str, params: Value) -> String {
    let (say_yes, said) = oneshot::channel::<()>();
    let mut said = Some(said);
    stage.lab.user.answer_with_async(move |_| {
        let said = said.take().unwrap();
        Box::pin(async move {
            said.await.unwrap();
            QuestionReply::allow()
        })
    });
    let act = stage.custom_turn(move |actor| async move {
        actor.record(&actor.call_text(method, params).await);
        StopReason::Cancelled
    });
    let (connection, session) = stage.open_session(vec![act]).await;
    let cancel = async {
        stage.lab.user.wait_until(|asked, _| asked.len() == 1).await;
        // A single blocking thread runs its jobs in order: first the answer is evaluated again, then this test occupies
        // the thread, and the approved operation has to wait.
        let (begin, first) = mpsc::sync_channel::<()>(1);
        let (end, second) = mpsc::sync_channel::<()>(1);
        let (tell, judged) = oneshot::channel();
        let blocked = spawn_blocking(move || first.recv().unwrap());
        say_yes.send(()).unwrap();
        yield_to_others().await;
        let held = spawn_blocking(move || {
            tell.send(()).unwrap();
            second.recv().unwrap();
        });
        begin.send(()).unwrap();
        judged.await.unwrap();
        yield_to_others().await;
        session.cancel();
        end.send(()).unwrap();
        blocked.await.unwrap();
        held.await.unwrap();
    };
    let (turn, ()) = tokio::join!(session.prompt_text("go"), cancel);
    turn.unwrap();
    connection.close_session(&session).await.unwrap();
    stage.take_text()
}

#[test]
fn what_was_approved_is_not_done_if_its_turn_is_cancelled_before_it_begins() {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().max_blocking_threads(1).build();
    runtime.unwrap().block_on(async {
        let stage = HostFixture::new().with_file("a.txt", "a\n");
        let write = json!({"path": "$ROOT/a.txt", "content": "b\n"});
        let written = approve_then_cancel(&stage, "fs/write_text_file", write).await;
        assert_eq!(
            (written.as_str(), &*stage.lab.read_file("a.txt").unwrap()),
            ("! -32800 Request cancelled\n", "a\n")
        );
        let stage = HostFixture::new();
        let run = approve_then_cancel(&stage, "terminal/create", json!({"command": "echo > ran"})).await;
        assert_eq!(
            (run.as_str(), stage.lab.read_file("ran").is_err()),
            ("! -32800 Request cancelled\n", true)
        );
    });
}

#[tokio::test]
async fn a_command_whose_turn_is_cancelled_while_it_is_started_is_killed() {
    let directory = tempfile::tempdir().unwrap();
    let [starting, go] = ["starting", "go"].map(|name| directory.path().join(name));
    assert!(Command::new("mkfifo").args([&starting, &go]).status().unwrap().success());
    let stage = HostFixture::with_options(|settings| {
        settings.preset = Some(Preset::Full);
        let [starting, go] = [&starting, &go].map(|fifo| fifo.display());
        let script = format!("echo > '{starting}'; read go < '{go}'; exec '{SUPERVISOR}'");
        settings.terminals.supervisor = SupervisorProgram::new("/bin/sh", ["-c", &script]);
    });
    let act = stage.custom_turn(|actor| async move {
        let terminal = actor.create_terminal(json!({"command": "sleep 100"})).await.unwrap();
        let exit = actor.call_text("terminal/wait_for_exit", json!({"terminalId": terminal})).await;
        actor.record(&exit);
        StopReason::Cancelled
    });
    let (connection, session) = stage.open_session(vec![act]).await;
    let cancel = async {
        spawn_blocking(|| std::fs::read(starting)).await.unwrap().unwrap();
        session.cancel();
        spawn_blocking(|| std::fs::write(go, "\n")).await.unwrap().unwrap();
    };
    let (turn, ()) = tokio::join!(session.prompt_text("go"), cancel);
    turn.unwrap();
    connection.close_session(&session).await.unwrap();
    expect![[r#"
        {"signal":"SIGTERM"}
    "#]]
    .assert_eq(&stage.take_text());
}
