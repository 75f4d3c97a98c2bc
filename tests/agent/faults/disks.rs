//! F22, F24: disks that are full or take nothing, and databases that are damaged.

use std::path::PathBuf;
use std::process::Command;

use expect_test::expect;
use serde_json::json;

use super::replayed;
use crate::program::{Program, Scene, bowline};

#[tokio::test]
async fn without_a_place_for_its_state_the_agent_says_so_and_lives() {
    let scene = Scene::new();
    let mut command = scene.command(&[]);
    // Not even root can make a directory there.
    command.env("XDG_STATE_HOME", "/proc/nowhere");
    let mut program = Program::start(command);
    program.initialize(json!({})).await;
    let open = json!({"cwd": scene.project(), "mcpServers": []});
    let mut told = String::new();
    for (method, params) in [("session/new", &open), ("session/new", &open), ("session/list", &json!({}))] {
        let error = program.fails(method, params.clone()).await;
        told += &format!("{} {}\n", error["code"], error["message"].as_str().unwrap());
    }
    expect![[r#"
        -32603 cannot make the directory /proc/nowhere/bowline: No such file or directory (os error 2)
        -32603 cannot make the directory /proc/nowhere/bowline: No such file or directory (os error 2)
        -32603 cannot make the directory /proc/nowhere/bowline: No such file or directory (os error 2)
    "#]]
    .assert_eq(&told);
    assert_eq!(program.end().await, Some(0));
}

/// Lets the program write no file beyond so many bytes.
fn limit(program: &Program, bytes: &str) {
    let pid = program.pid().to_string();
    let status = Command::new("prlimit").args(["--pid", &pid, &format!("--fsize={bytes}:")]).status();
    assert!(status.unwrap().success());
}

/// A disk that is full: a turn that could not be saved is no success, nothing is lost meanwhile, and when there is room
/// again all is as ever.
#[tokio::test]
async fn a_full_disk_is_told_and_the_session_goes_on_when_there_is_room() {
    let scene = Scene::new();
    // A write beyond the limit is to be an error, as on a full disk, and no signal.
    let mut command = tokio::process::Command::new("/bin/sh");
    command.args(["-c", "trap '' XFSZ; exec \"$0\" agent"]).arg(bowline()).current_dir("/");
    command.env("HOME", scene.home()).env_remove("XDG_STATE_HOME");
    let mut program = Program::start(command);
    program.initialize(json!({})).await;
    let session = program.new_session(&scene.project()).await;
    assert_eq!(program.turn(&session, "say before").await, "end_turn");
    limit(&program, "0");
    let mut told = String::new();
    for words in ["one", "two"] {
        let prompt =
            json!({"sessionId": session, "prompt": [{"type": "text", "text": format!("say {words}")}]});
        let error = program.fails("session/prompt", prompt).await;
        told += &format!("{} {}\n", error["code"], error["message"].as_str().unwrap());
    }
    let error = program.fails("session/new", json!({"cwd": scene.project(), "mcpServers": []})).await;
    told += &format!("new: {} {}\n", error["code"], error["message"].as_str().unwrap());
    expect![[r#"
        -32603 the session could not be saved (the sessions in $BASE/home/.local/state/bowline/sessions.db cannot be used: disk I/O error); what the turn did stands
        -32603 the session could not be saved (the sessions in $BASE/home/.local/state/bowline/sessions.db cannot be used: disk I/O error); what the turn did stands
        new: -32603 the sessions in $BASE/home/.local/state/bowline/sessions.db cannot be used: disk I/O error
    "#]].assert_eq(&scene.clean(&told));
    limit(&program, "unlimited");
    assert_eq!(program.turn(&session, "say after").await, "end_turn");
    assert_eq!(program.end().await, Some(0));
    let mut program = scene.start(&[]);
    program.initialize(json!({})).await;
    let told = replayed(&mut program, &scene, &session).await;
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

/// A disk that is slow: the turn is answered as cancelled at once, and yet nothing of it is lost when the client goes.
#[tokio::test]
async fn a_cancelled_turn_is_saved_after_it_was_answered() {
    let scene = Scene::new();
    let mut program = scene.start(&[]);
    program.initialize(json!({})).await;
    let session = program.new_session(&scene.project()).await;
    assert_eq!(program.turn(&session, "say before").await, "end_turn");
    let turn = program.prompt(&session, "say begun\nwait 3600").await;
    program.until(|it| it["params"]["update"]["content"]["text"] == "begun").await;
    let database = rusqlite::Connection::open(database(&scene)).unwrap();
    database.execute_batch("BEGIN IMMEDIATE").unwrap();
    program.notify("session/cancel", json!({"sessionId": session})).await;
    assert_eq!(program.answer(turn).await["result"]["stopReason"], "cancelled");
    database.execute_batch("ROLLBACK").unwrap();
    assert_eq!(program.end().await, Some(0));
    assert_eq!(
        replay_in_another(&scene, &session).await,
        "> say before\n< before\n> say begun\nwait 3600\n< begun\n"
    );
}

/// A database that is rubbish is kept aside, and work goes on.
#[tokio::test]
async fn a_damaged_database_is_set_aside_and_said_to_be() {
    let rubbish: Vec<u8> =
        (0..40_000_u32).map(|number| (number.wrapping_mul(2_654_435_761) >> 13) as u8).collect();
    for (name, damage) in [("rubbish", Some(rubbish)), ("nothing", Some(Vec::new())), ("half", None)] {
        let scene = Scene::new();
        let mut program = scene.start(&[]);
        program.initialize(json!({})).await;
        let session = program.new_session(&scene.project()).await;
        program.turn(&session, "say before").await;
        assert_eq!(program.end().await, Some(0));
        let database = database(&scene);
        let bytes = damage.unwrap_or_else(|| {
            let mut bytes = std::fs::read(&database).unwrap();
            bytes.truncate(bytes.len() / 2 + 100);
            bytes
        });
        std::fs::write(&database, bytes).unwrap();
        // What the log of changes holds, it would mend.
        std::fs::remove_file(database.with_extension("db-wal")).unwrap_or_default();

        let log = scene.home().join("log");
        let mut program = scene.start(&["--log", log.to_str().unwrap()]);
        program.initialize(json!({})).await;
        program.call("session/list", json!({})).await;
        let fresh = program.new_session(&scene.project()).await;
        assert_eq!(program.turn(&fresh, "say fresh").await, "end_turn", "{name}");
        let listed = program.call("session/list", json!({})).await;
        let listed = listed["sessions"].as_array().unwrap();
        assert!(listed.iter().any(|it| it["sessionId"] == *fresh), "{name}: {listed:?}");
        // What could be saved of the old one is there, or it is said that it is not.
        let open = json!({"sessionId": session, "cwd": scene.project(), "mcpServers": []});
        let id = program.request("session/load", open).await;
        let answer = program.answer(id).await;
        let is_listed = listed.iter().any(|it| it["sessionId"] == *session);
        assert_eq!(answer.get("error").is_none(), is_listed, "{name}: {answer}");
        assert_eq!(program.end().await, Some(0));
        let log = std::fs::read_to_string(log).unwrap();
        assert!(log.contains("sessions.db"), "{name}: {log}");
        assert_eq!(replay_in_another(&scene, &fresh).await, "> say fresh\n< fresh\n", "{name}");
    }
}

async fn replay_in_another(scene: &Scene, session: &str) -> String {
    let mut program = scene.start(&[]);
    program.initialize(json!({})).await;
    replayed(&mut program, scene, session).await
}

fn database(scene: &Scene) -> PathBuf {
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
