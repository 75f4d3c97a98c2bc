//! The examples do together what they are there to show.

use std::process::Command;

use expect_test::expect;

use crate::programs::{program, run, transcript};

#[test]
fn the_two_examples_read_ask_and_write_together() {
    let build = ["build", "--quiet", "--package", "bowline-wire", "--examples"];
    let agent = program("examples/agent", &build);
    let output = run(Command::new(program("examples/client", &build)).arg(agent));
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
    let build = ["build", "--quiet", "--package", "bowline-wire", "--examples"];
    let output = run(&mut Command::new(program("examples/client", &build)));
    expect![[r#"
        --- stderr
        Error: "usage: client AGENT [ARGUMENT…]"
        --- exit status: 1
    "#]]
    .assert_eq(&transcript(&output));
}

#[test]
fn the_workspace_keeps_what_both_wrote_and_undoes_what_the_agent_wrote() {
    let build = ["build", "--quiet", "--package", "bowline-workspace", "--examples"];
    let output = run(&mut Command::new(program("examples/workspace", &build)));
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
