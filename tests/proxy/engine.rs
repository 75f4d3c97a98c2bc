//! Tests of what the proxy does besides forwarding: scanning the disk, applying rules, and serving files.

use std::io::{BufRead as _, BufReader, Write as _};
use std::process::{Child, ChildStdin, ChildStdout, Stdio};

use expect_test::expect;
use serde_json::{Value, json};

use crate::fixture::{CliFixture, write_script};

/// An agent that executes the shell script `$HOME/turn` when prompted. Its ids are fixed.
const AGENT: &str = r#"#!/bin/sh
while read -r line; do
  case "$line" in
    *'"method":"initialize"'*) printf '%s\n' "$line" >> "$HOME/heard"; echo '{"jsonrpc":"2.0","id":0,"result":{"protocolVersion":1}}' ;;
    *'"method":"session/new"'*) echo '{"jsonrpc":"2.0","id":1,"result":{"sessionId":"s"}}' ;;
    *'"method":"session/prompt"'*) . "$HOME/turn" ;;
    *) printf '%s\n' "$line" >> "$HOME/heard" ;;
  esac
done
"#;

/// The editor's side, line by line.
pub(super) struct PipedEditor {
    pub(super) child: Child,
    stdin: Option<ChildStdin>,
    stdout: BufReader<ChildStdout>,
}

impl PipedEditor {
    pub(super) fn start(scene: &CliFixture, options: &[&str], capabilities: &Value, turn: &str) -> Self {
        let agent = write_script(&scene.base(), "agent", AGENT);
        std::fs::create_dir_all(scene.home()).unwrap();
        std::fs::write(scene.home().join("turn"), turn).unwrap();
        let words = [&["proxy", "--no-mcp"], options, &["--", &agent]].concat();
        let mut command = scene.command(&words);
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut child = command.spawn().unwrap();
        let (stdin, stdout) = (child.stdin.take(), BufReader::new(child.stdout.take().unwrap()));
        let mut editor = Self { child, stdin, stdout };
        let hello = json!({ "protocolVersion": 1, "clientCapabilities": capabilities });
        editor.send(&json!({ "jsonrpc": "2.0", "id": 0, "method": "initialize", "params": hello }));
        editor.receive();
        let new = json!({ "cwd": scene.project(), "mcpServers": [] });
        editor.send(&json!({ "jsonrpc": "2.0", "id": 1, "method": "session/new", "params": new }));
        editor.receive();
        let prompt = json!({ "sessionId": "s", "prompt": [{ "type": "text", "text": "Do as told" }] });
        editor.send(&json!({ "jsonrpc": "2.0", "id": 2, "method": "session/prompt", "params": prompt }));
        editor
    }

    pub(super) fn send(&mut self, message: &Value) {
        writeln!(self.stdin.as_mut().unwrap(), "{message}").unwrap();
    }

    pub(super) fn receive(&mut self) -> Value {
        let line = self.receive_line();
        serde_json::from_str(&line).unwrap_or_else(|_| panic!("not a message: {line:?}"))
    }

    fn receive_line(&mut self) -> String {
        let mut line = String::new();
        self.stdout.read_line(&mut line).unwrap();
        line
    }

    /// Disconnects, and returns the proxy's stderr.
    pub(super) fn close(mut self) -> String {
        self.stdin = None;
        let output = self.child.wait_with_output().unwrap();
        String::from_utf8(output.stderr).unwrap()
    }
}

pub(super) fn all_capabilities() -> Value {
    json!({ "fs": { "readTextFile": true, "writeTextFile": true }, "terminal": true })
}

pub(super) const PROMPT_RESPONSE_LINE: &str =
    r#"echo '{"jsonrpc":"2.0","id":2,"result":{"stopReason":"end_turn"}}'"#;

pub(super) fn tool_call_line(rest: &str) -> String {
    format!(
        r#"echo '{{"jsonrpc":"2.0","method":"session/update","params":{{"sessionId":"s","update":{{"toolCallId":"t",{rest}}}}}}}'"#
    )
}

