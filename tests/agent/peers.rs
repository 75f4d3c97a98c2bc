//! The agent with third-party clients: acpx, yopo, and the example clients of the Python and TypeScript SDKs.
//!
//! The tests compare what their users see.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};

use expect_test::{Expect, expect};
use xtask::peers::{
    PublishedClient, SdkPeer, is_available, python_example_command, typescript_example_command,
};

use crate::program::{AgentFixture, bowline_path};
use crate::programs::workspace_root;
use test_support::processes::wait_until_none_in;

mod acpx;

/// The usual prompt: read a file, write another, run a command.
const THREE_STEPS_PROMPT: &str = "read a.txt\nwrite b.txt: hi\nrun echo hi; pwd";

fn new_project() -> AgentFixture {
    let scene = AgentFixture::new();
    scene.write_file("a.txt", "one\ntwo\n");
    scene
}

/// Returns a program's command, with only a home and a path in its environment.
fn client_command(scene: &AgentFixture, words: &[String]) -> Command {
    let mut command = Command::new(&words[0]);
    command.args(&words[1..]).current_dir(scene.project()).env_clear();
    command.env("HOME", scene.home()).env("PATH", "/usr/local/bin:/usr/bin:/bin");
    command
}

/// Writes a program that starts the agent with these arguments, for clients that accept only a program name.
fn write_starter(scene: &AgentFixture, name: &str, arguments: &str) -> PathBuf {
    let path = scene.home().join(name);
    fs::write(&path, format!("#!/bin/sh\nexec {} agent {arguments}\n", bowline_path().display())).unwrap();
    fs::set_permissions(&path, PermissionsExt::from_mode(0o755)).unwrap();
    path
}

/// Runs a client with these lines as input. The input stays open until the last is answered: some clients exit at its
/// end.
fn run_with_input(command: &mut Command, lines: &str, until: &str) -> Output {
    use std::io::{Read as _, Write as _};
    let mut child =
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    let mut stdin = child.stdin.take().unwrap();
    stdin.write_all(lines.as_bytes()).unwrap();
    let (mut stdout, mut seen) = (child.stdout.take().unwrap(), Vec::new());
    let mut buffer = [0; 4096];
    while !String::from_utf8_lossy(&seen).contains(until) {
        match stdout.read(&mut buffer).unwrap() {
            0 => break,
            count => seen.extend(&buffer[..count]),
        }
    }
    drop(stdin);
    stdout.read_to_end(&mut seen).unwrap();
    let output = child.wait_with_output().unwrap();
    Output { stdout: seen, ..output }
}

/// Compares the user's view on stdout, and returns the client's exit code.
fn check(scene: &AgentFixture, output: &Output, expected: Expect) -> Option<i32> {
    let text = String::from_utf8(output.stdout.clone()).unwrap();
    expected.assert_eq(&normalize_output(&scene.normalize(&text)));
    output.status.code()
}

/// Removes what differs between runs: ids, times, and context usage.
fn normalize_output(text: &str) -> String {
    let is_id = |word: &str| word.len() >= 32 && word.chars().all(|c| c.is_ascii_hexdigit() || c == '-');
    let line = |line: &str| {
        let words: Vec<&str> = line.split(' ').map(|word| if is_id(word) { "$ID" } else { word }).collect();
        let line = words.join(" ");
        match (line.rfind(", "), line.ends_with(" s]")) {
            (Some(at), true) => format!("{}, … s]", &line[..at]),
            _ if line.starts_with("[session update] used=") => "[session update] used=…".to_owned(),
            _ if line.starts_with("[session update] available_commands=") => {
                "[session update] available_commands=…".to_owned()
            }
            _ => line.trim_end().to_owned(),
        }
    };
    text.lines().map(|text| line(text) + "\n").collect()
}

/// Checks that no process of this fixture is left.
fn check_nothing_runs(scene: &AgentFixture) {
    wait_until_none_in(scene.home().parent().unwrap());
}

fn python_client(name: &str) -> Option<Vec<String>> {
    let words = python_example_command(&workspace_root(), name);
    is_available(SdkPeer::Python.name(), &words).then_some(words)
}

