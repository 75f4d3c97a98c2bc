//! Tests of which server is a workspace.

use expect_test::{Expect, expect};
use serde_json::json;

use super::*;
use crate::mcp_tools::read_page;

/// Returns the tools of a whole workspace, as a server lists them.
fn tools() -> Vec<Value> {
    let id = || [("id", string("An id."))];
    let schemas = [
        (READ, read_schema()),
        (WRITE, write_schema()),
        (EDIT, edit_schema()),
        (LIST, list_schema()),
        (SEARCH, search_schema()),
        (RUN, run_schema()),
        (OUTPUT, object(&id(), &[("wait_seconds", number("How long."))])),
        (KILL, object(&id(), &[])),
    ];
    schemas.into_iter().map(|(name, schema)| json!({ "name": name, "inputSchema": schema })).collect()
}

fn check(change: impl FnOnce(&mut Vec<Value>), expected: Expect) {
    let mut tools = tools();
    change(&mut tools);
    expected.assert_eq(&format!("{:?}", recognise(&read_page(&json!({ "tools": tools })).tools)));
}

fn without(name: &str) -> impl FnOnce(&mut Vec<Value>) {
    move |tools| tools.retain(|tool| tool["name"] != name)
}

#[test]
fn a_server_is_a_workspace_if_it_reads_and_looks_around() {
    check(|_| (), expect!["Some(Workspace { writes: true, runs: true })"]);
    check(without(READ), expect!["None"]);
    check(without(LIST), expect!["None"]);
    check(without(SEARCH), expect!["None"]);
    check(Vec::clear, expect!["None"]);
}

#[test]
fn what_else_it_does_it_does_whole_or_not() {
    check(without(WRITE), expect!["Some(Workspace { writes: false, runs: true })"]);
    check(without(EDIT), expect!["Some(Workspace { writes: false, runs: true })"]);
    check(without(RUN), expect!["Some(Workspace { writes: true, runs: false })"]);
    check(without(OUTPUT), expect!["Some(Workspace { writes: true, runs: false })"]);
    check(without(KILL), expect!["Some(Workspace { writes: true, runs: false })"]);
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
    check(set(READ, object(&[path()], &[("head", number("")), ("tail", number(""))])), expect!["None"]);
    check(set(READ, json!({ "type": "object" })), expect!["None"]);
    check(set(READ, json!(null)), expect!["None"]);
    check(set(READ, object(&[path(), ("line", number("")), ("limit", number(""))], &[])), expect!["None"]);
    check(
        set(READ, object(&[path()], &[("line", number("")), ("limit", number("")), ("encoding", text())])),
        expect!["Some(Workspace { writes: true, runs: true })"],
    );
    check(
        set(WRITE, object(&[path(), ("contents", text())], &[])),
        expect!["Some(Workspace { writes: false, runs: true })"],
    );
}
