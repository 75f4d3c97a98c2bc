//! One side goes away, at any moment: the other is told, nothing is lost, and no process stays.

use std::time::Instant;

use expect_test::{Expect, expect};
use rustix::process::{Pid, Signal, kill_process};
use serde_json::{Value, json};
use test_support::PATIENCE;
use test_support::processes::working_in;
use xtask::peers::Peer;

use super::guests::{Guest, on_an_sdk};
use super::wire::{Wire, asks, says};
use crate::program::Scene;

/// How far a session has come.
#[derive(Debug, Clone, Copy)]
enum Moment {
    Started,
    Opened,
    Working,
    Asking,
}

/// Who goes.
#[derive(Debug, Clone, Copy)]
enum Who {
    Agent,
    Editor,
    Proxy,
}

/// An agent behind the proxy, which has written down what its process is.
struct Stage {
    scene: Scene,
    wire: Wire,
}

impl Stage {
    fn set(scene: Scene, agent: &[String]) -> Self {
        let mut command = scene.command(&["proxy", "--", "sh", "-c", r#"echo $$ > "$0"; exec "$@""#]);
        command.arg(scene.base().join("pid")).args(agent);
        Self { wire: Wire::start(command), scene }
    }

    fn open(&mut self) -> String {
        self.wire.open(&self.scene.project().display().to_string())
    }

    fn agent(&self) -> Pid {
        let begun = Instant::now();
        loop {
            let text = std::fs::read_to_string(self.scene.base().join("pid")).unwrap_or_default();
            if let Some(number) = text.strip_suffix('\n') {
                return Pid::from_raw(number.parse().unwrap()).unwrap();
            }
            assert!(begun.elapsed() < PATIENCE, "the agent was not started");
            std::thread::yield_now();
        }
    }

    /// Lets one go, and tells what the editor was told from then on, and how the proxy ended. Nothing may be left.
    fn goes(&mut self, who: Who) -> String {
        let before = self.wire.told.len();
        match who {
            Who::Agent => kill_process(self.agent(), Signal::KILL).unwrap(),
            Who::Editor => self.wire.leave(),
            Who::Proxy => {
                kill_process(Pid::from_raw(self.wire.id().cast_signed()).unwrap(), Signal::KILL).unwrap()
            }
        }
        let status = match who {
            // It does not wait for the editor to go.
            Who::Agent | Who::Proxy => self.wire.hear_out(),
            Who::Editor => self.wire.end(),
        };
        // What the agent still said, and how a call of ours is shown, may come or not.
        let is_sure = |line: &&String| !line.contains("session/update");
        let told: String = self.wire.told[before..].iter().filter(is_sure).cloned().collect();
        let begun = Instant::now();
        while !working_in(&self.scene.base()).is_empty() {
            assert!(begun.elapsed() < PATIENCE, "left running: {:?}", working_in(&self.scene.base()));
            std::thread::yield_now();
        }
        self.scene.clean(&format!("{told}{status}\n"))
    }
}

/// Brings a session to a moment.
fn at(moment: Moment, agent: &[String]) -> Stage {
    let scene = Scene::new();
    scene.put("a.txt", "one\ntwo\n");
    let mut stage = Stage::set(scene, agent);
    let edit =
        json!({"do": "edit", "path": stage.scene.path("a.txt"), "old": "two", "new": "2", "command": "true"});
    match moment {
        Moment::Started => _ = stage.agent(),
        Moment::Opened => _ = stage.open(),
        Moment::Working => {
            let session = stage.open();
            stage.wire.prompt(&session, r#"{"do":"wait"}"#);
            stage.wire.until(says);
        }
        Moment::Asking => {
            let session = stage.open();
            stage.wire.prompt(&session, &edit.to_string());
            stage.wire.until(asks);
        }
    }
    stage
}

fn one_goes(peer: Peer) {
    let Some(agent) = on_an_sdk(peer) else { return };
    let mut told = String::new();
    for moment in [Moment::Started, Moment::Opened, Moment::Working, Moment::Asking] {
        for who in [Who::Agent, Who::Editor, Who::Proxy] {
            told += &format!("{moment:?}, {who:?} goes\n");
            told += &at(moment, &agent).goes(who);
        }
    }
    expected().assert_eq(&told);
}

fn expected() -> Expect {
    expect![[r#"
        Started, Agent goes
        exit status: 1
        Started, Editor goes
        exit status: 0
        Started, Proxy goes
        signal: 9 (SIGKILL)
        Opened, Agent goes
        exit status: 1
        Opened, Editor goes
        exit status: 0
        Opened, Proxy goes
        signal: 9 (SIGKILL)
        Working, Agent goes
        {"jsonrpc":"2.0","id":2,"error":{"code":-32603,"message":"the agent was ended by SIGKILL"}}
        exit status: 1
        Working, Editor goes
        exit status: 0
        Working, Proxy goes
        signal: 9 (SIGKILL)
        Asking, Agent goes
        {"jsonrpc":"2.0","id":2,"error":{"code":-32603,"message":"the agent was ended by SIGKILL"}}
        exit status: 1
        Asking, Editor goes
        exit status: 0
        Asking, Proxy goes
        signal: 9 (SIGKILL)
    "#]]
}

#[test]
fn nothing_of_the_rust_sdks_agent_stays() {
    one_goes(Peer::Rust);
}

#[test]
fn nothing_of_the_python_sdks_agent_stays() {
    one_goes(Peer::Python);
}

#[test]
fn nothing_of_the_typescript_sdks_agent_stays() {
    one_goes(Peer::TypeScript);
}

/// The editor is asked about an edit by a tool that the proxy gave the agent, and then one of them goes.
#[tokio::test(flavor = "multi_thread")]
async fn an_edit_that_is_asked_about_is_not_done_when_one_goes() {
    let mut told = String::new();
    for who in [Who::Agent, Who::Editor, Who::Proxy] {
        let scene = Scene::new();
        scene.put("a.txt", "one\ntwo\n");
        let edit = json!({"path": scene.path("a.txt"), "old_text": "two", "new_text": "2"});
        let Some(ready) = Guest::FastAgent.ready(&scene, &[("edit_text_file", edit)]).await else { return };
        let mut stage = Stage::set(scene, &ready.command);
        let session = stage.open();
        stage.wire.prompt(&session, &ready.prompts[0]);
        let its_own = stage.wire.until(asks);
        stage.wire.answer(&its_own);
        let ours = stage.wire.until(asks);
        let shown: &Value = &ours["params"]["toolCall"]["title"];
        told += &stage.scene.clean(&format!("{shown} is asked about, {who:?} goes\n"));
        let went = tokio::task::block_in_place(|| stage.goes(who));
        told += &went.replace(ours["id"].as_str().unwrap(), "$QUESTION");
        // Nobody is left who could still write it.
        assert_eq!(stage.scene.get("a.txt"), "one\ntwo\n");
    }
    expect![[r#"
        "Write $PROJECT/a.txt" is asked about, Agent goes
        {"jsonrpc":"2.0","method":"$/cancel_request","params":{"requestId":"$QUESTION"}}
        {"jsonrpc":"2.0","id":2,"error":{"code":-32603,"message":"the agent was ended by SIGKILL"}}
        exit status: 1
        "Write $PROJECT/a.txt" is asked about, Editor goes
        exit status: 0
        "Write $PROJECT/a.txt" is asked about, Proxy goes
        signal: 9 (SIGKILL)
    "#]]
    .assert_eq(&told);
}
