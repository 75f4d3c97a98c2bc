//! Tests of wrong usage of every command: one clear line, and exit code 2.

use crate::fixture::CliFixture;
use crate::screen::Screen;
use expect_test::expect;

/// Runs the program with wrong arguments, and records its one-line message.
fn check(scene: &CliFixture, arguments: &[&str], told: &mut String) {
    let output = scene.run_command(scene.command(arguments), "");
    let stderr = String::from_utf8(output.stderr).unwrap();
    assert!(output.stdout.is_empty(), "{arguments:?}: {:?}", output.stdout);
    assert_eq!(output.status.code(), Some(2), "{arguments:?}: {stderr}");
    assert_eq!(stderr.lines().count(), 1, "{arguments:?}: {stderr}");
    *told += &scene.normalize(&format!("{}\n  {stderr}", arguments.join(" ")));
}

#[test]
fn without_a_home_variable_the_home_of_the_account_is_used() {
    let scene = CliFixture::new();
    let mut command = scene.command(&["policy", "show"]);
    command.env_remove("HOME");
    let told = scene.describe_output(&scene.run_command(command, ""));
    let user = std::os::unix::fs::MetadataExt::uid(&std::fs::metadata("/proc/self").unwrap()).to_string();
    let accounts = std::fs::read_to_string("/etc/passwd").unwrap();
    let mut accounts = accounts.lines().map(|line| line.split(':').collect::<Vec<_>>());
    let home = accounts.find(|fields| fields[2] == user).unwrap()[5];
    assert!(told.contains(&format!("\nrules in  {home}/.config/bowline/policy.toml")), "{told}");
}

