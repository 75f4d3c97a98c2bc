//! The program is killed at any moment, and two programs contend for one session.

use expect_test::expect;
use serde_json::json;

use super::replay_session;
use crate::program::{AgentFixture, AgentProgram, is_answer};

const KILLS: u64 = 60;

/// Deterministic pseudo-random numbers.
struct SeededRandom(u64);

impl SeededRandom {
    fn below(&mut self, end: u64) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0 % end
    }
}

async fn start_agent(scene: &AgentFixture) -> AgentProgram {
    let mut program = scene.start_agent(&["--mode", "full"]);
    program.initialize(json!({})).await;
    program
}

/// Every answered turn is there, in order, after each load; an unanswered one may be missing.
#[tokio::test]
async fn what_was_answered_survives_every_kill() {
    let scene = AgentFixture::new();
    let mut program = start_agent(&scene).await;
    let session = program.new_session(&scene.project()).await;
    assert_eq!(program.close().await, Some(0));
    let mut chance = SeededRandom(0x5eed);
    let (mut answered, mut turns) = (Vec::new(), 0);
    for kill in 0..KILLS {
        let mut program = start_agent(&scene).await;
        let told = replay_session(&mut program, &scene, &session).await;
        let mut rest = told.as_str();
        for turn in &answered {
            let words = format!("\n\nturn {turn} is over\n");
            let at =
                rest.find(&words).unwrap_or_else(|| panic!("kill {kill}: turn {turn} is lost of {told}"));
            rest = &rest[at + words.len()..];
        }
        let (begin, moment) = (program.messages.len(), chance.below(45) as usize);
        while program.messages.len() - begin <= moment {
            turns += 1;
            let prompt = format!("write a{turns}.txt: {turns}\nsay turn {turns} is over");
            let id = program.prompt(&session, &prompt).await;
            while program.messages.len() - begin <= moment {
                let message = program.next_message().await.unwrap();
                if is_answer(&message, id) {
                    break;
                }
            }
            if program.messages.len() - begin > moment {
                program.child.start_kill().unwrap();
                // It may have written more than was read.
                assert_eq!(program.wait_for_exit().await, None);
            }
            if program.messages.iter().any(|it| is_answer(it, id) && it["result"]["stopReason"] == "end_turn")
            {
                answered.push(turns);
            }
        }
    }
    let mut program = start_agent(&scene).await;
    let told = replay_session(&mut program, &scene, &session).await;
    assert!(!told.contains(": pending") && !told.contains(": in_progress"), "{told}");
    assert_eq!(program.run_turn(&session, "list\nsay end").await, "end_turn");
    let listed = program.call("session/list", json!({})).await;
    assert_eq!(listed["sessions"].as_array().unwrap().len(), 1);
    assert!(answered.len() > 60, "{}", answered.len());
}

#[tokio::test]
async fn a_session_that_another_process_has_is_busy() {
    let scene = AgentFixture::new();
    let mut first = start_agent(&scene).await;
    let session = first.new_session(&scene.project()).await;
    assert_eq!(first.run_turn(&session, "say mine").await, "end_turn");
    let mut second = start_agent(&scene).await;
    let open = json!({"sessionId": session, "cwd": scene.project(), "mcpServers": []});
    let mut told = String::new();
    for method in ["session/load", "session/resume", "session/delete"] {
        let error = second.call_error(method, open.clone()).await;
        told += &format!("{} {}\n", error["code"], error["message"].as_str().unwrap());
    }
    let told = told.replace(&first.pid().to_string(), "PID").replace(&session, "SESSION");
    expect![[r#"
        -32600 session SESSION is in use by process PID: close it there first
        -32600 session SESSION is in use by process PID: close it there first
        -32600 session SESSION is in use by process PID: close it there first
    "#]]
    .assert_eq(&told);
    // Forks and new sessions are not locked.
    second.call("session/fork", open.clone()).await;
    second.new_session(&scene.project()).await;
    first.child.start_kill().unwrap();
    assert_eq!(first.wait_for_exit().await, None);
    assert_eq!(replay_session(&mut second, &scene, &session).await, "> say mine\n< mine\n");
    assert_eq!(second.run_turn(&session, "say mine now").await, "end_turn");
}
