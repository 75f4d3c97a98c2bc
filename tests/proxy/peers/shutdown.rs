//! Tests of one side ending at any moment: the other is informed, nothing is lost, and no process stays.

use expect_test::{Expect, expect};
use rustix::process::{Pid, Signal, kill_process};
use serde_json::{Value, json};
use test_support::processes::wait_until_none_in;
use test_support::wait::wait_for;
use xtask::peers::SdkPeer;

use super::agents::{McpAgent, sdk_agent_command};
use super::editor_client::{EditorClient, is_agent_message, is_permission_request};
use crate::fixture::CliFixture;

/// The progress of a session.
#[derive(Debug, Clone, Copy)]
enum SessionMoment {
    Started,
    Opened,
    Working,
    Asking,
}

/// The side that ends.
#[derive(Debug, Clone, Copy)]
enum LeavingSide {
    Agent,
    Editor,
    Proxy,
}

/// An agent behind the proxy that has recorded its process id.
struct ShutdownHarness {
    scene: CliFixture,
    editor: EditorClient,
}

impl ShutdownHarness {
    fn start(scene: CliFixture, agent: &[String]) -> Self {
        let mut command = scene.command(&["proxy", "--", "sh", "-c", r#"echo $$ > "$0"; exec "$@""#]);
        command.arg(scene.base().join("pid")).args(agent);
        Self { editor: EditorClient::start(command), scene }
    }

    fn open_session(&mut self) -> String {
        self.editor.open_session(&self.scene.project().display().to_string())
    }

    fn agent_pid(&self) -> Pid {
        wait_for("the agent's process id", || {
            let text = std::fs::read_to_string(self.scene.base().join("pid")).ok()?;
            Pid::from_raw(text.strip_suffix('\n')?.parse().unwrap())
        })
    }

    /// Ends one side, and returns the editor's input from then on, and how the proxy ended. Fails if a process is left.
    fn end_side(&mut self, who: LeavingSide) -> String {
        let before = self.editor.output.len();
        match who {
            LeavingSide::Agent => kill_process(self.agent_pid(), Signal::KILL).unwrap(),
            LeavingSide::Editor => self.editor.disconnect(),
            LeavingSide::Proxy => {
                kill_process(Pid::from_raw(self.editor.pid().cast_signed()).unwrap(), Signal::KILL).unwrap()
            }
        }
        let status = match who {
            // The proxy exits without waiting for the editor to disconnect.
            LeavingSide::Agent | LeavingSide::Proxy => self.editor.wait_for_exit(),
            LeavingSide::Editor => self.editor.close(),
        };
        // The agent's last updates, and those of our own tool calls, may or may not arrive.
        let is_sure = |line: &&String| !line.contains("session/update");
        let told: String = self.editor.output[before..].iter().filter(is_sure).cloned().collect();
        wait_until_none_in(&self.scene.base());
        self.scene.normalize(&format!("{told}{status}\n"))
    }
}

/// Starts a session and brings it to a moment.
fn start_at(moment: SessionMoment, agent: &[String]) -> ShutdownHarness {
    let scene = CliFixture::new();
    scene.write_file("a.txt", "one\ntwo\n");
    let mut stage = ShutdownHarness::start(scene, agent);
    let edit = json!({"do": "edit", "path": stage.scene.file_path("a.txt"), "old": "two", "new": "2", "command": "true"});
    match moment {
        SessionMoment::Started => _ = stage.agent_pid(),
        SessionMoment::Opened => _ = stage.open_session(),
        SessionMoment::Working => {
            let session = stage.open_session();
            stage.editor.send_prompt(&session, r#"{"do":"wait"}"#);
            stage.editor.receive_until(is_agent_message);
        }
        SessionMoment::Asking => {
            let session = stage.open_session();
            stage.editor.send_prompt(&session, &edit.to_string());
            stage.editor.receive_until(is_permission_request);
        }
    }
    stage
}

fn check_peer(peer: SdkPeer) {
    let Some(agent) = sdk_agent_command(peer) else { return };
    let mut told = String::new();
    for moment in
        [SessionMoment::Started, SessionMoment::Opened, SessionMoment::Working, SessionMoment::Asking]
    {
        for who in [LeavingSide::Agent, LeavingSide::Editor, LeavingSide::Proxy] {
            told += &format!("{moment:?}, {who:?} goes\n");
            told += &start_at(moment, &agent).end_side(who);
        }
    }
    expected_outcomes().assert_eq(&told);
}

fn expected_outcomes() -> Expect {
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
    check_peer(SdkPeer::Rust);
}

#[test]
fn nothing_of_the_python_sdks_agent_stays() {
    check_peer(SdkPeer::Python);
}

#[test]
fn nothing_of_the_typescript_sdks_agent_stays() {
    check_peer(SdkPeer::TypeScript);
}

/// An injected tool asks the editor about an edit, and then one side ends.
#[tokio::test]
async fn an_edit_that_is_asked_about_is_not_done_when_one_goes() {
    let mut told = String::new();
    for who in [LeavingSide::Agent, LeavingSide::Editor, LeavingSide::Proxy] {
        let scene = CliFixture::new();
        scene.write_file("a.txt", "one\ntwo\n");
        let edit = json!({"path": scene.file_path("a.txt"), "old_text": "two", "new_text": "2"});
        let Some(ready) = McpAgent::FastAgent.prepare(&scene, &[("edit_text_file", edit)]).await else {
            return;
        };
        let mut stage = ShutdownHarness::start(scene, &ready.command);
        let session = stage.open_session();
        stage.editor.send_prompt(&session, &ready.prompts[0]);
        let its_own = stage.editor.receive_until(is_permission_request);
        stage.editor.answer(&its_own);
        let ours = stage.editor.receive_until(is_permission_request);
        let shown: &Value = &ours["params"]["toolCall"]["title"];
        told += &stage.scene.normalize(&format!("{shown} is asked about, {who:?} goes\n"));
        let went = stage.end_side(who);
        told += &went.replace(ours["id"].as_str().unwrap(), "$QUESTION");
        // No process is left that could still write it.
        assert_eq!(stage.scene.read_file("a.txt"), "one\ntwo\n");
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
