//! Checks by the MCP project itself: the conformance suite and the inspector.

use std::process::Stdio;

use expect_test::expect;
use serde_json::{Value, json};
use tokio::io::{AsyncBufReadExt, BufReader};
use tokio::process::{Child, Command};
use tokio::time::timeout;
use xtask::peers::{McpCheck, is_available};

use crate::harness::{HttpProgram, McpTestProject, TEST_TIMEOUT};
use crate::programs::workspace_root;

/// Returns the command of a check, if it is available here.
fn check_command(check: McpCheck) -> Option<Vec<String>> {
    let command = check.command(&workspace_root());
    is_available(McpCheck::NAME, &command).then_some(command)
}

/// Runs a command to its end, and returns its stdout, its stderr and its exit code.
async fn run_check(scene: &McpTestProject, words: &[String]) -> (String, String, Option<i32>) {
    let mut command = scene.command(words);
    command.env("MCP_INSPECTOR_SECRET_STORE", "memory");
    let output = timeout(TEST_TIMEOUT, command.output()).await.expect("the check hangs").unwrap();
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    (text(&output.stdout), text(&output.stderr), output.status.code())
}

/// Runs every server scenario, and returns the suite's summary of each, in its order.
async fn run_conformance_suite(
    scene: &McpTestProject,
    suite: Vec<String>,
    url: &str,
    token: &str,
) -> Vec<String> {
    let forward = workspace_root().join("tests/peers/mcp-checks/forward.mjs").display().to_string();
    let words = [suite[0].clone(), forward, url.to_owned(), token.to_owned()];
    let (_passing, url) = spawn_listener(scene.command(&words)).await;
    let mut words = suite;
    words.extend(["server", "--suite", "all", "--url", &url].map(str::to_owned));
    let (told, stderr, _) = run_check(scene, &words).await;
    let summary = told.split_once("=== SUMMARY ===").expect(&stderr).1;
    summary.lines().filter(|line| line.contains(" passed, ")).map(str::to_owned).collect()
}

/// Starts a listening program, and returns it with its first line of output.
async fn spawn_listener(mut command: Command) -> (Child, String) {
    let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).kill_on_drop(true).spawn().unwrap();
    let mut lines = BufReader::new(child.stdout.take().unwrap()).lines();
    let line = timeout(TEST_TIMEOUT, lines.next_line()).await.unwrap().unwrap().unwrap();
    (child, line)
}

/// The scenarios that need only what every server has.
const SCENARIOS: [&str; 9] = [
    "server-initialize", "ping", "completion-complete", "tools-list", "server-sse-polling",
    "server-sse-multiple-streams", "resources-list", "prompts-list", "dns-rebinding-protection",
];

#[tokio::test]
async fn the_conformance_suite_finds_nothing_wrong() {
    let Some(suite) = check_command(McpCheck::Conformance) else { return };
    let scene = McpTestProject::new();
    let server = scene.start_http(&["--approve", "all"]).await;
    let summary = run_conformance_suite(&scene, suite, &server.url, &server.token).await;
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

/// The other scenarios need specific tools, resources and prompts, which a server on the same transport provides.
#[tokio::test]
async fn every_scenario_of_the_conformance_suite_passes_on_our_transport() {
    let Some(suite) = check_command(McpCheck::Conformance) else { return };
    let scene = McpTestProject::new();
    let (_server, line) =
        spawn_listener(scene.command(&[env!("CARGO_BIN_EXE_mcp-fixture").to_owned()])).await;
    let (url, token) = line.split_once(' ').unwrap();
    let summary = run_conformance_suite(&scene, suite, url, token).await;
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

/// The inspector's methods and arguments, and the part of its answer that is compared.
const INSPECTOR_METHODS: [(&str, &[&str], &str); 7] = [
    ("tools/list", &["--strict"], "/tools/0/name"),
    ("tools/call", &["--tool-name", "read_text_file", "--tool-arg", "path=a.txt"], "/content/0/text"),
    ("tools/call", &["--tool-name", "list_directory"], "/structuredContent/entries/1/path"),
    ("tools/call", &["--tool-name", "execute", "--tool-arg", "command=echo hi"], "/structuredContent/output"),
    ("resources/list", &[], "/resources/0/uri"),
    ("resources/read", &["--uri", "bowline://changes"], "/contents/0/mimeType"),
    ("prompts/list", &[], "/prompts"),
];

async fn run_inspector(scene: &McpTestProject, server: Option<&HttpProgram>) -> Option<String> {
    let inspector = check_command(McpCheck::Inspector)?;
    let own = scene.command_words(&["--approve", "all"]);
    let started = json!({ "mcpServers": { "bowline": { "command": own[0], "args": &own[1..] } } });
    let file = scene.base().join("servers.json");
    std::fs::write(&file, started.to_string()).unwrap();
    let mut text = String::new();
    for (method, options, counts) in INSPECTOR_METHODS {
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
        let (told, stderr, code) = run_check(scene, &words).await;
        let answer: Value =
            serde_json::from_str(&told).unwrap_or_else(|_| panic!("{method}: {told}{stderr}"));
        text += &format!(
            "{method} {}: {:?} {}\n",
            options.join(" "),
            code,
            answer.pointer(counts).unwrap_or(&Value::Null)
        );
        // The inspector reports portability problems there.
        let found: Vec<&str> = stderr.lines().filter(|line| !line.starts_with("[mcp-inspector]")).collect();
        text += &found.join("\n");
    }
    Some(text)
}

#[tokio::test]
async fn the_inspector_uses_tools_and_resources_and_finds_their_schemas_portable() {
    let scene = McpTestProject::new();
    let Some(piped) = run_inspector(&scene, None).await else { return };
    expect![[r#"
        tools/list --strict: Some(0) "read_text_file"
        tools/call --tool-name read_text_file --tool-arg path=a.txt: Some(0) "[a.txt: all of it, 3 lines]\none\ntwo\nthree\n"
        tools/call --tool-name list_directory: Some(0) "a.txt"
        tools/call --tool-name execute --tool-arg command=echo hi: Some(0) "hi\n"
        resources/list : Some(0) "bowline://changes"
        resources/read --uri bowline://changes: Some(0) "text/x-diff"
        prompts/list : Some(0) []
    "#]].assert_eq(&piped);
    let server = scene.start_http(&["--approve", "all"]).await;
    assert_eq!(run_inspector(&scene, Some(&server)).await.unwrap(), piped);
}
