//! Tests of the injected server: its tools' writes are journalled against the unsaved text, the engine serves what the
//! editor lacks, and the editor's diagnostics can be read.

use std::collections::BTreeMap;
use std::path::PathBuf;

use expect_test::expect;
use rustix::process::{Pid, Signal, kill_process};
use serde_json::{Value, json};
use test_support::wait::wait_until;

use crate::fixture::{CliFixture, bowline, write_script};
use crate::peers::editor_client::{EditorClient, is_agent_message, is_permission_request};

/// An agent that records its input, opens sessions and does nothing in them.
const LISTENING_AGENT: &str = r#"#!/bin/sh
while read -r line; do
  printf '%s\n' "$line" >> "$HOME/heard"
  case "$line" in
    *'"id":0,'*) echo '{"jsonrpc":"2.0","id":0,"result":{"protocolVersion":1}}' ;;
    *'"id":1,'*) echo '{"jsonrpc":"2.0","id":1,"result":{"sessionId":"s"}}' ;;
  esac
done
"#;

/// An editor with unsaved texts by file, and a scripted agent.
struct UnsavedEditor {
    scene: CliFixture,
    editor: EditorClient,
    session: String,
    unsaved: BTreeMap<String, String>,
    /// The questions to the user, and the writes that the editor received.
    log: String,
}

fn all_capabilities() -> Value {
    json!({"fs": {"readTextFile": true, "writeTextFile": true}, "terminal": true})
}

impl UnsavedEditor {
    /// Starts a proxy with these options, and an agent that uses these tools of the injected server.
    fn start(scene: CliFixture, options: &[&str], can: &Value, steps: &str) -> Self {
        let file = scene.base().join("script");
        std::fs::write(&file, steps).unwrap();
        let (program, model) = (bowline().display().to_string(), format!("script:{}", file.display()));
        let agent = ["--", &program, "agent", "--mode", "full", "--model", &model];
        let mut wire = EditorClient::start(scene.command(&[&["proxy"], options, &agent].concat()));
        let initialize = json!({"protocolVersion": 1, "clientCapabilities": can});
        wire.call(&json!(0), "initialize", &initialize);
        let new = json!({"cwd": scene.project(), "mcpServers": []});
        let opened = wire.call(&json!(1), "session/new", &new);
        let session = opened["result"]["sessionId"].as_str().unwrap().to_owned();
        Self { scene, editor: wire, session, unsaved: BTreeMap::new(), log: String::new() }
    }

    fn set_unsaved(&mut self, name: &str, text: &str) {
        self.unsaved.insert(self.scene.file_path(name), text.to_owned());
    }

    /// Runs a turn, and returns the agent's text. `asked` is called before each question is answered.
    fn run_turn(&mut self, mut asked: impl FnMut(&mut Self)) -> String {
        self.editor.send_prompt(&self.session.clone(), "go");
        let mut said = String::new();
        loop {
            let heard = self.editor.receive_until(|heard| {
                let is_of_files = heard["method"].as_str().is_some_and(|method| method.starts_with("fs/"));
                let is_answer = heard.get("method").is_none() && heard["id"] == 2;
                is_of_files || is_permission_request(heard) || is_agent_message(heard) || is_answer
            });
            let path = heard["params"]["path"].as_str().unwrap_or_default().to_owned();
            match heard["method"].as_str() {
                Some("fs/read_text_file") => {
                    let text = self.unsaved.get(&path).cloned();
                    match text.or_else(|| std::fs::read_to_string(&path).ok()) {
                        Some(text) => {
                            let answer = json!({"content": text});
                            self.editor.send(&json!({"jsonrpc": "2.0", "id": heard["id"], "result": answer}));
                        }
                        None if std::path::Path::new(&path).exists() => {
                            let error = json!({"code": -32603, "message": "the file is not UTF-8"});
                            self.editor.send(&json!({"jsonrpc": "2.0", "id": heard["id"], "error": error}));
                        }
                        None => self.editor.answer(&heard),
                    }
                }
                Some("fs/write_text_file") => {
                    self.log += &format!("writes {:?}\n", heard["params"]["content"].as_str().unwrap());
                    self.unsaved.remove(&path);
                    self.editor.answer(&heard);
                }
                Some("session/request_permission") => {
                    let title = heard["params"]["toolCall"]["title"].as_str().unwrap();
                    self.log += &format!("asks {}\n", self.scene.normalize(title));
                    asked(self);
                    self.editor.answer(&heard);
                }
                Some(_) => said += heard["params"]["update"]["content"]["text"].as_str().unwrap(),
                None => return self.scene.normalize(&said),
            }
        }
    }

