//! Tests of workspace detection.

use expect_test::{Expect, expect};
use serde_json::json;

use super::*;
use crate::mcp_tools::parse_tool_page;

/// Returns the tools of a full workspace, as a server lists them.
fn workspace_tools() -> Vec<Value> {
    let id = || [("id", string("An id."))];
    let schemas = [
        (READ_TOOL, read_schema()),
        (WRITE_TOOL, write_schema()),
        (EDIT_TOOL, edit_schema()),
        (LIST_TOOL, list_schema()),
        (SEARCH_TOOL, search_schema()),
        (STAT_TOOL, stat_schema()),
        (WRITE_FILES_TOOL, write_files_schema()),
        (APPEND_TOOL, append_schema()),
        (DELETE_TOOL, delete_schema()),
        (MOVE_TOOL, move_schema()),
        (RUN_TOOL, run_schema()),
        (OUTPUT_TOOL, object(&id(), &[("wait_seconds", integer("How long."))])),
        (KILL_TOOL, object(&id(), &[])),
    ];
    schemas.into_iter().map(|(name, schema)| json!({ "name": name, "inputSchema": schema })).collect()
}

fn check(change: impl FnOnce(&mut Vec<Value>), expected: Expect) {
    let mut tools = workspace_tools();
    change(&mut tools);
    let toolset = recognise_workspace(&parse_tool_page(&json!({ "tools": tools })).tools);
    let words = toolset.map_or("none".to_owned(), |toolset| {
        let WorkspaceToolset { can_write, can_stat, can_batch, can_run } = toolset;
        let abilities = [("write", can_write), ("stat", can_stat), ("batch", can_batch), ("run", can_run)];
        let words = abilities.iter().filter(|(_, is_able)| *is_able).map(|(word, _)| *word);
        words.collect::<Vec<_>>().join(" ")
    });
    expected.assert_eq(&words);
}

fn without(name: &str) -> impl FnOnce(&mut Vec<Value>) {
    move |tools| tools.retain(|tool| tool["name"] != name)
}

#[test]
fn a_server_is_a_workspace_if_it_reads_and_looks_around() {
    check(|_| (), expect!["write stat batch run"]);
    check(without(READ_TOOL), expect!["none"]);
    check(without(LIST_TOOL), expect!["none"]);
    check(without(SEARCH_TOOL), expect!["none"]);
    check(Vec::clear, expect!["none"]);
}

#[test]
fn what_else_it_does_it_does_whole_or_not() {
    check(without(WRITE_TOOL), expect!["stat batch run"]);
    check(without(EDIT_TOOL), expect!["stat batch run"]);
    check(without(RUN_TOOL), expect!["write stat batch"]);
    check(without(OUTPUT_TOOL), expect!["write stat batch"]);
    check(without(STAT_TOOL), expect!["write batch run"]);
    for name in [WRITE_FILES_TOOL, APPEND_TOOL, DELETE_TOOL, MOVE_TOOL] {
        check(without(name), expect!["write stat run"]);
    }
    check(without(KILL_TOOL), expect!["write stat batch"]);
}

#[test]
fn tools_of_the_same_names_that_are_called_otherwise_are_others() {
    let set = |name: &'static str, schema: Value| {
        move |tools: &mut Vec<Value>| {
            let tool = tools.iter_mut().find(|tool| tool["name"] == name).unwrap();
            tool["inputSchema"] = schema;
        }
    };
    let text = || string("");
    let path = || ("path", text());
    check(
        set(READ_TOOL, object(&[path()], &[("head", integer("")), ("tail", integer(""))])),
        expect!["none"],
    );
    check(set(READ_TOOL, json!({ "type": "object" })), expect!["none"]);
    check(set(READ_TOOL, json!(null)), expect!["none"]);
    check(
        set(READ_TOOL, object(&[path(), ("line", integer("")), ("limit", integer(""))], &[])),
        expect!["none"],
    );
    check(
        set(
            READ_TOOL,
            object(&[path()], &[("line", integer("")), ("limit", integer("")), ("encoding", text())]),
        ),
        expect!["write stat batch run"],
    );
    check(set(WRITE_TOOL, object(&[path(), ("contents", text())], &[])), expect!["stat batch run"]);
}
