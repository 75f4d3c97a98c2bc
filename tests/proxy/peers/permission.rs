//! Tests of an agent that asks before it calls an injected tool: the editor's user is asked once, by the tool.

use expect_test::{Expect, expect};
use serde_json::{Value, json};

use super::agents::McpAgent;
use super::editor_client::{EditorClient, is_permission_request};
use crate::fixture::CliFixture;

/// Has an agent read and edit a file with injected tools, and compares the questions to the editor.
async fn check(guest: McpAgent, expect: Expect) {
    let scene = CliFixture::new();
    scene.write_file("a.txt", "one\ntwo\n");
    let edits = json!([{"old_text": "two", "new_text": "2"}]);
    let edit = json!({"path": scene.file_path("a.txt"), "edits": edits});
    let calls = [("read_text_file", json!({"path": scene.file_path("a.txt")})), ("edit_text_file", edit)];
    let Some(ready) = guest.prepare(&scene, &calls).await else { return };
    let told = {
        let mut command = scene.command(&["proxy", "--"]);
        command.args(&ready.command).envs(ready.variables.iter().cloned());
        let mut wire = EditorClient::start(command);
        let session = wire.open_session(&scene.project().display().to_string());
        for prompt in &ready.prompts {
            wire.send_prompt(&session, prompt);
            wire.receive_until(|message| message["id"] == 2 && message.get("method").is_none());
        }
        wire.close();
        wire.output
    };
    assert_eq!(scene.read_file("a.txt"), "one\n2\n", "{told:#?}");
    if guest == McpAgent::Claude {
        // The tools are not hidden behind a search.
        let shown = ready.model.offered_tools();
        assert!(shown.contains(&"mcp__bowline__edit_text_file".to_owned()), "{shown:?}");
    }
    let asked =
        told.iter().map(|line| serde_json::from_str::<Value>(line).unwrap()).filter(is_permission_request);
    let titles: String = asked.map(|asked| format!("{}\n", asked["params"]["toolCall"]["title"])).collect();
    expect.assert_eq(&scene.normalize(&titles));
}

#[tokio::test]
async fn an_edit_by_claude_is_one_question() {
    check(
        McpAgent::Claude,
        expect![[r#"
        "Write $PROJECT/a.txt"
    "#]],
    )
    .await;
}

#[tokio::test]
async fn an_edit_by_codex_is_one_question() {
    check(
        McpAgent::Codex,
        expect![[r#"
        "Write $PROJECT/a.txt"
    "#]],
    )
    .await;
}

#[tokio::test]
async fn an_edit_by_opencode_is_one_question() {
    check(
        McpAgent::OpenCode,
        expect![[r#"
        "Write $PROJECT/a.txt"
    "#]],
    )
    .await;
}

#[tokio::test]
async fn an_edit_by_gemini_is_one_question() {
    check(
        McpAgent::Gemini,
        expect![[r#"
        "Write $PROJECT/a.txt"
    "#]],
    )
    .await;
}

#[tokio::test]
async fn fast_agent_requests_for_unannounced_calls_reach_the_user() {
    check(
        McpAgent::FastAgent,
        expect![[r#"
        "bowline/read_text_file"
        "bowline/edit_text_file"
        "Write $PROJECT/a.txt"
    "#]],
    )
    .await;
}