/// Returns a shell line by which the agent sends a request and records the answer.
fn request_line(id: u32, method: &str, params: &str) -> String {
    let request =
        format!(r#"{{"jsonrpc":"2.0","id":{id},"method":"{method}","params":{{"sessionId":"s",{params}}}}}"#);
    format!(r#"printf '%s\n' '{request}'; read -r answer; printf '%s\n' "$answer" >> "$HOME/heard""#)
}

#[test]
fn an_edit_past_the_editor_is_shown_on_its_call_and_can_be_undone() {
    let scene = CliFixture::new();
    scene.write_file("a.txt", "one\n");
    let turn = [
        &tool_call_line(r#""sessionUpdate":"tool_call","title":"Edit","kind":"edit","status":"in_progress""#),
        "echo two > a.txt; rm -f gone; echo new > b.txt",
        &tool_call_line(r#""sessionUpdate":"tool_call_update","status":"completed""#),
        PROMPT_RESPONSE_LINE,
    ]
    .join("\n");
    let mut editor = PipedEditor::start(&scene, &[], &all_capabilities(), &turn);
    let (mut diffs, mut is_answered) = (Vec::new(), false);
    while !is_answered || diffs.len() < 2 {
        let heard = editor.receive();
        is_answered |= heard["id"] == 2;
        if heard["params"]["update"]["_meta"]["bowline"].is_object() {
            diffs = heard["params"]["update"]["content"].as_array().unwrap().clone();
        }
    }
    let mut told: Vec<String> = diffs
        .iter()
        .map(|diff| {
            format!(
                "{} {} -> {}",
                scene.normalize(diff["path"].as_str().unwrap()),
                diff["oldText"],
                diff["newText"]
            )
        })
        .collect();
    told.sort();
    expect![[r#"
        $PROJECT/a.txt "one\n" -> "two\n"
        $PROJECT/b.txt null -> "new\n""#]]
    .assert_eq(&told.join("\n"));
    assert_eq!(editor.close(), "");
    let changes = scene.run(&["changes"]);
    assert!(changes.contains("turn 1 · Do as told · "), "{changes}");
    let undone = scene.run(&["undo", "--session", "s"]);
    assert!(undone.ends_with("--- 0\n"), "{undone}");
    assert_eq!((scene.read_file("a.txt").as_str(), scene.has_file("b.txt")), ("one\n", false));
}

#[test]
fn files_of_other_programs_are_no_part_of_a_turn_and_stay_when_it_is_undone() {
    let scene = CliFixture::new();
    scene.write_file("a.txt", "one\n");
    std::fs::create_dir_all(scene.config_dir()).unwrap();
    std::fs::write(scene.config_dir().join("config.toml"), "ignore-changes = [\"*.orig\"]\n").unwrap();
    // As fast-agent 0.10.46 stores its session, and Vim its swap file.
    let turn = [
        "mkdir -p .fast-agent/sessions/1; echo '{}' > .fast-agent/sessions/1/session.json",
        &tool_call_line(r#""sessionUpdate":"tool_call","title":"Edit","kind":"edit","status":"in_progress""#),
        "echo two > a.txt; echo one > a.txt.orig; echo swap > .a.txt.swp; echo '{}' >> .fast-agent/sessions/1/session.json",
        &tool_call_line(r#""sessionUpdate":"tool_call_update","status":"completed""#),
        PROMPT_RESPONSE_LINE,
    ]
    .join("\n");
    let mut editor = PipedEditor::start(&scene, &[], &all_capabilities(), &turn);
    let (mut shown, mut is_answered) = (Vec::new(), false);
    while !is_answered || shown.is_empty() {
        let heard = editor.receive();
        is_answered |= heard["id"] == 2;
        let content = heard["params"]["update"]["content"].as_array().cloned().unwrap_or_default();
        shown.extend(content.iter().map(|diff| scene.normalize(diff["path"].as_str().unwrap())));
    }
    assert_eq!(shown, ["$PROJECT/a.txt"]);
    assert_eq!(editor.close(), "");
    let changes = scene.run(&["changes"]);
    assert!(changes.contains("a.txt") && !changes.contains("session.json"), "{changes}");
    assert!(!changes.contains(".orig") && !changes.contains(".swp"), "{changes}");
    let undone = scene.run(&["undo", "--session", "s", "--found"]);
    assert!(undone.ends_with("--- 0\n"), "{undone}");
    assert_eq!(scene.read_file("a.txt"), "one\n");
    for theirs in [".fast-agent/sessions/1/session.json", "a.txt.orig", ".a.txt.swp"] {
        assert!(scene.has_file(theirs), "{theirs}");
    }
}

#[test]
fn an_agent_that_dies_in_its_turn_leaves_its_edits_in_the_journal() {
    let scene = CliFixture::new();
    scene.write_file("a.txt", "one\n");
    let mut editor = PipedEditor::start(&scene, &[], &all_capabilities(), "echo two > a.txt; kill -9 $$");
    let told = editor.receive();
    assert_eq!(told["error"]["code"], -32603);
    editor.close();
    // No tool call explains these changes: they may be the user's own work, and are undone only on request.
    let undone = scene.run(&["undo", "--session", "s"]);
    assert!(undone.contains("--found takes it back"), "{undone}");
    let undone = scene.run(&["undo", "--session", "s", "--found"]);
    assert!(undone.ends_with("--- 0\n"), "{undone}");
    assert_eq!(scene.read_file("a.txt"), "one\n");
}

#[test]
fn rules_deny_what_an_agent_asks_and_does_and_the_editor_is_asked_about_secrets() {
    let scene = CliFixture::new();
    let options = r#""options":[{"optionId":"y","name":"Yes","kind":"allow_once"},{"optionId":"n","name":"No","kind":"reject_once"}]"#;
    let secret = format!(r#""path":"{}""#, scene.file_path(".env"));
    let written = format!(r#""path":"{}","content":"x""#, scene.file_path("a.txt"));
    let turn = [
        request_line(10, "session/request_permission", &format!(r#""toolCall":{{"toolCallId":"c","title":"Edit","kind":"edit","locations":[{{"path":"{}"}}]}},{options}"#, scene.file_path("a.txt"))),
        request_line(11, "fs/write_text_file", &written),
        request_line(12, "terminal/create", r#""command":"touch","args":["x"]"#),
        request_line(13, "fs/read_text_file", &secret),
        // JSON parsers differ in which of the two members counts. Only the one that was judged is forwarded.
        request_line(14, "fs/read_text_file", &format!(r#""path":"{}",{secret}"#, scene.file_path("a.txt"))),
        request_line(15, "fs/read_text_file", &format!(r#"{secret},"path":"{}""#, scene.file_path("a.txt"))),
        PROMPT_RESPONSE_LINE.to_owned(),
    ]
    .join("\n");
    scene.write_file(".env", "KEY=1\n");
    let mut editor = PipedEditor::start(&scene, &["--policy", "read-only"], &all_capabilities(), &turn);
    let mut told = String::new();
    loop {
        let line = editor.receive_line();
        let heard: Value = serde_json::from_str(&line).unwrap();
        if heard["id"] == 2 {
            break;
        }
        let answer = match heard["method"].as_str() {
            Some("session/request_permission") => {
                let title = heard["params"]["toolCall"]["title"].as_str().unwrap();
                told += &format!("asked: {}\n", scene.normalize(title));
                json!({ "outcome": { "outcome": "selected", "optionId": "reject" } })
            }
            Some("fs/read_text_file") => {
                told += &scene.normalize(&line);
                json!({ "content": "two\n" })
            }
            _ => continue,
        };
        editor.send(&json!({ "jsonrpc": "2.0", "id": heard["id"], "result": answer }));
    }
    let said = editor.close();
    let heard = std::fs::read_to_string(scene.home().join("heard")).unwrap();
    let answers: Vec<&str> = heard.lines().skip(1).collect();
    told += &format!("{}\n{}", answers.join("\n"), scene.normalize(&said));
    expect![[r#"
        asked: read $PROJECT/.env
        asked: read $PROJECT/.env
        {"jsonrpc":"2.0","id":15,"method":"fs/read_text_file","params":{"sessionId":"s","path":"$PROJECT/a.txt"}}
        {"jsonrpc":"2.0","id":10,"result":{"outcome":{"outcome":"selected","optionId":"n"},"_meta":{"bowline":{"reason":"the user's settings deny it","by":"proxy"}}}}
        {"jsonrpc":"2.0","id":11,"error":{"code":-32030,"message":"permission denied: the user's settings deny it","data":{"why":"the user's settings deny it"}}}
        {"jsonrpc":"2.0","id":12,"error":{"code":-32030,"message":"permission denied: the user's settings deny it","data":{"why":"the user's settings deny it"}}}
        {"jsonrpc":"2.0","id":13,"error":{"code":-32030,"message":"permission denied: the user said no","data":{"why":"the user said no"}}}
        {"jsonrpc":"2.0","id":14,"error":{"code":-32030,"message":"permission denied: the user said no","data":{"why":"the user said no"}}}
        {"jsonrpc":"2.0","id":15,"result":{"content":"two\n"}}
        bowline: denied Edit, by the preset read-only: `bowline policy show` lists the rules, and `bowline policy --help` says how to change them
        bowline: denied write $PROJECT/a.txt, by the preset read-only: `bowline policy show` lists the rules, and `bowline policy --help` says how to change them
        bowline: denied run touch, by the preset read-only: `bowline policy show` lists the rules, and `bowline policy --help` says how to change them
    "#]].assert_eq(&told);
}

#[test]
fn an_editor_without_files_and_terminals_has_them_served() {
    let scene = CliFixture::new();
    scene.write_file("a.txt", "one\n");
    let turn = [
        request_line(10, "fs/read_text_file", &format!(r#""path":"{}""#, scene.file_path("a.txt"))),
        request_line(
            11,
            "fs/write_text_file",
            &format!(r#""path":"{}","content":"two\n""#, scene.file_path("a.txt")),
        ),
        request_line(12, "terminal/create", r#""command":"echo","args":["from a terminal"]"#),
        PROMPT_RESPONSE_LINE.to_owned(),
    ]
    .join("\n");
    let mut editor = PipedEditor::start(&scene, &["--host", "--policy", "full"], &json!({}), &turn);
    while editor.receive()["id"] != 2 {}
    editor.close();
    assert_eq!(scene.read_file("a.txt"), "two\n");
    let heard = std::fs::read_to_string(scene.home().join("heard")).unwrap();
    let hello: Value = serde_json::from_str(heard.lines().next().unwrap()).unwrap();
    let offered = &hello["params"]["clientCapabilities"];
    let expected = all_capabilities();
    assert_eq!((&offered["fs"], &offered["terminal"]), (&expected["fs"], &expected["terminal"]));
    assert!(heard.contains(r#""content":"one\n""#) && heard.contains("terminalId"), "{heard}");
    let undone = scene.run(&["undo", "--session", "s"]);
    assert!(undone.ends_with("--- 0\n"), "{undone}");
    assert_eq!(scene.read_file("a.txt"), "one\n");
}

/// Returns an answer without the times of listed files.
fn without_times(answer: &str) -> String {
    let mut answer: Value = serde_json::from_str(answer).unwrap();
    let entries = answer.pointer_mut("/result/entries").and_then(Value::as_array_mut);
    for entry in entries.into_iter().flatten() {
        entry.as_object_mut().unwrap().remove("modifiedAtMs").unwrap();
    }
    answer.to_string()
}

#[test]
fn an_editor_without_files_has_the_file_extension_served() {
    let scene = CliFixture::new();
    scene.write_file("a.txt", "one\n");
    scene.write_file(".env", "SECRET=1\n");
    let path = |name: &str| format!(r#""path":"{}""#, scene.file_path(name));
    let batch = format!(
        r#""operations":[{{"op":"move","from":"{}","to":"{}"}},{{"op":"write",{},"data":"AAEC","encoding":"base64"}}]"#,
        scene.file_path("a.txt"),
        scene.file_path("b.txt"),
        path("c.bin"),
    );
    let turn = [
        request_line(10, "_bowline/fs/list", &path("")),
        request_line(
            11,
            "_bowline/fs/write",
            &format!(r#"{},"data":"two\n","mode":"append""#, path("a.txt")),
        ),
        request_line(12, "_bowline/fs/read", &path("a.txt")),
        request_line(13, "_bowline/fs/batch", &batch),
        request_line(14, "_bowline/fs/stat", &path("a.txt")),
        request_line(15, "_bowline/fs/read", &path(".env")),
        request_line(16, "_bowline/fs/read", r#""path":7"#),
        request_line(17, "_bowline/fs/watch", &path("watched")),
        format!("mv '{}' '{}'", scene.file_path("b.txt"), scene.file_path("watched/d.txt")),
        r#"read -r answer; printf '%s\n' "$answer" >> "$HOME/heard""#.to_owned(),
        request_line(18, "_bowline/fs/unwatch", r#""watchId":"w1""#),
        format!("mv '{}' '{}'", scene.file_path("watched/d.txt"), scene.file_path("b.txt")),
        request_line(19, "_bowline/fs/unwatch", r#""watchId":"w1""#),
        PROMPT_RESPONSE_LINE.to_owned(),
    ]
    .join("\n");
    std::fs::create_dir(scene.file_path("watched")).unwrap();
    let mut editor = PipedEditor::start(&scene, &["--host", "--policy", "accept-edits"], &json!({}), &turn);
    let mut asked = String::new();
    loop {
        let heard = editor.receive();
        if heard["id"] == 2 {
            break;
        }
        if heard["method"] == "session/request_permission" {
            let call = &heard["params"]["toolCall"];
            asked += &scene.normalize(&format!(
                "asked: {}, files: {}\n",
                call["title"].as_str().unwrap(),
                call["locations"]
            ));
            let option = if asked.contains(".env") { "reject" } else { "allow" };
            let options = heard["params"]["options"].as_array().unwrap();
            let option =
                options.iter().find(|one| one["kind"].as_str().unwrap().starts_with(option)).unwrap();
            let outcome = json!({ "outcome": { "outcome": "selected", "optionId": option["optionId"] } });
            editor.send(&json!({ "jsonrpc": "2.0", "id": heard["id"], "result": outcome }));
        }
    }
    editor.close();
    let heard = scene.normalize(&std::fs::read_to_string(scene.home().join("heard")).unwrap());
    let answers: Vec<String> = heard.lines().skip(1).map(without_times).collect();
    expect![[r#"
        asked: change files, 2 operations at once, files: [{"path":"$PROJECT/b.txt"},{"path":"$PROJECT/a.txt"},{"path":"$PROJECT/c.bin"}]
        asked: read $PROJECT/.env, files: [{"path":"$PROJECT/.env"}]
        {"jsonrpc":"2.0","id":10,"result":{"entries":[{"name":".env","type":"file","size":9},{"name":"a.txt","type":"file","size":4},{"name":"watched","type":"directory"}],"truncated":false}}
        {"jsonrpc":"2.0","id":11,"result":{"etag":"sha256:c3f9c8c283a2b1f2f1896f27a01cbe3cddc0c9d93f752e4639035a0f5b36f6e8","merged":false,"formatted":false}}
        {"jsonrpc":"2.0","id":12,"result":{"data":"one\ntwo\n","encoding":"utf-8","etag":"sha256:c3f9c8c283a2b1f2f1896f27a01cbe3cddc0c9d93f752e4639035a0f5b36f6e8","size":8,"truncated":false,"dirty":false}}
        {"jsonrpc":"2.0","id":13,"result":{"results":[{"op":"move"},{"op":"write","etag":"sha256:ae4b3280e56e2faf83f414a6e3dabe9d5fbe18976544c05fed121accb85b53fc","merged":false,"formatted":false}]}}
        {"jsonrpc":"2.0","id":14,"error":{"code":-32002,"message":"Resource not found: $PROJECT/a.txt","data":{"kind":"notFound","path":"$PROJECT/a.txt","uri":"$PROJECT/a.txt"}}}
        {"jsonrpc":"2.0","id":15,"error":{"code":-32030,"message":"permission denied: the user said no","data":{"kind":"permissionDenied","why":"the user said no"}}}
        {"jsonrpc":"2.0","id":16,"error":{"code":-32602,"message":"the params of _bowline/fs/read are wrong: expected path string at column 26","data":{"kind":"badParams"}}}
        {"jsonrpc":"2.0","id":17,"result":{"watchId":"w1"}}
        {"jsonrpc":"2.0","method":"_bowline/fs/changed","params":{"sessionId":"s","watchId":"w1","changes":[{"path":"$PROJECT/watched/d.txt","kind":"created","by":"user"}]}}
        {"jsonrpc":"2.0","id":18,"result":{}}
        {"jsonrpc":"2.0","id":19,"error":{"code":-32602,"message":"no watch w1","data":{"kind":"unknownWatch","watchId":"w1"}}}"#]].assert_eq(&format!("{asked}{}", answers.join("\n")));
    assert_eq!(
        (scene.read_file("b.txt").as_str(), scene.read_file("c.bin").as_bytes()),
        ("one\ntwo\n", &[0, 1, 2][..])
    );
    let undone = scene.run(&["undo", "--session", "s"]);
    assert!(undone.ends_with("--- 0\n"), "{undone}");
    assert_eq!(scene.read_file("a.txt"), "one\n");
}

#[test]
fn without_a_place_for_the_journal_everything_passes_and_that_is_said_once() {
    let scene = CliFixture::new();
    std::fs::create_dir(scene.home().join(".local")).unwrap();
    std::fs::write(scene.home().join(".local/state"), "no directory").unwrap();
    let turn = format!("echo two > a.txt\n{PROMPT_RESPONSE_LINE}");
    let mut editor = PipedEditor::start(&scene, &[], &all_capabilities(), &turn);
    assert_eq!(editor.receive()["result"]["stopReason"], "end_turn");
    let said = scene.normalize(&editor.close());
    assert_eq!(said.lines().count(), 1, "{said}");
    assert!(said.contains("changes here are neither followed nor undone"), "{said}");
    assert_eq!(scene.read_file("a.txt"), "two\n");
}
