//! acpx: its user's view of the agent, with all combinations of capabilities and permissions.

use std::io::{BufRead as _, BufReader};
use std::process::{Command, Output, Stdio};

use expect_test::expect;
use serde_json::Value;
use test_support::wait::wait_until;
use xtask::peers::{PublishedClient, is_available};

use super::{THREE_STEPS_PROMPT, check, check_nothing_runs, client_command, new_project};
use crate::program::{AgentFixture, bowline_path};
use crate::programs::workspace_root;

/// Returns acpx with these arguments and the offline agent, if it is installed.
fn acpx_command(scene: &AgentFixture, arguments: &[&str], verb: &[&str]) -> Option<Command> {
    let mut words = PublishedClient::Acpx.command(&workspace_root());
    if !is_available(PublishedClient::Acpx.name(), &words) {
        return None;
    }
    let agent = format!("{} agent --model offline --shell", bowline_path().display());
    words.extend(arguments.iter().map(ToString::to_string));
    words.extend(["--agent".to_owned(), agent]);
    words.extend(verb.iter().map(ToString::to_string));
    Some(client_command(scene, &words))
}

fn run_acpx(scene: &AgentFixture, arguments: &[&str], verb: &[&str]) -> Option<Output> {
    Some(acpx_command(scene, arguments, verb)?.output().unwrap())
}

