//! Tests of `bowline completions`: the scripts work in their shells, and know the records of the workspace.

use std::ffi::OsString;
use std::process::Command;

use expect_test::expect;

use crate::fixture::{CliFixture, bowline, search_path};

/// Has bash complete a line in the project, using only the script and the program in PATH.
fn complete_in_bash(scene: &CliFixture, words: &[&str]) -> String {
    let script = scene.run_command(scene.command(&["completions", "bash"]), "").stdout;
    let words: Vec<String> = words.iter().map(|word| format!("'{word}'")).collect();
    let end = words.len() - 1;
    let request = format!(
        "\nCOMP_WORDS=({}); COMP_CWORD={end}; COMP_TYPE=9\n_clap_complete_bowline bowline \"${{COMP_WORDS[{end}]}}\" \"${{COMP_WORDS[{}]}}\"\nprintf '%s\\n' \"${{COMPREPLY[@]}}\"\n",
        words.join(" "),
        end - 1
    );
    let mut path = OsString::from(bowline().parent().unwrap());
    path.push(":");
    path.push(search_path());
    let mut bash = Command::new("bash");
    bash.arg("--norc").current_dir(scene.project()).env_clear();
    bash.env("HOME", scene.home()).env("PATH", path);
    scene.describe_output(&scene.run_command(bash, &(String::from_utf8(script).unwrap() + &request)))
}

#[test]
fn bash_completes_commands_and_options() {
    let scene = CliFixture::new();
    let all = complete_in_bash(&scene, &["bowline", ""]);
    for command in
        ["demo", "run", "chat", "agent", "changes", "diff", "undo", "redo", "sessions", "audit", "policy"]
    {
        assert!(all.lines().any(|line| line == command), "{all}");
    }
    assert!(!all.contains("__") && !all.contains("mcp-bridge"), "{all}");
    expect![[r#"
        undo
        --- 0
    "#]]
    .assert_eq(&complete_in_bash(&scene, &["bowline", "un"]));
    expect![[r#"
        --dry-run
        --- 0
    "#]]
    .assert_eq(&complete_in_bash(&scene, &["bowline", "undo", "--dr"]));
    expect![[r#"
        write
        --- 0
    "#]]
    .assert_eq(&complete_in_bash(&scene, &["bowline", "policy", "explain", "wr"]));
    expect![[r#"
        markdown
        json
        replay
        --- 0
    "#]]
    .assert_eq(&complete_in_bash(&scene, &["bowline", "sessions", "export", "--format", ""]));
}

#[test]
fn bash_completes_sessions_changes_rules_and_agents() {
    let scene = CliFixture::new();
    scene.write_file("notes.txt", "one\n");
    let none = complete_in_bash(&scene, &["bowline", "undo", "--change", ""]);
    assert_eq!(none, "\n--- 0\n", "a workspace without records");
    scene.run(&["run", "--approve", "edits", "write notes.txt two"]);
    scene.run(&["policy", "allow", "execute", "make", "test"]);
    std::fs::create_dir_all(scene.config_dir()).unwrap();
    std::fs::write(scene.config_dir().join("config.toml"), "[agents.fancy]\ncommand = \"fancy --acp\"\n")
        .unwrap();
    expect![[r#"

        --- 0
    "#]]
    .assert_eq(&complete_in_bash(&scene, &["bowline", "undo", "--change", ""]));
    expect![[r#"

        --- 0
    "#]]
    .assert_eq(&complete_in_bash(&scene, &["bowline", "diff", "--session", ""]));
    expect![[r#"
        last
        $SESSION
        --cwd
        --full
        --json
        --help
        --- 0
    "#]]
    .assert_eq(&complete_in_bash(&scene, &["bowline", "sessions", "show", ""]));
    expect![[r#"
        1
        --cwd
        --help
        --- 0
    "#]]
    .assert_eq(&complete_in_bash(&scene, &["bowline", "policy", "forget", ""]));
    expect![[r#"
        fancy
        --- 0
    "#]]
    .assert_eq(&complete_in_bash(&scene, &["bowline", "chat", "--agent", "fa"]));
}

#[test]
fn every_shell_has_a_script() {
    let scene = CliFixture::new();
    for shell in ["bash", "zsh", "fish", "elvish", "powershell"] {
        let output = scene.run_command(scene.command(&["completions", shell]), "");
        let script = String::from_utf8(output.stdout).unwrap();
        assert!(output.status.success() && script.contains("BOWLINE_COMPLETE"), "{shell}: {script}");
    }
    expect![[r#"
        --- stderr
        bowline: invalid value 'tcsh' for '<SHELL>' [possible values: bash, elvish, fish, powershell, zsh]; a similar value exists: 'zsh' (see --help)
        --- 2
    "#]]
    .assert_eq(&scene.run(&["completions", "tcsh"]));
}
