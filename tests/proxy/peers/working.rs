//! An agent reads what is not saved and writes through the editor, by tools that it was given: with our host as the editor,
//! and with a client on the official TypeScript SDK.

use serde_json::{Value, json};
use test_support::agent_homes;
use test_support::model_server::{ModelServer, Say};
use xtask::peers::{OtherAgent, Peer, is_there};

use super::guests::{Guest, Ready, line, on_an_sdk, read_and_edit};
use super::wire::Wire;
use crate::program::{Scene, bowline, search_path};
use crate::programs::root;

const SAVED: &str = "one\nsaved\nthree\n";
const UNSAVED: &str = "one\nnot saved yet\nthree\n";
const WRITTEN: &str = "one\nwritten by the agent\nthree\n";

/// What the model was told at the end: everything that the tools gave.
fn heard(ready: &Ready) -> String {
    ready.model.heard().last().map(Value::to_string).unwrap_or_default()
}

fn scene() -> Scene {
    let scene = Scene::new();
    scene.put("a.txt", SAVED);
    scene
}

/// Returns an agent's command behind the proxy.
fn proxied(options: &[&str], agent: &[String]) -> Vec<String> {
    let bowline = bowline().display().to_string();
    let proxy = [&[bowline.as_str(), "proxy"], options, &["--"]].concat();
    proxy.into_iter().map(str::to_owned).chain(agent.iter().cloned()).collect()
}

/// Lets a guest work for our host, by a server that it starts as a program.
async fn for_our_host(guest: Guest) {
    let scene = scene();
    let path = scene.project().join("a.txt");
    let Some(ready) = guest.ready(&scene, &read_and_edit(&path)).await else { return };
    let unsaved = scene.base().join("unsaved");
    std::fs::write(&unsaved, UNSAVED).unwrap();
    let agent = line(&proxied(&["--mcp-transport", "stdio"], &ready.command));
    let open = format!("a.txt={}", unsaved.display());
    let mut told = String::new();
    for prompt in &ready.prompts {
        let words = ["run", "--agent", &agent, "--approve", "all", "--open", &open, prompt];
        let mut command = scene.command(&words);
        command.envs(ready.variables.iter().cloned());
        let output = tokio::task::block_in_place(|| scene.output(command, ""));
        told += &scene.told(&output);
    }
    assert!(told.contains("-not saved yet\n    +written by the agent"), "{told}");
    assert_eq!(told.matches("--- 0\n").count(), ready.prompts.len(), "{told}");
    assert_eq!(scene.get("a.txt"), WRITTEN, "{told}");
    let saw = if guest == Guest::FastAgent { told.clone() } else { heard(&ready) };
    assert!(saw.contains("unsaved changes included") && saw.contains("not saved yet"), "{saw}");
}

/// Lets a guest work for a client on the TypeScript SDK, which allows what it is asked or does not. The server is reached
/// over HTTP, which each of the guests can.
async fn for_a_client(guest: Guest, approve: &str) {
    let client = Peer::TypeScript.client(&root());
    if !is_there(Peer::TypeScript.name(), &client) {
        return;
    }
    let scene = scene();
    let path = scene.project().join("a.txt");
    let Some(ready) = guest.ready(&scene, &read_and_edit(&path)).await else { return };
    let plan: Value = ready.prompts.iter().map(|prompt| json!({"prompt": prompt})).collect();
    let mut command = std::process::Command::new(&client[0]);
    command.args(&client[1..]).args(["--approve", approve, "--plan", &plan.to_string()]);
    command
        .args(["--open", &json!({path.to_str().unwrap(): UNSAVED}).to_string(), "--"])
        .args(proxied(&[], &ready.command));
    command.current_dir(scene.project()).env_clear().envs(ready.variables.iter().cloned());
    command.env("HOME", scene.home()).env("PATH", search_path());
    let output = tokio::task::block_in_place(|| scene.output(command, ""));
    let told = scene.told(&output);
    assert!(told.ends_with("--- 0\n"), "{told}");
    if approve == "allow" {
        assert_eq!(scene.get("a.txt"), WRITTEN, "{told}");
        let saw = if guest == Guest::FastAgent { told.clone() } else { heard(&ready) };
        assert!(saw.contains("not saved yet"), "{saw}");
    } else {
        assert_eq!(scene.get("a.txt"), SAVED, "{told}");
        if guest == Guest::OpenCode {
            // It asks about no tool of a server by itself: the question was ours, and its model heard the answer.
            assert_eq!(ready.model.heard().len(), 3, "{told}");
        }
    }
}

