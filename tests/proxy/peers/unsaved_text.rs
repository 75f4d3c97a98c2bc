//! Tests of agents that read unsaved text and write through the editor with injected tools: with our host as the
//! editor, and with a client on the official TypeScript SDK.

use serde_json::{Value, json};
use test_support::agent_homes;
use test_support::model_server::{ModelReply, ModelServer};
use xtask::peers::{PublishedAgent, SdkPeer, is_available};

use super::agents::{McpAgent, PreparedAgent, read_and_edit_calls, sdk_agent_command, shell_quote};
use super::editor_client::EditorClient;
use crate::fixture::{CliFixture, bowline, search_path};
use crate::programs::workspace_root;

const SAVED: &str = "one\nsaved\nthree\n";
const UNSAVED: &str = "one\nnot saved yet\nthree\n";
const WRITTEN: &str = "one\nwritten by the agent\nthree\n";

/// Returns the model's last input, which holds all results of the tools.
fn last_model_input(ready: &PreparedAgent) -> String {
    ready.model.requests().last().map(Value::to_string).unwrap_or_default()
}

fn project_with_file() -> CliFixture {
    let scene = CliFixture::new();
    scene.write_file("a.txt", SAVED);
    scene
}

/// Returns an agent's command behind the proxy.
fn proxied_command(options: &[&str], agent: &[String]) -> Vec<String> {
    let bowline = bowline().display().to_string();
    let proxy = [&[bowline.as_str(), "proxy"], options, &["--"]].concat();
    proxy.into_iter().map(str::to_owned).chain(agent.iter().cloned()).collect()
}

/// Runs an agent with our host and a stdio server.
async fn check_with_host(guest: McpAgent) {
    let scene = project_with_file();
    let path = scene.project().join("a.txt");
    let Some(ready) = guest.prepare(&scene, &read_and_edit_calls(&path)).await else { return };
    let unsaved = scene.base().join("unsaved");
    std::fs::write(&unsaved, UNSAVED).unwrap();
    let agent = shell_quote(&proxied_command(&["--mcp-transport", "stdio"], &ready.command));
    let open = format!("a.txt={}", unsaved.display());
    let mut told = String::new();
    for prompt in &ready.prompts {
        let words = ["run", "--agent", &agent, "--approve", "all", "--open", &open, prompt];
        let mut command = scene.command(&words);
        command.envs(ready.variables.iter().cloned());
        let output = scene.run_command(command, "");
        told += &scene.describe_output(&output);
    }
    assert!(told.contains("-not saved yet\n    +written by the agent"), "{told}");
    assert_eq!(told.matches("--- 0\n").count(), ready.prompts.len(), "{told}");
    assert_eq!(scene.read_file("a.txt"), WRITTEN, "{told}");
    let saw = if guest == McpAgent::FastAgent { told.clone() } else { last_model_input(&ready) };
    assert!(saw.contains("unsaved changes included") && saw.contains("not saved yet"), "{saw}");
}

/// Runs an agent with a client on the TypeScript SDK, which approves requests or does not. The server is reached over
/// HTTP, which every one of these agents supports.
async fn check_with_client(guest: McpAgent, approve: &str) {
    let client = SdkPeer::TypeScript.client_command(&workspace_root());
    if !is_available(SdkPeer::TypeScript.name(), &client) {
        return;
    }
    let scene = project_with_file();
    let path = scene.project().join("a.txt");
    let Some(ready) = guest.prepare(&scene, &read_and_edit_calls(&path)).await else { return };
    let plan: Value = ready.prompts.iter().map(|prompt| json!({"prompt": prompt})).collect();
    let mut command = std::process::Command::new(&client[0]);
    command.args(&client[1..]).args(["--approve", approve, "--plan", &plan.to_string()]);
    command
        .args(["--open", &json!({path.to_str().unwrap(): UNSAVED}).to_string(), "--"])
        .args(proxied_command(&[], &ready.command));
    command.current_dir(scene.project()).env_clear().envs(ready.variables.iter().cloned());
    command.env("HOME", scene.home()).env("PATH", search_path());
    let output = scene.run_command(command, "");
    let told = scene.describe_output(&output);
    assert!(told.ends_with("--- 0\n"), "{told}");
    if approve == "allow" {
        assert_eq!(scene.read_file("a.txt"), WRITTEN, "{told}");
        let saw = if guest == McpAgent::FastAgent { told.clone() } else { last_model_input(&ready) };
        assert!(saw.contains("not saved yet"), "{saw}");
    } else {
        assert_eq!(scene.read_file("a.txt"), SAVED, "{told}");
        if guest == McpAgent::OpenCode {
            // It does not ask about server tools itself: the question was ours, and its model received the answer.
            assert_eq!(ready.model.requests().len(), 3, "{told}");
        }
    }
}

