//! What an agent may do without a question: one switch for Bowline's own agent, a log that tells who decided, and hints that hold.

use expect_test::expect;
use serde_json::Value;

use crate::program::Scene;
use crate::screen::Screen;

const WORK: &str = "read a.txt\nwrite b.txt: new\nreplace \"one\" with \"1\" in a.txt\nrun echo hi";

fn scene() -> Scene {
    let scene = Scene::new();
    scene.put("a.txt", "one\n");
    scene
}

/// Returns what the log says: what was done to what, what was decided and by whom.
fn logged(scene: &Scene) -> String {
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
fn where_nobody_was_no_person_decided_and_each_operation_is_told_once() {
    let scene = scene();
    scene.run(&["run", "--approve", "all", WORK]);
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
    .assert_eq(&logged(&scene));
    let every = scene.run(&["audit", "--json"]);
    let by = every.lines().filter_map(|line| serde_json::from_str::<Value>(line).ok());
    let mut by: Vec<String> = by.filter_map(|entry| Some(entry["by"].as_str()?.to_owned())).collect();
    by.sort();
    by.dedup();
    assert_eq!(by, ["nobody", "preset: full"]);
}

#[test]
fn a_mode_of_the_own_agent_is_what_the_host_allows() {
    for (mode, wrote, ran) in [
        ("read-only", false, false),
        ("ask", false, false),
        ("accept-edits", true, false),
        ("full", true, true),
    ] {
        let scene = scene();
        scene.run(&["run", "--mode", mode, "write b.txt: new"]);
        scene.run(&["run", "--mode", mode, "run echo hi > c.txt"]);
        assert_eq!((scene.has("b.txt"), scene.has("c.txt")), (wrote, ran), "{mode}");
    }
    expect![[r#"
        --- stderr
        bowline: --mode full and --approve edits contradict each other, as both set what Bowline's own agent may do: leave one of them out
        --- 2
    "#]]
    .assert_eq(&scene().run(&["run", "--mode", "full", "--approve", "edits", "write b.txt: new"]));
}

#[test]
fn what_is_said_to_allow_something_does() {
    let scene = scene();
    scene.put("Makefile", "all:\n\ttouch made.txt\n");
    let told = scene.run(&["run", "--approve", "edits", "run make all"]);
    expect![[r#"
        ✗ run: Run make all (TIME)
            `make all`: permission denied: no rule allows it, and nobody is there to ask

        Running `make all` did not work:

        ```
        `make all`: permission denied: no rule allows it, and nobody is there to ask
        ```
        --- stderr
        bowline: denied: run make all: nobody is there to ask; --approve all would allow it
        --- 5
    "#]]
    .assert_eq(&told);
    scene.run(&["run", "--approve", "all", "run make all"]);
    assert!(scene.has("made.txt"));
    // No flag allows this, a rule does: the one that is named.
    let secret = scene.run(&["run", "--approve", "all", "write .env: KEY=1"]);
    expect![[r#"
        ✗ edit: Write .env (TIME)
            nothing was written: .env: permission denied: no rule allows it, and nobody is there to ask

        Writing `.env` did not work:

        ```
        nothing was written: .env: permission denied: no rule allows it, and nobody is there to ask
        ```
        --- stderr
        bowline: denied: read .env: nobody is there to ask; no flag allows it, but `bowline policy allow read .env` does; to change it takes `bowline policy allow write .env` as well
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
    assert!(scene.has(".env"));
}

#[test]
fn a_rule_that_can_have_no_effect_is_refused() {
    let scene = scene();
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
async fn a_mode_that_is_chosen_in_chat_holds_and_is_the_word_on_the_screen() {
    let scene = scene();
    let mut screen = Screen::start(&scene, &["chat"]);
    screen.shows("● ready").await;
    screen.shows("Ask").await;
    screen.send("\u{1b}[15~").await;
    screen.shows("Full access").await;
    screen.send("accept").await;
    screen.send("\r").await;
    screen.shows("Accept edits").await;
    screen.hides("Full access").await;
    screen.send("write b.txt: new").await;
    screen.send("\r").await;
    screen.shows("Wrote b.txt").await;
    assert_eq!(scene.get("b.txt"), "new");
    // Commands are asked about.
    screen.send("run echo hi > c.txt").await;
    screen.send("\r").await;
    screen.shows("run echo hi > c.txt").await;
    screen.shows("asks").await;
    assert!(!scene.has("c.txt"));
    screen.send("\u{3}").await;
    screen.shows("● ready").await;
    screen.send("\u{4}").await;
    assert_eq!(screen.end().await, Some(0));
}

#[test]
fn the_configuration_has_defaults_and_the_command_line_the_last_word() {
    let scene = scene();
    let configure = |text: &str| scene.put("../home/.config/bowline/config.toml", text);
    let wrote = |arguments: &[&str]| {
        scene.run(&[&["run"], arguments, &["write b.txt: new"]].concat());
        let wrote = scene.has("b.txt");
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
