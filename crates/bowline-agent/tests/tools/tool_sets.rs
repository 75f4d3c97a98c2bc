//! The available tools, their backends, and the explanations for missing ones.

use bowline_agent::agent_options::ToolSet;
use bowline_conversation::conversation::ToolUseInput;
use bowline_policy::mode::AgentMode;
use expect_test::{Expect, expect};
use serde_json::json;
use test_support::editor::EditorCapabilities;

use crate::fixture::ToolboxFixture;

fn check(actual: &str, expected: Expect) {
    expected.assert_eq(actual);
}

async fn open_dual(capabilities: EditorCapabilities) -> ToolboxFixture {
    ToolboxFixture::open_with(capabilities, AgentMode::Full, |options| options.tool_set = ToolSet::Dual, None)
        .await
}

#[tokio::test]
async fn who_serves_what_is_said_with_the_reason() {
    let fixture = ToolboxFixture::open(EditorCapabilities { read: true, ..EditorCapabilities::NONE }).await;
    check(
        &fixture.toolbox.runtime().describe().join("\n"),
        expect![[r#"
            reading files: the editor (it advertises fs.readTextFile)
            writing files: the agent's own machine (the editor does not advertise fs.writeTextFile)
            commands: the agent's own machine (the editor does not advertise terminal)
            listing and searching: the agent's own machine (the protocol has no such method)
            file metadata: the agent's own machine (the editor does not advertise _bowline/fs/stat)
            moving, deleting, writing several files: the agent's own machine (the editor does not advertise _bowline/fs/batch)"#]],
    );
}

#[tokio::test]
async fn two_sets_of_tools_for_two_machines() {
    let mut out = String::new();
    for capabilities in [
        EditorCapabilities::ALL,
        EditorCapabilities { read: true, ..EditorCapabilities::NONE },
        EditorCapabilities::NONE,
    ] {
        let fixture = open_dual(capabilities).await;
        let names: Vec<String> =
            fixture.toolbox.offered_specs(AgentMode::Full).iter().map(|spec| spec.name.clone()).collect();
        out += &format!("{}\n", names.join(" "));
    }
    check(
        &out,
        expect![[r#"
            ide_read_file ide_write_file ide_edit_file ide_terminal read_file write_file edit_file bash write_files append_file delete_file move_file list_directory stat_file search_text execute_output execute_kill update_plan
            ide_read_file read_file write_file edit_file bash write_files append_file delete_file move_file list_directory stat_file search_text execute_output execute_kill update_plan
            read_file write_file edit_file bash write_files append_file delete_file move_file list_directory stat_file search_text execute_output execute_kill update_plan
        "#]],
    );
}

#[tokio::test]
async fn each_tool_acts_on_its_own_machine() {
    let fixture = open_dual(EditorCapabilities::ALL).await;
    fixture.write_to_disk("a", "on disk\n");
    fixture.open_document("a", "in the editor\n");
    let mut out = fixture.call_tool("ide_read_file", json!({ "path": "a" })).await;
    out += &fixture.call_tool("read_file", json!({ "path": "a" })).await;
    let edit = |new: &str| json!({ "path": "a", "edits": [{ "old_text": "\n", "new_text": new }] });
    out += &fixture.call_tool("ide_edit_file", edit(" 1\n")).await;
    out += &fixture.call_tool("edit_file", edit(" 2\n")).await;
    check(
        &out,
        expect![[r#"
            = [a: all of it, 1 line, read through the editor]
            in the editor
            = [a: all of it, 1 line, read on the agent's own machine]
            on disk
            = Edited a in 1 place, through the editor.
            = Edited a in 1 place, on the agent's own machine.
        "#]],
    );
    check(
        &format!("{}{}", fixture.document("a"), fixture.read_from_disk("a")),
        expect![[r#"
        in the editor 1
        on disk 2
    "#]],
    );
}

#[tokio::test]
async fn a_tool_that_is_not_there_is_told_with_what_is() {
    let fixture = open_dual(EditorCapabilities::NONE).await;
    let mut out = String::new();
    for name in ["ide_read_file", "ide_write_file", "ide_edit_file", "ide_terminal", "rename_all"] {
        out += &fixture.call_tool(name, json!({ "path": "a" })).await;
    }
    let fixture = ToolboxFixture::open_with(
        EditorCapabilities::ALL,
        AgentMode::Full,
        |options| options.is_shell_enabled = false,
        None,
    )
    .await;
    out += &fixture.call_tool("execute", json!({ "command": "ls" })).await;
    let mut broken = fixture.tool_use("read_text_file", json!({}));
    broken.input =
        ToolUseInput::Broken { text: "{\"path\": \"a".to_owned(), why: "it ends early".to_owned() };
    out += &fixture.run_call(&broken).await;
    check(
        &out,
        expect![[r#"
            ! the user's editor does not offer reading files: use read_file, which acts on the agent's own machine
            ! the user's editor does not offer writing files: use write_file, which acts on the agent's own machine
            ! the user's editor does not offer reading and writing files: use edit_file, which acts on the agent's own machine
            ! the user's editor does not offer terminals: use bash, which acts on the agent's own machine
            ! there is no tool "rename_all": the tools are read_file, write_file, edit_file, bash, write_files, append_file, delete_file, move_file, list_directory, stat_file, search_text, execute_output, execute_kill, update_plan
            ! there is no tool "execute"; commands may not be run in this session: the tools are read_text_file, write_text_file, edit_text_file, write_files, append_file, delete_file, move_file, list_directory, stat_file, search_text, update_plan
            ! the input is not JSON (it ends early): call the tool again with a JSON object; what came was {"path": "a
        "#]],
    );
}

#[tokio::test]
async fn a_plan_is_shown_and_is_no_call() {
    let fixture = ToolboxFixture::open(EditorCapabilities::ALL).await;
    let plan = json!({ "entries": [
        { "content": "look", "status": "completed", "priority": "high" },
        { "content": "leap" },
    ] });
    check(
        &fixture.call_and_log("update_plan", plan).await,
        expect![[r#"
            > plan
                Completed High look
                Pending Medium leap
            = The user sees the plan: 2 entries, 1 of them open.
        "#]],
    );
    let plan = json!({ "entries": [{ "content": "look", "status": "done" }] });
    check(
        &fixture.call_and_log("update_plan", plan).await,
        expect![[r#"
            > tool_call turn1_1 "update_plan" Other Pending
                input {"entries":[{"content":"look","status":"done"}]}
            > update turn1_1 Failed
                text "entry 1: `status` has to be pending, in_progress or completed, and is \"done\""
                output "entry 1: `status` has to be pending, in_progress or completed, and is \"done\""
            ! entry 1: `status` has to be pending, in_progress or completed, and is "done"
        "#]],
    );
}

#[tokio::test]
async fn what_a_model_is_told_of_its_tools() {
    let fixture = open_dual(EditorCapabilities::ALL).await;
    let specs = fixture.toolbox.offered_specs(AgentMode::Full);
    let find_spec = |name: &str| specs.iter().find(|spec| spec.name == name).unwrap();
    check(
        &format!("{}\n\n{}\n", find_spec("ide_read_file").description, find_spec("read_file").description),
        expect![[r#"
            On the USER'S machine, in the user's editor: sees unsaved text, and the user sees what is done. Use it for all files of the user's project. Reads a text file. The answer is a line in brackets and then the text as it is, at most 2000 lines at a time; go on with `line` where it says so.

            On the AGENT'S OWN machine, not in the user's editor: unsaved text is not seen there. Reads a text file. The answer is a line in brackets and then the text as it is, at most 2000 lines at a time; go on with `line` where it says so. For the user's project use ide_read_file instead.
        "#]],
    );
    check(
        &serde_json::to_string_pretty(&find_spec("edit_file").schema).unwrap(),
        expect![[r#"
        {
          "type": "object",
          "properties": {
            "path": {
              "type": "string",
              "description": "The file: absolute, or relative to the session's directory. ~ is not expanded."
            },
            "edits": {
              "type": "array",
              "items": {
                "type": "object",
                "properties": {
                  "old_text": {
                    "type": "string",
                    "description": "The text to replace, exactly as it is in the file."
                  },
                  "new_text": {
                    "type": "string",
                    "description": "What takes its place."
                  },
                  "replace_all": {
                    "type": "boolean",
                    "description": "Whether every match is replaced; else there may be only one."
                  }
                },
                "required": [
                  "old_text",
                  "new_text"
                ],
                "additionalProperties": false
              },
              "minItems": 1
            }
          },
          "required": [
            "path",
            "edits"
          ],
          "additionalProperties": false
        }"#]],
    );
}
