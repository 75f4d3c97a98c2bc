//! Clients with a known fault, as listed in the table of quirks.

use serde_json::{Value, json};

use crate::program::{AgentFixture, AgentProgram};

/// The capabilities of Agentic.nvim, which sends its name among them.
fn agentic_capabilities() -> Value {
    let info = json!({"name": "Agentic.nvim", "version": "0.0.1"});
    let fs = json!({"readTextFile": true, "writeTextFile": true});
    json!({"fs": fs, "terminal": false, "clientInfo": info})
}

/// Runs a turn as Agentic.nvim does: it answers reads of files it cannot open with a result without content.
async fn run_agentic_turn(program: &mut AgentProgram, session: &str, prompt: &str) -> String {
    run_turn_with_answer(program, session, prompt, &json!([])).await
}

/// Runs a turn as Toad does: it answers reads of files it cannot open with empty text.
async fn run_toad_turn(program: &mut AgentProgram, session: &str, prompt: &str) -> String {
    run_turn_with_answer(program, session, prompt, &json!({"content": ""})).await
}

/// Runs a turn with a client that answers reads of files it cannot open with this result.
async fn run_turn_with_answer(
    program: &mut AgentProgram,
    session: &str,
    prompt: &str,
    unreadable: &Value,
) -> String {
    let turn = program.prompt(session, prompt).await;
    loop {
        let message = program.next_message().await.expect("an answer");
        if message["id"] == turn && message.get("method").is_none() {
            return message["result"]["stopReason"].as_str().unwrap().to_owned();
        }
        let path = message["params"]["path"].as_str().unwrap_or_default();
        if message["method"] == "fs/read_text_file" && !std::path::Path::new(path).is_file() {
            program.send(&json!({"jsonrpc": "2.0", "id": message["id"], "result": unreadable})).await;
        } else {
            program.handle_message(message).await;
        }
    }
}

/// Starts the agent with a log, and with `value` in `BOWLINE_NO_QUIRKS`.
async fn start_with_quirks(scene: &AgentFixture, value: &str, capabilities: Value) -> (AgentProgram, String) {
    start_for_client(scene, value, json!({"clientCapabilities": capabilities})).await
}

/// Starts the agent for Toad.
async fn start_for_toad(scene: &AgentFixture, value: &str, name: &str) -> (AgentProgram, String) {
    let fs = json!({"readTextFile": true, "writeTextFile": true});
    let info = json!({"name": name, "title": "Toad", "version": "0.6.20"});
    let hello = json!({"clientCapabilities": {"fs": fs, "terminal": false}, "clientInfo": info});
    start_for_client(scene, value, hello).await
}

async fn start_for_client(scene: &AgentFixture, value: &str, mut hello: Value) -> (AgentProgram, String) {
    let log = scene.home().join("log").display().to_string();
    let mut command = scene.agent_command(&["--mode", "accept-edits", "--log", &log]);
    command.env("BOWLINE_NO_QUIRKS", value);
    let mut program = AgentProgram::start(command);
    hello["protocolVersion"] = json!(1);
    program.call("initialize", hello).await;
    let session = program.new_session(&scene.project()).await;
    (program, session)
}

#[tokio::test]
async fn a_file_that_agentic_nvim_does_not_find_is_created() {
    let scene = AgentFixture::new();
    let (mut program, session) = start_with_quirks(&scene, "", agentic_capabilities()).await;
    assert_eq!(run_agentic_turn(&mut program, &session, "read new.txt").await, "end_turn");
    assert!(program.agent_text().contains("new.txt does not exist"), "{}", program.agent_text());
    assert_eq!(run_agentic_turn(&mut program, &session, "write new.txt: hello").await, "end_turn");
    assert_eq!(scene.read_file("new.txt").trim_end(), "hello", "{}", program.agent_text());
    let log = std::fs::read_to_string(scene.home().join("log")).unwrap();
    assert!(log.contains("an answer without content is taken for a missing file for Agentic.nvim"), "{log}");
}

/// A file of that name exists, but the editor cannot open it: it is not overwritten.
#[tokio::test]
async fn a_file_that_is_there_and_agentic_nvim_cannot_open_is_not_replaced() {
    let scene = AgentFixture::new();
    std::fs::create_dir(scene.project().join("new.txt")).unwrap();
    let (mut program, session) = start_with_quirks(&scene, "", agentic_capabilities()).await;
    assert_eq!(run_agentic_turn(&mut program, &session, "write new.txt: hello").await, "end_turn");
    assert_eq!(program.count_calls("fs/write_text_file"), 0, "{}", program.agent_text());
}

#[tokio::test]
async fn without_the_table_and_from_others_such_an_answer_is_an_error() {
    let mut other = agentic_capabilities();
    other["clientInfo"]["name"] = json!("another.nvim");
    for (value, capabilities) in [("1", agentic_capabilities()), ("", other)] {
        let scene = AgentFixture::new();
        let (mut program, session) = start_with_quirks(&scene, value, capabilities).await;
        assert_eq!(run_agentic_turn(&mut program, &session, "write new.txt: hello").await, "end_turn");
        assert_eq!(program.count_calls("fs/write_text_file"), 0, "{}", program.agent_text());
        assert!(program.agent_text().contains("cannot be understood"), "{}", program.agent_text());
    }
}

#[tokio::test]
async fn a_file_that_toad_does_not_find_is_missing_and_then_created() {
    let scene = AgentFixture::new();
    let (mut program, session) = start_for_toad(&scene, "", "toad").await;
    assert_eq!(run_toad_turn(&mut program, &session, "read new.txt").await, "end_turn");
    assert!(program.agent_text().contains("new.txt does not exist"), "{}", program.agent_text());
    assert_eq!(run_toad_turn(&mut program, &session, "write new.txt: hello").await, "end_turn");
    assert_eq!(scene.read_file("new.txt").trim_end(), "hello", "{}", program.agent_text());
    let updates = program.updates("tool_call_update");
    assert!(updates.iter().any(|update| update["rawOutput"]["outcome"] == "created"), "{updates:?}");
    let log = std::fs::read_to_string(scene.home().join("log")).unwrap();
    assert!(log.contains("new.txt: empty text is taken for a missing file for toad"), "{log}");
}

/// A file without text is one, whatever the client calls itself; and an unknown client is believed.
#[tokio::test]
async fn an_empty_file_is_there_and_other_clients_are_taken_literally() {
    for (value, name, is_file) in [("", "toad", true), ("1", "toad", false), ("", "frog", false)] {
        let scene = AgentFixture::new();
        if is_file {
            scene.write_file("new.txt", "");
        }
        let (mut program, session) = start_for_toad(&scene, value, name).await;
        assert_eq!(run_toad_turn(&mut program, &session, "read new.txt").await, "end_turn");
        assert!(!program.agent_text().contains("does not exist"), "{name}: {}", program.agent_text());
    }
}
