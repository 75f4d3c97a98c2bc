//! Commands, limits and exits.

use agent_client_protocol_schema::v1::TerminalExitStatus;
use expect_test::expect;

use super::{BadCommand, Exit, Limits, MAX_ARGUMENT, MAX_ARGUMENTS, invocation, signal_name};

#[test]
fn a_line_for_a_shell_is_told_from_a_program() {
    let lines = [
        "ls",
        "g++",
        "/usr/bin/env",
        "./run.sh",
        "[",
        "python3.12",
        "npm test",
        "ls -la | wc",
        "a;b",
        "a&&b",
        "echo\thi",
        "$SHELL",
        "`id`",
        "~/bin/x",
        "a>b",
        "FOO=1",
        "\"quoted\"",
        "*.sh",
        "(id)",
        "#c",
        "c#",
        "a\nb",
    ];
    let shown: Vec<_> = lines.iter().map(|line| format!("{:?}", invocation(line, &[]).unwrap())).collect();
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
        .assert_eq(&format!("{:?}", invocation("echo x", &args).unwrap()));
}

#[test]
fn a_command_that_no_system_takes_is_refused() {
    assert_eq!(invocation(" \n", &[]), Err(BadCommand::Empty));
    assert_eq!(invocation("", &["x".to_owned()]), Err(BadCommand::Empty));
    assert_eq!(invocation("a\0b", &[]), Err(BadCommand::Nul));
    assert_eq!(invocation("a", &["\0".to_owned()]), Err(BadCommand::Nul));
    let long = "x".repeat(MAX_ARGUMENT + 1);
    assert_eq!(invocation(&long, &[]), Err(BadCommand::TooLong { bytes: MAX_ARGUMENT + 1 }));
    assert!(invocation("a", &[long[1..].to_owned()]).is_ok());
    let many = vec![String::new(); MAX_ARGUMENTS + 1];
    assert_eq!(invocation("a", &many), Err(BadCommand::TooMany { count: MAX_ARGUMENTS + 1, bytes: 1 }));
    let large = vec!["x".repeat(MAX_ARGUMENT); 9];
    assert_eq!(invocation("a", &large), Err(BadCommand::TooMany { count: 9, bytes: 9 * MAX_ARGUMENT + 1 }));
}

#[test]
fn the_request_chooses_its_limit_up_to_the_largest() {
    let limits = Limits { output_default: 100, output_max: 1000, terminals: 1 };
    assert_eq!([None, Some(0), Some(5), Some(u64::MAX)].map(|asked| limits.output(asked)), [100, 0, 5, 1000]);
}

#[test]
fn an_exit_is_always_a_code_or_a_signal() {
    let status = |exit: Exit| TerminalExitStatus::from(&exit);
    assert_eq!(status(Exit::Code(3)), TerminalExitStatus::new().exit_code(3));
    assert_eq!(
        status(Exit::Signal("SIGKILL".to_owned())),
        TerminalExitStatus::new().signal("SIGKILL".to_owned())
    );
}

#[test]
fn signals_have_their_names() {
    let names = [1, 2, 6, 9, 11, 13, 15, 31, 32, 34, 64, 0, -1].map(signal_name).join(" ");
    expect!["SIGHUP SIGINT SIGABRT SIGKILL SIGSEGV SIGPIPE SIGTERM SIGSYS SIG32 SIG34 SIG64 SIG0 SIG-1"]
        .assert_eq(&names);
}
