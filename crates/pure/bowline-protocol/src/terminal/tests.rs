//! Tests of commands, limits and exits.

use agent_client_protocol_schema::v1::TerminalExitStatus;
use expect_test::expect;

use super::{
    CommandExit, InvalidCommandError, MAX_ARGUMENT_LEN, MAX_ARGUMENTS, TerminalLimits, parse_invocation,
    signal_name,
};

#[test]
fn a_line_for_a_shell_is_told_from_a_program() {
    let lines = [
        "ls", "g++", "/usr/bin/env", "./run.sh", "[", "python3.12", "npm test", "ls -la | wc", "a;b", "a&&b",
        "echo\thi", "$SHELL", "`id`", "~/bin/x", "a>b", "FOO=1", "\"quoted\"", "*.sh", "(id)", "#c", "c#",
        "a\nb",
    ];
    let shown: Vec<_> =
        lines.iter().map(|line| format!("{:?}", parse_invocation(line, &[]).unwrap())).collect();
    expect![[r##"
        Argv(["ls"])
        Argv(["g++"])
        Argv(["/usr/bin/env"])
        Argv(["./run.sh"])
        Argv(["["])
        Argv(["python3.12"])
        Shell("npm test")
        Shell("ls -la | wc")
        Shell("a;b")
        Shell("a&&b")
        Shell("echo\thi")
        Shell("$SHELL")
        Shell("`id`")
        Shell("~/bin/x")
        Shell("a>b")
        Shell("FOO=1")
        Shell("\"quoted\"")
        Shell("*.sh")
        Shell("(id)")
        Shell("#c")
        Argv(["c#"])
        Shell("a\nb")"##]]
    .assert_eq(&shown.join("\n"));
}

#[test]
fn arguments_are_passed_on_as_they_are() {
    let args = ["a b", "$(id)", "; rm", "\"", ""].map(str::to_owned);
    expect![[r#"Argv(["echo x", "a b", "$(id)", "; rm", "\"", ""])"#]]
        .assert_eq(&format!("{:?}", parse_invocation("echo x", &args).unwrap()));
}

#[test]
fn a_command_that_no_system_takes_is_refused() {
    assert_eq!(parse_invocation(" \n", &[]), Err(InvalidCommandError::Empty));
    assert_eq!(parse_invocation("", &["x".to_owned()]), Err(InvalidCommandError::Empty));
    assert_eq!(parse_invocation("a\0b", &[]), Err(InvalidCommandError::ContainsNul));
    assert_eq!(parse_invocation("a", &["\0".to_owned()]), Err(InvalidCommandError::ContainsNul));
    let long = "x".repeat(MAX_ARGUMENT_LEN + 1);
    assert_eq!(
        parse_invocation(&long, &[]),
        Err(InvalidCommandError::TooLong { bytes: MAX_ARGUMENT_LEN + 1 })
    );
    assert!(parse_invocation("a", &[long[1..].to_owned()]).is_ok());
    let many = vec![String::new(); MAX_ARGUMENTS + 1];
    assert_eq!(
        parse_invocation("a", &many),
        Err(InvalidCommandError::TooMany { count: MAX_ARGUMENTS + 1, bytes: 1 })
    );
    let large = vec!["x".repeat(MAX_ARGUMENT_LEN); 9];
    assert_eq!(
        parse_invocation("a", &large),
        Err(InvalidCommandError::TooMany { count: 9, bytes: 9 * MAX_ARGUMENT_LEN + 1 })
    );
}

#[test]
fn the_request_chooses_its_limit_up_to_the_largest() {
    let limits = TerminalLimits { output_default: 100, output_max: 1000, terminals: 1 };
    assert_eq!(
        [None, Some(0), Some(5), Some(u64::MAX)].map(|requested| limits.output_limit(requested)),
        [100, 0, 5, 1000]
    );
}

#[test]
fn an_exit_is_always_a_code_or_a_signal() {
    let status = |exit: CommandExit| TerminalExitStatus::from(&exit);
    assert_eq!(status(CommandExit::Code(3)), TerminalExitStatus::new().exit_code(3));
    assert_eq!(
        status(CommandExit::Signal("SIGKILL".to_owned())),
        TerminalExitStatus::new().signal("SIGKILL".to_owned())
    );
}

#[test]
fn signals_have_their_names() {
    let names = [1, 2, 6, 9, 11, 13, 15, 31, 32, 34, 64, 0, -1].map(signal_name).join(" ");
    expect!["SIGHUP SIGINT SIGABRT SIGKILL SIGSEGV SIGPIPE SIGTERM SIGSYS SIG32 SIG34 SIG64 SIG0 SIG-1"]
        .assert_eq(&names);
}
