//! End of input, signals, and a client that closes the pipe. All commands end, and the session is kept.

use std::path::PathBuf;

use serde_json::json;

use super::{LifetimePipe, replay_session, send_signal};
use crate::program::{AgentFixture, AgentProgram};

/// An agent with a local runtime in the middle of a turn: one command in the foreground, one in the background.
struct BusyAgent {
    fixture: AgentFixture,
    program: AgentProgram,
    session: String,
    turn: i64,
    pipes: [LifetimePipe; 2],
    stderr: PathBuf,
}

const PROMPT: &str = "call execute {\"command\": \"exec 3>first; sleep 1000\", \"background\": true}
run exec 3>second; (setsid sleep 1000 &) ; sleep 1000";

impl BusyAgent {
    async fn new() -> Self {
        let scene = AgentFixture::new();
        let stderr = scene.home().join("stderr");
        let mut command = scene.agent_command(&["--shell", "--mode", "full"]);
        command.stderr(std::fs::File::create(&stderr).unwrap());
        let mut program = AgentProgram::start(command);
        program.initialize(json!({})).await;
        let session = program.new_session(&scene.project()).await;
        let mut tethers = ["first", "second"].map(|name| LifetimePipe::new(&scene.project().join(name)));
        let turn = program.prompt(&session, PROMPT).await;
        for tether in &mut tethers {
            tether.wait_opened().await;
        }
        Self { fixture: scene, program, session, turn, pipes: tethers, stderr }
    }

    /// Checks that only the session is left, and that another process can continue it.
    async fn check_nothing_left(self) {
        for tether in self.pipes {
            tether.wait_closed().await;
        }
        assert_eq!(std::fs::read_to_string(self.stderr).unwrap(), "");
        let mut program = self.fixture.start_agent(&["--shell", "--mode", "full"]);
        program.initialize(json!({})).await;
        let told = replay_session(&mut program, &self.fixture, &self.session).await;
        let (first, last) = (told.lines().next().unwrap(), told.lines().last().unwrap());
        assert_eq!(first, format!("> {}", PROMPT.lines().next().unwrap()));
        assert_eq!(last, "Run exec 3>second; (setsid sleep 1000 &) ; sleep 1000: failed");
        assert_eq!(program.run_turn(&self.session, "say still here").await, "end_turn");
        assert!(program.agent_text().ends_with("still here"), "{}", program.agent_text());
    }
}

#[tokio::test]
async fn the_end_of_input_ends_the_turn_and_all_that_it_runs() {
    let mut busy = BusyAgent::new().await;
    assert_eq!(busy.program.close().await, Some(0));
    busy.check_nothing_left().await;
}

#[tokio::test]
async fn a_signal_cancels_the_turn_and_ends_the_program() {
    for (name, code) in [("TERM", 143), ("INT", 130), ("HUP", 129)] {
        let mut busy = BusyAgent::new().await;
        send_signal(&busy.program, name);
        let answer = busy.program.wait_for_answer(busy.turn).await;
        assert_eq!(answer["result"]["stopReason"], "cancelled", "{name}: {answer}");
        assert_eq!(busy.program.wait_for_exit().await, Some(code), "{name}");
        busy.check_nothing_left().await;
    }
}

/// Repeated signals have the same effect as one.
#[tokio::test]
async fn several_signals_are_one() {
    let mut busy = BusyAgent::new().await;
    for name in ["TERM", "TERM", "INT", "HUP"] {
        send_signal(&busy.program, name);
    }
    assert!(busy.program.wait_for_exit().await.is_some_and(|code| code > 128));
    busy.check_nothing_left().await;
}

#[tokio::test]
async fn a_signal_ends_an_agent_that_has_nothing_to_do() {
    for (name, code) in [("TERM", 143), ("INT", 130), ("HUP", 129)] {
        let scene = AgentFixture::new();
        let mut program = scene.start_agent(&[]);
        program.initialize(json!({})).await;
        send_signal(&program, name);
        assert_eq!(program.wait_for_exit().await, Some(code), "{name}");
    }
}

#[tokio::test]
async fn a_client_that_closes_its_ear_ends_the_agent_without_a_word() {
    let mut busy = BusyAgent::new().await;
    busy.program.close_stdout();
    // The agent notices only when it writes.
    let other = busy.fixture.project();
    busy.program.request("session/new", json!({"cwd": other, "mcpServers": []})).await;
    let code = busy.program.wait_for_exit().await;
    assert!(code.is_some(), "no signal has killed it");
    busy.check_nothing_left().await;
}