/// Runs an SDK agent, which uses the editor's methods and no server, with our host.
fn check_sdk_agent_with_host(peer: SdkPeer) {
    let Some(agent) = sdk_agent_command(peer) else { return };
    let scene = project_with_file();
    let unsaved = scene.base().join("unsaved");
    std::fs::write(&unsaved, UNSAVED).unwrap();
    let edit = json!({
        "do": "edit", "path": scene.file_path("a.txt"), "old": "not saved yet", "new": "written by the agent",
        "command": "cat a.txt",
    });
    let (agent, open) = (shell_quote(&proxied_command(&[], &agent)), format!("a.txt={}", unsaved.display()));
    let told = scene.run(&["run", "--agent", &agent, "--approve", "all", "--open", &open, &edit.to_string()]);
    assert!(told.contains(&format!("read:{}", json!(UNSAVED))), "{told}");
    assert!(told.contains(&format!("terminal:0:{}", json!(WRITTEN))) && told.ends_with("--- 0\n"), "{told}");
    assert_eq!(scene.read_file("a.txt"), WRITTEN, "{told}");
}

#[test]
fn agents_on_the_sdks_work_in_our_host() {
    for peer in SdkPeer::ALL {
        check_sdk_agent_with_host(peer);
    }
}

#[tokio::test]
async fn fast_agent_works_in_our_host() {
    check_with_host(McpAgent::FastAgent).await;
}

#[tokio::test]
async fn fast_agent_works_in_a_client_on_the_typescript_sdk() {
    check_with_client(McpAgent::FastAgent, "allow").await;
    check_with_client(McpAgent::FastAgent, "reject").await;
}

#[tokio::test]
async fn opencode_works_in_our_host() {
    check_with_host(McpAgent::OpenCode).await;
}

#[tokio::test]
async fn opencode_works_in_a_client_on_the_typescript_sdk() {
    check_with_client(McpAgent::OpenCode, "allow").await;
    check_with_client(McpAgent::OpenCode, "reject").await;
}

#[tokio::test]
async fn claude_works_in_our_host() {
    check_with_host(McpAgent::Claude).await;
}

#[tokio::test]
async fn claude_works_in_a_client_on_the_typescript_sdk() {
    check_with_client(McpAgent::Claude, "allow").await;
    check_with_client(McpAgent::Claude, "reject").await;
}

#[tokio::test]
async fn codex_works_in_our_host() {
    check_with_host(McpAgent::Codex).await;
}

#[tokio::test]
async fn codex_works_in_a_client_on_the_typescript_sdk() {
    check_with_client(McpAgent::Codex, "allow").await;
    check_with_client(McpAgent::Codex, "reject").await;
}

#[tokio::test]
async fn gemini_works_in_our_host() {
    check_with_host(McpAgent::Gemini).await;
}

#[tokio::test]
async fn gemini_works_in_a_client_on_the_typescript_sdk() {
    check_with_client(McpAgent::Gemini, "allow").await;
    check_with_client(McpAgent::Gemini, "reject").await;
}

/// Its own tool reads the file before it creates it, and would give up at the editor's error.
#[tokio::test]
async fn gemini_creates_a_file_by_its_own_tool() {
    let command = PublishedAgent::Gemini.command(&workspace_root());
    if !is_available(PublishedAgent::Gemini.name(), &command) {
        return;
    }
    for (off, is_created) in [("", true), ("1", false)] {
        let scene = project_with_file();
        let new = json!({"file_path": scene.file_path("new.txt"), "content": "new\n"});
        let model = ModelServer::start(vec![ModelReply::call("write_file", new), ModelReply::text("Done.")])
            .await
            .unwrap();
        let variables = agent_homes::prepare_gemini(&scene.home(), model.url()).unwrap();
        let told = {
            let mut proxy = scene.command(&["proxy", "--"]);
            proxy.args(&command).envs(variables).env("BOWLINE_NO_QUIRKS", off);
            let mut wire = EditorClient::start(proxy);
            let session = wire.open_session(&scene.project().display().to_string());
            wire.send_prompt(&session, "go");
            wire.receive_until(|message| message["id"] == 2 && message.get("method").is_none());
            wire.close();
            wire.output
        };
        assert_eq!(scene.has_file("new.txt"), is_created, "{told:#?}");
        assert!(!is_created || scene.read_file("new.txt") == "new\n", "{told:#?}");
    }
}
