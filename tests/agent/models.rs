//! A real provider's wire format, end to end: the program, a model behind HTTP, an editor.

use expect_test::expect;
use serde_json::json;
use test_support::model_server::{ModelReply, ModelServer};

use crate::program::{AgentFixture, AgentProgram};

#[tokio::test]
async fn a_model_behind_http_reads_and_edits_through_the_editor() {
    let scene = AgentFixture::new();
    scene.write_file("AGENTS.md", "Always knot twice.\n");
    scene.write_file("a.txt", "one\ntwo\n");
    let server = ModelServer::start(vec![
        ModelReply::call("read_text_file", json!({"path": "a.txt"})),
        ModelReply::call(
            "edit_text_file",
            json!({"path": "a.txt", "edits": [{"old_text": "two", "new_text": "2"}]}),
        ),
        ModelReply::call("no_such_tool", json!({})),
        ModelReply::text("Done."),
    ])
    .await
    .unwrap();
    let named = scene.home().join("rules.md");
    std::fs::write(&named, "Never cut a rope.\n").unwrap();
    let arguments =
        ["--model", "gemini/test", "--base-url", server.url(), "--instruction", named.to_str().unwrap()];
    let mut command = scene.agent_command(&arguments);
    command.env("GEMINI_API_KEY", "unused-key");
    let mut program = AgentProgram::start(command);
    program.initialize(json!({"fs": {"readTextFile": true, "writeTextFile": true}})).await;
    let session = program.new_session(&scene.project()).await;
    program.unsaved_files.insert(scene.path("a.txt"), "one\ntwo\nthree\n".to_owned());
    assert_eq!(program.run_turn(&session, "Make the two a 2.").await, "end_turn");
    assert_eq!(program.agent_text(), "Done.");
    assert_eq!(scene.read_file("a.txt"), "one\n2\nthree\n");

    let heard: Vec<String> = server.requests().iter().map(ToString::to_string).collect();
    assert_eq!(heard.len(), 4, "{heard:#?}");
    assert!(
        heard[0].contains("Always knot twice.") && heard[0].contains("Never cut a rope."),
        "{}",
        heard[0]
    );
    assert!(heard[1].contains("three"), "the model is shown what is not saved");
    let results = server.tool_results();
    assert!(results[2].contains("no_such_tool") && results[2].contains("read_text_file"), "{results:?}");
    // After a logout the key is no longer used.
    program.call("logout", json!({})).await;
    let prompt = json!({"sessionId": session, "prompt": [{"type": "text", "text": "and on"}]});
    assert_eq!(program.call_error("session/prompt", prompt).await["code"], -32000);
    assert_eq!(server.requests().len(), 4);
    assert!(!heard.iter().any(|request| request.contains("unused-key")));
}

#[tokio::test]
async fn a_small_model_is_told_of_tools_in_words_and_calls_them_so() {
    let scene = AgentFixture::new();
    scene.write_file("a.txt", "one\ntwo\n");
    let call =
        |name: &str, rest: &str| format!("```json\n{{\"name\": \"{name}\", \"arguments\": {rest}}}\n```\n");
    let server = ModelServer::start(vec![
        ModelReply::text(&call("read_text_file", r#"{"path": "a.txt"}"#)),
        // After an empty reply the model is prompted once more.
        ModelReply::text(""),
        ModelReply::text(&call("change_text_file", r#"{"path": "a.txt"}"#)),
        // The model continues as if it had seen the result.
        ModelReply::text(&format!(
            "{}{}",
            call("edit_text_file", r#"{"path": "a.txt", "old_text": "two", "new_text": "2"}"#),
            call("write_text_file", r#"{"path": "a.txt", "content": "nothing"}"#)
        )),
        ModelReply::text("a.txt says 2 now."),
    ])
    .await
    .unwrap();
    let url = format!("{}/small/v1", server.url());
    let mut program =
        AgentProgram::start(scene.agent_command(&["--model", "compatible/scripted", "--base-url", &url]));
    program.initialize(json!({"fs": {"readTextFile": true, "writeTextFile": true}})).await;
    let session = program.new_session(&scene.project()).await;
    assert_eq!(program.run_turn(&session, "Make the two a 2.").await, "end_turn");
    assert_eq!(program.agent_text(), "a.txt says 2 now.");
    assert_eq!(scene.read_file("a.txt"), "one\n2\n");

    let heard = server.requests();
    assert!(heard.iter().all(|request| request.get("tools").is_none()));
    let first = heard[0]["messages"][0]["content"].as_str().unwrap();
    assert!(first.contains("- edit_text_file(path, old_text, new_text, replace_all?): "), "{first}");
    let last: Vec<&str> = heard
        .iter()
        .map(|request| request["messages"].as_array().unwrap().last().unwrap()["content"].as_str().unwrap())
        .collect();
    expect![[r#"
        Make the two a 2.
        ----
        Result of read_text_file:
        [a.txt: all of it, 2 lines, read through the editor]
        one
        two

        Answer the user if this is enough; else call the next tool.
        ----
        Result of read_text_file:
        [a.txt: all of it, 2 lines, read through the editor]
        one
        two

        Answer the user if this is enough; else call the next tool.

        You have said nothing. Answer the user in words, or call the tool that the task needs next.
        ----
        Result of change_text_file failed:
        there is no tool "change_text_file": the tools are read_text_file, write_text_file, edit_text_file, write_files, append_file, delete_file, move_file, list_directory, stat_file, search_text, update_plan

        If it was refused, tell the user; else correct the call that failed, and make it again.
        ----
        Result of edit_text_file:
        Edited a.txt in 1 place, through the editor.

        Call the next tool that the task needs; answer the user if it needs none."#]].assert_eq(&last.join("\n----\n"));
}
