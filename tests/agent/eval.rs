//! The tasks of `cargo xtask eval`, solved by hand: what judges models must itself be right.

use std::process::Command;

use expect_test::expect;

use crate::program::bowline;
use crate::programs::{program, root, run, transcript};

#[test]
fn every_task_is_solved_by_hand() {
    let eval = program("eval", &["build", "-p", "bowline-benches", "--bin", "eval"]);
    let mut command = Command::new(eval);
    command.arg("--agent").arg(bowline()).args(["--model", "offline", "--seed", "1"]).current_dir(root());
    let output = run(&mut command);
    assert!(output.status.success(), "{}", transcript(&output));
    let stdout = String::from_utf8(output.stdout).unwrap();
    // All but how long it took.
    let row = |line: &str| {
        let mut words: Vec<&str> = line.split_whitespace().collect();
        words.remove(2);
        words.join(" ") + "\n"
    };
    let lines: Vec<&str> = stdout.lines().collect();
    let (summary, table) = lines.split_last().unwrap();
    let told: String = table.iter().skip(1).map(|line| row(line)).collect();
    expect![[r#"
        answer 1 solved
        unsaved 2 solved
        run 1 solved
        find 1 solved
        write 1 solved
        edit 1 solved
        fix 4 solved
        rename 4 solved
    "#]]
    .assert_eq(&told);
    let summary: serde_json::Value = serde_json::from_str(summary).unwrap();
    assert_eq!((&summary["solved"], &summary["tasks"]), (&24.into(), &24.into()));
}
