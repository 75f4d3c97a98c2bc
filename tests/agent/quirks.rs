//! Clients with a known fault, as the table of quirks has them.

use serde_json::{Value, json};

use crate::program::{Program, Scene};

/// What Agentic.nvim advertises: its name is where its capabilities are.
fn agentic() -> Value {
    let info = json!({"name": "Agentic.nvim", "version": "0.0.1"});
    let fs = json!({"readTextFile": true, "writeTextFile": true});
    json!({"fs": fs, "terminal": false, "clientInfo": info})
}

/// Takes a turn as Agentic.nvim does: what it cannot open it answers with a result that has no content.
async fn turn(program: &mut Program, session: &str, prompt: &str) -> String {
    let turn = program.prompt(session, prompt).await;
    loop {
        let message = program.line().await.expect("an answer");
        if message["id"] == turn && message.get("method").is_none() {
            return message["result"]["stopReason"].as_str().unwrap().to_owned();
        }
        let path = message["params"]["path"].as_str().unwrap_or_default();
        if message["method"] == "fs/read_text_file" && !std::path::Path::new(path).is_file() {
            program.send(&json!({"jsonrpc": "2.0", "id": message["id"], "result": []})).await;
        } else {
            program.take(message).await;
        }
    }
}

/// Starts the agent, with a log, and the table of quirks as `value` of its variable has it.
async fn started(scene: &Scene, value: &str, capabilities: Value) -> (Program, String) {
    let log = scene.home().join("log").display().to_string();
    let mut command = scene.command(&["--mode", "accept-edits", "--log", &log]);
    command.env("BOWLINE_NO_QUIRKS", value);
    let mut program = Program::start(command);
    program.initialize(capabilities).await;
    let session = program.new_session(&scene.project()).await;
    (program, session)
}

#[tokio::test]
async fn a_file_that_agentic_nvim_does_not_find_is_created() {
    let scene = Scene::new();
    let (mut program, session) = started(&scene, "", agentic()).await;
    assert_eq!(turn(&mut program, &session, "read new.txt").await, "end_turn");
    assert!(program.said().contains("new.txt does not exist"), "{}", program.said());
    assert_eq!(turn(&mut program, &session, "write new.txt: hello").await, "end_turn");
    assert_eq!(scene.get("new.txt").trim_end(), "hello", "{}", program.said());
    let log = std::fs::read_to_string(scene.home().join("log")).unwrap();
    assert!(log.contains("an answer without content is taken for a missing file for Agentic.nvim"), "{log}");
}

/// There is something of that name, which the editor cannot open: nothing is written in its place.
#[tokio::test]
async fn a_file_that_is_there_and_agentic_nvim_cannot_open_is_not_replaced() {
    let scene = Scene::new();
    std::fs::create_dir(scene.project().join("new.txt")).unwrap();
    let (mut program, session) = started(&scene, "", agentic()).await;
    assert_eq!(turn(&mut program, &session, "write new.txt: hello").await, "end_turn");
    assert_eq!(program.calls("fs/write_text_file"), 0, "{}", program.said());
}

#[tokio::test]
async fn without_the_table_and_from_others_such_an_answer_is_an_error() {
    let mut other = agentic();
    other["clientInfo"]["name"] = json!("another.nvim");
    for (value, capabilities) in [("1", agentic()), ("", other)] {
        let scene = Scene::new();
        let (mut program, session) = started(&scene, value, capabilities).await;
        assert_eq!(turn(&mut program, &session, "write new.txt: hello").await, "end_turn");
        assert_eq!(program.calls("fs/write_text_file"), 0, "{}", program.said());
        assert!(program.said().contains("cannot be understood"), "{}", program.said());
    }
}
