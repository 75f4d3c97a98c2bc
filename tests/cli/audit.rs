//! Tests of `bowline audit`, on the log of real agents.

use std::fs;
use std::path::PathBuf;
use std::process::Stdio;

use expect_test::expect;

use crate::changes::normalize_times;
use crate::fixture::CliFixture;

impl CliFixture {
    fn audit_log_dir(&self) -> PathBuf {
        let files = fs::read_dir(self.journal_dir().join("audit")).unwrap();
        files.map(|file| file.unwrap().path()).max().unwrap()
    }

    /// Runs an audit command, and returns its output without parts that differ from run to run.
    fn run_audit(&self, arguments: &[&str]) -> String {
        let name = self.journal_dir().file_name().unwrap().to_str().unwrap().to_owned();
        let told = normalize_times(&self.run(&[&["audit"], arguments].concat())).replace(&name, "$NAME");
        let mut lines: Vec<String> = Vec::new();
        for line in told.lines() {
            let parts = line
                .split(" · ")
                .filter(|part| !part.ends_with(" µs") && !part.ends_with(" ms") && *part != "TIME");
            // A latency may be the last part before the session.
            let parts = parts.map(|part| match part.split_once(" (session") {
                Some((time, rest)) if time.ends_with("µs") || time.ends_with("ms") || time == "TIME" => {
                    format!("LATENCY (session{rest}")
                }
                _ => part.to_owned(),
            });
            lines.push(parts.collect::<Vec<_>>().join(" · "));
        }
        lines.join("\n") + "\n"
    }
}

fn fixture() -> CliFixture {
    let scene = CliFixture::new();
    scene.write_file("a.txt", "one\n");
    scene.write_file(".env", "KEY=1\n");
    // Questions are denied, because there is no user.
    scene.run(&["run", "--approve", "edits", "read a.txt\nwrite b.txt: hello\\n\nread .env"]);
    scene.run_next_turn("run exit 3");
    scene
}

#[test]
fn without_an_agent_there_is_no_log() {
    let scene = CliFixture::new();
    expect![[r#"
        $ bowline audit show
        --- stderr
        bowline: no agent has done anything in $PROJECT yet: there is no audit log
        --- 0
        $ bowline audit verify
        --- stderr
        bowline: no agent has done anything in $PROJECT yet: there is no audit log
        --- 0
        $ bowline audit show --since never
        --- stderr
        bowline: "never" is no time: write a date such as 2027-01-31 or 2027-01-31T12:00:00Z, or a span such as 30m, 2h, 7d
        --- 2
    "#]].assert_eq(&scene.run_all(&[
        &["audit", "show"],
        &["audit", "verify"],
        &["audit", "show", "--since", "never"],
    ]));
    assert!(!scene.home().join(".local").exists());
}

