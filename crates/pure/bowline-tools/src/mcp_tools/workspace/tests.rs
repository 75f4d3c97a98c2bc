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
        (RUN_TOOL, run_schema()),
        (OUTPUT_TOOL, object(&id(), &[("wait_seconds", integer("How long."))])),
        (KILL_TOOL, object(&id(), &[])),
    ];
    schemas.into_iter().map(|(name, schema)| json!({ "name": name, "inputSchema": schema })).collect()
}

fn check(change: impl FnOnce(&mut Vec<Value>), expected: Expect) {
    let mut tools = workspace_tools();
    change(&mut tools);
    expected
        .assert_eq(&format!("{:?}", recognise_workspace(&parse_tool_page(&json!({ "tools": tools })).tools)));
}

fn without(name: &str) -> impl FnOnce(&mut Vec<Value>) {
    move |tools| tools.retain(|tool| tool["name"] != name)
}

#[test]
fn a_server_is_a_workspace_if_it_reads_and_looks_around() {
    check(|_| (), expect!["Some(WorkspaceToolset { can_write: true, can_run: true })"]);
    check(without(READ_TOOL), expect!["None"]);
    check(without(LIST_TOOL), expect!["None"]);
    check(without(SEARCH_TOOL), expect!["None"]);
    check(Vec::clear, expect!["None"]);
}

#[test]
fn what_else_it_does_it_does_whole_or_not() {
    check(without(WRITE_TOOL), expect!["Some(WorkspaceToolset { can_write: false, can_run: true })"]);
    check(without(EDIT_TOOL), expect!["Some(WorkspaceToolset { can_write: false, can_run: true })"]);
    check(without(RUN_TOOL), expect!["Some(WorkspaceToolset { can_write: true, can_run: false })"]);
    check(without(OUTPUT_TOOL), expect!["Some(WorkspaceToolset { can_write: true, can_run: false })"]);
    check(without(KILL_TOOL), expect!["Some(WorkspaceToolset { can_write: true, can_run: false })"]);
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
        expect!["None"],
    );
    check(set(READ_TOOL, json!({ "type": "object" })), expect!["None"]);
    check(set(READ_TOOL, json!(null)), expect!["None"]);
    check(
        set(READ_TOOL, object(&[path(), ("line", integer("")), ("limit", integer(""))], &[])),
        expect!["None"],
    );
    check(
        set(
            READ_TOOL,
            object(&[path()], &[("line", integer("")), ("limit", integer("")), ("encoding", text())]),
        ),
        expect!["Some(WorkspaceToolset { can_write: true, can_run: true })"],
    );
    check(
        set(WRITE_TOOL, object(&[path(), ("contents", text())], &[])),
        expect!["Some(WorkspaceToolset { can_write: false, can_run: true })"],
    );
}
