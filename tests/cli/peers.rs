//! `bowline run` with agents that we did not write: on the official SDKs, and as their makers publish them.

use std::process::Command;

use expect_test::expect;
use serde_json::json;
use test_support::agent_homes;
use test_support::model_server::{ModelServer, Say};
use xtask::peers::{OtherAgent, Peer, is_there};

use crate::program::Scene;
use crate::programs::root;
use crate::run::ending::Running;

/// Returns the command line of an agent, if it can be tested here.
fn line(name: &str, command: &[String]) -> Option<String> {
    let quoted = command.iter().map(|word| format!("'{}'", word.replace('\'', r"'\''")));
    is_there(name, command).then(|| quoted.collect::<Vec<_>>().join(" "))
}

fn other(agent: OtherAgent) -> Option<String> {
    line(agent.name(), &agent.command(&root()))
}

fn scene() -> Scene {
    let scene = Scene::new();
    scene.put("a.txt", "one\ntwo\n");
    scene
}

/// Runs a command while the servers of a test go on.
async fn run(scene: &Scene, command: Command) -> String {
    let output = tokio::task::block_in_place(|| scene.output(command, ""));
    scene.told(&output)
}

#[test]
fn fast_agent_runs_commands_as_far_as_it_may() {
    let Some(agent) = other(OtherAgent::FastAgent) else { return };
    let scene = scene();
    // Else it keeps its sessions in the project.
    let agent = format!("{agent} --home {}", scene.home().join("fast-agent").display());
    let prompt = r#"***CALL_TOOL execute {"command":"echo hi; echo new > made.txt"}"#;
    expect![[r#"
        ✗ run: execute (TIME)
            The user has declined permission to use this tool: acp_terminal__execute

        The user has declined permission to use this tool: acp_terminal__execute
        --- stderr
        bowline: denied: run echo hi; echo new > made.txt: nobody is there to ask; --approve all would allow it
        --- 5
    "#]].assert_eq(&scene.run(&["run", "--agent", &agent, prompt]));
    assert!(!scene.has("made.txt"));
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
    assert_eq!(scene.get("made.txt"), "new\n");
    expect![[r#"
        hello
        --- 0
    "#]]
    .assert_eq(&scene.run(&["run", "--agent", &agent, "--format", "quiet", "--session", "last", "hello"]));
}

#[test]
fn elizacp_talks() {
    let Some(agent) = other(OtherAgent::Eliza) else { return };
    let scene = scene();
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

/// Lets an agent on an SDK edit a file and run a command.
fn on_an_sdk(peer: Peer) {
    let Some(agent) = line(peer.name(), &peer.agent(&root())) else { return };
    let scene = scene();
    let edit =
        json!({"do": "edit", "path": scene.path("a.txt"), "old": "two", "new": "2", "command": "cat a.txt"});
    let edit = edit.to_string();
    expect![[r#"
        read:"one\ntwo\n"

        permission:reject

        ✗ edit: Edit the file (TIME)

        permission:reject

        ✗ run: cat a.txt (TIME)
        --- stderr
        bowline: denied:
          write a.txt: nobody is there to ask; --approve edits would allow it
          run cat a.txt: nobody is there to ask; --approve all would allow it
        --- 5
    "#]]
    .assert_eq(&scene.run(&["run", "--agent", &agent, &edit]));
    assert_eq!(scene.get("a.txt"), "one\ntwo\n");
    scene.put("shown.txt", "one\ntwo\nunsaved\n");
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
    assert_eq!(scene.get("a.txt"), "one\n2\nunsaved\n");
    let mut waiting = Running::start(&scene, &["run", "--agent", &agent, r#"{"do":"wait"}"#]);
    waiting.until("waiting");
    waiting.signal("INT");
    expect![[r#"
        bowline: cancelling the turn; Ctrl-C again ends everything at once
        bowline: interrupted
        --- Some(130)
    "#]]
    .assert_eq(&waiting.end(&scene));
}

#[test]
fn an_agent_on_the_rust_sdk_works() {
    on_an_sdk(Peer::Rust);
}

#[test]
fn an_agent_on_the_python_sdk_works() {
    on_an_sdk(Peer::Python);
}

#[test]
fn an_agent_on_the_typescript_sdk_works() {
    on_an_sdk(Peer::TypeScript);
}

#[tokio::test(flavor = "multi_thread")]
async fn gemini_edits_what_is_open_and_not_saved() {
    let Some(agent) = other(OtherAgent::Gemini) else { return };
    let scene = scene();
    let edit = json!({
        "file_path": scene.path("a.txt"), "instruction": "shout", "old_string": "two", "new_string": "TWO",
    });
    let script = || vec![Say::call("replace", edit.clone()), Say::text("I am done.")];
    scene.put("shown.txt", "one\ntwo\nunsaved\n");
    for (options, expected) in [
        (
            &["--format", "quiet"][..],
            expect![[r#"
            I am done.
            --- stderr
            bowline: denied: write a.txt: nobody is there to ask; --approve edits would allow it
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
        command.envs(agent_homes::gemini(&scene.home(), model.url()).unwrap());
        expected.assert_eq(&run(&scene, command).await);
    }
    assert_eq!(scene.get("a.txt"), "one\nTWO\nunsaved\n");
}

#[tokio::test(flavor = "multi_thread")]
async fn opencode_asks_before_it_edits_by_itself() {
    let Some(agent) = other(OtherAgent::OpenCode) else { return };
    let scene = scene();
    let edit = json!({"filePath": scene.path("a.txt"), "oldString": "two", "newString": "TWO"});
    let read = json!({"filePath": scene.path("a.txt")});
    for (options, expected) in [
        (
            &[][..],
            expect![[r#"
        ✓ read: $PROJECT/a.txt (TIME)
        ✗ edit: edit (TIME)
            The user rejected permission to use this specific tool call.
        Context: 1 of 1048576 tokens, cost 0.0000 USD
        --- stderr
        bowline: denied: write a.txt: nobody is there to ask; --approve edits would allow it
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
        let script =
            vec![Say::call("read", read.clone()), Say::call("edit", edit.clone()), Say::text("I am done.")];
        let model = ModelServer::start(script).await.unwrap();
        let mut command = scene.command(&[&["run", "--agent", &agent, "go"], options].concat());
        command.envs(agent_homes::opencode(&scene.home(), model.url()).unwrap());
        expected.assert_eq(&run(&scene, command).await);
    }
    assert_eq!(scene.get("a.txt"), "one\nTWO\n");
}
