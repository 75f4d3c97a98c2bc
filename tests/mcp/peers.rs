//! Tests with clients on the official SDKs, over a pipe and over HTTP.

use expect_test::{Expect, expect};
use serde_json::{Value, json};
use tokio::time::timeout;
use xtask::peers::{McpClient, is_available};

use crate::harness::{McpTestProject, TEST_TIMEOUT};
use crate::programs::workspace_root;

/// The transport of a client.
#[derive(Debug, Clone, Copy)]
enum ClientTransport {
    Pipe,
    Http,
}

/// Runs the same steps with every client over both transports, and compares their results.
async fn check(
    options: &[&str],
    answer: Option<&str>,
    plan: impl Fn(&McpTestProject) -> Value,
    expected: Expect,
) {
    let mut first: Option<String> = None;
    for client in McpClient::ALL {
        let command = client.command(&workspace_root());
        if !is_available(client.name(), &command) {
            continue;
        }
        for way in [ClientTransport::Pipe, ClientTransport::Http] {
            let scene = McpTestProject::new();
            let mut words = command.clone();
            words.extend(["--plan".to_owned(), plan(&scene).to_string()]);
            words.extend(answer.into_iter().flat_map(|answer| ["--answer".to_owned(), answer.to_owned()]));
            let server = match way {
                ClientTransport::Pipe => {
                    words.push("--".to_owned());
                    words.extend(scene.command_words(options));
                    None
                }
                ClientTransport::Http => {
                    let server = scene.start_http(options).await;
                    words.extend(["--url".to_owned(), server.url.clone()]);
                    words.extend(["--token".to_owned(), server.token.clone()]);
                    Some(server)
                }
            };
            let output = timeout(TEST_TIMEOUT, scene.command(&words).output())
                .await
                .expect("the client hangs")
                .unwrap();
            let stderr = String::from_utf8_lossy(&output.stderr);
            assert!(output.status.success(), "{} by {way:?}: {stderr}", client.name());
            let lines =
                String::from_utf8_lossy(&output.stdout).lines().map(describe_line).collect::<String>();
            assert!(lines.contains("bowline"), "{} by {way:?}: {stderr}", client.name());
            let got = scene.normalize(&lines);
            let same = first.get_or_insert_with(|| got.clone());
            assert_eq!(*same, got, "{} by {way:?}", client.name());
            drop(server);
        }
    }
    if let Some(first) = first {
        expected.assert_eq(&first);
    }
}

/// Describes a client's result in words that are the same for all clients.
fn describe_line(line: &str) -> String {
    let line: Value = serde_json::from_str(line).unwrap();
    if let Some(call) = line["call"].as_str() {
        let failed = if line["error"] == true { "! " } else { "" };
        let progressed = if line["progressed"] == true { " (with progress)" } else { "" };
        return format!("{call}{progressed}: {failed}{}\n", line["text"].as_str().unwrap().trim_end());
    }
    if let Some(why) = line["refused"].as_str() {
        let why =
            why.strip_prefix("MCP error ").and_then(|rest| rest.split_once(": ")).map_or(why, |(_, why)| why);
        return format!("refused: {why}\n");
    }
    if line.get("server").is_some() {
        return format!("server: {}\n", line["server"]);
    }
    format!("{line}\n")
}

