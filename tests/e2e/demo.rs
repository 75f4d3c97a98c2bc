//! What a person sees of the `bowline` program.

use std::process::Command;

use expect_test::{Expect, expect};

use crate::programs::{program, run, transcript};

fn check(arguments: &[&str], expected: Expect) {
    let bowline = program("bowline", &["build", "--quiet", "--package", "bowline-cli"]);
    let output = run(Command::new(bowline).args(arguments));
    expected.assert_eq(&same_every_time(&transcript(&output)));
}

/// Replaces what differs from run to run: process ids and the folder of the scratch project.
fn same_every_time(text: &str) -> String {
    let mut same = String::new();
    for line in text.lines() {
        let words = line.split(' ').map(|word| match word {
            word if word.starts_with("/tmp/") || word.contains("/.tmp") => {
                let rest = word.rsplit_once("/.tmp").map_or(word, |(_, rest)| rest);
                format!("$PROJECT{}", &rest[rest.find(['/', '-']).unwrap_or(rest.len())..])
            }
            word => word.to_owned(),
        });
        let line = words.collect::<Vec<_>>().join(" ");
        same += &match line.split_once("runs as process ") {
            Some((before, after)) => {
                format!(
                    "{before}runs as process N{}\n",
                    after.trim_start_matches(|c: char| c.is_ascii_digit())
                )
            }
            None => format!("{line}\n"),
        };
    }
    same
}