    /// Disconnects, and returns the fixture.
    fn close(mut self) -> CliFixture {
        assert!(self.editor.close().success());
        self.scene
    }
}

const EDIT_SCRIPT: &str = r#"
{"calls": [{"name": "mcp__bowline__read_text_file", "input": {"path": "a.txt"}}]}
{"expect": "typed", "calls": [{"name": "mcp__bowline__edit_text_file", "input": {"path": "a.txt", "old_text": "three", "new_text": "3"}}]}
{"expect": "Edited", "text": "Done."}
"#;

fn project_with_file() -> CliFixture {
    let scene = CliFixture::new();
    scene.write_file("a.txt", "one\nsaved\nthree\n");
    scene
}

#[test]
fn undoing_a_tool_write_restores_the_typed_text() {
    let mut desk = UnsavedEditor::start(project_with_file(), &[], &all_capabilities(), EDIT_SCRIPT);
    desk.set_unsaved("a.txt", "one\ntyped\nthree\n");
    let said = desk.run_turn(|_| ());
    let (session, told) = (desk.session.clone(), format!("{}{said}\n", desk.log));
    let scene = desk.close();
    assert_eq!(scene.read_file("a.txt"), "one\ntyped\n3\n");
    let changes = scene.run(&["changes"]);
    // Times differ from run to run.
    let changes: String = changes.split_inclusive('\n').filter(|line| !line.contains(" · ")).collect();
    let undone = scene.run(&["undo", "--session", &session]);
    assert_eq!(scene.read_file("a.txt"), "one\ntyped\nthree\n");
    expect![[r#"
        asks Write $PROJECT/a.txt
        writes "one\ntyped\n3\n"
        Done.
        session $SHORT
            2 edited   a.txt +1 −1  call turn1_2

        1 change; bowline undo takes the last turn back, bowline undo --change 2 one change
        --- 0
        undone session $SHORT, in 1 file
          a.txt  as it was before
        `bowline redo` brings it back
        --- 0
    "#]]
    .assert_eq(&format!("{told}{changes}{undone}"));
}

/// Toad 0.6.20 answers so for every missing file; another editor may have a document that was never saved.
#[test]
fn empty_text_of_a_file_that_does_not_exist_is_no_file_to_bring_back() {
    let steps = r#"
{"calls": [{"name": "mcp__bowline__write_text_file", "input": {"path": "new.txt", "content": "new\n"}}]}
{"expect": "new.txt", "text": "Done."}
"#;
    let mut desk = UnsavedEditor::start(project_with_file(), &[], &all_capabilities(), steps);
    desk.set_unsaved("new.txt", "");
    let said = desk.run_turn(|_| ());
    let (session, told) = (desk.session.clone(), format!("{}{said}\n", desk.log));
    let scene = desk.close();
    assert_eq!(scene.read_file("new.txt"), "new\n");
    let changes = scene.run(&["changes"]);
    assert!(changes.contains(" created  new.txt"), "{changes}");
    let undone = scene.run(&["undo", "--session", &session]);
    assert!(!scene.has_file("new.txt"), "{undone}");
    expect![[r#"
        asks Write $PROJECT/new.txt
        writes "new\n"
        Done.
    "#]]
    .assert_eq(&told);
}

#[test]
fn writes_of_a_bowline_editor_are_recorded_once() {
    let scene = project_with_file();
    let (file, unsaved) = (scene.base().join("script"), scene.base().join("unsaved"));
    std::fs::write(&file, EDIT_SCRIPT).unwrap();
    std::fs::write(&unsaved, "one\ntyped\nthree\n").unwrap();
    let program = bowline().display().to_string();
    let agent = format!("{program} proxy -- {program} agent --mode full --model script:{}", file.display());
    let open = format!("a.txt={}", unsaved.display());
    let told = scene.run(&["run", "--agent", &agent, "--open", &open, "--approve", "all", "go"]);
    assert!(told.contains("Done.") && told.ends_with("--- 0\n"), "{told}");
    let changes = scene.run(&["changes"]);
    assert_eq!(changes.matches(" edited ").count(), 1, "{changes}");
    scene.run(&["undo", "--session", "last"]);
    assert_eq!(scene.read_file("a.txt"), "one\ntyped\nthree\n");
}

#[test]
fn what_is_typed_while_the_user_is_asked_is_kept() {
    let mut desk = UnsavedEditor::start(project_with_file(), &[], &all_capabilities(), EDIT_SCRIPT);
    desk.set_unsaved("a.txt", "one\ntyped\nthree\n");
    let said = desk.run_turn(|desk| desk.set_unsaved("a.txt", "zero\none\ntyped\nthree\n"));
    let (session, told) = (desk.session.clone(), format!("{}{said}\n", desk.log));
    let scene = desk.close();
    assert_eq!(scene.read_file("a.txt"), "zero\none\ntyped\n3\n");
    let undone = scene.run(&["undo", "--session", &session]);
    assert!(undone.ends_with("--- 0\n"), "{undone}");
    assert_eq!(scene.read_file("a.txt"), "zero\none\ntyped\nthree\n");
    expect![[r#"
        asks Write $PROJECT/a.txt
        writes "zero\none\ntyped\n3\n"
        Done.
    "#]]
    .assert_eq(&told);
}

#[test]
fn conflicting_typed_lines_prevent_the_write() {
    let steps = EDIT_SCRIPT.replace(r#""expect": "Edited""#, r#""expect": "is not in the file""#);
    let mut desk = UnsavedEditor::start(project_with_file(), &[], &all_capabilities(), &steps);
    desk.set_unsaved("a.txt", "one\ntyped\nthree\n");
    let said = desk.run_turn(|desk| desk.set_unsaved("a.txt", "one\ntyped\nfour\n"));
    let (told, kept) = (format!("{}{said}\n", desk.log), desk.unsaved.clone());
    let scene = desk.close();
    assert_eq!(kept.get(&scene.file_path("a.txt")).map(String::as_str), Some("one\ntyped\nfour\n"));
    assert_eq!(scene.read_file("a.txt"), "one\nsaved\nthree\n");
    expect![[r#"
        asks Write $PROJECT/a.txt
        Done.
    "#]]
    .assert_eq(&told);
}

#[test]
fn rules_decide_what_the_tools_do_in_place_of_a_question() {
    let mut told = String::new();
    for (preset, end) in [("full", "Edited"), ("read-only", "nothing was written"), ("ask", "Edited")] {
        let steps = EDIT_SCRIPT.replace(r#""expect": "Edited""#, &format!(r#""expect": "{end}""#));
        let mut desk =
            UnsavedEditor::start(project_with_file(), &["--policy", preset], &all_capabilities(), &steps);
        desk.set_unsaved("a.txt", "one\ntyped\nthree\n");
        let said = desk.run_turn(|_| ());
        told += &format!("{preset}\n{}{said}\n", desk.log);
        let scene = desk.close();
        told += &format!("{:?}\n", scene.read_file("a.txt"));
    }
    expect![[r#"
        full
        writes "one\ntyped\n3\n"
        Done.
        "one\ntyped\n3\n"
        read-only
        Done.
        "one\nsaved\nthree\n"
        ask
        asks write $PROJECT/a.txt
        writes "one\ntyped\n3\n"
        Done.
        "one\ntyped\n3\n"
    "#]]
    .assert_eq(&told);
}

#[test]
fn tools_that_the_editor_cannot_serve_are_left_out() {
    let steps = r#"
{"calls": [{"name": "mcp__bowline__execute", "input": {"command": "true"}}]}
{"expect": "no tool \"mcp__bowline__execute\"", "calls": [{"name": "mcp__bowline__append_file", "input": {"path": "a.txt", "content": "more\n"}}]}
{"expect": "Appended 1 line to a.txt.", "text": "Done."}
"#;
    let capabilities = json!({ "fs": { "readTextFile": true, "writeTextFile": true } });
    let mut desk = UnsavedEditor::start(project_with_file(), &[], &capabilities, steps);
    let said = desk.run_turn(|_| ());
    let told = format!("{}{said}", desk.log);
    desk.close();
    expect![[r#"
        asks Write $PROJECT/a.txt
        writes "one\nsaved\nthree\nmore\n"
        Done."#]]
    .assert_eq(&told);
}

const BATCH_SCRIPT: &str = r#"
{"calls": [{"name": "mcp__bowline__stat_file", "input": {"path": "a.txt"}}]}
{"expect": "a.txt", "calls": [{"name": "mcp__bowline__write_files", "input": {"files": [{"path": "b.txt", "content": "b\n"}, {"path": "new/c.txt", "content": "c\n"}]}}]}
{"expect": "Created new/c.txt", "calls": [{"name": "mcp__bowline__move_file", "input": {"from": "b.txt", "to": "d.txt"}}]}
{"expect": "Moved b.txt to d.txt", "calls": [{"name": "mcp__bowline__delete_file", "input": {"path": "new", "recursive": true}}]}
{"expect": "Deleted new", "calls": [{"name": "mcp__bowline__read_text_file", "input": {"path": "logo.png"}}]}
{"expect": "image", "text": "Done."}
"#;

#[test]
fn the_engine_changes_several_files_where_the_editor_cannot() {
    for (options, capabilities) in [(&[][..], all_capabilities()), (&["--host"], json!({}))] {
        let scene = project_with_file();
        std::fs::write(scene.file_path("logo.png"), b"\x89PNG\r\n\x1a\n\0").unwrap();
        let mut desk = UnsavedEditor::start(scene, options, &capabilities, BATCH_SCRIPT);
        let said = desk.run_turn(|_| ());
        let (session, told) = (desk.session.clone(), format!("{}{said}", desk.log));
        let scene = desk.close();
        assert_eq!((scene.read_file("d.txt").as_str(), scene.has_file("new")), ("b\n", false));
        let expected = "asks change files, 2 operations at once\nasks move $PROJECT/b.txt to $PROJECT/d.txt\n\
                        asks delete $PROJECT/new\nDone.";
        assert_eq!(told, expected);
        let undone = scene.run(&["undo", "--session", &session]);
        assert!(undone.ends_with("--- 0\n"), "{undone}");
        assert!(!scene.has_file("d.txt"), "{undone}");
    }
}

#[test]
fn a_file_with_unsaved_text_is_not_changed_past_the_editor() {
    let steps = r#"
{"calls": [{"name": "mcp__bowline__stat_file", "input": {"path": "a.txt"}}]}
{"expect": "unsaved", "calls": [{"name": "mcp__bowline__delete_file", "input": {"path": "a.txt"}}]}
{"expect": "a.txt has unsaved text in the editor", "calls": [{"name": "mcp__bowline__move_file", "input": {"from": "a.txt", "to": "b.txt"}}]}
{"expect": "a.txt has unsaved text in the editor", "calls": [{"name": "mcp__bowline__write_files", "input": {"files": [{"path": "b.txt", "content": "b\n"}, {"path": "a.txt", "content": "x\n"}]}}]}
{"expect": "a.txt has unsaved text in the editor", "text": "Done."}
"#;
    let mut desk = UnsavedEditor::start(project_with_file(), &[], &all_capabilities(), steps);
    desk.set_unsaved("a.txt", "one\ntyped\nthree\n");
    let said = desk.run_turn(|_| ());
    let told = format!("{}{said}", desk.log);
    let scene = desk.close();
    assert_eq!((scene.read_file("a.txt").as_str(), scene.has_file("b.txt")), ("one\nsaved\nthree\n", false));
    assert_eq!(told, "Done.");
}

#[test]
fn tools_fall_back_to_the_engine() {
    let steps = r#"
{"calls": [{"name": "mcp__bowline__read_text_file", "input": {"path": "a.txt"}}]}
{"expect": "saved", "calls": [{"name": "mcp__bowline__edit_text_file", "input": {"path": "a.txt", "old_text": "three", "new_text": "3"}}]}
{"expect": "Edited", "calls": [{"name": "mcp__bowline__list_directory", "input": {"path": "."}}]}
{"expect": "a.txt", "calls": [{"name": "mcp__bowline__search_text", "input": {"pattern": "saved"}}]}
{"expect": "a.txt", "calls": [{"name": "mcp__bowline__execute", "input": {"command": "sh", "args": ["-c", "echo made > b.txt; echo said"]}}]}
{"expect": "said", "text": "Done."}
"#;
    let mut desk = UnsavedEditor::start(project_with_file(), &["--host"], &json!({}), steps);
    let said = desk.run_turn(|_| ());
    let (session, told) = (desk.session.clone(), format!("{}{said}\n", desk.log));
    let scene = desk.close();
    assert_eq!(
        (scene.read_file("a.txt").as_str(), scene.read_file("b.txt").as_str()),
        ("one\nsaved\n3\n", "made\n")
    );
    let audit = scene.run(&["audit"]);
    for recorded in ["fs/read a.txt", "fs/write a.txt · by person", "terminal/exit `sh -c"] {
        assert!(audit.contains(recorded), "{recorded} is not in {audit}");
    }
    let undone = scene.run(&["undo", "--session", &session]);
    assert_eq!((scene.read_file("a.txt").as_str(), scene.has_file("b.txt")), ("one\nsaved\nthree\n", false));
    let undone: Vec<&str> = undone.lines().take(1).collect();
    expect![[r#"
        asks write $PROJECT/a.txt
        asks run echo made > b.txt; echo said
        Done.
        ["undone session $SHORT, in 2 files"]"#]]
    .assert_eq(&format!("{told}{undone:?}"));
}

/// Opens a session of a listening agent with a stdio server, and returns the server's socket.
fn open_listening_session(scene: &CliFixture, temporary: &str) -> (EditorClient, PathBuf) {
    let agent = write_script(&scene.base(), "agent", LISTENING_AGENT);
    let mut command = scene.command(&["proxy", "--mcp-transport", "stdio", "--", &agent]);
    command.env("TMPDIR", temporary);
    let mut wire = EditorClient::start(command);
    wire.open_session(&scene.project().display().to_string());
    let heard = std::fs::read_to_string(scene.home().join("heard")).unwrap();
    let new: Value = serde_json::from_str(heard.lines().last().unwrap()).unwrap();
    let socket = new["params"]["mcpServers"][0]["args"][1].as_str().unwrap();
    (wire, PathBuf::from(socket))
}

#[test]
fn diagnostics_that_the_editor_shares_are_a_resource_that_tells_when_it_changes() {
    let scene = project_with_file();
    let (mut editor, socket) = open_listening_session(&scene, scene.base().to_str().unwrap());
    let mut server = EditorClient::start(scene.command(&["mcp-bridge", socket.to_str().unwrap()]));
    let client = json!({"name": "test", "version": "0"});
    let hello = json!({"protocolVersion": "2025-06-18", "capabilities": {}, "clientInfo": client});
    server.call(&json!(1), "initialize", &hello);
    server.send(&json!({"jsonrpc": "2.0", "method": "notifications/initialized"}));
    let listed = server.call(&json!(2), "resources/list", &json!({}));
    let uris: Vec<&str> = listed["result"]["resources"]
        .as_array()
        .unwrap()
        .iter()
        .map(|resource| resource["uri"].as_str().unwrap())
        .collect();
    assert_eq!(uris, ["bowline://changes", "bowline://diagnostics"]);
    let uri = json!({"uri": "bowline://diagnostics"});
    server.call(&json!(3), "resources/subscribe", &uri);
    let mut told = String::new();
    let start = json!({"line": 1, "character": 0});
    let wrong = json!({"range": {"start": start, "end": start}, "severity": 2, "message": "not a number", "source": "lint"});
    for (diagnostics, shown) in [(json!([wrong]), "not a number"), (json!([]), r#"{"files":[]"#)] {
        let params = json!({"sessionId": "s", "path": scene.file_path("a.txt"), "diagnostics": diagnostics});
        let shared = json!({"jsonrpc": "2.0", "method": "_bowline/diagnostics", "params": params});
        editor.send(&shared);
        loop {
            let updated = |heard: &Value| heard["method"] == "notifications/resources/updated";
            assert_eq!(server.receive_until(updated)["params"], uri);
            let read = server.call(&json!(4), "resources/read", &uri);
            let text = read["result"]["contents"][0]["text"].as_str().unwrap();
            // A notification of events missed while the session was opening may come first.
            if text.contains(shown) {
                told += &format!("{}\n", scene.normalize(text));
                break;
            }
        }
        // The agent receives it exactly as it was sent.
        let heard = || std::fs::read_to_string(scene.home().join("heard")).unwrap();
        wait_until("the agent's copy of the diagnostics", || heard().contains(&format!("{shared}\n")));
    }
    expect![[r#"
        {"files":[{"path":"$PROJECT/a.txt","uri":"file://$PROJECT/a.txt","stale":false,"diagnostics":[{"range":{"start":{"line":1,"character":0},"end":{"line":1,"character":0}},"severity":"warning","message":"not a number","source":"lint"}],"leftOut":0}],"filesLeftOut":0}
        {"files":[],"filesLeftOut":0}
    "#]]
    .assert_eq(&told);
    server.disconnect();
    assert!(editor.close().success());
}

#[test]
fn leftovers_of_a_killed_proxy_are_removed_by_the_next() {
    let scene = project_with_file();
    let temporary = scene.base().join("tmp");
    std::fs::create_dir(&temporary).unwrap();
    let shown = temporary.display().to_string();
    let (mut living, kept) = open_listening_session(&scene, &shown);
    let (mut killed, left) = open_listening_session(&scene, &shown);
    kill_process(Pid::from_raw(killed.pid().cast_signed()).unwrap(), Signal::KILL).unwrap();
    killed.wait_for_exit();
    assert!(left.exists());
    // A proxy that needs no socket creates no directory, but still sweeps.
    let mut command = scene.command(&["proxy", "--", "cat"]);
    let mut next = EditorClient::start({
        command.env("TMPDIR", &shown);
        command
    });
    wait_until("the removal of what was left", || !left.parent().unwrap().exists());
    assert!(next.close().success());
    let names = || std::fs::read_dir(&temporary).unwrap().count();
    assert_eq!((names(), kept.exists()), (1, true));
    assert!(living.close().success());
    assert_eq!(names(), 0);
}
