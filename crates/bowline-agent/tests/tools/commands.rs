//! Commands in the editor's terminals: ended, timed out, cancelled, in the background.

use bowline_protocol::schema::v1::TerminalExitStatus;
use expect_test::{Expect, expect};
use serde_json::json;
use test_support::editor::{EditorCapabilities, EditorFault, FakeCommand};

use crate::fixture::ToolboxFixture;

fn check(actual: &str, expected: Expect) {
    expected.assert_eq(actual);
}

#[tokio::test]
async fn a_command_runs_to_its_end_in_a_terminal_that_is_shown() {
    let fixture = ToolboxFixture::open(EditorCapabilities::ALL).await;
    fixture.editor.queue_command(FakeCommand::exited("\u{1b}[31mone\u{1b}[0m\ntwo\n", 0));
    check(
        &fixture.call_and_log("execute", json!({ "command": "cargo test --all" })).await,
        expect![[r#"
            > tool_call turn1_1 "Run cargo test --all" Execute Pending
                text "```\nrun cargo test --all\nin $ROOT\n```"
                input {"command":"cargo test --all","cwd":"$ROOT"}
            > update turn1_1 InProgress
            < terminal/create "cargo" "test" "--all" in $ROOT limit 262144
            > update turn1_1
                terminal t1
            < terminal/wait_for_exit t1
            < terminal/output t1
            < terminal/release t1
            > update turn1_1 Completed
                output {"servedBy":"client","exit":"0","timedOut":false,"truncated":false,"output":"one\ntwo\n"}
            = [`cargo test --all` ended with exit code 0, through the editor, N s]
            one
            two
        "#]],
    );
    assert_eq!(fixture.editor.open_terminals(), 0);
}

#[tokio::test]
async fn how_a_command_is_given_to_the_editor() {
    let fixture = ToolboxFixture::open(EditorCapabilities::ALL).await;
    let mut out = String::new();
    for input in [
        json!({ "command": "ls -l 'a b'" }),
        json!({ "command": "cat a | wc -l" }),
        json!({ "command": "cd src && make" }),
        json!({ "command": "cd src" }),
        json!({ "command": "A=1 make" }),
        json!({ "command": "ls *.rs" }),
        json!({ "command": "echo $HOME" }),
        json!({ "command": "printf", "args": ["%s", "a|b"], "cwd": "src", "env": { "A": "1" } }),
    ] {
        let log = fixture.call_and_log("execute", input).await;
        let line = log.lines().find(|line| line.contains("terminal/create"));
        out += &format!("{}\n", line.unwrap_or(&log));
    }
    check(
        &out,
        expect![[r#"
        < terminal/create "ls" "-l" "a b" in $ROOT limit 262144
        < terminal/create "/bin/sh" "-c" "cat a | wc -l" in $ROOT limit 262144
        < terminal/create "/bin/sh" "-c" "cd src && make" in $ROOT limit 262144
        < terminal/create "/bin/sh" "-c" "cd src" in $ROOT limit 262144
        < terminal/create "/bin/sh" "-c" "A=1 make" in $ROOT limit 262144
        < terminal/create "/bin/sh" "-c" "ls *.rs" in $ROOT limit 262144
        < terminal/create "/bin/sh" "-c" "echo $HOME" in $ROOT limit 262144
        < terminal/create "printf" "%s" "a|b" in $ROOT/src A=1 limit 262144
    "#]],
    );
}

#[tokio::test]
async fn what_is_no_success_is_none() {
    let fixture = ToolboxFixture::open(EditorCapabilities::ALL).await;
    let mut out = String::new();
    let exited_with = |exit: TerminalExitStatus| FakeCommand {
        output: "out\n".to_owned(),
        exit: Some(exit),
        truncated: true,
    };
    for run in [
        FakeCommand::exited("no such test\n", 101),
        exited_with(TerminalExitStatus::new().signal("SIGSEGV".to_owned())),
        exited_with(TerminalExitStatus::new()),
    ] {
        fixture.editor.queue_command(run);
        out += &fixture.call_tool("execute", json!({ "command": "make" })).await;
    }
    out += &fixture.call_tool("execute", json!({ "command": " " })).await;
    fixture.editor.queue_fault(
        "terminal/create",
        EditorFault::Refuse(bowline_protocol::schema::v1::Error::internal_error()),
    );
    out += &fixture.call_tool("execute", json!({ "command": "make" })).await;
    fixture.editor.queue_fault("terminal/create", EditorFault::Stall);
    out += &fixture.call_tool("execute", json!({ "command": "make" })).await;
    check(
        &out,
        expect![[r#"
            ! [`make` failed with exit code 101, through the editor, N s]
            no such test
            ! [`make` was ended by the signal SIGSEGV, through the editor, N s; some of its output is missing]
            out
            = [`make` ended, and the editor does not say how, through the editor, N s; some of its output is missing]
            out
            ! the command is empty: name a program, or give a shell line
            ! `make`: the editor says: Internal error
            ! it is not known whether `make` runs: the editor did not answer terminal/create within 4 s
        "#]],
    );
}

#[tokio::test]
async fn a_command_that_takes_too_long_is_ended_and_its_output_kept() {
    let fixture = ToolboxFixture::open_with(
        EditorCapabilities::ALL,
        bowline_policy::mode::AgentMode::Full,
        |options| options.command_timeout = std::time::Duration::from_millis(50),
        None,
    )
    .await;
    fixture.editor.queue_command(FakeCommand::endless("listening\n"));
    check(
        &fixture.call_and_log("execute", json!({ "command": "serve" })).await,
        expect![[r#"
            > tool_call turn1_1 "Run serve" Execute Pending
                text "```\nrun serve\nin $ROOT\n```"
                input {"command":"serve","cwd":"$ROOT"}
            > update turn1_1 InProgress
            < terminal/create "serve" in $ROOT limit 262144
            > update turn1_1
                terminal t1
            < terminal/wait_for_exit t1
            < terminal/kill t1
            < $/cancel_request for terminal/wait_for_exit
            < terminal/output t1
            < terminal/release t1
            > update turn1_1 Failed
                output {"servedBy":"client","exit":null,"timedOut":true,"truncated":false,"output":"listening\n"}
            ! [`serve` was ended because it took longer than N s; this is its output so far, through the editor, N s]
            listening
        "#]],
    );
    assert_eq!(fixture.editor.open_terminals(), 0);
}

#[tokio::test]
async fn long_output_is_shown_by_its_start_and_its_end() {
    let fixture = ToolboxFixture::open(EditorCapabilities::ALL).await;
    let output: String = (0..10_000).map(|line| format!("line {line}\n")).collect();
    fixture.editor.queue_command(FakeCommand::exited(&output, 0));
    let output = fixture.call_tool("execute", json!({ "command": "make" })).await;
    let middle = output.lines().position(|line| line.contains("left out")).unwrap();
    let lines: Vec<&str> = output.lines().collect();
    check(
        &[lines[0], lines[1], lines[middle - 1], lines[middle], lines[middle + 1], lines[lines.len() - 1]]
            .join("\n"),
        expect![[r#"
            = [`make` ended with exit code 0, through the editor, N s]
            line 0
            line 921
            [66132 bytes left out]
            line 7543
            line 9999"#]],
    );
}

#[tokio::test]
async fn a_call_that_is_dropped_leaves_no_terminal() {
    for method in ["terminal/create", "terminal/wait_for_exit", "terminal/output", "terminal/release"] {
        let fixture = ToolboxFixture::open(EditorCapabilities::ALL).await;
        match method {
            "terminal/wait_for_exit" => fixture.editor.queue_command(FakeCommand::endless("")),
            // The terminal is created, and the answer comes after the call was dropped.
            "terminal/create" => {}
            method => fixture.editor.queue_fault(method, EditorFault::Stall),
        }
        let call = fixture.tool_use("execute", json!({ "command": "serve" }));
        tokio::select! {
            biased;
            () = fixture.editor.wait_for_log(method) => {}
            output = fixture.run_call(&call) => panic!("it ended: {output}"),
        }
        fixture.toolbox.clean_up().await;
        fixture.editor.wait_for_log("terminal/release").await;
        assert_eq!(fixture.editor.open_terminals(), 0, "{method}");
    }
}

#[tokio::test]
async fn a_terminal_that_is_never_created_is_given_up() {
    let fixture = ToolboxFixture::open(EditorCapabilities::ALL).await;
    fixture.editor.queue_fault("terminal/create", EditorFault::Stall);
    let call = fixture.tool_use("execute", json!({ "command": "serve" }));
    tokio::select! {
        _ = fixture.run_call(&call) => unreachable!("it is never created"),
        () = fixture.editor.wait_for_log("terminal/create") => {}
    }
    fixture.toolbox.clean_up().await;
    fixture.editor.wait_for_log("$/cancel_request for terminal/create").await;
}

#[tokio::test]
async fn a_terminal_that_is_created_too_late_is_ended() {
    // The call is dropped, or it times out.
    for is_dropped in [true, false] {
        let fixture = ToolboxFixture::open(EditorCapabilities::ALL).await;
        fixture.editor.queue_fault("terminal/create", EditorFault::ActAfterCancel);
        fixture.editor.queue_command(FakeCommand::endless(""));
        let call = fixture.tool_use("execute", json!({ "command": "serve" }));
        if is_dropped {
            tokio::select! {
                _ = fixture.run_call(&call) => unreachable!("it is not created yet"),
                () = fixture.editor.wait_for_log("terminal/create") => {}
            }
            fixture.toolbox.clean_up().await;
        } else {
            fixture.run_call(&call).await;
        }
        fixture.editor.wait_for_log("$/cancel_request for terminal/create").await;
        fixture.editor.wait_for_log("terminal/kill t1").await;
        fixture.editor.wait_for_log("terminal/release t1").await;
    }
}

#[tokio::test]
async fn a_cancelled_turn_ends_its_commands_in_the_background_and_no_others() {
    let mut fixture = ToolboxFixture::open(EditorCapabilities::ALL).await;
    for turn in [1, 2] {
        fixture.cx.turn = turn;
        fixture.editor.queue_command(FakeCommand::endless(""));
        fixture.call_tool("execute", json!({ "command": "serve", "background": true })).await;
    }
    fixture.toolbox.end_turn(2).await;
    fixture.editor.wait_for_log("terminal/release t2").await;
    check(
        &fixture.call_tool("execute_output", json!({ "id": "bg2" })).await,
        expect![[r#"
            ! no command runs in the background as "bg2": there are bg1
        "#]],
    );
}

#[tokio::test]
async fn commands_in_the_background_that_have_ended_make_room() {
    let fixture = ToolboxFixture::open(EditorCapabilities::ALL).await;
    let start = || fixture.call_tool("execute", json!({ "command": "serve", "background": true }));
    for _ in 0..16 {
        fixture.editor.queue_command(FakeCommand::endless(""));
        start().await;
    }
    let mut out = start().await;
    fixture.editor.update_terminal("t3", |run| run.exit = Some(TerminalExitStatus::new().exit_code(0)));
    out += &start().await;
    check(
        &out,
        expect![[r#"
            ! 16 commands run in the background already: end one first
            = `serve` runs in the background as bg17, through the editor. Look at its output with execute_output, end it with execute_kill.
        "#]],
    );
}

#[tokio::test]
async fn a_command_in_the_background_tells_what_is_new() {
    let fixture = ToolboxFixture::open(EditorCapabilities::ALL).await;
    fixture.editor.queue_command(FakeCommand::endless("one\n"));
    check(
        &fixture.call_and_log("execute", json!({ "command": "serve", "background": true })).await,
        expect![[r#"
            > tool_call turn1_1 "Run in the background: serve" Execute Pending
                text "```\nrun serve\nin $ROOT\n```"
                input {"command":"serve","cwd":"$ROOT","background":true}
            > update turn1_1 InProgress
            < terminal/create "serve" in $ROOT limit 262144
            > update turn1_1
                terminal t1
            > update turn1_1 Completed
                output {"servedBy":"client","id":"bg1","terminalId":"t1"}
            = `serve` runs in the background as bg1, through the editor. Look at its output with execute_output, end it with execute_kill.
        "#]],
    );
    let mut out = fixture.call_tool("execute_output", json!({ "id": "bg1" })).await;
    fixture.editor.update_terminal("t1", |run| run.output.push_str("two\n"));
    out += &fixture.call_tool("execute_output", json!({ "id": "bg1" })).await;
    // The start of the output is dropped.
    fixture.editor.update_terminal("t1", |run| run.output = "two\nthree\n".to_owned());
    out += &fixture.call_tool("execute_output", json!({ "id": "bg1" })).await;
    fixture.editor.update_terminal("t1", |run| {
        run.output = "something else\n".to_owned();
        run.exit = Some(TerminalExitStatus::new().exit_code(3));
    });
    out += &fixture.call_tool("execute_output", json!({ "id": "bg1", "wait_seconds": 5 })).await;
    out += &fixture.call_tool("execute_output", json!({ "id": "bg1" })).await;
    check(
        &out,
        expect![[r#"
            = [bg1 (`serve`) is running; new output:]
            one
            = [bg1 (`serve`) is running; new output:]
            two
            = [bg1 (`serve`) is running; new output:]
            three
            ! [bg1 (`serve`) failed with exit code 3, some output in between is missing; new output:]
            something else
            ! no command runs in the background as "bg1": none runs
        "#]],
    );
    assert_eq!(fixture.editor.open_terminals(), 0);
}

#[tokio::test]
async fn a_command_in_the_background_is_ended_by_its_tool_and_with_the_session() {
    let fixture = ToolboxFixture::open(EditorCapabilities::ALL).await;
    for _ in 0..2 {
        fixture.editor.queue_command(FakeCommand::endless("on and on\n"));
        fixture.call_tool("execute", json!({ "command": "serve", "background": true })).await;
    }
    check(
        &fixture.call_and_log("execute_kill", json!({ "id": "bg1" })).await,
        expect![[r#"
            > tool_call turn1_3 "End bg1: serve" Execute Pending
                input {"id":"bg1"}
            > update turn1_3 InProgress
            < terminal/kill t1
            < terminal/output t1
            < terminal/release t1
            > update turn1_3 Completed
                text "[bg1 (`serve`) was ended; its last output:]\non and on\n"
                output "[bg1 (`serve`) was ended; its last output:]\non and on\n"
            = [bg1 (`serve`) was ended; its last output:]
            on and on
        "#]],
    );
    // A background command is not an orphan: cleaning up after a turn leaves it alone.
    fixture.toolbox.clean_up().await;
    assert_eq!(fixture.editor.open_terminals(), 1);
    fixture.toolbox.end_session().await;
    assert_eq!(fixture.editor.open_terminals(), 0);
}
