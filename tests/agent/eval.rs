//! The tasks of `cargo xtask eval`, solved by hand: the checks that judge models must themselves be right.

use std::process::Command;

use expect_test::expect;

use crate::program::bowline_path;
use crate::programs::{build_program, run, transcript, workspace_root};

#[test]
fn every_task_is_solved_by_hand() {
    let eval = build_program("eval", &["build", "-p", "bowline-benches", "--bin", "eval"]);
    let mut command = Command::new(eval);
    command
        .arg("--agent")
        .arg(bowline_path())
        .args(["--model", "offline", "--seed", "1"])
        .current_dir(workspace_root());
    let output = run(&mut command);
    assert!(output.status.success(), "{}", transcript(&output));
    let stdout = String::from_utf8(output.stdout).unwrap();
    // Everything except the duration.
    let row = |line: &str| {
        let mut words: Vec<&str> = line.split_whitespace().collect();
        words.remove(2);
        words.join(" ") + "\n"
    };
    let lines: Vec<&str> = stdout.lines().collect();
    let (summary, table) = lines.split_last().unwrap();
    let told: String = table.iter().skip(1).map(|line| row(line)).collect();
    expect![[r#"
        answer tuning 1 solved
        answer-json held-out 1 solved
        count tuning 1 solved
        unsaved tuning 1 solved
        unsaved-version held-out 1 solved
        run tuning 1 solved
        run-arguments held-out 1 solved
        find tuning 1 solved
        find-message held-out 1 solved
        list tuning 1 solved
        write tuning 1 solved
        write-nested held-out 1 solved
        write-json tuning 1 solved
        edit tuning 1 solved
        edit-section held-out 1 solved
        insert tuning 1 solved
        remove held-out 1 solved
        append tuning 1 solved
        copy tuning 1 solved
        fix-operator tuning 4 solved
        fix-name held-out 1 solved
        fix-message tuning 3 solved
        rename tuning 4 solved
        rename-key tuning 2 solved
    "#]]
    .assert_eq(&told);
    let summary: serde_json::Value = serde_json::from_str(summary).unwrap();
    assert_eq!((&summary["solved"], &summary["tasks"]), (&24.into(), &24.into()));
}
