//! Tests of `bowline completions`: the scripts work in their shells.

use std::process::Command;

use expect_test::expect;

use crate::fixture::{CliFixture, search_path};

/// Has bash complete a line, using only the script.
fn complete_in_bash(scene: &CliFixture, words: &[&str]) -> String {
    let script = scene.run_command(scene.command(&["completions", "bash"]), "").stdout;
    let words: Vec<String> = words.iter().map(|word| format!("'{word}'")).collect();
    let end = words.len() - 1;
    let asked = format!(
        "\nCOMP_WORDS=({}); COMP_CWORD={end}\n_bowline bowline \"${{COMP_WORDS[{end}]}}\" \"${{COMP_WORDS[{}]}}\"\nprintf '%s\\n' \"${{COMPREPLY[@]}}\"\n",
        words.join(" "),
        end - 1
    );
    let mut bash = Command::new("bash");
    bash.arg("--norc").env_clear().env("PATH", search_path());
    scene.describe_output(&scene.run_command(bash, &(String::from_utf8(script).unwrap() + &asked)))
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
    assert!(!all.contains("__"), "{all}");
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
fn every_shell_has_a_script_without_what_is_hidden() {
    let scene = CliFixture::new();
    for shell in ["bash", "zsh", "fish", "elvish", "powershell"] {
        let output = scene.run_command(scene.command(&["completions", shell]), "");
        let script = String::from_utf8(output.stdout).unwrap();
        assert!(
            output.status.success() && script.contains("sessions") && script.contains("keep-going"),
            "{shell}"
        );
        for hidden in ["demo-agent", "supervisor"] {
            assert!(!script.contains(hidden), "{shell} offers {hidden}");
        }
    }
    expect![[r#"
        --- stderr
        bowline: invalid value 'tcsh' for '<SHELL>' [possible values: bash, elvish, fish, powershell, zsh]; a similar value exists: 'zsh'; --help tells more
        --- 2
    "#]]
    .assert_eq(&scene.run(&["completions", "tcsh"]));
}
