//! The audit log of an agent's operations: written before the response, with the decision's author, and required for
//! every operation.

use bowline_access::audit::{AuditFilter, read_entries};
use bowline_policy::audit::AuditRecord;
use bowline_policy::policy::Preset;
use bowline_wire::schema::v1::StopReason;
use expect_test::expect;
use serde_json::json;
use test_support::host_harness::HostHarness;

use super::host_fixture::HostFixture;

#[tokio::test]
async fn every_operation_is_logged_with_who_decided() {
    let stage = HostFixture::new().with_file("a.txt", "a\n").with_answers(&["yes", "yes", "no", "yes"]);
    stage.lab.write_rules("[[rules]]\neffect = \"deny\"\ncommand = \"rm\"\n").unwrap();
    stage
        .play_turns(&[r#"
            read a.txt
            read missing
            read /etc/passwd
            ask {"toolCallId":"c1","title":"Run","kind":"execute","rawInput":{"command":"echo hi"}}
            run echo hi
            write a.txt b\n
            write a.txt c\n
            run rm a.txt
            run exit 3
            run true
        "#])
        .await;
    // The exit of a command and the release of its terminal are logged in either order.
    let all = stage.audit_table();
    let is_exit = |line: &&str| line.starts_with("terminal/exit");
    let log: Vec<&str> =
        all.lines().filter(|line| !is_exit(line) && !line.starts_with("terminal/release")).collect();
    expect![[r#"
        session/start: allowed by nobody
        turn/start turn 1: allowed by nobody
        fs/read $ROOT/a.txt turn 1: allowed by preset: ask
        fs/read $ROOT/missing turn 1: failed by preset: ask (resource not found: $ROOT/missing)
        fs/read /etc/passwd turn 1: denied by nobody (/etc/passwd is outside the session's directories)
        permission Command { line: "echo hi", cwd: "$ROOT", env: [] } turn 1 call c1: allowed by person
        terminal/create Command { line: "echo hi", cwd: "$ROOT", env: [] } turn 1 call c1: allowed by grant
        fs/write $ROOT/a.txt turn 1: allowed by person (begins)
        fs/write $ROOT/a.txt turn 1: allowed by person
        fs/write $ROOT/a.txt turn 1: denied by person (permission denied: the user said no)
        terminal/create Command { line: "rm a.txt", cwd: "$ROOT", env: [] } turn 1: denied by rule: `rm a.txt`: rule 1 of $BASE/config/policy.toml (deny execute: command `rm`) (permission denied: a rule of the user's denies it)
        terminal/create Command { line: "exit 3", cwd: "$ROOT", env: [] } turn 1: allowed by person
        terminal/create Command { line: "true", cwd: "$ROOT", env: [] } turn 1: denied by nobody (permission denied: no rule allows it, and the user cannot be asked)
        turn/end turn 1: allowed by nobody (EndTurn)
        session/end: allowed by nobody"#]]
    .assert_eq(&log.join("\n"));
    let exits: Vec<&str> = all.lines().filter(is_exit).collect();
    expect![[r#"
        terminal/exit Command { line: "echo hi", cwd: "$ROOT", env: [] } turn 1 call c1: allowed by grant exit 0
        terminal/exit Command { line: "exit 3", cwd: "$ROOT", env: [] } turn 1: allowed by person exit 3"#]]
    .assert_eq(&exits.join("\n"));
}

#[tokio::test]
async fn the_log_has_an_operation_before_the_agent_has_its_answer() {
    let stage =
        HostFixture::with_options(|settings| settings.preset = Some(Preset::Full)).with_file("a.txt", "a\n");
    let directory = stage.lab.audit_paths().0;
    let text = stage
        .play_custom_turn(move |actor| async move {
            let last = |action: &str| {
                let filter = AuditFilter { operation: Some(action.to_owned()), ..AuditFilter::default() };
                let entries = read_entries(&directory, filter).unwrap();
                let records: Vec<AuditRecord> = entries.collect::<Result<_, _>>().unwrap();
                format!("{} entries, the last: {}", records.len(), records.last().unwrap().entry.decision)
            };
            let form = json!({
                "mode": "form", "message": "m",
                "requestedSchema": {"type": "object", "properties": {}},
            });
            let asking = json!({"toolCall": {"toolCallId": "c1"}, "options": []});
            for (method, action, params) in [
                ("fs/read_text_file", "fs/read", json!({"path": "$ROOT/a.txt"})),
                ("fs/read_text_file", "fs/read", json!({"path": "$ROOT/none"})),
                ("fs/write_text_file", "fs/write", json!({"path": "$ROOT/a.txt", "content": "b"})),
                ("fs/write_text_file", "fs/write", json!({"path": "/etc/passwd", "content": "b"})),
                ("session/request_permission", "permission", asking),
                ("terminal/create", "terminal/create", json!({"command": "sleep 1000"})),
                ("terminal/kill", "terminal/kill", json!({"terminalId": "$T"})),
                ("terminal/release", "terminal/release", json!({"terminalId": "$T"})),
                ("terminal/release", "terminal/release", json!({"terminalId": "$T"})),
                ("elicitation/create", "elicitation", form),
            ] {
                if method == "terminal/create" {
                    actor.create_terminal(params).await.unwrap();
                } else if let Err(error) = actor.call(method, params).await {
                    actor.record(&format!("! {}", i32::from(error.code)));
                }
                actor.record(&format!("{method}: {}", last(action)));
            }
            StopReason::EndTurn
        })
        .await;
    expect![[r#"
        fs/read_text_file: 1 entries, the last: allowed
        ! -32002
        fs/read_text_file: 2 entries, the last: failed
        fs/write_text_file: 2 entries, the last: allowed
        ! -32602
        fs/write_text_file: 3 entries, the last: denied
        session/request_permission: 1 entries, the last: denied
        terminal/create: 1 entries, the last: allowed
        terminal/kill: 1 entries, the last: allowed
        terminal/release: 1 entries, the last: allowed
        ! -32002
        terminal/release: 2 entries, the last: failed
        elicitation/create: 1 entries, the last: cancelled
    "#]]
    .assert_eq(&text);
}

#[tokio::test]
async fn secrets_are_not_in_the_log() {
    let stage = HostFixture::with_options(|settings| settings.preset = Some(Preset::Full))
        .with_answers(&["yes", "yes", "yes", "yes"]);
    let stage = stage.with_file(".env", "KEY=hunter2hunter2\n");
    let token = format!("ghp_{}", "a1B2c3D4".repeat(5));
    let script = format!(
        r#"
        read .env
        run echo {token}
        run curl -H "Authorization: Bearer {token}" http://127.0.0.1:1/
        call terminal/create {{"command":"true","env":[{{"name":"MY_TOKEN","value":"{token}"}}]}}
        ask {{"toolCallId":"c1","title":"Use {token}","kind":"other"}}
        write b.txt hunter2hunter2
        "#
    );
    stage.play_turns(&[&script]).await;
    let (directory, _) = stage.lab.audit_paths();
    for file in std::fs::read_dir(directory).unwrap() {
        let text = std::fs::read_to_string(file.unwrap().path()).unwrap_or_default();
        assert!(!text.contains(&token) && !text.contains("hunter2"), "{text}");
    }
}

/// Replaces the log's directory with a file, so that nothing can be appended.
fn break_log(lab: &HostHarness) {
    let (directory, _) = lab.audit_paths();
    std::fs::remove_dir_all(&directory).unwrap();
    std::fs::write(&directory, "no directory").unwrap();
}

#[tokio::test]
async fn no_turn_begins_without_a_log() {
    let mut stage = HostFixture::with_options(|settings| settings.preset = Some(Preset::Full));
    stage.log_is_broken = true;
    let (connection, session) = stage.open_session(vec![stage.scripted_turn("run true")]).await;
    break_log(&stage.lab);
    let failed = session.prompt_text("go").await.unwrap_err().to_string();
    drop(connection);
    assert_eq!(stage.take_text(), "");
    expect!["cannot list $BASE/state/workspaces/$WORKSPACE/audit, and nothing may be done that is not logged: Not a directory (os error 20)"].assert_eq(&stage.normalize(&failed));
}

#[tokio::test]
async fn without_a_log_nothing_is_done() {
    for gone in ["log", "anchor"] {
        let mut stage = HostFixture::with_options(|settings| settings.preset = Some(Preset::Full))
            .with_file("a.txt", "a\n");
        stage.log_is_broken = true;
        let script = r#"
            read a.txt
            write a.txt b
            run touch ran
            ask {"toolCallId":"c1","title":"Run","kind":"execute","rawInput":{"command":"true"}}
            call elicitation/create {"mode":"form","message":"m","requestedSchema":{"type":"object","properties":{}}}
            "#;
        let (begun, has_begun) = tokio::sync::oneshot::channel();
        let (broken, is_broken) = tokio::sync::oneshot::channel();
        let act = stage.custom_turn(move |actor| async move {
            begun.send(()).unwrap();
            is_broken.await.unwrap();
            actor.play_script(script).await;
            StopReason::EndTurn
        });
        let (connection, session) = stage.open_session(vec![act]).await;
        let breaking = async {
            has_begun.await.unwrap();
            match gone {
                "log" => break_log(&stage.lab),
                _ => std::fs::remove_file(stage.lab.audit_paths().1).unwrap(),
            }
            broken.send(()).unwrap();
        };
        let (ended, ()) = tokio::join!(session.prompt_text("go"), breaking);
        drop(connection);
        assert_eq!(stage.lab.read_file("a.txt").unwrap(), "a\n");
        assert!(stage.lab.read_file("ran").is_err());
        stage.seen.add(&format!("the turn: {}", ended.unwrap_err()));
        let expected = match gone {
            "log" => expect![[r#"
                > read a.txt
                ! -32603 the audit log cannot be written, so nothing is done
                > write a.txt b
                ! -32603 the audit log cannot be written, so nothing is done
                > run touch ran
                ! -32603 the audit log cannot be written, so nothing is done
                > ask {"toolCallId":"c1","title":"Run","kind":"execute","rawInput":{"command":"true"}}
                ! -32603 the audit log cannot be written, so nothing is done
                > call elicitation/create {"mode":"form","message":"m","requestedSchema":{"type":"object","properties":{}}}
                ! -32603 the audit log cannot be written, so nothing is done
                the turn: cannot list $BASE/state/workspaces/$WORKSPACE/audit, and nothing may be done that is not logged: Not a directory (os error 20)
            "#]],
            _ => expect![[r#"
                > read a.txt
                ! -32603 the audit log cannot be written, so nothing is done
                > write a.txt b
                ! -32603 the audit log cannot be written, so nothing is done
                > run touch ran
                ! -32603 the audit log cannot be written, so nothing is done
                > ask {"toolCallId":"c1","title":"Run","kind":"execute","rawInput":{"command":"true"}}
                ! -32603 the audit log cannot be written, so nothing is done
                > call elicitation/create {"mode":"form","message":"m","requestedSchema":{"type":"object","properties":{}}}
                ! -32603 the audit log cannot be written, so nothing is done
                the turn: the anchor $BASE/anchors/$WORKSPACE was moved or removed while the audit log was in use: open the log again
            "#]],
        };
        expected.assert_eq(&stage.take_text());
    }
}
