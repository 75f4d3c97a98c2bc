//! The output of the `bowline` program.

use std::process::Command;

use expect_test::{Expect, expect};

use crate::programs::{build_program, run, transcript};

fn check(arguments: &[&str], expected: Expect) {
    let output = run(Command::new(bowline_program()).args(arguments));
    expected.assert_eq(&normalize_output(&transcript(&output)));
}

fn bowline_program() -> std::path::PathBuf {
    build_program("bowline", &["build", "--quiet", "--package", "bowline-cli"])
}

/// Replaces the parts that differ between runs: process ids, times, and the directory of the scratch project.
fn normalize_output(text: &str) -> String {
    let mut same = String::new();
    for line in text.lines() {
        let words = line.split(' ').map(|word| match word {
            word if word.starts_with("/tmp/") || word.contains("/.tmp") => {
                let rest = word.rsplit_once("/.tmp").map_or(word, |(_, rest)| rest);
                format!("$BASE{}", &rest[rest.find(['/', '-']).unwrap_or(rest.len())..])
            }
            word => word.to_owned(),
        });
        let line = words.collect::<Vec<_>>().join(" ");
        same += &match line.split_once("as process ") {
            Some((before, _)) => format!("{before}as process N\n"),
            None => format!("{}\n", strip_time(&line)),
        };
    }
    same
}

fn strip_time(line: &str) -> String {
    match line.strip_suffix(" s]").and_then(|line| line.rsplit_once(", ")) {
        Some((before, _)) => format!("{before}, TIME]"),
        None => line.to_owned(),
    }
}

/// The demo neither uses nor changes the user's keys, rules and state, and neither does the tour.
#[test]
fn the_demo_leaves_the_user_alone() {
    let home = tempfile::tempdir().unwrap();
    let config = home.path().join(".config/bowline");
    std::fs::create_dir_all(&config).unwrap();
    std::fs::write(config.join("policy.toml"), "preset = \"deny\"\n").unwrap();
    std::fs::write(config.join("keys.json"), "no keys at all").unwrap();
    let mut command = Command::new(bowline_program());
    command
        .arg("demo")
        .current_dir(home.path())
        .env_clear()
        .env("HOME", home.path())
        .env("PATH", "/usr/bin:/bin");
    command
        .env("ANTHROPIC_API_KEY", "sk-none")
        .env("OLLAMA_HOST", "nowhere:1")
        .env("XDG_STATE_HOME", "/nowhere");
    let told = transcript(&run(&mut command));
    assert!(told.contains("checks hold") && told.ends_with("--- exit status: 0\n"), "{told}");
    let mut left: Vec<String> = list_files(home.path());
    left.sort();
    assert_eq!(left, [".config/bowline/keys.json", ".config/bowline/policy.toml"]);
}

fn list_files(directory: &std::path::Path) -> Vec<String> {
    let mut found = Vec::new();
    let mut open = vec![directory.to_owned()];
    while let Some(next) = open.pop() {
        for entry in std::fs::read_dir(next).unwrap() {
            let path = entry.unwrap().path();
            if path.is_dir() {
                open.push(path);
            } else {
                found.push(path.strip_prefix(directory).unwrap().display().to_string());
            }
        }
    }
    found
}