#[test]
fn requests_decisions_and_outcomes_are_listed() {
    let scene = fixture();
    expect![[r#"
            2 WHEN  allowed   turn/start (session $SHORT, turn 1)
            3 WHEN  allowed   fs/read a.txt · by preset: accept-edits · 4 bytes (session $SHORT, turn 1, call turn1_1)
            4 WHEN  failed    fs/read b.txt · by preset: accept-edits · resource not found: $PROJECT/b.txt (session $SHORT, turn 1, call turn1_2)
            6 WHEN  allowed   fs/write b.txt · by preset: accept-edits · 6 bytes (session $SHORT, turn 1, call turn1_2)
            7 WHEN  allowed   fs/read b.txt · by preset: accept-edits · 6 bytes (session $SHORT, turn 1, call turn1_2)
            8 WHEN  denied    fs/read .env · permission denied: no rule allows it, and the user cannot be asked (session $SHORT, turn 1, call turn1_3)
            9 WHEN  allowed   turn/end · EndTurn (session $SHORT, turn 1)
        --- 0
    "#]].assert_eq(&scene.run_audit(&["show", "--turn", "1"]));
    expect![[r#"
           13 WHEN  allowed   terminal/create `/bin/sh -c 'exit 3'` · by preset: full · LATENCY (session $SHORT, turn 2, call turn2_1)
        --- 0
    "#]].assert_eq(&scene.run_audit(&["show", "--kind", "terminal/create"]));
    expect![[r#"
            8 WHEN  denied    fs/read .env · permission denied: no rule allows it, and the user cannot be asked (session $SHORT, turn 1, call turn1_3)
        --- 0
    "#]].assert_eq(&scene.run_audit(&["show", "--denied"]));
    expect![[r#"
            2 WHEN  allowed   turn/start (session $SHORT, turn 1)
            9 WHEN  allowed   turn/end · EndTurn (session $SHORT, turn 1)
           12 WHEN  allowed   turn/start (session $SHORT, turn 2)
           16 WHEN  allowed   turn/end · EndTurn (session $SHORT, turn 2)
        --- 0
    "#]]
    .assert_eq(&scene.run_audit(&["show", "--kind", "turn", "--since", "1h"]));
    expect![[r#"
            3 WHEN  allowed   fs/read a.txt · by preset: accept-edits · 4 bytes (session $SHORT, turn 1, call turn1_1)
        --- 0
    "#]]
    .assert_eq(&scene.run_audit(&["show", "--path", "a.txt", "--turn", "1", "--last", "1"]));
    expect![[r#"
        {"entry":1,"at":"WHEN","principal":null,"session":"$SESSION","turn":null,"call":null,"kind":"session/start","subject":null,"decision":"allowed","by":"nobody","reason":null,"latency_us":null,"before":null,"after":null,"bytes":null,"exit":null}
        {"entry":11,"at":"WHEN","principal":null,"session":"$SESSION","turn":null,"call":null,"kind":"session/start","subject":null,"decision":"allowed","by":"nobody","reason":null,"latency_us":null,"before":null,"after":null,"bytes":null,"exit":null}
        --- 0
    "#]].assert_eq(&scene.run_audit(&["show", "--kind", "session/start", "--json"]));
    expect![[r#"
        --- 0
    "#]]
    .assert_eq(&scene.run_audit(&["show", "--session", "unknown"]));
    expect![[r#"
        --- 0
    "#]]
    .assert_eq(&scene.run_audit(&["show", "--since", "3000-01-01"]));
}

#[test]
fn an_undo_is_logged_as_the_users() {
    let scene = CliFixture::new();
    scene.run_agent("write b.txt: hello\\n");
    scene.run(&["undo"]);
    expect![[r#"
            9 WHEN  allowed   undo b.txt · by user
        --- 0
    "#]]
    .assert_eq(&scene.run_audit(&["show", "--kind", "undo"]));
    expect!["--- 0"].assert_eq(&scene.run_audit(&["verify"]).lines().skip(2).collect::<Vec<_>>().join("\n"));
}

#[test]
fn a_whole_log_verifies_and_a_changed_one_tells_where() {
    let scene = CliFixture::new();
    scene.run_agent("write b.txt: hello\\n");
    let log = scene.audit_log_dir();
    let text = fs::read_to_string(&log).unwrap();
    let lines: Vec<&str> = text.lines().collect();
    let ends = format!("{} entries in 1 file, 1 to {}\n--- 0\n", lines.len(), lines.len());
    assert!(
        scene.run_audit(&["verify"]).ends_with(&format!("whole: {ends}")),
        "{}",
        scene.run_audit(&["verify"])
    );

    let join = |lines: &[&str]| lines.join("\n") + "\n";
    let changed = lines[3].replacen("b.txt", "c.txt", 1);
    assert_ne!(changed, lines[3]);
    let mut moved = lines.clone();
    moved.swap(2, 3);
    for (what, forged, expected) in [
        (
            "changed",
            join(&[&lines[..3], &[changed.as_str()], &lines[4..]].concat()),
            expect![[r#"
                $HOME/.local/state/bowline/workspaces/$NAME/audit
                not as it was written: N-1 entries in 1 file, 1 to N
                  audit-00000001.jsonl:4: entry 4 was changed
                --- stderr
                bowline: the audit log is not as it was written: 1 fault
                --- 1
            "#]],
        ),
        (
            "removed",
            join(&[&lines[..2], &lines[3..]].concat()),
            expect![[r#"
            $HOME/.local/state/bowline/workspaces/$NAME/audit
            not as it was written: N-1 entries in 1 file, 1 to N
              audit-00000001.jsonl:3: entry 3 was removed before this line
            --- stderr
            bowline: the audit log is not as it was written: 1 fault
            --- 1
        "#]],
        ),
        (
            "reordered",
            join(&moved),
            expect![[r#"
            $HOME/.local/state/bowline/workspaces/$NAME/audit
            not as it was written: N entries in 1 file, 1 to N
              audit-00000001.jsonl:4: entry 3 was moved: it stands after entry 4
            --- stderr
            bowline: the audit log is not as it was written: 1 fault
            --- 1
        "#]],
        ),
        (
            "overwritten",
            join(&[&lines[..2], &["{}"], &lines[3..]].concat()),
            expect![[r#"
            $HOME/.local/state/bowline/workspaces/$NAME/audit
            not as it was written: N-1 entries in 1 file, 1 to N
              audit-00000001.jsonl:3: the line is not an entry: it was overwritten or put in
            --- stderr
            bowline: the audit log is not as it was written: 1 fault
            --- 1
        "#]],
        ),
    ] {
        fs::write(&log, forged).unwrap();
        let told = scene.run_audit(&["verify"]).replace(&format!(" {} ", lines.len()), " N ");
        expected.assert_eq(
            &told
                .replace(&format!("to {}", lines.len()), "to N")
                .replace(&format!(" {} entries", lines.len() - 1), " N-1 entries"),
        );
        let json = scene.run_audit(&["verify", "--json"]);
        assert!(json.contains(r#""intact":false"#) && json.ends_with("--- 1\n"), "{what}: {json}");
    }
    // Truncated at the end, which the anchor detects.
    fs::write(&log, join(&lines[..3])).unwrap();
    let told = scene.run_audit(&["verify"]);
    assert!(
        told.contains(&format!("entries 4 to {} were cut off the end, which the anchor knows", lines.len())),
        "{told}"
    );
    // A line torn by a crash is harmless.
    fs::write(&log, format!("{text}{{\"seq\":")).unwrap();
    let told = scene.run_audit(&["verify"]);
    assert!(told.contains("whole but for what a crash left") && told.ends_with("--- 0\n"), "{told}");
    // A missing log does not pass for an empty one.
    fs::remove_dir_all(scene.journal_dir().join("audit")).unwrap();
    let told = scene.run_audit(&["verify"]);
    assert!(told.contains("cut off the end") && told.ends_with("--- 1\n"), "{told}");
}

#[test]
fn a_reader_may_stop_early() {
    let scene = CliFixture::new();
    scene.run_agent("write b.txt: hello\\n");
    for arguments in [&["audit", "show"][..], &["audit", "show", "--json"], &["audit", "verify"]] {
        let mut child =
            scene.command(arguments).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
        drop(child.stdout.take());
        let output = child.wait_with_output().unwrap();
        assert_eq!((output.status.code(), String::from_utf8_lossy(&output.stderr).as_ref()), (Some(0), ""));
    }
}

#[test]
fn a_log_that_was_removed_is_missed_also_below_another_workspace() {
    let scene = fixture();
    scene.write_file("sub/a.txt", "one\n");
    let sub = scene.file_path("sub");
    scene.run(&["run", "--model", "offline", "--cwd", &sub, "read a.txt"]);
    let workspaces = scene.journal_dir().parent().unwrap().to_owned();
    let of_sub = fs::read_dir(workspaces).unwrap().map(|entry| entry.unwrap().path());
    let of_sub = of_sub.filter(|path| path.file_name().unwrap().to_str().unwrap().starts_with("sub-"));
    fs::remove_dir_all(of_sub.last().unwrap().join("audit")).unwrap();
    let told = scene.run(&["audit", "verify", "--cwd", &sub]);
    assert!(!told.contains("whole"), "{told}");
    assert!(told.ends_with("--- 1\n"), "{told}");
}