#[tokio::test]
async fn clients_use_every_tool_and_resource() {
    check(
        &["--approve", "all"],
        None,
        |scene| {
            let began = scene.path("began");
            json!([
                { "tools": 1 },
                { "call": "list_directory" },
                { "call": "read_text_file", "arguments": { "path": "a.txt" } },
                { "put": scene.path("a.txt"), "text": "ONE\ntwo\nthree\n" },
                { "call": "write_text_file", "arguments": { "path": "a.txt", "content": "one\ntwo\n3\n" } },
                { "subscribe": "bowline://changes" },
                { "call": "edit_text_file", "arguments": { "path": "a.txt", "edits": [{ "old_text": "two", "new_text": "2" }] } },
                { "updated": 1 },
                { "read": "bowline://changes" },
                { "call": "search_text", "arguments": { "pattern": "2" } },
                { "call": "execute", "arguments": { "command": "read line < /dev/null; sleep 1.5; echo done" } },
                { "call": "execute", "arguments": { "command": "echo begun; sleep 1000", "background": true } },
                { "call": "terminal_output", "arguments": { "id": "bg1", "wait_seconds": 1 } },
                { "call": "kill_terminal", "arguments": { "id": "bg1" } },
                { "cancel": "execute", "arguments": { "command": "echo $$ > pid; touch began; exec sleep 1000" }, "once": began },
                { "call": "execute", "arguments": { "command": "while kill -0 $(cat pid) 2>/dev/null; do sleep 0.05; done; echo gone" } },
                { "resources": 1 },
                { "subscribe": "bowline://diagnostics" },
                { "read": "bowline://diagnostics" },
                { "read": "bowline://nothing" },
                { "call": "read_text_file", "arguments": { "path": "../outside" } },
                { "call": "no_such_tool" },
            ])
        },
        expect![[r#"
            server: "bowline"
            {"tools":{"append_file":false,"delete_file":false,"edit_text_file":false,"execute":false,"kill_terminal":false,"list_directory":true,"move_file":false,"read_text_file":true,"search_text":true,"stat_file":true,"terminal_output":true,"write_files":false,"write_text_file":false}}
            list_directory: [.: 2 names; what ignore rules hide is left out]
            .env (9 bytes)
            a.txt (14 bytes)
            read_text_file: [a.txt: all of it, 3 lines]
            one
            two
            three
            write_text_file: Wrote a.txt (3 lines).
            Another program changed the file since you read it; both changes are in it now. What came in:
            @@ -1,2 +1,2 @@
            -one
            +ONE
             two
            {"subscribed":"bowline://changes"}
            edit_text_file: Edited a.txt in 1 place.
            {"updated":"bowline://changes"}
            {"read":"bowline://changes","text":"diff --git a/a.txt b/a.txt\n--- a/a.txt\n+++ b/a.txt\n@@ -1,3 +1,3 @@\n ONE\n-two\n-three\n+2\n+3\n"}
            search_text: [1 matching line; 1 file searched; 1 protected file left out]
            a.txt
              2: 2
            execute (with progress): [`read line < /dev/null; sleep 1.5; echo done` ended with exit code 0, T s]
            done
            execute: `echo begun; sleep 1000` runs in the background as bg1. Look at its output with terminal_output, end it with kill_terminal.
            terminal_output: [bg1 (`echo begun; sleep 1000`) is running; new output:]
            begun
            kill_terminal: [bg1 (`echo begun; sleep 1000`) was ended; new output:]
            {"cancelled":true}
            execute: [`while kill -0 $(cat pid) 2>/dev/null; do sleep 0.05; done; echo gone` ended with exit code 0, T s]
            gone
            {"resources":["bowline://changes","bowline://diagnostics"]}
            {"subscribed":"bowline://diagnostics"}
            {"read":"bowline://diagnostics","text":"{\"files\":[],\"filesLeftOut\":0}"}
            refused: there is no resource bowline://nothing: list the resources to see which there are
            read_text_file: ! $BASE/outside is outside the workspace: only its own directories can be used
            refused: no_such_tool is no tool of this server: the tools are read_text_file, write_text_file, edit_text_file, write_files, append_file, delete_file, move_file, list_directory, stat_file, search_text, execute, terminal_output, kill_terminal
        "#]],
    )
    .await;
}

#[tokio::test]
async fn a_client_that_can_ask_its_user_is_asked() {
    let plan = |_: &McpTestProject| {
        json!([
            { "call": "execute", "arguments": { "command": "echo hi" } },
            { "call": "read_text_file", "arguments": { "path": ".env" } },
        ])
    };
    check(
        &[],
        Some("allow once"),
        plan,
        expect![[r#"
        server: "bowline"
        execute: [`echo hi` ended with exit code 0, T s]
        hi
        read_text_file: [.env: all of it, 1 line]
        SECRET=1
    "#]],
    )
    .await;
    check(
        &[],
        Some("deny"),
        plan,
        expect![[r#"
        server: "bowline"
        execute: ! not started: `echo hi`: denied: the user said no
        read_text_file: ! .env: denied: the user said no
    "#]],
    )
    .await;
}
