//! Tests of what an agent may do without asking: one switch for Bowline's own agent, a log that names the decider, and
//! hints that work.

use expect_test::expect;
use serde_json::Value;

use crate::fixture::CliFixture;
use crate::screen::Screen;

const PROMPT: &str = "read a.txt\nwrite b.txt: new\nreplace \"one\" with \"1\" in a.txt\nrun echo hi";

fn fixture() -> CliFixture {
    let scene = CliFixture::new();
    scene.write_file("a.txt", "one\n");
    scene
}

/// Returns the log: each action with its subject, the decision and the decider.
fn audit_log_lines(scene: &CliFixture) -> String {
    let told = scene.run(&["audit"]);
    let shorten = |line: &str| {
        let (_, rest) = line.trim_start().split_once("  ")?;
        let mut parts = rest.split(" · ");
        let what: Vec<&str> = parts.next()?.split(" (session").next()?.split_whitespace().collect();
        let by = parts.find(|part| part.starts_with("by ")).unwrap_or("");
        Some(format!("{} {by}\n", what.join(" ")))
    };
    told.lines().filter_map(shorten).collect()
}

#[test]
fn unattended_runs_log_each_operation_once_without_a_user() {
    let scene = fixture();
    scene.run(&["run", "--approve", "all", PROMPT]);
    expect![[r#"
        allowed session/start 
        allowed turn/start 
        allowed fs/read a.txt by preset: full
        failed fs/read b.txt by preset: full
        allowed fs/write b.txt by preset: full
        allowed fs/read b.txt by preset: full
        allowed fs/read a.txt by preset: full
        allowed fs/write a.txt by preset: full
        allowed fs/read a.txt by preset: full
        allowed terminal/exit `echo hi` by preset: full
        allowed turn/end 
        allowed session/end 
    "#]]
    .assert_eq(&audit_log_lines(&scene));
    let every = scene.run(&["audit", "--json"]);
    let by = every.lines().filter_map(|line| serde_json::from_str::<Value>(line).ok());
    let mut by: Vec<String> = by.filter_map(|entry| Some(entry["by"].as_str()?.to_owned())).collect();
    by.sort();
    by.dedup();
    assert_eq!(by, ["nobody", "preset: full"]);
}

#[test]
fn the_mode_of_the_own_agent_sets_what_the_host_allows() {
    for (mode, wrote, ran) in [
        ("read-only", false, false),
        ("ask", false, false),
        ("accept-edits", true, false),
        ("full", true, true),
    ] {
        let scene = fixture();
        scene.run(&["run", "--mode", mode, "write b.txt: new"]);
        scene.run(&["run", "--mode", mode, "run echo hi > c.txt"]);
        assert_eq!((scene.has_file("b.txt"), scene.has_file("c.txt")), (wrote, ran), "{mode}");
    }
    expect![[r#"
        --- stderr
        bowline: --mode full and --approve edits contradict each other, as both set what Bowline's own agent may do: leave one of them out
        --- 2
    "#]]
    .assert_eq(&fixture().run(&["run", "--mode", "full", "--approve", "edits", "write b.txt: new"]));
}

#[test]
fn the_suggested_option_allows_the_operation() {
    let scene = fixture();
    scene.write_file("Makefile", "all:\n\ttouch made.txt\n");
    let told = scene.run(&["run", "--approve", "edits", "run make all"]);
    expect![[r#"
        ✗ run: Run make all (TIME)
            `make all`: permission denied: no rule allows it, and the user cannot be asked

        Running `make all` did not work:

        ```
        `make all`: permission denied: no rule allows it, and the user cannot be asked
        ```
        --- stderr
        bowline: denied: run make all: the user cannot be asked; --approve all would allow it
        --- 5
    "#]]
    .assert_eq(&told);
    scene.run(&["run", "--approve", "all", "run make all"]);
    assert!(scene.has_file("made.txt"));
    // No flag allows this, but the named rule does.
    let secret = scene.run(&["run", "--approve", "all", "write .env: KEY=1"]);
    expect![[r#"
        ✗ edit: Write .env (TIME)
            nothing was written: .env: permission denied: no rule allows it, and the user cannot be asked

        Writing `.env` did not work:

        ```
        nothing was written: .env: permission denied: no rule allows it, and the user cannot be asked
        ```
        --- stderr
        bowline: denied: read .env: the user cannot be asked; no flag allows it, but `bowline policy allow read .env` does; to change it takes `bowline policy allow write .env` as well
        --- 5
    "#]]
    .assert_eq(&secret);
    // The agent reads before it writes: each needs its own rule.
    let mut rules = Vec::new();
    for _ in 0..3 {
        let told = scene.run(&["run", "--approve", "all", "write .env: KEY=1"]);
        let named = told.split('`').find(|part| part.starts_with("bowline policy allow"));
        let Some(rule) = named else { break };
        scene.run(&rule.split(' ').skip(1).collect::<Vec<_>>());
        rules.push(rule.to_owned());
    }
    assert_eq!(rules, ["bowline policy allow read .env", "bowline policy allow write .env"]);
    assert!(scene.has_file(".env"));
}

#[test]
fn a_rule_that_can_have_no_effect_is_refused() {
    let scene = fixture();
    let mut told = String::new();
    for pattern in ["/etc/hosts", "/etc/**", "../**", "/*", "src/**"] {
        told += &scene.run(&["policy", "allow", "read", pattern]);
    }
    told += &scene.run(&["policy", "allow", "write", "/etc/**"]);
    expect![[r#"
        --- stderr
        bowline: the rule would have no effect: agents read nothing outside of $PROJECT, whatever rules say; to let one read there, start it with --add-dir /etc:ro
        --- 2
        --- stderr
        bowline: the rule would have no effect: agents read nothing outside of $PROJECT, whatever rules say; to let one read there, start it with --add-dir /etc:ro
        --- 2
        --- stderr
        bowline: the path ../** has an empty part, . or .. in it: no file is named so
        --- 2
        --- stderr
        bowline: the rule would have no effect: agents read nothing outside of $PROJECT, whatever rules say; to let one read there, start it with --add-dir /:ro
        --- 2
        1  allow read: src/**  (this workspace)
        holds for the workspace $PROJECT
        --- 0
        2  allow write: /etc/**  (this workspace)
        holds for the workspace $PROJECT
        --- 0
    "#]]
    .assert_eq(&told);
}

#[tokio::test]
async fn a_mode_chosen_in_chat_applies_and_is_shown() {
    let scene = fixture();
    let mut screen = Screen::start(&scene, &["chat"]);
    screen.wait_for_text("● ready").await;
    screen.wait_for_text("Ask").await;
    screen.send("\u{1b}[15~").await;
    screen.wait_for_text("Full access").await;
    screen.send("accept").await;
    screen.send("\r").await;
    screen.wait_for_text("Accept edits").await;
    screen.wait_until_gone("Full access").await;
    screen.send("write b.txt: new").await;
    screen.send("\r").await;
    screen.wait_for_text("Wrote b.txt").await;
    assert_eq!(scene.read_file("b.txt"), "new");
    // Commands still need approval.
    screen.send("run echo hi > c.txt").await;
    screen.send("\r").await;
    screen.wait_for_text("run echo hi > c.txt").await;
    screen.wait_for_text("asks").await;
    assert!(!scene.has_file("c.txt"));
    screen.send("\u{3}").await;
    screen.wait_for_text("● ready").await;
    screen.send("\u{4}").await;
    assert_eq!(screen.wait_for_exit().await, Some(0));
}

#[test]
fn the_configuration_has_defaults_and_the_command_line_the_last_word() {
    let scene = fixture();
    let configure = |text: &str| scene.write_file("../home/.config/bowline/config.toml", text);
    let wrote = |arguments: &[&str]| {
        scene.run(&[&["run"], arguments, &["write b.txt: new"]].concat());
        let wrote = scene.has_file("b.txt");
        std::fs::remove_file(scene.project().join("b.txt")).ok();
        wrote
    };
    assert!(!wrote(&[]));
    configure("approve = \"edits\"\n");
    assert!(wrote(&[]));
    assert!(!wrote(&["--approve", "reads"]));
    assert!(!wrote(&["--mode", "read-only"]));
    assert!(!wrote(&["--read-only"]));
    configure("agent = \"mine\"\n[agents.mine]\ncommand = \"no-such-program --acp\"\n");
    expect![[r#"
        --- stderr
        bowline: cannot start the agent no-such-program: there is no such program
        --- 2
    "#]]
    .assert_eq(&scene.run(&["run", "list"]));
    assert!(scene.run(&["run", "--agent", "bowline", "list"]).contains("a.txt"));
    configure("model = \"no-such-model\"\n");
    expect![[r#"
        --- stderr
        bowline: the agent did not open a session: there is no model no-such-model: names are `offline`, `anthropic/NAME`, `openai/NAME`, `gemini/NAME`, `ollama/NAME`, `compatible/NAME`, `script:FILE` and `replay:FILE`
        --- 1
    "#]].assert_eq(&scene.run(&["run", "list"]));
    assert!(scene.run(&["run", "--model", "offline", "list"]).contains("a.txt"));
}
