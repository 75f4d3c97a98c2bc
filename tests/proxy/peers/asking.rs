//! An agent that asks before it calls a tool that the proxy gave it: the editor's user is asked once, by the tool.

use expect_test::{Expect, expect};
use serde_json::{Value, json};

use super::guests::Guest;
use super::wire::{Wire, asks};
use crate::program::Scene;

/// Lets a guest read and edit a file by such tools, and tells what the editor was asked about.
async fn check(guest: Guest, expect: Expect) {
    let scene = Scene::new();
    scene.put("a.txt", "one\ntwo\n");
    let edits = json!([{"old_text": "two", "new_text": "2"}]);
    let edit = json!({"path": scene.path("a.txt"), "edits": edits});
    let calls = [("read_text_file", json!({"path": scene.path("a.txt")})), ("edit_text_file", edit)];
    let Some(ready) = guest.ready(&scene, &calls).await else { return };
    let told = tokio::task::block_in_place(|| {
        let mut command = scene.command(&["proxy", "--"]);
        command.args(&ready.command).envs(ready.variables.iter().cloned());
        let mut wire = Wire::start(command);
        let session = wire.open(&scene.project().display().to_string());
        for prompt in &ready.prompts {
            wire.prompt(&session, prompt);
            wire.until(|message| message["id"] == 2 && message.get("method").is_none());
        }
        wire.end();
        wire.told
    });
    assert_eq!(scene.get("a.txt"), "one\n2\n", "{told:#?}");
    if guest == Guest::Claude {
        // Not behind a search for tools.
        let shown = ready.model.tools();
        assert!(shown.contains(&"mcp__bowline__edit_text_file".to_owned()), "{shown:?}");
    }
    let asked = told.iter().map(|line| serde_json::from_str::<Value>(line).unwrap()).filter(asks);
    let titles: String = asked.map(|asked| format!("{}\n", asked["params"]["toolCall"]["title"])).collect();
    expect.assert_eq(&scene.clean(&titles));
}

#[tokio::test(flavor = "multi_thread")]
async fn an_edit_by_claude_is_one_question() {
    check(
        Guest::Claude,
        expect![[r#"
        "Write $PROJECT/a.txt"
    "#]],
    )
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn an_edit_by_codex_is_one_question() {
    check(
        Guest::Codex,
        expect![[r#"
        "Write $PROJECT/a.txt"
    "#]],
    )
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn an_edit_by_opencode_is_one_question() {
    check(
        Guest::OpenCode,
        expect![[r#"
        "Write $PROJECT/a.txt"
    "#]],
    )
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn an_edit_by_gemini_is_one_question() {
    check(
        Guest::Gemini,
        expect![[r#"
        "Write $PROJECT/a.txt"
    "#]],
    )
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn fast_agent_asks_for_calls_that_it_has_not_announced_and_nobody_answers_in_the_users_place() {
    check(
        Guest::FastAgent,
        expect![[r#"
        "bowline/read_text_file"
        "bowline/edit_text_file"
        "Write $PROJECT/a.txt"
    "#]],
    )
    .await;
}
