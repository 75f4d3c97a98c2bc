//! Tests of the signals that the system sends for a write: past a file size limit, and to a closed pipe.

use std::process::{Command, Stdio};

use expect_test::expect;

use crate::fixture::{CliFixture, search_path, write_script};

/// Returns the program under a file size limit, in blocks of 512 bytes.
fn command_with_file_limit(scene: &CliFixture, blocks: u32, arguments: &[&str]) -> Command {
    let program = scene.command(arguments);
    let mut command = Command::new("/bin/sh");
    command.args(["-c", r#"ulimit -f "$0"; exec "$@""#, &blocks.to_string()]);
    command.arg(program.get_program()).args(program.get_args());
    command.current_dir(scene.project()).env_clear().env("HOME", scene.home()).env("PATH", search_path());
    command
}

/// Runs the program without a limit, which must succeed.
fn run_successfully(scene: &CliFixture, arguments: &[&str]) -> String {
    let told = scene.run(arguments);
    assert!(told.ends_with("--- 0\n"), "{arguments:?}: {told}");
    told
}

#[test]
fn a_limit_of_file_sizes_fails_a_write_and_not_the_program() {
    // Text that hardly compresses, so that the journal reaches the limit as well.
    let mut number = 1_u64;
    let text: String = (0..100_000)
        .map(|_| {
            number = number.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            char::from(b'a' + (number >> 60) as u8)
        })
        .collect();
    for blocks in [0, 1, 16, 64, 150, 250, 400, 1000, 100_000] {
        let scene = CliFixture::new();
        scene.write_file("a.txt", "one\n");
        let prompt = format!("write a.txt: {text}");
        let output = scene.run_command(
            command_with_file_limit(&scene, blocks, &["run", "--approve", "edits", &prompt]),
            "",
        );
        let told = scene.describe_output(&output);
        assert!(output.status.code().is_some_and(|code| code <= 5), "{blocks}: {told}");
        let written = scene.read_file("a.txt");
        assert!(written == "one\n" || written == text, "{blocks}: the file was written in part");
        assert!(blocks < 100_000 || written == text, "{told}");
        // The files left behind are intact and usable.
        run_successfully(&scene, &["run", "--approve", "edits", "write b.txt: b"]);
        run_successfully(&scene, &["audit", "verify"]);
        let changes = run_successfully(&scene, &["changes"]);
        assert_eq!(changes.contains("a.txt"), written == text, "{blocks}: {changes}");
    }
}

#[test]
fn results_past_a_limit_of_file_sizes_are_an_error() {
    let scene = CliFixture::new();
    let mut table = String::new();
    for arguments in [&["--help"][..], &["completions", "bash"], &["changes", "--help"]] {
        let file = std::fs::File::create(scene.base().join("results")).unwrap();
        let mut command = command_with_file_limit(&scene, 0, arguments);
        let output = command.stdout(file).stderr(Stdio::piped()).output().unwrap();
        table += &format!("{} {}", output.status, String::from_utf8_lossy(&output.stderr));
    }
    expect![[r#"
        exit status: 1 bowline: cannot write the results: File too large (os error 27)
        exit status: 1 bowline: cannot write the results: File too large (os error 27)
        exit status: 1 bowline: cannot write the results: File too large (os error 27)
    "#]]
    .assert_eq(&table);
}

#[test]
fn a_closed_pipe_causes_no_panic() {
    let scene = CliFixture::new();
    scene.write_file("a.txt", "one\n");
    run_successfully(&scene, &["run", "--approve", "edits", "write a.txt: two"]);
    // Neither stdout nor stderr is read.
    let status = |arguments: &[&str]| {
        let (_, writer) = std::io::pipe().unwrap();
        let mut command = scene.command(arguments);
        command.stdin(Stdio::null()).stdout(writer.try_clone().unwrap()).stderr(writer);
        command.status().unwrap()
    };
    // A turn whose output is closed is cancelled, unless it has already ended.
    let turn = status(&["run", "--approve", "edits", "write a.txt: three"]);
    assert!(turn.code().is_some_and(|code| code <= 1), "{turn}");
    let mut table = String::new();
    for arguments in [
        &["changes"][..],
        &["changes", "--nonsense"],
        &["diff"],
        &["audit"],
        &["audit", "verify"],
        &["policy"],
        &["sessions"],
        &["--help"],
        &["completions", "bash"],
        &["undo"],
    ] {
        table += &format!("{} {}\n", status(arguments), arguments.join(" "));
    }
    expect![[r#"
        exit status: 0 changes
        exit status: 2 changes --nonsense
        exit status: 0 diff
        exit status: 0 audit
        exit status: 0 audit verify
        exit status: 0 policy
        exit status: 0 sessions
        exit status: 0 --help
        exit status: 0 completions bash
        exit status: 0 undo
    "#]]
    .assert_eq(&table);
}

/// Returns the blocked, ignored and caught signals in a process's status.
fn signal_dispositions(status: &str) -> String {
    let lines = status
        .lines()
        .filter(|line| ["SigBlk:", "SigIgn:", "SigCgt:"].iter().any(|kind| line.starts_with(kind)));
    lines.map(|line| format!("{line}\n")).collect()
}

#[test]
fn programs_that_are_started_have_the_default_of_every_signal() {
    let scene = CliFixture::new();
    let look = "cat /proc/self/status";
    run_successfully(&scene, &["run", "--approve", "all", &format!("run {look} > command.txt")]);
    let agent = write_script(&scene.base(), "agent.sh", &format!("#!/bin/sh\n{look} > agent.txt\n"));
    scene.run(&["run", "--agent", &agent, "hello"]);
    // The same as for processes started from here.
    let direct = Command::new("cat").arg("/proc/self/status").output().unwrap();
    let direct = signal_dispositions(&String::from_utf8(direct.stdout).unwrap());
    assert_eq!(signal_dispositions(&scene.read_file("command.txt")), direct);
    assert_eq!(signal_dispositions(&scene.read_file("agent.txt")), direct);
}
