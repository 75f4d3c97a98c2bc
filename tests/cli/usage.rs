//! Wrong usage of every command: one clear message, and 2.

use crate::program::Scene;
use crate::screen::Screen;
use expect_test::expect;

/// Runs the program with wrong arguments, and returns the first line of what it says, and how it ended.
fn check(scene: &Scene, arguments: &[&str], told: &mut String) {
    let output = scene.output(scene.command(arguments), "");
    let stderr = String::from_utf8(output.stderr).unwrap();
    assert!(output.stdout.is_empty(), "{arguments:?}: {:?}", output.stdout);
    assert_eq!(output.status.code(), Some(2), "{arguments:?}: {stderr}");
    let first = stderr.lines().next().unwrap_or_default();
    *told += &scene.clean(&format!("{}\n  {first}\n", arguments.join(" ")));
}

#[test]
fn an_option_that_does_not_exist_is_named() {
    let scene = Scene::new();
    let mut told = String::new();
    for command in [
        "demo",
        "run",
        "chat",
        "agent",
        "changes",
        "diff",
        "undo",
        "redo",
        "sessions",
        "audit",
        "policy",
        "doctor",
        "setup",
        "completions",
    ] {
        check(&scene, &[command, "--no-such-option"], &mut told);
    }
    expect![[r#"
        demo --no-such-option
          error: unexpected argument '--no-such-option' found
        run --no-such-option
          error: unexpected argument '--no-such-option' found
        chat --no-such-option
          error: unexpected argument '--no-such-option' found
        agent --no-such-option
          error: unexpected argument '--no-such-option' found
        changes --no-such-option
          error: unexpected argument '--no-such-option' found
        diff --no-such-option
          error: unexpected argument '--no-such-option' found
        undo --no-such-option
          error: unexpected argument '--no-such-option' found
        redo --no-such-option
          error: unexpected argument '--no-such-option' found
        sessions --no-such-option
          error: unexpected argument '--no-such-option' found
        audit --no-such-option
          error: unexpected argument '--no-such-option' found
        policy --no-such-option
          error: unexpected argument '--no-such-option' found
        doctor --no-such-option
          error: unexpected argument '--no-such-option' found
        setup --no-such-option
          error: unexpected argument '--no-such-option' found
        completions --no-such-option
          error: unexpected argument '--no-such-option' found
    "#]]
    .assert_eq(&told);
}

#[test]
fn what_a_run_cannot_be_is_said() {
    let scene = Scene::new();
    let mut told = String::new();
    for arguments in [
        &["rnu"][..],
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
          error: unrecognized subcommand 'rnu'
        run --format yaml x
          error: invalid value 'yaml' for '--format <FORMAT>'
        run --approve everything x
          error: invalid value 'everything' for '--approve <WHAT>'
        run --timeout soon x
          error: invalid value 'soon' for '--timeout <SECONDS>': invalid digit found in string
        run --timeout 0 x
          bowline: --timeout 0 would leave no time: give it a second at least
        run --file a prompt
          error: the argument '--file <FILE>' cannot be used with '[PROMPT]...'
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
    let scene = Scene::new();
    let mut screen = Screen::start(&scene, &["sessions", "export", "--help"]);
    assert_eq!(screen.end().await, Some(0));
    expect![[r#"
                  In which form

                  Possible values:
                  - markdown: For people
                  - json:     Everything that is stored
                  - replay:   The replies of the model, to be played back

                  [default: markdown]

          -o, --output <FILE>
                  The file to write, which only you can read; it may not be there yet

          -h, --help
                  Print help (see a summary with '-h')

        markdown is for people, json has everything that is stored, and replay has the
        replies of the model, which `bowline agent --model replay:FILE` gives again to
        the same prompts without the model.

        Examples:
          bowline sessions export last --output session.md
          bowline sessions export 3f2a --format json | jq .messages
          bowline sessions export 3f2a --format replay --output again.jsonl
    "#]]
    .assert_eq(&screen.text());
    let mut screen = Screen::start(&scene, &[]);
    assert_eq!(screen.end().await, Some(2));
    expect![[r#"
          audit        Shows and verifies the record of what agents did here
          trace        Shows what was said between a client and an agent, and plays it
                       back
          policy       Shows and changes what agents may do here without a question
          doctor       Says what works, what does not, and what to do about it
          setup        Prints the configuration that an editor needs, or writes it
          completions  Prints a script that completes commands and options in a shell
          help         Print this message or the help of the given subcommand(s)

        Options:
          -h, --help     Print help
          -V, --version  Print version

        Exit status: 0 done, 1 failed, 2 wrong usage, 3 took longer than --timeout, 4 no
        such session, 5 denied with nobody to ask, 130 interrupted.

        Environment: HOME, or XDG_STATE_HOME (journal, audit log, sessions),
        XDG_CONFIG_HOME (rules, agents) and XDG_DATA_HOME (anchors) say where Bowline
        keeps what is yours; NO_COLOR turns colours off; keys such as ANTHROPIC_API_KEY
        are for `bowline agent`.

        `bowline COMMAND --help` has examples. `bowline demo` shows all of it; `bowline
        doctor` says what works here.
    "#]]
    .assert_eq(&screen.text());
}

#[tokio::test]
async fn what_programs_start_tells_a_person_that_it_waits() {
    let scene = Scene::new();
    let mut told = String::new();
    for arguments in [&["agent"][..], &["mcp"], &["proxy", "--", "cat"]] {
        let mut screen = Screen::start(&scene, arguments);
        told += &format!("{}\n{}", arguments.join(" "), screen.shows("tells more").await);
        screen.send("\u{4}").await;
        told += &format!("--- {:?}\n", screen.end().await);
    }
    expect![[r#"
        agent
        bowline: waits for an editor that speaks ACP; Ctrl-D ends it, --help tells more
        --- Some(0)
        mcp
        bowline: waits for a client that speaks MCP; Ctrl-D ends it, --help tells more
        --- Some(0)
        proxy -- cat
        bowline: waits for an editor that speaks ACP; Ctrl-D ends it, --help tells more
        --- Some(0)
    "#]]
    .assert_eq(&told);
}
