//! F02, F26: the end of input, signals, and a client that closes its ear. Whatever ran is gone, and the session stays.

use std::path::PathBuf;

use serde_json::json;

use super::{Tether, replayed, signal};
use crate::program::{Program, Scene};

/// An agent of this machine in the middle of a turn: one command runs, and another in the background.
struct Busy {
    scene: Scene,
    program: Program,
    session: String,
    turn: i64,
    tethers: [Tether; 2],
    stderr: PathBuf,
}

const PROMPT: &str = "call execute {\"command\": \"exec 3>first; sleep 1000\", \"background\": true}
run exec 3>second; (setsid sleep 1000 &) ; sleep 1000";

impl Busy {
    async fn new() -> Self {
        let scene = Scene::new();
        let stderr = scene.home().join("stderr");
        let mut command = scene.command(&["--shell", "--mode", "full"]);
        command.stderr(std::fs::File::create(&stderr).unwrap());
        let mut program = Program::start(command);
        program.initialize(json!({})).await;
        let session = program.new_session(&scene.project()).await;
        let mut tethers = ["first", "second"].map(|name| Tether::new(&scene.project().join(name)));
        let turn = program.prompt(&session, PROMPT).await;
        for tether in &mut tethers {
            tether.begun().await;
        }
        Self { scene, program, session, turn, tethers, stderr }
    }

    /// Sees to it that nothing is left but the session, which another process goes on with.
    async fn over(self) {
        for tether in self.tethers {
            tether.gone().await;
        }
        assert_eq!(std::fs::read_to_string(self.stderr).unwrap(), "");
        let mut program = self.scene.start(&["--shell", "--mode", "full"]);
        program.initialize(json!({})).await;
        let told = replayed(&mut program, &self.scene, &self.session).await;
        let (first, last) = (told.lines().next().unwrap(), told.lines().last().unwrap());
        assert_eq!(first, format!("> {}", PROMPT.lines().next().unwrap()));
        assert_eq!(last, "Run exec 3>second; (setsid sleep 1000 &) ; sleep 1000: failed");
        assert_eq!(program.turn(&self.session, "say still here").await, "end_turn");
        assert!(program.said().ends_with("still here"), "{}", program.said());
    }
}

#[tokio::test]
async fn the_end_of_input_ends_the_turn_and_all_that_it_runs() {
    let mut busy = Busy::new().await;
    assert_eq!(busy.program.end().await, Some(0));
    busy.over().await;
}

#[tokio::test]
async fn a_signal_cancels_the_turn_and_ends_the_program() {
    for (name, code) in [("TERM", 143), ("INT", 130), ("HUP", 129)] {
        let mut busy = Busy::new().await;
        signal(&busy.program, name);
        let answer = busy.program.answer(busy.turn).await;
        assert_eq!(answer["result"]["stopReason"], "cancelled", "{name}: {answer}");
        assert_eq!(busy.program.ended().await, Some(code), "{name}");
        busy.over().await;
    }
}

/// A signal that comes again and again ends it no worse.
#[tokio::test]
async fn several_signals_are_one() {
    let mut busy = Busy::new().await;
    for name in ["TERM", "TERM", "INT", "HUP"] {
        signal(&busy.program, name);
    }
    assert!(busy.program.ended().await.is_some_and(|code| code > 128));
    busy.over().await;
}

#[tokio::test]
async fn a_signal_ends_an_agent_that_has_nothing_to_do() {
    for (name, code) in [("TERM", 143), ("INT", 130), ("HUP", 129)] {
        let scene = Scene::new();
        let mut program = scene.start(&[]);
        program.initialize(json!({})).await;
        signal(&program, name);
        assert_eq!(program.ended().await, Some(code), "{name}");
    }
}

#[tokio::test]
async fn a_client_that_closes_its_ear_ends_the_agent_without_a_word() {
    let mut busy = Busy::new().await;
    busy.program.stop_listening();
    // It has to say something to find out.
    let other = busy.scene.project();
    busy.program.request("session/new", json!({"cwd": other, "mcpServers": []})).await;
    let code = busy.program.ended().await;
    assert!(code.is_some(), "no signal has killed it");
    busy.over().await;
}