#[test]
fn an_option_that_does_not_exist_is_named() {
    let scene = CliFixture::new();
    let mut told = String::new();
    for command in [
        "demo", "run", "chat", "agent", "mcp", "proxy", "connect", "web", "changes", "diff", "undo", "redo",
        "restore", "sessions", "audit", "trace", "policy", "doctor", "setup", "man", "completions",
    ] {
        check(&scene, &[command, "--no-such-option"], &mut told);
    }
    expect![[r#"
        demo --no-such-option
          bowline: unexpected argument '--no-such-option' found (see --help)
        run --no-such-option
          bowline: unexpected argument '--no-such-option' found; to pass '--no-such-option' as a value, use '-- --no-such-option' (see --help)
        chat --no-such-option
          bowline: unexpected argument '--no-such-option' found (see --help)
        agent --no-such-option
          bowline: unexpected argument '--no-such-option' found; a similar argument exists: '--instruction' (see --help)
        mcp --no-such-option
          bowline: unexpected argument '--no-such-option' found (see --help)
        proxy --no-such-option
          bowline: unexpected argument '--no-such-option' found; a similar argument exists: '--no-mcp'; to pass '--no-such-option' as a value, use '-- --no-such-option' (see --help)
        connect --no-such-option
          bowline: unexpected argument '--no-such-option' found; to pass '--no-such-option' as a value, use '-- --no-such-option' (see --help)
        web --no-such-option
          bowline: unexpected argument '--no-such-option' found; to pass '--no-such-option' as a value, use '-- --no-such-option' (see --help)
        changes --no-such-option
          bowline: unexpected argument '--no-such-option' found (see --help)
        diff --no-such-option
          bowline: unexpected argument '--no-such-option' found (see --help)
        undo --no-such-option
          bowline: unexpected argument '--no-such-option' found (see --help)
        redo --no-such-option
          bowline: unexpected argument '--no-such-option' found (see --help)
        restore --no-such-option
          bowline: unexpected argument '--no-such-option' found; to pass '--no-such-option' as a value, use '-- --no-such-option' (see --help)
        sessions --no-such-option
          bowline: unexpected argument '--no-such-option' found (see --help)
        audit --no-such-option
          bowline: unexpected argument '--no-such-option' found (see --help)
        trace --no-such-option
          bowline: unexpected argument '--no-such-option' found (see --help)
        policy --no-such-option
          bowline: unexpected argument '--no-such-option' found (see --help)
        doctor --no-such-option
          bowline: unexpected argument '--no-such-option' found; to pass '--no-such-option' as a value, use '-- --no-such-option' (see --help)
        setup --no-such-option
          bowline: unexpected argument '--no-such-option' found; to pass '--no-such-option' as a value, use '-- --no-such-option' (see --help)
        man --no-such-option
          bowline: unexpected argument '--no-such-option' found; to pass '--no-such-option' as a value, use '-- --no-such-option' (see --help)
        completions --no-such-option
          bowline: unexpected argument '--no-such-option' found; to pass '--no-such-option' as a value, use '-- --no-such-option' (see --help)
    "#]]
    .assert_eq(&told);
}

#[test]
fn what_a_run_cannot_be_is_said() {
    let scene = CliFixture::new();
    let mut told = String::new();
    for arguments in [
        &["rnu"][..],
        &["run", "--modle", "offline", "x"],
        &["proxy"],
        &["undo", "--file"],
        &["trace"],
        &["setup"],
        &["setup", "ed"],
        &["completions"],
        &["sessions", "show"],
        &["policy", "allow"],
        &["mcp", "extra"],
        &["run", "two\nlines", "--\u{1b}[2J"],
        &["run", "--format", "yaml", "x"],
        &["run", "--approve", "everything", "x"],
        &["run", "--timeout", "soon", "x"],
        &["run", "--timeout", "0", "x"],
        &["run", "--file", "a", "prompt"],
        &["run", "--agent", "'", "x"],
        &["run", "--agent", "", "x"],
        &["run", "--mode", "yolo", "x"],
        &["run", "--cwd", "missing", "x"],
        &["run", "--add-dir", "missing", "x"],
        &["run", "--mcp", "x", "x"],
        &["run", "--mcp", "x='", "x"],
        &["run", "--policy", "missing", "x"],
        &["run", "--open", "a=missing", "x"],
        &["run", " "],
    ] {
        check(&scene, arguments, &mut told);
    }
    expect![[r#"
        rnu
          bowline: unrecognized subcommand 'rnu' (see --help)
        run --modle offline x
          bowline: unexpected argument '--modle' found; a similar argument exists: '--mode' (see --help)
        proxy
          bowline: the following required arguments were not provided: <AGENT>... (see --help)
        undo --file
          bowline: a value is required for '--file <PATH>' but none was supplied (see --help)
        trace
          bowline: 'bowline trace' requires a subcommand but one was not provided [subcommands: show, replay, help] (see --help)
        setup
          bowline: the following required arguments were not provided: <EDITOR> (see --help)
        setup ed
          bowline: invalid value 'ed' for '<EDITOR>' [possible values: zed, jetbrains, neovim, emacs, vscode, claude-desktop, claude-code, cursor] (see --help)
        completions
          bowline: the following required arguments were not provided: <SHELL> (see --help)
        sessions show
          bowline: the following required arguments were not provided: <ID> (see --help)
        policy allow
          bowline: the following required arguments were not provided: <KIND> <PATTERN>... (see --help)
        mcp extra
          bowline: unexpected argument 'extra' found (see --help)
        run two
        lines --[2J
          bowline: unexpected argument '--' found; to pass '--' as a value, use '-- --' (see --help)
        run --format yaml x
          bowline: invalid value 'yaml' for '--format <FORMAT>' [possible values: text, json, quiet, result] (see --help)
        run --approve everything x
          bowline: invalid value 'everything' for '--approve <WHAT>' [possible values: all, edits, reads, ask, none] (see --help)
        run --timeout soon x
          bowline: invalid value 'soon' for '--timeout <SECONDS>': write a number of seconds that leaves some time, such as 600 or 0.5 (see --help)
        run --timeout 0 x
          bowline: invalid value '0' for '--timeout <SECONDS>': write a number of seconds that leaves some time, such as 600 or 0.5 (see --help)
        run --file a prompt
          bowline: the argument '--file <FILE>' cannot be used with '[PROMPT]...' (see --help)
        run --agent ' x
          bowline: a quote is not closed in the command '
        run --agent  x
          bowline: the command is empty: name a program
        run --mode yolo x
          bowline: there is no mode yolo: it has read-only, ask, accept-edits, full
        run --cwd missing x
          bowline: cannot use the directory $PROJECT/missing: No such file or directory (os error 2)
        run --add-dir missing x
          bowline: cannot open the directory $PROJECT/missing: No such file or directory (os error 2)
        run --mcp x x
          bowline: x is no MCP server: write it as NAME=COMMAND or NAME=URL
        run --mcp x=' x
          bowline: a quote is not closed in the command '
        run --policy missing x
          bowline: cannot read the rules $PROJECT/missing: No such file or directory (os error 2)
        run --open a=missing x
          bowline: cannot read $PROJECT/missing: No such file or directory (os error 2)
        run  
          bowline: the prompt is empty: say what the agent should do
    "#]]
    .assert_eq(&told);
}

#[tokio::test]
async fn help_is_broken_between_words_where_the_terminal_is_narrow() {
    let scene = CliFixture::new();
    let mut screen = Screen::start(&scene, &["sessions", "export", "--help"]);
    assert_eq!(screen.wait_for_exit().await, Some(0));
    expect![[r#"
              --format <FORMAT>
                  The output format

                  Possible values:
                  - markdown: Readable text
                  - json:     All stored data
                  - replay:   The model's replies, for playback

                  [default: markdown]

          -o, --output <FILE>
                  The file to create, readable by you only; it must not exist yet

          -h, --help
                  Print help (see a summary with '-h')

        A replay file has the model's replies: `bowline agent --model replay:FILE` gives
        them again to the same prompts, without the model.

        Examples:
          bowline sessions export last --output session.md
          bowline sessions export 3f2a --format json | jq .messages
          bowline sessions export 3f2a --format replay --output again.jsonl
    "#]]
    .assert_eq(&screen.text());
    let mut screen = Screen::start(&scene, &[]);
    assert_eq!(screen.wait_for_exit().await, Some(2));
    expect![[r#"
          man          Print manual pages, or write them to a directory
          completions  Print a shell completion script
          help         Print this message or the help of the given subcommand(s)

        Options:
          -h, --help     Print help
          -V, --version  Print version

        Exit status: 0 success, 1 failure, 2 wrong usage, 3 timed out (--timeout), 4 no
        such session, 5 denied without a user to ask, 130 interrupted, 143 terminated.

        Environment:
          XDG_STATE_HOME     journal, audit log and sessions (default: ~/.local/state)
          XDG_CONFIG_HOME    rules, agents and keys (default: ~/.config)
          XDG_DATA_HOME      anchors of the audit log (default: ~/.local/share)
          NO_COLOR           no colours
          PAGER              the pager for long lists in a terminal
          BOWLINE_TOKEN      the token for a server, unless --token-file names one
          BOWLINE_STORE      the store of `bowline serve`, unless --store names one
          ANTHROPIC_API_KEY  and others: API keys for Bowline's own agent

        For examples, run `bowline COMMAND --help`. To get started, try `bowline demo`
        and `bowline doctor`.
    "#]]
    .assert_eq(&screen.text());
}

#[tokio::test]
async fn what_programs_start_tells_a_person_that_it_waits() {
    let scene = CliFixture::new();
    let mut told = String::new();
    for arguments in [&["agent"][..], &["mcp"], &["proxy", "--", "cat"], &["connect", "http://127.0.0.1:1"]] {
        let mut screen = Screen::start(&scene, arguments);
        told += &format!("{}\n{}", arguments.join(" "), screen.wait_for_text("(see --help)").await);
        screen.send("\u{4}").await;
        told += &format!("--- {:?}\n", screen.wait_for_exit().await);
    }
    expect![[r#"
        agent
        bowline: waiting for an editor that speaks ACP; Ctrl-D ends it (see --help)
        --- Some(0)
        mcp
        bowline: waiting for a client that speaks MCP; Ctrl-D ends it (see --help)
        --- Some(0)
        proxy -- cat
        bowline: waiting for an editor that speaks ACP; Ctrl-D ends it (see --help)
        --- Some(0)
        connect http://127.0.0.1:1
        bowline: waiting for an editor that speaks ACP; Ctrl-D ends it (see --help)
        --- Some(0)
    "#]]
    .assert_eq(&told);
}
