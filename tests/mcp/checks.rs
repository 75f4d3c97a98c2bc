//! The checks of MCP's makers: the conformance suite and the inspector.

use std::process::Stdio;

use expect_test::expect;
use serde_json::{Value, json};
use tokio::io::{AsyncBufReadExt, BufReader};
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

/// Scenarios that need nothing but what every server has. The others want tools, prompts and resources of their own.
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
    let forward = root().join("tests/peers/mcp-checks/forward.mjs").display().to_string();
    let words = [suite[0].clone(), forward, server.url.clone(), server.token.clone()];
    let mut passing = scene.command(&words).stdout(Stdio::piped()).spawn().unwrap();
    let mut lines = BufReader::new(passing.stdout.take().unwrap()).lines();
    let url = timeout(PATIENCE, lines.next_line()).await.unwrap().unwrap().unwrap();
    let mut words = suite;
    words.extend(["server", "--suite", "all", "--url", &url].map(str::to_owned));
    let (told, stderr, _) = run(&scene, &words).await;
    let summary = told.split_once("=== SUMMARY ===").expect(&stderr).1;
    let of = |name: &str| {
        let named =
            |line: &&str| line.split_once(' ').is_some_and(|(_, line)| line.starts_with(&format!("{name}:")));
        summary.lines().find(named).unwrap_or("not run").to_owned()
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
