//! Files linked in a prompt, and instructions: which are read, asked about, or left out.

use std::os::unix::fs::symlink;

use bowline_agent::prompt::instructions;
use bowline_agent::prompt::{self, AttachmentLimits, PromptContext};
use bowline_agent::reporter::Reporter;
use bowline_agent::tools::CallContext;
use bowline_conversation::conversation::MessagePart;
use bowline_policy::mode::AgentMode;
use bowline_protocol::schema::v1::PermissionOptionKind::RejectOnce;
use bowline_protocol::schema::v1::{ContentBlock, ResourceLink};
use expect_test::expect;
use serde_json::json;
use test_support::editor::{EditorCapabilities, UserAnswer};

use crate::fixture::ToolboxFixture;

/// Sends a prompt with links to files; returns what the editor saw, and the parts for the model.
async fn prompt_with_links(fixture: &ToolboxFixture, turn: u64, links: &[&str]) -> String {
    let link = |name: &&str| {
        ContentBlock::ResourceLink(ResourceLink::new(*name, format!("file://{}", fixture.path(name))))
    };
    let blocks: Vec<ContentBlock> = links.iter().map(link).collect();
    let cwd = fixture.toolbox.runtime().cwd().to_owned();
    let context =
        PromptContext { cwd: &cwd, supports_images: false, limits: AttachmentLimits::for_window(10_000) };
    fixture.wait_until_settled().await;
    fixture.editor.take_log();
    let (client, session) = (fixture.cx.reporter.client().clone(), fixture.cx.reporter.session().clone());
    let cx = CallContext { reporter: Reporter::new(client, session, turn), turn };
    let linked_files = fixture.toolbox.linked_files(cx);
    let prompt = prompt::read_prompt(&blocks, &linked_files, context).await.unwrap();
    fixture.wait_until_settled().await;
    let mut text = fixture.editor.take_log();
    if links.len() > 1 {
        // They are read concurrently, in no fixed order.
        text.clear();
    }
    // The first part names the links.
    for part in prompt.parts.iter().skip(1) {
        let MessagePart::Text { text: part } = part else { continue };
        text += &format!("{part}\n");
    }
    if linked_files.is_cancelled() {
        text += "cancelled\n";
    }
    fixture.normalize(&text)
}

async fn open_fixture(capabilities: EditorCapabilities) -> ToolboxFixture {
    let fixture = ToolboxFixture::open_with(capabilities, AgentMode::Full, |_| (), None).await;
    for (name, text) in [("a.txt", "one\n"), (".env", "SECRET=1\n")] {
        fixture.open_document(name, text);
        fixture.write_to_disk(name, text);
    }
    symlink(".env", fixture.path("AGENTS.md")).unwrap();
    fixture.open_document("AGENTS.md", "SECRET=1\n");
    fixture
}

