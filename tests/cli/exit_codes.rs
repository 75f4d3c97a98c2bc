//! Tests of the exit of every command, as scripts see it: one table of problems, exit codes, and one-line messages.
//!
//! 0 done, 1 failure, 2 usage, 3 timeout, 4 no such session, 5 denied; 130 if interrupted and 143 if terminated, which
//! `run::interrupt` and `doctor::agents` test.

use expect_test::expect;

use crate::fixture::{CliFixture, write_script};

/// Runs the program in a scene, and adds a row: arguments, exit code, the first line of stdout, and stderr.
fn add_row(scene: &CliFixture, arguments: &[&str], table: &mut String) {
    let output = scene.run_command(scene.command(arguments), "");
    let stderr = scene.normalize(&String::from_utf8(output.stderr).unwrap());
    // The message of a usage error precedes its help.
    let said: Vec<&str> = stderr.lines().take_while(|line| !line.is_empty()).collect();
    let code = output.status.code().map_or_else(|| output.status.to_string(), |code| code.to_string());
    let arguments = scene.normalize(&arguments.join(" "));
    *table += &format!("{code} {arguments}\n");
    if let Some(first) = scene.normalize(&String::from_utf8_lossy(&output.stdout)).lines().next() {
        *table += &format!("    > {first}\n");
    }
    for line in said {
        *table += &format!("    {line}\n");
    }
}

fn fixture() -> CliFixture {
    let scene = CliFixture::new();
    scene.write_file("a.txt", "one\ntwo\n");
    scene.write_file("dir/b.txt", "b\n");
    std::fs::write(scene.base().join("broken.toml"), "rules = [\n").unwrap();
    std::fs::create_dir(scene.base().join("rules.d")).unwrap();
    scene
}

