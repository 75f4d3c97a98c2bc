//! F01, F03, F04: clients that die before they answer, that do not read, and that never answer.

use std::time::Duration;

use serde_json::{Value, json};
use test_support::model_server::{ModelServer, Say};

use super::{peak_memory, replayed};
use crate::conformance::{editor, opened};
use crate::program::{Program, Scene};

fn asks(method: &'static str) -> impl Fn(&Value) -> bool {
    move |message| message["method"] == method && message.get("id").is_some()
}

/// Waits for a request and does not answer it.
async fn unanswered(program: &mut Program, method: &'static str) -> Value {
    loop {
        let message = program.line().await.expect("a request");
        if asks(method)(&message) {
            return message;
        }
        program.take(message).await;
    }
}

fn hearing(scene: &Scene, server: &ModelServer, arguments: &[&str]) -> Program {
    let mut command = scene.command(&[&["--model", "gemini/test"], arguments].concat());
    command.env("GEMINI_API_KEY", "key").env("GEMINI_BASE_URL", server.url());
    Program::start(command)
}

/// F01: whether the file was written or not, the model is told that nobody knows, and it is read before it is written.
#[tokio::test]
async fn a_client_that_dies_while_it_writes_leaves_an_open_question() {
    for written in [false, true] {
        let scene = Scene::new();
        let write = || Say::call("write_text_file", json!({"path": "a.txt", "content": "two\n"}));
        let server = ModelServer::start(vec![write(), write(), Say::text("done")]).await.unwrap();
        let mut program = hearing(&scene, &server, &["--mode", "accept-edits"]);
        program.initialize(editor()).await;
        let session = program.new_session(&scene.project()).await;
        program.prompt(&session, "change it").await;
        let request = unanswered(&mut program, "fs/write_text_file").await;
        if written {
            scene.put("a.txt", request["params"]["content"].as_str().unwrap());
        }
        assert_eq!(program.end().await, Some(0));

        let mut program = hearing(&scene, &server, &["--mode", "accept-edits"]);
        program.initialize(editor()).await;
        let told = replayed(&mut program, &scene, &session).await;
        assert_eq!(told, "> change it\nWrite a.txt: failed\n", "the model is not asked again for nobody");
        let before = program.seen.len();
        assert_eq!(program.turn(&session, "go on").await, "end_turn");
        let known = server.heard().last().unwrap()["contents"][2].to_string();
        assert!(known.contains("look before you repeat it") || known.contains("it is not known"), "{known}");
        let files = program.seen[before..].iter().filter_map(|it| it["method"].as_str());
        let files: Vec<&str> = files.filter(|method| method.starts_with("fs/")).collect();
        let first_write = files.iter().position(|method| *method == "fs/write_text_file");
        assert_eq!(first_write.is_none(), written, "what is there already is not written again: {files:?}");
        assert!(first_write.is_none_or(|at| files[..at].contains(&"fs/read_text_file")), "{files:?}");
        assert_eq!(scene.get("a.txt"), "two\n");
    }
}

/// F03: nothing is read for a while. The model waits, memory stays as it is, and nothing is lost.
#[tokio::test]
async fn a_client_that_does_not_read_holds_the_model_back() {
    let scene = Scene::new();
    let (mut program, session) = opened(&scene, &[], json!({})).await;
    assert_eq!(program.turn(&session, "stream 10").await, "end_turn");
    let (before, seen) = (peak_memory(&program), program.seen.len());
    let turn = program.prompt(&session, "stream 40000").await;
    stays(&mut program).await;
    let grown = peak_memory(&program) - before;
    assert!(grown < 32 << 10, "{grown} KiB");
    assert_eq!(program.answer(turn).await["result"]["stopReason"], "end_turn");
    let expected: String = (1..=40_000).map(|number| format!("{number} ")).collect();
    assert!(streamed(&program.seen[seen..]) == expected, "all of it, in order");
    let grown = peak_memory(&program) - before;
    assert!(grown < 64 << 10, "{grown} KiB");
}

#[tokio::test]
async fn a_client_that_does_not_read_can_cancel() {
    let scene = Scene::new();
    let (mut program, session) = opened(&scene, &["--shell"], json!({})).await;
    let turn = program.prompt(&session, "stream 100000").await;
    stays(&mut program).await;
    program.notify("session/cancel", json!({"sessionId": session})).await;
    stays(&mut program).await;
    assert_eq!(program.answer(turn).await["result"]["stopReason"], "cancelled");
    let said = streamed(&program.seen);
    let numbers: Vec<usize> = said.split_whitespace().map(|number| number.parse().unwrap()).collect();
    assert!(numbers.len() < 50_000, "{} pieces were on their way", numbers.len());
    assert!(numbers.iter().copied().eq(1..=numbers.len()), "in order");
    assert_eq!(program.turn(&session, "say fine").await, "end_turn");
    assert_eq!(program.turn(&session, "say fine").await, "end_turn");
}

fn streamed(messages: &[Value]) -> String {
    let chunks = messages.iter().map(|it| &it["params"]["update"]);
    let chunks = chunks.filter(|it| it["sessionUpdate"] == "agent_message_chunk");
    chunks.filter_map(|it| it["content"]["text"].as_str()).collect()
}

/// Sees to it that the program does not end, for long enough to fill whatever it could fill.
async fn stays(program: &mut Program) {
    let ended = tokio::time::timeout(Duration::from_secs(1), program.child.wait()).await;
    assert!(ended.is_err(), "{ended:?}");
}

/// F04: whoever waits for an answer that never comes waits for one that can be cancelled, and others need not wait.
#[tokio::test]
async fn a_session_whose_client_never_answers_keeps_nobody_else_waiting() {
    let scene = Scene::new();
    scene.put("a.txt", "one\n");
    let (mut program, stuck) = opened(&scene, &[], editor()).await;
    let fine = program.new_session(&scene.project()).await;
    for (prompt, method) in
        [("read a.txt", "fs/read_text_file"), ("write b.txt: b", "session/request_permission")]
    {
        let turn = program.prompt(&stuck, prompt).await;
        let request = unanswered(&mut program, method).await;
        assert_eq!(program.turn(&fine, "read a.txt").await, "end_turn");
        program.notify("session/cancel", json!({"sessionId": stuck})).await;
        assert_eq!(program.answer(turn).await["result"]["stopReason"], "cancelled");
        let withdrawn = program.seen.iter().filter(|it| it["method"] == "$/cancel_request");
        assert!(withdrawn.map(|it| &it["params"]["requestId"]).any(|id| *id == request["id"]));
    }
}
