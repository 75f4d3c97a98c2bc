//! Tests of `--route-writes`: an agent's write past the editor is reverted and sent through the editor. Regardless of
//! the editor's reaction, neither the agent's version nor the user's typing is lost.

use expect_test::{Expect, expect};
use rustix::process::{Pid, Signal, kill_process};
use serde_json::{Value, json};

use crate::engine::{PROMPT_RESPONSE_LINE, PipedEditor, all_capabilities, tool_call_line};
use crate::fixture::CliFixture;

const SAVED: &str = "one\ntwo\nthree\nfour\nfive\n";

/// The editor's reaction to a write.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum EditorReaction {
    /// It writes the text.
    Write,
    /// Its user refuses.
    Refuse,
    /// It disconnects while its user decides.
    Leave,
    /// The proxy is killed meanwhile.
    KillProxy,
}

/// An editor with an open file, which may have unsaved text.
struct RouteHarness {
    scene: CliFixture,
    editor: PipedEditor,
    unsaved: Option<&'static str>,
    reaction: EditorReaction,
    log: String,
}

impl RouteHarness {
    /// Starts a turn of an agent that executes `deed` within a tool call, without reporting its changes.
    fn new(deed: &str, unsaved: Option<&'static str>, says: EditorReaction) -> Self {
        let scene = CliFixture::new();
        scene.write_file("a.txt", SAVED);
        let begins = tool_call_line(
            r#""sessionUpdate":"tool_call","title":"Edit","kind":"edit","status":"in_progress""#,
        );
        let ends = tool_call_line(r#""sessionUpdate":"tool_call_update","status":"completed""#);
        let turn = [&begins, deed, &ends, PROMPT_RESPONSE_LINE].join("\n");
        let editor = PipedEditor::start(&scene, &["--route-writes"], &all_capabilities(), &turn);
        Self { scene, editor, unsaved, reaction: says, log: String::new() }
    }

    fn read_disk(&self, path: &str) -> String {
        std::fs::read_to_string(path).map_or_else(|_| "nothing".to_owned(), |text| format!("{text:?}"))
    }

    fn answer_read(&self, request: &Value) -> Value {
        let path = request["params"]["path"].as_str().unwrap();
        match self.unsaved.map(str::to_owned).or_else(|| std::fs::read_to_string(path).ok()) {
            Some(text) => json!({"jsonrpc": "2.0", "id": request["id"], "result": {"content": text}}),
            None => {
                let error = json!({"code": -32002, "message": "Resource not found"});
                json!({"jsonrpc": "2.0", "id": request["id"], "error": error})
            }
        }
    }

    /// Answers a write, and returns whether the session continues.
    fn answer_write(&mut self, request: &Value) -> bool {
        let (path, content) = (&request["params"]["path"], &request["params"]["content"]);
        let path = path.as_str().unwrap();
        let before = self.read_disk(path);
        self.log += &format!("is asked to write {content} to {path}, where there is {before}\n");
        let answer = match self.reaction {
            EditorReaction::Write => {
                std::fs::write(path, content.as_str().unwrap()).unwrap();
                json!({"jsonrpc": "2.0", "id": request["id"], "result": {}})
            }
            EditorReaction::Refuse => {
                let error = json!({"code": -32000, "message": "the user says no"});
                json!({"jsonrpc": "2.0", "id": request["id"], "error": error})
            }
            EditorReaction::Leave | EditorReaction::KillProxy => return false,
        };
        self.editor.send(&answer);
        true
    }

    /// Acts as the editor until the turn is over and its changes are shown, or one side ends. Then compares the
    /// outcome, including undo and redo.
    fn run(mut self, name: &str, expected: &Expect) {
        let (mut is_answered, mut is_shown, mut goes_on) = (false, false, true);
        while goes_on && !(is_answered && is_shown) {
            let heard = self.editor.receive();
            is_answered |= heard["id"] == 2;
            is_shown |= heard["params"]["update"]["_meta"]["bowline"].is_object();
            match heard["method"].as_str() {
                Some("fs/read_text_file") => {
                    let answer = self.answer_read(&heard);
                    self.editor.send(&answer);
                }
                Some("fs/write_text_file") => goes_on = self.answer_write(&heard),
                _ => {}
            }
        }
        let Self { scene, editor, reaction: says, log: mut told, .. } = self;
        if says == EditorReaction::KillProxy {
            kill_process(Pid::from_child(&editor.child), Signal::KILL).unwrap();
        }
        let said = editor.close();
        let on_disk = || {
            if scene.has_file(name) { format!("{:?}", scene.read_file(name)) } else { "nothing".to_owned() }
        };
        told += &format!("{said}left: {}\n", on_disk());
        for command in ["undo", "redo"] {
            let done = scene.run(&[command, "--session", "s"]);
            let code = done.lines().last().unwrap_or_default().to_owned();
            told += &format!("{command} {code}: {}\n", on_disk());
        }
        expected.assert_eq(&scene.normalize(&told));
    }
}

/// Changes a line as agents do: in place, past the editor.
const EDIT_COMMAND: &str = "sed -i s/two/agent/ a.txt";

#[test]
fn the_editor_writes_what_the_agent_wrote() {
    RouteHarness::new(EDIT_COMMAND, None, EditorReaction::Write).run("a.txt", &expect![[r#"
        is asked to write "one\nagent\nthree\nfour\nfive\n" to $PROJECT/a.txt, where there is "one\ntwo\nthree\nfour\nfive\n"
        left: "one\nagent\nthree\nfour\nfive\n"
        undo --- 0: "one\ntwo\nthree\nfour\nfive\n"
        redo --- 0: "one\nagent\nthree\nfour\nfive\n"
    "#]]);
}

#[test]
fn what_the_user_typed_elsewhere_is_merged_with_it() {
    RouteHarness::new(EDIT_COMMAND, Some("one\ntwo\nthree\nfour\ntyped\n"), EditorReaction::Write).run("a.txt", &expect![[r#"
        is asked to write "one\nagent\nthree\nfour\ntyped\n" to $PROJECT/a.txt, where there is "one\ntwo\nthree\nfour\nfive\n"
        left: "one\nagent\nthree\nfour\ntyped\n"
        undo --- 0: "one\ntwo\nthree\nfour\ntyped\n"
        redo --- 0: "one\nagent\nthree\nfour\ntyped\n"
    "#]]);
}

#[test]
fn what_the_editor_refuses_stays_as_the_agent_made_it() {
    RouteHarness::new(EDIT_COMMAND, None, EditorReaction::Refuse).run("a.txt", &expect![[r#"
        is asked to write "one\nagent\nthree\nfour\nfive\n" to $PROJECT/a.txt, where there is "one\ntwo\nthree\nfour\nfive\n"
        bowline: what the agent wrote to $PROJECT/a.txt did not go through the editor: the user says no. The file is as the agent made it (`bowline undo` takes that back)
        left: "one\nagent\nthree\nfour\nfive\n"
        undo --- 0: "one\ntwo\nthree\nfour\nfive\n"
        redo --- 0: "one\nagent\nthree\nfour\nfive\n"
    "#]]);
}

#[test]
fn what_the_user_typed_in_the_same_lines_is_not_written_over() {
    RouteHarness::new(EDIT_COMMAND, Some("one\ntyped\nthree\nfour\nfive\n"), EditorReaction::Write).run("a.txt", &expect![[r#"
        bowline: what the agent wrote to $PROJECT/a.txt did not go through the editor: the user has typed in the same lines, and not saved. The file is as the agent made it (`bowline undo` takes that back)
        left: "one\nagent\nthree\nfour\nfive\n"
        undo --- 0: "one\ntwo\nthree\nfour\nfive\n"
        redo --- 0: "one\nagent\nthree\nfour\nfive\n"
    "#]]);
}

#[test]
fn a_new_file_that_the_editor_refuses_is_there_again() {
    // Moved into place: a scan between its creation and its text would find two changes, which are not routed.
    let deed = "echo new > ../b.txt && mv ../b.txt b.txt";
    RouteHarness::new(deed, None, EditorReaction::Refuse).run("b.txt", &expect![[r#"
        is asked to write "new\n" to $PROJECT/b.txt, where there is nothing
        bowline: what the agent wrote to $PROJECT/b.txt did not go through the editor: the user says no. The file is as the agent made it (`bowline undo` takes that back)
        left: "new\n"
        undo --- 0: nothing
        redo --- 0: "new\n"
    "#]]);
}

#[test]
fn an_editor_that_goes_while_it_is_asked_takes_nothing_along() {
    RouteHarness::new(EDIT_COMMAND, None, EditorReaction::Leave).run("a.txt", &expect![[r#"
        is asked to write "one\nagent\nthree\nfour\nfive\n" to $PROJECT/a.txt, where there is "one\ntwo\nthree\nfour\nfive\n"
        bowline: what the agent wrote to $PROJECT/a.txt did not go through the editor: the editor did not write: the connection is closed. The file is as the agent made it (`bowline undo` takes that back)
        left: "one\nagent\nthree\nfour\nfive\n"
        undo --- 0: "one\ntwo\nthree\nfour\nfive\n"
        redo --- 0: "one\nagent\nthree\nfour\nfive\n"
    "#]]);
}

#[test]
fn a_proxy_that_is_killed_while_it_asks_has_both_versions_in_the_journal() {
    RouteHarness::new(EDIT_COMMAND, None, EditorReaction::KillProxy).run("a.txt", &expect![[r#"
        is asked to write "one\nagent\nthree\nfour\nfive\n" to $PROJECT/a.txt, where there is "one\ntwo\nthree\nfour\nfive\n"
        left: "one\ntwo\nthree\nfour\nfive\n"
        undo --- 0: "one\ntwo\nthree\nfour\nfive\n"
        redo --- 0: "one\nagent\nthree\nfour\nfive\n"
    "#]]);
}
