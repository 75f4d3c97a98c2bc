//! Tests of `bowline run` with third-party agents: built on the official SDKs, and as published.

use std::process::Command;

use expect_test::expect;
use serde_json::json;
use test_support::agent_homes;
use test_support::model_server::{ModelReply, ModelServer};
use xtask::peers::{PublishedAgent, SdkPeer, is_available};

use crate::fixture::CliFixture;
use crate::programs::workspace_root;
use crate::run::interrupt::BackgroundRun;

/// Returns the command line of an agent, if it can be tested here.
fn agent_command_line(name: &str, command: &[String]) -> Option<String> {
    let quoted = command.iter().map(|word| format!("'{}'", word.replace('\'', r"'\''")));
    is_available(name, command).then(|| quoted.collect::<Vec<_>>().join(" "))
}

fn published_agent_command_line(agent: PublishedAgent) -> Option<String> {
    agent_command_line(agent.name(), &agent.command(&workspace_root()))
}

fn fixture() -> CliFixture {
    let scene = CliFixture::new();
    scene.write_file("a.txt", "one\ntwo\n");
    scene
}

/// Runs a command while the servers of a test keep running.
async fn run(scene: &CliFixture, command: Command) -> String {
    let output = scene.run_command(command, "");
    scene.describe_output(&output)
}

