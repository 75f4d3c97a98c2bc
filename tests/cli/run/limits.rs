//! Tests of prompt attachments, and of how flags and presets limit them.

use super::{fixture, traced_params};
use crate::fixture::CliFixture;
use expect_test::expect;

/// Runs a prompt with a trace, and returns its output and what the agent was sent.
fn run_and_show_sent(scene: &CliFixture, arguments: &[&str], stdin: &str) -> String {
    let trace = scene.base().join("trace");
    std::fs::remove_file(&trace).ok();
    let told =
        scene.run_with_stdin(&[&["run", "--trace", trace.to_str().unwrap()], arguments].concat(), stdin);
    let prompt = &traced_params(scene, "client", "session/prompt")[0]["prompt"];
    format!("{told}{}\n", scene.normalize(&prompt.to_string()))
}

#[test]
fn what_is_piped_in_attaches_no_file_and_is_no_command() {
    let scene = fixture();
    scene.write_file(".env", "SECRET=hunter2\n");
    let piped = "+ please look at @.env and @a.txt\n";
    let told = run_and_show_sent(&scene, &["--read-only", "say Review @a.txt:", "-"], piped);
    expect![[r#"
        I did nothing: line 3 is no command that I know.

        I see what is attached, but I do not know what to do with it: `read PATH` shows a file, and pictures I cannot look at.

        I am the offline model: no network, no key, no guessing. I do what plain commands say, one per line, in order:

        - `read PATH` or `read PATH lines 10-20`; `@PATH` alone reads it, too
        - `write PATH: TEXT` (`\n` begins a new line; or put a fenced block below `write PATH:`)
        - `replace "OLD" with "NEW" in PATH`, or `replace all "OLD" …` for every place
        - `run COMMAND`
        - `list` or `list DIR`
        - `find TEXT`
        - `plan: first; second; third`
        - `think TEXT` and `say TEXT`
        - `wait SECONDS` and `stream N`
        - `call TOOL {"json": "input"}` for any tool, as it is

        For a model that understands more, set a key such as `ANTHROPIC_API_KEY`, or choose a local one with `ollama/NAME`.
        --- stderr
        bowline: attached a.txt, 8 bytes
        --- 0
        [{"type":"text","text":"say Review @a.txt:\n\n+ please look at @.env and @a.txt\n"},{"type":"resource","resource":{"text":"one\ntwo\n","uri":"file://$PROJECT/a.txt"}}]
    "#]].assert_eq(&told);
    expect![[r#"
        I did nothing: line 1 is no command that I know.

        I am the offline model: no network, no key, no guessing. I do what plain commands say, one per line, in order:

        - `read PATH` or `read PATH lines 10-20`; `@PATH` alone reads it, too
        - `write PATH: TEXT` (`\n` begins a new line; or put a fenced block below `write PATH:`)
        - `replace "OLD" with "NEW" in PATH`, or `replace all "OLD" …` for every place
        - `run COMMAND`
        - `list` or `list DIR`
        - `find TEXT`
        - `plan: first; second; third`
        - `think TEXT` and `say TEXT`
        - `wait SECONDS` and `stream N`
        - `call TOOL {"json": "input"}` for any tool, as it is

        For a model that understands more, set a key such as `ANTHROPIC_API_KEY`, or choose a local one with `ollama/NAME`.
        --- 0
        [{"type":"text","text":"What follows was read from a file or a pipe:\n\n/mode full\n"}]
    "#]].assert_eq(&run_and_show_sent(&scene, &["-"], "/mode full\n"));
}

#[test]
fn a_secret_that_is_mentioned_is_not_attached() {
    let scene = fixture();
    scene.write_file(".env", "SECRET=hunter2\n");
    expect![[r#"
        @.env
        --- stderr
        bowline: .env is not attached: it holds secrets; only a rule that names it allows it
        bowline: denied: read .env: the user cannot be asked; no flag allows it, but `bowline policy allow read .env` does; to change it takes `bowline policy allow write .env` as well
        --- 5
        [{"type":"text","text":"say @.env"},{"type":"resource_link","name":".env","size":15,"uri":"file://$PROJECT/.env"}]
    "#]].assert_eq(&run_and_show_sent(&scene, &["--approve", "all", "say @.env"], ""));
    scene.run(&["policy", "allow", "read", ".env"]);
    expect![[r#"
        @.env
        --- stderr
        bowline: attached .env, 15 bytes
        --- 0
        [{"type":"text","text":"say @.env"},{"type":"resource","resource":{"text":"SECRET=hunter2\n","uri":"file://$PROJECT/.env"}}]
    "#]].assert_eq(&run_and_show_sent(&scene, &["--approve", "none", "say @.env"], ""));
    scene.run(&["policy", "deny", "read", "a.txt"]);
    expect![[r#"
        @a.txt
        --- stderr
        bowline: a.txt is not attached: rule 2 of $HOME/.config/bowline/policy.toml for this workspace (deny read: path `a.txt`)
        --- 0
        [{"type":"text","text":"say @a.txt"}]
    "#]].assert_eq(&run_and_show_sent(&scene, &["--approve", "all", "say @a.txt"], ""));
    let log = scene.run(&["audit", "show", "--json"]);
    let persons = log.lines().filter(|line| line.contains("mentioned in a prompt")).count();
    assert_eq!(persons, 1, "{log}");
}

#[test]
fn a_preset_that_refuses_is_not_loosened_by_a_flag() {
    let scene = fixture();
    scene.run(&["policy", "preset", "deny"]);
    expect![[r#"
        Writing `z.txt` did not work:

        ```
        nothing was written: z.txt: permission denied: the user's settings deny it
        ```
        --- stderr
        bowline: denied: read z.txt: by the preset deny; no flag allows it, but `bowline policy allow read z.txt` does; to change it takes `bowline policy allow write z.txt` as well
        --- 5
    "#]]
    .assert_eq(&scene.run(&["run", "--format", "quiet", "--approve", "all", "write z.txt: 1"]));
    let path = scene.file_path("z.txt");
    let turn = format!(
        "read -r line\nprintf '%s\\n' '{{\"jsonrpc\":\"2.0\",\"id\":\"w\",\"method\":\"fs/write_text_file\",\"params\":{{\"sessionId\":\"s1\",\"path\":\"{path}\",\"content\":\"1\"}}}}'\nread -r answer\n{}",
        super::scripted_agents::script_stop("end_turn")
    );
    let other = super::scripted_agents::scripted_agent(&scene, &turn);
    expect![[r#"
        --- stderr
        bowline: denied: write z.txt: by the preset deny; no flag allows it, but `bowline policy allow write z.txt` does
        --- 5
    "#]].assert_eq(&scene.run(&["run", "--approve", "all", "--agent", &other, "go"]));
    assert!(!scene.has_file("z.txt"));
    scene.run(&["policy", "preset", "ask"]);
    scene.run(&["run", "--approve", "all", "--agent", &other, "go"]);
    assert!(scene.has_file("z.txt"));
}

#[test]
fn who_may_not_write_does_not_take_back() {
    let scene = fixture();
    scene.run(&["run", "--approve", "all", "--no-fs", "--mode", "full", "write n.txt: 1"]);
    assert!(scene.has_file("n.txt"));
    expect![[r#"
        Nothing was taken back: this session is held to read-only. `bowline undo` in a terminal does it.
        --- 0
    "#]]
    .assert_eq(&scene.run(&["run", "--session", "last", "--read-only", "/undo"]));
    assert!(scene.has_file("n.txt"));
}

#[test]
fn a_change_of_mode_is_a_change() {
    use std::os::unix::fs::PermissionsExt as _;
    let scene = fixture();
    let path = scene.project().join("a.txt");
    std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o644)).unwrap();
    let told = scene.run(&["run", "--approve", "all", "run chmod +x a.txt"]);
    let summary = told.split_once("Changed").map_or("", |(_, summary)| summary);
    expect![[r#"
         1 file:
          a.txt  +0 −0 (mode 755, was 644) (after a command)
        To undo: bowline undo
        --- 0
    "#]]
    .assert_eq(summary);
}

#[test]
fn a_session_is_named_by_the_beginning_of_its_id_and_never_by_nothing() {
    let scene = fixture();
    scene.run(&["run", "say one"]);
    let listed = scene.run_command(scene.command(&["sessions", "list", "--json"]), "");
    let listed: serde_json::Value = serde_json::from_slice(&listed.stdout).unwrap();
    let id = listed["id"].as_str().unwrap().to_owned();
    assert!(scene.run(&["run", "--session", &id[..8], "say two"]).ends_with("--- 0\n"));
    let mut told = String::new();
    for arguments in [
        &["run", "--session", "", "say x"][..],
        &["undo", "--session", ""],
        &["undo", "--call", ""],
        &["sessions", "delete", "", "--yes"],
    ] {
        told += &scene.run(arguments);
    }
    expect![[r#"
        --- stderr
        bowline: the session id is empty: write one, `last`, or leave out --session
        --- 2
        --- stderr
        bowline: the session id is empty: write one, or leave the option out
        --- 2
        --- stderr
        bowline: the tool call id is empty: write one, or leave the option out
        --- 2
        --- stderr
        bowline: the session id is empty: write one, or leave the option out
        --- 2
    "#]]
    .assert_eq(&told);
}
