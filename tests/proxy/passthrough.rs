//! Tests of what passes unchanged, and of what happens when a side disconnects.

use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::process::Stdio;

use expect_test::expect;
use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;
use test_support::wait::wait_until;

use crate::fixture::{CliFixture, bowline};

const PROMPT: &str =
    r#"{"jsonrpc":"2.0","id":7,"method":"session/prompt","params":{"sessionId":"s","prompt":[]}}"#;

#[test]
fn a_run_is_the_same_with_a_proxy_in_between() {
    let told: Vec<String> = ["", "proxy --no-mcp -- "]
        .iter()
        .map(|proxy| {
            let scene = CliFixture::new();
            scene.write_file("a.txt", "one\ntwo\n");
            let program = bowline().display().to_string();
            let proxy = if proxy.is_empty() { String::new() } else { format!("{program} {proxy}") };
            let agent = format!("{proxy}{program} agent --model offline");
            scene.run(&["run", "--agent", &agent, "--approve", "all", "read a.txt"])
        })
        .collect();
    assert!(told[0].contains("two"), "{}", told[0]);
    assert_eq!(told[0], told[1]);
}

/// Runs the program with a prompt and an input that stays open until the program ends.
fn run_with_open_input(scene: &CliFixture, arguments: &[&str]) -> String {
    let mut command = scene.command(arguments);
    command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = command.spawn().unwrap();
    let mut stdin = child.stdin.take().unwrap();
    writeln!(stdin, "{PROMPT}").unwrap();
    let output = child.wait_with_output().unwrap();
    drop(stdin);
    scene.describe_output(&output)
}

#[test]
fn an_agent_that_cannot_start_or_dies_is_told_of() {
    let scene = CliFixture::new();
    let dies = ["proxy", "--", "sh", "-c", "read line; echo oops >&2; exit 7"];
    let told = [
        scene.run(&["proxy", "--", "/no/such/agent"]),
        run_with_open_input(&scene, &dies),
        run_with_open_input(&scene, &["proxy", "--", "sh", "-c", "read line; kill -9 $$"]),
        scene.run_with_stdin(&["proxy", "--", "cat"], "not a message\n{\"id\":1}\n"),
    ];
    expect![[r#"
        --- stderr
        bowline: cannot start the agent /no/such/agent: there is no such program
        --- 2
        {"jsonrpc":"2.0","id":7,"error":{"code":-32603,"message":"the agent has ended with exit code 7"}}
        --- stderr
        oops
        bowline: the agent has ended with exit code 7
        --- 1
        {"jsonrpc":"2.0","id":7,"error":{"code":-32603,"message":"the agent was ended by SIGKILL"}}
        --- stderr
        bowline: the agent was ended by SIGKILL
        --- 1
        not a message
        {"id":1}
        --- 0
    "#]]
    .assert_eq(&told.concat());
}

#[test]
fn nothing_of_an_agent_stays_however_the_proxy_ends() {
    for signal in [Signal::TERM, Signal::INT, Signal::KILL] {
        let scene = CliFixture::new();
        let mut command = scene.command(&[
            "proxy",
            "--",
            "sh",
            "-c",
            "sleep 1000 & echo $!; trap '' TERM; while :; do sleep 1; done",
        ]);
        let mut child =
            command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::null()).spawn().unwrap();
        let mut line = String::new();
        let mut stdout = BufReader::new(child.stdout.take().unwrap());
        stdout.read_line(&mut line).unwrap();
        let sleeper = Pid::from_raw(line.trim().parse().unwrap()).unwrap();
        kill_process(Pid::from_child(&child), signal).unwrap();
        child.wait().unwrap();
        // The agent's processes hold the pipe open; its end means that all of them are gone.
        stdout.read_to_string(&mut line).unwrap();
        let what = format!("the end of the agent's process after {signal:?}");
        wait_until(&what, || rustix::process::test_kill_process(sleeper).is_err());
    }
}

#[test]
fn a_trace_has_what_passed() {
    let scene = CliFixture::new();
    let (agent, editor) = (scene.base().join("agent"), scene.base().join("editor"));
    let (agent_text, editor_text) = (agent.display().to_string(), editor.display().to_string());
    let words = ["proxy", "--trace", &agent_text, "--trace-editor", &editor_text, "--", "cat"];
    let told = r#"{"jsonrpc":"2.0","method":"_told"}"#;
    scene.run_with_stdin(&words, &format!("{told}\n"));
    let read = |path| {
        let text = std::fs::read_to_string(path).unwrap();
        let messages = text.lines().skip(1).map(|line| serde_json::from_str::<Value>(line).unwrap());
        let shown = messages.map(|line| format!("{} to {}: {}\n", line["from"], line["to"], line["message"]));
        shown.collect::<String>()
    };
    let (there, back) = (r#""proxy" to "agent""#, r#""agent" to "proxy""#);
    assert_eq!(read(&agent), format!("{there}: {told}\n{back}: {told}\n"));
    let (there, back) = (r#""client" to "proxy""#, r#""proxy" to "client""#);
    assert_eq!(read(&editor), format!("{there}: {told}\n{back}: {told}\n"));
    let mut inside = scene.command(&["proxy", "--trace", "here", "--", "cat"]);
    inside.stdin(Stdio::null());
    assert_eq!(inside.output().unwrap().status.code(), Some(2));
}
