//! Tests of `bowline trace`: a run is recorded, shown, and both of its sides are replayed.

use std::path::PathBuf;

use expect_test::expect;

use crate::fixture::{CliFixture, bowline};

const PROMPT: &str = "read a.txt\nreplace \"two\" with \"2\" in a.txt\nrun echo hello\nsay done";
/// A prompt without a command: how often an agent polls a command depends on timing, whereas its other requests do not.
const PROMPT_WITHOUT_COMMAND: &str = "read a.txt\nreplace \"two\" with \"2\" in a.txt\nsay done";

/// Records a run in a project, and returns its output and the path of the trace.
fn record_run(scene: &CliFixture, prompt: &str) -> (String, PathBuf) {
    scene.write_file("a.txt", "one\ntwo\n");
    let trace = scene.base().join("trace");
    let told = scene.run(&["run", "--approve", "all", "--trace", trace.to_str().unwrap(), prompt]);
    assert!(told.ends_with("--- 0\n"), "{told}");
    (told, trace)
}

/// Normalises times and numbers that differ from run to run.
fn normalize_trace_times(text: &str) -> String {
    let mut lines = Vec::new();
    for line in text.lines() {
        let line = match line.get(..10) {
            Some(time) if time.trim().parse::<f64>().is_ok() => line.replacen(time.trim(), "TIME", 1),
            _ => line.to_owned(),
        };
        let line = match line.rsplit_once(" (") {
            Some((before, took)) if took.ends_with("s)") || took == "TIME)" => format!("{before} (TIME)"),
            _ => line,
        };
        lines.push(line.trim_start().to_owned());
    }
    normalize_message_count(&(lines.join("\n") + "\n"))
}

/// Replaces a number of messages by `N`.
fn normalize_message_count(text: &str) -> String {
    let mut words: Vec<&str> = text.split(' ').collect();
    for at in 1..words.len() {
        if words[at].starts_with("messages") && words[at - 1].bytes().all(|byte| byte.is_ascii_digit()) {
            words[at - 1] = "N";
        }
    }
    words.join(" ")
}

