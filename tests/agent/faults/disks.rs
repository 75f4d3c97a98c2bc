//! Full or unwritable disks, and damaged databases.

use std::path::PathBuf;
use std::process::Command;

use expect_test::expect;
use serde_json::json;

use super::replay_session;
use crate::program::{AgentFixture, AgentProgram, bowline_path};

#[tokio::test]
async fn without_a_place_for_its_state_the_agent_says_so_and_lives() {
    let scene = AgentFixture::new();
    let mut command = scene.agent_command(&[]);
    // Not even root can create a directory there.
    command.env("XDG_STATE_HOME", "/proc/nowhere");
    let mut program = AgentProgram::start(command);
    program.initialize(json!({})).await;
    let open = json!({"cwd": scene.project(), "mcpServers": []});
    let mut told = String::new();
    for (method, params) in [("session/new", &open), ("session/new", &open), ("session/list", &json!({}))] {
        let error = program.call_error(method, params.clone()).await;
        told += &format!("{} {}\n", error["code"], error["message"].as_str().unwrap());
    }
    expect![[r#"
        -32603 cannot make the directory /proc/nowhere/bowline: No such file or directory (os error 2)
        -32603 cannot make the directory /proc/nowhere/bowline: No such file or directory (os error 2)
        -32603 cannot make the directory /proc/nowhere/bowline: No such file or directory (os error 2)
    "#]]
    .assert_eq(&told);
    assert_eq!(program.close().await, Some(0));
}

/// Limits the size of the files that the program writes.
fn limit_file_size(program: &AgentProgram, bytes: &str) {
    let pid = program.pid().to_string();
    let status = Command::new("prlimit").args(["--pid", &pid, &format!("--fsize={bytes}:")]).status();
    assert!(status.unwrap().success());
}

/// A full disk: a turn that could not be saved is an error, nothing is lost meanwhile, and everything is saved once
/// there is room again.
#[tokio::test]
async fn a_full_disk_is_told_and_the_session_goes_on_when_there_is_room() {
    let scene = AgentFixture::new();
    // A write beyond the limit must be an error, as on a full disk, and not a signal.
    let mut command = tokio::process::Command::new("/bin/sh");
    command.args(["-c", "trap '' XFSZ; exec \"$0\" agent"]).arg(bowline_path()).current_dir("/");
    command.env("HOME", scene.home()).env_remove("XDG_STATE_HOME");
    let mut program = AgentProgram::start(command);
    program.initialize(json!({})).await;
    let session = program.new_session(&scene.project()).await;
    assert_eq!(program.run_turn(&session, "say before").await, "end_turn");
    limit_file_size(&program, "0");
    let mut told = String::new();
    for words in ["one", "two"] {
        let prompt =
            json!({"sessionId": session, "prompt": [{"type": "text", "text": format!("say {words}")}]});
        let error = program.call_error("session/prompt", prompt).await;
        told += &format!("{} {}\n", error["code"], error["message"].as_str().unwrap());
    }
    let error = program.call_error("session/new", json!({"cwd": scene.project(), "mcpServers": []})).await;
    told += &format!("new: {} {}\n", error["code"], error["message"].as_str().unwrap());
    expect![[r#"
        -32603 the session could not be saved (the sessions in $BASE/home/.local/state/bowline/sessions.db cannot be used: disk I/O error); what the turn did stands
        -32603 the session could not be saved (the sessions in $BASE/home/.local/state/bowline/sessions.db cannot be used: disk I/O error); what the turn did stands
        new: -32603 the sessions in $BASE/home/.local/state/bowline/sessions.db cannot be used: disk I/O error
    "#]].assert_eq(&scene.normalize(&told));
    limit_file_size(&program, "unlimited");
    assert_eq!(program.run_turn(&session, "say after").await, "end_turn");
    assert_eq!(program.close().await, Some(0));
    let mut program = scene.start_agent(&[]);
    program.initialize(json!({})).await;
    let told = replay_session(&mut program, &scene, &session).await;
    expect![[r#"
        > say before
        < before
        > say one
        < one
        > say two
        < two
        > say after
        < after
    "#]]
    .assert_eq(&told);
}

/// A slow disk: the turn is answered as cancelled at once, and still saved after the client disconnects.
#[tokio::test]
async fn a_cancelled_turn_is_saved_after_it_was_answered() {
    let scene = AgentFixture::new();
    let mut program = scene.start_agent(&[]);
    program.initialize(json!({})).await;
    let session = program.new_session(&scene.project()).await;
    assert_eq!(program.run_turn(&session, "say before").await, "end_turn");
    let turn = program.prompt(&session, "say begun\nwait 3600").await;
    program.wait_for(|it| it["params"]["update"]["content"]["text"] == "begun").await;
    let database = rusqlite::Connection::open(database_path(&scene)).unwrap();
    database.execute_batch("BEGIN IMMEDIATE").unwrap();
    program.notify("session/cancel", json!({"sessionId": session})).await;
    assert_eq!(program.wait_for_answer(turn).await["result"]["stopReason"], "cancelled");
    database.execute_batch("ROLLBACK").unwrap();
    assert_eq!(program.close().await, Some(0));
    assert_eq!(
        replay_in_new_process(&scene, &session).await,
        "> say before\n< before\n> say begun\nwait 3600\n< begun\n"
    );
}

/// A damaged database is set aside, and work continues.
#[tokio::test]
async fn a_damaged_database_is_set_aside_and_said_to_be() {
    let rubbish: Vec<u8> =
        (0..40_000_u32).map(|number| (number.wrapping_mul(2_654_435_761) >> 13) as u8).collect();
    for (name, damage) in [("rubbish", Some(rubbish)), ("nothing", Some(Vec::new())), ("half", None)] {
        let scene = AgentFixture::new();
        let mut program = scene.start_agent(&[]);
        program.initialize(json!({})).await;
        let session = program.new_session(&scene.project()).await;
        program.run_turn(&session, "say before").await;
        assert_eq!(program.close().await, Some(0));
        let database = database_path(&scene);
        let bytes = damage.unwrap_or_else(|| {
            let mut bytes = std::fs::read(&database).unwrap();
            bytes.truncate(bytes.len() / 2 + 100);
            bytes
        });
        std::fs::write(&database, bytes).unwrap();
        // The write-ahead log would repair the damage.
        std::fs::remove_file(database.with_extension("db-wal")).unwrap_or_default();

        let log = scene.home().join("log");
        let mut program = scene.start_agent(&["--log", log.to_str().unwrap()]);
        program.initialize(json!({})).await;
        program.call("session/list", json!({})).await;
        let fresh = program.new_session(&scene.project()).await;
        assert_eq!(program.run_turn(&fresh, "say fresh").await, "end_turn", "{name}");
        let listed = program.call("session/list", json!({})).await;
        let listed = listed["sessions"].as_array().unwrap();
        assert!(listed.iter().any(|it| it["sessionId"] == *fresh), "{name}: {listed:?}");
        // The session was salvaged, or its loss is reported.
        let open = json!({"sessionId": session, "cwd": scene.project(), "mcpServers": []});
        let id = program.request("session/load", open).await;
        let answer = program.wait_for_answer(id).await;
        let is_listed = listed.iter().any(|it| it["sessionId"] == *session);
        assert_eq!(answer.get("error").is_none(), is_listed, "{name}: {answer}");
        assert_eq!(program.close().await, Some(0));
        let log = std::fs::read_to_string(log).unwrap();
        assert!(log.contains("sessions.db"), "{name}: {log}");
        assert_eq!(replay_in_new_process(&scene, &fresh).await, "> say fresh\n< fresh\n", "{name}");
    }
}

async fn replay_in_new_process(scene: &AgentFixture, session: &str) -> String {
    let mut program = scene.start_agent(&[]);
    program.initialize(json!({})).await;
    replay_session(&mut program, scene, session).await
}

fn database_path(scene: &AgentFixture) -> PathBuf {
    let mut directories = vec![scene.home().join(".local/state/bowline")];
    while let Some(directory) = directories.pop() {
        for entry in std::fs::read_dir(directory).unwrap() {
            let path = entry.unwrap().path();
            if path.ends_with("sessions.db") {
                return path;
            }
            if path.is_dir() {
                directories.push(path);
            }
        }
    }
    panic!("there is no database");
}