#[tokio::test]
async fn a_linked_file_is_read_and_recorded() {
    let fixture = open_fixture(EditorCapabilities::ALL).await;
    expect![[r#"
        < fs/read_text_file $ROOT/a.txt
        <file path="$ROOT/a.txt" until="2c8b08da5ce60398">
        one
        </file 2c8b08da5ce60398>
    "#]]
    .assert_eq(&prompt_with_links(&fixture, 1, &["a.txt"]).await);
    expect![[r#"
        < fs/read_text_file $ROOT/missing
        [`$ROOT/missing` could not be shown: resource not found: $ROOT/missing.]
    "#]]
    .assert_eq(&prompt_with_links(&fixture, 2, &["missing"]).await);
    expect![[r#"
        fs/read allowed by preset: full
        fs/read failed by preset: full (resource not found: $ROOT/missing)
    "#]]
    .assert_eq(&fixture.audit_text().await);
}

#[tokio::test]
async fn a_linked_secret_is_asked_about_like_a_call() {
    let fixture = open_fixture(EditorCapabilities::ALL).await;
    expect![[r#"
        > tool_call turn1_1 "Read .env" Read Pending @$ROOT/.env
            input {"path":"$ROOT/.env"}
        < session/request_permission turn1_1 "Read .env"
            text "Careful: holds secrets ($ROOT/.env)"
            allow_once: Allow once
            allow_session: Allow reading the file .env, in this session
            allow_always: Always allow reading the file .env
            reject_once: Reject
            reject_always: Always reject reading the file .env
        > update turn1_1 InProgress
        < fs/read_text_file $ROOT/.env
        > update turn1_1 Completed
            output {"servedBy":"client"}
        <file path="$ROOT/.env" until="664049a85e2251d2">
        SECRET=1
        </file 664049a85e2251d2>
    "#]]
    .assert_eq(&prompt_with_links(&fixture, 1, &[".env"]).await);
    fixture.editor.queue_answer(UserAnswer::OptionKind(RejectOnce));
    expect![[r#"
        > tool_call turn2_1 "Read .env" Read Pending @$ROOT/.env
            input {"path":"$ROOT/.env"}
        < session/request_permission turn2_1 "Read .env"
            text "Careful: holds secrets ($ROOT/.env)"
            allow_once: Allow once
            allow_session: Allow reading the file .env, in this session
            allow_always: Always allow reading the file .env
            reject_once: Reject
            reject_always: Always reject reading the file .env
        > update turn2_1 Failed
            text "permission denied: the user said no; do something else, or ask what to do instead"
            output "permission denied: the user said no; do something else, or ask what to do instead"
        [`$ROOT/.env` could not be shown: permission denied: the user said no; do something else, or ask what to do instead.]
    "#]].assert_eq(&prompt_with_links(&fixture, 2, &[".env"]).await);
    fixture.editor.queue_answer(UserAnswer::OptionKind(RejectOnce));
    expect![[r#"
        [`$ROOT/.env` could not be shown: permission denied: the user said no; do something else, or ask what to do instead.]
        <file path="$ROOT/a.txt" until="2c8b08da5ce60398">
        one
        </file 2c8b08da5ce60398>
    "#]].assert_eq(&prompt_with_links(&fixture, 3, &[".env", "a.txt"]).await);
    fixture.editor.queue_answer(UserAnswer::Cancelled);
    expect![[r#"
        > tool_call turn4_1 "Read .env" Read Pending @$ROOT/.env
            input {"path":"$ROOT/.env"}
        < session/request_permission turn4_1 "Read .env"
            text "Careful: holds secrets ($ROOT/.env)"
            allow_once: Allow once
            allow_session: Allow reading the file .env, in this session
            allow_always: Always allow reading the file .env
            reject_once: Reject
            reject_always: Always reject reading the file .env
        [`$ROOT/.env` could not be shown: request cancelled.]
        cancelled
    "#]]
    .assert_eq(&prompt_with_links(&fixture, 4, &[".env"]).await);
}

#[tokio::test]
async fn files_outside_are_asked_about_if_readable() {
    let outside = "../outside.txt";
    let client_fixture = open_fixture(EditorCapabilities::ALL).await;
    let base = client_fixture.path("").replace("/project/", "");
    client_fixture.editor.set_document(&format!("{base}/outside.txt"), "out\n");
    expect![[r#"
        > tool_call turn1_1 "Read $BASE/outside.txt" Read Pending @$BASE/outside.txt
            input {"path":"$BASE/outside.txt"}
        < session/request_permission turn1_1 "Read $BASE/outside.txt"
            text "Careful: outside the workspace: $BASE/outside.txt"
            allow_once: Allow once
            reject_once: Reject
        > update turn1_1 InProgress
        < fs/read_text_file $BASE/outside.txt
        > update turn1_1 Completed
            output {"servedBy":"client"}
        <file path="$ROOT/../outside.txt" until="54034ac5c6e9ea95">
        out
        </file 54034ac5c6e9ea95>
    "#]]
    .assert_eq(&prompt_with_links(&client_fixture, 1, &[outside]).await);
    let local_fixture = open_fixture(EditorCapabilities::NONE).await;
    local_fixture.write_to_disk(outside, "out\n");
    expect![[r#"
        [`$ROOT/../outside.txt` could not be shown: permission denied: $BASE/outside.txt lies outside the session's directories ($ROOT), and nothing else can be read on the agent's own machine; the user can add a directory to the session in the editor.]
    "#]].assert_eq(&prompt_with_links(&local_fixture, 1, &[outside]).await);
}

#[tokio::test]
async fn rules_hold_for_what_is_linked() {
    let fixture = open_fixture(EditorCapabilities::ALL).await;
    fixture.write_rules("[[rules]]\neffect = \"deny\"\nkinds = [\"read\"]\npath = \"a.txt\"\n");
    expect![[r#"
        [`$ROOT/a.txt` could not be shown: permission denied: the user's rules or settings deny it.]
    "#]]
    .assert_eq(&prompt_with_links(&fixture, 1, &["a.txt"]).await);
}

#[tokio::test]
async fn instructions_that_lead_to_a_secret_are_not_read() {
    let fixture = open_fixture(EditorCapabilities::ALL).await;
    fixture.open_document("sub/AGENTS.md", "Be brief.\n");
    let directories =
        [fixture.path("").trim_end_matches('/').to_owned(), fixture.path("sub"), fixture.path("none")];
    fixture.editor.take_log();
    let instructions =
        instructions::read_instructions(&fixture.toolbox.files_by_rules(), &directories, &[]).await;
    fixture.wait_until_settled().await;
    let texts: Vec<String> =
        instructions.files.iter().map(|file| format!("{}: {}\n", file.path, file.text)).collect();
    // They are read concurrently.
    let out = format!(
        "{}{}{}\n",
        sort_lines(&fixture.editor.take_log()),
        texts.concat(),
        instructions.notes.join("\n")
    );
    expect![[r#"
        < fs/read_text_file $ROOT/none/AGENTS.md
        < fs/read_text_file $ROOT/sub/AGENTS.md
        $ROOT/sub/AGENTS.md: Be brief.
        $ROOT/AGENTS.md could not be read: permission denied: the user would have to be asked, which is not done for this.
    "#]].assert_eq(&fixture.normalize(&out));
    expect![[r#"
        fs/read allowed by preset: full
        fs/read denied by nobody (the user would have to be asked, which is not done for this)
    "#]]
    .assert_eq(&sort_lines(&fixture.audit_text().await));
}

fn sort_lines(text: &str) -> String {
    let mut lines: Vec<&str> = text.split_inclusive('\n').collect();
    lines.sort_unstable();
    lines.concat()
}

#[tokio::test]
async fn a_search_does_not_reuse_one_time_approvals() {
    let fixture = open_fixture(EditorCapabilities::ALL).await;
    fixture.editor.set_document("/outside/b.txt", "one\n");
    for path in [".env", "a.txt", "/outside/b.txt"] {
        fixture.call_tool("read_text_file", json!({ "path": path })).await;
    }
    fixture.open_document("a.txt", "ONE, SECRET, unsaved\n");
    expect![[r#"
        > tool_call turn1_4 "Search for secret in ." Search Pending @$ROOT
            input {"pattern":"secret","path":"$ROOT","regex":false,"case_sensitive":false}
        > update turn1_4 InProgress
        < fs/read_text_file $ROOT/a.txt
        > update turn1_4 Completed @$ROOT/a.txt:1
            text "[1 matching line; 1 file searched on the agent's own machine; of 1 file that were read through the editor, its text counts; 1 protected file left out]\na.txt (as the editor has it)\n  1: ONE, SECRET, unsaved\n"
            output {"servedBy":"local","matches":1,"filesSearched":1,"filesOfTheEditor":1,"truncated":false}
        = [1 matching line; 1 file searched on the agent's own machine; of 1 file that were read through the editor, its text counts; 1 protected file left out]
        a.txt (as the editor has it)
          1: ONE, SECRET, unsaved
    "#]].assert_eq(&fixture.call_and_log("search_text", json!({ "pattern": "secret" })).await);
}

#[tokio::test]
async fn unreadable_paths_are_denied_without_asking() {
    let fixture = open_fixture(EditorCapabilities::NONE).await;
    fixture.write_to_disk("../outside.txt", "out\n");
    let mut out = String::new();
    for (name, input) in [
        ("read_text_file", json!({ "path": "../outside.txt" })),
        ("list_directory", json!({ "path": ".." })),
        ("search_text", json!({ "path": "..", "pattern": "out" })),
    ] {
        out += &fixture.call_and_log(name, input).await;
    }
    expect![[r#"
        > tool_call turn1_1 "Read $BASE/outside.txt" Read Pending @$BASE/outside.txt
            input {"path":"$BASE/outside.txt"}
        > update turn1_1 Failed
            text "permission denied: $BASE/outside.txt lies outside the session's directories ($ROOT), and nothing else can be read on the agent's own machine; the user can add a directory to the session in the editor"
            output "permission denied: $BASE/outside.txt lies outside the session's directories ($ROOT), and nothing else can be read on the agent's own machine; the user can add a directory to the session in the editor"
        ! permission denied: $BASE/outside.txt lies outside the session's directories ($ROOT), and nothing else can be read on the agent's own machine; the user can add a directory to the session in the editor
        > tool_call turn1_2 "List $BASE" Read Pending @$BASE
            input {"path":"$BASE","depth":1}
        > update turn1_2 Failed
            text "permission denied: $BASE lies outside the session's directories ($ROOT), and nothing else can be read on the agent's own machine; the user can add a directory to the session in the editor"
            output "permission denied: $BASE lies outside the session's directories ($ROOT), and nothing else can be read on the agent's own machine; the user can add a directory to the session in the editor"
        ! permission denied: $BASE lies outside the session's directories ($ROOT), and nothing else can be read on the agent's own machine; the user can add a directory to the session in the editor
        > tool_call turn1_3 "Search for out in $BASE" Search Pending @$BASE
            input {"pattern":"out","path":"$BASE","regex":false,"case_sensitive":false}
        > update turn1_3 Failed
            text "permission denied: $BASE lies outside the session's directories ($ROOT), and nothing else can be read on the agent's own machine; the user can add a directory to the session in the editor"
            output "permission denied: $BASE lies outside the session's directories ($ROOT), and nothing else can be read on the agent's own machine; the user can add a directory to the session in the editor"
        ! permission denied: $BASE lies outside the session's directories ($ROOT), and nothing else can be read on the agent's own machine; the user can add a directory to the session in the editor
    "#]].assert_eq(&out);
    expect![[r#"
        fs/read denied by nobody ($BASE/outside.txt lies outside the session's directories ($ROOT), and nothing else can be read on the agent's own machine; the user can add a directory to the session in the editor)
        fs/read denied by nobody ($BASE lies outside the session's directories ($ROOT), and nothing else can be read on the agent's own machine; the user can add a directory to the session in the editor)
        fs/read denied by nobody ($BASE lies outside the session's directories ($ROOT), and nothing else can be read on the agent's own machine; the user can add a directory to the session in the editor)
    "#]].assert_eq(&fixture.audit_text().await);
}
