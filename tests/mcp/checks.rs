//! The checks of MCP's makers: the conformance suite and the inspector.

use std::process::Stdio;

use expect_test::expect;
use serde_json::{Value, json};
use tokio::io::{AsyncBufReadExt, BufReader};
use tokio::process::{Child, Command};
use tokio::time::timeout;
use xtask::peers::{McpCheck, is_there};

use crate::program::{Listening, PATIENCE, Scene};
use crate::programs::root;

/// Returns the command of a check, if it can be done here.
fn command(check: McpCheck) -> Option<Vec<String>> {
    let command = check.command(&root());
    is_there(McpCheck::NAME, &command).then_some(command)
}

/// Runs the words to their end, and returns what they wrote to stdout and stderr, and how they ended.
async fn run(scene: &Scene, words: &[String]) -> (String, String, Option<i32>) {
    let mut command = scene.command(words);
    command.env("MCP_INSPECTOR_SECRET_STORE", "memory");
    let output = timeout(PATIENCE, command.output()).await.expect("the check hangs").unwrap();
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    (text(&output.stdout), text(&output.stderr), output.status.code())
}

/// Runs every scenario for servers, and returns the suite's summary of each, in its order.
async fn conformance(scene: &Scene, suite: Vec<String>, url: &str, token: &str) -> Vec<String> {
    let forward = root().join("tests/peers/mcp-checks/forward.mjs").display().to_string();
    let words = [suite[0].clone(), forward, url.to_owned(), token.to_owned()];
    let (_passing, url) = started(scene.command(&words)).await;
    let mut words = suite;
    words.extend(["server", "--suite", "all", "--url", &url].map(str::to_owned));
    let (told, stderr, _) = run(scene, &words).await;
    let summary = told.split_once("=== SUMMARY ===").expect(&stderr).1;
    summary.lines().filter(|line| line.contains(" passed, ")).map(str::to_owned).collect()
}

/// Starts a program that listens, and returns it with the first line that it prints.
async fn started(mut command: Command) -> (Child, String) {
    let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).kill_on_drop(true).spawn().unwrap();
    let mut lines = BufReader::new(child.stdout.take().unwrap()).lines();
    let line = timeout(PATIENCE, lines.next_line()).await.unwrap().unwrap().unwrap();
    (child, line)
}

/// Scenarios that need nothing but what every server has.
const SCENARIOS: [&str; 9] = [
    "server-initialize",
    "ping",
    "completion-complete",
    "tools-list",
    "server-sse-polling",
    "server-sse-multiple-streams",
    "resources-list",
    "prompts-list",
    "dns-rebinding-protection",
];