#[test]
fn everything_goes_through_a_client_that_serves_everything() {
    let scene = new_project();
    let Some(output) = run_acpx(&scene, &["--approve-all"], &["exec", THREE_STEPS_PROMPT]) else { return };
    let code = check(
        &scene,
        &output,
        expect![[r#"
        [client] initialize (running)

        [client] session/new (running)

        [tool] Read a.txt (running)
          input: $PROJECT/a.txt
          files: $PROJECT/a.txt

        [client] fs/read_text_file (running)

        [tool] Read a.txt (completed)
          kind: read
          input: $PROJECT/a.txt
          files: $PROJECT/a.txt
          output:
            {
              "servedBy": "client",
              "firstLine": 1,
              "lines": 2,
              "totalLines": 2
            }

            one
            two
        `a.txt`:

        ```txt
        [a.txt: all of it, 2 lines, read through the editor]
        one
        two
        ```

        [tool] Write b.txt (running)
          input: $PROJECT/b.txt
          files: $PROJECT/b.txt

        [client] fs/read_text_file (running)

        [error] RUNTIME: Resource not found: file://$PROJECT/b.txt

        [client] session/request_permission (running)

        [client] fs/read_text_file (running)

        [error] RUNTIME: Resource not found: file://$PROJECT/b.txt

        [client] fs/write_text_file (running)

        [client] fs/read_text_file (running)

        [tool] Write b.txt (completed)
          kind: edit
          input: $PROJECT/b.txt
          files: $PROJECT/b.txt:1
          output:
            {
              "servedBy": "client",
              "outcome": "created",
              "readBack": true,
              "changedByEditor": false,
              "lines": 1
            }

            diff $PROJECT/b.txt (+1 lines)
        Wrote `b.txt`.

        [tool] Run echo hi; pwd (running)
          input: echo hi; pwd

        [client] session/request_permission (running)

        [client] terminal/create (running)

        [client] terminal/wait_for_exit (running)

        [client] terminal/output (running)

        [client] terminal/release (running)

        [tool] Run echo hi; pwd (completed)
          kind: execute
          input: echo hi; pwd
          output:
            hi
            $PROJECT

            [terminal] $ID
        `echo hi; pwd`:

        ```
        [`echo hi; pwd` ended with exit code 0, through the editor, … s]
        hi
        $PROJECT
        ```

        [done] end_turn
    "#]],
    );
    assert_eq!(code, Some(0));
    assert_eq!(scene.read_file("b.txt"), "hi");
    check_nothing_runs(&scene);
}

#[test]
fn a_client_that_serves_nothing_has_it_done_on_this_machine() {
    let scene = new_project();
    let arguments = ["--approve-all", "--no-fs", "--no-terminal"];
    let Some(output) = run_acpx(&scene, &arguments, &["exec", THREE_STEPS_PROMPT]) else { return };
    let code = check(
        &scene,
        &output,
        expect![[r#"
        [client] initialize (running)

        [client] session/new (running)

        [tool] Read a.txt (running)
          input: $PROJECT/a.txt
          files: $PROJECT/a.txt

        [tool] Read a.txt (completed)
          kind: read
          input: $PROJECT/a.txt
          files: $PROJECT/a.txt
          output:
            {
              "servedBy": "local",
              "firstLine": 1,
              "lines": 2,
              "totalLines": 2
            }

            one
            two
        `a.txt`:

        ```txt
        [a.txt: all of it, 2 lines, read on the agent's own machine]
        one
        two
        ```

        [tool] Write b.txt (running)
          input: $PROJECT/b.txt
          files: $PROJECT/b.txt

        [client] session/request_permission (running)

        [tool] Write b.txt (completed)
          kind: edit
          input: $PROJECT/b.txt
          files: $PROJECT/b.txt:1
          output:
            {
              "servedBy": "local",
              "outcome": "created",
              "readBack": true,
              "changedByEditor": false,
              "lines": 1
            }

            diff $PROJECT/b.txt (+1 lines)
        Wrote `b.txt`.

        [tool] Run echo hi; pwd (running)
          input: echo hi; pwd

        [client] session/request_permission (running)

        [tool] Run echo hi; pwd (completed)
          kind: execute
          input: echo hi; pwd
          output:
            hi
            $PROJECT

            [`echo hi; pwd` ended with exit code 0, on the agent's own machine, … s]
            hi
            $PROJECT
        `echo hi; pwd`:

        ```
        [`echo hi; pwd` ended with exit code 0, on the agent's own machine, … s]
        hi
        $PROJECT
        ```

        [done] end_turn
    "#]],
    );
    assert_eq!(code, Some(0));
    assert_eq!(scene.read_file("b.txt"), "hi");
    check_nothing_runs(&scene);
}

#[test]
fn files_of_the_client_and_commands_of_this_machine() {
    let scene = new_project();
    let arguments = ["--approve-all", "--no-terminal", "--format", "quiet"];
    let Some(output) = run_acpx(&scene, &arguments, &["exec", THREE_STEPS_PROMPT]) else { return };
    let code = check(
        &scene,
        &output,
        expect![[r#"
        `a.txt`:

        ```txt
        [a.txt: all of it, 2 lines, read through the editor]
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
    assert_eq!(code, Some(0));
    assert_eq!(scene.read_file("b.txt"), "hi");
    check_nothing_runs(&scene);
}

#[test]
fn a_user_who_allows_nothing_has_nothing_done() {
    let scene = new_project();
    let Some(output) = run_acpx(&scene, &["--deny-all", "--format", "quiet"], &["exec", THREE_STEPS_PROMPT])
    else {
        return;
    };
    let code = check(
        &scene,
        &output,
        expect![[r#"
        Reading `a.txt` did not work:

        ```
        a.txt: the editor says: Internal error: {"details":"Permission denied for fs/read_text_file (--deny-all)"}
        ```

        I stop here; 2 commands were not done.
    "#]],
    );
    // acpx's exit code for this.
    assert_eq!(code, Some(5));
    for step in ["write b.txt: hi", "run touch c.txt"] {
        let arguments = ["--deny-all", "--no-fs", "--format", "quiet"];
        let output = run_acpx(&scene, &arguments, &["exec", step]).unwrap();
        let said = String::from_utf8(output.stdout).unwrap();
        assert!(said.contains("permission denied: the user said no"), "{step}: {said}");
    }
    assert_eq!(std::fs::read_dir(scene.project()).unwrap().count(), 1);
    check_nothing_runs(&scene);
}

#[test]
fn a_user_who_allows_reads_has_files_read() {
    let scene = new_project();
    let arguments = ["--approve-reads", "--non-interactive-permissions", "deny", "--format", "quiet"];
    let Some(output) = run_acpx(&scene, &arguments, &["exec", THREE_STEPS_PROMPT]) else { return };
    let code = check(
        &scene,
        &output,
        expect![[r#"
        `a.txt`:

        ```txt
        [a.txt: all of it, 2 lines, read through the editor]
        one
        two
        ```Writing `b.txt` did not work:

        ```
        permission denied: the user said no; do something else, or ask what to do instead
        ```

        I stop here; 1 command was not done.
    "#]],
    );
    assert_eq!(code, Some(5));
    check_nothing_runs(&scene);
}

/// acpx logs every message of both sides.
#[test]
fn every_call_ends_and_every_request_is_answered() {
    let scene = new_project();
    let prompt =
        format!("{THREE_STEPS_PROMPT}\nlist\nfind two\nplan: a; b\nthink hard\nrun exit 3\nread missing.txt");
    let arguments = ["--approve-all", "--format", "json", "--json-strict"];
    let Some(output) = run_acpx(&scene, &arguments, &["exec", &prompt]) else { return };
    assert_eq!(output.status.code(), Some(0));
    let text = String::from_utf8(output.stdout).unwrap();
    let mut told = String::new();
    let mut open = Vec::new();
    for line in text.lines() {
        let message: Value = serde_json::from_str(line).unwrap();
        if let (Some(_), Some(id)) = (message.get("method"), message.get("id")) {
            open.push(id.clone());
        } else if let Some(id) = message.get("id") {
            let at = open.iter().position(|asked| asked == id).expect("an answer to a question");
            open.remove(at);
        }
        let update = &message["params"]["update"];
        if let Some("tool_call" | "tool_call_update") = update["sessionUpdate"].as_str() {
            let status = update["status"].as_str().unwrap_or("-");
            let title = update["title"].as_str().unwrap_or_default();
            told += format!("{} {status} {title}", update["toolCallId"].as_str().unwrap()).trim_end();
            told += "\n";
        }
    }
    assert!(open.is_empty(), "never answered: {open:?}");
    expect![[r#"
        turn1_1 - Read a.txt
        turn1_1 in_progress
        turn1_1 completed
        turn1_2 - Write b.txt
        turn1_2 -
        turn1_2 in_progress
        turn1_2 completed
        turn1_3 - Run echo hi; pwd
        turn1_3 in_progress
        turn1_3 -
        turn1_3 completed
        turn1_4 - List .
        turn1_4 in_progress
        turn1_4 completed
        turn1_5 - Search for two in .
        turn1_5 in_progress
        turn1_5 completed
        turn1_6 - Run exit 3
        turn1_6 in_progress
        turn1_6 -
        turn1_6 failed
    "#]]
    .assert_eq(&told);
    check_nothing_runs(&scene);
}

#[test]
fn sessions_live_on_between_prompts() {
    let scene = new_project();
    let usual = ["--approve-all", "--format", "quiet", "--ttl", "60"];
    let Some(output) = run_acpx(&scene, &usual, &["sessions", "new", "--name", "mine"]) else { return };
    assert_eq!(output.status.code(), Some(0));
    let id = String::from_utf8(output.stdout).unwrap();
    let mut told = String::new();
    let steps: &[&[&str]] = &[
        &["prompt", "-s", "mine", "read a.txt"],
        &["set-mode", "-s", "mine", "read-only"],
        &["prompt", "-s", "mine", "write b.txt: hi"],
        &["set", "-s", "mine", "mode", "full"],
        &["prompt", "-s", "mine", "write b.txt: hi"],
        &["sessions", "close", "mine"],
    ];
    for step in steps {
        let output = run_acpx(&scene, &usual, step).unwrap();
        told += &format!("$ {} => {:?}\n", step.join(" "), output.status.code());
        told += &super::normalize_output(&scene.normalize(&String::from_utf8(output.stdout).unwrap()));
    }
    expect![[r#"
        $ prompt -s mine read a.txt => Some(0)
        `a.txt`:

        ```txt
        [a.txt: all of it, 2 lines, read through the editor]
        one
        two
        ```
        $ set-mode -s mine read-only => Some(0)
        read-only
        $ prompt -s mine write b.txt: hi => Some(0)
        Writing `b.txt` needs `write_text_file` or `ide_write_file` or `write_file`, which is not offered: the session may be read-only.
        $ set -s mine mode full => Some(0)
        full
        $ prompt -s mine write b.txt: hi => Some(0)
        Wrote `b.txt`.
        $ sessions close mine => Some(0)
    "#]].assert_eq(&told);
    let listed = run_acpx(&scene, &usual, &["sessions", "list"]).unwrap();
    let listed = String::from_utf8(listed.stdout).unwrap();
    assert!(listed.contains(id.trim()), "{listed}");
    check_nothing_runs(&scene);
}

#[test]
fn ctrl_c_ends_the_turn_and_what_it_started() {
    let scene = new_project();
    let prompt = "run echo begun > begun.txt; exec sleep 600";
    let begun = scene.project().join("begun.txt");
    for arguments in [&["--approve-all"][..], &["--approve-all", "--no-terminal"]] {
        let Some(mut command) = acpx_command(&scene, arguments, &["exec", prompt]) else { return };
        let mut child = command.stdout(Stdio::piped()).stderr(Stdio::null()).spawn().unwrap();
        let mut lines = BufReader::new(child.stdout.take().unwrap()).lines().map(Result::unwrap);
        // The command runs, and the agent waits for its end, in the client's terminal or its own.
        if !arguments.contains(&"--no-terminal") {
            assert!(lines.any(|line| line.starts_with("[client] terminal/wait_for_exit")));
        }
        wait_until("the command's start", || {
            assert!(child.try_wait().unwrap().is_none(), "acpx has ended");
            begun.exists()
        });
        let interrupt = ["-INT".to_owned(), child.id().to_string()];
        assert!(Command::new("kill").args(interrupt).status().unwrap().success());
        let rest: Vec<String> = lines.collect();
        let failed = rest.iter().any(|line| line.starts_with("[tool]") && line.ends_with("(failed)"));
        assert!(failed, "{rest:?}");
        // The client's other output about a cancelled request may come before or after.
        assert!(rest.iter().any(|line| line == "[done] cancelled"), "{rest:?}");
        assert_eq!(child.wait().unwrap().code(), Some(0));
        std::fs::remove_file(&begun).unwrap();
        check_nothing_runs(&scene);
    }
}
