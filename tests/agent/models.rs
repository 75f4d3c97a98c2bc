//! A real provider's wire format, end to end: the program, a model behind HTTP, an editor.

use serde_json::json;
use test_support::model_server::{ModelServer, Say};

use crate::program::{Program, Scene};

#[tokio::test]
async fn a_model_behind_http_reads_and_edits_through_the_editor() {
    let scene = Scene::new();
    scene.put("AGENTS.md", "Always knot twice.\n");
    scene.put("a.txt", "one\ntwo\n");
    let server = ModelServer::start(vec![
        Say::call("read_text_file", json!({"path": "a.txt"})),
        Say::call(
            "edit_text_file",
            json!({"path": "a.txt", "edits": [{"old_text": "two", "new_text": "2"}]}),
        ),
        Say::call("no_such_tool", json!({})),
        Say::text("Done."),
    ])
    .await
    .unwrap();
    let named = scene.home().join("rules.md");
    std::fs::write(&named, "Never cut a rope.\n").unwrap();
    let arguments =
        ["--model", "gemini/test", "--base-url", server.url(), "--instruction", named.to_str().unwrap()];
    let mut command = scene.command(&arguments);
    command.env("GEMINI_API_KEY", "key-of-nobody");
    let mut program = Program::start(command);
    program.initialize(json!({"fs": {"readTextFile": true, "writeTextFile": true}})).await;
    let session = program.new_session(&scene.project()).await;
    program.unsaved.insert(scene.path("a.txt"), "one\ntwo\nthree\n".to_owned());
    assert_eq!(program.turn(&session, "Make the two a 2.").await, "end_turn");
    assert_eq!(program.said(), "Done.");
    assert_eq!(scene.get("a.txt"), "one\n2\nthree\n");

    let heard: Vec<String> = server.heard().iter().map(ToString::to_string).collect();
    assert_eq!(heard.len(), 4, "{heard:#?}");
    assert!(
        heard[0].contains("Always knot twice.") && heard[0].contains("Never cut a rope."),
        "{}",
        heard[0]
    );
    assert!(heard[1].contains("three"), "the model is shown what is not saved");
    let results = server.tool_results();
    assert!(results[2].contains("no_such_tool") && results[2].contains("read_text_file"), "{results:?}");
    // Who has logged out is not billed any more.
    program.call("logout", json!({})).await;
    let prompt = json!({"sessionId": session, "prompt": [{"type": "text", "text": "and on"}]});
    assert_eq!(program.fails("session/prompt", prompt).await["code"], -32000);
    assert_eq!(server.heard().len(), 4);
    assert!(!heard.iter().any(|request| request.contains("key-of-nobody")));
}