#[test]
fn fast_agent_runs_commands_as_far_as_it_may() {
    let Some(agent) = published_agent_command_line(PublishedAgent::FastAgent) else { return };
    let scene = fixture();
    // Otherwise it keeps its sessions in the project.
    let agent = format!("{agent} --home {}", scene.home().join("fast-agent").display());
    let prompt = r#"***CALL_TOOL execute {"command":"echo hi; echo new > made.txt"}"#;
    expect![[r#"
        ✗ run: execute (TIME)
            The user has declined permission to use this tool: acp_terminal__execute

        The user has declined permission to use this tool: acp_terminal__execute
        --- stderr
        bowline: denied: run echo hi; echo new > made.txt: the user cannot be asked; --approve all would allow it
        --- 5
    "#]].assert_eq(&scene.run(&["run", "--agent", &agent, prompt]));
    assert!(!scene.has_file("made.txt"));
    expect![[r#"
        ✓ run: execute (TIME)
            hi


            [Exit code: 0]

        hi


        [Exit code: 0]

        Changed 1 file:
          made.txt  +1 −0 (new) (after a command)
        To undo: bowline undo
        --- 0
    "#]]
    .assert_eq(&scene.run(&["run", "--agent", &agent, "--approve", "all", prompt]));
    assert_eq!(scene.read_file("made.txt"), "new\n");
    expect![[r#"
        hello
        --- 0
    "#]]
    .assert_eq(&scene.run(&["run", "--agent", &agent, "--format", "quiet", "--session", "last", "hello"]));
}

#[test]
fn elizacp_talks() {
    let Some(agent) = published_agent_command_line(PublishedAgent::Eliza) else { return };
    let scene = fixture();
    expect![[r#"
        How do you do. Please state your problem.
        --- 0
    "#]]
    .assert_eq(&scene.run(&["run", "--agent", &agent, "--format", "quiet", "Hello"]));
    expect![[r#"
        --- stderr
        bowline: the agent cannot go on with sessions of before: leave out --session
        --- 4
    "#]]
    .assert_eq(&scene.run(&["run", "--agent", &agent, "--session", "last", "Hello"]));
}

/// Has an agent built on an SDK edit a file and run a command.
fn check_sdk_agent(peer: SdkPeer) {
    let Some(agent) = agent_command_line(peer.name(), &peer.agent_command(&workspace_root())) else { return };
    let scene = fixture();
    let edit = json!({"do": "edit", "path": scene.file_path("a.txt"), "old": "two", "new": "2", "command": "cat a.txt"});
    let edit = edit.to_string();
    expect![[r#"
        read:"one\ntwo\n"

        permission:reject

        ✗ edit: Edit the file (TIME)

        permission:reject

        ✗ run: cat a.txt (TIME)
        --- stderr
        bowline: denied:
          write a.txt: the user cannot be asked; --approve edits would allow it
          run cat a.txt: the user cannot be asked; --approve all would allow it
        --- 5
    "#]]
    .assert_eq(&scene.run(&["run", "--agent", &agent, &edit]));
    assert_eq!(scene.read_file("a.txt"), "one\ntwo\n");
    scene.write_file("shown.txt", "one\ntwo\nunsaved\n");
    let told = scene.run(&["run", "--agent", &agent, "--approve", "all", "--open", "a.txt=shown.txt", &edit]);
    expect![[r#"
        read:"one\ntwo\nunsaved\n"

        permission:allow

        ✓ edit: Edit the file (TIME)
            @@ -0,0 +1,3 @@
            +one
            +2
            +unsaved

        wrote

        permission:allowterminal:0:"one\n2\nunsaved\n"

        ✓ run: cat a.txt (TIME)

        Changed 1 file:
          a.txt  +1 −1
        To undo: bowline undo
        --- 0
    "#]]
    .assert_eq(&told);
    assert_eq!(scene.read_file("a.txt"), "one\n2\nunsaved\n");
    let mut waiting = BackgroundRun::start(&scene, &["run", "--agent", &agent, r#"{"do":"wait"}"#]);
    waiting.wait_for_text("waiting");
    waiting.send_signal("INT");
    expect![[r#"
        bowline: cancelling the turn; Ctrl-C again ends everything at once
        bowline: interrupted
        --- Some(130)
    "#]]
    .assert_eq(&waiting.wait_for_exit(&scene));
}

#[test]
fn an_agent_on_the_rust_sdk_works() {
    check_sdk_agent(SdkPeer::Rust);
}

#[test]
fn an_agent_on_the_python_sdk_works() {
    check_sdk_agent(SdkPeer::Python);
}

#[test]
fn an_agent_on_the_typescript_sdk_works() {
    check_sdk_agent(SdkPeer::TypeScript);
}

#[tokio::test]
async fn gemini_edits_what_is_open_and_not_saved() {
    let Some(agent) = published_agent_command_line(PublishedAgent::Gemini) else { return };
    let scene = fixture();
    let edit = json!({
        "file_path": scene.file_path("a.txt"), "instruction": "shout", "old_string": "two", "new_string": "TWO",
    });
    let script = || vec![ModelReply::call("replace", edit.clone()), ModelReply::text("I am done.")];
    scene.write_file("shown.txt", "one\ntwo\nunsaved\n");
    for (options, expected) in [
        (
            &["--format", "quiet"][..],
            expect![[r#"
            I am done.
            --- stderr
            bowline: denied: write a.txt: the user cannot be asked; --approve edits would allow it
            --- 5
        "#]],
        ),
        (
            &["--approve", "edits", "--open", "a.txt=shown.txt"],
            expect![[r#"
            ✓ edit: a.txt: two => TWO (TIME)
                @@ -1,3 +1,3 @@
                 one
                -two
                +TWO
                 unsaved

            I am done.

            Changed 1 file:
              a.txt  +1 −1
            To undo: bowline undo
            --- 0
        "#]],
        ),
    ] {
        let model = ModelServer::start(script()).await.unwrap();
        let mut command = scene.command(&[&["run", "--agent", &agent, "go"], options].concat());
        command.envs(agent_homes::prepare_gemini(&scene.home(), model.url()).unwrap());
        expected.assert_eq(&run(&scene, command).await);
    }
    assert_eq!(scene.read_file("a.txt"), "one\nTWO\nunsaved\n");
}

#[tokio::test]
async fn opencode_asks_before_it_edits_by_itself() {
    let Some(agent) = published_agent_command_line(PublishedAgent::OpenCode) else { return };
    let scene = fixture();
    let edit = json!({"filePath": scene.file_path("a.txt"), "oldString": "two", "newString": "TWO"});
    let read = json!({"filePath": scene.file_path("a.txt")});
    for (options, expected) in [
        (
            &[][..],
            expect![[r#"
        ✓ read: $PROJECT/a.txt (TIME)
        ✗ edit: edit (TIME)
            The user rejected permission to use this specific tool call.
        Context: 1 of 1048576 tokens, cost 0.0000 USD
        --- stderr
        bowline: denied: write a.txt: the user cannot be asked; --approve edits would allow it
        --- 5
    "#]],
        ),
        (
            &["--approve", "edits"],
            expect![[r#"
        ✓ read: $PROJECT/a.txt (TIME)
        ✓ edit: $PROJECT/a.txt (TIME)
            @@ -1 +1 @@
            -two
            \ No newline at end of file
            +TWO
            \ No newline at end of file

        I am done.

        Changed 1 file:
          a.txt  +1 −1
        To undo: bowline undo
        Context: 1 of 1048576 tokens, cost 0.0000 USD
        --- 0
    "#]],
        ),
    ] {
        let script = vec![
            ModelReply::call("read", read.clone()),
            ModelReply::call("edit", edit.clone()),
            ModelReply::text("I am done."),
        ];
        let model = ModelServer::start(script).await.unwrap();
        let mut command = scene.command(&[&["run", "--agent", &agent, "go"], options].concat());
        command.envs(agent_homes::prepare_opencode(&scene.home(), model.url()).unwrap());
        expected.assert_eq(&run(&scene, command).await);
    }
    assert_eq!(scene.read_file("a.txt"), "one\nTWO\n");
}
