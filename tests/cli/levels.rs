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
fn logged(scene: &Scene, arguments: &[&str]) -> String {
    let told = scene.run(&[&["audit"], arguments].concat());
    let shorten = |line: &str| {
        let (_, rest) = line.trim_start().split_once("Z  ")?;
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
    "#]]
    .assert_eq(&logged(&scene, &[]));
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
    "#]]
    .assert_eq(&scene().run(&["run", "--mode", "full", "--approve", "edits", "write b.txt: new"]));
}

#[test]
fn what_is_said_to_allow_something_does() {
    let scene = scene();
    scene.put("Makefile", "all:\n\ttouch made.txt\n");
    let told = scene.run(&["run", "--approve", "edits", "run make all"]);
    expect![[r#"
    "#]]
    .assert_eq(&told);
    scene.run(&["run", "--approve", "all", "run make all"]);
    assert!(scene.has("made.txt"));
    // No flag allows this, a rule does: the one that is named.
    let secret = scene.run(&["run", "--approve", "all", "write .env: KEY=1"]);
    expect![[r#"
    "#]]
    .assert_eq(&secret);
    let rule = secret.split('`').find(|part| part.starts_with("bowline policy allow")).expect("a rule");
    let words: Vec<&str> = rule.split(' ').skip(1).collect();
    scene.run(&words);
    scene.run(&["run", "--approve", "all", "write .env: KEY=1"]);
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