#[test]
fn a_recorded_turn_is_shown_as_a_sequence() {
    let scene = CliFixture::new();
    let (_, trace) = record_run(&scene, PROMPT);
    let trace = trace.to_str().unwrap();
    let told = normalize_trace_times(&scene.run(&["trace", "show", trace, "--method", "fs/write_text_file"]));
    expect![[r#"
        TIME  client ← agent   ? fs/write_text_file          #2    $SHORT  $PROJECT/a.txt, 6 bytes
        TIME  client → agent   ✓ fs/write_text_file          #2    $SHORT   (TIME)

        2 of N messages
        --- 0
    "#]]
    .assert_eq(&told);
    let all = scene.run(&["trace", "show", trace]);
    for sign in ["initialize", "session/prompt", "end_turn", "terminal/create", "echo hello", "[completed]"] {
        assert!(all.contains(sign), "{sign}\n{all}");
    }
    assert!(!all.contains("without an answer"), "{all}");
    let recorded = std::fs::read_to_string(trace).unwrap();
    let piped = scene.run_command(scene.command(&["trace", "show", "-"]), &recorded);
    assert_eq!(format!("{}--- 0\n", scene.normalize(&String::from_utf8(piped.stdout).unwrap())), all);
    let whole = scene.run(&["trace", "show", trace, "--method", "session/new", "--full"]);
    assert!(whole.contains("    {\n      \"jsonrpc\": \"2.0\","), "{whole}");
    expect![[r#"

        0 of N messages
        --- 0
    "#]]
    .assert_eq(&normalize_trace_times(&scene.run(&["trace", "show", trace, "--session", "none"])));
}

#[test]
fn the_page_of_a_recorded_turn_stands_alone() {
    let scene = CliFixture::new();
    let (_, trace) = record_run(&scene, PROMPT);
    let page = scene.run(&["trace", "show", trace.to_str().unwrap(), "--html"]);
    assert!(page.starts_with("<!doctype html>") && page.ends_with("</html>\n--- 0\n"), "{page}");
    assert!(page.contains("session/prompt") && page.contains("default-src 'none'"));
}

#[test]
fn the_agents_part_is_played_to_a_fresh_run() {
    let scene = CliFixture::new();
    let (told, trace) = record_run(&scene, PROMPT);
    // In another project with another home, paths are mapped to the new ones.
    let fresh = CliFixture::new();
    fresh.write_file("a.txt", "one\ntwo\n");
    let agent = format!("{} trace replay {} --as agent", bowline().display(), trace.display());
    let again = fresh.run(&["run", "--approve", "all", "--agent", &agent, PROMPT]);
    assert_eq!(again, told);
    assert_eq!(fresh.read_file("a.txt"), "one\n2\n");
}

#[test]
fn the_clients_part_is_played_to_the_agent() {
    let scene = CliFixture::new();
    let (_, trace) = record_run(&scene, PROMPT_WITHOUT_COMMAND);
    let bowline = bowline().display().to_string();
    let replay = ["trace", "replay", trace.to_str().unwrap(), "--as", "client", "--"];
    let told = scene.run(&[&replay[..], &[&bowline, "agent", "--model", "offline", "--shell"]].concat());
    expect![[r#"
        --- 0
    "#]]
    .assert_eq(&told);
    // A program that is not an agent is reported as ended, and is not awaited.
    let told = normalize_message_count(&scene.run(&[&replay[..], &["true"]].concat()));
    expect![[r#"
        --- stderr
        bowline: the agent has ended
        bowline: N messages were not played: the next, session/new, waits for the answer to initialize
        --- 1
    "#]]
    .assert_eq(&told);
}

#[test]
fn a_client_that_does_something_else_is_told_so() {
    let scene = CliFixture::new();
    let (_, trace) = record_run(&scene, PROMPT_WITHOUT_COMMAND);
    let asked = "{\"jsonrpc\":\"2.0\",\"id\":9,\"method\":\"session/list\",\"params\":{}}\n";
    let told = scene.run_with_stdin(&["trace", "replay", trace.to_str().unwrap(), "--as", "agent"], asked);
    let told = told.lines().filter(|line| !line.contains("not played")).collect::<Vec<_>>().join("\n");
    expect![[r#"
        {"jsonrpc":"2.0","id":9,"error":{"code":-32603,"message":"the recording has no session/list"}}
        --- stderr
        bowline: not as recorded: the recording has no session/list
        --- 1"#]]
    .assert_eq(&told);
}

#[test]
fn what_is_no_trace_is_said_to_be_none() {
    let scene = CliFixture::new();
    scene.write_file("notes", "mine\n");
    scene.write_file("empty", "");
    scene.write_file(
        "wire",
        "> {\"id\":1,\"method\":\"x\"}\n{\"jsonrpc\":\"2.0\",\"method\":\"session/update\"}\nmine\n",
    );
    let mut told = String::new();
    for arguments in [
        &["trace", "show", "notes"][..],
        &["trace", "show", "missing"],
        &["trace", "show", "empty"],
        &["trace", "show", "wire"],
        &["trace", "show", "wire", "--method", "["],
        &["trace", "replay", "empty", "--as", "agent"],
        &["trace", "replay", "wire", "--as", "agent", "--", "true"],
        &["trace", "replay", "wire", "--as", "client", "--", "/no/such/program"],
    ] {
        told += &format!("{}\n{}", arguments[2..].join(" "), scene.run(arguments));
    }
    expect![[r#"
        notes
        --- stderr
        bowline: notes has no messages: is it a file that --trace wrote?
        --- 2
        missing
        --- stderr
        bowline: cannot read the trace missing: No such file or directory (os error 2)
        --- 2
        empty

        0 messages
        --- 0
        wire
             0.000  client → agent   ? x                           #1
             0.000  client ← agent   · session/update                              null

        1 request without an answer:
             0.000  client → agent   x #1

        2 messages
        --- stderr
        bowline: 1 line of the trace cannot be read: cut off, or written by something else
        --- 0
        wire --method [
        --- stderr
        bowline: --method cannot be understood: error parsing glob '[': unclosed character class; missing ']'
        --- 2
        empty --as agent
        --- stderr
        bowline: the trace has nothing that the agent said
        --- 1
        wire --as agent -- true
        --- stderr
        bowline: an agent is started by its client: --cwd and a command go with --as client
        --- 2
        wire --as client -- /no/such/program
        --- stderr
        bowline: 1 line of the trace cannot be read: cut off, or written by something else
        bowline: cannot start /no/such/program: No such file or directory (os error 2)
        --- 2
    "#]]
    .assert_eq(&told);
}