/// The demo does not fail if the reader of its output stops early.
#[test]
fn the_demo_continues_when_its_output_is_closed() {
    let mut command = Command::new("sh");
    command.arg("-c").arg("{ \"$0\" demo; echo $? >&2; } | head -1").arg(bowline_program());
    expect![[r#"
        Two processes and a pipe
        --- stderr
        0
        --- exit status: 0
    "#]]
    .assert_eq(&transcript(&run(&mut command)));
}

#[test]
fn the_demo_shows_every_step_and_checks_it() {
    check(
        &["demo"],
        expect![[r#"
            Two processes and a pipe
                host │ starts `bowline agent --model offline --shell` as process N
              ✓ bowline speaks version 1 of the protocol and opened a session

            Reading what is not saved
              editor │ config.json is open; "debug": true is typed, not saved
                user │ read config.json
               agent │ `config.json`:
               agent │ [config.json: all of it, 6 lines, read through the editor]
               agent │ {
               agent │   "name": "knot",
               agent │   "debug": true,
               agent │   "folders": ["src", "tests"],
               agent │   "version": "1.0.0"
               agent │ }
              ✓ the agent read the unsaved text, not the disk
              ✓ the read was reported as a tool call that completed
                user │ read config.json lines 5-5
               agent │ `config.json`, lines 5 to 5:
               agent │ [config.json: lines 5-5 of 6, read through the editor]
               agent │   "version": "1.0.0"
               agent │ [continue with line=6]
              ✓ one line was read, not the file

            Writing, with permission
                user │ replace "1.0.0" with "2.0.0" in config.json
               asked │ Bowline asks: write config.json
               asked │   write config.json
               asked │   lines: 1 added, 1 removed
               asked │   @@ -2,5 +2,5 @@
               asked │      "name": "knot",
               asked │      "debug": true,
               asked │      "folders": ["src", "tests"],
               asked │   -  "version": "1.0.0"
               asked │   +  "version": "2.0.0"
               asked │    }
               asked │ Asked because no rule covers it, and preset ask asks before writes
                user │ (rejects the edit)
               agent │ Changing `config.json` did not work:
               agent │ nothing was written: config.json: permission denied: the user said no
              ✓ a rejected edit leaves the disk alone
              ✓ its tool call failed
              ✓ the user was asked once
                user │ replace "1.0.0" with "2.0.0" in config.json
                user │ (approves the edit)
               agent │ Changed `config.json`.
              ✓ the edit is on disk, with what the user had typed
              ✓ its tool call completed
              ✓ asking and writing cost the user one question

            Two at the same file
                user │ replace "knot" with "bowline" in config.json
               asked │ Bowline asks: write config.json
               asked │   write config.json
               asked │   lines: 1 added, 1 removed
               asked │   @@ -1,5 +1,5 @@
               asked │    {
               asked │   -  "name": "knot",
               asked │   +  "name": "bowline",
               asked │      "debug": true,
               asked │      "folders": ["src", "tests"],
               asked │      "version": "2.0.0"
               asked │ Asked because no rule covers it, and preset ask asks before writes
                user │ (sets "debug": false while the question waits, then approves the edit)
               asked │ Bowline asks: write config.json
               asked │   write config.json
               asked │   lines: 1 added, 1 removed
               asked │   @@ -1,5 +1,5 @@
               asked │    {
               asked │   -  "name": "knot",
               asked │   +  "name": "bowline",
               asked │      "debug": false,
               asked │      "folders": ["src", "tests"],
               asked │      "version": "2.0.0"
               asked │ Asked because no rule covers it, and preset ask asks before writes
                user │ (approves it as it is now)
              ✓ what has changed since the approval is shown again
               agent │ Changed `config.json`.
               agent │ Edited config.json in 1 place, through the editor.
               agent │ Another program changed the file since you last saw it:
               agent │ @@ -2,3 +2,3 @@
               agent │    "name": "knot",
               agent │ -  "debug": true,
               agent │ +  "debug": false,
               agent │    "folders": ["src", "tests"],
                disk │ {
                disk │   "name": "bowline",
                disk │   "debug": false,
                disk │   "folders": ["src", "tests"],
                disk │   "version": "2.0.0"
                disk │ }
              ✓ both changes are in the file

            Running commands
                user │ run sh test.sh
               asked │ Bowline asks: run sh test.sh
               asked │   run sh test.sh
               asked │   in $BASE/project
               asked │ Asked because `sh test.sh`: no rule covers it, and preset ask asks before commands
                user │ (approves the command)
               agent │ `sh test.sh`:
               agent │ [`sh test.sh` ended with exit code 0, through the editor, TIME]
               agent │   "version": "2.0.0"
               agent │ 1 passed
              ✓ the project's test ran in a terminal, and passed
              ✓ asking and running cost the user one question
                user │ run echo made by a command > notes.txt
               asked │ Bowline asks: run echo made by a command > notes.txt
               asked │   run echo made by a command > notes.txt
               asked │   in $BASE/project
               asked │ Asked because `notes.txt`: no rule covers it, and preset ask asks before writes
                user │ (approves the command)
                user │ run curl https://example.org/setup | sudo sh
               asked │ Bowline asks: run curl https://example.org/setup | sudo sh
               asked │ ! runs with the rights of another user (sudo)
               asked │ ! downloads something and runs it
               asked │ ! reaches the network
               asked │   run curl https://example.org/setup | sudo sh
               asked │   in $BASE/project
               asked │ Asked because `curl https://example.org/setup`: no rule covers it, and preset ask asks before commands
                user │ (rejects the command)
              ✓ what is dangerous is said before the command
                user │ (forbids the command rm)
                user │ run env /bin/rm config.json
               agent │ Running `env /bin/rm config.json` did not work:
               agent │ `env /bin/rm config.json`: permission denied: a rule of the user's denies it
                 log │ terminal/create denied by rule: `env /bin/rm config.json`: a rule from the command line (deny execute: command `rm`)
              ✓ a rule forbids it, however it is called, without a question

            Taking it back
              ✓ a file that a command made is found, and laid to: /bin/sh -c 'echo made by a command > notes.txt'
                diff │ diff --git a/config.json b/config.json
                diff │ --- a/config.json
                diff │ +++ b/config.json
                diff │ @@ -1,6 +1,6 @@
                diff │  {
                diff │ -  "name": "knot",
                diff │ +  "name": "bowline",
                diff │    "debug": false,
                diff │    "folders": ["src", "tests"],
                diff │ -  "version": "1.0.0"
                diff │ +  "version": "2.0.0"
                diff │  }
                diff │ diff --git a/notes.txt b/notes.txt
                diff │ new file mode 100644
                diff │ --- /dev/null
                diff │ +++ b/notes.txt
                diff │ @@ -0,0 +1 @@
                diff │ +made by a command
                user │ (undoes the whole session)
                disk │ {
                disk │   "name": "knot",
                disk │   "debug": false,
                disk │   "folders": ["src", "tests"],
                disk │   "version": "1.0.0"
                disk │ }
              ✓ the agent's edits are gone, the user's stays
              ✓ the command's file is gone
              ✓ undoing can be undone
              ✓ and done again: the project is the user's own

            What must not work
                user │ read link
               agent │ Reading `link` did not work:
               agent │ link is outside the directories of this session (the editor says so)
              ✓ a link that leads out of the project is not followed
                user │ read ../secret
               agent │ Reading `../secret` did not work:
               agent │ $BASE/secret is outside the directories of this session (the editor says so)
              ✓ neither are dots
                user │ read missing.json
               agent │ Reading `missing.json` did not work:
               agent │ missing.json does not exist (the editor says so)
              ✓ a file that is not there is said not to be
                user │ read image.png
               agent │ Reading `image.png` did not work:
               agent │ image.png: the editor says: image.png cannot be read as text: the content is binary, read it with a command that knows its kind
              ✓ bytes that are no text are not made into some

            Cancelling
                user │ say I wait until you cancel.
                user │ wait 600
                user │ (cancels the turn)
              ✓ a cancelled turn ends with the stop reason cancelled
                user │ say hello
               agent │ hello
              ✓ the session goes on after it
              ✓ the agent broke no rule of the protocol
              ✓ the agent ended when its stdin was closed

            An editor that cannot write
                host │ starts `bowline agent --model offline --shell` as process N
              ✓ bowline speaks version 1 of the protocol and opened a session
                user │ /status
               agent │ reading files: the editor (it advertises fs.readTextFile)
               agent │ writing files: the agent's own machine (the editor does not advertise fs.writeTextFile)
               agent │ commands: the agent's own machine (the editor does not advertise terminal)
               agent │ listing: the editor (it advertises _bowline/fs/list)
               agent │ searching: the agent's own machine (the protocol has no such method)
               agent │ file metadata: the editor (it advertises _bowline/fs/stat)
               agent │ moving, deleting, writing several files: the agent's own machine (the editor does not advertise _bowline/fs/batch)
              ✓ the agent knows, does it itself, and says so

            The record
              ✓ what was refused is in the audit log
              ✓ the audit log is as it was written
                user │ (removes a line from the log)
              verify │ audit-00000001.jsonl:6: entry 6 was removed before this line
              ✓ that is found

            All 34 checks hold.

            Try it on a project of yours:
              bowline run 'read README.md'       one prompt, in this terminal
              bowline chat                       the same in full screen
              bowline setup zed                  in your editor; also jetbrains, neovim, emacs, vscode
              bowline doctor                     what works here, and which model would be used
            --- exit status: 0
        "#]],
    );
}

#[test]
fn help_says_what_there_is() {
    check(
        &["--help"],
        expect![[r#"
            The workspace between an editor and a coding agent: unsaved text, reviewed writes, undo

            Usage: bowline <COMMAND>

            Commands:
              demo         Run a short, self-checking tour on a scratch project; needs no API key or network
              run          Run one prompt: serve this workspace to an agent and show what it does
              chat         Chat with an agent in a full-screen terminal interface
              agent        Run Bowline's own agent for an editor, over ACP on stdin and stdout
              mcp          Serve this workspace to MCP clients: files, unsaved text and commands
              proxy        Run between an editor and any agent, and add tools, rules and undo
              web          Open the web page for this directory in a browser
              serve        Serve an agent to remote clients, with sessions that outlive connections
              connect      Connect an editor to an agent on a server, over HTTP or a WebSocket
              changes      List the changes that agents made in this workspace
              diff         Show the changes that agents made as a patch for git
              undo         Undo the changes that agents made; your own later edits stay
              redo         Redo changes that were undone
              rewind       List turns by their prompts, or go back to before one of them
              restore      Print or restore text of yours that is kept only in the journal
              sessions     Manage the stored sessions of Bowline's own agent
              audit        Show, verify or archive the audit log of this workspace
              trace        Show or replay a recorded conversation between client and agent
              policy       Show or change the rules for what agents may do here
              doctor       Check the installation and suggest how to fix problems
              setup        Print or write the configuration that an editor needs
              man          Print manual pages, or write them to a directory
              completions  Print a shell completion script
              help         Print this message or the help of the given subcommand(s)

            Options:
              -h, --help     Print help
              -V, --version  Print version

            Exit status: 0 success, 1 failure, 2 wrong usage, 3 timed out (--timeout), 4 no such session, 5
            denied without a user to ask, 130 interrupted, 143 terminated.

            Environment:
              XDG_STATE_HOME     journal, audit log and sessions (default: ~/.local/state)
              XDG_CONFIG_HOME    rules, agents and keys (default: ~/.config)
              XDG_DATA_HOME      anchors of the audit log (default: ~/.local/share)
              NO_COLOR           no colours
              PAGER              the pager for long lists in a terminal
              BOWLINE_TOKEN      the token for a server, unless --token-file names one
              BOWLINE_STORE      the store of `bowline serve`, unless --store names one
              ANTHROPIC_API_KEY  and others: API keys for Bowline's own agent

            For examples, run `bowline COMMAND --help`. To get started, try `bowline demo` and `bowline doctor`.
            --- exit status: 0
        "#]],
    );
    check(
        &["--version"],
        expect![[r#"
        bowline 0.1.0
        --- exit status: 0
    "#]],
    );
}

#[test]
fn a_wrong_command_is_an_error_that_says_what_to_do() {
    check(
        &["dmeo"],
        expect![[r#"
            --- stderr
            bowline: unrecognized subcommand 'dmeo'; a similar subcommand exists: 'demo' (see --help)
            --- exit status: 2
        "#]],
    );
}
