//! Clients that die before they answer, that do not read, and that never answer.

use std::time::Duration;

use serde_json::{Value, json};
use test_support::model_server::{ModelReply, ModelServer};

use super::{peak_memory_kib, replay_session};
use crate::conformance::{editor_capabilities, open_session};
use crate::program::{AgentFixture, AgentProgram};

fn is_request(method: &'static str) -> impl Fn(&Value) -> bool {
    move |message| message["method"] == method && message.get("id").is_some()
}

/// Waits for a request without answering it.
async fn wait_for_request(program: &mut AgentProgram, method: &'static str) -> Value {
    loop {
        let message = program.next_message().await.expect("a request");
        if is_request(method)(&message) {
            return message;
        }
        program.handle_message(message).await;
    }
}

fn start_with_model(scene: &AgentFixture, server: &ModelServer, arguments: &[&str]) -> AgentProgram {
    let mut command = scene.agent_command(&[&["--model", "gemini/test"], arguments].concat());
    command.env("GEMINI_API_KEY", "key").env("GEMINI_BASE_URL", server.url());
    AgentProgram::start(command)
}

/// The model is told that the outcome is unknown, and the file is read before the next write.
#[tokio::test]
async fn a_client_that_dies_while_it_writes_leaves_an_open_question() {
    for written in [false, true] {
        let scene = AgentFixture::new();
        let write = || ModelReply::call("write_text_file", json!({"path": "a.txt", "content": "two\n"}));
        let server = ModelServer::start(vec![write(), write(), ModelReply::text("done")]).await.unwrap();
        let mut program = start_with_model(&scene, &server, &["--mode", "accept-edits"]);
        program.initialize(editor_capabilities()).await;
        let session = program.new_session(&scene.project()).await;
        program.prompt(&session, "change it").await;
        let request = wait_for_request(&mut program, "fs/write_text_file").await;
        if written {
            scene.write_file("a.txt", request["params"]["content"].as_str().unwrap());
        }
        assert_eq!(program.close().await, Some(0));

        let mut program = start_with_model(&scene, &server, &["--mode", "accept-edits"]);
        program.initialize(editor_capabilities()).await;
        let told = replay_session(&mut program, &scene, &session).await;
        assert_eq!(
            told, "> change it\nWrite a.txt: failed\n",
            "the model is not asked again without a client"
        );
        let before = program.messages.len();
        assert_eq!(program.run_turn(&session, "go on").await, "end_turn");
        let known = server.requests().last().unwrap()["contents"][2].to_string();
        assert!(known.contains("look before you repeat it") || known.contains("it is not known"), "{known}");
        let files = program.messages[before..].iter().filter_map(|it| it["method"].as_str());
        let files: Vec<&str> = files.filter(|method| method.starts_with("fs/")).collect();
        let first_write = files.iter().position(|method| *method == "fs/write_text_file");
        assert_eq!(first_write.is_none(), written, "what is there already is not written again: {files:?}");
        assert!(first_write.is_none_or(|at| files[..at].contains(&"fs/read_text_file")), "{files:?}");
        assert_eq!(scene.read_file("a.txt"), "two\n");
    }
}

/// A client stops reading for a while. The model waits, memory does not grow, and nothing is lost.
#[tokio::test]
async fn a_client_that_does_not_read_holds_the_model_back() {
    let scene = AgentFixture::new();
    let (mut program, session) = open_session(&scene, &[], json!({})).await;
    assert_eq!(program.run_turn(&session, "stream 10").await, "end_turn");
    let (before, seen) = (peak_memory_kib(&program), program.messages.len());
    let turn = program.prompt(&session, "stream 40000").await;
    check_stays_alive(&mut program).await;
    let grown = peak_memory_kib(&program) - before;
    assert!(grown < 32 << 10, "{grown} KiB");
    assert_eq!(program.wait_for_answer(turn).await["result"]["stopReason"], "end_turn");
    let expected: String = (1..=40_000).map(|number| format!("{number} ")).collect();
    assert!(streamed_text(&program.messages[seen..]) == expected, "all of it, in order");
    let grown = peak_memory_kib(&program) - before;
    assert!(grown < 64 << 10, "{grown} KiB");
}

#[tokio::test]
async fn a_client_that_does_not_read_can_cancel() {
    let scene = AgentFixture::new();
    let (mut program, session) = open_session(&scene, &["--shell"], json!({})).await;
    let turn = program.prompt(&session, "stream 100000").await;
    check_stays_alive(&mut program).await;
    program.notify("session/cancel", json!({"sessionId": session})).await;
    check_stays_alive(&mut program).await;
    assert_eq!(program.wait_for_answer(turn).await["result"]["stopReason"], "cancelled");
    let said = streamed_text(&program.messages);
    let numbers: Vec<usize> = said.split_whitespace().map(|number| number.parse().unwrap()).collect();
    assert!(numbers.len() < 50_000, "{} pieces were on their way", numbers.len());
    assert!(numbers.iter().copied().eq(1..=numbers.len()), "in order");
    assert_eq!(program.run_turn(&session, "say fine").await, "end_turn");
    assert_eq!(program.run_turn(&session, "say fine").await, "end_turn");
}

fn streamed_text(messages: &[Value]) -> String {
    let chunks = messages.iter().map(|it| &it["params"]["update"]);
    let chunks = chunks.filter(|it| it["sessionUpdate"] == "agent_message_chunk");
    chunks.filter_map(|it| it["content"]["text"].as_str()).collect()
}

/// Checks that the program stays alive, for long enough to fill every buffer.
async fn check_stays_alive(program: &mut AgentProgram) {
    let ended = tokio::time::timeout(Duration::from_secs(1), program.child.wait()).await;
    assert!(ended.is_err(), "{ended:?}");
}

/// Waiting for an answer that never comes can be cancelled, and does not block other sessions.
#[tokio::test]
async fn a_session_whose_client_never_answers_delays_no_other() {
    let scene = AgentFixture::new();
    scene.write_file("a.txt", "one\n");
    let (mut program, stuck) = open_session(&scene, &[], editor_capabilities()).await;
    let fine = program.new_session(&scene.project()).await;
    for (prompt, method) in
        [("read a.txt", "fs/read_text_file"), ("write b.txt: b", "session/request_permission")]
    {
        let turn = program.prompt(&stuck, prompt).await;
        let request = wait_for_request(&mut program, method).await;
        assert_eq!(program.run_turn(&fine, "read a.txt").await, "end_turn");
        program.notify("session/cancel", json!({"sessionId": stuck})).await;
        assert_eq!(program.wait_for_answer(turn).await["result"]["stopReason"], "cancelled");
        let withdrawn = program.messages.iter().filter(|it| it["method"] == "$/cancel_request");
        assert!(withdrawn.map(|it| &it["params"]["requestId"]).any(|id| *id == request["id"]));
    }
}