#[tokio::test]
async fn the_conformance_suite_finds_nothing_wrong() {
    let Some(suite) = command(McpCheck::Conformance) else { return };
    let scene = Scene::new();
    let server = scene.listen(&["--approve", "all"]).await;
    let summary = conformance(&scene, suite, &server.url, &server.token).await;
    let of = |name: &str| {
        let named = |line: &&String| {
            line.split_once(' ').is_some_and(|(_, line)| line.starts_with(&format!("{name}:")))
        };
        summary.iter().find(named).cloned().unwrap_or("not run".to_owned())
    };
    expect![[r#"
        ✓ server-initialize: 1 passed, 0 failed
        ✓ ping: 1 passed, 0 failed
        ✓ completion-complete: 1 passed, 0 failed
        ✓ tools-list: 1 passed, 0 failed
        ✓ server-sse-polling: 2 passed, 0 failed
        ✓ server-sse-multiple-streams: 2 passed, 0 failed
        ✓ resources-list: 1 passed, 0 failed
        ✓ prompts-list: 1 passed, 0 failed
        ✓ dns-rebinding-protection: 2 passed, 0 failed"#]]
    .assert_eq(&SCENARIOS.map(of).join("\n"));
}

/// The other scenarios want tools, resources and prompts of their own, which a server on the same transport has.
#[tokio::test]
async fn every_scenario_of_the_conformance_suite_passes_on_our_transport() {
    let Some(suite) = command(McpCheck::Conformance) else { return };
    let scene = Scene::new();
    let (_server, line) = started(scene.command(&[env!("CARGO_BIN_EXE_mcp-fixture").to_owned()])).await;
    let (url, token) = line.split_once(' ').unwrap();
    let summary = conformance(&scene, suite, url, token).await;
    expect![[r#"
        ✓ server-initialize: 1 passed, 0 failed
        ✓ logging-set-level: 1 passed, 0 failed
        ✓ ping: 1 passed, 0 failed
        ✓ completion-complete: 1 passed, 0 failed
        ✓ tools-list: 1 passed, 0 failed
        ✓ tools-call-simple-text: 1 passed, 0 failed
        ✓ tools-call-image: 1 passed, 0 failed
        ✓ tools-call-audio: 1 passed, 0 failed
        ✓ tools-call-embedded-resource: 1 passed, 0 failed
        ✓ tools-call-mixed-content: 1 passed, 0 failed
        ✓ tools-call-with-logging: 1 passed, 0 failed
        ✓ tools-call-error: 1 passed, 0 failed
        ✓ tools-call-with-progress: 1 passed, 0 failed
        ✓ tools-call-sampling: 1 passed, 0 failed
        ✓ tools-call-elicitation: 1 passed, 0 failed
        ✓ json-schema-2020-12: 4 passed, 0 failed
        ✓ elicitation-sep1034-defaults: 5 passed, 0 failed
        ✓ server-sse-polling: 2 passed, 0 failed
        ✓ server-sse-multiple-streams: 2 passed, 0 failed
        ✓ elicitation-sep1330-enums: 5 passed, 0 failed
        ✓ resources-list: 1 passed, 0 failed
        ✓ resources-read-text: 1 passed, 0 failed
        ✓ resources-read-binary: 1 passed, 0 failed
        ✓ resources-templates-read: 1 passed, 0 failed
        ✓ resources-subscribe: 1 passed, 0 failed
        ✓ resources-unsubscribe: 1 passed, 0 failed
        ✓ prompts-list: 1 passed, 0 failed
        ✓ prompts-get-simple: 1 passed, 0 failed
        ✓ prompts-get-with-args: 1 passed, 0 failed
        ✓ prompts-get-embedded-resource: 1 passed, 0 failed
        ✓ prompts-get-with-image: 1 passed, 0 failed
        ✓ dns-rebinding-protection: 2 passed, 0 failed
        Total: 46 passed, 0 failed"#]]
    .assert_eq(&summary.join("\n"));
}

/// What the inspector is told to do, and what of its answer counts.
const METHODS: [(&str, &[&str], &str); 7] = [
    ("tools/list", &["--strict"], "/tools/0/name"),
    ("tools/call", &["--tool-name", "read_text_file", "--tool-arg", "path=a.txt"], "/content/0/text"),
    ("tools/call", &["--tool-name", "list_directory"], "/structuredContent/entries/1/path"),
    ("tools/call", &["--tool-name", "execute", "--tool-arg", "command=echo hi"], "/structuredContent/output"),
    ("resources/list", &[], "/resources/0/uri"),
    ("resources/read", &["--uri", "bowline://changes"], "/contents/0/mimeType"),
    ("prompts/list", &[], "/prompts"),
];

async fn inspected(scene: &Scene, server: Option<&Listening>) -> Option<String> {
    let inspector = command(McpCheck::Inspector)?;
    let own = scene.words(&["--approve", "all"]);
    let started = json!({ "mcpServers": { "bowline": { "command": own[0], "args": &own[1..] } } });
    let file = scene.base().join("servers.json");
    std::fs::write(&file, started.to_string()).unwrap();
    let mut text = String::new();
    for (method, options, counts) in METHODS {
        let mut words = [&inspector[..], &["--cli".to_owned()]].concat();
        match server {
            None => {
                words.extend(["--config", file.to_str().unwrap(), "--server", "bowline"].map(str::to_owned))
            }
            Some(server) => {
                let header = format!("Authorization: Bearer {}", server.token);
                let url = ["--transport", "http", "--server-url", &server.url, "--header", &header];
                words.extend(url.map(str::to_owned));
            }
        }
        words.extend(["--method", method].iter().chain(options).map(|word| (*word).to_owned()));
        let (told, stderr, code) = run(scene, &words).await;
        let answer: Value =
            serde_json::from_str(&told).unwrap_or_else(|_| panic!("{method}: {told}{stderr}"));
        text += &format!(
            "{method} {}: {:?} {}\n",
            options.join(" "),
            code,
            answer.pointer(counts).unwrap_or(&Value::Null)
        );
        // What is not portable is told there.
        let found: Vec<&str> = stderr.lines().filter(|line| !line.starts_with("[mcp-inspector]")).collect();
        text += &found.join("\n");
    }
    Some(text)
}

#[tokio::test]
async fn the_inspector_uses_tools_and_resources_and_finds_their_schemas_portable() {
    let scene = Scene::new();
    let Some(piped) = inspected(&scene, None).await else { return };
    expect![[r#"
        tools/list --strict: Some(0) "read_text_file"
        tools/call --tool-name read_text_file --tool-arg path=a.txt: Some(0) "[a.txt: all of it, 3 lines]\none\ntwo\nthree\n"
        tools/call --tool-name list_directory: Some(0) "a.txt"
        tools/call --tool-name execute --tool-arg command=echo hi: Some(0) "hi\n"
        resources/list : Some(0) "bowline://changes"
        resources/read --uri bowline://changes: Some(0) "text/x-diff"
        prompts/list : Some(0) []
    "#]].assert_eq(&piped);
    let server = scene.listen(&["--approve", "all"]).await;
    assert_eq!(inspected(&scene, Some(&server)).await.unwrap(), piped);
}
