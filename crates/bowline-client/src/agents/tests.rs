//! Tests of how an agent's program is resolved.

use clap::Parser;
use expect_test::{Expect, expect};

use super::*;

#[derive(Parser)]
struct AgentTestCli {
    #[command(flatten)]
    client: ClientArguments,
}

fn check(config: Option<&str>, arguments: &[&str], expected: Expect) {
    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("config.toml");
    if let Some(config) = config {
        std::fs::write(&file, config).unwrap();
    }
    let cli = AgentTestCli::parse_from([&["x"], arguments].concat());
    let command = Config::read(directory.path()).and_then(|config| {
        AgentCommand::from_arguments(&config.fill_arguments(cli.client), &config, Some(&"/bin".into()))
    });
    let text = match command {
        Ok(agent) => {
            let own_program = std::env::current_exe().unwrap().display().to_string();
            let line = agent.command_line().replace(&own_program, "$SELF");
            format!("{}: {line} {:?}{}\n", agent.name, agent.env, if agent.is_own { " own" } else { "" })
        }
        Err(error) => format!("{} {error:?}\n", error.exit_code()),
    };
    expected.assert_eq(&text.replace(&directory.path().display().to_string(), "$CONFIG"));
}

#[test]
fn the_configuration_says_what_the_command_line_leaves_open() {
    let config = "agent = \"gem\"\napprove = \"edits\"\n[agents.gem]\ncommand = \"gemini --acp\"\n";
    check(
        Some(config),
        &[],
        expect![[r#"
        gem: gemini --acp {}
    "#]],
    );
    check(
        Some(config),
        &["--agent", "bowline"],
        expect![[r#"
        bowline: $SELF agent --mode accept-edits --shell {} own
    "#]],
    );
    check(
        Some(config),
        &["--agent", "bowline", "--mode", "full"],
        expect![[r#"
        bowline: $SELF agent --mode full --shell {} own
    "#]],
    );
    check(
        Some(config),
        &["--agent", "bowline", "--approve", "all"],
        expect![[r#"
        bowline: $SELF agent --mode full --shell {} own
    "#]],
    );
    check(
        Some(config),
        &["--agent", "bowline", "--read-only"],
        expect![[r#"
        bowline: $SELF agent --mode read-only --mode-at-most read-only {} own
    "#]],
    );
    check(
        Some("approve = \"some\""),
        &[],
        expect![[r#"
        2 Usage("$CONFIG/config.toml:1: unknown variant `some`, expected one of `all`, `edits`, `reads`, `ask`, `none`")
    "#]],
    );
}

#[test]
fn without_a_word_it_is_our_own() {
    check(
        None,
        &[],
        expect![[r#"
        bowline: $SELF agent --shell {} own
    "#]],
    );
    check(
        None,
        &["--agent", "bowline", "--no-terminal", "--model", "ollama/x", "--mode", "full"],
        expect![[r#"
        bowline: $SELF agent --model ollama/x --mode full {} own
    "#]],
    );
    check(
        None,
        &["--read-only"],
        expect![[r#"
            bowline: $SELF agent --mode read-only --mode-at-most read-only {} own
        "#]],
    );
    check(
        None,
        &["--mode", "careless"],
        expect![[r#"
        2 Usage("there is no mode careless: it has read-only, ask, accept-edits, full")
    "#]],
    );
}

#[test]
fn a_command_line_is_split_as_a_shell_would() {
    check(
        None,
        &["--agent", "/opt/my\\ agent --flag 'two words'"],
        expect![[r#"
        /opt/my\ agent --flag 'two words': '/opt/my agent' --flag 'two words' {}
    "#]],
    );
    check(
        None,
        &["--agent", "sh"],
        expect![[r#"
        sh: sh {}
    "#]],
    );
    check(
        None,
        &["--agent", "sh 'open"],
        expect![[r#"
        2 Usage("a quote is not closed in the command sh 'open")
    "#]],
    );
    check(
        None,
        &["--agent", "  "],
        expect![[r#"
        2 Usage("the command is empty: name a program")
    "#]],
    );
}

#[test]
fn a_name_is_looked_up_in_the_configuration() {
    let config = r#"
        [agents.gem]
        command = "node '/opt/g m/gemini.js'"
        args = ["--acp", "$HOME stays"]
        env = { KEY = "x y" }
    "#;
    check(
        Some(config),
        &["--agent", "gem"],
        expect![[r#"
        gem: node '/opt/g m/gemini.js' --acp '$HOME stays' {"KEY": "x y"}
    "#]],
    );
    check(
        Some(config),
        &["--agent", "gme"],
        expect![[r#"
        2 Usage("there is no agent gme: not found in PATH, and $CONFIG/config.toml names gem")
    "#]],
    );
    check(
        None,
        &["--agent", "gme"],
        expect![[r#"
        2 Usage("there is no agent gme: not found in PATH, and $CONFIG/config.toml names none")
    "#]],
    );
}

#[test]
fn a_configuration_that_is_not_understood_says_where() {
    check(
        Some("[agents.x]\ncommand = \"a\"\ncomand = 1\n"),
        &["--agent", "x"],
        expect![[r#"
        2 Usage("$CONFIG/config.toml:3: unknown field `comand`, expected one of `command`, `args`, `env`")
    "#]],
    );
    check(
        Some("ignore-changes = [\"*.orig\", \"[a\"]\n"),
        &["--agent", "x"],
        expect![[r#"
        2 Usage("$CONFIG/config.toml:1: the pattern \"[a\" cannot be used: unclosed character class; missing ']'")
    "#]],
    );
    check(
        Some("[agents.x\n"),
        &["--agent", "x"],
        expect![[r#"
        2 Usage("$CONFIG/config.toml:1: unclosed table, expected `]`")
    "#]],
    );
    check(
        Some("[agents.x]\ncommand = \"'\"\n"),
        &["--agent", "x"],
        expect![[r#"
        2 Usage("the command of the agent x in $CONFIG/config.toml is no command line: '")
    "#]],
    );
    check(
        Some("[agents.x]\n"),
        &["--agent", "x"],
        expect![[r#"
        2 Usage("$CONFIG/config.toml:1: missing field `command`")
    "#]],
    );
}

#[test]
fn what_it_does_by_itself_is_no_more_than_it_may() {
    let mut output = String::new();
    for options in [
        &["--read-only", "--mode", "full"][..],
        &["--read-only", "--mode", "accept-edits"],
        &["--read-only", "--mode", "read-only"],
        &["--no-fs", "--mode", "full"],
        &["--no-fs", "--mode", "full", "--approve", "all"],
        &["--no-fs", "--mode", "full", "--approve", "edits"],
        &["--no-terminal", "--mode", "accept-edits", "--approve", "ask"],
        &["--no-fs", "--mode", "ask", "--approve", "reads"],
        &["--mode", "full", "--approve", "reads"],
        &["--no-fs", "--approve", "none"],
        &["--no-terminal", "--approve", "none"],
    ] {
        let client = AgentTestCli::parse_from([&["x"], options].concat()).client;
        output += &match options::own_agent_modes(&client) {
            Ok(modes) => format!("{options:?}: {:?}, at most {}\n", modes.initial, modes.widest.id()),
            Err(error) => format!("{options:?}: {} {error:?}\n", error.exit_code()),
        };
    }
    expect![[r#"
        ["--read-only", "--mode", "full"]: 2 Usage("--read-only and --mode full contradict each other: leave one of them out")
        ["--read-only", "--mode", "accept-edits"]: 2 Usage("--read-only and --mode accept-edits contradict each other: leave one of them out")
        ["--read-only", "--mode", "read-only"]: Some(ReadOnly), at most read-only
        ["--no-fs", "--mode", "full"]: Some(Full), at most full
        ["--no-fs", "--mode", "full", "--approve", "all"]: Some(Full), at most full
        ["--no-fs", "--mode", "full", "--approve", "edits"]: 2 Usage("--mode full and --approve edits contradict each other, as both set what Bowline's own agent may do: leave one of them out")
        ["--no-terminal", "--mode", "accept-edits", "--approve", "ask"]: 2 Usage("--mode accept-edits and --approve ask contradict each other, as both set what Bowline's own agent may do: leave one of them out")
        ["--no-fs", "--mode", "ask", "--approve", "reads"]: 2 Usage("--mode ask and --approve reads contradict each other, as both set what Bowline's own agent may do: leave one of them out")
        ["--mode", "full", "--approve", "reads"]: 2 Usage("--mode full and --approve reads contradict each other, as both set what Bowline's own agent may do: leave one of them out")
        ["--no-fs", "--approve", "none"]: 2 Usage("--approve none cannot be kept with --no-fs, as the agent reads by itself: leave one of them out")
        ["--no-terminal", "--approve", "none"]: None, at most ask
    "#]].assert_eq(&output);
}

#[test]
fn the_environment_is_passed_on_as_far_as_it_is_text() {
    use std::os::unix::ffi::OsStringExt as _;
    let client = AgentTestCli::parse_from(["x", "--agent", "sh -c 'a b'"]).client;
    let mut agent = AgentCommand::from_arguments(&client, &Config::default(), Some(&"/bin".into())).unwrap();
    agent.env.insert("A".to_owned(), "configured".to_owned());
    let broken = OsString::from_vec(vec![b'x', 0xff]);
    let environment = [("A".into(), "inherited".into()), ("B".into(), "b".into()), ("C".into(), broken)];
    let program = agent.program(Path::new("/w"), environment).unwrap();
    expect![[r#"
        (
            [
                "sh",
                "-c",
                "a b",
            ],
            [
                (
                    "A",
                    "configured",
                ),
                (
                    "B",
                    "b",
                ),
            ],
            "/w",
        )
    "#]]
    .assert_debug_eq(&(program.argv, program.env, program.directory));
}

#[test]
fn an_agent_on_a_server_is_reached_by_a_process_of_this_program() {
    check(
        Some("agent = \"gem\"\n[agents.gem]\ncommand = \"gemini --acp\"\n"),
        &["--connect", "https://h", "--token-file", "/t", "--insecure"],
        expect![[r#"
        https://h/acp: $SELF connect https://h --token-file /t --insecure {}
    "#]],
    );
    check(
        None,
        &["--connect", "ftp://h"],
        expect![[r#"
        2 Usage("--connect: ftp:// is not supported: write http://, https://, ws:// or wss://")
    "#]],
    );
}