/// Lets an agent on an SDK, which uses the editor's methods and no server, work for our host.
fn on_a_sdk_for_our_host(peer: Peer) {
    let Some(agent) = on_an_sdk(peer) else { return };
    let scene = scene();
    let unsaved = scene.base().join("unsaved");
    std::fs::write(&unsaved, UNSAVED).unwrap();
    let edit = json!({
        "do": "edit", "path": scene.path("a.txt"), "old": "not saved yet", "new": "written by the agent",
        "command": "cat a.txt",
    });
    let (agent, open) = (line(&proxied(&[], &agent)), format!("a.txt={}", unsaved.display()));
    let told = scene.run(&["run", "--agent", &agent, "--approve", "all", "--open", &open, &edit.to_string()]);
    assert!(told.contains(&format!("read:{}", json!(UNSAVED))), "{told}");
    assert!(told.contains(&format!("terminal:0:{}", json!(WRITTEN))) && told.ends_with("--- 0\n"), "{told}");
    assert_eq!(scene.get("a.txt"), WRITTEN, "{told}");
}

#[test]
fn agents_on_the_sdks_work_in_our_host() {
    for peer in Peer::ALL {
        on_a_sdk_for_our_host(peer);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn fast_agent_works_in_our_host() {
    for_our_host(Guest::FastAgent).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn fast_agent_works_in_a_client_on_the_typescript_sdk() {
    for_a_client(Guest::FastAgent, "allow").await;
    for_a_client(Guest::FastAgent, "reject").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn opencode_works_in_our_host() {
    for_our_host(Guest::OpenCode).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn opencode_works_in_a_client_on_the_typescript_sdk() {
    for_a_client(Guest::OpenCode, "allow").await;
    for_a_client(Guest::OpenCode, "reject").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn claude_works_in_our_host() {
    for_our_host(Guest::Claude).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn claude_works_in_a_client_on_the_typescript_sdk() {
    for_a_client(Guest::Claude, "allow").await;
    for_a_client(Guest::Claude, "reject").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn codex_works_in_our_host() {
    for_our_host(Guest::Codex).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn codex_works_in_a_client_on_the_typescript_sdk() {
    for_a_client(Guest::Codex, "allow").await;
    for_a_client(Guest::Codex, "reject").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn gemini_works_in_our_host() {
    for_our_host(Guest::Gemini).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn gemini_works_in_a_client_on_the_typescript_sdk() {
    for_a_client(Guest::Gemini, "allow").await;
    for_a_client(Guest::Gemini, "reject").await;
}

/// Its own tool reads the file before it creates it, and would give up at the editor's error.
#[tokio::test(flavor = "multi_thread")]
async fn gemini_creates_a_file_by_its_own_tool() {
    let command = OtherAgent::Gemini.command(&root());
    if !is_there(OtherAgent::Gemini.name(), &command) {
        return;
    }
    for (off, is_created) in [("", true), ("1", false)] {
        let scene = scene();
        let new = json!({"file_path": scene.path("new.txt"), "content": "new\n"});
        let model = ModelServer::start(vec![Say::call("write_file", new), Say::text("Done.")]).await.unwrap();
        let variables = agent_homes::gemini(&scene.home(), model.url()).unwrap();
        let told = tokio::task::block_in_place(|| {
            let mut proxy = scene.command(&["proxy", "--"]);
            proxy.args(&command).envs(variables).env("BOWLINE_NO_QUIRKS", off);
            let mut wire = Wire::start(proxy);
            let session = wire.open(&scene.project().display().to_string());
            wire.prompt(&session, "go");
            wire.until(|message| message["id"] == 2 && message.get("method").is_none());
            wire.end();
            wire.told
        });
        assert_eq!(scene.has("new.txt"), is_created, "{told:#?}");
        assert!(!is_created || scene.get("new.txt") == "new\n", "{told:#?}");
    }
}
