//! `bowline completions`: the scripts do what shells want of them.

use std::process::Command;

use expect_test::expect;

use crate::program::{Scene, search_path};

/// Has bash complete a line, by the script alone.
fn complete(scene: &Scene, words: &[&str]) -> String {
    let script = scene.output(scene.command(&["completions", "bash"]), "").stdout;
    let words: Vec<String> = words.iter().map(|word| format!("'{word}'")).collect();
    let end = words.len() - 1;
    let asked = format!(
        "\nCOMP_WORDS=({}); COMP_CWORD={end}\n_bowline bowline \"${{COMP_WORDS[{end}]}}\" \"${{COMP_WORDS[{}]}}\"\nprintf '%s\\n' \"${{COMPREPLY[@]}}\"\n",
        words.join(" "),
        end - 1
    );
    let mut bash = Command::new("bash");
    bash.arg("--norc").env_clear().env("PATH", search_path());
    scene.told(&scene.output(bash, &(String::from_utf8(script).unwrap() + &asked)))
}

#[test]
fn bash_completes_commands_and_options() {
    let scene = Scene::new();
    let all = complete(&scene, &["bowline", ""]);
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
    .assert_eq(&complete(&scene, &["bowline", "un"]));
    expect![[r#"
        --dry-run
        --- 0
    "#]]
    .assert_eq(&complete(&scene, &["bowline", "undo", "--dr"]));
    expect![[r#"
        write
        --- 0
    "#]]
    .assert_eq(&complete(&scene, &["bowline", "policy", "explain", "wr"]));
    expect![[r#"
        markdown
        json
        replay
        --- 0
    "#]]
    .assert_eq(&complete(&scene, &["bowline", "sessions", "export", "--format", ""]));
}

#[test]
fn every_shell_has_a_script_without_what_is_hidden() {
    let scene = Scene::new();
    for shell in ["bash", "zsh", "fish", "elvish", "powershell"] {
        let output = scene.output(scene.command(&["completions", shell]), "");
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