#[test]
fn what_a_command_line_names_and_cannot_be_used_is_wrong_usage() {
    let scene = fixture();
    let mut table = String::new();
    for arguments in [
        &["run", "-f", "dir"][..],
        &["run", "-f", "missing"],
        &["run", "--cwd", "missing", "x"],
        &["run", "--cwd", "..", "x"],
        &["run", "--cwd", "a.txt", "x"],
        &["run", "--add-dir", "a.txt", "x"],
        &["run", "--open", "dir", "x"],
        &["run", "--open", "a.txt=dir", "x"],
        &["run", "--policy", "missing", "x"],
        &["run", "--policy", "a.txt", "x"],
        &["run", "--policy", "../rules.d", "x"],
        &["run", "--policy", "../broken.toml", "x"],
        &["run", "--trace", "../rules.d", "x"],
        &["run", "--trace", "missing/trace", "x"],
        &["run", "--mcp", "foo=ftp://x", "x"],
        &["run", "--mcp", "foo=no-such-server --acp", "x"],
        &["run", "--mcp", "foo=/no/such/server", "x"],
        &["run", "--mcp", "foo=dir/", "x"],
        &["run", "--agent", "no-such-agent", "x"],
        &["run", "--agent", "./no-such-agent", "x"],
        &["run", "--agent", "./a.txt", "x"],
        &["run", "--agent", "./dir", "x"],
        &["run", "--model", "nosuch", "x"],
        &["run", "--model", "script:missing", "x"],
        &["proxy", "--", "no-such-agent"],
        &["proxy", "--", "./no-such-agent"],
        &["proxy", "--", "./a.txt"],
        &["trace", "show", "missing"],
        &["trace", "show", "dir"],
        &["trace", "show", "a.txt"],
        &["trace", "replay", "missing", "--as", "agent"],
        &["chat"],
        &["changes", "--cwd", "missing"],
        &["diff", "--cwd", "a.txt"],
        &["undo", "--turn", "0"],
        &["undo", "--change", "1", "--written-only"],
        &["redo", "--cwd", "missing"],
        &["sessions", "--cwd", "missing"],
        &["sessions", "show"],
        &["audit", "--cwd", "missing"],
        &["audit", "--since", "yesterday"],
        &["policy", "--cwd", "missing"],
        &["policy", "explain", "fly", "x"],
        &["policy", "preset", "yolo"],
        &["setup", "ed"],
        &["completions", "cmd"],
        &["doctor", "--timeout", "0"],
    ] {
        add_row(&scene, arguments, &mut table);
        assert!(table.lines().rfind(|line| !line.starts_with("    ")).unwrap().starts_with("2 "), "{table}");
    }
    expect![[r#"
        2 run -f dir
            bowline: cannot read the prompt dir: is a directory
        2 run -f missing
            bowline: cannot read the prompt missing: No such file or directory (os error 2)
        2 run --cwd missing x
            bowline: cannot use the directory $PROJECT/missing: No such file or directory (os error 2)
        2 run --cwd .. x
            bowline: $HOME/.local/state/bowline lies inside the workspace, where an agent could change it: name a directory below with --cwd, or keep Bowline's own files elsewhere (XDG_STATE_HOME, XDG_DATA_HOME)
        2 run --cwd a.txt x
            bowline: cannot open the directory $PROJECT/a.txt: Not a directory (os error 20)
        2 run --add-dir a.txt x
            bowline: cannot open the directory $PROJECT/a.txt: Not a directory (os error 20)
        2 run --open dir x
            bowline: cannot open $PROJECT/dir: $PROJECT/dir is a directory: list it, or name a file in it
        2 run --open a.txt=dir x
            bowline: cannot read $PROJECT/dir: Is a directory (os error 21)
        2 run --policy missing x
            bowline: cannot read the rules $PROJECT/missing: No such file or directory (os error 2)
        2 run --policy a.txt x
            bowline: the rules in $PROJECT/a.txt lie inside the workspace $PROJECT, where an agent could change them: keep them elsewhere
        2 run --policy ../rules.d x
            bowline: $BASE/rules.d is not a regular file
        2 run --policy ../broken.toml x
            bowline: $BASE/broken.toml:1:10: unclosed array, expected `]`
        2 run --trace ../rules.d x
            bowline: $PROJECT/../rules.d is there and is no trace: name another file, or remove this one
        2 run --trace missing/trace x
            bowline: cannot write the trace $PROJECT/missing/trace: No such file or directory (os error 2)
        2 run --mcp foo=ftp://x x
            bowline: the MCP server foo cannot be reached by ftp: its URL begins with https:// or http://
        2 run --mcp foo=no-such-server --acp x
            bowline: the MCP server foo: there is no program no-such-server in PATH
        2 run --mcp foo=/no/such/server x
            bowline: the MCP server foo: there is no program /no/such/server
        2 run --mcp foo=dir/ x
            bowline: the MCP server foo: there is no program $PROJECT/dir/
        2 run --agent no-such-agent x
            bowline: there is no agent no-such-agent: not found in PATH, and $HOME/.config/bowline/config.toml names none
        2 run --agent ./no-such-agent x
            bowline: cannot start the agent $PROJECT/no-such-agent: there is no such program
        2 run --agent ./a.txt x
            bowline: cannot start the agent $PROJECT/a.txt: it is no program, or may not be run
        2 run --agent ./dir x
            bowline: cannot start the agent $PROJECT/dir: it is no program, or may not be run
        2 run --model nosuch x
            bowline: there is no model nosuch: names are `offline`, `anthropic/NAME`, `openai/NAME`, `gemini/NAME`, `ollama/NAME`, `compatible/NAME`, `script:FILE` and `replay:FILE`
        2 run --model script:missing x
            bowline: there is no model script:missing: No such file or directory (os error 2)
        2 proxy -- no-such-agent
            bowline: cannot start the agent no-such-agent: there is no such program
        2 proxy -- ./no-such-agent
            bowline: cannot start the agent ./no-such-agent: there is no such program
        2 proxy -- ./a.txt
            bowline: cannot start the agent ./a.txt: it is no program, or may not be run
        2 trace show missing
            bowline: cannot read the trace missing: No such file or directory (os error 2)
        2 trace show dir
            bowline: cannot read the trace dir: Is a directory (os error 21)
        2 trace show a.txt
            bowline: a.txt has no messages: is it a file that --trace wrote?
        2 trace replay missing --as agent
            bowline: cannot read the trace missing: No such file or directory (os error 2)
        2 chat
            bowline: chat needs a terminal that can move its cursor: start it in one, or use `bowline run`, also in scripts and pipes
        2 changes --cwd missing
            bowline: cannot use missing: No such file or directory (os error 2)
        2 diff --cwd a.txt
            bowline: a.txt is not a directory
        2 undo --turn 0
            bowline: invalid value '0' for '--turn [<N>]': turns are counted from 1; `last` is the last one (see --help)
        2 undo --change 1 --written-only
            bowline: the argument '--change <ID>' cannot be used with '--written-only' (see --help)
        2 redo --cwd missing
            bowline: cannot use missing: No such file or directory (os error 2)
        2 sessions --cwd missing
            bowline: cannot use missing: No such file or directory (os error 2)
        2 sessions show
            bowline: the following required arguments were not provided: <ID> (see --help)
        2 audit --cwd missing
            bowline: cannot use missing: No such file or directory (os error 2)
        2 audit --since yesterday
            bowline: "yesterday" is no time: write a date such as 2027-01-31 or 2027-01-31T12:00:00Z, or a span such as 30m, 2h, 7d
        2 policy --cwd missing
            bowline: cannot use missing: No such file or directory (os error 2)
        2 policy explain fly x
            bowline: invalid value 'fly' for '<KIND>' [possible values: read, write, delete, execute, fetch] (see --help)
        2 policy preset yolo
            bowline: yolo is not one of ask, accept-edits, read-only, full, deny, none
        2 setup ed
            bowline: invalid value 'ed' for '<EDITOR>' [possible values: zed, jetbrains, neovim, emacs, vscode, claude-desktop, claude-code, cursor] (see --help)
        2 completions cmd
            bowline: invalid value 'cmd' for '<SHELL>' [possible values: bash, elvish, fish, powershell, zsh] (see --help)
        2 doctor --timeout 0
            bowline: invalid value '0' for '--timeout <SECONDS>': 0 is not in 1..=600 (see --help)
    "#]].assert_eq(&table);
}

#[test]
fn what_is_not_there_is_a_failure_and_a_session_that_is_not_there_has_its_own_code() {
    let scene = fixture();
    let mut table = String::new();
    for arguments in [
        &["changes"][..],
        &["diff"],
        &["undo"],
        &["redo"],
        &["sessions"],
        &["audit"],
        &["audit", "verify"],
        &["policy"],
        &["policy", "forget", "3"],
        &["sessions", "show", "last"],
        &["sessions", "export", "3f2a"],
        &["sessions", "delete", "3f2a"],
        &["run", "--session", "3f2a", "x"],
        &["run", "--session", "last", "x"],
    ] {
        add_row(&scene, arguments, &mut table);
    }
    // An agent has worked here, and nothing of it is left.
    scene.run(&["run", "--approve", "edits", "write new.txt: new\\n"]);
    scene.run(&["undo"]);
    for arguments in [
        &["changes", "--session", "3f2a"][..],
        &["diff", "--session", "3f2a"],
        &["diff"],
        &["diff", "--stat"],
        &["undo"],
        &["undo", "--session", "3f2a"],
        &["undo", "--change", "99"],
        &["undo", "--file", "missing"],
        &["redo", "--session", "3f2a"],
    ] {
        add_row(&scene, arguments, &mut table);
    }
    expect![[r#"
        0 changes
            > no agent has changed anything in $PROJECT yet
        0 diff
            bowline: no agent has changed anything in $PROJECT yet
        1 undo
            bowline: there is nothing to undo: no agent has changed anything in $PROJECT yet
        1 redo
            bowline: there is nothing to redo: no agent has changed anything in $PROJECT yet
        0 sessions
            > no sessions in $PROJECT
        0 audit
            bowline: no agent has done anything in $PROJECT yet: there is no audit log
        0 audit verify
            bowline: no agent has done anything in $PROJECT yet: there is no audit log
        0 policy
            > workspace $PROJECT
        1 policy forget 3
            bowline: there is no rule 3 here, there are 0 rules: `bowline policy show` lists them
        4 sessions show last
            bowline: there is no session in $PROJECT: `bowline sessions list --all` lists the others
        4 sessions export 3f2a
            bowline: there is no session 3f2a: `bowline sessions list --all` lists them
        4 sessions delete 3f2a
            bowline: there is no session 3f2a: `bowline sessions list --all` lists them
        4 run --session 3f2a x
            bowline: there is no session 3f2a: the agent says Resource not found: session 3f2a
        4 run --session last x
            bowline: there is no session here yet: leave out --session
        4 changes --session 3f2a
            bowline: no session 3f2a has changed anything here: `bowline changes --all` tells which did
        4 diff --session 3f2a
            bowline: no session 3f2a has changed anything here: `bowline changes --all` tells which did
        0 diff
            bowline: there is nothing to show of what agents changed: it is undone, or left the files as they were (bowline changes --all)
        0 diff --stat
            bowline: there is nothing to show of what agents changed: it is undone, or left the files as they were (bowline changes --all)
        1 undo
            bowline: there is nothing to undo: no change of an agent is in effect here
        4 undo --session 3f2a
            bowline: no session 3f2a has changed anything here: `bowline changes --all` tells which did
        1 undo --change 99
            bowline: there is no change 99 here: `bowline changes --all` lists them
        1 undo --file missing
            bowline: there is nothing to undo of what agents did to missing
        4 redo --session 3f2a
            bowline: no session 3f2a has changed anything here: `bowline changes --all` tells which did
    "#]].assert_eq(&table);
}

#[test]
fn an_agent_that_fails_is_a_failure_and_one_that_is_denied_has_its_own_code() {
    let scene = fixture();
    let crashes = write_script(&scene.base(), "crashes", "#!/bin/sh\nread line\nkill -9 $$\n");
    let exits = write_script(&scene.base(), "exits", "#!/bin/sh\nexit 3\n");
    let hangs = write_script(&scene.base(), "hangs", "#!/bin/sh\nwhile read line; do :; done\n");
    let mut table = String::new();
    for arguments in [
        &["run", "--agent", &crashes, "x"][..],
        &["run", "--agent", &exits, "x"],
        &["run", "--agent", &hangs, "--timeout", "1", "x"],
        &["run", "write new.txt: x"],
        &["run", "--approve", "none", "read a.txt"],
        &["run", "--read-only", "run true"],
        &["run", "--format", "quiet", "say hello"],
    ] {
        add_row(&scene, arguments, &mut table);
    }
    expect![[r#"
        1 run --agent $BASE/crashes x
            bowline: the agent ended before it answered: does it speak ACP?; it ended with signal: 9 (SIGKILL)
        1 run --agent $BASE/exits x
            bowline: the agent ended before it answered: does it speak ACP?; it ended with exit status: 3
        3 run --agent $BASE/hangs --timeout 1 x
            bowline: the agent did not start within TIME
        5 run write new.txt: x
            > ✗ edit: Write new.txt (TIME)
            bowline: denied: write new.txt: the user cannot be asked; --approve edits would allow it
        5 run --approve none read a.txt
            > ✗ read: Read a.txt (TIME)
            bowline: denied: read a.txt: by the preset deny; --approve reads would allow it
        0 run --read-only run true
            > Running `true` needs `execute` or `ide_terminal` or `bash`, which is not offered: the session may be read-only, or the agent was started without `--shell`, as `--no-terminal` has it.
        0 run --format quiet say hello
            > hello
    "#]].assert_eq(&table);
}

#[test]
fn what_cannot_be_shown_is_a_failure() {
    let scene = fixture();
    let mut table = String::new();
    for arguments in [
        &["--help"][..],
        &["undo", "--help"],
        &["--version"],
        &["changes"],
        &["completions", "bash"],
        &["demo"],
        &["doctor"],
        &["doctor", "--json"],
        &["policy"],
        &["sessions"],
        &["setup", "zed"],
        &["setup", "zed", "--dry-run"],
        &["setup", "emacs", "--write"],
    ] {
        let full = std::fs::File::options().write(true).open("/dev/full").unwrap();
        let mut command = scene.command(arguments);
        command.stdin(std::process::Stdio::null()).stdout(full).stderr(std::process::Stdio::piped());
        table += &format!("{}\n{}", arguments.join(" "), scene.describe_output(&command.output().unwrap()));
    }
    expect![[r#"
        --help
        --- stderr
        bowline: cannot write the results: No space left on device (os error 28)
        --- 1
        undo --help
        --- stderr
        bowline: cannot write the results: No space left on device (os error 28)
        --- 1
        --version
        --- stderr
        bowline: cannot write the results: No space left on device (os error 28)
        --- 1
        changes
        --- stderr
        bowline: cannot write the results: No space left on device (os error 28)
        --- 1
        completions bash
        --- stderr
        bowline: cannot write the results: No space left on device (os error 28)
        --- 1
        demo
        --- stderr
        bowline: cannot write the results: No space left on device (os error 28)
        --- 1
        doctor
        --- stderr
        bowline: cannot write the results: No space left on device (os error 28)
        --- 1
        doctor --json
        --- stderr
        bowline: cannot write the results: No space left on device (os error 28)
        --- 1
        policy
        --- stderr
        bowline: cannot write the results: No space left on device (os error 28)
        --- 1
        sessions
        --- stderr
        bowline: cannot write the results: No space left on device (os error 28)
        --- 1
        setup zed
        --- stderr
        bowline: cannot write the results: No space left on device (os error 28)
        --- 1
        setup zed --dry-run
        --- stderr
        bowline: cannot write the results: No space left on device (os error 28)
        --- 1
        setup emacs --write
        --- stderr
        bowline: cannot write the results: No space left on device (os error 28)
        --- 1
    "#]]
    .assert_eq(&table);
}