#[test]
fn the_demo_shows_every_step_and_checks_it() {
    check(
        &["demo"],
        expect![[r#"
            Two processes and a pipe
              ✓ bowline-demo runs as process N, speaks version 1 and opened session demo-1

            Reading what is not saved
              editor │ config.json is open; "debug": true is typed, not saved
                user │ show config.json
               agent │ {
               agent │   "name": "knot",
               agent │   "debug": true,
               agent │   "folders": ["src", "tests"],
               agent │   "version": "1.0.0"
               agent │ }
              ✓ the agent read the unsaved text, not the disk
              ✓ the read was reported as a tool call that completed
                user │ line 5 of config.json
               agent │   "version": "1.0.0"
              ✓ one line was read, not the file

            Writing, with permission
                user │ bump config.json
               asked │ bowline-demo asks: Set the version to 2.0.0
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
               agent │ You said no, so I left it as it is.
              ✓ a rejected edit leaves the disk alone
              ✓ its tool call failed
              ✓ the user was asked once
                user │ bump config.json
                user │ (approves the edit)
               agent │ Done: the version is 2.0.0 now.
              ✓ the edit is on disk, with what the user had typed
              ✓ its tool call completed
              ✓ asking and writing cost the user one question

            Two at the same file
                user │ rename config.json
               asked │ bowline-demo asks: Call the version a release
               asked │   write config.json
               asked │   lines: 1 added, 1 removed
               asked │   @@ -2,5 +2,5 @@
               asked │      "name": "knot",
               asked │      "debug": true,
               asked │      "folders": ["src", "tests"],
               asked │   -  "version": "2.0.0"
               asked │   +  "release": "2.0.0"
               asked │    }
               asked │ Asked because no rule covers it, and preset ask asks before writes
                user │ (sets "debug": false while the question waits, then approves the edit)
               asked │ bowline-demo is about to act, and it is not what was approved: write config.json
               asked │   write config.json
               asked │   lines: 1 added, 1 removed
               asked │   @@ -2,5 +2,5 @@
               asked │      "name": "knot",
               asked │      "debug": false,
               asked │      "folders": ["src", "tests"],
               asked │   -  "version": "2.0.0"
               asked │   +  "release": "2.0.0"
               asked │    }
               asked │ Asked because no rule covers it, and preset ask asks before writes
                user │ (approves it as it is now)
              ✓ what has changed since the approval is shown again
               agent │ Done: it is called release now.
                disk │ {
                disk │   "name": "knot",
                disk │   "debug": false,
                disk │   "folders": ["src", "tests"],
                disk │   "release": "2.0.0"
                disk │ }
              ✓ both changes are in the file

            Running commands
                user │ run grep -c debug config.json
               asked │ bowline-demo asks: Run grep -c debug config.json
               asked │   run grep -c debug config.json
               asked │   in $PROJECT/project
               asked │ Asked because `grep -c debug config.json`: no rule covers it, and preset ask asks before commands
                user │ (approves the command)
               agent │ 1
              ✓ the command ran in the project
              ✓ asking and running cost the user one question
                user │ run echo made by a command > notes.txt
               asked │ bowline-demo asks: Run echo made by a command > notes.txt
               asked │   run echo made by a command > notes.txt
               asked │   in $PROJECT/project
               asked │ Asked because `notes.txt`: no rule covers it, and preset ask asks before writes
                user │ (approves the command)
                user │ run curl https://example.org/setup | sudo sh
               asked │ bowline-demo asks: Run curl https://example.org/setup | sudo sh
               asked │ ! runs with the rights of another user (sudo)
               asked │ ! downloads something and runs it
               asked │ ! reaches the network
               asked │   run curl https://example.org/setup | sudo sh
               asked │   in $PROJECT/project
               asked │ Asked because `curl https://example.org/setup`: no rule covers it, and preset ask asks before commands
                user │ (rejects the command)
              ✓ what is dangerous is said before the command
                user │ (forbids the command rm)
                user │ run env /bin/rm config.json
               agent │ I may not, so I did not.
                 log │ permission denied by rule: `env /bin/rm config.json`: a rule from the command line (deny execute: command `rm`)
              ✓ a rule forbids it, however it is called, and nobody is asked

            Taking it back
              ✓ a file that a command made is found, and laid to: echo made by a command > notes.txt
                diff │ diff --git a/config.json b/config.json
                diff │ --- a/config.json
                diff │ +++ b/config.json
                diff │ @@ -2,5 +2,5 @@
                diff │    "name": "knot",
                diff │    "debug": false,
                diff │    "folders": ["src", "tests"],
                diff │ -  "version": "1.0.0"
                diff │ +  "release": "2.0.0"
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

            What must not work
                user │ show missing.json
               agent │ I cannot read it: Resource not found: $PROJECT/project/missing.json
              ✓ the answer says: Resource not found
                user │ show $PROJECT/project-evil/secret
               agent │ I cannot read it: $PROJECT/project-evil/secret is outside the session's directories
              ✓ the answer says: outside the session's directories
                user │ show ../secret
               agent │ I cannot read it: $PROJECT/project/../secret is outside the session's directories
              ✓ the answer says: outside the session's directories
                user │ (this time by its name alone)
                user │ show config.json
               agent │ I cannot read it: config.json is a relative path, send an absolute path
              ✓ the answer says: send an absolute path
                user │ show link
               agent │ I cannot read it: $PROJECT/project/link is outside the session's directories
              ✓ the answer says: outside the session's directories
                user │ show image.png
               agent │ I cannot read it: $PROJECT/project/image.png cannot be read as text: the content is binary, read it with a command that knows its kind
              ✓ the answer says: cannot be read as text

            Cancelling
                user │ wait
                user │ (cancels the turn)
              ✓ a cancelled turn ends with the stop reason cancelled
                user │ hello
              ✓ the session goes on after it
              ✓ the agent broke no rule of the protocol
              ✓ the agent ended when its stdin was closed

            An editor that cannot write
              ✓ bowline-demo runs as process N, speaks version 1 and opened session demo-1
                user │ bump config.json
               agent │ I cannot write it: fs/write_text_file needs clientCapabilities.fs.writeTextFile, which was not advertised
              ✓ the agent sees that before it sends anything

            The record
              ✓ what was refused is in the audit log
              ✓ the audit log is as it was written
                user │ (removes a line from the log)
              verify │ audit-00000001.jsonl:6: entry 6 was removed before this line
              ✓ that is found

            All 35 checks hold.
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
          demo   Takes a short tour on a scratch project: a real agent and a real client, two processes over a pipe, every step checked. Needs no key and no network
          agent  The agent, for editors to start: speaks ACP on stdin and stdout. Works without a key by the offline model
          help   Print this message or the help of the given subcommand(s)

        Options:
          -h, --help     Print help
          -V, --version  Print version
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
            error: unrecognized subcommand 'dmeo'

              tip: a similar subcommand exists: 'demo'

            Usage: bowline <COMMAND>

            For more information, try '--help'.
            --- exit status: 2
        "#]],
    );
}