#[test]
fn a_client_that_serves_nothing_and_cannot_be_asked_is_told_so() {
    let Some(mut words) = python_client("client") else { return };
    let scene = new_project();
    words.push(write_starter(&scene, "agent", "--model offline --shell").display().to_string());
    let lines = "read a.txt\nwrite b.txt: hi\nrun echo hi\nsay bye\n";
    let output = run_with_input(&mut client_command(&scene, &words), lines, "Agent: bye");
    let code = check(
        &scene,
        &output,
        expect![[r#"
        > | Agent: `a.txt`:

        ```txt
        [a.txt: all of it, 2 lines, read on the agent's own machine]
        one
        two
        ```
        > | Agent: Writing `b.txt` did not work:

        ```
        permission denied: the editor cannot ask its user for permission (it does not know session/request_permission); a mode that asks less, or a rule of the user's, would allow it
        ```
        > | Agent: Running `echo hi` did not work:

        ```
        permission denied: the editor cannot ask its user for permission (it does not know session/request_permission); a mode that asks less, or a rule of the user's, would allow it
        ```
        > | Agent: bye
        >
    "#]],
    );
    assert_eq!(code, Some(0));
    assert!(!Path::new(&scene.path("b.txt")).exists());
    check_nothing_runs(&scene);
}

#[test]
fn a_client_with_files_and_make_believe_terminals_is_served() {
    let Some(mut words) = python_client("gemini") else { return };
    let scene = new_project();
    let agent = write_starter(&scene, "agent", "--model offline --shell");
    words.extend(["--gemini".to_owned(), agent.display().to_string()]);
    words.extend(["--yolo", "--prompt", THREE_STEPS_PROMPT].map(str::to_owned));
    let output = client_command(&scene, &words).output().unwrap();
    let code = check(
        &scene,
        &output,
        expect![[r#"
        ✅ Connected to Gemini (protocol v1)
        📝 Created session: $ID

        [session update] available_commands=…

        [session update] title='read a.txt' updated_at=None field_meta=None session_update='session_info_update'

        🔧 Read a.txt (pending)

        🔧 Tool call `turn1_1` → in_progress
        [Client] Read $PROJECT/a.txt (8 bytes)

        🔧 Tool call `turn1_1` → completed
        `a.txt`:

        ```txt
        [a.txt: all of it, 2 lines, read through the editor]
        one
        two
        ```

        🔧 Write b.txt (pending)

        🔧 Tool call `turn1_2` → in_progress
          diff: $PROJECT/b.txt

        🔧 Tool call `turn1_2` → in_progress
        [Client] Wrote $PROJECT/b.txt (2 bytes)
        [Client] Read $PROJECT/b.txt (2 bytes)

        🔧 Tool call `turn1_2` → completed
        Wrote `b.txt`.

        🔧 Run echo hi; pwd (pending)

        🔧 Tool call `turn1_3` → in_progress
        [Client] createTerminal: /bin/sh ['-c', 'echo hi; pwd'] (cwd=$PROJECT)

        🔧 Tool call `turn1_3` → in_progress
          terminal: term-1
        [Client] waitForTerminalExit: $ID term-1
        [Client] terminalOutput: $ID term-1
        [Client] releaseTerminal: $ID term-1

        🔧 Tool call `turn1_3` → completed
        `echo hi; pwd`:

        ```
        [`echo hi; pwd` ended, and the editor does not say how, through the editor, … s]
        ```
    "#]],
    );
    assert_eq!(code, Some(0), "{}", String::from_utf8_lossy(&output.stderr));
    assert_eq!(scene.read_file("b.txt"), "hi");
    check_nothing_runs(&scene);
}

/// The example client of the TypeScript SDK only says hello, and its files are made up.
#[test]
fn the_typescript_example_asks_its_user() {
    let words = typescript_example_command(&workspace_root());
    if !is_available(PublishedClient::Acpx.name(), &words) {
        return;
    }
    let scene = new_project();
    let script = scene.home().join("script.jsonl");
    let replies = [
        r#"{"text": "I will look.", "calls": [{"name": "read_text_file", "input": {"path": "a.txt"}}]}"#,
        r#"{"expect": "Mock file content", "calls": [{"name": "write_text_file", "input": {"path": "b.txt", "content": "hi"}}]}"#,
        r#"{"expect": "Mock file content", "text": "Done."}"#,
    ];
    fs::write(&script, replies.join("\n")).unwrap();
    // It starts its agent as `npx tsx agent.ts`.
    write_starter(&scene, "npx", &format!("--model script:{}", script.display()));
    let mut client = client_command(&scene, &words);
    client.env("PATH", format!("{}:/usr/local/bin:/usr/bin:/bin", scene.home().display()));
    let output = run_with_input(&mut client, "1\n", "Agent completed");
    let code = check(
        &scene,
        &output,
        expect![[r#"
        ✅ Connected to agent (protocol v1)
        📝 Created session: $ID
        💬 User: Hello, agent!

         I will look.

        🔧 Read a.txt (undefined)

        🔧 Tool call `turn1_1` updated: in_progress


        🔧 Tool call `turn1_1` updated: completed


        🔧 Write b.txt (undefined)

        🔧 Tool call `turn1_2` updated: undefined


        🔐 Permission requested: Write b.txt

        Options:
           1. Allow once (allow_once)
           2. Allow edits of the file b.txt, in this session (allow_always)
           3. Always allow edits of the file b.txt (allow_always)
           4. Reject (reject_once)
           5. Always reject edits of the file b.txt (reject_always)

        Choose an option:
        🔧 Tool call `turn1_2` updated: in_progress


        🔧 Tool call `turn1_2` updated: completed

        Done.


        ✅ Agent completed with: end_turn
    "#]],
    );
    assert_eq!(code, Some(0), "{}", String::from_utf8_lossy(&output.stderr));
    check_nothing_runs(&scene);
}

/// yopo 11.0.0 exits on update kinds newer than itself, so those are left out.
#[test]
fn yopo_prompts_once() {
    let mut words = PublishedClient::Yopo.command(&workspace_root());
    if !is_available(PublishedClient::Yopo.name(), &words) {
        return;
    }
    let scene = new_project();
    let without_usage =
        "--model offline --shell --allow-relative-cwd | grep --line-buffered -v '\"usage_update\"'";
    let agent = write_starter(&scene, "agent", without_usage);
    words.extend([THREE_STEPS_PROMPT.to_owned(), agent.display().to_string()]);
    let output = client_command(&scene, &words).output().unwrap();
    let code = check(
        &scene,
        &output,
        expect![[r#"
        `a.txt`:

        ```txt
        [a.txt: all of it, 2 lines, read on the agent's own machine]
        one
        two
        ```Wrote `b.txt`.`echo hi; pwd`:

        ```
        [`echo hi; pwd` ended with exit code 0, on the agent's own machine, … s]
        hi
        $PROJECT
        ```
    "#]],
    );
    assert_eq!(code, Some(0), "{}", String::from_utf8_lossy(&output.stderr));
    assert_eq!(scene.read_file("b.txt"), "hi");
    check_nothing_runs(&scene);
}
