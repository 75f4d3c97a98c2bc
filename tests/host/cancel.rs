//! Cancelling in the moments between an approval and what was approved.

use std::process::Command;
use std::sync::mpsc;

use bowline_state::policy::Preset;
use bowline_state::question::Reply;
use bowline_wire::schema::v1::StopReason;
use bowline_workspace::terminals::Supervisor;
use expect_test::expect;
use serde_json::{Value, json};
use tokio::sync::oneshot;
use tokio::task::{spawn_blocking, yield_now};

use super::SUPERVISOR;
use super::stage::Stage;

/// Lets every other task go on as far as it can.
async fn let_others_work() {
    for _ in 0..100 {
        yield_now().await;
    }
}

/// Has a request approved, and cancels its turn when the approval is there and nothing was done yet. Returns what the agent
/// is answered.
async fn approve_then_cancel(stage: &Stage, method: &'static str, params: Value) -> String {
    let (say_yes, said) = oneshot::channel::<()>();
    let mut said = Some(said);
    stage.lab.desk.answer_later(move |_| {
        let said = said.take().unwrap();
        Box::pin(async move {
            said.await.unwrap();
            Reply::allow()
        })
    });
    let act = stage.acting(move |actor| async move {
        actor.says(&actor.answer(method, params).await);
        StopReason::Cancelled
    });
    let (connection, session) = stage.session(vec![act]).await;
    let cancel = async {
        stage.lab.desk.until(|asked, _| asked.len() == 1).await;
        // One thread waits for the disk, in the order of what it is given: the answer is judged once more, then this test has
        // the thread, and what was approved has to wait for it.
        let (begin, first) = mpsc::sync_channel::<()>(1);
        let (end, second) = mpsc::sync_channel::<()>(1);
        let (tell, judged) = oneshot::channel();
        let blocked = spawn_blocking(move || first.recv().unwrap());
        say_yes.send(()).unwrap();
        let_others_work().await;
        let held = spawn_blocking(move || {
            tell.send(()).unwrap();
            second.recv().unwrap();
        });
        begin.send(()).unwrap();
        judged.await.unwrap();
        let_others_work().await;
        session.cancel();
        end.send(()).unwrap();
        blocked.await.unwrap();
        held.await.unwrap();
    };
    let (turn, ()) = tokio::join!(session.prompt_text("go"), cancel);
    turn.unwrap();
    connection.close_session(&session).await.unwrap();
    stage.text()
}

#[test]
fn what_was_approved_is_not_done_if_its_turn_is_cancelled_before_it_begins() {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().max_blocking_threads(1).build();
    runtime.unwrap().block_on(async {
        let stage = Stage::new().file("a.txt", "a\n");
        let write = json!({"path": "$ROOT/a.txt", "content": "b\n"});
        let written = approve_then_cancel(&stage, "fs/write_text_file", write).await;
        assert_eq!(
            (written.as_str(), &*stage.lab.get("a.txt").unwrap()),
            ("! -32800 Request cancelled\n", "a\n")
        );
        let stage = Stage::new();
        let run = approve_then_cancel(&stage, "terminal/create", json!({"command": "echo > ran"})).await;
        assert_eq!((run.as_str(), stage.lab.get("ran").is_err()), ("! -32800 Request cancelled\n", true));
    });
}

#[tokio::test]
async fn a_command_whose_turn_is_cancelled_while_it_is_started_is_killed() {
    let directory = tempfile::tempdir().unwrap();
    let [starting, go] = ["starting", "go"].map(|name| directory.path().join(name));
    assert!(Command::new("mkfifo").args([&starting, &go]).status().unwrap().success());
    let stage = Stage::with(|settings| {
        settings.preset = Some(Preset::Full);
        let [starting, go] = [&starting, &go].map(|fifo| fifo.display());
        let script = format!("echo > '{starting}'; read go < '{go}'; exec '{SUPERVISOR}'");
        settings.terminals.supervisor = Supervisor::new("/bin/sh", ["-c", &script]);
    });
    let act = stage.acting(|actor| async move {
        let terminal = actor.create(json!({"command": "sleep 100"})).await.unwrap();
        let exit = actor.answer("terminal/wait_for_exit", json!({"terminalId": terminal})).await;
        actor.says(&exit);
        StopReason::Cancelled
    });
    let (connection, session) = stage.session(vec![act]).await;
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
    .assert_eq(&stage.text());
}
