//! `--route-writes`: what an agent wrote past the editor is put back and sent through it. Whatever the editor says to that,
//! neither the agent's version nor what the user typed is lost.

use expect_test::{Expect, expect};
use rustix::process::{Pid, Signal, kill_process};
use serde_json::{Value, json};

use crate::beside::{ANSWER, Editor, all, call};
use crate::program::Scene;

const SAVED: &str = "one\ntwo\nthree\nfour\nfive\n";

/// What the editor does.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Says {
    /// Writes what it is asked to.
    Yes,
    /// Its user does not want it.
    No,
    /// It goes away while its user thinks.
    Leaves,
    /// The proxy is killed meanwhile.
    Killed,
}

/// An editor that has a file open, perhaps with text that is not saved.
struct Stage {
    scene: Scene,
    editor: Editor,
    unsaved: Option<&'static str>,
    says: Says,
    told: String,
}

impl Stage {
    /// Starts a turn of an agent that does `deed` within a tool call, and says nothing of what it changes.
    fn new(deed: &str, unsaved: Option<&'static str>, says: Says) -> Self {
        let scene = Scene::new();
        scene.put("a.txt", SAVED);
        let begins =
            call(r#""sessionUpdate":"tool_call","title":"Edit","kind":"edit","status":"in_progress""#);
        let ends = call(r#""sessionUpdate":"tool_call_update","status":"completed""#);
        let turn = [&begins, deed, &ends, ANSWER].join("\n");
        let editor = Editor::start(&scene, &["--route-writes"], &all(), &turn);
        Self { scene, editor, unsaved, says, told: String::new() }
    }

    fn on_disk(&self, path: &str) -> String {
        std::fs::read_to_string(path).map_or_else(|_| "nothing".to_owned(), |text| format!("{text:?}"))
    }

    fn reads(&self, request: &Value) -> Value {
        let path = request["params"]["path"].as_str().unwrap();
        match self.unsaved.map(str::to_owned).or_else(|| std::fs::read_to_string(path).ok()) {
            Some(text) => json!({"jsonrpc": "2.0", "id": request["id"], "result": {"content": text}}),
            None => {
                let error = json!({"code": -32002, "message": "Resource not found"});
                json!({"jsonrpc": "2.0", "id": request["id"], "error": error})
            }
        }
    }

    /// Answers a write, and says whether the session goes on.
    fn writes(&mut self, request: &Value) -> bool {
        let (path, content) = (&request["params"]["path"], &request["params"]["content"]);
        let path = path.as_str().unwrap();
        let before = self.on_disk(path);
        self.told += &format!("is asked to write {content} to {path}, where there is {before}\n");
        let answer = match self.says {
            Says::Yes => {
                std::fs::write(path, content.as_str().unwrap()).unwrap();
                json!({"jsonrpc": "2.0", "id": request["id"], "result": {}})
            }
            Says::No => {
                let error = json!({"code": -32000, "message": "the user says no"});
                json!({"jsonrpc": "2.0", "id": request["id"], "error": error})
            }
            Says::Leaves | Says::Killed => return false,
        };
        self.editor.say(&answer);
        true
    }

    /// Plays the editor's part until the turn is over and what was changed is shown, or one of them goes. Then tells what
    /// came of it, and what undo and redo make of that.
    fn play(mut self, name: &str, expected: &Expect) {
        let (mut is_answered, mut is_shown, mut goes_on) = (false, false, true);
        while goes_on && !(is_answered && is_shown) {
            let heard = self.editor.hear();
            is_answered |= heard["id"] == 2;
            is_shown |= heard["params"]["update"]["_meta"]["bowline"].is_object();
            match heard["method"].as_str() {
                Some("fs/read_text_file") => {
                    let answer = self.reads(&heard);
                    self.editor.say(&answer);
                }
                Some("fs/write_text_file") => goes_on = self.writes(&heard),
                _ => {}
            }
        }
        let Self { scene, editor, says, mut told, .. } = self;
        if says == Says::Killed {
            kill_process(Pid::from_child(&editor.child), Signal::KILL).unwrap();
        }
        let said = editor.leave();
        let on_disk =
            || if scene.has(name) { format!("{:?}", scene.get(name)) } else { "nothing".to_owned() };
        told += &format!("{said}left: {}\n", on_disk());
        for command in ["undo", "redo"] {
            let done = scene.run(&[command, "--session", "s"]);
            let code = done.lines().last().unwrap_or_default().to_owned();
            told += &format!("{command} {code}: {}\n", on_disk());
        }
        expected.assert_eq(&scene.clean(&told));
    }
}

/// Changes a line as agents do: in place, past the editor.
const EDIT: &str = "sed -i s/two/agent/ a.txt";

#[test]
fn the_editor_writes_what_the_agent_wrote() {
    Stage::new(EDIT, None, Says::Yes).play("a.txt", &expect![[r#"
        is asked to write "one\nagent\nthree\nfour\nfive\n" to $PROJECT/a.txt, where there is "one\ntwo\nthree\nfour\nfive\n"
        left: "one\nagent\nthree\nfour\nfive\n"
        undo --- 0: "one\ntwo\nthree\nfour\nfive\n"
        redo --- 0: "one\nagent\nthree\nfour\nfive\n"
    "#]]);
}

#[test]
fn what_the_user_typed_elsewhere_is_merged_with_it() {
    Stage::new(EDIT, Some("one\ntwo\nthree\nfour\ntyped\n"), Says::Yes).play("a.txt", &expect![[r#"
        is asked to write "one\nagent\nthree\nfour\ntyped\n" to $PROJECT/a.txt, where there is "one\ntwo\nthree\nfour\nfive\n"
        left: "one\nagent\nthree\nfour\ntyped\n"
        undo --- 0: "one\ntwo\nthree\nfour\ntyped\n"
        redo --- 0: "one\nagent\nthree\nfour\ntyped\n"
    "#]]);
}

#[test]
fn what_the_editor_refuses_stays_as_the_agent_made_it() {
    Stage::new(EDIT, None, Says::No).play("a.txt", &expect![[r#"
        is asked to write "one\nagent\nthree\nfour\nfive\n" to $PROJECT/a.txt, where there is "one\ntwo\nthree\nfour\nfive\n"
        bowline: what the agent wrote to $PROJECT/a.txt did not go through the editor: the user says no. The file is as the agent made it (`bowline undo` takes that back)
        left: "one\nagent\nthree\nfour\nfive\n"
        undo --- 0: "one\ntwo\nthree\nfour\nfive\n"
        redo --- 0: "one\nagent\nthree\nfour\nfive\n"
    "#]]);
}

#[test]
fn what_the_user_typed_in_the_same_lines_is_not_written_over() {
    Stage::new(EDIT, Some("one\ntyped\nthree\nfour\nfive\n"), Says::Yes).play("a.txt", &expect![[r#"
        bowline: what the agent wrote to $PROJECT/a.txt did not go through the editor: the user has typed in the same lines, and not saved. The file is as the agent made it (`bowline undo` takes that back)
        left: "one\nagent\nthree\nfour\nfive\n"
        undo --- 0: "one\ntwo\nthree\nfour\nfive\n"
        redo --- 0: "one\nagent\nthree\nfour\nfive\n"
    "#]]);
}

#[test]
fn a_new_file_that_the_editor_refuses_is_there_again() {
    Stage::new("echo new > b.txt", None, Says::No).play("b.txt", &expect![[r#"
        is asked to write "new\n" to $PROJECT/b.txt, where there is nothing
        bowline: what the agent wrote to $PROJECT/b.txt did not go through the editor: the user says no. The file is as the agent made it (`bowline undo` takes that back)
        left: "new\n"
        undo --- 0: nothing
        redo --- 0: "new\n"
    "#]]);
}

#[test]
fn an_editor_that_goes_while_it_is_asked_takes_nothing_along() {
    Stage::new(EDIT, None, Says::Leaves).play("a.txt", &expect![[r#"
        is asked to write "one\nagent\nthree\nfour\nfive\n" to $PROJECT/a.txt, where there is "one\ntwo\nthree\nfour\nfive\n"
        bowline: what the agent wrote to $PROJECT/a.txt did not go through the editor: the editor did not write: the connection is closed. The file is as the agent made it (`bowline undo` takes that back)
        left: "one\nagent\nthree\nfour\nfive\n"
        undo --- 0: "one\ntwo\nthree\nfour\nfive\n"
        redo --- 0: "one\nagent\nthree\nfour\nfive\n"
    "#]]);
}

#[test]
fn a_proxy_that_is_killed_while_it_asks_has_both_versions_in_the_journal() {
    Stage::new(EDIT, None, Says::Killed).play("a.txt", &expect![[r#"
        is asked to write "one\nagent\nthree\nfour\nfive\n" to $PROJECT/a.txt, where there is "one\ntwo\nthree\nfour\nfive\n"
        left: "one\ntwo\nthree\nfour\nfive\n"
        undo --- 0: "one\ntwo\nthree\nfour\nfive\n"
        redo --- 0: "one\nagent\nthree\nfour\nfive\n"
    "#]]);
}
