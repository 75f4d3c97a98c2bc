//! The examples, run together.

use std::io::Write as _;
use std::process::{Command, Stdio};

use expect_test::expect;

use crate::programs::{build_program, run, transcript};

#[test]
fn the_two_examples_read_ask_and_write_together() {
    let build = ["build", "--quiet", "--package", "bowline-sdk", "--examples"];
    let agent = build_program("examples/agent", &build);
    let output = run(Command::new(build_program("examples/client", &build)).arg(agent));
    expect![[r#"
        ToolCall(ToolCall { tool_call_id: ToolCallId("call_1"), title: "Bump the version", name: None, kind: Edit, status: Pending, content: [], locations: [ToolCallLocation { path: "/project/config.json", line: None, meta: None }], raw_input: Some(Object {"path": String("/project/config.json"), "content": String("{ \"version\": \"2.0.0\" }\n")}), raw_output: None, meta: None })
        /project/config.json is now { "version": "2.0.0" }

        ToolCallUpdate(ToolCallUpdate { tool_call_id: ToolCallId("call_1"), fields: ToolCallUpdateFields { kind: None, status: Some(Completed), title: None, name: None, content: None, locations: None, raw_input: None, raw_output: None }, meta: None })
        EndTurn
        --- exit status: 0
    "#]].assert_eq(&transcript(&output));
}

#[test]
fn the_client_without_an_agent_says_what_it_needs() {
    let build = ["build", "--quiet", "--package", "bowline-sdk", "--examples"];
    let output = run(&mut Command::new(build_program("examples/client", &build)));
    expect![[r#"
        --- stderr
        Error: "usage: client AGENT [ARGUMENT…]"
        --- exit status: 1
    "#]]
    .assert_eq(&transcript(&output));
}

#[test]
fn an_editor_embeds_the_host_asks_its_user_and_undoes() {
    let agent =
        build_program("examples/agent", &["build", "--quiet", "--package", "bowline-sdk", "--examples"]);
    let build = ["build", "--quiet", "--package", "bowline-host", "--examples"];
    let mut editor = Command::new(build_program("examples/embed_host", &build));
    let mut editor = editor.arg(agent).stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
    editor.stdin.take().unwrap().write_all(b"y\n").unwrap();
    let output = editor.wait_with_output().unwrap();
    let told = transcript(&output);
    // The directory's name differs between runs.
    let (_, scratch) = told.split_once("write ").unwrap();
    let (scratch, _) = scratch.split_once("/project").unwrap();
    expect![[r#"
        The agent asks: Bump the version
          write $SCRATCH/project/config.json
          lines: 1 added, 1 removed
          @@ -1,2 +1,2 @@
           // typed
          -{ "version": "1.0.0" }
          +{ "version": "2.0.0" }
        Asked because no rule covers it, and preset ask asks before writes
        the agent wrote: Replaced
        EndTurn
        diff --git a/config.json b/config.json
        --- a/config.json
        +++ b/config.json
        @@ -1,2 +1,2 @@
         // typed
        -{ "version": "1.0.0" }
        +{ "version": "2.0.0" }
        undone, the editor shows Some("// typed\n{ \"version\": \"1.0.0\" }\n")
        --- exit status: 0
    "#]]
    .assert_eq(&told.replace(scratch, "$SCRATCH"));
}

#[test]
fn the_workspace_keeps_what_both_wrote_and_undoes_what_the_agent_wrote() {
    let build = ["build", "--quiet", "--package", "bowline-workspace", "--examples"];
    let output = run(&mut Command::new(build_program("examples/workspace", &build)));
    expect![[r#"
        the agent read "bowline\r\nclove hitch\r\nsheet bend\r\n"
        the user typed, and did not save
        the agent wrote: Some(Merged), the file has "BOWLINE\r\nclove hitch\r\nreef knot\r\n"
        diff --git a/knots.txt b/knots.txt
        --- a/knots.txt
        +++ b/knots.txt
        @@ -1,3 +1,3 @@
        -bowline\r
        +BOWLINE\r
         clove hitch\r
         reef knot\r
        undone, the file has "bowline\r\nclove hitch\r\nreef knot\r\n"
        --- exit status: 0
    "#]]
    .assert_eq(&transcript(&output).replace('\r', "\\r"));
}
